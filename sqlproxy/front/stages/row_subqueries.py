"""Subqueries in expressions over one row: VALUES, RETURNING and ON CONFLICT DO UPDATE. No closure
computes them, so `Later` stands for each, and whoever makes rows waits when a row needs one
(`sqlproxy.session.running.numbered_queries`). Pure.

    (SELECT max(n) FROM q)              `Later` of nothing: computed once for the statement
    EXISTS (… WHERE q.n = row.n)        `Later` of row.n: computed for each row, as a query in which
                                        the value stands instead of the column
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlproxy.front.bound.exprs import Column, Const, Expr, Later, walk
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import (
    Assignment,
    Conflict,
    Delete,
    Insert,
    KnownItem,
    Select,
    SubQuery,
    Target,
    Update,
)
from sqlproxy.front.bound.trees import looked_into, parts
from sqlproxy.pg import oids

Written = Insert | Update | Delete
Made = Callable[[SubQuery, tuple[Expr, ...]], Later]
"""What stands for a subquery that names these parts of the row."""


def row_subqueries(bound: object) -> bool:
    """Whether a change computes subqueries with its rows."""
    if isinstance(bound, Insert):
        return bound.subqueries
    return isinstance(bound, Update | Delete) and any(
        isinstance(one, SubQuery) for target in bound.returning for one in walk(target.expr)
    )


def postponed(bound: Written, made: Made) -> Written:
    """The change with what stands for the subqueries of its rows."""

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, SubQuery):
            return None
        left = tuple(rebuilt(one, change) for one in part.left)
        return made(part, (*left, *_named(part.select)))

    def one(expr: Expr) -> Expr:
        return rebuilt(expr, change)

    returning = tuple(Target(one(target.expr), target.name) for target in bound.returning)
    if not isinstance(bound, Insert):
        return replace(bound, returning=returning)
    rows = bound.rows
    if rows is not None:
        rows = tuple(tuple(map(one, row)) for row in rows)
    conflict = None if bound.conflict is None else _conflict(bound.conflict, one)
    ctes = () if bound.select is None else bound.ctes  # the subqueries have them
    return replace(
        bound, rows=rows, returning=returning, conflict=conflict, ctes=ctes, subqueries=False
    )


def _conflict(conflict: Conflict, one: Callable[[Expr], Expr]) -> Conflict:
    assignments = conflict.assignments
    if assignments is not None:
        assignments = tuple(Assignment(a.column, one(a.value)) for a in assignments)
    where = None if conflict.where is None else one(conflict.where)
    return replace(conflict, assignments=assignments, where=where)


def _named(select: Select) -> list[Column]:
    """The columns of the row around a subquery that it names, each once, as the row has them."""
    found = {column.index: column for column in _outer(select, 0)}
    return [replace(found[index], level=0) for index in sorted(found)]


def _outer(node: object, depth: int) -> Iterator[Column]:
    match node:
        case Column():
            if node.level == depth:
                yield node
        case tuple():
            for one in node:
                yield from _outer(one, depth)
        case KnownItem():
            return
        case _ if looked_into(node):
            depth += isinstance(node, Select)
            for _, part in parts(node):
                yield from _outer(part, depth)
        case _:
            return


def answering(query: SubQuery, values: Sequence[object]) -> Select:
    """The query that answers a subquery for what `postponed` says that it names: the query of one
    value and of EXISTS itself, with no more rows than decide it; of others one of one row.
    """
    left = tuple(_constant(one, value) for one, value in zip(query.left, values, strict=False))
    columns = _named(query.select)
    known = {
        column.index: _constant(column, value)
        for column, value in zip(columns, values[len(left) :], strict=True)
    }
    select = query.select
    if known:
        select = _put(select, known, 0)
    if query.kind in ("scalar", "exists") and not left:
        plain = select.limit is None and select.offset is None and not select.with_ties
        if plain and not select.numbers:
            most = 1 if query.kind == "exists" else 2
            select = replace(select, limit=Const(oid=oids.INT4, value=most))
        return select
    whole = replace(query, select=replace(select, ctes=()), left=left)
    return Select(
        targets=(Target(whole, "answer"),),
        ctes=select.ctes,
        subqueries=True,
        numbers=select.numbers,
    )


def _constant(of: Expr, value: object) -> Const:
    return Const(oid=of.oid, typmod=of.typmod, pos=of.pos, value=value)


def _put(node: Any, known: dict[int, Const], depth: int) -> Any:
    """The tree with values for the columns of the row around it."""
    match node:
        case Column():
            return known[node.index] if node.level == depth else node
        case tuple():
            found = [_put(one, known, depth) for one in node]
            same = all(new is old for new, old in zip(found, node, strict=True))
            return node if same else tuple(found)
        case KnownItem():
            return node
        case _ if looked_into(node):
            depth += isinstance(node, Select)
            changed = {}
            for name, old in parts(node):
                new = _put(old, known, depth)
                if new is not old:
                    changed[name] = new
            return replace(node, **changed) if changed else node
        case _:
            return node
