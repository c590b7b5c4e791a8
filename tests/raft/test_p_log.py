"""Probes of the defects in replicating the log: stock pysyncobj shows each, ours does not."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from raft import EntryTooLarge, ProposalsFull, RaftConfig
from raft.records import DATA
from tests.raft.probe import Ours, Replica, Stock, append_entries, entries, success
from tests.raft.support import Machine, Node


def _duplicate_of_first_append(replica: Replica) -> int:
    """Ten entries in two messages, all committed and applied; then the first message once more."""
    base = replica.first - 1
    all_entries = entries(base + 1, base + 10, 1)
    first = append_entries(1, base, 0, all_entries[:3], base)
    replica.deliver(2, first)
    replica.deliver(2, append_entries(1, base + 3, 1, all_entries[3:], base + 10))
    assert len(replica.applied()) == 10
    replica.deliver(2, first)
    return base + 10 - replica.last()


def test_p01_a_duplicate_append_does_not_truncate() -> None:
    """P1: a late duplicate would take acknowledged, applied entries away."""
    assert _duplicate_of_first_append(Stock([2, 3])) == 7, "entries lost"
    assert _duplicate_of_first_append(Ours([2, 3])) == 0


def test_p01_a_follower_still_votes_against_those_who_lack_entries() -> None:
    """P1's consequence: a candidate without the committed entries would be elected."""
    granted = []
    for replica in (Stock([2, 3]), Ours([2, 3])):
        _duplicate_of_first_append(replica)
        if isinstance(replica, Ours):
            replica.node.timers.run(2.0)  # its promise to the leader has run out
        replica.forget_sent()
        last = {"last_log_index": replica.first + 2, "last_log_term": 1}
        replica.deliver(3, {"type": "request_vote", "term": 9, "transfer": False, **last})
        granted.append(bool(replica.sent("response_vote")))
    assert granted == [True, False]


def test_p01_a_conflicting_tail_is_still_replaced() -> None:
    """The repair of P1 must not keep entries that the leader does not have."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(1, 0, 0, entries(1, 5, 1, b"old"), 2))
    ours.deliver(3, append_entries(2, 2, 1, entries(3, 4, 2, b"new"), 4))
    assert ours.last() == 4
    assert ours.applied() == [b"old1", b"old2", b"new3", b"new4"]


def _deposed_leader_hears_of_a_snapshot(replica: Replica) -> list[bytes]:
    replica.elect([2])
    for number in range(5):
        replica.propose(b"uncommitted %d" % number)
    chunk = (b"chunk", True, False)
    message = {"type": "append_entries", "term": 2, "commit_index": 10_000, "serialized": chunk}
    replica.deliver(3, message)
    return replica.applied()


def test_p02_a_message_without_position_commits_nothing() -> None:
    """P2: a deposed leader would apply its own uncommitted commands and report success."""
    assert len(_deposed_leader_hears_of_a_snapshot(Stock([2, 3]))) == 5
    assert _deposed_leader_hears_of_a_snapshot(Ours([2, 3])) == []


def test_p02_a_heartbeat_without_position_commits_nothing() -> None:
    """P2 in the shape in which our own leaders send it: a bare heartbeat verifies no entry."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.propose(b"uncommitted")
    ours.deliver(3, {"type": "append_entries", "term": 2, "commit_index": 10_000})
    assert ours.commit() == 0
    assert ours.applied() == []


def _ack_of_an_earlier_term(replica: Replica) -> int:
    replica.start_at_term(2)
    replica.elect([3])
    for number in range(5):
        replica.propose(b"%d" % number)
    stale = success(replica.last() + 1)
    replica.deliver(2, {**stale, "term": 1} if isinstance(replica, Ours) else stale)
    return replica.commit()


def test_p03_an_ack_of_an_earlier_term_counts_for_nothing() -> None:
    """P3: it speaks of other entries; counting it commits what no follower holds."""
    stock, ours = Stock([2, 3]), Ours([2, 3])
    assert _ack_of_an_earlier_term(stock) == stock.last()
    assert _ack_of_an_earlier_term(ours) == 0


