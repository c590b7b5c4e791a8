"""`kvorum export NAMESPACE.TABLE TARGET`, `kvorum import NAMESPACE.TABLE SOURCE`; and what is no
procedure but a client's reading, `kvorum export DATABASE FILE --format sql`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from kvorum.cli import long_procedures, output
from kvorum.cli.connection import DEFAULT, Connect, Json, errors_shown, table_of
from kvorum.cli.long_procedures import OnNodes, Rate, Resume

if TYPE_CHECKING:
    from kvorum.native.native import NativeBackend

Table = Annotated[str, typer.Argument(metavar="NAMESPACE.TABLE", show_default=False)]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="parquet, csv or json (a line per row); or sql: a script, of a whole database, too.",
        show_default=False,
    ),
]


def export(
    table: Annotated[str, typer.Argument(metavar="NAMESPACE[.TABLE]", show_default=False)],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Empty directory or URI; of --format sql a new file, or - for the output.",
            show_default=False,
        ),
    ],
    format: Format = "parquet",
    where: Annotated[
        str, typer.Option(help="Only rows that meet this SQL condition.", show_default=False)
    ] = "",
    columns: Annotated[
        str, typer.Option(help="Only these, with commas between them.", show_default=False)
    ] = "",
    prefix: Annotated[
        str, typer.Option(help="Only keys that begin so (of a plain table).", show_default=False)
    ] = "",
    as_of: Annotated[
        int, typer.Option("--as-of", metavar="V", help="As it was at this version.")
    ] = 0,
    rate: Rate = "",
    user: Annotated[str, typer.Option("--user", "-U", help="Of --format sql: the role.")] = "",
    on_nodes: OnNodes = False,
    resume: Resume = 0,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Write a table, as it is at one moment, to files part-00000… in an empty directory or URI.

    --format sql: a table or all of a database as a script that psql, kvorum sql and PostgreSQL
    read (declarations, rows, sequences, comments, privileges; the password is PGPASSWORD).
    """
    if format == "sql":
        if where or columns or prefix or as_of or rate or on_nodes or resume:
            raise typer.BadParameter("--format sql writes whole tables, as they are now, by itself")
        _script(table, target, user, connect, json)
        return
    from kvorum.transfer.export import EXPORT, EXPORT_HERE
    from kvorum.transfer.targets import is_own, uri_of

    name = table_of(table)
    with errors_shown(json):
        wanted = long_procedures.rate_of(rate)
        place = uri_of(target)

    async def args(_backend: NativeBackend) -> object:
        return {
            "table": list(name),
            "target": place,
            "format": format,
            "where": where,
            "columns": [one.strip() for one in columns.split(",") if one.strip()],
            "prefix": prefix.encode(),
            "at": as_of,
            "rate": wanted,
        }

    found = long_procedures.run(
        (EXPORT, EXPORT_HERE),
        args,
        connect=connect,
        json=json,
        here=is_own(target) and not on_nodes,
        resume=resume,
        same={"table": list(name), "target": place},
    )
    if json:
        output.emit(found)
        return
    output.lines([f"{found['rows']} rows in {found['files']} files: {found['target']}"])


def _script(what: str, target: str, user: str, connect: str | None, as_json: bool) -> None:
    from kvorum.cli.sql_command import connected
    from kvorum.sql.dumping import Changed, NoTable, dump
    from sqlproxy.rows.naming import database_of, schema_of

    space, _, table = what.partition(".")
    database, schema = database_of(space), schema_of(space)
    if database != space and not table:
        output.die(f"{what} is a schema: export {database}, or a table", as_json=as_json)
    with errors_shown(as_json):
        connection = connected(connect or DEFAULT, database, user, as_json)
        with connection, _new_file(target, as_json) as file:
            try:
                rows = dump(connection, file.write, table=table, schema=schema)
            except NoTable:
                output.die(f"there is no table {what}", as_json=as_json)
            except Changed:
                output.die(
                    f"{database} was declared anew while it was read: export it again",
                    as_json=as_json,
                )
    if as_json:
        output.emit({"rows": rows, "target": target})
    elif target != "-":
        output.lines([f"{rows} rows: {target}"])


