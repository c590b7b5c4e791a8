"""The synchronous facade: the same objects without `await`, usable from any number of threads.

A `Portal` is an event loop in a daemon thread; every call hands a coroutine to it and waits for the
answer. The loop is the only place where state changes, so threads need no locks, and their requests
share frames and connections.

Ctrl-C while a call waits cancels that call and raises KeyboardInterrupt in the caller; a write that
was under way then has an unknown outcome, as always when nobody waits for the answer. A process
that forks must open its databases in the child: threads and sockets do not survive `fork`, and a
call on an inherited database says so.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kv.base.errors import KvorumError, Unavailable, UnknownOutcome
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.ports import Rng
from kvorum.database import AsyncDatabase
from kvorum.model import (
    BatchOp,
    Bytes,
    Column,
    Item,
    Page,
    ProcedureInfo,
    Record,
    TableInfo,
    TxnState,
)
from kvorum.outcome import Retries, committed_version
from kvorum.tables import (
    AsyncSnapshot,
    AsyncSnapshotTable,
    AsyncTable,
    AsyncTransaction,
    AsyncTransactionTable,
)

T = TypeVar("T")


class Portal:
    """An event loop in a thread of its own, and the door to it."""

    def __init__(self, name: str) -> None:
        self._loop = _new_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def usable(self) -> bool:
        return not self._closed and os.getpid() == self._pid

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it. Raises what it raises; Unavailable
        when closed or after a fork.
        """
        if not self.usable or threading.current_thread() is self._thread:
            work.close()
            raise self._refusal()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # a no-op if the error is the answer; else the waiting was interrupted
            raise

    def _refusal(self) -> Unavailable:
        if self._closed:
            return Unavailable("the database is closed; open it again")
        if os.getpid() != self._pid:
            return Unavailable("the database was opened before fork(); open one in this process")
        return Unavailable(
            "a synchronous call was made on the database's own loop; use the async API"
        )

    def close(self) -> None:
        """Stop the loop and its thread. A second time it does nothing."""
        if not self.usable:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class Table:
    """The records of one table; see `kvorum.tables.AsyncTable`, whose methods these are."""

    __slots__ = ("_call", "_table")

    def __init__(self, portal: Portal, table: AsyncTable) -> None:
        self._call = portal.call
        self._table = table

    @property
    def ns(self) -> str:
        return self._table.ns

    @property
    def name(self) -> str:
        return self._table.name

    def get(self, key: Bytes, *, at: int | None = None) -> Record | None:
        """The record, or None if there is none."""
        return self._call(self._table.get(key, at=at))

    def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl_ms: int | None = None,
    ) -> int:
        """Write a record; its version. Raises ConditionFailed."""
        return self._call(
            self._table.put(key, value, if_absent=if_absent, if_version=if_version, ttl_ms=ttl_ms)
        )

    def delete(self, key: Bytes, *, if_version: int | None = None) -> int:
        """Remove a record; the version of the removal. Raises ConditionFailed."""
        return self._call(self._table.delete(key, if_version=if_version))

    def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        limit: int = 0,
        cursor: str | None = None,
        at: int | None = None,
    ) -> Page:
        """One page of `[start, end)` in key order; the next one with its `cursor`."""
        return self._call(
            self._table.scan(
                prefix=prefix,
                start=start,
                end=end,
                reverse=reverse,
                limit=limit,
                cursor=cursor,
                at=at,
            )
        )

    def rows(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        at: int | None = None,
    ) -> Iterator[Item]:
        """All records of the range at one snapshot."""
        cursor = None
        while True:
            page = self.scan(
                prefix=prefix, start=start, end=end, reverse=reverse, cursor=cursor, at=at
            )
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def multi_get(self, keys: Sequence[Bytes], *, at: int | None = None) -> list[Record | None]:
        """The records of many keys at one snapshot."""
        return self._call(self._table.multi_get(keys, at=at))


class Snapshot:
    """The database as it was at `at`."""

    __slots__ = ("_portal", "_snapshot")

    def __init__(self, portal: Portal, snapshot: AsyncSnapshot) -> None:
        self._portal = portal
        self._snapshot = snapshot

    @property
    def at(self) -> int:
        return self._snapshot.at

    def table(self, ns: str, name: str) -> SnapshotTable:
        return SnapshotTable(self._portal, self._snapshot.table(ns, name))

    def multi_get(self, keys: Sequence[tuple[str, str, Bytes]]) -> list[Record | None]:
        """The records of many `(namespace, table, key)`."""
        return self._portal.call(self._snapshot.multi_get(keys))


