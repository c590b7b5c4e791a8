"""The balancer of replicas, rule by rule (I1-I8): tables from the article's chapter."""

from __future__ import annotations

from math import isclose

import pytest

from procedures.master.balancing import replicas
from procedures.master.balancing.cluster import Zone
from procedures.master.balancing.model import SIZE, TRAFFIC, Dimension
from tests.procedures.master.balancing.pictures import EXACT, node, part, picture, single


def steps(state: object, **more: object) -> list[tuple[int, int, int]]:
    plan = replicas.plan(state, **more)
    return [(move.partition, move.source, move.target) for move in plan.moves]


@pytest.mark.parametrize(
    ("used", "zone"),
    [(40, Zone.LOWER), (36, Zone.LOWER), (44, Zone.UPPER), (44.1, Zone.HIGH), (35.9, Zone.LOW)],
)
def test_i1_the_marks_cut_four_zones(used: float, zone: Zone) -> None:
    """Mean 40 %, alpha 10 %: high mark 44 %, low mark 36 %; a node on a mark is inside."""
    state = single([[40], [40]])
    assert state.zone_of(used / 100, SIZE) is zone


def test_i1_alpha_says_how_wide_the_balanced_zones_are() -> None:
    """Twenty per cent are wider than ten; an idle cluster is as wide as the margin."""
    wide = (EXACT[0], Dimension("size", 0.2, 0.0), EXACT[2])
    assert single([[40], [40]], wide).zone_of(0.45, SIZE) is Zone.UPPER
    idle = (EXACT[0], Dimension("size", 0.1, 0.3), EXACT[2])
    assert single([[40], [20]], idle).zone_of(0.59, SIZE) is Zone.UPPER


def test_i1_all_end_in_the_two_middle_zones_and_then_nothing_moves() -> None:
    """An endless stream of moves would cost more than what they even out."""
    state = single([[1] * 60, [2] * 3, [], [1, 5, 9]])
    assert steps(state)
    assert all(state.zone(n, SIZE) in (Zone.LOWER, Zone.UPPER) for n in state.taking)
    assert steps(state) == []


def test_i1_a_node_above_the_mean_gives_only_to_who_needs_it() -> None:
    """Passive out: without a node in the low zone nothing moves."""
    assert steps(single([[10, 10, 10, 13], [10, 10, 10, 10], [10, 10, 10, 7]])) == []
    state = single([[4] * 10 + [3]] * 3 + [[4] * 7])
    assert {target for _, _, target in steps(state)} == {4}


def test_i1_who_need_not_give_gives_only_to_who_needs_to_take() -> None:
    """The one in need cannot have it (a tag): then nobody gets it, below the mean or not."""
    wide = (EXACT[0], Dimension("size", 0.2, 0.0), EXACT[2])
    nodes = [node(n, tags=frozenset({"ssd"} if n != 2 else ())) for n in (1, 2, 3, 4)]
    parts = [part(n, [1], size=4, tags=frozenset({"ssd"})) for n in range(1, 12)]
    parts += [part(20, [2], size=28), part(21, [3], size=36), part(22, [4], size=39)]
    state = picture(nodes, parts, wide)
    assert (state.zone(1, SIZE), state.zone(2, SIZE)) == (Zone.UPPER, Zone.LOW)
    assert steps(state) == []


@pytest.mark.parametrize(
    ("here", "there", "chosen"),
    [
        ([10, 4, 3, 2, 1], [], 10),  # the gap is 20: what makes both equal counts
        ([11, 4, 3, 2], [], 4),  # 11 is above half the gap, 4 is the heaviest below
        ([9, 8, 3], [2], 9),  # half the gap is 9
        ([9, 8, 3], [4], 8),  # half the gap is 8
        ([30], [], None),  # it would only change places
    ],
)
def test_i2_the_heaviest_up_to_half_the_gap(
    here: list[float], there: list[float], chosen: float | None
) -> None:
    """A heavier one would come back; a lighter one needs more moves."""
    state = single([here, there])
    plan = replicas.plan(state, moves_max=1)
    got = [state.partitions[move.partition].size for move in plan.moves]
    assert got == ([] if chosen is None else [chosen])


