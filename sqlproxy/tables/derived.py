"""Indexes over expressions: the column that has what an expression says of a row. Pure.

CREATE INDEX ON t (lower(name)) makes a column that nobody sees, generated from the expression, and
an index of it (docs/decisions/1593). So what keeps it, fills it and reads it is what does so with
any generated column; only where a statement says the expression itself is it taken for the column.
It is the same expression where it is bound to the same: columns by their ids, constants with their
types.
"""

from __future__ import annotations

from sqlproxy.front.bound.exprs import Column as Reference
from sqlproxy.front.bound.exprs import Expr, bare, walk
from sqlproxy.rows.schema import Table
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
