"""Whatever a procedure waits for may be there before it waits: signals, completions, at nodes and
at workers, over crashes and failovers. And time is counted once, and holds. Virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from kv.base.errors import KvorumError
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.records import Record
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.engine.submission import Options
from procedures.pools.control import Control
from tests.procedures.lab import CrashingStore, Lab, crashed, refusal
from tests.procedures.pools.pool_lab import Office, TableRows
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo

STEP_S = 0.4  # a step of these takes so long
SENT = ["one", "two", "three"]


async def _works(ctx: StepContext) -> None:
    await asyncio.sleep(STEP_S)


@procedure("first.drain")
class Drain(Zoo):
    """Takes all that there are, and waits for more."""

    @step(first=True)
    async def take(self, ctx: StepContext) -> Outcome:
        got = ctx.state.setdefault("got", [])
        while (signal := await ctx.receive("m")) is not None:
            got.append(signal.payload)
        await _works(ctx)
        if len(got) == len(SENT):
            return p.done(got)
        return ctx.until_signal("m", then="take")


@procedure("first.each")
class Each(Zoo):
    """Waits before it takes, and takes one at a time."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        await _works(ctx)
        return ctx.until_signal("m", then="take")

    @step
    async def take(self, ctx: StepContext) -> Outcome:
        got = ctx.state.setdefault("got", [])
        if (signal := await ctx.receive("m")) is not None:
            got.append(signal.payload)
        await _works(ctx)
        if len(got) == len(SENT):
            return p.done(got)
        return ctx.until_signal("m", then="take")


