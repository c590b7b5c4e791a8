"""Whole nodes come back and leave: their replicas follow the map."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import Refused
from kv.base.ids import META_PARTITION
from tests.cluster.three import Trio, client, trio, until


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
