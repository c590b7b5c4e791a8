"""Moments of a whole column as the clocks of a zone show them, in numpy: DuckDB has neither
PostgreSQL's zones nor those of the system. As a column has them: microseconds in UTC.

Clocks are set seldom. Where they show the same offset at both ends of a day (of UTC), they show it
all that day; moments of other days are asked for one by one. No zone is set twice within a day.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sqlproxy.pg.datetimes import at_zone, in_zone

Numbers: TypeAlias = NDArray[np.int64]
_US: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
_FIRST, _LAST = ((end.date() - _EPOCH.date()).days for end in (datetime.min, datetime.max))  # noqa: DTZ901 - dates
_WITHIN_HOURS: Final = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def local(moments: pa.Array, zone: tzinfo) -> pa.Array:
    """What clocks show then. Raises SqlError: it is no year that we have."""
    given = _given(moments)
    return _column(given + _offsets(given, zone), moments)


def truncated(moments: pa.Array, unit: str, zone: tzinfo) -> pa.Array:
    """date_trunc('unit', …) of them; of days and more, in UTC, when clocks show its beginning.
    Raises SqlError.
    """
    given = _given(moments)
    shown = given + _offsets(given, zone)
    size = _WITHIN_HOURS.get(unit)
    if size is not None:
        return _column(given - shown % size, moments)
    begins, at = np.unique(_first_day(shown // _DAY, unit), return_inverse=True)
    known = [
        (at_zone((_EPOCH + timedelta(days=int(day))).replace(tzinfo=None), zone) - _EPOCH) // _US
        for day in begins
    ]
    return _column(np.array(known, np.int64)[at], moments)


def _given(moments: pa.Array) -> Numbers:
    """Microseconds since 1970; of a NULL 0."""
    return np.asarray(moments.cast(pa.int64()).fill_null(0))


def _column(found: Numbers, like: pa.Array) -> pa.Array:
    nulls = np.asarray(like.is_null()) if like.null_count else None
    return pa.array(found, pa.int64(), mask=nulls).cast(pa.timestamp("us"))


def _first_day(days: Numbers, unit: str) -> Numbers:
    if unit == "day":
        return days
    if unit == "week":
        return days - (days + 3) % 7  # 1970 began on a Thursday
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    count = _MONTHS[unit]
    return (months // count * count).astype("M8[M]").astype("M8[D]").astype(np.int64)


def _offsets(moments: Numbers, zone: tzinfo) -> Numbers:
    """How far clocks are ahead of UTC then."""
    days, at = np.unique(moments // _DAY, return_inverse=True)
    known = {int(day): 0 for day in (*days, *(days + 1))}
    for day in known:
        if _FIRST < day < _LAST:
            known[day] = _offset(day * _DAY, zone)
    begin, end = (
        np.array([known[int(day)] for day in some], np.int64) for some in (days, days + 1)
    )
    alike = (begin == end) & (days > _FIRST) & (days + 1 < _LAST)
    found = begin[at]
    for place in np.flatnonzero(~alike[at]):
        found[place] = _offset(int(moments[place]), zone)
    return found


def _offset(moment: int, zone: tzinfo) -> int:
    aware = _EPOCH + timedelta(microseconds=moment)
    return (in_zone(aware, zone) - aware.replace(tzinfo=None)) // _US
