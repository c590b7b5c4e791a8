"""Partial indexes: entries only of rows of which the predicate is true, used only where a WHERE
implies it.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def plan(db: psycopg.Connection, text: str) -> str:
    return "\n".join(row[0] for row in db.execute("EXPLAIN " + text).fetchall())


@pytest.fixture
def users(db: psycopg.Connection) -> psycopg.Connection:
    """users(id, email, gone): one of each email among those that are not gone."""
    db.execute("CREATE TABLE users (id int PRIMARY KEY, email text, gone timestamptz, n int)")
    db.execute("CREATE UNIQUE INDEX one_email ON users (email) WHERE gone IS NULL")
    return db


def test_p9_a_partial_unique_index_is_about_its_rows_only(users: psycopg.Connection) -> None:
    """A row outside the predicate would stand in the way, or one that moves in would not."""
    users.execute("INSERT INTO users VALUES (1, 'a', NULL), (2, 'a', now()), (3, 'a', now())")
    with pytest.raises(errors.UniqueViolation) as failed:
        users.execute("INSERT INTO users VALUES (4, 'a')")
    assert failed.value.diag.constraint_name == "one_email"
    assert failed.value.diag.message_detail == "Key (email)=(a) already exists."
    with pytest.raises(errors.UniqueViolation):
        users.execute("UPDATE users SET gone = NULL WHERE id = 2")
    users.execute("UPDATE users SET gone = now() WHERE id = 1")
    users.execute("UPDATE users SET gone = NULL WHERE id = 2")
    with pytest.raises(errors.UniqueViolation):
        users.execute("UPDATE users SET gone = NULL WHERE id = 1")
    users.execute("DELETE FROM users WHERE id = 2")
    users.execute("UPDATE users SET gone = NULL WHERE id = 1")
    found = users.execute("SELECT id FROM users WHERE email = 'a' AND gone IS NULL").fetchall()
    assert found == [(1,)]


@pytest.mark.slow
def test_p9_on_conflict_means_a_partial_index_by_its_predicate(users: psycopg.Connection) -> None:
    """An upsert could not say which index decides, or would take one that does not have all rows
    meant.
    """
    put = (
        "INSERT INTO users (id, email, n) VALUES (%s, 'a', 1) "
        "ON CONFLICT (email) WHERE gone IS NULL DO UPDATE SET n = users.n + 1"
    )
    users.execute(put, (1,))
    users.execute(put, (2,))
    assert users.execute("SELECT id, n FROM users").fetchall() == [(1, 2)]
    users.execute("UPDATE users SET gone = now()")
    users.execute(put, (2,))
    assert users.execute("SELECT id, n FROM users ORDER BY id").fetchall() == [(1, 2), (2, 1)]
    for where in ("", "WHERE n > 1", "WHERE gone IS NOT NULL"):
        with pytest.raises(errors.InvalidColumnReference):
            users.execute(
                f"INSERT INTO users (id, email) VALUES (9, 'a') ON CONFLICT (email) {where} "
                "DO NOTHING"
            )


def test_p8_a_partial_index_is_used_only_where_the_where_implies_it(
    db: psycopg.Connection,
) -> None:
    """Rows that the index does not have would be missed; or it would never be used."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, k int, n int)")
    db.execute("INSERT INTO t SELECT i, i % 3, i % 10 FROM generate_series(1, 60) i")
    db.execute("CREATE INDEX part ON t (k) WHERE n > 5")
    for where, used in (("n > 5", True), ("n = 7", True), ("n >= 5", False), ("true", False)):
        question = f"SELECT id FROM t WHERE {where} AND k = 1"
        assert ("part" in plan(db, question)) is used, where
        other = f"SELECT id FROM t WHERE {where} AND k + 0 = 1"
        assert sorted(db.execute(question).fetchall()) == sorted(db.execute(other).fetchall())
    queue = "SELECT n, k FROM t WHERE n > 5 ORDER BY k LIMIT 3"
    assert "part" in plan(db, queue)
    assert [k for _, k in db.execute(queue).fetchall()] == [0, 0, 0]
    joined = "SELECT count(*) FROM t a JOIN t b ON a.k = b.k WHERE a.n > 5 AND a.k = 1"
    assert db.execute(joined).fetchone() == (160,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("a LEFT JOIN b ON aid = a.id AND k = 5 WHERE gone IS NULL", [(2, 2), (4, 4)]),
        ("b RIGHT JOIN a ON aid = a.id AND k = 5 WHERE gone IS NULL", [(2, 2), (4, 4)]),
        (
            "a LEFT JOIN b ON aid = a.id AND k = 5 AND gone IS NULL",
            [(1, None), (2, 2), (3, None), (4, 4)],
        ),
        ("a LEFT JOIN b ON aid = a.id WHERE k = 5 AND gone IS NULL", [(2, 2), (4, 4)]),
        ("a FULL JOIN b ON aid = a.id WHERE gone IS NULL AND k = 5", [(2, 2), (4, 4)]),
        (
            "a LEFT JOIN (b JOIN a AS c ON aid = c.id) ON aid = a.id AND k = 5 WHERE gone IS NULL",
            [(2, 2), (4, 4)],
        ),
        ("a LEFT JOIN b ON aid = a.id AND k = 5 WHERE coalesce(gone, 0) = 0", [(2, 2), (4, 4)]),
        ("a JOIN b ON aid = a.id AND k = 5 WHERE gone IS NULL", [(2, 2), (4, 4)]),
    ],
)
def test_p8_a_partial_index_makes_no_rows_without_a_match(
    db: psycopg.Connection, query: str, found: list[Any]
) -> None:
    """A row that an outer join matches was left out, came back as NULLs, and then met the WHERE."""
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    db.execute("CREATE TABLE b (id int PRIMARY KEY, aid int, k int, gone int)")
    db.execute("CREATE INDEX b_k ON b (k) WHERE gone IS NULL")
    db.execute("CREATE INDEX b_none ON b (k) WHERE coalesce(gone, 0) = 0")
    db.execute("INSERT INTO a VALUES (1), (2), (3), (4)")
    db.execute("INSERT INTO b VALUES (1, 1, 5, 7), (2, 2, 5, NULL), (3, 3, 5, 1), (4, 4, 5, NULL)")
    assert db.execute(f"SELECT a.id, b.id FROM {query} ORDER BY 1").fetchall() == found


