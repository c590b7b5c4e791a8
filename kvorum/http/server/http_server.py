"""uvicorn on the node's own loop: on a socket bound before, without signal handlers and logging.

With TLS a request's `scope["extensions"]["kvorum"]["certificate"]` is the common name that its
client has proved, empty for none.

What uvicorn leaves open is bounded here. Bytes that come at once are parsed in pieces, and none
while a request waits after another one: a read may have ten thousand. A connection has a time for
its next head, for a body, and for reading its answer; one look a second sees which of them it is
in, so that requests cost no timers. Bodies and unread answers count in kv/base/held_bytes.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
from collections.abc import Callable, Generator
from typing import Final

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from kv.base.connection_slots import Seats
from kv.base.errors import Busy, InvalidArgument, KvorumError
from kv.base.held_bytes import STRANGERS, Held
from kv.base.limits import (
    CLIENT_SMALL_BYTES,
    HTTP_BODY_BYTES_MAX,
    HTTP_HEAD_BYTES_MAX,
    STALL_MS_MAX,
    KiB,
)
from kv.base.tls import TLS_REQUIRED, Tls, certificate_name
from kvorum.http.server.connection_turns import NAME, ConnectionTurn
from kvorum.http.wire.codec import refusal
from kvorum.http.wire.request import Asgi
from raft.listener import TlsListener

KEEP_ALIVE_S = 75
_DRAIN_S = 5
_UNWANTED_S = 1.0  # that one too many may take to say something
_PIECE_BYTES: Final = 4 * KiB  # that are parsed before it is looked what they were …
_BODY_PIECE_BYTES = 64 * KiB  # … or so many, of a body
_SILENT_BYTES_MAX: Final = HTTP_HEAD_BYTES_MAX + _BODY_PIECE_BYTES
_SWEEP_S = 1.0
_LINGER_S = 2.0  # who is refused while it sends may read the reason for so long
_HEADER_COSTS = 32
"""Bytes that a header counts beyond its text, so that many tiny ones have a bound, too."""


class _TooLong(Exception):
    """A request's URL and headers exceed HTTP_HEAD_BYTES_MAX."""


_TLS_S: Final = 10.0  # for a handshake
_HSTS: Final = ("strict-transport-security", "max-age=31536000")


class _Phase(enum.Enum):
    """Whose turn it is to do something, and what."""

    IDLE = "nothing is under way: uvicorn's keep-alive"
    WORK = "a request is worked on"
    HEAD = "the client has to say what it wants"
    BODY = "the client has to go on with its body"
    READ = "the client has to read its answer"


class _Flow(FlowControl):
    """uvicorn's, which reads on whenever a request wants more: not while enough is here."""

    enough = False

    def resume_reading(self) -> None:
        if self.read_paused and not self.enough:
            self.read_paused = False
            self._transport.resume_reading()


