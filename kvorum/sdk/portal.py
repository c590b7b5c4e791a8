"""An event loop in a daemon thread, and the door to it from any other thread.

The loop is the only place where state changes, so threads need no locks, and their requests share
frames and connections. A process that forks must open its databases in the child: threads and
sockets do not survive `fork`, and a call on an inherited database says so.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Final, Protocol, TypeVar

from kv.base.errors import Unavailable

T = TypeVar("T")

# A signal that comes just before a thread waits for a lock does not end that wait: the interpreter
# learns of it when the wait is over. So none is longer than this, or Ctrl-C would be lost.
_SIGNALS_S: Final = 0.25


class Call(Protocol):
    """`Portal.call`, for those who need no more of one."""

    def __call__(self, work: Coroutine[object, None, T], /) -> T: ...


class Portal:
    """An event loop in a thread of its own, and the door to it."""

    def __init__(self, name: str) -> None:
        self._loop = _new_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_end_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def usable(self) -> bool:
        return not self._closed and os.getpid() == self._pid

    def call(self, work: Coroutine[object, None, T]) -> T:
        """Run `work` on the loop and wait for it. Raises what it raises; Unavailable
        when closed or after a fork.
        """
        if not self.usable or threading.current_thread() is self._thread:
            work.close()
            raise self._refusal()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return _result(future)
        except CancelledError:
            if self._closed:
                raise self._refusal() from None
            raise
        except BaseException:
            future.cancel()  # a no-op if the error is the answer; else the waiting was interrupted
            raise

    def _refusal(self) -> Unavailable:
        if self._closed:
            return Unavailable("the database is closed; open it again")
        if os.getpid() != self._pid:
            return Unavailable("the database was opened before fork(); open one in this process")
        return Unavailable(
            "a synchronous call was made on the database's own loop; use the async API"
        )

    def close(self) -> None:
        """Stop the loop and its thread. A second time it does nothing."""
        if not self.usable:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _result(future: Future[T]) -> T:
    while True:
        try:
            return future.result(_SIGNALS_S)
        except TimeoutError:
            if future.done():
                return future.result()  # it may be the work's own error


async def _end_tasks() -> None:
    """Cancel what still runs, and wait for it: calls that were interrupted a moment ago."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
