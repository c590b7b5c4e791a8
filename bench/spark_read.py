"""Spark reads: all rows of a table, and the changes of a table as a stream.

`python -m bench.spark_read [--rows N] [--reps N]`. The data is that of bench/spark.py (16 B key,
100 B value, `local[2]`). The rows are read into Spark's noop sink, so nothing but reading counts;
the node is at rest before: what it cleans after a load is the load's (bench/spark.py: `clean_s`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.dataset import NAMESPACE
from bench.machine import tree_cpu_s
from bench.node import Node
from bench.spark import create_table, end, session, settle, source
from bench.stats import Record, median_of_runs, per_op_us

ROWS = 1_000_000
_WARM_READS = 3  # not counted: the JVM compiles what it meets


def _options(node: Node, name: str) -> dict[str, str]:
    return {"endpoint": f"127.0.0.1:{node.base}", "table": f"{NAMESPACE}.{name}"}


def fill(node: Node, frame: Any, name: str) -> None:
    create_table(node, name)
    frame.write.format("kvorum").options(**_options(node, name)).mode("append").save()


def read(spark: Any, node: Node, rows: int, name: str) -> Record:
    """One read of every row."""
    cpu_s, began = tree_cpu_s([node.pid]), time.monotonic()
    frame = spark.read.format("kvorum").options(**_options(node, name)).load()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - began
    return {
        "rows_s": round(rows / seconds),
        "seconds": round(seconds, 2),
        "server_us_row": per_op_us(tree_cpu_s([node.pid]) - cpu_s, rows),
    }


def changes(spark: Any, node: Node, rows: int, name: str, above: int, folder: Path) -> Record:
    """The changes above a version, from the start of the query to its end (AvailableNow)."""
    cpu_s, began = tree_cpu_s([node.pid]), time.monotonic()
    stream = spark.readStream.format("kvorum").options(
        **_options(node, name), changes="true", startingVersion=str(above)
    )
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
    streamed = sum(p["numInputRows"] for p in map(_progress, query.recentProgress))
    if streamed != rows:
        raise RuntimeError(f"{rows} rows were changed, {streamed} were streamed")
    return {
        "rows_s": round(rows / seconds),
        "seconds": round(seconds, 2),
        "server_us_row": per_op_us(tree_cpu_s([node.pid]) - cpu_s, rows),
    }


def _progress(found: Any) -> dict[str, Any]:
    as_dict: dict[str, Any] = found if isinstance(found, dict) else json.loads(found.json)
    return as_dict


def run(rows: int, *, reps: int) -> Iterator[Record]:
    """Records `spark_read batch`, `spark_read inserts` and `spark_read updates`."""
    import kvorum

    with Node("spark-read") as node:
        spark = session(node.folder)
        try:
            frame = source(spark, rows)
            with kvorum.connect(node.url) as db:
                before = db.timestamp()
                fill(node, frame, "t")
                settle(node)
                for _ in range(_WARM_READS):
                    read(spark, node, rows, "t")
                found = [read(spark, node, rows, "t") for _ in range(reps)]
                yield {"bench": "spark_read", "op": "batch", "rows": rows} | median_of_runs(
                    found, "rows_s"
                )
                found = [
                    changes(spark, node, rows, "t", before, node.folder / f"inserts{i}")
                    for i in range(reps)
                ]
                yield {"bench": "spark_read", "op": "inserts", "rows": rows} | median_of_runs(
                    found, "rows_s"
                )
                before = db.timestamp()
                frame.selectExpr("k", "reverse(v) AS v").write.format("kvorum").options(
                    **_options(node, "t")
                ).mode("append").save()
                settle(node)
                found = [
                    changes(spark, node, rows, "t", before, node.folder / f"updates{i}")
                    for i in range(reps)
                ]
                yield {"bench": "spark_read", "op": "updates", "rows": rows} | median_of_runs(
                    found, "rows_s"
                )
        finally:
            end(spark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--reps", type=int, default=3)
    given = parser.parse_args()
    for record in run(given.rows, reps=given.reps):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
