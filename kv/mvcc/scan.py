"""Range reads, forward and reverse, at any timestamp, with bounded work per call.

A key that a reader at or above the safepoint can see has a `cur` record (perhaps of a newer
version), so a scan walks `cur` and looks into `hist` only for keys written after its snapshot. The
engine is read in slices, which end with the row that fills the page: a thousand rows of 4 MiB must
not be loaded to return one.

`resume` continues the scan: as the new `start` going forward, as the new `end` in reverse; None
once the range is exhausted. A page may be short, even empty, and still have a `resume`: it looked
at its share of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import pack
from typing import Final
from zlib import crc32

from kv.base.checksum import CRC_BYTES, CRC_OK
from kv.base.intents import TxnId
from kv.base.keys import from_u64, u64
from kv.base.limits import SCAN_PAGE_BYTES_MAX, SCAN_SEALED_ROWS_MAX, SCAN_STEP_ROWS_MAX
from kv.base.timestamps import physical_ms
from kv.mvcc.get import check_readable, refuse_locked, version_at
from kv.mvcc.records import TOMBSTONE, expiry_of, hist_key
from kv.mvcc.view import ReadView

_NEWEST: Final = b"\xff" * 8
SLICE_ROWS_MIN = 16  # of one slice: after many tombstones, `limit` alone would be one row at a time

Item = tuple[bytes, bytes, int]  # key, value, version


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Item]
    resume: bytes | None
    seen: int = field(default=0, compare=False)
    """Newest records that it looked at, those of deleted rows too."""


def scan(
    view: ReadView,
    start: bytes,
    end: bytes,
    *,
    read_ts: int,
    limit: int,
    reverse: bool = False,
    ignore: Collection[TxnId] | None = None,
    now_ms: int,
    rows_max: int = SCAN_STEP_ROWS_MAX,
    bytes_max: int = SCAN_PAGE_BYTES_MAX,
    expiries: dict[int, int] | None = None,
) -> Page:
    """Up to `limit` live rows of `[start, end)` (end b"" = no bound). `expiries` is filled with the
    time (ms) at which a row will expire, by its place in the page, if there is one.

    Raises KeyLocked, SnapshotTooOld, Corruption.
    """
    check_readable(view, read_ts)
    read_ms = physical_ms(read_ts) if read_ts else now_ms
    items: list[Item] = []
    low, high, seen, size = start, end, 0, 0
    resume: bytes | None = None
    at = u64(read_ts) if read_ts else _NEWEST
    while seen < rows_max and size < bytes_max:
        n = min(rows_max - seen, max(SLICE_ROWS_MIN, limit - len(items)))
        rows = view.scan("cur", low, high, reverse=reverse, limit=n, bytes_max=bytes_max - size)
        if rows and len(rows) <= limit - len(items) and (plain := _plain(rows, at)) is not None:
            items += plain
            seen += len(rows)
            size += sum([len(key) + len(record) for key, record in rows])
            resume = rows[-1][0] if reverse else rows[-1][0] + b"\x00"
            if len(items) >= limit or size >= bytes_max:
                break
            if len(rows) < n:
                resume = None
                break
            low, high = (low, resume) if reverse else (resume, high)
            continue
        for key, record in rows:
            seen += 1
            size += len(key) + len(record)
            value, version = version_at(view, key, record, read_ts, read_ms)
            if value is not None:
                if expiries is not None and (due := _expiry(view, key, record, version)):
                    expiries[len(items)] = due
                items.append((key, value, version))
            resume = key if reverse else key + b"\x00"
            if len(items) >= limit or size >= bytes_max:
                break
        else:
            if len(rows) < n:
                resume = None
                break
            low, high = (low, resume or b"") if reverse else (resume or b"", high)
            continue
        break
    if resume is not None and (resume <= start if reverse else bool(end) and resume >= end):
        resume = None  # that was the last key there can be
    looked_at = (start, end)
    if resume is not None:
        looked_at = (resume, end) if reverse else (start, resume)
    refuse_locked(view, view.locked_keys(*looked_at), read_ts, ignore, now_ms)
    return Page(items, resume, seen)


def _plain(rows: Sequence[tuple[bytes, bytes]], at: bytes) -> list[Item] | None:
    """What a reader at this time sees of rows that are all plain and old enough, or gone; None:
    they have to be looked at one by one.
    """
    found = [
        (key, record[9:-CRC_BYTES], int.from_bytes(record[:8], "big"))
        for key, record in rows
        if not record[8] and record[:8] <= at and crc32(record, crc32(key)) == CRC_OK
    ]
    if len(found) < len(rows) and len(found) + _gone(rows, at) < len(rows):
        return None
    return found


def _gone(rows: Sequence[tuple[bytes, bytes]], at: bytes) -> int:
    """How many of the rows are deleted ones, which may lie there for long."""
    return sum(
        record[8] == TOMBSTONE and record[:8] <= at and crc32(record, crc32(key)) == CRC_OK
        for key, record in rows
    )


def _expiry(view: ReadView, key: bytes, record: bytes, version: int) -> int:
    """When this version of the key, which a reader saw, expires; 0 = never."""
    if from_u64(record) == version:
        return expiry_of(record)
    first = hist_key(key, version)
    ((_, old),) = view.scan("hist", first, first + b"\x00", limit=1)
    return expiry_of(old)


@dataclass(frozen=True, slots=True)
class Values:
    items: list[bytes]
    resume: bytes | None
    seen: int = field(default=0, compare=False)


def scan_values(
    view: ReadView,
    start: bytes,
    end: bytes,
    *,
    read_ts: int,
    limit: int,
    reverse: bool = False,
    ignore: Collection[TxnId] | None = None,
    now_ms: int,
) -> Values:
    """The values that `scan` would find, for who reads much and has no use for the rest: where all
    rows of a step are plain and old enough (they nearly always are), or gone, nothing is done for
    each but to check it. Raises as `scan`.
    """
    if not reverse and read_ts:
        check_readable(view, read_ts)
        n = min(limit, SCAN_STEP_ROWS_MAX)
        rows = view.scan("cur", start, end, limit=n, bytes_max=SCAN_PAGE_BYTES_MAX)
        at = u64(read_ts)
        values = [
            record[9:-CRC_BYTES]
            for key, record in rows
            if crc32(record, crc32(key)) == CRC_OK and not record[8] and record[:8] <= at
        ]
        if len(values) == len(rows) or len(values) + _gone(rows, at) == len(rows):
            resume = rows[-1][0] + b"\x00" if rows else None
            if resume is not None and end and resume >= end:
                resume = None
            looked_to = end if resume is None else resume
            refuse_locked(view, view.locked_keys(start, looked_to), read_ts, ignore, now_ms)
            return Values(values, resume, len(rows))
    page = scan(
        view,
        start,
        end,
        read_ts=read_ts,
        limit=limit,
        reverse=reverse,
        ignore=ignore,
        now_ms=now_ms,
    )
    return Values([value for _, value, _ in page.items], page.resume, page.seen)


@dataclass(frozen=True, slots=True)
class Sealed:
    lengths: bytes  # of each key and record, 4 bytes little-endian
    rows: bytes  # key, record, key, record, …
    resume: bytes | None


def scan_sealed(
    view: ReadView,
    start: bytes,
    end: bytes,
    *,
    read_ts: int,
    limit: int,
    ignore: Collection[TxnId] | None = None,
    now_ms: int,
) -> Sealed:
    """The next records of `[start, end)` as they are stored, for who looks at them himself: whether
    they are intact, not newer than `read_ts`, neither deleted nor due to expire. He asks
    `scan_values` where they are not. Here nothing is done for a row but to copy it. Raises
    KeyLocked, SnapshotTooOld.
    """
    check_readable(view, read_ts)
    n = min(limit, SCAN_SEALED_ROWS_MAX)
    rows = view.scan("cur", start, end, limit=n, bytes_max=SCAN_PAGE_BYTES_MAX)
    resume = rows[-1][0] + b"\x00" if rows else None
    if resume is not None and end and resume >= end:
        resume = None
    looked_to = end if resume is None else resume
    refuse_locked(view, view.locked_keys(start, looked_to), read_ts, ignore, now_ms)
    flat = list(chain.from_iterable(rows))
    return Sealed(pack(f"<{len(flat)}I", *map(len, flat)), b"".join(flat), resume)
