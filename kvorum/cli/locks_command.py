"""`kvorum locks`: who holds which keys, and who waits for them."""

from __future__ import annotations

from typing import Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from procedures.engine.plain_data import Plain


def locks(
    every: Annotated[
        bool, typer.Option("--all", help="A row for each key, not one for many of one holder.")
    ] = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what transactions hold in the whole cluster, and who waits for it.

    What somebody waits for comes first, then the oldest. To end who stands in the way: kvorum txn
    abort ID.
    """
    with opened(connect, json) as db:
        found = db.locks(every=every)
    if json:
        output.emit(found)
        return
    if found["locks"] or found["waits"]:
        _tables(found)
    else:
        output.lines(["no transaction holds a key, and nobody waits"])
    if found["missing"]:
        output.lines([f"these nodes did not answer: {', '.join(map(str, found['missing']))}"])
    if found["more"]:
        output.lines(["there is more than is shown"])


def _tables(found: Plain) -> None:
    output.table(
        ("HELD", "KIND", "BY TXN", "OWNER", "AGE MS", "TTL MS", "WAITING", "PARTITION", "NODE"),
        [
            (
                *(_place(row), row["kind"], row["txn"], row["owner"] or "-", row["age_ms"]),
                *(row["ttl_ms"], row["waiting"], row["partition"], row["node"]),
            )
            for row in found["locks"]
        ],
    )
    output.lines([""])
    output.table(
        (
            "WAITS FOR",
            "KIND",
            "WAITER",
            "OWNER",
            "PRIORITY",
            "SINCE MS",
            "HELD BY",
            "OWNER",
            "NODE",
        ),
        [_waiter(row) for row in found["waits"]],
    )


def _waiter(row: dict[str, object]) -> tuple[object, ...]:
    if "procedure" in row:
        who = (row["resource"], row["kind"], row["procedure"], row["owner"] or "-", "-")
        holder = (row.get("holder", "-"), row.get("holder_owner") or "-")
        return (*who, row["waited_ms"], *holder, row["node"])
    waiter = (_place(row), row["kind"], row["txn"] or "a single write", row["owner"] or "-")
    since = (row["priority"], row["waited_ms"])
    return (*waiter, *since, row["holder"] or "-", row["holder_owner"] or "-", row["node"])


def _place(row: Plain) -> str:
    """The key, and where; of a guarded range its start and end."""
    key = output.escaped(row["key"])
    if "end" in row:
        key = f"{key} … {output.escaped(row['end'])}"
    if row.get("keys", 1) > 1:
        key = f"{key} and {row['keys'] - 1} more"
    return f"{row['ns']}/{row['table']} {key}" if row["table"] else f"system {key}"
