"""WHERE, GROUP BY, HAVING, ORDER BY and the aggregates against the same computed in Python, with
and without indexes, on one table's own way and through joins; indexes under concurrent changes;
how many replicas a table has.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

pytestmark = pytest.mark.cluster
Row = tuple[int, int | None, int, str | None, Decimal]
COLUMNS = ("id", "a", "b", "c", "d")


@pytest.fixture
def filled(db: psycopg.Connection) -> tuple[psycopg.Connection, list[Row]]:
    """A table with NULLs and equal values, two indexes, and its rows."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int NOT NULL, c text, d numeric(8,2))")
    rng = random.Random(7)
    rows: list[Row] = [
        (
            n,
            None if rng.random() < 0.2 else rng.randrange(6),
            rng.randrange(-5, 20),
            None if rng.random() < 0.2 else rng.choice("xyzXYZ") * rng.randrange(3),
            Decimal(rng.randrange(10_000)) / 100,
        )
        for n in range(300)
    ]
    with db.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    db.execute("CREATE INDEX t_a_b ON t (a, b DESC)")
    db.execute("CREATE INDEX t_c ON t (c)")
    return db, rows


Truth = bool | None
CONDITIONS: list[tuple[str, Callable[[Row], Truth]]] = [
    ("a = 3", lambda r: None if r[1] is None else r[1] == 3),
    ("a IS NULL", lambda r: r[1] is None),
    ("a IN (1, 4)", lambda r: None if r[1] is None else r[1] in (1, 4)),
    ("b BETWEEN 0 AND 9", lambda r: 0 <= r[2] <= 9),
    ("b > 12", lambda r: r[2] > 12),
    ("c = 'x'", lambda r: None if r[3] is None else r[3] == "x"),
    ("c LIKE 'X%'", lambda r: None if r[3] is None else r[3].startswith("X")),
    ("c >= 'Y'", lambda r: None if r[3] is None else r[3] >= "Y"),
    ("d < 25.5", lambda r: r[4] < Decimal("25.5")),
    ("id < 100", lambda r: r[0] < 100),
    ("a < b", lambda r: None if r[1] is None else r[1] < r[2]),
]


def _both(rng: random.Random) -> tuple[str, Callable[[Row], Truth]]:
    """Two conditions under AND, OR and NOT, in three-valued logic."""
    (left, one), (right, two) = rng.sample(CONDITIONS, 2)
    if rng.random() < 0.5:

        def both(row: Row) -> Truth:
            found = (one(row), two(row))
            return False if False in found else None if None in found else True

        return f"{left} AND {right}", both

    def neither(row: Row) -> Truth:
        found = (one(row), two(row))
        return False if True in found else None if None in found else True

    return f"NOT ({left} OR {right})", neither


def _joined(query: str) -> str:
    """The same query where it has to be answered by a join."""
    return query.replace("FROM t", "FROM t CROSS JOIN (SELECT 1) AS one")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_p2_where_keeps_the_rows_for_which_it_is_true(
    filled: tuple[psycopg.Connection, list[Row]], seed: int
) -> None:
    """A condition over an index, a NULL in it, or NOT of a NULL keeps too much or too little."""
    db, rows = filled
    rng = random.Random(seed)
    for text, holds in [*CONDITIONS, *(_both(rng) for _ in range(8))]:
        expected = sorted(row[0] for row in rows if holds(row) is True)
        query = f"SELECT id FROM t WHERE {text}"
        for one in (query, _joined(query)):
            assert sorted(r[0] for r in db.execute(one).fetchall()) == expected, one
        (count,) = db.execute(query.replace("SELECT id", "SELECT count(*)")).fetchone() or (None,)
        assert count == len(expected), text


def _key(descending: bool, nulls_first: bool) -> Callable[[Any], Any]:
    def key(value: Any) -> Any:
        if value is None:
            return (0 if nulls_first else 2, 0)
        if descending:
            assert isinstance(value, int | Decimal)
            return (1, -value)
        return (1, value)

    return key


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 17])
def test_p2_order_by_sorts_by_every_key_and_places_nulls(
    filled: tuple[psycopg.Connection, list[Row]], limit: int | None
) -> None:
    """A second key, DESC, NULLS FIRST, LIMIT or OFFSET is not minded, with or without an index."""
    db, rows = filled
    for first, down, nulls_first in (
        (1, False, False),
        (1, True, True),
        (1, False, True),
        (1, True, False),
        (3, False, False),
        (3, False, True),
        (4, True, True),
    ):
        words = f"{'DESC' if down else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        key = _key(down, nulls_first)
        ordered = sorted(rows, key=lambda r: (key(r[first]), -r[2], r[0]))
        expected = [r[0] for r in (ordered if limit is None else ordered[5 : 5 + limit])]
        tail = "" if limit is None else f" LIMIT {limit} OFFSET 5"
        query = f"SELECT id FROM t ORDER BY {COLUMNS[first]} {words}, b DESC, id{tail}"
        for one in (query, _joined(query)):
            assert [r[0] for r in db.execute(one).fetchall()] == expected, one


