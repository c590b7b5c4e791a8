"""Asks a real PostgreSQL 15 what the statements of tests/sqlproxy/front/statements.sql return.

    python scripts/record_sql_statements.py "host=127.0.0.1 port=5432 user=postgres"

Nothing is executed, only parsed and described. Writes tests/sqlproxy/front/statements.json:
[statement, parameter OIDs, [[name, OID, typmod, table, attribute], …] | null] or
[statement, SQLSTATE, message, position]. Makes tables t, u, view w and sequence s, and drops them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg

HERE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "front"
TABLES = """
    create table t (a int primary key, b text, c numeric(10,2) default 0 check (c >= 0),
                    d timestamptz default now(), g int generated always as (a + 1) stored,
                    unique (b));
    create table u (a int primary key, x bigint, v varchar(10), arr int[], j jsonb);
    create view w as select t.a, t.b from t;
    create sequence s;
"""


def main(address: str) -> None:
    recorded: list[list[object]] = []
    with psycopg.connect(address) as connection:
        connection.execute(TABLES)  # rolled back at the end
        tables = {
            int(oid): str(name)
            for oid, name in connection.execute(
                "select oid::int, relname from pg_class where relname in ('t', 'u', 'w')"
            )
        }
        for line in (HERE / "statements.sql").read_text(encoding="utf-8").splitlines():
            connection.execute("savepoint one")
            recorded.append(describe(connection.pgconn, line, tables))
            connection.execute("rollback to one")
        connection.rollback()
    with (HERE / "statements.json").open("w", encoding="utf-8") as out:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in recorded)
        out.write(f"[\n{lines}\n]\n")
    print(f"{len(recorded)} statements")


def describe(link: psycopg.pq.abc.PGconn, text: str, tables: dict[int, str]) -> list[object]:
    result = link.prepare(b"", text.encode())
    if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
        field = psycopg.pq.DiagnosticField
        state, words, place = (
            (result.error_field(f) or b"0").decode()
            for f in (field.SQLSTATE, field.MESSAGE_PRIMARY, field.STATEMENT_POSITION)
        )
        return [text, state, words, int(place)]
    found = link.describe_prepared(b"")
    parameters = [found.param_type(i) for i in range(found.nparams)]
    if not found.nfields:
        return [text, parameters, None]
    fields = [
        [
            (found.fname(i) or b"").decode(),
            found.ftype(i),
            found.fmod(i),
            tables.get(found.ftable(i), ""),
            found.ftablecol(i),
        ]
        for i in range(found.nfields)
    ]
    return [text, parameters, fields]


if __name__ == "__main__":
    main(*sys.argv[1:])
