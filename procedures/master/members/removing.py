"""RemoveReplicas, RemoveReplica and Decommission: see membership.py."""

from __future__ import annotations

from dataclasses import replace

from kv.base.ids import NodeId
from kv.base.limits import MEMBERSHIP_PAUSE_MS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step
from procedures.master.map.nodes import NodeState, find_node, put_node
from procedures.master.map.partitions import hold_new_ones
from procedures.master.map.replica_methods import REMOVE
from procedures.master.members.moves import (
    DECOMMISSION,
    REMOVE_REPLICA,
    REMOVE_REPLICAS,
    MasterTxn,
    ReplicaMove,
    drop_at,
    node_locks,
    node_of,
    others_stay,
    partition_locks,
    removed,
)


@procedure(REMOVE_REPLICAS, locks=node_locks)
class RemoveReplicas(ReplicaMove):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        await others_stay(ctx)
        await self.refuse_last_copies(ctx)
        if ahead := await self.stand_ins(ctx):
            return children(ahead, then="check")
        calls = await self.calls_for(ctx, REMOVE_REPLICA, there=True)
        ctx.state["removed"] = ctx.state.get("removed", 0) + len(calls)
        if calls:
            return children(calls, then="check")
        # not in a step of its own: one that failed would say of what happened that it did not
        return done({"node": ctx.args["node"], "removed": ctx.state["removed"]})


@procedure(REMOVE_REPLICA, locks=partition_locks)
class RemoveReplica(ReplicaMove):
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
        await self.place(ctx, lambda placed: removed(placed, node))
        return go_on("leave")

    @step
    async def leave(self, ctx: StepContext) -> Outcome:
        await drop_at(self._calls, ctx)
        return done({"partition": ctx.args["partition"]})


@procedure(DECOMMISSION, locks=node_locks)
class Decommission(ReplicaMove):
    @step(first=True, point_of_no_return=True)
    async def mark(self, ctx: StepContext) -> Outcome:
        row = await find_node(MasterTxn(ctx.txn), node_of(ctx.args))
        if row.state is NodeState.GONE:
            return done({"node": row.id, "removed": 0})
        await others_stay(ctx)
        await self.refuse_last_copies(ctx)
        put_node(MasterTxn(ctx.txn), replace(row, state=NodeState.LEAVING))
        ctx.state["removed"] = 0
        return go_on("remove")

    @step
    async def remove(self, ctx: StepContext) -> Outcome:
        if ahead := await self.stand_ins(ctx):
            return children(ahead, then="remove")
        calls = await self.calls_for(ctx, REMOVE_REPLICA, there=True)
        ctx.state["removed"] += len(calls)
        return children(calls, then="remove") if calls else go_on("forget")

    @step
    async def forget(self, ctx: StepContext) -> Outcome:
        """Its row stays for ever: the id is not given out again."""
        if await self.calls_for(ctx, REMOVE_REPLICA, there=True):
            return go_on("remove")  # a table was made meanwhile
        await hold_new_ones(MasterTxn(ctx.txn))
        row = await find_node(MasterTxn(ctx.txn), ctx.args["node"])
        put_node(MasterTxn(ctx.txn), replace(row, state=NodeState.GONE))
        return done({"node": row.id, "removed": ctx.state["removed"]})
