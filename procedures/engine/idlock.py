"""IdLock (J7): at most one holder per id, waiters in order. HBase's IdLock, for one event loop.

A lock exists only while somebody holds or awaits it, so that memory follows the work under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class IdLock:
    def __init__(self) -> None:
        self._held: dict[int, deque[asyncio.Future[None]]] = {}

    def held(self, id: int) -> bool:
        return id in self._held

    def contended(self, id: int) -> bool:
        """Whether somebody waits for the holder of this lock."""
        return bool(self._held.get(id))

    def __len__(self) -> int:
        return len(self._held)

    def __call__(self, id: int) -> _Holding:
        """`async with lock(id):`"""
        return _Holding(self, id)

    async def acquire(self, id: int) -> None:
        waiters = self._held.get(id)
        if waiters is None:
            self._held[id] = deque()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(id)  # it was handed to us at the same moment: pass it on
            raise

    def try_acquire(self, id: int) -> bool:
        """Take it if nobody has it."""
        if id in self._held:
            return False
        self._held[id] = deque()
        return True

    def release(self, id: int) -> None:
        waiters = self._held[id]
        while waiters:
            turn = waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._held[id]


class _Holding:
    __slots__ = ("_id", "_lock")

    def __init__(self, lock: IdLock, id: int) -> None:
        self._lock, self._id = lock, id

    async def __aenter__(self) -> None:
        await self._lock.acquire(self._id)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release(self._id)
