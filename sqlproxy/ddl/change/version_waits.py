"""Waiting until nobody uses the version of a schema before the last one: the master's side of
`sqlproxy.catalog.declaration_users`.

    await_all   a proxy's row says that it uses the database and has not acknowledged  → look again
                it is silent for SQL_EXPEL_MS                                          → expelled
                it is expelled, for SQL_SETTLE_MS                                      → removed
                SQL_SETTLE_MS are over, and nobody was expelled here                   → go on

The last line is what holds without any list: what was looked up before the change is too old to be
used by then (docs/decisions/1013). All times are of this process's monotonic clock: a new master
waits from the beginning, where those that acknowledged are not waited for again.

A table that somebody writes without SQL (`catalog.claim`) is waited for by time: such writers look
its name up, and remember it (CATALOG_TTL_S), in whatever process they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kv.base import ops, system
from kv.base.errors import KvorumError
from kv.base.ids import TableId
from kv.base.keys import successor, table_prefix
from kv.base.limits import (
    SCAN_ROWS_MAX,
    SQL_EXPEL_MS,
    SQL_POLL_SOON_MS,
    SQL_SETTLE_MS,
    SQL_SETTLE_NATIVE_MS,
)
from kv.base.ports import Timers
from sqlproxy.catalog import catalog, declaration_users
from sqlproxy.catalog.declaration_users import Row
from sqlproxy.rows.naming import database_of
from txn.results import ScanPage
from txn.shared.deadlines import sleep

_SLOWER_S: Final = 0.5  # after it, it is asked less often
_SLOW_MS: Final = 100

Progress = Callable[[str], None]


class Store(declaration_users.Store, Protocol):
    """What is needed of `txn.client.TxnClient`."""

    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage: ...


class Settled:
    """See the module. Without a `store` all waits are by time."""

    def __init__(self, timers: Timers, store: Store | None = None) -> None:
        self._timers, self._store = timers, store

    async def proxies(self, database: str, progress: Progress = lambda _text: None) -> None:
        """Until nobody uses, nor can commit, what was bound below the version of the database (or
        of the one that has this namespace) that
        was last said to be awaited. `progress` gets whom it waits for. Raises KvorumError.
        """
        if self._store is None:
            await sleep(self._timers, SQL_SETTLE_MS / 1000)
            return
        await _Wait(self._timers, self._store, database_of(database), progress).run()

    async def native_writers(self, table: TableId) -> None:
        """Until nobody writes to the table without SQL: it has rules since the last version."""
        if self._store is None:
            return
        key = catalog.claim_key(table)
        value, _ = await self._store.get(key)
        if value is not None:
            await sleep(self._timers, SQL_SETTLE_NATIVE_MS / 1000)
            await self._store.write([ops.delete(key)])


@dataclass(frozen=True, slots=True)
class _Late:
    """A row that has not acknowledged, as it is since then."""

    key: bytes
    row: Row
    version: int
    since: float


class _Wait:
    def __init__(self, timers: Timers, store: Store, database: str, progress: Progress) -> None:
        self._timers, self._store = timers, store
        self._database, self._progress = database, progress
        self._began = timers.monotonic()
        self._late: dict[bytes, _Late] | None = None

    async def run(self) -> None:
        version = await self._awaited()
        while True:
            rows = await self._waiting(version)
            since = self._timers.monotonic() - self._began
            late = [one for one in rows if not one.row.expelled or not self._over(one)]
            gone_by = since * 1000 >= SQL_SETTLE_MS and not any(o.row.expelled for o in late)
            if not late or gone_by:
                await self._remove(rows)
                return
            self._progress(f"waits for {len(late)} of the SQL proxies")
            await self._expel(late)
            soon = since < _SLOWER_S
            await sleep(self._timers, (SQL_POLL_SOON_MS if soon else _SLOW_MS) / 1000)

    async def _awaited(self) -> int:
        key = catalog.schema_key(self._database)
        value, _ = await self._store.get(key)
        return catalog.schema_row(key, value)[1]

    async def _waiting(self, version: int) -> list[_Late]:
        """The rows that have not acknowledged. Who announced itself since this began, or was back
        since then, has looked since then.
        """
        prefix = table_prefix(system.PROXIES)
        start: bytes | None = prefix
        found: dict[bytes, _Late] = {}
        now = self._timers.monotonic()
        while start is not None:
            page = await self._store.scan(start, successor(prefix), limit=SCAN_ROWS_MAX)
            for key, value, at in page.items:
                row = declaration_users.decoded(key, value)
                if row.using.get(self._database, version) < version:
                    if self._late is None:
                        found[key] = _Late(key, row, at, now)
                    elif (before := self._late.get(key)) is not None:
                        found[key] = before if before.version == at else _Late(key, row, at, now)
            start = page.resume
        self._late = found
        return list(found.values())

    def _silent_ms(self, one: _Late) -> float:
        return (self._timers.monotonic() - one.since) * 1000

    def _over(self, one: _Late) -> bool:
        """What it looked up before it was expelled is too old to be used."""
        return self._silent_ms(one) >= SQL_SETTLE_MS

    async def _expel(self, late: list[_Late]) -> None:
        """Who lives comes back at once; nobody waits again for the others."""
        for one in late:
            if not one.row.expelled and self._silent_ms(one) >= SQL_EXPEL_MS:
                value = declaration_users.encoded(replace(one.row, expelled=True))
                await self._unless_changed(ops.put(one.key, value, one.version))

    async def _remove(self, rows: list[_Late]) -> None:
        for one in rows:
            if one.row.expelled:
                await self._unless_changed(ops.delete(one.key, one.version))

    async def _unless_changed(self, op: ops.Op) -> None:
        with suppress(KvorumError):  # the next look tells
            await self._store.write([op])
