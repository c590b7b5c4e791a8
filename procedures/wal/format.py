"""The bytes of a log. Pure. All integers are little-endian.

    log    = head frame*
    head   = "KVPL" format:u16 0:u16 number:u64 first:u64 next_id:u64 next_slot:u64 oldest:u64
             created_ms:u64 salt:8 crc:u32
    frame  = "KVPF" bytes:u32 first:u64 count:u32 crc:u32 body       what one sync covers
    body   = (bytes:u32 record)*                                     `count` of them
    record = msgpack [puts, rows, removed, next_id, oldest]          one atomic change
             puts     [[id, version, record], …]         procedures (engine/records.py)
             rows     [[slot, version, key, value|nil], …]   nil: the slot is empty from now on
             removed  [id, …]                            procedures that are forgotten
             next_id  ids below are given out, 0 = as before
             oldest   logs below this number are not needed any more, 0 = as before

Records are numbered: `first` is the number of the first one of a frame, and the next of a head. The
numbers are consecutive over all logs, so that a hole is seen; they are also the versions of what a
record writes, but for forced updates, which repeat the version that a cell has. The crc32 of a
frame is over its head (without the crc) and body, seeded by the log's salt: bytes of a user's value
are never taken for a frame. A frame of no records says that the log was closed properly.

The head repeats what is needed of logs that are gone: numbers that must never be given out again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

FORMAT: Final = 1
HEAD: Final = struct.Struct("<4sHHQQQQQQ8s")
HEAD_BYTES: Final = HEAD.size + 4
FRAME: Final = struct.Struct("<4sIQI")
FRAME_BYTES: Final = FRAME.size + 4
FRAME_MAGIC: Final = b"KVPF"
_MAGIC: Final = b"KVPL"
_U32: Final = struct.Struct("<I")


class Head(NamedTuple):
    number: int
    first: int
    next_id: int
    next_slot: int
    oldest: int
    created_ms: int
    salt: bytes


class Put(msgspec.Struct, frozen=True, array_like=True):
    """The record of a procedure as it is from now on."""

    id: int
    version: int
    data: bytes


class RowPut(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is from now on; `value` None: there is none."""

    slot: int
    version: int
    key: bytes
    value: bytes | None


class LogRecord(msgspec.Struct, frozen=True, array_like=True):
    """One atomic change of the store."""

    puts: tuple[Put, ...] = ()
    rows: tuple[RowPut, ...] = ()
    removed: tuple[int, ...] = ()
    next_id: int = 0
    oldest: int = 0


class Frame(NamedTuple):
    first: int
    records: list[LogRecord]
    end: int  # offset of what follows


class Damage(Exception):
    """No whole frame begins here: the end of what was written, or damage."""

    def __init__(self, reason: str, records: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.records = records  # that it had, if its head can be read


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(LogRecord)


def encode_head(head: Head) -> bytes:
    number, first, next_id, next_slot, oldest, created_ms, salt = head
    body = HEAD.pack(_MAGIC, FORMAT, 0, number, first, next_id, next_slot, oldest, created_ms, salt)
    return body + _U32.pack(crc32(body))


def decode_head(data: bytes) -> Head | str:
    """The head of a log, or what is wrong with it."""
    if len(data) < HEAD_BYTES:
        return f"{len(data)} bytes, a head has {HEAD_BYTES}"
    magic, format, _, *fields = HEAD.unpack_from(data)
    if magic != _MAGIC:
        return "this is not a log of procedures"
    if crc32(data[: HEAD.size]) != _U32.unpack_from(data, HEAD.size)[0]:
        return "the head's checksum is wrong"
    if format != FORMAT:
        return f"format {format}, this program reads {FORMAT}: use the version that wrote it"
    return Head(*fields)


def encode_record(record: LogRecord) -> bytes:
    return _encoder.encode(record)


def encode_frame(salt: bytes, first: int, records: Iterable[bytes]) -> bytes:
    parts = []
    for record in records:
        parts += [_U32.pack(len(record)), record]
    body = b"".join(parts)
    head = FRAME.pack(FRAME_MAGIC, len(body), first, len(parts) // 2)
    return b"".join((head, _U32.pack(_crc(salt, head, body)), body))


def decode_frame(salt: bytes, data: bytes, at: int) -> Frame:
    """The frame at offset `at`. Raises Damage."""
    if len(data) - at < FRAME_BYTES:
        raise Damage(f"{len(data) - at} bytes at the end, a frame's head has {FRAME_BYTES}", None)
    magic, size, first, count = FRAME.unpack_from(data, at)
    if magic != FRAME_MAGIC:
        raise Damage("no frame begins here", None)
    start = at + FRAME_BYTES
    if len(data) - start < size:
        raise Damage(f"the frame has {len(data) - start} of its {size} bytes", count)
    body = memoryview(data)[start : start + size]
    crc = _U32.unpack_from(data, at + FRAME.size)[0]
    if _crc(salt, memoryview(data)[at : at + FRAME.size], body) != crc:
        raise Damage("the frame's checksum is wrong", count)
    records = []
    offset = 0
    while offset < size:
        (length,) = _U32.unpack_from(body, offset)
        offset += 4
        try:
            records.append(_decoder.decode(body[offset : offset + length]))
        except msgspec.MsgspecError as e:
            raise Damage(f"a record of the frame cannot be read: {e}", count) from e
        offset += length
    if len(records) != count:
        raise Damage(f"the frame has {len(records)} records and says {count}", count)
    return Frame(first, records, start + size)


def find_frame(salt: bytes, data: bytes, at: int) -> int | None:
    """The offset of the first whole frame at or after `at`."""
    while (at := data.find(FRAME_MAGIC, at)) >= 0:
        try:
            decode_frame(salt, data, at)
        except Damage:
            at += 1
        else:
            return at
    return None


def _crc(salt: bytes, head: bytes | memoryview, body: bytes | memoryview) -> int:
    return crc32(body, crc32(head, crc32(salt)))
