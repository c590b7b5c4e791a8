"""Entries that change what a partition *is*: its range, or whether it serves. Pure.

Such an entry stands alone in the log: what was evaluated before it is applied before it, and
nothing is evaluated while it is on its way (kv/partition/machine.py). So it is made from the
applied state alone, says everything that a replica needs, and every replica does the same at the
same index.

Bytes of an entry: [crc32 of the rest, little-endian 4][msgpack of the list]
    2               format; kv/partition/entry.py has the other one
    kind            "split" | "freeze" | "thaw" | "merge" | "settle"
    epoch           the partition's epoch afterwards
    …
    split           key, descriptor of the new partition (its members are the founders of its
                    group), others (as in entry.py: intents and guards that straddle the key, cut
                    in two), share [old versions, live bytes] of the new one
    merge           descriptor of the partition above, [index, term] up to which it is taken in
    the others      nothing more

Split: the partition ends at `key` from now on, and the new one has the rest. No row moves: rows lie
by their keys, without a partition. An intent of many rows on both sides becomes two intents, a
guard of a range two guards.
Freeze, thaw, merge, settle: docs/decisions/0510, 0511. All are applied by kv/replica/reshape.py.

Left out: several cuts in one entry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from zlib import crc32

import msgpack

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, Corruption, Refused
from kv.base.ids import META_PARTITION
from kv.base.limits import RESHAPE_BYTES_MAX
from kv.mvcc.guards import Guard, GuardTable, encode_guard, guard_key
from kv.mvcc.records import Lock, encode_chunk
from kv.partition.entry import Other
from kv.partition.locks import LockMirror

FORMAT: Final = 2
SPLIT: Final = "split"
FREEZE: Final = "freeze"
THAW: Final = "thaw"
MERGE: Final = "merge"
SETTLE: Final = "settle"
BORN: Final = (1, 0)
"""(index, term) at which the group of a partition that was split off begins: no log has an entry
there, so who does not have the state from the split needs a snapshot."""
_U32 = struct.Struct("<I")
_pack = msgpack.Packer(use_bin_type=True).pack


@dataclass(frozen=True, slots=True)
class Split:
    key: bytes
    epoch: int
    new: PartitionDescriptor
    others: Sequence[Other]
    old_versions: int = 0  # share of the new one
    live_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Freeze:
    """Nobody is served from here on: everything up to this entry can be taken over by another."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Thaw:
    epoch: int


