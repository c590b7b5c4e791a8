"""Bound expressions: every node knows its type. Immutable; what executors, planners and compilers
read.

`oid`, `typmod`: the type of the value; `pos`: the byte of the statement where it stands, -1 =
nowhere. A column is known by its place in the row that the scope makes: the columns of all FROM
items, one after another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, Final

from sqlproxy.front.types.registry import Proc
from sqlproxy.pg import oids
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import words


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    oid: int
    typmod: int = -1
    pos: int = field(default=-1, compare=False)  # the same expression elsewhere is the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Const(Expr):
    """`value` in user form; of type unknown: the text of a literal whose type nothing has decided.
    None = NULL. Equal are only those that are alike in every digit: `interval '1 day'` and `'24
    hours'`, 1.0 and 1.00, 0.0 and -0.0 compare equal as values, and are not the same expression.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const)
            and (self.oid, self.typmod) == (other.oid, other.typmod)
            and _alike(self.value, other.value)
        )

    def __hash__(self) -> int:
        return hash((self.oid, self.typmod, self.value))


def _alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    match one:
        case Interval():
            return one.same(other)
        case float() | Decimal():
            return repr(one) == repr(other)
        case list() | tuple():
            return len(one) == len(other) and all(map(_alike, one, other))
        case _:
            return bool(one == other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Expr):
    """`number` counts from 1."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Expr):
    """`index`: place in the scope's row; `level`: 0 = this query, 1 = the one around it, …

    `table`, `attribute`: the table's id and the column's id where it comes from a table, else 0.
    """

    index: int
    name: str
    relation: str = ""
    table: int = 0
    attribute: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expr):
    """A function, or an operator when `operator` names one. `explicit`: a cast that was written, by
    function.
    """

    proc: Proc
    args: tuple[Expr, ...]
    operator: str = ""
    variadic: bool = False  # VARIADIC was written: the last argument is the array
    cast: str = ""  # "", "implicit", "explicit": it stands for a cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Expr):
    """`how`: relabel (the same value), text (by output and input), array (each element by
    `element`, a cast of CaseValue).
    """

    arg: Expr
    how: str
    explicit: bool = False
    element: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Length(Expr):
    """Fits a value into its type's modifier: varchar(n), numeric(p,s), timestamp(p), …"""

    arg: Expr
    explicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic(Expr):
    """`op`: and, or, not."""

    op: str
    args: tuple[Expr, ...]
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull(Expr):
    arg: Expr
    negated: bool = False
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class IsBool(Expr):
    """IS [NOT] TRUE, FALSE, UNKNOWN; `value`: True, False, None."""

    arg: Expr
    value: bool | None
    negated: bool = False
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(Expr):
    """a IS [NOT] DISTINCT FROM b; `equal` is a = b of the two."""

    equal: Expr
    left: Expr
    right: Expr
    negated: bool = False
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class NullIf(Expr):
    equal: Expr
    left: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Expr):
    """`arg` of the simple form is in each condition as CaseValue."""

    arg: Expr | None
    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseValue(Expr):
    """The value around: CASE's argument, or an element of an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalesce(Expr):
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMax(Expr):
    greatest: bool
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayExpr(Expr):
    """ARRAY[…]; `nested`: the elements are arrays themselves."""

    args: tuple[Expr, ...]
    nested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExpr(Expr):
    args: tuple[Expr, ...]
    whole: bool = False  # of a FROM item, not written: it compares as a record does


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCompare(Expr):
    """(a, b) op (c, d); `pairs` are the comparisons column by column: `equal` and, for orderings,
    `less`.
    """

    op: str
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    equal: tuple[Expr, ...]
    less: tuple[Expr, ...] = ()
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyAll(Expr):
    """`test` with CaseValue for the element: left op ANY/ALL (array); a list of IN too."""

    left: Expr
    array: Expr
    test: Call
    all: bool = False
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Among(Expr):
    """left = ANY (rows) part by part, `negated`: <> ALL; the rows are the same for all that are
    tested (`gathering`). `columns`: an array for each part, with its value of each row.
    """

    left: tuple[Expr, ...]
    columns: tuple[Expr, ...]
    negated: bool = False
    oid: int = oids.BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscript(Expr):
    """array[i][j] or array[a:b]; a slice has `slices`, pairs of bounds or None."""

    arg: Expr
    indexes: tuple[Expr, ...] = ()
    slices: tuple[tuple[Expr | None, Expr | None], ...] = ()


ACTING: Final = frozenset(("set_config_by_name", "pg_cancel_backend", "pg_terminate_backend"))
"""What is done for a row that comes out, and waited for (`Env.act`)."""
TAKING: Final = frozenset(("nextval_oid", "setval_oid", "setval3_oid")) | ACTING
"""Numbers of sequences, and the like."""
TAKEN: Final = frozenset(("currval_oid", "lastval"))
"""What was taken: they get the relations that are there (`regclass.Relations`), too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Expr):
    proc: Proc
    args: tuple[Expr, ...]
    star: bool = False
    distinct: bool = False
    order: tuple[Order, ...] = ()
    filter: Expr | None = None
    direct: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    expr: Expr
    descending: bool = False
    nulls_first: bool = False
    target: int = -1  # place in the select list, -1 = it is not there


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`frame`: PostgreSQL's FRAMEOPTION bits; `start`, `end`: offsets of the frame."""

    partition: tuple[Expr, ...] = ()
    order: tuple[Order, ...] = ()
    frame: int = 1058  # RANGE UNBOUNDED PRECEDING
    start: Expr | None = None
    end: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Expr):
    proc: Proc
    args: tuple[Expr, ...]
    window: WindowSpec
    star: bool = False
    filter: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping(Expr):
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Default(Expr):
    """DEFAULT in VALUES or SET."""

    oid: int = oids.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Expr):
    """What only the session knows, e.g. current_user; `name` in lower case."""

    name: str
    oid: int = oids.TEXT