@pytest.mark.slow
def test_p2_group_by_and_having_with_every_aggregate(
    filled: tuple[psycopg.Connection, list[Row]],
) -> None:
    """NULL is no group of its own, an aggregate counts NULLs, or HAVING sees single rows."""
    db, rows = filled
    found = db.execute(
        "SELECT a, count(*), count(c), max(b), min(b), sum(b), avg(d), max(c) FROM t"
        " WHERE b <> 3 GROUP BY a HAVING count(*) > 30 AND max(b) > 0 ORDER BY count(*) DESC, a"
    ).fetchall()
    expected = []
    for group in {row[1] for row in rows}:
        of = [row for row in rows if row[1] == group and row[2] != 3]
        bs, texts = [r[2] for r in of], [r[3] for r in of if r[3] is not None]
        if len(of) > 30 and max(bs) > 0:
            mean = statistics.mean(r[4] for r in of)
            expected.append(
                (group, len(of), len(texts), max(bs), min(bs), sum(bs), mean, max(texts))
            )
    expected.sort(key=lambda r: (-r[1], r[0] is None, r[0]))
    assert len(expected) > 3
    assert [(*r[:6], round(r[6], 9), r[7]) for r in found] == [
        (*r[:6], round(r[6], 9), r[7]) for r in expected
    ]


def test_p2_aggregates_of_no_rows(filled: tuple[psycopg.Connection, list[Row]]) -> None:
    """COUNT of nothing is not 0, the others are not NULL, or a group of no rows appears."""
    db, _ = filled
    aggregates = "SELECT count(*), count(a), max(a), min(c), avg(b) FROM t WHERE id < 0"
    assert db.execute(aggregates).fetchall() == [(0, 0, None, None, None)]
    assert db.execute(f"{aggregates} GROUP BY a").fetchall() == []
    assert db.execute(f"{aggregates} HAVING count(*) > 0").fetchall() == []


def test_p8_sorted_lookup_that_finds_nothing(sql: Sql, db: psycopg.Connection) -> None:
    """A range of an index without rows, sorted by another column, answers no rows."""
    db.execute("CREATE TABLE none_found (id int PRIMARY KEY, v int, w int)")
    db.execute("CREATE INDEX none_found_v ON none_found (v)")
    db.execute("INSERT INTO none_found VALUES (1, 10, 3), (2, 20, 2)")
    select = "SELECT id FROM none_found WHERE v > %s ORDER BY w"
    assert db.execute(select, (5,)).fetchall() == [(2,), (1,)]
    assert db.execute(select, (30,)).fetchall() == []


@pytest.mark.slow
def test_p8_index_equals_the_rows_after_concurrent_changes(
    sql: Sql, db: psycopg.Connection
) -> None:
    """Changes at once from several clients, some rolled back, leave an entry without its row, or a
    row that its index does not know.
    """
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int, u int UNIQUE)")
    db.execute("CREATE INDEX t_v ON t (v)")

    def client(seed: int) -> None:
        rng = random.Random(seed)
        with sql.connect(autocommit=True) as conn:
            for _ in range(60):
                with contextlib.suppress(psycopg.Error), conn.transaction():
                    for _ in range(rng.randrange(1, 4)):
                        key, v, u = rng.randrange(60), rng.randrange(8), rng.randrange(90)
                        match rng.randrange(4):
                            case 0:
                                conn.execute("DELETE FROM t WHERE id = %s", (key,))
                            case 1:
                                conn.execute("UPDATE t SET v = %s WHERE id = %s", (v, key))
                            case _:
                                conn.execute(
                                    "INSERT INTO t VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE"
                                    " SET v = excluded.v, u = excluded.u",
                                    (key, v, u),
                                )
                    if rng.random() < 0.2:
                        raise psycopg.Rollback

    threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = db.execute("SELECT id, v, u FROM t").fetchall()
    assert len(rows) > 20
    for v in range(8):
        told = "".join(r[0] for r in db.execute(f"EXPLAIN SELECT id FROM t WHERE v = {v}"))
        assert "t_v" in told
        found = db.execute("SELECT id FROM t WHERE v = %s ORDER BY id", (v,)).fetchall()
        assert [r[0] for r in found] == sorted(r[0] for r in rows if r[1] == v)
    by_key = {row[2]: row[0] for row in rows}
    for u in range(90):
        row = db.execute("SELECT id FROM t WHERE u = %s", (u,)).fetchone()
        assert (row and row[0]) == by_key.get(u)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    """A cluster of three processes."""
    base = free_port_base(3)
    bases = [base + 10 * n for n in range(3)]
    join = ",".join(f"127.0.0.1:{one}" for one in bases)
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(
                NodeProcess(tmp_path / f"n{n}", one, "--join", join, "--node-id", str(n + 1))
            )
            for n, one in enumerate(bases)
        ]
        for one in nodes:
            one.spawn()
        deadline = time.monotonic() + 60
        while not all(one.ready() for one in nodes):
            assert time.monotonic() < deadline, nodes[0].tail()
            time.sleep(0.1)
        yield nodes


