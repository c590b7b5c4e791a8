"""Entries of indexes: the documented bytes, NULLs in every column, and the order that they give."""

from __future__ import annotations

from dataclasses import replace
from functools import cmp_to_key
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.ids import TableId
from kv.base.limits import KEY_BYTES_MAX
from sqlproxy.rows import keys, rows
from sqlproxy.rows.schema import Column, Index, IndexColumn, Table
from sqlproxy.tables.entries import index_codec
from tests.sqlproxy.rows.test_rows import ALL, VALUES

ORDERED = tuple(kind for kind in ALL if kind != "json")


def table(*columns: tuple[str, str], key: tuple[str, ...] = ("id",)) -> Table:
    made = [Column(0, name, kind) for name, kind in columns]
    return replace(Table.declare("default", "t", columns=made, primary_key=key), id=TableId(100))


def index(*columns: IndexColumn, unique: bool = False, include: tuple[int, ...] = ()) -> Index:
    return Index(TableId(101), "t_idx", columns, unique, include)


def test_p6_entries_are_the_documented_bytes() -> None:
    """The layout is on disk: a change here is a new format, not an edit."""
    t = table(("id", "int4"), ("a", "text"), ("b", "int4"), ("c", "numeric(6,2)"))
    row = (7, "é", -2, None)
    seven, minus_two = "20" + "8000000000000007", "20" + "7ffffffffffffffe"
    text = "50" + "c3a9" + "0001"
    down = bytes(255 - byte for byte in bytes.fromhex(minus_two)).hex()
    up, desc = IndexColumn(2), IndexColumn(3, descending=True, nulls_first=True)
    for given_, key, value in (
        (index(up), text + seven, [1]),
        (index(up, include=(3, 4)), text + seven, [1, -2, None]),
        (index(up, unique=True), text, [1, 7]),
        (index(up, unique=True, include=(3,)), text, [1, 7, -2]),
        (index(desc), down + seven, [1]),
        (index(desc, up), down + text + seven, [1]),
        (index(IndexColumn(4), unique=True), "ff" + seven, [1]),
        (index(IndexColumn(4, nulls_first=True), unique=True), "00" + seven, [1]),
        (index(IndexColumn(4, descending=True, nulls_first=True)), "00" + seven, [1]),
        (index(IndexColumn(4, descending=True)), "ff" + seven, [1]),
    ):
        codec = index_codec(t, given_)
        found = codec.entry(row)
        assert (found[0].hex(), msgspec.msgpack.decode(found[1])) == (key, value), given_
        assert codec.row_key(*found) == rows.encode_key(t, (7,))
        assert codec.entry_of(rows.codec(t).decode_slots(*rows.encode_row(t, row))) == found


@given(data=st.data())
def test_p7_nulls_in_every_column_come_back(data: st.DataObject) -> None:
    """An entry that lost its row, or took a NULL for a value, would answer with another row."""
    kinds = data.draw(st.lists(st.sampled_from(ORDERED), min_size=1, max_size=3))
    columns = [(f"c{i}", kind) for i, kind in enumerate(kinds)]
    t = table(("id", "int8"), *columns, ("more", "json"))
    parts = [
        IndexColumn(i + 2, data.draw(st.booleans()), data.draw(st.booleans()))
        for i in range(len(kinds))
    ]
    one = index(*parts, unique=data.draw(st.booleans()), include=(len(kinds) + 2,))
    values = [data.draw(st.none() | VALUES[kind]) for kind in kinds]
    row = (data.draw(VALUES["int8"]), *values, data.draw(st.none() | VALUES["json"]))
    codec = index_codec(t, one)
    entry = codec.decode(*codec.entry(row))
    assert entry.row_key == rows.encode_key(t, row[:1])
    assert entry.included == row[-1:]
    for kind, found, given_ in zip(kinds, entry.values, values, strict=True):
        assert found == given_ or kind.startswith("numeric"), kind
        assert (found is None) == (given_ is None)
    assert codec.entry(row)[0].startswith(codec.prefix(values))
    assert codec.unique_key(values) == (
        codec.entry(row)[0] if one.unique and None not in values else None
    )


