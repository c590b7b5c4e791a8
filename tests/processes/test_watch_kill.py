"""Watchers of a real cluster of three processes, one of which is killed: what each was told is one
and the same history, which has everything that was acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

import kvorum
from kvorum import Put
from kvorum.sdk.database import AsyncDatabase
from tests.kit import waiting
from tests.kit.clusters import Nodes, cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]
KEYS = [f"{c}{i}" for c in "agmsz" for i in range(20)]
Told = list[tuple[int, dict[bytes, bytes | None]]]


async def write(db: AsyncDatabase, number: int, written: dict[int, dict[bytes, bytes]]) -> None:
    """Transactions over the partitions until cancelled, and which of them were acknowledged."""
    for n in itertools.count():
        keys = [KEYS[(7 * n + 31 * i * (number + 1)) % len(KEYS)] for i in range(1 + n % 4)]
        ops = {key.encode(): b"%d/%d" % (number, n) for key in keys}
        try:
            version = await db.batch([Put("default", "w", *op) for op in ops.items()])
        except kvorum.KvorumError:
            await asyncio.sleep(0.02)
        else:
            written[version] = ops
        await asyncio.sleep(0.01)


async def thirty_more(written: dict[int, dict[bytes, bytes]]) -> None:
    upto = len(written) + 30
    await waiting.until(lambda: len(written) >= upto)


async def follow(url: str, begin: int, until: asyncio.Future[int], told: Told) -> None:
    """One watch, kept open over whatever happens, until it is beyond `until`."""
    changes: dict[bytes, bytes | None] = {}
    async with (
        await kvorum.aconnect(url) as db,
        db.watch("default", "w", from_version=begin, heartbeats=True) as watch,
    ):
        async for event in watch:
            changes |= {change.key: change.value for change in event.changes}
            if event.last and event.kind == "changes":
                told.append((event.version, changes))
                changes = {}
            if until.done() and watch.position >= until.result():
                return


async def scene(nodes: Nodes) -> None:
    """Watch through the native SDK and through the HTTP of every node; kill a leader meanwhile."""
    written: dict[int, dict[bytes, bytes]] = {}
    told: dict[str, Told] = {}
    until: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with await kvorum.aconnect(nodes.url) as db:
        await db.create_table("default", "w", split_keys=["h", "s"])
        begin = await db.timestamp()
        partition = max(row["id"] for row in await db.partitions())
        victim = await asyncio.to_thread(nodes.leader, partition)
        urls = {"sdk": nodes.url}
        urls |= {
            f"http{n}": f"http://127.0.0.1:{nodes.local.node(n).base + 2}" for n in nodes.numbers
        }
        async with asyncio.TaskGroup() as watching:
            for name, url in urls.items():
                watching.create_task(follow(url, begin, until, told.setdefault(name, [])))
            writers = [asyncio.create_task(write(db, n, written)) for n in range(3)]
            await thirty_more(written)
            await asyncio.to_thread(nodes.kill, victim)
            await thirty_more(written)
            await asyncio.to_thread(nodes.start, victim)
            await thirty_more(written)
            for task in writers:
                task.cancel()
            await asyncio.wait(writers)
            until.set_result(await db.timestamp())
        again: Told = []
        await follow(nodes.url, begin, until, again)
    history = dict(again)
    assert list(history) == sorted(history)
    for version, ops in written.items():
        assert history.get(version) == ops, f"acknowledged {version}"
    for name, found in told.items():
        assert found == again, name


def test_f14_a_killed_node_costs_no_watcher_a_transaction(tmp_path: Path) -> None:
    """A watcher that loses or repeats something when a node dies makes every copy doubtful."""
    with cluster(tmp_path / "cluster") as nodes:
        asyncio.run(scene(nodes))
