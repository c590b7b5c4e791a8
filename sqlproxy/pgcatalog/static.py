"""What PostgreSQL 15 says of itself: its system tables, their columns and rows, its types and
functions.

The data was recorded from a real server by scripts/record_pg_catalog.py and is read once per
process, at the first statement that asks for it (about 60 ms).
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec

CATALOG: Final = "pg_catalog"
INFORMATION: Final = "information_schema"
KVORUM: Final = "kvorum"
SCHEMAS: Final = (CATALOG, INFORMATION, KVORUM)
Layout = tuple["Column", ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a system table: its name, its type's OID (of a domain: what it is made of),
    typmod.
    """

    name: str
    type: int
    typmod: int = -1


@dataclass(frozen=True, slots=True)
class TypeRow:
    oid: int
    name: str
    base: int  # of a domain, else 0
    typmod: int  # of a domain
    schema: int


@dataclass(slots=True)
class Static:
    """`rows`: table → columns of values, in the order of its layout and then of `hidden`."""

    layouts: dict[tuple[str, str], Layout]
    relations: dict[tuple[str, str], int]  # the OID of each
    views: Mapping[str, str]  # "schema.name" → the text of its query
    rows: dict[str, list[list[object]]]
    hidden: Mapping[str, list[str]]  # hidden columns
    feeds: Mapping[str, Any]  # pg_get_keywords, pg_show_all_settings: {"columns", "rows"}
    schemas: dict[str, int] = field(default_factory=dict)


@lru_cache(maxsize=1)
def load() -> Static:
    raw = files("sqlproxy.pgcatalog").joinpath("data/pg15.json.xz").read_bytes()
    data = msgspec.json.decode(lzma.decompress(raw))
    rows = data["rows"]
    types = _types(data)
    names = {
        row.name: row.oid for row in sorted(types.values(), key=lambda r: r.schema, reverse=True)
    }
    kinds = {row.oid: row for row in types.values()}
    layouts: dict[tuple[str, str], Layout] = {}
    for schema, tables in data["layouts"].items():
        for table, columns in tables.items():
            layouts[schema, table] = tuple(_column(kinds, names, *c) for c in columns)
    schemas = dict(
        zip(_of(data, "pg_namespace", "nspname"), _of(data, "pg_namespace", "oid"), strict=True)
    )
    by_oid = {oid: name for name, oid in schemas.items()}
    relations = {
        (by_oid[space], name): oid
        for oid, name, space, kind in zip(
            *(_of(data, "pg_class", c) for c in ("oid", "relname", "relnamespace", "relkind")),
            strict=True,
        )
        if kind in "rv"
    }
    return Static(
        layouts,
        relations,
        data["views"],
        rows,
        data["told"],
        data["functions"],
        schemas,
    )


@lru_cache(maxsize=1)
def shown_settings() -> Mapping[str, str]:
    """PostgreSQL's settings as SHOW has them there, by their names in small letters."""
    feed = load().feeds["pg_show_all_settings"]
    names = [n for n, _ in feed["columns"]]
    name, shown = names.index("name"), names.index("_shown")
    return {row[name].lower(): row[shown] for row in feed["rows"]}


def function_columns(name: str) -> list[tuple[str, int, int]] | None:
    """Of a function of no arguments that returns what is known as rows."""
    static = load()
    if name in ("pg_timezone_abbrevs", "pg_timezone_names"):
        return [(one.name, one.type, one.typmod) for one in static.layouts[CATALOG, name]]
    feed = static.feeds.get(name)
    return None if feed is None else [(n, oid, -1) for n, oid in feed["columns"] if n[0] != "_"]


def _of(data: Any, table: str, column: str) -> list[Any]:
    at = [c[0] for c in data["layouts"][CATALOG][table]].index(column)
    found: list[object] = data["rows"][table][at]
    return found


def _column(
    kinds: dict[int, TypeRow], names: dict[str, int], name: str, kind: str, typmod: int
) -> Column:
    row = kinds[names[kind]]
    while row.base:
        typmod = row.typmod if typmod < 0 else typmod
        row = kinds[row.base]
    return Column(name, row.oid, typmod)


def _types(data: object) -> dict[int, TypeRow]:
    wanted = ("oid", "typname", "typbasetype", "typtypmod", "typnamespace")
    listed = zip(*(_of(data, "pg_type", c) for c in wanted), strict=True)
    return {row[0]: TypeRow(*row) for row in listed}
