"""Functions of users' in SQL, put where they are called: what remains is expressions and queries as
any others, so that whoever plans and runs a statement knows nothing of them.

    value    SELECT of one expression: that expression; of anything else: a scalar subquery
    rows     in FROM: a LATERAL subquery

The names of arguments, and $1, $2, …, are those of one more FROM item around the body, whose
"columns" are the arguments; columns of the body's own FROM come first, as in PostgreSQL.

A value that another call may give twice (`random()`) is put where it is used, so it may be used
only once; PostgreSQL would not inline it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kv.base.limits import SQL_INLINED_DEPTH_MAX, SQL_INLINED_MAX
from sqlproxy.front.binding.casting import Coercer
from sqlproxy.front.binding.required_privileges import Needs
from sqlproxy.front.binding.scope import Names, Rel, Scope
from sqlproxy.front.bound.exprs import Call, Case, Cast, Const, Expr, IsNull, Logic, walk
from sqlproxy.front.bound.statements import Select, SubQuery, Target
from sqlproxy.front.syntax.syntax import Node, at, find, parse_expression, strings, unwrap, whole
from sqlproxy.front.types import resolve
from sqlproxy.front.types.registry import FUNCTIONS, Proc, format_type
from sqlproxy.front.types.resolve import ASSIGNMENT, IMPLICIT
from sqlproxy.pg import oids
from sqlproxy.rows.naming import PUBLIC, named, schema_of
from sqlproxy.rows.schema import SqlFunction
from sqlproxy.values.errors import (
    AMBIGUOUS_FUNCTION,
    STATEMENT_TOO_COMPLEX,
    SYNTAX_ERROR,
    UNDEFINED_PARAMETER,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)

_MISMATCH: Final = "42P13"
_PLAIN: Final = {"targetList", "limitOption", "op"}  # of a SELECT of nothing but expressions
_STAR: Final[Node] = {"ColumnRef": {"fields": [{"A_Star": {}}]}}
DECLARED: Final = frozenset(
    {
        "DEFAULT expressions",
        "check constraints",
        "column generation expressions",
        "index predicates",
        "index expressions",
    }
)
"""Clauses of declarations: what they say is compiled where nothing is known of functions."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """`args`: those that were given, each at its place; None: its default."""

    function: SqlFunction
    args: tuple[Expr | None, ...]
    pos: int


class Inlining:
    """Of one statement. `expr`: binds an expression; `is_cast`: whether a name, called with a value
    of a type, is a type's. The room of the binder around it.
    """

    def __init__(
        self,
        names: Names,
        casts: Coercer,
        needs: Needs,
        expr: Callable[[Node, Scope], Expr],
        is_cast: Callable[[Sequence[str], int], bool],
    ) -> None:
        self._names, self._casts, self._needs, self._expr = names, casts, needs, expr
        self._is_cast = is_cast
        self._depth = self._count = 0
        self.called: dict[int, str] = {}
        """Where the statement itself calls one that only its path finds, and in which schema. What
        views and functions say is read on the path public, so none of theirs is in here.
        """

    # -- which function is meant

    def chosen(self, words: Sequence[str], body: Node, scope: Scope) -> Chosen | None:
        """The function of users' that a call means; None: it is none of theirs. Raises SqlError."""
        own = self._found(words)
        if not own:
            return None
        pos = at(body)
        given, by_name = self._given(body, scope)
        types = tuple(arg.oid for arg in (*given, *by_name.values()))
        places = [self._places(one, len(given), list(by_name)) for one in own]
        procs = [
            Proc(one.title, tuple(one.arguments[p].oid for p in spots), one.result, str(number))
            for number, (one, spots) in enumerate(zip(own, places, strict=True))
            if spots is not None
        ]
        known = () if by_name or len(words) > 1 else FUNCTIONS.get(words[-1], ())
        if any(proc.args == types for proc in known):
            return None
        exact = any(proc.args == types for proc in procs)
        if known and not exact and isinstance(resolve.among(known, types), resolve.Resolved):
            return None
        if not (exact or by_name) and len(types) == 1 and self._is_cast(words, types[0]):
            return None
        found = resolve.among(procs, types)
        if found == "ambiguous":
            raise SqlError(
                AMBIGUOUS_FUNCTION,
                f"function {words[-1]}({', '.join(map(format_type, types))}) is not unique",
                hint="Could not choose a best candidate function. You might need to add explicit "
                "type casts.",
                position=pos,
            )
        if not isinstance(found, resolve.Resolved):
            return None
        check_plain(words[-1], body)
        number = int(found.proc.source)
        args: list[Expr | None] = [None] * len(own[number].arguments)
        for place, arg in zip(places[number] or (), (*given, *by_name.values()), strict=True):
            args[place] = arg
        schema = schema_of(own[number].namespace)
        if self._depth == 0 and len(words) == 1 and schema != PUBLIC:
            self.called[pos] = schema
        return Chosen(own[number], tuple(args), pos)

    def _found(self, words: Sequence[str]) -> list[SqlFunction]:
        """All of that name in its schema, or in those of the path: of those with the same arguments
        the one that is found first.
        """
        path = words[-2:-1] or self._names.path
        found: dict[str, SqlFunction] = {}
        for schema in path:
            for one in self._names.functions(named(schema, words[-1])):
                found.setdefault(one.name, one)
        return list(found.values())

    def _given(self, body: Node, scope: Scope) -> tuple[list[Expr], dict[str, Expr]]:
        given: list[Expr] = []
        by_name: dict[str, Expr] = {}
        for node in body.get("args", ()):
            kind, part = unwrap(node)
            if kind == "NamedArgExpr":
                if part["name"] in by_name:
                    raise SqlError(
                        SYNTAX_ERROR,
                        f'argument name "{part["name"]}" used more than once',
                        position=at(part),
                    )
                by_name[part["name"]] = self._expr(part["arg"], scope)
            elif by_name:
                raise SqlError(
                    SYNTAX_ERROR,
                    "positional argument cannot follow named argument",
                    position=at(part),
                )
            else:
                given.append(self._expr(node, scope))
        return given, by_name

    @staticmethod
    def _places(one: SqlFunction, count: int, named: list[str]) -> list[int] | None:
        """Where the given arguments belong; None: it cannot be called so."""
        names = [argument.name for argument in one.arguments]
        if count > len(names) or not set(named) <= set(names[count:]):
            return None
        found = [*range(count), *map(names.index, named)]
        left = set(range(len(names))) - set(found)
        return None if any(one.arguments[p].default is None for p in left) else found

    # -- what it becomes

    def value(self, chosen: Chosen, forbidden: str = "") -> Expr:
        """Of a function that returns a value. `forbidden`: the clause. Raises SqlError."""
        one, pos = chosen.function, chosen.pos
        if forbidden in DECLARED:
            raise unsupported(
                f"a function of users' in {forbidden}",
                hint="Write what it computes.",
                position=pos,
            )
        if one.columns:
            raise unsupported(
                f"the function {one.title}, which returns rows, here",
                hint=f"Write FROM {one.title}(…).",
                position=pos,
            )
        with self._inside(one, pos):
            args = self._arguments(chosen)
            tree = _tree(one)
            node = _expression(tree)
            nested = node is None
            if node is None:
                query = {"SelectStmt": _first(tree)}
                node = {"SubLink": {"subLinkType": "EXPR_SUBLINK", "subselect": query}}
            _check_used(one, args, tree, nested=nested)
            bound = self._expr(node, _scope(one, args))
            found = self._casts.coerce(bound, one.result, ASSIGNMENT, 0)
            if found is None:
                raise _mismatch(one.result, bound.oid)
            found = _plain(found)
            return _strict(found, args) if one.strict else found

    def rows(
        self,
        chosen: Chosen,
        select: Callable[[Node, Scope], Select],
        with_targets: Callable[[Select, Sequence[Target]], Select],
    ) -> Select:
        """Of a function that returns rows, as a query in FROM. `with_targets`: the query with
        another list. Raises SqlError.
        """
        one = chosen.function
        with self._inside(one, chosen.pos):
            args = self._arguments(chosen)
            tree = _tree(one)
            _check_used(one, args, tree, nested=True)
            scope = _scope(one, args)
            inner = {"subquery": {"SelectStmt": tree}, "alias": {"aliasname": one.title}}
            found = select(
                {
                    "targetList": [{"ResTarget": {"val": _STAR}}],
                    "fromClause": [{"RangeSubselect": inner}],
                    "limitOption": "LIMIT_OPTION_DEFAULT",
                    "op": "SETOP_NONE",
                },
                scope,
            )
            if len(found.targets) != len(one.columns):
                raise SqlError(
                    _MISMATCH,
                    "return type mismatch in function declared to return record",
                    detail=f"Final statement returns {len(found.targets)} columns instead of "
                    f"{len(one.columns)}.",
                )
            targets = []
            for target, (name, oid) in zip(found.targets, one.columns, strict=True):
                expr = self._casts.coerce(target.expr, oid, ASSIGNMENT, 0)
                if expr is None:
                    raise _mismatch(oid, target.expr.oid)
                targets.append(Target(_plain(expr), name))
            return with_targets(found, targets)

    @contextmanager
    def _inside(self, one: SqlFunction, pos: int) -> Iterator[None]:
        self._depth += 1
        self._count += 1
        try:
            if self._depth > SQL_INLINED_DEPTH_MAX or self._count > SQL_INLINED_MAX:
                raise SqlError(
                    STATEMENT_TOO_COMPLEX,
                    "stack depth limit exceeded",
                    hint=f"Functions in SQL are put where they are called: at most "
                    f"{SQL_INLINED_MAX} calls in a statement, {SQL_INLINED_DEPTH_MAX} in each "
                    "other, and none of itself.",
                )
            with self._needs.called(schema_of(one.namespace)):
                yield
        except SqlError as error:
            error.position = pos  # what it had is of the function's text
            error.where = error.where or f'SQL function "{one.title}" during inlining'
            raise
        finally:
            self._depth -= 1

    def _arguments(self, chosen: Chosen) -> list[Expr]:
        """All of them, of their types."""
        found = []
        for argument, given in zip(chosen.function.arguments, chosen.args, strict=True):
            if given is None:
                assert argument.default is not None
                given = self._expr(parse_expression(argument.default), Scope())
                found.append(self._casts.must(given, argument.oid, ASSIGNMENT, 0))
            else:
                found.append(self._casts.must(given, argument.oid, IMPLICIT, chosen.pos))
        return found


