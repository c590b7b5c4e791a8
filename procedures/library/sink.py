"""`kvorum.sink_commit`: one batch of a Spark sink becomes visible, once.

    verify   the marker: a version at or below the last one is done already; another query under
             the same name is refused (a fresh checkpoint that starts at batch 0 would otherwise be
             skipped silently). The manifest: each task sealed with the same counts. A batch of at
             most SINK_SMALL_ROWS rows and SINK_SMALL_BYTES ends here: its rows, the marker and the
             removal of what it staged are the step's own transaction.
    write    a larger batch: intents for the marker and the manifest's rows, chunk by chunk, under a
             transaction id that is kept in the state before it is used
    flip     one status flip at the anchor commits the rows together with the marker; then the
             cleaning is handed to `kvorum.sink_clean`, so that nobody waits for it. Up to
             SINK_STEP_ROWS it is done at the end of `write`

`kvorum.sink_clean` turns the intents into versions and removes everything staged, losers of
retries and speculation included. Whoever reads meanwhile sees the whole batch: the intents say that
it is committed.

The anchor of a large batch is a row of the *table*, so large batches for one table come one after
the other and cannot wait for each other in a circle. The marker is written under the condition that
it is still what `verify` read: of two commits of one version the second starts over and finds the
first.

Every step may run twice: `verify` is one transaction; `write` lays intents that are there already;
`flip` asks the record; cleaning removes what is left. A batch that fails or is aborted rolls its
transaction back and lets go of its attempt (`release`); was the flip faster, it cleans instead.

Protocol after Flink's TwoPhaseCommitSinkFunction; why staging and not direct intents: speculative
copies write the same keys and would conflict. Deliberately missing: overwriting modes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from kv.base import limits
from kv.base.errors import ConditionFailed, Refused, Rejected, TxnAborted
from kv.base.keys import successor, table_prefix
from kv.base.methods import COMMITTED
from kv.base.ops import Op, delete, put
from procedures.engine.procedure import Outcome, again, done, fail
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step, undo
from procedures.engine.submission import Submission
from procedures.library.sink_records import (
    Attempt,
    AttemptState,
    Marker,
    Sealed,
    add_crc,
    attempt_key,
    bulk_key,
    chunk_key,
    chunks_range,
    marker_key,
    task_key,
    unpack_chunk,
)

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.bulk import BulkTransactions

SINK_COMMIT: Final = "kvorum.sink_commit"
SINK_CLEAN: Final = "kvorum.sink_clean"
_FOREVER_MS: Final = 1 << 62
_CHUNKS_PER_READ: Final = 3  # of at most SINK_CHUNK_BYTES_MAX each, so that a reply holds them

Submit = Callable[[Submission], Awaitable[int]]


class Page(Protocol):
    """A page of a scan: (key, value, version) items and where to go on."""

    @property
    def items(self) -> Sequence[Any]: ...
    @property
    def resume(self) -> bytes | None: ...


class Transactions(Protocol):
    """What the sink needs of txn.TxnClient."""

    @property
    def bulk(self) -> BulkTransactions: ...
    async def get(self, key: bytes, at: int = 0) -> tuple[bytes | None, int]: ...
    async def write(self, ops: Sequence[Op]) -> int: ...
    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page: ...


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


async def drop_range(txn: Transactions, start: bytes, end: bytes) -> None:
    """Delete every row of `[start, end)`, a page (SCAN_PAGE_BYTES_MAX) per transaction."""
    resume: bytes | None = start
    while resume is not None:
        page = await txn.scan(resume, end, limit=limits.SINK_DROP_ROWS_MAX)
        if page.items:
            await txn.write([delete(item[0]) for item in page.items])
        resume = page.resume


@procedure(SINK_COMMIT)
class SinkCommit:
    """args: {attempt, table, app, version, query, manifest}, as SINK_COMMIT of kv.base.methods."""

    def __init__(self, txn: Transactions, submit: Submit) -> None:
        """`submit`: Executor.submit (`Registry.add(SinkCommit, make=…)`)."""
        self._txn, self._submit = txn, submit

    @step(first=True, undo="release")
    async def verify(self, ctx: StepContext) -> Outcome:
        try:
            return await _verify(ctx, self._txn.bulk)
        except (SinkRefused, Refused) as e:
            return fail(e.code, e.message)

    @step
    async def write(self, ctx: StepContext) -> Outcome:
        try:
            return await _write(ctx, self._txn.bulk, self._submit)
        except SinkRefused as e:
            return fail(e.code, e.message)

    @step
    async def flip(self, ctx: StepContext) -> Outcome:
        return await _flip(ctx, self._txn.bulk, self._submit)

    @undo
    async def release(self, ctx: StepContext) -> None:
        await _release(ctx, self._txn.bulk, self._submit)


@procedure(SINK_CLEAN)
class SinkClean:
    """args: {attempt, table, manifest, keys, txn, commit_ts}: `keys` are the anchor and the marker,
    `txn` is the transaction.
    """

    def __init__(self, txn: Transactions) -> None:
        self._txn = txn

    @step(first=True)
    async def resolve(self, ctx: StepContext) -> Outcome:
        args, bulk = ctx.args, self._txn.bulk
        await bulk.resolve(args["keys"], args["txn"], args["commit_ts"])
        try:
            async for keys, values in _rows(args, bulk):
                await bulk.resolve_rows(keys, values, args["txn"], args["commit_ts"])
        except SinkRefused as e:  # damaged since it was written: its intents go when they are met
            ctx.state["damaged"] = e.message
        if not _moderate(args):
            return next_step("remove")
        _drop_staged(ctx)
        return done(ctx.state or None)

    @step
    async def remove(self, ctx: StepContext) -> Outcome:
        await self._drop_chunks(ctx.args)
        own = attempt_key(ctx.args["attempt"])
        # The attempt's own row goes last (it is the first of its range): until then it refuses.
        await drop_range(self._txn, own + b"\x00", successor(own))
        await self._txn.write([delete(own)])
        return done(ctx.state or None)

    async def _drop_chunks(self, args: Any) -> None:
        """The winners' by name, then those of losers: to find a chunk by a scan is to read it."""
        named = [
            chunk_key(args["attempt"], task, seq)
            for _, task, count, _, _ in args["manifest"]
            for seq in range(count)
        ]
        for at in range(0, len(named), limits.SINK_STEP_CHUNKS):
            await self._txn.write([delete(k) for k in named[at : at + limits.SINK_STEP_CHUNKS]])
        await drop_range(self._txn, *chunks_range(args["attempt"]))


