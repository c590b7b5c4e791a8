"""Values of PostgreSQL's types ↔ their text: the input and output functions, by OID."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID as Uuid

from sqlproxy.front.types.quoting import held_relation
from sqlproxy.front.types.registry import element_of, format_type
from sqlproxy.pg import arrays, datetimes, intervals, jsonpaths, jsons, numbers, oids
from sqlproxy.pg.bytea import read_bytea
from sqlproxy.pg.style import DEFAULT, Style, invalid_syntax
from sqlproxy.values import enums
from sqlproxy.values.errors import INVALID_TEXT, SqlError, unsupported
from sqlproxy.values.interval import Interval

Reader = Callable[[str], object]
Writer = Callable[[Any], str]
_BOOLS: Final = {
    word[:n]: value
    for word, value in (("true", True), ("false", False), ("yes", True), ("no", False))
    for n in range(1, len(word) + 1)
} | {"on": True, "of": False, "off": False, "1": True, "0": False}


VECTORS: Final = frozenset((oids.INT2VECTOR, oids.OIDVECTOR))
_OF_TIME: Final = frozenset((1082, 1083, 1114, 1184, 1182, 1183, 1115, 1185))
"""Of moments, days and times, and arrays of them: `now` and `today` are read as such."""
_UUID_CHARS_MAX: Final = 64  # with all its hyphens and braces


def read_bool(text: str) -> bool:
    found = _BOOLS.get(text.strip().lower())
    if found is None:
        raise invalid_syntax("boolean", text)
    return found


def read_uuid(text: str) -> Uuid:
    if len(text) > _UUID_CHARS_MAX:
        raise SqlError(INVALID_TEXT, f'invalid input syntax for type uuid: "{text}"')
    body = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else text
    digits = body.replace("-", "")
    # A hyphen may stand after each group of four digits, as PostgreSQL takes them.
    parts = body.split("-")
    fits = all(len(part) % 4 == 0 and part for part in parts)
    if len(digits) != 32 or not fits or not all(c in "0123456789abcdefABCDEF" for c in digits):
        raise SqlError(INVALID_TEXT, f'invalid input syntax for type uuid: "{text}"')
    return Uuid(digits)


def read_name(text: str) -> str:
    raw = text.encode()
    return text if len(raw) < 64 else raw[:63].decode(errors="ignore")


def read_acl(text: str) -> str:
    if "=" not in text:
        raise SqlError(INVALID_TEXT, 'missing "=" sign', hint="grantee=privileges/grantor")
    return text


def _same(text: str) -> str:
    return text


def reader(oid: int, style: Style, typmod: int = -1) -> Reader:
    """What reads the text of a type. Raises 0A000: values of that type do not exist here. One that
    knows a transaction's time is that transaction's, and is not kept for others.
    """
    if oid not in _OF_TIME:
        return _reader(oid, DEFAULT, typmod)
    make = _reader if style.now is None else _reader.__wrapped__
    return make(oid, style, typmod)


@lru_cache(maxsize=512)
def _reader(oid: int, style: Style, typmod: int) -> Reader:
    if oid in VECTORS:
        read = reader(element_of(oid), style)
        return lambda text: [read(part) for part in text.split()]
    if element := element_of(oid):
        return arrays.array_reader(reader(element, style, typmod))
    match oid:
        case 1082:
            return lambda text: datetimes.read_date(text, style)
        case 1083:
            return lambda text: datetimes.read_time(text, style)
        case 1114:
            return lambda text: datetimes.read_timestamp(text, style)
        case 1184:
            return lambda text: datetimes.read_timestamptz(text, style)
        case 1186 if typmod >= 0:
            return intervals.reader_of(typmod)
        case _:
            pass
    if found := _READERS.get(oid):
        return found
    if (enum := enums.of(oid)) is not None:
        return enum.read
    raise unsupported(f"the type {format_type(oid)}")


@lru_cache(maxsize=512)
def writer(oid: int, style: Style) -> Writer:
    """What writes a value of a type as text, as a cast to text does (bool: `true`)."""
    if oid in VECTORS:
        return lambda value: " ".join(map(str, value))
    if element := element_of(oid):
        inner = (lambda v: "t" if v else "f") if element == oids.BOOL else writer(element, style)
        return arrays.array_writer(inner, element)
    if oid == oids.TIMESTAMPTZ:
        return lambda value: datetimes.write_timestamptz(value, style.zone)
    if found := _WRITERS.get(oid):
        return found
    if enums.is_enum(oid):
        return _same
    raise unsupported(f"the type {format_type(oid)}")


def row_text(writers: Sequence[Writer], values: Sequence[object]) -> str:
    """A row as PostgreSQL's record_out writes it."""
    return f"({','.join(map(_row_part, writers, values))})"


