"""Queries and updates of procedures that run, at the master and at workers, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.outside_events import Update
from procedures.engine.procedure import Outcome
from procedures.engine.queries import View
from procedures.engine.records import Record
from procedures.engine.registry import procedure, query, step, update
from procedures.engine.submission import Submission
from procedures.engine.workflow import workflow
from procedures.pools import rows
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


@dataclass
class Share:
    of: str
    part: float


@update.validator("share")
def fair(view: View, share: Share) -> None:
    CHECKED.append((view.state, share))
    if not 0 < share.part <= 1:
        raise Refused(f"{share.of} has no such part", code="NO_PART")
    if view.state["taken"] + share.part > 1:
        raise ValueError("too much")


async def take(ctx: StepContext, given: Update, taken: float) -> float:
    ctx.answer(given, taken + given.args["part"])
    return float(taken + given.args["part"])


@workflow("talking.shares", validators=[fair])
async def sharing(flow: Flow) -> float:
    taken = 0.0
    while taken < 1:
        flow.shown["taken"] = taken
        taken = await flow.step(take, await flow.update("share"), taken)
    return taken


@procedure("talking.picky")
class Picky(Zoo):
    """It answers twice, if it is told to."""

    @step(first=True)
    async def wait(self, ctx: StepContext) -> Outcome:
        given: Any = await ctx.receive_update("set")
        if given is None:
            return ctx.until_update("set", then="wait")
        ctx.answer(given, "once")
        ctx.state["given"] = list(given)
        return p.next("twice") if given.args == "twice" else p.next("wait")

    @step
    async def twice(self, ctx: StepContext) -> Outcome:
        ctx.answer(Update(*ctx.state["given"]), "twice")
        return p.done()

    @update.validator("set")
    def short(self, view: View, args: str) -> None:
        if len(args) > 10:
            raise InvalidArgument("too long")


@procedure("talking.counter")
class Counter(Zoo):
    """It counts the signals that it has taken, until it is told to stop."""

    @step(first=True)
    async def count(self, ctx: StepContext) -> Outcome:
        signal: Any = await ctx.receive("one")
        if signal is None:
            return ctx.until_signal("one", then="count")
        ctx.state["all"] = [*ctx.state.get("all", []), signal.payload]
        return p.done(ctx.state["all"]) if signal.payload == "stop" else p.next("count")


@workflow("talking.deaf")
async def deaf(flow: Flow) -> None:
    while True:
        try:
            await flow.signal("x")
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  that is the mistake
            NOTES.append(error)


CHECKED: list[Any] = []
NOTES: list[BaseException] = []
TYPES: list[Any] = [summing, Knob, sharing, Picky, Counter, deaf]


async def send_update(
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
        assert await send_update(control, id, "add", 3, "a") == {"done": True, "result": 3}
        assert await send_update(control, id, "add", 3, "a") == {"done": True, "result": 3}
        error = {"code": "NEGATIVE", "message": "not below zero"}
        assert await send_update(control, id, "add", -1, "b") == {"done": True, "error": error}
        many = await asyncio.gather(*(send_update(control, id, "add", 2, k) for k in "cdecde"))
        assert sorted(one["result"] for one in many) == [5, 5, 7, 7, 9, 9]
        assert await send_update(control, id, "nobody", 1, "z", 50) == {"done": False}
        assert await send_update(control, id, "add", 11, "last") == {"done": True, "result": 20}
        record = await executor.wait(id, 5_000)
        assert plain_data.decode(record.result) == 20
        assert office.lab.number("added") == 20
        assert (await refusal(send_update(control, id, "add", 1, "late"))).code == "ENDED"
        assert await send_update(control, id, "add", 1, "a") == {"done": True, "result": 3}

    in_office(test, remote, TYPES)


@REMOTE
def test_j26_one_that_ends_meanwhile_is_told(remote: bool) -> None:
    """Whoever waits for an answer that will never come waited for ever."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.sum", 20))
        waiting = asyncio.ensure_future(refusal(send_update(control, id, "nobody", 1, "k", 60_000)))
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
            while not (record := await find(id)).ended:
                with executor.listening(id) as changed:
                    await changed
            return record

        assert await send_update(control, id, "set", "end", "k", 0) == {"done": False}
        monkeypatch.setattr(executor, "find", once_it_ended)
        assert await send_update(control, id, "set", "end", "k") == {"done": True, "result": None}
        assert (await refusal(send_update(control, id, "set", "end", "late"))).code == "ENDED"

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
            assert await send_update(control, id, "set", value, f"k{value}") == {
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
            ("update:set", "QUERY_UNKNOWN"),
        ):
            assert (await refusal(ask(id, name))).code == code
        await send_update(control, id, "set", "end", "last")
        assert (await executor.wait(id, 5_000)).ended
        assert await ask(id, "value", "V") == "end V"
        assert (await refusal(ask(id + 100, "value"))).code == "PROCEDURE_NOT_FOUND"

        other = await executor.submit(submission("talking.sum", 5))
        await send_update(control, other, "add", 3, "k")
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


