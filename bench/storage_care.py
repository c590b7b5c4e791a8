"""What deletes, times to live and overwrites leave on the disk; what clearing up costs reads.

    python -m bench.storage_care [--rows 100000] [--secs 5]

One node in this process, over RocksDB, retention 1 ms. For each of three tables (nine tenths
deleted; rows that expire; every row written five times) a line of JSON: bytes of files and memory
before and after, and p50, p99 of point reads of another table while nothing is cleared up, and
while everything is. The ratio is of windows next to each other; nothing is asked of the node but
reads.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.micro import print_measured
from kv.base.config import NodeConfig
from kvorum.api.model import TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build

READ = ("default", "read")
_VALUE = os.urandom(1_000)
_BATCH = 200


async def reads(node: Node, secs: float, rows: int) -> dict[str, float]:
    """Point reads for so long."""
    chance, taken = random.Random(1), []
    end = time.perf_counter() + secs
    while (began := time.perf_counter()) < end:
        await node.backend.get(*READ, b"%08d" % chance.randrange(rows), 0)
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(0.0005)
    taken.sort()
    return {
        "p50_ms": round(taken[len(taken) // 2] * 1000, 3),
        "p99_ms": round(taken[len(taken) * 99 // 100] * 1000, 3),
    }


async def fill(node: Node, table: tuple[str, str], rows: int, ttl_ms: int | None = None) -> None:
    for low in range(0, rows, _BATCH):
        await asyncio.gather(
            *(
                node.backend.put(*table, b"%08d" % i, _VALUE, None, ttl_ms or 0)
                for i in range(low, min(low + _BATCH, rows))
            )
        )


async def empty(node: Node, table: tuple[str, str], rows: int) -> None:
    for low in range(0, rows, _BATCH):
        await asyncio.gather(
            *(
                node.backend.delete(*table, b"%08d" % i, None)
                for i in range(low, min(low + _BATCH, rows))
            )
        )


async def one(node: Node, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Write, hold the garbage, read, let it go, read."""
    table = ("default", kind)
    await node.backend.create_table(*table, TableSpec())
    held = await node.backend.open_snapshot(0, "bench", 600_000)
    match kind:
        case "deleted":
            await fill(node, table, args.rows)
            await empty(node, table, args.rows * 9 // 10)
        case "expiring":
            await fill(node, table, args.rows, ttl_ms=1_000)
        case _:
            for _ in range(5):
                await fill(node, table, args.rows // 5)
    await asyncio.to_thread(node.store.state.flush)
    await asyncio.sleep(2)
    before = node.store.state.stats()
    quiet = await reads(node, args.secs, args.rows)
    await node.backend.release_snapshot(held.id)
    busy = await reads(node, args.secs, args.rows)
    care = node.upkeep.care
    looks = care.looks
    after = before
    for _ in range(240):  # until two looks in a row change nothing
        await asyncio.sleep(0.5)
        now = node.store.state.stats()
        if care.looks > looks + 3 and now["file_bytes"] == after["file_bytes"]:
            break
        if now["file_bytes"] != after["file_bytes"]:
            looks = care.looks
        after = now
    return {
        "table": kind,
        "disk_before_mib": before["file_bytes"] >> 20,
        "disk_after_mib": after["file_bytes"] >> 20,
        "memtables_after_mib": after["memtable_bytes"] >> 20,
        "quiet": quiet,
        "clearing": busy,
        "p99_ratio": round(busy["p99_ms"] / quiet["p99_ms"], 2),
        "ranges_rewritten": care.compactions,
        "read_to_rewrite_mib": care.read_bytes >> 20,
    }


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = NodeConfig(
        data=folder / "data", port=None, log_level="error", gc_retention_ms=1, gc_interval_ms=500
    )
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        await node.backend.create_table(*READ, TableSpec())
        await fill(node, READ, args.rows // 4)
        found = [await one(node, kind, args) for kind in ("deleted", "expiring", "overwritten")]
    finally:
        await node.stop()
    return {"bench": "storage_care", "rows": args.rows, "tables": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--secs", type=float, default=5.0)
    print_measured(partial(measure, parser.parse_args()))


if __name__ == "__main__":
    main()
