"""Aggregates that DuckDB has otherwise, over the list of all values, as PostgreSQL computes them
(float.c, numeric.c, orderedsetaggs.c, json.c). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.functions.f_json import as_key
from sqlproxy.front.functions.f_numbers import EXACT
from sqlproxy.values import jsonb
from sqlproxy.values.errors import SqlError

Pairs = Sequence[tuple[float, float]]


def folded(source: str) -> Callable[[list[object]], object]:
    """The sum by one of PostgreSQL's functions, in the order of the list."""
    add = FUNCTIONS[source].call

    def total(values: list[object]) -> object:
        found = values[0]
        for value in values[1:]:
            found = add(found, value)
        return found

    return total


# -- variances


def float_variance(*, sample: bool, root: bool) -> Callable[[list[float]], float | None]:
    """float8_accum (Youngs and Cramer) and what follows it."""

    def of(values: list[float]) -> float | None:
        count = total = squares = 0.0
        for value in values:
            before, count = count, count + 1.0
            total += value
            if before > 0.0:
                part = value * count - total
                squares += part * part / (count * before)
            elif not math.isfinite(value):
                squares = math.nan
        if sample and count <= 1.0:
            return None
        found = squares / (count - 1.0 if sample else count)
        return math.sqrt(found) if root else found

    return of


def exact_variance(*, sample: bool, root: bool) -> Callable[[list[object]], Decimal | None]:
    """numeric_stddev_internal: of integers and numerics."""
    divide = FUNCTIONS["numeric_div"].call

    def of(values: list[Any]) -> Decimal | None:
        given = [Decimal(value) for value in values]
        count = len(given)
        if sample and count <= 1:
            return None
        if any(value.is_nan() or value.is_infinite() for value in given):
            return Decimal("NaN")
        total = squares = Decimal(0)
        for value in given:
            total = EXACT.add(total, value)
            squares = EXACT.add(squares, EXACT.multiply(value, value))
        above = EXACT.subtract(
            EXACT.multiply(squares, Decimal(count)), EXACT.multiply(total, total)
        )
        if above <= 0:
            return Decimal(0)
        found: Decimal = divide(above, Decimal(count * (count - 1 if sample else count)))
        if not root:
            return found
        scale = Decimal(1).scaleb(int(found.as_tuple().exponent))
        wide = EXACT.copy()
        wide.prec = 60 + len(found.as_tuple().digits)
        return wide.sqrt(found).quantize(scale, ROUND_HALF_UP, context=wide)

    return of


# -- of two variables


def regression(name: str) -> Callable[[Pairs], object]:
    """float8_regr_accum and what follows it, of pairs (Y, X)."""

    def of(pairs: Pairs) -> object:
        count = sx = sy = sxx = syy = sxy = 0.0
        for y, x in pairs:
            before, count = count, count + 1.0
            sx, sy = sx + x, sy + y
            if before > 0.0:
                dx, dy = x * count - sx, y * count - sy
                scale = 1.0 / (count * before)
                sxx, syy, sxy = sxx + dx * dx * scale, syy + dy * dy * scale, sxy + dx * dy * scale
            else:  # one that is infinite or NaN has no distance from the mean
                sxx = 0.0 if math.isfinite(x) else math.nan
                syy = 0.0 if math.isfinite(y) else math.nan
                sxy = sxx + syy
        if name == "regr_count":
            return int(count)
        if count < (2.0 if name == "covar_samp" else 1.0):
            return None
        return _REGRESSION[name](count, sx, sy, sxx, syy, sxy)

    return of


def _corr(n: float, sx: float, sy: float, sxx: float, syy: float, sxy: float) -> float | None:
    return None if sxx == 0 or syy == 0 else sxy / math.sqrt(sxx * syy)


def _r2(n: float, sx: float, sy: float, sxx: float, syy: float, sxy: float) -> float | None:
    if sxx == 0:
        return None
    return 1.0 if syy == 0 else (sxy * sxy) / (sxx * syy)


_REGRESSION: Final[dict[str, Callable[..., float | None]]] = {
    "corr": _corr,
    "regr_r2": _r2,
    "covar_pop": lambda n, sx, sy, sxx, syy, sxy: sxy / n,
    "covar_samp": lambda n, sx, sy, sxx, syy, sxy: sxy / (n - 1.0),
    "regr_avgx": lambda n, sx, sy, sxx, syy, sxy: sx / n,
    "regr_avgy": lambda n, sx, sy, sxx, syy, sxy: sy / n,
    "regr_sxx": lambda n, sx, sy, sxx, syy, sxy: sxx,
    "regr_syy": lambda n, sx, sy, sxx, syy, sxy: syy,
    "regr_sxy": lambda n, sx, sy, sxx, syy, sxy: sxy,
    "regr_slope": lambda n, sx, sy, sxx, syy, sxy: None if sxx == 0 else sxy / sxx,
    "regr_intercept": lambda n, sx, sy, sxx, syy, sxy: (
        None if sxx == 0 else (sy - sx * sxy / sxx) / n
    ),
}
REGRESSIONS: Final = frozenset(_REGRESSION) | {"regr_count"}


# -- of a sorted list


def percentile(name: str, fraction: float) -> Callable[[list[object]], object]:
    """percentile_cont, percentile_disc. Raises SqlError (22003)."""
    if not 0 <= fraction <= 1:  # NaN too
        raise SqlError("22003", f"percentile value {fraction:g} is not between 0 and 1")

    def discrete(values: list[object]) -> object:
        return values[max(math.ceil(fraction * len(values)) - 1, 0)]

    def continuous(values: list[Any]) -> object:
        place = fraction * (len(values) - 1)
        low, high = math.floor(place), math.ceil(place)
        if low == high:
            return values[low]
        return values[low] + (place - low) * (values[high] - values[low])

    return discrete if name == "percentile_disc" else continuous


def mode(values: list[object]) -> object:
    """The value that comes most often, the first of those."""
    best, most, at = values[0], 0, 0
    while at < len(values):
        end = at
        while end < len(values) and values[end] == values[at]:
            end += 1
        if end - at > most:
            best, most = values[at], end - at
        at = end
    return best


# -- JSON


def json_list(between: str, *, binary: bool) -> Callable[[list[str | None]], str]:
    """json_agg and jsonb_agg of values that are JSON; NULLs are null."""

    def of(values: list[str | None]) -> str:
        parts = [", null" if v is None else between + v for v in values]
        text = "[" + "".join(parts).removeprefix(", ").removeprefix(between[2:]) + "]"
        return jsonb.canonical(text) if binary else text

    return of


def json_object(names: list[str | None], values: list[str | None], *, binary: bool) -> str:
    """json_object_agg and jsonb_object_agg of values that are JSON. Raises SqlError (22023)."""
    parts = []
    for name, value in zip(names, values, strict=True):
        if name is None:
            raise SqlError("22023", "field name must not be null")
        parts.append((as_key(name), "null" if value is None else value))
    if binary:
        return jsonb.canonical("{" + ", ".join(f"{n}: {v}" for n, v in parts) + "}")
    return "{ " + ", ".join(f"{n} : {v}" for n, v in parts) + " }"
