"""Rows of another PostgreSQL for an import, by psycopg: `postgresql://user@host/db?table=…`, or a
query. Blocks.

Read in pieces by the target's primary key, each in a connection of its own: `WHERE (key) > (last
one) ORDER BY key LIMIT n`. So an import that was interrupted goes on where it was, and nothing is
held open at the source; what changes there meanwhile may be seen or not (a table that stands still
is copied exactly). Other databases: Spark's JDBC reader and our sink (`kvorum spark`, docs/guides/
import-export.md): it brings the drivers, which would be a JVM here.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit, urlunsplit

from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import TRANSFER_QUERY_MS
from kvorum.local.extras import needed
from kvorum.transfer.formats import Cells, Piece
from sqlproxy.rows.schema import Table

_CONNECT_S: Final = 30
_LINK: Final = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_NOT_NULL: Final = (
    "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = ANY(%s)"
    " AND attnotnull"
)
_STYLE: Final = "SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'"
_AS_TEXT: Final = frozenset({"interval", "json", "jsonb", "date", "time", "timestamptz"})
_SCHEMES: Final = ("postgresql://", "postgres://")


def is_database(source: str) -> bool:
    return source.startswith(_SCHEMES)


def split(source: str) -> tuple[str, str]:
    """The URL as psycopg takes it, and the table that it names ("": none)."""
    parts = urlsplit(source)
    query = parse_qs(parts.query)
    table = query.pop("table", [""])[0]
    # Quoted anew: an & in a value would begin another option.
    rest = urlencode(query, doseq=True, quote_via=quote)
    return urlunsplit(parts._replace(query=rest)), table


def check_no_password(source: str) -> None:
    """It would be kept in clear in the procedure's arguments, its history and every backup. Raises
    InvalidArgument, which does not repeat it.
    """
    rest = source.partition("://")[2]
    # Not everybody quotes a ? or a slash in a password.
    users = [part.rpartition("@")[0] for part in (rest.partition("/")[0], rest.partition("?")[0])]
    query = rest.partition("?")[2]
    names = [name.partition("=")[0] for name in re.split("[?&#]", query)]
    secret = any("password" in unquote(name).lower() for name in names)
    if secret or any(":" in user for user in users):
        raise InvalidArgument(
            "the URL of the source has a password, which would be kept in the procedure's record: "
            "leave it out, and give it by PGPASSWORD or ~/.pgpass to the process that reads the "
            "source (the command; with --on-nodes every node)"
        )


def statement(table: Table, name: str, query: str) -> str:
    """What is asked, without the place to go on and the number of rows. Raises InvalidArgument."""
    if table.plain or table.hidden_key:
        raise InvalidArgument(
            f"table {table.path} has no primary key of its own, by which pieces of a query could "
            "follow each other; declare one, or copy by way of files"
        )
    if bool(name) == bool(query):
        raise InvalidArgument("name a table (postgresql://…?table=SCHEMA.TABLE) or give --query")
    return f"SELECT * FROM {_path(name)}" if name else f"SELECT * FROM ({query}) AS q"


def _path(name: str) -> str:
    return ".".join(_quoted(part) for part in name.split("."))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def read_piece(source: str, query: str, table: Table, offset: object, most: int) -> Piece:
    """`offset`: 0 at the beginning, then the key of the last row. Raises InvalidArgument,
    Unavailable.
    """
    psycopg = needed("psycopg")
    url, name = split(source)
    keys = ", ".join(_quoted(column) for column in table.primary_key).replace("%", "%%")
    text = statement(table, name, query).replace("%", "%%")
    keyed = _keyed(table).replace("%", "%%")
    last = offset["key"] if isinstance(offset, dict) else None
    marks = ", ".join("%s" for _ in table.primary_key)
    after = f" AND ({keys}) > ({marks})" if last else ""
    # One more than asked for: of rows with one key none may begin the next piece.
    wanted = (
        f"SELECT * FROM ({text}) AS piece WHERE {keyed}{after} ORDER BY {keys} LIMIT {most + 1}"
    )
    try:
        with _connected(psycopg, url) as connection:
            _take_texts(connection)
            found = connection.execute(wanted, last or [])
            names = [column.name for column in found.description or ()]
            rows = found.fetchall()
    except psycopg.OperationalError as error:
        raise Unavailable(f"the source cannot be reached, it is tried again: {error}") from error
    except psycopg.Error as error:
        raise InvalidArgument(f"the source refused the query: {error}") from error
    missing = [name for name in table.primary_key if name not in names]
    if missing:
        raise InvalidArgument(f"the source has no column {missing[0]}, which is of the primary key")
    places = [names.index(name) for name in table.primary_key]
    more = len(rows) > most
    if more and [rows[-1][at] for at in places] != [rows[-2][at] for at in places]:
        rows.pop()
    seen = offset["seen"] if isinstance(offset, dict) else 0
    piece = Piece(names, [Cells(seen + at + 1, row) for at, row in enumerate(rows)])
    if more:
        key = [_plain(rows[-1][place]) for place in places]
        piece.offset = {"key": key, "seen": seen + len(rows)}
    return piece


def _connected(psycopg: ModuleType, url: str) -> Any:
    """That only reads, and waits for nobody for ever: not for a machine that is gone, nor does the
    source go on with a statement that nobody waits for.
    """
    connection = psycopg.connect(url, connect_timeout=_CONNECT_S, **_LINK)
    try:
        connection.read_only = True
        connection.execute(f"SET statement_timeout = {TRANSFER_QUERY_MS}")
    except BaseException:
        connection.close()
        raise
    return connection


def _take_texts(connection: Any) -> None:
    """Values that Python would change come as PostgreSQL prints them: intervals lose their months,
    jsonb its numbers' zeros, arrays their bounds; a date beyond Python's calendar would end all.
    """
    from psycopg import DataError
    from psycopg.types.datetime import TimestampLoader
    from psycopg.types.string import TextLoader

    class Moments(TimestampLoader):
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except DataError:
                return bytes(data).decode()

    connection.execute(_STYLE)
    adapters = connection.adapters
    for kind in adapters.types:
        if kind.name in _AS_TEXT:
            adapters.register_loader(kind.oid, TextLoader)
        if kind.array_oid:
            adapters.register_loader(kind.array_oid, TextLoader)
    adapters.register_loader("timestamp", Moments)


def count_keyless(source: str, query: str, table: Table) -> int:
    """How many rows there have NULL in the table's primary key. All of them are read for that,
    unless the source is a table that says that there are none. Raises InvalidArgument,
    Unavailable.
    """
    psycopg = needed("psycopg")
    url, name = split(source)
    text = statement(table, name, query)
    keys = list(table.primary_key)
    wanted = f"SELECT count(*) FROM ({text}) AS whole WHERE NOT ({_keyed(table)})"
    try:
        with _connected(psycopg, url) as connection:
            if name:
                never = connection.execute(_NOT_NULL, [_path(name), keys]).fetchone()
                if never == (len(keys),):
                    return 0
            row = connection.execute(wanted.encode()).fetchone()
    except psycopg.OperationalError as error:
        raise Unavailable(f"the source cannot be reached, it is tried again: {error}") from error
    except psycopg.Error as error:
        raise InvalidArgument(f"the source refused the query: {error}") from error
    return int(row[0]) if row else 0


def _keyed(table: Table) -> str:
    return " AND ".join(f"{_quoted(column)} IS NOT NULL" for column in table.primary_key)


def _plain(value: object) -> object:
    """As the state of a procedure takes it; PostgreSQL reads it back."""
    return value if isinstance(value, int | str | float | bytes) else str(value)


def schema_of(source: str, query: str) -> list[tuple[str, str]]:
    """Columns and canonical types of a table or a query there. Raises InvalidArgument."""
    psycopg = needed("psycopg")
    url, name = split(source)
    if bool(name) == bool(query):
        raise InvalidArgument("name a table (postgresql://…?table=SCHEMA.TABLE) or give --query")
    text = f"SELECT * FROM {_path(name)}" if name else query
    try:
        with _connected(psycopg, url) as connection:
            found = connection.execute(f"SELECT * FROM ({text}) AS q LIMIT 0".encode())
            columns, answer = found.description or [], found.pgresult
            ask = "SELECT format_type(%s, %s)"
            types = [
                (column.name, connection.execute(ask, (column.type_code, answer.fmod(at))))
                for at, column in enumerate(columns)
                if answer is not None
            ]
            kinds = [(name, str((asked.fetchone() or ["text"])[0])) for name, asked in types]
    except psycopg.Error as error:
        raise InvalidArgument(f"the source cannot be read: {error}") from error
    return [(name, _known(name, kind)) for name, kind in kinds]


def _known(column: str, kind: str) -> str:
    """The canonical name of a column's type. Raises InvalidArgument."""
    from sqlproxy.values.types import resolve

    try:
        return resolve(kind).name
    except InvalidArgument as error:
        raise InvalidArgument(
            f"column {column} is of type {kind} there, which there is not here: change it on the"
            f" way, as by --query 'SELECT …, {_quoted(column)}::text AS {_quoted(column)} FROM …'"
        ) from error
