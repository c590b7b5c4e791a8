"""Batch reads and writes of Spark against a node: types, options, snapshots, refusals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kvorum
from tests.clients.spark.conftest import namespace_of
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

NAMESPACE = namespace_of(__name__)
pytestmark = pytest.mark.spark

Options = Callable[..., dict[str, str]]

TYPES = {
    "k": ("int8", "BIGINT"),
    "b": ("bool", "BOOLEAN"),
    "i2": ("int2", "SMALLINT"),
    "i4": ("int4", "INT"),
    "f4": ("float4", "FLOAT"),
    "f8": ("float8", "DOUBLE"),
    "n": ("numeric(12,3)", "DECIMAL(12,3)"),
    "t": ("text", "STRING"),
    "y": ("bytea", "BINARY"),
    "d": ("date", "DATE"),
    "ts": ("timestamp", "TIMESTAMP_NTZ"),
    "tz": ("timestamptz", "TIMESTAMP"),
    "u": ("uuid", "STRING"),
    "j": ("json", "STRING"),
}
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        True,
        -32_768,
        2**31 - 1,
        1.5,
        math.pi,
        Decimal("123456789.125"),
        "zażółć \x01 gęś",
        bytearray(b"\x00\xff"),
        date(1969, 12, 31),
        datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
        datetime(2013, 1, 1, 5, 0, tzinfo=UTC),
        "6d0c4f7e-1f0a-4b3a-9a53-0f3d0c2b1a99",
        '{"a": [1]}',
    ),
    (2, *([None] * 13)),
    (
        -(2**63),
        False,
        0,
        0,
        -0.25,
        1e300,
        Decimal("-0.001"),
        "",
        bytearray(b""),
        date(9999, 12, 31),
        datetime(2038, 1, 19, 3, 14, 7),  # noqa: DTZ001
        datetime(1970, 1, 1, tzinfo=UTC),
        "00000000-0000-0000-0000-000000000000",
        "null",
    ),
]


@pytest.fixture(scope="module")
def pairs(db: kvorum.Database) -> str:
    """A table (id int4 primary key, name text not null, score float8) with ids 0 … 99."""
    columns = [
        kvorum.Column("id", "int4", nullable=False),
        kvorum.Column("name", "text", nullable=False),
        kvorum.Column("score", "float8"),
    ]
    db.create_table(NAMESPACE, "pairs", columns=columns, primary_key=["id"])
    return "pairs"


@pytest.fixture(scope="module")
def filled(spark: Any, db: kvorum.Database, node: Any, pairs: str) -> str:
    rows = [(i, f"n{i % 10}", None if i % 7 == 0 else i / 2) for i in range(100)]
    frame = spark.createDataFrame(rows, "id INT, name STRING, score DOUBLE").repartition(3)
    frame.write.format("kvorum").options(
        endpoint=f"127.0.0.1:{node.base}", table=f"{NAMESPACE}.{pairs}"
    ).mode("append").save()
    return pairs


def load(spark: Any, options: dict[str, str]) -> Any:
    return spark.read.format("kvorum").options(**options).load()


def save(frame: Any, options: dict[str, str], mode: str | None = "append") -> None:
    writer = frame.write.format("kvorum").options(**options)
    (writer.mode(mode) if mode else writer).save()


def message(failing: Callable[[], Any]) -> str:
    """What the user of Spark reads when this fails."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own classes wrap ours
        failing()
    return str(caught.value)


@pytest.mark.slow
def test_o14_every_type_there_and_back(spark: Any, db: kvorum.Database, options: Options) -> None:
    """A value comes back different from what was written, or a row got lost."""
    columns = [kvorum.Column(n, kind, nullable=n != "k") for n, (kind, _) in TYPES.items()]
    db.create_table(NAMESPACE, "types", columns=columns, primary_key=["k"])
    schema = ", ".join(f"{name} {kind}" for name, (_, kind) in TYPES.items())
    save(spark.createDataFrame(ROWS, schema), options("types"))
    frame = load(spark, options("types"))
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema.fields] == [
        (name, kind.lower()) for name, (_, kind) in TYPES.items()
    ]
    found = [tuple(row) for row in frame.collect()]
    want = [
        tuple(v.astimezone().replace(tzinfo=None) if getattr(v, "tzinfo", None) else v for v in row)
        for row in sorted(ROWS, key=lambda r: r[0])
    ]
    local = [
        tuple(v.replace(tzinfo=None) if getattr(v, "tzinfo", None) else v for v in row)
        for row in found
    ]
    assert local == want


