"""Writes while their table is split (and merged) all the time, on one node.

Writers put rows of 100 bytes at random keys through the SDK, one after the other. First nobody
splits; then a random partition is split five times a second, and with `merges` all are merged again
whenever there are eight. Reported: p50, p99, p99.9 and the slowest of both halves, in
milliseconds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import kvorum
from bench.node import Node
from bench.stats import Record, median_of_runs, percentile

CLIENTS = 16
_KEYS = 1_000_000
_VALUE = b"." * 100
_PAUSE_S = 0.2


def run(clients: list[int], *, merges: bool, reps: int, secs: float) -> Iterator[Record]:
    """A record per number of writers: medians over `reps`, each on a new node."""
    for count in clients:
        runs = []
        for _ in range(reps):
            with Node("split") as node:
                runs.append(asyncio.run(_measure(node.url, count, secs, merges=merges)))
        yield {"bench": "split", "clients": count} | median_of_runs(runs, "p999_ms")


async def _measure(url: str, clients: int, secs: float, *, merges: bool) -> Record:
    async with await kvorum.aconnect(url) as db:
        await db.create_table("default", "t")
        parts = [row["id"] for row in await db.partitions() if row["id"] != 1]
        quiet = await _window(url, clients, secs, None)
        changes = _Changes(db, parts, 8 if merges else 1_000)
        busy = await _window(url, clients, secs, changes)
    record: Record = {"secs": secs, "splits": changes.splits, "merges": changes.merges}
    return record | {f"quiet_{k}": v for k, v in quiet.items()} | busy


class _Changes:
    """Splits the table into so many partitions and merges them again, over and over."""

    def __init__(self, db: kvorum.AsyncDatabase, parts: list[int], most: int) -> None:
        self.splits = self.merges = 0
        self._db, self._parts, self._most = db, parts, most
        self._random = random.Random(1)

    async def run(self) -> None:
        bounds = [0]
        while True:
            if len(self._parts) < self._most:
                await asyncio.sleep(_PAUSE_S)
                at = self._random.randrange(1, _KEYS)
                i = sum(bound <= at for bound in bounds) - 1
                if at in bounds:
                    continue
                made = await self._db.split(self._parts[i], at=b"%06d" % at)
                self._parts.insert(i + 1, made["new"])
                bounds.insert(i + 1, at)
                self.splits += 1
                continue
            while len(self._parts) > 1:
                await self._db.merge(self._parts[0], self._parts[1])
                del self._parts[1], bounds[1]
                self.merges += 1


async def _window(url: str, clients: int, secs: float, changes: _Changes | None) -> Record:
    taken: list[float] = []
    until = time.monotonic() + secs

    async def write(number: int) -> None:
        chance = random.Random(number)
        async with await kvorum.aconnect(url) as db:
            table = db.table("default", "t")
            while (began := time.monotonic()) < until:
                await table.put(b"%06d" % chance.randrange(_KEYS), _VALUE)
                taken.append(time.monotonic() - began)

    changing = None if changes is None else asyncio.ensure_future(changes.run())
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(write(number))
    if changing is not None:
        changing.cancel()
        ended = await asyncio.gather(changing, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError), ended
    ordered = sorted(taken)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    found: Record = {"writes": len(ordered)}
    for name, share in shares.items():
        at = percentile(ordered, share)
        found[name] = None if at is None else round(at * 1000, 2)
    return found
