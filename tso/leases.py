"""What may be collected: the cluster's safepoint, and the leases on snapshots that hold it back.
Pure.

    safepoint ≤ at of every living lease            versions that a reader of `at` sees stay
    a lease is granted only at or above the safepoint, also one that is still on its way to the disk

Both are one record and change in one place, so a lease at a moment that the safepoint is just
passing is either refused or holds it: whoever comes second sees the first. Partitions are told of a
safepoint only when its record is durable; so what they collected lies below what any later leader
of the meta partition finds.

A lease ends by release, when its owner is silent for its ttl, or LEASE_LIFETIME_MS_MAX after it was
granted. Silence is counted by the monotonic clock of the leader and is not stored: who takes over,
after a failover or a restart, begins every lease's silence anew. So a lease may live longer than
its ttl, never shorter, heartbeats cost no log entry, and a clock that is set ends none.

Left out: transactions. An open one holds nothing back; its reads are bounded by the retention.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import Busy, Corruption, NotFound, SnapshotTooOld
from kv.base.limits import LEASE_LIFETIME_MS_MAX, LEASES_MAX
from kv.base.timestamps import compose, physical_ms

_RETRY_AFTER_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Lease:
    """Somebody reads at `at`. `id` is a timestamp of the oracle from when it was granted."""

    id: int
    at: int
    owner: str  # for people
    ttl_ms: int
    user: str = ""  # who holds it; empty: a node, or it is not known


class Leases:
    """See the module. `version` counts changes that must become durable."""

    def __init__(self, safepoint: int = 0, leases: Iterable[Lease] = (), *, now_s: float) -> None:
        """As a record has them (`decode`), at the monotonic time `now_s`."""
        self.version = 0
        self.safepoint = safepoint
        self._leases = {lease.id: lease for lease in leases}
        self._heard_s = dict.fromkeys(self._leases, now_s)

    def __len__(self) -> int:
        return len(self._leases)

    def all(self) -> list[Lease]:
        """Oldest first."""
        return sorted(self._leases.values(), key=lambda lease: lease.id)

    def user_of(self, id: int) -> str | None:
        """Who holds it. None: nobody does."""
        lease = self._leases.get(id)
        return None if lease is None else lease.user

    def oldest_at(self) -> int | None:
        """What the safepoint must not pass."""
        return min((lease.at for lease in self._leases.values()), default=None)

    def left_ms(self, lease: Lease, now_s: float, now_ts: int) -> int:
        """How long it lives if its owner stays silent."""
        silent_ms = round((now_s - self._heard_s[lease.id]) * 1000)
        age_ms = physical_ms(now_ts) - physical_ms(lease.id)
        return min(lease.ttl_ms - silent_ms, LEASE_LIFETIME_MS_MAX - age_ms)

    def check(self, at: int) -> None:
        """Raises what `grant` would raise now."""
        if at < self.safepoint:
            raise SnapshotTooOld(
                f"there is no snapshot of {at} any more: versions below the safepoint "
                f"{self.safepoint} are being collected. Take one of a newer timestamp, or raise "
                "gc_retention_ms",
                details={"at": at, "safepoint": self.safepoint},
            )
        if len(self._leases) >= LEASES_MAX:
            raise Busy(
                f"{len(self._leases)} snapshots are held, at most {LEASES_MAX}; release some "
                "(`kvorum snapshot list` shows their owners)",
                details={
                    "what": "snapshots",
                    "limit": LEASES_MAX,
                    "actual": len(self._leases),
                    "retry_after_ms": _RETRY_AFTER_MS,
                },
            )

    def grant(self, lease: Lease, now_s: float) -> None:
        """Hold `lease.at`. Raises SnapshotTooOld, Busy: nothing was done."""
        self.check(lease.at)
        self._leases[lease.id] = lease
        self._heard_s[lease.id] = now_s
        self.version += 1

    def renew(self, id: int, now_s: float) -> Lease:
        """Its owner lives. Raises NotFound (SNAPSHOT_NOT_FOUND)."""
        lease = self._leases.get(id)
        if lease is None:
            raise NotFound(
                f"there is no snapshot {id}: it was released, or its owner was silent for its ttl; "
                "take a new one",
                code="SNAPSHOT_NOT_FOUND",
                details={"snapshot": str(id)},
            )
        self._heard_s[id] = now_s
        return lease

    def release(self, id: int) -> bool:
        """Hold it no more; whether it was held."""
        if self._leases.pop(id, None) is None:
            return False
        del self._heard_s[id]
        self.version += 1
        return True

    def expire(self, now_s: float, now_ts: int) -> list[Lease]:
        """End those whose time is over."""
        over = [lease for lease in self.all() if self.left_ms(lease, now_s, now_ts) <= 0]
        for lease in over:
            self.release(lease.id)
        return over

    def advance(self, wanted: int) -> bool:
        """Raise the safepoint as far as the leases permit; whether it rose."""
        oldest = self.oldest_at()
        reached = wanted if oldest is None else min(wanted, oldest)
        if reached <= self.safepoint:
            return False
        self.safepoint = reached
        self.version += 1
        return True

    def encode(self, key: bytes) -> bytes:
        """`[msgpack [safepoint, [[id, at, owner, ttl_ms, user?], …]]][crc32]`, sealed by its
        key.
        """
        rows: list[list[int | str]] = [
            [lease.id, lease.at, lease.owner, lease.ttl_ms, *([lease.user] if lease.user else [])]
            for lease in self.all()
        ]
        return seal(key, msgpack.packb([self.safepoint, rows]))


def decode(key: bytes, record: bytes | None) -> tuple[int, list[Lease]]:
    """(safepoint, leases) of a record; None: there never was one. Raises Corruption: a guess could
    collect what somebody reads.
    """
    if record is None:
        return 0, []
    if not intact(key, record):
        raise Corruption(
            "the record of the safepoint and the snapshots is damaged: restore this node's data",
            details={"key": key, "family": "meta"},
        )
    row: Any = msgpack.unpackb(memoryview(record)[:-CRC_BYTES])
    return row[0], [Lease(*lease) for lease in row[1]]


@dataclass(slots=True)
class Horizon:
    """How far back versions are kept: what the oracle said `retention_ms` ago.

    The oracle follows the wall clock of its node, which may leap. What was handed out just before a
    leap is as young as it ever was, so a leap of the last `retention_ms`, by the monotonic clock,
    does not count. A leap between two leaders, or two runs, is not seen.
    """

    retention_ms: int
    _last: tuple[float, int] | None = None  # the last look: seconds, ms of the oracle
    _leaps: tuple[tuple[float, int], ...] = ()  # when, and by how many ms

    def safepoint(self, now_s: float, now_ts: int) -> int:
        """The highest safepoint that the retention permits. Ask every second or so."""
        now_ms = physical_ms(now_ts)
        if self._last is not None:
            then_s, then_ms = self._last
            leapt = (now_ms - then_ms) - round((now_s - then_s) * 1000)
            if leapt > LEAP_MS:
                self._leaps = (*self._leaps, (now_s, leapt))
        self._last = (now_s, now_ms)
        kept_s = self.retention_ms / 1000
        self._leaps = tuple(leap for leap in self._leaps if now_s - leap[0] <= kept_s)
        leapt = sum(size for _, size in self._leaps)
        return compose(max(0, now_ms - self.retention_ms - leapt))


LEAP_MS: Final = 300
"""In a second. Less is the clock being slewed, or a look that came late; a node's own clock follows
a leap at twice the pace (kv.base.steady_clock).
"""
