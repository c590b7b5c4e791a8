"""Keeps the safepoint and the leases on snapshots, at the node that leads the meta partition.

    role(True) ─▶ read the record ─▶ serving
    timer ──▶ silent leases end ──▶ persist
    look ───▶ the safepoint follows the retention ──▶ persist
    open / release ──▶ change in memory ──▶ persist (the meta partition's log) ──▶ answer
    role(False) ─▶ who waits for an answer is answered that this node leads no more

Everything is one record (tso/leases.py); one persist is in flight at a time, what changes meanwhile
goes with the next one. Nothing is answered before it is durable: an opened snapshot survives any
failover, and a partition never hears of a safepoint that could be forgotten. A persist that failed
is tried again while this node leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kv.base.errors import InvalidArgument, KvorumError, NotLeader, Unavailable
from kv.base.ports import Handle, Timers
from kv.base.timestamps import physical_ms
from kv.base.wire_row import WireRow
from tso.leases import Horizon, Lease, Leases, decode

log = logging.getLogger(__name__)

Done = Callable[[KvorumError | None], None]
Persist = Callable[[bytes, Done], None]

_TICK_S: Final = 1.0
_RETRY_S: Final = 0.05


class Oracle(Protocol):
    """The timestamps of this process (tso.service.TsoService)."""

    def take(self, n: int = 1) -> int:
        """Raises NotLeader while it does not serve, Unavailable."""
        ...


class SafepointService:
    """See the module. Counts `granted`, `ended` (silent for too long) and `persists`.

    `read()` gives the stored record as of everything that is committed; `persist(record, done)`
    makes one durable and calls `done(None)`, or `done(error)` if it is not known to be.
    """

    def __init__(
        self,
        key: bytes,
        oracle: Oracle,
        timers: Timers,
        *,
        read: Callable[[], bytes | None],
        persist: Persist,
        retention_ms: int,
        not_leader: Callable[[], NotLeader],
    ) -> None:
        self.granted = self.ended = self.persists = 0
        self._key = key
        self._oracle = oracle
        self._timers = timers
        self._read = read
        self._persist = persist
        self._retention_ms = retention_ms
        self._not_leader = not_leader
        self._state: Leases | None = None  # None: this node does not lead
        self._horizon = Horizon(retention_ms)
        self._reign = 0
        self._durable = 0  # the safepoint that partitions may get
        self._persisting = False
        self._done_version = 0
        self._waiting: list[tuple[int, Done]] = []  # (the version that must be durable, whom)
        self._timer: Handle | None = None

    def role(self, *, leader: bool) -> None:
        """This node leads the meta partition from now on, or does not any more."""
        if leader == (self._state is not None):
            return
        self._reign += 1
        self._persisting = False
        self._done_version = 0
        self._stop_timer()
        if not leader:
            self._state = None
            waiting, self._waiting = self._waiting, []
            for _, done in waiting:
                done(self._not_leader())
            return
        safepoint, leases = decode(self._key, self._read())
        self._state = Leases(safepoint, leases, now_s=self._timers.monotonic())
        self._durable = safepoint
        self._horizon = Horizon(self._retention_ms)
        self._timer = self._timers.call_later(_TICK_S, self._tick)

    def close(self) -> None:
        self.role(leader=False)

    # -- leases

    def open(self, at: int, owner: str, ttl_ms: int, user: str = "") -> Lease:
        """Hold the versions that a reader of `at` sees (0 = now). Nobody may be told before
        `when_durable`.

        Raises NotLeader, Unavailable, InvalidArgument (`at` lies in the future), SnapshotTooOld,
        Busy: nothing was done.
        """
        state = self._serving()
        now_ts = self._oracle.take()
        if at > now_ts:
            raise InvalidArgument(
                f"a snapshot of {at} lies in the future (now {now_ts}); leave `at` out for one of "
                "now",
                details={"at": at, "now": now_ts},
            )
        lease = Lease(now_ts, at or now_ts, owner, ttl_ms, user)
        state.grant(lease, self._timers.monotonic())
        self.granted += 1
        return lease

    def user_of(self, id: int) -> str | None:
        """Who holds it. None: nobody does, as far as is known here."""
        return None if self._state is None else self._state.user_of(id)

    def renew(self, id: int) -> Lease:
        """Its owner lives. Raises NotLeader, NotFound."""
        state = self._serving()
        self._oracle.take()  # under the lease: else another leader may have ended it
        return state.renew(id, self._timers.monotonic())

    def release(self, id: int) -> bool:
        """Hold it no more, once that is durable; whether it was held. Raises NotLeader."""
        return self._serving().release(id)

    def rows(self) -> list[WireRow]:
        """`[id, at, owner, ttl_ms, age_ms, left_ms]` of every lease, oldest first. Raises
        NotLeader, Unavailable.
        """
        state = self._serving()
        now_s, now_ts = self._timers.monotonic(), self._oracle.take()
        return [
            [
                *(lease.id, lease.at, lease.owner, lease.ttl_ms),
                physical_ms(now_ts) - physical_ms(lease.id),
                max(0, state.left_ms(lease, now_s, now_ts)),
            ]
            for lease in state.all()
        ]

    def when_durable(self, done: Done) -> None:
        """`done(None)` when everything that was done here so far is durable, `done(NotLeader)` if
        this node leads no more before: then ask the next leader.
        """
        version = self._serving().version
        if version <= self._done_version:
            done(None)
            return
        self._waiting.append((version, done))
        self._save()

    # -- the safepoint

    @property
    def safepoint(self) -> int:
        """What may be collected, as far as it is durable. Raises NotLeader."""
        self._serving()
        return self._durable

    def look(self, *, advance: bool = True) -> None:
        """End silent leases and, if somebody wants to know it, let the safepoint follow: each time
        is a log entry. Raises NotLeader, Unavailable.
        """
        state = self._serving()
        now_s, now_ts = self._timers.monotonic(), self._oracle.take()
        for lease in state.expire(now_s, now_ts):
            self.ended += 1
            log.info("the snapshot %d of %r at %d has ended", lease.id, lease.owner, lease.at)
        wanted = self._horizon.safepoint(now_s, now_ts)  # it wants to see every second
        if advance:
            state.advance(wanted)
        self._save()

    def stats(self) -> dict[str, int]:
        """For metrics."""
        state = self._state
        return {
            "safepoint": self._durable,
            "snapshots": 0 if state is None else len(state),
            "snapshots_granted": self.granted,
            "snapshots_ended": self.ended,
        }

    def _serving(self) -> Leases:
        if self._state is None:
            raise self._not_leader()
        return self._state

    def _tick(self) -> None:
        self._timer = self._timers.call_later(_TICK_S, self._tick)
        try:
            self.look(advance=False)
        except (NotLeader, Unavailable):
            return  # the lease is over, or the oracle's bound is being raised: the next tick

    # -- the record

    def _save(self) -> None:
        state = self._state
        if state is None or self._persisting or state.version == self._done_version:
            return
        self._persisting = True
        reign, version, safepoint = self._reign, state.version, state.safepoint

        def done(error: KvorumError | None) -> None:
            if reign == self._reign:
                self._saved(version, safepoint, error)

        try:
            self._persist(state.encode(self._key), done)
        except Exception:
            self._persisting = False  # or it would never be tried again
            raise

    def _saved(self, version: int, safepoint: int, error: KvorumError | None) -> None:
        self._persisting = False
        if error is not None:
            self._timers.call_later(_RETRY_S, self._save)
            return
        self.persists += 1
        self._done_version, self._durable = version, safepoint
        ready = [done for wanted, done in self._waiting if wanted <= version]
        self._waiting = [one for one in self._waiting if one[0] > version]
        self._save()
        for done in ready:
            done(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
