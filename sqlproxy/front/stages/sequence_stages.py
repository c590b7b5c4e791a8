"""SELECTs that take numbers of sequences, taken apart: what is computed before a number is taken,
and what takes it. Pure; `sqlproxy.session.running.numbered_queries` runs the parts.

    SELECT f(a, nextval('s')) FROM … ORDER BY … LIMIT …          `apart`
        inner   SELECT NULL, a FROM … ORDER BY … LIMIT …          by whatever reads rows
        outs    f(column 1, nextval('s'))                         of each row that comes out of it
    SELECT DISTINCT nextval('s'), … ORDER BY nextval('s')         `before_sorting`
        first   SELECT nextval('s'), … FROM …                     to its end, into memory
        rest    SELECT DISTINCT … FROM those rows ORDER BY …
    SELECT sum(nextval('s')) FROM … WHERE … GROUP BY …            `before_grouping`
        first   SELECT columns, nextval('s') FROM … WHERE …
        rest    SELECT sum(column) FROM those rows GROUP BY …
    SELECT … FROM (SELECT nextval('s') …), WITH, UNION, (SELECT nextval('s'))    `inside`

So numbers are taken when PostgreSQL takes them: of the rows after ORDER BY, also of those that
OFFSET skips; before DISTINCT, and before a sort by them; once for a query in WITH or one that names
nothing of the query around. What is read of a query that nobody looks at is not computed. Not here:
nextval() in WHERE and join conditions, in recursive and correlated queries: it stays where it is,
and whoever finds it refuses it (`sqlproxy.front.bound.env.Wanting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlproxy.front.bound.exprs import (
    TAKEN,
    TAKING,
    Aggregate,
    Call,
    Case,
    Column,
    Const,
    Expr,
    Later,
    Logic,
    Window,
    children,
    walk,
)
from sqlproxy.front.bound.folding import opaque, rebuilt, volatile
from sqlproxy.front.bound.statements import (
    Cte,
    CteItem,
    Delete,
    Insert,
    Item,
    ItemColumn,
    KnownItem,
    Merge,
    Select,
    SelectItem,
    SetOperation,
    SubQuery,
    Target,
    Update,
)
from sqlproxy.front.bound.trees import looked_into, parts, replaced

_ASKING: Final = TAKING | TAKEN
Rows = Sequence[Sequence[object]]


def takes(expr: Expr) -> bool:
    """Whether a row needs a number for it, or sets a sequence."""
    return any(
        isinstance(one, Later) or (isinstance(one, Call) and one.proc.source in TAKING)
        for one in walk(expr)
    )


def asks(expr: Expr) -> bool:
    """The same, or it depends on what was taken."""
    return any(
        isinstance(one, Later) or (isinstance(one, Call) and one.proc.source in _ASKING)
        for one in walk(expr)
    )


# -- after all that a query does


@dataclass(frozen=True, slots=True)
class Apart:
    """`inner` takes no numbers; each of its rows is what `outs` see."""

    inner: Select
    outs: tuple[Expr, ...]


def apart(select: Select) -> Apart:
    """A SELECT that takes numbers in its list only, and not to sort or compare by them."""
    width = len(select.targets)
    parts: list[Expr] = []

    def below(part: Expr) -> Expr | None:
        if not opaque(part) and part not in select.group:
            return None
        if part not in parts:
            parts.append(part)
        at = width + parts.index(part)
        return Column(oid=part.oid, typmod=part.typmod, index=at, name="part")

    targets: list[Target] = []
    outs: list[Expr] = []
    for i, target in enumerate(select.targets):
        expr = target.expr
        if asks(expr):
            outs.append(rebuilt(expr, below))
            expr = _nothing(expr)
        else:
            outs.append(Column(oid=expr.oid, typmod=expr.typmod, index=i, name=target.name))
        targets.append(Target(expr, target.name))
    targets += [Target(part, "part") for part in parts]
    return Apart(_plainer(replace(select, targets=tuple(targets), fields=())), tuple(outs))


def _plainer(select: Select) -> Select:
    """The query, which takes no numbers any more, with what it is said to have."""
    exprs = list(_exprs(select))
    return replace(
        select,
        numbers=False,
        windows=any(isinstance(one, Window) for expr in exprs for one in walk(expr)),
        sets=any(isinstance(o, Call) and o.proc.returns_set for e in exprs for o in walk(e)),
        subqueries=any(isinstance(one, SubQuery) for expr in exprs for one in walk(expr)),
    )


def _nothing(expr: Expr) -> Const:
    return Const(oid=expr.oid, typmod=expr.typmod, value=None)


def _exprs(select: Select) -> Iterator[Expr]:
    """The expressions of a SELECT, not those of its FROM."""
    yield from (target.expr for target in select.targets)
    yield from (one.expr for one in select.order)
    yield from select.group
    yield from select.distinct_on
    for row in select.values or ():
        yield from row
    for one in (select.where, select.having, select.limit, select.offset):
        if one is not None:
            yield one


# -- what has to be there before a query goes on


@dataclass(frozen=True, slots=True)
class Staged:
    """`first` runs to its end; `rest` is what remains to be done with its rows."""

    first: Select
    rest: Callable[[Rows], Select]


def before_grouping(select: Select) -> Staged | None:
    """Numbers inside aggregates and windows, and what is grouped by them; None: there are none."""
    found: list[Expr] = [one for one in select.group if takes(one)]
    computed = list(found)
    for expr in _exprs(select):
        for node in walk(expr):
            if isinstance(node, Aggregate) or (isinstance(node, Window) and not select.aggregates):
                for one in children(node):
                    if asks(one) and not _in(one, found):
                        found.append(one)
                        computed.append(_where(node.filter, one))
    if not any(map(takes, found)):
        return None
    columns = _row_of(select.items)
    width = len(columns)
    targets = [one.at(i) for i, one in enumerate(columns)] + computed
    first = Select(
        items=select.items,
        where=select.where,
        ctes=select.ctes,
        targets=tuple(Target(expr, f"c{i}") for i, expr in enumerate(targets)),
        locking=select.locking,
        as_of=select.as_of,
        numbers=True,
        subqueries=select.subqueries,
    )

    def put(part: Expr) -> Expr | None:
        for i, one in enumerate(found):
            if one is part or (one in select.group and one == part):
                return _item_column(part).at(width + i)
        return None

    def rest(rows: Rows) -> Select:
        item = _known("rows", (*columns, *map(_item_column, found)), 0, rows)
        changed = _changed(select, put)
        numbers = any(map(takes, _exprs(changed)))
        return replace(changed, items=(item,), where=None, locking=(), numbers=numbers)

    return Staged(first, rest)


def before_sorting(select: Select) -> Staged | None:
    """Numbers in what DISTINCT compares and ORDER BY sorts by; None: there are none."""
    if select.distinct or _any_order(select):
        needed = any(asks(target.expr) for target in select.targets)
    else:
        needed = any(asks(one.expr) for one in select.order)
    if not (needed or any(map(asks, select.distinct_on))):
        return None
    return _Sorted(select).staged()


def _any_order(select: Select) -> bool:
    """Whether DISTINCT ON may keep any row."""
    return bool(select.distinct_on) and not select.order


class _Sorted:
    """A query in two: the lower one computes what rows are sorted and compared by (`early` targets,
    then `keys`), and the `parts` of what the upper one computes in their order.
    """

    def __init__(self, select: Select) -> None:
        self.select = select
        targets = [target.expr for target in select.targets]
        self.columns = [_item_column(expr).at(i) for i, expr in enumerate(targets)]
        self.keys = [one.expr for one in select.order if one.target < 0]
        self.keys += [one for one in select.distinct_on if one not in targets]
        self.early = [self._early(i, expr) for i, expr in enumerate(targets)]
        self.sorts = [
            *(expr if early else None for expr, early in zip(targets, self.early, strict=True)),
            *self.keys,
        ]
        self.parts: list[Expr] = []

    def _early(self, i: int, expr: Expr) -> bool:
        select = self.select
        return (
            select.distinct
            or _any_order(select)
            or not any(isinstance(one, Call) and one.proc.source in _ASKING for one in walk(expr))
            or any(one.target == i for one in select.order)
            or expr in select.distinct_on
        )

    def _below(self, part: Expr) -> Expr | None:
        """What the upper query reads of the lower one instead of computing it."""
        if asks(part) and part in self.sorts:
            return _item_column(part).at(self.sorts.index(part))
        if not opaque(part) and part not in self.select.group:
            return None
        if part not in self.parts:
            self.parts.append(part)
        return _item_column(part).at(len(self.sorts) + self.parts.index(part))

    def _place(self, expr: Expr, target: int = -1) -> Expr:
        for i, one in enumerate(self.select.targets):
            if i == target or (target < 0 and one.expr == expr):
                return self.columns[i]
        return _item_column(expr).at(len(self.columns) + self.keys.index(expr))

    def staged(self) -> Staged:
        select = self.select
        listed = list(zip(select.targets, self.columns, self.early, strict=True))
        targets = tuple(
            Target(column if early else rebuilt(target.expr, self._below), target.name)
            for target, column, early in listed
        )
        lower = [t.expr if early else _nothing(t.expr) for t, _, early in listed]
        lower += [*self.keys, *self.parts]
        first = select.unordered(tuple(Target(expr, f"c{i}") for i, expr in enumerate(lower)))

        def rest(rows: Rows) -> Select:
            return Select(
                targets=targets,
                items=(_known("rows", tuple(map(_item_column, lower)), 0, rows),),
                distinct=select.distinct,
                distinct_on=tuple(map(self._place, select.distinct_on)),
                order=tuple(
                    replace(one, expr=self._place(one.expr, one.target)) for one in select.order
                ),
                limit=select.limit,
                offset=select.offset,
                with_ties=select.with_ties,
                numbers=not all(self.early),
            )

        return Staged(first, rest)


def _where(condition: Expr | None, value: Expr) -> Expr:
    """What an aggregate with this FILTER looks at: of other rows it computes nothing."""
    if condition is None or takes(condition) or condition is value:
        return value
    return Case(
        oid=value.oid, typmod=value.typmod, arg=None, whens=((condition, value),), default=None
    )


def _in(expr: Expr, found: Sequence[Expr]) -> bool:
    """The same part of the text: two calls that look alike take two numbers."""
    return any(one is expr for one in found)


def _row_of(items: Sequence[Item]) -> tuple[ItemColumn, ...]:
    return tuple(column for item in items for column in item.columns)


def _item_column(expr: Expr) -> ItemColumn:
    return ItemColumn("c", expr.oid, expr.typmod)


def _changed(select: Select, change: Callable[[Expr], Expr | None]) -> Select:
    """With its expressions rebuilt."""

    def one(expr: Expr) -> Expr:
        return rebuilt(expr, change)

    return replace(
        select,
        targets=tuple(replace(t, expr=one(t.expr)) for t in select.targets),
        group=tuple(map(one, select.group)),
        having=None if select.having is None else one(select.having),
        order=tuple(replace(o, expr=one(o.expr)) for o in select.order),
        distinct_on=tuple(map(one, select.distinct_on)),
    )


# -- queries inside others


def narrowed(select: Select) -> Select:
    """With what WHERE says of queries in FROM inside of those that take numbers, as PostgreSQL has
    it: numbers are taken for the rows that are left. Not what it says of the numbers.
    """
    items = tuple(
        _narrowed(item, select.conjuncts)
        if isinstance(item, SelectItem) and item.select.numbers and not item.lateral
        else item
        for item in select.items
    )
    same = all(new is old for new, old in zip(items, select.items, strict=True))
    return select if same else replace(select, items=items)


def _narrowed(item: SelectItem, conditions: Sequence[Expr]) -> SelectItem:
    inner = item.select
    if (
        inner.operation
        or inner.values is not None
        or inner.aggregates
        or inner.windows
        or inner.sets
        or inner.distinct_on
        or inner.limit is not None
        or inner.offset is not None
    ):
        return item
    exprs = {item.offset + i: target.expr for i, target in enumerate(inner.targets)}

    def safe(condition: Expr) -> bool:
        for one in walk(condition):
            if isinstance(one, SubQuery) or (isinstance(one, Column) and one.level):
                return False
            if isinstance(one, Column) and (one.index not in exprs or volatile(exprs[one.index])):
                return False
        return not volatile(condition)

    def there(part: Expr) -> Expr | None:
        return exprs[part.index] if isinstance(part, Column) else None

    pushed = [rebuilt(one, there) for one in conditions if safe(one)]
    if not pushed:
        return item
    where = Logic(op="and", args=(*inner.conjuncts, *pushed))
    return replace(item, select=replace(inner, where=where))


def unlooked(select: Select) -> Select:
    """The query of EXISTS: nobody looks at its list."""
    if select.operation or select.values is not None or select.aggregates or select.distinct_on:
        return select
    if select.distinct or not any(takes(target.expr) for target in select.targets):
        return select
    targets = tuple(
        replace(t, expr=_nothing(t.expr)) if takes(t.expr) else t for t in select.targets
    )
    made = replace(select, targets=targets)
    return replace(made, numbers=bool(inside(made)) or any(map(takes, _exprs(made))))


def without_unread(node: Any) -> Any:
    """The statement without the queries of its WITH that take numbers and that nobody reads."""
    ctes = getattr(node, "ctes", ())
    if not ctes:
        return node
    read = {item.name for item in _items(node)}
    kept = tuple(
        cte
        for cte in ctes
        if cte.name in read or not (isinstance(cte.statement, Select) and cte.statement.numbers)
    )
    return node if len(kept) == len(ctes) else replace(node, ctes=kept)


Inside = Cte | SelectItem | SubQuery | Select


def inside(node: object) -> list[Inside]:
    """The queries inside a bound statement, of its own level, that take numbers and depend on
    nothing around them, in the order in which they are computed; not those that nobody reads.
    """
    return list(_inside(without_unread(node)))


def _inside(node: object) -> Iterator[Inside]:
    match node:
        case Cte():
            found = not node.recursive and _by_itself(node.statement)
            yield from [node] if found else []
        case SelectItem():
            yield from [node] if not node.lateral and _by_itself(node.select) else []
        case SubQuery():
            for one in node.left:
                yield from _inside(one)
            yield from [node] if node.kind != "exists" and _by_itself(node.select) else []
        case SetOperation():
            yield from (side for side in (node.left, node.right) if _by_itself(side))
        case _:
            for part in _parts(node):
                yield from _inside(part)


def _by_itself(select: object) -> bool:
    return isinstance(select, Select) and select.numbers and not _outer(select, 0)


def correlated(select: Select) -> bool:
    """Whether it depends on the row of a query around it."""
    return _outer(select, 0)


def _outer(node: object, depth: int) -> bool:
    """Whether a column of a query around is named."""
    if isinstance(node, Column):
        return node.level >= depth
    if isinstance(node, Select):
        depth += 1
    return any(_outer(part, depth) for part in _parts(node))


def _items(node: object) -> Iterator[CteItem]:
    """What a tree reads of WITH queries."""
    if isinstance(node, CteItem):
        yield node
    for part in _parts(node):
        yield from _items(part)


def _parts(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        yield from node
    elif looked_into(node):
        if isinstance(node, Select | Insert | Update | Delete):
            yield node.ctes
        if isinstance(node, Select | Update | Delete | Merge):
            yield node.items
        for name, part in parts(node):
            if name not in ("ctes", "items"):
                yield part


def filled(node: object, known: Mapping[int, Rows]) -> Any:
    """The tree with rows instead of the queries that `inside` found, by their ids."""

    def rows(part: Any) -> Any:
        found = known.get(id(part))
        return None if found is None else _filled(part, found)

    return replaced(node, rows)


def _filled(node: Inside, rows: Rows) -> object:
    match node:
        case SelectItem():
            return _known(node.alias, node.columns, node.offset, rows)
        case Cte():
            return replace(node, statement=_select(node.columns, rows))
        case SubQuery():
            if node.kind == "scalar" and not node.left and len(rows) <= 1:
                value = rows[0][0] if rows else None
                return Const(oid=node.oid, typmod=node.typmod, value=value)
            columns = tuple(_item_column(target.expr) for target in node.select.targets)
            return replace(node, select=_select(columns, rows))
        case Select():
            return _select(tuple(_item_column(target.expr) for target in node.targets), rows)


def _known(alias: str, columns: tuple[ItemColumn, ...], offset: int, rows: Rows) -> KnownItem:
    return KnownItem(alias=alias, columns=columns, offset=offset, rows=rows)


def _select(columns: tuple[ItemColumn, ...], rows: Rows) -> Select:
    targets = tuple(Target(one.at(i), one.name) for i, one in enumerate(columns))
    return Select(targets=targets, items=(_known("rows", columns, 0, rows),))


def with_later(select: Select, made: Callable[[SubQuery], Later]) -> Select:
    """The query with its list's queries of one value, as `inside` has them, for later."""
    known: dict[int, Later] = {}
    return _changed(select, _later(made, known))


