"""Arithmetic and mathematics: integers with PostgreSQL's overflows, floats, numeric with its rules
of scale.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
)
from fractions import Fraction
from functools import partial
from typing import Any, Final

from sqlproxy.front.functions import series
from sqlproxy.front.functions.function import Declared, declared, total
from sqlproxy.values.breaks import pause
from sqlproxy.values.errors import DIVISION_BY_ZERO, INVALID_PARAMETER, OUT_OF_RANGE, SqlError
from sqlproxy.values.words import words

# Exact for all that numeric holds: 131,072 digits before the point, 16,383 after it.
EXACT: Final = Context(prec=300_000, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_SCALE_MAX: Final = 16_383
_RESULT_SCALE_MAX: Final = 1_000
_SIGNIFICANT: Final = 16
_DIGITS_MAX: Final = 131_072
_PACK4: Final = struct.Struct("<f")
_RANGES: Final = {"smallint": 15, "integer": 31, "bigint": 63}
_INT_DIGITS: Final = 20  # of the largest integer
NAN: Final = Decimal("NaN")
INFINITY: Final = Decimal("Infinity")


def out_of_range(name: str) -> SqlError:
    return SqlError(OUT_OF_RANGE, f"{name} out of range")


def _by_zero() -> SqlError:
    return SqlError(DIVISION_BY_ZERO, "division by zero")


def checked(function: Callable[..., int], name: str) -> Callable[..., int]:
    """An integer function whose result must fit the type."""
    high = (1 << _RANGES[name]) - 1
    low = -high - 1

    def call(*args: int) -> int:
        value = function(*args)
        if low <= value <= high:
            return value
        raise out_of_range(name)

    return call


def _binary(name: str, function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    high = (1 << _RANGES[name]) - 1
    low = -high - 1

    def call(a: int, b: int) -> int:
        value = function(a, b)
        if low <= value <= high:
            return value
        raise out_of_range(name)

    return call


def _div(a: int, b: int) -> int:
    if b == 0:
        raise _by_zero()
    value = abs(a) // abs(b)
    return value if (a < 0) == (b < 0) else -value


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise _by_zero()
    return int(math.fmod(a, b)) if abs(a) < 1 << 53 and abs(b) < 1 << 53 else a - b * _div(a, b)


def _shifted(bits: int, left: bool) -> Callable[[int, int], int]:
    mask = (1 << bits) - 1

    def call(a: int, n: int) -> int:
        n %= 32 if bits <= 32 else 64
        if not left:
            return a >> n
        value = a << n & mask
        return value - (1 << bits) if value >> bits - 1 else value

    return call


# -- floats


def _float(function: Callable[..., float], single: bool = False) -> Callable[..., float]:
    """A function of floats: overflow and underflow are errors."""

    def call(*args: float) -> float:
        try:
            value = function(*args)
        except OverflowError:
            raise SqlError(OUT_OF_RANGE, "value out of range: overflow") from None
        if single:
            value = float4(value)
        if math.isinf(value) and not any(map(math.isinf, args)):
            raise SqlError(OUT_OF_RANGE, "value out of range: overflow")
        return value

    return call


def float4(value: float) -> float:
    """Rounded to single precision. Raises 22003."""
    try:
        found: float = _PACK4.unpack(_PACK4.pack(value))[0]
    except OverflowError:
        raise SqlError(OUT_OF_RANGE, "value out of range: overflow") from None
    if found == 0 and value != 0:
        raise SqlError(OUT_OF_RANGE, "value out of range: underflow")
    return found


def _fmul(a: float, b: float) -> float:
    value = a * b
    if value == 0 and a != 0 and b != 0:
        raise SqlError(OUT_OF_RANGE, "value out of range: underflow")
    return value


def _fdiv(a: float, b: float) -> float:
    if b == 0 and a == a:
        raise _by_zero()
    if b == 0:
        return math.nan
    value = a / b
    if value == 0 and a != 0 and not math.isinf(b):
        raise SqlError(OUT_OF_RANGE, "value out of range: underflow")
    return value


def _of_domain(function: Callable[..., float]) -> Callable[..., float]:
    """A function of libm: outside of its domain 22003, NaN stays NaN."""

    def call(*args: float) -> float:
        if any(a != a for a in args):
            return math.nan
        try:
            return function(*args)
        except ValueError:
            raise SqlError(OUT_OF_RANGE, "input is out of range") from None
        except OverflowError:
            raise SqlError(OUT_OF_RANGE, "value out of range: overflow") from None

    return call


def _unbounded(function: Callable[[float], float]) -> Callable[[float], float]:
    """What is too large is infinite, with the sign of the argument if the function is odd."""

    def call(a: float) -> float:
        try:
            return function(a)
        except OverflowError:
            return math.copysign(math.inf, function(math.copysign(1.0, a)))

    return call


def _dsqrt(a: float) -> float:
    if a < 0:
        raise SqlError("2201F", "cannot take square root of a negative number")
    return math.sqrt(a)


def _log(function: Callable[[float], float]) -> Callable[[float], float]:
    def call(a: float) -> float:
        if a == 0:
            raise SqlError("2201E", "cannot take logarithm of zero")
        if a < 0:
            raise SqlError("2201E", "cannot take logarithm of a negative number")
        return function(a)

    return call


def _dpow(a: float, b: float) -> float:
    if a != a or b != b:
        return 1.0 if a == 1 or b == 0 else math.nan
    if a == 0 and b < 0:
        raise SqlError("2201F", "zero raised to a negative power is undefined")
    if a < 0 and not math.isinf(b) and b != math.floor(b):
        raise SqlError(
            "2201F", "a negative number raised to a non-integer power yields a complex result"
        )
    try:
        value: float = math.pow(a, b)
    except OverflowError:
        raise SqlError(OUT_OF_RANGE, "value out of range: overflow") from None
    if value == 0 and a != 0 and not math.isinf(a) and not math.isinf(b):
        raise SqlError(OUT_OF_RANGE, "value out of range: underflow")
    return value


def _dexp(a: float) -> float:
    if math.isinf(a) or a != a:
        return 0.0 if a < 0 else a
    value = math.exp(a)
    if value == 0:
        raise SqlError(OUT_OF_RANGE, "value out of range: underflow")
    return value


def _dround(a: float) -> float:
    return a if math.isinf(a) or a != a else math.copysign(float(round(a)), a)


def _dcbrt(a: float) -> float:
    return math.cbrt(a)


def _dsign(a: float) -> float:
    return float((a > 0) - (a < 0))  # of NaN, too


def _float_to_int(name: str) -> Callable[[float], int]:
    high = 1 << _RANGES[name]

    def call(a: float) -> int:
        if a != a or math.isinf(a):
            raise out_of_range(name)
        value = round(a)
        if -high <= value < high:
            return value
        raise out_of_range(name)

    return call


# Degrees as float.c has them: exact where school knows the value.

_RADIANS: Final = 0.0174532925199432957692
_SIN_30: Final = math.sin(30 * _RADIANS)
_ONE_MINUS_COS_60: Final = 1 - math.cos(60 * _RADIANS)


def _arc_sine(x: float) -> float:
    """Of 0 to 1, in degrees."""
    if x <= 0.5:
        return math.asin(x) / math.asin(0.5) * 30
    return 90 - math.acos(x) / math.acos(0.5) * 60


def _arc_cosine(x: float) -> float:
    if x <= 0.5:
        return 90 - math.asin(x) / math.asin(0.5) * 30
    return math.acos(x) / math.acos(0.5) * 60


def _arc_tangent(radians: float) -> float:
    return radians / math.atan(1) * 45


def _sine(x: float) -> float:
    """Of 0 to 90 degrees."""
    return math.sin(x * _RADIANS) / _SIN_30 / 2 if x <= 30 else _near_one(90 - x)


def _cosine(x: float) -> float:
    return _near_one(x) if x <= 60 else math.sin((90 - x) * _RADIANS) / _SIN_30 / 2


def _near_one(x: float) -> float:
    """The cosine of 0 to 60 degrees."""
    return 1 - (1 - math.cos(x * _RADIANS)) / _ONE_MINUS_COS_60 / 2


def _quotient_of(
    top: Callable[[float], float], bottom: Callable[[float], float], x: float
) -> float:
    return math.inf if bottom(x) == 0 else top(x) / bottom(x) / (top(45) / bottom(45))


def _degrees(
    of_quarter: Callable[[float], float], *, odd: bool, beyond: int
) -> Callable[[float], float]:
    """A function of any degrees from that of 0 to 90. `odd`: f(-x) = -f(x); `beyond`: the sign of
    f(180 - x).
    """

    def call(a: float) -> float:
        if math.isinf(a):
            raise SqlError(OUT_OF_RANGE, "input is out of range")
        if a != a:
            return a
        x, sign = math.fmod(a, 360), 1
        if x < 0:
            x, sign = -x, -sign if odd else sign
        if x > 180:
            x, sign = 360 - x, -sign if odd else sign
        if x > 90:
            x, sign = 180 - x, sign * beyond
        value = sign * of_quarter(x)
        return value if value else abs(value) if beyond < 0 and odd else value

    return call


# -- numeric


def scale_of(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def result(value: Decimal) -> Decimal:
    """A numeric as PostgreSQL keeps it. Raises 22003."""
    if not value.is_finite():
        return value
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    if value and value.adjusted() >= _DIGITS_MAX:
        raise SqlError(OUT_OF_RANGE, "value overflows numeric format")
    if exponent > 0:
        return value.quantize(Decimal(1), context=EXACT)
    if exponent < -_SCALE_MAX:
        return quantized(value, _SCALE_MAX)
    return value if value else value.copy_abs()


def quantized(value: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """With so many digits after the point; a negative scale rounds before it."""
    if not value.is_finite():
        return value
    found = value.quantize(Decimal((0, (1,), -scale)), rounding=rounding, context=EXACT)
    if scale < 0:
        found = found.quantize(Decimal(1), context=EXACT)
    return found if found else found.copy_abs()


def _nadd(a: Decimal, b: Decimal) -> Decimal:
    return result(EXACT.add(a, b))


def _nsub(a: Decimal, b: Decimal) -> Decimal:
    return result(EXACT.subtract(a, b))


def _nmul(a: Decimal, b: Decimal) -> Decimal:
    return result(EXACT.multiply(a, b))


def _weight(value: Decimal) -> tuple[int, int]:
    """The power of 10,000 of its first digit in that base, and the digit."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(abs(value).scaleb(-4 * weight, context=EXACT))


