"""A bound expression → DuckDB SQL.

Each node is rendered if DuckDB does it exactly as PostgreSQL (`_NATIVE` and the methods here). Any
other becomes one function in Python: the closure that `front.closures.compiling` makes of it, with
the parts that need more than a row (columns, aggregates, windows, subqueries) as its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sqlproxy.analytic import forms, moments
from sqlproxy.analytic.forms import TEXT, decimal_of, held, literal
from sqlproxy.analytic.functions import Functions, Shape
from sqlproxy.analytic.guarding import logic, where_true
from sqlproxy.analytic.json_keys import sort_key
from sqlproxy.duck import ducktext as d
from sqlproxy.duck.ducktext import Text
from sqlproxy.front.bound.env import Env, Wanting
from sqlproxy.front.bound.exprs import (
    TAKING,
    Among,
    AnyAll,
    ArrayExpr,
    Call,
    Case,
    CaseValue,
    Cast,
    Coalesce,
    Column,
    Const,
    Distinct,
    Expr,
    IsBool,
    IsNull,
    Length,
    Logic,
    MinMax,
    NullIf,
    RowCompare,
    parts_of,
    walk,
)
from sqlproxy.front.bound.folding import of_subject, opaque, rebuilt, volatile
from sqlproxy.front.bound.statements import SubQuery
from sqlproxy.front.closures.compiling import Fn, compile, fold
from sqlproxy.front.closures.gathering import gathered
from sqlproxy.front.functions.formatting import timestamp_text
from sqlproxy.front.functions.object_names import HELD_AS_OIDS
from sqlproxy.front.stages.sequence_stages import correlated
from sqlproxy.front.types import registry as r
from sqlproxy.front.types import resolve
from sqlproxy.pg import oids, zones
from sqlproxy.pg.datetimes import in_zone
from sqlproxy.rows import keys
from sqlproxy.values import enums
from sqlproxy.values.errors import SqlError, unsupported
from sqlproxy.values.words import words

INTS: Final = frozenset((oids.INT2, oids.INT4, oids.INT8))
_TEXTS: Final = frozenset((oids.TEXT, oids.VARCHAR, oids.NAME))
_COMPARED: Final = (
    INTS | {oids.OID, *HELD_AS_OIDS},
    frozenset((oids.FLOAT4, oids.FLOAT8)),
    _TEXTS,
    frozenset((oids.CHAR,)),
    frozenset((oids.BOOL,)),
    frozenset((oids.DATE, oids.TIMESTAMP)),
    frozenset((oids.TIMESTAMPTZ,)),
    frozenset((oids.TIME,)),
    frozenset((oids.UUID,)),
    frozenset((oids.TID,)),
    frozenset((oids.XID, oids.INT4)),
    frozenset((oids.CID,)),
    frozenset((oids.BYTEA,)),
    frozenset((oids.INTERVAL,)),
)
"""Types that DuckDB compares as PostgreSQL, each with those of its set."""
_OPERATORS: Final = frozenset(("=", "<>", "<", "<=", ">", ">="))
_INT_WORDS: Final = {"+": "+", "-": "-", "*": "*", "/": "//", "%": "%"}
_LISTED_MAX: Final = 16  # values that are written into the text; DuckDB reads a table quicker
_WRITTEN_CHARS_MAX: Final = 4_096  # of one value
PARTS_MAX: Final = 4  # of a row in a set: each doubles the set
_TRUNCATED: Final = words("second minute hour day week month quarter year")
_EXTRACTED: Final = words("minute hour day dow isodow doy week month quarter year")
_DAY: Final = r"YYYY|YY|IYYY|MM|MON|MONTH|DD|DDD|D|ID|DY|DAY|Q|IW|WW|FM|TH|[-/ .:,_]"
_MONTH: Final = r"YYYY|YY|MM|MON|MONTH|Q|FM|TH|[-/ .:,_]"
_SHOWN: Final = (
    ("month", re.compile(f"(?:{_MONTH})+", re.IGNORECASE)),
    ("day", re.compile(f"(?:{_DAY})+", re.IGNORECASE)),
    ("hour", re.compile(f"(?:{_DAY}|HH24|HH12|HH)+", re.IGNORECASE)),
    ("minute", re.compile(f"(?:{_DAY}|HH24|HH12|HH|MI)+", re.IGNORECASE)),
)
"""What patterns of to_char show at most."""
_CONSTANT_LAST: Final = ("timestamp_to_char", "text_left", "text_right")
_OF_TWO: Final = (*_CONSTANT_LAST, "timestamp_trunc", "extract_timestamp", "timestamp_zone")
_UTC: Final = ("UTC", "Etc/UTC")
_DIGITS: Final = {oids.INT2: 5, oids.INT4: 10, oids.INT8: 19}


@dataclass(frozen=True, slots=True)
class Sql:
    """DuckDB SQL of one value, and how the value is held."""

    text: Text
    oid: int
    held: str

    @property
    def shape(self) -> Shape:
        return Shape(self.oid, self.held)

    def of(self, oid: int) -> Sql:
        """The same as a value of another type."""
        return Sql(self.text, oid, self.held)


@dataclass(frozen=True, slots=True)
class Apart:
    """An expression as `fn` of a row of what DuckDB computes, its `inputs`; `probe` is the
    expression of that row.
    """

    expr: Expr
    probe: Expr
    fn: Fn
    inputs: tuple[Sql, ...]


class Around(Protocol):
    """What an expression stands in: the query that is rendered."""

    functions: Functions
    env: Env

    def column(self, column: Column) -> Sql: ...

    def aggregate(self, expr: Expr) -> Sql: ...

    def subquery(self, expr: SubQuery) -> Sql: ...

    def set_returned(self, call: Call) -> Sql:
        """One value of the set; the others are in rows of their own."""
        ...

    def elements(self, rows: Sequence[Sequence[object]], types: Sequence[int]) -> str:
        """A table with these rows."""
        ...

    def grouped(self, expr: Expr) -> Sql | None:
        """What stands for an expression that is grouped by."""
        ...

    def raises(self, expr: Expr) -> bool:
        """Whether computing it can raise."""
        ...


class Expressions:
    """Renders the expressions of one query."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._functions, self.env = around.functions, around.env
        self._subjects: list[Sql] = []  # of CASE, innermost last
        self.guards: list[Expr] = []
        """What is true wherever the value of the part at hand is looked at: of CASE, AND, …"""

    def sql(self, expr: Expr) -> Sql:
        """Raises SqlError: 0A000 for what neither DuckDB nor a closure can do."""
        if (found := self._around.grouped(expr)) is not None:
            return found
        if opaque(expr):
            return self._opaque(expr)
        if self.is_constant(expr):
            return self._folded(expr)
        native = _NATIVE.get(type(expr))
        made = native(self, expr) if native is not None else None
        return made if made is not None else self._closure(expr)

    def raises(self, expr: Expr) -> bool:
        return self._around.raises(expr)

    def text(self, expr: Expr) -> Text:
        return self.sql(expr).text

    # -- constants, and what a row does not have

    def is_constant(self, expr: Expr) -> bool:
        return not (any(map(opaque, walk(expr))) or of_subject(expr) or volatile(expr))

    def _folded(self, expr: Expr) -> Sql:
        try:
            value = compile(expr).fn((), self.env)
        except SqlError as error:
            if error.sqlstate == "0A000":
                raise
            # it fails when it is reached, not before
            return self._closure(expr)
        if _is_large(value):
            table = self._around.elements([(value,)], (expr.oid,))
            return Sql(d.primary(f"(SELECT c0 FROM {table})"), expr.oid, held(expr.oid))
        return Sql(*_literal(value, expr.oid))

    def constant(self, expr: Expr) -> Any:
        """Its value. Raises SqlError: it is none."""
        if isinstance(expr, Const):
            return expr.value
        if not self.is_constant(expr):
            raise unsupported("an expression here that is not constant")
        return compile(expr).fn((), self.env)

    def of_value(self, expr: Expr) -> Callable[[object], object]:
        """An expression of one value, which is its column 0, in Python."""
        fn, env = compile(expr).fn, self.env
        return lambda value: fn((value,), env)

    def _opaque(self, expr: Expr) -> Sql:
        match expr:
            case Column():
                return self._around.column(expr)
            case SubQuery():
                return self._around.subquery(expr)
            case Call():
                return self._around.set_returned(expr)
            case _:
                return self._around.aggregate(expr)

    def _case_value(self, expr: CaseValue) -> Sql:
        return self._subjects[-1]

    # -- closures

    def _closure(self, expr: Expr) -> Sql:
        """By a function in Python."""
        part = self.apart(expr)
        return self.called(part, part.inputs)

    def called(self, part: Apart, inputs: Sequence[Sql]) -> Sql:
        """The same of what is apart already, and its inputs by the names that they have now."""
        expr, probe, fn, env = part.expr, part.probe, part.fn, self.env
        result = Shape(expr.oid, _result(expr))
        shapes = tuple(one.shape for one in inputs)
        arguments: list[str] = [one.text for one in inputs]
        if not inputs:  # a function has at least one argument
            shapes, arguments = (Shape(oids.INT4, "INTEGER"),), ["CAST(0 AS INTEGER)"]
        name = self._functions.add(
            (_key(probe), shapes),
            lambda row: fn(row, env),
            shapes,
            result,
            volatile=volatile(probe),
        )
        return Sql(d.call(name, *arguments), expr.oid, result.held)

    def apart(self, expr: Expr) -> Apart:
        """Its closure, and what DuckDB computes for that."""
        inputs: list[Sql] = []
        known: dict[object, Column] = {}
        subjects = len(self._subjects)

        def replaced(part: Expr) -> Expr | None:
            outside = isinstance(part, CaseValue) and subjects and self._is_subject(part, expr)
            apart = opaque(part) or (part is not expr and _guards_subquery(part))
            if not outside and not apart and self._around.grouped(part) is None:
                return None
            key = _key(part)
            if key not in known:
                sql = self._subjects[-1] if outside else self.sql(part)
                known[key] = Column(
                    oid=part.oid, typmod=part.typmod, index=len(inputs), name="input"
                )
                inputs.append(sql)
            return known[key]

        probe = rebuilt(expr, replaced)
        compiled = compile(probe)
        if compiled.numbered:
            calls = (one for one in walk(probe) if isinstance(one, Call))
            wants = next((one.proc.name for one in calls if one.proc.source in TAKING), "")
            raise Wanting("", what=wants)
        return Apart(expr, probe, compiled.fn, tuple(inputs))

    @staticmethod
    def _is_subject(part: CaseValue, whole: Expr) -> bool:
        """Whether the value around comes from outside of `whole`."""
        return not any(
            isinstance(one, AnyAll)
            or (isinstance(one, Case) and one.arg is not None)
            or (isinstance(one, Cast) and one.how == "array")
            for one in walk(whole)
        )

    def function(
        self,
        key: object,
        fn: Callable[..., object],
        arguments: Sequence[Sql],
        oid: int,
        held_as: str,
        *,
        nothing: object = None,
        by_column: Callable[[pa.Array], pa.Array | None] | None = None,
    ) -> Sql:
        """A call of a function of values in user form; `nothing` for a NULL. `by_column`: the same
        of a whole column; None: it has to be value by value.
        """

        def strict(row: Sequence[object]) -> object:
            return nothing if None in row else fn(*row)

        shapes = tuple(one.shape for one in arguments)

        def whole(column: pa.Array, _: object) -> pa.Array | None:
            return None if by_column is None else by_column(column)

        name = self._functions.add(
            (key, shapes),
            strict,
            shapes,
            Shape(oid, held_as),
            by_column=None if by_column is None else whole,
        )
        return Sql(d.call(name, *(one.text for one in arguments)), oid, held_as)

    # -- keys: what is equal, and sorts, as PostgreSQL has it

    def keyed(self, value: Sql) -> bool:
        """Whether equality and order are not those of how it is held."""
        oid = r.element_of(value.oid) or value.oid
        if oid == oids.NUMERIC:
            return decimal_of(value.held) is None
        return oid in (oids.BPCHAR, oids.JSONB) or (oid == oids.RECORD and value.held == TEXT)

    def key(self, value: Sql) -> Text:
        """What sorts, and is equal, as the value."""
        if not self.keyed(value):
            return value.text
        match value.oid:
            case oids.NUMERIC:
                encode = keys.encoder("numeric")
                made = self.function(
                    "numeric key", lambda v: encode(format(v, "f")), [value], oids.BYTEA, "BLOB"
                )
                return made.text
            case oids.BPCHAR:
                return d.call("rtrim", value.text, "' '")
            case oids.JSONB:
                return self.function("jsonb key", sort_key, [value], oids.BYTEA, "BLOB").text
            case _:
                raise unsupported(f"comparing values of type {r.format_type(value.oid)} here")

    def keys(self, expr: Expr) -> list[Text]:
        """What sorts, and is equal, as an expression's values: of a row, one column after the
        other.
        """
        return [self.key(self.sql(part)) for part in parts_of(expr)]

    def row_key(self, expr: Expr) -> Sql:
        """The same as one value, which is never NULL."""
        return Sql(_packed(self.keys(expr)), oids.RECORD, "STRUCT")

    # -- conversions between the ways that values are held

    @staticmethod
    def as_held(value: Sql, kind: str) -> Sql:
        if value.held == kind:
            return value
        return Sql(d.cast(value.text, kind), value.oid, kind)

    def alike(self, values: Sequence[Sql]) -> list[Sql]:
        """All held in one way: numerics of several scales as text."""
        kinds = {value.held for value in values}
        if len(kinds) <= 1:
            return list(values)
        kind = TEXT if not values[0].held.endswith("[]") else TEXT + "[]"
        return [self.as_held(value, kind) for value in values]

    # -- logic

    def _logic(self, expr: Logic) -> Sql:
        if expr.op == "not":
            return _bool(d.negation(self.text(expr.args[0])))
        sets = gathered(expr, fold)
        if not isinstance(sets, Logic):
            return self.sql(sets)
        first, guard, rest = logic(sets, self.raises)
        parts = [self.text(arg) for arg in first]
        if guard is not None and rest is not None:
            with self._guarded(guard):
                parts.append(d.case([(self.text(guard), self.text(rest))]))
        return _bool(d.conjunction(parts) if expr.op == "and" else d.disjunction(parts))

    @contextmanager
    def _guarded(self, *guards: Expr) -> Iterator[None]:
        """Where these are true."""
        kept = len(self.guards)
        self.guards += [
            where_true(self.guards, one, self.raises) if self.raises(one) else one for one in guards
        ]
        try:
            yield
        finally:
            del self.guards[kept:]

    def _is_null(self, expr: IsNull) -> Sql:
        return _bool(d.test(self.text(expr.arg), "IS NOT NULL" if expr.negated else "IS NULL"))

    def _is_bool(self, expr: IsBool) -> Sql:
        word = {True: d.TRUE, False: d.FALSE, None: d.null("BOOLEAN")}[expr.value]
        how = "IS DISTINCT FROM" if expr.negated else "IS NOT DISTINCT FROM"
        return _bool(d.infix(self.text(expr.arg), how, word))

    def _distinct(self, expr: Distinct) -> Sql | None:
        if not isinstance(expr.equal, Call):
            return None
        pair = self._compared(*expr.equal.args)
        if pair is None:
            return None
        how = "IS NOT DISTINCT FROM" if expr.negated else "IS DISTINCT FROM"
        return _bool(d.infix(pair[0], how, pair[1]))

    def _null_if(self, expr: NullIf) -> Sql | None:
        if not isinstance(expr.equal, Call):
            return None
        pair = self._compared(*expr.equal.args)
        value = self.sql(expr.left)
        if pair is None:
            return None
        same = d.infix(pair[0], "=", pair[1])
        return Sql(d.case([(same, "NULL")], value.text), value.oid, value.held)

    def hoisted(self, expr: Expr) -> Sql:
        """A value that is looked for in a query: DuckDB computes it for all rows."""
        if not self.guards or not self.raises(expr):
            return self.sql(expr)
        kept, self.guards = self.guards, []  # a guard that is rendered has none but its own
        try:
            return self.sql(where_true(kept, expr, self.raises))
        finally:
            self.guards = kept

    def _case(self, expr: Case) -> Sql:
        subject = None if expr.arg is None else self.sql(expr.arg)
        conditions: list[Text] = []
        results: list[Sql] = []
        passed: list[Expr] = []  # that the conditions before are not true
        for condition, result in expr.whens:
            meant = _of_subject(condition, expr.arg)
            with self._guarded(*passed):
                if subject is not None:
                    self._subjects.append(subject)
                conditions.append(self.text(condition))
                if subject is not None:
                    self._subjects.pop()
                with self._guarded(*meant):
                    results.append(self.sql(result))
            passed += [IsBool(arg=one, value=True, negated=True) for one in meant]
        if expr.default is not None:
            with self._guarded(*passed):
                results.append(self.sql(expr.default))
        results = self.alike(results)
        arms = [(c, result.text) for c, result in zip(conditions, results, strict=False)]
        default = None if expr.default is None else results[-1].text
        return Sql(d.case(arms, default), expr.oid, results[0].held)

    def _coalesce(self, expr: Coalesce) -> Sql:
        parts: list[Sql] = []
        for at, arg in enumerate(expr.args):
            with self._guarded(*(IsNull(arg=one) for one in expr.args[:at])):
                parts.append(self.sql(arg))
        parts = self.alike(parts)
        return Sql(d.call("coalesce", *(part.text for part in parts)), expr.oid, parts[0].held)

    def _min_max(self, expr: MinMax) -> Sql | None:
        parts = [self.sql(arg) for arg in expr.args]
        if len({part.held for part in parts}) > 1 or any(map(self.keyed, parts)):
            return None
        if not _orders(expr.oid):
            return None
        word = "greatest" if expr.greatest else "least"
        return Sql(d.call(word, *(part.text for part in parts)), expr.oid, parts[0].held)

    def _any_all(self, expr: AnyAll) -> Sql | None:
        """By a subquery of the elements, or a list that is known; else by a closure. Of rows that
        have an array of their own it is always a closure.
        """
        test, array = expr.test, expr.array
        if test.operator not in _OPERATORS or test.proc.kind != "o":
            return None
        if isinstance(array, SubQuery) and array.kind == "array":
            # the elements are the rows of its query, and there is always an array
            word = "all" if expr.all else "any"
            select = array.select
            if self._alike_held(expr.left.oid, r.element_of(array.oid)) and not r.element_of(
                select.targets[0].expr.oid
            ):
                return self._around.subquery(
                    SubQuery(
                        oid=oids.BOOL,
                        kind=word,
                        select=select,
                        left=(expr.left,),
                        operator=test.operator,
                    )
                )
        if self.is_constant(array):
            return self._listed(expr)
        return self._elements(expr)

    @staticmethod
    def _alike_held(left: int, right: int) -> bool:
        return _alike({left, right}) or (
            left == right and left in (oids.NUMERIC, oids.BPCHAR, oids.JSONB)
        )

    def _listed(self, expr: AnyAll) -> Sql | None:
        """IN or NOT IN of a list of values that are compared as they are held."""
        if (expr.test.operator, expr.all) not in (("=", False), ("<>", True)):
            return None
        element = r.element_of(expr.array.oid)
        if not _alike({expr.left.oid, element}):
            return None
        values = self.constant(expr.array)
        if values is None:
            return _bool(d.null("BOOLEAN"))
        if any(isinstance(value, list) for value in values):
            return None
        if not values:
            return _bool(d.TRUE if expr.all else d.FALSE)
        if len(values) > _LISTED_MAX:
            table = self._around.elements([(value,) for value in values], (element,))
            listed = f"SELECT c0 FROM {table}"
        else:  # of which DuckDB may make a table too
            listed = ", ".join(_literal(value, element)[0] for value in values)
        return _bool(d.member(self.hoisted(expr.left).text, listed, negated=expr.all))

    def _elements(self, expr: AnyAll) -> Sql | None:
        """An array that a subquery makes, the same for all rows: DuckDB hashes its elements."""
        if any(isinstance(one, Column) for one in walk(expr.array)) or volatile(expr.array):
            return None
        queries = [one for one in walk(expr.array) if isinstance(one, SubQuery)]
        if not queries or any(correlated(one.select) for one in queries):
            return None
        whole = self.sql(expr.array)
        element = Sql(d.primary("e"), r.element_of(expr.array.oid), whole.held[:-2])
        left = self.hoisted(expr.left)
        pair = self.pair(left, element)
        if pair is None or whole.held[-4:] == "[][]":
            return None
        word = "ALL" if expr.all else "ANY"
        rows = d.primary(f"(SELECT {pair[1]} FROM (SELECT unnest({whole.text}) AS e))")
        held = d.infix(pair[0], f"{expr.test.operator} {word}", rows)
        return _bool(d.case([(d.test(whole.text, "IS NULL"), "NULL")], held))

    def _among(self, expr: Among) -> Sql | None:
        """By a table of the rows for each choice of parts that are NULL; or a closure."""
        left = [self.hoisted(one) for one in expr.left]
        types = [r.element_of(one.oid) for one in expr.columns]
        kept: dict[tuple[int, ...], list[tuple[object, ...]]] = {}
        for values in zip(*map(self.constant, expr.columns), strict=True):
            nulls = tuple(at for at, value in enumerate(values) if value is None)
            kept.setdefault(nulls, []).append(values)
        if len(left) > PARTS_MAX or len(kept) > PARTS_MAX:
            return None
        right = [Sql(d.primary(f"c{at}"), oid, held(oid)) for at, oid in enumerate(types)]
        pairs = [self.pair(a, b) for a, b in zip(left, right, strict=True)]
        decided = [pair for pair in pairs if pair is not None]
        if len(decided) < len(pairs):
            return None
        arms: list[tuple[str, str]] = []
        for nulls, rows in sorted(kept.items()):
            parts = [pair for at, pair in enumerate(decided) if at not in nulls]
            if not parts:
                arms.append((d.TRUE, "NULL"))
                continue
            table = self._around.elements(rows, types)
            seen = "NULL" if nulls else self.equal_row(parts)
            arms.append((self.row_of(parts, f"SELECT * FROM {table}"), seen))
        made = d.case(arms, d.FALSE)
        return _bool(d.negation(made) if expr.negated else made)

    @staticmethod
    def row_of(pairs: Sequence[tuple[Text, Text]], rows: str, name: str = "v") -> Text:
        """Whether a row, the first of each pair, is one of `rows`, the second ones, where NULL on
        the left stands for anything. Of rows without NULL: each is in the set, that DuckDB hashes,
        with every choice of its parts NULL, because parts of two structs may be NULL alike.
        """
        left = _packed([pair[0] for pair in pairs])
        masked = [d.case([(f"(m >> {at}) & 1 = 0", pair[1])]) for at, pair in enumerate(pairs)]
        masks = f"(SELECT unnest(range({2 ** len(pairs)})) AS m)"
        return d.member(left, f"SELECT {_packed(masked)} FROM ({rows}) AS {name}, {masks}")

    @staticmethod
    def whole_row_among(pairs: Sequence[tuple[Text, Text]], source: str) -> Text:
        """Whether a row, the first of each pair, is one of the source's, the second ones; false if
        one of them has a NULL.
        """
        there = d.conjunction([d.test(pair[1], "IS NOT NULL") for pair in pairs])
        listed = f"SELECT {_packed([pair[1] for pair in pairs])} FROM {source} WHERE {there}"
        return d.member(_packed([pair[0] for pair in pairs]), listed)

    @staticmethod
    def equal_row(pairs: Sequence[tuple[Text, Text]]) -> Text:
        """What a row that `row_of` found is: equal, or perhaps if it has a NULL."""
        nulls = d.disjunction([d.test(pair[0], "IS NULL") for pair in pairs])
        return d.case([(nulls, "NULL")], d.TRUE)

    def _row_compare(self, expr: RowCompare) -> Sql:
        """Column by column: the first that differs decides."""
        made = d.TRUE if expr.op.endswith("=") else d.FALSE
        for equal, less in reversed(list(zip(expr.equal, expr.less, strict=True))):
            same = self.text(equal)
            made = d.case([(d.test(same, "IS NULL"), "NULL"), (same, made)], self.text(less))
        return _bool(made)

    # -- calls

    def _compared(self, left: Expr, right: Expr) -> tuple[Text, Text] | None:
        """Both sides, so that DuckDB compares them as PostgreSQL; None: only a closure does."""
        element = r.element_of(left.oid)
        both = {left.oid, right.oid}
        known = _alike(both) or (
            len(both) == 1
            and (left.oid in (oids.NUMERIC, oids.BPCHAR, oids.JSONB) or _alike({element}))
        )
        return self.pair(self.sql(left), self.sql(right)) if known else None

    def pair(self, a: Sql, b: Sql) -> tuple[Text, Text] | None:
        """Two values as what DuckDB compares as PostgreSQL; None: there is no such thing."""
        both = {a.oid, b.oid}
        element = r.element_of(a.oid)
        if _alike(both):
            return a.text, b.text
        if both == {oids.NUMERIC}:
            if _fit(a, b):
                return a.text, b.text
            return self.key(self.as_held(a, TEXT)), self.key(self.as_held(b, TEXT))
        if both in ({oids.BPCHAR}, {oids.JSONB}):
            return self.key(a), self.key(b)
        if len(both) == 1 and _alike({element}):
            return a.text, b.text
        return None

    def _call(self, expr: Call) -> Sql | None:
        proc, args = expr.proc, expr.args
        if proc.kind == "o" and proc.name in _OPERATORS and len(args) == 2:
            pair = self._compared(*args)
            return None if pair is None else _bool(d.infix(pair[0], proc.name, pair[1]))
        if proc.kind == "o" and len(args) == 2:
            return self._operator(expr, *args)
        if len(args) == 1:
            return self._conversion(expr, args[0])
        return self._of_two(expr, *args) if len(args) == 2 else None

    def _of_arrays(self, name: str, left: Expr, right: Expr) -> Sql | None:
        """ARRAY[a, b] <@ what a subquery makes, @> and &&: element by element, each looked for in
        a set that DuckDB hashes once. NULL is in no array.
        """
        first = name == "<@" or (name == "&&" and isinstance(left, ArrayExpr))
        few, many = (left, right) if first else (right, left)
        if not isinstance(few, ArrayExpr) or few.nested or not 0 < len(few.args) <= PARTS_MAX:
            return None
        element = r.element_of(many.oid)
        if not element or not self._alike_held(element, element):
            return None
        equal = resolve.operator("=", element, element, 0).proc
        found: list[str] = []
        for arg in few.args:
            test = Call(oid=oids.BOOL, proc=equal, args=(arg, CaseValue(oid=element)), operator="=")
            one = self._elements(AnyAll(left=arg, array=many, test=test))
            if one is None:
                return None
            found.append(d.call("coalesce", one.text, d.FALSE))
        held_in = d.disjunction(found) if name == "&&" else d.conjunction(found)
        nothing = d.test(self.text(many), "IS NULL")
        return _bool(d.case([(nothing, "NULL")], held_in))

    def _operator(self, expr: Call, left: Expr, right: Expr) -> Sql | None:
        name = expr.proc.name
        if name in ("<@", "@>", "&&"):
            return self._of_arrays(name, left, right)
        both = {left.oid, right.oid}
        if both <= INTS and expr.oid in INTS and name in _INT_WORDS:
            kind = held(expr.oid)
            a, b = (self.as_held(self.sql(e), kind).text for e in (left, right))
            return Sql(d.infix(a, _INT_WORDS[name], b), expr.oid, kind)
        if both == {oids.NUMERIC} and name in "+-*":
            return self._decimal(name, self.sql(left), self.sql(right))
        if both == {oids.FLOAT8} and name in "+-*":
            return self._float(name, self.text(left), self.text(right))
        if name == "||" and both <= _TEXTS and expr.oid == oids.TEXT:
            return Sql(d.infix(self.text(left), "||", self.text(right)), expr.oid, TEXT)
        if name in ("~~", "!~~") and both <= _TEXTS and self.is_constant(right):
            pattern = self.constant(right)
            if pattern is not None and not _odd_end(pattern) and _short_pattern(pattern):
                word = "LIKE" if name == "~~" else "NOT LIKE"
                shown = d.primary(forms.quoted(pattern))
                return _bool(d.like(self.text(left), word, shown, d.primary("'\\'")))
        if name == "-" and left.oid == right.oid == oids.DATE:
            days = d.infix(self.text(left), "-", self.text(right))
            return Sql(d.cast(days, "INTEGER"), expr.oid, "INTEGER")
        return None

    def _decimal(self, name: str, left: Sql, right: Sql) -> Sql | None:
        """Where the result has digits enough: DuckDB's scale is PostgreSQL's then."""
        a, b = decimal_of(left.held), decimal_of(right.held)
        if a is None or b is None:
            return None
        if name == "*":
            digits, scale = a[0] + b[0], a[1] + b[1]
        else:
            scale = max(a[1], b[1])
            digits = max(a[0] - a[1], b[0] - b[1]) + scale + 1
        if digits > forms.DIGITS_MAX:
            return None
        kind = forms.decimal(digits, scale)
        if name == "*":
            return Sql(d.cast(d.infix(left.text, "*", right.text), kind), oids.NUMERIC, kind)
        x, y = (self.as_held(one, kind).text for one in (left, right))
        return Sql(d.cast(d.infix(x, name, y), kind), oids.NUMERIC, kind)

    @staticmethod
    def _float(name: str, left: str, right: str) -> Sql:
        """Infinite only if it was: else it is an overflow."""
        made = d.infix(left, name, right)
        finite = [d.negation(d.call("isinf", one)) for one in (left, right)]
        checked = d.case(
            [(d.conjunction([d.call("isinf", made), *finite]), _error("overflow"))], made
        )
        if name == "*":
            nonzero = [d.infix(one, "<>", "0") for one in (left, right)]
            lost = d.conjunction([d.infix(made, "=", "0"), *nonzero])
            checked = d.case([(lost, _error("underflow"))], checked)
        return Sql(checked, oids.FLOAT8, "DOUBLE")

    def _of_two(self, expr: Call, first: Expr, second: Expr) -> Sql | None:
        """What has one argument that is constant."""
        source = expr.proc.source.replace("timestamptz", "timestamp")
        if source not in _OF_TWO:
            return None
        field, arg = (second, first) if source in _CONSTANT_LAST else (first, second)
        if not self.is_constant(field):
            return None
        word = self.constant(field)
        if source in ("text_left", "text_right") and isinstance(word, int) and word >= 0:
            name = source.removeprefix("text_")
            return Sql(d.call(name, self.text(arg), f"{word}"), expr.oid, TEXT)
        if arg.oid not in (oids.TIMESTAMP, oids.TIMESTAMPTZ) or not isinstance(word, str):
            return None
        return self._of_time(expr, source, arg, word)

    def _of_time(self, expr: Call, source: str, arg: Expr, word: str) -> Sql | None:
        """date_trunc, extract, to_char and AT TIME ZONE of a moment."""
        unit = word.lower()
        match source:
            case "timestamp_trunc" if unit in _TRUNCATED and self._elsewhere(arg):
                zone = self.env.style.zone
                column = Column(oid=arg.oid, typmod=arg.typmod, index=0, name="moment")
                return self.function(
                    ("date_trunc", unit),
                    self.of_value(replace(expr, args=(expr.args[0], column))),
                    [self.sql(arg)],
                    expr.oid,
                    "TIMESTAMP",
                    by_column=lambda moments_: moments.truncated(moments_, unit, zone),
                )
            case "timestamp_trunc" if unit in _TRUNCATED:
                text = d.call("date_trunc", forms.quoted(unit), self.text(arg))
                return Sql(d.cast(text, "TIMESTAMP"), expr.oid, "TIMESTAMP")
            case "extract_timestamp" if unit in _EXTRACTED:
                kind = forms.decimal(_DIGITS[oids.INT8], 0)
                text = d.call("date_part", forms.quoted(unit), self._shown(arg))
                return Sql(d.cast(text, kind), expr.oid, kind)
            case "timestamp_to_char":
                return self._formatted(expr, arg, word)
            case "timestamp_zone" if arg.oid == oids.TIMESTAMPTZ:
                try:
                    there = zones.named(word)
                except SqlError:  # when it is reached
                    return None
                return Sql(self._local(arg, there), expr.oid, "TIMESTAMP")
            case _:
                return None

    def _formatted(self, expr: Call, arg: Expr, pattern: str) -> Sql | None:
        """A moment that a pattern shows only the month, day, hour or minute of: the same for all in
        it, which are computed once.
        """
        unit = next((name for name, shown in _SHOWN if shown.fullmatch(pattern)), None)
        if unit is None:
            return None
        text = d.cast(d.call("date_trunc", forms.quoted(unit), self._shown(arg)), "TIMESTAMP")
        moment = Sql(text, oids.TIMESTAMP, "TIMESTAMP")

        def shown(value: datetime) -> str | None:
            return timestamp_text(value, pattern)

        return self.function(("to_char", pattern), shown, [moment], expr.oid, TEXT)

    def _elsewhere(self, moment: Expr) -> bool:
        """Whether the session shows a moment otherwise than it is held, which is in UTC."""
        zone = self.env.style.zone
        return (
            moment.oid == oids.TIMESTAMPTZ
            and zone is not UTC
            and getattr(zone, "key", "") not in _UTC
        )

    def _shown(self, moment: Expr) -> Text:
        """A moment as the session shows it."""
        if self._elsewhere(moment):
            return self._local(moment, self.env.style.zone)
        return self.text(moment)

    def _local(self, moment: Expr, zone: tzinfo) -> Text:
        """What clocks of a zone show then."""
        return self.function(
            ("local", zone),
            lambda value: in_zone(value, zone),
            [self.sql(moment)],
            oids.TIMESTAMP,
            "TIMESTAMP",
            by_column=lambda column: moments.local(column, zone),
        ).text

    def _conversion(self, expr: Call, arg: Expr) -> Sql | None:
        """Numbers that only become wider, and what else DuckDB does alike."""
        source, target = arg.oid, expr.oid
        match expr.proc.source:
            case "timestamp_date" | "timestamptz_date":
                return Sql(d.cast(self._shown(arg), "DATE"), target, "DATE")
            case "timestamptz_timestamp":
                return Sql(self._shown(arg), target, "TIMESTAMP")
            case "lower" | "upper" if source in _TEXTS:
                return self._cased(expr, arg)
            case _:
                pass
        if expr.cast and source in INTS:
            if target in INTS or target == oids.FLOAT8:
                return self.as_held(self.sql(arg), held(target)).of(target)
            if target == oids.NUMERIC:
                kind = forms.decimal(_DIGITS[source], 0)
                return self.as_held(self.sql(arg), kind).of(target)
        if expr.cast and source == oids.FLOAT4 and target == oids.FLOAT8:
            return self.as_held(self.sql(arg), "DOUBLE").of(target)
        if expr.cast and source == oids.DATE and target == oids.TIMESTAMP:
            return self.as_held(self.sql(arg), "TIMESTAMP").of(target)
        if expr.proc.source == "textlen" and source in _TEXTS:
            length = d.call("length", self.text(arg))
            return Sql(d.cast(length, "INTEGER"), target, "INTEGER")
        return None

    def _cased(self, expr: Call, arg: Expr) -> Sql:
        """lower() and upper(): of a column that is all ASCII by Arrow."""
        source = expr.proc.source
        make = pc.ascii_lower if source == "lower" else pc.ascii_upper
        column = Column(oid=arg.oid, typmod=arg.typmod, index=0, name="text")

        def cased(column: pa.Array) -> pa.Array | None:
            texts = column.cast(pa.string())
            others = pc.any(pc.invert(pc.string_is_ascii(texts))).as_py()
            return None if others else make(texts)

        fn = self.of_value(replace(expr, args=(column,)))
        return self.function(source, fn, [self.sql(arg)], expr.oid, TEXT, by_column=cased)

    def _cast(self, expr: Cast) -> Sql | None:
        source, target = expr.arg.oid, expr.oid
        if expr.how == "relabel" and held(source) == held(target) and source != oids.BPCHAR:
            inner = self.sql(expr.arg)
            return Sql(inner.text, target, inner.held)
        if expr.how == "text" and source in INTS and target in _TEXTS:
            return self.as_held(self.sql(expr.arg), TEXT).of(target)
        return None

    def _length(self, expr: Length) -> Sql | None:
        """A text that is cast is cut."""
        if not expr.explicit or expr.oid != oids.VARCHAR:
            return None
        cut = d.call("left", self.text(expr.arg), f"{expr.typmod - 4}")
        return Sql(cut, expr.oid, TEXT)


