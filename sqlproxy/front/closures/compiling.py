"""Bound expressions → closures over a row and an `Env`, with PostgreSQL's semantics.

A closure per node; strict functions of columns, parameters and constants are one closure together
with their arguments (sqlproxy.front.closures.closures), so that `column = $1` costs one call.
What is constant is computed once. NULL is None; errors are SqlError as PostgreSQL raises them.

Not for closures: subqueries, aggregates, windows, functions that return sets: `CannotCompile` says
which, and the statement goes to what can do them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from sqlproxy.front.bound.env import Env, path_of
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
    Later,
    Length,
    Logic,
    MinMax,
    Named,
    NullIf,
    Param,
    RowCompare,
    RowExpr,
    Subscript,
    walk,
)
from sqlproxy.front.closures import lengths
from sqlproxy.front.closures.closures import (
    Fn,
    Part,
    all_of,
    any_call,
    any_of,
    counted,
    counted_value,
    flattened,
    large_constant,
    nested_array,
    no_value,
    once_for_all,
    slice_of,
    strict_call,
)
from sqlproxy.front.closures.gathering import compared_by_key, gathered
from sqlproxy.front.closures.quantified import Answer, among, answering, no_answer
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.functions.function import Site
from sqlproxy.front.types import comparing
from sqlproxy.front.types.quoting import read_relation
from sqlproxy.front.types.registry import element_of, format_type
from sqlproxy.front.types.value_texts import reader, row_text, writer
from sqlproxy.pg import oids
from sqlproxy.pg.oids import PgType, by_oid
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.breaks import pausing
from sqlproxy.values.errors import UNSUPPORTED, SqlError
from sqlproxy.values.memory import folding

_NEXTVAL: Final = "nextval_oid"
FIXED: Final = frozenset(
    (
        *(oids.BOOL, oids.INT2, oids.INT4, oids.INT8, oids.OID, oids.FLOAT4, oids.FLOAT8),
        *(oids.DATE, oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ, oids.INTERVAL, oids.UUID),
        *(oids.CHAR, oids.NAME),
    )
)
"""Types whose values have one size, or nearly."""
_SHORT: Final = frozenset(
    [
        "numeric_add",
        "numeric_sub",
        "numeric_mul",
        "numeric_uminus",
        "numeric_abs",
        "textcat",
        "textlen",
    ]
)
"""Functions that are short, however large what they are given is."""
_DOCUMENTS: Final = (oids.JSON, oids.JSONB)
_STYLES_MAX: Final = 8  # that one plan, which is of all sessions, is remembered for


_MAKING: Final = (Call, Cast, ArrayExpr, Length)
_LARGE: Final = frozenset((oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.BYTEA, oids.JSON, oids.JSONB))


def _may_be_large(oid: int) -> bool:
    return oid in _LARGE or element_of(oid) != 0


class CannotCompile(SqlError):
    """0A000: the expression needs more than a row."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """`taken`: the sequence of each call of nextval() that every evaluation makes; reserve them
    before. `perhaps`: of each that it may make. `unsure`: `taken` is not all, so that `fn`
    may want more (`bound.env.Wanting`). `constant`: whether `fn` needs neither row nor
    env; `value` is then its value.
    """

    oid: int
    typmod: int
    fn: Fn
    taken: tuple[str, ...] = ()
    volatile: bool = False
    constant: bool = False
    value: object = None
    perhaps: tuple[str, ...] = ()
    unsure: bool = False

    @property
    def numbered(self) -> bool:
        """Whether it has a call of exprs.TAKING."""
        return bool(self.taken) or self.unsure

    @property
    def type(self) -> PgType:
        found = by_oid(self.oid)
        assert found is not None, self.oid
        return found


def compile(expr: Expr) -> Compiled:
    """Raises CannotCompile, and SqlError 0A000 for a function that is not known here."""
    compiler = _Compiler()
    part = compiler.part(expr)
    return Compiled(
        expr.oid,
        expr.typmod,
        part.fn,
        tuple(compiler.taken),
        compiler.volatile,
        part.kind == "con",
        part.at if part.kind == "con" else None,
        tuple(compiler.perhaps),
        compiler.unsure,
    )


def fold(expr: Expr) -> Expr:
    """The constant that an expression is, else the expression."""
    if isinstance(expr, Const):
        return expr
    try:
        part = _Compiler().part(expr)
    except SqlError:
        return expr
    if part.kind != "con":
        return expr
    return Const(oid=expr.oid, typmod=expr.typmod, pos=expr.pos, value=part.at)


class _Compiler:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.perhaps: list[str] = []
        self.unsure = False
        self.numbered = 0  # calls that take numbers, or set one
        self.lazy = 0  # of how many parts this is one that may not be reached
        self.volatile = False

    def part(self, expr: Expr) -> Part:
        handler = _PARTS.get(type(expr))
        if handler is None:
            raise CannotCompile(
                UNSUPPORTED,
                f"{type(expr).__name__.lower()} in an expression over one row is not supported",
            )
        made: Part = handler(self, expr)
        large = type(expr) in _MAKING and _may_be_large(expr.oid)
        if made.kind == "fun" and large and not made.fixed:
            return Part("fun", counted(made.at))
        return made

    def fn(self, expr: Expr) -> Fn:
        return self.part(expr).fn

    # -- leaves

    def _const(self, expr: Const) -> Part:
        return Part("con", expr.value)

    def _param(self, expr: Param) -> Part:
        return Part("par", expr.number - 1)

    def _column(self, expr: Column) -> Part:
        if expr.level:
            raise CannotCompile(UNSUPPORTED, "a column of the query around is not supported here")
        return Part("col", expr.index)

    def _case_value(self, expr: CaseValue) -> Part:
        return Part("col", -1)  # the node around puts it after the row

    def _named(self, expr: Named) -> Part:
        found = _NAMED.get(expr.name)
        if found is None:
            raise CannotCompile(UNSUPPORTED, f"{expr.name} is not supported here")
        if expr.typmod >= 0:
            digits = expr.typmod
            return Part("fun", lambda row, env: lengths.round_time(found(env), digits))
        return Part("fun", lambda row, env: found(env))

    def _later(self, expr: Later) -> Part:
        self.unsure = True
        self.numbered += 1
        once = expr.once
        fns = [self.fn(one) for one in expr.args]
        return Part("fun", lambda row, env: env.once(once, [fn(row, env) for fn in fns]))

    # -- functions

    def _call(self, expr: Call) -> Part:
        proc = expr.proc
        if proc.returns_set:
            raise CannotCompile(
                UNSUPPORTED, f"the set-returning function {proc.name} is not supported here"
            )
        self.volatile = self.volatile or proc.volatile == "v"
        before = self.numbered
        args = [self.part(a) for a in expr.args]
        inside = self.numbered > before
        known = FUNCTIONS.get(proc.source)
        strict = known is None or not known.nulls
        self._number(proc.source, args)
        types = tuple(a.oid for a in expr.args)
        if known is not None and known.with_env:
            return self._with_env(known.call, types, args, strict)
        part = self._pure(expr, types, args, strict)
        if inside and strict and part.kind != "con":
            # a NULL among the arguments does not keep the others from being computed
            function = self._pure(expr, types, list(_ARGUMENTS[: len(args)]), strict).fn
            return self._with_env(lambda env, *values: function(values, env), (), args, strict)
        return part

    def _number(self, source: str, args: Sequence[Part]) -> None:
        """Note a call that takes numbers, sets one, or does something else that is waited for."""
        if source == _NEXTVAL and args[0].kind == "con" and args[0].at is not None:
            name = read_relation(str(args[0].at))
            (self.perhaps if self.lazy else self.taken).append(name)
            self.unsure = self.unsure or bool(self.lazy)
        elif source in TAKING:
            self.unsure = True
        else:
            return
        self.numbered += 1

    @contextmanager
    def _perhaps(self) -> Iterator[None]:
        """What is compiled now is not computed each time."""
        self.lazy += 1
        try:
            yield
        finally:
            self.lazy -= 1

    def _first_only(self, exprs: Sequence[Expr]) -> list[Part]:
        """The first is computed each time, the others are perhaps."""
        parts = [self.part(one) for one in exprs[:1]]
        with self._perhaps():
            return parts + [self.part(one) for one in exprs[1:]]

    def _pure(self, expr: Call, types: tuple[int, ...], args: list[Part], strict: bool) -> Part:
        """A function of its arguments, or of their types and the session's style."""
        proc = expr.proc
        known = FUNCTIONS.get(proc.source)
        if known is not None and known.typed:
            site = Site(types, expr.oid, expr.variadic, DEFAULT)
            if any(map(_zoned_text, types)):
                of_site = known.call
                made = lru_cache(maxsize=_STYLES_MAX)(
                    lambda style: of_site(replace(site, style=style))
                )
                return self._with_env(lambda env, *vs: made(env.style)(*vs), types, args, strict)
            return self._strict_or_not(expr, known.call(site), args, strict)
        if proc.kind == "o" and proc.name in comparing.OPERATORS:
            if comparing.zoned(*types):
                zoned = comparing.zoned_test(proc.name)
                return self._with_env(
                    lambda env, a, b: zoned(a, b, env.style.zone), types, args, True
                )
            test = comparing.test(proc.name, *types)
            if test is not None:
                return self._strict_or_not(expr, test, args, True)
        if known is None:
            shown = f"{proc.name}({', '.join(map(format_type, types))})"
            raise CannotCompile(UNSUPPORTED, f"the function {shown} is not supported")
        return self._strict_or_not(expr, known.call, args, strict)

    def _strict_or_not(self, expr: Expr, function: Any, args: list[Part], strict: bool) -> Part:
        if _costs(expr):
            function = pausing(
                function, short=isinstance(expr, Call) and expr.proc.source in _SHORT
            )
        if strict and any(a.kind == "con" and a.at is None for a in args):
            return Part("con", None)
        volatile = isinstance(expr, Call) and expr.proc.volatile != "i"
        fixed = not volatile and all(a.kind == "con" or a.fixed for a in args)
        if fixed and all(a.kind == "con" for a in args):
            try:
                with folding():
                    return Part("con", counted_value(function(*(a.at for a in args))))
            except SqlError:
                pass  # it fails when it is reached, as in PostgreSQL's CASE
        call = strict_call(function, args) if strict else any_call(function, args)
        return Part("fun", large_constant(call), fixed=True) if fixed else Part("fun", call)

    def _with_env(
        self, function: Any, types: tuple[int, ...], args: list[Part], strict: bool
    ) -> Part:
        """`types`: of the arguments, if what it costs depends on their sizes."""
        small = all(a.small or oid in FIXED for oid, a in zip(types, args, strict=False))
        function = pausing(function, short=small)
        if len(args) == 1 and args[0].kind == "con" and args[0].at is not None:
            only = args[0].at  # nextval()
            return Part("fun", lambda row, env: function(env, only))
        fns = [a.fn for a in args]

        def call(row: Sequence[object], env: Env) -> object:
            values = [f(row, env) for f in fns]
            if strict and None in values:
                return None
            return function(env, *values)

        return Part("fun", call)

    # -- casts

    def _cast(self, expr: Cast) -> Part:
        arg = self.part(expr.arg)
        source, target = expr.arg.oid, expr.oid
        if expr.how == "array":
            return self._array_cast(expr, arg)
        if expr.how == "relabel":
            if target == oids.OID and source == oids.INT4:
                return self._strict_or_not(expr, lambda v: v & 0xFFFF_FFFF, [arg], True)
            return arg
        if target in (oids.REGCLASS, oids.REGTYPE) or source in (oids.REGCLASS, oids.REGTYPE):
            raise CannotCompile(
                UNSUPPORTED,
                f"a cast from {format_type(source)} to {format_type(target)} is not supported here",
            )
        pure = DEFAULT
        into_text = _category_s(target)
        if _zoned_text(source) or _zoned_text(target) or _dated(target):

            def cast(env: Env, value: object) -> object:
                text = writer(source, env.style)(value)
                return text if into_text else reader(target, env.style)(text)

            return self._with_env(cast, (source,), [arg], True)
        write = writer(source, pure)
        if into_text and target != 19:
            return self._strict_or_not(expr, write, [arg], True)
        read = reader(target, pure)
        return self._strict_or_not(expr, lambda v: read(write(v)), [arg], True)

    def _array_cast(self, expr: Cast, arg: Part) -> Part:
        assert expr.element is not None
        one = self.fn(expr.element)
        whole = arg.fn

        def convert(value: object, row: Sequence[object], env: Env) -> object:
            if isinstance(value, list):
                return [convert(v, row, env) for v in value]
            return one((*row, value), env)

        def call(row: Sequence[object], env: Env) -> object:
            value = whole(row, env)
            return None if value is None else convert(value, row, env)

        return Part("fun", call)

    def _length(self, expr: Length) -> Part:
        arg = self.part(expr.arg)
        return self._strict_or_not(
            expr, lengths.fitter(expr.oid, expr.typmod, expr.explicit), [arg], True
        )

    # -- logic

    def _logic(self, expr: Logic) -> Part:
        sets = gathered(expr, fold)
        if not isinstance(sets, Logic):
            return self.part(sets)
        expr = sets
        parts = self._first_only(expr.args)
        if expr.op == "not":
            return self._strict_or_not(expr, lambda v: not v, parts, True)
        decisive = expr.op == "or"
        if any(p.kind == "con" and p.at is decisive for p in parts):
            return Part("con", decisive)
        parts = [p for p in parts if not (p.kind == "con" and p.at is (not decisive))]
        if not parts:
            return Part("con", not decisive)
        if len(parts) == 1:
            return parts[0]
        fns = [p.fn for p in parts]
        return Part("fun", any_of(fns) if decisive else all_of(fns))

    def _is_null(self, expr: IsNull) -> Part:
        arg = self.part(expr.arg)
        negated = expr.negated
        if arg.kind == "con":
            return Part("con", (arg.at is None) is not negated)
        if arg.kind == "col":
            at = arg.at
            if negated:
                return Part("fun", lambda row, env: row[at] is not None)
            return Part("fun", lambda row, env: row[at] is None)
        fn = arg.fn
        return Part("fun", lambda row, env: (fn(row, env) is None) is not negated)

    def _is_bool(self, expr: IsBool) -> Part:
        fn, value, negated = self.fn(expr.arg), expr.value, expr.negated
        return Part("fun", lambda row, env: (fn(row, env) is value) is not negated)

    def _distinct(self, expr: Distinct) -> Part:
        left, right = self.fn(expr.left), self.fn(expr.right)
        equal = self._binary(expr.equal)
        negated = expr.negated

        def call(row: Sequence[object], env: Env) -> bool:
            a, b = left(row, env), right(row, env)
            same = (a is None and b is None) if a is None or b is None else bool(equal(env, a, b))
            return same is negated

        return Part("fun", call)

    def _binary(self, expr: Expr) -> Callable[[Env, object, object], object]:
        """An operator's function of two values, its arguments already converted."""
        assert isinstance(expr, Call)
        types = [a.oid for a in expr.args]
        probe = Call(
            oid=expr.oid,
            proc=expr.proc,
            args=tuple(Column(oid=t, index=i, name="") for i, t in enumerate(types)),
        )
        fn = _Compiler().fn(probe)
        return lambda env, a, b: fn((a, b), env)

    def _null_if(self, expr: NullIf) -> Part:
        assert isinstance(expr.equal, Call)
        parts = [self.part(one) for one in expr.equal.args[:2]]
        if any(one.kind == "con" and one.at is None for one in parts):
            return parts[0]
        left, right = parts[0].fn, parts[1].fn
        equal = self._binary(expr.equal)

        def call(row: Sequence[object], env: Env) -> object:
            a, b = left(row, env), right(row, env)
            return None if a is not None and b is not None and equal(env, a, b) else a

        return Part("fun", call)

    # -- conditional values

    def _case(self, expr: Case) -> Part:
        subject = self.fn(expr.arg) if expr.arg is not None else None
        whens = []
        for n, (condition, result) in enumerate(expr.whens):
            if n:
                with self._perhaps():
                    test = self.fn(condition)
            else:
                test = self.fn(condition)
            with self._perhaps():
                whens.append((test, self.fn(result)))
        with self._perhaps():
            default = self.fn(expr.default) if expr.default is not None else no_value

        def call(row: Sequence[object], env: Env) -> object:
            seen = row if subject is None else (*row, subject(row, env))
            for condition, result in whens:
                if condition(seen, env) is True:
                    return result(row, env)
            return default(row, env)

        return Part("fun", call)

    def _coalesce(self, expr: Coalesce) -> Part:
        fns = [one.fn for one in self._first_only(expr.args)]

        def call(row: Sequence[object], env: Env) -> object:
            for fn in fns:
                value = fn(row, env)
                if value is not None:
                    return value
            return None

        return Part("fun", call)

    def _min_max(self, expr: MinMax) -> Part:
        parts = [self.part(a) for a in expr.args]
        if all(one.kind == "con" and one.at is None for one in parts):
            return parts[0]
        fns = [one.fn for one in parts]
        key = comparing.key_of(expr.oid)
        best = max if expr.greatest else min

        def call(row: Sequence[object], env: Env) -> object:
            values = [v for v in (fn(row, env) for fn in fns) if v is not None]
            return best(values, key=key) if values else None

        return Part("fun", call)

    # -- arrays and rows

    def _array(self, expr: ArrayExpr) -> Part:
        parts = [self.part(a) for a in expr.args]
        if expr.nested:
            fns = [p.fn for p in parts]
            return Part("fun", lambda row, env: nested_array([f(row, env) for f in fns]))
        if all(p.kind == "con" for p in parts):
            return Part("con", [p.at for p in parts])
        fns = [p.fn for p in parts]
        return Part("fun", lambda row, env: [f(row, env) for f in fns])

    def _row(self, expr: RowExpr) -> Part:
        """A record, which is held as its text: as record_out writes it."""
        types = tuple(arg.oid for arg in expr.args)

        def made(env: Env, *values: object) -> str:
            return row_text([writer(oid, env.style) for oid in types], values)

        return self._with_env(made, types, [self.part(arg) for arg in expr.args], False)

    def _any_all(self, expr: AnyAll) -> Part:
        left, array = self.fn(expr.left), self.part(expr.array)
        every = expr.all
        if compared_by_key(expr.test) and not _of_the_row(expr.array):
            return Part("fun", self._for_all_rows(expr, left, array))
        equal = self._binary(expr.test)
        whole = array.fn

        def call(row: Sequence[object], env: Env) -> object:
            values = whole(row, env)
            if values is None:
                return None
            flat = flattened(values)
            a = left(row, env)
            if a is None:
                return None if flat else every
            unknown = False
            for b in flat:
                if b is None:
                    unknown = True
                    continue
                found = equal(env, a, b)
                if found is None:
                    unknown = True
                elif bool(found) is not every:
                    return not every
            return None if unknown else every

        return Part("fun", call)

    @staticmethod
    def _for_all_rows(expr: AnyAll, left: Fn, array: Part) -> Fn:
        """The array is one for all rows: it is looked at once."""
        operator, every = expr.test.operator, expr.all
        types = expr.test.args[0].oid, expr.test.args[1].oid

        def answer_of(values: Any, zone: object) -> Answer:
            if values is None:
                return no_answer
            key = comparing.common_key(*types, zone)
            return answering(operator, every, key, flattened(values))

        if array.kind == "con" and not comparing.zoned(*types):
            answer = answer_of(array.at, None)
            return lambda row, env: answer(left(row, env))
        whole = array.fn
        found = once_for_all(lambda env: answer_of(whole((), env), env.style.zone))
        return lambda row, env: found(env)(left(row, env))

    def _among(self, expr: Among) -> Part:
        lefts = [self.fn(one) for one in expr.left]
        columns = [self.part(one) for one in expr.columns]
        types = [(a.oid, element_of(b.oid)) for a, b in zip(expr.left, expr.columns, strict=True)]

        def answer_of(columns: list[list[object]], zone: object) -> Any:
            keys = [comparing.common_key(*pair, zone) for pair in types]
            return among(keys, list(zip(*columns, strict=True)), expr.negated)

        if all(one.kind == "con" for one in columns) and not any(
            comparing.zoned(*pair) for pair in types
        ):
            answer = answer_of([one.at for one in columns], None)
            return Part("fun", lambda row, env: answer([fn(row, env) for fn in lefts]))
        fns = [one.fn for one in columns]
        found = once_for_all(lambda env: answer_of([fn((), env) for fn in fns], env.style.zone))
        return Part("fun", lambda row, env: found(env)([fn(row, env) for fn in lefts]))

    def _subscript(self, expr: Subscript) -> Part:
        whole = self.fn(expr.arg)
        if expr.slices:
            bounds = [
                (self.fn(a) if a is not None else None, self.fn(b) if b is not None else None)
                for a, b in expr.slices
            ]
            return Part("fun", lambda row, env: slice_of(whole(row, env), bounds, row, env))
        with self._perhaps():
            indexes = [self.fn(i) for i in expr.indexes]

        def call(row: Sequence[object], env: Env) -> object:
            value = whole(row, env)
            for fn in indexes:
                at = fn(row, env)
                if at is None or not isinstance(value, list) or not 1 <= at <= len(value):
                    return None
                value = value[at - 1]
            return None if isinstance(value, list) else value

        return Part("fun", call)

    def _row_compare(self, expr: RowCompare) -> Part:
        with self._perhaps():
            equal = [self.fn(e) for e in expr.equal]
            less = [self.fn(e) for e in expr.less]
        or_equal = expr.op.endswith("=")

        def call(row: Sequence[object], env: Env) -> object:
            for same, first in zip(equal, less, strict=True):
                found = same(row, env)
                if found is None:
                    return None
                if not found:
                    return first(row, env)
            return or_equal

        return Part("fun", call)


