"""Whole nodes come back and leave: their replicas follow the map."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import kvorum
from kv.base.errors import Refused
from kv.base.ids import META_PARTITION
from kvorum.cluster.cluster import CONSENSUS
from raft.errors import RaftError
from tests.kit.waiting import until
from tests.kv.replica.support import rows_of
from tests.kvorum.cluster.three import Trio, client, trio

pytestmark = pytest.mark.slow


def tables_of(made: Trio, node: int) -> list[int]:
    """The partitions of a node but for the meta partition."""
    found = [d.id for d in made.nodes[node].store.manager.descriptors()]
    return [id_ for id_ in found if id_ != META_PARTITION]


def test_f4_a_node_that_was_down_makes_and_drops_what_it_missed() -> None:
    """A table made while a node was down would have two replicas for ever; a dropped one stayed."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "old")
            assert tables_of(made, 3) == tables_of(made, 1) != []
            old = tables_of(made, 3)
            await made.stop(3)
            await db.create_table("default", "new", split_keys=["m"])
            await db.table("default", "new").put("k", "v")
            await db.drop_table("default", "old")
            await made.start(3)
            await until(lambda: set(tables_of(made, 1)) <= set(tables_of(made, 3)))
            assert len(tables_of(made, 1)) == 2
            reconciler = made.nodes[3].upkeep.reconciler
            for _ in range(5):  # what goes was missed by several looks
                await reconciler.look()
            assert set(tables_of(made, 3)) == set(tables_of(made, 1))
            assert not set(old) & set(tables_of(made, 3))
            replica = made.nodes[3].store.manager.replica(tables_of(made, 3)[0])
            assert replica is not None
            await until(lambda: replica.state.index > 0)

    asyncio.run(main())


async def serves_who_knows_only(url: str) -> None:
    """A3: a node without replicas sends its clients on."""
    async with await kvorum.aconnect(url) as db:
        table = db.table("default", "t")
        await table.put("lonely", "1")
        assert (await table.get("lonely")) is not None
        async with db.transaction() as t:
            await t.table("default", "t").delete("lonely")
        assert await db.procedures()


def test_f4_a_decommissioned_node_votes_nowhere_and_stays_away() -> None:
    """A node that was taken out still counted for quorums, or came back under its id."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t", split_keys=["m"])
            table = db.table("default", "t")
            await table.put("a", "1")
            leaving = await made.led()  # the one that runs the procedure
            id_ = await db.submit("Decommission", {"node": leaving})
            result = await db.wait(id_)
            assert result == {"node": leaving, "removed": 3}
            staying = [number for number in made.nodes if number != leaving]
            for partition in (META_PARTITION, *tables_of(made, staying[0])):
                leader = await made.led(partition, but=leaving)
                replica = made.nodes[leader].store.manager.replica(partition)
                assert replica is not None
                assert sorted(replica.group.status().voters) == staying
            await until(lambda: tables_of(made, leaving) == [])
            await serves_who_knows_only(made.url_of(leaving))
            await made.stop(leaving)
            await table.put("z", "2")
            found = [await table.get(key) for key in "az"]
            assert [row and row.value for row in found] == [b"1", b"2"]
            with pytest.raises(ExceptionGroup) as caught:
                await made.start(leaving)
            (error,) = caught.value.exceptions
            assert isinstance(error, Refused)
            assert error.code == "NODE_DECOMMISSIONED"
            del made.nodes[leaving]

    asyncio.run(main())


def test_f4_a_node_that_missed_the_log_is_rebuilt() -> None:
    """What a leader has cut from its log could never reach a node that was down meanwhile."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t")
            table = db.table("default", "t")
            await table.put("k000", "before")
            (partition,) = tables_of(made, 1)
            await made.stop(3)
            for number in made.nodes:
                made.nodes[number].store.manager.logs._keep = 5
            # A leader keeps the log for who has answered within an election timeout.
            await asyncio.sleep(CONSENSUS.election_min_ms / 1000 + 0.2)
            # Every replica keeps a tail of a megabyte for those that are a little behind.
            for round_ in range(3):
                for i in range(30):
                    await table.put(f"k{i:03}", f"{round_}" + " " * 60_000)
                for number in made.nodes:
                    await made.nodes[number].store.manager.truncate()
            await table.delete("k001")
            await made.start(3)
            manager = made.nodes[3].store.manager
            mine, leader = manager.replica(partition), await made.led(partition)
            theirs = made.nodes[leader].store.manager.replica(partition)
            assert mine is not None
            assert theirs is not None
            await until(lambda: mine.state.index == theirs.state.index)
            assert manager.counters.snapshots_installed >= 1
            descriptor = theirs.descriptor
            engines = [made.nodes[number].store.state for number in (3, leader)]
            assert rows_of(engines[0], descriptor) == rows_of(engines[1], descriptor)
            await transfer(made, partition, 3)
            rows = {key: await table.get(key) for key in ("k000", "k001", "k029")}
            assert {k: row and row.value.strip() for k, row in rows.items()} == {
                "k000": b"2",
                "k001": None,
                "k029": b"2",
            }

    asyncio.run(main())


async def transfer(made: Trio, partition: int, target: int) -> None:
    """Hand the leadership to a node that has just caught up."""
    while (leader := await made.led(partition)) != target:
        replica = made.nodes[leader].store.manager.replica(partition)
        assert replica is not None
        with contextlib.suppress(RaftError):
            replica.group.transfer(target)
        await asyncio.sleep(0.1)
