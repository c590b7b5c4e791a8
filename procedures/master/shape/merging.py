"""MergePartitions {left, right}: two neighbours become one, in place (H4; docs/decisions/0510).

    prepare ─▶ meet ─▶ freeze ─▶ gather ─▶ join ─▶ settle
       │undo                              └ point of no return: the left one's log has it
     forgo

`prepare` writes into both rows of the map what is about to happen, before anybody else hears of
it. `meet` waits, while everybody is served, until every replica of the right one is near its end.
Then the right one is frozen by an entry of its log, the sync point: its clients wait. `gather` asks
every node with a replica whether it has applied that entry, durably; `join` has the left one's
leader write the entry that takes the right one in, and everybody who waited hears where its keys
are. `settle` follows with the map.

The time between freeze and join is bounded (MERGE_FREEZE_MS_MAX): if it is over, or anything is
refused for good, `forgo` makes sure, by an entry of the left one's log, that a join that is still
on its way cannot happen any more; then it thaws the right one. Or it finds that the join has
happened, and enters it into the map. So there is one outcome, whatever falls at whatever step.

Both must have replicas at the same nodes: kvorum.move_beside brings them there, which the master
does by itself before the merges that it decides. A dead node keeps partitions from being merged, as
its replica could not follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, NotFound, Refused, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import (
    MERGE_FREEZE_MS_MAX,
    MERGE_LAG_MAX,
    MERGE_LOOK_MS,
    MERGE_MEET_LOOKS_MAX,
    RESHAPE_CALL_MS,
)
from kv.base.wire_row import WireRow
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import Placed, busy_with, delete_rows, put_row
from procedures.master.members.membership import MembershipServices
from procedures.master.members.moves import MasterTxn
from procedures.master.shape.reshape_methods import CANNOT_MERGE
from procedures.master.shape.splitting import id_of, row_of
from procedures.verbs import FREEZE_PARTITION, MERGE_PARTITION, SETTLE_PARTITION, THAW_PARTITION

MERGE_NAME: Final = "kvorum.merge_partitions"
_TABLE_BYTES: Final = 4


def _locks(args: object) -> list[Lock]:
    return [exclusive(f"partition/{id_of(args, side)}") for side in ("left", "right")]


@procedure(
    MERGE_NAME,
    locks=_locks,
    bypass="the map says that the partitions are being merged, the upper one may stand still, and "
    "nobody else would take that back. Abort it; past its join it ends by itself as soon as "
    "a majority of the partitions' nodes is up",
)
class MergePartitions:
    def __init__(self, services: MembershipServices) -> None:
        self._groups = services.groups

    @step(first=True, undo="forgo")
    async def prepare(self, ctx: StepContext) -> Outcome:
        left = await row_of(ctx, id_of(ctx.args, "left"))
        right = await row_of(ctx, id_of(ctx.args, "right"))
        for placed in (left, right):
            if placed.change:
                raise busy_with(placed)
        _check(left, right)
        t = MasterTxn(ctx.txn)
        put_row(t, left._replace(change=("merge", right.descriptor.id)))
        put_row(t, right._replace(change=("merge", left.descriptor.id)))
        d = left.descriptor
        data = [node for node in left.nodes if node not in d.witnesses]
        ctx.state.update(epoch=d.epoch, voters=list(d.data_voters), members=data, looks=0)
        ctx.state.update(row=right.descriptor.to_wire())
        return go_on("meet")

    @step
    async def meet(self, ctx: StepContext) -> Outcome:
        """Nobody is to wait for a replica that lags far, or is down."""
        state, right = ctx.state, id_of(ctx.args, "right")
        view = await self._groups.leader_view(right, state["voters"])
        missing = [*state["members"]]
        if view is not None:
            missing = await self._lagging(right, view.commit_index - MERGE_LAG_MAX, missing)
        if not missing:
            return go_on("freeze")
        state["looks"] += 1
        if state["looks"] > MERGE_MEET_LOOKS_MAX:
            raise Refused(
                f"partition {right} is not merged: its replicas at nodes {missing} are down or far "
                "behind; merge when all have caught up",
                code=CANNOT_MERGE,
            )
        return again(delay_ms=MERGE_LOOK_MS)

    @step
    async def freeze(self, ctx: StepContext) -> Outcome:
        state, right = ctx.state, id_of(ctx.args, "right")
        try:
            epoch = PartitionDescriptor.from_wire(state["row"]).epoch
            index, term = await self._order(ctx, right, FREEZE_PARTITION, right, epoch)
        except (Busy, Unavailable):
            return again(delay_ms=MERGE_LOOK_MS)
        state.update(index=index, term=term, since_ms=ctx.now_ms)
        return go_on("gather")

    @step
    async def gather(self, ctx: StepContext) -> Outcome:
        state, right = ctx.state, id_of(ctx.args, "right")
        missing = await self._lagging(right, state["index"], state["members"])
        if not missing:
            return go_on("join")
        self._check_time(ctx, f"nodes {missing} have not caught up")
        return again(delay_ms=MERGE_LOOK_MS)

    @step(point_of_no_return=True)
    async def join(self, ctx: StepContext) -> Outcome:
        state, left = ctx.state, id_of(ctx.args, "left")
        try:
            (row,) = await self._order(
                *(ctx, left, MERGE_PARTITION, left, state["epoch"], state["row"]),
                *(state["index"], state["term"], state["members"]),
            )
        except (Busy, Unavailable) as error:
            self._check_time(ctx, error.message)
            return again(delay_ms=MERGE_LOOK_MS)
        state["merged"] = row
        return go_on("settle")

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        merged = PartitionDescriptor.from_wire(ctx.state["merged"])
        await _enter(ctx, merged)
        return done({"partition": merged.id, "gone": ctx.args["right"]})

    @undo
    async def forgo(self, ctx: StepContext) -> None:
        """See the module. Raises what keeps it from being known: it is run again."""
        state = ctx.state
        left, right = id_of(ctx.args, "left"), id_of(ctx.args, "right")
        (row,) = await self._order(ctx, left, SETTLE_PARTITION, left, state["epoch"])
        now = PartitionDescriptor.from_wire(row)
        was = PartitionDescriptor.from_wire(state["row"])
        if now.covers(was.start):
            await _enter(ctx, now)
            return
        (row,) = await self._order(ctx, right, THAW_PARTITION, right, was.epoch)
        thawed = PartitionDescriptor.from_wire(row)
        t = MasterTxn(ctx.txn)
        placed = await row_of(ctx, left)
        as_is = replace(placed.descriptor, epoch=now.epoch)
        put_row(t, placed._replace(descriptor=as_is, change=()))
        placed = await row_of(ctx, right)
        as_is = replace(placed.descriptor, epoch=thawed.epoch)
        put_row(t, placed._replace(descriptor=as_is, change=()))

    # ------------------------------------------------------------------ inside

    async def _order(
        self, ctx: StepContext, at: PartitionId, method: int, *args: object
    ) -> WireRow:
        return await self._groups.order(
            at, ctx.state["voters"], method, *args, budget_ms=RESHAPE_CALL_MS
        )

    async def _lagging(self, partition: PartitionId, index: int, nodes: list[int]) -> list[int]:
        """Those of the nodes where that entry is not applied durably, as far as they report."""
        there = await self._groups.caught_up(partition, max(0, index), [NodeId(n) for n in nodes])
        return [node for node in nodes if node not in there]

    @staticmethod
    def _check_time(ctx: StepContext, why: str) -> None:
        took_ms = ctx.now_ms - ctx.state["since_ms"]
        if took_ms > MERGE_FREEZE_MS_MAX:
            raise Refused(
                f"partition {ctx.args['right']} stood still for {took_ms} ms, at most "
                f"{MERGE_FREEZE_MS_MAX}: {why}. Nothing was merged; try again later",
                code=CANNOT_MERGE,
            )


def _check(left: Placed, right: Placed) -> None:
    """Raises Refused."""
    a, b = left.descriptor, right.descriptor
    why = ""
    if a.end != b.start or not a.end:
        why = f"they are no neighbours: {a.id} ends at {a.end[:32]!r}, {b.id} begins at "
        why += f"{b.start[:32]!r}; name the lower one `left`"
    elif a.start[:_TABLE_BYTES] != b.start[:_TABLE_BYTES]:
        why = "they are of two tables"
    elif set(left.nodes) != set(right.nodes) or set(a.witnesses) != set(b.witnesses):
        why = f"their replicas are at nodes {sorted(left.nodes)} and {sorted(right.nodes)}: move "
        why += "them to the same nodes first"
    elif a.shard != b.shard:
        why = f"their rows lie in the storage shards {a.shard!r} and {b.shard!r}"
    elif left.replicas != right.replicas:
        why = f"they want {left.replicas} and {right.replicas} replicas"
    if why:
        raise Refused(
            f"partitions {a.id} and {b.id} cannot be merged: {why}",
            code=CANNOT_MERGE,
            details={"left": a.id, "right": b.id},
        )


async def _enter(ctx: StepContext, merged: PartitionDescriptor) -> None:
    t = MasterTxn(ctx.txn)
    placed = await row_of(ctx, merged.id)
    wide = replace(placed.descriptor, end=merged.end, epoch=merged.epoch)
    put_row(t, placed._replace(descriptor=wide, first=(), first_witnesses=(), change=()))
    try:
        gone = await row_of(ctx, id_of(ctx.args, "right"))
    except NotFound:
        return
    delete_rows(t, [gone.descriptor])


def register(registry: Registry, services: MembershipServices) -> None:
    """Serve it."""
    registry.add(MergePartitions, make=lambda: MergePartitions(services))
