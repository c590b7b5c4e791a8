"""A small HTTP/1.1 client for the SDK: keep-alive connections, one request at a time on each,
httptools as the parser.

It does what the SDK needs and no more: no redirects, no cookies, no proxies, bodies whole in
memory. A request whose connection breaks says whether it may have arrived (`Lost.sent`): only
the caller knows whether it may be repeated.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from kv.base.config import HTTP_OFFSET
from kv.base.credentials import Credential
from kv.base.errors import InvalidArgument
from kv.base.limits import FRAME_BYTES_MAX
from kv.base.spoken_time import Heard
from kv.base.tls import Tls, dial, why

CONNECTIONS_MAX = 64
IDLE_S_MAX = 30.0
"""A connection idle for longer may be closed by the server at any moment: it is not used again."""

_TOKEN = "kvorum-causal-token"
_TOKEN_SEEN = _TOKEN.encode()


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


def authorization(credential: Credential) -> str:
    """The value of the header, "" for nobody in particular."""
    if credential.token:
        return f"Bearer {_in_header(credential.token)}"
    if not credential.user:
        return ""
    pair = f"{credential.user}:{credential.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _in_header(token: str) -> str:
    """Raises InvalidArgument, without showing it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument(
            "a token has printable ASCII alone, without blanks", details={"setting": "token"}
        )
    return token


class Lost(Exception):
    """The connection broke before the whole answer was there. `sent`: the request may
    have arrived.
    """

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class _Connection(asyncio.Protocol):
    """One connection; the callbacks from `on_` are httptools'."""

    def __init__(self, now: Callable[[], float], doubt: str = "") -> None:
        """`doubt`: what to add if it breaks before its first answer."""
        self._now, self._doubt = now, doubt
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._bytes = 0
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        fresh = self._now() - self.idle_since < IDLE_S_MAX
        return self._transport is not None and not self._transport.is_closing() and fresh

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.idle_since = self._now()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(f"the connection was closed{f': {exc}' if exc else ''}{self._doubt}")

    def data_received(self, data: bytes) -> None:
        self._doubt = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as e:
            self._fail(f"the answer is not HTTP: {e}; a node serves HTTP at BASE+{HTTP_OFFSET}")
            self.close()

    def on_message_begin(self) -> None:
        self._headers, self._body, self._bytes = {}, [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._bytes += len(body)
        if self._bytes > FRAME_BYTES_MAX:
            self._fail(f"the answer has more than {FRAME_BYTES_MAX} bytes")
            self.close()
        self._body.append(body)

    def on_message_complete(self) -> None:
        waiter, self._waiter = self._waiter, None
        if not self._parser.should_keep_alive():
            self.close()
        self.idle_since = self._now()
        if waiter is not None and not waiter.done():
            answer = Answer(self._parser.get_status_code(), self._headers, b"".join(self._body))
            waiter.set_result(answer)

    def _fail(self, why: str) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(Lost(why, sent=True))

    async def request(self, message: bytes) -> Answer:
        """Send and wait for the whole answer. A cancelled request takes its connection with it."""
        if self._transport is None or self._transport.is_closing():
            raise Lost("the connection is closed", sent=False)
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()  # TLS would wait for the other side's end


class HttpTransport:
    """A pool of connections to one host. At most CONNECTIONS_MAX requests are under
    way; others wait their turn.
    """

    def __init__(
        self,
        host: str,
        port: int,
        loop: asyncio.AbstractEventLoop,
        authorization: str = "",
        tls: Tls | None = None,
    ) -> None:
        """`authorization`: the value of that header, of every request. `heard`: the highest causal
        token of a reply, which goes with every request from then on (docs/reference/http.md).
        """
        self.tls = tls
        self.heard = Heard()
        self._authorization = [f"authorization: {authorization}"] if authorization else []
        self._host = host
        self._port = port
        self._loop = loop
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._authority = f"[{host}]" if ":" in host else host

    @property
    def address(self) -> tuple[str, int]:
        return self._host, self._port

    def head(self, method: str, target: str) -> list[str]:
        """The first lines of any request."""
        lines = [
            f"{method} {target} HTTP/1.1",
            f"host: {self._authority}:{self._port}",
            *self._authorization,
        ]
        return [*lines, f"{_TOKEN}: {self.heard.at}"] if self.heard.at else lines

    async def request(
        self, method: str, target: str, body: bytes, headers: tuple[tuple[str, str], ...]
    ) -> Answer:
        """One request. Raises Lost."""
        lines = [
            *self.head(method, target),
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers),
            "\r\n",
        ]
        message = "\r\n".join(lines).encode() + body
        async with self._slots:
            connection = await self._connection()
            answer = await connection.request(message)
            if connection.usable:
                self._idle.append(connection)
        token = answer.headers.get(_TOKEN_SEEN, b"")
        if token.isdigit():
            self.heard.owe(int(token))
        return answer

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        doubt = "" if self.tls is None else self.tls.doubt
        try:
            _, made = await dial(
                lambda: _Connection(self._loop.time, doubt), self._host, self._port, self.tls
            )
        except OSError as e:
            where = f"{self._authority}:{self._port}"
            raise Lost(
                f"cannot reach {where}: {why(e)}; is a node running there?", sent=False
            ) from None
        return made

    def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
