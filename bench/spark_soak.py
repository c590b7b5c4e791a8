"""A stream of small micro-batches for minutes: what grows?

`python -m bench.spark_soak [--minutes 10] [--rows 10] [--per-minute 100]`

One JSON line: batches, median `addBatch`, and of each figure its mean over the first and the last
third of the samples: megabytes of the node, of Spark's Python workers, of the JVM's heap after a
collection, and rows that are staged (attempts and chunks). Flat: the last third is not above the
first by more than noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

from bench.machine import memory_mb, tree
from bench.node import Node
from bench.spark import create_table, durations, end, options_of, session, start_stream
from bench.stats import Record
from kv.base import system
from kv.base.keys import table_range
from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session

_WARM_S = 20.0  # workers start, the JVM compiles
_SAMPLE_S = 5.0
_STAGED_MAX = 10_000


def staged_rows(sight: Session) -> int:
    """Attempts and chunks of the sink that are there now."""
    found = 0
    for table in (system.SINK_ATTEMPTS, system.SINK_CHUNKS):
        page = sight.run(sight.txn.scan(*table_range(table), limit=_STAGED_MAX))
        found += len(page.items)
    return found


def sample(spark: Any, node: Node, sight: Session) -> dict[str, float]:
    """The figures of this moment."""
    jvm = spark.sparkContext._gateway.proc.pid
    spark._jvm.System.gc()
    runtime = spark._jvm.Runtime.getRuntime()
    return {
        "node_mb": memory_mb(node.pid),
        "workers_mb": sum(_memory_mb(pid) for pid in tree(jvm) if pid != jvm),
        "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
        "staged_rows": staged_rows(sight),
    }


def _memory_mb(pid: int) -> float:
    """Of a process that may end while we look: then nothing."""
    try:
        return memory_mb(pid)
    except (OSError, ValueError):
        return 0.0


def thirds(samples: Sequence[dict[str, float]]) -> Record:
    """Of each figure its mean over the first and the last third."""
    third = max(1, len(samples) // 3)
    return {
        name: [
            round(statistics.mean(one[name] for one in part), 1)
            for part in (samples[:third], samples[-third:])
        ]
        for name in samples[0]
    }


def run(minutes: float, rows: int, per_minute: int) -> Record:
    """The record `spark soak`."""
    with Node("spark-soak") as node:
        spark = session(node.folder)
        try:
            create_table(node, "soak")
            query = start_stream(
                spark,
                node,
                "soak",
                node.folder / "checkpoint",
                rows,
                trigger=f"{60_000 // per_minute} milliseconds",
            )
            options = Options.parse(options_of(node, "soak"))
            samples = []
            with Session(options, late=True) as sight:
                sight.run(sight.opened())
                time.sleep(_WARM_S)
                until = time.monotonic() + 60 * minutes - _WARM_S
                while time.monotonic() < until:
                    if query.exception() is not None:
                        raise RuntimeError(f"the stream failed: {query.exception()}")
                    samples.append(sample(spark, node, sight))
                    time.sleep(_SAMPLE_S)
            last = durations(query)
            batches = max(last) + 1
            query.stop()
        finally:
            end(spark)
    took = statistics.median(one["addBatch"] for one in last.values())
    found = {"bench": "spark", "op": "soak", "minutes": minutes, "rows": rows, "batches": batches}
    return found | {"add_batch_ms": took, "samples": len(samples)} | thirds(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--per-minute", type=int, default=100)
    given = parser.parse_args()
    print(json.dumps(run(given.minutes, given.rows, given.per_minute)), flush=True)


if __name__ == "__main__":
    main()
