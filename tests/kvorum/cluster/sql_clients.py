"""SQL sessions over clients of the simulated cluster (tests/sim/cluster), used as the wire uses
them: a statement that has a short way (session/running/short_requests.py) goes it and may be
declined, what runs may be cancelled, a client may go away in the middle. What an error says is
taken at its word: only 40003 may have been done.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, cast
from uuid import UUID
from weakref import WeakKeyDictionary

from kv.base.errors import AlreadyExists, KvorumError
from kv.base.fair_turns import FairTurns
from kv.base.limits import SQL_SCHEMA_TTL_MS
from kv.base.rights import Identity
from kv.base.tenants import Tenants
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import READ_COMMITTED, Workload
from procedures.engine.client import ProcedureClient
from sqlproxy.catalog.declaration_users import Presence
from sqlproxy.catalog.sequence_pool import SequencePool
from sqlproxy.ddl.change.waiting import carried_out
from sqlproxy.declared.catalogs import Catalogs
from sqlproxy.pg.answers import Answered
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.session.sessions import SqlSessions
from sqlproxy.session.shared.services import Services
from sqlproxy.values.errors import SqlError
from sqlproxy.wire.compiled import as_sql_error

_CANCELLED: Final = 0.03  # of the statements
_LEFT: Final = 0.02
_MAY_HAVE_BEEN: Final = ("40003", "08")
_numbers = itertools.count(1)


class Away(Exception):
    """The client hung up: what it asked for may have been done."""


class Sql:
    """What a client of the simulation has instead of a socket. Raises SqlError, Away."""

    def __init__(
        self, db: AsyncDatabase, chance: random.Random, level: str = "read committed"
    ) -> None:
        """`level`: of isolation, where a statement says no other."""
        backend = cast(Any, db)._backend
        self._chance, self._level = chance, level
        kv, txn = backend.kv, backend.txn
        timers = txn.timers
        self.presence = Presence(txn, timers, chance.randbytes(16))
        procedures = ProcedureClient(kv, timers, owner="sql")

        async def define(
            procedure: str, args: Mapping[str, Any], tell: Callable[[str], None]
        ) -> Any:
            self.presence.hurry()
            nonce = f"{next(_numbers)}-{chance.getrandbits(64)}"
            found = await carried_out(procedures, timers, procedure, args, nonce=nonce, tell=tell)
            return found or {}

        async def nobody() -> Any:
            raise AssertionError("the system catalog is not asked here")

        loop = asyncio.get_running_loop()
        self.services = Services(
            client=txn,
            tenants=Tenants(txn.clock.now_ms, FairTurns(txn.timers.monotonic)),
            catalogs=Catalogs(txn, timers, SQL_SCHEMA_TTL_MS / 1000, self.presence),
            system=cast(SystemCatalog, _Nothing()),
            run=define,
            numbers=SequencePool(txn.run, timers),
            clock=txn.clock,
            cluster=nobody,
            cancel_after=lambda seconds, then: loop.call_later(seconds, then),
            random=chance.random,
            uuid=lambda: UUID(bytes=chance.randbytes(16), version=4),
            token=chance.randbytes,
        )
        self.session: Any = None
        self.ways: dict[str, int] = {"short": 0, "declined": 0, "usual": 0}

    async def do(
        self, text: str, *values: Any, steady: bool = False, sync: bool = True
    ) -> tuple[str, list[Any]]:
        """One statement: its tag and rows. `steady`: it is not cancelled and not left. `sync`: a
        Sync follows; else the next statement belongs to the same transaction.
        """
        if self.session is None:
            self.session = await self._open()
        roll = 1.0 if steady else self._chance.random()
        work = asyncio.get_running_loop().create_task(self._do(text, values, sync))
        try:
            if roll < _LEFT:
                await asyncio.wait([work], timeout=self._chance.random() * 0.02)
                if not work.done():
                    await self._leave(work)
                    raise Away
            elif roll < _LEFT + _CANCELLED:
                await asyncio.wait([work], timeout=self._chance.random() * 0.02)
                self.session.cancel()
            return await work
        except KvorumError as error:
            raise as_sql_error(error) from error

    async def _open(self) -> Any:
        try:
            sessions = SqlSessions(self.services)
            given = {"default_transaction_isolation": self._level}
            return await sessions.open(Identity("kvorum", "loopback"), "", NAMESPACE, given)
        except KvorumError as error:
            raise as_sql_error(error) from error

    async def _leave(self, work: asyncio.Task[Any]) -> None:
        """As sqlproxy.wire.connection when the client's end is closed."""
        session, self.session = self.session, None
        session.cancel()
        if self._chance.random() < 0.5:
            work.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await work
        with suppress(KvorumError, SqlError):
            await session.close()

    async def sync(self) -> None:
        """The Sync behind statements without one."""
        try:
            await self.session.sync()
        except KvorumError as error:
            raise as_sql_error(error) from error

    async def _do(self, text: str, values: Sequence[Any], sync: bool) -> tuple[str, list[Any]]:
        session = self.session
        session.lone = sync
        try:
            prepared = await session.parse(text, ())
            if sync and prepared.short is not None and not session.portals:
                loop = asyncio.get_running_loop()
                answered: asyncio.Future[Answered | SqlError | None] = loop.create_future()

                def done(answer: Answered | SqlError | None) -> None:
                    if not answered.done():
                        answered.set_result(answer)

                if session.start(prepared, values, done):
                    answer = await answered
                    if isinstance(answer, SqlError):
                        raise answer
                    self.ways["declined" if answer is None else "short"] += 1
                    if answer is not None:
                        return answer.tag, list(answer.rows)
            self.ways["usual"] += 1
            portal = await session.bind(prepared, values)
            rows: list[Any] = []
            try:
                while batch := await portal.fetch(100):
                    rows += batch
                tag = portal.tag()
            finally:
                await portal.close()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await session.failed(as_sql_error(error))
            await session.sync()
            raise as_sql_error(error) from error
        if sync:
            await session.sync()
        return tag, rows

    async def copy(self, table: str, rows: Sequence[Sequence[Any]], gives_up: bool) -> None:
        if self.session is None:
            self.session = await self._open()
        session = self.session
        try:
            await session.split(text := f"COPY {table} FROM STDIN")
            prepared = await session.parse(text, ())
            portal = await session.bind(prepared, ())
            try:
                for at in range(0, len(rows), 7):
                    await portal.take(rows[at : at + 7])
                if gives_up:
                    raise SqlError("57014", "COPY from stdin failed")
                await portal.finish()
            finally:
                await portal.close()
        except Exception as error:
            await session.failed(as_sql_error(error))
            await session.sync()
            raise as_sql_error(error) from error
        try:
            await session.sync()
        except KvorumError as error:
            raise as_sql_error(error) from error


