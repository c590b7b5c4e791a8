"""Replicas move while the partitions serve, and the map follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.placement import Placement
from kvorum.testing.simulation import loop as simloop
from procedures.engine.submission import Submission
from procedures.master.map.nodes import NodeState
from procedures.master.map.partitions import (
    COUNTER_PARTITION,
    FIRST_PARTITION,
    Place,
    hold_new_ones,
)
from procedures.master.members import moves
from procedures.verbs import CREATE_PARTITION, DROP_PARTITION
from sqlproxy.catalog import catalog
from sqlproxy.ddl import ddl
from sqlproxy.ddl.steps import DdlServices
from tests.procedures.lab import LaggingStore
from tests.procedures.nodes import World
from txn.results import ScanPage


def test_f4_a_node_is_added_everywhere() -> None:
    """A new node would vote without the data, or not be in every partition."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(splits=[b"g", b"p"])
        for i in range(40):
            await world.put(2, b"a%d" % i, b"v")
        for node in world.nodes.values():
            await node.manager.truncate()  # the new one cannot have it from the log
        await world.join(4)
        record = await world.run("AddReplicas", {"node": 4})
        assert record.state.name == "SUCCESS", record.error
        for partition in (1, 2, 3, 4):
            leader = world.leader(partition)
            assert leader is not None
            replica = world.replica(leader.id, partition)
            assert replica is not None
            assert replica.group.status().voters == (1, 2, 3, 4)
        assert all(placed.descriptor.voters == (1, 2, 3, 4) for placed in await world.map())
        assert all(placed.descriptor.learners == () for placed in await world.map())
        assert all(placed.first == (1, 2, 3) for placed in await world.map())
        assert (await world.rows())[4].state is NodeState.MEMBER
        mine = world.replica(4, 2)
        theirs = world.leader(2)
        assert mine is not None
        assert theirs is not None
        other = world.replica(theirs.id, 2)
        assert other is not None
        await world.until(lambda: mine.state.index == other.state.index)
        rows = world.nodes[4].engine.scan("cur", *_range(2, world))
        assert rows == theirs.engine.scan("cur", *_range(2, world))
        assert len(rows) == 40
        assert world.nodes[4].manager.counters.snapshots_installed >= 1
        world.close()

    simloop.run(main)


def test_f4_a_first_voter_that_comes_back_does_not_elect_itself() -> None:
    """Whoever began a partition alone was, when it was added again with an empty log, a majority of
    itself: it answered reads with nothing, and acknowledged writes that nobody else had.
    """

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, founders=1)
        await world.start()
        for number in (2, 3):
            await world.join(number)
            assert (await world.run("AddReplicas", {"node": number})).state.name == "SUCCESS"
        await world.put(2, b"a", b"1")
        assert (await world.run("RemoveReplicas", {"node": 1})).state.name == "SUCCESS"
        assert all(placed.first == () for placed in await world.map())
        await world.put(2, b"a", b"2")
        seen: list[tuple[int, ...]] = []

        async def watch() -> None:
            while True:
                replica = world.replica(1, 2)
                if replica is not None:
                    seen.append(replica.group.status().voters)
                    assert not replica.serving() or len(seen[-1]) == 3
                await asyncio.sleep(0.0005)

        watching = asyncio.get_running_loop().create_task(watch())
        assert (await world.run("AddReplicas", {"node": 1})).state.name == "SUCCESS"
        assert not watching.done(), watching.exception()
        watching.cancel()
        assert seen[0] == ()
        assert (1,) not in seen
        assert seen[-1] == (1, 2, 3)
        world.close()

    simloop.run(main)


def _range(partition: int, world: World) -> tuple[bytes, bytes]:
    replica = world.replica(1, partition) or world.replica(4, partition)
    assert replica is not None
    return replica.descriptor.start, replica.descriptor.end


