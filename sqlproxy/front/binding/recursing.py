"""Where a query of WITH RECURSIVE may name itself. Pure.

Source: PostgreSQL 15, parse_cte.c (checkWellFormedRecursion) and parse_agg.c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

from sqlproxy.front.bound.exprs import Aggregate, walk
from sqlproxy.front.bound.statements import CteItem, Item, JoinItem, Select, SelectItem
from sqlproxy.front.syntax.syntax import Node, at
from sqlproxy.values.errors import SqlError

INVALID_RECURSION: Final = "42P19"
_ONCE: Final = "must not appear more than once"
_FORM: Final = "must not appear within its non-recursive term"
_SUBQUERY: Final = "must not appear within a subquery"
_OUTER: Final = "must not appear within an outer join"
_INTERSECT: Final = "must not appear within INTERSECT"
_EXCEPT: Final = "must not appear within EXCEPT"
_LATER: Final = (
    ("sortClause", "ORDER BY"),
    ("limitOffset", "OFFSET"),
    ("limitCount", "LIMIT"),
    ("lockingClause", "FOR UPDATE/SHARE"),
)


def check(name: str, body: Node) -> None:
    """Of a UNION that names itself. Raises SqlError."""
    _Walk(name).term(body["larg"], _FORM)
    found = _Walk(name)
    found.term(body["rarg"], "")
    for key, word in _LATER:
        if key in body:
            raise SqlError("0A000", f"{word} in a recursive query is not implemented")
    found.walk(body.get("withClause"), _SUBQUERY)


def in_order(ctes: Sequence[Node]) -> list[Node]:
    """The queries of WITH RECURSIVE, each after those that it names, wherever they stand. Raises
    SqlError: two name each other.
    """
    names = {cte["ctename"] for cte in ctes}
    if len(names) < len(ctes):
        return list(ctes)  # one name is there twice: whoever binds them says so
    wanted = {cte["ctename"]: set(_named_in(cte["ctequery"], names)) for cte in ctes}
    found: list[Node] = []
    left = list(ctes)
    while left:
        waiting = {cte["ctename"] for cte in left}
        free = (cte for cte in left if wanted[cte["ctename"]] & waiting <= {cte["ctename"]})
        if (ready := next(free, None)) is None:
            raise SqlError(
                "0A000",
                "mutual recursion between WITH items is not implemented",
                position=at(left[0]),
            )
        found.append(ready)
        left.remove(ready)
    return found


def _named_in(node: object, names: Set[str]) -> Iterator[str]:
    """Which of these queries a tree reads; one of its own WITH hides another of that name."""
    if isinstance(node, list):
        for one in node:
            yield from _named_in(one, names)
    elif isinstance(node, dict):
        if "relname" in node and "schemaname" not in node:
            yield from names & {node["relname"]}
        own = node.get("withClause", {}).get("ctes", ())
        names = names - {one["CommonTableExpr"]["ctename"] for one in own}
        for one in node.values():
            yield from _named_in(one, names)


class _Walk:
    """`why`: the words of the refusal where the name stands; "": it may, once."""

    def __init__(self, name: str) -> None:
        self._name, self._seen = name, 0

    def term(self, body: Node, why: str) -> None:
        """A SelectStmt's fields."""
        op = body.get("op", "SETOP_NONE")
        if op == "SETOP_NONE":
            for key, part in body.items():
                self.walk(part, why if key in ("fromClause", "withClause") else why or _SUBQUERY)
            return
        left = right = why
        if op == "SETOP_INTERSECT" and body.get("all"):
            left = right = why or _INTERSECT
        elif op == "SETOP_EXCEPT":
            left, right = why or (_EXCEPT if body.get("all") else ""), why or _EXCEPT
        self.term(body["larg"], left)
        self.term(body["rarg"], right)
        for key, part in body.items():
            if key not in ("larg", "rarg", "op", "all"):
                self.walk(part, why or _SUBQUERY)

    def walk(self, node: object, why: str) -> None:
        if isinstance(node, list):
            for one in node:
                self.walk(one, why)
        elif isinstance(node, dict):
            for kind, one in node.items():
                self._node(kind, one, why)

    def _node(self, kind: str, one: Any, why: str) -> None:
        if kind == "RangeVar":
            if one.get("relname") == self._name and "schemaname" not in one:
                self._named(one, why)
        elif kind == "SelectStmt":
            self.term(one, why)
        elif kind == "SubLink":
            self.walk(one.get("testexpr"), why)
            self.walk(one.get("subselect"), why or _SUBQUERY)
        elif kind == "JoinExpr":
            outer = {"JOIN_LEFT": ("rarg",), "JOIN_RIGHT": ("larg",), "JOIN_FULL": ("larg", "rarg")}
            sides = outer.get(one.get("jointype", ""), ())
            for side in ("larg", "rarg"):
                self.walk(one.get(side), why or (_OUTER if side in sides else ""))
            self.walk(one.get("quals"), why)
        else:
            self.walk(one, why)

    def _named(self, body: Node, why: str) -> None:
        self._seen += 1
        if not why and self._seen > 1:
            why = _ONCE
        if why:
            raise SqlError(
                INVALID_RECURSION,
                f'recursive reference to query "{self._name}" {why}',
                position=at(body),
            )


def check_aggregates(name: str, select: Select) -> None:
    """Of the recursive term, bound: none where the query itself is read. Raises 42P19."""
    if select.operation is not None:
        check_aggregates(name, select.operation.left)
        check_aggregates(name, select.operation.right)
        return
    for item in select.items:
        _check_item(name, item)
    if not any(_reads(name, item) for item in select.items):
        return
    exprs = [target.expr for target in select.targets] + [one.expr for one in select.order]
    if select.having is not None:
        exprs.append(select.having)
    for expr in exprs:
        for one in walk(expr):
            if isinstance(one, Aggregate):
                raise SqlError(
                    INVALID_RECURSION,
                    "aggregate functions are not allowed in a recursive query's recursive term",
                    position=one.pos + 1,
                )


def _check_item(name: str, item: Item) -> None:
    if isinstance(item, JoinItem):
        _check_item(name, item.left)
        _check_item(name, item.right)
    elif isinstance(item, SelectItem):
        check_aggregates(name, item.select)


def _reads(name: str, item: Item) -> bool:
    if isinstance(item, JoinItem):
        return _reads(name, item.left) or _reads(name, item.right)
    return isinstance(item, CteItem) and item.name == name
