"""One of a node's SQL processes (kvorum/sql/sql_processes.py starts it): sessions over the native
protocol, for clients whose sockets the node hands over. It keeps nothing.

Its name among those that use declarations (docs/decisions/1023) is the same each time, and no two
processes may have one name at once: it waits for the lock of its place, which the one before holds
as long as it lives, even if the node that had started it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

import uvloop

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.credentials import Credential
from kv.base.errors import KvorumError, Rejected
from kv.base.fair_turns import FairTurns
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.base.tenants import Tenants
from kv.base.tls import Tls, node_tls
from kvorum.audit.audit_log import StampLog
from kvorum.audit.open_audit_log import LogSettings, opened
from kvorum.local import cycles, descriptors, logs
from kvorum.local.settings import Settings
from kvorum.native.native import NativeBackend
from kvorum.native.remote import connect_backend
from kvorum.sql.sql import Front
from kvorum.sql.sql_channel import (
    ANSWER,
    CANCEL,
    CLIENT,
    END,
    GONE,
    LIST,
    READY,
    SESSIONS,
    SETTINGS,
    STOP,
    Channel,
)
from procedures.engine.plain_data import Plain
from sqlproxy.pgcatalog.catalog import warm
from sqlproxy.session.shared.roster import SessionRow, session_row_from

_RETRY_S: Final = 0.2
_ASK_S: Final = 2.0  # the node answers earlier, unless it is busy
ORPHANED: Final = 3  # exit code: the node is gone

log = logging.getLogger(__name__)


class SqlProcess:
    """See the module. `run` once."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock, self._heard, _orphaned)
        loop = asyncio.get_running_loop()
        self._settings: asyncio.Future[Plain] = loop.create_future()
        self._stop = asyncio.Event()
        self._front: Front | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []  # of the log; they end with the process
        self._asked: dict[int, asyncio.Future[Sequence[object]]] = {}
        self._number = 0

    async def run(self) -> None:
        """Until the node says so, which it does after a signal, too: then no client comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._channel.send, [STOP])
        settings = await self._settings
        logs.configure(settings["log_level"])
        data, number = Path(settings["data"]), settings["number"]
        tls = node_tls(settings["tls_dir"]) if settings["tls_dir"] else None
        with await asyncio.to_thread(_alone, data, number):
            host, port = settings["address"]
            backend = await self._found(host, port, tls, settings["node_secret"])
            if backend is None:
                return
            try:
                home = data / "sql-temporary" / str(number)
                await self._serve(backend, settings, home, tls)
            finally:
                await backend.close()

    async def _found(
        self, host: str, port: int, tls: Tls | None, secret: bytes
    ) -> NativeBackend | None:
        """The node; None: it is not needed any more. Raises Refused: it is of another version."""
        while not self._stop.is_set():
            try:
                return await connect_backend(
                    [(host, port)], DEADLINE_MS_DEFAULT, tls, Credential(secret=secret)
                )
            except KvorumError as error:
                if isinstance(error, Rejected):
                    raise
            await asyncio.sleep(_RETRY_S)
        return None

    async def _serve(
        self, backend: NativeBackend, settings: dict[str, object], home: Path, tls: Tls | None
    ) -> None:
        async with contextlib.AsyncExitStack() as stack:
            log = await self._log(stack, backend, settings)
            await self._serve_with(log, backend, settings, home, tls)

    async def _log(
        self, stack: contextlib.AsyncExitStack, backend: NativeBackend, settings: Plain
    ) -> StampLog | None:
        """A file for each process beside the node's: FILE.sql0, FILE.sql1, …"""
        said = LogSettings(**settings["log"])
        if not said.path:
            return None
        return await opened(
            stack,
            replace(said, path=f"{said.path}{settings['number']}"),
            node=settings["node"],
            now_ms=SystemClock().now_ms,
            in_thread=asyncio.to_thread,
            reader=backend.txn,
            in_background=self._in_background,
        )

    def _in_background(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._loops.append(task)

    async def _serve_with(
        self,
        log: StampLog | None,
        backend: NativeBackend,
        settings: Plain,
        home: Path,
        tls: Tls | None,
    ) -> None:
        number, count = settings["number"], settings["count"]
        now = SystemClock().monotonic
        tenants = Tenants(lambda: int(now() * 1_000), FairTurns(now))
        limits = Settings(backend.txn)
        limits.follow_limits(tenants.follow)
        self._in_background(limits.run())
        await asyncio.to_thread(warm)
        front = Front(
            backend.kv,
            backend.txn,
            backend,
            SystemClock(),
            SystemRng(),
            LoopTimers(asyncio.get_running_loop()),
            tenants,
            name=f"node {settings['node']} sql {number}".encode(),
            home=home,
            connections_max=settings["connections_max"],
            seats=descriptors.seats(descriptors.raise_limit()),
            tls=tls,
            memory_bytes=settings["memory_bytes"],
            session_defaults=settings["session_defaults"],
            log=log,
        )
        server = front.server
        server.number_by(number + 1, count)
        server.secret = settings["secret"]
        server.elsewhere = lambda process, key: self._channel.send([CANCEL, process, key])
        server.gone = lambda: self._channel.send([GONE])
        front.services.roster.others = self
        self._front = front
        self._in_background(front.review())
        try:
            cycles.calm()
            self._channel.send([READY])
            await self._stop.wait()
        finally:
            await asyncio.gather(
                *self._tasks, return_exceptions=True
            )  # a client that has just come gets it, too
            await front.stop()
            cycles.release()

    # -- sqlproxy.session.shared.roster.Others

    async def sessions(self) -> Sequence[SessionRow]:
        """Those of the other processes of this node."""
        self._number += 1
        number = self._number
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._channel.send([SESSIONS, number])
        try:
            async with asyncio.timeout(_ASK_S):
                return [session_row_from(row) for row in await future]
        except TimeoutError:
            return []
        finally:
            del self._asked[number]

    def end(self, process: int, *, terminate: bool) -> None:
        self._channel.send([END, process, terminate])

    # -- the node

    def _heard(self, message: list[object], client: socket.socket | None) -> None:
        front = self._front
        match message:
            case [str(kind), dict(settings)] if kind == SETTINGS:
                self._settings.set_result(settings)
            case [str(kind)] if kind == STOP:
                self._stop.set()
            case [str(kind)] if kind == CLIENT and front is not None and client is not None:
                task = asyncio.get_running_loop().create_task(front.server.take(client))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case [str(kind)] if kind == CLIENT:
                log.warning("a client is turned away: no file descriptors are left")
                self._channel.send([GONE])
            case [str(kind), int(process), bytes(key)] if kind == CANCEL and front is not None:
                front.server.cancel_here(process, key)
            case [str(kind), int(process), bool(terminate)] if kind == END and front is not None:
                front.services.roster.end(process, terminate=terminate)
            case [str(kind), int(number)] if kind == LIST:
                rows = [] if front is None else front.services.roster.own_rows()
                self._channel.send([ANSWER, number, [list(one) for one in rows]])
            case [str(kind), int(number), list(rows)] if kind == SESSIONS:
                future = self._asked.get(number)
                if future is not None and not future.done():
                    future.set_result(rows)


def _orphaned() -> None:
    """The node is gone: whatever a session waits for would never come."""
    os._exit(ORPHANED)


def _alone(data: Path, number: int) -> TextIO:
    """The lock of its place, once nobody else has it."""
    data.mkdir(parents=True, exist_ok=True)  # a node that keeps nothing has none
    lock = (data / f"sql-process-{number}.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


async def _main() -> None:
    with contextlib.closing(socket.socket(fileno=os.dup(sys.stdin.fileno()))) as sock:
        await SqlProcess(sock).run()


if __name__ == "__main__":
    uvloop.run(_main())
