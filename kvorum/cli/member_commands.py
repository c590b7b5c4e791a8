"""`kvorum node list|history|decommission|force-members` and `kvorum partition list`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from procedures.engine.plain_data import Plain

if TYPE_CHECKING:
    from kvorum.cluster.force_members import Plan

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
    names = ("id", "address", "state", "health", "keeps", "leaders", "replicas", "version")
    rows = [
        {
            **row,
            "keeps": "votes" if row.get("witness") else "data",
            "health": row.get("health") or "-",
        }
        for row in found
    ]
    output.table(
        ("NODE", "ADDRESS", "STATE", "HEALTH", "KEEPS", "LEADS", "REPLICAS", "VERSION"),
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
    from procedures.master.members.membership import DECOMMISSION

    with opened(connect, json) as db:
        procedure = db.submit(DECOMMISSION, {"node": node})
        result: object = db.wait(procedure) if wait else None
    if json:
        output.emit({"id": str(procedure), "result": result})
    elif wait:
        output.lines([f"node {node} votes nowhere any more: stop it"])
    else:
        output.lines([str(procedure)])


@nodes.command("history")
def history(connect: Connect = None, json: Json = False) -> None:
    """Print what operators did to the members by force, and why."""
    with opened(connect, json) as db:
        rows = [{**one, "node": row["id"]} for row in db.nodes() for one in row["forced"]]
    rows.sort(key=lambda row: row["at_ms"])
    if json:
        output.emit({"items": rows})
        return
    output.table(
        ("AT MS", "ON NODE", "VOTERS", "GIVEN UP", "PARTITIONS", "REASON"),
        [
            (
                *(row["at_ms"], row["node"], _ids(row["voters"]), _ids(row["given_up"])),
                *(len(row["partitions"]), row["reason"]),
            )
            for row in rows
        ],
    )


@nodes.command("force-members")
def force(
    voters: Annotated[
        str, typer.Option(metavar="N[,M…]", help="The survivors; --connect names one of them.")
    ],
    reason: Annotated[str, typer.Option(help="Why. Kept for ever: `kvorum node history`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Otherwise only the plan.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="File with cluster_secret, if not in KVORUM_CLUSTER_SECRET."),
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Last resort, when the majority is gone for good: the survivors go on with what they have.
    What only the others had is lost. They must be down, and must be emptied before they join again.
    """
    from kvorum.cli.force_members_plan import Order, force_members

    try:
        ids = tuple(int(one) for one in voters.split(","))
    except ValueError:
        output.die(f"--voters takes node ids, as in 2,3; got {voters!r}", as_json=json)
    plan = force_members(Order(connect, ids, reason, config), yes=yes, as_json=json)
    if json:
        output.emit({"executed": yes, "items": [asdict(row) for row in plan]})
        return
    output.table(
        ("PARTITION", "VOTERS", "THEN", "ENTRIES", "COMMITTED", "LOST", ""),
        [
            (
                *(row.partition, _ids(row.before), _ids(row.after), row.last, row.commit),
                *(f"{row.ahead} or more" if row.ahead else "?", _what(row, done=yes)),
            )
            for row in plan
        ],
    )
    given_up = sorted({node for row in plan for node in row.before} - set(ids))
    output.lines(["", *_advice(given_up, elsewhere=_elsewhere(plan), done=yes)])


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _what(row: Plan, *, done: bool) -> str:
    if row.action == "elsewhere":
        return f"node {row.at} has the newest copy: to be forced there"
    return "as it is" if row.action == "done" else "forced" if done else "to be forced"


def _elsewhere(plan: Iterable[Plan]) -> list[int]:
    return sorted({row.at for row in plan if row.action == "elsewhere"})


def _advice(given_up: list[int], *, elsewhere: list[int], done: bool) -> list[str]:
    others = _ids(given_up)
    said = [f"then the same with --connect to node {node}" for node in elsewhere]
    if not done:
        return [
            f"nothing was changed. Acknowledged writes that only nodes {others} have will be lost.",
            "These nodes must be down for good. If that is so, say it again with --yes",
            *said,
        ]
    if not given_up:
        return ["nothing was to be done"]
    return [
        *said,
        f"nodes {others} are given up: `kvorum node decommission` each of them, and empty their",
        "directories before they join again",
    ]


@partitions.command("list")
def list_partitions(connect: Connect = None, json: Json = False) -> None:
    """Print all partitions: who leads, in which term, with which replicas, and who lags."""
    with opened(connect, json) as db:
        found = db.partitions()
    if json:
        output.emit({"items": [_plain(row) for row in found]})
    else:
        output.partitions(found)


def _plain(row: Plain) -> dict[str, object]:
    return {**row, "start": output.show(row["start"]), "end": output.show(row["end"])}
