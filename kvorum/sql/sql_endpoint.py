"""The socket of the PostgreSQL port, until the first client comes: then what serves it is imported.

DuckDB, the parser and their tables cost 60 MB and a second of CPU, which a node that nobody asks in
SQL does not pay. A thread imports them and fills the system catalog's tables, so that running
traffic goes on; clients that come meanwhile wait in the socket.

An import that fails (a package is missing or broken, no memory or files are left) is the port's
trouble, not the node's: it is logged, who waits is refused, and whoever comes when RETRY_S have
passed has it tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kv.base.connection_slots import Seats
from kv.base.errors import Unavailable
from kv.base.limits import SQL_MEMORY_BYTES_DEFAULT
from kv.base.ports import Clock, Rng, Timers
from kv.base.tenants import Tenants
from kv.base.tls import Tls
from kv.client.client import KvClient
from kvorum.api.backend import Backend
from kvorum.audit.audit_log import StampLog
from kvorum.local.extras import advice
from procedures.engine.plain_data import Plain
from txn.client import TxnClient

if TYPE_CHECKING:
    from kvorum.sql.sql import Front

_MODULE: Final = "kvorum.sql.sql"
RETRY_S: Final = 5.0
_REFUSED_AT_ONCE: Final = 128
_REFUSING_S: Final = 2.0
_ENCRYPTION: Final = {struct.pack(">I", 80877103), struct.pack(">I", 80877104)}  # SSL, GSS
_WORDS: Final = b"the SQL service of this node could not be started; its log says why"
log = logging.getLogger(__name__)


class SqlDoor:
    """See the module. `open` once, `close` once."""

    def __init__(
        self,
        nodes: KvClient,
        txn: TxnClient,
        surface: Backend,
        tenants: Tenants,
        *,
        clock: Clock,
        rng: Rng,
        timers: Timers,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
        name: bytes = b"",
        home: Path | None = None,
        seats: Seats | None = None,
        tls: Tls | None = None,
        memory_bytes: int = SQL_MEMORY_BYTES_DEFAULT,
        session_defaults: Mapping[str, str] | None = None,
        log: StampLog | None = None,
    ) -> None:
        """`name`: of this process among those that serve SQL, the same after a restart; `home`: a
        folder of its own for what queries cannot hold in memory.
        """
        self._name, self._home, self._seats, self._tls = name, home, seats, tls
        self._memory, self._session_defaults = memory_bytes, session_defaults
        self._log = log
        self._parts = (nodes, txn, surface, clock, rng, timers)
        self._tenants = tenants
        self._in_thread = in_thread
        self._sock: socket.socket | None = None
        self._front: Front | None = None
        self._making = asyncio.Lock()
        self._closed = False
        self._listens = False  # for the first client; later the front does
        self._failed_at = float("-inf")
        self._words = _WORDS  # for who is refused

    def open(
        self, sock: socket.socket, in_background: Callable[[Coroutine[object, None, None]], None]
    ) -> None:
        """Wait for a client on a socket that listens."""
        self._sock = sock
        loop = asyncio.get_running_loop()
        now = self._parts[-1].monotonic

        def come() -> None:
            if now() - self._failed_at < RETRY_S:
                in_background(_refuse(sock, self._words))
                return
            loop.remove_reader(sock)
            self._listens = False
            in_background(begin())

        async def begin() -> None:
            if await self._serve(sock) or self._closed:
                return
            self._failed_at = now()
            listen()
            await _refuse(sock, self._words)

        def listen() -> None:
            loop.add_reader(sock, come)
            self._listens = True

        listen()

    async def run(self, *args: Any, **options: Any) -> Plain:
        """A statement that came otherwise (kvorum/sql/http_statements.py). Raises KvorumErrors."""
        if (front := await self._ready()) is None:
            raise Unavailable(self._words.decode())
        return await front.statements.run(*args, **options)

    async def _serve(self, sock: socket.socket) -> bool:
        """Whether it does."""
        if (front := await self._ready()) is None:
            return False
        await front.start(sock)
        log.info("the PostgreSQL port serves its first client")
        return True

    async def _ready(self) -> Front | None:
        """What serves, made when it is first needed; None: it cannot be, or it is closed."""
        async with self._making:
            if self._front is None:
                self._front = await self._make()
            return None if self._closed else self._front

    async def _make(self) -> Front | None:
        try:
            await self._in_thread(_loaded)
            if self._closed:
                return None
            return _made(
                *self._parts,
                self._tenants,
                name=self._name,
                home=self._home,
                seats=self._seats,
                tls=self._tls,
                memory_bytes=self._memory,
                session_defaults=self._session_defaults,
                log=self._log,
            )
        except ImportError as e:
            said = advice(e, extra="sql")
            log.error("the PostgreSQL port cannot serve: %s", said or e, exc_info=said is None)
            self._words = said.encode() if said else _WORDS
            return None
        except Exception:  # an application boundary: whatever an import raises
            log.exception("the PostgreSQL port cannot serve: what it needs cannot be loaded")
            return None

    async def close(self) -> None:
        """End sessions in order, and listen no more."""
        self._closed = True
        if self._sock is not None and self._listens:
            asyncio.get_running_loop().remove_reader(self._sock)
        async with self._making:  # it may just be loaded
            if self._front is not None:
                await self._front.stop()
        if self._sock is not None:
            self._sock.close()


def _loaded() -> None:
    importlib.import_module(_MODULE)
    from sqlproxy.pgcatalog.catalog import warm

    warm()


def _made(*parts: Any, **named: Any) -> Front:
    from kvorum.sql.sql import Front

    return Front(*parts, **named)


async def _refuse(sock: socket.socket, words: bytes) -> None:
    """Clients that wait get the reason (an ErrorResponse of the protocol) and are closed."""
    clients = []
    for _ in range(_REFUSED_AT_ONCE):
        try:
            client, _ = sock.accept()
        except OSError:  # nobody more, or no files are left
            break
        client.setblocking(False)
        clients.append(_tell(client, words))
    await asyncio.gather(*clients)


async def _tell(client: socket.socket, words: bytes) -> None:
    fields = b"SFATAL\0VFATAL\0C58000\0M" + words + b"\0\0"
    loop = asyncio.get_running_loop()
    with client, contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_REFUSING_S):
            # What a client has sent is read before the end: it would reset the connection.
            while (await loop.sock_recv(client, 1 << 16))[4:8] in _ENCRYPTION:
                await loop.sock_sendall(client, b"N")
            message = b"E" + struct.pack(">I", len(fields) + 4) + fields
            await loop.sock_sendall(client, message)
