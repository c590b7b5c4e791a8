"""One channel of requests and replies, and the embedded one. No policy: who calls decides what to
do about a failure.

    call ──▶ send: rid, pending ──▶ out ──(once per loop iteration)──▶ _transmit: one frame
    future ◀── received: by rid, in any order ◀── replies

Invariants
  * a future, or a receiver in its place, ends exactly once: with the result, the peer's error,
    `LinkExpired` or `LinkLost`; a receiver never within the call that sends;
  * `sent` in those two is False only if the request certainly never left this process;
  * a link may be *doubted* for a while: its peer owes replies and says nothing. It takes no new
    requests then, and what waits on it is given back to its callers: they know what may be sent
    again, and what is unknown;
  * at most IN_FLIGHT_PER_CONNECTION_MAX requests are pending; one timer serves all their deadlines.

Deadlines: the timer is set to the earliest deadline among those pending when it was set, and looks
at all of them when it fires. Most requests end long before, so most never touch a timer (a wheel or
heap would keep every finished one).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from kv.base.errors import Busy, Unavailable
from kv.base.intents import NOBODY
from kv.base.limits import IN_FLIGHT_PER_CONNECTION_MAX, REQUESTS_PER_FRAME_MAX
from kv.base.ports import Handle, Timers
from kv.base.rpc import OK, Hello, error_of
from kv.base.wire_row import WireRow

Reply = asyncio.Future[list[object]]


class Receiver:
    """What may wait for a reply in a future's place: it is called directly, not by a callback that
    the loop runs later, so it must neither wait nor raise.
    """

    __slots__ = ()

    def done(self) -> bool:
        """Whether it waits no more."""
        return False

    def set_result(self, result: list[object], /) -> None:
        """The method's result. Called once, or `set_exception` is."""
        raise NotImplementedError

    def set_exception(self, error: Exception, /) -> None:
        """What a future would end with."""
        raise NotImplementedError


CLOSED: Final = "CLOSED"  # code of Unavailable: asking again on this client is pointless
_NEVER: Final = float("inf")
_SWEEP_S: Final = 0.002  # deadlines this close together are looked at in one go


class LinkLost(Exception):
    """The channel is gone and with it the reply."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class LinkExpired(Exception):
    """No reply within the deadline."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("deadline")
        self.sent = sent


