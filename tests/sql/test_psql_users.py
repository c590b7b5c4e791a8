"""What users of psql and tools of PostgreSQL's write and look at, beside queries of tables."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Sql


def _one(db: psycopg.Connection, text: str) -> tuple[object, ...]:
    row = db.execute(text).fetchone()
    assert row is not None
    return row


def test_p13_sequences_are_read_as_tables(sql: Sql, db: psycopg.Connection) -> None:
    """Tools that look where a sequence stands (and set others by it) would stop."""
    db.execute("CREATE TABLE t (id serial PRIMARY KEY, a text)")
    assert _one(db, "SELECT * FROM t_id_seq") == (1, 0, False)
    db.execute("INSERT INTO t (a) SELECT 'x' || g FROM generate_series(1, 20) g")
    assert _one(db, "SELECT last_value, is_called FROM public.t_id_seq AS s") == (20, True)
    assert _one(db, "SELECT (SELECT last_value FROM t_id_seq) - max(id) FROM t") == (0,)
    asked = "SELECT t.id, s.last_value FROM t JOIN t_id_seq s ON s.last_value = t.id + 15"
    assert _one(db, asked) == (5, 20)
    db.execute("INSERT INTO t (a) SELECT last_value::text FROM t_id_seq")
    assert _one(db, "SELECT a FROM t WHERE id = (SELECT last_value FROM t_id_seq)") == ("20",)
    db.execute("CREATE VIEW v AS SELECT last_value AS at FROM t_id_seq")
    db.execute("ALTER SEQUENCE t_id_seq RENAME TO q")
    db.execute("SELECT setval('q', 40, false)")
    assert _one(db, "SELECT v.at, q.is_called FROM v, q") == (40, False)
    for statement, state in (
        ("INSERT INTO q VALUES (1)", "42809"),
        ("UPDATE q SET last_value = 1", "42809"),
        ("CREATE INDEX ON q (last_value)", "42809"),
        ("SELECT nosuch FROM q", "42703"),
        ("SELECT last_value FROM q, q AS r", "42702"),
        ("DROP SEQUENCE q", "2BP01"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            db.execute(statement)
        assert caught.value.sqlstate == state, statement
    with sql.connect() as other:
        other.execute("SELECT nextval('q'), nextval('q')")
        other.rollback()
    assert _one(db, "SELECT last_value FROM q") == (41,)