def test_p8_what_a_predicate_cannot_be(db: psycopg.Connection) -> None:
    """An index whose entries depend on more than the row would not be what the rows say."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, s text)")
    for predicate, state in (
        ("at > now()", "42P17"),
        ("s = current_user", "42P17"),
        ("at::text > s", "42P17"),
        ("random() > 0.5", "42P17"),
        ("id IN (SELECT 1)", "0A000"),
        ("id", "42804"),
        ("none > 1", "42703"),
        ("count(*) > 1", "42803"),
    ):
        with pytest.raises(psycopg.Error) as failed:
            db.execute(f"CREATE INDEX i ON t (id) WHERE {predicate}")
        assert failed.value.sqlstate == state, predicate


@pytest.mark.slow
def test_q6_a_partial_index_is_built_under_writes(sql: Sql, db: psycopg.Connection) -> None:
    """An entry of a row that moved in or out meanwhile would be missing, or left."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, n int, live bool)")
    db.execute("INSERT INTO t SELECT i, i % 7, i % 2 = 0 FROM generate_series(0, 1499) i")
    stop = threading.Event()
    failures: list[Exception] = []

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with sql.connect(autocommit=True) as mine:
            while not stop.is_set():
                i = chance.randrange(1500)
                text, values = chance.choice(
                    [
                        ("UPDATE t SET live = NOT live WHERE id = %s", (i,)),
                        ("UPDATE t SET n = %s WHERE id = %s", (chance.randrange(7), i)),
                        ("DELETE FROM t WHERE id = %s", (i,)),
                        (
                            "INSERT INTO t VALUES (%s, 3, %s) ON CONFLICT (id) DO UPDATE SET "
                            "live = excluded.live",
                            (i, chance.random() < 0.5),
                        ),
                    ]
                )
                try:
                    mine.execute(text, values)
                except errors.SerializationFailure:
                    pass
                except psycopg.Error as error:
                    failures.append(error)
                    return

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for one in writers:
        one.start()
    try:
        db.execute("CREATE INDEX CONCURRENTLY part ON t (n) WHERE live")
    finally:
        stop.set()
        for one in writers:
            one.join()
    assert not failures
    assert "part" in plan(db, "SELECT id FROM t WHERE n = 3 AND live")
    for n in range(7):
        by_index = db.execute(f"SELECT id FROM t WHERE n = {n} AND live").fetchall()
        by_rows = db.execute(f"SELECT id FROM t WHERE n + 0 = {n} AND live IS NOT FALSE").fetchall()
        assert sorted(by_index) == sorted(by_rows)


