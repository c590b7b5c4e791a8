"""`kvorum sql`: statements from the command line, a file or standard input, or a prompt for people.

    kvorum sql                       a prompt: history, completion, tables
    kvorum sql -c 'SELECT 1'         one text; several statements in it are one transaction
    kvorum sql -f FILE | < FILE      statements of a file, each by itself

It speaks the PostgreSQL protocol to BASE+3, through psycopg; any other client of PostgreSQL will do
as well. Exit code 1 when a statement failed; what follows it in the text is not run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kv.base.config import SQL_OFFSET, split_address
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT, Connect, Json, errors_shown

if TYPE_CHECKING:
    import psycopg

Database = Annotated[str, typer.Option("--database", "-d", help="The database: a namespace.")]
User = Annotated[str, typer.Option("--user", "-U", help="The role.")]


def sql(
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="SQL", help="Run this, then end. May be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Run a file, then end; - is the standard input."),
    ] = None,
    database: Database = "postgres",
    user: User = "kvorum",
    password: Annotated[
        bool,
        typer.Option("--password", "-W", help="Ask for a password; else PGPASSWORD or ~/.pgpass."),
    ] = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """SQL: run statements, or ask for them at a prompt.

    With --json a line per statement: {"columns": […], "rows": [[…]], "tag": "SELECT 2"}, values as
    PostgreSQL's text.
    """
    from kvorum.cli import sql_run, sql_shell

    texts = [(sql_run.run_together, text) for text in command or ()]
    if file is not None:
        texts.append((sql_run.run, _read(file, json)))
    elif not texts and not sys.stdin.isatty():
        texts.append((sql_run.run, _read(Path("-"), json)))
    secret = os.environ.get("PGPASSWORD")  # no flag: every user of the machine sees these
    if password:
        secret = str(typer.prompt("Password", hide_input=True, err=True))
    with errors_shown(json):
        connection = connected(connect or DEFAULT, database, user, secret, json)
        with connection:
            sql_run.notices(connection)
            if not texts:
                sql_shell.prompt(connection)
                return
            show = sql_shell.emit_json if json else sql_shell.Shown()
            for run, text in texts:
                if (failure := run(connection, text, show)) is not None:
                    output.die(sql_run.in_one_line(failure, text), as_json=json)


def _read(file: Path, as_json: bool) -> str:
    from kvorum.cli.sql_run import text_of

    try:
        return text_of(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        output.die(f"cannot read {file}: {error}", as_json=as_json)


def connected(
    address: str, database: str, user: str, password: str | None, as_json: bool
) -> psycopg.Connection:
    """To the first node of the list that answers. Ends the process if none does."""
    import psycopg

    hosts, ports = [], []
    for one in address.removeprefix("kvorum://").split(","):
        if "://" in one:
            _not_http(one, as_json)
        host, base = split_address(one.strip())
        hosts.append(host)
        ports.append(str(base + SQL_OFFSET))
    try:
        return psycopg.connect(
            host=",".join(hosts),
            port=",".join(ports),
            dbname=database,
            user=user,
            password=password,
            autocommit=True,
            connect_timeout=10,
            application_name="kvorum sql",
        )
    except psycopg.OperationalError as error:
        output.die(f"no SQL at {address} (ports BASE+{SQL_OFFSET}): {error}", as_json=as_json)


def _not_http(address: str, as_json: bool) -> NoReturn:
    output.die(
        f"{address} is an address of the HTTP API; SQL needs HOST:BASE, it is at BASE+{SQL_OFFSET}",
        as_json=as_json,
    )
