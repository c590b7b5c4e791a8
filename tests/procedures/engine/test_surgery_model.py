"""Surgery under crashes, races and failovers: nothing is left behind or written late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.errors import Rejected
from kvorum.testing.simulation import loop as simloop
from procedures.engine.executor import Executor
from procedures.engine.registry import Registry
from procedures.engine.submission import Submission
from tests.procedures.engine.test_surgery import TYPES, WHO, begun, in_lab, left
from tests.procedures.lab import CrashingStore, Lab, crashed, refusal
from tests.procedures.pools.pool_lab import Office

Action = Callable[[Executor, int], Awaitable[Any]]

# what is operated on, how, and whether it has ended then
ACTIONS: dict[str, tuple[str, dict[str, Any], Action, str]] = {
    "abort": ("op.two", {"wait": True, "locks": ["r"]}, lambda e, id: _abort(e, id), "ROLLED_BACK"),
    "abort a tree": ("op.tree", {"depth": 1}, lambda e, id: _abort(e, id), "ROLLED_BACK"),
    "bypass": ("op.two", {"wait": True, "locks": ["r"]}, lambda e, id: _bypass(e, id), "BYPASSED"),
    "bypass a tree": ("op.tree", {"depth": 2}, lambda e, id: _bypass(e, id), "BYPASSED"),
    "retry": ("op.two", {"wait": True, "locks": ["r"]}, lambda e, id: _retry(e, id), "SUCCESS"),
    "steal": ("op.two", {"wait": True, "locks": ["r"]}, lambda e, id: _steal(e, id), "SUCCESS"),
}


async def _abort(executor: Executor, id: int) -> Any:
    return await executor.surgeon.abort(id, *WHO, key="k")


async def _bypass(executor: Executor, id: int) -> Any:
    return await executor.surgeon.bypass(id, *WHO, recursive=True, override=True, key="k")


async def _retry(executor: Executor, id: int) -> Any:
    return await executor.surgeon.retry(id, *WHO, step="two", key="k")


async def _steal(executor: Executor, id: int) -> Any:
    told = await executor.surgeon.steal("r", *WHO, key="k")
    executor.signal("go")
    return told


def _operated(name: str, at: int, *, after: bool) -> int:
    """One action, whose process dies at its `at`-th write since it began; how many there were."""
    kind, args, action, state = ACTIONS[name]
    writes = 0

    async def test(lab: Lab) -> None:
        nonlocal writes
        inner = lab.store
        async with lab.executor() as executor:
            id = await begun(executor, kind, args, "the one")
        store = CrashingStore(inner, at, after=after)
        try:
            async with lab.executor(store) as executor:
                await asyncio.sleep(0.05)
                await action(executor, id)
                record = await executor.wait(id, 60_000)
            writes = store.writes
        except BaseException as error:
            if not crashed(error):
                raise
        lab.store = inner
        async with lab.executor() as executor:
            if store.dead:
                await asyncio.sleep(0.05)
                entries, _ = await executor.surgeon.book.page(procedure=id, limit=10)
                ended = (await executor.find(id)).ended
                if not entries:
                    await action(executor, id)  # nothing of it was done: its author asks again
                elif not ended:
                    executor.signal("go")
            record = await executor.wait(id, 60_000)
            assert record.state.name == state, record
            assert len((await executor.surgeon.book.page(procedure=id, limit=10))[0]) == 1
            await executor.acknowledge(id)
            assert not executor.live()
            assert await left(lab) == {"locks": 0, "rows": 0}

    in_lab(test)
    return writes


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ACTIONS)
def test_m8_a_crash_at_every_write_of_an_action(name: str) -> None:
    """A master that died left an action half done, or done without its entry in the audit."""
    count = _operated(name, 0, after=False)
    assert count
    for at in range(1, count + 1):
        for after in (False, True):
            _operated(name, at, after=after)


class Ward:
    """Random procedures and what is done to them, over masters that follow each other."""

    def __init__(self, lab: Lab, rng: random.Random) -> None:
        self.lab, self.rng = lab, rng
        self.executor = lab.executor()
        self.roots: list[int] = []

    async def admit(self, number: int) -> None:
        rng = self.rng
        kind, args = "op.tree", {"depth": rng.randrange(3)}
        if rng.random() < 0.7:
            kind = "op.two"
            args = {name: rng.random() < 0.4 for name in ("wait", "broken", "stubborn")}
            args["hang"] = [rng.choice(["one", "two"])] if rng.random() < 0.4 else []
            args["locks"] = rng.sample(["r", "s"], rng.randrange(3))
        submission = Submission(kind, args, "tester", f"n{number}")
        self.roots.append(await self.executor.submit(submission))
        await asyncio.sleep(rng.random() / 10)

    def cut(self) -> Awaitable[Any]:
        """One random action."""
        rng, surgeon = self.rng, self.executor.surgeon
        id = rng.choice([one.id for one in self.executor.live()] or self.roots)
        match rng.randrange(4):
            case 0:
                return surgeon.abort(id, *WHO)
            case 1:
                override, recursive = rng.random() < 0.7, rng.random() < 0.7
                return surgeon.bypass(id, *WHO, override=override, recursive=recursive)
            case 2:
                return surgeon.retry(id, *WHO, step=rng.choice(["", "one", "two", "end"]))
            case _:
                return surgeon.steal(rng.choice(["r", "s"]), *WHO)

    async def happen(self) -> None:
        """Anything."""
        what = self.rng.randrange(7)
        if what == 0:
            self.executor.signal("go")
        elif what == 1:
            self.lab.opened.set()
            await asyncio.sleep(self.rng.random() / 10)
            self.lab.opened.clear()
        elif what == 2:
            self.lab.opened.set()  # a step that hangs would be waited for
            await self.executor.__aexit__(None, None, None)
            self.lab.opened.clear()
            self.executor = self.lab.executor()
            await self.executor.__aenter__()
        else:
            cuts = [self.cut() for _ in range(self.rng.choice([1, 1, 2]))]
            for told in await asyncio.gather(*cuts, return_exceptions=True):
                assert isinstance(told, dict | Rejected), told

    async def discharge(self) -> None:
        """Everything comes to its end, and is forgotten."""
        self.lab.opened.set()
        for root in self.roots:
            for _ in range(50):
                self.executor.signal("go")
                if (await self.executor.wait(root, 1_000)).ended:
                    break
            await self.executor.acknowledge(root)
        await self.executor.__aexit__(None, None, None)


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(40))
def test_m8_any_sequence_of_surgery_leaves_nothing_behind(seed: int) -> None:
    """After random actions, with steps under way, locks waited for, children and failovers, some
    lock, nonce or row of a child was left.
    """

    async def test(lab: Lab) -> None:
        ward = Ward(lab, random.Random(seed))
        await ward.executor.__aenter__()
        for number in range(12):
            await ward.admit(number)
        for _ in range(25):
            await ward.happen()
        await ward.discharge()
        assert not ward.executor.live()
        assert await left(lab) == {"locks": 0, "rows": 0}

    in_lab(test, seed)


@pytest.mark.parametrize("what", ["abort", "bypass", "retry"])
def test_m8_a_deposed_master_operates_on_nothing(what: str) -> None:
    """Two masters for a moment: an action of the old one changed what the new one has in memory."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as old:
            id = await begun(old, "op.two", {"wait": True, "locks": ["r"]})
            async with lab.executor() as new:
                refused = await refusal(ACTIONS[what][2](old, id))
                assert refused.code == "DEPOSED"
                await asyncio.sleep(0.1)
                assert not (await new.surgeon.book.page(limit=10))[0]
                new.signal("go")
                assert (await new.wait(id, 10_000)).state.name == "SUCCESS"

    in_lab(test)


