"""Collecting in a whole cluster, in virtual time: what goes, what stays, and who sleeps through."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import kvorum
from kv.base.config import NodeConfig
from kv.base.errors import KvorumError, Reroute, TryLater
from kv.base.ids import META_PARTITION
from kv.replica.replica import Replica
from kvorum.api.model import TableSpec
from kvorum.node.node import Node
from kvorum.storage.garbage import ROUNDS_MAX, SHARE, Garbage
from kvorum.storage.oldest_intent import OldestIntent
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster

RETENTION_MS = 5_000
T = ("default", "k")


class Forgetful(SimCluster):
    """Keeps old versions for five seconds, and looks for garbage every second."""

    def _config(self, number: int) -> NodeConfig:
        config = super()._config(number)
        return dataclasses.replace(config, gc_retention_ms=RETENTION_MS, gc_interval_ms=1_000)

    def anybody(self) -> Node:
        return self.nodes[min(self.nodes)]

    def master(self) -> int:
        (found,) = [id for id, node in self.nodes.items() if node.store.tso.serving]
        return found

    def led(self) -> list[Replica]:
        """Every partition but the meta partition, at its leader, in key order."""
        found = [
            r
            for node in self.nodes.values()
            for r in node.store.manager.replicas()
            if r.leads() and r.descriptor.id != META_PARTITION
        ]
        return sorted(found, key=lambda replica: replica.descriptor.start)


def scene(
    main: Callable[[Forgetful], Coroutine[Any, Any, Any]], *, seed: int = 1, count: int = 3
) -> None:
    async def played(loop: SimLoop) -> None:
        cluster = Forgetful(loop, seed, count)
        await cluster.start()
        await main(cluster)
        await cluster.close()

    run(played, seed)


async def until(met: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not met():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


@pytest.mark.slow
def test_c4_idle_groups_sleep_through_the_collection() -> None:
    """A thousand idle groups would be written to and woken by every look for garbage."""

    async def main(cluster: Forgetful) -> None:
        node, splits = cluster.anybody(), tuple(b"%03d" % i for i in range(10, 200, 10))
        await node.backend.create_table(*T, TableSpec(split_keys=splits))
        for i in range(5, 200, 10):  # nothing of it is garbage
            await node.backend.put(*T, b"%03d" % i, b"v", None, 0)
        await until(lambda: len(cluster.led()) >= 20)
        await asyncio.sleep(10)
        *idle, busy = [r for r in cluster.led() if r.state.top_ts]
        before = [(r.state.index, r.state.safepoint) for r in idle]
        for _ in range(60):
            await asyncio.sleep(0.5)
            await node.backend.put(*T, b"195", b"x", None, 0)
        rounds = [n.upkeep.collector.rounds for n in cluster.nodes.values()]
        assert min(rounds) > 30
        assert [(r.state.index, r.state.safepoint) for r in idle] == before
        assert [r.descriptor.id for r in idle if not r.group.status().hibernating] == []
        assert busy.state.safepoint, "where there is garbage, it is collected"
        assert busy.state.old_versions < 30
        assert sum(n.upkeep.collector.walks for n in cluster.nodes.values()) <= 25
        row = await node.backend.get(*T, b"005", 0)
        assert row is not None

    scene(main)


@pytest.mark.slow
def test_c4_everything_that_is_due_goes_at_every_replica() -> None:
    """Old versions, delete marks, expired records would stay at the followers, or at all."""

    async def main(cluster: Forgetful) -> None:
        backend = cluster.anybody().backend
        await backend.create_table(*T, TableSpec(split_keys=(b"m",)))
        for i in range(40):
            for key in (b"a", b"z"):
                await backend.put(*T, key, b"%d" % i, None, 0)
            await backend.put(*T, b"ttl%d" % i, b"v", None, 100)
            await backend.put(*T, b"gone%d" % i, b"v", None, 0)
            await backend.delete(*T, b"gone%d" % i, None)
        mine = [r.descriptor for r in cluster.led() if r.state.top_ts][-2:]

        def rows(node: Node, family: str) -> int:
            low, high = mine[0].start, mine[-1].end
            if family == "gcq":
                found = [k for k, _ in node.store.state.scan("gcq", b"", b"") if b"gone" in k]
                return len(found)
            return len(node.store.state.scan(family, low, high))

        await until(
            lambda: all(
                rows(n, "cur") == 2 and rows(n, "hist") == 0 and rows(n, "gcq") == 0
                for n in cluster.nodes.values()
            )
        )
        assert (await backend.get(*T, b"z", 0)).value == b"39"  # type: ignore[union-attr]

    scene(main)


def test_c4_what_a_dropped_table_left_in_the_queue_goes() -> None:
    """Its rows are nobody's: every round would look at them again, for ever."""

    async def main(cluster: Forgetful) -> None:
        backend = cluster.anybody().backend
        await backend.create_table(*T, TableSpec())
        for i in range(30):
            await backend.put(*T, b"ttl%d" % i, b"v", None, 3_000)
        await backend.drop_table(*T)

        def left(node: Node) -> int:
            return sum(b"ttl" in key for key, _ in node.store.state.scan("gcq", b"", b""))

        assert left(cluster.anybody()) > 20
        await until(lambda: not any(left(node) for node in cluster.nodes.values()))

    scene(main)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_u9_a_snapshot_outlives_every_master(seed: int) -> None:
    """A report over an hour would lose its snapshot when a node dies; or the cluster never collect
    anything again.
    """

    async def main(cluster: Forgetful) -> None:
        chance = random.Random(seed)
        backend = cluster.anybody().backend
        await backend.create_table(*T, TableSpec(split_keys=(b"m",)))
        keys = [b"a", b"b", b"x", b"z"]
        for key in keys:
            await backend.put(*T, key, b"old", None, 0)
        lease = await backend.open_snapshot(0, "report", 10_000)
        alive = True

        async def renew() -> None:
            while alive:
                await asyncio.sleep(1)
                with contextlib.suppress(TryLater, Reroute):  # NotFound would end the test
                    await cluster.nodes[max(cluster.nodes)].backend.renew_snapshot(lease.id)

        async def write() -> None:
            while alive:
                await asyncio.sleep(0.05)
                with contextlib.suppress(KvorumError, AttributeError):  # it is just starting
                    backend = cluster.nodes[min(cluster.nodes)].backend
                    await backend.put(*T, chance.choice(keys), b"new", None, 0)

        async with asyncio.TaskGroup() as group:
            group.create_task(renew())
            group.create_task(write())
            for _ in range(3):
                await asyncio.sleep(4)
                killed = cluster.master()
                await cluster.crash(killed)
                await asyncio.sleep(4)
                for key in keys:
                    node = cluster.nodes[max(cluster.nodes)]
                    row = await node.backend.get(*T, key, lease.at)
                    assert row is not None
                    assert row.value == b"old"
                await cluster.start(killed)
            alive = False
        backend = cluster.anybody().backend
        assert [info.id for info in await backend.snapshots()] == [lease.id]
        assert await backend.release_snapshot(lease.id)
        await until(lambda: cluster.led()[0].state.safepoint > lease.at)
        with pytest.raises(kvorum.SnapshotTooOld):
            await backend.get(*T, b"a", lease.at)

    scene(main, seed=seed)


