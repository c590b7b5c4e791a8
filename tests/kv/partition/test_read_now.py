"""READ_NOW: a read at a timestamp that the partition's leader takes along (docs/decisions/0306)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kv.base.errors import KeyLocked, KvorumError, NotLeader, Unavailable, WriteConflict
from kv.base.methods import OP_PUT, PREWRITE, PUT, READ_NOW, WRITE
from tests.kv.partition.node import Node
from tests.kv.partition.test_timestamps_later import far_node

K, L = b"tab.k", b"tab.l"


def send(node: Node, *keys: bytes) -> int:
    return node.send(READ_NOW, keys[0], list(keys), 0, None)


def write(node: Node, ops: list[list[Any]], start_ts: int) -> int:
    return node.send(WRITE, ops[0][1], ops, start_ts, 0)


def test_d1_it_sees_what_was_acknowledged_and_nothing_later_is_below_it() -> None:
    """A transaction began with an old snapshot, or a commit slipped in below one that was read."""
    node = Node()
    version = node.put(K, b"v")
    rows, read_ts = node.reply(send(node, K, L))
    assert rows == [[b"v", version], None]
    assert version < read_ts <= node.oracle.last
    assert node.put(L, b"w") > read_ts
    assert node.reply(send(node, K, L))[1] > read_ts


def test_d1_of_one_drain_each_has_its_own_and_the_writes_come_above() -> None:
    """Two transactions had one id, or a write of the same drain a timestamp that was read at."""
    node = Node()
    node.put(K, b"old")
    rids = [send(node, K) for _ in range(3)]
    put = node.send(PUT, K, K, b"new", None, 0)
    rids += [send(node, K) for _ in range(3)]
    replies = [node.reply(rid) for rid in rids]
    stamps = [read_ts for _, read_ts in replies]
    assert len(set(stamps)) == len(stamps)
    assert {rows[0][0] for rows, _ in replies} == {b"old"}
    assert node.reply(put)[0] > max(stamps)


def test_d1_it_waits_for_what_is_on_its_way() -> None:
    """A version below its timestamp was not seen, because it was not applied yet."""
    node = Node(sync_s=0.5)
    put = node.send(PUT, K, K, b"new", None, 0)
    node.timers.run(0.01)
    assert node.machine().view.flying is not None
    rid, other = send(node, K), send(node, L)
    node.timers.run(0.01)
    assert node.reply(other)[0] == [None], "of another key: at once"
    assert rid not in node.conn.rows
    (version,) = node.reply(put)
    rows, read_ts = node.reply(rid)
    assert rows == [[b"new", version]]
    assert version < read_ts


def test_d1_an_intent_stands_in_its_way() -> None:
    """It looked past an intent that may commit below it."""
    node = Node()
    start_ts = node.oracle(1)
    node.reply(node.send(PREWRITE, K, start_ts, K, 5_000, [[OP_PUT, K, b"x", None, 0]], 0))
    assert isinstance(node.error(send(node, K)), KeyLocked)
    assert node.reply(send(node, L))[0] == [None]


@pytest.mark.parametrize("end", ["answer", "no oracle", "deposed"])
def test_d1_of_an_oracle_elsewhere(end: str) -> None:
    """It was served before its timestamp was known, or answered twice, or never."""
    node, remote = far_node()
    rids = [send(node, K), send(node, L)]
    put = node.send(PUT, K, K, b"v", None, 0)
    node.timers.run(0.05)
    assert not any(rid in node.conn.rows for rid in rids)
    replica = node.manager.replica(1)
    assert replica is not None
    if end == "answer":
        first = remote.answer()
        assert [node.reply(rid)[1] for rid in rids] == [first, first + 1]
        assert node.reply(put) == [first + 2]
    elif end == "no oracle":
        remote.fail(Unavailable("nobody knows the time"))
        assert all(isinstance(node.error(rid), Unavailable) for rid in (*rids, put))
    else:
        replica.role(leader=False, term=2)
        assert all(isinstance(node.error(rid), NotLeader) for rid in (*rids, put))
        remote.answer()
        node.timers.run(0.1)
        replica.role(leader=True, term=3)


@pytest.mark.parametrize("seed", range(5))
def test_d1_no_update_is_lost(seed: int) -> None:
    """Two transactions that began with it read the same and both wrote."""
    rng = random.Random(seed)
    node = Node(sync_s=lambda: rng.random() / 100)
    node.put(K, b"0")
    open_: dict[int, tuple[int, int]] = {}
    done = conflicts = 0
    for _ in range(150):
        if len(open_) < 4 and rng.random() < 0.6:
            rid = send(node, K)
            ((value, _),), start_ts = node.reply(rid)
            open_[start_ts] = (int(value), start_ts)
        elif open_:
            value, start_ts = open_.pop(rng.choice(list(open_)))
            try:
                node.reply(write(node, [[OP_PUT, K, b"%d" % (value + 1), None, 0]], start_ts))
                done += 1
            except WriteConflict:
                conflicts += 1
        if rng.random() < 0.3:
            node.timers.run(0.01)
    assert done
    assert conflicts
    assert node.get(K)[0] == b"%d" % done


def test_d1_it_counts_as_a_read_of_that_moment() -> None:
    """A prewrite that came later was promised a bound at or below it."""
    node = Node()
    read_ts = node.reply(send(node, K))[1]
    intent = [[OP_PUT, K, b"x", None, 0]]
    bound = node.reply(node.send(PREWRITE, K, node.oracle(1), K, 5_000, intent, 0))[0]
    assert bound > read_ts
    error: KvorumError = node.error(write(node, [[OP_PUT, K, b"y", None, 0]], read_ts))
    assert isinstance(error, KeyLocked | WriteConflict)
