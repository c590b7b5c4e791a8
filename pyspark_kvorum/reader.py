"""Batch reads: one version per `load()`, one Spark partition per key range, Arrow record batches.

The version is chosen on the driver when Spark asks for the reader and stays, so every action on
every frame derived from one `load()` sees the same data; a lease keeps it (pyspark_kvorum.pins).

Key ranges are cut at the borders of partitions and, where one is large, inside of it
(SPARK_PART_BYTES). They are plain ranges of storage keys: a partition that is split, merged or
moved between planning and reading is found by the client where it is then, at the same version.

Two requests are on their way for each task: the store looks for the next page while this one
becomes a record batch. What the values hold alone is asked for alone (SCAN_VALUES): rows of
declared tables have their keys in their values.

`where` narrows the range by what it says of the first primary-key column, so that the store never
reads the rest (pyspark_kvorum.where); the condition itself is applied to each page, before Spark
sees a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kv.base.errors import KvorumError, SnapshotTooOld
from kv.base.keys import table_prefix, table_range
from kv.base.limits import SPARK_PART_BYTES, SPARK_PARTS_MAX
from kv.base.methods import PARTS
from pyspark_kvorum.options import Options
from pyspark_kvorum.pins import Pin, too_old
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import as_spark
from pyspark_kvorum.where import columns_of, compile_where, key_bounds, widths_of
from sqlproxy import arrow_rows
from sqlproxy.schema import Table

_PREFIX_BYTES: Final = 4  # of the table, in storage keys
_PAGE_ROWS: Final = 1_000  # decoded at once: more leave the processor's cache, and cost more each
_BATCH_ROWS: Final = 8_000  # that Spark gets at once
_BUDGET_MS: Final = 30_000

Page = tuple[list[bytes] | None, list[bytes], bytes | None]
"""(user keys if they are wanted, values, where to go on)"""


@dataclass
class KeyRange(InputPartition):
    """`[start, end)` in storage keys."""

    start: bytes
    end: bytes


class KvorumReader(DataSourceReader):
    """Made on the driver; pickled to the tasks."""

    def __init__(self, options: Options, reading: ReadOptions, schema: StructType) -> None:
        self.options, self.reading, self.schema = options, reading, schema
        with Session(options) as session:
            self.table: Table = session.table
            if options.where:
                compile_where(
                    options.where, arrow_rows.arrow_schema(self.table), widths_of(self.table)
                )
            self.bounds = table_bounds(session.table, options)
            try:
                self.pin = Pin.open(session, reading.at, reading.owner)
            except SnapshotTooOld as e:
                raise too_old(e, reading.at) from e

    def partitions(self) -> list[InputPartition]:
        """The ranges to read; never empty, because Spark reads [] as one None."""
        start, end = self.bounds
        if start >= end:
            return [KeyRange(start, start)]
        with Session(self.options, self.table) as session:
            ranges = session.run(key_ranges(session, start, end, self.reading.parts))
        return [KeyRange(low, high) for low, high, _ in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Pages of the range at the version, filtered and narrowed before they reach Spark."""
        assert isinstance(partition, KeyRange)
        decode = _Decode(self.table, self.schema, self.options.where)
        rows = min(self.options.page_rows, _PAGE_ROWS)
        with Session(self.options, self.table) as session:
            try:
                found = pages(session, partition, self.pin, rows=rows, keys=decode.wants_keys)
                yield from in_batches(map(decode, found))
            except SnapshotTooOld as e:
                raise too_old(e, self.pin.at) from e
            finally:
                self.pin.left(session)


class _Decode:
    """A page as a record batch of the wanted columns."""

    def __init__(self, table: Table, schema: StructType, where: str) -> None:
        self._table = table
        self._want = to_arrow_schema(schema, timezone="UTC")
        self._names = [f.name for f in schema.fields]
        self._full, self._condition = self._names, None
        if where:
            there = arrow_rows.arrow_schema(table)
            self._condition = compile_where(where, there, widths_of(table))
            self._full = self._names + sorted(columns_of(where, there.names) - set(self._names))
        self.wants_keys = table.plain and "key" in self._full

    def __call__(self, page: Page) -> pa.RecordBatch:
        keys, values, _ = page
        batch = arrow_rows.decode_batch(
            self._table, keys if keys is not None else [b""] * len(values), values, self._full
        )
        if self._condition is not None:
            batch = batch.filter(self._condition)
        if batch.schema.equals(self._want):
            return batch
        batch = as_spark(batch)
        return batch.select(self._names).cast(self._want)


