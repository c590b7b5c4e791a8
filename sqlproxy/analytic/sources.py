"""The tables of a statement as Arrow: rows of the transaction's snapshot, its own writes among
them.

A table is read by the narrowest way that its conditions give (`sqlproxy.tables.access`), only the
columns that are used are decoded. The table with the narrowest way is read first; where few rows
came of it, what they have in common with those of another by its conditions (`Link`) narrows that
one: a join, IN or EXISTS that begins with few rows looks the others up by their keys. DuckDB joins
what was read, so that what a row means is decided in one place.

Scans of the primary key are decoded column by column, where it can be from pages of records as they
lie (`sqlproxy.rows.arrow_pages`), while the next one is read; rows found by points or an index come
from the reader of single tables. Small tables stay in memory, large ones go to a file in Arrow's
format, which is mapped, so that the system may drop their pages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from kv.base.keys import table_prefix, table_range
from kv.base.limits import (
    SCAN_SEALED_ROWS_MAX,
    SQL_ANALYTIC_SCAN_ROWS,
    SQL_ANALYTIC_SOURCE_BYTES,
    SQL_LED_KEYS_MAX,
    SQL_LED_ROWS_MAX,
)
from sqlproxy.analytic.engine import Engine
from sqlproxy.analytic.forms import array_of, arrow, users
from sqlproxy.analytic.selects import Rows, Source
from sqlproxy.front.bound.by_columns import ByColumns
from sqlproxy.front.bound.env import Catalog, Env
from sqlproxy.front.bound.exprs import Among, Const, Expr
from sqlproxy.front.types.registry import array_of as array_of_type
from sqlproxy.rows import arrow_pages, arrow_rows
from sqlproxy.rows.schema import Column, Table
from sqlproxy.tables.access import choose
from sqlproxy.tables.reading import Reads, Stored, TableReader, Touched
from sqlproxy.tables.statistics import Estimates
from sqlproxy.values import memory
from sqlproxy.values.errors import SqlError, disk_full, unsupported

Items = Sequence[tuple[bytes, bytes, int]]
_SOURCES: Final = 4  # tables of which one statement has the rows in memory, at least
_LENGTHS_BYTES: Final = 8  # of a key's and a record's
_VALUES_PAGES: Final = 16  # where a page was not simple, so many are asked for as values


def tables_of(known: Mapping[str, Rows], catalog: Catalog) -> dict[str, pa.Table]:
    """Rows that were computed before. In a thread: they may be many. Raises SqlError."""
    return {name: _table_of(rows, catalog) for name, rows in known.items()}


def at_hand(known: Mapping[str, Rows], catalog: Catalog) -> bool:
    """Whether their columns were all made for another statement: no thread is worth it."""
    for rows in known.values():
        found = catalog.rows(rows.relation) if rows.relation else None
        if not isinstance(found, ByColumns) or rows.used is None:
            return False
        if not all((at, rows.held[at]) in found.made for at in rows.used):
            return False
    return True


def _table_of(rows: Rows, catalog: Catalog) -> pa.Table:
    known, places = rows.item.rows, range(len(rows.held))
    if rows.relation:
        found = catalog.rows(rows.relation)
        if found is None:
            raise unsupported(f"{rows.relation} here")
        known = found
    used = list(places) if rows.used is None else sorted(rows.used)
    if isinstance(known, ByColumns):
        arrays = [_column(known, i, rows.item.columns[i].oid, rows.held[i]) for i in used]
    else:
        columns = dict(zip(places, zip(*known, strict=True), strict=False))
        arrays = [
            array_of(columns.get(i, ()), rows.item.columns[i].oid, rows.held[i]) for i in used
        ]
    if not used:  # their number is all that counts
        return pa.Table.from_arrays([pa.nulls(len(known), pa.bool_())], names=["n"])
    return pa.Table.from_arrays(arrays, names=[f"c{i}" for i in used])


def _column(known: ByColumns, place: int, oid: int, held_as: str) -> pa.Array:
    found: pa.Array | None = known.made.get((place, held_as))
    if found is None:
        found = known.made[place, held_as] = array_of(known.column(place), oid, held_as)
    return found


class Loader:
    """Collects one table's rows. `engine` says where a large one may go."""

    def __init__(self, source: Source, engine: Engine) -> None:
        self._source, self._engine = source, engine
        self.conditions = source.conditions
        self.origin: tuple[str, ...] = ()  # the tables whose rows say what is read
        self.table: Table = source.item.table
        self._batches: list[pa.RecordBatch] = []
        self._budget = memory.now()
        self._held = memory.Held(self._budget)
        self._bytes = 0
        self._writer: pa.RecordBatchFileWriter | None = None
        self._path: Path | None = None
        self.used = sorted(source.used)
        fields = [(f"c{i}", arrow(source.held[i])) for i in self.used]
        if source.keyed:
            fields.append(("k", pa.binary()))
        self.schema = pa.schema(fields or [("n", pa.bool_())])
        self.columns: list[Column] = []
        if not self.table.plain:
            by_id = {column.id: column for column in self.table.columns}
            self.columns = [by_id[source.item.columns[i].attribute] for i in self.used]
        self._wanted: list[tuple[Column, pa.DataType]] = []
        for i, column in zip(self.used, self.columns, strict=True) if self.columns else ():
            # lists are made of values in user form: their elements may be held as text
            own = arrow_rows.arrow_type(column.resolved) if column.resolved.element else None
            self._wanted.append((column, own or self.schema.field(f"c{i}").type))

    def again(self) -> Loader:
        """The same from the beginning, whatever others say of its rows."""
        self.close()
        return Loader(self._source, self._engine)

    @property
    def score(self) -> int:
        """How narrow its way is, as far as it is known."""
        return -1 if self.table.plain else choose(self.table, self.conditions)[0].score

    def expected(self, env: Env, estimates: Estimates) -> float | None:
        """How many rows it reads; None: that is not known."""
        reader = self.reader()
        known = None if reader is None else estimates.of(self.table)
        return None if reader is None or known is None else reader.expected(env, known)

    def led(self, other: Loader, rows: pa.Table | None) -> None:
        """Its rows matter only where they equal those of another, which is read by now; None: they
        are not known yet.
        """
        links = [one for one in self._source.links if one.other is other._source]
        if not links or self.table.plain:
            return
        links = list({one.column.attribute: one for one in links}.values())
        if rows is not None and rows.num_rows > SQL_LED_KEYS_MAX:
            return
        lists = [other.values_of(one.place, rows) for one in links]
        left = tuple(one.column for one in links)
        among = Among(left=left, columns=tuple(lists))
        better = choose(self.table, (*self.conditions, among))[0]
        if better.score > self.score:
            self.conditions = (*self.conditions, among)
            self.origin = (*self.origin, other._source.item.alias)

    def values_of(self, place: int, rows: pa.Table | None) -> Expr:
        """A column of its rows as an array."""
        oid, values = self._source.item.columns[place].oid, list[object]()
        if rows is not None:
            column = rows.column(f"c{place}").combine_chunks()
            values = users(column, oid, self._source.held[place])
        return Const(oid=array_of_type(oid), value=values)

    def reader(self) -> TableReader | None:
        """What reads the rows; None: a plain table is read whole."""
        if self.table.plain:
            return None
        access, _ = choose(self.table, self.conditions)
        return TableReader(self.table, access, [column.id for column in self.columns])

    def add(self, batch: pa.RecordBatch) -> None:
        """In a thread: it may write."""
        self._bytes += batch.nbytes
        most = min(SQL_ANALYTIC_SOURCE_BYTES, self._budget.limit // _SOURCES)
        if self._writer is None and (self._bytes > most or not self._may_hold(batch.nbytes)):
            self._path = self._engine.directory / f"{self._source.name}-{id(self):x}.arrow"
            self._writer = pa.ipc.new_file(os.fspath(self._path), self.schema)
            for held in self._batches:
                self._writer.write_batch(held)
            self._batches = []
            self._held.end()
        if self._writer is None:
            self._batches.append(batch)
        elif self._bytes > self._engine.spill_room(self._bytes - batch.nbytes):
            raise disk_full()
        else:
            self._writer.write_batch(batch)

    def _may_hold(self, size: int) -> bool:
        try:
            self._held.add(size)
        except SqlError:  # others hold much: a file does it
            return False
        return True

    def done(self) -> pa.Table:
        """What was added, as one table."""
        if self._writer is None:
            return pa.Table.from_batches(self._batches, self.schema)
        self._writer.close()
        assert self._path is not None
        return pa.ipc.open_file(pa.memory_map(os.fspath(self._path))).read_all()

    def close(self) -> None:
        """Give the rows up; fine twice."""
        self._held.end()
        if self._writer is not None:
            self._writer.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    # -- decoding, in a thread

    def decoded(self, items: Items) -> None:
        """A page of a scan of the primary key."""
        keys = [key[4:] for key, _, _ in items]
        values = [raw for _, raw, _ in items]
        if self.table.plain:
            both: list[list[bytes]] = [keys, values]
            arrays = [pa.array(both[i], pa.binary()) for i in self.used]
        else:
            arrays = self._arrays(keys, values)
        self.add(self._batch(arrays, [key for key, _, _ in items]))

    @property
    def name(self) -> str:
        """As the statement calls it."""
        return self._source.name

    @property
    def bare(self) -> bool:
        """Whether the keys of its rows are of no use."""
        return not (self.table.plain or self._source.keyed)

    def values(self, values: list[bytes]) -> None:
        """The same of a page without its keys."""
        keys = [b""] * len(values)  # a damaged row is named by its table alone
        self.add(self._batch(self._arrays(keys, values), keys))

    def sealed(self, lengths: bytes, records: bytes, read_ts: int) -> int | None:
        """The same of a page of records as they lie, and how many rows it has; None: it is not
        simple, nothing was added.
        """
        page = arrow_pages.plain_page(lengths, records, read_ts, passing=True)
        if page is None:
            return None
        arrays = arrow_pages.stored_columns(self.table, page, self._wanted)
        if arrays is None:
            return None
        if arrays:
            self.add(pa.RecordBatch.from_arrays(self._lists(arrays), schema=self.schema))
        elif len(page):
            self.add(self._batch([], [b""] * len(page)))
        return len(page)

    def rows(self, rows: Sequence[Stored]) -> None:
        """Rows that a reader found."""
        place = {column.id: at for at, column in enumerate(self.table.columns)}
        arrays = []
        for i, column in zip(self.used, self.columns, strict=True):
            at = place[column.id]
            oid = self._source.item.columns[i].oid
            arrays.append(array_of([row.values[at] for row in rows], oid, self._source.held[i]))
        self.add(self._batch(arrays, [row.key for row in rows]))

    def _batch(self, arrays: list[pa.Array], keys: Sequence[bytes]) -> pa.RecordBatch:
        if self._source.keyed:
            arrays.append(pa.array(keys, pa.binary()))
        if not arrays:
            arrays = [pa.nulls(len(keys), pa.bool_())]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _arrays(self, keys: list[bytes], values: list[bytes]) -> list[pa.Array]:
        if not self._wanted:  # a count
            return []
        return self._lists(arrow_rows.stored_columns(self.table, keys, values, self._wanted))

    def _lists(self, arrays: list[pa.Array]) -> list[pa.Array]:
        """Lists were made of values in user form: their elements may be held as text. Those of
        intervals are as they are held, and Arrow gives no Interval back.
        """
        found = []
        for i, column, array in zip(self.used, self.columns, arrays, strict=True):
            if column.resolved.element:
                oid, held_as = self._source.item.columns[i].oid, self._source.held[i]
                if array.type != arrow(held_as):
                    array = array_of(array.to_pylist(), oid, held_as)
            found.append(array)
        return found


T = TypeVar("T")


class InThread(Protocol):
    """Runs a function away from the loop (sqlproxy.analytic.engine.Engine.in_thread)."""

    async def __call__(self, call: Callable[..., T], *args: object) -> T: ...


def planned(loaders: Sequence[Loader], env: Env, estimates: Estimates | None) -> list[Loader]:
    """In the order in which they would be read, each with its way, if the rows of none are too
    many to say which of another matter.
    """
    left, found = list(loaders), list[Loader]()
    while left:
        found.append(_next(left, env, estimates))
        for other in left:
            other.led(found[-1], None)
    return found


def _next(left: list[Loader], env: Env, estimates: Estimates | None) -> Loader:
    """The narrowest: by how many rows it reads, if that is known of all, else by its keys."""
    best = max(left, key=lambda one: one.score)
    if len(left) > 1 and estimates is not None:
        rows = [one.expected(env, estimates) for one in left]
        known = [(count, n) for n, count in enumerate(rows) if count is not None]
        if len(known) == len(left) and min(known)[0] < (rows[left.index(best)] or 0.0):
            best = left[min(known)[1]]
    left.remove(best)
    return best


async def load_all(
    loaders: list[Loader], reads: Reads, env: Env, touched: Touched, in_thread: InThread
) -> dict[str, pa.Table]:
    """The rows of all sources, the narrowest first: its rows say which of others matter. `loaders`
    are to be closed then, whatever happens.
    """
    left, found = list(loaders), dict[str, pa.Table]()
    while left:
        loader = _next(left, env, touched.estimates)
        try:
            rows = await load(loader, reads, env, touched, in_thread)
        except _TooMany:  # all of them come quicker one after the other
            at = loaders.index(loader)
            loader = loaders[at] = loader.again()
            rows = await load(loader, reads, env, touched, in_thread)
        found[loader.name] = rows
        for other in left:
            other.led(loader, rows)
    return found


class _TooMany(Exception):
    """An index leads to many rows, one by one."""


async def load(
    loader: Loader, reads: Reads, env: Env, touched: Touched, in_thread: InThread
) -> pa.Table:
    """All rows that a source needs. `in_thread` runs a function away from the loop. Raises
    _TooMany.
    """
    reader = loader.reader()
    if reader is not None:
        reader = await reader.narrowest(reads, env, touched)
        reader = reader.unless_many(env, touched.estimates)
    with touched.scan_of(loader.table, reader, loader.origin) as here:
        return await _loaded(loader, reader, reads, env, here, in_thread)


async def _loaded(
    loader: Loader,
    reader: TableReader | None,
    reads: Reads,
    env: Env,
    touched: Touched,
    in_thread: InThread,
) -> pa.Table:
    prefix = table_prefix(loader.table.id)
    first, last = table_range(loader.table.id)
    ranges = [(first, last)]
    if reader is not None:
        access, spans = reader.access, reader.spans(env)
        if access.index is not None or access.beside or spans.points:
            count, single = 0, access.points or reader.covered
            async for found in reader.batches(reads, env, touched):
                count += len(found)
                if loader.origin and not single and count > SQL_LED_ROWS_MAX:
                    raise _TooMany
                await in_thread(loader.rows, found)
            return await in_thread(loader.done)
        ranges = [
            (prefix + one.start, prefix + one.end if one.end else last) for one in spans.ranges
        ]
    for start, end in ranges:
        if loader.bare:
            await _Pages(loader, reads, touched, in_thread).read(start, end)
            continue
        at: bytes | None = start
        while at is not None:
            at = await _rows(loader, reads, at, end, touched, in_thread)
    return await in_thread(loader.done)


async def _rows(
    loader: Loader, reads: Reads, at: bytes, end: bytes, touched: Touched, in_thread: InThread
) -> bytes | None:
    """One page with its keys, and where to go on."""
    got = await reads.scan(at, end, limit=SQL_ANALYTIC_SCAN_ROWS, tally=touched.tally)
    touched.scan(len(got.items))
    if got.items:
        await in_thread(loader.decoded, got.items)
    return got.resume


class _Page(NamedTuple):
    """Records as they lie of `[start, resume)`; `resume` None: to the end of the range."""

    start: bytes
    lengths: bytes
    records: bytes
    resume: bytes | None


class _Pages:
    """All rows of ranges, of which only the values are wanted: pages of records as they lie, each
    decoded while the next is read; where one is not simple, it and the next ones as values.
    """

    def __init__(self, loader: Loader, reads: Reads, touched: Touched, in_thread: InThread) -> None:
        self._loader, self._reads, self._touched = loader, reads, touched
        self._in_thread = in_thread
        self._values_for = 0  # so many pages are asked for as values

    async def read(self, start: bytes, end: bytes) -> None:
        """All of one range, in its order."""
        at: bytes | None = start
        while at is not None:
            if self._values_for:
                self._values_for -= 1
                at = await self._values(at, end)
                continue
            at = await self._sealed(at, end)
            self._values_for = _VALUES_PAGES

    async def _sealed(self, start: bytes, end: bytes) -> bytes | None:
        """Pages as long as they are simple, and where to go on by values."""
        page = await self._next(start, end)
        at: bytes | None = start
        while page is not None:
            # both end before the first error is raised: a thread must not write to what is closed
            decode = self._in_thread(
                self._loader.sealed, page.lengths, page.records, self._reads.read_ts
            )
            rows, following = await asyncio.gather(
                decode, self._next(page.resume, end), return_exceptions=True
            )
            if isinstance(rows, BaseException):
                raise rows
            if isinstance(following, BaseException):
                raise following
            if rows is None:
                return page.start
            self._touched.scan(rows)
            if self._touched.tally is not None:
                self._touched.tally.versions += len(page.lengths) // _LENGTHS_BYTES
            at, page = page.resume, following
        return at

    async def _next(self, at: bytes | None, end: bytes) -> _Page | None:
        """None: there is none, or it has to be values."""
        if at is None:
            return None
        found = await self._reads.scan_sealed(at, end, limit=SCAN_SEALED_ROWS_MAX)
        return None if found is None else _Page(at, *found)

    async def _values(self, at: bytes, end: bytes) -> bytes | None:
        """One page without its keys, and where to go on."""
        values = await self._reads.scan_values(
            at, end, limit=SQL_ANALYTIC_SCAN_ROWS, tally=self._touched.tally
        )
        if values is None:
            return await _rows(self._loader, self._reads, at, end, self._touched, self._in_thread)
        raws, resume = values
        self._touched.scan(len(raws))
        if raws:
            await self._in_thread(self._loader.values, raws)
        return resume
