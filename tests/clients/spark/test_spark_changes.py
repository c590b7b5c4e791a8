"""The stream of a table's changes. The reader is called as Spark's planner and tasks do, which
needs no JVM; the last tests run whole queries.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

import kvorum
import kvorum.spark
from kv.base.errors import InvalidArgument, KvorumError, Refused
from pyspark_kvorum.changes import ChangesReader, changes_schema
from pyspark_kvorum.options import Options
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import narrowed, spark_schema
from tests.clients.spark.conftest import namespace_of
from tests.kit.machine import ROOT, free_port_base, java_home
from tests.kit.processes import NodeProcess

NAMESPACE = namespace_of(__name__)
pytestmark = pytest.mark.spark

OptionsOf = Callable[..., dict[str, str]]
Row = dict[str, Any]
ALL = ReadAllAvailable()


Stream = Callable[[dict[str, str]], ChangesReader]


@pytest.fixture
def stream() -> Iterator[Stream]:
    """What Spark makes in its planner, and in each task; stopped at the end."""
    made: list[ChangesReader] = []

    def make(raw: dict[str, str]) -> ChangesReader:
        raw = {"changes": "true", **raw}
        options = Options.parse(raw)
        with Session(options) as session:
            table = narrowed(spark_schema(session.table), options.columns)
        made.append(ChangesReader(options, ReadOptions.parse(raw), changes_schema(table)))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def batch(reader: ChangesReader, start: Row, end: Row) -> list[list[Row]]:
    """The rows of a micro-batch, by task."""
    return [
        [row for some in reader.read(part) for row in some.to_pylist()]
        for part in reader.partitions(start, end)
    ]


def follow(
    reader: ChangesReader, start: Row, limit: ReadLimit = ALL, batches: int = 1_000
) -> tuple[list[list[Row]], Row]:
    """Micro-batches until nothing is new: their rows, and where the stream stands."""
    told: list[list[Row]] = []
    for _ in range(batches):
        end = reader.latestOffset(start, limit)
        if end == start:
            break
        told.append([row for task in batch(reader, start, end) for row in task])
        reader.commit(end)
        start = end
    return told, start


def folded(rows: list[Row], state: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """The table that the changes make; each must fit what was there."""
    state = {} if state is None else state
    for row in sorted(rows, key=lambda r: r["_commit_version"]):
        before = state.get(row["key"])
        assert before == (row["_old"] and row["_old"]["value"])
        wanted = "delete" if row["value"] is None else "insert" if before is None else "update"
        assert row["_op"] == wanted
        if row["value"] is None:
            del state[row["key"]]
        else:
            state[row["key"]] = row["value"]
    return state


def table_of(db: kvorum.Database, name: str) -> dict[bytes, bytes]:
    return {item.key: item.value for item in db.table(NAMESPACE, name).rows()}


def write(db: kvorum.Database, name: str, chosen: random.Random, keys: int = 50) -> int:
    """A transaction of random puts and deletions: its version."""
    with db.transaction() as t:
        table = t.table(NAMESPACE, name)
        for _ in range(chosen.randint(1, 8)):
            key = b"%03d" % chosen.randrange(keys)
            if chosen.random() < 0.3:
                table.delete(key)
            else:
                table.put(key, b"%d" % chosen.randrange(10**6))
    return db.timestamp()


def test_f14_changes_fold_to_the_table(
    stream: Stream, db: kvorum.Database, options: OptionsOf
) -> None:
    """A change is lost, told twice, out of place, or with another old row; a micro-batch cuts a
    transaction, or grows beyond its bound; a batch that is read again is another one.
    """
    db.create_table(NAMESPACE, "folded", split_keys=[b"020", b"040"])
    chosen = random.Random(1)
    began = db.timestamp()
    for _ in range(40):
        write(db, "folded", chosen)
    reader = stream(options("folded", startingVersion=str(began)))
    start = reader.initialOffset()
    assert int(start["version"]) == began
    batches, end = follow(reader, start)  # several, if an intent held the frontier back
    everything = [row for some in batches for row in some]
    assert folded(everything) == table_of(db, "folded")
    sizes: dict[int, int] = {}
    for row in everything:
        sizes[row["_commit_version"]] = sizes.get(row["_commit_version"], 0) + 1
        moment = row["_commit_time"].timestamp()
        assert round(moment * 1000) == row["_commit_version"] >> 18
    limited = stream(options("folded", startingVersion=str(began), maxRowsPerBatch="12"))
    assert limited.getDefaultReadLimit() == ReadMaxRows(12)
    batches, stopped = follow(limited, start, limited.getDefaultReadLimit())
    assert len(batches) > 5
    assert [r for some in batches for r in sorted(some, key=_place)] == sorted(
        everything, key=_place
    )
    for some in batches:
        versions = {row["_commit_version"] for row in some}
        assert sum(sizes[v] for v in versions) == len(some), "a transaction was cut"
        assert len(some) <= 12 or len(versions) == 1
    assert int(stopped["version"]) >= max(sizes)
    again = stream(options("folded", startingVersion=str(began)))  # a restart knows only offsets
    assert sorted((r for t in batch(again, start, end) for r in t), key=_place) == sorted(
        everything, key=_place
    )
    assert reader.latestOffset(end, ALL) == end, "nothing is new"


def _place(row: Row) -> tuple[int, bytes]:
    return row["_commit_version"], row["key"]


@pytest.mark.slow
def test_f14_changes_over_splits_and_merges(
    stream: Stream, db: kvorum.Database, options: OptionsOf
) -> None:
    """A partition that is cut or merged between planning and reading costs or doubles changes."""
    db.create_table(NAMESPACE, "cut")
    chosen = random.Random(2)
    reader = stream(options("cut"))
    start = reader.initialOffset()
    told, start = follow(reader, start)
    state: dict[bytes, bytes] = {}
    with Session(Options.parse(options("cut"))) as session:
        here = int(session.run(session.kv.locate(reader.bounds[0])).id)
    for turn in range(3):
        for _ in range(15):
            write(db, "cut", chosen)
        end = reader.latestOffset(start, ALL)
        parts = reader.partitions(start, end)
        new = db.split(here, at=b"025")["new"]
        rows = [row for p in parts for some in reader.read(p) for row in some.to_pylist()]
        write(db, "cut", chosen)
        end = reader.latestOffset(start := end, ALL)
        parts = reader.partitions(start, end)
        db.merge(here, new)
        rows += [row for p in parts for some in reader.read(p) for row in some.to_pylist()]
        state = folded(rows, state)
        start = end
        assert state == table_of(db, "cut"), turn
    assert told == [[]]


@pytest.mark.slow
def test_f14_all_rows_come_first(stream: Stream, db: kvorum.Database, options: OptionsOf) -> None:
    """A stream from the earliest version misses rows, or changes made while they are told; its
    lease stays, or is not there.
    """
    db.create_table(NAMESPACE, "first")
    table = db.table(NAMESPACE, "first")
    for i in range(250):
        table.put(b"%03d" % i, b"old")
    reader = stream(options("first", owner="beginning"))
    start = reader.initialOffset()
    assert [s.at for s in db.snapshots() if s.owner == "beginning"] == [int(start["version"])]
    table.put(b"000", b"new")
    table.delete(b"249")
    batches, end = follow(reader, start, ReadMaxRows(100))
    assert [len(some) for some in batches[:3]] == [100, 100, 50]
    assert {row["_op"] for some in batches[:3] for row in some} == {"insert"}
    assert {row["value"] for some in batches[:3] for row in some} == {b"old"}
    assert folded([row for some in batches for row in some]) == table_of(db, "first")
    assert not [s for s in db.snapshots() if s.owner == "beginning"]
    table.put(b"500", b"later")
    (later,), _ = follow(reader, end)
    assert [(row["_op"], row["key"]) for row in later] == [("insert", b"500")]
    latest = stream(options("first", startingVersion="latest"))
    at = latest.initialOffset()
    table.put(b"501", b"later")
    (later,), _ = follow(latest, at)
    assert [row["key"] for row in later] == [b"501"]


@pytest.mark.slow
def test_f14_available_now_ends_with_what_was_acknowledged(
    stream: Stream, db: kvorum.Database, options: OptionsOf
) -> None:
    """A run that should end goes on with new changes, or ends before old ones."""
    db.create_table(NAMESPACE, "finite")
    table = db.table(NAMESPACE, "finite")
    reader = stream(options("finite", startingVersion="latest"))
    start = reader.initialOffset()
    for i in range(20):
        table.put(b"%d" % i, b"v")
    reader.prepareForTriggerAvailableNow()
    table.put(b"later", b"v")
    batches, end = follow(reader, start, ReadMaxRows(7))
    assert sorted(row["key"] for some in batches for row in some) == sorted(
        b"%d" % i for i in range(20)
    )
    assert reader.latestOffset(end, ALL) == end


def test_f14_columns_of_declared_tables(
    stream: Stream, db: kvorum.Database, node: NodeProcess, options: OptionsOf
) -> None:
    """A deletion has no key, an update no old row, or `columns` reads others."""
    columns = [
        kvorum.Column("id", "int8", nullable=False),
        kvorum.Column("name", "text", nullable=False),
        kvorum.Column("score", "float8"),
    ]
    db.create_table(NAMESPACE, "people", columns=columns, primary_key=["id"])
    import pyarrow as pa

    from kv.base.keys import table_prefix
    from kv.base.ops import delete, put
    from sqlproxy.rows import arrow_rows

    reader = stream(options("people", startingVersion="latest"))
    start = reader.initialOffset()
    with Session(Options.parse(options("people"))) as session:
        prefix = table_prefix(session.table.id)
        rows = pa.record_batch({"id": [1, 2], "name": ["a", "b"], "score": [0.5, None]})
        keys, values = arrow_rows.encode_batch(session.table, rows)
        ops = [put(prefix + k, v) for k, v in zip(keys, values, strict=True)]
        session.run(session.txn.write(ops))
        newer = pa.record_batch({"id": [1], "name": ["c"], "score": [1.5]})
        (key,), (value,) = arrow_rows.encode_batch(session.table, newer)
        session.run(session.txn.write([put(prefix + key, value), delete(prefix + keys[1])]))
    (told,), _ = follow(reader, start)
    assert [tuple(row.values())[:5] for row in told] == [
        ("insert", 1, "a", 0.5, None),
        ("insert", 2, "b", None, None),
        ("update", 1, "c", 1.5, {"id": 1, "name": "a", "score": 0.5}),
        ("delete", 2, None, None, {"id": 2, "name": "b", "score": None}),
    ]
    narrow = stream(options("people", startingVersion="latest", columns="score,id"))
    (told,) = batch(narrow, start, narrow.latestOffset(start, ALL))
    assert told[2]["_old"] == {"score": 0.5, "id": 1}


@pytest.mark.slow
def test_f14_a_stream_that_fell_behind_says_so(stream: Stream, tmp_path: Path) -> None:
    """A stream goes on with a gap, or fails without advice; held history is collected."""
    forgetful = ("--gc-retention-ms", "1500", "--gc-interval-ms", "200")
    with NodeProcess(tmp_path / "data", free_port_base(), *forgetful) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_namespace(NAMESPACE)
            db.create_table(NAMESPACE, "aged")
            raw = {"endpoint": f"127.0.0.1:{node.base}", "table": f"{NAMESPACE}.aged"}
            loose = stream({**raw, "startingVersion": "latest"})
            held = stream({**raw, "startingVersion": "latest", "holdHistory": "true"})
            behind, start = loose.initialOffset(), held.initialOffset()
            db.table(NAMESPACE, "aged").put("k", b"0")
            told, start = follow(held, start)
            assert len(told) == 1
            for i in range(1, 11):
                db.table(NAMESPACE, "aged").put("k", b"%d" % i)
                time.sleep(0.4)
            (rows,), _ = follow(held, start)
            assert [row["value"] for row in rows] == [b"%d" % i for i in range(1, 11)]
            held.stop()
            for i in range(8):
                db.table(NAMESPACE, "aged").put("k", b"%d" % i)
                time.sleep(0.4)
            with pytest.raises(KvorumError, match="new checkpoint") as late:
                follow(loose, behind)
            assert late.value.code == "SNAPSHOT_TOO_OLD"


@pytest.mark.slow
def test_f14_another_table_of_the_name(
    stream: Stream, db: kvorum.Database, options: OptionsOf
) -> None:
    """A table that was made anew is taken for the old one."""
    db.create_table(NAMESPACE, "renewed")
    reader = stream(options("renewed"))
    _, at = follow(reader, reader.initialOffset())
    reader.stop()
    db.drop_table(NAMESPACE, "renewed")
    db.create_table(NAMESPACE, "renewed")
    again = stream(options("renewed"))
    with pytest.raises(Refused) as refused:
        again.latestOffset(at, ALL)
    assert refused.value.code == "TABLE_CHANGED"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"startingVersion": "tomorrow"}, "startingVersion must be earliest, latest or a version"),
        ({"startingVersion": str(2**62)}, "lies in the future"),
        ({"maxRowsPerBatch": "0"}, "maxRowsPerBatch".lower()),
        ({"where": "key > 'a'"}, "filter what comes in Spark"),
        ({"asOf": "1"}, "not for a stream of changes"),
        ({"holdHistory": "yes"}, "must be true or false"),
    ],
)
def test_f14_what_a_stream_refuses(
    stream: Stream, db: kvorum.Database, options: OptionsOf, more: dict[str, str], said: str
) -> None:
    """A wrong option is taken for something else, or its refusal does not name it."""
    if "refusing" not in [t.name for t in db.tables(NAMESPACE)]:
        db.create_table(NAMESPACE, "refusing")
    with pytest.raises(InvalidArgument) as refused:
        stream(options("refusing", **more)).initialOffset()
    assert said in str(refused.value)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_o13_a_pipeline_of_changes_is_exact_over_kills(
    db: kvorum.Database, node: NodeProcess, folder: Path
) -> None:
    """Kvorum → Spark → Kvorum, its driver killed in the middle: the copy lacks changes, has
    them out of order, or is not the table in the end.
    """
    for name in ("origin", "copy"):
        db.create_table(NAMESPACE, name)
    chosen = random.Random(5)
    for _ in range(40):
        write(db, "origin", chosen, keys=200)
    with driver(node, folder, "until-killed") as running:
        copied(db, chosen, running)
        running.kill()
    for _ in range(30):
        write(db, "origin", chosen, keys=200)
    with driver(node, folder, "to-the-end") as running:
        assert running.wait(300) == 0
    assert table_of(db, "copy") == table_of(db, "origin")


def copied(
    db: kvorum.Database,
    chosen: random.Random,
    running: subprocess.Popen[bytes],
    within_s: int = 200,
) -> None:
    """Write on until two more micro-batches are in the copy, each a version of its own."""
    versions: set[int] = set()
    enough = len({item.version for item in db.table(NAMESPACE, "copy").rows()}) + 2
    end = time.monotonic() + within_s
    while len(versions) < enough:
        assert running.poll() is None, "the driver ended by itself"
        assert time.monotonic() < end, "nothing was copied"
        write(db, "origin", chosen, keys=200)
        versions.update(item.version for item in db.table(NAMESPACE, "copy").rows())
        time.sleep(0.05)


@contextlib.contextmanager
def driver(node: NodeProcess, folder: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """tests/clients/spark/changes_driver.py in a process group of its own, which ends with the
    test."""
    home, advice = java_home()
    assert home is not None, advice
    env = {**os.environ, "JAVA_HOME": home, "PYTHONPATH": str(ROOT)}
    names = [f"{NAMESPACE}.origin", f"{NAMESPACE}.copy", str(folder), how]
    command = [sys.executable, "-m", "tests.clients.spark.changes_driver", f"127.0.0.1:{node.base}"]
    with (folder / f"{how}.log").open("ab") as log:
        running = subprocess.Popen(
            [*command, *names],
            cwd=ROOT,
            env={**env, "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)


@pytest.mark.slow
def test_o13_changes_in_queries_of_spark(
    spark: Any, db: kvorum.Database, node: NodeProcess, options: OptionsOf, folder: Path
) -> None:
    """A query over changes does not run as the guide says, with several tasks, or goes on elsewhere
    after a restart.
    """
    db.create_table(NAMESPACE, "queried", split_keys=[b"5"])
    table = db.table(NAMESPACE, "queried")
    table.put("1", b"a")
    spark.conf.set("spark.kvorum.endpoint", f"127.0.0.1:{node.base}")

    def run() -> list[Any]:
        frame = kvorum.spark.changes(spark, f"{NAMESPACE}.queried", max_rows_per_batch=10)
        found: list[Any] = []
        query = (
            frame.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    try:
        assert [(r._op, bytes(r.key), r._old) for r in run()] == [("insert", b"1", None)]
        table.put("1", b"b")
        table.put("9", b"c")
        table.delete("1")
        rows = sorted(run(), key=lambda r: int(r._commit_version))
        assert [(r._op, bytes(r.key)) for r in rows] == [
            ("update", b"1"),
            ("insert", b"9"),
            ("delete", b"1"),
        ]
        assert bytes(rows[2]._old.value) == b"b"
        assert run() == []
    finally:
        spark.conf.unset("spark.kvorum.endpoint")
