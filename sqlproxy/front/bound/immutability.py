"""Whether an expression says the same of the same values for ever, as indexes need. Pure."""

from __future__ import annotations

from typing import Final

from sqlproxy.front.bound.exprs import Call, Cast, Expr, Named, Param, walk
from sqlproxy.front.types.registry import (
    BOOL,
    BPCHAR,
    BYTEA,
    CHAR,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    JSON,
    JSONB,
    NAME,
    NUMERIC,
    OID,
    TEXT,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    element_of,
)

_NUMBERS: Final = frozenset((INT2, INT4, INT8, FLOAT4, FLOAT8, NUMERIC, OID))
_TEXTS: Final = frozenset((TEXT, VARCHAR, BPCHAR, CHAR, NAME, JSON, JSONB))
_FREE: Final = _NUMBERS | _TEXTS | {BOOL, BYTEA, UUID}
"""Types whose text depends on no setting, and on nothing that may be changed (labels)."""


def immutable(expr: Expr) -> bool:
    """Functions that are marked so, and casts by text between types that no setting decides."""
    for one in walk(expr):
        match one:
            case Call(proc=proc) if proc.volatile != "i" or _converts_zoned(one):
                return False
            case Cast(how="text", arg=arg) if not {arg.oid, one.oid} <= _FREE:
                return False
            case Cast(how="array", arg=arg) if (
                not {element_of(arg.oid), element_of(one.oid)} <= _FREE
            ):
                return False
            case Named() | Param():
                return False
            case _:
                pass
    return True


def _converts_zoned(call: Call) -> bool:
    """Whether it is a cast between timestamptz and another type."""
    return bool(call.cast) and (call.oid == TIMESTAMPTZ) is not (call.args[0].oid == TIMESTAMPTZ)


def of_zone(expr: Expr) -> bool:
    """Whether it may say something else in another time zone of the session."""
    for one in walk(expr):
        match one:
            case Call(proc=proc, args=args):
                zoned = TIMESTAMPTZ in (one.oid, *(part.oid for part in args))
                if _converts_zoned(one) or (zoned and proc.volatile == "s"):
                    return True
            case Cast(how="text", arg=arg):
                if TIMESTAMPTZ in (element_of(arg.oid) or arg.oid, element_of(one.oid) or one.oid):
                    return True
            case Named():
                return True
            case _:
                pass
    return False
