"""Tables that move to another storage shard in a running cluster, of which a node is down."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kvorum.cluster.placement import SpreadPartitions
from procedures.master.map.partitions import Place
from procedures.verbs import CREATE_PARTITION
from tests.kit.waiting import until
from tests.kvorum.cluster.three import Trio, client, trio


def where(made: Trio) -> dict[int, set[str]]:
    """By node: the shards of its partitions, but for the meta partition's."""
    return {
        number: {d.shard for d in node.store.manager.descriptors() if d.id != 1}
        for number, node in made.nodes.items()
    }


@pytest.mark.slow
def test_g10_a_node_that_was_down_moves_its_rows_when_it_comes_back() -> None:
    """A table lay in two shards for ever, or a merge took in rows that lay in another one."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t", split_keys=["m"])
            table = db.table("default", "t")
            keys = [f"{letter}{n:02}" for letter in "az" for n in range(50)]
            await asyncio.gather(*(table.put(key, "v") for key in keys))
            await made.crash(3)
            await db.modify_table("default", "t", shard="a:universal")
            await until(lambda: where(made) == {1: {"a:universal"}, 2: {"a:universal"}})
            await asyncio.gather(*(table.put(key, "w") for key in keys))
            await made.start(3)
            await until(lambda: where(made)[3] == {"a:universal"}, seconds=60)
            left, right = [row["id"] for row in await db.partitions() if row["id"] != 1]
            merged = await db.submit("kvorum.merge_partitions", {"left": left, "right": right})
            await db.wait(merged)
            assert where(made) == {number: {"a:universal"} for number in (1, 2, 3)}
            assert [row.value async for row in table.rows()] == [b"w"] * len(keys)
            for node in made.nodes.values():
                assert not node.store.state.scan("cur", b"\0\0\0\x64", b"")

    asyncio.run(main())


def test_g10_who_is_told_to_move_what_it_lacks_gives_no_vote() -> None:
    """A replica that was lost a moment ago came back empty, as a founder: entries went on top of
    nothing.
    """
    said: list[object] = []

    class Calls:
        async def call_at(self, _node: int, method: int, *args: object, budget_ms: int) -> object:
            assert method == CREATE_PARTITION
            said.extend(args)
            return None

    made = PartitionDescriptor(PartitionId(7), b"a", b"b", 3, (NodeId(1), NodeId(2)), shard="fast")
    none: Any = None
    maker: Any = SpreadPartitions(
        cast(Any, Calls()), lambda: Place(()), lambda _node: True, none, none, none
    )
    asyncio.run(maker.create([made], late=True))
    assert len(said) == 2
    for rows in said:
        (row,) = cast(list[object], rows)
        told = PartitionDescriptor.from_wire(cast(list[object], row))
        assert (told.shard, told.voters, told.witnesses) == ("fast", (), ())
