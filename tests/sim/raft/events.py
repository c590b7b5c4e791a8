"""Virtual time: one queue of everything that will happen, one seed for its order.

raft takes its timers as an argument and awaits nothing, so a heap is the whole event loop: an hour
of timers takes milliseconds, and what is due at the same moment comes in an order that the seed
draws (asyncio promises first in, first out; code that leans on it breaks here).

Each node has a clock of its own: it runs a little fast or slow, and it may jump forward (a machine
that slept). A monotonic clock never goes back, so ours do not either.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any


class Event(list[Any]):
    """[moment, order, number, function or None, arguments]: a list, for the heap's speed."""

    def cancel(self) -> None:
        self[3] = None


class Events:
    """See the module. `now_s` is the true time; no node can read it."""

    def __init__(self, rng: random.Random) -> None:
        self.now_s = 0.0
        self.count = 0
        self._random = rng.random
        self._heap: list[Event] = []
        self._number = 0

    def after(self, delay_s: float, fn: Callable[..., object], *args: Any) -> Event:
        self._number += 1
        moment_s = self.now_s + delay_s if delay_s > 0 else self.now_s
        event = Event((moment_s, self._random(), self._number, fn, args))
        heapq.heappush(self._heap, event)
        return event

    def run(self, until_s: float, stop: Callable[[], bool]) -> None:
        """Let everything up to that moment happen, unless `stop()` holds after some event."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_s:
            event = pop(heap)
            fn = event[3]
            if fn is None:
                continue
            self.now_s = event[0]
            self.count += 1
            fn(*event[4])
            if stop():
                return
        self.now_s = max(self.now_s, until_s)


class Clock:
    """A node's monotonic clock: `rate` local seconds per true second."""

    def __init__(self, events: Events, *, rate: float, start_s: float) -> None:
        self._events, self.rate, self._offset_s = events, rate, start_s

    def now_s(self) -> float:
        return self._offset_s + self.rate * self._events.now_s

    def jump(self, seconds: float) -> None:
        assert seconds >= 0, "a monotonic clock never goes back"
        self._offset_s += seconds


class NodeTimers:
    """raft.api.Timers for one life of one node. `enter(function, arguments)` is the node's door: it
    drops the calls of a past life and keeps those of a paused one.
    """

    def __init__(
        self, events: Events, clock: Clock, enter: Callable[[Callable[..., object], Any], None]
    ) -> None:
        self._events, self._clock, self._enter = events, clock, enter
        self._pending: dict[int, Event] = {}

    def monotonic(self) -> float:
        return self._clock.now_s()

    def call_later(self, delay_s: float, fn: Callable[..., object], *args: object) -> Event:
        event = self._events.after(delay_s / self._clock.rate, self._fire)
        event[4] = (event[2], fn, args)
        self._pending[event[2]] = event
        if len(self._pending) > 64:
            self._pending = {n: e for n, e in self._pending.items() if e[3] is not None}
        return event

    def call_soon(self, fn: Callable[..., object], *args: object) -> Event:
        return self._events.after(0.0, self._enter, fn, args)

    def jumped(self, seconds: float) -> None:
        """The clock went forward: what is due by it fires that much earlier."""
        pending, self._pending = self._pending, {}
        for event in pending.values():
            if event[3] is not None:
                event[3] = None
                left_s = event[0] - self._events.now_s
                self.call_later(left_s * self._clock.rate - seconds, *event[4][1:2], *event[4][2])

    def _fire(self, number: int, fn: Callable[..., object], args: Any) -> None:
        self._pending.pop(number, None)
        self._enter(fn, args)
