"""INSERT, UPDATE and DELETE: which rows they mean, what becomes of them, what comes back.

    Plan (made once per statement)  ──run(work)──▶  Outcome(count, rows)

All rows that a statement means are read before the first is written: it never meets its own changes
(the Halloween problem). What was written stays in the transaction's buffer; who runs the statement
undoes it when it fails.

`Work.alone`: the statement is a transaction by itself, so a plain INSERT asks nothing before it
writes: that its keys were free is a condition of the commit (sqlproxy/tables/changing.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from kv.base.errors import ConditionFailed
from kv.base.limits import SQL_COPY_BATCH_ROWS, SQL_LOAD_SLICE_ROWS, SQL_PIECE_BYTES
from kv.base.strengths import NO_KEY_UPDATE, UPDATE
from sqlproxy.front.binding.dml import no_arbiter
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Default, Expr
from sqlproxy.front.bound.statements import (
    Assignment,
    Conflict,
    Delete,
    Insert,
    Target,
    Update,
    shown,
)
from sqlproxy.front.closures.compiling import Compiled, Fn, compile
from sqlproxy.front.stages.sequence_stages import asks
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import PUBLIC, Index, Table
from sqlproxy.tables.access import choose
from sqlproxy.tables.changing import TableWriter, Taken
from sqlproxy.tables.deferring import Deferred, Later, Spots
from sqlproxy.tables.implied_predicates import usable
from sqlproxy.tables.reading import Reads, Stored, TableReader, Touched, found_at
from sqlproxy.tables.referring import Children, Gone, Tables, check_parents, places
from sqlproxy.tables.row_locking import (
    Wait,
    has_room,
    lock_changed,
    lock_first,
    locks_first,
)
from sqlproxy.tables.rules import Row
from sqlproxy.tables.single_row import Single, single_of
from sqlproxy.values.breaks import pause, paused
from sqlproxy.values.errors import CARDINALITY_VIOLATION, GENERATED_ALWAYS, SqlError
from sqlproxy.values.memory import Held, now, one_by_one, size_of_rows
from txn.transaction import Transaction, TxnReads

Values = Sequence[object]
Found = tuple[Stored, Values]
T = TypeVar("T")
R = TypeVar("R")


_MANY: Final = 16  # rows that are worth to be encoded column by column


def _slices(count: int) -> Iterator[slice]:
    """Of so many rows, with a break after each."""
    for at in range(0, count, SQL_LOAD_SLICE_ROWS):
        yield slice(at, at + SQL_LOAD_SLICE_ROWS)
        pause()


async def in_parts(
    batches: AsyncIterator[Sequence[T]], row_of: Callable[[T], Values], part: Callable[[], None]
) -> AsyncIterator[Sequence[T]]:
    """All of them at once if they are small, else, after `part`, one by one: who reads them must
    not see what is written then.
    """
    found: list[T] = []
    size = 0
    async for some in batches:
        if size <= SQL_PIECE_BYTES:
            found += some
            size += size_of_rows(map(row_of, some))
            if size <= SQL_PIECE_BYTES:
                continue
            part()
            some, found = found, []
        yield some
    if found:
        yield found


class Work(Later, Protocol):
    """What a statement is run in."""

    @property
    def t(self) -> Transaction: ...

    @property
    def env(self) -> Env: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def touched(self) -> Touched: ...

    @property
    def alone(self) -> bool: ...

    @property
    def held(self) -> Held:
        """What the statement holds: rows that it has read, and those of RETURNING."""
        ...

    async def reserve(self, numbers: Mapping[str, int]) -> bool:
        """So many numbers of these sequences can be taken without waiting; False: fewer."""
        ...

    async def each(self, make: Callable[[T], R], rows: Iterable[T]) -> list[R]:
        """What `make` makes of each row; it may want numbers that are not reserved, or set a
        sequence. Raises SqlError.
        """
        ...


@dataclass(slots=True)
class Outcome:
    """`rows`: those of RETURNING. `writers`: of the tables that were written, to tell what a
    refused condition means. `again`: it means that the statement has to run again.
    """

    count: int = 0
    rows: list[Row] = field(default_factory=list)
    writers: list[TableWriter] = field(default_factory=list)
    again: bool = False

    def add(self, part: Outcome) -> None:
        """Of the next rows of the same statement."""
        self.count += part.count
        self.rows += part.rows
        self.writers = part.writers
        self.again = part.again

    def without_rows(self) -> Outcome:
        """The same without rows, which are not kept longer than the client needs them."""
        return replace(self, rows=[]) if self.rows else self


class _Projection:
    """The columns that statements see, out of all columns of a row."""

    def __init__(self, table: Table) -> None:
        seen = {column.id for column in shown(table)}
        self._places = tuple(at for at, c in enumerate(table.columns) if c.id in seen)
        self._all = len(self._places) == len(table.columns)

    def __call__(self, row: Row) -> Row:
        return row if self._all else tuple(row[at] for at in self._places)


class _Returning:
    """RETURNING. `taken`: as that of `Compiled`."""

    def __init__(self, targets: Sequence[Target]) -> None:
        compiled = [compile(target.expr) for target in targets]
        self._fns: list[Fn] = [one.fn for one in compiled]
        self.taken = Counter(name for one in compiled for name in one.taken)
        self.unsure = any(one.unsure for one in compiled)
        # Then it is computed with its row, in the order in which they take numbers.
        self.numbered = any(asks(target.expr) for target in targets)

    def __bool__(self) -> bool:
        return bool(self._fns)

    def __call__(self, row: Values, env: Env) -> Row:
        return tuple(fn(row, env) for fn in self._fns)


def _explicit(insert: Insert, given: Sequence[int]) -> frozenset[int]:
    """The places whose values count: OVERRIDING USER VALUE leaves identities to their sequences."""
    columns, ignored = insert.target.table.columns, insert.overriding == "user"
    return frozenset(place for place in given if not (ignored and columns[place].identity))


def _defaulted(insert: Insert, given: Sequence[int], explicit: frozenset[int]) -> Counter[int]:
    """How many rows have DEFAULT at a place."""
    return Counter(
        place
        for row in insert.rows or ()
        for place, expr in zip(given, row, strict=True)
        if isinstance(expr, Default) and place in explicit
    )


def _by_column(rows: Sequence[Sequence[Compiled | None]]) -> list[list[Fn]] | None:
    """Many rows without DEFAULT, in which the order of evaluation cannot be seen; None: others."""
    if len(rows) < _MANY or any(one is None for row in rows for one in row):
        return None
    columns = zip(*rows, strict=True)
    return [[one.fn for one in column if one is not None] for column in columns]


class InsertPlan:
    """INSERT of VALUES, or of rows that somebody else made (`rows`)."""

    def __init__(self, insert: Insert, *, loads: bool = False) -> None:
        """`loads`: its rows are a part of many."""
        self.insert, self._loads = insert, loads
        table = self.table = insert.target.table
        self._places = places(table, [column.id for column in insert.columns])
        self._check_identities(insert)
        self._rows = [
            [None if isinstance(e, Default) else compile(e) for e in row]
            for row in insert.rows or ()
        ]
        conversions = [compile(e) for e in insert.conversions]
        self._conversions = [one.fn for one in conversions]
        self._returning = _Returning(insert.returning)
        self._projection = _Projection(table)
        self._conflict = None if insert.conflict is None else _OnConflict(table, insert.conflict)
        compiled = [one for row in self._rows for one in row if one is not None]
        # the numbers that its text takes, and those that each row of a SELECT takes
        self._own = Counter(name for one in compiled for name in one.taken)
        self._each = Counter(name for one in conversions for name in one.taken)
        self._numbered = any(one.numbered for one in (*compiled, *conversions))
        self._unsure = any(one.unsure for one in (*compiled, *conversions))
        self._explicit = _explicit(insert, self._places)
        self._defaulted = _defaulted(insert, self._places, self._explicit)
        self._given_columns = insert.given
        self._by_column = None if self._numbered else _by_column(self._rows)

    def _check_identities(self, insert: Insert) -> None:
        """GENERATED ALWAYS takes DEFAULT only, unless the user insists."""
        for n, column in enumerate(insert.columns):
            explicit = insert.rows is None or any(
                not isinstance(r[n], Default) for r in insert.rows
            )
            if not explicit:
                continue
            if column.identity == "always" and insert.overriding == "":
                raise SqlError(
                    GENERATED_ALWAYS,
                    f'cannot insert a non-DEFAULT value into column "{column.name}"',
                    detail=f'Column "{column.name}" is an identity column defined as GENERATED '
                    "ALWAYS.",
                    hint="Use OVERRIDING SYSTEM VALUE to override.",
                )

    def numbers(
        self, writer: TableWriter, rows: int | None = None, *, most: bool = False
    ) -> Counter[str]:
        """How many numbers of each sequence its own rows take, or so many others. `most`: or may
        take, for their defaults.
        """
        count = self.count if rows is None else rows
        found = _times(writer.rules.numbers(self._explicit, most=most), count)
        found += _times(self._returning.taken, count)
        if rows is not None:
            return found + _times(self._each, rows)
        for place, times in self._defaulted.items():
            found += _times(Counter(writer.rules.taken.get(place, ())), times)
        return found + self._own

    def unsure(self, writer: TableWriter) -> bool:
        """Whether its rows may want more numbers than `numbers` says."""
        return self._unsure or self._returning.unsure or writer.rules.unsure

    async def run(self, work: Work, rows: Sequence[Values] | None = None) -> Outcome:
        """`rows`: those of a SELECT, or of COPY in the order of the columns. Raises SqlError."""
        writer = work.tables.writer(self.table)
        count = self.count if rows is None else len(rows)
        given = await work.reserve(self.numbers(writer, None if rows is None else count))
        returned: list[Row] | None = None
        if given and not (self.unsure(writer) or self._returning.numbered):
            if self._conflict is None and not (self.table.plain or self.table.foreign_keys):
                places = writer.late and not work.alone
                columns = None if places else self.many(writer, work.env, rows)
                if columns is not None:
                    await self._write_many(work, writer, columns)
                    kept = list(zip(*columns, strict=True)) if self._returning else ()
                    return Outcome(count, self.returned(kept, work.env), [writer])
            made = self.made(writer, work.env, rows)
        elif self._conflict is not None and self._returning.numbered:
            return await self._row_by_row(work, writer, rows, self._conflict)
        else:
            made, returned = await self._made_waiting(work, writer, rows)
        outcome = Outcome(writers=[writer])
        if self._conflict is not None:
            outcome.again = True
            kept = await self._conflict.run(work, writer, made, set())
        else:
            await self._write(work, writer, made)
            kept = made
        every = frozenset(column.id for column in self.table.columns)
        await check_parents(work.t, work.tables, self.table, kept, every, work.deferred)
        outcome.count = len(kept)
        if returned is not None:
            outcome.rows = returned
        else:
            outcome.rows = self.returned(kept, work.env)
        return outcome

    async def _write(self, work: Work, writer: TableWriter, rows: Sequence[Row]) -> None:
        if not work.alone:
            found = await writer.seek(work.t, rows, late=False)
            for row, taken in zip(rows, found, strict=True):
                if taken is not None:
                    raise writer.refused(taken, row)
        for row in paused(rows):
            writer.insert(work.t, row, late=work.alone)
        if not work.alone:
            await writer.place(work.t, work, rows)

    async def _row_by_row(
        self, work: Work, writer: TableWriter, rows: Sequence[Values] | None, conflict: _OnConflict
    ) -> Outcome:
        """ON CONFLICT whose RETURNING takes numbers: of the rows that were written, each before the
        next row takes its own.
        """
        make = self._maker(writer, work.env, rows)
        kept: list[Row] = []
        outcome = Outcome(writers=[writer], again=True)
        mine: set[bytes] = set()
        for at in range(self.count if rows is None else len(rows)):
            done = await conflict.run(work, writer, await work.each(make, [at]), mine)
            outcome.rows += await work.each(lambda row: self._returned(row, work.env), done)
            kept += done
        every = frozenset(column.id for column in self.table.columns)
        await check_parents(work.t, work.tables, self.table, kept, every, work.deferred)
        outcome.count = len(kept)
        return outcome

    async def _made_waiting(
        self, work: Work, writer: TableWriter, rows: Sequence[Values] | None
    ) -> tuple[list[Row], list[Row] | None]:
        """`made` where numbers may have to be waited for; and what RETURNING says of each row, if
        it takes numbers, too, and each row is written. Raises SqlError.
        """
        env, make = work.env, self._maker(writer, work.env, rows)
        places = range(self.count if rows is None else len(rows))
        if not self._returning.numbered:
            return await work.each(make, places), None

        def both(at: int) -> tuple[Row, Row]:
            row = make(at)
            return row, self._returned(row, env)

        pairs = await work.each(both, places)
        return [row for row, _ in pairs], [returned for _, returned in pairs]

    def made(
        self, writer: TableWriter, env: Env, rows: Sequence[Values] | None = None
    ) -> list[Row]:
        """The rows as they are to be written. Raises SqlError."""
        make = self._maker(writer, env, rows)
        places = paused(range(self.count if rows is None else len(rows)))
        return one_by_one(map(make, places))

    def single(self, writer: TableWriter) -> Single | None:
        """The short way to the bytes of one row; None: there is none."""
        if len(self._rows) != 1 or self._given_columns is not None:
            return None
        if self.insert.overriding or self._returning:
            return None
        return single_of(writer, dict(zip(self._places, self._rows[0], strict=True)))

    def many(
        self, writer: TableWriter, env: Env, rows: Sequence[Values] | None = None
    ) -> Sequence[Sequence[object]] | None:
        """The rows as they are to be written, column by column; None: they are few, or not so
        plain, or a value of one cannot be had: `made` says which. Raises SqlError.
        """
        count = self.count if rows is None else len(rows)
        if rows is None and self._by_column is None and self._given_columns is None:
            return None
        if rows is not None and (len(rows) < _MANY or not self._places):
            return None
        try:
            given: list[Sequence[object]]
            if rows is None and self._given_columns is not None:
                given = self._given_columns.all(env)
            elif rows is None:
                given = [[fn((), env) for fn in column] for column in self._by_column or ()]
            elif self._conversions:
                given = [[fn(row, env) for row in paused(rows)] for fn in self._conversions]
            else:
                given = list(zip(*rows, strict=True))
        except SqlError:
            return None
        return self.columns(writer, env, given, count)

    async def _write_many(
        self, work: Work, writer: TableWriter, columns: Sequence[Sequence[object]]
    ) -> None:
        """What `run` does row by row. Many rows lock none of their keys, so that their transaction
        needs no memory for all of them: of two that want one key the later commit is refused.
        """
        parts = writer.encoded(columns)
        for n, (keys, _, absent) in enumerate(parts):
            if not absent or work.alone:
                continue
            locks = not self._loads and len(keys) < SQL_COPY_BATCH_ROWS
            looked = writer.found(work.t, keys) if locks else found_at(work.t, keys)
            for at, there in enumerate(await looked):
                if there is not None:
                    raise self._taken(writer, columns, keys[at], None if n else at)
        for n, (keys, values, absent) in enumerate(parts):
            try:
                work.t.put_rows(keys, values, absent=absent)
            except ConditionFailed as refused:
                key = refused.details["key"]
                last = len(keys) - 1 - keys[::-1].index(key)  # the later one of twins
                raise self._taken(writer, columns, key, None if n else last) from None

    @staticmethod
    def _taken(
        writer: TableWriter, columns: Sequence[Sequence[object]], key: bytes, row: int | None
    ) -> SqlError:
        """A key that is to be new and is not: of the table with the number of its row, or of an
        index.
        """
        if row is not None:
            return writer.refused(Taken("", key, key), tuple(values[row] for values in columns))
        error = writer.violated(key)
        assert error is not None
        return error

    def columns(
        self, writer: TableWriter, env: Env, given: Sequence[Sequence[object]], count: int
    ) -> Sequence[Sequence[Any]]:
        """`made` of rows that are given column by column, and so given back. Raises SqlError."""
        rules = writer.rules
        if rules.generated or rules.checks or self.insert.overriding == "user" or not self._places:
            return list(zip(*self.made(writer, env, list(zip(*given, strict=True))), strict=True))
        found: list[Sequence[object]] = [()] * len(self.table.columns)
        for place, values in zip(self._places, given, strict=True):
            found[place] = values
        for place in set(range(len(found))) - set(self._places):
            default = rules.defaults.get(place)
            made = (None if default is None else default((), env) for _ in range(count))
            found[place] = one_by_one(paused(made))
        for place in rules.required:
            if None in found[place]:
                for row in zip(*found, strict=True):
                    rules.finished(list(row), env)  # raises: it tells which one
        return found

    def returned(self, rows: Sequence[Row], env: Env) -> list[Row]:
        """What RETURNING says of rows that were written."""
        if not self._returning:
            return []
        return [self._returned(row, env) for row in paused(rows)]

    def _returned(self, row: Row, env: Env) -> Row:
        return self._returning(self._projection(row), env)

    @property
    def plain(self) -> bool:
        """Whether it just writes rows that its own text says."""
        return self._conflict is None and self.insert.rows is not None

    @property
    def returns(self) -> bool:
        """Whether it has RETURNING."""
        return bool(self._returning)

    @property
    def returns_numbers(self) -> bool:
        """Whether RETURNING takes numbers of sequences."""
        return self._returning.numbered

    @property
    def count(self) -> int:
        """Rows that its own text says."""
        return len(self._rows) if self._given_columns is None else self._given_columns.count

    def _maker(
        self, writer: TableWriter, env: Env, rows: Sequence[Values] | None
    ) -> Callable[[int], Row]:
        """Makes the row of a place, as it is to be written. What a row takes of sequences is taken
        in the order in which PostgreSQL computes it: of a single row column by column of the table,
        of others first what is given, and then the defaults.
        """
        if rows is None and len(self._rows) == 1 and self._numbered:
            return lambda at: self._by_column_of_table(writer, env)
        given = self._given(rows, env)
        if rows is None and self._numbered and self._given_columns is None:
            return lambda at: self._row(writer, self._in_place(writer, self._rows[at], env), env)
        return lambda at: self._row(writer, given(at), env)

    def _in_place(
        self, writer: TableWriter, row: Sequence[Compiled | None], env: Env
    ) -> list[object]:
        """One of several rows of VALUES: DEFAULT is computed where it stands."""
        values: list[object] = []
        for place, one in zip(self._places, row, strict=True):
            default = writer.rules.defaults.get(place)
            if one is not None:
                values.append(one.fn((), env))
            elif place in self._explicit:
                values.append(None if default is None else default((), env))
            else:
                values.append(_MISSING)
        return values

    def _given(self, rows: Sequence[Values] | None, env: Env) -> Callable[[int], Values]:
        """The values of the row of a place in the order of the columns; `_MISSING` for DEFAULT."""
        if rows is None and self._given_columns is not None:
            return self._given_columns.rows(env).__getitem__
        if rows is None:
            own = self._rows
            return lambda at: [_MISSING if one is None else one.fn((), env) for one in own[at]]
        if self._conversions:
            fns = self._conversions
            return lambda at: [fn(rows[at], env) for fn in fns]
        return rows.__getitem__

    def _by_column_of_table(self, writer: TableWriter, env: Env) -> Row:
        given = {
            place: one
            for place, one in zip(self._places, self._rows[0], strict=True)
            if one is not None and place in self._explicit
        }
        values: list[object] = []
        for place in range(len(self.table.columns)):
            one = given.get(place)
            default = writer.rules.defaults.get(place) if one is None else one.fn
            values.append(None if default is None else default((), env))
        return writer.rules.finished(values, env)

    def _row(self, writer: TableWriter, given: Values, env: Env) -> Row:
        values: list[object] = [_MISSING] * len(self.table.columns)
        overridden = self.insert.overriding == "user"
        for place, value in zip(self._places, given, strict=True):
            if not (overridden and self.table.columns[place].identity):
                values[place] = value
        defaults = writer.rules.defaults
        for place, value in enumerate(values):
            if value is _MISSING:
                default = defaults.get(place)
                values[place] = None if default is None else default((), env)
        return writer.rules.finished(values, env)


_MISSING: object = object()


def _times(numbers: Counter[str], times: int) -> Counter[str]:
    return Counter({name: count * times for name, count in numbers.items()})


class _OnConflict:
    """ON CONFLICT DO NOTHING and DO UPDATE."""

    def __init__(self, table: Table, conflict: Conflict) -> None:
        self._table, self._conflict = table, conflict
        self._names: frozenset[str] | None = None  # of the constraints meant; None: any
        if conflict.constraint is not None:
            self._names = frozenset((conflict.constraint,))
        elif conflict.columns:
            wanted = set(conflict.columns)
            self._names = frozenset(n for n, ids in table.unique_sets() if set(ids) == wanted)
            given = [] if conflict.predicate is None else [conflict.predicate]
            self._names |= frozenset(
                i.name
                for i in table.indexes
                if i.where and i.unique and i.state == PUBLIC and set(i.column_ids) == wanted
                if usable(table, i, given)
            )
            if not self._names and conflict.predicate is not None:
                raise no_arbiter()
        self._late, self._ahead = self._deferrable(conflict)
        where = self._where = None if conflict.where is None else compile(conflict.where)
        self._waits = where is not None and where.numbered
        self._projection = _Projection(table)
        self._changes = (
            None if conflict.assignments is None else _Assignments(table, conflict.assignments)
        )

    def _deferrable(self, conflict: Conflict) -> tuple[Index | None, list[str]]:
        """The first of the constraints meant that is deferrable, and those ahead of it."""
        ahead = [self._table.primary_key_name] if self._meant(self._table.primary_key_name) else []
        for index in sorted(self._table.indexes, key=lambda one: (not one.primary, one.id)):
            if not index.unique or index.state != PUBLIC:
                continue
            if index.deferrable and conflict.constraint is None:
                meant = not conflict.columns or {*conflict.columns} == {*index.column_ids}
            else:
                meant = self._meant(index.name)
            if meant and index.deferrable:
                return index, ahead
            if meant:
                ahead.append(index.name)
        return None, []

    def _meant(self, name: str) -> bool:
        return bool(name) and (self._names is None or name in self._names)

    async def _decided(self, work: Work, writer: TableWriter, rows: Sequence[Row]) -> None:
        """A deferrable constraint decides nothing: what comes to it is refused, as PostgreSQL does;
        what meets a constraint ahead of it does not come to it. Raises SqlError (55000).
        """
        t, ahead = work.t, self._ahead
        free = not ahead or None in await writer.seek(t, rows, only=ahead, late=False)
        if self._late is not None and free:
            raise SqlError(
                "55000",
                "ON CONFLICT does not support deferrable unique constraints/exclusion constraints "
                "as arbiters",
                schema=schema_of(self._table.namespace),
                table=self._table.name,
                constraint=self._late.name,
            )

    async def run(
        self, work: Work, writer: TableWriter, rows: Sequence[Row], mine: set[bytes]
    ) -> list[Row]:
        """The rows that were inserted or updated, as they are now. `mine`: keys of rows of this
        statement. Raises SqlError.
        """
        if self._late is not None and rows:
            await self._decided(work, writer, rows)
        if len(rows) >= _MANY and not mine:
            together = await self._together(work, writer, rows)
            if together is not None:
                return together
        done: list[Row] = []
        for row in rows:
            (taken,) = await self._seek(work, writer, [row])
            if taken is None:
                mine.add(writer.insert(work.t, row, late=False))
                await writer.place(work.t, work, [row])
                done.append(row)
            elif self._names is not None and taken.constraint not in self._names:
                raise writer.refused(taken, row)
            elif self._changes is not None:
                changed = await self._update(work, writer, row, taken, mine)
                if changed is not None:
                    done.append(changed)
        return done

    async def _seek(
        self, work: Work, writer: TableWriter, rows: Sequence[Row]
    ) -> list[Taken | None]:
        """A row that is in the way is locked as it will be changed. Whoever is in the way of what
        is not asked for first is waited for only if nobody is in that of what is.
        """
        names, t, strength = self._names or (), work.t, None
        if self._changes is not None:
            strength = UPDATE if self._changes.moves else NO_KEY_UPDATE
        if not (t.renews and names):
            return await writer.seek(t, rows, first=names, strength=strength, late=False)
        taken = await writer.seek(t, rows, only=names, strength=strength, late=False)
        free = [n for n, one in enumerate(taken) if one is None]
        if free and writer.keys_unique > len(names):
            left = [rows[n] for n in free]
            others = await writer.seek(t, left, first=names, strength=strength, late=False)
            for n, one in zip(free, others, strict=True):
                taken[n] = one
        return taken

    async def _together(
        self, work: Work, writer: TableWriter, rows: Sequence[Row]
    ) -> list[Row] | None:
        """`run` of rows of which none meets what another one does; None: some do, or what is to be
        unique may change.
        """
        changes, where = self._changes, self._where
        if self._waits or (changes is not None and changes.moves) or not writer.apart(rows):
            return None
        taken = await self._seek(work, writer, rows)
        met = [(n, one) for n, one in enumerate(taken) if one is not None]
        keys = [one.row_key for _, one in met]
        if len(set(keys)) < len(keys):
            return None
        if self._names is not None and any(one.constraint not in self._names for _, one in met):
            return None
        done = {n: row for n, row in enumerate(rows) if taken[n] is None}
        for row in paused(done.values()):
            writer.insert(work.t, row, late=False)
        await writer.place(work.t, work, list(done.values()))
        if changes is not None:
            pairs: list[Found] = []
            places: list[int] = []
            for (n, _), old in zip(met, await stored_rows(work, self._table, keys), strict=True):
                seen = (*self._projection(old.values), *self._projection(rows[n]))
                if where is None or where.fn(seen, work.env) is True:
                    pairs.append((old, seen))
                    places.append(n)
            new, _ = await changes.apply(work, writer, pairs)
            done.update(zip(places, new, strict=True))
        return [done[n] for n in sorted(done)]

    async def _update(
        self, work: Work, writer: TableWriter, row: Row, taken: Taken, mine: set[bytes]
    ) -> Row | None:
        if taken.row_key in mine:
            raise SqlError(
                CARDINALITY_VIOLATION,
                "ON CONFLICT DO UPDATE command cannot affect row a second time",
                hint="Ensure that no rows proposed for insertion within the same command have "
                "duplicate constrained values.",
            )
        assert self._changes is not None
        (old,) = await stored_rows(work, self._table, [taken.row_key])
        seen = (*self._projection(old.values), *self._projection(row))
        if self._where is not None:
            fn = self._where.fn
            if self._waits:
                (meant,) = await work.each(lambda one: fn(one, work.env), [seen])
            else:
                meant = fn(seen, work.env)
            if meant is not True:
                return None
        new, _ = await self._changes.apply(work, writer, [(old, seen)])
        mine.add(writer.key_of(new[0]))
        return new[0]


async def stored_rows(work: Work, table: Table, keys: Sequence[bytes]) -> list[Stored]:
    """The rows at storage keys, which are there."""
    decode, rows = codec(table).decode_row, list[Stored]()
    for key, found in zip(keys, await found_at(work.t, keys), strict=True):
        assert found is not None, "the index names it in the same snapshot"
        rows.append(Stored(key, decode(key[4:], found[0]), found[1]))
    return rows


async def settle(
    t: Transaction, tables: Tables, spots: Spots, deferred: Deferred | None = None
) -> None:
    """Deferrable unique constraints hold now, but for those that are `deferred` still. Raises
    SqlError (23505).
    """
    for of in list(spots.noted):
        table = tables.table_by_id(of[0])
        index = next((i for i in table.indexes if i.id == of[1]), None) if table else None
        if table is None or index is None:
            continue  # it was dropped meanwhile
        if deferred is None or not deferred.defers(of[0], index):
            await tables.writer(table).settle(t, spots.noted[of])
            spots.forget(of)


class _Assignments:
    """SET: old rows → new rows, written."""

    def __init__(self, table: Table, assignments: Sequence[Assignment]) -> None:
        self._table = table
        self.changed = frozenset(a.column.id for a in assignments)
        at = places(table, [a.column.id for a in assignments])
        compiled = [
            (place, None if isinstance(a.value, Default) else compile(a.value))
            for place, a in zip(at, assignments, strict=True)
        ]
        self._set = [(place, None if one is None else one.fn) for place, one in compiled]
        self._taken = Counter(name for _, one in compiled if one is not None for name in one.taken)
        self._unsure = any(one.unsure for _, one in compiled if one is not None)
        self._check_identities(assignments)
        self._assigned = frozenset(at)
        unique = {number for _, ids in table.unique_sets() for number in ids}
        unique |= {n for i in table.indexes if i.unique for n in i.used_ids}
        computed = {
            c.id for c in table.columns if c.generated is not None or c.on_update is not None
        }
        self.moves = bool(unique & (self.changed | computed))

    @staticmethod
    def _check_identities(assignments: Sequence[Assignment]) -> None:
        for one in assignments:
            if one.column.identity == "always" and not isinstance(one.value, Default):
                raise SqlError(
                    GENERATED_ALWAYS,
                    f'column "{one.column.name}" can only be updated to DEFAULT',
                    detail=f'Column "{one.column.name}" is an identity column defined as GENERATED '
                    "ALWAYS.",
                )

    async def apply(
        self,
        work: Work,
        writer: TableWriter,
        rows: Sequence[tuple[Stored, Values]],
        returning: Callable[[Row, Values], Row] | None = None,
        each: Counter[str] | None = None,
    ) -> tuple[list[Row], list[Row]]:
        """The new rows. Each old one comes with the row that the expressions see. `returning` takes
        numbers, too, `each` row so many: it is computed with the row, and comes second.
        """
        given = set(writer.rules.defaults) - {place for place, fn in self._set if fn is None}
        taken = self._taken + writer.rules.numbers(given) + (each or Counter())
        full = await work.reserve(_times(taken, len(rows)))
        new, returned = await self._new(work, writer, rows, returning, full)
        olds = [old for old, _ in rows]
        await self._write(work, writer, olds, new)
        await check_parents(work.t, work.tables, self._table, new, self.changed, work.deferred)
        if work.tables.referring_to(self._table.id):
            gone = [Gone(old, row) for old, row in zip(olds, new, strict=True)]
            children = Children(work.t, work.tables, work.env, work.touched, work)
            await children.follow(self._table, gone)
        return new, returned

    async def _write(
        self, work: Work, writer: TableWriter, olds: Sequence[Stored], new: Sequence[Row]
    ) -> None:
        many = len(new) >= _MANY and not self._table.plain
        if many and not self.moves:
            rules = writer.rules
            changed = self._assigned.union(at for at, _ in (*rules.generated, *rules.on_update))
            for at in _slices(len(new)):
                writer.update_many(work.t, olds[at], new[at], changed)
            return
        free = not self.moves or (many and await writer.free(work.t, new, olds))
        for old, row in paused(zip(olds, new, strict=True)):
            if not free:  # one by one: a row sees where those before it went
                (there,) = await writer.seek(work.t, [row], [old], late=False)
                if there is not None:
                    raise writer.refused(there, row)
            work.t.computes_from(old.key, old.version)
            writer.update(work.t, old, row, late=False)
        await writer.place(work.t, work, new, olds)

    async def _new(
        self,
        work: Work,
        writer: TableWriter,
        rows: Sequence[tuple[Stored, Values]],
        returning: Callable[[Row, Values], Row] | None,
        full: bool,
    ) -> tuple[list[Row], list[Row]]:
        def make(pair: tuple[Stored, Values]) -> Row:
            return self.new(writer, pair[0], pair[1], work.env)

        if returning is not None:

            def both(pair: tuple[Stored, Values]) -> tuple[Row, Row]:
                row = make(pair)
                return row, returning(row, pair[1])

            pairs = await work.each(both, rows)
            return [row for row, _ in pairs], [returned for _, returned in pairs]
        if full and not (self._unsure or writer.rules.unsure):
            return one_by_one(map(make, rows)), []
        return await work.each(make, rows), []

    def new(self, writer: TableWriter, old: Stored, seen: Values, env: Env) -> Row:
        """What becomes of a row."""
        values = list(old.values)
        for place, fn in self._set:
            if fn is not None:
                values[place] = fn(seen, env)
            else:
                default = writer.rules.defaults.get(place)
                values[place] = None if default is None else default((), env)
        for place, fn in writer.rules.on_update:
            if place not in self._assigned:
                values[place] = fn((), env)
        return writer.rules.finished(values, env)


class _Meant:
    """The rows of the target that a WHERE means."""

    def __init__(
        self, table: Table, where: Expr | None, conditions: Sequence[Expr], strength: int
    ) -> None:
        """`strength`: how READ COMMITTED locks them."""
        access, _ = choose(table, conditions)
        self._strength = strength
        self.reader = TableReader(table, access)
        self.locks_first = locks_first(table, access, conditions)
        self._where = None if where is None else compile(where).fn
        self._projection = _Projection(table)

    def meant(self, stored: Stored, env: Env) -> Values | None:
        """The row that expressions see; None: it is not meant."""
        seen = self._projection(stored.values)
        return seen if self._where is None or self._where(seen, env) is True else None

    async def rows(self, work: Work, reads: Reads) -> AsyncIterator[Sequence[Found]]:
        """In pages, each with the row that expressions see."""
        env, table = work.env, self.reader.table

        def meant(stored: Stored) -> Values | None:
            return self.meant(stored, env)

        if self.locks_first and isinstance(reads, TxnReads) and reads.renews:
            if has_room(work.t, 1):
                wait = Wait(table.name, strength=self._strength)
                first = await lock_first(reads, self.reader, env, work.touched, meant, wait)
                if first is not None:
                    yield first
                    return
            else:
                await reads.renew()
        reader = self.reader.unless_many(env, work.touched.estimates)
        async for batch in reader.batches(reads, env, work.touched):
            now().fresh()
            pairs = [(stored, meant(stored)) for stored in batch]
            found = [(stored, seen) for stored, seen in pairs if seen is not None]
            yield await lock_changed(work.t, table, found, meant, self._strength)

    async def each(
        self, work: Work, run: Callable[[Work, Sequence[Found]], Awaitable[Outcome]]
    ) -> Outcome:
        """What `run` makes of them, page by page while others are read, as they were before; at
        once where rows refer to each other: what is checked is how things are in the end.
        """
        table = self.reader.table
        if table.foreign_keys or work.tables.referring_to(table.id):
            every: list[Found] = []
            async for page in self.rows(work, work.t):
                work.held.rows([stored.values for stored, _ in page])
                every += page
            return await run(work, every)
        total: Outcome | None = None
        view = work.t.look()
        try:
            found = self.rows(work, view)
            async for some in in_parts(found, lambda one: one[0].values, view.part):
                part = await run(work, some)
                work.held.rows(part.rows)
                if total is None:
                    total = part
                else:
                    total.add(part)
        finally:
            view.end()
        return await run(work, []) if total is None else total


class UpdatePlan:
    """UPDATE of rows that its own WHERE finds, or of rows that somebody else found (`rows`)."""

    def __init__(self, update: Update, *, finds: bool = True) -> None:
        self.table = update.target.table
        self.assignments = _Assignments(self.table, update.assignments)
        strength = UPDATE if self.assignments.moves else NO_KEY_UPDATE
        conditions = update.conjuncts
        self.meant = _Meant(self.table, update.where, conditions, strength) if finds else None
        self.locks_first = self.meant is not None and self.meant.locks_first
        self._returning = _Returning(update.returning)
        self._projection = _Projection(self.table)

    async def run(self, work: Work, rows: Sequence[tuple[Stored, Values]] | None = None) -> Outcome:
        """`rows`: old rows, each with the row of all items, of which the target's is the first."""
        if rows is None:
            assert self.meant is not None
            return await self.meant.each(work, self.run)
        writer = work.tables.writer(self.table)
        width, env = len(shown(self.table)), work.env

        def of_pair(row: Row, seen: Values) -> Row:
            return self._returning((*self._projection(row), *seen[width:]), env)

        numbered = self._returning.numbered
        new, returned = await self.assignments.apply(
            work, writer, rows, of_pair if numbered else None, self._returning.taken
        )
        outcome = Outcome(len(new), returned, [writer])
        if self._returning and not numbered:
            outcome.rows = [of_pair(row, seen) for (_, seen), row in zip(rows, new, strict=True)]
        return outcome

    def returned(self, row: Row, env: Env) -> list[Row]:
        """What RETURNING says of a row that was changed, without others beside it."""
        return [self._returning(self._projection(row), env)] if self._returning else []


