"""Whole clusters with hybrid clocks, in virtual time: what the oracle's way does not have."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.ids import META_PARTITION, PartitionId
from kv.base.limits import CLOCK_FENCE_MS
from kv.base.timestamps import compose
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.life import LivesLoop, run
from kvorum.testing.simulation.processes import Cluster
from kvorum.testing.simulation.trace import Trace
from tests.sim.cluster.cli import replay_command
from tests.sim.cluster.nemesis import _transfer
from tests.sim.cluster.plan import Plan, draw_hybrid
from tests.sim.cluster.world import run_seed
from tso.hybrid import HybridClock

NS = "default"
KEYS = ("a", "m", "t")


def played(plan: Plan, story: Callable[[Cluster], Awaitable[None]]) -> None:
    """Tell a story of a cluster that has started."""

    async def main(loop: LivesLoop) -> None:
        cluster = Cluster(loop, 1, plan, Trace(loop.time))
        await cluster.start()
        await story(cluster)
        assert not cluster.violations

    run(main, 1)


async def as_client(
    cluster: Cluster, work: Callable[[AsyncDatabase], Awaitable[Any]], number: int = 0
) -> Any:
    """What comes of it in the process of a client."""
    process = list(cluster.clients.values())[number]

    async def begun() -> Any:
        return await work(process.database())

    task = process.life.spawn(begun())
    await cluster.until(task.done, 60, "the client has an answer")
    return task.result()


async def made(db: AsyncDatabase) -> None:
    await db.create_table(NS, "t", split_keys=KEYS[1:])
    await written(db, "old")


async def written(db: AsyncDatabase, value: str) -> None:
    """One transaction over three partitions."""

    async def all_of_them(t: Any) -> None:
        for key in KEYS:
            await t.table(NS, "t").get(key)
            await t.table(NS, "t").put(key, value)

    await db.run(all_of_them)


async def led_by(cluster: Cluster, number: int, *, meta: bool = False) -> None:
    """All partitions of the tables that `made` makes, or the meta partition."""

    def placed() -> bool:
        others = [node for node in cluster.nodes.values() if node.number != number]
        given = [
            (node, one) for node in others for one in node.led() if (one == META_PARTITION) == meta
        ]
        for node, partition in given:
            assert node.node is not None
            assert node.life is not None
            replica = node.node.store.manager.replica(PartitionId(partition))
            assert replica is not None
            node.life.enter(_transfer, replica, number)
        return not given and len(cluster.nodes[number].led()) >= (1 if meta else len(KEYS))

    await cluster.until(placed, 20, f"node {number} leads")


async def _read(db: AsyncDatabase) -> list[bytes]:
    return [row.value for row in await db.table(NS, "t").multi_get(KEYS) if row is not None]


@pytest.mark.few(1)
@pytest.mark.parametrize("clock", ["hybrid", "oracle"])
def test_r1_transactions_go_on_without_the_oracle(clock: str) -> None:
    """The meta partition serves nobody: with hybrid clocks transactions over several partitions
    commit all the same, with an oracle none does.
    """

    async def story(cluster: Cluster) -> None:
        await as_client(cluster, made)
        process = cluster.clients[100]

        async def before_and_after() -> str:
            db = process.database()
            await written(db, "before")
            for node in cluster.nodes.values():
                assert node.node is not None
                meta = node.node.store.manager.replica(META_PARTITION)
                assert meta is not None
                meta.serving = lambda: False  # type: ignore[method-assign]
                meta.leads = lambda: False  # type: ignore[method-assign]
            try:
                for number in range(3):
                    await written(db, f"after {number}")
            except KvorumError as error:
                return error.code
            assert await _read(db) == [b"after 2"] * 3
            return "done"

        task = process.life.spawn(before_and_after())
        await cluster.until(task.done, 60, "the client has an answer")
        assert (task.result() == "done") == (clock == "hybrid")

    played(Plan(clock=clock, skews=(60, -60, 0), budget_ms=3_000), story)


def test_r1_a_node_whose_clock_is_off_is_fenced() -> None:
    """Its timestamps would be refused, or lie below what was read: it says why it is not ready and
    lets others lead, and comes back when its clock is right again.
    """

    async def story(cluster: Cluster) -> None:
        await as_client(cluster, made)
        for off_ms in (5_000, -5_000):
            victim = next(node for node in cluster.nodes.values() if node.led())
            victim.clock.skew_ms = off_ms
            node = victim.node
            assert node is not None
            await cluster.until(lambda victim=victim: not victim.led(), 10, "others lead")
            why = node.not_ready()
            assert why is not None
            assert "clock" in why
            await as_client(cluster, lambda db: written(db, "meanwhile"))
            victim.clock.skew_ms = 0
            await cluster.until(lambda node=node: node.not_ready() is None, 10, "it is back")
            assert node.store.clocks.fenced
        assert await as_client(cluster, _read) == [b"meanwhile"] * 3

    played(Plan(clock="hybrid"), story)


def test_r1_a_session_token_carries_time() -> None:
    """Who is given a token sees what its giver saw, by whatever clocks; a token of no clock of this
    cluster is refused, and spoils nothing.
    """

    async def story(cluster: Cluster) -> None:
        await as_client(cluster, made)
        for number in range(10):
            told: list[str] = []

            async def giver(
                db: AsyncDatabase, number: int = number, told: list[str] = told
            ) -> None:
                await written(db, f"round {number}")
                told.append(await db.session_token())

            async def taker(db: AsyncDatabase, told: list[str] = told) -> list[bytes]:
                await db.resume_session(told[0])
                return await _read(db)

            await as_client(cluster, giver)
            found = await as_client(cluster, taker, 1)
            assert found == [f"round {number}".encode()] * 3

        async def liar(db: AsyncDatabase) -> list[bytes]:
            with pytest.raises(InvalidArgument, match="future"):
                await db.resume_session(1 << 62)
            await written(db, "after the lie")
            return await _read(db)

        assert await as_client(cluster, liar) == [b"after the lie"] * 3

    played(Plan(clock="hybrid", skews=(95, -95, 0)), story)


def a_snapshot_is_read_across_a_change_of_leader() -> None:
    """At a timestamp of the old leader's faster clock, before the change and after a write. The old
    leader dies at once after it, so that nobody hears of that timestamp.
    """

    async def story(cluster: Cluster) -> None:
        await as_client(cluster, made)
        await led_by(cluster, 3, meta=True)
        await led_by(cluster, 1)
        await asyncio.sleep(1)
        read_at: list[int] = []
        wrote: list[int] = []
        changed = False

        async def read(db: AsyncDatabase) -> bytes | None:
            found = await db.table(NS, "t").get("a", at=read_at[0])
            return None if found is None else found.value

        async def reads(db: AsyncDatabase) -> bytes | None:
            await db.table(NS, "t").get("a")  # it has heard the fast clock now
            t = await db.transaction()
            read_at.append(t.start_ts + compose(200))  # as another node's could be
            await t.abort()
            return await read(db)

        async def writes(db: AsyncDatabase) -> None:
            await db.table(NS, "t").get("a")  # it knows its way, and need not ask for it later
            ready.append(True)
            while not changed:  # noqa: ASYNC110 - it must hear of nobody
                await asyncio.sleep(0.001)
            wrote.append(await db.table(NS, "t").put("a", "new"))

        ready: list[bool] = []
        writer = cluster.clients[101]
        writing = writer.life.spawn(writes(writer.database()))
        await cluster.until(lambda: bool(ready), 20, "the writer is ready")
        assert await as_client(cluster, reads) == b"old"
        await led_by(cluster, 2)
        cluster.nodes[1].kill(power=False)
        await asyncio.sleep(0.02)  # until the writer knows it
        changed = True
        await cluster.until(writing.done, 20, "it is written")
        writing.result()
        assert wrote[0] > read_at[0]
        assert await as_client(cluster, read, 2) == b"old"

    played(Plan(clock="hybrid", skews=(95, -95, 0)), story)


def test_r1_a_snapshot_that_was_read_stays() -> None:
    """A new leader with a slower clock could commit below what the one before it read at; and its
    clients wait for the pause that it makes.
    """
    a_snapshot_is_read_across_a_change_of_leader()


def test_r1_a_build_that_forgets_the_floor_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test before would prove nothing if it passed without the pause of a new leader."""

    def at_once(self: HybridClock, top_ts: int = 0) -> int:
        self.look()
        self.at = max(self.at, top_ts)
        return self.at

    monkeypatch.setattr(HybridClock, "floor", at_once)
    with pytest.raises(AssertionError):
        a_snapshot_is_read_across_a_change_of_leader()


