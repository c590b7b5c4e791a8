"""How many numbers of a sequence statements take, beside PostgreSQL's answers."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def test_p13_rows_take_the_numbers_that_their_columns_need(db: psycopg.Connection) -> None:
    """Two defaults of one sequence are an error, or statements that take no number leave gaps that
    PostgreSQL does not: tests of applications that know their ids fail.
    """
    db.execute("CREATE TABLE one (id serial PRIMARY KEY, x int)")

    def next_id() -> int:
        row = db.execute("INSERT INTO one (x) VALUES (0) RETURNING id").fetchone()
        assert row is not None
        return int(row[0])

    db.execute("INSERT INTO one (id, x) VALUES (100, 1), (101, 2)")
    assert next_id() == 1
    db.execute("UPDATE one SET x = x + 1")
    assert next_id() == 2
    db.execute("INSERT INTO one (id, x) SELECT 200 + g, g FROM generate_series(1, 5) g")
    with db.cursor().copy("COPY one (id, x) FROM STDIN") as copy:
        copy.write("300\t1\n301\t2\n")
    assert next_id() == 3
    db.execute("INSERT INTO one (id, x) VALUES (400, 1), (DEFAULT, 2)")
    assert next_id() == 5, "4 was the second row's"
    db.execute("CREATE SEQUENCE s")
    db.execute("CREATE TABLE two (a int DEFAULT nextval('s'), b int DEFAULT nextval('s'), x text)")
    db.execute("INSERT INTO two (x) VALUES ('a'), ('b')")
    db.execute("INSERT INTO two (a, x) VALUES (nextval('s'), 'c')")
    db.execute("INSERT INTO two (x) SELECT 'd'")
    with db.cursor().copy("COPY two (x) FROM STDIN") as copy:
        copy.write("e\nf\n")
    found = db.execute("SELECT a, b FROM two ORDER BY x").fetchall()
    assert found[:4] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    assert sorted(n for row in found[4:] for n in row) == [9, 10, 11, 12]
    db.execute("UPDATE two SET a = DEFAULT, b = nextval('s') + nextval('s') WHERE x = 'a'")
    assert db.execute("SELECT a, b FROM two WHERE x = 'a'").fetchone() == (13, 14 + 15)
    db.execute("ALTER TABLE two ADD c int DEFAULT nextval('s') + nextval('s') NOT NULL")
    assert db.execute("SELECT count(DISTINCT c) FROM two WHERE c % 2 = 1").fetchone() == (6,)


def test_p3_pg_sequences_tells_what_was_given_out_last(db: psycopg.Connection) -> None:
    """A migration that copies sequences begins them anew, and meets keys that are there."""
    last = "SELECT last_value FROM pg_sequences WHERE sequencename = 's'"
    db.execute("CREATE SEQUENCE s")
    assert db.execute(last).fetchone() == (None,)
    db.execute("SELECT nextval('s'), nextval('s')")
    assert db.execute(last).fetchone() == (2,)
    db.execute("SELECT setval('s', 10, false)")
    assert db.execute(last).fetchone() == (None,)
    db.execute("SELECT setval('s', 10)")
    assert db.execute(last).fetchone() == (10,)


def test_p3_nextval_that_is_not_there_says_where_it_is(db: psycopg.Connection) -> None:
    """A refusal that speaks of something else is searched for in the wrong place; and nothing is
    taken, or changed.
    """
    db.execute("CREATE SEQUENCE s")
    db.execute("CREATE TABLE plain (id int PRIMARY KEY)")
    db.execute("INSERT INTO plain VALUES (nextval('s')), (nextval('s'))")
    for text in (
        "SELECT 1 FROM plain WHERE nextval('s') > 0",
        "SELECT 1 FROM plain a JOIN plain b ON nextval('s') > 0",
        "DELETE FROM plain WHERE nextval('s') > 0",
        "UPDATE plain SET id = 7 WHERE nextval('s') > 0",
        "SELECT (SELECT nextval('s') WHERE id > 0) FROM plain",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"nextval\(\) in WHERE"):
            db.execute(text)
    assert db.execute("SELECT count(*) FROM plain").fetchone() == (2,)
    assert db.execute("SELECT nextval('s')").fetchone() == (3,)


def test_p13_many_rows_take_numbers_without_gaps(db: psycopg.Connection) -> None:
    """Rows that a query makes are numbered one behind the other; what was reserved for rows that
    took none goes back.
    """
    db.execute("CREATE SEQUENCE s")
    db.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int, x text)")
    db.execute("INSERT INTO t SELECT nextval('s'), g, 'n' || g FROM generate_series(1, 5000) g")
    assert db.execute("SELECT min(id), max(id), count(*) FROM t").fetchone() == (1, 5000, 5000)
    taken = db.execute(
        "SELECT CASE WHEN n % 10 = 0 THEN nextval('s') END FROM t ORDER BY n"
    ).fetchall()
    assert [n for (n,) in taken if n is not None] == list(range(5001, 5501))
    first = db.execute("SELECT nextval('s') FROM t ORDER BY n LIMIT 2 OFFSET 1").fetchall()
    assert first == [(5502,), (5503,)]
    db.execute("UPDATE t SET id = nextval('s') WHERE n <= 3000")
    assert db.execute("SELECT nextval('s')").fetchone() == (8504,)
    assert db.execute("SELECT last_value, is_called FROM s").fetchone() == (8504, True)
    text = "COPY (SELECT nextval('s'), n FROM t WHERE n < 3 ORDER BY n) TO STDOUT"
    with db.cursor().copy(text) as copy:
        assert list(copy.rows()) == [("8505", "1"), ("8506", "2")]
    assert db.execute("SELECT lastval()").fetchone() == (8506,)


def test_p13_clients_at_once_have_numbers_of_their_own(sql: Sql) -> None:
    """Queries that reserve in blocks and give back what they did not use, beside each other: two
    rows would have one number.
    """
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE SEQUENCE s CACHE 3")
        db.execute("CREATE TABLE t (id bigint PRIMARY KEY, who int)")
        db.execute("CREATE TABLE g (n int PRIMARY KEY)")
        db.execute("INSERT INTO g SELECT generate_series(1, 200)")
    found: list[int] = []
    failed: list[Exception] = []

    def client(who: int) -> None:
        try:
            with sql.connect(autocommit=True) as db:
                for round in range(6):
                    db.execute(
                        "INSERT INTO t SELECT nextval('s'), %s FROM g WHERE n <= %s",
                        (who, 30 * (round + 1)),
                    )
                    rows = db.execute(
                        "SELECT CASE WHEN n %% 3 = %s THEN nextval('s') END FROM g", (who % 3,)
                    ).fetchall()
                    found.extend(n for (n,) in rows if n is not None)
        except (psycopg.Error, AssertionError) as error:
            failed.append(error)

    threads = [threading.Thread(target=client, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with sql.connect(autocommit=True) as db:
        rows = db.execute("SELECT id FROM t").fetchall()
        every = [*found, *(n for (n,) in rows)]
        assert len(every) == len(set(every)) > 4000
        after = db.execute("SELECT nextval('s')").fetchone()
        assert after is not None
        assert after[0] > max(every)


def test_p10_copy_names_the_line_and_column_of_what_is_too_long(db: psycopg.Connection) -> None:
    """Of a file of many lines nobody would know which one to mend."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a varchar(4), n numeric(3,1))")
    for rows, state, where in (
        ("1\tabcd\t1\n2\tabcde\t1\n", "22001", 'COPY t, line 2, column a: "abcde"'),
        ("1\tabcd\t123.4\n", "22003", 'COPY t, line 1, column n: "123.4"'),
    ):
        with (
            pytest.raises(psycopg.Error) as caught,
            db.cursor().copy("COPY t FROM STDIN") as copy,
        ):
            copy.write(rows)
        assert (caught.value.sqlstate, caught.value.diag.context) == (state, where)
    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
