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
from sqlproxy.values.errors import (
    INVALID_DATETIME,
    LIMIT_EXCEEDED,
    SYNTAX_ERROR,
    UNSUPPORTED,
    SqlError,
    unsupported,
)
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import by_word, words

Field: TypeAlias = Callable[[datetime], str]
_KEPT_CHARS_MAX: Final = 64  # of a pattern that is read once for many moments
_MONTHS: Final = tuple(calendar.month_name[1:])
_ROMAN: Final = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_WORDS: Final = words(
    "HH24 HH12 HH MI SSSSS SSSS SS MS US FF1 FF2 FF3 FF4 FF5 FF6 Y,YYY YYYY YYY YY Y IYYY IYY IY I "
    "IW IDDD ID MM DDD DD D WW W CC J Q AM PM A.M. P.M. AD BC A.D. B.C. TZH TZM TZ OF RM FX MONTH "
    "MON DAY DY"
)
_KEYWORDS: Final = {*_WORDS, *map(str.lower, _WORDS), "Month", "Mon", "Day", "Dy"}
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*(?:"|\Z)|\\"|(FM|fm|TM|tm)?('
    + "|".join(map(re.escape, sorted(_KEYWORDS, key=lambda word: (-len(word), word))))
    + r")(TH|th|SP)?|FM|fm|TM|tm",
    re.DOTALL,
)
"""A text as it stands, or what goes before a field, the field, and what goes after it. Before
nothing, what goes before says nothing."""


def _readable(pattern: str) -> None:
    """Raise 54000 for a format that is too long."""
    if len(pattern) > SQL_FORMAT_CHARS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED,
            f"a format of {len(pattern)} characters is more than {SQL_FORMAT_CHARS_MAX}",
        )


def _ordinal(number: str, suffix: str) -> str:
    n = abs(int(number.replace(",", "")))
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
        found.append(_filled(token[1], token[2], token[3] or "") if token[2] else _said(token[0]))
    found.append(pattern[end:])
    return [part for part in found if part != ""]


def _said(token: str) -> str:
    """What a token shows that is no field."""
    if token == '\\"':
        return '"'
    if not token.startswith('"'):
        return ""
    inner = token[1:-1] if len(token) > 1 and token.endswith('"') else token[1:]
    return re.sub(r"\\(.)", r"\1", inner)


def _filled(before: str | None, token: str, after: str) -> Field:
    """A field with zeros before, or blanks after it, and the ending of an ordinal number."""
    field, width = _field(token)
    name, plain = token.upper(), (before or "").upper()
    number = name in _NUMBERS or name.startswith("FF")
    if (plain == "FM" and name not in _FRACTIONS) or (plain == "TM" and name in _NAMED):
        width = 0

    def text(value: datetime) -> str:
        made = field(value)
        if width:
            made = made.rjust(width, "0") if width > 0 else made.ljust(-width)
        return _ordinal(made, after) if number and after in ("TH", "th") else made

    return text


_FRACTIONS: Final = words("MS US FF1 FF2 FF3 FF4 FF5 FF6")  # FM does not shorten them
_NAMED: Final = words("MONTH MON DAY DY")  # which TM may write in other languages


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
    if upper == "FX":  # is for texts that are read
        return lambda v: "", 0
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
        case "BC" | "AD" | "B.C." | "A.D.":
            return lambda v: _cased("A.D." if "." in token else "AD", token), 0
        case "RM":
            return lambda v: _cased(_ROMAN[v.month - 1], token), -4
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


_DATED: Final = words("MONTH MON DAY DY D ID AD BC A.D. B.C. TZ TZH TZM OF")
"""Fields that only a date has."""


