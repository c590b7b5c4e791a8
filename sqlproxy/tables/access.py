"""How to reach the rows that a WHERE lets through: by the primary key or by one index. Pure.

Conjuncts of the form `column = x`, `column = ANY (x)`, `column < x` (and its like), `column LIKE
'prefix%'`, where x has no column of the table, narrow the components of a key from the left: each
component is given by `=` or a list until one has only a range, which is the last.

                        score, the highest wins; on a tie the primary key, then the older index
    all of a unique key    4  (at most one row for each combination of lists)
    components given       2  each
    a range after them    1
    a partial index        1  more, if a component is given or it is likely to have few rows. It is
                              a way only where the WHERE implies its predicate (fast.implying)

Deliberately missing: statistics; OR of different columns (the whole table is read, or what the
other conjuncts leave).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlproxy.front.bound.exprs import (
    AnyAll,
    Call,
    CaseValue,
    Column,
    Const,
    Expr,
    bare,
    walk,
)
from sqlproxy.front.bound.statements import SubQuery
from sqlproxy.pg import oids
from sqlproxy.rows.schema import PUBLIC, Index, Table
from sqlproxy.tables.implied_predicates import selective, usable

_FAMILIES: Final[Mapping[int, int]] = {
    **dict.fromkeys((oids.INT2, oids.INT4, oids.INT8), oids.INT8),
    **dict.fromkeys((oids.FLOAT4, oids.FLOAT8), oids.FLOAT8),
    **dict.fromkeys((oids.VARCHAR, oids.TEXT), oids.TEXT),
}
"""Types whose values are compared as one, and have the same bytes in keys."""
_FLIPPED: Final[Mapping[str, str]] = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Limit:
    """One end of a range. `prefix`: the text that values begin with (both ends at once)."""

    expr: Expr
    inclusive: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """One component of a key: equal to `expr`, or to any element of it."""

    expr: Expr
    any: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """`index` None: the primary key. `given` are its first components, `low`, `high` and `prefix`
    narrow the next. `reverse`: read from the end.
    """

    index: Index | None
    components: tuple[int, ...]  # column ids
    given: tuple[Given, ...] = ()
    low: Limit | None = None
    high: Limit | None = None
    prefix: str | None = None
    unique: bool = False  # whether all components given mean at most one row
    reverse: bool = False
    few: bool = False  # its index has some rows only

    @property
    def points(self) -> bool:
        """Whether it names single rows."""
        return self.unique and len(self.given) == len(self.components)

    @property
    def whole(self) -> bool:
        """Whether it reads everything."""
        return not (self.given or self.low or self.high or self.prefix)

    @property
    def exprs(self) -> list[Expr]:
        """What has to be known before it can be gone."""
        ends = [end.expr for end in (self.low, self.high) if end is not None]
        return [given.expr for given in self.given] + ends

    @property
    def score(self) -> int:
        ranged = bool(self.low or self.high or self.prefix)
        return 4 * self.points + 2 * len(self.given) + ranged + self.few


@dataclass(frozen=True, slots=True)
class Ordering:
    """A column to order by."""

    column: int
    descending: bool = False
    nulls_first: bool = False


def choose(
    table: Table, conditions: Sequence[Expr], order: Sequence[Ordering] = ()
) -> tuple[Access, bool]:
    """The way to the rows, and whether they come in `order` by themselves. `conditions` are the
    conjuncts; columns in them are known by their ids (`Column.attribute`) and the table's.
    """
    found = _Conditions(table, conditions)
    ways = [_access(None, primary_components(table), True, found)]
    ways += [
        _of_index(table, index, found)
        for index in table.indexes
        if index.state == PUBLIC and usable(table, index, conditions)
    ]
    best = max(ways, key=lambda way: way.score)
    if order and not best.points:
        # what is as narrow and already sorted spares the sort
        for way in ways:
            sorted_way = _ordered(table, way, order)
            if sorted_way is not None and (way.score == best.score or not best.score):
                return sorted_way, True
    if not order:
        return best, True
    sorted_way = _ordered(table, best, order)
    return (best, False) if sorted_way is None else (sorted_way, True)


def primary_components(table: Table) -> tuple[int, ...]:
    """The ids of the primary key's columns."""
    return tuple(column.id for column in table.key_columns)


def rejects_null(condition: Expr) -> bool:
    """Whether it compares a column, so that it is not true of a row of NULLs. What narrows is of
    these forms.
    """
    match condition:
        case AnyAll(all=False, test=Call(operator="=", proc=proc, args=(left, CaseValue()))):
            return proc.strict and isinstance(bare(left), Column)
        case Call(operator=operator, proc=proc, args=args) if operator in (*_FLIPPED, "~~"):
            return proc.strict and any(isinstance(bare(one), Column) for one in args)
        case _:
            return False


