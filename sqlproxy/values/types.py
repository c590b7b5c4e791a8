"""The column types: their names, what a user may put in, what is stored, and what comes out.

Three forms of a value: what users hold (Python objects), what a row stores (plain msgpack), and the
bytes inside a key (`sqlproxy.rows.keys`). NULL is None in the first two.

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
    enum […]          str, one of its labels  int, its position           string
    T[]               list (of lists), None   list of stored forms        list(T), one dimension
                      for NULL elements

Times may have a precision, as in `timestamp(3)`: they are rounded to so many digits. Intervals may
have fields, as in `interval day to minute`: what is smaller is cut. SQL's other
names of these types are accepted (`bigint`, `character varying(5)`, `int[3]`, …) and stored as the
ones above; `serial` and its like are the front end's.

What a column's length or precision does to a value: `assign` (INSERT, UPDATE: refuses what is cut)
and `cast` (`::varchar(3)`: cuts). Both raise `DoesNotFit`, an SqlError with PostgreSQL's SQLSTATE.

Deliberately missing: infinite dates and times (0A000), times with a zone, money, bit strings,
geometry, ranges and composite types. Of enums the name is all that they are
(`sqlproxy.values.enums`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from kv.base.errors import InvalidArgument
from sqlproxy.values import arrays, enums
from sqlproxy.values.conversions import (
    CONVERTERS,
    INTERVAL,
    NAME_BYTES_MAX,
    TIME_DIGITS_MAX,
    Convert,
    DoesNotFit,
    blank_padded,
    cut_interval,
    length_checked,
    listed,
    rounded_number,
    rounded_time,
    text_in,
)
from sqlproxy.values.interval import ALL_FIELDS, Interval, fields_named, fields_text, has_seconds

__all__ = [
    "ALIASES",
    "ARRAY",
    "INTERVAL",
    "LENGTH_MAX",
    "NAMES",
    "NAME_BYTES_MAX",
    "NUMERIC_PRECISION_MAX",
    "ROUNDED",
    "TIME_DIGITS_MAX",
    "Convert",
    "DoesNotFit",
    "Interval",
    "Type",
    "array_of",
    "assign",
    "canonical",
    "cast",
    "resolve",
]

NUMERIC_PRECISION_MAX: Final = 1_000
LENGTH_MAX: Final = 10_485_760  # of varchar(n) and char(n)
ROUNDED: Final = frozenset({"time", "timestamp", "timestamptz", "interval"})

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
    fields: int = ALL_FIELDS  # of an interval: sqlproxy.values.interval
    element: Type | None = None  # of an array


def canonical(name: str) -> str:
    """The stored name of a type as users write it. Raises InvalidArgument for an unknown one."""
    return resolve(name).name


@lru_cache(maxsize=1024)
def resolve(name: str) -> Type:
    """The type of a name. Raises InvalidArgument with all names."""
    if name.startswith(enums.PREFIX):
        one = _enum(name.removesuffix("[]"))
        return array_of(one) if name.endswith("[]") else one
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
    found = (
        _interval(name, head, args) if head.startswith("interval") else _scalar(name, base, args)
    )
    return array_of(found) if written["dims"] else found


def _enum(text: str) -> Type:
    """Raises InvalidArgument."""
    one = enums.parsed(text)
    return Type(text, enums.BASE, enums.to_position(one), enums.to_label(one))


def array_of(element: Type) -> Type:
    """The type of arrays, of any number of dimensions, as in PostgreSQL."""
    convert = element.from_stored
    return Type(
        f"{element.name}[]",
        ARRAY,
        listed(element.to_stored),
        None if convert is None else lambda value: arrays.mapped(convert, value),
        element=element,
    )


def assign(kind: Type, value: object) -> object:
    """A value in user form as a column of this type would give it back: rounded, padded, checked.
    Raises DoesNotFit, or ValueError (TypeError) for a value of another type.
    """
    if value is None:
        return None
    stored = kind.to_stored(value)
    return kind.from_stored(stored) if kind.from_stored is not None else stored


def cast(kind: Type, value: Any) -> object:
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
    if base in ROUNDED and len(args) == 1:
        if not 0 <= args[0] <= TIME_DIGITS_MAX:
            raise _digits(name)
        to_stored, from_stored = CONVERTERS[base]
        inner = rounded_time(to_stored, base, args[0])
        return Type(f"{base}({args[0]})", base, inner, from_stored, digits=args[0])
    if base == "float8" and len(args) == 1 and 1 <= args[0] <= 53:
        base, args = ("float4" if args[0] <= 24 else "float8"), []  # float(n) is in bits
    if base not in CONVERTERS or args:
        raise _unknown(name)
    to_stored, from_stored = CONVERTERS[base]
    return Type(base, base, to_stored, from_stored)


def _interval(name: str, head: str, args: list[int]) -> Type:
    """Raises InvalidArgument."""
    fields = fields_named(head.removeprefix("interval").strip())
    if fields is None or len(args) > 1 or (args and not has_seconds(fields)):
        raise _unknown(name)
    if args and not 0 <= args[0] <= TIME_DIGITS_MAX:
        raise _digits(name)
    digits = args[0] if args else None
    to_stored, from_stored = CONVERTERS["interval"]
    shown = "interval" + (f" {fields_text(fields)}" if fields != ALL_FIELDS else "")
    shown += f"({digits})" if args else ""
    inner = cut_interval(to_stored, fields, digits)
    return Type(shown, "interval", inner, from_stored, digits=digits, fields=fields)


def _digits(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"type {name}: the precision must be 0 to {TIME_DIGITS_MAX}", details={"type": name}
    )


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
    check = rounded_number(precision, scale)
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
        return Type(shown, "varchar", length_checked(length), None, length=length)
    if not length:
        return Type("bpchar", "char", text_in, None)  # keys leave its blanks out, rows keep them
    pad: Convert = lambda text: text.ljust(length)  # noqa: E731
    return Type(f"char({length})", "char", blank_padded(length), pad, length=length)


NAMES: Final = tuple(CONVERTERS)
