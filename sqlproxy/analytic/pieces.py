"""What rendering a SELECT needs and is no part of the tree of frames: functions that return sets by
way of lists, GROUPING SETS as written, which conditions are about one item. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlproxy import jsonb
from sqlproxy.analytic.folding import opaque, volatile
from sqlproxy.errors import SqlError
from sqlproxy.front import registry as r
from sqlproxy.front.exprs import Column, Expr, walk
from sqlproxy.front.functions import PURE
from sqlproxy.front.statements import Select, TableItem
from sqlproxy.front.syntax import Node, unwrap


def _elements(text: str) -> list[str]:
    return [jsonb.dumps(one) for one in _array(text)]


def _element_texts(text: str) -> list[str | None]:
    return [
        None if one is None else one if isinstance(one, str) else jsonb.dumps(one)
        for one in _array(text)
    ]


def _array(text: str) -> list[Any]:
    value = jsonb.parse(text)
    if isinstance(value, list):
        return value
    kind = "an object" if isinstance(value, dict) else "a scalar"
    raise SqlError("22023", f"cannot extract elements from {kind}")


LISTS: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "regexp_split_to_table": (PURE["regexp_split_to_array"], r.TEXT),
    "regexp_split_to_table_no_flags": (PURE["regexp_split_to_array_no_flags"], r.TEXT),
    "text_to_table": (PURE["text_to_array"], r.TEXT),
    "jsonb_array_elements": (_elements, r.JSONB),
    "jsonb_array_elements_text": (_element_texts, r.TEXT),
}
"""Functions whose set is the list that another function makes."""


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
