"""What errors tell of a row, and what a new type makes of it, in the session's time zone."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

TABLES = (
    "create table parent (at timestamptz primary key)",
    "create table t (id int primary key, at timestamptz not null unique references parent, "
    "many timestamptz[], n int check (n > 0))",
    "insert into parent values ('2024-01-02 03:00+00'), ('2024-07-02 03:00+00')",
    "insert into t values (1, '2024-01-02 03:00+00', null, 1)",
)
SHOWN = "2024-01-01 22:00:00-05"
ROWS = [
    (
        "insert into t values (2, '2024-01-02 03:00+00', null, 1)",
        f"Key (at)=({SHOWN}) already exists.",
    ),
    (
        "insert into t values (2, '2024-01-02 04:00+00', null, 1)",
        'Key (at)=(2024-01-01 23:00:00-05) is not present in table "parent".',
    ),
    (
        "delete from parent where at < '2024-05-01'",
        f'Key (at)=({SHOWN}) is still referenced from table "t".',
    ),
    (
        "insert into t values (2, '2024-07-02 03:00+00', '{2024-01-02 03:00+00}', 0)",
        f'Failing row contains (2, 2024-07-01 23:00:00-04, {{"{SHOWN}"}}, 0).',
    ),
    ("insert into t values (2, null, null, 1)", "Failing row contains (2, null, null, 1)."),
    (
        "update t set n = -1 where id = 1",
        f"Failing row contains (1, {SHOWN}, null, -1).",
    ),
]


@pytest.mark.parametrize("block", [False, True], ids=["alone", "in a block"])
def test_details_tell_moments_in_the_zone_of_the_session(sql: Sql, block: bool) -> None:
    """A row is told in UTC to a session that writes in another zone."""
    with sql.connect(autocommit=True) as conn:
        for one in TABLES:
            conn.execute(one)
        conn.execute("set timezone = 'America/New_York'")
        for statement, detail in ROWS:
            conn.execute("begin" if block else "")
            with pytest.raises(psycopg.Error) as told:
                conn.execute(statement)
            conn.execute("rollback" if block else "")
            assert told.value.diag.message_detail == detail


@pytest.mark.few(1)
@pytest.mark.parametrize("zone", ["America/New_York", "UTC-5:30", "+3"])
def test_a_new_type_counts_in_the_zone_of_the_session(sql: Sql, zone: str) -> None:
    """Between timestamp, timestamptz and date a job without a session counts in UTC, or refuses."""
    casts = {
        "a": ("timestamp", "timestamptz(0)", ""),
        "B c": ("timestamptz", "timestamp", ' using "B c"::timestamp'),
        "d": ("date", "timestamptz", " using d::timestamptz"),
        "e": ("timestamptz", "date", ""),
        "f": ("timestamptz", "time(1)", ""),
    }
    declared = ", ".join(f'"{name}" {before}' for name, (before, _, _) in casts.items())
    moments = ("2024-11-03 01:30", "2024-03-10 07:30+00", "2024-06-01 23:59:59.96+00")
    with sql.connect(autocommit=True) as conn:
        conn.execute(f"create table t (id int primary key, {declared})".encode())
        for at, moment in enumerate(moments):
            conn.execute("insert into t values (%s, %s, %s, %s, %s, %s)", (at, *[moment] * 5))
        conn.execute("select set_config('timezone', %s, false)", (zone,))
        listed = ", ".join(f'"{name}"::{to}' for name, (_, to, _) in casts.items())
        expected = conn.execute(f"select id, {listed} from t order by id".encode()).fetchall()
        for name, (_, to, using) in casts.items():
            conn.execute(f'alter table t alter column "{name}" type {to}{using}'.encode())
        assert conn.execute("select * from t order by id").fetchall() == expected
        conn.execute("alter table t add column g text")
        with pytest.raises(psycopg.Error, match="depends on TimeZone"):
            conn.execute("alter table t alter g type timestamptz using g::timestamptz")
