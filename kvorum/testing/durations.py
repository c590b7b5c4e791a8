"""How long something takes, as people write it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from kv.base.errors import InvalidArgument

Duration = str | int | float | timedelta
"""Text as "3 days", "1 h 30 min", "250 ms"; a timedelta; or a number of milliseconds."""

_UNITS: Final = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
    "month": 30 * 86_400_000,
    "year": 365 * 86_400_000,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)


def milliseconds(duration: Duration) -> int:
    """Raises InvalidArgument."""
    if isinstance(duration, timedelta):
        return _checked(duration, duration.total_seconds() * 1000)
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        return _checked(duration, duration)
    if not isinstance(duration, str):
        raise _wrong(duration)
    at, total = 0, 0.0
    while at < len(duration):
        part = _PART.match(duration, at)
        unit = part and _UNITS.get(part[2].lower(), _UNITS.get(part[2].lower().removesuffix("s")))
        if part is None or not unit:
            raise _wrong(duration)
        total += float(part[1]) * unit
        at = part.end()
    if not duration.strip():
        raise _wrong(duration)
    return _checked(duration, total)


def _checked(duration: Duration, ms: float) -> int:
    if not 0 <= ms <= 100 * _UNITS["year"]:
        raise _wrong(duration)
    return int(ms)


def _wrong(duration: object) -> InvalidArgument:
    return InvalidArgument(
        f"{duration!r:.80} is no duration: write it as '3 days', '1 h 30 min' or '250 ms', as a "
        "timedelta, or as milliseconds (0 to 100 years)"
    )


def said(ms: int) -> str:
    """A moment of a run, counted from its beginning."""
    days, rest = divmod(ms, _UNITS["day"])
    hours, rest = divmod(rest, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["min"])
    clock = f"{hours:02}:{minutes:02}:{rest / 1000:06.3f}"
    return f"day {days} {clock}" if days else clock