@pytest.mark.slow
def test_p3_changing_the_number_of_replicas_changes_the_placement(
    three: list[NodeProcess],
) -> None:
    """A table keeps the replicas that it had, or is not served meanwhile."""
    query = (
        "SELECT table_name, min(cardinality(replicas)), max(cardinality(replicas))"
        " FROM kvorum.partitions WHERE table_name IN ('grows', 'shrinks') GROUP BY 1 ORDER BY 1"
    )
    wanted = [("grows", 3, 3), ("shrinks", 2, 2)]  # two tables: one rests for 30 s after a change
    with Sql(three[0], "postgres").connect(autocommit=True) as db:
        for table, replicas in (("grows", 1), ("shrinks", 3)):
            db.execute(f"CREATE TABLE {table} (id int PRIMARY KEY) WITH (replicas = {replicas})")
            db.execute(f"INSERT INTO {table} SELECT generate_series(1, 50)")
        assert db.execute(query).fetchall() == [("grows", 1, 1), ("shrinks", 3, 3)]
        for table, replicas, _ in wanted:
            db.execute(f"ALTER TABLE {table} SET (replicas = {replicas})")
        deadline = time.monotonic() + 150  # looks every 5 s, and rests of 30 s after other moves
        while (found := db.execute(query).fetchall()) != wanted:
            for table, _, _ in wanted:
                assert db.execute(f"SELECT sum(id) FROM {table}").fetchone() == (1275,)
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        with Sql(three[2], "postgres").connect() as other:
            for table, _, _ in wanted:
                assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (50,)


@pytest.mark.slow
def test_p10_for_update_over_a_join_locks_the_rows_it_names(
    sql: Sql, db: psycopg.Connection
) -> None:
    """A row that a join gave FOR UPDATE could be changed, or one of a table beside it could not."""
    db.execute("CREATE TABLE a (id int PRIMARY KEY, v int)")
    db.execute("CREATE TABLE b (id int PRIMARY KEY, a int, v int)")
    db.execute("INSERT INTO a VALUES (1, 1), (2, 2)")
    db.execute("INSERT INTO b VALUES (1, 1, 0), (2, 2, 0)")
    db.execute("SET lock_timeout = '100ms'")
    query = "SELECT b.id FROM b JOIN a ON a.id = b.a WHERE a.v = 1 FOR UPDATE OF b"
    with sql.connect() as conn:
        assert conn.execute(query).fetchall() == [(1,)]
        for changed, refused in (("b", True), ("a", False)):
            text = f"UPDATE {changed} SET v = v WHERE id = "
            if refused:
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    db.execute(text + "1")
            else:
                db.execute(text + "1")
            db.execute(text + "2")


@pytest.mark.slow
def test_p1_setval_counts_wherever_it_is_called(db: psycopg.Connection) -> None:
    """In a view, a cursor over one, or COPY it answered as if it were set, and it was not."""
    db.execute("CREATE SEQUENCE s")
    db.execute("CREATE TABLE q (id int PRIMARY KEY)")
    db.execute("INSERT INTO q VALUES (1)")
    db.execute("CREATE VIEW v AS SELECT setval('s', 40) AS x FROM q")
    assert db.execute("SELECT x FROM v").fetchone() == (40,)
    assert db.execute("SELECT nextval('s')").fetchone() == (41,)
    with db.cursor() as cur, cur.copy("COPY (SELECT setval('s', 70)) TO STDOUT") as copy:
        assert copy.read_row() == ("70",)
        assert copy.read_row() is None
    assert db.execute("SELECT nextval('s')").fetchone() == (71,)
    with db.transaction():
        db.execute("DECLARE c CURSOR FOR SELECT x FROM v")
        assert db.execute("FETCH ALL FROM c").fetchall() == [(40,)]
    assert db.execute("SELECT nextval('s')").fetchone() == (41,)
    with pytest.raises(psycopg.errors.UndefinedTable):
        db.execute("SELECT setval('none', 1)")
