"""Comparisons by type: = <> < <= > >= as PostgreSQL orders values (NaN equals NaN and is greatest;
text by bytes).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from sqlproxy.front.types.registry import element_of
from sqlproxy.pg import oids
from sqlproxy.pg.datetimes import at_zone
from sqlproxy.values import enums, jsonb
from sqlproxy.values.breaks import pause, paused

Test = Callable[[Any, Any], bool]
PLAIN: Final[dict[str, Test]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS: Final = frozenset(PLAIN)
_NATIVE: Final = frozenset(
    (
        *(
            oids.BOOL,
            oids.BYTEA,
            oids.CHAR,
            oids.INT2,
            oids.INT4,
            oids.INT8,
            oids.INTERVAL,
            oids.NAME,
            oids.OID,
            oids.TEXT,
            oids.TIME,
            oids.UUID,
            oids.VARCHAR,
        ),
        *(oids.CID, oids.TID, oids.XID),
    )
)
_PIECE: Final = 1 << 12  # keys of elements that are compared at once
_FLOATS: Final = frozenset((oids.FLOAT4, oids.FLOAT8))
_STRINGS: Final = frozenset((oids.TEXT, oids.VARCHAR, oids.NAME, oids.CHAR))


@lru_cache(maxsize=1_024)
def test(name: str, left: int, right: int) -> Test | None:
    """What tests `left name right`; None: PostgreSQL has no such comparison, or only with a time
    zone.
    """
    plain = PLAIN[name]
    both = {left, right}
    if left in _NATIVE and right in _NATIVE:
        return plain
    if both <= _FLOATS:
        return _by_key(plain, float_key)
    if both == {oids.NUMERIC}:
        return _numeric(name)
    if both == {oids.BPCHAR}:
        return _by_key(plain, _unpadded)
    if both == {oids.JSONB}:
        return _by_key(plain, json_key)
    if left == right and left in (oids.DATE, oids.TIMESTAMP, oids.TIMESTAMPTZ):
        return plain
    if both == {oids.DATE, oids.TIMESTAMP}:
        return _by_key(plain, _midnight)
    if left == right and (enum := enums.of(left)) is not None:
        return plain if name in ("=", "<>") else _by_key(plain, enum.position)
    if left == right and (element := element_of(left)):
        key = key_of(element)
        return _by_key(plain, lambda value: array_key(value, key))
    return None


def zoned(left: int, right: int) -> bool:
    """Whether the comparison depends on the session's time zone."""
    return (
        oids.TIMESTAMPTZ in (left, right)
        and left != right
        and {left, right} <= {oids.DATE, oids.TIMESTAMP, oids.TIMESTAMPTZ}
    )


def zoned_test(name: str) -> Callable[[object, object, object], bool]:
    """With the zone as the third argument."""
    plain = PLAIN[name]

    def compare(a: object, b: object, zone: object) -> bool:
        return plain(_aware(a, zone), _aware(b, zone))

    return compare


def _aware(value: Any, zone: Any) -> datetime:
    moment = _midnight(value)
    return moment if moment.tzinfo is not None else at_zone(moment, zone)


def _by_key(plain: Test, key: Callable[[Any], object]) -> Test:
    return lambda a, b: plain(key(a), key(b))


def _numeric(name: str) -> Test:
    plain = PLAIN[name]

    def compare(a: Decimal, b: Decimal) -> bool:
        if a.is_nan() or b.is_nan():
            return plain(a.is_nan(), b.is_nan())
        return plain(a, b)

    return compare


def float_key(value: float) -> tuple[bool, float]:
    return (True, 0.0) if value != value else (False, value)


def _unpadded(value: str) -> str:
    return value.rstrip(" ")


def _midnight(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime.combine(value, time())


def numeric_key(value: Decimal) -> tuple[bool, Decimal]:
    return (True, Decimal(0)) if value.is_nan() else (False, value)


class _Piece(tuple[object, ...]):
    """Some keys of a long array."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        pause()
        return tuple.__eq__(self, other)

    __hash__ = tuple.__hash__


def _in_pieces(keys: list[Any]) -> tuple[tuple[object, ...], ...]:
    """Keys that are compared with breaks between, in the same order as all of them together."""
    rest = range(_PIECE, len(keys), _PIECE)
    return (tuple(keys[:_PIECE]), *[_Piece(keys[at : at + _PIECE]) for at in rest])


def array_key(value: list[Any], key: Callable[[object], object]) -> tuple[Any, ...]:
    """By elements, NULL last; then by count, then by dimensions (array_cmp)."""
    flat: list[object] = []
    dimensions: list[int] = []

    def walk(part: list[object], depth: int) -> None:
        if len(dimensions) == depth:
            dimensions.append(len(part))
        for one in paused(part):
            if isinstance(one, list):
                walk(one, depth + 1)
            else:
                flat.append((1, 0) if one is None else (0, key(one)))

    walk(value, 0)
    return (_in_pieces(flat), len(flat), len(dimensions), tuple(dimensions))


def key_of(oid: int) -> Callable[[Any], Any]:
    """Values sort by this as the type's btree does."""
    if oid in _FLOATS:
        return float_key
    if oid == oids.NUMERIC:
        return numeric_key
    if oid == oids.BPCHAR:
        return _unpadded
    if oid == oids.JSONB:
        return json_key
    if (enum := enums.of(oid)) is not None:
        return enum.position
    if element := element_of(oid):
        inner = key_of(element)
        return lambda value: array_key(value, inner)
    return _same


def _same(value: object) -> object:
    return value


def common_key(left: int, right: int, zone: object) -> Callable[[Any], object] | None:
    """What compares, and hashes, as values of both types do; None: the values themselves. Only of
    types that `test` or `zoned` knows.
    """
    if zoned(left, right):
        return lambda value: _aware(value, zone)
    if {left, right} == {oids.DATE, oids.TIMESTAMP}:
        return _midnight
    found = key_of(left)
    return None if found is _same else found


def json_key(text: str) -> object:
    """jsonb's order: null < string < number < false < true < array < object, by length first."""
    return _json_key(jsonb.parse(text))


def _json_key(value: object) -> object:
    match value:
        case None:
            return (0,)
        case bool():
            return (3, value)
        case str():
            return (1, value)
        case Decimal():
            return (2, value)
        case list():
            # An empty array is less than null: so PostgreSQL does, for ever since.
            if not value:
                return (-1,)
            return (4, len(value), _in_pieces([_json_key(v) for v in paused(value)]))
        case dict():
            pairs = [((len(k.encode()), k), _json_key(v)) for k, v in paused(value.items())]
            return (5, len(pairs), _in_pieces(pairs))
        case _:
            raise AssertionError(f"no JSON value: {type(value)}")
