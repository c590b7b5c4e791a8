"""How to reach the rows that a WHERE lets through: by the primary key or by indexes. Pure. Every
statement that reads a table asks here, and EXPLAIN shows the answer.

Conjuncts of the form `column = x`, `column = ANY (x)`, `column IS NULL`, `column < x` (and its
like), `(column, column) < (x, y)`, `column LIKE 'prefix%'`, where x has no column of the table,
narrow the components of a key from the left: each component is given by `=` or a list until one has
only a range, which is the last. That is a stretch of the key. An OR is one stretch for each of its
arms: of one key if that narrows them all, else each of the key that is best for it.

                        score, the highest wins; on a tie who reads looks which has the fewest
                        entries; if none has, it is the primary key, then the older index
    all of a unique key    4  (at most one row for each combination of lists)
    components given       2  each
    a range after them    1
    a partial index        1  more, if a component is given or it is likely to have few rows. It is
                              a way only where the WHERE implies its predicate
                              (`implied_predicates`)
    several stretches         as the worst of them

An entry of an index that is not unique ends with the primary key, whose columns narrow and sort as
the index's own do. Where a way leads is decided by what is read (`reading.unless_many`).
Deliberately missing: OR inside of an arm of an OR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kv.base.limits import SQL_STRETCHES_MAX
from sqlproxy.front.bound.exprs import (
    Among,
    AnyAll,
    Call,
    CaseValue,
    Column,
    Const,
    Expr,
    IsNull,
    Logic,
    RowCompare,
    bare,
    conjuncts,
    disjuncts,
    walk,
)
from sqlproxy.front.bound.statements import SubQuery
from sqlproxy.front.types.registry import element_of
from sqlproxy.pg import oids
from sqlproxy.rows.schema import PUBLIC, Index, Table
from sqlproxy.tables.derived import column_meant
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
    """One end of a range: of the next component, or of as many together as there are `exprs`."""

    exprs: tuple[Expr, ...]
    inclusive: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """One component of a key: equal to `expr`, or to any element of it; `null`: it is NULL. `tied`:
    of all lists that are tied each element belongs to the others' at its place.
    """

    expr: Expr
    any: bool = False
    tied: bool = False
    null: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """`given` are the first components of a key; `low`, `high` and `prefix` (what the text begins
    with) narrow the next; `present`: it is not NULL.
    """

    given: tuple[Given, ...] = ()
    low: Limit | None = None
    high: Limit | None = None
    prefix: str | None = None
    present: bool = False

    @property
    def ranged(self) -> bool:
        """Whether it narrows the component after the given ones."""
        return bool(self.low or self.high or self.prefix or self.present)

    @property
    def whole(self) -> bool:
        """Whether it is the key from its beginning to its end."""
        return not (self.given or self.ranged)

    @property
    def exprs(self) -> Iterator[Expr]:
        """What has to be known before it can be gone."""
        yield from (given.expr for given in self.given if not given.null)
        for end in (self.low, self.high):
            if end is not None:
                yield from end.exprs


WHOLE: Final = (Stretch(),)


@dataclass(frozen=True, slots=True)
class Access:
    """`index` None: the primary key. `reverse`: read from the end. `beside`: ways by other keys; a
    row counts if any of them leads to it. `rivals`: ways by other keys that are as narrow, as far
    as declarations say; any one of all of them is enough.
    """

    index: Index | None
    components: tuple[int, ...]  # column ids
    stretches: tuple[Stretch, ...] = WHOLE
    unique: bool = False  # whether all components given mean at most one row
    reverse: bool = False
    few: bool = False  # its index has some rows only
    beside: tuple[Access, ...] = ()
    rivals: tuple[Access, ...] = ()

    @property
    def points(self) -> bool:
        """Whether it names single rows."""
        return (
            self.unique
            and not self.beside
            and all(
                len(one.given) == len(self.components) and not any(g.null for g in one.given)
                for one in self.stretches
            )
        )

    @property
    def one_row(self) -> bool:
        """Whether it names one row of the primary key at most."""
        return (
            self.index is None
            and len(self.stretches) == 1
            and self.points
            and not any(given.any for given in self.stretches[0].given)
        )

    @property
    def whole(self) -> bool:
        """Whether it reads everything."""
        return not self.beside and any(one.whole for one in self.stretches)

    @property
    def ways(self) -> tuple[Access, ...]:
        """It and those beside it."""
        return (self, *self.beside)

    @property
    def exprs(self) -> list[Expr]:
        """What has to be known before it can be gone."""
        return [expr for one in self.stretches for expr in one.exprs]

    @property
    def score(self) -> int:
        if self.beside:
            return min(replace(one, beside=()).score for one in self.ways)
        least = min(2 * len(one.given) + one.ranged for one in self.stretches)
        return 4 * self.points + least + self.few


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
    base = tuple(conditions)
    ways = _ways(table, (base,))
    for arms in _alternatives(base):
        ways += _ways(table, arms)
        if (union := _union(table, arms)) is not None:
            ways.append(union)
    best = max(ways, key=lambda way: way.score)
    if not order:
        return _rivalled(best, ways), True
    present = _Conditions(table, base).present
    if not best.points:
        # what is as narrow and already sorted spares the sort
        for way in ways:
            sorted_way = _ordered(table, way, order, present)
            if sorted_way is not None and (way.score == best.score or not best.score):
                return sorted_way, True
    sorted_way = _ordered(table, best, order, present)
    return (_rivalled(best, ways), False) if sorted_way is None else (sorted_way, True)


def _rivalled(best: Access, ways: Sequence[Access]) -> Access:
    """The best way with the others that are as good, but for those that name few rows anyway."""
    if best.points or best.beside or best.whole:
        return best
    score = best.score
    alike = {
        way.index.id if way.index is not None else 0: way
        for way in ways
        if way.score == score and way.index is not best.index and not (way.points or way.beside)
    }
    return replace(best, rivals=tuple(alike.values())) if alike else best


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


class _End(NamedTuple):
    """A comparison of columns, together, with what is known."""

    columns: tuple[int, ...]
    exprs: tuple[Expr, ...]
    inclusive: bool


class _Conditions:
    """Conjuncts by column id. `present`: columns that are not NULL where they are true."""

    def __init__(self, table: Table, conditions: Sequence[Expr]) -> None:
        self.equal: dict[int, Given] = {}
        self.tied: list[dict[int, Given]] = []
        self.low: dict[int, list[_End]] = {}
        self.high: dict[int, list[_End]] = {}
        self.prefix: dict[int, str] = {}
        self.present: set[int] = set()
        self._table = table
        self._derived = any(column.derived for column in table.columns)
        for condition in conditions:
            self._add(condition)

    def _add(self, condition: Expr) -> None:
        match condition:
            case AnyAll(all=False, test=Call(operator="=", args=(left, CaseValue() as element))):
                column = self._column(left)
                if column is not None and self._constant(condition.array) and alike(left, element):
                    self.equal.setdefault(column, Given(condition.array, any=True))
                    self.present.add(column)
            case Among(negated=False, left=left, columns=lists):
                self._among(left, lists)
            case Call(operator=operator, args=(left, right)) if operator in _FLIPPED:
                self._compare(operator, ((left, right),))
            case RowCompare(op=operator, less=less):
                pairs = [(one.args[0], one.args[1]) for one in less if isinstance(one, Call)]
                self._compare(operator, pairs)
            case IsNull(arg=arg, negated=negated) if (column := self._column(arg)) is not None:
                if negated:
                    self.present.add(column)
                else:
                    self.equal.setdefault(column, Given(arg, null=True))
            case Call(operator="~~", args=(left, Const(value=str(pattern)))):
                column = self._column(left)
                # blanks at the end of a char(n) are not stored, but a pattern sees them
                if (
                    column is not None
                    and left.oid != oids.BPCHAR
                    and (prefix := like_prefix(pattern))
                ):
                    self.prefix.setdefault(column, prefix)
                    self.present.add(column)
            case _:
                pass

    def _among(self, left: Sequence[Expr], lists: Sequence[Expr]) -> None:
        tied: dict[int, Given] = {}
        for one, listed in zip(left, lists, strict=True):
            column, element = self._column(one), element_of(listed.oid)
            if column is None or not self._constant(listed) or not same(one.oid, element):
                return
            tied[column] = Given(listed, any=True, tied=True)
        self.tied.append(tied)
        self.present.update(tied)

    def _compare(self, operator: str, pairs: Sequence[tuple[Expr, Expr]]) -> None:
        """Columns with values, or values with columns, as many from the left as it is so."""
        columns: list[int] = []
        exprs: list[Expr] = []
        for left, right in pairs:
            column, value = self._column(left), right
            if column is None and not columns:
                column, value = self._column(right), left
                if column is not None:
                    pairs = [(two, one) for one, two in pairs]
                    self._compare(_FLIPPED[operator], pairs)
                    return
            if column is None or not self._constant(value) or not alike(left, right):
                break
            columns.append(column)
            exprs.append(value)
        if not columns:
            return
        first = columns[0]
        self.present.add(first)
        if operator == "=":
            if (known := self.equal.get(first)) is None or known.any or known.null:
                self.equal[first] = Given(exprs[0])
            return
        inclusive = operator.endswith("=") or len(columns) < len(pairs)
        ends = self.low if operator[0] == ">" else self.high
        ends.setdefault(first, []).append(_End(tuple(columns), tuple(exprs), inclusive))

    def _column(self, expr: Expr) -> int | None:
        """The id of the table's column that this is, with nothing done to its value."""
        expr = bare(expr)
        if isinstance(expr, Column) and expr.level == 0 and expr.table == self._table.id:
            return expr.attribute
        return column_meant(self._table, expr) if self._derived else None

    @staticmethod
    def _constant(expr: Expr) -> bool:
        """Whether it is known before a row is read."""
        return not any(
            (isinstance(one, Column) and one.level == 0) or isinstance(one, SubQuery | CaseValue)
            for one in walk(expr)
        )

    def stretch(
        self, components: Sequence[int], directions: Sequence[tuple[bool, bool]]
    ) -> Stretch:
        """What these conditions leave of a key."""
        best: tuple[Given, ...] = ()
        for tied in ({}, *self.tied):
            given = []
            for column in components:
                one = self.equal.get(column) or tied.get(column)
                if one is None:
                    break
                given.append(one)
            if len(given) > len(best):
                best = tuple(given)
        at = len(best)
        if at == len(components):
            return Stretch(best)
        column = components[at]
        together = 1  # what is compared together has to go one way
        while at + together < len(components) and (
            directions[at + together][0] == directions[at][0]
        ):
            together += 1
        rest = components[at : at + together]
        low, high = (_limit(ends.get(column, ()), rest) for ends in (self.low, self.high))
        return Stretch(best, low, high, self.prefix.get(column), column in self.present)


