"""Plain code in a simulation: threads of which one runs at a time, as the loop hands the turn on.

A plain step runs in a thread of its own. While it runs the loop stands still; when it waits for
what only the loop can do (a read), or has ended, the turn is the loop's again. So nothing depends
on how the machine schedules threads, and no virtual time passes while plain code computes.

What really blocks (time.sleep, a real socket) holds the whole simulation up.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Abandoned(BaseException):
    """The simulation is over, and this code was still waiting."""


class _Turn(threading.Thread):
    """One call in a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True, name="simulated")
        self.future: Future[object] = Future()
        self.over = False
        self._call = call
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._context = contextvars.copy_context()
        self.future.set_running_or_notify_cancel()  # who does not wait any more ends nothing

    def run(self) -> None:
        self._mine.acquire()
        try:
            self._context.run(self._work)
        finally:
            self._theirs.release()

    def _work(self) -> None:
        try:
            if self.over:
                raise Abandoned
            result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def go(self) -> None:
        """In the loop's thread: until it waits or has ended."""
        self._mine.release()
        self._theirs.acquire()

    def wait(self) -> None:
        """In its thread: until the loop lets it go on."""
        self._theirs.release()
        self._mine.acquire()
        if self.over:
            raise Abandoned

    def abandon(self) -> None:
        self.over = True
        for _ in range(100):  # a `finally` may wait for something again
            self.go()
            if not self.is_alive() or self.future.done():
                return


def in_turn() -> bool:
    """Whether this code runs in such a thread."""
    return isinstance(threading.current_thread(), _Turn)


class Turns:
    """The threads of one loop; `close` ends those that still wait."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []

    def submit(self, call: Callable[[], object]) -> Future[object]:
        """Run it until it waits or has ended."""
        turn = _Turn(call)
        self._turns = [one for one in self._turns if not one.future.done()]
        self._turns.append(turn)
        turn.start()
        turn.go()
        return turn.future

    def wait(self, work: Coroutine[object, None, T], loop: asyncio.AbstractEventLoop) -> T:
        """What comes of `work`, which the loop does meanwhile. To be called in such a thread."""
        turn = threading.current_thread()
        assert isinstance(turn, _Turn), "plain code waits in its own thread"

        def begin() -> None:
            task = loop.create_task(work)
            done.append(task)
            task.add_done_callback(lambda _: turn.go())

        done: list[asyncio.Task[T]] = []
        loop.call_soon_threadsafe(begin)
        try:
            turn.wait()
        except Abandoned:
            if not done:
                work.close()
            raise
        return done[0].result()

    def close(self) -> None:
        for turn in self._turns:
            if not turn.future.done():
                turn.abandon()
        self._turns.clear()
