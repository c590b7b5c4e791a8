"""The batch that fills, the log entry that it becomes, and who waits for it.

Bytes of an entry: [crc32 of the rest, little-endian 4][msgpack of the list]
    1               format; 3: the same, with packed chunk intents (kv/mvcc/packed_rows.py)
                    among others
    rows            [[key, cur record or nil = forget, hist key or nil, hist record or nil], …]
                    sorted by key, in evaluation order within a key
    others          [[family, key, value or nil = delete], …] in evaluation order
    top_ts          the highest commit timestamp among the rows
    safepoint       the new one, 0 = unchanged
    [old, live]     changes of the counters: old versions, bytes of newest records
A hist record longer than SHIP_OLD_BYTES_MAX is nil beside its hist key: every replica still has
that version in `cur` (or, for a key written twice, in the row before), so large values do not
travel twice. The last field are the changes of the partition's counters. Two families never depend
on each other's order; within one, order is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

import msgpack

from kv.base.errors import Corruption
from kv.base.limits import SHIP_OLD_BYTES_MAX
from kv.base.timestamps import MAX
from kv.base.wire_row import WireRow
from kv.mvcc.guards import At, Guard
from kv.mvcc.packed_rows import PackedKeys
from kv.mvcc.records import Lock, Row, TxnRecord
from kv.mvcc.view import Mutations
from kv.partition.chunk_spans import Apart

FORMAT: Final = 1
FORMAT_PACKED: Final = 3  # 2 is that of kv/partition/shapes.py
FORGOTTEN: Final = b""  # in `pending`: the key has no cur record any more
ROW_OVERHEAD: Final = 600  # of a plain put: its headers and the largest shipped old version
_MANY: Final = 64  # rows that are worth to be looked at column by column
OTHER_OVERHEAD: Final = 32  # msgpack's own bytes of a row, from above
_U32 = struct.Struct("<I")
_pack = msgpack.Packer(use_bin_type=True, buf_size=1 << 20).pack
_by_key = itemgetter(0)

Other = tuple[str, bytes, bytes | None]
Waiter = tuple[Any, WireRow]  # (connection, reply row)


class Entry:
    """One open, then sealed, batch of commands. Fields are filled by the machine; nothing is copied
    on the way.
    """

    __slots__ = (
        "apart",
        "batch",
        "bounds",
        "forgotten_bytes",
        "fresh_bytes",
        "fresh_rows",
        "gone",
        "guards",
        "laid",
        "live_bytes",
        "locks",
        "low_ts",
        "number",
        "old_versions",
        "others",
        "packed",
        "parked",
        "pending",
        "prewrites",
        "quiet",
        "replies",
        "rows",
        "safepoint",
        "scattered",
        "shape",
        "size",
        "top_ts",
        "txns",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: list[Row] = []
        self.others: list[Other] = []
        self.pending: dict[bytes, bytes] = {}  # key → newest record in here, FORGOTTEN = none
        self.locks: dict[bytes, Lock | None] = {}  # of single keys; None = removed
        # Chunk intents, by `id`: those that are new, and those of before that are none any more.
        self.laid: dict[int, Lock] = {}
        self.gone: dict[int, Lock] = {}
        self.apart = Apart()  # the new ones that overlap no other in here …
        self.scattered: dict[bytes, Lock] = {}  # … and the keys of those that do
        self.packed = False  # whether any of them is, or was, of packed rows
        self.txns: dict[tuple[bytes, int], TxnRecord | None] = {}
        self.guards: dict[At, Guard | None] = {}
        self.top_ts = 0
        self.bounds: dict[bytes, int] = {}  # intents of parallel commits → their bounds
        self.low_ts = MAX  # of the versions and bounds in here: a reader below it need not look
        self.safepoint = 0
        # an estimate from above of the bytes in the log, and of the old versions kept beside it
        self.size = 0
        self.fresh_rows = self.fresh_bytes = 0  # of `rows`: first versions that came in columns
        self.forgotten_bytes = 0
        self.old_versions = self.live_bytes = (
            0  # changes of the partition's counters, set by `seal`
        )
        self.replies: list[Waiter] = []  # of commands with an effect in here
        self.quiet: list[Waiter] = []  # of commands without one, which saw what is in here
        self.prewrites: list[WireRow] = []  # reply rows whose bound is settled when applied
        self.parked: list[Waiter] = []  # requests to look at again when this is applied
        self.batch: Any = None  # the engine's batch, once prepared
        self.shape: Any = None  # it changes the partition (kv.partition.shapes), and nothing else

    @property
    def empty(self) -> bool:
        return not self.rows and not self.others and not self.safepoint

    def forget(self) -> None:
        """Everybody in it has been answered."""
        self.replies, self.quiet, self.parked, self.prewrites = [], [], [], []

    @property
    def all_fresh(self) -> bool:
        """Whether all rows are first versions of their keys."""
        return 0 < self.fresh_rows == len(self.rows)

    def add(self, m: Mutations, size: int) -> None:
        """Take over the effects of one command; `size` is `size_of` them."""
        if m.fresh_rows and m.fresh_rows == len(m.rows):
            self._add_fresh(m)
        else:
            pending = self.pending
            for key, record, _, old in m.rows:
                pending[key] = FORGOTTEN if record is None else record
                if old is not None and len(old) > SHIP_OLD_BYTES_MAX:
                    size += len(old)  # not shipped, but it waits in memory until it is written
        self.rows += m.rows
        self.others += m.others
        if self.locks:
            self.locks.update(m.locks)
        elif m.locks:
            self.locks = m.locks  # those of the entry's first command with any: it is done
        if m.gone or m.laid:
            self._add_chunks(m)
        if m.txns:
            self.txns.update(m.txns)
        if m.guards:
            self.guards.update(m.guards)
        if m.safepoint > self.safepoint:
            self.safepoint = m.safepoint
        self.forgotten_bytes += m.forgotten_bytes
        self.size += size
        if m.top_ts:
            self.top_ts = max(self.top_ts, m.top_ts)
            self.low_ts = min(self.low_ts, m.top_ts)
        if m.bound_ts:
            self.bounds.update(dict.fromkeys(m.locks, m.bound_ts))
            self.low_ts = min(self.low_ts, m.bound_ts)

    def chunk_at(self, key: bytes) -> Lock | None:
        """The new chunk intent on a key."""
        return self.apart.get(key) or self.scattered.get(key)

    def has_any(self, keys: Sequence[bytes]) -> bool:
        """Whether it lays or removes an intent on any of these keys, which rise; a chunk that it
        removes does not count.
        """
        for table in (self.locks, self.scattered):
            if table and not table.keys().isdisjoint(keys):
                return True
        return self.apart.has_any(keys)

    def _add_fresh(self, m: Mutations) -> None:
        """First versions of many keys: nothing is asked of each."""
        for keys, records in m.fresh:
            self.pending.update(zip(keys, records, strict=True))
        self.fresh_rows += m.fresh_rows
        self.fresh_bytes += m.fresh_bytes

    def _add_chunks(self, m: Mutations) -> None:
        for lock in m.gone.values():
            if self.laid.pop(id(lock), None) is None:
                self.gone[id(lock)] = lock
            elif not self.apart.remove(lock):
                for key in lock.chunk:
                    del self.scattered[key]
        for lock in m.laid:
            self.laid[id(lock)] = lock
            self.packed = self.packed or isinstance(lock.chunk, PackedKeys)
            if not self.apart.add(lock):
                self.scattered.update(dict.fromkeys(lock.chunk, lock))

    def seal(self) -> bytes:
        """The log entry. Rows are put in key order: every memtable inserts them faster."""
        self.rows.sort(key=_by_key)
        shipped: Sequence[Row] = self.rows
        live = self.fresh_bytes - self.forgotten_bytes if self.all_fresh else -self.forgotten_bytes
        old = sum(value is None for family, _, value in self.others if family == "hist") * -1
        long = False
        for key, record, _, past in () if self.all_fresh else shipped:
            if past is not None:
                old += 1
                live -= len(past)
                long = long or len(past) > SHIP_OLD_BYTES_MAX
            elif record is not None:
                live += len(key)
            if record is not None:
                live += len(record)
        if long:
            shipped = [
                row if row[3] is None or len(row[3]) <= SHIP_OLD_BYTES_MAX else (*row[:3], None)
                for row in self.rows
            ]
        self.old_versions, self.live_bytes = old, live
        format_ = FORMAT_PACKED if self.packed else FORMAT
        body = _pack([format_, shipped, self.others, self.top_ts, self.safepoint, [old, live]])
        command: bytes = _U32.pack(crc32(body)) + body
        return command


def size_of(m: Mutations) -> int:
    """What the effects add to an entry, in bytes; a little more than that."""
    rows, size = m.rows, 0
    if m.fresh_rows == len(rows):
        rows, size = [], m.fresh_bytes + m.fresh_rows * OTHER_OVERHEAD
    elif len(rows) >= _MANY:
        *columns, olds = zip(*rows, strict=True)
        size = sum([sum(map(len, filter(None, one))) for one in columns])
        size += sum([min(len(old), SHIP_OLD_BYTES_MAX) for old in olds if old is not None])
        rows, size = [], size + len(rows) * OTHER_OVERHEAD
    for key, record, old_key, old in rows:
        size += len(key) + OTHER_OVERHEAD
        if record is not None:
            size += len(record)
        if old_key is not None:
            size += len(old_key)
            if old is not None:
                shipped = len(old)
                size += shipped if shipped < SHIP_OLD_BYTES_MAX else SHIP_OLD_BYTES_MAX
    for _, key, value in m.others:
        size += len(key) + (0 if value is None else len(value)) + OTHER_OVERHEAD
    return size


@dataclass(frozen=True, slots=True)
class Decoded:
    """A log entry as a replica reads it."""

    rows: Sequence[Row]
    others: Sequence[Other]
    top_ts: int
    safepoint: int
    old_versions: int
    live_bytes: int


def decode(command: bytes | memoryview, where: str) -> Decoded:
    """Raises Corruption (`where` names partition and index)."""
    body = memoryview(command)[4:]
    if len(command) < 5 or crc32(body) != _U32.unpack_from(command)[0]:
        raise Corruption(
            f"log entry of {where} fails its checksum; this replica stops there and serves "
            "nothing. Restore the node from a backup, or remove this replica and let the others "
            "rebuild it",
            details={"file": where},
        )
    version, rows, others, top_ts, safepoint, (old, live) = msgpack.unpackb(body, use_list=False)
    if version not in (FORMAT, FORMAT_PACKED):
        raise Corruption(
            f"log entry of {where} has format {version}, this program reads {FORMAT_PACKED}: "
            "start the version of Kvorum that wrote it",
            details={"file": where},
        )
    return Decoded(rows, others, top_ts, safepoint, old, live)
