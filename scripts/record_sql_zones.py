"""Asks a real PostgreSQL 15 what time zones mean: tests/sqlproxy/pg/zones.json.

    python scripts/record_sql_zones.py "host=127.0.0.1 port=5432 user=postgres"

A row is [zone, what SHOW says of it, two times in it, the same AT TIME ZONE, a literal with it];
null is an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg

FILE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "pg" / "zones.json"
_ZONES = (
    "+10:00",
    "-05",
    "UTC-3",
    "FOO-3",
    "GMT-03:00",
    "PDT",
    "pst",
    "foo5bar",
    "1",
    "+1",
    "10",
    "-3.5",
    "3.5",
    "x",
    "FO3",
    "<+03>-3",
    "EST5EDT",
    "utc+5",
    "UTC+5:30:10",
    "MSK",
    "msk",
    "Europe/moscow",
    "local",
    "default",
    "Z",
    "zulu",
    "UTC0",
    "FOO3BAR,M3.2.0,M11.1.0",
    "FOO168",
    "allballs",
    "LMT",
    "cet",
    "CEST",
    "BST",
    "IST",
    "+00",
    "utc",
    "GMT0",
    "<>3",
    "<abc>3",
    "<a b>3",
    "FOO3BAR2",
    "FOO3BAR2,J60/2,J300/2",
    "FOO3BAR2,60/2,300/2",
    "3 FOO",
    "UTC-05:00",
    "A1",
    "É3",
    "FOO+-3",
    "FOO3,",
    "FOO3BAR,M13.1.1,M1.1.1",
    "FOO3BAR,J0,J1",
    "Etc/GMT+10",
    "Etc/GMT-14",
    "ART",
    "+05:30",
    "+0530",
    "-12:30",
    "1e1",
    " 5",
    "INTERVAL '+05:30'",
    "interval '1 day'",
    "interval'-3'",
    "Asia/Kolkata",
    "CKT",
    "LHDT",
    "ACWST",
    "MART",
    "nzdt",
    "America/New_York",
    "america/argentina/buenos_aires",
    "US/Pacific",
    "GB",
    "EST",
    "MST7MDT",
    "W-SU",
    "Etc/UTC",
    "Universal",
    "America/Nowhere",
    "UTC+24",
    "GMT+0",
    "-0",
    "+14",
    "-14:45",
)


def ask() -> Iterator[str]:
    """The zones that are asked for, but those of a day and more, which are not kept here."""
    yield from (zone for zone in _ZONES if zone != "UTC+24")


def _answer(connection: psycopg.Connection, *statements: str) -> str | None:
    try:
        for one in statements:
            found = connection.execute(one.encode()).fetchone() if one[:3] != "set" else None
            if one[:3] == "set":
                connection.execute(one.encode())
    except psycopg.Error:
        return None
    finally:
        connection.execute("set timezone = 'UTC'")
    return None if found is None else str(found[0])


def main(address: str) -> None:
    """Records."""
    summer, winter = ("timestamptz '2024-07-01 12:00+00'", "timestamptz '2024-12-01 12:00+00'")
    rows = []
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("set timezone = 'UTC'")
        for zone in ask():
            quoted = zone.replace("'", "''")
            rows.append(
                [
                    zone,
                    _answer(connection, f"set timezone = '{quoted}'", "show timezone"),
                    _answer(
                        connection,
                        f"set timezone = '{quoted}'",
                        f"select {summer}::text || ' ' || {winter}::text",
                    ),
                    _answer(
                        connection,
                        f"select ({summer} at time zone '{quoted}')::text || ' ' || "
                        f"({winter} at time zone '{quoted}')::text",
                    ),
                    _answer(connection, f"select ('2024-07-01 12:00 {quoted}'::timestamptz)::text"),
                ]
            )
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(rows)} zones")


if __name__ == "__main__":
    main(*sys.argv[1:])