class SnapshotTable:
    """One table of a snapshot."""

    __slots__ = ("_call", "_table")

    def __init__(self, portal: Portal, table: AsyncSnapshotTable) -> None:
        self._call = portal.call
        self._table = table

    def get(self, key: Bytes) -> Record | None:
        return self._call(self._table.get(key))

    def multi_get(self, keys: Sequence[Bytes]) -> list[Record | None]:
        return self._call(self._table.multi_get(keys))

    def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        limit: int = 0,
        cursor: str | None = None,
    ) -> Page:
        return self._call(
            self._table.scan(
                prefix=prefix, start=start, end=end, reverse=reverse, limit=limit, cursor=cursor
            )
        )


class TransactionTable:
    """One table as a transaction sees and changes it."""

    __slots__ = ("_call", "_table")

    def __init__(self, portal: Portal, table: AsyncTransactionTable) -> None:
        self._call = portal.call
        self._table = table

    def get(self, key: Bytes) -> Record | None:
        return self._call(self._table.get(key))

    def put(self, key: Bytes, value: Bytes) -> None:
        self._call(self._table.put(key, value))

    def delete(self, key: Bytes) -> None:
        self._call(self._table.delete(key))

    def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        limit: int = 0,
        cursor: str | None = None,
    ) -> Page:
        return self._call(
            self._table.scan(
                prefix=prefix, start=start, end=end, reverse=reverse, limit=limit, cursor=cursor
            )
        )


class Transaction:
    """An open transaction; belongs to one thread. `with` commits at its end and aborts
    when the block raises.
    """

    def __init__(self, portal: Portal, transaction: AsyncTransaction) -> None:
        self._portal = portal
        self._transaction = transaction

    @property
    def id(self) -> int:
        """The transaction id: `db.status(id)` answers for it whatever happened."""
        return self._transaction.id

    @property
    def start_ts(self) -> int:
        return self._transaction.start_ts

    @property
    def version(self) -> int | None:
        """The commit version, once committed."""
        return self._transaction.version

    def table(self, ns: str, name: str) -> TransactionTable:
        return TransactionTable(self._portal, self._transaction.table(ns, name))

    def commit(self) -> int:
        """Make all writes visible at once; the commit version."""
        return self._portal.call(self._transaction.commit())

    def abort(self) -> None:
        """Forget all writes."""
        self._portal.call(self._transaction.abort())

    def heartbeat(self) -> None:
        """Keep a long transaction alive."""
        self._portal.call(self._transaction.heartbeat())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.call(self._transaction.__aexit__(kind, error, trace))


