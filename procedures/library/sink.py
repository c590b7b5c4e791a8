"""`kvorum.sink_commit`: one batch of a Spark sink becomes visible, once.

    verify   the marker: a version at or below the last one is done already; another query under the
             same name is refused (a fresh checkpoint that starts at batch 0 would otherwise be
             skipped silently). The manifest: each task sealed with the same counts. A batch of at
             most SINK_SMALL_ROWS ends here: its rows, the marker and the removal of everything
             staged are the step's own transaction.
    write    a larger batch: intents for the manifest's rows, chunk by chunk, under a transaction id
             kept in the state
    flip     (end of write) one status flip commits the rows together with the marker, which is the
             anchor
    clean    intents resolved and everything staged removed, losers of retries and speculation
             included

Every step may run twice: `verify` is one transaction; `write` first asks for the outcome of its
transaction id; `clean` removes. Protocol after Flink's TwoPhaseCommitSinkFunction; why staging and
not direct intents: speculative copies write the same keys and would conflict. Deliberately missing:
overwriting modes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kv.base import limits
from kv.base.errors import Refused, TxnAborted
from kv.base.keys import table_prefix
from kv.base.methods import COMMITTED
from kv.base.ops import Op, delete, put
from procedures.engine.procedure import Outcome, again, done, fail
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step
from procedures.library.sink_records import (
    Attempt,
    AttemptState,
    Marker,
    Sealed,
    add_crc,
    attempt_key,
    chunk_key,
    chunks_range,
    marker_key,
    task_key,
    unpack_chunk,
)

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.bulk import BulkTransactions

SINK_COMMIT = "kvorum.sink_commit"


class SinkRefused(Exception):
    """The batch must not be committed: `code` and the reason become the procedure's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def already_committed(marker: Marker | None, *, app: str, version: int, query: str) -> bool:
    """Whether the batch is at or below the marker. Raises Refused if the marker belongs to another
    query.
    """
    if marker is None:
        return False
    if marker.query != query:
        raise Refused(
            f"application {app!r} was written by query {marker.query!r} up to batch"
            f" {marker.version}; this is query {query!r}: a new checkpoint needs a new appId, or"
            " its first batches would be taken for replays",
            code="SINK_OTHER_QUERY",
            details={"app": app, "last_version": marker.version, "query": marker.query},
        )
    return version <= marker.version


@procedure(SINK_COMMIT)
class SinkCommit:
    """args: {attempt, table, app, version, query, manifest}, as SINK_COMMIT of kv.base.methods."""

    def __init__(self, bulk: BulkTransactions) -> None:
        """`bulk`: what writes large batches (`Registry.add(SinkCommit, make=…)`)."""
        self._bulk = bulk

    @step(first=True)
    async def verify(self, ctx: StepContext) -> Outcome:
        try:
            return await _verify(ctx)
        except (SinkRefused, Refused) as e:
            return fail(e.code, e.message)

    @step
    async def write(self, ctx: StepContext) -> Outcome:
        try:
            return await _write(ctx, self._bulk)
        except SinkRefused as e:
            return fail(e.code, e.message)

    @step
    async def clean(self, ctx: StepContext) -> Outcome:
        return await _clean(ctx, self._bulk)


async def _verify(ctx: StepContext) -> Outcome:
    args = ctx.args
    if args["app"]:
        found = await ctx.txn.get(marker_key(args["app"], args["table"]))
        marker = Marker.unpack(found[0]) if found else None
        if already_committed(marker, app=args["app"], version=args["version"], query=args["query"]):
            await _drop_staging(ctx, args["attempt"])
            return done({"outcome": "already_committed", "version": args["version"]})
    if args["manifest"]:
        await _check_attempt(ctx)
        await _check_manifest(ctx)
    rows = sum(entry[3] for entry in args["manifest"])
    if rows > limits.SINK_SMALL_ROWS:
        ctx.txn.put(
            attempt_key(args["attempt"]),
            Attempt(AttemptState.COMMITTING, args["table"], 2**62, ctx.id).pack(),
        )
        return next_step("write")
    for chunk in await _chunks(ctx):
        for op in _ops(ctx, chunk):
            if op.value is None:
                ctx.txn.delete(op.key)
            else:
                ctx.txn.put(op.key, op.value)
    _put_marker(ctx)
    await _drop_staging(ctx, args["attempt"])
    return done({"outcome": "committed", "rows": rows})


async def _check_attempt(ctx: StepContext) -> None:
    name = ctx.args["attempt"]
    found = await ctx.txn.get(attempt_key(name))
    if found is None:
        raise SinkRefused(
            "SINK_ATTEMPT_GONE", f"attempt {name} is unknown: its lease ended; run the batch again"
        )
    attempt = Attempt.unpack(found[0])
    if attempt.table != ctx.args["table"]:
        raise SinkRefused("SINK_OTHER_TABLE", f"attempt {name} staged for table {attempt.table}")
    if attempt.state is AttemptState.ABORTED:
        raise SinkRefused("SINK_ABORTED", f"attempt {name} was aborted")
    if attempt.state is AttemptState.COMMITTING and attempt.procedure != ctx.id:
        raise SinkRefused(
            "SINK_COMMITTING", f"attempt {name} is being committed by {attempt.procedure}"
        )


async def _check_manifest(ctx: StepContext) -> None:
    attempt, manifest = ctx.args["attempt"], ctx.args["manifest"]
    sealed = await ctx.txn.multi_get([task_key(attempt, entry[1]) for entry in manifest])
    for (part, task, chunks, rows, crc), found in zip(manifest, sealed, strict=True):
        if found is None or Sealed.unpack(found[0]) != Sealed(part, chunks, rows, crc):
            raise SinkRefused(
                "SINK_MANIFEST",
                f"task {task} of partition {part} is not sealed as the manifest says: {rows} rows"
                f" in {chunks} chunks expected, {found and Sealed.unpack(found[0])} found",
            )