@pytest.mark.parametrize("what", ["abort", "bypass"])
def test_m8_a_step_at_a_worker_is_not_waited_for(what: str) -> None:
    """A worker's late commit took effect after the surgery, or its slot was lost for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        executor = await office.open(office.executor(Registry()))
        office.hire("w1", slots=1)
        await office.entered("w1")
        args = {"hang": ["two"], "locks": ["r"]}
        id = await executor.submit(Submission("op.two", args, "tester"))
        await office.until(lambda: office.lab.calls.get(f"two {id}", 0) == 1)
        explained = await executor.explain(id)
        assert "worker w1 runs its step two" in explained["sentence"]
        told = await (_abort if what == "abort" else _bypass)(executor, id)
        assert "at worker w1" in told["procedures"][0]["refuses"]
        if what == "abort":
            office.lab.opened.set()
        record = await executor.wait(id, 10_000)
        assert record.state.name == ("ROLLED_BACK" if what == "abort" else "BYPASSED")
        assert office.lab.row(f"two {id}") is None, "it was committed late"
        office.lab.opened.set()
        other = await executor.submit(Submission("op.two", {"locks": ["r"]}, "tester"))
        assert (await executor.wait(other, 10_000)).state.name == "SUCCESS"
        assert office.lab.row(f"two {id}") is None, "it was committed late"
        for one in (id, other):
            await executor.acknowledge(one)
        assert await left(office.lab) == {"locks": 0, "rows": office.lab.store.rows()}
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)
