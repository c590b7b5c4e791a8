"""Who may begin: limits and rates of queues, types and pools, and of the keys of a queue; fair
turns between keys; priorities that age. In memory: what has begun is derived from the records, so a
new master counts the same.

    enter ─▶ stream (one per queue and key) ─▶ class (what its head is limited by) ─▶ begins
               │ in the order of submission       │ fair turns, by priority
               └ waits for its key: not looked at  └ waits for a limit: not looked at

A procedure that has not begun passes the gate before it is queued for its locks; one that waits
here holds nothing. It passes when *all* its limits have room: of its key, its queue, its type and
its pool.

Of one key the first submitted goes first, whatever its priority. What has no key forms one stream
of its queue and class, by priority. The heads of streams compete: the higher priority first; of one
priority queues take turns, and in a queue its keys, by weight (stride scheduling: Waldspurger
1995). A head that ages gains one priority for each `aging_ms` since it was submitted or its key was
served: so a key with a million waiting gains nothing by them.

What is looked at after an event is the classes that share a limit which has room now, and the one
stream whose key has: never all that wait. A class is (queue, type, pool), so there are few.

Rates are token buckets: never more than burst + rate × t begin within t. A new master begins with
empty ones, so that a failover lets nobody exceed its rate. Of slow ones (SLOW_PER_S) each token
taken is written down before it counts (`keep`), and a new master goes on from that: else one a day
would begin anew with each failover, and never come.

After a failover the gate is shut until it is known what workers still have under way (`open`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kv.base.ports import Clock, Handle, Timers

SLOW_PER_S: Final = 0.1
"""Rates up to this are kept in rows."""
_ROOM: Final = 1.0 - 1e-9
_STALE_MIN: Final = 32
_BUCKETS_KEPT: Final = 1_000

Names: TypeAlias = tuple[str, ...]  # of limits: of the queue, the type, and perhaps the pool
Bucketed: TypeAlias = tuple[str, str]  # name of a limit, and a key of that queue or ""
Kept: TypeAlias = tuple[float, int, int]
"""Tokens of a slow rate, when, and when it has all that it can have (ms since 1970)."""


_LOOKED_AT: Final = 1_000  # keys of one queue, for figures


class Limit(NamedTuple):
    """0 = none. What begins with `key`, `aging_ms` and `weights` are for queues only."""

    max_concurrent: int = 0
    rate_per_s: float = 0.0
    burst: int = 0  # so many at once, after a pause; 0 = one second's worth, at least 1
    key_concurrent: int = 1
    key_rate_per_s: float = 0.0
    key_burst: int = 0
    aging_ms: int = 0  # a head gains one priority for each; 0 = it does not age
    weights: tuple[tuple[str, int], ...] = ()  # key → how many turns it has, in place of 1


NONE: Final = Limit()


class Waiting(NamedTuple):
    """What one key of a queue has."""

    key: str
    running: int
    waiting: int
    first: int  # the procedure that is next; 0 = none
    since_ms: int  # … and since when


class _Bucket:
    """Tokens of a rate."""

    __slots__ = ("at", "most", "rate", "tokens")

    def __init__(self, rate: float, burst: int, tokens: float, now: float) -> None:
        self.rate, self.most = rate, float(burst) or max(1.0, rate)
        self.tokens, self.at = min(tokens, self.most), now

    def fill(self, now: float) -> float:
        self.tokens = min(self.most, self.tokens + max(0.0, now - self.at) * self.rate)
        self.at = now
        return self.tokens

    @property
    def slow(self) -> bool:
        return self.rate <= SLOW_PER_S

    def wait_s(self) -> float:
        return max(0.001, (1.0 - self.tokens) / self.rate)


class _Stream:
    """Those of one queue and key that wait; without a key, of one class."""

    __slots__ = ("count", "entry", "heap", "key", "names", "passed", "queue", "served_ms")

    def __init__(self, names: Names, key: str, passed: float) -> None:
        self.queue, self.key = names[0], key
        self.names = names  # of its head
        self.heap: list[tuple[tuple[float, int], int]] = []  # order, id: the first one is next
        self.count = 0  # of them still wait
        self.passed = passed  # the smaller one has its turn
        self.served_ms = 0
        self.entry: _Turn | None = None  # its place among those of its class


_Turn: TypeAlias = tuple[int, float, int, _Stream]  # level, passed, ticket
_Order: TypeAlias = tuple[int, int, float, int, Names]


class _Waiter(msgspec.Struct, frozen=True, gc=False):
    names: Names
    key: str
    priority: int
    since_ms: int


class Gate:
    """`opened` is called with everyone who may begin after having waited; `keep` with who begins by
    a slow rate: it calls `kept` once these buckets are written down.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        opened: Callable[[int], None],
        keep: Callable[[int, dict[Bucketed, Kept]], None],
    ) -> None:
        self._timers, self._clock = timers, clock
        self._opened, self._keep = opened, keep
        self._skipped_s = 0.0
        self._born = self._now()
        self.shut = False
        self.limits: dict[str, Limit] = {}
        self._weights: dict[str, dict[str, int]] = {}
        self._buckets: dict[Bucketed, _Bucket] = {}
        self._full_at = _BUCKETS_KEPT  # with so many it is looked which are full
        self._left_over: dict[Bucketed, Kept] = {}  # of the master before
        self._begun: dict[int, tuple[Names, str]] = {}
        self._keeping: set[int] = set()  # begun, as soon as that is written down
        self._count: dict[str, int] = {}
        self._keys: dict[Bucketed, int] = {}  # how many of a key have begun
        self._who: dict[int, _Waiter] = {}
        self._queues: dict[str, dict[tuple[str, Names], _Stream]] = {}
        self._depth: dict[str, int] = {}
        self._virtual: dict[str, float] = {}  # queue → `passed` of who was served last
        self._turns: dict[str, int] = {}  # queue → when it was served last
        self._classes: dict[Names, list[_Turn]] = {}
        self._sharing: dict[str, dict[Names, None]] = {}  # limit → classes that have somebody
        self._ticket = 0
        self._due: list[tuple[float, int, str | _Stream]] = []  # when a rate has room again
        self._awaited: set[str] = set()  # limits in `_due`
        self._timer: Handle | None = None
        self._armed = 0.0

    # ------------------------------------------------------------------------------ settings
    @property
    def active(self) -> bool:
        """Whether there is any limit at all."""
        return bool(self.limits)

    def holds_up(self, names: Names, key: str) -> bool:
        """Whether something limits it."""
        return bool(key) or any(name in self.limits for name in names)

    def limit(self, name: str, limit: Limit) -> None:
        """Set or (with `NONE`) remove one; who may begin now does. What of a rate was there to use
        stays so.
        """
        self._weights[name] = dict(limit.weights)
        if limit == NONE:
            self.limits.pop(name, None)
            del self._weights[name]
        else:
            self.limits[name] = limit
        for at in [at for at in self._buckets if at[0] == name]:
            rate, burst = self._rate(at)
            old = self._buckets.pop(at)
            if rate:
                now = self._now()
                self._buckets[at] = _Bucket(rate, burst, old.fill(now), now)
        if limit.rate_per_s and (name, "") not in self._buckets:
            self._bucket((name, ""), 0.0)
        for stream in list(self._queues.get(name, {}).values()):
            ids = [id for _, id in stream.heap if id in self._who]
            stream.heap = [(self._order(self._who[id]), id) for id in ids]
            heapify(stream.heap)
            self._place(stream)
        self._awaited.discard(name)  # when it has room by the rate of before says nothing now
        self.look(None)

    def restore(self, kept: dict[Bucketed, Kept]) -> None:
        """Slow rates as the master before left them. To be said before the limits."""
        self._left_over = dict(kept)

    # ------------------------------------------------------------------------------ procedures
    def count(self, begun: Iterable[tuple[int, Names, str]]) -> None:
        """These have begun already."""
        for id, names, key in begun:
            self._begin(id, names, key)

    def open(self) -> None:
        """Everything that has begun is known."""
        self.shut = False
        self.look(None)

    def enter(self, id: int, names: Names, priority: int, key: str = "", since_ms: int = 0) -> bool:
        """Whether it begins now; if not, it waits, and `opened` is called later. `since_ms`: when
        it was submitted, or was to begin.
        """
        if id in self._begun:
            return id not in self._keeping
        if id in self._who:
            return False
        if not self.holds_up(names, key):
            self._begin(id, names, key)
            return True
        streams = self._queues.get(names[0], {})
        own = (key, () if key else names)
        free = not any(name in self._sharing for name in names if name in self.limits)
        if not self.shut and free and own not in streams and self._room(names, key):
            return self._take(id, names, key)
        self._who[id] = _Waiter(names, key, priority, since_ms)
        stream = streams.get(own)
        if stream is None:
            stream = self._stream(own, names)
        heappush(stream.heap, (self._order(self._who[id]), id))
        stream.count += 1
        self._depth[names[0]] = self._depth.get(names[0], 0) + 1
        if stream.heap[0][1] == id and self._place(stream):
            self.look([name for name in names if name in self.limits], [names])
        return False

    def kept(self, id: int) -> None:
        """What it took of slow rates is written down."""
        if id in self._keeping:
            self._keeping.discard(id)
            self._opened(id)

    def left(self, id: int) -> None:
        """It ended, or is not here any more."""
        waiter = self._who.pop(id, None)
        if waiter is not None:
            self._withdraw(id, waiter)
        self._keeping.discard(id)
        names, key = self._begun.pop(id, ((), ""))
        if not names:
            return
        for name in names:
            self._count[name] -= 1
            if not self._count[name]:
                del self._count[name]
        more: list[Names] = []
        if key:
            at = names[0], key
            self._keys[at] -= 1
            if not self._keys[at]:
                del self._keys[at]
            stream = self._queues.get(names[0], {}).get((key, ()))
            if stream is not None and stream.entry is None and self._place(stream):
                more.append(stream.names)
        if self._who:
            self.look([name for name in names if name in self.limits], more)

    # ------------------------------------------------------------------------------ for people
    def waiting(self) -> list[int]:
        """Who waits here."""
        return list(self._who)

    def waits(self, id: int) -> str:
        """What it waits for, "" = it does not wait here."""
        waiter = self._who.get(id)
        if waiter is None:
            return ""
        if self.shut:
            return "the workers are asked what they have begun"
        full = [k for k in waiter.names if not self._fits(k)]
        if waiter.key and not self._key_fits((waiter.names[0], waiter.key)):
            full.append(f"key {waiter.key} of {waiter.names[0]}")
        return f"the limits of {', '.join(full)}" if full else "its turn in its queue"

    def heads(self) -> list[tuple[str, int, int]]:
        """Of each queue that waits here its name, how many wait, and who waits longest (of so many
        keys).
        """
        found = []
        for queue, count in self._depth.items():
            streams = islice(self._queues.get(queue, {}).values(), _LOOKED_AT)
            heads = [one.heap[0][1] for one in streams if one.count]
            there = [id for id in heads if id in self._who]
            first = min(there, key=lambda id: self._who[id].since_ms, default=0)
            found.append((queue.partition(":")[2], count, first))
        return found

    def figures(self) -> dict[str, tuple[int, int]]:
        """Name → how many have begun, and how many wait (queues only)."""
        names = sorted({*self.limits, *self._depth})
        return {name: (self._count.get(name, 0), self._depth.get(name, 0)) for name in names}

    def streams(self, queue: str) -> Iterator[Waiting]:
        """What waits in a queue, by key; in no particular order. Keys of which some run and none
        wait come last. The queue must not change meanwhile.
        """
        seen: dict[str, Waiting] = {}
        for (key, _), stream in self._queues.get(queue, {}).items():
            first = stream.heap[0][1] if stream.count else 0
            since = self._who[first].since_ms if first in self._who else 0
            now = Waiting(key, self._keys.get((queue, key), 0), stream.count, first, since)
            if (other := seen.get(key)) is not None:  # without a key: of several classes
                older, newer = sorted((other, now), key=lambda one: (one.since_ms, one.first))
                now = older._replace(waiting=older.waiting + newer.waiting)
            seen[key] = now
        yield from seen.values()
        for (name, key), running in self._keys.items():
            if name == queue and key not in seen:
                yield Waiting(key, running, 0, 0, 0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------ who is next
    def _stream(self, own: tuple[str, Names], names: Names) -> _Stream:
        """A new one, which has its turn after those that are there."""
        queue, key = names[0], own[0]
        if queue not in self._queues:
            self._ticket += 1
            self._queues[queue], self._turns[queue] = {}, self._ticket
        passed = self._virtual.get(queue, 0.0) + self._stride(queue, key)
        stream = self._queues[queue][own] = _Stream(names, key, passed)
        return stream

    def look(self, names: Iterable[str] | None, more: Iterable[Names] = ()) -> None:
        """Let everybody in for whom there is room, of the classes that these limits are of (None:
        of all), and of `more`.
        """
        if self.shut:
            return
        if names is None:
            found = dict.fromkeys(self._classes)
        else:
            found = dict.fromkeys(more)
            for name in names:
                found |= self._sharing.get(name, {})
        self._admit(found)

    def _admit(self, classes: Iterable[Names]) -> None:
        order = [place for names in classes if (place := self._first(names)) is not None]
        heapify(order)
        begun: list[int] = []
        while order:
            names = order[0][-1]
            place = self._first(names)
            if place is None or not self._room(names, ""):
                heappop(order)  # whoever comes in leaves less room
                continue
            if place != order[0]:
                heapreplace(order, place)
                continue
            stream = self._classes[names][0][3]
            id = heappop(stream.heap)[1]
            waiter = self._who.pop(id)
            self._depth_less(stream)
            self._ticket += 1
            self._turns[stream.queue] = self._ticket
            stream.passed += self._stride(stream.queue, stream.key)
            self._virtual[stream.queue] = stream.passed
            stream.served_ms = self._clock.now_ms()
            if self._take(id, waiter.names, waiter.key):
                begun.append(id)
            placed = self._place(stream) and stream.names != names
            if placed and (other := self._first(stream.names)) is not None:
                heappush(order, other)
        self._arm()
        for id in begun:  # whoever is called may enter others
            self._opened(id)

    def _first(self, names: Names) -> _Order | None:
        """The place of a class among others; None: it has nobody."""
        turns = self._classes.get(names)
        while turns and turns[0][3].entry is not turns[0]:
            heappop(turns)  # that stream has another place, or none
        if not turns:
            if turns is not None:
                del self._classes[names]
                for name in names:
                    self._sharing[name].pop(names)
                    if not self._sharing[name]:
                        del self._sharing[name]
            return None
        level, passed, ticket, stream = turns[0]
        aging = self.limits.get(stream.queue, NONE).aging_ms
        level -= self._clock.now_ms() // aging if aging else 0
        return level, self._turns.get(stream.queue, 0), passed, ticket, names

    def _place(self, stream: _Stream) -> bool:
        """Among those of its class, if it has somebody and its key lets that one begin."""
        stream.entry = None
        while stream.heap and stream.heap[0][1] not in self._who:
            heappop(stream.heap)
        if not stream.heap:
            streams = self._queues[stream.queue]
            streams.pop((stream.key, () if stream.key else stream.names), None)
            if not streams:
                del self._queues[stream.queue]
                self._turns.pop(stream.queue, None)
                self._virtual.pop(stream.queue, None)
            return False
        head = self._who[stream.heap[0][1]]
        stream.names = head.names
        if stream.key and not self._key_fits((stream.queue, stream.key)):
            bucket = self._buckets.get((stream.queue, stream.key))
            if bucket is not None and bucket.tokens < _ROOM:
                self._wake_at(bucket.wait_s(), stream)
            return False
        level, aging = -head.priority, self.limits.get(stream.queue, NONE).aging_ms
        if aging:
            level += max(head.since_ms, stream.served_ms) // aging
        self._ticket += 1
        stream.entry = (level, stream.passed, self._ticket, stream)
        if head.names not in self._classes:
            self._classes[head.names] = []
            for name in head.names:
                self._sharing.setdefault(name, {})[head.names] = None
        heappush(self._classes[head.names], stream.entry)
        return True

    def _withdraw(self, id: int, waiter: _Waiter) -> None:
        """It waits no more."""
        key = waiter.key
        stream = self._queues[waiter.names[0]][key, () if key else waiter.names]
        self._depth_less(stream)
        if stream.heap[0][1] == id:
            if self._place(stream):
                self.look((), [stream.names])
        elif len(stream.heap) > 2 * stream.count + _STALE_MIN:
            stream.heap = [one for one in stream.heap if one[1] in self._who]
            heapify(stream.heap)

    def _depth_less(self, stream: _Stream) -> None:
        stream.count -= 1
        self._depth[stream.queue] -= 1
        if not self._depth[stream.queue]:
            del self._depth[stream.queue]

    def _order(self, waiter: _Waiter) -> tuple[float, int]:
        """Within its stream. Ids say nothing: workers have theirs long before they use them."""
        if waiter.key:
            return 0.0, waiter.since_ms
        aging = self.limits.get(waiter.names[0], NONE).aging_ms
        level = waiter.since_ms - waiter.priority * aging if aging else -waiter.priority
        return float(level), waiter.since_ms

    def _stride(self, queue: str, key: str) -> float:
        return 1.0 / self._weights.get(queue, {}).get(key, 1)

    # ------------------------------------------------------------------------------ room
    def _room(self, names: Names, key: str) -> bool:
        return all(self._fits(name) for name in names) and (
            not key or self._key_fits((names[0], key))
        )

    def _fits(self, name: str) -> bool:
        limit = self.limits.get(name)
        if limit is None:
            return True
        if limit.max_concurrent and self._count.get(name, 0) >= limit.max_concurrent:
            return False
        if not limit.rate_per_s:
            return True
        bucket = self._bucket((name, ""), 0.0)
        if bucket.tokens >= _ROOM:
            return True
        if name not in self._awaited:
            self._awaited.add(name)
            self._wake_at(bucket.wait_s(), name)
        return False

    def _key_fits(self, at: Bucketed) -> bool:
        limit = self.limits.get(at[0], NONE)
        if limit.key_concurrent and self._keys.get(at, 0) >= limit.key_concurrent:
            return False
        return not limit.key_rate_per_s or self._bucket(at, None).tokens >= _ROOM

    def _rate(self, at: Bucketed) -> tuple[float, int]:
        limit = self.limits.get(at[0], NONE)
        if at[1]:
            return limit.key_rate_per_s, limit.key_burst
        return limit.rate_per_s, limit.burst

    def _bucket(self, at: Bucketed, tokens: float | None) -> _Bucket:
        """Filled up to now. `tokens` of one that is new; None: of one that nobody used since this
        master began. Of slow ones all that was used is written down.
        """
        now = self._now()
        bucket = self._buckets.get(at)
        if bucket is None:
            rate, burst = self._rate(at)
            kept = self._left_over.pop(at, None)
            if kept is not None:
                past_s = (self._clock.now_ms() - kept[1]) / 1000
                tokens = kept[0] + max(0.0, past_s) * rate
            elif rate <= SLOW_PER_S:
                tokens = float(max(1, burst))
            elif tokens is None:
                tokens = (now - self._born) * rate
            bucket = self._buckets[at] = _Bucket(rate, burst, tokens, now)
        bucket.fill(now)
        return bucket

    def _take(self, id: int, names: Names, key: str) -> bool:
        """It begins; False: as soon as that is written down."""
        keep: dict[Bucketed, Kept] = {}
        for at in [(name, "") for name in names] + ([(names[0], key)] if key else []):
            if self._rate(at)[0]:
                bucket = self._bucket(at, None if at[1] else 0.0)
                bucket.tokens -= 1.0
                if bucket.slow:
                    now_ms = self._clock.now_ms()
                    full_s = (bucket.most - bucket.tokens) / bucket.rate
                    keep[at] = (bucket.tokens, now_ms, now_ms + int(full_s * 1000) + 1)
        self._begin(id, names, key)
        if keep:
            self._keeping.add(id)
            self._keep(id, keep)
        return not keep

    def _begin(self, id: int, names: Names, key: str) -> None:
        if id in self._begun:
            return
        self._begun[id] = names, key
        for name in names:
            self._count[name] = self._count.get(name, 0) + 1
        if key:
            self._keys[names[0], key] = self._keys.get((names[0], key), 0) + 1

    # ------------------------------------------------------------------------------ times
    def _now(self) -> float:
        return self._timers.monotonic() + self._skipped_s

    @property
    def due_in_s(self) -> float | None:
        """When a rate lets somebody begin who waits; None: nobody waits for one."""
        return self._due[0][0] - self._now() if self._due and self._who else None

    def skip(self, seconds: float) -> None:
        """So much time has passed at once, as in simulations."""
        self._skipped_s += seconds
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    def _wake_at(self, wait_s: float, what: str | _Stream) -> None:
        """Look again when a rate lets the next one begin."""
        self._ticket += 1
        heappush(self._due, (self._now() + wait_s, self._ticket, what))
        self._arm()

    def _arm(self) -> None:
        if not self._due or (self._timer is not None and self._armed <= self._due[0][0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = self._due[0][0]
        wait_s = max(0.001, self._armed - self._now())
        self._timer = self._timers.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._now()
        names: list[str] = []
        classes: list[Names] = []
        while self._due and self._due[0][0] <= now:
            what = heappop(self._due)[2]
            if isinstance(what, str):
                self._awaited.discard(what)
                names.append(what)
            elif what.entry is None and what.count and self._place(what):
                classes.append(what.names)
        self._drop_full(now)
        self.look(names, classes)
        self._arm()

    def _drop_full(self, now: float) -> None:
        """Keys that nobody used for long need no bucket."""
        if len(self._buckets) > self._full_at:
            found = self._buckets.items()
            for at in [at for at, one in found if at[1] and one.fill(now) >= one.most]:
                del self._buckets[at]
            self._full_at = 2 * len(self._buckets) + _BUCKETS_KEPT