class Link(ABC):
    """Requests in, futures out. Subclasses transmit rows and hand the replies to `received`."""

    def __init__(self, timers: Timers) -> None:
        self.closed = False
        self.usable = True  # neither closed nor doubted
        self.peer: Hello | None = None  # who the other end says it is
        self.requests = 0
        self.frames = 0
        self._timers = timers
        self._new_future = asyncio.get_running_loop().create_future
        self._pending: dict[int, tuple[Reply | Receiver, float]] = {}  # … deadline
        self._out: list[list[object]] = []
        self._rid = 0  # of the newest request
        self._transmitted = 0  # rid of the newest request that left
        self._patience_s = _NEVER  # a subclass wants to look at the silence this often
        self._heard_at = 0.0  # when something came, or when waiting began
        self._held = False  # rows wait in `_out` until the peer takes more
        self._wake_at = _NEVER
        self._timer: Handle | None = None

    @abstractmethod
    def _transmit(self, rows: list[list[object]]) -> None:
        """Send rows, at most REQUESTS_PER_FRAME_MAX."""

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def send(self, method: int, budget_ms: int, deadline: float, args: tuple[object, ...]) -> Reply:
        """The result of the method, later. Raises Busy when too much is pending, LinkLost when the
        link is closed or doubted.

        `deadline` in seconds of the timers' clock; `budget_ms` is sent to the peer.
        """
        future = self._new_future()
        self.send_for(future, method, budget_ms, deadline, args)
        return future

    def send_for(
        self,
        waiter: Reply | Receiver,
        method: int,
        budget_ms: int,
        deadline: float,
        args: tuple[object, ...],
    ) -> None:
        """`send` for a caller whose method gets the result. Raises what `send` raises."""
        self.send_row(waiter, [0, method, budget_ms, *args], deadline)

    def send_row(self, waiter: Reply | Receiver, row: list[object], deadline: float) -> None:
        """`send_for` of `[0, method, budget_ms, *args]`, which is the link's from now on."""
        if not self.usable:
            raise self._unusable()
        pending = self._pending
        if len(pending) >= IN_FLIGHT_PER_CONNECTION_MAX:
            raise _too_many(len(pending))
        self._rid = row[0] = rid = self._rid + 1
        pending[rid] = (waiter, deadline)
        out = self._out
        out.append(row)
        if len(out) == 1:
            self._timers.call_soon(self._flush)
        if deadline < self._wake_at:
            if self._timer is None:
                # the silence of an idle link says nothing
                self._heard_at = self._timers.monotonic()
            self._arm(deadline)

    def check_usable(self) -> None:
        """Raises LinkLost if it takes no requests."""
        if not self.usable:
            raise self._unusable()

    def _unusable(self) -> LinkLost:
        why = "the connection is closed" if self.closed else "the server owes replies and is silent"
        return LinkLost(why, sent=False)

    def _flush(self) -> None:
        rows, self._out = self._out, []
        if self.closed or self._held or not rows:
            self._out = rows
            return
        self._transmitted = self._rid
        self.requests += len(rows)
        while rows:
            self.frames += 1
            if len(rows) <= REQUESTS_PER_FRAME_MAX:
                self._transmit(rows)
                return
            self._transmit(rows[:REQUESTS_PER_FRAME_MAX])
            rows = rows[REQUESTS_PER_FRAME_MAX:]

    def received(self, row: WireRow) -> None:
        """A reply. One to a request that nobody waits for any more is dropped."""
        entry = self._pending.pop(row[0], None)
        if entry is None:
            return
        if not entry[0].done():
            _end(entry[0], row)

    def _fail(self, rid: int, error: Exception) -> None:
        entry = self._pending.pop(rid, None)
        if entry is not None and not entry[0].done():
            entry[0].set_exception(error)

    def lose(self, reason: str) -> None:
        """End everything that is pending; the link is of no use any more."""
        self.closed = True
        self.usable = False
        self._disarm()
        self._out = []
        for rid in list(self._pending):
            self._fail(rid, LinkLost(reason, sent=rid <= self._transmitted))

    def close(self) -> None:
        """Give the link up. Callers that still wait get LinkLost."""
        if not self.closed:
            self.lose("the client closed the connection")

    # -- doubt

    def _doubt(self, reason: str) -> None:
        """The peer may be gone: its callers shall look for another one, as far as they may."""
        self.usable = False
        self._out = []
        for rid in list(self._pending):
            self._fail(rid, LinkLost(reason, sent=rid <= self._transmitted))

    def _trust(self) -> None:
        """It said something."""
        self.usable = not self.closed

    # -- deadlines

    def _arm(self, at: float) -> None:
        now = self._timers.monotonic()
        self._disarm()
        delay = min(max(0.0, at - now), self._patience_s)
        self._wake_at = now + delay
        self._timer = self._timers.call_later(delay, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_at = _NEVER

    def _expire(self) -> None:
        self._timer = None
        self._wake_at = earliest = _NEVER
        now = self._timers.monotonic()
        limit = now + _SWEEP_S
        overdue = []
        for rid, (_, deadline) in self._pending.items():
            if deadline <= limit:
                overdue.append(rid)
            elif deadline < earliest:
                earliest = deadline
        for rid in overdue:
            self._fail(rid, LinkExpired(sent=rid <= self._transmitted))
        if overdue and self._out:
            self._out = [row for row in self._out if row[0] in self._pending]
        if earliest < _NEVER or not self.usable:
            self._idle(now)
        if (self._pending or not self.usable) and not self.closed:
            self._arm(earliest)

    def _idle(self, now: float) -> None:
        """Replies are owed; a subclass may look at how long the peer was silent."""
        return


def _end(waiter: Reply | Receiver, row: list[object]) -> None:
    if row[1] == OK:
        waiter.set_result(row[2:])
    else:
        waiter.set_exception(error_of(row))


def _too_many(actual: int) -> Busy:
    return Busy(
        f"{actual} requests are in flight on this connection, the limit:"
        " wait for some, or use several clients",
        details={
            "what": "requests in flight",
            "limit": IN_FLIGHT_PER_CONNECTION_MAX,
            "actual": actual,
        },
    )


# ---------------------------------------------------------------------------------------- embedded


class Submitter(Protocol):
    """What a LocalLink needs of kv.server.dispatcher.Dispatcher."""

    def submit(self, conn: LocalLink, requests: list[list[object]]) -> None: ...


class LocalLink(Link):
    """Straight into a dispatcher of the same loop: the same semantics, nothing is packed.

    Rows are shared with the server: neither side may change what is inside an argument or a result.
    """

    user = ""
    rights = None
    author = NOBODY

    def __init__(self, submitter: Submitter, timers: Timers) -> None:
        super().__init__(timers)
        self._submit = submitter.submit
        # To receivers, whose work is not the drain's.
        self._arrived: list[tuple[Receiver, list[object]]] = []

    def _transmit(self, rows: list[list[object]]) -> None:
        self._submit(self, rows)

    def stand_in(self, row: list[object]) -> None:
        raise AssertionError("a node ends whatever it wants to")

    def reply(self, row: WireRow) -> None:
        """The dispatcher's side: the row goes to its caller."""
        entry = self._pending.pop(row[0], None)
        if entry is None:  # its time was over
            return
        waiter = entry[0]
        if isinstance(waiter, Receiver):
            self._arrived.append((waiter, row))
        elif not waiter.done():
            _end(waiter, row)

    def flush(self) -> None:
        """Tell the receivers, now that the drain is over and the disk at work."""
        if not self._arrived:
            return
        arrived, self._arrived = self._arrived, []
        for waiter, row in arrived:
            if row[1] == OK:
                waiter.set_result(row[2:])
            else:
                waiter.set_exception(error_of(row))

    def ready(self, wake: Callable[[], None]) -> bool:
        """Replies are handed over, not queued."""
        return True

    def lose(self, reason: str) -> None:
        self.flush()  # they have come
        super().lose(reason)

    def close(self) -> None:
        """Let go of the node, too: it must be able to close its DBs while callers keep this."""
        super().close()
        self._submit = _nobody


def _nobody(conn: LocalLink, requests: list[list[object]]) -> None:
    raise client_closed()


def client_closed() -> Unavailable:
    """A call on a client that was closed."""
    return Unavailable("this client is closed: open another one", code=CLOSED)