def pages(session: Session, wanted: KeyRange, pin: Pin, *, rows: int, keys: bool) -> Iterator[Page]:
    """All rows of the range, the next page asked for before one is given out."""

    async def ask(start: bytes) -> Page:
        if keys:
            page = await session.txn.reader.scan(
                start, wanted.end, pin.at, limit=rows, reverse=False, budget_ms=_BUDGET_MS
            )
            found = [key[_PREFIX_BYTES:] for key, _, _ in page.items]
            return found, [value for _, value, _ in page.items], page.resume
        values, resume = await session.txn.reader.scan_values(
            start, wanted.end, pin.at, limit=rows, budget_ms=_BUDGET_MS
        )
        return None, values, resume

    def begin(start: bytes) -> asyncio.Task[Any]:
        return session.begin(session.definite(lambda: ask(start)))

    if wanted.start >= wanted.end:
        return
    pin.renew(session)
    flying: asyncio.Task[Any] | None = begin(wanted.start)
    while flying is not None:
        page: Page = session.run(_of(flying))
        resume = page[2]
        flying = None if resume is None or resume >= wanted.end else begin(resume)
        if page[1]:
            yield page
        pin.renew(session)


async def _of(flying: asyncio.Task[Any]) -> Any:
    return await flying


def in_batches(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Several pages in one: each batch costs Spark as much as a few hundred rows."""
    some: list[pa.RecordBatch] = []
    rows = 0
    for batch in found:
        some.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield pa.concat_batches(some)
            some, rows = [], 0
    if rows:
        yield pa.concat_batches(some)


def table_bounds(table: Table, options: Options) -> tuple[bytes, bytes]:
    """The storage keys that the options leave of the table."""
    start, end = table_range(table.id)
    prefix = table_prefix(table.id)
    low, high = key_bounds(options.where, table) if options.where else (b"", b"")
    if options.key_from is not None:
        low = max(low, arrow_rows.key_prefix(table, options.key_from))
    if options.key_to is not None:
        bound = arrow_rows.key_prefix(table, options.key_to)
        high = min(high or bound, bound)
        end = prefix + high
    elif high:
        end = prefix + high
    return max(start, prefix + low), end


async def key_ranges(
    session: Session, start: bytes, end: bytes, parts: int = 0
) -> list[tuple[bytes, bytes, int]]:
    """`[start, end)` as ranges for tasks, with estimates of their bytes. `parts` 0 = by size."""
    whole: list[tuple[bytes, bytes, int]] = []
    at = start
    while at < end:
        descriptor = await session.definite(lambda key=at: session.kv.locate(key))
        high = min(descriptor.end or end, end)
        _, size = await _parts(session, at, high, 1)
        whole.append((at, high, size))
        at = high
    total = sum(size for _, _, size in whole)
    ranges: list[tuple[bytes, bytes, int]] = []
    for low, high, size in whole:
        wanted = -(-size // SPARK_PART_BYTES)
        if parts:
            wanted = round(parts * size / total) if total else 1
        count = max(1, min(wanted, SPARK_PARTS_MAX // len(whole)))
        cuts = (await _parts(session, low, high, count))[0] if count > 1 else []
        edges = [low, *cuts, high]
        ranges += [(a, b, size // (len(cuts) + 1)) for a, b in pairwise(edges)]
    return ranges


async def _parts(session: Session, start: bytes, end: bytes, count: int) -> tuple[list[bytes], int]:
    """Estimates: where nothing can be told, there are no cuts."""
    try:
        keys, size = await session.kv.call(PARTS, start, start, end, count)
    except KvorumError:
        return [], 0  # it was split or moved a moment ago, say
    return keys, size


def estimate(raw: Mapping[str, str]) -> int:
    """About how many bytes the range of these options has."""
    options = Options.parse(raw)
    with Session(options) as session:
        start, end = table_bounds(session.table, options)
        if start >= end:
            return 0
        return sum(size for *_, size in session.run(key_ranges(session, start, end, 1)))
