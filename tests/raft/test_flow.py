"""Replication under way: pipelined, bounded, tolerant of disorder, from memory where it is near."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from raft import RaftConfig
from tests.raft.fleet import Fleet
from tests.raft.probe import Ours, append_entries, entries
from tests.raft.support import Machine, Node, lone_leader
from tests.raft.trio import Letter, Trio

KEEPS = RaftConfig()


def data_to(trio: Trio, target: int, since_s: float = 0.0) -> list[Letter]:
    """Appends with entries to one node."""
    letters = trio.network.sent("append_entries", target=target, since_s=since_s)
    return [letter for letter in letters if letter.message.get("entries")]


def sent_bytes(letters: list[Letter]) -> int:
    return sum(len(entry[0]) for letter in letters for entry in letter.message["entries"])


def others(trio: Trio, leader: int) -> list[int]:
    return [node_id for node_id in trio.groups if node_id != leader]


def propose(trio: Trio, leader: int, count: int, *, every_s: float = 0.0) -> None:
    for _ in range(count):
        command = b"%d" % len(trio.written)
        trio.groups[leader].propose(command, None)
        trio.written.append(command)
        trio.run(every_s)


# ---------------------------------------------------------------------------------- F9


def test_f9_more_than_one_append_is_in_flight() -> None:
    """F9: waiting for each answer would make the round trip the limit of a group."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    trio.network.delay = lambda _letter: 0.05
    began_s = trio.timers.now_s
    propose(trio, leader, 40, every_s=0.001)
    assert trio.timers.now_s - began_s < 0.05, "before any answer"
    for target in others(trio, leader):
        sent = [letter.message["entries"] for letter in data_to(trio, target, began_s)]
        assert len(sent) == 40
        assert [entries[0][1] for entries in sent] == list(
            range(sent[0][0][1], sent[0][0][1] + 40)
        ), "each entry once, in order"
    trio.agree()


def test_f9_throughput_is_not_bound_by_the_round_trip() -> None:
    """F9: 400 entries, one after the other over a way of 100 ms, would take 40 s."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    trio.network.delay = lambda _letter: 0.05
    began_s = trio.timers.now_s
    propose(trio, leader, 400, every_s=0.001)
    group = trio.groups[leader]
    assert trio.run(5, until=lambda: group.applied_index == group.last_index)
    assert trio.timers.now_s - began_s < 0.4 + 3 * 0.1
    assert trio.nodes[leader].counters.bytes_resent == 0


@pytest.mark.parametrize(
    ("bound", "value"), [("window_messages_max", 8), ("window_bytes_max", 200)]
)
def test_f9_the_window_bounds_what_is_in_flight(bound: str, value: int) -> None:
    """F9: without it the leader's memory, and the transport's, pay for a slow follower."""
    options: dict[str, Any] = {"message_bytes_max": 20, bound: value}
    trio = Trio(config=RaftConfig(**options))
    leader = trio.lead()
    trio.network.delay = lambda _letter: 0.05
    began_s = trio.timers.now_s
    most = 0
    for _ in range(300):
        propose(trio, leader, 1, every_s=0.001)
        for target in others(trio, leader):
            flow = trio.groups[leader]._core.followers._flows[target]
            most = max(most, flow.in_flight_bytes)
            assert flow.in_flight_bytes <= 200 + 20 or bound != "window_bytes_max"
            answered = [
                letter
                for letter in trio.network.sent("next_node_idx", target=leader)
                if letter.source == target and letter.at_s + 0.05 <= trio.timers.now_s
            ]
            acked = max((letter.message["next_node_idx"] - 1 for letter in answered), default=0)
            open_ones = [
                letter
                for letter in data_to(trio, target, began_s)
                if letter.message["entries"][-1][1] > acked
            ]
            assert len(open_ones) <= 8 or bound != "window_messages_max"
    assert most > 0
    trio.agree()


def test_f9_a_follower_that_does_not_answer_is_only_asked() -> None:
    """Sending on to a dead node fills queues; when it comes back it is asked where it stands."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    dead = others(trio, leader)[0]
    trio.network.passes = lambda letter: dead not in (letter.source, letter.target)
    trio.run(1.5)
    silent_s = trio.timers.now_s
    propose(trio, leader, 300, every_s=0.01)
    assert data_to(trio, dead, silent_s) == []
    asked = trio.network.sent("append_entries", target=dead, since_s=silent_s)
    assert len(asked) <= 3.0 / 0.3 + 2
    trio.network.passes = lambda _letter: True
    back_s = trio.timers.now_s
    trio.agree()
    letters = data_to(trio, dead, back_s)
    assert len(letters) <= 3, "what it lacks, in few messages"


