"""How a function of PostgreSQL is declared: the name of its C function (`registry.Proc.source`),
what computes it, and what is special about it. Each module has one table, `FUNCTIONS`. Pure.

A table maps a name to a function of the arguments, none of which is NULL; the words below say
otherwise, and may be combined: `total(nulls(typed(_concat)))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlproxy.pg.style import Style


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a function is called: the types of its arguments and of its result, whether it
    is called VARIADIC, and the session's style.
    """

    types: Sequence[int]
    result: int
    variadic: bool
    style: Style


@dataclass(frozen=True, slots=True)
class Function:
    call: Callable[..., Any]
    typed: bool = False
    with_env: bool = False
    nulls: bool = False
    total: bool = False
    reads: Callable[[str], object] | None = None
    """It raises for its last argument alone, as this does: never where that is a right constant."""


Declared = Callable[..., Any] | Function
OfSite = Callable[[Site], Callable[..., Any]]


def _function(call: Declared) -> Function:
    return call if isinstance(call, Function) else Function(call)


def declared(table: Mapping[str, Declared]) -> dict[str, Function]:
    """A table of functions."""
    return {name: _function(call) for name, call in table.items()}


def typed(call: OfSite) -> Function:
    """Made anew for each place where it is called."""
    return Function(call, typed=True)


def with_env(call: Callable[..., object]) -> Function:
    """It has the Env as its first argument: it asks the session, the clock, or a sequence."""
    return Function(call, with_env=True)


def nulls(call: Declared) -> Function:
    """It is called with NULLs, too."""
    return replace(_function(call), nulls=True)


def total(call: Declared) -> Function:
    """It never raises, whatever its arguments are, so that it may be computed for rows that the
    statement would not have come to. (tests/sqlproxy/front/test_raising.py calls each.)
    """
    return replace(_function(call), total=True)
