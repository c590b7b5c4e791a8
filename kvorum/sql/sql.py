"""The PostgreSQL port of a node or a proxy: sessions over its transaction client, on BASE+3.

DuckDB and the parser cost 60 MB and half a second, so this module is imported only where SQL is
served. `Front` owns what all sessions share; `start` and `stop` belong to the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from kv.base.connection_slots import Seats
from kv.base.errors import KvorumError
from kv.base.ids import TableId
from kv.base.limits import (
    PROCEDURE_LOOKED_MAX,
    SQL_CONNECTIONS_MAX,
    SQL_MEMORY_BYTES_DEFAULT,
    SQL_SCHEMA_TTL_MS,
)
from kv.base.node_methods import Nodes
from kv.base.ports import Clock, Rng, Timers
from kv.base.rights import Roles
from kv.base.tenants import Tenants
from kv.base.tls import Tls
from kv.base.waits import GUARD, PROCEDURE
from kvorum.api import site_links
from kvorum.api.backend import Backend
from kvorum.api.cursor import table_id
from kvorum.api.names import PREFIX_BYTES
from kvorum.audit.audit_log import StampLog
from kvorum.sql import operating_rows
from kvorum.sql.http_statements import Statements
from kvorum.sql.sql_audit import SqlAudit
from kvorum.version import VERSION
from procedures.engine.client import ProcedureClient
from procedures.engine.lock_procedure import LOCK
from procedures.engine.plain_data import Plain
from sqlproxy.analytic.analytic import DuckAnalytic
from sqlproxy.analytic.engine import Threads
from sqlproxy.catalog import catalog, relations, role_settings, roles
from sqlproxy.catalog.declaration_users import Presence
from sqlproxy.catalog.privileges import Place
from sqlproxy.catalog.sequence_pool import SequencePool
from sqlproxy.ddl.change.jobs import jobs_of
from sqlproxy.ddl.change.waiting import carried_out
from sqlproxy.declared.catalogs import Catalogs
from sqlproxy.loop.trimming import Trimming
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.pgcatalog.contents import Role as CatalogRole
from sqlproxy.pgcatalog.oids import database as database_oid
from sqlproxy.pgcatalog.oids import relation as relation_oid
from sqlproxy.rows.naming import database_of
from sqlproxy.rows.schema import Relation, Table
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.sessions import SqlSessions
from sqlproxy.session.shared import advisory_locks as advisory
from sqlproxy.session.shared.notifier import Notifier
from sqlproxy.session.shared.services import Services
from sqlproxy.session.shared.statistics import Statistics
from sqlproxy.session.state.settings import SERVER_VERSION
from sqlproxy.values.memory import Share
from sqlproxy.wire.server import SqlServer
from txn.client import TxnClient

log = logging.getLogger(__name__)

T = TypeVar("T")
_ROLES_TTL_S: Final = 1.0
_UUID_BYTES: Final = 16
_NAME_BYTES: Final = 16


class SqlTls:
    """sqlproxy.wire.startup.Tls over the files of a process."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._end_point = b""
        self._of: ssl.SSLContext | None = None  # what it was computed for

    @property
    def server(self) -> ssl.SSLContext:
        return self._tls.server

    def end_point(self) -> bytes:
        """Of the certificate that `server` shows."""
        context = self._tls.server
        if context is not self._of:
            from kvorum.security import certificates  # 0.15 s: only who needs it imports it

            assert self._tls.pair is not None, "it serves"
            self._end_point = certificates.end_point(self._tls.pair[0].read_bytes())
            self._of = context
        return self._end_point


