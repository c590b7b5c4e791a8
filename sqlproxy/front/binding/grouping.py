"""What may stand beside aggregates: only what is grouped by, or depends on it (PostgreSQL's
parse_agg.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlproxy.front.bound.exprs import (
    Aggregate,
    Column,
    Expr,
    Grouping,
    Order,
    Window,
    children,
    leftmost,
    walk,
)
from sqlproxy.front.bound.statements import (
    Item,
    JoinItem,
    SubQuery,
    SystemItem,
    TableItem,
    Target,
)
from sqlproxy.values.errors import GROUPING_ERROR, WINDOWING_ERROR, SqlError


def plain(expr: Expr, clause: str) -> None:
    """Raise 42803 for the first aggregate in it, else 42P20 for the first window function."""
    for kinds, state, what in (
        (Aggregate | Grouping, GROUPING_ERROR, "aggregate"),
        (Window, WINDOWING_ERROR, "window"),
    ):
        for one in walk(expr):
            if isinstance(one, kinds):
                raise SqlError(
                    state, f"{what} functions are not allowed in {clause}", position=one.pos + 1
                )


def check(
    items: Sequence[Item],
    targets: Sequence[Target],
    group: Sequence[Expr],
    having: Expr | None,
    order: Sequence[Order],
    distinct_on: Sequence[Expr],
    everywhere: Sequence[Expr],
) -> None:
    """Raise 42803 for the first argument of GROUPING that is not grouped by, else for the first
    column that has many values in a group. `everywhere`: what all grouping sets have.
    """
    dependent = _determined(items, everywhere)
    known = list(group)  # not a set: a subquery has no hash
    shown = [*(t.expr for t in targets), *(o.expr for o in order), *distinct_on]
    for exprs in (shown, [having] if having is not None else []):
        for expr in exprs:
            _check_arguments(expr, known)
        for expr in exprs:
            _check(expr, known, dependent)


def _check_arguments(expr: Expr, known: Sequence[Expr]) -> None:
    for one in walk(expr):
        for arg in one.args if isinstance(one, Grouping) else ():
            if arg not in known:
                raise SqlError(
                    GROUPING_ERROR,
                    "arguments to GROUPING must be grouping expressions of the associated query "
                    "level",
                    position=leftmost(arg),
                )


def _check(expr: Expr, known: Sequence[Expr], dependent: set[str], *, below: bool = False) -> None:
    """`below`: a query inside reads it."""
    if expr in known or isinstance(expr, Aggregate | Grouping):
        return
    if isinstance(expr, Column) and expr.level == 0:
        if expr.relation in dependent:
            return
        shown = f"{expr.relation}.{expr.name}" if expr.relation else expr.name
        raise SqlError(
            GROUPING_ERROR,
            f'subquery uses ungrouped column "{shown}" from outer query'
            if below
            else f'column "{shown}" must appear in the GROUP BY clause or be used in an aggregate '
            "function",
            position=expr.pos + 1,
        )
    for child in children(expr):
        _check(child, known, dependent)
    if isinstance(expr, SubQuery):
        for column in _outer(expr):
            _check(column, known, dependent, below=True)


def _outer(expr: SubQuery) -> Iterator[Column]:
    """The columns of this query that a subquery directly inside reads."""
    select = expr.select
    parts = [t.expr for t in select.targets] + [
        e for e in (select.where, select.having) if e is not None
    ]
    for part in parts:
        for one in walk(part):
            if isinstance(one, Column) and one.level == 1:
                yield replace(one, level=0)


def _determined(items: Sequence[Item], group: Sequence[Expr]) -> set[str]:
    """The tables whose whole primary key is grouped by: all their columns have one value in a
    group.
    """
    found = set()
    for item in items:
        for leaf in _tables(item):
            key = leaf.key if isinstance(leaf, SystemItem) else {*leaf.table.determining_key}
            if not key:
                continue
            have = {
                e.attribute
                for e in group
                if isinstance(e, Column) and e.relation == leaf.alias and not e.level
            }
            if key <= have:
                found.add(leaf.alias)
    return found


def _tables(item: Item) -> Iterator[TableItem | SystemItem]:
    if isinstance(item, JoinItem):
        yield from _tables(item.left)
        yield from _tables(item.right)
    elif isinstance(item, TableItem | SystemItem):
        yield item