@pytest.mark.slow
def test_p8_a_build_that_finds_a_duplicate_or_an_error_leaves_nothing(
    users: psycopg.Connection,
) -> None:
    """Half an index would stay, or rows outside the predicate would count."""
    users.execute("DROP INDEX one_email")
    users.execute(
        "INSERT INTO users VALUES (1, 'a', NULL, 0), (2, 'a', NULL, 1), (3, 'a', now(), 2)"
    )
    with pytest.raises(errors.UniqueViolation) as failed:
        users.execute("CREATE UNIQUE INDEX one_email ON users (email) WHERE gone IS NULL")
    assert failed.value.diag.message_detail == "Key (email)=(a) is duplicated."
    with pytest.raises(errors.DivisionByZero):
        users.execute("CREATE INDEX bad ON users (email) WHERE 1 / n > 0")
    users.execute("CREATE UNIQUE INDEX one_email ON users (email) WHERE n = 2")
    names = "SELECT indexname FROM pg_indexes WHERE tablename = 'users' ORDER BY 1"
    assert users.execute(names).fetchall() == [("one_email",), ("users_pkey",)]


@pytest.mark.slow
def test_p8_columns_of_a_predicate_are_renamed_and_dropped_with_it(
    users: psycopg.Connection,
) -> None:
    """The predicate would name a column that is not there: nobody could write the table."""
    users.execute("ALTER TABLE users RENAME COLUMN gone TO deleted")
    users.execute("INSERT INTO users (id, email) VALUES (1, 'a')")
    shown = "SELECT pg_get_indexdef('one_email'::regclass), pg_get_expr(indpred, indrelid) FROM "
    row: Any = users.execute(shown + "pg_index WHERE indexrelid = 'one_email'::regclass").fetchone()
    assert row == (
        "CREATE UNIQUE INDEX one_email ON public.users USING btree (email) WHERE (deleted IS NULL)",
        "(deleted IS NULL)",
    )
    with pytest.raises(errors.FeatureNotSupported):
        users.execute("ALTER TABLE users ALTER COLUMN deleted TYPE text USING 'x'")
    with pytest.raises(errors.WrongObjectType):
        users.execute("ALTER TABLE users ADD CONSTRAINT u UNIQUE USING INDEX one_email")
    with pytest.raises(errors.InvalidForeignKey):
        users.execute("CREATE TABLE c (e text REFERENCES users (email))")
    users.execute("ALTER TABLE users DROP COLUMN deleted")
    users.execute("INSERT INTO users (id, email) VALUES (2, 'a')")
    assert users.execute("SELECT to_regclass('one_email')").fetchone() == (None,)


@pytest.mark.slow
def test_p9_copy_and_many_rows_keep_a_partial_index(users: psycopg.Connection) -> None:
    """Rows that come in bulk would get entries that they must not have."""
    with users.cursor().copy("COPY users (id, email, gone) FROM STDIN") as copy:
        for i in range(3000):
            copy.write_row((i, f"e{i % 1500}", None if i < 1500 else "2026-01-01 00:00:00+00"))
    with pytest.raises(errors.UniqueViolation):
        users.execute(
            "INSERT INTO users SELECT i, 'e' || i, NULL::timestamptz "
            "FROM generate_series(5000, 5001) i UNION ALL SELECT 9000, 'e7', NULL"
        )
    found = users.execute("SELECT id FROM users WHERE email = 'e7' AND gone IS NULL").fetchall()
    assert found == [(7,)]
    users.execute("TRUNCATE users")
    users.execute("INSERT INTO users (id, email) VALUES (1, 'e7')")


