"""Values in user form as PostgreSQL's binary formats, and back. All numbers big-endian.

    bool             1 byte, 0 or 1             date        i32 days since 2000-01-01
    int2 int4 int8   2, 4, 8 bytes              time        i64 µs since midnight
    oid xid reg…     u32                        timestamp   i64 µs since 2000-01-01, as if UTC
    float4 float8    IEEE 754                   timestamptz i64 µs since 2000-01-01 UTC
    text and its like, json    UTF-8            interval    i64 µs, i32 days, i32 months
    jsonb, jsonpath  byte 1, UTF-8              uuid        16 bytes
    bytea            as it is                   "char"      1 byte
    numeric          i16 groups, i16 weight, u16 sign, i16 scale, then i16 of four decimal digits
                     each; value = Σ group[i] · 10000^(weight - i); sign 0x0000 plus, 0x4000 minus,
                     0xC000 NaN, 0xD000 +infinity, 0xF000 -infinity
    arrays, vectors  i32 dimensions, i32 has NULLs, u32 element's OID, per dimension i32 length and
                     i32 lower bound, then per element i32 length (-1 = NULL) and its bytes

Readers take bytes from the network: wrong lengths and contents are SqlErrors (22P03 and its like).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address, ip_interface
from typing import Any, Final
from uuid import UUID

from sqlproxy.pg import jsonpaths, oids
from sqlproxy.pg.arrays import DIMENSIONS_MAX, measured, shape_of
from sqlproxy.pg.jsons import read_json, read_jsonb
from sqlproxy.pg.numbers import checked_numeric
from sqlproxy.pg.text import NAME_BYTES_MAX, no_such_type
from sqlproxy.values import enums
from sqlproxy.values.breaks import paused
from sqlproxy.values.errors import (
    DATETIME_OVERFLOW,
    INVALID_BINARY,
    INVALID_ENCODING,
    LIMIT_EXCEEDED,
    NAME_TOO_LONG,
    UNDEFINED_FUNCTION,
    SqlError,
    unsupported,
)
from sqlproxy.values.interval import Interval

Writer = Callable[[Any], bytes]
Reader = Callable[[bytes], Any]

_EPOCH: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a timestamp without zone is meant
_EPOCH_UTC: Final = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(2000, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_US: Final = 86_400_000_000
_INT8_MIN, _INT8_MAX = -(1 << 63), (1 << 63) - 1
_INFINITE_DATE: Final = (-(1 << 31), (1 << 31) - 1)

_I2, _I4, _I8 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_U4, _F4, _F8 = struct.Struct(">I"), struct.Struct(">f"), struct.Struct(">d")
_INTERVAL = struct.Struct(">qii")
_TID = struct.Struct(">IH")
_NUMERIC = struct.Struct(">hhHh")
_ARRAY = struct.Struct(">iiI")
_DIMENSION = struct.Struct(">ii")
_PLUS, _MINUS, _NAN, _INFINITE, _MINUS_INFINITE = 0, 0x4000, 0xC000, 0xD000, 0xF000
_SCALE_MASK: Final = 0x3FFF
_WITHOUT: Final = frozenset({oids.ACLITEM, oids.ANY, oids.ANYELEMENT, oids.ANYARRAY, oids.RECORD})


# -- out


def _text(value: object) -> bytes:
    return str(value).encode()


def _inet(value: object) -> bytes:
    """u8 family (2: IPv4, 3: IPv6), bits, 0, length; the address."""
    there = ip_interface(str(value))
    packed = there.packed
    family = 2 if there.version == 4 else 3
    return bytes([family, there.network.prefixlen, 0, len(packed)]) + packed


def _read_inet(raw: bytes) -> str:
    if len(raw) not in (8, 20) or raw[3] != len(raw) - 4:
        raise _wrong_length("inet")
    address = ip_address(raw[4:])
    return f"{address}" if raw[1] == address.max_prefixlen else f"{address}/{raw[1]}"


def _bool(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _char(value: str) -> bytes:
    return value.encode()[:1] or b"\x00"


def _regclass(value: int | str) -> bytes:
    """A name of the catalog: the number, if that is what we have."""
    if isinstance(value, int):
        return _U4.pack(value)
    if value.isdigit():
        return _U4.pack(int(value))
    raise unsupported("the binary format of a name as a number", hint="Cast it to oid or text.")


def _jsonb(value: str) -> bytes:
    return b"\x01" + value.encode()


def _uuid(value: UUID) -> bytes:
    return value.bytes


def _date(value: date) -> bytes:
    return _I4.pack(value.toordinal() - _EPOCH_DAY)


def _time(value: time) -> bytes:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _I8.pack(seconds * 1_000_000 + value.microsecond)


def _timestamp(value: datetime) -> bytes:
    d = value - _EPOCH
    return _I8.pack((d.days * 86_400 + d.seconds) * 1_000_000 + d.microseconds)


def _timestamptz(value: datetime) -> bytes:
    d = value - _EPOCH_UTC
    return _I8.pack((d.days * 86_400 + d.seconds) * 1_000_000 + d.microseconds)


def _interval(value: Interval) -> bytes:
    return _INTERVAL.pack(value.us, value.days, value.months)


def write_numeric(value: Decimal | int) -> bytes:
    if type(value) is int:
        value = Decimal(value)
    assert isinstance(value, Decimal)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        if value.is_nan():
            return _NUMERIC.pack(0, 0, _NAN, 0)
        return _NUMERIC.pack(0, 0, _MINUS_INFINITE if sign else _INFINITE, 0x20)
    scale = max(0, -exponent)
    if not value:
        return _NUMERIC.pack(0, 0, _PLUS, scale)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole, fraction = (text[:-scale], text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.zfill(-(-len(whole) // 4) * 4)
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    weight = len(whole) // 4 - 1
    joined = whole + fraction
    groups = [int(joined[i : i + 4]) for i in range(0, len(joined), 4)]
    first = next(i for i, group in enumerate(groups) if group)
    while not groups[-1]:
        groups.pop()
    del groups[:first]
    head = _NUMERIC.pack(len(groups), weight - first, _MINUS if sign else _PLUS, scale)
    return head + struct.pack(f">{len(groups)}h", *groups)


_WRITERS: Final[dict[int, Writer]] = {
    oids.BOOL: _bool,
    oids.BYTEA: bytes,
    oids.CHAR: _char,
    oids.NAME: _text,
    oids.INT2: _I2.pack,
    oids.INT4: _I4.pack,
    oids.INT8: _I8.pack,
    oids.OID: _U4.pack,
    oids.TID: lambda value: _TID.pack(value >> 16, value & 0xFFFF),
    oids.XID: _U4.pack,
    oids.XID8: _I8.pack,  # a timestamp, far below 2⁶³
    oids.CID: _U4.pack,
    oids.TEXT: _text,
    oids.VARCHAR: _text,
    oids.BPCHAR: _text,
    oids.UNKNOWN: _text,
    oids.REFCURSOR: _text,
    **dict.fromkeys(oids.OF_CATALOG - {oids.ACLITEM, oids.ANYARRAY}, _text),
    oids.INET: _inet,
    oids.VOID: _text,
    oids.JSON: _text,
    oids.JSONB: _jsonb,
    oids.JSONPATH: _jsonb,
    oids.FLOAT4: _F4.pack,
    oids.FLOAT8: _F8.pack,
    oids.NUMERIC: write_numeric,
    oids.UUID: _uuid,
    oids.DATE: _date,
    oids.TIME: _time,
    oids.TIMESTAMP: _timestamp,
    oids.TIMESTAMPTZ: _timestamptz,
    oids.INTERVAL: _interval,
}


@lru_cache(maxsize=512)
def writer(oid: int) -> Writer:
    """Raises SqlError: no such type, or PostgreSQL has no binary format for it."""
    if oid in _WRITERS:
        return _WRITERS[oid]
    if oid in oids.NAMES_OF_OBJECTS:
        return _regclass
    if oid in _WITHOUT:
        raise _no_function("output", oid)
    if enums.is_enum(oid):
        return _text
    element = oids.element_of(oid)
    if element is None:
        raise no_such_type(oid)
    lower = 0 if oid in (oids.INT2VECTOR, oids.OIDVECTOR) else 1
    return _array_writer(element.oid, writer(element.oid), lower)


def _no_function(direction: str, oid: int) -> SqlError:
    name = oids.TYPES[oid].sql_name
    message = f"no binary {direction} function available for type {name}"
    return SqlError(UNDEFINED_FUNCTION, message)


def _array_writer(element: int, write: Writer, lower: int) -> Writer:
    def one(value: object) -> bytes:
        if value is None:
            return b"\xff\xff\xff\xff"
        raw = write(value)
        return _I4.pack(len(raw)) + raw

    def array(values: Any) -> bytes:
        if isinstance(values, str):  # a vector as the catalog has it: "1 2"
            values = [int(piece) for piece in values.split()]
        shape = shape_of(values)
        if not shape and lower:
            return _ARRAY.pack(0, 0, element)
        flat = values
        for _ in shape[1:]:
            flat = [value for row in paused(flat) for value in row]
        out = [_ARRAY.pack(len(shape) or 1, None in flat, element)]
        out += [_DIMENSION.pack(length, lower) for length in shape or (0,)]
        out += measured(map(one, paused(flat)))
        return b"".join(out)

    return array


# -- in


def _sized(of: struct.Struct, name: str) -> Reader:
    def read(raw: bytes) -> Any:
        if len(raw) != of.size:
            raise _wrong_length(name)
        return of.unpack(raw)[0]

    return read


def _wrong_length(name: str) -> SqlError:
    return SqlError(INVALID_BINARY, f"incorrect binary data format for type {name}")


def _read_name(raw: bytes) -> str:
    """Refused where the text would be cut, as by PostgreSQL."""
    if len(raw) > NAME_BYTES_MAX:
        raise SqlError(
            NAME_TOO_LONG,
            "identifier too long",
            detail=f"Identifier must be less than {NAME_BYTES_MAX + 1} characters.",
        )
    return read_text(raw)


def read_text(raw: bytes) -> str:
    """UTF-8 without NUL: what PostgreSQL's texts may be. Raises SqlError (22021)."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{byte:02x}" for byte in raw[error.start : max(error.end, 1)])
        message = f'invalid byte sequence for encoding "UTF8": {wrong}'
        raise SqlError(INVALID_ENCODING, message) from None
    if "\x00" in text:
        raise SqlError(INVALID_ENCODING, 'invalid byte sequence for encoding "UTF8": 0x00')
    return text