def _mismatch(wanted: int, got: int) -> SqlError:
    return SqlError(
        _MISMATCH,
        f"return type mismatch in function declared to return {format_type(wanted)}",
        detail=f"Actual return type is {format_type(got)}.",
    )


def _scope(one: SqlFunction, args: Sequence[Expr]) -> Scope:
    names = [argument.name for argument in one.arguments]
    numbers = [f"${n}" for n in range(1, len(args) + 1)]
    return Scope(rels=[Rel(one.title, (*names, *numbers), (*args, *args))])


def _tree(one: SqlFunction) -> Node:
    """Its query, $1 as the name that it has in `_scope`. Raises SqlError."""
    parsed = whole(one.sql)
    assert parsed is not None
    for reference in find(parsed.body, "ParamRef"):
        if not 1 <= reference.get("number", 0) <= len(one.arguments):
            raise SqlError(
                UNDEFINED_PARAMETER, f"there is no parameter ${reference.get('number', 0)}"
            )
    found: Node = _named(parsed.body)
    return found


def _named(node: object) -> Any:
    if isinstance(node, list):
        return [_named(one) for one in node]
    if not isinstance(node, dict):
        return node
    if "ParamRef" in node:
        name = f"${node['ParamRef'].get('number', 0)}"
        return {"ColumnRef": {"fields": [{"String": {"sval": name}}]}}
    return {key: _named(value) for key, value in node.items()}


