"""Forgetting what no reader at or above the safepoint can see, a bounded step at a time.

  * `old_versions` walks `hist`: an old version is garbage iff it was superseded at or below the
    safepoint. Costs what the old versions cost, not the live data; whether it is worth it is told
    by the partition's counters (kvorum/storage/garbage.py);
  * `due` looks at rows of `gcq` up to the safepoint, which the caller found: E rows remove a record
    that expired, T rows a tombstone, X and F rows the record of a transaction or a fence. Each
    looks at what the key holds *now*; a row whose reason has gone just goes. Rows of keys outside
    the range belong to another partition.

Removing a tombstone or an expired record leaves no version behind that a reader could mistake for
the newest: everything older was superseded below the safepoint too (`get.version_at` checks it).

`txn_floor`: no intent with a start_ts below it exists anywhere. A COMMITTED record may be the only
proof that its leftover intents are versions, so records from the floor on stay (TiKV resolves old
locks before its GC for the same reason).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from kv.base.keys import from_u64
from kv.base.limits import GC_STEP_ROWS_MAX, SCAN_PAGE_BYTES_MAX
from kv.base.timestamps import compose
from kv.mvcc.records import (
    EXPIRY,
    RECORDS,
    TOMB,
    TXN,
    expiry_of,
    hist_range,
    is_tombstone,
    parse_txn_key,
    verified,
)
from kv.mvcc.view import GcView, Mutations


@dataclass(frozen=True, slots=True)
class OldVersions:
    """Walk on from `at` in family hist; b"" = from the beginning."""

    at: bytes = b""


@dataclass(frozen=True, slots=True)
class Due:
    """Look at these rows of gcq."""

    rows: Sequence[bytes]
    txn_floor: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What a step did: rows that went, and where the walk goes on; None: it is done."""

    removed: int
    at: bytes | None = None


def set_safepoint(view: GcView, safepoint: int, m: Mutations) -> int:
    """Raise the safepoint (it never goes back); the one in force afterwards."""
    if safepoint > view.safepoint:
        m.safepoint = safepoint
        return safepoint
    return view.safepoint


def collect(
    view: GcView,
    start: bytes,
    end: bytes,
    step: OldVersions | Due,
    *,
    m: Mutations,
    rows_max: int = GC_STEP_ROWS_MAX,
) -> Collected:
    """One step in `[start, end)`, under the view's safepoint. Raises Corruption."""
    match step:
        case OldVersions():
            return _old_versions(view, start, end, step.at, rows_max, m)
        case Due():
            return _due(view, start, end, step, m)
        case _:
            assert_never(step)


def _old_versions(
    view: GcView, start: bytes, end: bytes, at: bytes, rows_max: int, m: Mutations
) -> Collected:
    first, past = hist_range(start, end)
    rows = view.scan("hist", max(at, first), past, limit=rows_max, bytes_max=SCAN_PAGE_BYTES_MAX)
    size = removed = 0
    for key, record in rows:
        size += len(key) + len(record)
        if from_u64(verified("hist", key, record)) <= view.safepoint:
            m.others.append(("hist", key, None))
            removed += 1
    full = len(rows) == rows_max or size >= SCAN_PAGE_BYTES_MAX
    return Collected(removed, rows[-1][0] + b"\x00" if full else None)


def _due(view: GcView, start: bytes, end: bytes, step: Due, m: Mutations) -> Collected:
    removed = 0
    for row in step.rows:
        kind, target = row[8:9], row[9:]
        if from_u64(row) > view.safepoint:
            continue
        if kind in RECORDS:
            anchor, start_ts = parse_txn_key(target)
            mine = start <= anchor and (not end or anchor < end)
            if mine and start_ts < step.txn_floor:
                (m.drop_txn if kind == TXN else m.drop_fence)(anchor, start_ts)
                removed += 1
        elif start <= target and (not end or target < end):
            removed += _record(view, row, kind, target, m)
    return Collected(removed)


def _record(view: GcView, row: bytes, kind: bytes, key: bytes, m: Mutations) -> bool:
    """An E or T row that is due; whether it goes. While an intent lies on the key, it waits: the
    intent will supersede the record.
    """
    if view.lock(key) is not None:
        return False
    record = view.cur(key)
    if record is not None:
        due = from_u64(row)
        expired = kind == EXPIRY and (e := expiry_of(record)) and compose(e) == due
        deleted = kind == TOMB and is_tombstone(record) and from_u64(record) == due
        if expired or deleted:
            m.rows.append((key, None, None, None))
            m.forgotten_bytes += len(key) + len(record)
    m.others.append(("gcq", row, None))
    return True
