"""DDL: bound definitions → procedures of the master, waited for.

Each is a job of its own, beside the client's transaction. Behind it the transaction goes on with a
new snapshot, which sees what was declared; once it has written it keeps its snapshot, so that only
what makes something new and empty is allowed then (`_FRESH`), the rest is refused (0A000). It is
not undone by a ROLLBACK, nor are the changes before it where kvorum.autocommit_before_ddl committed
them; clients that put DDL into BEGIN … COMMIT (migrations) get what they expect
as long as nothing fails between.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlproxy.front import definitions as d
from sqlproxy.front import statements as s
from sqlproxy.front.quoting import read_relation
from sqlproxy.session import granting, renaming
from sqlproxy.session.commands import check_outside, commit
from sqlproxy.values.errors import UNSUPPORTED, SqlError
from sqlproxy.values.types import resolve

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession

_FRESH: Final = frozenset({"CreateTable", "CreateSequence", "CreateView", "CreateEnum"})
"""What they make is empty in every snapshot: a transaction may have written before."""

_OWNED: Final = _FRESH | {"CreateNamespace"}  # what they make is who asked's

Define = Callable[["SqlSession", Any], Awaitable[str]]  # → the command tag


async def run(session: SqlSession, procedure: str, args: Mapping[str, Any]) -> Any:
    """A definition's procedure, to its end. Raises SqlError, KvorumError."""
    fresh = procedure in _FRESH
    if session.block.wrote and not fresh:
        await _commit_changes(session)
    session.check_writable(procedure)
    try:
        whole = {"namespace": session.database, **args}
        if procedure in _OWNED and (owner := session.permits.role):
            whole.setdefault("owner", owner)
        return await session.services.run(procedure, whole, session.tell_progress)
    except asyncio.CancelledError:
        session.explain(
            f"{procedure} is a job of its own: if it was begun it goes on, SHOW JOBS tells."
        )
        raise
    finally:
        session.services.catalogs.forget(session.database)
        if not session.block.wrote:
            await session.block.renew()


async def _commit_changes(session: SqlSession) -> None:
    """If the client asked for that (kvorum.autocommit_before_ddl); the block goes on. Raises
    SqlError: of the commit, or 0A000.
    """
    asked = session.settings.get("kvorum.autocommit_before_ddl") == "on"
    if not asked or not session.block.explicit or session.block.has_savepoints:
        raise SqlError(
            UNSUPPORTED,
            "definitions behind changes in one transaction are not supported",
            hint="Commit the changes first: a definition is a job of its own."
            if asked
            else "Commit the changes first: a definition is a job of its own; or SET "
            "kvorum.autocommit_before_ddl = on, which commits them.",
        )
    await commit(session, s.Commit(chain=True))


def column_args(column: d.ColumnDef) -> dict[str, Any]:
    """A column as procedures take it."""
    found: dict[str, Any] = {
        "name": column.name, "type": column.type, "nullable": column.nullable,
        "identity": column.identity or None, "generated": column.generated,
        "uses": list(column.uses), "on_update": column.on_update,
        "default_sql": column.default_sql,
    }  # fmt: skip
    if column.default is not None:
        found["default_stored"] = resolve(column.type).to_stored(column.default)
    if column.serial or column.identity:
        found["sequence"] = sequence_options(column.sequence)
    elif numbering := numbering_of(column.default_sql):
        found["sequence"] = numbering
    return {name: value for name, value in found.items() if value not in (None, [])} | {
        "nullable": column.nullable
    }


_NEXTVAL: Final = re.compile(
    r"(?:pg_catalog\.)?nextval\('((?:[^']|'')+)'(?:::(?:pg_catalog\.)?regclass)?\)", re.IGNORECASE
)


def numbering_of(sql: str | None) -> str:
    """The sequence whose nextval a default is: it cannot be dropped then. "": none."""
    found = None if sql is None else _NEXTVAL.fullmatch(sql.strip())
    if found is None:
        return ""
    return read_relation(found[1].replace("''", "'"))


_OPTIONS: Final = {"minvalue": "minimum", "maxvalue": "maximum", "as": "type"}


def sequence_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        _OPTIONS.get(name, name): value
        for name, value in options.items()
        if name not in ("owned_by", "restart", "sequence_name")
    }


def index_args(key: d.KeyDef) -> dict[str, Any]:
    """An index as procedures take it."""
    return {
        "name": key.name or "",
        "columns": [
            {"name": p.column, "descending": p.descending, "nulls_first": p.nulls_first}
            for p in key.parts
        ],
        "unique": key.unique,
        "include": list(key.include),
        "constraint": key.constraint,
        **({"primary": True} if key.primary else {}),
        **({"where": key.where, "where_columns": list(key.where_columns)} if key.where else {}),
    }


