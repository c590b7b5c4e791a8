"""DO: blocks that make what may be there already, as Sequelize and Drizzle write them."""

from __future__ import annotations

import psycopg
import pytest

pytestmark = pytest.mark.cluster

TYPE = (
    "DO 'BEGIN CREATE TYPE \"public\".\"enum_role\" AS ENUM(''admin'', ''user''); EXCEPTION WHEN "
    "duplicate_object THEN null; END';"
)


def test_what_is_there_already_is_no_error(db: psycopg.Connection) -> None:
    """The second start of a program would fail."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    for _ in range(2):
        db.execute(TYPE)
        db.execute(
            "DO $$ BEGIN ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0); "
            "EXCEPTION WHEN duplicate_object OR undefined_table THEN NULL; END $$"
        )
        db.execute(
            "DO $$ begin if not exists (select 1 from pg_type where typname = 'mood') then "
            "create type mood as enum ('a'); insert into t values (7); end if; end; $$"
        )
        db.execute("DO $$BEGIN INSERT INTO t VALUES (1); EXCEPTION WHEN others THEN NULL; END$$")
    assert db.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (7,)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute(
            "DO $$BEGIN INSERT INTO t VALUES (1); EXCEPTION WHEN undefined_table THEN NULL; END$$"
        )


def test_what_is_handled_leaves_nothing_of_itself(db: psycopg.Connection) -> None:
    """Rows before the one that failed would be committed, or those before the block be lost."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with db.transaction():
        db.execute("INSERT INTO t VALUES (20)")
        db.execute(
            "DO $$ BEGIN INSERT INTO t VALUES (21), (20); "
            "EXCEPTION WHEN unique_violation THEN NULL; END $$"
        )
        db.execute(
            "DO $$ BEGIN INSERT INTO t VALUES (22); -- a comment; with a semicolon\n"
            "UPDATE t SET id = 23 WHERE id = 22; END $$"
        )
    assert db.execute("SELECT id FROM t ORDER BY id").fetchall() == [(20,), (23,)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("DO $$ BEGIN INSERT INTO t VALUES (30); INSERT INTO t VALUES (20); END $$")
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("block", "state"),
    [
        ("DECLARE n int; BEGIN END", "0A000"),
        ("BEGIN FOR i IN 1..3 LOOP NULL; END LOOP; END", "0A000"),
        ("BEGIN RAISE NOTICE 'x'; END", "0A000"),
        ("BEGIN SELECT 1; END", "0A000"),
        ("BEGIN COMMIT; END", "0A000"),
        (
            "BEGIN CREATE TABLE a (n int); CREATE TABLE b (n int); "
            "EXCEPTION WHEN others THEN NULL; END",
            "0A000",
        ),
        ("BEGIN IF true THEN CREATE TABLE a (n int); END", "42601"),
        ("BEGIN CREATE TABLE a (n int); EXCEPTION WHEN nonsense THEN NULL; END", "42704"),
        ("BEGIN nonsense; END", "42601"),
        ("", "0A000"),
        ("BEGIN", "0A000"),
        ("'", "42601"),
    ],
)
def test_the_rest_of_plpgsql_is_refused(db: psycopg.Connection, block: str, state: str) -> None:
    """Half of a block would be done, or the connection end."""
    with pytest.raises(psycopg.Error) as caught:
        db.execute(f"DO $$ {block} $$".encode())
    assert caught.value.sqlstate == state
    assert db.execute("SELECT to_regclass('a')").fetchone() == (None,)
