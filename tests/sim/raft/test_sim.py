"""The cluster under simulation: a bounded part of what `make sim` runs."""

from __future__ import annotations

import pytest

from tests.sim.raft.directed import SCENARIOS, play
from tests.sim.raft.proof import scenario_catches, seeds_until_caught
from tests.sim.raft.rules import RULES
from tests.sim.raft.run import replay_command, run_seed

SEEDS = 200
CHUNK = 50
QUICK = 30
"""Rules that so many seeds must catch are proved here, the others by `make sim`."""
BY_SEEDS = [name for name, rule in RULES.items() if 0 < rule.seeds_max <= QUICK]
BY_SCENARIO = [name for name, rule in RULES.items() if rule.scenario]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS, CHUNK))
def test_f2_random_faults_break_no_invariant(first: int) -> None:
    """Any schedule of faults: agreement, nothing acknowledged lost, no old reads, then progress."""
    for seed in range(first, first + CHUNK):
        outcome = run_seed(seed)
        assert outcome.violation is None, f"{outcome.violation}; {replay_command(seed, 'chaos')}"


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["churn", "small", "members", "forced", "flap", "deaf"])
def test_f3_modes_are_clean(mode: str) -> None:
    """Elections in quick succession, groups of one or two, a majority lost for good, a flapping
    node, a deaf leader.
    """
    for seed in range(1, 11):
        outcome = run_seed(seed, mode)
        assert outcome.violation is None, f"{outcome.violation}; {replay_command(seed, mode)}"


def test_a_seed_replays_exactly() -> None:
    """Else a failing seed could not be looked at."""
    for seed in (3, 4):
        assert run_seed(seed) == run_seed(seed)
    assert run_seed(3).digest != run_seed(4).digest


@pytest.mark.few(1)
@pytest.mark.parametrize("rule", BY_SEEDS)
def test_without_a_rule_random_seeds_find_a_violation(rule: str) -> None:
    """A simulator that does not notice a missing rule proves nothing of the others."""
    assert seeds_until_caught(rule), f"{rule} off, and {RULES[rule].seeds_max} seeds were clean"


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_a_scenario_is_quiet_with_all_rules(scenario: str) -> None:
    """The counter-examples are about the rule, not about the harness."""
    assert play(scenario, 1, None).violation is None


@pytest.mark.parametrize("rule", BY_SCENARIO)
def test_without_a_rule_its_scenario_ends_in_a_violation(rule: str) -> None:
    """Rules that random schedules reach rarely are each justified by a counter-example."""
    assert scenario_catches(rule)


def test_every_rule_is_proved_somewhere() -> None:
    """A rule in the table without a proof would look proved."""
    assert all(rule.seeds_max or rule.scenario in SCENARIOS for rule in RULES.values())
