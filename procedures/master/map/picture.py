"""The master's picture of the cluster in the shape that procedures/master/balancing decides upon:
the members table, the map, what leaders say of their groups, and what the nodes report of their
load. Pure.

    capacity  traffic: 1 / what a unit costs at the node (balancing/prediction.py), so that full is
              all CPU of the process; size: what is free and what its files take; replicas: its
              worth beside the others
    load      size: live bytes of the partition; traffic: standard units per second, split into
              reads and writes by their numbers. What the files take beyond the live bytes (old
              versions, other data) is the node's own

A node of which no disk is known (an engine in memory) is given as much as anybody could need.
A partition is held while something is being done to it, and while no leader speaks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import BALANCE_LAG_MAX
from kv.base.placement import Placement
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import (
    DIMENSIONS,
    Dimension,
    NodeView,
    PartitionView,
    level_of,
)
from procedures.master.balancing.prediction import Machine as Measured
from procedures.master.balancing.prediction import UnitCost, costs, weights
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.partitions import Placed
from procedures.master.map.placement import Seats, preferred_nodes, seats
from procedures.master.map.replica_methods import GroupView
from procedures.master.map.reports import Picture

_DISK_UNKNOWN = float(1 << 50)
_LIMITS = (0.95, 0.90, float("inf"))


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Of one partition: bytes, and standard traffic units per second."""

    size: float = 0.0
    reads: float = 0.0
    writes: float = 0.0


@dataclass(frozen=True, slots=True)
class Loads:
    """What was reported. `slow`: nodes that should not lead; `cores`: by node, 1 if unknown."""

    partitions: Mapping[int, PartitionLoad] = field(default_factory=dict)
    disks: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """By node: bytes free, bytes in files."""
    costs: Mapping[int, UnitCost] = field(default_factory=dict)
    slow: frozenset[NodeId] = frozenset()


def loads_of(reports: Picture, unit_costs: Mapping[int, UnitCost]) -> Loads:
    """From what the nodes reported."""
    partitions: dict[int, PartitionLoad] = {}
    for id_, (_, report) in reports.leaders().items():
        requests = report.reads + report.writes
        reads = report.units * report.reads / requests if requests else 0.0
        partitions[id_] = PartitionLoad(float(report.size), reads, report.units - reads)
    disks = {n: (float(r.disk_free), float(r.file_bytes)) for n, r in reports.nodes.items()}
    return Loads(partitions, disks, unit_costs)


def observed(
    reports: Picture, known: Mapping[int, UnitCost], held: Mapping[int, Collection[int]]
) -> dict[int, UnitCost]:
    """With one more look at every node's CPU and at the units of what it has. `held`: by partition,
    where it has replicas.
    """
    loads = loads_of(reports, {}).partitions
    units = dict.fromkeys(reports.nodes, 0.0)
    for id_, (leader, _) in reports.leaders().items():
        for node in {*held.get(id_, ()), leader}:
            if node in units:
                units[node] += loads[id_].writes + (loads[id_].reads if node == leader else 0.0)
    return {
        node: known.get(node, UnitCost()).observe(report.cpu, units[node])
        for node, report in reports.nodes.items()
    }


def wanted_by(
    rows: Iterable[Placed], nodes: Sequence[NodeRow]
) -> tuple[dict[PartitionId, int], dict[PartitionId, tuple[NodeId, ...]]]:
    """How many replicas each partition is to have (0 = everywhere, with all witnesses), and of
    those that want a number, who may be the witness beside them.
    """
    known: dict[Placement, Seats] = {}
    wanted: dict[PartitionId, int] = {}
    witnesses: dict[PartitionId, tuple[NodeId, ...]] = {}
    for row in rows:
        if (of := row.wants) not in known:
            known[of] = seats(of, nodes)
        wanted[row.descriptor.id] = known[of].data
        if row.replicas:
            witnesses[row.descriptor.id] = known[of].witnesses
    return wanted, witnesses


