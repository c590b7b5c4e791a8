"""A cluster from its first start on."""

from __future__ import annotations

import asyncio

from tests.cluster.three import client, trio


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
