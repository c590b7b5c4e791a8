"""The goals and their verdicts."""

from __future__ import annotations

import pytest

from bench.goals import GOALS, OVER, UNDER, Goal, find, judge, judge_all

OURS = {"bench": "kv", "op": "put", "clients": 64}
PEER = {"bench": "peer", "peer": "etcd", "op": "put", "clients": 64}


def goal(relation: str, bound: float, *, against_peer: bool = True) -> Goal:
    return Goal(
        name="puts",
        ours=OURS,
        figure="ops_s",
        relation=relation,
        bound=bound,
        peer=PEER if against_peer else {},
        peer_figure="ops_s" if against_peer else "",
    )


@pytest.mark.parametrize(
    ("relation", "bound", "met"), [(OVER, 1.5, True), (OVER, 1.7, False), (UNDER, 1.6, True)]
)
def test_a_ratio_is_judged(relation: str, bound: float, met: bool) -> None:
    """A goal that reads the ratio upside down would call a slow release fast."""
    verdict = judge(goal(relation, bound), [{**OURS, "ops_s": 16}, {**PEER, "ops_s": 10}])
    assert (verdict.value, verdict.met) == (1.6, met)


def test_an_absolute_figure_is_judged_alone() -> None:
    """A goal without a peer must not wait for one."""
    verdict = judge(goal(OVER, 10_000, against_peer=False), [{**OURS, "ops_s": 9_999}])
    assert (verdict.value, verdict.peer, verdict.met) == (9_999, None, False)


@pytest.mark.parametrize(
    "records", [[], [{**OURS, "ops_s": 16}], [{**PEER, "ops_s": 10}], [{**OURS, "ops_s": None}]]
)
def test_what_was_not_measured_is_neither_met_nor_missed(records: list[dict[str, object]]) -> None:
    """A missing peer must not count as a goal reached."""
    verdict = judge(goal(OVER, 1.5), records)
    assert verdict.value is None
    assert verdict.met is None


def test_the_last_measurement_counts() -> None:
    """A rerun appended to a file of results must replace what was there."""
    assert find([{"op": "a", "n": 1}, {"op": "a", "n": 2}, {"op": "b"}], {"op": "a"}) == {
        "op": "a",
        "n": 2,
    }


def test_goals_are_distinct() -> None:
    """Two goals on the same figures would hide that one is missing."""
    seen = [(tuple(g.ours.items()), g.figure, tuple(g.peer.items())) for g in GOALS]
    assert len(set(seen)) == len(seen)
    assert len({g.name for g in GOALS}) == len(GOALS)
    assert [v.goal for v in judge_all([])] == list(GOALS)
