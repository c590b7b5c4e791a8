"""LISTEN of all sessions of a process: one feed for each database to which somebody listens, none
for the others (sqlproxy.catalog.notifications).

    LISTEN commits ─▶ since = a timestamp before the commit ─▶ the feed above it ─▶ `hear`

A transaction that commits after LISTEN has answered commits above `since`, also where clocks are
hybrid: the range was read as of then, so its leader lets nobody commit below. A feed that cannot go
on (it is behind all that is kept) says so to its listeners; nothing is lost silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from kv.base.errors import KvorumError
from sqlproxy.catalog.notifications import Notification, decoded, row_key, span
from txn.reading.feed import Feed
from txn.reading.feed_parts import Part
from txn.shared.deadlines import Background

_AT_ONCE: Final = 500  # given to sessions before others have the loop


class Store(Protocol):
    """What is needed of `txn.client.TxnClient`."""

    async def now(self) -> int: ...

    def get(self, key: bytes, at: int = 0) -> Awaitable[tuple[bytes | None, int]]: ...

    def feed(
        self,
        ranges: Sequence[tuple[bytes, bytes]],
        *,
        above: int | None,
        check: Callable[[], Awaitable[None]],
    ) -> Feed: ...


class Listener(Protocol):
    def hear(self, one: Notification) -> None: ...

    def lost(self) -> None:
        """What comes is not known any more."""
        ...


class Notifier:
    """Of one process. `close` ends it, when all sessions are closed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._following: dict[str, _Following] = {}
        self._background = Background()

    async def since(self, database: str) -> int:
        """What commits from now on commits above this. Raises KvorumError."""
        at = await self._store.now()
        await self._store.get(row_key(database, 0, 0), at)
        return at

    def listen(self, listener: Listener, database: str, channel: str, since: int) -> None:
        following = self._following.get(database)
        if following is None:
            following = self._following[database] = _Following()
            work = self._follow(database, following, since)
            following.task = self._background.spawn(work, f"notifications of {database}")
        following.channels.setdefault(channel, {})[listener] = since

    def unlisten(self, listener: Listener, database: str, channel: str) -> None:
        """Fine if it does not listen."""
        following = self._following.get(database)
        if following is None:
            return
        listeners = following.channels.get(channel, {})
        listeners.pop(listener, None)
        if not listeners:
            following.channels.pop(channel, None)
        if not following.channels:
            del self._following[database]
            assert following.task is not None
            following.task.cancel()

    async def reached(self, database: str, version: int, within_ms: int) -> None:
        """Until what was committed so far was heard, if somebody listens; not longer than that."""
        following = self._following.get(database)
        if following is None or following.position >= version:
            return
        heard = asyncio.get_running_loop().create_future()
        following.waiting.append((version, heard))
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await heard

    async def _follow(self, database: str, following: _Following, since: int) -> None:
        feed = self._store.feed([span(database)], above=since, check=_nothing)
        try:
            while True:
                await following.give(await feed.next())
        except KvorumError:  # what passes is waited for in there
            self._following.pop(database, None)
            for listener in {one: None for them in following.channels.values() for one in them}:
                listener.lost()
        finally:
            following.answer(None)
            await feed.close()

    async def close(self) -> None:
        self._background.closed = True
        await self._background.cancel()


async def _nothing() -> None:
    """The table is always there."""


class _Following:
    """One database's feed. `channels`: who listens to each, and above which version."""

    def __init__(self) -> None:
        self.channels: dict[str, dict[Listener, int]] = {}
        self.task: asyncio.Task[None] | None = None
        self.position = 0
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def give(self, part: Part) -> None:
        """Raises Corruption."""
        given = 0
        for key, value, *_ in part.rows:
            if value is None:
                continue
            one = decoded(key, value)
            for listener, since in list(self.channels.get(one.channel, {}).items()):
                if part.version > since:
                    listener.hear(one)
                    given += 1
            if given >= _AT_ONCE:
                given = 0
                await asyncio.sleep(0)
        if part.last:
            self.position = part.version
            self.answer(part.version)

    def answer(self, version: int | None) -> None:
        """Who waits for what was heard by now; None: everybody."""
        left = []
        for wanted, heard in self.waiting:
            if version is not None and wanted > version:
                left.append((wanted, heard))
            elif not heard.done():
                heard.set_result(None)
        self.waiting = left
