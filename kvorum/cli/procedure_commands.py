"""`kvorum proc list|show|submit|wait|dump`; what operators do is in surgery_commands.py."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any

import typer

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.api.model import ProcedureInfo
from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from kvorum.sdk.sync import Database

app = typer.Typer(no_args_is_help=True, help="Procedures.", rich_markup_mode=None)
_KEEPS_CHARS = 60
Id = Annotated[int, typer.Argument(metavar="ID", help="The procedure id.")]


@app.command("list")
def list_procedures(
    state: Annotated[str | None, typer.Option(help="Only in this state.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only of this owner.")] = None,
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print procedures that run, and those that ended and are kept."""
    with opened(connect, json) as db:
        found = db.procedures(state=state, owner=owner, name=name)
    if json:
        output.emit({"items": [_plain(p) for p in found]})
        return
    rows = [
        (p.id, p.name, p.state, p.step or "", p.extra.get("owner", ""), _keeps(p)) for p in found
    ]
    output.table(("ID", "NAME", "STATE", "STEP", "OWNER", "WHAT KEEPS IT"), rows)


@app.command("show")
def show(procedure: Id, connect: Connect = None, json: Json = False) -> None:
    """Print all about one procedure."""
    with opened(connect, json) as db:
        info = db.procedure(procedure)
    _print(info, json)


@app.command("submit")
def submit(
    name: Annotated[str, typer.Argument(help="Its registered name.", show_default=False)],
    args: Annotated[str, typer.Argument(help="Its arguments, as JSON.")] = "null",
    nonce: Annotated[
        str | None,
        typer.Option(help="The same nonce gives the same procedure, as long as it is kept."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Start a procedure and print its id."""
    try:
        arguments = json_module.loads(args)
    except ValueError as e:
        output.die(InvalidArgument(f"the arguments are not JSON: {e}"), as_json=json)
    with opened(connect, json) as db:
        procedure = db.submit(name, arguments, nonce=nonce)
        if wait:
            _finish(db, procedure, None, json)
            return
    if json:
        output.emit({"id": str(procedure)})
    else:
        output.lines([str(procedure)])


@app.command("wait")
def wait(
    procedure: Id,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="Give up after so long.", min=1)
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Wait for the end of a procedure and print its result. Exit code 1 if it failed."""
    with opened(connect, json) as db:
        _finish(db, procedure, timeout_ms, json)


@app.command("dump")
def dump(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Of procedures without a cluster.")
    ],
    json: Json = False,
) -> None:
    """Print what a directory of procedures without a cluster holds. Changes nothing."""
    from procedures.wal.dump import dump as read

    try:
        answer = read(directory)
    except KvorumError as error:
        output.die(error, as_json=json)
    if json:
        output.emit(answer)
        return
    output.lines([answer["report"]["text"]])
    logs = [
        (log["file"], output.size(log["bytes"]), log["frames"], log["written"], log["deleted"])
        for log in answer["logs"]
    ]
    output.table(("LOG", "SIZE", "SYNCS", "WRITTEN", "DELETED"), logs)
    rows = [(p["id"], p["name"], p["state"], p["step"], p["nonce"]) for p in answer["procedures"]]
    output.table(("ID", "NAME", "STATE", "STEP", "NONCE"), rows)
    output.lines([f"{one['id']}: {one['reason']}" for one in answer["broken"]])


def _keeps(info: ProcedureInfo) -> str:
    """What is not as usual with one that has not ended, in a few words."""
    answer = info.extra
    if answer.get("parked"):
        return _short(f"parked: {answer['parked']}")
    if answer.get("stuck"):
        return (
            f"stuck in {answer['stuck']['step']} for {answer['stuck']['running_ms'] / 1000:.0f} s"
        )
    if answer.get("retrying"):
        by_policy = answer.get("retry") or {}
        of = f" of {by_policy['of']}" if by_policy.get("of") else ""
        times = f" (failed {by_policy['failed']}{of})" if by_policy else ""
        error = answer["retrying"]
        return _short(f"retrying{times}: {error['code']}: {error['message']}")
    return _short(str(answer.get("waits") or ""))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _KEEPS_CHARS else line[: _KEEPS_CHARS - 1] + "…"


def _finish(db: Database, procedure: int, timeout_ms: int | None, json: bool) -> None:
    result = db.wait(procedure, timeout_ms=timeout_ms)
    shown = {"id": str(procedure), "state": "SUCCESS", "result": result}
    output.emit(shown if json else result)


def _print(info: ProcedureInfo, json: bool) -> None:
    shown = _plain(info)
    if json:
        output.emit(shown)
        return
    trace = ""
    if isinstance(shown.get("error"), dict):
        trace = shown["error"].pop("traceback", "")
    elif isinstance(shown.get("retrying"), dict):
        shown["retrying"] = dict(shown["retrying"])
        trace = shown["retrying"].pop("traceback", "")
    for name, value in shown.items():
        if name != "steps":
            text = value if isinstance(value, str) else json_module.dumps(value, default=str)
            output.lines([f"{name:12} {text}"])
    for number, one in enumerate(info.steps or ()):
        answer = f"{one.get('step')}: {one.get('outcome')}, {one.get('took_ms')} ms"
        output.lines([f"{'' if number else 'steps':12} {answer}"])
    if trace:
        output.lines(["", *trace.rstrip().splitlines()])


def _plain(info: ProcedureInfo) -> dict[str, Any]:
    shown = {
        "id": str(info.id),
        "name": info.name,
        "state": info.state,
        "step": info.step,
        "locks": list(info.locks),
        **info.extra,
    }
    if info.steps is not None:
        shown["steps"] = list(info.steps)
    if info.state == "SUCCESS":
        shown["result"] = info.result
    if info.error is not None:
        shown["error"] = dict(info.error)
    return shown
