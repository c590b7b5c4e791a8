"""The bytes of every versioned record, big-endian, each sealed by its storage key
(kv.base.checksum: 4 bytes at the end).

    cur     key
            [commit_ts 8][flags 1][expire_ms 8 if HAS_TTL][payload]
    hist    esc(key) 00 01 [~commit_ts 8]
            [superseded_ts 8][flags 1][expire_ms 8 if HAS_TTL][payload]
    lock    key
            [start_ts 8][kind 1][lock_ttl_ms 4][anchor length 2][anchor]
            [user length 2][user if kind & LOCK_HAS_USER]
            [value_ttl_ms 8 if kind & LOCK_HAS_TTL]
            [min_commit_ts 8 if kind & LOCK_HAS_BOUND][payload]
            or, of a chunk intent, under its first key and with kind & CHUNK:
            [start_ts 8][kind 1][lock_ttl_ms 4][anchor length 2][anchor]
            [user length 2][user if kind & LOCK_HAS_USER]
            [msgpack [[key, …], [value | nil = delete, …]]]
    txn     esc(anchor) 00 01 [start_ts 8]
            [status 1][commit_ts 8][min_commit_ts 8][heartbeat_ms 8][ttl_ms 4]
            and, if it has an owner, parts or a user: [msgpack [owner, [[key, …], …], user?]]
    gcq     [due_ts 8][b"E" or b"T"][key]   or   [due_ts 8][b"X" or b"F"][key of the txn record]
            empty: the key is all of it, so there is nothing to seal

`hist` keeps the body of `cur` from its flags on, so that superseding a record is two slices and no
parsing; ~commit_ts puts the newest version first. `kind` of a lock is OP_PUT, OP_DELETE,
OP_TOMBSTONE or OP_CHECK. lock_ttl_ms counts from the physical part of start_ts. The time to live of
an intent's value stays relative, because its commit timestamp is not known yet; that of a check is
the strength of a row lock (kv.base.strengths), and its payload GOING if what it locks is about to
go.

Due times: E the moment of expiry, T the commit timestamp of the tombstone, X a fixed distance from
start_ts (`x_due`), so that the record of a transaction is one seek away from its id alone. F is the
same for a fence (`kv.mvcc.recover`): a txn record of status FENCED under the key that it closes,
which `find` must not take for the transaction's own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from operator import add
from typing import Final, NamedTuple
from zlib import crc32

import msgpack

from kv.base.checksum import CRC_BYTES, CRC_OK, pack_crc, seal
from kv.base.errors import Corruption
from kv.base.keys import TERMINATOR, escape, escape_open, from_u64, u64, unescape
from kv.base.limits import TXN_LIFETIME_MS_MAX, TXN_STATUS_RETENTION_MS
from kv.base.methods import OP_CHECK, OP_PUT
from kv.base.timestamps import LOGICAL_BITS, MAX, compose
from kv.mvcc.packed_rows import PackedKeys, unpack_values

TOMBSTONE: Final = 1
HAS_TTL: Final = 2
LOCK_HAS_USER: Final = 0x08
LOCK_HAS_TTL: Final = 0x10
CHUNK: Final = 0x20
LOCK_HAS_BOUND: Final = 0x40
PACKED: Final = 0x80  # a chunk whose rows lie in it as they were sent (kv/mvcc/packed_rows.py)
KIND_MASK: Final = 0x07
GOING: Final = b"\x01"
"""The payload of a row lock: what is there is about to go. Older versions read over it."""
EXPIRY: Final = b"E"
TOMB: Final = b"T"
TXN: Final = b"X"
FENCE: Final = b"F"
RECORDS: Final = frozenset({TXN, FENCE})  # kinds of gcq rows that name a txn record
X_DISTANCE: Final = (TXN_LIFETIME_MS_MAX + TXN_STATUS_RETENTION_MS) << LOGICAL_BITS

_HEAD = struct.Struct(">QB")
_HEAD_TTL = struct.Struct(">QBQ")
_LOCK = struct.Struct(">QBIH")
_USER = struct.Struct(">H")
_TXN = struct.Struct(">BQQQI")
_ROWS = struct.Struct(
    ">HIHI"
)  # of a packed chunk: prefix bytes, rows, lengths of last key and keys
_lock, _txn = _LOCK.pack, _TXN.pack
_head = cur_head = _HEAD.pack  # of a record without a time to live: commit_ts, flags
_KIND_AT: Final = 8  # of a lock record
_pack = msgpack.Packer(use_bin_type=True).pack

Parts = tuple[tuple[bytes, ...], ...]
"""The keys of a transaction's intents as they were sent, a tuple for each part."""
PutRow = tuple[bytes, bytes, bytes | None, bytes | None]
"""The `Row` of a put: there is a record."""
Row = tuple[bytes, bytes | None, bytes | None, bytes | None]
"""A change of one key: (key, new cur record or None = forget it, hist key or None, hist record or
None).
"""


