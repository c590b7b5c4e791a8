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
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Limit what may run of a queue, a type or a pool; zeros remove the limit."""
    with opened(connect, json) as db:
        answer = db.set_limit(name, kind=kind, max_concurrent=max_concurrent, rate_per_s=rate_per_s)
    if json:
        output.emit(answer)


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


def parsed(text: str, as_json: bool) -> object:
    try:
        return json_module.loads(text)
    except ValueError as e:
        output.die(InvalidArgument(f"{text!r:.60} is not JSON: {e}"), as_json=as_json)
