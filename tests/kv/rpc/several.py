"""Several nodes without storage or sockets in one virtual time: who leads what, who is down or
silent, and what each node believes are switches.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, NotLeader
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.members import Address, leader_details
from kv.base.methods import PUT, TSO
from kv.base.rpc import OK, error_row
from kv.client.channels import Connector, SocketChannels
from kv.client.client import KvClient
from kv.client.links import Link, LocalLink
from kv.server.dispatcher import Connection, Dispatcher
from kvorum.testing.simulation.loop import SimLoop, SimRng


def address_of(node: int) -> Address:
    return f"n{node}", 7600


class Shared:
    """A partition's state, as all its replicas would have it."""

    def __init__(self, descriptor: PartitionDescriptor, leader: int | None) -> None:
        self.descriptor = descriptor
        self.leader = leader
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.version = 0
        self.executed: list[bytes] = []  # values of puts, in order


class Replica:
    """A partition at one node."""

    def __init__(self, node: Several, shared: Shared) -> None:
        self.node, self.shared = node, shared
        self.believes: int | None = shared.leader
        self.fails: list[KvorumError] = []
        self.refused = 0

    @property
    def descriptor(self) -> PartitionDescriptor:
        return self.shared.descriptor

    @property
    def leads(self) -> bool:
        return self.shared.leader == self.node.id

    def submit(self, conn: Connection, request: list[Any]) -> None:
        asyncio.get_running_loop().call_soon(self._serve, conn, request)

    def _serve(self, conn: Connection, request: list[Any]) -> None:
        try:
            if self.fails:
                raise self.fails.pop(0)
            if not self.leads:
                self.refused += 1
                raise NotLeader("not here", details=leader_details(self.believes, self.node))
            conn.reply([request[0], OK, *self._execute(request)])
        except KvorumError as error:
            conn.reply(error_row(request[0], error))
        conn.flush()

    def _execute(self, request: list[Any]) -> list[Any]:
        _, method, _, _, _, key, *rest = request
        shared = self.shared
        if method == PUT:
            shared.version += 1
            shared.rows[key] = (rest[0], shared.version)
            shared.executed.append(rest[0])
            return [shared.version]
        return list(shared.rows.get(key, (None, 0)))


class Several:
    """One of the nodes: partitions of the dispatcher, and its members."""

    def __init__(self, cluster: Cluster, id_: int) -> None:
        self.cluster, self.id = cluster, id_
        self.replicas = {s.descriptor.id: Replica(self, s) for s in cluster.shared}
        self.down = False  # connections are refused
        self.silent = False  # … or taken, and nothing is ever answered
        self.connects = 0
        self.found: bytes | None = None  # what find_txn answers
        self.dispatcher = Dispatcher(
            node_id=NodeId(id_),
            partitions=self,
            timers=cluster.timers,
            rng=SimRng(id_),
            members=self,
        )
        self.dispatcher.register(TSO, self._tso)

    def _tso(self, _context: object, args: list[Any]) -> list[Any]:
        meta = self.replicas.get(META_PARTITION)
        if meta is None or not meta.leads:
            raise NotLeader("the oracle is elsewhere")
        first = self.cluster.last_ts + 1
        self.cluster.last_ts += args[0]
        return [first]

    # -- kv.base.members.Members

    def address_of(self, node: int) -> Address | None:
        return address_of(node)

    def others(self) -> list[Address]:
        return [address_of(node.id) for node in self.cluster.nodes if node is not self]

    # -- kv.server.dispatcher.Partitions

    def by_id(self, partition: int) -> Replica | None:
        return self.replicas.get(PartitionId(partition))

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        found = (r.descriptor for r in self.replicas.values())
        return next((d for d in found if d.covers(key)), None)

    def leader_of(self, partition: int) -> int | None:
        replica = self.by_id(partition)
        return None if replica is None else replica.believes

    def find_txn(self, start_ts: int) -> bytes | None:
        return self.found

    def led(self) -> tuple[list[int], list[int]]:
        led = [int(id) for id, r in self.replicas.items() if r.leads]
        return led, [int(id) for id in self.replicas if id not in led]

    # -- faults

    def stop(self) -> None:
        """Its connections break, and no new ones are taken."""
        self.down = True
        for link in self.cluster.links.pop(self.id, []):
            link.lose("the node was killed")

    def requests(self, method: int) -> int:
        return self.dispatcher.counters.requests[method]


class SimLink(LocalLink):
    """A link to a node that may be silent; replies take a moment."""

    def __init__(self, node: Several) -> None:
        super().__init__(node.dispatcher, node.cluster.timers)
        self._node = node

    def _transmit(self, rows: list[list[Any]]) -> None:
        if not self._node.silent:
            # What is sent is packed: nobody may change the caller's lists.
            super()._transmit([list(row) for row in rows])

    def reply(self, row: list[Any]) -> None:
        if not self._node.silent:
            delay = 0.0001 + 0.0004 * self._node.cluster.rng.random()
            self._timers.call_later(delay, self.received, row)


class Cluster:
    """`n` nodes with the partitions between `splits`, the first of them the meta partition."""

    def __init__(self, loop: SimLoop, n: int = 3, splits: tuple[bytes, ...] = ()) -> None:
        self.timers = LoopTimers(loop)
        self.rng = SimRng(7)
        self.last_ts = 0
        self.links: dict[int, list[Link]] = {}
        bounds = [b"", *splits, b""]
        voters = tuple(NodeId(i) for i in range(1, n + 1))
        self.shared = [
            Shared(PartitionDescriptor(PartitionId(i + 1), low, high, 1, voters), i % n + 1)
            for i, (low, high) in enumerate(itertools.pairwise(bounds))
        ]
        self.nodes: list[Several] = []
        self.nodes += [Several(self, i) for i in range(1, n + 1)]

    def node(self, id_: int) -> Several:
        return self.nodes[id_ - 1]

    def lead(self, partition: int, node: int | None, *, told: bool = True) -> None:
        """Make a node the leader; `told`: all nodes that live know it at once."""
        self.shared[partition - 1].leader = node
        for each in self.nodes:
            if (told and not each.down) or each.id == node:
                each.replicas[PartitionId(partition)].believes = node

    def connector(self) -> Connector:
        async def connect(address: Address) -> Link:
            node = self.node(int(address[0][1:]))
            node.connects += 1
            await asyncio.sleep(0.0002)
            if node.down:
                raise ConnectionRefusedError(111, "Connection refused")
            if node.silent:
                await asyncio.get_running_loop().create_future()
            link = SimLink(node)
            self.links.setdefault(node.id, []).append(link)
            return link

        return connect

    def client(self, *nodes: int, seed: int = 1) -> KvClient:
        """A client that was told of these nodes; of all, without any."""
        told = nodes or tuple(node.id for node in self.nodes)
        channels = SocketChannels([address_of(id_) for id_ in told], self.connector())
        return KvClient(channels, self.timers, SimRng(seed))
