"""Asks a real PostgreSQL 15 what the statements of tests/sqlproxy/compare/*.sql answer, or
compares two servers.

    python scripts/record_sql_compare.py record "host=127.0.0.1 port=5432 user=postgres" [FILE …]
    python scripts/record_sql_compare.py live POSTGRESQL KVORUM [FILE …]

A line of such a file is a case: statements separated by ` ;; `, run one after the other in a
transaction that is rolled back. `record` writes `FILE.json` beside each file: [case, answer, …],
an answer being {"columns": [[name, OID, modifier], …], "rows": [[text, …], …], "tag": …} or
{"error": SQLSTATE, "message": …}. Rows of a statement without ORDER BY are sorted by text: their
order means nothing. `live` makes a database `compare` at both servers from schema.sql, and shows
each difference; the tests do the same with what is recorded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

HERE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "compare"
_FIRST_OF_USERS = 16_384
Case = list[Any]
"""Its text, and the answer to each of its statements."""


def files() -> list[Path]:
    """The files with cases."""
    return [path for path in sorted(HERE.glob("*.sql")) if path.stem != "schema"]


def cases(path: Path) -> Iterator[str]:
    """The cases of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("--"):
            yield line


def asked(link: PGconn, case: str) -> Case:
    """What a server says to a case."""
    link.exec_(b"begin")
    try:
        return [case, *(_answer(link, one) for one in case.split(" ;; "))]
    finally:
        link.exec_(b"rollback")
        link.exec_(b"close all")
        link.exec_(b"deallocate all")
        link.exec_(b"reset all")


def _answer(link: PGconn, statement: str) -> dict[str, Any]:
    result = link.exec_params(statement.encode(), [], result_format=0)
    if result.status == ExecStatus.FATAL_ERROR:
        state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        message = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode()
        return {"error": state, "message": message}
    answer: dict[str, Any] = {"tag": (result.command_status or b"").decode()}
    if result.status == ExecStatus.TUPLES_OK:
        answer["columns"] = [
            [(result.fname(i) or b"").decode(), _system(result.ftype(i)), result.fmod(i)]
            for i in range(result.nfields)
        ]
        answer["rows"] = _rows(result)
        if "order by" not in statement and not statement.startswith(("fetch", "execute")):
            answer["rows"].sort(key=repr)
    return answer


def _system(oid: int) -> int:
    """A type's OID; 0 for those of users, which each server chooses by itself."""
    return oid if oid < _FIRST_OF_USERS else 0


def _rows(result: PGresult) -> list[list[str | None]]:
    return [
        [
            None if (value := result.get_value(at, i)) is None else value.decode()
            for i in range(result.nfields)
        ]
        for at in range(result.ntuples)
    ]


def fill(address: str, name: str) -> psycopg.Connection:
    """A connection to the database `name`, made anew with the tables of schema.sql."""
    while True:
        with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
            connection.execute(f"drop database if exists {name}".encode())
            connection.execute(
                f"create database {name} template template0 locale 'C.UTF-8'".encode()
            )
        made = psycopg.connect(
            f"{address} dbname={name}", options="-c timezone=UTC", autocommit=True
        )
        try:
            made.execute((HERE / "schema.sql").read_bytes())
        except psycopg.errors.SerializationFailure:
            # All of it is one transaction, which lasts for seconds on a busy machine: again.
            made.close()
            continue
        return made


def _record(address: str, *names: str) -> None:
    with fill(address, "compare") as connection:
        for path in files():
            if names and path.name not in names:
                continue
            found = [asked(connection.pgconn, case) for case in cases(path)]
            lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
            path.with_suffix(".json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
            print(f"{len(found)} in {path.name}")


def _live(one: str, other: str, *names: str) -> None:
    differences = number = 0
    known = json.loads((HERE / "differences.json").read_text(encoding="utf-8"))
    with fill(one, "compare") as left, fill(other, "compare") as right:
        for path in files():
            if names and path.name not in names:
                continue
            for case in cases(path):
                number += 1
                expected, found = asked(left.pgconn, case), asked(right.pgconn, case)
                if expected != found:
                    differences += 1
                    reason = known.get(case, [None, "NOT LISTED"])[1]
                    print(f"{path.name}: {case}    ({reason})")
                    for a, b in zip(expected[1:], found[1:], strict=True):
                        if a != b:
                            print(f"    - {json.dumps(a, ensure_ascii=False)}")
                            print(f"    + {json.dumps(b, ensure_ascii=False)}")
    print(f"{differences} of {number} differ")


def main(command: str, *words: str) -> None:
    if command == "record":
        _record(*words)
    elif command == "live":
        _live(*words)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
