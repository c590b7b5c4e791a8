"""Relations of the system beside users' tables, in every kind of statement. What PostgreSQL answers
to the same is in tests/sqlproxy/compare/mixed.sql; here is what only Kvorum has, and how clients
get it.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


@pytest.fixture
def own(db: psycopg.Connection) -> psycopg.Connection:
    """A database with a table whose rows are names of relations."""
    db.execute("CREATE TABLE own (name text PRIMARY KEY, n int)")
    db.execute("INSERT INTO own VALUES ('own', 1), ('pg_class', 2), ('zz', 3)")
    return db


def test_what_the_cluster_reports_joins_with_tables(own: psycopg.Connection) -> None:
    """A dashboard could not say which rows belong to the partitions that it lists."""
    found = own.execute(
        "SELECT DISTINCT o.n FROM kvorum.partitions p JOIN own o ON o.name = p.table_name"
    )
    assert found.fetchall() == [(1,)]
    count = "SELECT count(*) FROM own LEFT JOIN kvorum.jobs j ON j.table_name = own.name"
    assert own.execute(count).fetchone() == (3,)
    assert own.execute("SELECT 'kvorum.jobs'::regclass::oid, count(*) FROM own").fetchone()


def test_a_snapshot_of_the_catalog_follows_what_is_declared(own: psycopg.Connection) -> None:
    """A comment, an index or a table of before would be shown; rows of relations that did not
    change are kept from one statement to the next.
    """
    said = (
        "SELECT obj_description(tableoid), "
        "(SELECT count(*) FROM pg_index x WHERE x.indrelid = own.tableoid) FROM own WHERE n = 1"
    )
    assert own.execute(said).fetchone() == (None, 1)
    own.execute("COMMENT ON TABLE own IS 'mine'; CREATE INDEX own_n ON own (n)")
    assert own.execute(said).fetchone() == ("mine", 2)
    shown = "SELECT pg_get_indexdef('own_n'::regclass), n FROM own WHERE n = 1"
    expected = "CREATE INDEX own_n ON public.own USING btree (n)"
    assert own.execute(shown).fetchone() == (expected, 1)
    own.execute("ALTER TABLE own RENAME TO mine")
    renamed = "SELECT pg_get_indexdef('own_n'::regclass), n FROM mine WHERE n = 1"
    assert own.execute(renamed).fetchone() == (expected.replace("public.own", "public.mine"), 1)


def test_sizes_and_last_values_are_known_beside_tables(own: psycopg.Connection) -> None:
    """They come from other nodes and are brought before the statement runs."""
    own.execute("CREATE SEQUENCE s; SELECT nextval('s')")
    found = own.execute(
        "SELECT pg_relation_size(name::regclass) > 0, pg_total_relation_size('own') > 0, "
        "pg_sequence_last_value('s') FROM own WHERE n = 1"
    )
    assert found.fetchone() == (True, True, 1)


def test_a_cursor_keeps_what_it_asked_for(own: psycopg.Connection) -> None:
    """A cursor goes on with what another statement had asked of the system since, or without it."""
    with own.transaction():
        own.execute("DECLARE c CURSOR FOR SELECT pg_table_size('own'::regclass) > 0 FROM own")
        assert own.execute("FETCH 1 FROM c").fetchall() == [(True,)]
        other = own.execute("SELECT format_type(23, -1) FROM own LIMIT 1")
        assert other.fetchall() == [("integer",)]
        assert own.execute("FETCH 2 FROM c").fetchall() == [(True,), (True,)]


def test_statements_of_every_kind_take_them(own: psycopg.Connection) -> None:
    """COPY, EXPLAIN, cursors, views, parameters and CREATE TABLE AS each run a query in their own
    way.
    """
    joined = (
        "SELECT o.name, c.relnamespace::regnamespace "
        "FROM own o JOIN pg_class c ON c.relname = o.name"
    )
    rows = [("own", "public"), ("pg_class", "pg_catalog")]
    with own.cursor().copy(f"COPY ({joined} ORDER BY 1) TO STDOUT".encode()) as copied:
        assert sorted(copied.rows()) == rows
    explained = "EXPLAIN INSERT INTO own SELECT table_name FROM information_schema.tables"
    assert own.execute(explained).fetchall()
    plan = own.execute(f"EXPLAIN {joined}".encode()).fetchall()
    assert any("own" in line for (line,) in plan)
    assert own.execute("EXPLAIN SELECT * FROM information_schema.columns").fetchall()
    with own.transaction():
        own.execute(f"DECLARE c CURSOR FOR {joined} ORDER BY 1".encode())
        assert own.execute("FETCH 5 FROM c").fetchall() == rows
    named = f"{joined} WHERE c.relnamespace = %s::regnamespace AND o.n < %s"
    found = own.execute(named.encode(), ("public", 9))
    assert found.fetchall() == rows[:1]
    own.execute(
        "CREATE VIEW v AS SELECT relname, o.n FROM pg_class c JOIN own o ON o.name = relname"
    )
    assert own.execute("SELECT n FROM v ORDER BY 1").fetchall() == [(1,), (2,)]
    own.execute(
        "CREATE TABLE made AS SELECT o.name, pg_get_userbyid(c.relowner)::text AS owner "
        "FROM own o JOIN pg_class c ON c.relname = o.name"
    )
    assert own.execute("SELECT count(*), count(owner) FROM made").fetchone() == (2, 2)


def test_privileges_are_those_of_who_asks(sql: Sql, own: psycopg.Connection) -> None:
    """A function would tell a stranger what only the owner may read, or the other way round."""
    own.execute("CREATE ROLE reader LOGIN")
    try:
        own.execute("GRANT SELECT ON own TO reader")
        asked = (
            "SELECT has_table_privilege('own', 'SELECT'), has_table_privilege('own', 'INSERT'), "
            "has_table_privilege('kvorum', 'own', 'INSERT') FROM own WHERE n = 1"
        )
        assert own.execute(asked).fetchone() == (True, True, True)
        own.execute("SET ROLE reader")
        assert own.execute(asked).fetchone() == (True, False, True)
        own.execute("RESET ROLE")
    finally:
        own.execute("REVOKE ALL ON own FROM reader; DROP ROLE reader")


def test_a_table_hides_no_relation_of_the_system(db: psycopg.Connection) -> None:
    """Who may make tables would tell all others what roles and tables there are."""
    db.execute("CREATE TABLE pg_roles (rolname text PRIMARY KEY)")
    assert db.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'kvorum'").fetchone() == (
        True,
    )
    assert db.execute("SELECT count(*) FROM public.pg_roles").fetchone() == (0,)


def test_records_compare_as_records(db: psycopg.Connection) -> None:
    """Rows with NULLs would be unlike themselves; a row of no fields was an internal error."""
    db.execute("CREATE TABLE rec (id int PRIMARY KEY, n int)")
    db.execute("INSERT INTO rec VALUES (1, NULL), (2, 2)")
    found = db.execute(
        "SELECT a = b, a <> b, a = ROW(1, NULL::int) FROM rec a JOIN rec b USING (id) ORDER BY id"
    )
    assert found.fetchall() == [(True, False, True), (True, False, False)]
    assert db.execute("SELECT row() IS NULL, row() IS NOT NULL").fetchone() == (True, True)
    for text in (
        "SELECT r IS NULL FROM (VALUES ((1, NULL))) v(r)",
        "SELECT a < b FROM rec a, rec b",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            db.execute(text.encode())
