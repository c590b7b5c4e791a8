"""Between the processes: streams of bytes as TCP has them, and consensus messages.

Requests and replies travel as they do in production: `SocketServer`, `MuxConnection` and the frames
are the real ones, only the loop's sockets are not. A stream is in order and complete, or it ends.
What happens to it: delay, pieces cut anywhere, a clog (nothing moves for a while), a one-way cut
(nothing moves until it is healed, and nobody is told), a reset. When a process dies, the others
learn it at once (the system closes its sockets), or only when its machine is back (power loss).

Consensus messages are datagrams here, worse than the production transport: each may be lost,
doubled, late, or overtaken.

Every arrival is written to the trace.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context

from kv.base.ports import Rng, Timers
from kv.client.channels import tcp_connector
from kv.server.socket_server import SocketServer
from kvorum.testing.simulation.life import Life, LivesLoop, State, living
from kvorum.testing.simulation.plan import Chances
from kvorum.testing.simulation.probes import probes
from kvorum.testing.simulation.trace import Trace
from raft import wire
from raft.counters import PeerFigures
from raft.limits import TransportLimits
from raft.peers import Address, Peers

Factory = Callable[[], asyncio.Protocol]
_AGAIN_S = 0.05


class Network:
    """kvorum.local.ports.Network of every node, the loop's sockets, and their faults."""

    server = SocketServer
    connector = staticmethod(tcp_connector)

    def __init__(self, loop: LivesLoop, rng: random.Random, trace: Trace) -> None:
        self.chances = Chances()
        self.cut: set[tuple[int, int]] = set()
        self.clogged_until: dict[tuple[int, int], float] = {}
        self.on_bytes: Callable[[Life, str], object] = lambda _life, _what: None
        """Told of whatever a process writes ("sends") or gets ("gets"), right before it happens."""
        self.loses: Callable[[Life, Life], bool] = lambda _source, _target: False
        """Asked about whatever a process writes to another, after `on_bytes`: true = it does not
        arrive, and the connection is reset.
        """
        self._loop, self._random, self._trace = loop, rng, trace
        self._listening: dict[Address, _Listener] = {}
        self._peers: dict[int, _PeerNet] = {}
        self._streams: dict[int, list[_Stream]] = {}
        self._reset_later: dict[int, list[_Stream]] = {}

    # -- streams: the loop's sockets

    def listen(self, factory: Callable[[], asyncio.Protocol], address: Address) -> _Listener:
        life = living()
        assert life is not None, "a server belongs to a process"
        if address in self._listening:
            raise OSError(98, f"{address} is in use")
        self._listening[address] = made = _Listener(self, life, factory, address)
        return made

    def unlisten(self, listener: _Listener) -> None:
        if self._listening.get(listener.address) is listener:
            del self._listening[listener.address]

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], address: Address
    ) -> tuple[_Stream, asyncio.Protocol]:
        """A connection, after a round trip. Raises ConnectionRefusedError; waits while cut."""
        me = living()
        assert me is not None, "a connection belongs to a process"
        await asyncio.sleep(self._delay_s())
        listener = self._listening.get(address)
        while listener is not None and self._blocked(me.number, listener.life.number):
            await asyncio.sleep(_AGAIN_S)
            listener = self._listening.get(address)
        if listener is None or listener.life.state is State.DEAD:
            raise ConnectionRefusedError(111, f"nobody listens at {address}")
        there = listener.life
        mine, theirs = _Stream(self, me, there), _Stream(self, there, me)
        mine.other, theirs.other = theirs, mine
        for stream in (mine, theirs):
            self._streams.setdefault(stream.life.number, []).append(stream)
        await asyncio.sleep(self._delay_s())
        mine.protocol = factory()
        mine.protocol.connection_made(mine)
        there.enter(theirs.accept, listener.factory)
        return mine, mine.protocol

    def _delay_s(self) -> float:
        chances, random = self.chances, self._random.random
        delay_s = chances.latency_s * (0.2 + random())
        if chances.late and random() < chances.late:
            delay_s += random() ** 3 * chances.late_s
        return delay_s

    def _blocked(self, source: int, target: int) -> bool:
        link = (source, target)
        return link in self.cut or self.clogged_until.get(link, 0.0) > self._loop.time()

    def carry(self, stream: _Stream, what: bytes | None) -> None:
        """Bytes (None: the end) on their way to the other end."""
        moment = max(self._loop.time() + self._delay_s(), stream.arrives_at)
        stream.arrives_at = moment
        self._outside(moment, self._carry, stream, what)

    def _carry(self, stream: _Stream, what: bytes | None) -> None:
        if stream.stalled or self._blocked(stream.life.number, stream.there.number):
            stream.stalled.append(what)
            if len(stream.stalled) == 1:
                self._outside(self._loop.time() + _AGAIN_S, self._unstall, stream)
            return
        self._arrive(stream, what)

    def _unstall(self, stream: _Stream) -> None:
        if self._blocked(stream.life.number, stream.there.number):
            self._outside(self._loop.time() + _AGAIN_S, self._unstall, stream)
            return
        while stream.stalled:
            self._arrive(stream, stream.stalled.popleft())

    def _arrive(self, stream: _Stream, what: bytes | None) -> None:
        other = stream.other
        assert other is not None
        self._trace.message("bytes", stream.life, other.life, what)
        if other.life.state is State.DEAD:
            return
        if what is None:
            other.life.enter(other.lose, ConnectionResetError(104, "reset by the peer"))
        else:
            other.life.enter(other.take, what)

    def _outside(self, moment: float, fn: Callable[..., object], *args: object) -> None:
        """Call in no process' name."""
        self._loop.call_at(moment, fn, *args, context=Context())

    def disconnect(self, a: int, b: int) -> None:
        """Reset the streams between two processes. One end knows it at once; what is on its way to
        the other may still arrive before the end does.
        """
        for stream in self._streams.get(a, ()):
            if stream.there.number != b or stream.lost:
                continue
            other = stream.other
            assert other is not None
            probes.hit("connection lost")
            first, second = (stream, other) if self._random.random() < 0.5 else (other, stream)
            first.life.enter(first.lose, ConnectionResetError(104, "connection lost"))
            if self._random.random() < 0.5:
                second.deaf = True  # else what is on its way arrives before the end
            self.carry(first, None)

    def reset(self, stream: _Stream) -> None:
        """End one connection; what was carried before arrives before the end does."""
        if not stream.lost:
            probes.hit("connection lost")
            stream.deaf = True
            self.carry(stream, None)
            stream.life.enter(stream.lose, ConnectionResetError(104, "connection lost"))

    # -- the end of a process

    def died(self, life: Life, *, told: bool) -> None:
        """Its sockets are gone. `told`: the others learn it now, else when `back` is called."""
        for listener in [at for at in self._listening.values() if at.life is life]:
            self.unlisten(listener)
        if (peers := self._peers.get(life.number)) is not None and peers.life is life:
            peers.hang_up()
        streams = [s for s in self._streams.pop(life.number, []) if not s.lost]
        if told:
            self._reset(streams)
        else:
            self._reset_later.setdefault(life.number, []).extend(streams)

    def back(self, number: int) -> None:
        """The machine is there again: what is sent on old connections is answered by a reset."""
        self._reset(self._reset_later.pop(number, []))

    def _reset(self, streams: list[_Stream]) -> None:
        for stream in streams:
            if stream.other is not None and not stream.other.lost:
                stream.lost = True
                self.carry(stream, None)

    # -- consensus messages: kvorum.local.ports.Network.peers

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
    ) -> _PeerNet:
        life = living()
        assert life is not None
        return _PeerNet(self, node_id, life)

    def enter_peers(self, made: _PeerNet) -> None:
        others = [other for other in self._peers.values() if other.node != made.node]
        self._peers[made.node] = made
        for other in others:
            self._tell_up(made, other.node)
            self._tell_up(other, made.node)

    def _tell_up(self, whom: _PeerNet, of: int) -> None:
        def tell() -> None:
            if whom.open and of in self._peers:
                whom.life.enter(whom.on_up, of)

        self._outside(self._loop.time() + self._delay_s(), tell)

    def leave_peers(self, gone: _PeerNet) -> None:
        if self._peers.get(gone.node) is gone:
            del self._peers[gone.node]
            for other in self._peers.values():
                moment = self._loop.time() + self._delay_s()
                self._outside(moment, other.life.enter, self._down, other, gone.node)

    def _down(self, other: _PeerNet, node: int) -> None:
        if other.open and node not in self._peers:
            other.on_down(node)

    def post(self, source: int, target: int, body: bytes) -> None:
        """One consensus message."""
        chances, random = self.chances, self._random.random
        if (source, target) in self.cut or (chances.drop and random() < chances.drop):
            return
        copies = 1
        if chances.duplicate and random() < chances.duplicate:
            copies = 2
        for _ in range(copies):
            moment = self._loop.time() + self._delay_s()
            moment = max(moment, self.clogged_until.get((source, target), 0.0))
            self._outside(moment, self._deliver, source, target, body)

    def _deliver(self, source: int, target: int, body: bytes) -> None:
        there = self._peers.get(target)
        if there is None or (source, target) in self.cut or there.life.state is State.DEAD:
            return
        self._trace.consensus(source, there.life, body)
        there.life.enter(there.take, source, body)

    def hears(self, node: int, other: int) -> bool:
        """Whether messages of the other arrive here, as far as cuts go."""
        return (other, node) not in self.cut

    def living_peers(self) -> list[int]:
        return sorted(self._peers)

    def isolate(self, number: int, others: list[int]) -> None:
        for other in others:
            if other != number:
                self.cut |= {(number, other), (other, number)}

    def heal(self) -> None:
        self.cut.clear()
        self.clogged_until.clear()
        self.chances = Chances()


