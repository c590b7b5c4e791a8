"""`kvorum proc list|show|submit|wait|dump`; what operators do is in surgery_commands.py."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from typing import Annotated

import typer

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.api.model import ProcedureInfo
from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from kvorum.cli.moments import moment
from kvorum.sdk.sync import Database
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import procedure_name
from procedures.engine.registry import Declared, declaration

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


@app.command("search")
def search(
    where: Annotated[
        list[str] | None,
        typer.Argument(help="Conditions on attributes: customer=ada, amount>=100, city^=New."),
    ] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Of this type.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="In this state.")] = None,
    owner: Annotated[str | None, typer.Option(help="Of this owner.")] = None,
    queue: Annotated[str | None, typer.Option(help="Of this queue.")] = None,
    pool: Annotated[str | None, typer.Option(help="Of this pool.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Started by this schedule.")] = None,
    parent: Annotated[str | None, typer.Option(help="Children of this one.")] = None,
    error: Annotated[str | None, typer.Option(help="Its error begins so.")] = None,
    submitted_from: Annotated[str, typer.Option(help="As 2026-05-01T00:00Z.")] = "",
    submitted_to: Annotated[str, typer.Option(help="Before then.")] = "",
    ended_from: Annotated[str, typer.Option(help="Ended since then.")] = "",
    ended_to: Annotated[str, typer.Option(help="Ended before then.")] = "",
    limit: Annotated[int, typer.Option(help="So many at most.", min=1, max=1000)] = 100,
    token: Annotated[str, typer.Option(help="Go on where a page ended.")] = "",
    count: Annotated[bool, typer.Option("--count", help="Only how many there are.")] = False,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Search for procedures, those that ended and are kept, too."""
    wanted: Plain = {"type": type_, "state": state, "owner": owner, "queue": queue}
    wanted |= {"pool": pool, "schedule": schedule, "parent": parent, "error": error}
    wanted |= {"where": where, "submitted_from": moment(submitted_from, json)}
    wanted |= {"submitted_to": moment(submitted_to, json), "ended_from": moment(ended_from, json)}
    wanted["ended_to"] = moment(ended_to, json)
    wanted = {name: value for name, value in wanted.items() if value}
    with opened(connect, json) as db:
        if count:
            counted = db.count_procedures(**wanted)
            _print_counts(counted, json)
            return
        found = db.search(limit=limit, token=token, **wanted)
    if json:
        output.emit({**found, "items": [_plain(p) for p in found["items"]]})
        return
    rows = []
    for p in found["items"]:
        said = ", ".join(f"{k}={v}" for k, v in p.extra.get("attributes", {}).items())
        error_code = p.error["code"] if p.error else ""
        rows.append((p.id, p.name, p.state, p.step or "", error_code, _short(said)))
    output.table(("ID", "NAME", "STATE", "STEP", "ERROR", "ATTRIBUTES"), rows)
    if found["token"]:
        output.lines([f"there may be more: --token {found['token']}"])


def _print_counts(counted: Plain, json: bool) -> None:
    if json:
        output.emit(counted)
        return
    output.table(
        ("TYPE", "STATE", "COUNT"),
        [(one["type"], one["state"], one["count"]) for one in counted["items"]],
    )
    if counted["more"]:
        output.lines(["there are more: not all were counted"])


@app.command("show")
def show(
    procedure: Id,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="As it was then: a version, -10s, or a time (of UTC, if not said)."
        ),
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print all about one procedure."""
    with opened(connect, json) as db:
        info = db.procedure(procedure, at=at)
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
    attributes: Annotated[
        str, typer.Option(help="By which it can be found: a JSON object.")
    ] = "{}",
    queue: Annotated[str, typer.Option(help="In which it waits for its turn.")] = "",
    key: Annotated[str, typer.Option(help="Of one key its queue runs one at a time.")] = "",
    priority: Annotated[int | None, typer.Option(help="The higher one begins first.")] = None,
    delay_ms: Annotated[int, typer.Option(help="Begin so much later.", min=0)] = 0,
    dedup: Annotated[str, typer.Option(help="The same one starts nothing …")] = "",
    dedup_ms: Annotated[int, typer.Option(help="… for so long.", min=0)] = 0,
    debounce_ms: Annotated[
        int, typer.Option(help="Begin so long after the last one of its key.", min=0)
    ] = 0,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Start a procedure and print its id."""
    try:
        arguments, said = json_module.loads(args), json_module.loads(attributes)
    except ValueError as e:
        output.die(InvalidArgument(f"the arguments are not JSON: {e}"), as_json=json)
    with opened(connect, json) as db:
        made = db.enqueue(
            *(name, arguments),
            queue=queue,
            key=key,
            priority=priority,
            delay_ms=delay_ms,
            dedup=dedup,
            dedup_ms=dedup_ms,
            debounce_ms=debounce_ms,
            nonce=nonce,
            attributes=said,
        )
        if wait:
            _finish(db, made.id, None, json)
            return
    if json:
        output.emit({"id": str(made.id), **({"earlier": made.earlier} if made.earlier else {})})
    else:
        output.lines([str(made.id)])


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


@app.command("replay")
def replay(
    procedure: Id,
    module: Annotated[str, typer.Argument(help="Where the code is, with which it is executed.")],
    step: Annotated[str, typer.Option(help="Which step; its newest execution.")] = "",
    last: Annotated[int, typer.Option(help="The so many-th execution, from the end.", min=1)] = 1,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of those that had ended by then.")
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Execute a step again with other code, on what it saw then, and print what differs. Nothing is
    written, and effects outside are refused. Exit code 1 if something differs.
    """
    from kvorum.steps.modules import declared

    with opened(connect, json) as db:
        info = db.procedure(procedure, at=at)
        found = [one for one in declared([module]) if procedure_name(one) == info.name]
        if not found:
            output.die(InvalidArgument(f"{module} declares no procedure {info.name}"), as_json=json)
        code = _of_version(found, info.extra["version"])
        answer = db.replay_procedure(procedure, code, step=step, last=last, at=at).to_plain()
    if json:
        output.emit(answer)
    else:
        _print_replay(answer)
    if not answer["same"]:
        raise typer.Exit(1)


def _of_version(found: Sequence[Declared], version: int) -> Declared:
    """Of several versions side by side that one, else who accepts it, else the last one."""
    exact = [one for one in found if declaration(one).version == version]
    accepting = [one for one in found if version in declaration(one).accepts]
    return (exact or accepting or found)[-1]


def _print_replay(answer: Plain) -> None:
    moment = f"the snapshot {answer['at']}"
    output.lines([f"step {answer['step']} of procedure {answer['id']}, on {moment}"])
    output.lines([f"it ended: {answer['before']}; now: {answer['after']}"])
    if answer["error"]:
        output.lines([f"error: {answer['error']['code']}: {answer['error']['message']}"])
    if answer["state"] != answer["new_state"]:
        output.lines([f"then: {answer['state']}", f"now:  {answer['new_state']}"])
    rows = [
        (one["table"], one["key"], one["wrote"], one["writes"]) for one in answer["differences"]
    ]
    if rows:
        output.table(("TABLE", "KEY", "IT WROTE", "IT WOULD WRITE"), rows)
    output.lines([f"refused: {one}" for one in answer["effects_refused"]])
    if answer["same"]:
        output.lines(["the same as then"])


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


def _plain(info: ProcedureInfo) -> Plain:
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
