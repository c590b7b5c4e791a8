"""Workflows: functions on the engine. What their calls gave is kept, also over restarts, at workers
and in processes for steps; what they did is undone.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import threading
import types
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kvorum
from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable, WriteConflict
from kvorum.master.upgrade import check
from kvorum.procedures import aopen
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.procedure import State, procedure_name
from procedures.engine.records import Record
from procedures.engine.registry import Registry, declaration
from procedures.engine.retries import retry
from procedures.engine.step_exceptions import StepFailed
from procedures.engine.workflow import workflow
from procedures.pools import inbox
from tests.procedures.lab import refusal, run
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.test_talking import summing
from tests.procedures.zoo import breaks, bump, count_down, count_up

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])
BLOCKED, GO = threading.Semaphore(0), threading.Event()
NOTES: list[str] = []  # of code between steps, and of tries


@dataclass
class Order:
    item: str
    count: int = 1


class Receipt(msgspec.Struct):
    item: str
    total: int


def result(record: Record) -> Any:
    assert record.state.name == "SUCCESS", record.error
    return plain_data.decode(record.result)


async def charge(ctx: StepContext, order: Order) -> Receipt:
    await bump(ctx, order.item, order.count)
    return Receipt(order.item, order.count * 10)


@workflow("wf.typed")
async def typed(flow: Flow, order: Order) -> Receipt:
    first = await flow.step(charge, order)
    again = await flow.step(charge, Order(order.item, 5))
    assert type(first) is type(again) is Receipt
    return Receipt(order.item, first.total + again.total)


def noted(fn: Any) -> Any:
    @functools.wraps(fn)
    async def inner(ctx: StepContext) -> Any:
        NOTES.append(fn.__name__)
        return await fn(ctx)

    return inner


@noted
async def number(ctx: StepContext) -> int:
    return 1


@noted
async def word(ctx: StepContext) -> str:
    return "one"


@workflow("wf.decorated")
async def decorated(flow: Flow) -> Any:
    def made(kind: Any, value: Any) -> Any:
        async def give(ctx: StepContext) -> Any:
            return value

        give.__annotations__["return"] = kind
        return give

    alike = [flow.step(made(int, 2)), flow.step(made(str, "two"))]
    return [await flow.step(number), await flow.step(word), *await flow.gather(*alike)]


@workflow("wf.untyped")
async def untyped(flow: Flow, args: Any) -> Any:
    async def pair(ctx: StepContext) -> Any:
        return (1, [args])

    return await flow.step(pair)


@workflow("wf.retried")
async def retried(flow: Flow, how: str) -> Any:
    async def work(ctx: StepContext) -> int:
        NOTES.append(ctx.token)
        await bump(ctx, "work")
        if how == "conflict" and len(NOTES) < 4:
            raise WriteConflict("somebody else")
        if how != "conflict" and ctx.attempt < 3:
            raise Refused("no", code=how)
        return ctx.attempt

    policy = retry(attempts=3, first_ms=1_000, never=["DIRE"])
    try:
        return await flow.step(work, retry=policy)
    except StepFailed as error:
        return error.code


@workflow("wf.all_or_nothing")
async def all_or_nothing(flow: Flow) -> Any:
    async def starts(ctx: StepContext) -> int:
        ctx.signal("never")
        return await ctx.submit(typed, Order("never"))  # type: ignore[no-any-return]

    started = flow.step(starts)
    try:
        await flow.gather(flow.step(count_up, "kept"), started, flow.step(breaks, "broken"))
    except StepFailed as error:
        return await flow.step(count_up, "after", undo=count_down) and error.message


@workflow("wf.waits")
async def waits(flow: Flow, timeout_ms: int) -> Any:
    news, stop = flow.signal("news"), flow.signal("stop")
    heard = []
    while True:
        which, payload = await flow.wait_any(news, stop, timeout_ms=timeout_ms)
        if which != 0:
            return [*heard, "stopped" if which == 1 else "timeout"]
        heard.append(payload)
        news = flow.signal("news")


@workflow("wf.external")
async def external(flow: Flow) -> Any:
    async def ask(ctx: StepContext, token: str) -> str:
        ctx.txn.table("test", "rows").put("token", token)
        return token

    answer = flow.external("bank")
    await flow.step(ask, answer.token)
    try:
        return await answer
    except StepFailed as error:
        return [error.code, error.message]


@workflow("wf.hides")
async def hides(flow: Flow) -> Any:
    """Its own code catches whatever there is."""
    for key in ("a", "b", "c"):
        try:
            await flow.step(count_up, key)
        except BaseException:  # noqa: BLE001  the point of it
            NOTES.append("caught")
        finally:
            await flow.step(count_up, f"{key}!")
    return "end"


@workflow("wf.rounds")
async def rounds(flow: Flow, left: int) -> Any:
    await flow.step(count_up, "rounds", undo=count_down)
    return flow.again(left - 1) if left > 1 else flow.round


@workflow("wf.misused")
async def misused(flow: Flow, how: str) -> None:
    match how:
        case "at once":
            await asyncio.gather(_await(flow.step(slow)), _await(flow.step(slow)))
        case "any step":
            await flow.wait_any(flow.step(count_up, "a"))
        case "inside":

            async def inner(ctx: StepContext) -> None:
                await flow.step(count_up, "a")

            await flow.step(inner)
        case "not plain":

            async def odd(ctx: StepContext) -> object:
                return {1, 2}

            await flow.step(odd)
        case "state":

            async def stateful(ctx: StepContext) -> object:
                return ctx.state

            await flow.step(stateful)
        case "too many":
            for _ in range(limits.PROCEDURE_CALLS_MAX + 1):
                flow.sleep(0)
        case "nothing":
            await flow.gather()


@workflow("wf.forgets")
async def forgets(flow: Flow, how: str) -> Any:
    await flow.step(count_up, "kept", undo=count_down)
    one = flow.step(count_up, "a")
    if how == "gather":
        flow.gather(one)
    return flow.again("no round") if how == "round" else "end"


@workflow("wf.as_a_class")
async def as_a_class(flow: Flow, how: str) -> Any:
    async def refuses(ctx: StepContext) -> object:
        return kvorum.fail("NO", "not so")

    if how == "fail":
        return kvorum.fail("NO", "not so")
    return kvorum.again() if how == "again" else await flow.step(refuses)


@workflow("wf.tolerant")
async def tolerant(flow: Flow) -> Any:
    async def fine(ctx: StepContext) -> str:
        NOTES.append(ctx.token)
        await bump(ctx, "fine")
        return "fine"

    calls = [flow.step(fine), flow.step(breaks, "broken"), flow.step(fine)]
    said = await flow.gather(*calls, errors=True)
    return [one.code if isinstance(one, StepFailed) else one for one in said]


@workflow("wf.decides")
async def decides(flow: Flow) -> Any:
    async def act(ctx: StepContext, which: Any) -> Any:
        NOTES.append(str(which))
        if len(NOTES) < 3:
            raise Refused("not yet", code="NOT_YET")
        return which

    which, _ = await flow.wait_any(flow.signal("stop"), timeout_ms=1_000)
    return await flow.step(act, which, retry=retry(attempts=5, first_ms=1_000))


@workflow("wf.gives_up", retry=retry(attempts=3, first_ms=1_000))
async def gives_up(flow: Flow, how: str) -> Any:
    NOTES.append(how)
    if how == "refuses":
        raise Refused("no more", code="NO_MORE")
    raise KeyError(how)


async def dawdle(ctx: StepContext) -> None:
    await bump(ctx, "dawdled")
    await slow(ctx)


@workflow("wf.cut")
async def cut(flow: Flow) -> None:
    try:
        await asyncio.wait_for(flow.step(dawdle), 0.001)
    except TimeoutError:
        await flow.step(count_up, "other")


async def slow(ctx: StepContext) -> None:
    await asyncio.sleep(0.01)


async def _await(call: Awaitable[Any]) -> Any:
    return await call


TYPES: list[Any] = [
    *(
        cut,
        tolerant,
        decides,
        gives_up,
        typed,
        decorated,
        untyped,
        retried,
        all_or_nothing,
        waits,
        external,
        hides,
        rounds,
        misused,
        forgets,
        as_a_class,
    ),
]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    NOTES.clear()


@REMOTE
def test_j23_arguments_and_results_have_types(remote: bool) -> None:
    """A step's result would come as another type the second time, or arguments unchecked."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.typed", Order("tea", 2))
        assert result(record) == {"item": "tea", "total": 70}
        assert office.lab.number("tea") == 7
        assert [e.step for e in record.history] == ["charge", "charge"]
        wrong = await refusal(run(executor, "wf.typed", {"item": 3}))
        assert wrong.code == "BAD_ARGUMENTS" or "item" in wrong.message
        assert result(await run(executor, "wf.untyped", "x")) == [1, ["x"]]

    in_office(test, remote, TYPES)


