"""The balancer of leaderships: they carry the reads of a partition and cost nothing to move.

The same rules as for replicas (replicas.py), over the nodes that have a replica of the partition
that could lead at once:

    traffic  a node's utilisation, all its traffic; what moves are the reads of a partition
    leaders  how many partitions a node leads, by what it is worth beside the others

What is led is evened out only as far as traffic does not suffer: a busy node may lead few.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import (
    COUNT,
    TRAFFIC,
    Move,
    PartitionView,
    Plan,
    Refusal,
)
from procedures.master.balancing.replicas import TINY, Refusals, best_load, quality
from procedures.master.balancing.rules import Forbidden, has_room, higher_pay, stays_preferred

LEADERS: Final = "leaders"
_ALPHA: Final = 0.10
_MARGIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Marks:
    mean: float
    high: float
    low: float


def plan(state: ClusterState, *, moves_max: int = 1 << 62) -> Plan:
    """The next transfers, each decided after the ones before it; `state` is as they leave it."""
    balancer = LeaderBalancer(state)
    moves = balancer.moves()
    found: list[Move] = []
    while len(found) < moves_max and (move := next(moves, None)) is not None:
        found.append(move)
    return Plan(found, balancer.refusals.kept, balancer.refusals.count)


class LeaderBalancer:
    """See the module."""

    def __init__(self, state: ClusterState) -> None:
        self.refusals = Refusals()
        self._state = state
        self._led: dict[NodeId, set[PartitionId]] = {node: set() for node in state.nodes}
        for partition in state.partitions.values():
            if partition.leader in self._led:
                self._led[partition.leader].add(partition.id)
        self._ranks = sorted((self._count(node), node) for node in state.taking)
        weight = sum(state.nodes[node].capacity[COUNT] for node in state.taking)
        mean = sum(len(self._led[node]) for node in state.taking) / weight if weight else 0.0
        width = max(_ALPHA * mean, _MARGIN) + TINY
        self._leaders = _Marks(mean, mean + width, mean - width)
        self._traffic = _Marks(state.mean[TRAFFIC], state.high[TRAFFIC], state.low[TRAFFIC])

    def _count(self, node: NodeId) -> float:
        return len(self._led[node]) / self._state.nodes[node].capacity[COUNT]

    def moves(self) -> Iterator[Move]:
        """Each is made in the state before it is given out."""
        moved = True
        while moved:
            moved = False
            for name in ("traffic", LEADERS):
                for move in self._dimension(name):
                    moved = True
                    yield move

    def _rank(self, name: str) -> Sequence[tuple[float, NodeId]]:
        return self._state.rank(TRAFFIC) if name == "traffic" else self._ranks

    def _dimension(self, name: str) -> Iterator[Move]:
        marks = self._traffic if name == "traffic" else self._leaders
        dropped: set[NodeId] = set()
        while (source := self._source(name, marks, dropped)) is not None:
            move = self._from(source, name, marks)
            if move is None:
                dropped.add(source)
                self._refuse(name, source, None, None, Forbidden("dropped", "it has no move left"))
            else:
                yield move

    def _source(self, name: str, marks: _Marks, dropped: set[NodeId]) -> NodeId | None:
        rank = self._rank(name)
        taker = any(used < marks.low for used, _ in rank[:1])
        for used, node in reversed(rank):
            if used <= marks.mean or (used <= marks.high and not taker):
                return None
            if node not in dropped:
                return node
        return None

    def _from(self, source: NodeId, name: str, marks: _Marks) -> Move | None:
        state, rank = self._state, self._rank(name)
        mine = state.used(source, TRAFFIC) if name == "traffic" else self._count(source)
        border = marks.mean if mine > marks.high else marks.low
        below = {node for used, node in rank[: bisect_left(rank, (border, 0))]}
        reachable = self._reachable(source, name, below)
        for used, target in rank:
            if used >= border:
                return None
            found = reachable.get(target)
            if found is None:
                continue
            d = TRAFFIC if name == "traffic" else COUNT
            capacities = state.nodes[source].capacity[d], state.nodes[target].capacity[d]
            best = best_load(mine - used, *capacities)
            for load, id_ in sorted(found, reverse=True):
                if load > best * (1 + TINY):
                    continue
                forbidden = self._forbidden(state.partitions[id_], source, target, name)
                if forbidden is None:
                    return self._made(state.partitions[id_], source, target, name)
                self._refuse(name, source, target, id_, forbidden)
        return None

    def _reachable(
        self, source: NodeId, name: str, targets: Collection[NodeId]
    ) -> Mapping[NodeId, list[tuple[float, PartitionId]]]:
        """By target: what it could lead instead of the source, with what that would move."""
        found: dict[NodeId, list[tuple[float, PartitionId]]] = {}
        partitions, traffic = self._state.partitions, name == "traffic"
        for id_ in self._led[source]:
            partition = partitions[id_]
            load = partition.reads if traffic else 1.0
            if load <= 0:
                continue
            for node in partition.nodes:
                if node in targets and (partition.ready is None or node in partition.ready):
                    found.setdefault(node, []).append((load, id_))
        return found

    def _forbidden(
        self, partition: PartitionView, source: NodeId, target: NodeId, name: str
    ) -> Forbidden | None:
        if partition.held:
            return Forbidden("held", partition.held)
        loads = (partition.reads, 0.0, 0.0)
        found = stays_preferred(partition, source, target) or has_room(self._state, target, loads)
        if found is None and name == LEADERS:
            found = higher_pay(self._state, source, target, loads, loads, 1)
        return found

    def _made(self, partition: PartitionView, source: NodeId, target: NodeId, name: str) -> Move:
        state = self._state
        pairs = [[(state.used(source, d), state.used(target, d)) for d in range(3)]]
        led = self._count(source), self._count(target)
        state.change(partition.having(partition.nodes, target, partition.ready))
        for node, change in ((source, self._led[source].discard), (target, self._led[target].add)):
            if state.nodes[node].takes:
                del self._ranks[bisect_left(self._ranks, (self._count(node), node))]
            change(partition.id)
            if state.nodes[node].takes:
                insort(self._ranks, (self._count(node), node))
        pairs.append([(state.used(source, d), state.used(target, d)) for d in range(3)])
        if name == LEADERS:
            reason = (
                f"node {source} leads {led[0]:.1f}, node {target} {led[1]:.1f}, "
                f"mean {self._leaders.mean:.1f}"
            )
            return Move("leader", partition.id, source, target, name, "good", reason)
        (was, is_), mean = pairs, self._traffic.mean
        reason = (
            f"traffic: node {source} {was[0][0]:.1%} → {is_[0][0]:.1%}, node {target} "
            f"{was[0][1]:.1%} → {is_[0][1]:.1%}, mean {mean:.1%}: {partition.reads:.6g} units of "
            "reads"
        )
        return Move("leader", partition.id, source, target, name, quality(state, was, is_), reason)

    def _refuse(
        self,
        name: str,
        source: NodeId,
        target: NodeId | None,
        partition: PartitionId | None,
        why: Forbidden,
    ) -> None:
        self.refusals.add(Refusal("leader", name, source, target, partition, *why))
