"""Procedures of 1 and of 10 steps; each client submits one and waits for its result."""

from __future__ import annotations

from collections.abc import Iterator

from bench import load
from bench.cluster import Cluster
from bench.node import Node, Server
from bench.spec import Spec
from bench.stats import Record, median_of_runs

STEPS = (1, 10)
CLIENTS = (1, 16, 64)
VALUE_BYTES = 100
OPTIONS = ("--procedure-modules", "bench.steps")


def fields(steps: int, clients: int, nodes: int = 1) -> Record:
    """What is measured, without its figures."""
    where: Record = {"nodes": nodes} if nodes > 1 else {}
    case = {"op": f"{steps}-step", "clients": clients, "size": VALUE_BYTES}
    return {"bench": "procedures", **where, **case}


def server(name: str, nodes: int) -> Node | Cluster:
    """To be started by `with`."""
    return Cluster(name, nodes, options=OPTIONS) if nodes > 1 else Node(name, options=OPTIONS)


def measure(node: Server, steps: int, clients: int, *, secs: float) -> Record:
    """One window. `ops_s` counts procedures, `steps_s` their steps."""
    spec = Spec(
        op="proc",
        clients=clients,
        size=VALUE_BYTES,
        transport="mux",
        client="sdk",
        url=node.url,
        native_port=node.base,
        http_port=node.http_port,
        rows_per_op=steps,
        secs=secs,
    )
    found = load.run(spec, server_pids=node.pids)
    found.pop("rows_s", None)
    found["steps_s"] = round(found["ops_s"] * steps, 1)
    return found


def run(
    steps: list[int], clients: list[int], *, nodes: int = 1, reps: int, secs: float
) -> Iterator[Record]:
    """A record per number of steps and of procedures in flight."""
    with server("procedures", nodes) as node:
        for count in steps:
            for in_flight in clients:
                windows = [measure(node, count, in_flight, secs=secs) for _ in range(reps)]
                yield fields(count, in_flight, nodes) | median_of_runs(windows, "steps_s")