class Front:
    """SQL over one transaction client. `surface`: what tells the kvorum views."""

    def __init__(
        self,
        nodes: Nodes,
        txn: TxnClient,
        surface: Backend,
        clock: Clock,
        rng: Rng,
        timers: Timers,
        tenants: Tenants,
        *,
        name: bytes = b"",
        home: Path | None = None,
        connections_max: int = SQL_CONNECTIONS_MAX,
        seats: Seats | None = None,
        tls: Tls | None = None,
        memory_bytes: int = SQL_MEMORY_BYTES_DEFAULT,
        session_defaults: Mapping[str, str] | None = None,
        log: StampLog | None = None,
        threads: Threads | None = None,
    ) -> None:
        """`name`: of this process, the same after a restart; without one it has a random one.
        `home`: a folder of its own for what is too large for memory; None: one of the system's.
        `session_defaults`: settings with which sessions begin, where these are others than ours.
        """
        self._presence = Presence(txn, timers, name or rng.token(_NAME_BYTES))
        self._txn, self._surface, self._timers, self._rng = txn, surface, timers, rng
        self._procedures = ProcedureClient(nodes, timers, owner="sql")
        self._cluster: tuple[float, Roles, Cluster] | None = None
        self._definitions = 0  # that ended: what was read across the end of one is not kept
        self._system = SystemCatalog(
            f"PostgreSQL {SERVER_VERSION} (Kvorum {VERSION})",
            self._providers(),
            last=self._last,
            past={"procedures": self._procedures_then},
            pages={"procedures": self._procedures_now},
        )
        share = Share(memory_bytes, threading.Lock())
        audit = None if log is None else SqlAudit(log, rng.token)
        self._analytic = DuckAnalytic(home, share, threads)
        self._numbers = SequencePool(txn.run, timers)
        self._advisory = advisory.AdvisoryLocks(nodes, timers)
        self._notifier = Notifier(txn)
        self._statistics = Statistics(txn, clock, self._computed)
        loop = asyncio.get_running_loop()
        self.services = Services(
            client=txn,
            tenants=tenants,
            catalogs=Catalogs(txn, timers, SQL_SCHEMA_TTL_MS / 1000, self._presence),
            system=self._system,
            run=self._run,
            numbers=self._numbers,
            clock=clock,
            cluster=self.cluster,
            cancel_after=lambda seconds, then: loop.call_later(seconds, then),
            random=self._chance,
            uuid=self._uuid,
            token=rng.token,
            analytic=self._analytic,
            advisory=self._advisory,
            notifier=self._notifier,
            memory=share,
            session_defaults=session_defaults or {},
            audit=audit,
            statistics=self._statistics,
            trimming=Trimming(share, loop.call_later, self._aside, self._analytic.flush),
        )
        sessions = SqlSessions(self.services)
        self.statements = Statements(sessions, clock.monotonic)
        self.server = SqlServer(
            sessions,
            clock=clock,
            rng=rng,
            connections_max=connections_max,
            seats=seats,
            turns=tenants.turns,
            tls=None if tls is None else SqlTls(tls),
        )
        self._reviewing: asyncio.Task[None] | None = None
        if audit is not None:
            self.server.on_login = audit.login

    def _aside(self, call: Callable[[], None]) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(None, call)

    def _computed(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, call)

    async def start(self, listener: socket.socket) -> None:
        """Serve on a socket that is bound."""
        await self.server.start(listener=listener)
        self._statistics.start()
        self._reviewing = asyncio.get_running_loop().create_task(self.review(), name="review")

    async def review(self) -> None:
        """Until cancelled: what goes on for who may not log in any more ends soon."""
        while True:
            await asyncio.sleep(_ROLES_TTL_S)
            if self.server.connections:
                try:
                    with contextlib.suppress(KvorumError):  # else nothing is known
                        members = await self.services.catalogs.roles.look()
                        self.services.roster.review(members)
                except Exception:  # an application boundary: the next look ends what has to end
                    log.exception("what goes on over SQL could not be reviewed")

    async def stop(self) -> None:
        if self._reviewing is not None:
            self._reviewing.cancel()
        await self.server.stop()
        await self._numbers.close()
        await self._advisory.close()
        await self._notifier.close()
        await self._statistics.close()
        await self._presence.close()
        self._system.close()
        self._analytic.close()

    async def cluster(self) -> Cluster:
        """The databases and roles, at most a second old; at once if roles were changed here."""
        now = self._timers.monotonic()
        book = self.services.catalogs.roles.members
        if self._cluster is not None and self._cluster[0] > now and self._cluster[1] is book:
            return self._cluster[2]
        definitions = self._definitions
        spaces = [
            space
            for space in await catalog.list_namespaces(self._txn)
            if database_of(space.name) == space.name
        ]
        found = Cluster(
            tuple(space.name for space in spaces),
            tuple(
                CatalogRole(
                    role.name,
                    superuser=role.superuser,
                    login=role.login,
                    create_database=role.superuser or role.create_database,
                    create_role=role.superuser or role.create_role,
                    member_of=role.member_of,
                )
                for role in await roles.all_roles(self._txn)
            ),
            tuple(
                Place(space.name, space.owner, space.acl, space.schema_acl, space.comment)
                for space in spaces
                if space.owner
                or space.comment
                or space.acl is not None
                or space.schema_acl is not None
            ),
            tuple(
                (role, database, tuple(f"{name}={value}" for name, value in values.items()))
                for role, database, values in await role_settings.every(self._txn)
            ),
        )
        if definitions == self._definitions:
            self._cluster = (now + _ROLES_TTL_S, book, found)
        return found

    async def _run(
        self, procedure: str, args: Mapping[str, object], tell: Callable[[str], None]
    ) -> object:
        """A definition, to its end. It goes on when this client goes away."""
        self._presence.hurry()
        nonce = self._rng.token(_NAME_BYTES).hex()
        try:
            found = await carried_out(
                self._procedures, self._timers, procedure, args, nonce=nonce, tell=tell
            )
        finally:
            self._cluster = None
            self._definitions += 1
        return found or {}

    async def _partitions(self) -> Sequence[Mapping[str, object]]:
        """With the table whose rows, or whose index's entries, each has."""
        rows = await self._surface.partitions()
        owners: dict[int, Mapping[str, str]] = {}
        for row in rows:
            number = _table_of(row)
            if number not in owners:
                table = await catalog.find_owner(self._txn, TableId(number))
                owners[number] = (
                    {} if table is None else {"ns": table.namespace, "table": table.name}
                )
        return [{**row, **owners[_table_of(row)]} for row in rows]

    async def _tables(self) -> Sequence[Mapping[str, object]]:
        """What every database has, tables and indexes with what their partitions hold."""
        held: dict[int, tuple[int, int]] = {}
        for row in await self._surface.partitions():
            count, size = held.get(_table_of(row), (0, 0))
            held[_table_of(row)] = count + 1, size + int(row["size"])
        found: list[Mapping[str, object]] = []
        for space in await catalog.list_namespaces(self._txn):
            for one in await relations.list_relations(self._txn, space.name):
                found += _listed(one, held)
        return found

    async def _row_locks(self, locks_now: Plain) -> list[Mapping[str, object]]:
        """For pg_locks: a transaction's locks of a table in one row, and each wait for a row."""
        held = [(one, True) for one in locks_now["locks"] if one["ns"]]
        every = held + [(one, False) for one in locks_now["waits"] if one.get("ns")]
        ids = {
            (space, one.name): one.id
            for space in {one["ns"] for one, _ in every}
            for one in await relations.list_relations(self._txn, space)
        }
        found: dict[tuple[object, ...], Mapping[str, object]] = {}
        for one, granted in every:
            number = ids.get((one["ns"], one["table"]))
            if number is None:
                continue
            only = one["kind"] == GUARD or "strength" in one
            found[one["ns"], number, one["txn"], granted, only] = {
                "locktype": "relation" if granted else "tuple",
                "database": database_oid(one["ns"]),
                "relation": relation_oid(number),
                "virtualtransaction": one["txn"] or "",
                "mode": ("RowShareLock" if only else "RowExclusiveLock")
                if granted
                else "ExclusiveLock",
                "granted": granted,
                "fastpath": False,
            }
        return list(found.values())

    def _chance(self) -> float:
        return int.from_bytes(self._rng.token(7), "big") / (1 << 56)

    def _uuid(self) -> UUID:
        return UUID(bytes=self._rng.token(_UUID_BYTES), version=4)

    async def _last(self, sequence: SequenceRow) -> int | None:
        last, _, called = await self._numbers.stand(sequence)
        return last if called else None

    async def _procedures_then(self, at: int) -> Sequence[Mapping[str, object]]:
        """As their records said at a timestamp."""
        found: list[Mapping[str, object]] = []
        before = 0
        while True:
            page = await self._surface.control("past.list", {"at": at, "before": before})
            found += page["items"]
            before = page["before"]
            if not before or len(found) >= PROCEDURE_LOOKED_MAX:
                return found

    async def _procedures_now(self, before: int) -> tuple[list[Plain], int]:
        """A page of them, the newest first."""
        page, on = await self._surface.procedure_page(
            state=None, owner=None, name=None, before=before or None
        )
        fields = ("id", "name", "state", "step", "locks", "result", "error")
        return [
            {**info.extra, **{name: getattr(info, name) for name in fields}} for info in page
        ], on

    def _providers(self) -> dict[str, Callable[[], Awaitable[Sequence[Mapping[str, object]]]]]:
        surface = self._surface

        async def jobs() -> Sequence[Mapping[str, object]]:
            found, before = list[Plain](), 0
            while len(found) < PROCEDURE_LOOKED_MAX:
                page, before = await self._procedures_now(before)
                found += page
                if not before:
                    break
            return jobs_of(found)

        async def locks() -> Sequence[Mapping[str, object]]:
            locks_now = await surface.locks(every=True)
            held = [{**one, "waits": False} for one in locks_now["locks"]]
            return held + [{**one, "waits": True} for one in locks_now["waits"]]

        async def pg_locks() -> Sequence[Mapping[str, object]]:
            found = await surface.procedures(state=None, owner=None, name=LOCK)
            locks_now = await surface.locks()
            waiting = {
                one["procedure"]
                for one in locks_now["waits"]
                if one["kind"] == PROCEDURE and one["resource"].startswith("lock ")
            }
            listed = [
                {
                    "id": str(info.id),
                    "name": info.name,
                    "state": info.state,
                    "locks": info.locks,
                    "owner": info.extra.get("owner", ""),
                }
                for info in found
            ]
            return [
                {**one, "database": database_oid(one["database"])}
                for one in advisory.rows(listed, waiting)
            ] + await self._row_locks(locks_now)

        async def transactions() -> Sequence[Mapping[str, object]]:
            return [
                {"id": one.id, "kind": "snapshot", "owner": one.owner, "at": one.at}
                for one in await surface.snapshots()
            ]

        return {
            "jobs": jobs,
            "locks": locks,
            "pg_locks": pg_locks,
            "partitions": self._partitions,
            "nodes": surface.nodes,
            "tables": self._tables,
            "transactions": transactions,
            "site_links": partial(site_links.links, surface),
            **operating_rows.providers(surface),
        }


def _table_of(row: Plain) -> int:
    """The id of the table or index of which a partition has rows."""
    return table_id(row["start"][:PREFIX_BYTES]) if row["start"] else 0


def _listed(one: Relation, held: Mapping[int, tuple[int, int]]) -> list[Mapping[str, object]]:
    """Rows of kvorum.tables: a relation, and the indexes of a table. `held`: partitions and bytes
    by id.
    """
    common = {"ns": one.namespace, "version": one.version}
    if not isinstance(one, Table):
        own = {"id": int(one.id), "oid": relation_oid(one.id), "name": one.name, "kind": one.kind}
        return [{**common, **own, "state": "public"}]
    common |= {"replicas": one.replicas, "tags": one.tags, "shard": one.shard}
    common |= {"survive": one.survive, "leaders": one.leaders}
    parts = [(int(one.id), one.name, "table", one.state)]
    parts += [(int(index.id), index.name, "index", index.state) for index in one.indexes]
    return [
        {
            **common,
            "id": id_,
            "oid": relation_oid(id_),
            "name": name,
            "kind": kind,
            "state": state,
            "partitions": held.get(id_, (0, 0))[0],
            "size": held.get(id_, (0, 0))[1],
        }
        for id_, name, kind, state in parts
    ]