def _row_part(write: Writer, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    text = write(value)
    if text and not _QUOTED_IN_ROWS.search(text):
        return text
    doubled = text.replace("\\", "\\\\").replace('"', '""')
    return f'"{doubled}"'


_QUOTED_IN_ROWS: Final = re.compile(r'["\\(),\s]', re.ASCII)
_READERS: Final[dict[int, Reader]] = {
    oids.BOOL: read_bool,
    oids.INT2: numbers.integer_reader("smallint", 16),
    oids.INT4: numbers.integer_reader("integer", 32),
    oids.INT8: numbers.integer_reader("bigint", 64),
    oids.OID: numbers.read_oid,
    oids.TID: numbers.read_tid,
    oids.XID: numbers.read_oid,
    oids.CID: numbers.read_oid,
    oids.FLOAT4: numbers.read_float4,
    oids.FLOAT8: numbers.read_float8,
    oids.NUMERIC: numbers.read_numeric,
    oids.TEXT: _same,
    oids.VARCHAR: _same,
    oids.BPCHAR: _same,
    oids.UNKNOWN: _same,
    oids.CHAR: lambda text: text[:1],
    oids.NAME: read_name,
    oids.ACLITEM: read_acl,
    oids.BYTEA: read_bytea,
    oids.UUID: read_uuid,
    oids.REGCLASS: held_relation,
    oids.INTERVAL: intervals.read_interval,
    oids.JSON: jsons.read_json,
    oids.JSONB: jsons.read_jsonb,
    oids.JSONPATH: jsonpaths.canonical,
}
_WRITERS: Final[dict[int, Writer]] = {
    oids.BOOL: lambda value: "true" if value else "false",
    oids.INT2: str,
    oids.INT4: str,
    oids.INT8: str,
    oids.OID: str,
    oids.TID: numbers.write_tid,
    oids.XID: str,
    oids.XID8: str,
    oids.CID: str,
    **dict.fromkeys(oids.OF_CATALOG, _same),
    oids.FLOAT4: numbers.write_float4,
    oids.FLOAT8: numbers.write_float8,
    oids.NUMERIC: numbers.write_numeric,
    oids.TEXT: _same,
    oids.VARCHAR: _same,
    oids.BPCHAR: _same,
    oids.UNKNOWN: _same,
    oids.CHAR: _same,
    oids.NAME: _same,
    oids.BYTEA: lambda value: "\\x" + value.hex(),
    oids.UUID: str,
    oids.DATE: datetimes.write_date,
    oids.TIME: datetimes.write_time,
    oids.TIMESTAMP: datetimes.write_timestamp,
    oids.INTERVAL: intervals.write_interval,
    oids.JSON: _same,
    oids.JSONB: _same,
    oids.JSONPATH: _same,
    oids.VOID: lambda value: "",
    oids.RECORD: str,
    oids.REGCLASS: _same,
    oids.REGTYPE: _same,
}
__all__ = [
    "Interval",
    "Reader",
    "Writer",
    "read_bool",
    "read_bytea",
    "read_name",
    "read_uuid",
    "reader",
    "writer",
]
