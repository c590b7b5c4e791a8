"""The versions of a range together with what each of them replaced: the method PAIRS.

    start, end, upto, limit, above, form, bytes_max, cursor | nil
        → form ROWS: [[key, value | nil = deleted, version, old | nil = there was none], …],
          cursor | nil
          VERSIONS, SEALED: see kv/feed/slices.py

Versions in (above, upto], by key, those of a key newest first. `upto` is a frontier of
the range (kv/feed/changes.py: `resolved`), so nothing is waited for: what was complete once stays
so. `old` is what a reader just below `version` saw: a value that had expired by then is none. A
deletion of what was not there is sent all the same (both are nil); who wants changes drops it.

As for CHANGES there are two ways to them. The recent entries hold for each version the one that it
replaced; else a walk over `cur`, beside which `hist` is read in slices, as large as they proved
useful: a look for every key would cost ten times as much as a row of a slice.

Above the safepoint nothing is missing: what a version above it replaced was superseded above it.
Deliberately missing: values that expire, as in every feed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

from kv.base.keys import MAX64, escape, escape_open, from_u64, u64
from kv.base.limits import SCAN_STEP_ROWS_MAX
from kv.base.timestamps import physical_ms
from kv.base.wire_row import WireRow
from kv.feed.changes import check_above, make_cursor, parse_cursor
from kv.feed.recent import Recent
from kv.feed.slices import KEY_EVERY, count, sealed
from kv.mvcc.records import corrupt, is_tombstone, payload_at, verified
from kv.mvcc.view import Versions

ROWS, VERSIONS, SEALED = range(3)  # the forms of an answer
Pair = list[Any]
_SLICE_ROWS: Final = 256
_OLDER_ROWS_MIN: Final = 4
_OLDER_ROWS_FIRST: Final = 64  # a slice of four is soon of no use where every key has old versions
_OLDER_ROWS_MAX: Final = 512
_OLDER_BYTES_MAX: Final = 1 << 20
_ROW_OVERHEAD: Final = 48
_version = itemgetter(0)


def pairs(state: Versions, recent: Recent, top_ts: int, r: WireRow) -> list[object]:
    """The result fields. Raises SnapshotTooOld, Corruption, InvalidArgument of a cursor."""
    start, end, upto, limit, above, form, bytes_max, cursor = r[5:]
    recent.begin(top_ts)
    check_above(above, state.safepoint)
    if form == SEALED:
        return list(sealed(state, start, end, above=above, limit=limit, cursor=cursor))
    walks = above < recent.floor
    if form == VERSIONS and walks:
        window = {"above": above, "upto": upto, "limit": limit}
        return list(count(state, start, end, cursor=cursor, **window))
    page = _Page(limit, bytes_max, bare=form == VERSIONS)
    if walks:
        return [page.rows, _walk(state, page, start, end, above, upto, cursor)]
    rest = _recent(state, recent, page, start, end, above, upto, cursor)
    if form == VERSIONS:
        keys = [key for key, _ in page.rows[::KEY_EVERY]]
        return [[b"".join([u64(version) for _, version in page.rows]), b"", keys], rest]
    return [page.rows, rest]


def bytes_of(result: WireRow) -> int:
    """Of the keys and values in a result, about."""
    rows = result[0]
    if rows and type(rows[0]) is bytes:
        return sum(len(part) for part in rows if type(part) is bytes)
    return sum(len(row[0]) + len(row[1] or b"") + len(row[3] or b"") for row in rows)


class _Page:
    """What goes into one answer."""

    __slots__ = ("bare", "left", "room", "rows")

    def __init__(self, limit: int, bytes_max: int, *, bare: bool) -> None:
        self.rows: list[Pair] = []
        self.left, self.room, self.bare = limit, bytes_max, bare

    @property
    def full(self) -> bool:
        return self.left <= 0 or self.room <= 0

    def add(self, key: bytes, version: int, record: bytes, old: bytes | None) -> None:
        """`record` and `old` are sealed and were verified, or are the partition's own."""
        self.left -= 1
        if self.bare:
            self.rows.append([key, version])
            self.room -= len(key) + _ROW_OVERHEAD
            return
        if not record[8]:
            value: bytes | None = record[9:-4]
        else:
            value = None if is_tombstone(record) else payload_at(record, 0)
        before = None
        if old is not None:
            before = old[9:-4] if not old[8] else payload_at(old, physical_ms(version))
        self.rows.append([key, value, version, before])
        self.room -= len(key) + len(record) + len(old or b"") + _ROW_OVERHEAD


def _walk(
    state: Versions,
    page: _Page,
    start: bytes,
    end: bytes,
    above: int,
    upto: int,
    cursor: bytes | None,
) -> bytes | None:
    """Fill the page from `cur` and `hist`; where to go on, None at the end."""
    at, below = (start, 0) if cursor is None else parse_cursor(cursor)
    at = max(at, start)
    older = _Older(state, end)
    alone = older.nothing(at)
    floor = u64(above)
    looked = 0
    while looked < SCAN_STEP_ROWS_MAX:
        rows = state.scan("cur", at, end, limit=_SLICE_ROWS, bytes_max=max(page.room, 1))
        if not rows:
            return None
        looked += len(rows)
        for key, record in rows:
            if record[:8] > floor:
                if alone and not below:
                    version = from_u64(verified("cur", key, record))
                    if version <= upto:
                        page.add(key, version, record, None)
                elif (below and key == at) or not older.one(page, key, record, above, upto):
                    first = below - 1 if below and key == at else MAX64
                    rest = _versions(page, older, key, record, above, min(upto, first))
                    if rest is not None:
                        return rest
                if page.left <= 0 or page.room <= 0:
                    return make_cursor(key + b"\x00", 0)
        at, below = rows[-1][0] + b"\x00", 0
        if end and at >= end:
            return None
    return make_cursor(at, 0)


