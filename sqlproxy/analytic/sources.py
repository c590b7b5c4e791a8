"""The tables of a statement as Arrow: rows of the transaction's snapshot, its own writes among
them.

A table is read by the narrowest way that its conditions give (`sqlproxy.fast.access`), only the
columns that are used are decoded. Scans of the primary key are decoded column by column; rows found
by points or an index come from the reader of single tables. Small tables stay in memory, large ones
go to a file in Arrow's format, which is mapped, so that the system may drop their pages.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kv.base.keys import table_prefix, table_range
from kv.base.limits import SQL_ANALYTIC_SCAN_ROWS, SQL_ANALYTIC_SOURCE_BYTES
from sqlproxy import arrow_rows
from sqlproxy.analytic.forms import array_of, arrow
from sqlproxy.analytic.selects import Source
from sqlproxy.fast.access import Access, choose
from sqlproxy.fast.reading import Reads, Stored, TableReader, Touched
from sqlproxy.front.env import Env
from sqlproxy.schema import Column, Table

Items = Sequence[tuple[bytes, bytes, int]]


class Loader:
    """Collects one table's rows. `directory` is where a large one may go."""

    def __init__(self, source: Source, directory: Path) -> None:
        self._source, self._directory = source, directory
        self.table: Table = source.item.table
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: pa.RecordBatchFileWriter | None = None
        self._path: Path | None = None
        self.used = sorted(source.used)
        fields = [(f"c{i}", arrow(source.held[i])) for i in self.used]
        if source.keyed:
            fields.append(("k", pa.binary()))
        self.schema = pa.schema(fields or [("n", pa.bool_())])
        self._columns: list[Column] = []
        if not self.table.plain:
            by_id = {column.id: column for column in self.table.columns}
            self._columns = [by_id[source.item.columns[i].attribute] for i in self.used]

    @property
    def access(self) -> Access | None:
        """The way to the rows; None: a plain table is read whole."""
        if self.table.plain:
            return None
        return choose(self.table, self._source.conditions)[0]

    def add(self, batch: pa.RecordBatch) -> None:
        """In a thread: it may write."""
        self._bytes += batch.nbytes
        if self._writer is None and self._bytes > SQL_ANALYTIC_SOURCE_BYTES:
            self._path = self._directory / f"{self._source.name}-{id(self):x}.arrow"
            self._writer = pa.ipc.new_file(os.fspath(self._path), self.schema)
            for held in self._batches:
                self._writer.write_batch(held)
            self._batches = []
        if self._writer is not None:
            self._writer.write_batch(batch)
        else:
            self._batches.append(batch)

    def done(self) -> pa.Table:
        """What was added, as one table."""
        if self._writer is None:
            return pa.Table.from_batches(self._batches, self.schema)
        self._writer.close()
        assert self._path is not None
        return pa.ipc.open_file(pa.memory_map(os.fspath(self._path))).read_all()

    def close(self) -> None:
        """Give the file up; fine twice."""
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
    def bare(self) -> bool:
        """Whether the keys of its rows are of no use."""
        return not (self.table.plain or self._source.keyed)

    def values(self, values: list[bytes]) -> None:
        """The same of a page without its keys."""
        keys = [b""] * len(values)  # a damaged row is named by its table alone
        self.add(self._batch(self._arrays(keys, values), keys))

    def rows(self, rows: Sequence[Stored]) -> None:
        """Rows that a reader found."""
        place = {column.id: at for at, column in enumerate(self.table.columns)}
        arrays = []
        for i, column in zip(self.used, self._columns, strict=True):
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
        wanted = []
        for i, column in zip(self.used, self._columns, strict=True):
            kind = self.schema.field(f"c{i}").type
            # lists are made of values in user form: their elements may be held as text
            own = arrow_rows.arrow_type(column.resolved) if column.resolved.element else kind
            wanted.append((column, own))
        if not wanted:  # a count
            return []
        arrays = arrow_rows.stored_columns(self.table, keys, values, wanted)
        found = []
        for i, column, array in zip(self.used, self._columns, arrays, strict=True):
            if column.resolved.element:
                item = self._source.item.columns[i]
                array = array_of(array.to_pylist(), item.oid, self._source.held[i])
            found.append(array)
        return found


async def load(
    loader: Loader, reads: Reads, env: Env, touched: Touched, in_thread: Any
) -> pa.Table:
    """All rows that a source needs. `in_thread` runs a function away from the loop."""
    access = loader.access
    if access is not None and (access.index is not None or access.points):
        reader = TableReader(loader.table, access)
        async for found in reader.batches(reads, env, touched):
            await in_thread(loader.rows, found)
        return await in_thread(loader.done)
    prefix = table_prefix(loader.table.id)
    first, last = table_range(loader.table.id)
    ranges = [(first, last)]
    if access is not None:
        spans = TableReader(loader.table, access).spans(env)
        if spans.points:  # a list of keys
            reader = TableReader(loader.table, access)
            async for found in reader.batches(reads, env, touched):
                await in_thread(loader.rows, found)
            return await in_thread(loader.done)
        ranges = [(prefix + one.start, prefix + one.end if one.end else last)
                  for one in spans.ranges]  # fmt: skip
    bare = loader.bare
    for start, end in ranges:
        at: bytes | None = start
        while at is not None:
            if bare and (values := await reads.scan_values(at, end, limit=SQL_ANALYTIC_SCAN_ROWS)):
                raws, at = values
                touched.pages += 1
                touched.scanned += len(raws)
                if raws:
                    await in_thread(loader.values, raws)
                continue
            got = await reads.scan(at, end, limit=SQL_ANALYTIC_SCAN_ROWS)
            touched.pages += 1
            touched.scanned += len(got.items)
            if got.items:
                await in_thread(loader.decoded, got.items)
            at = got.resume
    return await in_thread(loader.done)
