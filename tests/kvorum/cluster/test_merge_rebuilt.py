"""A node slept through a merge, and the log that says so is gone: a RaftSnapshot makes its replica
wider, or what became of it since (H4, F7). It loses its power at any sync of that, too.

The node has applied the upper partition up to the sync point, durably, as all must have; then it
falls, before it hears of the merge. `again`: what was merged is split once more while it sleeps, at
the old border or at another key.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import kvorum.storage.store
from kv.base.errors import Unavailable
from kv.replica.manager import ReplicaManager
from kv.replica.metakeys import ABSORBED, APPLIED, DESCRIPTOR, INSTALLING
from kvorum.cluster.cluster import CONSENSUS
from procedures.master.shape.reshape_methods import ReshapeMethods
from tests.kv.replica.support import rows_of
from tests.kvorum.cluster.splits import Bank, everybody_follows, scene, submit
from tests.kvorum.cluster.test_merge_crashes import Counting, Point, leader

SLEEPER = 3
BORDER = "a12"
EVERY = 9


@pytest.fixture
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was away for a moment needs a snapshot."""
    defaults: Any = ReplicaManager.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "log_keep_entries", 2)
    short = replace(CONSENSUS, log_tail_bytes=0, log_keep_bytes_max=0)
    monkeypatch.setattr(kvorum.storage.store, "CONSENSUS", short)


def slept(monkeypatch: pytest.MonkeyPatch, again: str | None, point: Point | None) -> list[Point]:
    """What the sleeper syncs from its start until it has all."""
    found: list[Point] = []
    real = ReshapeMethods.merge
    banks: list[Bank] = []

    async def merge(self: ReshapeMethods, context: object, args: list[Any]) -> list[Any]:
        if SLEEPER in banks[0].cluster.nodes:
            await banks[0].cluster.crash(SLEEPER)
        return await real(self, context, args)

    async def main(bank: Bank) -> None:
        banks.append(bank)
        cluster = bank.cluster
        assert isinstance(cluster, Counting)
        left = bank.led_at(bank.ranges()[0][0]).id
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": BORDER})
        right = info.result["new"]
        for partition in (1, left, right):
            while leader(bank, partition) == SLEEPER:
                await submit(bank, "kvorum.transfer_leader", {"partition": partition, "to": 1})
        await asyncio.sleep(0.5)

        both = {"left": left, "right": right}
        info = await submit(bank, "kvorum.merge_partitions", both)
        assert info.state == "SUCCESS", info
        assert SLEEPER not in cluster.nodes
        if again is not None:
            info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": again})
            assert info.state == "SUCCESS", info
        await asyncio.sleep(1)
        for node in cluster.nodes.values():
            await node.store.manager.truncate()
        cluster.point, cluster.counting = point, True
        try:
            await cluster.start(SLEEPER)
        except* Unavailable:
            assert cluster.fallen is not None, "it fell before it was ready, or there is a fault"
        await (cluster.fallen or asyncio.sleep(0))
        await _has_all(bank)
        cluster.counting = False
        if cluster.fallen is not None:
            await cluster.fallen
            await _has_all(bank)
        assert (cluster.fallen is None) == (point is None), "the run is not the same up to there"
        of_sleeper = {key: n for key, n in cluster.syncs.items() if key[0] == SLEEPER}
        found.extend(Point(*key, i) for key, n in of_sleeper.items() for i in range(1, n + 1))
        if point is None:
            installed = cluster.nodes[SLEEPER].store.manager.counters.snapshots_installed
            assert installed >= 1, "there was no snapshot, so nothing was proved"
        await everybody_follows(bank)
        bank.stop.set()
        await asyncio.sleep(2)
        _same(bank, left)
        _nothing_left_behind(bank)

    with monkeypatch.context() as patch:
        patch.setattr(ReshapeMethods, "merge", merge)
        scene(main, seed=2, calm=True, make=Counting)
    return sorted(found)


async def _has_all(bank: Bank) -> None:
    """Until the sleeper has what the others have."""
    async with asyncio.timeout(60):
        while True:
            node = bank.cluster.nodes.get(SLEEPER)
            if node is not None and getattr(node, "backend", None) is not None:
                here = {(d.id, d.start, d.end) for d in node.store.manager.descriptors()}
                there = {
                    (d.id, d.start, d.end)
                    for d in bank.cluster.nodes[1].store.manager.descriptors()
                }
                busy = any(r.installing for r in node.store.manager.replicas())
                if here == there and not busy:
                    return
            await asyncio.sleep(0.02)


def _same(bank: Bank, partition: int) -> None:
    """Row by row, and in memory, at all nodes."""
    states = []
    for node in bank.cluster.nodes.values():
        replica = node.store.manager.replica(partition)
        assert replica is not None
        state = replica.state
        states.append((state.index, state.top_ts, rows_of(node.store.state, state.descriptor)))
    assert all(one == states[0] for one in states[1:])


def _nothing_left_behind(bank: Bank) -> None:
    """No records, markers or logs of partitions that are not there any more."""
    node = bank.cluster.nodes[SLEEPER]
    ids = {d.id for d in node.store.manager.descriptors()}
    rows = node.store.state.scan("meta", b"r", b"s")
    kinds = {DESCRIPTOR, APPLIED, ABSORBED, INSTALLING}
    seen = {(int.from_bytes(key[1:9], "big"), key[9:]) for key, _ in rows if len(key) == 10}
    assert {id_ for id_, kind in seen if kind in kinds} == ids
    assert not [kind for _, kind in seen if kind in (ABSORBED, INSTALLING)]
    assert set(node.store.host.stored_groups()) == ids


@pytest.mark.slow
@pytest.mark.usefixtures("short_logs")
@pytest.mark.parametrize("again", [None, BORDER, "a06", "a18"])
def test_h4_who_slept_through_a_merge_is_rebuilt_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch, again: str | None
) -> None:
    """Its replicas of both would stay beside one another, with the rows of one of them twice, or
    none.
    """
    slept(monkeypatch, again, None)


@pytest.mark.slow
@pytest.mark.usefixtures("short_logs")
@pytest.mark.timeout(300)
def test_h4_who_is_rebuilt_after_a_merge_may_lose_its_power(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the new range and half of the old one, or a log of rows that are another's."""
    all_ = slept(monkeypatch, None, None)
    assert {point.name for point in all_} == {"log", "state"}
    for point in all_[::EVERY]:
        slept(monkeypatch, None, point)
