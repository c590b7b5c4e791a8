"""The procedures of moving: the master dies before and after every write of theirs, and the next
one goes on. One outcome each, whatever the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kv.base.ids import NodeId
from kv.base.keys import table_range
from kvorum.testing.simulation import loop as simloop
from procedures.engine.submission import Submission
from procedures.master.map.nodes import NodeState
from procedures.master.map.picture import Loads
from procedures.master.map.replica_methods import GroupView
from procedures.master.members import crash, rebuilding, relocating
from procedures.master.members.crash import SERVER_CRASH, CrashServices
from procedures.master.members.membership import MembershipServices
from procedures.master.members.rebuilding import REBUILD_REPLICA
from procedures.master.members.relocating import MOVE_REPLICA, TRANSFER_LEADER
from tests.procedures.lab import CrashingStore, crashed
from tests.procedures.nodes import TABLE, World

PARTITION = 2
START = table_range(TABLE)[0]


class FourNodes(World):
    """Three nodes with a partition of a table that wants three replicas, and one beside them."""

    async def begin(self) -> None:
        services = MembershipServices(self, self.groups)
        relocating.register(self.lab.types, services)
        rebuilding.register(self.lab.types, services)
        crash.register(self.lab.types, CrashServices(services, Loads, self.dead))
        await self.start()
        (placed,) = [p for p in await self.map() if p.descriptor.id == PARTITION]
        self.place(placed._replace(replicas=3))
        await self.join(4)
        await self.run("AddReplicas", {"node": 4})
        await self.put(PARTITION, b"a", b"v")

    def dead(self) -> frozenset[NodeId]:
        return frozenset(n for n, node in self.nodes.items() if not node.up)  # type: ignore[misc]

    async def life(self, name: str, args: Mapping[str, Any], store: CrashingStore) -> Any:
        """One master: submit, wait. None: it died."""
        try:
            async with self.lab.executor(store) as executor:
                sub = Submission(name, args, "tester", "the one")
                record = await executor.wait(await executor.submit(sub), 60_000)
                assert record.ended, f"stuck: {record}"
                return record
        except BaseException as error:
            if not crashed(error):
                raise
            return None

    def view(self) -> GroupView:
        leader = self.leader(PARTITION)
        assert leader is not None
        replica = self.replica(leader.id, PARTITION)
        assert replica is not None
        return GroupView.of(replica.group.status())


def lives(name: str, args: Mapping[str, Any], at: int, *, after: bool, kill: int = 0) -> int:
    """Run it with a crash at this write; check its end; how many writes there were."""

    async def main(loop: simloop.SimLoop) -> int:
        world = FourNodes(loop)
        await world.begin()
        if kill:
            world.nodes[kill].stop()
            await asyncio.sleep(3)
        store = CrashingStore(world.lab.store, at, after=after)
        record = await world.life(name, args, store)
        writes = store.writes
        if record is None:
            record = await world.life(name, args, CrashingStore(world.lab.store))
        assert record.state.name == "SUCCESS", (record.state, record.error, record.history)
        await world.until(lambda: world.leader(PARTITION))
        (placed,) = [p for p in await world.map() if p.descriptor.id == PARTITION]
        view = world.view()
        assert view.voters == placed.descriptor.voters
        assert placed.descriptor.learners == () == view.learners
        if name == TRANSFER_LEADER:
            assert view.leader == placed.leads == args["to"]
            assert view.voters == (1, 2, 3)
        elif name == REBUILD_REPLICA:
            assert view.voters == (1, 2, 3)
            assert placed.first == (), "an empty replica would begin with a vote"
        else:
            gone = args.get("from", kill)
            assert view.voters == tuple(sorted({1, 2, 3, 4} - {gone}))
            assert kill or world.replica(gone, PARTITION) is None, "its data are still there"
            assert gone != placed.leads
        await world.put(PARTITION, b"b", b"w")
        world.close()
        return writes

    found: int = simloop.run(main)
    return found


MOVES: list[tuple[str, Mapping[str, Any], int]] = [
    (MOVE_REPLICA, {"partition": PARTITION, "from": 1, "to": 4}, 0),
    (MOVE_REPLICA, {"partition": PARTITION, "from": 3, "to": 4}, 0),
    (TRANSFER_LEADER, {"partition": PARTITION, "to": 2}, 0),
    (TRANSFER_LEADER, {"partition": PARTITION, "to": 3}, 0),
    (SERVER_CRASH, {"node": 3}, 3),
    (REBUILD_REPLICA, {"partition": PARTITION, "start": START, "node": 3}, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "args", "kill"), MOVES)
def test_f5_a_master_that_dies_at_any_write_changes_nothing_about_the_end(
    name: str, args: Mapping[str, Any], kill: int
) -> None:
    """A replica too many or too few, a learner that nobody promotes, a row that is not true."""
    writes = lives(name, args, 0, after=False, kill=kill)
    assert writes >= 3
    for at in range(1, writes + 1):
        for after in (False, True) if not kill else (at % 2 == 0,):  # a dead node costs time-outs
            lives(name, args, at, after=after, kill=kill)


def test_f6_the_node_comes_back_before_anything_was_done() -> None:
    """What has not been rebuilt stays where it is."""

    async def main(loop: simloop.SimLoop) -> None:
        world = FourNodes(loop)
        await world.begin()
        record = await world.run(SERVER_CRASH, {"node": 3})
        assert record.state.name == "SUCCESS"
        assert world.view().voters == (1, 2, 3)
        world.close()

    simloop.run(main)


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        (
            MOVE_REPLICA,
            {"partition": 2, "from": 1, "to": 2},
            "has a replica of partition 2 already",
        ),
        (MOVE_REPLICA, {"partition": 2, "from": 4, "to": 4}, "has no replica of partition 2"),
        (MOVE_REPLICA, {"partition": 2, "from": 1, "to": 9}, "there is no node 9"),
        (MOVE_REPLICA, {"partition": 9, "from": 1, "to": 4}, "there is no partition 9"),
        (MOVE_REPLICA, {"partition": 1, "from": 1, "to": 4}, "every member"),
        (TRANSFER_LEADER, {"partition": 2, "to": 4}, "node 4 has no replica"),
        (SERVER_CRASH, {"node": 9}, "there is no node 9"),
    ],
)
def test_f5_what_cannot_be_is_refused_with_its_reason(
    name: str, args: Mapping[str, Any], why: str
) -> None:
    """And nothing is changed."""

    async def main(loop: simloop.SimLoop) -> None:
        world = FourNodes(loop)
        await world.begin()
        before = await world.map()
        record = await world.run(name, args)
        assert record.state.name in ("FAILED", "ROLLED_BACK")
        assert record.error is not None
        assert why in record.error.message
        assert await world.map() == before
        world.close()

    simloop.run(main)


def test_f5_a_full_node_is_refused() -> None:
    """Its disk would stop it, and every partition that it leads."""

    async def main(loop: simloop.SimLoop) -> None:
        world = FourNodes(loop)
        services = MembershipServices(world, world.groups)
        relocating.register(
            world.lab.types, services, lambda node, partition: f"node {node} has no room"
        )
        crash.register(world.lab.types, CrashServices(services, Loads, world.dead))
        await World.start(world)
        await world.join(4)
        world.put_node(replace((await world.rows())[4], state=NodeState.MEMBER))
        record = await world.run(MOVE_REPLICA, {"partition": 2, "from": 1, "to": 4})
        assert record.error is not None
        assert record.error.message == "node 4 has no room"
        world.close()

    simloop.run(main)
