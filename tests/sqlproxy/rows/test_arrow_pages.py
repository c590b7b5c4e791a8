"""Pages of sealed records become the columns that row by row gives, or nothing."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.checksum import seal
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.mvcc.records import cur_row
from sqlproxy.rows import arrow_pages, arrow_rows
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Column, Table
from tests.sqlproxy.rows.test_arrow_rows import KEYABLE, VALUES, declare

PREFIX = table_prefix(TableId(7))
READ_TS = 1 << 60


def paged(keys: Sequence[bytes], records: Sequence[bytes]) -> tuple[bytes, bytes]:
    """What SCAN_SEALED answers."""
    flat = list(chain.from_iterable(zip(keys, records, strict=True)))
    return struct.pack(f"<{len(flat)}I", *map(len, flat)), b"".join(flat)


def stored(rows: Sequence[tuple[bytes, bytes]], versions: Sequence[int]) -> tuple[bytes, bytes]:
    found = [
        cur_row(PREFIX + key, value, version, None)[:2]
        for (key, value), version in zip(rows, versions, strict=True)
    ]
    return paged([key for key, _ in found], [record or b"" for _, record in found])


def columns(table: Table, page: tuple[bytes, bytes], names: Any = None) -> Any:
    checked = arrow_pages.plain_page(*page, READ_TS)
    assert checked is not None
    return arrow_pages.page_columns(table, checked, names)


@pytest.mark.slow
@given(data=st.data())
def test_o14_a_sealed_page_is_its_rows(data: st.DataObject) -> None:
    """Spark would read other values than SQL does, or none where there are some."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(KEYABLE)), min_size=1, max_size=2))
    key = list(range(len(kinds)))
    kinds += data.draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=3))
    # More than fifteen slots have another head; longer texts other tags.
    kinds += data.draw(st.sampled_from([[], ["bool"] * 15]))
    table = declare(kinds, key)
    count = data.draw(st.integers(0, 5))
    drawn = []
    for at, kind in enumerate(kinds):
        values = VALUES[kind]
        if kind == "text" and at not in key:
            values |= st.sampled_from(["x" * 31, "é" * 16, "y" * 255, "z" * 256, "w" * 65_536])
        if at not in key:
            values = st.one_of(st.none(), values)
        drawn.append(data.draw(st.lists(values, min_size=count, max_size=count)))
    schema = arrow_rows.arrow_schema(table)
    batch = pa.record_batch(drawn, schema=schema)
    keys, told = arrow_rows.encode_batch(table, batch)
    page = stored(list(zip(keys, told, strict=True)), range(1, count + 1))
    names = data.draw(st.permutations(schema.names))[: data.draw(st.integers(0, 4))]
    for wanted in (None, names):
        found = columns(table, page, wanted)
        assert found is not None, "the usual types are read without rows"
        found.validate(full=True)
        assert found.equals(arrow_rows.decode_batch(table, keys, told, wanted))


def test_o14_a_plain_table_has_its_keys_from_the_page() -> None:
    """A key-value table reads keys with the table's number in front, or none."""
    rows = [(b"a", b""), (b"b\x00", b"\xff" * 300), (b"c", b"1")]
    table = Table.declare("default", "t")
    found = columns(table, stored(rows, [1, 2, 3]))
    assert found.to_pylist() == [{"key": key, "value": value} for key, value in rows]
    assert columns(table, stored(rows, [1, 2, 3]), ["value"]).num_columns == 1


