"""When to tick which group: one timer for all of them.

A deadline mostly moves later (each heartbeat postpones an election), so it is not moved in the
heap: when its old moment comes, the owner looks again. Groups due within `tick_s` are ticked
together, so that their heartbeats share frames; and no two ticks are closer than that, so a
deadline in the past cannot make the loop spin.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from raft.api import TimerHandle, Timers


class Ticker:
    """Calls `due(group_id)` once per scheduled moment, on the loop, in order of time, then id."""

    def __init__(self, timers: Timers, tick_s: float, due: Callable[[int], object]) -> None:
        self._timers, self._tick_s, self._due = timers, tick_s, due
        self._heap: list[tuple[float, int]] = []
        # the earliest moment of each group; others in the heap are stale
        self._next: dict[int, float] = {}
        self._timer: TimerHandle | None = None
        self._timer_at_s = 0.0
        self._closed = False

    def schedule(self, group_id: int, at_s: float) -> None:
        """Look at the group at `at_s`, in the time of `Timers.monotonic`, or before."""
        known = self._next.get(group_id)
        if self._closed or (known is not None and known <= at_s):
            return
        self._next[group_id] = at_s
        heapq.heappush(self._heap, (at_s, group_id))
        self._arm()

    def forget(self, group_id: int) -> None:
        self._next.pop(group_id, None)

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        self._next.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        now_s = self._timers.monotonic()
        at_s = max(self._heap[0][0], now_s + self._tick_s)
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._timers.call_later(at_s - now_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            for group_id in self._take_due(self._timers.monotonic()):
                self._due(group_id)
        finally:
            if self._heap and not self._closed:
                self._arm()

    def _take_due(self, now_s: float) -> list[int]:
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            at_s, group_id = heapq.heappop(self._heap)
            if self._next.get(group_id) == at_s:
                del self._next[group_id]
                due.append(group_id)
        return due
