"""Values on their way into a row and out of it, type by type: what `sqlproxy.values.types` is made
of.

Into a row: checked, and brought to the stored form; ValueError (or TypeError) says what would be
right, `DoesNotFit` with PostgreSQL's SQLSTATE where it has one. Out of it: the user's form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from sqlproxy.values import arrays, jsonb
from sqlproxy.values.errors import (
    DATETIME_OVERFLOW,
    INVALID_ENCODING,
    OUT_OF_RANGE,
    STRING_TOO_LONG,
    SqlError,
)
from sqlproxy.values.interval import ALL_FIELDS, Interval

Convert = Callable[[Any], Any]

NUMERIC_EXPONENT_MAX: Final = jsonb.EXPONENT_MAX  # of 10, either side of the point
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
_LAST_MOMENT_US: Final = (datetime.max - _EPOCH) // _MICROSECOND  # noqa: DTZ901


class DoesNotFit(SqlError, ValueError):
    """A value that a column of this type cannot hold."""


def refusal(error: Exception) -> dict[str, str]:
    """What a store's error says of it to SQL's clients, in its details."""
    if not isinstance(error, DoesNotFit):
        return {}
    return {"sqlstate": error.sqlstate, "sql_message": error.message, "sql_detail": error.detail}


# -- into a row


def _expected(what: str, value: object) -> ValueError:
    return ValueError(f"expected {what}, got {type(value).__name__} {value!r:.80}")


def _bool(value: object) -> bool:
    if value is True or value is False:
        return bool(value)
    raise _expected("a bool", value)


def _int(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: object) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise _expected(f"an integer from {low} to {high}", value)

    return check


def _float8(value: object) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise _expected("a number", value)


def _float4(value: object) -> float:
    try:
        rounded: float = _FLOAT4.unpack(_FLOAT4.pack(_float8(value)))[0]
    except OverflowError:
        raise _expected("a number below 3.5e38", value) from None
    return rounded


def _decimal(value: object) -> Decimal:
    if type(value) is Decimal:
        if not value.is_snan() and (
            not value.is_finite() or abs(value.adjusted()) <= NUMERIC_EXPONENT_MAX
        ):
            return value
        if value.is_finite():
            raise DoesNotFit(
                OUT_OF_RANGE,
                f"value overflows numeric format: a column's is within 10^±{NUMERIC_EXPONENT_MAX}, "
                f"got one of 10^{value.adjusted()}",
            )
    elif type(value) is int and value.bit_length() < 3 * NUMERIC_EXPONENT_MAX:
        return Decimal(value)
    raise _expected(f"a Decimal within 10^±{NUMERIC_EXPONENT_MAX} or an int", value)


def _numeric_any(value: object) -> str:
    return str(_decimal(value))


def rounded_number(precision: int, scale: int) -> Convert:
    """Rounds to the scale, half away from zero, as PostgreSQL does; refuses what then is too
    long.
    """
    context = Context(prec=NUMERIC_EXPONENT_MAX * 2, rounding=ROUND_HALF_UP)
    step = Decimal(1).scaleb(-scale)

    def check(value: object) -> str:
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


def text_in(value: object) -> str:
    if type(value) is not str:
        raise _expected("a str", value)
    value.encode()  # lone surrogates have no UTF-8: UnicodeEncodeError is a ValueError
    if "\0" in value:
        raise DoesNotFit(INVALID_ENCODING, 'invalid byte sequence for encoding "UTF8": 0x00')
    return value


def _too_long(shown: str) -> DoesNotFit:
    return DoesNotFit(STRING_TOO_LONG, f"value too long for type {shown}")


def length_checked(length: int) -> Convert:
    """More than `length` characters only if they are blanks, which are cut: so says SQL."""

    def check(value: object) -> str:
        text = text_in(value)
        if length and len(text) > length:
            if text[length:].strip(" "):
                raise _too_long(f"character varying({length})")
            text = text[:length]
        return text

    return check


def _blanks_off(value: object) -> str:
    return text_in(value).rstrip(" ")


def blank_padded(length: int) -> Convert:
    def check(value: object) -> str:
        text = _blanks_off(value)
        if len(text) > length:
            raise _too_long(f"character({length})")
        return text

    return check


def _name(value: object) -> str:
    """Cut to 63 bytes, at a character, as PostgreSQL does."""
    text = text_in(value)
    return text.encode()[:NAME_BYTES_MAX].decode(errors="ignore")


def _oid(value: object) -> int:
    if type(value) is int and 0 <= value < 1 << 32:
        return value
    raise _expected("an integer from 0 to 4294967295", value)


def _json(value: object) -> str:
    text = text_in(value)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected the text of a JSON value: {error}") from None
    return text


def _jsonb(value: object) -> str:
    return jsonb.canonical(text_in(value))


def _bytea(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _expected("bytes", value)


def _uuid(value: object) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    if type(value) is str:
        return UUID(value).bytes
    raise _expected("a UUID or its text", value)


def _date(value: object) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY
    raise _expected("a date", value)


def _time(value: object) -> int:
    if isinstance(value, time) and value.tzinfo is None:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000 + value.microsecond
    raise _expected("a time without zone", value)


def _timestamp(value: object) -> int:
    if isinstance(value, datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    raise _expected("a datetime without zone", value)


def _timestamptz(value: object) -> int:
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return (value - _EPOCH_UTC) // _MICROSECOND
    raise _expected("a datetime with a zone", value)


def _interval(value: object) -> bytes:
    if isinstance(value, Interval):
        if value.fits:
            return INTERVAL.pack(value.months, value.days, value.us)
        raise DoesNotFit(DATETIME_OVERFLOW, "interval out of range")
    raise _expected("an Interval", value)


def _round(us: int, unit: int) -> int:
    """To a multiple of `unit`, half away from zero."""
    up = (abs(us) + unit // 2) // unit * unit
    return up if us >= 0 else -up


def rounded_time(to_stored: Convert, base: str, digits: int) -> Convert:
    unit = 10 ** (TIME_DIGITS_MAX - digits)
    if unit == 1:
        return to_stored
    match base:
        case "time":
            return lambda value: min(_round(to_stored(value), unit), _LAST_US // unit * unit)
        case _:  # PostgreSQL's timestamps count from 2000, and round there

            def moment(value: object) -> int:
                us = _round(to_stored(value) - _US_2000, unit) + _US_2000
                if us > _LAST_MOMENT_US:
                    raise DoesNotFit(DATETIME_OVERFLOW, "timestamp out of range")
                return us

            return moment


def cut_interval(to_stored: Convert, fields: int, digits: int | None) -> Convert:
    """See Interval.cut. Nothing to do: `to_stored` itself."""
    if fields == ALL_FIELDS and digits in (None, TIME_DIGITS_MAX):
        return to_stored
    kept = TIME_DIGITS_MAX if digits is None else digits

    def convert(value: object) -> bytes:
        found = Interval(*INTERVAL.unpack(to_stored(value))).cut(fields, kept)
        return INTERVAL.pack(found.months, found.days, found.us)

    return convert


def listed(to_stored: Convert) -> Convert:
    def check(value: object) -> list[Any]:
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


CONVERTERS: Final[dict[str, tuple[Convert, Convert | None]]] = {
    "bool": (_bool, None),
    "int2": (_int(16), None),
    "int4": (_int(32), None),
    "int8": (_int(64), None),
    "float4": (_float4, None),
    "float8": (_float8, None),
    "numeric": (_numeric_any, Decimal),
    "text": (text_in, None),
    "varchar": (text_in, None),
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
