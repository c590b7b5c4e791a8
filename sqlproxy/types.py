"""The column types: their names, what a user may put in, what is stored, and what comes out.

Three forms of a value: what users hold (Python objects), what a row stores (plain msgpack), and the
bytes inside a key (`sqlproxy.keys`). NULL is None in the first two.

    type              user                    stored                      Arrow
    bool              bool                    bool                        bool
    int2 int4 int8    int                     int                         int16 int32 int64
    oid               int                     int                         int64
    float4 float8     float, int              float (float4: rounded)     float double
    numeric(p,s)      Decimal, int            text, e.g. "1.50"           decimal128(p, s)
    numeric           Decimal, int            the same, any scale         decimal128(38, 18)
    text varchar      str                     text                        string
    varchar(n)        str of n characters     text                        string
    char(n)           str, blanks up to n     text without those blanks   string (with blanks)
    bpchar            str                     text                        string
    name              str of 63 bytes         text                        string
    bytea             bytes                   bytes                       binary
    uuid              UUID, its text          16 bytes                    string
    date              date                    days since 1970-01-01       date32
    time              time without zone       µs since midnight           time64(us)
    timestamp         datetime without zone   µs since 1970, as if UTC    timestamp(us)
    timestamptz       datetime with zone      µs since 1970 UTC           timestamp(us, UTC)
    interval          Interval                16 bytes: i32 months, i32   month_day_nano
                                              days, i64 µs, big-endian
    json              text of a JSON value    the same text               string
    jsonb             text of a JSON value    PostgreSQL's text of it     string
    T[]               list (of lists), None   list of stored forms        list(T), one dimension
                      for NULL elements

Times may have a precision, as in `timestamp(3)`: they are rounded to so many digits. SQL's other
names of these types are accepted (`bigint`, `character varying(5)`, `int[3]`, …) and stored as the
ones above; `serial` and its like are the front end's.

What a column's length or precision does to a value: `assign` (INSERT, UPDATE: refuses what is cut)
and `cast` (`::varchar(3)`: cuts). Both raise `DoesNotFit`, an SqlError with PostgreSQL's SQLSTATE.

Deliberately missing: infinite dates and times (0A000), times with a zone, money, bit strings,
geometry, ranges, composite and enumerated types.
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
from sqlproxy import arrays, jsonb
from sqlproxy.errors import DATETIME_OVERFLOW, OUT_OF_RANGE, STRING_TOO_LONG, SqlError
from sqlproxy.interval import Interval as Interval

NUMERIC_PRECISION_MAX: Final = 1_000
NUMERIC_EXPONENT_MAX: Final = jsonb.EXPONENT_MAX  # of 10, either side of the point
LENGTH_MAX: Final = 10_485_760  # of varchar(n) and char(n)
NAME_BYTES_MAX: Final = 63  # of an identifier; a longer one is cut
TIME_DIGITS_MAX: Final = 6
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without zone is meant
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FLOAT4 = struct.Struct(">f")
INTERVAL: Final = struct.Struct(">iiq")  # its stored form
_US_2000: Final = (datetime(2000, 1, 1) - _EPOCH) // _MICROSECOND  # noqa: DTZ001
_LAST_US: Final = 86_400_000_000 - 1
_ROUNDED: Final = frozenset({"time", "timestamp", "timestamptz", "interval"})

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
    "dec": "numeric",
    "string": "text",
    "character varying": "varchar",
    "char varying": "varchar",
    "character": "char",
    "bytes": "bytea",
    "binary": "bytea",
    "blob": "bytea",
    "time without time zone": "time",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}
ARRAY: Final = "array"  # the base of every T[]
_WRITTEN = re.compile(
    r"(?P<head>[a-z0-9_ ]+?) ?(?:\((?P<args>[-0-9, ]*)\))? ?(?P<tail>with(?:out)? time zone)?"
    r"(?P<dims>(?: ?\[\d*\])*| array)"
)
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Type:
    """`to_stored` checks a user's value and raises ValueError with the reason; None is not passed
    to either. It is an assignment: a text that is too long is refused.
    """

    name: str
    base: str  # the name without precision: what decides about codecs
    to_stored: Convert
    from_stored: Convert | None  # None: the stored form is the user's
    precision: int = 0  # of numeric(p,s); 0 = any
    scale: int = 0
    length: int = 0  # of varchar(n) and char(n), in characters; 0 = any
    digits: int | None = None  # of seconds, for times; None = all six
    element: Type | None = None  # of an array


class DoesNotFit(SqlError, ValueError):
    """A value that a column of this type cannot hold."""


def canonical(name: str) -> str:
    """The stored name of a type as users write it. Raises InvalidArgument for an unknown one."""
    return resolve(name).name


@lru_cache(maxsize=1024)
def resolve(name: str) -> Type:
    """The type behind a name. Raises InvalidArgument with all names."""
    written = _WRITTEN.fullmatch(" ".join(name.lower().split()))
    if written is None:
        raise _unknown(name)
    head, tail = written["head"], written["tail"]
    base = ALIASES.get(f"{head} {tail}" if tail else head)
    if base is None:
        base = head if not tail else ""
    try:
        args = [int(part) for part in (written["args"] or "").split(",") if part.strip()]
    except ValueError:
        raise _unknown(name) from None
    found = _scalar(name, base, args)
    return array_of(found) if written["dims"] else found


def array_of(element: Type) -> Type:
    """The type of arrays, of any number of dimensions, as in PostgreSQL."""
    convert = element.from_stored
    return Type(
        f"{element.name}[]", ARRAY, _array(element.to_stored),
        None if convert is None else lambda value: arrays.mapped(convert, value), element=element,
    )  # fmt: skip


def assign(kind: Type, value: Any) -> Any:
    """A value in user form as a column of this type would give it back: rounded, padded, checked.
    Raises DoesNotFit, or ValueError (TypeError) for a value of another type.
    """
    if value is None:
        return None
    stored = kind.to_stored(value)
    return kind.from_stored(stored) if kind.from_stored is not None else stored


def cast(kind: Type, value: Any) -> Any:
    """The same for an explicit cast: text that is too long is cut. Raises as `assign` does."""
    element = kind.element or kind
    if value is None or not element.length:
        return assign(kind, value)
    cut = element.length
    if kind.element is None:
        return assign(kind, value[:cut])
    return assign(kind, arrays.mapped(lambda text: text[:cut], value))


def _scalar(name: str, base: str, args: list[int]) -> Type:
    """Raises InvalidArgument."""
    if base == "numeric" and args:
        return _numeric(name, args)
    if base in ("varchar", "char", "bpchar") and len(args) <= 1:
        return _characters(name, base, args)
    if base in _ROUNDED and len(args) == 1:
        if not 0 <= args[0] <= TIME_DIGITS_MAX:
            raise InvalidArgument(
                f"type {name}: the precision must be 0 to {TIME_DIGITS_MAX}", details={"type": name}
            )
        to_stored, from_stored = _CONVERTERS[base]
        inner = _rounding(to_stored, base, args[0])
        return Type(f"{base}({args[0]})", base, inner, from_stored, digits=args[0])
    if base == "float8" and len(args) == 1 and 1 <= args[0] <= 53:
        base, args = ("float4" if args[0] <= 24 else "float8"), []  # float(n) is in bits
    if base not in _CONVERTERS or args:
        raise _unknown(name)
    to_stored, from_stored = _CONVERTERS[base]
    return Type(base, base, to_stored, from_stored)


def _unknown(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"unknown column type {name!r:.80}; there are {', '.join(NAMES)}, numeric(p,s), "
        "varchar(n), char(n), and arrays of these, as in int4[]",
        details={"type": name[:80], "known": list(NAMES), "sqlstate": "42704"},
    )


def _numeric(name: str, args: list[int]) -> Type:
    precision, scale = args[0], args[1] if len(args) > 1 else 0
    if len(args) > 2 or not (
        1 <= precision <= NUMERIC_PRECISION_MAX and abs(scale) <= NUMERIC_PRECISION_MAX
    ):
        raise InvalidArgument(
            f"type {name}: the precision must be 1 to {NUMERIC_PRECISION_MAX} and the scale "
            f"-{NUMERIC_PRECISION_MAX} to {NUMERIC_PRECISION_MAX}",
            details={"type": name, "sqlstate": "22023"},
        )
    check = _numeric_in(precision, scale)
    return Type(f"numeric({precision},{scale})", "numeric", check, Decimal, precision, scale)


def _characters(name: str, base: str, args: list[int]) -> Type:
    length = args[0] if args else int(base == "char")
    if args and not 1 <= length <= LENGTH_MAX:
        raise InvalidArgument(
            f"type {name}: the length must be 1 to {LENGTH_MAX}",
            details={"type": name, "sqlstate": "22023"},
        )
    if base == "varchar":
        shown = f"varchar({length})" if length else "varchar"
        return Type(shown, "varchar", _varchar(length), None, length=length)
    if not length:
        return Type("bpchar", "char", _text, None)  # keys leave its blanks out, rows keep them
    pad: Convert = lambda text: text.ljust(length)  # noqa: E731
    return Type(f"char({length})", "char", _char(length), pad, length=length)


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
        raise DoesNotFit(
            OUT_OF_RANGE,
            f"numeric field overflow: expected at most {precision - scale} digits before the "
            f"point, got {given}",
            detail=_overflow(precision, scale, given),
        )

    return check


def _overflow(precision: int, scale: int, given: Decimal) -> str:
    """In PostgreSQL's words."""
    field = f"A field with precision {precision}, scale {scale}"
    if not given.is_finite():
        return f"{field} cannot hold an infinite value."
    limit = f"10^{precision - scale}" if precision != scale else "1"
    return f"{field} must round to an absolute value less than {limit}."


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _expected("a str", value)
    value.encode()  # lone surrogates have no UTF-8: UnicodeEncodeError is a ValueError
    return value


