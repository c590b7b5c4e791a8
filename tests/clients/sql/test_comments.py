"""COMMENT ON, as Django, Alembic and psql use it."""

from __future__ import annotations

from time import monotonic, sleep

import psycopg
import pytest
import sqlalchemy as sa

from tests.clients.sql.conftest import Sql


def test_p4_comments_are_kept_and_told(sql: Sql, db: psycopg.Connection) -> None:
    """Migrations with comments would stop, or forget them when a column changes."""
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b int, c int)")
    db.execute("CREATE VIEW v AS SELECT a, b FROM t")
    db.execute("CREATE SEQUENCE s")
    db.execute("COMMENT ON TABLE t IS 'what ''it'' is'")
    db.execute("COMMENT ON COLUMN t.b IS 'of b'")
    db.execute("COMMENT ON COLUMN public.t.c IS 'of c'")
    db.execute("COMMENT ON VIEW v IS 'of v'")
    db.execute("COMMENT ON COLUMN v.b IS 'of v.b'")
    db.execute("COMMENT ON SEQUENCE s IS 'of s'")
    db.execute("ALTER TABLE t RENAME TO u")
    db.execute("ALTER TABLE u DROP COLUMN c")
    db.execute("TRUNCATE u")
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a, b, a + 1 AS d FROM u")
    ask = "SELECT obj_description(%s::regclass, 'pg_class')"
    assert [db.execute(ask, (n,)).fetchone() for n in ("u", "v", "s")] == [
        ("what 'it' is",),
        ("of v",),
        ("of s",),
    ]
    assert db.execute("SELECT col_description('v'::regclass, 2)").fetchone() == ("of v.b",)
    engine = sa.create_engine(sql.url())
    told = sa.inspect(engine)
    assert told.get_table_comment("u") == {"text": "what 'it' is"}
    assert [c["comment"] for c in told.get_columns("u")] == [None, "of b"]
    engine.dispose()
    db.execute("COMMENT ON TABLE u IS NULL")
    db.execute("COMMENT ON COLUMN u.b IS ''")
    found = db.execute("SELECT count(*) FROM pg_description WHERE objoid = 'u'::regclass")
    assert found.fetchone() == (0,)
    for statement, state in (
        ("COMMENT ON TABLE nosuch IS 'x'", "42P01"),
        ("COMMENT ON COLUMN u.nosuch IS 'x'", "42703"),
        ("COMMENT ON VIEW u IS 'x'", "42809"),
        ("COMMENT ON ROLE kvorum IS 'x'", "0A000"),
        ("COMMENT ON INDEX nosuch IS 'x'", "42P01"),
        ("COMMENT ON INDEX u IS 'x'", "42809"),
        ("COMMENT ON CONSTRAINT nosuch ON u IS 'x'", "42704"),
        ("COMMENT ON CONSTRAINT u_pkey ON nosuch IS 'x'", "42P01"),
        ("COMMENT ON SCHEMA nosuch IS 'x'", "3F000"),
        (f"COMMENT ON TABLE u IS '{'x' * 10_001}'", "54000"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            db.execute(statement)
        assert caught.value.sqlstate == state, statement


def _notes(db: psycopg.Connection) -> dict[str, str]:
    """Of the indexes and constraints of t, by what they are and their names."""
    rows = db.execute(
        "SELECT 'index ' || relname, obj_description(oid, 'pg_class') FROM pg_class "
        "WHERE relkind = 'i' AND relname NOT LIKE 'pg%' UNION ALL "
        "SELECT 'constraint ' || conname, obj_description(oid, 'pg_constraint') "
        "FROM pg_constraint WHERE conrelid = 't'::regclass"
    )
    return {str(name): str(text) for name, text in rows if text is not None}


@pytest.mark.slow
def test_p4_comments_on_indexes_and_constraints(db: psycopg.Connection) -> None:
    """Dumps and migrations comment on them: they would stop, or the words go to what is made anew
    under an old name.
    """
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b int, CONSTRAINT u UNIQUE (b))")
    db.execute("ALTER TABLE t ADD CONSTRAINT c CHECK (b > 0)")
    db.execute("CREATE INDEX i ON t (b)")
    for what in ("INDEX public.i", "INDEX u", "INDEX t_pkey"):
        db.execute(f"COMMENT ON {what} IS 'index'")
    for name in ("u", "c", "t_pkey"):
        db.execute(f"COMMENT ON CONSTRAINT {name} ON public.t IS 'of {name}'")
    db.execute("ALTER INDEX i RENAME TO j")
    db.execute("ALTER TABLE t RENAME CONSTRAINT u TO v")
    db.execute("ALTER TABLE t RENAME CONSTRAINT c TO d")
    db.execute("TRUNCATE t")
    assert _notes(db) == {
        "index j": "index",
        "index v": "index",
        "index t_pkey": "index",
        "constraint v": "of u",
        "constraint d": "of c",
        "constraint t_pkey": "of t_pkey",
    }
    db.execute("DROP INDEX j")
    db.execute("CREATE INDEX j ON t (b)")
    db.execute("ALTER TABLE t DROP CONSTRAINT d, ADD CONSTRAINT d CHECK (b > 1)")
    db.execute("COMMENT ON CONSTRAINT v ON t IS NULL")
    db.execute("COMMENT ON INDEX v IS ''")
    assert _notes(db) == {"index t_pkey": "index", "constraint t_pkey": "of t_pkey"}


def test_p4_comments_on_databases_and_their_schema(sql: Sql, db: psycopg.Connection) -> None:
    """pg_dump writes both; a comment on one database would be another one's."""
    of_schema = "SELECT obj_description('public'::regnamespace, 'pg_namespace')"
    assert db.execute(of_schema).fetchone() == ("standard public schema",)
    db.execute("COMMENT ON SCHEMA public IS 'ours'")
    db.execute(f"COMMENT ON DATABASE {sql.database} IS 'of tests'")
    db.execute("COMMENT ON DATABASE nosuch IS 'x'")  # a warning
    assert db.execute(of_schema).fetchone() == ("ours",)
    asked = (
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database "
        "WHERE shobj_description(oid, 'pg_database') IS NOT NULL AND datname = current_database()"
    )
    deadline = monotonic() + 60
    while db.execute(asked).fetchone() != ("of tests",):
        assert monotonic() < deadline
        sleep(0.05)
    db.execute("COMMENT ON SCHEMA public IS NULL")
    assert db.execute(of_schema).fetchone() == (None,)


def test_p12_changes_in_with_stand_at_the_top(db: psycopg.Connection) -> None:
    """What is refused only when it runs is prepared, and fails in the middle of a program."""
    db.execute("CREATE TABLE t (a int PRIMARY KEY)")
    db.execute("CREATE TABLE u (a int PRIMARY KEY)")
    change = "WITH x AS (DELETE FROM u RETURNING a) SELECT a FROM x"
    for statement, words in (
        (f"INSERT INTO t {change}", "at the top level"),
        (f"SELECT * FROM ({change}) y", "at the top level"),
        (f"WITH z AS ({change}) SELECT * FROM z", "at the top level"),
        (f"({change}) UNION ALL SELECT 1", "at the top level"),
        (f"SELECT ({change})", "at the top level"),
        (f"CREATE VIEW v AS {change}", "views must not contain"),
        (f"DECLARE c CURSOR WITH HOLD FOR {change}", "DECLARE CURSOR must not contain"),
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=words):
            db.execute(statement)
    db.execute("INSERT INTO u VALUES (1)")
    assert db.execute(f"{change} UNION ALL SELECT 2").fetchall() == [(1,), (2,)]