# -- verify


async def _verify(ctx: StepContext, bulk: BulkTransactions) -> Outcome:
    args = ctx.args
    if args["app"]:
        found = await ctx.txn.get(marker_key(args["app"], args["table"]))
        marker = Marker.unpack(found.value) if found else None
        if already_committed(marker, app=args["app"], version=args["version"], query=args["query"]):
            if ctx.state:  # found on the second look, after the attempt was claimed
                _let_go(ctx)
            return done({"outcome": "already_committed", "version": args["version"]})
        ctx.state["marker_version"] = found.version if found else 0
    rows = sum(entry[3] for entry in args["manifest"])
    if args["manifest"]:
        await _check_attempt(ctx)
        await _check_manifest(ctx)
        chunks = await _small_batch(ctx) if rows <= limits.SINK_SMALL_ROWS else None
        if chunks is None:
            ctx.txn.put(attempt_key(args["attempt"]), _committing(ctx))
            ctx.state["txn"] = await bulk.fresh_ts()
            return next_step("write")
        _put_rows(ctx, chunks)
        _drop_staged(ctx)
    if args["app"]:
        ctx.txn.put(marker_key(args["app"], args["table"]), _marker(args))
    return done({"outcome": "committed", "rows": rows})


async def _check_attempt(ctx: StepContext) -> None:
    name = ctx.args["attempt"]
    found = await ctx.txn.get(attempt_key(name))
    if found is None:
        raise SinkRefused(
            "SINK_ATTEMPT_GONE", f"attempt {name} is unknown: its lease ended; run the batch again"
        )
    attempt = Attempt.unpack(found.value)
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
        if found is None or Sealed.unpack(found.value) != Sealed(part, chunks, rows, crc):
            raise SinkRefused(
                "SINK_MANIFEST",
                f"task {task} of partition {part} is not sealed as the manifest says: {rows} rows"
                f" in {chunks} chunks expected, {found and Sealed.unpack(found.value)} found",
            )


