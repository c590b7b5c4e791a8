"""Serves the oracle while this node leads the meta partition, and keeps its bound ahead of the
clock.

    role(True) ─▶ read the durable bound ─▶ Oracle.start ─▶ raise at once ─▶ serving
    timer ──▶ bound_needed ──▶ persist (the meta partition's log) ──▶ raised
    role(False) ─▶ nothing is handed out; what is still being persisted does not count
    lease over, not told yet ─▶ nothing is handed out either

A request never waits for a persist: it is answered from memory, or refused for now (and the timer
comes early: the clock was set forward, or the process slept). One persist is in flight at a time;
one that failed is tried again soon, and as long as none succeeds the oracle runs into its bound and
stops rather than risk a repetition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import Corruption, KvorumError, NotLeader, Unavailable
from kv.base.ports import Clock, Handle, Timers
from kv.base.wire_row import WireRow
from tso.oracle import Oracle

Done = Callable[[KvorumError | None], None]
Persist = Callable[[int, Done], None]

_TICK_S: Final = 0.5
_RETRY_S: Final = 0.05
STALE_S: Final = 1.0  # a bound is raised within milliseconds, and long before it is reached
_BOUND = struct.Struct(">Q")


def bound_record(key: bytes, bound: int) -> bytes:
    """What is stored under `key`: `[bound u64 BE][crc32]`, sealed with its key."""
    return seal(key, _BOUND.pack(bound))


def bound_of(key: bytes, record: bytes | None) -> int:
    """The bound in a record, 0 for none. Raises Corruption: a guess could repeat timestamps."""
    if record is None:
        return 0
    if len(record) != _BOUND.size + CRC_BYTES or not intact(key, record):
        raise Corruption(
            "the oracle's durable bound is damaged: restore this node's data",
            details={"key": key, "family": "meta"},
        )
    bound: int = _BOUND.unpack_from(record)[0]
    return bound


class TsoService:
    """The timestamps of the cluster, at the node that leads the meta partition.

    `read_bound()` gives the durable bound (0 = never set) as of everything that is committed;
    `persist(bound, done)` makes one durable and calls `done(None)`, or `done(error)` if it is not
    known to be; it may call it before it returns. `raises` counts the persists that succeeded.
    `lease()`: whether it holds now; it is asked for every request, since a leader that slept was
    perhaps replaced without knowing (E2). `not_leader()` is the refusal, which names who leads.
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        *,
        read_bound: Callable[[], int],
        persist: Persist,
        lease: Callable[[], bool] = lambda: True,
        not_leader: Callable[[], NotLeader] | None = None,
    ) -> None:
        self.raises = 0
        self.handed_out = 0
        self.requests = 0
        self._oracle = Oracle(clock)
        self._lease = lease
        self._not_leader = _not_leader if not_leader is None else not_leader
        self._timers = timers
        self._read_bound = read_bound
        self._persist = persist
        self._reign = 0  # counts role changes: what an earlier reign began does not count
        self._leading = False
        self._persisting = False
        self._hurrying = False
        self._needed_s = 0.0  # since when a higher bound is needed, 0 = it is not
        self._timer: Handle | None = None

    @property
    def leading(self) -> bool:
        return self._leading

    @property
    def serving(self) -> bool:
        """Whether `take` is answered here now: leading, and under the lease."""
        return self._leading and self._lease()

    @property
    def last(self) -> int:
        """The highest timestamp that was handed out, or may have been."""
        return self._oracle.last

    def role(self, *, leader: bool) -> None:
        """This node leads the meta partition from now on, or does not any more."""
        if leader == self._leading:
            return
        self._leading = leader
        self._reign += 1
        self._persisting = False
        self._needed_s = 0.0
        self._stop_timer()
        if leader:
            self._oracle.start(self._read_bound())
            self._tick()

    def close(self) -> None:
        self.role(leader=False)

    def take(self, n: int = 1) -> int:
        """The first of `n` consecutive new timestamps.

        Raises NotLeader, Unavailable (TSO_BOUND; nothing was handed out), InvalidArgument.
        """
        if not self._leading or not self._lease():
            raise self._not_leader()
        try:
            first = self._oracle.take(n)
        except Unavailable:
            if not self._hurrying:
                self._hurrying = True
                self._timers.call_soon(self._hurry)
            raise
        self.requests += 1
        self.handed_out += n
        return first

    def trouble(self) -> str | None:
        """What keeps this node, which leads, from handing out timestamps, or soon will."""
        if not self._leading or not self._needed_s:
            return None
        stale_s = self._timers.monotonic() - self._needed_s
        if stale_s < STALE_S:
            return None
        return f"the oracle's durable bound could not be raised for {stale_s:.1f} s"

    def skip(self, above: int) -> None:
        """Hand out nothing at or below `above` from now on. It is durable once `take` gives a
        timestamp. Raises NotLeader.
        """
        if not self._leading or not self._lease():
            raise self._not_leader()
        self._oracle.skip(above)
        self._raise()

    def handle(self, _context: object, args: WireRow) -> list[object]:
        """The node method TSO (`Dispatcher.register`)."""
        return [self.take(args[0])]

    def stats(self) -> dict[str, int]:
        """For `Dispatcher.add_stats`."""
        return {
            "tso.requests": self.requests,
            "tso.handed_out": self.handed_out,
            "tso.raises": self.raises,
        }

    # -- the bound

    def _tick(self) -> None:
        self._timer = self._timers.call_later(_TICK_S, self._tick)
        self._raise()

    def _hurry(self) -> None:
        self._hurrying = False
        if self._leading:
            self._raise()

    def _raise(self) -> None:
        bound = self._oracle.bound_needed()
        if bound is None:
            return
        if not self._needed_s:
            self._needed_s = self._timers.monotonic()
        if self._persisting:
            return
        self._persisting = True
        reign = self._reign
        try:
            self._persist(bound, lambda error: self._raised(reign, bound, error))
        except Exception:
            self._persisting = False  # or it would never be tried again
            raise

    def _raised(self, reign: int, bound: int, error: KvorumError | None) -> None:
        if reign != self._reign:
            return
        self._persisting = False
        if error is None:
            self.raises += 1
            self._needed_s = 0.0
            self._oracle.raised(bound)
            return
        self._stop_timer()
        self._timer = self._timers.call_later(_RETRY_S, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _not_leader() -> NotLeader:
    return NotLeader("this node does not lead the meta partition: ask who does")
