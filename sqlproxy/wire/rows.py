"""What is compiled once per statement: rows → DataRow messages, parameters → values. Pure.

A row's encoder is generated: for two columns, int4 in binary and text in text,

    def encode(rows, out):
        for v0, v1 in rows:
            body = b"".join((
                COUNT,
                NULL if v0 is None else P0(4, v0),
                NULL if v1 is None else (SHORT[n] if (n := len(s := v1.encode())) < 256
                                         else LENGTH(n)) + s,
            ))
            out += b"D" + LENGTH(len(body) + 4)
            out += body

which costs a third of a loop over functions. Its source is made of nothing but the number of
columns, their types and formats; no text of users is in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlproxy.pg import binary, oids, text
from sqlproxy.pg.binary import read_text
from sqlproxy.pg.style import Style

Encode = Callable[[Iterable[Sequence[object]], bytearray], None]
Read = Callable[[bytes], object]

_LENGTH: Final = struct.Struct(">I").pack
_SHORT: Final = tuple(_LENGTH(n) for n in range(256))
_NULL: Final = b"\xff\xff\xff\xff"
_TRUE_TEXT, _FALSE_TEXT = b"\x00\x00\x00\x01t", b"\x00\x00\x00\x01f"
_TRUE, _FALSE = b"\x00\x00\x00\x01\x01", b"\x00\x00\x00\x01\x00"
# of fixed size in binary: the struct of length and value, and the length
_FIXED: Final = {
    oids.INT2: (struct.Struct(">ih").pack, 2),
    oids.INT4: (struct.Struct(">ii").pack, 4),
    oids.INT8: (struct.Struct(">iq").pack, 8),
    oids.OID: (struct.Struct(">iI").pack, 4),
    oids.FLOAT4: (struct.Struct(">if").pack, 4),
    oids.FLOAT8: (struct.Struct(">id").pack, 8),
}
_INTEGERS: Final = frozenset({oids.INT2, oids.INT4, oids.INT8, oids.OID})
_DIGITS: Final = {oids.INT2: 4, oids.INT4: 9, oids.INT8: 18}  # so many are never out of range
_STRINGS: Final = frozenset({oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.NAME, oids.JSON})
_SIZED: Final = "(SHORT[n] if (n := len(s := {raw})) < 256 else LENGTH(n)) + s"


def row_encoder(types: tuple[int, ...], formats: tuple[int, ...], style: Style) -> Encode:
    """Rows of these OIDs into messages after `out`. Raises SqlError: a type has no such format."""
    return _encoders(types, formats, style)[0]


def message_encoder(
    types: tuple[int, ...], formats: tuple[int, ...], style: Style
) -> Callable[[Sequence[object]], bytes]:
    """The same of one row, into its message."""
    return _encoders(types, formats, style)[1]


@lru_cache(maxsize=4_096)
def _encoders(
    types: tuple[int, ...], formats: tuple[int, ...], style: Style
) -> tuple[Encode, Callable[[Sequence[object]], bytes]]:
    names: dict[str, Any] = {
        "COUNT": len(types).to_bytes(2),
        "LENGTH": _LENGTH,
        "NULL": _NULL,
        "SHORT": _SHORT,
    }
    columns = [
        f"NULL if v{i} is None else {_column(i, oid, code, style, names)}"
        for i, (oid, code) in enumerate(zip(types, formats, strict=True))
    ]
    variables = "".join([f"v{i}, " for i in range(len(types))]) or "_"
    body = f"b''.join((COUNT, {', '.join(columns)}))"
    lines = [
        "def encode(rows, out):",
        f"    for {variables} in rows:",
        f"        body = {body}",
        "        out += b'D' + LENGTH(len(body) + 4)",
        "        out += body",
        "def message(row):",
        f"    {variables} = row",
        f"    body = {body}",
        "    return b'D' + LENGTH(len(body) + 4) + body",
    ]
    exec("\n".join(lines), names)
    return names["encode"], names["message"]


def _column(at: int, oid: int, code: int, style: Style, names: dict[str, object]) -> str:
    """The expression of a column that is not NULL; what it calls goes to `names`."""
    value = f"v{at}"
    if oid == oids.BOOL:
        names["T"], names["F"], names["TT"], names["FT"] = _TRUE, _FALSE, _TRUE_TEXT, _FALSE_TEXT
        return f"T if {value} else F" if code else f"TT if {value} else FT"
    if code and oid in _FIXED:
        names[f"P{at}"], size = _FIXED[oid]
        return f"P{at}({size}, {value})"
    if oid in _INTEGERS:
        return f"SHORT[len(s := b'%d' % {value})] + s"
    if oid in _STRINGS:
        return _SIZED.format(raw=f"{value}.encode()")
    if code:
        names[f"W{at}"] = binary.writer(oid)
        return _SIZED.format(raw=f"W{at}({value})")
    names[f"W{at}"] = text.writer(oid, style)
    return _SIZED.format(raw=f"W{at}({value}).encode()")


@lru_cache(maxsize=4_096)
def parameter_reader(oid: int, code: int, style: Style) -> Read:
    """A parameter's bytes into its value. Raises SqlError: no such type, no such format."""
    if code:
        return binary.reader(oid)
    read = text.reader(oid, style)
    if oid in _STRINGS and oid not in (oids.NAME, oids.JSON):
        return read_text
    if oid in _DIGITS:
        digits = _DIGITS[oid]

        def read_integer(raw: bytes) -> object:
            if len(raw) <= digits and raw.isdigit():  # ASCII's, and there is one
                return int(raw)
            return read(read_text(raw))

        return read_integer

    def read_parameter(raw: bytes) -> object:
        return read(read_text(raw))

    return read_parameter
