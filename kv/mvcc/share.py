"""Shared row locks (docs/decisions/1560): guards that are laid before the commit.

A guard (kv.mvcc.guards) with a strength keeps away those whom PostgreSQL's table says
(kv.base.strengths), and lets other sharers in. It lies as long as its transaction's record says
that it lives, so at the commit it needs no look at what it holds (`validate.look`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kv.base.errors import KeyLocked, TxnAborted
from kv.base.keys import from_u64
from kv.base.methods import ABORTED, BLIND, COMMITTED, OP_CHECK, OP_PUT
from kv.base.strengths import EXCLUDED, NO_KEY_UPDATE, UPDATE
from kv.mvcc.guards import At, Guard
from kv.mvcc.prewrite import lived_ms
from kv.mvcc.records import Lock
from kv.mvcc.refusals import check_age, in_the_way, over, taken, write_conflict
from kv.mvcc.validate import check_room
from kv.mvcc.view import Mutations, View


def share(
    view: View,
    keys: Sequence[bytes],
    *,
    strength: int,
    start_ts: int,
    anchor: bytes,
    ttl_ms: int,
    flags: int,
    now_ms: int,
    m: Mutations,
) -> None:
    """Guard the keys; those that the transaction guards as strongly stay. Raises KeyLocked,
    WriteConflict, TxnAborted, Busy.
    """
    known = view.txn(anchor, start_ts) if view.holds(anchor) else None
    if known is not None and (known.status == ABORTED or known.user != m.user):
        raise over(known, start_ts, m.user)
    if known is not None and known.status == COMMITTED:
        return
    check_age(start_ts, view.safepoint, now_ms)
    held: Mapping[At, Guard] = {} if view.guards is None else view.guards.by_at
    ttl_ms += lived_ms(start_ts, now_ms)
    for key in keys:
        lock = view.lock(key)
        if lock is not None and (refused := _refusal(key, lock, strength, start_ts, now_ms, m)):
            raise refused
        old = held.get((key, start_ts))
        if old is not None and old.user != m.user:
            raise taken(start_ts)
        if old is not None and not 0 < strength < old.shared:
            continue
        newest = view.cur(key)
        if newest is not None and not flags & BLIND and from_u64(newest) > start_ts:
            raise write_conflict(key, from_u64(newest), start_ts)
        m.set_guard(Guard(key, None, start_ts, anchor, ttl_ms, 0, 0, m.user, strength))
    check_room(len(held) + len(m.guards))


def _refusal(
    key: bytes, lock: Lock, strength: int, start_ts: int, now_ms: int, m: Mutations
) -> KeyLocked | TxnAborted | None:
    """Of an intent of another transaction that excludes a lock of this strength."""
    if lock.start_ts == start_ts and lock.user == m.user:
        return None
    if strength not in EXCLUDED[strength_of(lock)]:
        return None
    return in_the_way(key, lock, start_ts, now_ms)


def strength_of(lock: Lock) -> int:
    """What an intent is worth as a lock; a chunk may delete rows."""
    if lock.kind == OP_CHECK:
        return lock.value_ttl_ms
    return NO_KEY_UPDATE if lock.kind == OP_PUT and not lock.chunk else UPDATE
