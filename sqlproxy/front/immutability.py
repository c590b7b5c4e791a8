"""Whether an expression says the same of the same values for ever, as indexes need. Pure."""

from __future__ import annotations

from typing import Final

from sqlproxy.front.exprs import Call, Cast, Expr, Named, Param, walk
from sqlproxy.front.registry import BOOL, FLOAT4, FLOAT8, INT2, INT4, INT8, TEXT, VARCHAR

_FREE: Final = frozenset((BOOL, INT2, INT4, INT8, FLOAT4, FLOAT8, TEXT, VARCHAR, 1700, 1042, 2950))
"""Types whose text depends on no setting, and on nothing that may be changed (labels)."""


def immutable(expr: Expr) -> bool:
    """Functions that are marked so, and casts by text between types that no setting decides."""
    for one in walk(expr):
        match one:
            case Call(proc=proc) if proc.volatile != "i":
                return False
            case Cast(how="text" | "array", arg=arg) if not {arg.oid, one.oid} <= _FREE:
                return False
            case Named() | Param():
                return False
            case _:
                pass
    return True