@REMOTE
def test_j26_a_validator_refuses_before_anything_is_kept(remote: bool) -> None:
    """An update that cannot be was kept, or its sender got no error of its own; or one that was
    kept is looked at again when it is repeated, and refused after it was carried out.
    """
    CHECKED.clear()

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.shares"))
        await office.until(lambda: not _running(executor, id))
        kept = await _kept(executor, id)
        for part, code in ((0, "NO_PART"), ("a", "BAD_ARGUMENTS"), (1.5, "NO_PART")):
            args = {"of": "cake", "part": part}
            refused = await refusal(send_update(control, id, "share", args, "k"))
            assert (refused.code, refused.disposition) == (code, "no")
        assert await _kept(executor, id) == kept
        half = {"of": "cake", "part": 0.5}
        assert await send_update(control, id, "share", half, "k") == {"done": True, "result": 0.5}
        assert await send_update(control, id, "share", half, "k") == {"done": True, "result": 0.5}
        more = {"of": "cake", "part": 0.75}
        refused = await refusal(send_update(control, id, "share", more, "more"))
        assert (refused.code, "ValueError: too much" in refused.message) == ("UPDATE_REFUSED", True)
        assert CHECKED[-1] == ({"taken": 0.5}, Share("cake", 0.75))
        count = len(CHECKED)
        assert await send_update(control, id, "share", half, "last") == {"done": True, "result": 1}
        assert await send_update(control, id, "share", half, "last") == {"done": True, "result": 1}
        assert len(CHECKED) == count + 1
        assert (await executor.wait(id, 5_000)).ended

    in_office(test, remote, TYPES)


async def _kept(executor: Executor, id: int) -> list[bytes]:
    """The rows of what was said to it."""
    assert executor.rows is not None
    found: list[bytes] = []
    for span in rows.left_of(id):
        found += [key async for key, _, _ in rows.every(executor.rows, span)]
    return found


@REMOTE
def test_j26_an_update_has_one_answer(remote: bool) -> None:
    """A later step answered it again, and whoever repeats the update gets that."""

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.picky"))
        refused = await refusal(send_update(control, id, "set", "far too long", "k"))
        assert refused.code == "INVALID_ARGUMENT"
        assert await send_update(control, id, "set", "", "a") == {"done": True, "result": "once"}
        told = {"done": True, "result": "once"}
        assert await send_update(control, id, "set", "twice", "b") == told
        record = await executor.wait(id, 5_000)
        assert record.error is not None
        assert (record.error.code, "'b'" in record.error.message) == ("ALREADY_ANSWERED", True)
        assert await send_update(control, id, "set", "twice", "b") == told

    in_office(test, remote, TYPES)


@REMOTE
def test_j26_who_waits_for_an_answer_is_woken(remote: bool) -> None:
    """The answer was looked for every half second, and came so much later; or never, if it was
    given between the look and the wait.
    """

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.sum", 1_000))
        reads = _counted_reads(executor)
        waiting = asyncio.ensure_future(send_update(control, id, "nobody", 1, "z", 20_000))
        await asyncio.sleep(10)
        before = reads[0]
        await asyncio.sleep(9)
        assert reads[0] == before, "nobody looks while nothing happens"
        began = office.lab.clock.now_ms()
        assert (await send_update(control, id, "add", 3, "a", 20_000))["done"]
        assert office.lab.clock.now_ms() - began < 100
        assert await waiting == {"done": False}

    in_office(test, remote, TYPES)


def _counted_reads(executor: Executor) -> list[int]:
    store, count = executor.rows, [0]
    assert store is not None
    get = store.get

    async def counted(key: bytes) -> Any:
        count[0] += 1
        return await get(key)

    store.get = counted  # type: ignore[method-assign]
    return count


