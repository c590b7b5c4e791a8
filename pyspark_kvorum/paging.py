"""The rows of a range at one version as record batches, page by page: what a reading task does.

    sealed   the usual way. The store copies records, keys and all, as they lie (SCAN_SEALED); here
             they are checked and become columns without an object for any row
             (sqlproxy.rows.arrow_pages). It costs the store a third of what looking at each row did
    values   where a page is not so simple: rows that were changed or deleted since the version,
             rows that expire, intents, rows of an older definition. The store finds what this
             version has of them (SCAN_VALUES, or SCAN where keys are wanted), and as that is rarely
             alone, the next _VALUES_PAGES are asked for in the same way

Two requests are on their way: the store looks for the next page while this one becomes a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kv.base.errors import InvalidArgument
from kv.base.limits import SCAN_SEALED_ROWS_MAX
from pyspark_kvorum.pins import Pin
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import as_spark, texts_of
from sqlproxy.rows import arrow_pages, arrow_rows
from sqlproxy.rows.schema import Table

if TYPE_CHECKING:
    from pyspark_kvorum.where_option import Condition

_PREFIX_BYTES: Final = 4  # of the table, in storage keys
_PAGE_ROWS: Final = 1_000  # decoded at once: more leave the processor's cache, and cost more each
_BATCH_ROWS: Final = 8_000  # that Spark gets at once
_VALUES_PAGES: Final = 16
_BUDGET_MS: Final = 30_000


class _Page(NamedTuple):
    """Rows of `[start, resume)`; `resume` None: to the end of the range."""

    start: bytes
    resume: bytes | None
    sealed: tuple[bytes, bytes] | None  # lengths and records, or else:
    keys: list[bytes] | None  # user keys, if they are wanted
    values: list[bytes]


class Decode:
    """A page as a record batch of the wanted columns."""

    def __init__(self, table: Table, schema: StructType, where: str) -> None:
        self._table = table
        self._want = to_arrow_schema(schema, timezone="UTC")
        self._names = [f.name for f in schema.fields]
        self._full = self._names
        self._texts = texts_of(table, schema)
        self._condition: Condition | None = None
        self._by_column: pc.Expression | None = None
        if where:
            from pyspark_kvorum.where_option import (
                Condition,  # SQL's machinery: a third of a second
            )

            self._condition = Condition(where, table, self._texts)
            self._by_column = self._condition.arrow
            self._full = self._names + sorted(self._condition.columns - set(self._names))
        self.by_rows = self._condition is not None and self._by_column is None
        self.wants_keys = table.plain and "key" in self._full

    def sealed(self, lengths: bytes, records: bytes, at: int) -> pa.RecordBatch | None:
        """None: the page is not simple."""
        page = arrow_pages.plain_page(lengths, records, at, passing=True)
        if page is None:
            return None
        try:
            found = arrow_pages.page_columns(self._table, page, self._full, self._texts)
        except InvalidArgument:
            if self._condition is None:
                raise
            return None  # a value that Arrow does not hold may be of a row that nobody wants
        return None if found is None else self._narrowed(found, self._by_column)

    def values(self, keys: list[bytes] | None, values: list[bytes]) -> pa.RecordBatch:
        given = keys if keys is not None else [b""] * len(values)
        if self._condition is None or self._by_column is not None:
            try:
                batch = arrow_rows.decode_batch(self._table, given, values, self._full, self._texts)
                return self._narrowed(batch, self._by_column)
            except InvalidArgument:
                if self._condition is None:
                    raise
        places = self._condition.rows(given, values)
        given, values = [given[at] for at in places], [values[at] for at in places]
        return self._narrowed(
            arrow_rows.decode_batch(self._table, given, values, self._names, self._texts)
        )

    def _narrowed(
        self, batch: pa.RecordBatch, condition: pc.Expression | None = None
    ) -> pa.RecordBatch:
        if condition is not None:
            batch = batch.filter(condition)
        if batch.schema.equals(self._want):
            return batch
        batch = as_spark(batch)
        return batch.select(self._names).cast(self._want)


class Pages:
    """All rows of one range, the next page asked for before one is given out. Of one thread."""

    def __init__(self, session: Session, decode: Decode, pin: Pin, rows: int) -> None:
        """`rows`: of a page, at most."""
        self._session, self._decode, self._pin, self._rows = session, decode, pin, rows
        self._values_for = 0  # so many pages are asked for as values

    def batches(self, start: bytes, end: bytes) -> Iterator[pa.RecordBatch]:
        if start >= end:
            return
        self._pin.renew(self._session)
        flying: asyncio.Task[_Page] | None = self._begin(start, end)
        while flying is not None:
            page = self._session.run(_of(flying))
            on = page.resume is not None and page.resume < end
            flying = self._begin(page.resume or end, end) if on else None
            if page.sealed is not None:
                batch = self._decode.sealed(*page.sealed, self._pin.at)
                if batch is not None:
                    yield batch
                else:
                    self._values_for = _VALUES_PAGES
                    yield from self._by_values(page.start, page.resume or end)
            elif page.values:
                yield self._decode.values(page.keys, page.values)
            self._pin.renew(self._session)

    def _by_values(self, start: bytes, end: bytes) -> Iterator[pa.RecordBatch]:
        at: bytes | None = start
        while at is not None and at < end:
            low = at
            page = self._session.run(self._session.definite(lambda: self._values(low, end)))  # noqa: B023 (run at once)
            if page.values:
                yield self._decode.values(page.keys, page.values)
            at = page.resume

    def _begin(self, start: bytes, end: bytes) -> asyncio.Task[_Page]:
        return self._session.begin(self._session.definite(lambda: self._ask(start, end)))

    async def _ask(self, start: bytes, end: bytes) -> _Page:
        if not self._values_for and not self._decode.by_rows:
            found = await self._session.txn.reader_at(self._pin.at).scan_sealed(
                start,
                end,
                self._pin.at,
                limit=min(self._rows, SCAN_SEALED_ROWS_MAX),
                budget_ms=_BUDGET_MS,
            )
            if found is not None:
                lengths, records, resume = found
                return _Page(start, resume, (lengths, records), None, [])
            self._values_for = _VALUES_PAGES
        self._values_for = max(0, self._values_for - 1)
        return await self._values(start, end)

    async def _values(self, start: bytes, end: bytes) -> _Page:
        reader = self._session.txn.reader_at(self._pin.at)
        rows = min(self._rows, _PAGE_ROWS)
        if self._decode.wants_keys:
            page = await reader.scan(
                start, end, self._pin.at, limit=rows, reverse=False, budget_ms=_BUDGET_MS
            )
            keys = [key[_PREFIX_BYTES:] for key, _, _ in page.items]
            return _Page(start, page.resume, None, keys, [value for _, value, _ in page.items])
        values, resume = await reader.scan_values(
            start, end, self._pin.at, limit=rows, budget_ms=_BUDGET_MS
        )
        return _Page(start, resume, None, None, values)


async def _of(flying: asyncio.Task[_Page]) -> _Page:
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
