"""Very many procedures that wait cost those that work nothing: what is done again and again goes
over none of them.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.registry import Registry, procedure, step
from procedures.engine.roster import Live
from procedures.engine.submission import Submission, check, create
from tests.procedures.engine.test_procedures_store import over
from tests.procedures.lab import Lab
from tests.procedures.stores import STORES, Looks
from tests.procedures.zoo import TYPES, Zoo


@procedure("many.waits")
class Waits(Zoo):
    @step(first=True)
    async def wait(self, ctx: StepContext) -> Outcome:
        return p.suspend(event="never", then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done(None)


@procedure("many.locked", locks=lambda args: [p.exclusive(f"partition/{args}")])
class Locked(Waits):
    pass


class Counting:
    """Counts the records that are read."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.loads = inner, 0

    def __getattr__(self, name: str) -> Any:
        if name in ("load", "live"):
            self.loads += 1
        return getattr(self.inner, name)


def test_u1_looking_for_strays_reads_no_record_that_is_here() -> None:
    """Every minute 100,000 records were read and decoded, for seconds, beside everybody's steps."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Waits, Locked])
        store = Counting(lab.store)
        async with lab.executor(store) as executor:
            for _ in range(300):
                await executor.submit(Submission("many.waits", None, "tester", ""))
            await asyncio.sleep(0.5)
            store.loads = 0
            # one that another executor left behind: it, and only it, is read
            ok = check(Submission("many.locked", 7, "tester", ""), lab.types)
            stray = create(ok, id=await lab.store.take_ids(1), salt=b"12345678", now_ms=1)
            await lab.store.insert(stray)
            await asyncio.sleep(200)
            assert executor.live_one(stray.id) is not None
            assert store.loads <= 5, store.loads

    simloop.run(main)


def test_u1_those_with_locks_and_those_of_a_type_are_known() -> None:
    """The balancer would move a partition that is locked, or go over all to find out."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Waits, Locked])
        async with lab.executor() as executor:
            for _ in range(3):
                await executor.submit(Submission("many.waits", None, "tester", ""))
            ids = [
                await executor.submit(Submission("many.locked", n, "tester", "")) for n in (1, 2)
            ]
            await asyncio.sleep(0.5)
            assert [live.id for live in executor.locked()] == ids
            assert [live.id for live in executor.live_of("many.locked")] == ids
            assert len(executor.live_of("many.waits")) == 3
            assert executor.live_of("many.none") == []
            await executor.abort(ids[0], "seen")
            executor.signal("never")
            await asyncio.sleep(1)
            assert executor.locked() == []
            assert executor.live_of("many.waits") == executor.live() == []
            assert _names(executor) == []

    simloop.run(main)


def _names(executor: Executor) -> list[str]:
    return executor._roster.names()


def test_u1_what_is_the_databases_own_is_known() -> None:
    """Who asks for the database's own procedures would get none, or a user's hundred thousand."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Locked])
        lab.types.users_follow()
        lab.types.add(Waits, make=lab._maker(Waits))
        async with lab.executor() as executor:
            await executor.submit(Submission("many.waits", None, "tester", ""))
            own = await executor.submit(Submission("many.locked", 1, "tester", ""))
            assert [live.id for live in executor.live_own()] == [own]
            assert lab.types.is_own("of a later version")

    simloop.run(main)


@STORES
def test_l1_ids_of_what_is_live(kind: str) -> None:
    """A store that leaves one out has a stray that nobody ever runs."""

    async def test(store: Any, looks: Looks) -> None:
        ok = check(Submission("three", None, "me", ""), Registry(TYPES))
        ids = []
        for _ in range(7):
            record = create(ok, id=await store.take_ids(1), salt=b"12345678", now_ms=1_000)
            await store.insert(record)
            ids.append(record.id)
        assert await store.live_ids(0, 100) == ids
        assert await store.live_ids(0, 3) == ids[:3]
        assert await store.live_ids(ids[2], 3) == ids[3:6]
        assert await store.live_ids(ids[-1], 3) == []

    over(kind, test)


@pytest.mark.slow
def test_u1_the_collector_finds_one_object_of_one_that_waits() -> None:
    """Python's collector looks at all of them in one go, and the loop stands still meanwhile: for
    0.2 s at 100,000 procedures of five objects each.
    """

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Waits, Locked])
        async with lab.executor(lab.store) as executor:
            for _ in range(2):
                await executor.submit(Submission("many.waits", None, "tester", ""))
            await asyncio.sleep(1)
            gc.collect()  # it lets go of what holds only what it need not look at
            one, other = map(_held, executor.live())
            assert not one.keys() - other.keys(), [one[id] for id in one.keys() - other.keys()]

    simloop.run(main)


def _held(live: Live) -> dict[int, object]:
    """What it has that the collector looks at, by identity."""
    record = live.record
    assert record is not None
    held = [getattr(live, name) for name in live.__slots__]
    held += [getattr(record, name) for name in record.__struct_fields__]
    return {id(x): x for x in held if gc.is_tracked(x)}
