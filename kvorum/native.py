"""`NativeBackend`: the database over the transaction client, in a node or behind a native
connection.

Names become table ids here, and user keys storage keys (`[table id u32][user key]`); errors that
name a storage key are told with the user's again. The catalog is remembered for a moment: when a
table was dropped and made anew meanwhile, its old id has no partition, so nothing was done, and the
name is looked up again.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from kv.base import ops
from kv.base.errors import InvalidArgument, KvorumError, Moved, NotFound, TooLarge, Unavailable
from kv.base.ids import TableId
from kv.base.keys import show_user_key, successor, table_prefix
from kv.base.limits import BATCH_OPS_MAX, DEADLINE_MS_MAX, MULTI_KEYS_MAX
from kv.base.methods import SNAPSHOT_LIST, SNAPSHOT_OPEN, SNAPSHOT_RELEASE, SNAPSHOT_RENEW
from kv.base.ops import Op
from kv.base.ports import Timers
from kv.client.client import KvClient
from kvorum import cursor, standing, waiting
from kvorum.cursor import Span
from kvorum.members import partition_map
from kvorum.model import (
    BatchOp,
    Column,
    Item,
    Page,
    ProcedureInfo,
    Put,
    Record,
    ScanSpec,
    SnapshotInfo,
    TableInfo,
    TableKey,
    TableSpec,
    TxnState,
    condition,
)
from kvorum.native_watch import NativeWatcher
from kvorum.watching import WatchSpec
from procedures.engine.client import ProcedureClient
from procedures.master.audit import all_forced
from procedures.master.nodes import all_nodes
from sqlproxy import catalog
from sqlproxy.catalog import CatalogCache
from sqlproxy.schema import PUBLIC, Table
from txn.client import TxnClient
from txn.results import ScanPage
from txn.terms import USUAL, Terms
from txn.trace import CommitTrace
from txn.transaction import Transaction

_PREFIX_BYTES: Final = 4
_ABORTED_REMEMBERED: Final = 10_000
_NAMES_REMEMBERED: Final = 10_000
_TIMESTAMP_FIELDS: Final = ("version", "txn", "conflict_ts", "start_ts", "at", "safepoint", "now")
"""Details of errors that are 64-bit numbers: decimal strings for users, as everywhere."""
CATALOG_TTL_S: Final = 5.0
OWNER: Final = "user"
"""Who submits. One for all until there are users to tell apart, so that a nonce means
the same everywhere.
"""


class Names:
    """Key prefixes by table name and back, as far as this client has met them."""

    def __init__(self, tables: CatalogCache) -> None:
        self._tables = tables
        self._of: dict[bytes, tuple[str, str]] = {}
        self._prefixes: dict[int, bytes] = {}  # by table id; the same tables

    def known(self, ns: str, table: str) -> bytes | None:
        """What `prefix` would answer at once; the hot path has no task switch to spare."""
        found = self._tables.known(ns, table)
        return None if found is None else self._prefixes.get(found.id)

    async def prefix(self, ns: str, table: str) -> bytes:
        """The first bytes of a table's storage keys. Raises NotFound."""
        id = (await self._tables.lookup(ns, table)).id
        prefix = self._prefixes.get(id)
        if prefix is None:
            if len(self._of) >= _NAMES_REMEMBERED:
                self._of.clear()
                self._prefixes.clear()
            prefix = self._prefixes[id] = table_prefix(id)
            self._of[prefix] = (ns, table)
        return prefix

    async def changed(self, ns: str, table: str, prefix: bytes) -> bool:
        """Whether the table has another id than was thought. Raises NotFound when it is gone."""
        self._tables.invalidate(ns, table)
        return await self.prefix(ns, table) != prefix

    def _told_step(self, error: KvorumError, step: dict[str, Any]) -> None:
        """One of the waits of a deadlock, if its table is known here."""
        key = step.get("key")
        name = self._of.get(key[:_PREFIX_BYTES]) if isinstance(key, bytes) else None
        if isinstance(key, bytes) and name is not None:
            wait = KvorumError(error.message, details={"key": key})
            show_user_key(wait, key[:_PREFIX_BYTES], *name)
            error.message = wait.message
            error.args = (error.message,)
            step.update(wait.details)

    def told(self, error: KvorumError, *, op: int | None = None) -> KvorumError:
        """An error as its user should see it: with the user's key instead of the storage key.
        `op`: the place in the user's request of an op that was sent alone.
        """
        if op is not None and "op" in error.details:
            error.details["op"] = op
            error.message = f"operation {op}: {error.message}"
            error.args = (error.message,)
        key = error.details.get("key")
        if isinstance(key, bytes):
            prefix = key[:_PREFIX_BYTES]
            if prefix in self._of:
                show_user_key(error, prefix, *self._of[prefix])
        for step in error.details.get("cycle", ()):
            self._told_step(error, step)
        for field in _TIMESTAMP_FIELDS:
            if type(error.details.get(field)) is int:
                error.details[field] = str(error.details[field])
        return error


