"""Wakes procedures that wait for a row to change (`flow.row_changed`).

Whoever waits has seen the row at a version, and waits for an event that says key and version: so it
is in his record, and nothing else is kept. Here the change feed of each table is followed, of just
these keys while they are few. A key that is new is read once the feed stands: a change before that
moment is found by its version, a later one comes by the feed. So none is missed between look and
wait. Who is woken looks again, in his own transaction, and that counts.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kv.base.errors import KvorumError
from kv.base.keys import successor
from procedures.pools.rows import Rows

log = logging.getLogger(__name__)

_ROW: Final = "row:"
_PREFIX_BYTES: Final = 4  # of a storage key: its table
_RANGES_MAX: Final = 64  # more keys of a table: all of it is followed
_AGAIN_S: Final = 1.0


class Awaited(NamedTuple):
    """A row that somebody waits for to be another than the one of this version; 0: absent."""

    key: bytes
    version: int


class Feed(Protocol):
    """txn.reading.feed.Feed."""

    position: int

    async def next(self) -> Any: ...

    async def close(self) -> None: ...


Feeds = Callable[[Sequence[tuple[bytes, bytes]], int], Feed]
"""(ranges, above) → what changes in them with higher versions."""


def row_event(row: Awaited) -> str:
    return f"{_ROW}{row.version:x}:{urlsafe_b64encode(row.key).decode()}"


def awaited(event: str) -> Awaited | None:
    """None: it is another event."""
    if not event.startswith(_ROW):
        return None
    version, _, key = event[len(_ROW) :].partition(":")
    try:
        return Awaited(urlsafe_b64decode(key), int(version, 16))
    except ValueError:
        return None


class RowWatch:
    """`signal` wakes who waits for an event; `spawn` runs a task."""

    def __init__(
        self,
        rows: Rows,
        feeds: Feeds,
        signal: Callable[[str], None],
        spawn: Callable[[Coroutine[object, None, None]], object],
    ) -> None:
        self._rows, self._feeds, self._signal, self._spawn = rows, feeds, signal, spawn
        self._tables: dict[bytes, _Table] = {}
        self._closed = False

    def begin(self, event: str) -> None:
        """Somebody waits for this."""
        row = awaited(event)
        if row is None or self._closed:
            return
        table = self._tables.get(row.key[:_PREFIX_BYTES])
        if table is None:
            table = self._tables[row.key[:_PREFIX_BYTES]] = _Table()
            self._spawn(self._follow(row.key[:_PREFIX_BYTES], table))
        table.add(event, row)

    def end(self, event: str) -> None:
        """Nobody does any more."""
        row = awaited(event)
        if row is not None and (table := self._tables.get(row.key[:_PREFIX_BYTES])) is not None:
            table.remove(event, row)

    def close(self) -> None:
        self._closed = True
        for table in self._tables.values():
            table.events.clear()
            table.changed.set()

    async def _follow(self, prefix: bytes, table: _Table) -> None:
        """As long as somebody waits for a row of it."""
        position = 0
        while table.events and not self._closed:
            table.changed.clear()
            try:
                position = await self._round(prefix, table, position)
            except KvorumError as error:
                log.warning("rows of a table are looked at anew: %s", error)
                position, table.fresh = 0, set(table.events)
                await asyncio.sleep(_AGAIN_S)
        if self._tables.get(prefix) is table:
            del self._tables[prefix]

    async def _round(self, prefix: bytes, table: _Table, position: int) -> int:
        """Follow until the keys change; what was seen up to then."""
        position = position or await self._rows.now()
        keys = sorted(table.events)
        ranges = [(key, key + b"\x00") for key in keys]
        if len(keys) > _RANGES_MAX:
            ranges = [(prefix, successor(prefix))]
        feed = self._feeds(ranges, position)
        try:
            await self._look(table)
            return await self._feed(table, feed)
        finally:
            await feed.close()

    async def _look(self, table: _Table) -> None:
        """At the keys that are new: they may have changed before the feed began."""
        while table.fresh:
            key = table.fresh.pop()
            try:
                value, version = await self._rows.get(key)
            except BaseException:
                table.fresh.add(key)
                raise
            table.tell(key, 0 if value is None else version, self._signal)

    async def _feed(self, table: _Table, feed: Feed) -> int:
        loop = asyncio.get_running_loop()
        changed = loop.create_task(table.changed.wait())
        coming: asyncio.Task[Any] = loop.create_task(feed.next())
        try:
            while True:
                await asyncio.wait([changed, coming], return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    part = coming.result()
                    for key, value, version, *_ in part.rows:
                        table.tell(bytes(key), 0 if value is None else version, self._signal)
                if changed.done():
                    return feed.position
                if coming.done():
                    coming = loop.create_task(feed.next())
        finally:
            for task in (changed, coming):
                task.cancel()
            await asyncio.wait([changed, coming])
            if not coming.cancelled():
                coming.exception()


class _Table:
    """Who waits for rows of a table."""

    def __init__(self) -> None:
        self.events: dict[bytes, dict[str, int]] = {}  # key → event → version that was seen
        self.fresh: set[bytes] = set()  # not looked at since somebody waits
        self.changed = asyncio.Event()

    def add(self, event: str, row: Awaited) -> None:
        self.events.setdefault(row.key, {})[event] = row.version
        self.fresh.add(row.key)
        self.changed.set()

    def remove(self, event: str, row: Awaited) -> None:
        waiting = self.events.get(row.key)
        if waiting is not None and waiting.pop(event, None) is not None and not waiting:
            del self.events[row.key]
            self.fresh.discard(row.key)
            self.changed.set()

    def tell(self, key: bytes, version: int, signal: Callable[[str], None]) -> None:
        """Wake those who have seen another version of it."""
        seen: Mapping[str, int] = self.events.get(key, {})
        for event in [event for event, known in seen.items() if known != version]:
            signal(event)
