"""The lines of EXPLAIN as PostgreSQL's JSON has plans: nodes with "Node Type" and "Plans" inside,
so that what draws them (pgAdmin, DBeaver) can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

_NODE: Final = re.compile(
    r"(?P<type>(?:Seq|Index|Index Only) Scan|Insert|Update|Delete)(?P<back> Backward)?"
    r"(?: using (?P<index>.+?))?(?: on (?P<table>.+))?"
)
_CHANGES: Final = ("Insert", "Update", "Delete")


def as_json(lines: Sequence[str], analyzed: Sequence[str] = ()) -> str:
    """`lines`: a node, what is said of it indented by two, what is below it by two and without a
    colon. `analyzed`: of EXPLAIN (ANALYZE).
    """
    roots: list[dict[str, object]] = []
    open_: list[tuple[int, dict[str, Any]]] = []  # the nodes around, outermost first
    for line in lines:
        text = line.lstrip()
        depth = len(line) - len(text)
        while open_ and open_[-1][0] >= depth:
            open_.pop()
        name, colon, value = text.partition(": ")
        if colon and open_ and name != "Values Scan":
            _tell(open_[-1][1], name, value)
            continue
        node = _node(text)
        if open_:
            open_[-1][1].setdefault("Plans", []).append(node)
        else:
            roots.append(node)
        open_.append((depth, node))
    plan: dict[str, object] = roots[0] if roots else {"Node Type": "Result"}
    whole: dict[str, object] = {"Plan": plan}
    for line in analyzed:
        name, _, value = line.partition(": ")
        match name:
            case "Rows":
                plan["Actual Rows"] = int(value)
            case "Execution Time":
                whole[name] = float(value.removesuffix(" ms"))
            case _:
                _tell(plan, name, value)
    return json.dumps([whole], indent=2)


def _tell(node: dict[str, object], name: str, value: str) -> None:
    if name in node:
        known = node[name]
        node[name] = [*known, value] if isinstance(known, list) else [known, value]
    else:
        node[name] = value


def _node(text: str) -> dict[str, object]:
    found = _NODE.fullmatch(text)
    if found is None:
        return {"Node Type": text}
    kind = found["type"]
    node: dict[str, object] = {"Node Type": "ModifyTable" if kind in _CHANGES else kind}
    if kind in _CHANGES:
        node["Operation"] = kind
    if kind.startswith("Index"):
        node["Scan Direction"] = "Backward" if found["back"] else "Forward"
        node["Index Name"] = found["index"]
    if found["table"]:
        node["Relation Name"] = node["Alias"] = found["table"]
    return node
