"""What a serializable transaction has read: single keys, and the ranges of its scans.

Pure, no I/O. A scan is remembered as the range that its page covered, so a row that appears in it
later counts as a change, too. Pages that follow each other are one range. At the commit the reads
become ops of the transaction's own list, after its writes (OP_READ: one key, or up to `value`), so
that the commit machine groups, cuts, sends again and cleans them like writes; the shell sends them
as options (`split`).

Storage keys have at least the four bytes of their table, and a bounded length; where a scan begins
may have neither. `ops` brings it into the form of a key, without leaving a key out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kv.base.errors import TooLarge
from kv.base.limits import KEY_BYTES_MAX, TXN_READ_BYTES_MAX, TXN_READS_MAX
from kv.base.methods import OP_READ
from kv.base.ops import Op
from txn.shared.ports import Kv

_PREFIX_BYTES: Final = 4
_KEY_BYTES_MAX: Final = _PREFIX_BYTES + KEY_BYTES_MAX

Range = tuple[bytes, bytes]


class Held(NamedTuple):
    """How much a ReadSet had at some moment."""

    keys: int
    ranges: int
    last: Range | None
    bytes: int


class ReadSet:
    """See the module. Ranges are [start, end), end b"" = no bound."""

    __slots__ = ("_bytes", "_keys", "_ranges")

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}
        self._ranges: list[Range] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._keys) + len(self._ranges)

    def add_key(self, key: bytes) -> None:
        """Raises TooLarge, and then remembers nothing of it."""
        if key not in self._keys:
            self._grow(1, len(key))
            self._keys[key] = None

    def add_range(self, start: bytes, end: bytes) -> None:
        """Raises TooLarge, and then remembers nothing of it."""
        if end and start >= end:
            return
        if self._ranges:
            low, high = self._ranges[-1]
            if low <= start and (not high or (end and end <= high)):
                return  # read again
            if start == high or (end == low and end):  # the next page, of either direction
                self._grow(0, len(end if start == high else start))
                self._ranges[-1] = (low, end) if start == high else (start, high)
                return
        self._grow(1, len(start) + len(end))
        self._ranges.append((start, end))

    def _grow(self, reads: int, size: int) -> None:
        if len(self) + reads > TXN_READS_MAX:
            raise _too_large("keys and ranges", TXN_READS_MAX, len(self) + reads)
        if self._bytes + size > TXN_READ_BYTES_MAX:
            raise _too_large("bytes of keys", TXN_READ_BYTES_MAX, self._bytes + size)
        self._bytes += size

    def mark(self) -> Held:
        """A place to which `undo_to` comes back."""
        last = self._ranges[-1] if self._ranges else None
        return Held(len(self._keys), len(self._ranges), last, self._bytes)

    def undo_to(self, mark: Held) -> None:
        """Forget what was added since."""
        self._keys = dict.fromkeys(islice(self._keys, mark.keys))
        del self._ranges[mark.ranges :]
        if mark.last is not None:  # which later pages have made longer
            self._ranges[-1] = mark.last
        self._bytes = mark.bytes

    def ops(self, written: Container[bytes] = ()) -> tuple[list[Op], frozenset[bytes]]:
        """One OP_READ for each key that no range contains, and for each range; ranges that touch
        are one. And those of the `written` keys that were read: their reads travel with their
        writes, so that no two ops have one key.
        """
        merged: list[Range] = []
        for start, end in sorted((as_key(start), end) for start, end in self._ranges):
            if merged and (not merged[-1][1] or start <= merged[-1][1]):
                low, high = merged[-1]
                merged[-1] = (low, max(high, end) if high and end else b"")
            elif not end or start < end:
                merged.append((start, end))
        also = {start for start, _ in merged if start in written}
        merged = [(_next_key(start) if start in also else start, end) for start, end in merged]
        merged = [(start, end) for start, end in merged if not end or start < end]
        starts = [start for start, _ in merged]
        single = [key for key in self._keys if not _inside(key, starts, merged)]
        also.update(key for key in single if key in written)
        found = [Op(OP_READ, key) for key in single if key not in also]
        return found + [Op(OP_READ, start, end) for start, end in merged], frozenset(also)


def _next_key(key: bytes) -> bytes:
    """The next key."""
    if len(key) < _KEY_BYTES_MAX:
        return key + b"\x00"
    cut = key.rstrip(b"\xff")  # it is one of the longest
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else key


def _inside(key: bytes, starts: list[bytes], ranges: list[Range]) -> bool:
    at = bisect_right(starts, key) - 1
    return at >= 0 and (not ranges[at][1] or key < ranges[at][1])


def as_key(start: bytes) -> bytes:
    """The start of a range as a legal storage key, at or below every key of the range: no key has
    less than a prefix, and none is longer than the longest.
    """
    return start.ljust(_PREFIX_BYTES, b"\x00")[:_KEY_BYTES_MAX]


def split(ops: Sequence[Op], also: Container[bytes] = ()) -> tuple[list[Op], dict[str, object]]:
    """The writes of a part, and what was read, `also` written, as the options of its request."""
    writes = [op for op in ops if op.kind != OP_READ]
    options: dict[str, object] = {}
    keys = [op.key for op in ops if op.kind == OP_READ and op.value is None]
    keys = sorted(keys + [op.key for op in writes if op.key in also])
    ranges = sorted([op.key, op.value] for op in ops if op.kind == OP_READ and op.value is not None)
    if keys:
        options["reads"] = keys
    if ranges:
        options["ranges"] = ranges
    return writes, options


async def cut(kv: Kv, op: Op) -> list[Op]:
    """A read as one op per partition: a range is cut where partitions meet."""
    pieces: list[Op] = []
    _, key, end, _, _ = op
    while end is not None:
        border = (await kv.locate(key)).end
        if not border or (end and end <= border):
            break
        pieces.append(Op(OP_READ, key, border))
        key = as_key(border)
    pieces.append(Op(OP_READ, key, end))
    return pieces


def _too_large(what: str, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"the serializable transaction has read {actual} {what}; the limit is {limit}; scan a "
        "range instead of many single keys, split it into several transactions, or use snapshot "
        "isolation if write skew does no harm here",
        details={"what": f"{what} read", "limit": limit, "actual": actual},
    )
