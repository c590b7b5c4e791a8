"""`Link`: one connection to another node, from its first byte to its end, without its socket.

    socket ─▶ get_buffer, buffer_updated ─▶ FrameReader ─▶ Handshake, then messages ─▶ LinkOwner
    socket ◀─ Writer.write ◀─ flush, pump ◀─ Lanes ◀─ send

Its methods have the names of asyncio's `BufferedProtocol`, so that nothing lies between it and the
event loop (`raft.transport` only adds the base class), and a simulation can call the same doors.

Invariants
  * before the peer has proved itself, nothing of it reaches the owner but its claim;
  * bytes that are not the protocol end the connection and nothing else;
  * `end` runs once, whoever calls it; afterwards nothing is written and nothing delivered;
  * whatever a peer does not read is bounded: the lanes lose messages, pings stay unanswered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from raft import handshake, wire
from raft.api import Timers
from raft.counters import TransportCounters
from raft.handshake import BODY_BYTES_MAX, NONCE_BYTES, Handshake, Identity, Refusal
from raft.lanes import Lanes
from raft.limits import TransportLimits
from raft.peers import Peer, PeerBook, PeerRng, Pulse
from raft.wire import (
    FRAME_BYTES_MAX,
    LAST,
    MESSAGES,
    PART,
    PING,
    PONG,
    ROW_HEAD,
    FrameReader,
    Malformed,
    frame,
    read_messages,
)

_RTT_LOOKS: Final = 8  # a ping for its round trip at least every so many looks
_PING_BYTES: Final = 8


class Writer(Protocol):
    """The socket as a link sees it. An asyncio transport fits."""

    def write(self, data: bytes) -> object: ...

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer's machine did not take yet."""
        ...

    def close(self) -> object:
        """Send what was written, then close; `connection_lost` follows."""
        ...

    def abort(self) -> object:
        """Close now; `connection_lost` follows."""
        ...


class LinkOwner(Protocol):
    """What a link needs of `raft.mux.Mux`."""

    identity: Identity
    secret: bytes
    timers: Timers
    rng: PeerRng
    limits: TransportLimits
    counters: TransportCounters
    book: PeerBook
    look_s: float
    on_message: Callable[[int, int, dict[str, object]], object]

    def opened(self, link: Link) -> bool:
        """The socket is there; False if the link was refused."""
        ...

    def established(self, link: Link, peer: Peer) -> None:
        """The peer has proved itself; messages may follow."""
        ...

    def changed(self, peer: Peer) -> None:
        """The peer fell silent, or speaks again."""
        ...

    def closed(
        self, link: Link, reason: str, refusal: Refusal | None, claimed: Identity | None
    ) -> None:
        """The link has ended. `reason` "": nobody needs to know."""
        ...

    def left(self, link: Link) -> None:
        """The socket of an ended link is gone."""
        ...


