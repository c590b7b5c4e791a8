"""Options, conditions and schemas of the Spark source, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from kv.base import limits
from kv.base.adapters import SystemClock
from kv.base.errors import InvalidArgument
from kv.base.timestamps import physical_ms
from pyspark_kvorum import DefaultSource
from pyspark_kvorum.encoding import Encoder
from pyspark_kvorum.options import BATCH, READ, STREAM, Options
from pyspark_kvorum.paging import Decode
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.types import PLAIN, check_writable, narrowed, spark_schema
from pyspark_kvorum.where_option import Condition
from sqlproxy.rows import arrow_rows
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Table
from sqlproxy.values import enums

GOOD = {"endpoint": "h1:7600, [::1]:7601", "table": "ns.t"}


def test_o14_options_are_read() -> None:
    """An option is dropped, or its case matters."""
    options = Options.parse(
        {
            **GOOD,
            "COLUMNS": "b, a",
            "Where": " x = 1 ",
            "keyFrom": "1",
            "at": "7",
            "appId": "me",
            "txnAppId": "job",
            "txnVersion": "3",
            "timeoutMs": "5000",
            "pageRows": "10",
            "checkpointLocation": "/x",
            "queryName": "q",
        }
    )
    assert options == Options(
        addresses=(("h1", 7600), ("::1", 7601)),
        namespace="ns",
        table="t",
        columns=("b", "a"),
        where="x = 1",
        key_from="1",
        key_to=None,
        page_rows=10,
        app="me",
        txn_app="job",
        txn_version=3,
        timeout_ms=5_000,
    )
    assert Options.parse(GOOD).page_rows == limits.SCAN_ROWS_MAX


BAD = [
    ({"table": "ns.t"}, "endpoint is missing"),
    ({}, "CREATE TEMPORARY VIEW"),
    ({"provider": "kvorum", "option.table": "ns.t", "table": "ns.t"}, "tables in its own catalog"),
    ({"endpoint": "h:1"}, "table is missing"),
    ({**GOOD, "table": "t"}, "namespace.table"),
    ({**GOOD, "table": "ns."}, "namespace.table"),
    ({**GOOD, "endpoint": "h"}, "HOST:BASE"),
    ({**GOOD, "endpoint": "h:0"}, "HOST:BASE"),
    ({**GOOD, "endpoint": "h:70000"}, "HOST:BASE"),
    ({**GOOD, "endpoint": "h:1,"}, "HOST:BASE"),
    ({**GOOD, "endpoint": "kvorum://h:1"}, "got a URL"),
    ({**GOOD, "endpoint": "ann:secret@h:1"}, "got a URL"),
    ({**GOOD, "pageRows": str(limits.SCAN_ROWS_MAX + 1)}, "option pageRows"),
    ({**GOOD, "timeoutMs": "1"}, "option timeoutMs"),
    ({**GOOD, "txnAppId": "job"}, "belong together"),
    ({**GOOD, "txnAppId": "job", "txnVersion": "1", "jobId": "7"}, "not for a write of a job"),
    ({**GOOD, "txnVersion": "1"}, "belong together"),
    ({**GOOD, "path": "/x"}, "no paths"),
    ({**GOOD, "delivery": "twice"}, "exactly-once or at-least-once or at-most-once"),
    ({**GOOD, "op": "merge"}, "upsert or insert or delete"),
    ({**GOOD, "op": "delete", "opColumn": "o"}, "contradict"),
    ({**GOOD, "dedupeBy": "a", "duplicates": "last"}, "contradict"),
    ({**GOOD, "duplicates": "first"}, "error or last"),
    ({**GOOD, "resetTxnApp": "yes"}, "false or true"),
    ({**GOOD, "tabel": "x"}, "unknown option 'tabel'"),
    ({**GOOD, "tabel": "x"}, "txnAppId, txnVersion, where"),
]


@pytest.mark.parametrize(("given", "text"), BAD)
def test_o14_wrong_options_are_named(given: dict[str, str], text: str) -> None:
    """A wrong option is taken, or its error does not say which."""
    with pytest.raises(InvalidArgument, match=r"option|kvorum") as caught:
        Options.parse(given)
    assert text in caught.value.message
    assert "secret" not in caught.value.message


def test_o14_at_is_as_of() -> None:
    """`at` is told to be the same as asOf, and refused a time."""
    moment = "2026-11-22T16:00:00Z"
    Options.parse({**GOOD, "at": moment})
    assert ReadOptions.parse({"at": moment}).at == ReadOptions.parse({"asOf": moment}).at > 0
    days = {ReadOptions.parse({"at": day}).at for day in ("2026-11-22", "20261122T00")}
    assert days == {ReadOptions.parse({"at": "2026-11-22T00:00:00Z"}).at}
    with pytest.raises(InvalidArgument, match="asOf must be a version or a time"):
        ReadOptions.parse({"at": "-1"})
    ago = ReadOptions.parse({"at": "-10s"}).at
    assert 10_000 <= SystemClock().now_ms() - physical_ms(ago) < 60_000


def test_o14_near_is_where_the_executors_run() -> None:
    """Executors read in another datacenter, because a wrong label was taken."""
    assert ReadOptions.parse({}).near is None
    assert ReadOptions.parse({"near": ""}).near == ("", "", "")
    assert ReadOptions.parse({"near": "rack=r1,dc=eu"}).near == ("eu", "r1", "")
    for wrong in ("eu", "zone=eu", "dc=eu,dc=eu"):
        with pytest.raises(InvalidArgument, match="option near must be"):
            ReadOptions.parse({"near": wrong})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"asOf": "20261122"}, "asOf 20261122 is no version .*for the date write 2026-11-22"),
        ({"at": "1795363200"}, "is no version .*for a time write 2026"),
        ({"startingVersion": "20261122", "changes": "true"}, "it takes versions, no times"),
    ],
)
def test_o14_a_number_that_is_no_version(given: dict[str, str], said: str) -> None:
    """A date or seconds written as a number are taken for a version of 1970."""
    with pytest.raises(InvalidArgument, match=said):
        ReadOptions.parse(given)
    assert ReadOptions.parse({"asOf": "470644408094031928"}).at == 470_644_408_094_031_928


def test_o14_name_for_discovery() -> None:
    """Spark does not find the source by its format's name."""
    assert DefaultSource.name() == "kvorum"
    assert "pushFilters" not in vars(DefaultSource)


