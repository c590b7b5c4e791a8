"""Damage in RocksDB's own logs (the WAL, the manifest) that RocksDB takes for their end.

Both are read until a record is incomplete, because a power loss may tear the last one. So a flipped
bit in a length that makes a record reach beyond the file's end, or in a type that makes it a record
of an older file (logs can be recycled; ours are not), drops what follows without a word: synced
writes, or files of the database. So the heads of all records are looked at before it is opened; the
checksums are RocksDB's to verify, but for that of the last record: a torn one is a piece of a
record, a damaged one is whole, if only its length were what it was.

    file     blocks of 32 KiB; no record crosses their borders
    record   [crc 4][length 2][type 1][payload], little-endian. type: 1 whole, 2 first, 3 middle,
             4 last piece. crc: CRC-32C of type and payload, rotated and shifted
    zeros    at the end of a block too short for a head, and of a file (see storage.torn_tail)
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final

from kv.base.errors import Corruption

_BLOCK: Final = 1 << 15
_HEAD = struct.Struct("<IHB")
_TYPES: Final = frozenset((1, 2, 3, 4))
_BLOCKS_AT_ONCE: Final = 64


def check_logs(directory: Path) -> None:
    """Raises Corruption that names file and offset."""
    logs = [path for path in directory.glob("*.log") if path.stem.isdigit()]
    for path in (*sorted(logs), *directory.glob("MANIFEST-*")):
        _check(path)


def _check(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while data := file.read(_BLOCK * _BLOCKS_AT_ONCE):
            for start in range(0, len(data), _BLOCK):
                block = data[start : start + _BLOCK]
                place = _check_block(block, last=at + start + len(block) == size)
                if place is not None and not _only_zeros(file, data[start + place :]):
                    raise _damaged(path, at + start + place)
                if place is not None:
                    return
            at += len(data)


def _only_zeros(file: BinaryIO, rest: bytes) -> bool:
    """Whether nothing else follows in the file."""
    while rest:
        if rest.strip(b"\x00"):
            return False
        rest = file.read(_BLOCK * _BLOCKS_AT_ONCE)
    return True


def _check_block(block: bytes, *, last: bool) -> int | None:
    """Where something begins that is no record, None if there is no such place."""
    at, end, unpack, head = 0, len(block), _HEAD.unpack_from, _HEAD.size
    while at + head <= end:
        _, length, kind = unpack(block, at)
        if kind not in _TYPES:
            return at
        if at + head + length > end:
            return None if last and _torn(block, at) else at
        at += head + length
    return None


def _torn(block: bytes, at: int) -> bool:
    """Whether a record that reaches beyond the end is a piece: no part of what is there has its
    checksum.
    """
    stored = _HEAD.unpack_from(block, at)[0]
    crc = _TABLE[(0xFFFFFFFF ^ block[at + 6]) & 0xFF] ^ 0x00FFFFFF
    for place in range(at + _HEAD.size, len(block) + 1):
        if _masked(crc ^ 0xFFFFFFFF) == stored:
            return False
        if place < len(block):
            crc = _TABLE[(crc ^ block[place]) & 0xFF] ^ (crc >> 8)
    return True


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> list[int]:
    """Of CRC-32C (Castagnoli), which zlib does not have; needed for a block at most."""
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return found


_TABLE: Final = _table()


def _damaged(path: Path, offset: int) -> Corruption:
    return Corruption(
        f"{path} is damaged at offset {offset}: there is no record where one must be, and what "
        "follows would be lost. Nothing was changed",
        details={"file": path.name, "offset": offset},
    )
