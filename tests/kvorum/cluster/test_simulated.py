"""Whole clusters in virtual time, with faults: minutes of their life in seconds of ours."""

from __future__ import annotations

import asyncio
import random

import pytest

import kvorum
from kv.base.errors import KvorumError
from kvorum.api.model import TableSpec
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster

pytestmark = pytest.mark.slow

KEYS = "agmsz"


class Client:
    """Writes a rising number to its keys, at whichever node lives, and remembers what was
    acknowledged and what may have happened.
    """

    def __init__(self, name: str, cluster: SimCluster, seed: int) -> None:
        self.acknowledged: dict[str, int] = {}
        self.doubtful: dict[str, set[int]] = {}
        self.versions: list[int] = []
        self.refused = 0
        self._name, self._cluster = name, cluster
        self._random = random.Random(seed)

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            await asyncio.sleep(0.02 + self._random.random() * 0.05)
            number += 1
            node = self._random.choice(sorted(self._cluster.nodes))
            key = f"{self._random.choice(KEYS)}-{self._name}"
            backend = getattr(self._cluster.nodes[node], "backend", None)
            if backend is None:
                continue
            try:
                version = await backend.put("default", "k", key.encode(), b"%d" % number, None, 0)
            except kvorum.UnknownOutcome:
                self.doubtful.setdefault(key, set()).add(number)
            except KvorumError:
                self.refused += 1
            else:
                self.acknowledged[key] = number
                self.doubtful.pop(key, None)
                self.versions.append(version)


async def fault(cluster: SimCluster, chance: random.Random) -> None:
    """One fault, and its end."""
    node = chance.choice(sorted(cluster.nodes))
    if chance.random() < 0.5:
        await cluster.crash(node)
        await asyncio.sleep(chance.random() * 3)
        await cluster.start(node)
    else:
        cluster.network.isolate(node)
        await asyncio.sleep(chance.random() * 3)
        cluster.network.cut.clear()
    await asyncio.sleep(1 + chance.random())


@pytest.mark.parametrize("seed", range(4))
def test_f3_whole_nodes_survive_crashes_and_cuts(seed: int) -> None:
    """What was acknowledged is there, whatever befell the nodes one by one; timestamps rise for
    each client; and a healed cluster serves again.
    """

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, seed), random.Random(seed)
        await cluster.start()
        await cluster.nodes[1].backend.create_table(
            "default", "k", TableSpec(split_keys=(b"h", b"s"))
        )
        clients = [Client(f"c{i}", cluster, seed * 10 + i) for i in range(4)]
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(stop))
            for _ in range(5):
                await fault(cluster, chance)
            await asyncio.sleep(5)  # healed
            stop.set()
        for client in clients:
            assert len(client.versions) > 30, "it did not only fail"
            assert client.versions == sorted(client.versions)
            for key, number in client.acknowledged.items():
                row = await cluster.nodes[2].backend.get("default", "k", key.encode(), 0)
                assert row is not None, f"{key} is lost"
                allowed = {number, *client.doubtful.get(key, ())}
                assert int(row.value) in allowed, f"{key}: {row.value!r}, acknowledged {number}"
        await cluster.close()

    run(main, seed)
