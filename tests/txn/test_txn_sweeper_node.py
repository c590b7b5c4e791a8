"""A node cleans up behind a killed client, over sockets and on real disks (D6, D12)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kv.base.config import NodeConfig
from kvorum.api.model import TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from tests.kit.machine import ROOT, free_port_base

pytestmark = pytest.mark.slow

TTL_MS = 300
KILLED = f"""
import os, signal, kvorum
from txn.commit.core import CommitCore

# Everything is prewritten, nothing decided: the worst moment.
CommitCore._stamp = lambda self: os.kill(os.getpid(), signal.SIGKILL)
CommitCore._try_parallel = lambda self: None
with kvorum.connect("kvorum://127.0.0.1:{{base}}") as db:
    with db.transaction(ttl_ms={TTL_MS}) as t:
        print(t.id, flush=True)
        for key in ("a", "b", "z"):
            t.table("default", "t").put(key, "half")
"""


async def test_d12_node_cleans_up_behind_a_killed_client(tmp_path: Path) -> None:
    """What a client left half done when it was killed would lie there until somebody meets it."""
    base = free_port_base()
    config = NodeConfig(data=tmp_path / "data", port=base, http=False)
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        await node.backend.create_table("default", "t", TableSpec(split_keys=(b"m",)))
        client = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", KILLED.format(base=base)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        assert client.returncode == -signal.SIGKILL, client.stderr
        txn = int(client.stdout)
        async with asyncio.timeout(30):
            while (await node.backend.status(txn)).status != "aborted":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while node.store.manager.oldest_lock() is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await node.backend.get("default", "t", b"a", 0) is None
        assert await node.backend.get("default", "t", b"z", 0) is None
    finally:
        await node.stop()
