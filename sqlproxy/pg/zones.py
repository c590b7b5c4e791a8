"""Time zones as PostgreSQL 15 reads them and shows them. Pure but for the system's zone files.

    setting(text)   ─▶ what SHOW TimeZone says      SET TimeZone, SET TIME ZONE, a client's start-up
    shown(text)     ─▶ tzinfo                       of what `setting` gave
    named(text)     ─▶ tzinfo                       AT TIME ZONE, timezone(), date_trunc(…, zone)
    abbreviation(w) ─▶ tzinfo | None                in a literal, before other words
    specified(text) ─▶ tzinfo | None                a zone's name, or POSIX

A number alone is hours east of Greenwich for SET only. Whatever else has digits is POSIX's form,
where what is written has to be added to reach UTC: `+10:00`, `UTC-3`, `<+03>-3`, `EST5EDT`; the
name before the digits means nothing and may be missing. A second name is daylight time, by the
rules that follow it or else by those of the United States. Names are of any case.

Abbreviations are those of PostgreSQL's timezonesets/Default. Some belong to a zone and mean what
they meant there at that time.

Deliberately missing: offsets of a day and more (PostgreSQL reads up to 167 hours): refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from io import BytesIO
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from sqlproxy.values.errors import INVALID_PARAMETER, SqlError

_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_HOURS_MAX: Final = 167  # of a rule's time of day
_NAME_MAX: Final = 255
_UTC: Final = ("UTC", "Etc/UTC")
_RULES: Final = "M3.2.0,M11.1.0"  # of a daylight time that says none


def _table(text: str) -> dict[str, str]:
    """What stands first in each entry → the abbreviations after it."""
    return dict(entry.split(maxsplit=1) for entry in text.split(";"))


_STANDARD: Final = _table(
    """
    -600 hst taht; -570 mart; -540 akst gamt; -480 pst; -420 mst; -360 cst galt;
    -300 act cot est pet; -240 amt ast bot; -210 nft nst; -180 bra brt gft pmst uyt wgt; -120 fnt;
    -60 azot egt; 0 gmt uct ut utc wet z zulu; 60 cet met mez wat; 120 eet ist sast; 180 eat fet;
    210 irt; 240 mut ret sct; 270 aft; 300 mvt pkt tft tjt uzt; 345 npt; 360 almt bdt btt xjt;
    390 mmt; 420 cxt ict wast; 480 awst bnt bort cct hkt myt pht; 525 acwst; 540 jayt jst kst pwt;
    570 acst cast; 600 aest chut ddut ligt mpt pgt trut yapt; 630 lhst; 660 pont vut;
    720 fjt gilt mht nzst nzt tvt wakt wft; 765 chast; 780 tot
    """
)
"""Minutes east of Greenwich → abbreviations."""
_DAYLIGHT: Final = _table(
    """
    -480 akdt; -420 pdt; -360 mdt; -300 cdt; -240 edt; -180 adt clst pyst; -150 ndt;
    -120 brst pmdt uyst wgst; -60 fnst; 0 azost egst; 60 bst wetdst;
    120 bdst cest cetdst mest mesz metdst; 180 eest eetdst idt; 240 msd; 300 must;
    360 kgst pkst uzst yekst; 420 almst; 480 wadt; 540 awsst ulast wdt; 600 kdt;
    630 acdt acsst cadt sadt; 660 aedt aesst; 780 fjst nzdt; 825 chadt
    """
)
_OF_ZONES: Final = _table(
    """
    America/Argentina/Buenos_Aires arst art; America/Asuncion pyt; America/Caracas vet;
    America/Guyana gyt; America/Santiago clt; Antarctica/Davis davt; Antarctica/Mawson mawt;
    Asia/Anadyr anast anat; Asia/Ashgabat tmt; Asia/Baku azst azt; Asia/Bishkek kgt;
    Asia/Colombo lkt; Asia/Irkutsk irkst irkt; Asia/Kamchatka petst pett;
    Asia/Krasnoyarsk krast krat; Asia/Magadan magst magt; Asia/Novosibirsk novst novt;
    Asia/Omsk omsst omst; Asia/Singapore sgt; Asia/Tbilisi gest get; Asia/Ulaanbaatar ulat;
    Asia/Vladivostok vlast vlat; Asia/Yakutsk yakst yakt; Asia/Yekaterinburg yekt;
    Asia/Yerevan amst; Atlantic/Stanley fkst fkt; Australia/Lord_Howe lhdt; Europe/Moscow msk;
    Europe/Volgograd volt; Indian/Chagos iot; Pacific/Easter easst east; Pacific/Fakaofo tkt;
    Pacific/Kiritimati lint; Pacific/Kosrae kost; Pacific/Niue nut; Pacific/Rarotonga ckt
    """
)
_FIXED: Final = {
    word: (int(minutes), is_dst)
    for table, is_dst in ((_STANDARD, False), (_DAYLIGHT, True))
    for minutes, words in table.items()
    for word in words.split()
}
_MOVING: Final = {word: zone for zone, words in _OF_ZONES.items() for word in words.split()}

_NUMBER: Final = re.compile(r"[ \t\n\v\f\r]*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_INTERVAL: Final = re.compile(r"interval\s*'(.*)'", re.IGNORECASE | re.DOTALL)
_NAME: Final = r"(?:<([^>]*)>|((?!<)[^\d,+-]*))"
_OFFSET: Final = r"([+-]?)(\d+)(?::(\d+)(?::(\d+))?)?"
_POSIX: Final = re.compile(
    rf"{_NAME}{_OFFSET}(?:(?:<([^>]+)>|((?!<)[^\d,+-]+))(?:{_OFFSET})?(?:[,;]([^,]+,[^,]+))?)?",
    re.DOTALL,
)
_RULE: Final = re.compile(
    r"(?:M(\d+)\.(\d+)\.(\d+)|J(\d+)|(\d+))(?:/([+-]?\d+)(?::\d+(?::\d+)?)?)?"
)


# -- the setting


def setting(text: str) -> str:
    """What SHOW says of a value given to TimeZone. Raises SqlError (22023)."""
    if found := _INTERVAL.fullmatch(text.strip()):
        return _of_interval(found[1].replace("''", "'"), text)
    if _NUMBER.fullmatch(text):
        return _of_seconds(float(text) * _HOUR, text)
    if name := _names().get(text.lower()):
        return name
    zone = specified(text)
    if zone is None:
        raise _invalid(text)
    if datetime(2000, 1, 1, tzinfo=UTC).astimezone(zone).second:
        raise SqlError(
            INVALID_PARAMETER,
            f'time zone "{text:.100}" appears to use leap seconds',
            detail="PostgreSQL does not support leap seconds.",
        )
    return text.upper()


def _of_interval(written: str, text: str) -> str:
    from sqlproxy.pg.intervals import read_interval

    found = read_interval(written)
    for count, unit in ((found.months, "months"), (found.days, "days")):
        if count:
            raise _invalid(text, f"Cannot specify {unit} in time zone interval.")
    return _of_seconds(found.us / 1_000_000, text)


def _of_seconds(east: float, text: str) -> str:
    """`<+05:30>-05:30`: a name that says it, and POSIX's offset."""
    if not abs(east) < _DAY:
        raise _invalid(text, "UTC timezone offset is out of range.")
    hours, rest = divmod(abs(int(east)), _HOUR)
    shown_text = f"{hours:02}"
    if rest:
        shown_text += f":{rest // 60:02}"
        if rest % 60:
            shown_text += f":{rest % 60:02}"
    return f"<-{shown_text}>+{shown_text}" if int(east) < 0 else f"<+{shown_text}>-{shown_text}"