@given(data=st.data())
def test_p6_entries_of_many_rows_are_those_of_each(data: st.DataObject) -> None:
    """A new index is filled many rows at a time: writers would not find the entries to remove."""
    kinds = data.draw(st.lists(st.sampled_from(ORDERED), min_size=1, max_size=3))
    columns = [(f"c{i}", kind) for i, kind in enumerate(kinds)]
    t = table(("id", "int8"), ("name", "text"), *columns, key=("name", "id"))
    parts = [
        IndexColumn(i + 3, data.draw(st.booleans()), data.draw(st.booleans()))
        for i in range(len(kinds))
    ]
    include = data.draw(st.sampled_from([(), (1,), (len(kinds) + 2, 2)]))
    one = index(*parts, unique=data.draw(st.booleans()), include=include)
    nulls = data.draw(st.booleans())
    cells = [(st.none() | VALUES[kind]) if nulls else VALUES[kind] for kind in kinds]
    made = data.draw(st.lists(st.tuples(VALUES["int8"], VALUES["text"], *cells), max_size=8))
    codec, row_codec = index_codec(t, one), rows.codec(t)
    stored = [row_codec.encode_row(row) for row in made]
    many = row_codec.decode_many([value for _, value in stored])
    assert many == [row_codec.decode_slots(*row) for row in stored]
    each = [codec.entry_of(slots) for slots in many]
    assert codec.entries_of(many) == ([key for key, _ in each], [value for _, value in each])


def test_p6_what_is_too_long_or_of_another_version_is_found_among_many() -> None:
    """An entry that cannot be would be refused by the store, without the index's name; and rows
    from before a column was added would be read as if they had it.
    """
    t = table(("id", "int4"), ("a", "text"))
    codec, row_codec = index_codec(t, index(IndexColumn(2))), rows.codec(t)
    values = [row_codec.encode_row((n, "x" * n))[1] for n in (1, KEY_BYTES_MAX)]
    with pytest.raises(TooLarge, match="t_idx"):
        codec.entries_of(row_codec.decode_many(values))
    short = msgspec.msgpack.encode([1, 7])
    for other in (
        short,
        msgspec.msgpack.encode([1, 7, "x", "y"]),
        b"\x93\x02\x07\xc0",
        b"\x93",
        b"",
    ):
        assert row_codec.decode_many([values[0], other]) is None


@given(data=st.data())
def test_c3_entries_are_in_the_order_of_the_index(data: st.DataObject) -> None:
    """DESC and NULLS FIRST are bytes: in the wrong order, ORDER BY by an index would lie."""
    parts = tuple(
        IndexColumn(number, data.draw(st.booleans()), data.draw(st.booleans())) for number in (2, 3)
    )
    t = table(("id", "int4"), ("a", "text"), ("b", "int4"))
    letters = st.none() | st.text(st.sampled_from("\x01ab\xff"), max_size=3)
    drawn = st.tuples(st.integers(0, 3), letters, st.none() | st.integers(-2, 2))
    given_ = data.draw(st.lists(drawn, max_size=20))
    codec = index_codec(t, index(*parts))

    def order(x: Any, y: Any) -> int:
        for part in parts:
            a, b = x[part.column - 1], y[part.column - 1]
            if (a is None) != (b is None):
                return -1 if (a is None) == part.nulls_first else 1
            if a != b:
                return (1 if a > b else -1) * (-1 if part.descending else 1)
        return int(x[0] > y[0]) - int(x[0] < y[0])

    by_value = sorted(given_, key=cmp_to_key(order))
    by_bytes = sorted(given_, key=lambda row: codec.entry(row)[0])
    assert by_value == by_bytes


def test_entries_that_cannot_be_are_refused() -> None:
    """Damage and sizes must be found here, with the name of the index."""
    t = table(("id", "int4"), ("a", "text"))
    codec = index_codec(t, index(IndexColumn(2), unique=True))
    key, value = codec.entry((1, "x"))
    for bad_key, bad_value in (
        (key, b""),
        (key, b"\xc1"),
        (key, msgspec.msgpack.encode([2, 1])),
        (b"", value),
        (key[:-1], value),
        (b"\x20" + key[1:], value),
    ):
        with pytest.raises(Corruption, match="t_idx"):
            codec.decode(bad_key, bad_value)
    with pytest.raises(TooLarge, match="t_idx"):
        codec.entry((1, "x" * KEY_BYTES_MAX))
    with pytest.raises(InvalidArgument, match="2 values"):
        codec.prefix(("a", "b"))
    with pytest.raises(InvalidArgument, match="column a"):
        codec.prefix((1,))


def test_c3_what_has_no_order_says_why() -> None:
    """A type without an order must not silently get one."""
    from sqlproxy.values.types import resolve

    assert keys.unordered(resolve("json")) == "json has no order"
    assert "not supported" in keys.unordered(resolve("jsonb"))
    assert "json" in keys.unordered(resolve("json[]"))
    assert not keys.unordered(resolve("interval"))
    assert not keys.unordered(resolve("varchar(3)[]"))
