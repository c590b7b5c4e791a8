"""The recently applied entries of one partition, for those who watch it, and the watchers that wait
for the next one. Sans-IO; of the leader only.

Invariants
  * every version above `floor` that was applied is in here: it starts with the applied state's
    highest version as floor, follows every entry, and what it drops raises the floor. (A version
    below the floor may still be applied: of a transaction that committed long ago. Who asks from
    the floor on had it coming: its frontier was below that intent.)
  * it costs a writer one truth test while nobody watches, and one append while somebody does: the
    entry's rows are kept as they are. What all partitions of a node keep has one bound (`Budget`);
  * nobody who waits holds anything up: it is answered and forgotten.

`mark` counts the entries that had anything for a watcher: a version, or an intent that went away.
It begins at a number that differs from leader to leader, so that a mark of another one is hardly
ever taken for one of this. It only saves looks: a feed looks after a while in any case.

Who watches asks again every few seconds; when nobody did for RECENT_IDLE_S the entries are let go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, Protocol

from kv.base.keys import from_u64
from kv.base.limits import FEED_INTENTS_LOOKED_MAX, FEED_RECENT_BYTES_MAX, FEED_WAITERS_MAX
from kv.base.methods import OP_CHECK
from kv.base.ports import Handle, Timers
from kv.base.wire_row import WireRow
from kv.feed.changes import Row, make_cursor, parse_cursor, row_of, size_of
from kv.mvcc.records import Lock

RECENT_IDLE_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.25  # at very many intents
_by_key = itemgetter(0)
_highest = attrgetter("highest")

Answer = Callable[[Any, WireRow], object]
"""(connection, reply row)"""


class Intents(Protocol):
    """The intents of a partition (kv.partition.locks.LockMirror)."""

    def __len__(self) -> int: ...
    def values(self) -> Iterable[Lock]: ...


class Applied(Protocol):
    """An entry that was applied (kv.partition.entry.Entry). Its rows are sorted by key."""

    rows: list[Any]
    locks: dict[bytes, Lock | None]
    gone: dict[int, Lock]  # chunk intents that went away
    top_ts: int
    low_ts: int  # at or below every version in it
    size: int
    quiet: list[Any]


class Budget:
    """The bytes that the recent entries of all partitions of a node may take. Who holds the most
    gives way: a partition that has become quiet must not leave nothing to the others.
    """

    def __init__(self, bytes_max: int = FEED_RECENT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.active: dict[Recent, None] = {}
        self.used = 0

    def take(self, size: int) -> None:
        self.used += size
        while self.used > self.bytes_max:
            max(self.active, key=_held).drop_oldest()


class _Kept(NamedTuple):
    """An entry."""

    mark: int
    highest: int  # version in it, or in an older one: rises with the entries
    lowest: int  # a bound of the versions in it
    size: int
    rows: Sequence[Any]
    gone: bool  # intents went away


class _Waiting:
    """One AWAIT_CHANGES."""

    __slots__ = ("conn", "end", "rid", "start", "timer")

    def __init__(self, conn: object, rid: int, start: bytes, end: bytes) -> None:
        self.conn, self.rid, self.start, self.end = conn, rid, start, end
        self.timer: Handle | None = None


class Recent:
    """See the module."""

    def __init__(self, timers: Timers, budget: Budget, answer: Answer) -> None:
        self.mark = 0
        self.floor = 0
        self.held = 0  # bytes
        self.active = False  # whether entries are followed: somebody watches
        self._timers, self._budget, self._answer = timers, budget, answer
        self._entries: list[_Kept] = []
        self._head = 0  # entries before it were dropped
        self._highest = 0
        self._waiting: dict[_Waiting, None] = {}
        self._asked_at = 0.0
        self._idle: Handle | None = None
        self._bound = 0  # of the intents, at the last look
        self._looked_at = 0.0

    # ------------------------------------------------------------------ the entries

    def begin(self, top_ts: int) -> None:
        """Somebody asks. `top_ts`: the highest version that is applied."""
        self._asked_at = self._timers.monotonic()
        if self.active:
            return
        self.active = True
        self._budget.active[self] = None
        self.floor = self.mark = self._highest = top_ts
        self._idle = self._timers.call_later(RECENT_IDLE_S, self._look_idle)

    def applied(self, entry: Applied) -> None:
        """Keep an entry, and answer those who wait for one like it (with the entry's replies)."""
        gone = bool(entry.gone) or None in entry.locks.values()
        if not entry.rows and not gone:
            return
        self.mark += 1
        self._highest = max(self._highest, entry.top_ts)
        self._entries.append(
            _Kept(self.mark, self._highest, entry.low_ts, entry.size, entry.rows, gone)
        )
        self.held += entry.size
        self._budget.take(entry.size)
        if self._waiting:
            for one in [w for w in self._waiting if gone or _touches(entry.rows, w.start, w.end)]:
                self._forget(one)
                entry.quiet.append((one.conn, [one.rid, 0, self.mark]))

    def drop_oldest(self) -> None:
        """Give the oldest entry up. Whoever wants it walks."""
        oldest = self._entries[self._head]
        self.held -= oldest.size
        self._budget.used -= oldest.size
        self.floor = max(self.floor, oldest.highest)
        self._head += 1
        if 2 * self._head >= len(self._entries):
            del self._entries[: self._head]
            self._head = 0

    def versions(
        self, start: bytes, end: bytes, above: int, upto: int, *, rows_max: int
    ) -> tuple[list[Row], int]:
        """All versions of the range in (above, f], in no order, and f: `upto`, or less when there
        are many more than `rows_max`. `above` is not below `floor`.
        """
        assert above >= self.floor, "these versions are not all here"
        entries = self._entries
        at = bisect_right(entries, above, lo=self._head, key=_highest)
        found: list[Row] = []
        while at < len(entries):
            if len(found) > rows_max:
                # Later entries have later versions, but for transactions resolved late.
                before = min(entry.lowest for entry in entries[at:]) - 1
                ready = [row for row in found if row[2] <= before]
                if 2 * len(ready) > rows_max:
                    return ready, min(upto, before)
                rows_max *= 2
            for key, record, *_ in _within(entries[at].rows, start, end):
                if record is not None and above < (version := from_u64(record)) <= upto:
                    found.append(row_of(key, record, version))
            at += 1
        return found, upto

    def page(
        self,
        start: bytes,
        end: bytes,
        *,
        above: int,
        upto: int,
        limit: int,
        bytes_max: int,
        cursor: bytes | None,
    ) -> tuple[list[Row], bytes | None]:
        """The versions of (above, upto] by key, as a walk gives them (kv.feed.changes.walk), a page
        of whole keys. `above` is not below `floor`.
        """
        assert above >= self.floor, "these versions are not all here"
        at, below = (start, 0) if cursor is None else parse_cursor(cursor)
        found: list[Row] = []
        size = 0
        for key, group in self.by_key(at, end, above):
            if len(found) >= limit or size >= bytes_max:
                return found, make_cursor(key, 0)
            high = min(upto, below - 1) if below and key == at else upto
            for _, record, *_ in group:
                if record is not None and above < (version := from_u64(record)) <= high:
                    row = row_of(key, record, version)
                    found.append(row)
                    size += size_of(row)
        return found, None

    def by_key(
        self, start: bytes, end: bytes, above: int
    ) -> Iterator[tuple[bytes, Iterator[Sequence[Any]]]]:
        """The rows of entries that may hold versions above `above`, by key, of a key by age."""
        first = bisect_right(self._entries, above, lo=self._head, key=_highest)
        parts = (_within(entry.rows, start, end) for entry in self._entries[first:])
        return groupby(merge(*parts, key=_by_key), key=_by_key)

    # ------------------------------------------------------------------ intents

    def below_intents(self, locks: Intents, upto: int) -> int:
        """The highest timestamp at or below `upto` that no intent can become a version at or
        below.

        With very many intents the answer of a moment ago: what was true stays true.
        """
        if not locks:
            return upto
        if len(locks) > FEED_INTENTS_LOOKED_MAX:
            now = self._timers.monotonic()
            if now < self._looked_at + LOOK_AGAIN_S and self._bound:
                return min(upto, self._bound)
            self._looked_at = now
        writing = (
            max(lock.start_ts, lock.min_commit_ts - 1)
            for lock in locks.values()
            if lock.kind != OP_CHECK
        )
        self._bound = found = min(upto, min(writing, default=upto))
        return found

    # ------------------------------------------------------------------ waiting

    def wait(
        self, conn: object, rid: int, start: bytes, end: bytes, mark: int, wait_s: float
    ) -> int | None:
        """The mark, at once, if there was something in the range since `mark` or too many wait;
        else None, and `answer` is called with a reply row later.
        """
        if self._news(start, end, mark) or len(self._waiting) >= FEED_WAITERS_MAX:
            return self.mark
        one = _Waiting(conn, rid, start, end)
        one.timer = self._timers.call_later(wait_s, self._late, one)
        self._waiting[one] = None
        return None

    def _news(self, start: bytes, end: bytes, mark: int) -> bool:
        if mark == self.mark:
            return False
        kept = len(self._entries) - self._head
        if not 0 < self.mark - mark <= kept:
            return True  # of another leader, or too long ago
        news = self._entries[mark - self.mark :]
        return any(entry.gone or _touches(entry.rows, start, end) for entry in news)

    def _late(self, one: _Waiting) -> None:
        if one in self._waiting:
            del self._waiting[one]
            self._answer(one.conn, [one.rid, 0, self.mark])

    def _forget(self, one: _Waiting) -> None:
        del self._waiting[one]
        if one.timer is not None:
            one.timer.cancel()

    # ------------------------------------------------------------------ the end

    def end(self) -> list[tuple[Any, int]]:
        """Leadership was lost, or the replica stops: (connection, rid) of all who waited."""
        left = [(one.conn, one.rid) for one in self._waiting]
        for one in list(self._waiting):
            self._forget(one)
        self._let_go()
        return left

    def _look_idle(self) -> None:
        self._idle = None
        left_s = self._asked_at + RECENT_IDLE_S - self._timers.monotonic()
        if left_s > 0 or self._waiting:
            self._idle = self._timers.call_later(max(left_s, 1.0), self._look_idle)
        else:
            self._let_go()

    def _let_go(self) -> None:
        self.active = False
        self._bound = 0
        while self._head < len(self._entries):
            self.drop_oldest()
        self._budget.active.pop(self, None)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _held(recent: Recent) -> int:
    return recent.held


def _within(rows: Sequence[Any], start: bytes, end: bytes) -> Iterator[Any]:
    low = bisect_left(rows, start, key=_by_key)
    high = bisect_left(rows, end, lo=low, key=_by_key) if end else len(rows)
    return islice(rows, low, high) if low == 0 else map(rows.__getitem__, range(low, high))


def _touches(rows: Sequence[Any], start: bytes, end: bytes) -> bool:
    low = bisect_left(rows, start, key=_by_key)
    return low < len(rows) and (not end or rows[low][0] < end)