def _interval_text(value: Interval, pattern: str) -> str | None:
    _readable(pattern)
    if not pattern:
        return None
    numbers = _of_interval(value)

    def one(found: re.Match[str]) -> str:
        if found[2] is None:
            return _said(found[0])
        name = found[2].upper()
        if name in _DATED:
            raise SqlError(
                INVALID_DATETIME,
                "invalid format specification for an interval value",
                hint="Intervals are not tied to specific calendar dates.",
            )
        if name in ("AM", "PM", "A.M.", "P.M."):
            half = "P" if _rest(numbers["HH24"][0], 24) >= 12 else "A"
            return _cased(f"{half}M" if len(name) == 2 else f"{half}.M.", found[2])
        if name not in numbers:
            raise unsupported(f"{found[2]} in to_char of an interval")
        number, width = numbers[name]
        if (found[1] or "").upper() == "FM" and name not in _FRACTIONS:
            width = 0
        elif number < 0 and name in _ROOMY:
            width += 1
        text = f"{number:0{width}d}" if width else str(number)
        return _ordinal(text, found[3]) if found[3] in ("TH", "th") else text

    return _TOKEN.sub(one, pattern)


_ROOMY: Final = words("YYYY YYY YY MM HH24 HH12 HH MI SS CC")
"""Fields whose zeros leave room for a sign."""


def _rest(number: int, by: int) -> int:
    """What is left of a division, with the sign of the number."""
    return number % by if number >= 0 else -(-number % by)


