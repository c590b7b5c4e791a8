"""Bulk encoding gives the same bytes as row by row, and its errors are as clear."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.limits import KEY_BYTES_MAX
from sqlproxy.rows import arrow_rows, rows
from sqlproxy.rows.schema import Column, Table
from sqlproxy.values import enums
from sqlproxy.values.errors import SqlError
from sqlproxy.values.interval import Interval

MOODS = ("sad", "so-so", "ok", "é", "")
ENUM = enums.text_of(enums.Enum(402_653_200, 1, 1, "mood", enums.first_labels(MOODS)))
KEYABLE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(1 << 15), (1 << 15) - 1),
    "int4": st.integers(-(1 << 31), (1 << 31) - 1),
    "int8": st.integers(-(1 << 63), (1 << 63) - 1),
    "float4": st.floats(width=32, allow_nan=False),
    "float8": st.floats(allow_nan=False),
    "numeric(12,3)": st.decimals(-(10**9) + 1, 10**9 - 1, places=3),
    "text": st.text(st.sampled_from("\x01ab\xffé😀"), max_size=4),
    "bytea": st.binary(max_size=4),
    "uuid": st.uuids().map(str),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    ENUM: st.sampled_from(MOODS),
}
VALUES = KEYABLE | {"json": st.sampled_from(["null", "[1]", '"x"'])}


def declare(kinds: list[str], key: list[int]) -> Table:
    columns = [Column(0, f"c{i}", kind) for i, kind in enumerate(kinds)]
    return Table.declare("default", "t", columns=columns, primary_key=[f"c{i}" for i in key])


def test_u3_batches_are_rounded_as_their_columns_say() -> None:
    """Spark and imports keep digits that SQL would have rounded away."""
    table = declare(["timestamp(2)", "time(1)", "interval(0)", "interval year", "time(1)[]"], [0])
    moment = datetime.fromisoformat("1999-12-31 23:59:59.995")
    value = {
        "c0": [moment],
        "c1": [moment.time()],
        "c2": [pa.MonthDayNano([14, 3, 1_500_000_000])],
        "c3": [pa.MonthDayNano([14, 3, 5_000])],
        "c4": [[moment.time().replace(second=1)]],
    }
    batch = pa.RecordBatch.from_pydict(value, schema=arrow_rows.arrow_schema(table))
    keys, stored = arrow_rows.encode_batch(table, batch)
    found = arrow_rows.decode_batch(table, keys, stored).to_pylist()[0]
    assert (found["c0"].isoformat(), found["c1"].isoformat()) == (
        "1999-12-31T23:59:59.990000",  # away from 2000
        "23:59:59.900000",  # 24:00 is no time
    )
    assert tuple(found["c2"]) == (14, 3, 2_000_000_000)
    assert tuple(found["c3"]) == (12, 0, 0)
    assert [t.isoformat() for t in found["c4"]] == ["23:59:02"]


@given(data=st.data())
def test_a_batch_is_encoded_as_its_rows(data: st.DataObject) -> None:
    """If bulk and single rows differed, what Spark writes could not be read or found by others."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(KEYABLE)), min_size=1, max_size=4))
    key = data.draw(st.permutations(range(len(kinds))))[: data.draw(st.integers(1, len(kinds)))]
    kinds += data.draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=3))
    table = declare(kinds, key)
    count = data.draw(st.integers(0, 4))
    columns = []
    for at, kind in enumerate(kinds):
        values = VALUES[kind] if at in key else st.one_of(st.none(), VALUES[kind])
        columns.append(data.draw(st.lists(values, min_size=count, max_size=count)))
    schema = arrow_rows.arrow_schema(table)
    batch = pa.record_batch(columns, schema=schema)
    shuffled = batch.select(data.draw(st.permutations(schema.names)))
    keys, stored = arrow_rows.encode_batch(table, shuffled)
    single = [rows.encode_row(table, row) for row in zip(*columns, strict=True)]
    assert list(zip(keys, stored, strict=True)) == single
    assert arrow_rows.decode_batch(table, keys, stored).equals(batch)
    wanted = data.draw(st.permutations(schema.names))[:2]
    assert arrow_rows.decode_batch(table, keys, stored, wanted).equals(batch.select(wanted))


