"""Asks a real PostgreSQL 15 what the queries of tests/sqlproxy/analytic/queries.sql answer.

    python scripts/record_sql_queries.py "host=127.0.0.1 port=5432 user=postgres"

Writes tests/sqlproxy/analytic/answers.json: [query, [OID of each column, …], [rows of text, …]] or
[query, SQLSTATE, message]. The same of changes.sql into changed.json:
[statement, tag, rows of RETURNING, rows of all tables] or [statement, SQLSTATE]. The tables of
schema.sql are made and rolled back. Rows of a query without ORDER BY are sorted by text: their
order means nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "analytic"


def answer(link: psycopg.pq.abc.PGconn, query: str) -> list[Any]:
    """What a server says to a query."""
    result = link.exec_params(query.encode(), [], result_format=0)
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        field = psycopg.pq.DiagnosticField
        return [
            query,
            (result.error_field(field.SQLSTATE) or b"").decode(),
            (result.error_field(field.MESSAGE_PRIMARY) or b"").decode(),
        ]
    width = range(result.nfields)
    rows = [
        [None if (value := result.get_value(row, i)) is None else value.decode() for i in width]
        for row in range(result.ntuples)
    ]
    if "order by" not in query.lower():
        rows.sort(key=repr)
    return [query, [result.ftype(i) for i in width], rows]


STATES = [f"select * from {table} order by 1, 2" for table in "coke"]


def changed(link: psycopg.pq.abc.PGconn, statement: str) -> list[Any]:
    """What a change says, and what all tables hold then."""
    result = link.exec_params(statement.encode(), [], result_format=0)
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        state = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
        return [statement, state]
    width = range(result.nfields)
    rows = [
        [None if (value := result.get_value(row, i)) is None else value.decode() for i in width]
        for row in range(result.ntuples)
    ]
    tag = (result.command_status or b"").decode()
    return [statement, tag, sorted(rows, key=repr), [answer(link, one)[2] for one in STATES]]


def main(address: str) -> None:
    with psycopg.connect(address, options="-c timezone=UTC") as connection:
        connection.execute((HERE / "schema.sql").read_bytes())
        for name, ask in (("queries", answer), ("changes", changed)):
            recorded = []
            for line in (HERE / f"{name}.sql").read_text(encoding="utf-8").splitlines():
                connection.execute("savepoint one")
                recorded.append(ask(connection.pgconn, line))
                connection.execute("rollback to one")
            out = HERE / ("answers.json" if name == "queries" else "changed.json")
            lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in recorded)
            out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
            print(f"{len(recorded)} {name}")
        connection.rollback()


if __name__ == "__main__":
    main(*sys.argv[1:])
