"""Texts of values are read as the session says that reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sqlproxy.front.types.value_texts import reader
from sqlproxy.pg import oids
from sqlproxy.pg.style import Style

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize("oid", [oids.DATE, oids.TIMESTAMP, oids.TIMESTAMPTZ, 1182])
def test_p1_today_is_that_of_who_reads_it(oid: int) -> None:
    """A reader that is kept gives one session the time of another one's transaction."""
    text = "{today}" if oid == 1182 else "today"
    found = [
        reader(oid, Style(now=lambda days=days: NOW + timedelta(days=days)))(text)  # type: ignore[misc]
        for days in (0, 1, 0)
    ]
    assert found[0] == found[2] != found[1]
