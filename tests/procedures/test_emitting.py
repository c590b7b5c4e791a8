"""Events that procedures emit, at the master and at workers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import Unavailable
from kvorum.api.procedure_events import AsyncProcedureEvents, ProcedureEvent
from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step, undo
from procedures.engine.retries import retry
from procedures.engine.step_exceptions import StepFailed
from procedures.engine.workflow import workflow
from procedures.pools import rows
from procedures.pools.control import Control
from tests.procedures.lab import CrashingStore, Lab, crashed, refusal
from tests.procedures.pools.pool_lab import Office, TableRows
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.zoo import Zoo

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])


@procedure("emitting.count")
class Count(Zoo):
    """Emits twice in each of its steps, of which the second one fails once; then goes back."""

    @step(first=True, undo="back")
    def one(self, ctx: StepContext) -> Outcome:
        ctx.emit("begun", {"of": ctx.args})
        ctx.emit("part", 1)
        return p.next("two")

    @step(retry=retry(attempts=2, first_ms=10))
    async def two(self, ctx: StepContext) -> Outcome:
        ctx.emit("part", 2)
        if ctx.failure is None:
            raise ValueError("what this attempt emitted is dropped")
        ctx.emit("part", 3)
        return p.fail("NO", "what it emitted is dropped") if ctx.args else p.done()

    @undo
    async def back(self, ctx: StepContext) -> None:
        ctx.emit("undone")


@procedure("emitting.tedious")
class Tedious(Zoo):
    @step(first=True)
    async def first(self, ctx: StepContext) -> Outcome:
        await asyncio.sleep(1)
        ctx.emit("begun")
        return p.next("rest")

    @step
    async def rest(self, _ctx: StepContext) -> Outcome:
        await asyncio.sleep(15)
        return p.done()


@procedure("emitting.early")
class Early(Zoo):
    @step(first=True, early=True)
    async def go(self, ctx: StepContext) -> Outcome:
        ctx.emit("early", ctx.args)
        return p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        ctx.emit("end")
        return p.done()


async def part(ctx: StepContext, number: int) -> int:
    ctx.emit("part", number)
    if number < 0:
        raise ValueError("negative")
    return number


@workflow("emitting.flow")
async def flowing(flow: Flow, many: int) -> None:
    flow.emit("begun", many)
    for number in range(many):
        await flow.step(part, number)
    flow.emit("before")
    try:
        await flow.step(part, -1)
    except StepFailed as error:
        flow.emit("caught", error.code)
    await flow.signal("go")
    flow.emit("last")
    raise ValueError("and yet that is told")


@procedure("emitting.ticker")
class Ticker(Zoo):
    @step(first=True)
    async def tick(self, ctx: StepContext) -> Outcome:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        for i in range(ctx.args.get("each", 1)):
            ctx.emit("odd" if n % 2 else "even", [n, i])
        return p.done() if n == ctx.args["most"] else p.again(delay_ms=ctx.args.get("ms", 100))


TYPES: list[Any] = [Count, Tedious, Early, flowing, Ticker]


def events(control: Control, id: int, **how: Any) -> AsyncProcedureEvents:
    """As the SDK has them."""
    name, follow, after = how.get("name", ""), how.get("follow", True), how.get("after", 0)

    async def ask(after: int, wait_ms: int) -> Any:
        asked = {"id": id, "after": after, "name": name, "wait_ms": wait_ms}
        return await control.do("events", asked)

    return AsyncProcedureEvents(ask, after, follow=follow)


async def told(control: Control, id: int, **how: Any) -> list[tuple[int, str, Any]]:
    return [shown(event) async for event in events(control, id, **how)]


def shown(event: ProcedureEvent) -> tuple[int, str, Any]:
    return event.position, event.name, event.value


@REMOTE
def test_j36_what_counts_is_told_once(remote: bool) -> None:
    """An event of an attempt that failed was told, or one of a step that counted was lost, or told
    twice.
    """

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("emitting.count", 0))
        good = [(1, "begun", {"of": 0}), (2, "part", 1), (3, "part", 2), (4, "part", 3)]
        assert await told(control, id) == good
        assert await told(control, id, after=2, name="part") == good[2:]
        assert await told(control, id, follow=False) == good
        id = await executor.submit(submission("emitting.count", 1))
        bad = [(1, "begun", {"of": 1}), (2, "part", 1), (3, "undone", None)]
        assert await told(control, id) == bad
        id = await executor.submit(submission("emitting.early", "x"))
        assert await told(control, id) == [(1, "early", "x"), (2, "end", None)]

    in_office(test, remote, TYPES)


@REMOTE
def test_j36_a_function_tells_in_the_order_of_its_calls(remote: bool) -> None:
    """An event of the function was told in each of its executions, or lost with a step that failed
    after it, or came after what a later step told.
    """

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("emitting.flow", 3))
        all_of = events(control, id)
        first = [await all_of.next() for _ in range(6)]
        assert [(one.name, one.value) for one in first if one is not None] == [
            ("begun", 3),
            ("part", 0),
            ("part", 1),
            ("part", 2),
            ("before", None),
            ("caught", "STEP_ERROR"),
        ]
        assert await all_of.poll(50) is None
        assert not all_of.ended
        await control.do("signal", {"id": id, "name": "go"})
        assert [shown(event) async for event in all_of] == [(7, "last", None)]
        assert all_of.ended
        assert (await executor.wait(id, 1_000)).ended

    in_office(test, remote, TYPES)


@REMOTE
def test_j36_readers_are_woken_and_go_on(remote: bool) -> None:
    """A reader polled, or missed what came between its look and its wait, or lost its place when
    the master changed under it.
    """

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("emitting.ticker", {"most": 20, "ms": 3_000}))
        asked = [0]
        do = control.do

        async def counted(what: str, args: Any) -> Any:
            asked[0] += 1
            if asked[0] == 5:
                raise Unavailable("no leader")
            return await do(what, args)

        control.do = counted  # type: ignore[method-assign]
        many = [asyncio.ensure_future(told(control, id)) for _ in range(3)]
        slow, late = events(control, id), 0
        async for event in slow:
            late = max(late, office.lab.clock.now_ms() - event.at_ms)
            if event.position == 3:
                break
        assert late < 50
        assert asked[0] < 4 * 8
        each = [(n, "odd" if n % 2 else "even", [n, 0]) for n in range(1, 21)]
        assert await told(control, id, after=slow.position) == each[3:]
        for one in many:
            assert await one == each

    in_office(test, remote, TYPES)


@REMOTE
def test_j36_readers_do_not_wait_for_the_steps_behind(remote: bool) -> None:
    """A worker told of its commits when the whole turn was over."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("emitting.tedious"))
        async for event in events(control, id):
            assert event.name == "begun"
            assert office.lab.clock.now_ms() - event.at_ms < 2_000
            break

    in_office(test, remote, TYPES)


