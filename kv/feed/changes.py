"""CHANGES: the versions of a range above one timestamp, and up to where they are complete.

    CHANGES(start, end, read_ts, limit, above, closed, bytes_max, cursor)
        → [[key, value | nil = deleted, version, expire_ms | 0], …], frontier, cursor | nil, mark,
          resolved, large

`resolved` is the highest f in [above, read_ts] of which the leader knows: every version of the
range in (above, f] is applied, and no other one will ever come. `frontier` is how far the rows of
this answer go: the same, or less when not all fit; `large` is then the next version, if it alone
does not fit, else 0. It is what a feed may deliver. `resolved` rests on
the following, where R is `read_ts`, a timestamp that the oracle handed out before the
request was sent; the machine treats the request as it treats a snapshot read at R
(kv/partition/reads.py):

  1. One-entry commits that are in flight at or below R on the range: the request waits until they
     are applied. Those that are evaluated later get timestamps that are asked for later, and a
     request at an R above what is known to be handed out waits for a fresh one: they are above R.
  2. Two-phase commits: a commit timestamp is taken from the oracle after the last prewrite was
     answered, so after that intent was applied at its leader. An intent that is *not applied* when
     the request is served therefore becomes a version above R, whatever its start_ts.
  3. An intent that *is* applied may have been committed at any timestamp above its start_ts (and
     not below the min_commit_ts that it carries, if it is one of a parallel commit), long ago or
     not yet. So f stays below the bounds of all applied intents. Its version cannot be at or below
     `above`, either, if `above` was a frontier of this range: then by 1, 2 or 3 it was known to
     come above it. If `above` is a timestamp that a user chose, versions at or below it are not
     wanted. So f may be `above` itself, whatever the intents say.
  4. An intent of a parallel commit that is in flight may commit at a timestamp at or below R,
     because its bound was taken before it was applied: the request waits for it as for a version.
  5. Another leader: it serves after it has applied everything that was committed before; what was
     not committed in the term before never will be, and what it evaluates itself is younger than
     R, because R was handed out before its own timestamps were asked for. So a frontier holds for
     ever, and for any later leader: `closed` says that `read_ts` is such a frontier, and nothing is
     waited for.

An intent that nobody resolves holds f back until it is swept: its time to live and a sweep. A
reader would push it; the feed does not, because it must cost writers nothing.

What is kept: above the safepoint nothing is ever collected that lies above it, tombstones included,
so a request is answered if `above` is not below the safepoint, else SnapshotTooOld.

Two ways to find the versions. The recent entries (kv/feed/recent.py), if they reach down to
`above`: costs what was written. Else a walk over `cur` in bounded steps, with a look into `hist`
for those keys whose newest version is above `above`; then `cursor` says where to go on, with
`closed` and the frontier of the first step as `read_ts`. Rows of a walk come in key order, the
versions of a key newest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kv.base.checksum import CRC_BYTES
from kv.base.errors import InvalidArgument, SnapshotTooOld
from kv.base.keys import MAX64, from_u64, u64
from kv.base.limits import SCAN_STEP_ROWS_MAX
from kv.mvcc.records import (
    expiry_of,
    hist_key,
    hist_range,
    is_tombstone,
    payload_at,
    verified,
)
from kv.mvcc.view import Versions

Row = tuple[bytes, bytes | None, int, int]
"""(key, value or None = deleted, version, expire_ms or 0)"""
_BELOW_BYTES: Final = 8
_SEEK_ROWS: Final = 4  # what a look into hist costs, in rows of a walk
_SLICE_ROWS: Final = 128
_HIST_ROWS: Final = 64


def row_of(key: bytes, record: bytes, version: int) -> Row:
    """The version in a sealed cur or hist record. A value that has expired since is sent, too: it
    was written.
    """
    if not record[8]:
        return key, record[9:-CRC_BYTES], version, 0
    if is_tombstone(record):
        return key, None, version, 0
    return key, payload_at(record, 0), version, expiry_of(record)


def size_of(row: Row) -> int:
    """The bytes that a row counts."""
    return len(row[0]) + len(row[1] or b"") + 32


def check_above(above: int, safepoint: int) -> None:
    """Raises SnapshotTooOld."""
    if above < safepoint:
        raise SnapshotTooOld(
            f"not all changes after {above} are kept any more: the safepoint is {safepoint}. Read "
            "the table by a scan, then watch from the version that its pages return as `at`; or "
            "watch from 0, which sends all records first",
            details={"at": above, "safepoint": safepoint},
        )


def walk(
    view: Versions,
    start: bytes,
    end: bytes,
    *,
    above: int,
    upto: int,
    limit: int,
    bytes_max: int,
    cursor: bytes | None = None,
    rows_max: int = SCAN_STEP_ROWS_MAX,
) -> tuple[list[Row], bytes | None]:
    """Versions in (above, upto] of `[start, end)`, one bounded step, and the cursor of the next
    one, None at the end.

    Raises SnapshotTooOld, Corruption, InvalidArgument of a cursor that is none.
    """
    check_above(above, view.safepoint)
    step = _Step(view, start, end, above, upto, limit, bytes_max, rows_max)
    at = start
    if cursor is not None:
        key, below = parse_cursor(cursor)
        at = max(start, key)
        if below:
            rest = step.older(key, below)
            if rest is not None:
                return step.rows, rest
            at = key + b"\x00"
    while not step.full():
        rows = view.scan("cur", at, end, limit=_SLICE_ROWS, bytes_max=bytes_max)
        for key, record in rows:
            if step.full():
                return step.rows, make_cursor(key, 0)
            rest = step.key(key, record)
            if rest is not None:
                return step.rows, rest
            at = key + b"\x00"
        if not rows or (end and at >= end):
            return step.rows, None
    return step.rows, make_cursor(at, 0)


class _Step:
    """One step of a walk: what it found and what it may still do."""

    def __init__(
        self,
        view: Versions,
        start: bytes,
        end: bytes,
        above: int,
        upto: int,
        limit: int,
        bytes_max: int,
        rows_max: int,
    ) -> None:
        self.rows: list[Row] = []
        self._view, self._above, self._upto = view, above, upto
        self._room, self._bytes, self._left = limit, bytes_max, rows_max
        # Asked of the rows: the partition's count of old versions is only estimated after a split.
        low, high = hist_range(start, end)
        self._any_old = bool(view.scan("hist", low, high, limit=1))

    def full(self) -> bool:
        return self._room <= 0 or self._bytes <= 0 or self._left <= 0

    def key(self, key: bytes, record: bytes) -> bytes | None:
        """All versions of a key that are wanted; a cursor if there was no room for all."""
        self._left -= 1
        verified("cur", key, record)
        version = from_u64(record)
        if version <= self._above:
            return None
        if version <= self._upto:
            self._add(row_of(key, record, version))
        if not self._any_old:
            return None
        return self.older(key, version)

    def older(self, key: bytes, below: int) -> bytes | None:
        """Those in hist, below a version of it."""
        first, past = hist_key(key, min(below - 1, self._upto)), hist_key(key, self._above)
        self._left -= _SEEK_ROWS
        while not self.full():
            rows = self._view.scan(
                "hist", first, past, limit=_HIST_ROWS, bytes_max=max(self._bytes, 1)
            )
            if not rows:
                return None
            for old_key, record in rows:
                verified("hist", old_key, record)
                below = MAX64 - from_u64(old_key, len(old_key) - 8)
                self._left -= 1
                self._add(row_of(key, record, below))
                if self.full():
                    break
            first = old_key + b"\x00"
        return make_cursor(key, below)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._room -= 1
        self._bytes -= size_of(row)


def make_cursor(key: bytes, below: int) -> bytes:
    """Go on at `key`: with its versions below `below`, or (0) with all of it."""
    return key + u64(below)


def parse_cursor(cursor: bytes) -> tuple[bytes, int]:
    """Raises InvalidArgument."""
    if len(cursor) < _BELOW_BYTES:
        raise InvalidArgument(f"{cursor[:64]!r} is no cursor of CHANGES")
    return cursor[:-_BELOW_BYTES], from_u64(cursor, len(cursor) - _BELOW_BYTES)


def whole_versions(
    rows: Iterable[Row], upto: int, *, limit: int, bytes_max: int
) -> tuple[list[Row], int, int]:
    """All versions up to `upto`, cut to those lowest ones that are whole within the limits: (rows,
    how far they go, the lowest version if it alone does not fit, else 0).
    """
    found = sorted(rows, key=lambda row: row[2])
    size = whole = 0
    for i, row in enumerate(found):
        if i and row[2] != found[i - 1][2]:
            whole = i
        size += size_of(row)
        if i >= limit or (size > bytes_max and i):
            break
    else:
        return found, upto, 0
    if not whole:
        return [], found[0][2] - 1, found[0][2]
    return found[:whole], found[whole - 1][2], 0