class Lock(NamedTuple):  # as TxnRecord a tuple: a frozen dataclass takes four times as long to make
    """A write intent. `payload` is None for a delete, for a check (but GOING), and in a mirror that
    left it on disk (`LOCK_INLINE_BYTES_MAX`).
    """

    start_ts: int
    kind: int
    ttl_ms: int  # counted from the physical part of start_ts
    anchor: bytes
    value_ttl_ms: int
    payload: bytes | None
    chunk: Sequence[bytes] = ()
    """The keys of a chunk intent, rising: one record under the first of them locks them all, and
    they share this object. Its values stay in the record (`decode_chunk`). Perhaps PackedKeys."""
    min_commit_ts: int = 0
    """Of a parallel commit: the transaction commits at or above it, at the highest bound of its
    intents if nobody flips it. 0 = not said here."""
    user: str = ""  # whose it is (kv/base/intents.py)


class TxnRecord(NamedTuple):
    """What is known of a transaction; absent fields are 0. A PENDING one may only commit at or
    above min_commit_ts.
    """

    status: int
    commit_ts: int = 0
    min_commit_ts: int = 0
    heartbeat_ms: int = 0
    ttl_ms: int = 0
    owner: str = ""  # for people
    parts: Parts = ()
    """Of a STAGING one: the keys of its intents, as they were sent, a partition each."""
    user: str = ""  # whose it is (kv/base/intents.py)


def corrupt(family: str, key: bytes) -> Corruption:
    """The error about a record that is not what was written."""
    return Corruption(
        f"record of key {key[:128]!r} in family {family} fails its checksum; nothing was returned "
        "or changed. Restore the key from a backup or another replica",
        details={"key": key, "family": family},
    )


def verified(family: str, key: bytes, record: bytes) -> bytes:
    """`record`, if it is what was written under `key`. Raises Corruption."""
    if crc32(record, crc32(key)) != CRC_OK:
        raise corrupt(family, key)
    return record


# -- cur and hist


def hist_key(key: bytes, commit_ts: int) -> bytes:
    return escape(key) + u64(MAX - commit_ts)


def hist_range(start: bytes, end: bytes) -> tuple[bytes, bytes]:
    """Old versions (and, the same way, transaction records) of the keys in `[start, end)`; end b""
    = no bound.
    """
    return escape_open(start), escape_open(end)


def put_row(key: bytes, value: bytes, commit_ts: int, old: bytes | None) -> PutRow:
    """The row of a put without a time to live over `old` (the sealed cur record or None). The hot
    path: nothing is parsed.
    """
    body = _head(commit_ts, 0) + value
    record = body + pack_crc(crc32(body, crc32(key)))
    if old is None:
        return (key, record, None, None)
    old_key = (
        key.replace(b"\x00", b"\x00\xff") + TERMINATOR + u64(MAX - int.from_bytes(old[:8], "big"))
    )
    body = record[:8] + old[8:-4]
    return (key, record, old_key, body + pack_crc(crc32(body, crc32(old_key))))


def replacing(
    keys: Sequence[bytes], values: Sequence[bytes] | None, olds: Sequence[bytes], commit_ts: int
) -> Iterator[Row]:
    """`cur_row` of many keys over records that are there; `values` None: they go. Each step is one
    pass over all of them, in C.
    """
    head = _head(commit_ts, TOMBSTONE if values is None else 0)
    bodies = [head] * len(keys) if values is None else list(map(head.__add__, values))
    places = {old: TERMINATOR + u64(MAX - from_u64(old)) for old in {old[:8] for old in olds}}
    old_keys = [
        key.replace(b"\x00", b"\x00\xff") + places[old[:8]]
        for key, old in zip(keys, olds, strict=True)
    ]
    newest = head[:8]
    old_bodies = [newest + old[8:-CRC_BYTES] for old in olds]
    return zip(keys, _sealed(keys, bodies), old_keys, _sealed(old_keys, old_bodies), strict=True)


def _sealed(keys: Sequence[bytes], bodies: Sequence[bytes]) -> Iterator[bytes]:
    return map(add, bodies, map(pack_crc, map(crc32, bodies, map(crc32, keys))))


def cur_row(
    key: bytes, value: bytes | None, commit_ts: int, old: bytes | None, *, expire_ms: int = 0
) -> Row:
    """The row of any new version; value None = tombstone, expire_ms 0 = for ever."""
    if value is None:
        body = _head(commit_ts, TOMBSTONE)
    elif expire_ms:
        body = _HEAD_TTL.pack(commit_ts, HAS_TTL, expire_ms) + value
    else:
        return put_row(key, value, commit_ts, old)
    record = seal(key, body)
    if old is None:
        return (key, record, None, None)
    old_key = hist_key(key, from_u64(old))
    return (key, record, old_key, seal(old_key, body[:8] + old[8:-CRC_BYTES]))


