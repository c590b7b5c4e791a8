"""F1: groups that have nothing to do cost nothing, and wake when they are needed."""

from __future__ import annotations

import pytest

from raft import RaftConfig
from raft.replica import Replica
from raft.rules.hibernate import Sleep
from tests.raft.fleet import Fleet
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
    assert fleet.run(0.1, leader.can_serve_reads)
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
    """It hears nothing, like everybody: without care an idle group would change leaders at random."""
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
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect()
    for node in [node for node in fleet.groups if node != fleet.id_of(leader)]:
        fleet.kill(node)
    fleet.run(IDLE_S + 3)
    assert not leader.leader
    assert not leader.status().hibernating


def test_f1_a_leader_that_slept_is_not_deposed_by_its_own_check_of_the_quorum() -> None:
    """Nobody answered for an hour, because nobody was asked."""
    fleet = sleeping()
    leader = fleet.elect()
    fleet.run(3600)
    leader.propose(b"x", b"x")
    fleet.run(3)
    assert leader.leader
    assert fleet.machines[fleet.id_of(leader)].acked[-1] == b"x"


def test_f1_a_learner_that_catches_up_keeps_the_group_awake() -> None:
    """A leader that sleeps sends nothing: the learner would stay behind for ever."""
    fleet = sleeping()
    fleet.cuts = {(node, 4) for node in (1, 2, 3)}
    fleet.add(4)
    leader = fleet.elect()
    leader.add_learner(4)
    fleet.run(2 * IDLE_S)
    assert not leader.status().hibernating
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
