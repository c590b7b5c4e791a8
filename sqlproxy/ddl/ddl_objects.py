"""Views and sequences, and names of things, as procedures of one transaction each: all of it or
nothing.

    CreateView      {namespace, name, sql, columns: [[name, type], …],
                     uses: [[relation, [column, …]], …], replace?, owner?}   → {id, name, version}
    DropView        {namespace, names, cascade?, if_exists?}         → {dropped, cascaded, missing}
    CreateSequence  {namespace, name, options?, owned_by?: [table, column], if_not_exists?, owner?}
    AlterSequence   {namespace, name, options?, restart?: N | true, owned_by?: [table, column] |
                     null, if_exists?}                               → {id, name, version}
    DropSequence    {namespace, names, cascade?, if_exists?}
    RenameTable     {namespace, name, to, views?: {name: sql}, if_exists?}   of a table, a view, a
                     sequence or an index                            → {name, kind}
    RenameColumn    {namespace, name, column, to, checks?: {name: sql}, generated?: {column: sql},
                     views?: {name: sql}}                            → {table_id, version}

A relation that a view reads may be [schema, name], as one in another schema; so may `names`.
`options`: start, increment, minimum, maximum, cycle, type, cache; null is the usual one. References
are by id, so a rename changes names; what is kept as SQL text must be given anew by who can read
SQL (`checks`, `generated`, `views`), else the rename is refused: nothing is left that does not
compile.

The old name of a table is not given to another one before every cache has forgotten it
(`relations.gone_until`); until then who remembers it reaches the table that had it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kv.base.ids import TableId
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
from procedures.engine.registry import Registry, procedure, step
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import described, plan_drop, views_over
from sqlproxy.catalog.privileges import made
from sqlproxy.catalog.relations import IndexName
from sqlproxy.catalog.sequences import Stand, altered, put_stand, sequence_of
from sqlproxy.ddl.steps import (
    CatalogTxn,
    drop_along,
    drop_locks,
    known_fields,
    name_in,
    places_to_drop,
    table_locks,
    wrong_kind,
)
from sqlproxy.ddl.switching import SETTLE_MS
from sqlproxy.rows import records
from sqlproxy.rows.naming import check_sql_name, located, nextval_of, renumbered, schema_of
from sqlproxy.rows.schema import (
    CONSTRAINT,
    CREATING,
    DROPPING,
    INDEX,
    Column,
    EnumType,
    Relation,
    Sequence,
    Table,
    View,
    stands_by,
)
from sqlproxy.values.enums import same_type
from sqlproxy.values.refusals import invalid, refusal
from sqlproxy.values.types import resolve

Changed = Callable[[str, str], None]

_VIEW_FIELDS: Final = frozenset({"namespace", "name", "sql", "columns", "uses", "replace", "owner"})
_DROP_FIELDS: Final = frozenset({"namespace", "name", "names", "cascade", "if_exists"})
_SEQUENCE_FIELDS: Final = frozenset(
    {"namespace", "name", "options", "owned_by", "if_not_exists", "owner"}
)
_ALTER_FIELDS: Final = frozenset(
    {"namespace", "name", "options", "owned_by", "restart", "if_exists"}
)
_RENAME_FIELDS: Final = frozenset({"namespace", "name", "to", "views", "if_exists"})
_COLUMN_FIELDS: Final = frozenset(
    {"namespace", "name", "column", "to", "checks", "generated", "predicates", "views"}
)


def register(registry: Registry, changed: Changed) -> None:
    """Serve the procedures of this module."""
    registry.add(CreateView, make=lambda: CreateView(changed))
    registry.add(DropView, make=lambda: DropView(changed))
    registry.add(CreateSequence, make=lambda: CreateSequence(changed))
    registry.add(AlterSequence, make=lambda: AlterSequence(changed))
    registry.add(DropSequence, make=lambda: DropSequence(changed))
    registry.add(RenameTable, make=lambda: RenameTable(changed))
    registry.add(RenameColumn, make=lambda: RenameColumn(changed))


class _OfRelation:
    """What they share. `changed` is called for tables: a hint to caches, before the commit."""

    def __init__(self, changed: Changed) -> None:
        self.changed = changed


def missing(name: str) -> KvorumError:
    """42P01, in PostgreSQL's words."""
    return refusal("42P01", f'relation "{name}" does not exist', kind=NotFound, name=name)