def picture(
    nodes: Sequence[NodeRow],
    rows: Sequence[Placed],
    views: Mapping[NodeId, Sequence[GroupView]],
    loads: Loads,
    *,
    busy: Mapping[int, str] | None = None,
    dimensions: Sequence[Dimension] = DIMENSIONS,
) -> ClusterState:
    """See the module. `views`: of the nodes that answer; `busy`: partitions that must stay, and
    why.
    """
    here = [
        row
        for row in nodes
        if row.id in views and row.state is NodeState.MEMBER and not row.witness
    ]
    known = {row.id: Measured(loads.costs.get(row.id, UnitCost())) for row in here}
    cost = costs(known)
    worth = weights(cost)
    live: dict[NodeId, float] = dict.fromkeys((row.id for row in here), 0.0)
    for placed in rows:
        size = loads.partitions.get(placed.descriptor.id, PartitionLoad()).size
        for node in placed.nodes:
            if node in live:
                live[node] += size
    return ClusterState(
        [_node(row, loads, cost[row.id], worth[row.id], live[row.id]) for row in here],
        [
            _partition(placed, seen.get(placed.descriptor.id), loads, busy or {}, liked)
            for seen, liked in [(speaking(views), preferred_nodes(rows, nodes))]
            for placed in rows
        ],
        dimensions,
    )


def speaking(views: Mapping[NodeId, Sequence[GroupView]]) -> dict[PartitionId, GroupView]:
    """How the leader of each group sees it; of two, the one of the newer term."""
    found: dict[PartitionId, GroupView] = {}
    for node in sorted(views):
        for view in views[node]:
            known = found.get(view.partition)
            if view.leads and (known is None or view.term > known.term):
                found[view.partition] = view
    return found


def _node(row: NodeRow, loads: Loads, cost: float, worth: float, live: float) -> NodeView:
    free, files = loads.disks.get(row.id, (0.0, 0.0))
    disk = free + files if free + files > 0 else _DISK_UNKNOWN
    return NodeView(
        row.id,
        capacity=(1.0 / cost, disk, worth),
        limit=_LIMITS,
        base=(0.0, max(0.0, files - live), 0.0),
        domains=row.domains,
        tags=frozenset(row.tags),
        takes=row.id not in loads.slow,
    )


def _partition(
    placed: Placed,
    view: GroupView | None,
    loads: Loads,
    busy: Mapping[int, str],
    liked: Mapping[str, frozenset[NodeId]],
) -> PartitionView:
    d = placed.descriptor
    load = loads.partitions.get(d.id, PartitionLoad())
    return PartitionView(
        d.id,
        tuple(n for n in (*d.voters, *d.learners) if n not in d.witnesses),
        None if view is None else NodeId(view.leader),
        load.size,
        load.writes,
        load.reads,
        frozenset(placed.tags),
        _held(placed, view, busy),
        d.witnesses,
        frozenset() if view is None else _ready(view),
        level_of(placed.survive),
        liked[placed.leaders],
    )


def _held(placed: Placed, view: GroupView | None, busy: Mapping[int, str]) -> str:
    if placed.descriptor.id in busy:
        return busy[placed.descriptor.id]
    if placed.change:
        return f"it is being changed ({placed.change[0]})"
    if placed.descriptor.learners:
        return "a replica is being added to it"
    if view is None:
        return "no leader speaks for it"
    return "" if view.settled else "its members are changing"


def _ready(view: GroupView) -> frozenset[NodeId]:
    """Who of them could lead at once."""
    able = [
        NodeId(node)
        for node, f in view.followers.items()
        if node in view.data_voters and f.responsive and not f.snapshot and f.lag <= BALANCE_LAG_MAX
    ]
    return frozenset([*able, NodeId(view.leader)])


assert META_PARTITION == 1, "it has no row in the map, so it is in no picture"
