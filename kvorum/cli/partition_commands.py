"""`kvorum partition split|merge`: cut and join partitions by hand (docs/guides/partitions.md)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from kvorum.cli.explain_commands import Partition, Wait


def split(
    partition: Partition,
    key: Annotated[
        str | None,
        typer.Option("--at", metavar="KEY", help="Where the new partition begins.  [middle]"),
    ] = None,
    wait: Wait = True,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Split a partition in place, while it serves. Refused if the key does not lie inside, or if
    there is too little in it to find a middle.
    """
    args: dict[str, object] = {"partition": partition}
    if key is not None:
        args["at"] = key
    _run("kvorum.split_partition", args, wait, connect, json)


def merge(
    left: Annotated[int, typer.Argument(metavar="LEFT", help="The lower one's id.", min=1)],
    right: Annotated[
        int, typer.Argument(metavar="RIGHT", help="That of the next one; it goes.", min=1)
    ],
    wait: Wait = True,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Merge two neighbours in place, while they serve. Refused, with the reason, if their replicas
    are at different nodes, or one of them is down.
    """
    _run("kvorum.merge_partitions", {"left": left, "right": right}, wait, connect, json)


def _run(
    name: str, args: dict[str, object], wait: bool, connect: str | None, as_json: bool
) -> None:
    with opened(connect, as_json) as db:
        procedure = db.submit(name, args)
        result: Any = db.wait(procedure) if wait else None
    if as_json:
        shown = None if result is None else {k: v for k, v in result.items() if k != "key"}
        output.emit({"id": str(procedure), "result": shown})
    elif not wait:
        output.lines([str(procedure)])
    elif "new" in result:
        output.lines([f"partition {result['partition']} was split: {result['new']} is new"])
    else:
        output.lines([f"partition {result['gone']} is part of {result['partition']} now"])
