"""What a workflow's function gets: `flow`, and the calls that it makes.

    await flow.step(fn, *args)        fn(ctx, *args), in a transaction of its own; what it returns
    await flow.sleep(ms)              a time that is kept
    await flow.signal(name)           the payload of the next signal of that name
    await flow.update(name)           the next update; a step answers it
    await flow.row_changed(ns, t, k)  the row, once it is another one
    await flow.start(which, args)     the result of a procedure of its own, once that has ended
    await flow.gather(call, …)        the results of all; steps of one gather are one transaction
    await flow.wait_any(call, …)      (which, its result) of the first; (None, None) at the timeout
    return flow.again(args)           a new round, with nothing stored of this one
    flow.emit(name, value)            an event for those who read them; not to be awaited

A plain function says `.get()` instead of `await`.

An execution goes through the function from its top. A call that is stored gives its result at once;
one call, or gather, of steps is carried out; the next one *parks* the function: the execution ends,
what it did is committed, and the next execution begins at the top. A function is parked by an
exception that nobody else uses, so its `finally` runs, and any call in there parks it again.

What a step raises is stored, too (its writes are dropped), and comes out of the call as StepFailed,
today and whenever the function is run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable
from kv.base.keys import table_prefix
from procedures.engine import core
from procedures.engine.calls import Call, First, Gather, Waits, name_of, plain_result, result_shape
from procedures.engine.context import StepContext, StepTxn, SyncStepTxn
from procedures.engine.driving import GivenUp
from procedures.engine.heartbeats import Bound, key_of
from procedures.engine.journal import (
    ANY,
    CHILD,
    DONE,
    EMIT,
    EXTERNAL,
    FAILED,
    OPEN,
    ROW,
    SIGNAL,
    SLEEP,
    STEP,
    UPDATE,
    Entry,
    Journal,
)
from procedures.engine.outside_events import Update
from procedures.engine.procedure import (
    DROP,
    KEEP,
    PUSH,
    SEVERAL,
    Done,
    Next,
    Suspend,
    procedure_name,
)
from procedures.engine.records import Failure
from procedures.engine.registry import Declared, StepDef, UndoDef, check_heartbeat
from procedures.engine.retries import Retry
from procedures.engine.row_watch import Awaited, row_event
from procedures.engine.step_exceptions import Retrying, StepFailed, located, step_error
from procedures.engine.submission import Options, checked_name, checked_text
from procedures.engine.typed_values import plain_of
from procedures.pools import inbox, rows

T = TypeVar("T")
SILENT: Final = "HEARTBEAT_TIMEOUT"
RUN: Final = "run"  # the step of a workflow, as the engine sees it
BEATING: Final = "beating"  # the same, where it carries out steps that say heartbeats
UNDO: Final = "undo"
_IGNORED_MAX: Final = 1_000  # calls of a function that was parked


class Parked(BaseException):
    """Leaves a workflow's function when its execution has come to its end."""


class Changed(NamedTuple):
    """A row that has changed: its value (None: it was deleted) and version (0 then)."""

    value: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class Again:
    """What a function returns to begin a new round."""

    args: Any


class CallContext(StepContext):
    """The context of one step of a workflow."""

    __slots__ = ()

    @property
    def state(self) -> dict[str, Any]:
        raise Refused(
            f"{self.name}: a step of a workflow has no ctx.state; what it returns is kept",
            code="NO_STATE",
        )