def test_floats_keep_their_key_rules_in_bulk() -> None:
    """−0 and NaN must not make a second row of the same key."""
    table = declare(["float8", "float4"], [0, 1])
    batch = pa.record_batch(
        {"c0": [-0.0, 0.0, float("nan")], "c1": pa.array([0.0, -0.0, float("nan")], pa.float32())}
    )
    keys, _ = arrow_rows.encode_batch(table, batch)
    assert keys[0] == keys[1]
    assert keys == [rows.encode_key(table, (r["c0"], r["c1"])) for r in batch.to_pylist()]


def test_a_slice_of_a_batch_is_encoded_alone() -> None:
    """Writers cut batches; Arrow slices share buffers with what was cut off."""
    table = declare(["text", "int4", "bool", "text"], [0, 1, 2])
    data = {
        "c0": [f"k{i}\x01" for i in range(20)],
        "c1": pa.array(range(20), pa.int32()),
        "c2": [i % 3 == 0 for i in range(20)],
        "c3": [None if i % 2 else f"v{i}" for i in range(20)],
    }
    batch = pa.record_batch(data)
    keys, values = arrow_rows.encode_batch(table, batch)
    part = arrow_rows.encode_batch(table, batch.slice(7, 6))
    assert part == (keys[7:13], values[7:13])


def test_defaults_and_nulls_fill_missing_columns() -> None:
    """A DataFrame may leave out what the table can fill in, and nothing else."""
    columns = [
        Column(0, "k", "int4"),
        Column(0, "d", "date", default=date(2020, 2, 2)),
        Column(0, "n", "text"),
        Column(0, "m", "text", nullable=False),
    ]
    table = Table.declare("default", "t", columns=columns, primary_key=["k"])
    keys, values = arrow_rows.encode_batch(table, pa.record_batch({"k": [1], "m": ["x"]}))
    assert rows.decode_row(table, keys[0], values[0]) == (1, date(2020, 2, 2), None, "x")
    with pytest.raises(InvalidArgument, match="lacks column 'm'"):
        arrow_rows.encode_batch(table, pa.record_batch({"k": [1]}))
    with pytest.raises(InvalidArgument, match=r"column m .* row 1 of the batch has no value"):
        arrow_rows.encode_batch(table, pa.record_batch({"k": [1, 2], "m": ["x", None]}))
    with pytest.raises(InvalidArgument, match="no column 'z'"):
        arrow_rows.encode_batch(table, pa.record_batch({"k": [1], "m": ["x"], "z": [1]}))


@pytest.mark.parametrize(
    ("kind", "array", "reason"),
    [
        ("int2", pa.array([70_000]), "does not convert"),
        ("int4", pa.array(["x"]), "does not convert"),
        ("numeric(4,2)", pa.array([Decimal("123.456")]), "does not convert"),
        ("numeric", pa.array([Decimal("1e30")], pa.decimal128(38, 0)), "precision"),
        ("numeric", pa.array(["many"]), 'invalid input syntax for type numeric: "many"'),
        ("numeric(4,2)", pa.array(["1.234"]), "1.234 would be rounded to 1.23"),
        ("numeric(4,2)[]", pa.array([["1.234"]]), "1.234 would be rounded to 1.23"),
        ("float4", pa.array([1e300]), "too large"),
        ("float8", pa.array([2**60 + 1]), "does not convert"),
        ("timestamp", pa.array([0], pa.timestamp("us", "UTC")), "time zone"),
        ("timestamptz", pa.array([0], pa.timestamp("us")), "time zone"),
        ("timestamptz", pa.array([1], pa.timestamp("ns", "UTC")), "lose data"),
        ("time", pa.array([86_400_000_000]).view(pa.time64("us")), "hours of a day"),
        ("json", pa.array(["{"]), "JSON"),
        ("uuid", pa.array(["nope"]), "badly formed"),
        (ENUM, pa.array(["nope"]), 'invalid input value for enum mood: "nope"'),
        ("timestamp", pa.array([b"x"]), "does not convert"),
    ],
)
def test_lossy_conversions_are_refused(kind: str, array: pa.Array, reason: str) -> None:
    """A number that is cut off on its way from Spark is wrong data that nobody notices."""
    table = declare(["int4", kind], [0])
    with pytest.raises(InvalidArgument, match="column c1") as caught:
        arrow_rows.encode_batch(table, pa.record_batch([pa.array([1]), array], names=["c0", "c1"]))
    assert reason in caught.value.message