@REMOTE
def test_j36_old_events_go(remote: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A procedure that lives for ever kept all that it ever told; or they stayed when it was
    forgotten; or who reads too late is not told that something is missing.
    """
    monkeypatch.setattr(limits, "PROCEDURE_EVENTS_KEPT", 10)

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        args = {"most": 9, "each": 3, "ms": 0}
        id = await executor.submit(submission("emitting.ticker", args))
        assert (await executor.wait(id, 20_000)).ended
        found = await told(control, id)
        assert [position for position, _, _ in found] == list(range(18, 28))
        monkeypatch.setattr(limits, "PROCEDURE_EVENTS_PAGE_MAX", 3)
        assert await told(control, id, name="even") == [e for e in found if e[1] == "even"]
        await executor.acknowledge(id)
        assert (await refusal(told(control, id))).code == "PROCEDURE_NOT_FOUND"
        assert executor.crew is not None
        await executor.crew._sweep()
        assert await _rows(executor, id) == []

    in_office(test, remote, TYPES)


async def _rows(executor: Executor, id: int) -> Sequence[bytes]:
    assert executor.rows is not None
    found = []
    for span in rows.left_of(id):
        found += [key async for key, _, _ in rows.every(executor.rows, span)]
    return found


def test_j36_bounds_are_said() -> None:
    """A step told more than a commit can carry, or something that is no data."""

    @procedure("emitting.much")
    class Much(Zoo):
        @step(first=True)
        async def go(self, ctx: StepContext) -> Outcome:
            match ctx.args:
                case "many":
                    for i in range(limits.PROCEDURE_EVENTS_EMITTED_MAX + 1):
                        ctx.emit("x", i)
                case "large":
                    ctx.emit("x", "y" * limits.PROCEDURE_EVENT_BYTES_MAX)
                case "odd":
                    ctx.emit("x", {1})
                case "name":
                    ctx.emit("", 1)
            return p.done()

    async def test(office: Office, executor: Executor) -> None:
        wanted = {"many": "TOO_LARGE", "large": "TOO_LARGE"}
        for how in ("many", "large", "odd", "name"):
            id = await executor.submit(submission("emitting.much", how))
            record = await executor.wait(id, 5_000)
            assert record.error is not None
            assert record.error.code == wanted.get(how, "INVALID_ARGUMENT")
            assert await _rows(executor, id) == []
        for asked in ({"after": -1}, {"after": "1"}, {"limit": 0}, {"limit": 1 << 20}):
            refused = refusal(Control(executor).do("events", {"id": id, **asked}))
            assert (await refused).code == "INVALID_ARGUMENT"

    in_office(test, False, [Much])


@pytest.mark.parametrize("name", ["emitting.count", "emitting.flow", "emitting.early"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_j36_events_survive_every_crash(name: str, after: bool) -> None:
    """The process ended before or after a write, and an event was lost, or told twice."""

    async def life(lab: Lab, store: Any) -> Any:
        async with lab.executor(store, rows=TableRows(lab.store.table)) as executor:
            control = Control(executor)
            sub = submission(name, 1 if name == "emitting.count" else 2)
            id = await executor.submit(type(sub)(sub.name, sub.args, sub.owner, "nonce"))
            if name == "emitting.flow":
                await control.do("signal", {"id": id, "name": "go", "key": "k"})
            await executor.wait(id, 20_000)
            return await told(control, id)

    async def main(loop: simloop.SimLoop) -> None:
        whole = CrashingStore(Lab(loop, TYPES).store)
        expected = await life(lab := Lab(loop, TYPES, store=whole.inner), whole)
        assert len(expected) >= 2
        for at in range(1, whole.writes + 1):
            lab = Lab(loop, TYPES)
            try:
                await life(lab, CrashingStore(lab.store, at, after=after))
            except BaseException as error:
                if not crashed(error):
                    raise
            assert await life(lab, CrashingStore(lab.store)) == expected, f"crashed at write {at}"

    simloop.run(main, 0)