def expiry_of(record: bytes) -> int:
    """expire_ms of a sealed cur or hist record, 0 = never."""
    return from_u64(record, 9) if record[8] & HAS_TTL else 0


def is_tombstone(record: bytes) -> bool:
    return bool(record[8] & TOMBSTONE)


def payload_at(record: bytes, read_ms: int) -> bytes | None:
    """The value in a sealed cur or hist record for a reader whose time is `read_ms`; None = deleted
    or expired.
    """
    flags = record[8]
    if not flags:
        return record[9:-CRC_BYTES]
    if flags & TOMBSTONE or from_u64(record, 9) <= read_ms:
        return None
    return record[17:-CRC_BYTES]


# -- lock


def encode_lock(key: bytes, lock: Lock) -> bytes:
    start_ts, kind, ttl_ms, anchor, value_ttl_ms, payload, _, min_commit_ts, user = lock
    tail = b""
    if user:
        kind |= LOCK_HAS_USER
        tail = _sized(user)
    if value_ttl_ms:
        kind |= LOCK_HAS_TTL
        tail += u64(value_ttl_ms)
    if min_commit_ts:
        kind |= LOCK_HAS_BOUND
        tail += u64(min_commit_ts)
    body = _lock(start_ts, kind, ttl_ms, len(anchor)) + anchor + tail + (payload or b"")
    return body + pack_crc(crc32(body, crc32(key)))


def decode_lock(key: bytes, record: bytes, *, inline_bytes_max: int | None = None) -> Lock:
    """The intent in a sealed record; a payload longer than `inline_bytes_max` is left out. Raises
    Corruption.
    """
    verified("lock", key, record)
    start_ts, kind, ttl_ms, n = _LOCK.unpack_from(record)
    at = _LOCK.size + n
    anchor = record[_LOCK.size : at]
    value_ttl_ms = min_commit_ts = 0
    user = ""
    if kind & LOCK_HAS_USER:
        user, at = _user_at(record, at)
    if kind & LOCK_HAS_TTL:
        value_ttl_ms = from_u64(record, at)
        at += 8
    if kind & LOCK_HAS_BOUND:
        min_commit_ts = from_u64(record, at)
        at += 8
    kind &= KIND_MASK
    payload: bytes | None = None
    if kind == OP_CHECK:
        payload = record[at:-CRC_BYTES] or None
    elif kind == OP_PUT and (
        inline_bytes_max is None or len(record) - CRC_BYTES - at <= inline_bytes_max
    ):
        payload = record[at:-CRC_BYTES]
    return Lock(start_ts, kind, ttl_ms, anchor, value_ttl_ms, payload, (), min_commit_ts, user)


def encode_chunk(lock: Lock, values: Sequence[bytes | None]) -> bytes:
    """The record of a chunk intent, under `lock.chunk[0]`."""
    return seal(lock.chunk[0], _chunk_head(lock, CHUNK) + _pack([lock.chunk, values]))


def encode_packed(lock: Lock, keys: PackedKeys, values: bytes) -> bytes:
    """The same of packed rows: the values lie after the keys. They are copied once."""
    head = _chunk_head(lock, CHUNK | PACKED)
    head += _ROWS.pack(keys.prefix_bytes, keys.rows, len(keys.last), len(keys.packed)) + keys.last
    crc = crc32(values, crc32(keys.packed, crc32(head, crc32(keys.first))))
    return b"".join((head, keys.packed, values, pack_crc(crc)))


def _chunk_head(lock: Lock, flags: int) -> bytes:
    if lock.user:
        flags |= LOCK_HAS_USER
    head = _LOCK.pack(lock.start_ts, lock.kind | flags, lock.ttl_ms, len(lock.anchor)) + lock.anchor
    return head + _sized(lock.user) if lock.user else head


def _sized(user: str) -> bytes:
    said = user.encode()
    return _USER.pack(len(said)) + said


def _user_at(record: bytes, at: int) -> tuple[str, int]:
    """And where it ends."""
    end = at + _USER.size + _USER.unpack_from(record, at)[0]
    return record[at + _USER.size : end].decode(), end


def decode_chunk(key: bytes, record: bytes) -> tuple[Lock, Sequence[bytes | None]]:
    """The intent in the record of a chunk, and its values. Raises Corruption."""
    lock, at = _chunk(key, record)
    rest = memoryview(record)[at:-CRC_BYTES]
    if isinstance(lock.chunk, PackedKeys):
        return lock, unpack_values(rest)
    keys, values = msgpack.unpackb(rest, use_list=False)
    return lock._replace(chunk=keys), values


