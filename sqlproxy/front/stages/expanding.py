"""Functions that return sets where rows are needed before a window or DISTINCT ON looks at them: an
inner query gives the rows of FROM, each as often as its sets are long, the outer one does the rest.
Pure.

    SELECT DISTINCT ON (g(x)) g(x), y FROM …    →    SELECT DISTINCT ON (c) c, y FROM
                                                        (SELECT x, y, g(x) AS c FROM …)

PostgreSQL expands in this order: GROUP BY and aggregates, sets in window definitions, windows, sets
in DISTINCT ON and ORDER BY, DISTINCT ON, the sort, other sets. So left out (0A000): sets in the
list after DISTINCT ON … ORDER BY, and where a grouping or, of DISTINCT ON, a window comes before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlproxy.front.bound.exprs import Call, Column, Expr, Window, walk
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import ItemColumn, Select, SelectItem, Target
from sqlproxy.values.errors import unsupported

Change = Callable[[Expr], Expr | None]


def expanded(select: Select) -> Select:
    """The query itself, if its sets may be where they are. Raises SqlError (0A000)."""
    if not select.sets:
        return select
    if any(_nests(target.expr) for target in select.targets):
        if select.aggregates or select.windows or select.distinct_on:
            raise unsupported(
                "a set-returning function in an argument of another, beside a grouping, a window "
                "or DISTINCT ON,"
            )
        return _over(select, _inner_sets)
    windows = any(_sets(one) for one in _defined(select))
    if not (windows or select.distinct_on):
        return select
    sorted_by = (*select.distinct_on, *(one.expr for one in select.order))
    if select.aggregates:
        raise unsupported(
            "a set-returning function in a window definition, or beside DISTINCT ON, "
            "of a query that groups"
        )
    if not windows:
        if select.order and not any(map(_sets, sorted_by)):
            raise unsupported("a set-returning function after DISTINCT ON and ORDER BY")
        if select.windows:
            raise unsupported("a set-returning function beside DISTINCT ON and window functions")
    return _over(select, _all_sets)


def _sets(expr: Expr) -> bool:
    return any(_is_set(one) for one in walk(expr))


def _is_set(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.proc.returns_set


def _defined(select: Select) -> Iterator[Expr]:
    """What window definitions say."""
    for expr in _exprs(select):
        for one in walk(expr):
            if isinstance(one, Window):
                yield from one.window.partition
                yield from (order.expr for order in one.window.order)


def _exprs(select: Select) -> Iterator[Expr]:
    yield from (target.expr for target in select.targets)
    yield from (one.expr for one in select.order)
    yield from select.distinct_on


def _nests(expr: Expr) -> bool:
    """Whether a set is made of the rows of another."""
    return any(
        _is_set(one) and any(_sets(arg) for arg in one.args)
        for one in walk(expr)
        if isinstance(one, Call)
    )


def _all_sets(expr: Expr, column: Change) -> Expr:
    return rebuilt(expr, column)


def _inner_sets(expr: Expr, column: Change) -> Expr:
    """All but those that have others in their arguments."""

    def change(part: Expr) -> Expr | None:
        if not _is_set(part):
            return None
        assert isinstance(part, Call)
        if not any(map(_sets, part.args)):  # it goes on beside the innermost ones
            return column(part)
        return replace(part, args=tuple(rebuilt(arg, column) for arg in part.args))

    return rebuilt(expr, change)


def _over(select: Select, moved: Callable[[Expr, Change], Expr]) -> Select:
    """The query over one that gives the rows of FROM and the sets that `moved` moves there."""
    columns = [column for item in select.items for column in item.columns]
    width = len(columns)
    calls: list[Expr] = []

    def column(part: Expr) -> Expr | None:
        if not _is_set(part):
            return None
        if part not in calls:
            calls.append(part)
        return Column(oid=part.oid, typmod=part.typmod, index=width + calls.index(part), name="set")

    def out(expr: Expr) -> Expr:
        return moved(expr, column)

    outer = replace(
        select,
        targets=tuple(replace(one, expr=out(one.expr)) for one in select.targets),
        order=tuple(replace(one, expr=out(one.expr)) for one in select.order),
        distinct_on=tuple(map(out, select.distinct_on)),
        where=None,
        ctes=(),
        locking=(),
    )
    outer = replace(outer, sets=any(_sets(one.expr) for one in outer.targets))
    given = [one.at(i) for i, one in enumerate(columns)]
    targets = tuple(Target(one, "c") for one in (*given, *calls))
    inner = replace(select.unordered(targets), windows=False, ctes=())
    shown = (*columns, *(ItemColumn("set", one.oid, one.typmod) for one in calls))
    item = SelectItem(alias="rows", columns=shown, offset=0, select=inner)
    return replace(outer, items=(item,), ctes=select.ctes)
