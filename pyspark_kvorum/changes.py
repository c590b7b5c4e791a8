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

Offsets are JSON: {"table": id, "version": "V"}, and while the first rows are told "after": the
storage key (hex) that is next. Deliberately missing: `where` (a row that leaves a condition is
neither deletion nor update: say in Spark what you mean), and expiry, which is no event.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kv.base.errors import InvalidArgument, Refused, SnapshotTooOld
from kv.base.limits import FEED_BYTES_MAX, FEED_ROWS_MAX
from kv.base.methods import PAIRS
from kv.base.timestamps import LOGICAL_BITS
from kv.feed.changes import parse_cursor
from pyspark_kvorum.options import Options
from pyspark_kvorum.paging import in_batches
from pyspark_kvorum.pins import Pin
from pyspark_kvorum.planning import Planner, behind
from pyspark_kvorum.read_options import EARLIEST, LATEST, ReadOptions
from pyspark_kvorum.reader import table_bounds
from pyspark_kvorum.session import Session
from sqlproxy import arrow_rows
from sqlproxy.schema import Table
from txn.results import ScanPage

OP, OLD, VERSION, TIME = "_op", "_old", "_commit_version", "_commit_time"
_OWN: Final = (OP, OLD, VERSION, TIME)
_OPS: Final = pa.array(["insert", "update", "delete"])
_INSERT, _UPDATE, _DELETE = range(3)
_DECODE_ROWS: Final = 1_000
_PREFIX_BYTES: Final = 4
_SCAN_BUDGET_MS: Final = 30_000

Change = tuple[bytes, bytes | None, int, bytes | None]
"""(storage key, value or None = deleted, version, old value or None)"""