@dataclass(slots=True)
class Once:
    """A value that is computed when it is looked at first, once for each row of what it depends on:
    `work` makes it of that. `known`: what was made last, by that row's text. `what`: the function
    that wants it.
    """

    work: Callable[[Sequence[object]], Awaitable[object]] | None = None
    known: dict[str, object] = field(default_factory=dict)
    what: str = "nextval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Later(Expr):
    """A query where one row is computed: it runs when a row needs it. `args`: what it names of that
    row. `number` distinguishes it.
    """

    number: int
    args: tuple[Expr, ...] = ()
    once: Once = field(compare=False)


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """What is compared, one after the other, where an expression's values are: of a row its
    columns.
    """
    if isinstance(expr, RowExpr):
        return tuple(part for arg in expr.args for part in parts_of(arg))
    return (expr,)


def children(expr: Expr) -> Iterator[Expr]:
    """The expressions directly inside."""
    for name in _parts_of(type(expr)):
        yield from _inside(getattr(expr, name))


_PLAIN = words(
    """
    oid typmod pos value once number proc operator variadic cast how op name
    """
)


_parts: dict[type, tuple[str, ...]] = {}  # one entry a class of this module


def _parts_of(kind: type[Expr]) -> tuple[str, ...]:
    """The fields that may hold expressions."""
    found = _parts.get(kind)
    if found is None:
        leaf = kind in (Const, Column, Param, Named, Default, CaseValue)
        found = () if leaf else tuple(f.name for f in fields(kind) if f.name not in _PLAIN)
        _parts[kind] = found
    return found


def _inside(value: object) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _inside(one)
    elif isinstance(value, Order):
        yield value.expr
    elif isinstance(value, WindowSpec):
        yield from value.partition
        yield from (order.expr for order in value.order)


def leftmost(expr: Expr) -> int:
    """Where it begins, from 1 (PostgreSQL's exprLocation); 0: it is not known."""
    return min((one.pos for one in walk(expr) if one.pos >= 0), default=-1) + 1


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all inside, outermost first; not into subqueries."""
    stack = [expr]
    while stack:
        one = stack.pop()
        yield one
        stack.extend(children(one))


def bare(expr: Expr) -> Expr:
    """Without casts that do nothing to the value."""
    while isinstance(expr, Cast) and expr.how == "relabel":
        expr = expr.arg
    return expr


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """What must be true together: the parts of AND, flat."""
    if expr is None:
        return ()
    if isinstance(expr, Logic) and expr.op == "and":
        return tuple(part for arg in expr.args for part in conjuncts(arg))
    return (expr,)


def disjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Of which one must be true: the parts of OR, flat."""
    if isinstance(expr, Logic) and expr.op == "or":
        return tuple(part for arg in expr.args for part in disjuncts(arg))
    return (expr,)
