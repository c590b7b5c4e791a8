"""Rows of tables as bytes: what is stored, what is refused, and what comes back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.limits import COLUMNS_MAX, KEY_BYTES_MAX, NAME_CHARS_MAX, VALUE_BYTES_MAX
from sqlproxy.rows import rows
from sqlproxy.rows.schema import Column, Table, placed

ALL = (
    "bool",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "numeric(10,2)",
    "text",
    "bytea",
    "uuid",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "json",
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(1 << 15), (1 << 15) - 1),
    "int4": st.integers(-(1 << 31), (1 << 31) - 1),
    "int8": st.integers(-(1 << 63), (1 << 63) - 1),
    "float4": st.floats(width=32, allow_nan=False),
    "float8": st.floats(allow_nan=False),
    "numeric": st.decimals(allow_nan=False, min_value=-(10**20), max_value=10**20),
    "numeric(10,2)": st.decimals(-(10**8) + 1, 10**8 - 1, places=2),
    "text": st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    "bytea": st.binary(),
    "uuid": st.uuids(),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "json": st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text()), st.lists
    ).map(lambda value: msgspec.json.encode(value).decode()),
}


def declare(*columns: tuple[str, str] | Column, key: tuple[str, ...] = ("k",)) -> Table:
    made = [c if isinstance(c, Column) else Column(0, *c) for c in columns]
    return Table.declare("default", "t", columns=made, primary_key=key)


@pytest.mark.slow
@given(data=st.data())
def test_a_row_of_every_type_comes_back(data: st.DataObject) -> None:
    """Any value that is accepted must be read as it was written."""
    table = declare(("k", "int8"), *((f"c{i}", kind) for i, kind in enumerate(ALL)))
    row = (data.draw(VALUES["int8"]), *(data.draw(st.one_of(st.none(), VALUES[k])) for k in ALL))
    key, value = rows.encode_row(table, row)
    assert rows.decode_row(table, key, value) == row
    assert rows.decode_key(table, key) == row[:1]
    by_name = dict(zip(rows.codec(table).names, row, strict=True))
    assert rows.encode_row(table, by_name) == (key, value)


def test_p7_null_in_every_column_comes_back() -> None:
    """NULL must not become zero or an empty text in any type."""
    table = declare(("k", "int4"), *((f"c{i}", kind) for i, kind in enumerate(ALL)))
    key, value = rows.encode_row(table, {"k": 1})
    assert rows.decode_row(table, key, value) == (1, *([None] * len(ALL)))
    for kind in set(ALL) - {"json"}:
        one = declare(("k", kind))
        with pytest.raises(InvalidArgument, match="not nullable"):
            rows.encode_row(one, (None,))


def test_p6_the_bytes_are_as_documented() -> None:
    """The layout is on disk: a change here is a new row_format, not an edit."""
    table = declare(
        ("a", "text"), ("k", "int4"), ("d", "date"), ("x", "numeric(6,2)"), key=("k", "a")
    )
    key, value = rows.encode_row(table, ("é", -2, date(1970, 1, 3), Decimal("1.5")))
    assert key.hex() == "20" + "7ffffffffffffffe" + "50" + "c3a9" + "0001"
    assert msgspec.msgpack.decode(value) == [1, "é", -2, 2, "1.50"]
    for kind, given_, wanted in (
        ("bool", True, "1001"),
        ("float8", 1.0, "30" + "bff0000000000000"),
        ("float8", -1.0, "30" + "400fffffffffffff"),
        ("numeric", Decimal("12.3"), "40a0" + "80000002" + "0d1f00"),
        ("numeric", Decimal("-12.3"), "4060" + "7ffffffd" + "f2e0ff"),
        ("numeric", Decimal(0), "4080"),
        ("bytea", b"\x00", "51" + "00ff0001"),
        ("uuid", UUID(int=1), "52" + "00" * 15 + "01"),
        ("date", date(1970, 1, 1), "60" + "80000000"),
        ("time", time(0, 0, 1), "61" + "80000000000f4240"),
        ("timestamp", datetime(1970, 1, 1), "62" + "8000000000000000"),  # noqa: DTZ001
        ("timestamptz", datetime(1970, 1, 1, tzinfo=UTC), "63" + "8000000000000000"),
    ):
        assert rows.encode_key(declare(("k", kind)), (given_,)).hex() == wanted, kind


def test_prefixes_bound_their_rows() -> None:
    """Split keys and scans by the first columns must neither cut a row off nor take a
    neighbour's.
    """
    table = declare(("a", "text"), ("k", "int4"), key=("a", "k"))
    prefix = rows.key_prefix(table, ("a",))
    inside = [rows.encode_key(table, ("a", i)) for i in (-5, 0, 5)]
    outside = [rows.encode_key(table, (name, 0)) for name in ("", "A", "a\x01", "aa", "b")]
    assert all(key.startswith(prefix) for key in inside)
    assert not any(key.startswith(prefix) for key in outside)
    assert rows.key_prefix(table, ()) == b""
    with pytest.raises(InvalidArgument, match="2 primary key columns; got 3"):
        rows.key_prefix(table, ("a", 1, 2))
    with pytest.raises(InvalidArgument, match=r"primary key \(a, k\); got 1"):
        rows.encode_key(table, ("a",))


def test_short_rows_take_the_defaults_of_later_columns() -> None:
    """A column added with a default must not need a rewrite of the table."""
    old = declare(("k", "int4"), ("a", "text"))
    new = declare(
        ("k", "int4"),
        ("a", "text"),
        Column(0, "b", "date", default=date(2020, 2, 2)),
        Column(0, "c", "int4"),
    )
    key, value = rows.encode_row(old, (1, "x"))
    assert rows.decode_row(new, key, value) == (1, "x", date(2020, 2, 2), None)
    key, value = rows.encode_row(new, {"k": 1})
    assert rows.decode_row(new, key, value) == (1, None, date(2020, 2, 2), None)
    key, value = rows.encode_row(new, (1, "x", None, 7))
    assert rows.decode_row(new, key, value) == (1, "x", None, 7), "a stored NULL is not a default"
    assert rows.decode_row(old, key, value) == (1, "x")


def test_dropped_columns_leave_their_place_empty() -> None:
    """Ids are places in stored rows: a new column must never read what a dropped one wrote."""
    before = declare(("k", "int4"), ("gone", "text"), ("a", "text"))
    after = Table(
        id=before.id,
        namespace="default",
        name="t",
        primary_key=("k",),
        next_column_id=5,
        columns=(before.columns[0], before.columns[2], Column(4, "new", "int4")),
    )
    key, value = rows.encode_row(before, (1, "secret", "x"))
    assert rows.decode_row(after, key, value) == (1, "x", None)
    key, value = rows.encode_row(after, (1, "y", 5))
    assert msgspec.msgpack.decode(value) == [1, 1, None, "y", 5]
    assert rows.decode_row(after, key, value) == (1, "y", 5)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("bool", 1, "a bool"),
        ("int2", 1 << 15, "from -32768 to 32767"),
        ("int4", -(1 << 31) - 1, "from -2147483648"),
        ("int8", 1 << 63, "9223372036854775807"),
        ("int8", True, "got bool"),
        ("int8", 1.0, "got float"),
        ("float8", "1", "a number"),
        ("float8", 10**400, "a number"),
        ("float4", 1e39, "below 3.5e38"),
        ("numeric", 1.5, "Decimal"),
        ("numeric", Decimal("sNaN"), "Decimal"),
        ("numeric", Decimal("1e20000"), "10^"),
        ("numeric(4,2)", Decimal("99.995"), "2 digits before the point"),
        ("numeric(4,2)", Decimal("Infinity"), "2 digits before the point"),
        ("text", b"x", "got bytes"),
        ("text", "\ud800", "surrogates"),
        ("bytea", "x", "got str"),
        ("uuid", "nonsense", "badly formed"),
        ("date", datetime(2020, 1, 1), "got datetime"),  # noqa: DTZ001
        ("time", time(1, tzinfo=UTC), "without zone"),
        ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), "without zone"),
        ("timestamptz", datetime(2020, 1, 1), "with a zone"),  # noqa: DTZ001
        ("json", "{", "JSON"),
    ],
)
def test_wrong_values_name_column_and_reason(kind: str, value: Any, reason: str) -> None:
    """A value that is bent to fit is wrong data; one that is refused must be findable."""
    with pytest.raises(InvalidArgument, match="column c ") as caught:
        rows.encode_row(declare(("k", "int4"), ("c", kind)), (1, value))
    assert reason in caught.value.message
    assert "default.t" in caught.value.message


def test_values_are_brought_to_the_column_s_form() -> None:
    """Rounding, zones and equal spellings follow PostgreSQL."""
    table = declare(("k", "int4"), ("n", "numeric(5,2)"), ("f", "float4"), ("z", "timestamptz"))
    east = timezone(timedelta(hours=2))
    row = (1, Decimal("-1.005"), 0.1, datetime(2020, 1, 1, 2, tzinfo=east))
    key, value = rows.encode_row(table, row)
    found = rows.decode_row(table, key, value)
    assert found[1] == Decimal("-1.01")
    assert str(found[1]) == "-1.01"
    assert found[2] != 0.1
    assert math.isclose(found[2], 0.1, rel_tol=1e-7)
    assert found[3] == datetime(2020, 1, 1, tzinfo=UTC)
    assert rows.encode_row(declare(("k", "uuid")), (str(UUID(int=5)),)) == rows.encode_row(
        declare(("k", "uuid")), (UUID(int=5),)
    )


def test_sizes_are_bounded() -> None:
    """A key or row above the limit must be refused here, with limit and actual."""
    table = declare(("k", "text"), ("v", "text"))
    with pytest.raises(TooLarge) as caught:
        rows.encode_row(table, ("x" * KEY_BYTES_MAX, ""))
    assert caught.value.details == {
        "what": "key_bytes",
        "limit": KEY_BYTES_MAX,
        "actual": KEY_BYTES_MAX + 3,
    }
    with pytest.raises(TooLarge, match=str(VALUE_BYTES_MAX)):
        rows.encode_row(table, ("x", "y" * VALUE_BYTES_MAX))


def test_wrong_shapes_are_refused() -> None:
    """A row with a column too many, or a misspelt one, must not be stored shifted."""
    table = declare(("k", "int4"), ("a", "text"))
    with pytest.raises(InvalidArgument, match="2 columns; got 3"):
        rows.encode_row(table, (1, "x", "y"))
    with pytest.raises(InvalidArgument, match="no column 'b'; it has k, a"):
        rows.encode_row(table, {"k": 1, "b": 2})


def test_damaged_rows_are_corruption() -> None:
    """Bytes that are not a row must never come out as one."""
    table = declare(("k", "int4"), ("a", "text"))
    key, value = rows.encode_row(table, (1, "x"))
    other_format = msgspec.msgpack.encode([2, 1, "x"])
    for bad in (b"", b"\xc1", value[:-1], other_format, msgspec.msgpack.encode([]), b"\x01"):
        with pytest.raises(Corruption, match=r"default\.t"):
            rows.decode_row(table, key, bad)
    for bad in (b"", key[:-1], key + b"x", b"\x50" + key[1:]):
        with pytest.raises(Corruption, match="not a primary key"):
            rows.decode_key(table, bad)


def test_a_plain_table_stores_bytes_as_given() -> None:
    """Tables without columns are the KV interface: nothing may be added to their keys and
    values.
    """
    table = Table.declare("default", "plain")
    assert rows.encode_row(table, (b"k", b"v")) == (b"k", b"v")
    assert rows.encode_row(table, {"value": b"v", "key": b"k"}) == (b"k", b"v")
    assert rows.decode_row(table, b"k", b"v") == (b"k", b"v")
    with pytest.raises(InvalidArgument, match="must be bytes"):
        rows.encode_row(table, ("k", b"v"))


@pytest.mark.parametrize(
    ("columns", "key", "reason"),
    [
        ([("k", "int4")], (), "no primary key"),
        ([], ("k",), "no columns"),
        ([("k", "int4"), ("k", "text")], ("k",), "'k' twice"),
        ([("k", "int4")], ("x",), "'x' is not declared"),
        ([("k", "int4")], ("k", "k"), "twice in its primary key"),
        ([("k", "json")], ("k",), "no order"),
        ([("k", "money")], ("k",), "unknown column type 'money'; there are bool, int2"),
        ([("k", "numeric(0)")], ("k",), "precision must be 1 to"),
        ([("k", "numeric(5,1001)")], ("k",), "scale -1000 to 1000"),
        ([("k\nk", "int4")], ("k\nk",), "column name 'k\\nk' is not allowed"),
        ([("", "int4")], ("",), "is not allowed"),
        ([("k" * (NAME_CHARS_MAX + 1), "int4")], ("k",), f"1 to {NAME_CHARS_MAX} bytes"),
        ([(f"c{i}", "int4") for i in range(COLUMNS_MAX + 1)], ("c0",), f"limit is {COLUMNS_MAX}"),
        ([(f"c{i}", "int4") for i in range(40)], tuple(f"c{i}" for i in range(40)), "limit is 32"),
        ([Column(0, "k", "int4", default="x")], ("k",), "the default of column k"),
    ],
)
def test_bad_declarations_are_refused(columns: Any, key: tuple[str, ...], reason: str) -> None:
    """A table that could not be used must not come into being."""
    with pytest.raises((InvalidArgument, TooLarge)) as caught:
        declare(*columns, key=key)
    assert reason in caught.value.message


def test_declarations_are_completed() -> None:
    """SQL's names of types, ids in order, key columns never null."""
    table = declare(
        Column(0, "k", "BIGINT", nullable=True),
        ("a", "double precision"),
        ("b", "Decimal(10, 2)"),
        ("c", "numeric(5)"),
        ("d", "timestamp with time zone"),
    )
    assert [(c.id, c.type, c.nullable) for c in table.columns] == [
        (1, "int8", False),
        (2, "float8", True),
        (3, "numeric(10,2)", True),
        (4, "numeric(5,0)", True),
        (5, "timestamptz", True),
    ]
    assert table.next_column_id == 6
    assert (table.id, table.state) == (0, "creating")
    for ns, name, options, reason in (
        ("a.b", "t", {}, "namespace name"),
        ("a", "\0t", {}, "table name"),
        ("a", "t", {"replicas": 0}, "replicas must be 1 to 9"),
        ("a", "t", {"tags": ["x"] * 17}, "limit is 16"),
        ("a", "t", {"survive": "city"}, "survive must be server, rack or datacenter"),
        ("a", "t", {"leaders": "eu"}, "leaders must be labels, some of dc=NAME"),
    ):
        with pytest.raises((InvalidArgument, TooLarge), match=reason):
            placed(Table.declare(ns, name), options)


