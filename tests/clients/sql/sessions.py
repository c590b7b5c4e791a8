"""Statements of several sessions, asked of a server: what PostgreSQL answers is recorded beside
them, and compared.

    1: create temp table t (a int)      a statement of the first session; `close` ends one
    COPY … FROM STDIN                   with its rows on the lines below

    python -m tests.clients.sql.sessions temporary host=… port=… user=…      records PostgreSQL's
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent / "recorded"
_OWN = re.compile(r"pg_temp_\d+")


def statements(name: str) -> list[tuple[str, str]]:
    """Session and statement, in their order."""
    found = []
    for part in re.split(r"\n\n+", (HERE / f"{name}.sql").read_text("utf-8").strip()):
        session, text = re.fullmatch(r"(\d): (.*)", part.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
        found.append((session, text))
    return found


class Sessions:
    """Connections to one database, by their numbers."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._open: dict[str, psycopg.Connection] = {}

    def ask(self, session: str, text: str) -> list[Any]:
        """Tag and rows, or SQLSTATE and message."""
        if text == "close":
            self._open.pop(session).close()
            return []
        if session not in self._open:
            self._open[session] = psycopg.connect(self._dsn, autocommit=True)
        try:
            return [_OWN.sub("pg_temp_N", json.dumps(_asked(self._open[session], text)))]
        except psycopg.Error as error:
            words = _OWN.sub("pg_temp_N", str(error.diag.message_primary))
            return [error.sqlstate, words]

    def close(self) -> None:
        for one in self._open.values():
            one.close()


def _asked(conn: psycopg.Connection, text: str) -> list[Any]:
    if re.match(r"(?i)copy .* from stdin", text):
        head, _, rows = text.partition("\n")
        with conn.cursor() as cursor:
            with cursor.copy(head.encode()) as copy:
                copy.write(rows + "\n")
            return [cursor.statusmessage]
    cursor = conn.execute(text.encode())
    rows = (
        [[str(v) if v is not None else None for v in row] for row in cursor.fetchall()]
        if cursor.description
        else None
    )
    return [cursor.statusmessage, rows]


def answers(name: str, dsn: str) -> Iterator[list[Any]]:
    """Session, statement and answer."""
    sessions = Sessions(dsn)
    try:
        for session, text in statements(name):
            yield [session, text, sessions.ask(session, text)]
    finally:
        sessions.close()


def recorded(name: str) -> list[list[Any]]:
    """What PostgreSQL answered."""
    found: list[list[Any]] = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    return found


def main() -> None:
    name, dsn = sys.argv[1], " ".join(sys.argv[2:])
    database = f"recorded_{name}"
    with psycopg.connect(dsn, dbname="postgres", autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {database}")
        conn.execute(f"CREATE DATABASE {database}")
        found = list(answers(name, f"{dsn} dbname={database}"))
        conn.execute(f"DROP DATABASE {database}")
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
    (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
