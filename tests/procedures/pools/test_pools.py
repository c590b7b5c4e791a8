"""Pools of workers: leases, fences, failover, versions. Virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step, undo
from procedures.engine.submission import Submission
from tests.procedures.engine.test_procedures_crash import Looks, check_end
from tests.procedures.lab import CrashingStore, crashed, refusal, run
from tests.procedures.pools.pool_lab import LEASE_S, Office
from tests.procedures.zoo import CASES, TYPES, Case, Zoo, bump


@procedure("pool.slow")
class Slow(Zoo):
    """Its first step waits until the test lets it pass."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        self.lab.count(f"ran {ctx.id}")
        await self.lab.opened.wait()
        await bump(ctx, f"slow {ctx.id}")
        return p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        await bump(ctx, f"end {ctx.id}")
        return p.done(ctx.id)


@procedure("pool.waits")
class Waits(Zoo):
    @step(first=True, undo="back")
    async def work(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "waits")
        return p.suspend(event=f"go {ctx.args}", then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        if ctx.wake != "event":
            return p.suspend(event=f"go {ctx.args}", then="end")
        ctx.signal(f"went {ctx.args}")
        return p.done(ctx.wake)

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "waits", -1)


ALL = [*TYPES, Slow, Waits]


def in_office(test: Any, types: list[type] = ALL, seed: int = 0) -> None:
    """`test(office, executor)`."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, types, seed=seed)
        executor = await office.open(office.executor())
        try:
            await test(office, executor)
        finally:
            await office.end()
            await office.close(executor)

    simloop.run(main, seed)


def submission(name: str, args: Any = None, **kw: Any) -> Submission:
    return Submission(name, args, "tester", **kw)


@pytest.mark.parametrize("seed", range(3))
def test_u1_workers_run_every_kind_of_procedure(seed: int) -> None:
    """Forward and back, children, waits: a worker leaves what the master's own turns leave."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1", slots=3)
        office.hire("w2", slots=3)
        await office.entered("w1")
        await office.entered("w2")
        done = await run(executor, "three")
        assert done.state is State.SUCCESS
        assert office.lab.number("three") == office.lab.number("one") == 1
        failed = await run(executor, "three", {"do": ["fail three"]})
        assert failed.state is State.ROLLED_BACK
        assert office.lab.number("one") == 1
        assert [w.turns for w in office.workers.values()] != [0, 0]

    in_office(test, seed=seed)


def test_u1_a_killed_workers_procedures_move() -> None:
    """After a kill they are run by another worker within three seconds, and take effect once."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        ids = [await executor.submit(submission("pool.slow")) for _ in range(5)]
        await office.until(lambda: len(office.workers["w1"]._jobs) == 5)
        office.hire("w2")
        await office.entered("w2")
        await office.kill("w1")
        took = await office.until(lambda: office.lab.calls.get(f"ran {ids[0]}", 0) == 2)
        assert took < 3.0
        office.lab.opened.set()
        for id in ids:
            record = await executor.wait(id, 10_000)
            assert record.state is State.SUCCESS
            assert office.lab.number(f"slow {id}") == 1
        assert executor.crew is not None
        assert executor.crew.taken_back == 5

    in_office(test)


def test_u4_a_zombies_late_commit_is_refused() -> None:
    """One that was cut off for longer than its lease goes on: nothing of what it does is kept."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("pool.slow"))
        await office.until(lambda: office.lab.calls.get(f"ran {id}", 0) == 1)
        office.ways["w1"].cut = True  # it still reaches the store
        await asyncio.sleep(LEASE_S + 0.5)
        office.lab.opened.set()  # the zombie commits now, and nobody else has it yet
        await asyncio.sleep(1)
        assert office.lab.number(f"slow {id}") == 0
        record = (await executor.find(id)).step
        assert record == "work"
        office.ways["w1"].cut = False  # it comes back, is told to drop it, and gets it anew
        assert (await executor.wait(id, 10_000)).state is State.SUCCESS
        assert office.lab.number(f"slow {id}") == 1

    in_office(test)