@pytest.mark.slow
def test_p8_sqlalchemy_reflects_a_predicate(sql: Sql, users: psycopg.Connection) -> None:
    """A migration tool would make the index anew, without its predicate."""
    import sqlalchemy as sa

    engine = sa.create_engine(sql.url())
    try:
        table = sa.Table("users", sa.MetaData(), autoload_with=engine)
        (index,) = table.indexes
        assert index.unique
        assert str(index.dialect_options["postgresql"]["where"]) == "(gone IS NULL)"
        column = table.c.n
        sa.Index("mine", column, postgresql_where=column > 5).create(engine)
        found = {one["name"]: one for one in sa.inspect(engine).get_indexes("users")}
        assert found["mine"]["dialect_options"]["postgresql_where"] == "(n > 5)"
    finally:
        engine.dispose()


@pytest.mark.slow
def test_p8_alembic_finds_nothing_to_do_behind_a_partial_index(sql: Sql) -> None:
    """Every autogenerated migration would drop the index and make it again."""
    import sqlalchemy as sa
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    metadata = sa.MetaData()
    job = sa.Table(
        "job", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("state", sa.Text)
    )
    sa.Index("ready", job.c.id, unique=True, postgresql_where=job.c.state == "ready")
    engine = sa.create_engine(sql.url())
    try:
        with engine.connect() as connection:
            job.create(connection)
            connection.commit()
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
            connection.rollback()
    finally:
        engine.dispose()


@pytest.mark.slow
def test_p8_constants_of_a_predicate_do_not_depend_on_settings(db: psycopg.Connection) -> None:
    """Two sessions would see two predicates in one text, and keep two indexes in one."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, d date)")
    db.execute("SET timezone = 'Asia/Tokyo'")
    db.execute("CREATE INDEX i ON t (id) WHERE at > '2026-01-01 00:00'")
    db.execute("INSERT INTO t VALUES (1, '2026-01-01 00:01+09'), (2, '2025-12-31 23:59+09')")
    db.execute("SET timezone = 'UTC'")
    question = "SELECT id FROM t WHERE at > '2025-12-31 15:00+00' AND id < 9"
    assert db.execute(question).fetchall() == [(1,)]


@pytest.mark.slow
def test_p8_a_predicate_over_an_enum_follows_its_type(db: psycopg.Connection) -> None:
    """A label or a type under another name would make the predicate unreadable."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    db.execute("CREATE TABLE t (id int PRIMARY KEY, m mood, k int)")
    db.execute("CREATE UNIQUE INDEX one_ok ON t (k) WHERE m = 'ok'::mood")
    db.execute("INSERT INTO t VALUES (1, 'ok', 1), (2, 'sad', 1)")
    with pytest.raises(errors.UniqueViolation):
        db.execute("UPDATE t SET m = 'ok' WHERE id = 2")
    for change in ("RENAME TO feeling", "RENAME VALUE 'ok' TO 'fine'"):
        with pytest.raises(errors.FeatureNotSupported):
            db.execute(f"ALTER TYPE mood {change}")
    db.execute("ALTER TYPE mood ADD VALUE 'so-so' BEFORE 'ok'")
    db.execute("UPDATE t SET m = 'so-so' WHERE id = 1")
    db.execute("UPDATE t SET m = 'ok' WHERE id = 2")
    assert db.execute("SELECT id FROM t WHERE k = 1 AND m = 'ok'").fetchall() == [(2,)]
    assert db.execute("SELECT id FROM t WHERE k = 1 AND m = 'ok'::mood").fetchall() == [(2,)]


