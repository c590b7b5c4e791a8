"""A real node under load, killed with -9 at random: what was acknowledged is there, whole, once.

KVORUM_KILLS says how often (5; a long run takes 100).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import kvorum
from tests.integration.processes import NodeProcess
from tests.integration.sample_procedures import STEPS
from tests.machine import free_port_base

KILLS = int(os.environ.get("KVORUM_KILLS", "5"))
WRITERS, BATCHERS = 8, 4
PARTS = ("a", "m", "z")  # one in each partition
MAYBE = (kvorum.UnknownOutcome, kvorum.TryLater, kvorum.Reroute)


@dataclass
class Seen:
    """What the clients were told."""

    puts: dict[str, int] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    procedures: dict[str, int] = field(default_factory=dict)
    highest: int = 0
    went_back: list[str] = field(default_factory=list)

    def took(self, began_at: int, version: int) -> None:
        """Real time and timestamps must agree: later asked, higher answered."""
        if version <= began_at:
            self.went_back.append(f"{version} was answered after {began_at}")
        self.highest = max(self.highest, version)


async def write(db: kvorum.AsyncDatabase, writer: int, seen: Seen, stop: asyncio.Event) -> None:
    table = db.table("default", "k")
    for i in itertools.count():
        if stop.is_set():
            return
        key, began_at = f"{'agmsy'[i % 5]}{writer}-{i}", seen.highest
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
            ops = [kvorum.Put("default", "k", f"{p}batch{number}", "x") for p in PARTS]
            version = await db.batch(ops)
        except MAYBE:
            continue
        seen.batches[number] = version
        seen.took(began_at, version)


async def submit(db: kvorum.AsyncDatabase, seen: Seen, stop: asyncio.Event) -> None:
    for i in itertools.count():
        if stop.is_set():
            return
        key = f"proc{i}"
        while key not in seen.procedures:  # the nonce makes it safe to ask until it is told
            try:
                seen.procedures[key] = await db.submit("kill.marks", {"key": key}, nonce=key)
            except MAYBE:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.01)


async def load_and_kill(node: NodeProcess, seen: Seen) -> None:
    stop, ids = asyncio.Event(), itertools.count()
    async with await kvorum.aconnect(node.url) as db, asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(write(db, writer, seen, stop))
        for _ in range(BATCHERS):
            group.create_task(batch(db, ids, seen, stop))
        group.create_task(submit(db, seen, stop))
        for _ in range(KILLS):
            await asyncio.sleep(random.uniform(0.1, 0.8))
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
        await asyncio.sleep(0.2)
        stop.set()


def check(db: kvorum.Database, seen: Seen) -> None:
    rows = {i.key.decode(): i for i in db.table("default", "k").rows()}
    lost = [k for k, v in seen.puts.items() if k not in rows or rows[k].version != v]
    assert not lost, f"{len(lost)} acknowledged puts of {len(seen.puts)} are lost: {lost[:5]}"
    for number in seen.tried:
        versions = {rows[k].version for p in PARTS if (k := f"{p}batch{number}") in rows}
        present = sum(f"{p}batch{number}" in rows for p in PARTS)
        assert present in (0, len(PARTS)), f"batch {number} has {present} of its rows"
        assert len(versions) <= 1, f"batch {number} has the versions {versions}"
        if number in seen.batches:
            assert versions == {seen.batches[number]}, f"acknowledged batch {number} is lost"
    for key, procedure in seen.procedures.items():
        assert db.wait(procedure, timeout_ms=20_000) == STEPS
        found = db.table("default", "k").get(key)
        assert found is not None
        assert int(found.value) == STEPS, f"{key}: its steps ran {found.value!r} times"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_c14_killed_at_random_loses_nothing(tmp_path: Path) -> None:
    """An acknowledgement that a crash takes back is a lie told to every user at once."""
    seen = Seen()
    modules = ("--procedure-modules", "tests.integration.sample_procedures")
    with NodeProcess(tmp_path / "data", free_port_base(), *modules) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_table("default", "k", split_keys=["h", "s"])
        asyncio.run(load_and_kill(node, seen))
        assert seen.puts
        assert seen.batches
        assert seen.procedures
        assert not seen.went_back
        with kvorum.connect(node.url) as db:
            assert db.timestamp() > seen.highest
            check(db, seen)
        assert node.stop() == 0, node.tail()
