"""`SystemCatalog`: statements over pg_catalog, information_schema and the kvorum views, answered.

    answers(body)      whether a statement is its business
    prepare(body)      fields and parameters: PostgreSQL's names and OIDs
    execute(…)         rows, and what set_config() asked to be set

It is given what there is (contents.py) with each execution and brings its tables up to it first.
What only somebody else knows (sessions, locks, procedures, …) comes from providers, asked before
DuckDB runs. DuckDB runs in a thread: some statements take milliseconds.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from kv.base.limits import (
    SQL_CATALOG_DATABASES_MAX,
    SQL_CATALOG_INTERRUPT_MS,
    SQL_CATALOG_PIECE_ROWS,
    SQL_CATALOG_ROWS_MAX,
    SQL_CATALOG_STATEMENTS_MAX,
    SQL_PLANS_MAX,
)
from sqlproxy.duck import duckerrors
from sqlproxy.front.functions.f_catalog import SEQUENCES, SIZES
from sqlproxy.front.functions.regclass import Relations as RelationNames
from sqlproxy.front.syntax.syntax import Node, find, strings
from sqlproxy.pg import oids as types
from sqlproxy.pg import zones
from sqlproxy.pg.answers import Field, Row
from sqlproxy.pgcatalog import computed, held_types, oids
from sqlproxy.pgcatalog.contents import Cluster, Contents, Sees, Session
from sqlproxy.pgcatalog.functions import INFORMATION, MANY, SCALAR
from sqlproxy.pgcatalog.relations import Relations
from sqlproxy.pgcatalog.snapshot import Asked, Snapshot
from sqlproxy.pgcatalog.static import CATALOG, KVORUM, Static, load
from sqlproxy.pgcatalog.store import Store, arrow
from sqlproxy.pgcatalog.translation import Translated, translate, uses
from sqlproxy.pgcatalog.views import VIEWS, Provider, Reported, rows
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.values import memory
from sqlproxy.values.breaks import no_break, set_breaks
from sqlproxy.values.errors import (
    LIMIT_EXCEEDED,
    QUERY_CANCELED,
    UNDEFINED_OBJECT,
    SqlError,
)
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import words

_USED: Final = re.compile(r"\$([a-z_]+\d*)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN: Final = words(
    """
    lower upper length replace left right md5 ascii chr reverse repeat starts_with translate strpos
    abs ceil ceiling floor sqrt power mod sign split_part lpad rpad char_length character_length
    octet_length btrim ltrim rtrim position substr regexp_replace regexp_split_to_array regexp_match
    string_to_array like_escape text array_length array_lower array_upper array_ndims cardinality
    array_position array_append array_prepend array_cat array_remove date_trunc timezone extract
    date_part age now statement_timestamp clock_timestamp transaction_timestamp quote_literal
    quote_nullable quote_ident pg_typeof current_setting pg_backend_pid
    """
)
_OURS: Final = (
    frozenset(
        {
            *SCALAR,
            *INFORMATION,
            *MANY,
            "format_type",
            "set_config",
            "pg_cancel_backend",
            "pg_terminate_backend",
            "to_regclass",
            "to_regtype",
            "to_regnamespace",
            "to_regrole",
            "to_regproc",
            "pg_get_keywords",
            "aclexplode",
        }
    )
    - _PLAIN
)


@dataclass(frozen=True, slots=True)
class Change:
    """What set_config() asked for."""

    name: str
    value: str | None
    local: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """`fields` and `parameters` (OIDs) are what Describe returns."""

    translated: Translated

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.translated.fields

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.translated.parameters


@dataclass(frozen=True, slots=True)
class Answer:
    fields: tuple[Field, ...]
    rows: list[Row]
    changes: tuple[Change, ...] = ()


class Running:
    """A statement under way, whose thread is asked to end it by `ended`."""

    __slots__ = ("budget", "cursor", "ended")

    def __init__(self, budget: memory.Budget) -> None:
        self.budget = budget
        self.cursor: duckdb.DuckDBPyConnection | None = None
        self.ended = False

    def goes_on(self) -> None:
        """Raises SqlError."""
        if self.ended:
            raise SqlError(QUERY_CANCELED, "the query was ended")


class Ground(NamedTuple):
    """What one stands on, whatever is declared: half a second of CPU, so a thread makes it."""

    static: Static
    relations: Relations
    store: Store


def made_ground() -> Ground:
    static = load()
    relations = Relations(static)
    return Ground(static, relations, Store(static, relations))


class SystemCatalog:
    """`providers`: name of a kvorum view, or of one of relations.FED → its rows as maps. `version`:
    what version() says. `last`: the value that a sequence gave out last, None: none yet.
    """

    def __init__(
        self,
        version: str,
        providers: Mapping[str, Provider] | None = None,
        last: Callable[[SequenceRow], Awaitable[int | None]] | None = None,
        ground: Ground | None = None,
    ) -> None:
        self._static, self._relations, self._store = ground or made_ground()
        self._version = version
        self._providers, self._last = dict(providers or {}), last
        self._executor = ThreadPoolExecutor(SQL_CATALOG_STATEMENTS_MAX, "catalog")
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._plans: OrderedDict[tuple[str, tuple[int, ...]], Prepared] = OrderedDict()

    # -- statements

    def answers(self, body: Node) -> bool:
        """Whether a SelectStmt is answered here: it reads system relations only, or none and calls
        what only the catalog knows.
        """
        named = uses(body)
        if named:
            return all(self._relations.find(schema, name) for schema, name in named)
        called = {strings(call.get("funcname"))[-1] for call in find(body, "FuncCall")}
        reg = any(
            strings(cast["typeName"].get("names"))[-1:] != []
            and strings(cast["typeName"]["names"])[-1].startswith("reg")
            for cast in find(body, "TypeCast")
        )
        session = any(
            "CURRENT" in v["op"] or "USER" in v["op"] for v in find(body, "SQLValueFunction")
        )
        return bool(called & _OURS) or reg or (session and not called)

    def prepare(self, text: str, body: Node, declared: Sequence[int] = ()) -> Prepared:
        """`text` names the statement among those remembered. Raises SqlError."""
        key = text, tuple(declared)
        found = self._plans.get(key)
        if found is None:
            found = Prepared(translate(body, self._static, self._relations, declared))
            self._plans[key] = found
            if len(self._plans) > SQL_PLANS_MAX:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return found

    async def execute(
        self,
        prepared: Prepared,
        values: Sequence[object],
        session: Session,
        cluster: Cluster,
        contents: Contents,
    ) -> Answer:
        """Raises SqlError. Cancelled: the statement is ended first."""
        reported = await self._ask(prepared.translated.needs.feeds, contents, session.sees)
        running = Running(memory.now())
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(
            self._executor,
            self.run,
            prepared,
            values,
            session,
            cluster,
            contents,
            reported,
            running,
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # Until it has ended: an interrupt before the statement has begun is lost.
            running.ended = True
            while not work.done():
                if running.cursor is not None:
                    running.cursor.interrupt()
                await asyncio.wait([work], timeout=SQL_CATALOG_INTERRUPT_MS / 1_000)
            if not work.cancelled():
                work.exception()
            raise

    async def snapshot(
        self,
        cluster: Cluster,
        contents: Contents,
        relations: RelationNames,
        asks: Collection[str],
        facts: Mapping[str, object],
        sees: Sees | None,
    ) -> Asked:
        """What functions of a statement ask, `asks` as `front.functions.f_catalog` says, with
        `facts` that are known. Raises SqlError.
        """
        found = self._snapshots.get(contents.database)
        if found is None or found.contents is not contents or found.cluster != cluster:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._executor, Snapshot, cluster, contents, found)
            self._snapshots[contents.database] = found
        self._snapshots.move_to_end(contents.database)
        while len(self._snapshots) > SQL_CATALOG_DATABASES_MAX:
            self._snapshots.popitem(last=False)
        known: dict[str, object] = {**facts, "version": self._version}
        if SIZES in asks:
            sized = (await self._ask(("kv_sizes",), contents, sees)).get("tables", ())
            listed = [(int(t["oid"]), str(t.get("ns") or ""), t) for t in sized if t.get("oid")]
            sizes, databases = Counter[int](), Counter[str]()
            for oid, database, one in listed:
                sizes[oid] += int(one.get("size") or 0)
                databases[database] += int(one.get("size") or 0)
            known |= {SIZES: sizes, "databases": databases}
        if SEQUENCES in asks:
            lasts = (await self._ask(("kv_sequences",), contents, sees)).get("sequences", ())
            known[SEQUENCES] = {one["oid"]: one["last"] for one in lasts}
        return Asked(found, relations, known)

    async def _ask(
        self, feeds: Iterable[str], contents: Contents, sees: Sees | None
    ) -> dict[str, Sequence[Reported]]:
        reported: dict[str, Sequence[Reported]] = {}
        for feed in feeds:
            name = "tables" if feed == "kv_sizes" else feed.removeprefix("kv_")
            if name == "sequences" and self._last is not None:
                reported[name] = [
                    {
                        "oid": oids.relation(one.id),
                        "name": one.name,
                        "last": await self._last(one),
                    }
                    for one in contents.relations.values()
                    if isinstance(one, SequenceRow)
                ]
            if name in self._providers:
                reported[name] = await self._providers[name]()
            if sees is not None and name in reported:
                visible = (sees(name, row) for row in reported[name])
                reported[name] = [row for row in visible if row is not None]
        return reported

    def run(
        self,
        prepared: Prepared,
        values: Sequence[object],
        session: Session,
        cluster: Cluster,
        contents: Contents,
        reported: Mapping[str, Sequence[Reported]] | None = None,
        running: Running | None = None,
    ) -> Answer:
        """`execute` without the loop: `reported` is what providers said."""
        running = running or Running(memory.now())
        work = prepared.translated
        given = self._given(work, values, session)
        path = self._store.follow(cluster, contents)
        cursor = running.cursor = self._store.cursor(path)
        failed: list[SqlError] = []
        computed.FAILED.set(failed)
        set_breaks(running.goes_on)
        held = memory.Held(running.budget)
        try:
            zone = session.settings.get("TimeZone", "UTC")
            if zone != "UTC":
                now = _EPOCH + timedelta(microseconds=session.now_us)
                icu = zones.icu(zones.shown(zone), now)
                cursor.execute(f"SET TimeZone = '{icu}'")
            for feed in work.needs.feeds:
                cursor.register(feed, self._feed(feed, reported or {}, session))
            with memory.spending(running.budget):
                cursor.execute(work.sql, given or None)
                found: list[tuple[Any, ...]] = []
                while len(found) <= SQL_CATALOG_ROWS_MAX:
                    rows = cursor.fetchmany(SQL_CATALOG_PIECE_ROWS)
                    if not rows:
                        break
                    held.rows(rows)
                    found += rows
                    running.goes_on()
        except duckdb.Error as error:
            if failed:
                raise failed[0] from None
            raise duckerrors.as_sql_error(
                error, memory="the system catalog's database is full"
            ) from error
        finally:
            held.end()
            set_breaks(no_break)
            cursor.close()
        if len(found) > SQL_CATALOG_ROWS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"the system catalog answers with at most {SQL_CATALOG_ROWS_MAX} rows",
                hint="Ask for fewer: WHERE, LIMIT.",
            )
        return _answer(work, found)

    # -- what a statement is given

    def _given(
        self, work: Translated, values: Sequence[object], session: Session
    ) -> dict[str, object]:
        # What a statement names and then does not use, DuckDB would refuse.
        used = set(_USED.findall(work.sql))
        given: dict[str, object] = {
            f"p{n}": values[n - 1] for n in work.needs.parameters if f"p{n}" in used
        }
        facts = self._facts(session)
        given |= {name: facts[name] for name in work.needs.facts if name in used}
        for key, name in work.needs.settings.items():
            if key in used:
                given[key] = self._setting(session, name)
        return given

    def _facts(self, session: Session) -> dict[str, object]:
        path = list(session.search_path)
        every = path if CATALOG in path else [CATALOG, *path]
        known = {**self._static.schemas, "public": oids.PUBLIC_SCHEMA, KVORUM: oids.KVORUM_SCHEMA}
        return {
            "version": self._version,
            "database": session.database,
            "user": session.user,
            "schema": path[0] if path else None,
            "schemas": path,
            "schemas_all": every,
            "visible": [known.get(name) or oids.schema(name) for name in every],
            "pid": session.pid,
            "pids": [one["pid"] for one in session.activity],
            "query": session.query,
            "txid": session.txid,
            "txid_known": session.txid,
            "now": session.now_us,
            "started": session.started_us,
        }

    def _setting(self, session: Session, name: str) -> str | None:
        plain = name.removesuffix("?")
        folded = {key.lower(): value for key, value in session.settings.items()}
        if plain in folded:
            return folded[plain]
        feed = self._static.feeds["pg_show_all_settings"]
        names = [n for n, _ in feed["columns"]]
        for row in feed["rows"]:
            if row[names.index("name")].lower() == plain:
                value: str | None = row[names.index("_shown")]
                return value
        if name.endswith("?"):
            return None
        raise SqlError(UNDEFINED_OBJECT, f'unrecognized configuration parameter "{plain}"')

    def _feed(
        self, feed: str, reported: Mapping[str, Sequence[Reported]], session: Session
    ) -> pa.Table:
        name = feed.removeprefix("kv_")
        if feed in ("kv_shown_settings", "kv_settings_all", "kv_pg_settings"):
            return self._settings(session, feed)
        if feed == "kv_sequences":
            lasts = [(t["oid"], t["last"]) for t in reported.get(name, ())]
            return _table([("oid", "BIGINT"), ("last", "BIGINT")], lasts)
        if feed == "kv_sizes":
            sizes = [
                (int(t["oid"]), str(t.get("ns") or ""), int(t.get("size") or 0))
                for t in reported.get("tables", ())
                if t.get("oid")
            ]
            layout = [("oid", "BIGINT"), ("ns", "VARCHAR"), ("bytes", "BIGINT")]
            return _table(layout, sizes)
        if name in VIEWS:
            view = VIEWS[name]
            layout = [(c.name, self._held(c.type)) for c in view.columns]
            return _table(layout, rows(view, reported.get(name, ())))
        relation = self._relations.all[CATALOG, name]
        layout = [(c.name, self._held(c.type)) for c in relation.columns]
        listed = session.own.get(name) or reported.get(name, ())
        if name == "pg_timezone_names":
            listed = _zones(
                zones.all_names(_EPOCH + timedelta(microseconds=session.now_us)), "name"
            )
        if name == "pg_timezone_abbrevs":
            now = _EPOCH + timedelta(microseconds=session.now_us)
            listed = _zones(zones.all_abbreviations(now), "abbrev")
        if name == "pg_stat_activity":
            listed = session.activity
        return _table(layout, [tuple(one.get(n) for n, _ in layout) for one in listed])

    def _held(self, oid: int) -> str:
        return held_types.held(oid, self._static.element_of(oid))

    def _settings(self, session: Session, feed: str) -> pa.Table:
        source = self._static.feeds["pg_show_all_settings"]
        names = [n for n, _ in source["columns"]]
        name, setting = names.index("name"), names.index("setting")
        own = {key.lower(): (key, value) for key, value in session.settings.items()}
        listed = []
        for row in source["rows"]:
            row = list(row)
            if feed == "kv_shown_settings":
                row[setting] = row[names.index("_shown")]
            _, row[setting] = own.pop(row[name].lower(), ("", row[setting]))
            listed.append(row)
        for key, value in sorted(own.values()):
            listed.append(
                [
                    {
                        "name": key,
                        "setting": value,
                        "vartype": "string",
                        "context": "user",
                        "category": "Kvorum",
                        "source": "session",
                    }.get(n)
                    for n in names
                ]
            )
        if feed == "kv_shown_settings":
            return _table(
                [("name", "VARCHAR"), ("setting", "VARCHAR")],
                [(row[name].lower(), row[setting]) for row in listed],
            )
        layout = [(n, self._held(oid)) for n, oid in source["columns"] if n[0] != "_"]
        return _table(layout, [row[: len(layout)] for row in listed])

    # -- about itself

    def memory(self) -> int:
        """Bytes that DuckDB holds for the system tables."""
        return self._store.memory()

    def close(self) -> None:
        self._executor.shutdown()
        self._store.close()


def _zones(listed: Iterable[zones.Listed], name: str) -> list[Reported]:
    return [
        {name: zone, "abbrev": word, "utc_offset": offset, "is_dst": is_dst}
        for zone, word, offset, is_dst in listed
    ]


def _table(layout: Sequence[tuple[str, str]], listed: Sequence[Sequence[object]]) -> pa.Table:
    columns = list(zip(*listed, strict=True)) or [()] * len(layout)
    arrays = [
        pa.array(values, arrow(held)) for (_, held), values in zip(layout, columns, strict=True)
    ]
    return pa.table(arrays, names=[n for n, _ in layout])


def _answer(work: Translated, found: list[tuple[Any, ...]]) -> Answer:
    width = len(work.fields)
    changes = tuple(
        Change(row[at], row[at + 1], bool(row[at + 2]))
        for row in found
        for at in range(width, width + 3 * work.settings, 3)
        if row[at] is not None
    )
    turns = [(n, _TURNED[kind]) for n, kind in enumerate(work.kinds) if kind in _TURNED]
    if not turns and not work.settings:
        return Answer(work.fields, list(found), changes)
    made: list[Row] = []
    for row in found:
        shown = list(row[:width])
        for at, turn in turns:
            if shown[at] is not None:
                shown[at] = turn(shown[at])
        made.append(tuple(shown))
    return Answer(work.fields, made, changes)


def _timestamptz(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _interval(us: int) -> Interval:
    days, rest = divmod(abs(us), 86_400_000_000)
    sign = -1 if us < 0 else 1
    return Interval(0, sign * days, sign * rest)


def _numeric(text: str) -> Decimal:
    value = Decimal(text)
    whole = value.to_integral_value()
    return whole if value == whole else value.normalize()


_TURNED: Final[dict[int, Callable[[Any], Any]]] = {
    types.TIMESTAMPTZ: _timestamptz,
    types.INTERVAL: _interval,
    types.NUMERIC: _numeric,
}