def _invalid(text: str, detail: str = "") -> SqlError:
    return SqlError(
        INVALID_PARAMETER, f'invalid value for parameter "TimeZone": "{text:.100}"', detail=detail
    )


@lru_cache(maxsize=1_024)
def shown(text: str) -> tzinfo:
    """The zone of what `setting` gave. Raises SqlError (22023)."""
    zone = specified(text)
    if zone is None:
        raise _invalid(text)
    return zone


# -- names


def named(text: str) -> tzinfo:
    """What AT TIME ZONE takes: an abbreviation, else a zone. Raises SqlError (22023)."""
    zone = abbreviation(text.lower()) or specified(text)
    if zone is None:
        raise not_recognized(text)
    return zone


def name_of(zone: tzinfo) -> str | None:
    """The text that `named` reads as this zone; None: one by rules has none."""
    if isinstance(zone, ZoneInfo):
        return zone.key
    east = zone.utcoffset(None)
    return None if east is None else _of_seconds(east.total_seconds(), "")


def not_recognized(text: str) -> SqlError:
    return SqlError(INVALID_PARAMETER, f'time zone "{text:.100}" not recognized')


@lru_cache(maxsize=1_024)
def abbreviation(word: str) -> tzinfo | None:
    """`word`: in small letters."""
    if (found := _FIXED.get(word)) is not None:
        minutes, _ = found
        return UTC if not minutes else timezone(timedelta(minutes=minutes), word.upper())
    if (name := _MOVING.get(word)) is not None:
        return _Moving(word.upper(), ZoneInfo(name))
    return None


