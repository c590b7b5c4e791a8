"""The HTTP side of a node: applications, sessions and metrics put together. Importing
this imports FastAPI.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from kv.base.methods import HOLDS_TXN
from kv.base.ports import Timers
from kvorum.api.backend import Backend
from kvorum.audit.stamped import StampedHttp
from kvorum.audit.stamps import NO_FIGURES, StampLog
from kvorum.http.cold import ColdApi, Health
from kvorum.http.holders import Holders
from kvorum.http.hosts import HostGuard
from kvorum.http.hot import HotApi
from kvorum.http.metrics import Metrics
from kvorum.http.server import HttpServer
from kvorum.http.sessions import Sessions
from kvorum.http.watch import Watches
from kvorum.version import VERSION

if TYPE_CHECKING:
    from kvorum.node.node import Node

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class HttpApi:
    """The HTTP API over one backend, a node's or a proxy's; `start` and `stop` once."""

    def __init__(
        self,
        backend: Backend,
        sock: socket.socket,
        spawn: Spawn,
        *,
        timers: Timers,
        now: Callable[[], float],
        not_ready: Callable[[], str | None],
        hosts: Iterable[str],
        holder: Callable[[int], Awaitable[str | None]] | None = None,
        stamps: StampLog | None = None,
    ) -> None:
        """`now` in seconds: the loop's own time is that of its last pass, in ms. `not_ready` says
        why requests cannot be served, None if they can. `hosts`: names that it may be asked for by
        beside its machine's (hosts.py). `holder`: see Sessions. `stamps`: tell it
        of every request; `backend` does already.
        """
        self.metrics = Metrics()
        self.sessions = Sessions(backend, timers, spawn, holder)
        cold = ColdApi(backend, self.metrics, Health(not_ready), VERSION, now)
        requests = self.metrics.requests
        self._watches = watches = Watches(backend, requests, now)
        hot = HotApi(backend, self.sessions, cold.application(), requests, now, watches)
        app = HostGuard(hot, (*hosts, socket.gethostname()))
        self._server = HttpServer(app if stamps is None else StampedHttp(app, stamps, now), sock)
        self.metrics.add("audit", NO_FIGURES.copy if stamps is None else stamps.figures)
        sessions = self.sessions
        self.metrics.add(
            "http", lambda: {"transactions_open": len(sessions), "watches_open": len(watches)}
        )

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        """Requests under way finish; transactions that clients hold open are aborted."""
        self._watches.close()
        await self._server.stop()
        await self.sessions.close()


def http_server(node: Node, sock: socket.socket, spawn: Spawn) -> HttpApi:
    """The HTTP side of a node, on a socket that listens already."""
    store, port = node.store, sock.getsockname()[1]
    holders = Holders(
        store.kv,
        store.cluster.peers.others,
        own=(node.config.reachable_at, port),
        holds=lambda txn: api.sessions.holds(txn),
    )
    api = HttpApi(
        node.surface("http"),
        sock,
        spawn,
        timers=node.ports.timers,
        now=node.ports.clock.monotonic,
        not_ready=node.not_ready,
        hosts=node.config.known_as,
        holder=holders.find,
        stamps=node.stamps,
    )
    store.dispatcher.register(HOLDS_TXN, holders.answer)
    add_figures(api.metrics, node)
    return api


def add_figures(metrics: Metrics, node: Node) -> None:
    """Every layer's plain numbers. Bound methods only: a stopped node must not be held by them."""
    store = node.store
    metrics.add("rpc", store.dispatcher.figures)
    metrics.add("raft", partial(asdict, store.host.counters))
    metrics.add_histogram(
        "raft_sync_seconds",
        "Time until a sync of the log is known to be done; every write waits for one.",
        store.sync_taken,
    )
    metrics.add("partition", partial(asdict, store.manager.partition_counters))
    metrics.add("replica", partial(asdict, store.manager.counters))
    metrics.add("partition", store.replica_figures)
    metrics.add("tso", store.tso_figures)
    # not the bound method: a closed node must not be held with its databases
    metrics.add("gc", lambda: node.upkeep.gc_figures())
    metrics.add("bus", lambda: node.bus.stats())
    metrics.add("waits", store.wait_figures)
    metrics.add("heartbeat", store.beat_figures)
    metrics.add("client", store.kv.figures)
    metrics.add("storage", node.storage_figures)
    metrics.add("procedure", node.procedure_figures)
    metrics.add("sql", node.doors.sql_figures)