def _is_large(value: object) -> bool:
    """Whether DuckDB would take long to read it as text: 0.2 ms an element."""
    if isinstance(value, list):
        return len(value) > _LISTED_MAX or any(map(_is_large, value))
    return isinstance(value, str | bytes) and len(value) > _WRITTEN_CHARS_MAX


def _literal(value: object, oid: int) -> tuple[Text, int, str]:
    text, kind = literal(value, oid)
    return text, oid, kind


def _bool(text: Text) -> Sql:
    return Sql(text, oids.BOOL, "BOOLEAN")


def _guards_subquery(expr: Expr) -> bool:
    """Whether it may spare a query inside: DuckDB gets a CASE, a closure would be too late."""
    return (
        isinstance(expr, Case | Coalesce | Logic)
        and any(isinstance(one, SubQuery) for one in walk(expr))
        and not any(isinstance(one, CaseValue) for one in walk(expr))
    )


def _of_subject(condition: Expr, subject: Expr | None) -> tuple[Expr, ...]:
    """A condition of CASE with the value that is compared in its place; nothing: it has values of
    its own of that kind.
    """
    if subject is None:
        return (condition,)
    if any(isinstance(one, AnyAll | Case | Cast) for one in walk(condition)):
        return ()
    return (rebuilt(condition, lambda one: subject if isinstance(one, CaseValue) else None),)


