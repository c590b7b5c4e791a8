"""The partition map, and making the partitions of a table.

    PARTITIONS   esc(start key) → sealed msgpack [1, *descriptor]
                 (PartitionDescriptor.to_wire)
    COUNTERS     esc("partition") → the next partition id; 1 is the meta partition

A table with n split keys has n + 1 partitions that cover its storage keys `[u32 id, u32 id + 1)`.
The map's rows are written in the transaction that also keeps the descriptors in the procedure's
state; the replicas are made and removed by a node's replica manager, which is idempotent by id.

Left out here: placement on several nodes (voters are the one node that is given), splitting,
merging and moving.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec

from kv.base import limits, system
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.ids import META_PARTITION, NodeId, PartitionId, TableId
from kv.base.keys import escape, escape_open, table_prefix, table_range

FORMAT: Final = 1
COUNTER_PARTITION: Final = "partition"
FIRST_PARTITION: Final = META_PARTITION + 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Replicas(Protocol):
    """What is needed of a node's replica manager (kv.replica.manager). Both are idempotent."""

    async def create(self, descriptor: PartitionDescriptor) -> None: ...

    async def drop(self, partition: PartitionId) -> None: ...


class Maker(Protocol):
    """Makes and removes partitions wherever they are placed: here (`Partitions`), or on several
    nodes (kvorum/placement.py). Both methods may be repeated.
    """

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """Where new partitions are placed."""
        ...

    async def create(self, descriptors: Sequence[PartitionDescriptor]) -> None: ...

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None: ...


class Page(Protocol):
    @property
    def items(self) -> Sequence[tuple[bytes, bytes, int]]: ...
    @property
    def resume(self) -> bytes | None: ...


class Txn(Protocol):
    """What is needed of a transaction."""

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page: ...
    def put(self, key: bytes, value: bytes) -> object: ...
    def delete(self, key: bytes) -> object: ...


class Partitions:
    """Makes and removes partitions on one node."""

    def __init__(self, replicas: Replicas, node: NodeId) -> None:
        self._replicas = replicas
        self._voters = (node,)

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """That one node."""
        return self._voters

    async def create(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Replicas of all of them; those that exist stay as they are."""
        for descriptor in descriptors:
            await self._replicas.create(descriptor)

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Remove replicas with their data, the last one first; those that are gone stay gone."""
        for descriptor in reversed(descriptors):
            await self._replicas.drop(descriptor.id)


def checked_split_keys(raw: object) -> list[bytes]:
    """User keys (bytes, or text as UTF-8) at which a new table is cut, in rising order.

    Raises InvalidArgument or TooLarge that names the key and its place.
    """
    if not isinstance(raw, list | tuple):
        raise InvalidArgument(f"split_keys must be a list of keys, got {raw!r:.80}")
    if len(raw) > limits.SPLIT_KEYS_MAX:
        raise TooLarge(
            f"{len(raw)} split keys, the limit is {limits.SPLIT_KEYS_MAX}; partitions split by "
            "themselves when they grow",
            details={"what": "split keys", "limit": limits.SPLIT_KEYS_MAX, "actual": len(raw)},
        )
    keys: list[bytes] = []
    for i, item in enumerate(raw):
        key = item.encode() if isinstance(item, str) else item
        if not isinstance(key, bytes) or not 0 < len(key) <= limits.KEY_BYTES_MAX:
            raise InvalidArgument(
                f"split key {i} must have 1 to {limits.KEY_BYTES_MAX} bytes, got {item!r:.80}"
            )
        if keys and key <= keys[-1]:
            raise InvalidArgument(
                f"split key {i} ({key!r:.60}) must be above the one before it ({keys[-1]!r:.60})"
            )
        keys.append(key)
    return keys


def plan(
    table: TableId, split_keys: Sequence[bytes], first_id: int, voters: tuple[NodeId, ...]
) -> list[PartitionDescriptor]:
    """The partitions of a new table, in key order, with ids from `first_id` on."""
    start, end = table_range(table)
    prefix = table_prefix(table)
    borders = [start, *(prefix + key for key in split_keys), end]
    return [
        PartitionDescriptor(PartitionId(first_id + i), low, high, 1, voters)
        for i, (low, high) in enumerate(pairwise(borders))
    ]


def put_rows(t: Txn, descriptors: Sequence[PartitionDescriptor]) -> None:
    """Enter partitions into the map."""
    for descriptor in descriptors:
        key = map_key(descriptor.start)
        t.put(key, seal(key, _encode([FORMAT, *descriptor.to_wire()])))


def delete_rows(t: Txn, descriptors: Sequence[PartitionDescriptor]) -> None:
    """Take partitions out of the map."""
    for descriptor in descriptors:
        t.delete(map_key(descriptor.start))


async def partitions_of(t: Txn, table: TableId) -> list[PartitionDescriptor]:
    """A table's partitions as the map has them, in key order. Raises Corruption."""
    base = table_prefix(system.PARTITIONS)
    low, high = table_range(table)
    start: bytes | None = base + escape_open(low)
    end = base + escape_open(high)
    found: list[PartitionDescriptor] = []
    while start is not None:
        page = await t.scan(start, end, limit=limits.SPLIT_KEYS_MAX + 1)
        found += [decode_row(key, value) for key, value, _ in page.items]
        start = page.resume
    return found


def map_key(start: bytes) -> bytes:
    """The storage key of the row of the partition that begins at `start`."""
    return table_prefix(system.PARTITIONS) + escape(start)


def decode_row(key: bytes, value: bytes) -> PartitionDescriptor:
    """The descriptor in a row of the map. Raises Corruption."""
    try:
        if not intact(key, value):
            raise ValueError("its checksum is wrong")
        format_, *row = _decode(memoryview(value)[:-CRC_BYTES])
        if format_ != FORMAT:
            raise ValueError(f"its format is {format_}, this program reads {FORMAT}")
        return PartitionDescriptor.from_wire(row)
    except (ValueError, TypeError, IndexError, msgspec.MsgspecError) as error:
        raise Corruption(
            f"the row {key[:64]!r} of the partition map is damaged: {error}", details={"key": key}
        ) from error
