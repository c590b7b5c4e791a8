"""`Mux`: the connections of a node to all its peers, for all its groups; a `PeerTransport` without
sockets (`raft.transport.MuxTransport` adds them, a simulation adds its own).

    host.send ─▶ Lanes ─▶ one write per peer and pass ─▶ … ─▶ FrameReader ─▶ host.receive

What decides is in modules of their own: `wire` (bytes), `handshake` (who may talk), `lanes` (what
is sent first), `peers` (dials, duplicates, silence), `link` (one connection). Here they meet.

Invariants
  * nothing is delivered from within `send`, and nothing before both sides have proved themselves;
  * per peer at most one connection carries messages; `on_up` and `on_down` alternate;
  * what happens on one connection changes no other peer's.

Delivery promises nothing: messages are lost with a connection, and when a lane is full; a message
that was sent before `on_up` may be lost, one that was sent after it arrives before later ones of
its lane.
"""

from __future__ import annotations

import ipaddress
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from raft import handshake
from raft.api import TimerHandle, Timers
from raft.counters import PeerFigures, TransportCounters
from raft.errors import BadConfig
from raft.handshake import Identity, Refusal
from raft.limits import TransportLimits
from raft.link import Link
from raft.log_bound import LogBound
from raft.peers import Address, Peer, PeerBook, PeerRng, Peers

_LOOKS_PER_SILENCE: Final = 4

log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Does this name or address surely not leave the machine?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Dial(Protocol):
    """A socket that is being connected."""

    def cancel(self) -> object: ...


