"""`kvorum proc abort|bypass|retry|explain|audit` and `kvorum proc steal`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from procedures.engine.plain_data import Plain

Id = Annotated[int, typer.Argument(metavar="ID", help="The procedure id.")]
Reason = Annotated[str, typer.Option(help="Why; required, kept in the audit.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would change.")]
Actor = Annotated[str, typer.Option(help="Who does it; you, if left out.")]

_AS_IT_IS = "goes on at once, as it is"  # a retry changes nothing else


def abort(
    procedure: Id,
    reason: Reason = "",
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Stop a procedure: it rolls back what it did."""
    with opened(connect, json) as db:
        answer = db.abort_procedure(procedure, reason, dry_run=dry_run, actor=actor)
    changes(answer, json)


def bypass(
    procedure: Id,
    reason: Reason = "",
    override: Annotated[
        bool, typer.Option("--override", help="Also while a step of it is under way.")
    ] = False,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="With everything below it.")
    ] = False,
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """End a procedure where it stands: nothing is undone, its locks are free."""
    with opened(connect, json) as db:
        answer = db.bypass_procedure(
            *(procedure, reason),
            override=override,
            recursive=recursive,
            dry_run=dry_run,
            actor=actor,
        )
    changes(answer, json)


def retry(
    procedure: Id,
    reason: Reason = "",
    step: Annotated[str, typer.Option(help="Go on from this step.")] = "",
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Let a procedure go on at once, from the step that it has or from another one."""
    with opened(connect, json) as db:
        answer = db.retry_procedure(procedure, reason, step=step, dry_run=dry_run, actor=actor)
    changes(answer, json)


def steal(
    resource: Annotated[str, typer.Argument(help="What is locked.", show_default=False)],
    reason: Reason = "",
    holder: Annotated[int, typer.Option(help="Only from this procedure.", min=0)] = 0,
    dry_run: DryRun = False,
    actor: Actor = "",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Take a lock away from who holds it; the next one gets it."""
    with opened(connect, json) as db:
        answer = db.steal_lock(resource, reason, holder=holder, dry_run=dry_run, actor=actor)
    changes(answer, json)


def explain(procedure: Id, connect: Connect = None, json: Json = False) -> None:
    """Print what a procedure waits for, since when, and who could help."""
    with opened(connect, json) as db:
        answer = db.explain_procedure(procedure)
    if json:
        output.emit(answer)
        return
    output.lines([answer["sentence"], *(f"  {wait['text']}" for wait in answer["waits"][1:])])


def audit(
    procedure: Annotated[
        int, typer.Argument(metavar="ID", help="Only what was done to this one.")
    ] = 0,
    limit: Annotated[int, typer.Option(help="So many at most.", min=1, max=1000)] = 100,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what was done to procedures, by whom and why, the newest first."""
    with opened(connect, json) as db:
        found = db.audit(procedure, limit=limit)
    if json:
        output.emit({"items": found})
        return
    rows = [
        (
            datetime.fromtimestamp(one["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
            *(one["actor"], one["what"], one["procedure"], one["name"]),
            *("; ".join(map(_change, one["procedures"][:1])), one["count"], one["reason"]),
        )
        for one in found
    ]
    output.table(("WHEN", "WHO", "WHAT", "ID", "NAME", "CHANGE", "OF", "WHY"), rows)


def changes(answer: Plain, as_json: bool) -> None:
    if as_json:
        output.emit(dict(answer))
        return
    verb = "would change" if answer["dry_run"] else "changed"
    if not answer["changed"]:
        output.lines([f"nothing {verb}: {answer.get('why', '')}"])
        return
    output.lines([f"{verb}:"])
    for one in answer["procedures"]:
        output.lines([f"  {one['procedure']} ({one['name']}): {_change(one) or _AS_IT_IS}"])
        if one["locks_released"]:
            locks = [f"{lock['mode']} {lock['resource']}" for lock in one["locks_released"]]
            freed = ", ".join(locks)
            output.lines([f"    frees {freed}"])
        if one.get("undoes"):
            output.lines([f"    undoes, in this order: {', '.join(one['undoes'])}"])
        if one.get("refuses"):
            output.lines([f"    refuses {one['refuses']}"])
    more = answer["count"] - len(answer["procedures"])
    if more > 0:
        output.lines([f"  and {more} more"])


def _change(one: Plain) -> str:
    return ", ".join(
        f"{name}: {old} → {one['after'].get(name)}" for name, old in one["before"].items()
    )