def test_u1_workers_go_on_over_a_new_master() -> None:
    """A new master waits for the workers of the old one; none of their steps runs twice."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, ALL)
        executor = await office.open(office.executor())
        office.hire("w1")
        office.hire("w2")
        await office.entered("w1")
        await office.entered("w2")
        ids = [await executor.submit(submission("pool.slow")) for _ in range(6)]
        await office.until(lambda: sum(len(w._jobs) for w in office.workers.values()) == 6)
        await office.close(executor)
        await asyncio.sleep(0.3)
        second = await office.open(office.executor())
        office.lab.opened.set()
        for id in ids:
            assert (await second.wait(id, 10_000)).state is State.SUCCESS
            assert office.lab.calls[f"ran {id}"] == 1, "a step ran twice"
            assert office.lab.number(f"slow {id}") == 1
        await office.end()
        await office.close(second)

    simloop.run(main, 0)


def test_u1_master_and_worker_die_together() -> None:
    """The new master gives out what the dead worker held only after its lease, written anew."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, ALL)
        executor = await office.open(office.executor())
        office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("pool.slow"))
        await office.until(lambda: office.lab.calls.get(f"ran {id}", 0) == 1)
        before = (await office.lab.store.load(id)).version
        await office.close(executor)
        office.ways["w1"].cut = True  # a zombie, rather than dead
        office.hire("w2")
        second = await office.open(office.executor())
        took = await office.until(lambda: office.lab.calls[f"ran {id}"] == 2)
        assert LEASE_S <= took < 3.0
        assert (await office.lab.store.load(id)).version > before, "not fenced"
        office.lab.opened.set()
        assert (await second.wait(id, 10_000)).state is State.SUCCESS
        assert office.lab.number(f"slow {id}") == 1
        await office.end()
        await office.close(second)

    simloop.run(main, 0)


def test_u1_signals_reach_what_workers_run() -> None:
    """A signal wakes a procedure that a worker ran."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        first = await executor.submit(submission("pool.waits", 1))
        await office.until(lambda: office.lab.number("waits") == 1)
        await asyncio.sleep(0.1)
        executor.signal("go 1")
        record = await executor.wait(first, 5_000)
        assert record.state is State.SUCCESS

    in_office(test)


def test_j17_a_timeout_without_workers() -> None:
    """What nobody runs still fails on time."""

    async def test(office: Office, executor: Executor) -> None:
        worker = office.hire("w1")
        await office.entered("w1")
        await office.dismiss("w1")
        assert not worker._jobs
        id = await executor.submit(submission("pool.timed"))
        record = await executor.wait(id, 5_000)
        assert record.state is State.FAILED
        assert record.error is not None
        assert record.error.code == "TIMEOUT"

    @procedure("pool.timed", timeout_ms=1_000)
    class Timed(Zoo):
        @step(first=True)
        async def work(self, ctx: StepContext) -> Outcome:
            return p.done()

    in_office(test, [*ALL, Timed])


def test_u1_an_unknown_type_is_refused_and_a_pool_without_workers_waits() -> None:
    """Nothing is stored of an unknown type; a known one waits and says for whom."""

    async def test(office: Office, executor: Executor) -> None:
        assert (await refusal(executor.submit(submission("pool.slow")))).code == "PROCEDURE_UNKNOWN"
        office.hire("w1")
        await office.entered("w1")
        await office.dismiss("w1")
        id = await executor.submit(submission("pool.slow"))
        await asyncio.sleep(0.5)
        live = executor.live_one(id)
        assert live is not None
        assert executor.crew is not None
        assert executor.crew.why_waits(live) == "no worker serves pool p"
        office.lab.opened.set()
        office.hire("w2")
        assert (await executor.wait(id, 5_000)).state is State.SUCCESS

    in_office(test)


@pytest.mark.parametrize("seed", range(4))
def test_u1_lost_answers_change_nothing(seed: int) -> None:
    """Polls whose answers are lost: every procedure runs, and takes effect once."""

    async def test(office: Office, executor: Executor) -> None:
        office.lab.opened.set()
        office.hire("w1", slots=4)
        await office.entered("w1")
        rng = simloop.SimRng(seed)
        ids = []
        for _ in range(30):
            ids.append(await executor.submit(submission("pool.slow")))
            if rng.random() < 0.3:
                office.ways["w1"].lose += 1
            if rng.random() < 0.5:
                office.ways["w1"].repeat += 1
            await asyncio.sleep(rng.random() / 50)
        for id in ids:
            assert (await executor.wait(id, 30_000)).state is State.SUCCESS
            assert office.lab.number(f"slow {id}") == 1
            assert office.lab.number(f"end {id}") == 1

    in_office(test, seed=seed)


def test_u1_a_second_worker_of_the_same_name_waits() -> None:
    """Its namesake may still hold something: it comes in when that one's lease is over."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("pool.slow"))
        await office.until(lambda: office.lab.calls.get(f"ran {id}", 0) == 1)
        zombie, way = office.running["w1"], office.ways["w1"]
        office.hire("w1")
        await asyncio.sleep(1)
        assert not office.workers["w1"].entered.is_set()
        way.cut = True
        await office.entered("w1")
        await office.until(lambda: office.lab.calls[f"ran {id}"] == 2)
        office.lab.opened.set()
        assert (await executor.wait(id, 5_000)).state is State.SUCCESS
        assert office.lab.number(f"slow {id}") == 1
        zombie.cancel()
        await asyncio.wait([zombie])

    in_office(test)


