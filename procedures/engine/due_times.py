"""When something is due: a heap of (wall-clock ms, id), looked at by one timer.

Due times are kept in records, so they are wall-clock times. The clock may jump: the timer never
sleeps longer than PROCEDURE_TIMER_MS_MAX while anything is due, and it compares again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kv.base.limits import PROCEDURE_TIMER_MS_MAX
from kv.base.ports import Clock, Handle, Timers


class Due:
    """Calls `fire(id)` at or after the time given for it. Entries cannot be taken back: `fire`
    looks whether they still matter.
    """

    def __init__(self, clock: Clock, timers: Timers, fire: Callable[[int], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._fire = fire
        self._heap: list[tuple[int, int]] = []
        self._handle: Handle | None = None
        self._wake_ms = 0  # of the running timer
        self._closed = False

    def add(self, when_ms: int, id: int) -> None:
        heapq.heappush(self._heap, (when_ms, id))
        if self._handle is None or when_ms < self._wake_ms:
            self._arm()

    @property
    def next_ms(self) -> int:
        """When it fires next, perhaps for what does not matter any more; 0 = nothing is due."""
        return self._heap[0][0] if self._heap else 0

    def look(self) -> None:
        """The clock was set: fire what is due by now."""
        if self._heap and not self._closed:
            self._arm()

    def close(self) -> None:
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not self._heap or self._closed:
            return
        now = self._clock.now_ms()
        sleep_ms = min(max(self._heap[0][0] - now, 0), PROCEDURE_TIMER_MS_MAX)
        self._wake_ms = now + sleep_ms
        self._handle = self._timers.call_later(sleep_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._handle = None
        now = self._clock.now_ms()
        try:
            while self._heap and self._heap[0][0] <= now:
                self._fire(heapq.heappop(self._heap)[1])
        finally:
            self._arm()  # the others, whatever one of them met
