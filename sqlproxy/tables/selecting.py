"""SELECT over one table, or over none, in its own way: filter, order by a key or in memory, limit.

Rows stream page by page. An ORDER BY that no key gives is sorted in memory while there are at most
SQL_SORTED_ROWS_MAX rows; if more come `TooManyRows` says so before the first row went out, and
DuckDB sorts them, which is quicker, also where a LIMIT keeps few.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import TypeVar

from kv.base.limits import (
    SQL_SCAN_ROWS,
    SQL_SORTED_BYTES_MAX,
    SQL_SORTED_ROWS_MAX,
)
from kv.base.strengths import is_shared
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Column, Expr, Order, walk
from sqlproxy.front.bound.folding import volatile
from sqlproxy.front.bound.statements import Select, TableItem, shown
from sqlproxy.front.closures.compiling import Fn, compile
from sqlproxy.rows.keys import EXACT
from sqlproxy.tables.access import Access, Ordering, choose, fixed_columns
from sqlproxy.tables.derived import column_meant
from sqlproxy.tables.reading import Reads, Stored, TableReader, Touched
from sqlproxy.tables.row_locking import Found, Wait, lock_first, lock_rows, locks_first
from sqlproxy.tables.rules import Row
from sqlproxy.tables.select_values import ListingPlan, bounds, listing_plan
from sqlproxy.tables.sorting import sort_key, sortable
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import now, size_of_rows
from txn.transaction import TxnReads

Batches = AsyncIterator[list[Row]]
T = TypeVar("T", bound=Sequence[object])


def select_plan(select: Select) -> SelectPlan | ConstantPlan | ListingPlan | None:
    """A plan for it, or None: it needs joins, aggregates or a large sort."""
    item = select.table
    if item is None and select.distinct:
        return _distinct_plan(select)
    if item is None:
        return ConstantPlan(select) if _constant(select) else listing_plan(select)
    if item.table.plain:
        return None
    order, complete = _ordering(select.order, item)
    access, sorted_already = choose(item.table, select.conjuncts, order if complete else ())
    if select.order and not complete:
        sorted_already = False
    if select.order and not sorted_already and not sortable(select.order):
        return None
    return SelectPlan(select, item, access, sort=bool(select.order) and not sorted_already)


def _distinct_plan(select: Select) -> SelectPlan | None:
    """SELECT DISTINCT of the first columns of a key, of which a LIMIT wants some: each by skipping
    what is like the one before. None: it is something else.
    """
    item = replace(select, distinct=False).table
    if item is None or item.table.plain or select.limit is None or select.locking:
        return None
    listed = columns_of(item, [target.expr for target in select.targets])
    asked = columns_of(item, select.conjuncts)
    order, complete = _ordering(select.order, item)
    if listed is None or asked is None or not complete:
        return None
    if not all(isinstance(target.expr, Column) for target in select.targets):
        return None
    # WHERE has to say the same of all rows that are alike in a key
    if any(item.table.by_id(one).resolved.base not in EXACT for one in asked):
        return None
    if any(map(volatile, select.conjuncts)):
        return None
    known = {one.column for one in order}
    hint = [*order, *(Ordering(column) for column in listed if column not in known)]
    access, is_sorted = choose(item.table, select.conjuncts, hint)
    fixed = fixed_columns(access)
    left, count = set(listed) - fixed, 0
    if not is_sorted or access.points or not set(asked) <= {*listed, *fixed}:
        return None
    if not left or not left <= set(access.components):  # one row, or sorted as no two are alike
        return None
    while left:
        left.discard(access.components[count])
        count += 1
    return SelectPlan(select, item, access, sort=False, distinct=count)


def columns_of(item: TableItem, exprs: Iterable[Expr]) -> dict[int, None] | None:
    """The columns of a table that these have, in their order; None: they have others, too."""
    found: dict[int, None] = {}
    for expr in exprs:
        for one in walk(expr):
            if isinstance(one, Column):
                if one.level or one.table != item.table.id:
                    return None
                found[one.attribute] = None
    return found


def _passed(where: Fn, rows: Sequence[Row], env: Env, before: int) -> Iterator[list[Row]]:
    """The rows, which come after so many, that meet a condition, before the first for which it
    fails.
    """
    for some in growing(rows, before):
        now().fresh()
        try:
            kept = [row for row in some if where(row, env) is True]
        except SqlError:
            kept, failed = until_failure(some, lambda row: row if where(row, env) is True else None)
            yield kept
            if failed is not None:
                raise failed from None
        else:
            yield kept


def until_failure(
    rows: Sequence[T], make: Callable[[T], T | None]
) -> tuple[list[T], SqlError | None]:
    """What `make` gives for the rows, None left out, before the first for which it raises, and that
    error: rows go out before it, or a LIMIT ends before it.
    """
    made: list[T] = []
    try:
        for row in rows:
            now().fresh()
            if (one := make(row)) is not None:
                made.append(one)
    except SqlError as error:
        return made, error
    return made, None


def in_pieces(rows: Sequence[T], make: Callable[[T], T | None]) -> Iterator[list[T]]:
    """What `until_failure` gives, in pieces of so many bytes as a budget says. Raises the error
    after them.
    """
    most = now().piece
    made: list[T] = []
    size = 0
    for row in rows:
        some, failed = until_failure((row,), make)
        made += some
        size += size_of_rows(some)
        if made and (failed is not None or size > most):
            yield made
            made, size = [], 0
        if failed is not None:
            raise failed
    if made:
        yield made


def growing(rows: Sequence[T], before: int) -> Iterator[Sequence[T]]:
    """The rows in pieces, each of three times as many as came `before` it: who takes few, as FETCH
    does, pays for few.
    """
    at = 0
    while at < len(rows):
        some = rows[at : at + max(1, 3 * (before + at))]
        yield some
        at += len(some)


class TooManyRows(Exception):
    """More rows than are sorted here; nothing went out yet."""


def _constant(select: Select) -> bool:
    """SELECT without FROM, of expressions that need no rows."""
    return not (
        select.items
        or select.operation
        or select.ctes
        or select.aggregates
        or select.windows
        or select.sets
        or select.subqueries
        or select.values is not None
        or select.distinct
        or select.distinct_on
    )


def _ordering(order: Sequence[Order], item: TableItem) -> tuple[list[Ordering], bool]:
    """The columns to order by; whether that is all there is."""
    found: list[Ordering] = []
    for one in order:
        expr, table = one.expr, item.table
        if isinstance(expr, Column) and expr.level == 0 and expr.table == table.id:
            column: int | None = expr.attribute
        else:
            column = column_meant(table, expr)
        if column is None:
            return found, False
        found.append(Ordering(column, one.descending, one.nulls_first))
    return found, True


def _taking(places: tuple[int, ...] | None) -> Callable[[Row], Row] | None:
    """What takes the values at these places."""
    if places is None:
        return None
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple([row[at] for at in places])


class SelectPlan:
    """One table's rows. `reader.access` tells how they are reached."""

    def __init__(
        self, select: Select, item: TableItem, access: Access, *, sort: bool, distinct: int = 0
    ) -> None:
        """`distinct`: as that of `TableReader`."""
        self.select, self.table = select, item.table
        asked = (*(t.expr for t in select.targets), *(o.expr for o in select.order))
        wanted = None if select.locking else columns_of(item, (*asked, *select.conjuncts))
        self.reader = TableReader(item.table, access, wanted, distinct=distinct)
        self.point = access.one_row  # whether it reads one row of the primary key at most
        self.sort = sort
        self.any_order = sort or not (select.order or select.limit)
        self._where = None if select.where is None else compile(select.where).fn
        self._targets: list[Fn] = [compile(target.expr).fn for target in select.targets]
        self._plain = self._as_it_is(item)
        seen = {column.id for column in shown(item.table)}
        self._places = tuple(at for at, c in enumerate(item.table.columns) if c.id in seen)
        self._dense = len(self._places) == len(item.table.columns)
        self._taken = _taking(self._plain)
        self._whole = self._plain == tuple(range(len(self._places)))  # the row is the answer
        self._limit = None if select.limit is None else compile(select.limit).fn
        self._offset = None if select.offset is None else compile(select.offset).fn
        self._key = sort_key(select.order) if sort else None
        self._wait = Wait.of(select.locking, item.table.name) if select.locking else None
        whole = bool(select.locking) and select.limit is None and select.offset is None
        alone = whole and self._wait is not None and not is_shared(self._wait.strength)
        self.locks_first = alone and locks_first(item.table, access, select.conjuncts)

    def _as_it_is(self, item: TableItem) -> tuple[int, ...] | None:
        """The places of the targets when each is a column as it is stored."""
        found = []
        for target in self.select.targets:
            expr = target.expr
            if not (isinstance(expr, Column) and expr.level == 0 and expr.table == item.table.id):
                return None
            found.append(expr.index)
        return tuple(found)

    def batches(self, reads: Reads, env: Env, touched: Touched) -> Batches:
        """The rows, in batches that are not empty."""
        if self._wait is not None and not self.point and isinstance(reads, TxnReads):
            return self._locked(reads, env, touched, self._wait)
        return self._read(reads, env, touched)

    async def _read(self, reads: Reads, env: Env, touched: Touched) -> Batches:
        if self.point:
            if rows := await self.point_rows(reads, env, touched):
                yield rows
            return
        skip, keep = bounds(self._offset, self._limit, env)
        if keep == 0:
            return
        source = self._filtered(reads, env, touched, keep, skip)
        if self._key is not None:
            wanted = None if keep is None else skip + keep
            rows = await self._sorted(source, env, wanted)
            for at in range(skip, len(rows), SQL_SCAN_ROWS):
                for made in self._outs(rows[at : at + SQL_SCAN_ROWS], env, at - skip):
                    yield made
            return
        before = 0
        async for batch in source:
            if skip >= len(batch):
                skip -= len(batch)
                continue
            rows = batch[skip:]
            skip = 0
            if keep is not None:
                rows = rows[:keep]
                keep -= len(rows)
            for made in (rows,) if self._whole else self._outs(rows, env, before):
                yield made
            before += len(rows)
            if keep == 0:
                return

    async def point_rows(self, reads: Reads, env: Env, touched: Touched) -> list[Row]:
        """The row of a way that names one, or none: without the cost of a generator."""

        def meant(stored: Stored) -> list[Row] | None:
            return self.rows_of(stored.values, env) or None

        if self.locks_first and isinstance(reads, TxnReads) and reads.renews:
            assert self._wait is not None
            first = await lock_first(reads, self.reader, env, touched, meant, self._wait)
            if first is not None:
                return first[0][1] if first else []
        stored = await self.reader.one(reads, env, touched)
        if stored is None:
            return []
        found = self.rows_of(stored.values, env)
        if not found or self._wait is None or not isinstance(reads, TxnReads):
            return found
        pair = (stored, found)
        rows = await lock_rows(reads, self.table, [pair], meant, self._wait)
        return rows[0][1] if rows else []

    def rows_of(self, values: Row, env: Env) -> list[Row]:
        """What the statement says of the only row that it can mean."""
        row = self._seen(values)
        if self._where is not None and self._where(row, env) is not True:
            return []
        if self._limit is not None or self._offset is not None:
            skip, keep = bounds(self._offset, self._limit, env)
            if skip or keep == 0:
                return []
        return [row if self._whole else self._out(row, env)]

    async def _filtered(
        self, reads: Reads, env: Env, touched: Touched, keep: int | None, skip: int
    ) -> Batches:
        where = self._where
        page = SQL_SCAN_ROWS
        if keep is not None and self._key is None:
            page = min(SQL_SCAN_ROWS, max(1, keep + skip))
        before = 0
        reader = self.reader
        if self.any_order:
            reader = reader.unless_many(env, touched.estimates)
        async for values in reader.values(reads, env, touched, page=page):
            rows = values
            if not self._dense:
                rows = [tuple([row[at] for at in self._places]) for row in values]
            for kept in (rows,) if where is None else _passed(where, rows, env, before):
                if kept:
                    yield kept
            before += len(rows)

    async def _locked(self, reads: TxnReads, env: Env, touched: Touched, wait: Wait) -> Batches:
        """FOR UPDATE and its like: rows in their order, locked before they are counted, and no more
        of them than that, as PostgreSQL's LockRows stands between Sort and Limit.
        """
        where = self._where
        skip, keep = bounds(self._offset, self._limit, env)

        def meant(stored: Stored) -> Row | None:
            row = self._seen(stored.values)
            return row if where is None or where(row, env) is True else None

        wanted = None if keep is None else skip + keep
        before = 0
        async for batch in self._to_lock(reads, env, touched, wanted, meant):
            at = 0
            while at < len(batch) and wanted != 0:
                some = batch[at:] if wanted is None else batch[at : at + wanted]
                at += len(some)
                rows = [row for _, row in await lock_rows(reads, self.table, some, meant, wait)]
                if wanted is not None:
                    wanted -= len(rows)
                passed = min(skip, len(rows))
                skip -= passed
                rows = rows[passed:]
                for made in (rows,) if self._whole else self._outs(rows, env, before):
                    if made:
                        yield made
                before += len(rows)
            if wanted == 0:
                return

    async def _to_lock(
        self,
        reads: TxnReads,
        env: Env,
        touched: Touched,
        wanted: int | None,
        meant: Callable[[Stored], Row | None],
    ) -> AsyncIterator[list[Found[Row]]]:
        """The rows that are meant, as they are found, or sorted all together. Raises
        TooManyRows.
        """
        page = SQL_SCAN_ROWS
        if wanted is not None and self._key is None:
            page = min(SQL_SCAN_ROWS, max(1, wanted))
        every: list[Found[Row]] = []
        size = 0
        async for batch in self.reader.batches(reads, env, touched, page=page):
            now().fresh()
            pairs = [(stored, meant(stored)) for stored in batch]
            found = [(stored, row) for stored, row in pairs if row is not None]
            if self._key is None:
                yield found
                continue
            every += found
            size += size_of_rows([row for _, row in found])
            if len(every) > SQL_SORTED_ROWS_MAX or size > SQL_SORTED_BYTES_MAX:
                raise TooManyRows
        if self._key is not None:
            key = self._key
            every.sort(key=lambda one: key(one[1], env))
            yield every

    def _seen(self, values: Row) -> Row:
        """Without what users do not see."""
        return values if self._dense else tuple([values[at] for at in self._places])

    def _out(self, row: Row, env: Env) -> Row:
        if self._taken is not None:
            taken: Row = self._taken(row)
            return taken
        return tuple([fn(row, env) for fn in self._targets])

    def _outs(self, rows: Sequence[Row], env: Env, before: int) -> Iterator[list[Row]]:
        """What goes out for the rows, which come after so many, before the first that fails."""
        if self._taken is not None:
            yield list(map(self._taken, rows))
            return
        for some in growing(rows, before):
            now().fresh()
            try:
                made = [self._out(row, env) for row in some]
            except SqlError:
                yield from in_pieces(some, lambda row: self._out(row, env))
            else:
                yield made

    async def _sorted(self, source: Batches, env: Env, wanted: int | None) -> list[Row]:
        """All rows in order, the first `wanted` of them; never more than that, and a page, in
        memory. Rows that are alike keep the order of the table. Raises TooManyRows.
        """
        assert self._key is not None
        key = self._key
        held: list[tuple[bytes, int, Row]] = []
        number = size = 0
        async for batch in source:
            for row in batch:
                held.append((key(row, env), number, row))
                number += 1
            size += size_of_rows(batch)
            if number > SQL_SORTED_ROWS_MAX or size > SQL_SORTED_BYTES_MAX:
                raise TooManyRows
            if wanted is not None and len(held) > wanted:
                held = heapq.nsmallest(wanted, held, key=lambda one: one[:2])
        held.sort(key=lambda one: one[:2])
        return [row for _, _, row in islice(held, wanted)]


class ConstantPlan:
    """SELECT without FROM: one row, or none when WHERE or LIMIT say so."""

    def __init__(self, select: Select) -> None:
        self.select = select
        self._where = None if select.where is None else compile(select.where).fn
        compiled = [compile(target.expr) for target in select.targets]
        self._targets: list[Fn] = [one.fn for one in compiled]
        self.sequences = Counter(name for one in compiled for name in one.taken)
        self.count = 1
        self._limit = None if select.limit is None else compile(select.limit).fn
        self._offset = None if select.offset is None else compile(select.offset).fn

    def rows(self, env: Env) -> list[Row]:
        skip, keep = bounds(self._offset, self._limit, env)
        if skip or keep == 0:
            return []
        if self._where is not None and self._where((), env) is not True:
            return []
        return [tuple(fn((), env) for fn in self._targets)]
