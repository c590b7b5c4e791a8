"""What can raise runs after what guards it. Pure.

DuckDB runs conjuncts in any order and on any level of a plan, computes all operands of AND and OR
outside of a filter, and a subquery for all rows. PostgreSQL does not promise an order either, but
programs rely on what it does: conditions of one relation run at its scan, before those of several;
among those of the same relations the cheaper ones come first, then ON before WHERE, and the left
one before the right one. So what can raise (`front.raising`) is rendered within a CASE whose
condition is what would have run before. What cannot raise stays a plain conjunct, which DuckDB
moves where it likes, and is a condition of that CASE wherever it is written: to raise more seldom
than PostgreSQL is no fault.

    s <> 'x' AND s::int > 5           →    s <> 'x' AND CASE WHEN s <> 'x' THEN s::int > 5 END
    a.s <> 'x' AND a.s::int = b.id    →    a.s <> 'x' AND
                                           CASE WHEN a.s <> 'x' THEN a.s::int END = b.id

The second form keeps a join by equality. Where all conjuncts must be true, NULL is as good as
false; AND and OR of values keep their NULLs (`logic`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlproxy.front.bound.exprs import (
    Aggregate,
    AnyAll,
    Call,
    Case,
    CaseValue,
    Cast,
    Column,
    Expr,
    Grouping,
    IsBool,
    Logic,
    Window,
    conjuncts,
    walk,
)
from sqlproxy.front.bound.statements import Item, JoinItem, Select, SubQuery
from sqlproxy.front.bound.trees import looked_into, parts
from sqlproxy.front.closures.raising import raises as raises_one
from sqlproxy.front.stages.sequence_stages import correlated

Relations = Callable[[Expr], frozenset[int]]
"""The relations whose columns an expression has."""
Raises = Callable[[Expr], bool]


def together(conditions: Sequence[Expr]) -> Expr:
    """All of them."""
    return conditions[0] if len(conditions) == 1 else Logic(op="and", args=tuple(conditions))


def where_true(guards: Sequence[Expr], expr: Expr, raises: Raises) -> Expr:
    """The expression where all guards are true, else NULL; one after the other if they can raise
    themselves.
    """
    made, at = expr, len(guards)
    while at:
        first = at - 1
        while first and not raises(guards[first]):
            first -= 1
        whens = ((together(guards[first:at]), made),)
        made = Case(oid=expr.oid, typmod=expr.typmod, arg=None, whens=whens, default=None)
        at = first
    return made


def guarded(
    demands: Sequence[Expr], known: Sequence[Expr], relations: Relations, raises: Raises
) -> list[Expr]:
    """`demands`, conjuncts, as others that mean the same in any order. `known`: what is true of the
    rows already, but perhaps not yet where DuckDB computes.
    """
    if not any(map(raises, demands)):
        return list(demands)
    given = [*known, *sorted(demands, key=cost)]
    of = [relations(one) for one in given]
    chains: dict[frozenset[int], list[Expr]] = {}
    found: list[Expr] = []
    for one, mine in list(zip(given, of, strict=True))[len(known) :]:
        if not raises(one):
            found.append(one)
        elif (sided := _by_sides(one, given, of, relations, raises)) is not None:
            found.append(sided)
        else:
            chains.setdefault(mine, []).append(one)
    for mine, chain in chains.items():
        guards = [
            one
            for one, its in zip(given, of, strict=True)
            if its < mine or (its == mine and not raises(one))
        ]
        found.append(where_true([*guards, *chain[:-1]], chain[-1], raises))
    return found


def cost(conjunct: Expr) -> tuple[bool, int]:
    """As PostgreSQL counts: an operator or function is one, a query in it is more than all."""
    every = list(walk(conjunct))
    queries = any(isinstance(one, SubQuery) for one in every)
    return queries, sum(isinstance(one, Call | Cast | AnyAll) for one in every)


def _apart(conjunct: Expr, relations: Relations) -> tuple[frozenset[int], frozenset[int]] | None:
    """The relations of both sides of a comparison, if each has its own."""
    if not (isinstance(conjunct, Call) and conjunct.operator and len(conjunct.args) == 2):
        return None
    left, right = (relations(arg) for arg in conjunct.args)
    return (left, right) if left and right and not left & right else None


def _by_sides(
    conjunct: Expr,
    given: Sequence[Expr],
    of: Sequence[frozenset[int]],
    relations: Relations,
    raises: Raises,
) -> Expr | None:
    """A comparison of relations with others: each side after what holds of its own relations."""
    sides = _apart(conjunct, relations)
    if sides is None:
        return None
    assert isinstance(conjunct, Call)
    args = tuple(
        where_true([g for g, its in zip(given, of, strict=True) if its <= mine], arg, raises)
        if raises(arg)
        else arg
        for arg, mine in zip(conjunct.args, sides, strict=True)
    )
    return replace(conjunct, args=args)


def logic(expr: Logic, raises: Raises) -> tuple[tuple[Expr, ...], Expr | None, Expr | None]:
    """AND, OR as values: the operands that are computed first, the guard of the rest (the first
    ones do not decide), and the rest; None: there is none.
    """
    cut = next((i for i in range(1, len(expr.args)) if raises(expr.args[i])), None)
    if cut is None:
        return expr.args, None, None
    first = expr.args[:cut]
    before = first[0] if cut == 1 else replace(expr, args=first)
    rest = expr.args[cut:]
    guard = IsBool(arg=before, value=expr.op == "or", negated=True)
    return first, guard, rest[0] if len(rest) == 1 else replace(expr, args=rest)


# -- queries in places that are not always reached


def only_where(select: Select, guards: Sequence[Expr], *, queries: bool = False) -> Select:
    """The query with no rows where a guard, of the row around, is not true. `queries`: guards with
    queries count too, which are computed once more for it.
    """
    usable = [
        one
        for one in guards
        if not any(
            _of_query(part) and not (queries and isinstance(part, SubQuery)) for part in walk(one)
        )
    ]
    if not usable or select.values is not None:
        return select
    return _only(select, together([_deeper(one) for one in usable]))


def _only(select: Select, guard: Expr) -> Select:
    if select.operation is not None:
        one, inner = select.operation, _deeper(guard)
        sides = replace(one, left=_only(one.left, inner), right=_only(one.right, inner))
        return replace(select, operation=sides)
    where = guard if select.where is None else Logic(op="and", args=(guard, select.where))
    if (
        select.aggregates
        and not select.group  # it has a row of no rows too
        and not any(isinstance(part, SubQuery) for part in walk(guard))  # DuckDB cannot bind it
    ):
        targets = tuple(
            replace(target, expr=where_true((guard,), target.expr, raises_one))
            if raises_one(target.expr)
            else target
            for target in select.targets
        )
        select = replace(select, targets=targets)
    return replace(select, where=where)


def _of_query(expr: Expr) -> bool:
    """Whether it is of the query where it stands, and none that is inside."""
    if isinstance(expr, SubQuery):  # of one that names nothing around it the place is the same
        return correlated(expr.select)
    return isinstance(expr, Aggregate | Window | Grouping | CaseValue) or (
        isinstance(expr, Call) and expr.proc.returns_set
    )


def _deeper(expr: Expr, by: int = 1) -> Expr:
    """The same, from one query further inside."""
    moved: Expr = _moved(expr, by, 0)
    return moved


def _moved(node: Any, by: int, depth: int) -> Any:
    """`depth`: of the queries of the tree that are around; what is theirs stays."""
    if isinstance(node, Column):
        return replace(node, level=node.level + by) if node.level >= depth else node
    if isinstance(node, tuple):
        return tuple(_moved(one, by, depth) for one in node)
    if not looked_into(node):
        return node
    depth += isinstance(node, Select)
    found = {name: _moved(old, by, depth) for name, old in parts(node)}
    changed = {name: new for name, new in found.items() if new is not getattr(node, name)}
    return replace(node, **changed) if changed else node


# -- queries that are items of FROM


def plain(select: Select) -> bool:
    """Whether its rows are those of its FROM and WHERE, one by one: DuckDB may compute what is
    around at any place in it.
    """
    return not (
        select.aggregates
        or select.windows
        or select.sets
        or select.distinct
        or select.distinct_on
        or select.order
        or select.limit is not None
        or select.offset is not None
        or select.operation is not None
        or select.values is not None
    )


def beside(select: Select) -> list[Expr]:
    """What a query of LATERAL says of the items beside it alone, as their query sees it."""
    return [
        _deeper(one, -1)
        for one in (conjuncts(select.where) if plain(select) else ())
        if not any(map(_of_query, walk(one)))
        and {part.level for part in walk(one) if isinstance(part, Column)} == {1}
    ]


def met(items: Sequence[Item]) -> list[Expr]:
    """What joins say of the rows that come out of FROM, in PostgreSQL's order."""
    found: list[Expr] = []
    for item in items:
        if not isinstance(item, JoinItem):
            continue
        sides = {"inner": (0, 1), "cross": (0, 1), "left": (0,), "right": (1,)}.get(item.kind, ())
        for place in sides:
            found += met(((item.left, item.right)[place],))
        if item.kind in ("inner", "cross"):
            found += conjuncts(item.on)
        elif item.kind != "full":
            other = item.right if item.kind == "left" else item.left
            found += [
                IsBool(arg=one, value=False, negated=True)
                for one in conjuncts(item.on)
                if _null_with(one, other)
            ]
    return [one for one in found if not any(map(_of_query, walk(one)))]


def _null_with(expr: Expr, item: Item) -> bool:
    """Whether it is NULL where the item's columns are."""
    if isinstance(expr, Column):
        return not expr.level and 0 <= expr.index - item.offset < len(item.columns)
    return (
        isinstance(expr, Call)
        and expr.proc.strict
        and any(_null_with(arg, item) for arg in expr.args)
    )