def _too_long(shown: str) -> DoesNotFit:
    return DoesNotFit(STRING_TOO_LONG, f"value too long for type {shown}")


def _varchar(length: int) -> Convert:
    """More than `length` characters only if they are blanks, which are cut: so says SQL."""

    def check(value: Any) -> str:
        text = _text(value)
        if length and len(text) > length:
            if text[length:].strip(" "):
                raise _too_long(f"character varying({length})")
            text = text[:length]
        return text

    return check


def _blanks_off(value: Any) -> str:
    return _text(value).rstrip(" ")


def _char(length: int) -> Convert:
    def check(value: Any) -> str:
        text = _blanks_off(value)
        if len(text) > length:
            raise _too_long(f"character({length})")
        return text

    return check


def _name(value: Any) -> str:
    """Cut to 63 bytes, at a character, as PostgreSQL does."""
    text = _text(value)
    return text.encode()[:NAME_BYTES_MAX].decode(errors="ignore")


def _oid(value: Any) -> int:
    if type(value) is int and 0 <= value < 1 << 32:
        return value
    raise _expected("an integer from 0 to 4294967295", value)


def _json(value: Any) -> str:
    text = _text(value)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected the text of a JSON value: {error}") from None
    return text


def _jsonb(value: Any) -> str:
    return jsonb.canonical(_text(value))


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