def test_numerics_beyond_arrow_are_refused_in_both_directions() -> None:
    """NaN and long numbers have no decimal128; reading zero or NULL in their place would be
    wrong.
    """
    table = declare(["int4", "numeric"], [0])
    for value in (Decimal("NaN"), Decimal("1e30"), Decimal("1e-19")):
        key, stored = rows.encode_row(table, (1, value))
        with pytest.raises(InvalidArgument, match=r"does not fit decimal128\(38, 18\)"):
            arrow_rows.decode_batch(table, [key], [stored])
    small = pa.array([Decimal("1e-18"), Decimal("-2.5e-9")], pa.decimal128(38, 18))
    batch = pa.record_batch({"c0": pa.array([1, 2], pa.int32()), "c1": small})
    keys, values = arrow_rows.encode_batch(table, batch)
    assert arrow_rows.decode_batch(table, keys, values).column(1).equals(small)
    assert [rows.decode_row(table, k, v)[1] for k, v in zip(keys, values, strict=True)] == (
        small.to_pylist()
    )


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_dates_beyond_python_are_refused(kind: str) -> None:
    """Spark knows the year 10000; a row with it could be written and never read again."""
    table = declare(["int4", kind], [0])
    unit = 1 if kind == "date" else 86_400_000_000
    for days, fits in ((2_932_896, True), (2_932_897, False), (-719_162, True), (-719_163, False)):
        array = pa.array([days * unit, None], pa.int32() if kind == "date" else pa.int64())
        batch = pa.record_batch(
            [pa.array([1, 2], pa.int32()), array.view(arrow_rows.arrow_schema(table).types[1])],
            names=["c0", "c1"],
        )
        if fits:
            keys, values = arrow_rows.encode_batch(table, batch)
            assert rows.decode_row(table, keys[0], values[0])[1].year in (1, 9999)
        else:
            with pytest.raises(InvalidArgument, match="outside the years"):
                arrow_rows.encode_batch(table, batch)


def test_sizes_are_bounded_in_bulk() -> None:
    """One oversize row must be found before it is staged, not when the sink commits."""
    table = declare(["text"], [0])
    with pytest.raises(TooLarge, match=str(KEY_BYTES_MAX)):
        arrow_rows.encode_batch(table, pa.record_batch({"c0": ["a", "x" * KEY_BYTES_MAX]}))


def test_rows_of_an_older_table_are_filled_and_damage_is_named() -> None:
    """A page may mix rows of several versions of the table; a damaged one must not be returned."""
    old = declare(["int4"], [0])
    columns = [Column(0, "c0", "int4"), Column(0, "c1", "text", default="new")]
    new = Table.declare("default", "t", columns=columns, primary_key=["c0"])
    pairs = [
        rows.encode_row(old, (1,)),
        rows.encode_row(new, (2, None)),
        rows.encode_row(new, (3, "x")),
    ]
    keys, values = [k for k, _ in pairs], [v for _, v in pairs]
    found = arrow_rows.decode_batch(new, keys, values)
    assert found.to_pylist() == [
        {"c0": 1, "c1": "new"},
        {"c0": 2, "c1": None},
        {"c0": 3, "c1": "x"},
    ]
    with pytest.raises(Corruption) as caught:
        arrow_rows.decode_batch(new, keys, [values[0], b"\xc1", values[2]])
    assert caught.value.details["key"] == keys[1]
    empty = arrow_rows.decode_batch(new, [], [])
    assert (empty.num_rows, empty.schema.names) == (0, ["c0", "c1"])
    assert arrow_rows.decode_batch(new, keys, values, []).num_rows == 3, "a count reads no column"


