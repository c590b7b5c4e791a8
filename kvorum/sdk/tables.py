"""What a database gives out: tables, snapshots, transactions. Arguments are checked here, once, for
every backend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from kv.base import timestamps
from kv.base.adapters import ago
from kv.base.errors import InvalidArgument, KeyLocked, KvorumError
from kv.base.limits import SCAN_ATTEMPTS_MAX
from kvorum.api.backend import Backend, Session
from kvorum.api.model import (
    LOCK_STRENGTHS,
    LOCK_WAITS,
    Bytes,
    Item,
    Page,
    Record,
    ScanSpec,
    TableKey,
    as_bytes,
    checked_ttl,
    condition,
    user_key,
    user_value,
)
from txn.commit.trace import CommitTrace


def scan_spec(
    prefix: Bytes | None,
    start: Bytes | None,
    end: Bytes | None,
    *,
    reverse: bool,
    limit: int,
    cursor: str | None = None,
    at: int | str | None = None,
) -> ScanSpec:
    """The arguments of a scan, checked."""
    return ScanSpec(
        prefix=None if prefix is None else as_bytes(prefix, "prefix"),
        start=None if start is None else as_bytes(start, "start"),
        end=None if end is None else as_bytes(end, "end"),
        reverse=reverse,
        limit=limit,
        cursor=cursor,
        at=snapshot_at(at),
    )


def snapshot_at(at: int | str | None) -> int:
    """A snapshot timestamp, that of so long ago ("-10s"), or of a time ("2026-01-31 12:00", UTC
    unless it says so); None = the newest. Raises InvalidArgument.
    """
    if at is None:
        return 0
    if isinstance(at, str):
        try:
            at = ago(at) or (int(at) if at.isdecimal() else timestamps.of_time(at)) or at
        except ValueError as e:
            raise InvalidArgument(f"at: {e}") from None
    if type(at) is not int or not 0 < at <= timestamps.MAX:
        raise InvalidArgument(
            "at must be a timestamp or a version, how long ago ('-10s'), or a time "
            f"('2026-01-31 12:00'), got {at!r:.60}"
        )
    return at


async def all_rows(
    scan: Callable[..., Awaitable[Page]],
    prefix: Bytes | None,
    start: Bytes | None,
    end: Bytes | None,
    *,
    reverse: bool,
) -> AsyncIterator[Item]:
    """All records of a scan, page by page; its cursors keep it at one snapshot. A page that is full
    of what dead transactions left is asked for again: every time less of it is there.
    """
    cursor, attempts = None, 0
    while True:
        try:
            page = await scan(prefix=prefix, start=start, end=end, reverse=reverse, cursor=cursor)
        except KeyLocked:
            attempts += 1
            if attempts == SCAN_ATTEMPTS_MAX:
                raise
            continue
        for item in page.items:
            yield item
        cursor, attempts = page.cursor, 0
        if cursor is None:
            return


class AsyncTable:
    """The records of one table."""

    __slots__ = ("_backend", "name", "ns")

    def __init__(self, backend: Backend, ns: str, name: str) -> None:
        self._backend = backend
        self.ns = ns
        self.name = name

    def __repr__(self) -> str:
        return f"<kvorum table {self.ns}.{self.name}>"

    async def get(self, key: Bytes, *, at: int | str | None = None) -> Record | None:
        """The record, or None if there is none. `at` reads the snapshot of that timestamp."""
        return await self._backend.get(self.ns, self.name, user_key(key), snapshot_at(at))

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
        at: int | str | None = None,
    ) -> Page:
        """One page in key order, `[start, end)`; the next one with `cursor=page.cursor`, at the
        same snapshot.
        """
        spec = scan_spec(prefix, start, end, reverse=reverse, limit=limit, cursor=cursor, at=at)
        return await self._backend.scan(self.ns, self.name, spec)

    def rows(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        at: int | str | None = None,
    ) -> AsyncIterator[Item]:
        """All records of the range, page by page, at one snapshot."""
        return all_rows(partial(self.scan, at=at), prefix, start, end, reverse=reverse)

    async def multi_get(
        self, keys: Sequence[Bytes], *, at: int | str | None = None
    ) -> list[Record | None]:
        """The records of many keys at one snapshot, in the order of `keys`."""
        wanted = [TableKey(self.ns, self.name, user_key(k)) for k in keys]
        return (await self._backend.multi_get(wanted, snapshot_at(at)))[0]


def _one_of(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise InvalidArgument(f"{name} is one of {', '.join(known)}, got {given!r:.40}")


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

    async def multi_get(self, keys: Sequence[Bytes]) -> list[Record | None]:
        """`get` of many keys at once, in their order."""
        wanted = [TableKey(self.ns, self.name, user_key(key)) for key in keys]
        return await self._session.multi_get(wanted)

    async def lock(
        self, key: Bytes, *, wait: str = "wait", strength: str = "update"
    ) -> Record | None:
        """Keep others from writing the key until the transaction ends; its record as it is by then,
        or its own write. None: there is none, and nobody may add it. Readers do not wait.

        `wait`, where somebody else has it: "wait", as long as `lock_wait_ms` says; "nowait" raises
        KeyLocked; "skip" locks nothing and gives None. Raises WriteConflict if the record is newer
        than the transaction's snapshot: with `isolation="read_committed"` it never is.

        `strength`: "update", "no key update", "share" or "key share", as SQL's FOR …: any number
        of transactions may share a key. Under "key share" others may put other values there, and
        not delete it. What is written under a shared lock is not checked for what was read.
        """
        _one_of("wait", wait, LOCK_WAITS)
        _one_of("strength", strength, LOCK_STRENGTHS)
        return await self._session.lock(self.ns, self.name, user_key(key), wait, strength)

    async def put(
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
        cond = condition(if_absent, if_version)
        data = user_key(key), user_value(value)
        await self._session.put(self.ns, self.name, *data, cond, checked_ttl(ttl_ms))

    async def delete(self, key: Bytes, *, if_version: int | None = None) -> None:
        """Remove a record with the commit, also one that is not there."""
        cond = condition(False, if_version)
        await self._session.delete(self.ns, self.name, user_key(key), cond)

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
    block raises. It is for one task, or thread, at a time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.version: int | None = None
        """The commit version, once committed."""
        self._ended = False

    def __repr__(self) -> str:
        return f"<kvorum transaction {self.id}>"

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

    def trace(self) -> CommitTrace | None:
        """What its commit cost: messages, round trips and syncs (`print` it). None before the
        commit, over HTTP, and of one that was spilled.
        """
        return self._session.trace()

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