def test_f9_no_follower_applies_before_its_leader() -> None:
    """Entries leave before the leader's own sync, so followers can commit them first: a read there,
    and then one at the leader under its lease, would go back in time.
    """
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    trio.nodes[leader].syncer._delay_s = 2.0
    propose(trio, leader, 3, every_s=0.01)
    trio.run(1.5)
    group = trio.groups[leader]
    assert group.commit_index == group.last_index, "its followers have it on their disks"
    for node_id in trio.groups:
        assert trio.groups[node_id].applied_index < group.last_index
    trio.agree()


# ---------------------------------------------------------------------------------- F10


def test_f10_shuffled_messages_cost_nothing() -> None:
    """F10: refusing what overtook makes the leader go back and send all of it again."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    trio.network.delay = lambda _letter: 0.001 + trio.rng.random() * 0.08
    propose(trio, leader, 500, every_s=0.001)
    trio.agree()
    assert trio.nodes[leader].counters.bytes_resent == 0
    parked = sum(node.counters.appends_parked for node in trio.nodes.values())
    assert parked > 300, "a shuffle that shuffles"
    best = sum(len(command) + 1 for command in trio.written)
    for target in others(trio, leader):
        assert sent_bytes(data_to(trio, target)) <= best + 10


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_f10_a_bad_network_converges_without_a_storm(seed: int) -> None:
    """F10: loss, duplicates and long delays; what is sent again stays near what was lost."""
    trio = Trio(config=KEEPS, seed=seed)
    leader = trio.lead()
    rng = trio.rng
    lost: list[Letter] = []

    def passes(letter: Letter) -> bool:
        if letter.message["type"] in ("append_entries", "next_node_idx") and rng.random() < 0.05:
            lost.append(letter)
            return False
        return True

    trio.network.passes = passes
    trio.network.delay = lambda _letter: rng.random() * (0.4 if rng.random() < 0.02 else 0.02)
    propose(trio, leader, 1000, every_s=0.002)
    assert trio.run(60, until=lambda: trio.has_all(*trio.groups))
    assert trio.leader == leader, "heartbeats get through"
    resent = trio.nodes[leader].counters.bytes_resent
    lost_bytes = sent_bytes([letter for letter in lost if letter.message.get("entries")])
    total = 2 * sum(len(command) + 1 for command in trio.written)
    assert lost_bytes > 0
    assert resent < 4 * lost_bytes + total // 10


def test_f10_a_slow_disk_is_not_a_loss() -> None:
    """F10: a follower whose sync takes long answers late, but has what it was sent."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    slow = others(trio, leader)[0]
    trio.nodes[slow].syncer._delay_s = 3.0
    propose(trio, leader, 200, every_s=0.01)
    trio.agree()
    assert trio.nodes[leader].counters.bytes_resent == 0
    assert trio.leader == leader


