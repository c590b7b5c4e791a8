"""Who is in the cluster and which partitions there are, as the system tables have it.

    CLUSTER     esc("node") [id u64]   sealed msgpack [1, id, address, version]
    PARTITIONS  esc(start key)         procedures/master/partitions.py; the meta partition, which
                                       holds the map, is not in it

A node writes its row at every start. Whether it lives is not here: with one node, whoever answers
lives; with several, the master's leases will tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from kv.base import ops, system
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption
from kv.base.ids import META_PARTITION, NodeId
from kv.base.keys import META_RANGE, escape, successor, table_prefix, table_range, u64
from kv.base.limits import SCAN_ROWS_MAX
from procedures.master.partitions import decode_row
from txn.client import TxnClient

_FORMAT: Final = 1
_NODES: Final = table_prefix(system.CLUSTER) + escape(b"node")
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, str, str]).decode


@dataclass(frozen=True, slots=True)
class Member:
    """A node. `address` is HOST:BASE, empty for an embedded node without ports."""

    id: NodeId
    address: str
    version: str


async def enrol(txn: TxnClient, member: Member) -> None:
    """Write a node's row, unless it is there as it should be."""
    key = _NODES + u64(member.id)
    row = seal(key, _encode((_FORMAT, member.id, member.address, member.version)))
    if (await txn.get(key))[0] != row:
        await txn.write([ops.put(key, row)])


async def members(txn: TxnClient) -> list[Member]:
    """All nodes, by id. Raises Corruption."""
    rows = await _rows(txn, _NODES, successor(_NODES))
    return [_member(key, value) for key, value in rows]


async def partition_map(txn: TxnClient) -> list[PartitionDescriptor]:
    """All partitions in key order, the meta partition first. Raises Corruption."""
    voters = tuple(member.id for member in await members(txn))
    meta = PartitionDescriptor(META_PARTITION, *META_RANGE, 1, voters)
    rows = await _rows(txn, *table_range(system.PARTITIONS))
    return [meta, *(decode_row(key, value) for key, value in rows)]


async def _rows(txn: TxnClient, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    """A range at one snapshot."""
    found: list[tuple[bytes, bytes]] = []
    at, left = 0, start
    while True:
        page = await txn.scan(left, end, limit=SCAN_ROWS_MAX, at=at)
        found += [(key, value) for key, value, _ in page.items]
        if page.resume is None:
            return found
        left, at = page.resume, page.at


def _member(key: bytes, value: bytes) -> Member:
    try:
        if intact(key, value):
            _, node, address, version = _decode(value[:-CRC_BYTES])
            return Member(NodeId(node), address, version)
        why = "its checksum is wrong"
    except msgspec.MsgspecError as e:
        why = str(e)
    raise Corruption(f"the row of a node is damaged: {why}", details={"key": key})