def test_m8_an_abort_reaches_what_a_worker_runs() -> None:
    """It takes effect when the step under way has ended: the next one does not begin."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("pool.slow"))
        await office.until(lambda: office.lab.calls.get(f"ran {id}", 0) == 1)
        aborting = office.loop.create_task(executor.abort(id, "enough"))
        await asyncio.sleep(0.3)
        office.lab.opened.set()
        await aborting
        record = await executor.wait(id, 5_000)
        assert record.error is not None
        assert record.error.code == "ABORTED"
        assert office.lab.number(f"end {id}") == 0

    in_office(test)


def test_m4_an_end_that_was_not_reported_yet_is_acknowledged() -> None:
    """The store says that it ended before its worker does: whoever saw that may acknowledge."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        office.lab.opened.set()
        id = await executor.submit(submission("pool.slow"))
        while not (await executor.find(id)).ended:  # noqa: ASYNC110  nobody tells when the store has it
            await asyncio.sleep(0.00005)
        live = executor.live_one(id)
        assert live is not None
        assert live.worker, "the test came too late"
        await executor.acknowledge(id)
        assert (await refusal(executor.find(id))).code == "PROCEDURE_NOT_FOUND"

    in_office(test)


def _worked(case: Case, at: int, *, after: bool) -> int:
    """One case, by workers; the first of them dies at its `at`-th write (0: never). Its writes."""
    dying: list[CrashingStore] = []

    async def test(office: Office, executor: Executor) -> None:
        dying.append(CrashingStore(office.lab.store, at, after=after))
        office.lab.opened.set()
        office.hire("w1", store=dying[0])
        await office.entered("w1")
        id = await executor.submit(submission(case.name, case.args))
        ended = office.loop.create_task(executor.wait(id, 60_000))
        await asyncio.wait([ended, office.running["w1"]], return_when="FIRST_COMPLETED")
        if office.running["w1"].done():
            error = office.running.pop("w1").exception()
            assert error is not None
            assert crashed(error), error
            office.hire("w2")
        await check_end(office.lab, case, await ended, Looks(office.lab.store).value)

    in_office(test)
    return dying[0].writes


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_u1_a_worker_dies_at_every_write(case: Case) -> None:
    """A worker that dies just before or after any of its commits loses no step and doubles none."""
    for at in range(1, _worked(case, 0, after=False) + 1):
        _worked(case, at, after=bool(at % 2))
