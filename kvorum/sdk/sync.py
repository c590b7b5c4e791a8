"""The SDK without `await`, for any number of threads: calls go through a portal to the loop.
Made by `make sync`: change the asynchronous classes instead.

Ctrl-C while a call waits cancels that call and raises KeyboardInterrupt in the caller; a write that
was under way then has an unknown outcome, as always when nobody waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from kv.base.errors import KeyLocked, KvorumError
from kv.base.limits import (
    LEASE_TTL_MS_DEFAULT,
    LOCK_TTL_MS_DEFAULT,
    SCAN_ATTEMPTS_MAX,
    TXN_TTL_MS_DEFAULT,
)
from kvorum.api.handles import A, Enqueued, Handle, Workflow
from kvorum.api.model import (
    BatchOp,
    Bytes,
    Column,
    Item,
    NamespaceInfo,
    Page,
    ProcedureInfo,
    Record,
    SnapshotInfo,
    TableInfo,
    TxnState,
)
from kvorum.api.outcome import Retries
from kvorum.api.procedure_events import AsyncProcedureEvents, ProcedureEvent
from kvorum.api.replays import Replay
from kvorum.api.watching import AsyncWatch, Event
from kvorum.sdk.database import AsyncDatabase, T
from kvorum.sdk.facade import Facade
from kvorum.sdk.held_locks import AsyncLock
from kvorum.sdk.operating import Answer
from kvorum.sdk.snapshots import AsyncSnapshot, AsyncSnapshotTable
from kvorum.sdk.tables import AsyncTable, AsyncTransaction, AsyncTransactionTable
from procedures.engine.plain_data import Plain
from procedures.engine.records import Record as ProcedureRecord
from procedures.engine.registry import Declared
from txn.commit.trace import CommitTrace


def all_rows(
    scan: Callable[..., Page],
    prefix: Bytes | None,
    start: Bytes | None,
    end: Bytes | None,
    *,
    reverse: bool,
) -> Iterator[Item]:
    """All records of a scan, page by page; its cursors keep it at one snapshot. A page that is
    full of what dead transactions left is asked for again: every time less of it is there.
    """
    cursor, attempts = (None, 0)
    while True:
        try:
            page = scan(prefix=prefix, start=start, end=end, reverse=reverse, cursor=cursor)
        except KeyLocked:
            attempts += 1
            if attempts == SCAN_ATTEMPTS_MAX:
                raise
            continue
        yield from page.items
        cursor, attempts = (page.cursor, 0)
        if cursor is None:
            return


class Table(Facade[AsyncTable]):
    """The records of one table."""

    __slots__ = ()

    @property
    def ns(self) -> str:
        return self._async.ns

    @property
    def name(self) -> str:
        return self._async.name

    def get(self, key: Bytes, *, at: int | str | None = None) -> Record | None:
        """The record, or None if there is none. `at` reads the snapshot of that timestamp."""
        return self._call(self._async.get(key, at=at))

    def put(
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
        return self._call(
            self._async.put(key, value, if_absent=if_absent, if_version=if_version, ttl_ms=ttl_ms)
        )

    def delete(self, key: Bytes, *, if_version: int | None = None) -> int:
        """Remove a record, also one that is not there; the version of the removal."""
        return self._call(self._async.delete(key, if_version=if_version))

    def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        limit: int = 0,
        cursor: str | None = None,
        at: int | str | None = None,
    ) -> Page:
        """One page in key order, `[start, end)`; the next one with `cursor=page.cursor`, at the
        same snapshot.
        """
        return self._call(
            self._async.scan(
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
        at: int | str | None = None,
    ) -> Iterator[Item]:
        """All records of the range, page by page, at one snapshot."""
        return all_rows(partial(self.scan, at=at), prefix, start, end, reverse=reverse)

    def multi_get(
        self, keys: Sequence[Bytes], *, at: int | str | None = None
    ) -> list[Record | None]:
        """The records of many keys at one snapshot, in the order of `keys`."""
        return self._call(self._async.multi_get(keys, at=at))


class TransactionTable(Facade[AsyncTransactionTable]):
    """One table as a transaction sees and changes it."""

    __slots__ = ()

    @property
    def ns(self) -> str:
        return self._async.ns

    @property
    def name(self) -> str:
        return self._async.name

    def get(self, key: Bytes) -> Record | None:
        """The record at the transaction's snapshot, or its own write (version 0 until
        it commits).
        """
        return self._call(self._async.get(key))

    def multi_get(self, keys: Sequence[Bytes]) -> list[Record | None]:
        """`get` of many keys at once, in their order."""
        return self._call(self._async.multi_get(keys))

    def lock(self, key: Bytes, *, wait: str = "wait", strength: str = "update") -> Record | None:
        """Keep others from writing the key until the transaction ends; its record as it is by then,
        or its own write. None: there is none, and nobody may add it. Readers do not wait.

        `wait`, where somebody else has it: "wait", as long as `lock_wait_ms` says; "nowait" raises
        KeyLocked; "skip" locks nothing and gives None. Raises WriteConflict if the record is newer
        than the transaction's snapshot: with `isolation="read_committed"` it never is.

        `strength`: "update", "no key update", "share" or "key share", as SQL's FOR …: any number of
        transactions may share a key. Under "key share" others may put other values there, and not
        delete it. What is written under a shared lock is not checked for what was read.
        """
        return self._call(self._async.lock(key, wait=wait, strength=strength))

    def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Write a record with the commit. A condition is about the store before the transaction,
        and is checked at the commit, which raises ConditionFailed naming the key; this does when it
        cannot hold, because the transaction itself wrote the key. `ttl_ms` counts from the commit.
        """
        self._call(
            self._async.put(key, value, if_absent=if_absent, if_version=if_version, ttl_ms=ttl_ms)
        )

    def delete(self, key: Bytes, *, if_version: int | None = None) -> None:
        """Remove a record with the commit, also one that is not there."""
        self._call(self._async.delete(key, if_version=if_version))

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
            self._async.scan(
                prefix=prefix, start=start, end=end, reverse=reverse, limit=limit, cursor=cursor
            )
        )


