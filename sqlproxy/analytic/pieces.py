"""What rendering a SELECT needs and is no part of the tree of frames: GROUPING SETS as written,
which conditions are about one item. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

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
