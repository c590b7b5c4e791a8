"""Calls of functions, aggregates and window functions (PostgreSQL's ParseFuncOrColumn and
parse_agg.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from sqlproxy.front.binding.casting import Coercer
from sqlproxy.front.binding.inlining import Inlining, check_plain
from sqlproxy.front.binding.required_privileges import Needs
from sqlproxy.front.binding.scope import Names, Scope
from sqlproxy.front.bound.exprs import (
    TAKEN,
    TAKING,
    Aggregate,
    ArrayExpr,
    Call,
    Column,
    Const,
    Expr,
    Grouping,
    Order,
    RowExpr,
    Window,
    WindowSpec,
    leftmost,
    parts_of,
    walk,
)
from sqlproxy.front.functions.f_catalog import ASKS, CATALOG
from sqlproxy.front.functions.f_information_schema import INLINED
from sqlproxy.front.functions.regclass import as_oid, or_null
from sqlproxy.front.syntax.syntax import Node, at, find, parse_expression, strings, unwrap
from sqlproxy.front.types import resolve
from sqlproxy.front.types.quoting import quote_ident, read_relation
from sqlproxy.front.types.registry import (
    FUNCTIONS,
    INFORMATION_SCHEMA,
    POLYMORPHIC,
    TYPE_BY_NAME,
    Proc,
    array_of,
    element_of,
    format_type,
)
from sqlproxy.front.types.resolve import EXPLICIT, IMPLICIT, Resolved
from sqlproxy.front.types.value_texts import VECTORS
from sqlproxy.pg import oids
from sqlproxy.rows.naming import InSchema, named, schema_of
from sqlproxy.values.enums import is_enum
from sqlproxy.values.errors import (
    GROUPING_ERROR,
    INVALID_COLUMN_REFERENCE,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    UNDEFINED_TABLE,
    WINDOWING_ERROR,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)

_JSONPATHS: Final = [
    f"jsonb_path_{name}{zone}"
    for name in ("exists", "match", "query", "query_array", "query_first")
    for zone in ("", "_tz")
]
_SCHEMAS: Final = ("pg_catalog", "public", "kvorum", INFORMATION_SCHEMA)
_OF_PLACES: Final = frozenset(
    ("array_lower", "array_upper", "generate_subscripts", "generate_subscripts_nodir")
)
"""Of vectors they begin with 0."""
_DEFAULTS: Final[dict[str, tuple[object, ...]]] = {
    # The defaults of PostgreSQL's own functions that we evaluate (pg_proc.proargdefaults).
    "make_interval": (0, 0, 0, 0, 0, 0, 0.0),
    **dict.fromkeys(_JSONPATHS, (None, None, "{}", False)),
}  # None: there is none
_OF_DEFAULTS: Final = {int: oids.INT4, float: oids.FLOAT8, str: oids.JSONB, bool: oids.BOOL}
_GROUPING_ARGS_MAX: Final = 31
IN_FROM: Final = "functions in FROM"
_USUAL: Final = WindowSpec()
_VOID: Final = frozenset(
    {
        "pg_sleep",
        "pg_notify",
        "pg_advisory_unlock_all",
        *(f"pg_advisory_{part}lock{mode}" for part in ("", "xact_") for mode in ("", "_shared")),
    }
)  # functions that return nothing
_ROW_TO_JSON: Final = frozenset(("row_to_json", "to_json", "to_jsonb"))
_OF_ROWS: Final = _ROW_TO_JSON | {"json_agg", "jsonb_agg"}
_OF_VALUES: Final = _OF_ROWS | {
    f"{kind}_{rest}"
    for kind in ("json", "jsonb")
    for rest in ("build_array", "build_object", "object_agg")
}  # functions that make JSON of values of any type
ROW_TO_JSON: Final = "kvorum_row_json"  # our own function of names and values
_MOMENT: Final = ("year", "month", "mday", "hour", "min", "sec", "timezone")
_PATH: Final = ("target", "path", "vars", "silent")
_NAMED: Final[dict[str, tuple[str, ...]]] = {
    "make_interval": ("years", "months", "weeks", "days", "hours", "mins", "secs"),
    "make_date": ("year", "month", "day"),
    "make_time": ("hour", "min", "sec"),
    "make_timestamp": _MOMENT[:6],
    "make_timestamptz": _MOMENT,
    "jsonb_set": ("jsonb_in", "path", "replacement", "create_if_missing"),
    "jsonb_insert": ("jsonb_in", "path", "replacement", "insert_after"),
    "parse_ident": ("str", "strict"),
    **{
        f"{kind}_{rest}": ("from_json",)
        for kind in ("json", "jsonb")
        for rest in ("array_elements", "array_elements_text", "each", "each_text")
    },
    **dict.fromkeys(_JSONPATHS, _PATH),
}
"""The names of the arguments of PostgreSQL's own functions that we evaluate (proargnames)."""


