"""Scan cursors: where the next page begins, at which snapshot. Opaque to users, checked when they
come back.

A cursor is base64url of `[version u8][msgpack [table id, low, high, reverse, at]][crc32 u32 LE]`:
all that a scan needs, so that no node keeps anything for it and any node can go on. `low` and
`high` are user keys, high b"" = end of the table. The checksum catches damage and guessing, not
malice: a cursor opens nothing that its user could not ask for anyway.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass

import msgspec

from kv.base.errors import InvalidArgument
from kv.base.keys import successor
from kv.base.limits import KEY_BYTES_MAX, SCAN_ROWS_MAX
from kvorum.api.model import Item, Page, ScanSpec, too_large
from kvorum.api.names import PREFIX_BYTES
from txn.results import ScanPage

_VERSION = b"\x01"
_BODY = msgspec.msgpack.Decoder(tuple[int, bytes, bytes, bool, int])
SCAN_ROWS_DEFAULT = 1_000


@dataclass(frozen=True, slots=True)
class Span:
    """What is left of a scan: user keys `[low, high)`, high b"" = no bound."""

    table_id: int
    low: bytes
    high: bytes
    reverse: bool
    at: int


def encode(span: Span) -> str:
    """The cursor of what is left."""
    body = _VERSION + msgspec.msgpack.encode(
        (span.table_id, span.low, span.high, span.reverse, span.at)
    )
    return base64.urlsafe_b64encode(body + _crc(body)).decode().rstrip("=")


def decode(text: str) -> Span:
    """The span of a cursor. Raises InvalidArgument when it is not one of ours or was damaged."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if raw[:1] == _VERSION and raw[-4:] == _crc(raw[:-4]):
            return Span(*_BODY.decode(raw[1:-4]))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        pass
    raise InvalidArgument(
        "the cursor is not one that a scan returned; begin the scan again without it"
    )


def span(table_id: int, spec: ScanSpec) -> Span:
    """What a scan has to read now: of its bounds, or of its cursor. Raises InvalidArgument,
    TooLarge.
    """
    low, high = bounds(spec)
    if spec.cursor is None:
        return Span(table_id, low, high, spec.reverse, spec.at)
    left = decode(spec.cursor)
    inside = left.low >= low and (not high or (left.high and left.high <= high))
    fits = inside and (not spec.reverse or left.reverse) and spec.at in (0, left.at)
    if left.table_id != table_id or not fits:
        raise InvalidArgument(
            "the cursor belongs to another scan (table, bounds, direction or snapshot differ); "
            "pass it with the parameters of its scan, or alone"
        )
    return left


def bounds(spec: ScanSpec) -> tuple[bytes, bytes]:
    """`[low, high)` of a scan's prefix, start and end; an empty range is given as such, low >=
    high.
    """
    for what, key in (("prefix", spec.prefix), ("start", spec.start), ("end", spec.end)):
        if key is not None and len(key) > KEY_BYTES_MAX + 1:  # + 1: the successor of a longest key
            raise too_large(what, KEY_BYTES_MAX, len(key), "no key is longer than that")
    low, high = spec.start or b"", spec.end or b""
    if spec.prefix:
        low = max(low, spec.prefix)
        after = successor(spec.prefix)
        high = min(high, after) if high and after else high or after
    return low, high


def page_rows(limit: int) -> int:
    """Rows of a page. Raises InvalidArgument outside 1 … SCAN_ROWS_MAX; 0 = the default."""
    if type(limit) is not int or not 0 <= limit <= SCAN_ROWS_MAX:
        raise InvalidArgument(
            f"limit must be 1 to {SCAN_ROWS_MAX} rows a page, got {limit!r}; go on with the cursor"
        )
    return limit or SCAN_ROWS_DEFAULT


def table_id(prefix: bytes) -> int:
    return int.from_bytes(prefix, "big")


def storage_range(prefix: bytes, span: Span) -> tuple[bytes, bytes]:
    """`[low, high)` of storage keys; high <= low when the span is empty."""
    return prefix + span.low, prefix + span.high if span.high else successor(prefix)


def user_page(page: ScanPage, span: Span) -> Page:
    """A page with user keys and the cursor after it."""
    items = [Item(key[PREFIX_BYTES:], value, version) for key, value, version in page.items]
    if page.resume is None:
        return Page(items, None, page.at)
    rest = page.resume[PREFIX_BYTES:]
    left = (span.low, rest) if span.reverse else (rest, span.high)
    return Page(items, encode(Span(span.table_id, *left, span.reverse, page.at)), page.at)


def _crc(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "little")
