"""What rendering a SELECT needs and is no part of the tree of frames: GROUPING SETS as written,
which conditions are about one item, what its rows weigh. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlproxy.analytic.expressions import Sql
from sqlproxy.analytic.forms import TEXT
from sqlproxy.analytic.functions import Functions
from sqlproxy.duck import ducktext as d
from sqlproxy.front.bound.exprs import Column, Expr, walk
from sqlproxy.front.bound.folding import opaque, volatile
from sqlproxy.front.bound.statements import Select, TableItem
from sqlproxy.front.syntax.syntax import Node, unwrap


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
    return ", ".join(written(node) for node in body["groupClause"])


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