def _expression(tree: Node) -> Node | None:
    """What a SELECT of one expression computes; None: it is more than that."""
    targets = tree.get("targetList", ())
    if not tree.keys() <= _PLAIN or tree.get("op", "SETOP_NONE") != "SETOP_NONE":
        return None
    if len(targets) != 1:
        return None
    value: Node = targets[0]["ResTarget"]["val"]
    kind, body = unwrap(value)
    if kind == "ColumnRef" and "A_Star" in body["fields"][-1]:
        return None
    return None if _gathers(value) else value


def _calls(node: object) -> Iterator[tuple[Node, Proc]]:
    """Calls of PostgreSQL's own functions, by all that they may mean."""
    for call in find(node, "FuncCall"):
        for proc in FUNCTIONS.get(strings(call.get("funcname"))[-1], ()):
            yield call, proc


def _gathers(node: object) -> bool:
    """Whether an aggregate, a window function or one that returns rows is called."""
    return any("over" in c or p.kind != "f" or p.returns_set for c, p in _calls(node))


def _single(tree: Node) -> bool:
    """Whether it has one row at most."""
    if tree.get("op", "SETOP_NONE") != "SETOP_NONE" or {"valuesLists", "groupClause"} & tree.keys():
        return False
    calls = list(_calls(tree.get("targetList")))
    if any(proc.returns_set for _, proc in calls):
        return False
    aggregate = any(proc.kind == "a" and "over" not in call for call, proc in calls)
    return aggregate or "fromClause" not in tree


