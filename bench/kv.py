"""put, get, scan, batch, txn (one key) and txn2 (two) against one node: rates, latencies, CPU time
per operation.

    native   a connection per client, one request in flight on each (a closed loop, as etcd's)
    mux      the same number of requests in flight over four connections
    http     a keep-alive connection per client
Clients are lean (bench/native.py, web.py, pipelined.py) or the SDK (bench/sdk.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench import dataset, load
from bench.node import Node, Server
from bench.pipelined import OPS as PIPELINED_OPS
from bench.spec import Spec
from bench.stats import Record, median_of_runs

OPS = ("put", "get", "scan", "batch", "txn", "txn2")
TRANSPORTS = ("native", "mux", "http")
ROWS_PER_OP = {"scan": 1_000, "batch": 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of results."""

    op: str
    clients: int
    size: int
    transport: str
    client: str

    def fields(self) -> Record:
        return {
            "bench": "kv",
            "op": self.op,
            "clients": self.clients,
            "size": self.size,
            "transport": self.transport,
            "client": self.client,
        }


def cases(
    *, ops: list[str], clients: list[int], sizes: list[int], transports: list[str], client: str
) -> list[Case]:
    """The cases of a run. `client` auto: lean, but the SDK for what only it does (mux)."""
    found = []
    for size in sizes:
        for transport in transports:
            for op in ops:
                for count in clients:
                    kind = client if client != "auto" else "sdk" if transport == "mux" else "lean"
                    if transport == "http":
                        kind = "lean"
                    if transport == "mux" and kind == "lean" and op not in PIPELINED_OPS:
                        continue
                    found.append(
                        Case(op=op, clients=count, size=size, transport=transport, client=kind)
                    )
    return found


class Bench:
    """A node with one loaded table per value size; measures cases on it."""

    def __init__(self, node: Server, *, secs: float, procs: int) -> None:
        self._node, self._secs, self._procs = node, secs, procs
        self._tables: dict[int, dataset.Loaded] = {}

    def table(self, size: int) -> dataset.Loaded:
        """The table with values of `size` bytes, where it is led now."""
        if size not in self._tables:
            self._tables[size] = dataset.create_filled(self._node, size)
        self._tables[size] = dataset.found_again(self._node, self._tables[size])
        return self._tables[size]

    def measure(self, case: Case) -> Record:
        """One window."""
        table = self.table(case.size)
        spec = Spec(
            op=case.op,
            clients=case.clients,
            size=case.size,
            transport=case.transport,
            client=case.client,
            url=self._node.url,
            native_port=table.port,
            http_port=self._node.http_port,
            oracle_port=dataset.oracle_port(self._node),
            table=table.name,
            table_id=table.id,
            table_end=table.end,
            partition=table.partition,
            epoch=table.epoch,
            rows_per_op=ROWS_PER_OP.get(case.op, 1),
            secs=self._secs,
        )
        return load.run(spec, server_pids=self._node.pids, procs=self._procs)


def run(wanted: list[Case], *, reps: int, secs: float, procs: int) -> Iterator[Record]:
    """A record per case: the medians of `reps` windows, taken in turn so that noise is shared."""
    with Node("kv") as node:
        bench = Bench(node, secs=secs, procs=procs)
        for case in wanted:
            yield case.fields() | median_of_runs([bench.measure(case) for _ in range(reps)])
