"""A node that missed the log of a split is rebuilt, both halves of it (H2)."""

from __future__ import annotations

import asyncio

import pytest

from kvorum.cluster.cluster import CONSENSUS
from tests.kit.waiting import until
from tests.kv.replica.support import rows_of
from tests.kvorum.cluster.test_joining import SECRET
from tests.kvorum.cluster.test_members_change import tables_of
from tests.kvorum.cluster.three import Trio, client, trio

pytestmark = pytest.mark.slow


async def _fill(made: Trio, table: object, names: str) -> None:
    """So much that the logs are cut, twice over."""
    for round_ in range(3):
        for i in range(15):
            for name in names:
                key = f"{name}{i:03}"
                await table.put(key, f"{round_}" + " " * 60_000)  # type: ignore[attr-defined]
        for number in made.nodes:
            await made.nodes[number].store.manager.truncate()


def test_h2_a_node_that_missed_the_log_of_a_split_gets_both_halves() -> None:
    """Its replica would keep rows that are another partition's now; or it would begin the new one
    with nothing, and take that one's log for all there is.
    """

    async def main() -> None:
        async with trio() as made, client(made) as db:
            await db.create_table("default", "t")
            table = db.table("default", "t")
            await table.put("a", "below")
            await table.put("z", "above")
            (left,) = tables_of(made, 1)
            await made.stop(3)
            for number in made.nodes:
                made.nodes[number].store.manager.logs._keep = 5
            await asyncio.sleep(CONSENSUS.election_min_ms / 1000 + 0.2)
            right = (await db.split(left, at="m"))["new"]
            await _fill(made, table, "b")  # of the new one, the log has everything
            await table.put("y", "later")
            await made.start(3)
            manager = made.nodes[3].store.manager
            await until(lambda: manager.replica(right) is not None)
            for partition in (left, right):
                leader = made.nodes[await made.led(partition)].store
                theirs, mine = leader.manager.replica(partition), manager.replica(partition)
                assert theirs is not None
                assert mine is not None
                await until(lambda mine=mine, theirs=theirs: mine.state.index == theirs.state.index)  # type: ignore[misc]
                assert mine.descriptor.end == theirs.descriptor.end
                assert mine.descriptor.epoch == theirs.descriptor.epoch
                theirs_rows = rows_of(leader.state, theirs.descriptor)
                assert rows_of(made.nodes[3].store.state, theirs.descriptor) == theirs_rows
            assert manager.counters.snapshots_installed >= 2, "one for each half"

    asyncio.run(main())


def test_h2_a_node_that_joins_after_a_split_begins_with_snapshots() -> None:
    """The old log begins with rows of keys that are another partition's: taken for what it is not,
    it would write them there.
    """

    async def main() -> None:
        async with trio(later=1, cluster_secret=SECRET) as made, client(made) as db:
            await db.create_table("default", "t")
            table = db.table("default", "t")
            for key in "abyz":
                await table.put(key, "first")
            (left,) = tables_of(made, 1)
            right = (await db.split(left, at="m"))["new"]
            for key in "abyz":
                await table.put(key, "second")
            await made.start(4)
            manager = made.nodes[4].store.manager
            await until(lambda: {left, right} <= {d.id for d in manager.descriptors()})
            for partition in (left, right):
                leader = made.nodes[await made.led(partition)].store
                theirs, mine = leader.manager.replica(partition), manager.replica(partition)
                assert theirs is not None
                assert mine is not None
                await until(lambda mine=mine, theirs=theirs: mine.state.index == theirs.state.index)  # type: ignore[misc]
                theirs_rows = rows_of(leader.state, theirs.descriptor)
                assert rows_of(made.nodes[4].store.state, theirs.descriptor) == theirs_rows
            for partition in (left, right):
                began = made.nodes[4].store.host.group(partition)
                assert began is not None
                assert began.status().first_index > 2, "its log begins behind a snapshot"

    asyncio.run(main())
