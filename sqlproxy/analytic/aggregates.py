"""Aggregates and window functions → DuckDB SQL.

Where DuckDB adds up otherwise than PostgreSQL, the parts (sum, count, or the list of all values)
come from DuckDB and a function in Python makes the answer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from sqlproxy.analytic import forms, statistics
from sqlproxy.analytic.expressions import INTS, Expressions, Sql
from sqlproxy.analytic.forms import TEXT, decimal_of, held
from sqlproxy.analytic.guarding import where_true
from sqlproxy.duck import ducktext as d
from sqlproxy.duck.ducktext import Text
from sqlproxy.front.binding.casting import as_json
from sqlproxy.front.binding.functioncalls import is_row
from sqlproxy.front.bound.exprs import Aggregate, Column, Expr, Order, RowExpr, Window, WindowSpec
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.functions.f_numbers import EXACT
from sqlproxy.front.functions.f_times import add_zoned
from sqlproxy.front.types import registry as r
from sqlproxy.pg import oids
from sqlproxy.values.errors import SqlError, unsupported
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import words

_FLOATS: Final = frozenset((oids.FLOAT4, oids.FLOAT8))
_FRAME_DEFAULT: Final = 1058  # RANGE UNBOUNDED PRECEDING
# PostgreSQL's FRAMEOPTION bits (parsenodes.h)
_UNITS: Final = {0x2: "RANGE", 0x4: "ROWS", 0x8: "GROUPS"}
_STARTS: Final = {
    0x20: "UNBOUNDED PRECEDING",
    0x80: "UNBOUNDED FOLLOWING",
    0x200: "CURRENT ROW",
    0x800: "PRECEDING",
    0x2000: "FOLLOWING",
}
_ENDS: Final = {bit << 1: word for bit, word in _STARTS.items()}
_RANGE: Final = 0x2
_MICROSECOND: Final = timedelta(microseconds=1)
_RANGE_SCALE: Final = 12  # digits after the point of numerics that RANGE adds to
_WIDER: Final = {oids.INT2: "BIGINT", oids.INT4: "BIGINT", oids.INT8: "HUGEINT"}
_RANGE_STEP: Final = Decimal((0, (1,), -_RANGE_SCALE))
_EXCLUDED: Final = {0x8000: "CURRENT ROW", 0x10000: "GROUP", 0x20000: "TIES"}
_TEXTS: Final = frozenset((oids.TEXT, oids.VARCHAR))
_NUMBERED: Final = words("row_number rank dense_rank percent_rank cume_dist")
_VALUED: Final = frozenset(("first_value", "last_value"))
_SHIFTED: Final = frozenset(("lag", "lead"))


class Calls:
    """Renders them for one query. `over`: the text after a window's call."""

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
        ranged = spec.frame & _RANGE and (spec.start is not None or spec.end is not None)
        if ranged:
            parts.append(self._ranged(spec))
        else:
            if spec.order:
                parts.append(f"ORDER BY {self.order(spec.order)}")
            if spec.frame != _FRAME_DEFAULT:
                parts.append(self._frame(spec, self._rows_offset))
        over = f" OVER ({' '.join(parts)})"
        if expr.proc.kind == "w":
            return self._window_only(expr, over)
        return self._any(expr, False, (), over)

    def _frame(self, spec: WindowSpec, shown: Callable[[object, int, str], str]) -> str:
        """ROWS, RANGE or GROUPS with its ends. `shown`: an offset's text, by value, type and the
        word after it.
        """
        bits = spec.frame
        unit = next(word for bit, word in _UNITS.items() if bits & bit)
        start = self._end(bits, _STARTS, spec.start, shown, "starting")
        end = self._end(bits, _ENDS, spec.end, shown, "ending")
        without = next((f" EXCLUDE {w}" for bit, w in _EXCLUDED.items() if bits & bit), "")
        return f"{unit} BETWEEN {start} AND {end}{without}"

    def _end(
        self,
        bits: int,
        words: Mapping[int, str],
        offset: Expr | None,
        shown: Callable[[object, int, str], str],
        which: str,
    ) -> str:
        word = next(word for bit, word in words.items() if bits & bit)
        if offset is None:
            return word
        value = self._sql.constant(offset)
        if value is None:
            raise SqlError("22004", f"frame {which} offset must not be null")
        if not bits & _RANGE and value < 0:
            raise SqlError("22013", f"frame {which} offset must not be negative")
        return f"{shown(value, offset.oid, word)} {word}"

    @staticmethod
    def _rows_offset(value: object, oid: int, word: str) -> str:
        return str(forms.literal(value, oid)[0])

    def _ranged(self, spec: WindowSpec) -> str:
        """ORDER BY and RANGE of one value and what is added to it."""
        (order,) = spec.order
        value = self._sql.sql(order.expr)
        key = value.text
        shown: Callable[[Any, int, str], str] = self._rows_offset
        if value.oid == oids.FLOAT4:
            key = d.cast(key, "DOUBLE")
        elif value.oid == oids.NUMERIC and decimal_of(value.held) is None:
            fixed = forms.decimal(forms.DIGITS_MAX, _RANGE_SCALE)
            key = self._sql.function("range numeric", _fixed, [value], oids.NUMERIC, fixed).text
        elif value.oid in _WIDER:  # what is added does not leave it
            key = d.cast(key, _WIDER[value.oid])
        elif value.oid == oids.TIME:  # no day is begun anew
            key = d.call("epoch_us", key)
            shown = lambda value, oid, word: str(value.us)  # noqa: E731
        elif value.oid == oids.INTERVAL:  # as they are compared: months are 30 days
            key = self._sql.function("range interval", _span, [value], oids.INT8, "BIGINT").text
            shown = lambda value, oid, word: str(_span(value))  # noqa: E731
        elif value.oid == oids.TIMESTAMPTZ and self._sql.env.style.zone is not UTC:
            key = d.call("epoch_us", key)
            shown = self._zoned(value, descending=order.descending)

        def checked(value: Any, oid: int, word: str) -> str:
            size = value.span if isinstance(value, Interval) else value
            if size != size or size < 0:
                raise SqlError("22013", "invalid preceding or following size in window function")
            return shown(value, oid, word)

        return f"ORDER BY {key} {direction(order)} {self._frame(spec, checked)}"

    def _zoned(self, value: Sql, *, descending: bool) -> Callable[[object, int, str], str]:
        """How many microseconds a moment and one an interval off it are apart: days and months are
        those of the session's zone.
        """
        env = self._sql.env

        def shown(offset: Any, oid: int, word: str) -> str:
            if not (offset.days or offset.months):
                return str(offset.us)
            sign = 1 if (word == "FOLLOWING") is not descending else -1

            def apart(moment: Any) -> int:
                other = add_zoned(env, moment, offset, sign)
                found: int = (other - moment) // _MICROSECOND
                return max(0, sign * found)

            name = ("range zoned", offset, sign)
            return self._sql.function(name, apart, [value], oids.INT8, "BIGINT", nothing=0).text

        return shown

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
            return Sql(d.primary(f"{name}(){over}"), expr.oid, kind)
        if name == "ntile":
            return Sql(d.cast(f"ntile({args[0].text}){over}", kind), expr.oid, kind)
        if name in _VALUED:
            return Sql(d.primary(f"{name}({args[0].text}){over}"), expr.oid, args[0].held)
        if name == "nth_value":
            place = expr.args[1]
            known = self._sql.constant(place) if self._sql.is_constant(place) else None
            if known is not None and known < 1:
                raise SqlError("22016", "argument of nth_value must be greater than zero")
            listed = ", ".join(arg.text for arg in args)
            return Sql(d.primary(f"nth_value({listed}){over}"), expr.oid, args[0].held)
        if name in _SHIFTED:
            if len(args) == 3:
                first, _, last = args
                first, last = self._sql.alike([first, last])
                args = [first, args[1], last]
            listed = ", ".join(arg.text for arg in args)
            return Sql(d.primary(f"{name}({listed}){over}"), expr.oid, args[0].held)
        raise unsupported(f"the window function {name}")

    # -- aggregates

    def _any(
        self, expr: Aggregate | Window, distinct: bool, order: Sequence[Order], over: str
    ) -> Sql:
        name = expr.proc.name
        where = "" if expr.filter is None else f" FILTER (WHERE {self._sql.text(expr.filter)})"
        suffix = where + over
        if expr.star:
            return Sql(d.primary(f"count(*){suffix}"), oids.INT8, "BIGINT")
        given = [self._filtered(expr, arg) for arg in expr.args]
        args = [self._sql.sql(arg) for arg in given]
        if distinct and any(isinstance(one, RowExpr) for one in expr.args):
            if name != "count":
                raise unsupported(f"{name}(DISTINCT …) of a row")
            args = [self._sql.row_key(arg) for arg in given]
        order = [replace(one, expr=self._filtered(expr, one.expr)) for one in order]
        if name in ("min", "max"):
            distinct = False  # the same
        word = "DISTINCT " if distinct else ""
        sorted_by = f" ORDER BY {self.order(order)}" if order else ""
        if distinct and len(order) == 1:  # it is the argument, perhaps before its conversion
            sorted_by = f" ORDER BY {self._sql.key(args[0])} {direction(order[0])}"
        elif distinct and name != "count":  # as they come out of the sort that tells them apart
            sorted_by = f" ORDER BY {self._sql.key(args[0])} ASC NULLS LAST"
        made = _Made(self._sql, expr.oid, args, word, sorted_by, suffix)
        many = [arg for arg in args if not arg.text.startswith("CAST('")]
        made.apart = distinct and (len(many) > 1 or self._sql.keyed(args[0]))
        made.exprs, made.rows = given, is_row(expr.args[0], name)
        handler = _HANDLERS.get(name)
        if handler is None:
            raise unsupported(f"the aggregate {name}({', '.join(map(_named, args))})")
        found: Sql = handler(made)
        return found

    def _filtered(self, expr: Aggregate | Window, arg: Expr) -> Expr:
        """An argument, which DuckDB computes before it looks at FILTER."""
        if expr.filter is None or not self._sql.raises(arg):
            return arg
        if isinstance(arg, RowExpr):
            return replace(arg, args=tuple(self._filtered(expr, one) for one in arg.args))
        return where_true([expr.filter], arg, self._sql.raises)

    def _ordered_set(self, expr: Aggregate) -> Sql:
        """WITHIN GROUP: of the sorted list of values that are not NULL."""
        name, value = expr.proc.name, self._sql.sql(self._filtered(expr, expr.args[0]))
        where = "" if expr.filter is None else f" FILTER (WHERE {self._sql.text(expr.filter)})"
        (order,) = expr.order if len(expr.order) == 1 else (None,)
        if order is None or name not in ("mode", "percentile_cont", "percentile_disc"):
            raise unsupported(f"the aggregate {name}")
        key: object = name
        fn: Callable[[list[object]], object] = statistics.mode
        if name != "mode":
            fraction = self._sql.constant(expr.direct[0])
            if isinstance(fraction, list) or (
                name == "percentile_cont" and value.oid != oids.FLOAT8
            ):
                raise unsupported(f"the aggregate {name} of several fractions, or of intervals")
            if fraction is None:
                return Sql(*_null(expr.oid))
            fn, key = statistics.percentile(name, fraction), (name, fraction)
        sorted_by = f"{self._sql.key(value)} {direction(order)}"
        text = d.primary(f"list({value.text} ORDER BY {sorted_by}){where}")
        listed = Sql(text, r.array_of(value.oid), value.held + "[]")
        return self._sql.function(
            key, lambda values: _kept(values, fn), [listed], expr.oid, value.held
        )


