"""The partition's one door: requests in, log entries and replies out. Sans-IO; every step is
synchronous.

    submit ─▶ queue ─ drain ─▶ Reader ── reads of the applied state (reader.py)
                        └────▶ Evaluator ── commands into the open entry (evaluator.py)
                                  └─▶ Flight ── sealed, in the log, applied or lost (flight.py)

The machine owns the order of everything, and whoever waits: for a drain, for room, for the oracle,
for a lease, for the partition to become another one.

Rules (each has a directed test in tests/kv/partition; more of them where they are kept, see above)
  * evaluation order = log order; a drain serves its reads before its writes;
  * commit timestamps are asked for once per drain, after its commands arrived and after every read
    served so far. The answer may come later, while a sync runs (kv/partition/timestamps.py); until
    then nothing else that writes versions is evaluated, and no read above the highest timestamp
    that is known to be handed out, so that no read is above a timestamp that is on its way;
  * no timestamp that a command claims is believed before the oracle has given it out (claims.py);
    a hybrid clock is moved above it instead, or the command is refused;
  * writes that find no room are held, in the order of arrival, until an entry lands or is lost;
  * a request whose time is up before it was evaluated is not executed;
  * whoever waits when the leadership ends, or when his keys move, gets an error that says so.

Sources: HBase's MultiVersionConcurrencyControl and group commit; facts on the hot path are in
docs/performance.md. What a replica answers that does not lead: replica_reads.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from math import inf
from operator import not_

from kv.base.descriptors import PartitionDescriptor
from kv.base.disk_space import goes_on
from kv.base.errors import KvorumError, to_wire
from kv.base.limits import (
    DRAIN_REQUESTS_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_REQUESTS_MAX,
)
from kv.base.members import Alone, Members
from kv.base.methods import FENCED, FRESH_READS, NEEDS_TIMESTAMP, NEW_WRITES, RISING
from kv.base.ports import Timers
from kv.base.timestamps import MAX
from kv.base.waits import Waits
from kv.feed.recent import Budget, Recent
from kv.mvcc.gc import Due, OldVersions
from kv.partition import internal_commands
from kv.partition.admission import Item, admit, by_turns, in_time, read_ahead
from kv.partition.answers import (
    future_claim,
    future_read,
    moved,
    oracle_behind,
    queue_full,
    shape_under_way,
)
from kv.partition.claims import CLAIMING, claimed, claims_above, said
from kv.partition.counters import PartitionCounters
from kv.partition.entry import Entry
from kv.partition.evaluated_state import Evaluated
from kv.partition.evaluator import Evaluator
from kv.partition.flight import Flight
from kv.partition.ports import Connection, Done, ReplicaPort, Timestamps
from kv.partition.read_point import ReadPoint
from kv.partition.reader import Reader
from kv.partition.reads import read_ts_of, read_ts_said
from kv.partition.replica_reads import ReplicaReads
from kv.partition.replies import Replies
from kv.partition.requests import weight
from kv.partition.reshaping import MakeShape, Shaping, stays
from kv.partition.scheduler import Callback, Scheduler
from kv.partition.statistics import Traffic
from kv.partition.timestamps import Asked
from kv.partition.waits import Waiting

TURNS_MAX = 16  # of those who waited for a key, one after the other in a drain
READ_AHEAD_FROM = 64  # keys in a drain from which one sorted multi-get beats single reads


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
        self.traffic = Traffic(descriptor.id)  # of this replica, while it leads
        self._replica, self._state = replica, replica.state
        self._timestamps, self._scheduler = timestamps, scheduler
        self._hybrid, self._step = timestamps.hybrid, timestamps.step
        self._replies = replies = Replies(
            self.view, replica, scheduler, self.counters, members or Alone()
        )
        self.recent = Recent(timers, feed_budget, replies.answer)  # for those who watch
        self._reader = Reader(
            replica.state,
            self.view,
            replies,
            scheduler=scheduler,
            counters=self.counters,
            traffic=self.traffic,
            recent=self.recent,
            touch=self._wanted,
        )
        self._replica_reads = ReplicaReads(
            replica,
            self._reader,
            replies,
            scheduler=scheduler,
            timers=timers,
            counters=self.counters,
        )
        self._flight = Flight(
            self.view,
            replica,
            replies,
            self._reader,
            counters=self.counters,
            traffic=self.traffic,
            recent=self.recent,
            freed=self._freed,
            shaped=self._shaped,
        )
        self._evaluator = Evaluator(
            self.view,
            replies,
            top_ts=replica.state.top_ts,
            seal=self._flight.seal,
            counters=self.counters,
            scheduler=scheduler,
            step=self._step,
        )
        self.waits = Waiting(
            self.view, scheduler, waits, resume=self._resume, answer=self._evaluator.after_seen
        )
        replies.waits = self._evaluator.waits = self.waits
        self._queue: list[Item] = []
        self._scheduled = False
        self._drains = 0
        self._confirming = self._confirmed = False  # whether we lead, while there is no lease
        self._newborn = False  # its first leader is being elected: this replica, most likely
        self._held: list[Item] = []  # writes that do not fit the open entry while another one flies
        self._held_bytes = 0  # of them and of what was queued since
        self._room = False  # an entry landed since they were held
        self._turns = 0  # of the queue's head: whose turn came in this drain
        self._asked: Asked | None = None  # a request for timestamps is out
        self._later: list[Item] = []  # writes that came since; they need younger ones
        self._aside = 0  # how many wait somewhere else than in the queue
        self._shaping: Shaping | None = None  # what changes this partition now
        self._left: list[Item] = []  # of a drain that broke: nobody has taken them
        self._mending = False  # it broke: nothing is evaluated until nothing is in flight
        # Which partition of this node has the keys of a request; the manager knows.
        self.covering: Callable[[list[object]], PartitionDescriptor | None] = lambda _request: None

    # ------------------------------------------------------------------ requests

    @property
    def waiting(self) -> int:
        """Requests that were not evaluated yet."""
        return len(self._queue) + self._aside

    @property
    def undrained(self) -> int:
        """The number of the drain that is due in this pass of the loop, 0 if none is."""
        return self._drains + 1 if self._scheduled else 0

    @property
    def quiet(self) -> bool:
        """Whether all that was evaluated is applied."""
        return self.view.flying is None and self.view.open.empty and self._asked is None

    def submit(self, conn: Connection, request: list[object]) -> None:
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
        internal_commands.put_meta(self._internal, key, value, done)

    def raise_safepoint(self, safepoint: int, done: Done) -> None:
        """Refuse reads below it from now on, if it is higher than the one in force. It must lie
        below every snapshot that is held, and below what the oracle has handed out
        (tso/safepoint.py sees to both).
        """
        internal_commands.raise_safepoint(self._internal, safepoint, done)

    def collect(self, step: OldVersions | Due, done: internal_commands.Reported) -> None:
        """One bounded step under the safepoint in force: `done(what it did)`, or `done(error)`.

        Raise the safepoint first and wait for that: nothing is collected under one that is not in
        the log yet.
        """
        internal_commands.collect_step(self._internal, step, done)

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

    def _internal(self, method: object, then: internal_commands.Then, *args: object) -> None:
        d = self.descriptor
        self.submit(Callback(then, self._scheduler.faults), [0, method, inf, d.id, d.epoch, *args])

    @property
    def awaits_log(self) -> bool:
        """Whether somebody waits here until more of the leader's log is applied (`look_again`)."""
        return bool(self._replica_reads.waiting)

    def look_again(self) -> None:
        """More of it is."""
        self._wanted()

    @property
    def closed_ts(self) -> int:
        """The highest timestamp that this replica has answered at while it did not lead."""
        return self._replica_reads.closed_ts

    @property
    def read_point(self) -> ReadPoint:
        """Up to which commit timestamp the applied state is complete."""
        return self._flight.read_point

    def _wanted(self) -> None:
        """There is something to drain."""
        if not self._scheduled:
            self._touch()

    def _touch(self) -> None:
        self._scheduled = True
        self._scheduler.touch(self)

    # ------------------------------------------------------------------ drain

    def drain(self) -> None:
        """Evaluate what is queued, then seal. Called by the scheduler, once per pass."""
        self._scheduled = False
        self._drains += 1
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
            self._replica_reads.serve(batch)
            self._count_aside()
            self._aside += len(self._replica_reads.waiting)
            return
        self._confirmed = False
        clock = self._scheduler.clock
        now_ms, now_s = clock.now_ms(), clock.monotonic()
        left: tuple[list[Item], ...] = ()
        try:
            reads, writes, keys = admit(
                self.descriptor, batch, now_s, self._replies.refuse, self._scheduler.faults
            )
            left = reads, writes
            traffic = self.traffic
            traffic.reads += len(reads)
            traffic.writes += len(writes)
            traffic.until -= len(keys)
            if traffic.until < 0:
                traffic.sample(keys)
            between = self._scheduler.between
            between()
            if len(keys) >= READ_AHEAD_FROM:
                self.view.ahead = read_ahead(self._state.multi_cur, sorted(set(keys)))
            if self._reader.behind_due:
                reads = self._reader.catch_up(now_s) + reads
            left = (writes,)
            if reads:
                self._serve(reads, now_ms)
            if self._held:
                writes = self._after_held(writes, now_s)
            left = ()
            if writes:
                self._write_all(writes, now_ms)
            self._take_turns(now_ms, now_s)
            self.view.ahead = {}
            between()
            self._flight.seal()
            self._count_aside()
        except Exception:
            self._left = [item for items in left for item in items]
            raise

    def _take_turns(self, now_ms: int, now_s: float) -> None:
        """What the writes of this drain leave to be done. Whose turn came for a key goes into the
        same entry, with timestamps that are asked for now, after the release: else a key would
        change hands once in two syncs.
        """
        if self._reader.unsure and self._asked is None:
            self._ask([], 1, now_ms)
        for _ in range(TURNS_MAX):
            if not self._turns or self._held or self._asked is not None:
                return  # the next drain
            items = self._queue[: self._turns]
            del self._queue[: self._turns]
            self._turns = 0
            self._write_all(in_time(items, now_s, self._replies.refuse), now_ms)

    # ------------------------------------------------------------------ becoming another partition

    def reshape(self, make: MakeShape, done: Done) -> None:
        """Change what this partition is (kv.partition.shapes), by an entry of its own: nothing is
        evaluated, and no read served, from before it is made of the applied state until it is
        applied. `done(None)` then, or `done(error)`; it is called once.
        """
        if self._shaping is not None:
            done(shape_under_way(self.descriptor))
        elif not self._replica.serving():
            done(self._replies.not_leader())
        else:
            self._shaping = Shaping(make, done)
            if not self._scheduled:
                self._touch()

    def _stands_still(self) -> bool:
        """Whether nobody is served now: all stay where they are until that is over."""
        shaping = self._shaping
        if self._mending and self.view.flying is None:
            self._mending = False
            self.view.reset()
        elif shaping is not None and not shaping.flying and self.quiet:
            self._propose_shape(shaping)
        return self._mending or self._shaping is not None or self._state.frozen is not None

    def _propose_shape(self, shaping: Shaping) -> None:
        try:
            shape = shaping.make()
        except KvorumError as error:
            self._shaped(error)
            return
        shaping.flying = True
        self._flight.propose_shape(shape)

    def _shaped(self, error: KvorumError | None) -> None:
        shaping, self._shaping = self._shaping, None
        if shaping is not None:
            shaping.done(error)
        if not self._scheduled:
            self._touch()

    def reshaped(self) -> None:
        """The applied state changed what this partition is: whoever waits for keys that it still
        has goes on waiting, the others are answered that they moved. Called on every replica.
        """
        old, new = self.descriptor, self._state.descriptor
        self.descriptor = self.view.descriptor = new
        if new != old:
            self.view.reset()
            self._evaluator.top_ts = max(self._evaluator.top_ts, self._state.top_ts)
            self.read_point.top = max(self.read_point.top, self._state.top_ts)
            self._begin_above()
            self._reroute(partial(stays, old, new))
        self._shaped(None)

    def rows_moved(self) -> None:
        """They lie in another storage shard now."""
        self.descriptor = self._state.descriptor
        self.view.rows_moved(self._state.descriptor)

    def retire(self) -> None:
        """The partition has become part of another: everybody is answered that it moved."""
        self._reroute(lambda _request: False)

    def _reroute(self, stay: Callable[[list[object]], bool]) -> None:
        gone = self.waits.leave(stay)
        for items in (
            self._queue,
            self._held,
            self._reader.behind,
            self._later,
            self._reader.unsure,
            self._replica_reads.waiting,
        ):
            gone += [item for item in items if not stay(item[1])]
            items[:] = [item for item in items if stay(item[1])]
        for conn, rid in self.recent.end():
            self._replies.answer(conn, [rid, 1, *to_wire(moved(self.descriptor, 0))])
        self._count_aside()
        for conn, r in gone:
            self._replies.refuse((conn, r), moved(self.covering(r) or self.descriptor, r[4]))

    def _waits_for_lease(self) -> bool:
        """Without a lease, a leader asks the others once before it refuses; this is that time."""
        if self._newborn and not self._replica.leads():
            return True
        if not self._confirming:
            if self._confirmed or not self._replica.leads():
                self._confirmed = False
                return False
            self._confirming = True
            self._replica.confirm(self._lease_known)
        return True

    def wait_for_leader(self, *, waits: bool) -> None:
        """Of a partition that was split off here: whether requests wait while nobody leads it."""
        self._newborn = waits
        if not waits and self._queue and not self._scheduled:
            self._touch()

    def _lease_known(self) -> None:
        self._confirming, self._confirmed = False, True
        self._touch()

    def _after_held(self, writes: list[Item], now_s: float) -> list[Item]:
        """The writes that may be evaluated now, in turns: none while there is no room."""
        if not self._room:
            self._held += writes
            return []
        held, self._held = self._held, []
        return by_turns(in_time(held, now_s, self._replies.refuse) + writes)

    # ------------------------------------------------------------------ writes

    def _write_all(self, items: list[Item], now_ms: int) -> None:
        items = self._admitted(items)
        if self._hybrid:
            items = self._heard(items, said)
        n, known = 0, MAX
        for _, r in items:
            if r[1] in NEEDS_TIMESTAMP:
                n += 1
            elif r[1] in CLAIMING:
                known = self._timestamps.known
        doubted = known < MAX and any(claims_above(r, known) for _, r in items)
        if self._asked is not None:
            wait = [r[1] in RISING or claims_above(r, known) for _, r in items]
            self._later += compress(items, wait)
            items = list(compress(items, map(not_, wait)))
            n, doubted = 0, False
        self.counters.writes += len(items)
        if n or doubted:
            self._ask(items, n or 1, now_ms, known)
        elif items:
            self._evaluate(items, 0, None, now_ms)

    def _admitted(self, items: list[Item]) -> list[Item]:
        """Those that this replica can take now; the others are refused."""
        refusal = self._replica.refusal()
        if refusal is not None:
            self._replies.refuse_all(items, refusal)
            return []
        no_room = self._replica.no_room()
        if no_room is not None:
            taken = [r[1] not in NEW_WRITES or goes_on(no_room, r) for _, r in items]
            self._replies.refuse_all(list(compress(items, map(not_, taken))), no_room)
            items = list(compress(items, taken))
        return items

    # ------------------------------------------------------------------ timestamps

    def _ask(self, writes: list[Item], n: int, now_ms: int, known: int = MAX) -> None:
        """One request for what these writes need and for the reads that are not sure of their
        time. An oracle in this process answers within it. `known`: above it no claim is believed
        before the answer is there.
        """
        reads, self._reader.unsure = self._reader.unsure, []
        if self._hybrid:
            reads = self._heard(reads, read_ts_said)
        asked = self._asked = Asked(reads, writes, n, doubted=known < MAX)
        self._timestamps.request(asked.n, lambda first, error: self._answered(asked, first, error))
        if self._asked is not asked:
            return
        asked.late = True
        if not self._held:
            self._held_bytes = 0
        wait = [r[1] in NEEDS_TIMESTAMP or claims_above(r, known) for _, r in writes]
        asked.writes = list(compress(writes, wait))
        if len(asked.writes) < len(writes):
            self._evaluate(list(compress(writes, map(not_, wait))), 0, None, now_ms)

    def _heard(self, items: list[Item], said: Callable[[list[object]], int]) -> list[Item]:
        """Those whose timestamps this node's clock takes: it is above them from now on."""
        hear = self._timestamps.hear
        errors = [hear(ts) if (ts := said(r)) else None for _, r in items]
        for item, error in zip(items, errors, strict=True):
            if error is not None:
                self._replies.refuse(item, error)
        return list(compress(items, map(not_, errors)))

    def _answered(self, asked: Asked, first: int, error: KvorumError | None) -> None:
        """The oracle's answer: `asked.n` timestamps from `first` on, or an error. It comes within
        a drain, or out of the blue.
        """
        if asked is not self._asked:
            return  # leadership was lost meanwhile: everybody has been answered
        if not asked.late:
            self._asked = None
            self._go_on(asked, first, error, self._scheduler.clock.now_ms())
            return
        try:
            self._answered_late(asked, first, error)
        except Exception as broken:  # noqa: BLE001 - the boundary of a pass, as in Scheduler.run
            self._scheduler.break_off(self, broken)

    def _answered_late(self, asked: Asked, first: int, error: KvorumError | None) -> None:
        self._asked = None
        clock = self._scheduler.clock
        now_ms = clock.now_ms()
        if not self._replica.serving() or self._shaping is not None:  # the drain knows
            self._queue[:0] = asked.reads + asked.writes + self._take_waiting()
            if self._queue and not self._scheduled:
                self._touch()
        else:
            now_s = clock.monotonic()
            asked.reads = in_time(asked.reads, now_s, self._replies.refuse)
            asked.writes = self._admitted(in_time(asked.writes, now_s, self._replies.refuse))
            self._go_on(asked, first, error, now_ms)
            self._ask_again(now_ms, now_s)
            self._flight.seal()
        self._count_aside()

    def _go_on(self, asked: Asked, first: int, error: KvorumError | None, now_ms: int) -> None:
        """Serve what waited for this answer: first the reads, which lie below it, then the
        writes.
        """
        if error is not None:
            self._replies.refuse_all(asked.reads, error)
            self._believe(asked, self._timestamps.known, error)
            self._evaluate(asked.writes, 0, error, now_ms)
            return
        last = first + (asked.n - 1) * self._step
        self._reader.known_ts = max(self._reader.known_ts, last)
        high = self._reader.high
        if not asked.outdated:
            self.view.recorded.heard(first if first > high else high)
        if asked.reads:
            self._serve(self._dated(asked.reads, first), now_ms)
            first += asked.fresh * self._step
        floor = max(self._reader.high, self._evaluator.top_ts)
        behind = oracle_behind(first, floor, hybrid=self._hybrid) if first <= floor else None
        self._believe(asked, first - 1, behind)
        self._evaluate(asked.writes, first, behind, now_ms)

    def _believe(self, asked: Asked, known: int, error: KvorumError | None) -> None:
        """Leave those that claim a timestamp above `known` out; they are refused, with `error` if
        it could not be found out.
        """
        if not asked.doubted:
            return
        beyond = [claims_above(r, known) for _, r in asked.writes]
        for item in compress(asked.writes, beyond):
            self._replies.refuse(item, error or future_claim(claimed(item[1]), known))
        asked.writes = list(compress(asked.writes, map(not_, beyond)))

    def _dated(self, reads: list[Item], first: int) -> list[Item]:
        """Those that may be served now that `first` and the following ones were handed out: each
        FRESH_READS gets one of them. The writes' ones lie above, so no commit comes below a read.
        """
        over, fresh = [], first
        for item in reads:
            r = item[1]
            if (read_ts := read_ts_of(r)) == MAX and r[1] in FRESH_READS:
                r[6], fresh = fresh, fresh + self._step
            elif read_ts >= first:
                # A timestamp that is not over yet may get commits below it after it was read.
                self._replies.refuse(item, future_read(read_ts, first))
                continue
            over.append(item)
        return over

    def _ask_again(self, now_ms: int, now_s: float) -> None:
        """Serve what came while a request was out, or make the next one for it."""
        later, self._later = self._later, []
        unsure, self._reader.unsure = self._reader.unsure, []
        if unsure:
            self._serve(in_time(unsure, now_s, self._replies.refuse), now_ms)
        if self._held:
            self._held += later  # in the order of arrival
        elif later:
            self._held_bytes = 0
            self._write_all(in_time(later, now_s, self._replies.refuse), now_ms)
        if self._reader.unsure and self._asked is None:
            self._ask([], 1, now_ms)

    def _take_waiting(self) -> list[Item]:
        """What came while a request was out; it waits no more."""
        waiting = self._reader.unsure + self._later
        self._reader.unsure, self._later = [], []
        return waiting

    def _count_aside(self) -> None:
        self._aside = len(self._held) + len(self._reader.behind)
        if (asked := self._asked) is not None:
            self._aside += len(asked.reads) + len(asked.writes)
            self._aside += len(self._later) + len(self._reader.unsure)

    # ------------------------------------------------------------------ serving, evaluating

    def _resume(self, items: list[Item]) -> None:
        """Their turn has come: before everything that waits for the next drain."""
        self._queue[:0] = items
        self._turns += len(items)
        if items and not self._scheduled:
            self._touch()

    def _serve(self, items: list[Item], now_ms: int) -> None:
        self._reader.serve(items, max(now_ms, self._flight.read_point.top >> 18))

    def _evaluate(
        self, items: list[Item], ts: int, unavailable: KvorumError | None, now_ms: int
    ) -> None:
        """See Evaluator; what finds no room is held."""
        if rest := self._evaluator.evaluate(items, ts, unavailable, now_ms):
            self._hold(rest)

    def _freed(self) -> None:
        if self._asked is not None:
            self._asked.outdated = True
        self._room = True
        if self._held or self._mending:
            self._wanted()

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

    def applied(self, entry: Entry) -> None:
        """Our entry is part of the applied state: advance the read point, seal the next, then
        answer.
        """
        self._scheduler.between()
        try:
            self._flight.applied(entry)
        except Exception as error:  # noqa: BLE001 - the boundary: it is applied, whatever comes of it
            if self.view.flying is entry:
                self._flight.land(entry)
            self._scheduler.break_off(self, error)
        self._scheduler.between()
        if entry.parked:
            self._queue[:0] = entry.parked
        self._room = True
        if (self._queue or self._held) and not self._scheduled:
            self._touch()
        self._scheduler.after_apply(entry)

    def dropped(self, entries: list[Entry], *, unknown: bool) -> None:
        """Proposed entries that get no `applied`: perhaps executed later, if `unknown`."""
        self._flight.dropped(entries, unknown=unknown)

    def give_up(self) -> None:
        """We lead no more and do not hear what became of the entry in flight, perhaps for long."""
        self._flight.give_up()

    def role(self, *, leader: bool) -> None:
        """Leadership was gained or lost."""
        if leader:
            assert self.view.flying is None, "entries of an earlier term are settled before"
            self.view.reset()
            self._flight.read_point = ReadPoint(self._state.top_ts)
            self._evaluator.top_ts = max(self._evaluator.top_ts, self._state.top_ts)
            self._begin_above()
            self._queue[:0] = self._replica_reads.release()
            if self._queue:
                self._wanted()
            return
        self._dismiss(self._replies.not_leader())

    def _begin_above(self) -> None:
        """Another leader may have served reads of these keys: an oracle's next timestamp is above
        them, a hybrid clock's is when it has passed its `floor`.
        """
        if self._hybrid:
            floor = self._timestamps.floor(self._state.top_ts)
            self._reader.high = max(self._reader.high, floor)

    def broke(self, error: KvorumError) -> None:
        """See Drained. What broke it is answered with `error`; all others, of whom nothing is in
        the log, are answered to ask again. It goes on with what is applied, once nothing is in
        flight.
        """
        met, self._evaluator.left = self._evaluator.left, []
        left, self._left = self._left + met[1:], []
        answered = self.view.open.replies[-1:]  # it broke after the verb: it is one of the entry's
        if met and (met[0][0], met[0][1][0]) not in [(conn, row[0]) for conn, row in answered]:
            self._replies.refuse(met[0], error)
        self._replies.refuse_all(left, self._replies.not_leader())
        queue, self._queue = self._queue, []
        self._dismiss(self._replies.not_leader())
        self._queue = queue
        self.view.ahead = {}
        self._mending = True
        self._wanted()

    def _dismiss(self, error: KvorumError) -> None:
        """Answer everybody who waits, and forget the open entry. The one in flight stays."""
        waiting = self._held + self._reader.behind + self._queue + self._take_waiting()
        waiting += self.waits.clear()
        self._held, self._reader.behind, self._queue = [], [], []
        if self._asked is not None:
            waiting += self._asked.reads + self._asked.writes
            self._asked = None
        self._aside = 0
        if self._shaping is not None and not self._shaping.flying:
            self._shaped(error)
        self._replies.refuse_all(waiting, error)
        for conn, rid in self.recent.end():
            self._replies.answer(conn, [rid, 1, *to_wire(error)])
        self._flight.fail(self.view.reset(), error, error)

    def _refuse_full(
        self, conn: Connection, r: list[object], what: str, limit: int, actual: int
    ) -> None:
        self._replies.refuse((conn, r), queue_full(self.descriptor, what, limit, actual))
