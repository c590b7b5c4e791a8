"""Bulk loads: sorted, split for, all at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import kvorum
import kvorum.spark
from kv.base.errors import InvalidArgument
from kv.base.keys import table_range
from kv.base.methods import STATS
from procedures.verbs import SINK_PLACE, SINK_STAGE
from pyspark_kvorum.bulk import AT, EACH, Layout, cuts, key_columns, layout
from pyspark_kvorum.changes import ChangesReader, changes_schema
from pyspark_kvorum.options import Options
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import spark_schema
from pyspark_kvorum.writer import KvorumBatchWriter, _Stage
from tests.clients.spark.conftest import namespace_of
from tests.kit.processes import NodeProcess

NAMESPACE = namespace_of(__name__)
pytestmark = pytest.mark.spark

OptionsOf = Callable[..., dict[str, str]]
COLUMNS = [
    kvorum.Column("k", "text", nullable=False),
    kvorum.Column("n", "int8", nullable=False),
    kvorum.Column("v", "text"),
]
ROWS = 30_000


def borders(raw: dict[str, str]) -> list[bytes]:
    """Where the table's partitions meet."""
    with Session(Options.parse(raw)) as session:
        at, end = table_range(session.table.id)
        found: list[bytes] = []
        while at < end:
            here = session.run(session.kv.locate(at))
            at = min(here.end or end, end)
            found.append(at)
        return found[:-1]


def changes_of(raw: dict[str, str]) -> list[list[dict[str, Any]]]:
    """The micro-batches that a stream of the table's changes would have, as Spark calls it."""
    raw = {"changes": "true", **raw}
    with Session(Options.parse(raw)) as session:
        schema = changes_schema(spark_schema(session.table))
    reader = ChangesReader(Options.parse(raw), ReadOptions.parse(raw), schema)
    try:
        at, found = reader.initialOffset(), []
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            parts = reader.partitions(at, end)
            found.append([r for p in parts for some in reader.read(p) for r in some.to_pylist()])
            at = end
        return found
    finally:
        reader.stop()


@pytest.mark.slow
def test_g8_cuts_give_partitions_the_same_share(db: kvorum.Database, options: OptionsOf) -> None:
    """A table is split where no rows come, or at a border that is there already."""
    db.create_table(NAMESPACE, "cuts", columns=COLUMNS, primary_key=["k", "n"])
    raw = options("cuts")
    assert key_columns(raw) == ["k", "n"]
    sample = pa.table({"k": [f"k{i:03d}" for i in range(100)], "n": pa.array(range(100))})
    found = cuts(raw, sample, 4)
    assert len(found) == 3
    assert found == sorted(found, key=lambda cut: cut[1], reverse=True)
    assert len({partition for partition, _ in found}) == 1
    for partition, key in found:
        db.split(partition, at=key)
    assert [edge[4:] for edge in borders(raw)] == sorted(key for _, key in found)
    assert cuts(raw, sample, 4) == []
    assert cuts(raw, sample.slice(0, 0), 4) == []
    with pytest.raises(InvalidArgument, match="splits must be between"):
        cuts(raw, sample, 0)


@pytest.mark.slow
def test_g8_a_bulk_load_is_one_transaction(
    spark: Any, db: kvorum.Database, node: NodeProcess, options: OptionsOf
) -> None:
    """A bulk load loses rows, is seen in part, leaves old snapshots without theirs, is told to
    streams in pieces, or is done twice.
    """
    from pyspark.sql import functions as F

    db.create_table(NAMESPACE, "loaded", columns=COLUMNS, primary_key=["k", "n"])
    spark.conf.set("spark.kvorum.endpoint", f"127.0.0.1:{node.base}")
    name = f"{NAMESPACE}.loaded"
    try:
        rows = spark.range(0, ROWS, 1, 3).select(
            F.sha2(F.col("id").cast("string"), 256).alias("k"),  # in no order
            F.col("id").alias("n"),
            F.lit("first").alias("v"),
        )
        kvorum.spark.bulk_load(rows, name, splits=3, app_id="load", version=1)
        assert len(borders(options("loaded"))) == 2
        before = db.timestamp()
        with kvorum.spark.snapshot(spark) as old:
            changed = rows.where("n < 20000").withColumn("v", F.lit("second"))
            kvorum.spark.bulk_load(changed, name, app_id="load", version=2)
            kvorum.spark.bulk_load(changed, name, app_id="load", version=2)  # submitted again
            assert old.table(name, where="v = 'first'").count() == ROWS
        now = kvorum.spark.table(spark, name)
        assert {r.v: r["count"] for r in now.groupBy("v").count().collect()} == {
            "first": ROWS - 20_000,
            "second": 20_000,
        }
        assert now.agg(F.sum("n")).collect()[0][0] == ROWS * (ROWS - 1) // 2
        batches = changes_of(options("loaded", startingVersion=str(before), maxRowsPerBatch="500"))
        told = [rows for rows in batches if rows]  # time goes on without rows, too
        assert [len(some) for some in told] == [20_000], "one transaction, once, whole"
        assert {row["_op"] for row in told[0]} == {"update"}
        assert {row["_old"]["v"] for row in told[0]} == {"first"}
    finally:
        spark.conf.unset("spark.kvorum.endpoint")