@REMOTE
def test_j23_steps_of_one_code_have_their_own_types(remote: bool) -> None:
    """What a decorator or a factory made was checked by the annotation of the first such step."""

    async def test(office: Office, executor: Executor) -> None:
        assert result(await run(executor, "wf.decorated")) == [1, "one", 2, "two"]

    in_office(test, remote, TYPES)


@REMOTE
@pytest.mark.parametrize(
    ("how", "gives", "runs", "took_s"),
    [("MILD", 3, 3, 2.0), ("DIRE", "DIRE", 1, 0.0), ("conflict", 1, 4, 0.0)],
)
def test_j23_a_call_has_its_own_policy(
    how: str, gives: Any, runs: int, took_s: float, remote: bool
) -> None:
    """A step of a workflow was tried another number of times, or what it wrote then was kept."""

    async def test(office: Office, executor: Executor) -> None:
        began = office.loop.time()
        record = await run(executor, "wf.retried", how)
        if how == "conflict":
            assert result(record) >= gives
        else:
            assert result(record) == gives
        assert len(NOTES) == runs
        assert len(set(NOTES)) == 1, "attempts of one execution have one token"
        assert office.lab.number("work") == (how != "DIRE")
        assert took_s * 0.5 <= office.loop.time() - began <= took_s * 2 + 1

    in_office(test, remote, TYPES)


