"""Trees of expressions → bound expressions: names to columns, operators and functions to
PostgreSQL's, casts put in.

The source is PostgreSQL's parse_expr.c, function by function; errors have its words and SQLSTATEs.
Positions in errors count bytes from 1 here (`syntax.in_characters` corrects them once, at the end).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from sqlproxy.front.binding.bulk import Unfit
from sqlproxy.front.binding.casting import Coercer
from sqlproxy.front.binding.functioncalls import FunctionCalls, no_sets
from sqlproxy.front.binding.required_privileges import Needs
from sqlproxy.front.binding.scope import Names, Parameters, Scope
from sqlproxy.front.binding.typenames import (
    check_collation,
    function_name,
    type_of,
    with_schemas,
)
from sqlproxy.front.bound.exprs import (
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
    Default,
    Distinct,
    Expr,
    IsBool,
    IsNull,
    Logic,
    MinMax,
    Named,
    NullIf,
    Param,
    RowCompare,
    RowExpr,
    Subscript,
    leftmost,
    walk,
)
from sqlproxy.front.bound.statements import Select, SubQuery
from sqlproxy.front.closures.compiling import fold
from sqlproxy.front.closures.gathering import compared_by_key
from sqlproxy.front.closures.raising import raises
from sqlproxy.front.functions.object_names import HELD_AS_NAMES
from sqlproxy.front.functions.system_columns import key_of_ctid, relation_of
from sqlproxy.front.stages.sequence_stages import unlooked
from sqlproxy.front.syntax import bulk_lists
from sqlproxy.front.syntax.syntax import TOO_DEEP, Node, at, strings, unwrap
from sqlproxy.front.types import resolve
from sqlproxy.front.types.registry import Proc, array_of, element_of, format_type
from sqlproxy.front.types.resolve import EXPLICIT, IMPLICIT
from sqlproxy.front.types.value_texts import VECTORS
from sqlproxy.pg import oids
from sqlproxy.pg.numbers import read_numeric
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import (
    CANNOT_COERCE,
    DATATYPE_MISMATCH,
    INVALID_TEXT,
    OUT_OF_RANGE,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_FUNCTION,
    UNDEFINED_TABLE,
    SqlError,
    unsupported,
)

_SQL_VALUES: Final = {
    "current_date": oids.DATE,
    "current_timestamp": oids.TIMESTAMPTZ,
    "localtime": oids.TIME,
    "localtimestamp": oids.TIMESTAMP,
    "current_role": oids.NAME,
    "current_user": oids.NAME,
    "user": oids.NAME,
    "session_user": oids.NAME,
    "current_catalog": oids.NAME,
    "current_schema": oids.NAME,
}
_UNSUPPORTED: Final = {
    "XmlExpr": "XML",
    "XmlSerialize": "XML",
    "CurrentOfExpr": "WHERE CURRENT OF here",
    "JsonObjectConstructor": "JSON_OBJECT",
    "JsonArrayConstructor": "JSON_ARRAY",
    "JsonArrayQueryConstructor": "JSON_ARRAY",
    "JsonObjectAgg": "JSON_OBJECTAGG",
    "JsonArrayAgg": "JSON_ARRAYAGG",
    "JsonIsPredicate": "IS JSON",
    "JsonParseExpr": "JSON()",
    "JsonScalarExpr": "JSON_SCALAR",
    "JsonSerializeExpr": "JSON_SERIALIZE",
    "JsonFuncExpr": "JSON_VALUE, JSON_QUERY and JSON_EXISTS",
    "NamedArgExpr": "a named argument",
    "MergeSupportFunc": "merge_action()",
}
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_INTS: Final = frozenset((oids.INT2, oids.INT4, oids.INT8))
_INT8_DIGITS: Final = 19


class Binder:
    """Binds one statement's expressions. `subselect` binds a query inside, seen from a scope;
    `converted` makes its columns others of these types.
    """

    def __init__(self, names: Names, parameters: Parameters, style: Style) -> None:
        self.names = names
        self.parameters = parameters
        self.style = style
        self.needs = Needs(names)
        self.casts = Coercer(parameters, style, names.relations, self.needs.named)
        self.calls = FunctionCalls(self)
        self.subselect: Callable[[Node, Scope], Select] = _no_queries
        self.converted: Callable[[Select, Sequence[int], str], Select] = lambda select, *to: select
        self.subqueries = False  # whether one was met
        self.allow_default = False
        self.system_columns = False  # whether the statement may name them
        self.known_relations = False  # whether a regclass that is written has to be there
        self.lists: Sequence[bulk_lists.Rows] = ()

    # -- entry points

    def expr(self, node: Node, scope: Scope) -> Expr:
        """Any expression. Raises SqlError."""
        kind, body = unwrap(node)
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise unsupported(_UNSUPPORTED.get(kind, kind), position=at(body))
        try:
            return handler(self, body, scope)
        except RecursionError:
            raise SqlError("54001", TOO_DEEP, position=at(body)) from None

    def condition(self, node: Node, scope: Scope, clause: str) -> Expr:
        """An expression that must be boolean, e.g. of WHERE."""
        bound = self.expr(node, scope)
        return self.casts.must(bound, oids.BOOL, IMPLICIT, bound.pos + 1, clause)

    def decided(self, expr: Expr) -> Expr:
        """A literal or parameter that nothing has given a type is text."""
        if expr.oid == oids.UNKNOWN and isinstance(expr, Const | Param):
            return self.casts.must(expr, oids.TEXT)
        if isinstance(expr, RowExpr):
            return replace(expr, args=tuple(map(self.decided, expr.args)))
        return expr

    # -- leaves

    def _const(self, body: Node, scope: Scope) -> Const:
        pos = at(body) - 1
        if body.get("isnull"):
            return Const(oid=oids.UNKNOWN, value=None, pos=pos)
        if "ival" in body:
            return Const(oid=oids.INT4, value=body["ival"].get("ival", 0), pos=pos)
        if "sval" in body:
            return Const(oid=oids.UNKNOWN, value=body["sval"].get("sval", ""), pos=pos)
        if "boolval" in body:
            return Const(oid=oids.BOOL, value=body["boolval"].get("boolval", False), pos=pos)
        if "fval" in body:
            return _number(body["fval"].get("fval", ""), pos)
        raise unsupported("a bit string", position=pos + 1)

    def _param(self, body: Node, scope: Scope) -> Expr:
        return self.parameters.get(body.get("number", 0), at(body))

    def _column(self, body: Node, scope: Scope) -> Expr:
        pos = at(body)
        fields = body["fields"]
        if "A_Star" in fields[-1]:
            raise unsupported("row expansion via * here", position=pos)
        words = strings(fields)
        if len(words) == 1:
            found = scope.column(words[0], pos)
            if found is not None:
                self.needs.saw(found)
                return found
            if (value := scope.value_of(words[0])) is not None:
                return value
            if (row := self._whole_row(words[0], scope, pos)) is not None:
                return row
            raise SqlError(UNDEFINED_COLUMN, f'column "{words[0]}" does not exist', position=pos)
        if len(words) > 2:
            found_in = scope.schema_of(words[-2], pos)
            there = words[-3] in ("public", found_in) or words[-3] in self.names.schemas
            if not there or words[:-3] not in ([], [self.names.database]):
                raise SqlError(
                    UNDEFINED_TABLE,
                    f'missing FROM-clause entry for table "{words[-2]}"',
                    position=pos,
                )
        found = scope.qualified(words[-2], words[-1], pos)
        self.needs.saw(found)
        return found

    def _whole_row(self, name: str, scope: Scope, pos: int) -> Expr | None:
        """The row of a FROM item of that name; None: there is none."""
        found = scope.row_of(name, pos)
        if found is None:
            return None
        _, columns, outer = found
        if outer:  # a row of NULLs is not NULL
            raise unsupported(
                "a whole row as a value, of what an outer join may make up", position=pos
            )
        for column in columns:
            self.needs.saw(column)
        return RowExpr(oid=oids.RECORD, args=tuple(columns), whole=True, pos=pos - 1)

    def _value_function(self, body: Node, scope: Scope) -> Expr:
        name = function_name(body["op"])
        pos = at(body)
        if name not in _SQL_VALUES:
            raise unsupported(f"the type time with time zone ({name.upper()})", position=pos)
        typmod = body.get("typmod", 0) if body["op"].endswith("_N") else -1
        if typmod > 6:
            typmod = 6
        return Named(oid=_SQL_VALUES[name], typmod=typmod, name=name, pos=pos - 1)

    def _default(self, body: Node, scope: Scope) -> Expr:
        if not self.allow_default:
            raise SqlError(
                SYNTAX_ERROR, "DEFAULT is not allowed in this context", position=at(body)
            )
        return Default(pos=at(body) - 1)

    # -- logic

    def _bool(self, body: Node, scope: Scope) -> Expr:
        op = body["boolop"].removesuffix("_EXPR").lower()
        args = tuple(self.condition(arg, scope, op.upper()) for arg in body["args"])
        return Logic(op=op, args=args, pos=at(body) - 1)

    def _null_test(self, body: Node, scope: Scope) -> Expr:
        arg = self.expr(body["arg"], scope)
        negated = body.get("nulltesttype") == "IS_NOT_NULL"
        if isinstance(arg, RowExpr):
            parts = tuple(
                IsNull(arg=self.decided(a), negated=negated, pos=arg.pos) for a in arg.args
            )
            if not parts:  # all of no fields are NULL, and none is
                return Const(oid=oids.BOOL, value=True, pos=arg.pos)
            return Logic(op="and", args=parts, pos=arg.pos) if len(parts) > 1 else parts[0]
        if arg.oid == oids.RECORD:
            raise unsupported("IS NULL of a row that is not written here", position=at(body))
        return IsNull(arg=self.decided(arg), negated=negated, pos=at(body) - 1)

    def _bool_test(self, body: Node, scope: Scope) -> Expr:
        word = body.get("booltesttype", "IS_TRUE").removeprefix("IS_")
        negated = word.startswith("NOT_")
        word = word.removeprefix("NOT_")
        arg = self.condition(body["arg"], scope, f"IS {'NOT ' if negated else ''}{word}")
        value = {"TRUE": True, "FALSE": False}.get(word)
        return IsBool(arg=arg, value=value, negated=negated, pos=at(body) - 1)

    # -- operators

    def operator(self, name: str, left: Expr | None, right: Expr, pos: int) -> Call:
        """left name right, resolved and with its casts."""
        if left is not None and left.oid == right.oid == oids.RECORD:
            raise unsupported(
                "comparing rows that are not written side by side",
                position=pos,
                hint="Compare their columns: (a, b) = (c, d).",
            )
        found = resolve.operator(name, left.oid if left is not None else 0, right.oid, pos)
        given = (right,) if left is None else (left, right)
        args = tuple(
            self.casts.must(arg, oid, IMPLICIT, pos)
            for arg, oid in zip(given, found.args, strict=True)
        )
        if name == "=" and found.args[0] == oids.TID and (by_key := key_of_ctid(*args)) is not None:
            return self.operator(name, *by_key, pos)
        return Call(oid=found.result, proc=found.proc, args=args, operator=name, pos=pos - 1)

    def _a_expr(self, body: Node, scope: Scope) -> Expr:
        kind = body.get("kind", "AEXPR_OP")
        words = strings(body.get("name"))
        name = words[-1] if words else "="
        if len(words) > 1 and words[0] != "pg_catalog":
            raise SqlError(
                UNDEFINED_FUNCTION, f"operator does not exist: {'.'.join(words)}", position=at(body)
            )
        return _A_EXPR[kind](self, body, name, scope)

    def _op(self, body: Node, name: str, scope: Scope) -> Expr:
        pos = at(body)
        if "lexpr" not in body:
            return self.operator(name, None, self.expr(body["rexpr"], scope), pos)
        right_kind, right_body = unwrap(body["rexpr"])
        left = self.expr(body["lexpr"], scope)
        if (
            right_kind == "SubLink"
            and right_body["subLinkType"] == "EXPR_SUBLINK"
            and isinstance(left, RowExpr)
        ):
            return self._row_subquery(left, name, right_body, scope, pos, "scalar")
        return self._compared(name, left, self.expr(body["rexpr"], scope), pos)

    def _compared(self, name: str, left: Expr, right: Expr, pos: int) -> Expr:
        """left name right, part by part if both are rows."""
        if isinstance(left, RowExpr) and isinstance(right, RowExpr):
            if left.whole or right.whole:  # records: NULLs are alike
                if name not in ("=", "<>", "!="):
                    raise unsupported(f"the operator {name} between whole rows", position=pos)
                return self._alike(left, right, name == "=", pos)
            return self._rows(name, left, right, pos)
        return self.operator(name, left, right, pos)

    def _part(self, name: str, left: Expr, right: Expr, pos: int) -> Expr:
        """Parts of two rows. Of rows in rows NULLs are alike: that is records' own equality."""
        if name in ("=", "<>", "!=") and isinstance(left, RowExpr) and isinstance(right, RowExpr):
            return self._alike(left, right, name == "=", pos)
        return self.operator(name, left, right, pos)

    def _alike(self, left: Expr, right: Expr, negated: bool, pos: int) -> Expr:
        """left IS [NOT] DISTINCT FROM right."""
        if not (isinstance(left, RowExpr) and isinstance(right, RowExpr)):
            return self._distinct_of(left, right, negated, pos)
        if len(left.args) != len(right.args):
            raise SqlError(
                DATATYPE_MISMATCH,
                "cannot compare record types with different numbers of columns",
                position=pos,
            )
        pairs = zip(left.args, right.args, strict=True)
        parts = tuple(self._alike(a, b, negated, pos) for a, b in pairs)
        return Logic(op="and" if negated else "or", args=parts, pos=pos - 1)

    def _rows(self, name: str, left: RowExpr, right: RowExpr, pos: int) -> Expr:
        if len(left.args) != len(right.args):
            raise SqlError(
                SYNTAX_ERROR, "unequal number of entries in row expressions", position=pos
            )
        if not left.args:
            raise unsupported("comparing rows of zero length", position=pos)
        pairs = list(zip(left.args, right.args, strict=True))
        if len(pairs) == 1:
            return self._part(name, *pairs[0], pos)
        if name in ("=", "<>", "!="):
            parts = tuple(self._part(name, a, b, pos) for a, b in pairs)
            return Logic(op="and" if name == "=" else "or", args=parts, pos=pos - 1)
        equal = tuple(self.operator("=", a, b, pos) for a, b in pairs)
        if name not in _NEGATED:
            raise unsupported(f"the operator {name} between rows", position=pos)
        less = tuple(self.operator(name[0], a, b, pos) for a, b in pairs)
        return RowCompare(
            op=name, left=left.args, right=right.args, equal=equal, less=less, pos=pos - 1
        )

    def _row_subquery(
        self, left: RowExpr, name: str, body: Node, scope: Scope, pos: int, kind: str
    ) -> Expr:
        select = self._query(body["subselect"], scope)
        if len(select.targets) != len(left.args):
            few = "few" if len(select.targets) < len(left.args) else "many"
            raise SqlError(SYNTAX_ERROR, f"subquery has too {few} columns", position=pos)
        if len(left.args) == 1 and name not in _COMPARING:
            one = select.targets[0].expr
            oid = resolve.array_type(one.oid, pos)
            array = SubQuery(oid=oid, kind="array", select=select, pos=pos - 1)
            return self.any_all(name, left.args[0], array, kind == "all", pos)
        values: list[Expr] = []
        types: list[int] = []
        for value, target in zip(left.args, select.targets, strict=True):
            given = target.expr.oid
            found = resolve.operator(name, value.oid, given, pos)
            types.append(found.args[1] if given in HELD_AS_NAMES else given)
            undecided = value.oid == oids.UNKNOWN or value.oid in HELD_AS_NAMES
            values.append(
                self.casts.must(value, found.args[0], IMPLICIT, pos) if undecided else value
            )
        select = self.converted(select, types, name)
        return SubQuery(
            oid=oids.BOOL, kind=kind, select=select, left=tuple(values), operator=name, pos=pos - 1
        )

    def _any(self, body: Node, name: str, scope: Scope) -> Expr:
        left, array = self.expr(body["lexpr"], scope), self.expr(body["rexpr"], scope)
        return self.any_all(name, left, array, body["kind"] == "AEXPR_OP_ALL", at(body))

    def any_all(self, name: str, left: Expr, array: Expr, every: bool, pos: int) -> Expr:
        """left op ANY (array). An undecided array literal is one of the left side's type."""
        if array.oid == oids.UNKNOWN:
            element = oids.UNKNOWN
        elif not (element := element_of(array.oid)):
            raise SqlError("42809", "op ANY/ALL (array) requires array on right side", position=pos)
        found = resolve.operator(name, left.oid, element, pos)
        if found.result != oids.BOOL:
            raise SqlError(
                "42809", "op ANY/ALL (array) requires operator to yield boolean", position=pos
            )
        wanted = array_of(found.args[1])
        left = self.casts.must(left, found.args[0], IMPLICIT, pos)
        array = self.casts.must(array, wanted, IMPLICIT, pos)
        test = Call(
            oid=oids.BOOL,
            proc=found.proc,
            args=(left, CaseValue(oid=found.args[1])),
            operator=name,
            pos=pos - 1,
        )
        return AnyAll(left=left, array=array, test=test, all=every, pos=pos - 1)

    def _in(self, body: Node, name: str, scope: Scope) -> Expr:
        pos = at(body)
        every = name == "<>"
        left = self.expr(body["lexpr"], scope)
        nodes = body["rexpr"]["List"]["items"]
        if (listed := self.listed(nodes)) is not None:
            if isinstance(left, RowExpr):
                return self._among(left, listed, every, pos)
            if len(listed[0]) > 1:
                raise Unfit
            known = self._array_of_literals([value for (value,) in listed], left.oid)
            return self.any_all(name, left, known, every, pos)
        items = [self.expr(item, scope) for item in nodes]
        plain = [i for i in items if not any(isinstance(e, Column | SubQuery) for e in walk(i))]
        found: list[Expr] = []
        if (
            len(plain) > 1
            and not isinstance(left, RowExpr)
            and not any(isinstance(i, RowExpr) for i in plain)
        ):
            # One array if there is one type for all; else item by item.
            types = [one for one in (left.oid, *(i.oid for i in plain)) if one != oids.UNKNOWN]
            common = resolve.common_or_none(types)
            if (
                common not in (None, oids.RECORD)
                and array_of(common or 0)
                and all(resolve.can_coerce(one, common) for one in types)
            ):
                element = common or oids.TEXT
                parts = tuple(self.casts.must(i, element, IMPLICIT, pos) for i in plain)
                array = ArrayExpr(oid=array_of(element), args=parts, pos=pos - 1)
                found.append(self.any_all(name, left, array, every, pos))
                together = set(map(id, plain))
                items = [i for i in items if id(i) not in together]
        for item in items:
            found.append(self._compared(name, left, item, pos))
        if len(found) == 1:
            return found[0]
        return Logic(op="and" if every else "or", args=tuple(found), pos=pos - 1)

    def listed(self, nodes: Sequence[Node]) -> bulk_lists.Rows | None:
        """The rows of literals that a single parameter stands for (`bulk_lists`)."""
        if len(nodes) == 1 and self.lists and "ParamRef" in nodes[0]:
            number: int = nodes[0]["ParamRef"].get("number", 0)
            if number >= bulk_lists.FIRST:
                return self.lists[number - bulk_lists.FIRST]
        return None

    def _among(self, left: RowExpr, rows: bulk_lists.Rows, negated: bool, pos: int) -> Expr:
        """Rows of literals, compared part by part (`_rows`). Raises Unfit."""
        unlike = left.whole or not 2 <= len(left.args) == len(rows[0])
        if unlike or any(map(raises, left.args[1:])):
            raise Unfit
        parts, columns = [], []
        for arg, values in zip(left.args, zip(*rows, strict=True), strict=True):
            ints = [value for value in values if type(value) is int]
            others = {type(value) for value in values} - {int}
            kinds = {self.literal(end(ints)).oid for end in (min, max)} if ints else set()
            kinds |= {oids.NUMERIC if kind is Decimal else oids.UNKNOWN for kind in others}
            found = [resolve.operator("=", arg.oid, kind, pos) for kind in sorted(kinds)]
            wide = max(found, key=lambda one: one.args[1] == oids.INT8)
            if arg.oid == oids.UNKNOWN or any(
                one.args != wide.args and not {*one.args, *wide.args} <= _INTS for one in found
            ):
                raise Unfit  # its parts are compared in several ways
            element = wide.args[1]
            part = self.casts.must(arg, wide.args[0], IMPLICIT, pos)
            test = Call(
                oid=oids.BOOL, proc=wide.proc, args=(part, CaseValue(oid=element)), operator="="
            )
            if not array_of(element) or not compared_by_key(test):
                raise Unfit
            made = [
                one
                if one is None or (type(one) is int and element in _INTS)
                else self._read_as(one, element)
                for one in values
            ]
            parts.append(part)
            columns.append(Const(oid=array_of(element), value=made))
        return Among(left=tuple(parts), columns=tuple(columns), negated=negated, pos=pos - 1)

    def literal(self, value: int | str | Decimal | None) -> Const:
        """A literal of such a list."""
        if type(value) is Decimal:
            return Const(oid=oids.NUMERIC, value=read_numeric(str(value)))
        if type(value) is int:
            return (
                _number(str(value), -1)
                if value.bit_length() > 31
                else Const(oid=oids.INT4, value=value)
            )
        return Const(oid=oids.UNKNOWN, value=value)

    def _array_of_literals(self, values: Sequence[int | str | Decimal | None], left: int) -> Const:
        """They have one type together, with that of what they are compared with. Raises Unfit."""
        numbers = [value for value in values if type(value) is int]
        decimals = any(type(value) is Decimal for value in values)
        strings_too = any(type(value) is str for value in values)
        widest = [self.literal(end(numbers)).oid for end in (min, max)] if numbers else []
        given = [
            *widest,
            *([oids.NUMERIC] if decimals else []),
            *([oids.UNKNOWN] if strings_too else []),
        ]
        common = resolve.common_or_none([left, *given])
        if not common or common == oids.RECORD or not array_of(common):
            raise Unfit
        made: Sequence[object] = values
        if strings_too or common not in (oids.INT4, oids.INT8):
            made = [None if one is None else self._read_as(one, common) for one in values]
        return Const(oid=array_of(common), value=list(made))

    def _read_as(self, value: int | str | Decimal, oid: int) -> object:
        if type(value) is str and oid in (oids.TEXT, oids.VARCHAR):
            return value
        if type(value) is not str and oid == oids.NUMERIC:
            return read_numeric(str(value))
        found = self.casts.must(self.literal(value), oid, IMPLICIT, 0)
        if not isinstance(found, Const):
            found = fold(found)
        if not isinstance(found, Const):
            raise Unfit
        return found.value

    def _between(self, body: Node, name: str, scope: Scope) -> Expr:
        kind, pos = body["kind"], at(body)
        value = self.expr(body["lexpr"], scope)
        low, high = (self.expr(n, scope) for n in body["rexpr"]["List"]["items"])

        def compared(operator: str, other: Expr) -> Expr:
            # What a comparison before this one made of a parameter it is here, too.
            mine = self.expr(body["lexpr"], scope) if isinstance(value, Param) else value
            return self._compared(operator, mine, other, pos)

        def inside(a: Expr, b: Expr) -> Expr:
            if "NOT" in kind:
                parts = (compared("<", a), compared(">", b))
                return Logic(op="or", args=parts, pos=pos - 1)
            parts = (compared(">=", a), compared("<=", b))
            return Logic(op="and", args=parts, pos=pos - 1)

        if not kind.endswith("SYM"):
            return inside(low, high)
        op = "and" if "NOT" in kind else "or"
        return Logic(op=op, args=(inside(low, high), inside(high, low)), pos=pos - 1)

    def _distinct(self, body: Node, name: str, scope: Scope) -> Expr:
        pos = at(body)
        negated = body["kind"] == "AEXPR_NOT_DISTINCT"
        left, right = self.expr(body["lexpr"], scope), self.expr(body["rexpr"], scope)
        if (
            isinstance(left, RowExpr)
            and isinstance(right, RowExpr)
            and len(left.args) != len(right.args)
        ):
            raise SqlError(
                SYNTAX_ERROR, "unequal number of entries in row expressions", position=pos
            )
        return self._alike(left, right, negated, pos)

    def _distinct_of(self, left: Expr, right: Expr, negated: bool, pos: int) -> Expr:
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Const) and one.value is None and one.oid == oids.UNKNOWN:
                return IsNull(arg=self.decided(other), negated=not negated, pos=pos - 1)
        equal = self.operator("=", left, right, pos)
        a, b = equal.args
        return Distinct(equal=equal, left=a, right=b, negated=negated, pos=pos - 1)

    def _null_if(self, body: Node, name: str, scope: Scope) -> Expr:
        pos = at(body)
        equal = self.operator(
            "=", self.expr(body["lexpr"], scope), self.expr(body["rexpr"], scope), pos
        )
        left = equal.args[0]
        return NullIf(oid=left.oid, typmod=left.typmod, equal=equal, left=left, pos=pos - 1)

    # -- conditional values

    def common(self, exprs: Sequence[Expr], context: str, pos: int = 0) -> tuple[int, list[Expr]]:
        """All converted to their one type."""
        if not pos:
            # PostgreSQL points at the first expression that does not fit.
            known = [e for e in exprs if e.oid != oids.UNKNOWN]
            odd = [e for e in known if resolve.common_or_none([known[0].oid, e.oid]) is None]
            pos = odd[0].pos + 1 if odd else 0
        oid = resolve.common_type([e.oid for e in exprs], context, pos)
        converted = []
        for expr in exprs:
            found = self.casts.coerce(expr, oid, IMPLICIT, expr.pos + 1)
            if found is None:
                raise SqlError(
                    CANNOT_COERCE,
                    f"{context} could not convert type {format_type(expr.oid)} to "
                    f"{format_type(oid)}",
                    position=expr.pos + 1,
                )
            converted.append(found)
        return oid, converted

    def _case(self, body: Node, scope: Scope) -> Expr:
        pos = at(body)
        arg = self.decided(self.expr(body["arg"], scope)) if "arg" in body else None
        conditions: list[Expr] = []
        results: list[Expr] = []
        for when in body["args"]:
            clause = when["CaseWhen"]
            if arg is None:
                conditions.append(self.condition(clause["expr"], scope, "CASE/WHEN"))
            else:
                placeholder = CaseValue(oid=arg.oid, typmod=arg.typmod)
                conditions.append(
                    self.operator("=", placeholder, self.expr(clause["expr"], scope), at(clause))
                )
            results.append(self.expr(clause["result"], scope))
        default = (
            self.expr(body["defresult"], scope)
            if "defresult" in body
            else Const(oid=oids.UNKNOWN, value=None)
        )
        no_sets(
            [arg, *conditions, *results, default],
            "set-returning functions are not allowed in CASE",
        )
        # PostgreSQL prefers the type of ELSE: it looks at that first.
        oid, converted = self.common([default, *results], "CASE")
        return Case(
            oid=oid,
            typmod=_one_typmod(converted),
            arg=arg,
            whens=tuple(zip(conditions, converted[1:], strict=True)),
            default=converted[0],
            pos=pos - 1,
        )

    def _coalesce(self, body: Node, scope: Scope) -> Expr:
        args = [self.expr(a, scope) for a in body["args"]]
        no_sets(args, "set-returning functions are not allowed in COALESCE")
        oid, converted = self.common(args, "COALESCE")
        return Coalesce(
            oid=oid, typmod=_one_typmod(converted), args=tuple(converted), pos=at(body) - 1
        )

    def _min_max(self, body: Node, scope: Scope) -> Expr:
        greatest = body.get("op", "IS_GREATEST") == "IS_GREATEST"
        word = "GREATEST" if greatest else "LEAST"
        oid, converted = self.common([self.expr(a, scope) for a in body["args"]], word)
        resolve.operator("<", oid, oid, at(body))
        return MinMax(
            oid=oid,
            typmod=_one_typmod(converted),
            greatest=greatest,
            args=tuple(converted),
            pos=at(body) - 1,
        )

    # -- arrays and rows

    def _array(self, body: Node, scope: Scope) -> Expr:
        return self._array_of(body, scope, 0)

    def _array_of(self, body: Node, scope: Scope, wanted: int) -> Expr:
        """ARRAY[…]; `wanted`: an array type it is cast to, whose elements the literals inside then
        are.
        """
        pos = at(body)
        inner = element_of(wanted)
        args: list[Expr] = []
        for node in body.get("elements", ()):
            kind, part = unwrap(node)
            args.append(
                self._array_of(part, scope, wanted)
                if kind == "A_ArrayExpr"
                else self.expr(node, scope)
            )
        nested = any(element_of(a.oid) for a in args)
        if wanted:
            converted = []
            for arg in args:
                to = wanted if nested else inner
                found = self.casts.coerce(arg, to, EXPLICIT, arg.pos + 1)
                if found is None:
                    raise SqlError(
                        CANNOT_COERCE,
                        f"cannot cast type {format_type(arg.oid)} to {format_type(to)}",
                        position=arg.pos + 1,
                    )
                converted.append(found)
            return ArrayExpr(oid=wanted, args=tuple(converted), nested=nested, pos=pos - 1)
        if not args:
            raise SqlError(
                "42P18",
                "cannot determine type of empty array",
                hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
                position=pos,
            )
        oid, converted = self.common(args, "ARRAY")
        first = converted[0].typmod
        typmod = first if all(a.oid == oid and a.typmod == first for a in args) else -1
        if not nested:
            oid = resolve.array_type(oid, pos)
        return ArrayExpr(oid=oid, typmod=typmod, args=tuple(converted), nested=nested, pos=pos - 1)

    def _row(self, body: Node, scope: Scope) -> Expr:
        args: list[Expr] = []
        for node in body.get("args", ()):
            kind, part = unwrap(node)
            if kind == "ColumnRef" and "A_Star" in part["fields"][-1]:
                words = strings(part["fields"])
                rel = self._whole_row(words[-1], scope, at(part)) if words else None
                if not isinstance(rel, RowExpr):
                    raise unsupported("row expansion via * here", position=at(part))
                args += rel.args
            else:
                args.append(self.expr(node, scope))
        return RowExpr(oid=oids.RECORD, args=tuple(args), pos=at(body) - 1)

    def _indirection(self, body: Node, scope: Scope) -> Expr:
        parts = body["indirection"]
        given = body["arg"], parts, scope
        if (column := self._field(*given) or self._column_of_row(*given)) is not None:
            return column
        arg = self.expr(body["arg"], scope)
        pos = arg.pos + 1
        if any("A_Indices" not in p for p in parts):
            if len(parts) == 1 and (found := fields_of(arg)):
                name = parts[0].get("String", {}).get("sval", "")
                if name in found:
                    return found[name]
                raise SqlError(
                    UNDEFINED_COLUMN,
                    f'could not identify column "{name}" in record data type',
                    position=pos,
                )
            raise unsupported("selecting a field of a composite value", position=pos)
        indices = [p["A_Indices"] for p in parts]
        sliced = any(i.get("is_slice") for i in indices)

        def bound(node: Node | None, oid: int = oids.INT4) -> Expr | None:
            if node is None:
                return None
            value = self.expr(node, scope)
            found = self.casts.coerce(value, oid, resolve.ASSIGNMENT, value.pos + 1)
            if found is None:
                raise SqlError(
                    DATATYPE_MISMATCH,
                    "array subscript must have type integer",
                    position=value.pos + 1,
                )
            return found

        if arg.oid == oids.JSONB:
            return self._json_path(arg, indices, scope, pos)
        if arg.oid in VECTORS or arg.oid == oids.NAME:  # their places begin with 0
            return self._of_vector(arg, indices, bound, pos)
        element = element_of(arg.oid)
        if not element:
            raise SqlError(
                DATATYPE_MISMATCH,
                f"cannot subscript type {format_type(arg.oid)} because it does not support "
                f"subscripting",
                position=pos,
            )
        if sliced:
            slices = tuple(
                (bound(i.get("lidx")), bound(i.get("uidx")))
                if i.get("is_slice")
                else (Const(oid=oids.INT4, value=1), bound(i.get("uidx")))
                for i in indices
            )
            return Subscript(oid=arg.oid, typmod=arg.typmod, arg=arg, slices=slices, pos=pos - 1)
        indexes = tuple(b for i in indices if (b := bound(i.get("uidx"))) is not None)
        return Subscript(oid=element, typmod=arg.typmod, arg=arg, indexes=indexes, pos=pos - 1)

    def _column_of_row(self, arg: Node, parts: Sequence[Node], scope: Scope) -> Expr | None:
        """(t).column, where t is a FROM item; None: it is something else."""
        kind, body = unwrap(arg)
        if kind != "ColumnRef" or len(parts) != 1 or "String" not in parts[0]:
            return None
        words = strings(body["fields"])
        if len(words) != 1 or len(body["fields"]) != 1:
            return None
        if scope.column(words[0], at(body)) is not None or scope.row_of(words[0], 0) is None:
            return None
        found = scope.qualified(words[0], strings(list(parts))[0], at(body))
        self.needs.saw(found)
        return found

    def _field(self, node: Node, parts: Sequence[Node], scope: Scope) -> Expr | None:
        """A field of a row that a query in FROM has: a column of its own there."""
        kind, body = unwrap(node)
        if kind != "ColumnRef" or len(parts) != 1 or "String" not in parts[0]:
            return None
        words = strings(body["fields"])
        name = f"{words[-1]}.{parts[0]['String'].get('sval', '')}"
        if len(words) == 1:
            return scope.column(name, at(body))
        rel, _ = scope.relation(words[-2], at(body))
        return scope.qualified(words[-2], name, at(body)) if name in rel.names else None

    @staticmethod
    def _letter(name: Expr, place: Expr, pos: int) -> Expr:
        """name[n], from 0: to PostgreSQL a name is an array of 64 letters."""
        proc = Proc("name", (oids.NAME, oids.INT4), oids.CHAR, "kvorum_name_letter")
        return Call(oid=oids.CHAR, proc=proc, args=(name, place), pos=pos - 1)

    def _of_vector(
        self, arg: Expr, indices: list[Node], bound: Callable[[Node | None], Expr | None], pos: int
    ) -> Expr:
        """One element of an int2vector or oidvector, or a letter of a name."""
        index = bound(indices[0].get("uidx"))
        if index is None or len(indices) > 1 or indices[0].get("is_slice"):
            raise unsupported(f"a part of {format_type(arg.oid)}", position=pos)
        if arg.oid == oids.NAME:
            return self._letter(arg, index, pos)
        place = self.operator("+", index, Const(oid=oids.INT4, value=1), pos)
        return Subscript(oid=element_of(arg.oid), arg=arg, indexes=(place,), pos=pos - 1)

    def _json_path(self, arg: Expr, indices: list[Node], scope: Scope, pos: int) -> Expr:
        """jsonb['a'][0]: as the operator #> does it."""
        path: list[Expr] = []
        for index in indices:
            if index.get("is_slice"):
                raise SqlError(
                    DATATYPE_MISMATCH, "jsonb subscript does not support slices", position=pos
                )
            key = self.expr(index["uidx"], scope)
            fits = [to for to in (oids.INT4, oids.TEXT) if resolve.can_coerce(key.oid, to)]
            if key.oid != oids.UNKNOWN and len(fits) != 1:
                raise SqlError(
                    DATATYPE_MISMATCH,
                    f"subscript type {format_type(key.oid)} is not supported",
                    hint="jsonb subscript must be coercible to either integer or text.",
                    position=leftmost(key),
                )
            if key.oid != oids.UNKNOWN:
                key = self.casts.must(key, fits[0], IMPLICIT, pos)
            path.append(self.casts.must(key, oids.TEXT, EXPLICIT, pos))
        keys = ArrayExpr(oid=array_of(oids.TEXT), args=tuple(path), pos=pos - 1)
        return self.operator("#>", arg, keys, pos)

    # -- casts

    def kept(self, node: Node) -> Node:
        """The tree of a declaration, bound, as others read its text: in other zones, on another
        path.
        """
        return with_schemas(self.casts.settled(node), self.names, self.calls.inlining.called)

    def _cast(self, body: Node, scope: Scope) -> Expr:
        oid, typmod = type_of(body["typeName"], self.names)
        kind, arg_body = unwrap(body["arg"])
        pos = at(body)
        if kind == "A_ArrayExpr" and element_of(oid):
            arg = self._array_of(arg_body, scope, oid)
        elif kind == "A_Const" and "bsval" in arg_body and oid in (oids.INT4, oids.INT8):
            return Const(oid=oid, value=_of_bits(arg_body["bsval"]["bsval"], oid), pos=pos - 1)
        else:
            arg = self.expr(body["arg"], scope)
            if oid == oids.REGCLASS and isinstance(arg, Call) and arg.proc.name == "tableoid":
                return self._relation_of(arg)
            if oid == oids.REGCLASS and self.known_relations and _is_text(arg):
                return self._known(arg, pos)
        if "location" not in body and pos == 1:
            pos = arg.pos + 1
        found = self.casts.to(arg, oid, typmod, EXPLICIT, pos)
        if found is None:
            raise SqlError(
                CANNOT_COERCE,
                f"cannot cast type {format_type(arg.oid)} to {format_type(oid)}",
                position=pos,
            )
        return found

    def _known(self, name: Expr, pos: int) -> Expr:
        """A regclass that is written: of a statement, it is there."""
        try:
            text = name.value if isinstance(name, Const) else ""
            held = self.casts.relation(text, name.pos)
            return Const(oid=oids.REGCLASS, value=held, pos=name.pos)
        except SqlError as error:
            error.position = error.position or pos
            raise

    def _relation_of(self, tableoid: Call) -> Expr:
        """tableoid::regclass, whose value is a name."""
        table = next(one.table for one in tableoid.args if isinstance(one, Column))
        names = self.names
        return relation_of(tableoid, names.relations().at(names.relation_oid(table)))

    def _collate(self, body: Node, scope: Scope) -> Expr:
        arg = self.decided(self.expr(body["arg"], scope))
        check_collation(strings(body["collname"]), arg.oid, at(body))
        return Cast(oid=arg.oid, typmod=arg.typmod, arg=arg, how="relabel", pos=arg.pos)

    # -- functions and queries

    def _function(self, body: Node, scope: Scope) -> Expr:
        return self.calls.bind(body, scope)

    def _grouping(self, body: Node, scope: Scope) -> Expr:
        return self.calls.grouping(body, scope)

    def _query(self, node: Node, scope: Scope) -> Select:
        self.subqueries = True
        return self.subselect(node["SelectStmt"], scope)

    def _sublink(self, body: Node, scope: Scope) -> Expr:
        pos = at(body)
        match body["subLinkType"]:
            case "EXISTS_SUBLINK":
                before = self.calls.numbered
                select = unlooked(self._query(body["subselect"], scope))
                if not select.numbers:
                    self.calls.numbered = before
                return SubQuery(oid=oids.BOOL, kind="exists", select=select, pos=pos - 1)
            case "EXPR_SUBLINK" | "ARRAY_SUBLINK" as which:
                select = self._query(body["subselect"], scope)
                if len(select.targets) != 1:
                    raise SqlError(
                        SYNTAX_ERROR, "subquery must return only one column", position=pos
                    )
                value = select.targets[0].expr
                if which == "EXPR_SUBLINK":
                    return SubQuery(
                        oid=value.oid,
                        typmod=value.typmod,
                        kind="scalar",
                        select=select,
                        pos=pos - 1,
                    )
                oid = value.oid if element_of(value.oid) else resolve.array_type(value.oid, pos)
                return SubQuery(
                    oid=oid, typmod=value.typmod, kind="array", select=select, pos=pos - 1
                )
            case "ANY_SUBLINK" | "ALL_SUBLINK" as which:
                name = (strings(body.get("operName")) or ["="])[-1]
                left = self.expr(body["testexpr"], scope)
                row = (
                    left
                    if isinstance(left, RowExpr)
                    else RowExpr(oid=oids.RECORD, args=(left,), pos=left.pos)
                )
                kind = "any" if which == "ANY_SUBLINK" else "all"
                return self._row_subquery(row, name, body, scope, pos, kind)
            case _:
                raise unsupported("this form of subquery", position=pos)


