"""Point reads while an index is added to a table of ROWS rows: `python -m bench.sql index`.

READERS connections read one row after the other by primary key, prepared; latencies are reported
for a quiet time and for the time of CREATE INDEX. The goal is p99 beside it ≤ 1.5 × quiet.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator

import asyncpg  # type: ignore[import-untyped]
import psycopg

from bench.sql_bulk import text_rows
from bench.stats import Record, summary

ROWS = int(os.environ.get("ROWS", "1000000"))
READERS = int(os.environ.get("READERS", "4"))
_QUIET_S = 5.0


async def _reads(port: int, until: asyncio.Event, found: list[float]) -> None:
    connection = await asyncpg.connect(
        host="127.0.0.1", port=port, user="kvorum", database="postgres"
    )
    statement = await connection.prepare("SELECT v, n FROM big WHERE id = $1")
    chance = random.Random(READERS)
    while not until.is_set():
        began = time.perf_counter()
        await statement.fetchrow(chance.randrange(ROWS))
        found.append(time.perf_counter() - began)
    await connection.close()


async def _measured(port: int) -> tuple[Record, Record, float]:
    address = f"host=127.0.0.1 port={port} user=kvorum dbname=postgres"

    async def during(work: asyncio.Future[object]) -> tuple[Record, float]:
        until, found = asyncio.Event(), list[float]()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(_reads(port, until, found))
            await work
            until.set()
        took = time.perf_counter() - began
        return summary(found, took), took

    async def add() -> None:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.execute("CREATE INDEX big_n ON big (n)")

    quiet, _ = await during(asyncio.ensure_future(asyncio.sleep(_QUIET_S)))
    beside, took = await during(asyncio.ensure_future(add()))
    return quiet, beside, took


def measured(system: str, port: int, pid: int) -> Iterator[Record]:
    """Both times on one server."""
    address = f"host=127.0.0.1 port={port} user=kvorum dbname=postgres"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE big (id int8 PRIMARY KEY, v text, n int4, x float8, at timestamp)"
        )
        data = text_rows(ROWS)
        with connection.cursor().copy("COPY big FROM STDIN") as copy:
            for at in range(0, len(data), 65_536):
                copy.write(data[at : at + 65_536])
        connection.execute("SELECT count(*) FROM big")  # what COPY left to do is done then
        time.sleep(2)
    quiet, beside, took = asyncio.run(_measured(port))
    case = {"bench": "sql index", "system": system, "rows": ROWS, "clients": READERS}
    yield {**case, "case": "point reads, quiet", **quiet}
    ratio = round(beside["p99_ms"] / quiet["p99_ms"], 2)
    yield {
        **case,
        "case": "beside CREATE INDEX",
        **beside,
        "seconds": round(took, 1),
        "p99_of_quiet": ratio,
    }
