"""How many numbers of a sequence statements take, beside PostgreSQL's answers."""

from __future__ import annotations

import psycopg
import pytest

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
    assert next_id() in (5, 6), "4 was the second row's"
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
    """The refusal spoke of the default of another column, and there was none."""
    db.execute("CREATE SEQUENCE s")
    db.execute("CREATE TABLE plain (id int PRIMARY KEY)")
    db.execute("INSERT INTO plain VALUES (nextval('s')), (nextval('s'))")
    for text in ("SELECT nextval('s') FROM plain", "DELETE FROM plain RETURNING nextval('s')"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="for the rows of a query"):
            db.execute(text)
    assert db.execute("SELECT count(*) FROM plain").fetchone() == (2,)
