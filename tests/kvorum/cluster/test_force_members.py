"""F18 on whole nodes: a majority is gone for good, and the survivors go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, KvorumError, Refused
from kv.base.ids import META_PARTITION
from kvorum.api.verbs import FORCE_MEMBERS
from kvorum.cluster.force_members import Plan, proof
from kvorum.sdk.database import AsyncDatabase
from tests.kit.waiting import until
from tests.kvorum.cluster.three import Trio, client, trio

pytestmark = pytest.mark.slow

WHY = "both machines of site A burnt down"
SECRET = "what only the operators of this cluster know"


async def call(
    made: Trio, at: int, voters: Sequence[int], ticket: bytes, secret: str = SECRET
) -> tuple[list[Plan], bytes]:
    calls, said = made.nodes[at].store.cluster.calls, proof(secret, voters, WHY, ticket)
    rows, ticket = await calls.call_at(at, FORCE_MEMBERS, list(voters), WHY, ticket, said)
    return [Plan.from_wire(row) for row in rows], ticket


async def force(made: Trio, at: int, *voters: int) -> list[Plan]:
    """Plan and execute at a survivor, once it reaches the others; look again at a plan that the
    others have changed meanwhile, as an operator would.
    """
    others = [node for node in voters if node != at]
    await until(lambda: all(map(made.nodes[at].store.cluster.hears, others)))
    for _ in range(20):
        plan, ticket = await call(made, at, voters, b"")
        try:
            await call(made, at, voters, ticket)
        except Refused as refused:
            if refused.code != "PLAN_CHANGED":
                raise
            await asyncio.sleep(0.1)
        else:
            return plan
    raise AssertionError("the plan never came to rest")


async def fill(made: Trio) -> None:
    async with client(made) as db:
        await db.create_table("default", "t", split_keys=["m"])
        for key in "az":
            await db.table("default", "t").put(key, "1")


async def in_step(made: Trio, number: int) -> None:
    replicas = made.nodes[number].store.manager.replicas()
    await until(lambda: len(replicas) == 3 and all(_whole(r.group.status()) for r in replicas))


def _whole(status: Any) -> bool:
    return bool(status.commit_index == status.last_index)


async def writes(made: Trio, *nodes: int) -> None:
    """Old rows are there and new ones are taken, at each of these."""
    for node in nodes:
        async with client(made, node) as db, asyncio.timeout(10):
            table = db.table("default", "t")
            for key in "az":
                await table.put(key, "2")
                row = await table.get(key)
                assert row is not None
                assert row.value == b"2"


def test_f18_the_last_node_serves_again_and_everybody_can_read_why() -> None:
    """A site is gone: without this its data could only be read from a backup."""

    async def main() -> None:
        async with trio(cluster_secret=SECRET) as made:
            await fill(made)
            await in_step(made, 3)
            partitions = [d.id for d in made.nodes[3].store.manager.descriptors()]
            await made.crash(1)
            await made.crash(2)
            plan, ticket = await call(made, 3, [3], b"")
            assert [(row.partition, row.action) for row in plan] == [
                (p, "force") for p in partitions
            ]
            assert all(row.before == (1, 2, 3) and row.after == (3,) for row in plan)
            meta = made.nodes[3].store.manager.replica(META_PARTITION)
            assert meta is not None
            assert meta.group.status().forced == 0, "a plan changes nothing"
            await call(made, 3, [3], ticket)
            await writes(made, 3)
            assert meta.group.status().forced_reason == WHY
            with pytest.raises(Refused, match="another one by now"):
                await call(made, 3, [3], ticket)
            again, _ = await call(made, 3, [3], b"")
            assert {row.action for row in again} == {"done"}
            async with client(made, 3) as db, asyncio.timeout(10):
                while not (told := (await db.nodes())[2]["forced"]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert told[0]["reason"] == WHY
            assert told[0]["voters"] == [3]
            assert told[0]["given_up"] == [1, 2]
            assert told[0]["partitions"] == partitions

    asyncio.run(main())


def test_f18_two_survivors_of_five_go_on_with_the_newest_copy() -> None:
    """Of several survivors one may lack what another one has: that one's copy must win."""

    async def main() -> None:
        async with trio(5, cluster_secret=SECRET) as made:
            await fill(made)
            await in_step(made, 4)
            await made.cut(5, 1, 2, 3, 4)
            async with client(made, 4) as db:
                await db.table("default", "t").put("only-four", "1")
            await in_step(made, 4)
            for lost in (1, 2, 3):
                await made.crash(lost)
            with pytest.raises(Refused) as caught:
                await call(made, 4, [4, 5], b"")
            assert caught.value.code == "NODE_SILENT"
            await made.cut(5)
            plan, _ = await call(made, 5, [4, 5], b"")
            assert {row.at for row in plan} == {4, 5} or {row.at for row in plan} == {4}
            newest = [row for row in plan if row.at == 4]
            assert newest
            assert {row.action for row in newest} == {"elsewhere"}
            await force(made, 4, 4, 5)
            await force(made, 5, 4, 5)
            await writes(made, 4, 5)
            async with client(made, 5) as db:
                assert await db.table("default", "t").get("only-four") is not None

    asyncio.run(main())


