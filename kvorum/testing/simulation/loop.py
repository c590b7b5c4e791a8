"""A deterministic asyncio event loop for tests: time is virtual and one seed decides every order.

- the selector never waits, it adds the timeout to the clock: an hour of timers takes milliseconds;
- the order of ready callbacks is drawn from the seed (asyncio promises FIFO; code that leans on it
  breaks here); `seed=None` keeps FIFO;
- a loop with nothing ready and no timer raises Deadlock instead of hanging; too many steps at one
  instant raise Livelock;
- tasks and futures hash by sequence number, since TaskGroup, wait() and gather() keep them in sets;
- the loop keeps every task until it is done (asyncio keeps weak references): what a dead client
  left waiting waits on, and ends with the loop, whenever the garbage collector runs.

Calls beside the loop (`run_in_executor`, `to_thread`) run in threads of which one runs at a time
(threads.py). Left out: sockets, subprocesses, signals.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kv.base.adapters import LoopTimers
from kvorum.testing.simulation.threads import Turns

T = TypeVar("T")

_START = 1_700_000_000.0  # any moment will do, as long as timestamps made from it are plausible


class Deadlock(RuntimeError):
    """No timer, nothing ready: every task waits for another."""


class Livelock(RuntimeError):
    """The clock stands still while callbacks keep one another busy."""


class _NoSelector:
    """Looks like a selector; has no files; waiting is an addition."""

    STEPS_MAX = 200_000

    def __init__(self) -> None:
        self.now, self.still = 0.0, 0

    def select(self, timeout: float | None = None) -> list[object]:
        if timeout is None:
            raise Deadlock(f"nothing to run at {self.now:.6f}")
        self.still = 0 if timeout > 0 else self.still + 1
        if self.still > self.STEPS_MAX:
            raise Livelock(f"{self.still} steps at {self.now:.6f}")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> dict[object, object]:
        return {}

    def close(self) -> None:
        pass


class Shuffled(collections.deque):  # type: ignore[type-arg]
    """The ready queue: popleft takes any element, as the seed says."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def popleft(self) -> asyncio.Handle:
        if (n := len(self)) > 1:
            self.rotate(-int(self._rng.random() * n))
        handle: asyncio.Handle = super().popleft()
        return handle


class _Task(asyncio.Task):  # type: ignore[type-arg]
    def __init__(self, coro: Coroutine[object, None, object], *, loop: SimLoop, **kw: Any) -> None:
        self._seq: int = next(loop.sequence)  # before super: registration already hashes the task
        super().__init__(coro, loop=loop, **kw)

    def __hash__(self) -> int:
        return self._seq


class _Future(asyncio.Future):  # type: ignore[type-arg]
    def __init__(self, *, loop: SimLoop) -> None:
        self._seq: int = next(loop.sequence)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._seq


class SimLoop(asyncio.SelectorEventLoop):
    """`errors` holds what reached the exception handler: a test that ends with any should fail."""

    def __init__(self, seed: int | None = 0) -> None:
        self.rng, self.sequence = random.Random(seed), itertools.count(1)
        self.errors: list[dict[str, Any]] = []
        super().__init__(_NoSelector())  # type: ignore[arg-type]
        self._clock_resolution = 1e-9
        if seed is not None:
            self._ready = Shuffled(self.rng)
        self.turns = Turns()
        self.jumped_ms = 0
        """By which all wall clocks of this loop were set forward; timers know nothing of it."""
        self._kept: list[_Task] = []
        self._kept_max = 1_000
        self.set_task_factory(self._task)
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    def time(self) -> float:
        return self._selector.now  # type: ignore[attr-defined,no-any-return]

    monotonic = time  # kv.base.adapters.LoopTimers

    def _task(self, _loop: object, coro: Any, **kw: object) -> _Task:
        task = _Task(coro, loop=self, **kw)
        if len(self._kept) >= self._kept_max:
            self._kept = [kept for kept in self._kept if not kept.done()]
            self._kept_max = max(1_000, 2 * len(self._kept))
        self._kept.append(task)
        return task

    def create_future(self) -> Any:
        return _Future(loop=self)

    # threads
    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., object], *args: object
    ) -> object:
        """Whatever the executor is."""
        return asyncio.wrap_future(self.turns.submit(functools.partial(func, *args)), loop=self)

    def wait_in_thread(self, work: Coroutine[object, None, T]) -> T:
        """What comes of `work`, for code that runs in one of these threads."""
        return self.turns.wait(work, self)

    # no wake-up pipe: nothing outside the loop exists
    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class SimClock:
    """kv.base.ports.Clock of one machine: `rate` local seconds per second of the loop; `skew_ms` of
    the wall clock may be set, to jump forth and back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, rate: float = 1.0) -> None:
        self.rate, self.skew_ms = rate, 0
        self._loop = loop

    def now_ms(self) -> int:
        jumped_ms: int = getattr(self._loop, "jumped_ms", 0)
        return int((_START + self.monotonic()) * 1000) + self.skew_ms + jumped_ms

    def monotonic(self) -> float:
        return self._loop.time() * self.rate


class SimTimers(LoopTimers):
    """kv.base.ports.Timers by that clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: SimClock) -> None:
        super().__init__(loop)
        self.monotonic = clock.monotonic
        self._clock = clock

    def call_later(
        self, delay_s: float, fn: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        return super().call_later(delay_s / self._clock.rate, fn, *args)


class SimRng:
    """kv.base.ports.Rng from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.random = self._rng.random

    def token(self, n_bytes: int) -> bytes:
        return self._rng.randbytes(n_bytes)


def run(main: Callable[[SimLoop], Coroutine[Any, Any, object]], seed: int | None = 0) -> Any:
    """Run `main(loop)` to its end on a fresh loop. Fails on errors that nobody saw."""
    loop = SimLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(main(loop))
    finally:
        tasks = sorted(asyncio.all_tasks(loop), key=hash)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        asyncio.set_event_loop(None)
        loop.turns.close()
        loop._scheduled.clear()  # type: ignore[attr-defined]
        loop._ready.clear()
        loop._kept.clear()
        loop.close()
    assert not loop.errors, loop.errors
    return result
