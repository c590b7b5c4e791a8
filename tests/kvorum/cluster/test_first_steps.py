"""A cluster from its first start on."""

from __future__ import annotations

import asyncio

from kvorum.cluster.cluster import CONSENSUS
from tests.kvorum.cluster.three import client, trio


def test_f3_three_nodes_elect_and_serve() -> None:
    """Without this there is no cluster: every node serves every key, whoever leads it."""

    async def main() -> None:
        async with trio() as cluster:
            async with client(cluster) as db:
                await db.create_table("default", "k", split_keys=["h", "s"])
                for key in "amz":
                    await db.table("default", "k").put(key, key.upper())
            for number in cluster.nodes:
                async with client(cluster, number) as db:
                    found = [await db.table("default", "k").get(key) for key in "amz"]
                    assert [r and r.value for r in found] == [b"A", b"M", b"Z"]

    asyncio.run(main())


def test_f3_a_new_table_is_led_at_once() -> None:
    """Its replicas have promised nobody anything: waiting for an election timeout would make every
    new table deaf for most of a second.
    """

    async def main() -> None:
        async with trio() as cluster, client(cluster) as db:
            await db.create_table("default", "k", split_keys=["h", "s"])
            began = asyncio.get_running_loop().time()
            for key in "amz":
                await db.table("default", "k").put(key, key)
            took_ms = (asyncio.get_running_loop().time() - began) * 1000
            assert took_ms < CONSENSUS.election_min_ms
            assert len({cluster.leader(p) for p in (2, 3, 4)}) == 3, "each where it belongs"

    asyncio.run(main())
