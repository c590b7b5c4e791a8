"""Intents on many rows at once: one *chunk intent*, one record, whatever the number of rows.

For transactions too large for an intent per key (the Spark sink's batches): the rows are not parsed
one by one and take one place in the lock table. To everybody else it is an intent on each of its
keys; whoever resolves one of them resolves the chunk (`resolve`). Writes are blind unless it is
asked for, and the anchor was prewritten before by `prewrite`.

Sending it again changes nothing: keys that the transaction has intents on are left out, so of
two rows with one key the first to come stays: who wants rows to be new (`absent`) looks for twins
among them first. A row lock of the transaction (kv.mvcc.prewrite) is no such intent: its row gets
one of its own in its place. Deliberately missing: other conditions, times to live.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.keys import from_u64, u64
from kv.base.methods import ABORTED, COMMITTED, OP_DELETE, OP_PUT
from kv.base.timestamps import physical_ms
from kv.mvcc.packed_rows import PackedKeys, unpack_values
from kv.mvcc.prewrite import is_row_lock, lived_ms
from kv.mvcc.records import Lock
from kv.mvcc.refusals import (
    check_age,
    condition_failed,
    in_the_way,
    key_guarded,
    newest_version,
    over,
    write_conflict,
)
from kv.mvcc.view import Mutations, View


def prewrite_rows(
    view: View,
    keys: Sequence[bytes],
    values: Sequence[bytes | None] | bytes,
    *,
    start_ts: int,
    anchor: bytes,
    ttl_ms: int,
    fresh_ts: int,
    now_ms: int,
    m: Mutations,
    checked: bool = False,
    absent: bool = False,
) -> int:
    """min_commit_ts, as `prewrite`. `keys` rise; a value None deletes; PackedKeys and bytes: packed
    rows, which are kept as they are. `checked`: the transaction has read, so none of them may have
    a version above its start. `absent`: none may be there.

    Raises KeyLocked, TxnAborted, WriteConflict, ConditionFailed, Corruption.
    """
    known = view.txn(anchor, start_ts) if view.holds(anchor) else None
    if known is not None and (known.status == ABORTED or known.user != m.user):
        raise over(known, start_ts, m.user)
    if known is not None and known.status == COMMITTED:
        return known.commit_ts
    check_age(start_ts, view.safepoint, now_ms)
    mine = view.locked(keys)
    single: set[bytes] = set()
    if mine:
        single = _row_locks(view, mine, start_ts, m.user, now_ms)
        if len(single) < len(mine):
            keys, values = _without(keys, values, set(mine) - single)
    guards = view.guards
    if guards is not None and (met := guards.meets_any(keys, start_ts, m.user)) is not None:
        raise key_guarded(*met, now_ms)
    if checked or absent:
        _look(view, keys, start_ts, now_ms, checked=checked, absent=absent)
    lived = ttl_ms + lived_ms(start_ts, now_ms)
    lock = Lock(start_ts, OP_PUT, lived, anchor, 0, None, user=m.user)
    if single:
        for key, value in _with(keys, values, single):
            kind = OP_DELETE if value is None else OP_PUT
            m.set_lock(key, lock._replace(kind=kind, payload=value))
        keys, values = _without(keys, values, single)
    if keys:
        if isinstance(values, bytes):
            assert isinstance(keys, PackedKeys)
            m.set_packed(lock._replace(chunk=keys), keys, values)
        else:
            m.set_chunk(lock._replace(chunk=tuple(keys)), values)
    return fresh_ts


def _look(
    view: View, keys: Sequence[bytes], start_ts: int, now_ms: int, *, checked: bool, absent: bool
) -> None:
    """Whether they are as `prewrite_rows` was told. Raises WriteConflict, ConditionFailed."""
    olds = view.many_cur(keys)
    newest = max([old[:8] for old in olds if old is not None], default=b"")
    if not newest or not (absent or newest > u64(start_ts)):
        return
    for key, old in zip(keys, olds, strict=True):
        if old is not None and absent:  # first: to run it again would not help
            _refuse_present(key, old, max(now_ms, physical_ms(start_ts)))
        if old is not None and checked and from_u64(old) > start_ts:
            raise write_conflict(key, from_u64(old), start_ts)


def _row_locks(
    view: View, locked: Sequence[bytes], start_ts: int, user: str, now_ms: int
) -> set[bytes]:
    """Those that the transaction has no more than locked. Raises KeyLocked, TxnAborted for what
    others have.
    """
    found = set()
    for key in locked:
        lock = view.lock(key)
        if lock is not None and (lock.start_ts != start_ts or lock.user != user):
            raise in_the_way(key, lock, start_ts, now_ms)
        if lock is not None and is_row_lock(lock, start_ts, user):
            found.add(key)
    return found


def _with(
    keys: Sequence[bytes], values: Sequence[bytes | None] | bytes, some: set[bytes]
) -> list[tuple[bytes, bytes | None]]:
    if isinstance(values, bytes):
        values = unpack_values(values)
    return [(k, v) for k, v in zip(keys, values, strict=True) if k in some]


def _without(
    keys: Sequence[bytes], values: Sequence[bytes | None] | bytes, some: set[bytes]
) -> tuple[list[bytes], list[bytes | None]]:
    if isinstance(values, bytes):
        values = unpack_values(values)
    left = [(k, v) for k, v in zip(keys, values, strict=True) if k not in some]
    return [k for k, _ in left], [v for _, v in left]


def _refuse_present(key: bytes, old: bytes, at_ms: int) -> None:
    if version := newest_version(old, at_ms):
        raise condition_failed(key, 0, version, None)
