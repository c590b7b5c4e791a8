"""Which nodes get the replicas of a partition whose table says how many it wants, and who of them
should lead. Pure.

A table that says nothing has a replica at every member, as all of a small cluster's do. One that
was made with `replicas` = k has k of them with data at each of its partitions:

  * only nodes that carry the table's tags, if it wants some;
  * nodes that answer come first: a replica at one that does not is made when it comes back;
  * then datacenters, racks or machines (the cluster's safety level) that have none of the partition
    yet: what they have fails together, so two replicas share one only if there is no other;
  * then the node with the fewest replicas; the lower id among equals.

Of two choices as good as that by answers and machines, the one counts whose leader (`preferred`)
leads least: followers do but a part of the work.

The choice is made once, when the partition is made, when a node is decommissioned (another one
takes its place) or when there were fewer nodes than k and one more joined. Who should lead is what
the row of the map says (`home`), else what follows from the id (`preferred`).

Left out here: load other than the number of replicas, and moving what was placed: that is
procedures/master/balancing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kv.base.errors import Refused
from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing.model import LEVELS, Level
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.partitions import Placed


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
    dc: str = ""
    rack: str = ""
    tags: tuple[str, ...] = ()

    def domain(self, level: int) -> tuple[str, ...]:
        """What it fails together with; 0 = the datacenter, 2 = the machine."""
        return (self.dc, self.rack, self.machine)[: level + 1]


def candidates(
    nodes: Iterable[NodeRow],
    rows: Iterable[Placed],
    answers: Callable[[NodeId], bool],
    tags: Collection[str] = (),
) -> list[Candidate]:
    """The members that keep data and stay and carry the tags, with what the map says that they
    have.
    """
    rows = list(rows)
    counts = Counter(node for row in rows for node in row.nodes)
    voters = ((row.descriptor.id, row.descriptor.data_voters) for row in rows)
    leads = Counter(preferred(id_, nodes) for id_, nodes in voters if nodes)
    return [
        Candidate(
            *(row.id, row.machine, counts[row.id], leads[row.id], answers(row.id)),
            *(row.dc, row.rack, row.tags),
        )
        for row in nodes
        if row.state is NodeState.MEMBER and not row.witness and carries(row.tags, tags)
    ]


def carries(has: Collection[str], wanted: Collection[str]) -> bool:
    """Whether a node with these tags may have replicas of a table that wants those."""
    return set(wanted) <= set(has)


def no_node_with(tags: Collection[str], nodes: Iterable[NodeRow]) -> Refused:
    """The refusal of a table that could be nowhere."""
    there = sorted({tag for row in nodes if row.state is NodeState.MEMBER for tag in row.tags})
    return Refused(
        f"no member carries the tags {', '.join(sorted(tags))}; there are "
        f"{', '.join(there) or 'none at all'}: start nodes with --tags first",
        code="NO_NODE_WITH_TAGS",
        details={"tags": sorted(tags), "there": there},
    )


def preferred(partition: PartitionId, voters: Sequence[NodeId]) -> NodeId:
    """The voter that should lead: voters (with data) in order of their ids, one after the other."""
    ordered = sorted(voters)
    return ordered[partition % len(ordered)]


def home(
    partition: PartitionId,
    voters: Sequence[NodeId],
    wanted: NodeId | None = None,
    avoid: Collection[NodeId] = (),
) -> NodeId:
    """Who of the voters with data should lead: the wanted one, else the preferred one; none to be
    avoided as long as there is another.
    """
    able = [node for node in voters if node not in avoid] or list(voters)
    return wanted if wanted is not None and wanted in able else preferred(partition, able)


def spread(
    ids: Iterable[PartitionId],
    replicas: int,
    among: Sequence[Candidate],
    level: Level = "server",
) -> list[tuple[NodeId, ...]]:
    """Nodes for each of these new partitions, ascending; fewer than `replicas` where there are not
    so many.
    """
    load = {one.node: one.replicas for one in among}
    leads = {one.node: one.leads for one in among}
    found = []
    for id_ in ids:
        nodes = _choose(replicas, among, load, (), level)
        even = _led_by_least(id_, len(nodes), among, load, leads, level)
        if _worth(even, among, level) >= _worth(nodes, among, level):
            nodes = even
        for node in nodes:
            load[node] += 1
        if nodes:
            leads[preferred(id_, nodes)] += 1
        found.append(tuple(sorted(nodes)))
    return found


def _worth(nodes: Collection[NodeId], among: Sequence[Candidate], level: Level) -> tuple[int, ...]:
    chosen = [one for one in among if one.node in nodes]
    apart = [len({one.domain(i) for one in chosen}) for i in _levels(level)]
    return (sum(one.answers for one in chosen), *apart)


def _levels(level: Level) -> range:
    return range(LEVELS.index(level), len(LEVELS))


def _led_by_least(
    partition: PartitionId,
    count: int,
    among: Sequence[Candidate],
    load: Mapping[NodeId, int],
    leads: Mapping[NodeId, int],
    level: Level,
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
    found = _choose(lower, [*below, leader], load, [leader.node], level)
    beside = [leader.node, *found]
    chosen = [one for one in ordered if one.node in beside]
    return beside + _choose(count - 1 - lower, [*chosen, *above], load, beside, level)


def one_more(
    partitions: Iterable[tuple[Collection[NodeId], Collection[str]]],
    among: Sequence[Candidate],
    level: Level = "server",
) -> list[NodeId | None]:
    """One more node for each partition, given by the nodes that have it and the tags that it wants;
    None where there is no other.
    """
    load = {one.node: one.replicas for one in among}
    found: list[NodeId | None] = []
    for beside, tags in partitions:
        able = [one for one in among if one.node in beside or carries(one.tags, tags)]
        nodes = _choose(1, able, load, beside, level)
        for node in nodes:
            load[node] += 1
        found.append(nodes[0] if nodes else None)
    return found


def lacks(placed: Placed, nodes: Iterable[NodeRow], *, without: int = 0) -> bool:
    """Whether a table that wants a number of replicas has fewer of this partition, at nodes that
    stay; `without`: nor counting this one.
    """
    staying = (NodeState.MEMBER, NodeState.JOINING)
    there = {
        row.id
        for row in nodes
        if row.state in staying and not row.witness and carries(row.tags, placed.tags)
    }
    return len(there.intersection(placed.nodes) - {without}) < placed.replicas


def _choose(
    count: int,
    among: Sequence[Candidate],
    load: Mapping[NodeId, int],
    beside: Collection[NodeId],
    level: Level,
) -> list[NodeId]:
    """Up to `count` nodes that are not in `beside`, which have the partition already."""
    left = {one.node: one for one in among if one.node not in beside}
    used = [one for one in among if one.node in beside]

    def shared(one: Candidate) -> list[int]:
        return [sum(one.domain(i) == other.domain(i) for other in used) for i in _levels(level)]

    found: list[NodeId] = []
    while left and len(found) < count:
        best = min(
            left.values(),
            key=lambda one: (not one.answers, shared(one), load[one.node], one.node),
        )
        found.append(best.node)
        used.append(best)
        del left[best.node]
    return found