@pytest.mark.slow
def test_f4_every_node_is_replaced_under_load() -> None:
    """A rolling replacement of all nodes lost an acknowledged write, or stopped the writers."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(splits=[b"m"])
        acked: list[bytes] = []
        stop = False

        async def write() -> None:
            number = 0
            while not stop:
                key = b"a%06d" % number
                await world.put(2, key, b"v%d" % number)
                acked.append(key)
                number += 1
                await asyncio.sleep(0.005)

        writer = loop.create_task(write())
        for old, new in ((1, 4), (2, 5), (3, 6)):
            await world.join(new)
            assert (await world.run("AddReplicas", {"node": new})).state.name == "SUCCESS"
            record = await world.run("Decommission", {"node": old})
            assert record.state.name == "SUCCESS", record.error
            world.nodes[old].stop()
            for node in world.nodes.values():
                if node.up:
                    await node.manager.truncate()
        stop = True
        await writer
        assert len(acked) > 100
        assert all(placed.descriptor.voters == (4, 5, 6) for placed in await world.map())
        rows = await world.rows()
        assert [rows[i].state.name for i in range(1, 7)] == ["GONE"] * 3 + ["MEMBER"] * 3
        await world.until(lambda: world.leader(2))
        leader = world.leader(2)
        assert leader is not None
        stored = {key[4:] for key, _ in leader.engine.scan("cur", *_range(2, world))}
        assert set(acked) <= stored
        world.close()

    simloop.run(main)


def test_f4_a_dead_node_is_replaced() -> None:
    """A node that never comes back would hold the log of every partition for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(splits=[b"m"])
        await world.put(2, b"a", b"v")
        world.nodes[2].stop()
        await world.join(4)
        assert (await world.run("AddReplicas", {"node": 4})).state.name == "SUCCESS"
        assert (await world.run("Decommission", {"node": 2})).state.name == "SUCCESS"
        assert all(row.nodes == (1, 3, 4) for row in await world.map())
        world.nodes[1].stop()  # the two that are left are a majority
        await world.until(lambda: all(world.leader(p) for p in (1, 2, 3)))
        await world.put(2, b"b", b"v")
        world.close()

    simloop.run(main)


def test_f4_a_node_alone_becomes_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who began with one node had to begin anew with three; or a large move was cut short."""
    monkeypatch.setattr(moves, "MEMBERSHIP_MOVES_MAX", 2)

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, founders=1)
        await world.start(tables=3, splits=[b"m"])
        for number in (2, 3):
            await world.join(number)
            record = await world.run("AddReplicas", {"node": number})
            assert record.state.name == "SUCCESS", record.error
        assert [row.nodes for row in await world.map()] == [(1, 2, 3)] * 6
        world.nodes[1].stop()
        await world.until(lambda: all(world.leader(p) for p in range(1, 8)))
        world.close()

    simloop.run(main)


def test_f12_a_learner_that_lags_is_not_promoted() -> None:
    """A voter without the data would let one more failure stop every write."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start()
        for i in range(20):
            await world.put(2, b"a%d" % i, b"v")
        for node in world.nodes.values():
            await node.manager.truncate()
        await world.join(4)
        world.cut |= {frozenset((4, i)) for i in (1, 2, 3)}
        adding = loop.create_task(world.run("AddReplicas", {"node": 4}))
        await asyncio.sleep(5)
        leader = world.leader(2)
        assert leader is not None
        replica = world.replica(leader.id, 2)
        assert replica is not None
        status = replica.group.status()
        assert (status.voters, status.learners) == ((1, 2, 3), (4,))
        assert next(p for p in await world.map() if p.descriptor.id == 2).descriptor.learners == (
            4,
        )
        await world.put(2, b"still", b"served")
        world.cut.clear()
        assert (await adding).state.name == "SUCCESS"
        assert replica.group.status().voters == (1, 2, 3, 4)
        world.close()

    simloop.run(main)


def test_f12_an_aborted_addition_leaves_nothing() -> None:
    """A learner that nobody wants any more would hold the log back for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start()
        await world.join(4)
        world.cut |= {frozenset((4, i)) for i in (1, 2, 3)}
        async with world.lab.executor() as executor:
            id_ = await executor.submit(Submission("AddReplicas", {"node": 4}, "tester"))
            await asyncio.sleep(3)
            await executor.abort(id_, "it was a mistake")
            record = await executor.wait(id_, 60_000)
        assert record.state.name in ("ROLLED_BACK", "FAILED"), record
        for partition in (1, 2):
            leader = world.leader(partition)
            assert leader is not None
            replica = world.replica(leader.id, partition)
            assert replica is not None
            assert replica.group.status().learners == ()
        assert all(placed.nodes == (1, 2, 3) for placed in await world.map())
        assert world.replica(4, 2) is None
        world.close()

    simloop.run(main)


@pytest.mark.parametrize(
    ("name", "node", "code"),
    [
        ("AddReplicas", 9, "NODE_NOT_FOUND"),
        ("Decommission", 9, "NODE_NOT_FOUND"),
        ("Decommission", 1, "LAST_NODE"),
        ("RemoveReplicas", 1, "LAST_NODE"),
    ],
)
def test_f4_what_cannot_be_is_refused(name: str, node: int, code: str) -> None:
    """The last copy of everything was removed, or a procedure for nobody ran for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, founders=1)
        await world.start()
        record = await world.run(name, {"node": node})
        assert record.error is not None
        assert record.error.code == code
        assert all(placed.nodes == (1,) for placed in await world.map())
        assert (await world.rows())[1].state is NodeState.MEMBER
        world.close()

    simloop.run(main)


