"""PostgreSQL's interval: months, days and microseconds, each of its own sign.

Order and equality are PostgreSQL's: a month counts 30 days, a day 24 hours, so that `1 mon` equals
`30 days`, though the two print differently and add differently to a date. Text forms are the
wire's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import Final

DAYS_PER_MONTH: Final = 30
DAY_US: Final = 86_400_000_000
ALL_FIELDS: Final = 0x7FFF
"""The mask of an interval whose type names no fields."""
_BITS: Final = {"year": 4, "month": 2, "day": 8, "hour": 1 << 10, "minute": 1 << 11, "second": 4096}
_TIME: Final = _BITS["hour"] | _BITS["minute"] | _BITS["second"]
INT32: Final = 1 << 31
INT64: Final = 1 << 63


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """`months` and `days` fit 32 bits, `us` 64. `same` tells apart what `==` does not."""

    months: int = 0
    days: int = 0
    us: int = 0

    @property
    def span(self) -> int:
        """What it is compared by, in µs; within 128 bits."""
        return (self.months * DAYS_PER_MONTH + self.days) * DAY_US + self.us

    @property
    def fits(self) -> bool:
        """Whether PostgreSQL could hold it."""
        return (
            -INT32 <= self.months < INT32
            and -INT32 <= self.days < INT32
            and -INT64 <= self.us < INT64
        )

    def cut(self, fields: int, digits: int) -> Interval:
        """What is left of it in `interval day to minute` (a mask of the fields between) or
        `interval(3)` (so many digits of a second, at least 6: all): timestamp.c's
        AdjustIntervalForTypmod.
        """
        months, days, us = self.months, self.days, self.us
        if fields != ALL_FIELDS:
            if not fields & (_BITS["day"] | _TIME):
                days = us = 0
                if not fields & _BITS["month"]:
                    months = int(months / 12) * 12
            elif not fields & _TIME:
                us = 0
            elif not fields & _BITS["second"]:
                unit = 60_000_000 if fields & _BITS["minute"] else 3_600_000_000
                us = (abs(us) // unit * unit) * (1 if us >= 0 else -1)
        if digits < 6:
            step = 10 ** (6 - digits)
            up = (abs(us) + step // 2) // step * step
            us = up if us >= 0 else -up
        return Interval(months, days, us)

    def same(self, other: Interval) -> bool:
        """Whether each field is the same."""
        return (self.months, self.days, self.us) == (other.months, other.days, other.us)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interval) and self.span == other.span

    def __lt__(self, other: object) -> bool:
        return self.span < other.span if isinstance(other, Interval) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.span)


def fields_named(text: str) -> int | None:
    """The mask of `day to second`, `year`, … or nothing at all; None: there is no such."""
    if not text:
        return ALL_FIELDS
    first, between, last = text.partition(" to ")
    names = list(_BITS)
    if first not in _BITS or (between and last not in _BITS):
        return None
    low, high = names.index(first), names.index(last or first)
    if between and (low >= high or (low < 2) != (high < 2)):
        return None  # year and month do not go with the others
    return sum(_BITS[name] for name in names[low : high + 1])


def every_fields() -> list[tuple[int, str]]:
    """Each mask that a type may name, with its text."""
    texts = [*_BITS, *(f"{a} to {b}" for a in _BITS for b in _BITS)]
    return [(fields, text) for text in texts if (fields := fields_named(text)) is not None]


def has_seconds(fields: int) -> bool:
    return bool(fields & _BITS["second"])


def fields_text(fields: int) -> str:
    """The reverse of `fields_named`."""
    if fields == ALL_FIELDS:
        return ""
    named = [name for name, bit in _BITS.items() if fields & bit]
    return " to ".join(dict.fromkeys((named[0], named[-1])))
