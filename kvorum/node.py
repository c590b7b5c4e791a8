"""One node: everything wired together, started in order and stopped in the reverse order.

    store (databases, consensus, partitions, oracle)      kvorum/store.py
      ├─ procedures: executor, DDL, the Spark sink's commit
      ├─ garbage timer, sweeper of abandoned intents
      ├─ native protocol on BASE                          kv/server/socket_server.py
      └─ HTTP on BASE+2                                   kvorum/http

`await build(config, ports)` gives a node that has touched nothing yet; `start` opens and serves,
`stop` ends it without losing an acknowledgement: new work is refused, work under way gets its
answer, then sockets and databases close. A failure that makes promises impossible to keep (a failed
sync, damage in the log) is *fatal*: nothing is acknowledged any more, and `fatal` says why; whoever
runs the process ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from kv.base import methods
from kv.base.config import HTTP_OFFSET, NodeConfig
from kv.base.errors import InvalidArgument, KvorumError
from kv.base.ids import NodeId, TableId
from kv.server.socket_server import SocketServer
from kvorum.collector import Collector
from kvorum.heap import Trimmer
from kvorum.members import Member, enrol
from kvorum.native import CATALOG_TTL_S, NativeBackend
from kvorum.ports import Ports
from kvorum.store import Store
from kvorum.version import VERSION
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.registry import Registry, declared_in
from procedures.engine.service import ProcedureService
from procedures.library.sink import SinkClean, SinkCommit
from procedures.library.sink_service import SinkService
from procedures.master.partitions import Partitions
from sqlproxy import catalog, ddl
from sqlproxy.catalog import CatalogCache
from sqlproxy.ddl import DdlServices
from txn.sweeper import Sweeper

log = logging.getLogger(__name__)

_REAP_INTERVAL_S: Final = 60.0
_BACKLOG: Final = 1_024


class TableIds:
    """procedures.engine.context.Tables over the catalog."""

    def __init__(self, tables: CatalogCache) -> None:
        self._tables = tables

    async def resolve(self, namespace: str, table: str) -> TableId:
        return (await self._tables.lookup(namespace, table)).id


class Node:
    """See the module. `start` once, `stop` once."""

    def __init__(self, config: NodeConfig, ports: Ports) -> None:
        self.config = config
        self.ports = ports
        self.store = Store(ports, self._fail)
        self.fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._not_ready: str | None = "it is starting"
        self._stopping = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._native: SocketServer | None = None
        self.executor: Executor
        self.backend: NativeBackend

    # ------------------------------------------------------------------------------------ life

    async def start(self) -> None:
        """Open the data, resume what was under way, serve. Raises why it cannot, with
        nothing left open.
        """
        started = asyncio.get_running_loop().create_future()
        self._serving = asyncio.get_running_loop().create_task(self._serve(started), name="node")
        await asyncio.wait([self._serving, started], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            await self._serving
        self._not_ready = None

    async def stop(self) -> None:
        """End it in order. A second time it does nothing."""
        self._not_ready = "it is stopping"
        self._stopping.set()
        if self._serving is not None:
            serving, self._serving = self._serving, None
            await serving

    async def _serve(self, started: asyncio.Future[None]) -> None:
        """The whole life of the node in one task: what is entered here is left in the
        reverse order.
        """
        async with contextlib.AsyncExitStack() as stack:
            await self.store.open(self.config.data, NodeId(self.config.node_id))
            stack.push_async_callback(self.store.close)
            stack.callback(self._let_go)
            stack.push_async_callback(self._close_native)
            stack.push_async_callback(self.store.drain)
            await self.store.txn.run(catalog.bootstrap)
            await self._enrol()
            self._wire()
            await stack.enter_async_context(self.executor)
            stack.push_async_callback(self._end_background)
            self._in_background(self._collector().run())
            self._in_background(self._sweeper().run())
            self._in_background(self._reap())
            self._in_background(Trimmer(self.ports.in_thread).run())
            self._in_background(self.store.watch_room())
            if self.config.port is not None:
                await self._listen(self.config.port)
                if self.config.http and "http" in self.config.roles:
                    await self._serve_http(stack, self.config.port + HTTP_OFFSET)
            started.set_result(None)
            await self._stopping.wait()

    def _let_go(self) -> None:
        """Forget what leads to the databases: they close only when nobody holds their handles, and
        a user may keep a closed database for long."""
        for name in ("executor", "_sink"):
            self.__dict__.pop(name, None)

    async def _enrol(self) -> None:
        """Tell the cluster who and where this node is."""
        port = self.config.port
        host = self.config.reachable_at
        member = Member(self.store.identity.node, f"{host}:{port}" if port else "", version=VERSION)
        await enrol(self.store.txn, member)

    def _fail(self, error: BaseException) -> None:
        """Something that no promise survives. The first reason counts."""
        log.critical("the node stops: %s", error, exc_info=error)
        self._not_ready = f"it failed: {error}"
        if not self.fatal.done():
            self.fatal.set_result(error)

    def not_ready(self) -> str | None:
        """Why the node cannot serve, None if it can."""
        return self._not_ready

    # ---------------------------------------------------------------------------------- wiring

    def _wire(self) -> None:
        store, ports = self.store, self.ports
        cache = CatalogCache(store.txn, ports.timers, CATALOG_TTL_S)
        self.executor = Executor(
            KvStore(store.txn),
            self._registry(cache),
            TableIds(cache),
            ports.clock,
            ports.timers,
            ports.rng,
            workers=self.config.procedure_workers,
        )
        service = ProcedureService(self.executor, ports.clock, ports.timers)
        service.register(store.dispatcher)
        self._sink = SinkService(store.txn, self.executor, ports.clock)
        for method, handler in self._sink.handlers().items():
            store.dispatcher.register(method, handler)
        store.dispatcher.register(methods.SAFEPOINT, lambda _context, _args: [self._safepoint()])
        store.dispatcher.add_stats(store.tso.stats)
        store.dispatcher.add_stats(self.partition_figures)
        self.backend = NativeBackend(
            store.kv,
            store.txn,
            store.oracle.take,
            ports.timers,
            close=self.stop,
            tables=cache,
        )

    def _registry(self, cache: CatalogCache) -> Registry:
        """The system's procedures and those of the user's modules. Raises InvalidArgument."""
        registry = Registry()
        partitions = Partitions(self.store.manager, self.store.identity.node)
        ddl.register(registry, DdlServices(partitions, cache.invalidate))
        registry.add(SinkCommit, make=lambda: SinkCommit(self.store.txn, self.executor.submit))
        registry.add(SinkClean, make=lambda: SinkClean(self.store.txn))
        for name in self.config.procedure_modules:
            try:
                importlib.import_module(name)
            except ImportError as e:
                raise InvalidArgument(
                    f"the procedure module {name!r} cannot be imported: {e}; it is looked for in "
                    "the working directory and on PYTHONPATH"
                ) from e
            except Exception as e:  # the user's code may raise anything
                raise InvalidArgument(
                    f"the procedure module {name!r} cannot be imported: {type(e).__name__}: {e}; "
                    "mend it and start again"
                ) from e
        for cls in declared_in(self.config.procedure_modules):
            registry.add(cls)
        return registry

    def partition_figures(self) -> Mapping[str, int]:
        """Per partition: live bytes, and how many entries its log ever had."""
        figures: dict[str, int] = {}
        for replica in self.store.manager.replicas():
            figures[f"partition_bytes.{replica.descriptor.id}"] = replica.state.live_bytes
            figures[f"partition_entries.{replica.descriptor.id}"] = replica.state.index
        return figures

    def storage_figures(self) -> Mapping[str, int]:
        """Of the state DB, sizes in bytes."""
        return self.store.state.stats()

    def procedure_figures(self) -> Mapping[str, int]:
        """Of the executor."""
        return self.executor.counters()

    def _safepoint(self) -> int:
        return max((r.state.safepoint for r in self.store.manager.replicas()), default=0)

    # ------------------------------------------------------------------------------ background

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the node's own; an error in it that is no KvorumError is a bug, and fatal."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._fail(error)

    async def _end_background(self) -> None:
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _collector(self) -> Collector:
        return Collector(
            self.store.manager,
            self.ports.clock,
            retention_ms=self.config.gc_retention_ms,
            interval_ms=self.config.gc_interval_ms,
        )

    def _sweeper(self) -> Sweeper:
        store, ports = self.store, self.ports
        return Sweeper(store.manager, store.txn.resolver, ports.clock, ports.timers)

    async def _reap(self) -> None:
        """Remove what sinks staged and abandoned."""
        while True:
            await asyncio.sleep(_REAP_INTERVAL_S)
            try:
                await self._sink.reap()
            except KvorumError as e:
                log.warning("abandoned sink attempts were not removed: %s; next round", e)

    # --------------------------------------------------------------------------------- sockets

    async def _listen(self, port: int) -> None:
        identity = self.store.identity
        self._native = SocketServer(
            self.store.dispatcher, self.ports.timers, cluster=identity.cluster, node=identity.node
        )
        await self._native.start(self.config.listen, port)

    async def _close_native(self) -> None:
        if self._native is not None:
            native, self._native = self._native, None
            await native.close()

    async def _serve_http(self, stack: contextlib.AsyncExitStack, port: int) -> None:
        # FastAPI costs 0.4 s and 30 MB: only a node that serves HTTP imports it.
        from kvorum.http.assembly import http_server

        sock = bound_socket(self.config.listen, port)
        server = http_server(self, sock, self._in_background)
        await server.start()
        stack.push_async_callback(server.stop)


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


async def build(config: NodeConfig, ports: Ports) -> Node:
    """A node that has touched nothing yet. Raises InvalidArgument for what this version cannot."""
    if config.stores > 1 or len(config.join) > 1:
        setting = "stores" if config.stores > 1 else "join"
        raise InvalidArgument(
            f"{setting}: this version runs one node; clusters of several nodes are not in it yet",
            details={"setting": setting},
        )
    return Node(config, ports)
