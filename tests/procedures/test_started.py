"""Procedures that a step starts: in its transaction, told of at their end, cancelled with whoever
started them if that is wanted.
"""

from __future__ import annotations

from typing import Any

import pytest

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.procedure import Outcome
from procedures.engine.records import Record
from procedures.engine.registry import procedure, step, undo
from procedures.engine.step_exceptions import StepFailed
from procedures.engine.workflow import workflow
from procedures.pools import rows
from tests.procedures.lab import CrashingStore, Lab, crashed, run
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.zoo import Zoo, bump

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])


@procedure("started.guest")
class Guest(Zoo):
    """Counts, and stays as long as it is told."""

    @step(first=True, undo="leave")
    async def come(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "guests")
        return p.suspend(timeout_ms=ctx.args["ms"], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        if ctx.args.get("fails"):
            return p.fail("ILL", "it is not well")
        return p.done(ctx.args["ms"])

    @undo
    async def leave(self, ctx: StepContext) -> None:
        await bump(ctx, "guests", -1)


@procedure("started.host")
class Host(Zoo):
    """Starts a guest, waits for it if told so, and ends."""

    @step(first=True)
    async def invite(self, ctx: StepContext) -> Outcome:
        how = ctx.args
        await bump(ctx, "invited")
        token = ctx.external(1) if how.get("waits") else ""
        which = how.get("which", Guest)
        ctx.state["token"] = token
        ctx.state["guest"] = await ctx.submit(
            which, how["guest"], token=token, cancel=how.get("cancel", False)
        )
        if how.get("fails"):
            return p.fail("NO", "no guests today")
        if token:
            return ctx.until_done(token, then="end")
        return p.suspend(timeout_ms=how["ms"], then="end") if how.get("ms") else p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        token = ctx.state["token"]
        came: Any = await ctx.completed(token) if token else None
        if token and came is None:  # it only looks, after a restart
            return ctx.until_done(token, then="end")
        return p.done([ctx.state["guest"], came and [came.ok, came.result or came.error["code"]]])


@workflow("started.flow")
async def host_flow(flow: Flow, ms: list[int]) -> Any:
    """Guests as calls of a workflow: caught, tolerated, left and abandoned."""
    guests = [flow.start(Guest, {"ms": one, "fails": one % 2 == 1}) for one in ms]
    flow.start(Guest, {"ms": 7_000}, cancel=False)
    late = flow.start(Guest, {"ms": 60_000})
    said = await flow.gather(*guests, errors=True)
    caught = ""
    try:
        await flow.gather(*guests)
    except StepFailed as error:
        caught = error.code
    which, _ = await flow.wait_any(late, timeout_ms=100)
    return [[s.code if isinstance(s, StepFailed) else s for s in said], caught, which, late.id > 0]


TYPES: list[Any] = [Guest, Host, host_flow]


async def _record(office: Office, id: int) -> Record:
    stored = await office.lab.store.load(id)
    assert stored is not None
    record: Record = stored.record
    return record


@REMOTE
def test_j25_a_started_procedure_is_one_of_its_own(remote: bool) -> None:
    """It ended with its starter, or its starter waited for it, or its failure was the starter's."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "started.host", {"guest": {"ms": 5_000, "fails": True}})
        assert record.state.name == "SUCCESS"
        guest, _ = plain_data.decode(record.result)
        assert office.loop.time() < 1
        live = executor.live_one(guest)
        assert live is not None
        assert live.parent == 0
        ended = await executor.wait(guest, 30_000)
        assert (ended.state.name, ended.owner) == ("ROLLED_BACK", record.owner)

    in_office(test, remote, TYPES)


@REMOTE
@pytest.mark.parametrize("fails", [False, True])
def test_j25_its_end_is_told(fails: bool, remote: bool) -> None:
    """Whoever waits for it was not woken, or does not hear how it ended."""

    async def test(office: Office, executor: Executor) -> None:
        args = {"waits": True, "guest": {"ms": 2_000, "fails": fails}}
        record = await run(executor, "started.host", args)
        assert plain_data.decode(record.result)[1] == ([False, "ILL"] if fails else [True, 2_000])
        assert 2 <= office.loop.time() < 3

    in_office(test, remote, TYPES)


@REMOTE
def test_j25_a_failed_step_starts_nothing(remote: bool) -> None:
    """What a step started came to be though the step failed."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "started.host", {"fails": True, "guest": {"ms": 1}})
        assert record.state.name == "FAILED"
        assert len(executor.live()) == 0
        assert office.lab.number("guests") == 0
        for which, code in (("nobody", "PROCEDURE_UNKNOWN"), ("started.flow", "BAD_ARGUMENTS")):
            args = {"which": which, "guest": {"ms": 1}}
            if which == "nobody" or not remote:
                record = await run(executor, "started.host", args)
                assert record.error is not None
                assert record.error.code == code

    in_office(test, remote, TYPES)


@REMOTE
@pytest.mark.parametrize("abort", [False, True])
def test_j25_it_is_cancelled_with_its_starter(abort: bool, remote: bool) -> None:
    """It went on though it is no use any more, or was not undone."""

    async def test(office: Office, executor: Executor) -> None:
        how = {"cancel": True, "ms": 60_000 if abort else 1_000, "guest": {"ms": 3_600_000}}
        id = await executor.submit(submission("started.host", how))
        await office.until(lambda: office.lab.number("guests") == 1)
        if abort:
            await executor.abort(id, "enough")
        await executor.wait(id, 10_000)
        guest = (await _record(office, id)).data
        ended = await executor.wait(plain_data.decode(guest)["guest"], 10_000)
        assert ended.error is not None
        assert (ended.state.name, ended.error.code) == ("ROLLED_BACK", "CANCELLED")
        assert office.lab.number("guests") == 0

    in_office(test, remote, TYPES)


@REMOTE
def test_j25_a_workflow_starts_waits_catches_and_leaves(remote: bool) -> None:
    """A failed one was the workflow's failure though that catches it, or one that it gave up went
    on, or one that it leaves did not.
    """

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "started.flow", [1_000, 2_002, 3_003])
        assert record.error is None, record.error
        said = plain_data.decode(record.result)
        assert said == [[1_000, 2_002, "ILL"], "ILL", None, True]
        await office.until(lambda: len(executor.live()) == 1)
        await office.until(lambda: not executor.live())
        assert office.lab.number("guests") == 3, "that one was left, and two went well"
        table = office.lab.store.table
        low, high = rows.left_of(record.id)[2]
        kept = (await table.reads().scan(low, high, limit=10)).items
        assert len(kept) == 2, "what it was told of is kept for ever: only two ended after it"

    in_office(test, remote, TYPES)


