"""F18: the operator's way out when a majority is gone, and what becomes of the other side."""

from __future__ import annotations

import pytest

from raft import BadConfig, Fenced, Stopped, UnknownGroup
from raft.fence import FORCED_TERM_STEP
from tests.raft.fleet import Fleet
from tests.raft.support import GROUP, Machine

WHY = "site A burnt down, ticket 17"


def main_and_standby() -> Fleet:
    """Site A: node 1 and the witness 3; site B: node 2. Site A leads, and is cut off."""
    fleet = Fleet().all((1, 2, 3), witnesses=[3])
    fleet.elect_node(1)
    fleet.write(b"before")
    fleet.run(0.5)
    fleet.cut([1, 3], [2])
    fleet.run(3)
    return fleet


def test_f18_the_standby_site_writes_again_after_an_explicit_action() -> None:
    """One of two sites alone has no majority; somebody who knows that the other is gone decides."""
    fleet = main_and_standby()
    fleet.kill(1)
    fleet.kill(3)
    fleet.run(10)
    assert fleet.leader is None, "not by itself"
    standby = fleet.groups[2]
    index = fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    done: list[bool] = []
    fleet.nodes[2].host.barrier(lambda: done.append(True))
    assert fleet.run(1, lambda: standby.leader and bool(done))
    fleet.write(b"after", within_s=0.1)
    assert fleet.machines[2].commands == [b"before", b"after"]
    status = standby.status()
    assert (status.voters, status.config_index) == ((2,), index)
    assert (status.forced, status.forced_reason) == (1, WHY), "the audit is in the log"


def test_f18_the_action_and_its_reason_survive_restart_and_truncation() -> None:
    """Who asks in a year why a write of that night is missing must find it."""
    fleet = main_and_standby()
    group = fleet.groups[2]
    fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    assert fleet.run(1, lambda: group.leader)
    group._journal.compact(group.applied_index)
    fleet.run(0.5)
    assert group.status().first_index == group.last_index + 1, "nothing is left of the entry itself"
    state = Machine(at=(group.applied_index, group.term))
    again = fleet.add(2, db=fleet.kill(2), machine=state)
    assert (again.voters, again.status().forced, again.status().forced_reason) == ((2,), 1, WHY)


def test_f18_a_witness_of_the_old_side_is_told_though_it_never_asks() -> None:
    """It would wait for ever, and help the next of its side that comes back to a majority."""
    fleet = main_and_standby()
    fleet.kill(1)
    fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    assert fleet.run(1, lambda: fleet.groups[2].leader)
    fleet.heal()
    fleet.timers.run(3)
    assert [type(error) for error in fleet.nodes[3].fatal] == [Fenced]
    assert fleet.nodes[2].fatal == []
    assert fleet.groups[2].leader


def test_f18_the_old_side_is_fenced_at_the_first_contact() -> None:
    """Both sides have a majority of their own now: without a fence, two groups of one name live on
    and overwrite each other."""
    fleet = main_and_standby()
    old, standby = fleet.groups[1], fleet.groups[2]
    old.propose(b"old side", "old side")
    fleet.run(3)
    assert "old side" in fleet.machines[1].acked, "it lives, and has its majority"
    fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    fleet.run(1, lambda: standby.leader)
    standby.propose(b"new side", "new side")
    fleet.run(1)
    fleet.heal()
    fleet.timers.run(3)
    fatal = fleet.nodes[1].fatal
    assert [type(error) for error in fatal] == [Fenced]
    assert WHY in str(fatal[0])
    assert old.stopped
    with pytest.raises(Stopped):
        old.propose(b"x", "x")
    assert standby.leader
    assert standby.voters == (2,)
    assert fleet.machines[2].commands == [b"before", b"new side"]


def test_f18_the_old_side_cannot_win_by_a_higher_term() -> None:
    """While it was cut off it may have elected many times."""
    fleet = main_and_standby()
    fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    fleet.run(1, lambda: fleet.groups[2].leader)
    forced = fleet.groups[2]
    fleet.nodes[1].host.receive(3, GROUP, {"type": "stale", "term": forced.term + 10})
    assert fleet.run(10, lambda: fleet.groups[1].leader)
    assert fleet.groups[1].term > forced.term
    last = forced.last_index
    fleet.heal()
    fleet.timers.run(3)
    assert fleet.groups[1].stopped
    assert forced.leader
    assert forced.last_index == last