def _of_interval(value: Interval) -> dict[str, tuple[int, int]]:
    """The numbers that it shows, each with the width that zeros fill."""
    years, months = int(value.months / 12), _rest(value.months, 12)
    sign = -1 if value.us < 0 else 1
    us = abs(value.us)
    hours, fraction = sign * (us // 3_600_000_000), sign * (us % 1_000_000)
    minutes, seconds = sign * (us // 60_000_000 % 60), sign * (us // 1_000_000 % 60)
    twelve = _rest(hours, 12) or 12
    days = (years * 12 + months) * 30 + value.days
    parts = {f"FF{n}": (sign * (abs(fraction) // 10 ** (6 - n)), n) for n in range(1, 7)}
    return {
        **parts,
        "HH24": (hours, 2),
        "HH12": (twelve, 2),
        "HH": (twelve, 2),
        "MI": (minutes, 2),
        "SS": (seconds, 2),
        "MS": (parts["FF3"][0], 3),
        "US": (fraction, 6),
        "SSSS": (sign * (us // 1_000_000), 0),
        "SSSSS": (sign * (us // 1_000_000), 0),
        "YYYY": (years, 4),
        "YYY": (_rest(years, 1_000), 3),
        "YY": (_rest(years, 100), 2),
        "Y": (_rest(years, 10), 1),
        "CC": (int(years / 100), 2),
        "MM": (months, 2),
        "DD": (value.days, 2),
        "DDD": (days, 3),
    }


# -- numbers

_NUMBER_TOKEN: Final = re.compile(
    r'"[^"]*"|FM|TH|th|SG|PL|MI|PR|RN|EEEE|TM9?|[90.,DGSVLBC]|.', re.IGNORECASE | re.DOTALL
)


_BEGIN: Final = "\1"  # where the digits of a number begin, and where they end
_END: Final = "\2"


def number_text(value: Decimal, pattern: str, *, zero_signed: bool = False) -> str:
    """A number by a pattern of 9, 0, . D , G S MI PL SG PR FM TH L and literals. `zero_signed`:
    what is rounded to zero keeps its sign, as floats do.
    """
    _readable(pattern)
    tokens = [t for t in _NUMBER_TOKEN.findall(pattern) if t.upper() not in ("B", "C")]
    tokens_all = tokens
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
    negative = value.is_signed() and (zero_signed or bool(rounded))
    text = format(rounded, "f")
    head, _, tail = text.partition(".")
    overflow = len(head) > whole_places  # also 0 where there is no place for it
    if overflow or negative or point < len(names):  # only what counts has an ending
        names = ["FM" if name == "TH" else name for name in names]
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
        self.out.append(" ")

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


def _to_number(text: str, pattern: str) -> Decimal | None:
    _readable(pattern)
    if len(text) > NUMERIC_CHARS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED, f"a text of {len(text)} characters is more than a number may have"
        )
    return _NumberReader(text, pattern).number() if pattern else None


_SIGNS_OF: Final = {"MI": "-", "PL": "+", "SG": "+-"}


class _NumberReader:
    """One pass over a pattern and a text: each place takes a digit at most, and what stands between
    places takes a character of the text, as formatting.c's NUM_numpart_from_char.
    """

    def __init__(self, text: str, pattern: str) -> None:
        self._tokens = _NUMBER_TOKEN.findall(pattern)
        names = [token.upper() for token in self._tokens]
        for name in names:
            if name in ("RN", "EEEE"):
                raise SqlError(UNSUPPORTED, f'"{name}" not supported for input')
            if name == "V" or name.startswith("TM"):
                raise unsupported(f"{name} in to_number")
        marks, points = set(names), [name for name in names if name in (".", "D")]
        if len(points) > 1:
            raise SqlError(SYNTAX_ERROR, "multiple decimal points")
        self._decimal = bool(points)
        self._of_sign = "S" in marks
        self._plus_or_minus = bool(marks & {"MI", "PL", "SG"})
        self._bracket = "PR" in marks
        self._fill = "FM" not in marks
        after = names.index(points[0]) if points else len(names)
        self._places = sum(name in _PLACES for name in names[:after])
        self._decimals = sum(name in _PLACES for name in names[after:])
        self._text, self._at = text, 0
        self._sign, self._found = " ", ""
        self._before = self._behind = 0  # digits that were read
        self._pointed = False

    def number(self) -> Decimal:
        for token in self._tokens:
            if self._at >= len(self._text):
                break
            self._take(token)
        if not self._before + self._behind:
            raise SqlError("22P02", 'invalid input syntax for type numeric: " "')
        found = Decimal(f"{self._sign.strip()}{self._found}")
        if self._before and found.copy_abs() >= Decimal(10) ** self._places:
            raise SqlError(
                "22003",
                "numeric field overflow",
                detail=f"A field with precision {self._places + self._behind}, scale "
                f"{self._behind} must round to an absolute value less than 10^{self._places}.",
            )
        return found

    def _take(self, token: str) -> None:
        match token.upper():
            case "9" | "0" | "." | "D":
                self._digit(token)
                self._at += 1
            case "," | "G":
                started = self._before or self._behind
                if (started or self._fill) and self._text.startswith(",", self._at):
                    self._at += 1
            case "L" | "MI" | "PL" | "SG" as mark:
                if self._here() and self._here() in _SIGNS_OF.get(mark, ""):
                    self._sign = self._here()
                    self._at += 1
                else:
                    self._pass(1)
            case "TH":
                if not self._decimal and self._sign != "-":
                    self._pass(2)
            case "S" | "PR" | "FM" | "B" | "C":
                pass
            case _:
                self._at += len(token.strip('"')) if token.startswith('"') else 1

    def _pass(self, count: int) -> None:
        """So many characters that say nothing of the number."""
        while count and self._at < len(self._text) and self._text[self._at] not in "0123456789.,+-":
            self._at += 1
            count -= 1

    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _digit(self, token: str) -> None:
        """What one place takes; it is left at the last character of that."""
        if self._here() == " ":
            self._at += 1
        if not self._here():
            return
        read = self._before + self._behind
        if self._sign == " " and token in _PLACES and not read:
            here = self._here()
            if here in "+-" or (here == "<" and self._bracket):
                self._sign = "+" if here == "+" else "-"
                self._at += 1
        here, taken = self._here(), False
        if not here:
            return
        if here in "0123456789":
            if self._pointed and self._behind == self._decimals:
                return
            self._found += here
            self._behind += self._pointed
            self._before += not self._pointed
            taken = True
        elif here == "." and self._decimal and not self._pointed:
            self._found += "."
            self._pointed = taken = True
        if self._sign == " " and self._before + self._behind:
            self._sign_behind(taken)

    def _sign_behind(self, taken: bool) -> None:
        """The sign behind the last digit."""
        after = self._text[self._at + 1 : self._at + 2]
        if self._of_sign and taken and after and after in "+-":
            self._sign = after
            self._at += 1
        elif not taken and not self._of_sign and self._plus_or_minus and self._here() in "+-":
            self._sign = self._here()


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
        if not token[2]:
            at += len(_said(token[0]))
            continue
        name = token[2].upper()
        if name in ("MONTH", "MON", "DAY", "DY", "AM", "PM", "A.M.", "P.M."):
            at = _read_word(text, at, name, found)
            continue
        if name not in _DIGITS:
            raise unsupported(f"{token[2]} in to_timestamp")
        while at < len(text) and text[at] == " ":
            at += 1
        if at >= len(text):
            break
        size = _DIGITS[name]
        if _digit_follows(tokens, k, pattern):
            digits = _exactly(text, at, size, token[2])
        else:
            digits = re.compile(r"[+-]?\d{1,18}").match(text, at)
        if digits is None:
            raise SqlError(
                INVALID_DATETIME,
                f'invalid value "{text[at : at + size]}" for "{token[2]}"',
                detail="Value must be an integer.",
            )
        if not -_INT <= int(digits[0]) < _INT:
            raise SqlError(
                "22008",
                f'value for "{token[2]}" in source string is out of range',
                detail=f"Value must be in the range {-_INT} to {_INT - 1}.",
            )
        found[name] = digits[0]
        at = digits.end()
        if token[3]:
            at += 2
    return found


_INT: Final = 1 << 31


def _digit_follows(tokens: list[re.Match[str]], k: int, pattern: str) -> bool:
    """Whether another number comes right after a field: then the field takes its digits and no
    more, else all that there are.
    """
    token = tokens[k]
    if (token[1] or "").upper() == "FM" or token[3] in ("TH", "th"):
        return False
    if k + 1 < len(tokens) and tokens[k + 1].start() == token.end():
        return (tokens[k + 1][2] or "").upper() in _DIGITS
    return pattern[token.end() : token.end() + 1].isdigit()


def _exactly(text: str, at: int, size: int, shown: str) -> re.Match[str] | None:
    """So many characters, which are a number. Raises 22007 for fewer."""
    hint = 'If your source string is not fixed-width, try using the "FM" modifier.'
    left = len(text) - at
    if left < size:
        raise SqlError(
            INVALID_DATETIME,
            f'source string too short for "{shown}" formatting field',
            detail=f"Field requires {size} characters, but only {left} remain.",
            hint=hint,
        )
    found = re.compile(r"[+-]?\d+").match(text, at, at + size)
    if found is not None and (read := found.end() - at) < size:
        raise SqlError(
            INVALID_DATETIME,
            f'invalid value "{text[at : at + size]}" for "{shown}"',
            detail=f"Field requires {size} characters, but only {read} could be parsed.",
            hint=hint,
        )
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
            if name != "YYYY" and len(found[name]) < 4:
                year = _full_year(year)
            break
    try:
        if "J" in found:
            return date.fromordinal(int(found["J"]) - 1_721_425)
        if "DDD" in found:
            return date(year, 1, 1) + timedelta(days=int(found["DDD"]) - 1)
        return date(year, int(found.get("MM", 1)), int(found.get("DD", 1)))
    except (ValueError, OverflowError):
        raise SqlError("22008", f'date/time field value out of range: "{text}"') from None


def _full_year(year: int) -> int:
    """The year nearest to 2020 that ends like this."""
    if year < 100:
        return year + (2000 if year < 70 else 1900)
    return year + (2000 if year < 520 else 1000) if year < 1000 else year


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
    return lambda value, pattern: number_text(
        Decimal(f"{value:.{digits}g}"), pattern, zero_signed=True
    )


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
