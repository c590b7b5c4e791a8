"""Statements that change many rows do what as many statements about one row each do."""

from __future__ import annotations

import random
from typing import Any, Final

import psycopg
import pytest

_CONFLICTS: Final = (
    "ON CONFLICT DO NOTHING",
    "ON CONFLICT (id) DO NOTHING",
    "ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v",
    "ON CONFLICT (id) DO UPDATE SET v = excluded.v WHERE t.v < excluded.v",
    "ON CONFLICT (u) DO UPDATE SET v = excluded.v, w = 'again'",
    "ON CONFLICT (id) DO UPDATE SET u = excluded.u",
    "ON CONFLICT (id) DO UPDATE SET v = NULL",
)
_LEVELS: Final = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def _made(db: psycopg.Connection) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, v int NOT NULL DEFAULT 7, w text)"
    )
    db.execute("CREATE INDEX t_v ON t (v DESC) INCLUDE (w)")
    db.execute("CREATE INDEX t_w ON t (w) WHERE v > 3")


def _rows(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    """All of them, which both indexes have, too."""
    rows = db.execute("SELECT id, u, v, w FROM t ORDER BY id").fetchall()
    by_v = db.execute("SELECT v, w, id FROM t WHERE v IS NOT NULL ORDER BY v, id").fetchall()
    assert by_v == sorted(((v, w, n) for n, _, v, w in rows), key=lambda row: (row[0], row[2]))
    by_w = db.execute("SELECT id FROM t WHERE w IS NOT NULL AND v > 3 ORDER BY id").fetchall()
    assert by_w == [(n,) for n, _, v, w in rows if w is not None and v > 3]
    by_u = db.execute("SELECT u FROM t WHERE u >= 0 ORDER BY u").fetchall()
    assert by_u == sorted((u,) for _, u, _, _ in rows if u is not None)
    return rows


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("conflict", _CONFLICTS)
def test_many_rows_on_conflict_are_as_each_alone(sql: Any, conflict: str) -> None:
    """A row that is there is written twice, or one that is not is taken for another."""
    chance = random.Random(conflict)
    with sql.connect(autocommit=True) as db:
        _made(db)
        db.execute("INSERT INTO t SELECT i, 100 - i, i % 9 FROM generate_series(0, 39) i")
        for strange in (0.0, 0.0, 0.05):
            ids = chance.sample(range(80), 30)
            given = []
            for number in ids:
                own = 100 - number if chance.random() >= strange else chance.randrange(60, 101)
                given.append((number, chance.choice((own, own, None)), chance.randrange(9)))
            results: list[object] = []
            for statements in ([given], [[row] for row in given]):
                returned = list[tuple[Any, ...]]()
                with db.transaction(force_rollback=True):
                    try:
                        with db.transaction():
                            for rows in statements:
                                listed = ", ".join(str(row).replace("None", "NULL") for row in rows)
                                text = f"INSERT INTO t (id, u, v) VALUES {listed} {conflict} "
                                done = db.execute(f"{text} RETURNING *".encode())
                                returned += done.fetchall()
                    except psycopg.Error as error:
                        results.append(error.sqlstate)
                    else:
                        results.append((returned, _rows(db)))
            assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("level", _LEVELS)
def test_many_changed_rows_can_be_taken_back(sql: Any, level: str) -> None:
    """What a savepoint has of them stays in an index; or the block sees its rows as they were."""
    with sql.connect(autocommit=True) as db, sql.connect() as block:
        _made(db)
        db.execute("INSERT INTO t SELECT i, i, i % 9, 'w' || i FROM generate_series(0, 199) i")
        before = _rows(db)
        block.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        block.execute("UPDATE t SET v = v + 1, w = NULL WHERE id % 3 = 0")
        once = _rows(block)
        block.execute("SAVEPOINT s")
        block.execute("UPDATE t SET id = id + 1000, u = u + 1000 WHERE v > 2")
        block.execute("DELETE FROM t WHERE id >= 1000 AND v < 6")
        block.execute("UPDATE t SET v = 0, w = 'x'")
        assert {(v, w) for _, _, v, w in _rows(block)} == {(0, "x")}
        with pytest.raises(psycopg.errors.UniqueViolation), block.transaction():
            block.execute("UPDATE t SET u = 5")
        with pytest.raises(psycopg.errors.NotNullViolation), block.transaction():
            block.execute("UPDATE t SET v = CASE WHEN id > 100 THEN NULL ELSE v END")
        block.execute("ROLLBACK TO s")
        assert _rows(block) == once
        block.execute("DELETE FROM t WHERE id % 2 = 0")
        assert _rows(db) == before
        block.commit()
        assert _rows(db) == [row for row in once if row[0] % 2]


@pytest.mark.few(2)
@pytest.mark.parametrize("level", _LEVELS[1:])
@pytest.mark.parametrize(
    "change", ["UPDATE t SET v = v + 1", "DELETE FROM t", "UPDATE t SET u = -id"]
)
def test_of_two_who_change_many_rows_one_is_refused(sql: Any, level: str, change: str) -> None:
    """A change is lost."""
    with sql.connect(autocommit=True) as db, sql.connect() as one, sql.connect() as other:
        _made(db)
        db.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 60) i")
        for block in (one, other):
            block.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            block.execute("SELECT count(*) FROM t")
        one.execute(change.encode())
        other.execute("UPDATE t SET v = 1 WHERE id = 30")
        other.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            one.commit()
        assert db.execute("SELECT v FROM t WHERE id = 30").fetchall() == [(1,)]
        assert len(_rows(db)) == 60


