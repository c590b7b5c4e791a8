"""Very many intents of dead transactions: how long a scan over them takes, and until all are gone.

    python -m bench.micro_abandoned [--intents 100000] [--per 1] [--ttl-ms 2000] [--profile]

One node in this process, over RocksDB, without sockets. Every transaction wrote `per` keys of a
table of three partitions and died before it committed. One JSON line: seconds until the scan of the
whole table has ended (`longest_s`: its slowest page), and until no intent is left, with the node's
own sweeper beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.micro import print_measured, profiled
from kv.base.config import NodeConfig
from kv.base.errors import KeyLocked
from kv.base.keys import table_prefix
from kv.base.limits import SCAN_ATTEMPTS_MAX
from kv.base.methods import PREWRITE
from kv.base.ops import put
from kvorum.api.model import Page, ScanSpec, TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build
from txn.shared.grouping import by_partition

TABLE = ("default", "t")
_AT_ONCE = 500


async def lay(node: Node, keys: list[bytes], per: int, ttl_ms: int) -> None:
    """Intents of transactions that nobody will finish."""
    kv, txn = node.store.kv, node.store.txn

    async def one(some: list[bytes]) -> None:
        start_ts = await txn.now()
        for group in await by_partition(kv, some, list(range(len(some)))):
            part = [some[i] for i in group]
            ops = [list(put(key, b"half")) for key in part]
            await kv.call(PREWRITE, part[0], start_ts, some[0], ttl_ms, ops, 0)

    parts = [keys[at : at + per] for at in range(0, len(keys), per)]
    for at in range(0, len(parts), _AT_ONCE):
        await asyncio.gather(*map(one, parts[at : at + _AT_ONCE]))


def left(node: Node) -> int:
    return sum(len(r.state.locks) for r in node.store.manager.replicas())


async def page(node: Node, cursor: str | None) -> Page:
    """As kvorum.sdk.tables.AsyncTable.rows asks for one."""
    for _ in range(SCAN_ATTEMPTS_MAX):
        try:
            return await node.backend.scan(*TABLE, ScanSpec(limit=1_000, cursor=cursor))
        except KeyLocked:
            continue
    raise AssertionError("the scan makes no progress")


async def scan(node: Node) -> dict[str, Any]:
    longest, rows, cursor = 0.0, 0, None
    began = time.perf_counter()
    while True:
        asked = time.perf_counter()
        found = await page(node, cursor)
        longest = max(longest, time.perf_counter() - asked)
        rows, cursor = rows + len(found.items), found.cursor
        if cursor is None:
            break
    assert not rows, "they were never committed"
    return {
        "scan_s": round(time.perf_counter() - began, 2),
        "longest_s": round(longest, 2),
        "left_after_scan": left(node),
    }


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = NodeConfig(data=folder / "data", port=None, log_level="error")
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        info = await node.backend.create_table(*TABLE, TableSpec(split_keys=(b"4", b"7")))
        prefix = table_prefix(info.id)
        keys = sorted(prefix + b"%d%08d" % (i % 9 + 1, i) for i in range(args.intents))
        began = time.perf_counter()
        await lay(node, keys, args.per, args.ttl_ms)
        laid_s = time.perf_counter() - began
        there = left(node)
        await asyncio.sleep(args.ttl_ms / 1000)
        began = time.perf_counter()
        with profiled(args.profile):
            found = await scan(node)
            while left(node):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.02)
        found["cleared_s"] = round(time.perf_counter() - began, 2)
    finally:
        await node.stop()
    return {
        "bench": "abandoned",
        "intents": args.intents,
        "per_transaction": args.per,
        "laid_s": round(laid_s, 2),
        "there_when_laid": there,
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intents", type=int, default=100_000)
    parser.add_argument("--per", type=int, default=1, help="keys of one transaction")
    parser.add_argument("--ttl-ms", type=int, default=2_000)
    parser.add_argument("--profile", action="store_true")
    print_measured(partial(measure, parser.parse_args()))


if __name__ == "__main__":
    main()
