"""Writes data/answers.json.xz: what PostgreSQL 15 answers to the statements in it.

    python -m tests.sqlproxy.pgcatalog.record "host=127.0.0.1 port=5432 user=postgres"
    [STATEMENTS.json]

STATEMENTS.json: [[source, text, values], …] instead of those that are there. They were taken from
the log of a real server while psql, SQLAlchemy, asyncpg, psycopg, pandas and Django looked at it;
those of pgjdbc, DBeaver and pgAdmin are from their sources. The database `sample` is made anew.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import psycopg

from tests.sqlproxy.pgcatalog import sample
from tests.sqlproxy.pgcatalog.asking import DATABASE, theirs

FILE = Path(__file__).with_name("data") / "answers.json.xz"
ROWS_MAX = 200  # longer answers are about PostgreSQL's own functions and operators


def main(address: str, statements: str = "") -> None:
    if statements:
        listed = json.loads(Path(statements).read_text())
    else:
        listed = [entry[:3] for entry in json.loads(lzma.decompress(FILE.read_bytes()))]
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
    made = []
    with psycopg.connect(f"{address} dbname={DATABASE}", autocommit=True) as connection:
        connection.execute(sample.DDL)
        ask = theirs(connection)
        for source, text, values in listed:
            answer = ask(text, values)
            local = "/tmp/" in json.dumps(answer)  # settings of this very server
            if len(answer.get("rows", ())) <= ROWS_MAX and not local:
                made.append([source, text, values, answer])
    FILE.write_bytes(lzma.compress(json.dumps(made, separators=(",", ":")).encode()))


if __name__ == "__main__":
    main(*sys.argv[1:])
