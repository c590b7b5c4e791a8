"""Tables without columns, which PostgreSQL allows: migrations make a table first and add to it."""

from __future__ import annotations

import subprocess

import psycopg
import pytest

from kvorum.sql.dumping import dump
from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def test_a_table_without_columns_has_rows(db: psycopg.Connection) -> None:
    """Rows would be lost with the last column, or a reader would look for the first one."""
    db.execute("CREATE TABLE e (); INSERT INTO e DEFAULT VALUES")
    db.execute("INSERT INTO e DEFAULT VALUES")
    assert db.execute("INSERT INTO e SELECT FROM generate_series(1, 3)").rowcount == 3
    for text, count in (("SELECT * FROM e", 5), ("TABLE e", 5), ("SELECT FROM e, e f", 25)):
        assert db.execute(text.encode()).rowcount == count, text
    assert db.execute("SELECT count(*), count(ctid) FROM e").fetchone() == (5, 5)
    with db.cursor(binary=True) as cursor:
        assert cursor.execute("SELECT * FROM e LIMIT %s", (2,)).fetchall() == [(), ()]
    db.execute("CREATE VIEW v AS SELECT * FROM e")
    assert db.execute("SELECT count(*) FROM v").fetchone() == (5,)
    assert db.execute("DELETE FROM e WHERE ctid = (SELECT min(ctid) FROM e)").rowcount == 1
    natts = "SELECT relnatts FROM pg_class WHERE relname = 'e'"
    assert db.execute(natts).fetchone() == (0,)
    db.execute("ALTER TABLE e ADD COLUMN x int DEFAULT 7")
    assert db.execute("SELECT * FROM e").fetchall() == [(7,)] * 4
    db.execute("ALTER TABLE e DROP COLUMN x")
    assert db.execute("SELECT * FROM e").fetchall() == [()] * 4
    db.execute("ALTER TABLE e ADD COLUMN id serial PRIMARY KEY")
    assert db.execute("SELECT * FROM e ORDER BY id").fetchall() == [(1,), (2,), (3,), (4,)]


def test_what_has_no_meaning_without_columns_is_told(db: psycopg.Connection) -> None:
    """DuckDB's own error would come, or no row for two."""
    db.execute("CREATE TABLE e (); INSERT INTO e DEFAULT VALUES")
    with pytest.raises(psycopg.errors.SyntaxError, match="must have at least one column"):
        db.execute("SELECT DISTINCT * FROM e")
    with pytest.raises(psycopg.errors.SyntaxError, match="RETURNING must have"):
        db.execute("INSERT INTO e DEFAULT VALUES RETURNING *")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="without columns"):
        db.execute("SELECT FROM e UNION ALL SELECT FROM e")


@pytest.mark.slow
def test_copies_and_dumps_keep_the_rows(sql: Sql) -> None:
    """A line without fields is a row."""
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE e ()")
        with db.cursor().copy("COPY e FROM STDIN") as copy:
            copy.write(b"\n\n")
        with db.cursor().copy("COPY e TO STDOUT") as copy:
            assert b"".join(copy) == b"\n\n"
        written: list[bytes] = []
        assert dump(db, written.append) == 2
        db.execute(f"CREATE DATABASE {sql.database}_copy".encode())
    where = sql.dsn.replace(sql.database, f"{sql.database}_copy")
    words = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", where]
    script = b"".join(written)
    read = subprocess.run(words, input=script, capture_output=True, check=False, timeout=60)
    assert read.returncode == 0, read.stderr
    with psycopg.connect(where) as other:
        assert other.execute("SELECT * FROM e").fetchall() == [(), ()]
