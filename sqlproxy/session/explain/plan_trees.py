"""The lines of EXPLAIN as PostgreSQL's JSON, XML and YAML have plans: nodes with "Node Type" and
"Plans" inside, so that what draws them (pgAdmin, DBeaver) can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

_NODE: Final = re.compile(
    r"(?P<type>(?:Seq|Index|Index Only) Scan|Insert|Update|Delete)(?P<back> Backward)?"
    r"(?: using (?P<index>.+?))?(?: on (?P<table>.+))?"
)
_CHANGES: Final = ("Insert", "Update", "Delete")
_FIGURES: Final = re.compile(
    r"  ?\((?:cost=(?P<start>[0-9.]+)\.\.(?P<total>[0-9.]+)"
    r" rows=(?P<rows>\d+) width=(?P<width>\d+)"
    r"|actual time=(?P<began>[0-9.]+)\.\.(?P<ended>[0-9.]+)"
    r" rows=(?P<came>\d+) loops=(?P<loops>\d+))\)"
)
_NAMES: Final = {
    "start": "Startup Cost",
    "total": "Total Cost",
    "rows": "Plan Rows",
    "width": "Plan Width",
    "began": "Actual Startup Time",
    "ended": "Actual Total Time",
    "came": "Actual Rows",
    "loops": "Actual Loops",
}
_XML: Final = "http://www.postgresql.org/2009/explain"


def written(form: str, lines: Sequence[str], analyzed: Sequence[str] = ()) -> str:
    """A plan in the format json, xml or yaml; its lines as `_tree` takes them."""
    whole = _tree(lines, analyzed)
    match form:
        case "xml":
            inner = "\n".join(_as_xml("Query", whole, "  "))
            return f'<explain xmlns="{_XML}">\n{inner}\n</explain>'
        case "yaml":
            return "\n".join(_as_yaml([whole], ""))
        case _:
            return json.dumps([whole], indent=2)


def _as_xml(name: str, value: object, margin: str) -> list[str]:
    tag = name.replace(" ", "-")
    match value:
        case dict():
            inner = [line for k, v in value.items() for line in _as_xml(k, v, margin + "  ")]
        case list():
            one = "Plan" if name == "Plans" else "Item"
            inner = [line for v in value for line in _as_xml(one, v, margin + "  ")]
        case _:
            return [f"{margin}<{tag}>{escape(str(value))}</{tag}>"]
    return [f"{margin}<{tag}>", *inner, f"{margin}</{tag}>"]


def _as_yaml(value: object, margin: str) -> list[str]:
    """Its lines, but what is no tree: that stands behind its name."""
    if not isinstance(value, dict | list):
        return [json.dumps(value, ensure_ascii=False)]
    found = []
    if isinstance(value, list):
        for inner in value:
            first, *more = _as_yaml(inner, margin + "  ")
            found += [f"{margin}- {first.lstrip()}", *more]
        return found
    for name, inner in value.items():
        below = _as_yaml(inner, margin + "  ")
        beside = "" if isinstance(inner, dict | list) else below.pop()
        found += [f"{margin}{name}: {beside}", *below]
    return found


def _tree(lines: Sequence[str], analyzed: Sequence[str]) -> dict[str, object]:
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
    return whole


def _tell(node: dict[str, object], name: str, value: str) -> None:
    if name in node:
        known = node[name]
        node[name] = [*known, value] if isinstance(known, list) else [known, value]
    else:
        node[name] = value


def _node(text: str) -> dict[str, object]:
    figures = {
        _NAMES[name]: float(value) if "." in value else int(value)
        for one in _FIGURES.finditer(text)
        for name, value in one.groupdict().items()
        if value is not None
    }
    return {**_named(_FIGURES.sub("", text)), **figures}


def _named(text: str) -> dict[str, object]:
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
