"""First phase of a transaction over several partitions: intents on this partition's keys.

An intent says "a version may appear here"; it is a version at infinity that nobody returns. The
prewrite that contains the anchor key also creates the transaction's record, or takes over one that
a reader's push made before it (and keeps its bound).

Sending it again changes nothing: intents that are there stay. A prewrite that arrives after its
transaction ended may leave an intent behind when the record lies elsewhere; whoever meets it asks
the record and resolves it (`resolve` never writes a version twice). Source: Percolator 2.2; TiDB's
`min_commit_ts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.keys import from_u64
from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.methods import ABORTED, BLIND, COMMITTED, OP_CHECK, OP_PUT, PENDING
from kv.base.ops import Op
from kv.base.timestamps import physical_ms
from kv.mvcc.records import Lock, TxnRecord
from kv.mvcc.refusals import (
    aborted,
    check_age,
    condition_failed,
    key_locked,
    newest_version,
    write_conflict,
)
from kv.mvcc.view import Mutations, View


def prewrite(
    view: View,
    ops: Sequence[Op],
    *,
    start_ts: int,
    anchor: bytes,
    ttl_ms: int,
    flags: int,
    fresh_ts: int,
    now_ms: int,
    m: Mutations,
) -> int:
    """min_commit_ts: at least `fresh_ts` (above every read served so far) and every pushed bound.

    Keys of `ops` are distinct. Raises KeyLocked, WriteConflict, ConditionFailed, TxnAborted,
    Corruption.
    """
    known = view.txn(anchor, start_ts) if view.holds(anchor) else None
    if known is not None and known.status == COMMITTED:
        return known.commit_ts
    if known is not None and known.status == ABORTED:
        raise aborted(start_ts, "its record says so (it expired, or somebody aborted it)")
    check_age(start_ts, view.safepoint, now_ms)
    lock_ttl_ms = ttl_ms + lived_ms(start_ts, now_ms)
    for i, op in enumerate(ops):
        lock = view.lock(op.key)
        if lock is not None:
            if lock.start_ts != start_ts:
                raise key_locked(op.key, lock, now_ms)
            continue
        _check(view, op, i, start_ts, flags, now_ms)
        m.set_lock(
            op.key,
            Lock(
                start_ts,
                op.kind,
                lock_ttl_ms,
                anchor,
                op.ttl_ms,
                op.value if op.kind == OP_PUT else None,
            ),
        )
    min_commit_ts = fresh_ts
    if any(op.key == anchor for op in ops):
        if known is not None:
            min_commit_ts = max(min_commit_ts, known.min_commit_ts)
        record = TxnRecord(
            status=PENDING,
            min_commit_ts=known.min_commit_ts if known is not None else 0,
            heartbeat_ms=now_ms,
            ttl_ms=ttl_ms,
        )
        m.set_txn(anchor, start_ts, record, new=known is None)
    return min_commit_ts


def lived_ms(start_ts: int, now_ms: int) -> int:
    """What the ttl of a new intent gets on top, since it counts from the start: a reader who meets
    the intent of a long-lived transaction must not take it for dead.
    """
    return min(max(0, now_ms - physical_ms(start_ts)), TXN_LIFETIME_MS_MAX)


def _check(view: View, op: Op, index: int, start_ts: int, flags: int, now_ms: int) -> None:
    """Conflict and condition of one op against the newest committed version."""
    old = view.cur(op.key)
    if old is not None and not flags & BLIND and op.kind != OP_CHECK and from_u64(old) > start_ts:
        raise write_conflict(op.key, from_u64(old), start_ts)
    if op.cond is not None:
        version = newest_version(old, max(now_ms, physical_ms(start_ts)))
        if version != op.cond:
            raise condition_failed(op.key, op.cond, version, index)
