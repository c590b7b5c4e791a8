"""What sessions ask of DuckDB: the rows of a query, and changes whose rows a query finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sqlproxy.analytic import changing
from sqlproxy.analytic.engine import Engine, Faulted, Threads
from sqlproxy.analytic.forms import users
from sqlproxy.analytic.late_expressions import patient
from sqlproxy.analytic.pieces import weighed
from sqlproxy.analytic.renderings import Rendering, put_back, taken
from sqlproxy.analytic.selects import Query, Selects
from sqlproxy.analytic.sources import Loader, at_hand, load_all, planned, tables_of
from sqlproxy.front.binding.query import leaves
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.statements import (
    Delete,
    Insert,
    Merge,
    Select,
    Update,
)
from sqlproxy.front.closures.compiling import compile
from sqlproxy.loop.statement_threads import aside
from sqlproxy.pg.answers import Row
from sqlproxy.tables.reading import Described, Reads, Touched
from sqlproxy.tables.row_locking import Wait, lock_found
from sqlproxy.tables.select_values import bounds
from sqlproxy.tables.statistics import Estimates
from sqlproxy.tables.writing import Outcome, Work
from sqlproxy.values import memory
from sqlproxy.values.errors import INTERNAL_ERROR, SqlError, unsupported
from txn.transaction import TxnReads

_OF_ROWS: Final = frozenset(("21", "22", "42", "53"))  # classes of errors that a row may cause
_VECTOR: Final = 2048  # rows that DuckDB computes and copies together


class DuckAnalytic:
    """`sqlproxy.session.shared.services.Analytic`. One per process. `home`: where what is too large
    for memory goes.
    """

    def __init__(
        self,
        home: Path | None = None,
        share: memory.Share | None = None,
        threads: Threads | None = None,
    ) -> None:
        """`share`: of the process, of which DuckDB has half."""
        self._engine = Engine(home, share, threads)

    def flush(self) -> None:
        """Give free pages back. In a thread."""
        self._engine.flush()

    def close(self) -> None:
        """No query is under way any more."""
        self._engine.close()

    async def rows(
        self,
        select: Select,
        reads: Reads,
        env: Env,
        touched: Touched,
        text: str,
        kept: list[Any] | None = None,
    ) -> AsyncIterator[Sequence[Row]]:
        """The rows of a SELECT, as DuckDB makes them. `kept`: what was rendered of it before, and
        stays so. Raises SqlError.
        """
        given = careful = False
        failed: SqlError | None = None
        skips = any(lock.wait == "skip" for lock in select.locking)
        while True:
            first = not (failed or careful)
            rendering = taken(kept, env) if kept and first else None
            if rendering is None:
                rendering = Rendering(env, late=failed is not None)
                found = replace(select, limit=None, offset=None) if skips else select
                await aside(text, rendering.render, partial(Selects.query, select=found))
            query = rendering.query
            batches = self._batches(rendering, reads, touched, careful=careful)
            if skips:
                batches = _skipping(reads, batches, select, query, rendering.env)
            try:
                async for batch in batches:
                    given = True
                    locks = query.held and not skips
                    yield await _locked(reads, batch, select, query.held) if locks else batch
                if kept is not None and first:
                    put_back(kept, rendering)
                return
            except Faulted:
                if given or careful:
                    raise
                careful = True
            except SqlError as error:
                # DuckDB computes many rows at a time, and queries for all rows: what fails may
                # stand after a LIMIT, or after rows that a cursor gives out first
                if failed is not None:
                    raise failed if error.sqlstate == INTERNAL_ERROR else error from None
                if given or error.sqlstate[:2] not in _OF_ROWS or not patient(select):
                    raise
                failed = error.bare()

    async def _batches(
        self, rendering: Rendering, reads: Reads, touched: Touched, *, careful: bool = False
    ) -> AsyncGenerator[Sequence[Row], None]:
        selects, query, env = rendering.selects, rendering.query, rendering.env
        functions, late = selects.functions, replace(query.late) if query.late else None
        loaders = [Loader(source, self._engine) for source in selects.sources]
        try:
            tables: dict[str, pa.Table] = {}
            known, catalog = selects.known, env.catalog
            if at_hand(known, catalog):
                tables = tables_of(known, catalog)
            else:
                tables = await self._engine.in_thread(tables_of, known, catalog)
            tables |= await load_all(loaders, reads, env, touched, self._engine.in_thread)
            text, read = query.text, sum(table.nbytes for table in tables.values())
            # no value is longer than all that was read and said, if nothing makes more of it
            if selects.grows or functions.made or (len(text) + read) * _VECTOR > memory.now().limit:
                text = weighed(text, query.columns, functions)
            running = self._engine.run(text, tables, functions, careful=careful)
            try:
                convert = _converter(query)
                while batch := await running.next(convert):
                    memory.now().fresh()
                    for made in late.pieces(batch, env) if late else (batch,):
                        if env.slept:  # pg_sleep: expressions never wait themselves
                            slept, env.slept = env.slept, 0.0
                            await asyncio.sleep(slept)
                        yield made
                    if late and late.done:
                        return
            finally:
                await running.close()
        finally:
            for loader in loaders:
                loader.close()

    def describe(
        self, bound: object, env: Env, estimates: Estimates | None = None
    ) -> list[Described]:
        """The tables that a query scans, in the order in which it does. Raises SqlError."""
        selects = Selects(env)
        if isinstance(bound, Select):
            selects.query(bound)
        elif isinstance(bound, Update | Delete):
            selects.meant(bound.items, bound.where, (), bound.ctes)
        elif isinstance(bound, Merge):
            selects.meant(bound.items, None, (), bound.ctes, bound.on)
        loaders = [Loader(source, self._engine) for source in selects.sources]
        found: list[Described] = []
        for one in planned(loaders, env, estimates):
            reader = one.reader()
            if reader is not None:
                reader = reader.unless_many(env, estimates)
            found.append(Described(one.table, reader, one.origin))
        return found

    async def change(self, job: Work, bound: object, text: str) -> Outcome:
        """A change whose rows have to be found by a join. Raises SqlError."""

        async def run(make: Callable[[Selects], Query]) -> list[Row]:
            rendering = Rendering(job.env)
            await aside(text, rendering.render, make)
            rows: list[Row] = []
            async for batch in self._batches(rendering, job.t, job.touched):
                job.held.rows(batch)
                rows += batch
            return rows

        if isinstance(bound, Insert):
            if bound.select is None:
                raise unsupported("INSERT … VALUES with WITH")
            return await changing.insert(job, bound, run)
        if not isinstance(bound, Update | Delete | Merge):
            raise unsupported(f"{type(bound).__name__} here")
        return await changing.change(job, bound, run)


async def _locked(reads: Reads, batch: Sequence[Row], select: Select, count: int) -> list[Row]:
    """FOR UPDATE: the rows without their last `count` columns, which are storage keys: what is
    stored there is locked now; those of which something is skipped are left out. Raises SqlError
    (55P03), KvorumError, Stale.
    """
    if not isinstance(reads, TxnReads):
        return [row[:-count] for row in batch]
    keys = dict.fromkeys(key for row in batch for key in row[-count:] if isinstance(key, bytes))
    named = [*select.locking[0].tables, *(one.alias for i in select.items for one in leaves(i))]
    held = await lock_found(reads, list(keys), Wait.of(select.locking, named[0]))
    skipped = keys.keys() - held
    return [row[:-count] for row in batch if skipped.isdisjoint(row[-count:])]


async def _skipping(
    reads: Reads,
    batches: AsyncGenerator[Sequence[Row], None],
    select: Select,
    query: Query,
    env: Env,
) -> AsyncGenerator[Sequence[Row], None]:
    """FOR UPDATE SKIP LOCKED: the rows that could be locked, as many as LIMIT says; no more are
    locked.
    """
    offset, limit = (
        None if one is None else compile(one).fn for one in (select.offset, select.limit)
    )
    skip, keep = bounds(offset, limit, env)
    wanted = None if keep is None else skip + keep
    async with aclosing(batches):
        async for batch in batches:
            at = 0
            while at < len(batch) and wanted != 0:
                some = batch[at:] if wanted is None else batch[at : at + wanted]
                at += len(some)
                rows = await _locked(reads, some, select, query.held) if query.held else list(some)
                if wanted is not None:
                    wanted -= len(rows)
                passed = min(skip, len(rows))
                skip -= passed
                if rows[passed:]:
                    yield rows[passed:]
            if wanted == 0:
                return


def _converter(query: Query) -> Callable[[pa.RecordBatch], list[Row]]:
    """Arrow batches → rows in user form."""
    columns = query.columns

    def convert(batch: pa.RecordBatch) -> list[Row]:
        if not columns:
            return [()] * batch.num_rows
        given = [
            users(batch.column(i), column.oid, column.held) for i, column in enumerate(columns)
        ]
        return list(zip(*given, strict=True))

    return convert
