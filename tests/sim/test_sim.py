"""The cluster under simulation: a bounded part of what `make sim` runs."""

from __future__ import annotations

import pytest

from tests.sim.proof import seeds_until_caught
from tests.sim.rules import RULES
from tests.sim.run import replay_command, run_seed

SEEDS = 200
CHUNK = 50


@pytest.mark.parametrize("first", range(1, SEEDS, CHUNK))
def test_f2_random_faults_break_no_invariant(first: int) -> None:
    """Any schedule of faults: agreement, nothing acknowledged lost, no old reads, then progress."""
    for seed in range(first, first + CHUNK):
        outcome = run_seed(seed)
        assert outcome.violation is None, f"{outcome.violation}; {replay_command(seed, 'chaos')}"


def test_a_seed_replays_exactly() -> None:
    """Else a failing seed could not be looked at."""
    for seed in (3, 4):
        assert run_seed(seed) == run_seed(seed)
    assert run_seed(3).digest != run_seed(4).digest


@pytest.mark.parametrize("mode", ["flap", "deaf"])
def test_f3_modes_are_clean(mode: str) -> None:
    """A flapping node disturbs no leader; a deaf leader gives way."""
    for seed in range(1, 6):
        assert run_seed(seed, mode).violation is None


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if 0 < rule.seeds_max <= 80])
def test_without_a_rule_random_seeds_find_a_violation(rule: str) -> None:
    """A simulator that does not notice a missing rule proves nothing of the others."""
    assert seeds_until_caught(rule), f"{rule} off, and {RULES[rule].seeds_max} seeds were clean"
