"""`MuxTransport`: one TCP connection per pair of nodes for all groups; a `PeerTransport` on the
node's event loop.

    host.send ─▶ Lanes ─▶ one write per peer and pass ─▶ socket ─▶ FrameReader ─▶ host.receive

Everything that decides is beside this file and pure: `wire` (bytes), `handshake` (who may talk),
`lanes` (what is sent first), `peers` (dials, duplicates, silence). Here are sockets and timers.

Invariants
  * nothing is delivered from within `send`, and nothing before both sides have proved themselves;
  * bytes that are not the protocol cost their sender its connection, are counted, and nothing else;
  * a peer is up at most once at a time: `on_up`, `on_down` alternate per peer.

Delivery promises nothing: messages are lost with a connection, and when a lane is full. Left out:
TLS (a listener and a dialer with an ssl context are all that is needed), discovery of addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from raft import handshake, wire
from raft.api import TimerHandle, Timers
from raft.errors import BadConfig
from raft.handshake import BODY_BYTES_MAX, NONCE_BYTES, Handshake, Identity, Refusal
from raft.lanes import Lanes
from raft.limits import TransportLimits
from raft.peers import Address, Peer, PeerBook, PeerRng, Peers, Pulse
from raft.wire import (
    FRAME_BYTES_MAX,
    LAST,
    MESSAGES,
    PART,
    PING,
    PONG,
    FrameReader,
    Malformed,
    frame,
    read_messages,
)

_LOOKS_PER_SILENCE: Final = 4
_RTT_LOOKS: Final = 8  # a ping for its round trip at least every so many looks
_GOODBYE_S: Final = 0.5
_GOODBYE_LOOK_S: Final = 0.01

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TransportCounters:
    """Figures of one transport since it was built; the owner exports them."""

    frames_in: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    writes: int = 0
    bytes_out: int = 0
    malformed: int = 0
    """Connections that ended because of bytes that are not the protocol."""
    refused: int = 0
    """Connections that we refused."""
    unreachable: int = 0
    """Messages to peers without a connection: lost."""
    timeouts: int = 0
    """Connections given up after a silence, or in their handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures:
    """How one peer stands."""

    address: Address | None
    connected: bool
    silent: bool
    queued_bytes: int
    """Waiting to be sent, what the socket holds included."""
    rtt_ms: float | None
    """Of the last ping, loop to loop."""
    trouble: str | None
    """Why there is no connection: the last reason that either side gave."""
    sent: int
    received: int
    lost: int
    """Messages on the present connection: queued, delivered, dropped because a lane was full."""
    connections: int