def _read_bool(raw: bytes) -> bool:
    if len(raw) != 1:
        raise _wrong_length("boolean")
    return raw != b"\x00"


def _read_tid(data: bytes) -> int:
    if len(data) != _TID.size:
        raise SqlError("22P03", "incorrect binary data format for type tid")
    block, place = _TID.unpack(data)
    return int(block << 16 | place)


def _read_char(raw: bytes) -> str:
    if len(raw) != 1:
        raise _wrong_length('"char"')
    return "" if raw == b"\x00" else raw.decode("latin-1")


def _read_json(raw: bytes) -> str:
    return read_json(read_text(raw))


def _read_jsonb(raw: bytes) -> str:
    if raw[:1] != b"\x01":
        version = raw[0] if raw else 0
        raise SqlError(INVALID_BINARY, f"unsupported jsonb version number {version}")
    return read_jsonb(read_text(raw[1:]))


def _read_jsonpath(raw: bytes) -> str:
    if raw[:1] != b"\x01":
        version = raw[0] if raw else 0
        raise SqlError(INVALID_BINARY, f"unsupported jsonpath version number {version}")
    return jsonpaths.canonical(read_text(raw[1:]))


def _read_uuid(raw: bytes) -> UUID:
    if len(raw) != 16:
        raise _wrong_length("uuid")
    return UUID(bytes=raw)


