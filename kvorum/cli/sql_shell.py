"""What `kvorum sql` shows, and its prompt.

Rows are shown as PostgreSQL sent them, in text, never through Python's types: a numeric keeps its
zeros. An answer is held in memory while it is laid out; who wants millions of rows takes COPY.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus

from kv.base.adapters import SystemClock
from kvorum.cli import output, sql_split
from kvorum.cli.sql_run import Failure, as_psql_shows, notices, run, text_of

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from psycopg.pq.abc import PGresult

_WORDS: Final = """
    SELECT, FROM, WHERE, GROUP BY, ORDER BY, HAVING, LIMIT, OFFSET, JOIN, LEFT JOIN, INSERT INTO,
    VALUES, UPDATE, SET, DELETE FROM, RETURNING, ON CONFLICT, DO NOTHING, DO UPDATE SET,
    CREATE TABLE, CREATE INDEX, CREATE UNIQUE INDEX, CREATE VIEW, CREATE DATABASE, ALTER TABLE,
    ADD COLUMN, DROP TABLE, DROP INDEX, PRIMARY KEY, NOT NULL, DEFAULT, UNIQUE, REFERENCES, CHECK,
    BEGIN, COMMIT, ROLLBACK, SAVEPOINT, EXPLAIN, ANALYZE, SHOW, COPY, TRUNCATE, DISTINCT, UNION ALL,
    WITH, AND, OR, NOT, NULL, IS, IN, LIKE, BETWEEN, EXISTS, CASE, WHEN, THEN, ELSE, END, COUNT, SUM
"""
WORDS: Final = [" ".join(words.split()) for words in _WORDS.split(",")]
HELP: Final = """\
\\d [TABLE]  tables, or the columns and indexes of one    \\x  one column per line, on and off
\\l          databases                                    \\timing  how long statements take
\\c NAME     another database                             \\i FILE  run a file
\\q          the end (also Ctrl-D)                        Ctrl-C  give up what runs
A statement ends with ; and may take several lines."""
_TABLES: Final = """
SELECT table_name AS "table", table_type AS "type" FROM information_schema.tables
WHERE table_schema = 'public' ORDER BY 1"""
_COLUMNS: Final = """
SELECT column_name AS "column", data_type AS "type", is_nullable AS "nullable",
       column_default AS "default"
FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position"""
_INDEXES: Final = """
SELECT indexname AS "index", indexdef AS "definition" FROM pg_catalog.pg_indexes
WHERE schemaname = 'public' AND tablename = %s ORDER BY 1"""
_DATABASES: Final = """
SELECT datname AS "database" FROM pg_catalog.pg_database WHERE NOT datistemplate ORDER BY 1"""
_NAMES: Final = """
SELECT table_name FROM information_schema.tables WHERE table_schema IN ('public', 'kvorum')
UNION SELECT column_name FROM information_schema.columns WHERE table_schema = 'public'"""


def cells(result: PGresult) -> tuple[list[str], list[list[str | None]]]:
    """Column names and rows, values as the server's text."""
    names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
    rows: list[list[str | None]] = []
    for at in range(result.ntuples):
        values = [result.get_value(at, i) for i in range(result.nfields)]
        rows.append([None if v is None else bytes(v).decode(errors="replace") for v in values])
    return names, rows


def emit_json(result: PGresult) -> None:
    """A line for one statement."""
    names, rows = cells(result)
    tag = (result.command_status or b"").decode()
    output.emit({"columns": names, "rows": rows, "tag": tag})