def test_f10_one_lost_message_is_sent_again_alone() -> None:
    """F10: what was pipelined behind it waits at the follower and is not sent again."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    target = others(trio, leader)[0]
    lost: list[Letter] = []

    def passes(letter: Letter) -> bool:
        if letter.target == target and letter.message.get("entries") and not lost:
            lost.append(letter)
            return False
        return True

    trio.network.passes = passes
    propose(trio, leader, 100, every_s=0.001)
    trio.agree()
    assert trio.nodes[leader].counters.bytes_resent == sent_bytes(lost)


def test_f10_messages_of_an_earlier_leader_do_not_come_back() -> None:
    """F10: what waits for its predecessor must not follow another leader's entries."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(1, 5, 1, entries(6, 8, 1, b"old"), 0))
    assert ours.last() == 0
    ours.deliver(3, append_entries(2, 0, 0, entries(1, 5, 2, b"new"), 5))
    assert ours.last() == 5
    ours.deliver(2, append_entries(1, 0, 0, entries(1, 5, 1, b"old"), 0))
    assert (ours.last(), ours.applied()[0]) == (5, b"new1")


def test_f10_a_waiting_message_that_turns_out_to_differ_is_placed_by_the_rules() -> None:
    """F10: a message that waited gets no other rights than one that came in order (I4)."""
    ours = Ours([2, 3])
    ours.deliver(2, append_entries(3, 4, 3, entries(5, 6, 3), 6))
    ours.deliver(2, append_entries(3, 0, 0, entries(1, 4, 2), 4))
    assert (ours.last(), ours.commit()) == (4, 4), "entry 4 has another term than it names"
    ours.deliver(2, append_entries(3, 0, 0, entries(1, 3, 2) + entries(4, 4, 2), 4))
    assert ours.last() == 4


# ---------------------------------------------------------------------------------- F11


def test_f11_a_follower_that_lags_a_little_is_fed_from_memory() -> None:
    """F11: reading the disk for what was written a moment ago would double the leader's work."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    away = others(trio, leader)[0]
    trio.network.passes = lambda letter: away not in (letter.source, letter.target)
    propose(trio, leader, 1000, every_s=0.001)
    trio.run(2)
    trio.network.passes = lambda _letter: True
    trio.agree()
    assert trio.machines[away].commands == trio.written
    for node in trio.nodes.values():
        assert node.counters.disk_reads == 0


def test_f11_a_follower_far_behind_is_fed_from_the_disk_in_pieces() -> None:
    """F11: what is no longer in memory is read piece by piece, and never all at once."""
    config = dataclasses.replace(KEEPS, memory_entries_max=50, replay_entries_max=20)
    trio = Trio(config=config)
    leader = trio.lead()
    away = others(trio, leader)[0]
    trio.network.passes = lambda letter: away not in (letter.source, letter.target)
    propose(trio, leader, 500, every_s=0.001)
    trio.run(2)
    back_s = trio.timers.now_s
    trio.network.passes = lambda _letter: True
    trio.agree()
    assert 10 < trio.nodes[leader].counters.disk_reads < 60
    sizes = [len(letter.message["entries"]) for letter in data_to(trio, away, back_s)]
    assert max(sizes) <= 51


def test_f10_a_broken_connection_is_made_up_for_in_large_messages() -> None:
    """F10: each lost message again by itself would cost a round trip each."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    away = others(trio, leader)[0]
    trio.network.passes = lambda letter: away not in (letter.source, letter.target)
    propose(trio, leader, 200, every_s=0.001)
    back_s = trio.timers.now_s
    trio.network.passes = lambda _letter: True
    trio.nodes[leader].host.peer_up(away)
    trio.agree()
    letters = data_to(trio, away, back_s)
    assert len(letters) <= 3
    assert trio.nodes[leader].counters.bytes_resent == sum(map(len, trio.written)) + 200


