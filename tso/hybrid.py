"""A hybrid logical clock: timestamps of a node that asks nobody. Pure.

    take ──▶ above the wall clock, and above everything given out or heard here
    hear ──▶ what somebody sends: from now on everything given out lies above it

After Kulkarni et al. 2014 (Logical Physical Clocks), in the layout of the oracle's timestamps
(kv/base/timestamps.py). If a caused b, and every message carries its sender's `at`, b's timestamp
is above a's; no more is promised: two events that nothing connects are in any order.

It leans on one assumption, as CockroachDB's does: the wall clocks of any two nodes that serve are
at most CLOCK_OFFSET_MS_MAX apart. So
  * what is further ahead of this node's wall clock is not heard: whoever brings it is told to ask
    again in a moment (CLOCK_AHEAD);
  * nothing is given out while the clock is in *doubt*: before it was compared with the other nodes'
    clocks, since it leapt (wall and monotonic clock parted), and while most of the others say that
    it is off (kvorum/cluster/clocks.py compares);
  * after a doubt nothing is given out for CLOCK_HANDOVER_MS: what this node gave out before it
    started anew, or before it leapt back, lies below;
  * who begins to lead a partition commits nothing at or below `floor()`. The leader before read at
    most CLOCK_OFFSET_MS_MAX above its own clock, under a lease that has ended; its clock was at
    most as much again above this one.

The node's id in the lowest bits makes timestamps of different nodes different, also those of
transactions that begin in the same millisecond.

Left out: a durable bound (a node that starts anew waits instead), and uncertainty intervals: a
snapshot may miss what was acknowledged elsewhere a moment ago, unless its session has heard of it.
"""

from __future__ import annotations

from typing import Final

from kv.base.errors import InvalidArgument, KvorumError, Unavailable
from kv.base.limits import (
    CLOCK_FAR_MS,
    CLOCK_HANDOVER_MS,
    CLOCK_LEAP_MS,
    CLOCK_OFFSET_MS_MAX,
    TSO_COUNT_MAX,
)
from kv.base.ports import Clock
from kv.base.timestamps import (
    LOGICAL_BITS,
    LOGICAL_MAX,
    MAX,
    SLOT_BITS,
    SLOT_MAX,
    STEP,
    compose,
    physical_ms,
)

AHEAD: Final = "CLOCK_AHEAD"  # codes of Unavailable: somebody's clock goes before this one's …
DOUBT: Final = "CLOCK_DOUBT"  # … or this one is not to be trusted now

