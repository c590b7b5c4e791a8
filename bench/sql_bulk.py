"""Many rows by SQL, against PostgreSQL 15: `python -m bench.sql bulk` prints JSON lines.

A table of five columns (int8 key, text, int4, float8, timestamp) is filled by COPY and read by
COPY, aggregates and a join with 10,000 rows; another one is filled by INSERTs of 1,000 rows. ROWS
of them, one connection, psycopg as the client of both. `server_us` is the CPU time of the server's
processes per row. Behind COPY FROM a server may have to clean up: the case `first count` is what
the next reader waits, and its `server_us` what that costs.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator

import psycopg

from bench.machine import tree_cpu_s
from bench.stats import Record, per_op_us

ROWS = int(os.environ.get("ROWS", "1000000"))
_SMALL = 10_000
_STATEMENT_ROWS = 1_000
_PIECE = 65_536
_TABLE = "(id int8 PRIMARY KEY, v text, n int4, x float8, at timestamp)"
_QUERIES = {
    "aggregate": "SELECT n % 100 AS g, count(*), sum(x), avg(x), min(at) FROM big GROUP BY g",
    "join": "SELECT name, count(*), sum(x) FROM big JOIN small ON small.id = n GROUP BY name",
    "top 10": "SELECT id, x FROM big ORDER BY x DESC, id LIMIT 10",
    "filter": "SELECT count(*) FROM big WHERE v LIKE '%77%' AND n > 5000",
}


def text_rows(count: int) -> bytes:
    """Lines of COPY."""
    return "".join(
        f"{i}\tname of {i}\t{i % _SMALL}\t{i * 0.5}\t2026-01-{1 + i % 28:02d} 12:00:00\n"
        for i in range(count)
    ).encode()


def binary_rows(count: int) -> bytes:
    """The same in COPY's binary format; the times differ."""
    out = bytearray(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    for i in range(count):
        name = f"name of {i}".encode()
        out += struct.pack(">hiqi", 5, 8, i, len(name)) + name
        out += struct.pack(">iiidiq", 4, i % _SMALL, 8, i * 0.5, 8, 820_000_000_000_000 + i)
    return bytes(out + b"\xff\xff")


class _Bench:
    """One server under measurement."""

    def __init__(self, system: str, port: int, pid: int) -> None:
        self._system, self._pid = system, pid
        address = f"host=127.0.0.1 port={port} user=kvorum dbname=postgres"
        self.connection = psycopg.connect(address, autocommit=True)

    def timed(self, case: str, rows: int, work: Callable[[], object]) -> Record:
        """Run it once."""
        cpu, began = tree_cpu_s([self._pid]), time.perf_counter()
        work()
        took, spent = time.perf_counter() - began, tree_cpu_s([self._pid]) - cpu
        return {
            "bench": "sql bulk",
            "system": self._system,
            "case": case,
            "rows": rows,
            "seconds": round(took, 3),
            "rows_s": round(rows / took),
            "server_us": per_op_us(spent, rows),
        }

    def copy_in(self, text: str, data: bytes) -> None:
        with self.connection.cursor().copy(text) as copy:
            for at in range(0, len(data), _PIECE):
                copy.write(data[at : at + _PIECE])

    def copy_out(self, text: str) -> int:
        with self.connection.cursor().copy(text) as copy:
            return sum(len(part) for part in copy)

    def query(self, text: str) -> Callable[[], object]:
        return lambda: self.connection.execute(text).fetchall()

    def insert(self, statements: int) -> None:
        rows = ",".join(["(%s,%s,%s)"] * _STATEMENT_ROWS)
        text = f"INSERT INTO many VALUES {rows}"
        cursor = self.connection.cursor()
        for at in range(statements):
            first = at * _STATEMENT_ROWS
            values = [
                v for i in range(first, first + _STATEMENT_ROWS) for v in (i, f"value {i}", i)
            ]
            cursor.execute(text, values, prepare=True)

    def insert_literals(self, statements: int) -> None:
        """As a dump or a script says them: values in the text, simple protocol."""
        for at in range(statements):
            first = (at + 1) * 1_000_000
            rows = ",".join(
                f"({i}, 'value {i}', {i})" for i in range(first, first + _STATEMENT_ROWS)
            )
            self.connection.execute(f"INSERT INTO many VALUES {rows}")


def measured(system: str, port: int, pid: int) -> Iterator[Record]:
    """All cases on one server."""
    bench = _Bench(system, port, pid)
    run = bench.connection.execute
    for text in (
        f"CREATE TABLE big {_TABLE}",
        f"CREATE TABLE other {_TABLE}",
        "CREATE TABLE small (id int4 PRIMARY KEY, name text)",
        "CREATE TABLE many (id int8 PRIMARY KEY, v text, n int4)",
    ):
        run(text)
    bench.copy_in(
        "COPY small FROM STDIN", "".join(f"{i}\tname {i % 50}\n" for i in range(_SMALL)).encode()
    )
    bench.insert(1)  # prepares it
    run("DELETE FROM many")
    statements = min(100, ROWS // _STATEMENT_ROWS)
    yield bench.timed(
        "INSERT of 1,000 rows", statements * _STATEMENT_ROWS, lambda: bench.insert(statements)
    )
    yield bench.timed(
        "INSERT of 1,000 rows of literals",
        statements * _STATEMENT_ROWS,
        lambda: bench.insert_literals(statements),
    )
    data = binary_rows(ROWS // 4)
    yield bench.timed(
        "COPY FROM, binary",
        ROWS // 4,
        lambda: bench.copy_in("COPY other FROM STDIN (FORMAT binary)", data),
    )
    bench.query("SELECT count(*) FROM other")()
    lines = text_rows(ROWS)
    yield bench.timed("COPY FROM, text", ROWS, lambda: bench.copy_in("COPY big FROM STDIN", lines))
    yield bench.timed("first count", ROWS, bench.query("SELECT count(*) FROM big"))
    yield bench.timed("count", ROWS, bench.query("SELECT count(*) FROM big"))
    yield bench.timed(
        "scan of 5 columns",
        ROWS,
        bench.query("SELECT max(id), max(v), max(n), max(x), max(at) FROM big"),
    )
    yield bench.timed("COPY TO, text", ROWS, lambda: bench.copy_out("COPY big TO STDOUT"))
    for name, text in _QUERIES.items():
        yield bench.timed(name, ROWS, bench.query(text))
    bench.connection.close()
