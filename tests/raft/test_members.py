"""Members come, catch up, vote, go: F4, F12, and how one removes a leader."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest

from raft import BadConfig, NotLeader, RaftConfig, Transferring
from raft.replica import Replica
from tests.raft.fleet import Fleet
from tests.raft.probe import Ours, append_entries, entries
from tests.raft.support import GROUP


def committed(fleet: Fleet, index: int) -> None:
    assert fleet.run(5, lambda: fleet.elect().commit_index >= index)


def learner(fleet: Fleet, node: int) -> Replica:
    """A new node that replicates, and has the log."""
    group = fleet.add(node)
    committed(fleet, fleet.elect().add_learner(node))
    assert fleet.run(5, lambda: group.applied_index == fleet.elect().last_index)
    return group


def test_f4_every_node_is_replaced_one_by_one_under_load() -> None:
    """Without it a cluster could never leave its first machines. No acknowledged write is lost."""
    fleet, numbers, acked = Fleet().all((1, 2, 3)), count(), []
    fleet.elect()

    def load() -> None:
        leader = fleet.leader
        if leader is not None:
            with suppress(Transferring):
                leader.propose(b"%d" % next(numbers), None)
        fleet.timers.call_later(0.005, load)

    load()
    for old, new in zip((1, 2, 3), (4, 5, 6), strict=True):
        fleet.write(b"before %d" % old)
        acked.append(b"before %d" % old)
        learner_of_now = fleet.add(new)
        fleet.elect().add_learner(new)
        assert fleet.run(10, lambda new=new: promoted(fleet, new))  # type: ignore[misc]
        assert fleet.run(10, lambda old=old: removed(fleet, old))  # type: ignore[misc]
        assert learner_of_now.voters == fleet.elect().voters
        fleet.kill(old)
        assert learner_of_now.commit_index > 0
        fleet.write(b"after %d" % old)
        acked.append(b"after %d" % old)
    assert fleet.elect().voters == (4, 5, 6)
    fleet.run(1)
    for node in (4, 5, 6):
        assert [c for c in fleet.machines[node].commands if b" " in c] == acked


def promoted(fleet: Fleet, node: int) -> bool:
    leader = fleet.leader
    if leader is None:
        return False
    try:
        return leader.commit_index >= leader.promote(node)
    except (BadConfig, NotLeader, Transferring):
        return False


def removed(fleet: Fleet, node: int) -> bool:
    """As the master does it: ask whoever leads until it is done."""
    leader = fleet.leader
    if leader is None:
        return False
    try:
        return leader.commit_index >= leader.remove(node)
    except (BadConfig, NotLeader, Transferring):
        return False


def test_f12_a_learner_never_lowers_availability() -> None:
    """A learner that is down, or far behind, must not be waited for by anybody."""
    fleet = Fleet().all((1, 2))
    fleet.elect().add_learner(3)  # nothing runs there
    fleet.write(b"x", within_s=0.1)
    leader = fleet.elect()
    assert leader.learners == (3,)
    follower = leader.status().followers[3]
    assert (follower.match, follower.responsive) == (0, True), "it has not been silent long enough"
    fleet.run(2)
    assert not leader.status().followers[3].responsive
    fleet.write(b"y", within_s=0.1)


def test_f12_a_lagging_learner_is_not_promoted() -> None:
    """A voter that has to catch up first would make every majority wait for it."""
    fleet = Fleet(config=RaftConfig(promote_lag_max=10)).all((1, 2))
    for number in range(100):
        fleet.elect().propose(b"%d" % number, None)
    fleet.run(1)
    leader = fleet.elect()
    fleet.add(3)
    fleet.cut([3], [1, 2], tell=False)
    committed(fleet, leader.add_learner(3))
    with pytest.raises(BadConfig, match="has not caught up; keep it a learner"):
        leader.promote(3)
    assert leader.voters == (1, 2)
    fleet.heal()
    assert fleet.run(5, lambda: promoted(fleet, 3))
    fleet.everywhere(b"99")


def test_f12_a_learner_that_has_the_log_but_hangs_is_not_promoted() -> None:
    """What it had when it stopped answering says nothing about now."""
    fleet = Fleet().all((1, 2))
    fleet.elect()
    learner(fleet, 3)
    fleet.clocks[3].paused = True
    fleet.run(1.5)
    with pytest.raises(BadConfig, match="has not caught up"):
        fleet.elect().promote(3)


def test_f12_a_learner_does_not_vote_and_does_not_campaign() -> None:
    """Counted in a majority, it would lower the availability that it must not touch."""
    fleet = Fleet().all((1, 2))
    fleet.elect()
    group = learner(fleet, 3)
    for node in (1, 2):
        fleet.kill(node)
    fleet.run(20)
    assert group.status().role == "learner"
    assert group.term == group.status().last_term, "it never asked for a vote"


def test_a_step_that_is_repeated_changes_nothing() -> None:
    """A procedure repeats a step whose answer it did not get."""
    fleet = Fleet().all((1, 2))
    fleet.elect()
    learner(fleet, 3)
    leader, last = fleet.elect(), fleet.elect().last_index
    assert leader.add_learner(3) == leader.status().config_index == last
    assert fleet.run(1, lambda: promoted(fleet, 3))
    last = leader.last_index
    assert leader.promote(3) == leader.remove(9) == leader.status().config_index == last
    assert leader.last_index == last


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda leader: leader.promote(9), "no learner"),
        (lambda leader: leader.demote(9), "no voter with data"),
        (lambda leader: leader.add_learner(2), "votes already"),
        (lambda leader: leader.add_witness(2), "keeps data"),
        (lambda leader: leader.add_witness(9), "add it to an even number"),
        (lambda leader: leader.transfer(9), "no voter with data"),
        (lambda leader: leader.transfer(1), "leads already"),
        (lambda leader: leader.demote(1), "does not remove itself"),
    ],
)
def test_steps_that_are_refused_say_why(step: object, reason: str) -> None:
    """An operator who reads only `refused` tries the next dangerous thing."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    last = leader.last_index
    with pytest.raises(BadConfig, match=reason):
        step(leader)  # type: ignore[operator]
    assert leader.last_index == last
    with pytest.raises(NotLeader):
        fleet.groups[2].add_learner(9)


