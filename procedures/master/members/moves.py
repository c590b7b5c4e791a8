"""What the procedures that move replicas share: their services, a partition's row of the map,
orders to its group, and which partitions a node has or lacks. The procedures are in adding.py and
removing.py; membership.py tells the story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kv.base.errors import Busy, InvalidArgument, KvorumError, Refused
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_CALL_MS, MEMBERSHIP_MOVES_MAX, MEMBERSHIP_PAUSE_MS
from kv.base.node_methods import NodesById
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.procedure import Lock, exclusive
from procedures.master.balancing.model import Level
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import NodeRow, NodeState, all_nodes, find_node, refuse_gone
from procedures.master.map.partitions import (
    Placed,
    decode_placed,
    map_key,
    placed_partitions,
    put_row,
)
from procedures.master.map.placement import candidates, carries, lacks, one_more
from procedures.master.map.replica_methods import REMOVE, GroupView
from procedures.verbs import DROP_PARTITION
from txn.results import ScanPage

ADD_REPLICAS: Final = "AddReplicas"
ADD_REPLICA: Final = "AddReplica"
REMOVE_REPLICAS: Final = "RemoveReplicas"
REMOVE_REPLICA: Final = "RemoveReplica"
DECOMMISSION: Final = "Decommission"


@dataclass(frozen=True, slots=True)
class MembershipServices:
    """What these procedures work with."""

    calls: NodesById
    groups: Groups
    level: Callable[[], Level] = lambda: "server"
    """What two replicas must not share."""


class MasterTxn:
    """A step's transaction in the shape that procedures/master/map/nodes.py and
    procedures/master/map/partitions.py want."""

    def __init__(self, txn: StepTxn) -> None:
        self._txn = txn

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        row = await self._txn.get(key)
        return (None, 0) if row is None else (row.value, row.version)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        return await self._txn.scan(start, end, limit=limit)

    def put(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value)

    def delete(self, key: bytes) -> None:
        self._txn.delete(key)


class ReplicaMove:
    """What the procedures share."""

    def __init__(self, services: MembershipServices) -> None:
        self._calls, self._groups = services.calls, services.groups
        self._level = services.level

    # ------------------------------------------------------------------ one partition

    @staticmethod
    async def row(ctx: StepContext) -> Placed | None:
        """The partition's row of the map; None if it is gone, or is the meta partition's."""
        key = map_key(ctx.args["start"])
        value, _ = await MasterTxn(ctx.txn).get(key)
        if value is None or ctx.args["partition"] == META_PARTITION:
            return None
        placed = decode_placed(key, value)
        return placed if placed.descriptor.id == ctx.args["partition"] else None

    async def gone(self, ctx: StepContext) -> bool:
        """Whether the partition was dropped meanwhile."""
        return ctx.args["partition"] != META_PARTITION and await self.row(ctx) is None

    async def place(self, ctx: StepContext, change: Callable[[Placed], Placed]) -> None:
        """Change the row of the map, if there is one and it is not as wanted already."""
        placed = await self.row(ctx)
        if placed is not None and (wanted := change(placed)) != placed:
            put_row(MasterTxn(ctx.txn), wanted)

    async def candidates(self, ctx: StepContext) -> list[NodeId]:
        """Who may lead the partition."""
        placed = await self.row(ctx)
        if placed is not None:
            return list(placed.descriptor.data_voters)
        nodes = await all_nodes(MasterTxn(ctx.txn))
        return [row.id for row in nodes if row.state is not NodeState.GONE and not row.witness]

    async def order(self, ctx: StepContext, change: str) -> bool:
        """Order a change of the group; False if it must be asked for again in a moment."""
        args = ctx.args
        try:
            await self._groups.change(
                PartitionId(args["partition"]),
                change,
                NodeId(args["node"]),
                await self.candidates(ctx),
            )
        except Busy:
            return False
        return True

    async def view(self, ctx: StepContext) -> GroupView | None:
        """How the partition's leader sees it, once its configuration is committed."""
        candidates = await self.candidates(ctx)
        found = await self._groups.leader_view(PartitionId(ctx.args["partition"]), candidates)
        return found if found is not None and found.settled else None

    # ------------------------------------------------------------------ several partitions

    async def calls_for(
        self, ctx: StepContext, name: str, *, there: bool
    ) -> list[tuple[str, Mapping[str, object]]]:
        """One call of `name` per partition that has (`there`) a replica on the node, or lacks a
        voter there; of many only the first ones: ask again when those are done.

        New partitions are placed where the meta partition has its voters: so it is left first and
        entered last, and what is made meanwhile is found when this is asked again. Raises Busy: the
        meta partition does not say.
        """
        t, node = MasterTxn(ctx.txn), NodeId(ctx.args["node"])
        wanted = wanted_partitions(ctx.args)
        nodes = await all_nodes(t)
        tags = next((row.tags for row in nodes if row.id == node), ())
        found: list[tuple[str, Mapping[str, object]]] = []
        for placed in await placed_partitions(t):
            d = placed.descriptor
            has = node in (placed.nodes if there else d.voters)
            if has != there or not (wanted is None or d.id in wanted):
                continue
            if not there and not carries(tags, placed.tags):
                continue
            args: dict[str, object] = {"partition": d.id, "start": d.start, "node": node}
            if placed.replicas and not there and wanted is None:
                args["replaces"] = 0
                if not (node in d.learners or _fills(placed, nodes, node)):
                    continue
            found.append((name, args))
        del found[MEMBERSHIP_MOVES_MAX:]
        if (found and not there) or (wanted is not None and META_PARTITION not in wanted):
            return found
        if await self._has_meta(t, node, there=there) == there:
            return [(name, {"partition": META_PARTITION, "start": b"", "node": node})]
        return found

    async def stand_ins(self, ctx: StepContext) -> list[tuple[str, Mapping[str, object]]]:
        """Calls that give other nodes what this one is about to lose, of tables that want a number
        of replicas; none when that is done, or when there are no other nodes.
        """
        t, node = MasterTxn(ctx.txn), NodeId(ctx.args["node"])
        wanted, nodes, rows = (
            wanted_partitions(ctx.args),
            await all_nodes(t),
            await placed_partitions(t),
        )
        leaving = [
            placed
            for placed in rows
            if node in placed.nodes
            and (wanted is None or placed.descriptor.id in wanted)
            and lacks(placed, nodes, without=node)
        ][:MEMBERSHIP_MOVES_MAX]
        if not leaving:
            return []
        answering = await self._groups.views([row.id for row in nodes if row.id != node])
        among = [one for one in candidates(nodes, rows, answering.__contains__) if one.node != node]
        asked = [(placed.nodes, placed.wants) for placed in leaving]
        chosen = one_more(asked, among, self._level())
        return [
            (
                ADD_REPLICA,
                {
                    "partition": placed.descriptor.id,
                    "start": placed.descriptor.start,
                    "node": target,
                    "replaces": node,
                },
            )
            for placed, target in zip(leaving, chosen, strict=True)
            if target is not None
        ]

    async def refuse_last_copies(self, ctx: StepContext) -> None:
        """Raises Refused (LAST_COPY) if a node that does not answer has the only copy of
        something: nobody could fetch it.
        """
        node = NodeId(ctx.args["node"])
        rows = await placed_partitions(MasterTxn(ctx.txn))
        alone = [p.descriptor.id for p in rows if p.descriptor.data_voters == (node,)]
        if alone and await self._groups.leader_view(alone[0], [node]) is None:
            raise Refused(
                f"node {node} does not answer and has the only copy of {len(alone)} partitions, "
                f"among them partition {alone[0]}: bring it back first, or drop their tables",
                code="LAST_COPY",
                details={"node": node, "partitions": alone[:MEMBERSHIP_MOVES_MAX]},
            )

    async def _has_meta(self, t: MasterTxn, node: NodeId, *, there: bool) -> bool:
        rows = [row.id for row in await all_nodes(t) if row.state is not NodeState.GONE]
        view = await self._groups.leader_view(META_PARTITION, rows)
        if view is None:
            raise Busy(
                "the meta partition's leader does not answer; trying again",
                details={"what": "leader", "retry_after_ms": MEMBERSHIP_PAUSE_MS},
            )
        return node in ((*view.voters, *view.learners) if there else view.voters)