def update_with_later(bound: Update, made: Callable[[SubQuery], Later]) -> Update:
    """The same of what an UPDATE sets, and returns."""
    change = _later(made, {})
    return replace(
        bound,
        assignments=tuple(
            replace(one, value=rebuilt(one.value, change)) for one in bound.assignments
        ),
        returning=tuple(replace(one, expr=rebuilt(one.expr, change)) for one in bound.returning),
    )


def _later(
    made: Callable[[SubQuery], Later], known: dict[int, Later]
) -> Callable[[Expr], Expr | None]:
    def change(part: Expr) -> Expr | None:
        if not isinstance(part, SubQuery) or part.kind != "scalar" or part.left:
            return None
        if not _by_itself(part.select):
            return part
        if id(part) not in known:
            known[id(part)] = made(part)
        return known[id(part)]

    return change


def settled(select: Select) -> Select:
    """A query without queries inside that take numbers, marked with what it has now."""
    own = any(map(takes, _exprs(select)))
    return replace(_plainer(select), numbers=own)


def settled_change(bound: object) -> object:
    """The same of a change."""
    if not isinstance(bound, Update | Delete):
        return bound
    return replace(bound, subqueries=any(True for _ in _subqueries(bound)))


def _subqueries(node: object) -> Iterator[SubQuery]:
    if isinstance(node, SubQuery):
        yield node
    for part in _parts(node):
        yield from _subqueries(part)


