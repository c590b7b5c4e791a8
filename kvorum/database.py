"""`AsyncDatabase`: namespaces and tables by name, user keys, transactions, procedures. The same
over every backend.

    db = await kvorum.aconnect("kvorum://host:7600")
    users = db.table("app", "users")
    version = await users.put("ada", b"1815", if_absent=True)
    async with db.transaction() as t:
        await t.table("app", "users").delete("ada")

Single operations are atomic and linearizable. A transaction reads one snapshot and commits all or
nothing (snapshot isolation: write skew is possible). Everything raises the errors of `kvorum`;
`error.disposition` says what to do. An object may be shared by the tasks of one loop; a transaction
belongs to one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kv.base import timestamps
from kv.base.errors import InvalidArgument, KvorumError, UnknownOutcome
from kv.base.limits import TXN_TTL_MS_DEFAULT, WAIT_MS_MAX
from kv.base.ports import Rng
from kvorum.backend import Backend, Session
from kvorum.model import (
    BatchOp,
    Bytes,
    Column,
    Delete,
    Item,
    Page,
    ProcedureInfo,
    Put,
    Record,
    ScanSpec,
    TableInfo,
    TableKey,
    TableSpec,
    TxnState,
    as_bytes,
    checked_ttl,
    condition,
    user_key,
    user_value,
)
from kvorum.outcome import Retries, committed_version, result_of
from procedures.engine.procedure import procedure_name

T = TypeVar("T")


def scan_spec(
    prefix: Bytes | None,
    start: Bytes | None,
    end: Bytes | None,
    *,
    reverse: bool,
    limit: int,
    cursor: str | None = None,
    at: int | None = None,
) -> ScanSpec:
    """The arguments of a scan, checked."""
    return ScanSpec(
        prefix=None if prefix is None else as_bytes(prefix, "prefix"),
        start=None if start is None else as_bytes(start, "start"),
        end=None if end is None else as_bytes(end, "end"),
        reverse=reverse,
        limit=limit,
        cursor=cursor,
        at=_at(at),
    )


def _at(at: int | None) -> int:
    """A snapshot timestamp; None = the newest. Raises InvalidArgument."""
    if at is None:
        return 0
    if type(at) is not int or not 0 < at <= timestamps.MAX:
        raise InvalidArgument(f"at must be a timestamp or a version, got {at!r}")
    return at


class AsyncTable:
    """The records of one table."""

    __slots__ = ("_backend", "name", "ns")

    def __init__(self, backend: Backend, ns: str, name: str) -> None:
        self._backend = backend
        self.ns = ns
        self.name = name

    async def get(self, key: Bytes, *, at: int | None = None) -> Record | None:
        """The record, or None if there is none. `at` reads the snapshot of that timestamp."""
        return await self._backend.get(self.ns, self.name, user_key(key), _at(at))

    async def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl_ms: int | None = None,
    ) -> int:
        """Write a record; its version. Raises ConditionFailed with `details["version"]` of what is
        there.
        """
        return await self._backend.put(
            self.ns,
            self.name,
            user_key(key),
            user_value(value),
            condition(if_absent, if_version),
            checked_ttl(ttl_ms),
        )

    async def delete(self, key: Bytes, *, if_version: int | None = None) -> int:
        """Remove a record, also one that is not there; the version of the removal."""
        cond = condition(False, if_version)
        return await self._backend.delete(self.ns, self.name, user_key(key), cond)

    async def scan(
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
        """One page in key order, `[start, end)`; the next one with `cursor=page.cursor`, at the
        same snapshot.
        """
        spec = scan_spec(prefix, start, end, reverse=reverse, limit=limit, cursor=cursor, at=at)
        return await self._backend.scan(self.ns, self.name, spec)

    async def rows(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        at: int | None = None,
    ) -> AsyncIterator[Item]:
        """All records of the range, page by page, at one snapshot."""
        cursor = None
        while True:
            page = await self.scan(
                prefix=prefix, start=start, end=end, reverse=reverse, cursor=cursor, at=at
            )
            for item in page.items:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def multi_get(
        self, keys: Sequence[Bytes], *, at: int | None = None
    ) -> list[Record | None]:
        """The records of many keys at one snapshot, in the order of `keys`."""
        wanted = [TableKey(self.ns, self.name, user_key(k)) for k in keys]
        return (await self._backend.multi_get(wanted, _at(at)))[0]


class AsyncSnapshot:
    """The database as it was at `at`: every read through it sees the same state."""

    __slots__ = ("_backend", "at")

    def __init__(self, backend: Backend, at: int) -> None:
        self._backend = backend
        self.at = at

    def table(self, ns: str, name: str) -> AsyncSnapshotTable:
        return AsyncSnapshotTable(AsyncTable(self._backend, ns, name), self.at)

    async def multi_get(self, keys: Sequence[tuple[str, str, Bytes]]) -> list[Record | None]:
        """The records of many `(namespace, table, key)`."""
        wanted = [TableKey(ns, table, user_key(k)) for ns, table, k in keys]
        return (await self._backend.multi_get(wanted, self.at))[0]


class AsyncSnapshotTable:
    """One table of a snapshot."""

    __slots__ = ("_at", "_table")

    def __init__(self, table: AsyncTable, at: int) -> None:
        self._table = table
        self._at = at

    async def get(self, key: Bytes) -> Record | None:
        return await self._table.get(key, at=self._at)

    async def multi_get(self, keys: Sequence[Bytes]) -> list[Record | None]:
        return await self._table.multi_get(keys, at=self._at)

    async def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        limit: int = 0,
        cursor: str | None = None,
    ) -> Page:
        return await self._table.scan(
            prefix=prefix,
            start=start,
            end=end,
            reverse=reverse,
            limit=limit,
            cursor=cursor,
            at=self._at,
        )

    def rows(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[Item]:
        return self._table.rows(prefix=prefix, start=start, end=end, reverse=reverse, at=self._at)


class AsyncTransactionTable:
    """One table as a transaction sees and changes it."""

    __slots__ = ("_session", "name", "ns")

    def __init__(self, session: Session, ns: str, name: str) -> None:
        self._session = session
        self.ns = ns
        self.name = name

    async def get(self, key: Bytes) -> Record | None:
        """The record at the transaction's snapshot, or its own write (version 0 until
        it commits).
        """
        return await self._session.get(self.ns, self.name, user_key(key))

    async def put(self, key: Bytes, value: Bytes) -> None:
        await self._session.put(self.ns, self.name, user_key(key), user_value(value))

    async def delete(self, key: Bytes) -> None:
        await self._session.delete(self.ns, self.name, user_key(key))

    async def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        limit: int = 0,
        cursor: str | None = None,
    ) -> Page:
        spec = scan_spec(prefix, start, end, reverse=reverse, limit=limit, cursor=cursor)
        return await self._session.scan(self.ns, self.name, spec)


class AsyncTransaction:
    """An open transaction. `async with` commits it at the end of the block and aborts it when the
    block raises.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.version: int | None = None
        """The commit version, once committed."""
        self._ended = False

    @property
    def id(self) -> int:
        """The transaction id: `db.status(id)` answers for it whatever happened."""
        return self._session.id

    @property
    def start_ts(self) -> int:
        return self._session.start_ts

    def table(self, ns: str, name: str) -> AsyncTransactionTable:
        return AsyncTransactionTable(self._session, ns, name)

    async def commit(self) -> int:
        """Make all writes visible at once; the commit version."""
        self._ended = True
        self.version = await self._session.commit()
        return self.version

    async def abort(self) -> None:
        """Forget all writes. A second time, or after a commit, it does nothing."""
        if not self._ended:
            self._ended = True
            await self._session.abort()

    async def heartbeat(self) -> None:
        """Keep a long transaction alive: one that is silent for its ttl_ms is rolled back by
        whoever meets it.
        """
        await self._session.heartbeat()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.abort()
        except KvorumError as e:  # what went wrong in the block matters more
            error.add_note(f"(the transaction could not be aborted, it will expire: {e})")


