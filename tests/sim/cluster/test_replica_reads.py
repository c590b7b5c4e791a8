"""Reads of the past at replicas, in virtual time: stories that a random schedule seldom tells."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.timestamps import physical_ms
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.processes import Cluster
from tests.sim.cluster.mutations import broken
from tests.sim.cluster.plan import Plan
from tests.sim.cluster.test_hybrid import NS, as_client, led_by, made, played


def a_snapshot_is_read_while_a_version_below_it_is_on_its_way() -> None:
    """The leader has a version in its log that nobody else has; a reader asks for a snapshot of a
    moment later, at a replica. What it gets must be what it gets when the version is there.
    """

    async def story(cluster: Cluster) -> None:
        await as_client(cluster, made)
        for meta in (True, False):
            await led_by(cluster, 1, meta=meta)
        ready: list[bool] = []
        cut: list[bool] = []
        at: list[int] = []
        seen: list[bytes | None] = []

        async def get(db: AsyncDatabase, at: int) -> bytes | None:
            row = await db.table(NS, "t").get("a", at=at)
            return None if row is None else row.value

        async def writes(db: AsyncDatabase) -> int:
            await db.table(NS, "t").get("a")  # it knows its way, and need not ask for it later
            ready.append(True)
            await cluster.until(lambda: bool(cut), 20, "links are cut")
            return await db.table(NS, "t").put("a", "new")

        async def reads(db: AsyncDatabase) -> None:
            while physical_ms(moment := await db.timestamp()) >= reader.clock.now_ms():  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # a new oracle is ahead of time: replicas do not answer
            await get(db, moment)
            ready.append(True)
            await cluster.until(lambda: bool(cut), 20, "links are cut")
            await asyncio.sleep(0.03)  # the leader has the version in its log by now
            at.append(await db.timestamp())
            await asyncio.sleep(0.005)  # replicas answer what is over
            seen.append(await get(db, at[0]))

        writer, reader = cluster.clients[100], cluster.clients[101]
        writing = writer.life.spawn(writes(writer.database()))
        reading = reader.life.spawn(reads(reader.database()))
        await cluster.until(lambda: len(ready) == 2, 20, "both are ready")
        cluster.network.cut |= (links := {(1, 2), (1, 3)})
        cut.append(True)
        await asyncio.sleep(0.2)  # less than an election
        assert not writing.done()
        cluster.network.cut -= links
        await cluster.until(lambda: writing.done() and reading.done(), 20, "both are done")
        reading.result()
        assert writing.result() < at[0]
        assert seen == [b"new"] == [await as_client(cluster, lambda db: get(db, at[0]), 2)]

    played(Plan(workload="stale", replica_age_ms=1, nodes=3), story)


def test_b1_what_is_on_its_way_is_waited_for() -> None:
    """A mark that names too much of the log lets a replica answer without a version."""
    a_snapshot_is_read_while_a_version_below_it_is_on_its_way()


def test_b1_a_build_whose_marks_come_too_early_is_rejected() -> None:
    """The test before would prove nothing if it passed where marks wait for nothing."""
    with broken("marks-too-early"), pytest.raises(AssertionError, match="old"):
        a_snapshot_is_read_while_a_version_below_it_is_on_its_way()
