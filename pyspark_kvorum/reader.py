"""Batch reads: one snapshot timestamp per `load()`, one Spark partition per key range, Arrow record
batches.

The timestamp is taken on the driver when Spark asks for the reader and stays pinned, so every
action on every frame derived from one `load()` sees the same data, until the cluster's retention
passes it (SNAPSHOT_TOO_OLD says so).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kv.base.errors import KvorumError, SnapshotTooOld
from kv.base.keys import table_prefix, table_range
from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session
from pyspark_kvorum.where import columns_of, compile_where
from sqlproxy import arrow_rows
from sqlproxy.schema import Table
from txn.results import ScanPage

_PREFIX_BYTES: Final = 4  # of the table, in storage keys


@dataclass
class KeyRange(InputPartition):
    """`[start, end)` in storage keys."""

    start: bytes
    end: bytes


class KvorumReader(DataSourceReader):
    """Made on the driver; pickled to the tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options, self.schema = options, schema
        with Session(options) as session:
            self.table: Table = session.table
            self.at: int = options.at or session.run(session.txn.now())
            self.bounds = _bounds(session.table, options)
            if options.where:
                compile_where(options.where, arrow_rows.arrow_schema(self.table))

    def partitions(self) -> list[InputPartition]:
        """The table's partitions cut to the wanted key range; never empty, because Spark reads []
        as one None.
        """
        start, end = self.bounds
        if start >= end:
            return [KeyRange(start, start)]
        with Session(self.options, self.table) as session:
            ranges = session.run(_partition_ranges(session, start, end))
        return [KeyRange(low, high) for low, high in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Pages of the range at the pinned timestamp, filtered and narrowed before they reach
        Spark.
        """
        assert isinstance(partition, KeyRange)
        want = _arrow(self.schema)
        names = [f.name for f in self.schema.fields]
        condition, full = None, names
        if self.options.where:
            condition = compile_where(self.options.where, arrow_rows.arrow_schema(self.table))
            full = names + sorted(columns_of(self.options.where) - set(names))
        with Session(self.options, self.table) as session:
            start = partition.start
            while start < partition.end:
                page = session.run(
                    session.definite(lambda at=start: self._page(session, at, partition.end))
                )
                if page.items:
                    keys = [key[_PREFIX_BYTES:] for key, _, _ in page.items]
                    values = [value for _, value, _ in page.items]
                    batch = arrow_rows.decode_batch(self.table, keys, values, full)
                    if condition is not None:
                        batch = batch.filter(condition)
                    if batch.num_rows:
                        yield batch.select(names).cast(want)
                if page.resume is None:
                    return
                start = page.resume

    async def _page(self, session: Session, start: bytes, end: bytes) -> ScanPage:
        try:
            return await session.txn.scan(start, end, limit=self.options.page_rows, at=self.at)
        except SnapshotTooOld as e:
            raise KvorumError(
                f"{e.code}: this load() is pinned to version {self.at}, which the cluster no longer"
                f" keeps; load() again, or raise gc_retention_ms: {e.message}",
                code=e.code,
                details=e.details,
            ) from e


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _bounds(table: Table, options: Options) -> tuple[bytes, bytes]:
    start, end = table_range(table.id)
    if options.key_from is not None:
        start = table_prefix(table.id) + arrow_rows.key_prefix(table, options.key_from)
    if options.key_to is not None:
        end = table_prefix(table.id) + arrow_rows.key_prefix(table, options.key_to)
    return start, end


async def _partition_ranges(
    session: Session, start: bytes, end: bytes
) -> list[tuple[bytes, bytes]]:
    ranges, at = [], start
    while at < end:
        descriptor = await session.definite(lambda key=at: session.kv.locate(key))
        high = min(descriptor.end or end, end)
        ranges.append((at, high))
        at = high
    return ranges