@dataclass(slots=True)
class Shown:
    """How answers are shown to people."""

    expanded: bool = False
    timing: bool = False
    null: str = "NULL"

    def __call__(self, result: PGresult) -> None:
        if result.status == ExecStatus.TUPLES_OK:
            names, rows = cells(result)
            laid_out = (
                self._down(names, rows) if self.expanded else self._across(result, names, rows)
            )
            output.lines(laid_out)
            output.lines([f"({len(rows)} row{'s' * (len(rows) != 1)})", ""])
        elif tag := (result.command_status or b"").decode():
            output.lines([tag])

    def _across(
        self, result: PGresult, names: Sequence[str], rows: Sequence[Sequence[str | None]]
    ) -> Iterable[str]:
        shown = [[self._cell(value) for value in row] for row in rows]
        widths = [max([len(name), *(len(row[i]) for row in shown)]) for i, name in enumerate(names)]
        numbers = {i for i in range(len(names)) if result.ftype(i) in _NUMBERS}
        yield " " + " │ ".join(n.center(w) for n, w in zip(names, widths, strict=True))
        yield "─" + "─┼─".join("─" * w for w in widths) + "─"
        for row in shown:
            line = [
                value.rjust(width) if i in numbers else value.ljust(width)
                for i, (value, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield (" " + " │ ".join(line)).rstrip()

    def _down(self, names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Iterable[str]:
        width = max((len(name) for name in names), default=0)
        for number, row in enumerate(rows, 1):
            yield f"─[ record {number} ]".ljust(width + 12, "─")
            for name, value in zip(names, row, strict=True):
                yield f"{name.ljust(width)} │ {self._cell(value)}"

    def _cell(self, value: str | None) -> str:
        return self.null if value is None else output.printable(value)


_NUMBERS: Final = frozenset({20, 21, 23, 26, 700, 701, 1700})  # OIDs: to the right


def prompt(connection: psycopg.Connection) -> None:
    """Ask for statements until the end of the input."""
    from prompt_toolkit.completion import WordCompleter

    completer = WordCompleter(WORDS, ignore_case=True)
    session = _session(completer)
    shell = _Shell(connection, completer)
    shell.learn_names()
    version = connection.info.parameter_status("server_version")
    output.lines([f"kvorum sql, server {version}; \\? helps"])
    while not shell.ended:
        try:
            text = session.prompt(shell.question())
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        shell.take(text.strip())


class _Shell:
    """What happens to a line."""

    def __init__(self, connection: psycopg.Connection, completer: WordCompleter) -> None:
        self._connection = connection
        self._completer = completer
        self._shown = Shown()
        self._now = SystemClock().monotonic
        self.ended = False

    def question(self) -> str:
        """`database=>`, with * in a transaction and ! in a failed one."""
        mark = {TransactionStatus.INTRANS: "*", TransactionStatus.INERROR: "!"}
        status = mark.get(self._connection.info.transaction_status, "")
        return f"{self._connection.info.dbname}={status}> "

    def take(self, text: str) -> None:
        """Run a line, whatever it is."""
        if text.startswith("\\"):
            self._command(*text[1:].rstrip(";").split(maxsplit=1))
        elif text:
            self._run(text)

    def learn_names(self) -> None:
        """Tables and columns for completion; without them if the server does not tell."""
        try:
            names = [row[0] for row in self._connection.execute(_NAMES).fetchall()]
        except psycopg.Error:
            return
        self._completer.words = [*WORDS, *names]

    def _run(self, text: str) -> None:
        began = self._now()
        try:
            failure = run(self._connection, text, self._shown)
            problem = "" if failure is None else as_psql_shows(failure, text)
        except KeyboardInterrupt:
            problem = "given up"
        if problem:
            sys.stderr.write(output.printable(problem, "\n") + "\n")
        if self._shown.timing:
            output.lines([f"Time: {(self._now() - began) * 1000:.3f} ms"])
        if text[:6].upper() in ("CREATE", "ALTER ", "DROP T", "DROP V"):
            self.learn_names()
        if self._connection.closed:
            output.die("the server closed the connection")

    def _command(self, name: str = "?", rest: str = "") -> None:
        match name:
            case "q" | "quit":
                self.ended = True
            case "x":
                self._shown.expanded = not self._shown.expanded
                output.lines([f"Expanded display is {'on' if self._shown.expanded else 'off'}."])
            case "timing":
                self._shown.timing = not self._shown.timing
                output.lines([f"Timing is {'on' if self._shown.timing else 'off'}."])
            case "d" | "dt" | "d+" if not rest:
                self._ask(_TABLES)
            case "d" | "d+" | "dt":
                if self._ask(_COLUMNS, rest, missing=f'There is no table or view "{rest}".'):
                    self._ask(_INDEXES, rest)
            case "l":
                self._ask(_DATABASES)
            case "c" if rest:
                self._other_database(rest)
            case "i" if rest:
                self._file(rest)
            case "?" | "h" | "help":
                output.lines(HELP.splitlines())
            case _:
                output.lines([f"There is no \\{name}, or it wants a name. There are:"])
                output.lines(HELP.splitlines())

    def _ask(self, query: str, *args: str, missing: str = "") -> bool:
        """Show the answer, or `missing` if it has no rows; whether it had some."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query.encode(), args or None)
                result = cursor.pgresult
                if result is not None and (result.ntuples or not missing):
                    self._shown(result)
                    return True
                output.lines([missing])
        except psycopg.Error as error:
            sys.stderr.write(as_psql_shows(Failure(error), query) + "\n")
        return False

    def _other_database(self, name: str) -> None:
        info = self._connection.info
        try:
            other = psycopg.connect(
                info.dsn,
                host=info.host,
                port=info.port,
                dbname=name,
                password=info.password or None,
                autocommit=True,
            )
        except psycopg.OperationalError as error:
            sys.stderr.write(f"{error}\n")
            return
        self._connection.close()
        self._connection = other
        notices(other)
        self.learn_names()

    def _file(self, name: str) -> None:
        try:
            self._run(text_of(Path(name).expanduser().read_bytes()))
        except (OSError, UnicodeDecodeError) as error:
            sys.stderr.write(f"cannot read {name}: {error}\n")


def history_path(environment: Any = os.environ) -> Path:
    """Where lines are kept between sessions."""
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "kvorum" / "sql_history"


def _session(completer: WordCompleter) -> PromptSession[str]:
    """A prompt whose Enter ends a line that is whole: empty, a command, or with its semicolon."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application.current import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import PostgresLexer

    history: History = InMemoryHistory()
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        history = FileHistory(str(path))
    except OSError as error:
        sys.stderr.write(f"no history: {error}\n")

    def unfinished() -> bool:
        text = get_app().current_buffer.text.strip()
        if not text or text.startswith("\\"):
            return False
        statements, whole = sql_split.split(text)
        lines_follow = bool(statements) and statements[-1].copies_in and statements[-1].data is None
        return not whole or lines_follow  # of COPY FROM STDIN, up to \\.

    return PromptSession(
        history=history,
        completer=completer,
        complete_while_typing=False,
        lexer=PygmentsLexer(PostgresLexer),
        multiline=Condition(unfinished),
        prompt_continuation="... ",
        enable_history_search=True,
    )
