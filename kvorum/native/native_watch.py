"""The watch of a native backend: names and user keys above, the feed of storage keys below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kv.base.errors import InvalidArgument, KvorumError, NotFound, Unavailable
from kv.base.keys import successor
from kvorum.api.watching import Change, Event, WatchSpec
from txn.client import TxnClient
from txn.reading.feed_parts import Part

_PREFIX_BYTES: Final = 4


class NativeWatcher:
    """kvorum.api.watching.Watcher over a feed."""

    def __init__(
        self,
        txn: TxnClient,
        prefix: bytes,
        spec: WatchSpec,
        changed: Callable[[], Awaitable[bool]],
        translate: Callable[[KvorumError], KvorumError],
        name: str,
    ) -> None:
        """`prefix` of the table; `changed`: whether it has another one now, raises NotFound."""
        self._changed, self._translate, self._name = changed, translate, name
        start = prefix + spec.prefix
        ranges = [(start, successor(start))]
        self._feed = txn.feed(ranges, above=spec.above, check=self._check)
        self._txn, self._above = txn, spec.above
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
        except InvalidArgument as error:
            raise await self._future() or self._translate(error) from None
        except KvorumError as error:
            raise self._translate(error) from None
        return _event(part)

    async def _future(self) -> InvalidArgument | None:
        """What to tell if the watch was to begin in the future."""
        now = await self._txn.now()
        if self._above is None or self._above <= now:
            return None
        return InvalidArgument(
            f"watch from {self._above}: that version lies in the future (now {now}). Begin at one "
            "that was given out (of a write, an event, a snapshot or the oracle), at 0 for all "
            "rows, or leave it out for what comes from now on",
            details={"from_version": str(self._above), "now": str(now)},
        )

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
