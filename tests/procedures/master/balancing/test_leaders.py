"""The balancer of leaderships."""

from __future__ import annotations

from procedures.master.balancing import leaders
from procedures.master.balancing.model import DIMENSIONS, TRAFFIC, NodeView
from tests.procedures.master.balancing.pictures import node, part, picture


def test_i3_leaderships_even_out_traffic_without_moving_data() -> None:
    """Reads are at the leader alone: one node would answer all of them."""
    parts = [part(n, [1, 2, 3], leader=1, reads=4, writes=1) for n in range(1, 7)]
    state = picture([node(1), node(2), node(3)], parts)
    plan = leaders.plan(state)
    assert all(move.kind == "leader" for move in plan.moves)
    assert [state.used(n, TRAFFIC) for n in (1, 2, 3)] == [0.14, 0.14, 0.14]
    assert leaders.plan(state).moves == []


def test_i3_without_traffic_everybody_leads_as_many() -> None:
    """Who leads nothing is of no use when the load comes; a big machine leads more."""
    nodes = [node(1), node(2), node(3, (100, 100, 2))]
    parts = [part(n, [1, 2, 3], leader=1) for n in range(1, 41)]
    state = picture(nodes, parts, DIMENSIONS)
    leaders.plan(state)
    led = [sum(p.leader == n for p in state.partitions.values()) for n in (1, 2, 3)]
    assert led[2] >= 17
    assert min(led[:2]) >= 8


def test_i3_a_busy_node_may_lead_few() -> None:
    """Numbers are evened out only where traffic does not suffer."""
    busy = [part(100, [1], leader=1, writes=40, reads=20)]
    parts = [part(n, [1, 2], leader=2, reads=3) for n in range(1, 19)]
    state = picture([node(1), node(2)], [*busy, *parts])
    plan = leaders.plan(state)
    assert plan.moves == []
    assert {r.rule for r in plan.refusals} == {"higher", "dropped"}


def test_i13_nobody_hands_over_to_who_lags_or_takes_nothing() -> None:
    """A node that must catch up first, or is slow, would stop the partition."""
    lagging = frozenset({1, 3})
    parts = [part(n, [1, 2, 3], leader=1, ready=lagging, reads=2) for n in range(1, 21)]
    slow: NodeView = node(3, takes=False)
    assert leaders.plan(picture([node(1), node(2), slow], parts)).moves == []
    moves = leaders.plan(picture([node(1), node(2), node(3)], parts)).moves
    assert {move.target for move in moves} == {3}


def test_i12_leaderships_stay_where_their_table_wants_them() -> None:
    """The balancer of load and the one of homes would hand them to and fro for ever."""
    parts = [
        part(n, [1, 2, 3], leader=1, reads=4, preferred=frozenset({1, 2})) for n in range(1, 7)
    ]
    moves = leaders.plan(picture([node(1), node(2), node(3)], parts)).moves
    assert {move.target for move in moves} == {2}
    parts = [part(n, [1, 2], leader=1, reads=4, preferred=frozenset({2})) for n in range(1, 7)]
    assert {move.target for move in leaders.plan(picture([node(1), node(2)], parts)).moves} == {2}
