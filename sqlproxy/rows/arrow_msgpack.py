"""Columns of Arrow as msgpack, by Arrow's kernels and numpy: no Python object for a value.

Each function gives binary arrays that are to be put side by side (`joined`): then each element is
the msgpack of one value, the same bytes as `rows.encode_msgpack` makes of it (the shortest form);
null is nil. `packed_list` puts elements after one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sqlproxy.rows.rows import encode_msgpack

Bytes = NDArray[np.uint8]

Parts = list[pa.Array | pa.Scalar]

NIL: Final = pa.scalar(b"\xc0", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())
_TRUE, _FALSE = pa.scalar(b"\xc3", pa.binary()), pa.scalar(b"\xc2", pa.binary())
_FLOAT64: Final = 0xCB
# Integers, from the lowest on: where a form begins, its bytes, and its first one.
_FORMS: Final = np.array(
    [-(1 << 63), -(1 << 31), -(1 << 15), -(1 << 7), -32, 128, 256, 1 << 16, 1 << 32]
)
_SIZES: Final = np.array([9, 5, 3, 2, 1, 2, 3, 5, 9], np.int32)
_HEADS: Final = (0xD3, 0xD2, 0xD1, 0xD0, None, 0xCC, 0xCD, 0xCE, 0xCF)
_LENGTHS_KEPT: Final = 256


def _text_head(size: int) -> bytes:
    if size < 32:
        return bytes((0xA0 | size,))
    if size < 1 << 8:
        return b"\xd9" + size.to_bytes(1)
    return b"\xda" + size.to_bytes(2) if size < 1 << 16 else b"\xdb" + size.to_bytes(4)


def _bin_head(size: int) -> bytes:
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1)
    return b"\xc5" + size.to_bytes(2) if size < 1 << 16 else b"\xc6" + size.to_bytes(4)


def list_head(count: int) -> bytes:
    """Of a list of so many."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


_TEXT_HEADS, _BIN_HEADS = (
    pa.array(map(head, range(_LENGTHS_KEPT)), pa.binary()) for head in (_text_head, _bin_head)
)


def of_text(array: pa.Array) -> Parts:
    """Of strings, which are UTF-8 (`pa.Array.validate(full=True)` says so)."""
    return _with_heads(array.cast(pa.binary()), _TEXT_HEADS, _text_head)


def of_bytes(array: pa.Array) -> Parts:
    """Of binaries."""
    return _with_heads(array, _BIN_HEADS, _bin_head)


def _with_heads(array: pa.Array, kept: pa.Array, head: Callable[[int], bytes]) -> Parts:
    sizes = pc.fill_null(pc.binary_length(array), 0)
    if (pc.max(sizes).as_py() or 0) < _LENGTHS_KEPT:
        heads = kept.take(sizes)
    else:
        found, which = np.unique(sizes.to_numpy(), return_inverse=True)
        heads = pa.array(map(head, found.tolist()), pa.binary()).take(pa.array(which))
    return [_or_nil(joined([heads, array]))] if array.null_count else [heads, array]


def of_ints(array: pa.Array) -> Parts:
    """Of integers of any width with a sign."""
    numbers = array.fill_null(0).to_numpy().astype(np.int64, copy=False)
    form = np.searchsorted(_FORMS, numbers, side="right") - 1
    sizes = _SIZES[form]
    ends = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    bodies = big_endian(numbers)
    out: Bytes = np.empty(int(ends[-1]), np.uint8)
    for which in np.unique(form).tolist():
        rows = np.flatnonzero(form == which)
        at, size, head = ends[rows], int(_SIZES[which]), _HEADS[which]
        if head is None:
            out[at] = bodies[rows, 7]
            continue
        out[at] = head
        for byte in range(1, size):
            out[at + byte] = bodies[rows, 8 - size + byte]
    return [_nil_where(array, _array_of(ends, out))]


def of_floats(array: pa.Array) -> Parts:
    """Of floats of four or eight bytes, as eight."""
    numbers = array.fill_null(0.0).to_numpy().astype(np.float64, copy=False)
    matrix = np.empty((len(numbers), 9), np.uint8)
    matrix[:, 0] = _FLOAT64
    matrix[:, 1:] = big_endian(numbers.view(np.uint64))
    return [_nil_where(array, of_matrix(matrix))]


def of_bools(array: pa.Array) -> Parts:
    """Of booleans."""
    return [_or_nil(pc.if_else(array, _TRUE, _FALSE))]


def of_objects(values: Iterable[object]) -> Parts:
    """Of anything that `rows.encode_msgpack` takes: an object per value after all."""
    return [pa.array(map(encode_msgpack, values), pa.binary())]


def joined(parts: Parts) -> pa.Array:
    """Element by element, without anything between; at least one part is an array."""
    return pc.binary_join_element_wise(*parts, _NOTHING)


def packed_list(array: pa.Array) -> bytes:
    """The msgpack list of binaries; null is nil."""
    body = joined(of_bytes(array))
    ends = np.frombuffer(body.buffers()[1], np.int32, len(body) + 1, 4 * body.offset)
    data = memoryview(body.buffers()[2] or b"")
    return b"".join((list_head(len(body)), data[int(ends[0]) : int(ends[-1])]))


def of_matrix(matrix: Bytes) -> pa.Array:
    """Its rows, as binaries."""
    count, width = matrix.shape
    ends = (np.arange(count + 1) * width).astype(np.int32)
    return _array_of(ends, np.ascontiguousarray(matrix))


def big_endian(numbers: NDArray[np.generic]) -> Bytes:
    """The bytes of each, as the rows of a matrix."""
    width = numbers.dtype.itemsize
    turned = numbers.astype(numbers.dtype.newbyteorder(">"))
    return cast(Bytes, turned.view(np.uint8).reshape(-1, width))


def _array_of(ends: NDArray[np.generic], data: Bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _nil_where(array: pa.Array, encoded: pa.Array) -> pa.Array:
    return pc.if_else(array.is_null(), NIL, encoded) if array.null_count else encoded


def _or_nil(encoded: pa.Array) -> pa.Array:
    return pc.fill_null(encoded, NIL) if encoded.null_count else encoded