def _first(tree: Node) -> Node:
    """The query of its first row."""
    if _single(tree):
        return tree
    one: Node = {"A_Const": {"ival": {"ival": 1}, "location": 0}}
    if not {"limitCount", "limitOffset"} & tree.keys():
        return {**tree, "limitCount": one, "limitOption": "LIMIT_OPTION_COUNT"}
    inner = {"subquery": {"SelectStmt": tree}, "alias": {"aliasname": "f"}}
    return {
        "targetList": [{"ResTarget": {"val": _STAR}}],
        "fromClause": [{"RangeSubselect": inner}],
        "limitCount": one,
        "limitOption": "LIMIT_OPTION_COUNT",
        "op": "SETOP_NONE",
    }


def _check_used(one: SqlFunction, args: Sequence[Expr], tree: Node, *, nested: bool) -> None:
    """Raises SqlError (0A000): a value would be computed twice, or seen from where it is not."""
    for number, arg in enumerate(args, 1):
        parts = list(walk(arg))
        if nested and any(isinstance(part, SubQuery) for part in parts):
            raise unsupported(
                f"a subquery as an argument of {one.title}",
                hint="Join it: FROM (SELECT …) q CROSS JOIN LATERAL …",
            )
        if not any(isinstance(part, Call) and part.proc.volatile == "v" for part in parts):
            continue
        names = (one.arguments[number - 1].name, f"${number}")
        columns = [strings(one["fields"])[-1:] for one in find(tree, "ColumnRef")]
        used = sum(columns.count([name]) for name in names if name)
        if used != 1 or nested or one.strict:
            raise unsupported(
                f"a volatile argument of {one.title}, which does not use it just once",
                hint="Compute it in a subquery in FROM first.",
            )


def _plain(expr: Expr) -> Expr:
    """What a function returns has no length and no scale."""
    return expr if expr.typmod < 0 else Cast(oid=expr.oid, arg=expr, how="relabel", pos=expr.pos)


def _strict(expr: Expr, args: Sequence[Expr]) -> Expr:
    """NULL, if one of the arguments is."""
    tests: list[Expr] = [
        IsNull(oid=oids.BOOL, arg=arg, negated=False)
        for arg in args
        if not (isinstance(arg, Const) and arg.value is not None)
    ]
    if not tests:
        return expr
    test = tests[0] if len(tests) == 1 else Logic(oid=oids.BOOL, op="or", args=tuple(tests))
    nothing = Const(oid=expr.oid, typmod=expr.typmod, value=None)
    return Case(oid=expr.oid, typmod=expr.typmod, arg=None, whens=((test, nothing),), default=expr)


def check_plain(name: str, body: Node) -> None:
    """Raises SqlError (42809): what only aggregates and window functions have is said."""
    for key, words in (
        ("agg_star", f"{name}(*) specified, but {name} is not an aggregate function"),
        ("agg_distinct", f"DISTINCT specified, but {name} is not an aggregate function"),
        ("agg_order", f"ORDER BY specified, but {name} is not an aggregate function"),
        ("agg_filter", f"FILTER specified, but {name} is not an aggregate function"),
        ("over", f"OVER specified, but {name} is not a window function nor an aggregate function"),
    ):
        if body.get(key):
            raise SqlError(WRONG_OBJECT_TYPE, words, position=at(body))


def called(one: SqlFunction) -> Chosen:
    """A call with NULLs, to see whether it can be."""
    nothing = tuple(Const(oid=argument.oid, value=None) for argument in one.arguments)
    return Chosen(one, nothing, 0)
