"""`kvorum spark sinks|commit|abort|forget`: what Spark's writers left, and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from kv.base.errors import InvalidArgument
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT, Connect, Json, errors_shown

app = typer.Typer(no_args_is_help=True, help="What Spark writes.", rich_markup_mode=None)
_MINUTE_MS = 60_000


@app.command("sinks")
def list_sinks(connect: Connect = None, json: Json = False) -> None:
    """Print staged work, ledgers (who wrote up to where) and jobs that go on."""
    from kvorum.spark.sinks import Sinks

    with errors_shown(json), Sinks(connect or DEFAULT) as sinks:
        attempts, ledgers, jobs = sinks.attempts(), sinks.ledgers(), sinks.jobs()
    if json:
        output.emit(
            {
                "attempts": [one.to_plain() for one in attempts],
                "ledgers": [one.to_plain() for one in ledgers],
                "jobs": [one.to_plain() for one in jobs],
            }
        )
        return
    output.table(
        (
            *("ATTEMPT", "TABLE", "BATCH", "STATE", "SINCE_MIN", "TASKS", "ROWS", "USER"),
            *("PROCEDURE", "LEASE_MIN"),
        ),
        [
            (
                a.attempt,
                a.table,
                f"{a.app} {a.version}" if a.app else "-",
                f"{a.state} (silent)" if a.silent else a.state,
                _minutes(a.since_ms),
                f"{a.tasks}{'+' * a.more}",
                f"{a.rows}{'+' * a.more}",
                a.user or "-",
                a.procedure or "-",
                _minutes(a.left_ms),
            )
            for a in attempts
        ],
    )
    output.lines([f"{a.attempt}: {a.do}" for a in attempts if a.level == "warn"])
    output.table(
        ("APPLICATION", "TABLE", "VERSION", "QUERY", "COMMITTED"),
        [(w.app, w.table or "(jobs)", w.version, w.query or "-", w.committed) for w in ledgers],
    )
    output.table(
        ("JOB", "APPLICATION", "VERSION", "STATE", "STEP", "AGE_MIN", "PROGRESS"),
        [
            (
                j.id,
                j.app,
                j.version,
                j.state,
                j.step,
                _minutes(j.age_ms),
                j.progress + (" (stale: commit or abort it)" if j.stale else ""),
            )
            for j in jobs
        ],
    )


@app.command("commit")
def commit(
    what: Annotated[str, typer.Argument(metavar="JOB|APPLICATION", help="A job's id or name.")],
    up_to: Annotated[
        int | None, typer.Option("--up-to", help="With an application: its jobs up to a version.")
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Commit a prepared job, or all of an application up to a version. Exit code 1 if refused."""
    from kvorum.spark.sinks import Sinks

    with errors_shown(json), Sinks(connect or DEFAULT) as sinks:
        if up_to is not None:
            done = sinks.commit_up_to(what, up_to)
        elif what.isdigit():
            sinks.commit_job(int(what))
            done = [int(what)]
        else:
            raise InvalidArgument(f"{what!r} is no job's id; of an application say --up-to VERSION")
    if json:
        output.emit({"committed": [str(one) for one in done]})
    else:
        output.lines([f"job {one} is committed" for one in done])


@app.command("abort")
def abort(
    what: Annotated[str, typer.Argument(metavar="JOB|ATTEMPT", help="Of kvorum spark sinks.")],
    reason: Annotated[str, typer.Option(help="Kept with the job.")] = "aborted by an operator",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Let go of a job, or of one attempt: it cannot be committed any more."""
    from kvorum.spark.sinks import Sinks

    with errors_shown(json), Sinks(connect or DEFAULT) as sinks:
        if what.isdigit():
            sinks.abort_job(int(what), reason)
        else:
            sinks.abort(what)
    if json:
        output.emit({"aborted": what})
    else:
        output.lines([f"{what} is aborted; what it staged goes with its lease"])


@app.command("forget")
def forget(
    application: Annotated[str, typer.Argument(help="Its appId.")],
    table: Annotated[
        str, typer.Argument(help="namespace.table, or a gone one's id; else: jobs.")
    ] = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Remove an application's ledger, so that its versions begin anew. Only of one that is over."""
    from kvorum.spark.sinks import Sinks

    with errors_shown(json), Sinks(connect or DEFAULT) as sinks:
        there = sinks.forget(application, table)
    if json:
        output.emit({"application": application, "table": table, "forgotten": there})
    else:
        said = "is forgotten" if there else "has no such ledger"
        output.lines([f"{application} {said}"])
    if not there:
        raise typer.Exit(output.FAILED)


def _minutes(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / _MINUTE_MS:.1f}"
