"""DDL: which definitions there are, and what each does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import KvorumError
from kv.base.ids import FIRST_PRIVATE_TABLE
from sqlproxy.declared.database import name_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound import statements as s
from sqlproxy.front.ddl.ddl_options import NAMESPACE_OPTIONS
from sqlproxy.rows.naming import (
    bare,
    first_free,
    is_temporary,
    joined_columns,
    namespace_of,
    reference,
    schema_in,
    schema_of,
)
from sqlproxy.session.commands import grant_privileges
from sqlproxy.session.commands.run_commands import check_outside
from sqlproxy.session.definitions import drop_schemas, rename_objects
from sqlproxy.session.definitions.alterations import apply
from sqlproxy.session.definitions.definition_arguments import (
    Arguments,
    check_reference,
    index_args,
    placed_default,
    table_args,
)
from sqlproxy.session.definitions.definition_jobs import (
    by_schema,
    known_options,
    make,
    run,
    table_now,
    tell_cascaded,
    together,
)
from sqlproxy.session.definitions.sequence_definitions import alter_sequence, create_sequence
from sqlproxy.session.running import run_statements
from sqlproxy.session.shared.prepared import Prepared, plan_of
from sqlproxy.session.state.state import State
from sqlproxy.tables.reading import Touched
from sqlproxy.values.errors import SqlError, from_store, unsupported

Define = Callable[[State, Any], Awaitable[str]]  # → the command tag


async def create_table(session: State, bound: d.CreateTable) -> str:
    options = known_options(session, bound.options)
    declared = await session.declared()
    columns = [
        replace(one, default_sql=placed_default(one.default_sql, declared, bound.name))
        for one in bound.columns
    ]
    args = table_args(bound.name, columns, bound.keys, bound.checks, bound.foreign_keys, options)
    for key in bound.foreign_keys:
        check_reference(bound.name, key.table)
        if bound.on_commit == "delete rows":
            raise SqlError(
                "0A000",
                "unsupported ON COMMIT and foreign key combination",
                detail=f'Table "{bound.name}" references "{key.table}", but they do not have the '
                "same ON COMMIT setting.",
            )
    if bound.foreign_keys and session.block.wrote:
        args["behind_changes"] = True  # it would wait for this transaction, which waits for it
    made = await make(session, "CreateTable", bound.name, args, lenient=bound.if_not_exists)
    _on_commit(session, bound, made=made)
    for kind, part, text in bound.notes if made else ():
        await grant_privileges.comment(session, d.Comment(kind, bound.name, part, text))
    return "CREATE TABLE"


def _on_commit(session: State, bound: d.CreateTable | d.CreateTableAs, *, made: bool) -> None:
    if made and bound.on_commit and session.temporary is not None:
        session.temporary.on_commit(bare(bound.name), bound.on_commit)


async def create_table_as(session: State, bound: d.CreateTableAs) -> str:
    options = known_options(session, bound.options)
    args = table_args(bound.name, bound.columns, options=options)
    made = await make(session, "CreateTable", bound.name, args, lenient=bound.if_not_exists)
    _on_commit(session, bound, made=made)
    if not (made and bound.with_data):
        return "CREATE TABLE AS"
    count = await _fill(session, bound.name, [c.name for c in bound.columns], bound.select)
    return f"SELECT {count}"


async def _fill(session: State, name: str, columns: Sequence[str], select: s.Select) -> int:
    """INSERT INTO a table that was just made; the number of rows."""
    declared = await session.declared()
    table = await table_now(session, name)
    item = s.TableItem(alias=name, columns=(), offset=0, table=table)
    named = tuple(table.column(column) for column in columns)
    insert = s.Insert(text="", tree={}, target=item, columns=named, select=select)
    prepared = Prepared("", (), insert, declared, None, (), plan=plan_of(insert))
    return (await run_statements.change(session, prepared, (), Touched())).count


async def create_index(session: State, bound: d.CreateIndex) -> str:
    if any(part.expression is not None for part in bound.key.parts):
        return await _create_derived_index(session, bound)
    args = {"name": name_of(bound.table), "index": index_args(bound.key)}
    await make(session, "CreateIndex", bound.key.name, args, lenient=bound.if_not_exists)
    return "CREATE INDEX"


async def _create_derived_index(session: State, bound: d.CreateIndex) -> str:
    """Over expressions: a column that nobody sees for each, and the index of these. All of it or
    nothing.
    """
    declared, table, key = await session.declared(), bound.table, bound.key
    taken = declared.taken(schema_of(table.namespace))
    if key.name is not None and key.name in taken and bound.if_not_exists:
        session.notice(f'relation "{key.name}" already exists, skipping', sqlstate="42P07")
        return "CREATE INDEX"
    parts: list[list[object]] = []
    columns, titles = list[d.KeyPart](), list[str]()
    for part in key.parts:
        one = part.expression
        titles.append(part.column if one is None else one.title)
        if one is not None:
            name = f"_expr{table.next_column_id + len(parts)}"
            while any(column.name == name for column in table.columns):
                name += "_"
            column = {"name": name, "type": one.type, "nullable": True, "hidden": True}
            column |= {"generated": one.sql, "uses": list(one.uses)}
            parts.append(["AddColumn", {"column": column}])
            part = replace(part, column=name, expression=None)
        columns.append(part)
    made = key.name or first_free(table.name, joined_columns([*titles, *key.include]), "idx", taken)
    index = index_args(replace(key, name=made, parts=tuple(columns)))
    parts.append(["CreateIndex", {"index": index}])
    await run(session, "AddParts", {"name": name_of(table), "parts": parts})
    return "CREATE INDEX"


async def create_view(session: State, bound: d.CreateView) -> str:
    declared = await session.declared()
    private = session.temporary is not None and is_temporary(schema_in(bound.name))
    if bound.notice:
        session.notice(bound.notice)
    uses = []
    for number, columns in bound.uses:
        if private and number < FIRST_PRIVATE_TABLE:
            continue  # what others have knows nothing of this view
        used = name_of(declared.contents.relations[number])
        uses.append([reference(used, bound.name), declared.columns_named(number, columns)])
    await run(
        session,
        "CreateView",
        {
            "name": bound.name,
            "sql": bound.sql,
            "columns": [list(column) for column in bound.columns],
            "uses": uses,
            "replace": bound.replace,
        },
    )
    return "CREATE VIEW"


async def create_database(session: State, bound: d.CreateDatabase) -> str:
    check_outside(session, "CREATE DATABASE")
    args: dict[str, object] = {"namespace": bound.name}
    args |= {name: bound.options[name] for name in NAMESPACE_OPTIONS if name in bound.options}
    if (owner := bound.options.get("owner")) is not None:
        args["owner"] = await grant_privileges.new_owner(session, str(owner))
    await run(session, "CreateNamespace", args)
    return "CREATE DATABASE"


async def create_schema(session: State, bound: d.CreateSchema) -> str:
    args: dict[str, object] = {"namespace": namespace_of(session.database, bound.name)}
    if bound.owner is not None:
        args["owner"] = await grant_privileges.new_owner(session, bound.owner)
    try:
        await run(session, "CreateNamespace", args)
    except KvorumError as error:
        if not bound.if_not_exists or from_store(error).sqlstate != "42P06":
            raise
        session.notice(f'schema "{bound.name}" already exists, skipping', sqlstate="42P06")
    return "CREATE SCHEMA"


_DROPS: Final = {
    "table": "DropTable",
    "view": "DropView",
    "sequence": "DropSequence",
    "index": "DropIndex",
}


async def drop(session: State, bound: d.Drop) -> str:
    how = {"cascade": bound.cascade, "if_exists": bound.missing_ok}
    for words in bound.skipped:
        session.notice(words)
    parts = by_schema if bound.kind == "index" else together
    for names in parts(bound.names):
        result = await run(session, _DROPS[bound.kind], {"names": names, **how})
        for name in result.get("missing", ()):
            session.notice(f'{bound.kind} "{name}" does not exist, skipping')
        tell_cascaded(session, result.get("cascaded") or [])
    return f"DROP {bound.kind.upper()}"


async def create_enum(session: State, bound: d.CreateEnum) -> str:
    if is_temporary(schema_in(bound.name)):
        raise unsupported("a temporary type")
    await run(session, "CreateEnum", {"name": bound.name, "labels": list(bound.labels)})
    return "CREATE TYPE"


async def create_function(session: State, bound: d.CreateFunction) -> str:
    one = bound.function
    await run(
        session,
        "CreateFunction",
        {
            "name": name_of(one),
            "title": one.title,
            "arguments": [list(argument) for argument in one.arguments],
            "result": one.result,
            "columns": [list(column) for column in one.columns],
            "sql": one.sql,
            "strict": one.strict,
            "volatile": one.volatile,
            "replace": bound.replace,
        },
    )
    return "CREATE FUNCTION"


async def drop_functions(session: State, bound: d.DropFunctions) -> str:
    for words in bound.skipped:
        session.notice(words)
    for names in together(bound.names):
        await run(session, "DropFunction", {"names": names, "cascade": bound.cascade})
    return "DROP FUNCTION"


async def add_label(session: State, bound: d.AddLabel) -> str:
    args: Arguments = {"name": bound.name, "label": bound.label}
    for where, label in (("before", bound.before), ("after", bound.after)):
        if label is not None:
            args[where] = label
    result = await run(session, "AddLabel", {**args, "if_not_exists": bound.if_not_exists})
    if result.get("exists") is not None:
        session.notice(f'enum label "{bound.label}" already exists, skipping', sqlstate="42710")
    return "ALTER TYPE"


async def rename_label(session: State, bound: d.RenameLabel) -> str:
    args = {"name": bound.name, "label": bound.label, "to": bound.new_label}
    await run(session, "RenameEnum", args)
    return "ALTER TYPE"


async def truncate(session: State, bound: s.Truncate) -> str:
    restarted: list[int] = []
    if bound.restart_identity:
        declared = await session.declared()
        for table in bound.tables:
            restarted += [one.id for one in declared.sequences_owned_by(table.id)]
    how = {"cascade": bound.cascade, "restart_identity": bound.restart_identity}
    for names in together(map(name_of, bound.tables)):
        await run(session, "TruncateTable", {"names": names, **how})
    for number in restarted:  # what was taken of them are numbers that come again
        session.numbers.forget(number)
    return "TRUNCATE TABLE"


async def alter_table(session: State, bound: d.AlterTable) -> str:
    if bound.table is None:
        session.notice(f'relation "{bound.name}" does not exist, skipping')
        return "ALTER TABLE"
    await apply(session, bound.name, bound.actions)
    return "ALTER TABLE"


DEFINITIONS: Final[dict[type, Define]] = {
    d.CreateTable: create_table,
    d.CreateTableAs: create_table_as,
    d.CreateIndex: create_index,
    d.CreateView: create_view,
    d.CreateSequence: create_sequence,
    d.AlterSequence: alter_sequence,
    d.CreateSchema: create_schema,
    d.DropSchemas: drop_schemas.drop_schemas,
    d.CreateDatabase: create_database,
    d.DropDatabase: drop_schemas.drop_database,
    d.Drop: drop,
    d.CreateEnum: create_enum,
    d.CreateFunction: create_function,
    d.DropFunctions: drop_functions,
    d.AddLabel: add_label,
    d.RenameLabel: rename_label,
    d.DropTypes: drop_schemas.drop_types,
    d.Rename: rename_objects.rename,
    d.SetSchema: rename_objects.set_schema,
    d.AlterTable: alter_table,
    d.Comment: grant_privileges.comment,
    s.Truncate: truncate,
}
