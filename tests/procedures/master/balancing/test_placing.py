"""The placement, rule by rule (F6, H5, H6, I12, I14)."""

from __future__ import annotations

from typing import Any

import pytest

from procedures.master.balancing.placing import Placer, beside
from tests.procedures.master.balancing.pictures import node, part, picture

SSD = frozenset({"ssd"})


def fixes(
    nodes: list[Any], parts: list[Any], wanted: int, **more: Any
) -> list[tuple[int, int | None, int | None, str]]:
    placer = Placer(picture(nodes, parts), {p.id: wanted for p in parts}, **more)
    return [(f.partition, f.source, f.target, f.rule) for f in placer.fixes()]


def test_f6_a_dead_nodes_replica_is_rebuilt_elsewhere() -> None:
    """Two of three copies survive no further failure."""
    nodes, parts = [node(1), node(2), node(4)], [part(7, [1, 2, 3])]
    assert fixes(nodes, parts, 3, dead={3}) == [(7, 3, 4, "dead")]
    assert fixes(nodes, parts, 3) == [], "silent, but not for long enough"


def test_f6_without_a_majority_nothing_can_be_changed() -> None:
    """An order to a group that cannot commit it would hang; which it is, is said."""
    placer = Placer(picture([node(1), node(4)], [part(7, [1, 2, 3])]), {7: 3}, dead={2, 3})
    assert list(placer.fixes()) == []
    assert "only 1 of its 3 voters answer" in placer.refusals.kept[0].reason


@pytest.mark.parametrize(
    ("voters", "expected"),
    [
        ([1, 2, 3], []),  # two of two survive as little as two of three
        (
            [1, 2, 3, 4],
            [(7, 4, None, "dead")],
        ),  # three survive one more
        ([1, 2, 3, 4, 5], []),
    ],
)
def test_f6_where_nobody_can_stand_in_it_leaves_only_if_that_makes_the_group_stronger(
    voters: list[int], expected: list[Any]
) -> None:
    """Leaving has a price: who comes back fetches everything anew."""
    living = [node(n) for n in voters[:-1]]
    assert fixes(living, [part(7, voters)], 0, dead={voters[-1]}) == expected


def test_f6_who_comes_back_to_a_group_that_is_full_again_leaves() -> None:
    """It came back before its replica was taken out: one too many."""
    nodes = [node(n) for n in (1, 2, 3, 4)]
    (found,) = fixes(nodes, [part(7, [1, 2, 3, 4], leader=4)], 3)
    assert found[2:] == (None, "many")
    assert found[1] != 4, "the leader stays, of equals"


def test_f6_who_comes_back_to_a_table_that_is_everywhere_gets_it_again() -> None:
    """It would stay empty for ever."""
    nodes = [node(n) for n in (1, 2, 3, 4)]
    assert fixes(nodes, [part(7, [1, 2, 3])], 0) == [(7, None, 4, "few")]


def test_i14_a_replica_outside_its_tags_moves() -> None:
    """Isolation is what the tag was set for."""
    nodes = [node(1), node(2, tags=SSD), node(3, tags=SSD), node(4, tags=SSD)]
    parts = [part(7, [1, 2, 3], tags=SSD)]
    assert fixes(nodes, parts, 3) == [(7, 1, 4, "tags")]


def test_i14_none_remains_outside_even_if_there_are_too_few_inside() -> None:
    """Two copies inside are what such a cluster can have; the last one never goes."""
    nodes = [node(1), node(2, tags=SSD), node(3, tags=SSD), node(4)]
    assert fixes(nodes, [part(7, [1, 2, 3], tags=SSD)], 3) == [(7, 1, None, "tags")]
    outside = [node(1), node(2), node(3)]
    placer = Placer(picture(outside, [part(7, [1, 2, 3], tags=SSD)]), {7: 3})
    assert list(placer.fixes()) == []
    assert "it stays until one joins" in placer.refusals.kept[0].reason


def test_i14_a_table_that_is_everywhere_is_so_among_the_nodes_with_its_tags() -> None:
    """A tag without a number of replicas."""
    nodes = [node(1, tags=SSD), node(2, tags=SSD), node(3)]
    assert fixes(nodes, [part(7, [1], tags=SSD)], 0) == [(7, None, 2, "few")]
    assert fixes(nodes, [part(7, [1, 2], tags=SSD)], 0) == []


@pytest.mark.parametrize("level", ["dc", "rack", "server"])
def test_i12_two_replicas_that_fail_together_are_parted(level: Any) -> None:
    """One machine, rack or datacenter would take a majority along."""
    domains = {
        "dc": [("a", "1", "s1"), ("a", "2", "s2"), ("b", "1", "s3"), ("c", "1", "s4")],
        "rack": [("a", "1", "s1"), ("a", "1", "s2"), ("a", "2", "s3"), ("a", "3", "s4")],
        "server": [("a", "1", "s1"), ("a", "1", "s1"), ("a", "1", "s3"), ("a", "1", "s4")],
    }[level]
    nodes = [node(n, domains=names) for n, names in enumerate(domains, 1)]
    (found,) = fixes(nodes, [part(7, [1, 2, 3])], 3, level=level)
    assert found[0] == 7
    assert found[1] in (1, 2)
    assert found[2:] == (4, "domain")
    assert fixes(nodes, [part(7, [1, 3, 4])], 3, level=level) == []
    assert fixes(nodes[:3], [part(7, [1, 2, 3])], 3, level=level) == [], "it cannot be avoided"


