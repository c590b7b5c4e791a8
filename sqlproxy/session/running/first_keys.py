"""The first rows of a join that has a LIMIT: the keys of one of its tables are looked for first,
and stand in the statement, so that of the other tables only what belongs to those rows is read.

    SELECT … FROM a LEFT JOIN b ON … ORDER BY a.k LIMIT 10     ten keys of a, then ten rows of each
    SELECT … FROM a JOIN b ON … ORDER BY a.k LIMIT 10          twenty keys of a, then their rows; if
                                                               these are fewer than ten, 200 keys

It is a table whose columns nothing makes NULL, by whose columns alone is sorted, and whose rows
come in that order by themselves. So of the answer the rows with its first keys come first. Where
each of its rows is in the answer (what is joined from the left, and filtered by its own columns)
LIMIT + OFFSET keys are enough. Elsewhere a row may have no partner, or not be meant: more keys are
taken until the answer is full, or, behind SQL_LED_KEYS_MAX of them, all is read after all. What has
a narrower way by a condition on another table begins there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kv.base.limits import SQL_LED_KEYS_MAX
from sqlproxy.front.binding.query import leaves
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Among, Column, Const, Expr, Logic, conjuncts, walk
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import (
    Item,
    JoinItem,
    Select,
    SubQuery,
    TableItem,
    Target,
)
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.types.registry import array_of
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Row
from sqlproxy.session.shared.prepared import plan_of
from sqlproxy.tables.access import choose, rejects_null
from sqlproxy.tables.select_values import bounds
from sqlproxy.tables.selecting import SelectPlan

_MORE: Final = 10  # times as many keys, if the answer is not full
_FIRST: Final = 2  # keys for each row of the answer
_GIVEN: Final = 2  # the score of a way with a component that is given (`sqlproxy.tables.access`)


@dataclass(frozen=True, slots=True)
class Leading:
    """`select`: the query of the keys, without a LIMIT. `count`: so many are taken first. `keep`:
    the rows of a full answer. `sure`: these keys are enough.
    """

    bound: Select
    keys: tuple[Column, ...]
    select: Select
    count: int
    keep: int
    sure: bool

    def first(self, count: int) -> Select:
        """The query of so many keys."""
        return replace(self.select, limit=Const(oid=oids.INT8, value=count))

    def more(self, count: int) -> int:
        """How many are taken after so many; 0: all rows are read."""
        return 0 if count >= SQL_LED_KEYS_MAX else min(count * _MORE, SQL_LED_KEYS_MAX)

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
    item = _driving(bound)
    ends = [one for one in (bound.limit, bound.offset) if one is not None]
    if item is None or any(isinstance(one, SubQuery) for e in ends for one in walk(e)):
        return None
    own = [one for one in bound.conjuncts if _is_of(one, item)]
    sure = len(own) == len(bound.conjuncts) and _all_stay(bound)
    offset = None if bound.offset is None else compile(bound.offset).fn
    skip, keep = bounds(offset, compile(bound.limit).fn, env)
    if keep is None or skip + keep > SQL_LED_KEYS_MAX:
        return None
    if not sure and (not keep or _begins_elsewhere(bound, item)):
        return None
    by_id = {column.attribute: n for n, column in enumerate(item.columns)}
    places = [by_id.get(column.id) for column in item.table.key_columns]
    at = [place for place in places if place is not None]
    keys = [item.columns[place].at(item.offset + place, item.alias) for place in at]
    if len(keys) < len(places) or not all(array_of(key.oid) for key in keys):
        return None
    select = _keys_of(bound, item, at, own)
    plan = plan_of(select)
    if not isinstance(plan, SelectPlan) or plan.sort:
        return None
    if own and plan.reader.access.whole:
        return None  # it may pass over nearly all
    if not sure and plan.reader.access.points:
        return None  # its rows are found first in any case
    count = skip + keep if sure else min(_FIRST * (skip + keep), SQL_LED_KEYS_MAX)
    return Leading(bound, tuple(keys), select, count, keep, sure)


def _keys_of(bound: Select, item: TableItem, places: Sequence[int], own: Sequence[Expr]) -> Select:
    """The query of the keys of a table alone, of which these are the places."""

    def alone(expr: Expr) -> Expr:
        def change(part: Expr) -> Expr | None:
            if isinstance(part, Column):
                return replace(part, index=part.index - item.offset)
            return None

        return rebuilt(expr, change)

    keys = [item.columns[place].at(place, item.alias) for place in places]
    where = tuple(alone(one) for one in own)
    return Select(
        text="",
        tree={},
        targets=tuple(Target(key, key.name) for key in keys),
        items=(replace(item, offset=0),),
        where=Logic(oid=oids.BOOL, op="and", args=where) if where[1:] else next(iter(where), None),
        order=tuple(replace(one, expr=alone(one.expr), target=-1) for one in bound.order),
        as_of=bound.as_of,
    )


def _is_of(expr: Expr, item: TableItem) -> bool:
    """Whether it is about the columns of one table alone."""
    mine = range(item.offset, item.offset + len(item.columns))
    return all(
        not one.level and one.index in mine
        if isinstance(one, Column)
        else not isinstance(one, SubQuery)
        for one in walk(expr)
    )


def _driving(bound: Select) -> TableItem | None:
    """The table by which is sorted; without an order the first one."""
    for item in (one for outer in bound.items for one in _stays(outer)):
        if all(_is_of(one.expr, item) for one in bound.order):
            return item
    return None


def _stays(item: Item) -> Iterator[TableItem]:
    """The tables of which each row of the join has a row."""
    match item:
        case JoinItem(kind=kind):
            if kind in ("left", "inner", "cross"):
                yield from _stays(item.left)
            if kind in ("right", "inner", "cross"):
                yield from _stays(item.right)
        case TableItem() if not item.table.plain:
            yield item
        case _:
            pass


def _all_stay(bound: Select) -> bool:
    """Whether each row of the table on the left is in the answer, but for WHERE."""
    if len(bound.items) != 1:
        return False
    item = bound.items[0]
    while isinstance(item, JoinItem):
        if item.kind != "left":
            return False
        item = item.left
    return True


def _begins_elsewhere(bound: Select, item: TableItem | None) -> bool:
    """Whether conditions give what another table of it, or of a query in WHERE, is looked up by."""
    conditions = list(bound.conjuncts)
    for outer in bound.items:
        conditions += _on(outer)
    for outer in bound.items:
        for other in leaves(outer):
            if isinstance(other, TableItem) and other is not item and not other.table.plain:
                own = [one for one in conditions if _is_of(one, other) and rejects_null(one)]
                if choose(other.table, own)[0].score >= _GIVEN:
                    return True
    inside = [one for e in bound.conjuncts for one in walk(e) if isinstance(one, SubQuery)]
    return any(_begins_elsewhere(one.select, None) for one in inside)


def _on(item: Item) -> Iterator[Expr]:
    if isinstance(item, JoinItem):
        yield from conjuncts(item.on)
        yield from _on(item.left)
        yield from _on(item.right)


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
