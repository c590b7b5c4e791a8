"""Bound definitions → the arguments of procedures. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sqlproxy.declared.database import Declared
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.types.quoting import read_relation
from sqlproxy.rows.naming import InSchema, bare, is_temporary, nextval_of, reference, schema_in
from sqlproxy.values.errors import SqlError, unsupported
from sqlproxy.values.types import resolve

Arguments = dict[str, object]
"""Of a procedure."""


def column_args(column: d.ColumnDef, table: str) -> Arguments:
    """A column of this table as procedures take it."""
    found: Arguments = {
        "name": column.name,
        "type": column.type,
        "nullable": column.nullable,
        "identity": column.identity or None,
        "generated": column.generated,
        "uses": list(column.uses),
        "on_update": column.on_update,
        "default_sql": column.default_sql,
    }
    if column.default is not None:
        found["default_stored"] = resolve(column.type).to_stored(column.default)
    if column.serial or column.identity:
        found["sequence"] = sequence_options(column.sequence)
    else:
        found |= numbered_by(column.default_sql, table)
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


def numbered_by(sql: str | None, table: str) -> Arguments:
    """The sequence that a default of a table depends on. What others have knows nothing of a
    temporary table.
    """
    name = numbering_of(sql)
    if not name or (is_temporary(schema_in(table)) and schema_in(name) != schema_in(table)):
        return {}
    return {"sequence": reference(name, table)}


_OPTIONS: Final = {"minvalue": "minimum", "maxvalue": "maximum", "as": "type"}


def sequence_options(options: Mapping[str, object]) -> Arguments:
    return {
        _OPTIONS.get(name, name): value
        for name, value in options.items()
        if name not in ("owned_by", "restart", "sequence_name")
    }


def index_args(key: d.KeyDef) -> Arguments:
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
        **({"deferrable": True, "deferred": key.deferred} if key.deferrable else {}),
    }


def check_args(check: d.CheckDef) -> Arguments:
    return {"name": check.name or "", "sql": check.sql, "columns": list(check.columns)}


def foreign_key_args(key: d.ForeignKeyDef, of: str) -> Arguments:
    """A foreign key of this table as procedures take it."""
    return {
        "name": key.name or "",
        "columns": list(key.columns),
        "table": reference(key.table, of),
        "referenced": list(key.referenced),
        "on_delete": key.on_delete,
        "on_update": key.on_update,
        "deferrable": key.deferrable,
        "deferred": key.deferred,
    }


def check_reference(of: str, to: str) -> None:
    """A foreign key. Raises SqlError (42P16)."""
    temporary = is_temporary(schema_in(of))
    if temporary != is_temporary(schema_in(to)):
        kind = "temporary" if temporary else "permanent"
        words = f"constraints on {kind} tables may reference only {kind} tables"
        raise SqlError("42P16", words)


def placed_default(sql: str | None, declared: Declared, table: str) -> str | None:
    """A default as it is kept: a sequence is named so that it is the same on every path. Raises
    SqlError (0A000): a permanent table would have a temporary sequence.
    """
    if sql is None or not (name := numbering_of(sql)):
        return sql
    if "." not in sql:
        name = declared.searched(name)
    if is_temporary(schema_in(table)):
        declared.numbering(name)  # a procedure does not look for those of others
    elif is_temporary(schema_in(name)):
        raise unsupported("a temporary sequence as the default of a permanent table")
    return nextval_of(bare(name), name.schema) if isinstance(name, InSchema) else sql


def table_args(
    name: str,
    columns: Sequence[d.ColumnDef],
    keys: Sequence[d.KeyDef] = (),
    checks: Sequence[d.CheckDef] = (),
    foreign_keys: Sequence[d.ForeignKeyDef] = (),
    options: Mapping[str, object] | None = None,
) -> Arguments:
    """The arguments of CreateTable. Rows do not lie by a deferrable primary key, but by their
    numbers: two may have the same key in the middle of a transaction.
    """
    primary = next((key for key in keys if key.primary and not key.deferrable), None)
    indexes = sorted((key for key in keys if key is not primary), key=lambda key: not key.primary)
    args: Arguments = {
        "name": name,
        "columns": [column_args(column, name) for column in columns],
        "indexes": [index_args(key) for key in indexes],
        "checks": [check_args(check) for check in checks],
        "foreign_keys": [foreign_key_args(key, name) for key in foreign_keys],
        **(options or {}),
    }
    if primary is None:
        args["hidden_key"] = True
    else:
        args["primary_key"] = [part.column for part in primary.parts]
        if primary.name:
            args["primary_key_name"] = primary.name
    return args
