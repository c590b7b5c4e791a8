"""A link over TCP: one connection, many requests in flight, one frame per loop iteration.

The client speaks first: hello, then the server's hello, then requests. While the socket does not
take more, requests wait unsent.

A peer that owes replies and is silent for PING_MS is asked with a PING. If it does not answer soon,
the link is doubted, so that its callers may turn to another node, which leads by now if this one
was stopped or cut off; after SILENCE_MS_MAX it is given up, long before TCP would notice.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from kv.base.credentials import NONE, Credential
from kv.base.errors import InvalidArgument, KvorumError, TooLarge, Unavailable
from kv.base.limits import PING_MS, SILENCE_MS_MAX
from kv.base.methods import PING, PROVE
from kv.base.ports import Timers
from kv.base.rpc import (
    CONNECTION_RID,
    FrameDecoder,
    FrameEncoder,
    Hello,
    error_of,
    malformed,
    node_proof,
    read_hello,
)
from kv.base.spoken_time import Heard, Time
from kv.base.tls import TLS_REQUIRED, Tls, dial
from kv.base.wire_row import WireRow
from kv.client.links import Link

_PING_AFTER_S: Final = PING_MS / 1_000
_DOUBT_SHARE: Final = 0.5  # of that time without an answer to the PING, and the link is doubted
_LOOKS: Final = 3  # for the answer, until then
_LOSE_SHARE: Final = SILENCE_MS_MAX / PING_MS - 1  # … and it is given up
_PING_AFTER_MOST: Final = 3  # times as long for a peer that answers PINGs and works on

NOT_OURS = "what listens there is not Kvorum's native port"


class MuxConnection(Link, asyncio.Protocol):
    """The client's end of a connection. `ready` ends when the hellos agree; only then requests may
    be sent.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        cluster: str = "",
        node: int = 0,
        credential: Credential = NONE,
        time: Time | None = None,
    ) -> None:
        """`node`: of which this is a client, which proves it by the secret; 0 for all others.
        `time`: what it has heard of, over this or other connections.
        """
        super().__init__(timers)
        self.ready: asyncio.Future[Hello] = self._new_future()
        self._cluster = cluster
        self._node, self._credential = node, credential
        self._time = Heard() if time is None else time
        self._decoder = FrameDecoder()
        self._encoder = FrameEncoder()
        self._transport: asyncio.Transport | None = None
        self._patience_s = self._ping_after_s = self._ping_first_s = _PING_AFTER_S
        self._ping_rid = 0  # of the last PING
        self._asked_at = 0.0  # when the last PING was sent
        self._looked_at = self._quiet_s = 0.0  # since then: the last look, and the silence

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        hello = Hello(
            cluster=self._cluster,
            node=self._node,
            proves=bool(self._credential.secret),
            credential=self._credential,
        )
        self._transport.write(self._encoder.message(hello.to_wire()))

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._timers.monotonic()
        if not self.usable:
            self._trust()
        decoder = self._decoder
        decoder.push(data)
        try:
            while not self.closed and (message := decoder.pull()) is not None:
                if self.ready.done():
                    self._take(message)
                elif self.peer is None:
                    self._greet(message)
                else:
                    self._begin(message)
        except KvorumError as error:
            wants_tls = error.code == TLS_REQUIRED
            if (
                isinstance(error, InvalidArgument | TooLarge)
                and not self.ready.done()
                and not wants_tls
            ):
                # Its first bytes are no frame: somebody else listens there, perhaps not for long.
                error = Unavailable(f"{NOT_OURS} ({error.message})", code="UNREACHABLE")
            self.lose(f"the server broke the protocol: {error.message}", cause=error)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.closed:
            self.lose(f"the connection broke: {error or 'closed by the server'}")

    def pause_writing(self) -> None:
        self._held = True

    def resume_writing(self) -> None:
        self._held = False
        self._flush()

    # -- messages

    def _greet(self, message: list[object]) -> None:
        """The first message: the server's hello, or why it does not want to talk."""
        if len(message) == 1 and type(message[0]) is list:
            raise error_of(message[0])
        hello = read_hello(message, self._cluster)
        self.peer = hello
        if self._credential.secret and hello.challenge:
            self._rid += 1
            proof = node_proof(self._credential.secret, hello, self._node)
            self._transmit([[self._rid, PROVE, 0, proof]])
        else:
            self.ready.set_result(hello)

    def _begin(self, message: WireRow) -> None:
        """What the server says to the proof. If it does not believe it, it says so of each request,
        too, and may serve those that need none.
        """
        if message and type(message[0]) is int:
            self._time.owe(message.pop(0))
        row = message[0] if message else None
        if type(row) is list and row and row[0] == CONNECTION_RID:
            raise error_of(row)
        assert self.peer is not None, "it has proved itself after that"
        self.ready.set_result(self.peer)

    def _take(self, rows: WireRow) -> None:
        received = self.received
        for row in rows:
            if type(row) is not list or len(row) < 2:
                if type(row) is int and row is rows[0]:
                    self._time.owe(row)
                    rows = rows[1:]
                    continue
                raise malformed("a reply is [rid, 0, …] or [rid, 1, …]")
            if row[0] == CONNECTION_RID:
                self.lose(f"the server ended the connection: {error_of(row).message}")
                return
            received(row)
        if self._ping_after_s > self._ping_first_s and rows and rows[-1][0] != self._ping_rid:
            self._ping_after_s = self._ping_first_s  # it answers requests

    def _transmit(self, rows: WireRow) -> None:
        assert self._transport is not None, "an open link has a transport"
        if self._time.at:
            rows = [self._time.at, *rows]
        frames = self._encoder.rows(rows, self._refused)
        if frames:
            self._transport.write(frames)

    def _refused(self, row: WireRow, error: KvorumError) -> None:
        """A request that cannot be packed fails alone."""
        self._fail(row[0], error)

    # -- the end

    def lose(self, reason: str, *, cause: KvorumError | None = None) -> None:
        super().lose(reason)
        if not self.ready.done():
            self.ready.set_exception(cause or Unavailable(reason, code="UNREACHABLE"))
        if self._transport is not None:
            self._transport.abort()

    def _idle(self, now: float) -> None:
        """Replies are owed, about every `_patience_s`: ask a silent peer, doubt it, then leave it.

        That only if it was asked and had its time to answer, whatever the timers' precision. Of a
        time in which this process stood still (stopped, suspended, busy) no more than a look
        counts: its timers are due before it reads what came meanwhile.
        """
        if self._asked_at > self._heard_at:
            self._quiet_s += min(now - self._looked_at, self._patience_s)
            self._looked_at = now
            why = f"the server owes replies and was silent for {now - self._heard_at:.1f} s"
            if self._quiet_s >= 0.9 * _LOSE_SHARE * self._ping_first_s:
                self.lose(why)
            elif self.usable and self._quiet_s >= 0.9 * _DOUBT_SHARE * self._ping_first_s:
                self._doubt(why)
            return
        self._patience_s = self._ping_after_s
        if now - self._heard_at >= 0.9 * self._ping_after_s:
            self._asked_at = self._looked_at = now
            self._quiet_s = 0.0
            self._patience_s = self._ping_first_s * _DOUBT_SHARE / _LOOKS
            self._ping_after_s = min(2 * self._ping_after_s, _PING_AFTER_MOST * self._ping_first_s)
            if not self._held:  # nobody waits for the reply; it breaks the silence
                self._rid += 1
                self._ping_rid = self._rid
                self._transmit([[self._rid, PING, 0]])


async def open_connection(
    host: str,
    port: int,
    *,
    timers: Timers,
    cluster: str = "",
    node: int = 0,
    credential: Credential = NONE,
    tls: Tls | None = None,
    time: Time | None = None,
) -> MuxConnection:
    """Connect and exchange hellos. Raises OSError, or the KvorumError of a server that refuses.

    Bound it with a timeout.
    """
    transport, link = await dial(
        lambda: MuxConnection(timers, cluster=cluster, node=node, credential=credential, time=time),
        *(host, port, tls),
    )
    if tls is not None and not tls.believes(transport):
        transport.abort()
        raise Unavailable(f"{host}:{port} has shown no certificate of a node", code="UNREACHABLE")
    try:
        await link.ready
    except BaseException as error:
        link.close()
        if tls is not None and isinstance(error, Unavailable) and tls.doubt not in error.message:
            raise type(error)(f"{error.message}{tls.doubt}", code=error.code) from error
        raise
    return link
