"""Dates, times and timestamps as PostgreSQL 15 writes and reads them with DateStyle `ISO, MDY`.

Out: `2024-02-29`, `23:59:59.5`, `2024-02-29 23:59:59.5`, the last with `+00` in the session's zone.
In: ISO 8601 with `-`, `T` or blanks, without marks (`20240229T235959`), `2/29/2024`, month names in
any usual order, am/pm, offsets, zone names and abbreviations, `epoch now today tomorrow yesterday
allballs`. What a type has no room for is read and left out (the zone of a timestamp).

A local time that a zone has twice is the later one, one that it skips counts from before the gap:
the smaller offset in both cases, as in PostgreSQL.

Deliberately missing: years outside 1 to 9999, `infinity`, 24:00:00 as a time, Julian days: refused.
"""

from __future__ import annotations

import re
from calendar import isleap
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

from sqlproxy.pg import zones
from sqlproxy.pg.style import SPACES, TIME_CHARS_MAX, Style
from sqlproxy.values.errors import (
    DATETIME_OVERFLOW,
    INVALID_DATETIME,
    INVALID_PARAMETER,
    SqlError,
    unsupported,
)

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without zone is meant
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH_OF: Final = {name[:n]: i for i, name in enumerate(_MONTHS, 1) for n in (3, len(name))} | {
    "sept": 9
}
_WEEKDAYS: Final = frozenset(
    name[:n]
    for name, lengths in (
        *(("sunday", (3, 6)), ("monday", (3, 6)), ("tuesday", (3, 4, 7))),
        *(("wednesday", (3, 9)), ("weds", (4,)), ("thursday", (3, 4, 5, 8))),
        *(("friday", (3, 6)), ("saturday", (3, 8))),
    )
    for n in lengths
)
_SPECIAL: Final = frozenset({"epoch", "now", "today", "tomorrow", "yesterday", "allballs"})
_IGNORED: Final = frozenset({"at", "on", "t", "ad"})
_HOUR: Final = 3600
_NOT_ZONES: Final = frozenset({*_MONTH_OF, *_WEEKDAYS, *_SPECIAL, *_IGNORED, "am", "pm", "bc"})
# a word with marks or digits in it, after a date: a zone's name, or POSIX
_ZONE_NAME = re.compile(r"([a-z]+)(?:[-/.]|([+\d]))[a-z0-9+\-/_.:]*", re.ASCII)

_TOKEN = re.compile(
    r"""
      (?P<clock>\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d*)?)?)
    | (?P<triple>\d+[-/.]\d{1,2}[-/.]\d+)
    | (?P<ordinal>\d{4}-\d{3}(?!\d))
    | (?P<named>\d+-[a-z]+-\d+|[a-z]+-\d{1,2}-\d+)
    | (?P<run>t?\d{4,}(?:\.\d*)?)
    | (?P<zone>[+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?(?!\d))
    | (?P<number>\d{1,3})
    | (?P<word>[a-z]{3}\d[a-z]{3}|[a-z][a-z_]*(?:/[a-z_+\-0-9]+)*)
    | (?P<blank>[ \t\n\r\v\f,]+)
    """,
    re.VERBOSE | re.ASCII,
)


# -- out


def write_date(value: date) -> str:
    return value.isoformat()


def write_time(value: time) -> str:
    text = value.isoformat()
    return text.rstrip("0") if value.microsecond else text


def write_timestamp(value: datetime) -> str:
    text = value.isoformat(" ")
    return text.rstrip("0") if value.microsecond else text


def write_timestamptz(value: datetime, zone: tzinfo) -> str:
    try:
        local = value if value.tzinfo is zone else value.astimezone(zone)
    except OverflowError:
        raise SqlError(DATETIME_OVERFLOW, "timestamp out of range") from None
    text = local.replace(tzinfo=None).isoformat(" ")
    if local.microsecond:
        text = text.rstrip("0")
    return text + offset_text(local.utcoffset() or timedelta())


@lru_cache(maxsize=1_024)
def offset_text(offset: timedelta) -> str:
    """`+00`, `-03:30`, `+05:53:28`."""
    seconds = round(offset.total_seconds())
    sign = "-" if seconds < 0 else "+"
    minutes, second = divmod(abs(seconds), 60)
    hour, minute = divmod(minutes, 60)
    text = f"{sign}{hour:02}"
    if minute or second:
        text += f":{minute:02}"
    return f"{text}:{second:02}" if second else text


# -- in


