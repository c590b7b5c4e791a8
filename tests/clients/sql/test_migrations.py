"""What programs that migrate schemas send: definitions among changes, and sequences set anew."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import REPEATABLE_READ, Sql

pytestmark = pytest.mark.cluster


def _one(db: psycopg.Connection, text: str) -> tuple[object, ...]:
    row = db.execute(text).fetchone()
    assert row is not None
    return row


def test_definitions_commit_the_changes_before_them_if_asked(
    sql: Sql, db: psycopg.Connection
) -> None:
    """Django fills NULLs and forbids them in one block: its migrations would stop half way."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    db.execute("INSERT INTO t VALUES (1, NULL)")
    fill = "UPDATE t SET a = '' WHERE a IS NULL"
    db.execute("BEGIN")
    db.execute(fill)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="autocommit_before_ddl"):
        db.execute("ALTER TABLE t ALTER COLUMN a SET NOT NULL")
    db.execute("ROLLBACK")
    assert _one(db, "SELECT a FROM t") == (None,)
    options = "-c kvorum.autocommit_before_ddl=on"
    with sql.connect(options=options, autocommit=True) as asked:
        asked.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        asked.execute(fill)
        asked.execute("ALTER TABLE t ALTER COLUMN a SET NOT NULL")
        assert _one(asked, "SHOW transaction_isolation") == ("serializable",)
        asked.execute("INSERT INTO t VALUES (2, 'x')")
        asked.execute("CREATE INDEX ON t (a)")
        asked.execute("INSERT INTO t VALUES (3, 'y')")
        assert asked.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        asked.execute("ROLLBACK")
        assert asked.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,)]
        asked.execute("BEGIN")
        asked.execute("INSERT INTO t VALUES (4, 'z')")
        asked.execute("SAVEPOINT s")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            asked.execute("ALTER TABLE t ADD COLUMN b int")
        asked.execute("ROLLBACK")
        assert _one(asked, "SELECT count(*) FROM t") == (2,)


def test_definitions_do_not_go_on_behind_changes_that_are_refused(
    sql: Sql, db: psycopg.Connection
) -> None:
    """The commit before the definition loses to another client: nothing of either may stay."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    db.execute("INSERT INTO t VALUES (1, 0)")
    options = "-c kvorum.autocommit_before_ddl=on " + REPEATABLE_READ
    with sql.connect(options=options, autocommit=True) as asked:
        asked.execute("BEGIN")
        asked.execute("UPDATE t SET a = a + 1")
        db.execute("UPDATE t SET a = 10")
        with pytest.raises(psycopg.errors.SerializationFailure):
            asked.execute("ALTER TABLE t ADD COLUMN b int")
        asked.execute("ROLLBACK")
    assert db.execute("SELECT * FROM t").fetchall() == [(1, 10)]


def test_sequences_are_set_without_a_table(db: psycopg.Connection) -> None:
    """Django's tests with `reset_sequences`, and its `sqlsequencereset`, would stop."""
    db.execute('CREATE TABLE t (id serial, "kId" bigserial)')
    asked = "pg_get_serial_sequence('\"t\"', 'kId')"
    assert _one(db, f"SELECT setval({asked}, 7, false)") == (7,)
    assert _one(db, f"SELECT nextval({asked})") == (7,)
    assert _one(db, f"SELECT currval({asked}), nextval('t_id_seq'::regclass)") == (7, 1)
    db.execute("INSERT INTO t DEFAULT VALUES")
    assert _one(db, f"SELECT {asked} FROM t") == ('public."t_kId_seq"',)
    assert _one(db, f"SELECT {asked}") == ('public."t_kId_seq"',)


