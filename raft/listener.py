"""Listening sockets: how they are closed, and how they take TLS. For every server of the product,
whatever it speaks.

    accept ─▶ the first byte ─▶ handshake ─▶ the protocol's `connection_made`
                     └─ of no handshake: answered with what this port wants, and closed

A connection that comes is counted by its server only when its handshake is done, so those before
have bounds of their own: in time, and in number, beyond which the oldest makes room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

_A_TIMER_S: Final = 0.001
_ACCEPTED_AT_ONCE: Final = 64
_NO_FILES_S: Final = 0.1  # until connections are accepted again when no descriptors were left
_HANDSHAKES_MAX: Final = 256
_HANDSHAKE: Final = 0x16  # the first byte of a TLS connection (RFC 8446, 5.1)
_TELL_S: Final = 1.0
_HEARD_BYTES: Final = 1 << 16
_LOG_AGAIN_S: Final = 10.0

log = logging.getLogger(__name__)


class TlsEnd(Protocol):
    """Our end of an encrypted connection: the protocol of its transport. See kv.base.tls_stream."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def connection_lost(self, exc: Exception | None, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    async def handshake(self) -> None:
        """Wait for its end. Raises OSError; then, and if it is cancelled, it is closed."""
        ...


Secured = Callable[[asyncio.BaseProtocol], TlsEnd]


class Listening(Protocol):
    """`asyncio.Server`, or `TlsListener`."""

    @property
    def sockets(self) -> Sequence[socket.socket]: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


async def stop_listening(listener: Listening) -> None:
    """Take no more connections; those that were taken live on.

    asyncio takes a connection in one pass of its loop and gives it to its protocol in the next. One
    whose listener is closed in between belongs to nobody: it stays open until the garbage is
    collected (`Server._attach` of Python 3.11 fails; python/cpython#109564). Who was woken by a
    timer runs after those of the pass before and ahead of what this pass takes: there is none.
    """
    await asyncio.sleep(_A_TIMER_S)
    listener.close()


class TlsListener:
    """See the module. It owns `sockets`, which listen and do not block."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        secured: Secured,
        *,
        handshake_s: float,
        plain: bytes,
    ) -> None:
        """`secured` is asked for each connection. `plain`: the answer to a client without TLS."""
        self.sockets: Sequence[socket.socket] = sockets
        self.failed = 0  # handshakes
        self._factory, self._secured = factory, secured
        self._handshake_s, self._plain = handshake_s, plain
        self._shaking: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._logged_s = float("-inf")
        self._closed = False
        self._loop = asyncio.get_running_loop()
        for sock in sockets:
            self._loop.add_reader(sock, self._accept, sock)

    def close(self) -> None:
        """Take no more, and give up handshakes under way."""
        if self._closed:
            return
        self._closed = True
        for sock in self.sockets:
            self._loop.remove_reader(sock)
            sock.close()
        for task in self._shaking:
            task.cancel()

    async def wait_closed(self) -> None:
        if self._shaking:
            await asyncio.wait([*self._shaking])

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections have to wait: %s", error.strerror)
                self._loop.remove_reader(sock)
                self._loop.call_later(_NO_FILES_S, self._again, sock)
                return
            client.setblocking(False)
            if len(self._shaking) >= _HANDSHAKES_MAX:
                oldest = next(iter(self._shaking))
                del self._shaking[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._take(client, str(address[0])), name="TLS")
            self._shaking[task] = None
            task.add_done_callback(self._done)

    def _again(self, sock: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(sock, self._accept, sock)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._shaking.pop(task, None)

    async def _take(self, client: socket.socket, address: str) -> None:
        """From its first byte to the end of its handshake."""
        try:
            with contextlib.ExitStack() as ours:
                ours.callback(client.close)
                async with asyncio.timeout(self._handshake_s):
                    first = await self._first(client)
                if first[:1] != bytes([_HANDSHAKE]):
                    if first:
                        await self._tell(client)
                    raise ssl.SSLError("it does not speak TLS" if first else "it said nothing")
                end = self._secured(self._factory())
                ours.pop_all()  # from here on it is the transport's
            _without_delay(client)
            async with asyncio.timeout(self._handshake_s):
                await self._loop.connect_accepted_socket(
                    lambda: cast(asyncio.BaseProtocol, end), client
                )
                await end.handshake()
        except (OSError, TimeoutError) as error:  # an SSLError is one
            self._failed(address, error)

    async def _first(self, client: socket.socket) -> bytes:
        """Its first byte, which stays where it is; nothing: it has left."""
        came = asyncio.Event()
        self._loop.add_reader(client, came.set)
        try:
            await came.wait()
        finally:
            self._loop.remove_reader(client)
        return client.recv(1, socket.MSG_PEEK)

    async def _tell(self, client: socket.socket) -> None:
        async with asyncio.timeout(_TELL_S):
            # What a client has sent is read before the end: it would reset the connection.
            await self._loop.sock_recv(client, _HEARD_BYTES)
            await self._loop.sock_sendall(client, self._plain)
            client.shutdown(socket.SHUT_WR)
            while await self._loop.sock_recv(client, _HEARD_BYTES):
                pass

    def _failed(self, address: str, error: OSError) -> None:
        """Counted; logged now and then, because anybody can make it happen."""
        self.failed += 1
        now = self._loop.time()
        if now - self._logged_s > _LOG_AGAIN_S:
            self._logged_s = now
            why = (
                getattr(error, "reason", None) or error.strerror or str(error) or "it took too long"
            )
            log.warning("no TLS with %s: %s (%d so far)", address, why, self.failed)


def _without_delay(client: socket.socket) -> None:
    if client.family in (socket.AF_INET, socket.AF_INET6):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def listen(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    backlog: int,
    secured: Secured | None = None,
    handshake_s: float = 0.0,
    plain: bytes = b"",
) -> Listening:
    """A listener of `host` and `port`, with TLS if it is `secured`. Raises OSError."""
    loop = asyncio.get_running_loop()
    if secured is None:
        return await loop.create_server(factory, host, port, backlog=backlog)
    server = await loop.create_server(factory, host, port, backlog=backlog, start_serving=False)
    sockets = []
    for one in server.sockets:  # resolved and bound; they are ours from here on
        sock = one.dup()
        sock.setblocking(False)
        sock.listen(backlog)
        sockets.append(sock)
    server.close()
    return TlsListener(sockets, factory, secured, handshake_s=handshake_s, plain=plain)
