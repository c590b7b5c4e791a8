"""What keeps a cluster as it should be: comparing with the map, leaders' places, ids of nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, KvorumError, Refused, Unavailable
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.verbs import Request
from kv.replica.manager import OLDEST
from kvorum.testing.simulation import loop as simloop
from procedures.engine.memory_store import Table
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import (
    NodeRow,
    NodeState,
    all_nodes,
    encode_node,
    enter,
    holders,
    node_key,
    put_node,
    take_in,
)
from procedures.master.map.partitions import Placed
from procedures.master.map.placement import preferred
from procedures.master.map.replica_methods import GroupView, MemberView
from procedures.master.members.reconcile import Reconciler, differences
from procedures.master.schedulers.balance import Balancer, moves
from procedures.verbs import ChangeReplicas, ReplicaStatus
from tests.procedures.lab import CrashingStore, crashed
from tests.procedures.nodes import World, Writer

ME = NodeId(3)


def placed(number: int, voters: Sequence[int], *, learners: Sequence[int] = (), first: Any = None):  # type: ignore[no-untyped-def]
    ids = tuple(map(NodeId, voters))
    descriptor = PartitionDescriptor(
        PartitionId(number), b"%d" % number, b"%d" % (number + 1), 1, ids, tuple(learners)
    )
    return Placed(descriptor, ids if first is None else tuple(first))


# ------------------------------------------------------------------ reconciling


def test_f4_what_a_node_misses_and_what_is_nobodys() -> None:
    """A replica that was made late would vote before it has what the others have."""
    rows = [
        placed(2, [1, 2, 3]),
        placed(3, [1, 2, 3, 4], first=[1, 2, 3]),
        placed(4, [1, 3, 4], first=[1, 2, 4]),
        placed(5, [1, 2]),
        placed(6, [1, 2], learners=[3]),
    ]
    own = [placed(n, [9]).descriptor for n in (META_PARTITION, 5, 7)]
    found = differences(ME, own, rows)
    assert [(d.id, d.voters) for d in found.missing] == [(2, ()), (3, ()), (4, ()), (6, ())]
    assert found.foreign == (5, 7)


class Own:
    """A node's replicas."""

    def __init__(self, *ids: int) -> None:
        self.there = {PartitionId(n): placed(n, [3]).descriptor for n in ids}
        self.refuse = 0

    def descriptors(self) -> list[PartitionDescriptor]:
        return list(self.there.values())

    async def create(self, descriptor: PartitionDescriptor) -> None:
        if self.refuse:
            self.refuse -= 1
            raise Unavailable("the disk is busy")
        self.there[descriptor.id] = descriptor

    async def drop(self, partition: PartitionId) -> None:
        del self.there[partition]

    def frozen(self) -> set[PartitionId]:
        return set()


def test_f4_nothing_is_dropped_on_a_read_that_failed() -> None:
    """A map that could not be read looked like an empty one, and every replica was removed."""

    async def main(_loop: simloop.SimLoop) -> None:
        own = Own(1, 2, 3)
        answers: list[Any] = []

        async def read() -> list[Placed]:
            answer = answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            rows: list[Placed] = answer
            return rows

        node = Reconciler(ME, own, read)
        all_, some = [placed(2, [3]), placed(3, [3])], [placed(2, [3])]
        damaged = Corruption("a row of the map is damaged")
        for answer in (all_, some, damaged, some, Unavailable("no leader"), some, all_, some):
            answers.append(answer)
            with contextlib.suppress(Corruption, Unavailable):
                await node.look()
            assert set(own.there) == {1, 2, 3}, "one look is not enough, nor are two with a gap"
        answers.append(some)
        await node.look()
        assert set(own.there) == {1, 2}
        for _ in range(5):
            answers.append([])
            await node.look()
        assert set(own.there) == {META_PARTITION}, "which holds the map"
        assert node.removed == 2

    simloop.run(main)


