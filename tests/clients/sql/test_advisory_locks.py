"""Advisory locks as migrations use them, over the PostgreSQL protocol."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.waiting import poll

pytestmark = pytest.mark.cluster


def one(conn: psycopg.Connection, text: str) -> Any:
    """The one value of a query."""
    row = conn.execute(text).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return row[0]


def test_p10_an_advisory_lock_is_one_sessions_until_it_is_given_back(sql: Sql) -> None:
    """Two migrations ran at once, or one never again: a lock was not exclusive, not counted, or
    not free after its unlock."""
    with sql.connect(autocommit=True) as a, sql.connect(autocommit=True) as b:
        assert one(a, "SELECT pg_advisory_lock(42)") == ""
        assert one(a, "SELECT pg_try_advisory_lock(42)") is True
        assert one(b, "SELECT pg_try_advisory_lock(42)") is False
        assert one(b, "SELECT pg_try_advisory_lock_shared(42)") is False
        assert one(b, "SELECT pg_try_advisory_lock(0, 42)") is True  # two ints are another lock
        assert one(a, "SELECT pg_advisory_unlock(42)") is True
        assert one(b, "SELECT pg_try_advisory_lock(42)") is False
        assert one(a, "SELECT pg_advisory_unlock(42)") is True
        assert one(b, "SELECT pg_try_advisory_lock(42)") is True
        told: list[str] = []
        a.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        assert one(a, "SELECT pg_advisory_unlock(42)") is False
        assert one(a, "SELECT pg_advisory_unlock_shared(42)") is False
        assert told == [
            "you don't own a lock of type ExclusiveLock",
            "you don't own a lock of type ShareLock",
        ]
        assert one(b, "SELECT pg_advisory_unlock_all()") == ""
        assert one(a, "SELECT pg_try_advisory_lock(42) AND pg_try_advisory_lock(0, 42)") is True


def test_p10_shared_advisory_locks_go_together(sql: Sql) -> None:
    """Readers kept each other out, or a writer came between them."""
    with sql.connect(autocommit=True) as a, sql.connect(autocommit=True) as b:
        assert one(a, "SELECT pg_try_advisory_lock_shared(-1)") is True
        assert one(b, "SELECT pg_try_advisory_lock_shared(-1)") is True
        assert one(a, "SELECT pg_advisory_unlock_shared(-1)") is True
        assert one(a, "SELECT pg_try_advisory_lock(-1)") is False
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            b.execute("SELECT pg_advisory_lock(-1)")
        assert one(b, "SELECT pg_advisory_unlock_shared(-1)") is True
        assert one(a, "SELECT pg_try_advisory_lock(-1)") is True


def test_p10_an_advisory_lock_of_a_transaction_ends_with_it(sql: Sql) -> None:
    """A lock outlived COMMIT, ROLLBACK, the savepoint that it was taken behind, a failed block; or
    one of the session did not outlive them."""
    with sql.connect(autocommit=True) as a, sql.connect(autocommit=True) as b:

        def free(number: int) -> bool:
            found = one(b, f"SELECT pg_try_advisory_lock({number})")
            b.execute("SELECT pg_advisory_unlock_all()")
            return bool(found)

        for end in ("COMMIT", "ROLLBACK"):
            a.execute("BEGIN")
            a.execute("SELECT pg_advisory_xact_lock(1)")
            assert one(a, "SELECT pg_advisory_unlock(1)") is False
            a.execute("SAVEPOINT s")
            a.execute("SELECT pg_advisory_xact_lock(2), pg_advisory_lock(3)")
            assert not free(2)
            a.execute("ROLLBACK TO s")
            assert free(2)
            assert not free(1)
            assert not free(3)
            a.execute(end)
            assert free(1)
            assert not free(3)
            assert one(a, "SELECT pg_advisory_unlock(3)") is True
        a.execute("BEGIN")
        a.execute("SELECT pg_advisory_xact_lock_shared(1)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            a.execute("SELECT 1 / 0")
        assert free(1)
        a.execute("ROLLBACK")
        a.execute("SELECT pg_advisory_xact_lock(1)")  # a transaction by itself
        assert free(1)


def test_p10_who_waits_for_an_advisory_lock_gets_it_when_its_holder_goes(sql: Sql) -> None:
    """A migration waited for ever for one whose connection was gone; or a wait could not be ended
    by lock_timeout or by a cancel."""
    with sql.connect(autocommit=True) as b, ThreadPoolExecutor(1) as pool:
        a = sql.connect(autocommit=True)
        a.execute("SELECT pg_advisory_lock(7)")
        b.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            b.execute("SELECT pg_advisory_lock(7)")
        b.execute("RESET lock_timeout")
        timer = threading.Timer(0.1, b.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            b.execute("SELECT pg_advisory_lock(7)")
        timer.join()
        waits = pool.submit(b.execute, "SELECT pg_advisory_lock(7)")
        time.sleep(0.1)
        assert not waits.done()
        a.close()
        waits.result(5)
        with sql.connect(autocommit=True) as c:
            assert one(c, "SELECT pg_try_advisory_lock(7)") is False


def test_p10_a_circle_of_advisory_locks_is_broken(sql: Sql) -> None:
    """Two sessions that each want what the other has waited for ever."""
    with (
        ThreadPoolExecutor(1) as pool,
        sql.connect(autocommit=True) as a,
        sql.connect(autocommit=True) as b,
    ):
        a.execute("SELECT pg_advisory_lock(1)")
        b.execute("SELECT pg_advisory_lock(2)")
        waits = pool.submit(a.execute, "SELECT pg_advisory_lock(2)")
        time.sleep(0.1)
        assert not waits.done()
        with pytest.raises(psycopg.errors.DeadlockDetected) as refused:
            b.execute("SELECT pg_advisory_lock(1)")
        assert f"sql/{sql.database}/0/2/1" in str(refused.value.diag.message_detail)
        b.execute("SELECT pg_advisory_unlock_all()")
        waits.result(5)


def test_u2_advisory_locks_are_listed_with_who_waits(sql: Sql) -> None:
    """Who looks for what stands still did not find the lock, or who waits for it."""
    held = (
        "SELECT classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'advisory' "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "ORDER BY objsubid, granted DESC"
    )
    with (
        ThreadPoolExecutor(1) as pool,
        sql.connect(autocommit=True, application_name="second") as b,
        sql.connect(autocommit=True) as a,
    ):
        a.execute("SELECT pg_advisory_lock(-2), pg_advisory_lock_shared(3, -4)")
        waits = pool.submit(b.execute, "SELECT pg_advisory_lock_shared(-2)")
        bigint = (4294967295, 4294967294, 1)
        poll(
            lambda: (
                a.execute(held).fetchall()
                == [
                    (*bigint, "ExclusiveLock", True),
                    (*bigint, "ShareLock", False),
                    (3, 4294967292, 2, "ShareLock", True),
                ]
            )
        )
        told = a.execute(
            "SELECT resource, owner FROM kvorum.locks WHERE waiting AND resource LIKE %s",
            [f"lock sql/{sql.database}/%"],
        ).fetchall()
        key = f"{2**32 - 1}/{2**32 - 2}/1"
        assert told == [
            (f"lock sql/{sql.database}/{key}", f"sql kvorum@{sql.database} (second)"),
        ]
        a.execute("DISCARD ALL")
        waits.result(5)


def test_p10_advisory_locks_of_rows_are_refused(sql: Sql, db: psycopg.Connection) -> None:
    """A lock that was not taken was told as taken."""
    db.execute("CREATE TABLE jobs (id int PRIMARY KEY)")
    db.execute("INSERT INTO jobs VALUES (1)")
    for text in (
        "SELECT pg_try_advisory_lock(id) FROM jobs",
        "SELECT count(*) FROM jobs WHERE pg_try_advisory_lock(id)",
        "INSERT INTO jobs VALUES (pg_advisory_unlock(2)::int)",
        "UPDATE jobs SET id = 2 WHERE pg_try_advisory_lock(2)",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            db.execute(text)
    rows = db.execute("SELECT x FROM (VALUES (1), (2)) v(x) WHERE pg_try_advisory_lock(x)")
    assert rows.fetchall() == [(1,), (2,)]
    db.execute("INSERT INTO jobs SELECT 2 WHERE pg_try_advisory_lock(3)")
    with sql.connect(autocommit=True) as other:
        found = other.execute(
            "SELECT id, pg_try_advisory_lock(id) FROM (VALUES (1), (2), (3), (4)) v(id)"
        )
        assert found.fetchall() == [(1, False), (2, False), (3, False), (4, True)]


async def _with_asyncpg(sql: Sql) -> list[Any]:
    conn = await asyncpg.connect(
        host="127.0.0.1", port=sql.port, user="kvorum", database=sql.database
    )
    try:
        found = [await conn.fetchval("SELECT pg_try_advisory_lock($1)", 5)]
        found.append(await conn.fetchval("SELECT pg_advisory_unlock($1, $2)", 1, 2))
        await conn.reset()
        with sql.connect(autocommit=True) as other:
            found.append(one(other, "SELECT pg_try_advisory_lock(5)"))
        return found
    finally:
        await conn.close()


def test_p10_asyncpg_takes_advisory_locks_and_pools_give_them_back(sql: Sql) -> None:
    """A connection went back into its pool with its locks."""
    import asyncio

    assert asyncio.run(_with_asyncpg(sql)) == [True, False, True]
