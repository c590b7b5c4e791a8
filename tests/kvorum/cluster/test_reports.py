"""Reports of whole nodes, in virtual time: a new master knows everything within two beats."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.limits import BEAT_MS, DEAD_AFTER_MS_MIN
from kvorum.api.model import TableSpec
from kvorum.cluster import replica_status
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.master.map.liveness import Health
from tests.kvorum.cluster.simulated import SimCluster

pytestmark = pytest.mark.slow


def _master(cluster: SimCluster) -> Node | None:
    for node in cluster.nodes.values():
        if node.store.tso.leading and node.master.executor is not None:
            return node
    return None


async def _until_master(cluster: SimCluster) -> Node:
    async with asyncio.timeout(20):
        while (found := _master(cluster)) is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return found


def test_a4_a_new_master_has_the_whole_picture_within_two_beats() -> None:
    """Deciders that see a part would split, merge and move by accident."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed=5)
        await cluster.start()
        master = await _until_master(cluster)
        backend = master.backend
        await backend.create_table("default", "t", TableSpec(split_keys=(b"f", b"m")))
        for i in range(300):
            await backend.put("default", "t", b"%c%d" % (b"afm"[i % 3], i), b"." * 500, None, 0)
        await asyncio.sleep(2 * BEAT_MS / 1000)
        before = {p: r.size for p, (_, r) in master.store.picture.leaders().items()}
        assert len(before) == 4
        assert sum(size > 40_000 for size in before.values()) == 3
        old = master.store.identity.node
        await cluster.crash(old)
        new = await _until_master(cluster)
        began = loop.time()
        living = sorted(cluster.nodes)
        while not new.store.picture.complete(living):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        assert loop.time() - began <= 2 * BEAT_MS / 1000
        async with asyncio.timeout(20):  # leaders of what the dead one led
            while len(new.store.picture.leaders()) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        after = {p: r.size for p, (_, r) in new.store.picture.leaders().items()}
        assert {p: s for p, s in after.items() if p != 1} == {
            p: s for p, s in before.items() if p != 1
        }
        known = await replica_status.reports(new.store.kv)
        assert known.nodes[old][0] in ("alive", "suspect")
        await asyncio.sleep((DEAD_AFTER_MS_MIN + 10_000) / 1000)
        new = await _until_master(cluster)  # leaderships go where they belong
        assert new.store.pulse.health()[old][0] is Health.SUSPECT, "300 s are the default"
        rows = await new.backend.nodes()
        assert {row["id"]: row["health"] for row in rows} == {
            **dict.fromkeys(living, "alive"),
            old: "suspect",
        }
        shown = await new.backend.partitions()
        assert all(row["size"] > 0 and "hot_keys" in row and row["load"] >= 0 for row in shown)
        await cluster.start(old)
        await asyncio.sleep(2 * BEAT_MS / 1000)
        new = await _until_master(cluster)
        assert new.store.pulse.health()[old][0] is Health.ALIVE
        assert new.store.picture.complete([1, 2, 3])
        assert not cluster.failed
        for node in list(cluster.nodes.values()):
            await node.stop()

    run(main, 5)
