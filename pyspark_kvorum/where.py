"""The `where` option: a SQL condition over the table's columns, as a pyarrow expression evaluated
at the source.

Grammar: column, literal, comparison (= <> < <= > >=), AND, OR, NOT, IN (list), BETWEEN, LIKE, IS
[NOT] NULL, TRUE/FALSE. Three-valued logic as in SQL: a row for which the condition is NULL is left
out. Names are folded and char(n) is compared as in SQL; a time without a zone is UTC; labels of
enums are in their order, uuids as in SQL however they are written. Parsed by sqlglot in its
PostgreSQL dialect. Deliberately missing: functions, arithmetic and subqueries, and comparisons of
what Spark has as text and SQL does not compare as such (json, jsonb, long numerics); Spark
evaluates those behind the source.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as E

from kv.base.errors import InvalidArgument
from kv.base.keys import successor
from sqlproxy import arrow_rows, enums
from sqlproxy.schema import Table
from sqlproxy.types import Type

IN_LIST_MAX: Final = 1_000
_ORDERED: Final = frozenset(
    {"int2", "int4", "int8", "text", "varchar", "bytea", "date", "timestamp", "timestamptz"}
)
"""Key types whose order is Arrow's, for every value and however a literal is written."""
_TEXTS: Final = frozenset({"text", "varchar", "char", "name"})
_OPERANDS: Final = frozenset({"this", "expression", "expressions", "low", "high"})
_SQL_NAMES: Final = {
    "int16": "int2", "int32": "int4", "int64": "int8", "float": "float4", "double": "float8",
    "string": "text", "date32[day]": "date", "timestamp[us]": "timestamp",
    "time64[us]": "time", "month_day_nano_interval": "interval",
    "timestamp[us, tz=UTC]": "timestamptz (2013-01-01 05:00:00Z)",
}  # fmt: skip
_COMPARE: Final[dict[type[Any], Any]] = {
    E.EQ: operator.eq,
    E.NEQ: operator.ne,
    E.LT: operator.lt,
    E.LTE: operator.le,
    E.GT: operator.gt,
    E.GTE: operator.ge,
}
_FLIPPED: Final[dict[type[Any], Any]] = {
    E.EQ: operator.eq,
    E.NEQ: operator.ne,
    E.LT: operator.gt,
    E.LTE: operator.ge,
    E.GT: operator.lt,
    E.GTE: operator.le,
}


def compile_where(
    text: str,
    schema: pa.Schema,
    widths: Mapping[str, int] | None = None,
    kinds: Mapping[str, Type] | None = None,
) -> pc.Expression:
    """The condition as an expression over `schema`'s columns, of which those in `widths` are
    char(n), and those in `kinds` of types that are no text in SQL. Raises InvalidArgument that
    quotes the part at fault.
    """
    return _Compiler(schema, widths or {}, kinds or {}).condition(_parsed(text, schema.names))


def _parsed(text: str, names: Sequence[str]) -> E.Expr:
    """The condition's tree, with the columns' own names. Raises InvalidArgument."""
    try:
        statements = sqlglot.parse(f"SELECT 1 WHERE {text}", read="postgres")
    except sqlglot.errors.SqlglotError as e:
        raise InvalidArgument(f"option where cannot be parsed: {text!r}: {e}") from e
    first = statements[0]
    if len(statements) != 1 or not isinstance(first, E.Select):
        raise InvalidArgument(f"option where cannot be parsed: {text!r}: one condition is wanted")
    if beside := {k for k, v in first.args.items() if v} - {"expressions", "where"}:
        raise InvalidArgument(
            f"option where is a condition, and {text!r:.200} has more behind it"
            f" ({', '.join(sorted(beside))}): leave that to Spark"
        )
    tree: E.Expr = first.args["where"].this
    for column in tree.find_all(E.Column):
        name = column.this
        if name.name not in names and not name.args.get("quoted") and name.name.lower() in names:
            name.set("this", name.name.lower())
    return tree


