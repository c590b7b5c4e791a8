"""Columns of times with a precision, by every way in; what statements answer beside PostgreSQL is
in tests/sqlproxy/compare/precision.sql.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

TABLE = """CREATE TABLE t (id int PRIMARY KEY, s timestamp(0), ms timestamp(3), tz timestamptz(2),
 t time(1), i interval(2), y interval year to month)"""
LATE = datetime.fromisoformat("2024-01-02 03:04:05.678901")
EARLY = datetime.fromisoformat("1999-12-31 22:59:58.5")
GIVEN: list[tuple[Any, ...]] = [
    (1, LATE, LATE, LATE.replace(tzinfo=UTC), LATE.time(), timedelta(days=1, milliseconds=5)),
    (2, EARLY, EARLY, EARLY.replace(tzinfo=UTC), EARLY.time(), timedelta(milliseconds=14)),
]
KEPT: list[tuple[Any, ...]] = [
    (
        1,
        LATE.replace(second=6, microsecond=0),
        LATE.replace(microsecond=679_000),
        LATE.replace(microsecond=680_000, tzinfo=UTC),
        time(3, 4, 5, 700_000),
        timedelta(days=1, milliseconds=10),
    ),
    (
        2,
        EARLY.replace(microsecond=0),  # away from 2000
        EARLY,
        EARLY.replace(tzinfo=UTC),
        EARLY.time(),
        timedelta(milliseconds=10),
    ),
]
READ = "SELECT id, s, ms, tz, t, i FROM t ORDER BY id"
INTO = "INSERT INTO t (id, s, ms, tz, t, i) VALUES (%s, %s, %s, %s, %s, %s)"


@pytest.fixture
def db(sql: Sql) -> Any:
    with sql.connect(autocommit=True, options="-c timezone=UTC") as connection:
        connection.execute(TABLE)
        yield connection


@pytest.mark.parametrize("way", ["one", "binary", "many", "text", "csv", "copied", "values"])
def test_p3_times_are_rounded_whatever_way_they_come(db: psycopg.Connection, way: str) -> None:
    """A fast way in keeps what the column cannot have: two clients see different rows."""
    cursor = db.cursor()
    match way:
        case "one":
            for row in GIVEN:
                cursor.execute(INTO, row, prepare=True)
        case "binary":
            for row in GIVEN:
                db.cursor(binary=True).execute(INTO.replace("%s", "%b"), row, prepare=True)
        case "many":
            cursor.executemany(INTO, GIVEN)
        case "copied":
            with cursor.copy("COPY t (id, s, ms, tz, t, i) FROM STDIN (FORMAT binary)") as copy:
                kinds = ["int4", "timestamp", "timestamp", "timestamptz", "time", "interval"]
                copy.set_types(kinds)
                for row in GIVEN:
                    copy.write_row(row)
        case "values":
            rows = ", ".join(
                f"({a}, '{b}', '{c}', '{d}', '{e}', '{f.total_seconds()} s')"
                for a, b, c, d, e, f in GIVEN
            ).replace("86400.005 s", "1 day 0.005 s")
            cursor.execute(f"INSERT INTO t (id, s, ms, tz, t, i) VALUES {rows}".encode())
        case _:
            end, tab = ("", "\t") if way == "text" else (" (FORMAT csv)", ",")
            with cursor.copy(f"COPY t (id, s, ms, tz, t, i) FROM STDIN{end}".encode()) as copy:
                for a, b, c, d, e, f in GIVEN:
                    days = f"{f.days} days {f.microseconds / 1e6} s"
                    copy.write(tab.join(map(str, (a, b, c, d, e, days))) + "\n")
    assert db.execute(READ).fetchall() == KEPT
    assert db.execute("SELECT count(*), max(ms) FROM t GROUP BY tz ORDER BY 2").fetchall() == [
        (1, KEPT[1][2]),
        (1, KEPT[0][2]),
    ]


def test_c4_copy_reads_what_the_fields_of_an_interval_mean(db: psycopg.Connection) -> None:
    """COPY took a bare number of an `interval hour` for seconds, and cut it to nothing."""
    db.execute("CREATE TABLE f (h interval hour, m interval minute to second, d interval day[])")
    cursor = db.cursor()
    for end, line in (
        ("", "5\t1:30\t{3}\n"),
        (" (FORMAT csv)", "5,1:30,{3}\n"),
        ("", "5\t1:30\t{3}\n" * 300),
    ):
        with cursor.copy(f"COPY f FROM STDIN{end}".encode()) as copy:
            copy.write(line)
    found = db.execute("SELECT h::text, m::text, d::text, count(*) FROM f GROUP BY 1, 2, 3")
    assert found.fetchall() == [("05:00:00", "00:01:30", '{"3 days"}', 302)]


def test_q2_a_column_is_rounded_when_its_precision_falls(db: psycopg.Connection) -> None:
    """Old rows keep digits that the type no longer has; or a wider type rewrites the table."""
    db.execute(
        "CREATE TABLE r (id int PRIMARY KEY, at timestamp, y interval); CREATE INDEX r_at ON r (at)"
    )
    db.execute("INSERT INTO r VALUES (1, %s, '14 mons 3 days'), (2, %s, NULL)", (LATE, EARLY))
    db.execute("ALTER TABLE r ALTER at TYPE timestamp(1)")
    at = "SELECT at FROM r ORDER BY id"
    short = [(LATE.replace(microsecond=700_000),), (EARLY,)]
    assert db.execute(at).fetchall() == short
    assert db.execute("SELECT id FROM r WHERE at = %s", short[0]).fetchall() == [(1,)]
    db.execute("ALTER TABLE r ALTER at TYPE timestamp(4), ALTER y TYPE interval year")
    db.execute("INSERT INTO r VALUES (3, %s, '35 mons')", (LATE,))
    assert db.execute(at).fetchall() == [*short, (LATE.replace(microsecond=678_900),)]
    assert db.execute("SELECT y::text FROM r ORDER BY id").fetchall() == [
        ("1 year",),
        (None,),
        ("2 years",),
    ]
    db.execute("ALTER TABLE r ADD n timestamp(0) DEFAULT '2020-01-01 00:00:00.7'")
    assert {row[0].second for row in db.execute("SELECT n FROM r")} == {1}
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow, match="after the year 9999"):
        db.execute("INSERT INTO r (id, n) VALUES (9, '9999-12-31 23:59:59.5')")


def test_p9_sqlalchemy_finds_precisions_again(sql: Sql, db: psycopg.Connection) -> None:
    """Alembic would compare them as different at every run."""
    engine = sa.create_engine(sql.url())
    types = {c["name"]: c["type"] for c in sa.inspect(engine).get_columns("t")}
    engine.dispose()
    moment, span = types["ms"], types["y"]
    assert isinstance(moment, postgresql.TIMESTAMP)
    assert isinstance(span, postgresql.INTERVAL)
    assert (moment.precision, types["tz"].precision, types["i"].precision) == (3, 2, 2)
    assert types["tz"].timezone
    assert span.fields == "year to month"