class Link:
    """See the module. `dialed`: the peer that we called, None for a caller."""

    def __init__(self, owner: LinkOwner, dialed: Peer | None) -> None:
        self._owner, self.dialed = owner, dialed
        self.address = ""  # of a caller, where it has one
        self.peer: Peer | None = None  # set with the proof
        self.made_s = owner.timers.monotonic()
        self.lanes = Lanes(owner.limits)
        self.dirty = False  # the owner will flush it at the end of this pass
        self.ended = False
        self.silent = False
        self.received = 0  # messages
        self.rtt_s: float | None = None
        self._looks = 0  # since the last ping
        self._pulse = Pulse(owner.look_s, self.made_s)
        self._writer: Writer | None = None
        self._reader = FrameReader(BODY_BYTES_MAX)
        self._long = bytearray()  # the parts of a long message
        self._handshake = Handshake(
            owner.identity,
            owner.secret,
            nonce=owner.rng.token(NONCE_BYTES),
            dialer=dialed is not None,
            target=0 if dialed is None else dialed.node,
        )

    # ------------------------------------------------------------------ the socket's side

    def connection_made(self, transport: Any) -> None:
        """`transport`: a `Writer`."""
        self._writer = transport
        if self.ended:  # given up while it was being made
            self.abort()
        elif self._owner.opened(self) and self.dialed is not None:
            self._write(self._handshake.hello())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were put there."""
        owner = self._owner
        owner.counters.bytes_in += nbytes
        self._pulse.heard = True
        try:
            for kind, body in self._reader.received(nbytes):
                if self.ended:
                    return
                owner.counters.frames_in += 1
                if self.peer is None:
                    self._greet(kind, bytes(body))
                elif kind == MESSAGES:
                    self._deliver(body)
                else:
                    self._other(kind, body)
        except Refusal as refusal:
            self.refuse(refusal)
        except Malformed as error:
            owner.counters.malformed += 1
            self.refuse(Refusal(handshake.PROTOCOL, f"malformed: {error}"))

    def eof_received(self) -> bool:
        return False  # close

    def connection_lost(self, error: BaseException | None) -> None:
        self._writer = None
        self.end(f"the connection broke: {error}" if error else "the peer closed the connection")
        self._owner.left(self)

    def pause_writing(self) -> None:
        self.lanes.held = True

    def resume_writing(self) -> None:
        self.lanes.held = False
        self.pump()

    # ------------------------------------------------------------------ in

    def _greet(self, kind: int, body: bytes) -> None:
        """A frame before the proofs."""
        shake, owner, dialed = self._handshake, self._owner, self.dialed
        answer = shake.receive(kind, body)
        if dialed is not None and shake.heard is not None:
            dialed.answered = True
        if answer:
            self._write(answer)
        if shake.peer is None:
            return
        now_s = owner.timers.monotonic()
        if dialed is None:
            peer = owner.book.admit(shake.peer, now_s)
        else:
            peer = owner.book.check(shake.peer)
        if peer.blocked:  # a cut network would say nothing
            self.end("", abort=True)
            return
        if dialed is None:
            self._write(shake.confirm())
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
        """A frame after the proofs that is not simply messages."""
        if kind in (PART, LAST):
            self._add_part(body, last=kind == LAST)
        elif kind in (PING, PONG):
            if len(body) != _PING_BYTES:
                raise Malformed(f"a ping of {len(body)} bytes")
            if kind == PONG:
                sent_s = int.from_bytes(body, "little") / 1e6
                self.rtt_s = max(0.0, self._owner.timers.monotonic() - sent_s)
            elif self._may_chat():
                self._write(frame(PONG, body))
        elif kind == wire.REFUSED:
            raise handshake.read_refusal(body)
        else:
            raise Malformed(f"frame of kind {kind}")

    def _add_part(self, body: memoryview, *, last: bool) -> None:
        self._long += body
        limit = self._owner.limits.message_bytes_max + len(ROW_HEAD)
        if len(self._long) > limit:
            raise Malformed(f"a message of more than {limit} bytes")
        if last:
            whole, self._long = self._long, bytearray()
            self._deliver(whole)

    # ------------------------------------------------------------------ out

    def socket_bytes(self) -> int:
        """What the socket has not sent yet."""
        return 0 if self._writer is None else self._writer.get_write_buffer_size()

    def flush(self) -> None:
        """Write what this pass added, then bulk while the socket takes it."""
        self.dirty = False
        frames = self.lanes.take_pass()
        if frames:
            self._write(frames)
        self.pump()

    def pump(self) -> None:
        """Write bulk while the socket takes it."""
        lanes = self.lanes
        while not lanes.held and (bulk := lanes.take_bulk()):
            self._write(bulk)

    def _write(self, data: bytes) -> None:
        writer = self._writer
        if writer is None or self.ended:
            return
        counters = self._owner.counters
        counters.writes += 1
        counters.bytes_out += len(data)
        self._pulse.said = True
        writer.write(data)

    def _may_chat(self) -> bool:
        """Pings are for a peer that reads, over a network that is whole."""
        peer, most = self.peer, self._owner.limits.urgent_bytes_max
        return peer is not None and not peer.mute and self.socket_bytes() <= most

    # ------------------------------------------------------------------ time and end

    def look(self, now_s: float) -> None:
        """Every `look_s`: is the peer there, and does it know that we are?"""
        owner, pulse, peer = self._owner, self._pulse, self.peer
        limits = owner.limits
        if peer is None:
            if (now_s - self.made_s) * 1000 > limits.handshake_ms:
                owner.counters.timeouts += 1
                self.end("no answer within the time of a handshake", abort=True)
            return
        if peer.deaf:
            pulse.heard = False
        ping = pulse.look(now_s)
        self._looks += 1
        if (ping or self._looks >= _RTT_LOOKS) and self._may_chat():
            self._looks = 0
            self._write(frame(PING, int(now_s * 1e6).to_bytes(_PING_BYTES, "little")))
        quiet_ms = pulse.quiet_s * 1000
        if quiet_ms >= limits.dead_ms:
            owner.counters.timeouts += 1
            self.end(f"nothing came for {quiet_ms:.0f} ms", abort=True)
        elif self.silent != (quiet_ms >= limits.silence_ms):
            self.silent = not self.silent
            owner.changed(peer)

    def refuse(self, refusal: Refusal) -> None:
        """Send the peer the reason, unless it sent one, and close."""
        if self.ended:
            return
        if not refusal.by_peer:
            refused = self._owner.counters.refused
            refused[refusal.code] = refused.get(refusal.code, 0) + 1
            self._write(refusal.frame())
        self.end(refusal.text, refusal=refusal)

    def end(self, reason: str, *, refusal: Refusal | None = None, abort: bool = False) -> None:
        """Once; what is still called afterwards does nothing. `reason` "": nobody needs to know."""
        if self.ended:
            return
        self.ended = True
        self.lanes.clear()
        self._long = bytearray()
        if self._writer is not None:
            if abort:
                self._writer.abort()
            else:
                self._writer.close()
        self._owner.closed(self, reason, refusal, self._handshake.heard)

    def abort(self) -> None:
        """Let go of the socket at once."""
        if self._writer is not None:
            self._writer.abort()

    @property
    def gone(self) -> bool:
        """There is no socket."""
        return self._writer is None
