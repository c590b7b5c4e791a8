"""Rows of one table by one way to them, in batches, as one snapshot has them.

    primary key    points: multi-get        ranges: pages of a scan
    an index       the same of its entries, then the rows they name by multi-get, unless the
                   entries have all that is wanted of the rows
    several        one after the other; a row comes by the first of them that leads to it
    distinct       of each value of the first columns one row: what has the same is passed over

An index that was made later than the snapshot does not have all its entries there: then all rows
are read, and those that the index would name go out in its order.

An entry without its row cannot be in one snapshot: the row's writer wrote both at once. It is
reported as damage, never passed over.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

from kv.base.accounts import Use
from kv.base.errors import Corruption
from kv.base.keys import successor, table_prefix, table_range
from kv.base.limits import (
    SQL_LOOK_RANGES,
    SQL_LOOK_ROWS,
    SQL_LOOKUP_ROWS,
    SQL_RANGES_AT_ONCE,
    SQL_SCAN_ROWS,
)
from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures.compiling import Fn, compile
from sqlproxy.rows.rows import RowCodec, codec
from sqlproxy.rows.schema import Table
from sqlproxy.tables.access import Access, primary_components
from sqlproxy.tables.derived import completed
from sqlproxy.tables.entries import IndexCodec, index_codec
from sqlproxy.tables.spans import Finder, Span, Spans, Value
from sqlproxy.tables.statistics import Estimates, TableStatistics, entries_of
from txn.results import ScanPage, Tally

_LOOKUP_COST: Final = 2  # of a row by its key, beside the entry that names it
_TOO_MANY: Final = 4 * SQL_LOOK_ROWS  # entries, for what has more than a look sees


class KeysSeen(Protocol):
    """A snapshot of the store that is only asked for keys."""

    async def multi_get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]: ...


class Reads(Protocol):
    """One snapshot of the store: `txn.Transaction`, or what reads at a timestamp."""

    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...

    async def multi_get(
        self, keys: Sequence[bytes], *, tally: Tally | None = None
    ) -> list[tuple[bytes, int] | None]: ...

    async def scan(
        self,
        start: bytes,
        end: bytes,
        *,
        limit: int,
        reverse: bool = False,
        tally: Tally | None = None,
    ) -> ScanPage: ...

    async def scan_values(
        self, start: bytes, end: bytes, *, limit: int, tally: Tally | None = None
    ) -> tuple[list[bytes], bytes | None] | None:
        """`scan` without keys and versions, and its resume key; None: it has to be `scan`."""
        ...

    @property
    def read_ts(self) -> int:
        """What is read is of then."""
        ...

    async def scan_sealed(
        self, start: bytes, end: bytes, *, limit: int
    ) -> tuple[bytes, bytes, bytes | None] | None:
        """Lengths and bytes of the next records as they are stored, and the resume key, for
        `sqlproxy.rows.arrow_pages`; None: it has to be `scan_values`.
        """
        ...


def _all_stored(rows: Iterable[tuple[bytes, tuple[object, ...], int]]) -> list[Stored]:
    """A named tuple's constructor is Python's, this one is C's."""
    return cast("list[Stored]", list(map(partial(tuple.__new__, Stored), rows)))


class Stored(NamedTuple):
    """A row as it is in the store. `key`: the storage key; `values`: all columns of the descriptor,
    in its order, in user form; `version` 0: this transaction wrote it.
    """

    key: bytes
    values: tuple[object, ...]
    version: int


