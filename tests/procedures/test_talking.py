"""Queries and updates of procedures that run, at the master and at workers, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.outside_events import Update
from procedures.engine.procedure import Outcome
from procedures.engine.queries import View
from procedures.engine.records import Record
from procedures.engine.registry import procedure, query, step
from procedures.engine.workflow import workflow
from procedures.pools import inbox
from procedures.pools.control import Control
from tests.procedures.lab import refusal
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.zoo import Zoo, bump

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])


async def add(ctx: StepContext, update: Update, total: int) -> int:
    if update.args < 0:
        ctx.refuse(update, "NEGATIVE", "not below zero")
        return total
    await bump(ctx, "added", update.args)
    ctx.answer(update, total + update.args)
    return int(total + update.args)


def so_far(view: View) -> Any:
    return [view.state["total"], view.phase, view.args]


@workflow("talking.sum", queries=[so_far])
async def summing(flow: Flow, most: int) -> int:
    total = 0
    while total < most:
        flow.shown["total"] = total
        total = await flow.step(add, await flow.update("add"), total)
    return total


@procedure("talking.knob")
class Knob(Zoo):
    """Its value is what the last update set; it goes round meanwhile."""

    @step(first=True)
    async def turn(self, ctx: StepContext) -> Outcome:
        update: Any = await ctx.receive_update("set")
        if update is None:
            return ctx.until_update("set", then="turn", timeout_ms=1_000)
        ctx.answer(update, ctx.state.get("value"))
        ctx.state["value"] = update.args
        return p.done(update.args) if update.args == "end" else p.next("turn")

    @query
    def value(self, view: View, unit: Any) -> str:
        view.state["value"] = f"{view.state.get('value')} {unit}"
        return str(view.state["value"])

    @query
    def broken(self, view: View) -> None:
        raise ValueError("it is")

    @query
    def odd(self, view: View) -> object:
        return {1}

    @query
    def refused(self, view: View) -> None:
        raise Refused("not now", code="NOT_NOW")


TYPES: list[Any] = [summing, Knob]


async def update(
    control: Control, id: int, name: str, args: Any, key: str, wait_ms: int = 900
) -> Any:
    return await control.do(
        "update", {"id": id, "name": name, "args": args, "key": key, "wait_ms": wait_ms}
    )


@REMOTE
def test_j26_updates_are_carried_out_once(remote: bool) -> None:
    """An update was carried out twice, or its sender got another answer, or none."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.sum", 20))
        assert await update(control, id, "add", 3, "a") == {"done": True, "result": 3}
        assert await update(control, id, "add", 3, "a") == {"done": True, "result": 3}
        error = {"code": "NEGATIVE", "message": "not below zero"}
        assert await update(control, id, "add", -1, "b") == {"done": True, "error": error}
        many = await asyncio.gather(*(update(control, id, "add", 2, k) for k in "cdecde"))
        assert sorted(one["result"] for one in many) == [5, 5, 7, 7, 9, 9]
        assert await update(control, id, "nobody", 1, "z", 50) == {"done": False}
        assert await update(control, id, "add", 11, "last") == {"done": True, "result": 20}
        record = await executor.wait(id, 5_000)
        assert plain_data.decode(record.result) == 20
        assert office.lab.number("added") == 20
        assert (await refusal(update(control, id, "add", 1, "late"))).code == "ENDED"
        assert await update(control, id, "add", 1, "a") == {"done": True, "result": 3}

    in_office(test, remote, TYPES)


@REMOTE
def test_j26_one_that_ends_meanwhile_is_told(remote: bool) -> None:
    """Whoever waits for an answer that will never come waited for ever."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.sum", 20))
        waiting = asyncio.ensure_future(refusal(update(control, id, "nobody", 1, "k", 60_000)))
        await asyncio.sleep(2)
        await executor.abort(id, "enough")
        assert (await waiting).code == "ENDED"

    in_office(test, remote, TYPES)


def test_j26_who_asks_again_for_a_last_answer_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The procedure answered and ended just after the answer had been looked for: its sender was
    told that nobody took the update.
    """

    async def test(office: Office, executor: Executor) -> None:
        control, find = Control(executor), executor.find
        id = await executor.submit(submission("talking.knob"))

        async def once_it_ended(id: int) -> Record:
            await executor.heard(inbox.answer_event(id, "k"), 5_000)
            return await find(id)

        assert await update(control, id, "set", "end", "k", 0) == {"done": False}
        monkeypatch.setattr(executor, "find", once_it_ended)
        assert await update(control, id, "set", "end", "k") == {"done": True, "result": None}
        assert (await refusal(update(control, id, "set", "end", "late"))).code == "ENDED"

    in_office(test, False, TYPES)


