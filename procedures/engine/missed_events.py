"""Looks for signals and completions that may have come while nobody listened: after a restart, or
when a worker's report was lost. Whoever waits for one and has none goes on waiting, until its time
is over; no step of it runs for nothing.

There may be very many who wait, so they are looked at one after the other, some at once, beside
what the executor does anyway. They wait already when they are looked at, so whatever comes later
wakes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Final

from kv.base.errors import KvorumError
from procedures.engine.roster import Live
from procedures.pools import inbox
from procedures.pools.rows import Rows

log = logging.getLogger(__name__)

_AT_ONCE: Final = 32
_AGAIN_S: Final = 0.1


class Lookout:
    """`found` is called with each whose signal or completion is there; `spawn` runs a task."""

    def __init__(
        self,
        rows: Rows,
        found: Callable[[Live, str], None],
        spawn: Callable[[Coroutine[object, None, None]], object],
    ) -> None:
        self._rows, self._found, self._spawn = rows, found, spawn
        self._waiting: deque[tuple[Live, str]] = deque()
        self._looking = False
        self._closed = False

    def close(self) -> None:
        """Nobody is looked for any more."""
        self._closed = True
        self._waiting.clear()

    def look(self, live: Live, event: str) -> None:
        """Look for what `event` stands for (`inbox.kept`), soon."""
        self._waiting.append((live, event))
        if not self._looking:
            self._looking = True
            self._spawn(self._work())

    async def _work(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            looked = await asyncio.gather(*(self._one(*one) for one in some))
            failed = [one for one, done in zip(some, looked, strict=True) if not done]
            if failed and not self._closed:
                self._waiting.extendleft(reversed(failed))
                await asyncio.sleep(_AGAIN_S)
        self._looking = False

    async def _one(self, live: Live, event: str) -> bool:
        """Whether that could be found out."""
        span = inbox.kept(live.id, event)
        assert span is not None, event
        try:
            there = await inbox.is_there(self._rows, span)
        except KvorumError as error:
            log.warning("signals of procedure %d are looked for again: %s", live.id, error)
            return False
        if there:
            self._found(live, event)
        return True
