"""A database as a script of SQL (`kvorum export DATABASE FILE --format sql`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from kvorum.sql.dumping import Changed, NoTable, dump
from tests.clients.sql.conftest import Sql
from tests.kit.commands import Ended, run

pytestmark = pytest.mark.cluster

DECLARED = r"""
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy');
CREATE SEQUENCE plain START 5 INCREMENT 3 CYCLE MAXVALUE 1000;
CREATE TABLE "Users" (
  "userId" int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x''y',
  m mood DEFAULT 'sad', b bytea, arr int[], "or der" text UNIQUE, n numeric(12,3), ts timestamp(3),
  j jsonb, f float8, iv interval day to second(2), c char(4), ms mood[], CHECK (n > -1000),
  g int GENERATED ALWAYS AS ("userId" * 2) STORED);
CREATE TABLE orders (
  id serial PRIMARY KEY, usr int NOT NULL REFERENCES "Users" ("userId") ON DELETE CASCADE,
  amount numeric(10,2), note text, k int DEFAULT nextval('plain'),
  parent int REFERENCES orders(id));
CREATE INDEX orders_note ON orders (note DESC) INCLUDE (amount);
CREATE UNIQUE INDEX orders_part ON orders (usr) WHERE amount > 100;
CREATE TABLE nokey (a int, b text);
CREATE TABLE bare (id int PRIMARY KEY);
CREATE VIEW big AS SELECT o.id, u.name FROM orders o JOIN "Users" u ON u."userId" = o.usr
  WHERE o.amount > 10;
CREATE VIEW on_view AS SELECT * FROM big WHERE name <> 'zz';
CREATE FUNCTION half(a int, "B" int DEFAULT 2) RETURNS int IMMUTABLE STRICT LANGUAGE sql
  AS $$ SELECT a / "B" -- it's \ this $$;
CREATE FUNCTION halves() RETURNS TABLE (id int, "Half" int) LANGUAGE sql
  AS 'SELECT id, half(id) FROM big';
CREATE VIEW of_halves AS SELECT "Half" FROM halves();
COMMENT ON TABLE orders IS 'it''s a \ table';
COMMENT ON COLUMN orders.note IS 'N';
COMMENT ON VIEW on_view IS 'V';
COMMENT ON INDEX orders_note IS 'I';
COMMENT ON CONSTRAINT orders_usr_fkey ON orders IS 'its ''user';
INSERT INTO "Users" (name, m, b, arr, "or der", n, ts, j, f, iv, c, ms) VALUES
  ('ann', 'happy', '\x00ff10', '{1,NULL,3}', E'a\tb\\c', 1.5, '2024-01-02 03:04:05.6789',
   '{"a": [1, null]}', 'NaN', '1 day 02:03:04.567', 'ab', '{sad,NULL}'),
  ('bob', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '-Infinity', NULL, NULL, NULL),
  ('zoë €', 'it''s ok', '', '{}', '', 0, '1960-01-01', '"x"', 1e-300, '-3 days', 'abcd', '{}');
INSERT INTO orders (usr, amount, note) VALUES
  (1, 10.50, 'x'), (1, 200, E'line\nbreak'), (3, 5, '\N');
