"""uvicorn on the node's own loop: on a socket bound before, without signal handlers and logging.

With TLS a request's `scope["extensions"]["kvorum"]["certificate"]` is the common name that its
client has proved, empty for none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Final

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from kv.base.errors import Busy, InvalidArgument, KvorumError
from kv.base.limits import HTTP_HEAD_BYTES_MAX
from kv.base.seats import Seats
from kv.base.tls import Tls, certificate_name
from kvorum.http.wire.codec import refusal
from kvorum.http.wire.request import Asgi
from raft.listener import TlsListener

KEEP_ALIVE_S = 75
_DRAIN_S = 5
_UNWANTED_S = 1.0  # that one too many may take to say something
_HEADER_COSTS = 32
"""Bytes that a header counts beyond its text, so that many tiny ones have a bound, too."""


class _TooLong(Exception):
    """A request's URL and headers exceed HTTP_HEAD_BYTES_MAX."""


_TLS_S: Final = 10.0  # for a handshake
_HSTS: Final = ("strict-transport-security", "max-age=31536000")


class _Protocol(HttpToolsProtocol):
    """uvicorn's connection, with a bound on what a request may say before its body, a refusal of
    what is not HTTP in the one shape that errors have, and no traces for clients that left.
    """

    seats = Seats()
    _certificate: str | None = None  # None: it does not speak TLS
    _unwanted: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _answering: RequestResponseCycle | None = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.scheme == "https":
            self._certificate = certificate_name(transport)
        if not self.seats.take():
            self._too_many()
        elif self.seats.full():
            # Closed on what it is just sending, it would not see why: it is heard first.
            self._unwanted = self.loop.call_later(_UNWANTED_S, self._too_many)

    def data_received(self, data: bytes) -> None:
        if self._unwanted is None:
            super().data_received(data)
        else:
            self._too_many()

    def _too_many(self) -> None:
        limit = self.seats.limit
        error = Busy(
            f"this node has {limit} connections, the limit: share connections, or ask another node",
            details={"what": "connections", "limit": limit, "actual": self.seats.taken},
        )
        self._refuse(b"429 Too Many Requests", error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.seats.give()
        if self._unwanted is not None:
            self._unwanted.cancel()
        # uvicorn tells the request that arrived last, which with pipelining is not the one that is
        # being answered; that one would write into a closed connection, and those behind it run.
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()
        if self._certificate is not None:
            self.scope["extensions"] = {"kvorum": {"certificate": self._certificate}}

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + _HEADER_COSTS
        if self._head_bytes > HTTP_HEAD_BYTES_MAX:
            raise _TooLong  # which ends the parsing: uvicorn then calls send_400_response
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read, and close."""
        error = InvalidArgument(
            "this is not an HTTP/1.1 request, or its URL (at most 64 KiB) or its headers (at most "
            f"{HTTP_HEAD_BYTES_MAX} bytes with the URL) are too long",
            code="MALFORMED_REQUEST",
            details={"limit": HTTP_HEAD_BYTES_MAX},
        )
        self._refuse(b"400 Bad Request", error)

    def _refuse(self, status: bytes, error: KvorumError) -> None:
        """Say why, and close."""
        self.transport.write(_last_answer(status, error))
        self.transport.close()


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
    InvalidArgument("this port speaks TLS only: use https://", code="TLS_REQUIRED"),
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
            sockets or [], protocol, lambda: tls.server, handshake_s=_TLS_S, plain=_PLAIN
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

        Protocol.seats = seats
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
