"""Threads that the tenants of a process share. Who asks is whose budget it is (`memory.now`)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from kv.base.shared_bytes import Who
from sqlproxy.values import memory

T = TypeVar("T")
_OF_FREE: Final = 2
SLICE_S: Final = 0.002


class _Job(NamedTuple):
    run: Callable[[], None]
    cancel: Callable[[], bool]


class FairThreads:
    """`most` calls of one tenant run at once, and others have half as many threads besides: who
    has less than twice the free ones may take one, so that whoever comes next finds some (dynamic
    thresholds, Choudhury and Hahne 1998). Of those that wait the tenant with the fewest goes
    first, its calls in their order.
    """

    def __init__(self, most: int, name: str, stack_bytes: int = 0) -> None:
        """`stack_bytes`: of each thread; 0: as all have."""
        self._stack_bytes = stack_bytes
        self._free = most + most // _OF_FREE
        self._pool = ThreadPoolExecutor(self._free, name)
        self._lock = threading.Lock()
        self._running: dict[Who, int] = {}
        self._waiting: dict[Who, deque[_Job]] = {}

    def submit(self, call: Callable[..., T], *args: object) -> Future[T]:
        """It is called in one of the threads."""
        future: Future[T] = Future()
        who = memory.now().who

        def run() -> None:
            nonlocal call, args, future
            try:
                if not future.set_running_or_notify_cancel():
                    self._ended(who)
                    return
                result = call(*args)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                self._ended(who)
                future.set_exception(error)
            else:
                self._ended(who)
                future.set_result(result)
            finally:
                del call, args, future  # an error has this frame, and would be kept by itself

        given = future
        with self._lock:
            self._waiting.setdefault(who, deque()).append(_Job(run, given.cancel))
            self._begin()
        return given

    def shutdown(self) -> None:
        """Wait for what runs; what waits is cancelled."""
        with self._lock:
            waiting = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting = {}
        for job in waiting:
            job.cancel()
        self._pool.shutdown(wait=True)

    def _begin(self) -> None:
        """All that may. The lock is held."""
        while self._waiting:
            who = min(self._waiting, key=self._has)
            if (running := self._has(who)) >= _OF_FREE * self._free:
                return
            jobs = self._waiting.pop(who)
            run = jobs.popleft().run
            if jobs:
                self._waiting[who] = jobs  # behind those that have as many
            self._running[who] = running + 1
            self._free -= 1
            before = threading.stack_size(self._stack_bytes)
            try:
                self._pool.submit(run)
            finally:
                threading.stack_size(before)

    def _has(self, who: Who) -> int:
        return self._running.get(who, 0)

    def _ended(self, who: Who) -> None:
        with self._lock:
            self._free += 1
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]
            self._begin()


class OneByOne:
    """Of the threads that compute in Python one does at a time: the interpreter lets no two, and
    the loop, which needs it again after each system call, would stand behind all of them. Who
    waits has its turn after SLICE_S, tenant by tenant.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: dict[Who, deque[threading.Lock]] = {}

    @contextmanager
    def turn(self, who: Who) -> Iterator[Callable[[], None]]:
        """Within it, it is this thread's turn. To be called between two pieces: others have
        theirs.
        """
        self._take(who)
        until = self._monotonic() + SLICE_S

        def between() -> None:
            nonlocal until
            if self._waiting and self._monotonic() >= until:
                self._pass_on(who)
                until = self._monotonic() + SLICE_S

        try:
            yield between
        finally:
            self._give()

    @property
    def waiting(self) -> int:
        """Threads."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def _take(self, who: Who) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = self._wait(who)
        mine.acquire()

    def _pass_on(self, who: Who) -> None:
        with self._lock:
            mine = self._wait(who)
            self._next()
        mine.acquire()

    def _give(self) -> None:
        with self._lock:
            self._next()

    def _wait(self, who: Who) -> threading.Lock:
        """Its turn comes when that is released."""
        mine = threading.Lock()
        mine.acquire()
        self._waiting.setdefault(who, deque()).append(mine)
        return mine

    def _next(self) -> None:
        """The turn of the tenant that waits longest."""
        if not self._waiting:
            self._taken = False
            return
        who = next(iter(self._waiting))
        threads = self._waiting.pop(who)
        threads.popleft().release()
        if threads:
            self._waiting[who] = threads
