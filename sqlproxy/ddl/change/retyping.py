"""ALTER COLUMN … TYPE where values have to be stored in another form (dual write).

    ChangeType  {namespace, name, column, type, sql, uses: [column, …], default_stored?,
                 default_sql?, indexes?: [name, …]}  → {table_id, version, rows}
    AlterType   the same                             → {table_id, version}

    declare ─▶ settled ─(wait)─▶ fill… ─▶ clear ─▶ freeze ─▶ swap ─(wait)─▶ thaw ─(wait)─▶ done
     │undo: withdraw                                │undo: melt  └ point of no return

A hidden column of the new type is generated from the old row by `sql` (USING, or the old column):
writers keep it, the rows that were there are filled. Then it takes the place and the name of the
old one. For that moment nobody writes the table (`frozen`, between two waits): who reads the old
column and who reads the new one see the same, and neither needs a way back from the new values.
Statements wait until it is over; docs/decisions/1024.

Plain indexes with the column (`indexes`) go by a DropIndex when all values are there (`clear`), so
that a value which cannot be changed costs none. `clear` has no undo: a DropIndex is not taken back,
and after it nothing fails by itself. What is left to do until the swap are two writes of the
catalog, which are tried again for as long as it takes, and a wait; the table cannot be dropped, or
its columns changed, under the lock. Only an operator who aborts it there leaves the table without
these indexes; to make them again would be as long a job as CREATE INDEX, within a rollback that
he asked for in order to end it. AlterType is what SQL asks for where there are
some: ChangeType, then a CreateIndex for each, while their names are locked; whoever asked may be
gone by then. An index that cannot be made again, as its keys are too long now, fails it: the type
has changed then and all of these indexes are gone.

ctx.state: table, column (the new one's id), old (the old one's id), at (key), rows, indexes
(names). Of AlterType: again (indexes, as CreateIndex takes them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, children, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import described
from sqlproxy.ddl.change.adding import FillsColumn
from sqlproxy.ddl.change.altering import check_type_readers, column_of, stored_in, with_column
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.steps import CatalogTxn, name_in, names_in, table_locks
from sqlproxy.rows.schema import PUBLIC, WRITE_ONLY, Column, Index, Table, with_columns
from sqlproxy.values.refusals import invalid
from sqlproxy.values.types import resolve

_FIELDS: Final = frozenset(
    {
        "namespace",
        "name",
        "column",
        "type",
        "sql",
        "uses",
        "default_stored",
        "default_sql",
        "indexes",
    }
)
_NEW: Final = "_new_{}"  # the name of the column with this id, until it has its own


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedures of this module."""
    registry.add(ChangeType, make=lambda: ChangeType(services))
    registry.add(AlterType, make=lambda: AlterType(services))


def _locks(args: object) -> list[Lock]:
    """The table, and the names of the indexes that go and come again."""
    namespace, locks = name_in(args, "namespace"), table_locks(args)
    wanted = args.get("indexes", []) if isinstance(args, Mapping) else []
    names = dict.fromkeys(name for name in wanted if isinstance(name, str) and name)
    return [*locks, *(exclusive(f"table/{namespace}/{name}") for name in names)]