@procedure("first.asks")
class Asks(Zoo):
    """Waits for a completion some steps after it has asked for it."""

    @step(first=True)
    async def ask(self, ctx: StepContext) -> Outcome:
        ctx.state["token"] = ctx.external()
        return p.next("works")

    @step
    async def works(self, ctx: StepContext) -> Outcome:
        await _works(ctx)
        return ctx.until_done(ctx.state["token"], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        done = await ctx.completed(ctx.state["token"])
        if done is None:
            return ctx.until_done(ctx.state["token"], then="end")
        return p.done(done.result)


@procedure("first.patient")
class Patient(Zoo):
    """Says how it was woken, and when."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return self._wait(ctx, "woken")

    @step
    async def woken(self, ctx: StepContext) -> Outcome:
        self.lab.count(ctx.wake)
        if ctx.wake == "restart":
            return self._wait(ctx, "woken")
        return p.done([ctx.wake, ctx.now_ms])

    @staticmethod
    def _wait(ctx: StepContext, then: str) -> Outcome:
        if ctx.args == "signal":
            return ctx.until_signal("m", then=then, timeout_ms=3_000)
        if ctx.args == "done":
            return ctx.until_done(ctx.external(), then=then, timeout_ms=3_000)
        return p.suspend(event="go", then=then, timeout_ms=3_000)


@procedure("first.hurried", timeout_ms=2_000)
class Hurried(Zoo):
    """Steps that take as long as the arguments say, and write."""

    @step(first=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        return await self._step(ctx, "begin", p.next("pass_" if "pass" in ctx.args else "end"))

    @step(point_of_no_return=True)
    async def pass_(self, ctx: StepContext) -> Outcome:
        return await self._step(ctx, "pass", p.next("end"))

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return await self._step(ctx, "end", p.done("ended"))

    async def _step(self, ctx: StepContext, name: str, outcome: Outcome) -> Outcome:
        ctx.txn.table("t", "t").put(name, b"1")
        await asyncio.sleep(ctx.args.get(name, 0))
        return outcome

    @undo
    async def back(self, ctx: StepContext) -> None:
        ctx.txn.table("t", "t").delete("begin")


TYPES = [Drain, Each, Asks, Patient, Hurried]
Send = Callable[[Executor, int], Awaitable[None]]


async def _signals(executor: Executor, id: int) -> None:
    for n, payload in enumerate(SENT):
        told = {"id": id, "name": "m", "payload": payload, "key": str(n)}
        await Control(executor).do("signal", told)


async def _completes(executor: Executor, id: int) -> None:
    token = plain_data.decode((await executor.find(id)).data).get("token")
    if token is not None:  # else it has not asked yet
        await Control(executor).do("complete", {"token": token, "result": SENT})


KINDS: list[tuple[str, Send]] = [
    ("first.drain", _signals),
    ("first.each", _signals),
    ("first.asks", _completes),
]
MOMENTS_S = (0.0, 0.1, STEP_S, 2 * STEP_S + 0.05, 3.0)


def _in_life(name: str, send: Send, moment_s: float, delay_ms: int, at: int, *, after: bool) -> int:
    """A process that dies at its `at`-th write, and the next one; how many writes the last did."""

    async def main(loop: simloop.SimLoop) -> int:
        lab = Lab(loop, TYPES)
        inner, when = lab.store, loop.time() + moment_s
        for store in (CrashingStore(inner, at, after=after), CrashingStore(inner)):
            executor = lab.executor(store, rows=TableRows(inner.table))
            try:
                async with executor:
                    options = Options(delay_ms=delay_ms)
                    id = await executor.submit(submission(name, nonce="one", options=options))
                    await asyncio.sleep(max(0.0, when - loop.time()))
                    await _sent(executor, id, send)
                    await _ended(executor, id)
                    return store.writes
            except BaseException as error:
                if not crashed(error):
                    raise
        raise AssertionError("it died twice")

    result: int = simloop.run(main, 0)
    return result


async def _sent(executor: Executor, id: int, send: Send) -> None:
    """Sent until it was taken: a completion as soon as there is a token."""
    while not (record := await executor.find(id)).ended:
        await send(executor, id)
        if send is not _completes or "token" in plain_data.decode(record.data):
            return
        await asyncio.sleep(0.05)


async def _ended(executor: Executor, id: int) -> Record:
    record = await executor.wait(id, 20_000)
    assert record.ended, f"it waits for ever: {await executor.explain(id)}"
    assert plain_data.decode(record.result) == SENT
    return record


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "send"), KINDS, ids=[name for name, _ in KINDS])
def test_what_came_before_the_wait_is_noticed_whatever_write_fails(name: str, send: Send) -> None:
    """One that waits for what it has already would wait for ever."""
    for moment_s, delay_ms in product(MOMENTS_S, (0, 1_000)):
        writes = _in_life(name, send, moment_s, delay_ms, 0, after=False)
        for at in range(1, writes + 1):
            _in_life(name, send, moment_s, delay_ms, at, after=bool(at % 2))


@pytest.mark.few(5)
@pytest.mark.parametrize("failover_s", [None, 0.15, 0.45, 0.65, 0.9])
@pytest.mark.parametrize(("name", "send"), KINDS, ids=[name for name, _ in KINDS])
def test_workers_notice_what_came_before_the_wait(
    name: str, send: Send, failover_s: float | None
) -> None:
    """The master before may have heard what the new one has not: a step that began under the one
    and waits under the other.
    """

    async def main(loop: simloop.SimLoop, moment_s: float, delay_ms: int) -> None:
        office = Office(loop, TYPES)
        executor = await office.open(office.executor())
        office.hire("w1", types=office.types([name]))
        await office.entered("w1")
        began = loop.time()
        id = await executor.submit(submission(name, options=Options(delay_ms=delay_ms)))
        moments = [(moment_s, "send"), *([] if failover_s is None else [(failover_s, "new")])]
        for when_s, what in sorted(moments):
            await asyncio.sleep(max(0.0, began + when_s - loop.time()))
            if what == "send":
                await _sent(executor, id, send)
            else:
                await office.close(executor)
                executor = await office.open(office.executor())
        await _ended(executor, id)
        await office.end()
        await office.close(executor)

    for moment_s, delay_ms in product(MOMENTS_S, (0, 1_000)):
        simloop.run(lambda loop, m=moment_s, d=delay_ms: main(loop, m, d), 0)


def test_a_worker_that_stops_tells_what_is_there() -> None:
    """Its turn ends behind a step that waits for what is there already: nobody looks again."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1", types=office.types(["first.each"]))
        await office.entered("w1")
        id = await executor.submit(submission("first.each", options=Options(delay_ms=500)))
        await _signals(executor, id)
        await asyncio.sleep(0.5 + STEP_S / 2)
        await office.dismiss("w1")
        live = executor.live_one(id)
        assert live is not None
        assert live.wake == "event"
        office.hire("w2", types=office.types(["first.each"]))
        await _ended(executor, id)

    in_office(test, TYPES)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("kind", ["signal", "done", "event"])