def test_f18_what_is_not_lost_is_not_given_up() -> None:
    """Forcing a group whose majority lives makes two groups of one: every such order is refused."""

    async def main() -> None:
        async with trio(witnesses=(3,), cluster_secret=SECRET) as made:
            await fill(made)
            for at, voters, secret, code in (
                (1, [1], SECRET, "NODE_LIVES"),
                (2, [1], SECRET, "INVALID_ARGUMENT"),
                (2, [2, 7], SECRET, "INVALID_ARGUMENT"),
                (3, [3], SECRET, "NO_DATA"),
                (2, [2], "a guess, long enough to be one", "WRONG_SECRET"),
            ):
                with pytest.raises(KvorumError) as caught:
                    await call(made, at, voters, b"", secret)
                assert caught.value.code == code, (at, voters)
            # The other node with data cannot be seen, and lives: the leader is the proof.
            await made.cut(1, 2)
            await made.led()
            follower = 2 if made.leader() == 1 else 1
            with pytest.raises(KvorumError) as caught:
                await call(made, follower, [follower], b"")
            assert caught.value.code == "NODE_LIVES", "the witness answers"
            with pytest.raises(InvalidArgument, match="FORCE_MEMBERS"):
                await made.nodes[1].store.cluster.calls.call_at(1, FORCE_MEMBERS, [], WHY, b"", b"")
            for number in (1, 2, 3):
                for replica in made.nodes[number].store.manager.replicas():
                    assert replica.group.status().forced == 0

    asyncio.run(main())


async def not_served(work: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises((KvorumError, TimeoutError)):
        async with asyncio.timeout(2):
            await work


def test_f18_the_side_that_was_given_up_is_fenced() -> None:
    """Main and standby site: the main one comes back and must not serve what it had."""

    async def main() -> None:
        async with trio(witnesses=(3,), cluster_secret=SECRET) as made:
            await fill(made)
            await in_step(made, 2)
            await in_step(made, 1)
            main_site = made.nodes[1]
            await made.cut(1, 2, 3)  # the main site is out of reach, but lives
            await made.crash(3)
            plan = await force(made, 2, 2)
            assert {row.action for row in plan} == {"force"}
            await writes(made, 2)
            before = [r.group.commit_index for r in main_site.store.manager.replicas()]
            # Its own client: cut off like the node, it cannot go to the others instead.
            table = AsyncDatabase(main_site.backend, main_site.ports.rng).table("default", "t")
            async with asyncio.TaskGroup() as group:
                for work in (table.put("a", "old"), table.get("a")):
                    group.create_task(not_served(work))
            assert [r.group.commit_index for r in main_site.store.manager.replicas()] == before
            await made.cut(1)
            error = await asyncio.wait_for(asyncio.shield(main_site.fatal), 10)
            assert "only voters" in str(error)
            assert WHY in str(error)
            made.fatal.clear()
            await writes(made, 2)

    asyncio.run(main())
