"""Moving replicas: nodes come, go, and are replaced, while the partitions serve (F4, F5, F12).

    AddReplicas     {node, partitions?}   every partition (or these) gets a voter on the node
                    check ─▶ children AddReplica ─▶ finish (again, if tables were made meanwhile)
    AddReplica      enter ─▶ make ─▶ learn ─▶ promote ─▶ settle         undo: leave
    RemoveReplicas  {node, partitions?}   check ─▶ children RemoveReplica ─▶ finish
    RemoveReplica   remove ─▶ settle ─▶ leave
    Decommission    {node}                refuse or mark ─▶ children RemoveReplica ─▶ forget

A new replica is a learner until it has caught up, so it never counts for a quorum that it could not
serve (Ongaro's thesis, 4.2.1); consensus refuses the promotion until then, and the step asks again.
Removing the leader of a group hands its leadership over first; that may be the leader that runs
this very procedure, which then goes on at the next master.

The map (partitions.py) names a node before it is a member of the group, and no longer after it was
removed: so reconciling never drops a member's replica, and drops what a removed one left behind.
Every step may run twice: orders to a group that are done already are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kv.base.errors import Busy, InvalidArgument, KvorumError, Refused
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_CALL_MS, MEMBERSHIP_PAUSE_MS
from kv.base.methods import CREATE_PARTITION, DROP_PARTITION
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.procedure import Lock, Outcome, again, children, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.groups import Calls, Groups
from procedures.master.nodes import (
    NodeRow,
    NodeState,
    all_nodes,
    find_node,
    put_node,
    refuse_gone,
)
from procedures.master.partitions import (
    Placed,
    decode_placed,
    map_key,
    placed_partitions,
    put_row,
)
from procedures.master.replica_methods import LEARNER, PROMOTE, REMOVE, GroupView
from txn.results import ScanPage

ADD_REPLICAS: Final = "AddReplicas"
ADD_REPLICA: Final = "AddReplica"
REMOVE_REPLICAS: Final = "RemoveReplicas"
REMOVE_REPLICA: Final = "RemoveReplica"
DECOMMISSION: Final = "Decommission"


@dataclass(frozen=True, slots=True)
class MembershipServices:
    """What these procedures work with."""

    calls: Calls
    groups: Groups


def register(registry: Registry, services: MembershipServices) -> None:
    """Serve the procedures of this module."""
    for cls in (AddReplicas, AddReplica, RemoveReplicas, RemoveReplica, Decommission):
        registry.add(cls, make=_maker(cls, services))


def _maker(cls: type[_Master], services: MembershipServices) -> Callable[[], object]:
    return lambda: cls(services)


class MasterTxn:
    """A step's transaction in the shape that nodes.py and partitions.py want."""

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


class _Master:
    """What the procedures share."""

    def __init__(self, services: MembershipServices) -> None:
        self._calls, self._groups = services.calls, services.groups

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
            return list(placed.descriptor.voters)
        nodes = await all_nodes(MasterTxn(ctx.txn))
        return [row.id for row in nodes if row.state is not NodeState.GONE]

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
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """One call of `name` per partition that has (`there`) or lacks a voter on the node; the
        meta partition last: it is the master's own. Raises Busy: the meta partition does not tell.
        """
        t, node = MasterTxn(ctx.txn), NodeId(ctx.args["node"])
        wanted = _partitions(ctx.args)
        found: list[tuple[str, Mapping[str, Any]]] = []
        for placed in await placed_partitions(t):
            d = placed.descriptor
            has = node in (placed.nodes if there else d.voters)
            if has == there and (wanted is None or d.id in wanted):
                found.append((name, {"partition": d.id, "start": d.start, "node": node}))
        if wanted is None or META_PARTITION in wanted:
            rows = [row.id for row in await all_nodes(t) if row.state is not NodeState.GONE]
            view = await self._groups.leader_view(META_PARTITION, rows)
            if view is None:
                raise Busy(
                    "the meta partition's leader does not answer; trying again",
                    details={"what": "leader", "retry_after_ms": MEMBERSHIP_PAUSE_MS},
                )
            has = node in ((*view.voters, *view.learners) if there else view.voters)
            if has == there:
                found.append((name, {"partition": META_PARTITION, "start": b"", "node": node}))
        return found


def _node_locks(args: Any) -> list[Lock]:
    return [exclusive(f"node/{_node(args)}")]


def _partition_locks(args: Any) -> list[Lock]:
    return [exclusive(f"partition/{args['partition']}")]