@dataclass(slots=True)
class _Parts:
    """What the tokens of one text said. `numbers` and `month` wait for each other."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    seconds: int | None = None  # of the day; 86,400 is allowed
    microseconds: int = 0
    zone: tzinfo | None = None
    half: str = ""  # am, pm
    special: str = ""
    era: str = ""


class _Invalid(Exception):
    """Not a text of the type."""


def read_date(text: str, style: Style) -> date:
    # the usual form, ten characters, without the tokens; isoformat takes others, too
    if len(text) == 10 and text[4] == "-" == text[7]:
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    parts = _parts(text, "date", style)
    if parts.special == "allballs":
        raise _syntax("date", text)
    return _date_of(parts, "date", text, style, style.zone)


def read_time(text: str, style: Style) -> time:
    parts = _parts(text, "time", style)
    if parts.special in ("", "allballs", "now"):
        if parts.special == "now":
            return _now(style, "time", text).astimezone(style.zone).time()
        if parts.seconds is None and not parts.special:
            raise _syntax("time", text)
        if parts.zone and parts.zone.utcoffset(None) is None and parts.year is None:
            raise _syntax("time", text)  # its offset depends on the date
        us = (parts.seconds or 0) * 1_000_000 + parts.microseconds
        if us >= 86_400_000_000:
            if us == 86_400_000_000:
                raise unsupported("the time 24:00:00", hint="The last one is 23:59:59.999999.")
            raise _field(text)
        return (_EPOCH + timedelta(microseconds=us)).time()
    raise _syntax("time", text)


def read_timestamp(text: str, style: Style) -> datetime:
    # the usual form without the tokens; isoformat takes others, too, and an offset, which does
    # not count
    if len(text) in (19, 26) and text[10] in " T" and text[7] == "-" and text[16] == ":":
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            if moment.tzinfo is None:
                return moment
    return _moment(text, "timestamp", style)[0]


def read_timestamptz(text: str, style: Style) -> datetime:
    local, zone = _moment(text, "timestamp with time zone", style)
    return at_zone(local, zone or style.zone, text)


def at_zone(local: datetime, zone: tzinfo, text: str = "") -> datetime:
    """A local time of a zone, in UTC. Raises SqlError: it is no year that we have."""
    first = local.replace(tzinfo=zone).utcoffset() or timedelta()
    second = local.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    try:
        return (local - min(first, second)).replace(tzinfo=UTC)
    except OverflowError:
        raise _years("timestamp", text or local.isoformat(" ")) from None


def aware_in(moment: datetime, zone: tzinfo) -> datetime:
    """The same moment as clocks of a zone show it. Raises SqlError: it is no year that we have."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        raise SqlError(DATETIME_OVERFLOW, "timestamp out of range") from None


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """What clocks of a zone show then, as a local time."""
    return aware_in(moment, zone).replace(tzinfo=None)


def _moment(text: str, type_name: str, style: Style) -> tuple[datetime, tzinfo | None]:
    parts = _parts(text, type_name, style)
    if parts.special == "now":
        return _now(style, type_name, text).astimezone(style.zone).replace(tzinfo=None), None
    if parts.special == "epoch":
        return _EPOCH, UTC
    zone = parts.zone
    day = _date_of(parts, type_name, text, style, style.zone)
    try:
        moment = datetime(day.year, day.month, day.day) + timedelta(  # noqa: DTZ001 - local time
            seconds=parts.seconds or 0, microseconds=parts.microseconds
        )
    except OverflowError:
        raise _years("timestamp", text) from None
    return moment, zone


def _date_of(parts: _Parts, type_name: str, text: str, style: Style, zone: tzinfo) -> date:
    match parts.special:
        case "epoch":
            return _EPOCH.date()
        case "now" | "today" | "tomorrow" | "yesterday":
            ahead = {"tomorrow": 1, "yesterday": -1}.get(parts.special, 0)
            return _now(style, type_name, text).astimezone(zone).date() + timedelta(days=ahead)
        case _:
            pass
    if parts.year is None or parts.month is None or parts.day is None:
        raise _syntax(type_name, text)
    if not (1 <= parts.month <= 12 and 1 <= parts.day <= 31):
        raise _field(text, hint='Perhaps you need a different "datestyle" setting.')
    if parts.year == 0:
        raise _field(text)
    if parts.era == "bc" or parts.year > 9999:
        raise _years("date" if type_name == "date" else "timestamp", text)
    try:
        return date(parts.year, parts.month, parts.day)
    except ValueError:
        raise _field(text) from None


def _now(style: Style, type_name: str, text: str) -> datetime:
    if style.now is None:
        raise _syntax(type_name, text)
    return style.now()


