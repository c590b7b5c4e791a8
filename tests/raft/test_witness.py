"""F15 to F17: voters without data. One directed test for each danger of `rules/witness`."""

from __future__ import annotations

import pytest

from raft import ApplyFailed, BadConfig, RaftConfig, RaftError
from raft.memory import MemoryLogDB
from raft.records import CONFIG, DATA, WITHHELD
from raft.replica import Replica
from raft.rules import witness
from raft.rules.membership import Membership, decode, membership
from raft.rules.membership import check_change as check
from tests.raft.fleet import Fleet
from tests.raft.probe import Ours, append_entries, entries
from tests.raft.support import GROUP, Machine, Node

DATA_NODES, WITNESS = (1, 2), 3


def two_and_a_witness(**options: object) -> Fleet:
    """Nodes 1 and 2 keep data, node 3 votes only; node 1 leads."""
    fleet = Fleet()
    for node in (1, 2, 3):
        fleet.add(node, (1, 2, 3), witnesses=[WITNESS], **(options if node == 1 else {}))
    fleet.elect_node(1)
    return fleet


# ---------------------------------------------------------------------------------- F15


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_f15_two_data_nodes_and_a_witness_survive_the_loss_of_any_node(lost: int) -> None:
    """The point of a witness: three nodes' availability at the price of two copies."""
    fleet = two_and_a_witness()
    for number in range(20):
        fleet.write(b"before %d" % number)
    fleet.kill(lost)
    for number in range(20):
        fleet.write(b"after %d" % number, within_s=6)
    for node in set(DATA_NODES) - {lost}:
        expected = [b"before %d" % n for n in range(20)] + [b"after %d" % n for n in range(20)]
        fleet.run(0.5)
        assert fleet.machines[node].commands == expected


@pytest.mark.parametrize("lost", [1, 2])
def test_f15_the_node_that_comes_back_catches_up_and_the_other_may_go(lost: int) -> None:
    """Else the second failure, months later, would lose what was written between them."""
    fleet = two_and_a_witness()
    fleet.write(b"both")
    db = fleet.kill(lost)
    fleet.write(b"one", within_s=6)
    fleet.restart(lost, db)
    fleet.everywhere(b"one")
    fleet.run(1.5)
    fleet.kill(3 - lost)
    fleet.write(b"the other", within_s=6)
    assert fleet.machines[lost].commands == [b"both", b"one", b"the other"]


def stored(db: MemoryLogDB) -> int:
    return sum(len(key) + len(value) for key, value in db.items().items())


@pytest.mark.parametrize("needed", [False, True])
def test_f15_the_disk_of_a_witness_stays_tiny_and_holds_no_payload(needed: bool) -> None:
    """A witness that grows with the data needs a third machine like the others."""
    fleet = two_and_a_witness()
    if needed:
        fleet.kill(2)
        fleet.write(b"wait for it", within_s=6)
    payload = b"secret" * 200
    for number in range(3000):
        fleet.elect().propose(payload + b"%d" % number, number)
        if number % 50 == 0:
            fleet.run(0.01)
    fleet.run(2)
    assert fleet.machines[1].acked[-1] == 2999
    db = fleet.nodes[WITNESS].db
    assert stored(db) < 40_000
    assert not any(b"secret" in value for value in db.items().values())
    assert fleet.groups[WITNESS].commit_index >= fleet.groups[1].commit_index - 1
    assert fleet.groups[WITNESS].status().role == "witness"


def test_f15_w6_a_witness_never_campaigns_and_takes_no_transfer() -> None:
    """A leader without data would serve nothing, and call it the state."""
    fleet = two_and_a_witness()
    group = fleet.groups[WITNESS]
    with pytest.raises(BadConfig, match="no voter with data"):
        fleet.groups[1].transfer(WITNESS)
    term = group.term
    fleet.nodes[WITNESS].host.receive(1, GROUP, {"type": "timeout_now", "term": term})
    fleet.run(0.5)
    for node in DATA_NODES:
        fleet.kill(node)
    fleet.sent.clear()
    fleet.run(60)
    assert group.term == term
    assert fleet.sent.total() == 0
    answers: list[int | None] = []
    group.read_barrier(answers.append)
    assert answers == [None]


