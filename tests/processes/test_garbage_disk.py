"""What is collected gives its space back, on a real disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kvorum
from kv.base.config import NodeConfig
from kvorum.api.model import TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import build

pytestmark = pytest.mark.slow

VALUE = bytes(range(256)) * 32  # 8 KiB


async def test_c4_a_thousand_overwrites_give_their_space_back(tmp_path: Path) -> None:
    """Old versions would be collected, and their bytes stay on the disk until much more is
    written.
    """
    config = NodeConfig(data=tmp_path / "data", port=None, gc_retention_ms=100, gc_interval_ms=200)
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        await node.backend.create_table("default", "t", TableSpec())
        all_of_it = await node.backend.open_snapshot(0, "test", 60_000)
        versions = []
        for i in range(1_000):
            value = i.to_bytes(4, "big") + VALUE
            versions.append(await node.backend.put("default", "t", b"k", value, None, 0))
        state, care = node.store.state, node.upkeep.care
        state.flush()
        full = state.stats()["file_bytes"]
        assert full > 4 << 20, "what was written is on the disk"
        held = await node.backend.open_snapshot(versions[-10], "reader", 60_000)
        assert not care.compactions
        await asyncio.sleep(0.2)  # past the retention: only the readers hold the garbage back
        await node.backend.release_snapshot(all_of_it.id)
        async with asyncio.timeout(30):
            while not care.compactions:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
        below = versions[-11]
        with pytest.raises(kvorum.SnapshotTooOld) as caught:
            await node.backend.get("default", "t", b"k", below)
        assert int(caught.value.details["safepoint"]) == held.at
        for i in range(990, 1_000):
            row = await node.backend.get("default", "t", b"k", versions[i])
            assert row == (i.to_bytes(4, "big") + VALUE, versions[i])
        assert state.stats()["file_bytes"] < full / 4
    finally:
        await node.stop()