@dataclass(frozen=True, slots=True)
class Merge:
    epoch: int
    right: PartitionDescriptor
    index: int
    term: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Only the epoch rises: what was to happen at the one before cannot happen any more."""

    epoch: int


Shape = Split | Freeze | Thaw | Merge | Settle


def encode(shape: Shape) -> bytes:
    """The log entry."""
    row: list[object]
    match shape:
        case Split():
            row = [SPLIT, shape.epoch, shape.key, shape.new.to_wire(), list(shape.others)]
            row.append([shape.old_versions, shape.live_bytes])
        case Freeze():
            row = [FREEZE, shape.epoch]
        case Thaw():
            row = [THAW, shape.epoch]
        case Merge():
            row = [MERGE, shape.epoch, shape.right.to_wire(), [shape.index, shape.term]]
        case Settle():
            row = [SETTLE, shape.epoch]
    body = _pack([FORMAT, *row])
    return _U32.pack(crc32(body)) + bytes(body)


def is_shape(command: bytes | memoryview) -> bool:
    """Whether a log entry is of this format; its checksum is looked at by `decode`."""
    return len(command) > 5 and command[5] == FORMAT


def decode(command: bytes | memoryview, where: str) -> Shape:
    """Raises Corruption (`where` names partition and index)."""
    body = memoryview(command)[4:]
    if crc32(body) != _U32.unpack_from(command)[0]:
        raise Corruption(
            f"log entry of {where} fails its checksum; this replica stops there and serves "
            "nothing. Restore the node from a backup, or remove this replica and let the others "
            "rebuild it",
            details={"file": where},
        )
    match msgpack.unpackb(body, use_list=False):
        case [2, "split", epoch, key, new, others, (old, live)]:
            return Split(key, epoch, PartitionDescriptor.from_wire(new), others, old, live)
        case [2, "freeze", epoch]:
            return Freeze(epoch)
        case [2, "thaw", epoch]:
            return Thaw(epoch)
        case [2, "merge", epoch, right, (index, term)]:
            return Merge(epoch, PartitionDescriptor.from_wire(right), index, term)
        case [2, "settle", epoch]:
            return Settle(epoch)
        case _:
            raise Corruption(
                f"log entry of {where} changes the partition in a way that this program does not "
                "know: start the version of Kvorum that wrote it",
                details={"file": where},
            )


class Applied(Protocol):
    """What a split is made of: the applied state."""

    locks: LockMirror
    guards: GuardTable

    @property
    def old_versions(self) -> int: ...

    @property
    def live_bytes(self) -> int: ...

    def chunk_values(self, lock: Lock) -> Sequence[bytes | None]: ...

    def share_below(self, key: bytes) -> float: ...


def check_split(d: PartitionDescriptor, key: bytes) -> None:
    """Raises Refused: no partition can be cut there."""
    if d.id == META_PARTITION:
        raise Refused("the meta partition is not split", code="CANNOT_SPLIT")
    if not d.covers(key) or key == d.start:
        raise Refused(
            f"partition {d.id} [{d.start[:32]!r}, {d.end[:32]!r}) cannot be split at "
            f"{key[:64]!r}: give a key inside, above its first one",
            code="CANNOT_SPLIT",
            details={"key": key, "start": d.start, "end": d.end},
        )


def split(d: PartitionDescriptor, state: Applied, key: bytes, new: PartitionDescriptor) -> Split:
    """The entry that cuts `d` at `key`; `new` has the id and the founders of the new partition.
    Raises Refused, Busy (too much straddles the key now), Corruption.
    """
    check_split(d, key)
    others = [*_cut_chunks(state, key), *_cut_guards(state.guards, key)]
    size = sum(len(row[1]) + len(row[2] or b"") for row in others)
    if size > RESHAPE_BYTES_MAX:
        raise Busy(
            f"partition {d.id}: {size} bytes of intents lie on both sides of {key[:64]!r}, at most "
            f"{RESHAPE_BYTES_MAX}; split when the load that wrote them has ended, or elsewhere",
            details={"what": "straddling intents", "limit": RESHAPE_BYTES_MAX, "actual": size},
        )
    above = 1.0 - min(1.0, max(0.0, state.share_below(key)))
    return Split(
        key,
        d.epoch + 1,
        replace(new, start=key, end=d.end, epoch=1),
        others,
        int(state.old_versions * above),
        int(state.live_bytes * above),
    )


def _cut_chunks(state: Applied, key: bytes) -> list[Other]:
    straddling = {
        lock.chunk[0]: lock
        for lock in state.locks.chunks()
        if lock.chunk[0] < key <= lock.chunk[-1]
    }
    rows: list[Other] = []
    for first in sorted(straddling):
        lock = straddling[first]
        values = state.chunk_values(lock)
        at = next(i for i, one in enumerate(lock.chunk) if one >= key)
        for piece in (slice(None, at), slice(at, None)):
            half = lock._replace(chunk=tuple(lock.chunk[piece]))
            rows.append(("lock", half.chunk[0], encode_chunk(half, list(values[piece]))))
    return rows


def _cut_guards(guards: GuardTable, key: bytes) -> list[Other]:
    lefts: list[Guard] = []
    rights: dict[int, Guard] = {}
    straddling = [g for g in guards.by_at.values() if g.end is not None and g.start < key < g.past]
    for guard in sorted(straddling, key=lambda g: (g.start, g.start_ts)):
        lefts.append(replace(guard, end=key))
        right = replace(guard, start=key)
        other = rights.get(guard.start_ts) or guards.by_at.get((key, guard.start_ts))
        rights[guard.start_ts] = right if other is None else _both(right, other)
    return [
        ("guard", guard_key(one.start, one.start_ts), encode_guard(one))
        for one in [*lefts, *rights.values()]
    ]


def _both(a: Guard, b: Guard) -> Guard:
    """One guard that protects what both do; they begin at one key."""
    befores = [g.before_ts for g in (a, b) if g.before_ts]
    return replace(
        a if a.past >= b.past else b,
        before_ts=min(befores, default=0),
        min_commit_ts=max(a.min_commit_ts, b.min_commit_ts),
    )