class DeletePlan:
    """DELETE of rows that its own WHERE finds, or of rows that somebody else found."""

    def __init__(self, delete: Delete, *, finds: bool = True) -> None:
        self.table = delete.target.table
        conditions = delete.conjuncts
        self.meant = _Meant(self.table, delete.where, conditions, UPDATE) if finds else None
        self.locks_first = self.meant is not None and self.meant.locks_first
        self._returning = _Returning(delete.returning)

    async def run(self, work: Work, rows: Sequence[tuple[Stored, Values]] | None = None) -> Outcome:
        if rows is None:
            assert self.meant is not None
            return await self.meant.each(work, self.run)
        writer = work.tables.writer(self.table)
        olds = [old for old, _ in rows]
        if len(olds) < _MANY:
            for old in olds:
                work.t.computes_from(old.key, old.version)
                writer.delete(work.t, old)
        else:
            for at in _slices(len(olds)):
                writer.delete_many(work.t, olds[at])
        if work.tables.referring_to(self.table.id):
            children = Children(work.t, work.tables, work.env, work.touched, work)
            await children.follow(self.table, [Gone(old, None) for old in olds])
        outcome = Outcome(len(rows), writers=[writer])
        if self._returning.numbered:
            await work.reserve(_times(self._returning.taken, len(rows)))
            outcome.rows = await work.each(
                lambda seen: self._returning(seen, work.env), [seen for _, seen in rows]
            )
            return outcome
        if self._returning:
            outcome.rows = [self._returning(seen, work.env) for _, seen in rows]
        return outcome

    def returned(self, seen: Values, env: Env) -> list[Row]:
        """What RETURNING says of a row that is gone."""
        return [self._returning(seen, env)] if self._returning else []
