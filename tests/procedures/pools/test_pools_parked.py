"""Workers with different code for one version of a type: nothing is lost between them, and what
nobody can run now goes on when somebody comes who can. Virtual time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_record

from kv.base import limits
from kvorum.master.upgrade import check
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.core import Change, Flow
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import ProcedureType, Registry, procedure, step, undo
from procedures.pools.describe import described, remote_type
from tests.procedures.lab import Lab
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo


@procedure("parked.job", locks=lambda a: [p.exclusive("it")], timeout_ms=600_000)
class Job(Zoo):
    """Stands before `b` until somebody says go; fails there if the arguments say so."""

    @step(first=True, undo="back")
    async def a(self, ctx: StepContext) -> Outcome:
        ctx.state["much"] = "x" * ctx.args.get("much", 0)
        return p.suspend(event=f"go {ctx.id}", then="b")

    @step
    async def b(self, ctx: StepContext) -> Outcome:
        if ctx.args.get("fails"):
            return p.fail("NO", "as told")
        await asyncio.sleep(ctx.args.get("takes", 0))
        return p.done("b")

    @undo
    async def back(self, ctx: StepContext) -> None:
        pass


def _code(office: Office | Lab, without: str = "") -> ProcedureType:
    """The worker's code, perhaps without a step or an undo method."""
    lab = office.lab if isinstance(office, Office) else office
    declared = lab.types.get("parked.job")
    steps = {name: one for name, one in declared.steps.items() if name != without}
    return replace(
        declared, steps=steps, undos={} if without == "back" else declared.undos, pool="p"
    )


async def _gone(office: Office, executor: Executor, name: str) -> None:
    assert executor.crew is not None
    await office.dismiss(name)
    await office.until(lambda: name not in executor.crew.hands)  # type: ignore[union-attr]


async def _why(executor: Executor, id: int) -> str:
    told: str = (await executor.explain(id))["sentence"]
    return told