def _limit(ends: Sequence[_End], columns: Sequence[int]) -> Limit | None:
    """That of the ends which says most of these columns."""
    best: Limit | None = None
    for one in ends:
        count = 0
        for mine, wanted in zip(one.columns, columns, strict=False):
            if mine != wanted:
                break
            count += 1
        if best is None or count > len(best.exprs):
            best = Limit(one.exprs[:count], one.inclusive or count < len(one.columns))
    return best


def _alternatives(conditions: tuple[Expr, ...]) -> Iterator[tuple[tuple[Expr, ...], ...]]:
    """For each OR among the conjuncts: the conjuncts with each of its arms."""
    for at, condition in enumerate(conditions):
        if isinstance(condition, Logic) and condition.op == "or":
            arms = [arm for part in condition.args for arm in disjuncts(part)]
            if len(arms) <= SQL_STRETCHES_MAX:
                rest = (*conditions[:at], *conditions[at + 1 :])
                yield tuple((*conjuncts(arm), *rest) for arm in arms)


def _ways(table: Table, arms: Sequence[Sequence[Expr]]) -> list[Access]:
    """By each key that narrows all arms; if there is one only, by every key."""
    found = [_Conditions(table, arm) for arm in arms]
    ways = []
    for index in (None, *table.indexes):
        if index is not None and not (
            index.state == PUBLIC and all(usable(table, index, arm) for arm in arms)
        ):
            continue
        components, directions = key_of(table, index), directions_of(table, index)
        stretches = tuple([one.stretch(components, directions) for one in found])
        way = Access(index, components, stretches, index is None or index.immediate)
        if len(arms) > 1 and way.whole:
            continue
        if index is not None and index.where and (not way.whole or selective(table, index)):
            way = replace(way, few=True)
        ways.append(way)
    return ways


