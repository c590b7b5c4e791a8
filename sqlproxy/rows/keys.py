"""Column values as bytes whose order is the order of the values: the user keys of declared tables
and of their indexes.

A key is its components one after the other; byte order of keys = order of the tuples (property test
C3). Each component begins with a tag and ends by its length or a terminator, so that none is a
prefix of another one of its type. Order is PostgreSQL's, with the "C" collation for text (code
points).

    NULL          FF where NULLs come last, 00 where they come first; never inverted
    bool          10  00 | 01
    int2/4/8, oid 20  8 bytes big-endian, sign bit flipped: of one width, so that a column can be
                      widened
    enum          21  8 bytes, the position of the label, sign bit flipped
    float4/8      30  8 bytes of the IEEE double: sign bit flipped if positive, all bits if
                      negative; −0 becomes 0, every NaN 7FF8…: above infinity, equal to itself
    numeric       40  20 = −∞ | 60 ~body = negative | 80 = zero | A0 body = positive | E0 = ∞ | F0 =
                      NaN; body, of 0.d1d2d3… × 10^e with d1 > 0 and no zero at the end: [e + 2^31,
                      4 bytes big-endian] [digit pairs + 1, one byte each] 00
    text          50  UTF-8, 00 as 00 FF, end 00 01. So are varchar, name, and char(n) without the
                      blanks at its end
    bytea         51  the same of the bytes
    uuid          52  16 bytes
    date          60  4 bytes, days since 1970, sign bit flipped
    time, timestamp, timestamptz   61, 62, 63   8 bytes, µs, sign bit flipped
    interval      64  16 bytes, its length in µs (a month = 30 days), sign bit flipped
    T[]           70  the elements' components, NULL as FF, then 00, the number of dimensions (1
                      byte) and the length of each (4 bytes big-endian)

A descending component is the ascending one with all bits inverted. Without other words NULLs come
last ascending and first descending, as in PostgreSQL; the primary key is ascending and has none.

json has no order in PostgreSQL either. jsonb has one there, which is not built here: neither can be
in a key. A key tells values apart no more finely than `=` does: the scale of a numeric, the sign of
zero, the fields of an interval are lost (`EXACT` says where nothing is).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isnan
from typing import Any, Final

from kv.base.keys import escape, unescape
from sqlproxy.values import arrays
from sqlproxy.values.interval import DAY_US, DAYS_PER_MONTH, INT32, Interval
from sqlproxy.values.types import ARRAY, INTERVAL, Type

NULL: Final = b"\xff"
NULL_FIRST: Final = b"\x00"
SIGN64: Final = 1 << 63
SIGN32: Final = 1 << 31
MASK64: Final = (1 << 64) - 1
NAN_BITS: Final = 0x7FF8 << 48

TAG: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), 0x20),
    **dict.fromkeys(("float4", "float8"), 0x30),
    **dict.fromkeys(("text", "varchar", "char", "name"), 0x50),
    "bool": 0x10,
    "enum": 0x21,
    "numeric": 0x40,
    "bytea": 0x51,
    "uuid": 0x52,
    "date": 0x60,
    "time": 0x61,
    "timestamp": 0x62,
    "timestamptz": 0x63,
    "interval": 0x64,
    ARRAY: 0x70,
}
EXACT: Final = frozenset(TAG) - {"float4", "float8", "numeric", "char", "interval", ARRAY}
"""Types whose stored value can be had back from a key."""
_ARRAY_END: Final = b"\x00"  # below every tag: a shorter array sorts first

_TAG_U64 = struct.Struct(">BQ")
_TAG_U32 = struct.Struct(">BI")
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
_INVERT: Final = bytes(range(255, -1, -1))

Encode = Callable[[Any], bytes]  # a stored value that is not None → its component, tag included
EncodeNull = Callable[[Any], bytes]  # the same, None too
Decode = Callable[[bytes, int], tuple[object, int]]  # key, offset after the tag → stored value, end


def unordered(kind: Type) -> str:
    """Why values of this type cannot be in a key; "" if they can."""
    inner = kind.element or kind
    if inner.base in TAG:
        return ""
    if inner.base == "jsonb":
        return "PostgreSQL's order of jsonb values is not supported; index an expression of them"
    return f"{inner.name} has no order"


def encoder(base: str) -> Encode:
    """The component encoder of a scalar type (its `base` name). KeyError for json."""
    tag = TAG[base]
    head = bytes([tag])
    match base:
        case "bool":
            return lambda value: head + (b"\x01" if value else b"\x00")
        case "int2" | "int4" | "int8" | "oid" | "enum" | "time" | "timestamp" | "timestamptz":
            pack = _TAG_U64.pack
            return lambda value: pack(tag, value + SIGN64)
        case "date":
            pack32 = _TAG_U32.pack
            return lambda value: pack32(tag, value + SIGN32)
        case "float4" | "float8":
            return lambda value: head + _float_in(value)
        case "numeric":
            return lambda value: head + _numeric_in(value)
        case "text" | "varchar" | "name":
            return lambda value: head + escape(value.encode())
        case "char":
            return lambda value: head + escape(value.rstrip(" ").encode())
        case "bytea":
            return lambda value: head + escape(value)
        case "interval":
            return lambda value: head + _interval_in(value)
        case _:
            assert base == "uuid", base
            return lambda value: head + value


def encode(bases: Sequence[str], values: Sequence[object]) -> bytes:
    """A composite of stored values, None = NULL. (`RowCodec` keeps the encoders; its keys have no
    NULL.)
    """
    parts = [
        NULL if value is None else encoder(base)(value)
        for base, value in zip(bases, values, strict=True)
    ]
    return b"".join(parts)


def decoder(base: str) -> Decode:
    """The inverse of `encoder`; gives what is stored. Raises ValueError or struct.error for other
    bytes.
    """
    match base:
        case "bool":
            return lambda key, at: (key[at] != 0, at + 1)
        case "int2" | "int4" | "int8" | "oid" | "enum" | "time" | "timestamp" | "timestamptz":
            return lambda key, at: (_U64.unpack_from(key, at)[0] - SIGN64, at + 8)
        case "date":
            return lambda key, at: (_U32.unpack_from(key, at)[0] - SIGN32, at + 4)
        case "float4" | "float8":
            return lambda key, at: (_float_out(key, at), at + 8)
        case "numeric":
            return _numeric_out
        case "text" | "varchar" | "char" | "name":
            return _text_out
        case "bytea":
            return unescape
        case "interval":
            return _interval_out
        case _:
            assert base == "uuid", base
            return lambda key, at: (key[at : at + 16], at + 16)


def encoder_of(kind: Type) -> Encode:
    """The component encoder of a type, arrays too. KeyError for what is `unordered`."""
    if kind.element is None:
        return encoder(kind.base)
    inner = encoder(kind.element.base)
    head = bytes([TAG[ARRAY]])

    def array(value: list[object]) -> bytes:
        parts = [NULL if one is None else inner(one) for one in arrays.flat(value)]
        dims = arrays.shape(value)
        return b"".join(
            (head, *parts, _ARRAY_END, bytes([len(dims)]), *(_U32.pack(size) for size in dims))
        )

    return array


def decoder_of(kind: Type) -> Decode:
    """The inverse of `encoder_of`."""
    if kind.element is None:
        return decoder(kind.base)
    tag, inner = TAG[kind.element.base], decoder(kind.element.base)

    def array(key: bytes, at: int) -> tuple[list[object], int]:
        found: list[object] = []
        while key[at] != _ARRAY_END[0]:
            if key[at] == NULL[0]:
                found.append(None)
                at += 1
                continue
            value, at = inner(key, checked_tag(key, at, tag))
            found.append(value)
        count, at = key[at + 1], at + 2
        dims = struct.unpack_from(f">{count}I", key, at)
        return arrays.nested(found, dims), at + 4 * count

    return array


def checked_tag(key: bytes, at: int, tag: int) -> int:
    """The offset after the tag. Raises ValueError, IndexError."""
    if key[at] != tag:
        raise ValueError(f"tag {key[at]:#04x} at offset {at}, expected {tag:#04x}")
    return at + 1


def component(kind: Type, *, descending: bool = False, nulls_first: bool = False) -> EncodeNull:
    """The encoder of one column of an index, NULLs too. KeyError for what is `unordered`."""
    encode_one = encoder_of(kind)
    null = NULL_FIRST if nulls_first else NULL
    if descending:
        return lambda value: null if value is None else encode_one(value).translate(_INVERT)
    return lambda value: null if value is None else encode_one(value)


def component_out(kind: Type, *, descending: bool = False, nulls_first: bool = False) -> Decode:
    """The inverse of `component`; its offset is that of the tag. Raises ValueError, IndexError,
    struct.error.
    """
    tag, decode_one = TAG[kind.base], decoder_of(kind)
    null = (NULL_FIRST if nulls_first else NULL)[0]

    def decode(key: bytes, at: int) -> tuple[Any, int]:
        if key[at] == null:
            return None, at + 1
        if not descending:
            return decode_one(key, checked_tag(key, at, tag))
        rest = key[at:].translate(_INVERT)
        value, end = decode_one(rest, checked_tag(rest, 0, tag))
        return value, at + end

    return decode


def _text_out(key: bytes, at: int) -> tuple[str, int]:
    raw, end = unescape(key, at)
    return raw.decode(), end


def _float_in(value: float) -> bytes:
    # −0 + 0 = 0
    bits = NAN_BITS if isnan(value) else _U64.unpack(_DOUBLE.pack(value + 0.0))[0]
    return _U64.pack(bits ^ MASK64 if bits & SIGN64 else bits ^ SIGN64)


def _float_out(key: bytes, at: int) -> float:
    bits = _U64.unpack_from(key, at)[0]
    value: float = _DOUBLE.unpack(_U64.pack(bits ^ SIGN64 if bits & SIGN64 else bits ^ MASK64))[0]
    return value


def _numeric_in(stored: str) -> bytes:
    number = Decimal(stored)
    if not number.is_finite():
        return b"\xf0" if number.is_nan() else b"\x20" if number < 0 else b"\xe0"
    if not number:
        return b"\x80"
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) + exponent
    text = "".join(map(str, digits)).rstrip("0")
    text += "0" * (len(text) % 2)
    pairs = bytes(int(text[i : i + 2]) + 1 for i in range(0, len(text), 2))
    body = _U32.pack(power + SIGN32) + pairs + b"\x00"
    return b"\x60" + body.translate(_INVERT) if sign else b"\xa0" + body


def _numeric_out(key: bytes, at: int) -> tuple[str, int]:
    kind, at = key[at], at + 1
    if kind in _SPECIAL:
        return _SPECIAL[kind], at
    negative = kind == 0x60
    if not negative and kind != 0xA0:
        raise ValueError(f"bad numeric sign {kind:#x} at offset {at - 1}")
    head = key[at : at + 4]
    end = key.index(b"\xff" if negative else b"\x00", at + 4)
    pairs = key[at + 4 : end]
    if negative:
        head, pairs = head.translate(_INVERT), pairs.translate(_INVERT)
    digits = "".join(f"{pair - 1:02d}" for pair in pairs).rstrip("0")
    power = _U32.unpack(head)[0] - SIGN32
    number = Decimal((int(negative), tuple(map(int, digits)), power - len(digits)))
    return str(number), end + 1


def _interval_in(stored: bytes) -> bytes:
    months, days, us = INTERVAL.unpack(stored)
    span: int = (months * DAYS_PER_MONTH + days) * DAY_US + us
    return (span + (1 << 127)).to_bytes(16)


def _interval_out(key: bytes, at: int) -> tuple[bytes, int]:
    """An interval of that length: whole months, then days, then the rest."""
    raw = key[at : at + 16]
    if len(raw) != 16:
        raise ValueError("the key ends within an interval")
    span = int.from_bytes(raw) - (1 << 127)
    months = _within(span // (DAYS_PER_MONTH * DAY_US))
    span -= months * DAYS_PER_MONTH * DAY_US
    days = _within(span // DAY_US)
    found = Interval(months, days, span - days * DAY_US)
    if not found.fits:
        raise ValueError("an interval is out of range")
    return INTERVAL.pack(found.months, found.days, found.us), at + 16


def _within(number: int) -> int:
    return max(-INT32, min(INT32 - 1, number))


_SPECIAL: Final = {0x20: "-Infinity", 0x80: "0", 0xE0: "Infinity", 0xF0: "NaN"}
