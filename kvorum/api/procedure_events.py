"""The events of a procedure, as users get them.

    async for event in db.events(id, after=position):
        print(event.position, event.name, event.value)

They are pulled: nothing is read ahead for who is slow but one answer. Whoever falls so far behind
that events are dropped (PROCEDURE_EVENTS_KEPT) sees it by their positions, which are one after the
other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import PROCEDURE_EVENTS_WAIT_MS, RETRY_WAIT_MS_MAX

_GOES_ON = frozenset({"retry", "reroute", "unknown_outcome"})


@dataclass(frozen=True, slots=True)
class ProcedureEvent:
    """`at_ms`: when its step was stored, in ms since 1970."""

    position: int
    name: str
    value: Any
    at_ms: int


class AsyncProcedureEvents:
    """An iterator that ends with its procedure."""

    def __init__(
        self, ask: Callable[[int, int], Awaitable[Any]], after: int, *, follow: bool
    ) -> None:
        """`ask`: for what comes after a position, and how long to wait for it."""
        if type(after) is not int or not 0 <= after < 1 << 53:
            raise InvalidArgument(
                f"after must be the position of an event, or 0, got {after!r:.40}"
            )
        self.position = after
        """Of the last one that was given: where another one goes on."""
        self._ask, self._follow = ask, follow
        self._asked = after  # what is here is at or below
        self._here: deque[ProcedureEvent] = deque()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ProcedureEvent:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self) -> ProcedureEvent | None:
        """The next one, however long that takes; None: there are no more. Goes on over failures of
        nodes and connections.
        """
        failures = 0
        while not (self._here or self._closed):
            try:
                await self._more(PROCEDURE_EVENTS_WAIT_MS if self._follow else 0)
                failures = 0
            except KvorumError as error:
                failures += 1
                if error.disposition not in _GOES_ON or failures > 100:
                    raise
                await asyncio.sleep(min(0.01 * 2**failures, RETRY_WAIT_MS_MAX / 1000))
        return self._given()

    async def poll(self, timeout_ms: int) -> ProcedureEvent | None:
        """The next one, or None if there is none within `timeout_ms`, or no more (`ended`)."""
        if not (self._here or self._closed):
            await self._more(timeout_ms)
        return self._given()

    @property
    def ended(self) -> bool:
        """Whether all were given, and no more come."""
        return self._closed and not self._here

    async def close(self) -> None:
        """No more are wanted."""
        self._closed = True
        self._here.clear()

    async def _more(self, wait_ms: int) -> None:
        before = self._asked
        found = await self._ask(before, wait_ms)
        self._asked = found["after"]
        self._here += [
            ProcedureEvent(one["position"], one["name"], one["value"], one["at_ms"])
            for one in found["items"]
        ]
        self._closed = found["ended"] or (not self._follow and self._asked == before)
        if not self._here:
            self.position = self._asked  # others were left out

    def _given(self) -> ProcedureEvent | None:
        if not self._here:
            return None
        event = self._here.popleft()
        self.position = event.position if self._here else self._asked
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