def kept(text: str, of: Table, rows: list[dict[str, Any]]) -> list[int]:
    """The places of the rows that a condition keeps: by columns, where it can be, and by rows."""
    condition = Condition(text, of)
    made = codec(of)
    pairs = [made.encode_row([row.get(c.name) for c in of.columns]) for row in rows]
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    found = condition.rows(keys, values)
    if condition.arrow is not None:
        batch = arrow_rows.decode_batch(of, keys, values)
        places = batch.append_column("at", pa.array(range(len(rows))))
        assert places.filter(condition.arrow)["at"].to_pylist() == found, text
    return found


ROWS = [
    {"k": at, "i": i, "s": s, "f": f, "d": None, "n": Decimal(i or 0), "y": b"y"}
    for at, (i, s, f) in enumerate(
        ((1, "a", True), (2, "b", False), (3, None, None), (None, "a_c", True), (5, "abc", False))
    )
]


def of_rows() -> Table:
    return table(
        *(("k", "int8"), ("i", "int4"), ("s", "text"), ("f", "bool"), ("d", "date")),
        *(("n", "numeric(9,2)"), ("y", "bytea")),
    )


CONDITIONS: list[tuple[str, list[int | None]]] = [
    ("i = 2", [2]),
    ("2 < i", [3, 5]),
    ("i <> 2", [1, 3, 5]),
    ("NOT i = 2", [1, 3, 5]),
    ("i IS NULL", [None]),
    ("i IS NOT NULL AND s IS NOT NULL", [1, 2, 5]),
    ("NOT (i IS NULL OR s IS NULL)", [1, 2, 5]),
    ("i IN (1, 5, 9)", [1, 5]),
    ("i NOT IN (1, 5)", [2, 3]),
    ("i BETWEEN 2 AND 3 OR i = 5", [2, 3, 5]),
    ("i NOT BETWEEN 2 AND 3", [1, 5]),
    ("s LIKE 'a%'", [1, None, 5]),
    ("s NOT LIKE 'a%'", [2]),
    ("s LIKE 'a_'", []),
    ("f", [1, None]),
    ("NOT f", [2, 5]),
    ("f IS TRUE", [1, None]),
    ("i >= -1 AND n < 2.50", [1, 2]),
    ("d = DATE '2013-01-01'", []),
    ("s = s", [1, 2, None, 5]),
    ("TRUE", [1, 2, 3, None, 5]),
    ("FALSE OR i = 1", [1]),
    ("y = 'y' AND i = 1", [1]),
]


