"""Functions in SQL, as programs make and call them."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def test_functions_in_statements(sql: Sql, db: psycopg.Connection) -> None:
    """A call would give something else than its body, or only to the session that made it."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, s text, n numeric)")
    db.execute("INSERT INTO t SELECT i, 'S' || i, i / 2.0 FROM generate_series(1, 20) i")
    db.execute(
        "CREATE FUNCTION add(a int, b int DEFAULT 2) RETURNS int LANGUAGE sql IMMUTABLE "
        "AS $$ SELECT a + $2 $$"
    )
    db.execute(
        "CREATE FUNCTION name_of(i int) RETURNS text STABLE STRICT LANGUAGE sql "
        "AS 'SELECT s FROM t WHERE id = i'"
    )
    db.execute(
        "CREATE FUNCTION above(low numeric) RETURNS TABLE (id int, half text) LANGUAGE sql "
        "AS 'SELECT t.id, t.n FROM t WHERE n > low ORDER BY 1'"
    )
    db.execute("CREATE VIEW v AS SELECT add(id, 100) AS big FROM t WHERE add(id) < 5")
    with sql.connect(autocommit=True) as other:
        asked = other.execute("SELECT add(1), add(b => 7, a => 1), name_of(3), name_of(NULL)")
        assert asked.fetchone() == (3, 8, "S3", None)
        assert other.execute("SELECT big FROM v ORDER BY 1").fetchall() == [(101,), (102,)]
        found = other.execute("SELECT id, name_of(add(id, 1)) FROM t WHERE id = add(1, 1)")
        assert found.fetchall() == [(2, "S3")]
        found = other.execute("SELECT a.* FROM above(9) a")
        assert found.fetchall() == [(19, "9.5000000000000000"), (20, "10.0000000000000000")]
        found = other.execute("SELECT sum(add(id, 0)), max(name_of(id)) FROM t")
        assert found.fetchone() == (210, "S9")
        found = other.execute(
            "SELECT t.id, count(a.id) FROM t LEFT JOIN LATERAL above(t.n + 8) a ON true "
            "WHERE t.id < 4 GROUP BY 1 ORDER BY 1"
        )
        assert found.fetchall() == [(1, 3), (2, 2), (3, 1)]
    db.execute("CREATE OR REPLACE FUNCTION add(a int, b int DEFAULT 3) RETURNS int LANGUAGE sql "
               "AS 'SELECT a * b'")  # fmt: skip
    assert db.execute("SELECT add(4)").fetchone() == (12,)
    db.execute("UPDATE t SET s = 'x' WHERE id = add(2, 2)")
    assert db.execute("SELECT s FROM t WHERE id = 4").fetchone() == ("x",)


