"""A cluster without chance: what a directed scenario plays on.

Messages take a few milliseconds, syncs less, nothing is lost unless the scenario says so: with
`gate` (drop or hold messages), `isolate`, `stall` (a disk), `crash`. Steps wait for what they need
and fail the scenario, not the product, if it does not come (`Stuck`).
"""

from __future__ import annotations

from collections.abc import Callable

from raft import RaftConfig
from raft.replica import Replica
from tests.sim.raft.network import DROP, HOLD, PASS, Message
from tests.sim.raft.node import SimNode
from tests.sim.raft.plan import Plan
from tests.sim.raft.truth import DONE, Proposal
from tests.sim.raft.world import Trace, World

CONFIG = RaftConfig(
    heartbeat_ms=100,
    election_min_ms=400,
    election_max_ms=800,
    lease_ms=300,
    tick_ms=5,
    hibernate_after_ms=0,
    log_tail_bytes=0,
    log_keep_bytes_max=0,
)
GROUP = 1


class Stuck(AssertionError):
    """The scenario itself does not get where it wants to be."""


class Stage(World):
    """See the module. `wants` in the methods below: a predicate on (source, target, message)."""

    def __init__(
        self,
        seed: int,
        trace: Trace | None,
        *,
        nodes: int = 3,
        voters: tuple[int, ...] = (1, 2, 3),
        witnesses: tuple[int, ...] = (),
    ) -> None:
        plan = Plan(nodes=nodes, voters=voters, witnesses=witnesses, config=CONFIG, clients=0)
        super().__init__(seed, plan, trace)
        self.network.gate = self._judge
        self._drops: list[Callable[[int, int, Message], bool]] = []
        self._holds: list[Callable[[int, int, Message], bool]] = []
        self.start()

    def node(self, node_id: int) -> SimNode:
        return self.nodes[node_id]

    def replica(self, node_id: int) -> Replica:
        return self.nodes[node_id].replicas[GROUP]

    # ------------------------------------------------------------------ the network

    def _judge(self, source: int, target: int, message: Message) -> str:
        if any(wants(source, target, message) for wants in self._drops):
            return DROP
        return HOLD if any(wants(source, target, message) for wants in self._holds) else PASS

    def drop(self, wants: Callable[[int, int, Message], bool]) -> None:
        self._drops.append(wants)

    def hold(self, wants: Callable[[int, int, Message], bool]) -> None:
        self._holds.append(wants)

    def open(self) -> None:
        """Nothing is dropped or held from now on, and nobody is cut off. Held ones stay held."""
        self._drops.clear()
        self._holds.clear()
        self.network.cut.clear()

    def part(self, *sides: tuple[int, ...]) -> None:
        """Only nodes of one side reach each other."""
        of = {node: side for side in sides for node in side}
        ids = list(self.nodes)
        self.network.cut = {(a, b) for a in ids for b in ids if of.get(a) != of.get(b)}

    # ------------------------------------------------------------------ steps

    def wait(self, condition: Callable[[], bool], what: str, bound_s: float = 10.0) -> None:
        """Until it holds, or something is violated: then the scenario is over."""
        end_s = self.events.now_s + bound_s
        while not condition() and not self.failed():
            if self.events.now_s >= end_s:
                raise Stuck(f"waited {bound_s} s for {what}")
            self.run_for(0.001)

    def expect(self, condition: Callable[[], bool], what: str, bound_s: float) -> None:
        """A violation if it does not come."""
        if not self.until(condition, bound_s):
            self.fail(f"liveness: {what} did not come within {bound_s} s")

    def until(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """`wait` for something that only happens without the rule."""
        try:
            self.wait(condition, "", bound_s)
        except Stuck:
            return False
        return not self.failed()

    def lead(self, node_id: int) -> Replica:
        """Nobody but this node is elected, until it serves."""
        self.drop(lambda source, _target, m: m["type"] == "pre_vote" and source != node_id)
        self.wait(lambda: self.replica(node_id).serving(), f"node {node_id} to lead")
        self._drops.pop()
        return self.replica(node_id)

    def put(self, node_id: int, count: int = 1) -> list[Proposal]:
        """Propose at this node, without waiting."""
        return [self.write(self.node(node_id), self.replica(node_id)) for _ in range(count)]

    def acknowledged(self, proposals: list[Proposal]) -> bool:
        return all(proposal.state == DONE for proposal in proposals)

    def commit(self, node_id: int, count: int = 1) -> None:
        """Propose, and wait for the acknowledgements and for everybody who is reached."""
        proposals = self.put(node_id, count)
        self.wait(lambda: self.acknowledged(proposals), "an acknowledgement")
        self.run_for(0.15)

    def last(self, node_id: int) -> int:
        return self.replica(node_id).last_index

    def finish(self) -> None:
        """Heal; with the rule, nothing was violated and the cluster goes on."""
        self._drops.clear()
        self._holds.clear()
        self.network.held.clear()
        for node in self.nodes.values():
            node.disk.go_on()
        if not self.failed():
            self.heal()
            for group_id in self.truths:
                self.events.after(0.01, self._client, group_id)
            self.check_progress()
