"""A load whose every answer is remembered, and the check that each of them was true.

Puts of single keys, batches over three partitions, procedures whose every step adds 1. A write may
end as acknowledged, refused or unknown; what was acknowledged must be there, whole, once.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import kvorum
from tests.processes.sample_procedures import STEPS

WRITERS, BATCHERS = 8, 4
PARTS = ("a", "m", "z")  # one in each partition
MAYBE = (kvorum.UnknownOutcome, kvorum.TryLater, kvorum.Reroute)


_runs = itertools.count()


@dataclass
class Seen:
    """What the clients were told. `run`: a number of this load's own, for its keys and nonces."""

    run: int = field(default_factory=lambda: next(_runs))
    puts: dict[str, int] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    procedures: dict[str, int] = field(default_factory=dict)
    highest: int = 0
    went_back: list[str] = field(default_factory=list)
    gap_s: float = 0.0
    """The longest time without an acknowledged write."""
    last_s: float = field(default_factory=time.monotonic)

    def keys_of(self, batch: int) -> list[str]:
        return [f"{part}batch{self.run}-{batch}" for part in PARTS]

    def took(self, began_at: int, version: int) -> None:
        """Real time and timestamps must agree: later asked, higher answered."""
        now = time.monotonic()
        self.gap_s, self.last_s = max(self.gap_s, now - self.last_s), now
        if version <= began_at:
            self.went_back.append(f"{version} was answered after {began_at}")
        self.highest = max(self.highest, version)


async def write(db: kvorum.AsyncDatabase, writer: int, seen: Seen, stop: asyncio.Event) -> None:
    table = db.table("default", "k")
    for i in itertools.count():
        if stop.is_set():
            return
        key, began_at = f"{'agmsy'[i % 5]}{seen.run}-{writer}-{i}", seen.highest
        try:
            version = await table.put(key, key)
        except MAYBE:
            continue
        seen.puts[key] = version
        seen.took(began_at, version)


async def batch(
    db: kvorum.AsyncDatabase, ids: itertools.count[int], seen: Seen, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        number, began_at = next(ids), seen.highest
        seen.tried.add(number)
        try:
            ops = [kvorum.Put("default", "k", key, "x") for key in seen.keys_of(number)]
            version = await db.batch(ops)
        except MAYBE:
            continue
        seen.batches[number] = version
        seen.took(began_at, version)


async def submit(db: kvorum.AsyncDatabase, seen: Seen, stop: asyncio.Event) -> None:
    for i in itertools.count():
        if stop.is_set():
            return
        key = f"proc{seen.run}-{i}"
        while key not in seen.procedures:  # the nonce makes it safe to ask until it is told
            try:
                seen.procedures[key] = await db.submit("kill.marks", {"key": key}, nonce=key)
            except MAYBE:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def load(url: str, seen: Seen, *, procedures: bool = True) -> AsyncIterator[None]:
    """Everything at once while the body runs; it ends when every answer is in."""
    stop, ids = asyncio.Event(), itertools.count()
    seen.last_s = time.monotonic()
    async with await kvorum.aconnect(url) as db, asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(write(db, writer, seen, stop))
        for _ in range(BATCHERS):
            group.create_task(batch(db, ids, seen, stop))
        if procedures:
            group.create_task(submit(db, seen, stop))
        try:
            yield
        finally:
            stop.set()


def prepare(url: str) -> None:
    """The table of the load, in three partitions, unless an earlier load has made it."""
    with kvorum.connect(url) as db:
        if all(table.name != "k" for table in db.tables("default")):
            db.create_table("default", "k", split_keys=["h", "s"])


def check(db: kvorum.Database, seen: Seen) -> None:
    rows = {i.key.decode(): i for i in db.table("default", "k").rows()}
    lost = [k for k, v in seen.puts.items() if k not in rows or rows[k].version != v]
    assert not lost, f"{len(lost)} acknowledged puts of {len(seen.puts)} are lost: {lost[:5]}"
    for number in seen.tried:
        keys = seen.keys_of(number)
        versions = {rows[key].version for key in keys if key in rows}
        present = sum(key in rows for key in keys)
        assert present in (0, len(PARTS)), f"batch {number} has {present} of its rows"
        assert len(versions) <= 1, f"batch {number} has the versions {versions}"
        if number in seen.batches:
            assert versions == {seen.batches[number]}, f"acknowledged batch {number} is lost"
    for key, procedure in seen.procedures.items():
        assert db.wait(procedure, timeout_ms=20_000) == STEPS
        found = db.table("default", "k").get(key)
        assert found is not None
        assert int(found.value) == STEPS, f"{key}: its steps ran {found.value!r} times"