class Mux(ABC):
    """See the module. Set `on_message`, `on_up`, `on_down`; `begin`; `set_peer`; `stop`."""

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
        """`incarnation`: 8 to 32 random bytes, drawn when the node's data directory was made.
        `secret` may be empty as long as nothing leaves the machine. Raises BadConfig.
        """
        self.identity = Identity(cluster=cluster, node=node_id, incarnation=incarnation)
        if not self.identity.valid():
            raise BadConfig(
                f"cluster {cluster!r}, node {node_id}, incarnation of {len(incarnation)} bytes: a "
                f"cluster's name has up to {handshake.NAME_CHARS_MAX} characters, a node's id lies "
                f"in 1..{handshake.NODE_MAX}, an incarnation has 8 to 32 bytes"
            )
        self.secret, self.timers, self.rng = secret, timers, rng
        self.limits = TransportLimits() if limits is None else limits
        self.counters = TransportCounters() if counters is None else counters
        self.look_s = self.limits.silence_ms / 1000 / _LOOKS_PER_SILENCE
        self.book = PeerBook(node_id, peers, self.limits, rng)
        self.on_message: Callable[[int, int, dict[str, object]], object] = _nobody
        self.on_up: Callable[[int], object] = _nobody
        self.on_down: Callable[[int], object] = _nobody
        self._links: dict[int, Link] = {}  # those that have proved themselves, by node
        self._sending: dict[int, Link] = {}  # those of them that are not mute
        self._strangers: dict[Link, None] = {}  # the others, our dials among them
        self._leaving: dict[Link, float] = {}  # ended then, their last bytes on the way
        self._dials: dict[Link, Dial] = {}  # whose socket is not there yet
        self._reported_up: set[int] = set()
        self._logged: dict[int, str] = {}  # why callers were refused, as it is in the log …
        self._lines = LogBound()  # … which anybody can make grow
        self._dirty: list[Link] = []
        self._flushing = False
        self._running = False
        self._look_timer: TimerHandle | None = None
        self._dial_timer: TimerHandle | None = None

    @abstractmethod
    def dial(self, link: Link, address: Address) -> Dial:
        """Begin to connect, and call `link.connection_made` or `dial_failed` later, not from
        within. After `cancel` of what is returned nobody cares any more.
        """

    @abstractmethod
    def new_link(self, dialed: Peer | None) -> Link:
        """A link of the class that the sockets want."""

    # ------------------------------------------------------------------ beginning and end

    def begin(self) -> None:
        """Dial, and look after connections."""
        self._running = True
        self._look_timer = self.timers.call_later(self.look_s, self._look)
        self._arm_dials()

    def stop(self) -> None:
        """Send what waits and end every connection; nothing new is begun."""
        self._running = False
        for timer in (self._look_timer, self._dial_timer):
            if timer is not None:
                timer.cancel()
        self._flush()
        for link in [*self._dials, *self._strangers, *self._links.values()]:
            link.end("this node is stopping")

    def check_secret(self, host: str) -> None:
        """Raises BadConfig if `host` may be reached from elsewhere and there is no secret."""
        if not self.secret and not is_loopback(host):
            raise BadConfig(
                f"{host} may be reached from other machines, so peers must prove that they belong"
                " to the cluster: give all nodes the same cluster_secret"
            )

    # ------------------------------------------------------------------ peers

    def set_peer(self, node: int, address: Address) -> None:
        """Keep a connection with `node`, dialing it at `address`. Raises BadConfig."""
        self.check_secret(address[0])
        self.book.set_address(node, address, self.timers.monotonic())
        self._arm_dials()

    def forget_peer(self, node: int) -> None:
        """Close the connection with a node that was removed, and refuse it until `set_peer`."""
        self.book.remove(node)
        self._drop_dial(node)
        link = self._links.get(node)
        if link is not None:
            link.refuse(self.book.removal(node))

    def block(self, node: int, *, incoming: bool = True, outgoing: bool = True) -> None:
        """Fault injection: throw away what comes from the node, or what goes there, as a broken
        network would. Whoever hears nothing finds out by the silence. Adds to earlier blocks.
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
            refused=peer.refused,
            sent=0 if link is None else link.lanes.sent,
            received=0 if link is None else link.received,
            lost=0 if link is None else link.lanes.lost,
            connections=peer.connections,
        )

    # ------------------------------------------------------------------ PeerTransport

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        """See PeerTransport. Leaves with everything else of this pass of the loop, in one write.

        Raises TypeError, ValueError: a value in the message is not plain data.
        """
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
            self._door(link, link.flush)

    def _door(self, link: Link, door: Callable[[], object]) -> None:
        """One link's part of a pass over all of them: what it raises ends that link."""
        try:
            door()
        except Exception:
            log.exception("node %d: a connection with another node broke", self.identity.node)
            link.end("it met an internal error", abort=True)

    # ------------------------------------------------------------------ called by links

    def opened(self, link: Link) -> bool:
        """See LinkOwner."""
        self._dials.pop(link, None)
        self._strangers[link] = None
        if not self._running:
            link.end("", abort=True)
        elif link.dialed is None and len(self._strangers) > self.limits.strangers_max:
            self._make_room()
        return not link.ended

    def _make_room(self) -> None:
        """The oldest caller of the address that has the most goes: who is silent keeps nobody out,
        a peer needs two round trips.
        """
        callers: dict[str, list[Link]] = {}
        for link in self._strangers:
            if link.dialed is None:
                callers.setdefault(link.address, []).append(link)
        (oldest, *_) = max(callers.values(), key=len)
        oldest.refuse(Refusal(handshake.BUSY, "too many connections in their handshakes"))

    def established(self, link: Link, peer: Peer) -> None:
        """See LinkOwner. The link takes the place of all others with that peer."""
        node = peer.node
        self._strangers.pop(link, None)
        self._drop_dial(node)
        old = self._links.get(node)
        if old is not None:
            old.end("the peer has made a new connection", abort=True)
        self.book.connected(peer, self.timers.monotonic(), dialed=link.dialed is not None)
        self._links[node] = self._sending[node] = link
        self._logged.pop(node, None)
        log.info("node %d: connected with node %d", self.identity.node, node)
        self.changed(peer)

    def _drop_dial(self, node: int) -> None:
        for other in [*self._dials, *self._strangers]:
            if other.dialed is not None and other.dialed.node == node:
                other.end("", abort=True)

    def changed(self, peer: Peer) -> None:
        """See LinkOwner. Tells the owner whether the peer is there, when that changes."""
        node = peer.node
        link = self._links.get(node)
        up = link is not None and not link.silent
        if up == (node in self._reported_up):
            return
        if up:
            self._reported_up.add(node)
            self.on_up(node)
        else:
            self._reported_up.discard(node)
            self.on_down(node)

    def closed(
        self, link: Link, reason: str, refusal: Refusal | None, claimed: Identity | None
    ) -> None:
        """See LinkOwner."""
        self._strangers.pop(link, None)
        dial = self._dials.pop(link, None)
        if dial is not None:
            dial.cancel()
        peer, now_s = link.peer, self.timers.monotonic()
        if not link.gone:
            self._leaving[link] = now_s
        if peer is not None:
            if self._links.get(peer.node) is link:
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
            self._report_caller(link.address, 0 if claimed is None else claimed.node, refusal)
        self._arm_dials()

    def left(self, link: Link) -> None:
        """See LinkOwner."""
        self._leaving.pop(link, None)

    def _report(self, peer: Peer, reason: str) -> None:
        if reason and self.book.report(peer, reason) and self._running:
            me = self.identity.node
            log.warning("node %d: no connection with node %d: %s", me, peer.node, reason)

    def _report_caller(self, address: str, node: int, refusal: Refusal) -> None:
        """Somebody who says to be `node` (0: did not say) called and was refused."""
        if self._logged.get(node) == refusal.text:
            return
        tail = self._lines.tail(address, self.timers.monotonic())
        if tail is None:
            return
        if len(self._logged) >= self.limits.peers_max:
            self._logged.clear()
        self._logged[node] = refusal.text
        who = f"node {node}" if node else "somebody"
        who += f" at {address}" if address else ""
        verb = "refused us" if refusal.by_peer else "was refused"
        me, text = self.identity.node, refusal.text
        log.warning("node %d: %s called and %s: %s%s", me, who, verb, text, tail)

    # ------------------------------------------------------------------ time

    def _look(self) -> None:
        now_s = self.timers.monotonic()
        for link in [*self._dials, *self._strangers, *self._links.values()]:
            self._door(link, partial(link.look, now_s))
        patience_s = self.limits.handshake_ms / 1000
        for link in [link for link, at_s in self._leaving.items() if now_s - at_s > patience_s]:
            link.abort()  # its peer does not read our last words
        if self._running:
            self._look_timer = self.timers.call_later(self.look_s, self._look)

    def _arm_dials(self) -> None:
        """Have the next dial made when it is due."""
        if self._dial_timer is not None:
            self._dial_timer.cancel()
            self._dial_timer = None
        at_s = self.book.next_dial_s()
        if at_s is not None and self._running:
            delay_s = max(0.0, at_s - self.timers.monotonic())
            self._dial_timer = self.timers.call_later(delay_s, self._dial_due)

    def _dial_due(self) -> None:
        self._dial_timer = None
        for peer, address in self.book.due(self.timers.monotonic()):
            link = self.new_link(peer)
            self._dials[link] = self.dial(link, address)
        self._arm_dials()

    def dial_failed(self, link: Link, why: str) -> None:
        """The socket of a dialed link could not be connected."""
        self._dials.pop(link, None)
        link.end(why)


def _nobody(*_arguments: object) -> None:
    """Until the owner says whom to tell."""