_ARGUMENTS: Final = tuple(Part("col", n) for n in range(100))  # a function's, as a row


def _costs(expr: Expr) -> bool:
    """Whether what a call costs depends on the sizes of values, beyond what it costs to be compared
    (`comparing.OPERATORS`): who runs it may take a break before it.
    """
    match expr:
        case Call(proc=proc) if proc.kind == "o" and proc.name in comparing.OPERATORS:
            return any(element_of(arg.oid) or arg.oid in _DOCUMENTS for arg in expr.args)
        case Call():
            return any(arg.oid not in FIXED for arg in expr.args)
        case Cast():
            return not (expr.arg.oid in FIXED and expr.oid in FIXED)
        case _:
            return False


def _of_the_row(expr: Expr) -> bool:
    """Whether it may be another value in another row. (CaseValue inside it is its own.)"""
    return any(
        isinstance(one, Column | Later) or (isinstance(one, Call) and one.proc.volatile == "v")
        for one in walk(expr)
    )


def _category_s(oid: int) -> bool:
    return oid in (oids.TEXT, oids.VARCHAR, oids.BPCHAR, 19, oids.UNKNOWN)


def _zoned_text(oid: int) -> bool:
    return (element_of(oid) or oid) == oids.TIMESTAMPTZ


def _dated(oid: int) -> bool:
    """Whose text may be `now` or `today`."""
    return oid in (1082, 1083, 1114)


