"""Which expressions can raise an error of their own when they are computed. Pure.

Whoever computes in another order than the statement is written must not compute what can raise
where the statement would not have come to it. What is not known to be harmless can raise, so that
forgetting a function here costs time, never an answer. tests/sqlproxy/front/test_raising.py calls
each function of `TOTAL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from sqlproxy.front import comparing
from sqlproxy.front.exprs import (
    ArrayExpr,
    Call,
    Cast,
    Column,
    Const,
    Expr,
    Later,
    Length,
    SubQuery,
)
from sqlproxy.front.registry import BOOL, BPCHAR, NAME, TEXT, VARCHAR, Proc
from sqlproxy.front.statements import Select
from sqlproxy.front.trees import looked_into, parts
from sqlproxy.values.words import words

TOTAL: Final = words(
    """
    lower upper btrim btrim1 ltrim ltrim1 rtrim rtrim1 textcat textlen bpcharlen textoctetlen
    bpcharoctetlen text_left text_right text_reverse text_starts_with textpos replace_text initcap
    md5_text ascii quote_ident quote_literal quote_nullable text_name name_text bpchar_name
    name_bpchar char_text byteacat byteaoctetlen md5_bytea i2toi4 int28 int48 i2tod i4tod i8tod
    i2tof i4tof i8tof ftod oidtoi8 int2_numeric int4_numeric int8_numeric float4_numeric
    float8_numeric int4_bool bool_int4 booltext numeric_uminus numeric_abs numeric_sign
    numeric_scale float8um float8abs float4um float4abs json_object_field json_object_field_text
    json_array_element json_array_element_text json_extract_path json_extract_path_text json_typeof
    jsonb_object_field jsonb_object_field_text jsonb_array_element jsonb_array_element_text
    jsonb_extract_path jsonb_extract_path_text jsonb_typeof jsonb_contains jsonb_contained
    jsonb_exists jsonb_exists_any jsonb_exists_all arraycontains arraycontained arrayoverlap
    array_length array_cardinality array_ndims array_lower array_upper date_timestamp date_mi
    date_finite timestamp_finite interval_finite now statement_timestamp clock_timestamp
    current_database current_schema current_user session_user pg_typeof
    """
)
"""Functions (`Proc.source`) that answer whatever their arguments are, besides comparisons."""
_PATTERNS: Final = words(
    """
    textlike textnlike texticlike texticnlike namelike namenlike nameiclike nameicnlike
    """
)
"""Those whose second argument can be wrong, but not from row to row where it is a constant."""
_TEXTS: Final = frozenset((TEXT, VARCHAR, BPCHAR, NAME))


def total(proc: Proc) -> bool:
    """Whether calls of a function never raise."""
    if proc.kind == "o" and proc.name in comparing.OPERATORS and proc.result == BOOL:
        return True
    return proc.kind in ("a", "w") or proc.source in TOTAL


def raises_itself(expr: Expr) -> bool:
    """Whether this node can raise, its parts left out."""
    match expr:
        case Call(proc=proc, args=(_, Const(value=str(pattern)))) if proc.source in _PATTERNS:
            return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1
        case Call():
            return not total(expr.proc)
        case Cast():
            return expr.how == "text" and expr.oid not in _TEXTS
        case Length():  # a text that is cast is cut
            return not (expr.explicit and expr.oid in (VARCHAR, BPCHAR))
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


def inside(node: Any) -> Iterator[Expr]:
    """All expressions in a tree, those of queries in it too."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, tuple):
            stack.extend(one)
        elif looked_into(one) and not isinstance(one, Proc):
            if isinstance(one, Expr):
                yield one
            stack.extend(value for _, value in parts(one))


def raises(node: Any, hot: Callable[[Column], bool] | None = None) -> bool:
    """Whether computing it can raise. `hot`: columns of which computing the value can raise."""
    return any(
        raises_itself(one) or (hot is not None and isinstance(one, Column) and hot(one))
        for one in inside(node)
    )
