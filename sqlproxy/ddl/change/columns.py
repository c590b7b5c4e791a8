"""DROP COLUMN while everybody reads and writes.

    DropColumn  {namespace, name, column, cascade?, if_exists?}
                → {table_id, version, cascaded}; {missing} if it is not there

    hide ─▶ indexes (a DropIndex for each that has the column) ─▶ remove ─(wait)
     │undo: show

Hidden, it is written and no longer seen (`write_only`); then nobody knows it. What is stored of it
stays in the rows until they are written again; its id is never used for another column. Indexes,
constraints and the sequence that it owns go with it, as in PostgreSQL; views over it, generated
columns of it and foreign keys that need its uniqueness only with CASCADE (2BP01).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, children, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import described, views_over
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.altering import column_of, referring_lines
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.steps import CatalogTxn, table_locks
from sqlproxy.rows import records
from sqlproxy.rows.schema import WRITE_ONLY, Column, Table
from sqlproxy.values.refusals import dependents, invalid

_FIELDS: Final = frozenset({"namespace", "name", "column", "cascade", "if_exists"})


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedure of this module."""
    registry.add(DropColumn, make=lambda: DropColumn(services))


def check_goes(table: Table, column: Column) -> None:
    """Raises Refused (0A000): rows lie by the column. Asked before anything goes along with it."""
    if column.name in table.primary_key:
        raise invalid(
            "0A000",
            f'dropping column "{column.name}" of the primary key is not supported: rows lie by it',
        )


@procedure("DropColumn", locks=table_locks)
class DropColumn(Change):
    """ctx.state: table, column (ids), before (the table's row), told (what went along)."""

    @step(first=True, undo="show")
    async def hide(self, ctx: StepContext) -> Outcome:
        """Raises NotFound (42703), Refused (2BP01, 0A000)."""
        args, t, table = await self.named(ctx, _FIELDS)
        missing = not any(c.name == args.get("column") for c in table.visible)
        if args.get("if_exists") and missing:
            return done({"table_id": table.id, "missing": [args.get("column")]})
        column = column_of(table, args)
        gone, result = await self._along(t, table, column, cascade=bool(args.get("cascade")))
        ids = {c.id for c in gone}
        indexes = [i for i in table.indexes if ids & i.used_ids]
        ctx.state.update(
            table=table.id,
            columns=sorted(ids),
            cascaded=result,
            before=records.encode_table(table),
            indexes=[i.name for i in indexes],
        )
        await self.write(t, _hidden(table, ids))
        return go_on("indexes")

    async def _along(
        self, t: CatalogTxn, table: Table, column: Column, *, cascade: bool
    ) -> tuple[list[Column], list[str]]:
        """The columns that go, and what else does, in words. Raises Refused."""
        check_goes(table, column)
        there = await relations.list_database(t, table.namespace)
        of = described(table)
        what = f"column {column.name} of {of}"
        derived = [c for c in table.columns if column.id in c.uses and c.derived]
        generated = [c for c in table.columns if column.id in c.uses and not c.derived]
        views = views_over(there, table.id, column.id)
        lines = [f"{described(view)} depends on {what}" for view in views]
        lines += [f"column {c.name} of {of} depends on {what}" for c in generated]
        for index in table.indexes:
            if index.unique and not index.where and column.id in index.column_ids:
                lines += referring_lines(there, table, set(index.column_ids), f"index {index.name}")
        if lines and (not cascade or len(lines) > len(generated)):
            # views and foreign keys of other tables are dropped by name first
            raise dependents(what, lines)
        result = [f"column {c.name} of {of}" for c in generated]
        return [column, *generated, *derived], result

    @step
    async def indexes(self, ctx: StepContext) -> Outcome:
        """They go the way of DROP INDEX, which waits by itself."""
        names = ctx.state["indexes"]
        if not names:
            return go_on("remove")
        call = {"namespace": ctx.args["namespace"], "names": names, "if_exists": True}
        return children([("DropIndex", call)], then="remove")

    @step(point_of_no_return=True)
    async def remove(self, ctx: StepContext) -> Outcome:
        """Nobody sees it any more: from this commit on it is not there."""
        await self.settle(ctx)
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        gone = set(ctx.state["columns"])
        there = await relations.list_relations(t, table.namespace)
        for sequence in there.sequences:
            owner = sequence.owned_by
            if owner is not None and owner[0] == table.id and owner[1] in gone:
                await resolve_declaration.drop_sequence(t, sequence)
        left = tuple(c for c in table.columns if c.id not in gone)
        targets = {key.table for key in table.foreign_keys if gone & set(key.columns)}
        keys = tuple(key for key in table.foreign_keys if not gone & set(key.columns))
        changed = await self.write(t, table, columns=left, foreign_keys=keys)
        for target in targets - {key.table for key in keys}:
            await resolve_declaration.unrefer(t, changed, target)
        result: dict[str, object] = {"table_id": table.id, "version": changed.version}
        return done({**result, "cascaded": ctx.state["cascaded"]})

    @undo
    async def show(self, ctx: StepContext) -> None:
        """As it was; indexes that are gone already stay gone."""
        if "before" not in ctx.state:
            return
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        key = catalog.table_key(table.namespace, table.name)
        before = records.decode_table(key, records.sealed(key, ctx.state["before"]))
        there = {index.id for index in table.indexes}
        kept = tuple(index for index in before.indexes if index.id in there)
        await self.write(t, table, columns=before.columns, checks=before.checks, indexes=kept)


def _hidden(table: Table, ids: set[int]) -> Table:
    """The columns written and not seen; their checks are gone, their indexes nobody's constraint.
    A hidden one is never demanded: who does not see it cannot give it.
    """
    columns = tuple(
        c.without_expressions(
            state=WRITE_ONLY, nullable=True, default=None, initial=c.initial or (c.missing,)
        )
        if c.id in ids
        else c
        for c in table.columns
    )
    checks = tuple(check for check in table.checks if not ids & set(check.columns))
    indexes = tuple(
        replace(i, constraint=False, primary=False) if ids & i.used_ids else i
        for i in table.indexes
    )
    return replace(table, columns=columns, checks=checks, indexes=indexes)