class _Made:
    """One call with its arguments rendered."""

    def __init__(
        self,
        expressions: Expressions,
        oid: int,
        args: list[Sql],
        word: str,
        order: str,
        suffix: str,
    ) -> None:
        self.sql, self.oid, self.args = expressions, oid, args
        self.word, self.order, self.suffix = word, order, suffix
        self.exprs: Sequence[Expr] = ()  # the arguments, after FILTER where they can raise
        self.rows = False  # the value is a whole row as JSON
        self.apart = False  # values are distinguished, and sorted, by keys of their own

    def call(self, name: str, *texts: str) -> Text:
        return d.primary(f"{name}({self.word}{', '.join(texts)}{self.order}){self.suffix}")

    @property
    def value(self) -> Sql:
        return self.args[0]

    def listed(self, at: int = 0) -> Sql:
        """All values of an argument as one list."""
        value = self.args[at]
        oid, kind = r.array_of(value.oid) or value.oid, value.held + "[]"
        if not self.apart:
            return Sql(self.call("list", value.text), oid, kind)
        parts = [f"'v{n}': {arg.text}" for n, arg in enumerate(self.args)]
        keys = [self.sql.key(arg) for arg in self.args]
        both = f"{{'k': [{', '.join(d.cast(key, TEXT) for key in keys)}], {', '.join(parts)}}}"
        rest = "".join(f", {key} ASC NULLS LAST" for key in keys[1:])
        every = d.primary(f"list({both}{self.order}{rest}){self.suffix}")
        first = d.infix("i", "=", "1")
        before = d.primary(f"{every}[i - 1].k")
        other = d.infix(before, "IS DISTINCT FROM", d.primary("e.k"))
        kept = d.call("list_filter", every, f"lambda e, i: {d.disjunction([first, other])}")
        return Sql(d.call("list_transform", kept, f"lambda e: e.v{at}"), oid, kind)

    def listed_as(self, one: Sql) -> Sql:
        """What became of each value, as one list."""
        return Sql(self.call("list", one.text), r.array_of(one.oid), one.held + "[]")

    def json_values(self, at: int) -> Sql:
        """The values of an argument, each made JSON, as one list of texts."""
        if not self.word:
            return self.listed_as(self.sql.sql(as_json(self.exprs[at])).of(oids.TEXT))
        # what is sorted and distinguished are the values
        value = self.args[at]
        one = self.sql.of_value(as_json(Column(oid=value.oid, index=0, name="value")))
        return self.sql.function(
            ("json values", value.oid),
            lambda values: [None if v is None else one(v) for v in values],
            [self.listed(at)],
            r.array_of(oids.TEXT),
            TEXT + "[]",
        )

    def over_list(self, name: str, fn: Callable[[list[object]], object]) -> Sql:
        """What a function makes of all values that are not NULL."""

        return self.sql.function(
            name, lambda values: _kept(values, fn), [self.listed()], self.oid, held(self.oid)
        )


