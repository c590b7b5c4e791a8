"""uvicorn on the node's own loop: on a socket bound before, without signal handlers and logging."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn

from kvorum.http.request import Asgi

KEEP_ALIVE_S = 75
_DRAIN_S = 5


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The node handles signals: it has more to stop than HTTP."""
        yield


class HttpServer:
    """Serves `app` on `sock` until `stop`."""

    def __init__(self, app: Asgi, sock: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        self._server = _Server(config)
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