_read_i4 = _sized(_I4, "date")
_read_time_us = _sized(_I8, "time")
_read_moment_us = _sized(_I8, "timestamp")


def _read_date(raw: bytes) -> date:
    days: int = _read_i4(raw)
    if days in _INFINITE_DATE:
        raise unsupported("infinity of type date")
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise SqlError(DATETIME_OVERFLOW, "date out of range") from None


def _read_time(raw: bytes) -> time:
    us: int = _read_time_us(raw)
    if us == _DAY_US:
        raise unsupported("the time 24:00:00", hint="The last one is 23:59:59.999999.")
    if not 0 <= us < _DAY_US:
        raise SqlError(DATETIME_OVERFLOW, "time out of range")
    return (_EPOCH + timedelta(microseconds=us)).time()


def _moment(raw: bytes, epoch: datetime, name: str) -> datetime:
    us: int = _read_moment_us(raw)
    if us in (_INT8_MIN, _INT8_MAX):
        raise unsupported(f"infinity of type {name}")
    try:
        return epoch + timedelta(microseconds=us)
    except OverflowError:
        raise SqlError(DATETIME_OVERFLOW, "timestamp out of range") from None


def _read_timestamp(raw: bytes) -> datetime:
    return _moment(raw, _EPOCH, "timestamp")


