"""Sessions as other sessions see them: their numbers, what they run, and how they are ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


@pytest.fixture
def other(sql: Sql) -> Iterator[psycopg.Connection]:
    with sql.connect(autocommit=True) as conn:
        yield conn


def patiently(holds: Callable[[], bool]) -> None:
    """Until it does."""
    deadline = monotonic() + 60
    while not holds():
        assert monotonic() < deadline
        sleep(0.02)


def _one(conn: psycopg.Connection, text: str, *values: Any) -> Any:
    row = conn.execute(text, values).fetchone()
    assert row is not None
    return row[0]


def test_p10_a_session_knows_its_number(db: psycopg.Connection, other: psycopg.Connection) -> None:
    """Clients that log or cancel by pg_backend_pid() had 0, all of them."""
    assert _one(db, "SELECT pg_backend_pid()") == db.info.backend_pid > 0
    assert _one(other, "SELECT pg_backend_pid()") == other.info.backend_pid != db.info.backend_pid
    assert _one(db, "SELECT current_query()") == "SELECT current_query()"


def test_p10_a_transaction_has_a_number_of_its_own(sql: Sql, db: psycopg.Connection) -> None:
    """Every transaction had the number 0: tools that tell them apart by it saw one."""
    first = _one(db, "SELECT txid_current()")
    assert 0 < first < int(_one(db, "SELECT pg_current_xact_id()"))
    with sql.connect() as conn:
        number = _one(conn, "SELECT txid_current()")
        assert _one(conn, "SELECT txid_current()") == number
        assert _one(conn, "SELECT txid_current_if_assigned()") == number
        assert _one(conn, "SELECT pg_current_xact_id()") == str(number)


def test_u2_pg_stat_activity_lists_the_sessions_of_the_node(
    sql: Sql, db: psycopg.Connection
) -> None:
    """An operator could not see who is connected, and what they do."""
    with sql.connect(application_name="reports") as conn:
        conn.execute("SELECT 1 AS one")
        row = db.execute(
            "SELECT usename, application_name, state, query, query_start >= backend_start, "
            "xact_start IS NOT NULL FROM pg_stat_activity WHERE pid = %s",
            [conn.info.backend_pid],
        ).fetchone()
        assert row == ("kvorum", "reports", "idle in transaction", "SELECT 1 AS one", True, True)
        conn.rollback()
        told = "SELECT state FROM pg_stat_activity WHERE datname = current_database() ORDER BY pid"
        assert db.execute(told).fetchall() == [("active",), ("idle",)]
        for binary in (False, True):
            rows = db.execute("SELECT * FROM pg_stat_activity", binary=binary).fetchall()
            assert conn.info.backend_pid in {row[2] for row in rows}
        mine = "SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        assert _one(db, mine) == 1
    patiently(lambda: _one(db, told.replace("state", "count(*)").partition(" ORDER")[0]) == 1)


def test_u2_a_command_began_when_it_began(sql: Sql, db: psycopg.Connection) -> None:
    """Who ends what runs for long by query_start ended what had just begun behind a pause: CREATE
    INDEX, COMMIT and the like had the time of the statement before them.
    """
    with sql.connect(autocommit=True) as conn:
        conn.execute("SELECT now()")
        sleep(0.05)
        now = _one(db, "SELECT date_trunc('milliseconds', clock_timestamp())")
        conn.execute("BEGIN")
        where = "FROM pg_stat_activity WHERE pid = %s"
        row = db.execute(f"SELECT query, query_start {where}", [conn.info.backend_pid]).fetchone()
        assert row is not None
        assert row[0] == "BEGIN"
        assert row[1] >= now


def test_p10_a_statement_is_cancelled_by_another_session(
    db: psycopg.Connection, other: psycopg.Connection
) -> None:
    """pg_cancel_backend() was refused: only who had the key could cancel."""
    failed: list[BaseException] = []

    def nap() -> None:
        try:
            other.execute("SELECT pg_sleep(60)")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=nap)
    thread.start()
    where = f"FROM pg_stat_activity WHERE pid = {other.info.backend_pid}"
    patiently(lambda: _one(db, f"SELECT state || query {where}") == "activeSELECT pg_sleep(60)")
    assert _one(db, f"SELECT pg_cancel_backend(pid) {where}") is True
    thread.join(30)
    assert [type(error) for error in failed] == [psycopg.errors.QueryCanceled]
    assert _one(other, "SELECT 1") == 1, "the session lives"
    notices: list[str] = []
    db.add_notice_handler(lambda told: notices.append(str(told.message_primary)))
    assert _one(db, "SELECT pg_cancel_backend(2147483647)") is False
    assert _one(db, "SELECT pg_cancel_backend(NULL)") is None
    assert notices == ["PID 2147483647 is not a PostgreSQL backend process"]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["COPY wide TO STDOUT", "SELECT * FROM wide"])
def test_p1_an_answer_that_nobody_reads_is_cancelled(db: psycopg.Connection, text: str) -> None:
    """Between two pieces nothing of the statement runs, and a cancel would be lost: the client that
    pages through an answer has to take all of it.
    """
    db.execute("CREATE TABLE wide (id int PRIMARY KEY, v text)")
    db.execute("INSERT INTO wide SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g")
    db.pgconn.send_query(text.encode())
    sleep(0.5)  # the sockets are full
    db.pgconn.get_cancel().cancel()
    states = []
    while (result := db.pgconn.get_result()) is not None:
        states.append(result.error_field(psycopg.pq.DiagnosticField.SQLSTATE))
        while result.status == psycopg.pq.ExecStatus.COPY_OUT and db.pgconn.get_copy_data(0)[0] > 0:
            pass
    assert states[-1] == b"57014"
    assert db.execute("SELECT count(*) FROM wide").fetchone() == (20_000,)


def test_p10_sessions_are_terminated_by_another_one(sql: Sql, db: psycopg.Connection) -> None:
    """Who wants a database for himself ends all other sessions of it."""
    idle = sql.connect(autocommit=True)
    busy = sql.connect(autocommit=True)
    failed: list[BaseException] = []

    def nap() -> None:
        try:
            busy.execute("SELECT pg_sleep(60)")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=nap)
    thread.start()
    try:
        here = "FROM pg_stat_activity WHERE datname = current_database()"
        patiently(lambda: _one(db, f"SELECT count(*) {here} AND state = 'active'") == 2)
        ended = db.execute(
            f"SELECT pg_terminate_backend(pid) {here} AND pid <> pg_backend_pid()"
        ).fetchall()
        assert ended == [(True,), (True,)]
        thread.join(30)
        assert [type(error) for error in failed] == [psycopg.errors.AdminShutdown]
        with pytest.raises(psycopg.errors.AdminShutdown):
            idle.execute("SELECT 1")
        patiently(lambda: _one(db, f"SELECT count(*) {here}") == 1)
    finally:
        thread.join(30)
        idle.close()
        busy.close()


def test_p10_a_role_ends_its_own_sessions_only(sql: Sql, db: psycopg.Connection) -> None:
    """Anybody could end the administrator's statements, or read them."""
    db.execute("CREATE ROLE ender LOGIN")
    try:
        with psycopg.connect(sql.dsn.replace("user=kvorum", "user=ender"), autocommit=True) as conn:
            pid = db.info.backend_pid
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="superuser"):
                conn.execute("SELECT pg_terminate_backend(%s)", [pid])
            assert _one(conn, "SELECT query FROM pg_stat_activity WHERE pid = %s", pid) == (
                "<insufficient privilege>"
            )
            own = "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            assert _one(conn, own) == own
            with pytest.raises(psycopg.errors.AdminShutdown):
                conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    finally:
        db.execute("DROP ROLE ender")


