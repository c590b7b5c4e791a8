"""Forgetting what no reader at or above the safepoint can see, a bounded step at a time.

Two walks over a partition's range:
  * `hist`: an old version is garbage iff it was superseded at or below the safepoint. Costs what
    the old versions cost, not the live data; start it when the partition's garbage counter says so;
  * `gcq` up to the safepoint: E rows remove a record that expired, T rows a tombstone, X rows the
    record of a transaction, F rows a fence. Each looks at what the key holds *now*; a row whose
    reason has gone just goes. Rows of keys outside the range belong to another partition.

Removing a tombstone or an expired record leaves no version behind that a reader could mistake for
the newest: everything older was superseded below the safepoint too (`get.version_at` checks it).

`txn_floor`: no intent with a start_ts below it exists anywhere. A COMMITTED record may be the only
proof that its leftover intents are versions, so records from the floor on stay (TiKV resolves old
locks before its GC for the same reason).
"""

from __future__ import annotations

from dataclasses import dataclass

from kv.base.keys import from_u64, u64
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
class GcCursor:
    """Where the next step goes on; None = that walk is done. `GcCursor()` begins both."""

    hist: bytes | None = b""
    gcq: bytes | None = b""

    @property
    def done(self) -> bool:
        return self.hist is None and self.gcq is None


def set_safepoint(view: GcView, safepoint: int, m: Mutations) -> int:
    """Raise the safepoint (it never goes back); the one in force afterwards."""
    if safepoint > view.safepoint:
        m.safepoint = safepoint
        return safepoint
    return view.safepoint


def gc_step(
    view: GcView,
    start: bytes,
    end: bytes,
    cursor: GcCursor,
    *,
    txn_floor: int,
    m: Mutations,
    rows_max: int = GC_STEP_ROWS_MAX,
) -> GcCursor:
    """Look at up to `rows_max` rows of `[start, end)`, under the view's safepoint. Raises
    Corruption.
    """
    if cursor.hist is not None:
        return GcCursor(_hist(view, start, end, cursor.hist, rows_max, m), cursor.gcq)
    if cursor.gcq is not None:
        return GcCursor(None, _due(view, start, end, cursor.gcq, txn_floor, rows_max, m))
    return cursor


def _hist(
    view: GcView, start: bytes, end: bytes, at: bytes, rows_max: int, m: Mutations
) -> bytes | None:
    """One step of the walk over old versions; where to go on, None at the end."""
    first, past = hist_range(start, end)
    rows = view.scan("hist", max(at, first), past, limit=rows_max, bytes_max=SCAN_PAGE_BYTES_MAX)
    size = 0
    for key, record in rows:
        size += len(key) + len(record)
        if from_u64(verified("hist", key, record)) <= view.safepoint:
            m.others.append(("hist", key, None))
    full = len(rows) == rows_max or size >= SCAN_PAGE_BYTES_MAX
    return rows[-1][0] + b"\x00" if full else None


def _due(
    view: GcView, start: bytes, end: bytes, at: bytes, txn_floor: int, rows_max: int, m: Mutations
) -> bytes | None:
    """One step of the walk over what is due; where to go on, None at the end."""
    rows = view.scan("gcq", at, u64(view.safepoint + 1), limit=rows_max)
    for row, _ in rows:
        kind, target = row[8:9], row[9:]
        if kind in RECORDS:
            anchor, start_ts = parse_txn_key(target)
            mine = start <= anchor and (not end or anchor < end)
            if mine and start_ts < txn_floor:
                (m.drop_txn if kind == TXN else m.drop_fence)(anchor, start_ts)
        elif start <= target and (not end or target < end):
            _record(view, row, kind, target, m)
    return rows[-1][0] + b"\x00" if len(rows) == rows_max else None


def _record(view: GcView, row: bytes, kind: bytes, key: bytes, m: Mutations) -> None:
    """An E or T row that is due. While an intent lies on the key, it waits: the intent will
    supersede the record.
    """
    if view.lock(key) is not None:
        return
    record = view.cur(key)
    if record is not None:
        due = from_u64(row)
        expired = kind == EXPIRY and (e := expiry_of(record)) and compose(e) == due
        deleted = kind == TOMB and is_tombstone(record) and from_u64(record) == due
        if expired or deleted:
            m.rows.append((key, None, None, None))
            m.forgotten_bytes += len(key) + len(record)
    m.others.append(("gcq", row, None))