def _node(args: Any) -> int:
    """The node in the arguments. Raises InvalidArgument."""
    node = args.get("node") if isinstance(args, Mapping) else None
    if type(node) is not int or node < 1:
        raise InvalidArgument(f"the argument 'node' must be a node's id, got {node!r:.80}")
    return node


def _partitions(args: Mapping[str, Any]) -> list[int] | None:
    """The partitions in the arguments, None = all. Raises InvalidArgument."""
    wanted = args.get("partitions")
    if wanted is None:
        return None
    if not isinstance(wanted, list | tuple) or not all(type(one) is int for one in wanted):
        raise InvalidArgument(f"the argument 'partitions' must list ids, got {wanted!r:.80}")
    return list(wanted)


async def _living(ctx: StepContext) -> NodeRow:
    """The row of the node. Raises NotFound, Refused (NODE_DECOMMISSIONED)."""
    row = await find_node(MasterTxn(ctx.txn), _node(ctx.args))
    refuse_gone(row)
    return row


# ------------------------------------------------------------------ adding


@procedure(ADD_REPLICAS, locks=_node_locks)
class AddReplicas(_Master):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        row = await _living(ctx)
        if row.state is NodeState.LEAVING:
            raise Refused(f"node {row.id} is being decommissioned", code="NODE_LEAVING")
        calls = await self.calls_for(ctx, ADD_REPLICA, there=False)
        ctx.state["added"] = ctx.state.get("added", 0) + len(calls)
        return children(calls, then="check") if calls else go_on("finish")

    @step
    async def finish(self, ctx: StepContext) -> Outcome:
        row = await _living(ctx)
        if row.state is NodeState.JOINING and _partitions(ctx.args) is None:
            put_node(MasterTxn(ctx.txn), replace(row, state=NodeState.MEMBER))
        return done({"node": row.id, "added": ctx.state["added"]})


@procedure(ADD_REPLICA, locks=_partition_locks)
class AddReplica(_Master):
    @step(first=True, undo="leave")
    async def enter(self, ctx: StepContext) -> Outcome:
        """From here on the map names the node: what it makes is not dropped as nobody's."""
        if await self.gone(ctx):
            return done({"dropped": True})
        node = NodeId(ctx.args["node"])
        await self.place(ctx, lambda placed: _with_learner(placed, node))
        return go_on("make")

    @step
    async def make(self, ctx: StepContext) -> Outcome:
        """An empty replica on the node; the meta partition's is made by every node itself."""
        placed = await self.row(ctx)
        if placed is not None:
            node = NodeId(ctx.args["node"])
            row = placed.begins_at(node).to_wire()
            await self._calls.call_at(node, CREATE_PARTITION, [row], budget_ms=MEMBERSHIP_CALL_MS)
        return go_on("learn")

    @step
    async def learn(self, ctx: StepContext) -> Outcome:
        if await self.gone(ctx):
            return done({"dropped": True})
        if await self.order(ctx, LEARNER):
            return go_on("promote")
        return again(delay_ms=MEMBERSHIP_PAUSE_MS)

    @step
    async def promote(self, ctx: StepContext) -> Outcome:
        """Refused by consensus until the learner has caught up."""
        if await self.gone(ctx):
            return done({"dropped": True})
        if await self.order(ctx, PROMOTE):
            return go_on("settle")
        return again(delay_ms=MEMBERSHIP_PAUSE_MS)

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        if await self.gone(ctx):
            return done({"dropped": True})
        node, view = NodeId(ctx.args["node"]), await self.view(ctx)
        if view is None:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        if node not in view.voters:  # a leader fell before the change was committed
            return go_on("learn")
        await self.place(ctx, lambda placed: _with_voter(placed, node))
        return done({"partition": ctx.args["partition"]})

    @undo
    async def leave(self, ctx: StepContext) -> None:
        """Take the learner out again. Raises Busy: try again."""
        if not await self.gone(ctx):
            await _take_out(self, ctx)
        await _drop_at(self._calls, ctx)


# ------------------------------------------------------------------ removing


@procedure(REMOVE_REPLICAS, locks=_node_locks)
class RemoveReplicas(_Master):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        await _others_stay(ctx)
        calls = await self.calls_for(ctx, REMOVE_REPLICA, there=True)
        ctx.state["removed"] = ctx.state.get("removed", 0) + len(calls)
        return children(calls, then="check") if calls else go_on("finish")

    @step
    async def finish(self, ctx: StepContext) -> Outcome:
        return done({"node": ctx.args["node"], "removed": ctx.state["removed"]})


