"""Statistics of tables: made by ANALYZE, and by themselves where much was changed; stored, so that
all nodes have them; read when a statement asks.

    STATISTICS  0 u32 table     sealed [1, rows, bytes, ms, version]
                1 u32 table     sealed [1, …] as sqlproxy.tables.statistics has them

Sessions count what they change (`changed`, no more than an addition). Every ten seconds, if there
is something, a task looks which tables have changed by 50 rows and a tenth, and samples these, one
after the other, with breaks. A process whose table somebody else has looked at meanwhile counts
anew. Larger tables than SQL_STATISTICS_ROWS_MAX are sampled by ANALYZE alone.

Statistics may be old, or missing: nothing but the choice of a way depends on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from kv.base.errors import KvorumError
from kv.base.ids import TableId
from kv.base.keys import table_range
from kv.base.limits import (
    SQL_SCAN_ROWS,
    SQL_STATISTICS_CHANGES_MIN,
    SQL_STATISTICS_KEPT_MAX,
    SQL_STATISTICS_PERIOD_MS,
    SQL_STATISTICS_ROWS_MAX,
    SQL_STATISTICS_SAMPLE_BYTES,
    SQL_STATISTICS_SAMPLE_ROWS,
)
from kv.base.ports import Clock
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import HEADS_OF_STATISTICS, STATISTICS_END, statistics_keys
from sqlproxy.rows import records
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import PUBLIC, Table
from sqlproxy.tables.statistics import PAGE_BYTES, TableStatistics, from_row, gathered, to_row
from txn.client import TxnClient
from txn.shared.deadlines import Background
from txn.transaction import Transaction

log = logging.getLogger(__name__)

T = TypeVar("T")
_DECODED: Final = 500  # rows, before others have the loop …
_DECODED_BYTES: Final = 1 << 18  # … and bytes of rows


class InThread(Protocol):
    """Runs a function away from the loop."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


