"""Locks that go on to the next one with the end of their holder (docs/decisions/0419)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.errors import KvorumError, Unavailable, UnknownOutcome
from procedures.engine.locks import LockTable
from procedures.engine.procedure import State
from procedures.engine.resources import EXCLUSIVE, SHARED, checked
from tests.procedures.engine.test_locks_engine import (
    args,
    end,
    grants,
    in_lab,
    overlaps,
    rows,
    submit,
)
from tests.procedures.lab import Lab
from tests.procedures.stores import STORES


class Watched:
    """A store that passes everything on. `around(handing over, write)` does an update; `load` may
    fail so often.
    """

    def __init__(self, inner: Any, around: Callable[[bool, Any], Any] | None = None) -> None:
        self.inner, self.around = inner, around
        self.updates = self.deaf = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def load(self, id: int) -> Any:
        if self.deaf:
            self.deaf -= 1
            raise Unavailable("not now")
        return await self.inner.load(id)

    async def update(self, version: int, change: Any, **more: Any) -> Any:
        self.updates += 1
        if self.around is None:
            return await self.inner.update(version, change, **more)
        handing = any(other.reign for _, other in change.others)
        return await self.around(handing, lambda: self.inner.update(version, change, **more))


def diary(lab: Lab) -> list[Any]:
    found: list[Any] = lab.__dict__.get("diary", [])
    return found


@STORES
def test_k7_the_end_of_one_is_the_grant_of_the_next(kind: str) -> None:
    """Each grant of a contended lock cost a write of its own between two procedures, or the next
    holder's token was not larger than the last one's.
    """

    async def test(lab: Lab) -> None:
        store = Watched(lab.store)
        async with lab.executor(store) as executor:
            ids = [await submit(executor, args("x:r", "s:all")) for _ in range(4)]
            ends = [await end(executor, id) for id in ids]
            assert executor.counters()["handed"] == 3
            assert store.updates == 2 * 4, "two steps each, and nothing else"
            assert await rows(lab) == 0
        assert not overlaps(diary(lab))
        assert all(e.state is State.SUCCESS for e in ends)
        tokens = [done.grant for done in ends]
        assert tokens == [0] * 4, "they hold nothing any more"

    in_lab(test, kind=kind)


def test_k7_tokens_rise_from_hand_to_hand() -> None:
    """A lock that was handed on had the token of its last holder, so the late writes of that one
    counted.
    """

    async def test(lab: Lab) -> None:
        seen: list[tuple[int, int]] = []

        async def around(_handing: bool, write: Any) -> Any:
            version = await write()
            for holder in await grants(lab, "r"):
                stored = await lab.store.load(holder)
                seen.append((holder, stored.record.grant))
            return version

        async with lab.executor(Watched(lab.store, around)) as executor:
            for id in [await submit(executor, args("x:r")) for _ in range(3)]:
                await end(executor, id)
        once = list(dict.fromkeys(seen))
        assert [holder for holder, _ in once] == sorted({holder for holder, _ in once})
        assert len(once) == 3, "each had one token"
        tokens = [token for _, token in once]
        assert tokens == sorted(set(tokens))

    in_lab(test)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("deaf", [0, 3])
def test_k11_a_lock_whose_way_nobody_heard_of(written: bool, deaf: int) -> None:
    """After a lost answer the lock was given to a third one, or to nobody."""

    async def test(lab: Lab) -> None:
        lost = False

        async def around(handing: bool, write: Any) -> Any:
            nonlocal lost
            if not handing or lost:
                return await write()
            lost = True
            if written:
                await write()
            store.deaf = deaf
            raise UnknownOutcome("the answer is lost")

        store = Watched(lab.store, around)
        async with lab.executor(store) as executor:
            ids = [await submit(executor, args("x:r")) for _ in range(3)]
            for id in ids:
                assert (await end(executor, id)).state is State.SUCCESS
            assert lost
            assert await rows(lab) == 0
        assert not overlaps(diary(lab))

    in_lab(test)


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_k7_an_heir_that_is_aborted_meanwhile(seconds: float) -> None:
    """Who was aborted while the lock was on its way to it took the lock along, or its holder did
    not come to its end.
    """

    async def test(lab: Lab) -> None:
        aborting: list[asyncio.Task[None]] = []

        async def around(handing: bool, write: Any) -> Any:
            if handing and not aborting:
                aborting.append(asyncio.ensure_future(executor.abort(ids[1], "not this one")))
                await asyncio.sleep(seconds)  # surgery waits for a moment, then it does not
            return await write()

        async with lab.executor(Watched(lab.store, around)) as executor:
            ids = [await submit(executor, args("x:r")) for _ in range(3)]
            states = [(await end(executor, id)).state for id in ids]
            await aborting[0]
            assert states[0] is states[2] is State.SUCCESS
            assert states[1] in (State.FAILED, State.ROLLED_BACK)
            assert await rows(lab) == 0
        assert not overlaps(diary(lab))

    in_lab(test)


def test_k11_a_deposed_executor_hands_nothing_on() -> None:
    """A lock that the old master was handing on arrived after the new one had read who has it."""

    async def test(lab: Lab) -> None:
        async def around(handing: bool, write: Any) -> Any:
            if handing:
                await asyncio.sleep(2)
            return await write()

        async with lab.executor(Watched(lab.store, around)) as old:
            first = await submit(old, args("x:r"))
            second = await submit(old, args("x:r"))
            await asyncio.sleep(0.5)
            assert await grants(lab, "r") == [first], "its end is on its way"
            async with lab.executor() as new:
                for id in (first, second):
                    assert (await end(new, id)).state is State.SUCCESS
                await asyncio.sleep(5)
                with pytest.raises(KvorumError, match="another executor"):
                    await submit(old, args("x:other"))
            assert await rows(lab) == 0
        inside = [who for who, what in diary(lab) if what == "in"]
        assert inside.index(second) > max(i for i, who in enumerate(inside) if who == first)

    in_lab(test)


_NAMES = ("a", "b", "namespace/n", "table/n/t")
_LOCKS = st.lists(
    st.tuples(st.sampled_from((SHARED, EXCLUSIVE)), st.sampled_from(_NAMES)), min_size=1, max_size=3
).map(lambda locks: checked(locks, "test"))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(_LOCKS, min_size=2, max_size=12), st.lists(_LOCKS, max_size=4), st.data())
def test_k7_an_heir_can_take_what_it_is_left(
    first: list[Any], late: list[Any], data: st.DataObject
) -> None:
    """An heir was named who would have had to wait for somebody else, or who was forestalled by
    one that came between the look and the release.
    """
    table = LockTable()
    locks = dict(enumerate(first, 1))
    for id, wanted in locks.items():
        if not table.take(id, wanted):
            table.wait(id, wanted)
    held = [id for id in locks if table.holds(id)]
    heirs = {id: table.heir(id) for id in held}
    holder = data.draw(st.sampled_from(held))
    for id, wanted in enumerate(late, 100):
        if not table.take(id, wanted):
            table.wait(id, wanted)
    for other in held:
        if other != holder and data.draw(st.booleans()):
            table.release(other)
    heir = heirs[holder]
    if heir and not table.holds(heir):
        freed = table.release(holder)
        assert heir in freed
        assert table.take(heir, locks[heir])
