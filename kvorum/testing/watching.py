"""Procedures under observation: their steps tell when they run, and fail when they are told to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kvorum.testing.running import Running, procedure_now
from procedures.engine.context import StepContext
from procedures.engine.registry import (
    Declared,
    Method,
    ProcedureType,
    StepDef,
    UndoDef,
    declaration,
)


def watched(which: Declared, now: Running) -> ProcedureType:
    """The type, whose steps tell this run."""
    declared = declaration(which)
    around = Around(now)
    # A workflow is one step, whose function carries out what users call steps.
    around_all = around.method if declared.replays is None else around.whole
    return replace(
        declared,
        steps=MappingProxyType({n: _around(one, around_all) for n, one in declared.steps.items()}),
        undos=MappingProxyType({n: _around(one, around_all) for n, one in declared.undos.items()}),
    )


def _around(one: StepDef | UndoDef, around: Callable[[Method], Method]) -> Any:
    return replace(one, method=around(one.method))


class Around:
    """What is called in the place of users' functions."""

    def __init__(self, now: Running) -> None:
        self._now = now

    def whole(self, method: Method) -> Method:
        """An execution of a workflow: its steps are watched, not itself."""

        @functools.wraps(method)
        def call(made: object, ctx: StepContext) -> Any:
            ctx.watch = self.step
            return method(made, ctx)

        return call

    def method(self, method: Method) -> Method:
        """A step of a class."""
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def waits(made: object, ctx: StepContext) -> Any:
                return await self.step(ctx, functools.partial(method, made))(ctx)

            return waits

        @functools.wraps(method)
        def call(made: object, ctx: StepContext) -> Any:
            return self.step(ctx, functools.partial(method, made))(ctx)

        return call

    def step(self, ctx: StepContext, fn: Method) -> Method:
        """procedures.engine.context.Watch."""
        if inspect.iscoroutinefunction(fn):

            async def waits(ctx: StepContext, *args: Any) -> object:
                self._begins(ctx)
                await self._now.unless_dead()
                try:
                    value = await fn(ctx, *args)
                except BaseException as error:
                    self._ended(ctx, error)
                    raise
                self._ended(ctx, None)
                return value

            return waits

        def call(ctx: StepContext, *args: object) -> Any:
            self._begins(ctx)
            if self._now.is_dead():
                self._now.loop.wait_in_thread(self._now.unless_dead())
            try:
                value = fn(ctx, *args)
            except BaseException as error:
                self._ended(ctx, error)
                raise
            self._ended(ctx, None)
            return value

        return call

    def _begins(self, ctx: StepContext) -> None:
        now, name = self._now, _name(ctx)
        procedure_now.set(ctx.id)
        token, _ = ctx.given
        now.history.add("step", now.who, name, procedure=ctx.id, attempt=ctx.attempt, key=token)
        now.began[name] = now.began.get(name, 0) + 1
        error = now.to_fail.get(name, {}).pop(now.began[name], None)
        now.at(f"begins {name}")
        if error is not None:
            now.history.add("fault", "test", f"{name} fails: {error!r}", procedure=ctx.id)
            raise error

    def _ended(self, ctx: StepContext, error: BaseException | None) -> None:
        now = self._now
        if now.is_dead() or isinstance(error, GeneratorExit):
            return
        details = {} if error is None else {"error": repr(error)}
        kind = "returned" if error is None else "raised"
        name = _name(ctx)
        now.history.add(kind, now.who, name, procedure=ctx.id, attempt=ctx.attempt, details=details)


def _name(ctx: StepContext) -> str:
    return ctx.step.removeprefix("undo:")
