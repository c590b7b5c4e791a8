"""A snapshot of a partition beside its live data: family `staged` of the state DB.

    [partition 8] b"c" [index 8][term 8][sender 8][number 8][chunk 4]      a chunk as it came
    [partition 8] b"p"          sealed msgpack [index, term, sender, number, *Progress]

A partition stages one snapshot at a time. Each chunk is written together with the progress of
checking it, so after a restart the stream goes on where it was without reading it all again.
"""

from __future__ import annotations

import struct
from dataclasses import astuple
from typing import Final

import msgpack

from kv.base.checksum import CRC_BYTES, seal
from kv.base.errors import Corruption
from kv.base.ids import PartitionId
from kv.base.keys import from_u64, u64
from kv.mvcc.records import corrupt, verified
from kv.replica.chunks import Head, Part, Progress, Target, open_chunk, read_block
from kv.storage.engine import Batch, Engine
from raft.api import SnapshotId

_FAMILY: Final = "staged"
_CHUNK: Final = b"c"
_PROGRESS: Final = b"p"
_PLACE = struct.Struct(">QQQQI")


def chunk_key(partition: PartitionId, snapshot: SnapshotId, number: int) -> bytes:
    return u64(partition) + _CHUNK + _PLACE.pack(*fields_of(snapshot), number)


def fields_of(snapshot: SnapshotId) -> tuple[int, int, int, int]:
    """In the order in which they are stored."""
    return snapshot.index, snapshot.term, snapshot.sender, snapshot.number


def progress_key(partition: PartitionId) -> bytes:
    return u64(partition) + _PROGRESS


def clear(engine: Engine, batch: Batch, partition: PartitionId) -> None:
    """Remove whatever the partition staged."""
    batch.delete_range(u64(partition), u64(partition + 1), engine.family(_FAMILY))


def staged_partitions(engine: Engine) -> list[PartitionId]:
    """Those that staged something."""
    found: list[PartitionId] = []
    start = b""
    while rows := engine.scan(_FAMILY, start, b"", limit=1):
        found.append(PartitionId(from_u64(rows[0][0])))
        start = u64(found[-1] + 1)
    return found


def stored_progress(engine: Engine, partition: PartitionId) -> tuple[SnapshotId, Progress] | None:
    """What the partition is staging, and how far it is. Raises Corruption."""
    key = progress_key(partition)
    record = engine.getter(_FAMILY)(key)
    if record is None:
        return None
    row = msgpack.unpackb(verified(_FAMILY, key, record)[:-CRC_BYTES])
    return SnapshotId(*row[:4]), Progress(*row[4:])


class Staging:
    """The chunks of one snapshot."""

    def __init__(self, engine: Engine, snapshot: SnapshotId, target: Target) -> None:
        self.snapshot, self.target = snapshot, target
        self.progress = Progress()
        self._engine = engine
        self._partition = target.descriptor.id
        self._read = engine.getter(_FAMILY)
        self._pieces: list[memoryview] = []  # of the block under way

    def open(self) -> None:
        """Go on with what is stored of this snapshot; whatever else is there goes. Raises
        Corruption, Unavailable.
        """
        stored = stored_progress(self._engine, self._partition)
        if stored is not None and stored[0] == self.snapshot:
            progress = stored[1]
            under_way = range(progress.block_from, progress.chunks)
            self._pieces = [self._stored(number)[0] for number in under_way]
            self.progress = progress
            if progress.begun:
                self.target.adopt(self.head())
        else:
            self.discard()

    def put(self, number: int, chunk: bytes) -> None:
        """Check and write the next chunk; not durable yet. Raises Corruption, Unavailable: nothing
        changed.
        """
        place = self.target.place(number)
        piece, continues = open_chunk(place, chunk)
        parts = None if continues else read_block(place, [*self._pieces, piece])
        progress = self.progress.after(place, parts, self.target)
        batch, family = self._engine.batch(), self._engine.family(_FAMILY)
        batch.put(chunk_key(self._partition, self.snapshot, number), chunk, family)
        key = progress_key(self._partition)
        record = msgpack.packb([*fields_of(self.snapshot), *astuple(progress)])
        batch.put(key, seal(key, record), family)
        self._engine.write(batch)
        self.progress = progress
        if continues:
            self._pieces.append(piece)
        else:
            self._pieces = []

    def discard(self) -> None:
        """Forget all that the partition staged."""
        batch = self._engine.batch()
        clear(self._engine, batch, self._partition)
        self._engine.write(batch)
        self.progress, self._pieces = Progress(), []

    # ------------------------------------------------------------------ reading back

    def check(self, number: int) -> int:
        """The bytes of a chunk. Raises Corruption that names its key, if it is not what was
        staged.
        """
        return len(self._stored(number)[0])

    def head(self) -> Head:
        """What the stream begins with, once that is staged. Raises Corruption."""
        parts, _ = self.block_at(0)
        head = parts[0]
        if not isinstance(head, Head):
            raise corrupt(_FAMILY, chunk_key(self._partition, self.snapshot, 0))
        return head

    def block_at(self, number: int) -> tuple[list[Part], int]:
        """The parts of the block that begins in this chunk, and the chunk after it. Raises
        Corruption that names the key of a damaged chunk.
        """
        pieces, continues = [], True
        while continues:
            piece, continues = self._stored(number)
            pieces.append(piece)
            number += 1
        return read_block(self.target.place(number - 1), pieces), number

    def _stored(self, number: int) -> tuple[memoryview, bool]:
        key = chunk_key(self._partition, self.snapshot, number)
        chunk = self._read(key)
        if chunk is None:
            raise corrupt(_FAMILY, key)
        try:
            return open_chunk(self.target.place(number), chunk)
        except Corruption as error:
            error.details["key"] = key
            raise