def test_p03_every_ack_carries_its_term() -> None:
    """P3: without the term in the reply a leader cannot tell a stale one."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(4, 0, 0, entries(1, 1, 4), 0))
    assert [m["term"] for _, m in ours.sent("next_node_idx")] == [4]


def _ack_while_more_is_in_flight(replica: Replica) -> int:
    replica.elect([2])
    for _ in range(3):
        replica.propose(b"z")
        replica.send_appends()
    replica.deliver(2, success(replica.first + 1))
    return replica.last() + 1 - replica.next_index(2)


def test_p04_an_ack_does_not_send_everything_again() -> None:
    """P4: each acknowledgement in flight would start a retransmission, which then triggers P1."""
    assert _ack_while_more_is_in_flight(Stock([2, 3])) == 3, "entries that are sent twice"
    assert _ack_while_more_is_in_flight(Ours([2, 3])) == 0


def _propose_until_refused(stock: Stock, attempts: int) -> int:
    """How many commands went in before the first error; -1 if there was none."""
    for queued in range(attempts):
        try:
            stock.obj._applyCommand(b"\0q", None)
        except BlockingIOError:
            return queued
    return -1


def test_p07_a_flood_of_proposals_is_bounded_with_a_certain_outcome() -> None:
    """P7: the stock notifier raises after 65,536 commands, with the command queued all the same."""
    stock = Stock([2, 3], appendEntriesUseBatch=False, commandsQueueSize=0)
    queued = _propose_until_refused(stock, 200_000)
    assert len(stock.obj._SyncObj__commandsQueue._FastQueue__queue) == queued + 1
    node, machine = Node(config=RaftConfig(proposals_max=10)), Machine()
    group = node.lead(machine)
    accepted = 0
    for number in range(100):
        with contextlib.suppress(ProposalsFull):
            group.propose(b"%d" % number, number)
            accepted += 1
    node.timers.run(1)
    assert accepted == 10
    assert machine.acked == list(range(10))


def _send_one_large_entry(replica: Replica, size: int) -> list[Any]:
    replica.elect([2])
    replica.deliver(2, success(replica.last() + 1))
    replica.forget_sent()
    replica.propose(b"\xff" * size)
    replica.send_appends()
    return [m.get("transmission") for peer, m in replica.sent("append_entries") if peer == 2]


def test_p08_no_entry_takes_the_chunk_path() -> None:
    """P8: entries as long as a batch go through pickled chunks that arrive broken."""
    assert "start" in _send_one_large_entry(Stock([2, 3]), 100 << 10)
    ours = Ours([2, 3], entry_bytes_max=100 << 10, append_bytes_max=(100 << 10) + 2)
    assert set(_send_one_large_entry(ours, 100 << 10)) == {None}
    node = Node(config=RaftConfig(entry_bytes_max=100, append_bytes_max=102))
    group = node.lead(Machine())
    with pytest.raises(EntryTooLarge):
        group.propose(b"x" * 101, None)


def _exchange(leader: Replica, follower: Replica, rounds: int) -> int:
    """FIFO rounds without loss between leader 1 and follower 2; the follower's last index."""
    leader.forget_sent()
    follower.forget_sent()
    for _ in range(rounds):
        leader.send_appends()
        appends = leader.sent("append_entries")
        leader.forget_sent()
        for peer, message in appends:
            if peer == 2:
                follower.deliver(2, message)  # in the follower's numbering its leader is node 2
        acks = follower.sent("next_node_idx")
        follower.forget_sent()
        for _, ack in acks:
            leader.deliver(2, ack)
    return follower.last()


