"""`kvorum snapshot list|release`: who holds versions back from being collected."""

from __future__ import annotations

from typing import Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened

app = typer.Typer(no_args_is_help=True, help="Snapshots that are held.", rich_markup_mode=None)


@app.command("list")
def list_snapshots(connect: Connect = None, json: Json = False) -> None:
    """Print the snapshots that are held, oldest first."""
    with opened(connect, json) as db:
        found = db.snapshots()
    if json:
        output.emit({"items": [one.to_plain() for one in found]})
        return
    rows = [
        (s.id, s.at, s.owner or "-", f"{s.age_ms / 1000:.1f}", f"{s.left_ms / 1000:.1f}")
        for s in found
    ]
    output.table(("ID", "AT", "OWNER", "AGE_S", "ENDS_IN_S"), rows)


@app.command("release")
def release(
    snapshot: Annotated[int, typer.Argument(metavar="ID", help="Its id, of the list.")],
    connect: Connect = None,
    json: Json = False,
) -> None:
    """End a snapshot: what only it needed may be collected."""
    with opened(connect, json) as db:
        held = db.release_snapshot(snapshot)
    if json:
        output.emit({"id": str(snapshot), "held": held})
    else:
        output.lines([f"snapshot {snapshot} " + ("is released" if held else "is not held")])
    if not held:
        raise typer.Exit(output.FAILED)
