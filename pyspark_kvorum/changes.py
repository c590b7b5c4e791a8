"""The changes of a table as a stream: `readStream.format("kvorum").option("changes", "true")`.

    _op                 insert, update or delete
    the columns         the row as it is since then; of a deletion only the key's, others NULL
    _old                the row as it was before, a struct of the same columns; NULL of an insert
    _commit_version     of the transaction
    _commit_time        when it committed (the oracle's milliseconds)

A micro-batch is the transactions of (start, end], whole: an offset is a version at or below which
everything is known (pyspark_kvorum.planning), so a batch that is read again is the same batch.
Within a task rows come by version; a large batch has tasks side by side, cut by key, so all changes
of a row are in one task. Who wants one order sorts by `_commit_version`.

`startingVersion` earliest begins with all rows at the version V at which the query first started,
each as an insert with its own `_commit_version`, then goes on with what was committed after V.

Offsets are JSON: {"table": id, "version": "V"}, and while the first rows are given "after": the
storage key (hex) that is next. Deliberately missing: `where` (a row that leaves a condition is
neither deletion nor update: say in Spark what you mean), and expiry, which is no event.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kv.base.errors import InvalidArgument, Refused, SnapshotTooOld
from pyspark_kvorum.changed_batches import (
    OLD,
    OP,
    OWN,
    TIME,
    VERSION,
    Change,
    ChangedBatches,
    Changes,
)
from pyspark_kvorum.options import Options
from pyspark_kvorum.paging import in_batches
from pyspark_kvorum.pins import Pin
from pyspark_kvorum.planning import Planner, too_late
from pyspark_kvorum.read_options import EARLIEST, LATEST, ReadOptions
from pyspark_kvorum.reader import table_bounds
from pyspark_kvorum.session import Session
from sqlproxy.rows.schema import Table
from txn.results import ScanPage

_DECODE_ROWS: Final = 1_000
_SCAN_BUDGET_MS: Final = 30_000


def changes_schema(table: T.StructType) -> T.StructType:
    """The columns of the stream. Raises InvalidArgument if the table has one of our names."""
    if taken := [f.name for f in table.fields if f.name in OWN]:
        raise InvalidArgument(
            f"the table has a column {taken[0]!r}, which a stream of changes has itself; choose"
            " others by option columns"
        )
    loose = [T.StructField(f.name, f.dataType, True) for f in table.fields]
    return T.StructType(
        [
            T.StructField(OP, T.StringType(), False),
            *loose,
            T.StructField(OLD, T.StructType(loose), True),
            T.StructField(VERSION, T.LongType(), False),
            T.StructField(TIME, T.TimestampType(), False),
        ]
    )


@dataclass
class Some(InputPartition):
    """Changes of (above, upto] in `[start, end)`; `above` < 0: the rows as they are at `upto`."""

    start: bytes
    end: bytes
    above: int
    upto: int
    pin: Pin | None


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made wherever Spark needs one; what plans is made with the first question and stays there."""

    def __init__(self, options: Options, reading: ReadOptions, schema: T.StructType) -> None:
        self.options, self.reading, self.schema = options, reading, schema
        with Session(options) as session:
            self.table: Table = session.table
        self.bounds = table_bounds(self.table, options)
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.options, self.reading, self.table, self.bounds)
        return self._planner

    # -- planning, in one process of the driver

    def initialOffset(self) -> dict[str, object]:
        match self.reading.starting:
            case int(version):
                return self._offset(self.planner.past(version))
            case str(word) if word == LATEST:
                return self._offset(self.planner.now())
            case word:
                assert word == EARLIEST
                return self._offset(self.planner.begin_snapshot(), after=self.bounds[0])

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.reading.max_rows:
            return ReadMaxRows(self.reading.max_rows)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.stop_at_now()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        version, after = self._position(start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        if after is None:
            return self._offset(self.planner.latest(version, rows_max))
        return self._offset(version, after=self.planner.snapshot_to(version, after, rows_max))

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        (low, after), (high, until) = self._position(start), self._position(end)
        if after is not None:
            edge = self.bounds[1] if until is None else until
            pin, ranges = self.planner.snapshot_ranges(low, after, edge)
            return [Some(a, b, -1, low, pin) for a, b in ranges]
        if low >= high:
            return []
        pin, ranges = self.planner.ranges(low, high)
        return [Some(a, b, low, high, pin) for a, b in ranges]

    def commit(self, end: dict[str, object]) -> None:
        version, after = self._position(end)
        self.planner.committed(version, in_snapshot=after is not None)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _offset(self, version: int, after: bytes | None = None) -> dict[str, object]:
        found: dict[str, object] = {"table": int(self.table.id), "version": str(version)}
        return found if after is None else {**found, "after": after.hex()}

    def _position(self, offset: dict[str, Any]) -> tuple[int, bytes | None]:
        if offset["table"] != int(self.table.id):
            raise Refused(
                f"table {self.table.path} was dropped and made anew, or truncated, since this"
                " stream began; a new query with a new checkpoint reads the new one",
                code="TABLE_CHANGED",
            )
        after = offset.get("after")
        return int(offset["version"]), None if after is None else bytes.fromhex(after)

    # -- reading, in the tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Some)
        with Session(self.options, self.table) as session:
            if partition.pin is not None:
                partition.pin.renew(session)
            gc.disable()  # a batch of small objects, none of which is garbage before its end
            try:
                changes = Changes(self.table, self.schema)
                low, high = partition.start, partition.end
                if partition.above >= 0:
                    teller = ChangedBatches(session, changes, partition.above, partition.upto)
                    yield from teller.batches(low, high)
                else:
                    pages = map(changes.of_rows, _rows_at(session, partition))
                    yield from in_batches(chain.from_iterable(pages))
            except SnapshotTooOld as e:
                raise too_late(e, partition.above) from e
            finally:
                gc.enable()
                if partition.pin is not None:
                    partition.pin.left(session)


def _rows_at(session: Session, wanted: Some) -> Iterator[list[Change]]:
    """The rows of the range at `upto`, in pages."""

    async def ask(start: bytes) -> ScanPage:
        return await session.txn.reader.scan(
            *(start, wanted.end, wanted.upto),
            limit=_DECODE_ROWS,
            reverse=False,
            budget_ms=_SCAN_BUDGET_MS,
        )

    at: bytes | None = wanted.start
    while at is not None and at < wanted.end:
        page = session.run(session.definite(partial(ask, at)))
        yield [(key, value, version, None) for key, value, version in page.items]
        at = page.resume
        if wanted.pin is not None:
            wanted.pin.renew(session)
