"""Workflows: procedures that are written as one function.

    @kvorum.workflow
    async def transfer(flow: kvorum.Flow, order: Order) -> Receipt:
        await flow.step(withdraw, order.source, order.amount, undo=give_back)
        return await flow.step(deposit, order.target, order.amount)

To the engine that is a type like any other: it has a step, `run`, which is executed until the
function returns, and one undo method. (Before a step that says heartbeats it goes over to
`beating`, which is the same, in a process that may be ended: so what is stored says it beforehand.)
An execution of `run` goes through the function (flow.py); its outcome is that the next one follows,
or waits. So locks, queues, workers, timeouts, surgery and children are those of every procedure.
What the function's calls gave is the procedure's state (journal.py); what an execution did is
undone by going through the function once more, which says with which functions and arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar, overload

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import PROCEDURE_RETENTION_MS_DEFAULT, PROCEDURE_TIMEOUT_MS_MAX
from procedures.engine.attributes import declared as declared_attributes
from procedures.engine.context import StepContext
from procedures.engine.flow import BEATING, RUN, UNDO, Flow, Parked, driven
from procedures.engine.journal import STEP
from procedures.engine.needs import checked as checked_needs
from procedures.engine.procedure import Outcome
from procedures.engine.records import Record
from procedures.engine.registry import (
    LockRule,
    ProcedureType,
    StepDef,
    StepMark,
    UndoDef,
    check_heartbeat,
    checked_query,
    checked_validators,
    declare_type,
    version_of,
)
from procedures.engine.retries import Retry
from procedures.engine.typed_values import Shape, hints_of, shape_of

F = TypeVar("F", bound=Callable[..., Any])


@overload
def workflow(fn: F, /) -> F: ...
@overload
def workflow(
    name: str = "",
    /,
    *,
    locks: LockRule = (),
    timeout_ms: int = 0,
    retention_ms: int = PROCEDURE_RETENTION_MS_DEFAULT,
    version: int | str = 1,
    accepts: Iterable[int] = (),
    pool: str = "",
    queue: str = "",
    priority: int = 0,
    max_concurrent: int = 0,
    rate_per_s: float = 0,
    key: str = "",
    needs: Mapping[str, float | str] | None = None,
    pinned: bool = False,
    bypass: str = "",
    attempt_ms: int = 0,
    heartbeat_ms: int = 0,
    retry: Retry | None = None,
    queries: Iterable[Callable[..., object]] = (),
    validators: Iterable[Callable[..., object]] = (),
    attributes: Mapping[str, object] | None = None,
) -> Callable[[F], F]: ...
def workflow(
    fn: F | str = "",
    /,
    *,
    locks: LockRule = (),
    timeout_ms: int = 0,
    retention_ms: int = PROCEDURE_RETENTION_MS_DEFAULT,
    version: int | str = 1,
    accepts: Iterable[int] = (),
    pool: str = "",
    queue: str = "",
    priority: int = 0,
    max_concurrent: int = 0,
    rate_per_s: float = 0,
    key: str = "",
    needs: Mapping[str, float | str] | None = None,
    pinned: bool = False,
    bypass: str = "",
    attempt_ms: int = 0,
    heartbeat_ms: int = 0,
    retry: Retry | None = None,
    queries: Iterable[Callable[..., Any]] = (),
    validators: Iterable[Callable[..., object]] = (),
    attributes: Mapping[str, object] | None = None,
) -> F | Callable[[F], F]:
    """Declare a function `(flow)` or `(flow, args)`, async or plain, as the procedure of this name
    (else of its own). The annotations of `args` and of what it returns are the types of both.

    attempt_ms   one execution, with the steps that it carries out, may take so long
    heartbeat_ms  … and be silent for so long: steps that take longer say `ctx.heartbeat(details)`;
                 but those called with one of their own
    retry        the policy of steps that are called without one
    queries      functions `(view)` or `(view, args)` that answer `db.query(id, NAME, args)` from
                 `flow.shown` (queries.py)
    validators   functions with `@update.validator(NAME)`, which look at updates first
    version      "code" is made of the function's source, and of what that uses of its module
    The others are those of `procedure`. Raises InvalidArgument (code PROCEDURE_DECLARATION).
    """
    name = fn if isinstance(fn, str) else ""

    def declare(fn: F) -> F:
        if not inspect.isfunction(fn):
            raise InvalidArgument(
                f"workflow: {fn!r:.80} is no function", code="PROCEDURE_DECLARATION"
            )
        args, result = _types(fn)
        check_heartbeat(fn, heartbeat_ms)
        mark = StepMark(
            first=True, undo=UNDO, attempt_ms=attempt_ms, retry=retry, heartbeat_ms=heartbeat_ms
        )
        kinds = declared_attributes(f"workflow {fn.__qualname__}", attributes)
        made = _Made(fn, args, mark, kinds)
        declared = ProcedureType(
            name or fn.__name__,
            version_of(fn, version, {RUN: fn}),
            RUN,
            MappingProxyType({RUN: made.step, BEATING: made.beating}),
            MappingProxyType({UNDO: made.undo}),
            locks,
            timeout_ms,
            retention_ms,
            object,
            f"{fn.__module__}.{fn.__qualname__}",
            accepts=frozenset(accepts),
            pool=pool,
            queue=queue,
            priority=priority,
            max_concurrent=max_concurrent,
            rate_per_s=rate_per_s,
            key=key,
            needs=checked_needs(f"workflow {fn.__qualname__}: needs", needs or {}),
            pinned=pinned,
            replaying=True,
            bypass=bypass,
            args=args,
            result=result,
            queries=MappingProxyType(
                {one.__name__: checked_query(fn, one.__name__, one, 0) for one in queries}
            ),
            validators=checked_validators(fn, validators, 0),
            replays=made.replays,
            attributes=kinds,
        )
        declare_type(fn, declared)
        return fn

    return declare if isinstance(fn, str) else declare(fn)


def _types(fn: Callable[..., object]) -> tuple[Shape | None, Shape | None]:
    where = f"workflow {fn.__qualname__}"
    parameters = list(inspect.signature(fn).parameters.values())
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not 1 <= len(plain) <= 2 or len(plain) != len(parameters):
        raise InvalidArgument(
            f"{where}: it takes (flow) or (flow, args)", code="PROCEDURE_DECLARATION"
        )
    hints = hints_of(fn)
    args = hints.get(plain[1].name) if len(plain) > 1 else None
    return shape_of(args, f"{where}: args"), shape_of(hints.get("return"), f"{where}: result")


class _Made:
    """What the engine sees of a function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Shape | None,
        mark: StepMark,
        kinds: Mapping[str, str],
    ) -> None:
        self._fn, self._args, self._kinds = fn, args, kinds
        self._takes = len(inspect.signature(fn).parameters) > 1
        is_async = inspect.iscoroutinefunction(fn)
        run, undo = (self._run, self._undo) if is_async else (self._run_plain, self._undo_plain)
        self.step = StepDef(RUN, _named(run, fn), is_async, mark)
        ms = mark.heartbeat_ms or PROCEDURE_TIMEOUT_MS_MAX
        self.beating = replace(self.step, name=BEATING, mark=replace(mark, heartbeat_ms=ms))
        self.undo = UndoDef(UNDO, _named(undo, fn), is_async)

    def _call(self, flow: Flow, ctx: StepContext) -> Any:
        if not self._takes:
            return self._fn(flow)
        if flow.round == 1:
            return self._fn(flow, ctx.args)
        given = flow._journal.args
        if self._args is not None:
            given = self._args.read(given, f"arguments of round {flow.round} of {ctx.name}")
        return self._fn(flow, given)

    # -- executions
    def _of(self, ctx: StepContext) -> StepDef:
        return self.beating if ctx.step == BEATING else self.step

    async def _run(self, ctx: StepContext) -> Outcome:
        flow, value, raised = Flow(ctx, self._of(ctx)), None, None
        try:
            value = await self._call(flow, ctx)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  it may hide that the function was parked
            raised = flow._own_failure(error)
        await flow._start()
        return flow._end_of(value, raised)

    def _run_plain(self, ctx: StepContext) -> Outcome:
        flow, value, raised = Flow(ctx, self._of(ctx)), None, None
        try:
            value = self._call(flow, ctx)
        except BaseException as error:  # noqa: BLE001  it may hide that the function was parked
            raised = flow._own_failure(error)
        if flow._starts:
            ctx.txn.wait(flow._start())
        return flow._end_of(value, raised)

    # -- back
    async def _undo(self, ctx: StepContext) -> None:
        flow = Flow(ctx, self.undo, replays=True)
        try:
            await self._call(flow, ctx)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001  it failed: that is why it is undone
            pass
        for own, undo, args in flow._to_undo(_seq_of(ctx)):
            if inspect.iscoroutinefunction(undo):
                await undo(own, *args)
            else:
                await ctx.in_thread(undo, own, *args)

    def _undo_plain(self, ctx: StepContext) -> None:
        flow = Flow(ctx, self.undo, replays=True)
        with contextlib.suppress(BaseException):  # it failed: that is why it is undone
            self._call(flow, ctx)
        for own, undo, args in flow._to_undo(_seq_of(ctx)):
            if inspect.iscoroutinefunction(undo):
                ctx.txn.wait(undo(own, *args))
            else:
                undo(own, *args)

    # -- new code
    def replays(self, record: Record) -> str:
        """Why the function does not make the calls that this record has stored, or does not say how
        they are undone; "" = it does, or it waits for something else, and nobody can say.
        """
        ctx = StepContext(
            record,
            step=RUN,
            token="-0",
            attempt=1,
            wake="",
            now_ms=record.updated_ms,
            children=(),
            txn=None,
            shape=self._args,
            kinds=self._kinds,
        )
        flow, value, raised = Flow(ctx, self.step, replays=True), None, None
        try:
            value = self._call(flow, ctx)
            if inspect.iscoroutine(value):
                value = driven(value)
        except BaseException as error:  # noqa: BLE001  users' code: whatever it raises
            raised = error
        if isinstance(raised, Parked) and flow._ended is None:
            return ""  # it waits for something that is not stored
        seqs = {one.seq for one in flow._journal.entries if one.kind == STEP and one.seq >= 0}
        try:
            try:
                flow._end_of(value, raised)
            except BaseException as error:
                if error is not raised:
                    raise
            for seq in sorted(seqs):
                flow._undone_by(seq)
        except KvorumError as error:
            return error.message if error.code == "WORKFLOW_CHANGED" else ""
        return ""


def _named(method: Callable[..., object], fn: Callable[..., object]) -> Callable[..., Any]:
    """A method of a type, as the engine calls it; errors are looked for in the file of `fn`."""

    @functools.wraps(fn)
    def call(_: object, ctx: StepContext) -> Any:
        return method(ctx)

    return call


def _seq_of(ctx: StepContext) -> int:
    """The execution that is undone."""
    return int(ctx.token.removesuffix("-undo").rpartition("-")[2])
