"""What only the master can do for a restore, as procedures of their own: `kvorum.restore` asks for
them wherever it runs.

    kvorum.restore_ranges  {ranges: [[id, epoch, [split key, …], the fields of
                           kv.base.placement.Placement], …]}
                           the partitions of tables and indexes under the ids of the backup; those
                           that are there already stay as they are. No table gets such an id any
                           more, and one that has it is refused
        reserve ──→ create         undo: release, drop
    kvorum.restore_clean   {ids}   the partitions of these ids that no table has
        find ──→ close ──→ drop
    kvorum.restore_work    {what, …}
        "ids"    at                    no procedure gets an id up to this one any more
        "above"  at                    the oracle hands out nothing at or below `at` any more
        "past"   ids                   nothing older than now is read in these tables any more
        "anew"   reign                 the executor takes in what is in the store, in order

Partitions begin with an epoch above those of the backup: a client that knew the old cluster's map
and meets the new one learns that it moved.

`anew` ends the reign of this very executor; the next one resumes the procedure, finds another reign
in the store, and is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from kv.base import system
from kv.base.checksum import intact, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, Corruption, InvalidArgument, KvorumError, Refused
from kv.base.ids import FIRST_USER_TABLE, PartitionId, TableId
from kv.base.keys import escape, from_u64, table_prefix, u64
from kv.base.limits import TRANSFER_RANGES_MAX
from kv.base.placement import Placement, is_goal
from kv.base.shards import is_shard
from kv.base.wire_row import WireRow
from kvorum.transfer.services import LATER
from procedures.engine.context import StepContext
from procedures.engine.grants import REIGN
from procedures.engine.procedure import Outcome, again, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import (
    COUNTER_PARTITION,
    EVERYWHERE,
    FIRST_PARTITION,
    delete_rows,
    placed_of,
    plan,
    put_rows,
)
from sqlproxy.catalog import catalog
from sqlproxy.ddl.steps import CatalogTxn, DdlServices, RangeProcedure

RANGES: Final = "kvorum.restore_ranges"
CLEAN: Final = "kvorum.restore_clean"
WORK: Final = "kvorum.restore_work"
_PROCEDURES: Final = table_prefix(system.COUNTERS) + escape(b"procedure")
_AGAIN_MS: Final = 200
_FIELDS: Final = 3 + len(Placement._fields)


@dataclass(frozen=True, slots=True)
class Range:
    """One table or index: its id, the epoch of its partitions, where they are cut (user keys)."""

    id: int
    epoch: int
    cuts: tuple[bytes, ...]
    placement: Placement = EVERYWHERE

    def to_plain(self) -> list[object]:
        replicas, tags, *rest = self.placement
        return [self.id, self.epoch, list(self.cuts), replicas, list(tags), *rest]

    @staticmethod
    def of(row: object) -> Range:
        """Raises InvalidArgument. (A restore that began before there were shards or goals names
        none.)
        """
        if isinstance(row, list) and len(row) <= _FIELDS:
            row = [*row, "", "", ""][:_FIELDS]
        match row:
            case [
                int(id),
                int(epoch),
                list(cuts),
                int(replicas),
                list(tags),
                int(most),
                str(shard),
                str(survive),
                str(leaders),
            ] if (
                is_shard(shard)
                and is_goal(survive)
                and id >= FIRST_USER_TABLE
                and all(isinstance(cut, bytes) for cut in cuts)
            ):
                wanted = Placement(replicas, tuple(tags), most, shard, survive, leaders)
                return Range(id, epoch, tuple(cuts), wanted)
        raise InvalidArgument(f"{row!r:.80} is no range of a restore")


@procedure(RANGES)
class RestoreRanges(RangeProcedure):
    """ctx.state: partitions."""

    @step(first=True, undo="release")
    async def reserve(self, ctx: StepContext) -> Outcome:
        given = ctx.args.get("ranges") if isinstance(ctx.args, dict) else None
        if not isinstance(given, list) or len(given) > TRANSFER_RANGES_MAX:
            raise InvalidArgument(f"ranges must be a list of at most {TRANSFER_RANGES_MAX}")
        t = await CatalogTxn.of(ctx)
        found: list[PartitionDescriptor] = []
        for wanted in map(Range.of, given):
            owner = await catalog.find_owner(t, TableId(wanted.id))
            if owner is not None:
                raise Refused(
                    f"table {owner.path} was made while the restore ran, under an id of the backup:"
                    " drop it, and let nobody be connected meanwhile",
                    code="CLUSTER_NOT_EMPTY",
                )
            if await placed_of(t, TableId(wanted.id)):
                continue  # an earlier attempt made them
            count = len(wanted.cuts) + 1
            first = await catalog.next_id(t, COUNTER_PARTITION, count=count, first=FIRST_PARTITION)
            ids = [PartitionId(first + i) for i in range(count)]
            places = await self.maker.places(t, ids, wanted.placement)
            shard = wanted.placement.shard
            planned = plan(TableId(wanted.id), wanted.cuts, first, places, shard)
            made = [replace(descriptor, epoch=wanted.epoch) for descriptor in planned]
            put_rows(t, made, wanted.placement)
            found += made
        following = await catalog.next_id(t, catalog.COUNTER_TABLE, count=0, first=FIRST_USER_TABLE)
        if (after := max((one[0] for one in given), default=0) + 1) > following:
            await catalog.next_id(
                t, catalog.COUNTER_TABLE, count=after - following, first=FIRST_USER_TABLE
            )
        ctx.state["partitions"] = [descriptor.to_wire() for descriptor in found]
        return go_on("create")

    @step(undo="drop_partitions", undo_partial=True)
    async def create(self, ctx: StepContext) -> Outcome:
        await self.maker.create(self.stored(ctx))
        return done({"partitions": len(ctx.state["partitions"])})

    @undo
    async def drop_partitions(self, ctx: StepContext) -> None:
        await self.maker.drop(self.stored(ctx))

    @undo
    async def release(self, ctx: StepContext) -> None:
        delete_rows(await CatalogTxn.of(ctx), self.stored(ctx))


@procedure(CLEAN)
class RestoreClean(RangeProcedure):
    """ctx.state: ids, partitions."""

    @step(first=True, point_of_no_return=True)
    async def find(self, ctx: StepContext) -> Outcome:
        given = ctx.args.get("ids") if isinstance(ctx.args, dict) else None
        if not isinstance(given, list) or not all(type(id) is int for id in given):
            raise InvalidArgument(f"ids must be a list of ids of tables, got {given!r:.80}")
        t = await CatalogTxn.of(ctx)
        stray: list[int] = []
        for number in given:
            if number >= FIRST_USER_TABLE and await catalog.find_owner(t, TableId(number)) is None:
                stray.append(number)
        ctx.state["ids"] = stray
        ctx.state["partitions"] = [d.to_wire() for d in await self.mapped(t, stray)]
        return go_on("close")

    @step
    async def close(self, ctx: StepContext) -> Outcome:
        return await self.closed(ctx, ctx.state["ids"], then="drop")

    @step
    async def drop(self, ctx: StepContext) -> Outcome:
        await self.maker.drop(self.stored(ctx))
        return done({"partitions": len(ctx.state["partitions"])})


@dataclass(frozen=True, slots=True)
class MasterPorts:
    """`skip(at)`: the oracle goes on above; `now()`: a timestamp; `raise_at(node, partitions, at)`:
    RAISE_SAFEPOINT of a node; `renew()`: the reign begins anew.
    """

    skip: Callable[[int], None]
    now: Callable[[], Awaitable[int]]
    raise_at: Callable[[int, list[int], int], Awaitable[WireRow]]
    renew: Callable[[], None]


@procedure(WORK)
class RestoreWork:
    """One step, whichever it is."""

    def __init__(self, ports: MasterPorts) -> None:
        self._ports = ports

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        match ctx.args:
            case {"what": "ids", "at": int(at)}:
                await _raise_ids(ctx, at)
                return done({})
            case {"what": "above", "at": int(at)}:
                return await self._above(at)
            case {"what": "past", "ids": list(ids)}:
                return await self._past(ctx, ids)
            case {"what": "anew", "reign": int(reign)}:
                if await reign_of(ctx) != reign:
                    return done({})
                self._ports.renew()
                return again(delay_ms=_AGAIN_MS)
            case other:
                raise InvalidArgument(f"{other!r:.80} is nothing that {WORK} does")

    async def _above(self, at: int) -> Outcome:
        if await self._ports.now() <= at:
            self._ports.skip(at)
            if await self._ports.now() <= at:
                raise Busy("the oracle was asked to go on above the backup; trying again")
        return done({})

    async def _past(self, ctx: StepContext, ids: list[int]) -> Outcome:
        now = await self._ports.now()
        t = await CatalogTxn.of(ctx)
        rows = [row.descriptor for number in ids for row in await placed_of(t, TableId(number))]
        left = {int(descriptor.id) for descriptor in rows}
        nodes = sorted({node for descriptor in rows for node in descriptor.voters})
        for node in nodes:
            if not left:
                break
            try:
                (raised,) = await self._ports.raise_at(node, sorted(left), now)
            except KvorumError as error:
                if error.disposition not in LATER:
                    raise
                continue  # it does not answer; what it led is led by another one, or will be
            left -= set(raised)
        if left:
            raise Busy(f"partition {min(left)} has no leader at the moment; trying again")
        return done({"at": str(now)})


async def reign_of(ctx: StepContext) -> int:
    """Which executor reigns: the version of its row."""
    row = await ctx.txn.get(REIGN)
    return 0 if row is None else int(row.version)


async def _raise_ids(ctx: StepContext, at: int) -> None:
    row = await ctx.txn.get(_PROCEDURES)
    if row is not None and not intact(_PROCEDURES, row.value):
        raise Corruption("the counter of procedures is damaged", details={"key": _PROCEDURES})
    if row is None or from_u64(row.value) <= at:
        ctx.txn.put(_PROCEDURES, seal(_PROCEDURES, u64(at + 1)))


def register(registry: Registry, services: DdlServices, ports: MasterPorts) -> None:
    """Serve them."""
    registry.add(RestoreRanges, make=lambda: RestoreRanges(services))
    registry.add(RestoreClean, make=lambda: RestoreClean(services))
    registry.add(RestoreWork, make=lambda: RestoreWork(ports))
