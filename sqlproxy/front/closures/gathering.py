"""Tests of one value, or of one row of values, with many that are known, gathered into one test
that hashes them. Pure.

    a = 1 OR a = 2 OR …                          →  a = ANY (ARRAY[1, 2, …])
    (a = 1 AND b = 2) OR (a = 3 AND b = 4) OR …  →  Among: (a, b) IN ((1, 2), (3, 4), …)
    the same with <>, AND for OR                 →  <> ALL, NOT IN

A comparison of rows is bound as the second form, each part with the operator that its two types
have: rows whose parts have other operators are another set. Only who computes gathers; whoever
looks for spans of a key sees what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlproxy.front.bound.exprs import (
    Among,
    AnyAll,
    ArrayExpr,
    Call,
    CaseValue,
    Cast,
    Column,
    Const,
    Expr,
    Logic,
    Param,
    walk,
)
from sqlproxy.front.closures.raising import raises
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.types import comparing
from sqlproxy.front.types.registry import array_of
from sqlproxy.pg import oids

GATHERED_MIN: Final = 8  # fewer are tested as quickly one after the other
_Row = tuple[Call, ...]


def gathered(expr: Logic, fold: Callable[[Expr], Expr]) -> Expr:
    """The same with each large set as one test, where its first member stood. `fold`: the constant
    that an expression is.
    """
    if expr.op == "not" or len(expr.args) < GATHERED_MIN:
        return expr
    operator, inner = ("=", "and") if expr.op == "or" else ("<>", "or")
    sets: dict[object, list[_Row]] = {}
    placed: list[Any] = []  # an argument as it is, or the key of the set that it belongs to
    for arg in expr.args:
        row = _row(arg, operator, inner, fold)
        if row is None:
            placed.append(arg)
            continue
        key = tuple((one.args[0], one.args[1].oid, one.proc.source) for one in row)
        try:
            known = sets.setdefault(key, [])
        except TypeError:  # a constant inside has no hash
            placed.append(arg)
            continue
        if not known:
            placed.append(known)
        known.append(row)
    args: list[Expr] = []
    for one in placed:
        if not isinstance(one, list):
            args.append(one)
        elif len(one) < GATHERED_MIN:
            args += [row[0] if len(row) == 1 else Logic(op=inner, args=row) for row in one]
        else:
            args.append(_set(one, operator))
    return args[0] if len(args) == 1 else Logic(op=expr.op, args=tuple(args), pos=expr.pos)


def _row(arg: Expr, operator: str, inner: str, fold: Callable[[Expr], Expr]) -> _Row | None:
    """The comparisons that an argument consists of, the right sides folded; None: it is another
    thing.
    """
    parts = arg.args if isinstance(arg, Logic) and arg.op == inner else (arg,)
    found = []
    for part in parts:
        if not (isinstance(part, Call) and part.operator == operator and compared_by_key(part)):
            return None
        left, right = part.args
        if not isinstance(right, Const | Param):
            right = fold(right)
        if not _known(right) or not array_of(right.oid) or not _may_move(left, len(parts) > 1):
            return None
        found.append(
            Call(oid=oids.BOOL, proc=part.proc, args=(left, right), operator=operator, pos=part.pos)
        )
    return tuple(found)


def _set(rows: list[_Row], operator: str) -> Expr:
    first, every = rows[0], operator == "<>"
    if len(first) > 1:
        return Among(
            left=tuple(one.args[0] for one in first),
            columns=tuple(_array([row[at].args[1] for row in rows]) for at in range(len(first))),
            negated=every,
            pos=first[0].pos,
        )
    (test,) = first
    left, right = test.args
    array = _array([row[0].args[1] for row in rows])
    asked = Call(
        oid=oids.BOOL, proc=test.proc, args=(left, CaseValue(oid=right.oid)), operator=operator
    )
    return AnyAll(left=left, array=array, test=asked, all=every, pos=test.pos)


def _array(values: list[Expr]) -> Expr:
    return ArrayExpr(oid=array_of(values[0].oid), args=tuple(values))


def _known(expr: Expr) -> bool:
    """Whether it is one value in a run of a statement, and is computed without an error."""
    if isinstance(expr, Const | Param):
        return True
    return all(
        isinstance(one, Const | Param | Cast)
        or (isinstance(one, Call) and one.proc.volatile != "v" and not one.proc.returns_set)
        for one in walk(expr)
    ) and not raises(expr)


def _may_move(expr: Expr, of_row: bool) -> bool:
    """Whether it may be computed once instead of often; `of_row`: and before the parts of the row
    before it, which spare it if they differ.
    """
    if isinstance(expr, Column):
        return True
    return not (of_row and raises(expr)) and not any(
        isinstance(one, Call) and one.proc.volatile == "v" for one in walk(expr)
    )


def compared_by_key(test: Call) -> bool:
    """Whether it is one of the comparisons of `comparing`."""
    proc, (left, right) = test.proc, (arg.oid for arg in test.args)
    return (
        proc.kind == "o"
        and proc.name == test.operator
        and proc.name in comparing.OPERATORS
        and not ((known := FUNCTIONS.get(proc.source)) and (known.typed or known.with_env))
        and (comparing.zoned(left, right) or comparing.test(proc.name, left, right) is not None)
    )
