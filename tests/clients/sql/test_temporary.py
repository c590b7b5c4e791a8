"""Temporary tables: as PostgreSQL's, each session's own, and gone without a trace."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.sessions import Sessions, recorded, statements

pytestmark = pytest.mark.cluster


def _one(conn: psycopg.Connection, query: str) -> object:
    row = conn.execute(query.encode()).fetchone()
    return row and row[0]


def _refused(conn: psycopg.Connection, statement: str, sqlstate: str) -> str:
    with pytest.raises(psycopg.Error) as found:
        conn.execute(statement.encode())
    assert found.value.sqlstate == sqlstate, found.value
    return str(found.value)


@pytest.fixture
def other(sql: Sql) -> Iterator[psycopg.Connection]:
    """Another session."""
    with sql.connect(autocommit=True) as conn:
        yield conn


def test_p4_temporary_tables_answer_as_postgresql(sql: Sql) -> None:
    """Rows, tags and errors of two sessions differ from what PostgreSQL 15 answered."""
    known = recorded("temporary")
    assert [(session, text) for session, text, _ in known] == statements("temporary")
    sessions, wrong = Sessions(sql.dsn), []
    try:
        for session, text, said in known:
            found = sessions.ask(session, text)
            if found[:1] != said[:1]:
                wrong.append(f"{session}: {text}\n  PostgreSQL: {said}\n  here:       {found}")
    finally:
        sessions.close()
    assert not wrong, "\n".join(wrong)


def test_p4_a_plan_notices_that_a_temporary_table_hides_what_it_read(
    db: psycopg.Connection, other: psycopg.Connection
) -> None:
    """A prepared statement goes on with the permanent table, or another session's is read."""
    db.execute("CREATE TABLE t (a int PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1)")
    for conn in (db, other):
        assert conn.execute("SELECT a FROM t WHERE a > %s", (0,), prepare=True).fetchall() == [(1,)]
    db.execute("CREATE TEMP TABLE t (a int PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (2)")
    assert db.execute("SELECT a FROM t WHERE a > %s", (0,), prepare=True).fetchall() == [(2,)]
    assert other.execute("SELECT a FROM t WHERE a > %s", (0,), prepare=True).fetchall() == [(1,)]
    db.execute("DROP TABLE t")
    assert db.execute("SELECT a FROM t WHERE a > %s", (0,), prepare=True).fetchall() == [(1,)]


def test_p4_a_conflict_of_a_permanent_row_takes_back_the_temporary_ones(
    db: psycopg.Connection, other: psycopg.Connection
) -> None:
    """Half of a transaction is committed."""
    db.execute("CREATE TABLE p (k int PRIMARY KEY, v int)")
    db.execute("INSERT INTO p VALUES (1, 0)")
    db.execute("CREATE TEMP TABLE t (a int)")
    db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    db.execute("INSERT INTO t SELECT v FROM p")
    db.execute("UPDATE p SET v = v + 1")
    other.execute("UPDATE p SET v = 100")
    with pytest.raises(psycopg.errors.SerializationFailure):
        db.execute("COMMIT")
    db.execute("ROLLBACK")
    assert _one(db, "SELECT count(*) FROM t") == 0
    db.execute("BEGIN")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("UPDATE p SET v = v + 1")
    db.execute("COMMIT")
    assert (_one(db, "SELECT count(*) FROM t"), _one(other, "SELECT v FROM p")) == (1, 101)


def test_p4_a_duplicate_in_a_temporary_table_leaves_no_permanent_row(
    db: psycopg.Connection,
) -> None:
    """The conditions of private rows are looked at after the rest is committed."""
    db.execute("CREATE TABLE p (k int PRIMARY KEY)")
    db.execute("CREATE TEMP TABLE t (a int PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1)")
    _refused(db, "WITH x AS (INSERT INTO p VALUES (1)) INSERT INTO t VALUES (1)", "23505")
    assert _one(db, "SELECT count(*) FROM p") == 0
    db.execute("BEGIN")
    db.execute("INSERT INTO p VALUES (2)")
    _refused(db, "INSERT INTO t VALUES (1)", "23505")
    db.execute("ROLLBACK")
    assert _one(db, "SELECT count(*) FROM p") == 0


def test_p4_nothing_of_a_temporary_table_reaches_the_store(
    sql: Sql, db: psycopg.Connection
) -> None:
    """A session that ends, however, leaves partitions, names or rows behind."""

    def stored() -> tuple[object, object]:
        jobs = "SELECT count(*) FROM kvorum.procedures WHERE name LIKE '%Table'"
        return _one(db, jobs), _one(db, "SELECT count(*) FROM kvorum.partitions")

    before = stored()
    with sql.connect(autocommit=True) as conn:
        conn.execute("CREATE TEMP TABLE t (id serial PRIMARY KEY, v text UNIQUE)")
        conn.execute("INSERT INTO t (v) SELECT g::text FROM generate_series(1, 500) g")
        assert stored() == before
        conn.execute("CREATE TABLE p AS SELECT count(*) n FROM t")
    assert _one(db, "SELECT n FROM p") == 500
    _refused(db, "SELECT * FROM t", "42P01")
    db.execute("CREATE TABLE t (a int)")
    names = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pg_temp%'"
    assert _one(db, names) == 0


