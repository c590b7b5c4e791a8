"""Deadlines of steps: they end a step wherever it runs, count over retries, deaths and restarts,
and a commit does not wait for others beyond them. In virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, Unavailable
from kv.base.keys import table_prefix
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.procedure import Outcome, State
from procedures.engine.records import Record
from procedures.engine.registry import Registry, procedure, step, undo
from tests.procedures.lab import TABLE, run
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.zoo import Zoo, bump
from tests.txn.test_txn_waits import begin
from tests.txn.world import RealWorld

MS = 2_000
_WAIT_MS = 30_000


@procedure("timed.steps")
class Timed(Zoo):
    """`work` does what the arguments say, behind a step that is undone when it fails."""

    @step(first=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "begun")
        if ctx.args.get("pause"):
            return p.suspend(timeout_ms=ctx.args["pause"], then="work")
        return p.next("work")

    @step(deadline_ms=MS, undo="partly", undo_partial=True)
    async def work(self, ctx: StepContext) -> Outcome:
        lab, how = self.lab, ctx.args
        lab.count("runs")
        if how.get("unavailable"):
            raise Unavailable("not now")
        ctx.txn.table("test", "counters").put("half", "1")
        try:
            await asyncio.sleep(how.get("s", 0))
        except asyncio.CancelledError:
            lab.count("cancelled")
            if not how.get("stubborn"):
                raise
        if ctx.round < how.get("rounds", 1):
            return p.again(delay_ms=how.get("delay", 0))
        return p.next("end") if how.get("next") else p.done(lab.clock.now_ms())

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done(self.lab.clock.now_ms())

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "begun", -1)

    @undo
    async def partly(self, ctx: StepContext) -> None:
        self.lab.count("partly")


@procedure("timed.final")
class Final(Zoo):
    """Its deadline is past its point of no return."""

    @step(first=True, point_of_no_return=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.next("work")

    @step(deadline_ms=MS)
    async def work(self, ctx: StepContext) -> Outcome:
        if self.lab.count("final") < 3:
            await asyncio.sleep(60)
        await asyncio.sleep(1)
        return p.done(ctx.attempt)


@procedure("timed.parents")
class Parents(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.children([("timed.steps", {"s": 5})], then="end")

    @step(deadline_ms=MS)
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done()


@procedure("timed.undo", locks=lambda args: [p.exclusive("place")])
class Outside(Zoo):
    """Its undo has to do with a place outside, that `how` says what is the matter with."""

    @step(first=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "begun")
        return p.next("work")

    @step(undo="leave", undo_partial=True)
    async def work(self, ctx: StepContext) -> Outcome:
        if ctx.round < 3:
            return p.again()
        return p.fail("REFUSED", "it does not like that")

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "begun", -1)

    @undo(give_up_ms=MS)
    async def leave(self, ctx: StepContext) -> None:
        runs = self.lab.count("leave")
        match ctx.args["how"]:
            case "away":
                raise Unavailable("nobody answers")
            case "hangs":
                await asyncio.sleep(3_600)
            case "refuses":
                raise InvalidArgument("no")
            case "comes back" if runs < 4:
                raise Unavailable("not yet")


TYPES = [Timed, Final, Parents, Outside]
REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])
Test = Callable[[Office, Executor], Awaitable[None]]


def in_office(test: Test, remote: bool, types: Sequence[type] = ()) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, list(types) or TYPES)
        executor = await office.open(office.executor(Registry() if remote else office.lab.types))
        if remote:
            office.hire("w1")
            await office.entered("w1")
        await test(office, executor)
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


def _told(record: Record) -> tuple[str, str]:
    return record.state.name, "" if record.error is None else record.error.code


@REMOTE
@pytest.mark.parametrize(
    ("args", "told", "took_s"),
    [
        ({"s": 1.9}, ("SUCCESS", ""), 1.9),
        ({"s": 5}, ("ROLLED_BACK", "DEADLINE"), 2.0),
        ({"s": 5, "next": True}, ("ROLLED_BACK", "DEADLINE"), 2.0),
        ({"s": 1.9, "next": True}, ("SUCCESS", ""), 1.9),
        ({"s": 5, "stubborn": True}, ("ROLLED_BACK", "DEADLINE"), 2.0),
        ({"unavailable": True}, ("ROLLED_BACK", "DEADLINE"), 2.0),
        ({"s": 1.5, "rounds": 3}, ("SUCCESS", ""), 4.5),
        ({"rounds": 3, "delay": 5_000}, ("SUCCESS", ""), 10.0),
        ({"s": 1.5, "pause": 5_000}, ("SUCCESS", ""), 6.5),
        ({"s": 5, "pause": 5_000}, ("ROLLED_BACK", "DEADLINE"), 7.0),
    ],
    ids=str,
)
def test_j17_a_step_ends_by_its_deadline(
    args: dict[str, Any], told: tuple[str, str], took_s: float, remote: bool
) -> None:
    """A step that takes longer went on, or was committed; or its retries had each a new time; or
    what it waits for before it, or in rounds, was counted.
    """

    async def test(office: Office, executor: Executor) -> None:
        began = office.loop.time()
        record = await run(executor, "timed.steps", args)
        assert _told(record) == told
        assert took_s - 0.01 <= office.loop.time() - began < took_s + 0.6
        failed = bool(told[1])
        assert office.lab.row("half") == (None if failed else b"1")
        assert office.lab.number("begun") == (0 if failed else 1)
        assert office.lab.calls.get("partly", 0) == failed, "it may have begun outside"
        if failed:
            assert record.error is not None
            text = "step work of timed.steps did not end within 2000 ms"
            assert record.error.message.removesuffix(": not now") == text

    in_office(test, remote)


@REMOTE
def test_j17_past_the_point_of_no_return_a_deadline_ends_a_run(remote: bool) -> None:
    """A run that hangs there hung for ever; or none of the next ones had any time left."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "timed.final")
        assert _told(record) == ("SUCCESS", "")
        assert plain_data.decode(record.result) == 3
        assert record.updated_ms - record.created_ms < 2 * MS + 1_000 + 1_000

    in_office(test, remote)


