"""Probes: rare branches say that they ran. A long run fails on one that never did, because a fault
that is never injected, or a situation that never arises, proves nothing.
"""

from __future__ import annotations

from collections import Counter


class Probes:
    """Counts of this process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str, times: int = 1) -> None:
        self.counts[name] += times


probes = Probes()
"""Of whole clusters."""