def _fills(placed: Placed, nodes: Sequence[NodeRow], node: NodeId) -> bool:
    """Whether a node that joins takes a place that the partition has to give."""
    keeps = any(row.id == node and not row.witness for row in nodes)
    return keeps and lacks(placed, nodes)


def node_locks(args: object) -> list[Lock]:
    return [exclusive(f"server/{node_of(args)}")]


def partition_locks(args: Any) -> list[Lock]:
    return [exclusive(f"partition/{args['partition']}")]


def node_of(args: object) -> int:
    """The node in the arguments. Raises InvalidArgument."""
    node = args.get("node") if isinstance(args, Mapping) else None
    if type(node) is not int or node < 1:
        raise InvalidArgument(f"the argument 'node' must be a node's id, got {node!r:.80}")
    return node


def wanted_partitions(args: Mapping[str, object]) -> list[int] | None:
    """The partitions in the arguments, None = all. Raises InvalidArgument."""
    wanted = args.get("partitions")
    if wanted is None:
        return None
    if not isinstance(wanted, list | tuple) or not all(type(one) is int for one in wanted):
        raise InvalidArgument(f"the argument 'partitions' must list ids, got {wanted!r:.80}")
    return list(wanted)


async def living(ctx: StepContext) -> NodeRow:
    """The row of the node. Raises NotFound, Refused (NODE_DECOMMISSIONED)."""
    row = await find_node(MasterTxn(ctx.txn), node_of(ctx.args))
    refuse_gone(row)
    return row


