"""kill -9 after writes, start again: seconds until the node is ready, and until a write is done."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import dataset
from bench.machine import folder_mb
from bench.node import Node
from bench.stats import Record, median_of_runs

_VALUE_BYTES = 1024


def run(sizes_mb: list[int], *, reps: int) -> Iterator[Record]:
    """A record per size of the data that the node holds when it is killed."""
    for size_mb in sizes_mb:
        with Node("recovery") as node:
            table = dataset.create(node, "load")
            rows = size_mb * 1_000_000 // _VALUE_BYTES
            dataset.fill(table, _VALUE_BYTES, range(rows))
            runs = [_once(node, table, rows + 100 * i) for i in range(reps)]
            record = {"bench": "recovery", "op": "kill", "load_mb": size_mb}
            yield record | {"data_mb": folder_mb(node.data)} | median_of_runs(runs, "ready_s")


def _once(node: Node, table: dataset.Loaded, first: int) -> Record:
    with dataset.Caller(node.base) as caller:
        for number in range(first, first + 100):
            dataset.write(caller, table, [number], b"before the kill")
        node.kill()
    began = time.monotonic()
    ready_s = node.start()
    with dataset.Caller(node.base) as caller:
        dataset.write(caller, table, [first], b"after the kill")
    return {"ready_s": round(ready_s, 3), "first_write_s": round(time.monotonic() - began, 3)}
