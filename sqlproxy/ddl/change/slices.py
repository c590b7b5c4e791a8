"""A step's rows of a backfill, cut into slices.

A slice (`sqlproxy.ddl.change.backfill`) reads rows, which says where the next one begins, and
writes their entries as of that snapshot, or where that may not be in a transaction. A step is done
when all of its slices are: its cursor never passes a row that has no entry.

While nobody else uses the loop, several slices are under way at once, as each waits for the disk
most of the time. Beside others there is one, and a rest, longer than a statement takes, between its
parts: rows are read, entries made, sent and logged, applied. Who reads a row meanwhile waits for
one part, not for all of them.

Invariants (docs/decisions/1063, 1072, 1146)
  * every key between a step's start and where the next one goes on is in the range of one slice,
    however often that runs again and whatever came into it meanwhile;
  * while others use the loop, slices are small, one part of one slice is done at a time, and as
    many are as leave others most of the loop;
  * else slices are large and nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, Protocol, TypeVar

from kv.base.errors import ConditionFailed, Corruption, KvorumError
from kv.base.keys import table_range
from kv.base.limits import (
    LOOP_LOOK_MS,
    SQL_BACKFILL_ROWS,
    SQL_REST_MS_MAX,
    SQL_SLICE_ROWS,
    SQL_SLICE_ROWS_MAX,
    SQL_SLICES_IN_FLIGHT,
)
from kv.base.ports import Timers
from sqlproxy.ddl.change.backfill import entries, entries_of, fewer, hold, lacking, put_entries
from sqlproxy.rows.schema import Index, Table
from txn.results import ScanPage
from txn.shared.deadlines import others_use, sleep
from txn.transaction import Transaction

T = TypeVar("T")

_LOOKS: Final = 2  # in a row that find nobody, before a step has the loop for itself, …
_LOOKS_MAX: Final = 10  # … of so many
_WHOLE: Final = 10.0  # what a slice costs the loop, measured, by what it takes to make its entries
_SHARE: Final = 0.1  # of the loop, beside others
_RESTS: Final = 3  # in a slice: rows were read, entries made, applied; a sync is one by itself


class Store(Protocol):
    """What is needed of `txn.client.TxnClient`."""

    async def run(self, fn: Callable[[Transaction], Awaitable[T]]) -> T: ...

    async def ingest(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, at: int, unique: bool
    ) -> int: ...

    async def scan(self, start: bytes, end: bytes, *, limit: int, at: int = 0) -> ScanPage: ...

    async def multi_get(
        self, keys: Sequence[bytes], at: int = 0
    ) -> tuple[list[tuple[bytes, int] | None], int]: ...


class Pace:
    """How many rows a slice has, and when the next part of one begins. `loop_s`: seconds that the
    loop has used of a processor. `tries`: how often the step was begun in vain.
    """

    def __init__(self, timers: Timers, loop_s: Callable[[], float], tries: int) -> None:
        self._timers, self._loop_s = timers, loop_s
        self._tries = tries
        self._due = timers.monotonic()
        self._began = 0.0
        self._rest_s = SQL_REST_MS_MAX / 1000 / _RESTS  # … until a slice was measured
        self.busy = True

    @property
    def rows(self) -> int:
        return fewer(SQL_SLICE_ROWS if self.busy else SQL_SLICE_ROWS_MAX, self._tries)

    async def look(self) -> None:
        """Whether others use the loop; while no slice is under way. What the slices before have
        left to do after their commits is no other's, and soon over.
        """
        nobody = 0
        for _ in range(_LOOKS_MAX):
            self.busy = await others_use(self._timers, self._loop_s, LOOP_LOOK_MS)
            nobody = 0 if self.busy else nobody + 1
            if nobody == _LOOKS:
                return
        self.busy = True

    def begins(self) -> None:
        """Entries of a slice are made from now on, …"""
        self._began = self._loop_s()

    def made(self) -> None:
        """… and are made, in one go."""
        slice_s = (self._loop_s() - self._began) * _WHOLE
        self._rest_s = min(slice_s / _SHARE, SQL_REST_MS_MAX / 1000) / _RESTS
        self.rests()

    def rests(self) -> None:
        """A part of a slice is done: the next one has to wait."""
        self._due = self._timers.monotonic() + self._rest_s

    async def turn(self) -> None:
        """Wait until the next part of a slice may begin."""
        if self.busy and (left := self._due - self._timers.monotonic()) > 0:
            await sleep(self._timers, left)


async def in_slices(
    store: Store, pace: Pace, table: Table, index: Index, at: bytes
) -> tuple[int, bytes | None]:
    """How many rows from `at` on got their entries, and where to go on. Raises KvorumError: 23505,
    of the first such row, or what a transaction ends with.
    """
    filling = _Filling(store, pace, table, index, at)
    await filling.run()
    return filling.count, filling.at


async def checked_in_slices(
    store: Store, pace: Pace, table: Table, index: Index, at: bytes, as_of: int
) -> tuple[bool, bytes | None]:
    """Whether the rows from `at` on had their entries at that time, and where to go on; those that
    had none have got them. Raises KvorumError: 23505, SnapshotTooOld, as `in_slices`.
    """
    filling = _Filling(store, pace, table, index, at, as_of)
    await filling.run()
    return filling.whole, filling.at


class _Filling:
    """A step under way. `as_of`: of a check."""

    def __init__(
        self, store: Store, pace: Pace, table: Table, index: Index, at: bytes, as_of: int = 0
    ) -> None:
        self._store, self._pace, self._table, self._index = store, pace, table, index
        self._as_of, self.whole = as_of, True
        self._end = table_range(table.id)[1]
        self._cutting = asyncio.Lock()  # held until it is known where the next slice begins
        self.at: bytes | None = at  # … which is here
        self.count = 0
        self.errors: list[tuple[bytes, KvorumError]] = []  # by where their slices began

    async def run(self) -> None:
        await self._pace.look()
        async with asyncio.TaskGroup() as group:
            for _ in range(SQL_SLICES_IN_FLIGHT):
                group.create_task(self._work())
        if self.errors:
            raise min(self.errors, key=itemgetter(0))[1]

    async def _work(self) -> None:
        """One slice after the other. None is left half done when another one fails: who takes the
        index back finds nobody who still writes into it.
        """
        while True:
            await self._cutting.acquire()
            cut = _Cut(self._cutting)
            try:
                if self.at is None or self.errors or self.count >= SQL_BACKFILL_ROWS:
                    return
                await self._slice(self.at, cut)
            except KvorumError as error:
                self.errors.append((cut.start, error))
            finally:
                cut.release()

    async def _slice(self, start: bytes, cut: _Cut) -> None:
        at: bytes | None = start
        cut.start = start
        if self._as_of and await self._has_all(start, cut):
            return
        fill = self._ingest
        while at is not None and at != cut.end:
            await self._pace.turn()
            try:
                at = await self._store.run(partial(fill, at, cut))
            except ConditionFailed:  # of a unique index: a key may be another row's
                fill = self._put
            except Corruption:
                if fill == self._put:
                    raise
                fill = self._put  # it has the rows' keys, and says which one is damaged
            self._pace.rests()

    async def _has_all(self, at: bytes, cut: _Cut) -> bool:
        """Whether all rows of the slice had their entries."""
        await self._pace.turn()
        end, rows = cut.end or self._end, self._pace.rows
        found = await self._store.scan(at, end, limit=rows, at=self._as_of)
        await self._found(cut, len(found.items), found.resume)
        if not found.items:
            return True
        self._pace.begins()
        wanted = entries(self._table, self._index, found.items)
        self._pace.made()
        await self._pace.turn()
        there, _ = await self._store.multi_get(list(wanted), self._as_of) if wanted else ([], 0)
        whole = not lacking(self._table, self._index, wanted, there)
        self.whole = self.whole and whole
        self._pace.rests()
        return whole

    async def _ingest(self, at: bytes, cut: _Cut, t: Transaction) -> bytes | None:
        """Entries as of the snapshot. Raises ConditionFailed: no word of who has a unique key."""
        found = await t.scan_values(at, cut.end or self._end, limit=self._pace.rows)
        assert found is not None, "it wrote nothing itself"
        values, resume = found
        await self._found(cut, len(values), resume)
        self._pace.begins()
        wanted = entries_of(self._table, self._index, values)
        keys = sorted(wanted)
        made = [wanted[key] for key in keys]
        self._pace.made()
        await self._pace.turn()
        if keys:
            await self._store.ingest(keys, made, at=t.start_ts, unique=self._index.unique)
        return resume

    async def _put(self, at: bytes, cut: _Cut, t: Transaction) -> bytes | None:
        """Entries in a transaction, held to what it read."""
        found = await t.scan(at, cut.end or self._end, limit=self._pace.rows)
        await self._found(cut, len(found.items), found.resume)
        if found.items:
            hold(t, found.items)
            self._pace.begins()
            wanted = entries(self._table, self._index, found.items)
            self._pace.made()
            await self._pace.turn()
            await put_entries(t, self._table, self._index, wanted)
        return found.resume

    async def _found(self, cut: _Cut, count: int, resume: bytes | None) -> None:
        """Rows were read. The first look of a slice says where it ends; a run after a conflict
        stays in its range.
        """
        if not cut.end:
            cut.end = resume or self._end
            self.at = resume
            self.count += count
            if not self._pace.busy:
                cut.release()
        self._pace.rests()
        await self._pace.turn()


class _Cut:
    """The range of a slice, and the right to say where it ends."""

    def __init__(self, cutting: asyncio.Lock) -> None:
        self._cutting: asyncio.Lock | None = cutting
        self.start = self.end = b""

    def release(self) -> None:
        """The next slice may begin; fine twice."""
        cutting, self._cutting = self._cutting, None
        if cutting is not None:
            cutting.release()