def _no_queries(node: Node, scope: Scope) -> Select:
    raise unsupported("a subquery here")


def _number(text: str, pos: int) -> Const:
    """A number with a point, an exponent, or too large for int4."""
    plain = text.replace("_", "")
    digits = plain.lstrip("-")
    if digits[:2].lower() in ("0x", "0o", "0b"):
        value = int(plain, 0)
    elif digits.isdigit() and len(digits.lstrip("0")) <= _INT8_DIGITS:
        value = int(digits.lstrip("0") or "0") * (-1 if plain[0] == "-" else 1)
    else:
        return Const(oid=oids.NUMERIC, value=read_numeric(plain), pos=pos)
    if -(1 << 31) <= value < 1 << 31:
        return Const(oid=oids.INT4, value=value, pos=pos)
    if -(1 << 63) <= value < 1 << 63:
        return Const(oid=oids.INT8, value=value, pos=pos)
    return Const(oid=oids.NUMERIC, value=Decimal(value), pos=pos)


def _of_bits(text: str, oid: int) -> int:
    """x'ff' and b'101' as an integer, the first bit its sign. Raises 22P02, 22003."""
    base, digits = (16, "0123456789abcdef") if text[0] == "x" else (2, "01")
    for digit in text[1:]:
        if digit.lower() not in digits:
            word = "hexadecimal" if base == 16 else "binary"
            raise SqlError(INVALID_TEXT, f'"{digit}" is not a valid {word} digit')
    bits, word = (32, "integer") if oid == oids.INT4 else (64, "bigint")
    if (len(text) - 1) * (4 if base == 16 else 1) > bits:
        raise SqlError(OUT_OF_RANGE, f"{word} out of range")
    value = int(text[1:] or "0", base)
    return value - (1 << bits) if value >> (bits - 1) else value


