"""The `where` option of a read: SQL's own condition (sqlproxy.tables.conditions), evaluated at the
source.

    bound    as SQL binds it: what a literal is, and how two types are compared, is decided there.
             `replaceWhere` of an overwrite is the same, so both mean the same rows
    keys     what it says of the primary key narrows what the store reads (sqlproxy.tables.access)
    columns  where Arrow does exactly what SQL does (comparisons of a column with a constant of its
             family, IN, IS NULL, AND, OR, NOT), it is one expression over a page's columns
    rows     everything else is asked of each row by SQL's closures, for about ten times the cost

Deliberately missing: what needs more than a row (subqueries, aggregates), and what asks for the
time or chance; leave that to Spark.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from math import isnan
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kv.base.errors import InvalidArgument
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import (
    AnyAll,
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
from sqlproxy.front.closures.compiling import compile, fold
from sqlproxy.rows.arrow_rows import arrow_type
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Table
from sqlproxy.tables import conditions
from sqlproxy.tables.access import Access, Limit, Stretch, alike, choose
from sqlproxy.tables.spans import Finder
from sqlproxy.values.errors import SqlError

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTS: Final = frozenset({"int2", "int4", "int8", "oid"})
_FLOATS: Final = frozenset({"float4", "float8"})
_TEXTS: Final = frozenset({"text", "varchar"})
_LISTED: Final = _INTS | _TEXTS | {"uuid", "bytea", "date", "timestamp", "timestamptz"}
"""Types whose equal values are the same to Arrow's hash, too."""
_AS_THEY_ARE: Final[dict[str, type]] = {
    "bool": bool,
    "bytea": bytes,
    "date": date,
    "timestamp": datetime,
    "timestamptz": datetime,
}
_NOWHERE: Final = (b"\x00", b"\x00")


class Condition:
    """Of one read of one table. Raises InvalidArgument when it cannot be one."""

    def __init__(self, text: str, table: Table, texts: Collection[str] = ()) -> None:
        """`texts`: the numerics that come as text in the batches."""
        self._text, self._table = text, table
        try:
            self._expr = conditions.bound(table, text)
        except SqlError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise self._cannot(f"{error.message}{hint}") from error
        self._shape = conditions.shaped(table)
        self.columns = frozenset(c.name for c in walk(self._expr) if isinstance(c, Column))
        self.arrow = _Columns(self._shape, texts).condition(self._expr)
        """Over batches that have `columns`; None: rows are asked one by one."""

    @functools.cached_property
    def _holds(self) -> Callable[[Sequence[object]], bool]:
        return conditions.holds(self._expr)

    def rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
        """The places of those rows (user keys and values) that it means."""
        holds = self._holds
        found: Iterator[Sequence[object]] = zip(keys, values, strict=True)
        if not self._table.plain:
            decode = codec(self._table).decode_row
            found = (decode(key, value) for key, value in zip(keys, values, strict=True))
        try:
            return [at for at, row in enumerate(found) if holds(row)]
        except SqlError as error:
            raise self._cannot(error.message) from error

    def bounds(self) -> tuple[bytes, bytes]:
        """`[low, high)` of user keys outside of which it holds for no row; b"" = no bound."""
        access, _ = choose(replace(self._shape, indexes=()), conjuncts(self._expr))
        if access.whole:
            return b"", b""
        try:
            if self._table.plain:
                return _plain_bounds(access)
            spans = Finder(self._shape, access).spans(_value)
        except SqlError:
            return b"", b""  # each row that is asked says it
        if spans.points:
            return spans.points[0], spans.points[-1] + b"\x00"
        if not spans.ranges:
            return _NOWHERE
        ends = [span.end for span in spans.ranges]
        return min(span.start for span in spans.ranges), max(ends) if all(ends) else b""

    def _cannot(self, why: str) -> InvalidArgument:
        return InvalidArgument(f"option where: {self._text!r:.300}: {why}")


def _value(expr: Expr) -> Any:
    """What an expression without columns is. Raises SqlError."""
    return compile(expr).fn((), Env())


def _plain_bounds(access: Access) -> tuple[bytes, bytes]:
    """Keys of a plain table are their values themselves. Raises SqlError."""
    found = [one for one in map(_plain_stretch, access.stretches) if one != _NOWHERE]
    if not found:
        return _NOWHERE
    highs = [high for _, high in found]
    return min(low for low, _ in found), max(highs) if all(highs) else b""


def _plain_stretch(stretch: Stretch) -> tuple[bytes, bytes]:
    if stretch.given:
        (given,) = stretch.given
        found = None if given.null else _value(given.expr)
        values = sorted(v for v in (found or () if given.any else [found]) if v is not None)
        return (values[0], values[-1] + b"\x00") if values else _NOWHERE

    def end(limit: Limit | None, *, after: bool) -> bytes | None:
        if limit is None:
            return b""
        value: bytes | None = _value(limit.exprs[0])
        return None if value is None else value + b"\x00" * (limit.inclusive is after)

    low, high = end(stretch.low, after=False), end(stretch.high, after=True)
    return _NOWHERE if low is None or high is None else (low, high)


