"""`kvorum proxy`: HTTP and SQL of a cluster in a process of its own that keeps nothing.

    HTTP on BASE+2, SQL on BASE+3 ─▶ backend over the native protocol ─▶ whichever node leads

Any number of proxies may stand in front of a cluster: killing one loses no acknowledged write, and
clients go on through another. Transactions opened over HTTP or SQL live in the proxy that began
them. It is ready once the cluster answers, and says why not until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.config import HTTP_OFFSET, SQL_OFFSET, NodeConfig, insecure, own_addresses
from kv.base.config_values import is_loopback
from kv.base.credentials import of_proxy
from kv.base.errors import KvorumError, Rejected
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.base.tls import Tls
from kvorum.api.backend import Backend
from kvorum.local import cycles, descriptors
from kvorum.local.blocking_calls import Outside
from kvorum.local.settings import Settings
from kvorum.native.native import NativeBackend
from kvorum.native.remote import connect_backend
from kvorum.node.endpoints import bound_socket
from kvorum.sql.sql_endpoint import SqlDoor
from sqlproxy.catalog.guard import Guard

_RETRY_S: Final = 0.5
_ASK_S: Final = 1.0

log = logging.getLogger(__name__)


class Proxy:
    """See the module. `start` once, `stop` once."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        host: str,
        base: int,
        *,
        http_hosts: Sequence[str] = (),
        tls: Tls | None = None,
        config: NodeConfig | None = None,
    ) -> None:
        """It listens at `host` and `base`; `http_hosts` are more names for it (HostGuard). `tls`:
        of what it serves and of its connections to the nodes. `config`:
        whose oidc_… and memory settings are its own.
        """
        self._addresses, self._host, self._base = addresses, host, base
        self._hosts, self._tls = http_hosts, tls
        self._config = config or NodeConfig()
        self._seats = descriptors.seats(descriptors.raise_limit())
        self._not_ready: str | None = "it is looking for the cluster"
        self._stack = contextlib.AsyncExitStack()
        self._background: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._host}:{self._base + HTTP_OFFSET}"

    @property
    def sql_url(self) -> str:
        url = f"postgresql://kvorum@{self._host}:{self._base + SQL_OFFSET}/postgres"
        return url if self._tls is None else f"{url}?sslmode=verify-full"

    def not_ready(self) -> str | None:
        """Why it cannot serve, None if it can."""
        return self._not_ready

    async def start(self) -> None:
        """Listen, then find the cluster: while there is none, it is tried again and again.

        Raises InvalidArgument (CANNOT_LISTEN), or Refused by a cluster of another version.
        """
        notice = ""
        if self._tls is None and not is_loopback(self._host):
            notice = insecure(self._host)
            log.warning("%s", notice)
        # FastAPI costs 0.4 s and 30 MB: only who serves HTTP imports it.
        from kvorum.http.server.http_api import HttpApi

        sock = bound_socket(self._host, self._base + HTTP_OFFSET)
        self._stack.callback(sock.close)
        sql_sock = bound_socket(self._host, self._base + SQL_OFFSET)
        self._stack.callback(sql_sock.close)
        backend = await self._found()
        self._stack.push_async_callback(backend.close)
        self._stack.push_async_callback(self._end_background)
        own = own_addresses(self._host, insecure=self._tls is None)
        self.guard = Guard(backend.txn, SystemClock(), asyncio.to_thread, own)
        logins = None
        if self._config.oidc_issuer:
            from kvorum.security.oidc_setup import ISSUER_CALLS_MAX, issuer_and_logins

            beside = Outside(ISSUER_CALLS_MAX)
            made = issuer_and_logins(self._config, SystemClock(), SystemRng(), beside)
            self.guard.issuer, logins = made
        self._in_background(self.guard.run(asyncio.sleep))
        settings = Settings(backend.txn)
        settings.follow_limits(self.guard.tenants.follow)
        self._in_background(settings.run())
        api = HttpApi(
            backend,
            sock,
            self._in_background,
            self.guard,
            timers=LoopTimers(asyncio.get_running_loop()),
            rng=SystemRng(),
            now=SystemClock().monotonic,
            not_ready=self.not_ready,
            hosts=(self._host, *self._hosts, *self._config.known_as),
            seats=self._seats,
            tls=self._tls,
            logins=logins,
            notice=notice,
            hybrid=True,
            sql=self._serve_sql(backend, sql_sock).run,
        )
        await api.start()
        self._stack.push_async_callback(api.stop)
        self._in_background(self._watch(backend))

    def _serve_sql(self, backend: NativeBackend, sock: socket.socket) -> SqlDoor:
        door = SqlDoor(
            backend.kv,
            backend.txn,
            backend,
            self.guard.tenants,
            clock=SystemClock(),
            rng=SystemRng(),
            timers=LoopTimers(asyncio.get_running_loop()),
            in_thread=asyncio.to_thread,
            seats=self._seats,
            tls=self._tls,
            memory_bytes=self._config.sql_memory_bytes,
            session_defaults=self._config.session_defaults,
        )
        door.open(sock, self._in_background)
        self._stack.push_async_callback(door.close)
        return door

    async def stop(self) -> None:
        self._not_ready = "it is stopping"
        await self._stack.aclose()

    async def _found(self) -> NativeBackend:
        while True:
            try:
                return await connect_backend(
                    self._addresses, DEADLINE_MS_DEFAULT, self._tls, of_proxy(os.environ)
                )
            except KvorumError as error:
                if isinstance(error, Rejected):
                    raise
                log.warning("no cluster yet: %s", error)
            await asyncio.sleep(_RETRY_S)

    async def _watch(self, backend: Backend) -> None:
        """Ready means that the cluster answers: looked at all the time, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_ASK_S * 5):
                    await backend.namespaces()
                self._not_ready = None
            except (KvorumError, TimeoutError) as error:
                self._not_ready = f"the cluster does not answer: {error}"
            await asyncio.sleep(_ASK_S)

    def _in_background(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _end_background(self) -> None:
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def serve(proxy: Proxy, on_ready: Callable[[Proxy], None]) -> None:
    """Run a proxy until SIGTERM or SIGINT. Raises KvorumError if it cannot start."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starting = loop.create_task(proxy.start())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    try:
        if starting.done():
            await starting
            cycles.calm()
            on_ready(proxy)
            await stopping
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.wait([starting, stopping])
        await proxy.stop()
        cycles.release()
