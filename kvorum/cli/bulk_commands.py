"""`kvorum proc reset|fork|bulk` and `kvorum retention …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from kvorum.cli.message_commands import parsed
from kvorum.cli.moments import moment
from kvorum.cli.surgery_commands import Actor, DryRun, Id, Reason, changes
from procedures.engine.plain_data import Plain

app = typer.Typer(
    no_args_is_help=True, help="How long ended procedures are kept.", rich_markup_mode=None
)
Step = Annotated[
    str, typer.Option(help="At this step, or call of a workflow: its name, or its place (#3).")
]
State = Annotated[str, typer.Option(help="Another state, as JSON.")]
Args = Annotated[str, typer.Option(help="Other arguments, as JSON.")]


def reset(
    procedure: Id,
    reason: Reason = "",
    step: Step = "",
    state: State = "",
    args: Args = "",
    keep: Annotated[
        bool, typer.Option("--keep", help="What it did from there on stays; else it is undone.")
    ] = False,
    end_children: Annotated[
        bool, typer.Option("--end-children", help="End those below it, too.")
    ] = False,
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Have a procedure go on from an earlier step, also one that has ended."""
    said = _said(state, args, json)
    with opened(connect, json) as db:
        answer = db.reset_procedure(
            *(procedure, reason),
            step=step,
            undo="keep" if keep else "undo",
            children="end" if end_children else "refuse",
            dry_run=dry_run,
            actor=actor,
            **said,
        )
    changes(answer, json)
    if not json:
        _print_point(answer)


def fork(
    procedure: Id,
    reason: Reason = "",
    step: Step = "",
    state: State = "",
    args: Args = "",
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Begin a new procedure at a step of another one, which stays as it is."""
    said = _said(state, args, json)
    with opened(connect, json) as db:
        answer = db.fork_procedure(
            procedure, reason, step=step, dry_run=dry_run, actor=actor, **said
        )
    if json:
        output.emit(answer)
        return
    _print_point(answer)
    if answer["forked"]:
        output.lines([answer["forked"]])


def bulk(
    what: Annotated[
        str,
        typer.Argument(help="abort, retry, bypass, reset, signal, pause, resume or forget."),
    ],
    where: Annotated[
        list[str] | None, typer.Argument(help="Conditions on attributes: customer=ada.")
    ] = None,
    reason: Reason = "",
    type_: Annotated[list[str] | None, typer.Option("--type", help="Of this type.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="In this state.")] = None,
    queue: Annotated[str | None, typer.Option(help="Of this queue.")] = None,
    pool: Annotated[str | None, typer.Option(help="Of this pool.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Started by this schedule.")] = None,
    error: Annotated[str | None, typer.Option(help="Its error begins so.")] = None,
    ended_from: Annotated[str, typer.Option(help="Ended since then.")] = "",
    ended_to: Annotated[str, typer.Option(help="Ended before then.")] = "",
    options: Annotated[str, typer.Option(help="Of the action, as JSON.")] = "{}",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Act on all procedures that fit; print the id of the procedure that does it."""
    wanted: Plain = {"where": where, "type": type_, "state": state, "queue": queue}
    wanted |= {"pool": pool, "schedule": schedule, "error": error}
    wanted |= {"ended_from": moment(ended_from, json), "ended_to": moment(ended_to, json)}
    wanted = {name: value for name, value in wanted.items() if value}
    given: Any = parsed(options, json)
    with opened(connect, json) as db:
        answer = db.bulk(what, reason, options=given, dry_run=dry_run, actor=actor, **wanted)
        if wait and not dry_run:
            answer = {**answer, **db.wait(answer["id"])}
    if json:
        output.emit(answer)
    elif dry_run:
        rows = [(one["id"], one["name"], one["state"]) for one in answer["items"]]
        output.table(("ID", "NAME", "STATE"), rows)
        more = " or more" if answer["more"] else ""
        output.lines([f"{answer['count']}{more} would be touched"])
    else:
        output.lines([f"{name}: {value}" for name, value in answer.items()])


@app.command("set")
def set_rule(
    type_: Annotated[str, typer.Option("--type", help="Of this type; of any.")] = "",
    state: Annotated[str, typer.Option(help="SUCCESS, FAILED, ROLLED_BACK, BYPASSED; any.")] = "",
    keep_ms: Annotated[
        int | None, typer.Option("--keep-ms", help="So long after the end.", min=0)
    ] = None,
    most: Annotated[int | None, typer.Option(help="So many, the newest.", min=0)] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Say how long ended procedures are kept, and how many."""
    with opened(connect, json) as db:
        answer = db.set_retention(type=type_, state=state, keep_ms=keep_ms, most=most)
    if json:
        output.emit(answer)


@app.command("remove")
def remove_rule(
    type_: Annotated[str, typer.Option("--type", help="Of this type.")] = "",
    state: Annotated[str, typer.Option(help="In this state.")] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Remove a rule."""
    with opened(connect, json) as db:
        db.remove_retention(type=type_, state=state)
    if json:
        output.emit({})


@app.command("list")
def list_rules(connect: Connect = None, json: Json = False) -> None:
    """Print the rules."""
    with opened(connect, json) as db:
        found = db.retention()
    if json:
        output.emit({"items": found})
        return
    rows = []
    for one in found:
        kept = "-" if one["keep_ms"] is None else f"{one['keep_ms'] / 1000:g} s"
        most = "-" if one["most"] is None else one["most"]
        rows.append((one["type"] or "*", one["state"] or "*", kept, most))
    output.table(("TYPE", "STATE", "KEPT", "MOST"), rows)


def _said(state: str, args: str, json: bool) -> Plain:
    found: Plain = {"state": parsed(state, json)} if state else {}
    return found | ({"args": parsed(args, json)} if args else {})


def _print_point(answer: Plain) -> None:
    for name in ("redone", "undone"):
        if answer.get(name):
            output.lines([f"{name}: {', '.join(answer[name])}"])