def _kept(values: list[object], fn: Callable[[list[object]], object]) -> object:
    """NULL for nothing but NULLs."""
    kept = [value for value in values if value is not None]
    return fn(kept) if kept else None


def _null(oid: int) -> tuple[Text, int, str]:
    text, kind = forms.literal(None, oid)
    return text, oid, kind


def _count(made: _Made) -> Sql:
    counted = made.sql.key(made.value) if made.word else made.value.text
    return Sql(made.call("count", counted), oids.INT8, "BIGINT")


def _sum(made: _Made) -> Sql:
    value = made.value
    kind = value.oid
    if kind in (oids.INT2, oids.INT4):
        return Sql(d.cast(made.call("sum", value.text), "BIGINT"), made.oid, "BIGINT")
    if kind == oids.INT8:
        whole = forms.decimal(forms.DIGITS_MAX, 0)
        return Sql(d.cast(made.call("sum", value.text), whole), made.oid, whole)
    if kind == oids.FLOAT8:
        return Sql(made.call("sum", value.text), made.oid, "DOUBLE")
    if kind == oids.NUMERIC and (parts := decimal_of(value.held)) is not None:
        wide = forms.decimal(forms.DIGITS_MAX, parts[1])
        return Sql(d.cast(made.call("sum", value.text), wide), made.oid, wide)
    if kind == oids.NUMERIC:
        return made.over_list("sum of numeric", statistics.folded("numeric_add"))
    if kind == oids.INTERVAL:
        return made.over_list("sum of interval", statistics.folded("interval_pl"))
    if kind == oids.FLOAT4:
        return made.over_list("sum of real", statistics.folded("float4pl"))
    raise unsupported(f"sum({_named(value)})")


