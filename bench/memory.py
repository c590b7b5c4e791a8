"""What an idle node costs, and what stays resident after loading a gigabyte."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import dataset
from bench.machine import Meter, folder_mb, memory_mb
from bench.node import Node
from bench.stats import Record

_SETTLE_S = 3.0
_IDLE_S = 10.0
_VALUE_BYTES = 1024
_KEY_BYTES = 16


def idle(node: Node, idle_s: float = _IDLE_S) -> Record:
    """CPU of a node that nobody talks to, in per cent of one core, and its resident memory."""
    time.sleep(_SETTLE_S)
    meter = Meter([node.pid], [])
    time.sleep(idle_s)
    used = meter.read()
    return {
        "cpu_percent": round(100 * used.server_s / used.wall_s, 2),
        "rss_mb": round(memory_mb(node.pid), 1),
        "other_cores": used.other_cores,
    }


def run(load_mb: int) -> Iterator[Record]:
    """Records `memory idle` and, with `load_mb` megabytes of keys and values, `memory loaded`."""
    with Node("memory") as node:
        yield {"bench": "memory", "op": "idle", **idle(node)}
        table = dataset.create(node, "load")
        rows = load_mb * 1_000_000 // (_VALUE_BYTES + _KEY_BYTES)
        began = time.monotonic()
        dataset.fill(table, _VALUE_BYTES, range(rows))
        seconds = time.monotonic() - began
        yield {
            "bench": "memory",
            "op": "loaded",
            "load_mb": load_mb,
            "rows_s": round(rows / seconds),
            "peak_rss_mb": round(memory_mb(node.pid, "VmHWM"), 1),
            "data_mb": folder_mb(node.data),
            **idle(node),
        }
