"""`kvorum.spark_job`: several writes of a Spark program, to several tables, in one commit.

    gather   waits for signals "job" of the program: a write that is staged is *prepared* (its
             attempt belongs to this procedure and has no lease any more), `commit` goes on
    commit   `kvorum.sink_commit` as a child: all parts and the job's marker in one transaction
    ended    returns what the child returned

    {do: add, ordinal, table, tasks, part: {…}}   a write; its manifest may come in several pieces,
                                                   it is prepared when it has so many tasks
    {do: alive}                                    its program lives
    {do: commit}                                   refused while a write is not whole

Whoever submits under the application and version of a job that goes on gets that one: a program
that is run again finds which of its writes are prepared (the attempt's name has the ordinal) and
does the others. Of two attempts at one write the first that arrives stays. A version at or below
the application's marker is done already.

Prepared work never goes by itself: it waits for its program, or for an operator, who aborts the
procedure (its undo lets go of all attempts) or sends `commit`. Only a job that nobody could take up
again (`once`: its application is a random name) ends when its program has said nothing for
SINK_JOB_SILENT_MS; the program says {do: alive} several times in that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Lock, Outcome, State, children, done, fail, shared
from procedures.engine.registry import procedure, step, undo
from procedures.sink.format.sink_parts import JOB_SIGNAL, SPARK_JOB, checked_part
from procedures.sink.format.sink_records import (
    About,
    Attempt,
    AttemptState,
    Marker,
    attempt_key,
    checked_int,
    checked_text,
    marker_key,
)
from procedures.sink.sink_commit import SINK_COMMIT
from procedures.sink.sink_ports import attempt_by, getter, marker_by

if TYPE_CHECKING:
    from procedures.engine.context import StepContext


def _locks(args: Any) -> list[Lock]:
    """Nobody waits for it: it says in every list of procedures whose job this is."""
    return [shared(f"spark-job/{args['app']}@{args['version']}")]


@procedure(SPARK_JOB, locks=_locks)
class SparkJob:
    """args: {app, version, name, once?}; state: `parts` by ordinal."""

    @step(first=True, undo="release")
    async def gather(self, ctx: StepContext) -> Outcome:
        args = ctx.args
        app = checked_text(args.get("app"), "app")
        version = checked_int(args.get("version"), "version", 0, 2**62)
        marker, _ = await marker_by(getter(ctx), marker_key(app, 0))
        if marker is not None and marker.version >= version:
            return done({"outcome": "already_committed", "version": version})
        parts: Plain = ctx.state.setdefault("parts", {})
        silent = ctx.wake == "timeout"
        try:
            while (signal := await ctx.receive(JOB_SIGNAL)) is not None:
                silent = False
                match signal.payload:
                    case {"do": "alive"}:
                        continue
                    case {"do": "commit"}:
                        return _committing(ctx, app, version, parts)
                    case {"do": "add", "ordinal": int(ordinal), "table": str(name), "part": piece}:
                        tasks = signal.payload.get("tasks", 0)
                        await _prepare(ctx, parts, ordinal, name, piece, tasks)
                    case other:
                        raise InvalidArgument(
                            f"a job takes add, alive and commit, not {other!r:.80}"
                        )
        except InvalidArgument as e:
            return fail(e.code, e.message)
        if silent:
            return fail(
                "SINK_JOB_SILENT",
                f"its program has said nothing for {limits.SINK_JOB_SILENT_MS // 1000} s, and"
                " without an app_id nobody else could take the job up: run it again",
            )
        rows = sum(entry[3] for one in parts.values() for entry in one["part"]["manifest"])
        names = ", ".join(one["table"] for _, one in sorted(parts.items()))
        ctx.progress(0.5 if parts else 0.0, f"{rows} rows prepared: {names}" if parts else "")
        patience_ms = limits.SINK_JOB_SILENT_MS if args.get("once") else 0
        return ctx.until_signal(JOB_SIGNAL, then="gather", timeout_ms=patience_ms)

    @step(point_of_no_return=True)
    async def ended(self, ctx: StepContext) -> Outcome:
        if not ctx.children:  # nothing was written
            return done({"outcome": "committed", "rows": 0})
        child = ctx.children[0]
        if child.state != State.SUCCESS.name:
            return fail(
                "SINK_UNKNOWN",
                f"whether the job was committed is not known: its commit, procedure {child.id}, was"
                f" ended by force ({child.state}). Run the job again; with an app_id a version that"
                " was committed is skipped",
            )
        return done(child.result)

    @undo
    async def release(self, ctx: StepContext) -> None:
        for one in ctx.state.get("parts", {}).values():
            await _abort_attempt(ctx, one["part"]["attempt"])


async def _prepare(
    ctx: StepContext, parts: Plain, ordinal: int, name: str, piece: object, tasks: object
) -> None:
    """One write, or a further piece of its manifest. Raises InvalidArgument."""
    part = checked_part(piece)
    slot = f"{ordinal:06d}"
    known = parts.get(slot)
    if known is not None and known["part"]["attempt"] != part["attempt"]:
        if _whole(known):  # the program was run again while this was on
            await _abort_attempt(ctx, part["attempt"])
            return
        await _abort_attempt(
            ctx, known["part"]["attempt"]
        )  # its program died while it reported this one
        known = None
    if known is None:
        if slot not in parts and len(parts) >= limits.SINK_PARTS_MAX:
            raise InvalidArgument(f"a job has at most {limits.SINK_PARTS_MAX} writes")
        most = limits.SINK_TASKS_MAX
        one = {"table": name, "part": part, "tasks": checked_int(tasks, "tasks", 0, most)}
    else:
        there = {entry[1] for entry in known["part"]["manifest"]}
        more = [entry for entry in part["manifest"] if entry[1] not in there]
        if not more:
            return  # repeated
        known["part"]["manifest"] += more
        one = known
    attempt, _ = await attempt_by(getter(ctx), part["attempt"])
    mine = attempt is not None and attempt.procedure == ctx.id
    if (
        part["manifest"]
        and not mine
        and (attempt is None or attempt.state is not AttemptState.OPEN)
    ):
        state = "gone: its lease ended" if attempt is None else attempt.state.name
        raise InvalidArgument(
            f"attempt {part['attempt']} for {name} is {state}; run the job again",
            code="SINK_ATTEMPT_GONE",
        )
    if _whole(one):
        about = attempt.about if attempt is not None else About()
        row = Attempt(AttemptState.PREPARED, part["table"], ctx.now_ms, ctx.id, about)
    else:
        row = Attempt.leased(AttemptState.OPEN, part["table"], ctx.now_ms, before=attempt)
    row = row.of_batch(ctx.args["app"], ctx.args["version"])
    ctx.txn.put(attempt_key(part["attempt"]), row.pack())
    parts[slot] = one


def _whole(one: Plain) -> bool:
    """Whether all pieces of a write's manifest are there."""
    return len(one["part"]["manifest"]) >= int(one.get("tasks", 0))


def _committing(ctx: StepContext, app: str, version: int, parts: Plain) -> Outcome:
    for one in parts.values():
        if not _whole(one):
            raise InvalidArgument(
                f"the write to {one['table']} is not whole: its program died while it reported"
                " it, or reports it still; run the job again",
                code="SINK_NOT_WHOLE",
            )
    written = [one["part"] for _, one in sorted(parts.items())]
    if not written:
        ctx.txn.put(marker_key(app, 0), Marker(version, "").pack())
        return done({"outcome": "committed", "rows": 0})
    args = dict(written[0]) | {"app": app, "version": version, "query": "", "job": True}
    if written[1:]:
        args["more"] = written[1:]
    return children([(SINK_COMMIT, args)], then="ended")


async def _abort_attempt(ctx: StepContext, name: str) -> None:
    """Its staging goes with a lease, unless it is being committed or is gone."""
    attempt, _ = await attempt_by(getter(ctx), name)
    if attempt is not None and attempt.state in (AttemptState.OPEN, AttemptState.PREPARED):
        row = Attempt.leased(AttemptState.ABORTED, attempt.table, ctx.now_ms, before=attempt)
        ctx.txn.put(attempt_key(name), row.pack())
