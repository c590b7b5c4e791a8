"""Commits that race with the drop of a table which holds a part or the record of them (D4, D13)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.methods import COMMIT
from kvorum.settling import Settling
from tests.cluster.simulated import SimCluster
from tests.cluster.test_dropped_anchors import intents, scene


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
        monkeypatch.setattr(txn.coordinator, "kv", FlipsAfter(txn.coordinator.kv, dropped))
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
