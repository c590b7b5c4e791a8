"""COPY FROM STDIN: rows of a client into a table.

    few rows                             an ordinary transaction (`sqlproxy.tables.writing`)
    many, and COPY is all that there is  a load (txn.bulk.load): encoded column by column, sent
    while
                                         the client sends, nothing kept but where it is
    many, inside a block                 the transaction's buffer, which spills

A load writes nothing that is read by others before its commit, and its rows are new: that each key
is absent is a condition of the partition, and that no key comes twice is seen here, by 64 bits of
hash for each (`Twins`): a wrong 23505 has a chance of one in four million at four million rows.

Its commit holds the schema's row, as every commit that comes late (sqlproxy.catalog.fence): what is
declared at the end is what it was bound to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kv.base.errors import WriteConflict
from kv.base.limits import (
    SQL_LOAD_BYTES_MIN,
    SQL_LOAD_ROWS_MIN,
    SQL_LOAD_SLICE_ROWS,
)
from kv.base.ops import check
from sqlproxy.catalog import catalog
from sqlproxy.front.binding.fromitems import table_columns
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.env import Env, Wanting
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.closures.compiling import compile
from sqlproxy.pg.answers import Columns, Part, Row
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.session.running.reserving import reserve, supply
from sqlproxy.session.running.run_statements import Job, settled
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.state import State
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.reading import Touched
from sqlproxy.tables.writing import InsertPlan, Outcome
from sqlproxy.values.breaks import paused
from sqlproxy.values.errors import SqlError, unsupported
from sqlproxy.values.memory import Held, size_of_columns, size_of_rows
from txn.bulk.load import Load

_HASH_BYTES: Final = 8


class Twins:
    """Whether a key came before: sorted runs of hashes, each more than twice as long as the next,
    so that all of them are merged seldom, and a million hashes never because of some thousand.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.generic]] = []

    def met(self, keys: Sequence[bytes]) -> int | None:
        """The place of a key that came before, among `keys` or in an earlier call."""
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        run = np.sort(hashes)
        twice = run[1:][run[1:] == run[:-1]]
        for other in self._runs:
            if not twice.size and run[0] <= other[-1] and other[0] <= run[-1]:
                at = np.searchsorted(other, run)
                at[at == len(other)] = 0
                twice = run[other[at] == run]
        if twice.size:
            return int(np.flatnonzero(hashes == twice[0])[-1])
        runs = self._runs
        while runs and len(runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate((runs.pop(), run)), kind="stable")  # timsort: one merge
        runs.append(run)
        return None


class _Chosen:
    """The rows that WHERE means. It sees a row as the client sent it: what is not copied is NULL
    (sqlproxy/front/session_commands.py refuses columns that would get something else).
    """

    def __init__(self, session: State, copy: s.Copy, where: Expr) -> None:
        """Raises SqlError."""
        assert copy.target is not None
        compiled = compile(where)
        if compiled.numbered:
            raise unsupported("a sequence in COPY … WHERE")
        columns = table_columns(copy.target.table)
        self._places = [columns.index(column) for column in copy.columns]
        self._empty: list[object] = [None] * len(columns)
        self._session, self._fn = session, compiled.fn

    def __call__(self, rows: Sequence[Row]) -> Sequence[Row]:
        env, _ = environment(self._session, ())
        return [row for row in paused(rows) if self._fn(self._whole(row), env) is True]

    def _whole(self, row: Row) -> Row:
        found = self._empty.copy()
        for place, value in zip(self._places, row, strict=True):
            found[place] = value
        return found