def test_f4_a_replica_made_after_the_list_is_no_stranger() -> None:
    """A table that was created while the map was read lost its partitions again."""

    async def main(_loop: simloop.SimLoop) -> None:
        own, tables = Own(2), 3

        async def read() -> list[Placed]:
            nonlocal tables
            tables += 1
            own.there[PartitionId(tables)] = placed(tables, [3]).descriptor
            return [placed(number, [3]) for number in range(2, tables)]  # a moment too early

        node = Reconciler(ME, own, read)
        for _ in range(5):
            await node.look()
        assert set(own.there) == set(range(2, tables + 1))
        assert node.removed == 0

    simloop.run(main)


def test_g10_one_replica_that_is_refused_holds_up_no_other() -> None:
    """A storage shard too many at a node left all partitions behind it without a replica there."""

    async def main(_loop: simloop.SimLoop) -> None:
        own = Own(1)
        moved = placed(4, [3])
        own.there[PartitionId(4)] = replace(moved.descriptor, shard="a")

        async def read() -> list[Placed]:
            return [placed(2, [3]), placed(3, [3]), moved]

        node = Reconciler(ME, own, read)
        own.refuse = 1
        with pytest.raises(Unavailable, match="busy"):
            await node.look()
        assert set(own.there) == {1, 3, 4}
        assert own.there[PartitionId(4)].shard == ""
        assert (node.made, node.looks) == (1, 0)
        await node.look()
        assert set(own.there) == {1, 2, 3, 4}
        assert (node.made, node.looks) == (2, 1)

    simloop.run(main)


def test_f4_a_hint_is_looked_into_soon() -> None:
    """A new table would have one replica less for seconds; or one failure would end the loop."""

    async def main(_loop: simloop.SimLoop) -> None:
        own, rows = Own(1), list[Placed]()

        async def read() -> list[Placed]:
            return list(rows)

        node = Reconciler(ME, own, read)
        running = asyncio.get_running_loop().create_task(node.run())
        await asyncio.sleep(1)
        rows += [placed(2, [1, 2, 3]), placed(3, [1, 2])]
        await asyncio.sleep(1)
        assert set(own.there) == {1}
        own.refuse = 1
        node.hurry()
        await asyncio.sleep(0.2)
        assert set(own.there) == {1}
        await asyncio.sleep(0.6)
        assert set(own.there) == {1, 2}, "what failed does not wait for the next round"
        assert own.there[PartitionId(2)].voters == (), "it gets a copy before it votes"
        rows.clear()
        node.hurry()
        await asyncio.sleep(0.2)
        assert set(own.there) == {1, 2}
        await asyncio.sleep(0.6)
        assert set(own.there) == {1}, "nor does what must be confirmed"
        running.cancel()

    simloop.run(main)


def test_f4_a_node_that_was_away_gets_what_was_made_meanwhile() -> None:
    """Two of three would be all there ever is of a table that was made while one was down."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        for node in world.nodes.values():
            await node.start()
        await world.until(lambda: world.leader(1))
        late = world.nodes[3]
        late.stop()
        row = placed(2, [1, 2, 3])
        for number in (1, 2):
            await world.nodes[number].manager.create(row.descriptor)
        await world.until(lambda: world.leader(2))

        async def read() -> list[Placed]:
            return [row]

        await late.start()
        await Reconciler(NodeId(3), late.manager, read).look()

        def has_a_copy() -> bool:
            replica = late.manager.replica(2)
            return replica is not None and late.id in replica.group.voters

        await world.until(has_a_copy)
        world.nodes[2].stop()  # nobody has a majority without the third one
        await world.until(lambda: world.leader(2))
        world.close()

    simloop.run(main)


def test_d12_outcomes_are_kept_while_a_replica_cannot_know_its_intents() -> None:
    """The record of a commit was collected while an intent that needs it lay in a partition whose
    replica here had not heard of it: a part of the transaction would be rolled back.
    """

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start()
        manager = world.nodes[1].manager
        await world.until(lambda: manager.oldest_lock() is None)
        world.nodes[2].stop()
        world.nodes[3].stop()
        await asyncio.sleep(10)
        assert manager.oldest_lock() == OLDEST
        await world.nodes[2].start()
        await world.until(lambda: manager.oldest_lock() is None)
        world.close()

    simloop.run(main)


# ------------------------------------------------------------------ leaders' places


def view(number: int, leader: int, lag: int = 0, **how: Any) -> GroupView:
    followers = {
        n: MemberView(lag, how.get("responsive", True), how.get("snapshot", False))
        for n in (1, 2, 3)
        if n != leader
    }
    return GroupView(
        PartitionId(number),
        how.get("role", "leader"),
        how.get("term", 1),
        leader,
        tuple(map(NodeId, (1, 2, 3))),
        (),
        how.get("settled", True),
        followers,
    )


def test_f5_leaders_are_spread_by_the_partitions_ids() -> None:
    """One node would lead everything, and the others' cores would idle."""
    voters = [NodeId(n) for n in (7, 2, 5)]
    counts = [preferred(PartitionId(n), voters) for n in range(9)]
    assert counts == [2, 5, 7] * 3


