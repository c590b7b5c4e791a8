"""Batch reads: one version per `load()`, one Spark partition per key range, Arrow record batches.

The version is chosen on the driver when Spark asks for the reader and stays, so every action on
every frame derived from one `load()` sees the same data; a lease keeps it (pyspark_kvorum.pins).

Key ranges are cut at the borders of partitions and, where one is large, inside of it
(SPARK_PART_BYTES). They are plain ranges of storage keys: a partition that is split, merged or
moved between planning and reading is found by the client where it is then, at the same version.

How a task reads its range: pyspark_kvorum.paging.

`where` narrows the range by what it says of the first primary-key column, so that the store never
reads the rest (pyspark_kvorum.where_option); the condition itself is applied to each page, before
Spark sees a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kv.base.errors import KvorumError, SnapshotTooOld
from kv.base.keys import table_prefix, table_range
from kv.base.limits import SPARK_PART_BYTES, SPARK_PARTS_MAX
from kv.base.methods import PARTS
from pyspark_kvorum.options import Options
from pyspark_kvorum.paging import Decode, Pages, in_batches
from pyspark_kvorum.pins import Pin, too_old
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.session import Session
from sqlproxy.rows import arrow_rows
from sqlproxy.rows.schema import Table


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
        decode = Decode(self.table, self.schema, self.options.where)
        with Session(self.options, self.table) as session:
            if self.reading.near is not None:
                session.read_past_near(self.reading.near)
            try:
                pages = Pages(session, decode, self.pin, self.options.page_rows)
                yield from in_batches(pages.batches(partition.start, partition.end))
            except SnapshotTooOld as e:
                raise too_old(e, self.pin.at) from e
            finally:
                self.pin.left(session)


def table_bounds(table: Table, options: Options) -> tuple[bytes, bytes]:
    """The storage keys that the options leave of the table. Raises InvalidArgument for a wrong
    condition, too.
    """
    start, end = table_range(table.id)
    prefix = table_prefix(table.id)
    low = high = b""
    if options.where:
        from pyspark_kvorum.where_option import Condition

        low, high = Condition(options.where, table).bounds()
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
    """Estimates: where nothing is known, there are no cuts."""
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
