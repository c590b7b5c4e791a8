"""DROP SCHEMA, DROP TYPE and DROP DATABASE: several definitions, each a job of its own, with what
depends on what they drop. What none of them can take along is refused before the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlproxy.catalog.dropping import (
    Plan,
    check_unused,
    described,
    described_type,
    plan_drop,
    users_of,
)
from sqlproxy.catalog.relations import Relations
from sqlproxy.ddl.change.columns import check_goes
from sqlproxy.ddl.change.functions import check_uncalled, shown_function
from sqlproxy.declared.database import name_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.rows.naming import PUBLIC, database_of, namespace_of, schema_of
from sqlproxy.rows.schema import Column, EnumType, Relation, Table
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.commands.run_commands import check_outside
from sqlproxy.session.definitions.alterations import drop_column
from sqlproxy.session.definitions.definition_jobs import by_schema, run, tell_cascaded
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError
from sqlproxy.values.refusals import DROP_TOO


async def drop_schemas(session: State, bound: d.DropSchemas) -> str:
    for words in bound.skipped:
        session.notice(words)
    if not bound.names:
        return "DROP SCHEMA"
    declared = await session.declared()
    spaces = [namespace_of(session.database, name) for name in bound.names]
    found = declared.found
    inside = [one for one in found if one.namespace in spaces and not _owned(one)]
    kinds = [one for one in found.types if one.namespace in spaces]
    functions = [one for one in found.functions if one.namespace in spaces]
    plan = plan_drop(found, inside, cascade=True)
    own = [(described(one), one.namespace) for one in inside]
    own += [(described_type(one), one.namespace) for one in kinds]
    own += [(f"function {shown_function(one)}", one.namespace) for one in functions]
    columns = list(_columns(found, kinds, spaces))
    outside = [f"column {column.name} of {described(table)}" for table, column, _ in columns]
    if not bound.cascade and own:
        lines = [f"{what} depends on schema {schema_of(space)}" for what, space in own]
        lines += plan.lines
        lines += [
            f"{what} depends on {described_type(kind)}"
            for what, (_, _, kind) in zip(outside, columns, strict=True)
        ]
        single = len(bound.names) == 1
        what = f"schema {bound.names[0]}" if single else "desired object(s)"
        them = "it" if single else "them"
        words = f"cannot drop {what} because other objects depend on {them}"
        raise SqlError("2BP01", words, detail="\n".join(lines), hint=DROP_TOO)
    left = _left(found, plan, spaces, columns)
    _check_kinds(left, kinds)
    for one in functions:
        check_uncalled(left, one, (), cascade=True)
    along = [*(what for what, _ in own), *plan.notices]
    for table, column, _ in columns:
        along += [f"column {column.name} of {described(table)}"]
        along += await drop_column(session, name_of(table), column.name, cascade=True)
    for name in bound.names:
        there = (await session.declared()).names_by_kind(name)
        await drop_all(session, namespace_of(session.database, name), there)
    tell_cascaded(session, list(dict.fromkeys(along)))
    return "DROP SCHEMA"


async def drop_types(session: State, bound: d.DropTypes) -> str:
    for words in bound.skipped:
        session.notice(words)
    if bound.cascade:
        declared = await session.declared()
        every = (declared.enum_type(name) for name in bound.names)
        kinds = [one for one in every if one is not None]
        columns = list(_columns(declared.found, kinds, ()))
        _check_kinds(_left(declared.found, Plan(), (), columns), kinds)
        along: list[str] = []
        for table, column, _ in columns:
            along.append(f"column {column.name} of {described(table)}")
            along += await drop_column(session, name_of(table), column.name, cascade=True)
        tell_cascaded(session, list(dict.fromkeys(along)))
    for names in by_schema(bound.names):
        await run(session, "DropEnum", {"names": names, "cascade": bound.cascade})
    return "DROP TYPE"


def _owned(one: Relation) -> bool:
    """Whether it goes with a table, without a word."""
    return isinstance(one, SequenceRow) and one.owned_by is not None


def _columns(
    found: Relations, kinds: Iterable[EnumType], spaces: Sequence[str]
) -> Iterator[tuple[Table, Column, EnumType]]:
    """Those of tables in other namespaces that have one of these types."""
    for kind in kinds:
        for table, column in users_of(found.tables, kind.enum.oid):
            if table.namespace not in spaces and any(c is column for c in table.visible):
                yield table, column, kind


def _left(
    found: Relations,
    plan: Plan,
    spaces: Sequence[str],
    columns: Iterable[tuple[Table, Column, EnumType]],
) -> Relations:
    """What is there when all of it is gone, but for the types themselves. Raises Refused (0A000):
    rows lie by one of the columns.
    """
    gone: dict[int, set[int]] = {}
    for table, column, _ in columns:
        check_goes(table, column)
        gone.setdefault(int(table.id), set()).add(column.id)
    reading = [
        view
        for view in found.views
        if any(set(read) & gone.get(number, set()) for number, read in view.uses)
    ]
    also = plan_drop(found, reading, cascade=True).views
    views = {view.id for view in (*plan.views, *also)}
    return replace(
        found,
        tables=tuple(
            _without(table, gone.get(int(table.id), set()))
            for table in found.tables
            if table.namespace not in spaces
        ),
        views=tuple(view for view in found.views if view.id not in views),
        functions=tuple(one for one in found.functions if one.namespace not in spaces),
    )


def _without(table: Table, gone: set[int]) -> Table:
    """Without these columns, and what is about them."""
    return replace(
        table,
        columns=tuple(c for c in table.columns if c.id not in gone and not gone & set(c.uses)),
        checks=tuple(check for check in table.checks if not gone & set(check.columns)),
        indexes=tuple(index for index in table.indexes if not gone & index.used_ids),
    )


def _check_kinds(left: Relations, kinds: Iterable[EnumType]) -> None:
    """Raises Refused (0A000): something else names one of these types."""
    for kind in kinds:
        check_unused(left, kind, cascade=True)


async def drop_all(session: State, namespace: str, there: Mapping[str, Sequence[str]]) -> None:
    """A namespace with all that is in it."""
    database = database_of(namespace)
    for kind, names in there.items():
        if names:
            args = {
                "namespace": namespace,
                "names": list(names),
                "cascade": True,
                "if_exists": True,
            }
            await run(session, f"Drop{kind}", args)
            session.services.catalogs.forget(database)
    await run(session, "DropNamespace", {"namespace": namespace})
    session.services.catalogs.forget(database)


async def drop_database(session: State, bound: d.DropDatabase) -> str:
    check_outside(session, "DROP DATABASE")
    if bound.name == session.database:
        raise SqlError("55006", "cannot drop the currently open database")
    cluster = await session.services.cluster()
    if bound.name not in cluster.databases:
        if not bound.missing_ok:
            raise SqlError("3D000", f'database "{bound.name}" does not exist')
        session.notice(f'database "{bound.name}" does not exist, skipping')
        return "DROP DATABASE"
    declared = await session.services.catalogs.declared(bound.name)
    session.permits.check_database(declared)
    every = [namespace_of(bound.name, schema) for schema in (*declared.schemas, PUBLIC)]
    for kind in _KINDS:  # of all schemas: what is left uses nothing that went before
        for space in every:
            names = declared.names_by_kind(schema_of(space))[kind]
            if names:
                args = {"namespace": space, "names": names, "cascade": True, "if_exists": True}
                await run(session, f"Drop{kind}", args)
                session.services.catalogs.forget(bound.name)
    for space in every:
        await drop_all(session, space, {})
    return "DROP DATABASE"


_KINDS: Final = ("View", "Table", "Sequence", "Function", "Enum")
