"""Keys as bytes whose order is the order of what they encode.

A storage key is `[table_id u32 BE][user key]`; tables below FIRST_USER_TABLE belong to the system
and live in the meta range (partition 1). Composite keys escape: `00` becomes `00 FF`, the end is
`00 01`, so that order(encode(x)) = order(x) and a prefix never runs into its neighbour (measured
against memcomparable groups: 4 times faster).
"""

from __future__ import annotations

import struct
from typing import Final

from kv.base.errors import KvorumError
from kv.base.ids import FIRST_PRIVATE_TABLE, FIRST_USER_TABLE, TableId

TERMINATOR: Final = b"\x00\x01"
MAX64: Final = (1 << 64) - 1
_SHOWN_BYTES: Final = 64  # of a key in a message; longer ones are cut there
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
u32 = _U32.pack
u64 = _U64.pack


def from_u64(data: bytes | memoryview, offset: int = 0) -> int:
    """Eight big-endian bytes at `offset`."""
    value: int = _U64.unpack_from(data, offset)[0]
    return value


def escape(raw: bytes) -> bytes:
    """`raw` escaped and terminated: may be followed by further components."""
    return (raw.replace(b"\x00", b"\x00\xff") if b"\x00" in raw else raw) + TERMINATOR


def escape_open(raw: bytes) -> bytes:
    """`raw` escaped without its end: the lower bound of every key that starts with `raw`."""
    return raw.replace(b"\x00", b"\x00\xff")


def unescape(data: bytes, start: int = 0) -> tuple[bytes, int]:
    """The component that begins at `start` and the offset after its end. Raises ValueError if it
    has no end.
    """
    at = start
    while True:
        at = data.find(b"\x00", at)
        if at < 0 or at + 1 >= len(data):
            raise ValueError(f"key component without its end at offset {start} of {data[:64]!r}")
        if data[at + 1] == 0x01:
            return data[start:at].replace(b"\x00\xff", b"\x00"), at + 2
        if data[at + 1] != 0xFF:
            raise ValueError(f"bad escape at offset {at} of {data[:64]!r}")
        at += 2


def successor(prefix: bytes) -> bytes:
    """The smallest key above every key with `prefix`; b"" (no bound) if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b""


def table_prefix(table: TableId | int) -> bytes:
    """The first four bytes of every key of a table."""
    return u32(table)


def table_range(table: TableId | int) -> tuple[bytes, bytes]:
    """`[start, end)` of a table's keys."""
    return u32(table), u32(table + 1)


META_RANGE: Final = (b"", u32(FIRST_USER_TABLE))
PRIVATE: Final = u32(FIRST_PRIVATE_TABLE)
"""Keys from here on are of rows that only one session has."""


def show_user_key(error: KvorumError, prefix: bytes, namespace: str, table: str) -> None:
    """Put a user's terms into an error that names a storage key of this table: `details` get `ns`,
    `table` and the user's key, and the message shows these. Other errors stay as they are.
    """
    key = error.details.get("key")
    if not isinstance(key, bytes) or not key.startswith(prefix):
        return
    mine = key[len(prefix) :]
    error.details |= {"ns": namespace, "table": table, "key": mine}
    shown = f"{mine[:_SHOWN_BYTES]!r} of {namespace}.{table}"
    error.message = error.message.replace(repr(key[:_SHOWN_BYTES]), shown)
    error.args = (error.message,)
