"""`AsyncDatabase`: namespaces and tables by name, user keys, transactions, procedures. The same
over every backend.

    db = await kvorum.aconnect("kvorum://host:7600")
    users = db.table("app", "users")
    version = await users.put("ada", b"1815", if_absent=True)
    async with db.transaction() as t:
        await t.table("app", "users").delete("ada")

Single operations are atomic and linearizable. A transaction reads one snapshot and commits all or
nothing: with snapshot isolation, which permits write skew, or on request serializable. Everything
raises the errors of `kvorum`; `error.disposition` says what to do. An object may be shared by the
tasks of one loop; a transaction belongs to one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kv.base import timestamps
from kv.base.errors import InvalidArgument, KvorumError, UnknownOutcome
from kv.base.limits import (
    LEASE_TTL_MS_DEFAULT,
    LOCK_TTL_MS_DEFAULT,
    TXN_TTL_MS_DEFAULT,
)
from kv.base.ports import Rng
from kvorum.api.backend import Backend
from kvorum.api.model import (
    BatchOp,
    Bytes,
    Delete,
    Put,
    Record,
    SnapshotInfo,
    TableKey,
    TxnState,
    checked_ttl,
    condition,
    user_key,
    user_value,
)
from kvorum.api.outcome import Retries, committed_version
from kvorum.api.watching import AsyncWatch, watch_spec
from kvorum.sdk.awaited_blocks import Beginning
from kvorum.sdk.defining import AsyncDefining
from kvorum.sdk.held_locks import AsyncLock
from kvorum.sdk.held_locks import checked as checked_lock
from kvorum.sdk.held_locks import take as take_lock
from kvorum.sdk.operating import AsyncOperating
from kvorum.sdk.running import AsyncRunning
from kvorum.sdk.scheduling import AsyncScheduling
from kvorum.sdk.snapshots import (
    AsyncSnapshot,
    Holder,
    checked_lease_ttl,
    checked_owner,
)
from kvorum.sdk.tables import AsyncTable, AsyncTransaction, snapshot_at
from procedures.engine.plain_data import Plain
from txn.shared.wait_terms import terms

T = TypeVar("T")


class AsyncDatabase(AsyncDefining, AsyncRunning, AsyncScheduling, AsyncOperating):
    """A whole Kvorum database. Close it, or use it in `async with`."""

    def __init__(self, backend: Backend, rng: Rng) -> None:
        self._backend = backend
        self._rng = rng
        self._holder = Holder(backend)
        self.where = ""  # how it was opened, for people
        self.patience_ms: int | None = None  # how long `wait` waits by itself; None = for ever

    def __repr__(self) -> str:
        return f"<kvorum database{self.where and ' '}{self.where}>"

    @property
    def backend(self) -> Backend:
        return self._backend

    # ------------------------------------------------------------------------------------ data

    def table(self, ns: str, name: str) -> AsyncTable:
        """A table by name. Nothing is asked yet: an unknown name is an error of the first
        operation.
        """
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
        self, keys: Sequence[tuple[str, str, Bytes]], *, at: int | str | None = None
    ) -> list[Record | None]:
        """The records of many `(namespace, table, key)` at one snapshot."""
        wanted = [TableKey(ns, table, user_key(k)) for ns, table, k in keys]
        return (await self._backend.multi_get(wanted, snapshot_at(at)))[0]

    def snapshot(
        self, at: int | str | None = None, *, owner: str = "", ttl_ms: int = LEASE_TTL_MS_DEFAULT
    ) -> Beginning[AsyncSnapshot]:
        """Everything as it is now, or was at the timestamp `at`, held until it is closed: `async
        with db.snapshot() as s`, or `s = await db.snapshot()`.

        Nothing that it sees is collected meanwhile; it is renewed by itself, and ends when this
        process is silent for `ttl_ms`. `owner` is shown to whoever lists the snapshots. Raises
        SnapshotTooOld, InvalidArgument for an `at` in the future.
        """
        args = (snapshot_at(at), checked_owner(owner), checked_lease_ttl(ttl_ms))

        async def open() -> AsyncSnapshot:
            return self._holder.hold(await self._backend.open_snapshot(*args))

        return Beginning(open)

    def lock(
        self,
        resource: str,
        *,
        exclusive: bool = True,
        ttl_ms: int = LOCK_TTL_MS_DEFAULT,
        wait_ms: int | None = None,
        owner: str = "",
    ) -> Beginning[AsyncLock]:
        """Hold a resource, as procedures do that declare it, until it is released: `async with
        db.lock("table/shop/orders") as lock`, or `lock = await db.lock(…)`.

        It is kept by heartbeats, and ends when this process is silent for `ttl_ms`; see AsyncLock
        for who writes under it. Waits as long as it takes, or `wait_ms`, then Busy (LOCK_HELD).
        `owner` is for people.
        """
        checked_lock(resource, ttl_ms, wait_ms, owner)

        async def take() -> AsyncLock:
            return await take_lock(
                *(self._backend, self._rng, resource),
                exclusive=exclusive,
                ttl_ms=ttl_ms,
                wait_ms=wait_ms,
                owner=owner,
                patience_ms=self.patience_ms,
            )

        return Beginning(take)

    async def snapshots(self) -> list[SnapshotInfo]:
        """Who holds which snapshots, oldest first."""
        return await self._backend.snapshots()

    async def release_snapshot(self, id: int) -> bool:
        """End a snapshot (another user's needs operate on the cluster); whether it was held."""
        return await self._backend.release_snapshot(id)

    def watch(
        self,
        ns: str,
        table: str,
        *,
        from_version: int | None = None,
        prefix: Bytes | None = None,
        heartbeats: bool = False,
    ) -> AsyncWatch:
        """The committed transactions that change a table, whole and in commit order: `async for
        event in db.watch(…)`, or `async with` to end it.

        With versions above `from_version`; 0 sends all rows first; None begins now, at the first
        event that is asked for. `heartbeats`: also events of kind "resolved", every few seconds.
        """
        spec = watch_spec(from_version, prefix)
        return AsyncWatch(lambda: self._backend.watch(ns, table, spec), heartbeats=heartbeats)

    async def timestamp(self) -> int:
        """A fresh timestamp of the oracle: above every version acknowledged before."""
        return await self._backend.timestamps(1)

    async def session_token(self) -> str:
        """What to hand to another process so that it sees everything that was acknowledged to
        anybody until now: `connect(url, session=token)` there. The version of one write will do,
        too, for what was written until then.
        """
        return str(await self.timestamp())

    async def resume_session(self, token: str | int) -> None:
        """Make sure that everything read from here on is at or above a session token.

        Reads are linearizable, so one comparison with the oracle is all it takes. Raises
        InvalidArgument for what is no token, and for one that this cluster has not come to: it is
        another cluster's, or was restored from before the token.
        """
        await self._backend.timestamps(1, _decimal(token, "a session token"))

    # ---------------------------------------------------------------------------- transactions

    def transaction(
        self,
        *,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        owner: str = "",
        priority: str = "normal",
        lock_wait_ms: int | None = None,
    ) -> Beginning[AsyncTransaction]:
        """Begin a transaction: `async with db.transaction() as t`, or `t = await
        db.transaction()`. `isolation`: "snapshot", "serializable", or "read_committed", at which
        each read sees what is committed by then: `lock` what is computed from.

        `owner`: shown to those who wait for it. `priority`: "low", "normal" or "high", its place
        where several wait for a key; of transactions that wait for each other the lowest, then the
        youngest, is given up (TxnAborted, DEADLOCK). `lock_wait_ms`: how long its commit waits for
        others' intents: 0 = not at all (KeyLocked), None = nearly until its deadline.
        """
        how = terms(owner=owner, priority=priority, lock_wait_ms=lock_wait_ms)

        async def begin() -> AsyncTransaction:
            session = await self._backend.begin(ttl_ms=ttl_ms, isolation=isolation, terms=how)
            return AsyncTransaction(session)

        return Beginning(begin)

    async def run(
        self,
        fn: Callable[[AsyncTransaction], Awaitable[T]],
        *,
        attempts: int = 0,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        owner: str = "",
        priority: str = "normal",
        lock_wait_ms: int | None = None,
    ) -> T:
        """Run `fn` in a transaction and commit it; on a conflict run it again on a new snapshot,
        after a pause. The other arguments are those of `transaction`.

        `fn` may run several times: effects outside the transaction belong after it. `attempts` 0 =
        the default.
        """
        retries = Retries(self._rng, attempts)
        while True:
            try:
                t = await self.transaction(
                    ttl_ms=ttl_ms,
                    isolation=isolation,
                    owner=owner,
                    priority=priority,
                    lock_wait_ms=lock_wait_ms,
                )
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
            try:
                state = await self.status(t.id)
            except KvorumError:
                raise e from None  # nobody can say now: it stays unknown
            t.version = committed_version(t.id, state, e)

    async def status(self, txn: int | str) -> TxnState:
        """What became of a transaction. Always answers, also when its participants were
        restarted. An id may be a decimal string, as errors and HTTP give it.
        """
        return await self._backend.status(_decimal(txn, "a transaction id"))

    async def abort_transaction(self, txn: int | str) -> None:
        """Roll a transaction back, whoever began it and wherever it is open; fine if it was aborted
        already. Raises Refused (TXN_COMMITTED) when it has committed, NotFound (TXN_NOT_FOUND) when
        nothing is known of it: then it holds nothing.
        """
        await self._backend.abort_transaction(_decimal(txn, "a transaction id"))

    # --------------------------------------------------------------------------------- cluster

    async def cluster(self) -> Plain:
        """Its id, its `master` (a node's id, None while there is none), how many `nodes` and
        `partitions` there are, and its `settings` (docs/guides/bus.md).
        """
        return await self._backend.cluster()

    async def access(self, what: str, args: Mapping[str, object] | None = None) -> Any:
        """Users, groups, tokens and grants: `access("user.create", {"name": "ann"})`; all that
        there is to do: docs/reference/access.md.
        """
        return await self._backend.access(what, dict(args or {}))

    async def set_settings(self, values: dict[str, int]) -> list[Plain]:
        """Change settings of the running cluster; for each its version, who applies it (`applied`)
        and who has not said so in time (`missing`). Raises InvalidArgument: none was changed.
        """
        return await self._backend.set_settings(values)

    async def nodes(self) -> list[Plain]:
        return await self._backend.nodes()

    async def partitions(self) -> list[Plain]:
        return await self._backend.partitions()

    async def split(self, partition: int, *, at: Bytes | None = None) -> Plain:
        """Split a partition in place at a key of its table, or in the middle: `{"partition",
        "new"}`. Raises Refused (CANNOT_SPLIT), NotFound.
        """
        args: dict[str, object] = {"partition": partition}
        if at is not None:
            args["at"] = at
        result = await self.wait(await self.submit("kvorum.split_partition", args))
        return {name: result[name] for name in ("partition", "new")}

    async def merge(self, left: int, right: int) -> Plain:
        """Merge two neighbours in place into the lower one: `{"partition", "gone"}`. Raises Refused
        (CANNOT_MERGE), NotFound.
        """
        return dict(
            await self.wait(
                await self.submit("kvorum.merge_partitions", {"left": left, "right": right})
            )
        )

    async def locks(self, *, every: bool = False) -> Plain:
        """Who holds which keys and who waits for them, in the whole cluster: `locks` (those that
        are waited for first, then the oldest), `waits`, `missing` (ids of nodes that did not
        answer), `more` (lists were cut). A transaction's keys of one table that nobody waits for
        are one row, whose `keys` counts them; with `every` each has its own.
        """
        return await self._backend.locks(every)

    async def close(self) -> None:
        """Close the connection, or stop the embedded node. Snapshots are released."""
        await self._holder.close()
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


def _decimal(given: str | int, what: str) -> int:
    text = str(given) if type(given) is int else given
    if type(text) is not str or not text.isascii() or not text.isdecimal():
        raise InvalidArgument(f"{what} is a decimal number, got {given!r:.80}")
    if len(text) > 20 or int(text) > timestamps.MAX:
        raise InvalidArgument(f"{what}, {text:.40}, is above every timestamp")
    return int(text)


def checked_fence(fence: object) -> tuple[str, int] | None:
    """Raises InvalidArgument."""
    if fence is None:
        return None
    if (
        not isinstance(fence, tuple)
        or len(fence) != 2
        or not isinstance(fence[0], str)
        or type(fence[1]) is not int
    ):
        raise InvalidArgument(
            f"fence must be (resource, token), such as lock.fence, got {fence!r:.80}"
        )
    return fence


def checked_ops(ops: Sequence[BatchOp]) -> list[BatchOp]:
    """The ops of a batch with keys and values as bytes within their limits."""
    checked: list[BatchOp] = []
    for op in ops:
        match op:
            case Put():
                condition(op.if_absent, op.if_version)
                ttl = checked_ttl(op.ttl_ms or None)
                key, value = user_key(op.key), user_value(op.value)
                fence = checked_fence(op.fence)
                checked.append(
                    Put(op.ns, op.table, key, value, op.if_absent, op.if_version, ttl, fence)
                )
            case Delete():
                condition(False, op.if_version)
                fence = checked_fence(op.fence)
                checked.append(Delete(op.ns, op.table, user_key(op.key), op.if_version, fence))
            case _:
                raise InvalidArgument(
                    f"a batch holds kvorum.Put and kvorum.Delete, not {type(op).__name__}"
                )
    return checked
