"""AddReplicas and AddReplica: see membership.py."""

from __future__ import annotations

from dataclasses import replace

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Refused
from kv.base.ids import META_PARTITION, NodeId
from kv.base.keys import META_RANGE
from kv.base.limits import MEMBERSHIP_CALL_MS, MEMBERSHIP_PAUSE_MS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from procedures.master.map.nodes import NodeState, all_nodes, find_node, put_node
from procedures.master.map.partitions import hold_new_ones
from procedures.master.map.placement import lacks
from procedures.master.map.replica_methods import LEARNER, PROMOTE, WITNESS
from procedures.master.members.moves import (
    ADD_REPLICA,
    ADD_REPLICAS,
    MasterTxn,
    ReplicaMove,
    drop_at,
    living,
    node_locks,
    partition_locks,
    take_out,
    wanted_partitions,
    with_learner,
    with_voter,
)
from procedures.verbs import CREATE_PARTITION


@procedure(ADD_REPLICAS, locks=node_locks)
class AddReplicas(ReplicaMove):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        row = await living(ctx)
        if row.state is NodeState.LEAVING:
            raise Refused(f"node {row.id} is being decommissioned", code="NODE_LEAVING")
        calls = await self.calls_for(ctx, ADD_REPLICA, there=False)
        ctx.state["added"] = ctx.state.get("added", 0) + len(calls)
        return children(calls, then="check") if calls else go_on("finish")

    @step
    async def finish(self, ctx: StepContext) -> Outcome:
        row = await living(ctx)
        if await self.calls_for(ctx, ADD_REPLICA, there=False):
            return go_on("check")  # a table was made meanwhile
        await hold_new_ones(MasterTxn(ctx.txn))
        if row.state is NodeState.JOINING and wanted_partitions(ctx.args) is None:
            put_node(MasterTxn(ctx.txn), replace(row, state=NodeState.MEMBER))
        return done({"node": row.id, "added": ctx.state["added"]})


@procedure(ADD_REPLICA, locks=partition_locks)
class AddReplica(ReplicaMove):
    @step(first=True, undo="leave")
    async def enter(self, ctx: StepContext) -> Outcome:
        """From here on the map names the node: what it makes is not dropped as nobody's. Of several
        nodes that join at once, some find that others have filled the places.
        """
        if await self.gone(ctx):
            return done({"dropped": True})
        node, placed = NodeId(ctx.args["node"]), await self.row(ctx)
        if "replaces" in ctx.args and placed is not None and node not in placed.nodes:
            nodes = await all_nodes(MasterTxn(ctx.txn))
            if not lacks(placed, nodes, without=ctx.args["replaces"]):
                return done({"enough": True})
        await self.place(ctx, lambda placed: with_learner(placed, node))
        return go_on("make")

    @step
    async def make(self, ctx: StepContext) -> Outcome:
        """An empty replica on the node. The meta partition's is made by every node itself, but for
        one that had to give up a damaged one.
        """
        node, placed = NodeId(ctx.args["node"]), await self.row(ctx)
        begins = None if placed is None else placed.begins_at(node)
        if ctx.args["partition"] == META_PARTITION:
            begins = PartitionDescriptor(META_PARTITION, *META_RANGE, 1, (), ())
        if begins is not None:
            row = begins.to_wire()
            await self._calls.call_at(node, CREATE_PARTITION, [row], budget_ms=MEMBERSHIP_CALL_MS)
        return go_on("learn")

    @step
    async def learn(self, ctx: StepContext) -> Outcome:
        if await self.gone(ctx):
            return done({"dropped": True})
        if await self.is_witness(ctx):
            return go_on("settle") if await self.order(ctx, WITNESS) else _soon()
        if await self.order(ctx, LEARNER):
            return go_on("promote")
        return _soon()

    @step
    async def promote(self, ctx: StepContext) -> Outcome:
        """Refused by consensus until the learner has caught up."""
        if await self.gone(ctx):
            return done({"dropped": True})
        if await self.order(ctx, PROMOTE):
            return go_on("settle")
        view = await self.view(ctx)
        if view is not None and ctx.args["node"] not in (*view.voters, *view.learners):
            return go_on("learn")  # a leader fell before the learner was committed
        return _soon()

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        if await self.gone(ctx):
            return done({"dropped": True})
        node, view = NodeId(ctx.args["node"]), await self.view(ctx)
        if view is None:
            return _soon()
        if node not in view.voters:  # a leader fell before the change was committed
            return go_on("learn")
        witness = node in view.witnesses
        await self.place(ctx, lambda placed: with_voter(placed, node, witness=witness))
        return done({"partition": ctx.args["partition"]})

    @staticmethod
    async def is_witness(ctx: StepContext) -> bool:
        return (await find_node(MasterTxn(ctx.txn), ctx.args["node"])).witness

    @undo
    async def leave(self, ctx: StepContext) -> None:
        """Take the learner out again. Raises Busy: try again."""
        if not await self.gone(ctx):
            await take_out(self, ctx)
        await drop_at(self._calls, ctx)


def _soon() -> Outcome:
    return again(delay_ms=MEMBERSHIP_PAUSE_MS)
