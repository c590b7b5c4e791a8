"""SQL over the simulated cluster: statements of a test, in the test's own process.

The sessions are those of the PostgreSQL port, without its protocol. What DuckDB runs elsewhere in
threads runs here on the spot: no virtual time passes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.fair_turns import FairTurns
from kv.base.rights import Identity
from kv.base.tenants import Tenants
from kvorum.native.native import NativeBackend
from kvorum.sql.sql import Front
from kvorum.testing.simulation.loop import SimRng
from sqlproxy.session.session import SqlSession
from sqlproxy.session.sessions import SqlSessions
from sqlproxy.wire.compiled import as_sql_error

T = TypeVar("T")


class OnTheSpot:
    """sqlproxy.analytic.engine.Threads."""

    def submit(self, call: Callable[..., T], *args: object) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(call(*args))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future

    def shutdown(self) -> None:
        """Nothing is held."""


class SqlClient:
    """A session per database, each of one task at a time."""

    def __init__(self, backend: NativeBackend, seed: int) -> None:
        txn = backend.txn
        tenants = Tenants(txn.clock.now_ms, FairTurns(txn.timers.monotonic))
        self._front = Front(
            *(backend.kv, txn, backend, txn.clock, SimRng(seed), txn.timers, tenants),
            threads=OnTheSpot(),
        )
        self._sessions: dict[str, SqlSession] = {}

    async def run(self, database: str, text: str, values: tuple[object, ...]) -> list[Any]:
        """The rows of one statement. Raises sqlproxy.values.errors.SqlError, InvalidArgument."""
        session = self._sessions.get(database)
        if session is None:
            opened = SqlSessions(self._front.services)
            who = Identity("kvorum", "loopback")
            session = self._sessions[database] = await opened.open(who, "", database, {})
        if len(await session.split(text)) != 1:
            raise InvalidArgument("cluster.sql takes one statement")
        try:
            prepared = await session.parse(text, ())
            portal = await session.bind(prepared, values)
            rows: list[Any] = []
            try:
                while batch := await portal.fetch(1_000):
                    rows += batch
            finally:
                await portal.close()
            await session.sync()
        except Exception as error:
            failure = as_sql_error(error)
            await session.failed(failure)
            try:
                await session.sync()
            except KvorumError as late:
                raise as_sql_error(late) from error
            raise failure from error
        return rows
