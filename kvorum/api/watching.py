"""Watching a table (F14): events, and the iterators that users get.

    async for event in db.watch("app", "users", from_version=v):
        for key, value, expires_ms in event.changes: ...        # value None: deleted
        v = event.version                                       # resume from here

An event is one committed transaction, with all that it changed in the table (below the prefix), in
commit order. Large ones come in several parts with the same version; the last has `last`. A watch
goes on over failures of nodes and connections; whoever stops begins anew with `from_version` = the
`position` of the old one, and gets what follows, nothing lost and nothing twice.

Events are pulled: nothing is read ahead for a consumer that is slow but one part and one look at
each partition. The position of a consumer that is slower than the retention falls out of what is
kept: SnapshotTooOld says what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

from kv.base import timestamps
from kv.base.errors import InvalidArgument, Unavailable
from kvorum.api.model import Bytes, as_bytes

Kind = Literal["changes", "snapshot", "resolved"]


class Change(NamedTuple):
    """A key and its new value; None = deleted. `expires_ms`: when the value expires, milliseconds
    since the epoch, 0 = never; that it did is no event.
    """

    key: bytes
    value: bytes | None
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """A transaction, or a part of a large one. `kind` "snapshot": the rows that were there at
    `version` when a watch from 0 began; "resolved" (only if asked for): everything up to `version`
    was told.
    """

    kind: Kind
    version: int
    changes: list[Change]
    part: int = 0
    last: bool = True


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """`above`: changes with higher versions; 0 = all rows first, None = from now on."""

    above: int | None = None
    prefix: bytes = b""


class Watcher(Protocol):
    """A watch of one backend. Of one task at a time; `next` may be cancelled and called again."""

    @property
    def position(self) -> int:
        """Every transaction at or below was delivered."""
        ...

    async def next(self) -> Event:
        """The next event or part, when there is one; "resolved" every few seconds without.

        Raises SnapshotTooOld, NotFound (the table is gone), InvalidArgument.
        """
        ...

    def ready(self) -> Event | None:
        """The next event if it is there already. Not while `next` is under way."""
        ...

    async def close(self) -> None: ...


def watch_spec(from_version: int | None, prefix: Bytes | None) -> WatchSpec:
    """The arguments of a watch, checked."""
    if from_version is not None and (
        type(from_version) is not int or not 0 <= from_version <= timestamps.MAX
    ):
        raise InvalidArgument(f"from_version must be a version, or 0, got {from_version!r}")
    return WatchSpec(from_version, b"" if prefix is None else as_bytes(prefix, "prefix"))


def _timeout_s(timeout_ms: object) -> float:
    """Raises InvalidArgument."""
    if type(timeout_ms) is not int or timeout_ms < 0:
        raise InvalidArgument(f"timeout_ms must be 0 or more milliseconds, got {timeout_ms!r:.40}")
    return timeout_ms / 1000


class AsyncWatch:
    """The events of a table: an iterator without an end. `async with` begins it and ends it."""

    def __init__(self, begin: Callable[[], Awaitable[Watcher]], *, heartbeats: bool) -> None:
        self._begin, self._heartbeats = begin, heartbeats
        self._watcher: Watcher | None = None
        self._first: Event | None = None
        self._closed = False

    @property
    def position(self) -> int:
        """Every transaction at or below was sent: where another watch goes on. 0 = not begun."""
        if self._watcher is None or (self._first and self._first.kind != "resolved"):
            return 0
        return self._watcher.position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._closed:
            raise StopAsyncIteration
        return await self.next()

    async def next(self) -> Event:
        """The next event or part, however long that takes."""
        if self._closed:
            raise Unavailable("the watch is closed; begin another one from its `position`")
        if self._watcher is None:
            self._watcher = await self._begin()
        while True:
            event, self._first = self._first or await self._watcher.next(), None
            if self._heartbeats or event.kind != "resolved":
                return event

    async def poll(self, timeout_ms: int) -> Event | None:
        """The next event or part, or None if there is none within `timeout_ms`; nothing is lost by
        that. The first one begins the watch.
        """
        timeout_s = _timeout_s(timeout_ms)
        if not self._closed:
            await self.begin()  # whatever that takes: else a short one would never begin
        try:
            async with asyncio.timeout(timeout_s):
                return await self.next()
        except TimeoutError:
            return None

    async def begin(self) -> None:
        """Begin now, not with the first event that is asked for. `async with` does it."""
        if self._watcher is None:
            self._watcher = await self._begin()
            self._first = await self._watcher.next()

    async def close(self) -> None:
        """End the watch. A second time it does nothing."""
        self._closed = True
        if self._watcher is not None:
            await self._watcher.close()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