def test_a_plain_table_is_two_binary_columns() -> None:
    """Spark sees key-value tables as they are."""
    table = Table.declare("default", "plain")
    batch = pa.record_batch({"value": ["v", "w"], "key": [b"a", b"b"]})
    keys, values = arrow_rows.encode_batch(table, batch)
    assert (keys, values) == ([b"a", b"b"], [b"v", b"w"])
    assert arrow_rows.decode_batch(table, keys, values).to_pylist() == [
        {"key": b"a", "value": b"v"},
        {"key": b"b", "value": b"w"},
    ]
    assert arrow_rows.decode_batch(table, keys, values, ["value"]).schema.names == ["value"]
    for bad in ({"key": [b"a"]}, {"key": [None], "value": [b"v"]}, {"key": [b"a"], "v": [b"v"]}):
        with pytest.raises(InvalidArgument):
            arrow_rows.encode_batch(table, pa.record_batch(bad))


def test_bounds_given_as_text_are_read_as_the_column_s_type() -> None:
    """keyFrom and keyTo of a read come as text; misread bounds would lose rows silently."""
    for kind, text, value in (
        ("int8", "-5", -5),
        ("text", "é", "é"),
        ("date", "2013-04-01", date(2013, 4, 1)),
        ("timestamptz", "2013-04-01T00:00:00Z", datetime(2013, 4, 1, tzinfo=UTC)),
        ("numeric(9,2)", "1.50", Decimal("1.5")),
        ("bool", "true", True),
    ):
        table = declare([kind], [0])
        assert arrow_rows.key_prefix(table, text) == rows.encode_key(table, (value,)), kind
    with pytest.raises(InvalidArgument, match="does not convert"):
        arrow_rows.key_prefix(declare(["int8"], [0]), "five")
    assert arrow_rows.key_prefix(Table.declare("default", "plain"), "k") == b"k"


def test_decimals_are_rescaled_exactly() -> None:
    """Spark's decimals come in other scales than the column's; digits must survive, or be
    refused.
    """
    table = declare(["int4", "numeric"], [0])
    given = pa.array([Decimal("12345678901234567890"), Decimal("-1.5"), None], pa.decimal128(30, 5))
    batch = pa.record_batch([pa.array([1, 2, 3], pa.int32()), given], names=["c0", "c1"])
    keys, values = arrow_rows.encode_batch(table, batch)
    found = [rows.decode_row(table, k, v)[1] for k, v in zip(keys, values, strict=True)]
    assert found == given.to_pylist()
    text = pa.record_batch([pa.array([1], pa.int32()), pa.array(["1e2"])], names=["c0", "c1"])
    keys, values = arrow_rows.encode_batch(table, text)
    assert rows.decode_row(table, keys[0], values[0])[1] == 100


def test_every_type_of_sql_goes_through_arrow_and_back() -> None:
    """Spark and DuckDB see values through Arrow: what changes on the way is another value."""
    given_: dict[str, Any] = {
        "varchar(3)": "ab ",
        "char(4)": "ab  ",
        "bpchar": "ab",
        "name": "n",
        "oid": 4_294_967_295,
        "interval": Interval(1, -2, 3),
        "jsonb": '{"a": [1, 2.50]}',
        "timestamp(0)": datetime(2020, 1, 1, 0, 0, 1),  # noqa: DTZ001
        "numeric(3,5)": Decimal("0.00123"),
        "numeric(3,-2)": Decimal(12_300),
        "numeric(100,2)": Decimal("1.25"),
        "int4[]": [1, None, 3],
        "text[]": [],
        "uuid[]": [UUID(int=7), None],
        "interval[]": [Interval(0, 1, 2)],
        "numeric(5,2)[]": [Decimal("1.50")],
        ENUM: "so-so",
        f"{ENUM}[]": ["ok", None, "sad"],
        "char(3)[]": ["a  "],
        "timestamptz[]": [datetime(2020, 1, 1, tzinfo=UTC)],
    }
    table = declare(["int4", *given_], [0])
    row = (1, *given_.values())
    key, value = rows.encode_row(table, row)
    assert rows.decode_row(table, key, value) == row
    batch = arrow_rows.decode_batch(table, [key], [value])
    assert batch.schema == arrow_rows.arrow_schema(table)
    assert arrow_rows.encode_batch(table, batch) == ([key], [value])
    nulls = rows.encode_row(table, (2, *([None] * len(given_))))
    batch = arrow_rows.decode_batch(table, [nulls[0]], [nulls[1]])
    assert arrow_rows.encode_batch(table, batch) == ([nulls[0]], [nulls[1]])
    wide = declare(["int4", "int4[]"], [0])
    key, value = rows.encode_row(wide, (1, [[1, 2], [3, 4]]))
    with pytest.raises(InvalidArgument, match="int4"):
        arrow_rows.decode_batch(wide, [key], [value])


