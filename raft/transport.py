"""`MuxTransport`: `Mux` on asyncio's sockets (uvloop's, at best): one TCP connection per pair of
nodes. Sockets only; everything that decides is in `raft/mux.py` and below it.

With TLS both ends have to show a node's certificate before the handshake of `raft/handshake.py`,
which then needs no secret.

Left out: discovery of addresses.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any, Final, Protocol, cast

from raft.errors import BadConfig
from raft.handshake import CERTIFICATE, PROTOCOL, Refusal
from raft.link import Link
from raft.listener import Listening, TlsEnd, listen, stop_listening
from raft.mux import Dial, Mux
from raft.peers import Address, Peer

_BACKLOG: Final = 128
_PLAIN: Final = Refusal(PROTOCOL, "this node takes peers over TLS only: give it --tls-dir")
_GOODBYE_S: Final = 0.5
_GOODBYE_LOOK_S: Final = 0.01


class Tls(Protocol):
    """What both ends show and believe; see kv.base.tls."""

    def accepted(self, protocol: asyncio.BaseProtocol, /) -> TlsEnd: ...

    def dialed(self, protocol: asyncio.BaseProtocol, host: str, /) -> TlsEnd: ...

    def is_node(self, transport: Any) -> bool:
        """Whether the other end has proved to be a node of this cluster."""
        ...


class SocketLink(Link, asyncio.BufferedProtocol):
    """A link that the event loop feeds."""

    _owner: MuxTransport

    def connection_made(self, transport: Any) -> None:
        high = self._owner.limits.socket_bytes_high
        transport.set_write_buffer_limits(high=high)
        _tune(transport, high)
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        tls = self._owner.tls
        stranger = tls is not None and not tls.is_node(transport)
        super().connection_made(transport)
        if stranger:
            self.refuse(Refusal(CERTIFICATE, "the peer has shown no certificate of a node"))


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


def _why(error: OSError) -> str:
    """asyncio's text repeats the address; numbers below 0 are getaddrinfo's."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error) or "no answer"


class MuxTransport(Mux):
    """See the module and `Mux`. Set the callbacks, `start`, `set_peer`; then `close`. Everything is
    called on the loop.
    """

    tls: Tls | None = None  # before `start`
    _server: Listening | None = None
    _connecting: set[asyncio.Task[None]]  # since `start`

    def check_secret(self, host: str) -> None:
        """See Mux; a certificate proves more than a secret."""
        if self.tls is None:
            super().check_secret(host)

    async def start(self, host: str, port: int) -> int:
        """Listen, and dial the peers; the port (of `port` 0: the one that was given).

        Raises BadConfig: no secret though others can reach `host`, or the address is not to be had.
        """
        self.check_secret(host)
        self._connecting = set()
        tls = self.tls
        try:
            self._server = await listen(
                lambda: self.new_link(None),
                *(host, port),
                backlog=_BACKLOG,
                secured=None if tls is None else tls.accepted,
                handshake_s=self.limits.handshake_ms / 1000,
                plain=_PLAIN.frame(),
            )
        except OSError as error:
            raise BadConfig(
                f"cannot listen for peers on {host}:{port}: {_why(error)}; stop who uses it, or"
                " choose another address"
            ) from error
        self.begin()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening and end every connection; what was sent before is written, if peers take
        it soon.
        """
        if self._server is None:
            return
        await stop_listening(self._server)
        self.stop()
        patience = round(_GOODBYE_S / _GOODBYE_LOOK_S)
        while self._leaving and patience:
            patience -= 1
            await asyncio.sleep(_GOODBYE_LOOK_S)
        for link in [*self._leaving]:
            link.abort()
        if self._connecting:
            await asyncio.wait(self._connecting)  # `stop` has cancelled them
        await self._server.wait_closed()

    def new_link(self, dialed: Peer | None) -> SocketLink:
        """See Mux."""
        return SocketLink(self, dialed)

    def dial(self, link: Link, address: Address) -> Dial:
        """See Mux."""
        assert isinstance(link, SocketLink), "new_link makes them"
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._connect(link, *address), name="dial a peer")
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    async def _connect(self, link: SocketLink, host: str, port: int) -> None:
        end = None if self.tls is None else self.tls.dialed(link, host)
        try:
            async with asyncio.timeout(self.limits.handshake_ms / 1000):
                await asyncio.get_running_loop().create_connection(
                    lambda: cast(asyncio.BaseProtocol, end or link), host, port
                )
                if end is not None:
                    await end.handshake()
        except OSError as error:  # a TimeoutError is one
            self.dial_failed(link, f"cannot reach {host}:{port}: {_why(error)}")
        except UnicodeError:  # of the resolver
            self.dial_failed(link, f"cannot reach {host}:{port}: that is no name of a machine")
