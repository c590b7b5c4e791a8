"""Kvorum and its peers in the same minutes: each case in turn (peer, Kvorum, peer, …).

The machine's noise changes within minutes, so a rate means something only beside the peer's from
the same turn. Kvorum's node stays up between its turns (idle); a peer starts afresh each time.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench import (
    cluster,
    kv,
    many_procedures,
    memory,
    procedures,
    recovery,
    recovery_procedures,
    spark,
    split,
    spread,
    transactions,
)
from bench.cluster import Cluster
from bench.node import Node, Server
from bench.peers import PeerFailed, Peers
from bench.stats import Record, median_of_runs

NAMES = (
    "kv",
    "cluster",
    "failover",
    "groups",
    "transactions",
    "http",
    "procedures",
    "spark",
    "memory",
    "recovery",
    "recovery-procedures",
    "many-procedures",
    "split",
    "spread",
)
_SIZE = 100
# What the goals name, and 1 KiB beside it.
_AGAINST_ETCD = (
    ("put", 1, 100),
    ("put", 64, 100),
    ("put", 256, 100),
    ("get", 64, 100),
    ("get", 256, 100),
    ("txn", 64, 100),
    ("put", 64, 1024),
    ("put", 256, 1024),
)
_CLUSTERS = (("put", 1, 100), ("put", 64, 100), ("put", 256, 100), ("get", 64, 100))
_LOAD_MB = 1000
_FAILOVERS = 5


def note(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)


def in_turn(
    reps: int, turns: dict[str, Callable[[], Record]], rate: str = "ops_s"
) -> dict[str, Record]:
    """Every turn once per repetition; the medians of each. A peer that fails is left out."""
    runs: dict[str, list[Record]] = {name: [] for name in turns}
    for _ in range(reps):
        for name, measure in turns.items():
            try:
                runs[name].append(measure())
            except PeerFailed as error:
                note(f"  {name}: {error}")
    return {name: median_of_runs(found, rate) for name, found in runs.items() if found}


def _case(op: str, clients: int, size: int, transport: str, client: str) -> kv.Case:
    return kv.Case(op=op, clients=clients, size=size, transport=transport, client=client)


def against_etcd(peers: Peers, *, reps: int, secs: float) -> Iterator[Record]:
    """The KV cases on one node."""
    with Node("compare") as node:
        yield from _kv_in_turn(peers, node, _AGAINST_ETCD, nodes=1, reps=reps, secs=secs)


def clusters(peers: Peers, *, reps: int, secs: float) -> Iterator[Record]:
    """The KV cases on three nodes. Idle nodes of ours stay up while the peer is measured."""
    with Cluster("compare") as nodes:
        yield from _kv_in_turn(peers, nodes, _CLUSTERS, nodes=cluster.NODES, reps=reps, secs=secs)


def _kv_in_turn(
    peers: Peers,
    server: Server,
    cases: tuple[tuple[str, int, int], ...],
    *,
    nodes: int,
    reps: int,
    secs: float,
) -> Iterator[Record]:
    """etcd, ours with a connection per client, for puts at 256 multiplexed too."""
    bench = kv.Bench(server, secs=secs, procs=1)
    several = {"nodes": nodes} if nodes > 1 else {}
    for op, clients, size in cases:
        note(f"{op} {size} B, {clients} clients, {nodes} nodes: etcd and Kvorum, {reps} turns")
        ours = [_case(op, clients, size, "native", "lean")]
        if (op, clients) == ("put", 256):
            ours += [_case(op, clients, size, "mux", c) for c in ("sdk", "lean")]
        bench.table(size)  # loaded before the first turn
        turns: dict[str, Callable[[], Record]] = {
            "etcd": partial(peers.etcd, op, clients, size, secs, nodes=nodes)
        }
        for case in ours:
            turns[str(case)] = partial(bench.measure, case)
        found = in_turn(reps, turns)
        if "etcd" in found:
            yield _peer("etcd", op, clients=clients, size=size) | several | found["etcd"]
        for case in ours:
            yield several | case.fields() | found[str(case)]


def failovers(peers: Peers, *, reps: int, secs: float) -> Iterator[Record]:
    """The gap when the leader is killed: the peer's first, then ours."""
    note(f"failover: etcd and Kvorum, {reps} turns")
    gaps: list[float] = []
    for _ in range(reps):
        try:
            gaps.append(float(peers.etcd_failover(secs)["gap_s"]))
        except PeerFailed as error:
            note(f"  etcd: {error}")
    if gaps:
        gap = statistics.median(gaps)
        yield _peer("etcd", "failover") | {"nodes": cluster.NODES, "gap_s": gap, "gaps": gaps}
    yield from cluster.failover(reps=reps)


def transactions_in_turn(peers: Peers, nodes: int, *, reps: int, secs: float) -> Iterator[Record]:
    """etcd's small transaction beside ours over two keys; a bank in PostgreSQL and in ours."""
    note(f"transactions, {nodes} nodes: etcd, PostgreSQL and Kvorum, {reps} turns")
    where = {"nodes": nodes} if nodes > 1 else {}
    with transactions.server(nodes) as node:
        bench = transactions.Bench(node, secs=secs)
        turns: dict[str, Callable[[], Record]] = {
            "etcd": partial(peers.etcd, "txn", transactions.CLIENTS, _SIZE, secs, nodes=nodes)
        }
        if nodes == 1:
            turns["postgresql"] = partial(peers.bank, transactions.CLIENTS, secs)
        for case in transactions.CASES:
            turns[str(case)] = partial(bench.measure, case)
        turns["tso"] = partial(bench.timestamps)
        found = in_turn(reps, turns)
    sizes = {"clients": transactions.CLIENTS, "size": _SIZE}
    if "etcd" in found:
        yield where | _peer("etcd", "txn2", **sizes) | found["etcd"]
    if "postgresql" in found:
        yield _peer("postgresql", "bank", clients=transactions.CLIENTS) | found["postgresql"]
    for case in transactions.CASES:
        yield where | case.fields() | found[str(case)]
    yield where | found["tso"]