@pytest.mark.parametrize(("text", "want"), CONDITIONS)
def test_o14_conditions_select_as_sql_does(text: str, want: list[int | None]) -> None:
    """A condition keeps other rows than SQL's three-valued logic."""
    assert [ROWS[at]["i"] for at in kept(text, of_rows(), ROWS)] == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("i =", "syntax error"),
        ("nope = 1", "does not exist"),
        ("i = 'x'", "invalid input"),
        ("i LIKE 'a'", "operator does not exist"),
        ("i", "must be type boolean"),
        ("s IS TRUE", "must be type boolean"),
        ("i = (SELECT 1)", "subquery"),
        ("i = 1 LIMIT 2", "more than one"),
        ("i = 1 ORDER BY s", "more than one"),
        ("i = 1 GROUP BY i", "more than one"),
        ("i = 1 FOR UPDATE", "more than one"),
        ("i = 1 UNION SELECT 2", "more than one"),
        ("I = 'x'", "invalid input"),
        ("i = 1; DROP TABLE x", "multiple commands"),
        ("s = i", "operator does not exist"),
        ("d < f", "operator does not exist"),
    ],
)
def test_o14_conditions_that_cannot_be(text: str, why: str) -> None:
    """A condition that the source cannot evaluate selects something instead of being refused."""
    with pytest.raises(InvalidArgument, match="option where") as caught:
        Condition(text, of_rows())
    assert why in caught.value.message


def test_o14_columns_of_a_condition() -> None:
    """A column that only the condition needs is not read."""
    of = table(("a", "int4"), ("b", "int4"), ("c", "int4"), ("d", "bool"), ("e", "int4"))
    assert Condition("a = 1 AND (B > c OR NOT d)", of).columns == {"a", "b", "c", "d"}


def test_o14_conditions_compare_as_sql_does() -> None:
    """char(n) is compared with its blanks, a time without a zone is refused, or names are not
    folded: a condition that SQL takes finds other rows.
    """
    of = table(("k", "int8"), ("c", "char(4)"), ("ts", "timestamptz"), ("Mixed", "int4"))
    rows = [
        {"k": day, "c": "AA", "ts": datetime(2026, 1, day, tzinfo=UTC), "Mixed": day}
        for day in (1, 2, 3)
    ]
    for text, want in [
        ("c = 'AA'", [0, 1, 2]),
        ("c = 'AA      '", [0, 1, 2]),
        ("c IN ('AA', 'B')", [0, 1, 2]),
        ("c <> 'AA'", []),
        ("c BETWEEN 'A' AND 'AA'", [0, 1, 2]),
        ("C = 'ABCDE'", []),
        ("ts > '2026-01-01'", [1, 2]),
        ("TS >= '2026-01-02 00:00:00'", [1, 2]),
        ("ts >= '2026-01-01T23:30:00-01:00'", [2]),
        ('"Mixed" = 2', [1]),
        ("Mixed = 2", [1]),
    ]:
        assert kept(text, of, rows) == want, text


