"""A target at work: takes orders, runs their handlers, reports to the master what became of them.

    BUS_ORDERS, a heartbeat's answer, BUS_REPORTS' answer ─▶ take ─▶ receiver.py ─▶ handlers
    what has ended ─▶ BUS_REPORTS at once; if the master is not reached: again later, and with
    every heartbeat

Handlers run as tasks on the loop; blocking work is theirs to put into threads. At most
BUS_RUNNING_MAX operations are begun at once, the others wait their turn; what was decided (COMMIT,
UNDO) does not wait for them. A handler that is stopped is cancelled; its `undo` follows.

`report` and the heartbeat are two ways of the same reports: the master takes doubles.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kv.base.ports import Timers
from procedures.bus.messages import Order, Report, Status, Verb, bounded, failure_body
from procedures.bus.receiver import Begin, Effect, Receiver, Stop
from procedures.engine import plain_data

log = logging.getLogger(__name__)

_STOPPED: Final = plain_data.pack(["STOPPED", "it was stopped", False])


@dataclass(frozen=True, slots=True)
class Job:
    """What a handler is called with. `op` is the same however often it is asked; `progress` takes
    plain data that people are shown.
    """

    op: str
    body: Any
    progress: Callable[[object], None]


class Handler:
    """One kind of operation at a target. Every method may run several times for one operation,
    also in another process, and `undo` also for one that never began here. KvorumErrors that may be
    retried are; any other error is for good, and fails the operation (but never a commit or an
    undo, which are tried until they succeed).
    """

    async def do(self, job: Job) -> object:
        """One phase: the result."""
        raise _cannot(self, "in one phase")

    async def stage(self, job: Job) -> object:
        """Make everything ready so that `commit` cannot be refused; nobody may see it yet."""
        raise _cannot(self, "in two phases")

    async def commit(self, job: Job) -> object:
        """Let what was staged count."""
        raise _cannot(self, "in two phases")

    async def undo(self, job: Job) -> None:
        """Take back what `do` or `stage` left, whole or half."""


SendReports = Callable[[list[Report]], Awaitable[Sequence[Order]]]


class Hands:
    """See the module. `run` for as long as the target lives."""

    def __init__(self, handlers: Mapping[str, Handler], timers: Timers, send: SendReports) -> None:
        """`send`: BUS_REPORTS at the master; gives the orders that wait for this target."""
        self._handlers, self._timers, self._send = handlers, timers, send
        self._receiver = Receiver()
        self._effects: deque[Effect] = deque()
        self._wake = asyncio.Event()
        self._running: dict[str, asyncio.Task[tuple[Status, bytes]]] = {}
        self._turns = asyncio.Semaphore(limits.BUS_RUNNING_MAX)
        self._reporting: asyncio.Task[None] | None = None
        self._report_failures = 0
        self._report_after_s = 0.0
        self._beaten: list[Report] = []  # in the heartbeat under way
        self._by_beat: list[Order] = []  # in the answer to the last one
        self.begun = 0

    # ------------------------------------------------------------------------------ messages

    def take(self, orders: Sequence[Order]) -> list[Report]:
        """Orders that arrived; what can be said about them at once."""
        now_s = self._timers.monotonic()
        for order in orders:
            effect = self._receiver.take(order, now_s)
            if effect is not None:
                self._effects.append(effect)
        self._wake.set()
        return [self._receiver.answer(order) for order in orders]

    def beat(self) -> list[Report]:
        """What goes with the next heartbeat: what became of the orders in the answer to the last
        one, and what is new. What the one before said may not have arrived, unless `beaten` was
        called.
        """
        self._receiver.not_reported(self._beaten)
        self._beaten = self._receiver.reports()
        known = {(report.op, report.verb, report.round) for report in self._beaten}
        acks = [self._receiver.answer(order) for order in self._by_beat]
        rows = self._beaten + [r for r in acks if (r.op, r.verb, r.round) not in known]
        return rows[: bounded(rows)]

    def beaten(self, orders: Sequence[Order]) -> None:
        """The heartbeat arrived; its answer has these orders."""
        self._beaten, self._by_beat = [], list(orders)
        if orders:
            self.take(orders)

    # ------------------------------------------------------------------------------ life

    async def run(self) -> None:
        """Until cancelled; what is under way then is cancelled, too, and asked for again."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now_s = self._timers.monotonic()
                self._effects.extend(self._receiver.expire(now_s))
                while self._effects:
                    self._act(self._effects.popleft(), group)
                self._start_reporting(now_s, group)
                await self._pause()

    async def _pause(self) -> None:
        now_s = self._timers.monotonic()
        times = [at for at in (self._receiver.next_s(), self._report_after_s) if at and at > now_s]
        try:
            async with asyncio.timeout(min(times) - now_s if times else None):
                await self._wake.wait()
        except TimeoutError:
            return

    def _act(self, effect: Effect, group: asyncio.TaskGroup) -> None:
        match effect:
            case Stop(op):
                task = self._running.get(op)
                if task is not None:
                    task.cancel()
            case Begin(order):
                self.begun += 1
                task = group.create_task(self._work(effect), name=f"bus {order.op}")
                self._running[order.op] = task
                task.add_done_callback(partial(self._ended, order))

    def _ended(self, order: Order, task: asyncio.Task[tuple[Status, bytes]]) -> None:
        """Also of a task that was cancelled before it began."""
        del self._running[order.op]
        status, body = (Status.FAILED, _STOPPED) if task.cancelled() else task.result()
        effect = self._receiver.ended(order, status, body, self._timers.monotonic())
        if effect is not None:
            self._effects.append(effect)
        self._wake.set()

    # ------------------------------------------------------------------------------ handlers

    async def _work(self, begin: Begin) -> tuple[Status, bytes]:
        """Carry out one order, whatever comes of it."""
        order = begin.order
        try:
            return Status.DONE, await self._result(begin)
        except Exception as error:  # a handler is the application's code: whatever it raises
            if not isinstance(error, KvorumError):
                log.error("operation %s (%s) failed", order.op, order.kind, exc_info=error)
            return Status.FAILED, failure_body(error)

    async def _result(self, begin: Begin) -> bytes:
        order = begin.order
        handler = self._handlers.get(order.kind)
        if handler is None:
            if order.verb is Verb.UNDO:
                return plain_data.NONE  # it cannot have done anything
            raise NotFound(
                f"this target knows no operation {order.kind!r}; it may run an older version",
                code="OPERATION_UNKNOWN",
            )
        job = Job(order.op, plain_data.decode(order.body), self._progress(order))
        result: object
        match order.verb:
            case Verb.DO:
                async with self._turns:
                    result = await handler.do(job)
            case Verb.STAGE:
                async with self._turns:
                    result = await handler.stage(job)
            case Verb.COMMIT:
                if not begin.staged:
                    await handler.stage(job)
                result = await handler.commit(job)
            case Verb.UNDO:
                await handler.undo(job)
                result = None
        return plain_data.encode(result, f"result of {order.kind}", limits.BUS_BODY_BYTES_MAX)

    def _progress(self, order: Order) -> Callable[[object], None]:
        def progressed(data: object) -> None:
            what = f"progress of {order.kind}"
            body = plain_data.encode(data, what, limits.BUS_BODY_BYTES_MAX)
            self._receiver.progressed(order.op, body)

        return progressed

    # ------------------------------------------------------------------------------ reporting

    def _start_reporting(self, now_s: float, group: asyncio.TaskGroup) -> None:
        if self._reporting is not None or now_s < self._report_after_s:
            return
        reports = self._receiver.reports()
        if reports:
            self._reporting = group.create_task(self._report(reports), name="bus reports")

    async def _report(self, reports: list[Report]) -> None:
        try:
            orders = await self._send(reports)
        except KvorumError as error:
            log.debug("no report of %d operations reached the master: %s", len(reports), error)
            self._receiver.not_reported(reports)
            self._report_failures += 1
            pause = limits.BUS_RETRY_MS_FIRST << min(self._report_failures, 20)
            pause_s = min(pause, limits.BUS_RETRY_MS_MAX) / 1000
            self._report_after_s = self._timers.monotonic() + pause_s
        else:
            self._report_failures, self._report_after_s = 0, 0.0
            if orders:
                self.take(orders)
        finally:
            self._reporting = None
            self._wake.set()


def _cannot(handler: Handler, how: str) -> InvalidArgument:
    return InvalidArgument(
        f"{type(handler).__name__} does not work {how}", code="OPERATION_UNKNOWN"
    )
