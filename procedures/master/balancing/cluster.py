"""The picture while moves are tried on it: loads, orders and zones, kept up to date by each move.

A move costs O(log replicas of a node) comparisons and a few list insertions, whatever the size of
the cluster, so that thousands of nodes with hundreds of thousands of replicas can be planned.

Of a dimension, with mean = all load by all capacity (of equal machines, the plain mean; of unequal
ones the utilisation that all of them would have, which no move changes), high and low mark:

    utilisation    above high     high zone      gives actively
                   mean .. high   upper zone     gives to who is low
                   low .. mean    lower zone     takes from who is high
                   below low      low zone       takes actively

A node that takes nothing (it is slow, or is being emptied) is not counted and not chosen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing.model import (
    COUNT,
    DIMENSIONS,
    SIZE,
    TRAFFIC,
    Dimension,
    Loads,
    NodeView,
    PartitionView,
)

_EVERY: Final = (TRAFFIC, SIZE, COUNT)
_NOTHING: Final[Loads] = (0.0, 0.0, 0.0)
_TINY: Final = 1e-9  # of the mean: what sums of floats differ by

Entry = tuple[float, float, PartitionId]
"""A replica in a node's order: its load, minus what it weighs in the other dimensions, its id. Of
two with the same load, the one that disturbs the others least comes last, and is tried first.
"""


class Zone(IntEnum):
    """See the module; ordered by load."""

    LOW = 0
    LOWER = 1
    UPPER = 2
    HIGH = 3


class ClusterState:
    """See the module. `partitions` and `nodes` are read-only for others."""

    def __init__(
        self,
        nodes: Iterable[NodeView],
        partitions: Iterable[PartitionView],
        dimensions: Sequence[Dimension] = DIMENSIONS,
    ) -> None:
        self.nodes = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
        self.partitions = {p.id: p for p in partitions}
        self.dimensions = dimensions
        self._at: dict[NodeId, set[PartitionId]] = {id_: set() for id_ in self.nodes}
        self._load = {id_: list(node.base) for id_, node in self.nodes.items()}
        for partition in self.partitions.values():
            for id_ in partition.nodes:
                if id_ in self._at:
                    self._at[id_].add(partition.id)
                    for d, load in enumerate(partition.loads_at(id_)):
                        self._load[id_][d] += load
        self._orders: dict[tuple[NodeId, int], list[Entry]] = {}
        self.taking = [id_ for id_, node in self.nodes.items() if node.takes]
        self.mean: Loads = self._means()
        self.high, self.low = self._marks(1), self._marks(-1)
        self._ranks = {d: sorted((self.used(n, d), n) for n in self.taking) for d in _EVERY}
        self.smallest = min((p.size for p in self.partitions.values()), default=0.0)

    def _means(self) -> Loads:
        def mean(d: int) -> float:
            capacity = sum(self.nodes[n].capacity[d] for n in self.taking)
            return sum(self._load[n][d] for n in self.taking) / capacity if capacity else 0.0

        return (mean(TRAFFIC), mean(SIZE), mean(COUNT))

    def _marks(self, sign: int) -> Loads:
        def mark(d: int) -> float:
            dimension = self.dimensions[d]
            width = max(dimension.alpha * self.mean[d], dimension.margin)
            return self.mean[d] + sign * (width + _TINY * self.mean[d])

        return (mark(TRAFFIC), mark(SIZE), mark(COUNT))

    # ------------------------------------------------------------------------------ looking

    def used(self, node: NodeId, d: int) -> float:
        """The utilisation of a node."""
        return self._load[node][d] / self.nodes[node].capacity[d]

    def load(self, node: NodeId) -> Loads:
        traffic, size, count = self._load[node]
        return (traffic, size, count)

    def zone(self, node: NodeId, d: int) -> Zone:
        return self.zone_of(self.used(node, d), d)

    def zone_of(self, used: float, d: int) -> Zone:
        if used > self.high[d]:
            return Zone.HIGH
        if used < self.low[d]:
            return Zone.LOW
        return Zone.UPPER if used > self.mean[d] else Zone.LOWER

    def outside(self, used: float, d: int) -> float:
        """How far this lies beyond the marks; 0 between them."""
        return max(0.0, used - self.high[d], self.low[d] - used)

    def rank(self, d: int) -> Sequence[tuple[float, NodeId]]:
        """The nodes that take, from the least used to the most used."""
        return self._ranks[d]

    def replicas(self, node: NodeId) -> set[PartitionId]:
        return self._at[node]

    def order(self, node: NodeId, d: int) -> Sequence[Entry]:
        """The node's replicas from the lightest to the heaviest."""
        found = self._orders.get((node, d))
        if found is None:
            found = sorted(self._entry(node, self.partitions[p], d) for p in self._at[node])
            self._orders[node, d] = found
        return found

    def up_to(self, node: NodeId, d: int, load: float) -> int:
        """How many of `order` weigh no more than this."""
        return bisect_right(self.order(node, d), (load, float("inf"), PartitionId(0)))

    def _entry(self, node: NodeId, partition: PartitionView, d: int) -> Entry:
        loads, capacity = partition.loads_at(node), self.nodes[node].capacity
        other = 0.0
        if d != TRAFFIC:
            other -= loads[TRAFFIC] / capacity[TRAFFIC]
        if d != SIZE:
            other -= loads[SIZE] / capacity[SIZE]
        return (loads[d], other, partition.id)

    # ------------------------------------------------------------------------------ changing

    def change(self, after: PartitionView) -> None:
        """A partition is elsewhere, or led elsewhere, from now on."""
        before = self.partitions[after.id]
        self.partitions[after.id] = after
        at = self._at
        for node in dict.fromkeys((*before.nodes, *after.nodes)):
            if node not in at:
                continue
            was = before.loads_at(node) if node in before.nodes else _NOTHING
            is_ = after.loads_at(node) if node in after.nodes else _NOTHING
            if was == is_:
                continue
            ranked = [self.used(node, d) for d in _EVERY]
            if was is not _NOTHING:
                self._leave(node, before)
            for d in _EVERY:
                self._load[node][d] += is_[d] - was[d]
            if is_ is not _NOTHING:
                self._enter(node, after)
            if self.nodes[node].takes:
                for d in _EVERY:
                    if was[d] != is_[d]:
                        ranks = self._ranks[d]
                        del ranks[bisect_left(ranks, (ranked[d], node))]
                        insort(ranks, (self.used(node, d), node))

    def _leave(self, node: NodeId, partition: PartitionView) -> None:
        self._at[node].discard(partition.id)
        for d in _EVERY:
            if (order := self._orders.get((node, d))) is not None:
                del order[bisect_left(order, self._entry(node, partition, d))]

    def _enter(self, node: NodeId, partition: PartitionView) -> None:
        self._at[node].add(partition.id)
        for d in _EVERY:
            if (order := self._orders.get((node, d))) is not None:
                insort(order, self._entry(node, partition, d))
