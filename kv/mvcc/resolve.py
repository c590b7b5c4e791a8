"""Second phase on one partition: intents become versions at the commit timestamp, or vanish.

A chunk intent goes as a whole, whichever of its keys was named, because it is one record. A request
is one synchronous step and one log entry, so it begins no further chunk after RESOLVE_CHUNK_ROWS
rows of chunks, and no further intent at all after RESOLVE_BYTES of keys and values, new ones and
those that they replace. What it left it tells: ask again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, itemgetter
from zlib import crc32

from kv.base.checksum import pack_crc
from kv.base.keys import from_u64, u64
from kv.base.limits import RESOLVE_BYTES, RESOLVE_CHUNK_ROWS
from kv.base.methods import OP_CHECK, OP_PUT, OP_TOMBSTONE
from kv.base.system import UNVERSIONED
from kv.base.timestamps import physical_ms
from kv.mvcc.guards import GuardTable
from kv.mvcc.packed_rows import all_keys
from kv.mvcc.records import TOMB, Lock, put_row, replacing
from kv.mvcc.refusals import OfAnother
from kv.mvcc.versions import add_version
from kv.mvcc.view import Mutations, View

_flags = itemgetter(8)  # of a record


def resolve(
    view: View,
    keys: Sequence[bytes],
    *,
    start_ts: int,
    commit_ts: int,
    m: Mutations,
    anchor: bytes | None = None,
    user: str | None = None,
) -> tuple[int, int]:
    """(intents of `start_ts` that were resolved, keys that still have one); commit_ts 0 = rolled
    back. Keys are distinct. `anchor`: only those that have their record there, `user`: that are
    his.

    Guards of the transaction that begin at one of the keys go, too. Keys without such an intent are
    left alone. An intent over a version at or above commit_ts is
    the echo of a prewrite that was sent twice and arrived late: its version was written long ago,
    so it only vanishes. Raises Corruption.
    """
    resolved = left = chunk_rows = size = 0
    if not m.ends_others and user not in (None, m.user):
        raise OfAnother
    for key in keys:
        lock = view.lock(key)
        if lock is None or lock.start_ts != start_ts or key in m.locks or id(lock) in m.gone:
            continue
        if anchor not in (None, lock.anchor) or user not in (None, lock.user):
            continue
        if lock.user != m.user and not m.ends_others:
            raise OfAnother
        if size >= RESOLVE_BYTES or (lock.chunk and chunk_rows >= RESOLVE_CHUNK_ROWS):
            left += 1
            continue
        if lock.chunk:
            chunk_rows += len(lock.chunk)
            size += _resolve_chunk(view, lock, commit_ts, m)
            resolved += len(lock.chunk)
            continue
        m.drop_lock(key)
        resolved += 1
        size += len(key)
        if not commit_ts or lock.kind == OP_CHECK:
            continue
        old = view.cur(key)
        if old is not None and from_u64(old) >= commit_ts:
            continue
        value = None
        if lock.kind == OP_PUT:
            value = lock.payload if lock.payload is not None else view.intent(key).payload
        size += len(value or b"") + len(old or b"")
        ttl_ms = lock.value_ttl_ms
        add_version(
            m,
            key,
            value,
            expire_ms=physical_ms(commit_ts) + ttl_ms if ttl_ms else 0,
            commit_ts=commit_ts,
            old=old,
            tombstone=lock.kind == OP_TOMBSTONE,
        )
    if view.guards is not None:
        resolved += _drop_guards(view.guards, keys, start_ts, anchor, user, m)
    return resolved, left


def _drop_guards(
    guards: GuardTable,
    keys: Sequence[bytes],
    start_ts: int,
    anchor: bytes | None,
    user: str | None,
    m: Mutations,
) -> int:
    dropped = 0
    for key in keys:
        guard = guards.by_at.get((key, start_ts))
        if guard is None or anchor not in (None, guard.anchor) or user not in (None, guard.user):
            continue
        if guard.user != m.user and not m.ends_others:
            raise OfAnother
        m.drop_guard(key, start_ts)
        dropped += 1
    return dropped


def _resolve_chunk(view: View, lock: Lock, commit_ts: int, m: Mutations) -> int:
    """Bytes of its rows and of what they replace. The hot loop of large batches."""
    m.drop_chunk(lock)
    if not commit_ts:
        return 0
    keys = all_keys(lock.chunk)
    values, olds = view.chunk_values(lock), view.many_cur(keys)
    m.top_ts = max(m.top_ts, commit_ts)
    rows, size = m.rows, 0
    if not any(olds) and None not in values:  # new rows: nothing is asked of each
        head = u64(commit_ts) + b"\x00"
        bodies = [head + value for value in values if value is not None]
        sums = map(pack_crc, map(crc32, bodies, map(crc32, keys)))
        return m.versions(keys, list(map(add, bodies, sums)))
    if (replaced := _replaced(keys, values, olds, commit_ts, m)) is not None:
        return replaced
    for key, value, old in zip(keys, values, olds, strict=True):
        if old is not None:
            if from_u64(old) >= commit_ts:
                continue
            size += len(old)
        if value is not None and (old is None or not old[8]):
            rows.append(put_row(key, value, commit_ts, old))
            size += len(key) + len(value)
        else:
            add_version(m, key, value, expire_ms=0, commit_ts=commit_ts, old=old)
    return size


def _replaced(
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    olds: Sequence[bytes | None],
    commit_ts: int,
    m: Mutations,
) -> int | None:
    """The same where all rows are there and are changed, or all of them go, column by column; None:
    they are not so simple, and nothing was done.
    """
    there = [old for old in olds if old is not None]
    newest = u64(commit_ts)
    if len(there) < len(keys) or any(map(_flags, there)) or max(there)[:8] >= newest:
        return None
    if not {key[:4] for key in keys}.isdisjoint(UNVERSIONED):
        return None
    puts = [value for value in values if value is not None]
    if puts and len(puts) < len(keys):
        return None
    m.rows += replacing(keys, puts or None, there, commit_ts)
    size = sum(map(len, there))
    if puts:
        return size + sum(map(len, keys)) + sum(map(len, puts))
    head = newest + TOMB
    m.others += [("gcq", head + key, b"") for key in keys]
    return size
