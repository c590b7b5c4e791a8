"""Asks a real PostgreSQL 15 for the values of the random expressions of
tests/sqlproxy/analytic/made.py.

    python scripts/record_sql_printing.py "host=127.0.0.1 port=5432 user=postgres"

Writes tests/sqlproxy/analytic/made.json: [expression, [text | null, …]] by row, or [expression,
SQLSTATE].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg

from tests.sqlproxy.analytic.made import VALUES, made

HERE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "analytic"
COUNT = 480


def main(address: str) -> None:
    found: list[list[object]] = []
    with psycopg.connect(address, autocommit=True) as connection:
        for expression in made(COUNT):
            text = f"select ({expression})::text from {VALUES} order by m.id"
            result = connection.pgconn.exec_(text.encode())
            if result.status == psycopg.pq.ExecStatus.TUPLES_OK:
                values = [result.get_value(at, 0) for at in range(result.ntuples)]
                found.append([expression, [None if v is None else v.decode() for v in values]])
            else:
                state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b""
                found.append([expression, state.decode()])
    lines = ",\n".join(json.dumps(one) for one in found)
    (HERE / "made.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    states = [one[1] for one in found if isinstance(one[1], str)]
    print(f"{len(found)} expressions, {len(states)} of them failing: {sorted(set(states))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
