"""GET, MGET, READ_NOW, SCAN, CHANGES and MARK: answered from the applied state, in the synchronous
step that looks.

A read at R must wait while a version at or below R is in flight on its keys: its timestamp was
taken before, so the snapshot contains it. The same for an intent of a parallel commit whose bound
is at or below R: it may be committed at that very bound as soon as it is durable
(kv.mvcc.recover). Other in-flight intents need no wait: their commit timestamp will be taken later
than R was. A resolution in flight is a version in flight, so it is never a lost read. MARK looks at
every key of the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kv.base import methods
from kv.base.errors import KeyLocked
from kv.base.limits import SCAN_STEP_ROWS_MAX
from kv.base.methods import (
    CHANGES,
    FRESH_READS,
    GET,
    HELD,
    MARK,
    MGET,
    PAIRS,
    PARTITION_VERBS,
    PARTS,
    READ_NOW,
    SCAN,
    SCAN_SEALED,
    SCAN_VALUES,
)
from kv.base.timestamps import MAX
from kv.base.wire_row import WireRow
from kv.feed import serve_changes, version_pairs
from kv.feed.recent import Recent
from kv.mvcc.counting_view import Looked
from kv.mvcc.get import get, multi_get
from kv.mvcc.scan import scan, scan_sealed, scan_values
from kv.mvcc.scan_through_intents import through_chunks
from kv.mvcc.view import ReadView
from kv.partition.chunk_spans import has
from kv.partition.entry import Entry
from kv.partition.evaluated_state import Evaluated
from kv.partition.ports import AppliedState
from kv.partition.range_parts import parts

# Where a request says that it is counted
_COUNTED: Final = {
    one.number: one.at("counted") for one in PARTITION_VERBS if "counted" in one.fields
}
SCANS: Final = {SCAN: 1, SCAN_VALUES: 3, SCAN_SEALED: 10}
"""And how many rows of it cost as much as one of SCAN, with its encoding."""
_OF_NO_TIME: Final = frozenset({PAIRS, PARTS, HELD})


def read_ts_of(r: WireRow) -> int:
    """The timestamp that decides what a read must wait for, 0 = the newest. MAX: it is to be taken
    yet.
    """
    if r[1] == CHANGES:
        return serve_changes.read_ts_of(r)
    if r[1] in FRESH_READS:
        return r[6] or MAX
    if r[1] in _OF_NO_TIME:
        return 0
    ts: int = r[7] if r[1] in SCANS else r[6]
    return ts


def read_ts_said(r: list[object]) -> int:
    """The timestamp that a read names, 0 for none."""
    ts = read_ts_of(r)
    return 0 if ts == MAX and r[1] in FRESH_READS else ts


def rows_of(r: WireRow) -> int:
    """What a read may cost in one step, in rows of a SCAN."""
    if r[1] in SCANS or r[1] == CHANGES or r[1] == PAIRS:
        return min(int(r[8]), SCAN_STEP_ROWS_MAX) // SCANS.get(r[1], 1) or 1
    return len(r[5]) if r[1] == MGET or r[1] == READ_NOW else 1


def bytes_of(r: list[object], result: WireRow) -> int:
    """The bytes of keys and values in the answer to a read."""
    if r[1] == GET:
        return len(result[0] or b"")
    if r[1] == MGET or r[1] == READ_NOW:
        return sum(len(found[0]) for found in result[0] if found is not None)
    if r[1] == CHANGES:
        return serve_changes.bytes_of(result)
    if r[1] == PAIRS:
        return version_pairs.bytes_of(result)
    if r[1] == PARTS:
        return sum(map(len, result[0]))
    if r[1] == HELD or r[1] == MARK:
        return 0
    if r[1] == SCAN_VALUES or r[1] == SCAN_SEALED:
        return sum(map(len, result[0]))
    return sum([len(key) + len(value) for key, value, _ in result[0]])


def must_wait(view: Evaluated, r: list[object], read_ts: int) -> Entry | None:
    """The entry that must be applied first, None if the read may look now."""
    if not read_ts:
        return None
    for entry in (view.open, view.flying):
        # An entry whose lowest version lies above R holds nothing for this reader; in another one a
        # newer version of the key may hide an older one, so the key's presence decides.
        if entry is None or entry.low_ts > read_ts:
            continue
        if _touches(entry.pending, r) or (entry.bounds and _meets(entry.bounds, r, read_ts)):
            return entry
    return None


def _touches(pending: Collection[bytes], r: WireRow) -> bool:
    match r[1]:
        case methods.GET:
            return r[5] in pending
        case methods.MARK:
            return True
        case methods.MGET | methods.READ_NOW:
            return any(map(pending.__contains__, r[5]))
        case _:
            start, end = r[5], r[6]
            return any(start <= key and (not end or key < end) for key in pending)


def _meets(bounds: Mapping[bytes, int], r: WireRow, read_ts: int) -> bool:
    """Whether the read looks at a key whose bound is at or below its timestamp."""
    match r[1]:
        case methods.GET:
            return bounds.get(r[5], MAX) <= read_ts
        case methods.MGET | methods.READ_NOW:
            return any(bounds.get(key, MAX) <= read_ts for key in r[5])
        case _:
            return _touches([key for key, low in bounds.items() if low <= read_ts], r)


def resolution_in_flight(view: Evaluated, refusal: KeyLocked) -> Entry | None:
    """The entry that removes the intent which refuses a read, None if nothing in flight does."""
    key = refusal.details["key"]
    if view.lock(key) is not None:
        return None
    for entry in (view.open, view.flying):
        if entry is None:
            continue
        if key in entry.locks or any(has(lock, key) for lock in entry.gone.values()):
            return entry
    return None


def read(state: AppliedState, recent: Recent, r: WireRow, now_ms: int) -> WireRow:
    """The result fields of the reply. Raises KeyLocked, SnapshotTooOld, Corruption."""
    if len(r) > _COUNTED.get(r[1], len(r)) and r[_COUNTED[r[1]]]:
        looked = Looked(state)
        result, seen = _read(state, looked, recent, r, now_ms)
        return [*result, seen + looked.versions]
    return _read(state, state, recent, r, now_ms)[0]


def _read(
    state: AppliedState, view: ReadView, recent: Recent, r: WireRow, now_ms: int
) -> tuple[list[object], int]:
    """And what a scan looked at of newest records. `view` is of `state`: what rows come from."""
    if r[1] == CHANGES:
        return serve_changes.changes(state, recent, r), 0
    if r[1] == PAIRS:
        return version_pairs.pairs(state, recent, state.top_ts, r), 0
    if r[1] == PARTS:
        return parts(state, r), 0
    if r[1] == MARK:
        return [r[6], state.index], 0
    if r[1] == HELD:
        return [_held(state, *r[5:])], 0
    if r[1] == GET:
        return list(get(state, r[5], read_ts=r[6], ignore=r[7], now_ms=now_ms)), 0
    if r[1] == MGET or r[1] == READ_NOW:
        found = multi_get(view, r[5], read_ts=r[6], ignore=r[7], now_ms=now_ms)
        rows = [None if value is None else [value, version] for value, version in found]
        return ([rows] if r[1] == MGET else [rows, r[6]]), 0
    if r[1] == SCAN_SEALED:
        sealed_scan = methods.ScanSealed(*r[5:])
        sealed = scan_sealed(
            state,
            sealed_scan.start,
            sealed_scan.end,
            read_ts=sealed_scan.read_ts,
            limit=sealed_scan.limit,
            ignore=sealed_scan.ignore,
            now_ms=now_ms,
        )
        return [[sealed.lengths, sealed.rows], sealed.resume], 0
    if r[1] == SCAN_VALUES:
        return _scan_values(state, view, methods.ScanValues(*r[5:]), now_ms)
    asked = methods.Scan(*r[5:])
    expiries: dict[int, int] | None = {} if asked.expiries else None
    page = scan(
        view,
        asked.start,
        asked.end,
        read_ts=asked.read_ts,
        limit=asked.limit,
        reverse=asked.reverse,
        ignore=asked.ignore,
        now_ms=now_ms,
        expiries=expiries,
    )
    if expiries is None:
        return [page.items, page.resume], page.seen
    return [page.items, page.resume, list(expiries.items())], page.seen


def _held(state: AppliedState, key: bytes, start_ts: int, anchor: bytes) -> list[object] | None:
    for one in (state.lock(key), state.guards.by_at.get((key, start_ts))):
        if one is not None and (one.start_ts, one.anchor) == (start_ts, anchor):
            return [one.ttl_ms, one.user]
    return None


def _scan_values(
    state: AppliedState, view: ReadView, asked: methods.ScanValues, now_ms: int
) -> tuple[list[object], int]:
    values = None
    if asked.through and asked.read_ts and not asked.reverse:
        values = through_chunks(
            view,
            asked.start,
            asked.end,
            read_ts=asked.read_ts,
            limit=asked.limit,
            committed=dict(asked.through),
            stored=state.stored_lock,
        )
    values = values or scan_values(
        view,
        asked.start,
        asked.end,
        read_ts=asked.read_ts,
        limit=asked.limit,
        reverse=asked.reverse,
        ignore=asked.ignore,
        now_ms=now_ms,
    )
    return [values.items, values.resume], values.seen