def test_o3_where_compares_labels_and_uuids_as_sql_does() -> None:
    """Labels were in the order of the alphabet, a uuid in capitals was found nowhere: rows were
    missing without a word.
    """
    labels = (("sad", 1 << 32), ("ok", 2 << 32), ("happy", 3 << 32))
    mood = enums.text_of(enums.Enum(1 << 28 | 1 << 27, 1, 1, "mood", labels))
    of = table(("k", "int8"), ("m", mood), ("u", "uuid"), ("j", "jsonb"))
    rows = [
        {"k": n, "m": m, "u": UUID(f"abcdef12-0000-4000-8000-00000000000{n}"), "j": "{}"}
        for n, m in enumerate(["sad", "ok", "happy", None])
    ]
    for text, want in [
        ("m > 'sad'", [1, 2]),
        ("m >= 'ok'", [1, 2]),
        ("'ok' >= m", [0, 1]),
        ("m < 'sad'", []),
        ("NOT m < 'sad'", [0, 1, 2]),
        ("m BETWEEN 'sad' AND 'ok'", [0, 1]),
        ("m <> 'ok'", [0, 2]),
        ("m BETWEEN 'happy' AND 'sad'", []),
        ("m IN ('ok', 'happy')", [1, 2]),
        ("m = m", [0, 1, 2]),
        ("u = 'ABCDEF12-0000-4000-8000-000000000001'", [1]),
        ("m IS NULL", [3]),
        ("u > 'ABCDEF12-0000-4000-8000-000000000001'::uuid", [2, 3]),
        ("j IS NULL", []),
        ("j = '{}'", [0, 1, 2, 3]),
    ]:
        assert kept(text, of, rows) == want, text
    for text in ["m = 'angry'", "m LIKE 'o%'", "u = 'x'", "m = u"]:
        with pytest.raises(InvalidArgument, match="option where"):
            Condition(text, of)


@pytest.mark.parametrize(
    ("use", "given", "text"),
    [
        (BATCH, {"appId": "x"}, "option appId is for a stream's write, and this is a batch write"),
        (BATCH, {"appId": "x"}, "give txnAppId and txnVersion"),
        (BATCH, {"delivery": "at-least-once"}, "would ignore"),
        (BATCH, {"where": "id = 1"}, "replaceWhere"),
        (BATCH, {"parts": "3"}, "option parts is for a read"),
        (STREAM, {"txnAppId": "x", "txnVersion": "1"}, "give appId"),
        (STREAM, {"changes": "true"}, "option changes is for a read"),
        (READ, {"op": "delete"}, "for a batch write or a stream's write"),
        (READ, {"dedupeBy": "x"}, "option dedupeBy"),
        (READ, {"txnAppId": "x", "txnVersion": "1"}, "option txnAppId is for a batch write"),
        (READ, {"txnappid": "x", "txnversion": "1"}, "option txnAppId is for a batch write"),
    ],
)
def test_o14_options_of_another_use_are_refused(use: str, given: dict[str, str], text: str) -> None:
    """An option that does nothing here is taken: a write that should be idempotent is not, a
    condition is forgotten.
    """
    with pytest.raises(InvalidArgument) as caught:
        Options.check_use({**GOOD, **given}, use)
    assert text in caught.value.message


def test_o2_a_write_without_a_name_does_not_ask_for_longer_than_it_is_remembered() -> None:
    """A commit that is repeated when what it did is forgotten writes its rows twice."""
    long = {**GOOD, "timeoutMs": str(limits.SINK_UNNAMED_MS_MAX + 1)}
    with pytest.raises(InvalidArgument, match="txnAppId"):
        Options.parse(long).check_named()
    Options.parse(long | {"txnAppId": "x", "txnVersion": "1"}).check_named()
    Options.parse(long | {"jobId": "4"}).check_named()
    Options.parse(GOOD).check_named()


