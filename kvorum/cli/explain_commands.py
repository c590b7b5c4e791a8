"""`kvorum explain balance|loss|table`, `kvorum partition move|transfer` and `kvorum table place`:
where replicas are, why, and where they should be instead (docs/guides/balancing.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened, table_of
from procedures.engine.plain_data import Plain

explain = typer.Typer(
    no_args_is_help=True, help="Why the cluster does what it does.", rich_markup_mode=None
)

Partition = Annotated[int, typer.Argument(metavar="P", help="The partition's id.", min=1)]
Node = Annotated[int, typer.Option("--to", metavar="N", help="The node that gets it.", min=1)]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Return when it is done.")]


@explain.callback()
def _group() -> None:
    """Why the cluster does what it does."""


@explain.command("balance")
def balance(
    rows: Annotated[
        int, typer.Option(help="So many moves and refusals at most.", min=1, max=1000)
    ] = 20,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print each node's load and zone, what the balancer and the placement would do next, what
    they refuse, and what they did last, with their reasons. Changes nothing.
    """
    with opened(connect, json) as db:
        answer: Plain = db.wait(db.submit("kvorum.explain_balance", {"rows": rows}))
    if json:
        output.emit(answer)
        return
    for name, on in answer["enabled"].items():
        waits = answer["waits"].get(name, "")
        output.lines([f"{name:10} {'on' if on else 'paused'}{f': {waits}' if waits else ''}"])
    output.lines(
        [f"{'live moves':10} {answer['moves_live']}", f"{'apart':10} by {answer['level']}"]
    )
    if answer["dead"]:
        output.lines([f"{'dead':10} nodes {', '.join(map(str, answer['dead']))}"])
    output.lines([""])
    titles = ("NODE", "SITE", "TAGS", "TRAFFIC", "SIZE", "REPLICAS", "")
    output.table(titles, [_node(row) for row in answer["nodes"]])
    moves = [
        (row["partition"], _way(row), row["rule"], row["reason"]) for row in answer["placement"]
    ] + [(row["partition"], _way(row), row["dimension"], row["reason"]) for row in answer["moves"]]
    _section("next", ("PARTITION", "FROM → TO", "FOR", "WHY"), moves)
    refused = [
        (row["partition"] or "-", _way(row), row["dimension"], f"{row['rule']}: {row['reason']}")
        for row in answer["refusals"][:rows]
    ]
    _section("refused", ("PARTITION", "FROM → TO", "FOR", "WHY NOT"), refused)
    done = [
        (row["procedure"], row["name"], _args(row["args"]), row["reason"]) for row in answer["done"]
    ]
    _section("done", ("PROCEDURE", "NAME", "OF", "WHY"), done[-rows:])


