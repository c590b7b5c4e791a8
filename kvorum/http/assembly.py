"""The HTTP side of a node: applications, sessions and metrics put together. Importing
this imports FastAPI.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from kvorum.http.cold import ColdApi, Health
from kvorum.http.hot import HotApi
from kvorum.http.metrics import Metrics
from kvorum.http.server import HttpServer
from kvorum.http.sessions import Sessions
from kvorum.version import VERSION

if TYPE_CHECKING:
    from kvorum.node import Node

STORAGE_GAUGES = (
    "memtable_bytes",
    "file_bytes",
    "cache_bytes",
    "keys_estimated",
    "compaction_pending_bytes",
    "disk_free_bytes",
)
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class NodeHttp:
    """HTTP of one node; `start` and `stop` once."""

    def __init__(self, node: Node, sock: socket.socket, spawn: Spawn) -> None:
        self.metrics = Metrics()
        timers = node.ports.timers
        self.sessions = Sessions(node.backend, timers, spawn)
        cold = ColdApi(
            node.backend, self.metrics, Health(node.not_ready), VERSION, timers.monotonic
        )
        hot = HotApi(
            node.backend,
            self.sessions,
            cold.application(),
            self.metrics.requests,
            timers.monotonic,
        )
        self._server = HttpServer(hot, sock)
        add_figures(self.metrics, node, self.sessions)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        """Requests under way finish; transactions that clients hold open are aborted."""
        await self._server.stop()
        await self.sessions.close()


def http_server(node: Node, sock: socket.socket, spawn: Spawn) -> NodeHttp:
    """The HTTP side of a node, on a socket that listens already."""
    return NodeHttp(node, sock, spawn)


def add_figures(metrics: Metrics, node: Node, sessions: Sessions) -> None:
    """Every layer's plain numbers. Bound methods only: a stopped node must not be held by them."""
    store = node.store
    metrics.add("rpc", store.dispatcher.counters.as_map, gauges=("connections", "handlers"))
    metrics.add("raft", partial(asdict, store.host.counters))
    metrics.add("partition", partial(asdict, store.manager.partition_counters))
    metrics.add("replica", partial(asdict, store.manager.counters))
    metrics.add("tso", lambda: {"last": store.tso.last, **_stripped("tso.", store.tso.stats())})
    metrics.add("storage", node.storage_figures, gauges=STORAGE_GAUGES)
    metrics.add("node", node.partition_figures, gauges=("partition_bytes",))
    metrics.add("procedure", node.procedure_figures, gauges=("live", "workers"))
    metrics.add("http", lambda: {"transactions_open": len(sessions)}, gauges=("transactions_open",))


def _stripped(prefix: str, figures: Mapping[str, int]) -> dict[str, int]:
    return {name.removeprefix(prefix): value for name, value in figures.items()}
