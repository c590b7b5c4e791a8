"""ADD COLUMN, while everybody reads and writes.

    AddColumn  {namespace, name, column: as CreateTable's, initial_stored?}
                                                         → {table_id, version, column, rows}

    declare ─▶ settled ─(wait)─▶ fill… ─▶ publish        value differs from row to row: serial and
        │ └──────────────────────────────────↗ │undo     identity columns, generated ones, volatile
        │undo: withdraw                        hide      defaults; else no row is looked at

`initial_stored`: what rows that are there have, of a default that is no constant and the same for
all of them. From `declare` on writers give the column its value (`write_only`); users do not see
it. When nobody is left who does not, the rows without get theirs (`sqlproxy.ddl.change.filling`).
NOT NULL comes after, as a change of its own (AddConstraint): until then a row may be without. If
what comes with it fails (`sqlproxy.ddl.change.parts`) it goes the way of DROP COLUMN; one that a
view reads by then, or a foreign key of another table refers to, stays.

ctx.state: table, column (ids), sequence (name of the one that was made), at (key), rows, hidden,
kept (it stays).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kv.base.keys import table_range
from kv.base.limits import SQL_FILL_ROWS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import views_over
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.altering import added, stored_in, with_column
from sqlproxy.ddl.change.backfill import fewer
from sqlproxy.ddl.change.filling import fill
from sqlproxy.ddl.change.indexes import part_done
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.declaring import Draft, columns_in
from sqlproxy.ddl.steps import CatalogTxn, table_locks
from sqlproxy.rows.schema import PUBLIC, WRITE_ONLY, Table

_FIELDS: Final = frozenset({"namespace", "name", "column", "initial_stored"})


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedure of this module."""
    registry.add(AddColumn, make=lambda: AddColumn(services))


class FillsColumn(Change):
    """A change that computes a column. ctx.state: table, column (ids), at (key), rows."""

    async def forget(self, ctx: StepContext) -> tuple[CatalogTxn, Table] | None:
        """Nobody gives the column a value, nobody has seen it. None: nothing was declared."""
        if "column" not in ctx.state:
            return None
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        left = tuple(c for c in table.columns if c.id != ctx.state["column"])
        await self.write(t, table, columns=left)
        return t, table

    async def begin_to_fill(self, ctx: StepContext) -> Outcome:
        """Whoever writes gives the column its value."""
        await self.settle(ctx, native=True)
        t = await CatalogTxn.of(ctx)
        await catalog.touch(t, ctx.args["namespace"])
        ctx.state["at"], ctx.state["rows"] = table_range(ctx.state["table"])[0], 0
        return go_on("fill")

    async def filled(self, ctx: StepContext, *, then: str) -> Outcome:
        """A chunk of rows. Raises InvalidArgument: an expression failed."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        count = fewer(SQL_FILL_ROWS, ctx.attempt - ctx.round)
        page = await ctx.txn.scan(ctx.state["at"], table_range(table.id)[1], limit=count)
        if page.items:
            await fill(
                t,
                ctx,
                table,
                ctx.state["column"],
                page.items,
                rng=self.services.rng,
                shown=ctx.args["column"] if isinstance(ctx.args["column"], str) else "",
            )
        ctx.state["rows"] += len(page.items)
        result = f"{ctx.state['rows']} rows"
        if page.resume is None:
            ctx.progress(1, result)
            return go_on(then)
        ctx.state["at"] = page.resume
        ctx.progress(await part_done(t, table.id, page.resume), result)
        return again()


@procedure("AddColumn", locks=table_locks)
class AddColumn(FillsColumn):
    """See the module."""

    @step(first=True, undo="withdraw")
    async def declare(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists, InvalidArgument, TooLarge."""
        args, t, table = await self.named(ctx, _FIELDS)
        wider, column = added(table, args, state=WRITE_ONLY)
        ctx.state.update(table=table.id, column=column.id)
        wider = await self._numbered(t, ctx, wider, args)
        made = replace(wider.by_id(column.id), nullable=True)
        if "initial_stored" in args:
            made = replace(made, initial=(stored_in(made.resolved, args, "initial_stored"),))
        await self.write(t, with_column(wider, made))
        if "initial_stored" in args or not made.computed:
            ctx.state["rows"] = 0
            return go_on("publish")
        return go_on("settled")

    async def _numbered(self, t: CatalogTxn, ctx: StepContext, table: Table, args: Any) -> Table:
        """With the sequence that the column wants, which is made."""
        given = {k: v for k, v in args["column"].items() if k != "uses"}
        _, wanted = columns_in([given])
        names = await relations.taken(t, table.namespace)
        draft = Draft(table, sequences=tuple(wanted))
        table, sequences = await resolve_declaration.with_sequences(t, table, draft, names)
        for sequence in sequences:
            await catalog.hold_namespace(t, table.namespace)
            await relations.put_sequence(t, sequence)
            ctx.state["sequence"] = sequence.name
        return table

    @undo
    async def withdraw(self, ctx: StepContext) -> None:
        """The column goes, once nobody sees it, and the sequence that was made for it."""
        if ctx.state.get("kept"):
            return
        if ctx.state.get("hidden"):
            await self.settle(ctx)
        forgotten = await self.forget(ctx)
        if forgotten is None:
            return
        t, table = forgotten
        if name := ctx.state.get("sequence"):
            there = await relations.list_relations(t, table.namespace)
            for sequence in there.sequences:
                if sequence.name == name:
                    await resolve_declaration.drop_sequence(t, sequence)

    @step
    async def settled(self, ctx: StepContext) -> Outcome:
        return await self.begin_to_fill(ctx)

    @step
    async def fill(self, ctx: StepContext) -> Outcome:
        return await self.filled(ctx, then="publish")

    @step(undo="hide")
    async def publish(self, ctx: StepContext) -> Outcome:
        """Every row has it: users see it."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        column = replace(table.by_id(ctx.state["column"]), state=PUBLIC)
        changed = await self.write(t, with_column(table, column))
        result = {"table_id": table.id, "version": changed.version, "column": column.name}
        return done({**result, "rows": ctx.state["rows"]})

    @undo
    async def hide(self, ctx: StepContext) -> None:
        """Users do not see it any more."""
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        column = replace(table.by_id(ctx.state["column"]), state=WRITE_ONLY)
        there = await relations.list_database(t, table.namespace)
        indexed = any(column.id in i.used_ids for i in table.indexes)
        if indexed or views_over(there, table.id, column.id):
            ctx.state["kept"] = True
            return
        await self.write(t, with_column(table, column))
        ctx.state["hidden"] = True
