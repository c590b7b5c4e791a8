"""What a replica costs where (I8-I10)."""

from __future__ import annotations

from math import isclose

import pytest

from kv.base.ids import NodeId
from procedures.master.balancing.prediction import UNITS_MIN, Machine, UnitCost, costs, weights


def shown(cost: float, idle: float, *loads: float) -> UnitCost:
    """What a node has shown that really costs this."""
    found = UnitCost()
    for units in loads:
        found = found.observe(idle + cost * units, units)
    return found


@pytest.mark.parametrize(("cost", "idle"), [(1e-4, 0.0), (5e-5, 0.02), (3e-4, 0.1)])
def test_i9_the_sum_of_the_predictions_is_what_was_measured(cost: float, idle: float) -> None:
    """Shares that do not add up to the node's CPU would move a wrong amount."""
    replicas = [100.0, 250.0, 50.0, 600.0]
    node = shown(cost, idle, 0, 0, 1000, 900, 1100, sum(replicas))
    assert node.cost is not None
    predicted = node.idle + sum(node.cost * units for units in replicas)
    measured = idle + cost * sum(replicas)
    assert abs(predicted - measured) <= 0.05 * measured


def test_i10_what_moves_costs_there_what_was_predicted() -> None:
    """A replica of 500 units moves from a fast machine to one of a third of its speed."""
    fast, slow = shown(1e-4, 0.01, 0, 2000, 2100), shown(3e-4, 0.01, 0, 300, 310)
    machines = {NodeId(1): Machine(fast), NodeId(2): Machine(slow)}
    cost = costs(machines)
    predicted = slow.idle + cost[NodeId(2)] * (310 + 500)
    observed = 0.01 + 3e-4 * (310 + 500)
    assert abs(predicted - observed) <= 0.05 * observed


def test_i10_who_was_not_measured_is_taken_for_one_like_the_others_by_its_cores() -> None:
    """A new node would look infinitely fast, or worth nothing."""
    known = shown(1e-4, 0.0, 5000, 5000)
    machines = {
        NodeId(1): Machine(known, 2),
        NodeId(2): Machine(UnitCost(), 2),
        NodeId(3): Machine(UnitCost(), 4),
    }
    found = costs(machines)
    assert isclose(found[NodeId(2)], 1e-4)
    assert isclose(found[NodeId(3)], 5e-5)
    worth = weights(found)
    assert isclose(sum(worth.values()), 3)
    assert isclose(worth[NodeId(3)], 2 * worth[NodeId(2)])


def test_i9_a_little_traffic_says_nothing_about_its_cost() -> None:
    """Heartbeats would be taken for the price of three requests."""
    found = UnitCost().observe(0.05, UNITS_MIN / 10)
    assert found.cost is None
    assert found.idle == 0.05
    assert found.observe(0.05, 1000) == found, "idle all the same: nothing to learn"


def test_i9_the_cost_follows_the_machine() -> None:
    """A machine that gets slower (a neighbour, heat) must be seen to."""
    found = shown(1e-4, 0.0, *[1000] * 5)
    for _ in range(20):
        found = found.observe(0.4, 1000)
    assert found.cost is not None
    assert abs(found.cost - 4e-4) < 1e-5
