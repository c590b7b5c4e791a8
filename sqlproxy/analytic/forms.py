"""Values of PostgreSQL's types in DuckDB (`held`) and Arrow, from and to user form. Pure.

numeric(p,s), p ≤ 38     DECIMAL(p,s): the scale is the type's, as PostgreSQL shows it
other numeric            VARCHAR: PostgreSQL's text, since each value has its own scale
timestamptz              TIMESTAMP in UTC
oid, regproc, …          BIGINT; regclass and regtype VARCHAR: they are held as names
char(n), json, jsonb     VARCHAR
enum                     BIGINT: its position, which orders as its label does
T[]                      T[], one dimension
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID as Uuid

import pyarrow as pa
import pyarrow.compute as pc

from sqlproxy.duck import ducktext as d
from sqlproxy.duck.ducktext import Text
from sqlproxy.front.functions.object_names import HELD_AS_OIDS
from sqlproxy.front.types import registry as r
from sqlproxy.pg import oids
from sqlproxy.values import enums
from sqlproxy.values.errors import unsupported
from sqlproxy.values.interval import Interval

TEXT: Final = "VARCHAR"
_TEXTS: Final = (oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.NAME, oids.CHAR, oids.UNKNOWN)
_HELD_AS: Final = {
    "BOOLEAN": (oids.BOOL,),
    "SMALLINT": (oids.INT2,),
    "INTEGER": (oids.INT4,),
    "BIGINT": (oids.INT8, oids.OID, oids.TID, oids.XID, oids.XID8, oids.CID, *HELD_AS_OIDS),
    "FLOAT": (oids.FLOAT4,),
    "DOUBLE": (oids.FLOAT8,),
    TEXT: (
        *_TEXTS,
        oids.JSON,
        oids.JSONB,
        oids.JSONPATH,
        oids.NUMERIC,
        *oids.OF_CATALOG,
        oids.UUID,
        oids.REGTYPE,
        oids.REGCLASS,
        oids.VOID,
        oids.RECORD,
    ),
    "BLOB": (oids.BYTEA,),
    "DATE": (oids.DATE,),
    "TIME": (oids.TIME,),
    "TIMESTAMP": (oids.TIMESTAMP, oids.TIMESTAMPTZ),
    "INTERVAL": (oids.INTERVAL,),
}
_HELD: Final = {oid: held for held, types in _HELD_AS.items() for oid in types}
_ARROW: Final = {
    "BOOLEAN": pa.bool_(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    TEXT: pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "INTERVAL": pa.month_day_nano_interval(),
}
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
DIGITS_MAX: Final = 38  # of DuckDB's DECIMAL
_IN_LIST: Final = 48  # bytes that Python needs for a value in a list, besides those that Arrow has


def decimal(digits: int, scale: int) -> str:
    return f"DECIMAL({digits},{scale})"


def decimal_of(held: str) -> tuple[int, int] | None:
    """Digits and scale of a DECIMAL; None: it is none."""
    found = _DECIMAL.fullmatch(held)
    return (int(found[1]), int(found[2])) if found else None


def held(oid: int, typmod: int = -1) -> str:
    """The DuckDB type for values of a type. Raises 0A000."""
    if element := r.element_of(oid):
        return held(element) + "[]"
    if oid == oids.NUMERIC and typmod >= 0:
        digits, scale = (typmod - 4) >> 16, r.scale_of(typmod)
        if 0 <= scale <= digits <= DIGITS_MAX:
            return decimal(digits, scale)
    found = "BIGINT" if enums.is_enum(oid) else _HELD.get(oid)
    if found is None:
        raise unsupported(f"a value of type {r.format_type(oid)} in a join or an aggregate")
    return found


def arrow(held_as: str) -> pa.DataType:
    """The Arrow type of a DuckDB type."""
    if held_as.endswith("[]"):
        return pa.list_(arrow(held_as[:-2]))
    if (parts := decimal_of(held_as)) is not None:
        return pa.decimal128(*parts)
    return _ARROW[held_as]


# -- Arrow → user form


def reader(oid: int, held_as: str) -> Callable[[Any], object] | None:
    """What makes one value as `to_pylist` gives it a user's; None: it is one already."""
    if element := r.element_of(oid):
        inner = reader(_within(oid, element, held_as), held_as[:-2])
        if inner is None:
            return None
        return lambda value: [None if one is None else inner(one) for one in value]
    if (enum := enums.of(oid)) is not None:
        return enum.labels.__getitem__
    match oid:
        case oids.UUID:
            return Uuid
        case oids.TIMESTAMPTZ:
            return lambda value: value.replace(tzinfo=UTC)
        case oids.INTERVAL:
            return lambda value: Interval(value[0], value[1], value[2] // 1_000)
        case oids.NUMERIC:
            return None if held_as != TEXT else Decimal
        case _:
            return None


def weight(array: pa.Array) -> int:
    """Bytes of its values as `users` makes them, about: rows are few, what is in lists may be
    millions.
    """
    size: int = array.nbytes
    while pa.types.is_list(array.type):
        array = pc.list_flatten(array)  # a column may come in chunks
        size += _IN_LIST * len(array)
    return size


def users(array: pa.Array, oid: int, held_as: str) -> list[object]:
    """A column in user form."""
    values: list[object] = array.to_pylist()
    read = reader(oid, held_as)
    if read is None:
        return values
    return [None if value is None else read(value) for value in values]


def _within(oid: int, element: int, held_as: str) -> int:
    """The type of what a list has: of one of lists the array's own, which has no other name."""
    return oid if held_as.endswith("[][]") else element


# -- user form → Arrow


def _writer(oid: int, held_as: str) -> Callable[[Any], object] | None:
    if element := r.element_of(oid):
        within = _within(oid, element, held_as)
        inner = _writer(within, held_as[:-2])

        def each(value: Any) -> object:
            if within == element and any(isinstance(one, list) for one in value):
                raise unsupported("an array of several dimensions in a join or an aggregate")
            if inner is None:
                return value
            return [None if one is None else inner(one) for one in value]

        return each
    if (enum := enums.of(oid)) is not None:
        return enum.position
    match oid:
        case oids.UUID:
            return str
        case oids.TIMESTAMPTZ:
            return lambda value: value.astimezone(UTC).replace(tzinfo=None)
        case oids.INTERVAL:
            return lambda value: (value.months, value.days, value.us * 1_000)
        case oids.NUMERIC if held_as == TEXT:
            return lambda value: format(value, "f")
        case oids.NUMERIC:
            return _finite
        case _:
            return None


def _finite(value: object) -> object:
    if isinstance(value, Decimal) and value.is_nan():
        raise unsupported("NaN in a column of type numeric(p,s) in a join or an aggregate")
    return value


def array_of(values: Sequence[object], oid: int, held_as: str) -> pa.Array:
    """Values in user form as a column. Raises SqlError (0A000): one cannot be held."""
    write = _writer(oid, held_as)
    if write is not None:
        values = [None if value is None else write(value) for value in values]
    try:
        return pa.array(values, arrow(held_as))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise unsupported(
            f"this value of type {r.format_type(oid)} in a join or an aggregate ({error})"
        ) from error


# -- literals


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _float(value: float) -> str:
    if not value and math.copysign(1.0, value) < 0:
        # DuckDB takes 0.0 and -0.0 for one constant, unless it does not know it
        return "(- (random() * 0.0))"
    return quoted(repr(value))


def literal(value: Any, oid: int) -> tuple[Text, str]:
    """A value in user form as DuckDB SQL, and how it is held. Raises SqlError (0A000)."""
    if value is None:
        kind = held(oid)
        return d.null(kind), kind
    if oid == oids.NUMERIC and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        count = max(len(digits) + max(0, int(exponent)), scale, 1)
        if count <= DIGITS_MAX:
            kind = decimal(count, scale)
            return d.cast(f"'{value:f}'", kind), kind
    kind = held(oid)
    return d.cast(_written(value, oid), kind), kind


def _written(value: Any, oid: int) -> str:
    if element := r.element_of(oid):
        if any(isinstance(one, list) for one in value):
            raise unsupported("an array of several dimensions in a join or an aggregate")
        kind = held(element)
        parts = [
            "NULL" if one is None else f"CAST({_written(one, element)} AS {kind})" for one in value
        ]
        return "[" + ", ".join(parts) + "]"
    if (enum := enums.of(oid)) is not None:
        return f"({enum.position(value)})"
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"({value})"
        case float():
            return _float(value)
        case bytes():
            return f"unhex('{value.hex()}')"
        case Interval():
            return (
                f"(to_months(CAST({value.months} AS INTEGER)) + to_days(CAST({value.days} AS "
                f"INTEGER)) + to_microseconds(CAST({value.us} AS BIGINT)))"
            )
        case datetime():
            naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return quoted(naive.isoformat(sep=" "))
        case date() | time():
            return quoted(value.isoformat())
        case Decimal():
            return quoted(format(value, "f"))
        case _:
            return quoted(str(value))