@REMOTE
def test_j26_keys_have_a_bound(remote: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A procedure that lives for ever kept the key of every signal and the answer of every update,
    or forgot the newest ones.
    """
    monkeypatch.setattr(limits, "PROCEDURE_KEYS_KEPT", 20)
    monkeypatch.setattr(limits, "PROCEDURE_SIGNALS_MAX", 10)

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        id = await executor.submit(submission("talking.knob"))
        for i in range(60):
            told = await send_update(control, id, "set", i, f"k{i}")
            assert told == {"done": True, "result": i - 1 if i else None}
            assert len(await _kept(executor, id)) <= 3 * 20
        for i in (59, 45):
            assert (await send_update(control, id, "set", "other", f"k{i}"))["result"] == i - 1
        fresh = Control(executor)  # another master counts what there is
        for i in range(60, 65):
            assert (await send_update(fresh, id, "set", i, f"k{i}"))["result"] == i - 1
        assert len(await _kept(executor, id)) == 3 * 20
        await send_update(control, id, "set", "end", "end")
        record = await executor.wait(id, 5_000)
        await executor.acknowledge(record.id)
        assert executor.crew is not None
        await executor.crew._sweep()
        assert await _kept(executor, id) == []

    in_office(test, remote, TYPES)


@REMOTE
def test_j26_keys_that_come_at_once_have_a_bound(
    remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten at a time drop the same oldest key, and nine of ten are kept for ever."""
    monkeypatch.setattr(limits, "PROCEDURE_KEYS_KEPT", 20)

    async def test(office: Office, executor: Executor) -> None:
        control = Control(executor)
        store = executor.rows
        assert store is not None
        id = await executor.submit(submission("talking.knob"))
        scan = store.scan

        async def slow(start: bytes, end: bytes, *, limit: int) -> Any:
            found = await scan(start, end, limit=limit)
            await asyncio.sleep(0.01)
            return found

        store.scan = slow  # type: ignore[method-assign]

        async def send(key: str) -> None:
            sent = {"id": id, "name": "other", "payload": 1, "key": key}
            assert (await control.do("signal", sent))["sent"]

        for n in range(20):
            await asyncio.gather(*(send(f"{n}.{at}") for at in range(10)))
        for n in range(20):
            await send(f"last.{n}")
        kept = [key async for key, _, _ in rows.every(store, rows.key_times(id))]
        assert len(kept) == 20

    in_office(test, remote, TYPES)


def test_j26_signals_are_not_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signal read all that were there, with what they carry; or more were kept than may be,
    because a page of large ones is short.
    """
    monkeypatch.setattr(limits, "PROCEDURE_SIGNALS_MAX", 30)

    async def test(office: Office, executor: Executor) -> None:
        control, scans, store = Control(executor), [0], executor.rows
        assert store is not None
        scan = store.scan

        async def short(start: bytes, end: bytes, *, limit: int) -> Any:
            scans[0] += 1
            return await scan(start, end, limit=min(limit, 4))

        id = await executor.submit(submission("talking.sum", 20))
        store.scan = short  # type: ignore[method-assign]
        for i in range(30):
            await control.do("signal", {"id": id, "name": "x", "payload": i, "key": f"{i}"})
        assert scans[0] <= 3
        assert (await refusal(control.do("signal", {"id": id, "name": "x"}))).code == "TOO_LARGE"

    in_office(test, False, TYPES)


@REMOTE
def test_j26_who_is_started_by_a_signal_has_it(remote: bool) -> None:
    """There was a procedure that waited for a signal which its starter had not sent any more."""

    async def test(office: Office, executor: Executor) -> None:
        talk = Control(executor).talk

        async def start(payload: str, key: str, nonce: str = "n") -> int:
            sub = Submission("talking.counter", None, "tester", nonce)
            return await talk.start(sub, {"name": "one", "payload": payload, "key": key})

        id = await start("a", "1")
        assert id == await start("a", "1") == await start("b", "2")
        assert await start("stop", "3") == id
        record = await executor.wait(id, 5_000)
        assert plain_data.decode(record.result) == ["a", "b", "stop"]
        assert await start("stop", "3") == id, "its answer was lost"
        assert (await refusal(start("c", "4"))).code == "ENDED"
        assert (await refusal(start("c", "4", ""))).code == "INVALID_ARGUMENT"
        assert (await refusal(start("c", "update:x", "m"))).code == "INVALID_ARGUMENT"
        live = len(executor.live())
        insert = executor.store.insert
        failing: Any = executor.store

        async def lost(record: Record, reign: int = 0, ops: Any = ()) -> Any:
            raise Unavailable("no leader")

        failing.insert = lost
        assert (await refusal(start("a", "1", "other"))).code == "UNAVAILABLE"
        failing.insert = insert
        assert len(executor.live()) == live
        other = await start("stop", "1", "other")
        assert plain_data.decode((await executor.wait(other, 5_000)).result) == ["stop"]

    in_office(test, remote, TYPES)


def test_j26_a_function_that_cannot_be_parked_fails() -> None:
    """It caught what parks it and went on for ever, and the loop stood still."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("talking.deaf"))
        record = await executor.wait(id, 5_000)
        assert record.error is not None
        assert "catches BaseException" in record.error.message

    in_office(test, False, TYPES)


@pytest.mark.parametrize("what", ["signal", "update"])
def test_j26_names_that_nobody_could_wait_for_are_refused(what: str) -> None:
    """Who waits for it waited for two other events, and was never woken."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("talking.sum", 20))
        said = {"id": id, "name": "a\x1fb", "key": "k", "args": 1}
        assert "U+001F" in (await refusal(Control(executor).do(what, said))).message

    in_office(test, False, TYPES)
