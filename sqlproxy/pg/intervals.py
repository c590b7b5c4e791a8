"""Intervals as PostgreSQL 15 writes them with IntervalStyle `postgres`, and all that it reads.

    1 year 2 mons -3 days +04:05:06.789        months, days and microseconds keep their own signs

In: the same, verbose (`@ 1 minute ago`), ISO 8601 (`P1Y2M3DT4H5M6.7S`, `P0001-02-03T04:05:06`), the
SQL standard's (`1-2`, `3 4:05:06`). Fractions go on to the next smaller unit: of a year to months,
of a month (30 days) and week to days, of a day to time.

Where the type names fields, they say what a number without a unit counts (`'5'` of an `interval
hour`), and that `'1:30'` of an `interval minute to second` has no hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_DOWN, Decimal
from functools import partial
from typing import Final

from sqlproxy.pg.style import SPACES, TIME_CHARS_MAX
from sqlproxy.values.errors import INVALID_DATETIME, SqlError
from sqlproxy.values.interval import ALL_FIELDS, Interval, fields_named, fields_text

_DAY_US: Final = 86_400_000_000
_INT4: Final = 1 << 31
_INT8: Final = 1 << 63
_SECOND_US: Final = 1_000_000
_UNITS: Final = {
    name: (kind, factor)
    for kind, factor, names in (
        ("us", 1, "us usec usecs usecond useconds microsecon microsecond microseconds microsec"),
        ("us", 1_000, "ms msec msecs mseconds msecond millisecon millisecond milliseconds"),
        ("us", _SECOND_US, "s sec secs second seconds"),
        ("us", 60 * _SECOND_US, "m min mins minute minutes"),
        ("us", 3_600 * _SECOND_US, "h hr hrs hour hours"),
        ("days", 1, "d day days"),
        ("days", 7, "w week weeks"),
        ("month", 1, "mon mons month months"),
        ("year", 1, "y yr yrs year years"),
        ("year", 10, "dec decs decade decades"),
        ("year", 100, "c cent century centuries"),
        ("year", 1_000, "mil mils millennia millennium"),
    )
    for name in names.split()
}
_TOKEN = re.compile(
    r"""
      (?P<clock>(?:[+-][ ]*)?\d+:\d{1,2}(?::\d{1,2}(?:\.\d*)?|\.\d*)?)
    | (?P<years>[+-]?\d+-\d{1,2}(?!\d))
    | (?P<number>(?:[+-][ ]*)?(?:\d+\.?\d*|\.\d+))
    | (?P<word>[a-z]+)
    | (?P<blank>[ \t\n\r\v\f,@]+)
    """,
    re.VERBOSE | re.ASCII,
)
_ISO = re.compile(r"P(?:(?P<date>[^T]*))(?:T(?P<time>.*))?", re.ASCII)
_ISO_PART = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([YMWDHS])", re.ASCII)
_ISO_DATE = re.compile(r"(-?\d{1,9})-(-?\d{1,2})-(-?\d{1,2})", re.ASCII)
_ISO_CLOCK = re.compile(r"(-?\d{1,9}):(-?\d{1,2})(?::(-?\d{1,2}(?:\.\d*)?))?", re.ASCII)
_ISO_UNITS: Final = {"Y": ("year", 1), "M": ("month", 1), "W": ("days", 7), "D": ("days", 1)}
_ISO_TIME_UNITS: Final = {
    "H": ("us", 3_600 * _SECOND_US),
    "M": ("us", 60 * _SECOND_US),
    "S": ("us", _SECOND_US),
}


def write_interval(value: Interval) -> str:
    months, days, us = value.months, value.days, value.us
    year = abs(months) // 12 * (1 if months >= 0 else -1)
    parts: list[str] = []
    before = False  # the last part was negative: a positive one after it needs its sign
    for amount, unit in ((year, "year"), (months - 12 * year, "mon"), (days, "day")):
        if amount:
            plus = "+" if before and amount > 0 else ""
            parts.append(f"{plus}{amount} {unit}{'' if amount == 1 else 's'}")
            before = amount < 0
    if us or not parts:
        seconds, fraction = divmod(abs(us), _SECOND_US)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        sign = "-" if us < 0 else "+" if before else ""
        text = f"{sign}{hour:02}:{minute:02}:{second:02}"
        if fraction:
            text += f".{fraction:06}".rstrip("0")
        parts.append(text)
    return " ".join(parts)


_MINUTE_TO_SECOND: Final = fields_named("minute to second")


def read_interval(text: str, fields: int = ALL_FIELDS) -> Interval:
    """`fields`: of the type that it is read for; what they do not name is not cut."""
    stripped = text.strip(SPACES)
    if len(stripped) > TIME_CHARS_MAX or stripped.lower() in ("infinity", "-infinity"):
        raise _syntax(text)
    sums = _Sums(text, fields)
    if stripped[:1] == "P":
        _iso(stripped, sums)
    else:
        _verbose(stripped.lower(), sums)
    return sums.interval()


def reader_of(typmod: int) -> Callable[[str], Interval]:
    return partial(read_interval, fields=typmod >> 16 & ALL_FIELDS)


class _Sums:
    def __init__(self, text: str, fields: int) -> None:
        self.text = text
        self.short = fields == _MINUTE_TO_SECOND  # a clock of two numbers has no hours
        self.unit = fields_text(fields).rpartition(" ")[2] or "second"  # of a number without one
        self.months = 0
        self.days = 0
        self.us = 0
        self.any = False
        self._seen: set[tuple[str, int]] = set()

    def add(self, kind: str, factor: int, digits: str) -> None:
        """`digits` times a unit, its fraction handed on."""
        self.any = True
        amount = Decimal(digits)
        if abs(amount) >= _INT8:
            raise _overflow(self.text)
        whole = int(amount)
        part = amount - whole
        match kind:
            case "us":
                self.us += whole * factor
                self._add_us(part * factor)
            case "days":
                self.days += whole * factor
                self._add_days(part * factor)
            case "month":
                self.months += whole * factor
                self._add_days(part * factor * 30)
            case _:
                self.months += whole * factor * 12 + round(part * factor * 12)

    def add_once(self, word: str, digits: str) -> None:
        """No unit may come twice."""
        unit = _UNITS[word]
        if unit in self._seen:
            raise _syntax(self.text)
        self._seen.add(unit)
        self.add(*unit, digits)

    def _add_us(self, amount: Decimal) -> None:
        """Rounded; a half goes towards zero."""
        self.us += int(amount.quantize(Decimal(1), ROUND_HALF_DOWN))

    def _add_days(self, amount: Decimal) -> None:
        whole = int(amount)
        self.days += whole
        self._add_us((amount - whole) * _DAY_US)

    def negate(self) -> None:
        self.months, self.days, self.us = -self.months, -self.days, -self.us

    def interval(self) -> Interval:
        if not self.any:
            raise _syntax(self.text)
        fits = -_INT4 <= self.months < _INT4 and -_INT4 <= self.days < _INT4
        if not (fits and -_INT8 <= self.us < _INT8):
            raise _overflow(self.text)
        return Interval(self.months, self.days, self.us)


def _verbose(text: str, sums: _Sums) -> None:
    """A number waits for its unit: days before a time, at the end the smallest unit of the type,
    if it has none; days, too, before such a number of hours.
    """
    number = days = ""
    ago = False  # wherever it stands
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _syntax(sums.text)
        at = found.end()
        token, kind = found[0], found.lastgroup
        if kind == "blank":
            continue
        if kind == "word":
            ago = _word(token, days, number, sums) or ago
            number = days = ""
        elif days:
            raise _syntax(sums.text)
        elif kind == "clock":
            if number:
                sums.add_once("day", number)
            number = ""
            _clock(token.replace(" ", ""), sums)
        elif number and kind == "years":
            raise _syntax(sums.text)
        elif kind == "years":
            _years(token, sums)
        else:
            days, number = number, token.replace(" ", "")
    _last(days, number, sums)
    if ago:
        sums.negate()


def _last(days: str, number: str, sums: _Sums) -> None:
    """What no unit came for."""
    if days and sums.unit != "hour":
        raise _syntax(sums.text)
    if days:
        sums.add_once("day", days)
    if number:
        sums.add_once(sums.unit, number)


def _word(word: str, days: str, number: str, sums: _Sums) -> bool:
    """A unit; whether it was `ago` instead."""
    if word in ("ago", "and") and not number:
        return word == "ago"
    if not number or word not in _UNITS or (days and _UNITS[word] != _UNITS["hour"]):
        raise _syntax(sums.text)
    if days:
        sums.add_once("day", days)
    sums.add_once(word, number)
    return False


def _clock(token: str, sums: _Sums) -> None:
    """H:MM, H:MM:SS.f; M:SS.f if there is a point after the second number, or the type says so."""
    sign = "-" if token[0] == "-" else ""
    pieces = token.lstrip("+-").split(":")
    if len(pieces) == 2 and ("." in pieces[1] or sums.short):
        pieces.insert(0, "0")
    hour, minute, second = (*pieces, "0")[:3]
    if int(minute) > 59 or Decimal(second) > 60:
        raise _overflow(sums.text)
    sums.add_once("hour", sign + hour)
    sums.add_once("minute", sign + minute)
    sums.add_once("second", sign + second)


def _years(token: str, sums: _Sums) -> None:
    """Y-M."""
    sign = "-" if token[0] == "-" else ""
    year, month = token.lstrip("+-").split("-")
    if int(month) > 11:
        raise _overflow(sums.text)
    sums.add_once("year", sign + year)
    sums.add_once("month", sign + month)


def _iso(text: str, sums: _Sums) -> None:
    found = _ISO.fullmatch(text)
    if found is None:
        raise _syntax(sums.text)
    date, clock = found["date"], found["time"]
    if plain := _ISO_DATE.fullmatch(date):
        for digits, unit in zip(plain.groups(), "YMD", strict=True):
            sums.add(*_ISO_UNITS[unit], digits)
    else:
        _iso_parts(date, _ISO_UNITS, sums)
    if clock is None:
        return
    if plain := _ISO_CLOCK.fullmatch(clock):
        for digits, unit in zip(plain.groups(), "HMS", strict=True):
            sums.add(*_ISO_TIME_UNITS[unit], digits or "0")
    else:
        _iso_parts(clock, _ISO_TIME_UNITS, sums)


def _iso_parts(text: str, units: dict[str, tuple[str, int]], sums: _Sums) -> None:
    at = 0
    while at < len(text):
        found = _ISO_PART.match(text, at)
        if found is None or found[2] not in units:
            raise _syntax(sums.text)
        sums.add(*units[found[2]], found[1])
        at = found.end()


def _syntax(text: str) -> SqlError:
    return SqlError(INVALID_DATETIME, f'invalid input syntax for type interval: "{text}"')


def _overflow(text: str) -> SqlError:
    return SqlError("22015", f'interval field value out of range: "{text}"')
