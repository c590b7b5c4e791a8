"""The DuckDB of a process: databases in memory, a cursor per query, threads that wait for it; all
that tenants share.

DuckDB reads nothing but what is registered: no files, no extensions, no variables of Python.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final, Generic, Protocol, TypeVar

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from kv.base.limits import (
    SQL_ANALYTIC_BYTES_MAX,
    SQL_ANALYTIC_FETCH_ROWS,
    SQL_ANALYTIC_QUERIES_MAX,
    SQL_SPILL_FREE_BYTES_MIN,
    SQL_SPILL_PARTS,
)
from sqlproxy.analytic.databases import Database, Databases
from sqlproxy.analytic.forms import weight
from sqlproxy.analytic.functions import Functions
from sqlproxy.duck.duckerrors import as_sql_error
from sqlproxy.loop.fair_threads import FairThreads
from sqlproxy.values import memory
from sqlproxy.values.errors import SqlError

T = TypeVar("T")
_MADE_ROWS: Final = 256  # of a batch of values that functions may have made large
_ROWS_MIN: Final = 8
_AGAIN_S: Final = 0.05


def _weight(batch: pa.RecordBatch) -> int:
    return sum(map(weight, batch.columns))


class Faulted(SqlError):
    """DuckDB met a fault of its own (XX000)."""


class _Timed(Generic[T]):
    """A call in a thread; how long it took counts for who asked for it."""

    def __init__(self, call: Callable[..., T]) -> None:
        self._call, self._use, self._us = call, memory.now().use, 0

    def __call__(self, *args: object) -> T:
        began = perf_counter()
        try:
            return self._call(*args)
        finally:
            self._us = round((perf_counter() - began) * 1_000_000)

    def count(self) -> None:
        """On the loop, when it has ended."""
        if self._use is not None:
            self._use.spend(sql_us=self._us)


class Threads(Protocol):
    """Where queries run; FairThreads, or what a simulation has instead."""

    def submit(self, call: Callable[..., T], *args: object) -> Future[T]: ...

    def shutdown(self) -> None: ...


class Engine:
    """Opened at the first query; `close` when the process serves SQL no more. `home`: a folder that
    is this process's alone: what a killed one left there is removed; None: one of the system's.
    """

    def __init__(
        self,
        home: Path | None = None,
        share: memory.Share | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._home = home
        self._share = share or memory.Share()
        self.bytes_max = min(SQL_ANALYTIC_BYTES_MAX, self._share.limit // 2)
        self.databases = Databases(
            self.bytes_max, lambda: self.directory, monotonic, self.spill_room
        )
        self._threads = threads
        self._directory: Path | None = None
        self._making = threading.Lock()

    @property
    def directory(self) -> Path:
        """Where large things go. Any thread may ask first."""
        with self._making:
            if self._directory is None:
                if self._home is None:
                    self._directory = Path(tempfile.mkdtemp(prefix="kvorum-sql-"))
                else:
                    shutil.rmtree(self._home, ignore_errors=True)
                    self._home.mkdir(mode=0o700, parents=True)
                    self._directory = self._home
            return self._directory

    def spill_room(self, written: int = 0) -> int:
        """How many bytes a user's files may have in all, if they have so many now: nobody's sort
        fills the disk that everybody writes to.
        """
        free = shutil.disk_usage(self.directory).free - SQL_SPILL_FREE_BYTES_MIN
        return max(0, free + written) // SQL_SPILL_PARTS

    def submit(self, call: Callable[..., T], *args: object) -> Future[T]:
        """Away from the loop."""
        if self._threads is None:
            self._threads = FairThreads(SQL_ANALYTIC_QUERIES_MAX, "analytic")
        return self._threads.submit(call, *args)

    async def in_thread(self, call: Callable[..., T], *args: object) -> T:
        """The same, awaited to its end even by a caller that is cancelled."""
        timed = _Timed(call)
        future = asyncio.wrap_future(self.submit(timed, *args))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
        finally:
            timed.count()
            del future  # it has the error, whose frames have it, and all that the call had

    def run(
        self, text: str, tables: dict[str, pa.Table], functions: Functions, *, careful: bool = False
    ) -> Running:
        """A query, which begins when its first rows are asked for; `careful`: after a fault."""
        return Running(self, text, tables, functions, careful=careful)

    def used(self, size: int) -> None:
        """A query has read or made so many bytes. What one took that did not get to its end is not
        known: all that it may.
        """
        self._share.worn += size

    def flush(self) -> None:
        """Give free pages back, in a thread: DuckDB does when its limit is set."""
        self.databases.flush()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        self.databases.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


class Running:
    """One query under way: batches, until `close`."""

    def __init__(
        self,
        engine: Engine,
        text: str,
        tables: dict[str, pa.Table],
        functions: Functions,
        *,
        careful: bool = False,
    ) -> None:
        self._engine, self._functions, self._careful = engine, functions, careful
        self._text, self._tables = text, tables
        self._database: Database | None = None
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._left: pa.RecordBatch | None = None  # what is not converted yet
        self._done = False  # there are no more rows
        self._ending = threading.Lock()
        self._budget = memory.now()
        self._made: list[str] = []

    def _start(self) -> None:
        who, tables = self._budget.who, self._tables
        self._database = self._engine.databases.enter(who, careful=self._careful)
        self._cursor = cursor = self._database.root.cursor()
        for name, table in tables.items():
            cursor.register(name, table)
        weigher = self._functions.weigher
        for one in (*self._functions.made.values(), *((weigher,) if weigher else ())):
            cursor.create_function(
                one.name,
                one.call,
                list(one.parameters),
                one.result,
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
                side_effects=one.volatile,
            )
            self._made.append(one.name)
        relation: Any = cursor.sql(self._text)
        wide = sum(table.nbytes // table.num_rows for table in tables.values() if table.num_rows)
        self._engine.used(sum(table.nbytes for table in tables.values()))
        rows = _MADE_ROWS if self._functions.made else SQL_ANALYTIC_FETCH_ROWS
        rows = max(_ROWS_MIN, min(rows, self._budget.piece // (wide or 1)))
        self._reader = relation.to_arrow_reader(rows)

    async def next(self, convert: Callable[[pa.RecordBatch], Sequence[object]]) -> Sequence[Any]:
        """What `convert` makes of the next rows; nothing at the end. Raises SqlError."""

        def read() -> Sequence[Any]:
            if self._reader is None:
                self._start()
            rows: list[object] = []
            size = 0
            while len(rows) < SQL_ANALYTIC_FETCH_ROWS and size < self._budget.piece:
                batch = self._piece()
                if batch is None:
                    self._done = True
                    self._end()
                    break
                size += _weight(batch)
                rows += convert(batch)
            self._engine.used(size)
            return rows

        return [] if self._done else await self._call(read)

    def _piece(self) -> pa.RecordBatch | None:
        """The next rows, as many as a piece has room for; None: there are no more."""
        assert self._reader is not None
        most = self._budget.piece
        batch, self._left = self._left, None
        while batch is None or not batch.num_rows:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
        size = _weight(batch)
        if size <= most:
            return batch
        self._budget.fits(size)
        some = max(1, batch.num_rows * most // size)
        self._left = batch.slice(some)
        return batch.slice(0, some)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        timed = _Timed(call)
        future = asyncio.wrap_future(self._engine.submit(timed, *args))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._functions.ended = True
            self._engine.used(self._engine.bytes_max)
            while not future.done():  # DuckDB forgets an interrupt that comes before the query
                self._interrupt()
                await asyncio.wait([future], timeout=_AGAIN_S)
            if not future.cancelled():
                future.exception()  # it was interrupted: nobody else asks
            raise
        except SqlError:
            raise
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError, MemoryError) as error:
            self._engine.used(self._engine.bytes_max)
            raise self._sql_error(error) from None
        finally:
            timed.count()
            del future  # as in `Engine.in_thread`

    def _sql_error(self, error: Exception) -> SqlError:
        """What went wrong, as PostgreSQL says it."""
        if self._functions.failed is not None:
            return self._functions.failed.bare()  # raised, it would have us, who have it
        most = self._engine.bytes_max if self._database is None else self._database.limit
        memory = f"the query needs more than {most >> 20} MiB"
        if most < self._engine.bytes_max:
            memory += ", its part while others have queries"
        hint = "Read fewer rows or columns, or aggregate in parts."
        found = as_sql_error(error, memory=memory, hint=hint)
        if not isinstance(error, duckdb.InternalException | duckdb.FatalException):
            return found
        if self._database is not None:
            self._engine.databases.lost(self._database)
        return Faulted(found.sqlstate, found.message)

    async def close(self) -> None:
        """End it; fine twice."""
        self._functions.ended = True
        self._interrupt()
        if self._database is not None:
            await self._engine.in_thread(self._end)

    def _end(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._left = None
        database, self._database = self._database, None
        if database is None:
            return
        with self._ending:
            cursor, self._cursor = self._cursor, None
        try:
            if cursor is not None:
                for name in self._made:
                    cursor.remove_function(name)
                cursor.close()
        finally:
            self._made = []
            self._engine.databases.leave(database)

    def _interrupt(self) -> None:
        with self._ending:  # a cursor that is closed meanwhile cannot be interrupted
            if self._cursor is not None:
                self._cursor.interrupt()