def test_j23_a_gather_is_one_transaction() -> None:
    """One of its steps failed, and what the others wrote was kept, though it counts as not done."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.all_or_nothing")
        assert result(record) == "broken breaks"
        assert [office.lab.number(key) for key in ("kept", "broken", "after")] == [0, 0, 1]
        assert len(await office.lab.store.newest(0, 10)) == 1, "a failed gather started something"
        assert "never" not in executor._roster._signalled

    in_office(test, False, TYPES)


@REMOTE
@pytest.mark.parametrize(
    ("signals", "gives"),
    [
        (["news", "news", "stop"], [1, 2, "stopped"]),
        (["news"], [1, "timeout"]),
        ([], ["timeout"]),
        (["stop"], ["stopped"]),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_j23_signals_are_waited_for(
    signals: list[str], gives: list[Any], early: bool, remote: bool
) -> None:
    """A signal was lost, or taken twice, or did not wake who waits for several things."""

    async def test(office: Office, executor: Executor) -> None:
        assert executor.rows is not None
        id = await executor.submit(submission("wf.waits", 3_000))
        for number, name in enumerate(signals, start=1):
            if not early:
                await asyncio.sleep(0.5)
            data = plain_data.pack(number)
            reign = executor._turns.reign
            await inbox.Senders(executor.rows).send(id, name, data, None, reign)
            executor.signal(inbox.signal_event(id, name))
        assert result(await executor.wait(id, 20_000)) == gives

    in_office(test, remote, TYPES)


@REMOTE
@pytest.mark.parametrize("ok", [True, False])
def test_j23_an_outside_system_completes_a_call(ok: bool, remote: bool) -> None:
    """The token was another one after a restart, or its error was none."""

    async def test(office: Office, executor: Executor) -> None:
        assert executor.rows is not None
        id = await executor.submit(submission("wf.external"))
        await office.until(lambda: office.lab.row("token") is not None)
        token = (office.lab.row("token") or b"").decode()
        value = plain_data.pack("paid" if ok else {"code": "NO_MONEY", "message": "none left"})
        await inbox.complete(executor.rows, token, ok, value, executor._turns.reign)
        executor.signal(inbox.done_event(token))
        ended = result(await executor.wait(id, 20_000))
        assert ended == ("paid" if ok else ["NO_MONEY", "none left"])

    in_office(test, remote, TYPES)


def test_j23_code_that_catches_everything_does_no_harm() -> None:
    """A function that swallows what parks it went on before its call was stored."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.hides")
        assert result(record) == "end"
        assert [office.lab.number(k) for k in ("a", "a!", "b", "b!", "c", "c!")] == [1] * 6
        assert NOTES, "this test shows nothing"

    in_office(test, False, TYPES)