def test_i3_a_lower_dimension_gains_nothing_at_a_higher_ones_cost() -> None:
    """Sizes are unequal, and every replica that could even them out carries traffic whose move
    would unbalance that.
    """
    state = picture(
        [node(1), node(2)],
        [
            part(1, [1], size=40, writes=20),
            part(2, [1], size=20, writes=0),
            part(3, [2], size=4, writes=20),
        ],
    )
    plan = replicas.plan(state)
    assert [(m.partition, m.target, m.quality) for m in plan.moves] == [(2, 2, "good")]
    assert state.used(1, TRAFFIC) == state.used(2, TRAFFIC)
    state = picture(
        [node(1), node(2)],
        [part(n, [1], size=20, writes=10) for n in (1, 2, 3)] + [part(4, [2], size=4, writes=30)],
    )
    plan = replicas.plan(state)
    assert plan.moves == []
    assert {r.rule for r in plan.refusals} == {"higher", "dropped"}


def test_i3_a_neutral_move_is_allowed_for_the_higher_dimension() -> None:
    """Traffic pays nothing for sizes, sizes pay for traffic."""
    state = picture(
        [node(1), node(2)],
        [part(n, [1], size=1, writes=10) for n in (1, 2, 3, 4)] + [part(9, [2], size=4)],
    )
    plan = replicas.plan(state, moves_max=2)
    assert [(m.dimension, m.source, m.target) for m in plan.moves] == [("traffic", 1, 2)] * 2
    assert {m.quality for m in plan.moves} == {"neutral"}


def test_i4_not_above_the_high_mark_of_a_higher_dimension() -> None:
    """Rejection 1, and the next candidate is taken."""
    state = picture(
        [node(1), node(2), node(3)],
        [
            part(1, [1], size=10, writes=12),
            part(2, [1], size=9),
            part(3, [1], size=21, writes=18),
            part(4, [2], size=20, writes=30),
            part(5, [3], size=30, writes=30),
        ],
    )
    plan = replicas.plan(state, moves_max=1)
    assert [(m.partition, m.source, m.target) for m in plan.moves] == [(2, 1, 2)]
    first = plan.refusals[0]
    assert (first.partition, first.rule) == (1, "higher")
    assert "traffic of node 2 would be 42.00%, above the high mark 33.00%" in first.reason


def test_i4_not_above_the_hard_line_of_a_lower_dimension() -> None:
    """Rejection 2: traffic comes first, but not onto a full disk."""
    nodes = [node(1), node(2, limit=(9, 0.9, 9e9))]
    parts = [part(1, [1], size=30, writes=8), part(2, [1], size=5, writes=7)]
    parts += [part(3, [1], size=1, writes=5), part(4, [2], size=70)]
    plan = replicas.plan(picture(nodes, parts), moves_max=1)
    assert [m.partition for m in plan.moves] == [2]
    assert [(r.partition, r.rule) for r in plan.refusals] == [(1, "hard")]
    assert plan.refusals[0].reason == "size of node 2 would be 100%, its hard line is 90%"


def test_i5_the_next_target_then_without_the_source() -> None:
    """The least used target may have none of the source's replicas: the second least gets it. A
    source that can give nothing to anybody is left out, and the next one gives.
    """
    nodes = [node(1), node(3, (1000, 1000, 10)), node(4)]
    parts = [part(n, [1, 3], size=10) for n in (1, 2, 3)] + [part(4, [4], size=5)]
    plan = replicas.plan(picture(nodes, parts), moves_max=1)
    assert [(m.source, m.target) for m in plan.moves] == [(1, 4)]
    assert {(r.target, r.rule) for r in plan.refusals} == {(3, "there")}
    rest = [part(4, [2], size=22), part(5, [3], size=1), part(6, [2], size=5)]
    held = [part(n, [1], size=10, held="busy") for n in (1, 2, 3)]
    state = picture([node(n) for n in (1, 2, 3)], [*held, *rest])
    plan = replicas.plan(state)
    assert {m.source for m in plan.moves} == {2}
    rules = [(r.source, r.target, r.rule) for r in plan.refusals]
    assert (1, 3, "held") in rules
    assert rules.index((1, 3, "held")) < rules.index((1, None, "dropped"))


