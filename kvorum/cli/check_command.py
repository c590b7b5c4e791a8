"""`kvorum check [NAMESPACE.TABLE]`: whether what is stored agrees with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvorum.cli import long_procedures, output
from kvorum.cli.connection import Connect, Json, table_of
from kvorum.cli.long_procedures import Resume

if TYPE_CHECKING:
    from kvorum.native.native import NativeBackend


def check(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAMESPACE.TABLE]", help="Left out: everything.", show_default=False
        ),
    ] = None,
    resume: Resume = 0,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Compare indexes with rows, replicas with each other, sequences and counters with what they
    counted, and the map with the tables. Changes nothing. Exit code 1: something is wrong.
    """
    from kvorum.transfer.backup import all_tables, lock_names
    from kvorum.transfer.check import CHECK

    name = None if table is None else list(table_of(table))

    async def args(backend: NativeBackend) -> object:
        if name is not None:
            return {"table": name, "locks": [f"table/{name[0]}/{name[1]}"]}
        return {"locks": lock_names(await all_tables(backend.txn))}

    found = long_procedures.run(
        (CHECK, CHECK),
        args,
        connect=connect,
        json=json,
        here=False,
        resume=resume,
        again="SCHEMA_CHANGED",
    )
    if json:
        output.emit(found)
    else:
        output.lines(
            [
                f"checked  {found['tables']} tables with {found['rows']} rows of SQL and "
                f"{found['entries']} index entries, {found['replicas']} replicas, at {found['at']}",
                f"found    {found['found'] or 'nothing wrong'}",
                *(f"{what:9}{where}: {message}" for what, where, message in found["findings"]),
            ]
        )
    if not found["ok"]:
        raise typer.Exit(output.FAILED)
