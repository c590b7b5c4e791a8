"""The HTTP side of a node: its sessions, and the figures of all its layers. Importing this imports
FastAPI.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

from kvorum import observability
from kvorum.api.backend import Backend
from kvorum.api.verbs import HOLDS_TXN
from kvorum.audit.audit_log import StampLog
from kvorum.http.metrics.metrics import Metrics
from kvorum.http.metrics.procedure_metrics import ProcedureMetrics
from kvorum.http.routes.leases import Leases, Told, ToldStore
from kvorum.http.server.http_api import HttpApi, Spawn
from kvorum.http.server.transaction_holders import Holders
from kvorum.node.components import Parts
from procedures.engine.registry import ProcedureType
from procedures.engine.runner import Runner
from procedures.pools.worker import Worker


def http_server(
    node: Parts,
    surface: Backend,
    sock: socket.socket,
    spawn: Spawn,
    *,
    not_ready: Callable[[], str | None],
    stamps: StampLog | None,
    sql_figures: Callable[[], Mapping[str, int]],
    sql: Callable[..., Awaitable[dict[str, object]]] | None,
) -> HttpApi:
    """The HTTP side of a node, on a socket that listens already."""
    store, port = node.store, sock.getsockname()[1]
    holders = Holders(
        store.kv,
        store.cluster.peers.others,
        own=(node.config.reachable_at, port),
        holds=lambda txn: api.sessions.holds(txn),
    )
    api = HttpApi(
        surface,
        sock,
        spawn,
        node.guard,
        timers=node.ports.timers,
        rng=node.ports.rng,
        now=node.ports.clock.monotonic,
        not_ready=not_ready,
        hosts=node.config.known_as,
        holder=holders.find,
        stamps=stamps,
        seats=node.ports.seats,
        tls=node.ports.tls,
        logins=node.logins,
        notice=node.config.notice,
        hybrid=store.clock is not None,
        leases=leases(node),
        sql=sql,
    )
    store.dispatcher.register(HOLDS_TXN, holders.answer)
    add_figures(api.metrics, node)
    api.metrics.add("sql", sql_figures)
    if observability.started():
        observability.bridge(api.metrics.collect)
    return api


def leases(node: Parts) -> Leases:
    """Of workers that speak HTTP to this node: to the master each is one like all others."""
    store, ports = node.store, node.ports

    def make(
        name: str,
        pool: str,
        types: Sequence[ProcedureType],
        runner: Runner,
        slots: int,
        told: Told,
    ) -> Worker:
        return Worker(
            *(name, pool, store.kv, ToldStore(store.txn, told), types, node.backend.step_tables()),
            *(ports.clock, ports.timers, ports.rng),
            slots=slots,
            host=f"node {store.identity.node}",
            runner=runner,
        )

    return Leases(make, ports.timers, ports.rng)


def add_figures(metrics: Metrics, node: Parts) -> None:
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
    metrics.add_collector(ProcedureMetrics(lambda: node.master.executor))
    metrics.add("waits", store.wait_figures)
    metrics.add("heartbeat", store.beat_figures)
    metrics.add("client", store.kv.figures)
    metrics.add("replica_reads", store.replicas.figures)
    metrics.add("storage", node.storage_figures)
    metrics.add("procedure", node.procedure_figures)
    metrics.add("site", node.site_figures)
    metrics.add("process", node.ports.seats.figures)
    metrics.add("tenant", node.guard.tenants.figures)
