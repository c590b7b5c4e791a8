"""Tables that want a number of replicas: where these go, and that they are still there when nodes
come and go.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.placement import Placement
from kvorum.testing.simulation import loop as simloop
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import NodeRow, NodeState, decode_node, encode_node, node_key
from procedures.master.map.partitions import Placed, decode_placed, map_key, put_row
from procedures.master.map.placement import (
    Candidate,
    candidates,
    lacks,
    one_more,
    preferred,
    spread,
)
from tests.procedures.nodes import World

SLACK = 6  # of 36 partitions: whether leaders are spread counts first


def members(machines: str, loads: str = "", silent: str = "") -> list[Candidate]:
    """Node 1, 2, … on the machines that the letters name, with so many replicas each, all led."""
    counts = [int(digit) for digit in loads] or [0] * len(machines)
    return [
        Candidate(NodeId(i), machine, count, count, str(i) not in silent)
        for i, (machine, count) in enumerate(zip(machines, counts, strict=True), 1)
    ]


@pytest.mark.parametrize(
    ("count", "replicas", "among", "expected"),
    [
        # one replica each: in turn, the fewest first
        (4, 1, members("ab"), [(1,), (2,), (1,), (2,)]),
        (3, 1, members("aa", "30"), [(2,), (2,), (2,)]),
        (1, 1, members("abc", "111"), [(1,)]),
        # two of one partition never on one machine while there is another
        (2, 2, members("aabb"), [(1, 3), (2, 4)]),
        (2, 2, members("aab", "009"), [(1, 3), (2, 3)]),
        (1, 3, members("aaab"), [(1, 2, 4)]),
        (1, 2, members("aaa"), [(1, 2)]),
        # fewer nodes than wanted: all there are
        (2, 3, members("ab"), [(1, 2), (1, 2)]),
        (1, 1, [], [()]),
        # who does not answer comes last, even if another machine would be better
        (2, 1, members("ab", silent="1"), [(2,), (2,)]),
        (1, 2, members("aab", silent="3"), [(1, 2)]),
        (1, 3, members("aab", silent="3"), [(1, 2, 3)]),
    ],
)
def test_f8_replicas_go_to_the_least_loaded_nodes_of_different_machines(
    count: int, replicas: int, among: list[Candidate], expected: list[tuple[int, ...]]
) -> None:
    """Two replicas on one machine die together; a node that has everything is the bottleneck."""
    assert spread(ids(count), replicas, among) == expected


def ids(count: int) -> list[PartitionId]:
    """Of the partitions of a first table."""
    return [PartitionId(id_) for id_ in range(2, 2 + count)]


@pytest.mark.parametrize(("nodes", "replicas"), [(2, 2), (4, 2), (6, 2), (9, 3), (6, 3), (8, 5)])
def test_f8_leaders_are_spread_too(nodes: int, replicas: int) -> None:
    """Where the same nodes come together again and again, the same one of them would lead."""
    found = spread(ids(36), replicas, members("a" * nodes))
    leads = Counter(preferred(id_, voters) for id_, voters in zip(ids(36), found, strict=True))
    counts = [leads[NodeId(node)] for node in range(1, nodes + 1)]
    assert max(counts) - min(counts) <= 2, counts
    copies = Counter(node for voters in found for node in voters)
    assert max(copies.values()) - min(copies.values()) <= 2, copies


@pytest.mark.slow
def test_f8_partitions_spread_evenly() -> None:
    """Of many partitions every store must get its share, whatever the order of the nodes."""
    rng = random.Random(5)
    for _ in range(200):
        machines = [rng.choice("abcd") for _ in range(rng.randint(1, 9))]
        replicas = rng.randint(1, len(machines))
        found = spread(ids(36), replicas, members("".join(machines)))
        assert all(len(set(nodes)) == replicas for nodes in found)
        for nodes in found:
            there = {machines[node - 1] for node in nodes}
            assert len(there) == min(replicas, len(set(machines)))
        counts = Counter(node for nodes in found for node in nodes)
        for machine in set(machines):
            mine = [counts[NodeId(i)] for i, m in enumerate(machines, 1) if m == machine]
            assert max(mine) - min(mine) <= SLACK, (machines, replicas, counts)


def test_f8_another_node_takes_the_place_of_one_that_leaves() -> None:
    """The replacement must not be where the partition is already, nor all at one node."""
    among = members("aabb", "5111")
    there = [[NodeId(n) for n in nodes] for nodes in ([1], [1], [3], [1, 2, 3, 4])]
    assert one_more([(nodes, Placement()) for nodes in there], among) == [3, 4, 2, None]


def row(*nodes: int, replicas: int = 0) -> Placed:
    ids = tuple(map(NodeId, nodes))
    descriptor = PartitionDescriptor(PartitionId(7), b"a", b"b", 1, ids)
    return Placed(descriptor, ids, replicas=replicas)


def test_f8_only_members_that_stay_and_keep_data_are_candidates() -> None:
    """A replica on a witness has no data, one on a node that leaves is moved at once."""
    nodes = [
        NodeRow(NodeId(1), "h1:7600", "1"),
        NodeRow(NodeId(2), "h1:7610", "1", NodeState.LEAVING),
        NodeRow(NodeId(3), "h2:7600", "1", witness=True),
        NodeRow(NodeId(4), "h2:7600", "1", NodeState.JOINING),
        NodeRow(NodeId(5), "h3:7600", "1", label="rack-9"),
        NodeRow(NodeId(6), "h4:7600", "1", NodeState.GONE),
    ]
    found = candidates(nodes, [row(1, 2), row(1)], lambda node: node != 1)
    assert found == [
        Candidate(NodeId(1), "h1", 2, 1, answers=False),
        Candidate(NodeId(5), "rack-9", 0, 0, answers=True),
    ]
    assert not lacks(row(1, 5, replicas=2), nodes)
    assert lacks(row(1, 2, replicas=2), nodes), "one of them leaves"
    assert lacks(row(1, 5, replicas=2), nodes, without=5)
    assert not lacks(row(1), nodes), "this table wants no number"


def test_f8_rows_keep_machine_and_number_and_old_rows_are_read() -> None:
    """A cluster of an earlier version would not start, or forget what its tables want."""
    plain = NodeRow(NodeId(1), "h1:7600", "1")
    for one in (
        plain,
        NodeRow(NodeId(1), "h1:7600", "1", label="rack-9"),
        NodeRow(NodeId(1), "h1:7600", "1", witness=True),
        NodeRow(NodeId(1), "[::1]:7600", "1", NodeState.JOINING, True, "rack-9"),
    ):
        assert decode_node(node_key(1), encode_node(one)) == one
    assert plain.machine == "h1"
    rows: dict[bytes, bytes] = {}

    class Txn:
        async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
            raise AssertionError

        def put(self, key: bytes, value: bytes) -> None:
            rows[key] = value

        def delete(self, key: bytes) -> None:
            raise AssertionError

    for placed in (row(1, 2), row(1, 2, replicas=2)):
        put_row(Txn(), placed)
        assert decode_placed(map_key(b"a"), rows[map_key(b"a")]) == placed
    with pytest.raises(Corruption):
        decode_placed(map_key(b"a"), rows[map_key(b"a")][:-1] + b"x")


def voters(world: World, partition: int) -> tuple[int, ...]:
    leader = world.leader(partition)
    assert leader is not None
    replica = world.replica(leader.id, partition)
    assert replica is not None
    return tuple(replica.group.status().voters)


def test_f8_a_node_that_joins_gets_only_what_has_too_few_replicas() -> None:
    """Every new node would get every partition, and the number that a table wants mean nothing."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, founders=2)
        await world.start(splits=[b"g", b"p"], places=[(1,), (2,), (1,)])
        await world.put(2, b"a", b"v")
        await world.join(3)
        assert (await world.run("AddReplicas", {"node": 3})).state.name == "SUCCESS"
        assert [placed.descriptor.voters for placed in await world.map()] == [(1,), (2,), (1,)]
        assert voters(world, 1) == (1, 2, 3), "the map itself is everywhere"
        assert (await world.rows())[3].state is NodeState.MEMBER
        asked = await world.run("AddReplicas", {"node": 3, "partitions": [2]})
        assert asked.state.name == "SUCCESS"
        assert voters(world, 2) == (1, 3), "who asks for it gets it"
        world.close()

    simloop.run(main)


