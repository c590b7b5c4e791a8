"""What a sample of a table's rows says of all of them (PostgreSQL's pg_statistic), and how many
rows a way or a condition means by that. Pure.

Of each column: the share of NULLs, the width, how many values differ, the commonest values with
their shares, and bounds between which the others lie in equal numbers. Of each key of the table the
same bounds of its entries, as bytes: so a range of any kind, over several columns, too, is
estimated in one way. Values are kept as an index would order them, cut to a length, and as text.

Sources: PostgreSQL's analyze.c (how many values differ is Haas and Stokes's estimate, as there).
Deliberately missing: correlation of columns, and elements of arrays.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from kv.base.limits import SQL_STATISTICS_KEY_ROWS, SQL_STATISTICS_TARGET
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import (
    AnyAll,
    Call,
    Const,
    Expr,
    IsNull,
    Logic,
    bare,
    walk,
)
from sqlproxy.front.bound.exprs import (
    Column as ColumnExpr,
)
from sqlproxy.front.bound.statements import SubQuery
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.functions.f_text import output
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows.keys import unordered
from sqlproxy.rows.schema import PUBLIC, Column, Table
from sqlproxy.tables.access import Access, like_prefix
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.spans import Component, Spans
from sqlproxy.values.errors import SqlError

_WIDTHS: Final[Mapping[str, int]] = {
    "bool": 1,
    "int2": 2,
    **dict.fromkeys(("int4", "float4", "date"), 4),
    **dict.fromkeys(("int8", "float8", "time", "timestamp", "timestamptz"), 8),
    **dict.fromkeys(("uuid", "interval"), 16),
}
_WIDTH: Final = 32  # of others, as long as nothing is known
_BYTES: Final = 64  # of a value as an index orders it; what is longer is cut
_CHARS: Final = 256  # … and of its text
_WIDE: Final = 1_024  # what is longer is no common value, as in PostgreSQL
_EQUAL: Final = 0.005  # PostgreSQL's shares of rows where nothing is known: of `=`, …
_RANGE: Final = 1 / 3  # … of `<`, …
_OTHER: Final = 1 / 3  # … of anything else
_ROWS: Final = 1_000  # of a table of which nothing is known
PAGE_BYTES: Final = 8_192  # as PostgreSQL counts


class Known(NamedTuple):
    """A value: as an index orders it, and its text."""

    key: bytes
    text: str


@dataclass(frozen=True, slots=True)
class OfColumn:
    """`distinct`: as PostgreSQL's n_distinct: below 0 it is a share of the rows."""

    nulls: float
    width: int
    distinct: float
    common: tuple[Known, ...] = ()
    shares: tuple[float, ...] = ()
    bounds: tuple[Known, ...] = ()

    def count(self, rows: float) -> float:
        """How many values differ."""
        return max(1.0, -self.distinct * rows if self.distinct < 0 else self.distinct)

    def equal(self, key: bytes | None, rows: float) -> float:
        """The share of rows with a value; None: of one that is not known."""
        left = max(0.0, 1 - self.nulls - sum(self.shares))
        if key is not None:
            for one, share in zip(self.common, self.shares, strict=True):
                if one.key == key:
                    return share
        others = max(1.0, self.count(rows) - len(self.common))
        if key is None and self.shares:
            return (1 - self.nulls) / self.count(rows)
        return left / others

    def below(self, key: bytes, *, inclusive: bool) -> float:
        """The share of rows whose value is less."""
        found = sum(
            share
            for one, share in zip(self.common, self.shares, strict=True)
            if one.key < key or (inclusive and one.key == key)
        )
        left = max(0.0, 1 - self.nulls - sum(self.shares))
        if self.bounds:
            found += left * _place([one.key for one in self.bounds], key)
        elif left:
            found += left * _RANGE
        return min(1.0, found)


def _place(bounds: Sequence[bytes], key: bytes) -> float:
    """The share of what lies between bounds that is below a key."""
    at = bisect_left(bounds, key)
    if not 0 < at < len(bounds):
        return float(at > 0)
    low, high = bounds[at - 1], bounds[at]
    alike = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    first, last, own = (
        int.from_bytes(one[alike : alike + 8].ljust(8, b"\x00")) for one in (low, high, key)
    )
    return (at - 1 + (own - first) / max(1, last - first)) / (len(bounds) - 1)


