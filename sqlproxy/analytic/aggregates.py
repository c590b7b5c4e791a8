"""Aggregates and window functions → DuckDB SQL.

Where DuckDB adds up otherwise than PostgreSQL, the parts (sum, count, or the list of all values)
come from DuckDB and a function in Python makes the answer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlproxy.analytic import forms
from sqlproxy.analytic.expressions import INTS, Expressions, Sql
from sqlproxy.analytic.forms import TEXT, decimal_of, held
from sqlproxy.errors import unsupported
from sqlproxy.front import registry as r
from sqlproxy.front.exprs import Aggregate, Order, Window
from sqlproxy.front.functions import PURE

_FLOATS: Final = frozenset((r.FLOAT4, r.FLOAT8))
_TEXTS: Final = frozenset((r.TEXT, r.VARCHAR))
_NUMBERED: Final = {
    "row_number": "row_number", "rank": "rank", "dense_rank": "dense_rank",
    "percent_rank": "percent_rank", "cume_dist": "cume_dist",
}  # fmt: skip
_VALUED: Final = frozenset(("first_value", "last_value"))
_SHIFTED: Final = frozenset(("lag", "lead"))


class Calls:
    """Renders them for one query. `over`: the text behind a window's call."""

    def __init__(self, expressions: Expressions) -> None:
        self._sql = expressions

    def aggregate(self, expr: Aggregate) -> Sql:
        """Raises 0A000."""
        if expr.direct or expr.proc.aggregate_kind in ("o", "h"):
            return self._ordered_set(expr)
        return self._any(expr, expr.distinct, expr.order, "")

    def window(self, expr: Window) -> Sql:
        """Raises 0A000."""
        spec = expr.window
        parts = []
        if spec.partition:
            listed = ", ".join(self._sql.key(self._sql.sql(e)) for e in spec.partition)
            parts.append(f"PARTITION BY {listed}")
        if spec.order:
            parts.append(f"ORDER BY {self.order(spec.order)}")
        if spec.framed:
            raise unsupported("a window with a frame over joins and aggregates")
        over = f" OVER ({' '.join(parts)})"
        if expr.proc.kind == "w":
            return self._window_only(expr, over)
        return self._any(expr, False, (), over)

    def order(self, order: Sequence[Order]) -> str:
        """The keys of ORDER BY."""
        return ", ".join(
            f"{self._sql.key(self._sql.sql(one.expr))} {direction(one)}" for one in order
        )

    # -- functions that are only window functions

    def _window_only(self, expr: Window, over: str) -> Sql:
        name = expr.proc.name
        args = [self._sql.sql(arg) for arg in expr.args]
        kind = held(expr.oid)
        if name in _NUMBERED:
            return Sql(f"{_NUMBERED[name]}(){over}", expr.oid, kind)
        if name == "ntile":
            return Sql(f"CAST(ntile({args[0].text}){over} AS {kind})", expr.oid, kind)
        if name in _VALUED:
            return Sql(f"{name}({args[0].text}){over}", expr.oid, args[0].held)
        if name == "nth_value":
            listed = ", ".join(arg.text for arg in args)
            return Sql(f"nth_value({listed}){over}", expr.oid, args[0].held)
        if name in _SHIFTED:
            if len(args) == 3:
                first, _, last = args
                first, last = self._sql.alike([first, last])
                args = [first, args[1], last]
            listed = ", ".join(arg.text for arg in args)
            return Sql(f"{name}({listed}){over}", expr.oid, args[0].held)
        raise unsupported(f"the window function {name}")

    # -- aggregates

    def _any(
        self, expr: Aggregate | Window, distinct: bool, order: Sequence[Order], over: str
    ) -> Sql:
        name = expr.proc.name
        where = "" if expr.filter is None else f" FILTER (WHERE {self._sql.text(expr.filter)})"
        behind = where + over
        if expr.star:
            return Sql(f"count(*){behind}", r.INT8, "BIGINT")
        args = [self._sql.sql(arg) for arg in expr.args]
        if distinct and self._sql.keyed(args[0]) and name != "count":
            raise unsupported(f"{name}(DISTINCT …) of values of type {_named(args[0])}")
        word = "DISTINCT " if distinct else ""
        sorted_by = f" ORDER BY {self.order(order)}" if order else ""
        made = _Made(self._sql, expr.oid, args, word, sorted_by, behind)
        handler = _HANDLERS.get(name)
        if handler is None:
            raise unsupported(f"the aggregate {name}({', '.join(map(_named, args))})")
        found: Sql = handler(made)
        return found

    def _ordered_set(self, expr: Aggregate) -> Sql:
        raise unsupported(f"the aggregate {expr.proc.name}")