@REMOTE
def test_j17_a_child_that_outlasts_its_deadline_fails_its_parent(remote: bool) -> None:
    """A parent waited for a child that nobody ended, or its own step's time ran meanwhile."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "timed.parents")
        assert _told(record) == ("FAILED", "DEADLINE")

    in_office(test, remote)


@pytest.mark.parametrize(("away_s", "runs"), [(0.5, 2), (5.0, 1)])
def test_j17_a_restart_does_not_begin_it_anew(away_s: float, runs: int) -> None:
    """A step would have its whole time again behind each restart, or run though it is over."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        began = loop.time()
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("timed.steps", {"s": 60}))
        await office.until(lambda: office.lab.calls.get("runs", 0) == 1)
        office.door.clear()
        await executor.__aexit__(RuntimeError, RuntimeError(), None)  # nothing is waited for
        await asyncio.sleep(away_s)
        executor = await office.open(office.executor(office.lab.types))
        record = await executor.wait(id, _WAIT_MS)
        assert _told(record) == ("ROLLED_BACK", "DEADLINE")
        assert loop.time() - began < max(2.0, away_s) + 0.5
        assert office.lab.calls["runs"] == runs
        assert office.lab.calls["partly"] == 1, "it had begun"
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize("others", [0, 1])
def test_j17_a_step_whose_worker_died_keeps_its_deadline(others: int) -> None:
    """Without another worker it hung until one came; with one it had its whole time again."""

    async def test(office: Office, executor: Executor) -> None:
        began = office.loop.time()
        id = await executor.submit(submission("timed.steps", {"s": 60}))
        await office.until(lambda: office.lab.calls.get("runs", 0) == 1)
        await office.kill("w1")
        if others:
            office.hire("w2")
        until = began + 2.0
        await asyncio.sleep(3.0)
        if not others:
            assert (await executor.find(id)).state is State.ROLLING_BACK, "its undo needs a worker"
            office.hire("w2")
        record = await executor.wait(id, _WAIT_MS)
        assert _told(record) == ("ROLLED_BACK", "DEADLINE")
        assert any(one.outcome == "undone" for one in record.history)
        assert office.loop.time() < until + 4.0

    in_office(test, True)


def test_j17_a_step_without_a_deadline_goes_on() -> None:
    """What nobody declared ended steps that take longer than a minute; or they are not shown."""

    @procedure("timed.none")
    class Untimed(Zoo):
        @step(first=True)
        async def work(self, ctx: StepContext) -> Outcome:
            await asyncio.sleep(100)
            return p.done()

    async def test(office: Office, executor: Executor) -> None:
        office.lab.types.add(Untimed, make=office.lab._maker(Untimed))
        id = await executor.submit(submission("timed.none"))
        await asyncio.sleep(59)
        assert executor.counters()["stuck"] == 0
        await asyncio.sleep(3)
        assert executor.counters()["stuck"] == 1
        assert (await executor.wait(id, 60_000)).state is State.SUCCESS

    in_office(test, False)


def test_j17_retried_by_hand_it_has_its_time_again() -> None:
    """An operator's retry would fail at once: its deadline is over."""

    async def test(office: Office, executor: Executor) -> None:
        lab = office.lab
        id = await executor.submit(submission("timed.steps", {"unavailable": True}))
        await asyncio.sleep(1.5)
        await executor.surgeon.retry(id, "look again", "tester")
        began = office.loop.time()
        record = await executor.wait(id, _WAIT_MS)
        assert _told(record) == ("ROLLED_BACK", "DEADLINE")
        assert 1.9 < office.loop.time() - began < 2.6
        assert lab.calls["runs"] > 2

    in_office(test, False)


