"""Probes of elections, membership and durability: stock shows each defect, ours does not."""

from __future__ import annotations

import gc
from pathlib import Path

import pysyncobj.journal
import pytest

from raft import BadConfig, NotLeader, records
from raft.memory import MemoryLogDB
from tests.raft.probe import Ours, Stock, append_entries, entries, success
from tests.raft.support import GROUP, Machine, Node, Sent


def test_p05_acknowledged_entries_survive_the_loss_of_the_power() -> None:
    """P5: stock never syncs its log. Ours answers only what a crash cannot take back."""
    node, machine = Node(), Machine()
    group = node.lead(machine)
    for number in range(20):
        group.propose(b"%d" % number, number)
        node.timers.run(0.0007)  # most syncs are cut off by the next proposals
    again, replayed = node.crash(), Machine()
    acked = list(machine.acked)
    assert 0 < len(acked) < 20
    again.lead(replayed)
    assert replayed.commands[: len(acked)] == [b"%d" % number for number in range(len(acked))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its open files
def test_p05_the_stock_journal_has_no_sync_and_no_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: a thousand entries and a vote, none of them made durable; a flipped bit is served."""
    flushed: list[str] = []
    monkeypatch.setattr(pysyncobj.journal.ResizableFile, "flush", lambda _self: flushed.append("x"))
    journal = pysyncobj.journal.FileJournal(str(tmp_path / "journal"))
    for index in range(1, 1001):
        journal.add(b"\0" + b"v" * 50, index, 1)
    journal.setCurrentTerm(7, 2)
    assert flushed == []
    del journal
    data = bytearray((tmp_path / "journal").read_bytes())
    at = data.index(b"v" * 50)
    data[at] = ord("w")
    (tmp_path / "journal").write_bytes(bytes(data))
    entry = pysyncobj.journal.FileJournal(str(tmp_path / "journal"))[0]
    assert entry[0][:3] == b"\0wv", "served although it was damaged"
    gc.collect()


@pytest.mark.parametrize("kind", ["response_vote", "next_node_idx"])
def test_p05_votes_and_acks_wait_for_their_sync(kind: str) -> None:
    """P5: a vote that is sent and then lost in a crash can be given twice in one term."""
    ours = Ours([2, 3], sync_s=0.5)
    ours.node.timers.run(1.0)
    if kind == "response_vote":
        last = {"last_log_index": 0, "last_log_term": 0}
        ours.deliver(2, {"type": "request_vote", "term": 5, "transfer": True, **last})
    else:
        ours.deliver(2, append_entries(5, 0, 0, entries(1, 3, 5), 3))
        assert ours.sent("hb_ack"), "heartbeats are answered at once: a slow disk deposes nobody"
    assert ours.sent(kind) == []
    assert ours.applied() == []
    ours.node.timers.run(0.6)
    assert len(ours.sent(kind)) == 1
    stock = Stock([2, 3])
    last = {"last_log_index": 1, "last_log_term": 0}
    stock.deliver(2, {"type": "request_vote", "term": 5, **last})
    assert len(stock.sent("response_vote")) == 1, "stock answers before anything is on a disk"


def test_p05_a_leader_counts_itself_only_up_to_its_sync() -> None:
    """P5: with one follower's ack and our unsynced copy, an entry is on one disk, not on two."""
    ours = Ours([2, 3], sync_s=0.5)
    ours.elect_slowly([2])
    ours.node.timers.run(1.0)
    ours.propose(b"x")
    ours.deliver(2, success(ours.last() + 1))
    assert ours.commit() < ours.last()
    ours.node.timers.run(0.6)
    assert ours.commit() == ours.last()


def test_p06_a_leader_without_a_quorum_stops_serving_in_time() -> None:
    """P6: stock goes on for 30 s; our lease ends before anybody else can be elected."""
    assert Stock([2, 3]).obj.conf.leaderFallbackTimeout == 30
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    round_number = ours.core.rounds.current
    ours.deliver(2, {"type": "hb_ack", "term": ours.term(), "round": round_number})
    assert ours.group.can_serve_reads()
    ours.node.timers.run(ours.node.config.lease_ms / 1000)
    assert not ours.group.can_serve_reads()
    answers: list[int | None] = []
    ours.group.read_barrier(answers.append)
    ours.node.timers.run(ours.node.config.election_max_ms / 1000 + 1)
    assert answers == [None]
    assert not ours.is_leader()
    assert ours.machine.roles[-1][0] is False


def test_p06_a_deposed_leader_is_told_its_successors_term() -> None:
    """P6: stock leaves an append of a lower term without any reply."""
    message = append_entries(1, 0, 0, [], 0)
    stock, ours = Stock([2, 3]), Ours([2, 3])
    for replica in (stock, ours):
        replica.start_at_term(5)
        replica.forget_sent()
        replica.deliver(2, dict(message))
    assert stock.transport.out == []
    assert [m["term"] for _, m in ours.sent("stale")] == [5]


def test_p06_a_cut_off_node_raises_no_term() -> None:
    """P6: without pre-vote, a node that comes back would depose a healthy leader."""
    ours = Ours([2, 3])
    ours.node.timers.run(60)
    assert ours.term() == 0
    assert ours.sent("pre_vote")
    assert not ours.sent("request_vote")


@pytest.mark.parametrize(
    ("peers", "votes"), [([2, 3, 4, 5], [2, 2]), ([2, 3], [9])], ids=["duplicate", "stranger"]
)
def test_p09_each_voter_counts_once_and_strangers_never(peers: list[int], votes: list[int]) -> None:
    """P9: one vote, duplicated by the network, or a removed node's, would elect a second leader."""
    stock, ours = Stock(peers), Ours(peers)
    stock.elect(votes)
    ours.elect(votes)
    assert stock.is_leader()
    assert not ours.is_leader()


def test_p12_one_membership_change_at_a_time() -> None:
    """P12: with several uncommitted changes, two majorities need not overlap."""
    stock = Stock([2, 3], dynamicMembershipChange=True)
    stock.elect([2])
    stock.deliver(2, success(3))
    for node in (4, 5, 6, 7):
        stock.obj.addNodeToCluster(stock.nodes[node])
    stock.obj.doTick(0)
    assert len(stock.obj.otherNodes) == 6, "stock accepted four changes at once"

    ours = Ours([2, 3])
    ours.elect([2])
    with pytest.raises(NotLeader):  # nor before an entry of the own term is committed
        ours.group.change_members([1, 2, 3], [4])
    ours.deliver(2, success(ours.last() + 1))
    with pytest.raises(BadConfig, match="at most one voter"):
        ours.group.change_members([1, 2, 3, 4, 5], [])
    ours.group.change_members([1, 2, 3], [4])
    with pytest.raises(BadConfig, match="previous change is not committed"):
        ours.group.change_members([1, 2, 3], [4, 5])
    ours.deliver(2, success(ours.last() + 1))
    ours.group.change_members([1, 2, 3], [4, 5])
    with pytest.raises(BadConfig, match="transfer the leadership"):
        ours.group.change_members([2, 3], [4, 5])


def test_p12_an_overwritten_membership_is_taken_back() -> None:
    """Rule 9: a configuration that was truncated must not go on counting votes."""
    ours = Ours([2, 3])
    ours.elect([2])
    ours.deliver(2, success(ours.last() + 1))
    ours.group.change_members([1, 2], [])
    assert list(ours.group.voters) == [1, 2]
    ours.deliver(3, append_entries(ours.term() + 1, 1, 1, entries(2, 2, ours.term() + 1), 1))
    assert list(ours.group.voters) == [1, 2, 3]


def test_p15_a_lone_voter_does_not_lead_before_its_vote_is_durable() -> None:
    """P15: after a crash it could win the same term again and write another entry in it."""
    stock = Stock([])
    stock.elect([])
    assert stock.is_leader(), "within the call: nothing can have been synced"

    node, machine = Node(sync_s=0.5), Machine()
    group = node.open(machine)
    node.timers.run(0.4)
    assert not group.leader
    assert group.last_index < 1, "not even its no-op is in the log before the vote is durable"
    again = node.crash()
    assert again.host.stored_groups() == [], "the crash took everything, nothing was promised"


def test_p15_the_same_term_is_not_won_twice() -> None:
    """P15 as a history: crash at every moment of an election, look for one term in two lives."""

    def entries_of(node: Node) -> dict[tuple[int, int], bytes]:
        pairs = node.db.items().items()
        found = [records.decode_entry(key, value) for key, value in pairs if len(key) == 16]
        return {(index, term): command for command, index, term in found}

    def live(node: Node, life: bytes, seconds: float) -> None:
        machine = Machine()
        node.host.create_group(GROUP, [1])
        group = node.host.open_group(GROUP, machine)
        machine.on_role = lambda leader: leader and group.propose(life, life)
        node.timers.run(seconds)

    for moment in range(1, 60):
        node = Node(sync_s=0.010)
        live(node, b"first life", moment * 0.001)
        written = entries_of(node)
        for kept in range(node.db.unsynced + 1):
            again = Node(db=node.db.crash(kept))
            live(again, b"second life", 1.0)
            for place, command in entries_of(again).items():
                assert written.get(place, command) == command, (
                    f"crash after {moment} ms: two entries at (index, term) {place}"
                )


def test_lost_votes_are_not_given_twice() -> None:
    """The vote itself survives: asked again in the same term by another, the node stays silent."""
    wire = Sent()
    node = Node(transport=wire)
    node.host.create_group(GROUP, [1, 2, 3])
    node.host.open_group(GROUP, Machine())
    node.timers.run(0.1)
    ask = {"type": "request_vote", "term": 5, "transfer": True}
    ask |= {"last_log_index": 0, "last_log_term": 0}
    node.host.receive(2, GROUP, dict(ask))
    node.timers.run(0.1)
    assert len(wire.of_type("response_vote")) == 1
    db: MemoryLogDB = node.db.crash()
    after = Sent()
    again = Node(db=db, transport=after)
    again.host.open_group(GROUP, Machine())
    again.host.receive(3, GROUP, dict(ask))
    again.timers.run(0.1)
    assert after.of_type("response_vote") == []
