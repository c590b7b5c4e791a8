"""The files of a backup, byte by byte. Pure.

    "KVB1" [length of the head u32 BE] [head: msgpack map] [body: zlib of msgpack]

    head  {number, rows, raw, before}   `number` from 0; `raw` bytes of the body unpacked; `before`:
                                        SHA-256 of the whole file before, 32 zeros for the first
    body  [[key, value, version, expire_ms | 0], …]   storage keys, rising over all files

So the SHA-256 of the last file, which the manifest has, stands for every byte of every file and
their order: whatever is changed, lost or put from another backup is found. Values are as users
wrote them, so a backup outlives changes of how records are stored.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgpack

from kv.base.errors import Corruption
from kv.base.limits import TRANSFER_BLOCK_RAW_MAX
from procedures.engine.plain_data import Plain

Row = tuple[bytes, bytes, int, int]
"""(storage key, value, version, when it expires in ms or 0)"""
MAGIC: Final = b"KVB1"
NOTHING_BEFORE: Final = bytes(32)
_LENGTH: Final = struct.Struct(">I")
_HEAD_BYTES_MAX: Final = 4_096
_LEVEL: Final = 1  # of zlib: the network, not the file, is what costs


@dataclass(frozen=True, slots=True)
class Block:
    """One file, checked."""

    number: int
    before: bytes
    rows: list[Row]
    digest: bytes
    """SHA-256 of the whole file."""


def file_name(number: int) -> str:
    return f"data/{number:08d}.kvb"


def pack(number: int, before: bytes, rows: Sequence[Row]) -> tuple[bytes, bytes]:
    """The bytes of a file, and their SHA-256."""
    raw: bytes = msgpack.packb(rows)
    head: bytes = msgpack.packb(
        {"number": number, "rows": len(rows), "raw": len(raw), "before": before}
    )
    data = b"".join((MAGIC, _LENGTH.pack(len(head)), head, zlib.compress(raw, _LEVEL)))
    return data, hashlib.sha256(data).digest()


def unpack(data: bytes, where: str, *, number: int, before: bytes) -> Block:
    """The file that must be this one. Raises Corruption that names it."""
    start = len(MAGIC) + _LENGTH.size
    try:
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("it does not begin as one")
        (length,) = _LENGTH.unpack_from(data, len(MAGIC))
        if length > _HEAD_BYTES_MAX:
            raise ValueError("its head is too long")
        head: Plain = msgpack.unpackb(data[start : start + length])
        if head["raw"] > TRANSFER_BLOCK_RAW_MAX:
            raise ValueError(f"it says that it unpacks to {head['raw']} bytes")
        inflate = zlib.decompressobj()
        raw = inflate.decompress(data[start + length :], head["raw"])
        if len(raw) != head["raw"] or (not inflate.eof and inflate.decompress(b"", 1)):
            raise ValueError("its length is wrong")
        rows = [
            (bytes(key), bytes(value), int(version), int(expire))
            for key, value, version, expire in msgpack.unpackb(raw)
        ]
        if len(rows) != head["rows"]:
            raise ValueError("it lacks rows")
    except (
        ValueError,
        KeyError,
        TypeError,
        struct.error,
        zlib.error,
        msgpack.UnpackException,
    ) as e:
        raise Corruption(f"{where} is no intact file of a backup: {e}") from e
    if head["number"] != number or head["before"] != before:
        raise Corruption(
            f"{where} is not the file that belongs here: file {number} of this backup is missing, "
            "or was changed, or another backup's is in its place"
        )
    return Block(number, before, rows, hashlib.sha256(data).digest())
