"""Commits that race with the drop of a table which holds a part or the record of them (D4, D13)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.methods import COMMIT, PREWRITE
from kv.base.ops import put
from kvorum.node.node import Node
from kvorum.storage.drop_transactions import Settling
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.test_dropped_anchors import TTL_MS, intents, prewrite, scene
from txn.transaction import Transaction


class FlipsAfter:
    """A client of the partitions whose flips are on their way until `sent` is set."""

    def __init__(self, kv: Any, sent: asyncio.Event) -> None:
        self._kv, self._sent = kv, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kv, name)

    async def call(self, method: int, key: bytes, *args: Any, **more: Any) -> Any:
        if method == COMMIT:
            await self._sent.wait()
        return await self._kv.call(method, key, *args, **more)


async def value(cluster: SimCluster, key: bytes) -> bytes | None:
    row = await cluster.nodes[3].backend.get("default", "b", key, 0)
    return None if row is None else row.value


def test_d13_a_commit_whose_record_was_dropped_is_finished_by_its_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An acknowledged write would be rolled back in the other table, though its coordinator lives:
    it left its intents to whoever meets them, and that one finds no record.
    """
    dropping, told = asyncio.Event(), asyncio.Event()

    async def no_settling(_self: Settling, descriptors: Sequence[PartitionDescriptor]) -> None:
        if descriptors:
            dropping.set()
            await told.wait()

    monkeypatch.setattr(Settling, "settle", no_settling)

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[2]
        txn, dropped = node.store.txn, asyncio.Event()
        shared = txn.coordinator.shared
        monkeypatch.setattr(shared, "kv", FlipsAfter(shared.kv, dropped))
        drop = asyncio.create_task(node.backend.drop_table("default", "a"))
        await dropping.wait()
        t = await txn.begin()
        t.put(a + b"k", b"new")
        t.put(b + b"k", b"new")
        version = await t.commit()
        told.set()
        await drop
        dropped.set()
        await asyncio.sleep(20)
        row = await cluster.nodes[3].backend.get("default", "b", b"k", 0)
        assert row is not None
        assert (row.value, row.version) == (b"new", version)
        assert intents(cluster) == 0

    scene(main)


def test_d13_a_table_that_goes_away_takes_no_part_of_a_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit between the last look for transactions of the table and its removal would be
    acknowledged, and lose its part there or its record.
    """
    settle = Settling.settle
    told: list[bool] = []

    async def late(self: Settling, descriptors: Sequence[PartitionDescriptor]) -> None:
        await settle(self, descriptors)
        if descriptors and not told:
            told.append(True)
            await asyncio.gather(*map(commit, later))

    monkeypatch.setattr(Settling, "settle", late)
    refused: list[bool] = []
    later: list[Transaction] = []

    async def commit(t: Transaction) -> None:
        try:
            await t.commit()
        except KvorumError as error:
            refused.append(not isinstance(error, UnknownOutcome))

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[2]
        for keys in ((a + b"k", b + b"k"), (b + b"x", a + b"x"), (a + b"l", a + b"m")):
            later.append(await node.store.txn.begin(budget_ms=2_000))
            for key in keys:
                later[-1].put(key, b"new")
        began_s = asyncio.get_running_loop().time()
        await node.backend.drop_table("default", "a")
        assert asyncio.get_running_loop().time() - began_s < 9, "nothing was waited for in vain"
        assert refused == [True, True, True]
        assert [await value(cluster, key) for key in (b"k", b"x")] == [b"old", b"old"]

    scene(main)


async def staged(node: Node, anchor: bytes, *others: bytes) -> int:
    """What a coordinator has sent when it dies before the flip."""
    start_ts, keys = await node.store.txn.now(), [anchor, *others]
    for key in keys:
        options: dict[str, Any] = {"fence": True}
        if key == anchor:
            options["stage"] = [[one] for one in keys]
        ops = [list(put(key, b"new"))]
        await node.store.kv.call(PREWRITE, key, start_ts, anchor, TTL_MS, ops, 0, options)
    return start_ts


def test_d4_a_parallel_commit_is_decided_before_a_part_of_it_is_dropped() -> None:
    """It is committed by its intents and its caller was told so; without those in the dropped table
    nobody could find out, and its other keys would be locked for ever.
    """

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[2]
        start_ts = await staged(node, b + b"k", a + b"k")
        await node.backend.drop_table("default", "a")
        assert await value(cluster, b"k") == b"new"
        assert (await node.store.txn.status(start_ts)).status == "committed"
        await asyncio.sleep(10)
        assert intents(cluster) == 0

    scene(main)


def test_d4_a_parallel_commit_ends_though_a_part_of_it_went_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every read and write of its other keys would fail for ever, because a partition that is gone
    can not be asked.
    """

    async def no_settling(_self: Settling, _descriptors: Sequence[PartitionDescriptor]) -> None:
        return

    monkeypatch.setattr(Settling, "settle", no_settling)

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[2]
        await staged(node, b + b"k", a + b"k")
        await node.backend.drop_table("default", "a")
        assert await value(cluster, b"k") == b"old"
        await node.backend.put("default", "b", b"k", b"mine", None, 0)
        await asyncio.sleep(10)
        assert intents(cluster) == 0

    scene(main)


def test_d13_a_living_transaction_with_a_part_in_a_dropped_table_is_not_waited_for() -> None:
    """Dropping a table would roll back, or wait for, a transaction whose record is elsewhere."""

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        node = cluster.nodes[2]
        anchor = b + b"k"
        start_ts = await prewrite(node, anchor, anchor, a + b"k", ttl_ms=600_000)
        began_s = asyncio.get_running_loop().time()
        await node.backend.drop_table("default", "a")
        assert asyncio.get_running_loop().time() - began_s < 9
        now = await node.store.txn.now()
        await node.store.kv.call(COMMIT, anchor, anchor, start_ts, now)
        assert await value(cluster, b"k") == b"new"

    scene(main)


def test_d4_an_outcome_that_went_with_a_table_is_not_called_aborted() -> None:
    """Who asks after an unknown outcome would do again what was committed."""

    async def main(cluster: SimCluster, a: bytes, b: bytes) -> None:
        txn = cluster.nodes[2].store.txn
        t = await txn.begin()
        t.put(a + b"k", b"new")
        t.put(b + b"k", b"new")
        await t.commit()
        await cluster.nodes[2].backend.drop_table("default", "a")
        told = [await node.store.txn.status(t.id) for node in cluster.nodes.values()]
        assert [one.status for one in told] == ["unknown"] * 3
        assert await value(cluster, b"k") == b"new"

    scene(main)
