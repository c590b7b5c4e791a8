"""What a Spark driver holds while frames are appended: does it grow with their rows?

`python -m bench.spark_memory [--rows 100000,2000000]`

One JSON line for each number of rows: megabytes of the driver, at most while the append went on:
the JVM's heap after a collection (sampled), the resident set of the JVM, and of the Python
processes that plan and commit (the one that is measured from left out). Executors are processes of
their own (`local-cluster`), so that their rows are not counted. Rows as everywhere: 16 B key, 100 B
value.
"""

from __future__ import annotations

import argparse
import json
import threading
from pathlib import Path
from typing import Any, Final

from bench.machine import memory_mb, tree
from bench.node import Node
from bench.spark import end, session, source, write_batch
from bench.stats import Record

MASTER: Final = "local-cluster[1,2,1024]"
_SAMPLE_S: Final = 0.25
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class Watch:
    """Samples a driver until it is left: the highest of each figure."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._pid: int = spark.sparkContext._gateway.proc.pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.most = {"heap_mb": 0.0, "jvm_mb": 0.0, "python_mb": 0.0}
        self.samples = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        runtime = self._jvm.Runtime.getRuntime()
        while not self._over.wait(_SAMPLE_S):
            self._jvm.System.gc()
            now = {
                "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
                "jvm_mb": _memory_mb(self._pid),
                "python_mb": sum(map(_memory_mb, self._pythons())),
            }
            self.most = {name: max(self.most[name], value) for name, value in now.items()}
            self.samples += 1

    def _pythons(self) -> set[int]:
        """What the driver's JVM started, without the executors and what these did."""
        below = tree(self._pid) - {self._pid}
        executors = [pid for pid in below if _EXECUTOR in _command(pid)]
        return below.difference(*(tree(pid) for pid in executors))


def _command(pid: int) -> bytes:
    """Nothing of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _memory_mb(pid: int) -> float:
    try:
        return memory_mb(pid)
    except (OSError, ValueError):
        return 0.0


def run(rows: list[int]) -> list[Record]:
    """A record `spark driver_memory` for each."""
    found: list[Record] = []
    with Node("spark-memory") as node:
        spark = session(node.folder, MASTER)
        try:
            write_batch(node, source(spark, 10_000), 10_000, "warm")
            for count in rows:
                frame = source(spark, count)
                with Watch(spark) as watch:
                    took = write_batch(node, frame, count, f"m{count}")
                most = {name: round(value, 1) for name, value in watch.most.items()}
                found.append(
                    {"bench": "spark", "op": "driver_memory", "rows": count}
                    | most
                    | {"samples": watch.samples, "rows_s": took["rows_s"]}
                )
        finally:
            end(spark)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="100000,2000000")
    given = parser.parse_args()
    for record in run([int(count) for count in given.rows.split(",")]):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