@given(data=st.data())
def test_many_rows_are_the_bytes_of_each(data: st.DataObject) -> None:
    """A row would be stored, or read, otherwise when it comes with others."""
    kinds = data.draw(st.lists(st.sampled_from(ALL), max_size=5))
    table = declare(("k", "int8"), *((f"c{i}", kind) for i, kind in enumerate(kinds)))
    made = data.draw(
        st.lists(st.tuples(VALUES["int8"], *(st.none() | VALUES[kind] for kind in kinds)))
    )
    codec = rows.codec(table)
    single = [codec.encode_row(row) for row in made]
    keys, values = [key for key, _ in single], [value for _, value in single]
    if made:
        assert codec.encode_columns(list(zip(*made, strict=True))) == (keys, values)
    assert codec.decode_rows(keys, values) == made
    if made:
        longer = declare(
            ("k", "int8"), *((f"c{i}", kind) for i, kind in enumerate(kinds)), ("more", "text")
        )
        found = rows.codec(longer).decode_rows(keys, values)
        assert found == [(*row, None) for row in made], "rows of an older version"


def test_many_rows_are_refused_as_each() -> None:
    """A value that does not fit would be told otherwise, or of another column."""
    table = declare(("k", "int8"), ("c", "int2"), Column(0, "d", "text", nullable=False))
    codec = rows.codec(table)
    for row in ((1, 1 << 20, "x"), (1, 1, None), (None, 1, "x"), (1, "x", "x")):
        with pytest.raises(InvalidArgument) as single:
            codec.encode_row(row)
        with pytest.raises(InvalidArgument) as many:
            codec.encode_columns(list(zip((2, 2, "y"), row, strict=True)))
        assert many.value.message == single.value.message
    wide = declare(("k", "text"))
    with pytest.raises(TooLarge):
        rows.codec(wide).encode_columns([["a", "x" * (KEY_BYTES_MAX + 1)]])
