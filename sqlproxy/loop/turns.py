"""Long answers take turns on the loop.

A statement that reads and writes thousands of rows has always something to do next. Were each of
sixty to do a piece in every pass of the loop, who wants one row would wait for sixty pieces. So
between two pieces an answer waits for its turn: in each pass of the loop one of those that wait
goes on, however many there are. Alone, it goes on in the next pass.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """All on one loop."""

    __slots__ = ("_coming", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._coming = False  # somebody's turn comes in the next pass

    async def turn(self) -> None:
        """Wait for it, after those that wait already."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._coming:
            self._coming = True
            loop.call_soon(self._next)
        await mine

    def _next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # nor cancelled
                first.set_result(None)
                break
        self._coming = bool(self._waiting)
        if self._coming:
            asyncio.get_running_loop().call_soon(self._next)
