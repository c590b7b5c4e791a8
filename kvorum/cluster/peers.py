"""What this node knows of the others: where they are, and that they are who they were.

    meta "peers"   sealed msgpack {node: [HOST:BASE, incarnation]}

Addresses come from the --join list of the first start and from the members table; they are kept
here too, because a node needs them to reach those who have the table. The incarnation of a peer is
the one with which it was first met (kvorum/local/identity.py); another one under the same id is
refused by the transport.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.config import split_address
from kv.base.errors import Corruption
from kv.base.ids import NodeId
from kv.base.members import Address
from kv.storage.engine import Engine

_KEY: Final = b"peers"
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(dict[int, tuple[str, bytes]]).decode


class KnownPeers:
    """By node id; kv.base.members.Members. `on_address(node, address)` is called with every address
    that is new or changed.
    """

    def __init__(self, state: Engine, own: NodeId, own_address: str) -> None:
        """Raises Corruption."""
        self._state: Engine | None = state
        self._own = own
        self._known = _read(state.getter("meta")(_KEY))
        self._known[own] = (own_address, b"")
        self.on_address: Callable[[int, Address], object] = lambda _node, _address: None

    # ------------------------------------------------------------------------------- addresses

    @property
    def nodes(self) -> list[int]:
        """Nodes with an address, but for this one; ascending."""
        return sorted(n for n, (address, _) in self._known.items() if address and n != self._own)

    def address_of(self, node: int) -> Address | None:
        """Host and BASE of a node, None if it is not known or has no ports."""
        address, _ = self._known.get(node, ("", b""))
        return split_address(address) if address else None

    def node_at(self, address: Address) -> NodeId | None:
        """Which other node is reached there."""
        found = (node for node in self.nodes if self.address_of(node) == address)
        return NodeId(node) if (node := next(found, None)) is not None else None

    def others(self) -> list[Address]:
        """Where every other node is reached."""
        return [split_address(self._entry(node)[0]) for node in self.nodes]

    def found(self, addresses: Iterable[tuple[int, str]]) -> None:
        """Take what somebody said about other nodes."""
        changed = [
            (node, address)
            for node, address in addresses
            if address and node != self._own and self._entry(node)[0] != address
        ]
        for node, address in changed:
            self._known[node] = (address, self._entry(node)[1])
        if changed:
            self._save()
        for node, address in changed:
            self.on_address(node, split_address(address))

    def forget(self, node: int) -> None:
        """It left for good. Its incarnation stays: nobody may come back under its id."""
        incarnation = self._entry(node)[1]
        self._known[node] = ("", incarnation)
        self._save()

    # ----------------------------------------------------------------------- raft.transport.Peers

    def load(self) -> dict[int, bytes]:
        """The incarnation of every node that was ever met."""
        return {node: known for node, (_, known) in self._known.items() if known}

    def is_other(self, node: int, incarnation: bytes) -> bool:
        """Whether it was met with another incarnation. (Earlier versions do not say theirs.)"""
        return bool(incarnation) and self._entry(node)[1] not in (b"", incarnation)

    def save(self, node: int, incarnation: bytes) -> None:
        """A node was met for the first time."""
        self._known[node] = (self._entry(node)[0], incarnation)
        self._save()

    def _entry(self, node: int) -> tuple[str, bytes]:
        return self._known.get(node, ("", b""))

    def _save(self) -> None:
        state = self._state
        if state is None:
            return
        batch = state.batch()
        others = {node: known for node, known in self._known.items() if node != self._own}
        batch.put(_KEY, seal(_KEY, _encode(others)), state.family("meta"))
        state.write(batch)

    def close(self) -> None:
        """Keep nothing any more, and let go of the database: clients that live longer have this."""
        self._state = None


def _read(record: bytes | None) -> dict[int, tuple[str, bytes]]:
    if record is None:
        return {}
    try:
        if not intact(_KEY, record):
            raise ValueError("its checksum is wrong")
        return _decode(record[:-CRC_BYTES])
    except (ValueError, msgspec.MsgspecError) as error:
        raise Corruption(
            f"what this node knows of its peers is damaged ({error}): restore the state DB from a "
            "backup",
            details={"key": _KEY, "family": "meta"},
        ) from error
