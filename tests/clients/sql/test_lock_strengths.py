"""Row locks in PostgreSQL's four strengths: who may have which beside whom, and what foreign keys
make of it (docs/decisions/1560). PostgreSQL 15 answers the first two tests' statements so.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.waiting import poll

RC = "BEGIN ISOLATION LEVEL READ COMMITTED"
BESIDE = {  # PostgreSQL's documentation, table 13.3
    "KEY SHARE": ("KEY SHARE", "SHARE", "NO KEY UPDATE"),
    "SHARE": ("KEY SHARE", "SHARE"),
    "NO KEY UPDATE": ("KEY SHARE",),
    "UPDATE": (),
}
CHANGES = {  # what others may do to a row that is locked so
    "UPDATE p SET v = v + 1 WHERE id = 1": ("KEY SHARE",),
    "UPDATE p SET v = v + 1 WHERE v >= 0": ("KEY SHARE",),
    "UPDATE p SET u = u + 100 WHERE id = 1": (),
    "DELETE FROM p WHERE id = 1": (),
    "INSERT INTO c VALUES (50, 1)": ("KEY SHARE", "SHARE", "NO KEY UPDATE"),
}


@pytest.fixture
def tables(db: psycopg.Connection) -> None:
    db.execute("CREATE TABLE p (id int PRIMARY KEY, u int UNIQUE, v int)")
    db.execute("CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)")
    db.execute("INSERT INTO p VALUES (1, 1, 10), (2, 2, 20)")


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("held", BESIDE)
def test_d17_who_may_lock_beside_whom(sql: Sql, held: str) -> None:
    """Blocks would wait that need not, or would not that must."""
    with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
        one.execute(RC)
        one.execute(f"SELECT v FROM p WHERE id = 1 FOR {held}")
        for wanted in BESIDE:
            two.execute(RC)
            query = f"SELECT v FROM p WHERE id = 1 FOR {wanted} NOWAIT"
            if wanted in BESIDE[held]:
                assert two.execute(query).fetchall() == [(10,)]
            else:
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    two.execute(query)
            two.execute("ROLLBACK")
        one.execute("ROLLBACK")


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("held", BESIDE)
def test_d17_what_others_may_change_under_a_lock(sql: Sql, held: str) -> None:
    """A lock that a change does not see is none."""
    with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
        two.execute("SET lock_timeout = '300ms'")
        one.execute(RC)
        one.execute(f"SELECT v FROM p WHERE id = 1 FOR {held}")
        for change, beside in CHANGES.items():
            two.execute(RC)
            if held in beside:
                assert two.execute(change).rowcount > 0
            else:
                with pytest.raises(psycopg.errors.LockNotAvailable, match="lock timeout"):
                    two.execute(change)
            two.execute("ROLLBACK")
        assert one.execute("SELECT v FROM p WHERE id = 1").fetchall() == [(10,)]
        one.execute("COMMIT")


@pytest.mark.usefixtures("tables")
def test_d17_children_of_one_parent_come_side_by_side(sql: Sql, db: psycopg.Connection) -> None:
    """Every order of one customer would wait for the one before, until its block ends."""
    with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
        for conn, n in ((one, 1), (two, 2)):
            conn.execute("SET lock_timeout = '5s'")
            conn.execute(RC)
            conn.execute("INSERT INTO c VALUES (%s, 1)", [n])
        db.execute("UPDATE p SET v = 11 WHERE id = 1")
        with ThreadPoolExecutor(1) as pool, sql.connect(autocommit=True) as three:
            three.execute(RC)
            going = pool.submit(three.execute, "DELETE FROM p WHERE id = 1")
            poll(
                lambda: (
                    db.execute("SELECT count(*) FROM kvorum.locks WHERE waiting").fetchall()
                    != [(0,)]
                )
            )
            two.execute("COMMIT")
            one.execute("UPDATE p SET v = v + 1 WHERE id = 1")
            one.execute("COMMIT")
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                going.result(20)
    assert db.execute("SELECT v FROM p WHERE id = 1").fetchall() == [(12,)]
    assert db.execute("SELECT id FROM c ORDER BY 1").fetchall() == [(1,), (2,)]


@pytest.mark.usefixtures("tables")
def test_d17_a_parent_that_goes_is_waited_for(sql: Sql, db: psycopg.Connection) -> None:
    """A child would come to a parent that is on its way out."""
    with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
        one.execute(RC)
        one.execute("DELETE FROM p WHERE id = 1")
        two.execute(RC)
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(two.execute, "INSERT INTO c VALUES (1, 1)")
            poll(
                lambda: (
                    db.execute("SELECT count(*) FROM kvorum.locks WHERE waiting").fetchall()
                    != [(0,)]
                )
            )
            one.execute("COMMIT")
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                coming.result(20)


@pytest.mark.usefixtures("tables")
def test_d17_two_who_share_and_then_change_are_a_deadlock(sql: Sql) -> None:
    """Each would wait for the other for ever."""
    with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
        for conn in (one, two):
            conn.execute(RC)
            conn.execute("SELECT * FROM p WHERE id = 1 FOR SHARE")

        def change(conn: psycopg.Connection) -> str:
            try:
                conn.execute("UPDATE p SET v = v + 1 WHERE id = 1")
                conn.execute("COMMIT")
            except psycopg.errors.DeadlockDetected:
                conn.execute("ROLLBACK")
                return "40P01"
            return "done"

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(change, (one, two))) == ["40P01", "done"]


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