def test_f18_no_leader_of_the_other_side_can_have_written_under_the_same_term() -> None:
    """Equal (index, term) means equal entry, for all replicas: the ground of everything."""
    fleet = main_and_standby()
    before = fleet.groups[2].term
    fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    assert fleet.groups[2].status().last_term >= before + FORCED_TERM_STEP


def log_end(fleet: Fleet, node: int) -> tuple[int, int]:
    status = fleet.groups[node].status()
    return status.last_term, status.last_index


def test_f18_survivors_of_a_larger_group_follow_the_forced_members() -> None:
    """Three of five are gone; the two that are left must agree again."""
    fleet = Fleet().all((1, 2, 3, 4, 5))
    fleet.elect_node(1)
    fleet.write(b"before")
    fleet.run(0.5)
    for node in (1, 2, 3):
        fleet.kill(node)
    fleet.run(3)
    best = max((4, 5), key=lambda node: log_end(fleet, node))
    fleet.nodes[best].host.force_members(GROUP, [4, 5], WHY)
    assert fleet.run(8, lambda: fleet.leader is not None)
    fleet.write(b"after")
    fleet.everywhere(b"after")
    for node in (4, 5):
        assert fleet.groups[node].status().forced == 1
        assert fleet.machines[node].commands == [b"before", b"after"]


def test_f18_a_node_of_the_old_side_joins_anew() -> None:
    """The site is rebuilt: its nodes come back empty, as learners, like any new node."""
    fleet = main_and_standby()
    fleet.nodes[2].host.force_members(GROUP, [2], WHY)
    fleet.run(1, lambda: fleet.groups[2].leader)
    fleet.kill(1)
    fleet.kill(3)
    fleet.heal()
    leader = fleet.groups[2]
    leader.propose(b"new", "new")
    fleet.run(0.5)
    fleet.add(1)
    leader.add_learner(1)
    assert fleet.run(3, lambda: b"new" in fleet.machines[1].commands)
    assert fleet.machines[1].commands == [b"before", b"new"]
    fleet.run(0.5)
    leader.promote(1)
    fleet.run(1)
    assert leader.voters == (1, 2)
    assert fleet.groups[1].status().forced == 1


@pytest.mark.parametrize(
    ("voters", "why", "reason"),
    [
        ([1], WHY, "on one of the voters"),
        ([2, 9], WHY, r"nodes \[9\] are no members"),
        ([2], "  ", "say why"),
        ([2], "x" * 600, "shorten"),
        ([2, 3], WHY, "fewer than the voters with data"),
    ],
)
def test_f18_a_command_that_cannot_help_is_refused(
    voters: list[int], why: str, reason: str
) -> None:
    """It is typed once in years, at night: it must not make things worse."""
    fleet = main_and_standby()
    before = fleet.groups[2].status()
    with pytest.raises(BadConfig, match=reason):
        fleet.nodes[2].host.force_members(GROUP, voters, why)
    assert fleet.groups[2].status().last_index == before.last_index
    assert fleet.groups[2].term == before.term


@pytest.mark.parametrize("asleep", [False, True])
def test_f18_a_follower_that_hears_its_leader_is_not_forced(asleep: bool) -> None:
    """The operator is at the wrong node, or the cut has healed: two groups would be made of one."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    fleet.run(20 if asleep else 0.5)
    assert fleet.groups[2].status().hibernating is asleep
    for _ in range(3):
        with pytest.raises(BadConfig, match=r"node 1, was heard just now|idle and slept"):
            fleet.nodes[2].host.force_members(GROUP, [2], WHY)
        fleet.run(0.7)
    fleet.write(b"x")


def test_f18_a_sleeping_leader_is_forced_once_it_knows_that_the_others_are_gone() -> None:
    """Asleep it asks nobody, so it would go on believing that it leads."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    fleet.write(b"x")
    fleet.run(20)
    assert fleet.groups[1].status().hibernating
    fleet.kill(2)
    fleet.kill(3)
    with pytest.raises(BadConfig, match="it was idle and slept"):
        fleet.nodes[1].host.force_members(GROUP, [1], WHY)
    assert fleet.run(3, lambda: not fleet.groups[1].leader)
    fleet.run(1)
    fleet.nodes[1].host.force_members(GROUP, [1], WHY)
    fleet.write(b"y", within_s=1)


def test_f18_a_working_leader_and_an_unknown_group_are_refused() -> None:
    """Members of a group that works are changed one by one."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    with pytest.raises(BadConfig, match="leads it; remove members one by one"):
        fleet.nodes[1].host.force_members(GROUP, [1], WHY)
    with pytest.raises(UnknownGroup):
        fleet.nodes[1].host.force_members(99, [1], WHY)