@pytest.mark.parametrize(
    ("how", "moved"),
    [
        ({}, True),
        ({"lag": 200}, True),
        ({"lag": 5_000}, False),
        ({"responsive": False}, False),
        ({"snapshot": True}, False),
        ({"settled": False}, False),
        ({"role": "follower"}, False),
    ],
)
def test_f5_leadership_never_goes_to_a_node_that_lags(how: dict[str, Any], moved: bool) -> None:
    """A leader without the newest entries holds every write back until it has them."""
    found = moves({NodeId(1): [view(4, 1, **how)], NodeId(2): [], NodeId(3): []})
    assert [tuple(move) for move in found] == ([(4, 1, 2)] if moved else [])
    assert moves({NodeId(2): [view(4, 2, **how)]}) == [], "it is where it belongs"


def test_f5_leadership_never_goes_to_a_node_that_the_master_does_not_reach() -> None:
    """It would go to and fro while one link is cut: who leads behind it hands it on."""
    assert moves({NodeId(1): [view(4, 1)], NodeId(3): []}) == []


def test_f5_leadership_never_goes_to_a_damaged_replica() -> None:
    """It hands over at once, again and again, and the master that is to rebuild it with it."""
    views = {NodeId(1): [view(4, 1), view(7, 1)], NodeId(2): [], NodeId(3): []}
    bad = frozenset({(NodeId(2), PartitionId(4)), (NodeId(3), PartitionId(7))})
    both = [tuple(move) for move in moves(views)]
    assert both == [(4, 1, 2), (7, 1, 2)]
    assert [tuple(move) for move in moves(views, damaged=bad)] == [(7, 1, 2)]


def test_f5_the_newest_leader_counts_and_the_meta_partition_moves_last() -> None:
    """A deposed leader that does not know it yet would be asked to move what it does not have."""
    views = {
        NodeId(1): [view(4, 1, term=3), view(META_PARTITION, 1)],
        NodeId(2): [view(4, 2, term=9)],
        NodeId(3): [view(5, 1)],
    }
    assert [tuple(move) for move in moves(views)] == [(META_PARTITION, 1, 2)]
    one, three = [view(META_PARTITION, 1), view(4, 1)], [view(7, 3)]
    views = {NodeId(1): one, NodeId(2): [], NodeId(3): three}
    assert [move.partition for move in moves(views)] == [4, 7, META_PARTITION]


