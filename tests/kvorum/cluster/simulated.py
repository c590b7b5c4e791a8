"""Whole nodes in virtual time: the production `build`, on engines that crash and a network that
exists only here. One seed decides delays, order and faults.

What passes between nodes is packed and unpacked as on the wire, so nothing is shared. A cut is
silence, nobody is told but by time: consensus messages are lost, requests and replies come when it
is healed, as TCP would have it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgpack

from kv.base.adapters import LoopTimers
from kv.base.config import NodeConfig
from kv.base.connection_slots import Seats
from kv.base.credentials import NONE, Credential
from kv.base.errors import Unavailable
from kv.base.intents import NOBODY
from kv.base.ports import Rng, Timers
from kv.base.spoken_time import Time
from kv.client.channels import Connector
from kv.client.links import Link
from kv.server.dispatcher import Dispatcher
from kv.storage.engine import Engine
from kv.storage.memory import MemoryEngine, TimedSyncer
from kvorum.local.ports import Ports
from kvorum.node.node import Node, build
from kvorum.testing.simulation.loop import SimClock, SimLoop, SimRng
from raft import wire
from raft.counters import PeerFigures
from raft.limits import TransportLimits
from raft.peers import Address, Peers

LATENCY_S = 0.001
SYNC_S = 0.002
RESEND_S = 0.2
SILENCE_S = 1.5  # until a link that owes replies is doubted; kv/client/connection.py
PORT = 7600


class SimNetwork:
    """kvorum.local.ports.Network of every node, and what is between them."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.peers_of: dict[int, SimPeers] = {}
        self.servers: dict[Address, SimServer] = {}
        self.cut: set[tuple[int, int]] = set()
        self.ways_s: dict[tuple[int, int], float] = {}
        """Between sites that are far apart: so long from one node to the other, LATENCY_S else."""
        self._random = random.Random(seed)

    def _delay_s(self, source: int, target: int) -> float:
        far_s = self.ways_s.get((source, target), 0.0)
        return far_s + LATENCY_S * (0.5 + self._random.random())

    def later(self, source: int, target: int, fn: Callable[..., object], *args: Any) -> None:
        """Call after a delay, unless the way is cut then."""
        delay_s = self._delay_s(source, target)
        self.loop.call_later(delay_s, self._arrive, source, target, fn, args)

    def _arrive(
        self, source: int, target: int, fn: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        if (source, target) not in self.cut:
            fn(*args)

    def reliably(self, source: int, target: int, fn: Callable[..., object], *args: Any) -> None:
        """The same, but after a cut rather than never."""
        if (source, target) in self.cut:
            self.loop.call_later(RESEND_S, self.reliably, source, target, fn, *args)
        else:
            self.loop.call_later(self._delay_s(source, target), fn, *args)

    def isolate(self, node: int) -> None:
        for other in self.peers_of:
            if other != node:
                self.cut |= {(node, other), (other, node)}

    # -- kvorum.local.ports.Network

    def peers(
        self,
        *,
        cluster: str,
        node_id: int,
        incarnation: bytes,
        secret: bytes,
        timers: Timers,
        rng: Rng,
        peers: Peers,
        limits: TransportLimits,
    ) -> SimPeers:
        return SimPeers(self, node_id)

    def connector(
        self,
        timers: Timers,
        cluster: str,
        node: int,
        credential: Credential = NONE,
        *,
        time: Time | None = None,
    ) -> Connector:
        async def connect(address: Address) -> Link:
            there = self.servers.get(address)
            far_s = 0.0 if there is None else self.ways_s.get((node, there.node), 0.0)
            await asyncio.sleep(LATENCY_S + far_s)
            server = self.servers.get(address)
            if server is None or (node, server.node) in self.cut:
                raise ConnectionRefusedError(111, "nobody listens")
            return SimLink(timers, self, node, server)

        return connect

    def server(
        self,
        dispatcher: Dispatcher,
        timers: Timers,
        *,
        cluster: str,
        node: int,
        seats: Seats,
        secret: bytes,
        rng: Rng,
        **_rights: object,
    ) -> SimServer:
        return SimServer(self, dispatcher, node)


class SimPeers:
    """kvorum.local.ports.PeerNet."""

    def __init__(self, network: SimNetwork, node: int) -> None:
        self._network, self._node = network, node
        self.on_message: Callable[[int, int, dict[str, Any]], object]
        self.on_up: Callable[[int], object]
        self.on_down: Callable[[int], object]
        self.open = False

    async def start(self, host: str, port: int) -> int:
        self.open = True
        living = dict(self._network.peers_of)
        self._network.peers_of[self._node] = self
        for node, other in living.items():
            self._network.later(node, self._node, self.on_up, node)
            self._network.later(self._node, node, other.on_up, self._node)
        return port

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        body = wire.messages_body([wire.pack_message(group_id, message)])
        self._network.later(self._node, peer, self._deliver, peer, body)

    def _deliver(self, peer: int, body: bytes) -> None:
        there = self._network.peers_of.get(peer)
        if there is not None and there.open:
            for group_id, message in wire.read_messages(body):
                there.on_message(self._node, group_id, message)

    def room(self, peer: int) -> bool:
        return True

    def set_peer(self, node: int, address: Address) -> None: ...

    def forget_peer(self, node: int) -> None: ...

    def block(self, node: int, *, incoming: bool = True, outgoing: bool = True) -> None: ...

    def unblock(self, node: int) -> None: ...

    def figures(self) -> Mapping[int, PeerFigures]:
        living = self._network.peers_of
        return {node: self._seen(node) for node in living if node != self._node}

    def _seen(self, node: int) -> PeerFigures:
        return PeerFigures(
            address=None,
            connected=True,
            silent=(node, self._node) in self._network.cut,
            queued_bytes=0,
            rtt_ms=None,
            trouble=None,
            refused=None,
            sent=0,
            received=0,
            lost=0,
            connections=1,
        )

    def hang_up(self) -> None:
        self.open = False
        if self._network.peers_of.get(self._node) is self:
            del self._network.peers_of[self._node]
        for node, other in self._network.peers_of.items():
            self._network.later(self._node, node, other.on_down, self._node)

    async def close(self) -> None:
        if self.open:
            self.hang_up()


class SimServer:
    """kvorum.local.ports.Server."""

    def __init__(self, network: SimNetwork, dispatcher: Dispatcher, node: int) -> None:
        self.network, self.node = network, node
        self.links: list[SimLink] = []
        self._dispatcher = dispatcher
        self._address: Address = ("", 0)

    async def start(self, host: str, port: int) -> int:
        self._address = (host, port)
        self.network.servers[self._address] = self
        return port

    def take(self, link: SimLink, packed: bytes) -> None:
        if self.network.servers.get(self._address) is self:
            self._dispatcher.submit(_Replies(self, link), msgpack.unpackb(packed))

    def cut(self, nodes: Iterable[int]) -> None: ...

    def review(self) -> None: ...

    def hang_up(self) -> None:
        self.network.servers.pop(self._address, None)
        for link in self.links:
            if not link.closed:
                self.network.later(self.node, link.node, link.lose, "the connection broke")

    async def close(self) -> None:
        self.hang_up()


class _Replies:
    """kv.server.dispatcher.Connection of one frame."""

    user = ""
    rights = None
    author = NOBODY

    def __init__(self, server: SimServer, link: SimLink) -> None:
        self._server, self._link = server, link

    def reply(self, row: list[Any]) -> None:
        packed = msgpack.packb(row)
        net = self._server.network
        net.reliably(self._server.node, self._link.node, self._link.answer, packed)

    def flush(self) -> None: ...

    def ready(self, wake: Callable[[], None]) -> bool:
        return True


class SimLink(Link):
    """A client's end."""

    def __init__(self, timers: Timers, network: SimNetwork, node: int, server: SimServer) -> None:
        super().__init__(timers)
        self.node = node
        self._network, self._server = network, server
        self._patience_s = SILENCE_S
        server.links.append(self)

    def _transmit(self, rows: list[list[Any]]) -> None:
        packed = msgpack.packb(rows)
        self._network.reliably(self.node, self._server.node, self._server.take, self, packed)

    def _idle(self, now: float) -> None:
        ways = {(self.node, self._server.node), (self._server.node, self.node)}
        if ways & self._network.cut and now - self._heard_at >= 0.9 * SILENCE_S:
            self.lose("the server owes replies and is silent")

    def answer(self, packed: bytes) -> None:
        if not self.closed:
            self.received(msgpack.unpackb(packed))


class _Syncer(TimedSyncer):
    def close(self) -> None:
        """Nothing is held."""


async def _at_once(call: Callable[[], None]) -> None:
    call()


class SimCluster:
    """Nodes by id, those that live. `crash` is a power loss: what was not synced may be gone."""

    def __init__(self, loop: SimLoop, seed: int, count: int = 3) -> None:
        self.loop, self.count = loop, count
        self.network = SimNetwork(loop, seed)
        self.nodes: dict[int, Node] = {}
        self.failed: list[str] = []
        self._rng = SimRng(seed)
        self._random = random.Random(seed + 1)
        self._disks: dict[tuple[int, str], MemoryEngine] = {}
        self._dead: set[int] = set()

    def _config(self, number: int) -> NodeConfig:
        hosts = [f"node{i}:{PORT}" for i in range(1, self.count + 1)]
        return NodeConfig(
            data=Path(f"node{number}"),
            listen=f"node{number}",
            port=PORT,
            node_id=number,
            join=tuple(hosts),
            cluster_secret="sixteen characters",
            insecure=True,
            engine="memory",
            http=False,
            sql=False,
            transfer_places=("file:///",),
        )

    async def start(self, *numbers: int) -> None:
        wanted = numbers or range(1, self.count + 1)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in wanted:
                self._dead.discard(number)
                ports = Ports(
                    clock=SimClock(self.loop),
                    timers=LoopTimers(self.loop),
                    rng=self._rng,
                    open_engine=partial(self._open_engine, number),
                    syncer=self._syncer,
                    in_thread=_at_once,
                    network=self.network,
                )
                node = self.nodes[number] = await build(self._config(number), ports)
                node.fatal.add_done_callback(partial(self._fatal, number))
                group.create_task(node.start())

    def _syncer(self, engine: Engine) -> _Syncer:
        assert isinstance(engine, MemoryEngine)
        return _Syncer(engine, LoopTimers(self.loop), self._sync_s)

    def _sync_s(self) -> float:
        return SYNC_S * (0.5 + self._random.random())

    def _fatal(self, number: int, done: asyncio.Future[BaseException]) -> None:
        if number not in self._dead:
            self.failed.append(f"node {number}: {done.result()!r}")

    def _open_engine(self, number: int, path: Path, families: Sequence[str]) -> Engine:
        key = number, path.name
        if key not in self._disks:
            self._disks[key] = MemoryEngine(families)
        return self._disks[key]

    def lose_disk(self, number: int, *names: str) -> None:
        """Of a node that is down: it starts with nothing, or without these databases."""
        for name in names or ("state", "log"):
            del self._disks[number, name]

    async def crash(self, number: int) -> None:
        node = self.nodes.pop(number)
        self._dead.add(number)
        for key, disk in self._disks.items():
            if key[0] == number:
                self._disks[key] = disk.crash(self._rng)
        server, peers = node.doors.native, node.store.cluster.transport
        assert isinstance(server, SimServer)
        assert isinstance(peers, SimPeers)
        server.hang_up()
        peers.hang_up()
        node.store.failed = True
        node._fail(Unavailable("killed"))
        node.store.host.close()
        node.master.role(leader=False)
        await node.store.txn._background.cancel()
        await node.stop()

    async def close(self) -> None:
        async with asyncio.TaskGroup() as group:
            for node in self.nodes.values():
                group.create_task(node.stop())
        assert not self.failed, self.failed