def test_a_change_that_would_leave_no_majority_is_refused() -> None:
    """It could not even be taken back: the majority that decides is the new one."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.kill(3)
    fleet.run(0.5)
    with pytest.raises(BadConfig, match=r"only \[1\] of the new voters \(1, 3\) answer"):
        leader.remove(2)
    committed(fleet, leader.remove(3))
    assert leader.voters == (1, 2)


def test_f4_a_removed_leader_hands_over_first() -> None:
    """A leader that removes itself would go on counting itself, or stop writes for an election."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    with pytest.raises(Transferring):
        leader.remove(1)
    assert fleet.run(0.1, lambda: fleet.leader is not None and fleet.leader is not leader)
    assert removed(fleet, 1) or fleet.run(1, lambda: removed(fleet, 1))
    assert fleet.elect().voters == (2, 3)
    fleet.write(b"x", within_s=0.1)


def test_a_leader_that_nobody_can_follow_is_not_removed() -> None:
    """Handing over to a voter that is behind would stop the group until it has caught up."""
    fleet = Fleet().all((1, 2))
    leader = fleet.elect_node(1)
    fleet.cut([1], [2])
    with pytest.raises(BadConfig, match="nobody can lead"):
        leader.remove(1)


def test_f4_a_node_that_missed_its_removal_stops_asking_for_votes() -> None:
    """It hears no leader any more: it would ask for ever, and keep an idle group awake."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cut([3], [1, 2])
    committed(fleet, leader.remove(3))
    fleet.heal()
    fleet.run(4)
    assert fleet.groups[3].status().role == "removed"
    term, asked = leader.term, fleet.sent["pre_vote"]
    fleet.run(30)
    assert leader.leader
    assert leader.term == term
    assert fleet.sent["pre_vote"] == asked


def test_f4_a_node_that_was_removed_and_added_again_serves_again() -> None:
    """Being told of the removal must not outlast a leader's word."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cut([3], [1, 2])
    committed(fleet, leader.remove(3))
    fleet.heal()
    fleet.run(4)
    committed(fleet, leader.add_learner(3))
    assert fleet.run(5, lambda: promoted(fleet, 3))
    fleet.kill(1)
    fleet.kill(2)
    fleet.sent.clear()
    fleet.run(5)
    assert fleet.sent["pre_vote"] > 0


def test_f4_the_configuration_of_the_log_tail_counts_after_a_restart() -> None:
    """Rule 9: a node that counts old majorities elects a second leader."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.add(4)
    leader.add_learner(4)
    fleet.run(0.5)
    assert fleet.run(1, lambda: promoted(fleet, 4))
    db = fleet.kill(2)
    again = fleet.restart(2, db)
    assert again.applied_index == 0
    assert again.voters == (1, 2, 3, 4)
    assert again.status().config_index == leader.status().config_index


def test_status_tells_what_a_replica_knows() -> None:
    """Operators and the master decide by it."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.write(b"x")
    fleet.run(0.5)
    status, other = leader.status(), fleet.groups[2].status()
    assert (status.group_id, status.role, status.leader_id) == (GROUP, "leader", 1)
    assert (status.voters, status.learners, status.witnesses) == ((1, 2, 3), (), ())
    assert status.commit_index == status.applied_index == status.last_index
    assert status.last_term == status.term == other.term
    assert (other.role, other.leader_id, dict(other.followers)) == ("follower", 1, {})
    assert sorted(status.followers) == [2, 3]
    follower = status.followers[2]
    assert (follower.match, follower.lag, follower.next) == (
        status.last_index,
        0,
        status.last_index + 1,
    )
    assert follower.responsive
    fleet.nodes[1].host.drop_group(GROUP)
    assert leader.status().role == "stopped"


def test_f4_a_candidate_whose_configuration_we_do_not_know_may_win() -> None:
    """Two of four are gone-by or behind: the newest member may be the only one who can lead."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(1, 0, 0, entries(1, 3, 1), 3))
    ours.node.timers.run(1.5)
    ours.forget_sent()
    candidate = {"type": "pre_vote", "term": 9, "round": 1, "last_log_term": 1}
    ours.deliver(4, {**candidate, "last_log_index": 2})
    assert ours.sent("pre_vote_ok") == []
    assert [(peer, m["config"]) for peer, m in ours.sent("removed")] == [(4, 0)]
    ours.deliver(4, {**candidate, "last_log_index": 4})
    assert [peer for peer, _ in ours.sent("pre_vote_ok")] == [4]
    ours.deliver(4, {"type": "request_vote", "term": 9, "transfer": False, **LOG_4})
    assert [peer for peer, _ in ours.sent("response_vote")] == [4]


LOG_4 = {"last_log_term": 1, "last_log_index": 4}


def test_f4_members_of_a_sleeping_group_are_changed() -> None:
    """The master moves replicas of idle partitions too; nobody has answered for long."""
    fleet = Fleet().all((1, 2))
    leader = fleet.elect()
    learner(fleet, 3)
    assert fleet.run(10, lambda: all(g.status().hibernating for g in fleet.groups.values()))
    fleet.run(100)
    committed(fleet, leader.promote(3))
    assert leader.voters == (1, 2, 3)