def test_f10_a_gap_before_a_message_that_waits_is_made_up_for_in_large_messages() -> None:
    """F10: the first message after a silent loss waits at the follower; the many before it must
    not cost a round trip each.
    """
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    away = others(trio, leader)[0]
    beats = len(trio.network.letters)
    assert trio.run(1, until=lambda: len(trio.network.letters) > beats), "a heartbeat"
    trio.network.passes = lambda letter: letter.target != away or not letter.message.get("entries")
    propose(trio, leader, 50, every_s=0.002)
    trio.network.passes = lambda _letter: True
    back_s = trio.timers.now_s
    propose(trio, leader, 1)
    trio.agree()
    assert len(data_to(trio, away, back_s)) <= 4


def test_a_reconnect_asks_at_once() -> None:
    """Waiting for the next heartbeat would cost up to its period after every broken connection."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    away = others(trio, leader)[0]
    trio.run(0.05)
    asked = len(trio.network.sent("append_entries", target=away))
    trio.nodes[leader].host.peer_up(away)
    assert len(trio.network.sent("append_entries", target=away)) == asked + 1


def test_a_configuration_leaves_only_when_it_is_durable_at_the_leader() -> None:
    """With it in the log of the node that it makes a learner, and lost by the leader in a crash,
    neither of the two could ever be elected: the one does not ask, and refuses the other.
    """
    trio = Trio(config=KEEPS, voters=(1, 2), up=(1, 2))
    leader = trio.lead()
    other = others(trio, leader)[0]
    trio.nodes[leader].syncer._delay_s = 1.0
    began_s = trio.timers.now_s
    propose(trio, leader, 1)
    index = trio.groups[leader].demote(other)
    propose(trio, leader, 1)
    trio.run(0.5)
    sent = [letter.message["entries"][-1][1] for letter in data_to(trio, other, began_s)]
    assert sent == [index - 1]
    db, disk = trio.stop(leader)
    trio.start(leader, db, disk)
    assert trio.run(20, until=lambda: trio.leader is not None)
    assert set(trio.groups[leader].voters) == {1, 2}


def test_entries_behind_a_configuration_leave_with_its_sync() -> None:
    """What waited for the leader's disk must not wait for a heartbeat as well."""
    trio = Trio(config=KEEPS)
    leader = trio.lead()
    other = others(trio, leader)[0]
    trio.nodes[leader].syncer._delay_s = 0.02
    began_s = trio.timers.now_s
    index = trio.groups[leader].demote(other)
    propose(trio, leader, 1)
    group = trio.groups[leader]
    assert trio.run(0.1, until=lambda: group.commit_index > index)
    assert trio.timers.now_s - began_s < 0.1


def test_a_long_replay_lets_others_have_their_turn() -> None:
    """A follower that applies for seconds answers no heartbeat meanwhile, and loses its leader."""
    node, machine, group = lone_leader(config=RaftConfig(apply_entries_max=50))
    for number in range(1000):
        group.propose(b"%d" % number, None)
    node.timers.run(1)
    again, replayed = Node(db=node.db.crash(), config=node.config), Machine()
    opened = again.open(replayed)
    steps: list[int] = []

    def watch() -> bool:
        steps.append(replayed.at[0])
        return opened.leader

    assert again.timers.run(1, until=watch)
    assert replayed.commands == machine.commands
    assert max(after - before for before, after in itertools.pairwise(steps)) == 50


def test_a_witness_that_is_far_behind_need_not_wait_for_heartbeats() -> None:
    """One window per heartbeat would take minutes for what one answer after the other brings in a
    moment, and until then the group cannot spare a node.
    """
    config = RaftConfig(window_messages_max=1, replay_entries_max=10)
    fleet = Fleet(config=config).all((1, 2, 3), witnesses=[3])
    leader = fleet.elect_node(1)
    fleet.run(1)
    db = fleet.kill(3)
    for number in range(300):
        leader.propose(b"%d" % number, None)
        fleet.run(0.001)
    fleet.run(1)
    assert leader.commit_index > 300
    fleet.restart(3, db, witness=True)
    assert fleet.run(1.5, lambda: fleet.groups[3].last_index >= 290)
