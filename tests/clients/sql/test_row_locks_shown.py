"""Row locks as tools and queues see them: pg_locks, and SKIP LOCKED over joins. Who excludes whom:
tests/kvorum/cluster/test_sql_row_locks.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.waiting import poll

RC = "BEGIN ISOLATION LEVEL READ COMMITTED"


@pytest.fixture
def tables(db: psycopg.Connection) -> None:
    db.execute("CREATE TABLE p (id int PRIMARY KEY, u int UNIQUE, v int)")
    db.execute("CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)")
    db.execute("INSERT INTO p VALUES (1, 1, 10), (2, 2, 20)")


@pytest.mark.usefixtures("tables")
def test_u2_pg_locks_lists_row_locks(sql: Sql, db: psycopg.Connection) -> None:
    """Tools that show what stands still would show nothing."""
    rows = (
        "SELECT relation::regclass::text, locktype, mode, granted FROM pg_locks "
        "WHERE relation = 'p'::regclass ORDER BY granted DESC, mode"
    )
    with (
        sql.connect(autocommit=True) as one,
        sql.connect(autocommit=True) as two,
        ThreadPoolExecutor(1) as pool,
    ):
        one.execute(RC)
        one.execute("SELECT v FROM p WHERE id = 1 FOR KEY SHARE")
        two.execute(RC)
        going = pool.submit(two.execute, "DELETE FROM p WHERE id = 1")
        found = [("p", "relation", "RowShareLock", True), ("p", "tuple", "ExclusiveLock", False)]
        poll(lambda: db.execute(rows).fetchall() == found)
        query = "SELECT strength FROM kvorum.locks WHERE NOT waiting AND table_name = 'p'"
        assert ("key share",) in db.execute(query).fetchall()
        one.execute("COMMIT")
        assert going.result(20).rowcount == 1
        two.execute("ROLLBACK")


@pytest.mark.usefixtures("tables")
def test_p10_skip_locked_over_a_join(sql: Sql, db: psycopg.Connection) -> None:
    """A queue beside another table could not be shared by workers."""
    db.execute("INSERT INTO p SELECT n, n, 0 FROM generate_series(3, 6) n")
    db.execute("INSERT INTO c SELECT n, n FROM generate_series(1, 6) n")
    query = "SELECT c.id FROM c JOIN p ON p.id = c.p ORDER BY c.id {} FOR UPDATE {} SKIP LOCKED"
    with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
        for conn in (one, two):
            conn.execute(RC)
        assert one.execute(query.format("LIMIT 2", "OF c")).fetchall() == [(1,), (2,)]
        assert two.execute(query.format("LIMIT 1 OFFSET 1", "OF c")).fetchall() == [(4,)]
        assert one.execute(query.format("", "")).fetchall() == [(1,), (2,), (5,), (6,)]
        two.execute("ROLLBACK")
        assert db.execute("SELECT count(*) FROM c").fetchall() == [(6,)]