def changes_schema(table: T.StructType) -> T.StructType:
    """The columns of the stream. Raises InvalidArgument if the table has one of our names."""
    if taken := [f.name for f in table.fields if f.name in _OWN]:
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.options, self.reading, self.table, self.bounds)
        return self._planner

    # -- planning, in one process of the driver

    def initialOffset(self) -> dict[str, Any]:
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

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        version, after = self._position(start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        if after is None:
            return self._offset(self.planner.latest(version, rows_max))
        return self._offset(version, after=self.planner.snapshot_to(version, after, rows_max))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        (low, after), (high, until) = self._position(start), self._position(end)
        if after is not None:
            edge = self.bounds[1] if until is None else until
            pin, ranges = self.planner.snapshot_ranges(low, after, edge)
            return [Some(a, b, -1, low, pin) for a, b in ranges]
        if low >= high:
            return []
        pin, ranges = self.planner.ranges(low, high)
        return [Some(a, b, low, high, pin) for a, b in ranges]

    def commit(self, end: dict[str, Any]) -> None:
        version, after = self._position(end)
        self.planner.committed(version, in_snapshot=after is not None)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _offset(self, version: int, after: bytes | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {"table": int(self.table.id), "version": str(version)}
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
                if partition.above < 0:
                    yield from self._batches(_rows_at(session, partition))
                else:
                    yield from self._batches([_changes(session, partition)])
            except SnapshotTooOld as e:
                raise behind(e, partition.above) from e
            finally:
                gc.enable()
                if partition.pin is not None:
                    partition.pin.left(session)

    def _batches(self, some: Iterator[list[Change]] | list[list[Change]]) -> Iterator[Any]:
        want = to_arrow_schema(self.schema, timezone="UTC")
        return in_batches(
            self._decode(changes[at : at + _DECODE_ROWS]).cast(want)
            for changes in some
            for at in range(0, len(changes), _DECODE_ROWS)
        )

    def _decode(self, changes: list[Change]) -> pa.RecordBatch:
        """The rows, columns first."""
        columns = [f.name for f in self.schema.fields if f.name not in _OWN]
        stored, values, versions, olds = zip(*changes, strict=True)
        keys = [key[_PREFIX_BYTES:] for key in stored]
        ops, arrays, schema = self._after(keys, values, olds, columns)
        old = self._before(keys, values, olds, columns, schema)
        at = pa.array(versions, pa.int64())
        micros = pc.multiply(pc.shift_right(at, LOGICAL_BITS), 1_000)
        return pa.record_batch(
            [ops, *arrays, old, at, micros.view(pa.timestamp("us", "UTC"))],
            names=[OP, *columns, OLD, VERSION, TIME],
        )

    def _after(
        self,
        keys: list[bytes],
        values: tuple[bytes | None, ...],
        olds: tuple[bytes | None, ...],
        columns: list[str],
    ) -> tuple[pa.Array, list[pa.Array], pa.Schema]:
        """The operations, the rows as they are since then, and the schema of these."""
        deleted = None in values
        rows = list(map(_either, values, olds)) if deleted else [v for v in values if v is not None]
        now = arrow_rows.decode_batch(self.table, keys, rows, columns)
        if not deleted:
            inserts = olds.count(None)
            if inserts in (0, len(olds)):
                code = _INSERT if inserts else _UPDATE
                return pa.repeat(_OPS[code], len(olds)), now.columns, now.schema
        codes = [
            _DELETE if value is None else _INSERT if old is None else _UPDATE
            for value, old in zip(values, olds, strict=True)
        ]
        arrays = now.columns
        if deleted:
            gone = pa.array([code == _DELETE for code in codes])
            own = {"key"} if self.table.plain else set(self.table.primary_key)
            arrays = [
                array if name in own else pc.if_else(gone, pa.scalar(None, array.type), array)
                for name, array in zip(columns, arrays, strict=True)
            ]
        return _OPS.take(pa.array(codes)), arrays, now.schema

    def _before(
        self,
        keys: list[bytes],
        values: tuple[bytes | None, ...],
        olds: tuple[bytes | None, ...],
        columns: list[str],
        schema: pa.Schema,
    ) -> pa.Array:
        """The rows as they were, structs; NULL of an insert."""
        missing = olds.count(None)
        if missing == len(olds):
            return pa.nulls(len(olds), pa.struct(list(schema)))
        rows = list(map(_either, olds, values)) if missing else [v for v in olds if v is not None]
        was = arrow_rows.decode_batch(self.table, keys, rows, columns)
        mask = pa.array([old is None for old in olds]) if missing else None
        return pa.StructArray.from_arrays(was.columns, fields=list(schema), mask=mask)


def _either(wanted: bytes | None, other: bytes | None) -> bytes:
    """A row to decode where there is none: it is masked afterwards."""
    found = other if wanted is None else wanted
    assert found is not None, "a deletion of nothing is no change"
    return found


def _changes(session: Session, wanted: Some) -> list[Change]:
    """All changes of the range, by version and key. A task's share of a batch is held in memory
    (SPARK_CHANGES_PER_TASK): the planner cuts it so.
    """

    async def ask(start: bytes, cursor: bytes | None) -> tuple[Any, bytes, bytes | None]:
        here = await session.kv.locate(start)
        high = min(wanted.end, here.end) if here.end else wanted.end
        rows, cursor = await session.kv.call(
            *(PAIRS, start, start, high, wanted.upto, FEED_ROWS_MAX, wanted.above, False),
            *(FEED_BYTES_MAX, cursor),
        )
        # From a cursor's own key on: the partition that has it now may not have what came before.
        return rows, high if cursor is None else parse_cursor(cursor)[0], cursor

    def begin(start: bytes, cursor: bytes | None) -> asyncio.Task[Any]:
        return session.begin(session.definite(lambda: ask(start, cursor)))

    found: list[Change] = []
    flying = begin(wanted.start, None) if wanted.start < wanted.end else None
    while flying is not None:
        rows, at, cursor = session.run(_of(flying))
        flying = begin(at, cursor) if at < wanted.end else None
        # Of a deletion of nothing both are None: it is no change.
        found += [row for row in rows if row[1] is not None or row[3] is not None]
    found.sort(key=itemgetter(2))  # they came by key, so those of one version stay so
    return found


def _rows_at(session: Session, wanted: Some) -> Iterator[list[Change]]:
    """The rows of the range at `upto`, in pages."""

    async def ask(start: bytes) -> ScanPage:
        return await session.txn.reader.scan(
            *(start, wanted.end, wanted.upto),
            limit=_DECODE_ROWS, reverse=False, budget_ms=_SCAN_BUDGET_MS,
        )  # fmt: skip

    at: bytes | None = wanted.start
    while at is not None and at < wanted.end:
        page = session.run(session.definite(partial(ask, at)))
        yield [(key, value, version, None) for key, value, version in page.items]
        at = page.resume
        if wanted.pin is not None:
            wanted.pin.renew(session)


async def _of(flying: asyncio.Task[Any]) -> Any:
    return await flying
