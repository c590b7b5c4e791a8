"""What another process has just declared is known to the next statement of this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.test_nodes import ProxyProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def two(sql: Sql, tmp_path: Path) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """One connection to the node, and one to a proxy beside it."""
    proxy = ProxyProcess(sql.node, tmp_path / "proxy.log")
    try:
        other = proxy.connect(sql.database)
        other.autocommit = True
        with sql.connect(autocommit=True) as db:
            yield db, other
        other.close()
    finally:
        proxy.kill()


# what one declares, and what the other may say at once
DECLARED = (
    ("CREATE TABLE t (id int PRIMARY KEY)", "SELECT * FROM t"),
    ("ALTER TABLE t ADD COLUMN v int", "SELECT v FROM t"),
    ("ALTER TABLE t ADD COLUMN w int", "INSERT INTO t (id, w) VALUES (1, 1)"),
    ("ALTER TABLE t RENAME COLUMN w TO x", "UPDATE t SET x = 2 WHERE id = 1"),
    (
        "CREATE UNIQUE INDEX t_x ON t (x)",
        "INSERT INTO t VALUES (9, 1, 2) ON CONFLICT (x) DO NOTHING",
    ),
    ("CREATE TYPE mood AS ENUM ('a')", "SELECT 'a'::mood"),
    ("CREATE TYPE mood2 AS ENUM ('a')", "CREATE TABLE m (id mood2 PRIMARY KEY)"),
    ("ALTER TYPE mood ADD VALUE 'b'", "SELECT 'b'::mood"),
    ("ALTER TYPE mood RENAME VALUE 'b' TO 'c'", "SELECT 'c'::mood"),
    ("CREATE VIEW s AS SELECT id FROM t", "SELECT count(*) FROM s JOIN t USING (id)"),
    ("CREATE SEQUENCE q", "SELECT nextval('q')"),
    ("CREATE SEQUENCE q1", "SELECT last_value FROM q1"),
    ("CREATE TABLE u (id int PRIMARY KEY)", "SELECT 'u'::regclass"),
    ("CREATE TABLE u1 (id int PRIMARY KEY)", "SELECT pg_relation_size('u1')"),
    ("CREATE TABLE u2 (id int PRIMARY KEY)", "ALTER TABLE u2 ADD COLUMN v int"),
    ("CREATE TABLE u3 (id int PRIMARY KEY)", "ALTER TABLE u3 RENAME TO u4"),
    ("CREATE TABLE u5 (id int PRIMARY KEY)", "DROP TABLE u5"),
    ("CREATE TABLE u6 (id int PRIMARY KEY)", "CREATE INDEX ON u6 (id)"),
    ("CREATE TABLE u7 (id int PRIMARY KEY)", "TRUNCATE u7"),
    ("CREATE TABLE u8 (id int PRIMARY KEY)", "COMMENT ON TABLE u8 IS 'new'"),
    ("CREATE TABLE u9 (id int PRIMARY KEY)", "COPY u9 TO STDOUT"),
    ("CREATE TABLE v0 (id int PRIMARY KEY)", "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM v0"),
    ("CREATE TABLE v1 (id int PRIMARY KEY)", "EXPLAIN SELECT * FROM v1"),
    ("CREATE TABLE v2 (id int PRIMARY KEY)", "PREPARE p AS SELECT * FROM v2"),
    ("CREATE TABLE v3 (id int PRIMARY KEY)", "GRANT SELECT ON v3 TO PUBLIC"),
    ("CREATE SEQUENCE v4", "ALTER SEQUENCE v4 RESTART 7"),
    ("CREATE VIEW v5 AS SELECT 1 AS x", "DROP VIEW v5"),
    ("CREATE TYPE v6 AS ENUM ()", "ALTER TYPE v6 ADD VALUE 'x'"),
    ("CREATE TYPE v7 AS ENUM ()", "DROP TYPE v7"),
    ("CREATE SEQUENCE v8", "SELECT setval('v8', 3)"),
    ("CREATE SEQUENCE v9", "INSERT INTO t (id) VALUES (nextval('v9') + 100)"),
    ("CREATE SEQUENCE w0", "INSERT INTO t (id) VALUES (nextval('w0')+200), (nextval('w0')+200)"),
    ("DROP TABLE u", "CREATE TABLE u (id text PRIMARY KEY)"),
    ("DROP VIEW s", "CREATE TABLE s (id text PRIMARY KEY)"),
)


def test_q2_what_another_process_has_just_declared_is_there(
    two: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    """For some tenths of a second a statement was refused: there is no such table, column, type."""
    one, other = two
    wrong = []
    for declared, used in DECLARED:
        other.execute("SELECT count(*) FROM pg_class WHERE relname = 't'")  # it has looked
        one.execute(declared)
        try:
            if used.startswith("COPY"):
                with other.cursor().copy(used) as copy:
                    assert list(copy) == []
            else:
                other.execute(used)
        except psycopg.Error as error:
            wrong.append(f"{used}: {error}")
    assert not wrong, "\n".join(wrong)
