"""to_char, to_date, to_timestamp, to_number: the patterns that are in common use (PostgreSQL's
formatting.c).

Deliberately missing: Roman numerals, TM, localized names, V, EEEE; they are 0A000.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kv.base.limits import SQL_FORMAT_CHARS_MAX
from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.f_numbers import quantized
from sqlproxy.front.functions.function import declared, with_env
from sqlproxy.front.types.quoting import held_relation
from sqlproxy.pg.datetimes import at_zone, aware_in
from sqlproxy.pg.numbers import NUMERIC_CHARS_MAX
from sqlproxy.values.errors import INVALID_DATETIME, LIMIT_EXCEEDED, SqlError, unsupported
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import by_word

Field: TypeAlias = Callable[[datetime], str]
_KEPT_CHARS_MAX: Final = 64  # of a pattern that is read once for many moments
_MONTHS: Final = tuple(calendar.month_name[1:])
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|(FM|fm)?(HH24|hh24|HH12|hh12|HH|hh|MI|mi|SSSSS|SSSS|SS|ss|MS|ms|US|us|FF[1-6]|Y,YYY|YYYY|yyyy'
    r"|YYY|yyy|YY|yy|IYYY|iyyy|IYY|IY|IW|iw|ID|id|IDDD|MONTH|Month|month|MON|Mon|mon|MM|mm|DAY|Day|day|DY|Dy|dy|DDD|ddd"
    r"|DD|dd|D|WW|ww|W|w|CC|cc|J|Q|q|AM|PM|am|pm|A\.M\.|P\.M\.|a\.m\.|p\.m\.|TZH|TZM|TZ|tz|OF|BC|AD|Y|I)(TH|th)?",
    re.DOTALL,
)


def _readable(pattern: str) -> None:
    """Raise 54000 for a format that is too long."""
    if len(pattern) > SQL_FORMAT_CHARS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED,
            f"a format of {len(pattern)} characters is more than {SQL_FORMAT_CHARS_MAX}",
        )


def _ordinal(number: str, suffix: str) -> str:
    n = int(number)
    end = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return number + (end.upper() if suffix == "TH" else end)


def _zone_text(offset: timedelta, minutes: bool) -> str:
    seconds = int(offset.total_seconds())
    sign = "-" if seconds < 0 else "+"
    hours, rest = divmod(abs(seconds), 3600)
    return f"{sign}{hours:02d}" + (f":{rest // 60:02d}" if minutes or rest else "")


def timestamp_text(value: datetime, pattern: str) -> str | None:
    """A timestamp by a pattern; of an aware one the zone is its own."""
    _readable(pattern)
    if not pattern:
        return None
    kept = len(pattern) <= _KEPT_CHARS_MAX
    parts = _parts(pattern) if kept else _parts.__wrapped__(pattern)
    return "".join([part if isinstance(part, str) else part(value) for part in parts])


@lru_cache(maxsize=256)
def _parts(pattern: str) -> list[str | Field]:
    """What is written as it stands, and what makes the rest."""
    found: list[str | Field] = []
    end = 0
    for token in _TOKEN.finditer(pattern):
        found.append(pattern[end : token.start()])
        end = token.end()
        if token[0].startswith('"'):
            found.append(re.sub(r"\\(.)", r"\1", token[0][1:-1]))
        else:
            found.append(_filled(token[1], token[2], token[3] or ""))
    found.append(pattern[end:])
    return [part for part in found if part != ""]


def _filled(plain: str | None, token: str, suffix: str) -> Field:
    """A field with zeros before, or blanks after it, and the ending of an ordinal number."""
    field, width = _field(token)
    if plain:
        width = 0

    def text(value: datetime) -> str:
        made = field(value)
        if width:
            made = made.rjust(width, "0") if width > 0 else made.ljust(-width)
        if not suffix:
            return made
        return _ordinal(made, suffix) if made.isdigit() else made + suffix

    return text


def _cased(name: str, like: str) -> str:
    return name.upper() if like.isupper() else name.lower() if like.islower() else name


def _seconds(v: datetime) -> str:
    return str(v.hour * 3600 + v.minute * 60 + v.second)


_NUMBERS: Final[dict[str, tuple[Field, int]]] = {
    "HH24": (lambda v: str(v.hour), 2),
    "HH12": (lambda v: str(v.hour % 12 or 12), 2),
    "HH": (lambda v: str(v.hour % 12 or 12), 2),
    "MI": (lambda v: str(v.minute), 2),
    "SS": (lambda v: str(v.second), 2),
    "MS": (lambda v: str(v.microsecond // 1000), 3),
    "US": (lambda v: str(v.microsecond), 6),
    "SSSS": (_seconds, 0),
    "SSSSS": (_seconds, 0),
    "Y,YYY": (lambda v: f"{v.year // 1000},{v.year % 1000:03d}", 0),
    "YYYY": (lambda v: str(v.year), 4),
    "YYY": (lambda v: str(v.year % 1000), 3),
    "YY": (lambda v: str(v.year % 100), 2),
    "Y": (lambda v: str(v.year % 10), 1),
    "IYYY": (lambda v: str(v.isocalendar()[0]), 4),
    "IYY": (lambda v: str(v.isocalendar()[0] % 1000), 3),
    "IY": (lambda v: str(v.isocalendar()[0] % 100), 2),
    "I": (lambda v: str(v.isocalendar()[0] % 10), 1),
    "IW": (lambda v: str(v.isocalendar()[1]), 2),
    "ID": (lambda v: str(v.isoweekday()), 1),
    "IDDD": (lambda v: str((v.isocalendar()[1] - 1) * 7 + v.isoweekday()), 3),
    "MM": (lambda v: str(v.month), 2),
    "DDD": (lambda v: str(v.timetuple().tm_yday), 3),
    "DD": (lambda v: str(v.day), 2),
    "D": (lambda v: str(v.isoweekday() % 7 + 1), 1),
    "WW": (lambda v: str((v.timetuple().tm_yday - 1) // 7 + 1), 2),
    "W": (lambda v: str((v.day - 1) // 7 + 1), 1),
    "CC": (lambda v: str((v.year + 99) // 100), 2),
    "J": (lambda v: str(v.toordinal() + 1_721_425), 0),
    "Q": (lambda v: str((v.month + 2) // 3), 0),
}


def _field(token: str) -> tuple[Field, int]:
    """Makes its text, and the width to fill: with zeros, negative with blanks after."""
    upper = token.upper()
    if upper in _NUMBERS:
        return _NUMBERS[upper]
    if upper.startswith("FF"):
        digits = int(upper[2])
        return lambda v: f"{v.microsecond:06d}"[:digits], 0
    match upper:
        case "MONTH":
            return lambda v: _cased(_MONTHS[v.month - 1], token), -9
        case "MON":
            return lambda v: _cased(_MONTHS[v.month - 1][:3], token), 0
        case "DAY":
            return lambda v: _cased(_DAYS[v.isoweekday() % 7], token), -9
        case "DY":
            return lambda v: _cased(_DAYS[v.isoweekday() % 7][:3], token), 0
        case "AM" | "PM":
            return lambda v: _cased("PM" if v.hour >= 12 else "AM", token), 0
        case "A.M." | "P.M.":
            return lambda v: _cased("P.M." if v.hour >= 12 else "A.M.", token), 0
        case "BC" | "AD":
            return lambda v: _cased("AD", token), 0
        case _:
            return lambda v: _of_zone(v, token), 0


def _of_zone(value: datetime, token: str) -> str:
    upper, offset = token.upper(), value.utcoffset()
    if offset is None:
        return "+00" if upper in ("OF", "TZH") else "00" if upper == "TZM" else ""
    if upper == "TZM":
        return f"{abs(int(offset.total_seconds())) // 60 % 60:02d}"
    if upper == "TZ":
        name = value.tzname() or ""
        return _cased(name if name and name[0].isalpha() else _zone_text(offset, False), token)
    return _zone_text(offset, False) if upper == "OF" else _zone_text(offset, False)[:3]


def _interval_text(value: Interval, pattern: str) -> str | None:
    _readable(pattern)
    if not pattern:
        return None
    years, months = int(value.months / 12), value.months - int(value.months / 12) * 12
    us = abs(value.us)
    sign = -1 if value.us < 0 else 1
    hours = sign * (us // 3_600_000_000)
    values = {
        "HH24": (hours, 2),
        "HH12": (abs(hours) % 12 or 12, 2),
        "HH": (abs(hours) % 12 or 12, 2),
        "MI": (sign * (us // 60_000_000 % 60), 2),
        "SS": (sign * (us // 1_000_000 % 60), 2),
        "MS": (us // 1000 % 1000, 3),
        "US": (us % 1_000_000, 6),
        "YYYY": (years, 4),
        "YY": (years % 100, 2),
        "MM": (months, 2),
        "DD": (value.days, 2),
        "DDD": (value.days, 3),
        "Y": (years % 10, 1),
    }

    def one(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            return found[0][1:-1]
        name = found[2].upper()
        if name not in values:
            raise unsupported(f"{found[2]} in to_char of an interval")
        number, width = values[name]
        text = str(abs(number)).rjust(0 if found[1] else width, "0")
        return ("-" if number < 0 else "") + text

    return _TOKEN.sub(one, pattern)


# -- numbers

_NUMBER_TOKEN: Final = re.compile(
    r'"[^"]*"|FM|TH|th|SG|PL|MI|PR|RN|EEEE|TM9?|[90.,DGSVL]|.', re.IGNORECASE | re.DOTALL
)


_BEGIN: Final = "\1"  # where the digits of a number begin, and where they end
_END: Final = "\2"


def number_text(value: Decimal, pattern: str) -> str:
    """A number by a pattern of 9, 0, . D , G S MI PL SG PR FM TH L and literals."""
    _readable(pattern)
    tokens = tokens_all = _NUMBER_TOKEN.findall(pattern)
    names = [t.upper() for t in tokens]
    for name in names:
        if name in ("RN", "EEEE", "TM", "TM9", "V"):
            raise unsupported(f"{name} in to_char of a number")
    if not {"9", "0", ".", "D"} & set(names):
        return _without_digits(tokens, value)
    fill = "FM" not in names
    point = next((i for i, n in enumerate(names) if n in (".", "D")), len(names))
    digits = [i for i, n in enumerate(names) if n in ("9", "0")]
    decimals = sum(i > point for i in digits)
    whole_places = len(digits) - decimals
    rounded = quantized(value.copy_abs(), decimals)
    negative = value.is_signed() and bool(rounded)
    text = format(rounded, "f")
    head, _, tail = text.partition(".")
    overflow = len(head) > whole_places  # also 0 where there is no place for it
    marks = frozenset(names)
    if overflow:  # FM leaves no # out
        tail = "9" * decimals
    elif not decimals or not rounded.is_finite():  # it ends here, and the pattern with it
        tokens, names = tokens[:point], names[:point]
    bare = not fill and not tail.strip("0") and "0" not in names[point:]  # 0. of FM9.9
    if head == "0" and decimals and not bare:
        head = ""
    written = _Digits(names, tokens, point, head, tail, whole_places, overflow, fill).written()
    return _signed(written, marks, negative, fill, whole=len(names) == len(tokens_all))


def _without_digits(tokens: list[str], value: Decimal) -> str:
    """A pattern without a place for the number: only the marks that stand by themselves show its
    sign.
    """
    fill = " " * ("FM" not in {token.upper() for token in tokens})
    negative = value.is_signed() and bool(quantized(value.copy_abs(), 0))
    marks = {
        "MI": "-" if negative else fill,
        "PL": fill if negative else "+",
        ",": fill,
        "G": fill,
        "SG": "-" if negative else "+",
        "L": " ",
        "S": "",
        "PR": "",
        "FM": "",
        "TH": "",
    }
    return "".join(marks.get(t.upper(), t.strip('"') if t.startswith('"') else t) for t in tokens)


class _Digits:
    """One pass over a pattern, of which `places` stand before the point. The text of marks is put
    in by `_signed`, which finds the number between _BEGIN and _END.
    """

    def __init__(
        self,
        names: list[str],
        tokens: list[str],
        point: int,
        head: str,
        tail: str,
        places: int,
        overflow: bool,
        fill: bool,
    ) -> None:
        self.names, self.tokens, self.point = names, tokens, point
        self.head, self.tail, self.places = head, tail, places
        self.overflow, self.fill = overflow, fill
        before = [name for name in names[:point] if name in _PLACES]
        after = [name for name in names[point:] if name in _PLACES]
        self.zero_from = before.index("0") if "0" in before else len(before)
        # Trailing zeros of 9s after the point go when FM says so; those of 0s stay.
        self.needed = len(tail)
        if not fill:
            zeros = [k for k, name in enumerate(after, 1) if name == "0"]
            self.needed = max([len(tail.rstrip("0")), *zeros])
        self.out: list[str] = []
        self.seen = self.after = 0  # places before and after the point so far
        self.started = False
        self.end = 0  # of the number

    def written(self) -> list[str]:
        for i, name in enumerate(self.names):
            _WRITES.get(name, _Digits._literal)(self, i)
        out = self.out
        out.insert(self.end, _END)
        # PostgreSQL writes the last 9 before a bare point as 0 only when nothing is after it.
        if not self.head and not self.started and self.places and not self.tail:
            blanks = [k for k, text in enumerate(out) if text == " "]
            if blanks:
                out[blanks[-1]] = _BEGIN + "0"
            else:
                out.insert(0, _BEGIN + "0")
        return out

    def _place(self, i: int) -> None:
        if i < self.point:
            self._place_before()
        else:
            if self.after < self.needed:
                self.out.append("#" if self.overflow else self.tail[self.after])
            self.after += 1
        self.end = len(self.out)

    def _place_before(self) -> None:
        at = len(self.head) - (self.places - self.seen)
        if self.overflow or at >= 0 or self.seen >= self.zero_from:
            if not self.started:
                self.out.append(_BEGIN)
            self.out.append("#" if self.overflow else self.head[at] if at >= 0 else "0")
            self.started = True
        elif self.fill:
            self.out.append(" ")
        self.seen += 1

    def _point(self, i: int) -> None:
        if _BEGIN not in self.out:
            self.out.append(_BEGIN)
        self.out.append(".")
        self.end = len(self.out)

    def _group(self, i: int) -> None:
        if self.started:
            self.out.append(",")
        elif self.fill:
            self.out.append(" ")

    def _currency(self, i: int) -> None:
        self.out.append(" " if self.fill else "")

    def _mark(self, i: int) -> None:
        self.out.append("\0" + self.names[i])

    def _ordinal(self, i: int) -> None:
        number = self.head or "0"
        self.out.append(_ordinal(number, self.tokens[i])[len(number) :])

    def _literal(self, i: int) -> None:
        token = self.tokens[i]
        self.out.append(token.strip('"') if token.startswith('"') else token)


_PLACES: Final = ("9", "0")
_WRITES: Final[dict[str, Callable[[_Digits, int], None]]] = {
    **dict.fromkeys(_PLACES, _Digits._place),
    **dict.fromkeys((".", "D"), _Digits._point),
    **dict.fromkeys((",", "G"), _Digits._group),
    **dict.fromkeys(("S", "SG", "MI", "PL", "PR", "FM"), _Digits._mark),
    "L": _Digits._currency,
    "TH": _Digits._ordinal,
}


def _signed(
    out: list[str], names: frozenset[str], negative: bool, fill: bool, *, whole: bool
) -> str:
    """The sign stands where the number begins, after blanks and literals, if no mark says more.
    `whole`: what stands after the number is written, too.
    """
    text = "".join(out)
    sign, plain, closing = "-" if negative else "+", "-" if negative else " " * fill, ""
    if "S" in names:
        ahead = 0 <= text.find("\0S") < text.find(_BEGIN)
        plain, closing = (sign, "") if ahead else ("", sign)
    elif "PR" in names:
        plain, closing = ("<", ">") if negative else (" " * fill, " " * fill)
    elif "MI" in names or "SG" in names:
        plain = ""
    if not whole:
        closing = ""
    marks = {
        "\0SG": sign,
        "\0MI": "-" if negative else " " * fill,
        "\0PL": " " * fill if negative else "+",
        "\0PR": "",
        "\0FM": "",
        "\0S": "",
    }
    for mark, shown in marks.items():
        text = text.replace(mark, shown)
    before, found, rest = text.partition(_BEGIN)
    if not found:
        before, rest = "", text.replace(_END, "")
    return f"{before}{plain}{rest.replace(_BEGIN, '').replace(_END, closing)}"


def _to_number(text: str, pattern: str) -> Decimal:
    _readable(pattern)
    if len(text) > NUMERIC_CHARS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED, f"a text of {len(text)} characters is more than a number may have"
        )
    cleaned = re.sub(r"[^0-9.+\-<>]", "", text)
    if "<" in cleaned:
        cleaned = "-" + cleaned.strip("<>")
    if cleaned.endswith("-"):
        cleaned = "-" + cleaned[:-1]
    decimals = (
        len(re.findall("[09]", re.split("[.dD]", pattern, maxsplit=1)[1]))
        if re.search("[.dD]", pattern)
        else 0
    )
    if not re.fullmatch(r"[+-]?\d*(\.\d*)?", cleaned) or not re.search(r"\d", cleaned):
        raise SqlError("22P02", f'invalid input syntax for type numeric: "{text or " "}"')
    return quantized(Decimal(cleaned), min(decimals, len(cleaned.partition(".")[2])))


# -- to_date, to_timestamp

_DIGITS: Final = by_word(
    {
        1: "Y Q D ID FF1",
        2: "YY MM DD HH24 HH12 HH MI SS FF2",
        3: "YYY DDD MS FF3",
        4: "YYYY FF4",
        5: "SSSS SSSSS FF5",
        6: "US FF6",
        7: "J",
    }
)


def _read(text: str, pattern: str) -> dict[str, Any]:
    _readable(pattern)
    found: dict[str, object] = {}
    at = place = 0
    tokens = list(_TOKEN.finditer(pattern))
    for k, token in enumerate(tokens):
        gap = token.start() - place
        place = token.end()
        at = _skip(text, at, gap)
        if token[0].startswith('"'):
            at += len(token[0]) - 2
            continue
        name = token[2].upper()
        if name in ("MONTH", "MON", "DAY", "DY", "AM", "PM", "A.M.", "P.M."):
            at = _read_word(text, at, name, found)
            continue
        if name not in _DIGITS:
            raise unsupported(f"{token[2]} in to_timestamp")
        while at < len(text) and text[at] == " ":
            at += 1
        follows = k + 1 < len(tokens) and tokens[k + 1].start() == token.end() and not token[1]
        digits = re.compile(
            rf"[+-]?\d{{1,{_DIGITS[name]}}}" if follows or name != "YYYY" else r"[+-]?\d{1,18}"
        ).match(text, at)
        if digits is None:
            if at >= len(text):
                break
            raise SqlError(
                INVALID_DATETIME,
                f'invalid value "{text[at : at + _DIGITS[name]]}" for "{token[2]}"',
                detail="Value must be an integer.",
            )
        found[name] = digits[0]
        at = digits.end()
        if token[3]:
            at += 2
    return found


def _skip(text: str, at: int, gap: int) -> int:
    for _ in range(gap):
        if at < len(text) and not text[at].isalnum():
            at += 1
    return at


_NAME_CHARS_MAX: Final = 16  # of a month, a day and their like


def _read_word(text: str, at: int, name: str, found: dict[str, object]) -> int:
    while at < len(text) and text[at] == " ":
        at += 1
    low = text[at : at + _NAME_CHARS_MAX].lower()
    if name in ("MONTH", "MON"):
        for i, month in enumerate(_MONTHS, 1):
            full = month.lower() if name == "MONTH" else month[:3].lower()
            if low.startswith(full):
                found["MM"] = str(i)
                return at + len(full)
    elif name in ("DAY", "DY"):
        for day in _DAYS:
            full = day.lower() if name == "DAY" else day[:3].lower()
            if low.startswith(full):
                return at + len(full)
    else:
        size = 4 if "." in name else 2
        mark = low[:size].replace(".", "")
        if mark in ("am", "pm"):
            found["PM"] = mark == "pm"
            return at + size
    raise SqlError(
        INVALID_DATETIME,
        f'invalid value "{text[at : at + len(name)]}" for "{name}"',
        detail="The given value did not match any of the allowed values for this field.",
    )


def _date_of(found: dict[str, Any], text: str) -> date:
    year = 1
    for name in ("YYYY", "YYY", "YY", "Y"):
        if name in found:
            year = int(found[name])
            if name != "YYYY" or len(found[name]) < 4:
                year = _full_year(year, len(found[name]))
            break
    try:
        if "J" in found:
            return date.fromordinal(int(found["J"]) - 1_721_425)
        if "DDD" in found:
            return date(year, 1, 1) + timedelta(days=int(found["DDD"]) - 1)
        return date(year, int(found.get("MM", 1)), int(found.get("DD", 1)))
    except (ValueError, OverflowError):
        raise SqlError("22008", f'date/time field value out of range: "{text}"') from None


def _full_year(year: int, digits: int) -> int:
    if digits <= 2:
        return year + (2000 if year < 70 else 1900)
    if digits == 3:
        return year + (2000 if year < 100 else 1000 if year >= 520 else 2000)
    return year


def _to_date(text: str, pattern: str) -> date:
    return _date_of(_read(text, pattern), text)


def _to_timestamp(env: Env, text: str, pattern: str) -> datetime:

    found = _read(text, pattern)
    day = _date_of(found, text)
    hour = int(found.get("HH24", found.get("HH12", found.get("HH", 0))))
    if "HH12" in found or "HH" in found:
        if not 1 <= hour <= 12:
            raise SqlError(
                INVALID_DATETIME,
                f'hour "{hour}" is invalid for the 12-hour clock',
                hint="Use the 24-hour clock, or give an hour between 1 and 12.",
            )
        hour = hour % 12 + (12 if found.get("PM") else 0)
    us = int(str(found.get("US", "0")).ljust(6, "0")) if "US" in found else 0
    if "MS" in found:
        us += int(found["MS"].ljust(3, "0")) * 1000
    for n in range(1, 7):
        if f"FF{n}" in found:
            us = int(found[f"FF{n}"].ljust(6, "0"))
    seconds = int(found.get("SSSS", found.get("SSSSS", 0)))
    try:
        local = datetime(  # noqa: DTZ001
            day.year, day.month, day.day, hour, int(found.get("MI", 0)), int(found.get("SS", 0)), us
        )
    except (ValueError, OverflowError):
        raise SqlError("22008", f'date/time field value out of range: "{text}"') from None
    local += timedelta(seconds=seconds)
    return at_zone(local, env.style.zone)


def _of_float(digits: int) -> Callable[[float, str], str]:
    return lambda value, pattern: number_text(Decimal(f"{value:.{digits}g}"), pattern)


FUNCTIONS: Final = declared(
    {
        "timestamp_to_char": timestamp_text,
        "interval_to_char": _interval_text,
        "numeric_to_char": number_text,
        "int4_to_char": lambda v, p: number_text(Decimal(v), p),
        "int8_to_char": lambda v, p: number_text(Decimal(v), p),
        "float8_to_char": _of_float(15),
        "float4_to_char": _of_float(6),
        "numeric_to_number": _to_number,
        "to_date": _to_date,
        "text_regclass": held_relation,
        "timestamptz_to_char": with_env(
            lambda env, v, p: timestamp_text(aware_in(v, env.style.zone), p)
        ),
        "to_timestamp": with_env(_to_timestamp),
    }
)
