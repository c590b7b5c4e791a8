"""Clients of a cluster of whole nodes while leaders change and die."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kv.base.adapters import LoopTimers, SystemRng
from kv.base.config import split_address
from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.ids import META_PARTITION
from kv.base.methods import GET, PUT, TSO
from kv.client.client import KvClient, connect
from kvorum.sdk.database import AsyncDatabase
from tests.kit.waiting import until
from tests.kvorum.cluster.three import Trio, client, trio

KEY = b"\x00\x00\x00\x32test"  # of the meta partition, where no table of ours is


async def kv_client(made: Trio) -> KvClient:
    addresses = [split_address(address) for address in made.addresses]
    return await connect(addresses, timers=LoopTimers(asyncio.get_running_loop()), rng=SystemRng())


async def transfer(made: Trio, partition: int = META_PARTITION) -> int:
    """Hand a partition's leadership to another node; its id."""
    old = await made.led(partition)
    replica = made.nodes[old].store.manager.replica(partition)
    assert replica is not None
    target = next(number for number in made.nodes if number != old)
    replica.group.transfer(target)
    await until(lambda: made.leader(partition) == target)
    return target


def test_a3_a_transfer_costs_a_client_one_refresh() -> None:
    """The first request through a stale cache would fail, or each one would look up again."""

    async def main() -> None:
        async with trio() as made:
            await made.led()
            kv = await kv_client(made)
            assert (await kv.call(PUT, KEY, KEY, b"1", None, 0))[0] > 0
            lookups = kv.lookups
            await kv.call_node(TSO, 1)
            await transfer(made)
            refreshes = kv.refreshes
            found = await asyncio.gather(*(kv.call(GET, KEY, KEY, 0, None) for _ in range(100)))
            assert [value for value, _ in found] == [b"1"] * 100
            assert kv.refreshes == refreshes + 1
            assert kv.lookups == lookups, "the refusal said where the leader is"
            assert (await kv.call_node(TSO, 1))[0] > 0
            assert (await kv.call(PUT, KEY, KEY, b"2", None, 0))[0] > found[0][1]
            assert kv.refreshes == refreshes + 1
            kv.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a3_a_dead_leader_costs_its_readers_the_election() -> None:
    """A read would fail, or wait for its whole deadline, because the leader that was known died."""

    async def main() -> None:
        async with trio() as made:
            leader = await made.led()
            kv = await kv_client(made)
            await kv.call(PUT, KEY, KEY, b"1", None, 0)
            await made.crash(leader)
            found = await asyncio.gather(*(kv.call(GET, KEY, KEY, 0, None) for _ in range(100)))
            assert [value for value, _ in found] == [b"1"] * 100
            assert (await kv.call_node(TSO, 1))[0] > found[0][1]
            kv.close()

    asyncio.run(main())


class Counting:
    """Clients that add one to counters in several partitions, in transactions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.keys = [f"{partition}{i}" for partition in "ajtz" for i in range(10)]
        self.acknowledged = self.unknown = 0
        self.failed: list[KvorumError] = []
        self.over = False

    async def add(self, db: AsyncDatabase) -> None:
        """Until it is over: one more at two keys, in one transaction."""

        async def work(t: Any) -> None:
            table = t.table("default", "n")
            for key in self.rng.sample(self.keys, 2):
                found = await table.get(key)
                await table.put(key, str(int(found.value) + 1 if found else 1))

        while not self.over:
            try:
                await db.run(work)
                self.acknowledged += 1
            except UnknownOutcome:
                self.unknown += 1
            except KvorumError as error:
                self.failed.append(error)


async def total(db: AsyncDatabase, keys: list[str]) -> int:
    """The sum of the counters at one snapshot."""
    found = await db.table("default", "n").multi_get(keys)
    return sum(int(record.value) for record in found if record is not None)


@pytest.mark.slow
def test_a8_no_acknowledged_transaction_is_lost_while_leaders_change() -> None:
    """With leaders on all nodes, timestamps from one of them, and leaderships that move all the
    time, a counter would lose an addition, or count one twice, or a snapshot would show half.
    """

    async def main() -> None:
        counting = Counting(5)
        async with trio() as made, client(made) as db:
            await db.create_table("default", "n", split_keys=["h", "p", "x"])

            async def watch() -> None:
                last = 0
                while not counting.over:
                    now = await total(db, counting.keys)
                    assert now % 2 == 0
                    assert now >= last
                    last = now

            async def trouble() -> None:
                partitions = [row["id"] for row in await db.partitions()]
                for _ in range(25):
                    await asyncio.sleep(counting.rng.random() * 0.1)
                    await transfer(made, counting.rng.choice(partitions))
                victim = await made.led()
                await made.crash(victim)
                await made.led(but=victim)
                await asyncio.sleep(0.5)
                counting.over = True

            async with asyncio.TaskGroup() as group:
                group.create_task(trouble())
                group.create_task(watch())
                for _ in range(8):
                    group.create_task(counting.add(db))
            assert not counting.failed, counting.failed[:3]
            assert counting.acknowledged > 50
            found = await total(db, counting.keys)
            low, high = counting.acknowledged, counting.acknowledged + counting.unknown
            assert 2 * low <= found <= 2 * high

    asyncio.run(main())