def test_f15_w1_a_slow_data_node_can_still_be_elected() -> None:
    """Were the witness enough at once, a hiccup of one node and the loss of the other would stop
    the group, though two of three are alive."""
    fleet = two_and_a_witness()
    fleet.write(b"both")
    fleet.cuts |= {(1, 2)}
    fleet.groups[1].propose(b"hiccup", "hiccup")
    fleet.run(0.6)
    assert fleet.machines[1].acked[-1] != "hiccup", "one copy is not enough while two keep up"
    assert fleet.groups[WITNESS].last_index <= fleet.groups[2].last_index
    fleet.kill(1)
    fleet.heal()
    fleet.write(b"goes on", within_s=6)
    assert fleet.machines[2].commands == [b"both", b"goes on"]


def test_f15_without_the_rule_a_hiccup_and_a_loss_stop_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same with the rule off: proof that the test above looks at the right thing."""
    monkeypatch.setattr(witness, "bound", lambda *_args, in_step, **_kwargs: max(in_step))
    fleet = two_and_a_witness()
    fleet.write(b"both")
    fleet.cuts |= {(1, 2)}
    fleet.groups[1].propose(b"hiccup", "hiccup")
    fleet.run(0.6)
    assert fleet.machines[1].acked[-1] == "hiccup"
    fleet.kill(1)
    fleet.heal()
    assert not fleet.run(30, lambda: fleet.leader is not None)


def test_f15_w3_a_witness_gets_only_what_is_on_the_leaders_disk() -> None:
    """Else it refuses the leader, restarted without its last entry, for ever."""
    fleet = Fleet()
    delay = [0.001]
    for node in (1, 2, 3):
        options = {"sync_s": lambda: delay[0]} if node == 1 else {}
        fleet.add(node, (1, 2, 3), witnesses=[WITNESS], **options)
    fleet.elect_node(1)
    fleet.kill(2)
    fleet.write(b"alone", within_s=6)
    fleet.run(1)
    before = fleet.groups[WITNESS].last_index
    delay[0] = 0.4
    fleet.groups[1].propose(b"not synced", "not synced")
    fleet.run(0.3)
    assert fleet.groups[WITNESS].last_index == before
    db = fleet.kill(1)
    fleet.restart(1, db)
    fleet.write(b"again", within_s=6)
    assert fleet.machines[1].commands == [b"alone", b"again"]


def test_f15_w4_a_leader_that_is_cut_off_does_not_fill_the_witness() -> None:
    """The witness would refuse everybody else, for entries that never could commit."""
    fleet = Fleet().all((1, 2, 3, 4, 5), witnesses=[5])
    leader = fleet.elect_node(1)
    fleet.cut([1], [2, 3, 4])
    last = fleet.groups[5].last_index
    for number in range(20):
        leader.propose(b"%d" % number, number)
        fleet.run(0.05)
    assert leader.leader, "check-quorum has not struck yet"
    assert fleet.groups[5].last_index == last
    fleet.kill(1)
    fleet.kill(4)
    fleet.write(b"three of five", within_s=8)


def test_f15_w5_a_data_node_whose_disk_hangs_does_not_stop_commits_for_ever() -> None:
    """It answers heartbeats all the time: alive is not the same as keeping up."""
    fleet, hang = Fleet(), [0.001]
    for node in (1, 2, 3):
        options = {"sync_s": lambda: hang[0]} if node == 2 else {}
        fleet.add(node, (1, 2, 3), witnesses=[WITNESS], **options)
    fleet.elect_node(1)
    fleet.write(b"both")
    hang[0] = 1000.0
    fleet.write(b"one", within_s=2)
    assert fleet.groups[1].status().followers[2].responsive
    for number in range(20):
        fleet.write(b"%d" % number, within_s=0.05)


def test_f15_w5_a_node_that_catches_up_for_long_does_not_stop_commits() -> None:
    """It moves all the time, but it will not be there for minutes."""
    fleet = two_and_a_witness()
    db = fleet.kill(2)
    fleet.write(b"x", within_s=6)
    for number in range(2000):
        fleet.groups[1].propose(b"v" * 1000, number)
        if number % 100 == 0:
            fleet.run(0.01)
    fleet.run(0.5)
    fleet.network._delay_s = lambda: 0.2
    fleet.restart(2, db)
    slowest = 0.0
    for number in range(10):
        began_s = fleet.timers.now_s
        fleet.write(b"w%d" % number, within_s=5)
        slowest = max(slowest, fleet.timers.now_s - began_s)
    assert slowest < 0.6 + RaftConfig().election_min_ms / 1000


def test_f15_w7_entries_without_payload_never_reach_a_replica_with_data() -> None:
    """It would skip a command, and differ from the others for ever."""
    ours = Ours([2, 3])
    message = append_entries(1, 0, 0, [(WITHHELD, 1, 1)], 1)
    ours.deliver(2, {**message, "witness": True})
    assert ours.last() == 0, "the message says for whom it is"
    with pytest.raises(ApplyFailed) as caught:
        ours.deliver(2, message)
    assert "log of a witness" in str(caught.value.__cause__)
    assert ours.group.stopped


def test_f15_w7_a_witness_takes_no_payloads() -> None:
    """What was sent to it by mistake must not reach its disk."""
    node = Node(3)
    node.host.create_group(GROUP, [1, 2, 3], (), [3])
    group = node.host.open_witness(GROUP)
    node.timers.run(0.1)
    node.host.receive(1, GROUP, append_entries(1, 0, 0, entries(1, 3, 1), 3))
    node.timers.run(0.1)
    assert group.last_index == 0
    node.host.receive(1, GROUP, {**append_entries(1, 0, 0, [(WITHHELD, 1, 1)], 1), "witness": True})
    node.timers.run(0.1)
    assert (group.last_index, group.applied_index) == (1, 1)
    assert node.fatal == []


def test_f15_w7_the_log_of_a_witness_is_not_opened_as_one_with_data() -> None:
    """A wrong descriptor on the node must not make a data replica out of nothing."""
    fleet = two_and_a_witness()
    fleet.write(b"x")
    fleet.run(1)
    db = fleet.kill(WITNESS)
    node = Node(WITNESS, db=db)
    group = node.host.open_group(GROUP, Machine())
    node.timers.run(0.1)
    last = group.status()
    message = append_entries(last.term, last.last_index, last.last_term, [], last.last_index)
    node.host.receive(1, GROUP, message)
    node.timers.run(0.1)
    assert [type(error) for error in node.fatal] == [ApplyFailed]
    assert group.stopped


def test_f15_a_witness_remembers_its_vote_and_log_over_a_restart() -> None:
    """A witness that forgets votes twice in a term, or for a leader without committed entries."""
    fleet = two_and_a_witness()
    fleet.kill(2)
    fleet.write(b"alone", within_s=6)
    fleet.run(1)
    before = fleet.groups[WITNESS].status()
    db = fleet.kill(WITNESS)
    again = fleet.restart(WITNESS, db, witness=True)
    after = again.status()
    assert (after.last_index, after.last_term) == (before.last_index, before.last_term)
    assert (after.term, after.witnesses, after.role) == (before.term, (3,), "witness")
    fleet.write(b"again", within_s=6)


def test_f15_a_witness_joins_a_group_whose_log_begins_late() -> None:
    """It needs nothing of what is gone but the index and the term."""
    fleet = Fleet(config=RaftConfig(log_tail_bytes=0, log_keep_bytes_max=0)).all((1, 2))
    for number in range(50):
        fleet.write(b"%d" % number)
    leader = fleet.elect()
    leader.compact(leader.applied_index)
    assert leader.status().first_index > 40
    fleet.add(3, witnesses=[3], voters=())
    index = leader.add_witness(3)
    assert fleet.run(5, lambda: fleet.groups[3].last_index >= index)
    assert fleet.run(1, lambda: leader.commit_index >= index)
    assert fleet.groups[3].status().witnesses == (3,)
    fleet.kill(2 if fleet.id_of(leader) == 1 else 1)
    fleet.write(b"with the witness", within_s=6)


def test_f15_a_witness_is_removed_and_the_group_goes_on() -> None:
    """It must be possible to move it to another machine."""
    fleet = two_and_a_witness()
    leader = fleet.groups[1]
    fleet.write(b"x")
    index = leader.remove(WITNESS)
    assert fleet.run(1, lambda: leader.commit_index >= index)
    fleet.kill(WITNESS)
    fleet.add(4, witnesses=[4])
    index = leader.add_witness(4)
    assert fleet.run(1, lambda: leader.commit_index >= index)
    fleet.kill(2)
    fleet.write(b"y", within_s=6)


def test_f15_a_group_with_a_witness_sleeps_and_wakes() -> None:
    """Hibernation waits for everybody, also for those that get the log late."""
    fleet = two_and_a_witness()
    fleet.write(b"x")
    assert fleet.run(8, lambda: all(g.status().hibernating for g in fleet.groups.values()))
    fleet.write(b"y", within_s=0.1)
    fleet.run(8, lambda: all(g.status().hibernating for g in fleet.groups.values()))
    fleet.kill(1)
    fleet.write(b"z", within_s=6)


# ---------------------------------------------------------------------------------- F16, F17

LAYOUTS = {
    "five data": ((1, 2), (3, 4), (5,), ()),
    "four data, one witness": ((1, 2), (3, 4), (5,), (5,)),
}


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_f16_three_sites_survive_the_loss_of_one(layout: str, lost: int) -> None:
    """W2: the loss may come right after a commit, so the other sites must hold it by then."""
    *sites, witnesses = LAYOUTS[layout]
    fleet = Fleet().all((1, 2, 3, 4, 5), witnesses=witnesses)
    fleet.elect_node(1)
    for number in range(30):
        fleet.write(b"%d" % number)
    for node in sites[lost]:
        fleet.kill(node)
    fleet.write(b"after", within_s=8)
    fleet.run(1)
    for node in set(fleet.groups) - set(witnesses):
        assert fleet.machines[node].commands == [b"%d" % n for n in range(30)] + [b"after"]


def test_f16_without_the_rule_the_loss_of_the_leaders_site_stops_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W2 with the rule off: leader, neighbour and witness commit, and the other site is behind."""
    monkeypatch.setattr(
        witness, "bound", lambda _config, *, in_step, **_kwargs: sorted(in_step, reverse=True)[1]
    )
    fleet = Fleet().all((1, 2, 3, 4, 5), witnesses=[5])
    fleet.elect_node(1)
    fleet.cuts |= {(1, 3), (1, 4)}
    fleet.groups[1].propose(b"x", "x")
    fleet.run(0.3)
    assert fleet.machines[1].acked == ["x"]
    for node in (1, 2):
        fleet.kill(node)
    fleet.heal()
    assert not fleet.run(30, lambda: fleet.leader is not None)


