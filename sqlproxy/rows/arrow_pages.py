"""Pages of sealed records (SCAN_SEALED) as Arrow columns, without an object for any row.

A page is what lies in the store: key, record, key, record, … in one piece, and the length of each.
Reading it is four walks over arrays of positions, one position per row:

    seals     crc32 of a stretch of rows is one call. What it comes to if every row is intact
              follows from the rows' lengths: crc32 is linear, and each intact row alone comes to
              CRC_OK. One damaged row always shows; two hide each other once in 2^32
    versions  at fixed places after each key. A page with a newer version than the reader's, or a
              record with flags (expires, or deleted unless that is passed over), is not for this
              way
    slots     a row's msgpack is an array of scalars: a place per row goes from slot to slot; what
              has one tag in all rows (nearly every column) costs a few operations of numpy
    columns   numbers are gathered; of texts Arrow copies every second piece of the page

Whatever is not so simple is left to `sqlproxy.rows.arrow_rows`, which takes rows one by one: `None`
says so. Nothing is guessed here: an unknown tag, another count of slots, a number in a text column.

Needs the extra `spark` (pyarrow and numpy), as `arrow_rows` does.
Measured (text key of 16 B, text of 100 B): 0.15 µs per row, of which 0.07 are crc32; 0.65 by rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kv.base.checksum import CRC_BYTES, CRC_OK
from kv.base.errors import InvalidArgument
from kv.mvcc.records import TOMBSTONE
from sqlproxy.rows import rows
from sqlproxy.rows.arrow_rows import STORED_INT, arrow_schema, from_stored, of_column
from sqlproxy.rows.schema import Column, Table
from sqlproxy.values.types import Type

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_PREFIX_BYTES: Final = 4  # of the table, in storage keys
_STRETCH_BYTES: Final = 1 << 16  # checked by one call, if no row alone is longer
_VERSION: Final = 8
_HEAD: Final = 9  # of a record without flags: version, flags
_POLYNOMIAL: Final = 0xEDB88320

# msgpack: what follows a tag. `_SKIP` bytes up to the payload, then `_FIXED` bytes of it, or as
# many as the `_COUNTED` bytes after the tag say. `_SKIP` 0: nothing that is read here.
_SKIP: Final = np.zeros(256, np.int64)
_FIXED: Final = np.zeros(256, np.int64)
_COUNTED: Final = np.zeros(256, np.int64)
_SKIP[0x00:0x80] = _SKIP[0xE0:] = _SKIP[0xA0:0xC0] = 1
_SKIP[[0xC0, 0xC2, 0xC3]] = 1
_FIXED[0xA0:0xC0] = np.arange(32)
for _tag, _width in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
    _SKIP[[_tag, _tag + 4]], _FIXED[[_tag, _tag + 4]] = 1, _width
_SKIP[[0xCA, 0xCB]], _FIXED[[0xCA, 0xCB]] = 1, (4, 8)
for _tags, _width in (((0xC4, 0xD9), 1), ((0xC5, 0xDA), 2), ((0xC6, 0xDB), 4)):
    _SKIP[list(_tags)], _COUNTED[list(_tags)] = 1 + _width, _width

_NIL: Final = 0xC0
_FALSE, _TRUE = 0xC2, 0xC3
_ARRAY4, _ARRAY16 = 0x90, 0xDC  # the head of an array of fewer than 16 values, and of more
_FLOAT64: Final = 0xCB
_TEXTS: Final = (*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB)
_BINARIES: Final = (0xC4, 0xC5, 0xC6)
_INTS: Final = (*range(0x80), *range(0xE0, 0x100), *range(0xCC, 0xD4))
_UNSIGNED: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED: Final = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_STRINGS: Final = frozenset({"text", "varchar", "name", "json", "jsonb", "bytea"})
_FLOATS: Final = {"float4": np.float32, "float8": np.float64}


def _table_of(tags: Sequence[int]) -> NDArray[np.bool_]:
    found = np.zeros(256, np.bool_)
    found[list(tags)] = True
    return found


_IS_TEXT: Final = _table_of(_TEXTS)
_IS_BINARY: Final = _table_of(_BINARIES)
_IS_INT: Final = _table_of(_INTS)


class Page:
    """The rows of a page, checked. Made by `plain_page`."""

    __slots__ = ("blob", "data", "ends", "keys", "records")

    def __init__(self, blob: bytes, data: Bytes, keys: Places, records: Places, ends: Places):
        self.blob, self.data = blob, data
        self.keys, self.records, self.ends = keys, records, ends  # where they begin; where rows end

    def __len__(self) -> int:
        return len(self.keys)

    def versions(self) -> Any:
        """The first eight bytes of each record; of one in `hist` the version that replaced it."""
        return _numbers(self.data, self.records, 8)

    def tails(self) -> Any:
        """The last eight bytes of each key."""
        return _numbers(self.data, self.records - 8, 8)

    def pieces(self, starts: Places, ends: Places) -> pa.Array:
        """Bytes of the page, which rise and do not overlap, as an array."""
        return _binaries(self, starts, ends, None)

    def names(self) -> list[bytes]:
        """The keys."""
        blob = self.blob
        places = zip(self.keys.tolist(), self.records.tolist(), strict=True)
        return [blob[start:end] for start, end in places]


def plain_page(lengths: bytes, blob: bytes, read_ts: int, *, passing: bool = False) -> Page | None:
    """The page, if every row of it is intact, and what a reader at `read_ts` sees as it is.
    `passing`: deleted rows are passed over.
    """
    sizes = np.frombuffer(lengths, "<u4").astype(np.int64)
    edges = np.cumsum(sizes)
    if len(sizes) % 2 or (len(edges) and edges[-1] != len(blob)):
        return None
    records, ends = edges[0::2], edges[1::2]
    data: Bytes = np.frombuffer(blob, np.uint8)
    if len(ends) and (ends - records).min() < _HEAD + CRC_BYTES:
        return None
    flags = data[records + _VERSION]
    if flags.max(initial=0) > (TOMBSTONE if passing else 0) or not _intact(blob, ends):
        return None
    if len(ends) and _numbers(data, records, 8).max() > read_ts:
        return None
    keys = edges[0::2] - sizes[0::2]
    if flags.any():
        there = flags == 0
        keys, records, ends = keys[there], records[there], ends[there]
    return Page(blob, data, keys, records, ends)


def page_columns(
    table: Table, page: Page, columns: Sequence[str] | None = None, texts: Collection[str] = ()
) -> pa.RecordBatch | None:
    """The rows as a batch of `arrow_schema(table, columns, texts)`, if they are simple."""
    schema = arrow_schema(table, columns, texts)
    values, ends = page.records + _HEAD, page.ends - CRC_BYTES
    if table.plain:
        spans = {"key": (page.keys + _PREFIX_BYTES, page.records), "value": (values, ends)}
        plain = [_binaries(page, *spans[name], None) for name in schema.names]
        return pa.RecordBatch.from_arrays(plain, schema=schema)
    if not schema.names:  # a count: no columns, but rows
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(page), pa.struct([])))
    arrays = stored_columns(table, page, [(table.column(f.name), f.type) for f in schema])
    return None if arrays is None else pa.RecordBatch.from_arrays(arrays, schema=schema)


def stored_columns(
    table: Table, page: Page, columns: Sequence[tuple[Column, pa.DataType]]
) -> list[pa.Array] | None:
    """Some columns of a table that is not plain, each as the Arrow type that is wanted (see
    `arrow_rows.stored_columns`), if the rows are simple.
    """
    if not columns:
        return []
    at = _first_slot(page.data, page.records + _HEAD, rows.codec(table).slots)
    if at is None:
        return None
    wanted = {column.id: i for i, (column, _) in enumerate(columns)}
    arrays: list[pa.Array] = [None] * len(columns)
    for slot in range(1, max(wanted) + 1):
        found = _Slot.at(page, at)
        if found is None:
            return None
        at = found.ends
        place = wanted.get(slot)
        if place is not None:
            column, kind = columns[place]
            try:
                array = found.array(column.resolved, kind)
            except InvalidArgument as error:
                raise of_column(table, column, error) from error
            if array is None:
                return None
            arrays[place] = array
    return arrays


# -- seals


def _intact(blob: bytes, ends: Places) -> bool:
    """Whether each row has its checksum, in stretches of many rows."""
    whole = memoryview(blob)
    shifted = _shifted()
    start = at = 0
    while at < len(ends):
        upto = int(np.searchsorted(ends, start + _STRETCH_BYTES, side="right"))
        if upto <= at:  # one long row
            upto = at + 1
            expected = CRC_OK
        else:
            expected = int(np.bitwise_xor.reduce(shifted[ends[upto - 1] - ends[at:upto]]))
        end = int(ends[upto - 1])
        if crc32(whole[start:end]) != expected:
            return False
        start, at = end, upto
    return True


@cache
def _shifted() -> NDArray[np.uint32]:
    """CRC_OK moved on by 0, 1, 2, … zero bytes: what an intact row adds to the checksum of a
    stretch that ends so many bytes after it. Each doubling moves all by as many bytes.
    """
    found = np.array([CRC_OK], np.uint32)
    move = _byte_moves()
    while len(found) < _STRETCH_BYTES:
        found = np.concatenate([found, _moved(move, found)])
        move = np.stack([_moved(move, part) for part in move])
    return found


def _byte_moves() -> NDArray[np.uint32]:
    """One zero byte, as four tables: what each byte of a checksum becomes."""
    low = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        low = np.where(low & 1, (low >> 1) ^ np.uint32(_POLYNOMIAL), low >> 1).astype(np.uint32)
    others = [np.arange(256, dtype=np.uint32) << np.uint32(8 * k - 8) for k in (1, 2, 3)]
    return np.stack([low, *others])


def _moved(move: Any, sums: Any) -> Any:
    found = move[0][sums & 0xFF]
    for k in (1, 2, 3):
        found = found ^ move[k][(sums >> np.uint32(8 * k)) & 0xFF]
    return found


# -- slots


def _numbers(data: Bytes, at: Places, width: int) -> Any:
    """Big-endian numbers of so many bytes, unsigned."""
    found = data[at[:, None] + np.arange(width)]
    return found.view(f">u{width}").ravel().astype(f"u{width}")


def _first_slot(data: Bytes, values: Places, slots: int) -> Places | None:
    """Where the first column of each row begins, if all are arrays of so many slots in our
    format.
    """
    if slots < 16:
        heads, width = data[values] == _ARRAY4 | slots, 1
    else:
        heads, width = (data[values] == _ARRAY16) & (_numbers(data, values + 1, 2) == slots), 3
    if not heads.all() or not (data[values + width] == rows.ROW_FORMAT).all():
        return None
    return values + (width + 1)


class _Slot:
    """One column of all rows, as it is stored."""

    __slots__ = ("_page", "ends", "places", "starts", "tags")

    def __init__(self, page: Page, places: Places, tags: Bytes, starts: Places, ends: Places):
        self._page, self.places, self.tags = page, places, tags
        self.starts, self.ends = starts, ends  # of the payloads

    @classmethod
    def at(cls, page: Page, places: Places) -> _Slot | None:
        """None: there are values that are not scalars."""
        data = page.data
        tags = data[places]
        if not len(tags) or (tags == tags[0]).all():
            tag = tags[:1]
            skip, fixed, counted = _SKIP[tag], _FIXED[tag], set(_COUNTED[tag].tolist())
        else:
            skip, fixed, counted = _SKIP[tags], _FIXED[tags], set(_COUNTED[tags].tolist())
        if not skip.all():
            return None
        starts = places + skip
        if counted == {0}:
            return cls(page, places, tags, starts, starts + fixed)
        if len(counted) == 1:
            return cls(
                page,
                places,
                tags,
                starts,
                starts + _numbers(data, places + 1, counted.pop()).astype(np.int64),
            )
        sizes = np.broadcast_to(fixed, len(places)).copy()
        for width in counted - {0}:
            those = _COUNTED[tags] == width
            sizes[those] = _numbers(data, places[those] + 1, width)
        return cls(page, places, tags, starts, starts + sizes)

    def array(self, kind: Type, wanted: pa.DataType) -> pa.Array | None:
        """The column as the Arrow type that is wanted; None: not of what is stored here."""
        missing = self.tags == _NIL
        nulls = missing if missing.any() else None
        there = self.tags if nulls is None else self.tags[~missing]
        base = kind.base
        if base in STORED_INT:
            if not _IS_INT[there].all():
                return None
            ints = self._ints()
            if ints is None:
                return None
            stored = STORED_INT[base]
            return pa.array(ints.astype(stored.to_pandas_dtype()), stored, mask=nulls).view(wanted)
        if base == "enum":
            ints = self._ints() if _IS_INT[there].all() else None
            if ints is None:
                return None
            places = pa.array(ints, pa.int64(), mask=nulls)
            return places if wanted == pa.int64() else from_stored(kind, places.to_pylist(), wanted)
        if base in _FLOATS:
            return self._floats(_FLOATS[base], there, nulls, wanted)
        if base == "bool":
            if not ((there == _FALSE) | (there == _TRUE)).all():
                return None
            return pa.array(self.tags == _TRUE, wanted, mask=nulls)
        texts, binaries = _IS_TEXT[there].all(), _IS_BINARY[there].all()
        if not texts and not binaries:
            return None
        found = _binaries(self._page, self.starts, self.ends, nulls)
        if base in _STRINGS:
            if pa.types.is_binary(wanted):
                return found if binaries else None
            return found.cast(wanted) if texts else None
        stored = found if not texts else found.cast(pa.string())
        return from_stored(kind, stored.to_pylist(), wanted)

    def _ints(self) -> Any:
        data, tags = self._page.data, self.tags
        found = tags.view(np.int8).astype(np.int64)  # the small ones are their tags
        for tag in np.unique(tags).tolist():
            width = _UNSIGNED.get(tag) or _SIGNED.get(tag)
            if width is None:
                continue
            those = tags == tag
            numbers = _numbers(data, self.places[those] + 1, width)
            if tag == 0xCF and numbers.max() > np.iinfo(np.int64).max:
                return None
            found[those] = numbers.view(f"i{width}") if tag in _SIGNED else numbers
        return found

    def _floats(
        self, kind: object, there: Bytes, nulls: Any, wanted: pa.DataType
    ) -> pa.Array | None:
        if not (there == _FLOAT64).all():
            return None
        if nulls is None:
            numbers = _numbers(self._page.data, self.starts, 8).view(np.float64)
        else:
            numbers = np.zeros(len(self.tags), np.float64)
            those = ~nulls
            numbers[those] = _numbers(self._page.data, self.starts[those], 8).view(np.float64)
        # A NaN is a value, which Arrow would take for none if there is a mask.
        return pa.array(numbers.astype(kind), wanted, mask=nulls, from_pandas=False)


def _binaries(page: Page, starts: Places, ends: Places, nulls: object) -> pa.Array:
    """Pieces of the page. It is one array of pieces and of what lies between them, of which every
    second is taken.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2], edges[1::2] = starts, ends
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(page.blob)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=nulls))
