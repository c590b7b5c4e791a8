"""The first rows of a LEFT JOIN that has a LIMIT: their keys are looked for first, and stand in the
statement, so that of the other tables only what belongs to those rows is read.

    SELECT … FROM a LEFT JOIN b ON … ORDER BY a.k LIMIT 10     ten keys of a, then ten rows of each

Each row of the table on the left is in the answer at least once. So of what is filtered and sorted
by its columns alone no more than LIMIT + OFFSET of its rows can matter, if they come in that order
by themselves. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kv.base.limits import SQL_LED_KEYS_MAX
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Among, Column, Const, Expr, Logic, walk
from sqlproxy.front.bound.statements import JoinItem, Select, SubQuery, TableItem, Target
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.types.registry import array_of
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Row
from sqlproxy.session.shared.prepared import plan_of
from sqlproxy.tables.select_values import bounds
from sqlproxy.tables.selecting import SelectPlan


@dataclass(frozen=True, slots=True)
class Leading:
    """`select`: the query of the keys."""

    bound: Select
    keys: tuple[Column, ...]
    select: Select

    def filled(self, rows: Sequence[Row]) -> Select:
        """The statement about the rows with these keys, of which there is one at least."""
        columns = [
            Const(oid=array_of(key.oid), value=list(values))
            for key, values in zip(self.keys, zip(*rows, strict=True), strict=True)
        ]
        where: Expr = Among(left=self.keys, columns=tuple(columns))
        if self.bound.where is not None:
            where = Logic(oid=oids.BOOL, op="and", args=(self.bound.where, where))
        return replace(self.bound, where=where)

    @property
    def unknown(self) -> Select:
        """The statement as long as they are not known."""
        return self.filled([(None,) * len(self.keys)])


def leading(bound: object, env: Env) -> Leading | None:
    """None: all rows may matter, or are found as quickly. Raises SqlError: no such LIMIT."""
    if not isinstance(bound, Select) or bound.limit is None or not _plain(bound):
        return None
    item = _leftmost(bound)
    ends = [one for one in (bound.limit, bound.offset) if one is not None]
    asked = (*bound.conjuncts, *(order.expr for order in bound.order))
    if item is None or any(isinstance(one, SubQuery) for e in (*ends, *asked) for one in walk(e)):
        return None
    mine = range(item.offset, item.offset + len(item.columns))
    if any(isinstance(one, Column) and one.index not in mine for e in asked for one in walk(e)):
        return None
    offset = None if bound.offset is None else compile(bound.offset).fn
    skip, keep = bounds(offset, compile(bound.limit).fn, env)
    if keep is None or skip + keep > SQL_LED_KEYS_MAX:
        return None
    by_id = {column.attribute: n for n, column in enumerate(item.columns)}
    places = [by_id.get(column.id) for column in item.table.key_columns]
    keys = [item.columns[at].at(item.offset + at, item.alias) for at in places if at is not None]
    if len(keys) < len(places) or not all(array_of(key.oid) for key in keys):
        return None
    select = Select(
        text="",
        tree={},
        targets=tuple(Target(key, key.name) for key in keys),
        items=(item,),
        where=bound.where,
        order=bound.order,
        limit=Const(oid=oids.INT8, value=skip + keep),
        as_of=bound.as_of,
    )
    plan = plan_of(select)
    if not isinstance(plan, SelectPlan) or plan.sort:
        return None
    if bound.where is not None and plan.reader.access.whole:
        return None  # it may pass over nearly all
    return Leading(bound, tuple(keys), select)


def _plain(bound: Select) -> bool:
    """Whether it filters, sorts and cuts the rows of a join, and no more."""
    return not (
        bound.operation
        or bound.ctes
        or bound.aggregates
        or bound.windows
        or bound.sets
        or bound.distinct
        or bound.distinct_on
        or bound.values is not None
        or bound.with_ties
        or bound.locking
        or bound.volatile
        or bound.numbers
    )


def _leftmost(bound: Select) -> TableItem | None:
    """The table of which each row has a part in what is joined."""
    if len(bound.items) != 1:
        return None
    item = bound.items[0]
    if not isinstance(item, JoinItem):
        return None
    while isinstance(item, JoinItem):
        if item.kind != "left":
            return None
        item = item.left
    return item if isinstance(item, TableItem) and not item.table.plain else None
