"""Descriptors in PostgreSQL's words: what pg_get_indexdef, pg_get_constraintdef and their like
say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sqlproxy.pgcatalog.static import load
from sqlproxy.rows.naming import PUBLIC as PUBLIC_SCHEMA
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.schema import PUBLIC, Column, ForeignKey, Index, Table

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_$]*")
_ACTIONS: Final = {
    "no action": "",
    "restrict": "RESTRICT",
    "cascade": "CASCADE",
    "set null": "SET NULL",
    "set default": "SET DEFAULT",
}
ACTION_LETTERS: Final = {
    "no action": "a",
    "restrict": "r",
    "cascade": "c",
    "set null": "n",
    "set default": "d",
}


def reserved() -> frozenset[str]:
    """The words that PostgreSQL quotes as names."""
    feed = load().feeds["pg_get_keywords"]
    code = [name for name, _ in feed["columns"]].index("catcode")
    return frozenset(row[0] for row in feed["rows"] if row[code] != "U")


_reserved: frozenset[str] | None = None


def quoted(name: str) -> str:
    """As quote_ident does."""
    global _reserved
    if _reserved is None:
        _reserved = reserved()
    if _PLAIN.fullmatch(name) and name not in _reserved:
        return name
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def index(table: Table, index: Index, schema: str = "public.") -> str:
    """CREATE INDEX …; without a schema as psql wants it."""
    parts = []
    for part in index.columns:
        text = index_column(table.by_id(part.column), pretty=not schema)
        if part.descending:
            text += " DESC" if part.nulls_first else " DESC NULLS LAST"
        elif part.nulls_first:
            text += " NULLS FIRST"
        parts.append(text)
    text = _index(table, index.name, index.unique, ", ".join(parts), schema)
    return text + _include(table, index) + (f" WHERE {predicate(index)}" if index.where else "")


def index_column(column: Column, *, pretty: bool = True) -> str:
    """A column of an index, or the expression that it is of: a call as it is, all else in
    parentheses, and an operator in its own, unless it is to be `pretty`.
    """
    if not column.derived:
        return quoted(column.name)
    sql = (column.generated or "").strip()
    call = re.match(r"[a-z_][\w.]*\(", sql)
    if call is not None and _closed(sql, call.end() - 1) == len(sql):
        return sql
    return f"({sql})" if pretty or _wrapped(sql) or "::" in sql else f"(({sql}))"


def predicate(index: Index) -> str:
    """Of a partial index; PostgreSQL shows a comparison in parentheses."""
    sql = index.where
    return sql if _wrapped(sql) or _PLAIN.fullmatch(sql) else f"({sql})"


def _include(table: Table, index: Index) -> str:
    if not index.include:
        return ""
    return f" INCLUDE ({listed(table.by_id(i).name for i in index.include)})"


def _index(table: Table, name: str, unique: bool, parts: str, schema: str) -> str:
    word = "UNIQUE INDEX" if unique else "INDEX"
    return f"CREATE {word} {quoted(name)} ON {schema}{quoted(table.name)} USING btree ({parts})"


def primary_index(table: Table, name: str, schema: str = "public.") -> str:
    return _index(table, name, True, listed(table.primary_key), schema)


def primary_key(table: Table) -> str:
    return f"PRIMARY KEY ({listed(table.primary_key)})"


def unique(table: Table, index: Index) -> str:
    names = listed(table.by_id(part.column).name for part in index.columns)
    word = "PRIMARY KEY" if index.primary else "UNIQUE"
    return f"{word} ({names}){_include(table, index)}" + _deferring(index)


def check(sql: str) -> str:
    """PostgreSQL shows a comparison in its own parentheses."""
    return f"CHECK ({sql})" if _wrapped(sql) else f"CHECK (({sql}))"


def check_short(sql: str) -> str:
    """As psql asks for it: without the second parentheses."""
    return f"CHECK {sql}" if _wrapped(sql) else f"CHECK ({sql})"


def validity(state: str) -> str:
    """What is said after a constraint that may not hold for all rows."""
    return "" if state == PUBLIC else " NOT VALID"


_WORD: Final = r'(?:\w+|"(?:[^"]|"")+")'
_TYPE: Final = (
    r"(?:double precision|character varying|(?:time|timestamp)(?:\(\d\))? with(?:out)? time zone"
    rf"|{_WORD}(?:\.{_WORD})?)(?:\([\d, ]+\))?(?:\[\])*"
)
_CASTS: Final = re.compile(rf"(?:\s*::\s*{_TYPE})*", re.IGNORECASE)
_BEGINNING: Final = re.compile(
    rf"[Ee]?'(?:[^'\\]|''|\\.)*'|[\d.]+|{_WORD}(?:\.{_WORD})*", re.DOTALL
)
_QUOTED: Final = re.compile(r"""[Ee]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"[^"]*"|.""", re.DOTALL)


def operand(sql: str) -> str:
    """An expression as it may stand after DEFAULT, where the grammar takes no IN, AND, AT TIME
    ZONE and the like: a constant, name, call or array, cast or not, is shown as it is.
    """
    found = _BEGINNING.match(sql)
    end = found.end() if found else 0
    if sql[end : end + 1] in ("(", "["):
        end = _closed(sql, end)
    return sql if end and _CASTS.fullmatch(sql, end) else f"({sql})"


def _wrapped(sql: str) -> bool:
    """Whether the first parenthesis ends with the text."""
    return sql.startswith("(") and _closed(sql, 0) == len(sql)


def _closed(sql: str, start: int) -> int:
    """The place after the bracket that ends the one at `start`; 0 if none does."""
    depth = 0
    for found in _QUOTED.finditer(sql, start):
        letter = found.group()
        depth += (letter in ("(", "[")) - (letter in (")", "]"))
        if depth == 0:
            return found.end()
    return 0


def relation(one: Table) -> str:
    """Its name, with its schema unless that is public."""
    schema = schema_of(one.namespace)
    return quoted(one.name) if schema == PUBLIC_SCHEMA else f"{quoted(schema)}.{quoted(one.name)}"


def foreign_key(table: Table, key: ForeignKey, other: Table) -> str:
    text = (
        f"FOREIGN KEY ({listed(table.by_id(c).name for c in key.columns)}) REFERENCES "
        f"{relation(other)}({listed(other.by_id(c).name for c in key.referenced)})"
    )
    if action := _ACTIONS[key.on_update]:
        text += f" ON UPDATE {action}"
    if action := _ACTIONS[key.on_delete]:
        text += f" ON DELETE {action}"
    return text + _deferring(key)


def _deferring(key: Index | ForeignKey) -> str:
    text = " DEFERRABLE" if key.deferrable else ""
    return text + " INITIALLY DEFERRED" if key.deferred else text
