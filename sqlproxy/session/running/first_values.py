"""Queries of one value that a WHERE compares a column with: they run first, and their values stand
in the statement before a way to its rows is looked for.

    SELECT … FROM t WHERE id = (SELECT max(v) FROM t)      the value, then one row by its key

Only queries that name nothing of the rows around, each compared with a column by a condition that
has to be met: PostgreSQL computes the same ones once, before the rows. Pure but for `ask`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace

from sqlproxy.front.bound.exprs import Call, Cast, Column, Const, Expr, bare, conjuncts
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import Delete, Select, SubQuery, Update
from sqlproxy.front.bound.trees import looked_into, parts
from sqlproxy.front.stages.sequence_stages import correlated
from sqlproxy.pg import oids

Asking = Select | Update | Delete
Ask = Callable[[Select], Awaitable[object]]
"""The value of a query of one value, None if it has no row. Raises SqlError."""
_COMPARING = ("=", "<", "<=", ">", ">=")


def first_queries(bound: object) -> list[SubQuery]:
    """Those of a statement."""
    if not isinstance(bound, Asking) or not bound.subqueries or bound.ctes:
        return []
    if isinstance(bound, Select) and (bound.numbers or bound.operation):
        return []
    return [query for one in conjuncts(bound.where) if (query := _compared(one)) is not None]


def _compared(condition: Expr) -> SubQuery | None:
    match condition:
        case Call(operator=operator, args=(left, right)) if operator in _COMPARING:
            pass
        case _:
            return None
    for column, other in ((left, right), (right, left)):
        while isinstance(other, Cast) or (isinstance(other, Call) and other.cast):
            other = other.arg if isinstance(other, Cast) else other.args[0]
        if not isinstance(bare(column), Column) or not isinstance(other, SubQuery):
            continue
        plain = other.kind == "scalar" and not other.left and not other.select.numbers
        if plain and not correlated(other.select):
            return other
    return None


async def with_values(bound: Asking, ask: Ask) -> Asking:
    """The statement with values instead of these queries. Raises SqlError."""
    known: dict[int, object] = {}
    for query in first_queries(bound):
        select = query.select
        if select.limit is None and select.offset is None and not select.with_ties:
            select = replace(select, limit=Const(oid=oids.INT8, value=2))
        if isinstance(bound, Select):
            select = replace(select, as_of=bound.as_of)
        known[id(query)] = await ask(select)
    return filled(bound, known)


def unknown(bound: object) -> object:
    """The statement with NULLs for what is not known yet: which way it would go."""
    first = first_queries(bound)
    if not first or not isinstance(bound, Asking):
        return bound
    return filled(bound, {id(one): None for one in first})


def filled(bound: Asking, known: Mapping[int, object]) -> Asking:
    """The statement with values instead of queries, by the ids of those."""

    def value(part: Expr) -> Expr | None:
        if isinstance(part, SubQuery) and id(part) in known:
            return Const(oid=part.oid, typmod=part.typmod, pos=part.pos, value=known[id(part)])
        return None

    assert bound.where is not None
    changed = replace(bound, where=rebuilt(bound.where, value))
    return replace(changed, subqueries=any(True for _ in _queries(changed)))


def _queries(node: object) -> Iterator[SubQuery]:
    if isinstance(node, SubQuery):
        yield node
    elif isinstance(node, tuple):
        for one in node:
            yield from _queries(one)
    elif looked_into(node):
        for name, part in parts(node):
            if name != "items":
                yield from _queries(part)
