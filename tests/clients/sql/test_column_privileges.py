"""Privileges of columns: PostgreSQL 15 answered the same to each of these statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

ALLOWED = (
    "SELECT a FROM t",
    "SELECT a, b FROM t WHERE a > 0 ORDER BY b",
    "SELECT count(*) FROM t",
    "SELECT t.a FROM t JOIN t u ON t.a = u.b",
    "SELECT a FROM t JOIN t u USING (a)",
    "SELECT max(a) OVER (PARTITION BY b) FROM t",
    "WITH w AS (SELECT a FROM t) SELECT * FROM w",
    "SELECT * FROM (SELECT b FROM t) x",
    "COPY t (a, b) TO STDOUT",
    "INSERT INTO t (a, c) VALUES (100, 1)",
    "INSERT INTO t (a) SELECT a + 1000 FROM t",
    "UPDATE t SET b = 5",
    "UPDATE t SET b = a + 1 WHERE a = 1",
    "UPDATE t SET b = 3 RETURNING a, b",
    "SELECT a FROM t FOR UPDATE",
    "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 9",
    "CREATE TEMP TABLE copy AS SELECT a FROM t",
    "EXPLAIN SELECT a FROM t",
)
REFUSED = (
    "SELECT * FROM t",
    "TABLE t",
    "SELECT c FROM t",
    "SELECT a FROM t WHERE c = 1",
    "SELECT a FROM t ORDER BY c",
    "SELECT count(*) FROM t GROUP BY c",
    "SELECT count(c) FROM t",
    "SELECT t FROM t",
    "SELECT row_to_json(t) FROM t",
    "SELECT (t).c FROM t",
    "SELECT t.a FROM t JOIN t u USING (c)",
    "SELECT 1 FROM t NATURAL JOIN t u",
    "SELECT (SELECT max(c) FROM t)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE c = 1)",
    "COPY t TO STDOUT",
    "COPY t (c) TO STDOUT",
    "INSERT INTO t VALUES (1, 2, 3)",
    "INSERT INTO t (b) VALUES (1)",
    "INSERT INTO t (a) VALUES (101) RETURNING c",
    "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET c = 9",
    "UPDATE t SET a = 5",
    "UPDATE t SET b = c",
    "UPDATE t SET b = 5 WHERE c = 1",
    "UPDATE t SET b = 3 RETURNING *",
    "DELETE FROM t",
    "DELETE FROM t WHERE a = 1",
    "MERGE INTO t USING (SELECT 1 k) s ON a = k WHEN MATCHED THEN UPDATE SET c = 1",
    "CREATE TEMP TABLE copy AS SELECT * FROM t",
)


@pytest.fixture
def reader(db: psycopg.Connection, sql: Sql) -> Iterator[psycopg.Connection]:
    """Somebody who may read a and b, insert a and c, and change b."""
    name = f"cols_{sql.database}"
    db.execute(f"CREATE USER {name}")
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b int, c int)")
    db.execute("INSERT INTO t VALUES (1, 2, 3)")
    db.execute(f"GRANT SELECT (a, b), INSERT (a, c), UPDATE (b) ON t TO {name}")
    dsn = sql.dsn.replace("user=kvorum", f"user={name}")
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


def _run(conn: psycopg.Connection, statement: str) -> str | None:
    """The SQLSTATE; nothing of it stays."""
    conn.execute("BEGIN")
    try:
        if statement.startswith("COPY"):
            with conn.cursor().copy(statement) as rows:
                list(rows)
        else:
            conn.execute(statement)
    except psycopg.Error as error:
        return error.sqlstate
    finally:
        conn.execute("ROLLBACK")
    return None


def test_p10_columns_that_may_be_read_or_written(reader: psycopg.Connection) -> None:
    """A statement that names a column which is not granted gets through, or one that does not is
    refused.
    """
    answers = {one: _run(reader, one) for one in (*ALLOWED, *REFUSED)}
    wrong = {
        one: said for one, said in answers.items() if said != ("42501" if one in REFUSED else None)
    }
    assert not wrong


@pytest.mark.parametrize("alias", ["excluded", "old", "new", "t"])
def test_p10_a_name_in_the_statement_gives_no_privilege(
    reader: psycopg.Connection, alias: str
) -> None:
    """A table that is called as ON CONFLICT calls its proposed row is read without a privilege."""
    for statement, wanted in (
        (f"SELECT a FROM t {alias}", None),
        (f"SELECT c FROM t {alias}", "42501"),
        (f"SELECT {alias}.c FROM t {alias}", "42501"),
        (f"SELECT a FROM t {alias} WHERE c = 1", "42501"),
        (f"SELECT a FROM t WHERE EXISTS (SELECT FROM t {alias} WHERE {alias}.c = t.a)", "42501"),
        (f"WITH {alias} AS (SELECT * FROM t) SELECT a FROM {alias}", "42501"),
        (f"UPDATE t {alias} SET b = 3 RETURNING c", "42501"),
        (f"UPDATE t {alias} SET b = 3 WHERE c > 0", "42501"),
        (f"UPDATE t {alias} SET b = 3 WHERE a > 0", None),
    ):
        assert _run(reader, statement) == wanted, statement
    statement = "INSERT INTO t (a, c) VALUES (1, 7) ON CONFLICT (a) DO UPDATE SET b = excluded.c"
    assert _run(reader, statement) is None


def test_p10_a_constraint_by_its_name_and_statistics_ask_for_columns(
    db: psycopg.Connection, reader: psycopg.Connection
) -> None:
    """Which values a column has that one may not read is learned from a constraint over it, or
    pg_stats hides the columns that one may.
    """
    db.execute("ALTER TABLE t ADD CONSTRAINT of_c UNIQUE (c), ADD CONSTRAINT of_b UNIQUE (a, b)")
    for name, wanted in (("t_pkey", None), ("of_b", None), ("of_c", "42501")):
        text = f"INSERT INTO t (a) VALUES (1) ON CONFLICT ON CONSTRAINT {name} DO NOTHING"
        if name == "of_b":
            text = text.replace("(1)", "(77)")
        assert _run(reader, text) == wanted, name
    db.execute("ANALYZE t")
    asked = "SELECT attname::text FROM pg_stats WHERE tablename = 't' ORDER BY 1"
    assert reader.execute(asked).fetchall() == [("a",), ("b",)]
    assert db.execute(asked).fetchall() == [("a",), ("b",), ("c",)]


def test_p10_errors_tell_of_columns_that_may_be_read(
    db: psycopg.Connection, reader: psycopg.Connection
) -> None:
    """What a row has in other columns is read out by changes that its rules refuse."""
    db.execute("ALTER TABLE t ADD CHECK (b > 0), ALTER b SET NOT NULL, ADD UNIQUE (b, c)")
    db.execute("CREATE TABLE child (k int PRIMARY KEY, a int REFERENCES t, secret int)")
    db.execute("CREATE TABLE wide (k int PRIMARY KEY, a int REFERENCES t, b int CHECK (b > 0))")
    db.execute(f"GRANT INSERT, UPDATE, DELETE ON child, wide TO {reader.info.user}")
    db.execute(f"GRANT SELECT (k, b) ON wide TO {reader.info.user}")
    db.execute("INSERT INTO t VALUES (5, 6, 3)")
    for statement, detail in (
        ("UPDATE t SET b = 0 WHERE a = 1", "Failing row contains (a, b) = (1, 0)."),
        ("UPDATE t SET b = NULL WHERE a = 1", "Failing row contains (a, b) = (1, null)."),
        ("UPDATE t SET b = 2 WHERE a = 5", None),  # the other one has (2, 3)
        ("INSERT INTO t (a, c) VALUES (1, 2)", "Failing row contains (a, b) = (1, null)."),
        ("INSERT INTO child VALUES (1, 77, 3)", 'Key is not present in table "t".'),
        ("INSERT INTO wide VALUES (1, 77, 3)", 'Key is not present in table "t".'),
        ("INSERT INTO wide VALUES (1, 5, 0)", "Failing row contains (k, b) = (1, 0)."),
    ):
        for block in (False, True):
            around = reader.transaction() if block else nullcontext()
            with pytest.raises(psycopg.Error) as caught, around:
                reader.execute(statement.encode())
            assert caught.value.diag.message_detail == detail, statement
    with pytest.raises(psycopg.Error) as caught:  # who may read all sees all
        db.execute("UPDATE t SET b = 0 WHERE a = 1")
    assert caught.value.diag.message_detail == "Failing row contains (1, 0, 3)."


def test_p10_column_privileges_are_shown_and_taken_back(
    db: psycopg.Connection, sql: Sql, reader: psycopg.Connection
) -> None:
    """has_column_privilege, information_schema and \\dp say something else than what holds."""
    name = f"cols_{sql.database}"

    def has(column: str, privilege: str) -> object:
        row = db.execute(f"SELECT has_column_privilege('{name}', 't', '{column}', '{privilege}')")
        return (row.fetchone() or (None,))[0]

    assert [has("a", "SELECT"), has("c", "SELECT"), has("b", "UPDATE")] == [True, False, True]
    assert [has("c", "INSERT"), has("a", "UPDATE")] == [True, False]
    any_of = db.execute(f"SELECT has_any_column_privilege('{name}', 't', 'SELECT')").fetchone()
    assert any_of == (True,)
    with pytest.raises(psycopg.errors.UndefinedColumn):
        has("z", "SELECT")
    for text in (
        "has_any_column_privilege('t', 'DELETE')",
        "has_column_privilege('t', 'a', 'TRIGGER')",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            db.execute(f"SELECT {text}".encode())
    shown = db.execute(
        "SELECT column_name, privilege_type FROM information_schema.column_privileges "
        f"WHERE grantee = '{name}' AND table_name = 't' ORDER BY 1, 2"
    ).fetchall()
    assert shown == [
        ("a", "INSERT"),
        ("a", "SELECT"),
        ("b", "SELECT"),
        ("b", "UPDATE"),
        ("c", "INSERT"),
    ]
    listed = db.execute(
        "SELECT attname, attacl::text FROM pg_attribute "
        "WHERE attrelid = 't'::regclass AND attacl IS NOT NULL ORDER BY attnum"
    ).fetchall()
    assert [column for column, _ in listed] == ["a", "b", "c"]
    assert f"{name}=ar/kvorum" in listed[0][1]
    db.execute(f"REVOKE SELECT (b) ON t FROM {name}")
    assert [has("a", "SELECT"), has("b", "SELECT")] == [True, False]
    db.execute(f"REVOKE ALL ON t FROM {name}")
    assert [has("a", "SELECT"), has("b", "UPDATE")] == [False, False]
    assert _run(reader, "SELECT count(*) FROM t") == "42501"


def test_p10_references_of_columns(db: psycopg.Connection, sql: Sql) -> None:
    """A foreign key is made to columns that may not be referred to."""
    name = f"refs_{sql.database}"
    db.execute(f"CREATE USER {name}")
    db.execute(f"GRANT CREATE ON SCHEMA public TO {name}")
    db.execute("CREATE TABLE p (a int PRIMARY KEY, b int UNIQUE)")
    db.execute(f"GRANT REFERENCES (a) ON p TO {name}")
    with psycopg.connect(sql.dsn.replace("user=kvorum", f"user={name}"), autocommit=True) as conn:
        conn.execute("CREATE TABLE c1 (a int REFERENCES p)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("CREATE TABLE c2 (a int REFERENCES p (b))")
    with pytest.raises(psycopg.Error, match="invalid privilege type DELETE for column"):
        db.execute(f"GRANT DELETE (a) ON p TO {name}")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        db.execute(f"GRANT SELECT (z) ON p TO {name}")
