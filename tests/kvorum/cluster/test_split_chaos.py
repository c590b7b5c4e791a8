"""Splits and merges while nodes crash, lose what was not synced, and are cut off (H2, H4, B10, D14,
F14). More seeds: `python -m tests.kvorum.cluster.test_split_chaos FIRST COUNT`.
"""

from __future__ import annotations

import asyncio
import random
import sys

import pytest

from tests.kvorum.cluster.splits import (
    ACCOUNTS,
    Bank,
    account,
    everybody_follows,
    scene,
    submit,
)

pytestmark = pytest.mark.slow

ROUNDS = 6


async def reshape(bank: Bank, chance: random.Random) -> None:
    """One split or merge, of whatever there is; it may be refused."""
    ranges = bank.ranges()
    if len(ranges) > 1 and chance.random() < 0.5:
        i = chance.randrange(len(ranges) - 1)
        try:
            left, right = (bank.led_at(ranges[k][0]).id for k in (i, i + 1))
        except StopIteration:
            return
        info = await submit(bank, "kvorum.merge_partitions", {"left": left, "right": right})
        bank.done[f"merge {info.state}"] += 1
    elif ranges:
        start, _ = chance.choice(ranges)
        try:
            d = bank.led_at(start)
        except StopIteration:
            return
        key = (
            account(chance.randrange(1, ACCOUNTS))
            if chance.random() < 0.6
            else chance.choice("gmsz")
        )
        info = await submit(bank, "kvorum.split_partition", {"partition": d.id, "at": key})
        bank.done[f"split {info.state}"] += 1


async def fault(bank: Bank, chance: random.Random) -> None:
    cluster = bank.cluster
    node = chance.choice(sorted(cluster.nodes))
    if chance.random() < 0.6:
        await cluster.crash(node)
        await asyncio.sleep(chance.random() * 3)
        await cluster.start(node)
    else:
        cluster.network.isolate(node)
        await asyncio.sleep(chance.random() * 3)
        cluster.network.cut.clear()
    await asyncio.sleep(chance.random())


def chaos(seed: int) -> dict[str, int]:
    told: dict[str, int] = {}

    async def main(bank: Bank) -> None:
        chance = random.Random(seed * 7 + 1)

        async def shaping() -> None:
            while not bank.stop.is_set():
                await reshape(bank, chance)
                await asyncio.sleep(chance.random() * 0.3)

        work = asyncio.create_task(shaping())
        for _ in range(ROUNDS):
            await fault(bank, chance)
        await asyncio.sleep(2)
        bank.stop.set()
        async with asyncio.timeout(180):
            await work
        await everybody_follows(bank)
        told.update(bank.done, transfers=bank.transfers, audits=bank.audits)

    scene(main, seed=seed)
    return told


@pytest.mark.parametrize("seed", range(2))
def test_h2_h4_nothing_is_lost_whatever_falls(seed: int) -> None:
    """A crash at any moment of a split or merge would lose rows, tear a transaction, or leave a
    partition that nobody serves.
    """
    told = chaos(seed)
    assert told["transfers"] > 50
    assert told["audits"] > 50


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for one in range(first, first + count):
        try:
            print(one, chaos(one), flush=True)  # noqa: T201
        except BaseException as error:
            print("FAILED", one, repr(error)[:600], flush=True)  # noqa: T201
            if isinstance(error, KeyboardInterrupt) or count == 1:
                raise