def _read_timestamptz(raw: bytes) -> datetime:
    return _moment(raw, _EPOCH_UTC, "timestamp with time zone")


def _read_interval(raw: bytes) -> Interval:
    if len(raw) != _INTERVAL.size:
        raise _wrong_length("interval")
    us, days, months = _INTERVAL.unpack(raw)
    return Interval(months, days, us)


def read_numeric(raw: bytes) -> Decimal:
    if len(raw) < _NUMERIC.size:
        raise SqlError(INVALID_BINARY, "insufficient data left in message")
    count, weight, sign, scale = _NUMERIC.unpack_from(raw)
    if count < 0 or len(raw) != _NUMERIC.size + 2 * count:
        raise SqlError(INVALID_BINARY, "insufficient data left in message")
    if sign in (_NAN, _INFINITE, _MINUS_INFINITE):
        return Decimal({_NAN: "NaN", _INFINITE: "Infinity"}.get(sign, "-Infinity"))
    if sign not in (_PLUS, _MINUS):
        raise SqlError(INVALID_BINARY, 'invalid sign in external "numeric" value')
    if scale & _SCALE_MASK != scale:
        raise SqlError(INVALID_BINARY, 'invalid scale in external "numeric" value')
    groups = struct.unpack_from(f">{count}h", raw, _NUMERIC.size)
    if any(not 0 <= group < 10_000 for group in groups):
        raise SqlError(INVALID_BINARY, 'invalid digit in external "numeric" value')
    return checked_numeric(_numeric(groups, weight, sign == _MINUS, scale))


def _numeric(groups: tuple[int, ...], weight: int, negative: bool, scale: int) -> Decimal:
    """Digits as text, cut or filled to the scale, as PostgreSQL cuts what it was sent."""
    text = "".join([f"{group:04}" for group in groups])
    behind = (len(groups) - 1 - weight) * 4  # digits after the point
    if behind < scale:
        text += "0" * (scale - behind)
    elif behind > scale:
        text = text[: max(0, len(text) - (behind - scale))]
    digits = text.lstrip("0") or "0"
    return Decimal(f"{'-' if negative else ''}{digits}e{-scale}")


