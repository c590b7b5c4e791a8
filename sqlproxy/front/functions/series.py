"""exp, ln and whole powers of numeric, to many digits. The library's own take seconds for some
thousand digits, and nothing ends them; these take breaks between two multiplications.

    exp x = (1 + r + r²/2! + …)^(2^n), r = x / 2^n    about as many terms as halvings
    ln x: y ← y + 2 (x - exp y) / (x + exp y)         three times the digits with each (Halley)
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from typing import Final

from sqlproxy.values.breaks import pause

_GUARD: Final = 10
_FACTORS: Final = 64  # that are multiplied as integers
_FLOAT: Final = 14  # digits of the first guess


def context(digits: int) -> Context:
    return Context(prec=digits, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


_EXACT: Final = context(300_000)


def exp(value: Decimal, digits: int) -> Decimal:
    """With so many significant digits, of a value of at most 10^7 either way."""
    halvings = math.isqrt(4 * digits) + max(0, 4 * (value.adjusted() + 1))
    work = context(digits + halvings // 3 + _GUARD)
    rest = work.divide(value, Decimal(1 << halvings))
    total = term = Decimal(1)
    n = 0
    while term and term.adjusted() > -work.prec:
        n += 1
        term = work.divide(work.multiply(term, rest), Decimal(n))
        total = work.add(total, term)
        pause()
    for _ in range(halvings):
        total = work.multiply(total, total)
        pause()
    return context(digits).plus(total)


def ln(value: Decimal, digits: int) -> Decimal:
    """With so many digits after the point, of a positive value."""
    power = value.adjusted()
    head = float(context(_FLOAT + 3).scaleb(value, -power))
    found = Decimal(math.log(head) + power * math.log(10))
    right = _FLOAT
    while right < digits + _GUARD:
        right = min(3 * right - 2, digits + _GUARD)
        work = context(right + _GUARD)
        there = exp(found, right + _GUARD)
        step = work.divide(work.subtract(value, there), work.add(value, there))
        found = work.add(found, work.multiply(step, Decimal(2)))
    return found


def product(first: int, last: int) -> Decimal:
    """Of all whole numbers between these two, exactly."""
    if last - first < _FACTORS:
        return Decimal(math.prod(range(max(first, 1), last + 1)))
    middle = (first + last) // 2
    pause()
    return _EXACT.multiply(product(first, middle), product(middle + 1, last))


def power(base: Decimal, times: int, digits: int) -> Decimal:
    """A whole power with so many significant digits."""
    work = context(digits + times.bit_length() + _GUARD)
    found = Decimal(1)
    for bit in f"{abs(times):b}":
        found = work.multiply(found, found)
        if bit == "1":
            found = work.multiply(found, base)
        pause()
    if times < 0:
        found = work.divide(Decimal(1), found)
    return context(digits).plus(found)