@pytest.mark.parametrize("long", [0, 70_000, 5_000])
def test_o14_one_damaged_byte_anywhere_is_found(long: int) -> None:
    """A flipped bit in a record, key or length reaches Spark as a value."""
    rows = [(b"k%03d" % i, bytes([i]) * (20 + i * 7)) for i in range(40)]
    rows.insert(20, (b"k019x", b"v" * long))
    lengths, blob = stored(rows, [5] * len(rows))
    page = arrow_pages.plain_page(lengths, blob, READ_TS)
    assert page is not None
    for at in (*range(0, len(blob), 97), *range(len(blob) - 4, len(blob))):
        damaged = bytearray(blob)
        damaged[at] ^= 0x10
        assert arrow_pages.plain_page(lengths, bytes(damaged), READ_TS) is None
    for at in range(0, len(lengths), 4):
        sizes = bytearray(lengths)
        sizes[at] ^= 1
        assert arrow_pages.plain_page(bytes(sizes), blob, READ_TS) is None
    moved = blob[: len(blob) // 2] + blob[len(blob) // 2 + 1 :] + b"\x00"
    assert arrow_pages.plain_page(lengths, moved, READ_TS) is None


def test_o14_a_record_under_another_key_is_found() -> None:
    """Rows that change places are each intact in themselves, and wrong."""
    (first, one, *_), (second, two, *_) = (
        cur_row(PREFIX + key, b"v" + key, 5, None) for key in (b"a", b"b")
    )
    assert one is not None
    assert two is not None
    right = paged([first, second], [one, two])
    assert arrow_pages.plain_page(*right, READ_TS) is not None
    assert arrow_pages.plain_page(*paged([first, second], [two, one]), READ_TS) is None


def test_o14_deleted_rows_are_passed_over() -> None:
    """A table of which half is deleted is read row by row for as long as that is kept."""
    table = declare(["text", "int4"], [0])
    rows = [codec(table).encode_row((f"k{i}", i)) for i in range(6)]
    found = [
        cur_row(PREFIX + key, None if at % 2 else value, 5, None)[:2]
        for at, (key, value) in enumerate(rows)
    ]
    both = paged([key for key, _ in found], [record or b"" for _, record in found])
    page = arrow_pages.plain_page(*both, READ_TS, passing=True)
    assert page is not None
    assert page.names() == [PREFIX + key for key, _ in rows[::2]]
    batch = arrow_pages.page_columns(table, page)
    assert batch is not None
    assert batch.column(1).to_pylist() == [0, 2, 4]
    assert arrow_pages.plain_page(*both, 4, passing=True) is None, "they were there then"
    gone = paged(*zip(*found[1::2], strict=True))  # type: ignore[arg-type]
    nothing = arrow_pages.plain_page(*gone, READ_TS, passing=True)
    assert nothing is not None
    assert not len(nothing)


@pytest.mark.parametrize(
    "row",
    [
        cur_row(PREFIX + b"b", b"x", READ_TS + 1, None),
        cur_row(PREFIX + b"b", None, 5, None),
        cur_row(PREFIX + b"b", b"x", 5, None, expire_ms=1),
        (PREFIX + b"b", seal(PREFIX + b"b", b"short"), None, None),
    ],
    ids=["newer", "deleted", "expires", "short"],
)
def test_o14_what_a_reader_sees_otherwise_is_left_to_rows(row: Any) -> None:
    """A reader is shown a row of its future, a deleted or an expired one."""
    key, record, *_ = cur_row(PREFIX + b"a", b"v", READ_TS, None)
    assert record is not None
    assert arrow_pages.plain_page(*paged([key], [record]), READ_TS) is not None
    assert arrow_pages.plain_page(*paged([key, row[0]], [record, row[1]]), READ_TS) is None
    nothing = arrow_pages.plain_page(b"", b"", READ_TS)
    assert nothing is not None
    assert not len(nothing)


@pytest.mark.parametrize(
    "values",
    [
        [[1, 1, "a"], [1, 2]],  # of an older definition
        [[1, 1, "a"], [2, 2, "b"]],  # another format
        [[1, 1, "a"], [1, 1.5, "b"]],
        [[1, "x", "a"], [1, 2, "b"]],
        [[1, 1, "a"], [1, 2, b"b"]],
        [[1, 1, ["a"]], [1, 2, "b"]],
        [[1, 1 << 63, "a"], [1, 2, "b"]],
    ],
)
def test_o14_rows_that_are_not_simple_are_left_to_rows(values: list[list[Any]]) -> None:
    """A value of another kind is taken for a number or a text."""
    table = Table.declare(
        "default", "t", columns=[Column(0, "a", "int8"), Column(0, "b", "text")], primary_key=["a"]
    )
    rows = [(b"%d" % i, msgpack.packb(value)) for i, value in enumerate(values)]
    assert columns(table, stored(rows, [1, 2])) is None
