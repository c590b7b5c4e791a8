"""A8 at the level of one group: reads on any replica see everything acknowledged before them."""

from __future__ import annotations

import random

import pytest

from raft import RaftConfig
from raft.reads import FollowerReads
from tests.raft.fleet import Fleet


def test_a8_a_follower_reads_what_was_acknowledged_before() -> None:
    """Read your writes, wherever you ask: else a follower read is a read of the past."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    for number in range(20):
        fleet.write(b"%d" % number)
        seen: list[int | None] = []
        fleet.groups[2].read_barrier(seen.append)
        assert seen == []
        assert fleet.run(0.1, lambda seen=seen: bool(seen)), "no waiting for a heartbeat"  # type: ignore[misc]
        assert seen[0] is not None
        assert seen[0] >= leader.applied_index
        assert fleet.machines[2].commands[-1] == b"%d" % number


def test_a8_a_follower_that_is_cut_off_refuses() -> None:
    """What it has may be long out of date."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    fleet.write(b"old")
    fleet.run(0.5)
    fleet.cut([3], [1, 2], tell=False)
    fleet.write(b"new")
    seen: list[int | None] = []
    fleet.groups[3].read_barrier(seen.append)
    fleet.run(RaftConfig().election_max_ms / 1000 + 0.5)
    assert seen == [None]


def test_a8_a_follower_of_a_deposed_leader_does_not_read_its_past() -> None:
    """The old leader believes that it leads: it must ask a majority before it answers."""
    fleet = Fleet().all((1, 2, 3, 4, 5))
    fleet.elect_node(1)
    fleet.write(b"old")
    fleet.run(0.5)
    fleet.cut([1, 2], [3, 4, 5], tell=False)
    assert fleet.run(10, lambda: any(fleet.groups[n].leader for n in (3, 4, 5)))
    new = next(fleet.groups[n] for n in (3, 4, 5) if fleet.groups[n].leader)
    new.propose(b"new", b"new")
    assert fleet.run(1, lambda: b"new" in fleet.machines[fleet.id_of(new)].acked)
    seen: list[int | None] = []
    fleet.groups[2].read_barrier(seen.append)
    fleet.run(4)
    assert seen == [None]


def test_a8_a_read_survives_a_change_of_leader() -> None:
    """A question that is lost with the old leader is asked again, of the new one."""
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    seen: list[int | None] = []
    fleet.cuts |= {(2, 1)}
    fleet.groups[2].read_barrier(seen.append)
    leader.transfer(3)
    assert fleet.run(1, lambda: bool(seen))
    assert seen[0] is not None


def test_a8_a_follower_of_a_leader_that_may_not_serve_yet_is_refused() -> None:
    """Before its first entry of the term a new leader does not know what is committed."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    fleet.groups[1].leader = False  # as between the election and the first entry
    seen: list[int | None] = []
    fleet.groups[2].read_barrier(seen.append)
    fleet.run(0.1)
    assert seen == [None]


def test_a8_a_read_at_a_follower_wakes_a_sleeping_group() -> None:
    """And is right although the leader had no lease."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    fleet.write(b"x")
    assert fleet.run(10, lambda: all(g.status().hibernating for g in fleet.groups.values()))
    seen: list[int | None] = []
    fleet.groups[3].read_barrier(seen.append)
    assert fleet.run(0.1, lambda: bool(seen))
    assert fleet.machines[3].commands == [b"x"]


def test_a8_a_learner_may_be_read() -> None:
    """It has the data; that it does not vote is nothing to its readers."""
    fleet = Fleet().all((1, 2))
    fleet.elect()
    fleet.add(3)
    fleet.elect().add_learner(3)
    fleet.write(b"x")
    fleet.run(0.5)
    seen: list[int | None] = []
    fleet.groups[3].read_barrier(seen.append)
    assert fleet.run(0.1, lambda: bool(seen))
    assert fleet.machines[3].commands == [b"x"]