class _Listener:
    """What `loop.create_server` returns."""

    def __init__(
        self,
        network: Network,
        life: Life,
        factory: Callable[[], asyncio.Protocol],
        address: Address,
    ) -> None:
        self.life, self.factory, self.address = life, factory, address
        self.sockets = (self,)
        self._network = network

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        self._network.unlisten(self)

    async def wait_closed(self) -> None: ...


class _Stream(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, life: Life, there: Life) -> None:
        super().__init__()
        self.life, self.there = life, there
        self.other: _Stream | None = None
        self.protocol: asyncio.Protocol | None = None
        self.arrives_at = 0.0
        self.stalled: deque[bytes | None] = deque()
        self.lost = False
        """This end is told, or needs not be."""
        self.deaf = False
        """Nothing arrives any more."""
        self._network = network
        self._early: list[bytes] = []
        self._reading = True

    def accept(self, factory: Callable[[], asyncio.Protocol]) -> None:
        if self.lost:
            return
        self.protocol = factory()
        self.protocol.connection_made(self)
        self._give()

    def take(self, data: bytes) -> None:
        if self.lost or self.deaf:
            return
        self._network.on_bytes(self.life, "gets")
        if self.life.state is State.DEAD:
            return
        pieces = self._network.chances.pieces
        random = self._network._random
        if pieces and len(data) > 1 and random.random() < pieces:
            at = random.randrange(1, len(data))
            self._early += [data[:at], data[at:]]
        else:
            self._early.append(data)
        self._give()

    def _give(self) -> None:
        while self._early and self._reading and self.protocol is not None and not self.lost:
            self.protocol.data_received(self._early.pop(0))

    def lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = True
            if self.protocol is not None:
                self.protocol.connection_lost(error)

    # -- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.lost or self.deaf:
            return
        self._network.on_bytes(self.life, "sends")
        if self.life.state is State.DEAD:
            return
        if self._network.loses(self.life, self.there):
            self._network.reset(self)
        else:
            self._network.carry(self, bytes(data))

    def abort(self) -> None:
        if not self.lost:
            self.deaf = True
            self._network.carry(self, None)
            self.life.enter(self.lose, None)

    close = abort

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.lost or self.deaf

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.life.enter(self._give)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class _PeerNet:
    """kvorum.local.ports.PeerNet."""

    def __init__(self, network: Network, node: int, life: Life) -> None:
        self.node, self.life = node, life
        self.open = False
        self.on_message: Callable[[int, int, dict[str, object]], object]
        self.on_up: Callable[[int], object]
        self.on_down: Callable[[int], object]
        self._network = network

    async def start(self, host: str, port: int) -> int:
        self.open = True
        self._network.enter_peers(self)
        return port

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        if self.open:
            body = wire.messages_body([wire.pack_message(group_id, message)])
            self._network.post(self.node, peer, body)

    def take(self, source: int, body: bytes) -> None:
        if self.open:
            self._network.on_bytes(self.life, "hears")
            if self.life.state is not State.DEAD:
                for group_id, message in wire.read_messages(body):
                    self.on_message(source, group_id, message)

    def room(self, peer: int) -> bool:
        return True

    def set_peer(self, node: int, address: Address) -> None: ...

    def forget_peer(self, node: int) -> None: ...

    def block(self, node: int, *, incoming: bool = True, outgoing: bool = True) -> None: ...

    def unblock(self, node: int) -> None: ...

    def figures(self) -> Mapping[int, PeerFigures]:
        net = self._network
        return {
            node: _figures(silent=not net.hears(self.node, node))
            for node in net.living_peers()
            if node != self.node
        }

    def hang_up(self) -> None:
        self.open = False
        self._network.leave_peers(self)

    async def close(self) -> None:
        self.hang_up()


def _figures(*, silent: bool) -> PeerFigures:
    return PeerFigures(
        address=None,
        connected=True,
        silent=silent,
        queued_bytes=0,
        rtt_ms=None,
        trouble=None,
        refused=None,
        sent=0,
        received=0,
        lost=0,
        connections=1,
    )
