"""The doors of a node to the outside, as one value: what `build(config, ports)` takes.

Production passes `system_ports(loop)`; a simulation passes virtual time, a crash-able memory engine
and a network of its own: between nodes go consensus messages (`peers`) and requests (`connector`,
`server`), and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kv.base.adapters import LoopTimers, SystemClock, SystemRng, cpu_seconds, thread_seconds
from kv.base.connection_slots import Seats
from kv.base.credentials import NONE, Credential
from kv.base.errors import KvorumError
from kv.base.ports import Clock, Rng, Timers
from kv.base.rights import Identity
from kv.base.spoken_time import ServersTime, Time
from kv.base.steady_clock import SteadyClock
from kv.base.tls import Tls, node_tls
from kv.client.channels import Connector, tcp_connector
from kv.server.connection_rights import Deputy, Gate, Named
from kv.server.socket_server import SocketServer, Submitter
from kv.storage.engine import Engine
from kv.storage.log import SyncDone, ThreadSyncer
from kv.storage.open_engine import EngineKind, open_engine
from kvorum.local.blocking_calls import Outside
from raft.api import PeerTransport
from raft.counters import PeerFigures
from raft.limits import TransportLimits
from raft.peers import Address, Peers
from raft.transport import MuxTransport

Loop = Callable[[], Coroutine[object, None, None]]
"""Work of a node's own, until it is cancelled."""


class Syncer(Protocol):
    """raft.api.Syncer that can be ended."""

    def start(self, done: SyncDone) -> None: ...

    def close(self) -> None: ...


class PeerNet(PeerTransport, Protocol):
    """raft.mux.Mux with sockets, or what takes their place."""

    on_message: Callable[[int, int, dict[str, object]], object]
    on_up: Callable[[int], object]
    on_down: Callable[[int], object]

    async def start(self, host: str, port: int) -> int: ...

    def set_peer(self, node: int, address: Address) -> None: ...

    def forget_peer(self, node: int) -> None: ...

    def block(self, node: int, *, incoming: bool = True, outgoing: bool = True) -> None: ...

    def unblock(self, node: int) -> None: ...

    def figures(self) -> Mapping[int, PeerFigures]: ...

    async def close(self) -> None: ...


class Server(Protocol):
    """kv.server.socket_server.SocketServer."""

    own_secret: bytes
    believes: Callable[[], bool]
    on_login: Callable[[str, Identity, KvorumError | None], object]

    async def start(self, host: str, port: int) -> int: ...

    def cut(self, nodes: Iterable[int]) -> None: ...

    def review(self) -> None: ...

    async def close(self) -> None: ...


class Network(Protocol):
    """Between this node and the others."""

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
    ) -> PeerNet:
        """Consensus messages; see raft.mux.Mux."""
        ...

    def connector(
        self,
        timers: Timers,
        cluster: str,
        node: int,
        credential: Credential = NONE,
        *,
        time: Time | None = None,
    ) -> Connector:
        """Links of this node's clients; see kv.client.channels.tcp_connector."""
        ...

    def server(
        self,
        dispatcher: Submitter,
        timers: Timers,
        *,
        cluster: str,
        node: int,
        incarnation: bytes,
        seats: Seats,
        secret: bytes,
        rng: Rng,
        gate: Gate,
        starts_at: Callable[[int], bytes | None],
        named: Named,
        deputy: Deputy,
        time: ServersTime | None,
    ) -> Server:
        """The native port; see kv.server.socket_server.SocketServer."""
        ...


class Sockets:
    """The real network, in the clear or with TLS."""

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls
        self.server = partial(SocketServer, tls=tls)
        self.connector = partial(tcp_connector, tls=tls)

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
    ) -> PeerNet:
        """See Network."""
        mux = MuxTransport(
            cluster=cluster,
            node_id=node_id,
            incarnation=incarnation,
            secret=secret,
            timers=timers,
            rng=rng,
            peers=peers,
            limits=limits,
        )
        mux.tls = self._tls
        return mux


if TYPE_CHECKING:  # a node without procedures of users needs none of it
    from procedures.engine.registry import ProcedureType
    from procedures.engine.runner import Runner


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that a node does not decide itself."""

    clock: Clock
    timers: Timers
    rng: Rng
    open_engine: Callable[[Path, Sequence[str]], Engine]
    """The database in a directory, with these families. See kv.storage.open_engine."""
    syncer: Callable[[Engine], Syncer]
    """Makes the log durable beside the loop."""
    in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    """Runs a call that releases the GIL beside the loop."""
    outside: Callable[[Callable[[], None]], Awaitable[None]] | None = None
    """The same for a call that waits for others, perhaps for long; None: as `in_thread`."""
    network: Network = field(default_factory=Sockets)
    cpu_s: Callable[[], float] = lambda: 0.0
    """Seconds of CPU that this process has used; a simulation has none."""
    loop_s: Callable[[], float] = lambda: 0.0
    """The same of the thread that calls, its loop's."""
    tls: Tls | None = None
    """Of HTTP and SQL; `network` has its own, the same."""
    seats: Seats = field(default_factory=Seats)
    """Of clients' connections, over all ports of the process."""
    steps: Callable[[Sequence[str]], Runner] | None = None
    """Calls the steps of these modules; None: the node does, on its loop and in its threads."""
    procedures: Sequence[ProcedureType] = ()
    """What the node offers beside the procedures of its modules."""


def secured(ports: Ports, tls_dir: str) -> Ports:
    """With TLS on every port, if there is a directory for it. Raises InvalidArgument."""
    if not tls_dir:
        return ports
    tls = node_tls(tls_dir)
    return replace(ports, tls=tls, network=Sockets(tls))


def system_ports(loop: asyncio.AbstractEventLoop, engine: EngineKind = "rocks") -> Ports:
    """The real machine; `engine` "memory" keeps nothing beyond the process."""
    return Ports(
        clock=SteadyClock(SystemClock()),
        timers=LoopTimers(loop),
        rng=SystemRng(),
        open_engine=lambda path, families: open_engine(engine, path, families),
        syncer=lambda engine: ThreadSyncer(engine, loop),
        in_thread=asyncio.to_thread,
        outside=Outside(),
        cpu_s=cpu_seconds,
        loop_s=thread_seconds,
    )