UPDATE orders SET parent = 3 WHERE id = 2;
INSERT INTO nokey VALUES (1, 'a'), (1, 'a'), (NULL, NULL);
"""
ASKED = (
    'SELECT * FROM "Users" ORDER BY 1',
    "SELECT * FROM orders ORDER BY 1",
    "SELECT * FROM nokey ORDER BY 1",
    "SELECT * FROM bare",
    "SELECT * FROM on_view ORDER BY 1",
    'SELECT half(10), half(NULL), h.* FROM halves() h JOIN of_halves USING ("Half") ORDER BY 3',
    "SELECT obj_description('orders'::regclass), col_description('orders'::regclass, 4)",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "SELECT conname, contype, pg_get_constraintdef(oid) FROM pg_constraint ORDER BY 1",
    "SELECT table_name, grantee, privilege_type FROM information_schema.role_table_grants"
    " WHERE grantee = 'dump_reader' ORDER BY 1, 2, 3",
    "SELECT conname, obj_description(oid, 'pg_constraint') FROM pg_constraint ORDER BY 1",
    "SELECT obj_description('orders_note'::regclass)",
    "SELECT has_sequence_privilege('dump_reader', 'plain', 'USAGE'),"
    " has_sequence_privilege('dump_reader', 'plain', 'UPDATE')",
    "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute"
    " WHERE attrelid = '\"Users\"'::regclass AND attnum > 0 ORDER BY attnum",
    "SELECT sequencename, start_value, increment_by, max_value, cycle, last_value"
    " FROM pg_sequences ORDER BY 1",
    "INSERT INTO orders (usr) VALUES (2) RETURNING id, k",
    'INSERT INTO "Users" (name) VALUES (\'n\') RETURNING "userId", g',
)


def exported(sql: Sql, what: str, target: str, *, code: int = 0) -> Ended:
    words = ("export", what, target, "--format", "sql")
    return run(*words, code=code, connect=f"127.0.0.1:{sql.node.base}")


def filled(sql: Sql) -> psycopg.Connection:
    db = sql.connect(autocommit=True)
    for statement in DECLARED.split(";\n"):
        if statement.strip():
            db.execute(statement.encode())
    if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'dump_reader'").fetchall():
        db.execute("CREATE ROLE dump_reader")
    db.execute('GRANT SELECT, INSERT ON "Users" TO dump_reader')
    db.execute("GRANT USAGE, SELECT ON SEQUENCE plain TO dump_reader")
    return db


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["psql", "kvorum"])
def test_p1_a_script_makes_the_same_database(sql: Sql, tmp_path: Path, reader: str) -> None:
    """Something that was declared or written is not in the script, or stops who reads it."""
    script = tmp_path / "all.sql"
    with filled(sql) as db:
        assert b"9 rows" in exported(sql, sql.database, str(script)).out
        copy = f"{sql.database}_copy"
        db.execute(f"CREATE DATABASE {copy}".encode())
        where = f"host=127.0.0.1 port={sql.port} user=kvorum dbname={copy}"
        words = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", where, "-f", str(script)]
        if reader == "kvorum":
            base = f"127.0.0.1:{sql.node.base}"
            words = [sys.executable, "-m", "kvorum", "sql", "-d", copy, "-f", str(script)]
            words += ["--connect", base]
        read = subprocess.run(words, capture_output=True, check=False, timeout=120)
        assert read.returncode == 0, read.stderr
        assert b"ERROR" not in read.stderr
        with psycopg.connect(where, autocommit=True) as other:
            for query in ASKED:
                found = [str(one.execute(query).fetchall()) for one in (other, db)]
                assert found[0] == found[1], query
    again = exported(sql, sql.database, str(script), code=1)
    assert b"is there already" in again.err
    assert [path.name for path in tmp_path.iterdir()] == ["all.sql"]


@pytest.mark.slow
def test_p1_a_table_alone(sql: Sql) -> None:
    """The script has rows of other tables, or stops behind a table that is not there."""
    with filled(sql):
        told = exported(sql, f"{sql.database}.nokey", "-").out.decode()
        assert told.count("CREATE") == told.count("COPY") == 1
        assert 'CREATE TABLE "nokey" (\n    "a" integer,\n    "b" text\n);' in told
        assert "1\ta\n1\ta\n\\N\t\\N\n\\.\n" in told
        missing = exported(sql, f"{sql.database}.nosuch", "-", code=1)
        assert b"there is no table" in missing.err
        assert not missing.out


@pytest.mark.slow
def test_p1_rows_are_of_one_moment_and_changes_are_told(sql: Sql) -> None:
    """Rows of tables fit each other no more, or the script is of two states of a table."""
    with filled(sql) as db, sql.connect(autocommit=True) as other:
        written: list[bytes] = []

        def beside(piece: bytes) -> None:
            if b'COPY "orders"' in piece:
                other.execute("DELETE FROM orders")
            written.append(piece)

        assert dump(db, beside) == 9
        assert b"line\\nbreak" in b"".join(written)
        assert other.execute("SELECT count(*) FROM orders").fetchone() == (0,)

        def declares(piece: bytes) -> None:
            if b'COPY "nokey"' in piece:
                other.execute("ALTER TABLE bare ADD COLUMN more text")

        with pytest.raises(Changed):
            dump(db, declares)
        with pytest.raises(NoTable):
            dump(db, written.append, table="nosuch")
        assert dump(db, written.append, table="nokey") == 3, "the connection is as it was"