@pytest.mark.parametrize("without", ["b", "back"])
@pytest.mark.parametrize("much", [0, 2 * limits.PROCEDURE_RECORD_CACHED_BYTES_MAX])
@pytest.mark.parametrize("failover", [False, True])
@pytest.mark.parametrize("old", ["goes", "stays"])
def test_what_is_parked_goes_on_when_somebody_comes_who_can(
    without: str, much: int, failover: bool, old: str
) -> None:
    """A worker without a step parks a procedure for ever, and its locks block the others."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Job])
        executor = await office.open(office.executor())
        office.hire("w1", types=[_code(office)])
        await office.entered("w1")
        id = await executor.submit(submission("parked.job", {"much": much}))
        behind = await executor.submit(submission("parked.job", {}))
        await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
        await _gone(office, executor, "w1")
        office.hire("w2", types=[_code(office, without)])
        await office.entered("w2")
        executor.signal(f"go {id}")
        await asyncio.sleep(1)
        assert "is left alone: no worker of pool p can run it: " in await _why(executor, id)
        assert repr(without) in await _why(executor, id)
        record = (await office.lab.store.load(id)).record
        told = check([_code(office, without)], [record])["broken"]
        assert told[0]["why"] in await _why(executor, id), "the one says what the other does"
        if old == "goes":
            await _gone(office, executor, "w2")
        if failover:
            await office.close(executor)
            executor = await office.open(office.executor())
            await asyncio.sleep(1)
            executor.signal(f"go {id}")
        assert check([_code(office)], [record])["broken"] == []
        office.hire("w3", types=[_code(office)])
        await office.entered("w3")
        assert plain_data.decode((await executor.wait(id, 30_000)).result) == "b"
        if old == "goes":  # else the old code may begin it, and refuses a step that it has not
            await office.until(lambda: executor.live_one(behind).event)  # type: ignore[union-attr]
            executor.signal(f"go {behind}")
            assert (await executor.wait(behind, 30_000)).state is State.SUCCESS
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize("seed", range(4))
def test_old_and_new_code_side_by_side(seed: int) -> None:
    """Each goes to who has its step, whoever is free; who waits for a busy one holds nobody up."""

    async def test(office: Office, executor: Executor) -> None:
        @procedure("parked.free")
        class Free(Zoo):
            @step(first=True)
            async def a(self, ctx: StepContext) -> Outcome:
                return p.suspend(event="all go", then="b" if ctx.args else "a2")

            @step
            async def a2(self, ctx: StepContext) -> Outcome:
                return p.done("a2")

            @step
            async def b(self, ctx: StepContext) -> Outcome:
                await asyncio.sleep(2)
                return p.done("b")

        whole = office.lab.types.add(Free, make=office.lab._maker(Free))
        part = replace(whole, steps={n: s for n, s in whole.steps.items() if n != "b"})
        office.hire("old", types=[whole], slots=1)
        await office.entered("old")
        ids = [await executor.submit(submission("parked.free", n % 2)) for n in range(8)]
        await office.until(lambda: all(executor.live_one(id).event for id in ids))  # type: ignore[union-attr]
        office.hire("new", types=[part], slots=1)
        await office.entered("new")
        began = office.loop.time()
        executor.signal("all go")
        await asyncio.sleep(0.5)
        left = [id for id in ids if executor.live_one(id) is not None]
        assert left == [id for n, id in enumerate(ids) if n % 2]
        told = [await _why(executor, id) for id in left]
        assert any("that have what it needs are busy" in one for one in told)
        for id in left:
            assert plain_data.decode((await executor.wait(id, 30_000)).result) == "b"
        assert office.loop.time() - began < 9

    in_office(test, [Job], seed)


def test_what_is_set_aside_stays_so_when_somebody_comes() -> None:
    """A step that ends its processes would end every worker that comes, one after the other."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Job])
        executor = await office.open(office.executor())
        office.hire("w1", types=[_code(office)])
        await office.entered("w1")
        id = await executor.submit(submission("parked.job", {}))
        await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
        await _gone(office, executor, "w1")
        await office.close(executor)
        store = office.lab.store
        record, version = await store.load(id)
        fatal = replace_record(record, deaths=limits.PROCEDURE_DEATHS_MAX)
        await store.update(version, Change(fatal, Flow.WAIT))
        executor = await office.open(office.executor())
        executor.signal(f"go {id}")
        for name in ("w2", "w3"):
            office.hire(name, types=[_code(office)])
            await office.entered(name)
            await asyncio.sleep(1)
            assert "is left alone: set aside" in await _why(executor, id)
            assert (await store.load(id)).record.step == "b"
        await executor.surgeon.retry(id, "mended", "tester")
        assert plain_data.decode((await executor.wait(id, 5_000)).result) == "b"
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize("waiting", [False, True])
def test_nodes_take_over_what_workers_ran(waiting: bool) -> None:
    """The module went from the workers to the nodes: its procedures would wait for workers."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Job])
        executor = await office.open(office.executor())
        office.hire("w1", types=[_code(office)])
        await office.entered("w1")
        id = await executor.submit(submission("parked.job", {}))
        await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
        await _gone(office, executor, "w1")
        if not waiting:
            executor.signal(f"go {id}")
            await asyncio.sleep(0.2)
        await office.close(executor)
        executor = await office.open(office.executor(office.lab.types))
        await asyncio.sleep(0.2)
        executor.signal(f"go {id}")
        assert plain_data.decode((await executor.wait(id, 5_000)).result) == "b"
        await office.close(executor)

    simloop.run(main, 0)


def test_workers_take_over_what_the_nodes_parked() -> None:
    """The other way round, and without a restart: the type is announced, and what stood still goes
    on.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Job])
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("parked.job", {}))
        await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
        await office.close(executor)
        executor = await office.open(office.executor())
        await asyncio.sleep(0.2)
        assert "no procedure named 'parked.job'" in await _why(executor, id)
        office.hire("w1", types=[_code(office)])
        await office.entered("w1")
        executor.signal(f"go {id}")
        assert plain_data.decode((await executor.wait(id, 5_000)).result) == "b"
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


def test_a_description_says_the_same_each_time_it_is_told() -> None:
    """What only workers can tell (locks, types of arguments) would be forgotten on the way from one
    to the other: a child would run without its locks.
    """
    for wanted in (Job, _Typed, _TypedLocked):
        declared = Registry([wanted]).types()[0]
        once = described(declared, "p")
        again = described(remote_type(once), "p")
        assert remote_type(again).needs_look is remote_type(once).needs_look is True
        assert described(remote_type(again), "p") == again
        assert (again.locks or None) == (once.locks or None)


@procedure("parked.typed", args=dict)
class _Typed(Zoo):
    @step(first=True)
    async def a(self, ctx: StepContext) -> Outcome:
        return p.done()


@procedure("parked.typed_locked", args=dict[str, Any], locks=[p.shared("s")])
class _TypedLocked(Zoo):
    @step(first=True)
    async def a(self, ctx: StepContext) -> Outcome:
        return p.done()