@pytest.mark.slow
def test_at_read_committed_many_rows_are_changed_as_they_are_by_then(sql: Any) -> None:
    """An UPDATE of many rows takes back what was committed while it waited."""
    with sql.connect(autocommit=True) as db, sql.connect() as block:
        _made(db)
        db.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 60) i")
        block.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        block.execute("SELECT count(*) FROM t")
        db.execute("UPDATE t SET v = 100 WHERE id = 30")
        db.execute("DELETE FROM t WHERE id = 31")
        assert block.execute("UPDATE t SET v = v + 1").rowcount == 59
        assert block.execute("DELETE FROM t WHERE v = 8 AND id > 40").rowcount == 20
        block.commit()
        found = {row[0]: row[2] for row in _rows(db)}
        assert found == {n: 101 if n == 30 else 8 for n in range(1, 41) if n != 31}


def test_rows_that_take_each_others_places_are_refused_as_one_by_one(sql: Any) -> None:
    """A unique column is shifted: each row is in the way of another one, or not."""
    with sql.connect(autocommit=True) as db:
        _made(db)
        db.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 60) i")
        assert db.execute("UPDATE t SET id = id - 1").rowcount == 60
        assert db.execute("UPDATE t SET id = id + 60").rowcount == 60
        for change in ("UPDATE t SET id = id + 1", "UPDATE t SET u = 61 - u", "UPDATE t SET u = 7"):
            with pytest.raises(psycopg.errors.UniqueViolation):
                db.execute(change.encode())
        assert [row[:2] for row in _rows(db)] == [(n + 59, n) for n in range(1, 61)]


def test_p10_a_change_in_with_that_another_part_would_see_is_refused(
    db: psycopg.Connection,
) -> None:
    """The answer would not be PostgreSQL's, where all parts see what was there before."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    db.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    for statement in (
        b"WITH u AS (UPDATE t SET a = 1 RETURNING *) SELECT count(*) FROM t",
        b"WITH u AS (UPDATE t SET a = 1 WHERE id = 1) UPDATE t SET a = 2 WHERE id = 2",
        b"WITH u AS (UPDATE t SET a = 1 WHERE id = 1) DELETE FROM t WHERE id = 2",
        b"WITH d AS (DELETE FROM t WHERE id = 1) INSERT INTO t VALUES (5, 5)",
        b"WITH d AS (DELETE FROM t RETURNING *) INSERT INTO t TABLE d ON CONFLICT DO NOTHING",
        b"WITH d AS (DELETE FROM t RETURNING id) INSERT INTO t SELECT t.* FROM d JOIN t USING (id)",
        b"WITH d AS (DELETE FROM t RETURNING *), i AS (INSERT INTO t TABLE d) SELECT * FROM t",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            db.execute(statement)
        told = refused.value.diag
        assert 'WITH changes the table "t", which another part uses' in str(told.message_primary)
        assert told.message_hint == "Make it two statements in one transaction."
        assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, 0), (2, 0)]
