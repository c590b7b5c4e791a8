"""A table that is being dropped stays closed to new writes, whoever restarts or leads meanwhile
(D12, D13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.keys import table_prefix
from kv.base.methods import PREWRITE, PUT
from kv.base.ops import put
from kv.replica.metakeys import CLOSED, meta_key
from kv.storage.engine import STATE_FAMILIES
from kv.storage.memory import MemoryEngine
from kvorum.api.model import TableSpec
from kvorum.api.verbs import ANCHORED
from kvorum.cluster.members import partition_map
from kvorum.node.node import Node
from kvorum.storage.drop_transactions import Settling
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kv.replica.support import Follower
from tests.kv.replica.test_snapshots import leader, replica
from tests.kvorum.cluster.simulated import SimCluster


def crash_between(
    monkeypatch: pytest.MonkeyPatch,
    main: Callable[[SimCluster, bytes, asyncio.Event, asyncio.Event], Coroutine[Any, Any, Any]],
) -> None:
    """`main(cluster, prefix of the table, settled, may go on)`: a drop stands between its last look
    and the removal of the partitions, until it may go on.
    """
    settled, go_on = asyncio.Event(), asyncio.Event()
    settle = Settling.settle

    async def and_stop(self: Settling, descriptors: Sequence[PartitionDescriptor]) -> None:
        if settled.is_set():  # of the step that a restart does again: late, as it may be
            await go_on.wait()
        await settle(self, descriptors)
        if descriptors:
            settled.set()
            await go_on.wait()

    monkeypatch.setattr(Settling, "settle", and_stop)

    async def played(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1)
        await cluster.start()
        info = await cluster.nodes[1].backend.create_table(
            "default", "a", TableSpec(split_keys=(b"m",))
        )
        await cluster.nodes[1].backend.put("default", "a", b"k", b"old", None, 0)
        await main(cluster, table_prefix(info.id), settled, go_on)
        go_on.set()
        await cluster.close()

    run(played)


async def tried(node: Node, key: bytes) -> list[str]:
    """What a client is told that knows the partition and writes into it."""
    found = []
    start_ts = await node.store.txn.now()
    prewrite = (start_ts, key, 2_000, [list(put(key, b"new"))], 0)
    for method, args in ((PUT, (key, b"new", None, 0)), (PREWRITE, prewrite)):
        try:
            await node.store.kv.call(method, key, *args, budget_ms=3_000)
            found.append("written")
        except KvorumError as error:
            found.append(error.message)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["all", "leaders", "one by one"])
def test_d13_a_closed_table_stays_closed_over_crashes(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It was remembered in memory alone: who restarted after the last look, and led, let writes in
    that went with the table, and with them the proof of what they had committed elsewhere.
    """

    async def main(
        cluster: SimCluster, a: bytes, settled: asyncio.Event, _go_on: asyncio.Event
    ) -> None:
        dropping = asyncio.create_task(cluster.nodes[2].backend.drop_table("default", "a"))
        await settled.wait()
        if what == "all":
            for number in (1, 2, 3):
                await cluster.crash(number)
            await cluster.start()
        else:
            for number in (1, 2, 3):
                leads = any(r.leads() for r in cluster.nodes[number].store.manager.replicas())
                if what == "leaders" and not leads:
                    continue
                await cluster.crash(number)
                await asyncio.sleep(5)
                await cluster.start(number)
                await asyncio.sleep(2)
        for key in (a + b"k", a + b"z"):
            for said in await tried(cluster.nodes[2], key):
                assert "removed with its table" in said
        dropping.cancel()
        await asyncio.wait([dropping])

    crash_between(monkeypatch, main)


def test_d13_a_drop_that_was_interrupted_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that nobody can write to and nobody removes would be there for ever."""

    async def main(
        cluster: SimCluster, a: bytes, settled: asyncio.Event, go_on: asyncio.Event
    ) -> None:
        dropping = asyncio.create_task(cluster.nodes[2].backend.drop_table("default", "a"))
        await settled.wait()
        for number in (1, 2, 3):
            await cluster.crash(number)
        await asyncio.wait([dropping])
        go_on.set()
        await cluster.start()
        backend = cluster.nodes[1].backend
        async with asyncio.timeout(60):
            while any(  # noqa: ASYNC110 - nobody tells
                replica.descriptor.covers(a + b"k")
                for node in cluster.nodes.values()
                for replica in node.store.manager.replicas()
            ):
                await asyncio.sleep(0.5)
            await asyncio.sleep(1)
        await backend.create_table("default", "a", TableSpec())
        assert await backend.put("default", "a", b"k", b"again", None, 0) > 0
        for node in cluster.nodes.values():
            closed = [k for k, _ in node.store.state.scan("meta", b"r", b"s") if k[9:] == CLOSED]
            assert closed == [], "a record of what is gone"

    crash_between(monkeypatch, main)


def test_d13_closed_is_said_only_when_it_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that says so before forgets it with its memory."""

    async def main(
        cluster: SimCluster, a: bytes, _settled: asyncio.Event, _go_on: asyncio.Event
    ) -> None:
        node = cluster.nodes[1]
        map_ = [d for d in await partition_map(node.store.txn) if d.covers(a + b"k")]
        assert len(map_) == 1
        bounds = a, a[:-1] + bytes([a[-1] + 1])
        told: set[int] = set()
        for _ in range(100):
            for number, one in cluster.nodes.items():
                calls = one.store.cluster.calls
                _, closed = await calls.call_at(number, ANCHORED, *bounds)
                for id_ in closed:
                    found = one.store.manager.replica(id_)
                    assert found is not None
                    assert found.state.closed, "in the log, and applied"
                    told.add(id_)
            await asyncio.sleep(0.01)
        assert len(told) == 2

    crash_between(monkeypatch, main)


def test_f5_a_replica_from_a_snapshot_knows_that_it_is_closed() -> None:
    """It may lead a moment later, and never saw the entry."""
    node = leader()
    sender = replica(node, b"tab.z")
    key = meta_key(sender.descriptor.id, CLOSED)
    node.machine(b"tab.z").put_meta(key, seal(key, b""), lambda _error: None)
    node.timers.run(1.0)
    assert sender.state.closed
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    source = sender.snapshot()
    follower.install(follower.take(source, 3_000))
    source.close()
    assert follower.replica.state.closed
    assert not replica(node, b"tab.k").state.closed


@pytest.mark.slow
def test_d12_nobody_removes_a_table_before_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map forgot it first: every node that compared its replicas with the map removed the proof
    of commits that were still looked for.
    """
    settle = Settling.settle

    async def slowly(self: Settling, descriptors: Sequence[PartitionDescriptor]) -> None:
        await asyncio.sleep(60)  # virtual
        await settle(self, descriptors)

    monkeypatch.setattr(Settling, "settle", slowly)

    async def played(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1)
        await cluster.start()
        backend = cluster.nodes[1].backend
        info = await backend.create_table("default", "a", TableSpec())
        key = table_prefix(info.id) + b"k"
        dropping = asyncio.create_task(backend.drop_table("default", "a"))
        await asyncio.sleep(50)
        for node in cluster.nodes.values():
            await node.upkeep.reconciler.look()
            here = [r.descriptor for r in node.store.manager.replicas()]
            assert any(descriptor.covers(key) for descriptor in here)
        with pytest.raises(KvorumError, match=r"default\.a"):
            await backend.get("default", "a", b"k", 0)
        await asyncio.wait([dropping], timeout=60)
        assert not any(d.covers(key) for d in await partition_map(cluster.nodes[1].store.txn))
        await cluster.close()

    run(played)