def _packed(parts: Sequence[str]) -> Text:
    return d.call("struct_pack", *(f"p{at} := {part}" for at, part in enumerate(parts)))


def _error(what: str) -> Text:
    """What raises 22003 when it is reached."""
    return d.cast(d.call("error", f"'KV:22003:value out of range: {what}'"), "DOUBLE")


def _key(expr: Expr) -> object:
    """What distinguishes expressions: subqueries, and constants that are lists, have no hash."""
    try:
        hash(expr)
    except TypeError:
        return id(expr) if opaque(expr) else repr(expr)
    return expr


def _result(expr: Expr) -> str:
    return held(expr.oid, expr.typmod)


def _fit(a: Sql, b: Sql) -> bool:
    """Whether DuckDB can compare two numerics without loss."""
    x, y = decimal_of(a.held), decimal_of(b.held)
    if x is None or y is None:
        return False
    return max(x[0] - x[1], y[0] - y[1]) + max(x[1], y[1]) <= forms.DIGITS_MAX


def _orders(oid: int) -> bool:
    return oid == oids.NUMERIC or _alike({oid})


def _alike(types: set[int]) -> bool:
    """Whether DuckDB compares values of these types, as they are held, as PostgreSQL does."""
    if len(types) == 1 and enums.is_enum(next(iter(types))):
        return True
    return any(types <= family for family in _COMPARED)


def _odd_end(pattern: str) -> bool:
    """Whether a pattern of LIKE ends inside an escape."""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


_LIKE_CHARS_MAX: Final = 32


def _short_pattern(pattern: str) -> bool:
    """Whether DuckDB may look for it: at each character of a value it compares as much as there is
    between two %, and nothing interrupts it before it has looked through 2,048 values. Others are
    ours, in linear time and with breaks (sqlproxy.front.functions.f_patterns).
    """
    return all(len(part) <= _LIKE_CHARS_MAX for part in pattern.split("%"))


_NATIVE: Final[dict[type, Any]] = {
    CaseValue: Expressions._case_value,
    Logic: Expressions._logic,
    IsNull: Expressions._is_null,
    IsBool: Expressions._is_bool,
    Distinct: Expressions._distinct,
    NullIf: Expressions._null_if,
    Case: Expressions._case,
    Coalesce: Expressions._coalesce,
    MinMax: Expressions._min_max,
    Among: Expressions._among,
    AnyAll: Expressions._any_all,
    RowCompare: Expressions._row_compare,
    Call: Expressions._call,
    Cast: Expressions._cast,
    Length: Expressions._length,
}
