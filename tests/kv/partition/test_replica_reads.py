"""Reads at replicas that do not lead: MARK at the leader, `applied` at the replica."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base.errors import Corruption, InvalidArgument, NotLeader, SnapshotTooOld
from kv.base.limits import REPLICA_WAIT_MS
from kv.base.methods import GET, MARK, MGET, OP_PUT, PREWRITE, PUT, RESOLVE, SCAN, SCAN_VALUES
from kv.base.timestamps import compose
from kv.partition.entry import Entry
from kv.replica.replica import Replica
from tests.kv.partition.node import Node

K, L, M = b"tab.k", b"tab.l", b"tab.m"


def replica_of(node: Node) -> Replica:
    replica = node.manager.replica(1)
    assert replica is not None
    return replica


def mark(node: Node) -> tuple[int, int]:
    read_ts, applied = node.call(MARK, K, K, 0)
    return read_ts, applied


def depose(node: Node) -> None:
    """From now on this replica only follows."""
    replica_of(node).role(leader=False, term=9)


def reads(at: int, applied: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Every read that a replica answers."""
    return [
        (GET, (K, at, None, applied)),
        (MGET, ([K, L], at, None, False, applied)),
        (SCAN, (b"tab.", b"tab/", at, 10, False, None, False, False, applied)),
        (SCAN_VALUES, (b"tab.", b"tab/", at, 10, False, None, [], False, applied)),
    ]


def test_a_mark_says_how_far_the_log_must_be_applied() -> None:
    """A replica that has applied so much lacked a version at or below the mark's timestamp."""
    node = Node(sync_s=0.5)
    put = node.send(PUT, L, L, b"v", None, 0)
    node.timers.run(0.01)
    assert node.machine().view.flying is not None
    rid = node.send(MARK, K, K, 0)
    node.timers.run(0.01)
    assert rid not in node.conn.rows, "another key of the partition is on its way"
    (version,) = node.reply(put)
    read_ts, applied = node.reply(rid)
    assert version < read_ts
    assert applied == replica_of(node).state.index
    assert node.put(K, b"w") > read_ts, "no later commit lies at or below it"


def test_a_replica_answers_what_its_leader_would() -> None:
    """A reader of the past got something else, or was sent to the leader."""
    node = Node()
    node.put(K, b"old")
    node.put(L, b"l")
    read_ts, applied = mark(node)
    node.put(K, b"new")
    asked = reads(read_ts, applied)
    wanted = [node.call(method, K, *args) for method, args in asked]
    depose(node)
    assert [node.call(method, K, *args) for method, args in asked] == wanted
    assert node.call(*(GET, K, K, read_ts, None, applied))[0] == b"old"
    counters = node.manager.partition_counters
    assert counters.by_replicas == len(asked) + 1
    assert node.machine().closed_ts == read_ts


def test_without_applied_or_at_the_newest_only_the_leader_answers() -> None:
    """A linearizable read was answered from a state that may be old."""
    node = Node()
    node.put(K, b"v")
    read_ts, applied = mark(node)
    depose(node)
    for args in ((K, read_ts, None), (K, 0, None), (K, 0, None, applied), (K, read_ts, None, 0)):
        assert isinstance(node.error(node.send(GET, K, *args)), NotLeader), args
    assert isinstance(node.error(node.send(MARK, K, K, 0)), NotLeader)
    bad = node.send(GET, K, K, read_ts, None, 1 << 63)
    assert isinstance(node.error(bad), InvalidArgument)


def test_what_a_replica_is_asked_binds_no_later_leader() -> None:
    """A reader that names a moment of the future kept the replica from writing, once it led."""
    node = Node()
    node.put(K, b"old")
    read_ts, applied = mark(node)
    depose(node)
    for at in (1 << 62, compose(node.clock.now_ms() + 1_000)):
        assert isinstance(node.error(node.send(GET, K, K, at, None, applied)), NotLeader)
    assert node.call(GET, K, K, read_ts, None, applied)[0] == b"old"
    assert node.machine().closed_ts == read_ts
    replica_of(node).role(leader=True, term=10)
    assert node.put(K, b"new") > read_ts


