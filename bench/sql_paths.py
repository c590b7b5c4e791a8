"""Statements that need few rows of a table of ROWS, and some that need all, by whatever way the
planner finds: `python -m bench.sql paths`. Best of TIMES, in milliseconds; with
`PATHS=<part of a name>` only those.

The answers of both systems are told as a digest: a way that loses a row is no way.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from typing import Final

import psycopg

from bench.stats import Record

ROWS = int(os.environ.get("ROWS", "100000"))
TIMES = int(os.environ.get("TIMES", "5"))
ONLY = os.environ.get("PATHS", "")
_SETUP: Final = (
    "CREATE TABLE big (id int PRIMARY KEY, g int, v int, s text, t timestamp, x float8)",
    "CREATE TABLE small (id int PRIMARY KEY, a int, s text)",
    "CREATE TABLE pairs (g int, id int, s text, PRIMARY KEY (g, id))",
    f"INSERT INTO big SELECT i, i % 1000, (i * 7919) % {ROWS}, 'n' || (i * 31) % {ROWS}, "
    f"timestamp '2026-01-01' + i * interval '7 minutes', i / 3.0 "
    f"FROM generate_series(1, {ROWS}) i",
    f"INSERT INTO small SELECT i, (i * 37) % {ROWS} + 1, 's' || i FROM generate_series(1, 1000) i",
    f"INSERT INTO pairs SELECT i % 1000, i, 'p' || i FROM generate_series(1, {ROWS}) i",
    "CREATE INDEX big_g_id ON big (g, id)",
    "CREATE INDEX big_v ON big (v)",
    "CREATE INDEX big_s ON big (s)",
    "ANALYZE",
)
_QUERIES: Final = {
    "keyset, index": "SELECT * FROM big WHERE (g, id) > (500, 10) ORDER BY g, id LIMIT 10",
    "keyset, key": "SELECT * FROM pairs WHERE (g, id) > (500, 10) ORDER BY g, id LIMIT 10",
    "keyset, backward": "SELECT * FROM pairs WHERE (g, id) < (500, 10) ORDER BY g DESC, id DESC "
    "LIMIT 10",
    "OR of two indexes": "SELECT id FROM big WHERE v = 5 OR s = 'n77'",
    "OR as keyset": "SELECT id FROM big WHERE g > 500 OR (g = 500 AND id > 10) "
    "ORDER BY g, id LIMIT 10",
    "IN and range": "SELECT id FROM big WHERE g IN (3, 5, 9) AND id > 99000 ORDER BY g, id",
    "max of the key": "SELECT max(id) FROM big",
    "max below": "SELECT max(s) FROM big WHERE s < 'n5'",
    "key = max": "SELECT id, s FROM big WHERE id = (SELECT max(v) FROM big)",
    "distinct, limit": "SELECT DISTINCT g FROM big ORDER BY g LIMIT 5",
    "index only": "SELECT count(*) FROM big WHERE g = 77",
    "join by key": "SELECT b.id, o.s FROM big b JOIN small o ON o.id = b.g WHERE b.id = 777",
    "join by index": "SELECT b.id, o.s FROM small o JOIN big b ON b.v = o.a WHERE o.id = 77",
    "join of twenty": "SELECT b.id, o.s FROM small o JOIN big b ON b.v = o.a WHERE o.id < 20",
    "IN of a query": "SELECT id FROM big WHERE v IN (SELECT a FROM small WHERE id < 10)",
    "EXISTS": "SELECT id FROM small o WHERE id < 10 AND EXISTS (SELECT FROM big b WHERE b.v = o.a)",
    "NOT EXISTS": "SELECT id FROM small o WHERE id < 10 AND NOT EXISTS "
    "(SELECT FROM big b WHERE b.v = o.a AND b.g = 1)",
    "correlated": "SELECT id, (SELECT max(b.id) FROM big b WHERE b.v = o.a) FROM small o "
    "WHERE id < 10",
    "join, limit": "SELECT b.id, o.s FROM big b LEFT JOIN small o ON o.id = b.g "
    "ORDER BY b.id LIMIT 10",
    "group by to_char": "SELECT to_char(t, 'YYYY-MM'), count(*) FROM big GROUP BY 1 ORDER BY 1",
    "group by date_trunc": "SELECT date_trunc('day', t), count(*) FROM big GROUP BY 1 ORDER BY 1",
    "group by extract": "SELECT extract(dow FROM t), count(*) FROM big GROUP BY 1 ORDER BY 1",
    "group by date": "SELECT t::date, count(*) FROM big GROUP BY 1 ORDER BY 1",
    "group by lower": "SELECT lower(left(s, 2)), count(*) FROM big GROUP BY 1 ORDER BY 1",
}
_CHANGES: Final = {
    "update of all": "UPDATE big SET x = x + 1",
    "delete of half": "DELETE FROM big WHERE id % 2 = 0",
}


def measured(system: str, port: int, pid: int) -> Iterator[Record]:
    """All cases on one server."""
    address = f"host=127.0.0.1 port={port} user=kvorum dbname=postgres"
    with psycopg.connect(address, autocommit=True) as connection:
        for text in _SETUP:
            connection.execute(text.encode())
        connection.execute("SELECT count(*) FROM big")
        for name, text in _QUERIES.items():
            if ONLY in name:
                yield _timed(connection, system, name, text, TIMES)
        for name, text in _CHANGES.items():
            if ONLY in name:
                yield _timed(connection, system, name, text, 1)
                counted = "SELECT count(*) FROM big"
                yield _timed(connection, system, f"count after {name}", counted, 1)


def _timed(connection: psycopg.Connection, system: str, name: str, text: str, times: int) -> Record:
    best, rows = float("inf"), 0
    digest = 0
    for _ in range(times):
        began = time.perf_counter()
        done = connection.execute(text.encode())
        found = done.fetchall() if done.description else []
        best = min(best, time.perf_counter() - began)
        rows, digest = len(found), zlib.crc32(repr(sorted(map(str, found))).encode())
    return {
        "bench": "sql paths",
        "system": system,
        "case": name,
        "rows": rows,
        "digest": digest,
        "ms": round(best * 1000, 2),
        "ops_s": round(1 / best, 3),
    }
