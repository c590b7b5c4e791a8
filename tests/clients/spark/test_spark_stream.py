"""Structured Streaming into Kvorum: exactly once over restarts, replays, failures and kill -9."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvorum
import kvorum.spark
from tests.clients.spark.conftest import namespace_of
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess

NAMESPACE = namespace_of(__name__)
pytestmark = pytest.mark.spark

Options = Callable[..., dict[str, str]]
ROWS_PER_FILE = 50


def add_files(folder: Path, first: int, count: int, rows: int = ROWS_PER_FILE) -> None:
    """Files of `rows` lines each; Spark takes them in the order of their times."""
    for i in range(first, first + count):
        lines = [f"{i * rows + n},v{i}" for n in range(rows)]
        path = folder / "source" / f"{i:04d}.csv"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))


def create(db: kvorum.Database, name: str) -> None:
    columns = [kvorum.Column("id", "int4", nullable=False), kvorum.Column("value", "text")]
    db.create_table(NAMESPACE, name, columns=columns, primary_key=["id"])


def versions(db: kvorum.Database, name: str) -> Counter[int]:
    """How many rows each version has."""
    return Counter(item.version for item in db.table(NAMESPACE, name).rows())


def stream(spark: Any, folder: Path, options: dict[str, str], mode: str = "append") -> Any:
    """A started query over all files that are there."""
    return (
        spark.readStream.schema("id INT, value STRING")
        .option("maxFilesPerTrigger", 1)
        .csv(str(folder / "source"))
        .writeStream.format("kvorum")
        .options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.slow
def test_o13_exactly_once_over_restarts_and_replays(
    spark: Any, db: kvorum.Database, options: Options, folder: Path
) -> None:
    """A restarted query skips a batch, or a replayed one is written again."""
    create(db, "restarted")
    add_files(folder, 0, 3)
    stream(spark, folder, options("restarted")).awaitTermination()
    before = versions(db, "restarted")
    assert sorted(before.values()) == [ROWS_PER_FILE] * 3
    # Spark forgets that its last batch was committed, as when the driver dies before its own log
    for path in (folder / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    add_files(folder, 3, 2)
    stream(spark, folder, options("restarted")).awaitTermination()
    after = versions(db, "restarted")
    assert sorted(after.values()) == [ROWS_PER_FILE] * 5
    assert before.keys() <= after.keys(), "the replay wrote nothing"


@pytest.mark.slow
def test_o3_new_checkpoint_with_an_old_app_id(
    spark: Any, db: kvorum.Database, options: Options, folder: Path
) -> None:
    """A new checkpoint starts at batch 0, which is taken for a replay: its rows are lost."""
    create(db, "fresh")
    add_files(folder, 0, 2)
    named = options("fresh", appId="mine")
    stream(spark, folder, named).awaitTermination()
    (folder / "checkpoint").rename(folder / "old-checkpoint")
    query = stream(spark, folder, named)
    with pytest.raises(Exception, match="a new checkpoint needs a new appId"):
        query.awaitTermination()
    other = options("fresh", appId="another")
    (folder / "checkpoint").rename(folder / "refused-checkpoint")
    stream(spark, folder, other).awaitTermination()
    assert sum(versions(db, "fresh").values()) == 2 * ROWS_PER_FILE


@pytest.mark.slow
def test_a_checkpoint_that_is_older_than_the_table_is_told(
    spark: Any, db: kvorum.Database, options: Options, folder: Path
) -> None:
    """A restored checkpoint plans new rows as a batch whose number is taken: taken for a replay,
    they are lost.
    """
    create(db, "restored")
    add_files(folder, 0, 1)
    stream(spark, folder, options("restored")).awaitTermination()
    shutil.copytree(folder / "checkpoint", folder / "backup")
    add_files(folder, 1, 1)
    stream(spark, folder, options("restored")).awaitTermination()
    shutil.rmtree(folder / "checkpoint")
    shutil.copytree(folder / "backup", folder / "checkpoint")
    (folder / "source" / "0001.csv").unlink()
    add_files(folder, 2, 1)
    with pytest.raises(Exception, match=r"SINK_OTHER_BATCH|not the batch 1 that was committed"):
        stream(spark, folder, options("restored")).awaitTermination()
    assert sum(versions(db, "restored").values()) == 2 * ROWS_PER_FILE
    again = options("restored", resetTxnApp="true")
    stream(spark, folder, again).awaitTermination()
    stream(spark, folder, again).awaitTermination()
    assert sum(versions(db, "restored").values()) == 3 * ROWS_PER_FILE


@pytest.mark.slow
def test_update_mode_by_batches(
    spark: Any, db: kvorum.Database, options: Options, folder: Path, node: NodeProcess
) -> None:
    """Totals that change again do not replace their rows, or a replayed batch is written twice."""
    columns = [kvorum.Column("value", "text", nullable=False), kvorum.Column("n", "int8")]
    db.create_table(NAMESPACE, "totals", columns=columns, primary_key=["value"])

    def run() -> None:
        (
            spark.readStream.schema("id INT, value STRING")
            .option("maxFilesPerTrigger", 1)
            .csv(str(folder / "source"))
            .groupBy("value")
            .count()
            .withColumnRenamed("count", "N")
            .writeStream.outputMode("update")
            .foreachBatch(
                kvorum.spark.each_batch(f"{NAMESPACE}.totals", endpoint=f"127.0.0.1:{node.base}")
            )
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    add_files(folder, 0, 2, rows=3)
    run()
    for path in (folder / "checkpoint" / "commits").glob("*1*"):
        path.unlink()
    before = versions(db, "totals")
    run()
    assert versions(db, "totals") == before, "the replay wrote nothing"
    add_files(folder, 2, 1, rows=2)
    run()
    found = {
        r.value: r.n
        for r in kvorum.spark.table(
            spark, f"{NAMESPACE}.totals", endpoint=f"127.0.0.1:{node.base}"
        ).collect()
    }
    assert found == {"v0": 3, "v1": 3, "v2": 2}


@pytest.mark.slow
def test_o9_failed_batch_is_replayed(
    spark: Any, db: kvorum.Database, options: Options, folder: Path
) -> None:
    """A batch whose task failed leaves rows behind, or its replay is refused."""
    from pyspark.sql import functions as F

    create(db, "failed")
    add_files(folder, 0, 2)
    broken = folder / "broken"
    broken.touch()
    path = str(broken)

    def check(value: str) -> str:
        if value == "v1" and Path(path).exists():
            raise RuntimeError("the task is broken")
        return value

    def run() -> Any:
        checked = F.udf(check)
        return (
            spark.readStream.schema("id INT, value STRING")
            .option("maxFilesPerTrigger", 1)
            .csv(str(folder / "source"))
            .select("id", checked("value").alias("value"))
            .writeStream.format("kvorum")
            .options(**options("failed"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(Exception, match="the task is broken"):
        run().awaitTermination()
    assert sorted(versions(db, "failed").values()) == [ROWS_PER_FILE]
    broken.unlink()
    run().awaitTermination()
    assert sorted(versions(db, "failed").values()) == [ROWS_PER_FILE] * 2


@pytest.mark.slow
def test_o14_complete_mode_replaces_the_table(
    spark: Any, db: kvorum.Database, options: Options, folder: Path
) -> None:
    """Output mode complete leaves rows of the batch before, or readers see a part."""
    create(db, "complete")
    save = spark.createDataFrame([(-1, "old")], "id INT, value STRING").write.format("kvorum")
    save.options(**options("complete")).mode("append").save()
    add_files(folder, 0, 2)
    query = (
        spark.readStream.schema("id INT, value STRING")
        .option("maxFilesPerTrigger", 1)
        .csv(str(folder / "source"))
        .groupBy("value")
        .count()
        .selectExpr("CAST(count AS INT) AS id", "value")
        .writeStream.format("kvorum")
        .options(**options("complete", duplicates="last"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.format("kvorum").options(**options("complete")).load().collect()
    assert [row.id for row in found] == [ROWS_PER_FILE], "v0 and v1 have one key: one stays"


class Driver:
    """tests/clients/spark/driver.py in a process group of its own."""

    def __init__(self, node: NodeProcess, table: str, folder: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        argv = [str(ROOT / "tests" / "clients" / "spark" / "driver.py"), f"127.0.0.1:{node.base}"]
        with (folder / "driver.log").open("ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, *argv, f"{NAMESPACE}.{table}", str(folder)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9, its Java and its Python workers, too."""
        os.killpg(self.child.pid, 9)
        self.child.wait(30)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.child.poll() is None:
            self.kill()


