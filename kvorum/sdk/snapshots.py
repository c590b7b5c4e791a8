"""Snapshots that a user holds: every read through one sees the same state, however long it takes.

    async with db.snapshot(owner="nightly export") as s:
        async for item in s.table("app", "users").rows(): ...

A lease at the leader of the meta partition (tso/leases.py) keeps the versions that it reads from
being collected. A task of the snapshot's renews the lease; it ends with `close`, with the database,
or when nobody refers to the snapshot any more. If the owner's process dies, the lease ends ttl_ms
later by itself.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, Self

from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kv.base.limits import LEASE_TTL_MS_MAX, OWNER_CHARS_MAX
from kvorum.api.backend import Backend
from kvorum.api.model import Bytes, Item, Page, Record, SnapshotInfo, TableKey, user_key
from kvorum.sdk.tables import AsyncTable, all_rows

_RENEWALS_PER_TTL: Final = 3  # so that one that fails can be tried again in time


class Holder:
    """The leases of one database object, each with the task that renews it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def hold(self, info: SnapshotInfo) -> AsyncSnapshot:
        """The snapshot of a lease, which is kept alive from now on."""
        snapshot = AsyncSnapshot(self._backend, info, self)
        keep = self._keep(weakref.ref(snapshot), info)
        task = asyncio.get_running_loop().create_task(keep, name=f"snapshot-{info.id}")
        self._tasks[info.id] = task
        task.add_done_callback(lambda _task: self._tasks.pop(info.id, None))
        return snapshot

    async def _keep(self, held: weakref.ref[AsyncSnapshot], info: SnapshotInfo) -> None:
        """Renew the lease while somebody refers to the snapshot."""
        pause_s = info.ttl_ms / 1000 / _RENEWALS_PER_TTL
        while True:
            await asyncio.sleep(pause_s)
            try:
                if held() is None:
                    await self._backend.release_snapshot(info.id)
                    return
                await self._backend.renew_snapshot(info.id)
            except NotFound:
                return  # ended: reads say so once what they need was collected
            except KvorumError:
                continue  # it may be there in the next round

    async def release(self, id: int) -> None:
        """Hold it no more. A second time it does nothing."""
        task = self._tasks.pop(id, None)
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        await self._backend.release_snapshot(id)

    async def close(self) -> None:
        """Release everything; what cannot be reached expires."""
        for id in list(self._tasks):
            try:
                await self.release(id)
            except KvorumError:
                continue


class AsyncSnapshot:
    """The database as it was at `at`. Close it, or use it in `async with`."""

    __slots__ = ("__weakref__", "_backend", "_holder", "info")

    def __init__(self, backend: Backend, info: SnapshotInfo, holder: Holder) -> None:
        self._backend = backend
        self._holder = holder
        self.info = info

    def __repr__(self) -> str:
        return f"<kvorum snapshot at {self.at}>"

    @property
    def id(self) -> int:
        """What lists and `kvorum snapshot release` call it."""
        return self.info.id

    @property
    def at(self) -> int:
        return self.info.at

    def table(self, ns: str, name: str) -> AsyncSnapshotTable:
        return AsyncSnapshotTable(AsyncTable(self._backend, ns, name), self)

    async def multi_get(self, keys: Sequence[tuple[str, str, Bytes]]) -> list[Record | None]:
        """The records of many `(namespace, table, key)`."""
        wanted = [TableKey(ns, table, user_key(k)) for ns, table, k in keys]
        return (await self._backend.multi_get(wanted, self.at))[0]

    async def close(self) -> None:
        """Let go of it: what only it needed may be collected. A second time it does nothing."""
        await self._holder.release(self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except KvorumError as e:
            if error is None:
                raise
            error.add_note(f"(the snapshot could not be released, it will expire: {e})")


def checked_owner(owner: object) -> str:
    """Who holds a snapshot, for people. Raises InvalidArgument."""
    if not isinstance(owner, str) or len(owner) > OWNER_CHARS_MAX:
        raise InvalidArgument(
            f"owner must be text of at most {OWNER_CHARS_MAX} characters, got {owner!r:.60}"
        )
    return owner


def checked_lease_ttl(ttl_ms: object) -> int:
    """After how long a silence it ends. Raises InvalidArgument."""
    if type(ttl_ms) is not int or not 0 < ttl_ms <= LEASE_TTL_MS_MAX:
        raise InvalidArgument(f"ttl_ms must be 1 to {LEASE_TTL_MS_MAX}, got {ttl_ms!r}")
    return ttl_ms


class AsyncSnapshotTable:
    """One table of a snapshot."""

    __slots__ = ("_at", "_snapshot", "_table")

    def __init__(self, table: AsyncTable, snapshot: AsyncSnapshot) -> None:
        self._table = table
        self._at = snapshot.at
        self._snapshot = snapshot  # who reads holds it

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
        """All records of the range, page by page."""
        return all_rows(self.scan, prefix, start, end, reverse=reverse)
