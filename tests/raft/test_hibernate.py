"""F1: groups that have nothing to do cost nothing, and wake when they are needed."""

from __future__ import annotations

import pytest

from raft import RaftConfig
from raft.replica import Replica
from raft.rules.hibernate import Sleep
from tests.raft.fleet import Fleet
from tests.raft.probe import Ours, append_entries, success
from tests.raft.support import GROUP, Machine

IDLE_S = RaftConfig().hibernate_after_ms / 1000


def asleep(fleet: Fleet) -> bool:
    return all(group.status().hibernating for group in fleet.groups.values())


def sleeping() -> Fleet:
    """Three voters, one write, and then a while of nothing."""
    fleet = Fleet().all((1, 2, 3))
    fleet.write(b"first")
    assert fleet.run(IDLE_S + 2, lambda: asleep(fleet)), "the group does not fall asleep"
    fleet.run(1)
    fleet.sent.clear()
    return fleet


@pytest.mark.slow
def test_f1_a_thousand_idle_groups_send_and_tick_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With heartbeats, a thousand groups would send thousands of messages a second for nothing."""
    ticks = 0
    tick = Replica.tick

    def counted(replica: Replica) -> None:
        nonlocal ticks
        ticks += 1
        tick(replica)

    monkeypatch.setattr(Replica, "tick", counted)
    fleet, groups = Fleet(config=RaftConfig(hibernate_after_ms=500)), []
    for node_id in (1, 2, 3):
        node = fleet.host(node_id)
        for group_id in range(1000):
            node.host.create_group(group_id, [1, 2, 3])
            groups.append(node.host.open_group(group_id, Machine()))
    fleet.run(5)
    assert sum(group.leader for group in groups) == 1000
    assert all(group.status().hibernating for group in groups)
    assert {group.status().role for group in groups} == {"leader", "follower"}
    fleet.sent.clear()
    ticks = 0
    fleet.run(60)
    assert fleet.sent.total() == 0, dict(fleet.sent)
    assert ticks == 0


def test_f1_a_proposal_wakes_the_group() -> None:
    """A group that does not wake would lose its writes to a timeout."""
    fleet = sleeping()
    term = fleet.elect().term
    fleet.write(b"second", within_s=0.1)
    fleet.everywhere(b"second", within_s=1)
    assert not asleep(fleet)
    assert fleet.elect().term == term, "no election was needed"
    assert fleet.run(IDLE_S + 2, lambda: asleep(fleet)), "and it sleeps again"


def test_f1_a_sleeping_leader_has_no_lease_and_asks_before_it_serves() -> None:
    """Its followers promise nothing while they sleep: a read without asking could be stale."""
    fleet = sleeping()
    leader = fleet.elect()
    assert not leader.serving()
    assert leader.status().hibernating, "looking does not wake it"
    answers: list[int | None] = []
    leader.read_barrier(answers.append)
    assert answers == [], "it must hear a majority first"
    assert fleet.run(0.1, lambda: bool(answers))
    assert answers == [leader.commit_index]
    assert leader.serving()


def test_f1_who_is_about_to_read_wakes_the_group() -> None:
    """A group that is only read must not answer `not leader` for ever because it sleeps."""
    fleet = sleeping()
    leader = fleet.elect()
    assert not leader.can_serve_reads()
    assert fleet.run(0.01, leader.can_serve_reads), "it asks at once, not at the next heartbeat"
    for _ in range(20):
        fleet.run(IDLE_S / 4)
        assert leader.can_serve_reads(), "a group in use stays awake"


def test_f1_the_loss_of_the_leaders_node_wakes_the_followers() -> None:
    """Nobody else would notice: a sleeping group has no timers."""
    fleet = sleeping()
    old = fleet.elect()
    fleet.kill(fleet.id_of(old))
    new = fleet.elect(within_s=3)
    assert new.term > old.term
    fleet.write(b"after")


def test_f1_a_request_at_a_follower_wakes_the_group_even_if_nobody_told_of_the_loss() -> None:
    """A transport that does not notice a death must not leave a group dead for ever."""
    fleet = sleeping()
    fleet.kill(fleet.id_of(fleet.elect()), tell=False)
    fleet.run(30)
    assert fleet.leader is None, "nobody knows"
    follower = next(iter(fleet.groups.values()))
    assert not follower.can_serve_reads()
    fleet.elect(within_s=6)


def test_f1_a_follower_with_a_broken_link_does_not_depose_a_sleeping_leader() -> None:
    """It hears nothing, like everybody: without care, idle groups would change leaders."""
    fleet = sleeping()
    leader = fleet.elect()
    me = fleet.id_of(leader)
    lonely, other = (node for node in fleet.groups if node != me)
    fleet.cut([me], [lonely])
    fleet.run(20)
    assert fleet.elect() is leader
    assert leader.term == fleet.groups[other].term
    fleet.heal()
    fleet.write(b"second")
    fleet.everywhere(b"second")


def test_f1_a_dead_node_does_not_keep_the_others_awake_and_catches_up() -> None:
    """One node's failure must not bring a thousand groups of the others back to heartbeats."""
    fleet = sleeping()
    leader = fleet.elect()
    gone = next(node for node in fleet.groups if node != fleet.id_of(leader))
    db = fleet.kill(gone)
    fleet.write(b"without it")
    assert fleet.run(IDLE_S + 2, lambda: asleep(fleet))
    fleet.restart(gone, db)
    assert fleet.run(3, lambda: b"without it" in fleet.machines[gone].commands)
    assert fleet.elect() is leader
    assert fleet.run(IDLE_S + 3, lambda: asleep(fleet))


