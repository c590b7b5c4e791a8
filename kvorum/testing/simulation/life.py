"""Processes in one event loop: who runs what, and how a process stops without a word.

Every callback of asyncio carries a context, and contexts are inherited by whatever a callback
starts: timers, tasks, futures. So a context variable says which process anything belongs to, with
no help from the code under test. The loop asks it for each callback that is due:

    running   it runs
    paused    it is kept until the process is resumed (SIGSTOP; its timers are then overdue)
    dead      it is kept for ever: not a line of the process runs again (kill -9)

What belongs to no life is the simulation itself: network, disks, nemesis.

Left out: memory. A dead process' objects live on unseen until the end of the run, so what others
must not see of them (disks, connections) has to be taken away by whoever kills it.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import Any

from kvorum.testing.simulation.loop import Shuffled, SimLoop


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Life:
    """One process, from its start to its end. `number`: of the node or client; `epoch`: how many
    lives that had before.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int, epoch: int) -> None:
        self.number, self.epoch = number, epoch
        self.state = State.RUNNING
        self.context: Context = copy_context()
        self.context.run(_LIFE.set, self)
        self.tasks: list[asyncio.Task[object]] = []
        """All that it ever made, for the end of the run."""
        self._loop = loop
        self._held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"{self.number}.{self.epoch}"

    def enter(self, fn: Callable[..., object], *args: object) -> None:
        """Something reaches the process from outside."""
        self._loop.call_soon(fn, *args, context=self.context)

    def spawn(self, work: Coroutine[object, None, object]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self.context.copy())

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def pause(self) -> None:
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> None:
        if self.state is State.PAUSED:
            self.state = State.RUNNING
            held, self._held = self._held, []
            self._loop._ready.extend(held)  # type: ignore[attr-defined]

    def kill(self) -> None:
        self.state = State.DEAD


_LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


def living() -> Life | None:
    """The process that this code runs in."""
    return _LIFE.get()


_NOTHING = object()


class _Ready(Shuffled):
    """The ready queue: what is due of those that do not run is put aside."""

    def __init__(self, rng: random.Random, nothing: asyncio.Handle) -> None:
        super().__init__(rng)
        self._nothing = nothing

    def popleft(self) -> asyncio.Handle:
        handle = super().popleft()
        life = handle._context.get(_LIFE)  # type: ignore[attr-defined]
        if life is None or life.state is State.RUNNING:
            return handle
        life.hold(handle)
        return self._nothing


class LivesLoop(SimLoop):
    """A SimLoop of processes. `network` makes the connections of `create_connection` and
    `create_server`.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        nothing = asyncio.Handle(lambda: None, (), self)
        nothing.cancel()
        self._ready = _Ready(self.rng, nothing)
        self.network: Any = None
        make: Any = self.get_task_factory()
        assert make is not None

        def made(loop: Any, coro: Any, **kw: Any) -> Any:
            task = make(loop, coro, **kw)
            context = kw.get("context")
            life = _LIFE.get() if context is None else context.get(_LIFE)
            task.life = life
            if life is not None:
                life.tasks.append(task)
                if len(life.tasks) > 1000:
                    life.tasks = [task for task in life.tasks if not task.done()]
            return task

        self.set_task_factory(made)
        self.set_exception_handler(self._broke)

    def _broke(self, _loop: object, context: dict[str, Any]) -> None:
        """The errors of the dead are nobody's."""
        life = living()
        if (handle := context.get("handle")) is not None:
            life = handle._context.get(_LIFE)
        elif (task := context.get("task")) is not None:
            life = task.life
        if life is None or life.state is not State.DEAD:
            self.errors.append(context)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: object, host: object, port: object, **_: object
    ) -> object:
        return self.network.listen(protocol_factory, (host, port))

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: object, host: object, port: object, *, ssl: object = None
    ) -> object:
        assert ssl is None, "nobody reads along here"
        return await self.network.connect(protocol_factory, (host, port))


def run(main: Callable[[LivesLoop], Coroutine[Any, Any, object]], seed: int) -> Any:
    """Run `main(loop)` to its end. Whatever still lives then ends without a word."""
    loop = LivesLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        _put_away(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _put_away(loop: LivesLoop) -> None:
    """Close every coroutine, so that none is closed by the garbage collector, in another run."""
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.turns.close()
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coro: Any = task.get_coro()
        for never_run in _arguments(coro):
            never_run.close()
        for _ in range(100):  # a `finally` may wait for something again
            if coro is None or coro.cr_frame is None:
                break
            try:
                coro.close()
            except BaseException:  # noqa: BLE001 - whatever it says, nobody is left to hear it
                continue
    for rows in list(loop._asyncgens):  # type: ignore[attr-defined]
        # Closing who reads a generator does not reach what the generator waits for (CPython 3.11).
        with suppress(BaseException):
            if inspect.iscoroutine(rows.ag_await):
                rows.ag_await.close()
    loop._scheduled.clear()  # type: ignore[attr-defined]
    loop._ready.clear()


def _arguments(coro: Any) -> list[Any]:
    """Coroutines that a coroutine which was never begun would have awaited."""
    if inspect.getcoroutinestate(coro) != inspect.CORO_CREATED:
        return []
    return [value for value in coro.cr_frame.f_locals.values() if inspect.iscoroutine(value)]
