"""Transactions whose record lies in a table that is dropped (D6, D12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kv.base.keys import table_prefix
from kv.base.methods import COMMIT, PREWRITE
from kv.base.ops import put
from kvorum.api.model import TableSpec
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster

TTL_MS = 2_000


def scene(main: Callable[[SimCluster, bytes, bytes], Coroutine[Any, Any, Any]]) -> None:
    async def played(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1)
        await cluster.start()
        backend = cluster.nodes[1].backend
        prefixes = []
        for name in "ab":
            info = await backend.create_table("default", name, TableSpec(split_keys=(b"m",)))
            prefixes.append(table_prefix(info.id))
            for key in (b"k", b"x"):
                await backend.put("default", name, key, b"old", None, 0)
        await main(cluster, *prefixes)
        await cluster.close()

    run(played)


async def prewrite(node: Node, anchor: bytes, *keys: bytes, ttl_ms: int = TTL_MS) -> int:
    """What a coordinator does before it dies."""
    start_ts = await node.store.txn.now()
    for key in keys:
        ops = [list(put(key, b"new"))]
        await node.store.kv.call(PREWRITE, key, start_ts, anchor, ttl_ms, ops, 0)
    return start_ts


def intents(cluster: SimCluster) -> int:
    return sum(
        len(replica.state.locks)
        for node in cluster.nodes.values()
        for replica in node.store.manager.replicas()
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("committed", [True, False])
def test_d12_dropping_a_table_ends_what_is_anchored_in_it(committed: bool) -> None:
    """A commit that was acknowledged would be lost in the other table, or keys of a dead
    transaction stay locked for ever: its record went with the table.
    """

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[2]
        start_ts = await prewrite(node, a + b"k", a + b"k", b + b"k", b + b"x", ttl_ms=600_000)
        if committed:
            now = await node.store.txn.now()
            await node.store.kv.call(COMMIT, a + b"k", a + b"k", start_ts, now)
        await node.backend.drop_table("default", "a")
        for key in (b"k", b"x"):
            row = await cluster.nodes[3].backend.get("default", "b", key, 0)
            assert row is not None
            assert row.value == (b"new" if committed else b"old")
        await asyncio.sleep(5)
        assert intents(cluster) == 0

    scene(main)


@pytest.mark.few(1)
@pytest.mark.parametrize("down", [False, True])
def test_d6_an_intent_whose_anchor_is_gone_ends(down: bool) -> None:
    """A client that did not know of the drop, and died, would lock a key for ever; or for as long
    as some node is down, which might have the record.
    """

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[1]
        await node.backend.drop_table("default", "a")
        await prewrite(node, a + b"k", b + b"k")
        if down:
            await cluster.crash(3)
        writing = asyncio.create_task(node.backend.put("default", "b", b"k", b"mine", None, 0))
        await asyncio.sleep(TTL_MS / 1000 + 6)
        assert intents(cluster) == 0
        await writing
        row = await cluster.nodes[2].backend.get("default", "b", b"k", 0)
        assert row is not None
        assert row.value == b"mine"

    scene(main)


def test_d6_an_anchor_that_is_only_away_is_not_taken_for_gone() -> None:
    """A transaction would be rolled back because a node of its record is down for a moment, though
    it has committed.
    """

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[1]
        start_ts = await prewrite(node, a + b"k", a + b"k", b + b"k")
        now = await node.store.txn.now()
        await node.store.kv.call(COMMIT, a + b"k", a + b"k", start_ts, now)
        await cluster.crash(3)
        await asyncio.sleep(TTL_MS / 1000 + 6)
        row = await node.backend.get("default", "b", b"k", 0)
        assert row is not None
        assert row.value == b"new"
        await cluster.start(3)

    scene(main)
