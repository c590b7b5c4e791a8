"""What tables survive, and where they are led, as far as it is decided without a cluster."""

from __future__ import annotations

import itertools
import random

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, Refused
from kv.base.ids import NodeId, PartitionId
from kv.base.placement import SURVIVE, Placement, canonical_leaders, is_preferred, votes
from kvorum.master.balancing import wanted_leaders
from procedures.master.balancing.model import LEVELS, level_of
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.partitions import Placed, decode_placed, map_key, put_row
from procedures.master.map.picture import Loads, picture, wanted_by
from procedures.master.map.placement import (
    candidates,
    checked_seats,
    home,
    one_more,
    preferred_nodes,
    seats,
    spread,
)
from procedures.master.map.survival import breaking, fate, lost_nodes


def site(number: int, place: str, *, witness: bool = False, tags: tuple[str, ...] = ()) -> NodeRow:
    """A member at DC/RACK, on a machine of its own."""
    dc, _, rack = place.partition("/")
    made = NodeRow(NodeId(number), f"h{number}:7600", "1", witness=witness, dc=dc, rack=rack)
    return NodeRow(made.id, made.address, "1", made.state, witness, "", dc, rack, tags)


def sites(*places: str) -> list[NodeRow]:
    """Nodes 1, 2, …; a place that ends in '*' has a witness."""
    return [
        site(number, place.rstrip("*"), witness=place.endswith("*"))
        for number, place in enumerate(places, 1)
    ]


def part(
    number: int,
    voters: tuple[int, ...],
    witnesses: tuple[int, ...] = (),
    shard: str = "",
    **more: object,
) -> Placed:
    ids, some = tuple(map(NodeId, voters)), tuple(map(NodeId, witnesses))
    d = PartitionDescriptor(PartitionId(number), b"a", b"b", 1, ids, (), some, shard)
    return Placed(d, ids, some)._replace(**more)  # type: ignore[arg-type]


EARLIER = [  # rows as the version before goals wrote them
    (part(5, (1, 2)), "980105c40161c401620192010290920102b3cb72d5"),
    (part(5, (1, 2), replicas=3), "9b0105c40161c40162019201029092010290900381a9ae14"),
    (
        part(5, (1, 2), (2,), bytes_max=1 << 20),
        "9f0105c40161c4016201920102909201029102910200909000ce001000001495282d",
    ),
    (
        part(5, (1, 2), replicas=2, tags=("eu",), shard="hot"),
        "dc00100105c40161c4016201920102909201029090029091a265750000a3686f749df8af86",
    ),
]


@pytest.mark.parametrize(
    ("places", "survive", "replicas", "expected"),
    [
        # three domains: three copies; more where there is room for them
        ("a b c", "datacenter", 3, (3, ())),
        ("a a b b c", "datacenter", 5, (5, ())),
        ("a b c", "datacenter", 5, (3, ())),
        ("a a a a b c", "datacenter", 5, (3, ())),  # else three of five in one
        ("a/1 a/2 a/3", "rack", 3, (3, ())),
        ("a/1 b/1 c/1", "rack", 3, (3, ())),  # three racks, of one name
        ("a a a", "server", 3, (3, ())),
        # two and a witness in a third one
        ("a b c*", "datacenter", 3, (2, (3,))),
        ("a a b b c*", "datacenter", 5, (4, (5,))),
        ("a a b c*", "datacenter", 5, (2, (4,))),
        ("a a c*", "server", 3, (2, (3,))),
        ("a b c* d*", "datacenter", 3, (2, (3, 4))),
        ("a b c d*", "datacenter", 3, (3, ())),  # a copy is worth more than a witness
        # no goal: what was said
        ("a", "", 3, (3, ())),
        ("a", "", 0, (0, ())),
    ],
)
def test_i12_a_goal_says_how_many_copies_and_which_witness(
    places: str, survive: str, replicas: int, expected: tuple[int, tuple[int, ...]]
) -> None:
    """A majority in one place is lost with it; a third copy at home survives nothing."""
    found = seats(Placement(replicas, survive=survive), sites(*places.split()))
    assert (found.data, found.witnesses, found.short) == (*expected, "")


@pytest.mark.parametrize(
    ("places", "survive"),
    [
        ("a a a", "datacenter"),
        ("a b", "datacenter"),
        ("a b a*", "datacenter"),  # a witness beside a copy falls with it
        ("a c* d*", "datacenter"),  # two witnesses have no data
        ("a/1 a/1 a/2", "rack"),
        ("a b", "server"),
        ("a*", "server"),
    ],
)
def test_i12_what_the_members_cannot_give_is_refused(places: str, survive: str) -> None:
    """A table that promises what it does not have is worse than an error."""
    wanted = Placement(replicas=3, survive=survive)
    with pytest.raises(Refused, match=f"loss of a {survive} takes copies in three") as refused:
        checked_seats(wanted, sites(*places.split()))
    assert refused.value.code == "CANNOT_SURVIVE"