def test_j25_tokens_are_ones_own() -> None:
    """A procedure could be told of ends that are another one's."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, TYPES)
        async with lab.executor() as executor:
            id = await executor.submit(submission("started.guest", {"ms": 1}))
            record = await executor.wait(id, 1_000)
        ctx = StepContext(
            *(record,),
            step="s",
            token=f"aa-{id}-0",
            attempt=1,
            wake="",
            now_ms=0,
            children=(),
            txn=None,
        )
        assert ctx.external() != ctx.external(1) != ctx.external(2)
        with pytest.raises(InvalidArgument):
            ctx.submit(Guest, token="ext-aa-77-0")
        with pytest.raises(KvorumError):
            ctx.submit("not a name" * 100)

    simloop.run(main, 0)


def test_j25_wherever_it_crashes_starter_and_guest_fit() -> None:
    """A crash left a guest without its starter's step, or let one stay whose starter has ended."""

    async def life(lab: Lab, store: CrashingStore, how: dict[str, Any]) -> bool:
        try:
            async with lab.executor(store) as executor:
                id = await executor.submit(submission("started.host", how, nonce="one"))
                assert (await executor.wait(id, 60_000)).ended
                while live := executor.live():
                    await executor.wait(live[0].id, 60_000)
                return True
        except BaseException as error:
            if not crashed(error):
                raise
            return False

    def lives(at: int, after: bool, how: dict[str, Any]) -> int:
        async def main(loop: simloop.SimLoop) -> int:
            lab = Lab(loop, TYPES)
            store = CrashingStore(lab.store, at, after=after)
            if not await life(lab, store, how):
                assert await life(lab, CrashingStore(lab.store), how)
            ended = [one.record for one in await lab.store.newest(0, 10)]
            states = sorted((one.name, one.state.name) for one in ended)
            guest = "ROLLED_BACK" if how.get("cancel") else "SUCCESS"
            if how.get("cancel") and ("started.guest", "FAILED") in states:
                guest = "FAILED"  # before its first step
            assert states == [("started.guest", guest), ("started.host", "SUCCESS")]
            assert lab.number("invited") == 1
            assert lab.number("guests") == (guest == "SUCCESS")
            return store.writes

        writes: int = simloop.run(main, 0)
        return writes

    for how in (
        {"waits": True, "guest": {"ms": 500}},
        {"cancel": True, "ms": 500, "guest": {"ms": 3_600_000}},
    ):
        for at in range(1, lives(0, False, how) + 1):
            for after in (False, True):
                lives(at, after, how)
