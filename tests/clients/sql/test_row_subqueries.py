"""Subqueries where one row is written: what they see, who may ask them, and statements that run
again. What they answer is compared with PostgreSQL in tests/sqlproxy/compare/rows.sql.
"""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_numbers_by_the_highest_have_no_twins(sql: Sql) -> None:
    """A statement that runs again behind a conflict would keep what its subquery read before."""
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE q (id int PRIMARY KEY, n int)")
    done: list[int] = []

    def insert() -> None:
        with sql.connect(autocommit=True) as db:
            for _ in range(20):
                try:
                    row = db.execute(
                        "INSERT INTO q VALUES ((SELECT coalesce(max(id), 0) + 1 FROM q), 0) "
                        "ON CONFLICT (id) DO UPDATE SET n = (SELECT max(n) FROM q) + 1 RETURNING id"
                    ).fetchone()
                except (psycopg.errors.UniqueViolation, psycopg.errors.SerializationFailure):
                    continue
                assert row is not None
                done.append(row[0])

    threads = [threading.Thread(target=insert) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    with sql.connect(autocommit=True) as db:
        found = [row[0] for row in db.execute("SELECT id FROM q ORDER BY id")]
    assert found == list(range(1, len(found) + 1))
    assert set(done) == set(found)


def test_many_rows_each_with_its_own_subquery(db: psycopg.Connection) -> None:
    """Seeds look up a key for every row that they insert."""
    db.execute("CREATE TABLE kind (id int PRIMARY KEY, name text UNIQUE)")
    db.execute("INSERT INTO kind SELECT g, 'k' || g FROM generate_series(1, 50) g")
    db.execute("CREATE TABLE thing (id int PRIMARY KEY, kind int REFERENCES kind)")
    found_by = "SELECT id FROM kind WHERE name ="
    rows = ", ".join(f"({n}, ({found_by} 'k{n % 50 + 1}'))" for n in range(300))
    found = db.execute(
        f"INSERT INTO thing VALUES {rows} RETURNING id, kind, "
        "(SELECT name FROM kind WHERE kind.id = thing.kind)".encode()
    ).fetchall()
    assert found == [(n, n % 50 + 1, f"k{n % 50 + 1}") for n in range(300)]


def test_a_subquery_of_a_row_needs_the_right_to_read(sql: Sql) -> None:
    """What a user may not read would come out of RETURNING or a unique key."""
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE secret (n int); INSERT INTO secret VALUES (7)")
        db.execute("CREATE TABLE open (id int PRIMARY KEY, n int); INSERT INTO open VALUES (1, 1)")
        db.execute("DROP ROLE IF EXISTS row_reader; CREATE ROLE row_reader LOGIN")
        db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON open TO row_reader")
        db.execute("SET ROLE row_reader")
        for statement in (
            "INSERT INTO open VALUES (2, (SELECT n FROM secret))",
            "INSERT INTO open VALUES (2, 1) RETURNING (SELECT n FROM secret)",
            "INSERT INTO open VALUES (2, 1) RETURNING EXISTS (SELECT FROM secret WHERE n = open.n)",
            "INSERT INTO open VALUES (1, 1) ON CONFLICT (id) DO UPDATE "
            "SET n = (SELECT n FROM secret)",
            "INSERT INTO open VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 1 "
            "WHERE open.n IN (SELECT n FROM secret)",
            "UPDATE open SET n = 2 RETURNING (SELECT n FROM secret)",
            "DELETE FROM open RETURNING (SELECT n FROM secret)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement.encode())
        assert db.execute("SELECT * FROM open").fetchall() == [(1, 1)]
        db.execute("RESET ROLE")
