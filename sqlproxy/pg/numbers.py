"""Numbers as PostgreSQL 15 writes and reads them.

int2 int4 int8 oid   decimal digits
float4 float8        the shortest digits that give the same value back; from 1e15 (float4: 1e6)
                     and below 1e-4 with an exponent of at least two digits
numeric              digits with as many after the point as the value's scale; no exponent, no
                     negative zero
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sqlproxy.pg.style import SPACES, invalid_syntax, out_of_range
from sqlproxy.values.errors import OUT_OF_RANGE, SqlError

NUMERIC_DIGITS_MAX: Final = 131_072  # before the point
NUMERIC_SCALE_MAX: Final = 16_383
NUMERIC_CHARS_MAX: Final = NUMERIC_DIGITS_MAX + NUMERIC_SCALE_MAX + 64  # with sign, exponent, zeros

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
_FLOAT4, _UINT4 = struct.Struct(">f"), struct.Struct(">I")
_FLOAT8, _UINT8 = struct.Struct(">d"), struct.Struct(">Q")
_BEHIND_FLOAT4: Final = (1 << 29) - 1  # bits of a double's mantissa that a float4 has no room for
_HALF_FLOAT4: Final = 1 << 28
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
    if -1e15 < value < 1e15:
        return text
    if special := _special(value):
        return special
    if "e" not in text:
        return _scientific(text)
    # large whole numbers are the only ones whose shortest digits may lie just between two values
    if value < 0:
        return f"-{write_float8(-value)}"
    below, above = Fraction(math.nextafter(value, 0)), _float8_above(value)
    if _inside(text, below, value, above):
        return text
    digits = (f"{value:.{n}e}" for n in range(17))
    return _mantissa_cut(next(d for d in digits if _inside(d, below, value, above)))


def _float8_above(value: float) -> Fraction:
    above = math.nextafter(value, math.inf)
    return Fraction(2**1024) if above == math.inf else Fraction(above)


def write_float4(value: float) -> str:
    """`value` has float4's precision already; else it is rounded."""
    if special := _special(value):
        return special
    bits = _UINT4.unpack(_FLOAT4.pack(value))[0]
    exact = _float4(bits)
    if not exact:
        return "-0" if bits else "0"
    sign = "-" if bits >> 31 else ""
    magnitude = bits & 0x7FFFFFFF
    below, above = Fraction(_float4(magnitude - 1)), Fraction(_float4_above(magnitude))
    size = abs(exact)
    digits = next(d for n in range(1, 10) if (d := _float4_digits(size, n, below, above)))
    exponent = digits.partition("e")[2]
    if not -4 <= int(exponent) < 6:
        return sign + _mantissa_cut(digits)
    plain = f"{Decimal(digits):f}"
    return sign + (plain.rstrip("0").rstrip(".") if "." in plain else plain)


def _float4(bits: int) -> float:
    value: float = _FLOAT4.unpack(_UINT4.pack(bits))[0]
    return value


def _float4_above(magnitude: int) -> float:
    """The next larger one; after the last one, where it would be."""
    above = _float4(magnitude + 1)
    return above if above != math.inf else 2.0**128


def _float4_digits(size: float, count: int, below: Fraction, above: Fraction) -> str:
    """`size` in so many digits if they give it back, else empty. At powers of two the gap below is
    half as wide, so that the nearest digits may miss while the next ones above hit.
    """
    nearest = f"{size:.{count - 1}e}"
    if _inside(nearest, below, size, above):
        return nearest
    mantissa, exponent = nearest.split("e")
    further = f"{Decimal(mantissa) + Decimal((0, (1,), 1 - count)):f}e{exponent}"
    return further if _inside(further, below, size, above) else ""


def _inside(digits: str, below: Fraction, value: float, above: Fraction) -> bool:
    """Whether a reader of the digits must come to `value`: they are nearer to it than to both of
    its neighbours. PostgreSQL does not count on how a reader rounds what is just between.
    """
    given, exact = Fraction(digits), Fraction(value)
    return (below + exact) / 2 < given < (exact + above) / 2


def _mantissa_cut(digits: str) -> str:
    mantissa, exponent = digits.split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"


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
            value = _nearest_float4(stripped)
        except OverflowError:
            raise _float_out_of_range("real", stripped) from None
        if not value and _is_nonzero(stripped):
            raise _float_out_of_range("real", stripped)
        return value
    return _special_number("real", text, stripped)


def _nearest_float4(number: str) -> float:
    """Rounded once. By way of a double it would be rounded twice, which matters where the double
    lies just between two float4. Raises OverflowError.
    """
    double = float(number)
    rounded: float = _FLOAT4.unpack(_FLOAT4.pack(double))[0]
    if _UINT8.unpack(_FLOAT8.pack(double))[0] & _BEHIND_FLOAT4 != _HALF_FLOAT4:
        return rounded
    given, between = Fraction(number), Fraction(double)
    if given == between:
        return rounded
    nudged = math.nextafter(double, math.inf if given > between else -math.inf)
    value: float = _FLOAT4.unpack(_FLOAT4.pack(nudged))[0]
    return value


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
    if len(exponent.lstrip("+-0")) > _EXPONENT_DIGITS_MAX or len(stripped) > NUMERIC_CHARS_MAX:
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


# -- tid: a block and a place in it, held as one number of 48 bits

_TID = re.compile(r"\(([0-9]{1,10}),([0-9]{1,5})\)")


def write_tid(value: int) -> str:
    return f"({value >> 16},{value & 0xFFFF})"


def read_tid(text: str) -> int:
    """Raises SqlError (22P02)."""
    found = _TID.fullmatch(text.strip())
    if found is None or int(found[1]) >> 32 or int(found[2]) >> 16:
        raise invalid_syntax("tid", text)
    return int(found[1]) << 16 | int(found[2])