def _peer(name: str, op: str, **fields: int) -> Record:
    return {"bench": "peer", "peer": name, "op": op, **fields}


def alone(*, reps: int, secs: float) -> Iterator[Record]:
    """The goals that are absolute figures: HTTP, batches, scans."""
    wanted = [
        _case("put", 64, _SIZE, "http", "lean"),
        _case("get", 64, _SIZE, "http", "lean"),
        _case("batch", 16, _SIZE, "native", "lean"),
        _case("scan", 1, _SIZE, "native", "lean"),
        _case("scan", 1, _SIZE, "native", "sdk"),
    ]
    note(f"HTTP, batches and scans: {len(wanted)} cases")
    yield from kv.run(wanted, reps=reps, secs=secs, procs=1)


def against_dbos(peers: Peers, *, reps: int, secs: float) -> Iterator[Record]:
    """Procedures of 1 and 10 steps at equal concurrency: DBOS, one node of ours, three of ours.
    Ours stay up all the time, idle while others are measured.
    """
    cases = [(steps, count) for steps in procedures.STEPS for count in procedures.CLIENTS]
    theirs: dict[tuple[int, int], list[Record]] = {case: [] for case in cases}
    sizes = (1, cluster.NODES)
    mine: dict[tuple[int, int, int], list[Record]] = {
        (*case, nodes): [] for case in cases for nodes in sizes
    }
    with contextlib.ExitStack() as stack:
        ours = {n: stack.enter_context(procedures.server("compare", n)) for n in sizes}
        for turn in range(reps):
            note(f"procedures: DBOS and Kvorum, turn {turn + 1} of {reps}")
            try:
                for case, record in peers.dbos(list(procedures.CLIENTS), secs).items():
                    theirs[case].append(record)
            except PeerFailed as error:
                note(f"  {error}")
            for case in cases:
                for nodes, measured in ours.items():
                    found = procedures.measure(measured, *case, secs=secs)
                    mine[*case, nodes].append(found)
    for steps, count in cases:
        if theirs[steps, count]:
            head = _peer("dbos", f"{steps}-step", clients=count, size=procedures.VALUE_BYTES)
            yield head | median_of_runs(theirs[steps, count], "steps_s")
        for nodes in sizes:
            found = median_of_runs(mine[steps, count, nodes], "steps_s")
            yield procedures.fields(steps, count, nodes) | found


def against_spark_sinks(peers: Peers, rows: int, *, reps: int, secs: float) -> Iterator[Record]:
    """Batch and streaming writes. Sessions of Spark are heavy: theirs, ours, theirs again."""
    runs: dict[str, list[Record]] = {}

    def theirs() -> None:
        note("Spark: PostgreSQL and Parquet")
        try:
            for op, record in peers.spark(rows, secs).items():
                runs.setdefault(op, []).append(record)
        except PeerFailed as error:
            note(f"  {error}")

    theirs()
    note("Spark: Kvorum")
    yield from spark.run(rows, reps=reps)
    if reps > 1:
        theirs()
    for op, found in runs.items():
        rate = "add_batch_ms" if op.startswith("stream_") else "rows_s"
        yield _peer("spark-pg", op) | median_of_runs(found, rate)


def run(  # noqa: C901 - a list of parts, one condition each
    names: list[str], peers_folder: Path, home: Path, *, rows: int, reps: int, secs: float
) -> Iterator[Record]:
    """All records of the named parts."""
    peers = Peers(peers_folder, home)
    if "kv" in names:
        yield from against_etcd(peers, reps=reps, secs=secs)
    if "cluster" in names:
        yield from clusters(peers, reps=reps, secs=secs)
    if "failover" in names:
        yield from failovers(peers, reps=max(reps, _FAILOVERS), secs=secs)
    if "groups" in names:
        note("log syncs over 1 and over 200 groups")
        yield from cluster.groups([1, 200], reps=reps, secs=secs)
    if "transactions" in names:
        for nodes in (1, cluster.NODES):
            yield from transactions_in_turn(peers, nodes, reps=reps, secs=secs)
    if "http" in names:
        yield from alone(reps=reps, secs=secs)
    if "procedures" in names:
        yield from against_dbos(peers, reps=reps, secs=secs)
    if "memory" in names:
        note("memory")
        yield from memory.run(_LOAD_MB)
    if "recovery" in names:
        note("recovery")
        yield from recovery.run([0, 100], reps=reps)
    if "recovery-procedures" in names:
        note("kill -9 of the master and of a worker")
        yield from recovery_procedures.run(list(recovery_procedures.PLACES), reps=reps)
    if "many-procedures" in names:
        note("procedures that wait")
        yield from many_procedures.run(
            list(many_procedures.COUNTS), list(many_procedures.KINDS), reps=reps, secs=secs
        )
    if "split" in names:
        note("writes under splits")
        yield from split.run([split.CLIENTS], merges=False, reps=reps, secs=secs)
    if "spread" in names:
        note("rising keys")
        yield from spread.run(
            spread.ROWS,
            bytes_max=spread.BYTES_MAX,
            settle_s=spread.SETTLE_S,
            replicas=cluster.NODES,
        )
    if "spark" in names:
        yield from against_spark_sinks(peers, rows, reps=reps, secs=secs)