class Transaction(Facade[AsyncTransaction]):
    """An open transaction. `with` commits it at the end of the block and aborts it when the
    block raises. It is for one task, or thread, at a time.
    """

    __slots__ = ()

    @property
    def version(self) -> int | None:
        """The commit version, once committed."""
        return self._async.version

    @property
    def id(self) -> int:
        """The transaction id: `db.status(id)` answers for it whatever happened."""
        return self._async.id

    @property
    def start_ts(self) -> int:
        return self._async.start_ts

    def table(self, ns: str, name: str) -> TransactionTable:
        return TransactionTable(self._portal, self._async.table(ns, name))

    def commit(self) -> int:
        """Make all writes visible at once; the commit version."""
        return self._call(self._async.commit())

    def abort(self) -> None:
        """Forget all writes. A second time, or after a commit, it does nothing."""
        self._call(self._async.abort())

    def heartbeat(self) -> None:
        """Keep a long transaction alive: one that is silent for its ttl_ms is rolled back by
        whoever meets it.
        """
        self._call(self._async.heartbeat())

    def trace(self) -> CommitTrace | None:
        """What its commit cost: messages, round trips and syncs (`print` it). None before the
        commit, over HTTP, and of one that was spilled.
        """
        return self._async.trace()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._async._ended:
            return
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except KvorumError as e:
            error.add_note(f"(the transaction could not be aborted, it will expire: {e})")


