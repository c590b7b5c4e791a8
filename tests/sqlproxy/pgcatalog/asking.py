"""One statement, asked of a real PostgreSQL or of our catalog; both answers in the same plain
form, so that they can be compared: OIDs above PostgreSQL's own become names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlproxy.front.syntax.syntax import parse
from sqlproxy.pg.text import reader, writer
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.pgcatalog.contents import Session
from tests.sqlproxy.pgcatalog import sample

NAMES: Final = """
    SELECT oid::int8, 'class:' || relname FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT oid::int8, 'type:' || typname FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT oid::int8, 'con:' || conname FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT d.oid::int8, 'def:' || c.relname || '.' || adnum FROM pg_attrdef d JOIN
    pg_class c ON c.oid = adrelid UNION ALL SELECT oid::int8, 'db:' || datname FROM pg_database
    UNION ALL SELECT oid::int8, 'rule:' || ev_class::regclass FROM pg_rewrite WHERE oid >= 16384
"""
OIDS: Final = frozenset({20, 23, 26, 28, 30, 1016, 1028, 1007, 2205, 2206})
_PLACE: Final = re.compile(r"\{((?:class|type|con|def|db):[^}]+)\}")
Answer = dict[str, Any]
DATABASE: Final = "sample"  # made from template0, with sample.DDL in it


def filled(text: str, oids: Mapping[str, int]) -> str:
    """`{class:users}` in a statement is the OID of users."""
    return _PLACE.sub(lambda m: str(oids[m[1]]), text)


def plain(
    fields: list[list[Any]], rows: list[list[str | None]], names: Mapping[str, str]
) -> Answer:
    shown = [
        [
            re.sub(r"\d{5,}", lambda m: names.get(m[0], m[0]), v)
            if v is not None and kind in OIDS
            else v
            for v, (_, kind, _) in zip(row, fields, strict=True)
        ]
        for row in rows
    ]
    return {"fields": fields, "rows": shown}


class Ours:
    """Our catalog with the sample in it."""

    def __init__(self, catalog: SystemCatalog, session: Session, providers: Any = None) -> None:
        self.catalog = catalog
        self.session = session
        self.cluster, self.contents = sample.cluster(), sample.contents()
        self.oids: dict[str, int] = {}
        self.names: dict[str, str] = {}
        for oid, name in self.rows(NAMES):
            self.oids[str(name)] = int(oid)
            if int(oid) >= 16384:
                self.names[str(oid)] = f"@{name}"

    def rows(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return list(self.run(text, values).rows)

    def run(self, text: str, values: tuple[Any, ...] = (), declared: tuple[int, ...] = ()) -> Any:
        parsed = parse(text)
        assert parsed is not None
        prepared = self.catalog.prepare(text, parsed.body, declared)
        return self.catalog.run(prepared, values, self.session, self.cluster, self.contents)

    def ask(self, text: str, values: list[str | None]) -> Answer:
        text = filled(text, self.oids)
        parsed = parse(text)
        assert parsed is not None
        prepared = self.catalog.prepare(text, parsed.body)
        given = [
            None if v is None else reader(oid)(filled(v, self.oids))
            for v, oid in zip(values, prepared.parameters, strict=True)
        ]
        answer = self.catalog.run(prepared, given, self.session, self.cluster, self.contents)
        writers: list[Callable[[Any], str]] = [writer(f.oid) for f in answer.fields]
        rows = [
            [None if v is None else w(v) for v, w in zip(row, writers, strict=True)]
            for row in answer.rows
        ]
        return plain([[f.name, f.oid, f.typmod] for f in answer.fields], rows, self.names)


def theirs(connection: Any) -> Callable[[str, list[str | None]], Answer]:
    """The same of a psycopg connection to PostgreSQL that has the sample's DDL in it."""
    found = connection.execute(NAMES).fetchall()
    oids = {str(n): int(o) for o, n in found}
    names = {str(o): f"@{n}" for o, n in found if o >= 16384}

    def ask(text: str, values: list[str | None]) -> Answer:
        given = [None if v is None else filled(v, oids).encode() for v in values]
        result = connection.pgconn.exec_params(filled(text, oids).encode(), given)
        if result.error_message:
            return {
                "error": result.error_field(67).decode(),
                "message": result.error_field(77).decode(),
            }
        fields = [
            [result.fname(n).decode(), result.ftype(n), result.fmod(n)]
            for n in range(result.nfields)
        ]
        rows = [
            [
                None if (v := result.get_value(r, n)) is None else v.decode()
                for n in range(result.nfields)
            ]
            for r in range(result.ntuples)
        ]
        return plain(fields, rows, names)

    return ask
