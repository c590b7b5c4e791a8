"""Asks a real PostgreSQL 15 for the values, types and errors of
tests/sqlproxy/front/expressions.txt.

    python scripts/record_sql_expressions.py "host=127.0.0.1 port=5432 user=postgres"

Writes tests/sqlproxy/front/expressions.json: [expression, OID, typmod, text | null] or [expression,
SQLSTATE, message, position]. The server must have UTF8, the locale C.UTF-8 and the time zone UTC.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg

HERE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "front"


def main(address: str) -> None:
    recorded: list[list[object]] = []
    with psycopg.connect(address, autocommit=True) as connection:
        for line in (HERE / "expressions.txt").read_text(encoding="utf-8").splitlines():
            if not line.strip() or line.startswith("--"):
                continue
            result = connection.pgconn.exec_(f"SELECT {line}".encode())
            if result.status == psycopg.pq.ExecStatus.TUPLES_OK:
                value = result.get_value(0, 0)
                text = None if value is None else value.decode()
                recorded.append([line, result.ftype(0), result.fmod(0), text])
            else:
                state = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
                words = (
                    result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or b""
                ).decode()
                place = (
                    result.error_field(psycopg.pq.DiagnosticField.STATEMENT_POSITION) or b"0"
                ).decode()
                recorded.append([line, state, words, int(place)])
    with (HERE / "expressions.json").open("w", encoding="utf-8") as out:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in recorded)
        out.write(f"[\n{lines}\n]\n")
    failing = sum(isinstance(row[1], str) for row in recorded)
    print(f"{len(recorded)} expressions, {failing} of them failing")


if __name__ == "__main__":
    main(*sys.argv[1:])