_NAMED: Final[dict[str, Callable[[Env], object]]] = {
    "current_timestamp": lambda env: env.now,
    "localtimestamp": lambda env: env.now.astimezone(env.style.zone).replace(tzinfo=None),
    "current_date": lambda env: env.now.astimezone(env.style.zone).date(),
    "localtime": lambda env: env.now.astimezone(env.style.zone).time(),
    "current_user": lambda env: env.session.get("user", ""),
    "current_role": lambda env: env.session.get("user", ""),
    "user": lambda env: env.session.get("user", ""),
    "session_user": lambda env: env.session.get("session_user", env.session.get("user", "")),
    "current_catalog": lambda env: env.session.get("database", ""),
    "current_schema": lambda env: next(iter(path_of(env)), None),
}
_PARTS: Final[dict[type, Any]] = {
    Const: _Compiler._const,
    Param: _Compiler._param,
    Column: _Compiler._column,
    CaseValue: _Compiler._case_value,
    Named: _Compiler._named,
    Later: _Compiler._later,
    Call: _Compiler._call,
    Cast: _Compiler._cast,
    Length: _Compiler._length,
    Logic: _Compiler._logic,
    IsNull: _Compiler._is_null,
    IsBool: _Compiler._is_bool,
    Distinct: _Compiler._distinct,
    NullIf: _Compiler._null_if,
    Case: _Compiler._case,
    Coalesce: _Compiler._coalesce,
    MinMax: _Compiler._min_max,
    ArrayExpr: _Compiler._array,
    RowExpr: _Compiler._row,
    Among: _Compiler._among,
    AnyAll: _Compiler._any_all,
    Subscript: _Compiler._subscript,
    RowCompare: _Compiler._row_compare,
}


__all__ = ["CannotCompile", "Compiled", "Fn", "compile", "fold"]