def test_p4_analyze_takes_temporary_tables(db: psycopg.Connection) -> None:
    """It looks for them in the store, and programs that analyze what they staged repeat for
    ever.
    """
    db.execute("CREATE TEMP TABLE staged AS SELECT i, 'x' AS t FROM generate_series(1, 50) i")
    db.execute("ANALYZE staged")
    with db.transaction():
        db.execute("INSERT INTO staged VALUES (51, 'y')")
        db.execute("ANALYZE staged (i)")
        db.execute("ANALYZE")
    assert _one(db, "SELECT count(*) FROM staged WHERE i > 40") == 11


def test_p4_rows_of_temporary_tables_are_bounded(sql: Sql) -> None:
    """A session fills the memory of its process."""
    with sql.connect(autocommit=True) as conn:
        conn.execute("SET statement_memory_bytes = '16MB'")
        conn.execute("CREATE TEMP TABLE t (v text)")
        many = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 40000)"
        _refused(conn, many, "53200")
        assert _one(conn, "SELECT count(*) FROM t") == 0
        conn.execute("INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 4000)")
        assert _one(conn, "SELECT sum(length(v)) FROM t") == 4_000_000
        conn.execute("TRUNCATE t")
        conn.execute("INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 4000)")
        assert _one(conn, "SELECT count(*) FROM t") == 4_000


def test_p4_who_may_make_temporary_tables(sql: Sql, db: psycopg.Connection) -> None:
    """TEMPORARY on the database is not asked for, or somebody's are open to other roles."""
    role = f"temp_{sql.database}"
    db.execute(f"CREATE USER {role}")
    with psycopg.connect(sql.dsn.replace("user=kvorum", f"user={role}"), autocommit=True) as conn:
        conn.execute("CREATE TEMP TABLE t (a int)")
        conn.execute("INSERT INTO t VALUES (1)")
        conn.execute("CREATE INDEX ON t (a)")
        conn.execute("ALTER TABLE t ADD COLUMN b int")
        assert _one(conn, "SELECT count(*) FROM t") == 1
        db.execute(f"REVOKE TEMPORARY ON DATABASE {sql.database} FROM PUBLIC")
        shown = f"SELECT has_database_privilege('{role}', '{sql.database}', 'TEMP')"
        assert _one(db, shown) is False
    with psycopg.connect(sql.dsn.replace("user=kvorum", f"user={role}"), autocommit=True) as conn:
        words = _refused(conn, "CREATE TEMP TABLE t (a int)", "42501")
        assert "permission denied to create temporary tables" in words


def test_p4_temporary_names_beside_others(db: psycopg.Connection) -> None:
    """Views, COPY, comments and privileges mean the permanent table that a temporary one hides."""
    db.execute("CREATE TABLE t (a int)")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("CREATE VIEW v AS SELECT a FROM t")
    db.execute("CREATE TEMP TABLE t (a int)")
    db.execute("INSERT INTO t VALUES (2), (3)")
    assert _one(db, "SELECT sum(a) FROM v") == 1
    assert _one(db, "SELECT sum(a) FROM t") == 5
    with db.cursor().copy("COPY t TO STDOUT") as rows:
        assert b"".join(rows) == b"2\n3\n"
    with db.cursor().copy("COPY public.t TO STDOUT") as rows:
        assert b"".join(rows) == b"1\n"
    db.execute("CREATE VIEW w AS SELECT a FROM t")
    assert _one(db, "SELECT relpersistence FROM pg_class WHERE relname = 'w'") == "t"
    db.execute("ALTER TABLE t RENAME TO u")
    assert _one(db, "SELECT sum(a) FROM w") == 5
    assert _one(db, "SELECT sum(a) FROM t") == 1
    visible = "SELECT pg_table_is_visible('public.t'::regclass)"
    assert _one(db, visible) is True
    db.execute("ALTER TABLE u RENAME TO t")
    assert _one(db, visible) is False
    db.execute("DROP TABLE t CASCADE")
    _refused(db, "SELECT * FROM w", "42P01")
    assert _one(db, "SELECT sum(a) FROM t") == 1


def test_p4_a_definition_of_a_permanent_table_between_changes_of_temporary_ones(
    db: psycopg.Connection,
) -> None:
    """A block loses what it has written to temporary tables, or the other way about."""
    db.execute("CREATE TEMP TABLE t (a int)")
    db.execute("BEGIN")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("SAVEPOINT s")
    db.execute("INSERT INTO t VALUES (2)")
    db.execute("CREATE TABLE p (a int)")
    assert _one(db, "SELECT count(*) FROM t") == 2
    db.execute("INSERT INTO p SELECT a FROM t")
    db.execute("ROLLBACK TO s")
    assert _one(db, "SELECT count(*) FROM t") == 1
    db.execute("COMMIT")
    assert (_one(db, "SELECT count(*) FROM t"), _one(db, "SELECT count(*) FROM p")) == (1, 0)


def test_p4_enums_and_defaults_of_permanent_things(db: psycopg.Connection) -> None:
    """A temporary table cannot have a type, or a sequence, of the database."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    db.execute("CREATE TABLE p (id serial PRIMARY KEY, m mood DEFAULT 'ok')")
    db.execute("CREATE TEMP TABLE t (LIKE p INCLUDING DEFAULTS)")
    db.execute("INSERT INTO t DEFAULT VALUES")
    db.execute("INSERT INTO p DEFAULT VALUES")
    assert db.execute("SELECT id, m FROM t").fetchall() == [(1, "ok")]
    assert db.execute("SELECT id, m FROM p").fetchall() == [(2, "ok")]
    _refused(db, "INSERT INTO t (m) VALUES ('glad')", "22P02")
    _refused(db, "CREATE TYPE pg_temp.x AS ENUM ('a')", "0A000")