def widths_of(table: Table) -> dict[str, int]:
    """The columns that are char(n), whose values have no blanks at the end when compared."""
    kinds = {column.name: column.resolved for column in table.columns}
    return {name: kind.length for name, kind in kinds.items() if kind.base == "char"}


def kinds_of(table: Table) -> dict[str, Type]:
    """The columns that Arrow has as text and SQL does not compare as text."""
    kinds = {column.name: column.resolved for column in table.columns}
    return {
        name: kind
        for name, kind in kinds.items()
        if kind.base not in _TEXTS and pa.types.is_string(arrow_rows.arrow_type(kind))
    }


def columns_of(text: str, names: Sequence[str]) -> set[str]:
    """Which of the columns the condition names."""
    return {c.name for c in _parsed(text, names).find_all(E.Column)}


def key_bounds(text: str, table: Table) -> tuple[bytes, bytes]:
    """`[low, high)` of user keys outside of which the condition holds for no row; b"" = no bound.
    From the tests of the first primary-key column that are joined by AND; others say nothing.
    """
    column, kind = ("key", "bytea") if table.plain else (table.primary_key[0], "")
    kind = kind or table.column(column).resolved.base
    low = high = b""
    if kind not in _ORDERED:
        return low, high
    names = [f.name for f in arrow_rows.arrow_schema(table)]
    for node in _conjuncts(_parsed(text, names)):
        for first, past in _bounds(node, column, table):
            low = max(low, first)
            high = min(high or past, past or high)
    return low, high