def test_j23_many_rounds_keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """State, undo stack or history grew with every round."""
    monkeypatch.setattr(limits, "PROCEDURE_HISTORY_KEPT", 64)

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.rounds", 200)
        assert result(record) == 200
        assert office.lab.number("rounds") == 200
        assert len(record.data) < 200
        assert record.spilled > 150
        rows = len(office.lab.store._old)
        assert rows * limits.PROCEDURE_HISTORY_CHUNK == 64
        history = await office.lab.store.history(record, 1_000)
        assert 64 < len(history) <= 64 + limits.PROCEDURE_HISTORY_INLINE_MAX

    in_office(test, False, TYPES)


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("at once", "INVALID_ARGUMENT", "two calls at once"),
        ("any step", "INVALID_ARGUMENT", "not for steps"),
        ("inside", "INVALID_ARGUMENT", "inside one of its steps"),
        ("not plain", "INVALID_ARGUMENT", "the result of odd must be plain data"),
        ("state", "NO_STATE", "no ctx.state"),
        ("too many", "TOO_LARGE", "flow.again"),
        ("nothing", "INVALID_ARGUMENT", "gather wants 1 to"),
    ],
)
def test_j23_misuse_is_told(how: str, code: str, says: str) -> None:
    """It would hang, or do something else than what was meant."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.misused", how)
        assert record.error is not None
        assert says in record.error.message
        assert record.error.code == code

    in_office(test, False, TYPES)


@pytest.mark.parametrize("how", ["step", "gather", "round"])
def test_j23_a_step_that_nobody_awaits_fails_the_workflow(how: str) -> None:
    """It was left out, and the workflow succeeded."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.forgets", how)
        assert record.error is not None
        assert record.error.code == "STEP_NOT_AWAITED"
        assert "step count_up was called and not awaited" in record.error.message
        assert [office.lab.number(key) for key in ("kept", "a")] == [0, 0]

    in_office(test, False, TYPES)


@pytest.mark.parametrize(
    ("how", "says"),
    [("step", "raises kvorum.Refused(message"), ("fail", "not Fail"), ("again", "not Again")],
)
def test_j23_a_function_does_not_end_as_a_step_of_a_class(how: str, says: str) -> None:
    """kvorum.fail(…) of a step was a result like any other: the workflow went on."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.as_a_class", how)
        assert record.error is not None
        assert record.error.code == "INVALID_ARGUMENT"
        assert says in record.error.message

    in_office(test, False, TYPES)


def test_j23_half_a_step_is_not_kept_with_the_next_one() -> None:
    """What a step that the function cancelled had written was committed with another step."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.cut")
        assert record.error is not None
        assert "cancelled step dawdle while it ran" in record.error.message
        assert [office.lab.number(key) for key in ("dawdled", "other")] == [0, 0]

    in_office(test, False, TYPES)


