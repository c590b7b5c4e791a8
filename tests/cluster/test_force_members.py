"""F18 on whole nodes: two of three are gone for good, and the third goes on."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import InvalidArgument
from kv.base.ids import META_PARTITION
from kv.base.methods import FORCE_MEMBERS
from tests.cluster.three import Trio, client, trio, until

WHY = "both machines of site A burnt down"


async def force(made: Trio, node: int, *, at: int | None = None) -> list[list[object]]:
    calls = made.nodes[node].store.cluster.calls
    (rows,) = await calls.call_at(at or node, FORCE_MEMBERS, node, WHY)
    return list(rows)


def test_f18_the_last_node_serves_again_and_the_lost_ones_are_taken_out() -> None:
    """A site is gone: without this its data could only be read from a backup."""

    async def main() -> None:
        async with trio() as made:
            async with client(made) as db:
                await db.create_table("default", "t", split_keys=["m"])
                table = db.table("default", "t")
                await table.put("a", "1")
                await table.put("z", "1")
            replicas = made.nodes[3].store.manager.replicas()
            await until(lambda: all(r.state.index == r.group.last_index for r in replicas))
            partitions = [replica.descriptor.id for replica in replicas]
            left_alone = await force(made, 3)
            assert [row[:2] for row in left_alone if not row[1]], "the others live"
            await made.crash(1)
            await made.crash(2)
            await until(lambda: not any(replica.leads() for replica in replicas))
            await asyncio.sleep(1.1)  # what it heard of a leader must be over
            rows = await force(made, 3)
            assert [row[0] for row in rows] == partitions
            assert all(row[1] for row in rows), rows
            async with client(made, 3) as db:
                table = db.table("default", "t")
                for key in "az":
                    await table.put(key, "2")
                    record = await table.get(key)
                    assert record is not None
                    assert record.value == b"2"
            meta = made.nodes[3].store.manager.replica(META_PARTITION)
            assert meta is not None
            assert meta.group.status().forced_reason == WHY
            async with client(made, 3) as db:
                for lost in (1, 2):
                    id_ = await db.submit("Decommission", {"node": lost})
                    assert await asyncio.wait_for(db.wait(id_), 20)
                found = {row["id"]: row["state"] for row in await db.nodes()}
                assert found == {1: "gone", 2: "gone", 3: "live"}

    asyncio.run(main())


def test_f18_the_wrong_node_is_refused() -> None:
    """An operator who is connected to another node than he thinks must not force that one."""

    async def main() -> None:
        async with trio() as made:
            with pytest.raises(InvalidArgument, match="this is node 2, not 3"):
                await force(made, 3, at=2)

    asyncio.run(main())
