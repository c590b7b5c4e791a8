"""Partitions are split in place while clients work (H2, G13, A3, A6, B10, D14, F14)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kv.base.ids import PartitionId
from procedures.master.shape import merging
from procedures.master.shape.merging import MergePartitions
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.splits import Bank, scene, submit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("nodes", [1, 3])
def test_h2_h4_partitions_are_split_and_merged_while_clients_work(nodes: int) -> None:
    """Nothing is lost, torn or told twice, and both halves serve."""

    async def main(bank: Bank) -> None:
        await asyncio.sleep(1)
        for key in ("a12", "g", "m"):
            d = max(
                (
                    r.descriptor
                    for n in bank.cluster.nodes.values()
                    for r in n.store.manager.replicas()
                ),
                key=lambda d: d.id,
            )
            info = await submit(bank, "kvorum.split_partition", {"partition": d.id, "at": key})
            assert info.state == "SUCCESS", info
            await asyncio.sleep(0.5)
        ranges = bank.ranges()
        assert len(ranges) == 4
        assert all(end == start for (_, end), (start, _) in pairwise(ranges))
        for _ in range(3):
            left, right = [bank.led_at(start).id for start, _ in bank.ranges()[:2]]
            info = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
            assert info.state == "SUCCESS", info
            await asyncio.sleep(0.5)
        assert len(bank.ranges()) == 1
        assert bank.refused == 0
        assert bank.transfers > 20
        assert bank.audits > 20

    scene(main, nodes=nodes)


def test_h4_a_merge_is_given_up_while_a_node_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients would wait until that node comes back."""
    monkeypatch.setattr(merging, "MERGE_MEET_LOOKS_MAX", 5)

    async def main(bank: Bank) -> None:
        left = bank.led_at(bank.ranges()[0][0]).id
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": "m"})
        right = info.result["new"]
        await asyncio.sleep(1)
        await bank.cluster.crash(3)
        refused = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        assert refused.state in ("FAILED", "ROLLED_BACK"), refused
        await bank.cluster.start(3)
        await asyncio.sleep(2)
        assert len(bank.ranges()) == 2
        merged = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        assert merged.state == "SUCCESS", merged

    scene(main, calm=True)


def test_h4_who_does_not_follow_in_time_lets_the_others_be_served_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that was frozen for a merge would stand still for ever."""
    monkeypatch.setattr(merging, "MERGE_FREEZE_MS_MAX", 500)
    behind = MergePartitions._lagging
    stuck = {"now": True}

    async def never(
        self: MergePartitions, partition: PartitionId, index: int, nodes: list[int]
    ) -> list[int]:
        replica = clusters[0].nodes[1].store.manager.replica(partition)
        if stuck["now"] and replica is not None and replica.state.frozen is not None:
            return [3]
        return await behind(self, partition, index, nodes)

    monkeypatch.setattr(MergePartitions, "_lagging", never)
    clusters: list[SimCluster] = []

    async def main(bank: Bank) -> None:
        clusters.append(bank.cluster)
        left = bank.led_at(bank.ranges()[0][0]).id
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": "m"})
        right = info.result["new"]
        refused = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        assert refused.state in ("FAILED", "ROLLED_BACK"), refused
        assert "stood still" in refused.error["message"]
        assert len(bank.ranges()) == 2
        number = bank.sent.get("z-x", 0)
        await asyncio.sleep(2)
        assert bank.sent.get("z-x", 0) > number, "it is served again"
        stuck["now"] = False
        merged = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        assert merged.state == "SUCCESS", merged

    scene(main, calm=True)