@pytest.mark.slow
def test_o14_plain_table(spark: Any, db: kvorum.Database, options: Options) -> None:
    """A table without columns is not readable and writable as key and value."""
    db.create_table(NAMESPACE, "plain")
    rows = [(bytearray(b"k%d" % i), bytearray(b"v%d" % i)) for i in range(20)]
    save(spark.createDataFrame(rows, "key BINARY, value BINARY"), options("plain"))
    assert [tuple(r) for r in load(spark, options("plain")).collect()] == sorted(rows)
    assert db.table(NAMESPACE, "plain").get(b"k7").value == b"v7"  # type: ignore[union-attr]
    some = load(spark, options("plain", keyFrom="k1", keyTo="k2")).collect()
    assert [bytes(r.key) for r in some] == sorted(b"k%d" % i for i in (1, *range(10, 20)))


@pytest.mark.slow
def test_o14_read_options(spark: Any, options: Options, filled: str) -> None:
    """Columns, conditions or key bounds of a load are ignored, or wrong rows come back."""
    frame = load(spark, options(filled, columns="name,id", where="score IS NULL AND id < 50"))
    assert frame.columns == ["name", "id"]
    assert [tuple(r) for r in frame.collect()] == [(f"n{i % 10}", i) for i in range(0, 50, 7)]
    bounded = load(spark, options(filled, keyFrom="10", keyTo="13")).collect()
    assert [r.id for r in bounded] == [10, 11, 12]
    assert load(spark, options(filled, keyFrom="13", keyTo="10")).collect() == []
    assert load(spark, options(filled)).count() == 100
    assert load(spark, options(filled, where="name LIKE 'n3' AND id BETWEEN 1 AND 30")).count() == 3


@pytest.mark.slow
def test_o14_filters_of_two_frames_do_not_mix(spark: Any, options: Options, filled: str) -> None:
    """Frames derived from one load see each other's conditions (Spark 4.3 with pushdown does)."""
    frame = load(spark, options(filled))
    low, high = frame.where("id < 10"), frame.where("id >= 90")
    assert low.union(high).count() == 20
    assert low.join(high, low.name == high.name).count() == 10
    assert frame.agg({"score": "sum"}).first()[0] == sum(i / 2 for i in range(100) if i % 7)


@pytest.mark.slow
def test_o14_snapshot_is_pinned_per_load(spark: Any, db: kvorum.Database, options: Options) -> None:
    """Two actions on one frame see different data, or `at` does not show the past."""
    columns = [kvorum.Column("id", "int4", nullable=False)]
    db.create_table(NAMESPACE, "pinned", columns=columns, primary_key=["id"])
    save(spark.range(5).selectExpr("CAST(id AS INT) AS id"), options("pinned"))
    frame = load(spark, options("pinned"))
    assert frame.count() == 5
    at = db.timestamp()
    save(spark.range(5, 9).selectExpr("CAST(id AS INT) AS id"), options("pinned"))
    assert frame.count() == 5
    assert load(spark, options("pinned")).count() == 9
    assert load(spark, options("pinned", at=str(at))).count() == 5