def _versions(
    page: _Page, older: _Older, key: bytes, record: bytes, above: int, upto: int
) -> bytes | None:
    """The versions of a key in (above, upto], newest first; a cursor if there was no room."""
    verified("cur", key, record)
    version = from_u64(record)
    for past, old in older.of(key, upto if version > upto else version - 1):
        if version <= upto:
            if page.full:
                return make_cursor(key, version + 1)
            # Between them another one was collected, together with the tombstone that it was.
            page.add(key, version, record, old if from_u64(old) == version else None)
        if past <= above:
            return None
        version, record = past, old
    if above < version <= upto:
        if page.full:
            return make_cursor(key, version + 1)
        page.add(key, version, record, None)
    return None


class _Older:
    """Rows of `hist` for keys that are asked for in rising order, read in slices."""

    def __init__(self, state: Versions, end: bytes) -> None:
        self._state = state
        self._end = escape_open(end)
        self._keys: list[bytes] = []
        self._records: list[bytes] = []
        self._low = self._high = b""  # what the slice covers; high b"" = nothing
        self._rows = _OLDER_ROWS_FIRST
        self._used = 0
        self._at = 0  # the keys of the slice below are those of keys that were asked for before

    def nothing(self, start: bytes) -> bool:
        """Whether there is none for any key at or above `start`."""
        return not self._state.scan("hist", escape_open(start), self._end, limit=1)

    def one(self, page: _Page, key: bytes, record: bytes, above: int, upto: int) -> bool:
        """Add the newest version of a key, if that is the only one in (above, upto] and the slice
        shows it: nearly always. Else nothing is done.
        """
        version = from_u64(record)
        if version > upto:
            return False
        prefix = escape(key)
        if not self._low <= prefix < self._high:
            self._read(prefix)
        keys = self._keys
        at, count = self._at, len(keys)
        while at < count and keys[at] < prefix:
            at += 1
        self._at = at
        old = None
        # No row at or above `prefix`: the slice is empty, so there is none up to the end.
        if at < count and (old_key := keys[at]).startswith(prefix):
            if MAX64 - from_u64(old_key, len(old_key) - 8) > above:
                return False
            found = self._records[at]
            self._used += 1
            old = verified("hist", old_key, found)
            if from_u64(found) != version:
                old = None  # between them another one was collected, a tombstone
        page.add(key, version, verified("cur", key, record), old)
        return True

    def of(self, key: bytes, upto: int) -> Iterator[tuple[int, bytes]]:
        """The old versions of a key at or below `upto`, (version, record), newest first."""
        prefix = escape(key)
        low, past = prefix + u64(MAX64 - upto), prefix + b"\xff" * 8 + b"\x00"
        while True:
            if not self._low <= low < self._high:
                self._read(low)
            at = bisect_left(self._keys, low)
            while at < len(self._keys):
                old_key = self._keys[at]
                if not old_key.startswith(prefix) or old_key >= past:
                    return
                self._used += 1
                record = verified("hist", old_key, self._records[at])
                yield MAX64 - from_u64(old_key, len(old_key) - 8), record
                at += 1
                low = old_key + b"\x00"
                if not self._low <= low <= self._high:
                    break  # another reading went on
            else:
                if self._high >= past:
                    return
                low = self._high

    def _read(self, low: bytes) -> None:
        useful = 2 * self._used >= len(self._keys)
        grown = min(_OLDER_ROWS_MAX, 2 * self._rows)
        self._rows = grown if useful else max(_OLDER_ROWS_MIN, self._rows // 4)
        rows = self._state.scan(
            "hist", low, self._end, limit=self._rows, bytes_max=_OLDER_BYTES_MAX
        )
        self._keys, self._records = [k for k, _ in rows], [r for _, r in rows]
        self._low, self._used, self._at = low, 0, 0
        self._high = self._keys[-1] + b"\x00" if rows else b"\xff" * (2 * len(low) + 64)


def _recent(
    state: Versions,
    recent: Recent,
    page: _Page,
    start: bytes,
    end: bytes,
    above: int,
    upto: int,
    cursor: bytes | None,
) -> bytes | None:
    """Fill the page from the recent entries."""
    at, below = (start, 0) if cursor is None else parse_cursor(cursor)
    for key, rows in recent.by_key(max(start, at), end, above):
        high = min(upto, below - 1) if below and key == at else upto
        for version, record, old_key, old in _wanted(rows, above, high):
            if page.full:
                return make_cursor(key, version + 1)
            if old is None and old_key is not None and not page.bare:
                old = _stored(state, old_key)
            page.add(key, version, record, old)
    return None


def _wanted(
    rows: Iterable[Any], above: int, upto: int
) -> list[tuple[int, bytes, bytes | None, bytes | None]]:
    """(version, record, the key of what it replaced, that), newest first."""
    found = [
        (version, record, old_key, old)
        for _, record, old_key, old in rows
        if record is not None and above < (version := from_u64(record)) <= upto
    ]
    if len(found) > 1:
        found.sort(key=_version, reverse=True)
    return found


def _stored(state: Versions, old_key: bytes) -> bytes:
    """An old version that did not travel with its entry (docs/decisions/0501)."""
    found = state.scan("hist", old_key, old_key + b"\x00", limit=1)
    if not found:
        raise corrupt("hist", old_key)
    return verified("hist", old_key, found[0][1])