def _one_typmod(exprs: Sequence[Expr]) -> int:
    """The modifier that all share, or -1."""
    first = exprs[0].typmod
    return first if all(e.typmod == first for e in exprs) else -1


_COMPARING: Final = ("=", "<>", "!=", "<", "<=", ">", ">=")
Handler = Callable[[Binder, Node, Scope], Expr]
OpHandler = Callable[[Binder, Node, str, Scope], Expr]
_A_EXPR: Final[dict[str, OpHandler]] = {
    "AEXPR_OP": Binder._op,
    "AEXPR_OP_ANY": Binder._any,
    "AEXPR_OP_ALL": Binder._any,
    "AEXPR_DISTINCT": Binder._distinct,
    "AEXPR_NOT_DISTINCT": Binder._distinct,
    "AEXPR_NULLIF": Binder._null_if,
    "AEXPR_IN": Binder._in,
    "AEXPR_LIKE": Binder._op,
    "AEXPR_ILIKE": Binder._op,
    "AEXPR_SIMILAR": Binder._op,
    "AEXPR_BETWEEN": Binder._between,
    "AEXPR_NOT_BETWEEN": Binder._between,
    "AEXPR_BETWEEN_SYM": Binder._between,
    "AEXPR_NOT_BETWEEN_SYM": Binder._between,
}
_HANDLERS: Final[dict[str, Handler]] = {
    "A_Const": Binder._const,
    "ParamRef": Binder._param,
    "ColumnRef": Binder._column,
    "SQLValueFunction": Binder._value_function,
    "SetToDefault": Binder._default,
    "BoolExpr": Binder._bool,
    "NullTest": Binder._null_test,
    "BooleanTest": Binder._bool_test,
    "A_Expr": Binder._a_expr,
    "CaseExpr": Binder._case,
    "CoalesceExpr": Binder._coalesce,
    "MinMaxExpr": Binder._min_max,
    "A_ArrayExpr": Binder._array,
    "RowExpr": Binder._row,
    "A_Indirection": Binder._indirection,
    "TypeCast": Binder._cast,
    "CollateClause": Binder._collate,
    "FuncCall": Binder._function,
    "GroupingFunc": Binder._grouping,
    "SubLink": Binder._sublink,
}


def fields_of(expr: Expr) -> dict[str, Expr]:
    """The fields of what a function returns in rows, each a function that returns a set; nothing:
    it is no such function.
    """
    if not (isinstance(expr, Call) and expr.proc.returns_set and len(expr.proc.out) > 1):
        return {}
    return {
        name: replace(
            expr,
            oid=oid,
            proc=replace(expr.proc, result=oid, out=((name, oid),), field=place),
        )
        for place, (name, oid) in enumerate(expr.proc.out)
    }


def _is_text(expr: Expr) -> bool:
    """Whether it is a literal whose type nothing has decided."""
    return isinstance(expr, Const) and expr.oid == oids.UNKNOWN and isinstance(expr.value, str)