def test_a_wait_ends_when_it_should_whatever_restarts(kind: str, remote: bool) -> None:
    """A timeout that begins anew at each restart never comes where nodes restart often enough."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        types = Registry() if remote else office.lab.types
        executor = await office.open(office.executor(types))
        if remote:
            office.hire("w1", types=office.types(["first.patient"]))
            await office.entered("w1")
        id = await executor.submit(submission("first.patient", kind))
        await asyncio.sleep(0.05)
        began_ms = office.lab.clock.now_ms()
        for _ in range(3):
            await asyncio.sleep(0.8)
            await office.close(executor)
            executor = await office.open(office.executor(types))
        record = await executor.wait(id, 20_000)
        assert record.state is State.SUCCESS, await executor.explain(id)
        wake, at_ms = plain_data.decode(record.result)
        assert wake == "timeout"
        assert abs(at_ms - began_ms - 3_000) < 200
        if kind != "event":
            assert office.lab.calls == {"timeout": 1}, "a step ran for nothing"
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("args", "state", "left"),
    [
        ({"end": 1.9}, "SUCCESS", "begin end"),
        ({"end": 2.1}, "ROLLED_BACK", ""),
        ({"begin": 1.0, "end": 1.1}, "ROLLED_BACK", ""),
        ({"begin": 2.1}, "ROLLED_BACK", ""),
        ({"pass": 1.9, "end": 5}, "SUCCESS", "begin pass end"),
        ({"pass": 2.1}, "ROLLED_BACK", ""),
    ],
    ids=str,
)
def test_j17_nothing_succeeds_after_its_time(
    args: dict[str, float], state: str, left: str, remote: bool
) -> None:
    """A timeout that only counts between steps: the last one may take as long as it likes, and its
    writes are there though whoever waits has given up.
    """

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        executor = await office.open(office.executor(Registry() if remote else office.lab.types))
        if remote:
            office.hire("w1", types=office.types(["first.hurried"]))
            await office.entered("w1")
        record = await executor.wait(await executor.submit(submission("first.hurried", args)), 9000)
        assert record.state.name == state
        assert (record.error.code if record.error else "") == ("" if left else "TIMEOUT")
        there = [key for key in ("begin", "pass", "end") if office.lab.row(key) is not None]
        assert " ".join(there) == left
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


@pytest.mark.parametrize(("name", "send"), KINDS[1:], ids=[name for name, _ in KINDS[1:]])
def test_a_deposed_master_takes_nothing_that_nobody_would_hear_of(name: str, send: Send) -> None:
    """It would store it and wake nobody: who waits at the new master would wait for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, TYPES)
        rows = TableRows(lab.store.table)
        async with lab.executor(rows=rows) as old:
            id = await old.submit(submission(name))
            await asyncio.sleep(2 * STEP_S)
            assert (await old.find(id)).event
            async with lab.executor(rows=rows) as new:
                refused = await refusal(send(old, id))
                assert (refused.code, refused.disposition) == ("DEPOSED", "retry")
                await send(new, id)
                await _ended(new, id)

    simloop.run(main, 0)


@pytest.mark.parametrize(("name", "send"), KINDS, ids=[name for name, _ in KINDS])
def test_who_repeats_what_was_taken_is_not_told_that_it_failed(name: str, send: Send) -> None:
    """The answer was lost, and the procedure has ended by the time that it is asked for again."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, TYPES)
        async with lab.executor(rows=TableRows(lab.store.table)) as executor:
            id = await executor.submit(submission(name))
            await _sent(executor, id, send)
            await _ended(executor, id)
            await send(executor, id)
            for what, told in (
                ("signal", {"id": id, "name": "m", "key": "new"}),
                ("signal", {"id": id, "name": "m"}),
                ("complete", {"token": f"ext-00-{id}-0", "result": "something else"}),
            ):
                assert (await refusal(Control(executor).do(what, told))).code == "ENDED"

    simloop.run(main, 0)


class _Shut:
    """Rows that cannot be read for a while."""

    def __init__(self, rows: TableRows) -> None:
        self._rows, self.shut = rows, True

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        if self.shut and limit == 1:
            raise KvorumError("not now")
        return await self._rows.scan(start, end, limit=limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


def test_what_is_there_is_found_when_it_can_be_read_again() -> None:
    """A restart in a bad moment would leave a procedure waiting for what it has."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, TYPES)
        rows = _Shut(TableRows(lab.store.table))
        async with lab.executor(rows=rows) as executor:
            id = await executor.submit(submission("first.each"))
            await asyncio.sleep(STEP_S / 2)
        rows.shut = False
        async with lab.executor(rows=rows) as executor:
            await asyncio.sleep(2 * STEP_S)
            live = executor.live_one(id)
            assert live is not None
            assert live.event
            executor.signal = lambda event: None  # type: ignore[method-assign]  # it is not heard
            await _signals(executor, id)
        rows.shut = True
        async with lab.executor(rows=rows) as executor:
            await asyncio.sleep(2)
            assert (await executor.find(id)).state is State.WAITING
            rows.shut = False
            await _ended(executor, id)

    simloop.run(main, 0)