async def _chunks(ctx: StepContext) -> list[bytes]:
    """The chunks of a small batch, in the manifest's order; checksums verified."""
    chunks = []
    for _, task, count, _, crc in sorted(ctx.args["manifest"]):
        keys = [chunk_key(ctx.args["attempt"], task, seq) for seq in range(count)]
        running = 0
        for seq, found in enumerate(await ctx.txn.multi_get(keys)):
            if found is None:
                raise SinkRefused("SINK_MANIFEST", f"chunk {seq} of task {task} is missing")
            running = add_crc(running, seq, found[0])
            chunks.append(found[0])
        _intact(task, running, crc)
    return chunks


def _intact(task: str, running: int, crc: int) -> None:
    if running != crc:
        raise SinkRefused("SINK_CORRUPT", f"checksum of task {task} is {running}, not {crc}")


def _ops(ctx: StepContext, chunk: bytes) -> list[Op]:
    prefix = table_prefix(ctx.args["table"])
    keys, values = unpack_chunk(chunk, "staged chunk")
    return [
        delete(prefix + key) if value is None else put(prefix + key, value)
        for key, value in zip(keys, values, strict=True)
    ]


def _marker(ctx: StepContext) -> Op | None:
    args = ctx.args
    if not args["app"]:
        return None
    return put(
        marker_key(args["app"], args["table"]), Marker(args["version"], args["query"]).pack()
    )


def _put_marker(ctx: StepContext) -> None:
    marker = _marker(ctx)
    if marker is not None and marker.value is not None:
        ctx.txn.put(marker.key, marker.value)


async def _drop_staging(ctx: StepContext, attempt: str) -> bool:
    """Delete what the attempt staged, a bounded number of rows; True when nothing is left."""
    own = attempt_key(attempt)
    for start, end in (chunks_range(attempt), (own, own + b"\xff")):
        rows = 0
        while True:
            page = await ctx.txn.scan(start, end, limit=limits.SINK_DROP_ROWS_MAX)
            for item in page.items:
                ctx.txn.delete(item[0])
            rows += len(page.items)
            if page.resume is None:
                break
            if rows >= limits.SINK_DROP_ROWS_MAX:
                return False
            start = page.resume
    return True


async def _write(ctx: StepContext, bulk: BulkTransactions) -> Outcome:
    """Intents of every row, then the flip. The transaction id is kept before it is used."""
    start_ts = ctx.state.get("txn")
    anchor = (_marker(ctx) or _first_row_marker(ctx)).key
    if start_ts is not None:
        status, commit_ts = await bulk.status(anchor, start_ts)
        if status == COMMITTED:
            ctx.state["commit_ts"] = commit_ts
            return next_step("clean")
    if start_ts is None or ctx.state.get("spent"):
        ctx.state.update(txn=await bulk.fresh_ts(), spent=False)
        return next_step("write")
    transaction = bulk.begin(start_ts, anchor)
    try:
        await transaction.prewrite([_marker(ctx) or _first_row_marker(ctx)])
        async for ops in _bulk_chunks(ctx, bulk):
            await transaction.prewrite(ops)
        ctx.state["commit_ts"] = await transaction.commit()
    except TxnAborted:
        ctx.state["spent"] = (
            True  # somebody met our intents after a crash and rolled them back: a new id
        )
        return again(delay_ms=10)
    finally:
        await transaction.close()
    return next_step("clean")


def _first_row_marker(ctx: StepContext) -> Op:
    """Without an application name the attempt's own row is the anchor."""
    args = ctx.args
    return put(
        attempt_key(args["attempt"]),
        Attempt(AttemptState.COMMITTING, args["table"], 2**62, ctx.id).pack(),
    )


async def _bulk_chunks(ctx: StepContext, bulk: BulkTransactions) -> AsyncIterator[list[Op]]:
    """The batch's rows, one chunk at a time: a large batch is never in memory as a whole.

    Last chunk first, since of two intents on one key the first stays: so the last row of a key
    wins, as in a small batch.
    """
    for _, task, count, _, crc in sorted(ctx.args["manifest"], reverse=True):
        running = 0
        for seq in reversed(range(count)):
            chunk = await bulk.read(chunk_key(ctx.args["attempt"], task, seq))
            if chunk is None:
                raise SinkRefused("SINK_MANIFEST", f"chunk {seq} of task {task} is missing")
            running = add_crc(running, seq, chunk)
            yield _ops(ctx, chunk)
        _intact(task, running, crc)


async def _clean(ctx: StepContext, bulk: BulkTransactions) -> Outcome:
    """Resolve all intents, then remove the staging, some rows per transaction."""
    start_ts, commit_ts = ctx.state["txn"], ctx.state["commit_ts"]
    if not ctx.state.get("resolved"):
        anchor = _marker(ctx) or _first_row_marker(ctx)
        await bulk.resolve([anchor.key], start_ts, commit_ts)
        async for ops in _bulk_chunks(ctx, bulk):
            await bulk.resolve([op.key for op in ops], start_ts, commit_ts)
        ctx.state["resolved"] = True
        return again(delay_ms=0)
    if not await _drop_staging(ctx, ctx.args["attempt"]):
        return again(delay_ms=0)
    return done(
        {
            "outcome": "committed",
            "rows": sum(entry[3] for entry in ctx.args["manifest"]),
            "commit_version": str(commit_ts),
        }
    )
