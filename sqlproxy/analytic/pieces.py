"""What rendering a SELECT needs and is no part of the tree of frames: GROUPING SETS as written,
which conditions are about one item, what its rows weigh. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Final

from sqlproxy.analytic.expressions import Sql
from sqlproxy.analytic.forms import TEXT
from sqlproxy.analytic.functions import Functions
from sqlproxy.duck import ducktext as d
from sqlproxy.front.bound.exprs import Column, Expr, walk
from sqlproxy.front.bound.folding import opaque, volatile
from sqlproxy.front.bound.statements import Select, TableItem
from sqlproxy.front.syntax.syntax import Node, unwrap
from sqlproxy.values.errors import STATEMENT_TOO_COMPLEX, SqlError

_SETS_MAX: Final = 4096  # PostgreSQL's
_CUBE_MAX: Final = 12


def grouping_sets(select: Select, groups: Sequence[str]) -> str:
    """GROUP BY as it was written: the bound tree has only its expressions, in this order."""
    left = iter(groups)

    def written(node: Node) -> str:
        kind, body = unwrap(node)
        if kind == "RowExpr":
            return f"({', '.join(written(one) for one in body.get('args', ()))})"
        if kind == "List":
            return f"({', '.join(written(one) for one in body.get('items', ()))})"
        if kind != "GroupingSet":
            return next(left)
        inner = ", ".join(written(one) for one in body.get("content", ()))
        words = {"SETS": "GROUPING SETS ", "ROLLUP": "ROLLUP ", "CUBE": "CUBE "}
        word = words.get(body["kind"].rpartition("_")[2], "")  # "": the empty set, or one
        return f"{word}({inner})"

    body = select.tree["SelectStmt"]
    if body.get("groupDistinct"):
        every = {frozenset(one): one for one in _expanded(body["groupClause"], left)}
        listed = (f"({', '.join(one)})" for one in every.values())
        return f"GROUPING SETS ({', '.join(listed)})"
    return ", ".join(written(node) for node in body["groupClause"])


def _expanded(nodes: Sequence[Node], left: Iterator[str]) -> list[tuple[str, ...]]:
    """GROUP BY DISTINCT, which DuckDB has not: each set of keys, as often as it is meant. Raises
    54001.
    """
    found: list[tuple[str, ...]] = [()]
    for node in nodes:
        sets = _sets(node, left)
        if len(found) * len(sets) > _SETS_MAX:
            raise SqlError(
                STATEMENT_TOO_COMPLEX, f"too many grouping sets present (maximum {_SETS_MAX})"
            )
        found = [(*one, *other) for one in found for other in sets]
    return found


def _sets(node: Node, left: Iterator[str]) -> list[tuple[str, ...]]:
    """Those of one item of GROUP BY. Raises 54011."""
    kind, body = unwrap(node)
    if kind in ("RowExpr", "List"):
        return [_keys(body.get("args") or body.get("items", ()), left)]
    if kind != "GroupingSet":
        return [(next(left),)]
    content = body.get("content", ())
    match body["kind"]:
        case "GROUPING_SET_SETS":
            return [one for inner in content for one in _sets(inner, left)]
        case "GROUPING_SET_ROLLUP":
            parts = [_keys([one], left) for one in content]
            return [tuple(chain(*parts[:n])) for n in range(len(parts), -1, -1)]
        case "GROUPING_SET_CUBE":
            if len(content) > _CUBE_MAX:
                raise SqlError("54011", f"CUBE is limited to {_CUBE_MAX} elements")
            parts = [_keys([one], left) for one in content]
            some = (combinations(parts, n) for n in range(len(parts), -1, -1))
            return [tuple(chain(*chosen)) for chosen in chain(*some)]
        case _:
            return [_keys(content, left)]


def _keys(nodes: Sequence[Node], left: Iterator[str]) -> tuple[str, ...]:
    """All of them in one set."""
    return tuple(key for node in nodes for one in _sets(node, left) for key in one)


def only_of(expr: Expr, item: TableItem) -> bool:
    """Whether a condition is about this item's columns and nothing else of a row."""
    columns = range(item.offset, item.offset + len(item.columns))
    mine = False
    for one in walk(expr):
        if isinstance(one, Column):
            if one.level or one.index not in columns:
                return False
            mine = True
        elif opaque(one):
            return False
    return mine and not volatile(expr)


_FIXED: Final = 16  # bytes of an element, at most
_SIZES: Final = {TEXT: "strlen({0})", "BLOB": "octet_length({0})"}


def weighed(text: str, columns: Sequence[Sql], functions: Functions) -> str:
    """The query with one column more, which refuses rows that are too large (`weighing`)."""
    sizes = [size for at, one in enumerate(columns) if (size := _size(f"o{at}", one.held))]
    if not sizes:
        return text
    size = " + ".join(d.call("coalesce", f"{one}, 0") for one in sizes)
    return f"SELECT *, {functions.weighing()}({d.cast(size, 'BIGINT')}) FROM ({text})"


def _size(name: str, held: str) -> str | None:
    """The bytes of a value; None: as many as any other of its type."""
    if not held.endswith("[]"):
        return _SIZES[held].format(name) if held in _SIZES else None
    inner = _size("x", held[:-2])
    if inner is None:
        return f"{_FIXED} * len({name})"
    return f"list_sum(list_transform({name}, lambda x: {_FIXED} + {inner}))"
