"""Partitions are split in place while clients work (H2, G13, A3, A6, B10, D14, F14)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.cluster.splits import Bank, scene, submit


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