class Snapshot(Facade[AsyncSnapshot]):
    """The database as it was at `at`. Close it, or use it in `with`."""

    __slots__ = ()

    @property
    def id(self) -> int:
        """What lists and `kvorum snapshot release` call it."""
        return self._async.id

    @property
    def at(self) -> int:
        return self._async.at

    def table(self, ns: str, name: str) -> SnapshotTable:
        return SnapshotTable(self._portal, self._async.table(ns, name))

    def multi_get(self, keys: Sequence[tuple[str, str, Bytes]]) -> list[Record | None]:
        """The records of many `(namespace, table, key)`."""
        return self._call(self._async.multi_get(keys))

    def close(self) -> None:
        """Let go of it: what only it needed may be collected. A second time it does nothing."""
        self._close(self._async.close(), portal=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except KvorumError as e:
            if error is None:
                raise
            error.add_note(f"(the snapshot could not be released, it will expire: {e})")


class SnapshotTable(Facade[AsyncSnapshotTable]):
    """One table of a snapshot."""

    __slots__ = ()

    def get(self, key: Bytes) -> Record | None:
        return self._call(self._async.get(key))

    def multi_get(self, keys: Sequence[Bytes]) -> list[Record | None]:
        return self._call(self._async.multi_get(keys))

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
            self._async.scan(
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
        """All records of the range, page by page."""
        return all_rows(self.scan, prefix, start, end, reverse=reverse)


class Lock(Facade[AsyncLock]):
    """A lock that is held. Release it, or use it in `with`."""

    __slots__ = ()

    @property
    def id(self) -> int:
        """The procedure that holds it."""
        return self._async.id

    @property
    def resource(self) -> str:
        return self._async.resource

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier holder."""
        return self._async.token

    @property
    def fence(self) -> tuple[str, int]:
        """For `Put` and `Delete`: the batch is refused (FENCED_OFF) once the lock has ended."""
        return self._async.fence

    @property
    def held(self) -> bool:
        """Whether it is held, as far as this process can know."""
        return self._at_loop(lambda: self._async.held)

    def check(self) -> None:
        """Raises Refused (LOCK_LOST) unless it is held."""
        self._at_loop(lambda: self._async.check())

    def release(self) -> None:
        """Give it back; others have it or may have it when this returns. A second time it does
        nothing. What cannot be released expires.
        """
        self._call(self._async.release())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except KvorumError as e:
            if error is None:
                raise
            error.add_note(f"(the lock could not be released, it will expire: {e})")


class Watch(Facade[AsyncWatch]):
    """The events of a table: an iterator without an end. `with` begins it and ends it."""

    __slots__ = ()

    @property
    def position(self) -> int:
        """Every transaction at or below was sent: where another watch goes on. 0 = not begun."""
        return self._async.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._async._closed:
            raise StopIteration
        return self._call(self._async.next())

    def poll(self, timeout_ms: int) -> Event | None:
        """The next event or part, or None if there is none within `timeout_ms`; nothing is lost by
        that. The first one begins the watch.
        """
        return self._call(self._async.poll(timeout_ms))

    def close(self) -> None:
        """End the watch. A second time it does nothing."""
        self._close(self._async.close(), portal=False)

    def __enter__(self) -> Self:
        self._call(self._async.begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ProcedureEvents(Facade[AsyncProcedureEvents]):
    """An iterator that ends with its procedure."""

    __slots__ = ()

    @property
    def position(self) -> int:
        """Of the last one that was given: where another one goes on."""
        return self._async.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ProcedureEvent:
        event = self._call(self._async.next())
        if event is None:
            raise StopIteration
        return event

    def poll(self, timeout_ms: int) -> ProcedureEvent | None:
        """The next one, or None if there is none within `timeout_ms`, or no more (`ended`)."""
        return self._call(self._async.poll(timeout_ms))

    @property
    def ended(self) -> bool:
        """Whether all were given, and no more come."""
        return self._async.ended

    def close(self) -> None:
        """No more are wanted."""
        self._close(self._async.close(), portal=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Database(Facade[AsyncDatabase]):
    """A whole Kvorum database. Close it, or use it in `with`."""

    __slots__ = ()

    def table(self, ns: str, name: str) -> Table:
        """A table by name. Nothing is asked yet: an unknown name is an error of the first
        operation.
        """
        return Table(self._portal, self._async.table(ns, name))

    def batch(self, ops: Sequence[BatchOp]) -> int:
        """Apply `Put`s and `Delete`s all at once or not at all, in any tables; their common
        version.
        """
        return self._call(self._async.batch(ops))

    def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        """Apply each op on its own: its version, or the error that refused it, in order."""
        return self._call(self._async.multi_write(ops))

    def multi_get(
        self, keys: Sequence[tuple[str, str, Bytes]], *, at: int | str | None = None
    ) -> list[Record | None]:
        """The records of many `(namespace, table, key)` at one snapshot."""
        return self._call(self._async.multi_get(keys, at=at))

    def snapshot(
        self, at: int | str | None = None, *, owner: str = "", ttl_ms: int = LEASE_TTL_MS_DEFAULT
    ) -> Snapshot:
        """Everything as it is now, or was at the timestamp `at`, held until it is closed: `with
        db.snapshot() as s`, or `s = db.snapshot()`.

        Nothing that it sees is collected meanwhile; it is renewed by itself, and ends when this
        process is silent for `ttl_ms`. `owner` is shown to whoever lists the snapshots. Raises
        SnapshotTooOld, InvalidArgument for an `at` in the future.
        """
        return Snapshot(
            self._portal, self._begun(self._async.snapshot(at, owner=owner, ttl_ms=ttl_ms))
        )

    def lock(
        self,
        resource: str,
        *,
        exclusive: bool = True,
        ttl_ms: int = LOCK_TTL_MS_DEFAULT,
        wait_ms: int | None = None,
        owner: str = "",
    ) -> Lock:
        """Hold a resource, as procedures do that declare it, until it is released: `with
        db.lock("table/shop/orders") as lock`, or `lock = db.lock(…)`.

        It is kept by heartbeats, and ends when this process is silent for `ttl_ms`; see Lock for
        who writes under it. Waits as long as it takes, or `wait_ms`, then Busy (LOCK_HELD). `owner`
        is for people.
        """
        return Lock(
            self._portal,
            self._begun(
                self._async.lock(
                    resource, exclusive=exclusive, ttl_ms=ttl_ms, wait_ms=wait_ms, owner=owner
                )
            ),
        )

    def snapshots(self) -> list[SnapshotInfo]:
        """Who holds which snapshots, oldest first."""
        return self._call(self._async.snapshots())

    def release_snapshot(self, id: int) -> bool:
        """End a snapshot (another user's needs operate on the cluster); whether it was held."""
        return self._call(self._async.release_snapshot(id))

    def watch(
        self,
        ns: str,
        table: str,
        *,
        from_version: int | None = None,
        prefix: Bytes | None = None,
        heartbeats: bool = False,
    ) -> Watch:
        """The committed transactions that change a table, whole and in commit order: `for event in
        db.watch(…)`, or `with` to end it.

        With versions above `from_version`; 0 sends all rows first; None begins now, at the first
        event that is asked for. `heartbeats`: also events of kind "resolved", every few seconds.
        """
        return Watch(
            self._portal,
            self._async.watch(
                ns, table, from_version=from_version, prefix=prefix, heartbeats=heartbeats
            ),
        )

    def timestamp(self) -> int:
        """A fresh timestamp of the oracle: above every version acknowledged before."""
        return self._call(self._async.timestamp())

    def session_token(self) -> str:
        """What to hand to another process so that it sees everything that was acknowledged to
        anybody until now: `connect(url, session=token)` there. The version of one write will do,
        too, for what was written until then.
        """
        return self._call(self._async.session_token())

    def resume_session(self, token: str | int) -> None:
        """Make sure that everything read from here on is at or above a session token.

        Reads are linearizable, so one comparison with the oracle is all it takes. Raises
        InvalidArgument for what is no token, and for one that this cluster has not come to: it is
        another cluster's, or was restored from before the token.
        """
        self._call(self._async.resume_session(token))

    def transaction(
        self,
        *,
        ttl_ms: int = TXN_TTL_MS_DEFAULT,
        isolation: str = "snapshot",
        owner: str = "",
        priority: str = "normal",
        lock_wait_ms: int | None = None,
    ) -> Transaction:
        """Begin a transaction: `with db.transaction() as t`, or `t = db.transaction()`.
        `isolation`: "snapshot", "serializable", or "read_committed", at which each read sees what
        is committed by then: `lock` what is computed from.

        `owner`: shown to those who wait for it. `priority`: "low", "normal" or "high", its place
        where several wait for a key; of transactions that wait for each other the lowest, then the
        youngest, is given up (TxnAborted, DEADLOCK). `lock_wait_ms`: how long its commit waits for
        others' intents: 0 = not at all (KeyLocked), None = nearly until its deadline.
        """
        return Transaction(
            self._portal,
            self._begun(
                self._async.transaction(
                    ttl_ms=ttl_ms,
                    isolation=isolation,
                    owner=owner,
                    priority=priority,
                    lock_wait_ms=lock_wait_ms,
                )
            ),
        )

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
        """Run `fn` in a transaction and commit it; on a conflict run it again on a new snapshot,
        after a pause. The other arguments are those of `transaction`.

        `fn` may run several times: effects outside the transaction belong after it. `attempts` 0 =
        the default.
        """
        retries = Retries(self._async._rng, attempts)
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
        """Commit, and ask for the outcome when the answer was lost. Raises TxnAborted when it is
        certain.
        """
        self._call(self._async._commit(t._async))

    def status(self, txn: int | str) -> TxnState:
        """What became of a transaction. Always answers, also when its participants were restarted.
        An id may be a decimal string, as errors and HTTP give it.
        """
        return self._call(self._async.status(txn))

    def abort_transaction(self, txn: int | str) -> None:
        """Roll a transaction back, whoever began it and wherever it is open; fine if it was aborted
        already. Raises Refused (TXN_COMMITTED) when it has committed, NotFound (TXN_NOT_FOUND) when
        nothing is known of it: then it holds nothing.
        """
        self._call(self._async.abort_transaction(txn))

    def cluster(self) -> Plain:
        """Its id, its `master` (a node's id, None while there is none), how many `nodes` and
        `partitions` there are, and its `settings` (docs/guides/bus.md).
        """
        return self._call(self._async.cluster())

    def access(self, what: str, args: Mapping[str, object] | None = None) -> Any:
        """Users, groups, tokens and grants: `access("user.create", {"name": "ann"})`; all that
        there is to do: docs/reference/access.md.
        """
        return self._call(self._async.access(what, args))

    def set_settings(self, values: dict[str, int]) -> list[Plain]:
        """Change settings of the running cluster; for each its version, who applies it (`applied`)
        and who has not said so in time (`missing`). Raises InvalidArgument: none was changed.
        """
        return self._call(self._async.set_settings(values))

    def nodes(self) -> list[Plain]:
        return self._call(self._async.nodes())

    def partitions(self) -> list[Plain]:
        return self._call(self._async.partitions())

    def split(self, partition: int, *, at: Bytes | None = None) -> Plain:
        """Split a partition in place at a key of its table, or in the middle: `{"partition",
        "new"}`. Raises Refused (CANNOT_SPLIT), NotFound.
        """
        return self._call(self._async.split(partition, at=at))

    def merge(self, left: int, right: int) -> Plain:
        """Merge two neighbours in place into the lower one: `{"partition", "gone"}`. Raises Refused
        (CANNOT_MERGE), NotFound.
        """
        return self._call(self._async.merge(left, right))

    def locks(self, *, every: bool = False) -> Plain:
        """Who holds which keys and who waits for them, in the whole cluster: `locks` (those that
        are waited for first, then the oldest), `waits`, `missing` (ids of nodes that did not
        answer), `more` (lists were cut). A transaction's keys of one table that nobody waits for
        are one row, whose `keys` counts them; with `every` each has its own.
        """
        return self._call(self._async.locks(every=every))

    def close(self) -> None:
        """Close the connection, or stop the embedded node. Snapshots are released."""
        self._close(self._async.close(), portal=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def namespaces(self) -> list[str]:
        return self._call(self._async.namespaces())

    def namespace(self, name: str) -> NamespaceInfo:
        """What a namespace is. Raises NotFound (NAMESPACE_NOT_FOUND)."""
        return self._call(self._async.namespace(name))

    def create_namespace(
        self,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] = (),
        shard: str = "",
        survive: str = "",
        leaders: str = "",
        exists_ok: bool = False,
    ) -> None:
        """Make a namespace. Its tables have `replicas` and lie in the storage shard `shard`, if
        they do not say otherwise, and need nodes with its `tags` besides their own; so with what
        they `survive` and their `leaders` (see `create_table`). Raises AlreadyExists; with
        `exists_ok` one that is there stays as it is.
        """
        self._call(
            self._async.create_namespace(
                name,
                replicas=replicas,
                tags=tags,
                shard=shard,
                survive=survive,
                leaders=leaders,
                exists_ok=exists_ok,
            )
        )

    def modify_namespace(
        self,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] | None = None,
        shard: str | None = None,
        survive: str | None = None,
        leaders: str | None = None,
    ) -> NamespaceInfo:
        """Change how many replicas (0: everywhere) its tables have that do not say otherwise, which
        tags nodes must carry to have them, the storage shard ("": the default one), what they
        survive ("": nothing) and the labels of their leaders ("": any); what is left out stays. In
        one transaction with what it means for every table, or, if it is refused, not at all.
        """
        return self._call(
            self._async.modify_namespace(
                name, replicas=replicas, tags=tags, shard=shard, survive=survive, leaders=leaders
            )
        )

    def disable_namespace(self, name: str) -> NamespaceInfo:
        """Disable all its tables; none is made in it until it is enabled."""
        return self._call(self._async.disable_namespace(name))

    def enable_namespace(self, name: str) -> NamespaceInfo:
        """It may be used again, with all its tables."""
        return self._call(self._async.enable_namespace(name))

    def drop_namespace(self, name: str) -> None:
        """Remove an empty namespace. Raises Refused while it has tables."""
        self._call(self._async.drop_namespace(name))

    def tables(self, ns: str) -> list[TableInfo]:
        return self._call(self._async.tables(ns))

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
        partition_bytes: int | None = None,
        shard: str = "",
        survive: str = "",
        leaders: str = "",
        exists_ok: bool = False,
    ) -> TableInfo:
        """Make a table; `split_keys` cut it into partitions from the start, and one that grows
        above `partition_bytes` is split (left out: as the cluster's setting says). `shard`: NAME or
        NAME:universal, the storage shard whose files it has at every node. `survive`: server, rack
        or datacenter: the loss of any one stops nothing; replicas are votes then, an odd number
        from 3 on. `leaders`: labels of the nodes that should lead, "dc=eu". Raises AlreadyExists;
        with `exists_ok` one that is there stays as it is, whatever its columns are.
        """
        return self._call(
            self._async.create_table(
                ns,
                name,
                replicas=replicas,
                tags=tags,
                split_keys=split_keys,
                columns=columns,
                primary_key=primary_key,
                partition_bytes=partition_bytes,
                shard=shard,
                survive=survive,
                leaders=leaders,
                exists_ok=exists_ok,
            )
        )

    def disable_table(self, ns: str, name: str) -> TableInfo:
        """Nobody reads or writes it any more (Refused, TABLE_DISABLED), once this returns; its rows
        are kept. Takes some seconds. A table that is disabled already is no error.
        """
        return self._call(self._async.disable_table(ns, name))

    def enable_table(self, ns: str, name: str) -> TableInfo:
        """It may be used again."""
        return self._call(self._async.enable_table(ns, name))

    def modify_table(
        self,
        ns: str,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] | None = None,
        add_columns: Sequence[Column] = (),
        partition_bytes: int | None = None,
        shard: str | None = None,
        survive: str | None = None,
        leaders: str | None = None,
    ) -> TableInfo:
        """Change how many replicas it has (0: as its namespace says, else everywhere), which tags
        nodes must carry to have them, the size above which its partitions are split (0: the
        cluster's), the storage shard ("": its namespace's; every node moves its rows there beside
        what it serves), what it survives and the labels of its leaders ("": its namespace's), and
        add columns; what is left out stays. All of it or, if it is refused, nothing.
        """
        return self._call(
            self._async.modify_table(
                ns,
                name,
                replicas=replicas,
                tags=tags,
                add_columns=add_columns,
                partition_bytes=partition_bytes,
                shard=shard,
                survive=survive,
                leaders=leaders,
            )
        )

    def drop_table(self, ns: str, name: str) -> None:
        """Remove a table and all its records."""
        self._call(self._async.drop_table(ns, name))

    def submit(
        self,
        name: str | Declared,
        args: object = None,
        *,
        nonce: str | None = None,
        queue: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
        at: datetime | int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> int:
        """Start a procedure, by name or by what declares it; its id. The same nonce gives the same
        one as long as it is kept: until it has ended and its result was acknowledged, or
        `retention_ms` after its end (over HTTP nothing is acknowledged). Then the nonce is free,
        and starts another one. Raises Refused (NONCE_REUSED) if the nonce is that of another
        procedure, or of other arguments. `attributes`: by which it can be found (`search`), of
        those that its declaration names.
        """
        return self._call(
            self._async.submit(
                name,
                args,
                nonce=nonce,
                queue=queue,
                priority=priority,
                delay_ms=delay_ms,
                at=at,
                pool=pool,
                attributes=attributes,
            )
        )

    def enqueue(
        self,
        name: str | Declared,
        args: object = None,
        *,
        queue: str = "",
        key: str = "",
        dedup: str = "",
        dedup_ms: int = 0,
        debounce_ms: int = 0,
        debounce_max_ms: int = 0,
        debounce: str = "last",
        needs: Mapping[str, float | str] | None = None,
        nonce: str | None = None,
        priority: int | None = None,
        delay_ms: int = 0,
        at: datetime | int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Enqueued:
        """`submit`, with what queues can do (docs/guides/queues.md); whether an earlier one stands
        for it.

        key          of one key the queue runs one at a time (its `key_concurrent`), in the order of
        submission, and keys take turns dedup        for `dedup_ms` after the first submission with
        this text it is the one; others              start nothing debounce_ms  begin so long after
        the last submission of this key, at most              `debounce_max_ms` after the first,
        with the arguments of the "last" or the              "first" needs        of the worker that
        runs it: amounts and labels
        """
        return self._call(
            self._async.enqueue(
                name,
                args,
                queue=queue,
                key=key,
                dedup=dedup,
                dedup_ms=dedup_ms,
                debounce_ms=debounce_ms,
                debounce_max_ms=debounce_max_ms,
                debounce=debounce,
                needs=needs,
                nonce=nonce,
                priority=priority,
                delay_ms=delay_ms,
                at=at,
                pool=pool,
                attributes=attributes,
            )
        )

    def start(
        self,
        workflow: Workflow[A, T],
        args: A,
        *,
        nonce: str | None = None,
        queue: str = "",
        key: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
        at: datetime | int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Handle[T]:
        """`submit` of a workflow by its function, with the types that its annotations say; the
        handle has its id, and `result(handle)` gives what it returns.
        """
        return self._call(
            self._async.start(
                workflow,
                args,
                nonce=nonce,
                queue=queue,
                key=key,
                priority=priority,
                delay_ms=delay_ms,
                at=at,
                pool=pool,
                attributes=attributes,
            )
        )

    def result(self, handle: Handle[T], *, timeout_ms: int | None = None) -> T:
        """`wait`, for what `start` gave: the result as its type. Raises as `wait` does."""
        return self._call(self._async.result(handle, timeout_ms=timeout_ms))

    def signal(
        self, procedure: int, name: str, payload: object = None, *, key: str | None = None
    ) -> bool:
        """Send a signal to a running procedure; its step takes it with `ctx.receive(name)`. The
        same `key` is sent once (False: it was there already). Raises NotFound, Refused (ENDED).
        """
        return self._call(self._async.signal(procedure, name, payload, key=key))

    def signal_with_start(
        self,
        name: str | Declared,
        args: object = None,
        *,
        nonce: str,
        signal: str,
        payload: object = None,
        key: str | None = None,
        queue: str = "",
        priority: int | None = None,
        pool: str = "",
    ) -> int:
        """Send a signal to the procedure that has this nonce, which is started if there is none, in
        one write with it; its id. To be repeated with the same `nonce` and `key`: it is started
        once, and gets the signal once. Raises as `submit` and `signal` do: Refused (ENDED) while
        one of this nonce is kept that has ended.
        """
        return self._call(
            self._async.signal_with_start(
                name,
                args,
                nonce=nonce,
                signal=signal,
                payload=payload,
                key=key,
                queue=queue,
                priority=priority,
                pool=pool,
            )
        )

    def query(self, procedure: int, name: str, args: object = None) -> Any:
        """What a procedure answers from what it has stored (`@kvorum.query`), whatever it does
        meanwhile, or how it ended. Raises NotFound, InvalidArgument (QUERY_UNKNOWN), Refused,
        Unavailable (no worker that has its code).
        """
        return self._call(self._async.query(procedure, name, args))

    def update(
        self,
        procedure: int,
        name: str,
        args: object = None,
        *,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send an update to a running procedure and wait for what it answers (`ctx.answer`). With
        the same `key` it is carried out once, and gives the same answer. `timeout_ms` left out:
        that of `connect`, else for ever. Raises what it refuses it with, Refused (ENDED: without an
        answer), DeadlineExceeded: then it may still be carried out, ask again with the same key.
        Raises what its validator says of it (UPDATE_REFUSED, or that one's code): then nothing is.
        """
        return self._call(self._async.update(procedure, name, args, key=key, timeout_ms=timeout_ms))

    def events(
        self, procedure: int, *, after: int = 0, name: str = "", follow: bool = True
    ) -> ProcedureEvents:
        """What a procedure emits (`ctx.emit`, `flow.emit`), in order and each once: `for event in
        db.events(id)`. Above position `after`, which is where to go on after a break; only those of
        this `name`. Ends with the procedure; without `follow` once all that is there was given.
        Raises NotFound (PROCEDURE_NOT_FOUND): it is forgotten, and its events with it.
        """
        return ProcedureEvents(
            self._portal, self._async.events(procedure, after=after, name=name, follow=follow)
        )

    def complete(self, token: str, result: object = None, *, error: object = None) -> bool:
        """End what a procedure asked of an outside system (`ctx.external()` gave the token), with a
        result or an error. Raises Refused (ALREADY_COMPLETED: otherwise; ENDED).
        """
        return self._call(self._async.complete(token, result, error=error))

    def set_limit(
        self,
        name: str,
        *,
        kind: str = "queue",
        max_concurrent: int = 0,
        rate_per_s: float = 0,
        rate: str = "",
        burst: int = 0,
        key_concurrent: int = 1,
        key_rate: str = "",
        key_burst: int = 0,
        aging_ms: int = 0,
        weights: Mapping[str, int] | None = None,
    ) -> Plain:
        """Limit how many procedures of a queue (or "type", or "pool") may have begun and not ended,
        and how many begin per second, or `rate`: "100/1h"; 0 = no limit. What is left out is as if
        it had never been set.

        burst                           so many at once after a pause; 0 = one second's worth
        key_concurrent, _rate, _burst   the same of each key of a queue; key_concurrent 0 = any
        number aging_ms                        waiting for so long counts as one priority; 0 = not
        weights                         key → how many turns it has, in place of 1
        """
        return self._call(
            self._async.set_limit(
                name,
                kind=kind,
                max_concurrent=max_concurrent,
                rate_per_s=rate_per_s,
                rate=rate,
                burst=burst,
                key_concurrent=key_concurrent,
                key_rate=key_rate,
                key_burst=key_burst,
                aging_ms=aging_ms,
                weights=weights,
            )
        )

    def queue(self, name: str) -> Plain:
        """What waits in a queue: how many, the oldest, and the same of each key (of the
        QUEUE_KEYS_SHOWN_MAX that have most).
        """
        return self._call(self._async.queue(name))

    def queues(self) -> list[Plain]:
        """Everything that has a limit, or waits for one: how many run, how many wait."""
        return self._call(self._async.queues())

    def versions(self, name: str | Declared | None = None) -> list[Plain]:
        """The versions of procedure types, or of one: how many live procedures each has, its share
        of new ones, which workers have it, and whether these are safe to stop.
        """
        return self._call(self._async.versions(name))

    def set_version(
        self,
        name: str | Declared,
        *,
        default: int | None = None,
        ramp: int | None = None,
        percent: float | None = None,
        drain: int | None = None,
        undrain: int | None = None,
    ) -> Plain:
        """Choose the version that new procedures of a type begin with: the `default` (0 = the
        newest), and `percent` of them with `ramp` (0 = none). `drain`: none begins with this one
        any more; `undrain`: they may again. What is left out stays as it is.
        """
        return self._call(
            self._async.set_version(
                name, default=default, ramp=ramp, percent=percent, drain=drain, undrain=undrain
            )
        )

    def roll_back_version(self, name: str | Declared) -> Plain:
        """New procedures of a type begin with the version that they began with before."""
        return self._call(self._async.roll_back_version(name))

    def move_version(
        self,
        name: str | Declared,
        to: int,
        *,
        from_: int = 0,
        dry_run: bool = False,
        partial: bool = False,
        reason: str = "",
    ) -> Plain:
        """Let live procedures of a type (of version `from_`, 0 = of all others) go on with another
        version, where the rule of `kvorum proc check-upgrade` allows it. Raises Refused
        (NOT_MOVABLE, with their ids): some cannot, and none is moved (`partial`: the others are).
        """
        return self._call(
            self._async.move_version(
                name, to, from_=from_, dry_run=dry_run, partial=partial, reason=reason
            )
        )

    def procedure(
        self, procedure: int, *, wait_ms: int = 0, at: int | str | None = None
    ) -> ProcedureInfo:
        """What a procedure is doing; waits up to `wait_ms` for its end. `at`: what its record said
        then, as `at` of a read; also of one that is forgotten by now. Raises SnapshotTooOld.
        """
        return self._call(self._async.procedure(procedure, wait_ms=wait_ms, at=at))

    def wait(self, procedure: int, *, timeout_ms: int | None = None) -> Any:
        """The result of a procedure, once it has one. `timeout_ms` left out: that of `connect`, if
        one was given there, else for ever. Raises the error that ended it, DeadlineExceeded in
        time: then it goes on.
        """
        return self._call(self._async.wait(procedure, timeout_ms=timeout_ms))

    def acknowledge(self, procedure: int) -> None:
        """Tell that the result was fetched: the procedure may be forgotten."""
        self._call(self._async.acknowledge(procedure))

    def procedures(
        self, *, state: str | None = None, owner: str | None = None, name: str | None = None
    ) -> list[ProcedureInfo]:
        return self._call(self._async.procedures(state=state, owner=owner, name=name))

    def live_records(self) -> list[ProcedureRecord]:
        """The durable records of everything that has not ended. Not over HTTP."""
        return self._call(self._async.live_records())

    def workers(self) -> list[Plain]:
        """The worker processes that are here: pool, slots, what each runs."""
        return self._call(self._async.workers())

    def set_schedule(
        self,
        name: str,
        cron: str | Sequence[str] | None,
        procedure: str | Declared,
        args: object = None,
        *,
        every_ms: int = 0,
        offset_ms: int = 0,
        exclude: str | Sequence[str] = (),
        zone: str = "UTC",
        jitter_ms: int = 0,
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        remaining: int | None = None,
        overlap: str = "allow_all",
        missed: str = "one",
        catch_up_ms: int = 0,
        queue: str = "",
        priority: int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Plain:
        """Start a procedure at the times of a clock, once for each; by its name an existing
        schedule is changed in place: what it did so far, and a pause, stay.

        cron         one expression or several; `every_ms` (from `offset_ms` on): also so often
        exclude      cron expressions of minutes in which nothing starts jitter_ms    each run
        begins up to so much later start, end   not before, not after; `remaining`: so many runs and
        no more overlap      when the run before has not ended: "allow_all", "skip", "buffer_one",
        "buffer_all", "cancel_other", "terminate_other" missed       times at which there was no
        master: "one" (the newest), "all", "skip"; none              older than `catch_up_ms` (0 =
        however old) attributes   by which what it starts can be found (`search`) Raises
        InvalidArgument, NotFound (no such procedure), Busy.
        """
        return self._call(
            self._async.set_schedule(
                name,
                cron,
                procedure,
                args,
                every_ms=every_ms,
                offset_ms=offset_ms,
                exclude=exclude,
                zone=zone,
                jitter_ms=jitter_ms,
                start=start,
                end=end,
                remaining=remaining,
                overlap=overlap,
                missed=missed,
                catch_up_ms=catch_up_ms,
                queue=queue,
                priority=priority,
                pool=pool,
                attributes=attributes,
            )
        )

    def remove_schedule(self, name: str) -> None:
        """Raises NotFound (SCHEDULE_NOT_FOUND). What it started goes on."""
        self._call(self._async.remove_schedule(name))

    def schedules(self) -> list[Plain]:
        """All of them, by name, with the next time and the last run of each."""
        return self._call(self._async.schedules())

    def schedule_times(
        self, name: str, count: int = 10, *, after: datetime | int | None = None
    ) -> list[int]:
        """The next nominal times of a schedule, in ms since 1970. Raises NotFound."""
        return self._call(self._async.schedule_times(name, count, after=after))

    def trigger_schedule(self, name: str, *, overlap: str = "", key: str | None = None) -> Plain:
        """Start what a schedule starts, now, also while it is paused; `started` has its id, unless
        it waits for the run before, or does not run (`overlap`: that of the schedule, if left out).
        The same `key` acts once. Raises NotFound.
        """
        return self._call(self._async.trigger_schedule(name, overlap=overlap, key=key))

    def backfill_schedule(
        self,
        name: str,
        start: datetime | int,
        end: datetime | int,
        *,
        overlap: str = "buffer_all",
        key: str | None = None,
    ) -> Plain:
        """Start what a schedule starts for each of its times from `start` on, before `end`: one
        after the other, if `overlap` does not say otherwise. The same `key` acts once. Raises
        NotFound, TooLarge: then nothing.
        """
        return self._call(self._async.backfill_schedule(name, start, end, overlap=overlap, key=key))

    def pause(self, kind: str, name: str | int, note: str, *, actor: str = "") -> Plain:
        """Let no step begin of a "procedure" (its id), "type", "queue" or "pool", or nothing of a
        "schedule", until `resume`; steps under way come to their end. `note`: why. Raises NotFound,
        Refused (ENDED).
        """
        return self._call(self._async.pause(kind, name, note, actor=actor))

    def resume(self, kind: str, name: str | int, *, actor: str = "") -> None:
        """End a pause. Raises NotFound (NOT_PAUSED)."""
        self._call(self._async.resume(kind, name, actor=actor))

    def pauses(self) -> list[Plain]:
        """Everything that is paused, by whom, since when and why."""
        return self._call(self._async.pauses())

    def abort_procedure(
        self, procedure: int, reason: str, *, dry_run: bool = False, actor: str = ""
    ) -> Answer:
        """Make a procedure fail and roll back. A step under way gets a moment to end; then it is
        not waited for, and what it still writes is refused. Raises Refused (NOT_ABORTABLE).
        """
        return self._call(
            self._async.abort_procedure(procedure, reason, dry_run=dry_run, actor=actor)
        )

    def bypass_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        override: bool = False,
        recursive: bool = False,
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """End a procedure where it stands: nothing more of it runs, nothing is undone, its locks
        end. `override`: also while a step is under way; `recursive`: with all below it. Raises
        Refused (UNDER_WAY, HAS_CHILDREN, NOT_BYPASSABLE).
        """
        return self._call(
            self._async.bypass_procedure(
                procedure,
                reason,
                override=override,
                recursive=recursive,
                dry_run=dry_run,
                actor=actor,
            )
        )

    def retry_procedure(
        self, procedure: int, reason: str, *, step: str = "", dry_run: bool = False, actor: str = ""
    ) -> Answer:
        """Let a procedure go on at once, from `step` if one is given. Raises Refused
        (NOT_RETRYABLE), InvalidArgument (STEP_UNKNOWN).
        """
        return self._call(
            self._async.retry_procedure(procedure, reason, step=step, dry_run=dry_run, actor=actor)
        )

    def reset_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        step: str = "",
        state: Mapping[str, object] | None = None,
        args: object = None,
        undo: str = "undo",
        children: str = "refuse",
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """Have a procedure go on from an earlier step, also one that has ended: `redone`, `kept`,
        `undone` say what that means. Of a workflow: from a call, by its name or its place ("#3").

        state, args  other ones than it has undo         "undo": what it did from there on is undone
        first; "keep": it stays children     "refuse", or "end": those that have not ended are ended
        with it Raises Refused (NOT_RESETTABLE, HAS_CHILDREN), InvalidArgument (STEP_UNKNOWN).
        """
        return self._call(
            self._async.reset_procedure(
                procedure,
                reason,
                step=step,
                state=state,
                args=args,
                undo=undo,
                children=children,
                dry_run=dry_run,
                actor=actor,
            )
        )

    def fork_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        step: str = "",
        state: Mapping[str, object] | None = None,
        args: object = None,
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """Begin a new procedure (`forked`) where another one is, or at a step of it, with its state
        and arguments or others; that one stays as it is. Raises as `reset_procedure` does.
        """
        return self._call(
            self._async.fork_procedure(
                procedure, reason, step=step, state=state, args=args, dry_run=dry_run, actor=actor
            )
        )

    def bulk(
        self,
        what: str,
        reason: str,
        *,
        options: Mapping[str, object] | None = None,
        dry_run: bool = False,
        actor: str = "",
        **wanted: object,
    ) -> Answer:
        """One action on all procedures that fit (`search` has the filters): "abort", "retry",
        "bypass", "reset", "signal" (`options={"name": …, "payload": …}`), "pause", "resume",
        "forget". A durable procedure does it, whose `id` this gives; its result says how many were
        `changed`, `unchanged` and `refused`. `dry_run`: `count`, and the first `items`.
        """
        return self._call(
            self._async.bulk(what, reason, options=options, dry_run=dry_run, actor=actor, **wanted)
        )

    def set_retention(
        self,
        *,
        type: str = "",
        state: str = "",
        keep_ms: int | None = None,
        most: int | None = None,
    ) -> Answer:
        """How long ended procedures of a type (all, if left out) in a state are kept, and how many,
        the newest, instead of what declarations say. The most exact rule counts.
        """
        return self._call(
            self._async.set_retention(type=type, state=state, keep_ms=keep_ms, most=most)
        )

    def remove_retention(self, *, type: str = "", state: str = "") -> None:
        """Raises NotFound (RULE_NOT_FOUND)."""
        self._call(self._async.remove_retention(type=type, state=state))

    def retention(self) -> list[Answer]:
        """All rules."""
        return self._call(self._async.retention())

    def steal_lock(
        self, resource: str, reason: str, *, holder: int = 0, dry_run: bool = False, actor: str = ""
    ) -> Answer:
        """Take a lock from all who hold it, or from one: the next one in the queue gets it, and
        late writes of the old holder are refused. Raises NotFound (LOCK_NOT_HELD).
        """
        return self._call(
            self._async.steal_lock(resource, reason, holder=holder, dry_run=dry_run, actor=actor)
        )

    def search(self, *, limit: int = 100, token: str = "", **wanted: object) -> Answer:
        """Procedures that fit all of this, as long as they are kept: `items` (ProcedureInfo), and a
        `token` with which to ask on; "": these are all. What has not ended comes first, the newest
        first; then what has, the last to end first; by attributes the newest submission first.

        type, state, owner, queue, pool, schedule, parent   (of type and state several, too) error
        the beginning of the error's code, class or message submitted_from, submitted_to,
        ended_from, ended_to  datetimes, or ms since 1970 where            conditions on attributes:
        "customer=ada", ["amount>=100", "city^=New"] Raises InvalidArgument, TooLarge (a range that
        very many fit).
        """
        return self._call(self._async.search(limit=limit, token=token, **wanted))

    def count_procedures(self, **wanted: object) -> Answer:
        """How many fit (see `search`), of each type and state; `more`: of very many not all are
        counted.
        """
        return self._call(self._async.count_procedures(**wanted))

    def explain_procedure(self, procedure: int) -> Answer:
        """What it waits for, since when, and who has it: `sentence`, and `waits` as data."""
        return self._call(self._async.explain_procedure(procedure))

    def replay_procedure(
        self,
        procedure: int,
        code: Declared,
        *,
        step: str = "",
        last: int = 1,
        at: int | str | None = None,
    ) -> Replay:
        """Execute a step again with this code, on the snapshot that it had: what it would write and
        answer, compared with what it did. Nothing is written; effects outside are refused. `step`:
        its newest execution, or the `last`-th from the end, before the moment `at`; left out, of
        any step. Native connections only. Raises NotFound, SnapshotTooOld, Refused
        (NOT_REPLAYABLE).
        """
        return self._call(
            self._async.replay_procedure(procedure, code, step=step, last=last, at=at)
        )

    def audit(self, procedure: int = 0, *, limit: int = 100, before: int = 0) -> list[Plain]:
        """What was done to procedures (or to one), the newest first; `before`: a number."""
        return self._call(self._async.audit(procedure, limit=limit, before=before))

    def sites(self) -> list[Plain]:
        """The links to other clusters, and what each of them does (docs/guides/sites.md)."""
        return self._call(self._async.sites())

    def site_conflicts(self, *, limit: int = 100) -> list[Plain]:
        """The latest keys that two clusters wrote, neither knowing of it, and what was kept."""
        return self._call(self._async.site_conflicts(limit=limit))

    def remove_site(self, site: str, reason: str, *, actor: str = "") -> Answer:
        """End a link: nothing more is taken over, rows stay. Raises NotFound (SITE_NOT_FOUND)."""
        return self._call(self._async.remove_site(site, reason, actor=actor))