def test_o14_options_of_their_own_use_are_taken() -> None:
    """An option is refused where it belongs."""
    shared = {**GOOD, "keyFrom": "1", "timeoutMs": "5000", "checkpointLocation": "/x"}
    Options.check_use(shared | {"where": "a = 1", "asOf": "1", "pageRows": "5"}, READ)
    Options.check_use(shared | {"op": "insert", "txnAppId": "x", "jobId": "3"}, BATCH)
    Options.check_use(shared | {"appId": "a", "delivery": "exactly-once", "bulk": "true"}, STREAM)


class _Col:
    def __init__(self, name: str, type: str, nullable: bool = True) -> None:
        self.name, self.type, self.nullable = name, type, nullable


def table(*columns: tuple[str, str]) -> Table:
    """The first column is the primary key."""
    key = columns[0][0] if columns else ""
    return Table.declare(
        "ns",
        "t",
        columns=[_Col(n, k, n != key) for n, k in columns],
        primary_key=[key] if key else [],
    )


def schema(*fields: tuple[str, Any]) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


def test_o14_schema_of_a_table() -> None:
    """A column has another type in Spark than in the table."""
    assert spark_schema(table()) == PLAIN
    found = spark_schema(table(("a", "int8"), ("n", "numeric(10,2)"), ("z", "numeric")))
    assert [f.dataType for f in found.fields] == [
        T.LongType(),
        T.DecimalType(10, 2),
        T.DecimalType(38, 18),
    ]
    assert [f.nullable for f in found.fields] == [False, True, True]
    for kind in ("time", "interval", "uuid", "numeric(40,2)"):
        found = spark_schema(table(("a", "int8"), ("b", kind)))
        assert found["b"].dataType == T.StringType(), "as text"


def test_numerics_as_text() -> None:
    """Numerics that Spark cannot hold are not read, or other columns become text."""
    of = table(("a", "int8"), ("n", "numeric"), ("m", "numeric(5,1)"), ("t", "text"))
    found = spark_schema(of, numeric_as_text=True)
    kinds = [T.LongType(), T.StringType(), T.StringType(), T.StringType()]
    assert [f.dataType for f in found.fields] == kinds
    made = codec(of)
    rows = [made.encode_row([1, Decimal("1E30"), Decimal("NaN"), "x"])]
    rows.append(made.encode_row([2, Decimal("1.50"), None, None]))
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    decode = Decode(of, found, "")
    batch = decode.values(keys, values)
    assert batch["n"].to_pylist() == ["1" + "0" * 30, "1.50"]
    assert batch["m"].to_pylist() == ["NaN", None]
    few = Decode(of, narrowed(found, ("A",)), "n > 1e29 OR m = 'NaN'")
    assert few.values(keys, values)["a"].to_pylist() == [1]
    with pytest.raises(InvalidArgument, match=r"column n of ns\.t.*numericAsText=true"):
        Decode(of, spark_schema(of), "").values(keys, values)


TEXTS: list[tuple[str, list[Any], list[Any] | None]] = [  # None: they come back as they are
    ("numeric", ["1" + "0" * 30, "NaN", "-0.00", None], ["1" + "0" * 30, "NaN", "0.00", None]),
    ("numeric", [" 1e3 ", "Infinity", ".5"], ["1000", "Infinity", "0.5"]),
    ("numeric(5,1)", ["1.20", "NaN", "-9999.9"], ["1.2", "NaN", "-9999.9"]),
    ("numeric(40,2)", ["1" * 38 + ".00"], None),
    ("numeric[]", [["1" + "0" * 30, None, "NaN"], [], None], None),
    ("numeric[]", [["1e3", "-Infinity"]], [["1000", "-Infinity"]]),
    ("numeric(5,1)[]", [["1.20", "0.0"]], [["1.2", "0.0"]]),
    ("numeric(40,2)[]", [["1" * 38 + ".00", None]], None),
]