class Database:
    """A whole Kvorum database, for any number of threads. Close it, or use it in `with`."""

    def __init__(self, portal: Portal, database: AsyncDatabase, rng: Rng) -> None:
        self._portal = portal
        self._call = portal.call
        self._db = database
        self._rng = rng

    # ------------------------------------------------------------------------------------ data

    def table(self, ns: str, name: str) -> Table:
        """A table by name. Nothing is asked yet: an unknown name is told by the first operation."""
        return Table(self._portal, self._db.table(ns, name))

    def batch(self, ops: Sequence[BatchOp]) -> int:
        """Apply `Put`s and `Delete`s all at once or not at all, in any tables; their
        common version.
        """
        return self._call(self._db.batch(ops))

    def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        """Apply each op on its own: its version, or the error that refused it, in order."""
        return self._call(self._db.multi_write(ops))

    def multi_get(
        self, keys: Sequence[tuple[str, str, Bytes]], *, at: int | None = None
    ) -> list[Record | None]:
        """The records of many `(namespace, table, key)` at one snapshot."""
        return self._call(self._db.multi_get(keys, at=at))

    def snapshot(self, at: int | None = None) -> Snapshot:
        """A view of everything as it is now, or was at the timestamp `at`."""
        return Snapshot(self._portal, self._call(self._db.snapshot(at)))

    def timestamp(self) -> int:
        """A fresh timestamp of the oracle."""
        return self._call(self._db.timestamp())

    # ---------------------------------------------------------------------------- transactions

    def transaction(
        self, *, ttl_ms: int = TXN_TTL_MS_DEFAULT, isolation: str = "snapshot"
    ) -> Transaction:
        """Begin a transaction."""

        async def begin() -> AsyncTransaction:
            return await self._db.transaction(ttl_ms=ttl_ms, isolation=isolation)

        return Transaction(self._portal, self._call(begin()))

    def run(
        self,
        fn: Callable[[Transaction], T],
        *,
        attempts: int = 0,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
    ) -> T:
        """Run `fn` in a transaction and commit it; on a conflict run it again on a new snapshot.

        `fn` runs in the calling thread, several times if need be: effects outside belong behind it.
        """
        retries = Retries(self._rng, attempts)
        while True:
            try:
                t = self.transaction(ttl_ms=ttl_ms)
                try:
                    result = fn(t)
                except BaseException as e:
                    t.__exit__(type(e), e, None)
                    raise
                self._commit(t)
            except KvorumError as e:
                self._call(asyncio.sleep(retries.pause_s(e)))
            else:
                return result

    def _commit(self, t: Transaction) -> None:
        try:
            t.commit()
        except UnknownOutcome as e:
            committed_version(t.id, self.status(t.id), e)

    def status(self, txn: int) -> TxnState:
        """What became of a transaction. Always answers."""
        return self._call(self._db.status(txn))

    # ------------------------------------------------------------------- namespaces and tables

    def namespaces(self) -> list[str]:
        return self._call(self._db.namespaces())

    def create_namespace(self, name: str) -> None:
        self._call(self._db.create_namespace(name))

    def drop_namespace(self, name: str) -> None:
        """Remove an empty namespace. Raises Refused while it has tables."""
        self._call(self._db.drop_namespace(name))

    def tables(self, ns: str) -> list[TableInfo]:
        return self._call(self._db.tables(ns))

    def create_table(
        self,
        ns: str,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] = (),
        split_keys: Sequence[Bytes] = (),
        columns: Sequence[Column] = (),
        primary_key: Sequence[str] = (),
    ) -> TableInfo:
        """Make a table; `split_keys` cut it into partitions from the start. Raises
        AlreadyExists.
        """
        return self._call(
            self._db.create_table(
                ns,
                name,
                replicas=replicas,
                tags=tags,
                split_keys=split_keys,
                columns=columns,
                primary_key=primary_key,
            )
        )

    def drop_table(self, ns: str, name: str) -> None:
        """Remove a table and all its records."""
        self._call(self._db.drop_table(ns, name))

    # ------------------------------------------------------------------------------ procedures

    def submit(self, name: str | type, args: Any = None, *, nonce: str | None = None) -> int:
        """Start a procedure, by name or by its class; its id. The same nonce gives the same id."""
        return self._call(self._db.submit(name, args, nonce=nonce))

    def procedure(self, procedure: int, *, wait_ms: int = 0) -> ProcedureInfo:
        """What a procedure is doing; waits up to `wait_ms` for its end."""
        return self._call(self._db.procedure(procedure, wait_ms=wait_ms))

    def wait(self, procedure: int, *, timeout_ms: int | None = None) -> Any:
        """The result of a procedure, once it has one. Raises the error that ended it."""
        return self._call(self._db.wait(procedure, timeout_ms=timeout_ms))

    def acknowledge(self, procedure: int) -> None:
        """Tell that the result was fetched: the procedure may be forgotten."""
        self._call(self._db.acknowledge(procedure))

    def procedures(
        self, *, state: str | None = None, owner: str | None = None, name: str | None = None
    ) -> list[ProcedureInfo]:
        return self._call(self._db.procedures(state=state, owner=owner, name=name))

    def abort_procedure(self, procedure: int, reason: str, *, dry_run: bool = False) -> None:
        """Ask a procedure to stop: it rolls back what it did. Raises Refused when it cannot any
        more. `dry_run`: only raise what the abort would raise now.
        """
        self._call(self._db.abort_procedure(procedure, reason, dry_run=dry_run))

    # --------------------------------------------------------------------------------- cluster

    def nodes(self) -> list[dict[str, Any]]:
        return self._call(self._db.nodes())

    def partitions(self) -> list[dict[str, Any]]:
        return self._call(self._db.partitions())

    def close(self) -> None:
        """Close the connection, or stop the embedded node. A second time it does nothing."""
        if not self._portal.usable:
            return  # closed already, or inherited over fork(): nothing of it is ours
        try:
            self._call(self._db.close())
        finally:
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