def check_args(check: d.CheckDef) -> dict[str, Any]:
    return {"name": check.name or "", "sql": check.sql, "columns": list(check.columns)}


def foreign_key_args(key: d.ForeignKeyDef) -> dict[str, Any]:
    return {
        "name": key.name or "", "columns": list(key.columns), "table": key.table,
        "referenced": list(key.referenced), "on_delete": key.on_delete, "on_update": key.on_update,
        "deferrable": key.deferrable, "deferred": key.deferred,
    }  # fmt: skip


def table_args(
    name: str,
    columns: Sequence[d.ColumnDef],
    keys: Sequence[d.KeyDef] = (),
    checks: Sequence[d.CheckDef] = (),
    foreign_keys: Sequence[d.ForeignKeyDef] = (),
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The arguments of CreateTable."""
    args: dict[str, Any] = {
        "name": name,
        "columns": [column_args(column) for column in columns],
        "indexes": [index_args(key) for key in keys if not key.primary],
        "checks": [check_args(check) for check in checks],
        "foreign_keys": [foreign_key_args(key) for key in foreign_keys],
        **(options or {}),
    }
    primary = next((key for key in keys if key.primary), None)
    if primary is None:
        args["hidden_key"] = True
    else:
        args["primary_key"] = [part.column for part in primary.parts]
        if primary.name:
            args["primary_key_name"] = primary.name
    return args


def known_options(session: SqlSession, options: Mapping[str, Any]) -> dict[str, Any]:
    """The storage parameters that mean something; the client is told of one that does not."""
    if "fillfactor" in options:
        session.notice("fillfactor has no effect: rows do not lie in a heap", "WARNING")
    return {name: value for name, value in options.items() if name != "fillfactor"}


async def create_table(session: SqlSession, bound: d.CreateTable) -> str:
    options = known_options(session, bound.options)
    args = table_args(
        bound.name, bound.columns, bound.keys, bound.checks, bound.foreign_keys, options
    )
    if bound.foreign_keys and session.block.wrote:
        args["behind_changes"] = True  # it would wait for this transaction, which waits for it
    told = await run(session, "CreateTable", {**args, "if_not_exists": bound.if_not_exists})
    if told.get("exists"):
        session.notice(f'relation "{bound.name}" already exists, skipping', sqlstate="42P07")
    return "CREATE TABLE"


async def create_table_as(session: SqlSession, bound: d.CreateTableAs) -> str:
    args = table_args(bound.name, bound.columns)
    told = await run(session, "CreateTable", {**args, "if_not_exists": bound.if_not_exists})
    if told.get("exists"):
        session.notice(f'relation "{bound.name}" already exists, skipping', sqlstate="42P07")
        return "CREATE TABLE AS"
    if not bound.with_data:
        return "CREATE TABLE AS"
    count = await session.fill(bound.name, [c.name for c in bound.columns], bound.select)
    return f"SELECT {count}"


async def create_index(session: SqlSession, bound: d.CreateIndex) -> str:
    args = {
        "name": bound.table.name,
        "index": index_args(bound.key),
        "if_not_exists": bound.if_not_exists,
    }
    told = await run(session, "CreateIndex", args)
    if told.get("exists"):
        session.notice(f'relation "{bound.key.name}" already exists, skipping', sqlstate="42P07")
    return "CREATE INDEX"


async def create_view(session: SqlSession, bound: d.CreateView) -> str:
    declared = await session.declared()
    await run(
        session,
        "CreateView",
        {
            "name": bound.name,
            "sql": bound.sql,
            "columns": [list(column) for column in bound.columns],
            "uses": [declared.named(number, columns) for number, columns in bound.uses],
            "replace": bound.replace,
        },
    )
    return "CREATE VIEW"


def _owner(session: SqlSession, options: Mapping[str, Any]) -> dict[str, Any]:
    if "owned_by" not in options:
        return {}
    owner = options["owned_by"]
    return {"owned_by": None if owner is None else list(owner)}


async def create_sequence(session: SqlSession, bound: d.CreateSequence) -> str:
    told = await run(
        session,
        "CreateSequence",
        {
            "name": bound.name,
            "options": sequence_options(bound.options),
            "if_not_exists": bound.if_not_exists,
            **_owner(session, bound.options),
        },
    )
    if told.get("exists"):
        session.notice(f'relation "{bound.name}" already exists, skipping', sqlstate="42P07")
    return "CREATE SEQUENCE"


async def alter_sequence(session: SqlSession, bound: d.AlterSequence) -> str:
    if bound.sequence is None:
        session.notice("relation does not exist, skipping")
        return "ALTER SEQUENCE"
    args: dict[str, Any] = {
        "name": bound.sequence.name,
        "options": sequence_options(bound.options),
        **_owner(session, bound.options),
    }
    if "restart" in bound.options:
        restart = bound.options["restart"]
        args["restart"] = True if restart is None else restart
    await run(session, "AlterSequence", args)
    session.services.numbers.forget(bound.sequence.id)
    return "ALTER SEQUENCE"


async def create_database(session: SqlSession, bound: d.CreateDatabase) -> str:
    check_outside(session, "CREATE DATABASE")
    args = {"namespace": bound.name}
    if (owner := bound.options.get("owner")) is not None:
        args["owner"] = await granting.new_owner(session, str(owner))
    await run(session, "CreateNamespace", args)
    return "CREATE DATABASE"


async def drop_database(session: SqlSession, bound: d.DropDatabase) -> str:
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
    for kind, names in declared.names_by_kind().items():
        if names:
            args = {"namespace": bound.name, "names": names, "cascade": True}
            await run(session, f"Drop{kind}", args)
            session.services.catalogs.forget(bound.name)
    await run(session, "DropNamespace", {"namespace": bound.name})
    session.services.catalogs.forget(bound.name)
    return "DROP DATABASE"


_DROPS: Final = {
    "table": "DropTable", "view": "DropView", "sequence": "DropSequence", "index": "DropIndex",
}  # fmt: skip


async def drop(session: SqlSession, bound: d.Drop) -> str:
    told = await run(
        session,
        _DROPS[bound.kind],
        {"names": list(bound.names), "cascade": bound.cascade, "if_exists": bound.missing_ok},
    )
    for name in told.get("missing", ()):
        session.notice(f'{bound.kind} "{name}" does not exist, skipping')
    tell_cascaded(session, told.get("cascaded") or [])
    return f"DROP {bound.kind.upper()}"


def tell_cascaded(session: SqlSession, cascaded: Sequence[str]) -> None:
    """What went along."""
    lines = [f"drop cascades to {one}" for one in cascaded]
    if len(lines) == 1:
        session.notice(lines[0])
    elif lines:
        what = f"drop cascades to {len(lines)} other objects"
        session.notice(what, detail="\n".join(lines))


async def create_enum(session: SqlSession, bound: d.CreateEnum) -> str:
    await run(session, "CreateEnum", {"name": bound.name, "labels": list(bound.labels)})
    return "CREATE TYPE"


async def add_label(session: SqlSession, bound: d.AddLabel) -> str:
    args: dict[str, Any] = {"name": bound.name, "label": bound.label}
    for where, label in (("before", bound.before), ("after", bound.after)):
        if label is not None:
            args[where] = label
    told = await run(session, "AddLabel", {**args, "if_not_exists": bound.if_not_exists})
    if told.get("exists") is not None:
        session.notice(f'enum label "{bound.label}" already exists, skipping', sqlstate="42710")
    return "ALTER TYPE"


async def rename_label(session: SqlSession, bound: d.RenameLabel) -> str:
    args = {"name": bound.name, "label": bound.label, "to": bound.new_label}
    await run(session, "RenameEnum", args)
    return "ALTER TYPE"


async def drop_types(session: SqlSession, bound: d.DropTypes) -> str:
    for words in bound.skipped:
        session.notice(words)
    await run(session, "DropEnum", {"names": list(bound.names), "cascade": bound.cascade})
    return "DROP TYPE"


async def truncate(session: SqlSession, bound: s.Truncate) -> str:
    restarted: list[int] = []
    if bound.restart_identity:
        declared = await session.declared()
        for table in bound.tables:
            restarted += [one.id for one in declared.sequences_owned_by(table.id)]
    await run(
        session,
        "TruncateTable",
        {
            "names": [table.name for table in bound.tables],
            "cascade": bound.cascade,
            "restart_identity": bound.restart_identity,
        },
    )
    for number in restarted:  # what was taken of them are numbers that come again
        session.services.numbers.forget(number)
    return "TRUNCATE TABLE"


async def alter_table(session: SqlSession, bound: d.AlterTable) -> str:
    if bound.table is None:
        session.notice(f'relation "{bound.name}" does not exist, skipping')
        return "ALTER TABLE"
    from sqlproxy.session.alterations import apply

    await apply(session, bound.name, bound.actions)
    return "ALTER TABLE"


DEFINITIONS: Final[dict[type, Define]] = {
    d.CreateTable: create_table,
    d.CreateTableAs: create_table_as,
    d.CreateIndex: create_index,
    d.CreateView: create_view,
    d.CreateSequence: create_sequence,
    d.AlterSequence: alter_sequence,
    d.CreateDatabase: create_database,
    d.DropDatabase: drop_database,
    d.Drop: drop,
    d.CreateEnum: create_enum,
    d.AddLabel: add_label,
    d.RenameLabel: rename_label,
    d.DropTypes: drop_types,
    d.Rename: renaming.rename,
    d.AlterTable: alter_table,
    d.Comment: granting.comment,
    s.Truncate: truncate,
}
