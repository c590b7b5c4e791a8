"""A wall clock that does not leap ahead. Pure: over any `Clock`.

Ages of transactions are differences of wall times at the leader of their record, and the oracle
dates everything by its node's wall clock. A clock that is set an hour ahead would make every living
transaction look dead, and every timestamp to come an hour old; one that is set back at once, too.

    a step back                         followed at once: the oracle goes on from its last timestamp
    ahead by more than LEAP_MS          followed at twice the pace: heartbeats at a third of a ttl
                                        still come in time
    … and still ahead after BELIEVED_S  followed at once: a node that started with a wrong clock

So a leap of less than a minute ends no transaction, and one that is taken back within a minute puts
the oracle at most a minute ahead. A suspension of the machine is none: `monotonic` counts it.
"""

from __future__ import annotations

from typing import Final

from kv.base.ports import Clock

LEAP_MS: Final = 1_000.0  # less is followed at once
BELIEVED_S: Final = 60.0
_PACE: Final = 2.0


class SteadyClock:
    """kv.base.ports.Clock. Ask it often: what happened between two questions is one step to it."""

    __slots__ = ("_clock", "_leapt_s", "_ms", "_s", "monotonic")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self._s = clock.monotonic()
        self._ms = float(clock.now_ms())
        self._leapt_s: float | None = None  # since when it follows a leap

    def now_ms(self) -> int:
        wall, now_s = self._clock.now_ms(), self.monotonic()
        passed_ms = (now_s - self._s) * 1000
        self._s = now_s
        if wall <= self._ms + passed_ms + LEAP_MS:
            self._leapt_s = None
            self._ms = wall
            return wall
        if self._leapt_s is None:
            self._leapt_s = now_s
        if now_s - self._leapt_s >= BELIEVED_S:
            self._leapt_s = None
            self._ms = wall
            return wall
        self._ms = min(float(wall), self._ms + _PACE * passed_ms)
        return int(self._ms)