@pytest.mark.slow
@pytest.mark.parametrize("splits", [1, 2])
def test_g8_names_are_spark_s(
    splits: int, spark: Any, db: kvorum.Database, node: NodeProcess
) -> None:
    """A frame whose names differ from the table's in case only was refused, though Spark takes
    them for the same; or taken where Spark does not.
    """
    name = f"named{splits}"
    db.create_table(NAMESPACE, name, columns=COLUMNS, primary_key=["k", "n"])
    spark.conf.set("spark.kvorum.endpoint", f"127.0.0.1:{node.base}")
    rows = spark.range(0, 200).selectExpr("string(id) AS K", "id AS N", "'x' AS v")
    load = partial(kvorum.spark.bulk_load, name=f"{NAMESPACE}.{name}", splits=splits)
    try:
        load(rows)
        assert kvorum.spark.table(spark, f"{NAMESPACE}.{name}").count() == 200
        with pytest.raises(InvalidArgument, match="has no column 'k'"):
            load(rows.drop("K"))
        both = rows.selectExpr("K", "N", "'y' AS v", "K AS k")
        with pytest.raises(InvalidArgument, match="the frame has K and k: which of them is 'k'"):
            load(both)
        spark.conf.set("spark.sql.caseSensitive", "true")
        with pytest.raises(InvalidArgument, match="has no column 'k'"):
            load(rows)
        load(rows.selectExpr("K AS k", "N AS n", "'z' AS v"))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
        spark.conf.unset("spark.kvorum.endpoint")
    found = kvorum.spark.table(spark, f"{NAMESPACE}.{name}", endpoint=f"127.0.0.1:{node.base}")
    assert [tuple(r) for r in found.groupBy("v").count().collect()] == [("z", 200)]


def a_sample(of: list[int], *, swap: int = 0) -> pa.Table:
    """Pairs of neighbours of partitions `of`, in the order of their keys but told in another one;
    of every `swap` pairs one has the higher key first.
    """
    rows = []
    for i, part in enumerate(of):
        keys = [f"{i:05d}a", f"{i:05d}b"]
        if swap and i % swap == 0:
            keys.reverse()
        rows += [((part << 33) + EACH * i + n, key) for n, key in enumerate(keys)]
    rows.sort(key=lambda row: zlib.crc32(row[1].encode()))
    return pa.table({AT: [at for at, _ in rows], "k": [key for _, key in rows]})