def _union(table: Table, arms: Sequence[Sequence[Expr]]) -> Access | None:
    """Each arm by the key that is best for it; None: for one there is none."""
    found: dict[int, Access] = {}
    for arm in arms:
        way = max(_ways(table, (arm,)), key=lambda one: one.score)
        if way.whole:
            return None
        number = 0 if way.index is None else int(way.index.id)
        known = found.get(number)
        if known is not None:
            way = replace(known, stretches=(*known.stretches, *way.stretches))
        found[number] = way
    first, *beside = found.values()
    return replace(first, beside=tuple(beside)) if beside else None


def _ordered(
    table: Table, access: Access, order: Sequence[Ordering], present: Collection[int]
) -> Access | None:
    """The same way, read so that rows come in this order; None if they cannot. `present`: columns
    that are not NULL in any of the rows.
    """
    if access.beside:
        return None
    directions = directions_of(table, access.index)
    fixed = fixed_columns(access)
    at, reverse = 0, None
    for wanted in order:
        if wanted.column in fixed:
            continue
        while at < len(access.components) and access.components[at] in fixed:
            at += 1
        if at >= len(access.components) and _total(table, access, present):
            break
        if at >= len(access.components) or access.components[at] != wanted.column:
            return None
        descending, nulls_first = directions[at]
        flip = descending != wanted.descending
        if reverse is not None and flip != reverse:
            return None
        nullable = table.by_id(wanted.column).nullable and wanted.column not in present
        if nullable and (nulls_first != flip) != wanted.nulls_first:
            return None
        reverse, at = flip, at + 1
        fixed.add(wanted.column)
    if not reverse:
        return access
    return replace(access, reverse=True)


