"""The speed and memory goals, and what became of them: pure functions of result records.

A goal compares one field of one of our records with a bound, or with the same field of a peer's
record times a factor. Records are found by their fields, so the goals work on any file of results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.stats import Record

Fields = Mapping[str, Any]
OVER, UNDER = "at least", "at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`figure` of ours must be `relation` `bound`, times `peer_figure` if there is a peer."""

    name: str
    ours: Fields
    figure: str
    relation: str
    bound: float
    peer: Fields = field(default_factory=dict)
    peer_figure: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`value` is the ratio to the peer, or the figure itself. None: not measured."""

    goal: Goal
    ours: float | None
    peer: float | None
    value: float | None
    met: bool | None


def _kv(op: str, clients: int, transport: str = "native", nodes: int | None = None) -> Record:
    where = {"op": op, "clients": clients, "size": 100, "transport": transport}
    return {"bench": "kv", **where, "nodes": nodes}


def _etcd(op: str, clients: int, nodes: int | None = None) -> Record:
    where = {"op": op, "clients": clients, "size": 100}
    return {"bench": "peer", "peer": "etcd", **where, "nodes": nodes}


def _txn(op: str, nodes: int | None = None) -> Record:
    where = {"op": op, "clients": 64, "transport": "mux", "client": "sdk"}
    return {"bench": "txn", **where, "nodes": nodes}


def _against_dbos(steps: int, clients: int, nodes: int | None, bound: float) -> Goal:
    where = {"op": f"{steps}-step", "clients": clients}
    head = "" if nodes is None else "three nodes: "
    return Goal(
        name=f"{head}procedure steps, {steps} per procedure, {clients} in flight, against DBOS",
        ours={"bench": "procedures", **where, "nodes": nodes},
        figure="steps_s",
        relation=OVER,
        bound=bound,
        peer={"bench": "peer", "peer": "dbos", **where},
        peer_figure="steps_s",
    )


def _killed(place: str) -> Record:
    return {"bench": "recovery-procedures", "op": place}


def _waiting(kind: str) -> Record:
    return {"bench": "many-procedures", "op": kind, "waiting": 100_000}


def _rate(name: str, ours: Record, bound: float, peer: Record) -> Goal:
    return Goal(
        name=name,
        ours=ours,
        figure="ops_s",
        relation=OVER,
        bound=bound,
        peer=peer,
        peer_figure="ops_s",
    )


def _bound(name: str, ours: Record, figure: str, relation: str, bound: float) -> Goal:
    return Goal(name=name, ours=ours, figure=figure, relation=relation, bound=bound)


_AN = {"event": "an event", "lock": "a lock"}
_JDBC = "JDBC to PostgreSQL with a primary key"
_SPREAD: Record = {"bench": "spread", "nodes": 3, "replicas": 3}

GOALS: tuple[Goal, ...] = (
    _rate("puts/s, 64 connections, against etcd", _kv("put", 64), 1.5, _etcd("put", 64)),
    _rate("puts/s, 256 connections, against etcd", _kv("put", 256), 1.5, _etcd("put", 256)),
    _bound("server CPU per put at 256, µs", _kv("put", 256), "server_us_op", UNDER, 45),
    Goal(
        name="put p50 in ms, one client, against etcd",
        ours=_kv("put", 1),
        figure="p50_ms",
        relation=UNDER,
        bound=1.0,
        peer=_etcd("put", 1),
        peer_figure="p50_ms",
    ),
    _rate(
        "puts/s, 256 in flight through the SDK, against etcd",
        {**_kv("put", 256, "mux"), "client": "sdk"},
        3,
        _etcd("put", 256),
    ),
    _rate("gets/s, 64 connections, against etcd", _kv("get", 64), 5, _etcd("get", 64)),
    _rate(
        "three nodes: puts/s, 64 connections, against etcd",
        _kv("put", 64, nodes=3),
        1.5,
        _etcd("put", 64, 3),
    ),
    _rate(
        "three nodes: puts/s, 256 connections, against etcd",
        _kv("put", 256, nodes=3),
        1.3,
        _etcd("put", 256, 3),
    ),
    _bound(
        "three nodes: CPU of all of them per put at 256, µs",
        _kv("put", 256, nodes=3),
        "server_us_op",
        UNDER,
        80,
    ),
    Goal(
        name="three nodes: put p50 in ms, one client, against etcd",
        ours=_kv("put", 1, nodes=3),
        figure="p50_ms",
        relation=UNDER,
        bound=1.0,
        peer=_etcd("put", 1, 3),
        peer_figure="p50_ms",
    ),
    _rate(
        "three nodes: puts/s, 256 in flight through the SDK, against etcd",
        {**_kv("put", 256, "mux", 3), "client": "sdk"},
        2.5,
        _etcd("put", 256, 3),
    ),
    _rate(
        "three nodes: gets/s, 64 connections, against etcd",
        _kv("get", 64, nodes=3),
        5,
        _etcd("get", 64, 3),
    ),
    _bound(
        "three nodes: s without a write when the leader is killed, median",
        {"bench": "failover"},
        "gap_s",
        UNDER,
        1.0,
    ),
    Goal(
        name="three nodes: log syncs/s over 200 groups, against one group at the same load",
        ours={"bench": "groups", "groups": 200},
        figure="syncs_s",
        relation=UNDER,
        bound=1.2,
        peer={"bench": "groups", "groups": 1},
        peer_figure="syncs_s",
    ),
    *(
        goal
        for nodes, head in ((None, ""), (3, "three nodes: "))
        for goal in (
            _rate(
                head + "transactions/s over two keys of one partition, against etcd's small one",
                _txn("txn2", nodes),
                2,
                _etcd("txn2", 64, nodes),
            ),
            _rate(
                head + "transactions/s over two partitions, against etcd's small one",
                _txn("txn2x", nodes),
                1,
                _etcd("txn2", 64, nodes),
            ),
        )
    ),
    _bound("transfers/s between 100 accounts, 64 clients", _txn("bank"), "ops_s", OVER, 500),
    _rate(
        "transfers/s between 100 accounts, against PostgreSQL at repeatable read",
        _txn("bank"),
        1,
        {"bench": "peer", "peer": "postgresql", "op": "bank", "clients": 64},
    ),
    _bound(
        "timestamps/s of 32 clients that take 1,000 at once",
        {"bench": "tso", "nodes": None},
        "ops_s",
        OVER,
        1_000_000,
    ),
    _bound("HTTP puts/s, 64 clients", _kv("put", 64, "http"), "ops_s", OVER, 10_000),
    _bound("HTTP gets/s, 64 clients", _kv("get", 64, "http"), "ops_s", OVER, 15_000),
    _bound("rows/s in batches of 100 puts, 16 clients", _kv("batch", 16), "rows_s", OVER, 60_000),
    _bound("rows/s scanned into a client", _kv("scan", 1), "rows_s", OVER, 300_000),
    *(
        _against_dbos(steps, clients, nodes, bound)
        for nodes, bound in ((None, 15), (3, 5))
        for steps in (1, 10)
        for clients in (1, 16, 64)
    ),
    _bound(
        "a procedure of one step, submitted to done, p50 in ms",
        {"bench": "procedures", "op": "1-step", "clients": 1, "nodes": None},
        "p50_ms",
        UNDER,
        5,
    ),
    _bound(
        "three nodes: s until a step runs again when the master is killed, median",
        _killed("master"),
        "first_s",
        UNDER,
        2,
    ),
    _bound(
        "… procedures that lost a step or counted it twice", _killed("master"), "wrong", UNDER, 0
    ),
    _bound(
        "s until a step runs again when a worker is killed, median",
        _killed("worker"),
        "first_s",
        UNDER,
        3,
    ),
    _bound(
        "… procedures with a lost or doubled step after a worker's death",
        _killed("worker"),
        "wrong",
        UNDER,
        0,
    ),
    *(
        goal
        for kind in ("event", "lock")
        for goal in (
            _bound(
                f"CPU per step with 100,000 that wait for {_AN[kind]}, against none",
                _waiting(kind),
                "against_first",
                UNDER,
                1.25,
            ),
            _bound(
                f"KB of memory of a procedure that waits for {_AN[kind]}",
                _waiting(kind),
                "kb_each",
                UNDER,
                10,
            ),
        )
    ),
    _bound(
        "writes while their table is split, p99.9 in ms",
        {"bench": "split", "clients": 16},
        "p999_ms",
        UNDER,
        100,
    ),
    _bound(
        "three nodes: errors while 1M rising keys are loaded and split", _SPREAD, "errors", UNDER, 0
    ),
    _bound("… rows of it missing", _SPREAD, "missing", UNDER, 0),
    _bound(
        "… leaders of the node with the fewest, against an even share",
        _SPREAD,
        "least_share",
        OVER,
        0.5,
    ),
    *(
        Goal(
            name=f"{name} rows/s, against {against}",
            ours={"bench": "spark", "op": op},
            figure="rows_s",
            relation=OVER,
            bound=bound,
            peer={"bench": "peer", "peer": "spark-pg", "op": peer},
            peer_figure="rows_s",
        )
        for name, op, against, peer, bound in (
            ("Spark append", "batch", _JDBC, "jdbc_pk", 0.8),
            ("Spark append", "batch", "COPY by Spark's tasks into such a table", "copy_pk", 1.0),
            ("Spark bulk load", "bulk", _JDBC, "jdbc_pk", 1.5),
            ("Spark bulk load", "bulk", "files of Parquet", "parquet", 0.3),
        )
    ),
    Goal(
        name="micro-batch of 1,000 rows, sink time, against Parquet",
        ours={"bench": "spark", "op": "stream", "rows": 1_000},
        figure="add_batch_ms",
        relation=UNDER,
        bound=1.0,
        peer={"bench": "peer", "peer": "spark-pg", "op": "stream_parquet"},
        peer_figure="add_batch_ms",
    ),
    _bound("idle node, % of a core", {"bench": "memory", "op": "idle"}, "cpu_percent", UNDER, 2),
    _bound("idle node, MB resident", {"bench": "memory", "op": "idle"}, "rss_mb", UNDER, 150),
    _bound(
        "MB resident after loading 1 GB",
        {"bench": "memory", "op": "loaded", "load_mb": 1000},
        "rss_mb",
        UNDER,
        600,
    ),
)


def find(records: Iterable[Record], wanted: Fields) -> Record | None:
    """The last record that has these fields, so that a repeated measurement counts."""
    matching = [r for r in records if all(r.get(name) == value for name, value in wanted.items())]
    return matching[-1] if matching else None


def judge(goal: Goal, records: list[Record]) -> Verdict:
    """What the records say about a goal."""
    ours = _figure(find(records, goal.ours), goal.figure)
    if not goal.peer:
        return Verdict(goal, ours, None, ours, _met(goal, ours))
    peer = _figure(find(records, goal.peer), goal.peer_figure)
    value = None if ours is None or not peer else round(ours / peer, 2)
    return Verdict(goal, ours, peer, value, _met(goal, value))


def judge_all(records: list[Record]) -> list[Verdict]:
    """A verdict per goal, in the order of `GOALS`."""
    return [judge(goal, records) for goal in GOALS]


def _figure(record: Record | None, name: str) -> float | None:
    value = None if record is None else record.get(name)
    return float(value) if isinstance(value, int | float) else None


def _met(goal: Goal, value: float | None) -> bool | None:
    if value is None:
        return None
    return value >= goal.bound if goal.relation == OVER else value <= goal.bound
