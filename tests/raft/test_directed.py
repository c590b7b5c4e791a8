"""Rules that random schedules do not reach: each one by a scenario made for it."""

from __future__ import annotations

import pytest

from raft import InvariantBroken
from tests.raft.probe import Message, Ours, append_entries, entries, success
from tests.raft.support import GROUP, Machine, Node, Sent


def vote_request(term: int, *, transfer: bool = False) -> Message:
    last = {"last_log_index": 99, "last_log_term": term - 1}
    return {"type": "request_vote", "term": term, "transfer": transfer, **last}


def follower() -> Ours:
    """A follower of node 2 in term 1, long after its own start."""
    ours = Ours([2, 3])
    ours.deliver(2, {"type": "stale", "term": 1})
    ours.node.timers.run(0.9)
    ours.node.timers.run(0.2)
    ours.deliver(2, append_entries(1, 0, 0, [], 0))
    ours.forget_sent()
    return ours


def test_who_hears_a_leader_helps_no_election() -> None:
    """I6: else a node with a broken link deposes the leader, and leases are worth nothing."""
    ours = follower()
    ours.deliver(3, vote_request(5))
    ours.deliver(3, {**vote_request(5), "type": "pre_vote", "round": 1})
    assert ours.sent("response_vote") == []
    assert ours.sent("pre_vote_ok") == []
    assert ours.term() == 1, "not even its term moves"
    ours.node.timers.run(1.0)
    ours.deliver(3, vote_request(5))
    assert len(ours.sent("response_vote")) == 1


def test_a_restart_counts_as_having_heard_a_leader() -> None:
    """I6: it may have promised just before the crash, and does not remember it."""
    ours = Ours([2, 3])
    ours.deliver(3, vote_request(5))
    assert ours.sent("response_vote") == []
    ours.node.timers.run(1.0)
    ours.deliver(3, vote_request(5))
    assert len(ours.sent("response_vote")) == 1


def test_an_ordered_transfer_overrides_the_promise() -> None:
    """Without it a planned change of leader would cost a whole election timeout."""
    ours = follower()
    ours.deliver(3, vote_request(5, transfer=True))
    assert len(ours.sent("response_vote")) == 1


def test_a_timeout_now_of_the_leader_starts_an_election_at_once() -> None:
    """The receiver of a transfer asks without a pre-vote, and says that it was ordered."""
    ours = follower()
    ours.deliver(3, {"type": "timeout_now", "term": 1})
    assert ours.sent("request_vote") == [], "node 3 does not lead"
    ours.deliver(2, {"type": "timeout_now", "term": 1})
    assert [m["transfer"] for _, m in ours.sent("request_vote")] == [True, True]


def test_no_lease_in_a_term_after_a_transfer_was_ordered() -> None:
    """Rule 10: the order may reach its target at any later time of the term."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    current = ours.core.rounds.current
    ours.deliver(2, {"type": "hb_ack", "term": ours.term(), "round": current})
    assert ours.group.can_serve_reads()
    ours.core.transfer(2)
    assert [peer for peer, _ in ours.sent("timeout_now")] == [2]
    assert not ours.group.can_serve_reads()
    ours.core.replicate()
    current = ours.core.rounds.current
    ours.deliver(2, {"type": "hb_ack", "term": ours.term(), "round": current})
    assert not ours.group.can_serve_reads()
    answers: list[int | None] = []
    ours.group.read_barrier(answers.append)
    current = ours.core.rounds.current
    ours.deliver(2, {"type": "hb_ack", "term": ours.term(), "round": current})
    assert answers == [1], "asking a majority still serves reads"


def test_the_configuration_of_the_log_tail_counts_after_a_restart() -> None:
    """Rule 9: with the applied one, a node would count majorities of a group that has changed."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    ours.group.change_members([1, 2], [4])
    ours.node.timers.run(0.0)
    again = Node(db=ours.node.db.crash(), transport=Sent())
    group = again.host.open_group(GROUP, Machine())
    assert group.applied_index == 0
    assert (group.voters, group.learners) == ((1, 2), (4,))


