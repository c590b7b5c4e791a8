"""Who is in the cluster and which partitions there are, as the system tables have it.

    CLUSTER     esc("node") [id u64]   procedures/master/map/nodes.py
    PARTITIONS  esc(start key)         procedures/master/map/partitions.py; the meta partition,
                                       which
                                       holds the map, is not in it

A node writes its row at every start; the founders' rows are there from the first start of the
cluster on. Whether a node lives is not here: whoever answers lives
(kvorum/cluster/replica_status.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import META_PARTITION, NodeId
from kv.base.keys import META_RANGE
from procedures.master.map.nodes import NodeRow, all_nodes, enter, holders, put_node
from procedures.master.map.partitions import (
    Placed,
    decode_placed,
    map_key,
    placed_partitions,
)
from txn.client import TxnClient
from txn.transaction import Transaction


async def enrol(
    txn: TxnClient,
    node: NodeId,
    address: str,
    version: str,
    *,
    witness: bool = False,
    label: str = "",
    site: tuple[str, str] = ("", ""),
    tags: tuple[str, ...] = (),
) -> NodeRow:
    """Tell the cluster where a node is. Raises Refused (NODE_DECOMMISSIONED)."""

    async def write(t: Transaction) -> NodeRow:
        return await enter(
            t, node, address, version, witness=witness, label=label, site=site, tags=tags
        )

    row: NodeRow = await txn.run(write)
    return row


async def enrol_founders(
    txn: TxnClient, founders: Iterable[tuple[NodeId, str]], witnesses: Collection[NodeId] = ()
) -> None:
    """Rows for the founders that have none yet: they belong to the cluster though they may never
    have started.
    """

    async def write(t: Transaction) -> None:
        known = {row.id for row in await all_nodes(t)}
        for node, address in founders:
            if node not in known:
                put_node(t, NodeRow(node, address, "", witness=node in witnesses))

    await txn.run(write)


async def members(txn: TxnClient) -> list[NodeRow]:
    """All nodes, by id. Raises Corruption."""
    return await txn.run(all_nodes)


async def placed(txn: TxnClient) -> list[Placed]:
    """The partition map at one snapshot, in key order, without the meta partition."""
    return await txn.run(placed_partitions)


async def placed_at(txn: TxnClient, start: bytes) -> Placed | None:
    """The row of the map under a start key, as it is now. Raises Corruption."""
    key = map_key(start)

    async def read(t: Transaction) -> Placed | None:
        value, _ = await t.get(key)
        return None if value is None else decode_placed(key, value)

    return await txn.run(read)


async def partition_map(txn: TxnClient) -> list[PartitionDescriptor]:
    """All partitions in key order at one snapshot, the meta partition first. Raises Corruption."""

    async def read(t: Transaction) -> tuple[list[NodeRow], list[Placed]]:
        return await all_nodes(t), await placed_partitions(t)

    nodes, rows = await txn.run(read)
    voters = holders(nodes)
    witnesses = tuple(row.id for row in nodes if row.witness and row.id in voters)
    meta = PartitionDescriptor(META_PARTITION, *META_RANGE, 1, voters, (), witnesses)
    return [meta, *(row.descriptor for row in rows)]
