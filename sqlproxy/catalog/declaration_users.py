"""Who uses which declarations: a proxy says so in the store, and a schema change waits for exactly
those, and no longer than they need (Q2; docs/decisions/1023).

    PROXIES   esc(proxy)   sealed [1, {database: acknowledged version}, expelled]

A proxy (a process that serves SQL) writes its row before it looks at the declarations of a database
for the first time, and reads the row with every look, in one snapshot. So whoever looked is in the
list. It asks every SQL_POLL_MS whether a change waits, then:

    nothing older is handed out from now on     (`floor`)
    what is bound to older versions ends        statements, and young commits (`Use`, `Fence`)
    the row says which version that was         the change goes on when all rows say so

The waiting side is `sqlproxy.ddl.change.version_waits`. It expels who is silent; who finds its row
expelled or gone announces itself anew before it looks again. A look from before is too old to be
used SQL_SETTLE_MS later, whoever made it, so that is how long a change waits at most.

A proxy that nobody asks for SQL_LEAVE_MS signs off and costs nothing until its next client. One
that is killed leaves its row; the first change expels it. A process that begins under the same name
takes the row over, with what the one before may have sent and nobody has answered: it acknowledges
nothing newer than that one did for as long as a commit may be under way. No two processes have one
name at a time, so a row that is there when a process writes its first one is of one that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kv.base import ops, system
from kv.base.errors import KvorumError
from kv.base.keys import escape, table_prefix
from kv.base.limits import (
    SQL_COMMIT_MS_MAX,
    SQL_FENCE_MS,
    SQL_LEAVE_MS,
    SQL_POLL_MS,
    SQL_POLL_SOON_MS,
    SQL_SOON_MS,
)
from kv.base.ports import Timers
from sqlproxy.catalog import catalog
from sqlproxy.rows import records
from txn.shared.deadlines import Background, sleep

NO_FLOOR: Final = -1
Saw = Callable[[str, int, float], Awaitable[bool]]
"""(database, its schema version, when that was asked for on the monotonic clock)"""


@dataclass(frozen=True, slots=True)
class Row:
    """What a proxy says of itself."""

    proxy: bytes
    using: dict[str, int]
    expelled: bool = False


def row_key(proxy: bytes) -> bytes:
    return table_prefix(system.PROXIES) + escape(proxy)


def encoded(row: Row) -> bytes:
    """The stored value."""
    return records.sealed(row_key(row.proxy), [records.FORMAT, row.proxy, row.using, row.expelled])


def decoded(key: bytes, value: bytes) -> Row:
    """Raises Corruption."""
    _, proxy, using, expelled = records.opened(key, value)
    return Row(proxy, dict(using), bool(expelled))


class Store(Protocol):
    """What is needed of `txn.client.TxnClient`."""

    async def multi_get(
        self, keys: Sequence[bytes]
    ) -> tuple[list[tuple[bytes, int] | None], int]: ...

    def write(self, ops: Sequence[ops.Op]) -> Awaitable[int]: ...


class Use:
    """A statement that is bound to a version and has not taken its snapshot yet, or has sent its
    change already.
    """

    __slots__ = ("_bound", "_of")

    def __init__(self, of: Presence | None, database: str, version: int) -> None:
        """`of` None: nobody waits for it."""
        self._of, self._bound = of, (database, version)
        if of is not None:
            uses = of.uses
            uses[self._bound] = uses.get(self._bound, 0) + 1

    def end(self, *, unknown: bool = False) -> None:
        """It reads a snapshot now, its change is known to the fence, or it is over; fine twice.
        `unknown`: its change may still be under way.
        """
        of, self._of = self._of, None
        if of is None:
            return
        uses = of.uses
        if (left := uses[self._bound] - 1) > 0:
            uses[self._bound] = left
        else:
            del uses[self._bound]
        if unknown:
            of.lingers(*self._bound)

    def __del__(self) -> None:
        self.end()  # of a portal that nobody closed


class Young(Protocol):
    """A fence (sqlproxy.catalog.fence) with changes that are not committed yet."""

    database: str

    def binds(self, version: int) -> bool:
        """Whether it may still commit, unfenced, what was bound below this version."""
        ...


@dataclass
class _Database:
    acknowledged: int = 0
    floor: int = NO_FLOOR  # nothing older is used from now on
    unknown: list[tuple[int, float]] = field(default_factory=list)  # version, until when


class Presence:
    """See the module. Of one process. `proxy`: its name; no two processes have the same one at a
    time. `close` ends it.
    """

    def __init__(self, store: Store, timers: Timers, proxy: bytes) -> None:
        self._store, self._timers = store, timers
        self._proxy = proxy
        self._there: dict[str, _Database] = {}
        self.uses: dict[tuple[str, int], int] = {}  # how many, by database and version
        self._fences: set[Young] = set()
        self._writing = asyncio.Lock()
        self._background = Background()
        self._polling = self._began = False
        self._looked = self._soon = float("-inf")
        self._forget: Callable[[str], None] = lambda _database: None
        self._saw: Saw | None = None

    def tell(self, forget: Callable[[str], None], saw: Saw) -> None:
        """`forget` gets databases whose declarations are to be looked at again; `saw` what
        was read on the way, as `look` would read it: whether somebody uses that.
        """
        self._forget, self._saw = forget, saw

    # -- for who looks

    async def look(self, database: str) -> int:
        """The schema version of the database, read while this proxy's row said that it is used.
        Raises KvorumError.
        """
        self._looked = self._timers.monotonic()
        while True:
            if database not in self._there:
                await self._announce(database)
            versions = await self._read([database])
            if versions is not None:
                self._poll()
                return versions[0][0]

    def floor(self, database: str) -> int:
        """Declarations of a lower version may not be used any more."""
        there = self._there.get(database)
        return NO_FLOOR if there is None else there.floor

    def acknowledged(self, database: str) -> int:
        """The version that a change learnt, or is about to learn, that all here use."""
        there = self._there.get(database)
        return 0 if there is None else there.acknowledged

    def bound(self, fence: Young) -> None:
        """It holds changes from now on."""
        self._fences.add(fence)

    def released(self, fence: Young, *, unknown: int | None = None) -> None:
        """They are committed or gone; `unknown`: nobody knows, and this is what they were bound
        to.
        """
        self._fences.discard(fence)
        if unknown is not None:
            self.lingers(fence.database, unknown)

    def lingers(self, database: str, version: int) -> None:
        """A commit that was bound to this version may be under way as long as one may be."""
        there = self._there.get(database)
        if there is not None:
            until = self._timers.monotonic() + (SQL_FENCE_MS + SQL_COMMIT_MS_MAX) / 1000
            there.unknown.append((version, until))

    # -- the row

    async def _announce(self, database: str) -> None:
        async with self._writing:
            if database not in self._there:
                there = {**await self._taken_over(), **self._there}
                there.setdefault(database, _Database())
                await self._write(there)
                self._there, self._began = there, True

    async def _taken_over(self) -> dict[str, _Database]:
        """What the process before this one left under its name."""
        if self._began:
            return {}
        key = row_key(self._proxy)
        (found,), _ = await self._store.multi_get([key])
        if found is None:
            return {}
        until = self._timers.monotonic() + SQL_COMMIT_MS_MAX / 1000
        return {
            name: _Database(acknowledged=version, unknown=[(version, until)])
            for name, version in decoded(key, found[0]).using.items()
        }

    async def _write(self, there: dict[str, _Database]) -> None:
        using = {name: one.acknowledged for name, one in there.items()}
        row = Row(self._proxy, using)
        await self._store.write([ops.put(row_key(self._proxy), encoded(row))])

    async def _read(self, databases: Sequence[str]) -> list[tuple[int, int]] | None:
        """(version, the version that a change waits for) of each; None: the row was not what it
        should be, and is written again.
        """
        key = row_key(self._proxy)
        keys = [key, *(catalog.schema_key(name) for name in databases)]
        found, _ = await self._store.multi_get(keys)
        row = None if found[0] is None else decoded(key, found[0][0])
        if row is None or row.expelled or not set(databases) <= row.using.keys():
            async with self._writing:
                await self._write(self._there)
            return None
        return [
            catalog.schema_row(at, None if one is None else one[0])
            for at, one in zip(keys[1:], found[1:], strict=True)
        ]

    # -- acknowledging

    def _poll(self) -> None:
        if not self._polling and not self._background.closed:
            self._polling = True
            self._background.spawn(self._run(), "sql presence")

    def hurry(self) -> None:
        """A change was asked for here: it will wait for this proxy soon."""
        self._soon = self._timers.monotonic() + SQL_SOON_MS / 1000

    async def _run(self) -> None:
        try:
            while not await self._left():
                soon = self._timers.monotonic() < self._soon
                await sleep(self._timers, (SQL_POLL_SOON_MS if soon else SQL_POLL_MS) / 1000)
                try:
                    await self.poll()
                except KvorumError:
                    self._soon = float("-inf")  # the store is away: no hurry
        finally:
            self._polling = False

    async def poll(self) -> None:
        """Acknowledge what can be. Raises KvorumError."""
        databases, asked = list(self._there), self._timers.monotonic()
        versions = await self._read(databases) if databases else None
        if versions is None:
            return
        changed = False
        for name, (_, awaited) in zip(databases, versions, strict=True):
            there = self._there.get(name)
            if there is None or awaited <= there.acknowledged:
                continue
            self.hurry()
            if there.floor < awaited:
                there.floor = awaited
                self._forget(name)
            if self._drained(name, there, awaited):
                there.acknowledged = awaited
                changed = True
        if changed:
            async with self._writing:
                await self._write(self._there)
        if self._saw is not None:
            for name, (version, _) in zip(databases, versions, strict=True):
                if name in self._there and await self._saw(name, version, asked):
                    self._looked = asked

    def _drained(self, name: str, there: _Database, version: int) -> bool:
        """Whether nothing here uses, or may still commit, what is older."""
        now = self._timers.monotonic()
        there.unknown = [(v, until) for v, until in there.unknown if until > now]
        return not (
            any(v < version for v, _ in there.unknown)
            or any(database == name and v < version for database, v in self.uses)
            or any(one.database == name and one.binds(version) for one in self._fences)
        )

    # -- the end

    async def _left(self) -> bool:
        """Whether nobody asked for so long that the row was removed."""
        idle_ms = (self._timers.monotonic() - self._looked) * 1000
        if self._background.closed:
            return True
        if idle_ms < SQL_LEAVE_MS or self.uses or self._fences:
            return False
        await self._sign_off()
        return not self._there  # somebody may have come meanwhile

    async def _sign_off(self) -> None:
        now = self._timers.monotonic()
        async with self._writing:
            if any(until > now for one in self._there.values() for _, until in one.unknown):
                return
            self._there = {}  # who looks from now on announces itself after this
            try:
                await self._store.write([ops.delete(row_key(self._proxy))])
            except KvorumError:
                return  # it will be expelled

    async def close(self) -> None:
        """Sign off, when all sessions are closed."""
        await self._background.drain(0)
        if self._there:
            await self._sign_off()
