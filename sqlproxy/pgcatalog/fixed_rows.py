"""Rows of the system tables that are the same in every database: PostgreSQL's own, and those of
the kvorum views. Column by column, those for our own functions (`_…`) among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlproxy.pgcatalog import definitions, oids
from sqlproxy.pgcatalog.relations import VIEW_OID
from sqlproxy.pgcatalog.row_bases import (
    ATTRIBUTE,
    PATH,
    Facts,
    Row,
    class_row,
    depends,
)
from sqlproxy.pgcatalog.static import CATALOG, KVORUM, Static, load
from sqlproxy.pgcatalog.views import VIEWS

Columns = dict[str, list[Any]]
_BUILT_IN = ("pg_extension", "pg_depend")


def split(name: str) -> tuple[str, str]:
    """Schema and table, as `Static.rows` names them."""
    schema, _, table = name.rpartition(".")
    return schema or CATALOG, table


class Fixed:
    """`names`: of the tables that have such rows."""

    def __init__(self, static: Static) -> None:
        self._static = static
        self._facts = Facts(static)
        self._known: dict[str, Columns] = {}
        self.names = tuple(dict.fromkeys((*static.rows, *_BUILT_IN)))

    def count(self, name: str) -> int:
        return len(next(iter(self.columns(name).values()), ()))

    def columns(self, name: str) -> Columns:
        """What is not in it is NULL."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._made(name)
        return found

    def _made(self, name: str) -> Columns:
        schema, table = split(name)
        layout = [c.name for c in self._static.layouts[schema, table]]
        recorded = self._static.rows.get(name)
        found: Columns = {}
        if recorded is not None:
            every = (*layout, *self._static.hidden.get(table, ()))
            found = dict(zip(every, map(list, recorded), strict=False))
        count = len(next(iter(found.values()), ()))
        if table == "pg_class":
            found |= self._names(found)
        if table == "pg_index":
            found["_short"] = [_short(text) for text in found["_def"]]
            named = self._attributes()
            found["_columns"] = [named.get(oid) for oid in found["indexrelid"]]
        found["_owner"] = [0] * count
        more = self._more(table)
        return _with_rows(found, count, more) if more else found

    def _attributes(self) -> dict[int, list[str]]:
        """The columns of each recorded relation, in order."""
        layout = [c.name for c in self._static.layouts[CATALOG, "pg_attribute"]]
        recorded = self._static.rows["pg_attribute"]
        wanted = ("attrelid", "attnum", "attname")
        found: dict[int, list[str]] = {}
        for oid, _, name in sorted(zip(*(recorded[layout.index(c)] for c in wanted), strict=True)):
            found.setdefault(oid, []).append(definitions.quoted(name))
        return found

    def _names(self, columns: Mapping[str, Sequence[Any]]) -> Columns:
        schemas = {oid: name for name, oid in self._static.schemas.items()}
        named = [
            (schemas[space], name)
            for space, name in zip(columns["relnamespace"], columns["relname"], strict=True)
        ]
        return {
            "_name": [definitions.quoted(n) for _, n in named],
            "_qname": [f"{s}.{definitions.quoted(n)}" for s, n in named],
            "_path": [f"{s}{PATH}{n}" for s, n in named],
            "_view": [self._static.views.get(f"{s}.{n}") for s, n in named],
        }

    def _more(self, table: str) -> list[Row]:
        """The kvorum views as relations of their own schema. They belong to an extension that is
        there from the start, so that no dump makes them anew.
        """
        match table:
            case "pg_extension":
                return [
                    {
                        "oid": oids.KVORUM_EXTENSION,
                        "extname": KVORUM,
                        "extowner": oids.BOOTSTRAP_ROLE,
                        "extnamespace": oids.KVORUM_SCHEMA,
                        "extrelocatable": False,
                        "extversion": "1.0",
                        "_owner": 0,
                    }
                ]
            case "pg_depend":
                members = [(oids.PG_NAMESPACE, oids.KVORUM_SCHEMA)]
                members += [(oids.PG_CLASS, VIEW_OID + number) for number in range(len(VIEWS))]
                of, extension = oids.PG_EXTENSION, oids.KVORUM_EXTENSION
                return [
                    {**depends(kind, oid, of, extension, 0, "e"), "_owner": 0}
                    for kind, oid in members
                ]
            case "pg_namespace":
                return [
                    {"oid": oids.KVORUM_SCHEMA, "nspname": KVORUM, "nspowner": oids.BOOTSTRAP_ROLE}
                ]
            case "pg_class":
                return [
                    {
                        **class_row(
                            VIEW_OID + number,
                            view.name,
                            "v",
                            relnatts=len(view.columns),
                            relhasrules=True,
                        ),
                        "relnamespace": oids.KVORUM_SCHEMA,
                        "_qname": f"kvorum.{view.name}",
                        "_path": f"kvorum{PATH}{view.name}",
                        "_view": f" -- {view.what}",
                        "_owner": 0,
                    }
                    for number, view in enumerate(VIEWS.values())
                ]
            case "pg_attribute":
                return [
                    {
                        **ATTRIBUTE,
                        **self._facts.of(column.type),
                        "attrelid": VIEW_OID + number,
                        "attname": column.name,
                        "attnum": at,
                        "_owner": 0,
                    }
                    for number, view in enumerate(VIEWS.values())
                    for at, column in enumerate(view.columns, 1)
                ]
            case _:
                return []


@lru_cache(maxsize=1)
def fixed() -> Fixed:
    """Of this process."""
    return Fixed(load())


def _with_rows(columns: Columns, count: int, rows: Sequence[Row]) -> Columns:
    named = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    return {
        name: [*columns.get(name, [None] * count), *(row.get(name) for row in rows)]
        for name in named
    }


def _short(definition: str) -> str:
    """Without the schema, as psql asks for it."""
    return definition.replace(" ON pg_catalog.", " ON ").replace(" ON information_schema.", " ON ")
