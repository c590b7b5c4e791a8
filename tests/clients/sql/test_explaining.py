"""EXPLAIN ANALYZE: what was read of each table, by the versions that the store looked at."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import psycopg
import pytest

import kvorum

READ = re.compile(r"Read: (\d+) gets, (\d+) rows in \d+ pages, (\d+) versions(?:, [0-9.]+ ms)?")


def _lines(db: psycopg.Connection, text: str) -> list[str]:
    rows = db.execute("EXPLAIN ANALYZE " + text)
    return [re.sub(r" +\((cost=|actual time=).*", "", row[0]) for row in rows]


def _reads(lines: list[str]) -> list[tuple[int, int, int]]:
    """gets, rows, versions: of each scan, then of the whole."""
    found = [READ.fullmatch(line.strip()) for line in lines]
    return [tuple(map(int, one.groups())) for one in found if one]  # type: ignore[misc]


def _comes(db: psycopg.Connection, text: str, wanted: list[tuple[int, int, int]]) -> None:
    """Once the intents of what was committed are versions."""
    until = time.monotonic() + 10
    while (found := _reads(_lines(db, text))) != wanted:
        assert time.monotonic() < until, (found, wanted)
        time.sleep(0.05)


def _filled(db: psycopg.Connection) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    db.execute("CREATE INDEX t_v ON t (v)")
    db.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")


@pytest.mark.slow
def test_p1_explain_analyze_tells_versions_of_a_single_table(sql: Any) -> None:
    """Deleted rows and older versions cost a reader, and nobody saw it."""
    with sql.connect(autocommit=True) as db, sql.connect(autocommit=True) as other:
        _filled(db)
        assert _reads(_lines(db, "SELECT * FROM t")) == [(0, 100, 100)]
        assert _reads(_lines(db, "SELECT * FROM t WHERE id = 7")) == [(1, 0, 1)]
        assert _reads(_lines(db, "SELECT * FROM t WHERE id = 700")) == [(1, 0, 0)]
        assert _reads(_lines(db, "SELECT * FROM t WHERE v = 7")) == [(0, 1, 1)]
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            db.execute("SELECT FROM t WHERE id = 1")
            for _ in range(3):
                other.execute("UPDATE t SET v = -v WHERE id <= 10")
            other.execute("DELETE FROM t WHERE id > 90")
            # twenty rows are not the newest: each has a newer record, passed to find the older one
            _comes(db, "SELECT * FROM t", [(0, 100, 120)])
            assert _reads(_lines(db, "SELECT * FROM t WHERE id = 7")) == [(1, 0, 2)]
            assert _reads(_lines(db, "SELECT * FROM t WHERE id IN (7, 50)")) == [(2, 0, 3)]
        assert _reads(_lines(db, "SELECT * FROM t")) == [(0, 90, 100)]
        assert _reads(_lines(db, "SELECT * FROM t WHERE id = 95")) == [(1, 0, 1)]
        assert _reads(_lines(db, "DELETE FROM t WHERE id > 85")) == [(0, 5, 15)]


def test_p1_explain_analyze_tells_what_duckdb_reads_of_each_table(sql: Any) -> None:
    """A join told one sum of all its tables, and no versions."""
    with sql.connect(autocommit=True) as db:
        _filled(db)
        db.execute("CREATE TABLE u (id int PRIMARY KEY, t int)")
        db.execute("INSERT INTO u SELECT g, g FROM generate_series(1, 30) g")
        db.execute("DELETE FROM u WHERE id > 20")
        query = "SELECT count(*) FROM t JOIN u ON u.t = t.id JOIN t w ON w.id = u.t WHERE t.v = 7"
        lines = _lines(db, query)
        scans = {line.strip(): lines[i + 1 :] for i, line in enumerate(lines) if "Scan" in line}
        ways = ["Index Only Scan using t_v on t", "Seq Scan on u", "Index Scan using t_pkey on t"]
        assert list(scans) == ways
        assert scans[ways[2]][0].strip() == "Keys: of u"
        assert _reads(lines) == [(0, 1, 1), (0, 20, 30), (20, 0, 20), (20, 21, 51)]
        assert scans["Index Only Scan using t_v on t"][0].strip().startswith("Key Range: ")
        assert all(" ms" in scan[0] or " ms" in scan[1] for scan in scans.values())
        (row,) = db.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + query).fetchall()
        whole = row[0] if isinstance(row[0], list) else json.loads(row[0])
        plans = whole[0]["Plan"]["Plans"]
        assert [plan["Relation Name"] for plan in plans] == ["t", "u", "t"]
        assert _reads(["Read: " + plan["Read"] for plan in plans]) == _reads(lines)[:3]
        assert _reads(["Read: " + whole[0]["Plan"]["Read"]]) == _reads(lines)[3:]


def test_p1_explain_analyze_tells_what_changes_read(sql: Any) -> None:
    """Of INSERT … SELECT, UPDATE … FROM and changes in WITH it did not say what they scan."""
    with sql.connect(autocommit=True) as db:
        _filled(db)
        db.execute("CREATE TABLE u (id int PRIMARY KEY, t int)")
        text = "INSERT INTO u SELECT id, count(*) FROM t GROUP BY id"
        lines = _lines(db, text)
        assert [line.strip() for line in lines[:3]] == [
            "Insert on u",
            "DuckDB (Select)",
            "Seq Scan on t",
        ]
        assert _reads(lines) == [(0, 100, 100), (0, 100, 100)]
        plain = [row[0].strip() for row in db.execute("EXPLAIN (COSTS OFF) " + text)]
        assert plain == ["Insert on u", "DuckDB (Select)", "Seq Scan on t"]
        lines = _lines(db, "UPDATE u SET t = 0 FROM t WHERE u.id = t.id AND t.v < 4")
        assert [one[:2] for one in _reads(lines)][-1] == (6, 3)


def test_p1_explain_analyze_counts_over_partitions(sql: Any) -> None:
    """Only the versions of a table's first partition were counted, or a split hid the others."""
    with sql.connect(autocommit=True) as db, kvorum.connect(sql.node.url) as store:
        db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        db.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 3000) g")
        (table,) = [one for one in store.tables(sql.database) if one.name == "t"]
        start = int(table.id).to_bytes(4, "big")
        (first,) = [
            row["id"]
            for row in store.partitions()
            if bytes(str(row["start"]), "latin1")[:4] == start or row["start"][:4] == start
        ]
        store.split(first)
        db.execute("DELETE FROM t WHERE id % 10 = 0")
        for query in ("SELECT * FROM t", "SELECT sum(v) FROM t"):
            _comes(db, query, [(0, 2700, 3000)] * (1 + ("sum" in query)))
            (told,) = [line for line in _lines(db, query) if line.startswith("Partitions: ")]
            assert re.fullmatch(r"Partitions: \d+, \d+ of t", told)
        _comes(db, "SELECT * FROM t WHERE id IN (1, 10, 2990, 2991)", [(4, 0, 4)])
