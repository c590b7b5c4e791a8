"""Fitting values into modifiers: varchar(n), char(n), numeric(p,s), time(p), timestamp(p),
interval(p).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sqlproxy.front.functions.f_numbers import quantized
from sqlproxy.front.types.registry import element_of, scale_of
from sqlproxy.pg import oids
from sqlproxy.values.errors import DATETIME_OVERFLOW, OUT_OF_RANGE, STRING_TOO_LONG, SqlError
from sqlproxy.values.interval import ALL_FIELDS

Fit = Callable[[Any], Any]
_YEAR_2000 = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 1))  # noqa: DTZ001 - of both kinds


@lru_cache(maxsize=1_024)
def fitter(oid: int, typmod: int, explicit: bool) -> Fit:
    """Raises SqlError 22001, 22003 for what does not fit; an explicit cast cuts text instead."""
    if element := element_of(oid):
        inner = fitter(element, typmod, explicit)

        def each(value: object) -> object:
            if isinstance(value, list):
                return [None if v is None else each(v) for v in value]
            return inner(value)

        return each
    if oid == oids.VARCHAR:
        return _varchar(typmod - 4, explicit)
    if oid == oids.BPCHAR:
        return _char(typmod - 4, explicit)
    if oid == oids.NUMERIC:
        return _numeric((typmod - 4) >> 16, scale_of(typmod))
    if oid in (oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ):
        return lambda value: round_time(value, typmod)
    if oid == oids.INTERVAL:
        fields, digits = typmod >> 16 & ALL_FIELDS, typmod & 0xFFFF
        return lambda value: value.cut(fields, digits)
    return lambda value: value


def _varchar(n: int, explicit: bool) -> Fit:
    def fit(value: str) -> str:
        if len(value) <= n:
            return value
        if not explicit and value[n:].strip(" "):
            raise SqlError(STRING_TOO_LONG, f"value too long for type character varying({n})")
        return value[:n]

    return fit


def _char(n: int, explicit: bool) -> Fit:
    def fit(value: str) -> str:
        if len(value) <= n:
            return value.ljust(n)
        if not explicit and value[n:].strip(" "):
            raise SqlError(STRING_TOO_LONG, f"value too long for type character({n})")
        return value[:n]

    return fit


def _numeric(precision: int, scale: int) -> Fit:
    def fit(value: Decimal) -> Decimal:
        if value.is_nan():
            return value
        detail = f"A field with precision {precision}, scale {scale} "
        if not value.is_finite():
            raise SqlError(
                OUT_OF_RANGE,
                "numeric field overflow",
                detail=detail + "cannot hold an infinite value.",
            )
        rounded = quantized(value, scale)
        if rounded and rounded.adjusted() >= precision - scale:
            limit = f"10^{precision - scale}" if precision != scale else "1"
            raise SqlError(
                OUT_OF_RANGE,
                "numeric field overflow",
                detail=detail + f"must round to an absolute value less than {limit}.",
            )
        return rounded

    return fit


def round_time(value: Any, digits: int) -> object:
    """To so many digits of a second. A half goes away from midnight or, of a timestamp, from the
    year 2000, where PostgreSQL counts from. Raises SqlError (22008) after the year 9999.
    """
    if digits >= 6:
        return value
    step = 10 ** (6 - digits)
    if isinstance(value, time):
        us = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        us = (us + step // 2) // step * step
        # 24:00:00 is PostgreSQL's; ours ends a step before.
        us = min(us, 86_400_000_000 - step)
        return (datetime(1970, 1, 1) + timedelta(microseconds=us)).time()  # noqa: DTZ001
    extra = value.microsecond % step
    up = 2 * extra > step or (2 * extra == step and value >= _YEAR_2000[value.tzinfo is None])
    try:
        return value + timedelta(microseconds=step - extra if up else -extra)
    except OverflowError:
        raise SqlError(
            DATETIME_OVERFLOW,
            f'timestamp out of range: "{value}"',
            detail=f"Rounded to timestamp({digits}) it is after the year 9999.",
        ) from None