def test_f4_a_decommissioned_node_stays_away() -> None:
    """Its id would be given to another node, whose votes would count twice."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start()
        assert (await world.run("Decommission", {"node": 3})).state.name == "SUCCESS"
        again = await world.run("Decommission", {"node": 3})
        assert again.state.name == "SUCCESS"
        record = await world.run("AddReplicas", {"node": 3})
        assert record.error is not None
        assert record.error.code == "NODE_DECOMMISSIONED"
        assert world.replica(3, 2) is None, "its data went with it"
        world.close()

    simloop.run(main)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["AddReplicas", "Decommission"])
def test_f4_tables_that_are_made_meanwhile_get_the_right_nodes(name: str, seed: int) -> None:
    """A table made while a node came lacked it for ever, or kept one that had left."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(tables=0)
        ddl.register(world.lab.types, DdlServices(Spread(world), lambda _ns, _name: None))
        await world.run("CreateNamespace", {"namespace": "shop"})
        target = 4 if name == "AddReplicas" else 3
        if name == "AddReplicas":
            await world.join(4)
        store = LaggingStore(world.lab.store, world.lab.rng)
        async with world.lab.executor(store) as executor:
            moving = await executor.submit(Submission(name, {"node": target}, "tester"))
            made = []
            for i in range(12):
                args = {"namespace": "shop", "name": f"t{i}", "split_keys": [b"m"]}
                made.append(await executor.submit(Submission("CreateTable", args, "tester")))
                await asyncio.sleep(world.lab.rng.random() * 0.1)
            for id_ in (moving, *made):
                record = await executor.wait(id_, 60_000)
                assert record.state.name == "SUCCESS", record.error
        voters = (1, 2, 3, 4) if name == "AddReplicas" else (1, 2)
        rows = await world.map()
        assert len(rows) == 2 * 12
        assert [row.descriptor.voters for row in rows] == [voters] * len(rows)
        for row in rows:
            await world.until(lambda row=row: world.leader(row.descriptor.id))  # type: ignore[misc]
            leader = world.leader(row.descriptor.id)
            assert leader is not None
            replica = world.replica(leader.id, row.descriptor.id)
            assert replica is not None
            assert replica.group.status().voters == voters
        world.close()

    simloop.run(main, seed=seed)


class Spread:
    """New partitions go where the meta partition has its voters."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def places(
        self,
        t: object,
        ids: Sequence[PartitionId],
        wanted: Placement,
    ) -> list[Place]:
        leader = self._world.leader(1)
        replica = None if leader is None else self._world.replica(leader.id, 1)
        if replica is None:
            raise Unavailable("the meta partition has no leader now")
        return [Place(tuple(map(NodeId, replica.group.status().voters)))] * len(ids)

    async def create(
        self, descriptors: Sequence[PartitionDescriptor], *, late: bool = False
    ) -> None:
        for node in descriptors[0].voters:
            rows = [descriptor.to_wire() for descriptor in descriptors]
            await self._world.call_at(node, CREATE_PARTITION, rows)

    async def close(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        return

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        for node in descriptors[0].voters:
            await self._world.call_at(node, DROP_PARTITION, [d.id for d in descriptors])


def test_f4_the_end_of_a_move_and_the_making_of_a_table_exclude_each_other() -> None:
    """A table whose nodes were chosen just before the last look would never be looked at."""

    class Txn:
        def __init__(self) -> None:
            self.rows: dict[bytes, bytes] = {}

        async def get(self, key: bytes) -> tuple[bytes | None, int]:
            return self.rows.get(key), 1

        async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
            raise AssertionError("not needed")

        def put(self, key: bytes, value: bytes) -> None:
            self.rows[key] = value

        def delete(self, key: bytes) -> None:
            raise AssertionError("not needed")

        start_ts = 1

        def check(self, key: bytes, version: int) -> None:
            raise AssertionError("not needed")

    async def main(_loop: simloop.SimLoop) -> None:
        t = Txn()
        await hold_new_ones(t)
        assert await catalog.next_id(t, COUNTER_PARTITION, count=5, first=FIRST_PARTITION) == 2
        assert len(t.rows) == 1, "both write one row, so one of two at once conflicts"
        before = dict(t.rows)
        await hold_new_ones(t)
        assert t.rows == before, "no id is lost or given twice"

    simloop.run(main)