@explain.command("loss")
def loss(
    lost: Annotated[
        list[str],
        typer.Argument(metavar="dc=NAME|rack=NAME|server=NAME|node=ID…", show_default=False),
    ],
    rows: Annotated[int, typer.Option(help="So many tables at most.", min=1, max=1000)] = 100,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what becomes of every table when all of these are lost at once: partitions that go on,
    that stop until nodes come back, and whose last copy is gone. The worst first. Asks no node and
    changes nothing.
    """
    with opened(connect, json) as db:
        answer: Plain = db.wait(db.submit("kvorum.explain_loss", {"lost": lost, "rows": rows}))
    if json:
        output.emit(answer)
        return
    output.lines(
        [
            f"without nodes {', '.join(map(str, answer['nodes']))}:",
            f"the master and the catalog: {_FATES[answer['meta']]}",
            "",
        ]
    )
    output.table(
        ("TABLE", "SURVIVES", "GO ON", "STOP", "LOST", "PARTITIONS THAT STOP OR ARE LOST"),
        [
            (
                f"{row['namespace']}.{row['name']}",
                row["survive"] or "-",
                *(row["serves"], row["stops"], row["lost"]),
                ", ".join(map(str, row["hit"])) or "-",
            )
            for row in answer["tables"]
        ],
    )


_FATES = {
    "serves": "go on",
    "stops": "stop until nodes come back",
    "lost": "no copy is left",
}


@explain.command("table")
def table(
    name: Annotated[str, typer.Argument(metavar="NS.TABLE", help="The table.")],
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what a table is to survive and where it is to be led, where its copies are, and whose
    loss would stop it. Asks no node and changes nothing.
    """
    namespace, short = table_of(name)
    args = {"namespace": namespace, "name": short}
    with opened(connect, json) as db:
        answer: Plain = db.wait(db.submit("kvorum.explain_table", args))
    if json:
        output.emit(answer)
        return
    copies = answer["copies"] or "at every node"
    lines = [
        f"survives   {answer['survive'] or 'no goal'}",
        f"copies     {copies}{' and a witness' if answer['witness_at'] else ''}",
        f"tags       {','.join(answer['tags']) or 'none'}",
        f"leaders    {answer['leaders'] or 'any node'}",
    ]
    if answer["leaders"]:
        lines.append(f"{'':11}nodes {', '.join(map(str, answer['preferred'])) or 'none'}")
    for level, domains in answer["stopped_by"].items():
        lines.append(f"{level:11}{_stopped(level, domains)}")
    if answer["short"]:
        lines.append(f"the cluster cannot give it: {answer['short']}")
    elif not answer["holds"]:
        lines.append("it does not hold yet: replicas are being moved (kvorum explain balance)")
    output.lines([*lines, ""])
    rows = [
        (row["id"], ", ".join(map(str, row["copies"])), ", ".join(map(str, row["witnesses"])))
        for row in answer["partitions"]
    ]
    output.table(("PARTITION", "COPIES", "WITNESSES"), rows)


def _stopped(level: str, domains: list[str]) -> str:
    if not domains:
        return f"any one {level} may be lost"
    shown = ", ".join(domains[:10]) + (" …" if len(domains) > 10 else "")
    return f"stops without {shown}"


def _section(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    output.lines(["", title if rows else f"{title}: nothing"])
    if rows:
        output.table(columns, rows)


def _node(row: Plain) -> tuple[object, ...]:
    used = {
        name: f"{figures['share']:.1%} {figures['zone']}" for name, figures in row["used"].items()
    }
    return (
        row["id"],
        "/".join(filter(None, row["domains"])) or "-",
        ",".join(row["tags"]) or "-",
        used["traffic"],
        used["size"],
        f"{row['replicas']} {row['used']['replicas']['zone']}",
        f"slow: {row['slow']}" if row["slow"] is not None else "",
    )


def _way(row: Mapping[str, object]) -> str:
    return f"{row['from'] or '-'} → {row['to'] or '-'}"


def _args(args: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in args.items())


def move(
    partition: Partition,
    source: Annotated[
        int, typer.Option("--from", metavar="N", help="The node that has a replica.", min=1)
    ],
    target: Node,
    wait: Wait = True,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Move a replica of a partition to another node. Refused, with the reason, if the node lacks
    room or a tag of the table, or would be the second one in a failure domain.
    """
    args = {"partition": partition, "from": source, "to": target, "why": "kvorum partition move"}
    _run("kvorum.move_replica", args, wait, connect, json)


def transfer(
    partition: Partition,
    target: Node,
    wait: Wait = True,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Hand a partition's leadership to another node that has a replica; it stays there."""
    args = {"partition": partition, "to": target, "why": "kvorum partition transfer"}
    _run("kvorum.transfer_leader", args, wait, connect, json)


def place(
    table: Annotated[str, typer.Argument(metavar="NS.TABLE", help="The table.")],
    replicas: Annotated[
        int | None, typer.Option(help="Copies of each partition; 0 = on every node.", min=0)
    ] = None,
    tags: Annotated[
        str | None, typer.Option(metavar="TAG,…", help="That a node must carry; empty = none.")
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Change how many replicas a table has and which nodes may have them; the replicas follow."""
    namespace, name = table_of(table)
    args: dict[str, object] = {"namespace": namespace, "name": name}
    if replicas is not None:
        args["replicas"] = replicas or None
    if tags is not None:
        args["tags"] = [tag.strip() for tag in tags.split(",") if tag.strip()]
    _run("kvorum.place_table", args, True, connect, json)


def _run(
    name: str, args: dict[str, object], wait: bool, connect: str | None, as_json: bool
) -> None:
    with opened(connect, as_json) as db:
        procedure = db.submit(name, args)
        result: Any = db.wait(procedure) if wait else None
    if as_json:
        output.emit({"id": str(procedure), "result": result})
    elif wait:
        output.lines([_args(result)])
    else:
        output.lines([str(procedure)])