@pytest.mark.slow
def test_u9_a_load_holds_its_version_and_says_so(spark: Any, tmp_path: Path) -> None:
    """What a load is pinned to is collected under it, nobody sees who holds it, or a load whose
    lease was taken away fails without saying what to do.
    """
    forgetful = ("--gc-retention-ms", "2000", "--gc-interval-ms", "200")
    with NodeProcess(tmp_path / "data", free_port_base(), *forgetful) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_namespace(NAMESPACE)
            db.create_table(NAMESPACE, "aged")
            aged = db.table(NAMESPACE, "aged")
            aged.put("k", b"first")
            options = {"endpoint": f"127.0.0.1:{node.base}", "table": f"{NAMESPACE}.aged"}
            frame = load(spark, {**options, "owner": "the month's end"})
            assert [bytes(r.value) for r in frame.collect()] == [b"first"]  # pins the version

            def pass_retention() -> None:
                for i in range(8):
                    aged.put("k", b"%d" % i)
                    time.sleep(0.5)

            pass_retention()
            assert [bytes(r.value) for r in frame.collect()] == [b"first"]
            (held,) = db.snapshots()
            assert held.owner == "the month's end"
            assert held.age_ms > 3_000
            db.release_snapshot(held.id)
            pass_retention()
            text = message(frame.count)
            assert "SNAPSHOT_TOO_OLD" in text
            assert "load() again" in text


@pytest.mark.slow
def test_o14_split_table_is_read_in_partitions(
    spark: Any, db: kvorum.Database, options: Options
) -> None:
    """A table of several key ranges is read by one task, or rows at the borders get lost."""
    db.create_table(NAMESPACE, "split", split_keys=[b"3", b"6"])
    rows = [(bytearray(b"%d" % i), bytearray(b"x")) for i in range(10)]
    save(spark.createDataFrame(rows, "key BINARY, value BINARY").repartition(4), options("split"))
    frame = load(spark, options("split"))
    assert frame.rdd.getNumPartitions() == 3
    assert [bytes(r.key) for r in frame.collect()] == [b"%d" % i for i in range(10)]
    assert load(spark, options("split", keyFrom="4", keyTo="5")).rdd.getNumPartitions() == 1


@pytest.mark.slow
def test_o2_rows_with_the_same_key_are_replaced(
    spark: Any, db: kvorum.Database, options: Options, pairs: str
) -> None:
    """A second write of the same keys doubles rows or fails."""
    frame = spark.createDataFrame(
        [(1_000, "a", 1.0), (1_001, "b", 2.0)], "id INT, name STRING, score DOUBLE"
    )
    save(frame, options(pairs))
    save(frame.selectExpr("id", "upper(name) AS name"), options(pairs))  # a missing column stays
    found = load(spark, options(pairs, keyFrom="1000")).collect()
    assert [tuple(r) for r in found] == [(1_000, "A", 1.0), (1_001, "B", 2.0)]


@pytest.mark.slow
def test_o2_txn_app_and_version(spark: Any, db: kvorum.Database, options: Options) -> None:
    """A resubmitted write is done again, or its successor is not done."""
    db.create_table(NAMESPACE, "resubmitted")

    def write(value: str, version: int) -> None:
        frame = spark.createDataFrame(
            [(bytearray(b"k"), bytearray(value.encode()))], "key BINARY, value BINARY"
        )
        save(frame, options("resubmitted", txnAppId="job", txnVersion=str(version)))

    for value, version, want in (("a", 1, b"a"), ("b", 1, b"a"), ("c", 0, b"a"), ("d", 2, b"d")):
        write(value, version)
        record = db.table(NAMESPACE, "resubmitted").get(b"k")
        assert record is not None
        assert record.value == want


@pytest.mark.slow
def test_o3_large_write(spark: Any, db: kvorum.Database, options: Options) -> None:
    """A write beyond SINK_SMALL_ROWS loses or doubles rows, or is seen in part."""
    columns = [kvorum.Column("k", "text", nullable=False), kvorum.Column("v", "int8")]
    db.create_table(NAMESPACE, "large", columns=columns, primary_key=["k"])
    frame = spark.range(20_000).selectExpr("lpad(CAST(id AS STRING), 9, '0') AS k", "id AS v")
    save(frame.repartition(3), options("large"))
    found = load(spark, options("large"))
    assert found.count() == 20_000
    assert found.agg({"v": "sum"}).first()[0] == 20_000 * 19_999 // 2
    versions = {item.version for item in db.table(NAMESPACE, "large").rows()}
    assert len(versions) == 1, "one transaction"


@pytest.mark.slow
def test_o8_write_of_no_rows(spark: Any, options: Options, pairs: str) -> None:
    """An empty frame cannot be written."""
    save(spark.createDataFrame([], "id INT, name STRING, score DOUBLE"), options(pairs))