class _Link(asyncio.BufferedProtocol):
    """One connection, from its first byte to its end."""

    __slots__ = (
        "_handshake",
        "_long",
        "_owner",
        "_reader",
        "_transport",
        "dialed",
        "dirty",
        "ended",
        "lanes",
        "made_s",
        "peer",
        "pulse",
        "received",
        "rtt_looks",
        "rtt_s",
        "silent",
    )

    def __init__(self, owner: MuxTransport, dialed: Peer | None) -> None:
        self._owner = owner
        self.dialed = dialed
        self.peer: Peer | None = None  # set with the proof
        self.made_s = owner.timers.monotonic()
        self.lanes = Lanes(owner.limits)
        self.dirty = self.ended = self.silent = False
        self.received = 0
        self.rtt_s: float | None = None
        self.rtt_looks = 0
        self.pulse = Pulse(owner.look_s, self.made_s)
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(BODY_BYTES_MAX)
        self._long = bytearray()  # the parts of a long message
        self._handshake = Handshake(
            owner.identity,
            owner.secret,
            nonce=owner.rng.token(NONCE_BYTES),
            dialer=dialed is not None,
            target=0 if dialed is None else dialed.node,
        )

    # ------------------------------------------------------------------ asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.ended:  # given up while it was being made
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._owner.limits.socket_bytes_high)
        _tune(self._transport, self._owner.limits.socket_bytes_high)
        if self._owner.opened(self) and self.dialed is not None:
            self._write(self._handshake.hello())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        owner = self._owner
        owner.counters.bytes_in += nbytes
        self.pulse.heard = True
        try:
            for kind, body in self._reader.received(nbytes):
                owner.counters.frames_in += 1
                if self.peer is None:
                    self._greet(kind, bytes(body))
                elif kind == MESSAGES:
                    self._deliver(body)
                else:
                    self._other(kind, body)
                if self.ended:
                    return
        except Refusal as refusal:
            self.refuse(refusal)
        except Malformed as error:
            owner.counters.malformed += 1
            self.refuse(Refusal(handshake.PROTOCOL, f"malformed: {error}"))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.end(f"the connection broke: {error}" if error else "the peer closed the connection")
        self._owner.left(self)

    def pause_writing(self) -> None:
        self.lanes.held = True

    def resume_writing(self) -> None:
        self.lanes.held = False
        self.pump()

    # ------------------------------------------------------------------ in

    def _greet(self, kind: int, body: bytes) -> None:
        answer = self._handshake.receive(kind, body)
        owner, dialed, who = self._owner, self.dialed, self._handshake.peer
        if dialed is not None and self._handshake.heard is not None:
            dialed.answered = True
        if answer:
            self._write(answer)
        if who is None:
            return
        now_s = owner.timers.monotonic()
        peer = owner.book.check(who) if dialed is not None else owner.book.admit(who, now_s)
        if peer.blocked:
            self.end("", abort=True)
            return
        if dialed is None:
            self._write(self._handshake.confirm())
        self._reader.body_bytes_max = FRAME_BYTES_MAX
        self.peer = peer
        owner.established(self, peer)

    def _deliver(self, body: memoryview | bytearray) -> None:
        rows = read_messages(body)
        peer, owner = self.peer, self._owner
        assert peer is not None, "messages come after the proofs"
        if peer.deaf:
            return
        self.received += len(rows)
        owner.counters.messages_in += len(rows)
        deliver, node = owner.on_message, peer.node
        for group_id, message in rows:
            deliver(node, group_id, message)

    def _other(self, kind: int, body: memoryview) -> None:
        peer = self.peer
        assert peer is not None
        if kind in (PART, LAST):
            self._long += body
            if len(self._long) > self._owner.limits.message_bytes_max:
                raise Malformed(f"a message of more than {len(self._long)} bytes")
            if kind == LAST:
                whole, self._long = self._long, bytearray()
                self._deliver(whole)
        elif kind == PING:
            if len(body) != 8:
                raise Malformed(f"a ping of {len(body)} bytes")
            if not peer.blocked:
                self._write(frame(PONG, body))
        elif kind == PONG:
            if len(body) != 8:
                raise Malformed(f"a pong of {len(body)} bytes")
            sent_us = int.from_bytes(body, "little")
            self.rtt_s = max(0.0, self._owner.timers.monotonic() - sent_us / 1e6)
        elif kind == wire.REFUSED:
            raise handshake.read_refusal(body)
        else:
            raise Malformed(f"frame of kind {kind}")

    # ------------------------------------------------------------------ out

    def socket_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def flush(self) -> None:
        """Write what this pass added, then bulk while the socket takes it."""
        self.dirty = False
        frames = self.lanes.take_pass()
        if frames:
            self._write(frames)
        self.pump()

    def pump(self) -> None:
        lanes = self.lanes
        while not lanes.held and (bulk := lanes.take_bulk()):
            self._write(bulk)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self.ended:
            return
        counters = self._owner.counters
        counters.writes += 1
        counters.bytes_out += len(data)
        self.pulse.said = True
        transport.write(data)

    # ------------------------------------------------------------------ time and end

    def look(self, now_s: float) -> None:
        """Every quarter of a silence: is the peer there, and does it know that we are?"""
        limits, owner, pulse = self._owner.limits, self._owner, self.pulse
        if self.peer is None:
            if (now_s - self.made_s) * 1000 > limits.handshake_ms:
                owner.counters.timeouts += 1
                self.end("no answer within the time of a handshake", abort=True)
            return
        if self.peer.deaf:
            pulse.heard = False
        ping = pulse.look(now_s)
        self.rtt_looks += 1
        if (ping or self.rtt_looks >= _RTT_LOOKS) and not self.peer.mute:
            self.rtt_looks = 0
            self._write(frame(PING, int(now_s * 1e6).to_bytes(8, "little")))
        quiet_ms = pulse.quiet_s * 1000
        if quiet_ms >= limits.dead_ms:
            owner.counters.timeouts += 1
            self.end(f"nothing came for {quiet_ms:.0f} ms", abort=True)
        elif self.silent != (quiet_ms >= 0.9 * limits.silence_ms):
            self.silent = not self.silent
            owner.changed(self.peer)

    def abort(self) -> None:
        """Let go of the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, refusal: Refusal) -> None:
        """Tell the peer why, unless it told us, and close."""
        if self.ended:
            return
        if not refusal.by_peer:
            self._owner.counters.refused += 1
            self._write(refusal.frame())
        self.end(refusal.text, refusal=refusal)

    def end(self, reason: str, *, refusal: Refusal | None = None, abort: bool = False) -> None:
        """Once; whatever is still called afterwards does nothing."""
        if self.ended:
            return
        self.ended = True
        self.lanes.clear()
        self._long = bytearray()
        if self._transport is not None:
            if abort:
                self._transport.abort()
            else:
                self._transport.close()
        self._owner.closed(self, reason, refusal, self._handshake.heard)

    @property
    def gone(self) -> bool:
        return self._transport is None


def _tune(transport: asyncio.Transport, unsent_bytes: int) -> None:
    """No Nagle; and let the kernel take no more than it can send soon, for what it holds nobody can
    overtake.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)


