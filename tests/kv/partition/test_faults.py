"""A bug anywhere in a pass over a partition: it is one request's answer at most, everybody is
answered once, what was acknowledged stays, and the partition goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from kv.base import methods
from kv.base.errors import KvorumError, NotLeader, UnknownOutcome, from_wire
from kv.base.keys import table_prefix
from kv.feed.recent import Recent
from kv.partition import admission, evaluator, machine, reader
from kv.partition.entry import Entry
from kv.partition.evaluator import Evaluator
from kv.partition.flight import Flight
from kv.partition.reader import Reader
from kv.partition.scheduler import Callback
from kv.partition.statistics import Traffic
from kv.partition.waits import Waiting
from kv.replica.replica import Replica
from tests.kv.partition.node import Conn, Node

PREFIX: Final = table_prefix(9)


class Bug(Exception):
    """What nobody expects."""


def key(n: int) -> bytes:
    return PREFIX + b"k%d" % n


# Places where a pass runs: (object, attribute). The last three are the doors to others.
PLACES: Final[list[tuple[Any, str]]] = [
    (admission, "check_request"),
    (admission, "check_range"),
    (machine, "read_ahead"),
    (Traffic, "sample"),
    (reader, "newest"),
    (Reader, "_read"),
    (Reader, "catch_up"),
    (evaluator, "put_plain"),
    (evaluator, "size_of"),
    (Evaluator, "_put_plain"),
    (Evaluator, "_command"),
    (Evaluator, "_accept"),
    (Evaluator, "after_seen"),
    (Entry, "seal"),
    (Flight, "seal"),
    (Flight, "applied"),
    (Recent, "applied"),
    (Waiting, "park"),
    (Waiting, "joins"),
    (Replica, "propose"),
]


def breaking(times: list[int], real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, but for the calls of these numbers."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in times:
            raise Bug(f"call {calls}")
        return real(*args, **kwargs)

    return call


def some_requests(node: Node, rng: random.Random, n: int) -> dict[int, tuple[int, bytes, bytes]]:
    """Send a mixture; rid → (method, key, value)."""
    sent = {}
    for _ in range(n):
        k, v = key(rng.randrange(6)), rng.randbytes(3)
        match rng.randrange(7):
            case 0 | 1:
                rid = node.send(methods.GET, k, k, 0, None)
                sent[rid] = (methods.GET, k, v)
            case 2:
                rid = node.send(methods.MGET, k, [k], 0, None)
                sent[rid] = (methods.MGET, k, v)
            case 3:
                start = node.oracle(1)
                ops = [[methods.OP_PUT, k, v, None, 0]]
                rid = node.send(methods.PREWRITE, k, start, k, 60, ops, methods.BLIND)
                sent[rid] = (methods.PREWRITE, k, start.to_bytes(8, "big"))
            case 4:
                rid = node.send(methods.WRITE, k, [[methods.OP_PUT, k, v, None, 0]], 0, 0)
                sent[rid] = (methods.WRITE, k, v)
            case 5:
                rid = node.send(methods.AWAIT_CHANGES, k, PREFIX, b"", 0, 10)
                sent[rid] = (methods.AWAIT_CHANGES, k, v)
            case _:
                rid = node.send(methods.PUT, k, k, v, None, 0)
                sent[rid] = (methods.PUT, k, v)
    return sent


@pytest.mark.few(4)
@pytest.mark.parametrize("at", range(len(PLACES)), ids=lambda at: f"{PLACES[at][1]}-{at}")
def test_a_bug_in_a_pass_ends_nothing_but_itself(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is answered once; others ask again at most; no acknowledged write is lost."""
    place, name = PLACES[at]
    for seed in range(6):
        rng = random.Random(seed)
        node = Node()
        times = sorted(rng.sample(range(1, 40), 3))
        most = 90 if name == "read_ahead" else 9
        with monkeypatch.context() as patch:
            patch.setattr(place, name, breaking(times, getattr(place, name)))
            sent = {}
            for _ in range(12):
                sent |= some_requests(node, rng, rng.randrange(1, most))
                node.timers.run(rng.choice((0.0, 0.0005, 0.01)))
            node.settle(lambda sent=sent, node=node: sent.keys() <= node.conn.rows.keys())
        assert node.fatal == [], (name, seed)
        puts: dict[bytes, list[tuple[int, bytes]]] = {}
        for rid, (method, k, value) in sent.items():
            row = node.conn.rows[rid]
            if row[1]:
                error = from_wire(row[2:])
                assert "Bug" not in error.message, "what broke is the log's"
            elif method in (methods.PUT, methods.WRITE):
                puts.setdefault(k, []).append((row[2], value))
        for method, k, start in sent.values():
            if method == methods.PREWRITE:
                txn = int.from_bytes(start, "big")
                node.call(methods.ROLLBACK, k, k, txn)
                node.call(methods.RESOLVE, k, txn, 0, [k])
        for k, written in puts.items():
            version, value = max(written)
            found, at_version = node.get(k, ignore=[])
            assert at_version >= version, (name, seed)
            if at_version == version:
                assert found == value, (name, seed)
        for n in range(20, 24):
            node.put(key(n), b"after")
            assert node.get(key(n))[0] == b"after"


