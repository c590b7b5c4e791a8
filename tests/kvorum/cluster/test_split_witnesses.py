"""Splits and merges where one vote is a witness's, which has no rows to cut (F15, H2, H4)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from kv.base.config import NodeConfig
from kv.storage.engine import STATE_FAMILIES
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.splits import Bank, scene, submit
from tests.kvorum.cluster.test_split_chaos import fault, reshape

pytestmark = pytest.mark.slow

WITNESS = 3


class WithWitness(SimCluster):
    """The third founder keeps no data."""

    def _config(self, number: int) -> NodeConfig:
        config = super()._config(number)
        return replace(config, witnesses=(WITNESS,), witness=number == WITNESS)


def has_no_rows(bank: Bank) -> None:
    """A witness that took the place of a data node in a split would have some."""
    store = bank.cluster.nodes[WITNESS].store
    for family in STATE_FAMILIES:
        if family != "meta":
            assert store.state.scan(family, b"", b"", limit=1) == [], family


async def everybody_follows(bank: Bank) -> None:
    """The nodes with data have the same partitions, without holes; the witness votes in each."""
    async with asyncio.timeout(120):
        while not _follow(bank):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.5)


def _follow(bank: Bank) -> bool:
    nodes = bank.cluster.nodes
    if len(nodes) < bank.cluster.count:
        return False
    first, second = (
        [(d.id, d.start, d.end, d.epoch) for d in nodes[n].store.manager.descriptors()]
        for n in (1, 2)
    )
    led = [
        replica.group.status()
        for n in (1, 2)
        for replica in nodes[n].store.manager.replicas()
        if replica.leads()
    ]
    voted = {d.id for d in nodes[WITNESS].store.manager.descriptors()}
    whole = all(end == start for (_, _, end, _), (_, start, _, _) in pairwise(first[1:]))
    answers = all(one.followers[WITNESS].responsive for one in led)
    return first == second and whole and voted == {one[0] for one in first} and answers


async def parts(bank: Bank, count: int) -> None:
    """Until so many partitions are led: what is split off waits for its first election."""
    async with asyncio.timeout(10):
        while len(bank.ranges()) != count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


def test_f15_h2_h4_partitions_with_a_witness_are_split_and_merged() -> None:
    """The witness is one of both halves, and votes in what is left; nothing is lost."""

    async def main(bank: Bank) -> None:
        await asyncio.sleep(1)
        for key in ("a12", "m"):
            start = max(start for start, _ in bank.ranges())
            d = bank.led_at(start)
            info = await submit(bank, "kvorum.split_partition", {"partition": d.id, "at": key})
            assert info.state == "SUCCESS", info
            await parts(bank, 2 if key == "a12" else 3)
        await parts(bank, 3)
        await everybody_follows(bank)
        has_no_rows(bank)
        for start, _ in bank.ranges():
            d = bank.led_at(start)
            assert (d.voters, d.witnesses) == ((1, 2, 3), (WITNESS,))
        # the new ones go on with one node of two and the witness, in which only its vote is missing
        await bank.cluster.crash(2)
        before = bank.transfers
        async with asyncio.timeout(60):
            while bank.transfers < before + 10:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
        await bank.cluster.start(2)
        await everybody_follows(bank)
        for count in (3, 2):
            await parts(bank, count)
            left, right = [bank.led_at(start).id for start, _ in bank.ranges()[:2]]
            info = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
            assert info.state == "SUCCESS", info
        await parts(bank, 1)
        await everybody_follows(bank)
        has_no_rows(bank)

    scene(main, make=WithWitness)


@pytest.mark.parametrize("seed", range(2))
def test_f15_h2_h4_whatever_falls_among_two_nodes_and_a_witness(seed: int) -> None:
    """A split counted done without a copy of it, or a merge that takes a witness for a follower
    that has everything, loses rows when the other node falls.
    """
    told: dict[str, int] = {}

    async def main(bank: Bank) -> None:
        chance = random.Random(seed * 7 + 3)

        async def shaping() -> None:
            while not bank.stop.is_set():
                await reshape(bank, chance)
                await asyncio.sleep(chance.random() * 0.3)

        work = asyncio.create_task(shaping())
        for _ in range(6):
            await fault(bank, chance)
        await asyncio.sleep(2)
        bank.stop.set()
        async with asyncio.timeout(180):
            await work
        await everybody_follows(bank)
        has_no_rows(bank)
        told.update(bank.done, transfers=bank.transfers, audits=bank.audits)

    scene(main, seed=seed, make=WithWitness)
    assert told["transfers"] > 30
    assert told["split SUCCESS"] >= 1, told
    assert told["merge SUCCESS"] >= 1, told
