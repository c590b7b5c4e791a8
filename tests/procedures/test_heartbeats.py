"""Heartbeats of steps, at the master and at workers, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.procedure import Outcome
from procedures.engine.records import Record
from procedures.engine.registry import procedure, step
from procedures.engine.retries import retry
from procedures.engine.step_exceptions import StepFailed
from procedures.engine.store import Fenced
from procedures.engine.workflow import workflow
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.zoo import Zoo

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])
SEEN: list[Any] = []
AGAIN = retry(attempts=3, first_ms=10)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    SEEN.clear()


@procedure("beating.part")
class Part(Zoo):
    """Goes on from what it said last; its first runs break, as the arguments say."""

    @step(first=True, heartbeat_ms=1_000, retry=AGAIN)
    async def work(self, ctx: StepContext) -> Outcome:
        done = ctx.last_heartbeat or 0
        SEEN.append(done)
        while done < 10:
            await asyncio.sleep(ctx.args.get("s", 0.5))
            done += 1
            ctx.heartbeat(done)
            if done in ctx.args.get("breaks", ()) and self.lab.count(f"broke {done}") == 1:
                raise ValueError(f"broke at {done}")
            if done in ctx.args.get("hangs", ()) and self.lab.count(f"hung {done}") == 1:
                await asyncio.sleep(3_600)
        return p.next("other") if ctx.args.get("other") else p.done(done)

    @step(heartbeat_ms=1_000)
    async def other(self, ctx: StepContext) -> Outcome:
        SEEN.append(ctx.last_heartbeat)
        rounds = ctx.state["rounds"] = ctx.state.get("rounds", 0) + 1
        ctx.heartbeat({"round": rounds})
        return p.again() if rounds < 3 else p.done(ctx.last_heartbeat)


@procedure("beating.silent")
class Silent(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        SEEN.append(ctx.last_heartbeat)
        ctx.heartbeat(1)
        return p.done()


async def piece(ctx: StepContext, name: str) -> list[Any]:
    SEEN.append([name, ctx.last_heartbeat])
    ctx.heartbeat(f"{name} begun")
    await asyncio.sleep(0.1)
    if name == "b" and len(SEEN) < 3:
        raise ValueError("once")
    return [name, ctx.last_heartbeat]


@workflow("beating.flow", heartbeat_ms=1_000, retry=AGAIN)
async def flowing(flow: Flow) -> list[Any]:
    both = await flow.gather(flow.step(piece, "a"), flow.step(piece, "b"))
    return [*both, await flow.step(piece, "c")]


async def long(ctx: StepContext, how: dict[str, Any]) -> int:
    """Goes on from what it said last; breaks or hangs once, as the arguments say."""
    done = ctx.last_heartbeat or 0
    SEEN.append(done)
    ctx.txn.table("test", "counters").put("from", str(done))
    while done < 5:
        await asyncio.sleep(0.5)
        done += 1
        ctx.heartbeat(done)
        if done in how.get("breaks", ()) and SEEN.count(0) == len(SEEN):
            raise ValueError(f"broke at {done}")
        if done in how.get("hangs", ()) and (how.get("always") or SEEN.count(0) == len(SEEN)):
            await asyncio.sleep(3_600)
    return done


def long_plain(ctx: StepContext, how: dict[str, Any]) -> int:
    done = ctx.last_heartbeat or 0
    SEEN.append(done)
    ctx.heartbeat(done + 1)
    if not done:
        raise ValueError("once")
    return int(done)


async def quiet(ctx: StepContext) -> str:
    await asyncio.sleep(5)
    return "quiet"


@workflow("beating.calls")
async def calling(flow: Flow, how: dict[str, Any]) -> list[Any]:
    gave: list[Any] = [await flow.step(quiet)]
    try:
        one = flow.step(long, how, heartbeat_ms=1_000, retry=retry(attempts=2, first_ms=10))
        gave.append((await flow.gather(one, flow.step(quiet)))[0] if how.get("both") else await one)
    except StepFailed as failed:
        gave.append(failed.code)
    gave.append(await flow.step(long_plain, how, heartbeat_ms=1_000, retry=AGAIN))
    return gave


@workflow("beating.silent_call")
async def undeclared(flow: Flow) -> Any:
    return await flow.step(long, {})


TYPES: list[Any] = [Part, Silent, flowing, calling, undeclared]


def told(record: Record) -> Any:
    return record.error.code if record.error is not None else plain_data.decode(record.result)


@REMOTE
@pytest.mark.parametrize(
    ("args", "gives", "seen"),
    [
        ({}, 10, [0]),
        ({"breaks": [3]}, 10, [0, 3]),
        ({"breaks": [3, 7]}, 10, [0, 3, 7]),
        ({"hangs": [4]}, 10, [0, 4]),
        ({"s": 1.5}, "HEARTBEAT_TIMEOUT", [0, 0, 0]),
        ({"other": True, "breaks": [2]}, {"round": 3}, [0, 2, None, None, None]),
    ],
    ids=str,
)
def test_j37_the_next_attempt_goes_on_from_the_last_heartbeat(
    args: dict[str, Any], gives: Any, seen: list[Any], remote: bool
) -> None:
    """What a run had done was done again, or a silent one ran for ever, or another step, or round,
    took what this one had said for its own.
    """

    async def test(office: Office, executor: Executor) -> None:
        record = await executor.wait(
            await executor.submit(submission("beating.part", args)), 60_000
        )
        assert told(record) == gives
        assert seen == SEEN

    in_office(test, remote, TYPES)


@REMOTE
def test_j37_steps_of_a_gather_have_their_own(remote: bool) -> None:
    """One read what another one had said."""

    async def test(office: Office, executor: Executor) -> None:
        record = await executor.wait(await executor.submit(submission("beating.flow")), 60_000)
        assert told(record) == [[name, f"{name} begun"] for name in "abc"]
        assert sorted(SEEN[:2]) == [["a", None], ["b", None]]
        assert sorted(SEEN[2:4]) == [["a", "a begun"], ["b", "b begun"]]
        assert SEEN[4:] == [["c", None]]

    in_office(test, remote, TYPES)


@REMOTE
@pytest.mark.parametrize("both", [False, True], ids=["alone", "gather"])
@pytest.mark.parametrize(
    ("how", "gives", "seen"),
    [
        ({}, 5, [0]),
        ({"breaks": [3]}, 5, [0, 3]),
        ({"hangs": [4]}, 5, [0, 4]),
        ({"hangs": [2, 5], "always": True}, "HEARTBEAT_TIMEOUT", [0, 2]),
    ],
    ids=str,
)
def test_j37_a_step_of_a_workflow_has_a_heartbeat_of_its_own(
    how: dict[str, Any], gives: Any, seen: list[int], both: bool, remote: bool
) -> None:
    """A silent step ran for ever, or its silence failed the workflow, which could not catch it; the
    steps beside it had to say heartbeats, too; or the next attempt began anew.
    """

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("beating.calls", {**how, "both": both}))
        record = await executor.wait(id, 60_000)
        assert told(record) == ["quiet", gives, 1]
        assert [*seen, 0, 1] == SEEN

    in_office(test, remote, TYPES)


@REMOTE
def test_j37_another_master_or_worker_reads_what_a_step_of_a_workflow_said(remote: bool) -> None:
    """A run died with its process, and all that it had done was done again."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("beating.calls", {"hangs": [4]}))
        await asyncio.sleep(5 + 0.5 * 3 + 0.2)
        if remote:
            await office.kill("w1")
            office.hire("w2")
            await executor.wait(id, 60_000)
        else:
            for task in executor._tasks:
                task.cancel()
            other = office.executor(office.lab.types)
            async with other:
                assert (await other.wait(id, 60_000)).ended
        assert SEEN[0] == 0
        assert SEEN[1] in (1, 2, 3), "at most a second is lost"

    in_office(test, remote, TYPES)


