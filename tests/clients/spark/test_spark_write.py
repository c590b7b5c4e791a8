"""Writing with Spark: operations, duplicates, replacing, delivery levels, jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import kvorum
import kvorum.spark
from sqlproxy.values import enums
from tests.clients.spark.conftest import namespace_of
from tests.kit.commands import told
from tests.kit.processes import NodeProcess

NAMESPACE = namespace_of(__name__)
pytestmark = pytest.mark.spark

Options = Callable[..., dict[str, str]]


def save(frame: Any, options: dict[str, str], mode: str = "append") -> None:
    frame.write.format("kvorum").options(**options).mode(mode).save()


def load(spark: Any, options: dict[str, str]) -> list[tuple[Any, ...]]:
    frame = spark.read.format("kvorum").options(**options).load()
    return sorted(tuple(row) for row in frame.collect())


def create(db: kvorum.Database, name: str) -> str:
    columns = [kvorum.Column("id", "int4", nullable=False), kvorum.Column("v", "text")]
    db.create_table(NAMESPACE, name, columns=columns, primary_key=["id"])
    return name


def message(work: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own classes wrap ours
        work()
    return str(caught.value)


def cli(node: NodeProcess, *args: str) -> Any:
    return told(*args, connect=f"127.0.0.1:{node.base}")


@pytest.mark.slow
def test_o2_operations_row_by_row(spark: Any, db: kvorum.Database, options: Options) -> None:
    """A deletion is stored as a row, or a row is deleted that was changed."""
    table = create(db, "ops")
    save(spark.createDataFrame([(i, "a") for i in range(5)], "id INT, v STRING"), options(table))
    ops = [(0, None, "D"), (1, "b", "U"), (9, "c", "I"), (7, None, "D")]
    frame = spark.createDataFrame(ops, "id INT, v STRING, op STRING")
    save(frame, options(table, opColumn="op"))
    assert load(spark, options(table)) == [(1, "b"), (2, "a"), (3, "a"), (4, "a"), (9, "c")]
    save(frame.select("id").where("id > 0"), options(table, op="delete"))
    assert load(spark, options(table)) == [(2, "a"), (3, "a"), (4, "a")]
    wrong = spark.createDataFrame([(1, "b", "X")], "id INT, v STRING, op STRING")
    assert "opColumn op has the value 'X'" in message(
        lambda: save(wrong, options(table, opColumn="op"))
    )


@pytest.mark.slow
def test_o6_duplicates_are_refused_or_resolved(
    spark: Any, db: kvorum.Database, options: Options
) -> None:
    """Of two rows with one key, in different tasks, one stays by chance and nobody is told."""
    table = create(db, "twice")
    rows = [(i % 50, f"v{i}", i) for i in range(100)]
    frame = spark.createDataFrame(rows, "id INT, v STRING, seq INT").repartition(4)
    text = message(lambda: save(frame.drop("seq"), options(table)))
    assert "two rows with the key (id)=" in text
    assert load(spark, options(table)) == []
    save(frame, options(table, dedupeBy="seq"))
    assert load(spark, options(table)) == [(i, f"v{i + 50}") for i in range(50)]


@pytest.mark.slow
def test_o14_overwrite(spark: Any, db: kvorum.Database, options: Options) -> None:
    """Mode overwrite appends, or a reader of before sees what it replaced change."""
    table = create(db, "replaced")
    save(spark.createDataFrame([(i, "a") for i in range(9)], "id INT, v STRING"), options(table))
    before = spark.read.format("kvorum").options(**options(table)).load()
    assert before.count() == 9
    save(
        spark.createDataFrame([(5, "b"), (20, "b")], "id INT, v STRING"),
        options(table),
        "overwrite",
    )
    assert load(spark, options(table)) == [(5, "b"), (20, "b")]
    assert before.count() == 9, "its snapshot is held"
    part = options(table, keyFrom="10", keyTo="30")
    save(spark.createDataFrame([(11, "c")], "id INT, v STRING"), part, "overwrite")
    assert load(spark, options(table)) == [(5, "b"), (11, "c")]


@pytest.mark.slow
def test_o10_several_tables_in_one_commit(
    spark: Any, db: kvorum.Database, options: Options, node: NodeProcess
) -> None:
    """A job is seen in part, is lost when its program dies, or writes again what it wrote."""
    one, two = create(db, "job1"), create(db, "job2")
    endpoint = f"127.0.0.1:{node.base}"
    frame = spark.createDataFrame([(i, "a") for i in range(9)], "id INT, v STRING")

    def program(*, dies: bool, expect: tuple[bool, bool]) -> kvorum.spark.Job:
        job = kvorum.spark.job(spark, "nightly", "nightly", 7, endpoint=endpoint)
        with job:
            assert job.write(frame, f"{NAMESPACE}.{one}") is expect[0]
            if dies:
                raise RuntimeError("the program failed")
            assert job.write(frame, f"{NAMESPACE}.{two}", mode="overwrite") is expect[1]
        return job

    with pytest.raises(RuntimeError) as caught:
        program(dies=True, expect=(True, True))
    assert "keeps what it has staged" in caught.value.__notes__[0]
    assert load(spark, options(one)) == []
    told = cli(node, "spark", "sinks")
    (prepared,) = [a for a in told["attempts"] if a["state"] == "PREPARED"]
    assert (prepared["table"], prepared["rows"], prepared["left_ms"]) == (
        f"{NAMESPACE}.{one}",
        9,
        None,
    )
    (listed,) = told["jobs"]
    assert (listed["app"], listed["version"]) == ("nightly", 7)
    program(dies=False, expect=(False, True))
    assert load(spark, options(one)) == load(spark, options(two)) == [(i, "a") for i in range(9)]
    versions = {item.version for name in (one, two) for item in db.table(NAMESPACE, name).rows()}
    assert len(versions) == 1, "one transaction"
    again = program(dies=False, expect=(False, False))
    assert again.done
    told = cli(node, "spark", "sinks")
    assert told["jobs"] == []
    assert ("nightly", "", 7) in {(w["app"], w["table"], w["version"]) for w in told["ledgers"]}


@pytest.mark.slow
def test_o10_a_job_is_aborted(
    spark: Any, db: kvorum.Database, options: Options, node: NodeProcess
) -> None:
    """What an operator let go of is committed by the program that goes on, or stays for ever."""
    table = create(db, "job3")
    frame = spark.createDataFrame([(1, "a")], "id INT, v STRING")

    def program() -> None:
        with kvorum.spark.job(spark, "j", "j", 1, endpoint=f"127.0.0.1:{node.base}") as job:
            job.write(frame, f"{NAMESPACE}.{table}")
            assert cli(node, "spark", "abort", str(job.id)) == {"aborted": str(job.id)}

    assert "abort" in message(program).lower()
    assert load(spark, options(table)) == []
    with kvorum.spark.job(spark, "j", "j", 1, endpoint=f"127.0.0.1:{node.base}") as job:
        assert job.write(frame, f"{NAMESPACE}.{table}"), "a new job of the same version"
        job.abort()  # by itself: the end of the block is no error then
        assert "aborted" in message(lambda: job.write(frame, f"{NAMESPACE}.{table}"))
    assert load(spark, options(table)) == []
    with kvorum.spark.job(spark, "j", "j", 1, endpoint=f"127.0.0.1:{node.base}") as job:
        assert job.write(frame, f"{NAMESPACE}.{table}"), "another one"
    assert load(spark, options(table)) == [(1, "a")]


@pytest.mark.slow
def test_o14_types_that_spark_has_as_text(
    spark: Any, db: kvorum.Database, options: Options
) -> None:
    """A time, interval, long number, array or JSON value comes back as another one."""
    kinds = {"t": "time", "i": "interval", "n": "numeric(45,2)", "a": "int4[]", "j": "jsonb"}
    kinds |= {"u": "uuid", "d": "timestamp", "s": "text[]"}
    labels = {"namespace": NAMESPACE, "name": "temper", "labels": ["sad", "ok"]}
    made = db.wait(db.submit("CreateEnum", labels))
    mood = enums.text_of(enums.Enum(made["oid"], 0, 0, "temper"))
    kinds |= {"e": mood, "m": f"{mood}[]"}
    columns = [kvorum.Column("id", "int4", nullable=False)]
    columns += [kvorum.Column(name, kind) for name, kind in kinds.items()]
    db.create_table(NAMESPACE, "texts", columns=columns, primary_key=["id"])
    one = (
        1,
        "12:30:00.250000",
        "1 mon -2 days +00:00:01.5",
        "9" * 40 + ".25",
        [1, None, 3],
        {"x": [1.5]},
        "12345678-1234-5678-1234-567812345678",
        datetime(2026, 11, 22, 16, 16),  # noqa: DTZ001 - without a zone
        ["a", "", None],
        "ok",
        ["sad", None],
    )
    schema = "id INT, t STRING, i STRING, n STRING, a ARRAY<INT>, j MAP<STRING, ARRAY<DOUBLE>>,"
    schema += " u STRING, d TIMESTAMP_NTZ, s ARRAY<STRING>, e STRING, m ARRAY<STRING>"
    frame = spark.createDataFrame([one, (2, *[None] * 10)], schema)
    save(frame, options("texts"))
    want = (*one[:5], '{"x": [1.5]}', *one[6:])
    found = {row.id: tuple(row) for row in kvorum_frame(spark, options("texts")).collect()}
    assert found == {1: want, 2: (2, *[None] * 10)}
    wrong = frame.selectExpr("id", "'25 parsecs' AS i")
    assert "column i (interval)" in message(lambda: save(wrong, options("texts")))
    wrong = frame.selectExpr("id", "'glad' AS e")
    told = message(lambda: save(wrong, options("texts")))
    assert "column e (temper)" in told
    assert 'invalid input value for enum temper: "glad"' in told


def kvorum_frame(spark: Any, options: dict[str, str]) -> Any:
    return spark.read.format("kvorum").options(**options).load()


def test_o8_nothing_is_prepared(node: NodeProcess) -> None:
    """To commit what nobody prepared looks like success."""
    with (
        kvorum.spark.sinks(f"127.0.0.1:{node.base}") as sinks,
        pytest.raises(kvorum.NotFound, match="has no prepared job up to version 9"),
    ):
        sinks.commit_up_to("nobody", 9)


def stream(spark: Any, folder: Path, options: dict[str, str]) -> Any:
    return (
        spark.readStream.schema("id INT, v STRING")
        .option("maxFilesPerTrigger", 1)
        .csv(str(folder / "source"))
        .writeStream.format("kvorum")
        .options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def add_file(folder: Path, number: int) -> None:
    (folder / "source" / f"{number:03d}.csv").write_text(f"{number},v{number}\n")


def forget_last(folder: Path) -> None:
    """Spark does not know that its last batch was committed: it replays it."""
    commits = sorted((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()
    for left in (folder / "checkpoint" / "commits").glob(".*"):
        left.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once", "at-most-once"])
def test_o1_each_delivery_shows_its_anomaly(
    spark: Any, db: kvorum.Database, options: Options, folder: Path, delivery: str
) -> None:
    """A level promises more or less than it says: a replay writes again only at least once, a
    batch that is refused is lost only at most once.
    """
    table = create(db, "level_" + delivery.replace("-", "_"))
    given = options(
        table, delivery=delivery, op="insert" if delivery == "at-most-once" else "upsert"
    )
    add_file(folder, 0)
    stream(spark, folder, given).awaitTermination()
    (first,) = db.table(NAMESPACE, table).rows()
    forget_last(folder)
    stream(spark, folder, given).awaitTermination()
    (item,) = db.table(NAMESPACE, table).rows()
    if delivery == "at-least-once":
        assert item.version > first.version, "the replay wrote it once more"
    else:
        assert item.version == first.version, "the replay wrote nothing"
    if delivery != "at-most-once":
        return
    (folder / "source" / "001.csv").write_text("0,again\n")  # refused: the key is there
    stream(spark, folder, given).awaitTermination()  # and nobody hears of it
    assert [r["v"] for r in map(dict, load_dicts(spark, options(table)))] == ["v0"]


def load_dicts(spark: Any, options: dict[str, str]) -> list[dict[str, Any]]:
    frame = spark.read.format("kvorum").options(**options).load()
    return [row.asDict() for row in frame.collect()]


@pytest.mark.slow
def test_o11_a_query_that_was_replaced_is_fenced(
    spark: Any, db: kvorum.Database, options: Options, folder: Path
) -> None:
    """After resetTxnApp the old query, which still lives somewhere, writes on."""
    table = create(db, "fenced")
    named = options(table, appId="mine")
    add_file(folder, 0)
    add_file(folder, 1)
    stream(spark, folder, named).awaitTermination()
    (folder / "checkpoint").rename(folder / "old")
    assert "resetTxnApp=true" in message(lambda: stream(spark, folder, named).awaitTermination())
    (folder / "checkpoint").rename(folder / "refused")
    stream(spark, folder, named | {"resetTxnApp": "true"}).awaitTermination()
    add_file(folder, 2)
    (folder / "checkpoint").rename(folder / "new")
    (folder / "old").rename(folder / "checkpoint")
    text = message(
        lambda: stream(spark, folder, named | {"resetTxnApp": "true"}).awaitTermination()
    )
    assert "was taken over by query" in text
    assert len(load_dicts(spark, options(table))) == 2
