"""Runs what takes numbers of sequences for the rows of a query (`front.stages` takes it
apart): queries inside, and what has to be there before a sort or a grouping, run first and lie in
memory; the list of the outermost one is computed row by row as the rows come, which may wait for
numbers (`reserving.each`). Numbers are taken in blocks: so many as the rows of a batch are sure to
need, and what is left of them in the end goes back to the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kv.base.limits import SQL_COPY_BATCH_ROWS, SQL_NUMBERED_ROWS_MAX
from sqlproxy.front.bound.exprs import Column, Const, Expr, Later, Once
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import Cte, Insert, Select, SubQuery, Update
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.stages import sequence_stages as numbered
from sqlproxy.front.stages.row_subqueries import answering, postponed, row_subqueries
from sqlproxy.front.stages.sequence_stages import Rows
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Row, Values
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.reserving import each, reserve
from sqlproxy.session.shared.prepared import Prepared, plan_of
from sqlproxy.session.state.portal_view import Sight
from sqlproxy.session.state.portals import Batches, given_up
from sqlproxy.session.state.state import State
from sqlproxy.tables.select_values import ListingPlan
from sqlproxy.tables.selecting import ConstantPlan
from sqlproxy.values.errors import (
    CARDINALITY_VIOLATION,
    INVALID_LIMIT,
    INVALID_OFFSET,
    LIMIT_EXCEEDED,
    SqlError,
)
from sqlproxy.values.memory import one_by_one


@dataclass(slots=True)
class Numbered:
    """One statement under way."""

    session: State
    prepared: Prepared
    values: Values
    ask: Callable[[Prepared, Sight | None], Awaitable[Batches]]
    as_of: str | None = None
    sight: Sight | None = None  # None: what the block reads by then
    lates: int = 0

    async def rows(self, select: Select, most: int | None = None) -> Batches:
        """The rows of a query, at most so many. Raises SqlError, KvorumError."""
        if self._bounds(select)[1] == 0:
            return
        if isinstance(plan_of(select), ConstantPlan | ListingPlan):
            async for batch in await self._query(replace(select, numbers=False)):
                yield batch if most is None else batch[:most]
            return
        select = await self.settled(select)
        if not select.numbers:
            async for batch in await self._query(select):
                yield batch
            return
        async for batch in self._computed(select, most):
            yield batch

    async def all(self, select: Select, most: int | None = None) -> list[Row]:
        """The same in memory."""
        if self.as_of is not None:
            select = replace(select, as_of=self.as_of)
        found: list[Row] = []
        async for batch in self.rows(select, most):
            found += batch
            self.session.held.rows(batch)
            if len(found) > SQL_NUMBERED_ROWS_MAX:
                raise SqlError(
                    LIMIT_EXCEEDED,
                    "a query that takes numbers of sequences inside another one returns more than "
                    f"{SQL_NUMBERED_ROWS_MAX} rows",
                    hint="Take the numbers in the outermost query.",
                )
        return found

    async def settled(self, select: Select) -> Select:
        """The query with rows instead of what has to be computed before; it takes numbers in its
        list only, after all else.
        """
        select = numbered.narrowed(numbered.without_unread(select))
        select = numbered.with_later(select, partial(self.later, select.ctes))
        if numbered.inside(select):
            most = self._most(select)
            select = numbered.settled(await self.without_inner(select, most))
        for stage in (numbered.before_grouping, numbered.before_sorting):
            if (staged := stage(select)) is not None:
                select = staged.rest(await self.all(staged.first))
        return select

    def later(self, ctes: Sequence[Cte], query: SubQuery) -> Later:
        """What stands for a query of one value, which runs when a row needs it."""
        select = query.select
        if ctes:
            select = replace(select, ctes=(*ctes, *select.ctes))

        async def work(given: Sequence[object]) -> object:
            return only(await self.all(select))

        self.lates += 1
        return Later(oid=query.oid, typmod=query.typmod, number=self.lates, once=Once(work))

    def row(self, ctes: Sequence[Cte], query: SubQuery, args: tuple[Expr, ...]) -> Later:
        """What stands for a subquery of a row that is written."""

        async def work(given: Sequence[object]) -> object:
            select = answering(query, given)
            if ctes:
                select = replace(select, ctes=(*ctes, *select.ctes))
            rows = await self.all(select)
            return bool(rows) if query.kind == "exists" else only(rows)

        self.lates += 1
        return Later(
            oid=query.oid, typmod=query.typmod, number=self.lates, args=args, once=Once(work)
        )

    async def without_inner(self, node: object, most: int | None = None) -> Any:
        """A bound statement with rows instead of the queries inside that take numbers. `most`: it
        looks at so many rows of each.
        """
        known: dict[int, Rows] = {}
        ctes: list[Cte] = [cte for cte in getattr(node, "ctes", ()) if cte.statement is not None]
        for one in numbered.inside(node):
            left = None
            match one:
                case Cte():
                    select = one.statement
                    before = ctes[: next(i for i, cte in enumerate(ctes) if cte.name == one.name)]
                case SubQuery():
                    select, before = one.select, ctes
                case Select():
                    select, before, left = one, ctes, most
                    if most is not None:
                        left = max(0, most - sum(map(len, known.values())))
                case _:
                    select, before, left = one.select, ctes, most
            assert isinstance(select, Select)
            inner = replace(select, ctes=(*before, *select.ctes)) if before else select
            rows = await self.all(inner, left)
            if isinstance(one, SubQuery) and one.kind == "scalar" and len(rows) > 1:
                raise _several()
            known[id(one)] = rows
            if isinstance(one, Cte):
                ctes = [numbered.filled(cte, known) if cte is one else cte for cte in ctes]
        return numbered.filled(node, known)

    def _most(self, select: Select) -> int | None:
        """So many rows of its only item, or of its sides one after the other, are looked at."""
        if select.limit is None:
            return None
        both = select.operation
        if both is not None:
            alone = both.kind == "union" and both.all and not select.order
        else:
            alone = numbered.sole(select)
        if not alone:
            return None
        skip, keep = self._bounds(select)
        return None if keep is None else skip + keep

    def _bounds(self, select: Select) -> tuple[int, int | None]:
        """OFFSET and LIMIT. Raises SqlError."""
        env, _ = environment(self.session, self.values)
        keep = None if select.limit is None else compile(select.limit).fn((), env)
        skip = None if select.offset is None else compile(select.offset).fn((), env)
        if keep is not None and keep < 0:
            raise SqlError(INVALID_LIMIT, "LIMIT must not be negative")
        if skip is not None and skip < 0:
            raise SqlError(INVALID_OFFSET, "OFFSET must not be negative")
        return skip or 0, keep

    async def _query(self, select: Select) -> Batches:
        return await self.ask(self.prepared.part(select), self.sight)

    async def _computed(self, select: Select, most: int | None) -> AsyncIterator[list[Row]]:
        """Of a query that is settled. OFFSET skips rows whose numbers were taken."""
        skip, keep = self._bounds(select)
        parts = numbered.apart(select)
        inner = parts.inner
        if keep is not None:
            inner = replace(inner, limit=Const(oid=oids.INT8, value=skip + keep), offset=None)
        if keep is None:
            inner = replace(inner, offset=None)
        compiled = [compile(expr) for expr in parts.outs]
        fns = [one.fn for one in compiled]
        taken = Counter(name for one in compiled for name in one.taken)
        unsure = any(one.unsure for one in compiled)
        env, numbers = environment(self.session, self.values)
        declared = self.prepared.declared
        assert declared is not None

        def make(row: Row) -> Row:
            return tuple([fn(row, env) for fn in fns])

        rows = await self._query(inner)
        left = None if most is None else most + skip
        try:
            async for batch in rows:
                for at in range(0, len(batch), SQL_COPY_BATCH_ROWS):
                    some = batch[at : at + SQL_COPY_BATCH_ROWS]
                    if left is not None:
                        some = some[:left]
                        left -= len(some)
                    full = not unsure
                    for name, count in sorted(taken.items()):
                        full &= await reserve(
                            self.session, declared, numbers, name, count * len(some)
                        )
                    if full:
                        made = one_by_one(map(make, some))
                    else:
                        made = await each(self.session, declared, env, numbers, make, some)
                    if made[skip:]:
                        yield made[skip:]
                    await self.session.turn()
                    skip = max(0, skip - len(made))
                    if left == 0:
                        return
        finally:
            numbers.give_back(self.session.numbers)
            await given_up(rows)


def only(rows: Sequence[Row]) -> object:
    """The value of a query of one row. Raises SqlError."""
    if len(rows) > 1:
        raise _several()
    return rows[0][0] if rows else None


def _several() -> SqlError:
    return SqlError(
        CARDINALITY_VIOLATION, "more than one row returned by a subquery used as an expression"
    )


async def query(run: Numbered, select: Select) -> Batches:
    """The rows of a SELECT that takes numbers. Raises SqlError, KvorumError."""
    if numbered.inside(select):
        await run.session.work()  # all parts see one moment
    run.as_of = select.as_of
    return run.rows(select)


async def change(run: Numbered, prepared: Prepared) -> Prepared:
    """A change with rows instead of the queries inside that take numbers, and with what is computed
    when a row needs it instead of the subqueries of its rows, which see nothing that it writes.
    Raises SqlError, KvorumError.
    """
    bound = prepared.bound
    if row_subqueries(bound):
        await run.session.work()
        run.sight = Sight.now(run.session.block, run.session.work)
        run.sight.at = 0
        bound = postponed(bound, partial(run.row, bound.ctes))
        bound = numbered.settled_change(bound)
        prepared = replace(prepared, bound=bound, plan=plan_of(bound))
    if isinstance(bound, Insert) and bound.select is not None:
        selects = (bound.select, *(cte.statement for cte in bound.ctes))
        taken = any(isinstance(one, Select) and one.numbers for one in selects)
        if not (taken or any(numbered.asks(one.expr) for one in bound.select.targets)):
            return prepared
        bound = await _insert(run, bound, bound.select)
    else:
        bound = numbered.without_unread(bound)
        if isinstance(bound, Update) and bound.subqueries:
            bound = numbered.update_with_later(bound, partial(run.later, bound.ctes))
        if bound is prepared.bound and not numbered.inside(bound):
            return prepared
        bound = numbered.settled_change(await run.without_inner(bound))
    return replace(prepared, bound=bound, plan=plan_of(bound))


async def _insert(run: Numbered, bound: Insert, select: Select) -> Insert:
    """An INSERT … SELECT whose numbers are taken row by row as the rows are written, as far as that
    can be; the others are taken.
    """
    select = replace(select, ctes=(*bound.ctes, *select.ctes), numbers=True)
    bound = replace(bound, ctes=())
    if isinstance(plan_of(select), ConstantPlan | ListingPlan):
        return replace(bound, select=select)
    select = await run.settled(select)
    if not select.numbers:
        return replace(bound, select=select)
    if select.offset is not None:
        return replace(bound, select=numbered.known(select, await run.all(select)))
    parts = numbered.apart(select)

    def composed(part: Expr) -> Expr | None:
        return parts.outs[part.index] if isinstance(part, Column) else None

    conversions = tuple(rebuilt(one, composed) for one in bound.conversions) or parts.outs
    return replace(bound, select=parts.inner, conversions=conversions)
