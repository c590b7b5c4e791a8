"""Puts of what a snapshot in the past implies: the entries of a new index, made from rows as of
`at`, written as of `at`.

The writers of the keys know of them already, and say what has become of a key since (an index in
the state write-only, sqlproxy/ddl/change): with a version above `at`, which is newer and stays. So
nothing has to hold what the snapshot showed until this is written:

    a writer that ended after `at`, before this      left its version, or its tombstone, also where
                                                     nothing was (OP_TOMBSTONE): it is skipped
    a writer that is ending now                      has an intent here: KeyLocked
    a writer that began before `at`, and comes       finds a version above its start: it conflicts,
                                                     and runs again
    a writer that begins later                       finds this and replaces it

A tombstone is forgotten once the safepoint is above it; then this is refused, as `at` is below.
Done again, also late, it changes nothing. Nobody reads the keys as of a time before they are
complete: that is the caller's part.

Keys that several rows may want (`unique`): a version above `at` may be another row's, and hide that
this one lacks its entry. Where a key says anything else than its value, all of it is refused, and
the caller finds out by a transaction.

Source: bulk ingestion at a timestamp, as CockroachDB's index backfill (docs/decisions/1072).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from kv.base.checksum import pack_crc
from kv.base.keys import from_u64
from kv.mvcc.records import cur_head, is_tombstone, payload_at
from kv.mvcc.refusals import check_age, condition_failed, key_guarded, key_locked
from kv.mvcc.versions import add_version
from kv.mvcc.view import Mutations, View

_PLAIN: Final = 0  # flags of a record without any


def ingest(
    view: View,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    *,
    at: int,
    unique: bool,
    now_ms: int,
    m: Mutations,
) -> int:
    """How many were put. `keys` rise. Raises KeyLocked, ConditionFailed (`unique`), TxnAborted
    (`at` is too old), Corruption.
    """
    check_age(at, view.safepoint, now_ms)
    for key in view.locked(keys):
        if (lock := view.lock(key)) is not None:
            raise key_locked(key, lock, now_ms)
    if view.guards is not None and (met := view.guards.meets_any(keys, 0)) is not None:
        raise key_guarded(*met, now_ms)
    old = view.many_cur(keys)
    if any(old):
        return _beside(m, keys, values, old, at, now_ms, unique=unique)
    head = cur_head(at, _PLAIN)
    m.top_ts = max(m.top_ts, at)
    m.versions(
        keys,
        [
            (body := head + value) + pack_crc(crc32(body, crc32(key)))
            for key, value in zip(keys, values, strict=True)
        ],
    )
    return len(keys)


def _beside(
    m: Mutations,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    records: Sequence[bytes | None],
    at: int,
    now_ms: int,
    *,
    unique: bool,
) -> int:
    """Some of the keys have records."""
    wanted: list[tuple[bytes, bytes, bytes | None]] = []
    for i, (key, value, old) in enumerate(zip(keys, values, records, strict=True)):
        if old is None:
            wanted.append((key, value, old))
            continue
        version = from_u64(old)
        if payload_at(old, now_ms) == value:
            continue  # it is there: written later, or by a run before
        if unique and not (version <= at and is_tombstone(old)):
            raise condition_failed(key, 0, version, i)
        if version < at:
            wanted.append((key, value, old))
    for key, value, old in wanted:
        add_version(m, key, value, expire_ms=0, commit_ts=at, old=old)
    return len(wanted)
