"""Nodes that come later."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, Refused
from kvorum.api.verbs import JOIN
from kvorum.cluster import joining
from tests.kit.waiting import until
from tests.kvorum.cluster.three import Trio, client, trio

SECRET = "what only the nodes of this cluster know"


def voters(made: Trio, node: int, partition: int) -> list[int]:
    replica = made.nodes[node].store.manager.replica(partition)
    assert replica is not None
    return sorted(replica.group.status().voters)


@pytest.mark.slow
def test_f4_a_later_node_becomes_a_voter_everywhere() -> None:
    """A cluster that cannot grow is thrown away when it is full."""

    async def main() -> None:
        async with trio(later=1, cluster_secret=SECRET) as made, client(made) as db:
            await db.create_table("default", "k", split_keys=["m"])
            table = db.table("default", "k")
            for key in "az":
                await table.put(key, key.upper())
            await made.start(4)
            fourth = made.nodes[4].store
            assert fourth.identity.node == 4
            assert fourth.identity.cluster == made.nodes[1].store.identity.cluster
            partitions = [d.id for d in made.nodes[1].store.manager.descriptors()]
            await until(lambda: [d.id for d in fourth.manager.descriptors()] == partitions)
            for partition in partitions:
                await until(lambda p=partition: voters(made, 4, p) == [1, 2, 3, 4])
            async with client(made, 4) as there:
                found = [await there.table("default", "k").get(key) for key in "az"]
                assert [row and row.value for row in found] == [b"A", b"Z"]
                await until_state(there, 4, "live")
            # Its id is kept with its data, and it needs nobody's list to find the others again.
            await made.stop(4)
            await made.start(4)
            assert made.nodes[4].store.identity.node == 4

    asyncio.run(main())


async def until_state(db: Any, node: int, state: str) -> None:
    async with asyncio.timeout(10):
        while (node, state) not in [(n["id"], n["state"]) for n in await db.nodes()]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_f4_a_lone_node_grows() -> None:
    """Whoever began with one node must not have to copy the data to get three."""

    async def main() -> None:
        async with trio(count=1, later=2) as made, client(made) as db:
            await db.create_table("default", "k")
            await db.table("default", "k").put("a", "1")
            await made.start(2)
            await made.start(3)
            for number in (2, 3):  # members: every change of the voters is committed
                await until_state(db, number, "live")
            for partition in (1, 2):
                assert voters(made, 1, partition) == [1, 2, 3]
            await made.crash(1)
            async with client(made, 2) as there:
                row = await there.table("default", "k").get("a")
                assert row is not None
                assert row.value == b"1"

    asyncio.run(main())


def test_f4_data_of_one_cluster_do_not_found_another() -> None:
    """A lone node that is started with a --join list would wait for the others for ever, and they
    for it: they belong to different clusters.
    """

    async def main() -> None:
        async with trio(count=1) as made:
            await made.stop(1)
            mine = made.addresses[0]
            made.addresses = [mine, "127.0.0.1:1", "127.0.0.1:2"]
            with pytest.raises(ExceptionGroup) as caught:
                await made.start(1)
            (error,) = caught.value.exceptions
            assert isinstance(error, InvalidArgument)
            assert "start it without --join" in error.message
            del made.nodes[1]

    asyncio.run(main())


def test_f4_strangers_are_not_taken_in() -> None:
    """The native port is open to clients: an id, and a list of the members, must not be."""

    async def main() -> None:
        async with trio(later=1, cluster_secret=SECRET) as made:
            wrong = replace(made.config(4), cluster_secret="another secret, just as long")
            kv = made.nodes[1].store.kv
            with pytest.raises(Refused) as caught:
                await kv.call_node(JOIN, *joining.request(wrong, bytes(16)))
            assert caught.value.code == "WRONG_SECRET"
            assert SECRET not in str(caught.value.details) + caught.value.message
            only_one = tuple(made.addresses[:1])
            taken = replace(made.config(4), join=only_one, port=made.config(2).port)
            with pytest.raises(Refused) as caught:
                await kv.call_node(JOIN, *joining.request(taken, bytes(16)))
            assert caught.value.code == "ADDRESS_TAKEN"

    asyncio.run(main())
