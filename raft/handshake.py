"""How two nodes make sure that they belong together, before either believes a word of the other.

    dialer                                  listener
    HELLO  cluster, node, incarnation, nonce, target  ──▶
                                   ◀──  HELLO  cluster, node, incarnation, nonce, dialer's node
    PROOF  HMAC(secret, "dialer", both hellos)        ──▶
                                   ◀──  PROOF  HMAC(secret, "listener", both hellos)

Either side may answer with REFUSED [code, text] instead, and close.

Invariants
  * a proof covers both hellos as they were sent, so both nonces, both nodes, both incarnations, the
    cluster and the version: a proof of another connection fits nowhere (replay);
  * the two roles sign different texts, so a proof sent back to its maker fits nowhere (reflection);
  * the side that is called proves nothing to a caller that has not proved itself: who only finds
    the port learns nothing to guess the secret from;
  * what changes our mind about a node (its incarnation, its connection) happens after its proof.

A node's *incarnation* is drawn when its data directory is made. A node that comes back under a
known id with another one has lost its votes and its log, and must not vote again (facts: never
reuse an id): it is refused until it joins under a new id.

Source: the three-pass mutual authentication of ISO/IEC 9798-4, with the texts of section 5 bound as
in SIGMA (Krawczyk, CRYPTO 2003). Left out: keys for what follows. After the handshake the
connection is as safe as the network between the nodes; TLS is for networks that are not.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

import msgpack

from raft import wire
from raft.wire import HELLO, PROOF, REFUSED, Malformed

MAGIC: Final = "kvorum-raft"
VERSION: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
BODY_BYTES_MAX: Final = 1024
"""Of any frame before the proofs."""
NAME_CHARS_MAX: Final = 128
TEXT_CHARS_MAX: Final = 300
NODE_MAX: Final = (1 << 31) - 1
_INCARNATION_BYTES = range(8, 33)

# Why two nodes do not talk. The codes travel, so they are never changed.
PROTOCOL: Final = "PROTOCOL"
WRONG_VERSION: Final = "VERSION"
WRONG_CLUSTER: Final = "CLUSTER"
OURSELVES: Final = "SELF"
WRONG_NODE: Final = "NODE"
WRONG_SECRET: Final = "SECRET"
WRONG_INCARNATION: Final = "INCARNATION"
REMOVED: Final = "REMOVED"
DUPLICATE: Final = "DUPLICATE"
CERTIFICATE: Final = "CERTIFICATE"
BUSY: Final = "BUSY"


class Refusal(Exception):
    """The two must not talk. `code` for programs, the text for people; both are sent to the peer.
    `by_peer`: it was the peer that refused us.
    """

    def __init__(self, code: str, text: str, *, by_peer: bool = False) -> None:
        super().__init__(text)
        self.code, self.text, self.by_peer = code, text, by_peer

    def frame(self) -> bytes:
        text = self.text.encode("ascii", "backslashreplace")[:TEXT_CHARS_MAX].decode()
        return wire.frame(REFUSED, msgpack.packb([self.code, text]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a node is. `incarnation`: 8 to 32 random bytes of its data directory."""

    cluster: str
    node: int
    incarnation: bytes

    def valid(self) -> bool:
        return (
            len(self.cluster) <= NAME_CHARS_MAX
            and 0 < self.node <= NODE_MAX
            and len(self.incarnation) in _INCARNATION_BYTES
        )


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of each side. `target`: whom the dialer wants to reach; the listener repeats
    the dialer's node there.
    """

    identity: Identity
    nonce: bytes
    target: int

    def body(self) -> bytes:
        who = self.identity
        fields = [MAGIC, VERSION, who.cluster, who.node, who.incarnation, self.nonce, self.target]
        packed: bytes = msgpack.packb(fields)
        return packed


_HELLO_TYPES = (str, int, str, int, bytes, bytes, int)


def read_hello(body: bytes) -> Hello:
    """Raises Refusal (PROTOCOL, VERSION): a later version may have any fields after these two."""
    try:
        fields: object = wire.unpack(body)
    except Malformed:
        fields = None
    if type(fields) is not tuple or len(fields) < 2 or fields[0] != MAGIC:
        raise _other_protocol()
    version = fields[1]
    if type(version) is not int or version != VERSION:
        raise Refusal(
            WRONG_VERSION,
            f"this node speaks {MAGIC} version {VERSION}, the peer version {version!r:.20}:"
            " upgrade the older one",
        )
    if len(fields) == len(_HELLO_TYPES) and tuple(map(type, fields)) == _HELLO_TYPES:
        _, _, cluster, node, incarnation, nonce, target = fields
        identity = Identity(cluster=cluster, node=node, incarnation=incarnation)
        if identity.valid() and len(nonce) == NONCE_BYTES:
            return Hello(identity, nonce, target)
    raise Refusal(PROTOCOL, "the hello has fields of other types or lengths than this version's")


def _other_protocol() -> Refusal:
    return Refusal(
        PROTOCOL, f"this port speaks {MAGIC}, the peer something else: check its address and port"
    )


def read_refusal(body: bytes | memoryview) -> Refusal:
    """Why the peer does not talk to us; a text that is none says so. Fit for a line of a log: who
    says it has not proved anything.
    """
    try:
        fields: object = wire.unpack(body)
    except Malformed:
        fields = None
    if type(fields) is tuple and tuple(map(type, fields)) == (str, str):
        code, text = (
            "".join(char if char.isprintable() else "?" for char in field[:TEXT_CHARS_MAX])
            for field in fields
        )
        return Refusal(code, text, by_peer=True)
    return Refusal(PROTOCOL, "the peer refused us without a readable reason", by_peer=True)


class Handshake:
    """One side of one connection. Feed it frames; it says what to send, and when the peer is who it
    says it is. Raises Refusal; the caller tells the peer (unless `by_peer`) and closes.

    The dialer: send `hello()`, then feed. When `peer` is set, both are sure.
    The listener: feed. When `peer` is set the dialer has proved itself; if it may stay, send
    `confirm()`.
    """

    __slots__ = (
        "_dialer",
        "_me",
        "_nonce",
        "_other",
        "_own",
        "_secret",
        "_target",
        "heard",
        "peer",
    )

    def __init__(
        self, me: Identity, secret: bytes, *, nonce: bytes, dialer: bool, target: int = 0
    ) -> None:
        self._me, self._secret, self._nonce = me, secret, nonce
        self._dialer, self._target = dialer, target
        self._own = self._other = b""  # the hellos as sent
        self.heard: Identity | None = None  # what the peer claims to be; nothing is proved
        self.peer: Identity | None = None  # what it has proved to be

    def hello(self) -> bytes:
        """Our first frame."""
        self._own = Hello(self._me, self._nonce, self._target).body()
        return wire.frame(HELLO, self._own)

    def confirm(self) -> bytes:
        """The listener's proof: after it the connection carries messages."""
        return wire.frame(PROOF, self._proof(dialer=False))

    def receive(self, kind: int, body: bytes) -> bytes:
        """A frame of the peer; what to send back, perhaps nothing. Raises Refusal."""
        if kind == REFUSED:
            raise read_refusal(body)
        if kind == HELLO and self.heard is None:
            return self._on_hello(body)
        if kind == PROOF and self.heard is not None and self.peer is None:
            if not hmac.compare_digest(body, self._proof(dialer=not self._dialer)):
                raise Refusal(
                    WRONG_SECRET,
                    "the peer does not know this cluster's secret: give all nodes the same one",
                )
            self.peer = self.heard
            return b""
        raise _other_protocol()

    def _on_hello(self, body: bytes) -> bytes:
        hello = read_hello(body)
        who, me = hello.identity, self._me
        if who.cluster != me.cluster:
            raise Refusal(
                WRONG_CLUSTER,
                f"this is cluster {me.cluster!r}, the peer belongs to {who.cluster!r}:"
                " check the address",
            )
        if who.node == me.node:
            if who.incarnation == me.incarnation:
                raise Refusal(OURSELVES, f"node {me.node} called itself: check the addresses")
            raise Refusal(OURSELVES, f"two nodes are called {me.node}: give one another id")
        reached = who.node if self._dialer else me.node
        wanted = self._target if self._dialer else hello.target
        if reached != wanted:
            raise Refusal(
                WRONG_NODE,
                f"node {wanted} was called, but node {reached} answers there: check the addresses",
            )
        if self._dialer and hello.target != me.node:
            raise _other_protocol()
        self.heard, self._other = who, body
        if self._dialer:
            return wire.frame(PROOF, self._proof(dialer=True))
        self._target = who.node
        return self.hello()

    def _proof(self, *, dialer: bool) -> bytes:
        hellos = (self._own, self._other) if self._dialer else (self._other, self._own)
        signed = hmac.new(self._secret, digestmod=hashlib.sha256)
        signed.update(b"kvorum-raft peer: dialer" if dialer else b"kvorum-raft peer: listener")
        for hello in hellos:
            signed.update(len(hello).to_bytes(4, "little") + hello)
        return signed.digest()