def test_f1_a_group_without_a_majority_does_not_sleep() -> None:
    """Its leader must give way (check-quorum) instead of sleeping on."""
    fleet = Fleet(config=RaftConfig(hibernate_after_ms=500)).all((1, 2, 3))
    leader = fleet.elect()
    for node in [node for node in fleet.groups if node != fleet.id_of(leader)]:
        fleet.kill(node)
    fleet.run(IDLE_S + 3)
    assert not leader.leader
    assert not leader.status().hibernating


@pytest.mark.parametrize("by", ["leader", "follower"])
def test_f1_a_leader_that_slept_is_not_deposed_by_its_own_check_of_the_quorum(by: str) -> None:
    """Nobody answered for an hour, because nobody was asked."""
    fleet = sleeping()
    leader = fleet.elect()
    term = leader.term
    fleet.run(3600)
    follower = next(group for group in fleet.groups.values() if group is not leader)
    (leader if by == "leader" else follower).can_serve_reads()
    fleet.run(3)
    assert (leader.leader, leader.term) == (True, term)
    fleet.write(b"x", within_s=0.1)


def test_f1_a_learner_that_catches_up_keeps_the_group_awake() -> None:
    """A leader that sleeps sends nothing: the learner would stay behind for ever."""
    fleet = sleeping()
    fleet.cuts = {(node, 4) for node in (1, 2, 3)}
    fleet.add(4)
    leader = fleet.elect()
    leader.add_learner(4)
    fleet.run(2 * IDLE_S)
    assert not any(group.status().hibernating for group in fleet.groups.values())
    fleet.heal()
    assert fleet.run(5, lambda: b"first" in fleet.machines[4].commands)
    assert fleet.run(2 * IDLE_S, lambda: asleep(fleet))


def test_f1_a_group_may_be_told_not_to_hibernate() -> None:
    """The oracle's group must keep its lease while nobody writes."""
    fleet = Fleet()
    groups = []
    for node_id in (1, 2, 3):
        host = fleet.host(node_id).host
        host.create_group(GROUP, [1, 2, 3])
        groups.append(host.open_group(GROUP, Machine(), hibernates=False))
    fleet.run(3 * IDLE_S)
    leader = next(group for group in groups if group.leader)
    assert leader.serving()
    assert not any(group.status().hibernating for group in groups)


def sleeping_follower() -> Ours:
    """Of node 2, in term 1, with one committed entry."""
    ours = Ours([2, 3])
    entry = [(b"\x01", 1, 1)]
    ours.deliver(2, append_entries(1, 0, 0, entry, 1))
    ours.deliver(2, {**append_entries(1, 1, 1, [], 1), "round": 7, "sleep": 1})
    assert [m["round"] for _, m in ours.sent("asleep")] == [7]
    ours.node.timers.run(100)
    assert ours.group.next_deadline_s() is None
    ours.forget_sent()
    return ours


PRE_VOTE = {"type": "pre_vote", "term": 2, "round": 1, "last_log_term": 1, "last_log_index": 1}


def test_a_sleeping_follower_does_not_help_a_candidate_while_its_leader_is_reachable() -> None:
    """The candidate may just have a broken link of its own."""
    ours = sleeping_follower()
    ours.deliver(3, PRE_VOTE)
    assert ours.sent("pre_vote_ok") == []
    assert [peer for peer, _ in ours.sent("wake")] == [2], "it asks its leader to speak"
    assert ours.group.next_deadline_s() is not None
    ours.deliver(3, PRE_VOTE)
    assert len(ours.sent("pre_vote_ok")) == 1, "awake, and its leader has not spoken"


