"""The partition's one door: requests in, log entries and replies out. Sans-IO; every step is
synchronous.

Rules (each has a directed test in tests/partition):
  * evaluation order = log order; the latches of a command are the step in which it is evaluated;
  * the reply of a command leaves when everything that it saw is applied, also if it is a refusal;
  * at most one entry is uncommitted, the next one fills meanwhile; it is sealed when the first is
    applied;
  * commit timestamps are asked for once per drain, after its commands arrived and after every read
    served so far. The answer may come later, while a sync runs (kv/partition/timestamps.py); until
    then nothing else that writes versions is evaluated, and no read above the highest timestamp
    that is known to be handed out, so that no read is above a timestamp that is on its way;
  * reads look only at the applied state, and wait for versions in flight at or below their
    timestamp;
  * a write that meets another transaction's intent waits in the key's queue (waits.py);
  * a request whose time is up before it was evaluated is not executed; what was proposed and got
    lost is UNKNOWN_OUTCOME.

Sources: HBase's MultiVersionConcurrencyControl and group commit (DESIGN 5); facts on the hot path
are in docs/performance.md. Left out: follower reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KeyLocked, KvorumError, TooLarge, to_wire
from kv.base.limits import (
    DRAIN_REPLY_BYTES_MIN,
    DRAIN_REQUESTS_MAX,
    DRAIN_ROWS_MAX,
    ENTRY_BYTES_MAX,
    ENTRY_TARGET_BYTES,
    QUEUE_BYTES_MAX,
    QUEUE_REQUESTS_MAX,
    SHIP_OLD_BYTES_MAX,
    KiB,
)
from kv.base.members import Alone, Members
from kv.base.methods import (
    ABORTED,
    AWAIT_CHANGES,
    FENCED,
    FINISH,
    GET,
    NEW_WRITES,
    PREWRITE,
    PREWRITE_ROWS,
    PUT,
    RESOLVE,
    ROLLBACK,
)
from kv.base.ports import Timers
from kv.base.waits import Waits
from kv.feed.recent import Budget, Recent
from kv.mvcc.gc import Due, OldVersions
from kv.mvcc.get import newest
from kv.mvcc.view import Mutations
from kv.mvcc.write import put_plain
from kv.partition import internal
from kv.partition.admission import Item, admit, in_time, read_ahead
from kv.partition.answers import (
    entry_too_large,
    future_read,
    moved,
    not_leader,
    oracle_behind,
    queue_full,
    shape_under_way,
    unknown_outcome,
)
from kv.partition.entry import ROW_OVERHEAD, Entry, size_of
from kv.partition.evaluated import Evaluated
from kv.partition.ports import Connection, Done, ReplicaPort, Timestamps
from kv.partition.read_point import ReadPoint
from kv.partition.reads import bytes_of, must_wait, read, read_ts_of, resolution_in_flight, rows_of
from kv.partition.requests import weight
from kv.partition.reshaping import MakeShape, Shaping, stays
from kv.partition.scheduler import Callback, Scheduler
from kv.partition.shapes import encode
from kv.partition.statistics import Traffic
from kv.partition.timestamps import RISING, Asked
from kv.partition.waits import Waiting
from kv.partition.writes import HANDLERS, NEEDS_TIMESTAMP

TURNS_MAX = 16  # of those who waited for a key, one after the other in a drain
READ_AHEAD_FROM = 64  # keys in a drain from which one sorted multi-get beats single reads
ENTRY_ROOM = ENTRY_BYTES_MAX - 256 * KiB
_PREWRITES = frozenset({PREWRITE, PREWRITE_ROWS})
_EXACT = [True]  # second field of the answer to a prewrite whose bound lies in its intents


@dataclass(slots=True)
class PartitionCounters:
    """Figures since the start. The machine adds per drain or per entry, not per request."""

    reads: int = 0
    writes: int = 0
    entries: int = 0
    refused: int = 0
    waited: int = 0  # reads that had to wait for a version in flight
    drains: int = 0


class PartitionMachine:
    """See the module. One instance per replica on this node; it serves while the replica leads."""

    def __init__(
        self,
        descriptor: PartitionDescriptor,
        replica: ReplicaPort,
        *,
        timestamps: Timestamps,
        scheduler: Scheduler,
        counters: PartitionCounters | None = None,
        members: Members | None = None,
        waits: Waits,
        timers: Timers,
        feed_budget: Budget,
    ) -> None:
        self.descriptor = descriptor
        self.counters = PartitionCounters() if counters is None else counters
        self.view = Evaluated(descriptor, replica.state)
        self.read_point = ReadPoint(replica.state.top_ts)
        self.traffic = Traffic(descriptor.id)  # of this replica, while it leads
        self._replica, self._state = replica, replica.state
        self._timestamps, self._scheduler = timestamps, scheduler
        self._members = members or Alone()
        self.waits = Waiting(
            self.view, scheduler, waits, resume=self._resume, answer=self._after_seen
        )
        self._parked = self.waits.by_key  # empty: nobody waits for a key
        self.recent = Recent(timers, feed_budget, self._answer)  # for those who watch
        self._queue: list[Item] = []
        self._scheduled = False
        self._confirming = self._confirmed = False  # whether we lead, while there is no lease
        self._held: list[Item] = []  # writes that do not fit the open entry while another one flies
        self._behind: list[Item] = []  # reads whose replies would be too much at once
        self._behind_due = False  # some of them may go on
        self._held_bytes = 0  # of them and of what was queued since
        self._room = False  # an entry landed since they were held
        self._turns = 0  # of the queue's head: whose turn came in this drain
        self._asked: Asked | None = None  # a request for timestamps is out
        self._later: list[Item] = []  # writes that came since; they need younger ones
        self._unsure: list[Item] = []  # reads at timestamps that may not be over yet
        self._aside = 0  # how many wait somewhere else than in the queue
        self._read_high = 0  # the highest timestamp that a read was served at
        self._known_ts = 0  # the highest timestamp known to be handed out
        self._top_ts = replica.state.top_ts  # the highest commit timestamp ever evaluated
        self._shaping: Shaping | None = None  # what changes this partition now
        # Which partition of this node has the keys of a request; the manager knows.
        self.covering: Callable[[list[Any]], PartitionDescriptor | None] = lambda _request: None

    # ------------------------------------------------------------------ requests

    @property
    def waiting(self) -> int:
        """Requests that were not evaluated yet."""
        return len(self._queue) + self._aside

    @property
    def quiet(self) -> bool:
        """Whether all that was evaluated is applied."""
        return self.view.flying is None and self.view.open.empty and self._asked is None

    def submit(self, conn: Connection, request: list[Any]) -> None:
        """Queue `[rid, method, deadline, partition, epoch, *args]`; the deadline is in seconds of
        the clock's `monotonic` (the dispatcher makes it of the caller's budget). `conn` gets
        exactly one reply row for it, in this pass of the loop or later.
        """
        waiting = len(self._queue) + self._aside
        if waiting >= QUEUE_REQUESTS_MAX:
            self._refuse_full(conn, request, "requests", QUEUE_REQUESTS_MAX, waiting)
            return
        if self._aside and (self._held or self._asked is not None):
            size = self._held_bytes + weight(request)
            if size > QUEUE_BYTES_MAX:
                self._refuse_full(conn, request, "bytes", QUEUE_BYTES_MAX, size)
                return
            self._held_bytes = size
        self._queue.append((conn, request))
        if not self._scheduled:
            self._touch()

    def put_meta(self, key: bytes, value: bytes, done: Done) -> None:
        """Store a record of the node's own in family meta, through the log; needs no timestamp.

        `value` is stored as it is: seal it. `done(None)` once it is applied, else `done(error)`.
        """
        internal.put_meta(self._internal, key, value, done)

    def raise_safepoint(self, safepoint: int, done: Done) -> None:
        """Refuse reads below it from now on, if it is higher than the one in force. It must lie
        below every snapshot that is held, and below what the oracle has handed out
        (tso/safepoint.py sees to both).
        """
        internal.raise_safepoint(self._internal, safepoint, done)

    def collect(self, step: OldVersions | Due, done: internal.Reported) -> None:
        """One bounded step under the safepoint in force: `done(what it did)`, or `done(error)`.

        Raise the safepoint first and wait for that: nothing is collected under one that is not in
        the log yet.
        """
        internal.collect_step(self._internal, step, done)

    def find_txn(self, start_ts: int) -> bytes | None:
        """The anchor of a transaction whose record is in flight here. (Applied ones: kv.mvcc.find,
        per node.)
        """
        for entry in (self.view.open, self.view.flying):
            if entry is not None:
                for (anchor, ts), record in entry.txns.items():
                    if ts == start_ts and record is not None and record.status != FENCED:
                        return anchor
        return None

    def _internal(self, method: object, then: internal.Then, *args: Any) -> None:
        d = self.descriptor
        self.submit(Callback(then), [0, method, inf, d.id, d.epoch, *args])

    def _touch(self) -> None:
        self._scheduled = True
        self._scheduler.touch(self)

    # ------------------------------------------------------------------ drain

    def drain(self) -> None:
        """Evaluate what is queued, then seal. Called by the scheduler, once per pass."""
        self._scheduled = False
        self.counters.drains += 1
        serving = self._replica.serving()
        if not serving and self._waits_for_lease():
            return  # all stay where they are; looking again before it is known would be spinning
        if serving and self._stands_still():
            return
        queue, self._turns = self._queue, 0
        if len(queue) > DRAIN_REQUESTS_MAX:
            batch, self._queue = queue[:DRAIN_REQUESTS_MAX], queue[DRAIN_REQUESTS_MAX:]
            self._touch()
        else:
            batch, self._queue = queue, []
        if not serving:
            behind, self._behind = self._behind, []
            self._refuse_all(behind + batch, self._not_leader())
            self._count_aside()
            return
        self._confirmed = False
        clock = self._scheduler.clock
        now_ms, now_s = clock.now_ms(), clock.monotonic()
        reads, writes, keys = admit(self.descriptor, batch, now_s, self._refuse)
        traffic = self.traffic
        traffic.reads += len(reads)
        traffic.writes += len(writes)
        traffic.until -= len(keys)
        if traffic.until < 0:
            traffic.sample(keys)
        if len(keys) >= READ_AHEAD_FROM:
            self.view.ahead = read_ahead(self._state.multi_cur, sorted(set(keys)))
        if self._behind_due:
            reads = self._catch_up(now_s) + reads
        if reads:
            self._read_all(reads, now_ms)
        if self._held:
            writes = self._after_held(writes, now_s)
        if writes:
            self._write_all(writes, now_ms)
        self._take_turns(now_ms, now_s)
        self.view.ahead = {}
        self._seal()
        self._count_aside()

    def _take_turns(self, now_ms: int, now_s: float) -> None:
        """What the writes of this drain leave to be done. Whose turn came for a key goes into the
        same entry, with timestamps that are asked for now, behind the release: else a key would
        change hands once in two syncs.
        """
        if self._unsure and self._asked is None:
            self._ask([], 1, now_ms)
        for _ in range(TURNS_MAX):
            if not self._turns or self._held or self._asked is not None:
                return  # the next drain
            items = self._queue[: self._turns]
            del self._queue[: self._turns]
            self._turns = 0
            self._write_all(in_time(items, now_s, self._refuse), now_ms)

    # ------------------------------------------------------------------ becoming another partition

    def reshape(self, make: MakeShape, done: Done) -> None:
        """Change what this partition is (kv.partition.shapes), by an entry of its own: nothing is
        evaluated, and no read served, from before it is made of the applied state until it is
        applied. `done(None)` then, or `done(error)`; it is called once.
        """
        if self._shaping is not None:
            done(shape_under_way(self.descriptor))
        elif not self._replica.serving():
            done(self._not_leader())
        else:
            self._shaping = Shaping(make, done)
            if not self._scheduled:
                self._touch()

    def _stands_still(self) -> bool:
        """Whether nobody is served now: all stay where they are until that is over."""
        shaping = self._shaping
        if shaping is not None and not shaping.flying and self.quiet:
            self._propose_shape(shaping)
        return self._shaping is not None or self._state.frozen is not None

    def _propose_shape(self, shaping: Shaping) -> None:
        try:
            shape = shaping.make()
        except KvorumError as error:
            self._shaped(error)
            return
        shaping.flying = True
        entry = self.view.fly()
        entry.shape = shape
        self.read_point.begin(entry.number, 0)
        try:
            self._replica.propose(encode(shape), entry)
        except KvorumError as error:
            self._lose(error)
            return
        self.counters.entries += 1

    def _shaped(self, error: KvorumError | None) -> None:
        shaping, self._shaping = self._shaping, None
        if shaping is not None:
            shaping.done(error)
        if not self._scheduled:
            self._touch()

    def reshaped(self) -> None:
        """The applied state changed what this partition is: whoever waits for keys that it still
        has goes on waiting, the others are told that they moved. Called on every replica.
        """
        old, new = self.descriptor, self._state.descriptor
        self.descriptor = self.view.descriptor = new
        if new != old:
            self.view.reset()
            self._top_ts = max(self._top_ts, self._state.top_ts)
            self.read_point.top = max(self.read_point.top, self._state.top_ts)
            self._reroute(partial(stays, old, new))
        self._shaped(None)

    def retire(self) -> None:
        """The partition has become part of another: everybody is told that it moved."""
        self._reroute(lambda _request: False)

    def _reroute(self, stay: Callable[[list[Any]], bool]) -> None:
        gone = self.waits.leave(stay)
        for items in (self._queue, self._held, self._behind, self._later, self._unsure):
            gone += [item for item in items if not stay(item[1])]
            items[:] = [item for item in items if stay(item[1])]
        for conn, rid in self.recent.end():
            self._answer(conn, [rid, 1, *to_wire(moved(self.descriptor, 0))])
        self._count_aside()
        for conn, r in gone:
            self._refuse((conn, r), moved(self.covering(r) or self.descriptor, r[4]))

    def _waits_for_lease(self) -> bool:
        """Without a lease, a leader asks the others once before it refuses; this is that time."""
        if not self._confirming:
            if self._confirmed or not self._replica.leads():
                self._confirmed = False
                return False
            self._confirming = True
            self._replica.confirm(self._lease_known)
        return True

    def _lease_known(self) -> None:
        self._confirming, self._confirmed = False, True
        self._touch()

    def _after_held(self, writes: list[Item], now_s: float) -> list[Item]:
        """The writes that may be evaluated now, oldest first: none while there is no room."""
        if not self._room:
            self._held += writes
            return []
        held, self._held = self._held, []
        return in_time(held, now_s, self._refuse) + writes

    # ------------------------------------------------------------------ reads

    def _read_all(self, items: list[Item], now_ms: int) -> None:
        self.counters.reads += len(items)
        state, dirty = self._state, self._scheduler.dirty
        locks, ahead, cur = state.locks.by_key, self.view.ahead, state.cur
        newest_ms = max(now_ms, self._top_ms())
        rows = size = 0
        room = max(self._scheduler.reply_room, DRAIN_REPLY_BYTES_MIN)
        left = iter(items)
        for item in left:
            conn, r = item
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
                    size += self._read(item, newest_ms)
            except KvorumError as error:
                self._refuse(item, error)
            rows += rows_of(r)
            if rows >= DRAIN_ROWS_MAX or size >= room:
                break
        self._scheduler.reply_room -= size
        self.traffic.read_bytes += size
        if rest := list(left):
            self.counters.reads -= len(rest)
            self._behind += rest  # other partitions, heartbeats and syncs want the loop too
            self._wake()

    def _catch_up(self, now_s: float) -> list[Item]:
        """Reads that an earlier drain left, if their connections can take the replies by now."""
        self._behind_due = False
        behind = in_time(self._behind, now_s, self._refuse)
        ready = {conn: conn.ready(self._wake) for conn in dict.fromkeys(conn for conn, _ in behind)}
        self._behind = [item for item in behind if not ready[item[0]]]
        return [item for item in behind if ready[item[0]]]

    def _wake(self) -> None:
        self._behind_due = True
        if not self._scheduled:
            self._touch()

    def _read(self, item: Item, now_ms: int) -> int:
        """The bytes of the answer, 0 if there is none yet."""
        conn, r = item
        if r[1] == AWAIT_CHANGES:
            self._await_changes(item)
            return 0
        read_ts = read_ts_of(r)
        if read_ts > self._known_ts:
            self._unsure.append(item)
            self.counters.reads -= 1  # counted when it is served
            return 0
        if read_ts > self._read_high:
            self._read_high = read_ts
        entry = must_wait(self.view, r, read_ts)
        if entry is None:
            try:
                result = read(self._state, self.recent, r, now_ms)
            except KeyLocked as refusal:
                entry = resolution_in_flight(self.view, refusal)
                if entry is None:
                    raise
            else:
                self._answer(conn, [r[0], 0, *result])
                return bytes_of(r, result)
        self.counters.waited += 1
        entry.parked.append(item)
        return 0

    def _await_changes(self, item: Item) -> None:
        """Answer now, or once something was applied for whoever watches the range."""
        conn, (rid, _, _, _, _, start, end, mark, wait_ms) = item
        self.recent.begin(self._state.top_ts)
        found = self.recent.wait(conn, rid, start, end, mark, wait_ms / 1000)
        if found is not None:
            self._answer(conn, [rid, 0, found])

    def _top_ms(self) -> int:
        """The physical part of the read point: what is expired stays expired when the clock is set
        back.
        """
        return self.read_point.top >> 18

    # ------------------------------------------------------------------ writes

    def _write_all(self, items: list[Item], now_ms: int) -> None:
        items = self._admitted(items)
        if self._asked is not None:
            self._later += [item for item in items if item[1][1] in RISING]
            items = [item for item in items if item[1][1] not in RISING]
            n = 0
        else:
            n = sum(r[1] in NEEDS_TIMESTAMP for _, r in items)
        self.counters.writes += len(items)
        if n:
            self._ask(items, n, now_ms)
        elif items:
            self._evaluate_all(items, 0, None, now_ms)

    def _admitted(self, items: list[Item]) -> list[Item]:
        """Those that this replica can take now; the others are refused."""
        refusal = self._replica.refusal()
        if refusal is not None:
            self._refuse_all(items, refusal)
            return []
        no_room = self._replica.no_room()
        if no_room is not None:
            self._refuse_all([item for item in items if item[1][1] in NEW_WRITES], no_room)
            items = [item for item in items if item[1][1] not in NEW_WRITES]
        return items

    def _evaluate_all(
        self, items: list[Item], ts: int, unavailable: KvorumError | None, now_ms: int
    ) -> None:
        """Evaluate commands in this order; those that need a timestamp get `ts` and the following
        ones, or are refused with `unavailable`.
        """
        parked = self._parked
        for i, item in enumerate(items):
            if self.view.open.size >= ENTRY_TARGET_BYTES:
                self._seal()
                if self.view.open.size >= ENTRY_TARGET_BYTES:
                    self._hold(items[i:])
                    return
            conn, r = item
            if r[1] in NEEDS_TIMESTAMP:
                if unavailable is not None:
                    self._refuse(item, unavailable)
                    continue
                mine, ts = ts, ts + 1
                if parked:
                    if self._among_waiters(item, mine, now_ms):
                        continue
                    self._hold(items[i:])
                    return
                if r[1] == PUT and not r[8] and self._put_plain(conn, r, mine, now_ms):
                    continue
            else:
                mine = 0
            if not self._evaluate(item, mine, now_ms):
                self._hold(items[i:])
                return

    # ------------------------------------------------------------------ timestamps

    def _ask(self, writes: list[Item], n: int, now_ms: int) -> None:
        """One request for what these writes need and for the reads that are not sure of their
        time. An oracle in this process answers within it.
        """
        reads, self._unsure = self._unsure, []
        asked = self._asked = Asked(reads, writes, n)
        self._timestamps.request(n, lambda first, error: self._told(asked, first, error))
        if self._asked is not asked:
            return
        asked.late = True
        if not self._held:
            self._held_bytes = 0
        asked.writes = [item for item in writes if item[1][1] in NEEDS_TIMESTAMP]
        if len(asked.writes) < len(writes):
            rest = [item for item in writes if item[1][1] not in NEEDS_TIMESTAMP]
            self._evaluate_all(rest, 0, None, now_ms)

    def _told(self, asked: Asked, first: int, error: KvorumError | None) -> None:
        """The oracle's answer: `asked.n` timestamps from `first` on, or an error."""
        if asked is not self._asked:
            return  # leadership was lost meanwhile: everybody has been told
        self._asked = None
        clock = self._scheduler.clock
        now_ms = clock.now_ms()
        if not asked.late:
            self._go_on(asked, first, error, now_ms)
            return
        if not self._replica.serving() or self._shaping is not None:  # the drain knows
            self._queue[:0] = asked.reads + asked.writes + self._take_waiting()
            if self._queue and not self._scheduled:
                self._touch()
        else:
            now_s = clock.monotonic()
            asked.reads = in_time(asked.reads, now_s, self._refuse)
            asked.writes = self._admitted(in_time(asked.writes, now_s, self._refuse))
            self._go_on(asked, first, error, now_ms)
            self._ask_again(now_ms, now_s)
            self._seal()
        self._count_aside()

    def _go_on(self, asked: Asked, first: int, error: KvorumError | None, now_ms: int) -> None:
        """Serve what waited for this answer: first the reads, which lie below it, then the
        writes.
        """
        if error is not None:
            self._refuse_all(asked.reads, error)
            self._evaluate_all(asked.writes, 0, error, now_ms)
            return
        self._known_ts = max(self._known_ts, first + asked.n - 1)
        if asked.reads:
            over = []
            for item in asked.reads:
                # A timestamp that is not over yet may get commits below it after it was read.
                if (read_ts := read_ts_of(item[1])) < first:
                    over.append(item)
                else:
                    self._refuse(item, future_read(read_ts, first))
            self._read_all(over, now_ms)
        floor = max(self._read_high, self._top_ts)
        behind = oracle_behind(first, floor) if first <= floor else None
        self._evaluate_all(asked.writes, first, behind, now_ms)

    def _ask_again(self, now_ms: int, now_s: float) -> None:
        """Serve what came while a request was out, or make the next one for it."""
        later, self._later = self._later, []
        unsure, self._unsure = self._unsure, []
        if unsure:
            self._read_all(in_time(unsure, now_s, self._refuse), now_ms)
        if self._held:
            self._held += later  # in the order of arrival
        elif later:
            self._held_bytes = 0
            self._write_all(in_time(later, now_s, self._refuse), now_ms)
        if self._unsure and self._asked is None:
            self._ask([], 1, now_ms)

    def _take_waiting(self) -> list[Item]:
        """What came while a request was out; it waits no more."""
        waiting = self._unsure + self._later
        self._unsure, self._later = [], []
        return waiting

    def _count_aside(self) -> None:
        self._aside = len(self._held) + len(self._behind)
        if (asked := self._asked) is not None:
            self._aside += len(asked.reads) + len(asked.writes)
            self._aside += len(self._later) + len(self._unsure)

    # ------------------------------------------------------------------ one command

    def _put_plain(self, conn: Connection, r: list[Any], ts: int, now_ms: int) -> bool:
        """The hot path of PUT. False: the old record has a time to live or is a tombstone, take the
        long way.
        """
        rid, _, _, _, _, key, value, cond, _ = r
        try:
            row = put_plain(self.view, key, value, cond, ts, now_ms)
        except KvorumError as error:
            self._refuse_seen((conn, r), error)
            return True
        if row is None:
            return False
        entry = self.view.open
        entry.rows.append(row)
        entry.pending[key] = row[1]  # type: ignore[assignment]
        entry.size += len(value) + 2 * len(key) + ROW_OVERHEAD
        if row[3] is not None and len(row[3]) > SHIP_OLD_BYTES_MAX:
            entry.size += len(row[3])
        entry.top_ts = self._top_ts = ts
        if ts < entry.low_ts:
            entry.low_ts = ts
        entry.replies.append((conn, [rid, 0, ts]))
        return True

    def _among_waiters(self, item: Item, ts: int, now_ms: int) -> bool:
        """One write while others wait for keys: behind them, or else in its turn. False: it does
        not fit the open entry, nothing was done.
        """
        if self.waits.joins(item):
            return True
        conn, r = item
        plain_put = r[1] == PUT and not r[8] and self._put_plain(conn, r, ts, now_ms)
        if not plain_put and not self._evaluate(item, ts, now_ms):
            return False
        self.waits.evaluated(r)
        return True

    def _evaluate(self, item: Item, ts: int, now_ms: int) -> bool:
        """Run one command against the evaluated state. False: it does not fit the open entry,
        nothing was done.
        """
        conn, r = item
        m = Mutations()
        try:
            if type(r[1]) is int:
                result = HANDLERS[r[1]](self.view, r, ts, now_ms, m)
            else:
                result = internal.execute(self.view, self.descriptor, r, m)
            size = size_of(m)
            if size > ENTRY_ROOM:
                raise entry_too_large(size, ENTRY_ROOM)
        except KvorumError as error:
            self._refuse_seen(item, error)
            return True
        row = [r[0], 0, *result]
        if m.empty:
            again = r[1] in _PREWRITES and row[3:4] != _EXACT
            self._after_seen(conn, row, prewrite=again)
        elif self.view.open.size + size > ENTRY_ROOM:
            return False
        else:
            self._accept(conn, r, row, m, size)
        if self._parked:
            if r[1] == RESOLVE:
                self.waits.resolved(r[5], r[6], m)
            elif r[1] == FINISH:
                self.waits.finished([row[0] for row in r[5]], m)
            elif r[1] == ROLLBACK and result[0] == ABORTED:
                self.waits.end(r[6])
        return True

    def _accept(
        self, conn: Connection, r: list[Any], row: list[Any], m: Mutations, size: int
    ) -> None:
        entry = self.view.open
        entry.add(m, size)
        if m.locks:
            self.view.add_locks(m.locks)
        if m.guards:
            self.view.add_guards(m.guards)
        self._top_ts = max(self._top_ts, m.top_ts)
        if r[1] in _PREWRITES and row[3:4] != _EXACT:
            entry.prewrites.append(row)
        entry.replies.append((conn, row))

    def _refuse_seen(self, item: Item, error: KvorumError) -> None:
        """Answer a command that was refused; a write that met another transaction waits first."""
        conn, r = item
        if isinstance(error, KeyLocked) and r[1] in NEEDS_TIMESTAMP:
            refusal = self.waits.park(item, error)
            if refusal is None:
                self.counters.writes -= 1  # counted when its turn comes
                return
            error = refusal
        self._after_seen(conn, [r[0], 1, *to_wire(error)])

    def _resume(self, items: list[Item]) -> None:
        """Their turn has come: before everything that waits for the next drain."""
        self._queue[:0] = items
        self._turns += len(items)
        if items and not self._scheduled:
            self._touch()

    def _after_seen(self, conn: Connection, row: list[Any], *, prewrite: bool = False) -> None:
        """Answer a command without effect when everything that it may have seen is applied."""
        view = self.view
        entry = view.flying if view.open.empty else view.open
        if entry is None:
            self._answer(conn, row)
            return
        entry.quiet.append((conn, row))
        if prewrite:  # sent again while its intents are in flight: the same bound holds
            entry.prewrites.append(row)

    def _hold(self, rest: list[Item]) -> None:
        """The open entry is full and the disk busy: the rest waits for the entry in flight."""
        self._held = rest + self._held + self._later
        self._later = []
        self._held_bytes = sum(weight(r) for _, r in self._held)
        self._room = False
        if self.view.flying is None:  # only work filled it (`Evaluated.look`): no entry will land
            self.view.rest()
            self._room = True
            if not self._scheduled:
                self._touch()

    # ------------------------------------------------------------------ log

    def _seal(self) -> None:
        """Propose the open entry, unless one is uncommitted: then more requests join it."""
        view = self.view
        if view.flying is not None or view.open.empty:
            return
        command = view.open.seal()
        self.traffic.write_bytes += len(command)
        entry = view.fly()
        self.read_point.begin(entry.number, entry.top_ts)
        try:
            self._replica.propose(command, entry)
        except KvorumError as error:
            self._lose(error)
            return
        self.counters.entries += 1
        self._replica.prepare(entry)

    def applied(self, entry: Entry) -> None:
        """Our entry is part of the applied state: advance the read point, seal the next, then
        answer.
        """
        self.read_point.complete(entry.number)
        for row in entry.prewrites:
            # Reads served while the intents were in flight ignored them, so the bound is settled
            # now.
            row[2] = max(row[2], self._read_high + 1)
        if self.recent.active:
            self.recent.applied(entry)
        self.view.land(entry)
        self._seal()
        if entry.parked:
            self._queue[:0] = entry.parked
        self._room = True
        if (self._queue or self._held) and not self._scheduled:
            self._touch()
        self._scheduler.after_apply(entry)

    def role(self, *, leader: bool) -> None:
        """Leadership was gained or lost."""
        if leader:
            assert self.view.flying is None, "entries of an earlier term are settled before"
            self.view.reset()
            self.read_point = ReadPoint(self._state.top_ts)
            self._top_ts = max(self._top_ts, self._state.top_ts)
            return
        error = self._not_leader()
        waiting = self._held + self._behind + self._queue + self._take_waiting()
        waiting += self.waits.clear()
        self._held, self._behind, self._queue = [], [], []
        if self._asked is not None:
            waiting += self._asked.reads + self._asked.writes
            self._asked = None
        self._aside = 0
        if self._shaping is not None and not self._shaping.flying:
            self._shaped(error)
        self._refuse_all(waiting, error)
        for conn, rid in self.recent.end():
            self._answer(conn, [rid, 1, *to_wire(error)])
        self._fail(self.view.reset(), error, error)

    def dropped(self, entries: list[Entry], *, unknown: bool) -> None:
        """Proposed entries that get no `applied`: perhaps executed later, if `unknown`."""
        error: KvorumError = self._not_leader()
        if unknown:
            error = unknown_outcome(self.descriptor)
        for entry in entries:
            if self.view.flying is entry:
                self._lose(error)
            else:
                self._fail(entry, error, self._not_leader())

    def give_up(self) -> None:
        """We lead no more and do not hear what became of the entry in flight, perhaps for long:
        answer for it now. It is still ours, and gets its `applied` or `dropped` in the end.
        """
        entry = self.view.flying
        if entry is not None:
            self._fail(entry, unknown_outcome(self.descriptor), self._not_leader())
            entry.replies, entry.quiet, entry.parked, entry.prewrites = [], [], [], []

    def _lose(self, error: KvorumError) -> None:
        """The entry in flight is lost, and with it the one that was evaluated on top of it."""
        retry = self._not_leader()
        lost, on_top = self.view.lose(), self.view.reset()
        self.read_point.forget()
        if lost is not None:
            self._fail(lost, error, error if isinstance(error, TooLarge) else retry)
        self._fail(on_top, retry, retry)
        if self._parked:
            self.waits.wake_all()
        self._room = True
        if self._held and not self._scheduled:
            self._touch()

    def _fail(self, entry: Entry, error: KvorumError, quiet: KvorumError) -> None:
        """`error` to commands with an effect in the entry, `quiet` to those without one and to
        waiting reads.
        """
        if entry.shape is not None:
            self._shaped(error)
        for conn, row in entry.replies:
            self._answer(conn, [row[0], 1, *to_wire(error)])
        for conn, row in entry.quiet:
            self._answer(conn, [row[0], 1, *to_wire(quiet)])
        self._refuse_all(entry.parked, quiet)

    # ------------------------------------------------------------------ answers

    def _answer(self, conn: Connection, row: list[Any]) -> None:
        conn.reply(row)
        self._scheduler.dirty[conn] = None
        self._scheduler.wake()

    def _refuse(self, item: Item, error: KvorumError) -> None:
        self.counters.refused += 1
        if self._parked:
            self.waits.forget(item)
        self._answer(item[0], [item[1][0], 1, *to_wire(error)])

    def _refuse_all(self, items: list[Item], error: KvorumError) -> None:
        self.counters.refused += len(items)
        fields = to_wire(error)
        if self._parked:
            for item in items:
                self.waits.forget(item)
        for conn, r in items:
            self._answer(conn, [r[0], 1, *fields])

    def _refuse_full(
        self, conn: Connection, r: list[Any], what: str, limit: int, actual: int
    ) -> None:
        self._refuse((conn, r), queue_full(self.descriptor, what, limit, actual))

    def _not_leader(self) -> KvorumError:
        return not_leader(self.descriptor, self._replica.leader_hint(), self._members)