def test_j26_who_repeats_what_was_sent_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a signal was lost, and its sender was told that there are too many: as if it
    had not been sent.
    """
    monkeypatch.setattr(limits, "PROCEDURE_SIGNALS_MAX", 2)

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.sum", 20))

        async def send(key: str) -> Any:
            return await control.do("signal", {"id": id, "name": "x", "payload": 1, "key": key})

        assert [(await send(key))["sent"] for key in "aba"] == [True, True, False]
        assert (await refusal(send("c"))).code == "TOO_LARGE"
        assert await send("b") == {"sent": False}
        assert (await refusal(send("update:k"))).code == "INVALID_ARGUMENT", "a key of an update"

    in_office(test, False, TYPES)


@REMOTE
def test_j26_queries_read_what_is_stored(remote: bool) -> None:
    """A query changed something, or waited for a step, or its error was the engine's."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)

        async def ask(id: int, name: str, args: Any = None) -> Any:
            return (await control.do("query", {"id": id, "name": name, "args": args}))["result"]

        id = await executor.submit(submission("talking.knob"))
        for value, before in ((1, None), (2, 1)):
            assert await update(control, id, "set", value, f"k{value}") == {
                "done": True,
                "result": before,
            }
            await office.until(lambda: not _running(executor, id))
            assert await ask(id, "value", "V") == f"{value} V"
        for name, code in (
            ("broken", "QUERY_FAILED"),
            ("odd", "INVALID_ARGUMENT"),
            ("refused", "NOT_NOW"),
            ("none", "QUERY_UNKNOWN"),
            ("turn", "QUERY_UNKNOWN"),
        ):
            assert (await refusal(ask(id, name))).code == code
        await update(control, id, "set", "end", "last")
        assert (await executor.wait(id, 5_000)).ended
        assert await ask(id, "value", "V") == "end V"
        assert (await refusal(ask(id + 100, "value"))).code == "PROCEDURE_NOT_FOUND"

        other = await executor.submit(submission("talking.sum", 5))
        await update(control, other, "add", 3, "k")
        await office.until(lambda: not _running(executor, other))
        assert await ask(other, "so_far") == [3, "WAITING", 5]

    in_office(test, remote, TYPES)


def _running(executor: Executor, id: int) -> bool:
    live = executor.live_one(id)
    return live is not None and (live.running or live.queued)


def test_j26_without_its_code_nobody_answers() -> None:
    """It would be asked of whoever does not know, or wait for ever."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("talking.sum", 5))
        await office.dismiss("w1")
        control = Control(executor)
        asked = await refusal(control.do("query", {"id": id, "name": "so_far"}))
        assert asked.code == "UNAVAILABLE"
        assert asked.disposition == "retry"
        plain = await refusal(control.do("signal", {"id": id, "name": "update:add"}))
        assert "send it with update" in plain.message

    in_office(test, True, TYPES)


@pytest.mark.parametrize("how", ["async", "three", "none"])
def test_j26_what_is_no_query_is_refused(how: str) -> None:
    """It would be found out when somebody asks."""

    async def waits(view: View) -> None: ...

    def three(view: View, a: Any, b: Any) -> None: ...

    def none() -> None: ...

    wrong: Any = {"async": waits, "three": three, "none": none}[how]
    with pytest.raises(InvalidArgument) as refused:
        workflow("talking.wrong", queries=[wrong])(lambda flow: None)
    assert refused.value.code == "PROCEDURE_DECLARATION"
    assert isinstance(refused.value, KvorumError)