def _total(table: Table, access: Access, present: Collection[int]) -> bool:
    """Whether no two rows are alike in all components."""
    if access.index is None or not access.index.unique:
        return True
    if access.index.deferrable:
        return False
    columns = map(table.by_id, access.components)
    return all(not one.nullable or one.id in present for one in columns)


def fixed_columns(access: Access) -> set[int]:
    """The columns that have one value in all rows."""
    first, *others = access.stretches
    return {
        column
        for at, (column, one) in enumerate(zip(access.components, first.given, strict=False))
        if not one.any and all(len(o.given) > at and o.given[at] == one for o in others)
    }


def key_of(table: Table, index: Index | None) -> tuple[int, ...]:
    """The columns that the entries of a key are made of, by their ids."""
    own = primary_components(table)
    if index is None:
        return own
    return index.column_ids if index.unique else (*index.column_ids, *own)


def directions_of(table: Table, index: Index | None) -> list[tuple[bool, bool]]:
    """Of each component: whether it descends, and whether NULLs come first."""
    own = [(False, False)] * len(table.primary_key)
    if index is None:
        return own
    found = [(c.descending, c.nulls_first) for c in index.columns]
    return found if index.unique else found + own


def alike(left: Expr, right: Expr) -> bool:
    """Whether their values have the same bytes in keys when they are equal: PostgreSQL compares a
    date with a timestamp without casting either.
    """
    return same(left.oid, right.oid)


def same(left: int, right: int) -> bool:
    """`alike` of types."""
    return _FAMILIES.get(left, left) == _FAMILIES.get(right, right)


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
