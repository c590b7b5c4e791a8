"""What ANALYZE finds out, shows, and what is chosen by it. Figures are PostgreSQL 15's of the same
rows, where both look at all of them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.waiting import poll

_ROWS: Final = 5_000
_DECLARED: Final = (
    "CREATE TABLE st (id int PRIMARY KEY, g int, s text, n numeric, t timestamptz, x int, j jsonb)",
    "CREATE INDEX st_g ON st (g)",
    "CREATE INDEX st_x ON st (x)",
    "INSERT INTO st SELECT i, CASE WHEN i % 10 < 7 THEN 1 ELSE i % 5 END, 'v' || (i % 50), "
    "CASE WHEN i % 4 = 0 THEN NULL ELSE i % 1000 END, "
    "'2026-01-01 00:00Z'::timestamptz + i * interval '1 minute', i / 10, '{}' "
    f"FROM generate_series(1, {_ROWS}) i",
)
_STATS: Final = {
    "id": (0.0, 4, -1.0),
    "g": (0.0, 4, 4.0),
    "s": (0.0, 3, 50.0),
    "n": (0.25, None, -0.15),
    "t": (0.0, 8, -1.0),
    "x": (0.0, 4, -0.1002),
    "j": (0.0, None, 1.0),
}
"""null_frac, avg_width, n_distinct in PostgreSQL; widths of what is stored otherwise are not the
same.
"""
_MEANT: Final = {
    "id = 5": 1,
    "id < 1000": 999,
    "g = 1": 3500,
    "g = 3": 500,
    "g <> 1": 1500,
    "s = 'v7'": 100,
    "s > 'v3'": 2600,
    "n IS NULL": 1250,
    "n IS NOT NULL": 3750,
    "n < 500": 1871,
    "t < '2026-01-02 00:00Z'": 1439,
    "x BETWEEN 100 AND 120": 210,
    "g = 1 AND x < 50": 353,
    "g = 3 OR x < 50": 954,
    "g IN (2, 3)": 1000,
    "id > 4000 AND s = 'v1'": 20,
    "NOT (g = 1)": 1500,
    "s LIKE 'v1%'": 1100,
    "x = 999999": 10,
}
"""Rows that PostgreSQL expects; of the range of x those that there are, as it expects 181."""
_WAYS: Final = {
    "SELECT * FROM st WHERE g = 1": "Seq Scan on st",
    "SELECT * FROM st WHERE g = 3": "Index Scan using st_g on st",
    "SELECT * FROM st WHERE x > 10": "Seq Scan on st",
    "SELECT * FROM st WHERE x > 450": "Index Scan using st_x on st",
    "SELECT g FROM st WHERE g = 1": "Index Only Scan using st_g on st",
    "SELECT * FROM st WHERE g = 1 ORDER BY g LIMIT 3": "Limit / Index Scan using st_g on st",
    "DELETE FROM st WHERE g = 1": "Delete on st / Seq Scan on st",
    "UPDATE st SET s = 'n' WHERE x = 4": "Update on st / Index Scan using st_x on st",
}
"""Which way is taken once it is known where rows are."""


@pytest.fixture(scope="module")
def st(node: Any) -> Any:
    """The analyzed table."""
    with Sql(node, "postgres").connect(autocommit=True) as conn:
        conn.execute("CREATE DATABASE statistics")
    with Sql(node, "statistics").connect(autocommit=True) as conn:
        for text in _DECLARED:
            conn.execute(text.encode())
        conn.execute("ANALYZE st")
        yield conn


def _node(db: psycopg.Connection, text: str) -> dict[str, Any]:
    (row,) = db.execute(f"EXPLAIN (FORMAT JSON) {text}".encode()).fetchall()
    whole = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return dict(whole[0]["Plan"])


def test_p15_pg_stats_says_what_postgresql_says(st: psycopg.Connection) -> None:
    """Tools that look for wide, rare or missing values would be told nothing."""
    query = "SELECT attname, null_frac, avg_width, n_distinct FROM pg_stats WHERE tablename = 'st'"
    found = {name: (nulls, width, count) for name, nulls, width, count in st.execute(query)}
    assert found.keys() == _STATS.keys()
    for name, (nulls, width, count) in _STATS.items():
        told = found[name]
        assert told[0] == pytest.approx(nulls), name
        assert told[2] == pytest.approx(count, rel=0.01), name
        assert width is None or told[1] == width, name
    common = (
        "SELECT most_common_vals::text, most_common_freqs::text, histogram_bounds::text "
        "FROM pg_stats WHERE tablename = 'st' AND attname = 'g'"
    )
    assert st.execute(common).fetchall() == [("{1,2,3,4}", "{0.7,0.1,0.1,0.1}", None)]
    bounds = "SELECT histogram_bounds::text FROM pg_stats WHERE attname = 'id'"
    (told,) = st.execute(bounds).fetchone() or ("",)
    assert told.startswith("{1,50,100,150,200,250,300,")
    size = "SELECT reltuples, relpages > 0 FROM pg_class WHERE relname = 'st'"
    assert st.execute(size).fetchall() == [(_ROWS, True)]


@pytest.mark.parametrize(("where", "rows"), _MEANT.items())
def test_p15_explain_expects_what_postgresql_expects(
    st: psycopg.Connection, where: str, rows: int
) -> None:
    """Who reads a plan is misled about what it means."""
    told = _node(st, f"SELECT * FROM st WHERE {where}")["Plan Rows"]
    assert abs(told - rows) <= max(10, rows * 0.1), told


@pytest.mark.parametrize(("text", "way"), _WAYS.items())
def test_p15_what_leads_to_nearly_all_rows_is_no_way(
    st: psycopg.Connection, text: str, way: str
) -> None:
    """All rows of a table are looked up by an index, one by one."""
    rows = st.execute(f"EXPLAIN (COSTS OFF) {text}".encode()).fetchall()
    lines = [row[0].strip() for row in rows]
    assert " / ".join(line for line in lines if ": " not in line) == way


def test_p15_joins_begin_with_the_fewest_rows(st: psycopg.Connection) -> None:
    """A join begins with thousands of rows that a key names, and not with the ten of a range."""
    st.execute("CREATE TABLE big (id int PRIMARY KEY, st int)")
    st.execute("CREATE INDEX big_st ON big (st)")
    st.execute("INSERT INTO big SELECT i, i FROM generate_series(1, 3000) i")
    st.execute("ANALYZE big")
    text = "SELECT count(*) FROM st JOIN big ON big.st = st.id WHERE st.g = 3 AND big.id > 2995"
    lines = [row[0].strip() for row in st.execute(f"EXPLAIN (COSTS OFF) {text}".encode())]
    scans = [line for line in lines if "Scan" in line]
    assert scans[0] == "Index Scan using big_pkey on big", lines
    assert "Keys: of big" in lines
    assert st.execute(text.encode()).fetchone() == (1,)
    st.execute("DROP TABLE big")


def test_p15_explain_has_postgresqls_form(st: psycopg.Connection) -> None:
    """Tools read costs, rows and widths out of the text, and names out of JSON."""
    for text in ("SELECT * FROM st WHERE g = 3", "SELECT count(*) FROM st a JOIN st b USING (id)"):
        lines = [row[0] for row in st.execute(f"EXPLAIN {text}".encode())]
        nodes = [line for line in lines if "Scan" in line or "DuckDB" in line]
        shape = r".+  \(cost=\d+\.\d\d\.\.\d+\.\d\d rows=\d+ width=\d+\)"
        assert all(re.fullmatch(shape, line) for line in nodes), lines
        first = st.execute(f"EXPLAIN ANALYZE {text}".encode()).fetchall()[0][0]
        assert re.search(r" \(actual time=0\.000\.\.\d+\.\d+ rows=\d+ loops=1\)$", first), first
    (row,) = st.execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM st WHERE g = 3").fetchall()
    plan = row[0][0]["Plan"]
    assert (plan["Plan Rows"], plan["Actual Rows"], plan["Actual Loops"]) == (500, 500, 1)
    assert plan["Total Cost"] > plan["Startup Cost"] == 0
    assert plan["Node Type"] == "Index Scan"


def test_p15_analyze_of_columns_and_who_may(st: psycopg.Connection, node: Any) -> None:
    """ANALYZE of one column forgets the others; anybody makes a large table be read."""
    st.execute("CREATE TABLE two (id int PRIMARY KEY, a int, b int)")
    st.execute("INSERT INTO two SELECT i, i, 1 FROM generate_series(1, 20) i")
    told = "SELECT attname, n_distinct FROM pg_stats WHERE tablename = 'two' ORDER BY 1"
    assert st.execute(told).fetchall() == []
    st.execute("ANALYZE two (b)")
    assert st.execute(told).fetchall() == [("b", 1)]
    st.execute("UPDATE two SET b = id")
    st.execute("ANALYZE two (a, id)")
    assert st.execute(told).fetchall() == [("a", -1), ("b", 1), ("id", -1)]
    st.execute("VACUUM ANALYZE two")
    assert st.execute(told).fetchall() == [("a", -1), ("b", -1), ("id", -1)]
    with pytest.raises(psycopg.errors.UndefinedColumn):
        st.execute("ANALYZE two (c)")
    st.execute("CREATE ROLE nobody LOGIN")
    st.execute("GRANT SELECT ON two TO nobody")
    with Sql(node, "statistics").connect(autocommit=True) as conn:
        notices: list[str] = []
        conn.add_notice_handler(lambda one: notices.append(str(one.message_primary)))
        conn.execute("SET ROLE nobody")
        conn.execute("ANALYZE two")
        assert "only table or database owner can analyze it" in notices[0]
        names = "SELECT DISTINCT tablename::text FROM pg_stats"
        assert conn.execute(names).fetchall() == [("two",)]
    st.execute("DROP TABLE two")
    assert st.execute(told).fetchall() == []


@pytest.mark.slow
def test_p15_tables_are_analyzed_when_much_was_changed(st: psycopg.Connection) -> None:
    """Nobody says ANALYZE, and ways are chosen by what was there a year ago."""
    st.execute("CREATE TABLE auto (id int PRIMARY KEY, v int)")
    tuples = "SELECT reltuples FROM pg_class WHERE relname = 'auto'"
    for n in range(40):
        st.execute("INSERT INTO auto VALUES (%s, 0)", (n,))
    st.execute("INSERT INTO auto SELECT i, i FROM generate_series(100, 300) i")
    poll(lambda: st.execute(tuples).fetchall() == [(241,)], 40)
    with st.cursor().copy("COPY auto FROM STDIN") as copy:
        for n in range(1000, 7000):
            copy.write_row((n, n))
    poll(lambda: st.execute(tuples).fetchall() == [(6241,)], 40)
    st.execute("TRUNCATE auto")
    assert st.execute(tuples).fetchall() == [(-1,)]
