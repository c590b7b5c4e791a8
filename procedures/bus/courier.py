"""The master's side at work: sends what the outbox says, takes what is answered, wakes procedures.

    open ─▶ outbox.py ─▶ push, one message at a time per target: a slow one delays nobody
                    └──▶ the answer of a heartbeat or of BUS_REPORTS, whoever comes first
    answers ─▶ event "bus/OP" when all are there or one failed, else BUS_RECORD_MS after the first:
               so that what comes together is recorded by one step

Nothing here is durable. A procedure of a new reign opens its operation again. `shut` when this node
is no longer the master: what is on its way then is the truth of the record that was committed
before, and receivers never go back. A step of an ended reign that is late opens nothing: nobody
would close it, and it would renew leases for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kv.base import limits
from kv.base.errors import KvorumError
from kv.base.ports import Handle, Timers
from procedures.bus.core import Operation
from procedures.bus.messages import Order, Report
from procedures.bus.outbox import Outbox
from procedures.engine.plain_data import Plain

log = logging.getLogger(__name__)

Push = Callable[[list[Order]], Awaitable[Sequence[Report]]]


def event_of(op: str) -> str:
    """The event of new answers."""
    return f"bus/{op}"


class Courier:
    """See the module. `run` as long as the node lives."""

    def __init__(
        self, timers: Timers, reach: Callable[[str], Push | None], signal: Callable[[str], None]
    ) -> None:
        """`reach`: BUS_ORDERS at a target, None for one that cannot be called and asks by itself.
        `signal`: wakes procedures.
        """
        self.pushed = self.lost = 0
        self._timers, self._reach, self._signal = timers, reach, signal
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._pushing: set[str] = set()
        self._soon: dict[str, Handle] = {}  # operations whose answers wait to be recorded together
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._shut = False
        self._since_s = timers.monotonic()
        self._heard: dict[str, float] = {}  # when targets that ask by themselves did so last

    def __len__(self) -> int:
        return len(self._outbox)

    # ------------------------------------------------------------------------------ procedures

    def open(self, op: Operation) -> None:
        """Send what it wants, from now on; the record says so already."""
        if self._shut:
            return
        self._outbox.open(op, self._timers.monotonic())
        self._wake.set()

    def close(self, op: str) -> None:
        """It has ended."""
        self._outbox.close(op)
        self._waiters.pop(op, None)
        if (soon := self._soon.pop(op, None)) is not None:
            soon.cancel()

    def answers(self, op: str) -> list[tuple[str, Report]]:
        """What no record has yet."""
        return self._outbox.answers(op)

    def age_s(self, op: str) -> float:
        """How long the phase that it is in has been sent, in this reign."""
        return self._outbox.age_s(op, self._timers.monotonic())

    def shown(self, op: str) -> dict[str, Plain]:
        """Attempts, progress and last error of the targets that have not answered."""
        return self._outbox.shown(op)

    def silent(self, targets: Iterable[str]) -> list[str]:
        """Those of them that have asked for nothing for a lease, as long as this node is the
        master: what they had staged has ended.
        """
        early_s = self._timers.monotonic() - limits.BUS_LEASE_MS / 1000
        return [one for one in targets if self._heard.get(one, self._since_s) <= early_s]

    async def wait(self, op: str, seconds: float) -> None:
        """Until all have answered, or for so long."""
        if self._outbox.answered(op):
            return
        waiter = self._waiters.get(op)
        if waiter is None:
            waiter = self._waiters[op] = asyncio.get_running_loop().create_future()
        await asyncio.wait([waiter], timeout=seconds)

    def begin(self) -> None:
        """This node is the master now."""
        self._shut = False
        self._since_s = self._timers.monotonic()
        self._heard.clear()

    def shut(self) -> None:
        """This node is not the master."""
        self._shut = True
        self._outbox.clear()
        for soon in self._soon.values():
            soon.cancel()
        self._soon.clear()

    # ------------------------------------------------------------------------------ targets

    def heard(self, target: str, reports: Sequence[Report]) -> None:
        """What a target reports, by whatever way."""
        for op in sorted(self._outbox.heard(target, reports, self._timers.monotonic())):
            if self._outbox.answered(op):
                self._tell(op)
            elif op not in self._soon:
                self._soon[op] = self._timers.call_later(
                    limits.BUS_RECORD_MS / 1000, self._tell, op
                )

    def asked(self, target: str) -> list[Order]:
        """The orders for a target that is talking to us: they go with the answer."""
        if len(self._heard) >= limits.WORKERS_MAX and target not in self._heard:
            self._heard.pop(min(self._heard, key=lambda one: self._heard[one]))
        self._heard[target] = self._timers.monotonic()
        return self._outbox.ask(target, self._timers.monotonic())

    def _tell(self, op: str) -> None:
        if (soon := self._soon.pop(op, None)) is not None:
            soon.cancel()
        waiter = self._waiters.get(op)
        if waiter is not None and self._outbox.answered(op):
            del self._waiters[op]
            if not waiter.done():
                waiter.set_result(None)
        self._signal(event_of(op))

    # ------------------------------------------------------------------------------ sending

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for target in self._outbox.due(self._timers.monotonic()):
                    push = self._reach(target)
                    if push is not None and target not in self._pushing:
                        orders = self._outbox.take(target, self._timers.monotonic())
                        self._pushing.add(target)
                        work = self._pushed(target, orders, push)
                        group.create_task(work, name=f"bus {target}")
                await self._pause()

    async def _pushed(self, target: str, orders: list[Order], push: Push) -> None:
        try:
            reports = await push(orders)
        except KvorumError as error:
            self.lost += 1
            now_s = self._timers.monotonic()
            self._outbox.lost(target, orders, f"{error.code}: {error.message}", now_s)
        else:
            self.pushed += 1
            self._outbox.arrived(target, orders, self._timers.monotonic())
            self.heard(target, reports)
        finally:
            self._pushing.discard(target)
            self._wake.set()

    async def _pause(self) -> None:
        """Until something is opened, due, or has ended that was on its way."""
        at_s, now_s = self._outbox.next_s(self._reachable), self._timers.monotonic()
        # Never less than a timer can tell apart: a clock that runs slower than the loop's would
        # see the order not yet due again and again without time going on.
        seconds = None if at_s is None else max(at_s - now_s, limits.BUS_PAUSE_S_MIN)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _reachable(self, target: str) -> bool:
        return target not in self._pushing and self._reach(target) is not None
