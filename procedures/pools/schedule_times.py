"""When a schedule is due. Pure.

    crons     any number of cron expressions (cronsim's five fields, also L and #, or a name as
              @daily), in a time zone. Its changes are Debian cron's (docs/decisions/0414): a time
              that the clock skips comes right after the gap, one that it repeats comes once; what
              runs each minute, or each hour, goes by what passes
    every_ms  also each so many ms, counted from 1970 (UTC) plus offset_ms
    excluded  cron expressions of minutes in which nothing starts; of one that the clock skips: none
    start_ms, end_ms   not before, not after; 0 = always

A time is *nominal*: it names the run. The run begins up to jitter_ms later, by a number that the
schedule's name and the time decide, so that every master says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine.submission import checked_text

_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS: Final = 5
_MINUTE_MS: Final = 60_000
_TRIES: Final = 1_500  # times that are excluded one after the other
_MS_MAX: Final = 1 << 53


class Times(msgspec.Struct, frozen=True, array_like=True):
    crons: tuple[str, ...] = ()
    zone: str = "UTC"
    every_ms: int = 0
    offset_ms: int = 0
    excluded: tuple[str, ...] = ()
    jitter_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0

    def to_plain(self) -> dict[str, object]:
        return {
            "cron": self.crons[0] if len(self.crons) == 1 else list(self.crons),
            "zone": self.zone,
            "every_ms": self.every_ms,
            "offset_ms": self.offset_ms,
            "exclude": list(self.excluded),
            "jitter_ms": self.jitter_ms,
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
        }


def times_of(given: dict[str, object]) -> Times:
    """Raises InvalidArgument."""
    crons, excluded = _crons(given, "cron"), _crons(given, "exclude")
    every_ms = whole(given, "every_ms", 0, limits.PROCEDURE_TIMEOUT_MS_MAX)
    if not crons and not every_ms:
        raise InvalidArgument("a schedule needs cron, every_ms, or both: when is it due?")
    if every_ms and every_ms < limits.SCHEDULE_EVERY_MS_MIN:
        least = limits.SCHEDULE_EVERY_MS_MIN
        raise InvalidArgument(f"every_ms must be at least {least}, got {every_ms}")
    offset_ms = whole(given, "offset_ms", 0, limits.PROCEDURE_TIMEOUT_MS_MAX)
    if offset_ms and offset_ms >= every_ms:
        raise InvalidArgument(f"offset_ms must be below every_ms ({every_ms}), got {offset_ms}")
    found = Times(
        crons,
        checked_text("zone", given.get("zone") or "UTC", limits.NAME_CHARS_MAX),
        every_ms,
        offset_ms,
        excluded,
        whole(given, "jitter_ms", 0, limits.SCHEDULE_JITTER_MS_MAX),
        whole(given, "start_ms", 0, _MS_MAX),
        whole(given, "end_ms", 0, _MS_MAX),
    )
    if found.end_ms and found.end_ms < found.start_ms:
        raise InvalidArgument("end must not be before start")
    next_of(found, found.start_ms)  # whether all of it can be read
    return found


def _crons(given: dict[str, object], field: str) -> tuple[str, ...]:
    value = given.get(field)
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list | tuple) or len(listed) > limits.SCHEDULE_CRONS_MAX:
        raise InvalidArgument(
            f"{field} must be a cron expression, or up to {limits.SCHEDULE_CRONS_MAX} of them, "
            f"got {value!r:.60}"
        )
    for one in listed:
        check_cron(checked_text(field, one, limits.NAME_CHARS_MAX))
    return tuple(listed)


def whole(given: dict[str, object], field: str, least: int, most: int) -> int:
    """A field that is a whole number; 0 if it is not given. Raises InvalidArgument."""
    value = given.get(field)
    if value is None:
        return 0
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgument(f"{field} must be {least} to {most}, got {value!r:.40}")
    return value


def check_cron(cron: str) -> None:
    """Raises InvalidArgument unless it has five fields: cronsim would take seconds, too."""
    count = len(_fields(cron).split())
    if count != _FIELDS:
        found = f"it has {count}" if not cron.strip().startswith("@") else "there is no such name"
        raise InvalidArgument(
            f"{cron!r:.80} is no cron expression ({found}); it has five fields: minute, hour, day "
            f"of the month, month, day of the week; or is one of {', '.join(_NAMED)}"
        )


def _fields(cron: str) -> str:
    """The expression without names."""
    return _NAMED.get(cron.strip().lower(), cron)


def next_time(cron: str, zone: str, after_ms: int) -> int:
    """The first time of the expression after `after_ms`; 0 = never. Raises InvalidArgument."""
    return next(_from(cron, zone, after_ms), 0)


def _from(cron: str, zone: str, after_ms: int) -> Iterator[int]:
    """All times of the expression after `after_ms`. Raises InvalidArgument."""
    try:
        tz = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(f"{zone!r:.60} is no time zone; use one like Europe/Berlin") from None
    try:
        start = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(tz)
        for found in CronSim(_fields(cron), start):
            yield int(found.timestamp() * 1000)
    except CronSimError as error:
        raise InvalidArgument(
            f"{cron!r:.80} is no cron expression ({error}); its five fields are: minute, hour, day "
            "of the month, month, day of the week"
        ) from None
    except (OverflowError, ValueError, OSError):  # beyond what a calendar has
        return


@lru_cache(1_024)
def _parsed(cron: str) -> CronSim:
    return CronSim(_fields(cron), datetime(2000, 1, 1, tzinfo=UTC))


def _excludes(cron: str, zone: ZoneInfo, minute_ms: int) -> bool:
    """Whether clocks on the wall show a minute of the expression: what it says of a minute that
    they skip is said of no other one, and one that they repeat is excluded as it would come.
    """
    shown, one = datetime.fromtimestamp(minute_ms / 1000, zone), _parsed(cron)
    if not (
        shown.minute in one.minutes
        and shown.hour in one.hours
        and shown.month in one.months
        and one.match_day(shown.date())
    ):
        return False
    return not shown.fold or next_time(cron, zone.key, minute_ms - 1) == minute_ms


def seek(times: Times, after_ms: int) -> Iterator[int]:
    """The nominal times after `after_ms`, in order, and 0 for each that is excluded: whoever asks
    for many lets others have their turn in between. Raises InvalidArgument.
    """
    after_ms = max(after_ms, times.start_ms - 1, 0)
    ahead = [_from(cron, times.zone, after_ms) for cron in times.crons]
    found = [next(one, 0) for one in ahead]
    for cron in times.excluded:
        next_time(cron, times.zone, after_ms)  # whether it can be read
    excluded, zone = 0, ZoneInfo(times.zone)
    while True:
        for i, one in enumerate(ahead):
            while 0 < found[i] <= after_ms:
                found[i] = next(one, 0)
        due = [one for one in found if one]
        if times.every_ms:
            passed = (after_ms - times.offset_ms) // times.every_ms
            due.append((passed + 1) * times.every_ms + times.offset_ms)
        next_ms = min(due, default=0)
        if not next_ms or (times.end_ms and next_ms > times.end_ms):
            return
        minute_ms = next_ms - next_ms % _MINUTE_MS
        if not any(_excludes(one, zone, minute_ms) for one in times.excluded):
            yield (after_ms := next_ms)
            excluded = 0
            continue
        if (excluded := excluded + 1) == _TRIES:
            raise InvalidArgument(
                f"{_TRIES} times one after the other are excluded, the last before {next_ms}: "
                "exclude less"
            )
        after_ms = minute_ms + _MINUTE_MS - 1
        yield 0


def next_of(times: Times, after_ms: int) -> int:
    """The first nominal time after `after_ms`; 0 = never. Raises InvalidArgument."""
    return next(filter(None, seek(times, after_ms)), 0)


def begins(times: Times, name: str, nominal_ms: int) -> int:
    """When the run of a nominal time begins."""
    if not times.jitter_ms:
        return nominal_ms
    chance = blake2b(f"{name}/{nominal_ms}".encode(), digest_size=8).digest()
    return nominal_ms + int.from_bytes(chance) % times.jitter_ms


def within(times: Times, after_ms: int, until_ms: int) -> Iterator[int]:
    """The nominal times after the one moment and not after the other, in order."""
    yield from takewhile(lambda one: one <= until_ms, filter(None, seek(times, after_ms)))


def newest(times: Times, first_ms: int, until_ms: int, count: int) -> list[int]:
    """The last `count` of the nominal times from `first_ms` on, in order: however long nobody
    looked, it is not counted from the beginning.
    """
    back_ms = _MINUTE_MS
    while True:
        after_ms = max(first_ms - 1, until_ms - back_ms)
        found: list[int] = []
        for one in within(times, after_ms, until_ms):
            found.append(one)
            del found[:-count]
        if len(found) == count or after_ms == first_ms - 1:
            return found
        back_ms *= 4