class _Nothing:
    """A system catalog that is never asked."""

    def answers(self, body: Any) -> bool:
        return False


_open: WeakKeyDictionary[Client, Sql] = WeakKeyDictionary()


def sql_of(client: Client) -> Sql:
    found = _open.get(client)
    if found is None:
        level = "read committed" if client.isolation == READ_COMMITTED else "repeatable read"
        chance = random.Random(client.chance.rng.token(8))
        found = _open[client] = Sql(client.db, chance, level)
    return found


class SqlWorkload(Workload):
    """Tables by statements, and what an answer means."""

    tables: ClassVar[Sequence[str]]
    rows: ClassVar[Sequence[str]] = ()

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        with suppress(AlreadyExists):
            await db.create_namespace(NAMESPACE)
        sql = Sql(db, random.Random(1))
        try:
            for text in (*self.tables, *self.rows):
                await sql.do(text, steady=True)
        except SqlError as error:
            if error.sqlstate not in ("42P07", "23505"):
                raise _store_error(error) from error
        finally:
            await sql.presence.close()

    async def record(
        self, client: Client, f: str, args: Any, run: Callable[[Sql], Any], *, reads: bool = False
    ) -> bool:
        """A statement by itself: any error but an unknown outcome promises that nothing is done."""
        op = client.invoke(f, args)
        try:
            result = await run(sql_of(client))
        except Away:
            self._unknown(client, op, "LEFT")
        except SqlError as error:
            if f == "cas" and args["old"] is None and error.sqlstate == "23505":
                client.ok(op, False)
                return True
            self._failed(client, op, error, reads)
        else:
            client.ok(op, result)
            return True
        return False

    async def block(
        self,
        client: Client,
        f: str,
        args: Any,
        run: Callable[[Sql], Any],
        begin: str = "BEGIN",
        *,
        reads: bool = False,
    ) -> bool:
        """BEGIN … COMMIT: until the COMMIT is sent nothing can happen."""
        op, sql = client.invoke(f, args), sql_of(client)
        try:
            await sql.do(begin)
            result = await run(sql)
        except Away:
            client.recorder.fail(op, "LEFT")
            return False
        except SqlError as error:
            self._failed(client, op, error, True)
            await self._rolled_back(sql)
            return False
        try:
            tag, _ = await sql.do("COMMIT")
        except Away:
            self._unknown(client, op, "LEFT")
            return False
        except SqlError as error:
            self._failed(client, op, error, reads)
            await self._rolled_back(sql)
            return False
        assert tag == "COMMIT", tag
        client.ok(op, result)
        return True

    @staticmethod
    async def _rolled_back(sql: Sql) -> None:
        if sql.session is not None and sql.session.status != "I":
            with suppress(SqlError, Away):
                await sql.do("ROLLBACK", steady=True)

    @staticmethod
    def _failed(client: Client, op: int, error: SqlError, reads: bool) -> None:
        if error.sqlstate.startswith(("XX", "0A", "42")):
            info = {"wrong": f"{error.message} {error.detail}"}
            client.recorder.fail(op, error.sqlstate, **info)
        elif error.sqlstate.startswith(_MAY_HAVE_BEEN) and not reads:
            assert error.detail, "what is not known is explained"
            SqlWorkload._unknown(client, op, error.sqlstate)
        else:
            client.recorder.fail(op, f"{error.sqlstate} {error.message}"[:80])

    @staticmethod
    def _unknown(client: Client, op: int, why: str) -> None:
        client.recorder.unknown(op, why)
        client.process += client.clients


def _store_error(error: SqlError) -> KvorumError:
    return KvorumError(f"{error.sqlstate} {error.message} {error.detail}")