def test_i12_the_same_rack_number_in_two_datacenters_is_two_racks() -> None:
    """Or a correct placement would be torn apart for ever."""
    nodes = [node(n, domains=(dc, "1", f"s{n}")) for n, dc in enumerate("abcd", 1)]
    assert fixes(nodes, [part(7, [1, 2, 3])], 3, level="rack") == []


def test_h5_one_half_of_a_hot_partition_leaves_all_nodes_of_the_other() -> None:
    """Both halves on the same nodes: the hot node stays as hot as it was."""
    nodes = [node(n) for n in range(1, 7)]
    state = picture(nodes, [part(7, [1, 2, 3], leader=1, writes=5)])
    placer = Placer(state, {7: 3}, apart={7: (1, 2, 3)})
    moves = []
    while (fix := placer.fix(state.partitions[7])) is not None:  # type: ignore[index]
        moves.append((fix.source, fix.rule))
    assert moves == [(1, "apart"), (2, "apart"), (3, "apart")]
    assert set(state.partitions[7].nodes) == {4, 5, 6}  # type: ignore[index]


def test_h6_a_fragment_moves_next_to_its_neighbour() -> None:
    """Only replicas that are on the same nodes can be merged."""
    state = picture([node(n) for n in range(1, 6)], [])
    assert beside(state, part(7, [1, 2, 3]), part(8, [2, 4, 5])) == [(1, 4), (3, 5)]
    assert beside(state, part(7, [2, 4, 5]), part(8, [2, 4, 5])) == []


def test_full_nodes_and_busy_partitions_are_left_alone() -> None:
    """A move onto a full disk stops that node; one under a split, the split."""
    nodes = [node(1), node(2), node(4, base=(0, 95, 0), limit=(9, 0.9, 9e9))]
    placer = Placer(picture(nodes, [part(7, [1, 2, 3], size=1)]), {7: 3}, dead={3})
    assert list(placer.fixes()) == []
    assert "no other may have its replica" in placer.refusals.kept[0].reason
    nodes[2] = node(4)
    placer = Placer(picture(nodes, [part(7, [1, 2, 3], held="it splits")]), {7: 3}, dead={3})
    assert list(placer.fixes()) == []
    assert placer.refusals.kept[0].reason == "it splits"


SITES = {1: "eu", 2: "eu", 3: "us", 4: "ap", 5: "us"}


def sited(numbers: list[int]) -> list[Any]:
    """Nodes in datacenters, each a rack and a server of its own."""
    return [node(n, domains=(SITES[n], f"r{n}", f"s{n}")) for n in numbers]


def test_i12_a_tables_goal_is_its_own_level() -> None:
    """The cluster keeps servers apart; this table was promised datacenters."""
    parts = [part(7, [1, 2, 3], survive="dc"), part(8, [1, 2, 3])]
    assert fixes(sited([1, 2, 3, 4]), parts, 3) == [(7, 1, 4, "domain")]


def test_i12_replicas_go_where_their_table_is_led_but_no_nearer_than_its_goal_allows() -> None:
    """Writes would cross an ocean for nothing; or all copies would be in one place."""
    eu = frozenset({1, 2})
    nodes = sited([1, 2, 3, 4, 5])
    assert fixes(nodes, [part(7, [3, 4], preferred=eu)], 2) == [(7, 3, 1, "leaders")]
    assert fixes(nodes, [part(7, [1, 4], preferred=eu)], 2) == [(7, 4, 2, "leaders")]
    assert fixes(nodes, [part(7, [1, 2], preferred=eu)], 2) == []
    assert fixes(nodes, [part(7, [1, 3, 4], preferred=eu, survive="dc")], 3) == []
    assert fixes(nodes, [part(7, [3, 4], preferred=eu, survive="dc")], 2) == [(7, 3, 1, "leaders")]
    # one too many: the one that is far away goes, of those that are as far apart
    assert fixes(nodes, [part(7, [1, 2, 3], preferred=eu)], 2) == [(7, 3, None, "many")]


def test_f17_a_witness_votes_while_copies_are_in_two_places() -> None:
    """Two copies alone stop when either is lost; a witness that is not needed raises the majority
    that every write waits for.
    """
    nodes, two = sited([1, 3]), part(7, [1, 3], survive="dc")
    with_it = part(7, [1, 3], survive="dc", witnesses=(9,))
    assert fixes(nodes, [two], 2, witnesses={7: (9, 8)}) == [(7, None, 9, "witness")]
    assert fixes(nodes, [with_it], 2, witnesses={7: (9, 8)}) == []
    assert fixes(nodes, [with_it], 2, witnesses={7: (9, 8)}, dead={9}) == [(7, 9, None, "witness")]
    assert fixes(nodes, [with_it], 2, witnesses={7: (9,)}, dead={9}) == [], "there is no better one"
    # a third place: first the copy, then the witness goes
    three = sited([1, 3, 4])
    assert fixes(three, [with_it], 3, witnesses={7: ()}) == [(7, None, 4, "few")]
    there = part(7, [1, 3, 4], survive="dc", witnesses=(9,))
    assert fixes(three, [there], 3, witnesses={7: ()}) == [(7, 9, None, "witness")]
    # one of several; and none of two copies that are in one place is lost without it
    both = part(7, [1, 3], survive="dc", witnesses=(8, 9))
    assert fixes(nodes, [both], 2, witnesses={7: (9, 8)}) == [(7, 9, None, "witness")]
    assert (
        fixes(sited([1, 2]), [part(7, [1, 2], survive="dc", witnesses=(9,))], 3, witnesses={7: ()})
        == []
    )
    # who is everywhere has all witnesses
    assert fixes(three, [part(7, [1, 3, 4], witnesses=(9,))], 3) == []
