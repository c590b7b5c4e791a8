"""The socket of the PostgreSQL port, until the first client comes: then what serves it is imported.

DuckDB, the parser and their tables cost 60 MB and a second of CPU, which a node that nobody asks in
SQL does not pay. The import runs in a thread; clients that come meanwhile wait in the socket.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kv.base.ports import Clock, Rng, Timers
from kv.client.client import KvClient
from kvorum.backend import Backend
from txn.client import TxnClient

if TYPE_CHECKING:
    from kvorum.sql import Front

_MODULE: Final = "kvorum.sql"
log = logging.getLogger(__name__)


class SqlDoor:
    """See the module. `open` once, `close` once."""

    def __init__(
        self,
        nodes: KvClient,
        txn: TxnClient,
        surface: Backend,
        *,
        clock: Clock,
        rng: Rng,
        timers: Timers,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
        name: bytes = b"",
        home: Path | None = None,
    ) -> None:
        """`name`: of this process among those that serve SQL, the same after a restart; `home`: a
        folder of its own for what queries cannot hold in memory.
        """
        self._name, self._home = name, home
        self._parts = (nodes, txn, surface, clock, rng, timers)
        self._in_thread = in_thread
        self._sock: socket.socket | None = None
        self._front: Front | None = None
        self._closed = False

    def open(
        self, sock: socket.socket, in_background: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        """Wait for a client on a socket that listens."""
        self._sock = sock
        loop = asyncio.get_running_loop()

        def come() -> None:
            loop.remove_reader(sock)
            in_background(self._serve(sock))

        loop.add_reader(sock, come)

    async def _serve(self, sock: socket.socket) -> None:
        await self._in_thread(_load)
        if self._closed:
            return
        from kvorum.sql import Front

        self._front = Front(*self._parts, name=self._name, home=self._home)
        await self._front.start(sock)
        log.info("the PostgreSQL port serves its first client")

    async def close(self) -> None:
        """End sessions in order, and listen no more."""
        self._closed = True
        if self._front is not None:
            await self._front.stop()
        elif self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
        if self._sock is not None:
            self._sock.close()


def _load() -> None:
    importlib.import_module(_MODULE)