def _interval(value: Any) -> bytes:
    if isinstance(value, Interval):
        if value.fits:
            return INTERVAL.pack(value.months, value.days, value.us)
        raise DoesNotFit(DATETIME_OVERFLOW, "interval out of range")
    raise _expected("an Interval", value)


def _round(us: int, unit: int) -> int:
    """To a multiple of `unit`, half away from zero."""
    up = (abs(us) + unit // 2) // unit * unit
    return up if us >= 0 else -up


def _rounding(to_stored: Convert, base: str, digits: int) -> Convert:
    unit = 10 ** (TIME_DIGITS_MAX - digits)
    if unit == 1:
        return to_stored
    match base:
        case "interval":

            def interval(value: Any) -> bytes:
                months, days, us = INTERVAL.unpack(to_stored(value))
                return INTERVAL.pack(months, days, _round(us, unit))

            return interval
        case "time":
            return lambda value: min(_round(to_stored(value), unit), _LAST_US // unit * unit)
        case _:  # PostgreSQL's timestamps count from 2000, and round there
            return lambda value: _round(to_stored(value) - _US_2000, unit) + _US_2000


def _array(to_stored: Convert) -> Convert:
    def check(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _expected("a list", value)
        found = arrays.mapped(to_stored, value)
        if problem := arrays.problem(found):
            raise DoesNotFit(*problem)
        return found if arrays.flat(found) else []

    return check


# -- and out of it


def _date_out(days: int) -> date:
    return date.fromordinal(days + _EPOCH_DAY)


def _time_out(us: int) -> time:
    return (_EPOCH + timedelta(microseconds=us)).time()


def _timestamp_out(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _timestamptz_out(us: int) -> datetime:
    return _EPOCH_UTC + timedelta(microseconds=us)


def _interval_out(stored: bytes) -> Interval:
    return Interval(*INTERVAL.unpack(stored))


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
    "varchar": (_text, None),
    "name": (_name, None),
    "oid": (_oid, None),
    "bytea": (_bytea, None),
    "uuid": (_uuid, _uuid_out),
    "date": (_date, _date_out),
    "time": (_time, _time_out),
    "timestamp": (_timestamp, _timestamp_out),
    "timestamptz": (_timestamptz, _timestamptz_out),
    "interval": (_interval, _interval_out),
    "json": (_json, None),
    "jsonb": (_jsonb, None),
}
NAMES: Final = tuple(_CONVERTERS)