def test_i12_only_members_that_carry_the_tags_count() -> None:
    """A place where no replica may be is no place."""
    nodes = [site(n, dc, tags=("ssd",) * (dc != "c")) for n, dc in enumerate("abc", 1)]
    assert seats(Placement(3, survive="datacenter"), nodes).short == ""
    assert "in 2 of them (a, b)" in seats(Placement(3, ("ssd",), survive="datacenter"), nodes).short
    leaving = NodeRow(NodeId(3), "h3:1", "1", NodeState.LEAVING, dc="c")
    assert seats(Placement(3, survive="datacenter"), [*nodes[:2], leaving]).short


def test_i12_whatever_is_placed_for_a_goal_survives_it() -> None:
    """The promise itself, over clusters of all shapes: no single domain has half of the votes."""
    rng, given = random.Random(3), 0
    for _ in range(400):
        nodes = [
            site(n, f"{rng.choice('abcd')}/{rng.choice('12')}", witness=rng.random() < 0.2)
            for n in range(1, rng.randint(3, 12))
        ]
        survive, replicas = rng.choice(SURVIVE), rng.choice([3, 5, 7])
        leaders = rng.choice(["", "dc=a", "dc=b,rack=1"])
        there = seats(Placement(replicas, survive=survive), nodes)
        if there.short:
            continue
        level = level_of(survive)
        assert level is not None
        among = candidates(nodes, [], lambda _node: True)
        ids = [PartitionId(n) for n in range(2, 8)]
        found = spread(ids, there.data, among, level, leaders)
        rows = [
            part(number, (*voters, *there.witnesses[:1]), there.witnesses[:1])
            for number, voters in enumerate(found)
        ]
        assert breaking(rows, nodes)[survive] == [], (nodes, survive, replicas, rows)
        liked = preferred_nodes([part(1, (1,), leaders=leaders)], nodes)[leaders]
        assert all(liked.intersection(row.descriptor.voters) for row in rows if liked)
        given += 1
    assert given > 100


def test_i12_copies_are_where_the_table_is_led_as_far_as_its_goal_allows() -> None:
    """Every write waits for a majority: across an ocean if two of three are there."""
    nodes = sites("us/1", "us/2", "us/3", "eu/1", "eu/2", "eu/3", "ap/1", "ap/2")
    among = candidates(nodes, [], lambda _node: True)
    one = [PartitionId(2)]
    assert spread(one, 3, among, "rack", "dc=eu") == [(4, 5, 6)]
    (found,) = spread(one, 3, among, "dc", "dc=eu")
    assert [node for node in found if node in (4, 5, 6)] == [4]
    (five,) = spread(one, 5, among, "dc", "dc=eu")
    assert len([node for node in five if node in (4, 5, 6)]) == 2, "a majority is one hop away"
    wanted = Placement(3, survive="rack", leaders="dc=eu")
    assert one_more([((NodeId(4), NodeId(1)), wanted)], among) == [5]


def test_i12_leaders_are_preferred_by_label() -> None:
    """Who says where to lead a table is not asked for lists of nodes."""
    assert canonical_leaders(" rack=r7 ,dc=eu") == "dc=eu,rack=r7"
    assert canonical_leaders(" ") == ""
    assert is_preferred("dc=eu", ("eu", "r1", "s1"))
    assert not is_preferred("dc=eu,rack=r7", ("eu", "r1", "s1"))
    assert not is_preferred("", ("", "", ""))
    for text in ("eu", "dc=", "row=1", "dc=eu,dc=us", "dc=a b"):
        with pytest.raises(ValueError, match=r"."):
            canonical_leaders(text)


def test_i12_the_home_of_a_leadership_is_where_its_table_wants_it() -> None:
    """A preference that the balancer of homes does not know is undone within seconds."""
    voters = [NodeId(n) for n in (1, 2, 3)]
    for number in range(6):
        id_ = PartitionId(number)
        assert home(id_, voters, liked=[NodeId(2)]) == 2
        assert home(id_, voters, NodeId(1), liked=[NodeId(2)]) == 2
        assert home(id_, voters, NodeId(3), liked=[NodeId(2), NodeId(3)]) == 3
        assert home(id_, voters, avoid=[NodeId(2)], liked=[NodeId(2)]) != 2, "it is slow"
        assert home(id_, voters, liked=[NodeId(9)]) == home(id_, voters)
    nodes = sites("us", "eu", "ap")
    rows = [
        part(5, (1, 2, 3), leads=NodeId(1)),
        part(6, (1, 2, 3), leads=NodeId(1), leaders="dc=eu"),
        part(7, (1, 3), leads=NodeId(3), leaders="dc=eu"),
        part(8, (1, 2, 3)),
    ]
    assert wanted_leaders(rows, nodes) == {5: 1, 6: 2, 7: 3}
    assert wanted_leaders(rows, nodes, [NodeId(2)])[PartitionId(6)] in (1, 3)


