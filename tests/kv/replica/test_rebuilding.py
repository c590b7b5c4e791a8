"""Whole replicas, consensus included: a node that missed the log is rebuilt, whatever falls."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from kv.base import limits, methods
from kv.base.ids import PartitionId
from kvorum.testing.simulation import loop as simloop
from raft.errors import RaftError
from tests.kv.partition.node import Conn
from tests.kv.replica.support import rows_of
from tests.procedures.nodes import OneNode, World


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


@pytest.fixture(params=["batches", "files"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the rows come into the database: those of a small snapshot, and of a large one."""
    if request.param == "files":
        monkeypatch.setattr(limits, "SNAPSHOT_FILES_BYTES_MIN", 0)
        monkeypatch.setattr(limits, "SNAPSHOT_FILE_BYTES", 20_000)
        monkeypatch.setattr(limits, "SNAPSHOT_FILE_SYNC_BYTES", 10_000)


@pytest.mark.few(3)
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


@pytest.mark.parametrize("seed", range(4))
def test_f4_a_deposed_leader_is_rebuilt_with_what_it_had_in_flight(seed: int) -> None:
    """A write that it never got through would be answered as done, lost without an answer, or stay
    in the evaluated state and be served once it leads again.
    """

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start()
        await world.put(2, b"k", b"before")
        old = world.leader(2)
        assert old is not None
        machine = old.manager.by_id(2)
        assert machine is not None
        d, conn = machine.descriptor, Conn()
        key = d.start + b"k"

        def submit(rid: int, method: int, *args: object) -> None:
            deadline = world.clock.monotonic() + 60
            machine.submit(conn, [rid, method, deadline, d.id, d.epoch, *args])

        world.cut = {frozenset((old.id, n)) for n in world.nodes if n != old.id}
        prewrite = [methods.OP_PUT, d.start + b"p", b"intent", None, 0]
        submit(1, methods.PREWRITE, world.take(1), d.start + b"p", 60_000, [prewrite], 0)
        submit(2, methods.PUT, key, b"never", None, 0)
        submit(3, methods.GET, key, 0, None)
        await asyncio.sleep(3)
        await world.until(lambda: (now := world.leader(2)) is not None and now is not old)
        for i in range(40):
            await world.put(2, b"k", b"after %d" % i)
            await world.put(2, b"j%d" % i, bytes(3_000))
        for node in world.nodes.values():
            await node.manager.truncate()
        world.cut = set()
        mine = world.replica(old.id, 2)
        assert mine is not None
        await world.until(lambda: old.manager.counters.snapshots_installed == 1)
        await world.until(lambda: {1, 2, 3} <= set(conn.rows))
        assert conn.rows[1][1] == conn.rows[2][1] == 1
        assert {conn.rows[1][2], conn.rows[2][2]} <= {"UNKNOWN_OUTCOME", "NOT_LEADER"}
        while world.leader(2) is not old:
            with contextlib.suppress(RaftError):
                now = world.leader(2)
                theirs = None if now is None else world.replica(now.id, 2)
                if theirs is not None:
                    theirs.group.transfer(old.id)
            await asyncio.sleep(0.2)
        submit(4, methods.GET, key, 0, None)
        submit(5, methods.GET, d.start + b"p", 0, None)
        submit(6, methods.PUT, d.start + b"p", b"free", 0, 0)
        await world.until(lambda: {4, 5, 6} <= set(conn.rows))
        assert conn.rows[4][1:3] == [0, b"after 39"]
        assert conn.rows[5][1:] == [0, None, 0], "no intent of the time before"
        assert conn.rows[6][1] == 0
        world.close()

    simloop.run(main, seed=seed)
