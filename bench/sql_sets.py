"""One value, or row of values, looked for in many: `python -m bench.sql sets` prints JSON lines.

IN and NOT IN of literals, = ANY and <> ALL of a parameter, rows of literals, and an array that a
query makes, of each of VALUES values, over a table of ROWS rows; one connection, the best of TIMES
runs. A set is hashed once, so a case should take hardly longer with more values.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from bench.machine import tree_cpu_s
from bench.sql_bulk import text_rows
from bench.stats import Record, per_op_us

ROWS = int(os.environ.get("ROWS", "100000"))
VALUES = tuple(int(n) for n in os.environ.get("VALUES", "2500,10000").split(","))
TIMES = int(os.environ.get("TIMES", "3"))
_TABLE = "(id int8 PRIMARY KEY, v text, n int4, x float8, at timestamp)"


def _cases(count: int) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Name, condition and parameters. Every second number is in the set."""
    values = range(0, 2 * count, 2)
    listed = ", ".join(map(str, values))
    rows = ", ".join(f"({n}, 'name of {n}')" for n in values)
    yield "IN", f"n IN ({listed})", ()
    yield "NOT IN", f"n NOT IN ({listed})", ()
    yield "= ANY", "n = ANY (%s)", (list(values),)
    yield "<> ALL", "n <> ALL (%s)", (list(values),)
    yield "rows IN", f"(id, v) IN ({rows})", ()
    yield (
        "= ANY of a query",
        f"n = ANY (ARRAY(SELECT 2 * i FROM generate_series(1, {count}) i))",
        (),
    )


def measured(system: str, port: int, pid: int) -> Iterator[Record]:
    """All cases on one server."""
    address = f"host=127.0.0.1 port={port} user=kvorum dbname=postgres"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE big {_TABLE}".encode())
        with connection.cursor().copy("COPY big FROM STDIN") as copy:
            copy.write(text_rows(ROWS))
        connection.execute("SELECT count(*) FROM big")
        for count in VALUES:
            for name, condition, parameters in _cases(count):
                text = f"SELECT count(*) FROM big WHERE {condition}".encode()
                best: tuple[float, float] | None = None
                for _ in range(TIMES):
                    cpu, began = tree_cpu_s([pid]), time.perf_counter()
                    connection.execute(text, parameters or None).fetchall()
                    took, spent = time.perf_counter() - began, tree_cpu_s([pid]) - cpu
                    best = min(best or (took, spent), (took, spent))
                assert best is not None
                yield {
                    "bench": "sql sets",
                    "system": system,
                    "case": f"{name}, {count} values",
                    "rows": ROWS,
                    "seconds": round(best[0], 3),
                    "rows_s": round(ROWS / best[0]),
                    "server_us": per_op_us(best[1], ROWS),
                }
