"""The balancer on made-up clusters: it ends, in the middle, and breaks no rule (I1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.ids import NodeId
from procedures.master.balancing import leaders, replicas, simulate
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import DIMENSIONS
from procedures.master.balancing.simulate import Shape, made, violations

SHAPES = [
    Shape(10, 1_000, seed=1),
    Shape(10, 1_000, seed=2, unequal=False, tagged=0),
    Shape(30, 3_000, seed=3, crowded=0.5, tagged=0),
    Shape(100, 5_000, seed=4, crowded=0.9),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_i1_it_converges_and_then_makes_no_move(shape: Shape) -> None:
    """Unequal machines, three dimensions, tags, racks; also when half of the nodes are new."""
    told = simulate.simulate(shape)
    assert told["moves_when_done"] == 0
    assert told["replica_moves"] + told["leader_moves"] > 0
    assert not any(told["violations"].values())
    assert told["outside"]["traffic"] == 0
    assert told["outside"]["size"] == 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_i1_a_thousand_nodes_and_a_hundred_thousand_partitions() -> None:
    """Twenty nodes are new. The cost of a move must not grow with the cluster (it takes some ten
    seconds, most of them to make the cluster up).
    """
    told = simulate.simulate(Shape(1_000, 100_000, seed=1, crowded=0.98, even=True))
    assert told["moves_when_done"] == 0
    assert told["replica_moves"] + told["leader_moves"] > 5_000
    assert not any(told["violations"].values())
    assert sum(told["outside"].values()) == 0


def test_the_same_seed_gives_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Or nobody could replay what went wrong."""
    told: list[dict[str, Any]] = []
    for _ in range(2):
        simulate.main(["--nodes", "8", "--partitions", "200", "--seed", "5"])
        line = json.loads(capsys.readouterr().out)
        told.append({key: value for key, value in line.items() if not key.endswith("_s")})
    assert told[0] == told[1]


clusters = st.builds(
    Shape,
    nodes=st.integers(5, 12),
    partitions=st.integers(1, 60),
    seed=st.integers(0, 1 << 32),
    replicas=st.integers(1, 3),
    unequal=st.booleans(),
    tagged=st.sampled_from([0.0, 0.3, 1.0]),
    crowded=st.sampled_from([0.2, 0.6, 1.0]),
)


@settings(max_examples=60, deadline=None)
@given(clusters)
def test_i1_whatever_the_cluster_no_rule_is_broken_and_it_ends(shape: Shape) -> None:
    """Few and big partitions, where little fits: each move brings the load outside the marks down
    in the order of priorities, no node gets above a hard line, and no two replicas get closer.
    """
    nodes, partitions = made(shape)
    state = ClusterState(nodes, partitions)
    before = violations(state)
    seen = {placement(state)}
    moves = replicas.ReplicaBalancer(state, "rack").moves()
    outside = distance(state)
    for _ in range(10_000):
        if next(moves, None) is None:
            break
        now = distance(state)
        assert now < outside
        assert placement(state) not in seen, "it went in a circle"
        seen.add(placement(state))
        outside = now
        after = violations(state)
        assert all(after[rule] <= before[rule] for rule in after)
    else:
        pytest.fail("it does not end")
    leaders.plan(state)
    assert violations(state)["hard"] <= before["hard"]


def placement(state: ClusterState) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(p.nodes)) for p in state.partitions.values())


def distance(state: ClusterState) -> tuple[float, ...]:
    """By dimension: the load that lies outside the marks; rounded, as sums of floats are."""
    return tuple(
        round(
            sum(state.outside(state.used(n, d), d) * capacity(state, n, d) for n in state.taking)
            / sum(capacity(state, n, d) for n in state.taking),
            12,
        )
        for d in range(len(DIMENSIONS))
    )


def capacity(state: ClusterState, node: NodeId, d: int) -> float:
    return state.nodes[node].capacity[d]
