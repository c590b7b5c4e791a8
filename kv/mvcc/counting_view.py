"""A view that counts what point reads and looks into the past find, for who asks how much a read
had to look at. What a scan passes of newest records it tells itself (kv.mvcc.scan).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kv.mvcc.records import Lock
from kv.mvcc.view import ReadView


class Looked:
    """`kv.mvcc.view.ReadView` over another one."""

    def __init__(self, view: ReadView) -> None:
        self._view = view
        self.versions = 0

    @property
    def safepoint(self) -> int:
        return self._view.safepoint

    @property
    def retention_ms(self) -> int:
        return self._view.retention_ms

    def cur(self, key: bytes) -> bytes | None:
        record = self._view.cur(key)
        self.versions += record is not None
        return record

    def multi_cur(self, keys: list[bytes]) -> Sequence[bytes | None]:
        records = self._view.multi_cur(keys)
        self.versions += sum(record is not None for record in records)
        return records

    def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        limit: int,
        bytes_max: int = 0,
    ) -> list[tuple[bytes, bytes]]:
        rows = self._view.scan(
            family, start, end, reverse=reverse, limit=limit, bytes_max=bytes_max
        )
        if family == "hist":
            self.versions += len(rows)
        return rows

    def lock(self, key: bytes) -> Lock | None:
        return self._view.lock(key)

    def locked_keys(self, start: bytes, end: bytes) -> Iterable[bytes]:
        return self._view.locked_keys(start, end)
