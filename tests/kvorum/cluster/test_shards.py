"""Tables that move to another storage shard in a running cluster, of which a node is down."""

from __future__ import annotations

import asyncio

import pytest

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
