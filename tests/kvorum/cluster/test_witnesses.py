"""Witnesses, and clusters over sites: whole nodes in one loop (F15, F16, F17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

import kvorum
from kv.base.config import NodeConfig
from kv.base.errors import InvalidArgument, Refused
from kv.storage.engine import STATE_FAMILIES
from kvorum.cluster import joining
from kvorum.local.identity import check_kind, cluster_id
from procedures.master.members.membership import DECOMMISSION
from tests.kit.waiting import until
from tests.kvorum.cluster.three import READY_S, Trio, client, trio

PARTITIONS = (1, 2, 3)


class Growing(Trio):
    """Two founders; the third node joins as a witness."""

    def config(self, node: int) -> NodeConfig:
        return replace(super().config(node), witness=node == 3)


@asynccontextmanager
async def growing() -> AsyncIterator[Growing]:
    made = Growing(2, later=1)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
    assert not made.fatal, made.fatal


async def fill(db: Any) -> None:
    await db.create_table("default", "k", split_keys=["m"])
    await put(db, "first")


async def put(db: Any, value: str) -> None:
    """Again while nobody knows: what a leader had taken when it was cut off waits there for its
    deadline.
    """
    table = db.table("default", "k")
    for key in "az":
        async with asyncio.timeout(READY_S):
            while True:
                with suppress(TimeoutError, kvorum.UnknownOutcome):
                    await asyncio.wait_for(table.put(key, value), 2)
                    break


async def check(db: Any, value: str) -> None:
    for key in "az":
        row = await db.table("default", "k").get(key)
        assert row is not None
        assert row.value == value.encode()


def status(made: Trio, node: int, partition: int) -> Any:
    replica = made.nodes[node].store.manager.replica(partition)
    return None if replica is None else replica.group.status()


async def in_step(made: Trio) -> None:
    """Until every leader has every voter with data at the end of its log."""

    def whole() -> bool:
        for partition in PARTITIONS:
            leader = made.leader(partition)
            if leader is None:
                return False
            told = status(made, leader, partition)
            data = [n for n in told.voters if n not in told.witnesses and n != leader]
            if any(told.followers[n].lag or not told.followers[n].responsive for n in data):
                return False
        return True

    await until(whole)


def never_served(made: Trio, witness: int) -> None:
    """A witness leads nothing and has nothing but what it must know of itself."""
    store = made.nodes[witness].store
    assert [status(made, witness, p).role for p in PARTITIONS] == ["witness"] * 3
    assert not store.tso.leading
    for family in STATE_FAMILIES:
        if family != "meta":
            assert store.state.scan(family, b"", b"", limit=1) == [], family


@pytest.mark.slow
def test_f15_two_nodes_with_data_and_a_witness_survive_any_one_of_them() -> None:
    """Two copies must be as available as three: that is what the third vote is for."""

    async def main() -> None:
        async with trio(witnesses=(3,)) as made, client(made) as db:
            await fill(db)
            never_served(made, 3)
            for lost in (1, 2, 3):
                await in_step(made)
                await made.crash(lost)
                await put(db, f"without {lost}")
                await check(db, f"without {lost}")
                if lost != 3:
                    never_served(made, 3)
                await made.start(lost)
            await in_step(made)
            await check(db, "without 3")
            never_served(made, 3)

    asyncio.run(main())


@pytest.mark.slow
def test_f15_a_witness_is_ready_points_to_the_others_and_is_shown() -> None:
    """A client that knows only the witness must reach the data; an operator must see what it is."""

    async def main() -> None:
        async with trio(witnesses=(3,)) as made, client(made, 3) as db:
            assert made.nodes[3].not_ready() is None
            await fill(db)
            await check(db, "first")
            assert [row["witness"] for row in await db.nodes()] == [False, False, True]
            for row in await db.partitions():
                assert row["witnesses"] == [3]
                assert row["leader"] in (1, 2)
            await made.crash(1)
            await made.crash(2)
            await until(lambda: "knows no leader" in str(made.nodes[3].not_ready()))
            await made.start(1, 2)

    asyncio.run(main())


@pytest.mark.slow
def test_f15_a_later_node_joins_as_a_witness_and_leaves() -> None:
    """Two nodes that run already get their third vote, and new tables count it, too."""

    async def main() -> None:
        async with growing() as made, client(made) as db:
            await fill(db)
            await made.start(3)
            for partition in PARTITIONS:
                await until(lambda p=partition: status(made, 1, p).witnesses == (3,))
            assert made.nodes[3].store.identity.witness
            await db.create_table("default", "later")
            later = [status(made, n, 4) for n in (1, 2, 3)]
            assert [told.witnesses for told in later] == [(3,)] * 3
            with pytest.raises(kvorum.KvorumError, match="as many witnesses"):
                await db.wait(await db.submit(DECOMMISSION, {"node": 2}), timeout_ms=10_000)
            # Its kind is kept with its data.
            await made.stop(3)
            made.config = lambda node: Trio.config(made, node)  # type: ignore[method-assign]
            await made.start(3)
            never_served(made, 3)
            await made.crash(1)
            await put(db, "with the witness")
            await made.start(1)
            await db.wait(await db.submit(DECOMMISSION, {"node": 3}), timeout_ms=20_000)
            for partition in (*PARTITIONS, 4):
                assert status(made, 1, partition).voters == (1, 2)
            assert [row["state"] for row in await db.nodes()] == ["live", "live", "gone"]

    asyncio.run(main())


def test_f15_witnesses_that_make_no_sense_are_refused() -> None:
    """A witness among three makes the majority larger; one more than the data makes it empty."""

    async def main() -> None:
        async with trio(later=1) as made:
            config = replace(made.config(4), witness=True)
            with pytest.raises(Refused) as caught:
                await joining.ask(config, made.nodes[1].ports)
            assert caught.value.code == "WITNESS_REFUSED"
            with pytest.raises(InvalidArgument, match="cannot become a witness"):
                check_kind(made.nodes[2].store.identity, config)

    asyncio.run(main())
    join = ("127.0.0.1:7600", "127.0.0.1:7610", "127.0.0.1:7620")
    for settings, words in (
        ({"join": join, "witnesses": (2, 3)}, "fewer than the nodes with data"),
        ({"join": join, "witnesses": (4,)}, "no place in join"),
        ({"witnesses": (1,)}, "give that, too"),
        ({"witness": True}, "a witness alone"),
        ({"join": join, "witness": True}, "named in witnesses"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            NodeConfig(**settings)
    one, other = NodeConfig(join=join, witnesses=(3,)), NodeConfig(join=join)
    assert cluster_id(one) != cluster_id(other), "founders that disagree must not meet"


@pytest.mark.slow
@pytest.mark.parametrize("witnesses", [(), (5,)], ids=["five-with-data", "one-is-a-witness"])
def test_f16_five_nodes_on_three_sites_survive_each_site(witnesses: Sequence[int]) -> None:
    """A site burns: the others must have everything and go on by themselves."""

    async def main() -> None:
        async with trio(5, witnesses=tuple(witnesses)) as made, client(made) as db:
            await fill(db)
            for site in ((1, 2), (3, 4), (5,)):
                await in_step(made)
                for node in site:
                    await made.crash(node)
                await put(db, f"without {site}")
                await check(db, f"without {site}")
                await made.start(*site)
            await in_step(made)
            await check(db, "without (5,)")

    asyncio.run(main())


@pytest.mark.slow
def test_f17_two_sites_and_a_witness_elsewhere_survive_the_loss_of_either() -> None:
    """The sites lose each other, or the world loses one: one side goes on, and only one."""

    async def main() -> None:
        async with trio(witnesses=(3,)) as made, client(made, 3) as db:
            await fill(db)
            for gone, stays in ((1, 2), (2, 1)):
                await in_step(made)
                await made.cut(gone, stays, 3)
                await put(db, f"without {gone}")
                await until(lambda s=stays: all(made.leader(p) == s for p in PARTITIONS))
                await made.cut(gone)
            await in_step(made)
            await made.cut(1, 2)  # both reach the witness
            await put(db, "cut in the middle")
            for partition in PARTITIONS:
                await made.led(partition)
                terms = [status(made, node, partition) for node in (1, 2)]
                serving = [
                    node
                    for node in (1, 2)
                    if made.nodes[node].store.manager.replica(partition).serving()  # type: ignore[union-attr]
                ]
                assert len(serving) <= 1, terms  # one leads (above); its lease may just be renewed
            await made.cut(1)
            await in_step(made)
            await check(db, "cut in the middle")

    asyncio.run(main())
