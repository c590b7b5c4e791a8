"""Which expressions can raise an error of their own when they are computed. Pure.

Whoever computes in another order than the statement is written must not compute what can raise
where the statement would not have come to it. What is not known to be harmless can raise, so that
forgetting to declare a function as `total` costs time, never an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlproxy.front.bound.exprs import (
    ArrayExpr,
    Call,
    Cast,
    Column,
    Const,
    Expr,
    Later,
    Length,
)
from sqlproxy.front.bound.statements import Select, SubQuery
from sqlproxy.front.bound.trees import inside
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.types import comparing
from sqlproxy.front.types.registry import Proc
from sqlproxy.pg import oids
from sqlproxy.values.errors import SqlError
from sqlproxy.values.words import words

_PATTERNS: Final = words(
    """
    textlike textnlike texticlike texticnlike namelike namenlike nameiclike nameicnlike
    """
)
"""Those whose second argument can be wrong, but not from row to row where it is a constant."""
_TEXTS: Final = frozenset((oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.NAME))


def total(proc: Proc) -> bool:
    """Whether calls of a function never raise."""
    if proc.kind == "o" and proc.name in comparing.OPERATORS and proc.result == oids.BOOL:
        return True
    return proc.kind in ("a", "w") or (
        (function := FUNCTIONS.get(proc.source)) is not None and function.total
    )


def _reader(proc: Proc) -> Callable[[str], object] | None:
    """Of what its last argument says, if it raises for that alone."""
    function = FUNCTIONS.get(proc.source)
    return None if function is None else function.reads


def _raised(reads: Callable[[str], object], said: str) -> bool:
    try:
        reads(said)
    except SqlError:
        return True
    return False


def raises_itself(expr: Expr) -> bool:
    """Whether this node can raise, its parts left out."""
    match expr:
        case Call(proc=proc, args=(_, Const(value=str(pattern)))) if proc.source in _PATTERNS:
            return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1
        case Call(proc=proc, args=(*_, Const(value=str(said)))) if reads := _reader(proc):
            return _raised(reads, said)
        case Call():
            return not total(expr.proc)
        case Cast():
            return expr.how == "text" and expr.oid not in _TEXTS
        case Length():  # a text that is cast is cut
            return not (expr.explicit and expr.oid in (oids.VARCHAR, oids.BPCHAR))
        case ArrayExpr():
            return expr.nested
        case SubQuery():
            return expr.kind == "scalar" and not single(expr.select)
        case _:
            return isinstance(expr, Later)


def single(select: Select) -> bool:
    """Whether a query has one row at most, as it is written."""
    if select.operation is not None or select.sets:
        return False
    if select.values is not None:
        return len(select.values) == 1
    limit = select.limit
    while isinstance(limit, Call) and limit.cast:
        limit = limit.args[0]
    if isinstance(limit, Const) and limit.value in (0, 1) and not select.with_ties:
        return True
    return not select.items or (select.aggregates and not select.group)


def raises(node: object, hot: Callable[[Column], bool] | None = None) -> bool:
    """Whether computing it can raise. `hot`: columns of which computing the value can raise."""
    return any(
        raises_itself(one) or (hot is not None and isinstance(one, Column) and hot(one))
        for one in inside(node)
    )
