"""`kvorum watch`: a table's committed transactions, as they happen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvorum.cli import output
from kvorum.cli.connection import B64, Connect, Json, key_of, opened, table_of

if TYPE_CHECKING:
    from kvorum.watching import Event


def watch(
    table: Annotated[str, typer.Argument(metavar="NAMESPACE/TABLE", show_default=False)],
    from_version: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            help="Changes after this version; 0 = all records first. From now on, if left out.",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    count: Annotated[int, typer.Option(help="Transactions, then end; 0 = no end.", min=0)] = 0,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print a table's changes in commit order: a line each, version, put or delete, key, value.

    With --json a line per transaction (or part of a large one), like the events over HTTP. Ctrl-C
    ends it, and tells where to go on.
    """
    ns, name = table_of(table)
    bytes_ = None if prefix is None else key_of(prefix, b64)
    left = count
    with opened(connect, json) as db:
        watching = db.watch(ns, name, from_version=from_version, prefix=bytes_)
        try:
            for event in watching:
                if json:
                    output.emit(_shown(event))
                else:
                    output.lines(_lines(event))
                sys.stdout.flush()
                left -= event.last
                if event.last and left == 0:
                    break
        except KeyboardInterrupt:
            sys.stderr.write(f"kvorum: to go on: --from {watching.position}\n")
        finally:
            watching.close()


def _lines(event: Event) -> list[str]:
    rows = []
    for key, value, _ in event.changes:
        shown = [str(event.version), "delete" if value is None else "put", output.escaped(key)]
        rows.append("\t".join([*shown, *([] if value is None else [output.escaped(value)])]))
    return rows


def _shown(event: Event) -> dict[str, Any]:
    changes = []
    for key, value, expires_ms in event.changes:
        row = {"key": output.show(key), "value": None if value is None else output.show(value)}
        if expires_ms:
            row["expires_ms"] = expires_ms
        changes.append(row)
    return {
        "event": event.kind,
        "version": str(event.version),
        "part": event.part,
        "last": event.last,
        "changes": changes,
    }