@procedure(REMOVE_REPLICA, locks=_partition_locks)
class RemoveReplica(_Master):
    @step(first=True, point_of_no_return=True)
    async def remove(self, ctx: StepContext) -> Outcome:
        if await self.gone(ctx):
            return done({"dropped": True})
        if await self.order(ctx, REMOVE):
            return go_on("settle")
        return again(delay_ms=MEMBERSHIP_PAUSE_MS)

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        """The map follows once the removal is committed."""
        if await self.gone(ctx):
            return done({"dropped": True})
        node, view = NodeId(ctx.args["node"]), await self.view(ctx)
        if view is None:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        if node in (*view.voters, *view.learners):
            return go_on("remove")
        await self.place(ctx, lambda placed: _without(placed, node))
        return go_on("leave")

    @step
    async def leave(self, ctx: StepContext) -> Outcome:
        await _drop_at(self._calls, ctx)
        return done({"partition": ctx.args["partition"]})


@procedure(DECOMMISSION, locks=_node_locks)
class Decommission(_Master):
    @step(first=True, point_of_no_return=True)
    async def mark(self, ctx: StepContext) -> Outcome:
        row = await find_node(MasterTxn(ctx.txn), _node(ctx.args))
        if row.state is NodeState.GONE:
            return done({"node": row.id, "removed": 0})
        await _others_stay(ctx)
        put_node(MasterTxn(ctx.txn), replace(row, state=NodeState.LEAVING))
        ctx.state["removed"] = 0
        return go_on("remove")

    @step
    async def remove(self, ctx: StepContext) -> Outcome:
        calls = await self.calls_for(ctx, REMOVE_REPLICA, there=True)
        ctx.state["removed"] += len(calls)
        return children(calls, then="remove") if calls else go_on("forget")

    @step
    async def forget(self, ctx: StepContext) -> Outcome:
        """Its row stays for ever: the id is not given out again."""
        row = await find_node(MasterTxn(ctx.txn), ctx.args["node"])
        put_node(MasterTxn(ctx.txn), replace(row, state=NodeState.GONE))
        return done({"node": row.id, "removed": ctx.state["removed"]})


# ------------------------------------------------------------------ helpers


async def _others_stay(ctx: StepContext) -> None:
    """Raises NotFound; Refused (LAST_NODE): its data would be nowhere."""
    node = _node(ctx.args)
    t = MasterTxn(ctx.txn)
    await find_node(t, node)
    rest = [r.id for r in await all_nodes(t) if r.state is NodeState.MEMBER and r.id != node]
    if not rest:
        raise Refused(
            f"node {node} is the last member: its data would be nowhere. Let others join first",
            code="LAST_NODE",
        )


async def _take_out(master: _Master, ctx: StepContext) -> None:
    if not await master.order(ctx, REMOVE):
        raise Busy(
            f"partition {ctx.args['partition']} does not take changes now; trying again",
            details={"what": "membership", "retry_after_ms": MEMBERSHIP_PAUSE_MS},
        )
    node = NodeId(ctx.args["node"])
    await master.place(ctx, lambda placed: _without(placed, node))


async def _drop_at(calls: Calls, ctx: StepContext) -> None:
    """Remove the replica's data. A node that does not answer does it when it reconciles, or never
    comes back; the meta partition stays: it tells the node what it is.
    """
    if ctx.args["partition"] == META_PARTITION:
        return
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


def _with_learner(placed: Placed, node: NodeId) -> Placed:
    return placed if node in placed.nodes else _placed(placed, learners=_add(placed, node))


def _with_voter(placed: Placed, node: NodeId) -> Placed:
    without = _without(placed, node)
    voters = (*without.descriptor.voters, node)
    return _placed(without, voters=voters)


def _without(placed: Placed, node: NodeId) -> Placed:
    d = placed.descriptor
    return _placed(
        placed,
        voters=tuple(n for n in d.voters if n != node),
        learners=tuple(n for n in d.learners if n != node),
    )


def _add(placed: Placed, node: NodeId) -> tuple[NodeId, ...]:
    return (*placed.descriptor.learners, node)


def _placed(
    placed: Placed,
    *,
    voters: Sequence[NodeId] | None = None,
    learners: Sequence[NodeId] | None = None,
) -> Placed:
    d = placed.descriptor
    return placed._replace(
        descriptor=replace(
            d,
            voters=tuple(sorted(d.voters if voters is None else voters)),
            learners=tuple(sorted(d.learners if learners is None else learners)),
        )
    )