class _Beginning:
    """What `db.transaction()` returns: to be awaited, or entered with `async with`."""

    __slots__ = ("_begin", "_transaction")

    def __init__(self, begin: Callable[[], Awaitable[AsyncTransaction]]) -> None:
        self._begin = begin
        self._transaction: AsyncTransaction | None = None

    def __await__(self) -> Generator[Any, Any, AsyncTransaction]:
        return self._begin().__await__()

    async def __aenter__(self) -> AsyncTransaction:
        self._transaction = await self._begin()
        return self._transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._transaction is not None:
            await self._transaction.__aexit__(kind, error, trace)


class AsyncDatabase:
    """A whole Kvorum database. Close it, or use it in `async with`."""

    def __init__(self, backend: Backend, rng: Rng) -> None:
        self._backend = backend
        self._rng = rng

    @property
    def backend(self) -> Backend:
        return self._backend

    # ------------------------------------------------------------------------------------ data

    def table(self, ns: str, name: str) -> AsyncTable:
        """A table by name. Nothing is asked yet: an unknown name is told by the first operation."""
        return AsyncTable(self._backend, ns, name)

    async def batch(self, ops: Sequence[BatchOp]) -> int:
        """Apply `Put`s and `Delete`s all at once or not at all, in any tables; their common
        version.
        """
        return await self._backend.batch(checked_ops(ops))

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        """Apply each op on its own: its version, or the error that refused it, in order."""
        return await self._backend.multi_write(checked_ops(ops))

    async def multi_get(
        self, keys: Sequence[tuple[str, str, Bytes]], *, at: int | None = None
    ) -> list[Record | None]:
        """The records of many `(namespace, table, key)` at one snapshot."""
        wanted = [TableKey(ns, table, user_key(k)) for ns, table, k in keys]
        return (await self._backend.multi_get(wanted, _at(at)))[0]

    async def snapshot(self, at: int | None = None) -> AsyncSnapshot:
        """A view of everything as it is now, or was at the timestamp `at` (which is then not
        checked yet).
        """
        return AsyncSnapshot(self._backend, _at(at) or await self._backend.timestamps(1))

    async def timestamp(self) -> int:
        """A fresh timestamp of the oracle: above every version acknowledged before."""
        return await self._backend.timestamps(1)

    # ---------------------------------------------------------------------------- transactions

    def transaction(
        self, *, ttl_ms: int = TXN_TTL_MS_DEFAULT, isolation: str = "snapshot"
    ) -> _Beginning:
        """Begin a transaction: `async with db.transaction() as t`, or `t = await
        db.transaction()`.
        """

        async def begin() -> AsyncTransaction:
            return AsyncTransaction(await self._backend.begin(ttl_ms=ttl_ms, isolation=isolation))

        return _Beginning(begin)

    async def run(
        self,
        fn: Callable[[AsyncTransaction], Awaitable[T]],
        *,
        attempts: int = 0,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
    ) -> T:
        """Run `fn` in a transaction and commit it; on a conflict run it again on a new snapshot,
        after a pause.

        `fn` may run several times: effects outside the transaction belong behind it. `attempts` 0 =
        the default.
        """
        retries = Retries(self._rng, attempts)
        while True:
            try:
                t = await self.transaction(ttl_ms=ttl_ms)
                try:
                    result = await fn(t)
                except BaseException as e:
                    await t.__aexit__(type(e), e, None)
                    raise
                await self._commit(t)
            except KvorumError as e:
                await asyncio.sleep(retries.pause_s(e))
            else:
                return result

    async def _commit(self, t: AsyncTransaction) -> None:
        """Commit, and ask for the outcome when the answer was lost. Raises TxnAborted when it is
        certain.
        """
        try:
            await t.commit()
        except UnknownOutcome as e:
            state = await self.status(t.id)
            t.version = committed_version(t.id, state, e)

    async def status(self, txn: int) -> TxnState:
        """What became of a transaction. Always answers, also when its participants were
        restarted.
        """
        return await self._backend.status(txn)

    # ------------------------------------------------------------------- namespaces and tables

    async def namespaces(self) -> list[str]:
        return await self._backend.namespaces()

    async def create_namespace(self, name: str) -> None:
        await self._backend.create_namespace(name)

    async def drop_namespace(self, name: str) -> None:
        """Remove an empty namespace. Raises Refused while it has tables."""
        await self._backend.drop_namespace(name)

    async def tables(self, ns: str) -> list[TableInfo]:
        return await self._backend.tables(ns)

    async def create_table(
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
        spec = TableSpec(
            replicas=replicas,
            tags=tuple(tags),
            split_keys=tuple(as_bytes(k, "split key") for k in split_keys),
            columns=tuple(columns),
            primary_key=tuple(primary_key),
        )
        return await self._backend.create_table(ns, name, spec)

    async def drop_table(self, ns: str, name: str) -> None:
        """Remove a table and all its records."""
        await self._backend.drop_table(ns, name)

    # ------------------------------------------------------------------------------ procedures

    async def submit(self, name: str | type, args: Any = None, *, nonce: str | None = None) -> int:
        """Start a procedure, by name or by its class; its id. The same nonce gives the same id, for
        ever.
        """
        return await self._backend.submit(procedure_name(name), args, nonce)

    async def procedure(self, procedure: int, *, wait_ms: int = 0) -> ProcedureInfo:
        """What a procedure is doing; waits up to `wait_ms` for its end."""
        return await self._backend.procedure(procedure, wait_ms)

    async def wait(self, procedure: int, *, timeout_ms: int | None = None) -> Any:
        """The result of a procedure, once it has one. Raises the error that ended it,
        DeadlineExceeded in time.
        """
        left_ms = timeout_ms
        while True:
            wait_ms = WAIT_MS_MAX if left_ms is None else min(left_ms, WAIT_MS_MAX)
            info = await self._backend.procedure(procedure, wait_ms)
            left_ms = None if left_ms is None else left_ms - wait_ms
            if info.finished or left_ms == 0:
                return result_of(info, timeout_ms or 0)

    async def acknowledge(self, procedure: int) -> None:
        """Tell that the result was fetched: the procedure may be forgotten."""
        await self._backend.acknowledge(procedure)

    async def procedures(
        self, *, state: str | None = None, owner: str | None = None, name: str | None = None
    ) -> list[ProcedureInfo]:
        return await self._backend.procedures(state=state, owner=owner, name=name)

    async def abort_procedure(self, procedure: int, reason: str) -> None:
        """Ask a procedure to stop: it rolls back what it did. Raises Refused when it cannot any
        more.
        """
        await self._backend.abort_procedure(procedure, reason)

    # --------------------------------------------------------------------------------- cluster

    async def nodes(self) -> list[dict[str, Any]]:
        return await self._backend.nodes()

    async def partitions(self) -> list[dict[str, Any]]:
        return await self._backend.partitions()

    async def close(self) -> None:
        await self._backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def checked_ops(ops: Sequence[BatchOp]) -> list[BatchOp]:
    """The ops of a batch with keys and values as bytes within their limits."""
    checked: list[BatchOp] = []
    for op in ops:
        match op:
            case Put():
                condition(op.if_absent, op.if_version)
                ttl = checked_ttl(op.ttl_ms)
                key, value = user_key(op.key), user_value(op.value)
                checked.append(Put(op.ns, op.table, key, value, op.if_absent, op.if_version, ttl))
            case Delete():
                condition(False, op.if_version)
                checked.append(Delete(op.ns, op.table, user_key(op.key), op.if_version))
            case _:
                raise InvalidArgument(
                    f"a batch holds kvorum.Put and kvorum.Delete, not {type(op).__name__}"
                )
    return checked