def test_p10_a_superuser_as_another_role_is_one(sql: Sql, db: psycopg.Connection) -> None:
    """A member of an administrator's role read and ended his sessions while he was SET ROLE."""
    for text in ("ROLE boss SUPERUSER LOGIN", "ROLE helper LOGIN"):
        db.execute(f"CREATE {text}")
    db.execute("GRANT boss TO helper")
    try:
        as_role = [sql.dsn.replace("user=kvorum", f"user={name}") for name in ("boss", "helper")]
        with psycopg.connect(as_role[0], autocommit=True) as boss:
            boss.execute("SET ROLE helper")
            with psycopg.connect(as_role[1], autocommit=True) as helper:
                pid = boss.info.backend_pid
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="superuser"):
                    helper.execute("SELECT pg_terminate_backend(%s)", [pid])
                assert _one(
                    helper, "SELECT query FROM pg_stat_activity WHERE pid = %s", pid
                ).startswith("<")
            assert _one(boss, "SELECT 1") == 1
    finally:
        db.execute("DROP ROLE boss, helper")


@pytest.mark.slow
def test_p10_a_statement_is_active_until_its_client_has_its_rows(
    db: psycopg.Connection, other: psycopg.Connection
) -> None:
    """Who looks for what holds a table, or waits for rest, would find sessions idle that read it;
    and a session would keep megabytes of its last INSERT.
    """
    asked = "SELECT state || ' ' || length(query) FROM pg_stat_activity WHERE pid = %s"
    rows = "SELECT g, repeat('x', 1000) FROM generate_series(1, 40000) g"
    with db.cursor() as cursor, cursor.copy(f"COPY ({rows}) TO STDOUT") as copy:
        assert copy.read()
        assert str(_one(other, asked, db.info.backend_pid)).startswith("active ")
        assert sum(1 for _ in copy) > 0
    db.execute(f"SELECT length('{'x' * 5000}')")
    assert _one(other, asked, db.info.backend_pid) == "idle 1024"
    since = "SELECT state_change >= query_start FROM pg_stat_activity WHERE pid = %s"
    assert _one(other, since, db.info.backend_pid) is True