def _avg(made: _Made) -> Sql:
    value = made.value
    if value.oid in _FLOATS:
        text = made.sql.as_held(value, "DOUBLE").text
        return Sql(made.call("avg", text), made.oid, "DOUBLE")
    if value.oid in INTS or value.oid == oids.NUMERIC:
        divide = FUNCTIONS["numeric_div"].call
        count = Sql(made.call("count", value.text), oids.INT8, "BIGINT")
        total = _sum(_with_type(made, oids.NUMERIC if value.oid == oids.INT8 else value.oid))
        return made.sql.function(
            "avg",
            lambda total, count: divide(Decimal(total), Decimal(count)),
            [total, count],
            oids.NUMERIC,
            TEXT,
        )
    if value.oid == oids.INTERVAL:
        divide, add = FUNCTIONS["interval_div"].call, statistics.folded("interval_pl")
        return made.over_list("avg of interval", lambda v: divide(add(v), float(len(v))))
    raise unsupported(f"avg({_named(value)})")


def _with_type(made: _Made, oid: int) -> _Made:
    """The sum of an average: of int2 and int4 it is a bigint, of int8 a numeric."""
    result = oids.INT8 if made.value.oid in (oids.INT2, oids.INT4) else oids.NUMERIC
    return _Made(made.sql, result, made.args, made.word, made.order, made.suffix)


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
        if made.value.oid not in (oids.BOOL, *INTS):
            raise unsupported(f"{name}({_named(made.value)})")
        return Sql(made.call(name, made.value.text), made.oid, made.value.held)

    return call