class _Made:
    """One call with its arguments rendered."""

    def __init__(
        self,
        expressions: Expressions,
        oid: int,
        args: list[Sql],
        word: str,
        order: str,
        behind: str,
    ) -> None:
        self.sql, self.oid, self.args = expressions, oid, args
        self.word, self.order, self.behind = word, order, behind

    def call(self, name: str, *texts: str) -> str:
        return f"{name}({self.word}{', '.join(texts)}{self.order}){self.behind}"

    @property
    def value(self) -> Sql:
        return self.args[0]

    def listed(self) -> Sql:
        """All values as one list."""
        value = self.value
        oid = r.array_of(value.oid)
        return Sql(self.call("list", value.text), oid, value.held + "[]")

    def over_list(self, name: str, fn: Callable[[list[Any]], Any]) -> Sql:
        """What a function makes of all values that are not NULL."""

        def all_of(values: list[Any]) -> Any:
            kept = [value for value in values if value is not None]
            return fn(kept) if kept else None

        return self.sql.function(name, all_of, [self.listed()], self.oid, held(self.oid))


def _count(made: _Made) -> Sql:
    return Sql(made.call("count", made.sql.key(made.value)), r.INT8, "BIGINT")


def _sum(made: _Made) -> Sql:
    value = made.value
    kind = value.oid
    if kind in (r.INT2, r.INT4):
        return Sql(f"CAST({made.call('sum', value.text)} AS BIGINT)", made.oid, "BIGINT")
    if kind == r.INT8:
        whole = forms.decimal(forms.DIGITS_MAX, 0)
        return Sql(f"CAST({made.call('sum', value.text)} AS {whole})", made.oid, whole)
    if kind == r.FLOAT8:
        return Sql(made.call("sum", value.text), made.oid, "DOUBLE")
    if kind == r.NUMERIC and (parts := decimal_of(value.held)) is not None:
        wide = forms.decimal(forms.DIGITS_MAX, parts[1])
        return Sql(f"CAST({made.call('sum', value.text)} AS {wide})", made.oid, wide)
    if kind == r.NUMERIC:
        return made.over_list("sum of numeric", _added)
    if kind == r.INTERVAL:
        return made.over_list("sum of interval", _intervals)
    raise unsupported(f"sum({_named(value)})")


def _added(values: list[Decimal]) -> Decimal:
    add = PURE["numeric_add"]
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total


def _intervals(values: list[Any]) -> Any:
    add = PURE["interval_pl"]
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total


def _avg(made: _Made) -> Sql:
    value = made.value
    if value.oid == r.FLOAT8:
        return Sql(made.call("avg", value.text), made.oid, "DOUBLE")
    if value.oid in INTS or value.oid == r.NUMERIC:
        divide = PURE["numeric_div"]
        count = Sql(made.call("count", value.text), r.INT8, "BIGINT")
        total = _sum(_with_type(made, r.NUMERIC if value.oid == r.INT8 else value.oid))
        return made.sql.function(
            "avg", lambda total, count: divide(Decimal(total), Decimal(count)), [total, count],
            r.NUMERIC, TEXT,
        )  # fmt: skip
    if value.oid == r.INTERVAL:
        divide, add = PURE["interval_div"], _intervals
        return made.over_list("avg of interval", lambda v: divide(add(v), float(len(v))))
    raise unsupported(f"avg({_named(value)})")


def _with_type(made: _Made, oid: int) -> _Made:
    """The sum behind an average: of int2 and int4 it is a bigint, of int8 a numeric."""
    result = r.INT8 if made.value.oid in (r.INT2, r.INT4) else r.NUMERIC
    return _Made(made.sql, result, made.args, made.word, made.order, made.behind)


def _extreme(name: str) -> Callable[[_Made], Sql]:
    def call(made: _Made) -> Sql:
        value = made.value
        if made.sql.keyed(value):
            text = made.call(f"arg_{name}", value.text, made.sql.key(value))
        else:
            text = made.call(name, value.text)
        return Sql(text, made.oid, value.held)

    return call


def _plain(name: str) -> Callable[[_Made], Sql]:
    """DuckDB's aggregate of the same meaning, and of the argument's type."""

    def call(made: _Made) -> Sql:
        if made.value.oid not in (r.BOOL, *INTS):
            raise unsupported(f"{name}({_named(made.value)})")
        return Sql(made.call(name, made.value.text), made.oid, made.value.held)

    return call


def _string_agg(made: _Made) -> Sql:
    value, separator = made.args
    if value.oid not in _TEXTS or not separator.text.startswith("CAST('"):
        raise unsupported(f"string_agg({_named(value)}) with a separator that is no constant")
    return Sql(made.call("string_agg", value.text, separator.text), made.oid, TEXT)


def _array_agg(made: _Made) -> Sql:
    if r.element_of(made.value.oid):
        raise unsupported("array_agg of arrays")
    return Sql(made.listed().text, made.oid, made.value.held + "[]")


def _named(value: Sql) -> str:
    return r.format_type(value.oid)


def direction(order: Order) -> str:
    """DESC and NULLS, written out."""
    return ("DESC" if order.descending else "ASC") + (
        " NULLS FIRST" if order.nulls_first else " NULLS LAST"
    )


_HANDLERS: Final[dict[str, Callable[[_Made], Sql]]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "bool_and": _plain("bool_and"),
    "bool_or": _plain("bool_or"),
    "every": _plain("bool_and"),
    "bit_and": _plain("bit_and"),
    "bit_or": _plain("bit_or"),
    "bit_xor": _plain("bit_xor"),
    "string_agg": _string_agg,
    "array_agg": _array_agg,
}
