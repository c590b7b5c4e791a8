"""`kvorum schedule …`, and `kvorum pause|resume|pauses`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from kvorum.cli.message_commands import parsed
from kvorum.cli.moments import moment, time

app = typer.Typer(
    no_args_is_help=True, help="Procedures at the times of a clock.", rich_markup_mode=None
)
Name = Annotated[str, typer.Argument(help="Its name.", show_default=False)]
Overlap = Annotated[
    str,
    typer.Option(
        help="When the run before has not ended: allow_all, skip, buffer_one, buffer_all, "
        "cancel_other, terminate_other."
    ),
]
KindOf = Annotated[
    str, typer.Argument(help="procedure, type, queue, pool or schedule.", show_default=False)
]
What = Annotated[str, typer.Argument(help="Its name; of a procedure its id.", show_default=False)]


@app.command("add")
def add(
    name: Name,
    cron: Annotated[
        str,
        typer.Argument(
            help='Five fields, in quotes, or a name as @daily; several with ; in between; "" with '
            "--every-ms alone.",
            show_default=False,
        ),
    ],
    procedure: Annotated[str, typer.Argument(help="What is started.", show_default=False)],
    args: Annotated[str, typer.Argument(help="Its arguments, as JSON.")] = "null",
    every_ms: Annotated[int, typer.Option("--every-ms", help="Also so often.", min=0)] = 0,
    offset_ms: Annotated[int, typer.Option("--offset-ms", help="… so much later.", min=0)] = 0,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A cron expression of minutes without a start.")
    ] = None,
    zone: Annotated[str, typer.Option(help="Time zone.")] = "UTC",
    jitter_ms: Annotated[
        int, typer.Option("--jitter-ms", help="Begin up to so much later.", min=0)
    ] = 0,
    start: Annotated[str, typer.Option(help="Not before, as 2026-05-01T00:00Z.")] = "",
    end: Annotated[str, typer.Option(help="Not after.")] = "",
    remaining: Annotated[int | None, typer.Option(help="So many runs.", min=0)] = None,
    overlap: Overlap = "allow_all",
    missed: Annotated[str, typer.Option(help="one, all or skip.")] = "one",
    catch_up_ms: Annotated[
        int, typer.Option("--catch-up-ms", help="Leave out what is older; 0 = nothing.", min=0)
    ] = 0,
    queue: Annotated[str, typer.Option(help="In which it waits.")] = "",
    attributes: Annotated[
        str, typer.Option(help="By which what it starts can be found: a JSON object.")
    ] = "{}",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Start a procedure at the times of a clock, once for each; or change how."""
    crons = [one.strip() for one in cron.split(";") if one.strip()]
    begins, ends = moment(start, json), moment(end, json)
    with opened(connect, json) as db:
        made = db.set_schedule(
            *(name, crons[0] if len(crons) == 1 else crons, procedure, parsed(args, json)),
            every_ms=every_ms,
            offset_ms=offset_ms,
            exclude=exclude or (),
            zone=zone,
            jitter_ms=jitter_ms,
            start=begins,
            end=ends,
            remaining=remaining,
            overlap=overlap,
            missed=missed,
            catch_up_ms=catch_up_ms,
            queue=queue,
            attributes=cast(Any, parsed(attributes, json)),
        )
    if json:
        output.emit(made)
    else:
        output.lines([f"{name}: next at {time(made['next_ms'])}"])


@app.command("remove")
def remove(name: Name, connect: Connect = None, json: Json = False) -> None:
    """Remove a schedule. What it started goes on."""
    with opened(connect, json) as db:
        db.remove_schedule(name)
    if json:
        output.emit({"name": name})


@app.command("list")
def list_schedules(connect: Connect = None, json: Json = False) -> None:
    """Print the schedules with their next times."""
    with opened(connect, json) as db:
        found = db.schedules()
    if json:
        output.emit({"items": found})
        return
    rows = []
    for s in found:
        paused = s.get("paused")
        next_at = f"paused: {paused['note']}" if paused else time(s["next_ms"])
        crons = s["cron"] if isinstance(s["cron"], str) else "; ".join(s["cron"])
        every = f"every {s['every_ms'] / 1000:g} s" if s.get("every_ms") else ""
        when = " and ".join(one for one in (crons, every) if one)
        rows.append((s["name"], when, s["zone"], s["procedure"], next_at, s["runs"]))
    output.table(("NAME", "WHEN", "ZONE", "PROCEDURE", "NEXT", "RUNS"), rows)


@app.command("next")
def next_times(
    name: Name,
    count: Annotated[int, typer.Option(help="So many.", min=1, max=1000)] = 10,
    after: Annotated[str, typer.Option(help="After this moment; now, if left out.")] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print the next times of a schedule."""
    since = moment(after, json)
    with opened(connect, json) as db:
        found = db.schedule_times(name, count, after=since)
    if json:
        output.emit({"times": found})
    else:
        output.lines(list(map(time, found)))


@app.command("trigger")
def trigger(name: Name, overlap: Overlap = "", connect: Connect = None, json: Json = False) -> None:
    """Start what a schedule starts, now."""
    with opened(connect, json) as db:
        found = db.trigger_schedule(name, overlap=overlap)
    if json:
        output.emit(found)
    else:
        output.lines(found["started"] or ["nothing was started yet"])


@app.command("backfill")
def backfill(
    name: Name,
    start: Annotated[str, typer.Argument(help="From this moment, as 2026-05-01T00:00Z …")],
    end: Annotated[str, typer.Argument(help="… before that one.")],
    overlap: Overlap = "buffer_all",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Start what a schedule starts, for each of its times in a range that has passed."""
    span = moment(start, json) or 0, moment(end, json) or 0
    with opened(connect, json) as db:
        found = db.backfill_schedule(name, *span, overlap=overlap)
    if json:
        output.emit(found)
    else:
        output.lines([f"{found['count']} runs, {len(found['started'])} of them were started"])


def pause(
    kind: KindOf,
    name: What,
    note: Annotated[str, typer.Option(help="Why; required.")] = "",
    actor: Annotated[str, typer.Option(help="Who does it; you, if left out.")] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Let nothing new start of something; steps under way come to their end."""
    with opened(connect, json) as db:
        found = db.pause(kind, name, note, actor=actor)
    if json:
        output.emit(found)


def resume(
    kind: KindOf,
    name: What,
    actor: Annotated[str, typer.Option(help="Who does it; you, if left out.")] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Let something go on that is paused."""
    with opened(connect, json) as db:
        db.resume(kind, name, actor=actor)
    if json:
        output.emit({"kind": kind, "name": name})


def pauses(connect: Connect = None, json: Json = False) -> None:
    """Print what is paused, by whom and why."""
    with opened(connect, json) as db:
        found = db.pauses()
    if json:
        output.emit({"items": found})
        return
    rows = [(p["kind"], p["name"], time(p["at_ms"]), p["by"], p["note"]) for p in found]
    output.table(("KIND", "NAME", "SINCE", "BY", "WHY"), rows)