_READERS: Final[dict[int, Reader]] = {
    oids.BOOL: _read_bool,
    oids.BYTEA: bytes,
    oids.CHAR: _read_char,
    oids.NAME: _read_name,
    oids.INT2: _sized(_I2, "smallint"),
    oids.INT4: _sized(_I4, "integer"),
    oids.INT8: _sized(_I8, "bigint"),
    oids.OID: _sized(_U4, "oid"),
    oids.TID: _read_tid,
    oids.XID: _sized(_U4, "xid"),
    oids.XID8: _sized(_I8, "xid8"),
    oids.INET: _read_inet,
    oids.CID: _sized(_U4, "cid"),
    oids.TEXT: read_text,
    oids.VARCHAR: read_text,
    oids.BPCHAR: read_text,
    oids.UNKNOWN: read_text,
    oids.REFCURSOR: read_text,
    oids.JSON: _read_json,
    oids.JSONB: _read_jsonb,
    oids.JSONPATH: _read_jsonpath,
    oids.FLOAT4: _sized(_F4, "real"),
    oids.FLOAT8: _sized(_F8, "double precision"),
    oids.NUMERIC: read_numeric,
    oids.UUID: _read_uuid,
    oids.DATE: _read_date,
    oids.TIME: _read_time,
    oids.TIMESTAMP: _read_timestamp,
    oids.TIMESTAMPTZ: _read_timestamptz,
    oids.INTERVAL: _read_interval,
}


@lru_cache(maxsize=512)
def reader(oid: int) -> Reader:
    """Raises SqlError: no such type, or PostgreSQL has no binary format for it."""
    if oid in _READERS:
        return _READERS[oid]
    if oid in oids.NAMES_OF_OBJECTS:
        return _READERS[oids.OID]
    if oid in _WITHOUT or oid in oids.OF_CATALOG or oid == oids.VOID:
        raise _no_function("input", oid)
    if (enum := enums.of(oid)) is not None:
        return lambda raw: enum.read(read_text(raw))
    element = oids.element_of(oid)
    if element is None:
        raise no_such_type(oid)
    return _array_reader(element.oid, reader(element.oid))


def _array_reader(element: int, read: Reader) -> Reader:
    def array(raw: bytes) -> list[Any]:
        try:
            lengths, at = _dimensions(raw, element)
            flat, at = _elements(raw, at, lengths, read)
        except struct.error:
            raise SqlError(INVALID_BINARY, "insufficient data left in message") from None
        if at != len(raw):
            raise _wrong_length("array")
        for length in lengths[:0:-1]:
            flat = [flat[i : i + length] for i in paused(range(0, len(flat), length))]
        return flat

    return array


def _dimensions(raw: bytes, element: int) -> tuple[list[int], int]:
    count, flags, oid = _ARRAY.unpack_from(raw)
    if not 0 <= count <= DIMENSIONS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED if count > 0 else INVALID_BINARY,
            f"number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})"
            if count > 0
            else f"invalid number of dimensions: {count}",
        )
    if flags not in (0, 1):
        raise SqlError(INVALID_BINARY, "invalid array flags")
    if oid != element:
        wanted = oids.format_type(element)
        message = f"binary data has array element type {oid} ({oids.format_type(oid)}) instead of "
        raise SqlError("42804", f"{message}expected {element} ({wanted})")
    lengths = []
    at = _ARRAY.size
    for _ in range(count):
        length, lower = _DIMENSION.unpack_from(raw, at)
        at += _DIMENSION.size
        if length < 0:
            raise SqlError(INVALID_BINARY, "invalid array dimensions")
        if lower != 1 and element not in (oids.INT2, oids.OID):
            raise unsupported("an array whose subscripts do not begin at 1")
        lengths.append(length)
    if 0 in lengths:
        return [], at
    return lengths, at


def _elements(raw: bytes, at: int, lengths: list[int], read: Reader) -> tuple[list[object], int]:
    total = 1 if lengths else 0
    for length in lengths:
        total *= length
    if total * 4 > len(raw) - at:  # every element has at least its length: nothing is reserved
        raise SqlError(INVALID_BINARY, "insufficient data left in message")
    values: list[object] = []
    for _ in paused(range(total)):
        size = _I4.unpack_from(raw, at)[0]
        at += 4
        if size == -1:
            values.append(None)
            continue
        if size < 0 or size > len(raw) - at:
            raise SqlError(INVALID_BINARY, "insufficient data left in message")
        values.append(read(raw[at : at + size]))
        at += size
    return values, at