def is_standard(word: str) -> bool:
    """Whether it is an abbreviation of one offset, not of daylight time."""
    return word in _FIXED and not _FIXED[word][1]


@lru_cache(maxsize=1_024)
def specified(text: str) -> tzinfo | None:
    """A zone by its name in any case, or in POSIX's form; None: it is neither."""
    if not text or len(text) > _NAME_MAX:
        return None
    name = _names().get(text.lower())
    if name is not None:
        return UTC if name in _UTC else ZoneInfo(name)
    return _posix(text.upper())


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


class _Moving(tzinfo):
    """An abbreviation of a zone, at any time what it meant there last; where it meant nothing until
    then, what it meant next; where it never did, the zone's own time.
    """

    def __init__(self, word: str, zone: ZoneInfo) -> None:
        self._word, self._zone = word, zone
        self._steps = tuple(_meanings(word, zone))

    def _offset_at(self, moment: datetime) -> timedelta:
        """`moment`: in UTC, without a zone."""
        if not self._steps:
            return moment.replace(tzinfo=UTC).astimezone(self._zone).utcoffset() or timedelta()
        found = self._steps[0][1]
        for since, offset in self._steps:
            if since <= moment:
                found = offset
        return found

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        if dt is None:
            return None
        local = dt.replace(tzinfo=None)
        early, late = (
            local.replace(tzinfo=self._zone, fold=fold).utcoffset() or timedelta()
            for fold in (0, 1)
        )
        return self._offset_at(local - min(early, late))

    def dst(self, dt: datetime | None) -> timedelta | None:
        return timedelta() if dt is not None else None

    def tzname(self, dt: datetime | None) -> str:
        return self._word

    def fromutc(self, dt: datetime) -> datetime:
        return dt + self._offset_at(dt.replace(tzinfo=None))


def _meanings(word: str, zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta]]:
    """From when on (in UTC) the abbreviation meant which offset."""

    def meaning(at: datetime) -> timedelta | None:
        there = at.astimezone(zone)
        return there.utcoffset() if there.tzname() == word else None

    at, known = datetime(1880, 1, 1, tzinfo=UTC), None
    while at.year < 2038:
        before, at = at, at + timedelta(days=30)
        found = meaning(at)
        if found == known:
            continue
        first, last = before, at
        while last - first > timedelta(seconds=1):
            middle = first + (last - first) // 2
            first, last = (first, middle) if meaning(middle) == found else (middle, last)
        if found is not None:
            yield last.replace(tzinfo=None, microsecond=0), found
        known = found


# -- POSIX


