"""Tables with a number of replicas in a running cluster: every client finds them, whichever node it
asks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.config import split_address
from kv.client.client import KvClient, connect
from kvorum.storage import drop_transactions
from tests.kit.waiting import until
from tests.kvorum.cluster.three import Trio, client, trio

SPLITS = ["c", "f", "i", "l", "o"]
KEYS = [chr(letter) + "1" for letter in range(ord("a"), ord("s"))]


def placed(rows: list[dict[str, Any]]) -> list[list[int]]:
    """The voters of all partitions but the meta partition."""
    return [row["replicas"] for row in rows if row["id"] != 1]


async def use(db: kvorum.AsyncDatabase) -> None:
    """Writes, reads, scans and a transaction over all partitions."""
    table = db.table("default", "t")
    await asyncio.gather(*(table.put(key, "v") for key in KEYS))
    assert [row.key.decode() async for row in table.rows()] == KEYS
    async with db.transaction() as t:
        for key in KEYS:
            await t.table("default", "t").put(key, "w")
    found = await asyncio.gather(*(table.get(key) for key in KEYS))
    assert [row and row.value for row in found] == [b"w"] * len(KEYS)


@pytest.mark.slow
def test_f8_partitions_are_spread_and_every_node_serves_all_of_them() -> None:
    """A node without a partition would say that there is none, or all would be at one node."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t", split_keys=SPLITS, replicas=1)
            where = placed(await db.partitions())
            assert Counter(node for (node,) in where) == {1: 2, 2: 2, 3: 2}
            for number in made.nodes:
                async with await kvorum.aconnect(made.url_of(number)) as lone:
                    await use(lone)
            await db.create_table("default", "everywhere")
            assert placed(await db.partitions())[-1] == [1, 2, 3]
            await db.drop_table("default", "t")
            held = [len(node.store.manager.descriptors()) for node in made.nodes.values()]
            assert held == [2, 2, 2], "the meta partition and the other table"

    asyncio.run(main())


@pytest.mark.slow
def test_f8_a_node_that_leaves_hands_its_partitions_on() -> None:
    """What has one replica must be served all the while, and be there afterwards."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t", split_keys=SPLITS, replicas=1)
            await use(db)
            leaving = await leader_of_nothing(made)
            await db.wait(await db.submit("Decommission", {"node": leaving}), timeout_ms=30_000)
            staying = {number for number in made.nodes if number != leaving}
            where = placed(await db.partitions())
            assert Counter(node for (node,) in where) == dict.fromkeys(staying, 3)
            table = db.table("default", "t")
            assert {row.value async for row in table.rows()} == {b"w"}
            await use(db)

    asyncio.run(main())


async def leader_of_nothing(made: Trio) -> int:
    """A node that is not the master: that one would hand over in between, which costs a while."""
    return min(set(made.nodes) - {await made.led()})


@pytest.mark.slow
def test_d4_a_transaction_is_unheard_of_only_if_the_silent_node_says_so() -> None:
    """Its record may be at the one node that has the partition."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t", split_keys=SPLITS, replicas=1)
            await use(db)
            mute = await leader_of_nothing(made)
            async with made_kv(made, but=mute) as kv:
                unheard = await db.timestamp()
                assert await kv.find_txn(unheard) is None
                await made.stop(mute)
                with pytest.raises(kvorum.KvorumError):
                    await kv.find_txn(unheard, budget_ms=1_500)
                await made.start(mute)
                assert await kv.find_txn(unheard, budget_ms=20_000) is None

    asyncio.run(main())


def test_f8_a_table_whose_only_copies_are_lost_can_be_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could neither be used nor be got rid of, nor the node that had it."""
    monkeypatch.setattr(drop_transactions, "SETTLE_MS_MAX", 300)

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t", split_keys=SPLITS, replicas=1)
            lost = await leader_of_nothing(made)
            await made.stop(lost)
            id_ = await db.submit("Decommission", {"node": lost})
            with pytest.raises(kvorum.Refused, match="the only copy of 2 partitions"):
                await db.wait(id_, timeout_ms=30_000)
            await db.drop_table("default", "t")
            assert placed(await db.partitions()) == []
            await made.start(lost)
            reconciler = made.nodes[lost].upkeep.reconciler
            for _ in range(5):
                await reconciler.look()
            assert len(made.nodes[lost].store.manager.descriptors()) == 1, "it heard of it"

    asyncio.run(main())


@asynccontextmanager
async def made_kv(made: Trio, *, but: int) -> AsyncIterator[KvClient]:
    """A plain client of the nodes that stay."""
    timers = LoopTimers(asyncio.get_running_loop())
    addresses = [split_address(a) for i, a in enumerate(made.addresses, 1) if i != but]
    kv = await connect(addresses, timers=timers, rng=SystemRng())
    try:
        yield kv
    finally:
        kv.close()


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 3])
def test_f8_as_many_replicas_as_were_asked_for(replicas: int) -> None:
    """A table that wants two copies and gets one loses its data with one disk."""

    async def main() -> None:
        async with trio(2, later=1) as made, client(made) as db:
            await db.create_table("default", "t", split_keys=SPLITS, replicas=replicas)
            assert placed(await db.partitions()) == [[1, 2]] * 6, "there are no more nodes yet"
            await made.start(3)
            await until(lambda: made.nodes[3].not_ready() is None)

            async def settled() -> bool:
                wanted = [1, 2, 3] if replicas == 3 else [1, 2]
                return placed(await db.partitions()) == [wanted] * 6

            async with asyncio.timeout(30):
                while not await settled():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            await use(db)

    asyncio.run(main())