@pytest.mark.parametrize(("kind", "given", "want"), TEXTS)
def test_numerics_are_written_and_read_as_text(
    kind: str, given: list[Any], want: list[Any] | None
) -> None:
    """What a read as text gives cannot be written back, or numbers change on the way; or an array
    of them ends the read.
    """
    of = table(("a", "int8"), ("n", kind))
    read = spark_schema(of, numeric_as_text=True)
    text = T.ArrayType(T.StringType()) if kind.endswith("[]") else T.StringType()
    assert read["n"].dataType == text
    options = Options.parse({**GOOD, "numericAsText": "true"})
    Options.check_use({**GOOD, "numericAsText": "true"}, BATCH)
    check_writable(of, read, options)
    arrow = pa.list_(pa.string()) if kind.endswith("[]") else pa.string()
    batch = pa.record_batch({"a": range(len(given)), "n": pa.array(given, arrow)})
    rows = Encoder(of, options)(batch).rows
    found = Decode(of, read, "").values(rows.keys.to_pylist(), rows.values.to_pylist())
    assert found["n"].to_pylist() == (given if want is None else want)


@pytest.mark.parametrize("bad", ["x", "", "1_000", "1 2", "99999.95", "1.25"])
@pytest.mark.parametrize("array", [False, True])
def test_text_that_is_no_number_is_refused(bad: str, array: bool) -> None:
    """It is taken for another number, or the task ends without a word of which column it was."""
    of = table(("a", "int8"), ("n", "numeric(5,1)[]" if array else "numeric(5,1)"))
    values: Any = pa.array([[bad]] if array else [bad])
    with pytest.raises(InvalidArgument, match=r"column n \(numeric\(5,1\)") as told:
        Encoder(of, Options.parse(GOOD))(pa.record_batch({"a": [1], "n": values}))
    assert told.value.details["column"] == "n"


def test_an_array_of_numerics_that_spark_cannot_hold_says_what_to_do() -> None:
    """The error named no column, or said to read it by another program."""
    of = table(("a", "int8"), ("n", "numeric[]"))
    key, value = codec(of).encode_row([1, [Decimal("1E30")]])
    with pytest.raises(InvalidArgument, match=r"column n of ns\.t.*numericAsText=true"):
        Decode(of, spark_schema(of), "").values([key], [value])


def test_o14_narrowed_schema() -> None:
    """Chosen columns come in another order, or an unknown one is ignored."""
    full = spark_schema(table(("a", "int8"), ("b", "text"), ("c", "bool")))
    assert narrowed(full, ()) is full
    assert narrowed(full, ("c", "a")).fieldNames() == ["c", "a"]
    with pytest.raises(InvalidArgument, match="'x'"):
        narrowed(full, ("a", "x"))


def test_o14_frames_that_fit() -> None:
    """A frame that fits is refused, or one that does not is taken."""
    t, plain = table(("a", "int8"), ("n", "numeric(10,2)")), Options.parse(GOOD)
    check_writable(t, schema(("n", T.DecimalType(9, 2)), ("a", T.LongType())), plain)
    check_writable(t, schema(("a", T.LongType())), plain)
    ops = Options.parse({**GOOD, "opColumn": "op", "dedupeBy": "at"})
    check_writable(
        t, schema(("a", T.LongType()), ("op", T.StringType()), ("at", T.DateType())), ops
    )
    with pytest.raises(InvalidArgument, match="opColumn names 'op'"):
        check_writable(t, schema(("a", T.LongType()), ("at", T.DateType())), ops)
    check_writable(t, schema(("A", T.IntegerType()), ("N", T.NullType())), plain)
    check_writable(t, schema(("a", T.ByteType()), ("n", T.ShortType())), plain)
    for wrong in (
        schema(("a", T.DoubleType())),
        schema(("a", T.LongType()), ("n", T.IntegerType())),
        schema(("a", T.LongType()), ("A", T.LongType())),
        schema(("a", T.LongType()), ("n", T.DecimalType(10, 3))),
        schema(("a", T.LongType()), ("b", T.LongType())),
        schema(("n", T.DecimalType(9, 2))),
    ):
        with pytest.raises(InvalidArgument):
            check_writable(t, wrong, plain)
