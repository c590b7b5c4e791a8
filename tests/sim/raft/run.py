"""One seed in one mode, and how a failing one is shown again."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.sim.raft import plan
from tests.sim.raft.modes import deaf, flap, forced
from tests.sim.raft.rules import switched_off
from tests.sim.raft.world import Outcome, Trace, World

MODES: dict[str, Callable[[int, Trace | None], Outcome]] = {
    "chaos": lambda seed, trace: World(seed, plan.draw, trace).chaos(),
    "churn": lambda seed, trace: World(seed, plan.draw_churn, trace).chaos(),
    "members": lambda seed, trace: World(seed, plan.draw_members, trace).chaos(),
    "small": lambda seed, trace: World(seed, plan.draw_small, trace).chaos(),
    "forced": forced,
    "flap": flap,
    "deaf": deaf,
}


def run_seed(
    seed: int, mode: str = "chaos", *, rules_off: tuple[str, ...] = (), trace: Trace | None = None
) -> Outcome:
    """A violation is in the outcome; an exception is the harness's own."""
    with switched_off(*rules_off):
        return MODES[mode](seed, trace)


def replay_command(seed: int, mode: str, rules_off: tuple[str, ...] = ()) -> str:
    """What to type to see this seed again, line by line."""
    off = "".join(f" --rule-off {rule}" for rule in rules_off)
    return f"python -m tests.sim.raft --seeds {seed} --mode {mode}{off} --trace"


def show_line(line: str) -> None:
    """A trace that goes to the standard output."""
    sys.stdout.write(line + "\n")
