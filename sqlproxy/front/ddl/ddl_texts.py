"""Declarations as SQL text, as the catalog keeps them: expressions, the queries of views, and what
these read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import postgast
from google.protobuf import json_format

from sqlproxy.front.binding.scope import Names
from sqlproxy.front.bound.exprs import Column, Const
from sqlproxy.front.bound.statements import Select, SelectItem, SequenceItem, TableItem
from sqlproxy.front.syntax.syntax import TOO_DEEP, Node, find, strings, unwrap
from sqlproxy.front.types.quoting import read_relation
from sqlproxy.pg import oids
from sqlproxy.rows.schema import Table, View
from sqlproxy.values.errors import STATEMENT_TOO_COMPLEX, SYNTAX_ERROR, SqlError


def text_of(node: Node) -> str:
    """An expression's tree as SQL. Raises SqlError: nested too deeply to be kept."""
    select = {"targetList": [{"ResTarget": {"val": node}}], "limitOption": "LIMIT_OPTION_DEFAULT"}
    return query_text(select).removeprefix("SELECT ")


def unqualified(node: Node) -> Node:
    """An expression over one table without the table's name, which may change."""
    found = copy.deepcopy(node)
    for reference in find(found, "ColumnRef"):
        reference["fields"] = reference["fields"][-1:]
    return found


def query_text(body: Node) -> str:
    """A SelectStmt's tree as SQL."""
    result = postgast.ParseResult()
    whole = {"stmts": [{"stmt": {"SelectStmt": {"op": "SETOP_NONE", **body}}}]}
    try:
        text: str = postgast.deparse(json_format.ParseDict(whole, result))
    except (json_format.ParseError, RecursionError, postgast.PgQueryError) as error:
        if isinstance(error, postgast.PgQueryError):
            raise SqlError(
                SYNTAX_ERROR, f"the expression cannot be kept: {error.message}"
            ) from None
        raise SqlError(STATEMENT_TOO_COMPLEX, TOO_DEEP) from None
    return text


def with_targets(query: Node, select: Select) -> Node:
    """The query with its stars written out, so that columns added later are not in it."""
    if "targetList" not in query:
        return query
    nodes = []
    has_star = False
    for node in query["targetList"]:
        kind, body = unwrap(node["ResTarget"]["val"])
        has_star = has_star or (kind == "ColumnRef" and "A_Star" in body["fields"][-1])
        nodes.append(node)
    if not has_star:
        return query
    written = iter(n for n in nodes)
    targets = list(select.targets)
    out: list[Node] = []
    for node in written:
        kind, body = unwrap(node["ResTarget"]["val"])
        if not (kind == "ColumnRef" and "A_Star" in body["fields"][-1]):
            out.append(node)
            targets.pop(0)
            continue
        # As many as are left when those that follow have had theirs.
        words = strings(body["fields"])
        count = _star_width(select, words[-1] if words else "")
        for target in targets[:count]:
            expr = target.expr
            parts = [target.name]
            if isinstance(expr, Column) and expr.relation:
                parts = [expr.relation, expr.name]
            ref = {"fields": [{"String": {"sval": p}} for p in parts]}
            out.append({"ResTarget": {"name": target.name, "val": {"ColumnRef": ref}}})
        del targets[:count]
    return {**query, "targetList": out}


def with_names(query: Node, before: Sequence[str], names: Sequence[str]) -> Node:
    """The query whose columns have the names of CREATE VIEW v (names), so that its text alone says
    what the view is: pg_dump and psql show no list. `before`: the names without the list.
    """
    if list(before) == list(names):
        return query
    used = {words[-1] for words in _bare_names(query)}
    changed = {old for old, new in zip(before, names, strict=True) if old != new}
    # A name of the result that ORDER BY or GROUP BY uses must stay, so the list goes around it.
    if "targetList" in query and not used & changed:
        targets = [
            {"ResTarget": {**node["ResTarget"], "name": new}}
            for node, new in zip(query["targetList"], names, strict=True)
        ]
        return {**query, "targetList": targets}
    listed = [{"String": {"sval": name}} for name in names]
    whole = {"SelectStmt": query}
    alias = {"aliasname": "v", "colnames": listed}
    return {
        "targetList": [
            {"ResTarget": {"val": {"ColumnRef": {"fields": [{"String": {"sval": "v"}}, field]}}}}
            for field in listed
        ],
        "fromClause": [{"RangeSubselect": {"subquery": whole, "alias": alias}}],
        "limitOption": "LIMIT_OPTION_DEFAULT",
    }


def _bare_names(query: Node) -> Iterator[list[str]]:
    clauses = [query.get(name) for name in ("sortClause", "groupClause", "distinctClause")]
    for reference in find(clauses, "ColumnRef"):
        if len(reference["fields"]) == 1:
            yield strings(reference["fields"])


def _star_width(select: Select, alias: str) -> int:
    from sqlproxy.front.binding.query import leaves
    from sqlproxy.front.bound.statements import JoinItem

    if alias:
        return next(
            len(leaf.columns)
            for item in select.items
            for leaf in leaves(item)
            if leaf.alias == alias
        )

    def width(item: Any) -> int:
        if isinstance(item, JoinItem):
            return width(item.left) + width(item.right) - len(item.using)
        return len(item.columns)

    return sum(width(item) for item in select.items)


def uses_of(select: Select, names: Names) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Tables (columns by id) and views (columns by place) that a query reads, directly, and what it
    names by a regclass.
    """
    found: dict[int, set[int]] = {}

    def visit(value: object) -> None:
        if isinstance(value, SelectItem) and value.view is not None:
            found.setdefault(value.view.id, set())
            return
        if isinstance(value, TableItem):
            found.setdefault(int(value.table.id), set())
            return
        if isinstance(value, SequenceItem):
            found.setdefault(int(value.sequence.id), set())
            return
        if isinstance(value, Const) and value.oid == oids.REGCLASS:
            name = read_relation(value.value or "-")
            one = names.table(name) or names.view(name) or names.sequence(name)
            if one is not None:
                found.setdefault(int(one.id), set())
            return
        if isinstance(value, Column) and value.table > 0:  # not the system's
            found.setdefault(value.table, set()).add(value.attribute)
        if isinstance(value, tuple):
            for one in value:
                visit(one)
        elif is_dataclass(value) and not isinstance(value, Table | View | type):
            for part in fields(value):
                visit(getattr(value, part.name))

    visit(select)
    return tuple((table, tuple(sorted(columns))) for table, columns in sorted(found.items()))