@pytest.mark.slow
def test_f5_leaderships_return_one_by_one() -> None:
    """A node that came back would get all leaderships at once, before it has caught up."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(splits=[b"c", b"g", b"m", b"p", b"t"])
        balancer = Balancer(world.groups, lambda: [NodeId(1), NodeId(2), NodeId(3)])
        running = loop.create_task(balancer.run())

        def spread() -> bool:
            leaders = {p: world.leader(p) for p in range(1, 8)}
            return all(
                node is not None
                and node.id == preferred(PartitionId(p), [NodeId(1), NodeId(2), NodeId(3)])
                for p, node in leaders.items()
            )

        await world.until(spread, 120)
        made = balancer.transfers
        assert made >= 3
        for i in range(30):
            await world.put(2, b"a%d" % i, b"v")
        world.nodes[1].stop()
        await world.until(lambda: all(world.leader(p) for p in range(1, 8)))
        await asyncio.sleep(10)
        assert balancer.transfers == made, "nobody is asked to lead who is not there"
        await world.nodes[1].start()
        began = loop.time()
        await world.until(spread, 120)
        assert loop.time() - began > 4.0, "not before two looks in a row"
        running.cancel()
        world.close()

    simloop.run(main)


# ------------------------------------------------------------------ orders to groups


def test_f5_orders_find_the_leader_wherever_it_is() -> None:
    """An order to a node that does not lead any more would fail, or be obeyed by nobody."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start()
        leader = world.leader(2)
        assert leader is not None
        others = [NodeId(n) for n in (1, 2, 3) if n != leader.id]
        groups = Groups(world)
        await groups.change(PartitionId(2), "transfer", others[0], others[1:])
        await world.until(lambda: (now := world.leader(2)) is not None and now.id == others[0])
        await groups.change(PartitionId(2), "transfer", others[1], others[1:])
        await world.until(lambda: (now := world.leader(2)) is not None and now.id == others[1])
        found = await groups.leader_view(PartitionId(2), [leader.id, *others])
        assert found is not None
        assert found.leader == others[1]
        assert await groups.leader_view(PartitionId(9), [leader.id]) is None
        with pytest.raises(Refused, match="7"):
            await groups.change(PartitionId(2), "transfer", NodeId(7), others)
        for number in (1, 2, 3):
            if number != others[1]:
                world.nodes[number].stop()
        world.nodes[others[1]].stop()
        with pytest.raises(Unavailable, match="no leader"):
            await groups.change(PartitionId(2), "learner", NodeId(4), others)
        world.close()

    simloop.run(main)


@pytest.mark.parametrize(
    ("order", "args"),
    [
        (ChangeReplicas, [2, "learner"]),
        (ChangeReplicas, [2, "crown", 3]),
        (ChangeReplicas, [0, "learner", 3]),
        (ChangeReplicas, [2, "learner", 0]),
        (ChangeReplicas, ["2", "learner", 1]),
        (ReplicaStatus, [[0]]),
        (ReplicaStatus, [7]),
        (ReplicaStatus, []),
    ],
)
def test_c15_bad_orders_are_refused(order: type[Request], args: list[Any]) -> None:
    """A malformed order would reach consensus, or break the handler."""
    with pytest.raises(KvorumError) as caught:
        order.verb.check([1, 95, 0, *args])
    assert caught.value.code == "INVALID_ARGUMENT"
    ChangeReplicas.verb.check([1, 95, 0, 2, "promote", 3])
    ReplicaStatus.verb.check([1, 98, 0, None])


# ------------------------------------------------------------------ crashes of the master


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AddReplicas", "Decommission"])
def test_f4_a_master_that_dies_at_any_write_is_followed_by_one_that_goes_on(name: str) -> None:
    """A crash between an order and its record left a learner, or a node that votes twice."""

    async def scenario(loop: simloop.SimLoop, at: int, after: bool) -> int:
        world = World(loop)
        await world.start()
        if name == "AddReplicas":
            await world.join(4)
        target = 4 if name == "AddReplicas" else 3
        inner = world.lab.store
        world.lab.store = CrashingStore(inner, at, after=after)
        writes = 0
        try:
            record = await world.run(name, {"node": target})
            writes = world.lab.store.writes
        except BaseException as error:
            if not crashed(error):
                raise
            world.lab.store = inner
            async with world.lab.executor() as executor:
                record = None
                for live in executor.live():
                    record = await executor.wait(live.record.id, 60_000)
                    assert record.ended, record
            if record is None:
                record = await world.run(name, {"node": target})
        world.lab.store = inner
        assert record is not None
        expected = (1, 2, 3, 4) if name == "AddReplicas" else (1, 2)
        for partition in (1, 2):
            await world.until(lambda p=partition: world.leader(p))  # type: ignore[misc]
            leader = world.leader(partition)
            assert leader is not None
            replica = world.replica(leader.id, partition)
            assert replica is not None
            status = replica.group.status()
            assert (status.voters, status.learners) == (expected, ())
        assert [row.nodes for row in await world.map()] == [expected]
        state = (await world.rows())[target].state
        assert state is (NodeState.MEMBER if name == "AddReplicas" else NodeState.GONE)
        world.close()
        return writes

    total = simloop.run(lambda loop: scenario(loop, 0, False))
    assert total > 8
    for at in range(1, total + 1):
        for after in (False, True):
            simloop.run(lambda loop, at=at, after=after: scenario(loop, at, after))  # type: ignore[misc]