class Loader:
    """Takes the rows of one COPY. `take` them, then `finish`; `close` in any case."""

    def __init__(self, session: State, prepared: Prepared) -> None:
        """Raises SqlError."""
        copy: s.Copy = prepared.bound
        assert copy.target is not None
        assert prepared.declared is not None
        private = copy.target.table.private
        if not private:
            session.check_writable("COPY FROM")
        # GENERATED ALWAYS is for INSERT: what is copied is there, also in PostgreSQL
        insert = s.Insert(
            text="", tree={}, target=copy.target, columns=copy.columns, overriding="system"
        )
        self._plan = InsertPlan(insert, loads=True)
        self._chosen = None if copy.where is None else _Chosen(session, copy, copy.where)
        self._session, self._declared = session, prepared.declared
        block = session.block
        sole = session.block.lone and not block.explicit and block.transaction is None
        bare = not (copy.target.table.foreign_keys or copy.target.table.plain)
        self._may_load = sole and bare and not private
        self._waiting: list[Part] = []  # few so far: it may not be worth a load
        self._held = Held(session.budget)  # what waits, and then hashes of keys
        self._count = 0
        self._inserted = False
        self._load: Load | None = None
        self._twins: dict[bytes, Twins] = {}  # by the prefix of the key space
        self._writer: TableWriter | None = None
        self._env: Env | None = None
        self._numbers: Numbers | None = None

    async def take(self, rows: Sequence[Row]) -> int:
        """The next rows. Raises SqlError, KvorumError."""
        return await self.take_parts([rows])

    async def take_parts(self, parts: Sequence[Part]) -> int:
        """The same in parts, of which some are column by column; how many of them WHERE means."""
        if self._chosen is not None:
            parts = [self._chosen(_rows(parts))]
        count = _count(parts)
        if not count:
            return 0
        self._count += count
        if self._load is not None:
            await self._add(parts)
        elif not self._may_load:
            await self._insert(_rows(parts))
        else:
            self._waiting += parts
            self._held.add(_size(parts))
            most = min(SQL_LOAD_BYTES_MIN, self._session.budget.piece)
            if _count(self._waiting) >= SQL_LOAD_ROWS_MIN or self._held.bytes >= most:
                await self._begin()
                await self._add(self._waited())
        return count

    def _waited(self) -> list[Part]:
        waiting, self._waiting = self._waiting, []
        self._held.end()
        return waiting

    async def finish(self) -> None:
        """All rows have come. A load is committed here."""
        if (statistics := self._session.services.statistics) is not None:
            statistics.changed[self._plan.table.id] += self._count
        if _count(self._waiting):
            await self._insert(_rows(self._waited()))
        load, self._load = self._load, None
        if load is None:
            await settled(self._session)
            return
        try:
            await self._session.interrupts.undisturbed(self._commit(load))
        finally:
            await load.abort()

    async def close(self) -> None:
        """Nothing of a load that is not committed stays; fine twice."""
        load, self._load = self._load, None
        self._waiting = []
        self._held.end()
        if load is not None:
            await load.abort()

    # -- an ordinary transaction

    async def _insert(self, rows: Sequence[Row]) -> None:
        session, block = self._session, self._session.block
        alone = not block.explicit
        t = await session.work()
        private = self._plan.table.private
        if not private:
            session.bound(self._declared, adds=True)
        block.statements += 1
        env, numbers = environment(session, ())
        job = Job(session, t, env, numbers, self._declared, Touched(), alone)
        try:
            outcome = await self._plan.run(job, rows)
            session.written()
        finally:
            numbers.give_back(session.numbers)
        if self._inserted:
            session.block.outcomes.pop()  # one table: the last batch tells what all may violate
        session.block.outcomes.append(outcome)
        self._inserted = True
        session.block.sole = None
        block.wrote = block.wrote or not private

    # -- a load

    async def _begin(self) -> None:
        session = self._session
        self._load = await session.services.client.load(session.modes().terms)
        self._env, self._numbers = environment(session, ())
        writer = self._writer = self._declared.writer(self._plan.table)
        session.block.outcomes[:] = [Outcome(writers=[writer])]  # what a refused condition means

    async def _add(self, parts: Sequence[Part]) -> None:
        """Encoded slice by slice, and sent together: a message is one chunk of intents. Others have
        the loop between two slices.
        """
        writer, load, env, numbers = self._writer, self._load, self._env, self._numbers
        assert load is not None
        assert writer is not None
        assert env is not None
        assert numbers is not None
        count = _count(parts)
        wanted = self._plan.numbers(writer, count, most=True)
        for name, most in sorted(wanted.items()):
            if not await reserve(self._session, self._declared, numbers, name, most):
                await supply(self._session, self._declared, numbers, Wanting(name), most)
        made: dict[tuple[bytes, bool], tuple[list[bytes], list[bytes]]] = {}
        for columns, rows in _slices(parts):
            for part in writer.encoded(self._plan.columns(writer, env, columns, rows)):
                keys, values = made.setdefault((part.keys[0][:4], part.absent), ([], []))
                keys += part.keys
                values += part.values
            await self._session.turn()
        for (prefix, absent), (keys, values) in made.items():
            if absent:
                self._held.add(_HASH_BYTES * len(keys))
                at = self._twins.setdefault(prefix, Twins()).met(keys)
                if at is not None:
                    raise self._twice(writer, keys[at])
            await load.add(keys, values, absent=absent)

    @staticmethod
    def _twice(writer: TableWriter, key: bytes) -> SqlError:
        error = writer.violated(key)
        assert error is not None
        return error

    async def _commit(self, load: Load) -> None:
        session, database = self._session, self._session.database
        key = catalog.schema_key(database)
        client = session.services.client
        version = (await client.get(key))[1]
        if await catalog.schema_version(client, database) != self._declared.version:
            raise WriteConflict(
                f"what is declared in {database} changed since the COPY began; run it again",
                details={"database": database, "bound": self._declared.version},
            )
        await load.commit([check(key, version)])


def _count(parts: Sequence[Part]) -> int:
    return sum(part.count if isinstance(part, Columns) else len(part) for part in parts)


def _size(parts: Sequence[Part]) -> int:
    return sum(
        size_of_columns(part.columns) if isinstance(part, Columns) else size_of_rows(part)
        for part in parts
    )


def _rows(parts: Sequence[Part]) -> Sequence[Row]:
    rows = [part.rows() if isinstance(part, Columns) else part for part in parts]
    return [row for some in rows for row in some]


def _slices(parts: Sequence[Part]) -> Iterator[tuple[Sequence[Sequence[object]], int]]:
    """Rows column by column, and how many."""
    for part in parts:
        columns = part.columns if isinstance(part, Columns) else list(zip(*part, strict=True))
        count = part.count if isinstance(part, Columns) else len(part)
        for at in range(0, count, SQL_LOAD_SLICE_ROWS):
            end = min(count, at + SQL_LOAD_SLICE_ROWS)
            yield [column[at:end] for column in columns], end - at