class _Columns:
    """Expressions as Arrow's, where it does what SQL does; None where it does not, or may not."""

    def __init__(self, table: Table, texts: Collection[str]) -> None:
        self._table, self._texts = table, texts

    def condition(self, expr: Expr) -> pc.Expression | None:
        match expr:
            case Const(value=None | bool(), oid=16):
                return pc.scalar(pa.scalar(expr.value, pa.bool_()))
            case Column(oid=16):
                return pc.field(expr.name)
            case Logic():
                parts = [self.condition(arg) for arg in expr.args]
                known = [part for part in parts if part is not None]
                if len(known) < len(parts):
                    return None
                if expr.op == "not":
                    return ~known[0]
                return functools.reduce(operator.and_ if expr.op == "and" else operator.or_, known)
            case IsNull():
                if not isinstance(bare(expr.arg), Column):
                    return None
                field = pc.field(self._column(expr.arg)[0])
                return field.is_valid() if expr.negated else field.is_null()
            case IsBool():
                return self._is(expr)
            case Call(operator=op, args=(left, right)) if op in _COMPARE:
                return self._comparison(op, left, right)
            case AnyAll():
                return self._listed(expr)
            case _:
                return None

    def _is(self, expr: IsBool) -> pc.Expression | None:
        inner = self.condition(expr.arg)
        if inner is None:
            return None
        test = inner.is_null()
        if expr.value is not None:
            test = inner.is_valid() & (inner if expr.value else ~inner)
        return ~test if expr.negated else test

    def _column(self, expr: Expr) -> tuple[str, Any]:
        """The name and the type of a column."""
        column = bare(expr)
        assert isinstance(column, Column)
        return column.name, self._table.by_id(column.attribute).resolved

    def _comparison(self, op: str, left: Expr, right: Expr) -> pc.Expression | None:
        if not alike(left, right):
            return None
        if not isinstance(bare(left), Column):
            left, right, op = right, left, _FLIPPED[op]
        value = fold(right)
        if not isinstance(bare(left), Column) or not isinstance(value, Const):
            return None
        name, kind = self._column(left)
        field = pc.field(name)
        if value.value is None:
            return pc.scalar(pa.scalar(None, pa.bool_()))
        if name in self._texts:
            return None
        compare = _COMPARE[op]
        if kind.base in _FLOATS and isinstance(value.value, float):
            return _float_test(op, field.cast(pa.float64()), value.value)
        if kind.base == "char" and isinstance(value.value, str):  # blanks at its end do not count
            bare_field = pc.utf8_rtrim(field, characters=" ")
            return compare(bare_field, pc.scalar(value.value.rstrip(" ")))
        if kind.base == "bool" and op not in ("=", "<>"):
            return None
        scalar = _scalar(kind, value.value)
        if scalar is None:
            return None
        if kind.base in _INTS:
            field = field.cast(pa.int64())
        return compare(field, pc.scalar(scalar))

    def _listed(self, expr: AnyAll) -> pc.Expression | None:
        """`column IN (…)` and NOT IN: NULL of a NULL, and of what is not found beside one."""
        wanted = ("<>", True) if expr.all else ("=", False)
        test, array = expr.test, fold(expr.array)
        if (test.operator, expr.all) != wanted or not isinstance(bare(expr.left), Column):
            return None
        if not isinstance(array, Const) or not isinstance(array.value, list):
            return None
        if not isinstance(test.args[1], CaseValue) or not alike(*test.args):
            return None
        name, kind = self._column(expr.left)
        given = [value for value in array.value if value is not None]
        scalars = [one for one in (_scalar(kind, value) for value in given) if one is not None]
        if kind.base not in _LISTED or len(scalars) < len(given):
            return None
        of = pa.int64() if kind.base in _INTS else arrow_type(kind)
        field = pc.field(name)
        if kind.base in _INTS:
            field = field.cast(of)
        found = field.isin(pa.array([one.as_py() for one in scalars], of))
        known = field.is_valid()
        if len(given) < len(array.value):  # not found is not known
            known = known & found
        if not array.value:
            return pc.scalar(expr.all)  # of no value, a NULL is not asked
        in_it = pc.if_else(known, found, pc.scalar(pa.scalar(None, pa.bool_())))
        return ~in_it if expr.all else in_it


def _float_test(op: str, field: pc.Expression, value: float) -> pc.Expression:
    """NaN equals NaN, and is above every number."""
    nan = pc.is_nan(field)
    if not isnan(value):
        test = _COMPARE[op](field, pc.scalar(value))
        return test | nan if op in (">", ">=") else test
    always = nan | ~nan  # NULL of NULL
    return {"=": nan, ">=": nan, "<>": ~nan, "<": ~nan, "<=": always, ">": ~always}[op]


def _scalar(kind: Any, value: object) -> pa.Scalar | None:
    """A value in user form that is compared with a column of the type: None, if it is another."""
    base = kind.base
    if base in _INTS:
        return pa.scalar(value, pa.int64()) if type(value) is int else None
    if base in _TEXTS:
        return pa.scalar(value, pa.string()) if isinstance(value, str) else None
    if base == "uuid":
        return pa.scalar(str(value), pa.string()) if isinstance(value, UUID) else None
    if base == "numeric":
        return _decimal(arrow_type(kind), value)
    if base in _AS_THEY_ARE and type(value) is _AS_THEY_ARE[base]:
        return pa.scalar(value, arrow_type(kind))
    return None


def _decimal(of: pa.DataType, value: object) -> pa.Scalar | None:
    if not pa.types.is_decimal(of) or not isinstance(value, Decimal) or not value.is_finite():
        return None
    try:
        fitting = value.quantize(Decimal(1).scaleb(-of.scale))
        return pa.scalar(fitting, of) if fitting == value else None
    except (pa.ArrowInvalid, InvalidOperation):
        return None