class _Conditions:
    """The conjuncts by column id."""

    def __init__(self, table: Table, conditions: Sequence[Expr]) -> None:
        self.equal: dict[int, Given] = {}
        self.low: dict[int, Limit] = {}
        self.high: dict[int, Limit] = {}
        self.prefix: dict[int, str] = {}
        self._table = table
        for condition in conditions:
            self._add(condition)

    def _add(self, condition: Expr) -> None:
        match condition:
            case AnyAll(all=False, test=Call(operator="=", args=(left, CaseValue() as element))):
                column = self._column(left)
                if column is not None and self._constant(condition.array) and alike(left, element):
                    self.equal.setdefault(column, Given(condition.array, any=True))
            case Call(operator=operator, args=(left, right)) if operator in _FLIPPED:
                if not alike(left, right):
                    return
                if (column := self._column(left)) is not None and self._constant(right):
                    self._compare(column, operator, right)
                elif (column := self._column(right)) is not None and self._constant(left):
                    self._compare(column, _FLIPPED[operator], left)
            case Call(operator="~~", args=(left, Const(value=str(pattern)))):
                column = self._column(left)
                # blanks at the end of a char(n) are not stored, but a pattern sees them
                if (
                    column is not None
                    and left.oid != oids.BPCHAR
                    and (prefix := like_prefix(pattern))
                ):
                    self.prefix.setdefault(column, prefix)
            case _:
                pass

    def _compare(self, column: int, operator: str, value: Expr) -> None:
        match operator:
            case "=":
                if (known := self.equal.get(column)) is None or known.any:
                    self.equal[column] = Given(value)
            case ">" | ">=":
                self.low.setdefault(column, Limit(value, operator == ">="))
            case _:
                self.high.setdefault(column, Limit(value, operator == "<="))

    def _column(self, expr: Expr) -> int | None:
        """The id of the table's column that this is, with nothing done to its value."""
        expr = bare(expr)
        if isinstance(expr, Column) and expr.level == 0 and expr.table == self._table.id:
            return expr.attribute
        return None

    @staticmethod
    def _constant(expr: Expr) -> bool:
        """Whether it is known before a row is read."""
        return not any(
            (isinstance(one, Column) and one.level == 0) or isinstance(one, SubQuery | CaseValue)
            for one in walk(expr)
        )


def _of_index(table: Table, index: Index, found: _Conditions) -> Access:
    way = _access(index, tuple(c.column for c in index.columns), index.unique, found)
    few = bool(index.where) and (not way.whole or selective(table, index))
    return replace(way, few=True) if few else way


def _access(
    index: Index | None, components: tuple[int, ...], unique: bool, found: _Conditions
) -> Access:
    given: list[Given] = []
    for column in components:
        if column not in found.equal:
            break
        given.append(found.equal[column])
    low = high = prefix = None
    if len(given) < len(components):
        column = components[len(given)]
        low, high, prefix = found.low.get(column), found.high.get(column), found.prefix.get(column)
    return Access(index, components, tuple(given), low, high, prefix, unique)


def _ordered(table: Table, access: Access, order: Sequence[Ordering]) -> Access | None:
    """The same way, read so that rows come in this order; None if they cannot."""
    if any(given.any for given in access.given):
        return None
    directions = directions_of(table, access.index)
    fixed = set(access.components[: len(access.given)])
    at, reverse = len(access.given), None
    for wanted in order:
        if wanted.column in fixed:
            continue
        if at >= len(access.components) or access.components[at] != wanted.column:
            return None
        descending, nulls_first = directions[at]
        flip = descending != wanted.descending
        if reverse is not None and flip != reverse:
            return None
        nullable = table.by_id(wanted.column).nullable
        if nullable and (nulls_first != flip) != wanted.nulls_first:
            return None
        reverse, at = flip, at + 1
    if not reverse:
        return access
    return replace(access, reverse=True)


def directions_of(table: Table, index: Index | None) -> list[tuple[bool, bool]]:
    """Of each component: whether it descends, and whether NULLs come first."""
    if index is None:
        return [(False, False)] * len(table.primary_key)
    return [(c.descending, c.nulls_first) for c in index.columns]


def alike(left: Expr, right: Expr) -> bool:
    """Whether their values have the same bytes in keys when they are equal: PostgreSQL compares a
    date with a timestamp without casting either.
    """
    return _FAMILIES.get(left.oid, left.oid) == _FAMILIES.get(right.oid, right.oid)


def like_prefix(pattern: str) -> str:
    """What every match of a LIKE pattern begins with; "" if nothing is known."""
    found, escaped = [], False
    for char in pattern:
        if escaped:
            found.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "%_":
            break
        else:
            found.append(char)
    return "".join(found)
