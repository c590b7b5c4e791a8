"""ALTER TABLE, one action after the other: each is a procedure of its own (sqlproxy.change).

What would have to store every row in another form is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlproxy.errors import DUPLICATE_COLUMN, INVALID_TABLE_DEFINITION, SqlError, unsupported
from sqlproxy.front import definitions as d
from sqlproxy.front.binder import Binder
from sqlproxy.front.compiling import compile
from sqlproxy.front.resolve import ASSIGNMENT
from sqlproxy.front.scope import Parameters, Scope
from sqlproxy.front.syntax import parse_expression
from sqlproxy.pg.oids import by_name
from sqlproxy.schema import Table
from sqlproxy.session.definitions import (
    check_args,
    column_args,
    foreign_key_args,
    index_args,
    known_options,
    run,
    tell_deferrable,
)
from sqlproxy.session.environment import environment
from sqlproxy.types import resolve

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession


async def apply(session: SqlSession, table: str, action: d.Action) -> None:
    """Raises SqlError, KvorumError."""
    match action:
        case d.AddColumn():
            await _add_column(session, table, action)
        case d.DropColumn(name, missing_ok, cascade):
            args = {"column": name, "cascade": cascade, "if_exists": missing_ok}
            told = await run(session, "DropColumn", {"name": table, **args})
            for one in told.get("missing", ()):
                session.notice(f'column "{one}" of relation "{table}" does not exist, skipping')
            for one in told.get("cascaded", ()):
                session.notice(f"drop cascades to {one}")
        case d.AddConstraint(constraint, index):
            await _add_constraint(session, table, constraint, index)
        case d.DropConstraint(name, missing_ok, _):
            await _drop_constraint(session, table, name, missing_ok)
        case d.ValidateConstraint(name):
            await run(session, "AddConstraint", {"name": table, "validate": name})
        case d.SetOptions():
            if options := known_options(session, action.options):
                await run(session, "ModifyTable", {"name": table, **options})
        case _:
            await _alter_column(session, table, action)


async def _alter_column(session: SqlSession, table: str, action: Any) -> None:
    """ALTER COLUMN."""
    match action:
        case d.SetDefault(column, default, sql):
            there = await _table(session, table)
            stored = None if default is None else there.column(column).resolved.to_stored(default)
            changes = {"column": column, "default_stored": stored, "default_sql": sql}
            await _alter(session, table, "set_default", **changes)
        case d.SetNullable(column, nullable):
            if nullable:
                await _alter(session, table, "drop_not_null", column=column)
            else:
                await run(session, "AddConstraint", {"name": table, "not_null": column})
        case d.SetType(column, kind, using):
            if using is not None:
                raise unsupported("ALTER COLUMN … TYPE … USING", hint=_COPY)
            await _alter(session, table, "set_type", column=column, type=kind)
        case d.DropExpression(column):
            await _alter(session, table, "drop_expression", column=column)
        case _:
            raise unsupported("changing the identity of a column")


_COPY = "Add a column of the new type, fill it by UPDATE, and drop the old one."


async def _constant(session: SqlSession, column: d.ColumnDef) -> Any:
    """What rows that are there get: the default's value now, as PostgreSQL takes it, if it is the
    same for all rows. Raises SqlError.
    """
    assert column.default_sql is not None
    of, typmod = by_name(column.type)
    binder = Binder(await session.declared(), Parameters(allowed=False), session.style)
    expr = binder.expr(parse_expression(column.default_sql), Scope())
    found = binder.casts.to(expr, of.oid, typmod, ASSIGNMENT, 0)
    assert found is not None, "it was checked when it was bound"
    compiled = compile(found)
    if compiled.volatile or compiled.sequences:
        raise unsupported(
            "adding a column whose default differs from row to row",
            hint="Add it without, fill it by UPDATE, and set its default.",
        )
    return compiled.fn((), environment(session, ())[0])


async def _table(session: SqlSession, name: str) -> Table:
    """As it is now: an action before may have changed it."""
    found: Table | None = (await session.declared()).table(name)
    if found is None:
        raise SqlError("42P01", f'relation "{name}" does not exist')
    return found


async def _alter(session: SqlSession, table: str, kind: str, **more: Any) -> Any:
    return await run(session, "AlterTable", {"name": table, "action": {"kind": kind, **more}})


async def rename_constraint(session: SqlSession, table: str, name: str, to: str) -> None:
    """A unique constraint, or a primary key, is renamed as its index."""
    there = await _table(session, table)
    if name == there.primary_key_name or there.index(name) is not None:
        await run(session, "RenameTable", {"name": name, "to": to})
        return
    await _alter(session, table, "rename_constraint", constraint=name, to=to)


async def _add_constraint(session: SqlSession, table: str, constraint: Any, index: str) -> None:
    if index:
        raise unsupported("ADD CONSTRAINT … USING INDEX", hint="Add it without; drop the index.")
    match constraint:
        case d.KeyDef(primary=True):
            await _add_primary_key(session, table, constraint)
        case d.KeyDef():
            await run(session, "CreateIndex", {"name": table, "index": index_args(constraint)})
        case d.CheckDef():
            args = {"check": check_args(constraint), "not_valid": not constraint.validated}
            await run(session, "AddConstraint", {"name": table, **args})
        case _:
            tell_deferrable(session, constraint)
            key = {"foreign_key": foreign_key_args(constraint)}
            await run(
                session,
                "AddConstraint",
                {"name": table, **key, "not_valid": not constraint.validated},
            )


async def _add_primary_key(session: SqlSession, table: str, key: d.KeyDef) -> None:
    """Rows go on lying by their numbers: it is an index, and its columns are NOT NULL."""
    there = await _table(session, table)
    if there.declared_key:
        raise SqlError(
            INVALID_TABLE_DEFINITION, f'multiple primary keys for table "{table}" are not allowed'
        )
    for part in key.parts:
        await run(session, "AddConstraint", {"name": table, "not_null": part.column})
    await run(session, "CreateIndex", {"name": table, "index": index_args(key)})


async def _drop_constraint(session: SqlSession, table: str, name: str, missing_ok: bool) -> None:
    told = await _alter(session, table, "drop_constraint", constraint=name, if_exists=missing_ok)
    if told.get("missing"):
        session.notice(f'constraint "{name}" of relation "{table}" does not exist, skipping')
    if index := told.get("index"):
        await run(session, "DropIndex", {"names": [index]})


async def _add_column(session: SqlSession, table: str, action: d.AddColumn) -> None:
    column = action.column
    there = await _table(session, table)
    if any(c.name == column.name for c in there.columns):
        if action.if_not_exists:
            session.notice(f'column "{column.name}" of relation "{table}" already exists, skipping')
            return
        raise SqlError(
            DUPLICATE_COLUMN, f'column "{column.name}" of relation "{table}" already exists'
        )
    args = column_args(column)
    more: dict[str, Any] = {}
    if column.identity or column.serial or column.generated is not None:
        raise unsupported(
            "adding a column that is numbered or generated",
            hint="Add a plain column, fill it by UPDATE, and set its default.",
        )
    if column.default_sql is not None and column.default is None:
        value = await _constant(session, column)
        kind = resolve(column.type)
        more["initial_stored"] = None if value is None else kind.to_stored(value)
    required = not column.nullable
    args["nullable"] = True
    await _alter(session, table, "add_column", column=args, **more)
    if required:
        await run(session, "AddConstraint", {"name": table, "not_null": column.name})