def test_values_that_only_sql_computes_are_not_made_up() -> None:
    """A NULL in place of now() or of the next number would be stored without a word."""
    columns = [Column(0, "k", "int4"), Column(0, "at", "timestamptz", default_sql="now()")]
    table = Table.declare("default", "t", columns=columns, primary_key=["k"])
    with pytest.raises(InvalidArgument, match="only SQL can compute"):
        arrow_rows.encode_batch(table, pa.record_batch({"k": pa.array([1], pa.int32())}))
    with pytest.raises(InvalidArgument, match="only SQL can compute"):
        rows.encode_row(table, {"k": 1})


def test_p6_a_label_that_not_everybody_reads_is_not_taken() -> None:
    """ALTER TYPE … ADD VALUE is under way: who knows the older type could not read the row; a
    value that SQL has read from one goes back.
    """
    mood = enums.Enum(402_653_201, 1, 2, "mood", enums.first_labels(("a", "b", "c")), ("b",))
    table = declare(["int4", enums.text_of(mood)], [0])
    for label, taken in (("a", True), ("b", False), ("c", True)):
        batch = pa.record_batch([pa.array([1], pa.int32()), pa.array([label])], names=["c0", "c1"])
        row = rows.encode_row(table, (1, label))
        assert rows.decode_row(table, *row) == (1, label)
        if taken:
            assert arrow_rows.encode_batch(table, batch) == ([row[0]], [row[1]])
        else:
            with pytest.raises(InvalidArgument, match='invalid input value for enum mood: "b"'):
                arrow_rows.encode_batch(table, batch)
    enums.learn(mood)
    known = enums.of(mood.oid)
    assert known is not None
    assert known.read("a") == "a"
    with pytest.raises(enums.Unfit):
        known.read("b")


def test_p6_labels_that_are_put_between_others_keep_every_position() -> None:
    """A row that is there would mean another label, or sort elsewhere."""
    labels = enums.first_labels(("a", "c"))
    for number in range(31):
        wider = enums.added(labels, f"b{number}", before="c")
        assert set(labels) < set(wider)
        assert [at for _, at in wider] == sorted({at for _, at in wider})
        assert wider[-2][0] == f"b{number}"
        labels = wider
    while labels[-1][1] - labels[-2][1] > 1:
        labels = enums.added(labels, f"x{len(labels)}", before="c")
    with pytest.raises(SqlError, match="no room") as caught:
        enums.added(labels, "y", before="c")
    assert caught.value.sqlstate == "54000"
    assert enums.added((), "one") == (("one", enums.STEP),)
    first = enums.added(labels, "zero", before="a")
    assert first[0] == ("zero", 0)
    last = enums.added(first, "end")
    assert last[-1] == ("end", 3 * enums.STEP)


def test_p6_two_types_of_one_number_are_not_taken_for_each_other() -> None:
    """Two clusters in one process: the labels of one would order the values of the other."""
    one = enums.Enum(402_653_202, 1, 1, "mood", enums.first_labels(("a", "b")))
    enums.learn(one)
    with pytest.raises(SqlError, match="another cluster's type mood"):
        enums.learn(enums.Enum(402_653_202, 2, 1, "color", enums.first_labels(("b", "a"))))
    enums.learn(enums.Enum(402_653_202, 1, 0, "mood", ()))  # an older version changes nothing
    known = enums.of(402_653_202)
    assert known is not None
    assert known.enum == one
