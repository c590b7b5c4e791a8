"""Calls the methods of procedures: the boundary between the engine and the application's code.

What a method does ends as one of three: it returned, it could not right now (try again), it failed.
Whether an error may be retried is written in its disposition (kv.base.errors), not guessed.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

from kv.base.errors import KvorumError
from kv.base.limits import PROCEDURE_STUCK_HIRED_MAX
from procedures.engine import core
from procedures.engine.context import StepContext
from procedures.engine.driving import Driven, OwnCancellation
from procedures.engine.heartbeats import Heart
from procedures.engine.log_context import RUNNING, Running
from procedures.engine.procedure import OUTCOMES, Outcome
from procedures.engine.queries import answered
from procedures.engine.records import Failure, Record
from procedures.engine.registry import ProcedureType, StepDef, UndoDef
from procedures.engine.retries import Retry
from procedures.engine.step_exceptions import Retrying, StepFailed, located, step_error
from procedures.engine.submission import Seen, seen

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Returned:
    outcome: Outcome | None  # None: an undo, or not an outcome (then `Failed` is what comes)
    data: bytes  # the new state


@dataclass(frozen=True, slots=True)
class TryAgain:
    error: Failure


@dataclass(frozen=True, slots=True)
class Failed:
    error: Failure
    policy: Retry | None = None  # by which it may run again


@dataclass(frozen=True, slots=True)
class Died:
    """The process that ran it ended under it; nothing of it was committed."""

    why: str


SLOW: Final = "SLOW"
"""Code of an early run that took longer than it may (early_steps.py), where it ran apart."""


class _OutlastedError(Exception):
    """A step was under way at its deadline."""


Ended: TypeAlias = Returned | TryAgain | Failed | Died


class Places:
    """For so many plain steps at once; those that come first have them."""

    def __init__(self, count: int) -> None:
        self._count, self._extra, self._taken = count, 0, 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._kept: set[int] = set()

    async def take(self) -> None:
        while not self._free():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._next()  # it may have been this one's turn
                raise

    def _free(self) -> bool:
        if self._taken >= self._count + self._extra:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1
        if self._queue:
            self._next()

    def more(self, extra: int) -> None:
        """As many more, because so many are stuck."""
        self._extra = extra
        self._next()

    async def keep(self, id: int) -> None:
        """Take one for a procedure before its step runs."""
        if id not in self._kept:
            await self.take()
            self._kept.add(id)

    def claim(self, id: int) -> bool:
        """Whether one was kept for it, or is free. Whoever asks has it now, and leaves it."""
        if id not in self._kept:
            return self._free()
        self._kept.discard(id)
        return True

    def give_back(self, id: int) -> None:
        """One that was kept for it, and that its step did not claim."""
        if id in self._kept:
            self._kept.discard(id)
            self.leave()

    def _next(self) -> None:
        free = self._count + self._extra - self._taken
        while self._queue and free > 0:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


class Runner:
    """Async methods run on the loop, plain ones in a bounded pool of threads. (Beside a node or a
    worker users' code runs in processes of its own: kvorum/steps/step_processes.py.)
    """

    def __init__(self, threads: int) -> None:
        most = threads + PROCEDURE_STUCK_HIRED_MAX
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="procedure")
        # Of what one step has run in threads: never the same, whose threads wait for these; nor the
        # loop's own, in which a node in this process writes its log.
        self._parts = ThreadPoolExecutor(threads, thread_name_prefix="procedure-part")
        self._places = Places(threads)
        self.extra = 0  # more may run, because so many are stuck

    def begin(self) -> None:
        """Something may come soon."""

    def runs_apart(self, name: str) -> bool:
        """Whether code of this type runs in another process."""
        return False

    async def look(self, declared: ProcedureType, args: bytes) -> Seen:
        """What the type's code says of arguments. Raises what is wrong with them."""
        return seen(declared, args)

    async def ask(self, declared: ProcedureType, query: str, record: Record, args: bytes) -> bytes:
        """What a query of the type gives. Raises what is wrong with it."""
        return answered(declared, query, record, args)

    async def prepared(self, method: StepDef | UndoDef, name: str, id: int) -> None:
        """Until a step that has a deadline would be called at once: its time counts from then on.
        What is kept for it is given back when it has run, or by `unprepared`.
        """
        if not method.is_async:
            await self._places.keep(id)

    def unprepared(self, id: int) -> None:
        """This procedure's turn is over, whether a step of it ran or not."""
        self._places.give_back(id)

    def at_once(self, name: str) -> bool:
        """Whether a step of this type would be called now, not after a process has started."""
        return True

    def hire(self, stuck: int) -> None:
        """So many steps are stuck: as many more may run."""
        self.extra = min(stuck, PROCEDURE_STUCK_HIRED_MAX)
        self._places.more(self.extra)

    async def _in_thread(self, id: int, call: Callable[[], object]) -> object:
        if not self._places.claim(id):
            await self._places.take()
        try:
            here = contextvars.copy_context()  # what it logs says of which step it is
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, here.run, call)
        finally:
            self._places.leave()

    async def run(
        self, method: StepDef | UndoDef, make: Callable[[], object], ctx: StepContext
    ) -> Ended:
        """One execution. Raises CancelledError only if the engine itself is being stopped."""
        ctx.threads = self._parts
        before = RUNNING.get()
        RUNNING.set(Running(ctx.id, ctx.name, ctx.step, ctx.attempt))
        try:
            return await self._executed(method, make, ctx)
        finally:
            RUNNING.set(before)  # by no token: a run that is thrown away ends in another context

    async def _executed(
        self, method: StepDef | UndoDef, make: Callable[[], object], ctx: StepContext
    ) -> Ended:
        try:
            value = await self._called(method, make, ctx)
            if ctx.heart.late:
                return outlasted(method, ctx)
            if isinstance(method, UndoDef):
                return Returned(None, ctx.state_bytes())
            if not isinstance(value, OUTCOMES):
                return Failed(_no_outcome(ctx, value))
            return Returned(value, ctx.state_bytes())
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._broke(error, method, ctx)  # something inside the step was cancelled
        except _OutlastedError:
            return outlasted(method, ctx)
        except OwnCancellation as error:
            failure = core.failure("STEP_ERROR", str(error), type="CancelledError")
            return Failed(failure, method.policy(failure.code, error))
        except KvorumError as error:
            if error.disposition == "no":
                failure = located(core.error_failure(error), error, method, ctx.step)
                return Failed(failure, method.policy(failure.code, error))
            return TryAgain(core.error_failure(error))
        except GeneratorExit:
            raise  # nobody awaits this any more
        except BaseException as error:  # noqa: BLE001  the application's code: whatever it raises
            # SystemExit and the like, too: it would end this process, and the next that runs it.
            return self._broke(error, method, ctx)

    async def _called(
        self, method: StepDef | UndoDef, make: Callable[[], object], ctx: StepContext
    ) -> object:
        heart = ctx.heart
        if method.is_async:
            code = Driven(method.method(make(), ctx))
            timed = ctx.left_ms or heart.ms
            return await (self._in_time(code, ctx.left_ms, heart) if timed else code)
        if heart.ms:
            heart.begin()
        value = await self._in_thread(ctx.id, lambda: self._plain(method, make, ctx))
        if heart.ms:
            heart.end()
        return value

    @staticmethod
    async def _in_time(code: Awaitable[object], left_ms: int, heart: Heart) -> object:
        """An async method that has a deadline, or is not to be silent for long: then what it waits
        for is cancelled.
        """
        try:
            async with asyncio.timeout(left_ms / 1000 if left_ms else None) as time:
                if heart.ms:
                    heart.begin(time)
                value = await code
        except (asyncio.CancelledError, GeneratorExit):
            raise  # the engine's
        except BaseException as error:
            if time.expired():
                raise _OutlastedError from error
            raise
        finally:
            if heart.ms:
                heart.end()
        if time.expired():
            raise _OutlastedError  # it would not be cancelled
        return value

    @staticmethod
    def _broke(error: BaseException, method: StepDef | UndoDef, ctx: StepContext) -> Failed:
        if isinstance(error, Retrying):
            return Failed(error.failure, error.policy)
        if isinstance(error, StepFailed):
            return Failed(error.failure)
        failure = step_error(error, method, ctx.step)
        log.warning(
            *("procedure %d (%s): %s\n%s", ctx.id, ctx.name, failure.sentence, failure.trace)
        )
        return Failed(failure, method.policy(failure.code, error))

    @staticmethod
    def _plain(method: StepDef | UndoDef, make: Callable[[], object], ctx: StepContext) -> object:
        try:
            return method.method(make(), ctx)
        except (StopIteration, GeneratorExit, KeyboardInterrupt) as error:
            # A future cannot carry the first: its waiter would never wake. The second would look
            # as if nobody waited. The last is no signal (those come to the main thread), and would
            # end this process.
            raise RuntimeError(f"{type(error).__name__} left a step") from error

    def close(self) -> None:
        """Running threads end by themselves; their steps no longer count."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._parts.shutdown(wait=False, cancel_futures=True)

    async def closed(self) -> None:
        """Nothing of it is left, of what `close` can end."""


def outlasted(method: StepDef | UndoDef, ctx: StepContext) -> Failed:
    """What becomes of a run that took longer than it may."""
    if ctx.heart.late and (call := ctx.heart.silent) is not None:
        return Failed(core.silent_attempt(ctx.name, call.name, call.ms), call.policy)
    if ctx.heart.late:
        silent = core.silent_attempt(ctx.name, method.name, method.heartbeat_ms)
        return Failed(silent, method.policy(silent.code))
    if not ctx.one_attempt:
        return Failed(core.outlasted(ctx.name, method))
    late = core.late_attempt(ctx.name, method)
    return Failed(late, method.policy(late.code))


def _no_outcome(ctx: StepContext, value: object) -> Failure:
    return core.failure(
        "BAD_OUTCOME",
        f"step {ctx.name}.{ctx.step} returned {value!r:.80}; a step returns next(…), done(…), "
        "children(…), suspend(…), again(…) or fail(…)",
    )
