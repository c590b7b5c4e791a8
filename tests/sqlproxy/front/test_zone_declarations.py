"""Declarations of a session whose time zone is not UTC: others read them in their own zones."""

from __future__ import annotations

from typing import Any

import pytest

from sqlproxy.front import front
from sqlproxy.front.bound import statements as s
from sqlproxy.front.syntax.syntax import parse
from sqlproxy.pg import zones
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.front.names import FakeNames

STYLE = Style(zones.shown("America/New_York"))


def bind(text: str, style: Style = STYLE) -> Any:
    return front.bind(parse(text), FakeNames(), (), style)


def shown(text: str, style: Style = STYLE) -> str:
    return repr(bind(text, style))


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        ("a timestamptz default '2024-01-01 00:00'", "'2024-01-01 00:00:00-05'"),
        ("a timestamptz default timestamptz '2024-07-01'", "'2024-07-01 00:00:00-04'"),
        ("a timestamptz[] default '{2024-01-01}'", "'{\\\\\"2024-01-01 00:00:00-05\\\\\"}'"),
        ("a timestamptz check (a > '2024-01-01 00:00')", "'2024-01-01 00:00:00-05'"),
        ("a timestamptz default '2024-01-01 00:00+00'", "'2024-01-01 00:00+00'"),
        ("a timestamp default '2024-01-01 00:00'", "'2024-01-01 00:00'"),
    ],
)
def test_literal_of_a_declaration_keeps_its_moment(declared: str, kept: str) -> None:
    """A default or a CHECK would mean another moment in every session of another zone."""
    assert kept.replace('\\\\"', '"') in shown(f"create table made ({declared})").replace("\\", "")


def test_literal_of_a_view_keeps_its_moment() -> None:
    """A view would answer other rows in every session of another zone."""
    text = "create view made as select timestamptz '2024-01-01 00:00' as at"
    assert "'2024-01-01 00:00:00-05'" in shown(text)
    assert "'2024-01-01 00:00'" in shown(text, Style())


@pytest.mark.parametrize(
    "generated",
    [
        "x::text",
        "x::date",
        "concat(x)",
        "(x::timestamp)",
        "x > date '2024-01-01'",
        "t::timestamptz",
    ],
)
def test_generated_column_depends_on_no_zone(generated: str) -> None:
    """A stored value would be that of the zone of whoever wrote the row."""
    with pytest.raises(SqlError) as refused:
        bind(
            f"create table made (x timestamptz, t text, y text generated always as "
            f"(({generated})::text) stored)"
        )
    assert refused.value.sqlstate == "42P17"


def test_a_set_zone_is_an_interval_east() -> None:
    """INTERVAL in SET TIME ZONE would be read without its fields."""
    found = bind("set time zone interval '10:20:30' hour to minute")
    assert found == s.SetVariable("timezone", ("INTERVAL '10:20:00'",), False)