def test_the_others_of_a_broken_pass_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request at which a pass broke is told so; those behind it did nothing, and may be sent
    again at once.
    """
    node = Node()
    monkeypatch.setattr(Evaluator, "_accept", breaking([2], Evaluator._accept))
    rids = [
        node.send(methods.WRITE, key(n), [[methods.OP_PUT, key(n), b"v", None, 0]], 0, 0)
        for n in range(4)
    ]
    errors = [node.error(rid) for rid in rids]
    assert [type(error) for error in errors] == [NotLeader, UnknownOutcome, NotLeader, NotLeader]
    assert "internal error" in errors[1].message
    assert node.scheduler.faults.count == 1
    for n in range(4):
        assert node.get(key(n)) == (None, 0)
        node.put(key(n), b"w")


def test_a_request_that_breaks_a_verb_is_answered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of the same drain are done; the log has the traceback once."""
    node = Node()
    monkeypatch.setattr(evaluator, "put_plain", breaking([2], evaluator.put_plain))
    rids = [node.send(methods.PUT, key(n), key(n), b"v", None, 0) for n in range(3)]
    assert node.reply(rids[0])
    error = node.error(rids[1])
    assert (type(error), error.code) == (KvorumError, "INTERNAL")
    assert node.reply(rids[2])
    assert [node.get(key(n))[0] for n in range(3)] == [b"v", None, b"v"]


def test_connections_and_callbacks_that_break_hurt_nobody_else() -> None:
    """One reply cannot be given: the others of the pass are."""

    class Broken(Conn):
        def reply(self, row: list[Any]) -> None:
            raise Bug

    class Stuck(Conn):
        def flush(self) -> None:
            raise Bug

    node = Node()
    d = node.machine().descriptor
    until = node.clock.monotonic() + 10
    good = [Conn(), Conn()]
    for n, conn in enumerate((good[0], Broken(), Stuck(), good[1])):
        request = [1, methods.PUT, until, d.id, d.epoch, key(n), b"v", None, 0]
        node.machine().submit(conn, request)
        node.machine().submit(conn, [2, methods.GET, until, d.id, d.epoch, key(n), 0, None])
    node.settle(lambda: all(len(conn.rows) == 2 for conn in good))
    assert [conn.rows[1][1] for conn in good] == [0, 0]
    node.machine().put_meta(b"x", b"y", lambda _error: 1 / 0)  # type: ignore[arg-type,return-value]
    told: list[KvorumError | None] = []
    node.machine().put_meta(b"x", b"z", told.append)
    node.settle(lambda: bool(told))
    assert told == [None]
    assert node.scheduler.faults.count >= 3
    assert node.fatal == []
    Callback(lambda _row: None, node.scheduler.faults).reply([])
