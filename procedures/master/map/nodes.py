"""The members table: which nodes there are, were, and will be.

    CLUSTER    esc("node") [id u64]   sealed msgpack [1, id, address, version, state]
                                      and, where it is needed, [… state, is a witness, machine,
                                      datacenter, rack, [tags]]
    COUNTERS   esc("node")            sealed u64: the next node id

    JOINING ──▶ MEMBER ──▶ LEAVING ──▶ GONE

A founder's row begins as MEMBER (rows of earlier versions have no state: that is what they mean). A
later node is taken in as JOINING: it has an id and makes replicas; it is MEMBER when it votes in
every partition. A node that is decommissioned is LEAVING until it votes nowhere, and then GONE for
ever: its row stays, because its id must never be given out again (its votes may be in somebody's
log, and its incarnation at every peer), and because it must hear so if it comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, Protocol

import msgspec

from kv.base import system
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import Corruption, NotFound, Refused, TooLarge
from kv.base.ids import NodeId
from kv.base.keys import escape, from_u64, successor, table_prefix, u64
from kv.base.limits import NODES_MAX
from procedures.master.map.partitions import Reader

_FORMAT: Final = 1
_NODES: Final = table_prefix(system.CLUSTER) + escape(b"node")
_COUNTER: Final = table_prefix(system.COUNTERS) + escape(b"node")
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class NodeState(IntEnum):
    """See the module; the numbers are on disk."""

    JOINING = 1
    MEMBER = 2
    LEAVING = 3
    GONE = 4


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node. `address` is HOST:BASE, empty for an embedded node without ports."""

    id: NodeId
    address: str
    version: str
    state: NodeState = NodeState.MEMBER
    witness: bool = False
    """It votes and keeps no data, for all its life."""
    label: str = ""
    """What it calls the machine that it runs on."""
    dc: str = ""
    rack: str = ""
    tags: tuple[str, ...] = ()
    """Tables that want some of these may be here."""

    @property
    def domains(self) -> tuple[str, str, str]:
        """What it fails together with, the widest first: datacenter, rack, server."""
        return (self.dc, self.rack, self.machine)

    @property
    def machine(self) -> str:
        """Nodes with the same one fail together: by what they say, else by their address."""
        return self.label or self.address.rpartition(":")[0]


class Txn(Reader, Protocol):
    """What is needed of a transaction (txn.transaction.Transaction; StepNodes for a step's)."""

    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...
    def put(self, key: bytes, value: bytes) -> object: ...


def node_key(node: int) -> bytes:
    return _NODES + u64(node)


def encode_node(row: NodeRow) -> bytes:
    """The sealed row, for `node_key`."""
    fields = [_FORMAT, row.id, row.address, row.version, int(row.state)]
    placed = bool(row.dc or row.rack or row.tags)
    if row.witness or row.label or placed:
        fields.append(row.witness)
    if row.label or placed:
        fields.append(row.label)
    if placed:
        fields += [row.dc, row.rack, list(row.tags)]
    return seal(node_key(row.id), _encode(fields))


def decode_node(key: bytes, value: bytes) -> NodeRow:
    """Raises Corruption."""
    try:
        if not intact(key, value):
            raise ValueError("its checksum is wrong")
        match _decode(value[:-CRC_BYTES]):
            case [int(), int(node), str(address), str(version)]:
                return NodeRow(NodeId(node), address, version)
            case [int(), int(node), str(address), str(version), int(state)]:
                return NodeRow(NodeId(node), address, version, NodeState(state))
            case [
                int(),
                int(node),
                str(address),
                str(version),
                int(state),
                bool(witness),
                *more,
            ] if _texts(more):
                named = (NodeId(node), address, version, NodeState(state), witness)
                label, dc, rack, tags = (*more, "", "", "", ())[:4] if len(more) < 2 else more[:4]
                return NodeRow(*named, label, dc, rack, tuple(tags))
            case fields:
                raise ValueError(f"it has {len(fields)} fields")
    except (ValueError, msgspec.MsgspecError) as error:
        raise Corruption(f"the row of a node is damaged: {error}", details={"key": key}) from error


def _texts(more: list[object]) -> bool:
    """Whether this is a machine's name, or that, a datacenter, a rack and tags."""
    match more:
        case []:
            return True
        case [str()]:
            return True
        case [str(), str(), str(), list(tags), *_]:
            return all(type(tag) is str for tag in tags)
        case _:
            return False


