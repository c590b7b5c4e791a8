"""First phase of a transaction over several partitions: intents on this partition's keys.

An intent says "a version may appear here"; it is a version at infinity that nobody returns. The
prewrite that contains the anchor key also creates the transaction's record, or takes over one that
a reader's push made before it (and keeps its bound).

Sending it again changes nothing: intents that are there stay. A prewrite that arrives after its
transaction ended may leave an intent behind when the record lies elsewhere; whoever meets it asks
the record and resolves it (`resolve` never writes a version twice). Source: Percolator 2.2; TiDB's
`min_commit_ts`.

A row lock (docs/decisions/1530) is the intent of a check that is prewritten early, without a
condition: others wait for it as for any intent, and readers pass. The prewrite that comes with the
commit (`locked`) puts its own intents in the place of these. It does not trust them: the conditions
of its ops name the versions that were answered with the locks, so a lock that was lost, or was laid
by a message that came late, costs no update. Where the lock lies they count alone, because a locked
row may be newer than the snapshot. `unlock` removes only what is no more than a lock; so that it
may come late, the checks of a commit have a bound then, which readers never ask.

A prewrite of a parallel commit (`fence`) keeps its timestamp in its intents as their bound, and is
refused where a recovery was faster (kv.mvcc.recover). That bound is final when it is written, so
the caller holds back reads above it while the intents are in flight (kv.partition.reads).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kv.base.keys import from_u64, u64
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
from kv.base.strengths import NO_KEY_UPDATE, UPDATE
from kv.base.timestamps import MAX, physical_ms
from kv.mvcc.guards import At, Guard, GuardTable
from kv.mvcc.records import GOING, Lock, Parts, TxnRecord
from kv.mvcc.refusals import (
    aborted,
    check_age,
    condition_failed,
    in_the_way,
    newest_version,
    over,
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
    locked: bool = False,
    strength: int | None = None,
    going: bool = False,
) -> Prewritten:
    """min_commit_ts: at least `fresh_ts` (above every read served so far) and every pushed bound;
    if it is exact, the highest bound of the intents as they are.

    `stage`: the keys of all parts, for the record of a parallel commit. Keys of `ops` are distinct;
    lists of an Op's fields, as they came, will do. `strength`: row locks, so strong
    (kv.base.strengths); `going`: of what is about to go (kv.mvcc.validate). Raises KeyLocked,
    WriteConflict, ConditionFailed, TxnAborted, Corruption.
    """
    user = m.user
    known = view.txn(anchor, start_ts) if view.holds(anchor) else None
    if known is not None and (known.status == ABORTED or known.user != user):
        raise over(known, start_ts, user)
    if known is not None and known.status == COMMITTED:
        return Prewritten(known.commit_ts)
    check_age(start_ts, view.safepoint, now_ms)
    lock_ttl_ms = ttl_ms + lived_ms(start_ts, now_ms)
    newest_allowed = u64(MAX if flags & BLIND else start_ts)  # as versions begin: compared as bytes
    bound, exact, repeated = 0, fence, False
    guards, mine = view.guards, fresh_ts if fence else 0
    anchored = False
    for i, (kind, key, value, cond, value_ttl_ms) in enumerate(ops):
        anchored = anchored or key == anchor
        lock = view.lock(key)
        if lock is not None and not (locked and is_row_lock(lock, start_ts, user)):
            if lock.start_ts != start_ts or lock.user != user:
                raise in_the_way(key, lock, start_ts, now_ms)
            bound = max(bound, lock.min_commit_ts)
            exact = exact and lock.min_commit_ts > 0
            repeated = repeated or key == anchor
            if strength is None or not _is_weaker(lock, strength, going):
                continue
        _refuse_guarded(guards, kind, key, start_ts, now_ms, user, strength)
        old = view.cur(key)
        counts = cond is None or (kind != OP_CHECK and lock is None)
        if old is not None and old[:8] > newest_allowed and counts:
            raise write_conflict(key, from_u64(old), start_ts)
        if cond is not None:
            _check(old, key, cond, i, start_ts, now_ms)
        if fence:
            check_fence(view, key, start_ts)
            m.bound_ts = bound = fresh_ts
        payload = value if kind == OP_PUT else GOING if going else None
        least = start_ts if locked and kind == OP_CHECK and not mine else mine
        m.set_lock(
            key,
            Lock(
                start_ts,
                kind,
                lock_ttl_ms,
                anchor,
                strength or value_ttl_ms,
                payload,
                (),
                least,
                user,
            ),
        )
        view.keep(key, old)
    if anchored:
        parts = stage if exact and not repeated else ()
        record = _record(known, parts, bound, ttl_ms=ttl_ms, now_ms=now_ms, owner=owner, user=user)
        if record is not known:
            m.set_txn(anchor, start_ts, record, new=known is None)
        exact = exact and record.status == STAGING
        fresh_ts = max(fresh_ts, record.min_commit_ts)
    return Prewritten(bound, exact=True) if exact else Prewritten(max(bound, fresh_ts))


def unlock(view: View, ops: Sequence[Op], *, start_ts: int, m: Mutations) -> None:
    """Remove the transaction's row locks on these keys; what else lies there stays."""
    held: Mapping[At, Guard] = {} if view.guards is None else view.guards.by_at
    for _, key, *_ in ops:
        lock = view.lock(key)
        if lock is not None and is_row_lock(lock, start_ts, m.user):
            m.drop_lock(key)
        guard = held.get((key, start_ts))
        if guard is not None and guard.shared and guard.user == m.user and not guard.min_commit_ts:
            m.drop_guard(key, start_ts)


def is_row_lock(lock: Lock, start_ts: int, user: str) -> bool:
    """Whether an intent is no more than a row lock of this transaction."""
    mine = lock.start_ts == start_ts and lock.user == user
    return mine and lock.kind == OP_CHECK and not lock.min_commit_ts


def _refuse_guarded(
    guards: GuardTable | None,
    kind: int,
    key: bytes,
    start_ts: int,
    now_ms: int,
    user: str,
    strength: int | None,
) -> None:
    """Raises KeyLocked if a guard stops this op. A check of a commit changes nothing."""
    if guards is None:
        return
    if strength is not None:
        refuse_guarded(guards, key, start_ts, now_ms, user, wanted=strength, lock=True)
    elif kind != OP_CHECK:
        wanted = NO_KEY_UPDATE if kind == OP_PUT else UPDATE
        refuse_guarded(guards, key, start_ts, now_ms, user, wanted=wanted)


def _is_weaker(lock: Lock, strength: int, going: bool) -> bool:
    """Whether an intent of the transaction is a row lock, and not as strong."""
    if lock.kind != OP_CHECK or lock.min_commit_ts:
        return False
    return lock.value_ttl_ms > strength or (going and lock.payload is None)


def _record(
    known: TxnRecord | None,
    parts: Parts,
    bound: int,
    *,
    ttl_ms: int,
    now_ms: int,
    owner: str,
    user: str,
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
        user=user,
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


def _check(
    old: bytes | None, key: bytes, cond: int, index: int, start_ts: int, now_ms: int
) -> None:
    """The condition of one op against the newest committed version."""
    version = newest_version(old, max(now_ms, physical_ms(start_ts)))
    if version != cond:
        raise condition_failed(key, cond, version, index)
