"""First steps that run before their submission is durable (docs/decisions/0520).

A procedure usually costs two writes one after the other: its submission, then its first step. A
first step that was declared `early=True` has no effect but its writes to `ctx.txn`; so it runs at
once, and submission, outcome and writes are ONE transaction: all of it is there or nothing. Whoever
submits is answered when that is durable.

Nothing is promised: it is tried when a worker is free, nobody waits for a turn, there are no locks
and no limits to wait for, and the step ends within PROCEDURE_EARLY_MS. (Where it runs in another
process that is counted there: many at once wait for each other, and none of them is slow for that.
The whole may take PROCEDURE_EARLY_APART_MS.) In any other case, and if
the step does not simply succeed, its run is dropped, and the submission goes the usual way, where
the step runs anew. A type whose step took too long is left in peace for a while by this executor,
each time for twice as long: one pause of the machine does not make a type slow for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from kv.base import limits
from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.ports import Clock
from procedures.engine import core
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.core import Change, Ran, RunStep
from procedures.engine.procedure import Fail, State
from procedures.engine.records import Record
from procedures.engine.registry import ProcedureType, Registry, StepDef
from procedures.engine.roster import Roster
from procedures.engine.runner import SLOW, Died, Returned, Runner, TryAgain
from procedures.engine.store import Fenced, ProcedureStore, Stored
from procedures.engine.turn import Turns

_SLOW_TYPES_MAX: Final = 1_000


class Begun(NamedTuple):
    """A procedure that was stored after its first step."""

    stored: Stored
    change: Change
    events: tuple[str, ...]  # that its step signalled
    since: int  # signals up to this number were before its step


class _Rest(NamedTuple):
    until_ms: int
    rest_ms: int


class _DiedError(Exception):
    """The process that ran the step ended under it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Early:
    """See the module. `room`: how many more steps may be under way in this executor."""

    def __init__(
        self,
        *,
        store: ProcedureStore,
        types: Registry,
        clock: Clock,
        runner: Runner,
        roster: Roster,
        turns: Turns,
        room: Callable[[], int],
    ) -> None:
        self._store, self._types, self._clock = store, types, clock
        self._runner, self._roster, self._turns = runner, roster, turns
        self._room = room
        self._slow: dict[tuple[str, int], _Rest] = {}  # types whose step took too long
        self.running = 0
        self.begun = 0  # procedures that began this way
        self.dropped = 0  # runs that were for nothing

    async def begin(self, record: Record) -> Begun | Record:
        """Run the first step of a procedure that is stored nowhere yet, and store both. A record:
        that is still to be submitted (or, if a write's outcome is unknown, asked for); it names
        a process that the run ended.
        """
        declared = self._types.get(record.name, record.version)
        if not self._may(record, declared):
            return record
        definition = declared.steps[record.step]
        action = core.action(record)
        assert isinstance(action, RunStep)
        txn, ctx = self._turns.context(record, definition, record.step, action.token, early=True)
        since = self._roster.signals
        self.running += 1
        try:
            change, version = await self._stored(record, declared, definition, txn, ctx)
        except _DiedError as error:
            self.dropped += 1
            ran = Ran(record.data, ctx.attempt, ctx.now_ms, self._clock.now_ms())
            return core.died(record, error.why, ran).record
        except (KvorumError, Fenced, TimeoutError) as error:
            self.dropped += 1
            if isinstance(error, UnknownOutcome):  # if it was stored, nobody will signal them again
                for event in ctx.signals():
                    self._roster.signal(event)
            return record
        finally:
            self.running -= 1
            await txn.end()
        self.begun += 1
        stored = Stored(change.record.settled(version), version)
        return Begun(stored, change, tuple(ctx.signals()), since)

    def _may(self, record: Record, declared: ProcedureType) -> bool:
        """Whether it would have a turn at once, and needs nothing that is taken with its turn."""
        return (
            declared.steps[declared.first].mark.early
            and not declared.remote
            and record.state is State.RUNNABLE
            and not record.locks
            and not record.pending
            and not self._rests(record)
            and self._runner.at_once(record.name)
            and self._room() > self.running
            and not self._roster.waits_in("")
            and not self._roster.held_up(record)
        )

    def _rests(self, record: Record) -> bool:
        rest = self._slow.get((record.name, record.version))
        return rest is not None and self._clock.now_ms() < rest.until_ms

    def _let_rest(self, record: Record) -> None:
        before = self._slow.pop((record.name, record.version), None)
        rest_ms = limits.PROCEDURE_EARLY_REST_MS_FIRST
        if before is not None:
            rest_ms = min(2 * before.rest_ms, limits.PROCEDURE_EARLY_REST_MS_MAX)
        while len(self._slow) >= _SLOW_TYPES_MAX:
            del self._slow[next(iter(self._slow))]
        self._slow[record.name, record.version] = _Rest(self._clock.now_ms() + rest_ms, rest_ms)

    async def _stored(
        self,
        record: Record,
        declared: ProcedureType,
        definition: StepDef,
        txn: StepTxn,
        ctx: StepContext,
    ) -> tuple[Change, int]:
        """Raises KvorumError, Fenced, TimeoutError or _DiedError if it cannot be so."""
        apart = self._runner.runs_apart(record.name)
        bound_ms = limits.PROCEDURE_EARLY_APART_MS if apart else limits.PROCEDURE_EARLY_MS
        try:
            async with asyncio.timeout(bound_ms / 1000):
                ended = await self._runner.run(definition, declared.make, ctx)
        except TimeoutError:
            if not apart:  # else it may have waited for others: the process says what was slow
                self._let_rest(record)
            raise
        if isinstance(ended, TryAgain) and ended.error.code == SLOW:
            self._let_rest(record)
            raise Fenced
        self._slow.pop((record.name, record.version), None)
        if isinstance(ended, Died):
            raise _DiedError(ended.why)
        if not isinstance(ended, Returned) or ended.outcome is None or ctx.too_early:
            raise Fenced  # it failed, or cannot be early: it runs again the usual way
        if isinstance(ended.outcome, Fail):
            raise Fenced
        now_ms = self._clock.now_ms()
        ran = Ran(ended.data, ctx.attempt, ctx.now_ms, now_ms, "", txn.read_ts, ctx.trace)
        if self._turns.late(record, declared, ended.outcome, ran.now_ms) is not None:
            raise Fenced
        change, ops = await self._turns.changed(record, ended.outcome, ran, txn, ctx)
        return change, await self._store.start(change, ops=ops, reads=txn.reads)
