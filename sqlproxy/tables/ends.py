"""min() and max() of a column that a key or an index begins with: the first row from one of its
ends, as it is for

    SELECT max(s) FROM t WHERE s < 'n'     SELECT s FROM t WHERE s < 'n' AND s IS NOT NULL
                                           ORDER BY s DESC LIMIT 1

Only where the conditions are about the columns of the key that lead there: else as many rows as
they refuse would be read one after the other, and DuckDB reads all of them sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import (
    Aggregate,
    Column,
    Const,
    Expr,
    IsNull,
    Logic,
    Order,
    bare,
)
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import Select, TableItem, Target
from sqlproxy.front.closures.compiling import Fn, compile
from sqlproxy.pg import oids
from sqlproxy.tables.access import fixed_columns
from sqlproxy.tables.reading import Reads, Touched
from sqlproxy.tables.select_values import bounds
from sqlproxy.tables.selecting import Batches, SelectPlan, columns_of, select_plan

_ENDS = {"min": False, "max": True}  # of pg_catalog; whether it is the last


class EndsPlan:
    """`ends`: a plan for each min() and max(), of one row."""

    def __init__(self, select: Select, ends: Sequence[SelectPlan], targets: Sequence[Expr]) -> None:
        self.select, self.ends = select, ends
        self._targets: list[Fn] = [compile(one).fn for one in targets]
        self._limit = None if select.limit is None else compile(select.limit).fn
        self._offset = None if select.offset is None else compile(select.offset).fn

    async def batches(self, reads: Reads, env: Env, touched: Touched) -> Batches:
        """The one row, if a LIMIT lets it through."""
        skip, keep = bounds(self._offset, self._limit, env)
        if skip or keep == 0:
            return
        values: list[object] = []
        for plan in self.ends:
            found: object = None
            async for batch in plan.batches(reads, env, touched):
                ((found,),) = batch
            values.append(found)
        yield [tuple([fn(values, env) for fn in self._targets])]


def ends_plan(select: Select) -> EndsPlan | None:
    """None: it is not only of ends."""
    plain = replace(select, aggregates=False, order=())
    item = plain.table
    if item is None or not select.aggregates or item.table.plain or select.numbers:
        return None
    if select.group or select.grouping_sets or select.having is not None or select.locking:
        return None
    ends: list[SelectPlan] = []
    known: list[Aggregate] = []

    def value(part: Expr) -> Expr | None:
        if not isinstance(part, Aggregate):
            return None
        if part not in known:
            plan = _end(plain, item, part)
            if plan is None:
                raise _NoEnd
            known.append(part)
            ends.append(plan)
        return Column(oid=part.oid, typmod=part.typmod, index=known.index(part), name="end")

    try:
        targets = [rebuilt(target.expr, value) for target in select.targets]
    except _NoEnd:
        return None
    return EndsPlan(select, ends, targets) if ends else None


class _NoEnd(Exception):
    """An aggregate that is none, or is not found at an end."""


def _end(select: Select, item: TableItem, one: Aggregate) -> SelectPlan | None:
    if one.proc.name not in _ENDS or one.filter is not None or len(one.args) != 1:
        return None
    column = bare(one.args[0])
    if not (isinstance(column, Column) and not column.level and column.table == item.table.id):
        return None
    present = IsNull(arg=column, negated=True)
    where = Logic(op="and", args=(*select.conjuncts, present))
    found = select_plan(
        replace(
            select,
            targets=(Target(column, "end"),),
            fields=(),
            where=where,
            order=(Order(column, descending=_ENDS[one.proc.name]),),
            limit=Const(oid=oids.INT8, value=1),
            offset=None,
        )
    )
    if not isinstance(found, SelectPlan) or found.sort:
        return None
    asked = columns_of(item, select.conjuncts)
    led = {*fixed_columns(found.reader.access), column.attribute}
    return found if asked is not None and led.issuperset(asked) else None
