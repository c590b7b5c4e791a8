"""Dates, times, intervals: arithmetic, extract, date_trunc, age, make_…, casts. Casts that need a
zone take the env.
"""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.f_numbers import EXACT, quantized
from sqlproxy.front.functions.f_numbers import FUNCTIONS as NUMBERS
from sqlproxy.front.functions.function import declared, nulls, total, with_env
from sqlproxy.pg import zones
from sqlproxy.pg.datetimes import at_zone, aware_in, in_zone, zone_of_offset
from sqlproxy.pg.intervals import write_interval
from sqlproxy.pg.numbers import write_float8
from sqlproxy.values.errors import DATETIME_OVERFLOW, INVALID_PARAMETER, SqlError
from sqlproxy.values.interval import Interval
from sqlproxy.values.words import by_word, words

DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without zone is meant
_US: Final = timedelta(microseconds=1)


def _range(what: str) -> SqlError:
    return SqlError(DATETIME_OVERFLOW, f"{what} out of range")


def us_of(value: datetime) -> int:
    return (value.replace(tzinfo=None) - _EPOCH) // _US


def time_us(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def time_of(us: int) -> time:
    return (_EPOCH + timedelta(microseconds=us % DAY_US)).time()


def interval(months: int = 0, days: int = 0, us: int = 0) -> Interval:
    found = Interval(months, days, us)
    if not found.fits:
        raise _range("interval")
    return found


def add(value: datetime, step: Interval, sign: int = 1) -> datetime:
    """timestamp + interval: months first, the day clipped to the month's last, then days, then the
    rest.
    """
    try:
        if step.months:
            whole = value.year * 12 + value.month - 1 + sign * step.months
            year, month = divmod(whole, 12)
            day = min(value.day, monthrange(year, month + 1)[1]) if 1 <= year <= 9999 else 1
            value = value.replace(year=year, month=month + 1, day=day)
        return value + timedelta(days=sign * step.days, microseconds=sign * step.us)
    except (OverflowError, ValueError):
        raise _range("timestamp") from None


def add_zoned(env: Env, value: datetime, step: Interval, sign: int = 1) -> datetime:
    """Months and days count in the session's zone, hours do not."""
    if step.months or step.days:
        local = add(_local(env, value), Interval(step.months, step.days, 0), sign)
        value = at_zone(local, env.style.zone)
    return add(value, Interval(0, 0, step.us), sign)


def _date_plus(value: date, days: int) -> date:
    try:
        return value + timedelta(days=days)
    except OverflowError:
        raise _range("date") from None


def _midnight(value: date) -> datetime:
    return datetime.combine(value, time())


def _difference(a: datetime, b: datetime) -> Interval:
    us = (a - b) // _US
    sign = 1 if us >= 0 else -1
    days, rest = divmod(abs(us), DAY_US)
    return interval(0, sign * days, sign * rest)


def _age(a: datetime, b: datetime, before: bool | None = None) -> Interval:
    """Years, months and days between, as people count them. `before`: whether the first is the
    earlier moment; what clocks show may be in the other order.
    """
    sign = 1
    if a < b if before is None else before:
        a, b, sign = b, a, -1
    us = time_us(a.time()) - time_us(b.time())
    days = a.day - b.day
    months = (a.year - b.year) * 12 + a.month - b.month
    if us < 0:
        us += DAY_US
        days -= 1
    if days < 0:  # days of the earlier one's month
        days += monthrange(b.year, b.month)[1]
        months -= 1
    return interval(sign * months, sign * days, sign * us)


def _local(env: Env, value: datetime) -> datetime:
    return in_zone(value, env.style.zone)


def _to_utc(env: Env, value: datetime) -> datetime:
    return at_zone(value, env.style.zone)


# -- intervals


def _scaled(value: Interval, factor: float) -> Interval:
    return _cascaded(value.months * factor, value.days * factor, value.us * factor)


def _divided(value: Interval, factor: float) -> Interval:
    if factor == 0:
        raise SqlError("22012", "division by zero")
    return _cascaded(value.months / factor, value.days / factor, value.us / factor)


def _cascaded(months: float, days: float, us: float) -> Interval:
    """What is left of whole months goes to days, of days to the time (interval_mul)."""
    try:
        whole_months, whole_days = int(months), int(days)
        more_days = _to_microsecond((months - whole_months) * 30)
        seconds = _to_microsecond((days - whole_days + more_days - int(more_days)) * 86_400)
        whole_days += int(more_days)
        if abs(seconds) >= 86_400:
            whole_days += int(seconds / 86_400)
            seconds -= int(seconds / 86_400) * 86_400
        return interval(whole_months, whole_days, round(us + seconds * 1_000_000))
    except (OverflowError, ValueError):
        raise _range("interval") from None


def _to_microsecond(value: float) -> float:
    return round(value * 1_000_000) / 1_000_000


def _justify_hours(value: Interval) -> Interval:
    days, us = value.days + int(value.us / DAY_US), math.fmod(value.us, DAY_US)
    us = int(us)
    if days > 0 > us:
        days, us = days - 1, us + DAY_US
    elif days < 0 < us:
        days, us = days + 1, us - DAY_US
    return interval(value.months, days, us)


def _justify_days(value: Interval) -> Interval:
    months = value.months + int(value.days / 30)
    days = int(math.fmod(value.days, 30))
    if months > 0 > days:
        months, days = months - 1, days + 30
    elif months < 0 < days:
        months, days = months + 1, days - 30
    return interval(months, days, value.us)


def _justify(value: Interval) -> Interval:
    total = value.days * DAY_US + value.us
    days = (
        int(total / DAY_US)
        if abs(total) < 1 << 52
        else (abs(total) // DAY_US) * (1 if total >= 0 else -1)
    )
    us = total - days * DAY_US
    found = _justify_days(Interval(value.months, days, 0))
    months, days = found.months, found.days
    if months > 0 and (days < 0 or (days == 0 and us < 0)):
        months, days = months - 1, days + 30
    elif months < 0 and (days > 0 or (days == 0 and us > 0)):
        months, days = months + 1, days - 30
    if days > 0 > us:
        days, us = days - 1, us + DAY_US
    elif days < 0 < us:
        days, us = days + 1, us - DAY_US
    return interval(months, days, us)


def _make_interval(
    years: int = 0,
    months: int = 0,
    weeks: int = 0,
    days: int = 0,
    hours: int = 0,
    mins: int = 0,
    secs: float = 0.0,
) -> Interval:
    if not abs(secs) < 1 << 63:  # NaN too
        raise _range("interval")
    return interval(
        years * 12 + months,
        weeks * 7 + days,
        (hours * 3600 + mins * 60) * 1_000_000 + round(secs * 1_000_000),
    )


# -- extract

_ALIASES: Final = by_word(
    {
        "year": "years y yr yrs",
        "month": "months mon mons",
        "day": "days d",
        "hour": "hours h hr hrs",
        "minute": "minutes min mins m",
        "second": "seconds sec secs s",
        "milliseconds": "milliseconds millisecond ms msec msecs",
        "microseconds": "microseconds us microsecond usec usecs",
        "decade": "decades dec",
        "century": "centuries c cent",
        "millennium": "millennia mil mils",
        "week": "weeks w",
        "quarter": "qtr",
    }
)
_UNITS: Final = words(
    """
    microseconds milliseconds second minute hour day week month quarter year decade century
    millennium dow isodow doy isoyear epoch julian timezone timezone_hour timezone_minute
    """
)


_UNIT_CHARS_MAX: Final = 63


def _unit(text: str, type_name: str) -> str:
    said = text.strip()[:_UNIT_CHARS_MAX].lower()  # PostgreSQL looks at no more either
    name = _ALIASES.get(said, said)
    if name not in _UNITS:
        raise SqlError(INVALID_PARAMETER, f'unit "{said}" not recognized for type {type_name}')
    return name


def _not_supported(unit: str, type_name: str) -> SqlError:
    return SqlError("0A000", f'unit "{unit}" not supported for type {type_name}')


def _of_time(unit: str, us: int) -> Decimal | None:
    seconds = us % 60_000_000
    match unit:
        case "microseconds":
            return Decimal(seconds)
        case "milliseconds":
            return Decimal(seconds).scaleb(-3)
        case "second":
            return Decimal(seconds).scaleb(-6)
        case "minute":
            return Decimal(us // 60_000_000 % 60)
        case "hour":
            return Decimal(us // 3_600_000_000)
        case _:
            return None


def _of_date(unit: str, value: date) -> Decimal | None:  # noqa: C901 - a table of units
    year = value.year
    match unit:
        case "day":
            found = value.day
        case "month":
            found = value.month
        case "quarter":
            found = (value.month + 2) // 3
        case "year":
            found = year
        case "decade":
            found = year // 10
        case "century":
            found = (year + 99) // 100
        case "millennium":
            found = (year + 999) // 1000
        case "dow":
            found = value.isoweekday() % 7
        case "isodow":
            found = value.isoweekday()
        case "doy":
            found = value.timetuple().tm_yday
        case "week":
            found = value.isocalendar()[1]
        case "isoyear":
            found = value.isocalendar()[0]
        case _:
            return None
    return Decimal(found)


def _extract_timestamp(
    text: str, value: datetime, type_name: str = "timestamp without time zone"
) -> Decimal:
    unit = _unit(text, type_name)
    us = us_of(value)
    if unit == "epoch":
        return Decimal(us).scaleb(-6)
    if unit == "julian":
        part = NUMBERS["numeric_div"].call(Decimal(time_us(value.time())), Decimal(DAY_US))
        return EXACT.add(Decimal(value.toordinal() + 1_721_425), part)
    found = _of_time(unit, time_us(value.time()))
    if found is None:
        found = _of_date(unit, value.date())
    if found is None:
        raise _not_supported(unit, type_name)
    return found


def _extract_timestamptz(env: Env, text: str, value: datetime) -> Decimal:
    name = "timestamp with time zone"
    unit = _unit(text, name)
    if unit == "epoch":
        return Decimal(us_of(value.astimezone(UTC))).scaleb(-6)
    local = aware_in(value, env.style.zone)
    if unit.startswith("timezone"):
        seconds = int((local.utcoffset() or timedelta()).total_seconds())
        whole = {
            "timezone": seconds,
            "timezone_hour": int(seconds / 3600),
            "timezone_minute": int(math.fmod(int(seconds / 60), 60)),
        }
        return Decimal(whole[unit])
    return _extract_timestamp(text, local.replace(tzinfo=None), name)


def _extract_date(text: str, value: date) -> Decimal:
    unit = _unit(text, "date")
    if unit == "epoch":
        return Decimal((value.toordinal() - 719_163) * 86_400)
    if unit == "julian":
        return Decimal(value.toordinal() + 1_721_425)
    found = _of_date(unit, value)
    if found is None:
        raise _not_supported(unit, "date")
    return found


def _extract_time(text: str, value: time) -> Decimal:
    unit = _unit(text, "time without time zone")
    if unit == "epoch":
        return Decimal(time_us(value)).scaleb(-6)
    found = _of_time(unit, time_us(value))
    if found is None:
        raise _not_supported(unit, "time without time zone")
    return found


def _extract_interval(text: str, value: Interval) -> Decimal:
    unit = _unit(text, "interval")
    years, months = int(value.months / 12), int(math.fmod(value.months, 12))
    us = abs(value.us)
    sign = -1 if value.us < 0 else 1
    match unit:
        case "epoch":
            days = Decimal(years) * Decimal("365.25") + months * 30 + value.days
            return quantized(days * 86_400 + Decimal(value.us).scaleb(-6), 6)
        case "day":
            return Decimal(value.days)
        case "month":
            return Decimal(months)
        case "quarter":
            return Decimal(int(months / 3) + 1)
        case "year":
            return Decimal(years)
        case "decade":
            return Decimal(int(years / 10))
        case "century":
            return Decimal(int(years / 100))
        case "millennium":
            return Decimal(int(years / 1000))
        case _:
            found = _of_time(unit, us)
            if found is None:
                raise _not_supported(unit, "interval")
            return found * sign if found else found


# -- date_trunc


def _trunc(text: str, value: datetime, type_name: str = "timestamp without time zone") -> datetime:  # noqa: C901 - a table of units
    unit = _unit(text, type_name)
    day = value.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "microseconds":
            return value
        case "milliseconds":
            return value.replace(microsecond=value.microsecond // 1000 * 1000)
        case "second":
            return value.replace(microsecond=0)
        case "minute":
            return value.replace(second=0, microsecond=0)
        case "hour":
            return value.replace(minute=0, second=0, microsecond=0)
        case "day":
            return day
        case "week":
            return day - timedelta(days=value.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(value.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return day.replace(month=1, day=1)
        case "decade":
            return day.replace(year=max(value.year // 10 * 10, 1), month=1, day=1)
        case "century":
            return day.replace(year=(value.year - 1) // 100 * 100 + 1, month=1, day=1)
        case "millennium":
            return day.replace(year=(value.year - 1) // 1000 * 1000 + 1, month=1, day=1)
        case _:
            raise _not_supported(unit, type_name)


_WITHIN_HOURS: Final = frozenset(("microseconds", "milliseconds", "second", "minute", "hour"))


def _trunc_zoned(env: Env, text: str, value: datetime, zone: str | None = None) -> datetime:
    where = env.style.zone if zone is None else zones.named(zone)
    aware = aware_in(value, where)
    found = _trunc(text, aware.replace(tzinfo=None), "timestamp with time zone")
    if _unit(text, "timestamp with time zone") in _WITHIN_HOURS:
        return value - (aware.replace(tzinfo=None) - found)
    return at_zone(found, where)


def _trunc_interval(text: str, value: Interval) -> Interval:
    unit = _unit(text, "interval")
    sizes = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "milliseconds": 1000}
    months = {
        "millennium": 12_000,
        "century": 1_200,
        "decade": 120,
        "year": 12,
        "quarter": 3,
        "month": 1,
    }
    if unit in months:
        return Interval(int(value.months / months[unit]) * months[unit], 0, 0)
    if unit == "day":
        return Interval(value.months, value.days, 0)
    if unit == "microseconds":
        return value
    if unit not in sizes:
        raise _not_supported(unit, "interval")
    return Interval(value.months, value.days, int(value.us / sizes[unit]) * sizes[unit])


def _bin(step: Interval, value: datetime, origin: datetime) -> datetime:
    if step.months:
        raise SqlError(
            "0A000", "timestamps cannot be binned into intervals containing months or years"
        )
    size = step.days * DAY_US + step.us
    if size <= 0:
        raise SqlError(DATETIME_OVERFLOW, "stride must be greater than zero")
    return origin + timedelta(microseconds=((value - origin) // _US) // size * size)


# -- make_…


def _make_date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise SqlError(
            DATETIME_OVERFLOW, f"date field value out of range: {year}-{month:02d}-{day:02d}"
        ) from None


def _make_time(hour: int, minute: int, second: float) -> time:
    if not (0 <= hour <= 24 and 0 <= minute < 60 and 0 <= second < 60):
        raise SqlError(
            DATETIME_OVERFLOW,
            f"time field value out of range: {hour}:{minute:02d}:"
            + (f"{second:02g}" if math.isfinite(second) else write_float8(second)),
        )
    return time_of((hour * 60 + minute) * 60_000_000 + round(second * 1_000_000))


def _make_timestamp(
    year: int, month: int, day: int, hour: int, minute: int, second: float
) -> datetime:
    return datetime.combine(_make_date(year, month, day), _make_time(hour, minute, second))


def _from_epoch(seconds: float) -> datetime:
    if seconds != seconds:
        raise SqlError(DATETIME_OVERFLOW, "timestamp cannot be NaN")
    try:
        us = int(Decimal(seconds * 1_000_000).to_integral_value(rounding=ROUND_HALF_EVEN))
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    except (OverflowError, ValueError, ArithmeticError):
        raise SqlError(DATETIME_OVERFLOW, f'timestamp out of range: "{seconds:g}"') from None


def _east(value: datetime, step: Interval, sign: int) -> datetime:
    """Clocks so far east of what the value is; of more than a day, too."""
    if step.months or step.days:
        raise SqlError(
            INVALID_PARAMETER,
            f'interval time zone "{write_interval(step)}" must not include months or days',
        )
    seconds = abs(step.us) // 1_000_000 * (1 if step.us >= 0 else -1)
    return add(value, Interval(us=seconds * 1_000_000), sign)


def _overlaps(a: object, b: Any, c: Any, d: object) -> bool | None:
    """(a, b) OVERLAPS (c, d): half-open periods; a NULL end leaves open what it decides."""
    if a is None or (b is not None and b < a):
        a, b = b, a
    if c is None or (d is not None and d < c):
        c, d = d, c
    if a is None or c is None:
        return None
    if a > c:
        a, b, c, d = c, d, a, b
    if a < c:
        if b is None:
            return None
        return True if c < b else None if d is None else False
    if b is None or d is None:
        return None
    return True


def _overlaps_of(first: bool, second: bool) -> Callable[..., bool | None]:
    """The forms of OVERLAPS whose ends are lengths."""

    def end(env: Env, start: Any, length: Any) -> object:
        if start is None or length is None:
            return None
        if isinstance(start, time):
            return time_of(time_us(start) + length.us)
        return add(start, length) if start.tzinfo is None else add_zoned(env, start, length)

    def call(env: Env, a: object, b: object, c: object, d: object) -> bool | None:
        return _overlaps(a, end(env, a, b) if first else b, c, end(env, c, d) if second else d)

    return call


def _float_part(function: Callable[..., Decimal]) -> Callable[..., float]:
    """date_part: extract as float8."""
    return lambda *args: float(function(*args))


FUNCTIONS: Final = declared(
    {
        "date_pli": _date_plus,
        "date_mii": lambda v, n: _date_plus(v, -n),
        "integer_pl_date(23,1082)": lambda n, v: _date_plus(v, n),
        "+(23,1082)": lambda n, v: _date_plus(v, n),
        "date_mi": total(lambda a, b: (a - b).days),
        "datetime_timestamp": datetime.combine,
        "+(1083,1082)": lambda t, d: datetime.combine(d, t),
        "date_pl_interval": lambda v, s: add(_midnight(v), s),
        "date_mi_interval": lambda v, s: add(_midnight(v), s, -1),
        "+(1186,1082)": lambda s, v: add(_midnight(v), s),
        "timestamp_pl_interval": add,
        "timestamp_mi_interval": lambda v, s: add(v, s, -1),
        "+(1186,1114)": lambda s, v: add(v, s),
        "timestamp_mi": _difference,
        "time_pl_interval": lambda v, s: time_of(time_us(v) + s.us),
        "time_mi_interval": lambda v, s: time_of(time_us(v) - s.us),
        "+(1186,1083)": lambda s, v: time_of(time_us(v) + s.us),
        "time_mi_time": lambda a, b: Interval(0, 0, time_us(a) - time_us(b)),
        "interval_pl": lambda a, b: interval(a.months + b.months, a.days + b.days, a.us + b.us),
        "interval_mi": lambda a, b: interval(a.months - b.months, a.days - b.days, a.us - b.us),
        "interval_um": lambda v: interval(-v.months, -v.days, -v.us),
        "interval_mul": _scaled,
        "mul_d_interval": lambda n, v: _scaled(v, n),
        "interval_div": _divided,
        "interval_justify_hours": _justify_hours,
        "interval_justify_days": _justify_days,
        "interval_justify_interval": _justify,
        "make_interval": _make_interval,
        "timestamp_age": _age,
        "extract_date": _extract_date,
        "extract_time": _extract_time,
        "extract_timestamp": _extract_timestamp,
        "extract_interval": _extract_interval,
        "date_part(25,1082)": _float_part(_extract_date),
        "time_part": _float_part(_extract_time),
        "timestamp_part": _float_part(_extract_timestamp),
        "interval_part": _float_part(_extract_interval),
        "timestamp_trunc": _trunc,
        "interval_trunc": _trunc_interval,
        "timestamp_bin": _bin,
        "timestamptz_bin": _bin,
        "make_date": _make_date,
        "make_time": _make_time,
        "make_timestamp": _make_timestamp,
        "float8_timestamptz": _from_epoch,
        "date_timestamp": total(_midnight),
        "timestamp_date": lambda v: v.date(),
        "timestamp_time": lambda v: v.time(),
        "time_interval": lambda v: Interval(0, 0, time_us(v)),
        "interval_time": lambda v: time_of(v.us),
        "date_finite": total(lambda v: True),
        "timestamp_finite": total(lambda v: True),
        "interval_finite": total(lambda v: True),
        "timestamp_zone": lambda zone, v: at_zone(v, zones.named(zone)),
        "timestamptz_zone": lambda zone, v: in_zone(v, zones.named(zone)),
        "timestamp_izone": lambda step, v: _east(v, step, -1).replace(tzinfo=UTC),
        "timestamptz_izone": lambda step, v: _east(v, step, 1).replace(tzinfo=None),
        "overlaps_timestamp": nulls(_overlaps),
        "overlaps_time": nulls(_overlaps),
        "make_timestamptz_at_timezone": lambda *a: at_zone(
            _make_timestamp(*a[:6]), zone_of_offset(a[6])
        ),
        **{
            f"overlaps({','.join(str(t) for t in (of, a, of, b))})": nulls(
                with_env(_overlaps_of(a == 1186, b == 1186))
            )
            for of in (1083, 1114, 1184)
            for a in (of, 1186)
            for b in (of, 1186)
            if 1186 in (a, b)
        },
        "now": total(with_env(lambda env: env.now)),
        "statement_timestamp": total(with_env(lambda env: env.statement_now)),
        "clock_timestamp": total(with_env(lambda env: env.clock())),
        "timestamptz_pl_interval": with_env(add_zoned),
        "timestamptz_mi_interval": with_env(lambda env, v, s: add_zoned(env, v, s, -1)),
        "+(1186,1184)": with_env(lambda env, s, v: add_zoned(env, v, s)),
        "timestamptz_age": with_env(lambda env, a, b: _age(_local(env, a), _local(env, b), a < b)),
        "extract_timestamptz": with_env(_extract_timestamptz),
        "timestamptz_part": with_env(
            lambda env, unit, v: float(_extract_timestamptz(env, unit, v))
        ),
        "timestamptz_trunc": with_env(_trunc_zoned),
        "timestamptz_trunc_zone": with_env(_trunc_zoned),
        "date_timestamptz": with_env(lambda env, v: _to_utc(env, _midnight(v))),
        "timestamp_timestamptz": with_env(_to_utc),
        "timestamptz_timestamp": with_env(_local),
        "timestamptz_date": with_env(lambda env, v: _local(env, v).date()),
        "timestamptz_time": with_env(lambda env, v: _local(env, v).time()),
        "make_timestamptz": with_env(lambda env, *a: _to_utc(env, _make_timestamp(*a))),
        "age(1184)": with_env(
            lambda env, v: _age(_midnight(_local(env, env.now).date()), _local(env, v))
        ),
        "age(1114)": with_env(lambda env, v: _age(_midnight(_local(env, env.now).date()), v)),
    }
)
