"""ctid, tableoid, xmin and their like: what editors of tables without a key, "delete duplicates by
ctid" and EF Core's concurrency tokens do with them.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def test_duplicates_are_deleted_by_ctid(db: psycopg.Connection) -> None:
    """All of the twins would go, or none, in the table that has nothing else to tell them."""
    db.execute("CREATE TABLE d (a int, b text)")
    db.execute("INSERT INTO d SELECT g % 3, 'x' FROM generate_series(1, 30) g")
    assert db.execute("SELECT count(DISTINCT ctid), count(*) FROM d").fetchone() == (30, 30)
    gone = db.execute("DELETE FROM d x USING d y WHERE x.ctid < y.ctid AND x.a = y.a").rowcount
    assert gone == 27
    db.execute("INSERT INTO d SELECT * FROM d")
    db.execute("DELETE FROM d WHERE ctid NOT IN (SELECT min(ctid) FROM d GROUP BY a, b)")
    assert db.execute("SELECT * FROM d ORDER BY a").fetchall() == [(0, "x"), (1, "x"), (2, "x")]
    some = "SELECT ctid FROM d ORDER BY ctid LIMIT 2"
    assert db.execute(f"DELETE FROM d WHERE ctid = ANY (ARRAY({some}))".encode()).rowcount == 2


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"])
def test_a_row_is_found_again_by_its_ctid(db: psycopg.Connection, key: str) -> None:
    """Table editors read ctid with the row and write by it; it comes as text, and in binary."""
    db.execute(f"CREATE TABLE t (k text {key}, n int)".encode())
    db.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    at = dict(db.execute("SELECT k, ctid FROM t").fetchall())
    assert len(set(at.values())) == 2
    told = db.execute("UPDATE t SET n = n + 10 WHERE ctid = %s RETURNING k, n", (at["a"],))
    assert told.fetchall() == [("a", 11)]
    with db.cursor(binary=True) as cursor:
        raw = cursor.execute("SELECT ctid FROM t WHERE k = 'a'").fetchone()
    block, place = at["a"].strip("()").split(",")
    assert raw == (int(block).to_bytes(4) + int(place).to_bytes(2),)
    returned = db.execute("INSERT INTO t VALUES ('c', 3) RETURNING ctid, *").fetchone()
    assert returned is not None
    assert returned[1:] == ("c", 3)
    assert db.execute("DELETE FROM t WHERE ctid = %s", (returned[0],)).rowcount == 1
    assert db.execute("SELECT * FROM t ORDER BY k").fetchall() == [("a", 11), ("b", 2)]


def test_xmin_tells_whether_somebody_else_wrote(sql: Sql) -> None:
    """EF Core keeps the xmin that RETURNING says, and updates only where it is still the same:
    behind the commit it would be another one, or stay the same when the row changes.
    """
    with sql.connect() as one, sql.connect(autocommit=True) as two:
        two.execute("CREATE TABLE t (id int PRIMARY KEY, n int, at timestamptz DEFAULT now())")
        told = one.execute("INSERT INTO t VALUES (1, 0) RETURNING xmin").fetchone()
        assert told is not None
        one.commit()
        update = "UPDATE t SET n = n + 1 WHERE id = 1 AND xmin = %s RETURNING xmin"
        assert two.execute("SELECT xmin FROM t").fetchone() == told
        after = one.execute(update, told).fetchone()
        one.commit()
        assert after is not None
        assert after != told
        assert two.execute(update, told).fetchone() is None
        assert two.execute("SELECT t.xmin FROM t JOIN (SELECT 1) x ON true").fetchone() == after


def test_what_else_a_row_has(db: psycopg.Connection) -> None:
    """tableoid names the table; what an outer join makes up has none; no * shows them."""
    db.execute("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int)")
    db.execute("INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1)")
    asked = "SELECT c.tableoid, c.ctid IS NULL, c.xmax, c.cmin, *"
    found = db.execute(f"{asked} FROM p LEFT JOIN c USING (id) ORDER BY id".encode()).fetchall()
    oid = db.execute("SELECT oid FROM pg_class WHERE relname = 'c'").fetchone()
    assert oid is not None
    assert found == [(oid[0], False, "0", "0", 1), (None, True, None, None, 2)]
    assert db.execute("SELECT tableoid::regclass FROM p WHERE id = 1").fetchone() == ("p",)
    cursor = db.execute("SELECT xmin, * FROM c LIMIT 0")
    assert cursor.description is not None
    assert [one.name for one in cursor.description] == ["xmin", "id"]
    with pytest.raises(psycopg.errors.AmbiguousColumn):
        db.execute("SELECT ctid FROM p, c")
    for name in ("ctid", "xmin", "tableoid", "cmax"):
        with pytest.raises(psycopg.errors.DuplicateColumn, match="system column"):
            db.execute(f"CREATE TABLE bad (id int, {name} int)".encode())


def test_tableoid_is_compared_as_the_number_that_it_is(db: psycopg.Connection) -> None:
    """A regclass is held as a name: compared in an array, grouped or sorted it would be another
    thing than the number beside it, and no row would be found.
    """
    db.execute('CREATE TABLE "T x" (id int PRIMARY KEY, n int); CREATE TABLE u (n int)')
    db.execute('INSERT INTO "T x" VALUES (1, 2), (2, 5); INSERT INTO u VALUES (5)')
    name = "'\"T x\"'::regclass"
    for where in (
        f"tableoid = {name}",
        f"{name} = tableoid",
        f"tableoid::regclass = {name}",
        f"tableoid = {name}::oid",
        f"tableoid = ANY (ARRAY[{name}, 'u'::regclass])",
        f"tableoid IN ({name}, 'u'::regclass)",
        "tableoid <> 'u'::regclass",
        "tableoid::regclass::text = '\"T x\"'",
    ):
        found = db.execute(f'SELECT id FROM "T x" WHERE {where} ORDER BY id'.encode())
        assert found.fetchall() == [(1,), (2,)], where
    for text, expected in (
        ("SELECT tableoid::regclass, count(*) FROM {} GROUP BY tableoid", [('"T x"', 2)]),
        ("SELECT tableoid::regclass AS r, id FROM {} ORDER BY r, id DESC LIMIT 1", [('"T x"', 2)]),
        (
            "SELECT tableoid::regclass FROM {} UNION SELECT tableoid::regclass FROM u ORDER BY 1",
            None,
        ),
        (
            "SELECT x.id, u.tableoid::regclass FROM {} x LEFT JOIN u USING (n) ORDER BY 1",
            [(1, None), (2, "u")],
        ),
        ("SELECT tableoid::regclass || '', 't'::text FROM {} LIMIT 1", [('"T x"', "t")]),
    ):
        asked = text.format('"T x"').encode()
        if expected is None:
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="oid or text"):
                db.execute(asked)
        else:
            assert db.execute(asked).fetchall() == expected
    named = db.execute('SELECT (1258 + id)::oid::regclass, 99::regclass FROM "T x" WHERE id = 1')
    assert named.fetchall() == [("pg_class", "99")]
    found = db.execute('SELECT (22 + id)::oid::regtype FROM "T x" ORDER BY id')
    assert found.fetchall() == [("integer",), ("regproc",)]


@pytest.mark.parametrize("key", ["", "bigint PRIMARY KEY", "smallint PRIMARY KEY"])
def test_one_row_is_read_where_its_place_is_given(db: psycopg.Connection, key: str) -> None:
    """A table editor's UPDATE of one row would read and lock the whole table."""
    column = f", k {key}" if key else ""
    db.execute(f"CREATE TABLE t (n int {column})".encode())
    db.execute(
        "INSERT INTO t SELECT g, g FROM generate_series(1, 5) g"
        if key
        else "INSERT INTO t SELECT g FROM generate_series(1, 5) g"
    )
    places = [row[0] for row in db.execute("SELECT ctid FROM t ORDER BY n")]
    plan = db.execute(f"EXPLAIN SELECT * FROM t WHERE ctid = '{places[2]}'".encode()).fetchall()
    assert "Seq Scan" not in str(plan)
    for at, place in enumerate(places, 1):
        told = db.execute(f"UPDATE t SET n = n + 10 WHERE '{place}' = ctid RETURNING n".encode())
        assert told.fetchall() == [(at + 10,)]
    beyond = "SELECT n FROM t WHERE ctid IN ('(4294967295,1)', '(100000,1)')"
    assert db.execute(beyond).fetchall() == []
