"""Hybrid clocks: every node compares its wall clock with the others', and fences itself.

    once a second   WALL_CLOCK to every other node ──▶ how far is its clock from this one?
    near most       the clock is trusted (tso/hybrid.py)
    far from most   it is not: nothing is given out here, /readyz says why, and what is led here is
                    handed to others

Each node judges itself, so this needs no master. A difference is known up to half the round trip:
what is at most CLOCK_FENCE_MS in any case counts as near, what is more in any case as far, the rest
not at all. A node is trusted that is near a majority (with itself): any two have one in common, so
they are at most twice as far from each other, CLOCK_OFFSET_MS_MAX. Before a node is trusted for the
first time, or again after a leap, it is measured anew. Of two nodes whose clocks differ both stop:
nobody can say which one is wrong.

Since all others were near it is also known how far ahead of this clock a timestamp can be that any
of them has given out: further ones are not heard, so that no client can drive clocks apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kv.base.errors import KvorumError
from kv.base.limits import (
    CLOCK_ANSWER_MS,
    CLOCK_COMPARE_MS,
    CLOCK_COMPARED_MS,
    CLOCK_FENCE_MS,
    CLOCK_OFFSET_MS_MAX,
)
from kv.base.node_methods import NodesById
from kv.base.ports import Clock
from kvorum.api.verbs import WALL_CLOCK
from tso.hybrid import HybridClock

log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.05  # while the clock is in doubt
_AHEAD_MS: Final = 20  # what clocks drift between two comparisons, and a burst of timestamps


class Offset(NamedTuple):
    """Another node's clock is `ms` ahead, give or take `error_ms`; measured at `at_s`, after so
    many `leaps` of this node's.
    """

    ms: float
    error_ms: float
    at_s: float
    leaps: int

    @property
    def near(self) -> bool:
        return abs(self.ms) + self.error_ms <= CLOCK_FENCE_MS

    @property
    def far(self) -> bool:
        return abs(self.ms) - self.error_ms > CLOCK_FENCE_MS


def verdict(offsets: Sequence[Offset], others: int) -> str | None:
    """What the measured `offsets` to some of the `others` say of this node's clock: "" it is right,
    None nothing yet, else why it is not.
    """
    near = sum(offset.near for offset in offsets)
    if near >= (others + 1) // 2:
        return ""
    far = [offset for offset in offsets if offset.far]
    if near + len(far) < (others + 1) // 2 or len(far) <= near:
        return None
    away = ", ".join(f"{offset.ms:+.0f} ms" for offset in far)
    return (
        f"{len(far)} of {near + len(far)} nodes that answer have clocks more than {CLOCK_FENCE_MS} "
        f"ms away ({away}); have the machines' clocks synchronised (NTP)"
    )


class ClockWatch:
    """See the module. `run` until it is cancelled. Counts `fenced`: how often it was."""

    def __init__(
        self,
        clock: HybridClock,
        wall: Clock,
        calls: NodesById,
        others: Callable[[], Iterable[int]],
        hand_over: Callable[[], Awaitable[None]],
    ) -> None:
        self.fenced = 0
        self.far = False  # most of the others disagree
        self._clock, self._wall, self._calls = clock, wall, calls
        self._others, self._hand_over = others, hand_over
        self._offsets: dict[int, Offset] = {}

    def answer(self, _context: object, _args: list[object]) -> list[object]:
        """The method WALL_CLOCK."""
        return [self._wall.now_ms()]

    def figures(self) -> dict[str, float]:
        """For metrics."""
        offsets = {f"clock_offset_ms.{node}": one.ms for node, one in self._offsets.items()}
        counts = {"clock_fenced": self.fenced, "clock_leaps": self._clock.leaps}
        return {**offsets, **counts, "clock_trusted": self._clock.trouble() is None}

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await self.compare()
            if self.far:
                await self._hand_over()
            for _ in range(int(CLOCK_COMPARE_MS / 1000 / _AGAIN_S)):
                await asyncio.sleep(_AGAIN_S)
                self._clock.look()
                if self._clock.doubt is not None:
                    break

    async def compare(self) -> None:
        """Ask all others, and judge after each answer."""
        others = sorted(self._others())
        self._offsets = {n: self._offsets[n] for n in others if n in self._offsets}
        self._judge(len(others))
        async with asyncio.TaskGroup() as group:
            for node in others:
                group.create_task(self._ask(node, len(others)))

    async def _ask(self, node: int, others: int) -> None:
        wall = self._wall
        self._clock.look()
        leaps, began_ms, began_s = self._clock.leaps, wall.now_ms(), wall.monotonic()
        try:
            (there_ms,) = await self._calls.call_at(node, WALL_CLOCK, budget_ms=CLOCK_ANSWER_MS)
        except KvorumError as error:
            log.debug("the clock of node %d is not known: %s", node, error)
            return
        took_ms = (wall.monotonic() - began_s) * 1000
        away_ms = there_ms - (began_ms + took_ms / 2)
        self._offsets[node] = Offset(away_ms, took_ms / 2 + 1, wall.monotonic(), leaps)
        self._judge(others)

    def _judge(self, others: int) -> None:
        self._clock.look()
        leaps, oldest_s = self._clock.leaps, self._wall.monotonic() - CLOCK_COMPARED_MS / 1000
        found = [o for o in self._offsets.values() if o.leaps == leaps and o.at_s >= oldest_s]
        known = len(found) == others and all(offset.near for offset in found)
        if known:  # else what was known before: what is further ahead waits for some milliseconds
            ahead_ms = max((offset.ms + offset.error_ms for offset in found), default=0.0)
            self._clock.ahead_ms = min(CLOCK_OFFSET_MS_MAX, max(0, int(ahead_ms)) + _AHEAD_MS)
        why = verdict(found, others)
        if why is None:
            return
        if why:
            if not self.far:
                self.fenced += 1
                log.error("this node serves nothing that needs a timestamp: %s", why)
            self._clock.disagree(why)
        else:
            if self.far:
                log.warning("this node's clock agrees with the others' again")
            self._clock.agree()
        self.far = bool(why)
