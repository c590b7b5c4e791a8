"""The commit protocol as a state machine: events in, effects out. No I/O, no clock, nothing awaits.

Percolator's two-phase commit (Peng & Dabek 2010, section 2.2) with the status in one record at the
*anchor* (the first written key) instead of in the first intent, so that deciding is one flip and
everything after is cleaning:

    GROUPING ── one partition ──▶ WRITING ── answered ─────────────────────────────▶ COMMITTED
       │                             ├─ too large ─▶ PREWRITING
       │                             └─ connection lost ─▶ SETTLING ─ record says ─▶ COMMITTED |
       ABORTED └─ several ─▶ PREWRITING ──▶ STAMPING ──▶ FLIPPING ── flipped ──────────────▶
       COMMITTED ─▶ intents resolved
                        │  ▲            ▲           │ pushed above commit_ts
                        │  └ regroup    └───────────┤
                        │ any "no", deadline        │ rolled back by somebody
                        ▼                           ▼
                     ABORTING ── rolled back ──▶ ABORTED ─▶ intents removed

The anchor's record of a one-entry commit is written in that very entry, so WRITING can be settled
in the same way. An entry that would be too large, for what it replaces or for its keys, is refused
with nothing written; then the transaction goes on as one of several partitions, in parts.

Parallel commit (D13): few parts that are all known are committed by their intents. The prewrites
say so in the record (STAGING, with every key) and in the intents (their bounds); when all have
answered, the transaction is committed at the highest bound, and the caller is answered at once:

    PREWRITING ── all bounds exact ──▶ IMPLIED ── flipped ──▶ COMMITTED ─▶ intents resolved

A coordinator that does not come that far in time (a heartbeat is sent), or whose record does not
say STAGING, goes on in two phases. kv.mvcc.recover has the argument why there is one outcome
whoever finishes it.

How it begins is its mode: `start` asks for the partitions; `start_in_one` and `start_staged` know
them; of a *streamed* one (txn/bulk/spilled_commit.py, txn/bulk/load.py) the machine has the anchor
only, as one part that stands for all rows. Each of its messages takes as long as it may, so what
fails is not sent again.

Invariants:
- Nobody commits but by the flip (or the one entry of WRITING), unless it was staged: then others
  may. So before the first flip or stage is sent a failure is certain; after it, only the record at
  the anchor knows, and what cannot be learned until the deadline is UnknownOutcome.
- Once the caller was answered by the intents alone (IMPLIED), nothing is sent but the flip at that
very
  timestamp; and no intent is resolved before the record says COMMITTED.
- commit_ts is asked for after the last prewrite was answered, and is at least every min_commit_ts
  that was answered: a reader that looked at the keys meanwhile had an older timestamp, so it misses
  nothing that it should have seen.
- A write whose connection broke is settled by ROLLBACK, not by CHECK: its answer is final, because
  it either finds the commit or forbids it; a check could only say "not yet" while the write still
  sits in a queue.
- Every message may arrive twice, late or never. Intents that are not cleaned are finished by
  whoever meets them.
- Finish is emitted exactly once; cleaning comes after it, and after every prewrite has been
  answered, so that a slow prewrite does not leave an intent after the cleaner. Prewrites of an
  aborted transaction that wait for somebody's intent are asked to end (a Resolve of their own).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, assert_never

from kv.base.disk_space import DISK_FREE
from kv.base.errors import (
    ConditionFailed,
    KeyLocked,
    KvorumError,
    Reroute,
    TooLarge,
    TryLater,
    UnknownOutcome,
)
from kv.base.limits import (
    FLIPS_MAX,
    PARALLEL_KEY_BYTES_MAX,
    PARALLEL_KEYS_MAX,
    PARALLEL_PARTS_MAX,
    PREWRITES_IN_FLIGHT_MAX,
    TXN_LIFETIME_MS_MAX,
)
from kv.base.methods import ABORTED, COMMITTED, PENDING
from kv.base.ops import Op
from kv.base.timestamps import MAX, physical_ms
from kv.client.calls import CUT_OFF, NO_PARTITION
from kv.mvcc.records import Parts
from kv.mvcc.refusals import read_expired
from txn.commit.effects import (
    Answered,
    Beat,
    Effect,
    Event,
    Failed,
    Finish,
    Flip,
    GiveUp,
    Group,
    Grouped,
    Heartbeat,
    OutOfTime,
    Prewrite,
    Prewritten,
    Resolve,
    Rollback,
    TakeTimestamp,
    Timestamp,
    Write,
    Written,
)
from txn.shared.message_sizes import Indexes, fits_one_entry, parts
from txn.shared.refusals import (
    closed,
    connection_lost,
    deadline_exceeded,
    expired,
    renumber,
    too_old,
    unknown,
)


class State(Enum):
    GROUPING = auto()
    WRITING = auto()
    SETTLING = auto()
    PREWRITING = auto()
    STAMPING = auto()
    FLIPPING = auto()
    IMPLIED = auto()  # the answer was given by the intents alone; the record does not say so yet
    ABORTING = auto()
    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


OPEN = frozenset({State.GROUPING, State.WRITING, State.PREWRITING, State.STAMPING})
_NOWHERE_TRIES: Final = 3  # while no node has a partition of a key: mostly its table was dropped


class CommitCore:
    """One transaction's commit. `ops` hold each key once; writes first (kv.base.ops), and last what
    a serializable transaction read (txn.buffered.read_set), to be guarded until the outcome is
    known.

    `parallel`: whether its intents alone may commit it. `streamed`: `ops` is the anchor's, and
    stands for all. `locked`: it has a record and locks already, so one entry does not do.
    """

    state = State.GROUPING
    bounded = True  # prewrites of a staged one leave bounds
    stage: Parts = ()  # the keys of all parts, if it may commit by its intents …
    _early = False  # … and every answer so far allows it
    _staged = False  # … and the record may be STAGING: failures are uncertain
    _flipped = False  # a flip was sent: failures are uncertain from here
    _anchored = False  # the anchor's prewrite was executed, or may have been
    _groupings = 0  # asked and unanswered
    _before_ts = MAX  # something that was read expires then
    _outcome_ts = 0  # commit_ts, for the cleaning
    _error: KvorumError | None = None  # why it is aborting
    _finished = False
    _abort_sent = False  # to those whose prewrites are under way
    _cleaned = False

    def __init__(
        self,
        start_ts: int,
        ops: Sequence[Op],
        *,
        parallel: bool = True,
        streamed: bool = False,
        locked: bool = False,
    ) -> None:
        if not ops:
            raise ValueError("nothing to commit")
        self.start_ts = start_ts
        self.ops = list(ops)
        self.anchor = ops[0].key  # also what a one-entry commit is recorded under
        self.streamed = streamed
        self._locked = locked
        self._parallel = parallel
        self._min_commit_ts = start_ts + 1
        self._waiting: deque[Indexes] = deque()  # parts not sent yet
        self._under_way: list[Indexes] = []  # prewrites that were sent and not answered
        self._touched: list[int] = []  # ops that may have left an intent
        # prewrites that were answered, each in one partition then; the anchor's first
        self.laid: deque[Indexes] = deque()

    def cut(self, index: int, pieces: Sequence[Op]) -> list[int]:
        """A range that was read lies in several partitions: the indexes of its pieces. If it was
        staged as one, its guards leave no bounds any more: nobody may take a piece for the whole.
        """
        self.bounded = self.bounded and not self.stage
        self.ops[index] = pieces[0]
        self.ops += pieces[1:]
        return [index, *range(len(self.ops) - len(pieces) + 1, len(self.ops))]

    def start(self) -> list[Effect]:
        """The first effects."""
        if self.streamed:
            self.state = State.PREWRITING
            self._waiting.append((0,))
            return self._send_prewrites()
        self._groupings = 1
        return [Group(tuple(range(len(self.ops))))]

    def start_in_one(self, attempt: int = 0) -> list[Effect]:
        """One partition has all keys, and one entry holds the ops."""
        self.state = State.WRITING
        return [Write(attempt)]

    def start_staged(self, few: Sequence[Indexes], stage: Parts) -> list[Effect]:
        """These parts (txn.shared.grouping.few_parts), each in one partition, may be staged."""
        self.state = State.PREWRITING
        self.stage = stage
        self._early = self._staged = True
        self._waiting.extend(few)
        return self._send_prewrites()

    @property
    def beating(self) -> bool:
        """Whether intents may lie around that a heartbeat keeps alive."""
        return bool(self._touched) and self.state in (
            State.PREWRITING,
            State.STAMPING,
            State.FLIPPING,
        )

    def beat(self) -> list[Effect]:
        """It is time for a heartbeat. One that is sent takes STAGING back, so from here on it is
        the flip that commits.
        """
        if not self.beating:
            return []
        self._early = False
        return [Heartbeat()]

    def step(self, event: Event) -> list[Effect]:
        """One event; the effects in the order in which they are to be started."""
        match event:
            case Grouped():
                effects = self._on_grouped(event)
            case Written():
                open_ = self.state in (State.WRITING, State.SETTLING)
                effects = self._commit(event.version) if open_ else []
            case Prewritten(request, low, before_ts, exact):
                return self.prewritten(request.indexes, low, before_ts=before_ts, exact=exact)
            case Timestamp():
                effects = self._on_timestamp(event.ts)
            case Answered():
                effects = self._on_answer(event)
            case Beat():
                lost = event.status == ABORTED and self.state in OPEN
                effects = self._abort(expired(self.start_ts)) if lost else []
            case Failed():
                effects = self._on_failed(event)
            case GiveUp():
                effects = self._abort(event.error) if self.state in OPEN else []
            case OutOfTime():
                effects = self._on_out_of_time()
            case _:
                assert_never(event)
        return effects + self._cleaning()

    # -- forward

    def _on_grouped(self, event: Grouped) -> list[Effect]:
        self._groupings -= 1
        if self.state not in (State.GROUPING, State.PREWRITING):
            return []
        alone = self.state is State.GROUPING and len(event.groups) == 1 and not self._locked
        if alone and fits_one_entry(self.ops):
            return self.start_in_one(event.request.attempt)
        first = self.state is State.GROUPING
        self.state = State.PREWRITING
        for group in event.groups:
            self._waiting.extend(parts(self.ops, group))
        if first:
            self._try_parallel()
        return self._send_prewrites()

    def _prewrite_all(self) -> list[Effect]:
        """One entry could not hold it, for what it replaces or for its keys; several can."""
        self.state = State.PREWRITING
        self._waiting.extend(parts(self.ops, range(len(self.ops))))
        self._try_parallel()
        return self._send_prewrites()

    def _try_parallel(self) -> None:
        """Stage it, if its parts are few enough to be listed in the record, and every key names one
        thing: what was read may be cut where a partition begins, at a key that is written, and a
        recovery would take the intent there for the guard.
        """
        stage = tuple(tuple(self.ops[i].key for i in part) for part in self._waiting)
        keys = [key for part in stage for key in part]
        sizes = [len(key) for key in keys]
        few = len(stage) <= PARALLEL_PARTS_MAX and len(set(keys)) == len(keys) <= PARALLEL_KEYS_MAX
        if self._parallel and few and sum(sizes) <= PARALLEL_KEY_BYTES_MAX:
            self.stage = stage
            self._early = self._staged = True

    def _send_prewrites(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and len(self._under_way) < PREWRITES_IN_FLIGHT_MAX:
            part = self._waiting.popleft()
            self._touched.extend(part)
            self._under_way.append(part)
            effects.append(Prewrite(part))
        return effects

    def prewritten(
        self, part: Indexes, min_commit_ts: int, *, before_ts: int = 0, exact: bool = False
    ) -> list[Effect]:
        """`step(Prewritten(…))`: a commit of few keys spends its time in what is made for them."""
        self._under_way.remove(part)
        if 0 in part:
            self._anchored = True
            self.laid.appendleft(part)
        else:
            self.laid.append(part)
        if self.state is not State.PREWRITING:
            return self._cleaning()
        self._early = self._early and exact
        if min_commit_ts > self._min_commit_ts:
            self._min_commit_ts = min_commit_ts
        if before_ts:
            self._before_ts = min(self._before_ts, before_ts)
        effects = self._send_prewrites() if self._waiting else []
        if self._under_way or self._groupings:
            if exact and not self._early and 0 in part:
                effects.append(Heartbeat())  # the record became STAGING too late
            return effects
        return self._imply() if self._early else self._stamp()

    def _imply(self) -> list[Effect]:
        """All intents are durable, with their bounds: it is committed at the highest."""
        commit_ts = self._min_commit_ts
        age_ms = physical_ms(commit_ts) - physical_ms(self.start_ts)
        if age_ms > TXN_LIFETIME_MS_MAX:
            return self._abort(too_old(self.start_ts, age_ms))
        self.state, self._outcome_ts = State.IMPLIED, commit_ts
        return [*self._finish(commit_ts), Flip(commit_ts)]

    def _stamp(self) -> list[Effect]:
        self.state = State.STAMPING
        return [TakeTimestamp(self._min_commit_ts)]

    def _on_timestamp(self, ts: int) -> list[Effect]:
        if self.state is not State.STAMPING:
            return []
        if ts < self._min_commit_ts:
            raise AssertionError(f"timestamp {ts} below the bound {self._min_commit_ts}")
        age_ms = physical_ms(ts) - physical_ms(self.start_ts)
        if age_ms > TXN_LIFETIME_MS_MAX:
            return self._abort(too_old(self.start_ts, age_ms))
        if ts >= self._before_ts:
            return self._abort(read_expired(self.start_ts, self._before_ts))
        self.state, self._flipped = State.FLIPPING, True
        return [Flip(ts)]

    def _commit(self, version: int) -> list[Effect]:
        self.state, self._outcome_ts = State.COMMITTED, version
        return self._finish(version)

    # -- the status record speaks

    def _on_answer(self, event: Answered) -> list[Effect]:
        if self.state is State.IMPLIED:
            says = (event.status, event.commit_ts)
            assert says == (COMMITTED, self._outcome_ts), f"{self.start_ts} was committed: {says}"
            self.state = State.COMMITTED
            if event.resolved:
                self._touched = [i for i in self._touched if i not in event.resolved]
            return []
        if self.state not in (State.FLIPPING, State.ABORTING, State.SETTLING):
            return []  # answered after the deadline: the caller has its answer
        if event.status == COMMITTED:
            return self._commit(event.commit_ts)
        if event.status == ABORTED:
            error = self._error or expired(self.start_ts)
            self.state = State.ABORTED
            return self._finish(error)
        assert event.status == PENDING, event
        assert isinstance(event.request, Flip), "a rollback has an outcome"
        # Pushed by a reader above our timestamp: it will not see us, so we commit above it. Copies
        # of this flip that still travel will be refused as well, because the bound only rises:
        # failures are certain again, and a record that is PENDING now is never STAGING again.
        self._flipped = self._staged = False
        self._min_commit_ts = max(
            self._min_commit_ts, event.min_commit_ts, event.request.commit_ts + 1
        )
        return self._stamp()

    # -- backward

    def _on_failed(self, event: Failed) -> list[Effect]:
        request, error = event.request, event.error
        match request:
            case Group():
                self._groupings -= 1
                return self._abort(error) if self.state in OPEN else []
            case Write():
                return self._write_failed(request, error)
            case Prewrite():
                return self._prewrite_failed(request, error)
            case TakeTimestamp():
                if self.state is not State.STAMPING:
                    return []
                return self._abort(error) if not self._flipped else self._ask_the_record(error)
            case Flip():
                return self._flip_failed(request, error)
            case Rollback():
                if self.state not in (State.ABORTING, State.SETTLING):
                    return []
                lost = _nowhere(error, request.attempt) and self.state is State.ABORTING
                if self._may_pass(error) and not (lost and not self._uncertain):
                    return [Rollback(request.attempt + 1)]
                return self._on_out_of_time()
            case _:
                assert_never(request)

    def _flip_failed(self, request: Flip, error: KvorumError) -> list[Effect]:
        if self.state is State.IMPLIED:  # the caller has its answer; the record is to say it, too
            if self._may_pass(error) and request.attempt < FLIPS_MAX:
                return [Flip(request.commit_ts, request.attempt + 1)]
            self.state, self._cleaned = State.COMMITTED, True  # whoever meets intents recovers it
            return []
        if self.state is not State.FLIPPING:
            return []
        if self._may_pass(error):
            return [Flip(request.commit_ts, request.attempt + 1)]
        return self._ask_the_record(error)

    def _write_failed(self, request: Write, error: KvorumError) -> list[Effect]:
        if self.state is not State.WRITING:
            return []  # it was given up; the rollback that is under way settles it
        if isinstance(error, Reroute):
            self.state, self._groupings = State.GROUPING, 1
            return [Group(tuple(range(len(self.ops))), request.attempt + 1)]
        if isinstance(error, UnknownOutcome):
            self.state = State.SETTLING
            self._error = connection_lost(self.start_ts)
            return [Rollback()]
        if self._may_pass(error) and not _settled(error, request.attempt):
            return [Write(request.attempt + 1)]
        if isinstance(error, TooLarge) and len(self.ops) > 1:
            return self._prewrite_all()
        self.state = State.ABORTED
        return self._finish(self._in_our_terms(error, tuple(range(len(self.ops)))))

    def _prewrite_failed(self, request: Prewrite, error: KvorumError) -> list[Effect]:
        nothing_done = isinstance(error, TryLater | Reroute)
        self._anchored = self._anchored or (0 in request.indexes and not nothing_done)
        if self.state is not State.PREWRITING:
            self._under_way.remove(request.indexes)
            return []
        if isinstance(error, Reroute) and not self.streamed:
            self._under_way.remove(request.indexes)
            self._groupings += 1
            return [Group(request.indexes, request.attempt + 1)]
        if self._may_pass(error) and not _settled(error, request.attempt):
            return [Prewrite(request.indexes, request.attempt + 1)]
        self._under_way.remove(request.indexes)
        return self._abort(self._in_our_terms(error, request.indexes))

    def _abort(self, error: KvorumError) -> list[Effect]:
        """Roll back, then answer with `error`. Only before the first flip was sent, and nobody was
        told of a commit.
        """
        was = self.state
        self._error = error
        self._waiting.clear()
        if was is State.GROUPING and not self._touched:
            self.state = State.ABORTED
            return self._finish(error)
        # a write under way may still be executed, so its failure is only certain once the record
        # says so
        self.state = State.SETTLING if was is State.WRITING else State.ABORTING
        return [Rollback()]

    def _ask_the_record(self, error: KvorumError) -> list[Effect]:
        """A flip was sent and can not be sent again: a rollback says whether it was executed."""
        self.state, self._error = State.SETTLING, error
        return [Rollback()]

    def _on_out_of_time(self) -> list[Effect]:
        match self.state:
            case State.COMMITTED | State.ABORTED | State.UNKNOWN | State.IMPLIED:
                return []
            case State.WRITING | State.SETTLING:
                return self._doubt()
            case _ if self._uncertain:
                return self._doubt()
            case (
                State.GROUPING | State.PREWRITING | State.STAMPING | State.FLIPPING | State.ABORTING
            ):
                self.state = State.ABORTED
                return self._finish(self._error or deadline_exceeded(self.start_ts))
            case _:
                assert_never(self.state)

    @property
    def _uncertain(self) -> bool:
        """Whether somebody may have committed it: by a flip of ours, or by its intents, which need
        the record that only the anchor's prewrite makes.
        """
        anchored = self._anchored or any(0 in part for part in self._under_way)
        return self._flipped or (self._staged and anchored)

    def interrupted(self, unsent: Sequence[Effect] = ()) -> KvorumError:
        """What to tell a caller whose client is closed under it, and will not send `unsent`."""
        if unsent and all(isinstance(effect, Prewrite) for effect in unsent):
            self._staged = False  # these are the first: nobody heard of it
        if self._flipped or self._staged or self.state in (State.WRITING, State.SETTLING):
            return self._unknown()
        return closed(self.start_ts)

    def _doubt(self) -> list[Effect]:
        self.state = State.UNKNOWN
        return self._finish(self._unknown())

    def _unknown(self) -> UnknownOutcome:
        if self.streamed:
            return unknown(self.start_ts, self.anchor, until="")
        return unknown(self.start_ts, self.anchor)

    def _may_pass(self, error: KvorumError) -> bool:
        """Whether the same message may be sent again. KeyLocked has been waited for already."""
        if self.streamed or isinstance(error, KeyLocked) or error.code == CUT_OFF:
            return False
        return isinstance(error, TryLater | Reroute | UnknownOutcome)

    def _in_our_terms(self, error: KvorumError, indexes: Indexes) -> KvorumError:
        """A condition is named by its place in the transaction, not in its request."""
        at = error.details.get("op")
        placed = isinstance(error, ConditionFailed) and len(self.ops) > 1
        if placed and isinstance(at, int) and at < len(indexes):
            renumber(error, indexes[at])
        return error

    # -- the end

    def _finish(self, outcome: int | KvorumError) -> list[Effect]:
        assert not self._finished, "a commit has one answer"
        self._finished = True
        self._waiting.clear()
        return [Finish(outcome)]

    def _cleaning(self) -> list[Effect]:
        """The intents' end, when the outcome is known and no prewrite is under way any more; of an
        abort also before that, because prewrites that wait for others end when it arrives.
        """
        if self.state not in (State.COMMITTED, State.ABORTED) or self._cleaned:
            return []
        if self._under_way and (self._abort_sent or self.state is not State.ABORTED):
            return []
        self._abort_sent = True
        self._cleaned = not self._under_way
        keys = tuple(sorted(set(self._touched)))
        return [Resolve(self._outcome_ts, keys)] if keys else []


def _nowhere(error: KvorumError, attempt: int) -> bool:
    """Whether it was said often enough that no node has a partition of the key."""
    return error.code == NO_PARTITION and attempt + 1 >= _NOWHERE_TRIES


def _settled(error: KvorumError, attempt: int) -> bool:
    """Whether new rows are refused by what does not pass while somebody waits for the answer: no
    node has the table, or a disk is full, which is the operator's to repair.
    """
    return _nowhere(error, attempt) or error.details.get("what") == DISK_FREE
