"""Indexes over expressions: as PostgreSQL's, and used where a statement says the expression."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.sessions import Sessions, recorded, statements

pytestmark = pytest.mark.cluster


@pytest.fixture
def people(db: psycopg.Connection) -> psycopg.Connection:
    """A table with an index over an expression."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, name text, n int)")
    db.execute("INSERT INTO t SELECT g, 'Name' || g, g FROM generate_series(1, 500) g")
    db.execute("CREATE INDEX t_low ON t (lower(name))")
    return db


@pytest.mark.slow
def test_p6_indexes_over_expressions_answer_as_postgresql(sql: Sql) -> None:
    """Rows, errors, or what the catalog says of them differ from what PostgreSQL 15 answered."""
    known = recorded("expressions")
    assert [(session, text) for session, text, _ in known] == statements("expressions")
    sessions, wrong = Sessions(sql.dsn), []
    try:
        for session, text, said in known:
            found = sessions.ask(session, text)
            if found[:1] != said[:1]:
                wrong.append(f"{session}: {text}\n  PostgreSQL: {said}\n  here:       {found}")
    finally:
        sessions.close()
    assert not wrong, "\n".join(wrong)


def test_p6_they_are_used_for_what_they_say(people: psycopg.Connection) -> None:
    """A statement that says the expression scans the table, or another one takes the index."""

    def plan(statement: str) -> str:
        return "\n".join(row[0] for row in people.execute(b"EXPLAIN " + statement.encode()))

    people.execute("INSERT INTO t SELECT g, 'Name' || g, g FROM generate_series(501, 5000) g")
    people.execute("ANALYZE t")  # which comes by itself at some time
    for statement in (
        "SELECT * FROM t WHERE lower(name) = 'name7'",
        "SELECT * FROM t x WHERE lower(x.name) IN ('name7', 'name8')",
        "SELECT * FROM t WHERE lower(name) LIKE 'name7%'",
        "SELECT * FROM t WHERE lower(name) > 'name7' ORDER BY lower(name) LIMIT 5",
        "SELECT * FROM t ORDER BY lower(name) LIMIT 5",
        "UPDATE t SET n = 1 WHERE lower(name) = 'name7'",
        "DELETE FROM t WHERE lower(name) = 'name7'",
        "SELECT count(*) FROM t a JOIN t b ON a.id = b.id WHERE lower(a.name) = 'name7'",
    ):
        assert "using t_low" in plan(statement), plan(statement)
    for statement in (
        "SELECT * FROM t WHERE upper(name) = 'NAME7'",
        "SELECT * FROM t WHERE lower(name || 'x') = 'name7'",
        "SELECT * FROM t WHERE name = 'name7'",
    ):
        assert "t_low" not in plan(statement), plan(statement)


def test_p6_what_they_are_of_is_nowhere_seen(people: psycopg.Connection) -> None:
    """The column is in rows, in COPY, in what is declared, or takes a name from users."""
    columns = [one.name for one in people.execute("SELECT * FROM t LIMIT 0").description or ()]
    assert columns == ["id", "name", "n"]
    with people.cursor().copy("COPY (SELECT * FROM t WHERE id = 1) TO STDOUT") as rows:
        assert b"".join(rows) == b"1\tName1\t1\n"
    with people.cursor().copy("COPY t FROM STDIN") as rows:
        rows.write("1000\tFrom Copy\t5\n")
    found = people.execute("SELECT id FROM t WHERE lower(name) = 'from copy'").fetchall()
    assert found == [(1000,)]
    listed = people.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 't' ORDER BY 1"
    ).fetchall()
    assert listed == [("id",), ("n",), ("name",)]
    with pytest.raises(psycopg.errors.UndefinedColumn):
        people.execute("SELECT _expr4 FROM t")
    people.execute("ALTER TABLE t ADD COLUMN _expr5 int DEFAULT 1")
    assert people.execute("SELECT _expr5 FROM t WHERE id = 1").fetchone() == (1,)
    people.execute("CREATE INDEX ON t ((n + 1))")
    people.execute("DROP INDEX t_low")
    assert people.execute("SELECT id FROM t WHERE n + 1 = 8").fetchall() == [(7,)]


def test_p6_a_column_that_an_expression_uses(people: psycopg.Connection) -> None:
    """Its type changes under the index, or a duplicate is found by half of an index."""
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="index over lower"):
        people.execute("ALTER TABLE t ALTER COLUMN name TYPE varchar(3) USING left(name, 3)")
    with pytest.raises(psycopg.errors.UniqueViolation, match="could not create unique index"):
        people.execute("CREATE UNIQUE INDEX twice ON t ((n % 7))")
    people.execute("INSERT INTO t VALUES (2000, 'x', NULL)")
    names = people.execute("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1")
    assert names.fetchall() == [("t_low",), ("t_pkey",)]


def test_p6_the_past_has_rows_from_before_the_index(db: psycopg.Connection) -> None:
    """Rows of a moment before CREATE INDEX lack what the index is of: none are found, or in any
    order, where a statement takes today's index.
    """
    db.execute("CREATE TABLE t (id int PRIMARY KEY, name text, n int)")
    db.execute("INSERT INTO t VALUES (1, 'Bob', 5), (2, 'ann', 0), (3, 'BOB', 7), (4, 'Ann', 2)")
    (moment,) = db.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
    db.execute("SELECT pg_sleep(0.2)")
    asked = (
        ("SELECT id FROM t {} WHERE lower(name) = 'bob' ORDER BY id", [(1,), (3,)]),
        ("SELECT id FROM t {} WHERE lower(name) < 'b' ORDER BY id", [(2,), (4,)]),
        ("SELECT id FROM t {} ORDER BY lower(name), id LIMIT 3", [(2,), (4,), (1,)]),
        ("SELECT DISTINCT lower(name) FROM t {} ORDER BY 1", [("ann",), ("bob",)]),
        ("SELECT id FROM t {} WHERE n * 2 = 10", [(1,)]),
        (
            "SELECT id FROM t {} WHERE n * 2 = 10 OR lower(name) = 'ann' ORDER BY 1",
            [(1,), (2,), (4,)],
        ),
    )
    db.execute("CREATE INDEX ON t (lower(name), id)")
    db.execute("CREATE UNIQUE INDEX ON t ((n * 2))")
    db.execute("DELETE FROM t WHERE id = 1")
    for text, rows in asked:
        past = text.format(f"AS OF SYSTEM TIME '{moment}'")
        assert db.execute(past.encode()).fetchall() == rows, text


def test_p6_no_index_is_over_a_function_of_users(db: psycopg.Connection) -> None:
    """What is stored would mean something else when the function is replaced; and what binds the
    expression later knows of no functions.
    """
    db.execute("CREATE FUNCTION twice(a int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT a * 2'")
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    db.execute("INSERT INTO t VALUES (1, 10)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="index expressions"):
        db.execute("CREATE INDEX ON t (twice(a))")
    assert db.execute("SELECT id FROM t WHERE twice(a) = 20").fetchall() == [(1,)]