class _Protocol(HttpToolsProtocol):
    """uvicorn's connection, with bounds on what a request may say before its body and on the time
    that a client takes, a refusal of what is not HTTP in the one shape that errors have, and no
    traces for clients that left.
    """

    seats = Seats()
    held: Held = seats.held
    sweep: Callable[[], None] = staticmethod(lambda: None)
    """Somebody has come: look at all of them now and then."""
    _certificate: str | None = None  # None: it does not speak TLS
    _unwanted: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _silent = 0  # bytes of a head or of a body that came since anything of it was whole
    _answering: RequestResponseCycle | None = None
    _flow: _Flow
    _unparsed = b""  # what came and waits for the loop, or for a request that is answered
    _parsing = False  # soon
    _came = 0  # bytes of the body that is coming or worked on …
    _held = 0  # … which the node has counted, …
    _holder = STRANGERS  # … and of whom
    _deaf = False  # it was refused; what it sends is not listened to
    _phase: tuple[_Phase, object] = (_Phase.IDLE, None)
    _since = 0.0  # when a look saw this phase first …
    _unread = 0  # … and what its peer had left unread at the last one
    _waits = False  # its tenant has used his share: what came is parsed at its turn

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        self._turn = ConnectionTurn(lambda: self.seats.prove(self))
        self.sweep()
        if self.scheme == "https":
            self._certificate = certificate_name(transport)
        if not self.seats.take(self):
            self._too_many()
        elif self.seats.full(self):
            # Closed on what it is just sending, it would not see why: it is heard first.
            self._unwanted = self.loop.call_later(_UNWANTED_S, self._too_many)

    def data_received(self, data: bytes) -> None:
        if self._unwanted is not None:
            self._too_many()
        elif self._deaf:
            pass
        elif self._begins() and self._turn.wait(data, self._take_turn):
            self._waits = self._parsing = self._flow.enough = True
            self._unset_keepalive_if_required()
            self.flow.pause_reading()
            self._unparsed = data
        elif len(data) <= _PIECE_BYTES and not self._unparsed:
            self._parse(data)
        else:
            self._unparsed += data
            if not self._parsing:
                self._parse_on()

    def _begins(self) -> bool:
        """Whether nothing is under way: what comes is the beginning of a request."""
        cycle = self._current()
        return not self._unparsed and (cycle is None or cycle.response_complete)

    def _take_turn(self) -> bool:
        self._waits = False
        if self._unparsed:
            self._turn.begin()
        self._parse_on()
        return True  # most of what it costs comes later

    def _parse_on(self) -> None:
        """A piece of what came, unless a request waits for the one before it; the next piece in the
        next pass of the loop.
        """
        self._parsing = False
        if not self._unparsed or self.pipeline or self._deaf or self.transport.is_closing():
            return
        cycle = self._current()
        in_body = cycle is not None and cycle.more_body and not cycle.response_complete
        size = _BODY_PIECE_BYTES if in_body else _PIECE_BYTES
        piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
        self._parse(piece)
        if self._unparsed:
            self.flow.pause_reading()
            self._flow.enough = True
            self._parse_soon()
        else:
            self._flow.enough = False
            if not self.pipeline:
                self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        """A header that does not end is refused: the parser keeps its text, however long, and
        copies it with each piece.
        """
        self._silent += len(data)
        super().data_received(data)
        if self._silent > _SILENT_BYTES_MAX or self._head_bytes > HTTP_HEAD_BYTES_MAX:
            self._refuse(b"400 Bad Request", _unreadable(), sends=True)

    def _parse_soon(self) -> None:
        if not self._parsing:
            self._parsing = True
            self.loop.call_soon(self._parse_on)

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        if self._deaf or self.cycle.response_complete:
            return
        self._came += len(body)
        if self._came > CLIENT_SMALL_BYTES:
            try:
                self._hold(min(self._came, HTTP_BODY_BYTES_MAX))
            except Busy as error:
                self._refuse(b"429 Too Many Requests", error, sends=True)
                return
        super().on_body(body)

    def _hold(self, size: int) -> None:
        who = self._turn.asks or STRANGERS
        if who is not self._holder:
            self.held.change(self._held, 0, self._holder)
            self._held, self._holder = 0, who
        self.held.change(self._held, size, who)
        self._held = size

    def on_response_complete(self) -> None:
        self._came = 0
        if self._held:
            self._hold(0)
        super().on_response_complete()
        if self._unparsed:
            self._parse_soon()

    def pause_writing(self) -> None:
        self._tell_unread()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.held.flows(self)
        super().resume_writing()

    def _tell_unread(self) -> int:
        unread = self.transport.get_write_buffer_size()
        if unread > CLIENT_SMALL_BYTES:
            self.held.stalled(self, unread, self._turn.asks or STRANGERS)
        return unread

    def make_room(self) -> None:
        """See Comer."""
        self.drop()

    def drop(self) -> None:
        """Close at once, whatever is owed."""
        self.transport.abort()

    def _too_many(self) -> None:
        limit = self.seats.limit
        error = Busy(
            f"this node has {limit} connections, the limit: share connections, or ask another node",
            details={"what": "connections", "limit": limit, "actual": self.seats.taken},
        )
        self._refuse(b"429 Too Many Requests", error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.seats.give(self)
        self._unparsed = b""
        self.held.flows(self)
        self._hold(0)
        if self._unwanted is not None:
            self._unwanted.cancel()
        # uvicorn tells the request that arrived last, which with pipelining is not the one that is
        # being answered; that one would write into a closed connection, and those after it run.
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = self._silent = 0
        self._turn.asks = None
        super().on_message_begin()
        self.scope[NAME] = self._turn  # type: ignore[typeddict-unknown-key]
        if self._certificate is not None:
            self.scope["extensions"] = {"kvorum": {"certificate": self._certificate}}

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._silent = 0
        self._head_bytes += len(name) + len(value) + _HEADER_COSTS
        if self._head_bytes > HTTP_HEAD_BYTES_MAX:
            raise _TooLong  # which ends the parsing: uvicorn then calls send_400_response
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read, and close."""
        self._refuse(b"400 Bad Request", _unreadable())

    def _refuse(self, status: bytes, error: KvorumError, *, sends: bool = False) -> None:
        """Say why, and close; later, if the client still sends: to close then would make the kernel
        throw the answer away.
        """
        if self._deaf or self.transport.is_closing():
            return
        self._deaf = True
        cycle = self._current()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # nobody waits for what it would answer
            cycle.message_event.set()
        self.transport.write(_last_answer(status, error))
        if not sends or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._flow.enough = False
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_S, self.transport.close)

    def _current(self) -> RequestResponseCycle | None:
        """The request that came last; None before the first."""
        return self.cycle

    # -- time

    def look(self, now: float) -> None:
        """Once a second: does it do in time what it has to do?"""
        phase, unread = self._now()
        moves = phase is _Phase.READ and unread < self._unread
        self._unread = unread
        if self._phase != (phase, self.cycle) or moves:
            self._phase, self._since = (phase, self.cycle), now
            return
        took_s = now - self._since
        if phase is _Phase.READ:
            self._tell_unread()
            if took_s > STALL_MS_MAX / 1_000:
                self.drop()
        elif phase in (_Phase.HEAD, _Phase.BODY):
            received = self._came if phase is _Phase.BODY else 0
            if took_s > self.held.patience_s(received):
                self._too_slow()

    def _too_slow(self) -> None:
        error, cycle = self.held.too_late(), self._current()
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.drop()  # in the middle of its answer nothing can be said
        else:
            self._refuse(b"408 Request Timeout", error)

    def _now(self) -> tuple[_Phase, int]:
        cycle, unread = self._current(), self.transport.get_write_buffer_size()
        if unread:
            return _Phase.READ, unread
        if self._waits:
            return _Phase.WORK, 0
        if cycle is None or cycle.response_complete:
            idle = self.timeout_keep_alive_task is not None
            return (_Phase.IDLE if idle else _Phase.HEAD), 0
        ours = self._answering is not cycle or not cycle.more_body
        return (_Phase.WORK if ours else _Phase.BODY), 0


def _unreadable() -> InvalidArgument:
    return InvalidArgument(
        "this is not an HTTP/1.1 request, or its URL (at most 64 KiB) or its headers (at most "
        f"{HTTP_HEAD_BYTES_MAX} bytes with the URL) are too long",
        code="MALFORMED_REQUEST",
        details={"limit": HTTP_HEAD_BYTES_MAX},
    )


def _last_answer(status: bytes, error: KvorumError) -> bytes:
    answer = refusal(error, packed=False)
    headers = b"".join(b"%b: %b\r\n" % header for header in answer.headers)
    return (
        b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-type: %b\r\n%b"
        b"content-length: %d\r\n\r\n%b"
        % (status, answer.content_type, headers, len(answer.body), answer.body)
    )


_PLAIN: Final = _last_answer(
    b"400 Bad Request",
    InvalidArgument("this port speaks TLS only: use https://", code=TLS_REQUIRED),
)


class _Server(uvicorn.Server):
    tls: Tls | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """With TLS the listener is ours: it takes the files of now for each connection."""
        tls = self.tls
        if tls is None:
            await super().startup(sockets)
            return
        await self.lifespan.startup()

        def protocol() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        listener = TlsListener(
            sockets or [], protocol, tls.accepted, handshake_s=_TLS_S, plain=_PLAIN
        )
        self.servers = [listener]  # type: ignore[list-item]  # of which it closes each
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The node handles signals: it has more to stop than HTTP."""
        yield


class HttpServer:
    """Serves `app` on `sock` until `stop`."""

    def __init__(
        self, app: Asgi, sock: socket.socket, seats: Seats, tls: Tls | None = None
    ) -> None:
        class Protocol(_Protocol):
            pass

        Protocol.seats, Protocol.held = seats, seats.held
        Protocol.sweep = staticmethod(self._sweep_later)
        self._sweeper: asyncio.TimerHandle | None = None
        config = uvicorn.Config(
            app,
            http=Protocol,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[] if tls is None else [_HSTS],
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        self._server = _Server(config)
        self._server.tls = tls
        self._sock = sock
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept connections from now on."""
        work = self._server.serve(sockets=[self._sock])
        self._task = asyncio.get_running_loop().create_task(work, name="http")
        await asyncio.sleep(0)  # it listens when the loop comes back: the socket is bound already

    async def stop(self) -> None:
        """Stop accepting, let the requests under way finish, close."""
        if self._task is None:
            return
        self._server.should_exit = True
        await self._task
        self._task = None
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        for conn in list(self._server.server_state.connections):
            assert isinstance(conn, _Protocol)
            conn.look(now)
            self._sweep_later()
