"""The rows of a large snapshot as sorted files, which the database takes in as they are.

Written as batches, every row goes to the write-ahead log, to a memtable, to a file of level 0, and
from there down through the levels. As a file it is written once and lies where it belongs, and the
memtables are left to requests. Rows of the other families are few, and come as batches: their
order among the partition's batches matters (`lock`), or they are among others' (`gcq`, `meta`).

Figures and the choice: docs/decisions/0205.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kv.base import limits
from kv.replica.chunks import Part, Run
from kv.storage.engine import Engine, SortedRows

FILED: Final = ("cur", "hist")


class RowFiles:
    """Of one installation. Raises Unavailable: discard it, and write batches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, SortedRows] = {}  # at most one per family
        self._closed: list[SortedRows] = []
        self._unsynced = 0

    def put(self, parts: Sequence[Part]) -> bool:
        """The rows of a block that belong here; whether a sync is due before the next."""
        for part in parts:
            if isinstance(part, Run) and part.family in FILED and part.rows:
                file = self._open.get(part.family)
                if file is None:
                    file = self._open[part.family] = self._engine.sorted_rows(part.family)
                before, rows = file.size, part.rows
                for key, value in zip(rows[::2], rows[1::2], strict=True):
                    file.put(key, value)
                self._unsynced += file.size - before
                if file.size >= limits.SNAPSHOT_FILE_BYTES:
                    self._close(part.family)
        due = self._unsynced >= limits.SNAPSHOT_FILE_SYNC_BYTES
        if due:
            self._unsynced = 0
        return due

    def _close(self, family: str) -> None:
        file = self._open.pop(family)
        self._closed.append(file)
        file.close()

    def close(self) -> None:
        """That were all rows. Sync then."""
        for family in list(self._open):
            self._close(family)

    def ingest(self) -> bool:
        """Take them in; False: after another sync. They are durable then."""
        return self._engine.ingest(self._closed)

    def discard(self) -> None:
        """Whatever was not taken in goes."""
        for file in (*self._open.values(), *self._closed):
            file.discard()
