"""`NativeBackend`: the database over the transaction client, in a node or behind a native
connection.

Names become table ids here, and user keys storage keys (`[table id u32][user key]`); errors that
name a storage key are raised with the user's key. The catalog is remembered for a moment: when a
table was dropped and made anew meanwhile, its old id has no partition, so nothing was done, and the
name is looked up again.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from kv.base import ops
from kv.base.config import split_address
from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KvorumError,
    Moved,
    NotFound,
    Refused,
    TooLarge,
    Unavailable,
)
from kv.base.limits import BATCH_OPS_MAX, MULTI_KEYS_MAX
from kv.base.ops import Op
from kv.base.ports import Rng, Timers
from kv.base.wire_row import WireRow
from kv.client.client import KvClient
from kv.client.replicas import Replicas
from kvorum.api import cursor
from kvorum.api.cursor import storage_range, table_id, user_page
from kvorum.api.model import (
    BatchOp,
    Page,
    Put,
    Record,
    ScanSpec,
    SnapshotInfo,
    TableKey,
    TxnState,
    condition,
)
from kvorum.api.names import PREFIX_BYTES, Names
from kvorum.api.verbs import END_TXN
from kvorum.api.watching import WatchSpec
from kvorum.native.epoch import check_version
from kvorum.native.native_admin import NativeAdmin
from kvorum.native.native_session import NativeSession, OwnTransactions
from kvorum.native.native_watch import NativeWatcher
from procedures.engine.grants import fence_ops, is_fence
from procedures.master.map.nodes import NodeState, all_nodes
from procedures.verbs import LOCK_BEAT, LOCK_END
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.catalog.visible_catalog import RemoteCatalog
from tso.verbs import SNAPSHOT_LIST, SNAPSHOT_OPEN, SNAPSHOT_RELEASE, SNAPSHOT_RENEW
from txn.client import TxnClient
from txn.shared.refusals import BY_REQUEST
from txn.shared.wait_terms import USUAL, Terms

CATALOG_TTL_S: Final = catalog.CATALOG_TTL_S
_ASK_MS: Final = 1_500
_LOCK_MARGIN_MS: Final = 2_000  # of a heartbeat that waits for its lock


class NativeBackend(NativeAdmin):
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
        seen: RemoteCatalog | None = None,
    ) -> None:
        """`take` is the oracle's. `close` ends what belongs to this backend alone. `tables`: a
        memory of the catalog that learns of changes; without one, this keeps its own. `seen`: how
        a process that is no node reads the catalog.
        """
        claims = seen.claim if seen is not None else catalog.claims_in(txn.run)
        known = tables or CatalogCache(seen or txn, timers, CATALOG_TTL_S, claims)
        super().__init__(kv, txn, timers, known, seen or txn)
        self.kv, self.txn = kv, txn  # SQL runs its own transactions
        self._take = take
        self._names = Names(known)
        self._of_link = Names(known, of_link=True)
        self._own = OwnTransactions()
        self._close = close
        self._watchers: weakref.WeakSet[NativeWatcher] = weakref.WeakSet()

    def read_past_near(self, here: tuple[str, str, str], rng: Rng) -> None:
        """Let the replicas answer reads of the past that are nearest to this datacenter, rack and
        server; "": not said.
        """
        self.txn.read_past_by(Replicas.near(here, self.kv, self._timers, rng))

    # ------------------------------------------------------------------------------------ data

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        prefix = self._names.known(ns, table) or await self._names.prefix(ns, table)
        try:
            value, version = await self._txn.get(prefix + key, at, replicas=True)
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.get(ns, table, key, at)
            raise self._names.in_user_terms(e) from None
        return None if value is None else Record(value, version)

    async def put(
        self, ns: str, table: str, key: bytes, value: bytes, cond: int | None, ttl_ms: int
    ) -> int:
        prefix = self._names.known_writable(ns, table) or await self._names.writable(ns, table)
        try:
            return await self._txn.write_one(ops.put(prefix + key, value, cond, ttl_ms))
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.put(ns, table, key, value, cond, ttl_ms)
            raise self._names.in_user_terms(e) from None

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int:
        prefix = await self._names.writable(ns, table)
        try:
            return await self._txn.write_one(ops.delete(prefix + key, cond))
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.delete(ns, table, key, cond)
            raise self._names.in_user_terms(e) from None

    async def _moved(self, error: KvorumError, ns: str, table: str, prefix: bytes) -> bool:
        """Whether `error` only says that the table's id is not the one any more."""
        if not isinstance(error, Unavailable | Moved):
            return False
        return await self._names.changed(ns, table, prefix)

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        prefix = await self._names.prefix(ns, table)
        span = cursor.span(table_id(prefix), spec)
        limit = cursor.page_rows(spec.limit)
        low, high = storage_range(prefix, span)
        try:
            if high <= low:
                return Page([], None, await self._moment(span.at))
            page = await self._txn.scan(
                low, high, limit=limit, reverse=span.reverse, at=span.at, replicas=True
            )
        except KvorumError as e:
            if await self._moved(e, ns, table, prefix):
                return await self.scan(ns, table, spec)
            raise self._names.in_user_terms(e) from None
        return user_page(page, span)

    async def _moment(self, at: int) -> int:
        """`at`, or now. Raises InvalidArgument for the future, as a partition would."""
        now = await self._txn.now()
        if at > now and not self._txn.hybrid:
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
            found, at = await self._txn.multi_get(wanted, at, replicas=True)
        except KvorumError as e:
            moved = [await self._moved(e, *name, prefix) for name, prefix in prefixes.items()]
            if any(moved):
                return await self.multi_get(keys, at)
            raise self._names.in_user_terms(e) from None
        return [None if r is None else Record(*r) for r in found], at

    async def batch(self, ops: Sequence[BatchOp]) -> int:
        storage_ops = await self._storage_ops(ops)
        fences = [op.fence for op in ops if op.fence is not None]
        try:
            checks = await fence_ops(self._txn, fences) if fences else ()
            return await self._txn.write([*storage_ops, *checks] if checks else storage_ops)
        except KvorumError as e:
            if fences and isinstance(e, ConditionFailed) and is_fence(e.details.get("key")):
                return await self.batch(ops)  # it has just ended: look again, and tell who has it
            if await self._any_moved(e, ops, storage_ops):
                return await self.batch(ops)
            raise self._names.in_user_terms(e) from None

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        _bounded("ops", len(ops), BATCH_OPS_MAX)
        if any(op.fence is not None for op in ops):
            raise InvalidArgument("a fence needs a batch: multi_write writes each op by itself")
        lost = await self._closed_tables(ops)
        known = [(i, op) for i, op in enumerate(ops) if (op.ns, op.table) not in lost]
        storage_ops = await self._storage_ops([op for _, op in known])
        written = await self._txn.multi_write(storage_ops)
        results: list[int | KvorumError] = [lost.get((op.ns, op.table), 0) for op in ops]
        again: list[int] = []  # nothing was done: their table is another one by now
        for (i, op), sent, result in zip(known, storage_ops, written, strict=True):
            if isinstance(result, KvorumError):
                try:
                    if await self._moved(result, op.ns, op.table, sent.key[:PREFIX_BYTES]):
                        again.append(i)
                        continue
                    result = self._names.in_user_terms(result, op=i)
                except NotFound as e:
                    result = e  # of this table alone: what the others say stands
            results[i] = result
        if again:
            anew = await self.multi_write([ops[i] for i in again])
            for i, result in zip(again, anew, strict=True):
                if isinstance(result, KvorumError) and "op" in result.details:
                    result.details["op"] = i
                results[i] = result
        return results

    async def _closed_tables(self, ops: Sequence[BatchOp]) -> dict[tuple[str, str], KvorumError]:
        """The tables that do not exist, or that only SQL writes to, with the refusals."""
        found: dict[tuple[str, str], KvorumError] = {}
        for name in dict.fromkeys((op.ns, op.table) for op in ops):
            try:
                await self._names.writable(*name)
            except (NotFound, Refused) as e:
                found[name] = e
        return found

    async def _storage_ops(self, batch: Sequence[BatchOp]) -> list[Op]:
        """A user's ops with storage keys. Raises TooLarge, NotFound, Refused: nothing was
        done.
        """
        _bounded("ops", len(batch), BATCH_OPS_MAX)
        names = dict.fromkeys((op.ns, op.table) for op in batch)
        prefixes = {name: await self._names.writable(*name) for name in names}
        found = []
        for op in batch:
            assert isinstance(op.key, bytes), "kvorum.sdk.database.checked_ops came first"
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
            (b.ns, b.table): o.key[:PREFIX_BYTES] for b, o in zip(batch, storage_ops, strict=True)
        }
        return any([await self._names.changed(*name, prefix) for name, prefix in known.items()])

    async def _prefixes(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """The key prefix of every table that is named."""
        return {name: await self._names.prefix(*name) for name in dict.fromkeys(names)}

    async def storage_prefix(self, ns: str, table: str) -> bytes:
        """The first bytes of the table's storage keys. Raises NotFound."""
        return await self._names.prefix(ns, table)

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> NativeWatcher:
        prefix = await self._names.prefix(ns, table)
        if spec.above:
            await check_version(self.catalog, spec.above)
        watcher = NativeWatcher(
            self._txn,
            prefix,
            spec,
            lambda: self._names.changed(ns, table, prefix),
            self._names.in_user_terms,
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
        return NativeSession(transaction, self._names, self._own)

    async def begin_of_link(self) -> NativeSession:
        """A transaction that may write to stand-bys of another cluster, too. Serializable: what it
        leaves as it is must still be so when it commits.
        """
        transaction = await self._txn.begin(isolation="serializable")
        return NativeSession(transaction, self._of_link, self._own)

    async def status(self, txn: int) -> TxnState:
        if self._own.was_aborted(txn):
            return TxnState("aborted")
        open_here = self._own.may_commit(txn)  # before: it may end while the store is asked
        try:
            found = await self._txn.status(txn)
        except KvorumError as e:
            raise self._names.in_user_terms(e) from None
        if found.status == "unknown" and open_here:
            return TxnState("pending")
        return TxnState(found.status, found.commit_ts or None)

    async def abort_transaction(self, txn: int) -> None:
        if await self._own.end(txn, BY_REQUEST) or await self._end_elsewhere(txn):
            return
        try:
            await self._txn.abort(txn)
        except KvorumError as e:
            raise self._names.in_user_terms(e) from None

    async def end_transaction(self, _context: object, args: WireRow) -> list[object]:
        """The node method END_TXN."""
        return [await self._own.end(args[0], BY_REQUEST)]

    async def _end_elsewhere(self, txn: int) -> bool:
        """Whether some node held it open, and has aborted it."""

        async def ask(address: str) -> bool:
            try:
                (ended,) = await self._kv.call_at(
                    split_address(address), END_TXN, txn, budget_ms=_ASK_MS
                )
            except KvorumError:  # it is down, or older: its record is asked
                return False
            return bool(ended)

        members = [m for m in await all_nodes(self.catalog) if m.state is not NodeState.GONE]
        return any(await asyncio.gather(*(ask(m.address) for m in members if m.address)))

    def causal_token(self) -> int:
        return self.txn.causal_token

    async def timestamps(self, count: int, above: int = 0) -> int:
        if count > 1 and (above or self._txn.hybrid):
            raise InvalidArgument(
                f"count is {count}; timestamps above another one, and all where clocks are hybrid, "
                "are given one by one",
                details={"what": "timestamps", "limit": 1, "actual": count},
            )
        return await (self._txn.above(above) if above else self._take(count))

    # ------------------------------------------------------------------------------- snapshots

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int, user: str = "") -> SnapshotInfo:
        id, at = await self._master(SNAPSHOT_OPEN, at, owner, ttl_ms, *_said(user))
        return SnapshotInfo(id, at, owner, ttl_ms, 0, ttl_ms)

    async def renew_snapshot(self, id: int, user: str = "") -> None:
        await self._master(SNAPSHOT_RENEW, id, *_said(user))

    async def release_snapshot(self, id: int, user: str = "") -> bool:
        return bool((await self._master(SNAPSHOT_RELEASE, id, *_said(user)))[0])

    async def snapshots(self) -> list[SnapshotInfo]:
        rows, _ = await self._master(SNAPSHOT_LIST)
        return [SnapshotInfo(*row) for row in rows]

    async def beat_lock(self, id: int, wait_ms: int) -> tuple[str, int]:
        budget_ms = wait_ms + min(_LOCK_MARGIN_MS, self._kv.budget_ms)
        state, token = await self._kv.call_node(LOCK_BEAT, id, wait_ms, budget_ms=budget_ms)
        return state, token

    async def end_lock(self, id: int) -> None:
        await self._kv.call_node(LOCK_END, id)

    async def _master(self, method: int, *args: object) -> WireRow:
        try:
            return await self._kv.call_node(method, *args)
        except KvorumError as e:
            raise self._names.in_user_terms(e) from None

    async def close(self) -> None:
        for watcher in list(self._watchers):
            await watcher.close()
        await self._close()


def _bounded(what: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise TooLarge(
            f"{actual} {what} in one request, the limit is {limit}; send them in several",
            details={"what": what, "limit": limit, "actual": actual},
        )


def _said(user: str) -> tuple[str, ...]:
    """Nothing, if there is nobody to name: as masters of before have it."""
    return (user,) if user else ()