def test_i6_a_node_without_room_for_the_smallest_replica_is_no_target() -> None:
    """Also for another dimension, for which the replica itself weighs nothing on the disk."""
    nodes = [node(1), node(2, base=(0, 88, 0), limit=(9, 0.9, 9e9))]
    parts = [part(n, [1], size=3, writes=10) for n in (1, 2, 3, 4)]
    plan = replicas.plan(picture(nodes, parts))
    assert plan.moves == []
    assert "no room for the smallest replica" in plan.refusals[0].reason


def test_i7_traffic_comes_before_size() -> None:
    """The article's example: A has the traffic, B the data. A gives to B, and gets nothing back
    that would bring the traffic back.
    """
    hot = [part(n, [1], size=1, writes=10) for n in (1, 2, 3, 4)]
    big = [part(n, [2], size=20) for n in (5, 6)]
    state = picture([node(1), node(2)], [*hot, *big])
    moved = steps(state)
    assert moved[:2] == [(4, 1, 2), (3, 1, 2)]
    assert isclose(state.used(1, TRAFFIC), state.used(2, TRAFFIC))
    assert (5, 2, 1) in moved or (6, 2, 1) in moved, "then sizes, with what carries no traffic"


def test_i8_a_machine_of_twice_the_size_gets_twice_the_load() -> None:
    """Loads alone would give both the same, and the small one would be used up."""
    parts = [part(n, [1], size=2, writes=1) for n in range(1, 61)]
    state = picture([node(1), node(2, (200, 200, 2)), node(3)], parts)
    assert steps(state)
    loads = [state.load(n)[TRAFFIC] for n in (1, 2, 3)]
    assert 1.7 <= loads[1] / loads[0] <= 2.3
    assert 1.7 <= loads[1] / loads[2] <= 2.3


def test_i8_s_best_is_counted_in_what_both_ends_mean_by_a_unit() -> None:
    """60 units at a node of 100, none at one of 300: 45 units make both 15 %."""
    assert isclose(replicas.best_load(0.60, 100, 300), 45)
    state = picture(
        [node(1), node(2, (300, 300, 3))], [part(1, [1], size=45), part(2, [1], size=15)]
    )
    assert steps(state) == [(1, 1, 2)]


def test_i12_replicas_stay_apart() -> None:
    """Balancing must not put two replicas into one rack to even out a few bytes."""
    where = {1: ("a", "1", "s1"), 2: ("a", "2", "s2"), 3: ("a", "1", "s3")}
    nodes = [node(n, domains=domains) for n, domains in where.items()]
    parts = [part(n, [1, 2], size=10) for n in range(1, 9)]
    state = picture(nodes, parts)
    replicas.plan(state, level="rack")
    for partition in state.partitions.values():
        assert len({where[n][:2] for n in partition.nodes}) == 2
    state = picture(nodes, parts)
    replicas.plan(state, level="server")
    racks = [{where[n][:2] for n in p.nodes} for p in state.partitions.values()]
    assert any(len(one) == 1 for one in racks), "where only servers count, it may"


def test_i14_only_onto_nodes_with_the_tags() -> None:
    """The least used node would get what must not be there."""
    nodes = [node(1, tags=frozenset({"ssd"})), node(2), node(3, tags=frozenset({"ssd", "eu"}))]
    parts = [part(n, [1], size=10, tags=frozenset({"ssd"})) for n in range(1, 7)]
    state = picture(nodes, parts)
    assert steps(state)
    assert state.load(2)[SIZE] == 0
    assert state.load(3)[SIZE] > 0


def test_a_node_that_takes_nothing_is_neither_counted_nor_chosen() -> None:
    """A slow node would get what others have."""
    state = picture(
        [node(1), node(2), node(3, takes=False)], [part(n, [1], size=10) for n in range(1, 7)]
    )
    assert {target for _, _, target in steps(state)} == {2}
