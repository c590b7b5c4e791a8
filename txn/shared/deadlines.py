"""Deadlines, waits with jitter, and background work: the only places of this package that touch
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from math import ceil
from typing import Any, Final

from kv.base.limits import LOAD_REST_MS_MAX, LOAD_YIELDS_MS, LOOP_LOOK_MS
from kv.base.ports import Handle, Rng, Timers

_OTHERS_MIN: Final = 0.1  # of a processor: who uses less is nobody
_RESTS: Final = 4  # as long as a piece took


async def sleep(timers: Timers, delay_s: float) -> None:
    """Suspend for `delay_s` seconds of the injected timers."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    handle = timers.call_later(delay_s, _wake, done)
    try:
        await done
    finally:
        handle.cancel()


async def others_use(timers: Timers, loop_s: Callable[[], float], for_ms: int) -> bool:
    """Whether others work on this loop now: it is watched for so long. To be asked while the caller
    has nothing under way. `loop_s`: seconds that the loop's thread has used of a processor.
    """
    began, used = timers.monotonic(), loop_s()
    await sleep(timers, for_ms / 1000)
    return loop_s() - used > _OTHERS_MIN * (timers.monotonic() - began)


def _wake(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class Deadline:
    """A point on the monotonic clock; shared by everything that one call of a user does."""

    __slots__ = ("_at", "_timers")

    def __init__(self, timers: Timers, budget_ms: float) -> None:
        self._timers = timers
        self._at = timers.monotonic() + budget_ms / 1000

    def left_ms(self) -> int:
        """Milliseconds that remain, rounded up: 0 exactly when it has passed, so that a wait of so
        long lets it pass, and no loop waits for 0 ms until then.
        """
        return max(0, ceil((self._at - self._timers.monotonic()) * 1000))

    def budget_ms(self) -> int:
        """The same as an RPC budget, where 0 would mean the default."""
        return max(1, self.left_ms())

    @property
    def passed(self) -> bool:
        return self.left_ms() == 0


class Rests:
    """Of the cleaning after a load, which nobody waits for: beside others it rests four times as
    long as it worked; and as long as it worked when that has lasted, since what is locked takes
    memory.
    """

    def __init__(self, timers: Timers, loop_s: Callable[[], float]) -> None:
        self._timers, self._loop_s = timers, loop_s
        self.yields = Deadline(timers, LOAD_YIELDS_MS)

    async def rest(self, worked_s: float) -> bool:
        """Whether others use the loop."""
        if not await others_use(self._timers, self._loop_s, LOOP_LOOK_MS):
            return False
        rest_s = worked_s if self.yields.passed else worked_s * _RESTS
        await sleep(self._timers, min(rest_s, LOAD_REST_MS_MAX / 1000))
        return True


class Alarm:
    """Calls those who wait, all equally long, in the order in which they began to: by one timer,
    since nearly nobody waits so long. What is ready in that pass of the loop comes before.
    """

    def __init__(self, timers: Timers, after_ms: int) -> None:
        self._timers, self._after_s = timers, after_ms / 1000
        self._waiting: dict[Callable[[], None], float] = {}
        self._timer: Handle | None = None

    def add(self, call: Callable[[], None]) -> None:
        self._waiting[call] = self._timers.monotonic() + self._after_s
        if self._timer is None:
            self._timer = self._timers.call_later(self._after_s, self._look)

    def remove(self, call: Callable[[], None]) -> None:
        """It waits no more; fine if it does not."""
        self._waiting.pop(call, None)

    def _look(self) -> None:
        self._timer = None
        now = self._timers.monotonic()
        while self._waiting:
            call, until = next(iter(self._waiting.items()))
            if until > now:
                self._timer = self._timers.call_later(until - now, self._look)
                return
            del self._waiting[call]
            self._timers.call_soon(call)


class Backoff:
    """Doubling waits up to a maximum, each drawn from its upper half, so that rivals do not stay in
    step.
    """

    __slots__ = ("_first_ms", "_max_ms", "_rng", "_timers")

    def __init__(self, timers: Timers, rng: Rng, *, first_ms: int, max_ms: int) -> None:
        self._timers = timers
        self._rng = rng
        self._first_ms = first_ms
        self._max_ms = max_ms

    def delay_ms(self, attempt: int) -> float:
        """How long to wait before try number `attempt` (0 is the first wait)."""
        full = min(self._max_ms, self._first_ms << min(attempt, 30))
        return full * (0.5 + 0.5 * self._rng.random())

    async def wait(self, attempt: int, deadline: Deadline | None = None) -> None:
        """Suspend for `delay_ms(attempt)`, or until the deadline; after it for a moment, since
        the timer that ends everything may be late, and nobody shall spin until then.
        """
        delay_ms = self.delay_ms(attempt)
        if deadline is not None:
            delay_ms = min(delay_ms, deadline.budget_ms())
        await self.sleep(delay_ms)

    async def sleep(self, delay_ms: float) -> None:
        await sleep(self._timers, delay_ms / 1000)


class Background:
    """Tasks that outlive the call that started them. Never forgotten: they are drained or cancelled
    at close.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self.closed = False  # nothing new should begin

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[object, None, None], name: str) -> asyncio.Task[None]:
        """Run `work` on the loop; a bug in it reaches the loop's exception handler."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def watch(self, reply: asyncio.Future[Any]) -> None:
        """Count a future in that somebody handles without a task; `forget` it when it ends."""
        self._tasks.add(reply)

    def forget(self, reply: asyncio.Future[Any]) -> None:
        self._tasks.discard(reply)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": f"background work {task.get_name()} failed", "exception": bug}
            )

    async def drain(self, timeout_s: float) -> None:
        """Give what runs (and what it starts) `timeout_s` to finish, then cancel the rest."""
        self.closed = True
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self._tasks and (left := until - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        await self.cancel()

    async def cancel(self) -> None:
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