def test_serial_columns_and_tables_of_any_case_are_numbered(db: psycopg.Connection) -> None:
    """Prisma, Sequelize and TypeORM write "Users" and "userId": no row could be inserted."""
    db.execute('CREATE TABLE "Users" (id serial PRIMARY KEY, "userId" bigserial)')
    db.execute('INSERT INTO "Users" DEFAULT VALUES')
    db.execute('ALTER TABLE "Users" ADD COLUMN "é É" serial')
    asked = 'INSERT INTO "Users" DEFAULT VALUES RETURNING *'
    assert _one(db, asked) == (2, 2, 2)
    db.execute('ALTER SEQUENCE "Users_userId_seq" RENAME TO "Other"')
    assert _one(db, asked) >= (3, 3, 3)  # a statement that runs again leaves a gap
    db.execute('CREATE SEQUENCE "Mine" START 50')
    db.execute("""ALTER TABLE "Users" ALTER COLUMN id SET DEFAULT nextval('"Mine"')""")
    db.execute('ALTER SEQUENCE "Mine" RENAME TO "Yours"')
    assert _one(db, 'INSERT INTO "Users" ("userId") VALUES (9) RETURNING id')[0] == 50


def test_sequences_belong_to_columns_as_dumps_say_it(db: psycopg.Connection) -> None:
    """pg_dump names the schema (OWNED BY public.t.id), which was an error of ours, as was NONE."""
    db.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int)")
    db.execute("CREATE SEQUENCE s")
    for owner in ("public.t.id", "t.id"):
        db.execute(f"ALTER SEQUENCE public.s OWNED BY {owner}")
        assert _one(db, "SELECT pg_get_serial_sequence('t', 'id')") == ("public.s",)
        db.execute("ALTER SEQUENCE s OWNED BY NONE")
        assert _one(db, "SELECT pg_get_serial_sequence('t', 'id')") == (None,)
    for owner, state in (
        ("t", "42601"),
        ("other.t.id", "3F000"),
        ("public.x.id", "42P01"),
        ("t.x", "42703"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            db.execute(f"ALTER SEQUENCE s OWNED BY {owner}")
        assert caught.value.sqlstate == state, owner
    db.execute("CREATE SEQUENCE s2 OWNED BY public.t.n")
    db.execute("DROP TABLE t")
    with pytest.raises(psycopg.errors.UndefinedTable):
        db.execute("SELECT nextval('s2')")
    assert _one(db, "SELECT nextval('s')") == (1,)


def test_databases_are_not_made_as_copies(db: psycopg.Connection) -> None:
    """Django's parallel tests ask for copies of a database: they were given empty ones."""
    database = _one(db, "SELECT current_database()")[0]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="a copy of"):
        db.execute(f"CREATE DATABASE copied TEMPLATE {database}")
    db.execute("CREATE DATABASE plain TEMPLATE template0")
    db.execute("DROP DATABASE plain")


def test_a_root_of_zero_has_its_digits(db: psycopg.Connection) -> None:
    """PostgreSQL's numeric of 16 significant digits, for zero as for others."""
    assert _one(db, "SELECT sqrt(0.00::numeric)::text") == ("0.000000000000000",)


def test_a_chained_block_shows_how_it_reads(db: psycopg.Connection) -> None:
    """SHOW told the default behind COMMIT AND CHAIN."""
    for end in ("COMMIT", "ROLLBACK"):
        db.execute("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY")
        db.execute(f"{end} AND CHAIN")
        assert _one(db, "SHOW transaction_isolation") == ("serializable",)
        assert _one(db, "SHOW transaction_read_only") == ("on",)
        db.execute("ROLLBACK")


def test_arrays_of_several_dimensions_are_refused_by_name_in_joins(db: psycopg.Connection) -> None:
    """Django's select_related over a nested ArrayField was told of Arrow's types, as 22023."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, g int[])")
    db.execute("INSERT INTO t VALUES (1, '{1,2}')")
    joined = "SELECT a.g FROM t a JOIN t b ON a.id = b.id"
    assert _one(db, joined) == ([1, 2],)
    db.execute("UPDATE t SET g = '{{1,2},{3,4}}'")
    assert _one(db, "SELECT g FROM t WHERE id = 1") == ([[1, 2], [3, 4]],)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="several dimensions") as caught:
        db.execute(joined)
    assert "its table alone" in str(caught.value)
