"""Whom a node knows, whom it calls when, and which of two connections to the same peer stays. Pure:
time and chance are arguments, connections are opaque.

Both sides may dial: behind some firewalls only one can. The node with the lower id dials first, the
other one a little later, so that usually there is one connection. If two meet:

  * both are in their handshakes: the one dialed by the lower id stays, as soon as it is known to be
    alive (its listener has answered); until then the other one may win;
  * one is up: the new one replaces it, because its dialer does not dial while it has a connection,
    so it has lost it (it was restarted, or its end of the connection broke). Only the lower id
    keeps a connection that it has dialed itself just now: there the new one is the other's dial of
    the same moment, on its way since before.

Both rules look only at what both sides see the same way, so they never close both connections.

Invariants
  * an incarnation is learned once per node, after its proof, and never changes;
  * at most one dial per peer is under way, none to a peer that is connected, blocked or removed;
  * a reason is reported as changed once, however often the attempt is repeated.

Left out: finding addresses (the owner says where peers are).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from raft.api import Rng
from raft.errors import BadConfig
from raft.handshake import BUSY, DUPLICATE, REMOVED, WRONG_INCARNATION, Identity, Refusal
from raft.limits import TransportLimits

Address = tuple[str, int]


class PeerRng(Rng, Protocol):
    """Chance for jitter, and for nonces that nobody can guess."""

    def token(self, n_bytes: int) -> bytes: ...


class Peers(Protocol):
    """Where known incarnations are kept."""

    def load(self) -> Mapping[int, bytes]:
        """Incarnations by node, as they were saved."""
        ...

    def save(self, node: int, incarnation: bytes) -> None:
        """Keep it; durable at the latest with the next sync of the log."""
        ...


@dataclass(slots=True)
class Peer:
    """What we know of one other node."""

    node: int
    address: Address | None = None
    incarnation: bytes | None = None
    removed: bool = False
    deaf: bool = False
    """What it sends is thrown away (a cut, made for tests)."""
    mute: bool = False
    """What we send to it is thrown away."""
    attempts: int = 0
    """Dials since the last connection that lasted."""
    dial_at_s: float = 0.0
    dialing: bool = False
    answered: bool = False
    """The dial that is under way reached a node of ours."""
    connected: bool = False
    dialed: bool = False
    """The connection is our dial."""
    since_s: float = 0.0
    connections: int = 0
    trouble: str | None = None
    """Why there is no connection, in the words of whoever refused it."""
    refused: str | None = None
    """The code with which it refused our last dial that it answered."""

    @property
    def blocked(self) -> bool:
        return self.deaf or self.mute

    @property
    def wanted(self) -> bool:
        """There should be a connection, and nobody is about to make one."""
        taken = self.connected or self.dialing
        return self.address is not None and not taken and not self.blocked


class PeerBook:
    """See the module. `me` is this node."""

    def __init__(self, me: int, peers: Peers, limits: TransportLimits, rng: Rng) -> None:
        self._me, self._store, self._limits, self._rng = me, peers, limits, rng
        self._peers: dict[int, Peer] = {}
        for node, incarnation in sorted(peers.load().items()):
            self._peers[node] = Peer(node, incarnation=incarnation)

    # ------------------------------------------------------------------ whom we know

    def get(self, node: int) -> Peer:
        """The peer, made if it is new. Raises BadConfig: too many."""
        peer = self._peers.get(node)
        if peer is None:
            if len(self._peers) >= self._limits.peers_max:
                raise BadConfig(f"more than peers_max = {self._limits.peers_max} peers are known")
            peer = self._peers[node] = Peer(node)
        return peer

    def all(self) -> list[Peer]:
        return [self._peers[node] for node in sorted(self._peers)]

    def set_address(self, node: int, address: Address, now_s: float) -> None:
        """Dial the peer there from now on. Raises BadConfig."""
        if node == self._me:
            raise BadConfig(f"node {node} is this node; it has no connection with itself")
        if not address[0] or not 0 < address[1] < 65536:
            raise BadConfig(f"node {node} cannot be at {address[0]!r}, port {address[1]}")
        peer = self.get(node)
        if peer.removed or peer.address != address:
            peer.removed, peer.address = False, address
            peer.attempts, peer.dial_at_s = 0, self._soon(peer, now_s)

    def remove(self, node: int) -> None:
        """Neither dial it nor let it in, until it gets an address again."""
        peer = self.get(node)
        peer.removed, peer.address = True, None

    def removal(self, node: int) -> Refusal:
        return Refusal(
            REMOVED,
            f"node {node} was removed from the cluster: stop it,"
            " and let it join under a new id with an empty directory",
        )

    def check(self, who: Identity) -> Peer:
        """The peer that has proved to be `who`; its incarnation is learned. Raises Refusal."""
        try:
            peer = self.get(who.node)
        except BadConfig as error:
            raise Refusal(BUSY, str(error)) from error
        if peer.removed:
            raise self.removal(who.node)
        if peer.incarnation is None:
            self._store.save(who.node, who.incarnation)
            peer.incarnation = who.incarnation
        elif peer.incarnation != who.incarnation:
            raise Refusal(
                WRONG_INCARNATION,
                f"node {who.node} is known with other data: a node whose data are gone must not"
                " come back under its id; remove it, and let it join under a new one",
            )
        return peer

    # ------------------------------------------------------------------ dialing

    def due(self, now_s: float) -> list[tuple[Peer, Address]]:
        """Whom to dial now; the caller dials them."""
        found = []
        for peer in self.all():
            if peer.wanted and peer.address is not None and peer.dial_at_s <= now_s:
                peer.dialing, peer.answered = True, False
                found.append((peer, peer.address))
        return found

    def next_dial_s(self) -> float | None:
        """When `due` has something to say."""
        return min((peer.dial_at_s for peer in self._peers.values() if peer.wanted), default=None)

    def dial_ended(self, peer: Peer, now_s: float, refusal: Refusal | None) -> None:
        """The dial under way came to nothing; sets when the next one is due."""
        peer.dialing = peer.answered = False
        if refusal is not None and refusal.by_peer:
            peer.refused = refusal.code
        limits = self._limits
        doubled = limits.backoff_ms_first << min(peer.attempts, 20)
        delay_ms = min(limits.backoff_ms_max, doubled)
        if refusal is not None and refusal.code not in (DUPLICATE, BUSY):
            delay_ms = limits.refused_ms
        peer.attempts += 1
        peer.dial_at_s = now_s + delay_ms / 1000 * (0.5 + self._rng.random() / 2)

    def _soon(self, peer: Peer, now_s: float) -> float:
        """A first dial. The higher id gives the lower one time to call."""
        first_s = self._limits.backoff_ms_first / 1000
        wait_s = 0.0 if self._me < peer.node else 4 * first_s
        return now_s + wait_s + first_s * self._rng.random()

    # ------------------------------------------------------------------ connections

    def admit(self, who: Identity, now_s: float) -> Peer:
        """A caller has proved to be `who`: may it stay? Then the caller's connection takes the
        place of any other, and of our own dial. Raises Refusal (DUPLICATE and those of `check`).
        """
        peer = self.check(who)
        settle_s = self._limits.handshake_ms / 1000
        ours_is_new = peer.connected and peer.dialed and now_s - peer.since_s < settle_s
        ours_lives = peer.dialing and peer.answered
        if self._me < peer.node and (ours_is_new or ours_lives):
            raise Refusal(DUPLICATE, f"node {self._me} has called node {peer.node} just now")
        return peer

    def connected(self, peer: Peer, now_s: float, *, dialed: bool) -> None:
        peer.connected, peer.dialed, peer.since_s = True, dialed, now_s
        peer.dialing = peer.answered = False
        peer.connections += 1
        peer.trouble = None

    def disconnected(self, peer: Peer, now_s: float) -> None:
        """A connection that did not last counts as a dial that failed: two nodes that cannot
        understand each other must not try it fifty times a second.
        """
        peer.connected = False
        if (now_s - peer.since_s) * 1000 < self._limits.handshake_ms:
            self.dial_ended(peer, now_s, None)
        else:
            peer.attempts, peer.dial_at_s = 0, self._soon(peer, now_s)

    def report(self, peer: Peer, trouble: str) -> bool:
        """Note why there is no connection; is that news?"""
        news = peer.trouble != trouble
        peer.trouble = trouble
        return news


class Pulse:
    """Is somebody there? Looked at every `look_s`; time in which this process itself stood still
    (stopped, suspended, busy) counts as one look at most, since its timers are due before it reads
    what came meanwhile.
    """

    __slots__ = ("_look_s", "_looked_s", "_unsent", "heard", "quiet_s", "said")

    def __init__(self, look_s: float, now_s: float) -> None:
        self._look_s, self._looked_s = look_s, now_s
        self.heard = self.said = True  # since the last look
        self.quiet_s = 0.0
        self._unsent = 0

    def look(self, now_s: float) -> bool:
        """Updates `quiet_s`; is it time to say that we are there?"""
        passed_s = min(now_s - self._looked_s, 1.5 * self._look_s)
        self._looked_s = now_s
        self.quiet_s = 0.0 if self.heard else self.quiet_s + passed_s
        self._unsent = 0 if self.said else self._unsent + 1
        self.heard = self.said = False
        return self._unsent > 0
