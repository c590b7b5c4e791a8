"""A slice of `cur` and the part of `hist` that belongs to it: PAIRS for who puts them together
himself (docs/decisions/1135).

    versions  [newest, older, keys]: the versions of (above, upto] in the slice, eight bytes each,
              big-endian, in no order: those in `cur`, and the complements of those in `hist`; and
              the key of every KEY_EVERYth row. For who counts: nothing is verified
    sealed    [lengths, rows, lengths, rows]: the records of `cur` above `above`, and those of
              `hist` that were superseded above it, as they are stored (SCAN_SEALED): all that is
              needed to return the versions of (above, upto] with what each replaced. Empty with a
              cursor: a key has more versions than a slice, PAIRS by rows returns them

One step reads both families of the same keys, so between them nothing can move from one to the
other: each version comes once. Where `hist` has more rows than a step may take, the slice ends
before: `sealed` with a whole key, `versions` anywhere (the cursor's version says where).

`cur` is superseded by nothing and has its version where a row of `hist` has that of its successor:
a row that matters has these eight bytes above `above`, in both.
"""

from __future__ import annotations

from itertools import chain
from struct import pack
from typing import Any, Final

from kv.base.keys import MAX64, escape_open, from_u64, u64, unescape
from kv.base.limits import SCAN_PAGE_BYTES_MAX, SCAN_SEALED_ROWS_MAX
from kv.feed.changes import make_cursor, parse_cursor
from kv.mvcc.records import hist_key
from kv.mvcc.view import Versions

KEY_EVERY: Final = 64
_TAIL: Final = 8  # of a key in hist: the complement of its version
Rows = list[tuple[bytes, bytes]]


def count(
    state: Versions,
    start: bytes,
    end: bytes,
    *,
    above: int,
    upto: int,
    limit: int,
    cursor: bytes | None,
) -> tuple[list[Any], bytes | None]:
    """`versions` of a slice of about `limit` rows of each family, and where to go on."""
    rows, old, at = _slice(state, start, end, limit, cursor)
    if at is not None and old and parse_cursor(at)[1]:
        key = parse_cursor(at)[0]
        rows = [row for row in rows if row[0] <= key]
    floor, top = u64(above), u64(upto)
    newest = [record[:8] for _, record in rows if floor < record[:8] <= top]
    low, high = u64(MAX64 - upto), u64(MAX64 - above)
    older = [tail for key, _ in old if low <= (tail := key[-_TAIL:]) < high]
    keys = [key for key, record in rows[::KEY_EVERY] if record[:8] > floor]
    return [b"".join(newest), b"".join(older), keys], at


def sealed(
    state: Versions, start: bytes, end: bytes, *, above: int, limit: int, cursor: bytes | None
) -> tuple[list[Any], bytes | None]:
    """`sealed` of a slice of about `limit` rows of each family, and where to go on."""
    if cursor is not None and parse_cursor(cursor)[1]:
        return [], cursor  # within a key
    rows, old, at = _slice(state, start, end, limit, cursor)
    if at is not None and parse_cursor(at)[1]:
        key = parse_cursor(at)[0]
        rows = [row for row in rows if row[0] < key]
        if not rows:
            return [], make_cursor(key, 0)
        bound = escape_open(key)
        old = [row for row in old if row[0] < bound]
        at = make_cursor(key, 0)
    floor = u64(above)
    wanted = [part for row in rows if row[1][:8] > floor for part in row]
    before = [part for row in old if row[1][:8] > floor for part in row]
    return [*_packed(wanted), *_packed(before)], at


def _packed(parts: list[bytes]) -> tuple[bytes, bytes]:
    return pack(f"<{len(parts)}I", *map(len, parts)), b"".join(parts)


def _slice(
    state: Versions, start: bytes, end: bytes, limit: int, cursor: bytes | None
) -> tuple[Rows, Rows, bytes | None]:
    """Rows of `cur`, those of `hist` for the same keys, and where to go on. If that is below a
    version of a key, the rows of `cur` above that key are of a later slice.
    """
    at, below = (start, 0) if cursor is None else parse_cursor(cursor)
    at = max(at, start)
    n = min(limit, SCAN_SEALED_ROWS_MAX)
    rows = state.scan("cur", at, end, limit=n, bytes_max=SCAN_PAGE_BYTES_MAX)
    if not rows:
        return [], [], None
    past = rows[-1][0] + b"\x00"
    low = hist_key(at, below - 1) if below else escape_open(at)
    old = state.scan("hist", low, escape_open(past), limit=n, bytes_max=SCAN_PAGE_BYTES_MAX)
    if below and rows[0][0] == at:
        del rows[0]  # it came before its older versions
    if old and (len(old) == n or sum(map(len, chain.from_iterable(old))) >= SCAN_PAGE_BYTES_MAX):
        last = old[-1][0]
        return rows, old, make_cursor(unescape(last)[0], MAX64 - from_u64(last, len(last) - _TAIL))
    return rows, old, None if end and past >= end else make_cursor(past, 0)