@REMOTE
@pytest.mark.parametrize(
    ("how", "left", "took_s"),
    [
        ("away", "undo leave of timed.undo did not end within 2000 ms: nobody answers", 2.0),
        ("hangs", "undo leave of timed.undo did not end within 2000 ms", 2.0),
        ("refuses", "no", 0.0),
        ("comes back", "", 0.0),
    ],
)
def test_j17_an_undo_of_what_is_outside_is_given_up(
    how: str, left: str, took_s: float, remote: bool
) -> None:
    """A place that does not answer kept the locks of what was to be undone there, for ever; or
    nobody was told what is left; or what can be undone was left, too.
    """

    async def test(office: Office, executor: Executor) -> None:
        began = office.loop.time()
        first = await executor.submit(submission("timed.undo", {"how": how}))
        then = await executor.submit(submission("timed.undo", {"how": "well"}))
        record = await executor.wait(first, _WAIT_MS)
        assert took_s <= office.loop.time() - began < took_s + 1.2
        assert _told(record) == ("ROLLED_BACK", "REFUSED")
        assert record.error is not None
        details = plain_data.decode(record.error.details)
        if left:
            assert [(one["undo"], one["message"]) for one in details["not_undone"]] == [
                ("leave", left)
            ]
            assert record.error.message.endswith(f"; its undo leave was given up: {left}")
        else:
            assert (details, record.error.message) == ({}, "it does not like that")
        assert _told(await executor.wait(then, _WAIT_MS)) == ("ROLLED_BACK", "REFUSED")
        assert office.lab.number("begun") == 0, "the rest was undone"

    in_office(test, remote)


@pytest.mark.parametrize(("away_s", "runs"), [(0.5, 2), (60.0, 2)])
def test_j17_a_restart_does_not_begin_an_undo_anew(away_s: float, runs: int) -> None:
    """Each restart would give it its whole time again; or it is given up without a last try."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        began = loop.time()
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("timed.undo", {"how": "hangs"}))
        await office.until(lambda: office.lab.calls.get("leave", 0) == 1)
        office.door.clear()
        await executor.__aexit__(RuntimeError, RuntimeError(), None)  # nothing is waited for
        await asyncio.sleep(away_s)
        executor = await office.open(office.executor(office.lab.types))
        record = await executor.wait(id, 60_000)
        assert _told(record) == ("ROLLED_BACK", "REFUSED")
        assert loop.time() - began < away_s + MS / 1_000 + 0.5
        assert office.lab.calls["leave"] == runs
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize("deadline_ms", [-1, 1.5, True, "1000", 366 * 86_400_000])
def test_j17_a_deadline_that_is_none_is_refused(deadline_ms: Any) -> None:
    """It was found out when the step ran, or never."""
    with pytest.raises(InvalidArgument, match="deadline_ms must be 0"):
        step(deadline_ms=deadline_ms)


@procedure("timed.commit", timeout_ms=3_000)
class Commits(Zoo):
    """Writes a key that somebody else holds."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.next(ctx.args["step"])

    async def _work(self, ctx: StepContext) -> Outcome:
        self.lab.count("runs")
        table = ctx.txn.table("test", "counters")
        if ctx.args["reads"]:
            await table.get("other")
        table.put("held", "1")
        return p.next("end") if ctx.args["next"] else p.done()

    @step(deadline_ms=1_000)
    async def timed(self, ctx: StepContext) -> Outcome:
        return await self._work(ctx)

    @step
    async def free(self, ctx: StepContext) -> Outcome:
        return await self._work(ctx)

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done()


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    ("name", "onward", "code", "took_s"),
    [
        ("timed", False, "DEADLINE", 1.0),
        ("timed", True, "DEADLINE", 1.0),
        ("free", False, "TIMEOUT", 3.0),
    ],
)
def test_j17_a_commit_waits_no_longer_than_its_time(
    name: str, onward: bool, code: str, took_s: float, reads: bool
) -> None:
    """A commit that waits for a key ended, with SUCCESS, long after whoever waits had given up."""

    async def main(loop: simloop.SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        txn = world.client()
        office = Office(loop, [Commits], store=KvStore(txn))
        key = table_prefix(TABLE) + b"held"
        (holder,) = await begin(world, 1)
        await holder.lock(key)
        async with office.lab.executor() as executor:
            began = loop.time()
            args = {"step": name, "next": onward, "reads": reads}
            record = await run(executor, "timed.commit", args)
            assert _told(record) == ("FAILED", code)
            assert took_s - 0.01 <= loop.time() - began < took_s + 0.3
            await holder.end()
            await asyncio.sleep(1)
            assert (await txn.get(key))[0] is None
            assert _told(await run(executor, "timed.commit", args)) == ("SUCCESS", "")
            assert (await txn.get(key))[0] == b"1"
        await txn.close()
        world.close()

    simloop.run(main, 0)