def test_a_sleeping_follower_helps_when_its_leader_is_lost() -> None:
    """Else an idle group would wait a second longer for its next leader."""
    ours = sleeping_follower()
    ours.node.host.peer_down(2)
    ours.deliver(3, PRE_VOTE)
    assert len(ours.sent("pre_vote_ok")) == 1
    assert ours.sent("wake") == []


@pytest.mark.parametrize(
    "changed", [{"prevLogIdx": 2}, {"commit_index": 0, "sleep": 2}, {"term": 2, "sleep": 1}]
)
def test_a_follower_with_another_log_does_not_sleep(changed: dict[str, int]) -> None:
    """It would stay behind until somebody wakes the group."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(1, 0, 0, [(b"\x01", 1, 1)], 1))
    message = {**append_entries(1, 1, 1, [], 1), "round": 7, "sleep": 2, **changed}
    ours.deliver(2, message)
    assert ours.sent("asleep") == []
    assert not ours.group.status().hibernating


def test_a_sleeping_follower_wakes_when_a_new_leader_invites_it_too_early() -> None:
    """It must not sleep on with a log that the invitation does not speak of."""
    ours = sleeping_follower()
    ours.deliver(3, {**append_entries(2, 2, 2, [], 2), "round": 9, "sleep": 2})
    assert ours.sent("asleep") == []
    assert ours.group.next_deadline_s() is not None


def sleeping_leader() -> Ours:
    ours = Ours([2, 3])
    ours.elect([2])
    for peer in (2, 3):
        ours.deliver(peer, success(ours.last() + 1))
    while not any("sleep" in m for _, m in ours.sent("append_entries")):
        ours.forget_sent()
        ours.node.timers.run(0.3)
        for peer in (2, 3):
            answer = {"term": ours.term(), "round": ours.core.rounds.current}
            ours.deliver(peer, {"type": "hb_ack", **answer})
    return ours


def say_asleep(ours: Ours, *, earlier: int = 0, index: int | None = None) -> None:
    """Both followers say that they sleep."""
    for peer in (2, 3):
        answer = {
            "type": "asleep",
            "term": ours.term(),
            "round": ours.core.rounds.current - earlier,
            "index": ours.last() if index is None else index,
        }
        ours.deliver(peer, answer)


def test_an_answer_of_an_earlier_night_puts_nobody_to_sleep() -> None:
    """The follower may have been woken since."""
    ours = sleeping_leader()
    say_asleep(ours, earlier=5)
    say_asleep(ours, index=0)
    assert not ours.group.status().hibernating
    say_asleep(ours)
    assert ours.group.status().hibernating


def test_a_sleeping_leader_that_learns_of_a_newer_term_wakes_as_follower() -> None:
    """Without an election timer it would never take part again."""
    ours = sleeping_leader()
    say_asleep(ours)
    ours.deliver(2, {"type": "stale", "term": 9})
    assert not ours.group.leader
    assert ours.group.next_deadline_s() is not None


def test_a_sleeping_leader_answers_a_candidate_by_leading() -> None:
    """Its own lease has run out, so that it could grant the pre-vote against itself."""
    ours = sleeping_leader()
    say_asleep(ours)
    ours.node.timers.run(100)
    ours.forget_sent()
    ours.deliver(3, {**PRE_VOTE, "term": 9, "last_log_index": 99})
    assert ours.sent("pre_vote_ok") == []
    assert sorted(peer for peer, _ in ours.sent("append_entries")) == [2, 3]
    assert ours.group.leader


def test_who_says_it_sleeps_is_counted_only_when_asked() -> None:
    """An answer of an earlier night says nothing about this one."""
    sleep = Sleep(after_s=5.0)
    for now_s in (0.0, 4.0):
        sleep.look(now_s, idle=True, awaited=[2, 3])
        sleep.sleeps(2)
    sleep.look(5.0, idle=True, awaited=[2, 3])
    assert sleep.asking
    sleep.sleeps(3)
    sleep.look(5.3, idle=True, awaited=[2, 3])
    assert not sleep.asleep
    sleep.sleeps(2)
    sleep.look(5.6, idle=True, awaited=[2, 3])
    assert sleep.asleep
    assert sleep.wake()
    assert not sleep.wake()
    sleep.look(6.0, idle=True, awaited=[])
    assert not sleep.asleep, "the wait begins anew"