class Head:
    """How large a table was, and when."""

    __slots__ = ("at_ms", "pages", "rows")

    def __init__(self, rows: int, size: int, at_ms: int) -> None:
        self.rows, self.pages, self.at_ms = rows, -(-size // PAGE_BYTES), at_ms


class Statistics:
    """Of one process. `changed`: rows by the ids of their tables, since that was looked at."""

    def __init__(self, client: TxnClient, clock: Clock, in_thread: InThread) -> None:
        self._client, self._clock, self._in_thread = client, clock, in_thread
        self._background = Background()
        self.changed: defaultdict[int, int] = defaultdict(int)
        self.heads: Mapping[int, Head] = {}
        """Another object when something has changed."""
        self._known: dict[int, TableStatistics | None] = {}
        self._since: dict[int, int] = {}  # when counting began, by the clock
        self._looked_ms = 0
        self._asked = False  # others may have made newer ones

    def start(self) -> None:
        self._background.spawn(self._run(), "statistics")

    async def close(self) -> None:
        self._background.closed = True
        await self._background.cancel()

    # -- asked

    def of(self, table: Table) -> TableStatistics | None:
        """See `sqlproxy.tables.statistics.Estimates`."""
        self._asked = True
        found = self._known.get(table.id)
        if found is None and table.id not in self._known:
            self._known[table.id] = None  # until it has come
            self._background.spawn(self._quietly(self.bring([table])), "statistics")
        return found

    async def bring(self, tables: Collection[Table]) -> None:
        """`of` knows of these what is stored now."""
        for table in tables:
            if table.plain:
                continue
            _, key = statistics_keys(table.id)
            value, _ = await self._client.get(key)
            found = None if value is None else from_row(records.opened(key, value)[1:])
            self._keep(table.id, found)

    async def sizes(self) -> Mapping[int, Head]:
        """Of all tables, some seconds old; the same object as long as they are the same."""
        now_ms = self._clock.now_ms()
        if now_ms - self._looked_ms > SQL_STATISTICS_PERIOD_MS:
            self._looked_ms = now_ms
            await self._look()
        return self.heads

    async def _look(self) -> None:
        found: dict[int, Head] = {}
        at: bytes | None = HEADS_OF_STATISTICS
        while at is not None:
            page = await self._client.scan(at, STATISTICS_END, limit=SQL_SCAN_ROWS)
            for key, value, _ in page.items:
                number = int.from_bytes(key[len(HEADS_OF_STATISTICS) :])
                rows, size, at_ms, *_ = records.opened(key, value)[1:]
                known = self.heads.get(number)
                same = known is not None and known.at_ms == at_ms
                found[number] = known if known is not None and same else Head(rows, size, at_ms)
                if not same:
                    self._known.pop(number, None)
            at = page.resume
        if found.keys() != self.heads.keys() or any(
            found[one] is not self.heads[one] for one in found
        ):
            self.heads = found

    # -- made

    async def analyze(
        self,
        table: Table,
        only: Collection[int] | None = None,
        *,
        most: int | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> TableStatistics | None:
        """Look at a table, and store what that says. `only`: the ids of some columns. None: it has
        more rows than `most`, or is gone. Raises KvorumError.
        """
        sample = _Sample()
        at_ts = await self._client.now()
        start, end = table_range(table.id)
        at: bytes | None = start
        while at is not None:
            page = await self._client.scan(at, end, limit=SQL_SCAN_ROWS, at=at_ts)
            for key, value, _ in page.items:
                sample.add(key, value)
            if most is not None and sample.rows > most:
                return None
            at = page.resume
            await (asyncio.sleep(0) if turn is None else turn())
        rows = list[tuple[object, ...]]()
        keys = [key for key, _ in sample.kept]
        for some, raws in sample.pieces():
            rows += codec(table).decode_rows(some, raws)
            await (asyncio.sleep(0) if turn is None else turn())
        before = await self._stored(table) if only is not None else None
        now_ms = self._clock.now_ms()
        found = await self._in_thread(
            lambda: gathered(
                table,
                [key[4:] for key in keys],
                rows,
                rows=sample.rows,
                size=sample.size,
                at_ms=now_ms,
                only=only,
                before=before,
            )
        )
        if not await self._store(table, found):
            return None
        self._keep(table.id, found)
        self.heads = {**self.heads, table.id: Head(found.rows, found.size, found.at_ms)}
        return found

    async def _stored(self, table: Table) -> TableStatistics | None:
        await self.bring([table])
        return self._known.get(table.id)

    async def _store(self, table: Table, found: TableStatistics) -> bool:
        """False: the table is gone."""

        async def body(t: Transaction) -> bool:
            if await catalog.find_by_id(t, table.id) is None:
                return False
            head = [found.rows, found.size, found.at_ms, found.version]
            small, large = statistics_keys(table.id)
            t.put(small, records.sealed(small, [records.FORMAT, *head]))
            t.put(large, records.sealed(large, [records.FORMAT, *to_row(found)]))
            return True

        return await self._client.run(body)

    def _keep(self, number: int, found: TableStatistics | None) -> None:
        self._known.pop(number, None)
        self._known[number] = found
        if len(self._known) > SQL_STATISTICS_KEPT_MAX:
            del self._known[next(iter(self._known))]

    # -- by itself

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SQL_STATISTICS_PERIOD_MS / 1000)
            if self.changed or self._asked:
                self._asked = False
                await self._quietly(self._refresh())

    async def _quietly(self, work: Awaitable[object]) -> None:
        """Whatever is wrong with statistics, statements run without."""
        try:
            with suppress(KvorumError):  # the next time it is tried again
                await work
        except Exception:  # an application boundary: nobody waits for this
            log.exception("statistics of a table could not be made or read")

    async def _refresh(self) -> None:
        """Those tables that were changed by much."""
        await self._look()
        now_ms = self._clock.now_ms()
        for number, changes in list(self.changed.items()):
            since = self._since.setdefault(number, now_ms)
            head = self.heads.get(number)
            rows = 0 if head is None else head.rows
            if head is not None and head.at_ms > since:
                self._counted(number, changes)  # somebody else has looked
                continue
            if changes < SQL_STATISTICS_CHANGES_MIN + rows // 10:
                continue
            table = await catalog.find_by_id(self._client, TableId(number))
            there = table is not None and table.state == PUBLIC and not table.plain
            if table is not None and there and rows <= SQL_STATISTICS_ROWS_MAX:
                await self.analyze(table, most=SQL_STATISTICS_ROWS_MAX)
            self._counted(number, changes)

    def _counted(self, number: int, changes: int) -> None:
        """These are in the statistics now."""
        self._since.pop(number, None)
        self.changed[number] -= changes
        if self.changed[number] <= 0:
            self.changed.pop(number, None)


class _Sample:
    """Every n-th row, as many rows and bytes as there may be at most: n is doubled when there are
    too many. One row is kept, however long it is.
    """

    def __init__(self) -> None:
        self.rows = self.size = 0
        self.kept: list[tuple[bytes, bytes]] = []
        self._each = 1
        self._bytes = 0  # of what is kept

    def add(self, key: bytes, value: bytes) -> None:
        if not self.rows % self._each:
            self.kept.append((key, value))
            self._bytes += len(key) + len(value)
            while len(self.kept) > 1 and (
                len(self.kept) > SQL_STATISTICS_SAMPLE_ROWS
                or self._bytes > SQL_STATISTICS_SAMPLE_BYTES
            ):
                self.kept = self.kept[::2]
                self._bytes = sum(len(key) + len(value) for key, value in self.kept)
                self._each *= 2
        self.rows += 1
        self.size += len(key) + len(value)

    def pieces(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Keys and values of what is kept, as much as is decoded in one go."""
        keys, values, size = list[bytes](), list[bytes](), 0
        for key, value in self.kept:
            keys.append(key)
            values.append(value)
            size += len(value)
            if len(keys) >= _DECODED or size >= _DECODED_BYTES:
                yield keys, values
                keys, values, size = [], [], 0
        if keys:
            yield keys, values
