"""Which nodes get the replicas of a partition whose table says how many it wants, and who of them
should lead. Pure.

A table that says nothing has a replica at every member, as all of a small cluster's do. One that
was made with `replicas` = k has k of them with data at each of its partitions:

  * nodes that answer come first: a replica at one that does not is made when it comes back;
  * then machines that have none of the partition yet: what runs on one machine fails together, so
    two replicas share a machine only if there is no other;
  * then the node with the fewest replicas; the lower id among equals.

Of two choices as good as that by answers and machines, the one counts whose leader (`preferred`)
leads least: followers do but a part of the work.

The choice is made once, when the partition is made, when a node is decommissioned (another one
takes its place) or when there were fewer nodes than k and one more joined.

Deliberately missing: load other than the number of replicas, and moving what was placed (the
balancer of partitions does both); failure domains above the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kv.base.ids import NodeId, PartitionId
from procedures.master.nodes import NodeRow, NodeState
from procedures.master.partitions import Placed


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may get replicas."""

    node: NodeId
    machine: str
    replicas: int = 0
    """That it has, of any table."""
    leads: int = 0
    """Of them, those that it should lead."""
    answers: bool = True


def candidates(
    nodes: Iterable[NodeRow], rows: Iterable[Placed], answers: Callable[[NodeId], bool]
) -> list[Candidate]:
    """The members that keep data and stay, with what the map says that they have."""
    rows = list(rows)
    counts = Counter(node for row in rows for node in row.nodes)
    voters = ((row.descriptor.id, row.descriptor.data_voters) for row in rows)
    leads = Counter(preferred(id_, nodes) for id_, nodes in voters if nodes)
    return [
        Candidate(row.id, row.machine, counts[row.id], leads[row.id], answers(row.id))
        for row in nodes
        if row.state is NodeState.MEMBER and not row.witness
    ]


def preferred(partition: PartitionId, voters: Sequence[NodeId]) -> NodeId:
    """The voter that should lead: voters (with data) in order of their ids, one after the other."""
    ordered = sorted(voters)
    return ordered[partition % len(ordered)]


def spread(
    ids: Iterable[PartitionId], replicas: int, among: Sequence[Candidate]
) -> list[tuple[NodeId, ...]]:
    """Nodes for each of these new partitions, ascending; fewer than `replicas` where there are not
    so many.
    """
    load = {one.node: one.replicas for one in among}
    leads = {one.node: one.leads for one in among}
    found = []
    for id_ in ids:
        nodes = _choose(replicas, among, load, beside=())
        even = _led_by_least(id_, len(nodes), among, load, leads)
        if _worth(even, among) >= _worth(nodes, among):
            nodes = even
        for node in nodes:
            load[node] += 1
        if nodes:
            leads[preferred(id_, nodes)] += 1
        found.append(tuple(sorted(nodes)))
    return found


def _worth(nodes: Collection[NodeId], among: Sequence[Candidate]) -> tuple[int, int]:
    chosen = [one for one in among if one.node in nodes]
    return sum(one.answers for one in chosen), len({one.machine for one in chosen})


def _led_by_least(
    partition: PartitionId,
    count: int,
    among: Sequence[Candidate],
    load: Mapping[NodeId, int],
    leads: Mapping[NodeId, int],
) -> list[NodeId]:
    """`count` nodes of which the one that would lead leads least; as `preferred` has it, a fixed
    number of them must have lower ids. Empty if nobody can.
    """
    lower = partition % max(1, count)
    ordered = sorted(among, key=lambda one: one.node)
    able = ordered[lower : len(ordered) - (count - 1 - lower)]
    if not count or not able:
        return []
    leader = min(able, key=lambda one: (not one.answers, leads[one.node], load[one.node], one.node))
    below = [one for one in ordered if one.node < leader.node]
    above = [one for one in ordered if one.node > leader.node]
    found = _choose(lower, [*below, leader], load, beside=[leader.node])
    beside = [leader.node, *found]
    chosen = [one for one in ordered if one.node in beside]
    return beside + _choose(count - 1 - lower, [*chosen, *above], load, beside=beside)


def one_more(
    partitions: Iterable[Collection[NodeId]], among: Sequence[Candidate]
) -> list[NodeId | None]:
    """One more node for each partition, given by the nodes that have it; None where there is no
    other.
    """
    load = {one.node: one.replicas for one in among}
    found: list[NodeId | None] = []
    for beside in partitions:
        nodes = _choose(1, among, load, beside=beside)
        for node in nodes:
            load[node] += 1
        found.append(nodes[0] if nodes else None)
    return found


def lacks(placed: Placed, nodes: Iterable[NodeRow], *, without: int = 0) -> bool:
    """Whether a table that wants a number of replicas has fewer of this partition, at nodes that
    stay; `without`: nor counting this one.
    """
    staying = (NodeState.MEMBER, NodeState.JOINING)
    there = {row.id for row in nodes if row.state in staying and not row.witness}
    return len(there.intersection(placed.nodes) - {without}) < placed.replicas


def _choose(
    count: int, among: Sequence[Candidate], load: Mapping[NodeId, int], beside: Collection[NodeId]
) -> list[NodeId]:
    """Up to `count` nodes that are not in `beside`, which have the partition already."""
    left = {one.node: one for one in among if one.node not in beside}
    used = {one.machine for one in among if one.node in beside}
    found: list[NodeId] = []
    while left and len(found) < count:
        best = min(
            left.values(),
            key=lambda one: (not one.answers, one.machine in used, load[one.node], one.node),
        )
        found.append(best.node)
        used.add(best.machine)
        del left[best.node]
    return found
