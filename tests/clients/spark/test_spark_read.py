"""Batch reads: ranges, bounds, leases and helpers. Those that need no JVM call the reader as Spark
does: what is planned in one place is read in another.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import kvorum
import kvorum.spark
from kv.base.errors import InvalidArgument, KvorumError
from kv.base.keys import table_prefix
from kv.base.ops import put
from pyspark_kvorum.options import Options
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.reader import KvorumReader, estimate
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import narrowed, spark_schema
from pyspark_kvorum.where_option import Condition
from sqlproxy.rows import arrow_rows
from sqlproxy.rows.schema import Table
from tests.clients.spark.conftest import namespace_of

NAMESPACE = namespace_of(__name__)
pytestmark = pytest.mark.spark

OptionsOf = Callable[..., dict[str, str]]
COLUMNS = [
    kvorum.Column("k", "text", nullable=False),
    kvorum.Column("n", "int4", nullable=False),
    kvorum.Column("v", "text"),
]
ROWS = 3_000


def fill(raw: dict[str, str], rows: pa.RecordBatch) -> None:
    """Rows of a declared table, without Spark."""
    with Session(Options.parse(raw)) as session:
        keys, values = arrow_rows.encode_batch(session.table, rows)
        prefix = table_prefix(session.table.id)
        for at in range(0, len(keys), 500):
            pairs = zip(keys[at : at + 500], values[at : at + 500], strict=True)
            session.run(session.txn.write([put(prefix + k, v) for k, v in pairs]))


def numbers(rows: range) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "k": [f"k{i // 3:04d}" for i in rows],
            "n": pa.array(rows, pa.int32()),
            "v": [None if i % 7 == 0 else f"v{i % 10}" for i in rows],
        }
    )


@pytest.fixture(scope="module")
def wide(db: kvorum.Database, node: Any) -> str:
    """A table (k text, n int4, v text), primary key (k, n): three rows for each k."""
    db.create_table(NAMESPACE, "wide", columns=COLUMNS, primary_key=["k", "n"])
    raw = {"endpoint": f"127.0.0.1:{node.base}", "table": f"{NAMESPACE}.wide"}
    fill(raw, numbers(range(ROWS)))
    return "wide"


def planned(raw: dict[str, str]) -> KvorumReader:
    """What the driver makes."""
    options = Options.parse(raw)
    with Session(options) as session:
        schema = narrowed(spark_schema(session.table), options.columns)
    return KvorumReader(options, ReadOptions.parse(raw), schema)


def values_of(reader: KvorumReader, ranges: list[Any], column: str) -> list[Any]:
    return [k for one in ranges for batch in reader.read(one) for k in batch[column].to_pylist()]


def ids(raw: dict[str, str], ranges: list[Any]) -> list[int]:
    """The partitions where the ranges begin."""
    with Session(Options.parse(raw)) as session:
        return [int(session.run(session.kv.locate(one.start)).id) for one in ranges]


@pytest.mark.slow
def test_o14_a_table_that_was_dropped_is_told_at_once(
    db: kvorum.Database, options: OptionsOf
) -> None:
    """A frame over a table that is gone asks for two minutes, and then says that no node knows a
    partition.
    """
    db.create_table(NAMESPACE, "dropped", columns=COLUMNS, primary_key=["k", "n"])
    reader = planned(options("dropped"))
    ranges = reader.partitions()
    db.drop_table(NAMESPACE, "dropped")
    with pytest.raises(KvorumError, match=r"\.dropped was dropped") as caught:
        reader.partitions()
    assert caught.value.code == "TABLE_GONE"
    with pytest.raises(KvorumError, match=r"\.dropped was dropped"):
        values_of(reader, ranges, "k")


@pytest.mark.slow
def test_o14_ranges_stay_right_when_partitions_split_and_merge(
    db: kvorum.Database, options: OptionsOf
) -> None:
    """A partition that is split or merged between planning and reading, or in the middle of a
    task's read, costs or doubles rows.
    """
    db.create_table(NAMESPACE, "reshaped", split_keys=[b"3"])
    wanted = [b"%d-%03d" % (i // 500, i % 500) for i in range(3_000)]
    for at in range(0, len(wanted), 500):
        with db.transaction() as t:
            for key in wanted[at : at + 500]:
                t.table(NAMESPACE, "reshaped").put(key, b"v")
    reader = planned(options("reshaped"))
    ranges = reader.partitions()
    assert len(ranges) == 2
    left, right = ids(options("reshaped"), ranges)
    new = db.split(left, at=b"1-250")["new"]
    assert values_of(reader, ranges, "key") == wanted
    begun = reader.read(ranges[1])
    first = next(begun)["key"].to_pylist()  # pages of this range are on their way
    other = db.split(right, at=b"5-400")["new"]
    db.merge(left, new)
    db.table(NAMESPACE, "reshaped").put(b"5-4001", b"younger")
    rest = [key for batch in begun for key in batch["key"].to_pylist()]
    assert first + rest == wanted[1_500:]
    db.merge(right, other)
    db.merge(left, right)
    assert values_of(reader, ranges, "key") == wanted


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("k = 'k0003'", 3),
        ("k >= 'k0003' AND k < 'k0005'", 6),
        ("'k0990' <= k", 30),
        ("k BETWEEN 'k0001' AND 'k0002' AND n > 4", 4),
        ("(k IN ('k0500', 'k0007')) AND v IS NOT NULL", 5),
        ("k = 'k0003' OR n = 0", 4),
        ("NOT (k < 'k0999')", 3),
        ("k > 'k0005' AND k < 'k0001'", 0),
        ("k = 'a\x01b'", 0),
    ],
)
def test_o14_where_narrows_the_range_and_nothing_else(
    wide: str, options: OptionsOf, where: str, count: int
) -> None:
    """A condition on the key reads the whole table, or a bound made of it loses rows."""
    reader = planned(options(wide, where=where))
    found = values_of(reader, reader.partitions(), "n")
    assert len(found) == count
    everything = planned(options(wide))
    table = pa.Table.from_batches(
        [b for one in everything.partitions() for b in everything.read(one)]
    )
    assert table.num_rows == ROWS
    by_column = Condition(where, reader.table).arrow
    assert by_column is not None
    assert found == table.filter(by_column)["n"].to_pylist()


def test_o14_key_bounds_of_conditions() -> None:
    """A test of another column, or under OR and NOT, cuts rows off."""
    columns = [kvorum.Column("k", "text", nullable=False), kvorum.Column("v", "text")]
    with_text = Table.declare("n", "t", columns=columns, primary_key=["k"])
    low, high = Condition("k >= 'b' AND k < 'c' AND v = 'x'", with_text).bounds()
    assert low
    assert low < arrow_rows.key_prefix(with_text, "bz") < high
    for text in ("k = 'b' OR v = 'x'", "NOT k = 'b'", "v = 'b'", "k = v"):
        assert Condition(text, with_text).bounds() == (b"", b""), text
    low, high = Condition("k IN ('b', NULL, 'd')", with_text).bounds()
    assert low <= arrow_rows.key_prefix(with_text, "b")
    assert arrow_rows.key_prefix(with_text, "d") < high
    nowhere, end = Condition("k = NULL", with_text).bounds()
    assert nowhere >= end > b""


@pytest.mark.slow
def test_o14_large_partitions_are_read_by_several_tasks(wide: str, options: OptionsOf) -> None:
    """A table of one partition is read by one task, or rows at the cuts get lost; its size is not
    told.
    """
    reader = planned(options(wide, parts="4"))
    ranges = reader.partitions()
    assert len(ranges) > 1
    with ThreadPoolExecutor(len(ranges)) as tasks:  # as many executors would
        found = list(tasks.map(lambda one: values_of(reader, [one], "n"), ranges))
    assert all(found)
    assert [n for some in found for n in some] == list(range(ROWS))
    assert ROWS * 20 < estimate(options(wide)) < ROWS * 200


@pytest.mark.slow
def test_u9_who_reads_holds_the_version_again(
    db: kvorum.Database, wide: str, options: OptionsOf
) -> None:
    """A lease that ended before a task began leaves the task without history, or one behind it."""
    reader = planned(options(wide, owner="late"))
    db.release_snapshot(reader.pin.id)
    ranges = reader.partitions()
    reading = reader.read(ranges[0])
    next(reading)
    (held,) = [s for s in db.snapshots() if s.owner == "late"]
    assert held.at == reader.pin.at
    assert sum(batch.num_rows for batch in reading) < ROWS
    assert not [s for s in db.snapshots() if s.owner == "late"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"asOf": "yesterday"}, "asOf must be a version or a time"),
        ({"asOf": "1", "at": "1"}, "at and asOf are the same"),
        ({"asOf": "2999-01-01T00:00:00Z"}, "future"),
        ({"parts": "0"}, "parts must be between 1 and"),
        ({"startingVersion": "latest"}, "is for a stream of changes"),
        ({"where": "k = (SELECT 'x')"}, "subquery"),
        ({"where": "k = 'x' AND random() < 1"}, "option where"),
        ({"columns": "k,zz"}, "names 'zz'"),
        ({"keyfrom": "1", "nosuch": "x"}, "unknown option 'nosuch'"),
    ],
)
def test_o14_what_a_read_refuses(
    wide: str, options: OptionsOf, more: dict[str, str], said: str
) -> None:
    """A wrong option is taken for something else, or its refusal does not name it."""
    with pytest.raises((InvalidArgument, KvorumError)) as refused:
        planned(options(wide, **more))
    assert said in f"{refused.value.code} {refused.value}"


@pytest.mark.slow
def test_o14_tables_as_of_a_time(
    spark: Any, db: kvorum.Database, node: Any, options: OptionsOf
) -> None:
    """`kvorum.spark.table` reads another state than the one it was asked for, or needs options; two
    tables of one snapshot are seen at two moments.
    """
    db.create_table(NAMESPACE, "older")
    db.create_table(NAMESPACE, "other")
    older, other = db.table(NAMESPACE, "older"), db.table(NAMESPACE, "other")
    older.put("k", b"1")
    version = other.put("k", b"1")
    moment = datetime.fromtimestamp(((version >> 18) + 1) / 1000, UTC)
    while db.timestamp() >> 18 <= (version >> 18) + 2:
        pass
    with pytest.raises(InvalidArgument, match=r"spark\.kvorum\.endpoint"):
        kvorum.spark.table(spark, f"{NAMESPACE}.older")
    spark.conf.set("spark.kvorum.endpoint", f"127.0.0.1:{node.base}")
    try:
        with kvorum.spark.snapshot(spark, owner="two tables") as held:
            assert [s.at for s in db.snapshots() if s.owner == "two tables"] == [held.at]
            older.put("k", b"2")
            other.put("k", b"2")
            frames = [held.table(f"{NAMESPACE}.{name}") for name in ("older", "other")]
            assert [bytes(f.collect()[0].value) for f in frames] == [b"1", b"1"]
        then = kvorum.spark.table(spark, f"{NAMESPACE}.older", as_of=moment)
        assert [bytes(r.value) for r in then.collect()] == [b"1"]
        now = kvorum.spark.table(spark, f"{NAMESPACE}.older", columns=["value"], key_from="a")
        assert [bytes(r.value) for r in now.collect()] == [b"2"]
        assert now.columns == ["value"]
        assert kvorum.spark.size(spark, f"{NAMESPACE}.older") > 0
        now.createOrReplaceTempView("older_now")
        assert spark.sql("SELECT count(*) AS n FROM older_now").collect()[0].n == 1
        applied = spark.sparkContext.applicationId
        assert any(applied in s.owner for s in db.snapshots()), "who holds it is told"
    finally:
        spark.conf.unset("spark.kvorum.endpoint")


@pytest.mark.slow
@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_o14_filters_never_leak_whatever_the_setting(
    spark: Any, wide: str, options: OptionsOf, pushdown: str
) -> None:
    """Spark's pushdown hands filters of one scan to another scan of the same load: wrong rows."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = spark.read.format("kvorum").options(**options(wide, parts="3")).load()
        low, high = frame.where("n < 10"), frame.where("n >= 2990")
        assert low.count() == 10
        assert low.union(high).count() == 20
        assert low.join(high, low.v == high.v).count() == 7
        assert frame.count() == ROWS
        assert frame.where("k = 'k0003'").union(frame.where("v IS NULL")).count() == 3 + 429
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.slow
def test_o14_sql_views_of_tables(spark: Any, wide: str, options: OptionsOf) -> None:
    """`CREATE TEMPORARY VIEW … USING kvorum` does not work as the guide says."""
    given = ", ".join(f"{k} '{v}'" for k, v in options(wide).items())
    spark.sql(f"CREATE TEMPORARY VIEW wide_view USING kvorum OPTIONS ({given})")
    rows = spark.sql("SELECT v, count(*) AS c FROM wide_view WHERE n < 100 GROUP BY v").collect()
    assert sum(row.c for row in rows) == 100


