"""A real node under load, killed with -9 at random: what was acknowledged is there, whole, once.

KVORUM_KILLS says how often (twice; a long run takes 100).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

import kvorum
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.processes.workload import Seen, check, load, prepare

KILLS = int(os.environ.get("KVORUM_KILLS", "2"))


async def load_and_kill(node: NodeProcess, seen: Seen) -> None:
    async with load(node.url, seen):
        for _ in range(KILLS):
            await asyncio.sleep(random.uniform(0.1, 0.8))
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
        await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(60 + 30 * KILLS)
def test_c14_killed_at_random_loses_nothing(tmp_path: Path) -> None:
    """An acknowledgement that a crash takes back is a lie told to every user at once."""
    seen = Seen()
    modules = ("--procedure-modules", "tests.processes.sample_procedures")
    with NodeProcess(tmp_path / "data", free_port_base(), *modules) as node:
        node.start()
        prepare(node.url)
        asyncio.run(load_and_kill(node, seen))
        assert seen.puts
        assert seen.batches
        assert seen.procedures
        assert not seen.went_back
        with kvorum.connect(node.url) as db:
            assert db.timestamp() > seen.highest
            check(db, seen)
        assert node.stop() == 0, node.tail()
