"""`kvorum node list|decommission` and `kvorum partition list`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened

nodes = typer.Typer(no_args_is_help=True, help="The nodes of a cluster.", rich_markup_mode=None)
partitions = typer.Typer(no_args_is_help=True, help="Its partitions.", rich_markup_mode=None)


@nodes.command("list")
def list_nodes(connect: Connect = None, json: Json = False) -> None:
    """Print all nodes, how they are, and how many partitions they lead."""
    with opened(connect, json) as db:
        found = db.nodes()
    if json:
        output.emit({"items": found})
        return
    names = ("id", "address", "state", "keeps", "leaders", "replicas", "version")
    rows = [{**row, "keeps": "votes" if row.get("witness") else "data"} for row in found]
    output.table(
        ("NODE", "ADDRESS", "STATE", "KEEPS", "LEADS", "REPLICAS", "VERSION"),
        [tuple(row.get(name, "-") for name in names) for row in rows],
    )


@nodes.command("decommission")
def decommission(
    node: Annotated[int, typer.Argument(metavar="N", help="The node's id.", min=1)],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when it votes nowhere any more.")
    ] = True,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Take a node out: it hands over what it leads, then it has no replica and no vote. Its id is
    never given out again. Stop it afterwards.
    """
    from procedures.master.membership import DECOMMISSION

    with opened(connect, json) as db:
        procedure = db.submit(DECOMMISSION, {"node": node})
        result: Any = db.wait(procedure) if wait else None
    if json:
        output.emit({"id": str(procedure), "result": result})
    elif wait:
        output.lines([f"node {node} votes nowhere any more: stop it"])
    else:
        output.lines([str(procedure)])


@nodes.command("force")
def force(
    node: Annotated[int, typer.Argument(metavar="N", help="The survivor's id.", min=1)],
    reason: Annotated[str, typer.Option(help="Why; kept in the log of every partition.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Last resort: make node N, which --connect must name, the only voter of all partitions that
    have lost their majority for good. What only the lost nodes had is lost. They must be down, and
    must be emptied before they join again.
    """
    from kvorum.cli.last_resort import force_members

    if not yes:
        typer.confirm(
            f"Are all other nodes down for good, and does node {node} go on alone?", abort=True
        )
    rows = force_members(connect, node, reason, as_json=json)
    if json:
        names = ("partition", "index", "left_alone")
        output.emit({"items": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    output.table(
        ("PARTITION", "NOW"),
        [(partition, "on this node alone" if index else why) for partition, index, why in rows],
    )


@partitions.command("list")
def list_partitions(connect: Connect = None, json: Json = False) -> None:
    """Print all partitions: who leads, in which term, with which replicas, and who lags."""
    with opened(connect, json) as db:
        found = db.partitions()
    if json:
        output.emit({"items": [_plain(row) for row in found]})
    else:
        output.partitions(found)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "start": output.show(row["start"]), "end": output.show(row["end"])}