@procedure("ChangeType", locks=_locks)
class ChangeType(FillsColumn):
    """See the module."""

    @step(first=True, undo="withdraw")
    async def declare(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument, Refused (0A000)."""
        args, t, table = await self.named(ctx, _FIELDS)
        old = column_of(table, args)
        await check_type_readers(t, table, old)
        plain = _plain(table, args)
        kept = replace(table, indexes=tuple(i for i in table.indexes if i not in plain))
        check_users(kept, old, (await relations.list_database(t, table.namespace)).tables)
        ctx.state["indexes"] = [index.name for index in plain]
        name = _NEW.format(table.next_column_id)
        wider = with_columns(table, [Column(0, name, resolve(name_in(args, "type")).name)])
        new = replace(
            wider.columns[-1],
            state=WRITE_ONLY,
            nullable=old.nullable,
            generated=name_in(args, "sql"),
            uses=tuple(table.column(used).id for used in names_in(args, "uses")),
        )
        ctx.state.update(table=table.id, column=new.id, old=old.id)
        await self.write(t, with_column(wider, new))
        return go_on("settled")

    @undo
    async def withdraw(self, ctx: StepContext) -> None:
        """The column for the new type goes."""
        await self.forget(ctx)

    @step
    async def settled(self, ctx: StepContext) -> Outcome:
        return await self.begin_to_fill(ctx)

    @step
    async def fill(self, ctx: StepContext) -> Outcome:
        return await self.filled(ctx, then="clear")

    @step
    async def clear(self, ctx: StepContext) -> Outcome:
        """Indexes go the way of DROP INDEX, which waits by itself."""
        names = ctx.state["indexes"]
        if not names:
            return go_on("freeze")
        call = {"namespace": ctx.args["namespace"], "names": names, "if_exists": True}
        return children([("DropIndex", call)], then="freeze")

    @step(undo="melt")
    async def freeze(self, ctx: StepContext) -> Outcome:
        """From this commit on whoever hears of it writes nothing to the table."""
        t = await CatalogTxn.of(ctx)
        await self.write(t, await self.find(t, ctx), frozen=True)
        return go_on("swap")

    @undo
    async def melt(self, ctx: StepContext) -> None:
        t = await CatalogTxn.of(ctx)
        await self.write(t, await self.find(t, ctx), frozen=False)

    @step(point_of_no_return=True)
    async def swap(self, ctx: StepContext) -> Outcome:
        """Nobody writes it: the new column is the old one from this commit on."""
        await self.settle(ctx)
        t = await CatalogTxn.of(ctx)
        table = await self.find(t, ctx)
        old, new = table.by_id(ctx.state["old"]), table.by_id(ctx.state["column"])
        args = ctx.args
        made = replace(
            new,
            name=old.name,
            state=PUBLIC,
            nullable=old.nullable,
            generated=None,
            uses=(),
            identity=old.identity,
            sequence=old.sequence,
            on_update=old.on_update,
            comment=old.comment,
            acl=old.acl,
            default=stored_in(new.resolved, args, "default_stored"),
            default_sql=args.get("default_sql"),
            initial=(None,),
        )
        columns = tuple(made if c.id == old.id else c for c in table.columns if c.id != new.id)
        await self.write(t, table, columns=columns)
        there = await relations.list_relations(t, table.namespace)
        for sequence in there.sequences:
            if sequence.owned_by == (int(table.id), old.id):
                await relations.put_sequence(t, replace(sequence, owned_by=(int(table.id), new.id)))
        return go_on("thaw")

    @step
    async def thaw(self, ctx: StepContext) -> Outcome:
        """Nobody reads the old column any more."""
        await self.settle(ctx)
        t = await CatalogTxn.of(ctx)
        changed = await self.write(t, await self.find(t, ctx), frozen=False)
        result = {"table_id": changed.id, "version": changed.version}
        return done({**result, "rows": ctx.state["rows"]})


@procedure("AlterType", locks=_locks)
class AlterType(Change):
    """See the module. It has no point of no return: what cannot be made again fails it."""

    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument."""
        args, _, table = await self.named(ctx, _FIELDS)
        ctx.state["again"] = [_again(table, index) for index in _plain(table, args)]
        return children([("ChangeType", args)], then="make")

    @step
    async def make(self, ctx: StepContext) -> Outcome:
        """The indexes that went, over the new values."""
        of = {"namespace": ctx.args["namespace"], "name": ctx.args["name"]}
        calls = [("CreateIndex", {**of, "index": index}) for index in ctx.state["again"]]
        return children(calls, then="ended") if calls else go_on("ended")

    @step
    async def ended(self, ctx: StepContext) -> Outcome:
        table = await catalog.lookup(
            await CatalogTxn.of(ctx), ctx.args["namespace"], ctx.args["name"]
        )
        return done({"table_id": table.id, "version": table.version})


def _plain(table: Table, args: Mapping[str, object]) -> list[Index]:
    """The indexes that go and come again."""
    names, column = names_in(args, "indexes"), column_of(table, args)
    return [
        i
        for i in table.indexes
        if i.name in names and not (i.unique or i.where) and _has(i, column)
    ]


def _has(index: Index, column: Column) -> bool:
    return column.id in index.used_ids


def _again(table: Table, index: Index) -> dict[str, object]:
    """An index as it is, for CreateIndex."""
    columns = [
        {
            "name": table.by_id(part.column).name,
            "descending": part.descending,
            "nulls_first": part.nulls_first,
        }
        for part in index.columns
    ]
    include = [table.by_id(number).name for number in index.include]
    return {"name": index.name, "columns": columns, "include": include}


def check_users(table: Table, column: Column, tables: Iterable[Table]) -> None:
    """`tables`: all of the database. Raises Refused: what would have to be made again with the
    column.
    """
    users: list[str] = []
    if column.name in table.primary_key:
        users.append("the primary key")
    users += [f"index {i.name}" for i in table.indexes if _has(i, column)]
    users += [f"constraint {c.name}" for c in table.checks if column.id in c.columns]
    users += [f"constraint {k.name}" for k in table.foreign_keys if column.id in k.columns]
    for other in tables:
        users += [
            f"constraint {k.name} of {described(other)}"
            for k in other.foreign_keys
            if k.table == table.id and column.id in k.referenced and other.id != table.id
        ]
    if users:
        raise invalid(
            "0A000",
            f'changing the type of column "{column.name}" is not supported while '
            f"{users[0]} uses it",
            hint="Drop what uses it, change the type, and make it again.",
            users=users,
        )