def test_f16_writes_stay_quick_when_the_witness_is_needed() -> None:
    """Its acknowledgement is the last one then: it must be asked as soon as it may be."""
    fleet = Fleet().all((1, 2, 3, 4, 5), witnesses=[5])
    fleet.elect_node(1)
    for node in (3, 4):
        fleet.kill(node)
    fleet.write(b"first", within_s=2)
    for number in range(20):
        fleet.write(b"%d" % number, within_s=0.02)


@pytest.mark.parametrize("lost", [(1, 2), (3, 4), (5,)])
def test_f17_two_sites_and_a_third_party_keep_their_quorum(lost: tuple[int, ...]) -> None:
    """Two data centres cannot agree on which of them is cut off; a witness elsewhere can."""
    fleet = Fleet().all((1, 2, 3, 4, 5), witnesses=[5])
    fleet.elect_node(3)
    fleet.write(b"before")
    others = [node for node in (1, 2, 3, 4, 5) if node not in lost]
    fleet.cut(lost, others)
    assert fleet.run(10, lambda: any(fleet.groups[node].leader for node in others if node != 5))
    winner = next(fleet.groups[n] for n in others if fleet.groups[n].leader)
    winner.propose(b"after", b"after")
    assert fleet.run(4, lambda: b"after" in fleet.machines[fleet.id_of(winner)].acked)
    fleet.run(3)
    assert not any(fleet.groups[node].leader for node in lost)
    fleet.heal()
    fleet.everywhere(b"after")