@pytest.mark.slow
def test_g8_how_a_frame_lies_is_known() -> None:
    """A frame in no order is not exchanged, so that each task writes everywhere; one whose keys
    fall is not sorted; or one that lies in order is exchanged or sorted.
    """
    ranges = [0] * 100 + [1] * 100 + [0] * 10 + [2] * 90
    assert layout(a_sample(ranges), ["k"], 2) is Layout.RUNS
    assert layout(a_sample(ranges), ["k"], 3) is Layout.RUNS
    assert layout(a_sample(ranges, swap=40), ["k"], 3) is Layout.RUNS
    assert layout(a_sample(ranges, swap=3), ["k"], 3) is Layout.RANGES, "neighbours fall"
    assert layout(a_sample(ranges), ["k"], 4) is Layout.ANYWHERE, "fewer tasks than are wanted"
    few = a_sample(ranges[:50] + ranges[150:190])
    assert layout(few, ["k"], 1) is Layout.ANYWHERE, "too few rows"
    assert layout(few.slice(0, 0), ["k"], 1) is Layout.ANYWHERE
    mixed = [i * 7_919 % 1_009 % 2 for i in range(300)]
    assert layout(a_sample(mixed), ["k"], 2) is Layout.ANYWHERE
    assert layout(a_sample(list(range(100)) * 2), ["k"], 2) is Layout.ANYWHERE, "too many"
    nested = a_sample(ranges).append_column("l", pa.array([[1]] * 600))
    assert layout(nested, ["l"], 2) is Layout.ANYWHERE, "of a type without an order"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "lies"),
    [
        ("lpad(id, 6, '0')", "RUNS"),
        ("lpad(cast(id div 100 AS STRING), 6, '0') || sha2(cast(id AS STRING), 256)", "RANGES"),
        ("sha2(cast(id AS STRING), 256)", "ANYWHERE"),
    ],
)
def test_g8_a_persisted_frame_is_loaded_whole(
    spark: Any,
    db: kvorum.Database,
    node: NodeProcess,
    key: str,
    lies: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A frame that lies in ranges is written without its order, or rows of it are lost."""
    table = f"lies_{lies.lower()}"
    db.create_table(NAMESPACE, table, columns=COLUMNS, primary_key=["k", "n"])
    monkeypatch.setattr("pyspark_kvorum.bulk.EACH", 64)
    known = []
    monkeypatch.setattr(
        "pyspark_kvorum.bulk.layout", lambda *args: known.append(layout(*args)) or known[-1]
    )
    count = 30_000
    frame = spark.range(0, count, 1, 2).selectExpr(f"{key} AS k", "id AS n", "'v' AS v")
    frame.persist()
    try:
        where = {"endpoint": f"127.0.0.1:{node.base}"}
        kvorum.spark.bulk_load(frame, f"{NAMESPACE}.{table}", **where)
        found = kvorum.spark.table(spark, f"{NAMESPACE}.{table}", **where)
        told = found.selectExpr("count(*)", "sum(n)").collect()[0]
        assert tuple(told) == (count, count * (count - 1) // 2)
        assert known == [Layout[lies]]
    finally:
        frame.unpersist()


@pytest.mark.slow
def test_g8_rows_out_of_order_are_refused(
    spark: Any, db: kvorum.Database, node: NodeProcess, options: OptionsOf
) -> None:
    """Option bulk takes rows in any order, and nobody learns that it gains nothing."""
    db.create_table(NAMESPACE, "disorder", columns=COLUMNS, primary_key=["k", "n"])
    rows = spark.range(0, 40_000, 1, 1).selectExpr(
        "sha2(cast(id AS STRING), 256) AS k", "id AS n", "'v' AS v"
    )
    writer = rows.write.format("kvorum").options(**options("disorder", bulk="true"))
    with pytest.raises(Exception, match="not in key order"):
        writer.mode("append").save()
    with pytest.raises(InvalidArgument, match="primary key"):
        kvorum.spark.bulk_load(
            rows.drop("n"), f"{NAMESPACE}.disorder", endpoint=f"127.0.0.1:{node.base}"
        )
    assert kvorum.spark.table(
        spark, f"{NAMESPACE}.disorder", endpoint=f"127.0.0.1:{node.base}"
    ).isEmpty()


def asked(options: dict[str, str], method: int) -> int:
    """How often the node was asked that."""
    with Session(Options.parse(options)) as session:
        (told,) = session.run(session.ask(STATS))
    return sum(count for name, count in told.items() if name.endswith(f"requests.{method}"))


@pytest.mark.slow
@pytest.mark.parametrize("bulk", ["true", "runs", "staged"])
def test_g8_rows_are_laid_in_place(
    spark: Any, db: kvorum.Database, options: OptionsOf, bulk: str
) -> None:
    """Rows that tasks lay in the table are missing, are seen before the commit, or are staged
    nevertheless; or a load cannot be told to stage them.
    """
    name = f"placed_{bulk}"
    db.create_table(NAMESPACE, name, columns=COLUMNS, primary_key=["k", "n"])
    raw = options(name, bulk=bulk)
    count = 60_000
    rows = spark.range(0, count, 1, 2).selectExpr(
        "lpad(cast(id AS STRING), 12, '0') AS k", "id AS n", "repeat('v', 90) AS v"
    )
    if bulk == "runs":  # a few rows lie elsewhere
        rows = rows.selectExpr("if(n % 29000 = 9, concat('z', k), k) AS k", "n", "v")
    before = asked(raw, SINK_PLACE), asked(raw, SINK_STAGE)
    rows.write.format("kvorum").options(**raw).mode("append").save()
    told = spark.read.format("kvorum").options(**options(name)).load()
    assert tuple(told.selectExpr("count(*)", "sum(n)").collect()[0]) == (
        count,
        count * (count - 1) // 2,
    )
    placed, staged = asked(raw, SINK_PLACE) - before[0], asked(raw, SINK_STAGE) - before[1]
    assert (placed > 0) == (bulk != "staged")
    assert (staged > 0) == (bulk != "true")  # of runs those that lie among others


@pytest.mark.slow
def test_g8_two_rows_of_one_key_in_place(
    spark: Any, db: kvorum.Database, options: OptionsOf
) -> None:
    """Two tasks lay rows with one key, and one of them is lost; or a load that is refused leaves
    rows behind.
    """
    db.create_table(NAMESPACE, "bulk_twice", columns=COLUMNS, primary_key=["k", "n"])
    some = [spark.range(first, first + 30_001, 1, 1) for first in (0, 30_000)]
    rows = (
        some[0]
        .union(some[1])
        .selectExpr("lpad(cast(id AS STRING), 12, '0') AS k", "id AS n", "repeat('v', 90) AS v")
    )
    raw = options("bulk_twice", bulk="true")
    for _ in range(2):
        with pytest.raises(Exception, match="two rows with the key"):
            rows.write.format("kvorum").options(**raw).mode("append").save()
        assert spark.read.format("kvorum").options(**options("bulk_twice")).load().isEmpty()
    good = rows.where("n != 30000")
    good.write.format("kvorum").options(**raw).mode("append").save()
    assert spark.read.format("kvorum").options(**options("bulk_twice")).load().count() == 60_000


@pytest.mark.slow
def test_g8_partitions_that_split_while_rows_are_laid(
    db: kvorum.Database, options: OptionsOf
) -> None:
    """Rows are lost, seen early or left locked when their partition is cut, between them, or where
    they come next.
    """
    db.create_table(NAMESPACE, "bulk_cut", columns=COLUMNS, primary_key=["k", "n"])
    told = Options.parse(options("bulk_cut", bulk="true"))
    count, step = 60_000, 10_000
    kept: list[tuple[int, int, int]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, count, step):
            numbers = range(at, at + step)
            columns = {"k": [f"k{n:06d}" for n in numbers], "n": pa.array(numbers, pa.int64())}
            yield pa.RecordBatch.from_pydict({**columns, "v": ["v" * 90] * step})
            if at in (20_000, 30_000):
                aside.submit(split, at // 2).result()  # rows are there
                aside.submit(split, at + 15_000).result()  # and will be here
            assert sum(1 for _ in db.table(NAMESPACE, "bulk_cut").rows()) == 0
            assert kept, "nothing is laid in place"

    def split(number: int) -> None:
        sample = pa.table({"k": [f"k{number:06d}"], "n": pa.array([number], pa.int64())})
        for found, key in cuts(options("bulk_cut"), sample, 2):
            db.split(found, at=key)

    with ThreadPoolExecutor(1) as aside, Session(told) as session:
        writer = KvorumBatchWriter.create(told, session, False)
        stage = _Stage(
            session,
            session.table,
            writer.attempt,
            0,
            "",
            keep=lambda part, task, start_ts: kept.append((part, task, start_ts)),
        )
        done = session.run(stage.all(batches()))
    writer.commit([done])
    rows = list(db.table(NAMESPACE, "bulk_cut").rows())
    assert len(rows) == count
    assert len({row.version for row in rows}) == 1
    assert len(borders(options("bulk_cut"))) == 4
