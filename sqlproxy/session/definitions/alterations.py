"""ALTER TABLE, one action after the other: each is a procedure of its own (sqlproxy.ddl.change).

Additions next to each other are one of them (`additions`). What another definition needs besides
goes before or after it, each by itself: NOT NULL of a primary key that is made of an index, what
CASCADE takes along.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlproxy.catalog.dropping import described
from sqlproxy.ddl.change.altering import check_constraint_goes, same_form
from sqlproxy.ddl.change.columns import check_goes
from sqlproxy.declared.database import name_of
from sqlproxy.front.binding.binder import Binder
from sqlproxy.front.binding.scope import Parameters, Scope
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.exprs import Const
from sqlproxy.front.closures.compiling import fold
from sqlproxy.front.syntax.syntax import parse_expression
from sqlproxy.front.types.registry import format_type
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg.oids import by_name
from sqlproxy.rows.naming import named, schema_in
from sqlproxy.rows.schema import Column, Table, View
from sqlproxy.session.definitions.additions import add, is_addition
from sqlproxy.session.definitions.definition_arguments import (
    Arguments,
    numbered_by,
    placed_default,
    sequence_options,
)
from sqlproxy.session.definitions.definition_jobs import (
    known_options,
    run,
    table_now,
    tell_cascaded,
    together,
)
from sqlproxy.session.definitions.sequence_definitions import alter_sequence
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError
from sqlproxy.values.types import resolve


async def apply(session: State, table: str, actions: Sequence[d.Action]) -> None:
    """Those next to each other that add something are one addition: all of it or nothing. Raises
    SqlError, KvorumError.
    """
    for adds, some in groupby(actions, key=is_addition):
        if adds:
            await add(session, table, list(some))
            continue
        for action in some:
            await _apply(session, table, action)


async def _apply(session: State, table: str, action: d.Action) -> None:
    match action:
        case d.DropColumn(name, missing_ok, cascade):
            gone = await drop_column(session, table, name, cascade=cascade, missing_ok=missing_ok)
            tell_cascaded(session, gone)
        case d.AddConstraint(constraint, index):
            assert isinstance(constraint, d.KeyDef)
            await _use_index(session, table, constraint, index)
        case d.DropConstraint(name, missing_ok, cascade):
            await _drop_constraint(session, table, name, missing_ok, cascade)
        case d.ValidateConstraint(name):
            await run(session, "AddConstraint", {"name": table, "validate": name})
        case d.AlterConstraint(name, deferrable, deferred):
            when = {"deferrable": deferrable, "deferred": deferred}
            await _alter(session, table, "alter_constraint", constraint=name, **when)
        case d.SetOptions():
            if options := known_options(session, action.options):
                await run(session, "ModifyTable", {"name": table, **options})
        case _:
            await _alter_column(session, table, action)


async def _alter_column(session: State, table: str, action: d.Action) -> None:
    """ALTER COLUMN."""
    match action:
        case d.SetDefault(column, default, sql):
            there = await table_now(session, table)
            sql = placed_default(sql, await session.declared(), table)
            stored = None if default is None else there.column(column).resolved.to_stored(default)
            changes = {"column": column, "default_stored": stored, "default_sql": sql}
            changes |= numbered_by(sql, table)
            await _alter(session, table, "set_default", **changes)
        case d.SetNullable(column, nullable):
            assert nullable, "SET NOT NULL is an addition"
            await _alter(session, table, "drop_not_null", column=column)
        case d.SetType():
            await _set_type(session, table, action)
        case d.DropExpression(column, missing_ok):
            there = await table_now(session, table)
            if missing_ok and there.column(column).generated is None:
                session.notice(
                    f'column "{column}" of relation "{table}" is not a stored generated column, '
                    "skipping"
                )
                return
            await _alter(session, table, "drop_expression", column=column)
        case d.SetIdentity():
            await _set_identity(session, table, action)
        case _:
            raise AssertionError(action)


async def _set_identity(session: State, table: str, action: d.SetIdentity) -> None:
    """ADD, SET and DROP of an identity, and options of its sequence. Raises SqlError."""
    there = await table_now(session, table)
    column = there.column(action.column)
    named = f'column "{column.name}" of relation "{table}"'
    if action.add:
        if column.identity:
            raise SqlError("55000", f"{named} is already an identity column")
        if column.default_sql is not None or column.sequence:
            raise SqlError("55000", f"{named} already has a default value")
        if column.nullable:
            raise SqlError(
                "55000", f"{named} must be declared NOT NULL before identity can be added"
            )
    elif not column.identity:
        if action.missing_ok:
            session.notice(f"{named} is not an identity column, skipping")
            return
        raise SqlError("55000", f"{named} is not an identity column")
    if action.add:
        options = sequence_options(action.options)
        changes = {"identity": action.identity, "sequence": options}
        await _alter(session, table, "set_identity", column=column.name, **changes)
        return
    if action.identity is not None:
        await _alter(session, table, "set_identity", column=column.name, identity=action.identity)
    if action.options:
        sequences = (await session.declared()).sequences_owned_by(there.id)
        own = next(s for s in sequences if s.owned_by == (int(there.id), column.id))
        await alter_sequence(session, d.AlterSequence(own, action.options))


async def _set_type(session: State, table: str, action: d.SetType) -> None:
    """At once if values stay as they are stored; else by a column that takes its place, and plain
    indexes with it are made again.
    """
    there = await table_now(session, table)
    column, kind = there.column(action.column), resolve(action.type)
    if action.plain and same_form(column.resolved, kind):
        await _alter(session, table, "set_type", column=column.name, type=action.type)
        return
    changes: Arguments = {
        "column": column.name,
        "type": action.type,
        "sql": action.using or '"' + column.name.replace('"', '""') + '"',
        "uses": list(action.uses),
    }
    if column.default_sql is not None:
        value = await _default_as(session, column, action.type)
        changes |= {"default_sql": column.default_sql, "default_stored": value}
    plain = [i for i in there.indexes if column.id in i.used_ids and not (i.unique or i.where)]
    if plain:
        changes["indexes"] = [index.name for index in plain]
    await run(session, "AlterType" if plain else "ChangeType", {"name": table, **changes})


async def _default_as(session: State, column: Column, kind: str) -> object:
    """A column's default under another type, in stored form; None if it is no constant. Raises
    SqlError (42804).
    """
    assert column.default_sql is not None
    of, typmod = by_name(kind)
    binder = Binder(await session.declared(), Parameters(allowed=False), session.style)
    expr = binder.expr(parse_expression(column.default_sql), Scope())
    found = binder.casts.to(expr, of.oid, typmod, ASSIGNMENT, 0)
    if found is None:
        raise SqlError(
            "42804",
            f'default for column "{column.name}" cannot be cast automatically to type '
            f"{format_type(of.oid, typmod)}",
        )
    folded = fold(found)
    if not isinstance(folded, Const) or folded.value is None:
        return None
    return resolve(kind).to_stored(folded.value)


async def _alter(session: State, table: str, kind: str, **more: object) -> Any:
    return await run(session, "AlterTable", {"name": table, "action": {"kind": kind, **more}})


async def _use_index(session: State, table: str, key: d.KeyDef, index: str) -> None:
    there = await table_now(session, table)
    found = there.index(index)
    if key.primary and found is not None:
        for number in found.column_ids:
            if there.by_id(number).nullable:
                name = there.by_id(number).name
                await run(session, "AddConstraint", {"name": table, "not_null": name})
    if (name := key.name or index) != index:
        session.notice(
            f'ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index "{index}" to "{name}"'
        )
    more = {"deferrable": True, "deferred": key.deferred} if key.deferrable else {}
    await _alter(
        session, table, "use_index", index=index, constraint=name, primary=key.primary, **more
    )


async def _drop_constraint(
    session: State, table: str, name: str, missing_ok: bool, cascade: bool
) -> None:
    if cascade:
        there = await table_now(session, table)
        check_constraint_goes(there, name)
        for own, columns in there.unique_sets():
            if own == name:
                gone = await _drop_references(session, there, set(columns), exactly=True)
                tell_cascaded(session, gone)
    result = await _alter(session, table, "drop_constraint", constraint=name, if_exists=missing_ok)
    if result.get("missing"):
        session.notice(f'constraint "{name}" of relation "{table}" does not exist, skipping')
    if index := result.get("index"):
        await run(session, "DropIndex", {"names": [named(schema_in(table), index)]})


async def _drop_references(
    session: State, table: Table, columns: set[int], *, exactly: bool
) -> list[str]:
    """Foreign keys that refer to these columns; a definition of its own for each. In words."""
    gone = []
    for other, key in (await session.declared()).referring_to(table.id):
        if set(key.referenced) == columns or (not exactly and columns & set(key.referenced)):
            await _alter(session, name_of(other), "drop_constraint", constraint=key.name)
            gone.append(f"constraint {key.name} on {described(other)}")
    return gone


async def drop_column(
    session: State, table: str, name: str, *, cascade: bool, missing_ok: bool = False
) -> list[str]:
    """With CASCADE, views over it and foreign keys to it go first, each by itself. What went along,
    in words.
    """
    there = await table_now(session, table)
    gone: list[str] = []
    if cascade and (column := next((c for c in there.visible if c.name == name), None)):
        check_goes(there, column)
        declared = await session.declared()
        reading = [
            view
            for view in declared.contents.relations.values()
            if isinstance(view, View) and (int(there.id), column.id) in _columns_read(view)
        ]
        views = [name_of(view) for view in reading]
        for names in together(views):
            result = await run(session, "DropView", {"names": names, "cascade": True})
            gone += [*(described(one) for one in reading), *(result.get("cascaded") or ())]
        gone += await _drop_references(session, there, {column.id}, exactly=False)
    args = {"column": name, "cascade": cascade, "if_exists": missing_ok}
    result = await run(session, "DropColumn", {"name": table, **args})
    for one in result.get("missing", ()):
        session.notice(f'column "{one}" of relation "{table}" does not exist, skipping')
    return [*gone, *result.get("cascaded", ())]


def _columns_read(view: View) -> set[tuple[int, int]]:
    return {(relation, column) for relation, columns in view.uses for column in columns}
