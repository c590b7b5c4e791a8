"""Tables, snapshots and transactions without `await`: those of kvorum.sdk.tables, through a
portal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from kv.base.errors import KeyLocked
from kv.base.limits import SCAN_ATTEMPTS_MAX
from kvorum.api.model import Bytes, Item, Page, Record
from kvorum.sdk.portal import Portal
from kvorum.sdk.snapshots import AsyncSnapshot, AsyncSnapshotTable
from kvorum.sdk.tables import AsyncTable, AsyncTransaction, AsyncTransactionTable
from txn.trace import CommitTrace


def _rows(
    scan: Callable[..., Page],
    prefix: Bytes | None,
    start: Bytes | None,
    end: Bytes | None,
    *,
    reverse: bool,
) -> Iterator[Item]:
    """All records of a scan, page by page; its cursors keep it at one snapshot."""
    cursor, attempts = None, 0
    while True:
        try:
            page = scan(prefix=prefix, start=start, end=end, reverse=reverse, cursor=cursor)
        except KeyLocked:  # dead transactions' intents: every time less of them is there
            attempts += 1
            if attempts == SCAN_ATTEMPTS_MAX:
                raise
            continue
        yield from page.items
        cursor, attempts = page.cursor, 0
        if cursor is None:
            return


class Table:
    """The records of one table; see `kvorum.sdk.tables.AsyncTable`, whose methods these are."""

    __slots__ = ("_call", "_table")

    def __init__(self, portal: Portal, table: AsyncTable) -> None:
        self._call = portal.call
        self._table = table

    def __repr__(self) -> str:
        return repr(self._table)

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
        return _rows(partial(self.scan, at=at), prefix, start, end, reverse=reverse)

    def multi_get(self, keys: Sequence[Bytes], *, at: int | None = None) -> list[Record | None]:
        """The records of many keys at one snapshot."""
        return self._call(self._table.multi_get(keys, at=at))


class Snapshot:
    """The database as it was at `at`. Close it, or use it in `with`."""

    __slots__ = ("_portal", "_snapshot")

    def __init__(self, portal: Portal, snapshot: AsyncSnapshot) -> None:
        self._portal = portal
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"<kvorum snapshot at {self.at}>"

    @property
    def id(self) -> int:
        """What lists and `kvorum snapshot release` call it."""
        return self._snapshot.id

    @property
    def at(self) -> int:
        return self._snapshot.at

    def table(self, ns: str, name: str) -> SnapshotTable:
        return SnapshotTable(self._portal, self._snapshot.table(ns, name))

    def multi_get(self, keys: Sequence[tuple[str, str, Bytes]]) -> list[Record | None]:
        """The records of many `(namespace, table, key)`."""
        return self._portal.call(self._snapshot.multi_get(keys))

    def close(self) -> None:
        """Let go of it: what only it needed may be collected. A second time it does nothing."""
        self._portal.call(self._snapshot.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.call(self._snapshot.__aexit__(kind, error, trace))


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

    def rows(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
    ) -> Iterator[Item]:
        """All records of the range."""
        return _rows(self.scan, prefix, start, end, reverse=reverse)


class TransactionTable:
    """One table as a transaction sees and changes it."""

    __slots__ = ("_call", "_table")

    def __init__(self, portal: Portal, table: AsyncTransactionTable) -> None:
        self._call = portal.call
        self._table = table

    def get(self, key: Bytes) -> Record | None:
        return self._call(self._table.get(key))

    def multi_get(self, keys: Sequence[Bytes]) -> list[Record | None]:
        return self._call(self._table.multi_get(keys))

    def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Write a record with the commit, which checks the condition. See AsyncTransactionTable."""
        self._call(
            self._table.put(key, value, if_absent=if_absent, if_version=if_version, ttl_ms=ttl_ms)
        )

    def delete(self, key: Bytes, *, if_version: int | None = None) -> None:
        """Remove a record with the commit, also one that is not there."""
        self._call(self._table.delete(key, if_version=if_version))

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

    def __repr__(self) -> str:
        return f"<kvorum transaction {self.id}>"

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

    def trace(self) -> CommitTrace | None:
        """What its commit cost: messages, round trips and syncs (`print` it). None before the
        commit, over HTTP, and of one that was spilled.
        """
        return self._transaction.trace()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.call(self._transaction.__aexit__(kind, error, trace))