def decode_chunk_lock(key: bytes, record: bytes) -> Lock:
    """The intent alone. Raises Corruption."""
    lock, _ = _chunk(key, record)
    return lock if lock.chunk else decode_chunk(key, record)[0]


def _chunk(key: bytes, record: bytes) -> tuple[Lock, int]:
    """The intent, with its keys if they are packed, and where what follows begins."""
    verified("lock", key, record)
    start_ts, kind, ttl_ms, n = _LOCK.unpack_from(record)
    at = _LOCK.size + n
    anchor = record[_LOCK.size : at]
    user = ""
    if kind & LOCK_HAS_USER:
        user, at = _user_at(record, at)
    keys: Sequence[bytes] = ()
    if kind & PACKED:
        prefix_bytes, rows, last_bytes, keys_bytes = _ROWS.unpack_from(record, at)
        at += _ROWS.size
        last = record[at : at + last_bytes]
        at += last_bytes
        keys = PackedKeys(key, prefix_bytes, rows, record[at : at + keys_bytes], last)
        at += keys_bytes
    return Lock(start_ts, kind & KIND_MASK, ttl_ms, anchor, 0, None, keys, 0, user), at


def is_chunk(record: bytes) -> bool:
    """Whether a sealed lock record is that of a chunk intent."""
    return len(record) > _KIND_AT and bool(record[_KIND_AT] & CHUNK)


# -- txn


def txn_key(anchor: bytes, start_ts: int) -> bytes:
    return anchor.replace(b"\x00", b"\x00\xff") + TERMINATOR + u64(start_ts)  # as `escape`


def parse_txn_key(key: bytes) -> tuple[bytes, int]:
    """(anchor, start_ts) of a transaction record's key. Raises ValueError for anything else."""
    anchor, at = unescape(key)
    if len(key) != at + 8:
        raise ValueError(f"transaction record key of {len(key)} bytes, expected {at + 8}")
    return anchor, from_u64(key, at)


def encode_txn(key: bytes, record: TxnRecord) -> bytes:
    status, commit_ts, min_commit_ts, heartbeat_ms, ttl_ms, owner, parts, user = record
    body = _txn(status, commit_ts, min_commit_ts, heartbeat_ms, ttl_ms)
    if user:
        body += _pack([owner, parts, user])
    elif owner or parts:
        body += _pack([owner, parts])
    return body + pack_crc(crc32(body, crc32(key)))


def decode_txn(key: bytes, record: bytes) -> TxnRecord:
    """Raises Corruption."""
    verified("txn", key, record)
    status, commit_ts, min_commit_ts, heartbeat_ms, ttl_ms = _TXN.unpack_from(record)
    owner = user = ""
    parts: Parts = ()
    if len(record) > _TXN.size + CRC_BYTES:
        tail = memoryview(record)[_TXN.size : -CRC_BYTES]
        owner, parts, *more = msgpack.unpackb(tail, use_list=False)
        user = more[0] if more else ""
    return TxnRecord(
        status=status,
        commit_ts=commit_ts,
        min_commit_ts=min_commit_ts,
        heartbeat_ms=heartbeat_ms,
        ttl_ms=ttl_ms,
        owner=owner,
        parts=parts,
        user=user,
    )


# -- gcq


def x_due(start_ts: int) -> int:
    """When the record of a transaction may be forgotten: its longest life and the retention of its
    outcome, from its start.
    """
    due = start_ts + X_DISTANCE
    return due if due < MAX else MAX


def gcq_txn(anchor: bytes, start_ts: int, kind: bytes = TXN) -> bytes:
    return gcq_of(txn_key(anchor, start_ts), start_ts, kind)


def gcq_of(record_key: bytes, start_ts: int, kind: bytes = TXN) -> bytes:
    """The row for the record at this key of family txn."""
    return u64(x_due(start_ts)) + kind + record_key


def gcq_expiry(key: bytes, expire_ms: int) -> bytes:
    return u64(compose(expire_ms)) + EXPIRY + key


def gcq_tomb(key: bytes, commit_ts: int) -> bytes:
    return u64(commit_ts) + TOMB + key


def find_range(start_ts: int) -> tuple[bytes, bytes]:
    """The slice of gcq that holds the row of this transaction, if there is one (`parse_find`)."""
    due = u64(x_due(start_ts))
    return due + TXN, due + b"Y"


def parse_find(gcq_key: bytes, start_ts: int) -> bytes | None:
    """The anchor in an X row, if the row is that of `start_ts`."""
    anchor, found = parse_txn_key(gcq_key[9:])
    return anchor if found == start_ts else None
