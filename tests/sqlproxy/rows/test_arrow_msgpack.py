"""Columns as msgpack: the same bytes as value by value."""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument
from sqlproxy.rows import arrow_msgpack, arrow_rows
from sqlproxy.rows.rows import encode_msgpack
from sqlproxy.rows.schema import Column, Table

EDGES = [n + d for n in (0, *(1 << b for b in (5, 7, 8, 15, 16, 31, 32, 62))) for d in (-1, 0, 1)]
INTS = [sign * n for n in EDGES for sign in (1, -1)] + [-(1 << 63), (1 << 63) - 1]
SIZES = [0, 1, 31, 32, 255, 256, 65_535, 65_536]


def same(parts: arrow_msgpack.Parts, values: list[Any]) -> None:
    assert arrow_msgpack.joined(parts).to_pylist() == [encode_msgpack(value) for value in values]


def test_integers_have_their_shortest_form() -> None:
    """A row of another length is another row to whoever compares bytes."""
    same(arrow_msgpack.of_ints(pa.array(INTS, pa.int64())), INTS)
    some = [None, *INTS, None]
    same(arrow_msgpack.of_ints(pa.array(some, pa.int64())), some)
    same(arrow_msgpack.of_ints(pa.array(some, pa.int64()).slice(3, 9)), some[3:12])
    small = [-128, -33, -32, None, 0, 127]
    same(arrow_msgpack.of_ints(pa.array(small, pa.int8())), small)
    same(arrow_msgpack.of_ints(pa.array([None, None], pa.int64())), [None, None])
    same(arrow_msgpack.of_ints(pa.array([], pa.int64())), [])


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_integers_as_one_by_one(values: list[int | None]) -> None:
    """As above, of any."""
    same(arrow_msgpack.of_ints(pa.array(values, pa.int64())), values)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("longest", SIZES)
def test_texts_and_bytes_of_any_length(longest: int, nulls: bool) -> None:
    """A head of the wrong width makes the whole row unreadable."""
    sizes = [size for size in SIZES if size <= longest]
    texts = ["x" * size for size in sizes] + ([None] if nulls else [])
    same(arrow_msgpack.of_text(pa.array(texts, pa.string())), texts)
    raw = [None if text is None else text.encode() for text in texts]
    array = pa.array(raw, pa.binary())
    same(arrow_msgpack.of_bytes(array), raw)
    assert arrow_msgpack.packed_list(array) == msgpack.packb(raw)
    assert arrow_msgpack.packed_list(array.slice(1)) == msgpack.packb(raw[1:])


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_a_list_of_many(count: int) -> None:
    """The head of a list says how many there are."""
    values = [b"v"] * count
    assert arrow_msgpack.packed_list(pa.array(values)) == msgpack.packb(values)


def test_floats_and_booleans() -> None:
    """Every one as eight bytes; what is missing as nil."""
    floats = [0.0, -0.0, 1.5, float("inf"), None, 5e-324]
    same(arrow_msgpack.of_floats(pa.array(floats, pa.float64())), floats)
    same(arrow_msgpack.of_floats(pa.array([1.5, None], pa.float32())), [1.5, None])
    for booleans in ([True, False], [None, True, False]):
        same(arrow_msgpack.of_bools(pa.array(booleans, pa.bool_())), booleans)


def test_text_that_is_not_utf_8_is_refused_with_its_row() -> None:
    """Spark makes a string of any bytes; stored, the row could never be read again."""
    table = Table.declare(
        "default", "t", columns=[Column(0, "k", "int4"), Column(0, "v", "text")], primary_key=["k"]
    )
    raw = pa.array([b"fine", None, b"\xff\xfe"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    batch = pa.record_batch([pa.array([1, 2, 3], pa.int32()), broken], names=["k", "v"])
    with pytest.raises(InvalidArgument, match=r"column v .* row 2 .* not UTF-8"):
        arrow_rows.encode_batch(table, batch)
    assert len(arrow_rows.encode_batch(table, batch.slice(0, 2))[0]) == 2