class Binding(Protocol):
    """What calls need of the binder around them (sqlproxy.front.binding.binder.Binder)."""

    casts: Coercer
    names: Names
    needs: Needs

    def expr(self, node: Node, scope: Scope) -> Expr: ...
    def condition(self, node: Node, scope: Scope, clause: str) -> Expr: ...
    def decided(self, expr: Expr) -> Expr: ...


@dataclass(slots=True)
class QueryCalls:
    """What is noted of the calls of one query. `forbidden`: "WHERE", … where aggregates and windows
    are not allowed. `inside`: what encloses the call being bound: an aggregate or a window function
    may not be in another.
    """

    forbidden: str = ""
    inside: str = ""
    aggregates: bool = False
    windows: bool = False
    sets: bool = False
    named_windows: dict[str, WindowSpec] = field(default_factory=dict)


class FunctionCalls:
    """Calls of a statement; `here`: of the query that is being bound."""

    def __init__(self, binder: Binding) -> None:
        self.binder = binder
        self.here = QueryCalls()
        self.inlining = Inlining(
            binder.names,
            binder.casts,
            binder.needs,
            binder.expr,
            lambda words, given: self._cast_to(words, given) is not None,
        )
        self.numbered = 0  # calls of the statement that take numbers of sequences, or set one

    def bind(self, body: Node, scope: Scope) -> Expr:
        pos = at(body)
        words = strings(body["funcname"])
        own = len(words) > 1 and words[-2] not in _SCHEMAS
        if own and words[-2] not in self.binder.names.schemas:
            raise SqlError(UNDEFINED_SCHEMA, f'schema "{words[-2]}" does not exist', position=pos)
        name = words[-1]
        if (other := self._inlined(words, body, scope)) is not None:
            return other
        aggregate = any(p.kind == "a" for p in FUNCTIONS.get(name, ()))
        with self._inside("window" if "over" in body else "aggregate" if aggregate else ""):
            args = self._arguments(name, body, scope)
            ordered = [o for n in body.get("agg_order", ()) for o in self._order(n, scope)]
        if name in _ROW_TO_JSON and len(args) == 1 and is_row(args[0], name):
            return args[0]
        if body.get("agg_within_group"):
            found = resolve.function(
                name, [*(a.oid for a in args), *(o.expr.oid for o in ordered)], pos
            )
            return self._ordered_set(found, args, ordered, body, scope)
        if (cast := self._as_cast(words, args, body)) is not None:
            return cast
        variadic = bool(body.get("func_variadic"))
        found = self._resolved(words, args, variadic, pos)
        if found.proc.source == "pg_get_serial_sequence" and all(map(_written, args)):
            return self._serial_sequence(args, pos)
        if found.proc.kind == "f" and found.proc.name in _DEFAULTS:
            args = self._with_defaults(found, args)
            found = resolve.function(name, [a.oid for a in args], pos)
        converted = self._converted(found, args, pos)
        if (named := self._name(found, converted)) is not None:
            return named
        if (asks := ASKS.get(found.proc.source)) is not None:
            self.binder.casts.asked |= {CATALOG, asks}
            converted = self._by_oid(converted)
        if found.proc.kind not in ("a", "w"):
            return self._plain(found, converted, variadic, body)
        condition = self._filter(found.proc, converted, ordered, body, scope)
        if "over" in body:
            return self._windowed(found, converted, ordered, condition, body, scope)
        return self._aggregated(found, args, converted, ordered, condition, body)

    def _name(self, found: Resolved, args: tuple[Expr, ...]) -> Expr | None:
        """What is a name that depends on the schemas that are searched; None: it is none."""
        match found.proc.source:
            case "to_regclass":
                if isinstance(args[0], Const) and args[0].value is not None:
                    self.binder.needs.named(args[0].value)
                return or_null(args[0], self.binder.names.relations())
            case "pg_typeof" if is_enum(element_of(args[0].oid) or args[0].oid):
                return self.binder.casts.named_type(args[0].oid, args[0].pos)
            case _:
                return None

    def _inlined(self, words: Sequence[str], body: Node, scope: Scope) -> Expr | None:
        """What stands for a function of users', or of rows; None: it is neither."""
        if words[-2:-1] == [INFORMATION_SCHEMA] and words[-1] in INLINED:
            return self.binder.expr(_of_rows(INLINED[words[-1]], body), scope)
        own = self.inlining.chosen(words, body, scope)
        return None if own is None else self.inlining.value(own, self.here.forbidden)

    def grouping(self, body: Node, scope: Scope) -> Expr:
        """GROUPING (…): what holds for aggregates holds for it."""
        pos = at(body)
        if len(body["args"]) > _GROUPING_ARGS_MAX:
            raise SqlError(
                "54023",
                f"GROUPING must have fewer than {_GROUPING_ARGS_MAX + 1} arguments",
                position=pos,
            )
        with self._inside("aggregate"):
            args = tuple(self.binder.expr(arg, scope) for arg in body["args"])
        self._place(False, pos, "grouping operations")
        self.here.aggregates = True
        return Grouping(oid=oids.INT4, args=args, pos=pos - 1)

    @contextmanager
    def _inside(self, what: str) -> Iterator[None]:
        outer = self.here.inside
        self.here.inside = what or outer
        try:
            yield
        finally:
            self.here.inside = outer

    @staticmethod
    def _resolved(words: Sequence[str], args: Sequence[Expr], variadic: bool, pos: int) -> Resolved:
        name = words[-1]
        lookup = name if len(words) == 1 or words[-2] == "pg_catalog" else ".".join(words[-2:])
        given = [a.oid for a in args]
        found = resolve.function(lookup, given, pos, variadic=variadic, written=".".join(words))
        if any(oid in POLYMORPHIC for _, oid in found.proc.out):
            out = tuple(
                (one, element_of(given[0]) if oid in POLYMORPHIC else oid)
                for one, oid in found.proc.out
            )
            found = replace(found, proc=replace(found.proc, out=out))
        if given and given[0] in VECTORS and found.proc.source in _OF_PLACES:
            counted = replace(found.proc, source=f"{found.proc.source}_from_0")
            found = replace(found, proc=counted)
        serial = found.proc.source == "pg_get_serial_sequence"
        if found.result == 2278 and name not in _VOID and not serial:
            raise unsupported(f"the function {name}", position=pos)
        return found

    def _serial_sequence(self, args: Sequence[Expr], pos: int) -> Expr:
        """pg_get_serial_sequence('table', 'column') of literals. Raises 42P01, 42703."""
        written, column = (str(arg.value) for arg in args if isinstance(arg, Const))
        names = self.binder.names
        name = read_relation(written)
        if not isinstance(name, InSchema) and "." not in written:
            name = names.searched(name)
        self.binder.needs.named(written)
        table = names.table(name)
        if table is None:
            names.relations().must(written)  # raises, unless it is a view or the like
            raise SqlError(UNDEFINED_TABLE, f'relation "{written}" does not exist', position=pos)
        found = next((one for one in table.columns if one.name == column), None)
        if found is None:
            raise SqlError(
                UNDEFINED_COLUMN,
                f'column "{column}" of relation "{name}" does not exist',
                position=pos,
            )
        owned = names.sequences_owned_by(int(table.id))
        owner = next((s for s in owned if s.owned_by and s.owned_by[1] == found.id), None)
        schema = quote_ident(schema_of(table.namespace))
        value = None if owner is None else f"{schema}.{quote_ident(owner.name)}"
        return Const(oid=oids.TEXT, value=value, pos=pos - 1)

    def _arguments(self, name: str, body: Node, scope: Scope) -> list[Expr]:
        args: list[Expr] = []
        by_name: dict[str, Expr] = {}
        for node in body.get("args", ()):
            kind, part = unwrap(node)
            if kind == "NamedArgExpr":
                by_name[part["name"]] = self.binder.expr(part["arg"], scope)
            elif by_name:
                raise SqlError(
                    SYNTAX_ERROR,
                    "positional argument cannot follow named argument",
                    position=at(part),
                )
            else:
                arg = self._row(name, node, scope) or self.binder.expr(node, scope)
                if isinstance(arg, RowExpr) and name in _OF_VALUES:
                    arg = self._json_of(name, arg)
                args.append(arg)
        if not by_name:
            return args
        known = _NAMED.get(name, ())
        last = max(known.index(n) if n in known else -1 for n in by_name)
        defaults = _DEFAULTS.get(name, ())
        made = list(args)
        for i in range(len(args), last + 1):
            if (given := by_name.get(known[i])) is None and i < len(defaults):
                value = defaults[i]
                if value is not None:
                    given = Const(oid=_OF_DEFAULTS[type(value)], value=value)
            if given is None:
                break
            made.append(given)
        if not set(by_name) <= set(known[len(args) : len(made)]):
            shown = [format_type(arg.oid) for arg in args]
            shown += [f"{n} => {format_type(arg.oid)}" for n, arg in by_name.items()]
            raise SqlError(
                UNDEFINED_FUNCTION,
                f"function {name}({', '.join(shown)}) does not exist",
                hint=resolve.NO_MATCH_FUNCTION,
                position=at(body),
            )
        return made

    def _row(self, name: str, node: Node, scope: Scope) -> Expr | None:
        """A whole row as JSON, where that is all that is made of it: row_to_json(t)."""
        kind, part = unwrap(node)
        if name not in _OF_ROWS or kind != "ColumnRef" or len(part["fields"]) != 1:
            return None
        words = strings(part["fields"])
        if not words or scope.column(words[0], at(part)) is not None:
            return None
        found = scope.row_of(words[0], at(part))
        if found is None:
            return None
        names, columns, outer = found
        for column in columns:
            self.binder.needs.saw(column)
        return _row_json(name, names, columns, outer, at(part) - 1)

    def _json_of(self, name: str, row: RowExpr) -> Expr:
        """A row that is written, as JSON: its columns are f1, f2, …"""
        columns = [
            self._json_of(name, one) if isinstance(one, RowExpr) else self.binder.decided(one)
            for one in row.args
        ]
        names = [f"f{place}" for place in range(1, len(columns) + 1)]
        return _row_json(name, names, columns, False, row.pos)

    @staticmethod
    def _with_defaults(found: Resolved, args: Sequence[Expr]) -> list[Expr]:
        values = _DEFAULTS[found.proc.name]
        rest = found.proc.args[len(args) :]
        return [
            *args,
            *(Const(oid=oid, value=v) for oid, v in zip(rest, values[len(args) :], strict=True)),
        ]

    def _as_cast(self, words: Sequence[str], args: Sequence[Expr], body: Node) -> Expr | None:
        """`float8(x)`: a type's name as a function is a cast, if no function fits as well."""
        if len(args) != 1 or body.get("agg_star") or "over" in body:
            return None
        target = self._cast_to(words, args[0].oid)
        if target is None or any(p.args == (args[0].oid,) for p in FUNCTIONS.get(words[-1], ())):
            return None
        return self.binder.casts.coerce(args[0], target, EXPLICIT, at(body))

    def _cast_to(self, words: Sequence[str], given: int) -> int | None:
        """The type of this name, if what is `given` can be cast to it."""
        names, name, schemas = self.binder.names, words[-1], words[-2:-1]
        target = TYPE_BY_NAME.get(name) if schemas in ([], ["pg_catalog"]) else None
        if target is None:
            every = (names.enum(named(one, name)) for one in schemas or names.path)
            target = next((one.oid for one in every if one is not None), None)
        if target is None or given in (oids.UNKNOWN, target):
            return target
        row = resolve.pathway(given, target, EXPLICIT)
        return target if row is not None and row.method in ("b", "i", "f") else None

    def _converted(self, found: Resolved, args: Sequence[Expr], pos: int) -> tuple[Expr, ...]:
        casts = self.binder.casts
        converted = [
            casts.must(arg, oid, IMPLICIT, pos) if oid else arg
            for arg, oid in zip(args, found.args, strict=True)
        ]
        # `any` takes literals as they are: they are text then.
        converted = [
            self.binder.decided(arg) if oid == 2276 else arg
            for arg, oid in zip(converted, found.args, strict=True)
        ]
        if found.variadic and found.proc.variadic != 2276:
            fixed = len(found.proc.args) - 1
            rest = tuple(converted[fixed:])
            element = rest[0].oid
            array = ArrayExpr(oid=array_of(element), args=rest, pos=rest[0].pos)
            converted = [*converted[:fixed], array]
        return tuple(converted)

    def _by_oid(self, args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """What functions of the system's relations take: a regclass is an OID to them."""
        relations = self.binder.names.relations
        return tuple(as_oid(arg, relations()) if arg.oid == oids.REGCLASS else arg for arg in args)

    def _plain(self, found: Resolved, args: tuple[Expr, ...], variadic: bool, body: Node) -> Expr:
        pos = at(body)
        name = found.proc.name
        check_plain(name, body)
        if found.proc.returns_set:
            forbidden = self.here.forbidden
            if forbidden not in ("", "GROUP BY", "window definitions", IN_FROM):
                raise SqlError(
                    "0A000",
                    f"set-returning functions are not allowed in {_told_place(forbidden)}",
                    position=pos,
                )
            self.here.sets = True
        self.binder.needs.call(found.proc.source, args)
        if found.proc.source in TAKING:
            self.numbered += 1
        elif found.proc.source in TAKEN:
            args = (*args, Const(oid=oids.TEXT, value=self.binder.names.relations()))
        return Call(oid=found.result, proc=found.proc, args=args, variadic=variadic, pos=pos - 1)

    def _filter(
        self,
        proc: Proc,
        args: Sequence[Expr],
        ordered: Sequence[Order],
        body: Node,
        scope: Scope,
    ) -> Expr | None:
        """The condition of FILTER; refuses what no aggregate or window function may be called
        with.
        """
        pos, window = at(body), "over" in body
        if proc.kind == "w" and not window:
            raise SqlError(
                WRONG_OBJECT_TYPE,
                f"window function {proc.name} requires an OVER clause",
                position=pos,
            )
        if proc.kind == "a" and not args and not body.get("agg_star") and proc.args == ():
            raise SqlError(
                WRONG_OBJECT_TYPE,
                f"{proc.name}(*) must be used to call a parameterless aggregate function",
                position=pos,
            )
        self._place(window, pos)
        if "agg_filter" in body and proc.kind == "w":
            raise unsupported("FILTER for a window function that is no aggregate", position=pos)
        condition = self._filter_of(body, scope)
        inputs = [*args, *(one.expr for one in ordered)]
        if window:
            no_sets(inputs, "window function calls cannot contain set-returning function calls", "")
        else:
            no_sets(inputs, "aggregate function calls cannot contain set-returning function calls")
        return condition

    def _filter_of(self, body: Node, scope: Scope) -> Expr | None:
        if "agg_filter" not in body:
            return None
        with self.within("FILTER"):
            return self.binder.condition(body["agg_filter"], scope, "FILTER")

    def _windowed(
        self,
        found: Resolved,
        args: tuple[Expr, ...],
        ordered: Sequence[Order],
        condition: Expr | None,
        body: Node,
        scope: Scope,
    ) -> Window:
        pos = at(body)
        if body.get("agg_distinct"):
            raise SqlError(
                "0A000", "DISTINCT is not implemented for window functions", position=pos
            )
        if ordered:
            raise unsupported("ORDER BY inside the arguments of a window function", position=pos)
        self.here.windows = True
        return Window(
            oid=found.result,
            proc=found.proc,
            args=args,
            window=self.window(body["over"], scope),
            star=bool(body.get("agg_star")),
            filter=condition,
            pos=pos - 1,
        )

    def _aggregated(
        self,
        found: Resolved,
        given: Sequence[Expr],
        args: tuple[Expr, ...],
        ordered: Sequence[Order],
        condition: Expr | None,
        body: Node,
    ) -> Aggregate:
        self.here.aggregates = True
        distinct = bool(body.get("agg_distinct"))
        if distinct:
            for arg in (part for one in args for part in parts_of(one)):
                resolve.operator("<", arg.oid, arg.oid, arg.pos + 1)
            for one in ordered:
                if one.expr not in given and one.expr not in args:
                    raise SqlError(
                        INVALID_COLUMN_REFERENCE,
                        "in an aggregate with DISTINCT, ORDER BY expressions must appear in "
                        "argument list",
                        position=leftmost(one.expr),
                    )
        return Aggregate(
            oid=found.result,
            proc=found.proc,
            args=args,
            star=bool(body.get("agg_star")),
            distinct=distinct,
            order=tuple(ordered),
            filter=condition,
            pos=at(body) - 1,
        )

    @contextmanager
    def within(self, clause: str) -> Iterator[None]:
        """Aggregates, windows and sets are refused by the clause's name."""
        outer, self.here.forbidden = self.here.forbidden, clause
        try:
            yield
        finally:
            self.here.forbidden = outer

    def _place(self, window: bool, pos: int, what: str = "aggregate functions") -> None:
        """Raise 42803 or 42P20 where it may not stand."""
        if window:
            if self.here.forbidden:
                raise SqlError(
                    WINDOWING_ERROR,
                    f"window functions are not allowed in {_told_place(self.here.forbidden)}",
                    position=pos,
                )
            if self.here.inside == "window":
                raise SqlError(
                    WINDOWING_ERROR, "window function calls cannot be nested", position=pos
                )
            if self.here.inside:
                raise SqlError(
                    GROUPING_ERROR,
                    "aggregate function calls cannot contain window function calls",
                    position=pos,
                )
            return
        if self.here.forbidden and self.here.forbidden not in ("HAVING", "window definitions"):
            raise SqlError(
                GROUPING_ERROR,
                f"{what} are not allowed in {self.here.forbidden}",
                position=pos,
            )
        if self.here.inside == "aggregate":
            raise SqlError(
                GROUPING_ERROR, "aggregate function calls cannot be nested", position=pos
            )

    def _ordered_set(
        self, found: Resolved, args: Sequence[Expr], ordered: list[Order], body: Node, scope: Scope
    ) -> Expr:
        pos = at(body)
        proc = found.proc
        if proc.aggregate_kind not in ("o", "h"):
            raise SqlError(
                WRONG_OBJECT_TYPE,
                f"{proc.name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP",
                position=pos,
            )
        if "over" in body:
            raise SqlError(
                "0A000",
                f"OVER is not supported for ordered-set aggregate {proc.name}",
                position=pos,
            )
        self._place(False, pos)
        no_sets(
            [*args, *(one.expr for one in ordered)],
            "aggregate function calls cannot contain set-returning function calls",
        )
        self.here.aggregates = True
        direct = tuple(
            self.binder.casts.must(a, oid, IMPLICIT, pos)
            for a, oid in zip(args, found.args, strict=False)
        )
        within = tuple(
            self.binder.casts.must(o.expr, oid, IMPLICIT, pos)
            for o, oid in zip(ordered, found.args[len(args) :], strict=True)
        )
        return Aggregate(
            oid=found.result,
            proc=proc,
            args=within,
            order=tuple(ordered),
            filter=self._filter_of(body, scope),
            direct=direct,
            pos=pos - 1,
        )

    # -- order and windows

    def _order(self, node: Node, scope: Scope) -> Sequence[Order]:
        body = node["SortBy"]
        expr = self.binder.decided(self.binder.expr(body["node"], scope))
        return sorted_by(body, expr)

    def window(self, body: Node, scope: Scope) -> WindowSpec:
        """OVER name, or OVER (…)."""
        if "name" in body and "partitionClause" not in body and not body.get("refname"):
            found = self.here.named_windows.get(body["name"])
            if found is None:
                raise SqlError(
                    UNDEFINED_OBJECT, f'window "{body["name"]}" does not exist', position=at(body)
                )
            return found
        return self.window_spec(body, scope)

    def window_spec(self, body: Node, scope: Scope) -> WindowSpec:
        outer, self.here.forbidden = self.here.forbidden, "window definitions"
        base = WindowSpec()
        if name := body.get("refname"):
            if name not in self.here.named_windows:
                raise SqlError(
                    UNDEFINED_OBJECT, f'window "{name}" does not exist', position=at(body)
                )
            base = self.here.named_windows[name]
        partition = tuple(
            part
            for node in body.get("partitionClause", ())
            for part in parts_of(self.binder.decided(self.binder.expr(node, scope)))
        )
        order = tuple(o for n in body.get("orderClause", ()) for o in self._order(n, scope))
        if name := body.get("refname"):
            if partition:
                raise SqlError(
                    WINDOWING_ERROR,
                    f'cannot override PARTITION BY clause of window "{name}"',
                    position=at(body),
                )
            if order and base.order:
                raise SqlError(
                    WINDOWING_ERROR,
                    f'cannot override ORDER BY clause of window "{name}"',
                    position=at(body),
                )
            if base.frame != _USUAL.frame:
                alone = not order and "name" not in body and body["frameOptions"] == _USUAL.frame
                raise SqlError(
                    WINDOWING_ERROR,
                    f'cannot copy window "{name}" because it has a frame clause',
                    hint="Omit the parentheses in this OVER clause." if alone else "",
                    position=at(body),
                )
        ends: dict[str, Expr] = {}
        for key in ("startOffset", "endOffset"):
            if key in body:
                bits = body.get("frameOptions", 0)
                with self.within(f"window {_counted(bits)}"):
                    offset = self.binder.expr(body[key], scope)
                _check_offset(offset, bits)
                ends[key] = self._frame_offset(offset, order or base.order, bits)
        self.here.forbidden = outer
        _check_frame(body, order or base.order)
        return WindowSpec(
            partition or base.partition,
            order or base.order,
            body.get("frameOptions", base.frame),
            ends.get("startOffset"),
            ends.get("endOffset"),
        )

    def _frame_offset(self, offset: Expr, order: Sequence[Order], bits: int) -> Expr:
        """An end of a frame as what it is added to a value, or rows are counted by."""
        casts = self.binder.casts
        if not bits & _RANGE:
            return casts.must(offset, oids.INT8, what=_counted(bits))
        kinds = _RANGE_OFFSETS.get(order[0].expr.oid) if len(order) == 1 else None
        if kinds is None or offset.oid in kinds:  # None: it is refused below
            return offset
        column = order[0].expr.oid
        if offset.oid == oids.UNKNOWN:
            return casts.must(offset, column if column in kinds else kinds[0])
        fitting = [one for one in kinds if casts.coerce(offset, one) is not None]
        if not fitting:
            raise SqlError(
                "0A000",
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type "
                f"{format_type(column)} and offset type {format_type(offset.oid)}",
                hint="Cast the offset value to an appropriate type.",
                position=offset.pos + 1,
            )
        return casts.must(offset, fitting[0])


_RANGE_OFFSETS: Final = {
    oids.INT2: (oids.INT2, oids.INT4, oids.INT8),
    oids.INT4: (oids.INT4, oids.INT2, oids.INT8),
    oids.INT8: (oids.INT8,),
    oids.NUMERIC: (oids.NUMERIC,),
    oids.FLOAT4: (oids.FLOAT8,),
    oids.FLOAT8: (oids.FLOAT8,),
    **dict.fromkeys(
        (oids.DATE, oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ, oids.INTERVAL), (oids.INTERVAL,)
    ),
}
"""What RANGE adds to values of a type (pg_amproc's in_range functions)."""
_GROUPS, _RANGE, _OFFSETS = 0x8, 0x2, 0x7800  # PostgreSQL's FRAMEOPTION bits (parsenodes.h)


def _told_place(clause: str) -> str:
    """As it is told of windows and sets, for which an end of a frame is no place of its own."""
    return "window definitions" if clause.startswith("window ") else clause


def _counted(bits: int) -> str:
    return "RANGE" if bits & _RANGE else "GROUPS" if bits & _GROUPS else "ROWS"


def _check_offset(offset: Expr, bits: int) -> None:
    """The end of a frame is the same for all rows. Raises 42P10."""
    for one in walk(offset):
        if isinstance(one, Column) and not one.level:
            raise SqlError(
                INVALID_COLUMN_REFERENCE,
                f"argument of {_counted(bits)} must not contain variables",
                position=one.pos + 1,
            )


def _check_frame(body: Node, order: Sequence[Order]) -> None:
    """Raise 42P20 or 0A000 for a frame that its ORDER BY does not allow."""
    bits = body.get("frameOptions", 0)
    if bits & _GROUPS and not order:
        raise SqlError(
            WINDOWING_ERROR, "GROUPS mode requires an ORDER BY clause", position=at(body)
        )
    if not (bits & _RANGE and bits & _OFFSETS):
        return
    if len(order) != 1:
        raise SqlError(
            WINDOWING_ERROR,
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            position=at(body),
        )
    if (oid := order[0].expr.oid) not in _RANGE_OFFSETS:
        raise SqlError(
            "0A000",
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type "
            f"{format_type(oid)}",
            position=order[0].expr.pos + 1,
        )


def _row_json(
    name: str, names: Sequence[str], columns: Sequence[Expr], outer: bool, pos: int
) -> Call:
    """What the function `name` makes of a row."""
    binary = name.startswith("jsonb") or name == "to_jsonb"
    source = "kvorum_row_jsonb" if binary else ROW_TO_JSON
    result = oids.JSONB if binary else oids.JSON
    proc = Proc(name, (), result, source, strict=False)
    listed = Const(oid=array_of(oids.TEXT), value=list(names))
    made_up = Const(oid=oids.BOOL, value=outer)
    return Call(oid=result, proc=proc, args=(listed, made_up, *columns), pos=pos)


def _written(arg: Expr) -> bool:
    return isinstance(arg, Const) and arg.value is not None


def _of_rows(text: str, body: Node) -> Node:
    """A function of rows, named a, b, … in its text, with the rows of a call."""
    rows = [unwrap(arg)[1].get("fields", ())[:-1] for arg in body.get("args", ())]
    made: Node = deepcopy(parse_expression(text))
    for column in find(made, "ColumnRef"):
        place = ord(strings(column["fields"])[0]) - ord("a")
        if place >= len(rows) or not rows[place]:
            raise unsupported("this call of a function of rows", position=at(body))
        column["fields"] = [*rows[place], column["fields"][-1]]
        column["location"] = body.get("location", 0)
    return made


def is_row(expr: Expr, name: str) -> bool:
    """Whether it is a whole row as JSON, written as the argument of the function `name`."""
    return (
        isinstance(expr, Call)
        and expr.proc.source.startswith(ROW_TO_JSON)
        and expr.proc.name == name
    )


def sorted_by(body: Node, expr: Expr, target: int = -1) -> Sequence[Order]:
    """A SortBy's direction over a bound expression; of a row over its columns, of which NULL is the
    greatest value. Raises 42883: its type has no order.
    """
    if isinstance(expr, RowExpr):
        plain = {**body, "sortby_nulls": "SORTBY_NULLS_DEFAULT"}
        return [one for part in expr.args for one in sorted_by(plain, part)]
    direction = body.get("sortby_dir", "SORTBY_DEFAULT")
    if direction == "SORTBY_USING":
        name = strings(body["useOp"])[-1]
        if name not in ("<", ">"):
            raise unsupported(f"ORDER BY … USING {name}", position=at(body))
        direction = "SORTBY_DESC" if name == ">" else "SORTBY_ASC"
    if expr.oid in (oids.REGCLASS, oids.REGTYPE):
        raise unsupported(f"ORDER BY of a {format_type(expr.oid)} here; cast it to oid or text")
    if expr.oid != oids.TEXT:
        orderable(expr, expr.pos + 1)
    descending = direction == "SORTBY_DESC"
    nulls = body.get("sortby_nulls", "SORTBY_NULLS_DEFAULT")
    nulls_first = descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
    return (Order(expr, descending, nulls_first, target),)


def orderable(expr: Expr, pos: int) -> None:
    """Raise 42883 unless values of the type can be sorted."""
    try:
        resolve.operator("<", expr.oid, expr.oid, pos)
    except SqlError:
        raise SqlError(
            UNDEFINED_FUNCTION,
            f"could not identify an ordering operator for type {format_type(expr.oid)}",
            hint="Use an explicit ordering operator or modify the query.",
            position=pos,
        ) from None


_LATERAL: Final = "You might be able to move the set-returning function into a LATERAL FROM item."


def no_sets(parts: Iterable[Expr | None], message: str, hint: str = _LATERAL) -> None:
    """Raises SqlError (0A000) if a function that returns a set is called in one of them."""
    for part in parts:
        for one in walk(part) if part is not None else ():
            if isinstance(one, Call) and one.proc.returns_set:
                raise SqlError("0A000", message, hint=hint, position=one.pos + 1)