@dataclass(frozen=True, slots=True)
class OfKey:
    """`part`: the share of rows that have an entry; `bounds`: of the entries' keys, in order."""

    part: float
    bounds: tuple[bytes, ...]

    def between(self, start: bytes, end: bytes) -> int:
        """How many bounds lie in `[start, end)`; end b"" = no bound."""
        last = bisect_left(self.bounds, end) if end else len(self.bounds)
        return max(0, last - bisect_left(self.bounds, start))


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """`version`: of the table's declaration; `columns` and `keys` (0: the primary key's) by id."""

    rows: int
    size: int
    at_ms: int
    version: int
    columns: Mapping[int, OfColumn] = field(default_factory=dict)
    keys: Mapping[int, OfKey] = field(default_factory=dict)


class Estimates(Protocol):
    """Who knows statistics, as of some minutes ago."""

    def of(self, table: Table) -> TableStatistics | None:
        """None: they were not made, or have to be read first."""
        ...


# -- from a sample


def gathered(
    table: Table,
    keys: Sequence[bytes],
    sample: Sequence[Sequence[Any]],
    *,
    rows: int,
    size: int,
    at_ms: int,
    only: Collection[int] | None = None,
    before: TableStatistics | None = None,
) -> TableStatistics:
    """`keys` (user keys) and `sample`: rows in the order of the primary key, `rows`: how many there
    are. `only`: the ids of the columns that are looked at, the others stay as they were `before`.
    """
    columns = {
        column.id: _of_column(column, [row[at] for row in sample], rows)
        for at, column in enumerate(table.columns)
        if only is None or column.id in only
    }
    if only is not None and before is not None:
        columns = {**before.columns, **columns}
    stride = -(-len(sample) // SQL_STATISTICS_KEY_ROWS) or 1
    found = {0: OfKey(1.0, _cut(list(keys)))}
    for index in table.indexes:
        if index.state == PUBLIC:
            of = index_codec(table, index)
            some = sample[::stride]
            has = [row for row in some if of.had(row)]
            entries = sorted(of.entry(row)[0] for row in has)
            found[int(index.id)] = OfKey(len(has) / len(some) if some else 1.0, _cut(entries))
    return TableStatistics(rows, size, at_ms, table.version, columns, found)


def _cut(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """Bounds between which there are equally many."""
    count = min(len(keys), SQL_STATISTICS_TARGET + 1)
    if count < 2:
        return tuple(key[:_BYTES] for key in keys)
    return tuple(keys[at * (len(keys) - 1) // (count - 1)][:_BYTES] for at in range(count))


def _of_column(column: Column, values: Sequence[Any], rows: int) -> OfColumn:
    there = [value for value in values if value is not None]
    nulls = 1 - len(there) / len(values) if values else 0.0
    kind = column.resolved
    text = output(by_name(column.type)[0].oid, DEFAULT)
    width = _WIDTHS.get(kind.base if kind.element is None else "", 0)
    if not width and there:
        some = there[:: -(-len(there) // 1_000)]
        width = 1 + sum(len(text(value).encode()) for value in some) // len(some)
    if not there:
        return OfColumn(nulls, width or _WIDTH, 0.0)
    if unordered(kind):
        differ = Counter(text(value)[:_CHARS] for value in there)
        return OfColumn(nulls, width, _distinct(differ, len(there), rows, nulls))
    bytes_of = Component(kind).bytes_of
    of: dict[bytes, Any] = {}
    counts: Counter[bytes] = Counter()
    for value in there:
        key = bytes_of(value)
        counts[key] += 1
        of.setdefault(key, value)
    distinct = _distinct(counts, len(there), rows, nulls)
    common = _commonest(counts, len(values), distinct)
    rest = sorted(key for key in counts if key not in common and len(key) <= _WIDE)
    bounds: list[bytes] = []
    if (most := min(len(rest), SQL_STATISTICS_TARGET + 1)) >= 2:
        places = [key for key in rest for _ in range(counts[key])]
        bounds = [places[at * (len(places) - 1) // (most - 1)] for at in range(most)]

    def known(key: bytes) -> Known:
        return Known(key[:_BYTES], text(of[key])[:_CHARS])

    return OfColumn(
        nulls,
        width,
        distinct,
        tuple(known(key) for key in common),
        tuple(counts[key] / len(values) for key in common),
        tuple(known(key) for key in bounds),
    )


def _distinct(counts: Counter[Any], sampled: int, rows: int, nulls: float) -> float:
    """n_distinct."""
    differ, often = len(counts), sum(count > 1 for count in counts.values())
    total = max(float(sampled), rows * (1 - nulls))
    if not often and sampled > 1:  # a key, perhaps
        return -(1 - nulls)
    if often == differ or sampled >= total:
        found = float(differ)
    else:
        once = differ - often
        found = sampled * differ / (sampled - once + once * sampled / total)
        found = math.floor(min(max(found, differ), total) + 0.5)
    return -found / rows if rows and found > 0.1 * rows else found


def _commonest(counts: Counter[bytes], sampled: int, distinct: float) -> list[bytes]:
    """The values that are worth to be remembered, the commonest first."""
    fits = [(count, key) for key, count in counts.items() if len(key) <= _WIDE]
    fits.sort(key=lambda one: (-one[0], one[1]))
    top = fits[:SQL_STATISTICS_TARGET]
    if len(counts) == len(top) and distinct > 0:
        return [key for _, key in top]
    usual = sampled / max(1, len(counts))
    least = max(2.0, min(usual * 1.25, sampled / SQL_STATISTICS_TARGET))
    return [key for count, key in top if count >= least]


# -- estimates


def entries_of(known: TableStatistics, access: Access, spans: Spans) -> float:
    """How many entries of a key a way reads, beside those of the ways beside it."""
    total = float(known.rows)
    if spans.points:
        return min(float(len(spans.points)), total)
    of = known.keys.get(0 if access.index is None else int(access.index.id), OfKey(1.0, ()))
    total *= of.part
    if access.whole:
        return total
    least = min(access.stretches, key=lambda one: len(one.given))
    values = 1.0
    for number in access.components[: len(least.given)]:
        column = known.columns.get(number)
        values *= column.count(total) if column is not None else 1 / _EQUAL
    each = total / min(max(values, 1.0), max(total, 1.0))
    found = 0.0
    for span in spans.ranges:
        inside = of.between(span.start, span.end)
        if inside >= 2:
            found += total * inside / len(of.bounds)
        else:
            found += min(each, total / max(1, len(of.bounds) - 1)) if of.bounds else each
    return min(total, found)


def together(
    known: TableStatistics | None, table: Table, conditions: Sequence[Expr], env: Env
) -> float:
    """The share of rows for which all conditions are true. Both ends of a range belong together."""
    found = 1.0
    ends: dict[int, dict[str, float]] = {}
    for one in conditions:
        share = selectivity(known, table, one, env)
        end = _end(table, one)
        if end is None:
            found *= share
        else:
            of = ends.setdefault(end[0], {})
            of[end[1]] = min(share, of.get(end[1], 1.0))
    for number, of in ends.items():
        if len(of) == 2:
            column = None if known is None else known.columns.get(number)
            nulls = 0.0 if column is None else column.nulls
            between = of["<"] + of[">"] + nulls - 1
            found *= between if column is not None and between > 0 else _EQUAL
        else:
            found *= next(iter(of.values()))
    return found


def _end(table: Table, expr: Expr) -> tuple[int, str] | None:
    """The column of which a condition is one end of a range, and which."""
    match expr:
        case Call(operator=operator, args=(left, right)) if operator in _COMPARED:
            for one, way in ((left, operator), (right, _COMPARED[operator])):
                _, column = _column(None, table, one)
                if column is not None and way != "=":
                    return column.id, way[0]
        case _:
            pass
    return None


def selectivity(known: TableStatistics | None, table: Table, expr: Expr, env: Env) -> float:
    """The share of rows for which a condition is true."""
    match expr:
        case Logic(op="and", args=args):
            return together(known, table, args, env)
        case Logic(op="or", args=args):
            return 1 - math.prod(1 - selectivity(known, table, one, env) for one in args)
        case Logic(op="not", args=(arg,)):
            return 1 - selectivity(known, table, arg, env)
        case IsNull(arg=arg, negated=negated):
            of, _ = _column(known, table, arg)
            nulls = _EQUAL if of is None else of.nulls
            return 1 - nulls if negated else nulls
        case AnyAll(all=False, test=Call(operator="=", args=(left, _))):
            of, column = _column(known, table, left)
            values = _value(expr.array, env)
            listed = values if isinstance(values, list) else [None] * 10
            each = (_equal(known, of, column, one) for one in listed)
            return min(1.0, sum(each))
        case Call(operator=operator, args=(left, right)) if operator in _COMPARED:
            of, column = _column(known, table, left)
            if of is None:
                of, column = _column(known, table, right)
                left, right, operator = right, left, _COMPARED[operator]
            if operator == "=":
                return _equal(known, of, column, _value(right, env))
            return _less(of, column, operator, _value(right, env))
        case Call(operator="<>", args=(left, right)):
            of, column = _column(known, table, left)
            return max(0.0, 1 - _equal(known, of, column, _value(right, env)))
        case Call(operator="~~", args=(left, Const(value=str(pattern)))):
            of, _ = _column(known, table, left)
            return _EQUAL if of is None else _beginning(of, like_prefix(pattern))
        case Call(operator=operator) if operator in ("~~", "~~*", "~", "~*"):
            return _EQUAL
        case _:
            return _OTHER


_COMPARED: Final[Mapping[str, str]] = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _beginning(of: OfColumn, prefix: str) -> float:
    """The share of rows whose text begins so; "" says nothing."""
    if not prefix:
        return _EQUAL
    found = sum(
        share
        for one, share in zip(of.common, of.shares, strict=True)
        if one.text.startswith(prefix)
    )
    left = max(0.0, 1 - of.nulls - sum(of.shares))
    if of.bounds:
        found += left * sum(one.text.startswith(prefix) for one in of.bounds) / len(of.bounds)
    return max(found, _EQUAL) if of.bounds else found


def _column(
    known: TableStatistics | None, table: Table, expr: Expr
) -> tuple[OfColumn | None, Column | None]:
    """The column of the table that this is."""
    expr = bare(expr)
    if not isinstance(expr, ColumnExpr) or expr.level or expr.table != table.id:
        return None, None
    found = next((one for one in table.columns if one.id == expr.attribute), None)
    return (None if known is None else known.columns.get(expr.attribute)), found


def _value(expr: Expr, env: Env) -> Any:
    """What an expression without columns is; None: that is not known, or NULL."""
    if any(isinstance(one, ColumnExpr | SubQuery) for one in walk(expr)):
        return None
    try:
        return compile(expr).fn((), env)
    except (SqlError, LookupError):
        return None


def _key(column: Column | None, value: Any) -> bytes | None:
    if column is None or value is None or unordered(column.resolved):
        return None
    try:
        return Component(column.resolved).bytes_of(value)[:_BYTES]
    except (ValueError, TypeError):
        return None


def _equal(
    known: TableStatistics | None, of: OfColumn | None, column: Column | None, value: Any
) -> float:
    if of is None or known is None:
        return _EQUAL
    return of.equal(_key(column, value), max(1, known.rows))


def _less(of: OfColumn | None, column: Column | None, operator: str, value: Any) -> float:
    key = _key(column, value)
    if of is None or key is None:
        return _RANGE
    if operator[0] == "<":
        return of.below(key, inclusive=operator == "<=")
    return max(0.0, 1 - of.nulls - of.below(key, inclusive=operator == ">"))


def width(known: TableStatistics | None, columns: Sequence[Column]) -> int:
    """Of a row of these columns."""
    found = 0
    for column in columns:
        of = None if known is None else known.columns.get(column.id)
        kind = column.resolved
        own = _WIDTHS.get(kind.base if kind.element is None else "", _WIDTH)
        found += own if of is None else of.width
    return found


def rows_of(known: TableStatistics | None) -> float:
    """All rows, as far as is known."""
    return float(_ROWS if known is None else known.rows)


# -- as they are stored


def to_row(one: TableStatistics) -> list[object]:
    """As a list of what msgpack takes."""
    return [
        *(one.rows, one.size, one.at_ms, one.version),
        [
            [number, *(c.nulls, c.width, c.distinct, c.common, c.shares, c.bounds)]
            for number, c in one.columns.items()
        ],
        [[number, key.part, key.bounds] for number, key in one.keys.items()],
    ]


def from_row(row: Sequence[Any]) -> TableStatistics:
    """What `to_row` gave; a longer one is of a later version."""
    rows, size, at_ms, version, columns, keys = row[:6]
    return TableStatistics(
        *(rows, size, at_ms, version),
        {
            number: OfColumn(
                *(nulls, wide, distinct),
                tuple(Known(*known) for known in common),
                tuple(shares),
                tuple(Known(*known) for known in bounds),
            )
            for number, nulls, wide, distinct, common, shares, bounds, *_ in columns
        },
        {number: OfKey(part, tuple(bounds)) for number, part, bounds, *_ in keys},
    )
