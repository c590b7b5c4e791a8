"""Newest records that a leader keeps in memory between a read and the write that follows it
(kv/partition/evaluated_state.py).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.limits import KNOWN_RECORD_BYTES_MAX
from kv.base.methods import BLIND, FINISH, MGET, OP_PUT, PREWRITE, PUT
from kv.mvcc.get import multi_get
from kv.partition import evaluated_state
from tests.kv.partition.node import Node

PREFIX = table_prefix(TableId(100))
K, L = PREFIX + b"k", PREFIX + b"l"


def read(node: Node, *keys: bytes, at: int = 0) -> list[Any]:
    at = at or node.oracle(1)
    (rows,) = node.reply(node.send(MGET, keys[0], list(keys), at, None))
    return [None if row is None else row[0] for row in rows]


def prewrite(node: Node, key: bytes, start_ts: int, value: bytes) -> int:
    ops = [[OP_PUT, key, value, None, 0]]
    options = {"fence": True, "stage": [[key]]}
    return node.send(PREWRITE, key, start_ts, key, 10_000, ops, BLIND, options)


def test_d3_what_was_read_is_not_read_again_for_its_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small transaction read each of its records three times from the database."""
    node = Node()
    node.put(K, b"old")
    view = node.machine(K).view
    looked: list[bytes] = []
    state = node.manager.replica(1).state  # type: ignore[union-attr]
    get = state.cur

    def counted(key: bytes) -> bytes | None:
        looked.append(key)
        return get(key)

    monkeypatch.setattr(state, "cur", counted)
    monkeypatch.setattr(view, "_get", counted)
    start_ts = node.oracle(1)
    assert read(node, K, at=start_ts) == [b"old"]
    (bound, exact) = node.reply(prewrite(node, K, start_ts, b"new"))
    assert exact
    node.reply(node.send(FINISH, K, [[start_ts, K, bound, [K]]]))
    assert looked == [K]
    assert read(node, K) == [b"new"]
    assert read(node, K, at=start_ts) == [b"old"], "the version that was known went to its place"


def test_d3_a_record_in_flight_is_not_shown_to_readers() -> None:
    """A prewrite saw a put that was not durable yet, and a reader below that put found nothing."""
    node = Node(sync_s=0.01)
    node.put(K, b"first")
    below = node.oracle(1)
    put = node.send(PUT, K, K, b"second", None, 0)
    start_ts = node.oracle(1)
    node.timers.run(0.001)  # both are in the log, and not durable
    staged = prewrite(node, K, start_ts, b"third")
    node.timers.run(0.001)
    assert node.machine(K).view.flying is not None
    assert read(node, K, at=below) == [b"first"]
    (version,) = node.reply(put)
    assert node.reply(staged)[0] > version, "it was prewritten over the put"


def test_d3_what_is_known_equals_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read or a write used a record that somebody had replaced, or a new leader had not written
    itself.
    """
    monkeypatch.setattr(evaluated_state, "KNOWN_RECORDS_MAX", 5)
    rng = random.Random(7)
    node = Node(sync_s=0.003)
    keys = [PREFIX + b"%d" % i for i in range(8)]
    open_: dict[bytes, int] = {}
    waiting: list[int] = []
    for step in range(600):
        key = rng.choice(keys)
        what = rng.randrange(6)
        state = node.manager.replica(1).state  # type: ignore[union-attr]
        if what == 0:
            size = rng.choice((1, KNOWN_RECORD_BYTES_MAX))
            waiting.append(node.send(PUT, key, key, b"%d" % step * size, None, 0))
        elif what == 1 and key not in open_:
            open_[key] = node.oracle(1)
            ops = [[OP_PUT, key, b"%d" % step, None, 0]]
            waiting.append(
                node.send(PREWRITE, key, open_[key], key, 60_000, ops, BLIND, {"fence": True})
            )
        elif what == 2 and key in open_:
            start_ts = open_.pop(key)
            node.send(FINISH, key, [[start_ts, key, node.oracle(1), [key]]])
        elif what == 3:
            node.timers.run(0.004)
        elif what == 4 and step % 50 == 0:
            replica = node.manager.replica(1)
            assert replica is not None
            node.timers.run(0.1)
            replica.role(leader=False, term=step + 2)
            replica.role(leader=True, term=step + 3)
        else:
            node.send(MGET, key, [key], node.oracle(1), [*open_.values()])
            node.timers.run(0.0005)
        for one, record in node.machine(key).view.known.items():
            assert (state.cur(one) or b"") == record
            assert len(record) <= KNOWN_RECORD_BYTES_MAX
        assert len(node.machine(key).view.known) <= 5
    now = node.oracle(1)
    node.timers.run(1)
    several = multi_get(state, keys, read_ts=now, ignore=[*open_.values()], now_ms=0)
    for key, (value, _) in zip(keys, several, strict=True):
        (rows,) = node.reply(node.send(MGET, key, [key], now, [*open_.values()]))
        assert [None if row is None else row[0] for row in rows] == [value]
