"""Indexes over expressions: the column that has what an expression says of a row. Pure.

CREATE INDEX ON t (lower(name)) makes a column that nobody sees, generated from the expression, and
an index of it (docs/decisions/1593). So what keeps it, fills it and reads it is what does so with
any generated column; only where a statement says the expression itself is it taken for the column.
It is the same expression where it is bound to the same: columns by their ids, constants with their
types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Column as Reference
from sqlproxy.front.bound.exprs import Expr, bare, walk
from sqlproxy.front.closures.compiling import compile
from sqlproxy.rows.schema import Index, Table
from sqlproxy.tables import predicates
from sqlproxy.tables.implied_predicates import shape_of

_REMEMBERED_MAX = 1_024
_remembered: dict[int, tuple[Table, dict[object, int]]] = {}


def column_meant(table: Table, expr: Expr) -> int | None:
    """The id of the column whose expression this is; None: of none. Raises Corruption."""
    expr = bare(expr)
    if isinstance(expr, Reference) or not any(isinstance(one, Reference) for one in walk(expr)):
        return None
    known = _shapes(table)
    return known.get(shape_of(table, expr)) if known else None


def completed(table: Table, index: Index) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Puts into a row, in user form, what the index is of: a row that is older than the index has
    nothing there. What that raises, SqlError, the expression raises of the row.
    """
    columns, env = enumerate(table.columns), Env()
    wanted = {
        at: compile(predicates.computed(table, column)).fn
        for at, column in columns
        if column.derived and column.id in index.column_ids
    }

    def made(row: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(wanted[at](row, env) if at in wanted else one for at, one in enumerate(row))

    return made if wanted else tuple


def _shapes(table: Table) -> dict[object, int]:
    """Of its expressions, remembered by the object."""
    found = _remembered.get(id(table))
    if found is not None and found[0] is table:
        return found[1]
    made = {
        shape_of(table, bare(predicates.computed(table, column))): column.id
        for column in table.columns
        if column.derived and column.state == "public"
    }
    if len(_remembered) >= _REMEMBERED_MAX:
        _remembered.clear()
    _remembered[id(table)] = table, made
    return made
