"""The stored form of a group: keys and values in the LogDB, byte by byte. All integers big-endian.

    entry       key    [group 8B][index 8B]
                value  [crc 4B][term 8B][kind 1B][payload]
    base        key    [group 8B]'b'
                value  [crc 4B][index 8B][term 8B][config index 8B][configuration, see
                rules/membership]
    announced   key    [group 8B]'s'
                value  as base: what the log restarts at once a snapshot is installed
    hard state  key    [group 8B]'h'
                value  [crc 4B][term 8B][vote 8B signed: the node voted for, -1 nobody]

`crc` is CRC-32 of all bytes after it, continued from the CRC-32 of the key: a good value under a
wrong key fails too. Indexes stay below 2^56, so the byte after the group is 00 for every entry, and
'b', 'h' and 's' sort after all entries.

`kind` of an entry: 00 data (payload: the caller's command), 01 no-op of a new term (empty), 02
configuration, 03 withheld: whatever a witness does not get (empty). The kinds are ours; 01 is also
what the library writes when a leader takes office.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from raft.rules import membership
from raft.rules.membership import Membership

Entry = tuple[bytes, int, int]
"""(kind byte + payload, index, term): the order that the library uses in its log and its messages.
"""

DATA, NOOP, CONFIG, WITHHELD = b"\x00", b"\x01", b"\x02", b"\x03"
DATA_KIND, NOOP_KIND, CONFIG_KIND, WITHHELD_KIND = DATA[0], NOOP[0], CONFIG[0], WITHHELD[0]
_KINDS = frozenset((DATA_KIND, NOOP_KIND, CONFIG_KIND, WITHHELD_KIND))
INDEX_MAX = (1 << 56) - 1
TERM_MAX = (1 << 62) - 1
GROUP_ID_MAX = (1 << 63) - 1
NOBODY = -1

pack_u64 = struct.Struct(">Q").pack
pack_u32 = struct.Struct(">I").pack
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_BASE = struct.Struct(">QQQ")
_HARD = struct.Struct(">Qq")
_HEAD_BYTES = 4 + 8


class BadRecord(ValueError):
    """The bytes under a key are not what was written there. Internal: callers say which group and
    index.
    """


@dataclass(frozen=True, slots=True)
class Base:
    """The committed, applied entry before the first stored one, and the configuration in force at
    it.
    """

    index: int
    term: int
    config: Membership


@dataclass(frozen=True, slots=True)
class HardState:
    """What a node must never forget: its term and whom it voted for in it."""

    term: int
    vote: int | None


# ------------------------------------------------------------------ keys


def prefix(group_id: int) -> bytes:
    return pack_u64(group_id)


def entry_key(group_id: int, index: int) -> bytes:
    return pack_u64(group_id) + pack_u64(index)


def base_key(group_id: int) -> bytes:
    return pack_u64(group_id) + b"b"


def announced_key(group_id: int) -> bytes:
    return pack_u64(group_id) + b"s"


def hard_key(group_id: int) -> bytes:
    return pack_u64(group_id) + b"h"


def group_of(key: bytes) -> int:
    (group_id,) = _U64.unpack_from(key)
    return int(group_id)


def index_of(key: bytes) -> int | None:
    """The index of an entry's key; None for other records."""
    if len(key) != 16:
        return None
    (index,) = _U64.unpack_from(key, 8)
    return int(index)


# ------------------------------------------------------------------ values


def _seal(key: bytes, body: bytes) -> bytes:
    return pack_u32(zlib.crc32(body, zlib.crc32(key))) + body


def _open(key: bytes, value: bytes) -> bytes:
    body = value[4:]
    if len(value) < 4 or _U32.unpack_from(value)[0] != zlib.crc32(body, zlib.crc32(key)):
        raise BadRecord(f"checksum of key {key.hex()} does not match its {len(value)} bytes")
    return body


def encode_entry(key: bytes, command: bytes, term: int) -> bytes:
    """`command` includes its kind byte. Written out instead of `_seal`, which would copy a large
    command twice.
    """
    head = pack_u64(term)
    return pack_u32(zlib.crc32(command, zlib.crc32(head, zlib.crc32(key)))) + head + command


def decode_entry(key: bytes, value: bytes) -> Entry:
    """Raises BadRecord."""
    body = _open(key, value)
    index = index_of(key)
    if index is None or len(body) < 9 or body[8] not in _KINDS:
        raise BadRecord(f"key {key.hex()} holds no entry")
    return body[8:], index, int(_U64.unpack_from(body)[0])


def encode_base(key: bytes, base: Base) -> bytes:
    return _seal(key, _BASE.pack(base.index, base.term, base.config.index) + base.config.encode())


def decode_base(key: bytes, value: bytes) -> Base:
    """Raises BadRecord."""
    body = _open(key, value)
    try:
        index, term, config_index = _BASE.unpack_from(body)
        return Base(index, term, membership.decode(config_index, body[_BASE.size :]))
    except (struct.error, ValueError) as error:
        raise BadRecord(f"key {key.hex()} holds no base record") from error


def encode_hard(key: bytes, hard: HardState) -> bytes:
    return _seal(key, _HARD.pack(hard.term, NOBODY if hard.vote is None else hard.vote))


def decode_hard(key: bytes, value: bytes) -> HardState:
    """Raises BadRecord."""
    body = _open(key, value)
    if len(body) != _HARD.size:
        raise BadRecord(f"key {key.hex()} holds no hard state")
    term, vote = _HARD.unpack(body)
    return HardState(term, None if vote == NOBODY else vote)
