"""`write` of many plain puts in one step, key space by key space: no op is made for a row, and all
old records are read at once.

Equal to `write` with a put for each row, all of them without a time to live and with the same
condition: none, or (`absent`) that nothing is there. The rows rise, so the anchor is the first.
Records with flags, and rows that replace something, go row by row as they do there.

Deliberately missing: deletes, checks, other conditions, times to live.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from kv.base.checksum import pack_crc
from kv.base.keys import from_u64
from kv.base.limits import SUPERSEDED_BYTES_MAX
from kv.base.methods import BLIND, COMMITTED
from kv.base.timestamps import physical_ms
from kv.mvcc.records import TxnRecord, cur_head
from kv.mvcc.refusals import (
    condition_failed,
    key_guarded,
    key_locked,
    newest_version,
    write_conflict,
)
from kv.mvcc.versions import add_version
from kv.mvcc.view import Mutations, View
from kv.mvcc.write import known_record, too_much

_PLAIN: Final = 0  # flags of a record without any


def write_rows(
    view: View,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    *,
    start_ts: int,
    flags: int,
    commit_ts: int,
    now_ms: int,
    m: Mutations,
    absent: bool = False,
    owner: str = "",
) -> int:
    """As `write`. `keys` rise. Raises KeyLocked, WriteConflict, ConditionFailed, TxnAborted,
    TooLarge, Corruption.
    """
    known: TxnRecord | None = None
    if start_ts:
        known = known_record(view, keys[0], start_ts, m.user, now_ms)
        if known is not None and known.status == COMMITTED:
            return known.commit_ts
    for key in view.locked(keys):
        if (lock := view.lock(key)) is not None:
            raise key_locked(key, lock, now_ms)
    guards = view.guards
    if guards is not None and (met := guards.meets_any(keys, start_ts, m.user)) is not None:
        raise key_guarded(*met, now_ms)
    old = view.many_cur(keys)
    if any(old):
        newest_allowed = start_ts if start_ts and not flags & BLIND else 0
        _replace(m, keys, values, old, newest_allowed, start_ts, commit_ts, absent=absent)
    else:
        head = cur_head(commit_ts, _PLAIN)
        m.rows += [
            (key, (body := head + value) + pack_crc(crc32(body, crc32(key))), None, None)
            for key, value in zip(keys, values, strict=True)
        ]
        m.top_ts = max(m.top_ts, commit_ts)
    if start_ts:
        record = TxnRecord(COMMITTED, commit_ts, owner=owner, user=m.user)
        m.set_txn(keys[0], start_ts, record, new=known is None)
    return commit_ts


def _replace(
    m: Mutations,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    records: Sequence[bytes | None],
    newest_allowed: int,
    start_ts: int,
    commit_ts: int,
    *,
    absent: bool,
) -> None:
    """Some of the keys have records."""
    at_ms, superseded = physical_ms(commit_ts), 0
    for i, (key, old) in enumerate(zip(keys, records, strict=True)):
        if old is None:
            continue
        if newest_allowed and from_u64(old) > newest_allowed:
            raise write_conflict(key, from_u64(old), start_ts)
        if absent and (version := newest_version(old, at_ms)):
            raise condition_failed(key, 0, version, i if len(keys) > 1 else None)
        superseded += len(old)
    if superseded > SUPERSEDED_BYTES_MAX:
        raise too_much(superseded)
    for key, value, old in zip(keys, values, records, strict=True):
        add_version(m, key, value, expire_ms=0, commit_ts=commit_ts, old=old)
