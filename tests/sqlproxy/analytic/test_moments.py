"""Moments of a whole column by the clocks of a zone, against the functions of one."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

import pyarrow as pa
import pytest

from sqlproxy.analytic import moments
from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.f_times import _trunc_zoned
from sqlproxy.pg.datetimes import in_zone
from sqlproxy.pg.style import Style
from sqlproxy.pg.zones import named
from sqlproxy.values.errors import SqlError

ZONES = ["Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "Africa/Monrovia", "EST5EDT", "+3"]
UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]


def column(values: list[datetime | None]) -> pa.Array:
    bare = [None if one is None else one.replace(tzinfo=None) for one in values]
    return pa.array(bare, pa.timestamp("us"))


@pytest.mark.few(2)
@pytest.mark.parametrize("zone", ZONES)
def test_a_column_is_as_each_of_its_moments(zone: str) -> None:
    """A day begins an hour late, or a group is torn in two, where the clocks are set."""
    there, chance = named(zone), random.Random(zone)
    given: list[datetime | None] = [None]
    for year in (2, 3, 1880, 1917, 1972, 2018, 2024, 2060, 9998):
        at = datetime(year, 1, 3, tzinfo=UTC)
        given += [at + timedelta(minutes=chance.randrange(525_000)) for _ in range(60)]
    for _ in range(300):  # some are set on one of these days, if they ever are
        given.append(datetime(2018, 1, 1, tzinfo=UTC) + timedelta(hours=chance.randrange(9_000)))
    each = [None if one is None else in_zone(one, there) for one in given]
    assert moments.local(column(given), there).to_pylist() == each
    env = Env(style=Style(zone=there))
    for unit in UNITS:
        wanted = [None if one is None else _trunc_zoned(env, unit, one) for one in given]
        assert moments.truncated(column(given), unit, there).equals(column(wanted)), unit


def test_a_moment_outside_of_our_years_is_refused() -> None:
    """Its clock would show another day."""
    last = datetime.max.replace(tzinfo=UTC)
    with pytest.raises(SqlError):
        moments.local(column([datetime(2024, 1, 1, tzinfo=UTC), last]), named("Asia/Kolkata"))


@pytest.mark.slow
def test_no_zone_is_set_forth_and_back_within_a_day() -> None:
    """The offset at both ends of a day would not be that in between."""
    for name in available_timezones():
        steps = _steps(name)
        for (_, before), (first, _), (second, after) in zip(
            steps, steps[1:], steps[2:], strict=False
        ):
            if before == after:
                assert second - first > 86_400, (name, first)
        assert all(one[0] < other[0] for one, other in pairwise(steps)), name


def _steps(name: str) -> list[tuple[int, int]]:
    """From when on (seconds since 1970) its clocks show which offset (RFC 8536, version 2)."""
    found = next((p for one in TZPATH if (p := Path(one) / name).is_file()), None)
    data = found.read_bytes() if found else files("tzdata.zoneinfo").joinpath(name).read_bytes()
    head = ">4sc15x6l"
    counts = struct.unpack_from(head, data)[2:]
    isut, isstd, leap, times, types, chars = counts
    at = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    *_, times, types, _ = struct.unpack_from(head, data, at)
    at += 44
    since = struct.unpack_from(f">{times}q", data, at)
    which = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack_from(">lbB", data, at + 6 * n)[0] for n in range(types)]
    return list(zip(since, [offsets[n] for n in which], strict=True))
