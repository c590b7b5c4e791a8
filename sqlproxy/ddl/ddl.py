"""DDL as procedures: namespaces and tables are created and dropped wholly or not at all (J1).

    CreateNamespace  {namespace, replicas?, tags?, shard?, survive?, leaders?, owner?}
                     what its tables have that do not say otherwise; whose it is (a role of SQL)
    DropNamespace    {namespace, cascade?, if_exists?}   refused while something is in it
    CreateTable      {namespace, name, split_keys?, columns?: [{name, type, nullable?, default?}],
                      primary_key?, replicas?, tags?, partition_bytes?, shard?, survive?,
                      leaders?, if_not_exists?,
                      owner?, what SQL declares besides: sqlproxy/ddl/declaring.py;
                      behind_changes?: the caller has changes that are not committed and would be
                      waited for: nobody is}
                     → {table_id, namespace, name, partitions: [id, …]}; {exists} if it is there
    DropTable        {namespace, name | names, cascade?, if_exists?}    → the same, and {cascaded:
                     [what went along], missing: [name, …]}

An index is made and dropped with its table: it has a key range and partitions of its own. So are
the sequences that its columns own. What depends on a table that is dropped:
sqlproxy/catalog/dropping.py.

    CreateTable:  reserve ──→ partitions ──→ publish ─(wait)─▶ open ─(wait)─▶ opened
                     │undo       │undo          └ point of no return; the end of a table that
                  release     drop_partitions     refers to no other one

    DropTable:    hide ──→ close ──→ partitions ──→ forget
                   └ point of no return

The catalog's state says what a name stands for: `creating` from reserve, `public` from publish on.
Nobody finds a table that is not public. A CreateTable that failed has released its name; while it
runs or rolls back the name is taken, truthfully. A table with foreign keys to others is published
`frozen`: nobody writes rows to it before all who remove rows of those others look for rows here.
DropTable hides the table first, in one
transaction, and then goes forward until its rows are gone.

Deciding steps write the row they decided on (`CatalogTxn.check`): two of them on one namespace
conflict, and one runs again and sees the other's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, NotFound
from kv.base.ids import PartitionId, TableId
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import (
    COUNTER_PARTITION,
    FIRST_PARTITION,
    check_shards,
    checked_split_keys,
    delete_rows,
    plan,
    put_rows,
)
from sqlproxy.catalog import catalog, relations, role_settings
from sqlproxy.catalog.dropping import check_unused, plan_drop
from sqlproxy.catalog.privileges import made
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.functions import check_uncalled
from sqlproxy.ddl.declaring import Draft, columns_in, hidden_key, with_parts
from sqlproxy.ddl.steps import (
    CatalogTxn,
    DdlServices,
    RangeProcedure,
    drop_along,
    drop_locks,
    known_fields,
    list_in,
    name_in,
    names_in,
    namespace_locks,
    places_to_drop,
    placing_in,
    table_locks,
    wrong_kind,
)
from sqlproxy.rows.naming import check_sql_name, database_of, shown_space
from sqlproxy.rows.schema import (
    CREATING,
    DEFAULT_NAMESPACE,
    PLACING,
    POSTGRES_NAMESPACE,
    ROWID,
    Column,
    EnumType,
    Namespace,
    Relation,
    Sequence,
    SqlFunction,
    Table,
    View,
    placed,
    placement,
)
from sqlproxy.values.refusals import refusal

_CREATE_FIELDS = frozenset(
    {
        *("namespace", "name", "split_keys", "columns", "primary_key", "primary_key_name"),
        *(*PLACING, "partition_bytes", "hidden_key", "if_not_exists"),
        *("indexes", "checks", "foreign_keys", "behind_changes", "owner"),
    }
)
_DROPPED_AT_ONCE = 100  # tables of a namespace
_DROP_FIELDS = frozenset({"namespace", "name", "names", "cascade", "if_exists"})
_NAMESPACE_FIELDS = frozenset({"namespace", "owner", *PLACING})


def register(registry: Registry, services: DdlServices) -> None:
    """Serve the DDL procedures."""
    registry.add(CreateNamespace)
    registry.add(DropNamespace, make=lambda: DropNamespace(services.changed))
    registry.add(CreateTable, make=lambda: CreateTable(services))
    registry.add(DropTable, make=lambda: DropTable(services))


@procedure("CreateNamespace", locks=namespace_locks)
class CreateNamespace:
    """One step: the row is there or not. The old name of a renamed one is waited for."""

    @step(first=True)
    async def create(self, ctx: StepContext) -> Outcome:
        name = name_in(ctx.args, "namespace")
        args = known_fields(ctx.args, _NAMESPACE_FIELDS)
        owner = name_in(args, "owner") if "owner" in args else ""
        t = await CatalogTxn.of(ctx)
        wait_ms = await relations.space_gone_until(t, name) - ctx.now_ms
        if wait_ms > 0:
            return again(delay_ms=wait_ms)
        await catalog.create_namespace(t, name, owner=owner, **placing_in(args))
        return done({"namespace": name})


@procedure("DropNamespace", locks=namespace_locks)
class DropNamespace:
    """Refused while there is something in it; with `cascade`, that goes first, the tables as
    children: what is gone stays gone if the rest fails. What other schemas of the database have of
    it goes along as by any DROP; a type or function that they use is kept, and with it the
    namespace.
    """

    def __init__(self, changed: Callable[[str, str], None]) -> None:
        self.changed = changed

    @step(first=True)
    async def drop(self, ctx: StepContext) -> Outcome:
        args = known_fields(ctx.args, frozenset({"namespace", "cascade", "if_exists"}))
        name = name_in(args, "namespace")
        t = await CatalogTxn.of(ctx)
        try:
            await catalog.lookup_namespace(t, name)
        except NotFound:
            if args.get("if_exists"):
                return done({"namespace": name, "missing": [name]})
            raise
        every = await relations.list_database(t, name, creating=True)
        there = every.of(name)
        there = replace(there, tables=tuple(one for one in there.tables if one.state != CREATING))
        built_in = name in (DEFAULT_NAMESPACE, POSTGRES_NAMESPACE)
        if args.get("cascade") and there.tables and not built_in:
            names = [table.name for table in there.tables[:_DROPPED_AT_ONCE]]
            call = ("DropTable", {"namespace": name, "names": names, "cascade": True})
            return children([call], then="drop")
        rest: list[View | Sequence | EnumType | SqlFunction] = [*there.views, *there.sequences]
        rest += (*there.types, *there.functions)
        if rest and not (args.get("cascade") or built_in):
            raise refusal(
                "2BP01",
                f"{shown_space(name)} has {rest[0].kind} {rest[0].name}",
                hint="Drop what is in it first.",
                code="NAMESPACE_NOT_EMPTY",
            )
        others = every.of(name, others=True)
        for kind in there.types:
            check_unused(others, kind)
        for function in there.functions:
            check_uncalled(others, function, ())
        targets: list[Relation] = [*there.views, *there.sequences]
        await drop_along(t, plan_drop(every, targets, cascade=True), self.changed)
        await catalog.drop_namespace(t, name)
        if database_of(name) == name:
            await role_settings.forget(t, database=name)
        await relations.forget_all(t, name)
        return done({"namespace": name})


class TableProcedure(RangeProcedure):
    """What the procedures of one table share. ctx.state: table (id), partitions."""

    @staticmethod
    async def table(t: CatalogTxn, ctx: StepContext) -> Table | None:
        return await catalog.find_by_id(t, TableId(ctx.state["table"]))

    @staticmethod
    def result(ctx: StepContext) -> dict[str, Any]:
        return {
            "table_id": ctx.state["table"],
            **TableProcedure.asked(ctx),
            "partitions": [row[0] for row in ctx.state["partitions"]],
        }

    def tell(self, ctx: StepContext) -> None:
        self.changed(ctx.args["namespace"], ctx.args["name"])


@procedure("CreateTable", locks=table_locks)
class CreateTable(TableProcedure):
    @step(first=True, undo="release")
    async def reserve(self, ctx: StepContext) -> Outcome:
        """Check everything, take the names and the ids. A name that caches may still take for a
        table that was renamed is waited for.
        """
        draft, split_keys = declare(ctx.args)
        t = await CatalogTxn.of(ctx)
        namespace = await catalog.lookup_namespace(t, draft.table.namespace)
        name = draft.table.name
        if ctx.args.get("if_not_exists") and (
            there := await relations.find_relation(t, namespace.name, name)
        ):
            return done({"namespace": namespace.name, "name": name, "exists": there.kind})
        wait_ms = await relations.gone_until(t, namespace.name, name) - ctx.now_ms
        if wait_ms > 0:
            return again(delay_ms=wait_ms)
        table_id = await catalog.next_table_id(t)
        settled, sequences = await resolve_declaration.settled(t, draft, table_id)
        settled = replace(settled, acl=made(namespace.defaults, settled.owner, "table"))
        table = await catalog.create_table_record(t, settled, table_id)
        await relations.put_index_names(t, table)
        for sequence in sequences:
            acl = made(namespace.defaults, table.owner, "sequence")
            await relations.put_sequence(t, replace(sequence, acl=acl))
        descriptors = await self._planned(t, namespace, table, split_keys)
        ctx.state["table"] = table_id
        ctx.state["partitions"] = [descriptor.to_wire() for descriptor in descriptors]
        return go_on("partitions")

    async def _planned(
        self, t: CatalogTxn, namespace: Namespace, table: Table, split_keys: list[bytes]
    ) -> list[PartitionDescriptor]:
        """The partitions of the table and of each of its indexes, in the map."""
        wanted = placement(namespace, table)
        await check_shards(t, wanted.shard)
        cuts = [split_keys, *([] for _ in table.indexes)]
        count = sum(len(keys) + 1 for keys in cuts)
        first = await catalog.next_id(t, COUNTER_PARTITION, count=count, first=FIRST_PARTITION)
        ids = [PartitionId(first + i) for i in range(count)]
        places = await self.maker.places(t, ids, wanted)
        found: list[PartitionDescriptor] = []
        for storage_id, keys in zip(table.storage_ids, cuts, strict=True):
            at = len(found)
            there = places[at : at + len(keys) + 1]
            found += plan(storage_id, keys, first + at, there, wanted.shard)
        put_rows(t, found, wanted)
        return found

    @step(undo="drop_partitions", undo_partial=True)
    async def partitions(self, ctx: StepContext) -> Outcome:
        await self.maker.create(self.stored(ctx))
        return go_on("publish")

    @step(point_of_no_return=True)
    async def publish(self, ctx: StepContext) -> Outcome:
        """From this commit on it is there. If it refers to others, whoever hears of it looks for
        its rows before one of theirs is removed, and nobody writes one yet.
        """
        t = await CatalogTxn.of(ctx)
        table = await self.table(t, ctx)
        assert table is not None, "only release removes a table that is being created"
        parents = parents_of(table)
        waits = bool(parents) and not ctx.args.get("behind_changes")
        await catalog.publish(t, table, frozen=waits)
        self.tell(ctx)
        ctx.state["parents"] = parents
        return go_on("open") if waits else done(self.result(ctx))

    @step
    async def open(self, ctx: StepContext) -> Outcome:
        """Nobody is left who would remove a row that is referred to without looking for that."""
        await self.settle(ctx)
        for parent in ctx.state["parents"]:
            await self.native_writers(TableId(parent))
        t = await CatalogTxn.of(ctx)
        # By its name, which is locked: TRUNCATE … CASCADE of a parent gives it another id.
        table = await catalog.find(t, ctx.args["namespace"], ctx.args["name"])
        assert table is not None, "its lock is held"
        ctx.state["table"] = table.id
        await catalog.write(
            t, replace(table, frozen=False, version=table.version + 1), awaited=True
        )
        self.tell(ctx)
        return go_on("opened")

    @step
    async def opened(self, ctx: StepContext) -> Outcome:
        """A transaction that still took it for frozen would be refused (40001)."""
        await self.settle(ctx)
        return done(self.result(ctx))

    @undo
    async def drop_partitions(self, ctx: StepContext) -> None:
        await self.maker.drop(self.stored(ctx))

    @undo
    async def release(self, ctx: StepContext) -> None:
        if "table" not in ctx.state:
            return  # it was waiting for its name
        t = await CatalogTxn.of(ctx)
        table = await self.table(t, ctx)
        delete_rows(t, self.stored(ctx))
        if table is not None:
            await resolve_declaration.forget_parts(t, table)
            await catalog.finish_drop(t, await catalog.start_drop(t, table.namespace, table.name))


@procedure("DropTable", locks=drop_locks)
class DropTable(TableProcedure):
    """ctx.state: tables (ids, those of their indexes, and what goes along), partitions."""

    @step(first=True, point_of_no_return=True)
    async def hide(self, ctx: StepContext) -> Outcome:
        """From this commit on nobody finds the tables, nor what goes with them; their names stay
        taken until their rows are gone. Raises NotFound, Refused (2BP01).
        """
        args = known_fields(ctx.args, _DROP_FIELDS)
        t = await CatalogTxn.of(ctx)
        found, missing = await self._targets(t, args)
        if not found:
            return done({**self.asked(ctx), "missing": missing, "partitions": []})
        there = await relations.list_database(t, found[0].namespace, creating=True)
        drop = plan_drop(there, found, cascade=bool(args.get("cascade")))
        catalog.check_unlinked(drop.tables, "be dropped")
        ids: list[TableId] = []
        for table in drop.tables:
            ids += table.storage_ids
            await resolve_declaration.forget_parts(t, table)
            await catalog.start_drop(t, table.namespace, table.name)
            self.changed(table.namespace, table.name)
        await drop_along(t, drop, self.changed)
        ctx.state["table"] = drop.tables[0].id
        ctx.state["tables"] = [[table.id, table.name] for table in drop.tables]
        ctx.state["ranges"] = ids
        ctx.state["told"] = {"cascaded": drop.notices, "missing": missing}
        ctx.state["partitions"] = [d.to_wire() for d in await self.mapped(t, ids)]
        return go_on("close")

    async def _targets(
        self, t: CatalogTxn, args: Mapping[str, Any]
    ) -> tuple[list[Table], list[str]]:
        """What there is to be dropped, and what is not there (with `if_exists`)."""
        found, missing = [], []
        for namespace, name in places_to_drop(args):
            try:  # one that is being made cannot be dropped
                found.append(await catalog.lookup_any(t, namespace, name))
            except NotFound as error:
                other = await relations.find_relation(t, namespace, name)
                if other is not None and other.kind != "table":
                    raise wrong_kind(name, other.kind, "table") from error
                if error.code == "NAMESPACE_NOT_FOUND":
                    raise
                if not args.get("if_exists"):
                    said = {**error.details, "sql_message": f'table "{name}" does not exist'}
                    raise NotFound(error.message, code=error.code, details=said) from error
                missing.append(name)
        return found, missing

    @staticmethod
    def ranges(ctx: StepContext) -> list[int]:
        """The ids of what is dropped; an earlier version dropped one table without indexes."""
        found: list[int] = ctx.state.get("ranges") or [ctx.state["table"]]
        return found

    @step
    async def close(self, ctx: StepContext) -> Outcome:
        """See `RangeProcedure.closed`."""
        return await self.closed(ctx, self.ranges(ctx), then="partitions")

    @step
    async def partitions(self, ctx: StepContext) -> Outcome:
        stored = self.stored(ctx)
        if not ctx.state.get("closed"):  # of a drop that an earlier version began
            await self.close_all(stored)
        await self.maker.drop(stored)
        return go_on("forget")

    @step
    async def forget(self, ctx: StepContext) -> Outcome:
        t = await CatalogTxn.of(ctx)
        delete_rows(t, self.stored(ctx))  # of a drop that an earlier version began
        own = [ctx.state["table"], ctx.args.get("name")]
        for number, _ in ctx.state.get("tables") or [own]:
            table = await catalog.find_by_id(t, TableId(number))
            if table is not None:
                await catalog.finish_drop(t, table)
                self.changed(table.namespace, table.name)
        return done({**self.result(ctx), **ctx.state.get("told", {})})


def parents_of(table: Table) -> list[int]:
    """The other tables that it refers to."""
    return sorted({int(key.table) for key in table.foreign_keys} - {int(table.id)})


def declare(args: Any) -> tuple[Draft, list[bytes]]:
    """A checked table without an id, and its split keys, from the arguments of CreateTable. Raises
    InvalidArgument or TooLarge.
    """
    namespace, name = name_in(args, "namespace"), name_in(args, "name")
    known_fields(args, _CREATE_FIELDS)
    columns, sequences = columns_in(list_in(args, "columns"))
    primary_key = names_in(args, "primary_key")
    if args.get("hidden_key") and not primary_key:
        columns.append(hidden_key())
        primary_key = [ROWID]
    bare = Table.declare(namespace, name, columns=columns, primary_key=primary_key)
    table = placed(bare, placing_in(args))
    key_name = args.get("primary_key_name") or ""
    if key_name:
        check_sql_name("primary key", key_name)
    owner = name_in(args, "owner") if "owner" in args else ""
    draft = with_parts(replace(table, primary_key_name=key_name, owner=owner), args)
    return replace(draft, sequences=tuple(sequences)), checked_split_keys(
        list_in(args, "split_keys")
    )


def column_args(args: Mapping[str, object], field: str) -> list[Column]:
    """Columns that are added to a table that is there. Raises InvalidArgument."""
    found, sequences = columns_in(list_in(args, field))
    if sequences:
        raise InvalidArgument(
            f"column {sequences[0][0]}: a column that numbers itself cannot be added here"
        )
    return found