_COUNT_MAX: Final = min(TSO_COUNT_MAX, (CLOCK_OFFSET_MS_MAX << LOGICAL_BITS - SLOT_BITS) // 2)
_NEW: Final = "it was not compared with the clocks of the other nodes yet"


class HybridClock:
    """See the module. `at`: the highest timestamp that was given out, heard or owed."""

    __slots__ = ("_clock", "_from_ms", "_slot", "_wall", "ahead_ms", "at", "doubt", "leaps")

    def __init__(self, clock: Clock, slot: int) -> None:
        """`slot`: the node's id."""
        if not 0 < slot <= SLOT_MAX:
            raise InvalidArgument(
                f"node {slot}: in a cluster with hybrid clocks ids go up to {SLOT_MAX}, for they "
                "are part of its timestamps",
                details={"limit": SLOT_MAX, "actual": slot},
            )
        self.at = 0
        self.ahead_ms = CLOCK_OFFSET_MS_MAX  # so far is heard, at most
        self.doubt: str | None = _NEW
        self.leaps = 0  # how often wall and monotonic clock parted
        self._clock, self._slot = clock, slot
        self._wall = clock.now_ms(), clock.monotonic()  # at the last look
        self._from_ms = 0  # nothing is given out before

    # -- is it right?

    def look(self) -> int:
        """The wall clock. Ask often: what happens between two looks is one step to it."""
        wall_ms, mono_s = self._clock.now_ms(), self._clock.monotonic()
        before_ms, before_s = self._wall
        self._wall = wall_ms, mono_s
        leapt_ms = wall_ms - before_ms - round((mono_s - before_s) * 1000)
        if abs(leapt_ms) > CLOCK_LEAP_MS:
            self.leaps += 1
            self.doubt = f"it leapt by {leapt_ms} ms"
        return wall_ms

    def agree(self) -> None:
        """The other nodes' clocks are near this one."""
        if self.doubt is not None:
            self.doubt = None
            self._from_ms = self.look() + CLOCK_HANDOVER_MS

    def disagree(self, why: str) -> None:
        """Most of them are not."""
        self.doubt = why

    def trouble(self) -> str | None:
        """Why nothing is given out now, None normally."""
        now_ms = self.look()
        if self.doubt is not None:
            return f"this node's clock is not trusted: {self.doubt}"
        if now_ms < self._from_ms:
            return f"this node's clock is trusted in {self._from_ms - now_ms} ms"
        ahead_ms = physical_ms(self.at) - now_ms
        if ahead_ms > CLOCK_OFFSET_MS_MAX:
            return f"this node knows of timestamps {ahead_ms} ms ahead of its clock"
        return None

    # -- giving out, and hearing

    def take(self, n: int = 1) -> int:
        """The first of `n` new timestamps, each STEP above the one before.

        Raises InvalidArgument for a count that is too large, Unavailable (CLOCK_DOUBT,
        CLOCK_AHEAD).
        """
        if not 0 < n <= _COUNT_MAX:
            raise InvalidArgument(
                f"count must be in 1 … {_COUNT_MAX} timestamps with hybrid clocks, got {n}"
            )
        now_ms = self.look()
        at = self.at
        if self.doubt is not None or now_ms < self._from_ms:
            raise Unavailable(
                f"{self.trouble()}; nothing was done: ask another node, or again in a moment",
                code=DOUBT,
            )
        if at >> LOGICAL_BITS > now_ms + CLOCK_OFFSET_MS_MAX:
            raise self._ahead(at, now_ms, CLOCK_OFFSET_MS_MAX)
        first = now_ms << LOGICAL_BITS | self._slot
        if first <= at:
            first = at >> SLOT_BITS << SLOT_BITS | self._slot
            if first <= at:
                first += STEP
        self.at = first + (n - 1) * STEP
        return first

    def hear(self, ts: int) -> KvorumError | None:
        """Somebody knows of `ts`: everything given out from now on lies above it. An error if that
        would be too far ahead: then whatever came with it must not be done.
        """
        if ts <= self.at:
            return None
        now_ms = self.look()
        if self.doubt is not None:
            return Unavailable(
                f"this node's clock is not trusted: {self.doubt}; nothing was done: ask another "
                "node, or again in a moment",
                code=DOUBT,
            )
        if ts >> LOGICAL_BITS > now_ms + self.ahead_ms:
            return self._ahead(ts, now_ms, self.ahead_ms)
        self.at = ts
        return None

    def owe(self, ts: int) -> None:
        """`ts` is certainly somebody's, however far ahead: nothing is given out before this clock
        has come near it. (What no clock can say is nobody's.)
        """
        if self.at < ts <= MAX and ts >> LOGICAL_BITS <= self._clock.now_ms() + CLOCK_FAR_MS:
            self.at = ts

    def floor(self, top_ts: int = 0) -> int:
        """Nobody has read above it, under a leader whose lease is over by now, and `top_ts` was
        committed. (Of a clock in doubt that cannot be said, nor need it: it pauses for as long when
        that is over.)
        """
        now_ms = self.look()
        self.at = max(self.at, top_ts)
        if self.doubt is not None:
            return self.at
        return max(self.at, compose(now_ms + CLOCK_HANDOVER_MS, LOGICAL_MAX))

    def _ahead(self, ts: int, now_ms: int, limit: int) -> KvorumError:
        ahead_ms = physical_ms(ts) - now_ms
        details = {"at": ts, "ahead_ms": ahead_ms, "limit": limit}
        if ahead_ms > CLOCK_FAR_MS:
            return InvalidArgument(
                f"timestamp {ts} lies in the future, {ahead_ms} ms ahead of this node's clock: no "
                "node has given it out. Use timestamps that the cluster gave",
                details=details,
            )
        return Unavailable(
            f"timestamp {ts} is {ahead_ms} ms ahead of this node's clock, at most "
            f"{limit} are taken; nothing was done: ask again in a moment",
            code=AHEAD,
            details=details,
        )