# ------------------------------------------------------------------ ids of nodes


class Alone:
    """A world without nodes."""

    class lab:
        class store:
            table = Table()


def test_f4_an_id_is_given_out_once() -> None:
    """A new node with the id of an old one would vote twice in one term."""

    async def main(_loop: simloop.SimLoop) -> None:
        Alone.lab.store.table = Table()
        t = Writer(Alone())  # type: ignore[arg-type]
        put_node(t, NodeRow(NodeId(1), "a:1", "1"))
        first = await take_in(t, "x:1", "1", founders=(1, 2, 3))
        assert (first.id, first.state) == (4, NodeState.JOINING), "node 3 may start yet"
        assert (await take_in(t, "x:1", "2", founders=(1, 2, 3))).id == 4, "it lost the reply"
        second = await take_in(t, "y:1", "1", founders=(1, 2, 3))
        assert second.id == 5
        put_node(t, NodeRow(second.id, "y:1", "1", NodeState.GONE))
        third = await take_in(t, "y:1", "1", founders=(1, 2, 3))
        assert third.id == 6, "a node that left does not come back under its id"
        put_node(t, NodeRow(third.id, "y:1", "1", NodeState.MEMBER))
        with pytest.raises(Refused, match="decommission it first") as caught:
            await take_in(t, "y:1", "1", founders=(1, 2, 3))
        assert caught.value.code == "ADDRESS_TAKEN"
        with pytest.raises(Refused) as caught:
            await enter(t, second.id, "z:1", "1")
        assert caught.value.code == "NODE_DECOMMISSIONED"
        assert (await enter(t, third.id, "z:1", "2")).state is NodeState.MEMBER
        assert (await enter(t, NodeId(2), "b:1", "1")).state is NodeState.MEMBER
        rows = await all_nodes(Alone.lab.store.table.reads())
        assert [(r.id, r.address) for r in rows] == [
            (1, "a:1"),
            (2, "b:1"),
            (4, "x:1"),
            (5, "y:1"),
            (6, "z:1"),
        ]
        assert holders(rows) == (1, 2, 6)
        counter = next(
            k for k in Alone.lab.store.table.keys(b"", b"") if b"node" in k and k[3] == 4
        )
        t.put(counter, b"\x00" * 12)
        with pytest.raises(Corruption, match="given out twice"):
            await take_in(t, "w:1", "1", founders=())

    simloop.run(main)


def test_f4_rows_of_the_first_release_are_members() -> None:
    """The nodes of a cluster that was upgraded would be strangers to it."""
    import msgspec

    from kv.base.checksum import seal
    from procedures.master.map.nodes import decode_node

    key = node_key(7)
    old = seal(key, msgspec.msgpack.encode((1, 7, "h:1", "0.1")))
    assert decode_node(key, old) == NodeRow(NodeId(7), "h:1", "0.1", NodeState.MEMBER)
    row = NodeRow(NodeId(7), "h:1", "0.1", NodeState.LEAVING)
    assert decode_node(key, encode_node(row)) == row
    with pytest.raises(Corruption):
        decode_node(key, encode_node(row)[:-1])
