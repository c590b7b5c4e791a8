"""Dates and times of jsonpath: what `.datetime()` makes of a text, with or without a template, and
how two of them compare.

    read("10.03.2017", "dd.mm.yyyy")     Moment("date", …), shown as 2017-03-10
    compare(one, other, zone, now)       -1, 0, 1; None: they do not compare (a date and a time)

A template is read strictly, as the standard wants: what is no field stands in the text as it is
written. Source: PostgreSQL 15, formatting.c (parse_datetime), jsonpath_exec.c (compareDatetime).
Deliberately missing (0A000): fields beside those of `_FIELDS`, as weeks, quarters and centuries,
and years before 1 and after 9999, as everywhere here.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from kv.base.limits import SQL_FORMAT_CHARS_MAX
from sqlproxy.pg.datetimes import at_zone, aware_in, write_time
from sqlproxy.values.errors import (
    INVALID_DATETIME,
    LIMIT_EXCEEDED,
    UNSUPPORTED,
    SqlError,
    unsupported,
)
from sqlproxy.values.words import words

_FIELD_OVERFLOW: Final = "22008"
_ZONE_OVERFLOW: Final = "22009"
_NOT_RECOGNIZED: Final = "22031"
_INT_MAX: Final = (1 << 31) - 1
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times of no zone are measured from it
_US: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_NAMES: Final = {
    "date": "date",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
_ZONED: Final = frozenset(("timetz", "timestamptz"))
_TIMES: Final = frozenset(("time", "timetz"))


@dataclass(frozen=True, slots=True)
class Moment:
    """`local`: as clocks of its zone show it, of a time on the first of January 1970; `offset`:
    seconds that they are ahead of UTC.
    """

    kind: str
    local: datetime
    offset: int = 0

    @property
    def type_name(self) -> str:
        return _NAMES[self.kind]

    def __str__(self) -> str:
        """As it stands in JSON."""
        day = self.local.date().isoformat()
        if self.kind == "date":
            return day
        if self.kind in _TIMES and self.local >= _EPOCH + _DAY:
            clock = "24:00:00"
        else:
            clock = write_time(self.local.time())
        if self.kind in _ZONED:
            hours, minutes = divmod(abs(self.offset) // 60, 60)
            clock += f"{'-' if self.offset < 0 else '+'}{hours:02d}:{minutes:02d}"
        return clock if self.kind in _TIMES else f"{day}T{clock}"


# -- comparisons


def compare(one: Moment, other: Moment, zone: tzinfo | None, now: datetime | None) -> int | None:
    """`zone`: of the session, where what has no zone may be taken for one of it; `now`: the moment
    whose offset times of day get. Raises SqlError (0A000): it may not.
    """
    if (one.kind in _TIMES) != (other.kind in _TIMES):
        return None
    if (one.kind in _ZONED) == (other.kind in _ZONED):
        a, b = _key(one), _key(other)
    else:
        a, b = (_key(_zoned(each, zone, now)) for each in (one, other))
    return (a > b) - (a < b)


def _key(one: Moment) -> tuple[int, int]:
    at = (one.local - _EPOCH) // _US - one.offset * 1_000_000
    return at, -one.offset if one.kind == "timetz" else 0


def _zoned(one: Moment, zone: tzinfo | None, now: datetime | None) -> Moment:
    if one.kind in _ZONED:
        return one
    kind = "timetz" if one.kind == "time" else "timestamptz"
    if zone is None or now is None:
        raise SqlError(
            "0A000",
            f"cannot convert value from {one.kind} to {kind} without time zone usage",
            hint="Use *_tz() function for time zone support.",
        )
    if one.kind == "time":
        ahead = aware_in(now, zone).utcoffset() or timedelta()
    else:
        ahead = one.local.replace(tzinfo=UTC) - at_zone(one.local, zone)
    return Moment(kind, one.local, ahead // timedelta(seconds=1))


# -- templates


class _Part(NamedTuple):
    """A field, or what stands as it is written. `slurps`: as many digits as there are."""

    name: str  # of the field in upper case; "": none
    text: str  # as it was written; of what is no field one character
    length: int = 0
    slurps: bool = False
    ordinal: bool = False  # two characters behind it are passed over
    quoted: bool = False


_LENGTHS: Final = {
    **dict.fromkeys(words("Y FF1"), 1),
    **dict.fromkeys(words("YY MM DD HH24 HH12 HH MI SS FF2 TZH TZM"), 2),
    **dict.fromkeys(words("YYY DDD MS FF3"), 3),
    **dict.fromkeys(words("YYYY FF4"), 4),
    **dict.fromkeys(words("SSSS SSSSS FF5"), 5),
    **dict.fromkeys(words("US FF6"), 6),
}
_MONTHS: Final = tuple(name.lower() for name in calendar.month_name[1:])
_DAYS: Final = tuple(name.lower() for name in calendar.day_name)
_WORDS: Final = {
    **dict.fromkeys(("MONTH", "MON"), _MONTHS),
    **dict.fromkeys(("DAY", "DY"), _DAYS),
    **dict.fromkeys(("AM", "PM"), ("am", "pm")),
    **dict.fromkeys(("A.M.", "P.M."), ("a.m.", "p.m.")),
}
_DATED: Final = words("Y YY YYY YYYY MM DD DDD MONTH MON DAY DY")
_ZONES: Final = words("TZH TZM")
_FIELDS: Final = (*_LENGTHS, *_WORDS)
_OTHERS: Final = words("IYYY IYY IY I IW IDDD ID Y,YYY J Q CC WW W D BC AD B.C. A.D. RM OF TZ")
_TOKEN: Final = re.compile(
    r'"(?P<quoted>(?:[^"\\]|\\.)*)"?|(?P<plain>FM|FX|TM)?(?P<name>'
    + "|".join(re.escape(one) for one in sorted((*_FIELDS, *_OTHERS), key=len, reverse=True))
    + r")(?P<ordinal>TH)?|(?P<fixed>FX)|(?P<sign>.)",
    re.IGNORECASE | re.DOTALL,
)
_SEPARATORS: Final = frozenset("-./,':; ")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_BLANKS: Final = re.compile(r"[ \t\n\r\f\v]+")
_SHOWN: Final = 200  # characters of a text in messages
_KEPT_CHARS_MAX: Final = 64  # of a template that is read once for many texts
Template: TypeAlias = "tuple[_Part, ...]"


@lru_cache(maxsize=256)
def _parts(template: str) -> Template:
    """Raises SqlError, also where errors of the text are none."""
    found: list[_Part] = []
    for token in _TOKEN.finditer(template):
        written = token["name"] or ""
        name, sign = written.upper(), token["sign"]
        if written not in (name, name.lower()) and (name not in _WORDS or not written.istitle()):
            sign = token[0][0]
        if sign is not None:
            if sign not in _SEPARATORS:
                raise _wrong(f'invalid datetime format separator: "{sign}"')
            found.append(_Part("", sign))
        elif token["quoted"] is not None:
            text = re.sub(r"\\(.)", r"\1", token["quoted"], flags=re.DOTALL)
            found += [_Part("", one, quoted=True) for one in text]
        elif name in _OTHERS or (token["plain"] or "").upper() == "TM":
            raise unsupported(f'the field "{token[0]}" in a template of .datetime()')
        elif name:
            slurps = (token["plain"] or "").upper() == "FM" or bool(token["ordinal"])
            length = _LENGTHS.get(name, 0)
            found.append(_Part(name, written, length, slurps, bool(token["ordinal"])))
    return tuple(
        part._replace(slurps=True) if part.length and not _digits(after) else part
        for part, after in zip(found, [*found, None][1:], strict=True)
    )


def _digits(part: _Part | None) -> bool:
    """Whether it begins with a digit."""
    if part is None:
        return False
    if part.name:
        return part.length > 0 and part.name != "TZH" and not part.name.startswith("FF")
    return part.text.isdigit()


@dataclass(slots=True)
class _Reading:
    text: str
    at: int = 0
    values: dict[str, int] = field(default_factory=dict)

    def all(self, parts: Template) -> None:
        """Raises SqlError."""
        for part in parts:
            if self.at >= len(self.text):
                raise _wrong("input string is too short for datetime format")
            if not part.name:
                self._same(part)
            elif part.name in _WORDS:
                self._word(part)
            else:
                self._number(part)
        self._blanks()
        if self.at < len(self.text):
            raise _wrong("trailing characters remain in input string after datetime format")

    def _blanks(self) -> None:
        if (found := _BLANKS.match(self.text, self.at)) is not None:
            self.at = found.end()

    def _same(self, part: _Part) -> None:
        if self.text[self.at] != part.text:
            what = "character" if part.quoted else "separator"
            raise _wrong(f'unmatched format {what} "{part.text}"')
        self.at += 1

    def _word(self, part: _Part) -> None:
        short = part.name in ("MON", "DY")
        rest = self.text[self.at : self.at + 16].lower()
        for number, word in enumerate(_WORDS[part.name]):
            wanted = word[:3] if short else word
            if rest.startswith(wanted):
                self.at += len(wanted)
                if part.name in ("MONTH", "MON"):
                    self._put(part, "MM", number + 1)
                elif "M" in part.name:
                    self._put(part, "PM", number)
                return
        raise _wrong(
            f'invalid value "{_BLANKS.split(self.text[self.at : self.at + _SHOWN], 1)[0]}" '
            f'for "{part.text}"',
            "The given value did not match any of the allowed values for this field.",
        )

    def _number(self, part: _Part) -> None:
        name = part.name
        if name == "TZH":
            sign = self.text[self.at]
            self.at += sign in "+- "
            self.values["sign"] = -1 if sign == "-" else 1
        value, digits = self._integer(part)
        if name in ("Y", "YY", "YYY") and digits < 4:
            value += 2000 if value < 70 else 1900 if value < 100 else 2000 if value < 520 else 1000
        if name in ("Y", "YY", "YYY", "YYYY"):
            self._put(part, "year", value)
        elif name in ("MS", "US") or name.startswith("FF"):
            unit = "MS" if name == "MS" else "US"
            self._put(part, unit, value * 10 ** max((3 if unit == "MS" else 6) - digits, 0))
            if name.startswith("FF"):
                self.values["precision"] = part.length
        elif name in ("HH12", "HH", "HH24"):
            self._put(part, "HH", value)
            if name != "HH24":
                self.values.setdefault("PM", 0)
        else:
            self._put(part, "SSSS" if name == "SSSSS" else name, value)
        if part.ordinal:
            self.at = min(self.at + 2, len(self.text))

    def _put(self, part: _Part, name: str, value: int) -> None:
        if self.values.get(name, 0) not in (0, value):
            raise _wrong(
                f'conflicting values for "{part.text}" field in formatting string',
                "This value contradicts a previous setting for the same field type.",
            )
        self.values[name] = value

    def _integer(self, part: _Part) -> tuple[int, int]:
        """The number, and how many characters it has."""
        self._blanks()
        text, at, length = self.text, self.at, part.length
        if not part.slurps and len(text) - at < length:
            raise _wrong(
                f'source string too short for "{part.text}" formatting field',
                f"Field requires {length} characters, but only {len(text) - at} remain.",
                hint=_FIXED_WIDTH,
            )
        found = _INTEGER.match(text, at, len(text) if part.slurps else at + length)
        if found is None:
            raise _wrong(
                f'invalid value "{text[at : at + length]}" for "{part.text}"',
                "Value must be an integer.",
            )
        size = found.end() - at
        if not part.slurps and size < length:
            raise _wrong(
                f'invalid value "{text[at : at + length]}" for "{part.text}"',
                f"Field requires {length} characters, but only {size} could be parsed.",
                hint=_FIXED_WIDTH,
            )
        value = int(found[0])
        if not -_INT_MAX - 1 <= value <= _INT_MAX:
            raise SqlError(
                _FIELD_OVERFLOW,
                f'value for "{part.text}" in source string is out of range',
                detail=f"Value must be in the range {-_INT_MAX - 1} to {_INT_MAX}.",
            )
        self.at = found.end()
        return value, size

    # -- what was read

    def moment(self, kind: str) -> Moment:
        """Raises SqlError."""
        day = _EPOCH if kind in _TIMES else self._day()
        made = day + timedelta(microseconds=self._clock())
        if precision := self.values.get("precision"):
            step = 10 ** (6 - precision)
            us = (made.microsecond + step // 2) // step * step
            made = made.replace(microsecond=0) + timedelta(microseconds=us)
        return Moment(kind, made, self._offset() if kind in _ZONED else 0)

    def _range(self) -> SqlError:
        return SqlError(
            _FIELD_OVERFLOW, f'date/time field value out of range: "{self.text:.{_SHOWN}}"'
        )

    def _day(self) -> datetime:
        get = self.values.get
        year, month, day = get("year", 0), get("MM") or 1, get("DD") or 1
        whole = get("DDD", 0) if month <= 1 or day <= 1 else 0
        if whole and not year:
            raise _wrong("cannot calculate day of year without year information")
        if not 1 <= year <= 9999:
            raise unsupported(
                f'the year of "{self.text:.{_SHOWN}}" in .datetime()', hint="Years are 1 to 9999."
            )
        try:
            if whole:
                if not 1 <= whole <= 365 + calendar.isleap(year):
                    raise self._range()
                return datetime(year, 1, 1) + timedelta(days=whole - 1)  # noqa: DTZ001
            return datetime(year, month, day)  # noqa: DTZ001
        except ValueError:
            raise self._range() from None

    def _clock(self) -> int:
        """Microseconds of the day."""
        get = self.values.get
        whole = get("SSSS", 0)
        hour = get("HH") or whole // 3600
        minute, second = get("MI") or whole // 60 % 60, get("SS") or whole % 60
        if (late := get("PM")) is not None:
            if not 1 <= hour <= 12:
                raise _wrong(
                    f'hour "{hour}" is invalid for the 12-hour clock',
                    hint="Use the 24-hour clock, or give an hour between 1 and 12.",
                )
            hour = hour % 12 + 12 * late
        us = get("MS", 0) * 1000 + get("US", 0)
        for value, end in ((hour, 24), (minute, 60), (second, 60), (us, 1_000_000)):
            if not 0 <= value < end:
                raise self._range()
        return ((hour * 60 + minute) * 60 + second) * 1_000_000 + us

    def _offset(self) -> int:
        hours, minutes = self.values.get("TZH", 0), self.values.get("TZM", 0)
        if not (0 <= hours <= 15 and 0 <= minutes < 60):
            raise SqlError(
                _ZONE_OVERFLOW, f'time zone displacement out of range: "{self.text:.{_SHOWN}}"'
            )
        return self.values.get("sign", 1) * (hours * 3600 + minutes * 60)


_FIXED_WIDTH: Final = 'If your source string is not fixed-width, try using the "FM" modifier.'


def _wrong(message: str, detail: str = "", *, hint: str = "") -> SqlError:
    return SqlError(INVALID_DATETIME, message, detail=detail, hint=hint)


def _kind(parts: Template) -> str:
    names = {part.name for part in parts} - {""}
    dated, zoned = not names.isdisjoint(_DATED), not names.isdisjoint(_ZONES)
    timed = bool(names.difference(_DATED, _ZONES))
    if timed:
        return ("timestamp" if dated else "time") + ("tz" if zoned else "")
    if dated and not zoned:
        return "date"
    missing = "zoned but not timed" if dated else "not dated and not timed"
    raise _wrong(f"datetime format is {missing}")


_CLOCKS: Final = ("HH24:MI:SS.US", "HH24:MI:SS")
_OFFSETS: Final = ("TZH:TZM", "TZH")
_ISO: Final = (
    "yyyy-mm-dd",
    *(clock + offset for clock in _CLOCKS for offset in _OFFSETS),
    *_CLOCKS,
    *(
        f"yyyy-mm-dd{between}{clock}{offset}"
        for offsets in (_OFFSETS, ("",))
        for between in (" ", '"T"')
        for clock in _CLOCKS
        for offset in offsets
    ),
)
"""What is tried without a template, in PostgreSQL's order."""


def template(text: str) -> Template:
    """Raises SqlError."""
    if len(text) > SQL_FORMAT_CHARS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED,
            f"a format of {len(text)} characters is more than {SQL_FORMAT_CHARS_MAX}",
        )
    return _parts(text) if len(text) <= _KEPT_CHARS_MAX else _parts.__wrapped__(text)


def read(text: str, given: Template | None) -> Moment:
    """What a text says. Raises SqlError: it says none."""
    if given is not None:
        return _read(text, given)
    for one in _ISO:
        try:
            return _read(text, _parts(one))
        except SqlError as error:
            if error.sqlstate == UNSUPPORTED:
                raise
    raise SqlError(
        _NOT_RECOGNIZED,
        f'datetime format is not recognized: "{text:.{_SHOWN}}"',
        hint="Use a datetime template argument to specify the input data format.",
    )


def _read(text: str, parts: Template) -> Moment:
    reading = _Reading(text)
    if parts:
        reading.all(parts)
    return reading.moment(_kind(parts))
