"""Statements of several sessions, asked of a server: what PostgreSQL answers is recorded beside
them, and compared.

    1: create temp table t (a int)      a statement of the first session; `close` ends one
    COPY … FROM STDIN                   with its rows on the lines below

An answer is tag and rows, or SQLSTATE and message; of those in TOLD also what is told beside it:
DETAIL of an error and the schema that it names, notices.

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
TOLD = ("schemas",)
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

    def __init__(self, dsn: str, *, told: bool = False) -> None:
        """`told`: with details and notices."""
        self._dsn, self._told = dsn, told
        self._notices: list[str] = []
        self._open: dict[str, psycopg.Connection] = {}

    def ask(self, session: str, text: str) -> list[Any]:
        """Tag and rows, or SQLSTATE and message."""
        if text == "close":
            self._open.pop(session).close()
            return []
        if session not in self._open:
            opened = self._open[session] = psycopg.connect(self._dsn, autocommit=True)
            opened.add_notice_handler(self._heard)
        self._notices.clear()
        try:
            found = [_OWN.sub("pg_temp_N", json.dumps(_asked(self._open[session], text)))]
            return found + self._notices if self._told else found
        except psycopg.Error as error:
            words = _OWN.sub("pg_temp_N", str(error.diag.message_primary))
            told = [_lines(error.diag.message_detail)] if self._told else []
            told += [f"schema {error.diag.schema_name}"] if told and error.diag.schema_name else []
            return [error.sqlstate, words, *told]

    def _heard(self, notice: psycopg.errors.Diagnostic) -> None:
        self._notices.append(
            "\n".join((notice.message_primary or "", *_lines(notice.message_detail)))
        )

    def close(self) -> None:
        for one in self._open.values():
            one.close()


def _lines(detail: str | None) -> list[str]:
    """In an order that means nothing."""
    return sorted((detail or "").splitlines())


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
    sessions = Sessions(dsn, told=name in TOLD)
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