def test_f8_places_that_were_left_open_are_filled_once() -> None:
    """A table that wants three replicas on two nodes gets the third when a node joins, and no
    fourth.
    """

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, founders=2)
        await world.start(places=[(1, 2, 3)[:2]])
        placed = (await world.map())[0]._replace(replicas=3)
        world.place(placed)
        for number in (3, 4):
            await world.join(number)
        async with world.lab.executor() as executor:
            both = [await executor.submit(world.submission(number)) for number in (3, 4)]
            for id_ in both:
                assert (await executor.wait(id_, 60_000)).state.name == "SUCCESS"
        (placed,) = await world.map()
        assert len(placed.nodes) == 3
        assert placed.nodes == voters(world, 2)
        world.close()

    simloop.run(main)


@pytest.mark.parametrize("name", ["Decommission", "RemoveReplicas"])
def test_f8_what_a_leaving_node_had_is_moved_first(name: str) -> None:
    """The only copy would be thrown away with the node."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(splits=[b"g", b"p"], places=[(3,), (3,), (1,)])
        await world.put(2, b"a", b"kept")
        record = await world.run(name, {"node": 3})
        assert record.state.name == "SUCCESS", record.error
        assert [p.descriptor.voters for p in await world.map()] == [(2,), (1,), (1,)]
        leader = world.leader(2)
        assert leader is not None
        rows = leader.engine.scan("cur", b"", b"")
        assert any(key.endswith(b"a") and b"kept" in value for key, value in rows)
        assert world.replica(3, 2) is None
        await world.put(2, b"b", b"v")
        world.close()

    simloop.run(main)


def test_f8_the_last_copy_at_a_silent_node_is_not_given_up() -> None:
    """Nobody could fetch it: the procedure would run for ever, or forget acknowledged writes."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(places=[(3,)])
        world.nodes[3].stop()
        record = await world.run("Decommission", {"node": 3})
        assert record.error is not None
        assert record.error.code == "LAST_COPY"
        assert (await world.rows())[3].state is NodeState.MEMBER
        world.close()

    simloop.run(main)


def test_f8_an_order_passes_by_a_node_that_has_no_replica() -> None:
    """Whoever led yesterday may not even have the partition today."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop)
        await world.start(places=[(1,)])
        partition, nobody = PartitionId(2), [NodeId(2), NodeId(3)]
        await world.groups.change(partition, "learner", NodeId(3), [*nobody, NodeId(1)])
        with pytest.raises(Unavailable, match="no leader that answers"):
            await Groups(world).change(partition, "learner", NodeId(3), nobody)
        world.close()

    simloop.run(main)
