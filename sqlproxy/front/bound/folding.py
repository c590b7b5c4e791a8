"""Bound expressions taken apart and rebuilt. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from sqlproxy.front.bound.exprs import (
    Aggregate,
    AnyAll,
    Call,
    Case,
    CaseValue,
    Cast,
    Column,
    Const,
    Expr,
    Grouping,
    Named,
    Order,
    Param,
    Window,
    WindowSpec,
    children,
    walk,
)
from sqlproxy.front.bound.statements import SubQuery

_LEAVES: Final = (Const, Column, Param, Named, CaseValue)


def rebuilt(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with every part that `change` answers for replaced, outermost first."""
    found = change(expr)
    if found is not None:
        return found
    if isinstance(expr, _LEAVES):
        return expr
    parts: dict[str, Any] = {}
    for one in fields(expr):
        value = getattr(expr, one.name)
        new = _inside(value, change)
        if new is not value:
            parts[one.name] = new
    return replace(expr, **parts) if parts else expr


def _inside(value: object, change: Callable[[Expr], Expr | None]) -> Any:
    if isinstance(value, Expr):
        return rebuilt(value, change)
    if isinstance(value, tuple) and value:
        new = tuple(_inside(one, change) for one in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    if isinstance(value, Order):
        return replace(value, expr=rebuilt(value.expr, change))
    if isinstance(value, WindowSpec):
        return replace(
            value,
            partition=_inside(value.partition, change),
            order=_inside(value.order, change),
        )
    return value


def opaque(expr: Expr) -> bool:
    """Whether no closure can compute it: it needs more than a row."""
    return isinstance(expr, Column | Aggregate | Window | SubQuery | Grouping) or (
        isinstance(expr, Call) and expr.proc.returns_set
    )


def of_subject(expr: Expr) -> bool:
    """Whether it needs the value (CaseValue) that a CASE, an ANY or a cast around it gives."""
    stack = [expr]
    while stack:
        match one := stack.pop():
            case CaseValue():
                return True
            case AnyAll():
                stack += (one.left, one.array)
            case Cast(how="array"):
                stack.append(one.arg)
            case Case(arg=Expr() as arg):
                results = (result for _, result in one.whens)
                stack += (arg, *results, *(() if one.default is None else (one.default,)))
            case _:
                stack += children(one)
    return False


def volatile(expr: Expr) -> bool:
    return any(isinstance(one, Call) and one.proc.volatile == "v" for one in walk(expr))
