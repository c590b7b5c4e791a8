"""Serves the reads of one partition from its applied state.

Invariants
  * a read at R is served only if R is known to be handed out (`known_ts`), so that no timestamp
    that is on its way lies at or below it; the others wait in `unsure` until the oracle was asked;
  * `high` is the highest timestamp that a read was served at: commits to come lie above it;
  * a drain answers at most so many rows and bytes; what is left waits in `behind` for a later one,
    until its connection can take the reply.

What a read must wait for, and how it looks: reads.py. Source: docs/decisions/0503.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.errors import KeyLocked, KvorumError
from kv.base.limits import DRAIN_REPLY_BYTES_MIN, DRAIN_ROWS_MAX, FEW_KEYS
from kv.base.methods import AWAIT_CHANGES, GET, MGET, READ_NOW
from kv.feed.recent import Recent
from kv.mvcc.get import few, newest
from kv.partition.admission import Item, in_time
from kv.partition.counters import PartitionCounters
from kv.partition.evaluated_state import Evaluated
from kv.partition.ports import AppliedState
from kv.partition.reads import (
    SCANS,
    bytes_of,
    must_wait,
    read,
    read_ts_of,
    resolution_in_flight,
    rows_of,
)
from kv.partition.replies import Replies
from kv.partition.scheduler import Scheduler
from kv.partition.statistics import Traffic

_MANY: Final = (MGET, READ_NOW)
_MANY_FIELDS: Final = 8  # without options


class Reader:
    """See the module."""

    def __init__(
        self,
        state: AppliedState,
        view: Evaluated,
        replies: Replies,
        *,
        scheduler: Scheduler,
        counters: PartitionCounters,
        traffic: Traffic,
        recent: Recent,
        touch: Callable[[], None],
    ) -> None:
        """`touch`: a drain is wanted."""
        self._state, self._view, self._replies = state, view, replies
        self._scheduler, self._counters, self._traffic = scheduler, counters, traffic
        self._recent, self._touch = recent, touch
        self.behind: list[Item] = []  # reads whose replies would be too much at once
        self.behind_due = False  # some of them may go on
        self.unsure: list[Item] = []  # reads at timestamps that may not be over yet
        self.high = 0  # the highest timestamp that a read was served at
        self._leads = True  # of the reads that are being served
        self.known_ts = 0  # the highest timestamp known to be handed out

    def serve(self, items: list[Item], newest_ms: int, *, leads: bool = True) -> None:
        """`newest_ms`: the time, and not before the read point's, so that what is expired stays
        expired when the clock is set back. `leads`: this replica does; for others all of `items`
        are at timestamps that are over (replica_reads.py).
        """
        self._leads = leads
        self._counters.reads += len(items)
        state, dirty = self._state, self._scheduler.dirty
        locks = state.locks.by_key or state.locks.apart.locks  # whether there are any
        ahead, cur = self._view.ahead, state.cur
        rows = size = 0
        room = max(self._scheduler.reply_room, DRAIN_REPLY_BYTES_MIN)
        rows_max = DRAIN_ROWS_MAX
        left = iter(items)
        later: list[Item] = []
        between = self._scheduler.between
        for item in left:
            conn, r = item
            between()
            if rows >= rows_max and r[1] != GET:
                later.append(item)
                continue
            try:
                if r[1] == GET and not r[6] and not locks:
                    key = r[5]
                    record = ahead[key] if key in ahead else cur(key)
                    value, version = newest(key, record, newest_ms)
                    conn.reply([r[0], 0, value, version])
                    dirty[conn] = None
                    if value is None:
                        continue
                    size += len(value)
                    if size < room:
                        continue
                else:
                    if r[1] in SCANS:
                        rows_max = self._scheduler.rows()
                        r[8] = min(
                            r[8], rows_max * SCANS[r[1]]
                        )  # a short page says where it goes on
                    size += self._read(item, newest_ms)
            except KvorumError as error:
                self._replies.refuse(item, error)
            except Exception as error:  # noqa: BLE001 - the boundary: the next reads are others'
                faults = self._scheduler.faults
                self._replies.refuse(item, faults.answer(error, f"method {r[1]!r:.40}"))
            rows += rows_of(r)
            if size >= room:
                break
        self._scheduler.reply_room -= size
        self._traffic.read_bytes += size
        later += left
        if later:
            self._counters.reads -= len(later)
            # Other partitions, heartbeats and syncs want the loop too.
            self.behind += _others_first(later, items)
            self._wake()

    def catch_up(self, now_s: float) -> list[Item]:
        """Reads that an earlier drain left, if their connections can take the replies by now."""
        self.behind_due = False
        behind = in_time(self.behind, now_s, self._replies.refuse)
        ready = {conn: conn.ready(self._wake) for conn in dict.fromkeys(conn for conn, _ in behind)}
        self.behind = [item for item in behind if not ready[item[0]]]
        return [item for item in behind if ready[item[0]]]

    def _wake(self) -> None:
        self.behind_due = True
        self._touch()

    def _read(self, item: Item, now_ms: int) -> int:
        """The bytes of the answer, 0 if there is none yet."""
        conn, r = item
        if r[1] == AWAIT_CHANGES:
            self._await_changes(item)
            return 0
        read_ts = read_ts_of(r)
        if self._leads:
            if read_ts > self.known_ts:
                self.unsure.append(item)
                self._counters.reads -= 1  # counted when it is served
                return 0
            if read_ts > self.high:
                self.high = read_ts
        view = self._view
        entry = must_wait(view, r, read_ts)
        if entry is None:
            try:
                if r[1] in _MANY and len(r[5]) <= FEW_KEYS and len(r) == _MANY_FIELDS:
                    rows, size = few(
                        self._state,
                        r[5],
                        view.known,
                        read_ts=r[6],
                        ignore=r[7],
                        now_ms=now_ms,
                        keep=view.keep,
                    )
                    conn.reply([r[0], 0, rows] if r[1] == MGET else [r[0], 0, rows, r[6]])
                    self._scheduler.dirty[conn] = None
                    self._scheduler.wake()
                    return size
                result = read(self._state, self._recent, r, now_ms)
            except KeyLocked as refusal:
                entry = resolution_in_flight(self._view, refusal)
                if entry is None:
                    raise
            else:
                self._replies.answer(conn, [r[0], 0, *result])
                return bytes_of(r, result)
        self._counters.waited += 1
        entry.parked.append(item)
        return 0

    def _await_changes(self, item: Item) -> None:
        """Answer now, or once something was applied for whoever watches the range."""
        conn, (rid, _, _, _, _, start, end, mark, wait_ms) = item
        self._recent.begin(self._state.top_ts)
        found = self._recent.wait(conn, rid, start, end, mark, wait_ms / 1000)
        if found is not None:
            self._replies.answer(conn, [rid, 0, found])


def _others_first(later: list[Item], items: list[Item]) -> list[Item]:
    """What a drain of `items` left for the next one, where those come first who had nothing."""
    left = set(map(id, later))
    had = {item[0].author.user for item in items if id(item) not in left and item[1][1] != GET}
    return sorted(later, key=lambda item: item[0].author.user in had)
