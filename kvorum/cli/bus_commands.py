"""`kvorum table flush|compact`, `kvorum checkpoint create|list|drop`, `kvorum setting
list|set|check`: operations of many nodes at once (docs/guides/bus.md). Each is a procedure: it goes
on if the command is interrupted, and `kvorum proc show ID` tells how far it is.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened, table_of
from procedures.engine.plain_data import Plain

checkpoints = typer.Typer(
    no_args_is_help=True, help="Copies of every node's data.", rich_markup_mode=None
)
settings = typer.Typer(
    no_args_is_help=True, help="Settings of the running cluster.", rich_markup_mode=None
)
Table = Annotated[str, typer.Argument(metavar="NAMESPACE.TABLE", show_default=False)]
Point = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Setting = Annotated[str, typer.Argument(metavar="SETTING", show_default=False)]
Timeout = Annotated[
    int, typer.Option("--timeout-ms", help="Fail, and take everything back, after so long.", min=1)
]
_TIMEOUT_MS = 600_000
_MORE_MS = 60_000


def flush(
    table: Table, timeout_ms: Timeout = _TIMEOUT_MS, connect: Connect = None, json: Json = False
) -> None:
    """Write what the hosts of a table have in memory to their files."""
    _table("kvorum.flush_table", table, timeout_ms, connect, json)


def compact(
    table: Table, timeout_ms: Timeout = _TIMEOUT_MS, connect: Connect = None, json: Json = False
) -> None:
    """Rewrite a table's files at all its hosts: deleted records give back their space."""
    _table("kvorum.compact_table", table, timeout_ms, connect, json)


@checkpoints.command("create")
def create(
    name: Point, timeout_ms: Timeout = _TIMEOUT_MS, connect: Connect = None, json: Json = False
) -> None:
    """Copy every node's data beside it, as DATA/points/NAME: at all nodes, or at none."""
    answer = _run("kvorum.checkpoint", {"name": name, "timeout_ms": timeout_ms}, connect, json)
    if not json:
        output.lines([f"point {name} is at {', '.join(answer['targets'])}"])


@checkpoints.command("list")
def listing(connect: Connect = None, json: Json = False) -> None:
    """Print the points, oldest first."""
    answer = _run("kvorum.list_checkpoints", {}, connect, json)
    if not json:
        rows = [
            (
                point["name"],
                f"{point['age_ms'] / 1000:.0f}",
                ",".join(map(str, point["nodes"])),
                "yes" if point["whole"] else "no",
            )
            for point in answer["points"]
        ]
        output.table(("NAME", "AGE_S", "NODES", "WHOLE"), rows)


@checkpoints.command("drop")
def drop(name: Point, connect: Connect = None, json: Json = False) -> None:
    """Remove a point at every node."""
    answer = _run("kvorum.drop_checkpoint", {"name": name}, connect, json)
    if not json:
        there = [target for target, was in answer["targets"].items() if was]
        output.lines([f"removed from {', '.join(there)}" if there else f"there is no point {name}"])


@settings.command("set")
def set_setting(
    name: Setting,
    value: Annotated[int, typer.Argument(show_default=False)],
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Change a setting at every node. Exit code 1 if some node has not applied it yet."""
    _applied(
        _run("kvorum.set_setting", {"name": name, "value": value}, connect, json), as_json=json
    )


@settings.command("list")
def list_settings(connect: Connect = None, json: Json = False) -> None:
    """Print all settings, their values and what they mean."""
    answer = _run("kvorum.list_settings", {}, connect, json)
    if not json:
        rows = [(one["name"], one["value"], one["about"]) for one in answer["settings"]]
        output.table(("SETTING", "VALUE", "MEANING"), rows)


@settings.command("check")
def check_setting(name: Setting, connect: Connect = None, json: Json = False) -> None:
    """Print a setting, and which version of it each node applies. Exit code 1 if some node lacks
    the newest.
    """
    _applied(_run("kvorum.check_setting", {"name": name}, connect, json), as_json=json)


def _applied(answer: Plain, *, as_json: bool) -> None:
    if not as_json:
        rows = sorted(answer["applied"].items()) + [
            (target, "missing") for target in answer["missing"] if target not in answer["applied"]
        ]
        output.lines([f"{answer['name']} = {answer['value']} (version {answer['version']})"])
        output.table(("TARGET", "VERSION"), rows)
    if answer["missing"]:
        raise typer.Exit(output.FAILED)


def _table(name: str, table: str, timeout_ms: int, connect: str | None, as_json: bool) -> None:
    namespace, of = table_of(table)
    args = {"namespace": namespace, "table": of, "timeout_ms": timeout_ms}
    answer = _run(name, args, connect, as_json)
    if not as_json:
        rows = [(t, r["partitions"], r["took_ms"]) for t, r in sorted(answer["targets"].items())]
        output.table(("TARGET", "PARTITIONS", "MS"), rows)


def _run(name: str, args: Plain, connect: str | None, as_json: bool) -> Plain:
    """Its result; printed already if it is wanted as JSON."""
    with opened(connect, as_json) as db:
        wait_ms = args.get("timeout_ms", _TIMEOUT_MS) + _MORE_MS
        answer: dict[str, object] = db.wait(db.submit(name, args), timeout_ms=wait_ms)
    if as_json:
        output.emit(answer)
    return answer