def known(select: Select, rows: Rows) -> Select:
    """A query that has these rows."""
    return _select(tuple(_item_column(target.expr) for target in select.targets), rows)


def unnumbered(node: Any) -> object:
    """The tree as it would be without numbers: how its rows are reached is the same (EXPLAIN)."""
    if isinstance(node, Call) and node.proc.source in _ASKING:
        return _nothing(node)
    if isinstance(node, tuple):
        return tuple(unnumbered(one) for one in node)
    if not looked_into(node):
        return node
    changed = {name: unnumbered(part) for name, part in parts(node)}
    if isinstance(node, Select):
        changed["numbers"] = False
    return replace(node, **changed)


def sole(select: Select) -> bool:
    """Whether the query does nothing with the rows of its only item but to show them: what LIMIT
    leaves out of them need not be computed.
    """
    return not (
        select.where
        or select.order
        or select.aggregates
        or select.windows
        or select.sets
        or select.distinct
        or select.distinct_on
        or select.with_ties
        or select.subqueries
        or len(select.items) != 1
        or not isinstance(select.items[0], SelectItem)
    )


__all__ = [
    "Apart",
    "Staged",
    "apart",
    "asks",
    "before_grouping",
    "before_sorting",
    "filled",
    "inside",
    "known",
    "narrowed",
    "settled",
    "settled_change",
    "sole",
    "takes",
    "unlooked",
    "unnumbered",
    "update_with_later",
    "with_later",
    "without_unread",
]