class EndedTransactions:
    """Transactions that this process aborted before they wrote anything and that are not recorded:
    the store does not know them.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[int, None] = OrderedDict()

    def add(self, txn: int) -> None:
        self._ids[txn] = None
        if len(self._ids) > _ABORTED_REMEMBERED:
            self._ids.popitem(last=False)

    def __contains__(self, txn: int) -> bool:
        return txn in self._ids


class NativeSession:
    """An open transaction of this process."""

    def __init__(self, transaction: Transaction, names: Names, ended: EndedTransactions) -> None:
        self._transaction = transaction
        self._names = names
        self._ended = ended

    @property
    def id(self) -> int:
        return self._transaction.id

    @property
    def start_ts(self) -> int:
        return self._transaction.start_ts

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        prefix = await self._names.prefix(ns, table)
        try:
            value, version = await self._transaction.get(prefix + key)
        except KvorumError as e:
            raise self._names.told(e) from None
        return None if value is None else Record(value, version)

    async def multi_get(self, keys: Sequence[TableKey]) -> list[Record | None]:
        wanted = [await self._names.prefix(ns, table) + key for ns, table, key in keys]
        try:
            found = await self._transaction.multi_get(wanted)
        except KvorumError as e:
            raise self._names.told(e) from None
        return [None if record is None else Record(*record) for record in found]

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        prefix = await self._names.prefix(ns, table)
        span = cursor.span(_table_id(prefix), replace(spec, at=self.start_ts))
        low, high = _storage_range(prefix, span)
        if high <= low:
            return Page([], None, self.start_ts)
        try:
            page = await self._transaction.scan(
                low, high, limit=cursor.page_rows(spec.limit), reverse=span.reverse
            )
        except KvorumError as e:
            raise self._names.told(e) from None
        return _user_page(page, span)

    async def put(self, ns: str, table: str, key: bytes, value: bytes) -> None:
        self._write(ops.put(await self._names.prefix(ns, table) + key, value))

    async def delete(self, ns: str, table: str, key: bytes) -> None:
        self._write(ops.delete(await self._names.prefix(ns, table) + key))

    def _write(self, op: ops.Op) -> None:
        try:
            self._transaction.write(op)
        except KvorumError as e:
            raise self._names.told(e) from None

    async def commit(self) -> int:
        try:
            return await self._transaction.commit()
        except KvorumError as e:
            if e.disposition != "unknown_outcome":
                self._ended.add(self.id)
            raise self._names.told(e) from None

    async def abort(self) -> None:
        await self._transaction.abort()
        self._ended.add(self.id)

    async def heartbeat(self) -> None:
        await self._transaction.heartbeat()

    def trace(self) -> CommitTrace | None:
        return self._transaction.trace()


class NativeBackend:
    """One database over one transaction client."""

    def __init__(
        self,
        kv: KvClient,
        txn: TxnClient,
        take: Callable[[int], Awaitable[int]],
        timers: Timers,
        *,
        close: Callable[[], Awaitable[None]],
        tables: CatalogCache | None = None,
    ) -> None:
        """`take` is the oracle's. `close` ends what belongs to this backend alone. `tables`: a
        memory of the catalog that is told of changes; without one, this keeps its own.
        """
        self._kv = kv
        self._txn = txn
        self._take = take
        self._procedures = ProcedureClient(kv, timers, owner=OWNER)
        self._tables = tables or CatalogCache(txn, timers, CATALOG_TTL_S)
        self._names = Names(self._tables)
        self._ended = EndedTransactions()
        self._close = close
        self._watchers: weakref.WeakSet[NativeWatcher] = weakref.WeakSet()

    # ------------------------------------------------------------------------------------ data

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        prefix = self._names.known(ns, table) or await self._names.prefix(ns, table)
        try:
            value, version = await self._txn.get(prefix + key, at)
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.get(ns, table, key, at)
            raise self._names.told(e) from None
        return None if value is None else Record(value, version)

    async def put(
        self, ns: str, table: str, key: bytes, value: bytes, cond: int | None, ttl_ms: int
    ) -> int:
        prefix = self._names.known(ns, table) or await self._names.prefix(ns, table)
        try:
            return await self._txn.write_one(ops.put(prefix + key, value, cond, ttl_ms))
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.put(ns, table, key, value, cond, ttl_ms)
            raise self._names.told(e) from None

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int:
        prefix = await self._names.prefix(ns, table)
        try:
            return await self._txn.write_one(ops.delete(prefix + key, cond))
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.delete(ns, table, key, cond)
            raise self._names.told(e) from None

    async def _moved(self, error: KvorumError, ns: str, table: str, prefix: bytes) -> bool:
        """Whether `error` only says that the table's id is not the one any more."""
        if not isinstance(error, Unavailable | Moved):
            return False
        return await self._names.changed(ns, table, prefix)

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        prefix = await self._names.prefix(ns, table)
        span = cursor.span(_table_id(prefix), spec)
        limit = cursor.page_rows(spec.limit)
        low, high = _storage_range(prefix, span)
        try:
            if high <= low:
                return Page([], None, await self._moment(span.at))
            page = await self._txn.scan(low, high, limit=limit, reverse=span.reverse, at=span.at)
        except KvorumError as e:
            raise self._names.told(e) from None
        return _user_page(page, span)

    async def _moment(self, at: int) -> int:
        """`at`, or now. Raises InvalidArgument for the future, as a partition would."""
        now = await self._txn.now()
        if at > now:
            raise InvalidArgument(
                f"read timestamp {at} lies in the future (now {now}); read at a timestamp that the "
                "oracle has handed out, or leave it out for the newest",
                details={"at": at, "now": now},
            )
        return at or now

    async def multi_get(self, keys: Sequence[TableKey], at: int) -> tuple[list[Record | None], int]:
        _bounded("keys", len(keys), MULTI_KEYS_MAX)
        prefixes = await self._prefixes((k.ns, k.table) for k in keys)
        wanted = [prefixes[k.ns, k.table] + k.key for k in keys]
        try:
            found, at = await self._txn.multi_get(wanted, at)
        except KvorumError as e:
            raise self._names.told(e) from None
        return [None if r is None else Record(*r) for r in found], at

    async def batch(self, ops: Sequence[BatchOp]) -> int:
        storage_ops = await self._storage_ops(ops)
        try:
            return await self._txn.write(storage_ops)
        except KvorumError as e:
            if await self._any_moved(e, ops, storage_ops):
                return await self.batch(ops)
            raise self._names.told(e) from None

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        _bounded("ops", len(ops), BATCH_OPS_MAX)
        lost = await self._unknown_tables(ops)
        known = [(i, op) for i, op in enumerate(ops) if (op.ns, op.table) not in lost]
        written = await self._txn.multi_write(await self._storage_ops([op for _, op in known]))
        results: list[int | KvorumError] = [lost.get((op.ns, op.table), 0) for op in ops]
        for (i, _), result in zip(known, written, strict=True):
            if isinstance(result, KvorumError):
                result = self._names.told(result, op=i)
            results[i] = result
        return results

    async def _unknown_tables(self, ops: Sequence[BatchOp]) -> dict[tuple[str, str], KvorumError]:
        """The tables that do not exist, with the refusals of what is to be written to them."""
        found: dict[tuple[str, str], KvorumError] = {}
        for name in dict.fromkeys((op.ns, op.table) for op in ops):
            try:
                await self._names.prefix(*name)
            except NotFound as e:
                found[name] = e
        return found

    async def _storage_ops(self, batch: Sequence[BatchOp]) -> list[Op]:
        """A user's ops with storage keys. Raises TooLarge, NotFound: nothing was done."""
        _bounded("ops", len(batch), BATCH_OPS_MAX)
        prefixes = await self._prefixes((op.ns, op.table) for op in batch)
        found = []
        for op in batch:
            assert isinstance(op.key, bytes), "kvorum.database.checked_ops came first"
            key = prefixes[op.ns, op.table] + op.key
            if isinstance(op, Put):
                assert isinstance(op.value, bytes)
                cond = condition(op.if_absent, op.if_version)
                found.append(ops.put(key, op.value, cond, op.ttl_ms))
            else:
                found.append(ops.delete(key, condition(False, op.if_version)))
        return found

    async def _any_moved(
        self, error: KvorumError, batch: Sequence[BatchOp], storage_ops: Sequence[Op]
    ) -> bool:
        if not isinstance(error, Unavailable | Moved):
            return False
        known = {
            (b.ns, b.table): o.key[:_PREFIX_BYTES] for b, o in zip(batch, storage_ops, strict=True)
        }
        return any([await self._names.changed(*name, prefix) for name, prefix in known.items()])

    async def _prefixes(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """The key prefix of every table that is named."""
        return {name: await self._names.prefix(*name) for name in dict.fromkeys(names)}

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> NativeWatcher:
        prefix = await self._names.prefix(ns, table)
        watcher = NativeWatcher(
            self._txn,
            prefix,
            spec,
            lambda: self._names.changed(ns, table, prefix),
            self._names.told,
            f"{ns}.{table}",
        )
        self._watchers.add(watcher)
        return watcher

    # ---------------------------------------------------------------------------- transactions

    async def begin(
        self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL, recorded: bool = False
    ) -> NativeSession:
        transaction = await self._txn.begin(
            ttl_ms=ttl_ms, isolation=isolation, terms=terms, recorded=recorded
        )
        return NativeSession(transaction, self._names, self._ended)

    async def status(self, txn: int) -> TxnState:
        if txn in self._ended:
            return TxnState("aborted")
        try:
            found = await self._txn.status(txn)
        except KvorumError as e:
            raise self._names.told(e) from None
        return TxnState(found.status, found.commit_ts or None)

    async def timestamps(self, count: int) -> int:
        return await self._take(count)

    # ------------------------------------------------------------------------------- snapshots

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> SnapshotInfo:
        id, at = await self._master(SNAPSHOT_OPEN, at, owner, ttl_ms)
        return SnapshotInfo(id, at, owner, ttl_ms, 0, ttl_ms)

    async def renew_snapshot(self, id: int) -> None:
        await self._master(SNAPSHOT_RENEW, id)

    async def release_snapshot(self, id: int) -> bool:
        return bool((await self._master(SNAPSHOT_RELEASE, id))[0])

    async def snapshots(self) -> list[SnapshotInfo]:
        rows, _ = await self._master(SNAPSHOT_LIST)
        return [SnapshotInfo(*row) for row in rows]

    async def _master(self, method: int, *args: Any) -> list[Any]:
        try:
            return await self._kv.call_node(method, *args)
        except KvorumError as e:
            raise self._names.told(e) from None

    # ------------------------------------------------------------------- namespaces and tables

    async def namespaces(self) -> list[str]:
        return [n.name for n in await catalog.list_namespaces(self._txn)]

    async def create_namespace(self, name: str) -> None:
        await self._ddl("CreateNamespace", {"namespace": name})

    async def drop_namespace(self, name: str) -> None:
        await self._ddl("DropNamespace", {"namespace": name})

    async def tables(self, ns: str) -> list[TableInfo]:
        await catalog.lookup_namespace(self._txn, ns)
        return [_info(t) for t in await catalog.list_tables(self._txn, ns) if t.state == PUBLIC]

    async def create_table(self, ns: str, name: str, spec: TableSpec) -> TableInfo:
        args: dict[str, Any] = {
            "namespace": ns,
            "name": name,
            "split_keys": list(spec.split_keys),
            "columns": [column.to_plain() for column in spec.columns],
            "primary_key": list(spec.primary_key),
            "tags": list(spec.tags),
        }
        if spec.replicas is not None:
            args["replicas"] = spec.replicas
        await self._ddl("CreateTable", args)
        self._tables.invalidate(ns, name)
        return _info(await self._tables.lookup(ns, name))

    async def drop_table(self, ns: str, name: str) -> None:
        await self._ddl("DropTable", {"namespace": ns, "name": name})
        self._tables.invalidate(ns, name)

    async def _ddl(self, procedure: str, args: dict[str, Any]) -> None:
        """Run a schema change to its end. It goes on when this client goes away."""
        started = await self._procedures.submit(procedure, args)
        await self._procedures.result(started, timeout_ms=DEADLINE_MS_MAX)

    # ------------------------------------------------------------------------------ procedures

    async def submit(self, name: str, args: Any, nonce: str | None) -> int:
        return await self._procedures.submit(name, args, nonce=nonce)

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo:
        return ProcedureInfo.of(await self._procedures.get(procedure, wait_ms=wait_ms))

    async def procedures(
        self, *, state: str | None, owner: str | None, name: str | None
    ) -> list[ProcedureInfo]:
        found = await self._procedures.list(state=state, owner=owner, name=name)
        return [ProcedureInfo.of(told) for told in found]

    async def acknowledge(self, procedure: int) -> None:
        await self._procedures.acknowledge(procedure)

    async def abort_procedure(self, procedure: int, reason: str, dry_run: bool) -> None:
        await self._procedures.abort(procedure, reason, dry_run=dry_run)

    # --------------------------------------------------------------------------------- cluster

    async def nodes(self) -> list[dict[str, Any]]:
        found = await all_nodes(self._txn)
        told, map_ = await standing.ask(self._kv, found), await partition_map(self._txn)
        return standing.node_rows(found, map_, told, await all_forced(self._txn))

    async def partitions(self) -> list[dict[str, Any]]:
        told = await standing.ask(self._kv, await all_nodes(self._txn))
        return standing.partition_rows(await partition_map(self._txn), told)

    async def locks(self) -> dict[str, Any]:
        found = await waiting.ask(self._kv, await all_nodes(self._txn))
        tables = {
            prefix: await catalog.find_by_id(self._txn, TableId(_table_id(prefix)))
            for prefix in waiting.table_prefixes(found)
        }
        return waiting.shown(found, tables, self._txn.clock.now_ms())

    async def close(self) -> None:
        for watcher in list(self._watchers):
            await watcher.close()
        await self._close()


def _info(table: Table) -> TableInfo:
    columns = tuple(Column(c.name, c.type, c.nullable) for c in table.columns)
    return TableInfo(
        table.namespace,
        table.name,
        table.id,
        columns,
        table.primary_key,
        table.replicas,
        table.tags,
    )


def _bounded(what: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise TooLarge(
            f"{actual} {what} in one request, the limit is {limit}; send them in several",
            details={"what": what, "limit": limit, "actual": actual},
        )


def _table_id(prefix: bytes) -> int:
    return int.from_bytes(prefix, "big")


def _storage_range(prefix: bytes, span: Span) -> tuple[bytes, bytes]:
    """`[low, high)` of storage keys; high <= low when the span is empty."""
    return prefix + span.low, prefix + span.high if span.high else successor(prefix)


def _user_page(page: ScanPage, span: Span) -> Page:
    """A page with user keys and the cursor behind it."""
    items = [Item(key[_PREFIX_BYTES:], value, version) for key, value, version in page.items]
    if page.resume is None:
        return Page(items, None, page.at)
    rest = page.resume[_PREFIX_BYTES:]
    left = (span.low, rest) if span.reverse else (rest, span.high)
    return Page(items, cursor.encode(Span(span.table_id, *left, span.reverse, page.at)), page.at)