def _posix(text: str) -> tzinfo | None:
    found = _POSIX.fullmatch(text)
    if found is None:
        return None
    parts = found.groups()
    name, second = parts[0] or parts[1] or "", parts[6] or parts[7]
    east = _east(*parts[2:6])
    if east is None:
        return None
    if not second:
        return timezone(timedelta(seconds=east), name) if east else UTC
    ahead = east + _HOUR if parts[9] is None else _east(*parts[8:12])
    rules = parts[12] or _RULES
    if ahead is None or not all(map(_is_rule, rules.split(","))):
        return None
    return _by_rules(name, east, second, ahead, rules)


def _east(
    sign: str | None, hours: str | None, minutes: str | None, seconds: str | None
) -> int | None:
    """Seconds east of Greenwich; None: out of range."""
    h, m, s = int(hours or 0), int(minutes or 0), int(seconds or 0)
    west = h * _HOUR + m * 60 + s
    if m > 59 or s > 60 or west >= _DAY:
        return None
    return west if sign == "-" else -west


def _is_rule(text: str) -> bool:
    found = _RULE.fullmatch(text)
    if found is None:
        return False
    month, week, weekday, julian, day, hour = (
        None if part is None else int(part) for part in found.groups()
    )
    if hour is not None and abs(hour) > _HOURS_MAX:
        return False
    if month is not None:
        return 1 <= month <= 12 and 1 <= (week or 0) <= 5 and (weekday or 0) <= 6
    return 1 <= julian <= 365 if julian is not None else (day or 0) <= 365


def _by_rules(name: str, east: int, second: str, ahead: int, rules: str) -> ZoneInfo:
    """By a zone file without transitions, whose last line is the rule (RFC 8536)."""

    def word(text: str) -> str:
        kept = "".join(c for c in text if c.isascii() and (c.isalnum() or c in "+-"))
        return f"<{kept[:12].ljust(3, '-')}>"

    def offset(seconds: int) -> str:
        hours, rest = divmod(abs(seconds), _HOUR)
        return f"{'-' if seconds > 0 else ''}{hours}:{rest // 60:02}:{rest % 60:02}"

    footer = f"{word(name)}{offset(east)}{word(second)}{offset(ahead)},{rules}"
    header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
    body = struct.pack(">lbB4s", east, 0, 0, b"STD\0")
    return ZoneInfo.from_file(BytesIO((header + body) * 2 + b"\n" + footer.encode() + b"\n"))


def icu(zone: tzinfo, now: datetime | None) -> str:
    """The zone's name for ICU, which DuckDB asks. One that is by rules only has none: its offset
    then (UTC if that is not asked for any time).
    """
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    seconds = (now or datetime(1970, 1, 1, tzinfo=UTC)).astimezone(zone).utcoffset() or timedelta()
    hours, minutes = divmod(abs(round(seconds.total_seconds() / 60)), 60)
    if not hours and not minutes:
        return "UTC"
    return f"GMT{'-' if seconds < timedelta() else '+'}{hours:02}:{minutes:02}"


# -- what there is, for the catalog


Listed = tuple[str, str, timedelta, bool]
"""Name, abbreviation, offset, whether it is daylight time."""


def all_names(now: datetime) -> Iterator[Listed]:
    """pg_timezone_names."""
    for name in sorted(_names().values()):
        there = now.astimezone(ZoneInfo(name))
        yield name, there.tzname() or "", there.utcoffset() or timedelta(), bool(there.dst())


def all_abbreviations(now: datetime) -> Iterator[Listed]:
    """pg_timezone_abbrevs."""
    for word in sorted((*_FIXED, *_MOVING)):
        zone = abbreviation(word)
        offset = now.astimezone(zone).utcoffset() or timedelta()
        if word in _FIXED:
            is_dst = _FIXED[word][1]
        else:
            is_dst = bool(now.astimezone(ZoneInfo(_MOVING[word])).dst())
        yield word.upper(), word.upper(), offset, is_dst
