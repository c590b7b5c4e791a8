"""The partition's one door: requests in, log entries and replies out. Sans-IO; every step is
synchronous.

Rules (each has a directed test in tests/partition):
  * evaluation order = log order; the latches of a command are the step in which it is evaluated;
  * the reply of a command leaves when everything that it saw is applied, also if it is a refusal;
  * at most one entry is uncommitted, the next one fills meanwhile; it is sealed when the first is
    applied;
  * commit timestamps are taken once per drain, after every read served so far;
  * reads look only at the applied state, and wait for versions in flight at or below their
    timestamp;
  * a request whose time is up before it was evaluated is not executed; what was proposed and got
    lost is UNKNOWN_OUTCOME.

Sources: HBase's MultiVersionConcurrencyControl and group commit (DESIGN 5); facts on the hot path
are in docs/performance.md. Left out: split and merge, follower reads, wait queues for intents (the
client waits).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    Moved,
    NotLeader,
    TooLarge,
    Unavailable,
    UnknownOutcome,
    from_wire,
    to_wire,
)
from kv.base.limits import (
    DRAIN_REQUESTS_MAX,
    ENTRY_BYTES_MAX,
    ENTRY_TARGET_BYTES,
    KEY_BYTES_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_REQUESTS_MAX,
    VALUE_BYTES_MAX,
    KiB,
)
from kv.base.methods import GET, MGET, PREWRITE, PUT, SCAN
from kv.mvcc.gc import GcCursor, gc_step, set_safepoint
from kv.mvcc.get import newest
from kv.mvcc.view import Mutations
from kv.mvcc.write import put_plain
from kv.partition.entry import ROW_OVERHEAD, Entry, size_of
from kv.partition.evaluated import Evaluated
from kv.partition.ports import Connection, Done, ReplicaPort, Timestamps
from kv.partition.read_point import ReadPoint
from kv.partition.reads import must_wait, read, read_ts_of, resolution_in_flight
from kv.partition.requests import check_request, first_and_last
from kv.partition.scheduler import Callback, Scheduler
from kv.partition.writes import HANDLERS, NEEDS_TIMESTAMP

READ_AHEAD_FROM = 64  # keys in a drain from which one sorted multi-get beats single reads
ENTRY_ROOM = ENTRY_BYTES_MAX - 256 * KiB
READS = frozenset({GET, MGET, SCAN})
_HOT = frozenset({GET, PUT})

Item = tuple[Connection, list[Any]]


@dataclass(slots=True)
class PartitionCounters:
    """Figures since the start. The machine adds per drain or per entry, not per request."""

    reads: int = 0
    writes: int = 0
    entries: int = 0
    refused: int = 0
    waited: int = 0  # reads that had to wait for a version in flight
    drains: int = 0


class _Internal:
    """Methods that only this process can ask for: objects, which no wire can spell."""

    META = object()
    GC = object()


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
    ) -> None:
        self.descriptor = descriptor
        self.counters = PartitionCounters() if counters is None else counters
        self.view = Evaluated(descriptor, replica.state)
        self.read_point = ReadPoint(replica.state.top_ts)
        self._replica, self._state = replica, replica.state
        self._timestamps, self._scheduler = timestamps, scheduler
        self._queue: list[Item] = []
        self._scheduled = False
        self._stalled_bytes: int | None = None  # of the queue, while the open entry is full
        self._read_high = 0  # the highest timestamp that a read was served at
        self._known_ts = 0  # the highest timestamp known to be handed out
        self._top_ts = replica.state.top_ts  # the highest commit timestamp ever evaluated

    # ------------------------------------------------------------------ requests

    def submit(self, conn: Connection, request: list[Any]) -> None:
        """Queue `[rid, method, deadline, partition, epoch, *args]`; the deadline is in seconds of
        the clock's `monotonic` (the dispatcher makes it of the caller's budget). `conn` gets
        exactly one reply row for it, in this pass of the loop or later.
        """
        if len(self._queue) >= QUEUE_REQUESTS_MAX:
            self._refuse_full(conn, request, "requests", QUEUE_REQUESTS_MAX, len(self._queue))
            return
        if self._stalled_bytes is not None:
            size = self._stalled_bytes + _weight(request)
            if size > QUEUE_BYTES_MAX:
                self._refuse_full(conn, request, "bytes", QUEUE_BYTES_MAX, size)
                return
            self._stalled_bytes = size
        elif not self._scheduled:
            self._touch()
        self._queue.append((conn, request))

    def put_meta(self, key: bytes, value: bytes, done: Done) -> None:
        """Store a record of the node's own in family meta, through the log; needs no timestamp.

        `value` is stored as it is: seal it. `done(None)` once it is applied, else `done(error)`.
        """

        def then(row: list[Any]) -> None:
            done(from_wire(row[2:]) if row[1] else None)

        self._internal(_Internal.META, then, key, value)

    def gc(self, safepoint: int, txn_floor: int, done: Done) -> None:
        """Raise the safepoint and collect what lies below it, in bounded steps; `done` after the
        last one.

        `safepoint` must lie below every snapshot that is still wanted; `txn_floor`: see kv.mvcc.gc.
        """

        def step(cursor: GcCursor) -> None:
            self._internal(_Internal.GC, then, safepoint, txn_floor, cursor)

        def then(row: list[Any]) -> None:
            if row[1]:
                done(from_wire(row[2:]))
            elif row[2].done:
                done(None)
            else:
                step(row[2])

        # The walk over old versions costs nothing where none were left (a counter of the replica).
        step(GcCursor(hist=b"" if self._state.old_versions > 0 else None))

    def find_txn(self, start_ts: int) -> bytes | None:
        """The anchor of a transaction whose record is in flight here. (Applied ones: kv.mvcc.find,
        per node.)
        """
        for entry in (self.view.open, self.view.flying):
            if entry is not None:
                for (anchor, ts), record in entry.txns.items():
                    if ts == start_ts and record is not None:
                        return anchor
        return None

    def _internal(self, method: object, then: Callable[[list[Any]], None], *args: Any) -> None:
        d = self.descriptor
        self.submit(Callback(then), [0, method, inf, d.id, d.epoch, *args])

    def _touch(self) -> None:
        self._scheduled = True
        self._scheduler.touch(self)

    # ------------------------------------------------------------------ drain

    def drain(self) -> None:
        """Evaluate what is queued, then seal. Called by the scheduler, once per pass."""
        self._scheduled = False
        self._stalled_bytes = None
        queue = self._queue
        if len(queue) > DRAIN_REQUESTS_MAX:
            batch, self._queue = queue[:DRAIN_REQUESTS_MAX], queue[DRAIN_REQUESTS_MAX:]
            self._touch()
        else:
            batch, self._queue = queue, []
        if not batch:
            return
        self.counters.drains += 1
        if not self._replica.serving():
            self._refuse_all(batch, self._not_leader())
            return
        now_ms = self._scheduler.clock.now_ms()
        reads, writes = self._admit(batch)
        if reads:
            self._read_all(reads, now_ms)
        if writes:
            self._write_all(writes, now_ms)
        self.view.ahead = {}
        self._seal()

    def _admit(self, batch: list[Item]) -> tuple[list[Item], list[Item]]:
        """Refuse what is late, misplaced or malformed; read ahead for the rest."""
        reads: list[Item] = []
        writes: list[Item] = []
        keys: list[bytes] = []
        descriptor = self.descriptor
        epoch, start, end = descriptor.epoch, descriptor.start, descriptor.end
        now_s = self._scheduler.clock.monotonic()
        for item in batch:
            conn, r = item
            try:
                if r[2] <= now_s:
                    raise _too_late(now_s - r[2])
                if r[4] != epoch:
                    raise self._moved(r)
                method = r[1]
                if method in _HOT:
                    key = r[5]
                    if not _plain(r):
                        check_request(r)
                    if not (start <= key and (not end or key < end)):
                        raise self._moved(r)
                    keys.append(key)
                elif type(method) is int:
                    needed = check_request(r)
                    self._check_range(r, needed)
                    keys += needed
            except KvorumError as error:
                self._answer(conn, [r[0], 1, *to_wire(error)])
                continue
            (reads if method in READS else writes).append(item)
        if len(keys) >= READ_AHEAD_FROM:
            unique = sorted(set(keys))
            found = self._state.multi_cur(unique)
            self.view.ahead = dict(zip(unique, found, strict=True))
        return reads, writes

    def _check_range(self, r: list[Any], keys: Any) -> None:
        """Raises Moved unless every key of the request lies in the range."""
        d = self.descriptor
        if r[1] == SCAN:
            inside = r[5] >= d.start and (not d.end or (r[6] != b"" and r[6] <= d.end))
        else:
            outer = first_and_last(r, keys)
            inside = outer is None or (d.covers(outer[0]) and d.covers(outer[1]))
        if not inside:
            raise self._moved(r)

    # ------------------------------------------------------------------ reads

    def _read_all(self, items: list[Item], now_ms: int) -> None:
        self.counters.reads += len(items)
        state, dirty = self._state, self._scheduler.dirty
        locks, ahead, cur = state.locks.by_key, self.view.ahead, state.cur
        newest_ms = max(now_ms, self._top_ms())
        for item in items:
            conn, r = item
            try:
                if r[1] == GET and not r[6] and not locks:
                    key = r[5]
                    record = ahead[key] if key in ahead else cur(key)
                    value, version = newest(key, record, newest_ms)
                    conn.reply([r[0], 0, value, version])
                    dirty[conn] = None
                    continue
                self._read(item, newest_ms)
            except KvorumError as error:
                self._answer(conn, [r[0], 1, *to_wire(error)])

    def _read(self, item: Item, now_ms: int) -> None:
        conn, r = item
        read_ts = read_ts_of(r)
        if read_ts > self._known_ts:
            self._check_future(read_ts)
        if read_ts > self._read_high:
            self._read_high = read_ts
        entry = must_wait(self.view, r, read_ts)
        if entry is None:
            try:
                result = read(self._state, r, now_ms)
            except KeyLocked as refusal:
                entry = resolution_in_flight(self.view, refusal)
                if entry is None:
                    raise
            else:
                self._answer(conn, [r[0], 0, *result])
                return
        self.counters.waited += 1
        entry.parked.append(item)

    def _check_future(self, read_ts: int) -> None:
        """A snapshot that is not over yet could change after it was read: later commits may be
        below it.
        """
        self._known_ts = self._timestamps(1)
        if read_ts > self._known_ts:
            raise InvalidArgument(
                f"read timestamp {read_ts} lies in the future (now {self._known_ts}); "
                "read at a timestamp that the oracle has handed out, or at 0 for the newest",
                details={"at": read_ts, "now": self._known_ts},
            )

    def _top_ms(self) -> int:
        """The physical part of the read point: what is expired stays expired when the clock is set
        back.
        """
        return self.read_point.top >> 18

    # ------------------------------------------------------------------ writes

    def _write_all(self, items: list[Item], now_ms: int) -> None:
        refusal = self._replica.refusal()
        if refusal is not None:
            self._refuse_all(items, refusal)
            return
        self.counters.writes += len(items)
        n = sum(r[1] in NEEDS_TIMESTAMP for _, r in items)
        ts, unavailable = 0, None
        if n:
            try:
                ts = self._take(n)
            except KvorumError as error:
                unavailable = error
        for i, item in enumerate(items):
            if self.view.open.size >= ENTRY_TARGET_BYTES:
                self._seal()
                if self.view.open.size >= ENTRY_TARGET_BYTES:
                    self._stall(items[i:])
                    return
            conn, r = item
            if r[1] in NEEDS_TIMESTAMP:
                if unavailable is not None:
                    self._answer(conn, [r[0], 1, *to_wire(unavailable)])
                    continue
                mine, ts = ts, ts + 1
                if r[1] == PUT and not r[8] and self._put_plain(conn, r, mine, now_ms):
                    continue
            else:
                mine = 0
            if not self._evaluate(item, mine, now_ms):
                self._stall(items[i:])
                return

    def _take(self, n: int) -> int:
        """The first of n fresh timestamps, above every read served and every version written.
        Raises Unavailable.
        """
        first = self._timestamps(n)
        floor = max(self._read_high, self._top_ts)
        if first <= floor:
            raise Unavailable(
                f"the timestamp oracle answered {first}, but {floor} was in use already; "
                "wait until its clock has caught up",
                details={"first": first, "floor": floor},
            )
        self._known_ts = max(self._known_ts, first + n - 1)
        return first

    def _put_plain(self, conn: Connection, r: list[Any], ts: int, now_ms: int) -> bool:
        """The hot path of PUT. False: the old record has a time to live or is a tombstone, take the
        long way.
        """
        rid, _, _, _, _, key, value, cond, _ = r
        try:
            row = put_plain(self.view, key, value, cond, ts, now_ms)
        except KvorumError as error:
            self._after_seen(conn, [rid, 1, *to_wire(error)])
            return True
        if row is None:
            return False
        entry = self.view.open
        entry.rows.append(row)
        entry.pending[key] = row[1]  # type: ignore[assignment]
        entry.size += len(value) + 2 * len(key) + ROW_OVERHEAD
        entry.top_ts = self._top_ts = ts
        if ts < entry.low_ts:
            entry.low_ts = ts
        entry.replies.append((conn, [rid, 0, ts]))
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
                result = self._internal_command(r, m)
            size = size_of(m)
            if size > ENTRY_ROOM:
                raise TooLarge(
                    f"the command needs {size} bytes in the log, at most {ENTRY_ROOM}; "
                    "nothing was done. Split it",
                    details={"what": "log entry bytes", "limit": ENTRY_ROOM, "actual": size},
                )
        except KvorumError as error:
            self._after_seen(conn, [r[0], 1, *to_wire(error)])
            return True
        row = [r[0], 0, *result]
        if m.empty:
            self._after_seen(conn, row)
            return True
        if self.view.open.size + size > ENTRY_ROOM:
            return False
        self._accept(conn, r, row, m)
        return True

    def _accept(self, conn: Connection, r: list[Any], row: list[Any], m: Mutations) -> None:
        entry = self.view.open
        entry.add(m)
        if m.locks:
            self.view.add_locks(m.locks)
        self._top_ts = max(self._top_ts, m.top_ts)
        if r[1] == PREWRITE:
            entry.prewrites.append(row)
        entry.replies.append((conn, row))

    def _internal_command(self, r: list[Any], m: Mutations) -> list[Any]:
        if r[1] is _Internal.META:
            m.others.append(("meta", r[5], r[6]))
            return [True]
        safepoint, txn_floor, cursor = r[5:]
        set_safepoint(self.view, safepoint, m)
        if m.safepoint:
            # A step of its own: nothing is collected under a safepoint that is not in the log yet.
            return [cursor]
        d = self.descriptor
        return [gc_step(self.view, d.start, d.end, cursor, txn_floor=txn_floor, m=m)]

    def _after_seen(self, conn: Connection, row: list[Any]) -> None:
        """Answer a command without effect when everything that it may have seen is applied."""
        view = self.view
        if not view.open.empty:
            view.open.quiet.append((conn, row))
        elif view.flying is not None:
            view.flying.quiet.append((conn, row))
        else:
            self._answer(conn, row)

    def _stall(self, rest: list[Item]) -> None:
        """The open entry is full and the disk busy: the rest waits in front of the queue."""
        self._queue[:0] = rest
        self._stalled_bytes = sum(_weight(r) for _, r in self._queue)

    # ------------------------------------------------------------------ log

    def _seal(self) -> None:
        """Propose the open entry, unless one is uncommitted: then more requests join it."""
        view = self.view
        if view.flying is not None or view.open.empty:
            return
        command = view.open.seal()
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
        self.view.land(entry)
        self._seal()
        if entry.parked:
            self._queue[:0] = entry.parked
        if self._queue and not self._scheduled:
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
        queue, self._queue = self._queue, []
        self._stalled_bytes = None
        self._refuse_all(queue, error)
        self._fail(self.view.reset(), error, error)

    def dropped(self, entries: list[Entry], *, unknown: bool) -> None:
        """Proposed entries that get no `applied`: perhaps executed later, if `unknown`."""
        error: KvorumError = self._not_leader()
        if unknown:
            error = UnknownOutcome(
                f"partition {self.descriptor.id}: leadership was lost before the command was "
                "confirmed; it may or may not be executed. Ask for its status, or read the keys"
            )
        for entry in entries:
            if self.view.flying is entry:
                self._lose(error)
            else:
                self._fail(entry, error, self._not_leader())

    def _lose(self, error: KvorumError) -> None:
        """The entry in flight is lost, and with it the one that was evaluated on top of it."""
        retry = self._not_leader()
        lost, on_top = self.view.lose(), self.view.reset()
        self.read_point.forget()
        if lost is not None:
            self._fail(lost, error, error if isinstance(error, TooLarge) else retry)
        self._fail(on_top, retry, retry)

    def _fail(self, entry: Entry, error: KvorumError, quiet: KvorumError) -> None:
        """`error` to commands with an effect in the entry, `quiet` to those without one and to
        waiting reads.
        """
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

    def _refuse_all(self, items: list[Item], error: KvorumError) -> None:
        self.counters.refused += len(items)
        fields = to_wire(error)
        for conn, r in items:
            self._answer(conn, [r[0], 1, *fields])

    def _refuse_full(
        self, conn: Connection, r: list[Any], what: str, limit: int, actual: int
    ) -> None:
        self.counters.refused += 1
        error = Busy(
            f"partition {self.descriptor.id}: {actual} {what} are queued, at most {limit}; "
            "nothing was done. Send again a little later",
            details={"what": what, "limit": limit, "actual": actual, "retry_after_ms": 50},
        )
        self._answer(conn, [r[0], 1, *to_wire(error)])

    def _not_leader(self) -> NotLeader:
        leader = self._replica.leader_hint()
        where = "none is known" if leader is None else f"ask node {leader}"
        return NotLeader(
            f"partition {self.descriptor.id}: this node does not lead it ({where})",
            details={"leader": leader},
        )

    def _moved(self, r: list[Any]) -> Moved:
        d = self.descriptor
        return Moved(
            f"partition {d.id} has epoch {d.epoch} and serves [{d.start[:32]!r}, {d.end[:32]!r}); "
            f"the request was for epoch {r[4]!r:.20} or other keys. Look the key up again",
            details={"descriptor": d.to_wire()},
        )


def _plain(r: list[Any]) -> bool:
    """Whether a GET or PUT is well formed, for the usual cases; whatever else goes through
    `check_request`.
    """
    if r[1] == GET:
        return (
            len(r) == 8
            and type(r[5]) is bytes
            and len(r[5]) <= KEY_BYTES_MAX
            and r[6] == 0
            and r[7] is None
        )
    return (
        len(r) == 9
        and type(r[5]) is bytes
        and len(r[5]) <= KEY_BYTES_MAX
        and type(r[6]) is bytes
        and len(r[6]) <= VALUE_BYTES_MAX
        and r[7] is None
        and r[8] == 0
    )


def _too_late(late_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the request's time was over {late_s * 1000:.0f} ms before its turn came; "
        "it was not executed. Send again with more time, or less at once"
    )


def _weight(r: list[Any]) -> int:
    """About how many bytes a queued request holds."""
    size = 0
    for arg in r[5:]:
        if isinstance(arg, bytes):
            size += len(arg)
        elif isinstance(arg, list):
            for op in arg:
                fields = op if isinstance(op, list) else (op,)
                size += sum(len(f) for f in fields if isinstance(f, bytes)) + 64
    return size + 64
