"""CHECK_REPLICA: what one replica has, of a part of a partition, as of one timestamp.

    CHECK_REPLICA(partition, start, end, at, rows)
        → [digest, rows, resume | nil, orphans, intents, applied]

The digest is the sum (modulo 2^128) of BLAKE2b over key, version, expiry and value of each row that
a reader at `at` sees, so it does not depend on where pages are cut: replicas may differ in deleted
rows that are collected. Intents are left aside: the caller has read the range at `at` before, so
none of them becomes a version at or below it any more. With the snapshot of `at` held, the digest
is the same for every replica that has applied what the leader had then: `applied` is how far its
log is applied, the leader's says what the others need.

`orphans`: keys with a version above the safepoint and no newest record, which no reader finds.
`intents`: keys with an intent that is older than any transaction may live: nobody ends it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol

from kv.base.errors import Busy, Corruption, NotFound
from kv.base.keys import from_u64, u64, unescape
from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.timestamps import physical_ms
from kv.base.wire_row import WireRow
from kv.mvcc.records import Lock, hist_range
from kv.mvcc.scan import scan
from kv.mvcc.view import ReadView
from kv.replica.replica import Replica

_RETRY_MS: Final = 100
_REPORTED_MAX: Final = 10
_SEEKS_MAX: Final = 20  # pages of old versions that one call looks at


class Replicas(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...


class _Settled:
    """A ReadView without intents: whoever asks has seen to them."""

    def __init__(self, state: ReadView) -> None:
        self._state = state
        self.safepoint = state.safepoint
        self.retention_ms = state.retention_ms
        self.cur, self.multi_cur, self.scan = state.cur, state.multi_cur, state.scan

    def lock(self, key: bytes) -> Lock | None:
        return None

    def locked_keys(self, start: bytes, end: bytes) -> Iterable[bytes]:
        return ()


class CheckReplica:
    """The handler of one node."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, _context: object, args: WireRow) -> list[object]:
        """Raises NotFound, Busy (it is being rebuilt), SnapshotTooOld, Corruption: then the replica
        is rebuilt from a healthy one.
        """
        replica = self._replicas.replica(args[0])
        try:
            return self._look(replica, args)
        except Corruption as error:
            if replica is not None:
                replica.damaged(error)
            raise

    @staticmethod
    def _look(replica: Replica | None, args: WireRow) -> list[object]:
        partition, start, end, at, rows = args
        if replica is None:
            raise NotFound(f"partition {partition} has no replica here", code="NO_REPLICA")
        state = replica.state
        if replica.installing:
            raise Busy(
                f"partition {partition} is being rebuilt here",
                details={"what": "snapshot", "retry_after_ms": _RETRY_MS},
            )
        expiries: dict[int, int] = {}
        page = scan(
            _Settled(state),
            start,
            end,
            read_ts=at,
            limit=rows,
            now_ms=0,
            rows_max=rows,
            expiries=expiries,
        )
        total = 0
        for place, (key, value, version) in enumerate(page.items):
            expire = expiries.get(place, 0)
            digest = hashlib.blake2b(u64(len(key)) + u64(version) + u64(expire), digest_size=16)
            digest.update(key)
            digest.update(value)
            total = added(total, digest.digest())
        high = end if page.resume is None else page.resume
        return [
            *(total.to_bytes(16, "big"), len(page.items), page.resume),
            *(orphans(state, start, high, rows), stale(state.locks.items(), start, high, at)),
            state.index,
        ]


def added(total: int, digest: bytes) -> int:
    return (total + int.from_bytes(digest, "big")) % (1 << 128)


def orphans(state: ReadView, start: bytes, end: bytes, rows: int) -> list[bytes]:
    """Keys of `[start, end)` with a version that a reader at or above the safepoint would see, and
    no newest record that leads to it.
    """
    low, high = hist_range(start, end)
    found: list[bytes] = []
    last = b""
    for _ in range(_SEEKS_MAX):
        page = state.scan("hist", low, high, limit=rows)
        for old_key, record in page:
            key, _ = unescape(old_key)
            if key != last and from_u64(record) > state.safepoint and state.cur(key) is None:
                found.append(key)
            last = key
        if len(page) < rows or len(found) >= _REPORTED_MAX:
            break
        low, _ = hist_range(last + b"\x00", end)  # after all versions of the last key
    return found[:_REPORTED_MAX]


def stale(locks: Iterable[tuple[bytes, Lock]], start: bytes, end: bytes, at: int) -> list[bytes]:
    """Keys of `[start, end)` with an intent of a transaction that must have ended long ago."""
    before_ms = physical_ms(at) - 2 * TXN_LIFETIME_MS_MAX
    old = [
        key
        for key, lock in locks
        if start <= key and (not end or key < end) and physical_ms(lock.start_ts) < before_ms
    ]
    return sorted(old)[:_REPORTED_MAX]
