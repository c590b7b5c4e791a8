"""What collecting costs those who read and write meanwhile.

    python -m bench.micro_garbage [--clients 64] [--secs 10] [--keys 20000] [--reps 3] [--profile]

One node in this process, over RocksDB, without sockets. `clients` overwrite and read random keys of
100 bytes, in turn while nothing is collected and while everything is, at once: the retention is a
millisecond, so every old version is garbage soon. One JSON line: operations per second and the
latencies of both, as medians of the windows, and how many rows were collected.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.micro import print_measured, profiled
from kv.base.config import NodeConfig
from kvorum.api.model import TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build

TABLE = ("default", "t")
_VALUE = bytes(range(100))
_DAY_MS = 86_400_000


async def window(node: Node, args: argparse.Namespace) -> dict[str, float]:
    """One window of load."""
    chance, taken = random.Random(1), []
    put, get = node.backend.put, node.backend.get
    end = time.perf_counter() + args.secs

    async def client() -> None:
        while (began := time.perf_counter()) < end:
            key = b"%08d" % chance.randrange(args.keys)
            if chance.random() < 0.5:
                await put(*TABLE, key, _VALUE, None, 0)
            else:
                await get(*TABLE, key, 0)
            taken.append(time.perf_counter() - began)

    await asyncio.gather(*(client() for _ in range(args.clients)))
    taken.sort()
    return {
        "ops_s": len(taken) / args.secs,
        "p50_ms": taken[len(taken) // 2] * 1000,
        "p99_ms": taken[len(taken) * 99 // 100] * 1000,
        "p999_ms": taken[len(taken) * 999 // 1000] * 1000,
    }


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = NodeConfig(
        data=folder / "data", port=None, log_level="error", gc_retention_ms=1, gc_interval_ms=200
    )
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    found: dict[str, list[dict[str, float]]] = {"idle": [], "collecting": []}
    collector = node.upkeep.collector
    removed = 0
    try:
        await node.backend.create_table(*TABLE, TableSpec())
        await window(node, args)  # warm
        with profiled(args.profile):
            for _ in range(args.reps):
                held = await node.backend.open_snapshot(0, "bench", 600_000)
                found["idle"].append(await window(node, args))
                before = collector.removed
                await node.backend.release_snapshot(held.id)
                found["collecting"].append(await window(node, args))
                removed += collector.removed - before
    finally:
        await node.stop()
    shown: dict[str, Any] = {
        name: {key: round(median(w[key] for w in windows), 2) for key in windows[0]}
        for name, windows in found.items()
    }
    return {
        "bench": "garbage",
        "clients": args.clients,
        "collected_per_s": round(removed / args.reps / args.secs),
        "walks": collector.walks,
        "compactions": node.upkeep.care.compactions,
        **shown,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--secs", type=float, default=10.0)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    print_measured(partial(measure, parser.parse_args()))


if __name__ == "__main__":
    main()