def test_functions_are_shown_and_dropped(db: psycopg.Connection) -> None:
    """psql's \\df would not list one, or a view would be left that names what is gone."""
    db.execute("CREATE FUNCTION f(a int, b int DEFAULT 7) RETURNS int LANGUAGE sql AS 'SELECT b'")
    db.execute("CREATE FUNCTION f() RETURNS SETOF int LANGUAGE sql AS 'VALUES (1), (2)'")
    listed = db.execute(
        "SELECT p.proname, pg_get_function_result(p.oid), pg_get_function_arguments(p.oid), "
        "p.prokind, p.provolatile FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'public' ORDER BY 3"
    ).fetchall()
    assert listed == [
        ("f", "SETOF integer", "", "f", "v"),
        ("f", "integer", "a integer, b integer DEFAULT 7", "f", "v"),
    ]
    with pytest.raises(psycopg.errors.DuplicateFunction):
        db.execute("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(psycopg.errors.AmbiguousFunction):
        db.execute("DROP FUNCTION f")
    db.execute("DROP FUNCTION f()")
    db.execute("CREATE VIEW v AS SELECT f(1)")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        db.execute("DROP FUNCTION f")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        db.execute("DROP FUNCTION f CASCADE")
    db.execute("DROP VIEW v; DROP FUNCTION f")
    with pytest.raises(psycopg.errors.UndefinedFunction):
        db.execute("SELECT f(1)")
    db.execute("DROP FUNCTION IF EXISTS f(int)")


def test_who_calls_needs_what_the_body_reads(sql: Sql, db: psycopg.Connection) -> None:
    """A function would be a way around the privileges on a table, or nobody could call one."""
    db.execute("CREATE TABLE secret (id int PRIMARY KEY)")
    db.execute("CREATE FUNCTION peek() RETURNS int LANGUAGE sql AS 'SELECT id FROM secret'")
    db.execute("CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    role = f"caller_{sql.database}"
    db.execute(f"CREATE ROLE {role}".encode())
    db.execute(f"SET ROLE {role}".encode())
    assert db.execute("SELECT one()").fetchone() == (1,)
    db.execute("RESET ROLE")
    db.execute("CREATE VIEW over AS SELECT peek() AS found")
    db.execute(f"GRANT SELECT ON over TO {role}".encode())
    db.execute("CREATE TABLE pg_roles (rolname text PRIMARY KEY)")
    db.execute(f"SET ROLE {role}".encode())
    assert db.execute("SELECT count(*) FROM pg_roles").fetchone() != (0,), (
        "a table hides a system's"
    )
    for text in (
        "SELECT peek()",
        "SELECT * FROM over",  # a view has its owner's rights, what it calls has not
        "CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 2'",
        "DROP FUNCTION one",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(text.encode())
    db.execute("RESET ROLE")
    db.execute(f"GRANT SELECT ON secret TO {role}".encode())
    db.execute(f"SET ROLE {role}".encode())
    assert db.execute("SELECT peek()").fetchone() == (None,)
    db.execute("RESET ROLE")
    db.execute(f"ALTER FUNCTION one() OWNER TO {role}".encode())
    db.execute(f"GRANT CREATE ON SCHEMA public TO {role}".encode())
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        db.execute(f"DROP ROLE {role}".encode())
    db.execute(f"SET ROLE {role}".encode())
    db.execute("CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 2'")
    db.execute("RESET ROLE")
    db.execute(f"REASSIGN OWNED BY {role} TO kvorum".encode())
    db.execute("DROP VIEW over")
    db.execute(f"REVOKE SELECT ON secret FROM {role}".encode())
    db.execute(f"REVOKE CREATE ON SCHEMA public FROM {role}".encode())
    db.execute(f"DROP ROLE {role}".encode())
    assert db.execute("SELECT one()").fetchone() == (2,)


def test_in_a_view_a_function_runs_as_who_asks(sql: Sql, db: psycopg.Connection) -> None:
    """Whoever owns a function of a view would read with the rights of the view's owner."""
    role = f"trickster_{sql.database}"
    db.execute("CREATE TABLE hidden (id int PRIMARY KEY)")
    db.execute("INSERT INTO hidden VALUES (7)")
    db.execute("CREATE FUNCTION kind() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    db.execute("CREATE FUNCTION kinds() RETURNS SETOF int LANGUAGE sql AS 'SELECT 1'")
    db.execute("CREATE VIEW shown AS SELECT kind() AS k")
    db.execute("CREATE VIEW listed AS SELECT k FROM kinds() AS k")
    db.execute("CREATE VIEW plain AS SELECT id FROM hidden")
    db.execute(f"CREATE ROLE {role}".encode())
    db.execute(f"GRANT SELECT ON shown, listed, plain TO {role}".encode())
    db.execute(f"SET ROLE {role}".encode())
    assert db.execute("SELECT * FROM shown, listed").fetchone() == (1, 1)
    db.execute("RESET ROLE")
    for head in ("kind() RETURNS int", "kinds() RETURNS SETOF int"):
        text = f"CREATE OR REPLACE FUNCTION {head} LANGUAGE sql AS 'SELECT id FROM hidden'"
        db.execute(text.encode())
    db.execute(f"SET ROLE {role}".encode())
    for name in ("shown", "listed"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(f"SELECT * FROM {name}".encode())
    assert db.execute("SELECT * FROM plain").fetchone() == (7,)
    db.execute("RESET ROLE")
    assert db.execute("SELECT * FROM shown, listed").fetchone() == (7, 7)
    db.execute(f"REVOKE SELECT ON shown, listed, plain FROM {role}".encode())
    db.execute(f"DROP ROLE {role}".encode())