@pytest.mark.parametrize(("how", "code"), [("refuses", "NO_MORE"), ("breaks", "STEP_ERROR")])
def test_j23_what_the_function_raises_is_its_word(how: str, code: str) -> None:
    """The policy of its steps had the function itself say three times that it fails."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.gives_up", how)
        assert record.error is not None
        assert (record.error.code, NOTES) == (code, [how])
        assert record.error.file.endswith("test_workflows.py")

    in_office(test, False, TYPES)


@REMOTE
def test_j23_what_is_tolerated_is_in_the_list(remote: bool) -> None:
    """One failure was that of all, or the others ran under new tokens, or were kept twice."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "wf.tolerant")
        assert result(record) == ["fine", "STEP_ERROR", "fine"]
        assert [office.lab.number(key) for key in ("fine", "broken")] == [2, 0]
        assert len(NOTES) == 4
        assert len(set(NOTES)) == 2

    in_office(test, remote, TYPES)


@REMOTE
def test_j23_what_came_first_is_stored_before_a_step_relies_on_it(remote: bool) -> None:
    """A step that a timeout led to had failed once, and its next attempt was another one's: a
    signal had come meanwhile.
    """

    async def test(office: Office, executor: Executor) -> None:
        assert executor.rows is not None
        id = await executor.submit(submission("wf.decides"))
        await asyncio.sleep(1.3)
        assert NOTES == ["None"]
        reign = executor._turns.reign
        await inbox.Senders(executor.rows).send(id, "stop", plain_data.pack(1), None, reign)
        executor.signal(inbox.signal_event(id, "stop"))
        assert result(await executor.wait(id, 20_000)) is None
        assert NOTES == ["None"] * 3

    in_office(test, remote, TYPES)


# ---------------------------------------------------------------------- code that changes
def _version(calls: list[str], wait: str = "go") -> Any:
    """A workflow `wf.changing` that makes these calls, as if its module had been edited."""

    async def changing(flow: Flow) -> Any:
        for name in calls:
            await flow.step(count_up, name, name=name, undo=count_down)
        await flow.signal(wait)
        return calls

    changing.__qualname__ = "changing"
    return workflow("wf.changing")(changing)


@pytest.mark.parametrize(
    ("calls", "wait", "says"),
    [
        (["a", "b"], "go", ""),
        (["a", "b", "c"], "go", "call 3 is step c, but signal go is stored there"),
        (["a", "x"], "go", "call 2 is step x, but step b is stored there"),
        (["a"], "go", "call 2 is signal go, but step b is stored there"),
        (["a", "b"], "other", "call 3 is signal other, but signal go is stored there"),
    ],
)
def test_j24_changed_code_waits_for_what_fits(calls: list[str], wait: str, says: str) -> None:
    """A live run went on with results of other calls, or failed and was undone for an upgrade; or
    check-upgrade does not see it.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [_version(["a", "b"])])
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("wf.changing"))
        await office.until(lambda: _state(executor, id) == "WAITING")
        await office.close(executor)

        new = _version(calls, wait)
        stored = await office.lab.store.load(id)
        found = check([declaration(new)], [stored.record])
        assert [one["why"] for one in found["broken"]] == ([] if not says else [_like(says)])

        registry = Registry([new])
        executor = await office.open(office.executor(registry))
        assert executor.rows is not None
        await inbox.Senders(executor.rows).send(
            id, "go", plain_data.pack(1), None, executor._turns.reign
        )
        executor.signal(inbox.signal_event(id, "go"))
        if says:
            await office.until(lambda: _retries(executor, id))
            live = executor.live_one(id)
            assert live is not None
            assert live.retry is not None
            assert live.retry.code == "WORKFLOW_CHANGED"
            assert says in live.retry.message
            await office.close(executor)
            executor = await office.open(office.executor(office.lab.types))  # the old code again
        assert result(await executor.wait(id, 20_000)) == ["a", "b"]
        assert [office.lab.number(key) for key in ("a", "b", "c", "x")] == [1, 1, 0, 0]
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize("how", ["other call", "no undo", "fails before"])
def test_j24_changed_code_does_not_lose_an_undo(how: str) -> None:
    """What the new code does not know how to undo was taken for undone."""

    async def held(ctx: StepContext, key: str) -> None:
        if not NOTES:
            raise Unavailable("not yet")
        await count_down(ctx, key)

    def version(*, changed: bool) -> Any:
        async def undone(flow: Flow) -> Any:
            if changed and how == "fails before":
                raise KeyError("early")
            name = "x" if changed and how == "other call" else "a"
            await flow.step(count_up, name, name=name, undo=None if changed else held)
            raise ValueError("to be undone")

        undone.__qualname__ = "undone"
        return workflow("wf.undone")(undone)

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [version(changed=False)])
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("wf.undone"))
        await office.until(lambda: _retries(executor, id))
        await office.close(executor)
        NOTES.append("it may be undone")
        new = version(changed=True)
        stored = await office.lab.store.load(id)
        (broken,) = check([declaration(new)], [stored.record])["broken"]
        assert broken["id"] == str(id)
        executor = await office.open(office.executor(Registry([new])))
        await office.until(lambda: _retries(executor, id))
        live = executor.live_one(id)
        assert live is not None
        assert live.retry is not None
        assert live.retry.code == "WORKFLOW_CHANGED"
        assert live.rolling
        await office.close(executor)
        executor = await office.open(office.executor(Registry([version(changed=False)])))
        record = await executor.wait(id, 20_000)
        assert record.state.name == "ROLLED_BACK"
        assert office.lab.number("a") == 0
        await office.close(executor)

    simloop.run(main, 0)


class _like(str):
    """Equal to what contains it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self) in other

    __hash__ = str.__hash__