def test_a8_a_follower_that_stops_answers_its_readers() -> None:
    """Nobody may be left waiting."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    seen: list[int | None] = []
    fleet.groups[2].read_barrier(seen.append)
    fleet.nodes[2].host.close()
    assert seen == [None]
    fleet.groups[2].read_barrier(seen.append)
    assert seen == [None, None]


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(6))
def test_a8_reads_anywhere_are_linearizable_under_faults(seed: int) -> None:
    """One key: a read that starts after a write was acknowledged must see that write or a later
    one, and no read may go back behind an earlier read."""
    fleet, rng = Fleet(seed=seed).all((1, 2, 3)), random.Random(seed)
    fleet.network._delay_s = lambda: 0.0005 + rng.random() * (0.5 if rng.random() < 0.02 else 0.005)
    number, served, acked, read = 0, 0, -1, -1

    def value(node: int) -> int:
        return int(fleet.machines[node].commands[-1]) if fleet.machines[node].commands else -1

    def start(node: int) -> None:
        floor = max(acked, read)

        def done(index: int | None) -> None:
            nonlocal read, served
            if index is not None:
                served += 1
                assert value(node) >= floor, "a stale read"
                read = max(read, value(node))

        fleet.groups[node].read_barrier(done)

    for _ in range(400):
        leader = fleet.leader
        if leader is not None:
            leader.propose(b"%d" % number, number)
            number += 1
        start(rng.choice((1, 2, 3)))
        if rng.random() < 0.03:
            victim = rng.choice((1, 2, 3))
            fleet.cut([victim], [n for n in (1, 2, 3) if n != victim], tell=rng.random() < 0.5)
        elif rng.random() < 0.05:
            fleet.heal()
        elif rng.random() < 0.03 and leader is not None:
            clock = fleet.clocks[fleet.id_of(leader)]
            clock.paused = True
            fleet.timers.call_later(rng.random() * 2.5, clock.resume)
        fleet.run(rng.choice((0.002, 0.02, 0.2)))
        acked = max([acked, *(t for m in fleet.machines.values() for t in m.acked[-1:])])  # type: ignore[type-var]
    fleet.heal()
    fleet.run(5)
    assert served > 100, "a dull seed"


def test_a_paused_leader_serves_no_stale_read_when_it_wakes() -> None:
    """A process that was stopped for a while still believes that it leads: only the clock knows."""
    fleet = Fleet().all((1, 2, 3))
    old = fleet.elect_node(1)
    fleet.write(b"old")
    fleet.run(0.5)
    assert old.serving()
    fleet.clocks[1].paused = True
    assert fleet.run(10, lambda: any(fleet.groups[n].leader for n in (2, 3)))
    new = next(fleet.groups[n] for n in (2, 3) if fleet.groups[n].leader)
    new.propose(b"new", b"new")
    assert fleet.run(1, lambda: b"new" in fleet.machines[fleet.id_of(new)].acked)
    fleet.clocks[1].paused = False  # awake, and the first thing it gets is a read
    assert old.leader, "it does not know yet"
    assert not old.serving()
    assert not old.can_serve_reads()
    seen: list[int | None] = []
    old.read_barrier(seen.append)
    fleet.clocks[1].resume()
    fleet.run(3)
    assert seen == [None]
    assert not old.leader


def test_a_read_that_arrived_before_the_pause_is_still_right() -> None:
    """It was covered by the lease when it came; what happens later cannot make it wrong."""
    fleet = Fleet().all((1, 2, 3))
    old = fleet.elect_node(1)
    old.propose(b"x", "x")
    seen: list[int | None] = []
    old.read_barrier(seen.append)
    assert seen == [old.commit_index]


def reads(answers: list[bool] | None = None) -> tuple[FollowerReads, list[int]]:
    asked: list[int] = []

    def ask(number: int) -> bool:
        asked.append(number)
        return answers is None or answers.pop(0)

    return FollowerReads(ask=ask, first=100, resend_s=0.3, give_up_s=2.0), asked


def test_a_read_is_not_answered_by_a_question_that_left_before_it() -> None:
    """The leader may have handled that question before the write that this reader knows of."""
    queue, asked = reads()
    seen: list[tuple[str, int | None]] = []
    queue.add(lambda index: seen.append(("first", index)), 0.0)
    queue.add(lambda index: seen.append(("second", index)), 0.0)
    assert asked == [101]
    queue.answered(101, 5, 0.1)
    assert asked == [101, 102]
    queue.serve(9)
    assert seen == [("first", 9)]
    queue.answered(101, 5, 0.2)
    queue.answered(77, 5, 0.2)
    queue.serve(9)
    assert seen == [("first", 9)], "a duplicate, and an answer to another life"
    queue.answered(102, 9, 0.3)
    queue.serve(9)
    assert seen[1:] == [("second", 9)]
    assert len(queue) == 0


def test_a_read_waits_for_its_index_but_not_for_ever() -> None:
    """A follower that stops applying must give its readers back."""
    queue, _asked = reads()
    seen: list[int | None] = []
    queue.add(seen.append, 0.0)
    queue.answered(101, 5, 0.1)
    queue.serve(4)
    assert seen == []
    assert queue.next_deadline_s() == 2.0
    queue.tick(1.9)
    assert seen == []
    queue.tick(2.0)
    assert seen == [None]


def test_a_lost_question_is_repeated_and_given_up_in_the_end() -> None:
    """One lost message must not cost the whole time, nor may it wait for ever."""
    queue, asked = reads()
    seen: list[int | None] = []
    queue.add(seen.append, 0.0)
    assert queue.next_deadline_s() == pytest.approx(0.3)
    queue.tick(0.2)
    assert asked == [101]
    queue.tick(0.3)
    assert asked == [101, 101]
    queue.tick(2.0)
    assert seen == [None]
    assert queue.next_deadline_s() is None


def test_without_a_leader_a_read_is_refused_at_once() -> None:
    """The caller knows better than we where to ask next."""
    queue, _asked = reads([False])
    seen: list[int | None] = []
    queue.add(seen.append, 0.0)
    assert seen == [None]
    assert len(queue) == 0


@pytest.mark.parametrize("lost_at_s", [0.3, 2.0])
def test_whoever_waits_for_the_next_question_is_refused_when_the_leader_is_gone(
    lost_at_s: float,
) -> None:
    """Nothing would ever ask for it again: a node that starts waited for ever to have caught up."""
    queue, _asked = reads([True, False])
    seen: list[tuple[str, int | None]] = []
    queue.add(lambda index: seen.append(("first", index)), 0.0)
    queue.add(lambda index: seen.append(("second", index)), 0.1)
    queue.tick(lost_at_s)
    assert seen == [("first", None), ("second", None)]
    assert len(queue) == 0


def test_a_reader_that_comes_again_when_it_is_refused_is_not_forgotten() -> None:
    """It asks the next question itself, in the middle of the refusal of the last one."""
    queue, asked = reads()
    seen: list[int | None] = []
    queue.add(lambda _index: queue.add(seen.append, 0.1), 0.0)
    queue.answered(101, None, 0.1)
    assert asked == [101, 102]
    queue.answered(102, 5, 0.2)
    queue.serve(5)
    assert seen == [5]
