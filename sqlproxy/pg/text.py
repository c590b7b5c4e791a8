"""Values in user form (sqlproxy.values.types) as PostgreSQL 15's text, and back: for every type and
array.

    writer(oid, style)  ─▶ value → str        also what a cast to text gives
    reader(oid, style)  ─▶ str → value        also what a literal of that type means

Both are made once per type and style and then cost one call per value. NULL is not theirs. Readers
raise SqlError with PostgreSQL's SQLSTATE and words. Types of the catalog whose names only it can
look up (regclass, …) are ints or their text as given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

from sqlproxy.pg import datetimes, jsonpaths, numbers, oids
from sqlproxy.pg.arrays import array_reader, array_writer
from sqlproxy.pg.bytea import read_bytea, write_bytea
from sqlproxy.pg.intervals import read_interval, reader_of, write_interval
from sqlproxy.pg.jsons import read_json, read_jsonb
from sqlproxy.pg.style import DEFAULT, SPACES, Style, invalid_syntax
from sqlproxy.values import enums
from sqlproxy.values.errors import SqlError, unsupported

Writer = Callable[[Any], str]
Reader = Callable[[str], Any]

NAME_BYTES_MAX: Final = 63
_TRUE: Final = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
_FALSE: Final = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})
_UUID = re.compile(r"(\{?)((?:[0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4})(\}?)")
_STRINGS: Final = frozenset({oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.UNKNOWN, oids.REFCURSOR})
_PSEUDO: Final = frozenset({oids.RECORD, oids.VOID, oids.ANY, oids.ANYELEMENT, oids.ANYARRAY})
_TEXTS: Final = _STRINGS | _PSEUDO | oids.OF_CATALOG


# -- out


def write_bool(value: bool) -> str:
    return "t" if value else "f"


def _vector(values: Any) -> str:
    return values if isinstance(values, str) else " ".join(map(str, values))


_WRITERS: Final[dict[int, Writer]] = {
    oids.BOOL: write_bool,
    oids.BYTEA: write_bytea,
    oids.CHAR: str,
    oids.NAME: str,
    oids.INT2: str,
    oids.INT4: str,
    oids.INT8: str,
    oids.OID: str,
    oids.TID: numbers.write_tid,
    oids.XID: str,
    oids.XID8: str,
    oids.CID: str,
    oids.JSON: str,
    oids.JSONB: str,
    oids.JSONPATH: str,
    oids.FLOAT4: numbers.write_float4,
    oids.FLOAT8: numbers.write_float8,
    oids.NUMERIC: numbers.write_numeric,
    oids.UUID: str,
    oids.DATE: datetimes.write_date,
    oids.TIME: datetimes.write_time,
    oids.TIMESTAMP: datetimes.write_timestamp,
    oids.INTERVAL: write_interval,
    oids.INT2VECTOR: _vector,
    oids.OIDVECTOR: _vector,
}


@lru_cache(maxsize=2_048)
def writer(oid: int, style: Style = DEFAULT) -> Writer:
    """Raises SqlError for a type that does not exist here."""
    if oid in _WRITERS:
        return _WRITERS[oid]
    if oid == oids.TIMESTAMPTZ:
        return _timestamptz_writer(style)
    if oid in _TEXTS or oid in oids.NAMES_OF_OBJECTS or enums.is_enum(oid):
        return str
    element = oids.element_of(oid)
    if element is None:
        raise no_such_type(oid)
    return array_writer(writer(element.oid, style), element.oid)


def _timestamptz_writer(style: Style) -> Writer:
    zone = style.zone

    def write(value: datetime) -> str:
        return datetimes.write_timestamptz(value, zone)

    return write


def no_such_type(oid: int) -> SqlError:
    return unsupported(f"the type with OID {oid}")


# -- in


def read_bool(text: str) -> bool:
    word = text.strip(SPACES).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise invalid_syntax("boolean", text)


def read_uuid(text: str) -> UUID:
    found = _UUID.fullmatch(text)
    if found is None or bool(found[1]) != bool(found[3]):
        raise invalid_syntax("uuid", text)
    return UUID(found[2])


def read_name(text: str) -> str:
    """Cut to 63 bytes, at a character."""
    raw = text.encode()
    return text if len(raw) <= NAME_BYTES_MAX else raw[:NAME_BYTES_MAX].decode(errors="ignore")


def _read_char(text: str) -> str:
    return text[:1]


def _read_named(text: str) -> int | str:
    return numbers.read_oid(text) if text.isascii() and text.isdigit() else text


def _read_int2vector(text: str) -> list[int]:
    return [_READERS[oids.INT2](piece) for piece in text.split()]


def _read_oidvector(text: str) -> list[int]:
    return [numbers.read_oid(piece) for piece in text.split()]


_READERS: Final[dict[int, Reader]] = {
    oids.BOOL: read_bool,
    oids.BYTEA: read_bytea,
    oids.CHAR: _read_char,
    oids.NAME: read_name,
    oids.INT2: numbers.integer_reader("smallint", 16),
    oids.INT4: numbers.integer_reader("integer", 32),
    oids.INT8: numbers.integer_reader("bigint", 64),
    oids.OID: numbers.read_oid,
    oids.TID: numbers.read_tid,
    oids.XID: numbers.read_oid,
    oids.XID8: numbers.integer_reader("xid8", 64),
    oids.CID: numbers.read_oid,
    oids.JSON: read_json,
    oids.JSONB: read_jsonb,
    oids.JSONPATH: jsonpaths.canonical,
    oids.FLOAT4: numbers.read_float4,
    oids.FLOAT8: numbers.read_float8,
    oids.NUMERIC: numbers.read_numeric,
    oids.UUID: read_uuid,
    oids.INTERVAL: read_interval,
    oids.INT2VECTOR: _read_int2vector,
    oids.OIDVECTOR: _read_oidvector,
}
_STYLED: Final[dict[int, Callable[[str, Style], object]]] = {
    oids.DATE: datetimes.read_date,
    oids.TIME: datetimes.read_time,
    oids.TIMESTAMP: datetimes.read_timestamp,
    oids.TIMESTAMPTZ: datetimes.read_timestamptz,
}


def reader(oid: int, style: Style = DEFAULT, typmod: int = -1) -> Reader:
    """Of an interval, `typmod` says what its text means, and cuts nothing. Raises SqlError for a
    type that does not exist here.
    """
    if oid == oids.INTERVAL and typmod >= 0:
        return reader_of(typmod)
    if oid in _READERS:
        return _READERS[oid]
    if oid in _STYLED:
        return partial(_read_styled, _STYLED[oid], style)
    if oid in _TEXTS:
        return str
    if oid in oids.NAMES_OF_OBJECTS:
        return _read_named
    if (enum := enums.of(oid)) is not None:
        return enum.read
    element = oids.element_of(oid)
    if element is None:
        raise no_such_type(oid)
    return array_reader(reader(element.oid, style, typmod))


def _read_styled(read: Callable[[str, Style], object], style: Style, text: str) -> object:
    return read(text, style)