@pytest.mark.slow
def test_o6_failing_task_writes_nothing(spark: Any, db: kvorum.Database, options: Options) -> None:
    """A frame that fails half-way leaves the rows of its other tasks."""
    from pyspark.sql import functions as F

    columns = [kvorum.Column("id", "int8", nullable=False)]
    db.create_table(NAMESPACE, "failing", columns=columns, primary_key=["id"])
    frame = spark.range(0, 1_000, 1, 4).select(
        F.when(F.col("id") == 999, F.raise_error(F.lit("boom"))).otherwise(F.col("id")).alias("id")
    )
    assert "boom" in message(
        lambda: save(frame.selectExpr("CAST(id AS BIGINT) AS id"), options("failing"))
    )
    assert load(spark, options("failing")).count() == 0


@pytest.mark.slow
def test_o6_null_where_none_may_be(spark: Any, options: Options, pairs: str) -> None:
    """A NULL in a column that forbids it is stored, or the error does not name the column."""
    frame = spark.createDataFrame([(7_000, None, 1.0)], "id INT, name STRING, score DOUBLE")
    assert "column name" in message(lambda: save(frame, options(pairs)))
    assert load(spark, options(pairs, keyFrom="7000")).count() == 0


@pytest.mark.parametrize("mode", ["error", "ignore", None])
def test_o14_append_or_overwrite(
    spark: Any, options: Options, pairs: str, mode: str | None
) -> None:
    """A mode that we cannot honour is taken for append."""
    frame = spark.createDataFrame([(5_000, "x", 1.0)], "id INT, name STRING, score DOUBLE")
    text = message(lambda: save(frame, options(pairs), mode))
    assert "append" in text.lower()
    assert load(spark, options(pairs, keyFrom="5000", keyTo="5001")).count() == 0


WRONG_SCHEMA = [
    ("id INT, name STRING, scoer DOUBLE", "no column 'scoer'"),
    ("id BIGINT, name STRING", "column id is bigint in the DataFrame and int"),
    ("id INT, score DOUBLE", "needs column 'name'"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "text"), WRONG_SCHEMA)
def test_o14_schema_mismatch(
    spark: Any, options: Options, pairs: str, schema: str, text: str
) -> None:
    """A frame that does not fit its table is written, or the error does not name the column."""
    assert text in message(lambda: save(spark.createDataFrame([], schema), options(pairs)))


WRONG_LOAD = [
    ({"table": f"{NAMESPACE}.nowhere"}, f"no table {NAMESPACE}.nowhere"),
    ({"table": "nodot"}, "namespace.table"),
    ({"endpoint": "nowhere"}, "HOST:BASE"),
    ({"columns": "id,nothing"}, "'nothing'"),
    ({"where": "nothing = 1"}, "does not exist"),
    ({"where": "id ="}, "syntax error"),
    ({"keyform": "1"}, "unknown option 'keyform'"),
    ({"at": "99999999999999999999"}, "option asOf"),
    ({"pageRows": "0"}, "option pageRows"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("wrong", "text"), WRONG_LOAD)
def test_o14_wrong_options(
    spark: Any, options: Options, filled: str, wrong: dict[str, str], text: str
) -> None:
    """A wrong option is ignored, or its error does not name it."""
    assert text in message(lambda: load(spark, options(filled) | wrong).count())


@pytest.mark.slow
def test_o14_paths_are_refused(spark: Any, options: Options, pairs: str) -> None:
    """save("/somewhere") writes to the table all the same."""
    frame = spark.createDataFrame([], "id INT, name STRING")
    writer = frame.write.format("kvorum").options(**options(pairs)).mode("append")
    assert "no paths" in message(lambda: writer.save("/somewhere"))


@pytest.mark.slow
def test_o14_unreachable_endpoint(spark: Any, options: Options, pairs: str) -> None:
    """A node that is not there: Spark waits for ever, or does not say where it looked."""
    wrong = options(pairs) | {"endpoint": "127.0.0.1:9", "timeoutMs": "1000"}
    assert "127.0.0.1:9" in message(lambda: load(spark, wrong))
