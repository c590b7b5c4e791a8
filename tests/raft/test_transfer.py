"""Handing over the leadership: the freeze, its end, and what it does to leases."""

from __future__ import annotations

import pytest

from raft import NotLeader, Transferring
from tests.raft.fleet import Fleet
from tests.raft.support import GROUP


def test_a_transfer_moves_the_leadership_without_an_election_timeout() -> None:
    """Balancing leaders must not cost a second of writes each."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    leader.transfer(2)
    assert fleet.run(0.05, lambda: fleet.groups[2].leader)
    assert not leader.leader
    with pytest.raises(NotLeader) as caught:
        leader.propose(b"x", "x")
    assert caught.value.leader_id == 2
    fleet.write(b"y", within_s=0.1)


def test_a_refused_proposal_of_a_transfer_is_certainly_not_executed() -> None:
    """The caller sends it again to the next leader: it must not be executed twice."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    leader.propose(b"before", "before")
    last = leader.last_index
    leader.transfer(2)
    assert leader.status().transferring_to == 2
    with pytest.raises(Transferring, match="moving to node 2"):
        leader.propose(b"during", "during")
    assert leader.last_index == last
    fleet.run(2)
    fleet.write(b"after")
    fleet.everywhere(b"after")
    for machine in fleet.machines.values():
        assert machine.commands == [b"before", b"after"]
    assert fleet.machines[1].acked == ["before"], "what was appended before it counts"


def test_a_transfer_waits_until_the_target_has_the_log() -> None:
    """A target without the last entries loses the election that it was ordered to start."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cuts |= {(1, 2)}
    for number in range(50):
        leader.propose(b"%d" % number, number)
    fleet.sent.clear()
    leader.transfer(2)
    fleet.run(0.3)
    assert fleet.sent["timeout_now"] == 0
    assert leader.leader
    fleet.heal()
    assert fleet.run(0.5, lambda: fleet.groups[2].leader)
    assert fleet.machines[1].acked == list(range(50))


def test_a_transfer_that_cannot_succeed_ends_after_an_election_timeout() -> None:
    """A freeze without an end would be an outage."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cuts |= {(1, 2)}
    leader.propose(b"x", "x")
    leader.transfer(2)
    term = leader.term
    assert fleet.run(1.5, lambda: leader.status().transferring_to is None)
    assert leader.leader
    assert leader.term == term, "nothing was ordered, so nothing has to be made void"
    leader.propose(b"y", "y")
    fleet.run(0.1)
    assert fleet.machines[1].acked == ["x", "y"]
    assert leader.serving()


def test_a_leader_that_ordered_in_vain_begins_a_new_term_and_has_a_lease_again() -> None:
    """The order may arrive at any later time of its term: without a new term, no lease for ever."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cuts |= {(1, 2)}
    term = leader.term
    leader.transfer(2)  # it has the log already; the order is lost
    fleet.run(0.5)
    assert leader.leader
    assert not leader.serving(), "ordered: no lease in this term"
    answers: list[int | None] = []
    leader.read_barrier(answers.append)
    fleet.run(0.1)
    assert answers == [leader.commit_index], "asking a majority serves all the same"
    assert fleet.run(2, lambda: leader.leader and leader.term > term)
    assert fleet.run(1, leader.serving)
    fleet.write(b"x", within_s=0.1)
    # The old order arrives after all: it is void.
    fleet.nodes[2].host.receive(1, GROUP, {"type": "timeout_now", "term": term})
    fleet.heal()
    fleet.run(3)
    assert leader.leader


def test_a_lost_order_is_repeated() -> None:
    """One lost message must not cost a second of frozen writes."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cuts |= {(1, 2)}
    leader.transfer(2)
    fleet.run(0.1)
    fleet.heal()
    assert fleet.run(0.6, lambda: fleet.groups[2].leader)
    assert not leader.leader


def test_a_second_transfer_waits_for_the_first() -> None:
    """Two targets with orders would fight for the term."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.cuts |= {(1, 2)}
    leader.propose(b"x", "x")
    leader.transfer(2)
    leader.transfer(2)
    with pytest.raises(Transferring):
        leader.transfer(3)
    with pytest.raises(Transferring):
        leader.add_learner(9)
    fleet.heal()
    assert fleet.run(1, lambda: fleet.groups[2].leader)


def test_a_transfer_wakes_a_sleeping_group() -> None:
    """The master balances idle groups too."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    assert fleet.run(10, lambda: all(g.status().hibernating for g in fleet.groups.values()))
    leader.transfer(3)
    assert fleet.run(0.1, lambda: fleet.groups[3].leader)
