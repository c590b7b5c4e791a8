"""The placement: what must change whatever it weighs. In this order, one change of a partition at a
time; the first rule that finds something wins:

    dead      a replica on a node that is dead: rebuilt elsewhere (F6), or only taken out of the
              group where that makes it stronger and nobody can stand in
    tags      a replica on a node without the table's tags: moved to one that has them, or taken
              out if there is none: none remains outside (I14)
    few       fewer replicas than the table wants, and nodes that may have one
    many      more than it wants (a node came back, or the table wants fewer now)
    domain    two replicas that fail together though a node elsewhere could have one of them (I12)
    leaders   a replica that could be where its table wants to be led, as far apart as it is
    witness   one votes that the table's goal does not need, or is missing
    apart     one half of a hot partition, beside the other half (H5)

Targets: the fewest other replicas in the same domain (at the level of the table's goal, if it has
one), then where the table wants to be led, then the zone of their traffic, of their
size, then the fewest replicas for what they are worth. Full ones are none.

A group is changed only if a majority of it answers: else no change could be committed. A table that
wants no number of replicas has one at every node that carries its tags.

`state` has the nodes that answer; `dead` are those of the others that were silent for too long. Who
is neither is waited for. Source: the ByteKV article, "replica placement scheduler".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import (
    COUNT,
    LEVELS,
    SIZE,
    TRAFFIC,
    Fix,
    Level,
    NodeView,
    PartitionView,
    Refusal,
)
from procedures.master.balancing.replicas import Refusals, moved
from procedures.master.balancing.rules import has_room, may_have, shared

_NONE: Final[Mapping[PartitionId, Sequence[NodeId]]] = {}


class Placer:
    """See the module. `wanted`: replicas by partition, 0 or missing = everywhere; `witnesses`: of
    those that want a number, who may vote beside them; `apart`: hot partitions and the nodes that
    they must leave.
    """

    def __init__(
        self,
        state: ClusterState,
        wanted: Mapping[PartitionId, int],
        witnesses: Mapping[PartitionId, Sequence[NodeId]] = _NONE,
        *,
        dead: Collection[NodeId] = (),
        level: Level = "server",
        apart: Mapping[PartitionId, Collection[NodeId]] | None = None,
    ) -> None:
        self.refusals = Refusals()
        self._state, self._wanted, self._dead, self._level = state, wanted, dead, level
        self._witnesses = witnesses
        self._apart = apart or {}
        self._domains = [
            len({state.nodes[node].domains[: i + 1] for node in state.taking})
            for i in range(len(LEVELS))
        ]

    def fixes(self) -> Iterator[Fix]:
        """One for each partition that needs one, in order of their ids. Each is made in the state
        before it is given out, so the next targets know of it.
        """
        for id_ in sorted(self._state.partitions):
            found = self.fix(self._state.partitions[id_])
            if found is not None:
                yield found

    def fix(self, partition: PartitionView) -> Fix | None:
        """What this partition needs first, made in the state."""
        found = self._needed(partition)
        if found is None:
            return None
        if partition.held:
            self._refuse(partition, found.rule, found.source, partition.held)
            return None
        voters = [*partition.nodes, *partition.witnesses]
        answering = [n for n in partition.nodes if n in self._state.nodes]
        answering += [n for n in partition.witnesses if n not in self._dead]
        if 2 * len(answering) <= len(voters):
            text = f"only {len(answering)} of its {len(voters)} voters answer: nothing can change"
            self._refuse(partition, found.rule, found.source, text)
            return None
        self._state.change(_after(partition, found))
        return found

    def _needed(self, partition: PartitionView) -> Fix | None:
        return (
            self._off_the_dead(partition)
            or self._off_the_wrong(partition)
            or self._enough(partition)
            or self._not_too_many(partition)
            or self._further_apart(partition)
            or self._to_the_preferred(partition)
            or self._witness(partition)
            or self._away(partition)
        )

    # ------------------------------------------------------------------------------ the rules

    def _off_the_dead(self, partition: PartitionView) -> Fix | None:
        wanted = self._wanted.get(partition.id, 0)
        for node in partition.nodes:
            if node not in self._dead:
                continue
            target = self._target(partition, without=node) if wanted else None
            text = f"node {node} is dead"
            if target is not None and len(partition.nodes) <= wanted:
                return Fix(partition.id, node, target, "dead", text)
            living = len(partition.nodes) + len(partition.witnesses)
            living -= sum(n in self._dead for n in (*partition.nodes, *partition.witnesses))
            stronger = (len(partition.nodes) + len(partition.witnesses)) // 2 > living // 2
            data = len(partition.nodes) - 1
            if len(partition.nodes) > wanted > 0:
                return Fix(partition.id, node, None, "dead", text)
            if stronger and data > len(partition.witnesses):
                text += "; without it the others survive one failure more"
                return Fix(partition.id, node, None, "dead", text)
            if wanted:
                self._refuse(partition, "dead", node, f"{text}, and no other may have its replica")
        return None

    def _off_the_wrong(self, partition: PartitionView) -> Fix | None:
        nodes = self._state.nodes
        wrong = {
            node: why
            for node in partition.nodes
            if node in nodes and (why := may_have(partition, nodes[node])) is not None
        }
        for node, why in wrong.items():
            target = self._target(partition, without=node)
            if target is not None:
                return Fix(partition.id, node, target, "tags", why.reason)
            right = [n for n in partition.nodes if n in nodes and n not in wrong]
            if right:
                return Fix(partition.id, node, None, "tags", f"{why.reason}, and no other does")
            text = f"{why.reason}, and no node with room does: it stays until one joins"
            self._refuse(partition, "tags", node, text)
        return None

    def _enough(self, partition: PartitionView) -> Fix | None:
        wanted = self._wanted.get(partition.id, 0)
        if wanted and len(partition.nodes) >= wanted:
            return None
        target = self._target(partition)
        if target is None:
            if wanted:
                text = f"it has {len(partition.nodes)} of {wanted} replicas and no node for more"
                self._refuse(partition, "few", None, text)
            return None
        text = (
            f"it has {len(partition.nodes)} of {wanted} replicas"
            if wanted
            else f"it is to be everywhere and node {target} has none"
        )
        return Fix(partition.id, None, target, "few", text)

    def _not_too_many(self, partition: PartitionView) -> Fix | None:
        wanted = self._wanted.get(partition.id, 0)
        here = [n for n in partition.nodes if n in self._state.nodes]
        if not wanted or len(partition.nodes) <= wanted or len(here) <= wanted // 2 + 1:
            return None

        def worth(node: NodeId) -> tuple[object, ...]:
            others = self._views(partition, without=node)
            return (
                shared(self._state.nodes[node], others, self._level_of(partition)),
                bool(partition.preferred) and node not in partition.preferred,
                node != partition.leader,
                self._state.used(node, TRAFFIC) + self._state.used(node, SIZE),
                self._state.used(node, COUNT),
                node,
            )

        victim = max(here, key=worth)
        text = f"it has {len(partition.nodes)} replicas, its table wants {wanted}"
        return Fix(partition.id, victim, None, "many", text)

    def _further_apart(self, partition: PartitionView) -> Fix | None:
        level = self._level_of(partition)
        for node in partition.nodes:
            if node not in self._state.nodes:
                continue
            others = self._views(partition, without=node)
            now = shared(self._state.nodes[node], others, level)
            if not any(now) or now <= self._bound(others, level):
                continue
            target = self._target(partition, without=node)
            if target is None:
                continue
            if shared(self._state.nodes[target], others, level) < now:
                text = f"node {node} fails together with another one that has a replica"
                return Fix(partition.id, node, target, "domain", text)
        return None

    def _to_the_preferred(self, partition: PartitionView) -> Fix | None:
        nodes, level = self._state.nodes, self._level_of(partition)
        for node in partition.nodes if partition.preferred else ():
            if node not in nodes or node in partition.preferred:
                continue
            elsewhere = nodes.keys() - partition.preferred
            target = self._target(partition, without=node, avoid=elsewhere)
            others = self._views(partition, without=node)
            if target is not None and shared(nodes[target], others, level) <= shared(
                nodes[node], others, level
            ):
                text = f"its table prefers node {target} to node {node}"
                return Fix(partition.id, node, target, "leaders", text)
        return None

    def _witness(self, partition: PartitionView) -> Fix | None:
        """One beside an even number of copies. One that the goal does not need goes only when it
        makes the votes even: else a copy less could be lost without it.
        """
        able = self._witnesses.get(partition.id)
        if able is None:
            return None
        living = [n for n in able if n not in self._dead]
        best = next((n for n in (*partition.witnesses, *living) if n in living), None)
        for node in partition.witnesses:
            if node != best and (best is not None or len(partition.nodes) % 2):
                text = f"node {node} is no witness that the table's goal needs"
                return Fix(partition.id, node, None, "witness", text)
        complete = len(partition.nodes) == self._wanted.get(partition.id, 0)
        if best is not None and complete and not partition.witnesses:
            text = f"its copies are in two places: node {best} votes in a third one"
            return Fix(partition.id, None, best, "witness", text)
        return None

    def _away(self, partition: PartitionView) -> Fix | None:
        leave = self._apart.get(partition.id, ())
        for node in partition.nodes:
            if node not in leave:
                continue
            target = self._target(partition, without=node, avoid=leave)
            if target is not None:
                text = f"hot, and half of it was split off: away from node {node}"
                return Fix(partition.id, node, target, "apart", text)
            self._refuse(partition, "apart", node, "no other node may have it")
        return None

    # ------------------------------------------------------------------------------ targets

    def _level_of(self, partition: PartitionView) -> Level:
        return partition.survive or self._level

    def _views(self, partition: PartitionView, *, without: NodeId | None = None) -> list[NodeView]:
        nodes = self._state.nodes
        return [nodes[n] for n in partition.nodes if n != without and n in nodes]

    def _bound(self, others: Collection[NodeView], level: Level) -> tuple[int, ...]:
        """No node can share less than this with them."""
        first = LEVELS.index(level)
        return tuple(
            int(len({other.domains[: i + 1] for other in others}) >= self._domains[i])
            for i in range(first, len(LEVELS))
        )

    def _target(
        self,
        partition: PartitionView,
        *,
        without: NodeId | None = None,
        avoid: Collection[NodeId] = (),
    ) -> NodeId | None:
        """The best node for one more replica, in place of the one at `without`."""
        state, level = self._state, self._level_of(partition)
        others = self._views(partition, without=without)
        loads = (partition.writes, partition.size, 1.0)
        best: tuple[object, ...] | None = None
        found: NodeId | None = None
        for id_ in state.taking:
            node = state.nodes[id_]
            if id_ in partition.nodes or id_ in avoid or may_have(partition, node) is not None:
                continue
            if has_room(state, id_, loads) is not None:
                continue
            key = (
                shared(node, others, level),
                id_ not in partition.preferred,
                state.zone(id_, TRAFFIC),
                state.zone(id_, SIZE),
                state.used(id_, COUNT),
                id_,
            )
            if best is None or key < best:
                best, found = key, id_
        return found

    def _refuse(
        self, partition: PartitionView, rule: str, source: NodeId | None, reason: str
    ) -> None:
        self.refusals.add(Refusal("placement", rule, source, None, partition.id, rule, reason))


def _after(partition: PartitionView, fix: Fix) -> PartitionView:
    if fix.rule == "witness":
        rest = tuple(n for n in partition.witnesses if n != fix.source)
        some = rest if fix.target is None else (*rest, fix.target)
        return replace(partition, witnesses=some)
    if fix.source is not None and fix.target is not None:
        return moved(partition, fix.source, fix.target)
    if fix.target is not None:
        return replace(partition, nodes=(*partition.nodes, fix.target))
    leader = None if partition.leader == fix.source else partition.leader
    return replace(
        partition, nodes=tuple(n for n in partition.nodes if n != fix.source), leader=leader
    )


def beside(
    state: ClusterState, partition: PartitionView, neighbour: PartitionView
) -> list[tuple[NodeId, NodeId]]:
    """Which replicas of a fragment move where, so that it is where its neighbour is (H6)."""
    leaving = [n for n in partition.nodes if n not in neighbour.nodes]
    missing = [n for n in neighbour.nodes if n not in partition.nodes]
    missing.sort(key=lambda node: (node not in state.nodes, node))
    return list(zip(leaving, missing, strict=False))
