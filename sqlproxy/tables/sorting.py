"""ORDER BY in memory: a row → bytes that sort as PostgreSQL orders the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Order
from sqlproxy.front.closures.compiling import compile
from sqlproxy.pg.oids import TID, canonical
from sqlproxy.rows import keys
from sqlproxy.tables.rules import Row
from sqlproxy.values.types import Type, resolve


def sortable(order: Sequence[Order]) -> bool:
    """Whether keys have an order for these types."""
    return not any(keys.unordered(_kind(one.expr.oid)) for one in order)


def _kind(oid: int) -> Type:
    return resolve("int8" if oid == TID else canonical(oid))


def sort_key(order: Sequence[Order]) -> Callable[[Row, Env], bytes]:
    """NULLs and directions included."""
    parts = []
    for one in order:
        kind = _kind(one.expr.oid)
        encode = keys.component(kind, descending=one.descending, nulls_first=one.nulls_first)
        parts.append((compile(one.expr).fn, kind.to_stored, encode))

    def key(row: Row, env: Env) -> bytes:
        found = []
        for fn, to_stored, encode in parts:
            value = fn(row, env)
            found.append(encode(None if value is None else to_stored(value)))
        return b"".join(found)

    return key
