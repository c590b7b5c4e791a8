"""One turn of a procedure: decide, run, store, go on.

    `core.action` says what to run → the runner runs it → `core` makes the change → the store
    commits it, fenced by the record's version → only then the roster wakes and queues (J5, J9)

The store is the truth. A record that moved on (`Fenced`), or a commit whose outcome is unknown, is
loaded again and gone on with from there; a step is never assumed done or undone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import ConditionFailed, KvorumError, Refused, UnknownOutcome
from kv.base.ops import Op
from kv.base.ports import Clock, Rng
from procedures.engine import core, heartbeats, plain_data
from procedures.engine.attributes import index_ops
from procedures.engine.context import Child, StepContext, StepTxn, SyncStepTxn, Tables
from procedures.engine.core import Change, Flow, Ran, RunStep, RunUndo, UndoRound
from procedures.engine.grants import is_fence
from procedures.engine.heartbeats import Heart
from procedures.engine.idlock import IdLock
from procedures.engine.procedure import Children, Done, Fail, Outcome, State, Suspend, events_of
from procedures.engine.records import Failure, Record
from procedures.engine.registry import ProcedureType, Registry, StepDef, UndoDef
from procedures.engine.retries import Retry
from procedures.engine.roster import Live, Roster, brief
from procedures.engine.runner import Died, Ended, Failed, Returned, Runner, TryAgain, outlasted
from procedures.engine.store import Fenced, ProcedureStore, Stored
from procedures.engine.submission import begun, started
from procedures.pools import emitted, inbox, rows

log = logging.getLogger(__name__)


class Turns:
    """Runs procedures that hold their IdLock. `ended` is called with every procedure that ended."""

    def __init__(
        self,
        store: ProcedureStore,
        types: Registry,
        tables: Tables,
        clock: Clock,
        rng: Rng,
        runner: Runner,
        roster: Roster,
        ended: Callable[[Stored], None],
        locks: IdLock | None = None,
    ) -> None:
        """`locks`: of the executor; None: locks of procedures are not handed on from here."""
        self._store, self._locks = store, locks
        self._types = types
        self._tables = tables
        self._clock = clock
        self._rng = rng  # for the pauses of retry policies
        self._runner = runner
        self._roster = roster
        self._ended = ended
        self.take_ids = store.take_ids  # for children
        self._prepared: set[int] = set()  # the runner keeps something for their next step
        self.commits = 0
        self.handed = 0  # of them gave their locks to the next one, too
        self.reign = 0  # of this executor, for grants of locks
        self.progress: Callable[[int, float, str], None] = self._note  # what a step says of itself

    async def turn(self, live: Live, go_on: Callable[[Live], bool]) -> None:
        """Run it until it waits or ends, or `go_on` says no, or its share is used up (J10)."""
        flow = Flow.MORE
        try:
            for _ in range(limits.PROCEDURE_STEPS_PER_TURN_MAX):
                if self._roster.get(live.id) is not live:
                    return
                try:
                    flow = await self._once(live)
                except KvorumError as error:  # the store does not answer: nothing was decided
                    flow = self._retry(live, core.error_failure(error))
                if flow is not Flow.MORE or not go_on(live):
                    break
        finally:
            if live.id in self._prepared:
                self._prepared.discard(live.id)
                self._runner.unprepared(live.id)
        live.step_began = (0, 0, "")
        self.follow(live, flow)

    def follow(self, live: Live, flow: Flow) -> None:
        match flow:
            case Flow.MORE | Flow.TAIL:
                self._roster.enqueue(live)
            case Flow.WAIT:
                if live.record is not None and not live.parked and not live.retry_ms:
                    self._roster.place(live, live.record)
            case Flow.ENDED:
                pass

    def decides(self, live: Live) -> bool:
        """Whether there is something to do for it that needs none of its code: to fail it, or to
        write down that it has its locks.
        """
        if live.doomed and not live.rolling:
            return not live.children
        wants_locks = bool(live.entry.locks) and not live.granted
        return self._roster.fails(live) or (wants_locks and not live.queued) or self.home(live)

    def home(self, live: Live) -> bool:
        """Whether workers ran it, and this process, which decides about it, runs its type now."""
        if not live.lane or not self.reign:
            return False
        declared = self._types.find(live.name)
        return declared is not None and not declared.remote

    def _note(self, id: int, part: float, text: str) -> None:
        live = self._roster.get(id)
        if live is not None:
            live.progress = (part, text)

    def park(self, live: Live, error: Exception) -> None:
        """A bug of ours, or a record that breaks the rules: leave it alone, and say so."""
        log.error("procedure %d is parked", live.id, exc_info=error)
        live.parked = (
            f"internal error, the node's log has the rest: {type(error).__name__}: {error}"
        )

    # ------------------------------------------------------------------------------ decisions
    async def _once(self, live: Live) -> Flow:
        """One decision and its commit."""
        record = await self._current(live)
        if record is None:
            return Flow.ENDED
        live.parked = core.missing(record, self._types)
        if live.parked:
            return Flow.WAIT
        live.retry_ms = 0
        declared = self._types.get(record.name, record.version)
        rolling = record.state is State.ROLLING_BACK
        error = None if rolling or record.final else self._outside(live, record, declared)
        if live.children and (error is None or record.error is not None):
            return Flow.WAIT
        if error is not None:
            return await self.commit(live, self._failing(live, record, declared, error))
        elsewhere = record.pool or record.pending  # of workers, or not looked at
        if elsewhere and (change := await self._taken_on(record, declared)) is not None:
            return await self._unheard(live, change)
        if live.entry.locks and not live.granted and not record.pending:
            return await self._grant(live, record, declared)
        if not self._ripe(live, record):
            return Flow.WAIT
        match core.action(record):
            case RunUndo() | RunStep() if declared.remote:
                return await self._to_workers(live, record, declared)
            case UndoRound(first, count):
                return await self._undo_round(live, record, first, count)
            case RunUndo(method, token):
                return await self._undo(live, record, declared, method, token)
            case RunStep(step, token):
                return await self._step(live, record, declared, step, token)

    def _ripe(self, live: Live, record: Record) -> bool:
        """Whether code of it may run now."""
        live.parked = core.aside(record)
        return not live.parked and self._roster.ripe(live, record)

    async def _to_workers(self, live: Live, record: Record, declared: ProcedureType) -> Flow:
        """Its steps are none that this process can run."""
        if live.lane:
            return Flow.TAIL
        change = Change(replace(record, pool=declared.pool), Flow.TAIL)  # the nodes ran it once
        return await self._unheard(live, change)

    async def _taken_on(self, record: Record, declared: ProcedureType) -> Change | None:
        """What is to be written before this process runs a step of it."""
        if declared.remote:
            return None
        if record.pool and self.reign:
            return Change(replace(record, pool=""), Flow.TAIL)  # workers ran it once
        return await self._looked_at(record, declared) if record.pending else None

    async def _looked_at(self, record: Record, declared: ProcedureType) -> Change:
        """Its type's code could not look at its arguments when it was submitted: now it does. If
        they do not fit it fails before its first step.
        """
        try:
            seen = await self._runner.look(declared, record.args)
        except KvorumError as error:
            if error.disposition != "no":
                raise
            known, now_ms = core.error_failure(error), self._clock.now_ms()
            return core.fail(record, declared, known, None, now_ms=now_ms)
        return core.admitted(record, seen, self._clock.now_ms())

    async def _unheard(self, live: Live, change: Change) -> Flow:
        """A commit that runs no step: what woke it has not reached a step yet."""
        wake = live.wake
        flow = await self.commit(live, change)
        live.wake = live.wake or wake
        return flow

    async def _grant(self, live: Live, record: Record, declared: ProcedureType) -> Flow:
        """Its locks: what memory knows, the store must know before the next step begins."""
        barred = self._roster.barred(live)
        if not self.reign:
            return Flow.TAIL  # at a worker, robbed of them: only the master grants
        if not barred:
            change = Change(core.granted(record), Flow.MORE, reign=self.reign)
            return await self._unheard(live, change)
        if barred == "wait":
            return Flow.TAIL
        error = core.failure("LOCK_CIRCLE", f"its locks would close a circle of waits: {barred}")
        if record.final or record.state is State.ROLLING_BACK:
            return self._retry(live, error)  # it cannot fail: somebody has to take a lock away
        return await self.commit(live, self._failing(live, record, declared, error))

    async def _current(self, live: Live) -> Record | None:
        """Its record, None when it turns out to have ended."""
        if live.record is None:
            await self.reload(live)
            if self._roster.get(live.id) is not live:
                return None
        return live.record

    def _outside(self, live: Live, record: Record, declared: ProcedureType) -> Failure | None:
        """Why a procedure fails although no step of it did."""
        if record.error is not None:
            return record.error  # decided while its children still ran
        if (why := self._roster.doom(live.parent)) is not None:
            text = f"its parent {live.parent} failed{f': {why}' if why else ''}"
            return core.failure("PARENT_FAILED", text)
        if live.orphan:
            text = f"procedure {record.starter}, which started it, has ended"
            return core.failure("CANCELLED", text)
        why = "" if live.retry is None else live.retry.sentence
        return core.overdue(record, declared, self._clock.now_ms(), why)

    @staticmethod
    def late(
        record: Record, declared: ProcedureType, outcome: Outcome, now_ms: int
    ) -> Failure | None:
        """Why a step that came to its end must not be committed: its own time is over, or it would
        end the procedure, or pass its point of no return, after the procedure's. Other steps are
        committed, and then undone.
        """
        if not (record.deadline_ms or record.step_due_ms):
            return None
        if not 0 < Turns._ends_by(record, declared, outcome) <= now_ms:
            return None
        return core.overdue(record, declared, now_ms)

    @staticmethod
    def _ends_by(record: Record, declared: ProcedureType, outcome: Outcome) -> int:
        """When it is too late to commit a step with this outcome; 0 = never."""
        if isinstance(outcome, Fail) or record.final:
            return 0
        passes = declared.steps[record.step].mark.point_of_no_return
        ends = isinstance(outcome, Done) or passes
        return core.limit_ms(record) if ends else record.step_due_ms

    def _failing(
        self, live: Live, record: Record, declared: ProcedureType, error: Failure
    ) -> Change:
        now = self._clock.now_ms()
        if live.children:
            return core.doom(record, error, now)
        return core.fail(record, declared, error, None, now_ms=now)

    async def _step(
        self, live: Live, record: Record, declared: ProcedureType, step: str, token: str
    ) -> Flow:
        children: tuple[Child, ...] = ()
        if record.waits_for:
            round_ = [s.record for s in await self._store.load_range(*record.rounds[-1])]
            failure = None if record.final else core.children_failure(round_)
            if failure is not None:
                return await self.commit(live, self._failing(live, record, declared, failure))
            children = tuple(map(child_of, round_))
            live.wake = live.wake or "children"
        definition = declared.steps[step]
        if definition.mark.deadline_ms and not (record.final or record.step_due_ms):
            return await self._begin(live, record, definition)
        await self._prepare(record, definition, definition.attempt_ms or definition.heartbeat_ms)
        txn, ctx = self._context(live, record, definition, step, token, children)
        since, there = self._roster.signals, False
        ended = await self._run(live, definition, declared, ctx)
        try:
            now_ms = self._clock.now_ms()
            ended = self._in_time(ended, definition, ctx, now_ms)
            data = ended.data if isinstance(ended, Returned) else record.data
            ran = Ran(data, ctx.attempt, ctx.now_ms, now_ms, ctx.wake, txn.read_ts, ctx.trace)
            match ended:
                case TryAgain(error):
                    return self._retry(live, error)
                case Died(why):
                    return await self._died(live, record, why, ran)
                case Failed(error, policy):
                    return await self._failed(live, record, declared, error, ran, policy)
                case Returned(outcome):
                    assert outcome is not None
                    if isinstance(outcome, Fail) and record.final:
                        error = core.failure(outcome.code, outcome.message)
                        return self._pause(live, error)
                    if (late := self.late(record, declared, outcome, ran.now_ms)) is not None:
                        return await self._failed(live, record, declared, late, ran)
                    change, ops = await self.changed(record, outcome, ran, txn, ctx)
                    there = await self._is_there(outcome, ctx, txn)
            flow = await self.commit(live, change, ops=ops, txn=txn)
        except KvorumError as error:
            return await self._refused(live, record, declared, error, ended, ran, txn)
        finally:
            await txn.end()
        for event in ctx.signals():
            self._roster.signal(event)
        return self._waiting(live, flow, since, change.record.event if there else "")

    async def _begin(self, live: Live, record: Record, definition: StepDef | UndoDef) -> Flow:
        """The first run of a step, or an undo, with a deadline: this is written before it, so that
        the time counts over retries and restarts. (An async step that follows another one at once
        has it already.)
        """
        await self._prepare(record, definition, definition.may_ms)
        now_ms = self._clock.now_ms()
        after = core.begun(replace(record, updated_ms=now_ms), definition, now_ms)
        return await self._unheard(live, Change(after, Flow.MORE))

    async def _prepare(self, record: Record, definition: StepDef | UndoDef, may_ms: int) -> None:
        """Until it would be called at once: the time that it may take, if there is a limit, counts
        from then on.
        """
        if may_ms:
            self._prepared.add(record.id)
            await self._runner.prepared(definition, record.name, record.id)

    async def _run(
        self, live: Live, definition: StepDef, declared: ProcedureType, ctx: StepContext
    ) -> Ended:
        """Call a step. Of one that says that it lives what it says is stored now and then, and
        whenever it is to run again.
        """
        if not definition.heartbeat_ms:
            return await self._runner.run(definition, declared.make, ctx)
        if live.beats is None:
            reads = await self._store.reads()
            try:
                row = await reads.get(rows.heartbeat(live.id))
            finally:
                await reads.close()
            live.beats = heartbeats.read(None if row is None else row.value)
        known = heartbeats.of_execution(live.beats, ctx.given[0], ctx.round)
        heart = ctx.heart = Heart(definition.heartbeat_ms, known)
        _, limit_ms, step = live.step_began

        def lives(_key: str, _data: bytes) -> None:
            live.step_began = (self._clock.now_ms(), limit_ms, step)  # it is not stuck

        heart.on_beat = lives
        keeping = asyncio.get_running_loop().create_task(self._kept_beats(live, heart))
        try:
            ended = await self._runner.run(definition, declared.make, ctx)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
        live.beats = dict(heart.details)
        if heart.dirty and not isinstance(ended, Returned):
            await self._keep_beats(live, heart)
        return ended

    async def _kept_beats(self, live: Live, heart: Heart) -> None:
        while True:
            await asyncio.sleep(limits.PROCEDURE_HEARTBEAT_WRITE_MS / 1000)
            if heart.dirty and not await self._keep_beats(live, heart):
                return

    async def _keep_beats(self, live: Live, heart: Heart) -> bool:
        """False: it is not this process's any more."""
        try:
            await self._store.beat(live.id, live.version, heart.stored())
        except Fenced:
            return False
        except KvorumError as error:
            heart.dirty = True
            log.warning("heartbeats of procedure %d are stored later: %s", live.id, error)
        return True

    @staticmethod
    def _in_time(ended: Ended, definition: StepDef, ctx: StepContext, now_ms: int) -> Ended:
        """A plain step, which nobody ends in this process, may have taken too long for an attempt:
        then it failed.
        """
        late = ctx.one_attempt and now_ms - ctx.now_ms > ctx.left_ms
        return outlasted(definition, ctx) if late and isinstance(ended, Returned) else ended

    def _waiting(self, live: Live, flow: Flow, since: int, there: str) -> Flow:
        """A step was committed: one that waits from now on may have its event already. `there`: of
        what is there; signals after `since` came during the step.
        """
        now = live.record
        if now is None or now.state is not State.WAITING or not now.event or live.retry_ms:
            return flow
        if there == now.event:
            live.wake = "event"
            return Flow.MORE
        self._roster.missed(live, now.event, since)
        return flow

    @staticmethod
    async def _is_there(outcome: Outcome, ctx: StepContext, txn: StepTxn) -> bool:
        """Whether what a step is about to wait for came before it. The transaction that says that
        it waits looks itself; of what comes later the roster hears (`Roster.missed`).
        """
        if not isinstance(outcome, Suspend):
            return False
        for event in events_of(outcome.event):
            span = None if event in ctx.missing else inbox.kept(ctx.id, event)
            if span is not None and await inbox.is_there(txn, span):
                return True
        return False

    async def changed(
        self,
        record: Record,
        outcome: Outcome,
        ran: Ran,
        txn: StepTxn,
        ctx: StepContext,
    ) -> tuple[Change, list[Op]]:
        """What a step's outcome writes. Raises KvorumError for what cannot be."""
        starts, found_by = ctx.starts, ctx.found_by
        first = 0
        if (
            isinstance(outcome, Children)
            and 0 < len(outcome.calls) <= limits.PROCEDURE_CHILDREN_MAX
        ):
            self._check_room(record, len(outcome.calls))
            first = await self.take_ids(len(outcome.calls))
        change = core.advance(record, outcome, ran, self._types, first)
        if starts and not isinstance(outcome, Fail):
            self._check_room(record, len(starts) + len(change.created))
            new = [started(start, record, self._types, ran.now_ms, ctx.trace) for start in starts]
            change = dataclasses.replace(change, created=(*change.created, *new))
        ops = [] if isinstance(outcome, Fail) else await self._written(txn, ctx)
        if found_by is not None and not isinstance(outcome, Fail):
            if self._store.finds:
                before = record.attributes
                ops = [*ops, *index_ops(record.id, record.created_ms, before, found_by)]
            after = replace(change.record, attributes=found_by)
            change = dataclasses.replace(change, record=after)
        if ops and (record.deadline_ms or record.step_due_ms):  # its record is held up by nobody
            until_ms = self._ends_by(record, self._types.get(record.name, record.version), outcome)
            change = dataclasses.replace(change, until_ms=until_ms)
        return change, ops

    async def _written(self, txn: StepTxn, ctx: StepContext) -> list[Op]:
        """What a method wrote, and what it emitted."""
        ops = await txn.writes()
        if not ctx.emits:
            return ops
        if ctx.given[1]:  # an early one: the procedure is not there yet
            return [*ops, *emitted.first_ops(ctx.id, ctx.emits, self._clock.now_ms())]
        reads = txn.reads or await self._store.reads()
        try:
            return [*ops, *await emitted.ops_of(reads, ctx.id, ctx.emits, self._clock.now_ms())]
        finally:
            if reads is not txn.reads:
                await reads.close()

    def _check_room(self, record: Record, count: int) -> None:
        """Waiting for room could wait for ever: those who fill it may wait for the same."""
        live, limit = len(self._roster), limits.PROCEDURE_FAMILY_LIVE_MAX
        if live + count > limit:
            raise Refused(
                f"{record.name}.{record.step} wants to start {count} procedures, {live} have not "
                f"ended and the limit is {limit}; start fewer at once",
                code="TOO_MANY_LIVE",
                details={"limit": limit, "actual": live + count},
            )

    async def _refused(
        self,
        live: Live,
        record: Record,
        declared: ProcedureType,
        error: KvorumError,
        ended: Ended,
        ran: Ran,
        txn: StepTxn,
    ) -> Flow:
        """The commit of a step was: nothing is written."""
        known = core.error_failure(txn.in_users_words(error))
        late = None
        if isinstance(ended, Returned) and ended.outcome is not None:
            late = self.late(record, declared, ended.outcome, self._clock.now_ms())
        changed = isinstance(error, ConditionFailed)  # else looking again finds the same
        if isinstance(error, ConditionFailed) and (key := inbox.answered_before(error, record.id)):
            text = f"{record.name}.{record.step} answers update {key!r:.80}, which was answered"
            known = core.failure("ALREADY_ANSWERED", f"{text}; an update has one answer")
        held = changed and error.details.get("key") in txn.held
        passes = error.disposition != "no" or held or self._changed_since(error, txn)
        if passes and late is None:
            return self._retry(live, known)
        definition = declared.steps[record.step]
        policy = definition.policy(known.code, error) if late is None else None
        return await self._failed(live, record, declared, late or known, ran, policy)

    @staticmethod
    def _changed_since(error: KvorumError, txn: StepTxn) -> bool:
        """Whether a condition of the step's writes failed because the row changed after the step's
        snapshot: that is a conflict, the step looks again. Else it would fail for ever.
        """
        version = error.details.get("version")
        if is_fence(error.details.get("key")):
            return True  # it looks again, and finds who has the lock now
        return (
            isinstance(error, ConditionFailed)
            and txn.reads is not None
            and version is not None
            and int(version) > txn.reads.start_ts
        )

    async def _failed(
        self,
        live: Live,
        record: Record,
        declared: ProcedureType,
        error: Failure,
        ran: Ran,
        policy: Retry | None = None,
    ) -> Flow:
        """`policy`: by which the step may run again."""
        if policy is not None:
            change = core.tried(record, policy, error, ran, self._rng.random())
            if change is not None:
                return await self.commit(live, change)
        if record.final:  # past the point of no return: forward, for ever
            return self._pause(live, error)
        return await self.commit(live, core.fail(record, declared, error, ran))

    async def _died(self, live: Live, record: Record, why: str, ran: Ran) -> Flow:
        """Durable before it runs again: the next process it ends may be the one that counts."""
        change = core.died(record, why, ran)
        log.warning("procedure %d (%s): its process ended %s", record.id, record.name, why)
        wake = live.wake
        flow = await self.commit(live, change)
        live.wake = wake  # what woke it has not reached a step yet
        if live.record is not None and (aside := core.aside(live.record)):
            log.error("procedure %d (%s) is %s", record.id, record.name, aside)
            live.parked = aside
        return flow

    async def _undo(
        self, live: Live, record: Record, declared: ProcedureType, method: str, token: str
    ) -> Flow:
        """A failing undo is tried again, for ever: giving up would leave something in between. Only
        one that says so is given up, and its procedure's error says what is left.
        """
        definition = declared.undos[method]
        if definition.may_ms and not record.step_due_ms:
            return await self._begin(live, record, definition)
        txn, ctx = self._context(live, record, definition, f"undo:{method}", token, ())
        ended = await self._runner.run(definition, declared.make, ctx)
        try:
            data = ended.data if isinstance(ended, Returned) else record.data
            ran = Ran(data, ctx.attempt, ctx.now_ms, self._clock.now_ms())
            over = 0 < record.step_due_ms <= ran.now_ms
            match ended:
                case TryAgain(error) if over:
                    late = core.outlasted(record.name, definition, error.sentence)
                    return await self.commit(live, core.given_up(record, late, ran))
                case TryAgain(error):
                    return self._retry(live, error)
                case Died(why):
                    return await self._died(live, record, why, ran)
                case Failed(error) if definition.may_ms:
                    return await self.commit(live, core.given_up(record, error, ran))
                case Failed(error):
                    return self._pause(live, error)
                case Returned():
                    change = core.undone(record, ran)
                    ops = await self._written(txn, ctx)
                    return await self.commit(live, change, ops=ops, txn=txn)
        except KvorumError as error:
            known = core.error_failure(txn.in_users_words(error))
            return (self._pause if error.disposition == "no" else self._retry)(live, known)
        finally:
            await txn.end()

    async def _undo_round(self, live: Live, record: Record, first: int, count: int) -> Flow:
        round_ = await self._store.load_range(first, count)
        change = core.undo_child(record, [s.record for s in round_], self._clock.now_ms())
        version = 0
        if change.revived is not None:
            version = next(s.version for s in round_ if s.record.id == change.revived.id)
        return await self.commit(live, change, revived_version=version)

    def _context(
        self,
        live: Live,
        record: Record,
        definition: StepDef | UndoDef,
        step: str,
        token: str,
        children: tuple[Child, ...],
    ) -> tuple[StepTxn, StepContext]:
        attempt = record.attempt + record.lost + record.failed + live.tries + 1
        txn, ctx = self.context(
            record, definition, step, token, children=children, attempt=attempt, wake=live.wake
        )
        if definition.may_ms:
            # An undo is tried once more, whenever that is: it has nobody after it.
            again_ms = 1 if isinstance(definition, StepDef) else limits.PROCEDURE_UNDO_MS_MIN
            least_ms = min(again_ms, definition.may_ms)
            due_ms = record.step_due_ms or ctx.now_ms + definition.may_ms
            ctx.left_ms = max(least_ms, due_ms - ctx.now_ms)
        if definition.attempt_ms and not 0 < ctx.left_ms <= definition.attempt_ms:
            ctx.left_ms, ctx.one_attempt = definition.attempt_ms, True
        live.step_began = (ctx.now_ms, ctx.left_ms or limits.PROCEDURE_STUCK_MS, step)
        return txn, ctx

    def context(
        self,
        record: Record,
        definition: StepDef | UndoDef,
        step: str,
        token: str,
        *,
        children: tuple[Child, ...] = (),
        attempt: int = 1,
        wake: str = "",
        early: bool = False,
    ) -> tuple[StepTxn, StepContext]:
        """What one execution gets. The caller ends the transaction."""
        txn = StepTxn(self._store, self._tables)
        ctx = StepContext(
            record,
            step=step,
            token=token,
            attempt=attempt,
            wake=wake,
            now_ms=self._clock.now_ms(),
            children=children,
            txn=txn if definition.is_async else SyncStepTxn(txn, asyncio.get_running_loop()),
            shape=self._types.get(record.name, record.version).args,
            progress=self.progress,
            early=early,
            take_ids=self.take_ids,
            kinds=self._types.get(record.name, record.version).attributes,
        )
        return txn, ctx

    # ------------------------------------------------------------------------------ commit
    async def commit(
        self,
        live: Live,
        change: Change,
        *,
        ops: Sequence[Op] = (),
        txn: StepTxn | None = None,
        revived_version: int = 0,
    ) -> Flow:
        """Store a change, then act on it. Raises the errors of the step's own writes."""
        before = live.record
        begins = before is not None and not before.locks and not begun(before)
        if self.reign and begins and self._roster.guarded(live):
            change = dataclasses.replace(change, reign=self.reign)
        if live.granted and change.record.ended:
            change = core.ungranted(change)
            heir = self._roster.heir(live) if self.reign and self._locks is not None else None
            if heir is not None and self._locks is not None and self._locks.try_acquire(heir.id):
                try:
                    return await self._hand_on(live, change, heir, ops, txn, revived_version)
                finally:
                    self._locks.release(heir.id)
        return await self._commit_alone(live, change, ops, txn, revived_version)

    async def _commit_alone(
        self,
        live: Live,
        change: Change,
        ops: Sequence[Op],
        txn: StepTxn | None,
        revived_version: int,
    ) -> Flow:
        try:
            version = await self._update(live, change, ops, txn, revived_version)
        except Fenced:
            return await self.reload(live)
        except UnknownOutcome as error:
            before = live.version
            flow = await self.reload(live, change)
            return self._retry(live, core.error_failure(error)) if live.version == before else flow
        return self._committed(live, change, version)

    async def _update(
        self,
        live: Live,
        change: Change,
        ops: Sequence[Op],
        txn: StepTxn | None,
        revived_version: int,
    ) -> int:
        live.writing = ops
        try:
            return await self._store.update(
                live.version,
                change,
                ops=ops,
                reads=txn.reads if txn is not None else None,
                revived_version=revived_version,
            )
        finally:
            live.writing = ()

    async def _hand_on(
        self,
        live: Live,
        change: Change,
        heir: Live,
        ops: Sequence[Op],
        txn: StepTxn | None,
        revived_version: int,
    ) -> Flow:
        """Its end, and the locks that it had to who waits for them, in one transaction
        (docs/decisions/0419). The heir's IdLock is ours until memory says what the store says: so
        it has no turn meanwhile, and nothing that is unknown is ever acted on.
        """
        assert heir.record is not None, "who is too large to be kept is no heir"
        granted = core.granted(heir.record)
        given = core.handed(change, heir.version, heir.record, self.reign)
        try:
            version = await self._update(live, given, ops, txn, revived_version)
        except Fenced:  # one of the two has moved on: nothing was written
            await self.reload(heir)
            if txn is not None and txn.reads is not None:  # its snapshot is used up
                return await self.reload(live)
            return await self._commit_alone(live, change, ops, txn, revived_version)
        except UnknownOutcome as error:
            before = live.version
            await self._surely(heir)
            flow = await self._surely(live)
            if live.version == before:
                flow = self._retry(live, core.error_failure(error))
        else:
            wake = heir.wake
            self._roster.moved(heir, granted, version)
            heir.wake = wake  # what woke it has not reached a step yet
            self.handed += 1
            flow = self._committed(live, change, version)
        if heir.granted and self._roster.get(live.id) is not live:
            self._roster.inherit(heir)
        return flow

    async def _surely(self, live: Live) -> Flow:
        """`reload`, however long the store does not answer: until then nobody has these locks."""
        while True:
            try:
                return await self.reload(live)
            except KvorumError as error:
                log.warning("procedure %d: what became of its commit? %s", live.id, error)
            await asyncio.sleep(limits.PROCEDURE_CONFLICT_MS_MAX / 1000)

    def _committed(self, live: Live, change: Change, version: int) -> Flow:
        self.commits += 1
        self._roster.moved(live, change.record, version)
        self.adopt_all(change.created, version)
        if change.revived is not None and not change.revived.ended:
            self._adopt(Stored(change.revived, version))
        if change.record.ended:
            self.end(live, change.record)
        return change.flow

    async def reload(self, live: Live, change: Change | None = None) -> Flow:
        """Take over what the store says; `change` is what was perhaps written."""
        stored = await self._store.load(live.id)
        if stored is None:
            self._roster.drop(live)
            return Flow.ENDED
        record = stored.record
        if stored.version == live.version:
            live.record = record
            return Flow.MORE
        wake = live.wake if live.granted and not record.grant else ""
        self._roster.moved(live, record, stored.version)
        live.wake = wake  # robbed of its locks, it runs the same step again
        if record.ended:
            self.end(live, record)
            return Flow.ENDED
        await self._adopt_round(record)
        return Flow.MORE

    async def take_in(self, stored: Stored, *, doubt: bool = False) -> None:
        """Run one that is live in the store and not here; `doubt`: what it waits for may be there.
        Its children come before it is placed: without them it would go on as if they had ended.
        """
        live = self._roster.adopt(stored)
        await self._adopt_round(stored.record)
        record = brief(stored.record)
        if record.bound and self._roster.get(record.starter) is None:
            starter = await self._store.load(record.starter)
            live.orphan = starter is None or starter.record.ended
        if self._roster.get(live.id) is not live:
            return
        if doubt:
            self._roster.doubt(live, record)
        self._roster.place(live, record)

    def adopt_all(self, created: Sequence[Record], version: int) -> None:
        """Take in the children of a step that was committed."""
        for child in created:
            self._adopt(Stored(child, version))

    async def _adopt_round(self, record: Record) -> None:
        """The children that it waits for, or is undoing, and theirs."""
        if record.waits_for:
            first, count = record.rounds[-1]
        elif record.state is State.ROLLING_BACK and record.undo and not record.undo[-1].method:
            first, count = record.undo[-1].first, record.undo[-1].count
        else:
            return
        for stored in await self._store.load_range(first, count):
            if not stored.record.ended and self._roster.get(stored.record.id) is None:
                await self.take_in(stored)

    def _adopt(self, stored: Stored) -> None:
        self._roster.place(self._roster.adopt(stored), stored.record)

    def end(self, live: Live, record: Record) -> None:
        self._roster.drop(live)
        self._ended(Stored(record, live.version))

    def _pause(self, live: Live, error: Failure) -> Flow:
        """The step, or its undo, is broken: perhaps for long."""
        self._roster.pause(live, error, limits.PROCEDURE_RETRY_MS_MAX)
        return Flow.WAIT

    def _retry(self, live: Live, error: Failure) -> Flow:
        """Something is in the way that goes away: a conflict, a missing leader."""
        self._roster.pause(live, error, limits.PROCEDURE_CONFLICT_MS_MAX)
        return Flow.WAIT


def child_of(record: Record) -> Child:
    """How it ended, as its parent's next step sees it."""
    result = plain_data.decode(record.result) if record.state is State.SUCCESS else None
    error = record.error.to_plain() if record.error is not None else None
    return Child(record.id, record.name, record.state.name, result, error)
