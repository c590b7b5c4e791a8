"""CREATE INDEX while everybody reads and writes.

    CreateIndex  {namespace, name, index: {name?, columns, unique?, include?, constraint?},
                  if_not_exists?}             → {table_id, index, rows}; {exists} if it is there

    reserve ─▶ partitions ─▶ delete_only ─(wait)─▶ write_only ─(wait)─▶ backfill… ─▶ publish
       │undo       │undo         │undo                 │undo          └▶ check… ─┘  │undo
    release   drop_partitions  withdraw            stop_adding                     hide

A unique index is checked, as its entries may be taken away while it is filled: two rows that had
one key before it was begun may lie far apart, and whoever changes one that has no entry yet removes
the other one's (docs/decisions/1072).

    every row has its entry at one time     so it is from then on: an entry is removed with its own
                                            row, and a second row with its key does not get in
    a row has none, its key is free         it is filled, and all are checked again as of later:
                                            meanwhile it may have taken away another one's
    its key is another row's                23505

The index has its own key range and partitions before the first writer hears of it. A failure (a
duplicate, under a unique index) goes back the same way, with the same waits: entries stop being
added, then nobody touches them, then the range goes. So does one that is there when the procedure
that asked for it fails (`sqlproxy.ddl.change.parts`), once nobody reads it; but one that a foreign
key needs by then stays.

ctx.state: table, index (ids), partitions (descriptor rows), at (the key from which on rows are
still to be filled, or checked), rows (filled so far), as_of (the time of the check), lease (on its
snapshot), lacked (a row had no entry then), hidden (on the way back from public), kept (it stays).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, KvorumError, NotFound, SnapshotTooOld, TooLarge
from kv.base.ids import PartitionId, TableId
from kv.base.keys import table_range
from kv.base.limits import INDEXES_MAX, LEASE_TTL_MS_MAX, SQL_BACKFILL_ROWS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import (
    COUNTER_PARTITION,
    FIRST_PARTITION,
    delete_rows,
    placed_of,
    plan,
    put_rows,
)
from sqlproxy.catalog import catalog, relations
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.backfill import fewer, fill_index
from sqlproxy.ddl.change.slices import Pace, checked_in_slices, in_slices
from sqlproxy.ddl.change.states import Change, ChangeServices, usable
from sqlproxy.ddl.declaring import with_parts
from sqlproxy.ddl.steps import CatalogTxn, RangeProcedure, known_fields, name_in
from sqlproxy.rows import records
from sqlproxy.rows.naming import first_free, joined_columns
from sqlproxy.rows.schema import (
    DELETE_ONLY,
    PUBLIC,
    WRITE_ONLY,
    ForeignKey,
    Index,
    Table,
    placement,
)
from sqlproxy.values.refusals import refusal
from txn.results import ScanPage

_FIELDS: Final = frozenset({"namespace", "name", "index", "if_not_exists"})


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedures of this module."""
    registry.add(CreateIndex, make=lambda: CreateIndex(services))


def locks(args: Any) -> list[Lock]:
    """The table, and the name of the index, if it has one: who drops an index locks its name."""
    namespace = name_in(args, "namespace")
    wanted = args.get("index")
    name = wanted.get("name") if isinstance(wanted, Mapping) else None
    names = dict.fromkeys([name_in(args, "name"), *([name] if isinstance(name, str) else [])])
    return [exclusive(f"table/{namespace}/{one}") for one in names if one]