def wait_for(rows: int, db: kvorum.Database, name: str, driver: Driver, folder: Path) -> None:
    """Until so many rows are visible, in whole batches at every look."""
    until = time.monotonic() + 240  # a driver starts in half a minute on a slow machine
    while time.monotonic() < until:
        try:
            seen = versions(db, name)
        except kvorum.TryLater:
            continue
        assert set(seen.values()) <= {ROWS_PER_FILE}, "a part of a batch"
        if sum(seen.values()) >= rows:
            return
        assert driver.child.poll() is None, (folder / "driver.log").read_text()[-3000:]
        time.sleep(0.02)
    raise AssertionError(
        f"{rows} rows did not arrive: {(folder / 'driver.log').read_text()[-3000:]}"
    )


@pytest.mark.slow
def test_o13_the_node_is_killed_under_a_stream(spark: Any, folder: Path, tmp_path: Path) -> None:
    """After kill -9 of the node, a row is missing, doubled or half a batch is seen."""
    files = 6
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_namespace(NAMESPACE)
            create(db, "killed")
            add_files(folder, 0, files)
            query = stream(
                spark,
                folder,
                {"endpoint": f"127.0.0.1:{node.base}", "table": f"{NAMESPACE}.killed"},
            )
            while sum(versions(db, "killed").values()) < 2 * ROWS_PER_FILE:
                assert query.isActive, query.exception()
            node.kill()
            node.start()
            query.awaitTermination(200)
            assert query.exception() is None
            seen = versions(db, "killed")
            assert sorted(seen.values()) == [ROWS_PER_FILE] * files


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_o13_driver_and_node_killed_in_mid_flight(folder: Path, tmp_path: Path) -> None:
    """After kill -9 of the driver, and of the node, a row is missing, doubled or half a batch is
    seen.
    """
    files = 12
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_namespace(NAMESPACE)
            create(db, "killed")
            add_files(folder, 0, files)
            with Driver(node, "killed", folder) as driver:
                wait_for(3 * ROWS_PER_FILE, db, "killed", driver, folder)
                driver.kill()
            with Driver(node, "killed", folder) as driver:
                wait_for(6 * ROWS_PER_FILE, db, "killed", driver, folder)
                node.kill()
                node.start()
                assert driver.child.wait(240) == 0, (folder / "driver.log").read_text()[-3000:]
            seen = versions(db, "killed")
            assert sorted(seen.values()) == [ROWS_PER_FILE] * files
