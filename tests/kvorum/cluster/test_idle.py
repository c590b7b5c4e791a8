"""What a cluster does that nobody uses: nothing that costs a disk or a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kv.base.config import NodeConfig
from kv.base.ids import META_PARTITION
from kv.base.keys import u64
from kv.base.timestamps import compose
from kvorum.api.model import TableSpec
from kvorum.testing.simulation.loop import SimClock, SimLoop, run
from tests.kit.waiting import until
from tests.kvorum.cluster.simulated import SimCluster, SimPeers


class Quick(SimCluster):
    """Collects every second what is older than that."""

    def _config(self, number: int) -> NodeConfig:
        return replace(super()._config(number), gc_interval_ms=1_000, gc_retention_ms=1_000)

    def clean(self) -> bool:
        states = [r.state for node in self.nodes.values() for r in node.store.manager.replicas()]
        now = u64(compose(SimClock(self.loop).now_ms()))  # records of transactions stay for a day
        queues = [node.store.state.scan("gcq", b"", now, limit=1) for node in self.nodes.values()]
        return not any(state.old_versions for state in states) and not any(queues)

    def logs(self) -> dict[tuple[int, int], int]:
        """The end of every log but the meta partition's, by node and partition."""
        return {
            (number, replica.descriptor.id): replica.group.last_index
            for number, node in self.nodes.items()
            for replica in node.store.manager.replicas()
            if replica.descriptor.id != META_PARTITION
        }

    def asleep(self) -> bool:
        return all(
            replica.group.status().hibernating
            for node in self.nodes.values()
            for replica in node.store.manager.replicas()
            if replica.descriptor.id != META_PARTITION
        )

    def safepoints(self) -> int:
        """How often one was made durable."""
        return sum(node.store.safepoint.persists for node in self.nodes.values())


async def churn(cluster: SimCluster) -> None:
    """Leave old versions and tombstones in two partitions."""
    backend = cluster.nodes[1].backend
    for key in (b"a", b"z"):
        for value in (b"1", b"2"):
            await backend.put("default", "k", key, value, None, 0)
        await backend.delete("default", "k", key, None)


@pytest.mark.slow
def test_f1_the_collector_leaves_an_idle_cluster_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node's every round made a new safepoint durable, an entry and a sync on all disks,
    though there was nothing to collect by it.
    """
    sent: list[int] = []  # the groups that messages were about
    really = SimPeers.send

    def send(
        peers: SimPeers, peer: int, group_id: int, message: Mapping[str, Any], *, early: bool
    ) -> None:
        sent.append(group_id)
        really(peers, peer, group_id, message, early=early)

    monkeypatch.setattr(SimPeers, "send", send)

    async def main(loop: SimLoop) -> None:
        cluster = Quick(loop, 5)
        await cluster.start()
        spec = TableSpec(split_keys=(b"m",))
        await cluster.nodes[1].backend.create_table("default", "k", spec)
        await churn(cluster)
        await asyncio.sleep(240)  # what the start and a procedure leave is cleaned, too
        await until(cluster.clean, 60)
        await until(cluster.asleep, 60)
        rounds = [node.upkeep.collector.rounds for node in cluster.nodes.values()]
        before, durable = cluster.logs(), cluster.safepoints()
        sent.clear()
        await asyncio.sleep(60)
        after = [node.upkeep.collector.rounds for node in cluster.nodes.values()]
        assert min(b - a for a, b in zip(rounds, after, strict=True)) > 50
        assert cluster.safepoints() == durable, "nothing was to be collected"
        assert cluster.logs() == before
        assert set(sent) == {META_PARTITION}, "the oracle's lease"
        await churn(cluster)
        assert not cluster.clean()
        await until(cluster.clean, 60)
        await cluster.close()

    run(main, 5)
