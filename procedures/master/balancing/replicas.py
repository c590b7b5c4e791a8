"""The balancer of replicas: which one moves next.

Dimension by dimension, the highest priority first:

    sources  the nodes above the mean, the most used first
    targets  the nodes below it, the least used first; if the source is not in the high zone (it
             need not give), only those in the low zone (who need to take)
    replica  of those at the source that weigh no more than S_best, the heaviest one that no rule
             forbids (rules.py). S_best is what would make both ends equal: half the gap between
             them (of unequal machines: the gap divided by what one unit means to both)
    none     the next target; for no target: the source is dropped, the next one

S_best itself counts, or two equal replicas on one of two machines would stay there for ever.

Why it ends. Let E(d) be the load by which all nodes lie outside the marks of d. A move for d takes
from above the mean and brings below it, not further than where both are equal, so E(d) falls (the
distance is a convex function of the utilisation with different slopes at the two ends), and it
raises E of no higher dimension (rules.higher_pay). So (E(0), E(1), E(2)) falls in the order of
priorities with every move, and there are finitely many placements. When every node is between its
marks, nothing is left to do: 0 moves.

Sources: the ByteKV article, "single-dimension", "multi-dimension" and "heterogeneous" strategies.

Left out here: moving two replicas against each other at once, which could even out what single
moves cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing.cluster import ClusterState, Zone
from procedures.master.balancing.model import (
    NAMES,
    Level,
    Loads,
    Move,
    PartitionView,
    Plan,
    Refusal,
)
from procedures.master.balancing.rules import (
    Forbidden,
    full,
    has_room,
    higher_pay,
    keeps_apart,
    may_have,
    stays_preferred,
)

TRIES_MAX: Final = 64  # replicas that are tried for one pair of nodes
REFUSALS_KEPT: Final = 1_000
TINY: Final = 1e-9  # what sums of floats differ by

Quality = Literal["good", "neutral", "bad"]


class Refusals:
    """The first refusals of a plan, and how many there were."""

    def __init__(self, keep: int = REFUSALS_KEPT) -> None:
        self.kept: list[Refusal] = []
        self.count = 0
        self._keep = keep

    @property
    def full(self) -> bool:
        return self.count >= self._keep

    def add(self, refusal: Refusal) -> None:
        self.count += 1
        if len(self.kept) < self._keep:
            self.kept.append(refusal)


def plan(state: ClusterState, *, level: Level = "server", moves_max: int = 1 << 62) -> Plan:
    """The next moves, each one decided after the ones before it; `state` is as they leave it."""
    balancer = ReplicaBalancer(state, level)
    moves = balancer.moves()
    found: list[Move] = []
    while len(found) < moves_max and (move := next(moves, None)) is not None:
        found.append(move)
    return Plan(found, balancer.refusals.kept, balancer.refusals.count)


class ReplicaBalancer:
    """See the module."""

    def __init__(self, state: ClusterState, level: Level) -> None:
        self.refusals = Refusals()
        self._state, self._level = state, level
        self._full = {node for node in state.taking if full(state, node)}

    def moves(self) -> Iterator[Move]:
        """Each is made in the state before it is given out. Rounds over all dimensions, until one
        finds nothing.
        """
        moved = True
        while moved:
            moved = False
            for d in range(len(self._state.dimensions)):
                for move in self._dimension(d):
                    moved = True
                    yield move

    def _dimension(self, d: int) -> Iterator[Move]:
        dropped: set[NodeId] = set()
        while (source := self._source(d, dropped)) is not None:
            move = self._from(source, d)
            if move is None:
                dropped.add(source)
                self._refuse(d, source, None, None, Forbidden("dropped", "it has no move left"))
                continue
            yield move

    def _source(self, d: int, dropped: set[NodeId]) -> NodeId | None:
        """The most used node above the mean that was not dropped."""
        state = self._state
        taker = any(used < state.low[d] for used, _ in state.rank(d)[:1])
        for used, node in reversed(state.rank(d)):
            if used <= state.mean[d] or (used <= state.high[d] and not taker):
                return None
            if node not in dropped:
                return node
        return None

    def _from(self, source: NodeId, d: int) -> Move | None:
        state = self._state
        active = state.zone(source, d) is Zone.HIGH
        border = state.mean[d] if active else state.low[d]
        for used, target in state.rank(d):
            if used >= border:
                return None
            if target in self._full:
                self._refuse(d, source, target, None, Forbidden("hard", _no_room(target)))
                continue
            if (move := self._between(source, target, d)) is not None:
                return move
        return None

    def _between(self, source: NodeId, target: NodeId, d: int) -> Move | None:
        state = self._state
        gap = state.used(source, d) - state.used(target, d)
        best = best_load(gap, state.nodes[source].capacity[d], state.nodes[target].capacity[d])
        order = state.order(source, d)
        index = state.up_to(source, d, best * (1 + TINY)) - 1
        for i in range(index, max(-1, index - TRIES_MAX), -1):
            load, _, id_ = order[i]
            if load <= 0:
                return None
            partition = state.partitions[id_]
            loads = partition.loads_at(source)
            forbidden = self._forbidden(partition, source, target, loads, d)
            if forbidden is None:
                return self._made(partition, source, target, d, best)
            self._refuse(d, source, target, id_, forbidden)
        return None

    def _forbidden(
        self, partition: PartitionView, source: NodeId, target: NodeId, loads: Loads, d: int
    ) -> Forbidden | None:
        state = self._state
        if target in partition.nodes:
            return Forbidden("there", f"node {target} has a replica of it")
        if partition.held:
            return Forbidden("held", partition.held)
        return (
            may_have(partition, state.nodes[target])
            or stays_preferred(partition, source, target)
            or keeps_apart(state, partition, source, target, self._level)
            or has_room(state, target, loads)
            or higher_pay(state, source, target, loads, loads, d)
        )

    def _made(
        self, partition: PartitionView, source: NodeId, target: NodeId, d: int, best: float
    ) -> Move:
        state = self._state
        before = [(state.used(source, e), state.used(target, e)) for e in range(len(NAMES))]
        zones = state.zone(source, d).name.lower(), state.zone(target, d).name.lower()
        state.change(moved(partition, source, target))
        after = [(state.used(source, e), state.used(target, e)) for e in range(len(NAMES))]
        if full(state, target):
            self._full.add(target)
        if not full(state, source):
            self._full.discard(source)
        reason = (
            f"{NAMES[d]}: node {source} {before[d][0]:.1%} ({zones[0]} zone) → {after[d][0]:.1%}, "
            f"node {target} {before[d][1]:.1%} ({zones[1]} zone) → {after[d][1]:.1%}, mean "
            f"{state.mean[d]:.1%}; the heaviest that is allowed up to {best:.6g}"
        )
        return Move(
            "replica",
            partition.id,
            source,
            target,
            NAMES[d],
            quality(state, before, after),
            reason,
        )

    def _refuse(
        self,
        d: int,
        source: NodeId,
        target: NodeId | None,
        partition: PartitionId | None,
        why: Forbidden,
    ) -> None:
        if self.refusals.full:
            self.refusals.count += 1
            return
        self.refusals.add(Refusal("replica", NAMES[d], source, target, partition, *why))


def best_load(gap: float, source: float, target: float) -> float:
    """S_best: the load whose move makes two nodes equally used, from the gap of their utilisations
    and their capacities.
    """
    return gap / (1.0 / source + 1.0 / target)


def moved(partition: PartitionView, source: NodeId, target: NodeId) -> PartitionView:
    """With the replica elsewhere; the leadership goes along."""
    nodes = tuple(target if node == source else node for node in partition.nodes)
    ready = partition.ready
    if ready is not None and source in ready:
        ready = ready - {source} | {target}
    leader = target if partition.leader == source else partition.leader
    return partition.having(nodes, leader, ready)


def quality(
    state: ClusterState,
    before: Iterable[tuple[float, float]],
    after: Iterable[tuple[float, float]],
) -> Quality:
    """Good: nothing is less balanced than before, something more. Bad: the contrary. Neutral: both,
    or neither. A dimension is more balanced when its nodes lie less far outside the marks.
    """
    better = worse = False
    for d, (was, is_) in enumerate(zip(before, after, strict=True)):
        distance = sum(state.outside(u, d) for u in is_) - sum(state.outside(u, d) for u in was)
        better |= distance < 0
        worse |= distance > 0
    if better == worse:
        return "neutral"
    return "good" if better else "bad"


def _no_room(target: NodeId) -> str:
    return f"node {target} has no room for the smallest replica"
