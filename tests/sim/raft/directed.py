"""Scenarios for rules that random schedules reach rarely or never: each one ends in a violation if
its rule is switched off, and goes on quietly if not.

They are the counter-examples that justify the rules, step by step; run one with its trace to read
it: `python -m tests.sim.raft --scenario P3 --rule-off P3 --trace`.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.raft.network import Message
from tests.sim.raft.stage import GROUP, Stage
from tests.sim.raft.world import Outcome, Trace


def kind(name: str) -> Callable[[int, int, Message], bool]:
    return lambda _source, _target, message: message["type"] == name


def between(
    name: str, source: int, target: int | None = None
) -> Callable[[int, int, Message], bool]:
    return lambda s, t, m: m["type"] == name and s == source and target in (None, t)


def carries(source: int, target: int) -> Callable[[int, int, Message], bool]:
    """Appends with entries."""
    return lambda s, t, m: (s, t) == (source, target) and bool(m.get("entries"))


def stale_ack(w: Stage) -> None:
    """P3. An ack of term 1 arrives in term 2, when 1 leads again with other entries at the same
    indexes: it would commit what only 1 holds.
    """
    w.lead(1)
    w.commit(1)
    w.node(1).disk.stalled = True
    w.hold(between("next_node_idx", 2, 1))
    w.drop(carries(1, 3))
    before = w.last(1)
    w.put(1, 4)
    w.wait(lambda: w.last(2) == before + 4, "node 2 to hold what will be forgotten")
    w.run_for(0.05)
    w.node(1).crash(lose_all=True)
    w.node(1).disk.stalled = False
    w.open()
    w.part((1, 3), (2,))
    w.node(1).restart()
    w.lead(1)
    w.drop(carries(1, 3))
    proposals = w.put(1, 3)
    w.run_for(0.05)
    w.network.release(between("next_node_idx", 2, 1))
    w.until(lambda: w.acknowledged(proposals), 0.3)
    w.open()
    w.part((1,), (2, 3))
    w.lead(3)
    w.run_for(0.5)


def doubled_vote(w: Stage) -> None:
    """P9. Nodes 1 and 2 stand for election in the same term. One vote, delivered twice, makes 1 a
    leader of two voters out of five; the others elect 2.
    """
    w.hold(kind("request_vote"))
    w.hold(kind("response_vote"))
    standing: set[int] = set()
    w.drop(lambda s, _t, m: m["type"] == "pre_vote" and (s > 2 or s in standing))

    def both_stand() -> bool:
        standing.update(s for s, _t, _g, m in w.network.held if m["type"] == "request_vote")
        return standing == {1, 2}

    w.wait(both_stand, "two candidates")
    w.part((1, 3), (2, 4, 5))
    w.network.release(between("request_vote", 1, 3))
    w.run_for(0.05)
    w.network.held += [item for item in w.network.held if item[3]["type"] == "response_vote"]
    w.network.release(between("response_vote", 3, 1))
    w.run_for(0.05)
    w.network.release(lambda s, t, m: m["type"] == "request_vote" and s == 2 and t in (4, 5))
    w.run_for(0.05)
    w.network.release(lambda _s, t, m: m["type"] == "response_vote" and t == 2)
    w.run_for(0.2)


def lost_vote(w: Stage) -> None:
    """Durable votes. 2 votes for 1 and forgets it in a crash; asked by 3 in the same term, it would
    vote again.
    """
    w.drop(lambda s, _t, m: m["type"] == "append_entries" or (m["type"] == "pre_vote" and s != 1))
    w.node(2).disk.stalled = True
    w.part((1, 2), (3,))
    w.until(lambda: w.replica(1)._core.raft_leader, 3.0)
    w.node(2).crash(lose_all=True)
    w.node(2).disk.stalled = False
    w.open()
    w.part((1,), (2, 3))
    w.node(2).restart()
    w.lead(3)


def broken_promise(w: Stage) -> None:
    """I6. 3 does not hear the leader 1, but 2 does. If 2 helps 3 all the same, 1's lease still runs
    when 3 commits.
    """
    w.lead(1)
    w.commit(1)
    w.part((1, 2), (3,))
    w.run_for(1.0)
    w.network.cut = {(1, 3), (3, 1)}
    w.drop(kind("stale"))
    _steal(w, old=1, new=3, bound_s=2.0)


def forgotten_promise(w: Stage) -> None:
    """I6 after a restart. 2 has promised to wait for 1, crashes, and does not remember it."""
    w.lead(1)
    w.commit(1)
    w.part((1, 2), (3,))
    w.run_for(1.0)
    w.network.cut = {(1, 3), (3, 1)}
    w.hold(between("pre_vote", 3, 2))
    w.wait(lambda: bool(w.network.held), "node 3 to ask")
    w.wait(lambda: w.replica(1)._core._lease._until_s - w.node(1).clock.now_s() > 0.25, "a lease")
    w.node(2).crash()
    w.node(2).restart()
    w.network.cut |= {(1, 2), (2, 1)}
    w.network.release()
    w.open()
    w.network.cut = {(1, 3), (3, 1), (1, 2), (2, 1)}
    w.drop(kind("stale"))
    _steal(w, old=1, new=3)


def _steal(w: Stage, *, old: int, new: int, bound_s: float = 0.25) -> None:
    """Cut the old leader off as soon as another is elected, let that one commit: does the old one
    serve? (Checked by the world at every acknowledgement.)
    """
    if not w.until(lambda: w.replica(new)._core.raft_leader, bound_s):
        return
    others = tuple(node for node in w.nodes if node != old)
    w.part((old,), others)
    w.until(lambda: w.replica(new).leader, 0.1)
    w.put(new)
    w.run_for(0.3)


def lease_after_transfer(w: Stage) -> None:
    """The order to take over is under way; whoever receives it needs nobody's promise. So the old
    leader must not trust its lease.
    """
    w.lead(1)
    w.commit(1)
    w.hold(kind("timeout_now"))
    w.node(1).enter(w.replica(1).transfer, (2,))
    w.wait(lambda: bool(w.network.held), "the order")
    w.run_for(0.12)  # a round of heartbeats
    w.open()
    w.drop(lambda s, t, _m: (s, t) == (2, 1))
    w.network.release()
    _steal(w, old=1, new=2)


def old_configuration(w: Stage) -> None:
    """I5. The log of 2 holds the entries that made 4 and 5 voters. After a restart it must count
    with them, though it has not applied them again yet: by the members before, 1 and 2 would be a
    majority beside that of 3, 4 and 5.
    """
    w.lead(3)
    w.commit(3)
    w.part((1,), (2, 3, 4, 5))
    for node in (4, 5):
        _join(w, 3, node)
    w.part((1, 2), (3, 4, 5))
    w.commit(3, 2)
    del w.node(2).states[GROUP].states[1:]
    w.node(2).crash(lose_all=True)
    w.node(2).restart()
    w.run_for(4.0)


def _join(w: Stage, leader: int, node: int) -> None:
    w.node(leader).enter(w.replica(leader).add_learner, (node,))
    w.wait(lambda: w.last(node) == w.last(leader), "the learner")
    w.run_for(1.0)
    w.node(leader).enter(w.replica(leader).promote, (node,))
    w.wait(lambda: w.replica(leader).commit_index == w.last(leader), "the new voter")
    w.run_for(0.3)


def applied_and_lost(w: Stage) -> None:
    """Rule 4. 1 applies what the others have committed before its own disk has it. Its state
    survives the crash, its log does not: what does its log hold now?
    """
    w.lead(1)
    w.commit(1)
    for node in (2, 3):
        _join(w, 1, node)
    w.node(1).enter(w.replica(1).transfer, (2,))
    w.wait(lambda: w.replica(2).leader, "node 2 to lead")
    w.run_for(0.3)
    w.node(1).disk.stalled = True
    w.commit(2, 3)
    w.run_for(0.3)
    w.node(1).states[GROUP].flush()
    w.node(1).crash(lose_all=True)
    w.node(1).disk.stalled = False
    w.node(1).restart()


def marks_of_a_cut_off_tail(w: Stage) -> None:
    """Rule 3. 1's sync runs while a new leader replaces the entries that it carries. When 1 leads
    later, the mark of that sync must not count for what is at those indexes now.
    """
    w.lead(2)
    w.commit(2)
    w.part((1, 2), (3, 4, 5))
    w.node(1).disk.stalled = True
    before = w.last(1)
    w.put(2, 8)
    w.wait(lambda: w.last(1) == before + 8, "the tail")
    w.run_for(0.01)
    w.node(1).disk.go_on(stall_again=True)  # now one sync carries the whole tail
    w.part((1, 3, 4, 5), (2,))
    w.lead(3)
    w.wait(lambda: w.last(1) == w.last(3), "the cut")
    w.node(1).disk.go_on()
    w.run_for(0.3)
    w.node(3).enter(w.replica(3).transfer, (1,))
    w.wait(lambda: w.replica(1).leader, "node 1 to lead")
    w.run_for(0.2)
    w.node(1).disk.stalled = True
    w.drop(carries(1, 5))
    proposals = w.put(1, 3)
    w.until(lambda: w.acknowledged(proposals), 0.3)
    w.node(1).crash(lose_all=True)
    w.node(1).disk.stalled = False
    w.open()
    w.part((1, 2, 5), (3, 4))
    w.node(1).restart()
    w.lead(5)
    w.run_for(0.3)


def unverified_tail(w: Stage) -> None:
    """P2. A deposed leader with a tail of its own gets heartbeats without a position, since the
    queue to it is full: they say what is committed, not that this tail is.
    """
    w.lead(1)
    w.commit(1)
    w.part((1,), (2, 3))
    w.put(1, 5)
    w.lead(2)
    w.commit(2, 8)
    w.network.full.add((2, 1))
    w.network.cut.clear()
    w.run_for(1.0)
    w.network.full.clear()


def office_before_vote(w: Stage) -> None:
    """P15. The process of 1, the only voter, dies; its disk still has to write what it appended.
    If it leads again before its new vote is durable, the learner 2 has an entry of that term; after
    the loss of the power 1 wins the term a second time, with another entry there.
    """
    w.lead(1)
    w.commit(1)
    w.node(1).enter(w.replica(1).add_learner, (2,))
    w.wait(lambda: w.last(2) == w.last(1), "the learner")
    w.node(1).disk.stalled = True
    w.put(1, 3)
    w.run_for(0.05)
    w.node(1).crash(lose_all=False)
    w.node(1).restart()
    w.run_for(1.0)
    w.node(1).crash(lose_all=True)
    w.node(1).disk.stalled = False
    w.node(1).restart()
    w.wait(lambda: w.replica(1).serving(), "node 1 to lead")
    w.commit(1, 5)


def failed_sync(w: Stage) -> None:
    """Rule: fail-stop. 1 goes on after a failed sync and counts itself for what its disk lost."""
    w.lead(1)
    w.commit(1)
    w.calm = False
    w.drop(carries(1, 3))
    w.node(1).disk.failing = True
    proposals = w.put(1, 3)
    w.until(lambda: w.acknowledged(proposals), 0.3)
    w.node(1).crash(lose_all=True)
    w.node(1).disk.failing = False
    w.calm = True
    w.open()
    w.part((1, 3), (2,))
    w.node(1).restart()
    w.lead(3)
    w.run_for(0.5)


def witness_first(w: Stage) -> None:
    """W1. Node 2 is merely slow; if the witness 3 gets entries before it, 1 and 3 commit without 2,
    and when 1 dies the other two stand still: 3 has more than 2.
    """
    w.lead(1)
    w.commit(1)
    w.drop(carries(1, 2))
    proposals = w.put(1, 3)
    w.until(lambda: w.acknowledged(proposals), 0.15)
    w.node(1).crash(lose_all=True)
    w.open()
    w.expect(lambda: w.replica(2).serving(), "a leader beside the witness", 8.0)


def demoted_first(w: Stage) -> None:
    """Only 3 hears that it is demoted; then 1 is gone for good. 2 and 4 still count 3, whose log is
    longer, and which would not campaign any more.
    """
    w.lead(1)
    w.commit(1)
    w.drop(carries(1, 2))
    w.drop(carries(1, 4))
    w.node(1).enter(w.replica(1).demote, (3,))
    w.run_for(0.2)
    w.node(1).crash()
    w.open()
    w.expect(
        lambda: any(w.replica(n).serving() for n in (2, 3, 4)), "a leader of three in four", 8.0
    )


def early_configuration(w: Stage) -> None:
    """2 hears that it is demoted before 1, the only other voter, has it on its disk. After a crash
    1 does not know it: it needs the vote of 2, whose log is longer.
    """
    w.lead(1)
    w.commit(1)
    w.node(1).disk.stalled = True
    w.node(1).enter(w.replica(1).demote, (2,))
    w.run_for(0.2)
    w.node(1).crash(lose_all=True)
    w.node(1).disk.stalled = False
    w.node(1).restart()
    w.expect(lambda: w.replica(1).serving() or w.replica(2).serving(), "a leader of two", 8.0)


SCENARIOS: dict[str, tuple[Callable[[Stage], None], dict[str, object]]] = {
    "P3": (stale_ack, {}),
    "P9": (doubled_vote, {"nodes": 5, "voters": (1, 2, 3, 4, 5)}),
    "durable-votes": (lost_vote, {}),
    "promise": (broken_promise, {}),
    "restart-wait": (forgotten_promise, {}),
    "transfer-lease": (lease_after_transfer, {}),
    "config-tail": (old_configuration, {"nodes": 5}),
    "apply-synced": (applied_and_lost, {"voters": (1,)}),
    "truncate-marks": (marks_of_a_cut_off_tail, {"nodes": 5, "voters": (1, 2, 3, 4, 5)}),
    "P2": (unverified_tail, {}),
    "P15": (office_before_vote, {"nodes": 2, "voters": (1,)}),
    "fail-stop": (failed_sync, {}),
    "witness": (witness_first, {"witnesses": (3,)}),
    "demoted-last": (demoted_first, {"nodes": 4, "voters": (1, 2, 3, 4)}),
    "config-synced": (early_configuration, {"nodes": 2, "voters": (1, 2)}),
}


def play(name: str, seed: int, trace: Trace | None) -> Outcome:
    """Raises Stuck if the scenario does not get where it wants to be."""
    scenario, setting = SCENARIOS[name]
    stage = Stage(seed, trace, **setting)  # type: ignore[arg-type]
    scenario(stage)
    stage.finish()
    return stage.outcome()