async def usable(t: CatalogTxn, namespace: str, name: str) -> Relation | IndexName:
    """What has this name, if users see it. Raises NotFound."""
    there = await relations.find_relation(t, namespace, name)
    hidden = isinstance(there, Table) and there.state in (CREATING, DROPPING)
    if there is None or hidden or isinstance(there, EnumType):
        await catalog.lookup_namespace(t, namespace)
        raise missing(name)
    return there


# -- views


@procedure("CreateView", locks=table_locks)
class CreateView(_OfRelation):
    @step(first=True)
    async def create(self, ctx: StepContext) -> Outcome:
        """Raises AlreadyExists, NotFound, InvalidArgument (42P16: not as a replacement)."""
        args = known_fields(ctx.args, _VIEW_FIELDS)
        t = await CatalogTxn.of(ctx)
        view = await _view(t, args)
        there = await relations.find_relation(t, view.namespace, view.name)
        if args.get("replace") and there is not None:
            if not isinstance(there, View):
                raise wrong_kind(view.name, there.kind, "view")
            _check_replaced(there, view)
            view = replace(
                view,
                id=there.id,
                version=there.version + 1,
                owner=there.owner,
                acl=there.acl,
                comments=there.comments,
            )
            await catalog.hold_namespace(t, view.namespace)
            await relations.put_view(t, view)
        else:
            space = await catalog.lookup_namespace(t, view.namespace)
            acl = made(space.defaults, view.owner, "view")
            view = replace(view, id=await catalog.next_table_id(t), acl=acl)
            await relations.create_view(t, view)
        return done(_result(view))


async def _view(t: CatalogTxn, args: Mapping[str, Any]) -> View:
    namespace, name, sql = (name_in(args, field) for field in ("namespace", "name", "sql"))
    check_sql_name("view", name)
    columns = tuple((column, resolve(kind).name) for column, kind in args.get("columns") or ())
    if args.get("columns") is None:
        raise InvalidArgument(f"view {name}: 'columns' must name its columns and their types")
    for column, _ in columns:
        check_sql_name(f"view {name}: column", column)
    if len({column for column, _ in columns}) < len(columns):
        twice = next(c for i, (c, _) in enumerate(columns) if c in [d for d, _ in columns[:i]])
        raise invalid("42701", f'column "{twice}" specified more than once')
    uses = []
    for relation, names in args.get("uses") or ():
        one = await usable(t, *located(namespace, relation))
        if isinstance(one, IndexName):
            raise wrong_kind(one.name, "index", "table")
        uses.append((int(one.id), _column_ids(one, names)))
    role = name_in(args, "owner") if "owner" in args else ""
    return View(0, namespace, name, sql, columns, tuple(uses), owner=role)


def _column_ids(one: Relation, names: list[str]) -> tuple[int, ...]:
    """Ids of columns of a table, places from 1 of a view. Raises InvalidArgument."""
    match one:
        case Table():
            known = {column.name: column.id for column in one.columns}
        case View():
            known = {column: at for at, (column, _) in enumerate(one.columns, 1)}
        case Sequence():
            return ()
    for name in names:
        if name not in known:
            raise invalid("42703", f'column "{name}" does not exist')
    return tuple(known[name] for name in names)


def _check_replaced(old: View, new: View) -> None:
    """PostgreSQL: columns may be added after the others, no more."""
    if len(new.columns) < len(old.columns):
        raise invalid("42P16", "cannot drop columns from view")
    for (had, was), (has, is_) in zip(old.columns, new.columns, strict=False):
        if had != has:
            raise invalid(
                "42P16",
                f'cannot change name of view column "{had}" to "{has}"',
                hint="Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.",
            )
        if not same_type(was, is_):
            raise invalid(
                "42P16", f'cannot change data type of view column "{had}" from {was} to {is_}'
            )


def _result(one: View | Sequence) -> dict[str, Any]:
    return {"id": one.id, "namespace": one.namespace, "name": one.name, "version": one.version}


