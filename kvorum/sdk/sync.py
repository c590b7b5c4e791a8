"""The synchronous facade: `kvorum.sdk.database.AsyncDatabase` without `await`, for any number of
threads, each call through a portal (portal.py) to the loop.

Ctrl-C while a call waits cancels that call and raises KeyboardInterrupt in the caller; a write that
was under way then has an unknown outcome, as always when nobody waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.limits import LEASE_TTL_MS_DEFAULT, LOCK_TTL_MS_DEFAULT, TXN_TTL_MS_DEFAULT
from kv.base.ports import Rng
from kvorum.api.model import (
    BatchOp,
    Bytes,
    Record,
    SnapshotInfo,
    TxnState,
)
from kvorum.api.outcome import Retries, committed_version
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.defining import Defining
from kvorum.sdk.held_locks import AsyncLock
from kvorum.sdk.operating import Operating
from kvorum.sdk.portal import Portal
from kvorum.sdk.running import Running
from kvorum.sdk.snapshots import AsyncSnapshot
from kvorum.sdk.sync_locks import Lock
from kvorum.sdk.sync_tables import Snapshot, Table, Transaction
from kvorum.sdk.sync_watch import Watch
from kvorum.sdk.tables import AsyncTransaction

T = TypeVar("T")


class Database(Defining, Running, Operating):
    """A whole Kvorum database, for any number of threads. Close it, or use it in `with`."""

    def __init__(self, portal: Portal, database: AsyncDatabase, rng: Rng) -> None:
        self._portal = portal
        self._call = portal.call
        self._db = database
        self._rng = rng

    def __repr__(self) -> str:
        return repr(self._db)

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

    def snapshot(
        self, at: int | None = None, *, owner: str = "", ttl_ms: int = LEASE_TTL_MS_DEFAULT
    ) -> Snapshot:
        """Everything as it is now, or was at the timestamp `at`, held until it is closed: use it in
        `with`. See `kvorum.sdk.database.AsyncDatabase.snapshot`.
        """

        async def open() -> AsyncSnapshot:
            return await self._db.snapshot(at, owner=owner, ttl_ms=ttl_ms)

        return Snapshot(self._portal, self._call(open()))

    def lock(
        self,
        resource: str,
        *,
        exclusive: bool = True,
        ttl_ms: int = LOCK_TTL_MS_DEFAULT,
        wait_ms: int | None = None,
        owner: str = "",
    ) -> Lock:
        """Hold a resource until it is released: use it in `with`. See
        `kvorum.sdk.database.AsyncDatabase.lock`.
        """

        async def take() -> AsyncLock:
            return await self._db.lock(
                resource, exclusive=exclusive, ttl_ms=ttl_ms, wait_ms=wait_ms, owner=owner
            )

        return Lock(self._portal, self._call(take()))

    def snapshots(self) -> list[SnapshotInfo]:
        """Who holds which snapshots, oldest first."""
        return self._call(self._db.snapshots())

    def release_snapshot(self, id: int) -> bool:
        """End a snapshot, whoever holds it; whether it was held."""
        return self._call(self._db.release_snapshot(id))

    def watch(
        self,
        ns: str,
        table: str,
        *,
        from_version: int | None = None,
        prefix: Bytes | None = None,
        heartbeats: bool = False,
    ) -> Watch:
        """The committed transactions that change a table, whole and in commit order: `for event
        in db.watch(…)`, or `with` to end it. See AsyncDatabase.watch.
        """
        watch = self._db.watch(
            ns, table, from_version=from_version, prefix=prefix, heartbeats=heartbeats
        )
        return Watch(self._portal, watch)

    def timestamp(self) -> int:
        """A fresh timestamp of the oracle."""
        return self._call(self._db.timestamp())

    def session_token(self) -> str:
        """Hand it to another process, so that it sees all that was acknowledged until now."""
        return self._call(self._db.session_token())

    def resume_session(self, token: str | int) -> None:
        """Make sure that reads are at or above a token. Raises InvalidArgument."""
        self._call(self._db.resume_session(token))

    # ---------------------------------------------------------------------------- transactions

    def transaction(
        self,
        *,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        owner: str = "",
        priority: str = "normal",
        lock_wait_ms: int | None = None,
    ) -> Transaction:
        """Begin a transaction; the arguments are those of `AsyncDatabase.transaction`."""

        async def begin() -> AsyncTransaction:
            return await self._db.transaction(
                ttl_ms=ttl_ms,
                isolation=isolation,
                owner=owner,
                priority=priority,
                lock_wait_ms=lock_wait_ms,
            )

        return Transaction(self._portal, self._call(begin()))

    def run(
        self,
        fn: Callable[[Transaction], T],
        *,
        attempts: int = 0,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        owner: str = "",
        priority: str = "normal",
        lock_wait_ms: int | None = None,
    ) -> T:
        """Run `fn` in a transaction and commit it; on a conflict run it again on a new snapshot.

        `fn` runs in the calling thread, several times if need be: effects outside belong behind it.
        """
        retries = Retries(self._rng, attempts)
        while True:
            try:
                t = self.transaction(
                    ttl_ms=ttl_ms,
                    isolation=isolation,
                    owner=owner,
                    priority=priority,
                    lock_wait_ms=lock_wait_ms,
                )
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
            try:
                state = self.status(t.id)
            except KvorumError:
                raise e from None  # nobody can say now: it stays unknown
            committed_version(t.id, state, e)

    def status(self, txn: int | str) -> TxnState:
        """What became of a transaction. Always answers."""
        return self._call(self._db.status(txn))

    def abort_transaction(self, txn: int | str) -> None:
        """Roll a transaction back, whoever began it. See AsyncDatabase.abort_transaction."""
        self._call(self._db.abort_transaction(txn))

    # --------------------------------------------------------------------------------- cluster

    def cluster(self) -> dict[str, Any]:
        """Its id, master, size and settings."""
        return self._call(self._db.cluster())

    def set_settings(self, values: dict[str, int]) -> list[dict[str, Any]]:
        """Change settings of the running cluster. See AsyncDatabase.set_settings."""
        return self._call(self._db.set_settings(values))

    def nodes(self) -> list[dict[str, Any]]:
        return self._call(self._db.nodes())

    def partitions(self) -> list[dict[str, Any]]:
        return self._call(self._db.partitions())

    def split(self, partition: int, *, at: Bytes | None = None) -> dict[str, Any]:
        return self._call(self._db.split(partition, at=at))

    def merge(self, left: int, right: int) -> dict[str, Any]:
        return self._call(self._db.merge(left, right))

    def locks(self, *, every: bool = False) -> dict[str, Any]:
        """See AsyncDatabase.locks."""
        return self._call(self._db.locks(every=every))

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
