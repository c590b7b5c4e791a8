"""`kvorum locks`: who holds which keys, and who waits for them."""

from __future__ import annotations

from typing import Any

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened


def locks(connect: Connect = None, json: Json = False) -> None:
    """Print what transactions hold in the whole cluster, and who waits for it, oldest first."""
    with opened(connect, json) as db:
        found = db.locks()
    if json:
        output.emit(found)
        return
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
    if found["missing"]:
        output.lines([f"these nodes did not answer: {', '.join(map(str, found['missing']))}"])
    if found["more"]:
        output.lines(["there is more than is shown"])


def _waiter(row: dict[str, Any]) -> tuple[object, ...]:
    if "procedure" in row:
        who = (row["resource"], row["kind"], row["procedure"], row["owner"] or "-", "-")
        return (*who, row["waited_ms"], "-", "-", row["node"])
    waiter = (_place(row), row["kind"], row["txn"] or "a single write", row["owner"] or "-")
    since = (row["priority"], row["waited_ms"])
    return (*waiter, *since, row["holder"] or "-", row["holder_owner"] or "-", row["node"])


def _place(row: dict[str, Any]) -> str:
    """The key, and where; of a guarded range its start and end."""
    key = output.escaped(row["key"])
    if "end" in row:
        key = f"{key} … {output.escaped(row['end'])}"
    return f"{row['ns']}/{row['table']} {key}" if row["table"] else f"system {key}"
