"""One statement, asked of a real PostgreSQL or of our catalog; both answers in the same plain
form, so that they can be compared: OIDs above PostgreSQL's own become names.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Items
from datetime import UTC, datetime
from typing import Any, Final

from sqlproxy.analytic.analytic import DuckAnalytic
from sqlproxy.catalog.relations import Relations
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.statements import Select
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.front import BoundWith, bind_with_needs
from sqlproxy.front.functions.object_names import HELD_AS_OIDS, shower
from sqlproxy.front.stages.sequence_stages import apart
from sqlproxy.front.syntax.syntax import parse
from sqlproxy.pg.answers import Row
from sqlproxy.pg.text import reader, writer
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.pgcatalog.contents import Named, Session
from sqlproxy.pgcatalog.static import shown_settings
from sqlproxy.pgcatalog.views import Provider
from sqlproxy.rows.schema import Sequence, Table, View
from sqlproxy.session.shared.prepared import plan_of
from sqlproxy.tables.reading import Touched
from sqlproxy.tables.select_values import ListingPlan
from sqlproxy.tables.selecting import ConstantPlan
from tests.sqlproxy.pgcatalog import sample

NOW: Final = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
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


class _Settings(dict[str, str]):
    """By names of any case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)

    def __missing__(self, name: str) -> str:
        if name == name.lower():
            raise KeyError(name)
        return self[name.lower()]


class Ours:
    """Statements over the system's relations of one database, the sample's to begin with."""

    def __init__(self, providers: Mapping[str, Provider] | None = None) -> None:
        self.catalog = SystemCatalog("PostgreSQL 15.0 (Kvorum)", providers)
        self.analytic = DuckAnalytic()
        self.loop = asyncio.new_event_loop()
        self.user, self.settings = "postgres", dict[str, str]()
        self.acted: list[tuple[object, ...]] = []
        self.cluster = sample.cluster()
        self.show(sample.relations())
        self.oids: dict[str, int] = {}
        self.names: dict[str, str] = {}
        for oid, name in self.rows(NAMES):
            self.oids[str(name)] = int(oid)
            if int(oid) >= 16384:
                self.names[str(oid)] = f"@{name}"

    def show(self, relations: Iterable[Named], database: str = DATABASE) -> None:
        """From now on there are these."""
        there = list(relations)
        kinds = ([one for one in there if isinstance(one, k)] for k in (Table, View, Sequence))
        self.declared = Declared(Relations(database, *map(tuple, kinds)), 1)

    def close(self) -> None:
        self.catalog.close()
        self.analytic.close()
        self.loop.close()

    def bound(self, text: str, declared: Items[int] = ()) -> BoundWith:
        parsed = parse(text)
        return bind_with_needs(parsed, self.declared, declared)

    def _env(self) -> Env:
        known = {"user": self.user, "session_user": self.user, "process": "7"}
        known |= {"database": self.declared.database, "timezone": "UTC"}

        def act(verb: str, given: Items[object]) -> object:
            self.acted.append((verb, *given))
            return True if len(given) == 1 else given[1]

        settings = _Settings({**shown_settings(), **self.settings, **known})
        return Env(now=NOW, session=settings, act=act)

    async def answer(
        self, found: BoundWith, values: Items[object] = (), kept: list[Any] | None = None
    ) -> list[Row]:
        """`kept`: as a session's plan has it. Raises SqlError."""
        declared, env = self.declared, self._env()
        facts = {"query": "", "started": NOW, "txid": None}
        asked = (self.cluster, declared.contents, declared.relations(), found.asks, facts, None)
        env.catalog = catalog = await self.catalog.snapshot(*asked)
        env.params = values
        session = Session(NOW, self.settings)
        for one in sorted(one for one in found.asks if "." in one):
            if catalog.rows(one) is None:
                rows = await self.catalog.reported(one, declared.contents, session)
                catalog.reported[one] = rows
        bound = found.bound
        assert isinstance(bound, Select)
        outs = None
        if bound.numbers and bound.items:  # what a session does with rows that come out
            parts = apart(bound)
            bound, outs = parts.inner, [compile(one).fn for one in parts.outs]
        plan = plan_of(bound)
        if isinstance(plan, ConstantPlan | ListingPlan):
            made = list(plan.rows(env))
        else:
            reads: Any = None
            batches = self.analytic.rows(bound, reads, env, Touched(), "", kept)
            made = [row async for batch in batches for row in batch]
        if outs is not None:
            made = [tuple(fn(row, env) for fn in outs) for row in made]
        fields = found.bound.fields
        shown = [shower(f.oid) if f.oid in HELD_AS_OIDS else None for f in fields]
        return [
            tuple(
                value if show is None or value is None else show(env, value)
                for value, show in zip(row, shown, strict=True)
            )
            for row in made
        ]

    def rows(self, text: str, *values: object) -> list[Row]:
        return self.loop.run_until_complete(self.answer(self.bound(text), values))

    def ask(self, text: str, values: list[str | None]) -> Answer:
        found = self.bound(filled(text, self.oids))
        bound: Any = found.bound
        given = [
            None if v is None else reader(oid)(filled(v, self.oids))
            for v, oid in zip(values, bound.parameters, strict=True)
        ]
        answer = self.loop.run_until_complete(self.answer(found, given))
        writers: list[Callable[[Any], str]] = [writer(f.oid) for f in bound.fields]
        rows = [
            [None if v is None else w(v) for v, w in zip(row, writers, strict=True)]
            for row in answer
        ]
        return plain([[f.name, f.oid, f.typmod] for f in bound.fields], rows, self.names)


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
