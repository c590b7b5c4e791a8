"""Procedures that take key ranges away from tables that stay: TRUNCATE, and DROP INDEX.

    TruncateTable  {namespace, name | names, cascade?, restart_identity?}
                   → {names, tables: {name: new id}, cascaded}

        reserve ──→ partitions ──→ swap ──→ close ──→ drop
           │undo       │undo        └ point of no return
        release     drop_new

    DropIndex      {namespace, name | names, cascade?, if_exists?}
                   → {dropped, cascaded, missing}

        unread ──(wait)──→ unwrite ──(wait)──→ close ──→ drop        undo of the first: reread

TRUNCATE gives the tables and their indexes new ids, so new key ranges, in one transaction; what was
in the old ones is dropped with them. A transaction that began before and has written to the old
range is refused when it commits: its partitions are closed (docs/decisions/1004). What refers to a
table by its id (foreign keys, views, owned sequences) is changed in the same transaction.

An index that is dropped is first not read (`write_only`), then not there; between the two, and
before its partitions are closed, everybody has heard of it (sqlproxy.ddl.change.version_waits), as
F1 wants it: nobody reads an index that another one does not maintain any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import NotFound
from kv.base.ids import PartitionId, TableId
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import (
    COUNTER_PARTITION,
    FIRST_PARTITION,
    delete_rows,
    plan,
    put_rows,
)
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import described, referring, required
from sqlproxy.catalog.relations import IndexName, Relations
from sqlproxy.catalog.sequences import Stand, put_stand, sequence_key
from sqlproxy.ddl.steps import (
    CatalogTxn,
    DdlServices,
    RangeProcedure,
    drop_locks,
    known_fields,
    name_in,
    names_to_drop,
    places_to_drop,
    wrong_kind,
)
from sqlproxy.rows.schema import PUBLIC, WRITE_ONLY, Index, Table, placement
from sqlproxy.values.refusals import dependents, refusal

_TRUNCATE_FIELDS: Final = frozenset({"namespace", "name", "names", "cascade", "restart_identity"})
_DROP_FIELDS: Final = frozenset({"namespace", "name", "names", "cascade", "if_exists"})


def register(registry: Registry, services: DdlServices) -> None:
    """Serve the procedures of this module."""
    registry.add(TruncateTable, make=lambda: TruncateTable(services))
    registry.add(DropIndex, make=lambda: DropIndex(services))


# -- TRUNCATE


@procedure("TruncateTable", locks=drop_locks)
class TruncateTable(RangeProcedure):
    """ctx.state: new (old id → new id, as pairs), made (new partitions), partitions (old ones)."""

    @step(first=True, undo="release")
    async def reserve(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, Refused (0A000: a table that is not named refers to one that is)."""
        args = known_fields(ctx.args, _TRUNCATE_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace = await catalog.lookup_namespace(t, name_in(args, "namespace"))
        tables, cascaded = await _truncated(t, namespace.name, args)
        catalog.check_unlinked(tables, "be emptied by TRUNCATE: DELETE is seen by the other one")
        pairs: list[list[int]] = []
        made: list[PartitionDescriptor] = []
        for table in tables:
            wanted = placement(await catalog.lookup_namespace(t, table.namespace), table)
            for old in table.storage_ids:
                number = await catalog.next_table_id(t)
                first = await catalog.next_id(t, COUNTER_PARTITION, first=FIRST_PARTITION)
                ids = [PartitionId(first)]
                places = await self.maker.places(t, ids, wanted)
                found = plan(number, [], first, places, wanted.shard)
                put_rows(t, found, wanted)
                made += found
                pairs.append([old, number])
        ctx.state["new"] = pairs
        ctx.state["made"] = [descriptor.to_wire() for descriptor in made]
        ctx.state["names"] = [table.name for table in tables]
        ctx.state["cascaded"] = cascaded
        return go_on("partitions")

    @step(undo="drop_new", undo_partial=True)
    async def partitions(self, ctx: StepContext) -> Outcome:
        await self.maker.create(_made(ctx))
        return go_on("swap")

    @step(point_of_no_return=True)
    async def swap(self, ctx: StepContext) -> Outcome:
        """From this commit on the tables are empty."""
        t = await CatalogTxn.of(ctx)
        new = {old: TableId(number) for old, number in ctx.state["new"]}
        there = await relations.list_database(t, ctx.args["namespace"], creating=True)
        ctx.state["partitions"] = [d.to_wire() for d in await self.mapped(t, list(new))]
        await _renumber(t, there, new)
        if ctx.args.get("restart_identity"):
            for sequence in there.sequences:
                if sequence.owned_by is not None and sequence.owned_by[0] in new:
                    put_stand(t, sequence, Stand(sequence.start, False))
        for table in there.tables:
            if table.id in new:
                self.changed(table.namespace, table.name)
        return go_on("close")

    @step
    async def close(self, ctx: StepContext) -> Outcome:
        """What was begun with the old ranges cannot commit any more; the map forgets them."""
        return await self.closed(ctx, [old for old, _ in ctx.state["new"]], then="drop")

    @step
    async def drop(self, ctx: StepContext) -> Outcome:
        await self.maker.drop(self.stored(ctx))
        new = dict(ctx.state["new"])
        t = await CatalogTxn.of(ctx)
        result: dict[str, int] = {}
        for number in new.values():
            table = await catalog.find_by_id(t, TableId(number))
            if table is not None:
                result[table.name] = number
                self.changed(table.namespace, table.name)
        return done(
            {
                "namespace": ctx.args["namespace"],
                "names": ctx.state["names"],
                "tables": result,
                "cascaded": ctx.state["cascaded"],
            }
        )

    @undo
    async def drop_new(self, ctx: StepContext) -> None:
        await self.maker.drop(_made(ctx))

    @undo
    async def release(self, ctx: StepContext) -> None:
        delete_rows(await CatalogTxn.of(ctx), _made(ctx))


def _made(ctx: StepContext) -> list[PartitionDescriptor]:
    return [PartitionDescriptor.from_wire(row) for row in ctx.state["made"]]


async def _truncated(
    t: CatalogTxn, namespace: str, args: Mapping[str, object]
) -> tuple[list[Table], list[str]]:
    """The tables, and the names of those that CASCADE adds. Raises NotFound, Refused."""
    tables: list[Table] = []
    for space, name in places_to_drop(args):
        other = await relations.find_relation(t, space, name)
        if other is not None and not isinstance(other, Table):
            raise wrong_kind(name, other.kind, "table")
        tables.append(await catalog.lookup_any(t, space, name))
    there = await relations.list_database(t, namespace, creating=True)
    cascaded: list[str] = []
    while found := referring(there, tables):
        if not args.get("cascade"):
            table, to = found[0]
            raise refusal(
                "0A000",
                "cannot truncate a table referenced in a foreign key constraint",
                detail=f'Table "{table.name}" references "{to}".',
                hint=f'Truncate table "{table.name}" at the same time, '
                "or use TRUNCATE ... CASCADE.",
                code="HAS_DEPENDENTS",
            )
        for table, _ in found:
            if table not in tables:
                tables.append(table)
                cascaded.append(table.name)
    return tables, cascaded


async def _renumber(t: CatalogTxn, there: Relations, new: Mapping[int, TableId]) -> None:
    """Put new ids for old ones wherever they are in the catalog."""
    for table in there.tables:
        changed = renumbered(table, new)
        if changed == table:
            continue
        moved = changed.id != table.id
        # By two: whoever still has the old ids is not one version behind, but too many.
        changed = replace(changed, version=table.version + (2 if moved else 1))
        await catalog.write(t, changed)
        if moved:
            for old in table.storage_ids:
                t.delete(catalog.table_id_key(old))
            catalog.put_id(t, changed.id, changed)
            await relations.put_index_names(t, changed)
            t.delete(sequence_key(table.id))
    for view in there.views:
        uses = tuple((int(new.get(number, number)), ids) for number, ids in view.uses)
        if uses != view.uses:
            await relations.put_view(t, replace(view, uses=uses, version=view.version + 1))
    for sequence in there.sequences:
        if sequence.owned_by is not None and sequence.owned_by[0] in new:
            owner = int(new[sequence.owned_by[0]]), sequence.owned_by[1]
            await relations.put_sequence(t, replace(sequence, owned_by=owner))


def renumbered(table: Table, new: Mapping[int, TableId]) -> Table:
    """The descriptor with new ids for old ones, its version as it was."""
    return replace(
        table,
        id=new.get(table.id, table.id),
        indexes=tuple(replace(i, id=new.get(i.id, i.id)) for i in table.indexes),
        foreign_keys=tuple(
            replace(key, table=new.get(key.table, key.table)) for key in table.foreign_keys
        ),
        referenced_by=tuple(new.get(number, number) for number in table.referenced_by),
    )


# -- DROP INDEX


@procedure("DropIndex", locks=drop_locks)
class DropIndex(RangeProcedure):
    """ctx.state: indexes ([table's name, index's name, id]), partitions."""

    @step(first=True, undo="reread")
    async def unread(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument (42809), Refused (2BP01: of a constraint)."""
        args = known_fields(ctx.args, _DROP_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace = name_in(args, "namespace")
        await catalog.lookup_namespace(t, namespace)
        found: list[list[object]] = []
        absent: list[str] = []
        for name in names_to_drop(args):
            there = await relations.find_relation(t, namespace, name)
            if there is None and args.get("if_exists"):
                absent.append(name)
                continue
            if there is None:
                raise refusal("42704", f'index "{name}" does not exist', kind=NotFound, name=name)
            if not isinstance(there, IndexName):
                raise wrong_kind(name, there.kind, "index")
            table = await catalog.find_by_id(t, there.table)
            assert table is not None, "an index has a table"
            index = _droppable(table, there, await relations.list_database(t, namespace))
            await self._with_state(t, table, index, WRITE_ONLY)
            found.append([table.name, name, int(index.id)])
        ctx.state["indexes"], ctx.state["missing"] = found, absent
        if not found:
            return done(self._result(ctx))
        return go_on("unwrite")

    async def _with_state(self, t: CatalogTxn, table: Table, index: Index, state: str) -> None:
        stored = await catalog.find(t, table.namespace, table.name)
        assert stored is not None, "its lock is held"
        indexes = tuple(replace(i, state=state) if i.id == index.id else i for i in stored.indexes)
        changed = replace(stored, indexes=indexes, version=stored.version + 1)
        await catalog.write(t, changed, awaited=True)
        self.changed(table.namespace, table.name)

    @undo
    async def reread(self, ctx: StepContext) -> None:
        """It was maintained all the time."""
        t = await CatalogTxn.of(ctx)
        for name, _, number in ctx.state.get("indexes", ()):
            table = await catalog.find(t, ctx.args["namespace"], name)
            for index in table.indexes if table is not None else ():
                if table is not None and index.id == number:
                    await self._with_state(t, table, index, PUBLIC)

    @step(point_of_no_return=True)
    async def unwrite(self, ctx: StepContext) -> Outcome:
        """Nobody reads it any more. From this commit on it is not there."""
        await self.settle(ctx)
        t = await CatalogTxn.of(ctx)
        namespace = ctx.args["namespace"]
        for table_name, name, number in ctx.state["indexes"]:
            table = await catalog.find(t, namespace, table_name)
            if table is None:
                continue  # it was dropped, with its indexes
            left = tuple(index for index in table.indexes if index.id != number)
            used = {column for index in left for column in index.used_ids}
            columns = tuple(c for c in table.columns if not c.derived or c.id in used)
            changed = replace(table, indexes=left, columns=columns, version=table.version + 1)
            await catalog.write(t, changed, awaited=True)
            await relations.drop_name(t, namespace, name)
            t.delete(catalog.table_id_key(TableId(number)))
            self.changed(namespace, table_name)
        ids = [number for _, _, number in ctx.state["indexes"]]
        ctx.state["partitions"] = [d.to_wire() for d in await self.mapped(t, ids)]
        return go_on("close")

    @step
    async def close(self, ctx: StepContext) -> Outcome:
        """Nobody writes to it any more; the map forgets its partitions."""
        await self.settle(ctx)
        ids = [number for _, _, number in ctx.state["indexes"]]
        return await self.closed(ctx, ids, then="drop")

    @step
    async def drop(self, ctx: StepContext) -> Outcome:
        await self.maker.drop(self.stored(ctx))
        return done(self._result(ctx))

    @staticmethod
    def _result(ctx: StepContext) -> dict[str, Any]:
        dropped = [name for _, name, _ in ctx.state["indexes"]]
        namespace = ctx.args["namespace"]
        return {"namespace": namespace, "dropped": dropped, "missing": ctx.state["missing"]}


def _droppable(table: Table, name: IndexName, there: Relations) -> Index:
    """Raises Refused (2BP01): of a constraint, or what a foreign key refers to."""
    index = table.index(name.name)
    if index is None or index.constraint:
        constraint = f"constraint {name.name} on table {table.name}"
        raise required(f"index {name.name}", constraint)
    lines = [
        f"constraint {key.name} on {described(other)} depends on index {index.name}"
        for other in there.tables
        for key in other.foreign_keys
        if key.table == table.id
        and index.unique
        and not index.where
        and sorted(key.referenced) == sorted(index.column_ids)
        and sum(sorted(c) == sorted(key.referenced) for _, c in table.unique_sets()) == 1
    ]
    if lines:
        raise dependents(f"index {index.name}", lines)
    return index
