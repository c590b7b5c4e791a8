"""`SystemCatalog`: what statements read of the system's relations.

    snapshot(…)    the system's tables as of one moment, and what functions ask besides
    reported(…)    rows of what is no table: of sessions, settings, locks, procedures, …

It is given what there is (contents.py) each time. What only somebody else knows comes from
providers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from kv.base.limits import (
    PROCEDURE_LOOKED_MAX,
    PROCEDURE_PASSED_MAX,
    SQL_CATALOG_DATABASES_MAX,
    SQL_CATALOG_STATEMENTS_MAX,
)
from sqlproxy.front.functions.f_catalog import SEQUENCES, SIZES
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.pg import zones
from sqlproxy.pg.answers import Row
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import NO_SIZES, Cluster, Contents, Sees, Session, Sized
from sqlproxy.pgcatalog.fixed_rows import fixed
from sqlproxy.pgcatalog.snapshot import Asked, Snapshot
from sqlproxy.pgcatalog.static import KVORUM, load
from sqlproxy.pgcatalog.views import VIEWS, PageProvider, PastProvider, Provider, Reported, rows
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.values.interval import Interval

_SETTINGS: Final = "pg_show_all_settings"
_US: Final = timedelta(microseconds=1)


def warm() -> None:
    """Read what is the same in every database: a second of CPU, so a thread does it."""
    for name in fixed().names:
        fixed().columns(name)


class SystemCatalog:
    """`providers`: name of a kvorum view, or of one of relations.FED → its rows as maps; `past`:
    the same as of a timestamp, of those that have a past; `pages`: of those of which there may be
    very many, some of them behind a place (0: the first), and the next place, 0: that was all.
    `version`: what version() says. `last`: the value that a sequence gave out last, None: none yet.
    """

    def __init__(
        self,
        version: str,
        providers: Mapping[str, Provider] | None = None,
        last: Callable[[SequenceRow], Awaitable[int | None]] | None = None,
        past: Mapping[str, PastProvider] | None = None,
        pages: Mapping[str, PageProvider] | None = None,
    ) -> None:
        self._version, self._pages = version, dict(pages or {})
        self._providers, self._last = dict(providers or {}), last
        self._past = dict(past or {})
        self._executor = ThreadPoolExecutor(SQL_CATALOG_STATEMENTS_MAX, "catalog")
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()

    async def snapshot(
        self,
        cluster: Cluster,
        contents: Contents,
        relations: Relations,
        asks: Collection[str],
        facts: Mapping[str, object],
        sees: Sees | None,
        sizes: Mapping[int, Sized] = NO_SIZES,
    ) -> Asked:
        """What functions of a statement ask, `asks` as `front.functions.f_catalog` says, with
        `facts` that are known. `sizes`: of tables, by their ids; another object if they are others.
        Raises SqlError.
        """
        name = f"{contents.database}:{contents.private}" if contents.private else contents.database
        found = self._snapshots.get(name) or self._snapshots.get(contents.database)
        same = found is not None and found.contents is contents and found.sizes is sizes
        if found is None or not same or found.cluster != cluster:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(
                self._executor, Snapshot, cluster, contents, found, sizes
            )
            self._snapshots[name] = found
        self._snapshots.move_to_end(name)
        while len(self._snapshots) > SQL_CATALOG_DATABASES_MAX:
            self._snapshots.popitem(last=False)
        known: dict[str, object] = {**facts, "version": self._version}
        if SIZES in asks:
            sized = await self._ask("tables", contents, sees)
            listed = [(int(t["oid"]), str(t.get("ns") or ""), t) for t in sized if t.get("oid")]
            held, databases = Counter[int](), Counter[str]()
            for oid, database, one in listed:
                held[oid] += int(one.get("size") or 0)
                databases[database] += int(one.get("size") or 0)
            known |= {SIZES: held, "databases": databases}
        if SEQUENCES in asks:
            lasts = await self._ask("sequences", contents, sees)
            known[SEQUENCES] = {one["oid"]: one["last"] for one in lasts}
        return Asked(found, relations, known)

    async def reported(
        self, relation: str, contents: Contents, session: Session, at: int = 0
    ) -> Sequence[Row]:
        """The rows of a relation that is no table, or of a function in FROM, as its columns are
        held. `at`: as of then, where it has a past. Raises SqlError, SnapshotTooOld.
        """
        schema, _, name = relation.partition(".")
        name = name.removesuffix("()")
        if name in ("pg_settings", _SETTINGS):
            return _settings(session)
        if name == "pg_get_keywords":
            return [tuple(row) for row in load().feeds[name]["rows"]]
        listed: Sequence[Reported] | None = session.own.get(name)
        if name == "pg_timezone_names":
            listed = _zones(zones.all_names(session.now), "name")
        if name == "pg_timezone_abbrevs":
            listed = _zones(zones.all_abbreviations(session.now), "abbrev")
        if listed is None:
            listed = await self._ask(name, contents, session.sees, at)
        if schema == KVORUM:
            return rows(VIEWS[name], listed)
        columns = [column.name for column in load().layouts[schema, name]]
        return [tuple(one.get(column) for column in columns) for one in listed]

    async def _ask(
        self, name: str, contents: Contents, sees: Sees | None, at: int = 0
    ) -> Sequence[Reported]:
        """What is reported under a name."""
        reported: Sequence[Reported] = ()
        if name == "sequences" and self._last is not None:
            reported = [
                {"oid": oids.relation(one.id), "name": one.name, "last": await self._last(one)}
                for one in contents.relations.values()
                if isinstance(one, SequenceRow)
            ]
        if at and name in self._past:
            reported = await self._past[name](at)
        elif name in self._pages:
            return await self._paged(name, sees)
        elif name in self._providers:
            reported = await self._providers[name]()
        return _visible(name, reported, sees)

    async def _paged(self, name: str, sees: Sees | None) -> Sequence[Reported]:
        """So many that may be seen, however many others are before them, up to a bound."""
        found: list[Reported] = []
        place = passed = 0
        while True:
            page, place = await self._pages[name](place)
            visible = _visible(name, page, sees)
            found += visible
            passed += len(page) - len(visible)
            if not place or len(found) >= PROCEDURE_LOOKED_MAX or passed >= PROCEDURE_PASSED_MAX:
                return found[:PROCEDURE_LOOKED_MAX]

    def close(self) -> None:
        self._executor.shutdown()


def _visible(name: str, reported: Sequence[Reported], sees: Sees | None) -> Sequence[Reported]:
    if sees is None:
        return reported
    return [row for row in (sees(name, row) for row in reported) if row is not None]


def _settings(session: Session) -> Sequence[Row]:
    """PostgreSQL's own, with the session's values, and those that only we have."""
    source = load().feeds[_SETTINGS]
    names = [n for n, _ in source["columns"] if n[0] != "_"]
    name, setting = names.index("name"), names.index("setting")
    own = {key.lower(): (key, value) for key, value in session.settings.items()}
    listed: list[Row] = []
    for recorded in source["rows"]:
        row = list(recorded[: len(names)])
        _, row[setting] = own.pop(row[name].lower(), ("", row[setting]))
        listed.append(tuple(row))
    ours: dict[str, object] = {
        "vartype": "string",
        "context": "user",
        "category": "Kvorum",
        "source": "session",
    }
    for key, value in sorted(own.values()):
        said = {**ours, "name": key, "setting": value}
        listed.append(tuple(said.get(n) for n in names))
    return listed


def _zones(listed: Iterable[zones.Listed], name: str) -> list[Reported]:
    return [
        {name: zone, "abbrev": word, "utc_offset": Interval(0, 0, offset // _US), "is_dst": is_dst}
        for zone, word, offset, is_dst in listed
    ]