def test_a_lone_voter_by_an_uncommitted_change_waits_its_turn() -> None:
    """Alone only by the log's tail: the other voter may hold a promise or another configuration."""
    ours = Ours([2])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    ours.group.change_members([1], [2])
    ours.node.timers.run(0.0)
    again, machine = Node(db=ours.node.db.crash()), Machine()
    group = again.host.open_group(GROUP, machine)
    again.timers.run(0.9)
    assert not group.leader
    assert again.timers.run(5, until=lambda: group.leader)


def test_a_leader_that_would_truncate_committed_entries_is_refused() -> None:
    """I4: the replica stops, since either it or the sender is damaged; the others decide."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(1, 0, 0, entries(1, 5, 1), 5))
    with pytest.raises(InvariantBroken, match="5 is committed"):
        ours.deliver(3, append_entries(2, 2, 1, entries(3, 3, 2), 3))
    assert ours.group.stopped
    assert ours.last() == 5


def test_two_leaders_of_one_term_stop_the_replica() -> None:
    """Elections are broken then; going on would spread the damage."""
    ours = Ours([2, 3])
    ours.elect([2])
    with pytest.raises(InvariantBroken, match="two leaders in term 1"):
        ours.deliver(3, append_entries(1, 0, 0, [], 0))


def test_a_slow_disk_does_not_silence_heartbeats() -> None:
    """A leader behind a stalled disk must not look dead to its followers, nor they to it."""
    ours = Ours([2, 3], sync_s=30.0)
    for number in range(20):
        ours.node.timers.run(0.2)
        ours.deliver(2, append_entries(1, 0, 0, entries(1, 1 + number, 1), 0))
    assert len(ours.sent("hb_ack")) == 20
    assert ours.sent("next_node_idx") == []
    assert ours.sent("pre_vote") == [], "it heard its leader all the time"


def test_proposals_of_a_deposed_leader_are_answered_when_their_fate_is_known() -> None:
    """A truncated proposal may still win elsewhere: only another entry applied there settles it."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    ours.group.propose(b"mine", "mine")
    ours.settle()
    term = ours.term() + 1
    ours.deliver(3, append_entries(term, 1, 1, entries(2, 2, term, b"theirs"), 1))
    assert ours.machine.roles[-1] == (False, term)
    assert (ours.machine.lost, ours.machine.unknown) == ([], [])
    ours.deliver(3, append_entries(term, 2, term, [], 2))
    assert ours.machine.commands == [b"theirs2"]
    assert (ours.machine.lost, ours.machine.acked) == (["mine"], [])


def test_a_deposed_leaders_own_entry_keeps_its_token() -> None:
    """If the next leader commits it after all, the caller learns that it was executed."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    ours.group.propose(b"mine", "mine")
    ours.settle()
    term = ours.term() + 1
    ours.deliver(3, append_entries(term, 2, 1, entries(3, 3, term), 3))
    assert ours.machine.acked == ["mine"]
    assert ours.machine.commands[0] == b"mine"


def test_a_cut_off_proposal_is_answered_although_its_index_is_used_again() -> None:
    """Deposed, cut off, elected again: the newer token must not take the older one's place."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    for name in ("first", "second", "third"):
        ours.group.propose(name.encode(), name)
    ours.settle()
    term = ours.term() + 1
    ours.deliver(3, append_entries(term, 1, 1, entries(2, 2, term, b"theirs"), 1))
    assert ours.last() == 2
    ours.node.timers.run(3.0)
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    assert ours.group.propose(b"again", "again") == 4, "where the third one was"
    ours.settle()
    ours.deliver(2, success(ours.last() + 1))
    assert (ours.machine.lost, ours.machine.acked) == (["first", "second", "third"], ["again"])


def test_a_leader_that_gives_way_takes_back_what_the_library_counted() -> None:
    """I2: the library counts our unsynced entries, and deposes us after it has counted."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    committed = ours.commit()
    ours.node.syncer._delay_s = 1000.0
    ours.group.propose(b"not synced", "token")
    ours.deliver(2, success(ours.last() + 1))
    assert ours.commit() == committed
    ours.node.timers.run(5)
    assert not ours.is_leader()
    assert ours.commit() == committed