def test_i12_the_master_knows_goals_from_the_map() -> None:
    """The numbers follow the cluster: a place more, and a copy takes the witness's vote."""
    rows = [part(5, (1, 2, 3), (3,), replicas=3, survive="datacenter", leaders="dc=b")]
    two = sites("a", "b", "c*")
    assert wanted_by(rows, two) == ({5: 2}, {5: (3,)})
    assert wanted_by(rows, [*two, site(4, "d")]) == ({5: 3}, {5: ()})
    assert wanted_by([part(5, (1, 2))], two) == ({5: 0}, {})
    answers = {NodeId(1): [], NodeId(2): []}
    view = picture(two, rows, answers, Loads()).partitions[PartitionId(5)]
    assert (view.survive, view.preferred, view.nodes) == ("dc", {2}, (1, 2))


def test_i12_rows_of_the_map_keep_goals_and_old_ones_are_read() -> None:
    """A restart would forget what was promised."""
    rows: dict[bytes, bytes] = {}

    class Txn:
        async def scan(self, start: bytes, end: bytes, *, limit: int) -> object:
            raise AssertionError

        def put(self, key: bytes, value: bytes) -> None:
            rows[key] = value

        def delete(self, key: bytes) -> None:
            raise AssertionError

    for placed in (
        part(5, (1, 2)),
        part(5, (1, 2), survive="rack"),
        part(5, (1, 2), leaders="dc=eu", replicas=3),
        part(5, (1, 2, 3), (3,), survive="datacenter", leaders="dc=eu", bytes_max=1 << 20),
    ):
        put_row(Txn(), placed)  # type: ignore[arg-type]
        assert decode_placed(map_key(b"a"), rows[map_key(b"a")]) == placed
        assert placed.wanting(placed.wants) == placed
    key = map_key(b"a")
    for placed, row in EARLIER:
        assert decode_placed(key, bytes.fromhex(row)) == placed
        put_row(Txn(), placed)  # type: ignore[arg-type]
        assert rows[key].hex() == row, "a node of the version before reads what has no goal"


@pytest.mark.parametrize(
    ("voters", "witnesses", "gone", "expected"),
    [
        ((1, 2, 3), (), (3,), "serves"),
        ((1, 2, 3), (), (2, 3), "stops"),
        ((1, 2, 3), (), (1, 2, 3), "lost"),
        ((1, 2, 3), (3,), (1,), "serves"),
        ((1, 2, 3), (3,), (1, 2), "lost"),  # the witness has no rows
        ((1, 2, 3), (3,), (2, 3), "stops"),
        ((1,), (), (2,), "serves"),
        ((1, 2), (), (2,), "stops"),
    ],
)
def test_f16_what_becomes_of_a_partition(
    voters: tuple[int, ...], witnesses: tuple[int, ...], gone: tuple[int, ...], expected: str
) -> None:
    """Who plans for a loss must not be told that a witness is a copy."""
    d = part(5, voters, witnesses).descriptor
    assert fate(d, frozenset(map(NodeId, gone))) == expected


def test_f16_what_is_lost_is_said_by_labels_or_nodes() -> None:
    """A typing error is no site without tables."""
    nodes = sites("eu/1", "eu/2", "us/1")
    assert lost_nodes(["dc=eu"], nodes) == {1, 2}
    assert lost_nodes(["dc=eu,rack=2", "node=3"], nodes) == {2, 3}
    assert lost_nodes(["rack=1"], nodes) == {1, 3}
    for text, why in (
        ("dc=asia", "no node of the cluster is at"),
        ("node=9", "no node of the cluster is at"),
        ("eu", "is neither node=ID nor labels"),
        ("", "is neither node=ID nor labels"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            lost_nodes([text], nodes)


def test_f16_the_domains_whose_loss_stops_a_table_are_named() -> None:
    """One partition that is not as its table wants is enough."""
    nodes = sites("eu/1", "eu/1", "eu/2", "us/1", "ap/1")
    rows = [part(5, (1, 4, 5)), part(6, (1, 2, 4))]
    assert breaking(rows[:1], nodes) == {"server": [], "rack": [], "datacenter": []}
    assert breaking(rows, nodes) == {"server": [], "rack": ["eu/1"], "datacenter": ["eu"]}


def test_i12_votes_are_odd_and_at_least_three() -> None:
    """Of four votes as many may be lost as of three."""
    assert [votes("rack", n) for n in range(7)] == [3, 3, 3, 3, 5, 5, 7]
    assert [votes("", n) for n in range(3)] == [0, 1, 2]
    levels = [level_of(survive) for survive in SURVIVE]
    assert levels == list(reversed(LEVELS))
    assert level_of("") is None
    assert len(set(itertools.chain(SURVIVE, LEVELS))) == 4