def test_r1_timestamps_of_all_nodes_are_different() -> None:
    """A transaction is named by its start: two of one name would share a record."""

    async def story(cluster: Cluster) -> None:
        await as_client(cluster, made)
        taken: list[int] = []

        async def many(db: AsyncDatabase) -> None:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(db.timestamp()) for _ in range(200)]
            taken.extend(task.result() for task in asked)

        for number in range(3):
            await as_client(cluster, many, number)
        assert len(set(taken)) == len(taken) == 600

    played(Plan(clock="hybrid"), story)


def test_r1_plans_have_clocks_that_serve() -> None:
    """Seed 97 once had a node that was far from both others: rightly fenced, and so never whole. In
    every plan each node is near a majority, for as long as a run lasts.
    """
    lasts_s, half_way_ms = 60, 4
    for seed in range(1, 1_001):
        plan = draw_hybrid(random.Random(seed))
        for mine in range(plan.nodes):
            near = 0
            for other in range(plan.nodes):
                drift_ms = abs(plan.rates[mine] - plan.rates[other]) * lasts_s * 1_000
                apart_ms = abs(plan.skews[mine] - plan.skews[other])
                near += apart_ms + drift_ms + half_way_ms <= CLOCK_FENCE_MS
            assert 2 * near > plan.nodes, (seed, plan.skews, plan.rates)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, 11))
def test_r1_sessions_see_causes_before_effects(seed: int) -> None:
    """Any schedule of faults, with clocks apart: what sessions saw is causally consistent, whole
    transactions are whole, and a healed cluster recovers.
    """
    outcome = run_seed(seed, clock="hybrid")
    assert outcome.violation is None, f"{outcome.violation}; {replay_command(seed, clock='hybrid')}"
