"""What a table demands of its rows, asked for and refused as PostgreSQL does it."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from tests.clients.sql.conftest import REPEATABLE_READ, Sql

pytestmark = pytest.mark.cluster


def refused(db: psycopg.Connection, text: str, *values: Any) -> tuple[str | None, str | None]:
    """SQLSTATE and constraint (or column) of the refusal."""
    with pytest.raises(psycopg.Error) as caught:
        db.execute(text, values)
    diag = caught.value.diag
    return caught.value.sqlstate, diag.constraint_name or diag.column_name


def test_p4_not_null_and_checks(db: psycopg.Connection) -> None:
    """Bad rows are named by constraint, none of their statement stays."""
    db.execute(
        "CREATE TABLE c (id int PRIMARY KEY, a int NOT NULL, b int CHECK (b > 0),"
        " CONSTRAINT ordered CHECK (a < b))"
    )
    assert refused(db, "INSERT INTO c VALUES (1, NULL, 1)") == ("23502", "a")
    assert refused(db, "INSERT INTO c VALUES (1, -9, 0)") == ("23514", "c_b_check")
    assert refused(db, "INSERT INTO c VALUES (1, 5, 5)") == ("23514", "ordered")
    assert refused(db, "INSERT INTO c VALUES (1, 1, 2), (2, 3, 2)") == ("23514", "ordered")
    db.execute("INSERT INTO c VALUES (1, 1, NULL), (2, 1, 2)")
    assert refused(db, "UPDATE c SET a = a + 1") == ("23514", "ordered")
    assert refused(db, "UPDATE c SET a = NULL WHERE id = 1") == ("23502", "a")
    assert db.execute("SELECT id, a, b FROM c ORDER BY id").fetchall() == [(1, 1, None), (2, 1, 2)]


def test_p5_unique_keys(db: psycopg.Connection) -> None:
    """Single and composite; NULLs are never equal; updates and deletes free a key."""
    db.execute(
        "CREATE TABLE u (a int, b text, c int UNIQUE, d int, PRIMARY KEY (a, b), UNIQUE (c, d))"
    )
    db.execute("INSERT INTO u VALUES (1, 'x', 1, NULL), (1, 'y', NULL, 5), (2, 'x', NULL, 5)")
    assert refused(db, "INSERT INTO u VALUES (1, 'x', 9, 9)") == ("23505", "u_pkey")
    assert refused(db, "INSERT INTO u VALUES (3, 'x', 1, 9)") == ("23505", "u_c_key")
    assert refused(db, "INSERT INTO u VALUES (4, 'x', 7, 7), (5, 'x', 7, 7)")[0] == "23505"
    assert refused(db, "UPDATE u SET b = 'x' WHERE b = 'y'") == ("23505", "u_pkey")
    db.execute("UPDATE u SET c = 2 WHERE c = 1")
    db.execute("INSERT INTO u VALUES (3, 'x', 1, 9)")
    db.execute("DELETE FROM u WHERE c = 2")
    db.execute("INSERT INTO u VALUES (1, 'x', 2, 2)")
    found = db.execute("SELECT a, b, c, d FROM u ORDER BY a, b").fetchall()
    assert found == [(1, "x", 2, 2), (1, "y", None, 5), (2, "x", None, 5), (3, "x", 1, 9)]
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        db.execute("INSERT INTO u VALUES (3, 'x', 8, 9)")
    assert caught.value.diag.message_detail == "Key (a, b)=(3, x) already exists."


def test_p5_update_may_move_keys_along(db: psycopg.Connection) -> None:
    """A row whose key moves takes its index entries along; the old key is free at once."""
    db.execute("CREATE TABLE m (id int PRIMARY KEY, v text)")
    db.execute("CREATE INDEX ON m (v)")
    db.execute("INSERT INTO m VALUES (1, 'a'), (2, 'b')")
    db.execute("UPDATE m SET id = 10, v = 'c' WHERE id = 1")
    assert db.execute("SELECT id FROM m WHERE v = 'c'").fetchall() == [(10,)]
    assert db.execute("SELECT id FROM m WHERE v = 'a'").fetchall() == []
    db.execute("INSERT INTO m VALUES (1, 'a')")
    assert db.execute("SELECT id FROM m ORDER BY v").fetchall() == [(1,), (2,), (10,)]


@pytest.fixture
def family(db: psycopg.Connection) -> psycopg.Connection:
    db.execute("CREATE TABLE p (id int PRIMARY KEY, code text UNIQUE)")
    db.execute("INSERT INTO p VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    return db


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("action", "deleted", "updated"),
    [
        ("", None, None),
        ("RESTRICT", None, None),
        ("CASCADE", [(2, 2)], [(1, 9), (2, 2)]),
        ("SET NULL", [(1, None), (2, 2)], [(1, None), (2, 2)]),
        ("SET DEFAULT", [(1, 3), (2, 2)], [(1, 3), (2, 2)]),
    ],
)
def test_p5_foreign_keys_do_what_they_say(
    family: psycopg.Connection, action: str, deleted: Any, updated: Any
) -> None:
    """Every action on a parent that is deleted, and on one whose key changes."""
    rules = f"ON DELETE {action} ON UPDATE {action}" if action else ""
    family.execute(f"CREATE TABLE k (id int PRIMARY KEY, p int DEFAULT 3 REFERENCES p {rules})")
    for change, wanted in (
        ("DELETE FROM p WHERE id = 1", deleted),
        ("UPDATE p SET id = 9 WHERE id = 1", updated),
    ):
        family.execute("INSERT INTO k VALUES (1, 1), (2, 2)")
        if wanted is None:
            assert refused(family, change) == ("23503", "k_p_fkey")
            wanted = [(1, 1), (2, 2)]
        else:
            family.execute(change)
        assert family.execute("SELECT id, p FROM k ORDER BY id").fetchall() == wanted
        family.execute("DELETE FROM k")
        family.execute("INSERT INTO p VALUES (1, 'one') ON CONFLICT DO NOTHING")
        family.execute("DELETE FROM p WHERE id = 9")
        family.execute("INSERT INTO p VALUES (1, 'one') ON CONFLICT DO NOTHING")
    assert refused(family, "INSERT INTO k VALUES (7, 77)") == ("23503", "k_p_fkey")
    family.execute("INSERT INTO k VALUES (8, 2)")
    assert refused(family, "UPDATE k SET p = 77 WHERE id = 8") == ("23503", "k_p_fkey")
    assert refused(family, "TRUNCATE p")[0] == "0A000"
    assert refused(family, "DROP TABLE p")[0] == "2BP01"


def test_p5_foreign_key_to_a_unique_key_and_to_itself(family: psycopg.Connection) -> None:
    """A tree in one table, and references to what is unique but not primary."""
    family.execute("CREATE TABLE k (code text REFERENCES p (code) ON DELETE CASCADE, n int)")
    family.execute("INSERT INTO k VALUES ('one', 1), ('two', 2), (NULL, 3)")
    family.execute("DELETE FROM p WHERE id = 1")
    assert family.execute("SELECT n FROM k ORDER BY n").fetchall() == [(2,), (3,)]
    family.execute(
        "CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree ON DELETE CASCADE)"
    )
    family.execute("INSERT INTO tree VALUES (3, 2), (2, 1), (1, NULL), (4, 4)")
    family.execute("DELETE FROM tree WHERE id = 1")
    assert family.execute("SELECT id FROM tree").fetchall() == [(4,)]
    family.execute("DELETE FROM tree WHERE id = 4")


def test_p5_parent_and_child_race(sql: Sql, family: psycopg.Connection) -> None:
    """A child that comes while its parent goes: only one of both is committed."""
    family.execute("CREATE TABLE k (id int PRIMARY KEY, p int REFERENCES p)")
    options = REPEATABLE_READ
    with sql.connect(options=options) as one, sql.connect(options=options) as two:
        one.execute("DELETE FROM p WHERE id = 1")
        two.execute("INSERT INTO k VALUES (1, 1)")
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            two.commit()
        two.execute("INSERT INTO k VALUES (2, 2)")
        one.execute("DELETE FROM p WHERE id = 2")
        two.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            one.commit()
    assert family.execute("SELECT id FROM p ORDER BY id").fetchall() == [(2,), (3,)]
    assert family.execute("SELECT p FROM k").fetchall() == [(2,)]


def test_p13_numbers_defaults_and_generated_columns(db: psycopg.Connection) -> None:
    """serial, identity, sequences, defaults, generated columns, SET a = a + 1."""
    db.execute(
        "CREATE TABLE g (id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY,"
        " a int DEFAULT 5, d int GENERATED ALWAYS AS (a * 2) STORED,"
        " at timestamptz DEFAULT now(), s text DEFAULT 'x')"
    )
    first = db.execute("INSERT INTO g DEFAULT VALUES RETURNING id, n, a, d, s").fetchone()
    assert first is not None
    assert first[2:] == (5, 10, "x")
    assert db.execute("SELECT currval('g_id_seq'), lastval()").fetchone() == first[:2]
    assert refused(db, "INSERT INTO g (n) VALUES (3)")[0] == "428C9"
    assert refused(db, "INSERT INTO g (d) VALUES (3)")[0] == "428C9"
    db.execute("INSERT INTO g (id, n) OVERRIDING SYSTEM VALUE VALUES (1000, 3)")
    db.execute("UPDATE g SET a = a + 1, s = DEFAULT WHERE id = %s", (first[0],))
    found = db.execute("SELECT a, d FROM g WHERE id = %s", (first[0],)).fetchone()
    assert found == (6, 12)
    db.execute("CREATE SEQUENCE q START 10 INCREMENT 5")
    assert db.execute("SELECT nextval('q')").fetchone() == (10,)
    assert db.execute("SELECT nextval('q')").fetchone() == (15,)
    # each call of one row takes a number of its own
    assert db.execute("SELECT nextval('q'), nextval('q') + nextval('q')").fetchone() == (20, 55)
    rows = db.execute("VALUES (nextval('q'), nextval('q')), (0, nextval('q'))").fetchall()
    assert rows == [(35, 40), (0, 45)]
    ids = [db.execute("INSERT INTO g DEFAULT VALUES RETURNING id").fetchone() for _ in range(20)]
    assert len(set(ids)) == 20
    with pytest.raises(psycopg.errors.UndefinedTable):
        db.execute("SELECT nextval('nobodys')")


def test_p13_on_update_current_timestamp(db: psycopg.Connection) -> None:
    """A column that tells when its row was last changed, unless the user says otherwise."""
    db.execute(
        "CREATE TABLE o (id int PRIMARY KEY, v int,"
        " at timestamptz DEFAULT now() ON UPDATE CURRENT_TIMESTAMP)"
    )
    db.execute("INSERT INTO o VALUES (1, 1), (2, 2)")

    def at(key: int) -> Any:
        row = db.execute("SELECT at FROM o WHERE id = %s", (key,)).fetchone()
        assert row is not None
        return row[0]

    before, other = at(1), at(2)
    time.sleep(0.01)
    db.execute("UPDATE o SET v = v + 1 WHERE id = 1")
    assert at(1) > before
    assert at(2) == other
    db.execute("UPDATE o SET at = %s WHERE id = 1", (before,))
    assert at(1) == before


def test_p12_returning(db: psycopg.Connection) -> None:
    """INSERT and UPDATE return the new row, DELETE the old one, expressions included."""
    db.execute("CREATE TABLE r (id int PRIMARY KEY, v int DEFAULT 7)")
    got = db.execute("INSERT INTO r (id) VALUES (1), (2) RETURNING *, v * 2 AS w").fetchall()
    assert got == [(1, 7, 14), (2, 7, 14)]
    got = db.execute("UPDATE r SET v = v + id RETURNING r.id, v").fetchall()
    assert got == [(1, 8), (2, 9)]
    assert db.execute("DELETE FROM r WHERE id = 2 RETURNING *").fetchall() == [(2, 9)]
    assert db.execute("DELETE FROM r WHERE id = 2 RETURNING *").fetchall() == []


def test_p1_on_conflict(db: psycopg.Connection) -> None:
    """DO NOTHING, DO UPDATE with EXCLUDED and WHERE, by columns and by constraint."""
    db.execute("CREATE TABLE f (id int PRIMARY KEY, k text UNIQUE, n int DEFAULT 0)")
    db.execute("INSERT INTO f VALUES (1, 'a', 1)")
    cur = db.execute("INSERT INTO f VALUES (1, 'z', 2), (2, 'b', 2) ON CONFLICT DO NOTHING")
    assert cur.rowcount == 1
    add = (
        "INSERT INTO f VALUES (%s, %s, %s) ON CONFLICT ({}) DO UPDATE"
        " SET n = f.n + EXCLUDED.n WHERE f.n < 100 RETURNING id, n"
    )
    assert db.execute(add.format("id"), (1, "q", 10)).fetchall() == [(1, 11)]
    assert db.execute(add.format("k"), (77, "a", 100)).fetchall() == [(1, 111)]
    assert db.execute(add.format("id"), (1, "q", 10)).fetchall() == []
    assert refused(db, add.format("id"), 9, "a", 1) == ("23505", "f_k_key")
    assert (
        refused(
            db, "INSERT INTO f VALUES (5, 'e', 1), (5, 'f', 1) ON CONFLICT (id) DO UPDATE SET n = 3"
        )[0]
        == "21000"
    )
    db.execute("INSERT INTO f VALUES (1, 'c', 5) ON CONFLICT ON CONSTRAINT f_pkey DO NOTHING")
    assert refused(db, "INSERT INTO f VALUES (1, 'c', 5) ON CONFLICT (n) DO NOTHING")[0] == "42P10"


def test_p1_insert_select_truncate_and_views(db: psycopg.Connection) -> None:
    """Rows from a query, all rows gone, and a name for a query."""
    db.execute("CREATE TABLE s (id serial PRIMARY KEY, v int)")
    db.execute("INSERT INTO s (v) VALUES (1), (2), (3)")
    assert db.execute("INSERT INTO s (v) SELECT v * 10 FROM s WHERE v > 1").rowcount == 2
    db.execute("CREATE VIEW big AS SELECT id, v AS value FROM s WHERE v >= 10")
    assert db.execute("SELECT value FROM big ORDER BY value").fetchall() == [(20,), (30,)]
    assert refused(db, "DROP TABLE s")[0] == "2BP01"
    db.execute("TRUNCATE s RESTART IDENTITY")
    assert db.execute("SELECT * FROM big").fetchall() == []
    assert db.execute("INSERT INTO s (v) VALUES (9) RETURNING id").fetchone() == (1,)
    db.execute("DROP VIEW big")
    db.execute("DROP TABLE s")


def test_p4_definitions_that_make_no_sense(db: psycopg.Connection) -> None:
    """Errors of definitions carry PostgreSQL's SQLSTATEs."""
    db.execute("CREATE TABLE x (id int PRIMARY KEY)")
    for text, state in (
        ("CREATE TABLE x (id int)", "42P07"),
        ("CREATE TABLE y (a int, a int)", "42701"),
        ("CREATE TABLE y (a nothing)", "42704"),
        ("CREATE TABLE y (a int DEFAULT 'x')", "22P02"),
        ("CREATE TABLE y (a int PRIMARY KEY, b int PRIMARY KEY)", "42P16"),
        ("CREATE TABLE y (a int, PRIMARY KEY (b))", "42703"),
        ("CREATE TABLE y (a int REFERENCES nowhere)", "42P01"),
        ("CREATE TABLE y (a text REFERENCES x)", "42804"),
        ("CREATE TABLE y (a int CHECK (b > 1))", "42703"),
        ("DROP TABLE nowhere", "42P01"),
        ("CREATE INDEX i ON x (nothing)", "42703"),
        ("CREATE TABLE y (a int) PARTITION BY RANGE (a)", "0A000"),
        ("CREATE TEMP TABLE public.y (a int)", "42P16"),
    ):
        assert refused(db, text)[0] == state, text
    db.execute("CREATE TABLE IF NOT EXISTS x (id int)")
    db.execute("DROP TABLE IF EXISTS nowhere")
