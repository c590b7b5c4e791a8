"""Schemas beside public: what is made in them, found by search_path, and dropped with them."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.sessions import Sessions, recorded, statements

pytestmark = pytest.mark.cluster


@pytest.fixture
def two(db: psycopg.Connection) -> psycopg.Connection:
    """A database with a table of one name in public and in sales."""
    db.execute("CREATE SCHEMA sales")
    db.execute("CREATE TABLE orders (id serial PRIMARY KEY, what text UNIQUE)")
    db.execute("CREATE TABLE sales.orders (id serial PRIMARY KEY, sum int CHECK (sum > 0))")
    db.execute("INSERT INTO orders (what) VALUES ('a'), ('b')")
    db.execute("INSERT INTO sales.orders (sum) VALUES (10), (20), (30)")
    return db


def _one(db: psycopg.Connection, query: str) -> object:
    row = db.execute(query.encode()).fetchone()
    return row and row[0]


def _refused(db: psycopg.Connection, statement: str, sqlstate: str) -> str:
    with pytest.raises(psycopg.Error) as found:
        db.execute(statement.encode())
    assert found.value.sqlstate == sqlstate, found.value
    return str(found.value.diag.message_primary)


def test_p4_one_name_in_two_schemas(two: psycopg.Connection) -> None:
    """Statements read or change the table of another schema."""
    assert _one(two, "SELECT count(*) FROM orders") == 2
    assert _one(two, "SELECT sum(sum) FROM sales.orders") == 60
    joined = "SELECT count(*) FROM orders o JOIN sales.orders s ON s.id = o.id"
    assert _one(two, joined) == 2
    two.execute("UPDATE sales.orders SET sum = sum + 1 WHERE id = 1")
    two.execute("DELETE FROM public.orders WHERE id = 1")
    assert _one(two, "SELECT sum FROM sales.orders WHERE id = 1") == 11
    assert _one(two, "SELECT sales.orders.sum FROM sales.orders WHERE id = 2") == 20
    _refused(two, "INSERT INTO sales.orders (sum) VALUES (0)", "23514")
    _refused(two, "SELECT what FROM sales.orders", "42703")
    _refused(two, "SELECT * FROM sales.nothing", "42P01")
    _refused(two, "SELECT * FROM nowhere.orders", "42P01")
    _refused(two, "CREATE TABLE nowhere.t (a int)", "3F000")


def test_p4_search_path(two: psycopg.Connection, sql: Sql) -> None:
    """Names mean other relations than in PostgreSQL, or plans of another path are used."""
    count = "SELECT count(*) FROM orders"
    assert _one(two, count) == 2
    two.execute("SET search_path = sales, public")
    assert _one(two, count) == 3
    assert _one(two, "SELECT current_schema()") == "sales"
    assert _one(two, "SELECT current_schemas(true)") == ["pg_catalog", "sales", "public"]
    two.execute("CREATE TABLE made (a int)")
    assert _one(two, "SELECT to_regclass('public.made')") is None
    assert _one(two, "SELECT to_regclass('sales.made')::oid = 'made'::regclass::oid") is True
    assert _one(two, "SELECT pg_table_is_visible('sales.made'::regclass)") is True
    assert _one(two, "SELECT nextval('orders_id_seq')") == 4
    two.execute("RESET search_path")
    assert _one(two, count) == 2
    assert _one(two, "SELECT nextval('orders_id_seq')") == 3
    assert _one(two, "SELECT pg_table_is_visible('sales.made'::regclass)") is False
    with sql.connect(autocommit=True, options="-c search_path=sales") as other:
        assert _one(other, count) == 3
    two.execute("CREATE SCHEMA kvorum_user")
    two.execute('SET search_path = "$user", sales')
    assert _one(two, "SELECT current_schema()") == "sales"


@pytest.mark.slow
def test_p4_what_is_in_a_schema(two: psycopg.Connection) -> None:
    """Indexes, sequences, types and views of a schema are mixed up with those of public."""
    two.execute("CREATE TYPE sales.mood AS ENUM ('sad', 'glad')")
    two.execute("CREATE TABLE sales.people (name text, how sales.mood DEFAULT 'sad')")
    two.execute("INSERT INTO sales.people (name) VALUES ('ann')")
    assert _one(two, "SELECT how::text FROM sales.people") == "sad"
    two.execute("CREATE INDEX by_name ON sales.people (name)")
    two.execute("CREATE INDEX by_name ON orders (what)")
    two.execute("CREATE VIEW sales.large AS SELECT id, sum FROM sales.orders WHERE sum > 15")
    assert _one(two, "SELECT count(*) FROM sales.large") == 2
    two.execute("SET search_path = sales, public")
    two.execute("CREATE VIEW small AS SELECT id FROM orders WHERE sum < 15")
    two.execute("RESET search_path")
    assert _one(two, "SELECT count(*) FROM sales.small") == 1
    two.execute("ALTER TABLE sales.orders ADD COLUMN note text DEFAULT 'n'")
    two.execute("ALTER TABLE sales.orders RENAME TO bills")
    assert _one(two, "SELECT count(*) FROM sales.large") == 2
    assert _one(two, "SELECT note FROM sales.bills WHERE id = 1") == "n"
    two.execute("COMMENT ON TABLE sales.bills IS 'all'")
    two.execute("DROP INDEX sales.by_name")
    assert _one(two, "SELECT count(*) FROM pg_indexes WHERE indexname = 'by_name'") == 1
    two.execute("TRUNCATE sales.bills, orders")
    assert _one(two, "SELECT count(*) FROM sales.bills") == 0


def test_p4_the_catalog_knows_schemas(two: psycopg.Connection) -> None:
    """psql, dumps and migrations do not see a schema, or see what is in it elsewhere."""
    listed = two.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE c.relname LIKE 'orders%' ORDER BY 1, 2"
    ).fetchall()
    assert listed == [
        ("public", "orders"),
        ("public", "orders_id_seq"),
        ("public", "orders_pkey"),
        ("public", "orders_what_key"),
        ("sales", "orders"),
        ("sales", "orders_id_seq"),
        ("sales", "orders_pkey"),
    ]
    schemata = "SELECT schema_name FROM information_schema.schemata ORDER BY 1"
    assert {("public",), ("sales",), ("pg_catalog",)} <= set(two.execute(schemata).fetchall())
    tables = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'orders'"
    assert sorted(two.execute(tables).fetchall()) == [("public",), ("sales",)]
    named = "SELECT 'sales.orders'::regclass::oid, 'orders'::regclass::oid"
    first, second = two.execute(named).fetchone() or (0, 0)
    assert first != second
    assert _one(two, "SELECT has_schema_privilege('sales', 'CREATE')") is True


def test_p4_schemas_are_made_and_dropped(two: psycopg.Connection, sql: Sql) -> None:
    """A schema is dropped with what is in it, or its tables stay behind."""
    _refused(two, "CREATE SCHEMA sales", "42P06")
    two.execute("CREATE SCHEMA IF NOT EXISTS sales")
    _refused(two, "CREATE SCHEMA pg_mine", "42939")
    _refused(two, 'CREATE SCHEMA "a b"', "42602")
    assert "other objects depend" in _refused(two, "DROP SCHEMA sales", "2BP01")
    two.execute("DROP SCHEMA sales CASCADE")
    _refused(two, "SELECT * FROM sales.orders", "42P01")
    assert _one(two, "SELECT count(*) FROM orders") == 2
    _refused(two, "DROP SCHEMA sales", "3F000")
    two.execute("DROP SCHEMA IF EXISTS sales")
    two.execute("CREATE SCHEMA sales")
    two.execute("CREATE TABLE sales.orders (id int PRIMARY KEY)")
    two.close()
    with sql.connect(autocommit=True) as again:
        again.execute("DROP TABLE sales.orders")
        again.execute("DROP SCHEMA sales")


def test_p4_rights_of_a_schema(two: psycopg.Connection) -> None:
    """Whoever may connect reads all schemas, or makes tables in them."""
    two.execute("CREATE ROLE clerk_of_schemas")
    two.execute("GRANT ALL ON ALL TABLES IN SCHEMA sales TO clerk_of_schemas")
    two.execute("SET ROLE clerk_of_schemas")
    try:
        assert "schema sales" in _refused(two, "SELECT * FROM sales.orders", "42501")
        two.execute("RESET ROLE")
        two.execute("GRANT USAGE ON SCHEMA sales TO clerk_of_schemas")
        two.execute("SET ROLE clerk_of_schemas")
        assert _one(two, "SELECT count(*) FROM sales.orders") == 3
        _refused(two, "CREATE TABLE sales.t (a int)", "42501")
        _refused(two, "SELECT * FROM orders", "42501")
        _refused(two, "DROP SCHEMA sales CASCADE", "42501")
        two.execute("RESET ROLE")
        two.execute("ALTER SCHEMA sales OWNER TO clerk_of_schemas")
        two.execute("SET ROLE clerk_of_schemas")
        two.execute("CREATE TABLE sales.t (a int)")
    finally:
        two.execute("RESET ROLE")
        two.execute("DROP SCHEMA sales CASCADE")
        two.execute("DROP ROLE clerk_of_schemas")


def test_p4_a_schema_is_no_database(two: psycopg.Connection, sql: Sql) -> None:
    """A client connects to a schema as if it was a database, or sees it listed as one."""
    other = Sql(sql.node, f"{sql.database}:sales")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        other.connect()
    assert _one(two, "SELECT count(*) FROM pg_database WHERE datname LIKE '%:%'") == 0


@pytest.mark.slow
def test_p4_a_table_moves_to_another_schema(db: psycopg.Connection) -> None:
    """Rows, indexes, keys or numbers stay behind, or what depends on it is torn apart."""
    db.execute("CREATE SCHEMA sales")
    db.execute("CREATE TABLE t (id serial PRIMARY KEY, v text UNIQUE, n int CHECK (n > 0))")
    db.execute("CREATE INDEX t_n ON t (n)")
    db.execute("INSERT INTO t (v, n) VALUES ('a', 1), ('b', 2)")
    db.execute("ALTER TABLE t SET SCHEMA sales")
    _refused(db, "SELECT * FROM t", "42P01")
    assert _one(db, "SELECT id FROM sales.t WHERE v = 'b'") == 2
    db.execute("INSERT INTO sales.t (v, n) VALUES ('c', 3)")
    assert _one(db, "SELECT id FROM sales.t WHERE n = 3") == 3
    _refused(db, "INSERT INTO sales.t (v, n) VALUES ('c', 4)", "23505")
    listed = db.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE nspname = 'sales' ORDER BY 1"
    ).fetchall()
    assert [name for (name,) in listed] == ["t", "t_id_seq", "t_n", "t_pkey", "t_v_key"]
    db.execute("DROP INDEX sales.t_n")
    db.execute("CREATE TABLE t (a int)")  # waits until no cache takes the name for the old one
    assert "already exists in schema" in _refused(db, "ALTER TABLE t SET SCHEMA sales", "42P07")
    db.execute("ALTER TABLE IF EXISTS nothing SET SCHEMA sales")
    _refused(db, "ALTER TABLE nothing SET SCHEMA sales", "42P01")
    _refused(db, "ALTER TABLE t SET SCHEMA nowhere", "3F000")
    _refused(db, "ALTER SEQUENCE sales.t_id_seq SET SCHEMA public", "0A000")
    db.execute("DROP TABLE t")
    db.execute("ALTER TABLE sales.t SET SCHEMA public")
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    db.execute("CREATE TABLE o (a int, m mood)")
    db.execute("CREATE VIEW v AS SELECT a, m FROM o")
    db.execute("CREATE VIEW vv AS SELECT a FROM v")
    db.execute("CREATE TABLE p (id int PRIMARY KEY)")
    db.execute("CREATE TABLE c (p int REFERENCES p, n int DEFAULT nextval('t_id_seq'))")
    db.execute("INSERT INTO o VALUES (1, 'glad')")
    for kind, name in (("VIEW", "v"), ("TABLE", "o"), ("TABLE", "p"), ("TABLE", "c")):
        db.execute(f"ALTER {kind} {name} SET SCHEMA sales".encode())
    assert _one(db, "SELECT a FROM vv") == 1
    _refused(db, "INSERT INTO sales.c VALUES (1)", "23503")
    db.execute("INSERT INTO sales.p VALUES (1)")
    db.execute("ALTER TABLE t SET SCHEMA sales")
    number = _one(db, "INSERT INTO sales.c VALUES (1) RETURNING n")
    assert isinstance(number, int)
    assert number >= 4  # what was refused leaves a gap
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as found:
        db.execute("DROP TABLE sales.o")
    assert "view sales.v" in str(found.value.diag.message_detail)
    db.execute("CREATE SEQUENCE q")
    db.execute("ALTER SEQUENCE q SET SCHEMA sales")
    assert _one(db, "SELECT nextval('sales.q')") == 1
    db.execute("CREATE VIEW w AS SELECT 1 AS one")
    db.execute("ALTER VIEW w SET SCHEMA sales")
    assert _one(db, "SELECT one FROM sales.w") == 1


def test_p4_lastval_of_a_sequence_in_another_schema(db: psycopg.Connection) -> None:
    """It is looked for in public."""
    db.execute("CREATE SCHEMA sales")
    db.execute("CREATE SEQUENCE sales.q START 7")
    assert _one(db, "SELECT nextval('sales.q')") == 7
    assert _one(db, "SELECT lastval()") == 7


def test_p4_copy_of_a_table_that_another_hides(two: psycopg.Connection) -> None:
    """COPY … TO reads the table that search_path finds, whatever was named."""
    with two.cursor().copy("COPY sales.orders (sum) TO STDOUT") as rows:
        assert b"".join(rows) == b"10\n20\n30\n"


def test_p4_what_may_be_missing_is_passed_over_with_its_schema(db: psycopg.Connection) -> None:
    """DROP … IF EXISTS did so; its siblings were refused (3F000), and a migration ended there."""
    told: list[str] = []
    db.add_notice_handler(lambda one: told.append(str(one.message_primary)))
    db.execute("CREATE TABLE t (id int)")  # is not meant
    gone = 'relation "t" does not exist, skipping'
    for statement, tag, notice in (
        ("DROP FUNCTION {} s.f(int)", "DROP FUNCTION", 'schema "s" does not exist, skipping'),
        ("ALTER TABLE {} s.t ADD COLUMN a int", "ALTER TABLE", gone),
        ("ALTER TABLE {} s.t RENAME TO u", "ALTER TABLE", gone),
        ("ALTER TABLE {} s.t RENAME COLUMN id TO a", "ALTER TABLE", gone),
        ("ALTER TABLE {} s.t SET SCHEMA public", "ALTER TABLE", gone),
        ("ALTER VIEW {} s.t RENAME TO u", "ALTER VIEW", gone),
        ("ALTER SEQUENCE {} s.t RESTART", "ALTER SEQUENCE", gone),
        ("ALTER INDEX {} s.t RENAME TO u", "ALTER INDEX", gone),
    ):
        assert db.execute(statement.format("IF EXISTS").encode()).statusmessage == tag
        assert told == [notice], statement
        told.clear()
        with pytest.raises(psycopg.Error):
            db.execute(statement.format("").encode())
    assert db.execute("SELECT id FROM t").fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize("script", ["schemas", "names", "usage", "held"])
def test_p4_schemas_answer_as_postgresql(sql: Sql, script: str) -> None:
    """Rows, tags and SQLSTATEs differ from PostgreSQL 15 where something of one schema depends on
    what is in another, is dropped or renamed with it, or is found by search_path; where a name
    means another thing than before; where a role may not use a schema; or where what is kept names
    something by its text.
    """
    known, wrong = recorded(script), []
    assert [(session, text) for session, text, _ in known] == statements(script)
    sessions = Sessions(sql.dsn)
    try:
        for session, text, said in known:
            found = sessions.ask(session, text)
            if found[:1] != said[:1]:
                wrong.append(f"{session}: {text}\n  PostgreSQL: {said}\n  here:       {found}")
    finally:
        sessions.close()
    assert not wrong, "\n".join(wrong)


def test_p12_a_key_to_the_own_table_is_found_by_the_path(db: psycopg.Connection) -> None:
    """Without a schema it leads to a table of that name in public."""
    db.execute("CREATE SCHEMA s")
    for schema in ("public", "s"):
        db.execute(f"CREATE TABLE {schema}.p (id int PRIMARY KEY, up int)")
    db.execute("SET search_path = s, public")
    db.execute("ALTER TABLE p ADD CONSTRAINT mine FOREIGN KEY (up) REFERENCES p")
    db.execute("ALTER TABLE public.p ADD CONSTRAINT theirs FOREIGN KEY (up) REFERENCES p")
    db.execute("CREATE TABLE public.q (id int PRIMARY KEY, up int REFERENCES q)")
    db.execute("CREATE TABLE q (id int PRIMARY KEY, up int REFERENCES q)")
    db.execute("RESET search_path")
    found = db.execute(
        "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint "
        "WHERE contype = 'f' ORDER BY 1"
    ).fetchall()
    assert found == [("p", "s.p"), ("q", "q"), ("s.p", "s.p"), ("s.q", "s.q")]


def test_p4_a_refused_cascade_takes_nothing_along(db: psycopg.Connection) -> None:
    """Foreign keys, views and columns are gone though what they depend on stays."""
    db.execute("CREATE SCHEMA s")
    db.execute("CREATE TYPE s.e AS ENUM ('a')")
    db.execute("CREATE TABLE t (id int PRIMARY KEY, e s.e)")
    db.execute("CREATE TABLE k (e s.e PRIMARY KEY)")
    db.execute("CREATE TABLE c (p int REFERENCES t)")
    db.execute("CREATE VIEW v AS SELECT id, e FROM t")
    for refused in (
        "ALTER TABLE t DROP CONSTRAINT t_pkey CASCADE",
        "ALTER TABLE t DROP COLUMN id CASCADE",
        "DROP TYPE s.e CASCADE",
        "DROP SCHEMA s CASCADE",
    ):
        _refused(db, refused, "0A000")
    assert db.execute("SELECT id, e FROM v").fetchall() == []
    _refused(db, "INSERT INTO c VALUES (1)", "23503")


def test_p4_defaults_go_on_naming_their_sequence(db: psycopg.Connection) -> None:
    """A default currval('q') means nothing, or another sequence, once q has another name."""
    db.execute("CREATE SCHEMA sales")
    db.execute("CREATE SEQUENCE q")
    db.execute('CREATE SEQUENCE "Q"')
    told = "a int DEFAULT nextval('q'), b int DEFAULT currval('public.q') + 1"
    db.execute(f"CREATE TABLE t ({told}, c int DEFAULT nextval('\"Q\"') + 10)".encode())
    found = []
    for change in (
        "ALTER SEQUENCE q RENAME TO numbers",
        "CREATE SEQUENCE q START 50",
        "ALTER SEQUENCE numbers SET SCHEMA sales",
        'ALTER SEQUENCE "Q" RENAME TO "Other"',
        "ALTER SCHEMA sales RENAME TO shop",
    ):
        db.execute(change.encode())
        found += db.execute("INSERT INTO t DEFAULT VALUES RETURNING a, b, c").fetchall()
    assert all(b == a + 1 for a, b, _ in found), found
    for numbers in ([a for a, _, _ in found], [c - 10 for _, _, c in found]):
        assert numbers == sorted(set(numbers))
        assert numbers[-1] < 50, "of the sequence that has the name now"


def test_p4_a_view_may_be_replaced_by_one_over_itself(db: psycopg.Connection) -> None:
    """PostgreSQL accepts it, and refuses to read it; it can be replaced again, and dropped."""
    db.execute("CREATE TABLE t (a int PRIMARY KEY)")
    db.execute("CREATE VIEW v AS SELECT a FROM t")
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM v")
    words = 'infinite recursion detected in rules for relation "v"'
    assert _refused(db, "SELECT * FROM v", "42P17") == words
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM t")
    assert db.execute("SELECT * FROM v").fetchall() == []
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM v")
    db.execute("DROP VIEW v")


def test_p4_alter_if_exists_skips_what_is_in_no_schema(db: psycopg.Connection) -> None:
    """3F000, so that a script that may be run twice fails."""
    db.execute("ALTER TABLE IF EXISTS nowhere.t ADD COLUMN a int")
    _refused(db, "ALTER TABLE nowhere.t ADD COLUMN a int", "3F000")