def _parts(text: str, type_name: str, style: Style) -> _Parts:
    lowered = text.strip(SPACES).lower()
    if len(lowered) > TIME_CHARS_MAX:
        raise _syntax(type_name, text)
    if lowered in ("infinity", "-infinity", "+infinity"):
        raise unsupported(f"{lowered} of type {type_name}")
    parts = _Parts()
    numbers: list[str] = []
    at = 0
    try:
        while at < len(lowered):
            if named := _zone_at(parts, lowered, at):
                zone = zones.specified(named)
                if zone is None and parts.zone is None:
                    raise zones.not_recognized(named)
                _put_zone(parts, zone)
                at += len(named)
                continue
            found = _TOKEN.match(lowered, at)
            if found is None:
                raise _Invalid
            kind, token = found.lastgroup, found[0]
            if kind == "zone" and parts.seconds is None and not _stands_alone(lowered, at, found):
                # a sign before a time or date is only a separator there
                found = _TOKEN.match(lowered, at + 1)
                if found is None or token[0] == "+":
                    raise _Invalid
                kind, token = found.lastgroup, found[0]
            _take(parts, kind or "", token, numbers, type_name, text)
            at = found.end()
        _assign(parts, numbers)
        _half(parts, text)
    except _Invalid:
        raise _syntax(type_name, text) from None
    return parts


def _stands_alone(lowered: str, at: int, found: re.Match[str]) -> bool:
    """Whether what looks like an offset is one, although no time was before it."""
    if not at:
        return lowered[found.end() : found.end() + 1].isspace()
    return lowered[at] == "+" or lowered[at - 1] in SPACES


def _put_zone(parts: _Parts, zone: tzinfo | None) -> None:
    if zone is None or parts.zone is not None:
        raise _Invalid
    parts.zone = zone


def _zone_at(parts: _Parts, lowered: str, at: int) -> str:
    """A zone's name with marks or digits in it; it stands after the day and the month, or alone
    with a time.
    """
    if (parts.month is None or parts.day is None) and parts.seconds is None:
        return ""
    found = _ZONE_NAME.match(lowered, at)
    if found is None or (found[2] and found[1] in _NOT_ZONES):
        return ""
    return found[0]


def _take(
    parts: _Parts, kind: str, token: str, numbers: list[str], type_name: str, text: str
) -> None:
    match kind:
        case "clock":
            if parts.seconds is not None:
                raise _Invalid
            hour, minute, second = [*token.split(":"), "0"][:3]
            _clock(parts, hour, minute, second, text)
        case "triple":
            _triple(parts, token)
        case "ordinal":
            _ordinal(parts, token, text)
        case "named":
            numbers_of = token.split("-")
            for piece in numbers_of:
                _take(parts, "number" if piece.isdigit() else "word", piece, numbers, "", text)
        case "run":
            _run(parts, token, numbers, type_name, text)
        case "zone":
            _put_zone(parts, _offset(token, text))
        case "number":
            numbers.append(token)
        case "word":
            _word(parts, token)
        case _:
            pass


def _clock(parts: _Parts, hour: str, minute: str, second: str, text: str) -> None:
    whole, _, fraction = second.partition(".")
    microseconds = round(float(f"0.{fraction}") * 1e6) if fraction else 0
    h, m, s = int(hour), int(minute), int(whole or 0)
    if h > 24 or m > 59 or s > 60 or (h == 24 and (m or s or microseconds)):
        raise _field(text)
    parts.seconds = (h * 60 + m) * 60 + s
    parts.microseconds = microseconds


def _triple(parts: _Parts, token: str) -> None:
    """Y-M-D if the first has more than two digits, else M/D/Y."""
    first, second, third = re.split("[-/.]", token)
    if parts.year is not None:
        raise _Invalid
    if len(first) > 2:
        parts.year, parts.month, parts.day = _bounded(first), int(second), _bounded(third)
    else:
        parts.month, parts.day, parts.year = int(first), int(second), _full_year(third)


def _ordinal(parts: _Parts, token: str, text: str) -> None:
    """YYYY-DDD."""
    if parts.year is not None:
        raise _Invalid
    year, number = int(token[:4]), int(token[5:])
    if not year or not 1 <= number <= 365 + isleap(year):
        raise _field(text)
    day = date(year, 1, 1) + timedelta(days=number - 1)
    parts.year, parts.month, parts.day = day.year, day.month, day.day


def _bounded(digits: str) -> int:
    return int(digits) if len(digits) < 9 else 10**8


def _full_year(digits: str) -> int:
    year = _bounded(digits)
    if len(digits) > 2:
        return year
    return year + (2000 if year < 70 else 1900)