@contextmanager
def _new_file(target: str, as_json: bool) -> Iterator[BinaryIO]:
    """A file that is there when all of it is written, and was not there before; - is the output."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    draft = path.with_name(f".{path.name}.new")
    try:
        if path.exists():
            output.die(f"{target} is there already: a script wants a new file", as_json=as_json)
        try:
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        output.die(f"cannot write {target}: {error}", as_json=as_json)


def import_(
    table: Table,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="File, directory, URI, or postgresql://USER@HOST/DB?table=SCHEMA.TABLE.",
            show_default=False,
        ),
    ],
    format: Annotated[
        str,
        typer.Option("--format", help="csv, json or parquet; left out: by the names of the files."),
    ] = "",
    create: Annotated[
        bool, typer.Option("--create", help="Make the table, its columns as in the source.")
    ] = False,
    key: Annotated[
        str, typer.Option(help="With --create: columns of the primary key. Left out: the first.")
    ] = "",
    on_conflict: Annotated[
        str, typer.Option("--on-conflict", help="error, or replace the row that is there.")
    ] = "error",
    on_error: Annotated[
        str, typer.Option("--on-error", help="stop at a row that is wrong, or skip it.")
    ] = "stop",
    atomic: Annotated[bool, typer.Option("--atomic", help="All rows at once, or none.")] = False,
    query: Annotated[
        str, typer.Option(help="Of a postgresql:// source: what to read.", show_default=False)
    ] = "",
    delimiter: Annotated[
        str, typer.Option(help="Of csv: the character between fields, or tab.", show_default=False)
    ] = ",",
    encoding: Annotated[
        str, typer.Option(help="Of csv and json, e.g. latin-1, cp1252, utf-16.")
    ] = "utf-8",
    compression: Annotated[
        str, typer.Option(help="gzip or none; left out: as a file begins.", show_default=False)
    ] = "",
    rate: Rate = "",
    on_nodes: OnNodes = False,
    resume: Resume = 0,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Read files, or another PostgreSQL, into a table. Interrupted, it goes on after the last
    rows that it wrote; each row is written once.
    """
    from kvorum.transfer.create_table import create_for
    from kvorum.transfer.import_ import IMPORT, IMPORT_HERE
    from kvorum.transfer.postgresql import check_no_password, is_database
    from kvorum.transfer.spools import Written
    from kvorum.transfer.targets import is_own, uri_of

    name = table_of(table)
    database = is_database(source)
    with errors_shown(json):
        wanted = long_procedures.rate_of(rate)
        local = not database and is_own(source)
        if database:
            check_no_password(source)
        place = source if database else uri_of(source)
        how = {"delimiter": delimiter, "encoding": encoding, "compression": compression}
        written = Written.of(how)
        how = {name: value for name, value in how.items() if value != getattr(Written(), name)}
    keys = [one.strip() for one in key.split(",") if one.strip()]

    made = False

    async def args(backend: NativeBackend) -> object:
        nonlocal made
        if create:
            await create_for(backend, *name, place, format, query, keys, written)
            made = True
        return how | {
            "table": list(name),
            "source": place,
            "format": format,
            "on_conflict": on_conflict,
            "on_error": on_error,
            "atomic": atomic,
            "query": query,
            "rate": wanted,
        }

    async def drop(backend: NativeBackend) -> None:
        if made:
            await backend.drop_table(*name)

    found = long_procedures.run(
        (IMPORT, IMPORT_HERE),
        args,
        connect=connect,
        json=json,
        here=(local or database) and not on_nodes,
        resume=resume,
        same={"table": list(name), "source": place},
        undo=drop,
    )
    if json:
        output.emit(found)
    else:
        output.lines([f"{found['rows']} rows into {'.'.join(name)}, {found['skipped']} skipped"])
        output.lines(
            f"{where}, line {line}: {code}: {message}"
            for where, line, code, message in found["errors"]
        )
    if found["skipped"]:
        raise typer.Exit(output.FAILED)
