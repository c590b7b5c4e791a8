"""Which nodes are slow: alive, but so much slower than the others that they should lead nothing
(I13). Pure.

Two figures of each node are looked at: how long its log syncs take, as it reports, and how long it
takes to answer the master's question for its replicas. A node is *strange* in a look if one of them
is above FACTOR times the median of the others and above a floor (what is fast enough is not slow).
It is slow after LOOKS strange looks in a row, and no longer after as many that are not; so one
pause, a compaction or a lost packet moves nothing. Never more than a minority is slow: then the
measure is, or everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from kv.base.ids import NodeId

FACTOR: Final = 8.0
LOOKS: Final = 5
SYNC_FLOOR_MS: Final = 50.0
ANSWER_FLOOR_MS: Final = 250.0


class Slowness:
    """One master's view."""

    def __init__(self) -> None:
        self.slow: frozenset[NodeId] = frozenset()
        self.why: dict[NodeId, str] = {}
        self._streak: dict[NodeId, int] = {}  # looks in a row that speak against how it is taken

    def look(self, sync_ms: Mapping[NodeId, float], answer_ms: Mapping[NodeId, float]) -> None:
        """One look at all nodes that answer; a figure that is missing says nothing."""
        nodes = sorted({*sync_ms, *answer_ms})
        now: dict[NodeId, str] = {}
        for figures, floor, what in (
            (sync_ms, SYNC_FLOOR_MS, "a sync of its log takes"),
            (answer_ms, ANSWER_FLOOR_MS, "an answer takes"),
        ):
            for node, value in figures.items():
                others = [other for n, other in figures.items() if n != node]
                if others and value > max(floor, FACTOR * median(others)):
                    now.setdefault(
                        node, f"{what} {value:.0f} ms, of the others {median(others):.0f} ms"
                    )
        slow = {node for node in self.slow if node in nodes}
        streak: dict[NodeId, int] = {}
        for node in nodes:
            if (node in now) == (node in slow):
                continue
            streak[node] = self._streak.get(node, 0) + 1
            if streak[node] >= LOOKS:
                del streak[node]
                slow ^= {node}
        self._streak = streak
        self.slow = frozenset(slow) if 2 * len(slow) < len(nodes) else frozenset()
        self.why = {node: now.get(node, self.why.get(node, "")) for node in self.slow}
