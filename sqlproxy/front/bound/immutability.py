"""Whether an expression says the same of the same values for ever, as indexes need. Pure."""

from __future__ import annotations

from typing import Final

from sqlproxy.front.bound.exprs import Call, Cast, Expr, Named, Param, walk
from sqlproxy.front.types.registry import element_of
from sqlproxy.pg import oids

_NUMBERS: Final = frozenset(
    (oids.INT2, oids.INT4, oids.INT8, oids.FLOAT4, oids.FLOAT8, oids.NUMERIC, oids.OID)
)
_TEXTS: Final = frozenset(
    (oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.CHAR, oids.NAME, oids.JSON, oids.JSONB)
)
_FREE: Final = _NUMBERS | _TEXTS | {oids.BOOL, oids.BYTEA, oids.UUID}
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
    return bool(call.cast) and (call.oid == oids.TIMESTAMPTZ) is not (
        call.args[0].oid == oids.TIMESTAMPTZ
    )


def of_zone(expr: Expr) -> bool:
    """Whether it may say something else in another time zone of the session."""
    for one in walk(expr):
        match one:
            case Call(proc=proc, args=args):
                zoned = oids.TIMESTAMPTZ in (one.oid, *(part.oid for part in args))
                if _converts_zoned(one) or (zoned and proc.volatile == "s"):
                    return True
            case Cast(how="text", arg=arg):
                if oids.TIMESTAMPTZ in (
                    element_of(arg.oid) or arg.oid,
                    element_of(one.oid) or one.oid,
                ):
                    return True
            case Named():
                return True
            case _:
                pass
    return False