WIDER = (  # type, wider type, condition, values, what the change is told
    ("int4", "int8", "n > 1 AND n % 2 + n / 2 * 2 IN (3, 5)", ("3", "4", "5"), ""),
    ("int2", "int4", "(n & 3) = 1 OR abs(n) = 4 OR n::text = '7'", ("1", "-4", "7", "8"), ""),
    ("int2", "int8", "coalesce(n, 0) = 0 OR n > 1.5", ("0", "NULL", "1", "2"), ""),
    ("varchar(3)", "text", "n LIKE 'a%' OR upper(n || 'x') = 'BX'", ("'a'", "'b'", "'c'"), ""),
    ("varchar(3)", "varchar(9)", "length(n) > 2", ("'abc'", "'b'"), ""),
    ("int4", "int8", "chr(n) = 'a'", ("97", "98"), "42883"),
    ("int4", "int8", "date '2020-01-01' + n > date '2020-02-01'", ("1", "99"), "42883"),
    ("int4", "int8", "n::boolean", ("0", "1"), "42846"),
    ("int2", "int4", "(n << 14) > 0", ("1", "2"), "0A000"),
    ("int4", "int8", "to_hex(n) = 'ffffffff'", ("1", "-1"), "0A000"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "wider", "where", "values", "refused"), WIDER)
def test_p4_a_wider_type_leaves_conditions_their_meaning(
    db: psycopg.Connection, kind: str, wider: str, where: str, values: tuple[str, ...], refused: str
) -> None:
    """Behind int4 to int8 a predicate or check could not be bound any more, and no row be written
    or removed; or it meant other rows than those that the index has.
    """
    db.execute(f"CREATE TABLE i (id serial PRIMARY KEY, k int DEFAULT 1, n {kind})")
    db.execute(f"CREATE INDEX part ON i (k) WHERE {where}")
    db.execute(f"CREATE TABLE c (id serial PRIMARY KEY, n {kind})")
    db.execute(f"ALTER TABLE c ADD CONSTRAINT said CHECK (({where}) OR true)")
    for table in ("i", "c"):
        for _ in range(2):
            for value in values:
                db.execute(f"INSERT INTO {table} (n) VALUES ({value})")
            change = f"ALTER TABLE {table} ALTER COLUMN n TYPE {wider}"
            if refused:
                with pytest.raises(psycopg.Error) as failed:
                    db.execute(change)
                assert failed.value.sqlstate == refused
            else:
                db.execute(change)
    by_index = f"SELECT id FROM i WHERE k = 1 AND ({where}) ORDER BY id"
    assert "part" in plan(db, by_index)
    wanted = db.execute(f"SELECT id FROM i WHERE k + 0 = 1 AND (({where}) IS TRUE) ORDER BY id")
    assert db.execute(by_index).fetchall() == wanted.fetchall() != []
    db.execute("UPDATE i SET k = 2")
    assert db.execute(by_index).fetchall() == []
    for table in ("i", "c"):
        assert db.execute(f"DELETE FROM {table}").rowcount == 2 * len(values)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", " WHERE ok"])
def test_p9_on_conflict_acts_on_the_constraint_that_it_names(
    db: psycopg.Connection, where: str
) -> None:
    """A row that meets the named index and the primary key, too, was refused by the latter."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, k int, n int DEFAULT 0, ok bool DEFAULT true)")
    db.execute(f"CREATE UNIQUE INDEX t_k ON t (k){where}")
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    on = f"ON CONFLICT (k){where}"
    told = db.execute(f"INSERT INTO t VALUES (2, 1) {on} DO UPDATE SET n = t.n + 1 RETURNING id")
    assert told.fetchall() == [(1,)]
    assert db.execute(f"INSERT INTO t VALUES (2, 1) {on} DO NOTHING").rowcount == 0
    for conflict in (
        f"INSERT INTO t VALUES (2, 9) {on} DO NOTHING",
        f"INSERT INTO t VALUES (2, 1) {on} DO UPDATE SET k = 2",
        "INSERT INTO t VALUES (9, 1) ON CONFLICT (id) DO NOTHING",
    ):
        with pytest.raises(errors.UniqueViolation):
            db.execute(conflict)
    assert db.execute("SELECT id, k, n FROM t ORDER BY id").fetchall() == [(1, 1, 1), (2, 2, 0)]