def _run(parts: _Parts, token: str, numbers: list[str], type_name: str, text: str) -> None:
    """Digits without marks: YYYYMMDD, YYMMDD; HHMMSS, HHMM after a date or in a time; a year."""
    digits, _, fraction = token.lstrip("t").partition(".")
    is_time = token[0] == "t" or parts.year is not None or type_name == "time"
    if is_time and parts.seconds is None and len(digits) in (4, 6):
        second = digits[4:] or "0"
        _clock(parts, digits[:2], digits[2:4], f"{second}.{fraction}", text)
    elif fraction or token[0] == "t":
        raise _Invalid
    elif len(digits) == 8 and parts.year is None:
        parts.year, parts.month, parts.day = int(digits[:4]), int(digits[4:6]), int(digits[6:])
    elif len(digits) == 6 and parts.year is None and parts.month is None:
        parts.year = _full_year(digits[:2])
        parts.month, parts.day = int(digits[2:4]), int(digits[4:])
    else:
        numbers.append(digits)


def _word(parts: _Parts, word: str) -> None:
    if word in _SPECIAL:
        if parts.special:
            raise _Invalid
        parts.special = word
        if word == "allballs":
            if parts.seconds is not None:
                raise _Invalid
            parts.seconds, parts.zone = 0, UTC
    elif word in _MONTH_OF:
        if parts.month is not None:
            raise _Invalid
        parts.month = _MONTH_OF[word]
    elif word in ("am", "pm"):
        parts.half = word
    elif word == "bc":
        parts.era = word
    elif word in _IGNORED or word in _WEEKDAYS:
        pass
    else:
        _zone_word(parts, word)


def _zone_word(parts: _Parts, word: str) -> None:
    if word == "dst" and parts.zone is not None:  # after an abbreviation: an hour more
        ahead = (parts.zone.utcoffset(None) or timedelta()) + timedelta(hours=1)
        parts.zone = timezone(ahead)
        return
    if parts.seconds is None and parts.year is None and not zones.is_standard(word):
        raise _Invalid
    _put_zone(parts, zones.abbreviation(word) or zones.specified(word))


def _offset(token: str, text: str) -> tzinfo:
    digits = token[1:].replace(":", "").ljust(6, "0") if ":" in token or len(token) != 2 else ""
    if not digits:  # one digit: hours
        digits = f"0{token[1]}0000"
    elif ":" in token and token.index(":") == 2:
        digits = f"0{token[1:].replace(':', '')}".ljust(6, "0")
    elif ":" not in token and len(token) == 4:
        digits = f"0{token[1:]}00"
    hour, minute, second = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    if hour > 15 or minute > 59 or second > 59:
        raise SqlError("22009", f'time zone displacement out of range: "{text}"')
    offset = timedelta(hours=hour, minutes=minute, seconds=second)
    return timezone(-offset if token[0] == "-" else offset)


def zone_of_offset(text: str) -> tzinfo:
    """What make_timestamptz takes: an offset, which counts east of Greenwich here, or what AT TIME
    ZONE takes. Raises SqlError (22023).
    """
    if text[:1].isdigit():
        raise SqlError(
            INVALID_PARAMETER,
            f'invalid input syntax for type numeric time zone: "{text:.100}"',
            hint='Numeric time zones must have "-" or "+" as first character.',
        )
    found = _TOKEN.fullmatch(text)
    if found is not None and found.lastgroup == "zone":
        return _offset(text, text)
    return zones.named(text)


def _assign(parts: _Parts, numbers: list[str]) -> None:
    """Numbers beside a month's name: the day, and the year (the one of more than two digits)."""
    for digits in numbers:
        if parts.month is None:
            raise _Invalid
        if parts.year is None and (len(digits) > 2 or parts.day is not None):
            parts.year = _full_year(digits)
        elif parts.day is None:
            parts.day = int(digits)
        else:
            raise _Invalid


def _half(parts: _Parts, text: str) -> None:
    if not parts.half:
        return
    if parts.seconds is None:
        raise _Invalid
    hour, rest = divmod(parts.seconds, _HOUR)
    if hour > 12:
        raise _field(text)
    parts.seconds = (hour % 12 + (12 if parts.half == "pm" else 0)) * _HOUR + rest


# -- errors


def _syntax(type_name: str, text: str) -> SqlError:
    return SqlError(INVALID_DATETIME, f'invalid input syntax for type {type_name}: "{text}"')


def _field(text: str, *, hint: str = "") -> SqlError:
    message = f'date/time field value out of range: "{text}"'
    return SqlError(DATETIME_OVERFLOW, message, hint=hint)


def _years(type_name: str, text: str) -> SqlError:
    return SqlError(
        DATETIME_OVERFLOW,
        f'{type_name} out of range: "{text}"',
        detail="Years from 1 to 9999 are kept.",
    )
