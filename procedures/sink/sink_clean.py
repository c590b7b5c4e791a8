"""`kvorum.sink_clean`: turns the intents of a committed batch into versions and removes everything
staged, losers of retries and speculation included. Nobody waits for it: whoever reads meanwhile
sees the whole batch, because the intents say that it is committed.

Each step may run twice: it removes what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kv.base import limits
from kv.base.keys import successor
from kv.base.ops import delete
from procedures.engine.procedure import Outcome, done
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step
from procedures.engine.submission import Submission
from procedures.sink import placed_rows
from procedures.sink.format.sink_parts import REFUSE, Part, marker_of, parts_of
from procedures.sink.format.sink_records import (
    attempt_key,
    bulk_key,
    chunk_key,
    chunks_range,
    task_key,
)
from procedures.sink.sink_ports import SinkRefused, Submit, Transactions, pages
from procedures.sink.staged_rows import moderate, rows_of

if TYPE_CHECKING:
    from procedures.engine.context import StepContext

SINK_CLEAN: Final = "kvorum.sink_clean"


async def hand_to_clean(ctx: StepContext, part: Part, commit_ts: int, submit: Submit) -> None:
    """What the commit of a part leaves is cleaned from now on. `commit_ts` 0: there are no
    intents.
    """
    args: dict[str, object] = {
        "attempt": part.attempt,
        "table": part.table,
        "manifest": part.manifest,
        "keys": system_keys(ctx, part),
        "txn": ctx.state["txn"] if commit_ts else 0,
        "commit_ts": commit_ts,
    }
    if part.inline:
        args["inline"] = part.inline
    if part.placed:
        args["placed"] = True
    # Of two rows with one key the second's chunk begins elsewhere than its message.
    if commit_ts and part.twice == REFUSE and "laid" in ctx.state:
        args["laid"] = ctx.state["laid"]
    which = "" if part.attempt == ctx.args["attempt"] else f"/{part.attempt}"
    await submit(
        Submission(SINK_CLEAN, args, ctx.owner, f"clean/{ctx.id}{which}", first_counts=True)
    )


def system_keys(ctx: StepContext, part: Part) -> list[bytes]:
    """The anchor, the table's record, and the marker if there is one."""
    guards = [key for key, _ in ctx.state.get("guards", ())]
    marker = [marker_of(ctx.args)] if ctx.args["app"] else []
    return [bulk_key(part.table), *guards, *marker]


def drop_staged(ctx: StepContext, part: Part, *, opened: bool = True) -> None:
    """Remove the attempt and what the manifest names, in the step's transaction. Losers' rows are
    orphans now: `SinkService.reap` finds them.
    """
    if opened:
        ctx.txn.delete(attempt_key(part.attempt))
    for _, task, count, _, _ in part.staged:
        ctx.txn.delete(task_key(part.attempt, task))
        for seq in range(count):
            ctx.txn.delete(chunk_key(part.attempt, task, seq))


async def drop_range(txn: Transactions, start: bytes, end: bytes) -> None:
    """Delete every row of `[start, end)`, a page (SCAN_PAGE_BYTES_MAX) per transaction."""
    async for rows in pages(txn, start, end, limits.SINK_DROP_ROWS_MAX):
        if rows:
            await txn.write([delete(row[0]) for row in rows])


async def drop_tasks(txn: Transactions, attempt: str) -> None:
    """Delete what is known of the attempt's tasks."""
    own = attempt_key(attempt)
    await drop_range(txn, own + b"\x00", successor(own))


@procedure(SINK_CLEAN, retention_ms=limits.SINK_CLEAN_RETENTION_MS)
class SinkClean:
    """args: {attempt, table, manifest, keys, txn, commit_ts, laid?, inline?}: `keys` are the anchor
    and the marker, `txn` is the transaction; 0: it left nothing to resolve. `laid`: what its
    messages laid, if that is known and short.
    """

    def __init__(self, txn: Transactions) -> None:
        self._txn = txn

    @step(first=True)
    async def resolve(self, ctx: StepContext) -> Outcome:
        (part,) = parts_of(ctx.args)
        if ctx.args["txn"]:
            await self._end_intents(ctx, part)
        if part.placed:
            await placed_rows.finish(self._txn, part.attempt, part.table)
        if not moderate(part):
            return next_step("remove")
        drop_staged(ctx, part)
        return done(ctx.state or None)

    async def _end_intents(self, ctx: StepContext, part: Part) -> None:
        args, bulk = ctx.args, self._txn.bulk
        await bulk.resolve(args["keys"], args["txn"], args["commit_ts"])
        laid = args.get("laid")
        if laid and not await bulk.resolve_laid(laid, args["txn"], args["commit_ts"]):
            return
        try:
            async for keys, values in rows_of(part, bulk.read):
                await bulk.resolve_rows(keys, values, args["txn"], args["commit_ts"])
        except SinkRefused as e:  # damaged since it was written: intents go when they are met
            ctx.state["damaged"] = e.message

    @step
    async def remove(self, ctx: StepContext) -> Outcome:
        (part,) = parts_of(ctx.args)
        await self._drop_chunks(part)
        # The attempt's own row goes last (it is the first of its range): until then it refuses.
        await drop_tasks(self._txn, part.attempt)
        await self._txn.write([delete(attempt_key(part.attempt))])
        return done(ctx.state or None)

    async def _drop_chunks(self, part: Part) -> None:
        """The winners' by name, then those of losers: to find a chunk by a scan is to read it."""
        named = [
            chunk_key(part.attempt, task, seq)
            for _, task, count, _, _ in part.staged
            for seq in range(count)
        ]
        for at in range(0, len(named), limits.SINK_STEP_CHUNKS):
            await self._txn.write([delete(k) for k in named[at : at + limits.SINK_STEP_CHUNKS]])
        await drop_range(self._txn, *chunks_range(part.attempt))