def _state(executor: Executor, id: int) -> str:
    live = executor.live_one(id)
    return "" if live is None or live.record is None else live.record.state.name


def _retries(executor: Executor, id: int) -> bool:
    live = executor.live_one(id)
    return live is not None and live.retry is not None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: workflow("wf.wrong")(lambda: None),
        lambda: workflow("wf.wrong")(lambda flow, a, b: None),
        lambda: workflow("wf wrong")(lambda flow: None),
        lambda: workflow("wf.wrong", timeout_ms=-1)(lambda flow: None),
        lambda: workflow("wf.typed")(lambda flow: None),
        lambda: workflow(int),
    ],
)
def test_j23_a_function_that_cannot_be_one_is_refused(wrong: Callable[[], Any]) -> None:
    """It would be found out when it is submitted, or never."""
    with pytest.raises(InvalidArgument) as refused:
        wrong()
    assert refused.value.code == "PROCEDURE_DECLARATION"


# ---------------------------------------------------------------------- without a cluster
def take(ctx: Any, item: str, count: int) -> int:
    row = ctx.txn.table("shop", "stock").get(item)
    left = int(row.value if row else b"10") - count
    if left < 0:
        raise Refused(f"{left + count} left", code="SOLD_OUT")
    ctx.txn.table("shop", "stock").put(item, str(left))
    return left


def put_back(ctx: Any, item: str, count: int) -> None:
    table = ctx.txn.table("shop", "stock")
    table.put(item, str(int(table.get(item).value) + count))


async def take_async(ctx: Any, item: str, count: int) -> int:
    row = await ctx.txn.table("shop", "stock").get(item)
    left = int(row.value if row else b"10") - count
    ctx.txn.table("shop", "stock").put(item, str(left))
    return left


def block(ctx: Any) -> None:
    BLOCKED.release()
    assert GO.wait(30)


@kvorum.workflow
async def blocking(flow: kvorum.Flow) -> None:
    await flow.step(block)