def test_a_replica_that_lags_waits_for_the_log_and_not_for_long() -> None:
    """It answered without what its leader had, or its reader waited for a log that never came."""
    node = Node()
    node.put(K, b"v")
    read_ts, applied = mark(node)
    depose(node)
    began_s = node.clock.monotonic()
    late = node.send(GET, K, K, read_ts, None, applied + 1)
    assert isinstance(node.error(late), NotLeader)
    assert node.clock.monotonic() - began_s == pytest.approx(REPLICA_WAIT_MS / 1000, abs=0.02)

    waits = node.send(GET, K, K, read_ts, None, applied + 1)
    node.timers.run(0.01)
    assert waits not in node.conn.rows
    replica = replica_of(node)
    assert node.machine().awaits_log
    assert node.machine().waiting == 1
    replica.advance(replica.state.index + 1, replica.state.term)
    assert node.reply(waits)[0] == b"v"
    assert not node.machine().awaits_log


def test_who_waits_is_answered_by_the_leader_that_it_becomes() -> None:
    """An election answered a reader twice, or never."""
    node = Node()
    node.put(K, b"v")
    read_ts, applied = mark(node)
    depose(node)
    waits = node.send(GET, K, K, read_ts, None, applied + 1)
    node.timers.run(0.01)
    replica_of(node).role(leader=True, term=10)
    assert node.reply(waits)[0] == b"v"
    node.timers.run(1)


def test_an_intent_sends_the_reader_to_the_leader() -> None:
    """A replica stepped over an intent that its leader has resolved by now, or told of one that is
    resolved.
    """
    node = Node()
    start_ts = node.oracle(1)
    node.call(PREWRITE, K, start_ts, K, 5_000, [[OP_PUT, K, b"x", None, 0]], 0)
    read_ts, applied = mark(node)
    commit_ts = node.oracle(1)
    depose(node)
    for method, args in reads(read_ts, applied):
        assert isinstance(node.error(node.send(method, K, *args)), NotLeader), method
    assert node.call(GET, L, L, read_ts, None, applied) == [None, 0]
    replica_of(node).role(leader=True, term=10)
    node.call(RESOLVE, K, start_ts, commit_ts, [K])
    depose(node)
    assert node.call(GET, K, K, commit_ts, None, applied)[0] == b"x"


@pytest.mark.parametrize("how", ["frozen", "damaged", "stopped"])
def test_what_is_no_state_of_the_partition_is_not_read(how: str) -> None:
    """A replica answered that is being merged away, replaced, or damaged."""
    node = Node()
    node.put(K, b"v")
    read_ts, applied = mark(node)
    depose(node)
    replica = replica_of(node)
    if how == "frozen":
        replica.state.frozen = (1, 1)
    elif how == "damaged":
        replica.damage = Corruption("a record fails its checksum")
    else:
        replica._stopped = True
    assert isinstance(node.error(node.send(GET, K, K, read_ts, None, applied)), NotLeader)


def test_damage_that_it_meets_is_the_leaders_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client saw the damage of one replica although others have the row."""
    node = Node()
    node.put(K, b"v" * 100)
    read_ts, applied = mark(node)
    depose(node)
    replica = replica_of(node)
    monkeypatch.setattr(replica.state, "cur", lambda _key: b"damaged record")
    assert isinstance(node.error(node.send(GET, K, K, read_ts, None, applied)), NotLeader)
    assert replica.damage is not None


def test_below_the_safepoint_it_says_so() -> None:
    """A replica answered from what the collector had left, or sent its reader around."""
    node = Node()
    version = node.put(K, b"old")
    node.put(K, b"new")
    read_ts, applied = mark(node)
    assert node.collect(K, read_ts) is None
    _, applied = mark(node)
    depose(node)
    assert isinstance(node.error(node.send(GET, K, K, version, None, applied)), SnapshotTooOld)


def test_large_answers_wait_for_their_connection() -> None:
    """A reader of a replica that takes nothing filled its memory, or never got the rest."""
    node = Node()
    for i in range(20):
        node.put(b"tab.%02d" % i, bytes(1 << 20))
    read_ts, applied = mark(node)
    depose(node)
    node.conn.full = True
    rids = [node.send(GET, K, b"tab.%02d" % i, read_ts, None, applied) for i in range(20)]
    node.timers.run(0.2)
    some = sum(rid in node.conn.rows for rid in rids)
    assert 0 < some < 20
    node.conn.full = False
    for wake in node.conn.wakes:
        wake()
    assert all(len(node.reply(rid)[0]) == 1 << 20 for rid in rids)


def test_its_own_entries_of_before_are_not_seen_early() -> None:
    """What a deposed leader has in flight is no part of what it answers."""
    node = Node(sync_s=0.5)
    read_ts, applied = mark(node)
    node.send(PUT, K, K, b"v", None, 0)
    node.timers.run(0.01)
    assert isinstance(node.machine().view.flying, Entry)
    depose(node)
    assert node.call(GET, K, K, read_ts, None, applied) == [None, 0]
