"""From a node to the nodes: links by address, and calls to one node by its id.

The own address leads straight into the own dispatcher, so that the same client code serves one node
and many; the others are reached over sockets. What fault injection cut is not reached at all.
"""

from __future__ import annotations

import logging

from kv.base.errors import Refused, Unavailable
from kv.base.ids import NodeId
from kv.base.ports import Timers
from kv.base.wire_row import WireRow
from kv.client.calls import UNREACHABLE
from kv.client.channels import Connector, SocketChannels
from kv.client.client import KvClient
from kv.client.links import Link, LocalLink, Submitter, client_closed
from kv.client.router import ANYWHERE, Address
from kvorum.cluster.peers import KnownPeers

log = logging.getLogger(__name__)


class NodeChannels:
    """kv.client.channels.Channels of a node. The own address is asked first: it costs no network,
    and knows the map.
    """

    def __init__(self, peers: KnownPeers, own: Address, connect: Connector, timers: Timers) -> None:
        """`own` is ANYWHERE for a node without ports. Before `enter` it has no link."""
        self._own = own
        self._peers = peers
        self._timers = timers
        self._local: LocalLink | None = None
        self._sockets = SocketChannels([own], self._connect)
        self._connector = connect
        self._cut: frozenset[Address] = frozenset()
        self.refused: dict[Address, str] = {}  # who is no peer, and why, as it is in the log

    @property
    def addresses(self) -> list[Address]:
        """This node, then the others."""
        return [self._own, *self._peers.others()]

    def enter(self, submitter: Submitter) -> None:
        """The own dispatcher is there."""
        self._local = LocalLink(submitter, self._timers)

    def open_link(self, address: Address) -> Link | None:
        if address in (self._own, ANYWHERE):
            return None if self._local is None or self._local.closed else self._local
        return self._sockets.open_link(address)

    async def link(self, address: Address) -> Link:
        if address in (self._own, ANYWHERE):
            if self._local is None or self._local.closed:
                raise client_closed()
            return self._local
        return await self._sockets.link(address)

    async def _connect(self, address: Address) -> Link:
        if address in self._cut:
            raise ConnectionRefusedError(f"fault injection cut {address[0]}:{address[1]}")
        try:
            link = await self._connector(address)
            if link.peer is not None and self._peers.is_other(
                link.peer.node, link.peer.incarnation
            ):
                link.close()
                raise Refused(
                    f"it has other data than the node {link.peer.node} that was met before: it was "
                    "emptied, and started again under its old number"
                )
            self.refused.pop(address, None)
            return link
        except (
            Refused
        ) as error:  # of another cluster, of another version, emptied: not who is meant
            why = f"what answers at {address[0]}:{address[1]} is no peer: {error.message}"
            if self.refused.get(address) != why:
                self.refused[address] = why
                log.warning("%s; it is left alone, and asked again later", why)
            raise Unavailable(why, code=UNREACHABLE) from error

    def cut(self, addresses: frozenset[Address]) -> None:
        """Neither hear nor speak to these from now on; to all others again."""
        self._cut = addresses
        for address in addresses:
            if (link := self._sockets.open_link(address)) is not None:
                link.close()

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        self._sockets.close()


class NodeCalls:
    """Node methods of one node that is named, not of whichever is in use."""

    def __init__(self, kv: KvClient, peers: KnownPeers, own: NodeId) -> None:
        self._kv = kv
        self._peers = peers
        self._own = own

    async def call_at(self, node: int, method: int, *args: object, budget_ms: int = 0) -> WireRow:
        """The result list of a node method at `node`, in one attempt. Raises what
        `KvClient.call_at` raises; Unavailable (UNREACHABLE) while its address is not known.
        """
        address = ANYWHERE if node == self._own else self._peers.address_of(node)
        if address is None:
            raise Unavailable(
                f"node {node} cannot be reached: its address is not known here yet",
                code="UNREACHABLE",
            )
        return await self._kv.call_at(address, method, *args, budget_ms=budget_ms)
