"""Time zones as PostgreSQL 15 reads, shows and computes with them (zones.json, recorded from it),
and what needs no PostgreSQL to be known.

    psql … -c "set timezone = '<zone>'" -c "show timezone"      the second field
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.make_sql_zone_cases import FILE, lines
from scripts.record_sql_zones import ask
from sqlproxy.pg import datetimes, zones
from sqlproxy.pg.style import Style, is_utf8
from sqlproxy.values.errors import SqlError
from tests.kit.each import each

RECORDED: list[list[Any]] = json.loads(
    (Path(__file__).parent / "zones.json").read_text(encoding="utf-8")
)


@each("recorded", RECORDED, ids=[row[0] for row in RECORDED])
def test_zone_is_read_and_shown_as_postgresql(recorded: list[Any]) -> None:
    """SET TimeZone, AT TIME ZONE or a literal would take a zone otherwise than PostgreSQL 15."""
    assert _answers(recorded[0]) == recorded[1:]


def _answers(zone: str) -> list[str | None]:
    """What scripts/record_sql_zones.py asks PostgreSQL; None is an error."""

    def setting() -> str:
        return zones.setting(zone)

    def shown() -> str:
        there = zones.shown(zones.setting(zone))
        return " ".join(datetimes.write_timestamptz(at, there) for at in (_SUMMER, _WINTER))

    def named() -> str:
        there = zones.named(zone)
        return " ".join(str(datetimes.in_zone(at, there)) for at in (_SUMMER, _WINTER))

    def literal() -> str:
        read = datetimes.read_timestamptz(f"2024-07-01 12:00 {zone}", Style(UTC))
        return datetimes.write_timestamptz(read, UTC)

    found: list[str | None] = []
    for one in (setting, shown, named, literal):
        try:
            found.append(one())
        except SqlError:
            found.append(None)
    return found


_SUMMER = datetime(2024, 7, 1, 12, tzinfo=UTC)
_WINTER = datetime(2024, 12, 1, 12, tzinfo=UTC)


def test_zone_questions_are_the_recorded_ones() -> None:
    """A zone was added to the script and not recorded, so it is not compared."""
    assert [row[0] for row in RECORDED] == list(ask())


def test_zone_cases_are_of_the_registry() -> None:
    """A function or a cast is new and is not compared with PostgreSQL in zones that are not UTC:
    run scripts/make_sql_zone_cases.py and record.
    """
    assert FILE.read_text(encoding="utf-8").splitlines() == lines()


@pytest.mark.parametrize("text", ["FOO24", "-25", "100", "INTERVAL '25:00'", "<A>99B"])
def test_zone_of_a_day_and_more_is_refused(text: str) -> None:
    """An offset that cannot be kept would end a statement with an internal error."""
    with pytest.raises(SqlError) as refused:
        zones.setting(text)
    assert refused.value.sqlstate == "22023"


def test_zone_by_rules_changes_when_they_say() -> None:
    """The daylight time of a zone that only its rules describe would be lost."""
    there = zones.specified("AAA3BBB,M3.2.0/2,M11.1.0/2")
    assert there is not None
    before, behind = (datetime(2024, 3, 10, hour, 59, tzinfo=UTC) for hour in (4, 5))
    assert before.astimezone(there).utcoffset() == timedelta(hours=-3)
    assert behind.astimezone(there).utcoffset() == timedelta(hours=-2)


def test_abbreviation_of_a_zone_means_what_it_meant() -> None:
    """MSK would be three hours in the years when it was four."""
    msk = zones.abbreviation("msk")
    assert msk is not None
    for year, hours in ((2010, 3), (2013, 4), (2020, 3)):
        local = datetime(year, 7, 1)  # noqa: DTZ001 - of the zone
        assert datetimes.at_zone(local, msk) == datetime(year, 7, 1, tzinfo=UTC) - timedelta(
            hours=hours
        )


def test_abbreviations_are_those_of_the_catalog() -> None:
    """pg_timezone_abbrevs would not tell what literals take."""
    listed = {word: offset for word, _, offset, _ in zones.all_abbreviations(_WINTER)}
    assert len(listed) == 195
    for word, offset in listed.items():
        zone = zones.abbreviation(word.lower())
        assert zone is not None
        assert _WINTER.astimezone(zone).utcoffset() == offset, word


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("utf_8", True), ("UTF8", True), ("utf-8", True), ("Unicode", True), ("latin1", False)],
)
def test_names_of_utf8(name: str, is_one: bool) -> None:
    """A client that spells UTF-8 otherwise could not connect."""
    assert is_utf8(name) is is_one
