"""Which nodes get the replicas of a partition whose table says how many it wants, and who of them
should lead. Pure.

A table that says nothing has a replica at every member, as all of a small cluster's do. One that
was made with `replicas` = k has k of them with data at each of its partitions:

  * only nodes that carry the table's tags, if it wants some;
  * nodes that answer come first: a replica at one that does not is made when it comes back;
  * then datacenters, racks or machines (the level of the table's goal, else the cluster's) that
    have none of the partition yet: what they have fails together, so two replicas share one only if
    there is no other;
  * then nodes where the table wants to be led: writes wait for a majority, the nearer the better;
  * then the node with the fewest replicas; the lower id among equals.

A table with a goal (`survive`, docs/decisions/1495) wants votes: `seats` says how many of them are
copies with what there is, and who may be the witness that has the last one.

Of two choices as good as that by answers and machines, the one counts whose leader (`preferred`)
leads least: followers do but a part of the work.

The choice is made once, when the partition is made, when a node is decommissioned (another one
takes its place) or when there were fewer nodes than k and one more joined. Who should lead is what
the row of the map says (`home`), else what follows from the id (`preferred`); where the table
prefers nodes, one of these.

Left out here: load other than the number of replicas, and moving what was placed: that is
procedures/master/balancing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kv.base.errors import Refused
from kv.base.ids import NodeId, PartitionId
from kv.base.placement import VOTES_MIN, Placement, is_preferred
from procedures.master.balancing.model import LEVELS, Level, level_of
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
        return self.site[: level + 1]

    @property
    def site(self) -> tuple[str, str, str]:
        """Its datacenter, rack and machine."""
        return (self.dc, self.rack, self.machine)


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


class Seats(NamedTuple):
    """Who is to vote for each partition of a table."""

    data: int
    """Copies; 0: one at every node."""
    witnesses: tuple[NodeId, ...] = ()
    """Of whom one votes beside the copies; none: nobody."""
    short: str = ""
    """Why the loss of one domain would stop it; empty: it would not, or the table has no goal."""


def seats(wanted: Placement, nodes: Iterable[NodeRow]) -> Seats:
    """See the module. Of v votes v // 2 may be lost, so no domain may have more; where there are
    too few nodes for all votes, there are fewer, as long as three are left.
    """
    level = level_of(wanted.survive)
    if level is None:
        return Seats(wanted.replicas)
    end = LEVELS.index(level) + 1
    members = [row for row in nodes if row.state is NodeState.MEMBER]
    sizes = Counter(
        row.domains[:end] for row in members if not row.witness and carries(row.tags, wanted.tags)
    )
    beside = tuple(row.id for row in members if row.witness and row.domains[:end] not in sizes)
    for witnesses in ((), beside) if beside else ((),):
        for votes in range(wanted.replicas, VOTES_MIN - 1, -2):
            copies = votes - bool(witnesses)
            if sum(min(votes // 2, size) for size in sizes.values()) >= copies:
                return Seats(copies, witnesses)
    names = ", ".join("/".join(filter(None, domain)) or "(no label)" for domain in sorted(sizes))
    there = f"in {len(sizes)} of them ({names})" if sizes else "nowhere"
    return Seats(
        wanted.replicas,
        (),
        f"to survive the loss of a {wanted.survive} takes copies in three of them, or in two and a "
        f"witness in a third one; nodes that may have copies are {there}",
    )


def checked_seats(wanted: Placement, nodes: Iterable[NodeRow]) -> Seats:
    """Raises Refused: the members, whether or not they answer now, cannot give it."""
    found = seats(wanted, nodes)
    if found.short:
        raise Refused(
            f"{found.short}: start nodes elsewhere with --labels first",
            code="CANNOT_SURVIVE",
            details={"survive": wanted.survive},
        )
    return found


def preferred_nodes(
    rows: Iterable[Placed], nodes: Sequence[NodeRow]
) -> dict[str, frozenset[NodeId]]:
    """By the labels that tables name: the members with data that have them."""
    return {
        leaders: frozenset(
            row.id
            for row in nodes
            if row.state is NodeState.MEMBER
            and not row.witness
            and is_preferred(leaders, row.domains)
        )
        for leaders in {row.leaders for row in rows}
    }


def preferred(partition: PartitionId, voters: Sequence[NodeId]) -> NodeId:
    """The voter that should lead: voters (with data) in order of their ids, one after the other."""
    ordered = sorted(voters)
    return ordered[partition % len(ordered)]


def home(
    partition: PartitionId,
    voters: Sequence[NodeId],
    wanted: NodeId | None = None,
    avoid: Collection[NodeId] = (),
    liked: Collection[NodeId] = (),
) -> NodeId:
    """Who of the voters with data should lead: the wanted one, else the preferred one; none to be
    avoided as long as there is another, and of these one that the table likes, if there is one.
    """
    able = [node for node in voters if node not in avoid] or list(voters)
    able = [node for node in able if node in liked] or able
    return wanted if wanted is not None and wanted in able else preferred(partition, able)


def spread(
    ids: Iterable[PartitionId],
    replicas: int,
    among: Sequence[Candidate],
    level: Level = "server",
    leaders: str = "",
) -> list[tuple[NodeId, ...]]:
    """Nodes for each of these new partitions, ascending; fewer than `replicas` where there are not
    so many.
    """
    load = {one.node: one.replicas for one in among}
    leads = {one.node: one.leads for one in among}
    liked = _liked(leaders, among)
    found = []
    for id_ in ids:
        nodes = _choose(replicas, among, load, (), level, liked)
        even = [] if liked else _led_by_least(id_, len(nodes), among, load, leads, level)
        if _worth(even, among, level) >= _worth(nodes, among, level):
            nodes = even
        for node in nodes:
            load[node] += 1
        if nodes:
            leads[home(id_, nodes, liked=liked)] += 1
        found.append(tuple(sorted(nodes)))
    return found


def _liked(leaders: str, among: Iterable[Candidate]) -> frozenset[NodeId]:
    return frozenset(one.node for one in among if is_preferred(leaders, one.site))


def _worth(nodes: Collection[NodeId], among: Sequence[Candidate], level: Level) -> tuple[int, ...]:
    chosen = [one for one in among if one.node in nodes]
    domains = [Counter(one.domain(i) for one in chosen).values() for i in _levels(level)]
    together = [sum(count * count for count in counts) for counts in domains]
    return (sum(one.answers for one in chosen), *(-pairs for pairs in together))


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
    partitions: Iterable[tuple[Collection[NodeId], Placement]],
    among: Sequence[Candidate],
    level: Level = "server",
) -> list[NodeId | None]:
    """One more node for each partition, given by the nodes that have it and what its table wants;
    None where there is no other.
    """
    load = {one.node: one.replicas for one in among}
    found: list[NodeId | None] = []
    for beside, wanted in partitions:
        able = [one for one in among if one.node in beside or carries(one.tags, wanted.tags)]
        apart = level_of(wanted.survive) or level
        nodes = _choose(1, able, load, beside, apart, _liked(wanted.leaders, able))
        for node in nodes:
            load[node] += 1
        found.append(nodes[0] if nodes else None)
    return found


def lacks(placed: Placed, nodes: Sequence[NodeRow], *, without: int = 0) -> bool:
    """Whether a table that wants a number of replicas has fewer of this partition, at nodes that
    stay; `without`: nor counting this one.
    """
    staying = (NodeState.MEMBER, NodeState.JOINING)
    there = {
        row.id
        for row in nodes
        if row.state in staying and not row.witness and carries(row.tags, placed.tags)
    }
    return len(there.intersection(placed.nodes) - {without}) < seats(placed.wants, nodes).data


def _choose(
    count: int,
    among: Sequence[Candidate],
    load: Mapping[NodeId, int],
    beside: Collection[NodeId],
    level: Level,
    liked: Collection[NodeId] = (),
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
            key=lambda one: (
                *(not one.answers, shared(one), one.node not in liked),
                *(load[one.node], one.node),
            ),
        )
        found.append(best.node)
        used.append(best)
        del left[best.node]
    return found