def _variance(name: str, *, sample: bool, root: bool) -> Callable[[_Made], Sql]:
    def call(made: _Made) -> Sql:
        floats = made.value.oid in _FLOATS
        make = statistics.float_variance if floats else statistics.exact_variance
        fn: Callable[[list[Any]], object] = make(sample=sample, root=root)
        return made.over_list(f"{name} {floats}", fn)

    return call


def _regression(name: str) -> Callable[[_Made], Sql]:
    fn = statistics.regression(name)

    def call(made: _Made) -> Sql:
        def of(ys: list[Any], xs: list[Any]) -> object:
            pairs = [(y, x) for y, x in zip(ys, xs, strict=True) if y is not None and x is not None]
            return fn(pairs)

        if made.word:
            raise unsupported(f"{name}(DISTINCT …)")
        lists = [
            Sql(
                d.call("coalesce", made.call("list", arg.text), "[]"),
                r.array_of(arg.oid),
                "DOUBLE[]",
            )
            for arg in made.args
        ]
        return made.sql.function(name, of, lists, made.oid, held(made.oid))

    return call


def _json(made: _Made, *, binary: bool) -> Sql:
    lines = made.rows or r.element_of(made.value.oid)
    between = ", \n " if lines else ", "
    fn = statistics.json_list(between, binary=binary)
    return made.sql.function(
        ("json_agg", binary, bool(lines)), fn, [made.json_values(0)], made.oid, TEXT
    )


def _json_object(made: _Made, *, binary: bool) -> Sql:
    fn = partial(statistics.json_object, binary=binary)
    parts = [made.json_values(at) for at in (0, 1)]
    return made.sql.function(("json_object", binary), fn, parts, made.oid, TEXT)


def _string_agg(made: _Made) -> Sql:
    value, separator = made.args
    if value.oid not in _TEXTS or not separator.text.startswith("CAST('"):
        raise unsupported(f"string_agg({_named(value)}) with a separator that is no constant")
    return Sql(made.call("string_agg", value.text, separator.text), made.oid, TEXT)


def _array_agg(made: _Made) -> Sql:
    listed = made.listed()
    if not r.element_of(made.value.oid):
        return Sql(listed.text, made.oid, listed.held)
    return nested(made.sql, listed)


def nested(expressions: Expressions, listed: Sql) -> Sql:
    """The array that a list of arrays is; of nothing as it is. Raises SqlError when it runs."""

    def checked(values: list[Any]) -> list[object]:
        for one in values:
            if one is None:
                raise SqlError("22004", "cannot accumulate null arrays")
            if not one:
                raise SqlError("2202E", "cannot accumulate empty arrays")
            if len(one) != len(values[0]):
                raise SqlError("2202E", "cannot accumulate arrays of different dimensionality")
        return values

    return expressions.function("nested array", checked, [listed], listed.oid, listed.held)


def _span(value: Interval) -> int:
    return int(value.span)


def _fixed(value: Decimal) -> Decimal:
    """As what DuckDB adds to without loss."""
    found = EXACT.quantize(value, _RANGE_STEP) if value.is_finite() else value
    if found != value or abs(found) >= 10 ** (forms.DIGITS_MAX - _RANGE_SCALE):
        raise unsupported(
            f"RANGE with an offset over the numeric {value}",
            hint=f"Cast the value to numeric(p,s), with at most {_RANGE_SCALE} digits after the "
            "point.",
        )
    return found


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
    "json_agg": partial(_json, binary=False),
    "jsonb_agg": partial(_json, binary=True),
    "json_object_agg": partial(_json_object, binary=False),
    "jsonb_object_agg": partial(_json_object, binary=True),
    **{
        name: _variance(name, sample=not name.endswith("pop"), root=name.startswith("stddev"))
        for name in ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")
    },
    **{name: _regression(name) for name in statistics.REGRESSIONS},
}
