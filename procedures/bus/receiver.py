"""What a target knows of the operations that it is asked for, pure, and only in memory (N2).

    take       an order → what to begin or to stop now
    progressed what is under way reports how far it is
    ended      what was begun has ended → what to begin next
    expire     time passes → what to take back: whose master was not heard of for its lease
    reports    what the master does not know yet

One thing at a time is under way per operation. An order that is repeated is not carried out twice
while its result is known; one of a lower rank than the highest seen is ignored, so a STAGE that
arrives after its UNDO stages nothing. UNDO is carried out for an operation that is not known, too:
what a process before this one left (files) is taken back by it. COMMIT of what is not staged here,
because it was lost with a restart or a lease, stages it first: it was decided.

A lease that ends is not a decision: what was begun is taken back here, and may be asked for again.
What was carried out, or taken back, is remembered for several leases and then forgotten.

Left out here: running anything (handlers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from kv.base import limits
from procedures.bus.messages import Order, Report, Status, Verb, bounded
from procedures.engine import plain_data

_MEMORY_LEASES: Final = 3
_NEVER: Final = float("inf")
_BUSY: Final = plain_data.pack(["BUSY", "it knows of too many operations; ask again", False])


@dataclass(frozen=True, slots=True)
class Begin:
    """Carry out an order. `staged`: what a COMMIT is about was staged in this process. `own`: the
    target's own decision, because a lease has ended.
    """

    order: Order
    staged: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel what is under way for this operation; `ended` is called when it has."""

    op: str


Effect: TypeAlias = Begin | Stop


@dataclass(slots=True)
class _Known:
    order: Order  # the one of the highest rank
    lease_end_s: float
    forget_s: float
    running: Order | None = None
    own: bool = False  # what runs is the taking back of an expired one
    stopping: bool = False
    status: Status = Status.WORKING  # of `order`
    body: bytes = plain_data.NONE
    staged: bool = False
    reported: bool = False


class Receiver:
    """See the module. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def take(self, order: Order, now_s: float) -> Effect | None:
        """An order that arrived. What there is to say about it is in `reports` from now on, or
        later.
        """
        known = self._known.get(order.op)
        lease_s = order.lease_ms / 1000
        if known is None:
            if len(self._known) >= limits.BUS_OPERATIONS_MAX and not self._make_room():
                return None  # it is asked again, and `answer` says why
            known = _Known(order, 0.0, 0.0)
            self._known[order.op] = known
            self._renew(known, lease_s, now_s)
            return self._begin(known)
        if order.rank < known.order.rank:
            return None
        self._renew(known, lease_s, now_s)
        known.reported = False
        if order.rank > known.order.rank:
            known.order, known.status, known.body = order, Status.WORKING, plain_data.NONE
            return self._begin(known)
        if known.running is None and known.status is not Status.DONE:
            known.status = Status.WORKING
            return self._begin(known)
        return None

    def answer(self, order: Order) -> Report:
        """What can be said about an order at once."""
        known = self._known.get(order.op)
        if known is None:
            return Report(order.op, order.verb, order.round, Status.FAILED, _BUSY)
        known.reported = True
        return self._report(order.op, known)

    def progressed(self, op: str, body: bytes) -> None:
        """How far it is, for whoever asks; not worth a message of its own."""
        known = self._known.get(op)
        if known is not None and known.running is known.order:
            known.body = body

    def ended(self, order: Order, status: Status, body: bytes, now_s: float) -> Effect | None:
        """What was begun has ended, or was stopped (then as FAILED)."""
        known = self._known[order.op]
        own, known.own = known.own, False
        known.running, known.stopping = None, False
        if status is Status.DONE:
            known.staged = order.verb is Verb.STAGE
        if own:
            if known.lease_end_s <= now_s and status is Status.DONE:
                del self._known[order.op]  # as if it had never been asked
                return None
            if known.lease_end_s <= now_s:
                known.lease_end_s = now_s + limits.BUS_RETRY_MS_MAX / 1000  # then once more
                return None
            known.status = Status.WORKING  # it was asked again meanwhile
            return self._begin(known)
        if order != known.order:
            return self._begin(known)
        known.status, known.body, known.reported = status, body, False
        known.forget_s = now_s + _MEMORY_LEASES * order.lease_ms / 1000
        return None

    def expire(self, now_s: float) -> list[Effect]:
        """Take back what nobody asks for any more; forget what ended long ago."""
        effects: list[Effect] = []
        for op, known in list(self._known.items()):
            if _acts_s(known) > now_s:
                continue
            if known.running is not None:
                known.stopping = True
                effects.append(Stop(op))
            elif _is_open(known):
                known.own = True
                known.staged = False
                known.running = known.order
                effects.append(Begin(known.order._replace(verb=Verb.UNDO), own=True))
            else:
                del self._known[op]
        return effects

    def next_s(self) -> float | None:
        """When `expire` has something to do, None for never."""
        times = [at for known in self._known.values() if (at := _acts_s(known)) < _NEVER]
        return min(times, default=None)

    def reports(self) -> list[Report]:
        """What the master does not know yet, at most one message; it counts as reported."""
        found = [
            (op, known)
            for op, known in self._known.items()
            if not known.reported and known.status is not Status.WORKING
        ]
        rows = [self._report(op, known) for op, known in found]
        rows = rows[: bounded(rows)]
        for _, known in found[: len(rows)]:
            known.reported = True
        return rows

    def not_reported(self, reports: list[Report]) -> None:
        """These did not reach the master: report them again."""
        for report in reports:
            known = self._known.get(report.op)
            if known is not None:
                known.reported = False

    # ------------------------------------------------------------------------------ details

    def _begin(self, known: _Known) -> Effect | None:
        """Carry out the order of the highest rank as soon as nothing else is under way. What an
        UNDO finds under way is stopped.
        """
        if known.running is not None:
            if known.order.verb is Verb.UNDO and not known.stopping and not known.own:
                known.stopping = True
                return Stop(known.order.op)
            return None
        known.running = known.order
        return Begin(known.order, known.staged)

    @staticmethod
    def _report(op: str, known: _Known) -> Report:
        order = known.order
        return Report(op, order.verb, order.round, known.status, known.body)

    @staticmethod
    def _renew(known: _Known, lease_s: float, now_s: float) -> None:
        known.lease_end_s = now_s + lease_s
        known.forget_s = now_s + _MEMORY_LEASES * lease_s

    def _make_room(self) -> bool:
        """Forget the operation that ended first."""
        ended = [
            (known.forget_s, op)
            for op, known in self._known.items()
            if known.running is None
            and known.status is Status.DONE
            and known.order.verb in (Verb.DO, Verb.COMMIT, Verb.UNDO)
        ]
        if not ended:
            return False
        del self._known[min(ended)[1]]
        return True


def _is_open(known: _Known) -> bool:
    """Whether it must be taken back when its lease ends. What was decided never is."""
    verb = known.order.verb
    return verb is Verb.STAGE or (verb is Verb.DO and known.status is not Status.DONE)


def _acts_s(known: _Known) -> float:
    """When `expire` has something to do about it."""
    if known.running is None:
        return known.lease_end_s if _is_open(known) else known.forget_s
    stays = known.stopping or known.own or not _is_open(known)
    return _NEVER if stays else known.lease_end_s
