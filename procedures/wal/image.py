"""What a standalone store holds, in memory: the records, and indexes to find them. Pure.

`apply` is the only way in, for what is written now and for what is read from the logs at a start:
so both give the same. A record of the log holds whole cells, so that applying a tail of the logs
gives those cells whatever came before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final, NamedTuple

from kv.base.errors import Corruption
from procedures.engine import records
from procedures.engine.records import Record
from procedures.engine.store import Stored
from procedures.wal.format import LogRecord, Put
from procedures.wal.rows import Rows

LIVE: Final = -1
KEPT: Final = 0  # ended, and forgotten with its parent


class Held(NamedTuple):
    """A procedure's record as bytes; `due`: LIVE, KEPT, or when to forget it (ms)."""

    data: bytes
    version: int
    due: int


class Image:
    """Everything that is in the store."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.next_id = 1
        self.held: dict[int, Held] = {}
        self._ids: list[int] = []
        self._live: list[int] = []
        self._due: list[tuple[int, int]] = []
        self._nonces: dict[tuple[str, str], int] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of all that lives."""
        return self._size + self.rows.size

    @property
    def live_count(self) -> int:
        return len(self._live)

    @property
    def indexed(self) -> int:
        """How much is kept for procedures beside rows (tests look for leaks)."""
        return sum(map(len, (self.held, self._ids, self._live, self._due, self._nonces)))

    def broken_count(self) -> int:
        """How many records cannot be read. Reads all of them that have not ended."""
        return sum(
            _readable(Put(id, self.held[id].version, self.held[id].data)) is None
            for id in self._live
        )

    def apply(self, change: LogRecord) -> None:
        for put in change.puts:
            self._put(put)
        for row in change.rows:
            self.rows.apply(row)
        for id in change.removed:
            self._remove(id)
        self.next_id = max(self.next_id, change.next_id)

    def stored(self, id: int) -> Stored | None:
        """The record. Raises Corruption if it cannot be read."""
        held = self.held.get(id)
        if held is None:
            return None
        return Stored(
            records.decode(held.data, f"procedure {id}").settled(held.version), held.version
        )

    def by_nonce(self, owner: str, nonce: str) -> int | None:
        return self._nonces.get((owner, nonce))

    def live(self, after: int, limit: int) -> list[int]:
        at = bisect_right(self._live, after)
        return self._live[at : at + limit]

    def newest(self, before: int, limit: int) -> list[int]:
        stop = bisect_left(self._ids, before) if before else len(self._ids)
        return self._ids[max(0, stop - limit) : stop][::-1]

    def expired(self, now_ms: int, limit: int) -> tuple[list[int], int]:
        over = self._due[: bisect_left(self._due, (now_ms + 1, 0))]
        if over:
            return [id for _, id in over[:limit]], now_ms  # look again: there may be more
        return [], self._due[0][0] if self._due else 0

    def again(self, id: int) -> Put | None:
        """A record as it is, to be written once more."""
        held = self.held.get(id)
        return None if held is None else Put(id, held.version, held.data)

    def _put(self, put: Put) -> None:
        id = put.id
        before = self.held.get(id)
        record = _readable(put)
        if record is None or not record.ended:
            due = LIVE
        elif record.parent:
            due = KEPT
        elif before is not None and before.due > 0:
            due = before.due
        else:
            due = record.updated_ms + record.retention_ms
        self.held[id] = Held(put.data, put.version, due)
        self._size += len(put.data)
        if before is None:
            insort(self._ids, id)
            if record is not None and record.nonce:
                self._nonces[record.owner, record.nonce] = id
        else:
            self._size -= len(before.data)
            if before.due == due:
                return
            self._unlist(id, before.due)
        if due == LIVE:
            insort(self._live, id)
        elif due:
            insort(self._due, (due, id))

    def _remove(self, id: int) -> None:
        held = self.held.pop(id, None)
        if held is None:
            return  # the log that had it is gone
        self._size -= len(held.data)
        del self._ids[bisect_left(self._ids, id)]
        self._unlist(id, held.due)
        record = _readable(Put(id, held.version, held.data))
        if record is not None and self._nonces.get((record.owner, record.nonce)) == id:
            del self._nonces[record.owner, record.nonce]

    def _unlist(self, id: int, due: int) -> None:
        if due == LIVE:
            del self._live[bisect_left(self._live, id)]
        elif due:
            del self._due[bisect_left(self._due, (due, id))]


def _readable(put: Put) -> Record | None:
    try:
        return records.decode(put.data, f"procedure {put.id}")
    except Corruption:
        return None  # it is listed as broken, and left alone
