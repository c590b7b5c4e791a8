"""Numbers as PostgreSQL 15 writes and reads them.

int2 int4 int8 oid   decimal digits
float4 float8        the shortest digits that give the same value back; from 1e15 (float4: 1e6)
                     and below 1e-4 with an exponent of at least two digits
numeric              digits with as many behind the point as the value's scale; no exponent, no
                     negative zero
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from sqlproxy.errors import OUT_OF_RANGE, SqlError
from sqlproxy.pg.style import SPACES, invalid_syntax, out_of_range

NUMERIC_DIGITS_MAX: Final = 131_072  # before the point
NUMERIC_SCALE_MAX: Final = 16_383

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_SPECIAL: Final = {
    "nan": "NaN",
    "inf": "Infinity",
    "+inf": "Infinity",
    "infinity": "Infinity",
    "+infinity": "Infinity",
    "-inf": "-Infinity",
    "-infinity": "-Infinity",
}
_FLOAT4 = struct.Struct(">f")
_EXPONENT_DIGITS_MAX: Final = 9  # of a numeric: longer ones overflow in any case


def integer_reader(type_name: str, bits: int) -> Callable[[str], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(text: str) -> int:
        stripped = text.strip(SPACES)
        if _INTEGER.fullmatch(stripped) is None:
            raise invalid_syntax(type_name, text)
        digits = stripped.lstrip("+-").lstrip("0")
        value = int(digits or "0") if len(digits) < 20 else high + 2
        if stripped[0] == "-":
            value = -value
        if not low <= value <= high:
            raise out_of_range(type_name, text)
        return value

    return read


def read_oid(text: str) -> int:
    """Unsigned; negative ones wrap, as in C."""
    stripped = text.strip(SPACES)
    if _INTEGER.fullmatch(stripped) is None:
        raise invalid_syntax("oid", text)
    value = int(stripped) if len(stripped) < 20 else 1 << 32
    if not -(1 << 31) <= value < 1 << 32:
        raise out_of_range("oid", text)
    return value & 0xFFFFFFFF


def write_float8(value: float) -> str:
    text = repr(value)
    if text[-2:] == ".0":
        text = text[:-2]
    if -1e15 < value < 1e15 or "e" in text:
        return text
    return _special(value) or _scientific(text)


def write_float4(value: float) -> str:
    """`value` has float4's precision already; else it is rounded."""
    if special := _special(value):
        return special
    packed = _FLOAT4.pack(value)
    exact: float = _FLOAT4.unpack(packed)[0]
    digits = next(d for n in range(6, 10) if (d := _shortest(exact, n, packed)))
    mantissa, exponent = digits.split("e")
    power = int(exponent)
    if not -4 <= power < 6:
        return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"
    plain = f"{Decimal(digits):f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _shortest(value: float, digits: int, packed: bytes) -> str:
    """`value` in so many digits if they give it back, else empty. At powers of two the gap below is
    half as wide, so that the nearest digits may miss while the next ones above hit.
    """
    nearest = f"{value:.{digits - 1}e}"
    if _FLOAT4.pack(float(nearest)) == packed:
        return nearest
    mantissa, exponent = nearest.split("e")
    step = Decimal((0, (1,), 1 - digits))
    further = Decimal(mantissa) + (step if value > 0 else -step)
    candidate = f"{further:f}e{exponent}"
    try:
        return candidate if _FLOAT4.pack(float(candidate)) == packed else ""
    except OverflowError:
        return ""


def _special(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return ""


def _scientific(plain: str) -> str:
    """Digits of a number from 1e15 below 1e16, where repr still writes them out."""
    sign = "-" if plain[0] == "-" else ""
    whole, _, fraction = plain.lstrip("-").partition(".")
    mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0").rstrip(".")
    return f"{sign}{mantissa}e+{len(whole) - 1}"


def read_float8(text: str) -> float:
    stripped = text.strip(SPACES)
    if _NUMBER.fullmatch(stripped) is not None:
        value = float(stripped)
        if value in (float("inf"), float("-inf")) or (not value and _is_nonzero(stripped)):
            raise _float_out_of_range("double precision", stripped)
        return value
    return _special_number("double precision", text, stripped)


def read_float4(text: str) -> float:
    stripped = text.strip(SPACES)
    if _NUMBER.fullmatch(stripped) is not None:
        try:
            value: float = _FLOAT4.unpack(_FLOAT4.pack(float(stripped)))[0]
        except OverflowError:
            raise _float_out_of_range("real", stripped) from None
        if value in (float("inf"), float("-inf")) or (not value and _is_nonzero(stripped)):
            raise _float_out_of_range("real", stripped)
        return value
    return _special_number("real", text, stripped)


def _special_number(type_name: str, text: str, stripped: str) -> float:
    special = _SPECIAL.get(stripped.lower())
    if special is None:
        raise invalid_syntax(type_name, text)
    return float(special)


def _is_nonzero(number: str) -> bool:
    mantissa = re.split("[eE]", number)[0]
    return any(c in "123456789" for c in mantissa)


def _float_out_of_range(type_name: str, text: str) -> SqlError:
    return SqlError(OUT_OF_RANGE, f'"{text}" is out of range for type {type_name}')


def write_numeric(value: Decimal | int) -> str:
    if type(value) is int:
        value = Decimal(value)
    assert isinstance(value, Decimal)
    if value.is_finite():
        text = format(value, "f")
        return text[1:] if not value and text[0] == "-" else text
    if value.is_nan():
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def read_numeric(text: str) -> Decimal:
    stripped = text.strip(SPACES)
    found = _NUMBER.fullmatch(stripped)
    if found is None:
        special = _SPECIAL.get(stripped.lower())
        if special is None:
            raise invalid_syntax("numeric", text)
        return Decimal(special)
    exponent = found[1] or ""
    if len(exponent.lstrip("+-0")) > _EXPONENT_DIGITS_MAX:
        raise numeric_overflow()
    return checked_numeric(Decimal(stripped))


def checked_numeric(value: Decimal) -> Decimal:
    """The same number as PostgreSQL keeps it: no positive exponent, no negative zero. Raises
    SqlError: out of its range.
    """
    _sign, _digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if (value and value.adjusted() >= NUMERIC_DIGITS_MAX) or exponent < -NUMERIC_SCALE_MAX:
        raise numeric_overflow()
    if exponent > 0:
        return Decimal(format(value, "f")) if value else Decimal(0)
    return value if value else value.copy_abs()


def numeric_overflow() -> SqlError:
    return SqlError(OUT_OF_RANGE, "value overflows numeric format")
