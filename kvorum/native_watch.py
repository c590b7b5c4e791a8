"""The watch of a native backend: names and user keys above, the feed of storage keys below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kv.base.errors import KvorumError, NotFound, Unavailable
from kv.base.keys import successor
from kvorum.watching import Change, Event, WatchSpec
from txn.client import TxnClient
from txn.feed_parts import Part

_PREFIX_BYTES: Final = 4


class NativeWatcher:
    """kvorum.watching.Watcher over a feed."""

    def __init__(
        self,
        txn: TxnClient,
        prefix: bytes,
        spec: WatchSpec,
        changed: Callable[[], Awaitable[bool]],
        told: Callable[[KvorumError], KvorumError],
        name: str,
    ) -> None:
        """`prefix` of the table; `changed`: whether it has another one now, raises NotFound."""
        self._changed, self._told, self._name = changed, told, name
        start = prefix + spec.prefix
        self._feed = txn.feed(start, successor(start), above=spec.above, check=self._check)
        self._closed = False

    @property
    def position(self) -> int:
        return self._feed.position

    async def _check(self) -> None:
        if self._closed:
            raise Unavailable("the database was closed")
        if await self._changed():
            raise NotFound(
                f"table {self._name} was dropped and made anew; watch the new one from 0",
                code="TABLE_NOT_FOUND",
            )

    async def next(self) -> Event:
        if self._closed:
            raise Unavailable("the database was closed")
        try:
            part = await self._feed.next()
        except KvorumError as error:
            raise self._told(error) from None
        return _event(part)

    def ready(self) -> Event | None:
        part = self._feed.ready()
        return None if part is None else _event(part)

    async def close(self) -> None:
        self._closed = True
        await self._feed.close()


def _event(part: Part) -> Event:
    changes = [
        Change(key[_PREFIX_BYTES:], value, expires_ms) for key, value, _, expires_ms in part.rows
    ]
    return Event(part.kind, part.version, changes, part.part, part.last)