async def _small_batch(ctx: StepContext) -> list[bytes] | None:
    """All chunks in the manifest's order, verified; None if they are too many bytes."""
    keys = [
        (task, seq, chunk_key(ctx.args["attempt"], task, seq))
        for _, task, count, _, _ in sorted(ctx.args["manifest"])
        for seq in range(count)
    ]
    running = dict.fromkeys((task for task, _, _ in keys), 0)
    chunks: list[bytes] = []
    size = 0
    for at in range(0, len(keys), _CHUNKS_PER_READ):
        part = keys[at : at + _CHUNKS_PER_READ]
        rows = await ctx.txn.multi_get([key for _, _, key in part])
        for (task, seq, _), found in zip(part, rows, strict=True):
            chunk = _there(found and found.value, task, seq)
            running[task] = add_crc(running[task], seq, chunk)
            chunks.append(chunk)
            size += len(chunk)
        if size > limits.SINK_SMALL_BYTES:
            return None
    for _, task, _, _, crc in ctx.args["manifest"]:
        _intact(task, running[task], crc)
    return chunks


def _there(chunk: bytes | None, task: str, seq: int) -> bytes:
    if chunk is None:
        raise SinkRefused("SINK_MANIFEST", f"chunk {seq} of task {task} is missing")
    return chunk


def _intact(task: str, running: int, crc: int) -> None:
    if running != crc:
        raise SinkRefused(
            "SINK_CORRUPT",
            f"the checksum of what task {task} staged is {running}, not {crc}; run the batch again",
        )


def _put_rows(ctx: StepContext, chunks: list[bytes]) -> None:
    """Of rows with one key the last stays."""
    prefix = table_prefix(ctx.args["table"])
    rows: dict[bytes, bytes | None] = {}
    for chunk in chunks:
        rows.update(zip(*unpack_chunk(chunk, "staged chunk"), strict=True))
    for key, value in rows.items():
        if value is None:
            ctx.txn.delete(prefix + key)
        else:
            ctx.txn.put(prefix + key, value)


def _drop_staged(ctx: StepContext) -> None:
    """Remove the attempt and what the manifest names. Losers' rows are orphans now: `reap` finds
    them.
    """
    attempt = ctx.args["attempt"]
    ctx.txn.delete(attempt_key(attempt))
    for _, task, count, _, _ in ctx.args["manifest"]:
        ctx.txn.delete(task_key(attempt, task))
        for seq in range(count):
            ctx.txn.delete(chunk_key(attempt, task, seq))


def _committing(ctx: StepContext) -> bytes:
    return Attempt(AttemptState.COMMITTING, ctx.args["table"], _FOREVER_MS, ctx.id).pack()


def _marker(args: Any) -> bytes:
    return Marker(args["version"], args["query"]).pack()


# -- write and flip


async def _write(ctx: StepContext, bulk: BulkTransactions, submit: Submit) -> Outcome:
    """Intents for the anchor, the marker and every row. The flip has a step of its own if writing
    is much to do again.
    """
    args, state = ctx.args, ctx.state
    if "txn" not in state:
        state["txn"] = await bulk.fresh_ts()
        return again()  # kept before it is used
    anchor = bulk_key(args["table"])
    transaction = bulk.begin(state["txn"], anchor)
    try:
        ops = [put(anchor, args["attempt"].encode())]
        if args["app"]:
            marker = marker_key(args["app"], args["table"])
            ops.append(put(marker, _marker(args), cond=state["marker_version"]))
        await transaction.prewrite(ops)
        async for keys, values in _rows(args, bulk):
            await transaction.prewrite_rows(keys, values)
    except TxnAborted:
        # Somebody met our intents after a crash and rolled them back, or it was the victim of a
        # deadlock: for good, and with a new id.
        await bulk.roll_back(anchor, state["txn"])
        del state["txn"]
        return again(delay_ms=10)
    except ConditionFailed:
        # Another commit moved the marker. Look again: this version may be done.
        await bulk.roll_back(anchor, state["txn"])
        await bulk.resolve(_system_keys(args), state.pop("txn"), 0)
        return next_step("verify")
    finally:
        await transaction.close()
    state["min_commit_ts"] = transaction.min_commit_ts
    if _moderate(args):
        return await _flip(ctx, bulk, submit)
    return next_step("flip")