# ---------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("voters", "witnesses", "in_step", "others", "expected"),
    [
        ((1, 2, 3), (3,), [9, 7], [], 5),  # both keep up: only what is committed
        ((1, 2, 3), (3,), [9], [7], 9),  # the other one does not
        ((1, 2, 3), (3,), [7], [9], 7),  # W3: it has more than the leader's disk
        ((1, 2, 3, 4, 5), (5,), [9, 8, 7, 6], [], 5),
        ((1, 2, 3, 4, 5), (5,), [9, 8, 7], [6], 5),
        ((1, 2, 3, 4, 5), (5,), [9, 8], [7, 6], 8),  # both that keep up hold it
        ((1, 2, 3, 4, 5), (5,), [9, 6], [8, 8], 6),
        ((1, 2, 3, 4, 5), (5,), [9], [6, 0, 0], 6),  # W4: one copy commits nothing
        ((1, 2, 3, 4, 5, 6, 7), (6, 7), [9, 8, 7], [6, 6], 7),
        ((1, 2, 3, 4, 5, 6, 7), (6, 7), [9, 8], [7, 6, 6], 8),
    ],
)
def test_what_a_witness_may_be_sent(
    voters: tuple[int, ...],
    witnesses: tuple[int, ...],
    in_step: list[int],
    others: list[int],
    expected: int,
) -> None:
    """One entry too many strands the others; one too few stops the group."""
    config = Membership(1, voters, (), witnesses)
    assert witness.bound(config, commit_index=5, in_step=in_step, others=others) == expected


