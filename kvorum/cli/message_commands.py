"""`kvorum proc signal|complete|check-upgrade`, `kvorum queue …`."""

from __future__ import annotations

import dataclasses
import json as json_module
import sys
from typing import Annotated

import typer

from kv.base.errors import InvalidArgument
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT, Connect, Json, opened
from procedures.engine.plain_data import Plain

queues = typer.Typer(
    no_args_is_help=True, help="Limits of queues, types and pools.", rich_markup_mode=None
)
Name = Annotated[str, typer.Argument(help="Its name.", show_default=False)]


def signal(
    procedure: Annotated[int, typer.Argument(metavar="ID", help="The procedure id.")],
    name: Annotated[str, typer.Argument(help="Which signal.", show_default=False)],
    payload: Annotated[str, typer.Argument(help="What it carries, as JSON.")] = "null",
    key: Annotated[str | None, typer.Option(help="The same key is sent once.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Send a signal to a running procedure."""
    with opened(connect, json) as db:
        sent = db.signal(procedure, name, parsed(payload, json), key=key)
    if json:
        output.emit({"id": str(procedure), "sent": sent})


def start_signal(
    name: Annotated[str, typer.Argument(help="The procedure's name.", show_default=False)],
    nonce: Annotated[str, typer.Argument(help="Which one: it is started if there is none.")],
    signal: Annotated[str, typer.Argument(help="Which signal.", show_default=False)],
    payload: Annotated[str, typer.Argument(help="What it carries, as JSON.")] = "null",
    args: Annotated[str, typer.Option(help="The procedure's arguments, as JSON.")] = "null",
    key: Annotated[str | None, typer.Option(help="The same key is sent once.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Send a signal to the procedure of a nonce, which is started if need be; print its id."""
    with opened(connect, json) as db:
        id = db.signal_with_start(
            *(name, parsed(args, json)),
            nonce=nonce,
            signal=signal,
            payload=parsed(payload, json),
            key=key,
        )
    output.emit({"id": str(id)}) if json else output.lines([str(id)])


def query(
    procedure: Annotated[int, typer.Argument(metavar="ID", help="The procedure id.")],
    name: Annotated[str, typer.Argument(help="Which query.", show_default=False)],
    args: Annotated[str, typer.Argument(help="What it is called with, as JSON.")] = "null",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Ask a procedure, which answers from what it has stored."""
    with opened(connect, json) as db:
        result = db.query(procedure, name, parsed(args, json))
    output.emit({"result": result} if json else result)


def update(
    procedure: Annotated[int, typer.Argument(metavar="ID", help="The procedure id.")],
    name: Annotated[str, typer.Argument(help="Which update.", show_default=False)],
    args: Annotated[str, typer.Argument(help="Its arguments, as JSON.")] = "null",
    key: Annotated[str | None, typer.Option(help="The same key is carried out once.")] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="Give up after so long.", min=1)
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Update a running procedure and print what it answers."""
    with opened(connect, json) as db:
        result = db.update(procedure, name, parsed(args, json), key=key, timeout_ms=timeout_ms)
    output.emit({"result": result} if json else result)


def events(
    procedure: Annotated[int, typer.Argument(metavar="ID", help="The procedure id.")],
    after: Annotated[int, typer.Option(help="Only those above this position.", min=0)] = 0,
    name: Annotated[str, typer.Option(help="Only those of this name.")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the procedure ends.")
    ] = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what a procedure emits: a line each, position, name and value as JSON."""
    with opened(connect, json) as db:
        for event in db.events(procedure, after=after, name=name, follow=follow):
            if json:
                output.emit(dataclasses.asdict(event))
            else:
                name_of = output.printable(event.name)
                output.lines([f"{event.position}\t{name_of}\t{output.json_text(event.value)}"])
            sys.stdout.flush()


def complete(
    token: Annotated[str, typer.Argument(help="What ctx.external() gave.", show_default=False)],
    result: Annotated[str, typer.Argument(help="How it ended, as JSON.")] = "null",
    error: Annotated[str | None, typer.Option(help="It ended badly: why.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """End what a procedure asked of an outside system."""
    with opened(connect, json) as db:
        value = None if error is not None else parsed(result, json)
        done = db.complete(token, value, error=error)
    if json:
        output.emit({"completed": done})


def check_upgrade(
    modules: Annotated[
        list[str], typer.Argument(metavar="MODULE…", help="The new code's modules.")
    ],
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Tell which live procedures the declarations of new code would not run. Exit code 1 if any."""
    from kvorum.master.upgrade import check
    from kvorum.steps.modules import load_types

    names = [one for part in modules for one in part.split(",") if one]
    with opened(connect or DEFAULT, json) as db:
        found = check(load_types(names), db.live_records())
    if json:
        output.emit(found)
    else:
        rows = [(p["id"], p["name"], p["version"], p["why"]) for p in found["broken"]]
        if rows:
            output.table(("ID", "NAME", "VERSION", "WHY IT WOULD NOT RUN"), rows)
        output.lines(
            [f"{found['checked']} live procedures of these types, {len(rows)} would not run"]
        )
    if found["broken"]:
        raise typer.Exit(output.FAILED)


def versions(
    name: Annotated[str, typer.Argument(help="Only of this type.", show_default=False)] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print the versions of procedure types, who has them, and which are safe to stop."""
    with opened(connect, json) as db:
        found = db.versions(name or None)
    if json:
        output.emit({"items": found})
        return
    rows = [
        (
            *(one["name"], version["version"], version["live"], f"{version['new_percent']:g}%"),
            ", ".join(version["workers"]) or ("the nodes" if version["nodes"] else "-"),
            "yes" if version["safe_to_stop"] else f"no: {version['why_not']}",
        )
        for one in found
        for version in one["versions"]
    ]
    output.table(("TYPE", "VERSION", "LIVE", "NEW", "WORKERS", "SAFE TO STOP"), rows)


def set_version(
    name: Name,
    default: Annotated[
        int | None, typer.Option(help="New ones begin with; 0 = the newest.")
    ] = None,
    ramp: Annotated[
        int | None, typer.Option(help="But a share of them this one; 0 = none.")
    ] = None,
    percent: Annotated[float | None, typer.Option(help="That share.")] = None,
    drain: Annotated[int | None, typer.Option(help="No new ones begin with this one.")] = None,
    undrain: Annotated[int | None, typer.Option(help="They may again.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Choose the version that new procedures of a type begin with; what is left out stays."""
    with opened(connect, json) as db:
        found = db.set_version(
            *(name,), default=default, ramp=ramp, percent=percent, drain=drain, undrain=undrain
        )
    _new_ones(found, json)


def roll_back(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Let new procedures of a type begin with the version before."""
    with opened(connect, json) as db:
        found = db.roll_back_version(name)
    _new_ones(found, json)


def move_version(
    name: Name,
    to: Annotated[int, typer.Option(help="The version to go on with.", show_default=False)],
    from_: Annotated[int, typer.Option("--from", help="Only those of this version.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would move.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Move those that can, though others cannot.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why: kept in the audit.")] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Let live procedures of a type go on with another version. Exit code 1 if some cannot."""
    with opened(connect, json) as db:
        found = db.move_version(
            *(name, to), from_=from_, dry_run=dry_run, partial=partial, reason=reason
        )
    if json:
        output.emit(found)
    else:
        if found["refused"]:
            rows = [(one["id"], one["why"]) for one in found["refused"]]
            output.table(("ID", "WHY IT CANNOT"), rows)
        would = "would move" if dry_run else "moved"
        output.lines([f"{found['moved']} of {found['count']} live procedures {would} to {to}"])
    if found["refused"]:
        raise typer.Exit(output.FAILED)


def _new_ones(found: Plain, as_json: bool) -> None:
    if as_json:
        output.emit(found)
        return
    shares = [
        f"{one['new_percent']:g}% version {one['version']}"
        for one in found["versions"]
        if one["new_percent"]
    ]
    output.lines([f"new procedures of {found['name']}: {', '.join(shares)}"])


@queues.command("set")
def set_limit(
    name: Name,
    kind: Annotated[str, typer.Option(help="queue, type or pool.")] = "queue",
    max_concurrent: Annotated[
        int, typer.Option(help="Begun and not ended; 0 = any number.", min=0)
    ] = 0,
    rate_per_s: Annotated[
        float, typer.Option(help="Begun per second; 0 = any number.", min=0)
    ] = 0.0,
    rate: Annotated[str, typer.Option(help="Begun per time, as 100/1h.")] = "",
    burst: Annotated[int, typer.Option(help="At once after a pause.", min=0)] = 0,
    key_concurrent: Annotated[
        int, typer.Option(help="Of each key of a queue; 0 = any number.", min=0)
    ] = 1,
    key_rate: Annotated[str, typer.Option(help="Of each key, as 5/10s.")] = "",
    key_burst: Annotated[int, typer.Option(help="Of each key.", min=0)] = 0,
    aging_ms: Annotated[
        int, typer.Option(help="Waiting for so long counts as one priority.", min=0)
    ] = 0,
    weight: Annotated[
        list[str] | None, typer.Option(help="KEY=N: it has N turns in place of 1.")
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Limit what may run of a queue, a type or a pool; zeros remove the limit."""
    with opened(connect, json) as db:
        answer = db.set_limit(
            name,
            kind=kind,
            max_concurrent=max_concurrent,
            rate_per_s=rate_per_s,
            rate=rate,
            burst=burst,
            key_concurrent=key_concurrent,
            key_rate=key_rate,
            key_burst=key_burst,
            aging_ms=aging_ms,
            weights=_weights(weight or [], json),
        )
    if json:
        output.emit(answer)


@queues.command("show")
def show_queue(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Print what waits in a queue, by key, those with most first."""
    with opened(connect, json) as db:
        found = db.queue(name)
    if json:
        output.emit(found)
        return
    oldest = f", the oldest for {found['oldest_ms'] / 1000:.1f} s" if found["waiting"] else ""
    output.lines([f"{found['running']} running, {found['waiting']} waiting{oldest}"])
    rows = [
        (one["key"] or "-", one["running"], one["waiting"], one["oldest_ms"], one["next"] or "-")
        for one in found["keys"]
    ]
    output.table(("KEY", "RUNNING", "WAITING", "OLDEST MS", "NEXT"), rows)


@queues.command("list")
def list_queues(connect: Connect = None, json: Json = False) -> None:
    """Print everything that has a limit, or waits for one."""
    with opened(connect, json) as db:
        found = db.queues()
    if json:
        output.emit({"items": found})
        return
    rows = [
        *(
            (
                q["kind"],
                q["name"],
                q["running"],
                q["waiting"],
                q["max_concurrent"] or "-",
                q["rate_per_s"] or "-",
            )
            for q in found
        )
    ]
    output.table(("KIND", "NAME", "RUNNING", "WAITING", "MOST", "PER SECOND"), rows)


def _weights(said: list[str], as_json: bool) -> dict[str, int]:
    found = {}
    for one in said:
        key, _, weight = one.rpartition("=")
        if not key or not weight.isascii() or not weight.isdigit():
            output.die(InvalidArgument(f"--weight wants KEY=N, got {one!r:.60}"), as_json=as_json)
        found[key] = int(weight)
    return found


def parsed(text: str, as_json: bool) -> object:
    try:
        return json_module.loads(text)
    except ValueError as e:
        output.die(InvalidArgument(f"{text!r:.60} is not JSON: {e}"), as_json=as_json)
