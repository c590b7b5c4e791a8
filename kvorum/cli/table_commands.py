"""`kvorum namespace|table list|create|drop|enable|disable|modify`, and `kvorum namespace show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kv.base.errors import InvalidArgument
from kvorum.cli import output
from kvorum.cli.connection import B64, Connect, Json, key_of, opened, table_of

if TYPE_CHECKING:
    from kvorum.api.model import Column

namespaces = typer.Typer(no_args_is_help=True, help="Namespaces.", rich_markup_mode=None)
tables = typer.Typer(no_args_is_help=True, help="Tables.", rich_markup_mode=None)
Name = Annotated[str, typer.Argument(help="The namespace.", show_default=False)]
Tags = Annotated[
    str | None, typer.Option(metavar="TAG,…", help="That a node must carry; empty = none.")
]
PartitionBytes = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="Above which a partition is split; 0 = as the cluster's setting.",
        min=0,
    ),
]
Shard = Annotated[
    str,
    typer.Option(
        metavar="NAME[:POLICY]",
        help="Storage shard: files and memory apart from others'. POLICY: leveled or universal.",
        show_default=False,
    ),
]
OtherShard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="NAME[:POLICY]",
        help="Storage shard; empty = the one above it. Every node moves its rows while it serves.",
        show_default=False,
    ),
]
Survive = Annotated[
    str | None,
    typer.Option(
        metavar="server|rack|datacenter",
        help="The loss of any one of them stops nothing; empty = no goal, or the namespace's.",
        show_default=False,
    ),
]
Leaders = Annotated[
    str | None,
    typer.Option(
        metavar="dc=NAME,…",
        help="Labels of the nodes that should lead; empty = any, or the namespace's.",
        show_default=False,
    ),
]
TableName = Annotated[str, typer.Argument(metavar="NAMESPACE/TABLE", show_default=False)]


@namespaces.command("list")
def list_namespaces(connect: Connect = None, json: Json = False) -> None:
    """Print all namespaces."""
    with opened(connect, json) as db:
        names = db.namespaces()
    if json:
        output.emit({"items": [{"name": n} for n in names]})
    else:
        output.lines(names)


@namespaces.command("show")
def show_namespace(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Print what a namespace's tables have that do not say otherwise, and whether it is enabled."""
    with opened(connect, json) as db:
        answer = db.namespace(name)
    if json:
        output.emit(answer.to_plain())
        return
    replicas = "at every node" if answer.replicas is None else str(answer.replicas)
    tags = ",".join(answer.tags) or "none"
    shard = answer.shard or "the default one"
    lines = [f"state     {answer.state}", f"replicas  {replicas}", f"tags      {tags}"]
    lines += [f"shard     {shard}", f"survives  {answer.survive or 'no goal'}"]
    output.lines([*lines, f"leaders   {answer.leaders or 'any node'}"])