def test_entries_for_a_witness_keep_index_term_and_configurations() -> None:
    """Its votes rest on them, and its majorities."""
    configs = [Membership(1, (1,), ()), Membership(4, (1, 2, 3), (), (3,))]
    made = witness.without_payloads(3, 5, term_at={3: 1, 4: 2, 5: 2}.get, configs=configs)
    assert made == [(WITHHELD, 3, 1), (CONFIG + configs[1].encode(), 4, 2), (WITHHELD, 5, 2)]
    assert WITHHELD != DATA


def test_witnesses_survive_the_bytes_and_old_bytes_still_read() -> None:
    """A record of before must not become unreadable, nor a witness a voter with data."""
    plain = membership(7, [1, 2, 3], [4])
    assert len(plain.encode()) == 2 + 3 * 8 + 2 + 8, "as it always was"
    config = membership(7, [1, 2, 3], [4], [3])
    assert decode(7, config.encode()) == config
    assert decode(7, config.encode()[: len(plain.encode())]) == plain
    forced = membership(7, [1, 2, 3], [], [3], forced=2, reason="site A burnt — sorry")
    assert decode(7, forced.encode()) == forced
    for cut in range(len(config.encode()) + 1, len(forced.encode())):
        with pytest.raises(ValueError, match="configuration"):
            decode(7, forced.encode()[:cut])


@pytest.mark.parametrize(
    ("voters", "witnesses", "reason"),
    [
        ((1, 2, 3), (4,), "must be voters"),
        ((1, 2, 3), (3, 3), "each once"),
        ((1, 2), (2,), "fewer"),
        ((1, 2, 3, 4), (3, 4), "fewer"),
    ],
)
def test_w8_majorities_without_data_are_refused(
    voters: tuple[int, ...], witnesses: tuple[int, ...], reason: str
) -> None:
    """Witnesses alone would elect, and agree on entries that nobody can read."""
    with pytest.raises(BadConfig, match=reason):
        membership(0, voters, (), witnesses)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (((1, 2, 3), (), ()), ((1, 2, 3), (), (3,)), "keeps data cannot become a witness"),
        (((1, 2, 3), (), (3,)), ((1, 2, 3), (), ()), "has no data to become"),
        (((1, 2, 3), (), (3,)), ((1, 2), (3,), ()), "has no data to become"),
        (((1, 2), (3,), ()), ((1, 2, 3), (), (3,)), "keeps data cannot become a witness"),
        (((1, 2, 4), (), ()), ((1, 2, 3, 4), (), (3,)), "even number"),
    ],
)
def test_w6_a_member_does_not_change_its_kind(
    old: tuple[tuple[int, ...], ...], new: tuple[tuple[int, ...], ...], reason: str
) -> None:
    """A log without payloads as a source of data would be data loss that looks like success."""
    refusal = check(
        Membership(1, *old),
        Membership(2, *new),
        me=1,
        commit_index=1,
        commit_term_is_ours=True,
        caught_up=lambda _node: True,
        responsive=lambda _node: True,
    )
    assert refusal is not None
    assert reason in refusal


def test_a_witness_has_no_say_in_what_data_it_has() -> None:
    """`Replica` is the same class; the parts that need data must refuse."""
    fleet = two_and_a_witness()
    group: Replica = fleet.groups[WITNESS]
    assert not group.can_serve_reads()
    with pytest.raises(RaftError):
        group.propose(b"x", "x")
