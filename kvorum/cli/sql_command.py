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
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from kv.base.config import SQL_OFFSET
from kv.base.credentials import from_file
from kv.base.rights import OWNER
from kvorum.api.addresses import parse_url, tls_for
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT, Connect, Json, errors_shown

if TYPE_CHECKING:
    import psycopg

    from kv.base.tls import Tls

_LOG_IN: Final = (
    ". Log in to SQL by --tls-dir with a user's certificate, or by --user and PGPASSWORD or "
    "KVORUM_PASSWORD_FILE"
)
Database = Annotated[str, typer.Option("--database", "-d", help="The database: a namespace.")]
User = Annotated[
    str,
    typer.Option(
        "--user",
        "-U",
        help="The role; left out, KVORUM_USER, the one of the certificate in --tls-dir, or kvorum.",
    ),
]


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
    user: User = "",
    password: Annotated[
        bool,
        typer.Option(
            "--password",
            "-W",
            help="Ask for a password; else PGPASSWORD, KVORUM_PASSWORD_FILE or ~/.pgpass.",
        ),
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
    # no flag: every user of the machine sees these
    secret = str(typer.prompt("Password", hide_input=True, err=True)) if password else None
    with errors_shown(json):
        connection = connected(connect or DEFAULT, database, user, json, password=secret)
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
    address: str, database: str, user: str, as_json: bool, *, password: str | None = None
) -> psycopg.Connection:
    """To the first node of the list that answers, with TLS as of every command, as the role that is
    named or has a certificate. Ends the process if none answers. Raises InvalidArgument.
    """
    import psycopg

    user = user or os.environ.get("KVORUM_USER", "")
    scheme, addresses = parse_url(address)
    if scheme == "http":
        _not_http(address, as_json)
    tls = tls_for(address, user=user)
    try:
        return psycopg.connect(
            _of_libpq(tls),
            host=",".join(host for host, _ in addresses),
            port=",".join(str(base + SQL_OFFSET) for _, base in addresses),
            dbname=database,
            user=user or (tls.user if tls is not None else "") or OWNER,
            password=password or _known_password(),
            autocommit=True,
            connect_timeout=10,
            application_name="kvorum sql",
        )
    except psycopg.OperationalError as error:
        advice = _LOG_IN if "no password supplied" in str(error) else ""
        if tls is not None and "SSL error" in str(error):
            advice = tls.doubt
        output.die(
            f"no SQL at {address} (ports BASE+{SQL_OFFSET}): {error}{advice}", as_json=as_json
        )


def _known_password() -> str | None:
    """None: libpq looks for one itself."""
    file = os.environ.get("KVORUM_PASSWORD_FILE", "")
    return from_file(file, "KVORUM_PASSWORD_FILE") if file else None


def _of_libpq(tls: Tls | None) -> str:
    """As libpq says it. Without, it is left to PGSSLMODE and its like."""
    from psycopg.conninfo import make_conninfo

    if tls is None:
        return ""
    given: dict[str, str] = {"sslmode": "verify-full", "sslrootcert": str(tls.ca or "system")}
    if tls.pair is not None:
        given |= {"sslcert": str(tls.pair[0]), "sslkey": str(tls.pair[1])}
    return make_conninfo("", **given)


def _not_http(address: str, as_json: bool) -> NoReturn:
    output.die(
        f"{address} is an address of the HTTP API; SQL needs HOST:BASE, it is at BASE+{SQL_OFFSET}",
        as_json=as_json,
    )