def test_j37_a_step_of_a_workflow_that_declares_none_says_none() -> None:
    """What it said would be lost without a word; or a limit that is none was accepted."""

    async def test(office: Office, executor: Executor) -> None:
        record = await executor.wait(
            await executor.submit(submission("beating.silent_call")), 60_000
        )
        assert record.error is not None
        assert "heartbeat_ms=" in record.error.message

    in_office(test, False, TYPES)


def test_j37_who_declares_none_says_none() -> None:
    """It would be lost at the next failover, without a word."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("beating.silent"))
        record = await executor.wait(id, 5_000)
        assert record.error is not None
        assert "heartbeat_ms=" in record.error.message
        assert SEEN == [None]

    in_office(test, False, TYPES)
    with pytest.raises(InvalidArgument):
        step(heartbeat_ms=limits.PROCEDURE_HEARTBEAT_MS_MIN - 1)


def test_j37_many_heartbeats_are_few_writes() -> None:
    """Each of them was a write, or a read."""

    @procedure("beating.busy")
    class Busy(Zoo):
        @step(first=True, heartbeat_ms=1_000)
        async def work(self, ctx: StepContext) -> Outcome:
            for i in range(10_000):
                ctx.heartbeat(i)
                if i % 10 == 0:
                    await asyncio.sleep(0.005)
            return p.done(ctx.last_heartbeat)

    async def test(office: Office, executor: Executor) -> None:
        written, store = [0], executor.store
        beat = store.beat

        async def counted(id: int, version: int, data: bytes) -> None:
            written[0] += 1
            await beat(id, version, data)

        store.beat = counted  # type: ignore[method-assign]
        record = await executor.wait(await executor.submit(submission("beating.busy")), 60_000)
        assert told(record) == 9_999
        assert 3 <= written[0] <= 6, "5 seconds of it"

    in_office(test, False, [Busy])


@REMOTE
def test_j37_another_master_or_worker_reads_it(remote: bool) -> None:
    """A run died with its process, and all that it had done was done again."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("beating.part", {"hangs": [6]}))
        await asyncio.sleep(0.5 * 5 + 0.2)
        if remote:
            await office.kill("w1")
            office.hire("w2")
            await executor.wait(id, 60_000)
        else:
            for task in executor._tasks:
                task.cancel()
            other = office.executor(office.lab.types)
            async with other:
                assert (await other.wait(id, 60_000)).ended
        assert SEEN[0] == 0
        assert SEEN[1] in (3, 4, 5), "at most a second is lost"

    in_office(test, remote, TYPES)


def test_j37_a_stale_run_does_not_write_over_a_newer_one() -> None:
    """A worker that had lost its procedure set back what its successor had said."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("beating.silent"))
        await executor.wait(id, 5_000)
        stored = await executor.store.load(id)
        assert stored is not None
        with pytest.raises(Fenced):
            await executor.store.beat(id, stored.version - 1, b"")
        await executor.store.beat(id, stored.version, b"")

    in_office(test, False, TYPES)
