"""The changes of a range as record batches, by version: what a task of a stream of changes reads.

    sealed   the usual way: the store copies records of `cur` and of `hist` as they lie
             (kv/feed/slices.py); here they are checked, paired and become columns without an object
             for any value (sqlproxy.rows.arrow_pages)
    rows     where a page is not so simple (deletions, rows that expire, several changes of one key,
             changes above the batch): the store gives each change with what it replaced, and as
             that is rarely alone, the next _ROWS_PAGES are asked for in the same way

A task's share of a batch is held in memory (SPARK_CHANGES_PER_TASK; the planner cuts it so), and
sorted where its versions do not rise as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kv.base.keys import MAX64, TERMINATOR
from kv.base.limits import FEED_BYTES_MAX, FEED_ROWS_MAX
from kv.base.methods import PAIRS
from kv.base.timestamps import LOGICAL_BITS
from kv.feed.changes import parse_cursor
from kv.feed.version_pairs import ROWS, SEALED
from pyspark_kvorum.paging import in_batches
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import texts_of
from sqlproxy.rows import arrow_pages, arrow_rows
from sqlproxy.rows.arrow_pages import Page
from sqlproxy.rows.schema import Table

OP, OLD, VERSION, TIME = "_op", "_old", "_commit_version", "_commit_time"
OWN: Final = (OP, OLD, VERSION, TIME)
_OPS: Final = pa.array(["insert", "update", "delete"])
_INSERT, _UPDATE, _DELETE = range(3)
_DECODE_ROWS: Final = 1_000
_BATCH_ROWS: Final = 8_000  # that Spark gets at once
_ROWS_PAGES: Final = 16
_PROBE_ROWS: Final = 128
_PREFIX_BYTES: Final = 4
_TAIL_BYTES: Final = 8  # of a key in hist: the complement of its version
_JOINED_BYTES_MAX: Final = 1 << 30  # Arrow counts the bytes of a column of texts by 31 bits

Change = tuple[bytes, bytes | None, int, bytes | None]
"""(storage key, value or None = deleted, version, old value or None)"""
Versions = NDArray[np.int64]


class _Found(NamedTuple):
    """A page of the range, from a cursor (None: from its start) up to the key `at`."""

    start: bytes
    since: bytes | None
    at: bytes
    cursor: bytes | None
    sealed: bool
    rows: list[object]


class Changes:
    """Decodes changes of one table into batches of one schema."""

    def __init__(self, table: Table, schema: StructType) -> None:
        self._table = table
        self._want = to_arrow_schema(schema, timezone="UTC")
        self._columns = [f.name for f in schema.fields if f.name not in OWN]
        self._texts = texts_of(table, schema)

    def of_rows(self, changes: list[Change]) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(changes), _DECODE_ROWS):
            yield self._decode(changes[at : at + _DECODE_ROWS])

    def of_slice(self, found: list[Any], above: int, upto: int) -> pa.RecordBatch | None:
        """Of a sealed slice of `cur` and `hist`; None: it is not simple."""
        now = arrow_pages.plain_page(found[0], found[1], upto)
        was = arrow_pages.plain_page(found[2], found[3], upto)
        if now is None or was is None:
            return None
        replaced = _replaced(now, was, above)
        if replaced is None:
            return None
        after = arrow_pages.page_columns(self._table, now, self._columns, self._texts)
        before = None
        if len(was):
            before = arrow_pages.page_columns(self._table, was, self._columns, self._texts)
        if after is None or (before is None and len(was)):
            return None
        fields = list(after.schema)
        if before is None:
            ops = pa.repeat(_OPS[_INSERT], len(now))
            old = pa.nulls(len(now), pa.struct(fields))
        else:
            columns = before.columns
            if self._table.plain and "key" in self._columns:  # in `hist` keys are escaped
                at = self._columns.index("key")
                columns[at] = after.columns[at].take(pa.array(np.flatnonzero(replaced >= 0)))
            old = pa.StructArray.from_arrays(columns, fields=fields)
            if len(was) == len(now):
                ops = pa.repeat(_OPS[_UPDATE], len(now))
            else:
                missing = replaced < 0
                ops = _OPS.take(pa.array(np.where(missing, _INSERT, _UPDATE)))
                old = old.take(pa.array(replaced, mask=missing))
        return self._batch(ops, after.columns, old, now.versions().view(np.int64))

    def _batch(self, ops: object, arrays: Any, old: object, versions: object) -> pa.RecordBatch:
        at = pa.array(versions, pa.int64())
        micros = pc.multiply(pc.shift_right(at, LOGICAL_BITS), 1_000)
        return pa.record_batch(
            [ops, *arrays, old, at, micros.view(pa.timestamp("us", "UTC"))],
            names=[OP, *self._columns, OLD, VERSION, TIME],
        ).cast(self._want)

    def _decode(self, changes: list[Change]) -> pa.RecordBatch:
        """The rows, columns first."""
        stored, values, versions, olds = zip(*changes, strict=True)
        keys = [key[_PREFIX_BYTES:] for key in stored]
        ops, arrays, schema = self._after(keys, values, olds)
        return self._batch(ops, arrays, self._before(keys, values, olds, schema), versions)

    def _after(
        self,
        keys: list[bytes],
        values: tuple[bytes | None, ...],
        olds: tuple[bytes | None, ...],
    ) -> tuple[pa.Array, list[pa.Array], pa.Schema]:
        """The operations, the rows as they are since then, and the schema of these."""
        deleted = None in values
        rows = list(map(_either, values, olds)) if deleted else [v for v in values if v is not None]
        now = arrow_rows.decode_batch(self._table, keys, rows, self._columns, self._texts)
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
            own = {"key"} if self._table.plain else set(self._table.primary_key)
            arrays = [
                array if name in own else pc.if_else(gone, pa.scalar(None, array.type), array)
                for name, array in zip(self._columns, arrays, strict=True)
            ]
        return _OPS.take(pa.array(codes)), arrays, now.schema

    def _before(
        self,
        keys: list[bytes],
        values: tuple[bytes | None, ...],
        olds: tuple[bytes | None, ...],
        schema: pa.Schema,
    ) -> pa.Array:
        """The rows as they were, structs; NULL of an insert."""
        missing = olds.count(None)
        if missing == len(olds):
            return pa.nulls(len(olds), pa.struct(list(schema)))
        rows = list(map(_either, olds, values)) if missing else [v for v in olds if v is not None]
        was = arrow_rows.decode_batch(self._table, keys, rows, self._columns, self._texts)
        mask = pa.array([old is None for old in olds]) if missing else None
        return pa.StructArray.from_arrays(was.columns, fields=list(schema), mask=mask)


def _either(wanted: bytes | None, other: bytes | None) -> bytes:
    """A row to decode where there is none: it is masked afterwards."""
    found = other if wanted is None else wanted
    assert found is not None, "a deletion of nothing is no change"
    return found


def _replaced(now: Page, was: Page, above: int) -> Versions | None:
    """For each row the place of what it replaced, -1 if that is none; None if a key has several
    versions, or one that something else replaced.
    """
    if not len(was):
        return np.full(len(now), -1, np.int64)
    if (MAX64 - was.tails() > np.uint64(above)).any():
        return None
    if len(was) == len(now):
        if not _same_keys(now, was):
            return None
        found = np.arange(len(was), dtype=np.int64)
    else:
        names = [key.replace(b"\x00", b"\x00\xff") + TERMINATOR for key in now.names()]
        old = [key[:-_TAIL_BYTES] for key in was.names()]
        places = {key: at for at, key in enumerate(old)}
        found = np.array([places.get(key, -1) for key in names], np.int64)
        if len(places) < len(old) or np.count_nonzero(found >= 0) < len(old):
            return None
    superseded = was.versions()[found]
    alone = found < 0
    return found if (alone | (superseded == now.versions())).all() else None


def _same_keys(now: Page, was: Page) -> bool:
    """Whether the rows of `hist` are those of the same keys, one by one. All keys escaped at once
    are the same bytes then, and each has the same share of them.
    """
    keys = now.pieces(now.keys, now.records)
    tail = _TAIL_BYTES + len(TERMINATOR)
    old = was.pieces(was.keys, was.records - tail)
    edges = np.frombuffer(keys.buffers()[1], np.int32, len(now) + 1)
    data = keys.buffers()[2].to_pybytes()[: edges[-1]]
    zeros = np.add.reduceat(np.frombuffer(data, np.uint8) == 0, edges[:-1], dtype=np.int64)
    wanted = np.concatenate([[0], np.cumsum(np.diff(edges) + zeros)])
    found = np.frombuffer(old.buffers()[1], np.int32, len(was) + 1)
    if not (wanted == found).all():
        return False
    escaped: bytes = data.replace(b"\x00", b"\x00\xff")
    others: bytes = old.buffers()[2].to_pybytes()[: found[-1]]
    return escaped == others


class ChangedBatches:
    """One task's walk over its range. Of one thread."""

    def __init__(self, session: Session, changes: Changes, above: int, upto: int) -> None:
        self._session, self._changes = session, changes
        self._above, self._upto = above, upto
        self._rows_for = 0  # so many pages are asked for as rows
        self._limit = _PROBE_ROWS  # of a slice: the first shows whether they are simple

    def batches(self, start: bytes, end: bytes) -> Iterator[pa.RecordBatch]:
        """All changes of the range, by version and key."""
        pages = list(self._pages(start, end))
        if not any(isinstance(page, pa.RecordBatch) for page in pages):
            changes = [change for page in pages for change in page]
            changes.sort(key=itemgetter(2))  # they came by key, so those of one version stay so
            return in_batches(self._changes.of_rows(changes))
        found: list[pa.RecordBatch] = []
        for page in pages:
            if isinstance(page, pa.RecordBatch):
                found.append(page)
            else:
                found += self._changes.of_rows(page)
        return by_version(found)

    def _pages(self, start: bytes, end: bytes) -> Iterator[pa.RecordBatch | list[Change]]:
        flying = self._begin(start, None, end) if start < end else None
        while flying is not None:
            page = self._session.run(_of(flying))
            flying, batch = None, None
            first, self._limit = self._limit == _PROBE_ROWS, FEED_ROWS_MAX
            if not first and page.at < end:
                flying = self._begin(page.at, page.cursor, end)
            if page.sealed:
                batch = self._changes.of_slice(page.rows, self._above, self._upto)
                if batch is None:
                    self._rows_for = _ROWS_PAGES
            if first and page.at < end:
                flying = self._begin(page.at, page.cursor, end)
            if batch is not None:
                yield batch
            elif page.sealed:
                yield from self._by_rows(page)
            else:
                yield _changed(page.rows)

    def _by_rows(self, page: _Found) -> Iterator[list[Change]]:
        at, cursor = page.start, page.since
        while at < page.at:
            found = self._session.run(
                self._session.definite(lambda at=at, cursor=cursor: self._rows(at, cursor, page.at))
            )
            yield _changed(found.rows)
            at, cursor = found.at, found.cursor

    def _begin(self, start: bytes, cursor: bytes | None, end: bytes) -> asyncio.Task[_Found]:
        return self._session.begin(self._session.definite(lambda: self._ask(start, cursor, end)))

    async def _ask(self, start: bytes, cursor: bytes | None, end: bytes) -> _Found:
        if not self._rows_for:
            found = await self._page(SEALED, start, cursor, end)
            if found.rows:
                return found
        else:
            self._rows_for -= 1
        return await self._rows(start, cursor, end)

    async def _rows(self, start: bytes, cursor: bytes | None, end: bytes) -> _Found:
        return await self._page(ROWS, start, cursor, end)

    async def _page(self, form: int, start: bytes, since: bytes | None, end: bytes) -> _Found:
        kv = self._session.kv
        here = await kv.locate(start)
        high = min(end, here.end) if here.end else end
        limit = self._limit if form == SEALED else FEED_ROWS_MAX
        rows, cursor = await kv.call(
            *(PAIRS, start, start, high, self._upto, limit, self._above, form),
            *(FEED_BYTES_MAX, since),
        )
        # From a cursor's own key on: the partition that has it now may not have what came before.
        at = high if cursor is None else parse_cursor(cursor)[0]
        return _Found(start, since, at, cursor, form == SEALED, rows)


def _changed(rows: list[Any]) -> list[Change]:
    """Of a deletion of nothing both values are None: it is no change."""
    return [row for row in rows if row[1] is not None or row[3] is not None]


async def _of(flying: asyncio.Task[_Found]) -> _Found:
    return await flying


def by_version(found: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows by version, those of one version as they come, in batches for Spark."""
    found = [batch for batch in found if batch.num_rows]
    if not found:
        return
    versions = np.concatenate([batch.column(VERSION).to_numpy() for batch in found])
    rising = bool((versions[1:] >= versions[:-1]).all())
    order = np.arange(len(versions)) if rising else np.argsort(versions, kind="stable")
    if sum(batch.nbytes for batch in found) > _JOINED_BYTES_MAX:
        edges = np.cumsum([0, *(batch.num_rows for batch in found)])
        for at in order.tolist():
            which = int(np.searchsorted(edges, at, side="right")) - 1
            yield found[which].slice(at - int(edges[which]), 1)
        return
    whole = pa.concat_batches(found)
    for low in range(0, len(order), _BATCH_ROWS):
        if rising:
            yield whole.slice(low, _BATCH_ROWS)
        else:
            yield whole.take(pa.array(order[low : low + _BATCH_ROWS]))
