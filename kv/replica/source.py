"""A partition's part of the state DB at one applied index, as the chunks of a snapshot
(raft.api.SnapshotSource; the bytes are in kv.replica.chunks).

All cursors are opened in one synchronous step, so they are one view, whatever is applied later. A
call reads a bounded number of rows. The collector's queue is in order of time, not of keys: it is
read whole, and a block may have few rows or none because the queue had only others'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, KvorumError
from kv.base.limits import SNAPSHOT_BLOCK_ROWS_MAX, SNAPSHOT_LOOK_ROWS_MAX
from kv.replica.chunks import (
    HEADER_BYTES,
    PART_OVERHEAD,
    ROW_OVERHEAD,
    Head,
    Place,
    block,
    check_seals,
    end_part,
    seal_chunk,
)
from kv.replica.ranges import is_due_here, services, slices
from kv.storage.engine import Cursor, Engine
from raft.errors import SnapshotUnavailable

_Row = tuple[str, bytes, bytes]  # family, key, value
_TAKE_BYTES: Final = 1 << 20
# A row of the shared queue that is only looked at weighs less than one that is sent.
_QUEUE_LOOKS: Final = SNAPSHOT_LOOK_ROWS_MAX // SNAPSHOT_BLOCK_ROWS_MAX


class RangeSource:
    """See the module. Make it in the same step as `head`."""

    def __init__(
        self,
        engine: Engine,
        descriptor: PartitionDescriptor,
        head: Head,
        on_close: Callable[[RangeSource], object],
        on_damage: Callable[[Corruption], object] = lambda _error: None,
    ) -> None:
        self._on_damage = on_damage
        self._descriptor, self._head, self._on_close = descriptor, head, on_close
        bounds = [*slices(descriptor), ("gcq", b"", b"")]
        self._cursors = [(name, engine.cursor(name, low, high)) for name, low, high in bounds]
        read = engine.getter("meta")
        found = [(key, read(key)) for key in sorted(services(descriptor))]
        self._services = [(key, value) for key, value in found if value is not None]
        self._stream = self._read_on()
        self._ahead: _Row | None = None  # did not fit the last block
        self._pieces: deque[memoryview] = deque()  # of the block under way
        self._chunks = self._rows = 0
        self._ended = self._closed = False
        self._failed: SnapshotUnavailable | None = None

    @property
    def index(self) -> int:
        return self._head.index

    @property
    def term(self) -> int:
        return self._head.term

    def read(self, bytes_max: int) -> bytes | None:
        """The next chunk, None after the last one. Raises SnapshotUnavailable, from then on for
        ever: a record is damaged, or the database was closed.
        """
        room = bytes_max - HEADER_BYTES
        assert room > 0, "a chunk has a header"
        if not self._pieces:
            if self._ended:
                return None
            whole = memoryview(self._next_block(room))
            self._pieces.extend(whole[at : at + room] for at in range(0, len(whole), room))
        elif len(self._pieces[0]) > room:  # the caller wants smaller chunks than before
            first = self._pieces.popleft()
            self._pieces.extendleft((first[room:], first[:room]))
        piece = self._pieces.popleft()
        place = Place(self._head.partition, self.index, self.term, self._chunks)
        self._chunks += 1
        return seal_chunk(place, piece, continues=bool(self._pieces))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for _, cursor in self._cursors:
                cursor.close()
            self._on_close(self)

    # ------------------------------------------------------------------ blocks

    def _next_block(self, room: int) -> bytes:
        """Head, rows and end as far as they fit into `room`; or one row that needs more."""
        parts: list[list[Any]] = []
        left, looks = room - PART_OVERHEAD, SNAPSHOT_BLOCK_ROWS_MAX
        if not self._chunks:
            parts.append(self._head.to_wire())
            left -= 3 * PART_OVERHEAD + len(self._head.start) + len(self._head.end)
        while looks > 0:
            row = self._next()
            if row is None:
                self._ended = True
                parts.append(end_part(self._rows))
                break
            if isinstance(row, int):
                looks -= row
                continue
            family, key, value = row
            size = len(key) + len(value) + ROW_OVERHEAD
            if not parts or parts[-1][0] != family:
                size += PART_OVERHEAD
            if size > left and parts:
                self._ahead = row
                break
            if not parts or parts[-1][0] != family:
                parts.append([family, []])
            parts[-1][1] += (key, value)
            self._rows += 1
            left -= size
            looks -= 1
        return block(parts)

    def _next(self) -> _Row | int | None:
        """The next row; or what the reading cost beside the rows; or None at the end."""
        if self._failed is not None:
            raise self._failed
        row: _Row | int | None = self._ahead
        if row is not None:
            self._ahead = None
            return row
        try:
            return next(self._stream, None)
        except KvorumError as error:
            # A generator that raised looks like one at its end: never again.
            self._failed = SnapshotUnavailable(f"{error}")
            if isinstance(error, Corruption):
                self._on_damage(error)
            raise self._failed from error

    def _read_on(self) -> Iterator[_Row | int]:
        for family, cursor in self._cursors:
            queue = family == "gcq"
            looks = SNAPSHOT_LOOK_ROWS_MAX if queue else SNAPSHOT_BLOCK_ROWS_MAX
            while rows := self._take(family, cursor, looks):
                if queue:
                    yield 1 + len(rows) // _QUEUE_LOOKS
                for key, value in rows:
                    if not queue or is_due_here(self._descriptor, key):
                        yield family, key, value
        for key, value in self._services:
            yield "meta", key, value

    def _take(self, family: str, cursor: Cursor, looks: int) -> list[tuple[bytes, bytes]]:
        rows = cursor.take(looks, _TAKE_BYTES)
        check_seals(family, [key for key, _ in rows], [value for _, value in rows])
        return rows
