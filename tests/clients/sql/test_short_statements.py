"""Statements that are a transaction by themselves and need one row: prepared, they go a way of
their own (sqlproxy/session/running/short_requests.py), which must say what the usual way says.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.clients.sql.conftest import REPEATABLE_READ, Sql

pytestmark = pytest.mark.cluster


@pytest.fixture
def t(db: psycopg.Connection) -> psycopg.Connection:
    """t(id, v, n, at): a serial key, a default, a check and a generated column."""
    db.execute(
        "CREATE TABLE t (id serial PRIMARY KEY, v text NOT NULL DEFAULT 'none', n int CHECK (n < 9)"
        ", at timestamptz DEFAULT now(), twice int GENERATED ALWAYS AS (n * 2) STORED)"
    )
    db.prepare_threshold = 0
    return db


def told(conn: psycopg.Connection, text: str, *values: Any) -> Any:
    """Tag, columns and rows; or SQLSTATE and constraint."""
    try:
        cursor = conn.execute(text, values)
    except psycopg.Error as error:
        return error.sqlstate, error.diag.constraint_name, error.diag.message_primary
    names = None if cursor.description is None else [c.name for c in cursor.description]
    return cursor.statusmessage, names, None if names is None else cursor.fetchall()


STATEMENTS: list[tuple[str, tuple[Any, ...]]] = [
    ("INSERT INTO t (v, n) VALUES (%s, %s)", ("a", 1)),
    ("INSERT INTO t (n) VALUES (%s) RETURNING id, v, twice", (2,)),
    ("INSERT INTO t (v, n) VALUES (%s, %s), ('two', 4) RETURNING *, n + 1 AS more", ("b", 3)),
    ("INSERT INTO t (id, v) VALUES (%s, 'there')", (1,)),
    ("INSERT INTO t (id, v) VALUES (70, 'twice'), (%s, 'twice')", (70,)),
    ("INSERT INTO t (v) VALUES (%s)", (None,)),
    ("INSERT INTO t (n) VALUES (%s)", (99,)),
    ("INSERT INTO t (n) VALUES (1 / %s::int)", (0,)),
    ("SELECT v, n FROM t WHERE id = %s", (1,)),
    ("SELECT * FROM t WHERE id = %s AND n > 5", (1,)),
    ("SELECT v FROM t WHERE id = %s", (4_000,)),
    ("SELECT v FROM t WHERE id = %s", (None,)),
    ("SELECT id FROM t WHERE id = %s LIMIT 0", (1,)),
    ("SELECT 10 / (n - 1) FROM t WHERE id = %s", (1,)),
    ("UPDATE t SET n = n + 1, v = v || %s WHERE id = 2 RETURNING v, n, twice", ("!",)),
    ("UPDATE t SET n = n + 1 WHERE id = %s", (4_000,)),
    ("UPDATE t SET n = n + 1 WHERE id = %s AND v = 'no'", (1,)),
    ("UPDATE t SET n = 50 WHERE id = %s", (1,)),
    ("UPDATE t SET id = 2 WHERE id = %s", (1,)),
    ("UPDATE t SET v = NULL WHERE id = %s", (1,)),
    ("DELETE FROM t WHERE id = %s RETURNING id, v", (2,)),
    ("DELETE FROM t WHERE id = %s", (2,)),
    ("SELECT id, v, n, twice FROM t ORDER BY id", ()),
]

# a table without anything to compute: its rows are made by sqlproxy/tables/single_row.py
PLAIN = (
    "CREATE TABLE p (number serial, a int2, b text NOT NULL DEFAULT 'x', c numeric(6,2) DEFAULT 1.5"
    ", d date, e varchar(3), k int DEFAULT 7, PRIMARY KEY (e, k))"
)
STATEMENTS += [
    ("INSERT INTO p (a, b, e) VALUES (%s, %s, %s)", (1, "one", "e1")),
    ("INSERT INTO p (a, b, e) VALUES (%s, %s, %s)", (1, "again", "e1")),
    ("INSERT INTO p (a, c, d, e) VALUES (7, 2.345, '2026-11-22', %s)", ("e2",)),
    ("INSERT INTO p (e, k, b) VALUES ('e2', %s, DEFAULT)", (8,)),
    ("INSERT INTO p (e, c, a) VALUES (%s, NULL, %s)", ("e3", None)),
    ("INSERT INTO p (e, b) VALUES (%s, NULL)", ("e4",)),
    ("INSERT INTO p (e, b) VALUES ('e4', %s)", (None,)),
    ("INSERT INTO p (e) VALUES (%s)", (None,)),
    ("INSERT INTO p (e) VALUES (%s)", ("long",)),
    ("INSERT INTO p (e, a) VALUES ('e5', %s)", (70_000,)),
    ("INSERT INTO p (e, a) VALUES ('e5', 70000)", ()),
    ("INSERT INTO p (e, c) VALUES ('e5', %s)", (123456,)),
    ("INSERT INTO p (e, a, k) VALUES ('e6', %s + 1, 2 * %s)", (4, 5)),
    ("INSERT INTO p (e, b) VALUES ('e7', %s) RETURNING a, b, c, k", ("told",)),
    ("INSERT INTO p (e, k) VALUES ('e8', nextval('p_number_seq') * 0)", ()),
    ("INSERT INTO p VALUES (DEFAULT, %s, 'b', 1, NULL, 'e9', DEFAULT)", (3,)),
    ("SELECT a, b, c, d, e, k FROM p ORDER BY e, k", ()),
]


def test_p11_both_ways_say_the_same(sql: Sql, t: psycopg.Connection) -> None:
    """What a client is told would depend on which way its statement happened to go."""
    ddl = (
        "CREATE TABLE t (id serial PRIMARY KEY, v text NOT NULL DEFAULT 'none', n int CHECK (n < 9)"
        ", at timestamptz DEFAULT now(), twice int GENERATED ALWAYS AS (n * 2) STORED)"
    )
    t.execute(PLAIN)
    with sql.connect(autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {sql.database}_usual")
    with Sql(sql.node, f"{sql.database}_usual").connect(autocommit=True) as usual:
        usual.execute(ddl)
        usual.execute(PLAIN)
        usual.execute("SET statement_timeout = '1h'")  # then no statement goes the short way
        usual.prepare_threshold = 0
        for text, values in STATEMENTS:
            shown = text.replace("*, n", "id, v, n, twice, n").replace("SELECT *", "SELECT v")
            assert told(t, shown, *values) == told(usual, shown, *values), text


@pytest.mark.slow
def test_p11_increments_of_one_row_all_count(sql: Sql, t: psycopg.Connection) -> None:
    """An update that read an old version would lose another one."""
    t.execute("CREATE TABLE c (id int PRIMARY KEY, n int)")
    t.execute("INSERT INTO c VALUES (1, 0)")
    gate = threading.Barrier(6)

    def client(_: int) -> None:
        with sql.connect(autocommit=True, prepare_threshold=0) as conn:
            gate.wait()
            for _ in range(25):
                conn.execute("UPDATE c SET n = n + %s WHERE id = 1", (1,))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(client, range(6)))
    assert t.execute("SELECT n FROM c").fetchall() == [(150,)]


def test_p9_prepared_inserts_that_race_have_one_winner(sql: Sql, t: psycopg.Connection) -> None:
    """Global uniqueness holds where no transaction reads first."""
    t.execute("CREATE TABLE u (k text PRIMARY KEY, who int)")
    gate = threading.Barrier(6)

    def client(number: int) -> list[str]:
        found = []
        with sql.connect(autocommit=True, prepare_threshold=0) as conn:
            for n in range(20):
                gate.wait()
                text = "INSERT INTO u VALUES (%s, %s)"
                found.append(told(conn, text, f"k{n}", number)[0])
        return found

    with ThreadPoolExecutor(6) as pool:
        rounds = list(zip(*pool.map(client, range(6)), strict=True))
    for one in rounds:
        assert sorted(one) == ["23505"] * 5 + ["INSERT 0 1"], one


def test_p10_the_search_path_is_shown_as_it_can_be_set_again(t: psycopg.Connection) -> None:
    """A tool that saves it, and sets what it saved, would name another schema, or break."""
    for given, shown in [
        ('public, "$user"', 'public, "$user"'),
        ("'a, b'", '"a, b"'),
        ("'$user', public", '"$user", public'),
    ]:
        t.execute(f"SET search_path TO {given}")
        assert t.execute("SHOW search_path").fetchall() == [(shown,)]
        t.execute(f"SET search_path TO {shown}")
        assert t.execute("SHOW search_path").fetchall() == [(shown,)]
    t.execute("SET search_path = ''")
    assert t.execute("SHOW search_path").fetchall() == [('""',)]
    t.execute("RESET search_path")


def test_p10_settings_are_obeyed(t: psycopg.Connection) -> None:
    """A session that may not write, or reads the past, must not be overtaken."""
    insert = "INSERT INTO t (n) VALUES (%s)"
    assert told(t, insert, 1)[0] == "INSERT 0 1"
    t.execute("SET default_transaction_read_only = on")
    assert told(t, insert, 1)[0] == "25006"
    t.execute("SET default_transaction_read_only = off")
    assert told(t, insert, 1)[0] == "INSERT 0 1"
    version = t.execute("SELECT 1").fetchone()
    assert version == (1,)
    t.execute("SET kvorum.as_of = '-1h'")
    assert told(t, insert, 1)[0] == "25006"
    t.execute("RESET kvorum.as_of")
    with t.transaction():
        assert told(t, insert, 1)[0] == "INSERT 0 1"
        raise psycopg.Rollback
    assert t.execute("SELECT count(*) FROM t").fetchone() == (2,)


@pytest.mark.slow
def test_p9_locks_of_others_are_waited_for(sql: Sql, t: psycopg.Connection) -> None:
    """A row that a large commit holds would be refused, or written under it."""
    t.execute("CREATE TABLE w (id int PRIMARY KEY, n int)")
    t.execute("INSERT INTO w SELECT g, 0 FROM generate_series(1, 3000) AS g")
    stop = threading.Event()

    def all_rows() -> None:
        with sql.connect(autocommit=True) as conn:
            while not stop.is_set():
                conn.execute("UPDATE w SET n = n + 1")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(all_rows)
        for _ in range(60):
            t.execute("UPDATE w SET n = n + 1 WHERE id = %s", (7,))
        stop.set()
        running.result(60)
    mine = t.execute("SELECT n FROM w WHERE id = 7").fetchone()
    others = t.execute("SELECT n FROM w WHERE id = 8").fetchone()
    assert mine is not None
    assert others is not None
    assert mine[0] == others[0] + 60


def test_p4_a_table_that_changes_meanwhile(sql: Sql, t: psycopg.Connection) -> None:
    """A prepared insert would write rows of a table that is no more."""
    insert = "INSERT INTO t (n) VALUES (%s)"
    assert told(t, insert, 1)[0] == "INSERT 0 1"
    with sql.connect(autocommit=True) as other:
        other.execute("ALTER TABLE t ADD COLUMN price numeric(6,2) DEFAULT 1.5")
    assert told(t, insert, 2)[0] == "INSERT 0 1"
    with sql.connect(autocommit=True) as other:
        other.execute("CREATE UNIQUE INDEX ON t (n)")
    assert told(t, insert, 2)[:2] == ("23505", "t_n_idx")
    found = t.execute("SELECT n, price FROM t ORDER BY n").fetchall()
    assert found == [(1, Decimal("1.50")), (2, Decimal("1.50"))]
    with sql.connect(autocommit=True) as other:
        other.execute("DROP TABLE t")
    assert told(t, insert, 3)[0] == "42P01"


def test_p9_duplicate_behind_a_savepoint_is_a_duplicate(sql: Sql, t: psycopg.Connection) -> None:
    """A row written before a savepoint to which the client went back was told as 40001."""
    with (
        sql.connect(autocommit=True, options=REPEATABLE_READ) as one,
        sql.connect(autocommit=True) as other,
    ):
        one.execute("BEGIN")
        one.execute("SELECT 1 FROM t")
        one.execute("INSERT INTO t (id) VALUES (100)")
        one.execute("SAVEPOINT s")
        assert told(one, "SELECT 1 / 0")[0] == "22012"
        one.execute("ROLLBACK TO s")
        one.execute("INSERT INTO t (id) VALUES (101)")
        other.execute("INSERT INTO t (id) VALUES (100)")
        assert told(one, "COMMIT")[:2] == ("23505", "t_pkey")


@pytest.mark.few(1)
@pytest.mark.parametrize("block", [False, True])
def test_p1_inserts_of_many_rows_say_what_those_of_few_say(
    sql: Sql, t: psycopg.Connection, block: bool
) -> None:
    """Many rows are encoded column by column: order, defaults, and errors of the first bad row."""
    t.execute("CREATE UNIQUE INDEX ON t (v)")
    many = 40
    if block:
        t.execute("BEGIN")

    def insert(columns: str, row: str, bad: str = "", at: int = 30) -> Any:
        rows = [row.format(i=i) for i in range(many)]
        if bad:
            rows[at] = bad
        text = f"INSERT INTO t ({columns}) VALUES {', '.join(rows)}"
        if block:
            t.execute("SAVEPOINT one")
        found = told(t, text)
        if block and found[0] != f"INSERT 0 {many}":
            t.execute("ROLLBACK TO one")
        return found

    assert insert("v, n", "('a{i}', 1)")[0] == f"INSERT 0 {many}"
    found = t.execute("SELECT id, twice FROM t ORDER BY v").fetchall()
    assert sorted(found) == [(i, 2) for i in range(1, many + 1)]
    assert insert("v, n", "('b{i}', 1)", "('a7', 1)")[:2] == ("23505", "t_v_idx")
    assert insert("v, n", "('b{i}', 1)", "('b7', 1)")[:2] == ("23505", "t_v_idx")
    assert insert("id, v", "(1{i:03}, 'c{i}')", "(1007, 'c')")[:2] == ("23505", "t_pkey")
    assert insert("id, v", "(1{i:03}, 'c{i}')", "(7, 'c')")[:2] == ("23505", "t_pkey")
    assert insert("v, n", "('b{i}', 1)", "(NULL, 1)")[0] == "23502"
    assert insert("v, n", "('b{i}', 1)", "('b', 90)")[:2] == ("23514", "t_n_check")
    assert insert("v, n", "('b{i}', 1)", "('b', 1 / 0)")[0] == "22012"
    assert insert("id, v", "(nextval('t_id_seq'), nextval('t_id_seq')::text)")[0] == (
        f"INSERT 0 {many}"
    )
    off = "SELECT count(*) FROM t WHERE id > 40 AND id + 1 <> v::int"
    assert t.execute(off).fetchone() == (0,), "row by row, as the text says"
    select = f"INSERT INTO t (v, n) SELECT 's' || g, 2 FROM generate_series(1, {many}) AS g"
    assert told(t, select)[0] == f"INSERT 0 {many}"
    if block:
        t.execute("COMMIT")
    assert t.execute("SELECT count(*) FROM t").fetchone() == (3 * many,)
    assert t.execute("SELECT twice FROM t WHERE v = 's7'").fetchone() == (4,)