async def all_nodes(t: Reader) -> list[NodeRow]:
    """Every node that ever was, by id. Raises Corruption."""
    found: list[NodeRow] = []
    start: bytes | None = _NODES
    while start is not None:
        page = await t.scan(start, successor(_NODES), limit=NODES_MAX)
        found += [decode_node(key, value) for key, value, _ in page.items]
        start = page.resume
    return found


async def find_node(t: Txn, node: int) -> NodeRow:
    """Raises NotFound (NODE_NOT_FOUND), Corruption."""
    key = node_key(node)
    value, _ = await t.get(key)
    if value is None:
        raise NotFound(f"there is no node {node} in this cluster", code="NODE_NOT_FOUND")
    return decode_node(key, value)


def put_node(t: Txn, row: NodeRow) -> None:
    t.put(node_key(row.id), encode_node(row))


def holders(nodes: Sequence[NodeRow]) -> tuple[NodeId, ...]:
    """Where new partitions are placed: on members that stay."""
    return tuple(row.id for row in nodes if row.state is NodeState.MEMBER)


async def take_in(
    t: Txn, address: str, version: str, *, founders: Sequence[int], witness: bool = False
) -> NodeRow:
    """Give a new node its id, or again the one that this address got and has not used yet. Two at
    once conflict, because both write the counter. The ids of founders are taken, also of those that
    never started.

    Raises Refused (ADDRESS_TAKEN, WITNESS_REFUSED), TooLarge, Corruption.
    """
    nodes = await all_nodes(t)
    for row in nodes:
        if row.address == address and row.state is NodeState.JOINING and row.witness == witness:
            taken = replace(row, version=version)
            put_node(t, taken)
            return taken
        if row.address == address and row.state is not NodeState.GONE:
            raise Refused(
                f"node {row.id} has the address {address}. If its data are lost, decommission it "
                "first; the new one gets an id of its own",
                code="ADDRESS_TAKEN",
                details={"node": row.id, "address": address},
            )
    living = sum(row.state is not NodeState.GONE for row in nodes)
    if living >= NODES_MAX:
        raise TooLarge(
            f"the cluster has {living} nodes, the limit is {NODES_MAX}",
            details={"what": "nodes", "limit": NODES_MAX, "actual": living},
        )
    if witness:
        _check_witness(nodes)
    id_ = max(await _counter(t), 1, *(node + 1 for node in (*founders, *(r.id for r in nodes))))
    t.put(_COUNTER, seal(_COUNTER, u64(id_ + 1)))
    made = NodeRow(NodeId(id_), address, version, NodeState.JOINING, witness)
    put_node(t, made)
    return made


def _check_witness(nodes: Sequence[NodeRow]) -> None:
    """Raises Refused (WITNESS_REFUSED), as consensus would for every single partition."""
    living = [row for row in nodes if row.state in (NodeState.MEMBER, NodeState.JOINING)]
    data = sum(not row.witness for row in living)
    if len(living) % 2 or len(living) - data + 1 >= data:
        raise Refused(
            f"{data} nodes with data and {len(living) - data} witnesses: another witness is of use "
            "only beside an even number of nodes, and there must be fewer witnesses than nodes "
            "with data",
            code="WITNESS_REFUSED",
        )


async def _counter(t: Txn) -> int:
    value, _ = await t.get(_COUNTER)
    if value is None:
        return 1
    if len(value) != 8 + CRC_BYTES or not intact(_COUNTER, value):
        raise Corruption(
            "the counter of node ids is damaged: an id could be given out twice",
            details={"key": _COUNTER},
        )
    return from_u64(value)


async def enter(
    t: Txn,
    node: NodeId,
    address: str,
    version: str,
    *,
    witness: bool = False,
    label: str = "",
    site: tuple[str, str] = ("", ""),
    tags: tuple[str, ...] = (),
) -> NodeRow:
    """A node says at its start where it is (`site`: datacenter and rack) and what it carries; its
    state stays. Raises Refused
    (NODE_DECOMMISSIONED).
    """
    dc, rack = site
    given = NodeRow(
        node, address, version, witness=witness, label=label, dc=dc, rack=rack, tags=tags
    )
    key = node_key(node)
    value, _ = await t.get(key)
    if value is None:
        row = given
    else:
        row = replace(given, state=decode_node(key, value).state)
        refuse_gone(row)
    if encode_node(row) != value:
        put_node(t, row)
    return row


def refuse_gone(row: NodeRow) -> None:
    """Raises Refused (NODE_DECOMMISSIONED)."""
    if row.state is NodeState.GONE:
        raise Refused(
            f"node {row.id} was decommissioned and cannot come back: its id is not used again. "
            "Start it with an empty --data directory to join as a new node",
            code="NODE_DECOMMISSIONED",
            details={"node": row.id},
        )
