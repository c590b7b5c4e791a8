"""Transactions: two keys in one partition and in two, transfers between few accounts, timestamps.

txn2    two random keys read and written, one partition; clients speak the native protocol
txn2x   the same over two partitions, through the SDK, which coordinates it
        (native: a connection per client; mux: four connections per client process)
bank    transfers between 100 accounts, so that most transactions meet another; every one is run
        again until it commits, and only commits count (goodput)
tso     timestamps per second of batching clients, and what one lone caller waits meanwhile
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import kvorum
from bench import dataset, load
from bench.cluster import Cluster
from bench.native import frame
from bench.node import Node, Server
from bench.spec import KEYS, Spec, user_key
from bench.stats import Record, median_of_runs, summary
from kv.base import methods as m
from kv.base.rpc import HEADER_BYTES, FrameEncoder, Hello

ACCOUNTS = 100
BALANCE = 1_000
SIZE = 100
CLIENTS = 64
_TSO_CLIENTS = 32
_TSO_BATCH = 1_000  # what a batching client asks for at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of results. `procs`: client processes; a coordinator's work is the client's."""

    op: str
    client: str
    transport: str = "native"
    procs: int = 1
    clients: int = CLIENTS

    def fields(self) -> Record:
        return {
            "bench": "txn",
            "op": self.op,
            "clients": self.clients,
            "transport": self.transport,
            "client": self.client,
        }


CASES = (
    Case(op="txn2", client="lean"),
    Case(op="txn2", client="sdk", transport="mux"),
    Case(op="txn2x", client="sdk", transport="mux"),
    Case(op="txn2x", client="sdk", transport="mux", procs=2),
    Case(op="txn2x", client="sdk", clients=1),
    Case(op="bank", client="sdk", transport="mux"),
)


class Bench:
    """A server with the tables of all cases."""

    def __init__(self, server: Server, *, secs: float) -> None:
        self._server, self._secs = server, secs
        self._whole = dataset.create_filled(server, SIZE)
        with kvorum.connect(server.url) as db:
            db.create_table(dataset.NAMESPACE, "halves", split_keys=[user_key(KEYS // 2)])
            db.create_table(dataset.NAMESPACE, "bank", split_keys=[user_key(ACCOUNTS // 2)])
            for at in range(0, KEYS, 5_000):
                _fill(db, "halves", range(at, at + 5_000), b"v" * SIZE)
            _fill(db, "bank", range(ACCOUNTS), b"%d" % BALANCE)

    def measure(self, case: Case) -> Record:
        """One window; after it the bank must hold what it held."""
        spec = self.spec(case)
        if case.op == "txn2x":
            spec = replace(spec, table="halves")
        elif case.op == "bank":
            spec = replace(spec, table="bank", keys=ACCOUNTS)
        found = load.run(spec, server_pids=self._server.pids, procs=case.procs)
        if case.op == "bank":
            found["total_kept"] = self._total() == ACCOUNTS * BALANCE
        return found

    def spec(self, case: Case) -> Spec:
        """`case` over the table that is one partition, which a lean client asks at its leader."""
        whole = self._whole = dataset.found_again(self._server, self._whole)
        return Spec(
            op=case.op,
            clients=case.clients,
            size=SIZE,
            transport=case.transport,
            client=case.client,
            url=self._server.url,
            native_port=whole.port,
            http_port=self._server.http_port,
            oracle_port=dataset.oracle_port(self._server),
            table=whole.name,
            table_id=whole.id,
            table_end=whole.end,
            partition=whole.partition,
            epoch=whole.epoch,
            secs=self._secs,
        )

    def timestamps(self) -> Record:
        """The oracle, alone and beside puts."""
        puts = replace(self.spec(Case(op="put", client="lean")), secs=self._secs + 2)
        return asyncio.run(_timestamps(self._server, puts, self._secs))

    def _total(self) -> int:
        with kvorum.connect(self._server.url) as db:
            return sum(int(row.value) for row in db.table(dataset.NAMESPACE, "bank").rows())


def _fill(db: kvorum.Database, table: str, keys: range, value: bytes) -> None:
    db.batch([kvorum.Put(dataset.NAMESPACE, table, user_key(k), value) for k in keys])


def server(nodes: int) -> Node | Cluster:
    """One node, or several."""
    return Node("txn") if nodes == 1 else Cluster("txn", nodes)


def run(cases: tuple[Case, ...] = CASES, *, nodes: int, reps: int, secs: float) -> Iterator[Record]:
    """A record per case, on one node or on three: the medians of `reps` windows taken in turn."""
    with server(nodes) as node:
        bench = Bench(node, secs=secs)
        found: dict[Case, list[Record]] = {case: [] for case in cases}
        for _ in range(reps):
            for case in cases:
                found[case].append(bench.measure(case))
        for case, runs in found.items():
            yield {"nodes": nodes} | case.fields() | median_of_runs(runs)
        yield {"nodes": nodes} | median_of_runs([bench.timestamps() for _ in range(reps)])


# ------------------------------------------------------------------------------------- timestamps


class _Lone:
    """A connection that asks for timestamps, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> _Lone:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(FrameEncoder().message(Hello().to_wire()))
        lone = cls(reader, writer)
        await lone._frame()
        return lone

    async def take(self, count: int) -> None:
        self._writer.write(frame(m.TSO, count))
        await self._frame()

    async def _frame(self) -> bytes:
        head = await self._reader.readexactly(HEADER_BYTES)
        return await self._reader.readexactly(int.from_bytes(head, "little"))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def _timestamps(server: Server, puts: Spec, secs: float) -> Record:
    """Clients that take a thousand timestamps at once; then one that takes single ones, alone and
    beside 64 clients that put.
    """
    port = await asyncio.to_thread(dataset.oracle_port, server)
    end = time.monotonic() + secs
    requests = await asyncio.gather(*(_take(port, _TSO_BATCH, end) for _ in range(_TSO_CLIENTS)))
    alone = await _take(port, 1, time.monotonic() + secs)
    loading = asyncio.create_task(
        asyncio.to_thread(load.run, puts, server_pids=server.pids, procs=1)
    )
    await asyncio.sleep(puts.warm_s + 2)  # the load's processes start
    beside = await _take(port, 1, time.monotonic() + secs)
    loaded = await loading
    return {
        "bench": "tso",
        "clients": _TSO_CLIENTS,
        "batch": _TSO_BATCH,
        "ops_s": round(sum(map(len, requests)) * _TSO_BATCH / secs),
        "alone_p50_ms": summary(alone, secs)["p50_ms"],
        "alone_p99_ms": summary(alone, secs)["p99_ms"],
        "beside_puts_p50_ms": summary(beside, secs)["p50_ms"],
        "beside_puts_p99_ms": summary(beside, secs)["p99_ms"],
        "puts_s": loaded["ops_s"],
    }


async def _take(port: int, count: int, end: float) -> list[float]:
    """How long each request of `count` timestamps took, one after the other until `end`."""
    client = await _Lone.connect(port)
    waits = []
    while (began := time.monotonic()) < end:
        await client.take(count)
        waits.append(time.monotonic() - began)
    await client.close()
    return waits