class Flow:
    """See the module.

    id, name, owner   of the procedure
    round             1, and one more after every `again`
    shown             a dict of plain data that queries see; made anew by every execution
    """

    def __init__(
        self, ctx: StepContext, definition: StepDef | UndoDef, *, replays: bool = False
    ) -> None:
        """`replays`: nothing is carried out; the first call that is not stored ends it."""
        self._ctx, self._definition, self._replays = ctx, definition, replays
        self._journal = Journal.read(ctx.state)
        self._calls: list[Call[Any]] = []
        self._starts: list[tuple[Call[Any], tuple[str, Any, Options, str, bool]]] = []
        self._busy = False
        self._acted = False  # there is something to commit before the next step is carried out …
        self._took = False  # … that has happened: it is not to be lost with an exception
        self._told: list[tuple[str, Any]] = []
        self._found_by: dict[str, Any] = {}
        self._labels: list[str] = []
        self._undoes = KEEP
        self._ended: Next | Suspend | BaseException | None = None
        self._ignored = 0  # so often it went on after that
        self.id, self.name, self.owner = ctx.id, ctx.name, ctx.owner
        self.round = self._journal.round
        self.shown: dict[str, Any] = {}

    # ------------------------------------------------------------------------------ calls
    def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        undo: Callable[..., Any] | None = None,
        retry: Retry | None = None,
        name: str = "",
        heartbeat_ms: int = 0,
    ) -> Call[Any]:
        """Carry out `fn(ctx, *args)`, async or plain: once, in one transaction with what it writes
        to `ctx.txn`. `undo(ctx, *args)` takes it back when the workflow fails. `retry`: its policy;
        None = that of the workflow. `name`: else that of the function, and stored as such.
        `heartbeat_ms`: an attempt may be silent for so long (`ctx.heartbeat(details)`); then it has
        failed, and the next one has `ctx.last_heartbeat`.
        """
        own: tuple[object, ...] = (fn,) if undo is None else (fn, undo)
        for one in own:
            if not callable(one):
                raise InvalidArgument(f"{self.name}: a step is a function, not {one!r:.80}")
        name = checked_text("the name of a step", name or name_of(fn), limits.NAME_CHARS_MAX)
        policy = self._policy if retry is None else retry
        check_heartbeat(f"{self.name}: step {name}", heartbeat_ms)
        call: Call[Any] = Call(self, *self._next(STEP, name), fn, args, undo, policy, heartbeat_ms)
        self._calls.append(call)
        return call

    def sleep(self, ms: int) -> Call[None]:
        """Go on after `ms`, counted from when this is first reached, and kept."""
        if type(ms) is not int or not 0 <= ms <= limits.PROCEDURE_TIMEOUT_MS_MAX:
            most = limits.PROCEDURE_TIMEOUT_MS_MAX
            raise InvalidArgument(f"{self.name}: sleep wants 0 to {most} ms, got {ms!r:.40}")
        call: Call[None] = Call(self, *self._next(SLEEP, ""))
        if call.entry.status == OPEN and call.entry.value is None:
            call.entry.value = self._ctx.now_ms + ms
        return call

    def signal(self, name: str) -> Call[Any]:
        """The payload of the oldest signal of this name that nobody took; waits for one."""
        checked_name("signal", name)
        return Call(self, *self._next(SIGNAL, name))

    def update(self, name: str) -> Call[Update]:
        """The oldest update of this name that nobody took; waits for one. A step answers it, in its
        transaction: `ctx.answer(update, result)` or `ctx.refuse(update, code, message)`.
        """
        checked_name("update", name)
        return Call(self, *self._next(UPDATE, name))

    def external(self, name: str = "") -> Call[Any]:
        """What an outside system says: it gets `.token` (in a step), and completes it with
        `db.complete(token, …)`.
        """
        call: Call[Any] = Call(self, *self._next(EXTERNAL, name))
        self._token_of(call)
        return call

    def start(
        self,
        which: str | Declared,
        args: Any = None,
        *,
        cancel: bool = True,
        queue: str = "",
        key: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
    ) -> Call[Any]:
        """Start a procedure, together with the next thing that is stored; awaiting it gives its
        result. It is cancelled when this one ends before it (`cancel=False`: it goes on).
        """
        name = checked_text("procedure name", procedure_name(which), limits.NAME_CHARS_MAX)
        call: Call[Any] = Call(self, *self._next(CHILD, name))
        if call.entry.status == OPEN and call.entry.value is None:
            options = Options(queue, priority, delay_ms, key=key)
            self._starts.append((call, (name, args, options, self._token_of(call), cancel)))
        return call

    def row_changed(
        self, namespace: str, table: str, key: bytes | str, *, since: int | None = None
    ) -> Call[Changed]:
        """Wait until a row is another one: than it is when this is first looked at, or than that
        of version `since` (0: absent), such as `.version` of what this gave before. What counts is
        the row, not its history: one that is as it was again did not change.
        """
        data = key.encode() if isinstance(key, str) else key
        if not 0 < len(data) <= limits.PROCEDURE_ROW_KEY_BYTES_MAX:
            most = limits.PROCEDURE_ROW_KEY_BYTES_MAX
            raise InvalidArgument(f"{self.name}: the key of a row has 1 to {most} bytes")
        call: Call[Changed] = Call(self, *self._next(ROW, f"{namespace}.{table}"))
        call.args = (namespace, table, data, since)
        return call

    def emit(self, name: str, value: Any = None) -> None:
        """Tell those who read the events of this procedure (`db.events(id)`) something, once, with
        the next thing that is stored. In a step it is `ctx.emit`, which is no call of the workflow.
        """
        _, entry = self._next(EMIT, checked_name("event", name))
        if entry.status == OPEN:
            if self._replays:
                self._end(Next(RUN))
            self._ctx.emit(name, value)
            self._told.append((name, value))
            entry.status, self._took = DONE, True

    def attributes(self, **values: Any) -> dict[str, Any]:
        """`ctx.attributes`: by what this procedure can be found, together with the next thing that
        is stored.
        """
        shown = self._ctx.attributes(**values)
        self._found_by |= values
        return shown

    def gather(self, *calls: Call[Any], errors: bool = False) -> Gather:
        """All of these: a list of their results. Its steps run at the same time, in one
        transaction: if one fails, nothing of them is kept. `errors`: what failed is in the list as
        a StepFailed, and raises none.
        """
        return Gather(self, self._own(calls, "gather", limits.PROCEDURE_CALLS_MAX), errors)

    def wait_any(self, *calls: Call[Any], timeout_ms: int = 0) -> First:
        """The first of these that is there (in their order, if several are): which, and its result;
        (None, None) after `timeout_ms`. The others can be waited for again. Not for steps: a step
        is carried out when it is waited for.
        """
        own = self._own(calls, "wait_any", limits.PROCEDURE_ANY_MAX)
        if any(call.entry.kind == STEP for call in own):
            raise InvalidArgument(f"{self.name}: wait_any is not for steps; gather is, or a child")
        _, entry = self._next(ANY, "")
        return First(self, entry, own, self.sleep(timeout_ms) if timeout_ms else None)

    def again(self, args: Any = None) -> Again:
        """To be returned: begin anew with these arguments. What this round stored is dropped, and
        is not undone any more; so there may be any number of rounds.
        """
        return Again(args)

    # ------------------------------------------------------------------------------ details
    @property
    def _policy(self) -> Retry | None:
        return self._definition.mark.retry if isinstance(self._definition, StepDef) else None

    def _own(self, calls: Sequence[Call[Any]], what: str, most: int) -> Sequence[Call[Any]]:
        if not 0 < len(calls) <= most:
            raise InvalidArgument(f"{self.name}: {what} wants 1 to {most} calls, got {len(calls)}")
        for call in calls:
            made: object = call
            if not isinstance(made, Call) or made.flow is not self:
                raise InvalidArgument(
                    f"{self.name}: {what} wants calls of this workflow (flow.step(…), "
                    f"flow.signal(…), …), not {call!r:.80}"
                )
        return calls

    def _next(self, kind: str, name: str) -> tuple[int, Entry]:
        if self._ended is not None:
            if self._ignored > _IGNORED_MAX:  # it is given up once it waits for this
                return -1, Entry(kind, name)
            self._ignored += 1
            raise Parked
        if self._busy:
            raise InvalidArgument(
                f"{self.name}: a call of the workflow inside one of its steps; make it before or "
                "after that"
            )
        at, entry, other = self._journal.next(kind, name)
        if other:
            mine = Entry(kind, name).text
            self._end(self._changed(f"call {at + 1} is {mine}, but {other} is stored there"))
        return at, entry

    def _changed(self, why: str) -> KvorumError:
        return Unavailable(
            f"the code of workflow {self.name} does not fit what procedure {self.id} has done: "
            f"{why}; run it with the code that it began with, or give the new code a new version",
            code="WORKFLOW_CHANGED",
        )

    def _end(self, how: Next | Suspend | BaseException) -> NoReturn:
        self._ended = how
        raise Parked

    def _token_of(self, call: Call[Any]) -> str:
        if call.entry.status == OPEN and call.entry.value is None:
            call.entry.value = inbox.token_of(f"{self._ctx.token}.{call.at}")
        token: str = call.entry.value
        return token

    def _typed(self, call: Call[Any]) -> Any:
        value = call.entry.value if call.entry.kind != SLEEP else None
        if call.entry.kind == UPDATE:
            key, args = call.entry.value
            return Update(key, args)
        if call.entry.kind == ROW:
            return Changed(*call.entry.value)
        kind = None if call.fn is None else result_shape(call.fn)
        return value if kind is None else kind.read(value, f"the result of {call.entry.name}")

    # -- waiting
    async def _awaited(self, waits: Waits[T]) -> T:
        if self._ignored > _IGNORED_MAX:
            await GivenUp(InvalidArgument(self._goes_on()))
        self._begin(waits)
        try:
            if (steps := self._to_do(waits)) is not None:
                if steps:
                    await self._carried_out(steps, tolerant=_tolerant(waits))
                else:
                    await self._look(waits)
            return self._settled(waits)
        except asyncio.CancelledError:  # what it wrote so far must not be kept with what follows
            self._ended = InvalidArgument(
                f"{self.name}: the function cancelled {waits.calls()[0].entry.text} while it ran; "
                "attempt_ms= limits an attempt, timeout_ms= of flow.wait_any(…) a wait"
            )
            raise
        finally:
            self._busy = False

    def _goes_on(self) -> str:
        return (
            f"{self.name}: its function catches BaseException around a call and goes on, for ever; "
            "catch Exception: the other one is how an execution ends"
        )

    def _got(self, waits: Waits[T]) -> T:
        if self._ignored > _IGNORED_MAX:
            threading.Event().wait(0.1)  # nobody can end a thread; but let others run
        txn = self._ctx.txn
        if not isinstance(txn, SyncStepTxn) and not self._replays:
            raise InvalidArgument(f"{self.name} is async: await {waits!r:.40}, get() is for others")
        self._begin(waits)
        try:
            if (steps := self._to_do(waits)) is not None:
                if not steps:
                    txn.wait(self._look(waits))
                elif len(steps) == 1 and not inspect.iscoroutinefunction(steps[0].fn):
                    self._carried_out_here(steps[0], tolerant=_tolerant(waits))
                else:
                    txn.wait(self._carried_out(steps, tolerant=_tolerant(waits)))
            return self._settled(waits)
        finally:
            self._busy = False

    def _begin(self, waits: Waits[Any]) -> None:
        if self._ended is not None:
            self._ignored += 1
            raise Parked
        if self._busy:
            raise InvalidArgument(
                f"{self.name}: two calls at once; use flow.gather(…), which keeps their order"
            )
        for call in waits.calls():
            call.asked = True
        self._busy = True

    def _to_do(self, waits: Waits[Any]) -> list[Call[Any]] | None:
        """Steps to carry out now; [] = to look what is there; None = it has enough."""
        if waits.enough():
            return None
        if self._replays:
            self._end(Next(RUN))
        steps = [c for c in waits.calls() if c.entry.kind == STEP and c.entry.status == OPEN]
        if not steps:
            return steps
        says = any(call.heartbeat_ms for call in steps) and not self._definition.heartbeat_ms
        if says or self._acted:
            self._end(Next(BEATING if says else RUN, self._undoes, self._label()))
        return steps

    def _settled(self, waits: Waits[T]) -> T:
        """Its result; or the function is parked until there is one."""
        if not waits.enough():
            is_open = [call for call in waits.calls() if call.entry.status == OPEN]
            due = [call.entry.value for call in is_open if call.entry.kind == SLEEP]
            events = [self._event(call) for call in is_open if call.entry.kind != SLEEP]
            if not isinstance(waits, First):  # all of them: one after the other
                events, due = events[:1], [] if events else [max(due)]
            timeout_ms = max(1, min(due) - self._ctx.now_ms) if due else 0
            event = SEVERAL.join(dict.fromkeys(events))
            self._end(Suspend(RUN, event, timeout_ms, self._undoes, self._label()))
        return waits.result()

    def _event(self, call: Call[Any]) -> str:
        if call.entry.kind in (SIGNAL, UPDATE):
            return inbox.signal_event(self.id, _signal_of(call.entry))
        if call.entry.kind == ROW:
            return row_event(Awaited(*call.entry.value))
        return inbox.done_event(self._token_of(call))

    def _label(self) -> str:
        return ", ".join(self._labels)[: limits.NAME_CHARS_MAX]

    async def _look(self, waits: Waits[Any]) -> None:
        """What has come of that which is waited for."""
        ctx = self._outside
        for call in waits.calls():
            entry = call.entry
            if entry.status != OPEN:
                continue
            if entry.kind == SLEEP:
                if entry.value <= self._ctx.now_ms:
                    entry.status = DONE
            elif entry.kind == ROW:
                await self._look_at_row(call)
            elif entry.kind in (SIGNAL, UPDATE):
                if (signal := await ctx._receive(_signal_of(entry))) is not None:
                    entry.status, entry.value = DONE, signal.payload
                    self._acted = self._took = True
                    self._labels.append(entry.text)
            elif (done := await ctx._completed(self._token_of(call))) is not None:
                if entry.kind == CHILD:  # nobody asks for it any more; a token of an outside system
                    self._txn.delete(rows.done(self.id, entry.value))  # may be completed again
                    self._acted = self._took = True
                entry.status = DONE if done.ok else FAILED
                entry.value = done.result if done.ok else _known_error(done.error)
            if entry.status != OPEN and isinstance(waits, First):
                self._acted = True  # which it was is stored before a step relies on it
                return

    async def _look_at_row(self, call: Call[Any]) -> None:
        """Whether it is another one than it was."""
        namespace, table, key, since = call.args
        txn, entry = self._txn, call.entry
        if entry.value is None:
            storage = table_prefix(await txn.table_id((namespace, table))) + key
            row = await txn.get(storage)
            entry.value = [storage, (row.version if row else 0) if since is None else since]
        else:
            row = await txn.get(entry.value[0])
        version = row.version if row else 0
        if version != entry.value[1]:
            entry.status, entry.value = DONE, [row.value if row else None, version]
            self._acted = self._took = True

    @property
    def _outside(self) -> StepContext:
        """To look for signals on the loop, wherever the function runs."""
        ctx = copy.copy(self._ctx)
        ctx.txn = self._txn
        return ctx

    @property
    def _txn(self) -> StepTxn:
        txn: StepTxn = getattr(self._ctx.txn, "inner", self._ctx.txn)
        return txn

    # -- steps
    async def _carried_out(self, calls: Sequence[Call[Any]], *, tolerant: bool) -> None:
        """Run them, in this execution's transaction. `tolerant`: without those that fail. Raises
        StepFailed, Parked.
        """
        while calls:
            if len(calls) == 1:
                outcomes = [await self._tried(calls[0])]
            else:
                outcomes = await asyncio.gather(*map(self._tried, calls))
            calls = self._keep(calls, outcomes, tolerant=tolerant)

    async def _tried(self, call: Call[Any]) -> object:
        try:
            return await self._one(call)
        except Exception as error:  # noqa: BLE001  users' code: whatever it raises
            return _Raised(error)

    async def _one(self, call: Call[Any]) -> object:
        fn, loop = call.fn, asyncio.get_running_loop()
        assert fn is not None, call.entry.text
        if not inspect.iscoroutinefunction(fn):
            ctx = self._context(call, SyncStepTxn(self._txn, loop))
            with self._bound(call, ctx):
                return await self._ctx.in_thread(ctx.watched(fn), ctx, *call.args)
        ctx = self._context(call, self._txn)
        if not call.heartbeat_ms:
            return await ctx.watched(fn)(ctx, *call.args)
        with self._bound(call, ctx) as key:
            return await self._while_it_says(key, call, ctx.watched(fn)(ctx, *call.args))

    @contextlib.contextmanager
    def _bound(self, call: Call[Any], ctx: CallContext) -> Iterator[str]:
        """While a step runs that is to say that it lives."""
        key, heart = key_of(ctx._token, self.round), self._ctx.heart
        if not call.heartbeat_ms:
            yield key
            return
        policy = call.policy
        if policy is not None and not policy.allows(SILENT):
            policy = None
        # an async one is ended here, alone; if it cannot be, and a plain one, with its execution
        slack_ms = limits.STEP_PROCESS_GRACE_MS if inspect.iscoroutinefunction(call.fn) else 0
        heart.bind(key, Bound(call.entry.name, call.heartbeat_ms, policy, slack_ms))
        try:
            yield key
        finally:
            heart.bind(key, None)

    async def _while_it_says(self, key: str, call: Call[Any], code: Awaitable[object]) -> object:
        """An async step, until it is silent for too long: then what it waits for is cancelled."""
        loop, heart = asyncio.get_running_loop(), self._ctx.heart
        timer = loop.call_later(heart.left_s(key), lambda: look())

        def look() -> None:
            nonlocal timer
            left_s = heart.left_s(key)
            if left_s <= 0:
                time.reschedule(loop.time())
            else:
                timer = loop.call_later(left_s, look)

        try:
            async with asyncio.timeout(None) as time:
                value = await code
        except TimeoutError:
            if not time.expired():
                raise
        finally:
            timer.cancel()
        if time.expired():  # perhaps it would not be cancelled
            silent = core.silent_attempt(self.name, call.entry.name, call.heartbeat_ms)
            raise StepFailed(silent)
        return value

    def _carried_out_here(self, call: Call[Any], *, tolerant: bool) -> None:
        """A plain step in a plain function: in its thread."""
        assert call.fn is not None, call.entry.text
        outcome: object
        try:
            ctx = self._context(call, self._ctx.txn)
            with self._bound(call, ctx):
                outcome = ctx.watched(call.fn)(ctx, *call.args)
        except Exception as error:  # noqa: BLE001  users' code: whatever it raises
            outcome = _Raised(error)
        self._keep([call], [outcome], tolerant=tolerant)

    def _context(self, call: Call[Any], txn: object) -> CallContext:
        ctx = copy.copy(self._ctx)
        ctx.__class__ = CallContext
        ctx.step, ctx.txn = call.entry.name, txn
        token, early = self._ctx.given
        base, undo, _ = token.partition("-undo")
        ctx._token, ctx._early = f"{base}.{call.at}{undo}", early
        assert isinstance(ctx, CallContext)
        return ctx

    def _keep(
        self, calls: Sequence[Call[Any]], outcomes: Sequence[object], *, tolerant: bool
    ) -> Sequence[Call[Any]]:
        """What they gave, if none of them failed. Else nothing of them is kept, and if that is
        tolerated the others run again, with the same tokens: those are given back.
        """
        values = []
        for call, outcome in zip(calls, outcomes, strict=True):
            try:
                values.append(self._value(call, outcome))
            except StepFailed:
                if not tolerant:
                    raise
        if len(values) < len(calls):
            return [call for call in calls if call.entry.status == OPEN]
        self._acted = self._took = True
        for call, value in zip(calls, values, strict=True):
            call.entry.status, call.entry.value = DONE, value
            self._labels.append(call.entry.name)
            if call.undo is not None:
                call.entry.seq, self._undoes = self._ctx.record.seq, PUSH
        return ()

    def _value(self, call: Call[Any], outcome: object) -> object:
        if isinstance(outcome, _Raised):
            self._failed(call, outcome.error)
        try:
            return plain_result(call, outcome)
        except KvorumError as error:
            self._failed(call, error)

    def _failed(self, call: Call[Any], error: Exception) -> NoReturn:
        """A step raised: it is tried again, or that is what it gives, and nothing of it is kept."""
        if isinstance(error, KvorumError) and error.disposition != "no":
            self._end(error)
        failure = error.failure if isinstance(error, StepFailed) else self._failure(call, error)
        policy, record = call.policy, self._ctx.record
        if policy is not None and policy.allows(failure.code, error):
            if record.final or policy.left(record.failed + 1):
                self._end(Retrying(failure, policy))
        elif record.final:
            self._end(StepFailed(failure))  # it cannot fail any more
        self._ctx.forget()
        for told in self._told:  # by the function, before
            self._ctx.emit(*told)
        if self._found_by:
            self._ctx.attributes(**self._found_by)
        call.entry.status = FAILED
        call.entry.value = {"code": failure.code, "message": failure.message, "type": failure.type}
        self._acted = True
        self._labels.append(call.entry.name)
        raise StepFailed(failure) from error

    def _own_failure(self, error: BaseException) -> BaseException:
        """What the function itself raised: its word, which no policy of a step repeats."""
        if self._ended is not None or isinstance(error, StepFailed):
            return error
        if not isinstance(error, KvorumError):
            return StepFailed(step_error(error, self._definition, RUN))
        if error.disposition != "no":
            return error
        return StepFailed(located(core.error_failure(error), error, self._definition, RUN))

    def _failure(self, call: Call[Any], error: Exception) -> Failure:
        if isinstance(error, KvorumError):
            known = core.error_failure(self._txn.in_users_words(error))
            return located(known, error, self._definition, call.entry.name)
        return step_error(error, self._definition, call.entry.name)

    async def _start(self) -> None:
        """Start what was asked for: it is stored with the end of this execution."""
        if self._starts and not isinstance(self._ended, BaseException) and not self._replays:
            ids = await self._ctx.start([given for _, given in self._starts])
            for (call, _), id in zip(self._starts, ids, strict=True):
                call.entry.seq = id

    # -- how an execution ends
    def _end_of(self, value: object, error: BaseException | None) -> Next | Suspend | Done:
        """The function returned, or raised. Raises what the engine has to know."""
        if self._ended is None and (left := self._journal.left):
            self._ended = self._changed(f"it ends before {left}, which is stored")
        if self._ended is None and error is None:
            error = self._forgotten()
        if isinstance(self._ended, BaseException):
            raise self._ended
        outcome: Next | Suspend | Done | None = self._ended
        if outcome is None and error is not None:
            if not self._took:
                raise error
            outcome = Next(RUN, self._undoes, self._label())  # what it did is kept first
        if outcome is None and isinstance(value, Again):
            self._journal = Journal(self.round + 1, plain_of(value.args, "arguments of a round"))
            outcome = Next(RUN, DROP, self._label() or "again")
        elif outcome is None:
            outcome = Done(value, self._undoes, self._label())
        self._journal.shown = self.shown
        self._ctx.state.clear()
        self._ctx.state.update(self._journal.write())
        return outcome

    def _forgotten(self) -> Refused | None:
        """What is wrong with a function that returns and has not waited for one of its steps: that
        was not carried out, as its author thinks it was.
        """
        for call in self._calls:
            if not call.asked:
                return Refused(
                    f"{self.name}: {call.entry.text} was called and not awaited, so it was not "
                    "carried out; write `await flow.step(…)`, in a plain function "
                    "`flow.step(…).get()`",
                    code="STEP_NOT_AWAITED",
                )
        return None

    def _to_undo(self, seq: int) -> list[tuple[CallContext, Callable[..., Any], tuple[Any, ...]]]:
        """What one execution did, the last of it first: context, function, arguments. Raises as
        `_undone_by`.
        """
        found = []
        for call in self._undone_by(seq):
            assert call.undo is not None, call.entry.text
            txn = self._ctx.txn
            if inspect.iscoroutinefunction(call.undo):
                txn = self._txn
            elif not isinstance(txn, SyncStepTxn):
                txn = SyncStepTxn(self._txn, asyncio.get_running_loop())
            ctx = self._context(call, txn)
            found.append((ctx, ctx.watched(call.undo), call.args))
        return found

    def _undone_by(self, seq: int) -> list[Call[Any]]:
        """The calls that say how what one execution did is undone, the last one first. Raises
        Unavailable (WORKFLOW_CHANGED): the function does not say all of it.
        """
        if isinstance(self._ended, KvorumError):
            raise self._ended
        wanted = [e for e in self._journal.entries if e.kind == STEP and e.seq == seq]
        calls = [call for call in self._calls if call.entry.seq == seq]
        if len(calls) < len(wanted):
            raise self._changed(f"it does not come to {wanted[-1].text}, which is to be undone")
        for call in calls:
            if call.undo is None:
                raise self._changed(f"{call.entry.text} has no undo any more")
        return calls[::-1]


def _tolerant(waits: Waits[Any]) -> bool:
    return isinstance(waits, Gather) and waits.errors


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


def _signal_of(entry: Entry) -> str:
    return entry.name if entry.kind == SIGNAL else inbox.update_name(entry.name)


def _known_error(error: Any) -> dict[str, Any]:
    """What an outside system, or a child, gave as its error."""
    known = error if isinstance(error, dict) else {"message": error}
    names = {"code": "EXTERNAL_ERROR", "message": "", "type": ""}
    return {name: str(known.get(name) or other) for name, other in names.items()}


def driven(coro: Coroutine[Any, Any, T]) -> T:
    """Run what waits for nothing but stored calls. Raises Parked if it waits for something else."""
    try:
        coro.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        coro.close()
    raise Parked