@procedure("CreateIndex", locks=locks)
class CreateIndex(Change):
    """See the module."""

    @step(first=True, undo="release")
    async def reserve(self, ctx: StepContext) -> Outcome:
        """Check everything, take the name and the ids. Raises NotFound, AlreadyExists,
        InvalidArgument, TooLarge.
        """
        args = known_fields(ctx.args, _FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace = await catalog.lookup_namespace(t, name_in(args, "namespace"))
        table = await usable(t, namespace.name, name_in(args, "name"))
        index = declared(table, args.get("index"))
        names = await relations.taken(t, namespace.name)
        if index.name and index.name in names and args.get("if_not_exists"):
            return done({"namespace": namespace.name, "name": index.name, "exists": True})
        index = await self._numbered(t, table, index, names)
        first = await catalog.next_id(t, COUNTER_PARTITION, first=FIRST_PARTITION)
        wanted = placement(namespace, table)
        ids = [PartitionId(first)]
        places = await self.services.partitions.places(t, ids, wanted)
        made = plan(index.id, [], first, places, wanted.shard)
        put_rows(t, made, wanted)
        row = [records.FORMAT, relations.INDEX, table.id, index.id]
        await catalog.hold_namespace(t, table.namespace)
        await relations.put_name(t, table.namespace, index.name, row)
        ctx.state.update(
            table=table.id, index=index.id, name=index.name, partitions=[d.to_wire() for d in made]
        )
        return go_on("partitions")

    @staticmethod
    async def _numbered(
        t: CatalogTxn, table: Table, index: Index, names: Mapping[str, str]
    ) -> Index:
        """With a name, as PostgreSQL makes it, and an id. Raises AlreadyExists."""
        name = index.name
        if not name:
            of = [table.by_id(number).name for number in (*index.column_ids, *index.include)]
            label = "key" if index.constraint else "idx"
            name = first_free(table.name, joined_columns(of), label, names)
            if index.primary:
                name = first_free(table.name, "", "pkey", names)
        if name in names:
            raise relations.already(name, what=names[name], namespace=table.namespace)
        taken = {c.name for c in table.checks} | {k.name for k in table.foreign_keys}
        if index.constraint and name in taken:
            raise resolve_declaration.constraint_exists(table, name)
        return replace(index, id=await catalog.next_table_id(t), name=name)

    @step(undo="drop_partitions", undo_partial=True)
    async def partitions(self, ctx: StepContext) -> Outcome:
        await self.services.partitions.create(made_in(ctx))
        return go_on("delete_only")

    @step(undo="withdraw")
    async def delete_only(self, ctx: StepContext) -> Outcome:
        """From this commit on writers that hear of it remove what a later one adds."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        index = replace(declared(table, ctx.args["index"]), id=TableId(ctx.state["index"]))
        index = replace(index, name=ctx.state["name"], state=DELETE_ONLY)
        changed = await self.write(t, table, indexes=(*table.indexes, index))
        catalog.put_id(t, index.id, changed)
        return go_on("write_only")

    @step(undo="stop_adding")
    async def write_only(self, ctx: StepContext) -> Outcome:
        """Nobody is at absent any more: entries may be added."""
        await self.settle(ctx, native=True)
        await self._switch(ctx, WRITE_ONLY)
        return go_on("settled")

    @step
    async def settled(self, ctx: StepContext) -> Outcome:
        """Nobody is at delete-only any more: what is written from now on has its entry."""
        await self.settle(ctx)
        t = await CatalogTxn.of(ctx)
        await catalog.touch(t, ctx.args["namespace"])
        ctx.state["at"] = table_range(ctx.state["table"])[0]
        ctx.state["rows"] = 0
        return go_on("backfill")

    @step
    async def backfill(self, ctx: StepContext) -> Outcome:
        """A chunk of rows. Raises InvalidArgument (23505)."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        index = index_of(table, ctx.state["index"])
        count, at = await self._chunk(ctx, table, index)
        ctx.state["rows"] += count
        if at is None and index.unique:
            await self._check_from_here(ctx)
            return go_on("check")
        return await self._next(t, ctx, at, index)

    async def _next(
        self, t: CatalogTxn, ctx: StepContext, at: bytes | None, index: Index
    ) -> Outcome:
        """What comes after a chunk."""
        result = f"{ctx.state['rows']} rows"
        if at is None:
            ctx.progress(1, result)
            return go_on("publish")
        ctx.state["at"] = at
        part = await part_done(t, TableId(ctx.state["table"]), at)
        ctx.progress((part + ("as_of" in ctx.state)) / 2 if index.unique else part, result)
        return again()

    async def _chunk(
        self, ctx: StepContext, table: Table, index: Index
    ) -> tuple[int, bytes | None]:
        """How many rows got their entries, and where to go on: slice by slice, in transactions of
        their own, as a step's cannot hold what it read. Done twice, they put the same.
        """
        store = self.services.store
        if store is None:
            return await self._in_step(ctx, table, index)
        return await in_slices(store, self._pace(ctx), table, index, ctx.state["at"])

    @staticmethod
    async def _in_step(ctx: StepContext, table: Table, index: Index) -> tuple[int, bytes | None]:
        at, end = ctx.state["at"], table_range(table.id)[1]
        limit = fewer(SQL_BACKFILL_ROWS, ctx.attempt - ctx.round)
        page: ScanPage = await ctx.txn.scan(at, end, limit=limit)
        await fill_index(ctx.txn, table, index, page.items)
        return len(page.items), page.resume

    def _pace(self, ctx: StepContext) -> Pace:
        return Pace(self.services.timers, self.services.loop_s, ctx.attempt - ctx.round)

    async def _check_from_here(self, ctx: StepContext) -> None:
        """The next check is as of now, and begins with the first row."""
        store = self.services.store
        await self._let_go(ctx)
        ctx.state.pop("lacked", None)
        ctx.state["as_of"] = 0 if store is None else await store.now()
        ctx.state["at"] = table_range(TableId(ctx.state["table"]))[0]

    @step
    async def check(self, ctx: StepContext) -> Outcome:
        """A chunk of rows of a unique index. Raises InvalidArgument (23505)."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        index = index_of(table, ctx.state["index"])
        store, state = self.services.store, ctx.state
        if store is None:
            _, at = await self._in_step(ctx, table, index)
            return await self._next(t, ctx, at, index)
        try:
            await self._hold(ctx)
            whole, at = await checked_in_slices(
                store, self._pace(ctx), table, index, state["at"], state["as_of"]
            )
        except SnapshotTooOld:  # nobody held it for a while
            await self._check_from_here(ctx)
            return again()
        if not whole:
            state["lacked"] = True
        if at is None and state.get("lacked"):
            await self._check_from_here(ctx)
            return again()
        if at is None:
            await self._let_go(ctx)
        return await self._next(t, ctx, at, index)

    async def _hold(self, ctx: StepContext) -> None:
        """What the check reads is kept; but if too many hold something already, it is tried
        without. Raises SnapshotTooOld.
        """
        if self.services.snapshots is None:
            return
        snapshots, state = self.services.snapshots(), ctx.state
        if "lease" in state:
            with contextlib.suppress(NotFound):  # a new one
                await snapshots.renew_snapshot(state["lease"])
                return
            del state["lease"]
        with contextlib.suppress(Busy):
            owner = f"CREATE INDEX {ctx.id}"
            held = await snapshots.open_snapshot(state["as_of"], owner, LEASE_TTL_MS_MAX)
            state["lease"] = held.id

    async def _let_go(self, ctx: StepContext) -> None:
        """It is held no more; what cannot be reached expires."""
        if (lease := ctx.state.pop("lease", None)) is not None and self.services.snapshots:
            with contextlib.suppress(KvorumError):
                await self.services.snapshots().release_snapshot(lease)

    @step(undo="hide")
    async def publish(self, ctx: StepContext) -> Outcome:
        """Everybody writes it and every row has its entry: it may be read, by snapshots from now
        on.
        """
        await self._switch(ctx, PUBLIC)
        result = {"table_id": ctx.state["table"], "index": ctx.state["name"]}
        return done({"namespace": ctx.args["namespace"], **result, "rows": ctx.state["rows"]})

    async def _switch(self, ctx: StepContext, state: str) -> None:
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        index_of(table, ctx.state["index"])
        indexes = tuple(
            replace(index, state=state, since=t.start_ts)
            if index.id == ctx.state["index"]
            else index
            for index in table.indexes
        )
        await self.write(t, table, indexes=indexes)

    # -- the way back

    @undo
    async def hide(self, ctx: StepContext) -> None:
        """Public → write-only."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        index = index_of(table, ctx.state["index"])
        columns = set(index.column_ids)
        there = await relations.list_database(t, table.namespace)
        others = (set(ids) for name, ids in table.unique_sets() if name != index.name)
        needed = index.immediate and not index.where and columns not in others
        keys = _keys(there)
        if needed and any(k.table == table.id and set(k.referenced) == columns for k in keys):
            ctx.state["kept"] = True
            return
        await self._switch(ctx, WRITE_ONLY)
        ctx.state["hidden"] = True

    @undo
    async def stop_adding(self, ctx: StepContext) -> None:
        """Write-only → delete-only, once nobody reads it."""
        await self._let_go(ctx)
        if ctx.state.get("kept"):
            return
        if ctx.state.get("hidden"):
            await self.settle(ctx)
        await self._switch(ctx, DELETE_ONLY)
        ctx.state["stopped"] = True

    @undo
    async def withdraw(self, ctx: StepContext) -> None:
        """Delete-only → absent, once nobody adds entries."""
        if ctx.state.get("kept"):
            return
        if ctx.state.get("stopped"):
            await self.settle(ctx)
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        left = tuple(index for index in table.indexes if index.id != ctx.state["index"])
        await self.write(t, table, indexes=left)
        t.delete(catalog.table_id_key(TableId(ctx.state["index"])))
        ctx.state["withdrawn"] = True

    @undo
    async def drop_partitions(self, ctx: StepContext) -> None:
        """The range, once nobody touches it: closed, with all that were split off meanwhile, and
        forgotten by the map. What no writer ever heard of just goes. Raises Busy.
        """
        if ctx.state.get("kept"):
            return
        ranges = RangeProcedure(self.services.ddl)
        if not ctx.state.get("withdrawn"):
            await self.services.partitions.drop(made_in(ctx))
            return
        await self.settle(ctx)
        outcome = await ranges.closed(ctx, [ctx.state["index"]], then="release")
        if outcome != go_on("release"):
            raise Busy("a partition was split off meanwhile", details={"what": "reshaping"})

    @undo
    async def release(self, ctx: StepContext) -> None:
        """The replicas, the name and the rows of the map."""
        if "name" not in ctx.state or ctx.state.get("kept"):
            return  # it was there already
        made = made_in(ctx)
        if ctx.state.get("closed"):
            await self.services.partitions.drop(made)
        t = await CatalogTxn.of(ctx)
        delete_rows(t, made)
        await relations.drop_name(t, ctx.args["namespace"], ctx.state["name"])


def _keys(there: relations.Relations) -> list[ForeignKey]:
    return [key for table in there.tables for key in table.foreign_keys]


def made_in(ctx: StepContext) -> list[PartitionDescriptor]:
    """The partitions that the index began with."""
    return [PartitionDescriptor.from_wire(row) for row in ctx.state["partitions"]]


def declared(table: Table, raw: object) -> Index:
    """The index that the arguments ask for, without an id. Raises InvalidArgument, TooLarge."""
    if len(table.indexes) >= INDEXES_MAX:
        raise TooLarge(
            f"table {table.path} has {len(table.indexes)} indexes; the limit is {INDEXES_MAX}",
            details={"what": "indexes", "limit": INDEXES_MAX, "actual": len(table.indexes)},
        )
    kept = tuple(index for index in table.indexes if index.primary)
    bare = replace(table, indexes=kept, checks=(), foreign_keys=())
    (index,) = with_parts(bare, {"indexes": [raw]}).table.indexes
    return index


def index_of(table: Table, number: int) -> Index:
    """Raises NotFound: it was dropped meanwhile."""
    for index in table.indexes:
        if index.id == number:
            return index
    raise refusal("42704", f"the index was dropped while it was built on {table.name}")


async def part_done(t: CatalogTxn, table: TableId, at: bytes) -> float:
    """How far a key is, counted in partitions; the last one is never quite done."""
    there = await placed_of(t, table)
    behind = sum(1 for placed in there if placed.descriptor.end <= at)
    return behind / len(there) if there else 0.0
