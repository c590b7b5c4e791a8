"""What the server pays for a batch of the Spark sink, in process, over RocksDB, without sockets.

    python -m bench.micro_sink [--rows 1000000] [--batches 1] [--profile commit|stage|clean]
        [--scattered]

`--scattered`: the keys of each chunk lie among those of all others, as in a frame without order.

One JSON line: rows/s and CPU µs per row of staging (a 16 B key and a 100 B value per row), of the
commit until it is answered, and of the cleaning after it; and the peak of resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.micro import print_measured, profiled
from kv.base.config import NodeConfig
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId, TableId
from kv.base.keys import table_range
from kvorum.local.ports import system_ports
from kvorum.storage.store import Store
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.registry import Registry
from procedures.sink.format.sink_records import add_crc, pack_chunk
from procedures.sink.sink_clean import SinkClean
from procedures.sink.sink_commit import SinkCommit
from procedures.sink.sink_service import SinkService

TABLE = TableId(100)
CHUNK_ROWS = 8_192
TASKS = 2


class NoTables:
    async def resolve(self, namespace: str, table: str) -> TableId:
        return TABLE

    async def writable(self, namespace: str, table: str) -> TableId:
        return await self.resolve(namespace, table)


def chunk(task: int, seq: int, rows: int, scattered: bool) -> bytes:
    """Rows as Spark's benchmark makes them: rising keys, two tasks."""
    first = task * 100_000_000 + seq * CHUNK_ROWS
    keys = [b"%016d" % (first + i) for i in range(rows)]
    if scattered:  # a permutation of all numbers of 40 bits
        keys = sorted(b"%016d" % (int(key) * 0x9E3779B9 & 0xFFFFFFFFFF) for key in keys)
    return pack_chunk(keys, [b"v%09d" % i * 10 for i in range(rows)])


class Bench:
    def __init__(self, store: Store, profile: str, scattered: bool) -> None:
        registry = Registry()
        registry.add(SinkCommit, make=lambda: SinkCommit(store.txn, self.executor.submit))
        registry.add(SinkClean, make=lambda: SinkClean(store.txn))
        p = store.ports
        self.executor = Executor(
            KvStore(store.txn), registry, NoTables(), p.clock, p.timers, p.rng, threads=1
        )
        self.sink = SinkService(store.txn, self.executor, p.clock)
        self.profile, self.scattered = profile, scattered
        self.result: dict[str, Any] = {}

    async def batch(self, version: int, rows: int) -> None:
        attempt = f"attempt-{version}"
        manifest: list[list[Any]] = []
        plan: list[tuple[int, int, bytes]] = []
        per_task = rows // TASKS
        for task in range(TASKS):
            crc, seq = 0, 0
            for at in range(0, per_task, CHUNK_ROWS):
                data = chunk(task, seq, min(CHUNK_ROWS, per_task - at), self.scattered)
                crc = add_crc(crc, seq, data)
                plan.append((task, seq, data))
                seq += 1
            manifest.append([task, f"t{task}", seq, per_task, crc])

        async def stage() -> None:
            for task, seq, data in plan:
                await self.sink.stage(attempt, TABLE, task, f"t{task}", seq, data)
            for part, name, chunks, count, crc in manifest:
                await self.sink.seal(attempt, TABLE, part, name, chunks, count, crc, None)

        async def commit() -> None:
            request = {
                "attempt": attempt,
                "table": TABLE,
                "app": "bench",
                "version": version,
                "query": "q",
                "manifest": manifest,
                "twice": "refuse",
            }
            while (await self.sink.commit(request, wait_ms=20_000))[0]:
                pass

        async def clean() -> None:
            while self.executor.live():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.005)

        await self._timed("stage", rows, stage)
        plan.clear()
        await self._timed("commit", rows, commit)
        await self._timed("clean", rows, clean)

    async def _timed(self, name: str, rows: int, work: Callable[[], Awaitable[None]]) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        with profiled(self.profile == name):
            await work()
        self.result[f"{name}_rows_s"] = round(rows / (time.perf_counter() - began))
        self.result[f"{name}_cpu_us"] = round((time.process_time() - cpu) / rows * 1e6, 2)


async def measure(
    data: Path, rows: int, batches: int, profile: str, scattered: bool
) -> dict[str, Any]:
    fatal: list[BaseException] = []
    store = Store(system_ports(asyncio.get_running_loop()), fatal.append)
    await store.open(NodeConfig(data=data, port=None))
    await store.manager.create(
        PartitionDescriptor(PartitionId(10), *table_range(TABLE), 1, (NodeId(1),))
    )
    while not all(r.serving() for r in store.manager.replicas()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    bench = Bench(store, profile, scattered)
    async with bench.executor:
        for version in range(batches):
            await bench.batch(version, rows)
    await store.drain()
    await store.close()
    assert not fatal, fatal
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"case": "micro_sink", "rows": rows, **bench.result, "peak_mb": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--profile", default="", help="stage, commit or clean")
    parser.add_argument("--scattered", action="store_true")
    args = parser.parse_args()
    print_measured(
        lambda data: measure(data, args.rows, args.batches, args.profile, args.scattered)
    )


if __name__ == "__main__":
    main()