def division_scale(a: Decimal, b: Decimal) -> int:
    """select_div_scale: at least 16 significant digits, and no fewer than the inputs have."""
    weight_a, first_a = _weight(a)
    weight_b, first_b = _weight(b)
    quotient = weight_a - weight_b - (first_a <= first_b)
    scale = max(_SIGNIFICANT - 4 * quotient, scale_of(a), scale_of(b), 0)
    return min(scale, _RESULT_SCALE_MAX)


def _ndiv(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan():
        return NAN
    if b.is_finite() and not b:
        raise _by_zero()
    if not a.is_finite():
        return NAN if not b.is_finite() else (a if b > 0 else -a)
    if not b.is_finite():
        return Decimal(0)
    scale = division_scale(a, b)
    return quantized(_quotient(a, b, scale), scale)


def _quotient(a: Decimal, b: Decimal, scale: int) -> Decimal:
    """a / b, cut after the digits wanted and marked if it went on: rounds as the true one."""
    digits = max(a.adjusted() - b.adjusted() + scale + 4, 4) if a else 4
    context = Context(prec=digits, rounding=ROUND_DOWN, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
    found = context.divide(a, b)
    if context.flags[Inexact] and found:
        # A digit that rounds nothing up that should stay: the quotient was cut, never a tie.
        found = EXACT.add(found, Decimal((int(found.is_signed()), (1,), -(scale + 10))))
    return found


def _nmod(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan():
        return NAN
    if b.is_finite() and not b:
        raise _by_zero()
    if not a.is_finite():
        return NAN
    if not b.is_finite():
        return a
    found = EXACT.remainder(a, b)
    return quantized(found, max(scale_of(a), scale_of(b)))


def _ndiv_trunc(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan():
        return NAN
    if b.is_finite() and not b:
        raise _by_zero()
    if not (a.is_finite() and b.is_finite()):
        return _ndiv(a, b)
    return quantized(EXACT.divide_int(a, b), 0)


def _nround(value: Decimal, places: int = 0) -> Decimal:
    return quantized(value, max(-_DIGITS_MAX, min(places, _SCALE_MAX)))


def _ntrunc(value: Decimal, places: int = 0) -> Decimal:
    return quantized(value, max(-_DIGITS_MAX, min(places, _SCALE_MAX)), ROUND_DOWN)


def _nceil(value: Decimal) -> Decimal:
    return quantized(value, 0, ROUND_CEILING)


def _nfloor(value: Decimal) -> Decimal:
    return quantized(value, 0, ROUND_FLOOR)


def _nsqrt(value: Decimal) -> Decimal:
    if value.is_nan():
        return value
    if value < 0:
        raise SqlError("2201F", "cannot take square root of a negative number")
    if not value.is_finite():
        return value
    weight, _ = _weight(value)
    half = (weight + 1) * 2 - 1
    scale = min(max(_SIGNIFICANT - half, scale_of(value), 0), _RESULT_SCALE_MAX)
    digits = max(value.adjusted() // 2, 0) + scale + 8
    return quantized(series.context(digits).sqrt(value), scale)


def _ln_weight(value: Decimal) -> int:
    """The power of ten of ln(value), estimated as estimate_ln_dweight does."""
    if Decimal("0.9") <= value <= Decimal("1.1"):
        rest = EXACT.subtract(value, Decimal(1))
        return rest.adjusted() if rest else 0
    found = abs(
        value.adjusted() * math.log(10)
        + math.log(float(value.scaleb(-value.adjusted(), context=EXACT)))
    )
    return int(math.log10(found)) if found else 0


def _nln(value: Decimal) -> Decimal:
    if value.is_nan():
        return value
    if value <= 0:
        what = "zero" if value == 0 else "a negative number"
        raise SqlError("2201E", f"cannot take logarithm of {what}")
    if not value.is_finite():
        return value
    scale = min(max(_SIGNIFICANT - _ln_weight(value), scale_of(value), 0), _RESULT_SCALE_MAX)
    return quantized(series.ln(value, scale + 30), scale)


def _nexp(value: Decimal) -> Decimal:
    if not value.is_finite():
        return value if value.is_nan() or value > 0 else Decimal(0)
    estimate = float(value) * 0.434294481903252
    if estimate > 131_072:
        raise SqlError(OUT_OF_RANGE, "value overflows numeric format")
    scale = min(
        max(_SIGNIFICANT - int(max(min(estimate, 1000), -1000)), scale_of(value), 0),
        _RESULT_SCALE_MAX,
    )
    digits = max(int(estimate), 0) + scale + 10
    return quantized(series.exp(value, digits), scale)


def _nlog(base: Decimal, value: Decimal) -> Decimal:
    if base.is_nan() or value.is_nan():
        return NAN
    if not (base.is_finite() and value.is_finite()):
        if base < 0 or value < 0:
            raise SqlError("2201E", "cannot take logarithm of a negative number")
        if not base or not value:
            raise SqlError("2201E", "cannot take logarithm of zero")
        if base.is_finite():
            return value
        return Decimal(0) if value.is_finite() else NAN
    lower, upper = _nln(base), _nln(value)
    if not lower:
        raise _by_zero()
    estimate = _ln_weight(value) - _ln_weight(base)
    scale = min(max(_SIGNIFICANT - estimate, scale_of(base), scale_of(value), 0), _RESULT_SCALE_MAX)
    digits = scale + 40
    return (
        quantized(
            series.context(digits).divide(series.ln(value, digits), series.ln(base, digits)), scale
        )
        if upper
        else Decimal(0).quantize(Decimal((0, (1,), -scale)))
    )


_ROUGH: Final = series.context(30)
_TIMES_MAX: Final = 1 << 40  # of a whole power that is multiplied out


def _npower(base: Decimal, power: Decimal) -> Decimal:
    if base.is_nan() or power.is_nan():
        return Decimal(1) if base == 1 or power == 0 else NAN
    if base == 0 and power < 0:
        raise SqlError("2201F", "zero raised to a negative power is undefined")
    whole = power == power.to_integral_value() if power.is_finite() else False
    if base < 0 and not whole and power.is_finite():
        raise SqlError(
            "2201F", "a negative number raised to a non-integer power yields a complex result"
        )
    if not (base.is_finite() and power.is_finite()):
        return _power_of_infinity(base, power)
    if not power:
        return quantized(Decimal(1), max(_SIGNIFICANT, scale_of(base)))
    if not base:
        return quantized(Decimal(0), max(_SIGNIFICANT, scale_of(base)))
    # The result's power of ten, from which the digits after the point follow.
    estimate = _ROUGH.multiply(power, _log10(base.copy_abs()))
    if estimate > 131_072:
        raise SqlError(OUT_OF_RANGE, "value overflows numeric format")
    weight = math.trunc(max(min(estimate, Decimal(2000)), Decimal(-2000)))
    least = max(_SIGNIFICANT - weight, 0)
    if whole:
        scale = max(_SIGNIFICANT, scale_of(base), scale_of(power))
    else:
        scale = max(least, scale_of(base), scale_of(power), 0)
    scale = min(scale, _RESULT_SCALE_MAX)
    if estimate < -scale - 2:
        return quantized(Decimal(0), scale)
    digits = max(weight, 0) + scale + 20
    if whole and abs(power) < _TIMES_MAX:
        return quantized(series.power(base, int(power), digits), scale)
    negative = base < 0 and bool(EXACT.remainder(power, Decimal(2)))
    more = digits + max(power.adjusted(), 0) + 20
    logarithm = series.context(more).multiply(series.ln(base.copy_abs(), more), power)
    found = quantized(series.exp(logarithm, digits), scale)
    return found.copy_negate() if negative and found else found


def _log10(value: Decimal) -> Decimal:
    """Of a positive value, to some eight digits, however near to 1 it is."""
    power = 0 if Decimal("0.5") < value < 2 else value.adjusted()
    rest = EXACT.subtract(value.scaleb(-power, context=EXACT), Decimal(1))
    log = rest if abs(rest) < Decimal("1e-8") else Decimal(math.log1p(float(rest)))
    return _ROUGH.add(Decimal(power), _ROUGH.divide(log, Decimal(10).ln(_ROUGH)))


def _power_of_infinity(base: Decimal, power: Decimal) -> Decimal:
    """By the rules of POSIX's pow; what is an error has been raised."""
    if base == 1 or not power:
        return Decimal(1)
    if not base:
        return Decimal(0)
    if not power.is_finite():
        if base == -1:
            return Decimal(1)
        return INFINITY if (abs(base) > 1) is (power > 0) else Decimal(0)
    if power < 0:
        return Decimal(0)
    return -INFINITY if base < 0 and EXACT.remainder(power, Decimal(2)) else INFINITY


def _factorial(n: int) -> Decimal:
    if n < 0:
        raise SqlError(OUT_OF_RANGE, "factorial of a negative number is undefined")
    if n > 32_177:
        raise SqlError(OUT_OF_RANGE, "value overflows numeric format")
    return series.product(1, n)


def _nsign(value: Decimal) -> Decimal:
    return value if value.is_nan() else Decimal((value > 0) - (value < 0))


def _min_scale(value: Decimal) -> int | None:
    if not value.is_finite():
        return None
    return scale_of(_trim_scale(value))


def _trim_scale(value: Decimal) -> Decimal:
    if not value.is_finite():
        return value
    found = value.normalize(EXACT)
    return quantized(found, max(scale_of(found), 0))


_SHORT_DIGITS: Final = 1_000  # int() and Decimal() take the square of the digits


def whole_of(value: Decimal) -> int:
    """int(value), by halves. Source: CPython's _pylong.py."""
    digits = format(value, "f").partition(".")[0]

    def part(begin: int, end: int) -> int:
        if end - begin <= _SHORT_DIGITS:
            return int(digits[begin:end])
        middle = (begin + end) // 2
        return int(part(begin, middle) * 10 ** (end - middle)) + part(middle, end)

    found = part(digits.startswith("-"), len(digits))
    pause()
    return -found if digits.startswith("-") else found


def decimal_of(whole: int) -> Decimal:
    """Decimal(whole), by halves. Source: CPython's _pylong.py."""
    powers: dict[int, Decimal] = {}

    def part(rest: int, bits: int) -> Decimal:
        if bits <= 3 * _SHORT_DIGITS:
            return Decimal(rest)
        low = bits // 2
        if low not in powers:
            powers[low] = EXACT.power(2, low)
        high = part(rest >> low, bits - low)
        return EXACT.fma(high, powers[low], part(rest & ((1 << low) - 1), low))

    found = part(abs(whole), whole.bit_length())
    pause()
    return found.copy_negate() if whole < 0 else found


def _numeric_gcd(a: Decimal, b: Decimal) -> Decimal:
    if not (a.is_finite() and b.is_finite()):
        return NAN
    scale = max(scale_of(a), scale_of(b))
    whole = math.gcd(*(whole_of(one.scaleb(scale, context=EXACT)) for one in (a, b)))
    pause()
    return decimal_of(whole).scaleb(-scale, context=EXACT)


def _numeric_lcm(a: Decimal, b: Decimal) -> Decimal:
    if not (a.is_finite() and b.is_finite()):
        return NAN
    scale = max(scale_of(a), scale_of(b))
    whole = math.lcm(*(whole_of(one.scaleb(scale, context=EXACT)) for one in (a, b)))
    pause()
    return decimal_of(whole).scaleb(-scale, context=EXACT)


def _numeric_to_int(name: str) -> Callable[[Decimal], int]:
    high = 1 << _RANGES[name]

    def call(value: Decimal) -> int:
        if not value.is_finite():
            what = "NaN" if value.is_nan() else "infinity"
            raise SqlError("0A000", f"cannot convert {what} to {name}")
        found = int(quantized(value, 0)) if value.adjusted() <= _INT_DIGITS else high
        if -high <= found < high:
            return found
        raise out_of_range(name)

    return call


def _to_float(value: Decimal) -> float:
    try:
        found = float(value)
    except (OverflowError, InvalidOperation):
        found = math.inf
    if math.isinf(found) and value.is_finite():
        raise SqlError(
            OUT_OF_RANGE, f'"{format(value, "f")}" is out of range for type double precision'
        )
    return found


def _to_float4(value: Decimal) -> float:
    try:
        return float4(_to_float(value))
    except SqlError:
        shown = format(value, "f")
        raise SqlError(OUT_OF_RANGE, f'"{shown}" is out of range for type real') from None


def _from_float(digits: int) -> Callable[[float], Decimal]:
    """By the digits that the type surely has, as PostgreSQL: 15, or 6 of single precision."""

    def call(value: float) -> Decimal:
        if value != value:
            return NAN
        if math.isinf(value):
            return Decimal("Infinity") if value > 0 else Decimal("-Infinity")
        return result(Decimal(f"{value:.{digits}g}"))

    return call


def _width_bucket(value: Any, low: Any, high: Any, count: int) -> int:
    if count <= 0:
        raise SqlError("2201G", "count must be greater than zero")
    if value != value or low != low or high != high:
        raise SqlError("2201G", "operand, lower bound, and upper bound cannot be NaN")
    if math.isinf(low) or math.isinf(high):
        raise SqlError("2201G", "lower and upper bounds must be finite")
    if low == high:
        raise SqlError("2201G", "lower bound cannot equal upper bound")
    value, low, high = (Fraction(v) if math.isfinite(v) else v for v in (value, low, high))
    if low < high:
        if value < low:
            return 0
        return count + 1 if value >= high else int((value - low) * count / (high - low)) + 1
    if value > low:
        return 0
    return count + 1 if value <= high else int((low - value) * count / (low - high)) + 1


def _width_bucket_float(value: float, low: float, high: float, count: int) -> int:
    """As _width_bucket, with what floats lose (PostgreSQL 15's width_bucket_float8)."""
    found = _width_bucket(value, low, high, count)
    if not 0 < found <= count:
        return found
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    return int(count * (value - low) / (high - low)) + 1


def _bool_of(value: int) -> bool:
    return value != 0


def _integers() -> dict[str, Declared]:
    """The functions whose names have their widths: int4pl, int48pl, …"""
    found: dict[str, Declared] = {}
    names = {"2": "smallint", "4": "integer", "8": "bigint"}
    operations: dict[str, Callable[[int, int], int]] = {
        "pl": operator.add,
        "mi": operator.sub,
        "mul": operator.mul,
        "div": _div,
    }
    for a in "248":
        for b in "248":
            name = names[max(a, b)]
            for suffix, function in operations.items():
                found[f"int{a if a == b else a + b}{suffix}"] = _binary(name, function)
        name = names[a]
        bits = _RANGES[name] + 1
        found |= {
            f"int{a}mod": _mod,
            f"int{a}and": operator.and_,
            f"int{a}or": operator.or_,
            f"int{a}xor": operator.xor,
            f"int{a}not": operator.invert,
            f"int{a}shl": _shifted(bits, True),
            f"int{a}shr": _shifted(bits, False),
            f"int{a}up": operator.pos,
            f"int{a}um": checked(operator.neg, name),
            f"int{a}abs": checked(abs, name),
            f"int{a}gcd": checked(math.gcd, name),
            f"int{a}lcm": checked(math.lcm, name),
            f"numeric_int{a}": _numeric_to_int(name),
            f"int{a}_numeric": total(Decimal),
            f"dtoi{a}": _float_to_int(name),
            f"ftoi{a}": _float_to_int(name),
            f"i{a}tod": total(float),
            f"i{a}tof": total(lambda v: float4(float(v))),
        }
    found |= {
        "int82": checked(operator.pos, "smallint"),
        "int84": checked(operator.pos, "integer"),
        "i4toi2": checked(operator.pos, "smallint"),
        "i2toi4": total(operator.pos),
        "int28": total(operator.pos),
        "int48": total(operator.pos),
        "int4_bool": total(_bool_of),
        "bool_int4": total(int),
        "oidtoi8": total(operator.pos),
        "i8tooid": _to_oid,
    }
    return found


def _to_oid(value: int) -> int:
    if 0 <= value < 1 << 32:
        return value
    raise SqlError(OUT_OF_RANGE, "OID out of range")


def _floats() -> dict[str, Declared]:
    found: dict[str, Declared] = {}
    for kind in ("4", "8", "48", "84"):
        single = kind == "4"
        found |= {
            f"float{kind}pl": _float(operator.add, single),
            f"float{kind}mi": _float(operator.sub, single),
            f"float{kind}mul": _float(_fmul, single),
            f"float{kind}div": _float(_fdiv, single),
        }
    for kind in ("4", "8"):
        found |= {
            f"float{kind}um": total(operator.neg),
            f"float{kind}up": operator.pos,
            f"float{kind}abs": total(abs),
        }
    found |= {
        "ftod": total(float),
        "dtof": float4,
        "dsqrt": _dsqrt,
        "dcbrt": _dcbrt,
        "dpow": _dpow,
        "dexp": _float(_dexp),
        "dlog1": _log(math.log),
        "dlog10": _log(math.log10),
        "dceil": lambda v: v if math.isinf(v) or v != v else math.copysign(float(math.ceil(v)), v),
        "dfloor": lambda v: v if math.isinf(v) or v != v else float(math.floor(v)),
        "dround": _dround,
        "dtrunc": lambda v: (
            v if math.isinf(v) or v != v else math.copysign(float(math.trunc(v)), v)
        ),
        "dsign": _dsign,
        "dpi": lambda: math.pi,
        "degrees": _float(lambda a: a / math.radians(1)),
        "radians": math.radians,
        "dcot": _of_domain(lambda v: math.inf if v == 0 else 1 / math.tan(v)),
        "dsind": _degrees(_sine, odd=True, beyond=1),
        "dcosd": _degrees(_cosine, odd=False, beyond=-1),
        "dtand": _degrees(partial(_quotient_of, _sine, _cosine), odd=True, beyond=-1),
        "dcotd": _degrees(partial(_quotient_of, _cosine, _sine), odd=True, beyond=-1),
        "dasind": _of_domain(lambda v: math.copysign(_arc_sine(abs(v)), v)),
        "dacosd": _of_domain(lambda v: _arc_cosine(v) if v >= 0 else 90 + _arc_sine(-v)),
        "datand": lambda v: _arc_tangent(math.atan(v)),
        "datan2d": lambda a, b: _arc_tangent(math.atan2(a, b)),
        "datan2": math.atan2,
        "width_bucket_float8": _width_bucket_float,
    }
    found["dsinh"] = _unbounded(math.sinh)
    found["dcosh"] = _unbounded(math.cosh)
    found["datanh"] = _of_domain(
        lambda v: math.copysign(math.inf, v) if abs(v) == 1 else math.atanh(v)
    )
    for name in words("sin cos tan asin acos atan tanh asinh acosh"):
        found["d" + name] = _of_domain(getattr(math, name))
    return found


_NUMERICS: Final[dict[str, Declared]] = {
    "numeric_add": _nadd,
    "numeric_sub": _nsub,
    "numeric_mul": _nmul,
    "numeric_div": _ndiv,
    "numeric_mod": _nmod,
    "numeric_div_trunc": _ndiv_trunc,
    "numeric_uminus": total(lambda v: result(v.copy_negate())),
    "numeric_uplus": lambda v: v,
    "numeric_abs": total(lambda v: v.copy_abs()),
    "numeric_round": _nround,
    "round(1700)": _nround,
    "numeric_trunc": _ntrunc,
    "trunc(1700)": _ntrunc,
    "numeric_ceil": _nceil,
    "numeric_floor": _nfloor,
    "numeric_sqrt": _nsqrt,
    "numeric_power": _npower,
    "numeric_exp": _nexp,
    "numeric_ln": _nln,
    "numeric_log": _nlog,
    "log(1700)": lambda v: _nlog(Decimal(10), v),
    "log10(1700)": lambda v: _nlog(Decimal(10), v),
    "numeric_sign": total(_nsign),
    "numeric_fac": _factorial,
    "numeric_scale": total(lambda v: scale_of(v) if v.is_finite() else None),
    "numeric_min_scale": _min_scale,
    "numeric_trim_scale": _trim_scale,
    "numeric_gcd": _numeric_gcd,
    "numeric_lcm": _numeric_lcm,
    "numeric_float8": _to_float,
    "numeric_float4": _to_float4,
    "float8_numeric": total(_from_float(15)),
    "float4_numeric": total(_from_float(6)),
    "width_bucket_numeric": _width_bucket,
}
FUNCTIONS: Final = declared({**_integers(), **_floats(), **_NUMERICS})
__all__ = ["FUNCTIONS", "INVALID_PARAMETER", "quantized"]