def _conjuncts(node: E.Expr) -> Iterator[E.Expr]:
    if isinstance(node, E.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, E.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _bounds(node: E.Expr, column: str, table: Table) -> Iterator[tuple[bytes, bytes]]:
    """What one test says of the key; nothing if it is of another kind."""
    if {k for k, v in node.args.items() if v and k not in _OPERANDS}:
        return
    left, right, flipped = node.args.get("this"), node.args.get("expression"), False
    if isinstance(node, E.Binary) and not isinstance(left, E.Column):
        left, right, flipped = right, left, True
    if not isinstance(left, E.Column) or left.name != column:
        return

    def key(literal: Any) -> tuple[bytes, bytes] | None:
        """Where rows with this value begin and end."""
        try:
            first = arrow_rows.key_prefix(table, _text(literal))
        except InvalidArgument:
            return None
        return first, (first + b"\x00" if table.plain else successor(first))

    match node:
        case E.EQ() if found := key(right):
            yield found
        case E.In():
            ends = [key(item) for item in node.args.get("expressions") or []]
            known = [one for one in ends if one is not None]
            if known and len(known) == len(ends):
                yield min(known)[0], max(past for _, past in known)
        case E.Between() if (low := key(node.args["low"])) and (high := key(node.args["high"])):
            yield low[0], high[1]
        case E.LT() | E.LTE() | E.GT() | E.GTE() if found := key(right):
            below = isinstance(node, E.LT | E.LTE) is not flipped
            equal = isinstance(node, E.LTE | E.GTE)
            if below:
                yield b"", found[1] if equal else found[0]
            else:
                yield found[0] if equal else found[1], b""


def _text(node: Any) -> str:
    """A literal as it was written. Raises InvalidArgument for anything else."""
    sign = ""
    if isinstance(node, E.Cast):
        node = node.this
    if isinstance(node, E.Neg):
        node, sign = node.this, "-"
    if not isinstance(node, E.Literal):
        raise InvalidArgument("not a literal")
    return sign + str(node.this)


def _cast(text: str, kind: pa.DataType) -> pa.Scalar:
    """Raises pa.ArrowInvalid."""
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise
    # Without a zone: UTC, as option asOf.
    return pc.assume_timezone(pa.scalar(text, pa.string()).cast(pa.timestamp("us")), kind.tz)


def _one_of(field: pc.Expression, texts: Sequence[str]) -> pc.Expression:
    """NULL for NULL, which `field <> field` is, too."""
    return functools.reduce(
        operator.or_, [field == pc.scalar(one) for one in texts], field != field
    )


class _Compiler:
    def __init__(
        self, schema: pa.Schema, widths: Mapping[str, int], kinds: Mapping[str, Type]
    ) -> None:
        self.schema, self.widths, self.kinds = schema, widths, kinds

    def condition(self, node: E.Expr) -> pc.Expression:
        match node:
            case E.Paren():
                return self.condition(node.this)
            case E.And():
                return self.condition(node.left) & self.condition(node.right)
            case E.Or():
                return self.condition(node.left) | self.condition(node.right)
            case E.Not():
                return ~self.condition(node.this)
            case E.Boolean():
                return pc.scalar(bool(node.this))
            case E.Column():
                return self._boolean(node)
            case _:
                return self._predicate(node)

    def _predicate(self, node: E.Expr) -> pc.Expression:
        """A test of columns. What the parser noted beside the operands must be understood, or a
        row would be kept or lost silently: `x IS NOT NULL` is an Is with `negate`.
        """
        beside = {k for k, v in node.args.items() if v and k not in _OPERANDS}
        if beside - {"negate"}:
            raise self._cannot(node, f"{', '.join(sorted(beside))} is not supported at the source")
        test = self._test(node)
        return ~test if "negate" in beside else test

    def _test(self, node: E.Expr) -> pc.Expression:
        match node:
            case E.Is():
                return self._is(node)
            case E.In():
                return self._in(node)
            case E.Between():
                field, kind = self._column(node.this)
                low, high = (self._value(node.this, node.args[k], kind) for k in ("low", "high"))
                if (labels := self._labels(node.this)) is not None:
                    between = labels[labels.index(low.as_py()) :]
                    past = labels[labels.index(high.as_py()) + 1 :]
                    return _one_of(field, [one for one in between if one not in past])
                return (field >= low) & (field <= high)
            case E.Like():
                field, kind = self._column(node.this)
                if not pa.types.is_string(kind) or node.this.name in self.kinds:
                    raise self._cannot(node, "LIKE needs a text column")
                return pc.match_like(field, self._literal(node.expression, kind).as_py())
            case E.Binary() if type(node) in _COMPARE:
                return self._comparison(node)
            case _:
                raise self._cannot(node, "not supported at the source; filter it in Spark")

    def _boolean(self, node: E.Column) -> pc.Expression:
        field, kind = self._column(node)
        if not pa.types.is_boolean(kind):
            raise self._cannot(node, f"a condition must be boolean, this is {kind}")
        return field

    def _comparison(self, node: E.Binary) -> pc.Expression:
        left, right, table = node.left, node.right, _COMPARE
        if not isinstance(left, E.Column):
            left, right, table = right, left, _FLIPPED
        if not isinstance(left, E.Column):
            raise self._cannot(node, "not supported at the source: one side must be a column")
        field, kind = self._column(left)
        labels = self._labels(left)
        ordered = type(node) not in (E.EQ, E.NEQ)
        if isinstance(right, E.Column):
            if self._unlike(left, right) or (labels is not None and ordered):
                raise self._cannot(node, "not compared at the source; filter it in Spark")
            other = self._column(right)[0]
        elif labels is not None and ordered:
            place = labels.index(self._value(left, right, kind).as_py())
            test = table[type(node)]
            return _one_of(field, [one for at, one in enumerate(labels) if test(at, place)])
        else:
            other = pc.scalar(self._value(left, right, kind))
        compared: pc.Expression = table[type(node)](field, other)
        try:
            # Arrow looks for a way to compare the two types when it binds the names, not before.
            self.schema.empty_table().filter(compared)
        except pa.ArrowException as e:
            raise self._cannot(node, f"these types are not compared: {e}") from e
        return compared

    def _is(self, node: E.Is) -> pc.Expression:
        field, kind = self._column(node.this)
        if isinstance(node.expression, E.Null):
            return field.is_null()
        if isinstance(node.expression, E.Boolean) and pa.types.is_boolean(kind):
            return field.is_valid() & (field == bool(node.expression.this))
        raise self._cannot(node, "only IS [NOT] NULL and, for booleans, IS TRUE/FALSE")

    def _in(self, node: E.In) -> pc.Expression:
        field, kind = self._column(node.this)
        items = node.args.get("expressions") or []
        if not 0 < len(items) <= IN_LIST_MAX:
            raise self._cannot(node, f"IN takes 1 to {IN_LIST_MAX} literals")
        tests = [field == pc.scalar(self._value(node.this, item, kind)) for item in items]
        return functools.reduce(operator.or_, tests)  # not isin(): x IN (…) is NULL for a NULL x

    def _column(self, node: E.Expr) -> tuple[pc.Expression, pa.DataType]:
        if not isinstance(node, E.Column):
            raise self._cannot(node, "expected a column")
        at = self.schema.get_field_index(node.name)
        if at < 0:
            raise self._cannot(node, f"no such column; there are {', '.join(self.schema.names)}")
        return pc.field(node.name), self.schema.field(at).type

    def _unlike(self, left: E.Column, right: E.Column) -> bool:
        """Whether the two are compared in SQL otherwise than their texts, or not at all."""
        one, other = self.kinds.get(left.name), self.kinds.get(right.name)
        if one is None and other is None:
            return False
        return one != other or one is None or one.base not in ("uuid", enums.BASE)

    def _labels(self, column: E.Expr) -> tuple[str, ...] | None:
        """Of an enum, in their order."""
        kind = self.kinds.get(column.name)
        return enums.parsed(kind.name).names if kind and kind.base == enums.BASE else None

    def _value(self, column: E.Expr, node: E.Expr, kind: pa.DataType) -> pa.Scalar:
        """A literal that is compared with the column: of char(n), as long as its values."""
        found = self._literal(node, kind)
        if (typed := self.kinds.get(column.name)) is not None:
            return pa.scalar(self._as_kept(node, typed, found.as_py()), kind)
        width = self.widths.get(column.name)
        if width is None:
            return found
        return pa.scalar(found.as_py().rstrip(" ").ljust(width), kind)

    def _as_kept(self, node: E.Expr, kind: Type, text: str) -> str:
        """A literal as the column's values are written. Raises InvalidArgument."""
        match kind.base:
            case enums.BASE:
                enum = enums.parsed(kind.name)
                if text not in enum.names:
                    there = ", ".join(enum.names)
                    raise self._cannot(node, f"no label of {enum.name}; there are {there}")
                return text
            case "uuid":
                try:
                    return str(UUID(text))
                except ValueError as error:
                    raise self._cannot(node, "not a uuid, which the column is") from error
            case base:
                raise self._cannot(
                    node,
                    f"values of {base} are texts here, and compared otherwise by SQL: filter them"
                    " in Spark",
                )

    def _literal(self, node: E.Expr, kind: pa.DataType) -> pa.Scalar:
        sign = ""
        if isinstance(
            node, E.Cast
        ):  # DATE '2013-01-01' and '…'::timestamp: the column's type decides
            node = node.this
        if isinstance(node, E.Neg):
            node, sign = node.this, "-"
        if isinstance(node, E.Boolean) and pa.types.is_boolean(kind):
            return pa.scalar(bool(node.this), kind)
        if isinstance(node, E.Null):
            raise self._cannot(node, "nothing equals NULL: write IS NULL or IS NOT NULL")
        if not isinstance(node, E.Literal):
            raise self._cannot(node, "expected a literal")
        text = sign + str(node.this)
        if pa.types.is_binary(kind):
            return pa.scalar(text.encode(), kind)
        try:
            return _cast(text, kind)
        except pa.ArrowNotImplementedError as e:
            raise self._cannot(
                node,
                f"values of {_SQL_NAMES.get(str(kind), str(kind))} are not compared at the source;"
                " filter them in Spark",
            ) from e
        except pa.ArrowInvalid as e:
            raise self._cannot(
                node, f"not a {_SQL_NAMES.get(str(kind), str(kind))}, which the column is"
            ) from e

    def _cannot(self, node: E.Expr, why: str) -> InvalidArgument:
        return InvalidArgument(f"option where: {node.sql(dialect='postgres')!r}: {why}")
