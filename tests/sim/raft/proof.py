"""Every rule off in turn: where is it caught? And every scenario with its rule on: is it quiet?"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.sim.raft.directed import SCENARIOS, play
from tests.sim.raft.rules import RULES, switched_off
from tests.sim.raft.run import run_seed


def seeds_until_caught(name: str) -> int | None:
    """The first seed of the rule's mode that finds a violation without it, None if none does."""
    rule = RULES[name]
    for seed in range(1, rule.seeds_max + 1):
        if run_seed(seed, rule.mode, rules_off=(name,)).violation:
            return seed
    return None


def scenario_catches(name: str) -> bool:
    """Does the rule's scenario end in a violation without it?"""
    scenario = RULES[name].scenario
    assert scenario is not None
    with switched_off(name, alone=True):
        return play(scenario, 1, None).violation is not None


def prove(say: Callable[[str], None]) -> int:
    """Exit code: 0 if every rule is caught everywhere it is said to be, and all scenarios are quiet
    with all rules on.
    """
    missed = 0
    for name, rule in RULES.items():
        began_s, found = time.monotonic(), []
        if rule.scenario:
            caught = scenario_catches(name)
            missed += not caught
            found.append("scenario" if caught else "scenario: NOT CAUGHT")
        if rule.seeds_max:
            seed = seeds_until_caught(name)
            missed += seed is None
            within = f"of {rule.seeds_max} ({rule.mode})"
            found.append(f"seed {seed} {within}" if seed else f"NOT CAUGHT by seeds {within}")
        took_s = time.monotonic() - began_s
        say(f"{name:16} {took_s:5.1f} s  {', '.join(found):40} {rule.what}")
    for scenario in SCENARIOS:
        violation = play(scenario, 1, None).violation
        missed += violation is not None
        say(f"all rules on: {scenario}: {violation or 'quiet'}")
    return 1 if missed else 0