def _follower_with_a_longer_tail(kind: type[Stock] | type[Ours]) -> tuple[Replica, Replica]:
    """Equal up to 19, compacted to there; the follower's uncommitted tail goes beyond our end."""
    leader, follower = kind([2]), kind([2])
    base = leader.first - 1
    leader.fill(1, 29)
    follower.fill(1, 19)
    if isinstance(follower, Ours):
        follower.core.journal.compact(19)
        follower.core._SyncObj__raftCommitIndex = 19
        follower.group.applied_index = 19
        follower.machine.at = (19, 1)
    else:
        assert isinstance(follower, Stock)
        follower.obj._SyncObj__deleteEntriesTo(base + 19)
    follower.fill(2, 20)
    follower.start_at_term(2)
    leader.start_at_term(3)
    leader.elect([2])
    return leader, follower


def test_p10_next_index_stays_within_the_log() -> None:
    """P10: the reply of a follower with a longer tail sends the leader beyond its own end."""
    leader, follower = _follower_with_a_longer_tail(Stock)
    assert isinstance(leader, Stock)
    leader.obj._SyncObj__raftNextIndex[leader.nodes[2]] = 15
    _exchange(leader, follower, 50)
    assert follower.last() != leader.last(), "the stock pair never agrees"
    leader, follower = _follower_with_a_longer_tail(Ours)
    assert isinstance(leader, Ours)
    for node in leader.core._SyncObj__raftNextIndex:
        leader.core._SyncObj__raftNextIndex[node] = 15
    assert _exchange(leader, follower, 50) == leader.last()


def _snapshot_is_being_written(replica: Replica) -> int:
    """The follower needs entries that are gone; how many messages does one sending make?"""
    replica.fill(1, 50)
    if isinstance(replica, Ours):
        replica.core.journal.compact(30)
        replica.core._SyncObj__raftCommitIndex = 30
        replica.group.applied_index = 30
    else:
        assert isinstance(replica, Stock)
        replica.obj._SyncObj__deleteEntriesTo(30)
        replica.obj._SyncObj__serializer._Serializer__pid = 1
    replica.elect([2])
    table = (replica.core if isinstance(replica, Ours) else replica.obj)._SyncObj__raftNextIndex
    for node in table:
        table[node] = 5
    replica.forget_sent()
    replica.send_appends()
    return len(replica.sent("append_entries"))


def test_p13_a_follower_behind_the_base_costs_one_message() -> None:
    """P13: the stock leader spins for a heartbeat period, with tens of thousands of messages."""
    assert _snapshot_is_being_written(Stock([2])) > 1000
    assert _snapshot_is_being_written(Ours([2])) == 1


def _divergent_follower(kind: type[Stock] | type[Ours], **options: int) -> tuple[int, int]:
    """The follower's tail differs; the leader is several batches ahead. Last indexes after 100
    rounds.
    """
    leader, follower = kind([2], **options), kind([2], **options)
    leader.fill(1, 19, 3000)
    leader.fill(3, 200, 3000)
    follower.fill(1, 19, 3000)
    follower.fill(2, 25, 3000)
    follower.start_at_term(2)
    leader.start_at_term(3)
    leader.elect([2])
    return leader.last(), _exchange(leader, follower, 100)


def test_p14_back_off_reaches_the_common_prefix() -> None:
    """P14: without it, a divergent follower more than a batch behind never catches up."""
    last, reached = _divergent_follower(Stock)
    assert reached < last
    last, reached = _divergent_follower(Ours, entry_bytes_max=60_000, append_bytes_max=65_536)
    assert reached == last


def test_p11_an_ack_from_a_stranger_is_dropped() -> None:
    """P11: the acknowledgement of a removed node raises KeyError in the stock leader."""
    stock, ours = Stock([2, 3]), Ours([2, 3])
    for replica in (stock, ours):
        replica.elect([2])
    with pytest.raises(KeyError):
        stock.deliver(9, success(2))
    before = ours.node.counters.messages_dropped
    ours.deliver(9, success(2))
    assert ours.node.counters.messages_dropped == before + 1
    assert ours.commit() == 0


def test_unknown_kinds_are_dropped() -> None:
    """The library executes forwarded commands of anybody who can send it a message."""
    ours = Ours([2, 3])
    ours.elect([2])
    before = ours.last()
    ours.deliver(2, {"type": "apply_command", "command": DATA + b"forged"})
    assert ours.last() == before
