"""Spark: a batch write of many rows, and the sink's time for micro-batches of 1,000 rows.

The data, the session and the figures are those of the peers' script (16 B key, 100 B value, two
partitions, `local[2]`; median `addBatch` of back-to-back micro-batches): ratios mean something.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvorum
import kvorum.spark
from bench.cluster import Cluster
from bench.dataset import NAMESPACE, ensure_namespace
from bench.machine import tree_cpu_s
from bench.node import ROOT, Node, Server
from bench.stats import Record, median_of_runs, per_op_us, percentile

ROWS = 1_000_000
STREAM_ROWS = 1_000  # of a micro-batch
STREAM_ROWS_FEW = 10
STREAM_BATCHES = 25
_WARM_BATCHES = 5  # not counted: Python workers start
_STREAM_LIMIT_S = 120.0
_SETTLED = 0.1  # of a core: what a node does that has nothing to do
_SETTLE_LIMIT_S = 60.0
_POLL_S = 0.3
_JVM_STOP_S = 30


def use_java() -> None:
    """Point Spark at a Java that it can use. Raises RuntimeError with the remedy."""
    found = subprocess.run(
        [str(ROOT / "scripts" / "java_home.sh")], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise RuntimeError(found.stderr.strip())
    os.environ["JAVA_HOME"] = found.stdout.strip()


def session(folder: Path, master: str = "local[2]") -> Any:
    """A local Spark that leaves everything below `folder`."""
    use_java()
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")  # else in the installation
    # Spark's Python workers are this Python, and import the data source from here.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    from pyspark.sql import SparkSession

    from pyspark_kvorum import DefaultSource

    settings = {
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-Xss16m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master(master).appName("kvorum-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(DefaultSource)
    return spark


def end(spark: Any) -> None:
    """Stop Spark and its JVM, which would otherwise clean up after us when our folder is gone."""
    from pyspark import SparkContext

    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when the pipe to its parent does
    gateway.proc.wait(_JVM_STOP_S)
    SparkContext._gateway = SparkContext._jvm = None


def source(spark: Any, rows: int) -> Any:
    """`rows` rows of a 16-character key and a 100-character value, in memory."""
    from pyspark.sql import functions as F

    text = F.col("id").cast("string")
    frame = spark.range(0, rows, 1, 2).select(
        F.lpad(text, 16, "k").alias("k"), F.substring(F.sha2(text, 512), 1, 100).alias("v")
    )
    frame.persist().count()
    return frame


def create_table(node: Server, name: str) -> None:
    columns = [kvorum.Column("k", "text", nullable=False), kvorum.Column("v", "text")]
    with kvorum.connect(node.url) as db:
        ensure_namespace(db)
        db.create_table(NAMESPACE, name, columns=columns, primary_key=["k"])


def options_of(node: Server, name: str) -> dict[str, str]:
    """Of a read or a write."""
    return {"endpoint": f"127.0.0.1:{node.base}", "table": f"{NAMESPACE}.{name}"}


def settle(node: Server) -> float:
    """Wait until the node has nothing to do any more; the seconds that took."""
    began = time.monotonic()
    while time.monotonic() < began + _SETTLE_LIMIT_S:
        cpu_s, at = tree_cpu_s(node.pids), time.monotonic()
        time.sleep(_POLL_S)
        if tree_cpu_s(node.pids) - cpu_s < _SETTLED * (time.monotonic() - at) * len(node.pids):
            return at - began
    return _SETTLE_LIMIT_S


def write_batch(node: Server, frame: Any, rows: int, name: str, *, bulk: bool = False) -> Record:
    """One append of the whole frame to an empty table of a node at rest. `server_us_row` has the
    cleaning after it, which takes `clean_s`; `write_us_row` ends with the answer.
    """
    create_table(node, name)
    settle(node)
    cpu_s, began = tree_cpu_s(node.pids), time.monotonic()
    if bulk:
        options = options_of(node, name)
        kvorum.spark.bulk_load(frame, options["table"], endpoint=options["endpoint"])
    else:
        frame.write.format("kvorum").options(**options_of(node, name)).mode("append").save()
    seconds = time.monotonic() - began
    written_s = tree_cpu_s(node.pids) - cpu_s
    clean_s = settle(node)
    return {
        "rows_s": round(rows / seconds),
        "seconds": round(seconds, 2),
        "clean_s": round(clean_s, 1),
        "write_us_row": per_op_us(written_s, rows),
        "server_us_row": per_op_us(tree_cpu_s(node.pids) - cpu_s, rows),
    }


def count_rows(spark: Any, node: Server, name: str) -> int:
    """What arrived, counted through Spark."""
    return int(spark.read.format("kvorum").options(**options_of(node, name)).load().count())


def start_stream(
    spark: Any, node: Server, name: str, checkpoint: Path, rows: int, trigger: str = "0 seconds"
) -> Any:
    """A query of micro-batches of so many rows, of two tasks."""
    from pyspark.sql import functions as F

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    text = F.col("value").cast("string")
    return (
        source.option("numPartitions", 2)
        .load()
        .select(text.alias("k"), text.alias("v"))
        .writeStream.format("kvorum")
        .options(**options_of(node, name))
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=trigger)
        .start()
    )


def stream(spark: Any, node: Server, name: str, checkpoint: Path, rows: int) -> Record:
    """Micro-batches back to back; medians of what Spark reports for each."""
    create_table(node, name)
    query = start_stream(spark, node, name, checkpoint, rows)
    try:
        batches = _durations(query)
    finally:
        query.stop()
    triggers = sorted(b["triggerExecution"] for b in batches)
    return {
        "add_batch_ms": statistics.median(b["addBatch"] for b in batches),
        "trigger_ms": statistics.median(triggers),
        "p99_trigger_ms": percentile(triggers, 0.99),
        "batches": len(batches),
    }


def _durations(query: Any) -> list[dict[str, float]]:
    """`durationMs` of the batches after the warm ones."""
    seen: dict[int, dict[str, float]] = {}
    limit = time.monotonic() + _STREAM_LIMIT_S
    while len(seen) < STREAM_BATCHES + _WARM_BATCHES and time.monotonic() < limit:
        if query.exception() is not None:
            raise RuntimeError(f"the stream failed: {query.exception()}")
        seen |= durations(query)
        time.sleep(_POLL_S)
    counted = [seen[batch] for batch in sorted(seen)][_WARM_BATCHES:]
    if not counted:
        raise RuntimeError(f"only {len(seen)} micro-batches in {_STREAM_LIMIT_S:.0f} s")
    return counted


def durations(query: Any) -> dict[int, dict[str, float]]:
    """`durationMs` of the batches that Spark still lists, by number."""
    found = {}
    for progress in query.recentProgress:
        batch = progress if isinstance(progress, dict) else json.loads(progress.json)
        if batch["numInputRows"]:
            found[batch["batchId"]] = batch["durationMs"]
    return found


def run(rows: int, *, reps: int, nodes: int = 1) -> Iterator[Record]:
    """Records `spark batch`, `spark bulk` and `spark stream` (of 1,000 and of 10 rows)."""
    with Node("spark") if nodes == 1 else Cluster("spark", nodes) as node:
        spark = session(node.folder)
        try:
            frame = source(spark, rows)
            write_batch(node, frame, rows, "warm")  # the JVM and the Python workers
            batches = [write_batch(node, frame, rows, f"b{i}") for i in range(reps)]
            arrived = count_rows(spark, node, "b0")
            if arrived != rows:
                raise RuntimeError(f"{rows} rows were written, {arrived} are there")
            what = {"bench": "spark", "nodes": nodes} if nodes > 1 else {"bench": "spark"}
            yield what | {"op": "batch", "rows": rows} | median_of_runs(batches, "rows_s")
            loads = [write_batch(node, frame, rows, f"l{i}", bulk=True) for i in range(reps)]
            yield what | {"op": "bulk", "rows": rows} | median_of_runs(loads, "rows_s")
            for few in (STREAM_ROWS, STREAM_ROWS_FEW):
                streams = [
                    stream(spark, node, f"s{few}x{i}", node.folder / f"checkpoint{few}x{i}", few)
                    for i in range(reps)
                ]
                yield what | {"op": "stream", "rows": few} | median_of_runs(streams, "add_batch_ms")
        finally:
            end(spark)
