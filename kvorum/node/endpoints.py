"""How a node is reached: its sockets, and the database as each surface sees it.

    native protocol        BASE      kv/server/socket_server.py
    HTTP                   BASE+2    kvorum/http, with role http
    PostgreSQL protocol    BASE+3    kvorum/sql/sql_endpoint.py, or kvorum/sql/sql_processes.py,
                                     with role sql

An audited node writes every request to the audit log: those of the native port are tapped before
the dispatcher, the other surfaces sit on a backend that writes the log
(kvorum/audit/audited_backend.py). Without the log neither is there. The log opens before the first
socket and closes after the last one.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from kv.base.config import HTTP_OFFSET, SQL_OFFSET
from kv.base.errors import InvalidArgument
from kv.server.socket_server import Submitter
from kv.server.tap import Tap
from kvorum.api.backend import Backend
from kvorum.audit.audit_log import StampLog
from kvorum.audit.audited_backend import stamped
from kvorum.audit.audited_verbs import NativeStamps
from kvorum.audit.open_audit_log import LogSettings, opened
from kvorum.local.ports import Server
from kvorum.node.components import Parts
from kvorum.node.request_resources import Named
from kvorum.node.settle_transactions import Deputy
from kvorum.sql.sql_endpoint import SqlDoor
from kvorum.sql.sql_processes import NO_PROCESSES, SqlProcesses

_BACKLOG: Final = 1_024
log = logging.getLogger(__name__)


class Doors:
    """Of one node. `audit`, then `listen`, once each; what they open is left with the stack."""

    def __init__(
        self,
        node: Parts,
        not_ready: Callable[[], str | None],
        in_background: Callable[[Coroutine[object, None, None]], None],
    ) -> None:
        """`not_ready`: why the node cannot serve, for whoever asks over HTTP."""
        self.stamps: StampLog | None = None
        self._node, self._node_not_ready = node, not_ready
        self._in_background = in_background
        self.native: Server | None = None  # the server of the native port, while it listens
        self._sql_processes: SqlProcesses | None = None
        self._door: SqlDoor | None = None

    def surface(self, name: str) -> Backend:
        """The database of the node for one surface; audited if the node is."""
        if self.stamps is None:
            return self._node.backend
        clock = self._node.ports.clock
        return stamped(self._node.backend, self.stamps, name, clock.monotonic)

    # ----------------------------------------------------------------------------------- audit

    async def audit(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the log of stamps, if there is to be one. Raises why it cannot."""
        config, ports = self._node.config, self._node.ports
        if not config.audit_log:
            return
        self.stamps = await opened(
            stack,
            LogSettings.of(config),
            node=self._node.store.identity.node,
            now_ms=ports.clock.now_ms,
            in_thread=ports.in_thread,
            reader=self._node.store.txn,
            in_background=self._in_background,
        )

    # --------------------------------------------------------------------------------- sockets

    async def listen(self, stack: contextlib.AsyncExitStack) -> None:
        """Open every port that this node is to have. Raises InvalidArgument (CANNOT_LISTEN)."""
        config, store = self._node.config, self._node.store
        port = config.port
        if port is None:
            return
        stamps = None if self.stamps is None else NativeStamps(self.stamps, store.read_point)
        self.native = self._node.ports.network.server(
            self._submitter(stamps),
            self._node.ports.timers,
            cluster=store.identity.cluster,
            node=store.identity.node,
            incarnation=store.identity.incarnation,
            seats=self._node.ports.seats,
            secret=config.cluster_secret.encode(),
            rng=self._node.ports.rng,
            gate=self._node.guard,
            starts_at=self._starts_at,
            named=Named(
                lambda: self._node.guard.book,
                lambda: self._node.master.current(),
                store.safepoint.user_of,
            ),
            deputy=Deputy(store.kv, store.txn),
            time=store.clock,
        )
        self.native.believes = self._believes
        self._node.guard.followers.append(self.native.review)
        if stamps is not None:
            self.native.on_login = stamps.login
        store.cluster.on_cut = self.native.cut
        await self.native.start(config.listen, port)
        if config.join and not (config.cluster_secret or config.tls_dir):
            log.warning(
                "nodes prove nothing to each other: whoever is on this machine may act as one, "
                "users or not. Set KVORUM_CLUSTER_SECRET, or --tls-dir"
            )
        serves_sql = config.sql and "sql" in config.roles
        if serves_sql:
            self._door = self._sql_door()
            stack.push_async_callback(self._door.close)
        if config.http and "http" in config.roles:
            await self._serve_http(stack, port + HTTP_OFFSET)
        if serves_sql:
            await self._serve_sql(stack, port + SQL_OFFSET)

    def _starts_at(self, partition: int) -> bytes | None:
        replica = self._node.store.manager.by_id(partition)
        return None if replica is None else replica.descriptor.start

    def _believes(self) -> bool:
        """Whether somebody on this machine may be another node, though nobody has a secret: while
        there are others, or nobody can log in.
        """
        book = self._node.guard.book
        open_yet = book is not None and not book.closed
        return open_yet or bool(self._node.store.cluster.peers.others())

    async def close_native(self) -> None:
        """Connections of the native port end. It closes later than the others: after the drain."""
        if self.native is not None:
            native, self.native = self.native, None
            await native.close()

    def _submitter(self, stamps: NativeStamps | None) -> Submitter:
        """What takes the requests of the native port."""
        dispatcher = self._node.store.dispatcher
        if stamps is None:
            return dispatcher
        return Tap(dispatcher, stamps, self._node.ports.clock.monotonic)

    async def _serve_http(self, stack: contextlib.AsyncExitStack, port: int) -> None:
        # FastAPI costs 0.4 s and 30 MB: only a node that serves HTTP imports it.
        from kvorum.node.http_endpoint import http_server

        sock = bound_socket(self._node.config.listen, port)
        server = http_server(
            self._node,
            self.surface("http"),
            sock,
            self._in_background,
            not_ready=self._node_not_ready,
            stamps=self.stamps,
            sql_figures=self.sql_figures,
            sql=None if self._door is None else self._door.run,
        )
        await server.start()
        stack.push_async_callback(server.stop)

    def not_ready(self) -> str | None:
        """Why a surface cannot be served, None if all can."""
        return None if self._sql_processes is None else self._sql_processes.not_ready()

    def sql_figures(self) -> Mapping[str, int]:
        """Of the processes that serve SQL, if there are any."""
        return NO_PROCESSES if self._sql_processes is None else self._sql_processes.figures()

    async def _serve_sql(self, stack: contextlib.AsyncExitStack, port: int) -> None:
        config, ports = self._node.config, self._node.ports
        if not config.sql_processes:
            assert self._door is not None, "it is made before"
            self._door.open(bound_socket(config.listen, port), self._in_background)
            return
        node = self._node.store.identity.node
        processes = SqlProcesses(config, node, ports.timers, ports.rng)
        if self.native is not None:
            self.native.own_secret = processes.secret
        processes.open(bound_socket(config.listen, port))
        self._sql_processes = processes
        stack.push_async_callback(processes.close)

    def _sql_door(self) -> SqlDoor:
        """Of the SQL port; where processes serve that, of the statements that come over HTTP."""
        store, ports = self._node.store, self._node.ports
        return SqlDoor(
            store.kv,
            store.txn,
            self.surface("sql"),
            self._node.guard.tenants,
            clock=ports.clock,
            rng=ports.rng,
            timers=ports.timers,
            in_thread=ports.in_thread,
            name=f"node {store.identity.node}".encode(),
            home=self._node.config.data / "sql-temporary",
            seats=ports.seats,
            tls=ports.tls,
            memory_bytes=self._node.config.sql_memory_bytes,
            session_defaults=self._node.config.session_defaults,
            log=self.stamps,
        )


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InvalidArgument (CANNOT_LISTEN)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as e:
        sock.close()
        raise InvalidArgument(
            f"cannot listen on {host}:{port}: {e.strerror or e}; stop who uses it or choose "
            "another address with --listen and --port",
            code="CANNOT_LISTEN",
        ) from e
    return sock
