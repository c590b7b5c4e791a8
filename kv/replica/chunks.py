"""The bytes of a snapshot of a partition's range: blocks of rows, cut into chunks. Pure.

    chunk   [crc32 LE 4, of the rest][flags 1][a piece of a block]
            flags 1: the block goes on in the next chunk. The checksum is seeded by partition,
            snapshot and place, so a chunk that turns up elsewhere is found out.
    block   msgpack [format, part, …]; a part is one of
            ["head", partition, index, term, start, end, top_ts, safepoint, old versions,
             live bytes, epoch, [index, term] of the entry that froze it | nil]
            [family, [key, value, …]]
            ["end", rows in all]
    stream  head first, end last, between them families in the order of FAMILIES and their keys
            rising: cur, hist, lock, txn and guard rows of the range, gcq rows whose key lies in it,
            and of family meta the records of services, if it is the meta partition's

A block has as many rows as a chunk takes; only a row that is larger than a chunk is cut. Every
record is checked against its own seal where it is read and where it arrives: damage does not
travel.

Deliberately missing: compression (rows are, on disk), sending only what differs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import msgpack

from kv.base.checksum import CRC_OK
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption
from kv.base.ids import PartitionId
from kv.base.wire_row import WireRow
from kv.mvcc.records import corrupt
from kv.replica.ranges import is_due_here, services, slices

FORMAT: Final = 1
FAMILIES: Final = ("cur", "hist", "lock", "txn", "guard", "gcq", "meta")
HEADER_BYTES: Final = 5
ROW_OVERHEAD: Final = 10  # msgpack's own bytes of a key and a value, from above
PART_OVERHEAD: Final = 32  # of a part without its rows, and of a block without its parts
_HEAD: Final = "head"
_END: Final = "end"
_CONTINUES: Final = 1
_U32 = struct.Struct("<I")
_SEED = struct.Struct(">QQQQ")
_pack = msgpack.Packer(use_bin_type=True).pack


@dataclass(frozen=True, slots=True)
class Place:
    """Which chunk: of this partition's snapshot at (index, term), the `number`-th from 0 on."""

    partition: PartitionId
    index: int
    term: int
    number: int

    def __str__(self) -> str:
        return (
            f"chunk {self.number} of the snapshot of partition {self.partition} at index "
            f"{self.index}, term {self.term}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a snapshot is of, and the figures of the partition's meta records."""

    partition: PartitionId
    index: int
    term: int
    start: bytes
    end: bytes
    top_ts: int
    safepoint: int
    old_versions: int
    live_bytes: int
    epoch: int = 0  # of the descriptor; earlier versions do not say it
    frozen: tuple[int, int] | None = None

    def to_wire(self) -> WireRow:
        return [
            *(_HEAD, self.partition, self.index, self.term, self.start, self.end),
            *(self.top_ts, self.safepoint, self.old_versions, self.live_bytes),
            *(self.epoch, self.frozen),
        ]

    def of(self, descriptor: PartitionDescriptor) -> PartitionDescriptor:
        """What the partition is that this is a snapshot of: it may have been split or merged."""
        epoch = self.epoch or descriptor.epoch
        return replace(descriptor, start=self.start, end=self.end, epoch=epoch)

    @staticmethod
    def from_wire(part: Sequence[Any]) -> Head:
        _, partition, index, term, start, end, top_ts, safepoint, old_versions, *rest = part
        live_bytes, epoch, frozen = (*rest, 0, None)[:3]
        return Head(
            partition=partition,
            index=index,
            term=term,
            start=start,
            end=end,
            top_ts=top_ts,
            safepoint=safepoint,
            old_versions=old_versions,
            live_bytes=live_bytes,
            epoch=epoch,
            frozen=None if frozen is None else (frozen[0], frozen[1]),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one family, keys rising."""

    family: str
    rows: Sequence[bytes]  # key, value, key, value, …


@dataclass(frozen=True, slots=True)
class End:
    """The last part. `rows` of all families: nothing is missing."""

    rows: int


Part = Head | Run | End


# ------------------------------------------------------------------ writing


def block(parts: Sequence[list[object]]) -> bytes:
    """`parts` in their wire form (`Head.to_wire`, [family, rows], `end_part`) as one block."""
    data: bytes = _pack([FORMAT, *parts])
    return data


def end_part(rows: int) -> list[object]:
    return [_END, rows]


def seal_chunk(place: Place, piece: bytes | memoryview, *, continues: bool) -> bytes:
    """A chunk with a piece of a block."""
    body = bytes([_CONTINUES if continues else 0]) + piece
    return _U32.pack(crc32(body, _seed(place))) + body


# ------------------------------------------------------------------ reading


def open_chunk(place: Place, chunk: bytes) -> tuple[memoryview, bool]:
    """The piece in a chunk, and whether its block goes on. Raises Corruption."""
    body = memoryview(chunk)[4:]
    if len(chunk) <= HEADER_BYTES or crc32(body, _seed(place)) != _U32.unpack_from(chunk)[0]:
        raise _damaged(place, "its checksum is wrong")
    return body[1:], bool(body[0] & _CONTINUES)


def read_block(place: Place, pieces: Sequence[memoryview]) -> list[Part]:
    """The parts of a whole block; `place` is its last chunk's. Raises Corruption."""
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    try:
        format_, *parts = msgpack.unpackb(data, use_list=False)
        if format_ != FORMAT:
            raise _damaged(place, f"it has format {format_}, this program reads {FORMAT}")
        return [_part(part) for part in parts]
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise _damaged(place, f"it is not understood: {error}") from error


def _part(part: Sequence[Any]) -> Part:
    kind = part[0]
    if kind == _HEAD:
        return Head.from_wire(part)
    if kind == _END:
        return End(part[1])
    if kind not in FAMILIES or len(part[1]) % 2:
        raise ValueError(f"a part {kind!r:.20} of {len(part[1])} items")
    return Run(kind, part[1])


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream was checked: what the next chunk must follow."""

    chunks: int = 0
    block_from: int = 0  # the chunk in which the block of the next one begins
    begun: bool = False
    family: int = 0  # in FAMILIES, of the last row
    key: bytes = b""  # of the last row
    rows: int = 0
    ended: bool = False

    def after(self, place: Place, parts: Sequence[Part] | None, to: Target) -> Progress:
        """The progress after the chunk at `place`, with which the block of `parts` ended (None:
        it goes on). Raises Corruption that names what is wrong.
        """
        if self.ended or place.number != self.chunks:
            raise _damaged(place, f"chunk {self.chunks} was expected")
        if parts is None:
            return replace(self, chunks=self.chunks + 1)
        now = replace(self, chunks=self.chunks + 1, block_from=self.chunks + 1)
        for part in parts:
            now = now._after_part(place, part, to)
        return now

    def _after_part(self, place: Place, part: Part, to: Target) -> Progress:
        match part:
            case Head():
                to.check_head(place, part, begun=self.begun)
                return replace(self, begun=True)
            case Run(family, rows):
                at = FAMILIES.index(family)
                last = self.key if at == self.family else b""
                if not self.begun or self.ended or at < self.family or not rows:
                    raise _damaged(place, f"rows of family {family} out of order")
                to.check_rows(place, part, last)
                return replace(self, family=at, key=rows[-2], rows=self.rows + len(rows) // 2)
            case End(rows):
                if not self.begun or self.ended or rows != self.rows:
                    raise _damaged(place, f"{self.rows} rows arrived, {rows} were sent")
                return replace(self, ended=True)


class Target:
    """What a stream may contain: the snapshot at (index, term) of this partition's range."""

    def __init__(self, descriptor: PartitionDescriptor, index: int, term: int) -> None:
        """`descriptor` is what it is here; the head says what it is there."""
        self.index, self.term = index, term
        self._become(descriptor)

    def _become(self, descriptor: PartitionDescriptor) -> None:
        self.descriptor = descriptor
        self._slices = {family: (low, high) for family, low, high in slices(descriptor)}

    def adopt(self, head: Head) -> None:
        """The range of the stream is that of its head."""
        self._become(head.of(self.descriptor))

    def place(self, number: int) -> Place:
        return Place(self.descriptor.id, self.index, self.term, number)

    def check_head(self, place: Place, head: Head, *, begun: bool) -> None:
        d = self.descriptor
        if begun:
            raise _damaged(place, "a second head")
        found = (head.partition, head.start, head.index, head.term)
        if found != (d.id, d.start, self.index, self.term):
            raise _damaged(
                place,
                f"it is of partition {head.partition} [{head.start[:32]!r}, {head.end[:32]!r}) at "
                f"index {head.index}, term {head.term}",
            )
        self.adopt(head)

    def check_rows(self, place: Place, run: Run, last: bytes) -> None:
        """Keys rise and lie in the range; every record is what was sealed under its key."""
        keys, values = run.rows[::2], run.rows[1::2]
        if (last and keys[0] <= last) or any(a >= b for a, b in pairwise(keys)):
            raise _damaged(place, f"keys of family {run.family} do not rise")
        stranger = self._stranger(run.family, keys)
        if stranger is not None:
            raise _damaged(
                place,
                f"key {stranger[:64]!r} of family {run.family} does not belong to the partition",
            )
        check_seals(run.family, keys, values)

    def _stranger(self, family: str, keys: Sequence[bytes]) -> bytes | None:
        """A key that is not the partition's."""
        if family == "gcq":
            return next((key for key in keys if not _is_due(self.descriptor, key)), None)
        if family == "meta":
            known = services(self.descriptor)
            return next((key for key in keys if key not in known), None)
        low, high = self._slices[family]
        if keys[0] < low:
            return keys[0]
        return keys[-1] if high and keys[-1] >= high else None


def _is_due(descriptor: PartitionDescriptor, row: bytes) -> bool:
    try:
        return is_due_here(descriptor, row)
    except ValueError:
        return False


def check_seals(family: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Raises Corruption that names the first key whose record is not what was sealed under it.
    Rows of gcq are all key and have no seal.
    """
    if family == "gcq":
        return
    for key, value in zip(keys, values, strict=True):
        if crc32(value, crc32(key)) != CRC_OK:
            raise corrupt(family, key)


def _seed(place: Place) -> int:
    return crc32(_SEED.pack(place.partition, place.index, place.term, place.number))


def _damaged(place: Place, why: str) -> Corruption:
    return Corruption(
        f"{place} is damaged: {why}; nothing of it was kept",
        details={"partition": place.partition, "chunk": place.number, "family": "staged"},
    )
