"""Whether a WHERE implies a partial index's predicate, so that the index has every row meant. Pure.

Each conjunct of the predicate must be implied, by one of

    the same conjunct                    as it is bound: columns by id, constants with types
    col = const, col IN (consts)         the conjunct is computed for each of these values
    col < const (and its like)           of the same column and comparison, where values are whole
                                         numbers, dates or exact numbers: a > 5 implies a > 3
    a comparison of the column           implies that it is not NULL
    one arm of an OR                     that is implied by itself

and nothing else: what is not understood is not implied, and the index not used. A parameter is no
constant: plans are kept for all its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import (
    AnyAll,
    ArrayExpr,
    Call,
    CaseValue,
    Column,
    Const,
    Expr,
    IsBool,
    IsNull,
    Logic,
    bare,
    conjuncts,
    walk,
)
from sqlproxy.front.bound.statements import SubQuery
from sqlproxy.front.closures.compiling import compile
from sqlproxy.pg import oids
from sqlproxy.rows.schema import Index, Table
from sqlproxy.tables import predicates
from sqlproxy.values.errors import SqlError

_EXACT: Final = frozenset(
    (oids.BOOL, oids.INT2, oids.INT4, oids.INT8, oids.TEXT, oids.VARCHAR, 1082)
)
"""Types whose equal values are the same value: what is computed of one holds of the other."""
_COMPARISONS: Final = frozenset(("=", "<>", "<", "<=", ">", ">="))
_FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_PARTS_MAX: Final = 64  # values of an IN, arms of an OR: what has more is not looked at

_remembered: dict[tuple[int, int], tuple[Table, Index, tuple[Expr, ...]]] = {}


def parts(table: Table, index: Index) -> tuple[Expr, ...]:
    """The conjuncts of the predicate, remembered by the objects. Raises Corruption."""
    key = id(table), id(index)
    found = _remembered.get(key)
    if found is None or found[0] is not table or found[1] is not index:
        if len(_remembered) >= 1_024:
            _remembered.clear()
        found = _remembered[key] = table, index, conjuncts(predicates.bound(table, index))
    return found[2]


def usable(table: Table, index: Index, conditions: Sequence[Expr]) -> bool:
    """Whether the index has an entry of every row of which all conditions are true."""
    if not index.where:
        return True
    given = [part for one in conditions for part in conjuncts(one)]
    return _all(table, given, parts(table, index))


def selective(table: Table, index: Index) -> bool:
    """Whether a partial index is likely to have few of the rows: its predicate compares something.
    (`deleted IS NULL` and the like are true of most rows.)
    """
    return any(
        isinstance(one, AnyAll) or (isinstance(one, Call) and one.operator in _FLIPPED)
        for one in map(_plain, parts(table, index))
        if not (isinstance(one, Call) and one.operator == "<>")
    )


def _all(table: Table, given: Sequence[Expr], wanted: Sequence[Expr]) -> bool:
    return all(_implied(table, given, one) for one in wanted)


def _implied(table: Table, given: Sequence[Expr], wanted: Expr) -> bool:
    shape = shape_of(table, _plain(wanted))
    if any(shape_of(table, _plain(one)) == shape for one in given):
        return True
    if isinstance(wanted, Logic) and wanted.op == "or" and len(wanted.args) <= _PARTS_MAX:
        return any(_all(table, given, conjuncts(arm)) for arm in wanted.args)
    return any(_by_one(table, one, wanted) for one in given)


def _by_one(table: Table, given: Expr, wanted: Expr) -> bool:
    given, wanted = _plain(given), _plain(wanted)
    if isinstance(wanted, IsNull) and wanted.negated:
        shape = shape_of(table, bare(wanted.arg))
        return any(shape_of(table, bare(one)) == shape for one in _strict_in(given))
    if (values := _values(table, given)) is not None:
        return _computed(table, *values, wanted)
    return _narrower(table, given, wanted)


def _strict_in(given: Expr) -> Iterator[Expr]:
    """What cannot be NULL where this is true."""
    match given:
        case Call(operator=operator, proc=proc, args=args) if operator in _COMPARISONS:
            if proc.strict:
                yield from args
        case AnyAll(all=False, test=Call(operator="=", proc=proc)) if proc.strict:
            yield given.left
        case IsBool(value=bool(), negated=False, arg=arg):
            yield arg
        case Logic(op="not", args=(Column() as column,)):
            yield column
        case Column(oid=oid) if oid == oids.BOOL:
            yield given
        case _:
            pass


def _values(table: Table, given: Expr) -> tuple[Column, list[object]] | None:
    """`column = const`, or IN a list of them, of a type whose equal values are the same."""
    match given:
        case Call(operator="=", args=(left, Const(value=value))) if value is not None:
            column, found = bare(left), [value]
        case AnyAll(all=False, test=Call(operator="=", args=(first, CaseValue()))):
            listed = _listed(given.array)
            if listed is None:
                return None
            column, found = bare(first), listed
        case Column(oid=oid) if oid == oids.BOOL:
            column, found = given, [True]
        case Logic(op="not", args=(Column() as inner,)):
            column, found = inner, [False]
        case _:
            return None
    if not _own(table, column) or column.oid not in _EXACT or len(found) > _PARTS_MAX:
        return None
    assert isinstance(column, Column)
    kind = type(found[0]) if found else None
    fits = (int,) if column.oid in (oids.INT2, oids.INT4, oids.INT8) else (str, bool, date)
    if not found or kind not in fits or any(type(one) is not kind for one in found):
        return None
    return column, found


def _listed(array: Expr) -> list[object] | None:
    if isinstance(array, Const) and isinstance(array.value, list | tuple):
        found = list(array.value)
    elif isinstance(array, ArrayExpr) and all(isinstance(one, Const) for one in array.args):
        found = [one.value for one in array.args if isinstance(one, Const)]
    else:
        return None
    return [one for one in found if one is not None]


def _computed(table: Table, column: Column, values: Sequence[object], wanted: Expr) -> bool:
    """Whether it is true for each of these values, and of no other column."""
    for one in walk(wanted):
        if isinstance(one, Column) and not (_own(table, one) and one.attribute == column.attribute):
            return False
    place = next(n for n, c in enumerate(table.columns) if c.id == column.attribute)
    fn, env = compile(wanted).fn, Env()
    row: list[object] = [None] * len(table.columns)
    try:
        for value in values:
            row[place] = value
            if fn(row, env) is not True:
                return False
    except SqlError:
        return False
    return True


def _narrower(table: Table, given: Expr, wanted: Expr) -> bool:
    """`col < 3` implies `col < 5`: both ends compare the same column with a constant."""
    one, other = _end(table, given), _end(table, wanted)
    if one is None or other is None:
        return False
    (*column, op, value), (*same, wants, bound) = one, other
    if column != same:
        return False
    if wants == "<>":
        below = op in ("<", "<=") and (value < bound or (op == "<" and value == bound))
        above = op in (">", ">=") and (value > bound or (op == ">" and value == bound))
        return below or above
    if op[0] != wants[0] or op in ("=", "<>"):
        return False
    strictly: bool = value < bound if op[0] == "<" else value > bound
    return strictly or (value == bound and not (wants in ("<", ">") and op in ("<=", ">=")))


def _end(table: Table, expr: Expr) -> tuple[int, int, type, str, Any] | None:
    """Column, type of the constant in SQL and in Python, comparison, constant."""
    if not isinstance(expr, Call) or expr.operator not in _COMPARISONS or len(expr.args) != 2:
        return None
    left, right = expr.args
    left = bare(left)
    if not (isinstance(right, Const) and _own(table, left) and isinstance(left, Column)):
        return None
    value = right.value
    exact = type(value) in (int, date, datetime) or (type(value) is Decimal and value.is_finite())
    return (left.attribute, right.oid, type(value), expr.operator, value) if exact else None


def _own(table: Table, expr: Expr) -> bool:
    return isinstance(expr, Column) and expr.level == 0 and expr.table == table.id


def _plain(expr: Expr) -> Expr:
    """One form of what is said in several: constants at the right, `a = true` as `a`."""
    match expr:
        case Call(operator="=", args=(left, Const(value=True, oid=oid))) if oid == oids.BOOL:
            return _plain(left)
        case Call(operator="=", args=(left, Const(value=False, oid=oid))) if oid == oids.BOOL:
            return Logic(op="not", args=(_plain(left),))
        case IsBool(value=True, negated=False, arg=arg):
            return _plain(arg)
        case IsBool(value=False, negated=False, arg=arg):
            return Logic(op="not", args=(_plain(arg),))
        case Logic(op="not", args=(IsNull() as inner,)):
            return IsNull(arg=inner.arg, negated=not inner.negated)
        case _:
            return expr


def shape_of(table: Table, expr: Expr) -> object:
    """What is equal for expressions that mean the same by their form."""
    if isinstance(expr, Call) and expr.operator in _FLIPPED and len(expr.args) == 2:
        left, right = expr.args
        if isinstance(left, Const) and not isinstance(right, Const):
            turned = (shape_of(table, right), shape_of(table, left))
            return ("compare", _FLIPPED[expr.operator], expr.oid, turned)
        return ("compare", expr.operator, expr.oid, (shape_of(table, left), shape_of(table, right)))
    if isinstance(expr, Column):
        if _own(table, expr):
            return ("column", expr.attribute)
        return ("other", id(expr))
    if isinstance(expr, SubQuery):
        return ("other", id(expr))
    if isinstance(expr, Const):
        return ("const", expr.oid, expr.typmod, type(expr.value), repr(expr.value))
    parts = [
        _field_shape(table, getattr(expr, field.name))
        for field in fields(expr)
        if field.name != "pos"
    ]
    return (type(expr), *parts)


def _field_shape(table: Table, value: object) -> object:
    if isinstance(value, Expr):
        return shape_of(table, value)
    if isinstance(value, tuple):
        return tuple(_field_shape(table, one) for one in value)
    return value
