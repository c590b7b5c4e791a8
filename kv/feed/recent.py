"""The recently applied entries of one partition, for those who watch it, and the watchers that wait
for the next one. Sans-IO; of the leader only.

Invariants
  * every version above `floor` that was applied is in here: it starts with the applied state's
    highest version as floor, follows every entry, and what it drops raises the floor. (A version
    below the floor may still be applied: of a transaction that committed long ago. Who asks from
    the floor on had it coming: its frontier was below that intent.)
  * it costs a writer one truth test while nobody watches, and one append while somebody does: the
    entry's rows are kept as they are. What all partitions of a node keep has one bound (`Budget`);
  * nobody who waits holds anything up: it is told and forgotten.

`mark` counts the entries that had anything for a watcher: a version, or an intent that went away.
It begins at a number that differs from leader to leader, so that a mark of another one is never
taken for one of this. It only saves looks: a feed looks after a while in any case.

Who watches asks again every few seconds; when nobody did for RECENT_IDLE_S the entries are let go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol

from kv.base.keys import from_u64
from kv.base.limits import FEED_INTENTS_LOOKED_MAX, FEED_RECENT_BYTES_MAX, FEED_WAITERS_MAX
from kv.base.methods import OP_CHECK
from kv.base.ports import Handle, Timers
from kv.feed.changes import Row, row_of
from kv.mvcc.records import Lock

RECENT_IDLE_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.25  # at very many intents
_by_key = itemgetter(0)

Answer = Callable[[Any, list[Any]], object]
"""(connection, reply row)"""


class Applied(Protocol):
    """An entry that was applied (kv.partition.entry.Entry). Its rows are sorted by key."""

    rows: list[Any]
    locks: dict[bytes, Lock | None]
    top_ts: int
    size: int
    quiet: list[Any]


class Budget:
    """The bytes that the recent entries of all partitions of a node may take."""

    __slots__ = ("left",)

    def __init__(self, bytes_max: int = FEED_RECENT_BYTES_MAX) -> None:
        self.left = bytes_max


class _Waiting:
    """One AWAIT_CHANGES."""

    __slots__ = ("conn", "end", "rid", "start", "timer")

    def __init__(self, conn: Any, rid: int, start: bytes, end: bytes) -> None:
        self.conn, self.rid, self.start, self.end = conn, rid, start, end
        self.timer: Handle | None = None


class Recent:
    """See the module."""

    def __init__(self, timers: Timers, budget: Budget, answer: Answer) -> None:
        self.mark = 0
        self.floor = 0
        self._timers, self._budget, self._answer = timers, budget, answer
        self._entries: deque[tuple[int, int, int, list[Any], bool]] = deque()
        """(mark, top_ts, bytes, rows, whether intents went away)"""
        self._waiting: dict[_Waiting, None] = {}
        self._active = False
        self._asked_at = 0.0
        self._idle: Handle | None = None
        self._bound = 0  # of the intents, at the last look
        self._looked_at = 0.0

    # ------------------------------------------------------------------ the entries

    @property
    def active(self) -> bool:
        """Whether entries are followed: somebody watches."""
        return self._active

    def begin(self, top_ts: int) -> None:
        """Somebody asks. `top_ts`: the highest version that is applied."""
        self._asked_at = self._timers.monotonic()
        if self._active:
            return
        self._active = True
        self.floor, self.mark = top_ts, top_ts
        self._idle = self._timers.call_later(RECENT_IDLE_S, self._look_idle)

    def applied(self, entry: Applied) -> None:
        """Keep an entry, and tell those who wait for one like it (with the entry's replies)."""
        gone = None in entry.locks.values() if entry.locks else False
        if not entry.rows and not gone:
            return
        self.mark += 1
        self._entries.append((self.mark, entry.top_ts, entry.size, entry.rows, gone))
        self._budget.left -= entry.size
        while self._budget.left < 0 and self._entries:
            self._drop_oldest()
        if self._waiting:
            for one in [w for w in self._waiting if gone or _touches(entry.rows, w.start, w.end)]:
                self._forget(one)
                entry.quiet.append((one.conn, [one.rid, 0, self.mark]))

    def _drop_oldest(self) -> None:
        _, top_ts, size, _, _ = self._entries.popleft()
        self._budget.left += size
        self.floor = max(self.floor, top_ts)

    def versions(self, start: bytes, end: bytes, above: int, upto: int) -> Iterator[Row]:
        """All versions of the range in (above, upto], in no order. `above` is not below `floor`."""
        assert above >= self.floor, "these versions are not all here"
        for _, top_ts, _, rows, _ in self._entries:
            if top_ts <= above:
                continue
            for key, record, *_ in _within(rows, start, end):
                if record is not None and above < (version := from_u64(record)) <= upto:
                    yield row_of(key, record, version)

    # ------------------------------------------------------------------ intents

    def below_intents(self, locks: Mapping[bytes, Lock], upto: int) -> int:
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
        self, conn: Any, rid: int, start: bytes, end: bytes, mark: int, wait_s: float
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
        if mark > self.mark or not self._entries or mark < self._entries[0][0] - 1:
            return True  # of another leader, or too long ago
        return any(
            number > mark and (gone or _touches(rows, start, end))
            for number, _, _, rows, gone in self._entries
        )

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
        self._active = False
        self._bound = 0
        while self._entries:
            self._drop_oldest()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _within(rows: Sequence[Any], start: bytes, end: bytes) -> Sequence[Any]:
    low = bisect_left(rows, start, key=_by_key)
    high = bisect_left(rows, end, lo=low, key=_by_key) if end else len(rows)
    return rows if low == 0 and high == len(rows) else rows[low:high]


def _touches(rows: Sequence[Any], start: bytes, end: bytes) -> bool:
    low = bisect_left(rows, start, key=_by_key)
    return low < len(rows) and (not end or rows[low][0] < end)