async def test_j23_plain_steps_leave_the_loops_threads_to_the_node(tmp_path: Path) -> None:
    """A node in the same program writes its log in the threads of its loop, which steps filled."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    async with aopen(tmp_path, procedures=[blocking]) as p:
        try:
            ids = [await p.submit(blocking) for _ in range(2)]
            for _ in ids:
                assert await asyncio.wait_for(asyncio.to_thread(BLOCKED.acquire, True, 5), 5)
        finally:
            GO.set()
        for id in ids:
            await p.wait(id, timeout_ms=30_000)


@kvorum.workflow
def shopping(flow: kvorum.Flow, items: list[Order]) -> list[int]:
    left = [flow.step(take, o.item, o.count, undo=put_back).get() for o in items]
    flow.sleep(20).get()
    return (
        left
        + flow.gather(
            flow.step(take_async, "a", 0), flow.step(take, "b", 0), flow.step(take, "c", 0)
        ).get()
    )


async def test_j23_a_plain_function_in_a_directory(tmp_path: Path) -> None:
    """A plain function is another way to write the same, and needs no cluster; it goes on when the
    directory is opened again.
    """
    orders = [Order("a", 3), Order("b", 4)]
    async with aopen(tmp_path, procedures=[shopping]) as p:
        assert await p.wait(await p.submit(shopping, orders), timeout_ms=30_000) == [7, 6, 7, 6, 10]
        again = await p.submit(shopping, [Order("a", 5), Order("b", 9)])
        with pytest.raises(KvorumError) as failed:
            await p.wait(again, timeout_ms=30_000)
        assert (failed.value.code, failed.value.message) == ("SOLD_OUT", "6 left")
        assert (await p.procedure(again)).state == "ROLLED_BACK"
        id = await p.submit(shopping, [Order("a", 2)])
    async with aopen(tmp_path, procedures=[shopping]) as p:
        assert await p.wait(id, timeout_ms=30_000) == [5, 5, 6, 10]


async def test_j23_one_talks_to_it_in_a_directory(tmp_path: Path) -> None:
    """Without a cluster a workflow could wait for a signal that nobody can send; or what was sent
    before the directory was closed was lost, or what nobody took stayed for ever.
    """
    async with aopen(tmp_path, procedures=[summing, waits]) as p:
        heard = await p.submit(waits, 3_600_000)
        assert await p.send(heard, "news", "one", key="a")
        assert not await p.send(heard, "news", "one", key="a")
        total = await p.submit(summing, 5)
        assert await p.update(total, "add", 3, key="k", timeout_ms=30_000) == 3
        assert (await p.query(total, "so_far"))[0] == 3
    async with aopen(tmp_path, procedures=[summing, waits]) as p:
        assert await p.update(total, "add", 3, key="k", timeout_ms=30_000) == 3
        with pytest.raises(Refused) as refused:
            await p.update(total, "add", -3, key="l", timeout_ms=30_000)
        assert refused.value.code == "NEGATIVE"
        assert await p.update(total, "add", 4, key="m", timeout_ms=30_000) == 7
        assert await p.wait(total, timeout_ms=30_000) == 7
        await p.send(heard, "unknown", "left behind")
        await p.send(heard, "stop")
        assert await p.wait(heard, timeout_ms=30_000) == ["one", "stopped"]
        for id in (heard, total):
            await p.acknowledge(id)
        left = [key for id in (heard, total) for key in p.store._left_of(id)]
        assert [key for key in left if p.store.row(key) is not None] == []


def test_j23_the_guides_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users copied an example that does not work."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "workflows.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    module = types.ModuleType("guides_order")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for block in blocks[:2]:
        exec(compile(block, "guide", "exec"), vars(module))
    paid, refused = capsys.readouterr().out.splitlines()
    assert paid.startswith("paid 30, key ")
    assert refused == "not paid"


def test_j23_a_workflow_stands_for_its_name() -> None:
    """It could not be submitted by itself."""
    assert procedure_name(shopping) == "shopping"
    assert declaration(shopping).args is not None


@workflow("staged", attributes={"stage": str})
async def staged(flow: Flow) -> None:
    flow.attributes(stage="begun")
    await flow.step(bump, "there")
    await flow.signal("go")


def test_u18_what_says_attributes_fits_its_own_code() -> None:
    """`check-upgrade` and `move_version` refused each that says by what it is found."""
    calls = [["step", "bump", "done", 1, -1], ["signal", "go", "open", None, -1]]
    args = (1, 7, "staged", 1, "o", "", 0, b"12345678", (), plain_data.NONE, 1, 0, 1000)
    data = plain_data.pack({"round": 1, "calls": calls})
    record = Record(*args, State.WAITING, "run", seq=2, data=data)
    fits = declaration(staged).replays
    assert fits is not None
    assert fits(record) == ""