# -- drops of what has no rows


class _Drop(_OfRelation):
    """DROP VIEW, DROP SEQUENCE."""

    kind: str

    @step(first=True)
    async def drop(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument (another kind of thing), Refused (2BP01)."""
        args = known_fields(ctx.args, _DROP_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace = name_in(args, "namespace")
        await catalog.lookup_namespace(t, namespace)
        found: list[Relation] = []
        absent: list[str] = []
        for space, name in places_to_drop(args):
            there = await relations.find_relation(t, space, name)
            if there is None and args.get("if_exists"):
                absent.append(name)
            elif there is None:
                raise _no_such(self.kind, name)
            elif isinstance(there, IndexName | EnumType) or there.kind != self.kind:
                raise wrong_kind(name, there.kind, self.kind)
            else:
                found.append(there)
        cascaded: list[str] = []
        if found:
            all_of_it = await relations.list_database(t, namespace, creating=True)
            plan = plan_drop(all_of_it, found, cascade=bool(args.get("cascade")))
            assert not plan.tables, "no table depends on a view or a sequence"
            await drop_along(t, plan, self.changed)
            cascaded = plan.notices
        result = {"dropped": [one.name for one in found], "cascaded": cascaded, "missing": absent}
        return done({"namespace": namespace, **result})


def _no_such(kind: str, name: str) -> KvorumError:
    return refusal("42P01", f'{kind} "{name}" does not exist', kind=NotFound, name=name)


@procedure("DropView", locks=drop_locks)
class DropView(_Drop):
    """See the module."""

    kind = "view"


@procedure("DropSequence", locks=drop_locks)
class DropSequence(_Drop):
    """See the module."""

    kind = "sequence"


# -- sequences


@procedure("CreateSequence", locks=table_locks)
class CreateSequence(_OfRelation):
    @step(first=True)
    async def create(self, ctx: StepContext) -> Outcome:
        """Raises AlreadyExists, NotFound (the owner), InvalidArgument."""
        args = known_fields(ctx.args, _SEQUENCE_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, name = name_in(args, "namespace"), name_in(args, "name")
        new = sequence_of(namespace, name, args.get("options") or {})
        there = await relations.find_relation(t, namespace, name)
        if there is not None and args.get("if_not_exists"):
            return done({"namespace": namespace, "name": name, "exists": there.kind})
        owner = await _owner(t, namespace, args.get("owned_by"))
        role = name_in(args, "owner") if "owner" in args else ""
        space = await catalog.lookup_namespace(t, namespace)
        acl = made(space.defaults, role, "sequence")
        new = replace(new, id=await catalog.next_table_id(t), owned_by=owner, owner=role, acl=acl)
        await relations.create_sequence(t, new)
        return done(_result(new))


@procedure("AlterSequence", locks=table_locks)
class AlterSequence(_OfRelation):
    @step(first=True)
    async def alter(self, ctx: StepContext) -> Outcome:
        """Values that somebody took before and has not used yet are given out all the same. Raises
        NotFound, InvalidArgument.
        """
        args = known_fields(ctx.args, _ALTER_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, name = name_in(args, "namespace"), name_in(args, "name")
        there = await relations.find_relation(t, namespace, name)
        if there is None:
            if args.get("if_exists"):
                return done({"namespace": namespace, "name": name, "missing": [name]})
            raise missing(name)
        if not isinstance(there, Sequence):
            raise wrong_kind(name, there.kind, "sequence")
        changed = altered(there, args.get("options") or {})
        if "owned_by" in args:
            changed = replace(changed, owned_by=await _owner(t, namespace, args["owned_by"]))
        changed = replace(changed, version=there.version + 1)
        await relations.put_sequence(t, changed)
        again_at = args.get("restart")
        if again_at is not None and again_at is not False:
            start = changed.start if again_at is True else again_at
            if type(start) is not int or not changed.minimum <= start <= changed.maximum:
                less = type(start) is int and start < changed.minimum
                than = f"less than MINVALUE ({changed.minimum})"
                than = than if less else f"greater than MAXVALUE ({changed.maximum})"
                raise invalid("22023", f"RESTART value ({start}) cannot be {than}")
            put_stand(t, changed, Stand(start, False))
        return done(_result(changed))


async def _owner(t: CatalogTxn, namespace: str, named: Any) -> tuple[int, int] | None:
    """Raises NotFound, InvalidArgument."""
    if named is None:
        return None
    table_name, column_name = named
    table = await usable(t, namespace, table_name)
    if not isinstance(table, Table):
        raise wrong_kind(table_name, table.kind, "table")
    return int(table.id), _column(table, column_name).id


def _column(table: Table, name: str) -> Column:
    """A column that users see. Raises NotFound (42703)."""
    for column in table.visible:
        if column.name == name:
            return column
    raise refusal(
        "42703",
        f'column "{name}" of relation "{table.name}" does not exist',
        kind=NotFound,
        column=name,
    )


# -- names


def rename_locks(args: object) -> list[Lock]:
    namespace = name_in(args, "namespace")
    return [exclusive(f"table/{namespace}/{name_in(args, field)}") for field in ("name", "to")]


@procedure("RenameTable", locks=rename_locks)
class RenameTable(_OfRelation):
    @step(first=True)
    async def rename(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists, Refused (a view's text would not compile any more)."""
        args = known_fields(ctx.args, _RENAME_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, name, to = (name_in(args, field) for field in ("namespace", "name", "to"))
        check_sql_name("relation", to)
        if args.get("if_exists") and not await relations.find_relation(t, namespace, name):
            return done({"namespace": namespace, "name": name, "missing": [name]})
        there = await usable(t, namespace, name)
        wait_ms = await relations.gone_until(t, namespace, to) - ctx.now_ms
        if wait_ms > 0 and isinstance(there, Table):
            return again(delay_ms=wait_ms)
        await relations.check_free(t, namespace, to)
        if not isinstance(there, IndexName):
            await views_anew(t, namespace, there.id, args.get("views") or {})
        match there:
            case Table():
                catalog.check_unlinked([there], "be renamed")
                await self._table(t, there, to, ctx.now_ms)
            case View():
                await relations.drop_name(t, namespace, name)
                await relations.put_view(t, replace(there, name=to, version=there.version + 1))
            case Sequence():
                await relations.drop_name(t, namespace, name)
                await relations.put_sequence(t, replace(there, name=to, version=there.version + 1))
                sql = nextval_of(to, schema_of(namespace))
                await sequence_renamed(t, there, sql, self.changed)
            case IndexName():
                await self._index(t, there, to)
        return done({"namespace": namespace, "name": to, "kind": there.kind})

    async def _table(self, t: CatalogTxn, table: Table, to: str, now_ms: int) -> None:
        """The primary key and the indexes keep their names, as in PostgreSQL."""
        await catalog.remove(t, table)
        renamed = replace(table, name=to, version=table.version + 1)
        await catalog.write(t, renamed)
        for number in renamed.storage_ids:
            catalog.put_id(t, number, renamed)
        row = [records.FORMAT, relations.GONE, now_ms + SETTLE_MS]
        await relations.put_name(t, table.namespace, table.name, row)
        for name in (table.name, to):
            self.changed(table.namespace, name)

    async def _index(self, t: CatalogTxn, one: IndexName, to: str) -> None:
        table = await catalog.find_by_id(t, one.table)
        assert table is not None, "an index has a table"
        await relations.drop_name(t, one.namespace, one.name)
        if one.kind == relations.KEY:
            renamed = replace(table, primary_key_name=to)
        else:
            indexes = tuple(replace(i, name=to) if i.id == one.id else i for i in table.indexes)
            renamed = replace(table, indexes=indexes)
        notes = table.renoted(one.name, to, INDEX, CONSTRAINT)
        renamed = replace(renamed, version=table.version + 1, notes=notes)
        await catalog.write(t, renamed)
        await relations.put_index_names(t, renamed)
        self.changed(table.namespace, table.name)


async def sequence_renamed(t: CatalogTxn, sequence: Sequence, sql: str, changed: Changed) -> None:
    """The text of defaults that name it, in whatever schema. `sql`: what takes its values now."""

    def renamed(column: Column) -> Column:
        text = column.default_sql
        if text is None or column.sequence == sequence.id:
            return column if text is None else replace(column, default_sql=sql)
        now = renumbered(text, sequence.name, schema_of(sequence.namespace), sql)
        return column if now == text else replace(column, default_sql=now)

    for table in (await relations.list_database(t, sequence.namespace, creating=True)).tables:
        columns = tuple(map(renamed, table.columns))
        if columns != table.columns:
            await catalog.write(t, replace(table, columns=columns, version=table.version + 1))
            changed(table.namespace, table.name)


async def views_anew(
    t: CatalogTxn, namespace: str, relation: int, texts: Mapping[str, str], column: int = 0
) -> None:
    """The texts of the views that read the relation (or this column of it), by their paths; of
    those in its own namespace also by their names. Raises Refused.
    """
    there = await relations.list_database(t, namespace)
    reading = [view for view in there.views if any(n == relation for n, _ in view.uses)]
    if column:
        reading = views_over(there, relation, column)
    for view in reading:
        own = texts.get(view.name) if view.namespace == namespace else None
        text = texts.get(view.path, own)
        if not isinstance(text, str):
            raise unreadable(described(view))
        await relations.put_view(t, replace(view, sql=text, version=view.version + 1))


def unreadable(what: str) -> KvorumError:
    return refusal(
        "0A000",
        f"{what} uses the old name, and its text was not given anew",
        hint="Drop it first and make it again afterwards.",
        code="HAS_DEPENDENTS",
    )


@procedure("RenameColumn", locks=table_locks)
class RenameColumn(_OfRelation):
    @step(first=True)
    async def rename(self, ctx: StepContext) -> Outcome:
        """Rows know columns by their ids: nothing but the descriptor changes. Raises NotFound,
        AlreadyExists, Refused (what uses it would not compile any more).
        """
        args = known_fields(ctx.args, _COLUMN_FIELDS)
        t = await CatalogTxn.of(ctx)
        namespace, name = name_in(args, "namespace"), name_in(args, "name")
        had, to = name_in(args, "column"), name_in(args, "to")
        check_sql_name("column", to)
        table = await usable(t, namespace, name)
        if not isinstance(table, Table):
            raise wrong_kind(name, table.kind, "table")
        if table.standby:
            raise stands_by(table)
        column = _column(table, had)
        if any(to == other.name for other in table.columns):
            raise invalid("42701", f'column "{to}" of relation "{name}" already exists', column=to)
        renamed = renamed_column(
            table,
            column,
            to,
            args.get("checks") or {},
            args.get("generated") or {},
            args.get("predicates") or {},
        )
        await views_anew(t, namespace, table.id, args.get("views") or {}, column.id)
        await catalog.write(t, renamed)
        self.changed(namespace, name)
        return done({"table_id": TableId(table.id), "name": name, "version": renamed.version})


def renamed_column(
    table: Table,
    column: Column,
    to: str,
    checks: Mapping[str, str],
    generated: Mapping[str, str],
    predicates: Mapping[str, str],
) -> Table:
    """The table with the column under another name, and the given texts. Raises Refused."""
    columns: list[Column] = []
    for one in table.columns:
        if one.generated is not None and column.id in one.uses:
            if one.name not in generated:
                raise unreadable(f"generated column {one.name}")
            one = replace(one, generated=generated[one.name])
        columns.append(replace(one, name=to) if one.id == column.id else one)
    parts = []
    for check in table.checks:
        if column.id in check.columns:
            if check.name not in checks:
                raise unreadable(f"constraint {check.name}")
            check = replace(check, sql=checks[check.name])
        parts.append(check)
    indexes = []
    for index in table.indexes:
        if column.id in index.where_columns:
            if index.name not in predicates:
                raise unreadable(f"index {index.name}")
            index = replace(index, where=predicates[index.name])
        indexes.append(index)
    key = tuple(to if name == column.name else name for name in table.primary_key)
    return replace(
        table,
        indexes=tuple(indexes),
        columns=tuple(columns),
        checks=tuple(parts),
        primary_key=key,
        version=table.version + 1,
    )
