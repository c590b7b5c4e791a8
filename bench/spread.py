"""Rows with keys that only rise, loaded into one table of three nodes that nobody tends.

The table begins as one partition. `partition.bytes_max` is lowered, so that a load of minutes
splits it as often as terabytes would with the default. Clients take the next so many keys and write
them in one batch, in order. Every second the leaders and bytes of the table are noted per node:
bytes are those of the replicas that a node has, in units of what the leader reports of a partition.
An error is whatever the SDK raises: with moves, splits and transfers under way, none is expected.

At the end, after some time for the balancer, every row is read again: `missing` and `wrong` ones
are lost writes. `spread_s` is when all nodes led some of the table
for the first time, `least_share` the share of the leaders that the node with the fewest has at the
end, against an even share.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import kvorum
from bench.cluster import NODES, Cluster
from bench.dataset import NAMESPACE
from bench.stats import Record, percentile
from kv.base.keys import table_range

ROWS = 1_000_000
BYTES_MAX = 2 * 1024 * 1024
SETTLE_S = 60.0
_TABLE = "rising"
_BATCH_ROWS = 500
_CLIENTS = 8
_LOOK_S = 1.0
_ERRORS_MAX = 1_000  # then the run ends: something is broken
_RETRY_S = 0.1


def key_of(number: int) -> bytes:
    """Rising with the number."""
    return b"%010d" % number


def value_of(number: int) -> bytes:
    """100 bytes that belong to this key alone."""
    return (b"%010d." % (number * 7919)).ljust(100, b"v")


def run(rows: int, *, bytes_max: int, settle_s: float, replicas: int) -> Iterator[Record]:
    """One load."""
    with Cluster("spread") as cluster:
        found = asyncio.run(_load(cluster, rows, bytes_max, settle_s, replicas))
    head: Record = {"bench": "spread", "nodes": NODES, "rows": rows, "bytes_max": bytes_max}
    yield head | {"replicas": replicas} | found


class Load:
    """The clients: who takes which keys, and what they were answered."""

    def __init__(self, db: kvorum.AsyncDatabase, rows: int) -> None:
        self._db, self._rows = db, rows
        self._starts = itertools.count(0, _BATCH_ROWS)
        self.written = 0
        self.errors: Counter[str] = Counter()
        self.examples: list[str] = []
        self.seconds: list[float] = []

    async def client(self) -> None:
        while (start := next(self._starts)) < self._rows:
            numbers = range(start, min(start + _BATCH_ROWS, self._rows))
            ops = [kvorum.Put(NAMESPACE, _TABLE, key_of(n), value_of(n)) for n in numbers]
            began = time.monotonic()
            while not await self._write(ops, numbers):
                pass
            self.seconds.append(time.monotonic() - began)
            self.written += len(numbers)

    async def _write(self, ops: list[kvorum.Put], numbers: range) -> bool:
        try:
            await self._db.batch(ops)
        except kvorum.KvorumError as error:
            self.errors[error.code] += 1
            if len(self.examples) < 5:
                self.examples.append(f"{numbers.start}: {error.code} {error}")
            if self.errors.total() > _ERRORS_MAX:
                raise
            await asyncio.sleep(_RETRY_S)
            return False
        return True


class Watcher:
    """Who leads and has how much of the table, over time."""

    def __init__(self, db: kvorum.AsyncDatabase, table: int) -> None:
        self._db, self._range = db, table_range(table)
        self._began = time.monotonic()
        self.spread_s: float | None = None
        self.looks: list[dict[str, Any]] = []

    async def look(self, written: int) -> dict[str, Any]:
        start, end = self._range
        rows = [p for p in await self._db.partitions() if start <= p["start"] < end]
        led = Counter(p["leader"] for p in rows if p["leader"] is not None)
        stored: Counter[int] = Counter()
        led_bytes: Counter[int] = Counter()
        for part in rows:
            led_bytes[part["leader"]] += part["size"]
            for node in part["replicas"]:
                stored[node] += part["size"]
        at = round(time.monotonic() - self._began, 1)
        if self.spread_s is None and len(led) >= NODES:
            self.spread_s = at
        nodes = range(1, NODES + 1)
        return {
            "s": at,
            "rows": written,
            "partitions": len(rows),
            "leaders": [led[n] for n in nodes],
            "led_mb": [round(led_bytes[n] / 1e6, 1) for n in nodes],
            "stored_mb": [round(stored[n] / 1e6, 1) for n in nodes],
        }

    async def run(self, load: Load) -> None:
        while True:
            try:
                self.looks.append(await self.look(load.written))
            except kvorum.KvorumError as error:  # a look that fails is no write that fails
                self.looks.append({"error": str(error)})
            await asyncio.sleep(_LOOK_S)


async def _load(
    cluster: Cluster, rows: int, bytes_max: int, settle_s: float, replicas: int
) -> Record:
    async with await kvorum.aconnect(cluster.url) as db:
        for name, value in {"partition.bytes_max": bytes_max, "partition.settle_s": 10}.items():
            setting = {"name": name, "value": value}
            await db.wait(await db.submit("kvorum.set_setting", setting))
        await db.create_namespace(NAMESPACE)
        table = await db.create_table(NAMESPACE, _TABLE, replicas=replicas)
        load, watcher = Load(db, rows), Watcher(db, table.id)
        watching = asyncio.ensure_future(watcher.run(load))
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_CLIENTS):
                    group.create_task(load.client())
            took = time.monotonic() - began
            while_loading = len(watcher.looks)
            await asyncio.sleep(settle_s)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        last = await watcher.look(load.written)
        read, missing, wrong = await check(db, rows)
    even = sum(last["leaders"]) / NODES
    ordered = sorted(load.seconds)
    return {
        "secs": round(took, 1),
        "rows_s": round(rows / took),
        "p50_ms": _ms(percentile(ordered, 0.5)),
        "p999_ms": _ms(percentile(ordered, 0.999)),
        "max_ms": _ms(ordered[-1]),
        "errors": load.errors.total(),
        "codes": dict(load.errors),
        "examples": load.examples,
        "read": read,
        "missing": missing,
        "wrong": wrong,
        "spread_s": watcher.spread_s,
        "least_share": round(min(last["leaders"]) / even, 2) if even else None,
        "loaded": watcher.looks[while_loading - 1] if while_loading else None,
        "settled": last,
        "looks": _some(watcher.looks, 20),
    }


def _some(looks: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many of them, evenly."""
    return looks[:: max(1, -(-len(looks) // most))]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


async def check(db: kvorum.AsyncDatabase, rows: int) -> tuple[int, int, int]:
    """(rows read, missing ones, ones with a wrong value or a key that nobody wrote)."""
    read = wrong = missing = 0
    expected = 0
    async for item in db.table(NAMESPACE, _TABLE).rows():
        read += 1
        number = int(item.key)
        if number < expected or number >= rows:
            wrong += 1
            continue
        wrong += item.value != value_of(number)
        missing += number - expected
        expected = number + 1
    return read, missing + rows - expected, wrong
