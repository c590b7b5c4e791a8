"""How many procedures may have begun, and how fast they may begin: limits of queues, pools and
types. In memory; what has begun is derived from the records, so a new master counts the same.

A procedure that has not begun passes the gate before it is queued for its locks; one that waits
here holds nothing. It passes when *all* its limits have room: of its queue, its type and its pool.
The higher priority goes first, whatever its queue; of one priority queues take turns, and of one
queue the one that came first. A full queue does not hold up the others.

Rates are token buckets of one second; a new master begins with empty ones, so that a failover lets
nobody exceed its rate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from kv.base.ports import Handle, Timers


class Limit(NamedTuple):
    """0 = none."""

    max_concurrent: int = 0
    rate_per_s: float = 0.0


class _Bucket:
    """Tokens of a rate."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate, self.tokens, self.at = rate, 0.0, now

    def fill(self, now: float) -> None:
        most = max(1.0, self.rate)
        self.tokens = min(most, self.tokens + (now - self.at) * self.rate)
        self.at = now

    def wait_s(self) -> float:
        return max(0.0, (1.0 - self.tokens) / self.rate)


class Gate:
    """`opened` is called with everyone who may begin after having waited."""

    def __init__(self, timers: Timers, opened: Callable[[int], None]) -> None:
        self._timers = timers
        self._opened = opened
        self.limits: dict[str, Limit] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._begun: dict[int, tuple[str, ...]] = {}
        self._count: dict[str, int] = {}
        self._waiting: OrderedDict[str, list[tuple[int, int, int]]] = OrderedDict()
        self._where: dict[int, tuple[str, ...]] = {}  # who waits → its keys
        self._tickets = 0
        self._timer: Handle | None = None

    @property
    def active(self) -> bool:
        """Whether there is any limit at all."""
        return bool(self.limits)

    def limit(self, key: str, limit: Limit) -> None:
        """Set or (with zeros) remove one; who may begin now does."""
        self._buckets.pop(key, None)
        if limit == Limit():
            self.limits.pop(key, None)
        else:
            self.limits[key] = limit
            if limit.rate_per_s:
                self._buckets[key] = _Bucket(limit.rate_per_s, self._timers.monotonic())
        self.look()

    def count(self, begun: Iterable[tuple[int, tuple[str, ...]]]) -> None:
        """These have begun already."""
        for id, keys in begun:
            self._begin(id, keys)

    def enter(self, id: int, keys: tuple[str, ...], priority: int) -> bool:
        """Whether it begins now; if not, it waits, and `opened` is called later."""
        if id in self._begun:
            return True
        if id in self._where:
            return False
        queue = self._waiting.get(keys[0])
        if not queue and self._room(keys):
            self._take(id, keys)
            return True
        self._tickets += 1
        heappush(self._waiting.setdefault(keys[0], []), (-priority, self._tickets, id))
        self._where[id] = keys
        self.look()
        return False

    def left(self, id: int) -> None:
        """It ended, or is not here any more."""
        self._where.pop(id, None)
        keys = self._begun.pop(id, None)
        if keys is None:
            return
        for key in keys:
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        if self._waiting:
            self.look()

    def waits(self, id: int) -> str:
        """What it waits for, "" = it does not wait here."""
        keys = self._where.get(id)
        if keys is None:
            return ""
        full = [k for k in keys if not self._fits(k)]
        return f"the limits of {', '.join(full)}" if full else "its turn in its queue"

    def figures(self) -> dict[str, tuple[int, int]]:
        """Key → how many have begun, and how many wait (queues only)."""
        waiting = {
            key: sum(1 for *_, id in heap if id in self._where)
            for key, heap in self._waiting.items()
        }
        keys = sorted({*self.limits, *waiting})
        return {key: (self._count.get(key, 0), waiting.get(key, 0)) for key in keys}

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Let everybody in for whom there is room: by priority, then queue after queue."""
        order = [
            (first[0], at, key)
            for at, key in enumerate(list(self._waiting))
            if (first := self._head(key)) is not None
        ]
        heapify(order)
        at = len(order)
        while order:
            key = order[0][2]
            first = self._head(key)
            if first is None or not self._room(self._where[first[2]]):
                heappop(order)  # whoever comes in leaves less room
                continue
            heappop(self._waiting[key])
            keys = self._where.pop(first[2])
            self._take(first[2], keys)
            self._waiting.move_to_end(key)
            if (follows := self._head(key)) is None:
                heappop(order)
            else:
                at += 1
                heapreplace(order, (follows[0], at, key))
            self._opened(first[2])
        self._arm()

    # -- details
    def _head(self, key: str) -> tuple[int, int, int] | None:
        """Who is first in a queue; None: nobody, and the queue is gone."""
        heap = self._waiting.get(key)
        if heap is None:
            return None
        while heap and heap[0][2] not in self._where:
            heappop(heap)
        if not heap:
            del self._waiting[key]
            return None
        return heap[0]

    def _room(self, keys: tuple[str, ...]) -> bool:
        return all(self._fits(key) for key in keys)

    def _fits(self, key: str) -> bool:
        limit = self.limits.get(key)
        if limit is None:
            return True
        if limit.max_concurrent and self._count.get(key, 0) >= limit.max_concurrent:
            return False
        bucket = self._buckets.get(key)
        if bucket is None:
            return True
        bucket.fill(self._timers.monotonic())
        return bucket.tokens >= 1.0 - 1e-9

    def _take(self, id: int, keys: tuple[str, ...]) -> None:
        for key in keys:
            if (bucket := self._buckets.get(key)) is not None:
                bucket.tokens -= 1.0
        self._begin(id, keys)

    def _begin(self, id: int, keys: tuple[str, ...]) -> None:
        if id not in self._begun:
            self._begun[id] = keys
            for key in keys:
                self._count[key] = self._count.get(key, 0) + 1

    def _arm(self) -> None:
        """Look again when a rate lets the next one begin."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        heads = [self._where.get(heap[0][2], ()) for heap in self._waiting.values() if heap]
        waits = [
            bucket.wait_s()
            for keys in heads
            for key in keys
            if (bucket := self._buckets.get(key)) is not None and bucket.tokens < 1.0
        ]
        if waits:
            self._timer = self._timers.call_later(max(0.001, min(waits)), self.look)