async def _flip(ctx: StepContext, bulk: BulkTransactions, submit: Submit) -> Outcome:
    state = ctx.state
    anchor = bulk_key(ctx.args["table"])
    status, commit_ts = await bulk.commit(state["txn"], anchor, state["min_commit_ts"])
    if status != COMMITTED:
        del state["txn"]
        return next_step("write")
    await _hand_to_clean(ctx, commit_ts, submit)
    rows = sum(entry[3] for entry in ctx.args["manifest"])
    return done({"outcome": "committed", "rows": rows, "commit_version": str(commit_ts)})


async def _hand_to_clean(ctx: StepContext, commit_ts: int, submit: Submit) -> None:
    args = {name: ctx.args[name] for name in ("attempt", "table", "manifest")}
    args |= {"keys": _system_keys(ctx.args), "txn": ctx.state["txn"], "commit_ts": commit_ts}
    await submit(Submission(SINK_CLEAN, args, ctx.owner, f"clean/{ctx.id}"))


def _system_keys(args: Any) -> list[bytes]:
    """The anchor, and the marker if there is one."""
    marker = [marker_key(args["app"], args["table"])] if args["app"] else []
    return [bulk_key(args["table"]), *marker]


def _moderate(args: Any) -> bool:
    """Whether a batch is so small that all of it may be in memory, and done again after a crash."""
    rows: int = sum(entry[3] for entry in args["manifest"])
    chunks: int = sum(entry[2] for entry in args["manifest"])
    return rows <= limits.SINK_STEP_ROWS and chunks <= limits.SINK_STEP_CHUNKS


async def _rows(
    args: Any, bulk: BulkTransactions
) -> AsyncIterator[tuple[list[bytes], list[bytes | None]]]:
    """(storage keys that rise, values) of the batch, piece by piece; the same pieces at every call.

    A moderate batch is one piece, so that its tasks share messages. Of rows with one key the last
    stays. Raises SinkRefused for what is missing or damaged.
    """
    if not _moderate(args):
        async for piece in _chunks(args, bulk):
            yield piece
        return
    merged: dict[bytes, bytes | None] = {}
    async for keys, values in _chunks(args, bulk):
        merged = dict(zip(keys, values, strict=True)) | merged
    rising = sorted(merged)
    yield rising, [merged[key] for key in rising]


async def _chunks(
    args: Any, bulk: BulkTransactions
) -> AsyncIterator[tuple[list[bytes], list[bytes | None]]]:
    """(storage keys, values) of the batch, one chunk at a time: it is never in memory as a whole.

    Last chunk first, since of two intents on one key the first stays: so the last row of a key
    wins, as in a small batch. Raises SinkRefused for what is missing or damaged.
    """
    prefix = table_prefix(args["table"])
    for _, task, count, _, crc in sorted(args["manifest"], reverse=True):
        running = 0
        for seq in reversed(range(count)):
            chunk = _there(await bulk.read(chunk_key(args["attempt"], task, seq)), task, seq)
            running = add_crc(running, seq, chunk)
            keys, values = unpack_chunk(chunk, "staged chunk")
            yield [prefix + key for key in keys], values
        _intact(task, running, crc)


# -- the way back


async def _release(ctx: StepContext, bulk: BulkTransactions, submit: Submit) -> None:
    """The batch failed, or somebody aborted it: no intents, and staging that expires."""
    args, start_ts = ctx.args, ctx.state.get("txn")
    if start_ts is not None:
        status, commit_ts = await bulk.roll_back(bulk_key(args["table"]), start_ts)
        if status == COMMITTED:
            await _hand_to_clean(ctx, commit_ts, submit)
            return
        await bulk.resolve(_system_keys(args), start_ts, 0)
        with suppress(SinkRefused, Rejected):  # unreadable: the rest goes when it is met
            async for keys, values in _rows(args, bulk):
                await bulk.resolve_rows(keys, values, start_ts, 0)
    _let_go(ctx)


def _let_go(ctx: StepContext) -> None:
    lease_ms = ctx.now_ms + limits.SINK_LEASE_MS
    row = Attempt(AttemptState.ABORTED, ctx.args["table"], lease_ms)
    ctx.txn.put(attempt_key(ctx.args["attempt"]), row.pack())
