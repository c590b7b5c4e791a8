"""SplitPartition {partition, key? | at?}: cut a partition in two, in place (H2;
docs/decisions/0509). `key` is a storage key, `at` the same without its table; without either the
partition's leader says where its middle is.

    prepare ─▶ cut ─▶ follow ─▶ settle
       │undo    └ point of no return: the partition's log has it
     forgo

`prepare` chooses the key (the leader's samples know the middle) and the id of the new partition,
and writes both into the row of the map, before anybody else hears of them. `cut` orders the split
at the partition's leader, as often as it takes: its log is the truth, and says the same however
often it is asked. `follow` waits until enough nodes have applied the entry, durably: where it is
not applied, the rows of the new partition are rows of the old one, and go with it should it be
moved away; nobody moves it while the map says that it is being split. A majority will do, so a node
that is down holds up nothing. `settle` follows with both rows of the map in one transaction. Until
then clients find the new partition by asking nodes, which know it from the moment of the entry.

The members of a partition do not change meanwhile: whoever changes them holds the same lock. A
table is not dropped meanwhile (`partitions_of`); one that was dropped before is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, InvalidArgument, NotFound, Refused, Unavailable
from kv.base.ids import META_PARTITION, PartitionId
from kv.base.limits import (
    MEMBERSHIP_PAUSE_MS,
    RESHAPE_CALL_MS,
    SPLIT_FOLLOW_LOOK_MS,
    SPLIT_FOLLOW_LOOKS,
)
from kv.base.methods import SPLIT_POINT
from kv.base.wire_row import WireRow
from kv.partition.shapes import BORN
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import (
    Placed,
    busy_with,
    new_partition_id,
    placed_partitions,
    put_row,
)
from procedures.master.members.membership import MembershipServices
from procedures.master.members.moves import MasterTxn
from procedures.verbs import SETTLE_PARTITION, SPLIT_PARTITION

SPLIT_NAME: Final = "kvorum.split_partition"
CANNOT_SPLIT: Final = "CANNOT_SPLIT"
_TABLE_BYTES: Final = 4
_BORN: Final = BORN[0]
NOT_FOUND: Final = "PARTITION_NOT_FOUND"


def id_of(args: object, name: str) -> PartitionId:
    """A partition's id in the arguments. Raises InvalidArgument."""
    found = args.get(name) if isinstance(args, Mapping) else None
    if type(found) is not int or found < 1:
        raise InvalidArgument(f"the argument {name!r} must be a partition's id, got {found!r:.80}")
    return PartitionId(found)


async def row_of(ctx: StepContext, partition: PartitionId) -> Placed:
    """Its row of the map. Raises NotFound, Refused."""
    if partition == META_PARTITION:
        raise Refused("the meta partition is neither split nor merged", code=CANNOT_SPLIT)
    for placed in await placed_partitions(MasterTxn(ctx.txn)):
        if placed.descriptor.id == partition:
            return placed
    raise NotFound(f"there is no partition {partition}", code=NOT_FOUND)


def _locks(args: object) -> list[Lock]:
    return [exclusive(f"partition/{id_of(args, 'partition')}")]


