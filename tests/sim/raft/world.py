"""A cluster, its clients and its luck, from one seed.

Phase 1: faults; every invariant is checked after every event. Phase 2: heal; then each group must
elect a leader, acknowledge something new and bring all its members up to date, within a bound.

Everything random comes from one generator in the order of events, so a seed replays exactly;
`digest` is a hash of the whole trace.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raft import RaftError, SnapshotUnavailable
from raft.replica import Replica
from tests.sim.raft import plan as plans
from tests.sim.raft.disk import LogView
from tests.sim.raft.events import Events
from tests.sim.raft.machine import encode_command
from tests.sim.raft.nemesis import Nemesis
from tests.sim.raft.network import Message, Network
from tests.sim.raft.node import SimNode
from tests.sim.raft.plan import Plan
from tests.sim.raft.probes import probes
from tests.sim.raft.truth import OPEN, Proposal, Truth

Trace = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: the first violation, if any, the trace's hash, and how much happened."""

    violation: str | None
    digest: str
    events: int


class World:
    """See the module. `trace`, if given, gets one line per thing that happens."""

    def __init__(
        self,
        seed: int,
        plan: Plan | Callable[[random.Random], Plan] = plans.draw,
        trace: Trace | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.random = self.rng.random
        self.plan = plan if isinstance(plan, Plan) else plan(self.rng)
        self.config = self.plan.config
        self.latency_s, self.snapshot_copies = self.plan.latency_s, self.plan.snapshot_copies
        self.events = Events(self.rng)
        self.violation: str | None = None
        self._trace, self._hash = trace, hashlib.blake2b(digest_size=8)
        self.truths = {1 + n: Truth(1 + n, self.fail) for n in range(self.plan.groups)}
        self.network = Network(self)
        self.nodes: dict[int, SimNode] = {}
        for node_id in range(1, 1 + self.plan.nodes):
            spread = plans.CLOCK_RATE_SPREAD if self.plan.clock_rates else 0.0
            rate = 1 + spread * (2 * self.random() - 1)
            self.nodes[node_id] = SimNode(self, node_id, clock_rate=rate)
        self.calm = True
        self.resting = False  # clients do nothing
        self.given_up: set[int] = set()
        """Nodes whose side an operator has given up (`force_members`)."""
        self.ambush: Callable[[SimNode, str], None] = lambda _node, _moment: None
        """Told of moments at which a fault would hurt; see Nemesis."""
        self._commands = 0
        self._lags: dict[tuple[int, int], int] = {}  # of witnesses, when we began to wait

    # ------------------------------------------------------------------ the trace

    def note(self, what: str, *details: object) -> None:
        line = f"{self.events.now_s:.6f} {what} {details}"
        self._hash.update(line.encode())
        if self._trace is not None:
            self._trace(f"{self.events.now_s:10.4f}  {what} {' '.join(map(str, details))}")

    def note_message(self, source: int, target: int, group_id: int, message: Message) -> None:
        kind, term = message["type"], message.get("term")
        self._hash.update(
            b"%d %d %d %d %r %r" % (self.events.now_s * 1e6, source, target, group_id, kind, term)
        )
        if self._trace is not None:
            shown = {k: v for k, v in message.items() if k not in ("type", "entries", "data")}
            if "entries" in message:
                shown["entries"] = " ".join(f"{e[1]}@{e[2]}" for e in message["entries"]) or "-"
            text = " ".join(f"{key}={value}" for key, value in shown.items())
            moment = f"{self.events.now_s:10.4f}"
            self._trace(f"{moment}  {source}->{target} g{group_id} {kind:15} {text}")

    def fail(self, what: str) -> None:
        if self.violation is None:
            self.violation = what
            self.note("VIOLATION", what)

    def failed(self) -> bool:
        return self.violation is not None

    # ------------------------------------------------------------------ what nodes ask

    def first_members(self, node_id: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Voters, and those of them that are witnesses. Nodes that join later start with none, and
        learn them from the leader.
        """
        voters = self.plan.voters
        if node_id not in voters:
            return (), ()
        return voters, tuple(node for node in self.plan.witnesses if node in voters)

    def sync_delay_s(self, node: SimNode) -> float:
        random, slow = self.random, self.plan.slow_syncs
        if not self.calm and random() < slow:
            return random() * 0.5
        return 0.0005 if random() < 0.7 else random() * 0.02

    def sync_fails(self, node: SimNode) -> bool:
        return node.disk.failing and not self.calm

    def maybe_unavailable(self, what: str) -> None:
        if not self.calm and self.random() < self.plan.unavailable:
            probes.hit(f"snapshot unavailable: {what}")
            raise SnapshotUnavailable(f"simulated: {what}")

    def watch_sent(self, source: int, target: int, group_id: int, message: Any) -> None:
        kind = message["type"]
        if kind == "response_vote":
            self.truths[group_id].votes(source, message["term"], target)
            self.ambush(self.nodes[source], "votes")
        elif kind == "request_vote":
            self.truths[group_id].votes(source, message["term"], source)
            self.ambush(self.nodes[source], "campaigns")
        elif kind == "append_entries" and message.get("entries"):
            self.ambush(self.nodes[source], "replicates")

    def leaders(self, group_id: int) -> list[tuple[int, int, LogView]]:
        """(node, term, log) of everybody who leads now, in whatever term."""
        return [
            (node.id, replica._core.term, node.views[group_id])
            for node in self.nodes.values()
            if node.up
            and (replica := node.replicas.get(group_id)) is not None
            and not replica.stopped
            and replica._core.raft_leader
        ]

    def floor_rose(self, at: SimNode) -> None:
        """Something was acknowledged: nobody else may serve an older state from now on."""
        for node in self.nodes.values():
            if node is not at:
                node.claims()
        self.ambush(at, "acknowledges")

    # ------------------------------------------------------------------ clients

    def serving(self, group_id: int) -> tuple[SimNode, Replica] | None:
        """The replica that clients would find: the serving one of the highest term."""
        found = None
        for node in self.nodes.values():
            replica = node.replicas.get(group_id)
            if (
                node.up
                and replica is not None
                and replica.leader
                and (found is None or replica.term > found[1].term)
            ):
                found = node, replica
        return found

    def _client(self, group_id: int) -> None:
        """One operation, at the leader, at whoever believes to lead, or anywhere."""
        rng = self.rng
        self.events.after(rng.expovariate(self.plan.ops_per_s), self._client, group_id)
        able = [node for node in self.nodes.values() if node.up and group_id in node.replicas]
        if not able or self.resting:
            return
        leading = [node for node in able if node.replicas[group_id].leader]
        writes, target, choice = rng.random() < 0.5, self.serving(group_id), rng.random()
        if target is None or choice < 0.2:
            node = rng.choice(leading or able)
            target = node, node.replicas[group_id]
        elif choice < (0.3 if writes else 0.6):
            node = rng.choice(able)
            target = node, node.replicas[group_id]
        if writes:
            for _ in range(rng.choice([1, 1, 1, 3, 8])):
                self.write(*target)
        else:
            self.read(*target)

    def write(self, node: SimNode, replica: Replica) -> Proposal:
        truth = self.truths[replica.group_id]
        self._commands += 1
        proposal = Proposal(self._commands, node.id, node.life)
        truth.proposals[proposal.number] = proposal
        filler = self.rng.randrange(self.plan.filler_max + 1)
        node.enter(self._propose, (truth, proposal, replica, filler))
        return proposal

    def _propose(self, truth: Truth, proposal: Proposal, replica: Replica, filler: int) -> None:
        try:
            proposal.index = replica.propose(encode_command(proposal.number, filler), proposal)
        except RaftError as error:  # all of them mean: certainly not appended
            probes.hit(type(error).__name__)
            truth.refused(proposal)

    def read(self, node: SimNode, replica: Replica) -> None:
        truth = self.truths[replica.group_id]
        floor, life = truth.floor, node.life

        def done(index: int | None) -> None:
            if index is None:
                probes.hit("read refused")
            elif node.life == life:
                probes.hit("read served")
                truth.serves(node.id, floor, index, "barrier")

        node.enter(replica.read_barrier, (done,))

    # ------------------------------------------------------------------ the run

    def start(self) -> None:
        """All nodes, and the clients."""
        for node in self.nodes.values():
            node.start()
        if self.plan.fresh:
            for group_id in self.truths:
                node = self.nodes[self.rng.choice(self.plan.voters)]
                node.enter(node.replicas[group_id].campaign, ())
        for group_id in self.truths:
            for _ in range(self.plan.clients):
                self.events.after(self.rng.random() * 0.1, self._client, group_id)

    def run_for(self, seconds: float) -> None:
        self.events.run(self.events.now_s + seconds, self.failed)

    def chaos(self) -> Outcome:
        """Both phases."""
        self.be_hurt()
        if not self.failed():
            self.heal()
            self.check_progress()
        return self.outcome()

    def be_hurt(self) -> None:
        """Phase 1."""
        plan = self.plan
        chances = self.network.chances
        chances.drop, chances.duplicate, chances.bare = plan.drop, plan.duplicate, plan.bare
        chances.late, chances.late_s = plan.late, plan.late_s
        self.calm = False
        self.start()
        nemesis = Nemesis(self)
        nemesis.begin()
        self.run_for(plan.faults_s)
        nemesis.end()

    def outcome(self) -> Outcome:
        return Outcome(self.violation, self._hash.hexdigest(), self.events.count)

    def heal(self) -> None:
        self.note("heal")
        self.calm = True
        self.network.heal()
        for node in self.nodes.values():
            node.disk.failing = False
            if node.disk.has_failed:
                node.crash()
            node.restart()
            node.resume()

    # ------------------------------------------------------------------ liveness

    def check_progress(self, bound_s: float | None = None, *, everybody: bool = True) -> None:
        """Each group acknowledges something new and, if asked, every working member of its latest
        configuration applies what was committed before.
        """
        bound_s = self.config.election_max_ms / 1000 * 40 if bound_s is None else bound_s
        end_s = self.events.now_s + bound_s
        starts = {group_id: truth.top for group_id, truth in self.truths.items()}
        self._lags = {
            (node.id, group_id): replica.applied_index
            for node in self.nodes.values()
            if node.is_witness
            for group_id, replica in node.replicas.items()
        }
        waiting = dict(starts)
        while waiting and not self.failed():
            if self.events.now_s > end_s:
                self.fail(f"liveness: group {min(waiting)} made no progress in {bound_s:.1f} s")
                return
            self.run_for(0.05)
            waiting = {
                group_id: start
                for group_id, start in waiting.items()
                if not self._progressed(group_id, start, everybody)
            }
        for truth in self.truths.values():
            truth.at_the_end()
            self._check_answers(truth)

    def _progressed(self, group_id: int, start: int, everybody: bool) -> bool:
        found = self.serving(group_id)
        if found is None or self.truths[group_id].floor <= start:
            return False
        _, leader = found
        members = {*leader.voters, *leader.learners} if everybody else set()
        # A witness gets what is committed with the heartbeats; here that may be an entry each.
        return all(
            self.nodes[member].replicas[group_id].applied_index
            > self._lags.get((member, group_id), start)
            for member in members
            if group_id not in self.nodes[member].refused
        )

    def _check_answers(self, truth: Truth) -> None:
        """Whoever applied past a proposal's index owes its answer."""
        for proposal in truth.proposals.values():
            node = self.nodes[proposal.node]
            replica = node.replicas.get(truth.group_id)
            if (
                proposal.state == OPEN
                and replica is not None
                and node.life == proposal.life
                and replica.applied_index >= proposal.index
            ):
                truth.fail(f"command {proposal.number} at {proposal.index} was never answered")
