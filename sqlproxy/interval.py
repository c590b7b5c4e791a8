"""PostgreSQL's interval: months, days and microseconds, each of its own sign.

Order and equality are PostgreSQL's: a month counts 30 days, a day 24 hours, so that `1 mon` equals
`30 days`, though the two print differently and add differently to a date. Text forms are the
wire's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

DAYS_PER_MONTH: Final = 30
DAY_US: Final = 86_400_000_000
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

    def same(self, other: Interval) -> bool:
        """Whether each field is the same."""
        return (self.months, self.days, self.us) == (other.months, other.days, other.us)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Interval) and self.span == other.span

    def __lt__(self, other: Any) -> bool:
        return self.span < other.span if isinstance(other, Interval) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.span)