@procedure(
    SPLIT_NAME,
    locks=_locks,
    bypass="the map says that the partition is being split, and nobody else would take that back: "
    "no replica of it could be moved any more. Abort it; past its cut it ends by itself as soon as "
    "a majority of the partition's nodes is up",
)
class SplitPartition:
    def __init__(self, services: MembershipServices) -> None:
        self._groups = services.groups

    @step(first=True, undo="forgo")
    async def prepare(self, ctx: StepContext) -> Outcome:
        partition = id_of(ctx.args, "partition")
        placed = await row_of(ctx, partition)
        if placed.change:
            raise busy_with(placed)
        key = await self._key(ctx, placed)
        new = await new_partition_id(MasterTxn(ctx.txn))
        put_row(MasterTxn(ctx.txn), placed._replace(change=("split", new, key)))
        d = placed.descriptor
        ctx.state.update(key=key, new=new, voters=list(d.data_voters), epoch=d.epoch)
        return go_on("cut")

    async def _key(self, ctx: StepContext, placed: Placed) -> bytes:
        d = placed.descriptor
        key, at = ctx.args.get("key"), ctx.args.get("at")
        if at is not None:
            if not isinstance(at, bytes | str):
                raise InvalidArgument(f"the argument 'at' must be a user's key, got {at!r:.80}")
            key = d.start[:_TABLE_BYTES] + (at.encode() if isinstance(at, str) else at)
        if key is None:
            (key,) = await self._groups.order(d.id, d.data_voters, SPLIT_POINT, d.id, "middle")
            if key is None:
                raise Refused(
                    f"partition {d.id} has too little in it to find its middle: say at which key",
                    code=CANNOT_SPLIT,
                )
        if not isinstance(key, bytes):
            raise InvalidArgument(f"the argument 'key' must be a storage key, got {key!r:.80}")
        if not d.covers(key) or key == d.start:
            raise Refused(
                f"key {key[:64]!r} does not lie inside partition {d.id}, above its first key",
                code=CANNOT_SPLIT,
                details={"key": key, "start": d.start, "end": d.end},
            )
        return key

    @step(point_of_no_return=True)
    async def cut(self, ctx: StepContext) -> Outcome:
        """Ask until it is known to be done. Raises Refused: it cannot be done."""
        try:
            left, right = await self._order(ctx)
        except (Busy, Unavailable):
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        ctx.state.update(left=left, right=right)
        return go_on("follow")

    async def _order(self, ctx: StepContext) -> WireRow:
        state, partition = ctx.state, id_of(ctx.args, "partition")
        return await self._groups.order(
            *(partition, state["voters"], SPLIT_PARTITION),
            *(partition, state["key"], state["new"], state["epoch"]),
            budget_ms=RESHAPE_CALL_MS,
        )

    @step
    async def follow(self, ctx: StepContext) -> Outcome:
        """See the module. Where a group has witnesses, too few nodes may have data to be so many:
        those are waited for a while.
        """
        if await self._there(ctx.state["right"], sure=ctx.round <= SPLIT_FOLLOW_LOOKS):
            return go_on("settle")
        return again(delay_ms=min(SPLIT_FOLLOW_LOOK_MS * ctx.round, MEMBERSHIP_PAUSE_MS))

    async def _there(self, row: list[object], *, sure: bool) -> bool:
        """Whether enough nodes have the new partition; `sure`: of those with data alone."""
        new = PartitionDescriptor.from_wire(row)
        data = new.data_voters
        least = len(data) // 2 + 1 if sure else _least(new)
        return len(await self._groups.caught_up(new.id, _BORN, data)) >= least

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        left, right = map(PartitionDescriptor.from_wire, (ctx.state["left"], ctx.state["right"]))
        await self._enter(ctx, left, right)
        return done({"partition": left.id, "new": right.id, "key": right.start})

    @staticmethod
    async def _enter(
        ctx: StepContext, left: PartitionDescriptor, right: PartitionDescriptor
    ) -> None:
        t, placed = MasterTxn(ctx.txn), await row_of(ctx, left.id)
        short = replace(placed.descriptor, end=right.start, epoch=left.epoch)
        put_row(t, placed._replace(descriptor=short, change=()))
        right = replace(right, shard=short.shard)
        put_row(t, placed._replace(descriptor=right, first=(), first_witnesses=(), change=()))

    @undo
    async def forgo(self, ctx: StepContext) -> None:
        """It was refused, or somebody aborted it: see to it that no order that is still on its way
        splits the partition, and let the map say what the partition's log says. Raises Busy.
        """
        partition = id_of(ctx.args, "partition")
        (row,) = await self._groups.order(
            *(partition, ctx.state["voters"], SETTLE_PARTITION),
            *(partition, ctx.state["epoch"]),
            budget_ms=RESHAPE_CALL_MS,
        )
        left = PartitionDescriptor.from_wire(row)
        if left.end == ctx.state["key"]:
            row = (await self._order(ctx))[1]
            if not await self._there(row, sure=False):
                raise Busy(
                    f"partition {partition} was split before that was to be undone, and too few "
                    "nodes have applied it; trying again",
                    details={"what": "reshaping", "retry_after_ms": MEMBERSHIP_PAUSE_MS},
                )
            await self._enter(ctx, left, PartitionDescriptor.from_wire(row))
            return
        placed = await row_of(ctx, partition)
        as_is = replace(placed.descriptor, epoch=left.epoch)
        put_row(MasterTxn(ctx.txn), placed._replace(descriptor=as_is, change=()))


def _least(new: PartitionDescriptor) -> int:
    """How many nodes with data make a majority of its voters, if all witnesses join them."""
    return max(1, len(new.voters) // 2 + 1 - len(new.witnesses))


def register(registry: Registry, services: MembershipServices) -> None:
    """Serve it."""
    registry.add(SplitPartition, make=lambda: SplitPartition(services))
