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


def test_steps_in_each_other(db: psycopg.Connection) -> None:
    """What a migration tried first would stay, or what it does instead would not be done."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, s text)")
    heard: list[tuple[str | None, str | None]] = []
    db.add_notice_handler(lambda one: heard.append((one.severity, one.message_primary)))
    block = """DO $$ BEGIN
        INSERT INTO t VALUES (1, 'outer');
        BEGIN
            INSERT INTO t VALUES (2, 'inner'), (3, 'inner');
            UPDATE t SET s = 'changed' WHERE id = 1;
            INSERT INTO t VALUES (2, 'twice');
        EXCEPTION
            WHEN undefined_table THEN INSERT INTO t VALUES (97, 'wrong');
            WHEN integrity_constraint_violation THEN
                INSERT INTO t VALUES (4, 'instead');
                RAISE NOTICE 'it''s there, 100%%';
        END;
        IF (SELECT count(*) FROM t) = 7 THEN INSERT INTO t VALUES (98, 'wrong');
        ELSIF CASE WHEN EXISTS (SELECT FROM t WHERE id = 4) THEN true END THEN
            EXECUTE 'INSERT INTO t VALUES (5, ' || quote_literal('text') || ')';
        ELSE INSERT INTO t VALUES (99, 'wrong');
        END IF;
        PERFORM 1 / id FROM t;
    END $$"""
    rows = [(1, "outer"), (4, "instead"), (5, "text")]
    db.execute(block)
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == rows
    assert heard == [("NOTICE", "it's there, 100%")]
    db.execute("TRUNCATE t")
    fails = "DO $$ BEGIN PERFORM 1 / 0; EXCEPTION WHEN unique_violation THEN NULL; END $$"
    with db.transaction():
        db.execute("SAVEPOINT before")
        db.execute(block)
        with pytest.raises(psycopg.errors.DivisionByZero):
            db.execute(fails)
        db.execute("ROLLBACK TO before")
    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(psycopg.errors.RaiseException, match="no more"):
        db.execute("DO $$ BEGIN RAISE EXCEPTION 'no more'; END $$")


def test_a_look_at_what_is_there_comes_first(db: psycopg.Connection) -> None:
    """A definition in a handler, or in a block of its own, would be refused."""
    for _ in range(2):
        db.execute(
            "DO $$ BEGIN PERFORM 'mood'::regtype; "
            "EXCEPTION WHEN undefined_object THEN CREATE TYPE mood AS ENUM ('a'); END $$"
        )
        db.execute(
            "DO $$ BEGIN "
            "BEGIN CREATE TYPE one AS ENUM ('a'); EXCEPTION WHEN duplicate_object THEN NULL; END; "
            "BEGIN CREATE TABLE t (id int); EXCEPTION WHEN SQLSTATE '42P07' THEN NULL; END; "
            "END $$"
        )
    assert db.execute("SELECT 'a'::mood::text, 'a'::one::text").fetchone() == ("a", "a")
    assert db.execute("SELECT * FROM t").fetchall() == []


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("block", "state"),
    [
        ("DECLARE n int; BEGIN END", "0A000"),
        ("BEGIN FOR i IN 1..3 LOOP NULL; END LOOP; END", "0A000"),
        ("BEGIN RAISE NOTICE 'x %', 1; END", "0A000"),
        ("BEGIN RAISE NOTICE '%'; END", "0A000"),
        ("BEGIN RAISE; END", "0A000"),
        ("BEGIN n := 1; END", "0A000"),
        ("BEGIN EXECUTE 'COMMIT'; END", "0A000"),
        ("BEGIN EXECUTE NULL; END", "22004"),
        ("BEGIN EXCEPTION WHEN others THEN NULL; ", "42601"),
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
        ("BEGIN", "42601"),
        ("BEGIN END; nonsense", "0A000"),
        ("BEGIN " * 60, "54001"),
        (
            "BEGIN INSERT INTO b VALUES (1); CREATE TABLE a (n int); "
            "EXCEPTION WHEN others THEN NULL; END",
            "0A000",
        ),
        ("'", "42601"),
    ],
)
def test_the_rest_of_plpgsql_is_refused(db: psycopg.Connection, block: str, state: str) -> None:
    """Half of a block would be done, or the connection end."""
    with pytest.raises(psycopg.Error) as caught:
        db.execute(f"DO $$ {block} $$".encode())
    assert caught.value.sqlstate == state
    assert db.execute("SELECT to_regclass('a')").fetchone() == (None,)
