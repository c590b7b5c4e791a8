"""Whole replicas, consensus included: a node that missed the log is rebuilt, whatever falls."""

from __future__ import annotations

import asyncio
import random

import pytest

from kv.base.ids import PartitionId
from tests.procedures.nodes import OneNode, World
from tests.replica.support import rows_of
from tests.support import simloop


async def far_behind(world: World, rng: random.Random) -> OneNode:
    """A follower that is down, and whose entries are gone from every log."""
    leader = world.leader(2)
    assert leader is not None
    behind = next(node for node in world.nodes.values() if node is not leader)
    behind.crash(rng)
    await asyncio.sleep(3)  # the log is kept for who has answered lately
    for i in range(rng.randrange(20, 120)):
        await world.put(2, b"k%04d" % rng.randrange(50), bytes(rng.choice((1, 300, 6_000))))
        if i % 10 == 0:
            for node in world.nodes.values():
                if node.up:
                    await node.manager.truncate()
    return behind


@pytest.mark.parametrize("seed", range(12))
def test_f4_a_replica_is_rebuilt_whatever_falls(seed: int) -> None:
    """A crash in the middle of a transfer or an installation left a replica that differs, or one
    that never comes back.
    """

    async def main(loop: simloop.SimLoop) -> None:
        rng = random.Random(seed)
        world = World(loop)
        await world.start(splits=[b"k0050"])
        for i in range(20):
            await world.put(2, b"k%04d" % i, b"v")
        installed = 0
        for _ in range(2):
            behind = await far_behind(world, rng)
            await behind.start()
            for _ in range(rng.randrange(6)):  # falls again and again while it is rebuilt
                await asyncio.sleep(rng.random() * rng.choice((0.02, 0.3)))
                installed += behind.manager.counters.snapshots_installed
                behind.crash(rng)
                if rng.random() < 0.3:
                    await world.put(2, b"k%04d" % rng.randrange(50), b"between")
                await behind.start()
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.1)
                sender = world.leader(2)
                if sender is not None:
                    sender.crash(rng)
                    await asyncio.sleep(rng.random())
                    await sender.start()
            await world.put(2, b"k0000", b"round")
            await world.until(lambda: len({indexes(world, n) for n in world.nodes}) == 1)
            installed += behind.manager.counters.snapshots_installed
        assert installed, "it came by a snapshot"
        descriptor = world.nodes[1].manager.replica(2).descriptor  # type: ignore[union-attr]
        wanted = rows_of(world.nodes[1].engine, descriptor)
        assert wanted["cur"]
        for node in world.nodes.values():
            assert rows_of(node.engine, descriptor) == wanted
            assert node.engine.scan("staged", b"", b"") == []
            state = node.manager.replica(PartitionId(2)).state  # type: ignore[union-attr]
            assert state.old_versions == len(wanted["hist"])
            assert state.live_bytes == sum(len(k) + len(v) for k, v in wanted["cur"])
        world.close()

    simloop.run(main, seed=seed)


def indexes(world: World, node: int) -> tuple[int, int]:
    replica = world.replica(node, 2)
    assert replica is not None
    return replica.state.index, replica.group.status().last_index