async def others_stay(ctx: StepContext) -> None:
    """Raises NotFound; Refused (LAST_NODE: its data would be nowhere; TOO_MANY_WITNESSES)."""
    node = node_of(ctx.args)
    t = MasterTxn(ctx.txn)
    await find_node(t, node)
    rest = [r for r in await all_nodes(t) if r.state is NodeState.MEMBER and r.id != node]
    data = [row.id for row in rest if not row.witness]
    if data and len(data) <= len(rest) - len(data):
        raise Refused(
            f"without node {node} there would be as many witnesses as nodes with data {data}, and "
            "a majority could have no data at all: decommission a witness first",
            code="TOO_MANY_WITNESSES",
        )
    if not data:
        raise Refused(
            f"node {node} is the last member: its data would be nowhere. Let others join first",
            code="LAST_NODE",
        )


async def take_out(master: ReplicaMove, ctx: StepContext) -> None:
    """The map follows once the removal is committed: a leader that falls before may have been the
    only one who knew of it. Raises Busy: try again.
    """
    node = NodeId(ctx.args["node"])
    view = await master.view(ctx) if await master.order(ctx, REMOVE) else None
    if view is None or node in (*view.voters, *view.learners):
        raise Busy(
            f"partition {ctx.args['partition']} does not take changes now; trying again",
            details={"what": "membership", "retry_after_ms": MEMBERSHIP_PAUSE_MS},
        )
    await master.place(ctx, lambda placed: removed(placed, node))


async def drop_at(calls: NodesById, ctx: StepContext) -> None:
    """Remove the replica's data. A node that does not answer does it when it reconciles, or never
    comes back; the meta partition stays unless it is damaged: from it the node knows what it is.
    """
    try:
        await calls.call_at(
            ctx.args["node"],
            DROP_PARTITION,
            [ctx.args["partition"]],
            budget_ms=MEMBERSHIP_CALL_MS,
        )
    except KvorumError as error:
        if error.disposition == "no":
            raise


def with_learner(placed: Placed, node: NodeId) -> Placed:
    return placed if node in placed.nodes else _placed(placed, learners=_add(placed, node))


def with_voter(placed: Placed, node: NodeId, *, witness: bool = False) -> Placed:
    rest = without(placed, node)
    d = rest.descriptor
    some = tuple(sorted((*d.witnesses, node))) if witness else d.witnesses
    return _placed(rest, voters=(*d.voters, node), witnesses=some)


def without(placed: Placed, node: NodeId) -> Placed:
    d = placed.descriptor
    return _placed(
        placed,
        voters=tuple(n for n in d.voters if n != node),
        learners=tuple(n for n in d.learners if n != node),
        witnesses=tuple(n for n in d.witnesses if n != node),
    )


def removed(placed: Placed, node: NodeId) -> Placed:
    """Without a node that votes no more. If it comes back, it comes with an empty log: begun as a
    first voter, it could elect itself among the first ones, who may have been it alone. So from now
    on nobody begins as one; a first voter that makes its replica as late as this finds the
    configuration in the log, which has one by now.
    """
    return without(placed, node)._replace(first=(), first_witnesses=())


def _add(placed: Placed, node: NodeId) -> tuple[NodeId, ...]:
    return (*placed.descriptor.learners, node)


def _placed(
    placed: Placed,
    *,
    voters: Sequence[NodeId] | None = None,
    learners: Sequence[NodeId] | None = None,
    witnesses: Sequence[NodeId] | None = None,
) -> Placed:
    d = placed.descriptor
    return placed._replace(
        descriptor=replace(
            d,
            voters=tuple(sorted(d.voters if voters is None else voters)),
            learners=tuple(sorted(d.learners if learners is None else learners)),
            witnesses=tuple(sorted(d.witnesses if witnesses is None else witnesses)),
        )
    )