def is_loopback(host: str) -> bool:
    """Does this name or address surely not leave the machine?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class MuxTransport:
    """See the module. Set `on_message` (and `on_up`, `on_down`), `start`, `set_peer`; then `close`.

    Everything is called on the loop.
    """

    def __init__(
        self,
        *,
        cluster: str,
        node_id: int,
        incarnation: bytes,
        secret: bytes,
        timers: Timers,
        rng: PeerRng,
        peers: Peers,
        limits: TransportLimits | None = None,
        counters: TransportCounters | None = None,
    ) -> None:
        """`secret` may be empty as long as nothing leaves the machine. Raises BadConfig."""
        self.identity = Identity(cluster=cluster, node=node_id, incarnation=incarnation)
        if not self.identity.valid():
            raise BadConfig(
                f"cluster {cluster!r}, node {node_id}, incarnation of {len(incarnation)} bytes: a "
                f"cluster's name has up to {handshake.NAME_CHARS_MAX} characters, a node's id lies "
                f"in 1..{handshake.NODE_MAX}, an incarnation has 8 to 32 bytes"
            )
        self.secret = secret
        self.timers, self.rng = timers, rng
        self.limits = TransportLimits() if limits is None else limits
        self.counters = TransportCounters() if counters is None else counters
        self.look_s = self.limits.silence_ms / 1000 / _LOOKS_PER_SILENCE
        self.book = PeerBook(node_id, peers, self.limits, rng)
        self.on_message: Callable[[int, int, dict[str, Any]], object] = _nobody
        self.on_up: Callable[[int], object] = _nobody
        self.on_down: Callable[[int], object] = _nobody
        self._links: dict[int, _Link] = {}  # connections that have proved themselves, by node
        self._sending: dict[int, _Link] = {}  # those of them that are not mute
        self._strangers: dict[_Link, None] = {}  # the others, our dials among them
        self._leaving: set[_Link] = set()  # ended, their last bytes on the way
        self._told_up: set[int] = set()
        self._dirty: list[_Link] = []
        self._flushing = False
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None
        self._look_timer: TimerHandle | None = None
        self._dial_timer: TimerHandle | None = None
        self._closed = False
        self._told: dict[int, str] = {}  # callers that were refused, and why, as it is in the log

    # ------------------------------------------------------------------ beginning and end

    async def start(self, host: str, port: int) -> int:
        """Listen and dial; the port (of `port` 0: the one that was given). Raises BadConfig."""
        self._check_secret(host)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Link(self, None), host, port)
        except OSError as error:
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or error
            raise BadConfig(
                f"cannot listen for peers on {host}:{port}: {why}; stop who uses it, or choose"
                " another address"
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        self._look_timer = self.timers.call_later(self.look_s, self._look)
        self._arm_dials()
        return bound

    async def close(self) -> None:
        """Stop listening and dialing; what was sent before is written, if peers take it soon."""
        self._closed = True
        for timer in (self._look_timer, self._dial_timer):
            if timer is not None:
                timer.cancel()
        if self._server is not None:
            self._server.close()
        for task in self._dials.values():
            task.cancel()
        if self._dials:
            await asyncio.wait(self._dials.values())
        self._flush()
        for link in [*self._strangers, *self._links.values()]:
            link.end("this node is stopping")
        patience = round(_GOODBYE_S / _GOODBYE_LOOK_S)
        while patience and not all(link.gone for link in self._leaving):
            patience -= 1
            await asyncio.sleep(_GOODBYE_LOOK_S)
        for link in self._leaving:
            link.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def _check_secret(self, host: str) -> None:
        if not self.secret and not is_loopback(host):
            raise BadConfig(
                f"{host} may be reached from other machines, so peers must prove that they belong"
                " to the cluster: give all nodes the same cluster_secret"
            )

    # ------------------------------------------------------------------ peers

    def set_peer(self, node: int, address: Address) -> None:
        """Keep a connection to `node`, dialing it at `address`. Raises BadConfig."""
        self._check_secret(address[0])
        self.book.set_address(node, address, self.timers.monotonic())
        self._arm_dials()

    def forget_peer(self, node: int) -> None:
        """Close the connection to a node that was removed, and refuse it from now on."""
        self.book.remove(node)
        link = self._links.get(node)
        if link is not None:
            link.refuse(self.book.removal(node))

    def block(self, node: int, *, incoming: bool = True, outgoing: bool = True) -> None:
        """Fault injection: throw away what comes from the node, or what goes there, as a broken
        network would. The node, or both, find out by the silence.
        """
        peer = self.book.get(node)
        peer.deaf, peer.mute = peer.deaf or incoming, peer.mute or outgoing
        if peer.mute:
            self._sending.pop(node, None)

    def unblock(self, node: int) -> None:
        """Heal what `block` cut."""
        peer = self.book.get(node)
        peer.deaf = peer.mute = False
        if node in self._links:
            self._sending[node] = self._links[node]
        self._arm_dials()

    def figures(self) -> dict[int, PeerFigures]:
        """How each known peer stands, by node."""
        return {peer.node: self._figures(peer) for peer in self.book.all()}

    def _figures(self, peer: Peer) -> PeerFigures:
        link = self._links.get(peer.node)
        rtt_s = None if link is None else link.rtt_s
        return PeerFigures(
            address=peer.address,
            connected=link is not None,
            silent=link is not None and link.silent,
            queued_bytes=0 if link is None else link.lanes.queued_bytes + link.socket_bytes(),
            rtt_ms=None if rtt_s is None else round(rtt_s * 1000, 3),
            trouble=peer.trouble,
            sent=0 if link is None else link.lanes.sent,
            received=0 if link is None else link.received,
            lost=0 if link is None else link.lanes.lost,
            connections=peer.connections,
        )

    # ------------------------------------------------------------------ PeerTransport

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        """See PeerTransport. Leaves with everything else of this pass of the loop, in one write."""
        link = self._sending.get(peer)
        if link is None:
            self.counters.unreachable += 1
            return
        lanes = link.lanes
        lanes.add(group_id, message, link.socket_bytes() if lanes.held else 0)
        if not link.dirty:
            link.dirty = True
            self._dirty.append(link)
            if not self._flushing:
                self._flushing = True
                self.timers.call_soon(self._flush)

    def room(self, peer: int) -> bool:
        """See PeerTransport: False also while the peer is not there, or silent."""
        link = self._sending.get(peer)
        return link is not None and not link.silent and link.lanes.room()

    def _flush(self) -> None:
        self._flushing = False
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            link.flush()

    # ------------------------------------------------------------------ called by connections

    def opened(self, link: _Link) -> bool:
        """A connection was made; False if it was refused."""
        self._strangers[link] = None
        if self._closed:
            link.end("", abort=True)
        elif link.dialed is None and len(self._strangers) > self.limits.strangers_max:
            link.refuse(Refusal(handshake.BUSY, "too many connections in their handshakes"))
        return not link.ended

    def established(self, link: _Link, peer: Peer) -> None:
        """A connection has proved itself and takes the place of all others to that peer."""
        node = peer.node
        self._strangers.pop(link, None)
        for stranger in [other for other in self._strangers if other.dialed is peer]:
            stranger.end("", abort=True)
        dial = self._dials.get(node)
        if dial is not None and link.dialed is None:
            dial.cancel()
        old = self._links.get(node)
        if old is not None:
            old.end("the peer has made a new connection", abort=True)
        self.book.connected(peer, self.timers.monotonic(), dialed=link.dialed is not None)
        self._links[node] = self._sending[node] = link
        self._told.pop(node, None)
        log.info("node %d: connected with node %d", self.identity.node, node)
        self.changed(peer)

    def changed(self, peer: Peer) -> None:
        """Tell the owner if the peer came up or went down."""
        node = peer.node
        link = self._links.get(node)
        up = link is not None and not link.silent
        if up == (node in self._told_up):
            return
        if up:
            self._told_up.add(node)
            self.on_up(node)
        else:
            self._told_up.discard(node)
            self.on_down(node)

    def closed(
        self, link: _Link, reason: str, refusal: Refusal | None, claimed: Identity | None
    ) -> None:
        """A connection ended. `reason` "": nobody needs to know."""
        self._strangers.pop(link, None)
        if not link.gone:
            self._leaving.add(link)
        now_s = self.timers.monotonic()
        peer = link.peer
        if peer is not None and self._links.get(peer.node) is link:
            del self._links[peer.node]
            self._sending.pop(peer.node, None)
            self.book.disconnected(peer, now_s)
            self._report(peer, reason)
            self.changed(peer)
        elif link.dialed is not None:
            self.book.dial_ended(link.dialed, now_s, refusal)
            if refusal is None or refusal.code != handshake.DUPLICATE:
                self._report(link.dialed, reason)
        elif refusal is not None and refusal.code != handshake.DUPLICATE:
            self._report_caller(0 if claimed is None else claimed.node, refusal)
        self._arm_dials()

    def left(self, link: _Link) -> None:
        """The socket of an ended connection is gone."""
        self._leaving.discard(link)

    def _report(self, peer: Peer, reason: str) -> None:
        if reason and self.book.report(peer, reason) and not self._closed:
            log.warning(
                "node %d: no connection with node %d: %s", self.identity.node, peer.node, reason
            )

    def _report_caller(self, node: int, refusal: Refusal) -> None:
        """Somebody who says to be `node` (0: did not say) called and was refused."""
        if self._told.get(node) == refusal.text:
            return
        if len(self._told) >= self.limits.peers_max:
            self._told.clear()
        self._told[node] = refusal.text
        who = f"node {node}" if node else "somebody"
        verb = "refused us" if refusal.by_peer else "was refused"
        log.warning("node %d: a caller, %s, %s: %s", self.identity.node, who, verb, refusal.text)

    # ------------------------------------------------------------------ time

    def _look(self) -> None:
        now_s = self.timers.monotonic()
        for link in [*self._strangers, *self._links.values()]:
            link.look(now_s)
        if not self._closed:
            self._look_timer = self.timers.call_later(self.look_s, self._look)

    def _arm_dials(self) -> None:
        """Have the next dial made when it is due."""
        if self._server is None or self._closed:
            return
        if self._dial_timer is not None:
            self._dial_timer.cancel()
            self._dial_timer = None
        at_s = self.book.next_dial_s()
        if at_s is not None:
            delay_s = max(0.0, at_s - self.timers.monotonic())
            self._dial_timer = self.timers.call_later(delay_s, self._dial_due)

    def _dial_due(self) -> None:
        self._dial_timer = None
        loop = asyncio.get_running_loop()
        for peer, address in self.book.due(self.timers.monotonic()):
            name = f"dial node {peer.node}"
            self._dials[peer.node] = loop.create_task(self._dial(peer, address), name=name)
        self._arm_dials()

    async def _dial(self, peer: Peer, address: Address) -> None:
        """Reach the peer's socket; what follows is the connection's work."""
        link = _Link(self, peer)
        try:
            async with asyncio.timeout(self.limits.handshake_ms / 1000):
                await asyncio.get_running_loop().create_connection(lambda: link, *address)
        except (OSError, TimeoutError) as error:
            number = getattr(error, "errno", None) or 0
            why = os.strerror(number) if number > 0 else str(error) or "no answer"
            link.end(f"cannot reach {address[0]}:{address[1]}: {why}")
        except asyncio.CancelledError:
            link.end("", abort=True)
            raise
        finally:
            if self._dials.get(peer.node) is asyncio.current_task():
                del self._dials[peer.node]


def _nobody(*_arguments: object) -> None:
    """Until the owner says whom to tell."""
