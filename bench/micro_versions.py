"""What old versions cost a scan of the newest (G15), and a read in the past.

    python -m bench.micro_versions [--keys 100000] [--versions 1,20] [--reps 5] [--profile]

One node in this process, over RocksDB, without sockets: `keys` rows of 100 bytes, each written so
many times; nothing is collected. One JSON line: the median seconds of a scan of all rows at the
newest, for each number of versions, and the ratio to the first; and of a scan at the time when all
had their first version.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.micro import print_measured, profiled
from kv.base.config import NodeConfig
from kv.base.keys import successor, table_prefix
from kv.base.ops import put
from kvorum.api.model import TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build

_BATCH = 5_000
_VALUE = bytes(range(100))
_DAY_MS = 86_400_000


async def scanned(node: Node, prefix: bytes, keys: int, at: int) -> float:
    """Seconds of one scan of a table."""
    began = time.perf_counter()
    start: bytes | None = prefix
    rows = 0
    while start is not None:
        page = await node.store.txn.scan(start, successor(prefix), limit=10_000, at=at)
        rows, start = rows + len(page.items), page.resume
    assert rows == keys, f"{rows} rows, not {keys}"
    return time.perf_counter() - began


async def fill(node: Node, name: str, keys: int, versions: int) -> tuple[bytes, int]:
    """A table with so many versions of each key: its prefix, and when all had their first one."""
    info = await node.backend.create_table("default", name, TableSpec())
    prefix, first = table_prefix(info.id), 0
    for _ in range(versions):
        for at in range(0, keys, _BATCH):
            ops = [put(prefix + b"%010d" % i, _VALUE) for i in range(at, min(at + _BATCH, keys))]
            version = await node.store.txn.write(ops)
        first = first or version
    return prefix, first


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = NodeConfig(data=folder / "data", port=None, log_level="error", gc_retention_ms=_DAY_MS)
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    tables: dict[int, tuple[bytes, int]] = {}
    try:
        for versions in args.versions:
            tables[versions] = await fill(node, f"v{versions}", args.keys, versions)
        state = node.store.state
        await asyncio.to_thread(state.flush)
        await asyncio.to_thread(state.sync)
        newest: dict[int, list[float]] = {versions: [] for versions in tables}
        past: dict[int, list[float]] = {versions: [] for versions in tables}
        with profiled(args.profile):
            for _ in range(args.reps):  # in turn, so that what else runs here hits all alike
                for versions, (prefix, first) in tables.items():
                    newest[versions].append(await scanned(node, prefix, args.keys, 0))
                    past[versions].append(await scanned(node, prefix, args.keys, first))
    finally:
        await node.stop()
    found = {versions: median(times) for versions, times in newest.items()}
    base = found[args.versions[0]]
    return {
        "bench": "versions",
        "keys": args.keys,
        "newest_s": {str(v): round(s, 3) for v, s in found.items()},
        "ratio": {str(v): round(s / base, 2) for v, s in found.items()},
        "past_s": {str(v): round(median(s), 3) for v, s in past.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument(
        "--versions", type=lambda text: [int(n) for n in text.split(",")], default=[1, 20]
    )
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    print_measured(partial(measure, parser.parse_args()))


if __name__ == "__main__":
    main()
