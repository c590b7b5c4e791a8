"""Which nodes the master hears, and for how long it has not heard the others. Pure.

    ALIVE ──suspect_ms of silence──▶ SUSPECT ──dead_ms──▶ DEAD        a beat: ALIVE again, from any

Silence is counted in the master's own *listening time*: of a gap between two looks (`tick`) only so
much counts as the master may reasonably have slept, so that one that was paused, or whose loop was
busy for long, finds nobody dead. A new master has heard nobody: for it, all have been silent since
it began, so that a failover declares nobody dead early either.

A beat carries a number that rises and the token of the process that sends it. One that was
overtaken by a later beat of the same process is not taken again.

What follows from DEAD is somebody else's business: a dead node may come back at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """As users read it."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(slots=True)
class _Heard:
    boot: bytes
    number: int
    at_ms: float  # of listening time


class Liveness:
    """One reign's view. Times are milliseconds of a clock that never goes backwards."""

    def __init__(
        self, now_ms: float, *, suspect_ms: float, dead_ms: float, step_ms_max: float
    ) -> None:
        """`step_ms_max`: so much of a gap between two looks counts."""
        assert 0 < step_ms_max < suspect_ms < dead_ms
        self._suspect_ms, self._dead_ms, self._step_ms_max = suspect_ms, dead_ms, step_ms_max
        self._looked_ms = now_ms
        self._listened_ms = 0.0
        self._nodes: dict[int, _Heard] = {}

    def tick(self, now_ms: float) -> None:
        """Time went on and the master was awake: call it much more often than `suspect_ms`."""
        gap = now_ms - self._looked_ms
        self._looked_ms = now_ms
        self._listened_ms += min(max(gap, 0.0), self._step_ms_max)

    def heard(self, node: int, boot: bytes, number: int, now_ms: float) -> bool:
        """A beat arrived. False: a later one of the same process came before it."""
        self.tick(now_ms)
        known = self._nodes.get(node)
        if known is not None and known.boot == boot and number <= known.number:
            return False
        self._nodes[node] = _Heard(boot, number, self._listened_ms)
        return True

    def keep(self, members: Iterable[int]) -> None:
        """Forget all but these."""
        staying = set(members)
        for node in [node for node in self._nodes if node not in staying]:
            del self._nodes[node]

    def silence_ms(self, node: int) -> float:
        """For how long nothing came, as far as this reign knows."""
        known = self._nodes.get(node)
        return self._listened_ms - (0.0 if known is None else known.at_ms)

    def ever_heard(self, node: int) -> bool:
        """Whether this reign heard it at all."""
        return node in self._nodes

    def health(self, node: int) -> Health:
        """How it is, at the last `tick` or beat."""
        silence = self.silence_ms(node)
        if silence >= self._dead_ms:
            return Health.DEAD
        if silence >= self._suspect_ms:
            return Health.SUSPECT
        return Health.ALIVE