# ------------------------------------------------------------------------------ what is worth it


def test_c4_a_walk_is_made_where_it_pays() -> None:
    """Every look would walk all old versions, though none of them may go yet; or none ever would
    go.
    """
    garbage = Garbage()
    assert garbage.look(1_000, top_ts=100, safepoint=50) == 0
    assert garbage.look(1_500, top_ts=200, safepoint=99) == 0
    assert not garbage.worth_a_walk(0)
    assert garbage.look(1_500, top_ts=200, safepoint=150) == 1_000
    assert garbage.worth_a_walk(1_000)
    garbage.removed(1_100)  # it found some of the later ones, too
    garbage.walked()
    assert garbage.look(400, top_ts=200, safepoint=160) == 0
    assert garbage.look(400, top_ts=200, safepoint=200) == 400


def test_c4_little_garbage_waits_but_not_for_ever() -> None:
    """A partition that is written to now and then would be walked at every look."""
    garbage, walks = Garbage(), 0
    old = ever = 10_000
    for i in range(10 * ROUNDS_MAX):
        ever, old = ever + 20, old + 20
        found = garbage.look(old, top_ts=10 * i, safepoint=10 * (i - 500))
        assert found == 0, "nothing is below the safepoint"
    looks = 0
    for i in range(10 * ROUNDS_MAX, 20 * ROUNDS_MAX):
        old += 20
        found = garbage.look(old, top_ts=10 * i, safepoint=10 * (i - 150))
        looks += 1
        if garbage.worth_a_walk(found):
            assert found * SHARE >= old or looks >= ROUNDS_MAX
            garbage.removed(found)
            garbage.walked()
            old -= found
            walks, looks = walks + 1, 0
    assert 5 <= walks <= 20
    assert old < 4_000


@pytest.mark.parametrize("seed", range(20))
def test_c4_the_estimate_is_from_below(seed: int) -> None:
    """A walk for garbage that is not there costs what it saves; one that never comes costs the
    disk.
    """
    chance, garbage = random.Random(seed), Garbage()
    kept: list[int] = []  # superseded_ts of the old versions that are there
    now = safepoint = 0
    for _ in range(400):
        for _ in range(chance.randrange(20)):
            now += chance.randrange(1, 5)
            kept.append(now)
        safepoint = max(safepoint, now - chance.randrange(50, 400))
        found = garbage.look(len(kept), now, safepoint)
        assert found <= sum(ts <= safepoint for ts in kept)
        if garbage.worth_a_walk(found):
            left = [ts for ts in kept if ts > safepoint]
            garbage.removed(len(kept) - len(left))
            garbage.walked()
            kept = left
    assert garbage.look(len(kept), now, now) == len(kept)


# ------------------------------------------------------------------ which outcomes may be forgotten


def test_c4_outcomes_stay_while_an_intent_anywhere_may_need_them() -> None:
    """The record of a commit would be forgotten while its intents wait in another node's partition:
    an acknowledged write would be rolled back.
    """
    hour = 3_600_000 << 18
    now, answers = 100 * hour, [[50 * hour, [1, 2]]]
    partitions, seconds, asked = {1, 2, 3}, [0.0], 0

    async def ask() -> list[list[Any]]:
        nonlocal asked
        asked += 1
        return answers

    async def of_all() -> set[int]:
        return partitions

    async def now_ts() -> int:
        return now

    async def main() -> None:
        nonlocal answers, now
        oldest = OldestIntent(ask, of_all, now_ts, lambda: seconds[0])
        assert await oldest.find() == 0, "the leader of partition 3 has not answered"
        answers = [[50 * hour, [1, 2]], [0, [3]]]
        assert await oldest.find() == 0
        assert asked == 1, "at most once a minute"
        seconds[0] = 61
        assert await oldest.find() == 50 * hour
        answers, seconds[0] = [[0, [1, 2, 3]]], 122
        assert await oldest.find() == 98 * hour, "no intent that is laid later is as old"
        answers, seconds[0] = [[1, [1, 2]]], 183
        assert await oldest.find() == 98 * hour, "what was true stays true"

    asyncio.run(main())
