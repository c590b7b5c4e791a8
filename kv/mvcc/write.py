"""A whole transaction in one step (1PC): conditions, conflicts and new versions, all or nothing.

The commit timestamp is taken when the leader evaluates, after every read served so far, so nobody
has read what this replaces. `start_ts` > 0 gives the batch an identity: its outcome is recorded
under its first key, and sending it again finds the outcome. A transaction that read something must
find no version newer than its snapshot (`BLIND` says that it read nothing): this rule makes lost
updates impossible.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.errors import TooLarge
from kv.base.keys import from_u64
from kv.base.limits import SUPERSEDED_BYTES_MAX
from kv.base.methods import ABORTED, BLIND, COMMITTED, OP_CHECK, OP_PUT, OP_TOMBSTONE
from kv.base.ops import Op
from kv.base.strengths import NO_KEY_UPDATE, UPDATE
from kv.base.timestamps import physical_ms
from kv.mvcc.records import PutRow, TxnRecord, put_row
from kv.mvcc.refusals import (
    aborted,
    check_age,
    condition_failed,
    key_locked,
    newest_version,
    refuse_guarded,
    taken,
    write_conflict,
)
from kv.mvcc.versions import add_version
from kv.mvcc.view import Mutations, View


def put_plain(
    view: View, key: bytes, value: bytes, cond: int | None, commit_ts: int, now_ms: int
) -> PutRow | None:
    """The row of a single put without a time to live, or None if the old record needs `write` (it
    has flags).

    The hot path, equal to `write` with one op. Raises KeyLocked, ConditionFailed, Corruption.
    """
    lock = view.lock(key)
    if lock is not None:
        raise key_locked(key, lock, now_ms)
    if view.guards is not None:
        refuse_guarded(view.guards, key, 0, now_ms, wanted=NO_KEY_UPDATE)
    old = view.cur(key)
    if old is not None and old[8]:
        return None
    if cond is not None:
        version = 0 if old is None else from_u64(old)
        if version != cond:
            raise condition_failed(key, cond, version, None)
    return put_row(key, value, commit_ts, old)


def write(
    view: View,
    ops: Sequence[Op],
    *,
    start_ts: int,
    flags: int,
    commit_ts: int,
    now_ms: int,
    m: Mutations,
    owner: str = "",
) -> int:
    """The version of the batch: commit_ts, or the recorded one if it was committed before.

    `ops` have distinct keys; lists of an Op's fields, as they came, will do. `owner`: for the
    record. Raises KeyLocked, WriteConflict, ConditionFailed, TxnAborted, TooLarge, Corruption.
    """
    known: TxnRecord | None = None
    if start_ts:
        known = known_record(view, ops[0][1], start_ts, m.user, now_ms)
        if known is not None and known.status == COMMITTED:
            return known.commit_ts
    newest_allowed = start_ts if start_ts and not flags & BLIND else 0
    at_ms = physical_ms(commit_ts)
    superseded, guards = 0, view.guards
    view_cur, view_lock = view.cur, view.lock
    for i, (kind, key, value, cond, ttl_ms) in enumerate(ops):
        lock = view_lock(key)
        if lock is not None:
            raise key_locked(key, lock, now_ms)
        if guards is not None and kind != OP_CHECK:
            wanted = NO_KEY_UPDATE if kind == OP_PUT else UPDATE
            refuse_guarded(guards, key, start_ts, now_ms, m.user, wanted=wanted)
        old = view_cur(key)
        if old is not None:
            if newest_allowed and kind != OP_CHECK and from_u64(old) > newest_allowed:
                raise write_conflict(key, from_u64(old), start_ts)
            superseded += len(old)
        if cond is not None and newest_version(old, at_ms) != cond:
            place = i if len(ops) > 1 else None
            raise condition_failed(key, cond, newest_version(old, at_ms), place)
        if kind != OP_CHECK:
            add_version(
                m,
                key,
                value if kind == OP_PUT else None,
                expire_ms=at_ms + ttl_ms if ttl_ms else 0,
                commit_ts=commit_ts,
                old=old,
                tombstone=kind == OP_TOMBSTONE,
            )
    if superseded > SUPERSEDED_BYTES_MAX:
        raise too_much(superseded)
    if start_ts:
        record = TxnRecord(COMMITTED, commit_ts, 0, 0, 0, owner, (), m.user)
        m.set_txn(ops[0][1], start_ts, record, new=known is None)
    return commit_ts


def known_record(
    view: View, anchor: bytes, start_ts: int, user: str, now_ms: int
) -> TxnRecord | None:
    """The record of a transaction that may still write, or that is committed. Raises TxnAborted."""
    known = view.txn(anchor, start_ts)
    if known is not None and known.user != user:
        raise taken(start_ts)
    if known is not None and known.status == COMMITTED:
        return known
    if known is not None and known.status == ABORTED:
        raise aborted(start_ts, "somebody rolled it back while it was being committed")
    check_age(start_ts, view.safepoint, now_ms)
    return known


def too_much(superseded: int) -> TooLarge:
    return TooLarge(
        f"the batch replaces {superseded} bytes of old versions, at most {SUPERSEDED_BYTES_MAX} at "
        "once; nothing was written. Split it",
        details={"what": "superseded bytes", "limit": SUPERSEDED_BYTES_MAX, "actual": superseded},
    )
