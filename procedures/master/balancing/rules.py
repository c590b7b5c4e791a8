"""May this replica go there? Each rule is a function of the state and the pair; the first one that
forbids it says why.

Whatever the dimension that a move is for:

    held      the partition is busy with something else
    there     the target has a replica of it already
    tags      the target lacks a tag that its table wants (I14)
    domain    two replicas would fail together that did not before (I12)
    leaders   it would leave the nodes where its table wants to be led
    hard      the target would be above a hard line: full, or the CPU used up (I4, I6)

In the dimensions of higher priority than the one that it is for (I3, I4): the target must not come
out above the high mark, and the source not below the low mark. So what a lower dimension gains, no
higher one pays. What lower dimensions lose is accepted up to their hard line.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kv.base.ids import NodeId
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import LEVELS, NAMES, Level, Loads, NodeView, PartitionView


class Forbidden(NamedTuple):
    """The rule, and the reason in words."""

    rule: str
    reason: str


def shared(node: NodeView, others: Collection[NodeView], level: Level) -> tuple[int, ...]:
    """How many of the others are in the same domain as this node, at the level and each finer one.
    Of two placements, the one with the lower tuple is the safer one.
    """
    first = LEVELS.index(level)
    return tuple(
        sum(other.domains[: i + 1] == node.domains[: i + 1] for other in others)
        for i in range(first, len(LEVELS))
    )


def may_have(partition: PartitionView, node: NodeView) -> Forbidden | None:
    """Whether the node carries what the partition's table wants."""
    if missing := sorted(partition.tags - node.tags):
        return Forbidden("tags", f"node {node.id} does not carry the tag {', '.join(missing)}")
    return None


def stays_preferred(partition: PartitionView, source: NodeId, target: NodeId) -> Forbidden | None:
    """Whether a replica or a leadership stays where the partition's table wants it."""
    if source in partition.preferred and target not in partition.preferred:
        return Forbidden("leaders", f"its table prefers node {source} to node {target}")
    return None


def keeps_apart(
    state: ClusterState, partition: PartitionView, source: NodeId, target: NodeId, level: Level
) -> Forbidden | None:
    """Whether the replicas stay as independent of each other as they are, at the level of the
    table's goal, else at `level`.
    """
    level = partition.survive or level
    others = [state.nodes[n] for n in partition.nodes if n != source and n in state.nodes]
    there = state.nodes[target]
    after = shared(there, others, level)
    if not any(after):
        return None
    if source in state.nodes and after <= shared(state.nodes[source], others, level):
        return None
    first = next(i for i, count in enumerate(after) if count)
    name = LEVELS[LEVELS.index(level) + first]
    return Forbidden(
        "domain",
        f"it would be the second replica in {name} {'/'.join(filter(None, there.domains))}",
    )


def has_room(state: ClusterState, target: NodeId, loads: Loads) -> Forbidden | None:
    """Whether the target stays below its hard lines."""
    node, load = state.nodes[target], state.load(target)
    for d, more in enumerate(loads):
        if more and (load[d] + more) / node.capacity[d] > node.limit[d]:
            after = (load[d] + more) / node.capacity[d]
            return Forbidden(
                "hard",
                f"{NAMES[d]} of node {target} would be {after:.0%}, its hard line is "
                f"{node.limit[d]:.0%}",
            )
    return None


def full(state: ClusterState, node: NodeId) -> bool:
    """Whether not even the smallest replica of the cluster would fit (I6)."""
    view, load = state.nodes[node], state.load(node)
    return any(
        (load[d] + more) / view.capacity[d] > view.limit[d]
        for d, more in enumerate((0.0, state.smallest, 1.0))
    )


def higher_pay(
    state: ClusterState, source: NodeId, target: NodeId, less: Loads, more: Loads, d: int
) -> Forbidden | None:
    """Whether a dimension of higher priority than `d` loses. `less` and `more`: what leaves the
    source and comes to the target.
    """
    for h in range(d):
        if not (less[h] or more[h]):
            continue
        after = (state.load(target)[h] + more[h]) / state.nodes[target].capacity[h]
        if after > state.high[h]:
            return Forbidden(
                "higher",
                f"{NAMES[h]} of node {target} would be {after:.2%}, above the high mark "
                f"{state.high[h]:.2%}",
            )
        after = (state.load(source)[h] - less[h]) / state.nodes[source].capacity[h]
        if after < state.low[h]:
            return Forbidden(
                "higher",
                f"{NAMES[h]} of node {source} would be {after:.2%}, below the low mark "
                f"{state.low[h]:.2%}",
            )
    return None
