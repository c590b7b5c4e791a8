"""Texts of SQL sent to a server, and its first failure as psql tells it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from kvorum.cli import output, sql_split

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

Show = Callable[["PGresult"], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """`at`: characters of the text before the statement that the error's position is within."""

    error: psycopg.Error
    at: int = 0


def text_of(data: bytes) -> str:
    """Of a script: with its line ends as they are, which may stand within values. Raises
    UnicodeDecodeError.
    """
    return data.decode("utf-8-sig")


def run(connection: psycopg.Connection, text: str, show: Show) -> Failure | None:
    """Run the statements of a text one by one and show each answer; the first failure ends it."""
    for one in sql_split.split(text)[0]:
        try:
            with connection.cursor() as cursor:
                if one.to_client:
                    _command_of_psql(one.text)
                elif one.copies:
                    _copy(cursor, one, (one.data or "").encode(), show)
                else:
                    _execute(cursor, one.text, show)
        except psycopg.Error as error:
            return Failure(error, one.at)
    return None


def run_together(connection: psycopg.Connection, text: str, show: Show) -> Failure | None:
    """The same as one message, which is one transaction; a COPY by itself has the standard
    input.
    """
    statements, _ = sql_split.split(text)
    try:
        with connection.cursor() as cursor:
            if len(statements) == 1 and statements[0].copies:
                given = sys.stdin.buffer.read() if statements[0].copies_in else b""
                _copy(cursor, statements[0], given, show)
            else:
                _execute(cursor, text, show)
    except psycopg.Error as error:
        return Failure(error)
    return None


def _command_of_psql(line: str) -> None:
    """pg_dump forbids commands that run programs; there are none here. Raises ProgrammingError."""
    if line.split()[0] not in ("\\restrict", "\\unrestrict"):
        raise psycopg.ProgrammingError(f"{line:.80} is a command of psql's: run the script by psql")


def _execute(cursor: psycopg.Cursor, text: str, show: Show) -> None:
    cursor.execute(text.encode(), prepare=False)
    while True:
        if (result := cursor.pgresult) is not None:
            show(result)
        if not cursor.nextset():
            return


def _copy(cursor: psycopg.Cursor, one: sql_split.Statement, data: bytes, show: Show) -> None:
    """To the standard output, or of `data`, which need not be text."""
    with cursor.copy(one.text.encode()) as copy:
        if one.copies_in:
            copy.write(data)
        else:
            sys.stdout.flush()
            for block in copy:
                sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
    if one.copies_in and (result := cursor.pgresult) is not None:
        show(result)


def notices(connection: psycopg.Connection) -> None:
    """What the server tells beside answers goes to the standard error."""

    def tell(said: psycopg.errors.Diagnostic) -> None:
        answer = f"{said.severity}: {said.message_primary}"
        sys.stderr.write(output.printable(answer, "\n") + "\n")

    connection.add_notice_handler(tell)


def in_one_line(failure: Failure, text: str) -> str:
    """The same as `as_psql_shows`, for a script's log."""
    where = ""
    error = failure.error
    if error.diag.statement_position or failure.at:
        before = text[: failure.at + int(error.diag.statement_position or 1) - 1]
        where = f" (line {before.count(chr(10)) + 1}, {len(before) - before.rfind(chr(10))})"
    lines = [
        line
        for line in as_psql_shows(failure, "").splitlines()
        if not line.startswith(("LINE ", " "))
    ]
    return "; ".join([lines[0] + where, *lines[1:]])


def as_psql_shows(failure: Failure, text: str) -> str:
    """As psql tells it: message, the line with a mark under its place, detail, hint, SQLSTATE."""
    diag = failure.error.diag
    if diag.message_primary is None:
        return str(failure.error).strip() or type(failure.error).__name__
    lines = [f"{diag.severity or 'ERROR'} {diag.sqlstate}: {diag.message_primary}"]
    if diag.statement_position:
        lines += _marked(text, failure.at + int(diag.statement_position))
    if diag.message_detail:
        lines.append(f"DETAIL: {diag.message_detail}")
    if diag.message_hint:
        lines.append(f"HINT: {diag.message_hint}")
    if diag.context:
        lines.append(f"CONTEXT: {diag.context}")  # the line of a COPY
    return "\n".join(lines)


def _marked(text: str, position: int) -> list[str]:
    """The line that holds the character `position` (from 1), and a mark below it."""
    start = text.rfind("\n", 0, position - 1) + 1
    end = text.find("\n", position - 1)
    line = text[start : end if end >= 0 else None]
    head = f"LINE {text.count(chr(10), 0, start) + 1}: "
    return [head + line.replace("\t", " "), " " * (len(head) + position - 1 - start) + "^"]
