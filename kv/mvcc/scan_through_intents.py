"""A scan of values that reads through chunks of intents of committed transactions.

Behind a large load (COPY) its rows are chunk intents until they are resolved, which costs several
times as much as to read them. Who scans knows by then that the load is committed, and at which
version, and says so; the partition answers what its rows would be, and writes nothing.

Invariants
  * the answer is that of `kv.mvcc.scan.scan_values` on the same state with those chunks resolved;
  * whatever is not simple (rows with times to live or newer versions, chunks that lie in each
    other, other intents) is left to it: None.

Source: TiKV's `committed_locks` of a read's context, which tells the same of single locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from zlib import crc32

from kv.base.checksum import CRC_BYTES, CRC_OK
from kv.base.intents import TxnId, txn_id
from kv.base.keys import u64
from kv.base.limits import (
    SCAN_PAGE_BYTES_MAX,
    SCAN_SEALED_ROWS_MAX,
    SCAN_STEP_ROWS_MAX,
    THROUGH_CHUNKS_MAX,
)
from kv.mvcc.get import check_readable
from kv.mvcc.packed_rows import all_keys
from kv.mvcc.records import HAS_TTL, TOMBSTONE, Lock, corrupt, decode_chunk
from kv.mvcc.scan import Values
from kv.mvcc.view import ReadView

Stored = Callable[[bytes], bytes | None]
"""The sealed intent that is applied under a key."""


def through_chunks(
    view: ReadView,
    start: bytes,
    end: bytes,
    *,
    read_ts: int,
    limit: int,
    committed: Mapping[TxnId, int],
    stored: Stored,
) -> Values | None:
    """A page of `[start, end)` (end b"" = no bound), if chunks of `committed` (their versions)
    lie in it and all is simple. Raises SnapshotTooOld, Corruption.
    """
    check_readable(view, read_ts)
    n = min(limit, SCAN_STEP_ROWS_MAX)
    rows = view.scan("cur", start, end, limit=n, bytes_max=SCAN_PAGE_BYTES_MAX)
    last = rows[-1][0] if rows else b""  # of the page; b"": all of the range
    # Not to the end: after a cleaned chunk its keys stay in the mirror's order for a while, and to
    # pass half a million of them for each page made an aggregate take 30 s.
    many = n if rows else min(limit, SCAN_SEALED_ROWS_MAX)  # rows of a chunk are copied only
    locked = list(islice(view.locked_keys(start, last + b"\0" if len(rows) == n else end), many))
    if not locked and len(rows) < n:
        return None
    if len(locked) == many and (not last or locked[-1] < last):
        last = locked[-1]
    if last:
        locked = locked[: bisect_left(locked, last + b"\0")]
    pieces = _pieces(view, locked, many, read_ts, committed, stored)
    if locked and not pieces:
        return None
    taken = sum(len(keys) for keys, _, _ in pieces)
    if taken < len(locked):
        last = locked[taken - 1]
    merged = _merged(rows, last, pieces, read_ts, limit)
    if merged is None:
        return None
    values, last = merged
    resume = last + b"\0" if last else None
    if resume is not None and end and resume >= end:
        resume = None
    return Values(values, resume, len(rows) + taken)


_Piece = tuple[Sequence[bytes], Sequence[bytes | None], int]
"""Keys, which rise, their values (None = deleted), and the version of them."""


def _pieces(
    view: ReadView,
    locked: Sequence[bytes],
    cut_at: int,
    read_ts: int,
    committed: Mapping[TxnId, int],
    stored: Stored,
) -> list[_Piece]:
    """What the first of these keys (there may be more, if they are `cut_at`) will have: of a few
    chunks, and of about a page of bytes. None at all, if one is not of a chunk that may be read
    through.
    """
    pieces: list[_Piece] = []
    at = size = 0
    while at < len(locked) and len(pieces) < THROUGH_CHUNKS_MAX and size < SCAN_PAGE_BYTES_MAX:
        lock = view.lock(locked[at])
        version = committed.get(txn_id(lock.start_ts, lock.user), 0) if lock is not None else 0
        if lock is None or not lock.chunk or not 0 < version <= read_ts:
            return []
        chunk = all_keys(lock.chunk)
        low = bisect_left(chunk, locked[at])
        count = min(len(chunk) - low, len(locked) - at)
        if pieces and count < len(chunk) - low and len(chunk) <= cut_at == len(locked):
            break  # the next page has room for it as a whole: it is unpacked once
        keys = chunk[low : low + count]
        if list(keys) != locked[at : at + count]:
            return []
        values = _values(lock, stored)[low : low + count]
        pieces.append((keys, values, version))
        at += count
        size += sum(len(value) for value in values if value is not None)
    return pieces


def _values(lock: Lock, stored: Stored) -> Sequence[bytes | None]:
    first = lock.chunk[0]
    record = stored(first)
    if record is None:
        raise corrupt("lock", first)
    found, values = decode_chunk(first, record)
    if found.start_ts != lock.start_ts or len(values) != len(lock.chunk):
        raise corrupt("lock", first)
    return values


def _merged(
    rows: Sequence[tuple[bytes, bytes]],
    last: bytes,
    pieces: Sequence[_Piece],
    read_ts: int,
    limit: int,
) -> tuple[list[bytes], bytes] | None:
    """The values of both in the order of their keys, up to the key `last`, but at most `limit`; and
    up to which key it is then.
    """
    if last:
        rows = rows[: bisect_left(rows, (last + b"\0",))]
    if not rows:
        return [v for _, values, _ in pieces for v in values if v is not None], last
    at = u64(read_ts)
    for key, record in rows:
        if crc32(record, crc32(key)) != CRC_OK or record[8] & HAS_TTL or record[:8] > at:
            return None
    there = dict(rows)
    found = {
        key: None if record[8] & TOMBSTONE else record[9:-CRC_BYTES]
        for key, record in there.items()
    }
    for keys, values, version in pieces:
        newest = u64(version)
        made = dict(zip(keys, values, strict=True))
        for key in there.keys() & made.keys():
            if there[key][:8] >= newest:  # the echo of a prewrite that was resolved before
                del made[key]
        found |= made
    items = [(key, value) for key, value in found.items() if value is not None]
    if len(found) > len(there):  # else they are in the order of the rows
        items.sort()
    if len(items) > limit:
        del items[limit:]
        last = items[-1][0]
    return [value for _, value in items], last