@namespaces.command("create")
def create_namespace(
    name: Name,
    replicas: Annotated[
        int | None, typer.Option(help="Of its tables that do not say otherwise.", min=1)
    ] = None,
    tags: Tags = None,
    shard: Shard = "",
    survive: Survive = None,
    leaders: Leaders = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Make a namespace."""
    with opened(connect, json) as db:
        db.create_namespace(
            name,
            replicas=replicas,
            tags=_names(tags) or (),
            shard=shard,
            survive=survive or "",
            leaders=leaders or "",
        )
    if json:
        output.emit({"name": name})


@namespaces.command("modify")
def modify_namespace(
    name: Name,
    replicas: Annotated[
        int | None,
        typer.Option(help="Of its tables that do not say otherwise; 0 = on every node.", min=0),
    ] = None,
    tags: Tags = None,
    shard: OtherShard = None,
    survive: Survive = None,
    leaders: Leaders = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Change how many replicas its tables have, and where; what is left out stays."""
    change: dict[str, object] = {"replicas": replicas, "tags": _names(tags), "shard": shard}
    change |= {"survive": survive, "leaders": leaders}
    _switched("modify_namespace", name, connect, json, **change)


@namespaces.command("disable")
def disable_namespace(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Disable all its tables, and let none be made in it until it is enabled."""
    _switched("disable_namespace", name, connect, json)


@namespaces.command("enable")
def enable_namespace(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Let a disabled namespace be used again, with all its tables."""
    _switched("enable_namespace", name, connect, json)


def _switched(what: str, name: str, connect: str | None, as_json: bool, **change: object) -> None:
    with opened(connect, as_json) as db:
        answer = getattr(db, what)(name, **change)
    if as_json:
        output.emit(answer.to_plain())


def _names(text: str | None) -> list[str] | None:
    """Of a list with commas; None if it was left out."""
    return None if text is None else [one.strip() for one in text.split(",") if one.strip()]


@namespaces.command("drop")
def drop_namespace(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Remove a namespace that has no tables."""
    with opened(connect, json) as db:
        db.drop_namespace(name)
    if json:
        output.emit({"name": name})


@tables.command("list")
def list_tables(
    namespace: Annotated[str, typer.Argument(help="The namespace.")] = "default",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print the tables of a namespace."""
    with opened(connect, json) as db:
        found = db.tables(namespace)
    if json:
        output.emit(
            {
                "items": [
                    {
                        "namespace": t.namespace,
                        "name": t.name,
                        "id": t.id,
                        "columns": [
                            {"name": c.name, "type": c.type, "nullable": c.nullable}
                            for c in t.columns
                        ],
                        "primary_key": list(t.primary_key),
                        "state": t.state,
                        "replicas": t.replicas,
                        "tags": list(t.tags),
                        "partition_bytes": t.partition_bytes,
                        "shard": t.shard,
                        "survive": t.survive,
                        "leaders": t.leaders,
                    }
                    for t in found
                ]
            }
        )
        return
    rows = [
        (
            f"{t.namespace}.{t.name}",
            t.id,
            t.state,
            " ".join(f"{c.name}:{c.type}" for c in t.columns),
        )
        for t in found
    ]
    output.table(("TABLE", "ID", "STATE", "COLUMNS"), rows)


@tables.command("create")
def create_table(
    table: TableName,
    split: Annotated[
        list[str] | None, typer.Option("--split", help="A key to cut the table at; repeatable.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="NAME:TYPE, or NAME:TYPE:notnull; repeatable."),
    ] = None,
    primary_key: Annotated[
        str | None, typer.Option("--primary-key", help="Columns, separated by commas.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            help="Copies of each partition, on as many nodes. Left out: as its namespace says, "
            "else on every node."
        ),
    ] = None,
    tags: Tags = None,
    partition_bytes: PartitionBytes = None,
    shard: Shard = "",
    survive: Survive = None,
    leaders: Leaders = None,
    b64: B64 = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Make a table; without columns it is a plain key-value table."""
    columns = _columns(column)
    ns, name = table_of(table)
    with opened(connect, json) as db:
        made: Any = db.create_table(
            ns,
            name,
            split_keys=[key_of(k, b64) for k in split or ()],
            columns=columns,
            primary_key=primary_key.split(",") if primary_key else (),
            replicas=replicas,
            tags=_names(tags) or (),
            partition_bytes=partition_bytes or None,
            shard=shard,
            survive=survive or "",
            leaders=leaders or "",
        )
    if json:
        output.emit({"namespace": ns, "name": name, "id": made.id})


def _columns(texts: list[str] | None) -> list[Column]:
    """NAME:TYPE[:notnull], each."""
    from kvorum.api.model import Column

    columns = []
    for text in texts or ():
        name, _, kind = text.partition(":")
        kind, _, null = kind.partition(":")
        if not kind or null not in ("", "notnull"):
            output.die(InvalidArgument(f"column {text!r} is not NAME:TYPE[:notnull]"))
        columns.append(Column(name, kind, not null))
    return columns


@tables.command("disable")
def disable_table(table: TableName, connect: Connect = None, json: Json = False) -> None:
    """Keep a table's records, and let nobody read or write it until it is enabled."""
    _altered("disable_table", table, connect, json)


@tables.command("enable")
def enable_table(table: TableName, connect: Connect = None, json: Json = False) -> None:
    """Let a disabled table be used again."""
    _altered("enable_table", table, connect, json)


@tables.command("modify")
def modify_table(
    table: TableName,
    add_column: Annotated[
        list[str] | None, typer.Option("--add-column", help="NAME:TYPE; repeatable.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            help="Copies of each partition; 0 = as its namespace says, else on every node.", min=0
        ),
    ] = None,
    tags: Tags = None,
    partition_bytes: PartitionBytes = None,
    shard: OtherShard = None,
    survive: Survive = None,
    leaders: Leaders = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Add columns, change how many replicas there are and where, or how large partitions grow; what
    is left out stays.
    """
    change: dict[str, object] = {"add_columns": _columns(add_column), "replicas": replicas}
    change |= {"tags": _names(tags), "partition_bytes": partition_bytes, "shard": shard}
    change |= {"survive": survive, "leaders": leaders}
    _altered("modify_table", table, connect, json, **change)


def _altered(what: str, table: str, connect: str | None, as_json: bool, **change: object) -> None:
    ns, name = table_of(table)
    with opened(connect, as_json) as db:
        answer = getattr(db, what)(ns, name, **change)
    if as_json:
        output.emit({"namespace": ns, "name": name, "state": answer.state})


@tables.command("drop")
def drop_table(table: TableName, connect: Connect = None, json: Json = False) -> None:
    """Remove a table and all its records."""
    ns, name = table_of(table)
    with opened(connect, json) as db:
        db.drop_table(ns, name)
    if json:
        output.emit({"namespace": ns, "name": name})
