"""The rows as of one version: `Reads` and `Scans` (procedures/engine/store.py) over anything that
keeps versions in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from procedures.engine.store import Row
from txn.results import ScanPage


class Versions(Protocol):
    """Rows with their older versions."""

    def read(self, key: bytes, at: int) -> Row | None: ...

    def keys(self, start: bytes, end: bytes) -> Sequence[bytes]:
        """The keys of `[start, end)` in order, b"" = no end; also those that are gone by now."""
        ...


class ReadSnapshot:
    """`close` is there for who counts readers; nothing is held here."""

    def __init__(self, rows: Versions, at: int) -> None:
        self._rows = rows
        self.start_ts: Final = at

    async def get(self, key: bytes) -> Row | None:
        return self._rows.read(key, self.start_ts)

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        return [self._rows.read(key, self.start_ts) for key in keys]

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage:
        keys = self._rows.keys(start, end)
        found: list[tuple[bytes, bytes, int]] = []
        for key in reversed(keys) if reverse else keys:
            row = self._rows.read(key, self.start_ts)
            if row is None:
                continue
            if len(found) == limit:
                return ScanPage(found, found[-1][0] if reverse else key, self.start_ts)
            found.append((key, *row))
        return ScanPage(found, None, self.start_ts)

    async def close(self) -> None:
        pass
