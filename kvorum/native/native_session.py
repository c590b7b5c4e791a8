"""An open transaction of this process, over names and user keys; and what this process knows of its
own transactions beyond their records.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kv.base import ops
from kv.base.errors import KeyLocked, KvorumError, Moved, Refused, RestartTxn, Unavailable
from kv.base.strengths import STRENGTHS
from kvorum.api import cursor
from kvorum.api.cursor import storage_range, table_id, user_page
from kvorum.api.model import Page, Record, ScanSpec, TableKey
from kvorum.api.names import PREFIX_BYTES, Names
from txn.commit.trace import CommitTrace
from txn.transaction import Transaction, TxnState

_ABORTED_REMEMBERED: Final = 10_000


class OwnTransactions:
    """Of this process: those that are open, and those that it aborted before they wrote anything
    and that are not recorded. The store does not know either.
    """

    def __init__(self) -> None:
        self._aborted: OrderedDict[int, None] = OrderedDict()
        self._open: weakref.WeakValueDictionary[int, Transaction] = weakref.WeakValueDictionary()

    def opened(self, transaction: Transaction) -> None:
        self._open[transaction.id] = transaction

    def aborted(self, txn: int) -> None:
        self._aborted[txn] = None
        if len(self._aborted) > _ABORTED_REMEMBERED:
            self._aborted.popitem(last=False)

    def was_aborted(self, txn: int) -> bool:
        return txn in self._aborted

    def may_commit(self, txn: int) -> bool:
        """Whether it is open here, or its commit is under way."""
        found = self._open.get(txn)
        return found is not None and found.state in (TxnState.OPEN, TxnState.COMMITTING)

    async def end(self, txn: int, why: str) -> bool:
        """Abort it if it is open here; whether it was."""
        found = self._open.get(txn)
        if found is None or found.state is not TxnState.OPEN:
            return False
        await found.abort(why)
        self.aborted(txn)
        return True


class NativeSession:
    """An open transaction of this process."""

    def __init__(self, transaction: Transaction, names: Names, own: OwnTransactions) -> None:
        self._transaction = transaction
        self._names = names
        self._own = own
        self._written: dict[tuple[str, str], bytes] = {}  # the tables, with their key prefixes
        own.opened(transaction)

    @property
    def id(self) -> int:
        return self._transaction.id

    @property
    def start_ts(self) -> int:
        return self._transaction.start_ts

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        prefix = await self._names.prefix(ns, table)
        try:
            await self._look_anew()
            value, version = await self._transaction.get(prefix + key)
        except KvorumError as e:
            await self._check_made_anew(e, {(ns, table): prefix})
            raise self._names.in_user_terms(e) from None
        return None if value is None else Record(value, version)

    async def multi_get(self, keys: Sequence[TableKey]) -> list[Record | None]:
        known, prefix = self._names.known, self._names.prefix
        wanted = [(known(ns, table) or await prefix(ns, table)) + key for ns, table, key in keys]
        try:
            await self._look_anew()
            found = await self._transaction.multi_get(wanted)
        except KvorumError as e:
            sent = zip(keys, wanted, strict=True)
            await self._check_made_anew(e, {(k.ns, k.table): s[:PREFIX_BYTES] for k, s in sent})
            raise self._names.in_user_terms(e) from None
        return [None if record is None else Record(*record) for record in found]

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        prefix = await self._names.prefix(ns, table)
        span = cursor.span(table_id(prefix), replace(spec, at=self.start_ts))
        low, high = storage_range(prefix, span)
        if high <= low:
            return Page([], None, self.start_ts)
        try:
            await self._look_anew()
            page = await self._transaction.scan(
                low, high, limit=cursor.page_rows(spec.limit), reverse=span.reverse
            )
        except KvorumError as e:
            await self._check_made_anew(e, {(ns, table): prefix})
            raise self._names.in_user_terms(e) from None
        return user_page(page, span)

    async def put(
        self,
        ns: str,
        table: str,
        key: bytes,
        value: bytes,
        cond: int | None = None,
        ttl_ms: int = 0,
    ) -> None:
        names = self._names
        prefix = names.known_writable(ns, table) or await names.writable(ns, table)
        self._write(ops.put(prefix + key, value, cond, ttl_ms))
        self._written[ns, table] = prefix

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None = None) -> None:
        names = self._names
        prefix = names.known_writable(ns, table) or await names.writable(ns, table)
        self._write(ops.delete(prefix + key, cond))
        self._written[ns, table] = prefix

    async def lock(
        self, ns: str, table: str, key: bytes, wait: str = "wait", strength: str = "update"
    ) -> Record | None:
        prefix = await self._names.prefix(ns, table)
        try:
            value, version = await self._transaction.lock_key(
                prefix + key,
                wait_ms=None if wait == "wait" else 0,
                strength=STRENGTHS[strength],
            )
        except KvorumError as e:
            if isinstance(e, KeyLocked) and wait == "skip":
                return None
            await self._check_made_anew(e, {(ns, table): prefix})
            raise self._names.in_user_terms(e) from None
        return None if value is None else Record(value, version)

    async def _look_anew(self) -> None:
        """At read_committed each read sees what is committed by then."""
        if self._transaction.renews:
            await self._transaction.renew()

    def _write(self, op: ops.Op) -> None:
        try:
            self._transaction.write(op)
        except KvorumError as e:
            raise self._names.in_user_terms(e) from None

    async def _check_tables(self) -> None:
        """That none it wrote to was disabled, or given an index, meanwhile; aborts it otherwise.
        Raises Rejected.
        """
        try:
            for name in self._written:
                if self._names.known_writable(*name) is None:
                    await self._names.writable(*name)
        except Refused:
            await self.abort()
            raise

    async def commit(self) -> int:
        await self._check_tables()
        try:
            return await self._transaction.commit()
        except KvorumError as e:
            if e.disposition != "unknown_outcome":
                self._own.aborted(self.id)
            await self._check_made_anew(e, self._written)
            raise self._names.in_user_terms(e) from None

    async def _check_made_anew(
        self, error: KvorumError, known: Mapping[tuple[str, str], bytes]
    ) -> None:
        """Whether that no node has the keys is because somebody dropped their table and made it
        anew, and this client remembered the old one. What was read may be of either, so it is to be
        run again. Raises RestartTxn (TABLE_CHANGED), NotFound.
        """
        if not isinstance(error, Unavailable | Moved):
            return
        for (ns, table), prefix in known.items():
            if await self._names.changed(ns, table, prefix):
                raise RestartTxn(
                    f"table {ns}.{table} was dropped and made anew; nothing was written: run the"
                    " transaction again",
                    code="TABLE_CHANGED",
                    details={"namespace": ns, "table": table},
                ) from error

    async def abort(self) -> None:
        await self._transaction.abort()
        self._own.aborted(self.id)

    async def heartbeat(self) -> None:
        await self._transaction.heartbeat()

    def trace(self) -> CommitTrace | None:
        return self._transaction.trace()
