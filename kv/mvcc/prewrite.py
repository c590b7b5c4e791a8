"""First phase of a transaction over several partitions: intents on this partition's keys.

An intent says "a version may appear here"; it is a version at infinity that nobody returns. The
prewrite that contains the anchor key also creates the transaction's record, or takes over one that
a reader's push made before it (and keeps its bound).

Sending it again changes nothing: intents that are there stay. A prewrite that arrives after its
transaction ended may leave an intent behind when the record lies elsewhere; whoever meets it asks
the record and resolves it (`resolve` never writes a version twice). Source: Percolator 2.2; TiDB's
`min_commit_ts`.

A prewrite of a parallel commit (`fence`) keeps its timestamp in its intents as their bound, and is
refused where a recovery was faster (kv.mvcc.recover). That bound is final when it is written, so
the caller holds back reads above it while the intents are in flight (kv.partition.reads).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kv.base.keys import from_u64
from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.methods import (
    ABORTED,
    BLIND,
    COMMITTED,
    FENCED,
    OP_CHECK,
    OP_PUT,
    PENDING,
    STAGING,
)
from kv.base.ops import Op
from kv.base.timestamps import physical_ms
from kv.mvcc.records import Lock, Parts, TxnRecord
from kv.mvcc.refusals import (
    aborted,
    check_age,
    condition_failed,
    key_locked,
    newest_version,
    refuse_guarded,
    write_conflict,
)
from kv.mvcc.view import Mutations, View


class Prewritten(NamedTuple):
    """`exact`: min_commit_ts is the highest bound of these intents, and the record, if it is here,
    is STAGING.
    """

    min_commit_ts: int
    exact: bool = False


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
    owner: str = "",
    fence: bool = False,
    stage: Parts = (),
) -> Prewritten:
    """min_commit_ts: at least `fresh_ts` (above every read served so far) and every pushed bound;
    if it is exact, the highest bound of the intents as they are.

    `stage`: the keys of all parts, for the record of a parallel commit. Keys of `ops` are distinct.
    Raises KeyLocked, WriteConflict, ConditionFailed, TxnAborted, Corruption.
    """
    known = view.txn(anchor, start_ts) if view.holds(anchor) else None
    if known is not None and known.status == COMMITTED:
        return Prewritten(known.commit_ts)
    if known is not None and known.status == ABORTED:
        raise aborted(start_ts, "its record says so (it expired, or somebody aborted it)")
    check_age(start_ts, view.safepoint, now_ms)
    lock_ttl_ms = ttl_ms + lived_ms(start_ts, now_ms)
    bound, exact, repeated = 0, fence, False
    for i, op in enumerate(ops):
        lock = view.lock(op.key)
        if lock is not None:
            if lock.start_ts != start_ts:
                raise key_locked(op.key, lock, now_ms)
            bound = max(bound, lock.min_commit_ts)
            exact = exact and lock.min_commit_ts > 0
            repeated = repeated or op.key == anchor
            continue
        if view.guards is not None and op.kind != OP_CHECK:
            refuse_guarded(view.guards, op.key, start_ts, now_ms)
        _check(view, op, i, start_ts, flags, now_ms)
        if fence:
            check_fence(view, op.key, start_ts)
            bound = fresh_ts
        value = op.value if op.kind == OP_PUT else None
        lock = Lock(
            start_ts, op.kind, lock_ttl_ms, anchor, op.ttl_ms, value,
            min_commit_ts=fresh_ts if fence else 0,
        )  # fmt: skip
        m.set_lock(op.key, lock)
    if fence and m.locks:
        m.bound_ts = fresh_ts
    if any(op.key == anchor for op in ops):
        parts = stage if exact and not repeated else ()
        record = _record(known, parts, bound, ttl_ms=ttl_ms, now_ms=now_ms, owner=owner)
        if record is not known:
            m.set_txn(anchor, start_ts, record, new=known is None)
        exact = exact and record.status == STAGING
        fresh_ts = max(fresh_ts, record.min_commit_ts)
    return Prewritten(bound, exact=True) if exact else Prewritten(max(bound, fresh_ts))


def _record(
    known: TxnRecord | None, parts: Parts, bound: int, *, ttl_ms: int, now_ms: int, owner: str
) -> TxnRecord:
    """The record of a transaction whose anchor is being prewritten.

    STAGING is entered once, together with the anchor's intent: what was taken back to PENDING, or
    pushed above the bound before, is flipped.
    """
    if known is not None and known.status == STAGING:
        return known
    pushed = 0 if known is None else known.min_commit_ts
    staged = bool(parts) and pushed <= bound
    return TxnRecord(
        status=STAGING if staged else PENDING,
        min_commit_ts=pushed,
        heartbeat_ms=now_ms,
        ttl_ms=ttl_ms,
        owner=owner,
        parts=parts if staged else (),
    )


def check_fence(view: View, key: bytes, start_ts: int) -> None:
    """Raises TxnAborted if a recovery has closed the key to this transaction."""
    record = view.txn(key, start_ts)
    if record is not None and record.status == FENCED:
        raise aborted(start_ts, "its coordinator was so slow that it was taken for dead")


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
