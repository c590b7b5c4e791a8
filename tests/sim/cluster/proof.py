"""Every mutation in turn: which seed notices it? And is the same seed quiet without it?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.cluster.mutations import MUTATIONS, SEEDS_MAX
from tests.sim.cluster.world import run_seed


@dataclass(frozen=True, slots=True)
class Proved:
    """`seed`: the first that noticed (0: none); `violation`: how; `control`: what the same seed
    finds in the build as it is.
    """

    seed: int
    violation: str
    control: str | None

    @property
    def ok(self) -> bool:
        return self.seed > 0 and self.control is None


def prove(name: str) -> Proved:
    """Seeds 1, 2, … until one notices."""
    for seed in range(1, SEEDS_MAX + 1):
        violation = run_seed(seed, mutation=name).violation
        if violation is not None:
            assert "TypeError" not in violation, f"the patch of {name} does not fit: {violation}"
            control = run_seed(seed, tuned_for=name).violation
            return Proved(seed, violation, control)
    return Proved(0, "", None)


def prove_all(say: Callable[[str], None]) -> int:
    """Exit code: 0 if every mutation is caught, and its seed is quiet without it."""
    missed = 0
    for name, mutation in MUTATIONS.items():
        began_s, proved = time.monotonic(), prove(name)
        missed += not proved.ok
        kind = proved.violation.partition(":")[0][:40]
        told = f"seed {proved.seed}: {kind}" if proved.seed else "NOT CAUGHT"
        if proved.control is not None:
            told = f"FALSE ALARM without it: {proved.control[:200]}"
        say(f"{name:22} {time.monotonic() - began_s:5.1f} s  {told:50} {mutation.what}")
    return 1 if missed else 0