async def found_at(reads: KeysSeen, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
    """`multi_get` of any number of keys, in requests of SQL_SCAN_ROWS."""
    found: list[tuple[bytes, int] | None] = []
    for at in range(0, len(keys), SQL_SCAN_ROWS):
        found += await reads.multi_get(keys[at : at + SQL_SCAN_ROWS])
    return found


@dataclass(slots=True)
class Touched:
    """What a statement read, or one scan of it. `turn`: waits for its turn among the long scans of
    this process, before the rows of a page are decoded; None: nobody else is there.
    """

    gets: int = 0
    scanned: int = 0
    pages: int = 0
    tally: Tally | None = None  # with the versions, if somebody asks
    turn: Callable[[], Awaitable[None]] | None = None
    use: Use | None = None  # whom its rows count for
    estimates: Estimates | None = None  # what is known of tables

    async def page(self, rows: int) -> None:
        """One of so many rows has come."""
        self.scan(rows)
        if self.turn is not None and self.pages > 1:
            await self.turn()

    def scan(self, rows: int) -> None:
        """A page of so many rows has come."""
        self.pages += 1
        self.scanned += rows
        if self.use is not None:
            self.use.spend(rows)

    def get(self, rows: int) -> None:
        """So many keys were looked up."""
        self.gets += rows
        if self.use is not None:
            self.use.spend(rows)

    @contextmanager
    def scan_of(
        self, table: Table, reader: TableReader | None, origin: tuple[str, ...] = ()
    ) -> Iterator[Touched]:
        """Where one scan of several in a statement counts."""
        yield self


@dataclass(slots=True)
class Scanned:
    """One scan; `reader` None: a plain table, whole."""

    table: Table
    reader: TableReader | None
    touched: Touched
    seconds: float
    origin: tuple[str, ...] = ()


class Described(NamedTuple):
    """A scan that would be; `reader` as in `Scanned`. `origin`: what other tables' rows say which
    of its rows matter.
    """

    table: Table
    reader: TableReader | None
    origin: tuple[str, ...] = ()


class Counted(Touched):
    """For EXPLAIN ANALYZE: with the versions that are read, and each of several scans."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(tally=Tally())
        self._clock = clock
        self.scans: list[Scanned] = []

    @contextmanager
    def scan_of(
        self, table: Table, reader: TableReader | None, origin: tuple[str, ...] = ()
    ) -> Iterator[Touched]:
        part = Touched(tally=Tally(), turn=self.turn, use=self.use, estimates=self.estimates)
        began = self._clock()
        yield part
        self.scans.append(Scanned(table, reader, part, self._clock() - began, origin))
        self.gets += part.gets
        self.scanned += part.scanned
        self.pages += part.pages
        if self.tally is not None and part.tally is not None:
            self.tally.versions += part.tally.versions


def _older(reads: Reads, since: int) -> bool:
    """Whether this snapshot is of before then. Reads that begin now are of now."""
    at: int = getattr(reads, "read_ts", 0)
    return 0 < at < since


class TableReader:
    """Reads the rows of one table along one way. Made once per statement."""

    def __init__(
        self,
        table: Table,
        access: Access,
        wanted: Collection[int] | None = None,
        *,
        distinct: int = 0,
    ) -> None:
        """`wanted`: the columns that are looked at, others may be NULL then; None: all. `distinct`:
        one row is enough of those that have the first so many components alike.
        """
        self.table, self.access, self.distinct = table, access, distinct
        self.wanted = wanted
        self.ways = [self, *(TableReader(table, one) for one in access.beside)]
        self.rivals = [] if distinct else [TableReader(table, one, wanted) for one in access.rivals]
        self._finder = Finder(table, access)
        self._rows: RowCodec = codec(table)
        self._prefix = table_prefix(table.id)
        self._index: IndexCodec | None = None
        self._where = self._prefix
        # by the object: to hash an expression costs more than to compute it
        self._fns: dict[int, Fn] = {id(expr): compile(expr).fn for expr in access.exprs}
        # of a way that names one row
        self._parts: list[tuple[Fn, Callable[[object], bytes]]] = []
        if access.one_row:
            given = access.stretches[0].given
            self._parts = self._finder.parts([self._fns[id(one.expr)] for one in given])
        if access.index is not None:
            self._index = index_codec(table, access.index)
            self._where = table_prefix(access.index.id)
        self.covered = (
            self._index is not None
            and not access.beside
            and wanted is not None
            and self._index.exact.issuperset(wanted)
        )

    def _value(self, env: Env) -> Value:
        fns = self._fns
        return lambda expr: fns[id(expr)]((), env)

    def spans(self, env: Env) -> Spans:
        """Where it would look."""
        return self._finder.spans(self._value(env))

    def point(self, env: Env) -> bytes | None:
        """The storage key of a way that names one row of the primary key; None: it names none."""
        parts = [self._prefix]
        for fn, bytes_of in self._parts:
            if (wanted := fn((), env)) is None:
                return None
            try:
                parts.append(bytes_of(wanted))
            except (ValueError, TypeError):  # no value of the column's type
                return None
        return b"".join(parts)

    def stored(self, key: bytes, found: bytes, version: int) -> Stored:
        """The row at a storage key, decoded."""
        return Stored(key, self._rows.decode_row(key[4:], found), version)

    async def one(self, reads: Reads, env: Env, touched: Touched) -> Stored | None:
        """The row of a way that names one row of the primary key."""
        key = self.point(env)
        if key is None:
            return None
        touched.get(1)
        if touched.tally is not None:
            (reported,) = await reads.multi_get([key], tally=touched.tally)
            return None if reported is None else self.stored(key, *reported)
        found, version = await reads.get(key)
        return None if found is None else self.stored(key, found, version)

    def expected(self, env: Env, known: TableStatistics) -> float:
        """How many entries it reads, all its ways together."""
        return min(sum(one.alone(env, known) for one in self.ways), float(known.rows))

    def alone(self, env: Env, known: TableStatistics) -> float:
        """How many entries it reads, without the ways beside it."""
        return entries_of(known, self.access, self.spans(env))

    def unless_many(self, env: Env, estimates: Estimates | None) -> TableReader:
        """Itself, for who does not mind the order, or what reads all rows, if it leads to so many
        that this costs less.
        """
        access = self.access
        if estimates is None or self.distinct or access.points or self.covered:
            return self
        if access.index is None and not access.beside:
            return self  # what it reads it would read in any case
        known = estimates.of(self.table)
        if known is None:
            return self
        least = min(one.expected(env, known) for one in (self, *self.rivals))
        if least * (1 + _LOOKUP_COST) <= known.rows:
            return self
        whole = Access(None, primary_components(self.table), unique=True)
        return TableReader(self.table, whole, self.wanted)

    async def narrowest(self, reads: Reads, env: Env, touched: Touched) -> TableReader:
        """That of it and its rivals which reads least, as a look of a bounded length says."""
        if not self.rivals:
            return self
        alone = copy(self)
        alone.rivals, alone.ways = [], [alone]
        readers = [alone, *self.rivals]
        costs = await gather(*(one._look(reads, env, touched) for one in readers))
        return readers[costs.index(min(costs))]

    async def _look(self, reads: Reads, env: Env, touched: Touched) -> int:
        """About what it costs: entries, and thrice for each whose row is looked up."""
        index, spans = self.access.index, self.spans(env).ranges
        each = 1 if index is None or self.covered else 1 + _LOOKUP_COST
        most = _TOO_MANY * each
        if len(spans) > SQL_LOOK_RANGES or (index is not None and _older(reads, index.since)):
            return most
        count = 0
        for span in spans:
            start, end = self._where + span.start, self._where + span.end
            page = await reads.scan(
                start,
                end if span.end else table_range(index.id if index else self.table.id)[1],
                limit=SQL_LOOK_ROWS - count,
                tally=touched.tally,
            )
            touched.scan(len(page.items))
            count += len(page.items)
            if count >= SQL_LOOK_ROWS or page.resume is not None:
                return most
        return count * each

    async def batches(
        self, reads: Reads, env: Env, touched: Touched, *, page: int = SQL_SCAN_ROWS
    ) -> AsyncIterator[list[Stored]]:
        """All rows of the way, in its order; batches are not empty. `page`: how many rows are asked
        for at once, less when only a few are wanted.
        """
        if self.rivals:
            narrowest = await self.narrowest(reads, env, touched)
            async for batch in narrowest.batches(reads, env, touched, page=page):
                yield batch
            return
        if len(self.ways) == 1:
            async for batch in self._along(self.spans(env), reads, touched, page):
                yield batch
            return
        before: list[tuple[TableReader, Spans]] = []
        for way in self.ways:
            spans = way.spans(env)
            async for batch in way._along(spans, reads, touched, page):
                rows = [r for r in batch if not any(w._leads(s, r) for w, s in before)]
                if rows:
                    yield rows
            before.append((way, spans))

    def _leads(self, spans: Spans, row: Stored) -> bool:
        """Whether it comes to a row there."""
        if self._index is None:
            return spans.has(row.key[4:])
        return self._index.had(row.values) and spans.has(self._index.entry(row.values)[0])

    async def _along(
        self, spans: Spans, reads: Reads, touched: Touched, page: int
    ) -> AsyncIterator[list[Stored]]:
        """All rows of its own way."""
        if self.access.index is not None and _older(reads, self.access.index.since):
            async for batch in self._without_index(reads, spans, touched):
                yield batch
            return
        if spans.points:
            found = self._points(reads, spans.points, touched)
        elif self.distinct:
            found = self._skipping(reads, spans.ranges, touched, page)
        else:
            found = self._ranges(reads, spans.ranges, touched, page)
        if self._index is None:
            async for rows in found:
                keys, raws, versions = zip(*rows, strict=True)
                decoded = self._rows.decode_rows(keys, raws)
                yield _all_stored(zip(keys, decoded, versions, strict=True))
            return
        async for entries in found:
            if self.covered:
                yield [self._of_entry(*entry) for entry in entries]
                continue
            for at in range(0, len(entries), SQL_LOOKUP_ROWS):
                yield await self._looked_up(reads, entries[at : at + SQL_LOOKUP_ROWS], touched)

    def _of_entry(self, key: bytes, raw: bytes, version: int) -> Stored:
        """What an entry of the index has of its row."""
        assert self._index is not None
        own, values = self._index.row(key[4:], raw)
        return Stored(self._prefix + own, values, version)

    def _head(self, key: bytes) -> bytes:
        """The part of a storage key that is alike in rows of which one is enough."""
        codec = self._rows if self._index is None else self._index
        return key[:4] + codec.head(key[4:], self.distinct)

    async def _without_index(
        self, reads: Reads, spans: Spans, touched: Touched
    ) -> AsyncIterator[list[Stored]]:
        """What the index would give if it had been there."""
        assert self._index is not None
        complete = completed(self.table, self._index.index)
        found: list[tuple[bytes, Stored]] = []
        start, end = table_range(self.table.id)
        at: bytes | None = start
        while at is not None:
            page = await reads.scan(at, end, limit=SQL_SCAN_ROWS, tally=touched.tally)
            await touched.page(len(page.items))
            for key, raw, version in page.items:
                row = self.stored(key, raw, version)
                if not self._index.had(row.values):
                    continue
                row = row._replace(values=complete(row.values))
                entry = self._index.entry(row.values)[0]
                if spans.has(entry):
                    found.append((entry, row))
            at = page.resume
        found.sort(key=lambda one: one[0], reverse=self.access.reverse)
        if self.distinct:
            found = list({self._head(self._where + e): (e, row) for e, row in found}.values())
        for first in range(0, len(found), SQL_LOOKUP_ROWS):
            yield [row for _, row in found[first : first + SQL_LOOKUP_ROWS]]

    async def values(
        self, reads: Reads, env: Env, touched: Touched, *, page: int = SQL_SCAN_ROWS
    ) -> AsyncIterator[list[tuple[Any, ...]]]:
        """The values of `batches`, for who needs nothing else of the rows."""
        if self.rivals:
            narrowest = await self.narrowest(reads, env, touched)
            async for some in narrowest.values(reads, env, touched, page=page):
                yield some
            return
        spans = self.spans(env)
        special = self.distinct or len(self.ways) > 1
        if self._index is not None or spans.points or self.access.reverse or special:
            async for batch in self.batches(reads, env, touched, page=page):
                yield [stored.values for stored in batch]
            return
        last = table_range(self.table.id)[1]
        for span in spans.ranges:
            at: bytes | None = self._prefix + span.start
            end = self._prefix + span.end if span.end else last
            while at is not None:
                got = await reads.scan_values(at, end, limit=page, tally=touched.tally)
                if got is not None:
                    raws, at = got
                    keys = [b""] * len(raws)  # a damaged row is named by its table alone
                else:
                    rows = await reads.scan(at, end, limit=page, tally=touched.tally)
                    keys, raws = (
                        [key for key, _, _ in rows.items],
                        [raw for _, raw, _ in rows.items],
                    )
                    at = rows.resume
                await touched.page(len(raws))
                if raws:
                    yield self._rows.decode_rows(keys, raws)
                page = min(page * 4, SQL_SCAN_ROWS)

    async def _points(
        self, reads: Reads, points: Sequence[bytes], touched: Touched
    ) -> AsyncIterator[list[tuple[bytes, bytes, int]]]:
        ordered = points[::-1] if self.access.reverse else points
        for at in range(0, len(ordered), SQL_LOOKUP_ROWS):
            keys = [self._where + point for point in ordered[at : at + SQL_LOOKUP_ROWS]]
            touched.get(len(keys))
            found = await reads.multi_get(keys, tally=touched.tally)
            rows = [(key, *one) for key, one in zip(keys, found, strict=True) if one is not None]
            if rows:
                yield rows

    async def _ranges(
        self, reads: Reads, ranges: Sequence[Span], touched: Touched, page: int
    ) -> AsyncIterator[list[tuple[bytes, bytes, int]]]:
        reverse = self.access.reverse
        last = table_range(self.access.index.id if self.access.index else self.table.id)[1]
        places = [
            (self._where + span.start, self._where + span.end if span.end else last)
            for span in (ranges[::-1] if reverse else ranges)
        ]

        async def scan(start: bytes, end: bytes, limit: int) -> ScanPage:
            return await reads.scan(start, end, limit=limit, reverse=reverse, tally=touched.tally)

        asked = 1  # ranges are short, if they are many: more and more of them at once
        while places:
            some, places = places[:asked], places[asked:]
            pages = await gather(*(scan(*place, page) for place in some))
            asked = min(2 * asked, SQL_RANGES_AT_ONCE)
            for (start, end), first in zip(some, pages, strict=True):
                got, limit = first, page
                while True:
                    await touched.page(len(got.items))
                    if got.items:
                        yield list(got.items)
                    if got.resume is None:
                        break
                    start, end = (start, got.resume) if reverse else (got.resume, end)
                    limit = min(limit * 4, SQL_SCAN_ROWS)
                    got = await scan(start, end, limit)

    async def _skipping(
        self, reads: Reads, ranges: Sequence[Span], touched: Touched, page: int
    ) -> AsyncIterator[list[tuple[bytes, bytes, int]]]:
        """The first of those with the same head, each. After a page the next one begins behind the
        head that it ended in, and is as large as there were heads in this one.
        """
        reverse = self.access.reverse
        last = table_range(self.access.index.id if self.access.index else self.table.id)[1]
        limit = max(2, min(page, SQL_SCAN_ROWS))
        for span in ranges[::-1] if reverse else ranges:
            start, end = self._where + span.start, self._where + span.end if span.end else last
            more = True
            while more and start < end:
                got = await reads.scan(
                    start, end, limit=limit, reverse=reverse, tally=touched.tally
                )
                await touched.page(len(got.items))
                firsts: dict[bytes, tuple[bytes, bytes, int]] = {}
                for item in got.items:
                    firsts.setdefault(self._head(item[0]), item)
                if firsts:
                    yield list(firsts.values())
                    head = next(reversed(firsts))
                    start, end = (start, head) if reverse else (successor(head), end)
                    limit = max(2, min(2 * limit, SQL_SCAN_ROWS) if len(firsts) > 1 else 2)
                elif got.resume is not None:
                    start, end = (start, got.resume) if reverse else (got.resume, end)
                more = got.resume is not None

    async def _looked_up(
        self, reads: Reads, entries: Sequence[tuple[bytes, bytes, int]], touched: Touched
    ) -> list[Stored]:
        """The rows that these entries of the index name."""
        assert self._index is not None
        keys = [self._prefix + self._index.row_key(key[4:], raw) for key, raw, _ in entries]
        touched.get(len(keys))
        found = await reads.multi_get(keys, tally=touched.tally)
        rows = []
        for key, one, (entry, _, _) in zip(keys, found, entries, strict=True):
            if one is None:
                assert self.access.index is not None
                raise Corruption(
                    f"index {self.access.index.name} of {self.table.path} names a row that is not "
                    f"there (entry {entry[:64].hex()}); drop the index and create it again",
                    details={"key": entry, "table": self.table.path},
                )
            rows.append(Stored(key, self._rows.decode_row(key[4:], one[0]), one[1]))
        return rows
