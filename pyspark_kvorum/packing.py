"""A task's rows as two columns of Arrow, from their encoding until they are bytes of a chunk:
sorted, cut and packed by Arrow's kernels, without a Python object for a key or a value
(docs/decisions/1147).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kv.base import limits
from procedures.sink.format.sink_records import check_fits
from sqlproxy.rows.arrow_msgpack import packed_list

_OFFSET_BYTES = 4
_GONE: Final = b"\xc1"  # stands for a deletion in a digest; no row is this


@dataclass(frozen=True, slots=True)
class Rows:
    """User keys, and values, of which null deletes: binary arrays of one length."""

    keys: pa.Array
    values: pa.Array

    @property
    def count(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return _bytes_of(self.keys) + _bytes_of(self.values)

    @property
    def first(self) -> bytes:
        key: bytes = self.keys[0].as_py()
        return key

    @property
    def last(self) -> bytes:
        key: bytes = self.keys[-1].as_py()
        return key

    def part(self, low: int, high: int) -> Rows:
        """Rows `[low, high)`; nothing is copied."""
        return Rows(self.keys.slice(low, high - low), self.values.slice(low, high - low))

    def taken(self, which: object) -> Rows:
        """The rows at these places, in this order."""
        return Rows(self.keys.take(which), self.values.take(which))

    def lists(self) -> tuple[list[bytes], list[bytes | None]]:
        return self.keys.to_pylist(), self.values.to_pylist()


def _bytes_of(array: pa.Array) -> int:
    ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, _OFFSET_BYTES * array.offset)
    return int(ends[-1]) - int(ends[0])


def digest(rows: Rows) -> int:
    """The sum of the rows' checksums. It is the same for the same rows in any order."""
    keys, values = rows.keys.to_pylist(), rows.values.fill_null(_GONE).to_pylist()
    return sum(map(crc32, values, map(crc32, keys)))


def merged(parts: Sequence[Rows]) -> Rows:
    """One after the other."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        pa.concat_arrays([one.keys for one in parts]),
        pa.concat_arrays([one.values for one in parts]),
    )


def runs(rows: Rows) -> list[tuple[int, int]]:
    """`[low, high)` of each stretch of rising keys."""
    before, after = rows.keys.slice(0, max(0, rows.count - 1)), rows.keys.slice(1)
    falls = np.flatnonzero(pc.greater_equal(before, after).to_numpy(zero_copy_only=False)) + 1
    return [(low, high) for low, high in pairwise([0, *falls.tolist(), rows.count]) if low < high]


def in_order(rows: Rows) -> Rows:
    """Sorted by key; rows of one key stay in their order."""
    if len(runs(rows)) <= 1:
        return rows
    return rows.taken(pc.sort_indices(rows.keys))  # it is stable


def twin(rows: Rows) -> bytes | None:
    """A key that two of these rows have, which are sorted."""
    same = _same_as_next(rows)
    at = pc.index(same, True).as_py()
    return None if at < 0 else rows.keys[at].as_py()


def last_of_twins(rows: Rows) -> Rows:
    """Of rows with one key, which lie side by side, the last."""
    kept = np.ones(rows.count, np.bool_)
    kept[:-1] = pc.invert(_same_as_next(rows)).to_numpy(zero_copy_only=False)
    return rows.taken(pa.array(np.flatnonzero(kept)))


def _same_as_next(rows: Rows) -> pa.Array:
    return pc.equal(rows.keys.slice(0, max(0, rows.count - 1)), rows.keys.slice(1))


def pieces(rows: Rows) -> list[list[Any]]:
    """The pieces of a chunk of these rows, whose keys rise: as `sink_records.pieces_of`. Raises
    TooLarge for a key or a value.
    """
    check_fits("chunk", "key", _longest(rows.keys), limits.KEY_BYTES_MAX)
    check_fits("chunk", "value", _longest(rows.values), limits.VALUE_BYTES_MAX)
    parts = max(1, -(-rows.count // limits.PREWRITE_KEYS_MAX))
    step = max(1, -(-rows.count // parts))
    return [
        piece
        for low in range(0, rows.count, step)
        for piece in _pieces(rows.part(low, min(low + step, rows.count)))
    ]


def _pieces(rows: Rows) -> Iterator[list[object]]:
    keys, values = packed_list(rows.keys), packed_list(rows.values)
    if len(keys) + len(values) > limits.PREWRITE_BYTES_MAX and rows.count > 1:
        half = rows.count // 2
        yield from _pieces(rows.part(0, half))
        yield from _pieces(rows.part(half, rows.count))
    else:
        yield [rows.first, rows.count, rows.last, keys, values]


def _longest(array: pa.Array) -> int:
    longest: int = pc.max(pc.binary_length(array)).as_py() or 0
    return longest
