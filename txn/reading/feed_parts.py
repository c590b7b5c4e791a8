"""What a feed reports in parts without ever holding it: the first snapshot, a large transaction.

`next` may be cancelled and called again: state changes only after the last await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kv.base.errors import Moved
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    FEED_PART_BYTES_MAX,
    FEED_PART_ROWS_MAX,
)
from kv.base.methods import CHANGES
from kv.feed.changes import Row, size_of
from txn.reading.reader import Reader
from txn.shared.ports import Kv

Kind = Literal["changes", "snapshot", "resolved"]
Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
Range = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an event. "resolved" has no rows: everything at or below `version` was sent."""

    kind: Kind
    version: int
    rows: Sequence[Row] = ()
    part: int = 0
    last: bool = True


class Parts(Protocol):
    async def next(self) -> Part:
        """Not called again after the last one."""
        ...


class SnapshotParts:
    """All rows of `[start, end)` as of `at`, by key."""

    def __init__(
        self, reader: Reader, patiently: Patiently, start: bytes, end: bytes, at: int
    ) -> None:
        self._reader, self._patiently = reader, patiently
        self._start, self._end, self._at = start, end, at
        self._part = 0

    async def next(self) -> Part:
        page = await self._patiently(
            lambda: self._reader.scan(
                self._start,
                self._end,
                self._at,
                limit=FEED_PART_ROWS_MAX,
                reverse=False,
                budget_ms=DEADLINE_MS_DEFAULT,
            )
        )
        rows = [(key, value, version, 0) for key, value, version in page.items]
        found = Part("snapshot", self._at, rows, self._part, last=page.resume is None)
        self._start, self._part = page.resume or b"", self._part + 1
        return found


class LargeParts:
    """One version that is complete in all `ranges`, rows by key."""

    def __init__(
        self,
        kv: Kv,
        patiently: Patiently,
        cut: Callable[[bytes, bytes], Awaitable[list[Range]]],
        ranges: Sequence[Range],
        version: int,
    ) -> None:
        """`cut` gives a range as ranges of one partition each."""
        self._kv, self._patiently, self._cut = kv, patiently, cut
        self._ranges, self._version = list(ranges), version
        self._cursor: bytes | None = None
        self._rows: list[Row] = []
        self._bytes = self._part = 0

    async def next(self) -> Part:
        """A part is returned once the row after it is known, so that the last one knows it is."""
        while self._ranges and not self._over(len(self._rows), self._bytes):
            await self._read()
        n = size = 0
        while n < len(self._rows) and not self._full(n, size):
            size += size_of(self._rows[n])
            n += 1
        rows, self._rows = self._rows[:n], self._rows[n:]
        self._bytes -= size
        found = Part(
            "changes", self._version, rows, self._part, last=not self._rows and not self._ranges
        )
        self._part += 1
        return found

    def _full(self, rows: int, size: int) -> bool:
        return rows >= FEED_PART_ROWS_MAX or size >= FEED_PART_BYTES_MAX

    def _over(self, rows: int, size: int) -> bool:
        return rows > FEED_PART_ROWS_MAX or (rows > 1 and size > FEED_PART_BYTES_MAX)

    async def _read(self) -> None:
        """One step in the first range that is left."""
        start, end = self._ranges[0]
        try:
            rows, _, cursor, *_ = await self._patiently(
                lambda: self._kv.call(
                    CHANGES,
                    start,
                    start,
                    end,
                    self._version,
                    FEED_PART_ROWS_MAX,
                    self._version - 1,
                    True,
                    FEED_PART_BYTES_MAX,
                    self._cursor,
                )
            )
        except Moved:
            at = start if self._cursor is None else max(start, self._cursor[:-8])
            self._ranges[:1] = await self._patiently(lambda: self._cut(at, end))
            self._cursor = None
            return
        self._rows += rows
        self._bytes += sum(map(size_of, rows))
        self._cursor = cursor
        if cursor is None:
            del self._ranges[0]
