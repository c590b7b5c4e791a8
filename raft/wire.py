"""What peers say to each other, byte by byte. Pure: bytes in, frames and messages out.

A frame is a header of nine bytes and a body:

    u32 LE  bytes of the body
    u32 LE  CRC-32 of the body, begun with the kind instead of 0
    u8      kind
    body

    kind  name      body
    1     HELLO     msgpack [magic, version, cluster, node, incarnation, nonce, target]
    2     PROOF     32 bytes (raft/handshake.py)
    3     REFUSED   msgpack [code, text]: the last frame of its sender
    4     MESSAGES  msgpack [[group id, message], …]
    5     PART      bytes of a MESSAGES body that is longer than a frame …
    6     LAST      … and its last bytes; other frames may come in between
    7     PING      8 bytes that PONG repeats
    8     PONG

A message is a flat map from strings to None, bool, int, float, str, bytes and sequences of them,
with "type" = its kind. Sequences arrive as tuples; only `entries` arrives as what it was sent as, a
list of (command, index, term).

Invariants
  * a frame is refused by its length before its body is kept, so a reader holds one frame and a
    large message in parts, both bounded, whatever the peer claims;
  * what comes out is plain data, checked so far that no field of the envelope has another type;
    no extension types, no code;
  * after a `Malformed` the stream has no meaning: the connection ends.

The checksum is there because TCP's misses about one damaged segment in 65,536, and a damaged entry
would be replicated. Left out: compression; encryption and integrity against an attacker on the wire
(TLS).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final
from zlib import crc32

import msgpack

from raft.records import GROUP_ID_MAX

HELLO: Final = 1
PROOF: Final = 2
REFUSED: Final = 3
MESSAGES: Final = 4
PART: Final = 5
LAST: Final = 6
PING: Final = 7
PONG: Final = 8

_HEADER = struct.Struct("<IIB")
HEADER_BYTES: Final = _HEADER.size
_ARRAY_32 = struct.Struct(">BI")
_ARRAY_16 = struct.Struct(">BH")
_FIX_ARRAY = [bytes((0x90 | count,)) for count in range(16)]
ROW_HEAD: Final = _FIX_ARRAY[1]
"""A MESSAGES body with one row begins with this."""
FRAME_BYTES_MAX: Final = 128 << 10
"""Body of one frame: what a heartbeat waits for at most when it comes after a part."""
FIELDS_MAX: Final = 64
"""Of one message. Ours have about ten."""

Row = tuple[int, dict[str, Any]]


class Malformed(ValueError):
    """Bytes that are not this protocol. Whoever sent them loses the connection."""


def frame(kind: int, body: bytes | memoryview) -> bytes:
    """One frame, ready to be written."""
    return _HEADER.pack(len(body), crc32(body, kind), kind) + body


# ------------------------------------------------------------------ messages

_pack = msgpack.Packer(use_bin_type=True).pack


def pack_message(group_id: int, message: Mapping[str, object]) -> bytes:
    """One row of a MESSAGES body. Raises TypeError or ValueError if a value is not plain data."""
    row: bytes = _pack((group_id, message))
    return row


def messages_body(rows: list[bytes]) -> bytes:
    """The body of a MESSAGES frame with these rows of `pack_message`."""
    count = len(rows)
    if count < 16:
        head = _FIX_ARRAY[count]
    elif count < 65536:
        head = _ARRAY_16.pack(0xDC, count)
    else:
        head = _ARRAY_32.pack(0xDD, count)
    return head + b"".join(rows)


def _no_ext(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code} of {len(data)} bytes")


def unpack(body: bytes | bytearray | memoryview) -> object:
    """Plain data, sequences as tuples. Raises Malformed."""
    try:
        return msgpack.unpackb(
            body,
            raw=False,
            use_list=False,
            strict_map_key=True,
            max_map_len=FIELDS_MAX,
            max_ext_len=0,
            ext_hook=_no_ext,
        )
    except (ValueError, TypeError) as error:  # every way msgpack refuses, bad map keys included
        reason = str(error) or type(error).__name__
        raise Malformed(f"{reason} in a body of {len(body)} bytes") from error


def read_messages(body: bytes | bytearray | memoryview) -> list[Row]:
    """The rows of a MESSAGES body, in order. Raises Malformed; then none of them counts."""
    rows = unpack(body)
    if type(rows) is not tuple:
        raise Malformed(f"messages must be a list, this is {type(rows).__name__}")
    for row in rows:
        if (
            type(row) is not tuple
            or len(row) != 2
            or type(row[0]) is not int
            or not 0 <= row[0] <= GROUP_ID_MAX
            or type(row[1]) is not dict
            or type(row[1].get("type")) is not str
        ):
            raise Malformed("a message must be [group id, {type: …}]")
        message = row[1]
        entries = message.get("entries")
        if entries is not None:
            message["entries"] = _entries(entries)
    return list(rows)


def _entries(entries: object) -> list[tuple[bytes, int, int]]:
    if type(entries) is not tuple:
        raise Malformed("entries must be a list")
    for entry in entries:
        if (
            type(entry) is not tuple
            or len(entry) != 3
            or type(entry[0]) is not bytes
            or type(entry[1]) is not int
            or type(entry[2]) is not int
        ):
            raise Malformed("an entry must be [command, index, term]")
    return list(entries)


# ------------------------------------------------------------------ frames of a stream


class FrameReader:
    """Cuts a stream into frames, in place: the socket writes into `room()`, then `received` says
    how much, and iterates over the frames that are complete.

    A body is a view of the buffer: it is gone when the iteration goes on.
    """

    __slots__ = ("_data", "_end", "_start", "body_bytes_max")

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max  # may be raised between two frames
        self._data = bytearray(2 * (body_bytes_max + HEADER_BYTES))
        self._start = self._end = 0

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Where to put the next bytes; never empty.

        The buffer is replaced, not resized, when it must grow: the event loop may still hold it.
        """
        capacity = 2 * (self.body_bytes_max + HEADER_BYTES)
        start, end = self._start, self._end
        if len(self._data) < capacity:
            larger = bytearray(capacity)
            larger[: end - start] = self._data[start:end]
            self._data, self._start, self._end = larger, 0, end - start
        elif start:
            self._data[: end - start] = self._data[start:end]
            self._start, self._end = 0, end - start
        return memoryview(self._data)[self._end :]

    def received(self, count: int) -> Iterator[tuple[int, memoryview]]:
        """(kind, body) of every frame that the `count` new bytes complete. Raises Malformed."""
        self._end += count
        data = memoryview(self._data)
        header_at, end = _HEADER.unpack_from, self._end
        at = self._start
        while end - at >= HEADER_BYTES:
            length, checksum, kind = header_at(data, at)
            if length > self.body_bytes_max:
                raise Malformed(f"frame of {length} bytes; the limit is {self.body_bytes_max} here")
            body_at = at + HEADER_BYTES
            if end - body_at < length:
                break
            at = body_at + length
            body = data[body_at:at]
            if crc32(body, kind) != checksum:
                raise Malformed(f"frame of kind {kind} and {length} bytes fails its checksum")
            self._start = at
            yield kind, body
        if self._start == end:
            self._start = self._end = 0