@pytest.mark.slow
def test_numerics_and_arrays_of_them_as_text(
    spark: Any, db: kvorum.Database, options: OptionsOf
) -> None:
    """Spark's decimals hold less than SQL's numerics: what was read as text was refused again."""
    columns = [
        kvorum.Column("a", "int8", nullable=False),
        kvorum.Column("n", "numeric"),
        kvorum.Column("ns", "numeric[]"),
    ]
    db.create_table(NAMESPACE, "numbers", columns=columns, primary_key=["a"])
    big = "1" + "0" * 30
    rows = [(1, big, [big, "NaN", None]), (2, None, []), (3, "1.50", None)]
    frame = spark.createDataFrame(rows, "a BIGINT, n STRING, ns ARRAY<STRING>")
    frame.write.format("kvorum").mode("append").options(**options("numbers")).save()
    as_text = options("numbers", numericAsText="true")
    read = spark.read.format("kvorum").options(**as_text).load()
    assert [tuple(r) for r in read.orderBy("a").collect()] == rows
    read.where("a = 3").withColumn("a", read.a + 1).write.format("kvorum").mode("append").options(
        **as_text
    ).save()
    again = spark.read.format("kvorum").options(**as_text).load()  # `read` is of its moment
    assert [r.n for r in again.where("a = 4").collect()] == ["1.50"]
    some = spark.read.format("kvorum").options(**as_text, where="n > 1e29").load()
    assert [r.ns for r in some.collect()] == [[big, "NaN", None]]
