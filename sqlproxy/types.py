"""The column types: their names, what a user may put in, what is stored, and what comes out.

Three forms of a value: what users hold (Python objects), what a row stores (plain msgpack), and the
bytes inside a key (`sqlproxy.keys`). NULL is None in the first two.

    type              user                    stored                      Arrow
    bool              bool                    bool                        bool
    int2 int4 int8    int                     int                         int16 int32 int64
    float4 float8     float, int              float (float4: rounded)     float double
    numeric(p,s)      Decimal, int            text, e.g. "1.50"           decimal128(p, s)
    numeric           Decimal, int            the same, any scale         decimal128(38, 18)
    text              str                     text                        string
    bytea             bytes                   bytes                       binary
    uuid              UUID, its text          16 bytes                    string
    date              date                    days since 1970-01-01       date32
    time              time without zone       µs since midnight           time64(us)
    timestamp         datetime without zone   µs since 1970, as if UTC    timestamp(us)
    timestamptz       datetime with zone      µs since 1970 UTC           timestamp(us, UTC)
    json              text of a JSON value    the same text               string

SQL's other names of these types are accepted (`bigint`, `varchar`, …) and stored as the ones above.
Deliberately missing: arrays, intervals, infinite dates, lengths of varchar (they come with SQL).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from kv.base.errors import InvalidArgument

NUMERIC_PRECISION_MAX: Final = 1_000
NUMERIC_EXPONENT_MAX: Final = 16_383  # of 10, either side of the point
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without zone is meant
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FLOAT4 = struct.Struct(">f")

ALIASES: Final = {
    "boolean": "bool",
    "smallint": "int2",
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double": "float8",
    "double precision": "float8",
    "float": "float8",
    "decimal": "numeric",
    "string": "text",
    "varchar": "text",
    "character varying": "text",
    "bytes": "bytea",
    "binary": "bytea",
    "blob": "bytea",
    "jsonb": "json",
    "time without time zone": "time",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}
_NUMERIC = re.compile(r"numeric\((\d+)(?:,(\d+))?\)")
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Type:
    """`to_stored` checks a user's value and raises ValueError with the reason; None is not passed
    to either.
    """

    name: str
    base: str  # the name without precision: what decides about codecs
    to_stored: Convert
    from_stored: Convert | None  # None: the stored form is the user's
    precision: int = 0  # of numeric(p,s); 0 = any
    scale: int = 0


def canonical(name: str) -> str:
    """The stored name of a type as users write it. Raises InvalidArgument for an unknown one."""
    return resolve(name).name


@lru_cache(maxsize=256)
def resolve(name: str) -> Type:
    """The type behind a name. Raises InvalidArgument with all names."""
    text = " ".join(name.lower().split()).replace(" (", "(").replace(", ", ",")
    head, paren, rest = text.partition("(")
    text = ALIASES.get(head, head) + paren + rest
    if found := _NUMERIC.fullmatch(text):
        precision, scale = int(found[1]), int(found[2] or 0)
        if not (1 <= precision <= NUMERIC_PRECISION_MAX and scale <= precision):
            raise InvalidArgument(
                f"type {name}: the precision must be 1 to {NUMERIC_PRECISION_MAX} and the scale "
                "at most the precision",
                details={"type": name},
            )
        check = _numeric_in(precision, scale)
        return Type(f"numeric({precision},{scale})", "numeric", check, Decimal, precision, scale)
    if text not in _CONVERTERS:
        raise InvalidArgument(
            f"unknown column type {name!r}; there are {', '.join(_CONVERTERS)}, numeric(p,s)",
            details={"type": name, "known": list(_CONVERTERS)},
        )
    to_stored, from_stored = _CONVERTERS[text]
    return Type(text, text, to_stored, from_stored)


# -- into a row; each raises ValueError (or TypeError) that says what would be right


def _expected(what: str, value: object) -> ValueError:
    return ValueError(f"expected {what}, got {type(value).__name__} {value!r:.80}")


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise _expected("a bool", value)


def _int(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise _expected(f"an integer from {low} to {high}", value)

    return check


def _float8(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise _expected("a number", value)


def _float4(value: Any) -> float:
    try:
        rounded: float = _FLOAT4.unpack(_FLOAT4.pack(_float8(value)))[0]
    except OverflowError:
        raise _expected("a number below 3.5e38", value) from None
    return rounded


def _decimal(value: Any) -> Decimal:
    if type(value) is Decimal:
        if not value.is_snan() and (
            not value.is_finite() or abs(value.adjusted()) <= NUMERIC_EXPONENT_MAX
        ):
            return value
    elif type(value) is int and value.bit_length() < 3 * NUMERIC_EXPONENT_MAX:
        return Decimal(value)
    raise _expected(f"a Decimal within 10^±{NUMERIC_EXPONENT_MAX} or an int", value)


def _numeric_any(value: Any) -> str:
    return str(_decimal(value))


def _numeric_in(precision: int, scale: int) -> Convert:
    """Rounds to the scale, half away from zero, as PostgreSQL does; refuses what then is too
    long.
    """
    context = Context(prec=NUMERIC_EXPONENT_MAX * 2, rounding=ROUND_HALF_UP)
    step = Decimal(1).scaleb(-scale)

    def check(value: Any) -> str:
        given = _decimal(value)
        if given.is_nan():
            return "NaN"
        if given.is_finite():
            rounded = given.quantize(step, context=context)
            if not rounded or rounded.adjusted() + 1 + scale <= precision:
                return format(rounded, "f")
        raise _expected(f"at most {precision - scale} digits before the point", value)

    return check


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _expected("a str", value)
    value.encode()  # lone surrogates have no UTF-8: UnicodeEncodeError is a ValueError
    return value


def _json(value: Any) -> str:
    text = _text(value)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected the text of a JSON value: {error}") from None
    return text


def _bytea(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _expected("bytes", value)


def _uuid(value: Any) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    if type(value) is str:
        return UUID(value).bytes
    raise _expected("a UUID or its text", value)


def _date(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY
    raise _expected("a date", value)


def _time(value: Any) -> int:
    if isinstance(value, time) and value.tzinfo is None:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000 + value.microsecond
    raise _expected("a time without zone", value)


def _timestamp(value: Any) -> int:
    if isinstance(value, datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    raise _expected("a datetime without zone", value)


def _timestamptz(value: Any) -> int:
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return (value - _EPOCH_UTC) // _MICROSECOND
    raise _expected("a datetime with a zone", value)


# -- and out of it


def _date_out(days: int) -> date:
    return date.fromordinal(days + _EPOCH_DAY)


def _time_out(us: int) -> time:
    return (_EPOCH + timedelta(microseconds=us)).time()


def _timestamp_out(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _timestamptz_out(us: int) -> datetime:
    return _EPOCH_UTC + timedelta(microseconds=us)


def _uuid_out(raw: bytes) -> UUID:
    return UUID(bytes=raw)


_CONVERTERS: Final[dict[str, tuple[Convert, Convert | None]]] = {
    "bool": (_bool, None),
    "int2": (_int(16), None),
    "int4": (_int(32), None),
    "int8": (_int(64), None),
    "float4": (_float4, None),
    "float8": (_float8, None),
    "numeric": (_numeric_any, Decimal),
    "text": (_text, None),
    "bytea": (_bytea, None),
    "uuid": (_uuid, _uuid_out),
    "date": (_date, _date_out),
    "time": (_time, _time_out),
    "timestamp": (_timestamp, _timestamp_out),
    "timestamptz": (_timestamptz, _timestamptz_out),
    "json": (_json, None),
}
NAMES: Final = tuple(_CONVERTERS)
