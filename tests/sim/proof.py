"""Every rule off in turn: where is it caught?"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.sim.rules import RULES
from tests.sim.run import run_seed


def seeds_until_caught(name: str) -> int | None:
    """The first seed of the rule's mode that finds a violation without it, None if none does."""
    rule = RULES[name]
    for seed in range(1, rule.seeds_max + 1):
        if run_seed(seed, rule.mode, rules_off=(name,)).violation:
            return seed
    return None


def prove(say: Callable[[str], None]) -> int:
    """Exit code: 0 if every rule is caught."""
    missed = 0
    for name, rule in RULES.items():
        if not rule.seeds_max:
            continue
        began_s = time.monotonic()
        seed = seeds_until_caught(name)
        missed += seed is None
        found = f"seed {seed}" if seed else "NOT CAUGHT"
        took_s = time.monotonic() - began_s
        say(f"{name:16} {found:12} of {rule.seeds_max:4} {took_s:6.1f} s   {rule.what}")
    return 1 if missed else 0
