"""`kvorum.sink_commit`: one batch of a Spark sink becomes visible, once.

    verify   the marker: a version at or below the last one is done already; another query under
             the same name is refused (a fresh checkpoint that starts at batch 0 would otherwise be
             skipped silently), unless it says that it replaces that one. The manifest: each task
             sealed with the same counts. A batch of at most SINK_SMALL_ROWS rows and
             SINK_SMALL_BYTES ends here: its rows, the marker and the removal of what it staged are
             the step's own transaction.
    write    a larger batch: intents for the marker and the manifest's rows, chunk by chunk, under a
             transaction id that is kept in the state before it is used
    flip     one status flip at the anchor commits the rows together with the marker; then the
             cleaning is handed to `kvorum.sink_clean`, so that nobody waits for it. Up to
             SINK_STEP_ROWS it is done at the end of `write`
    apply    instead of both, a batch that must read before it writes: of a table with indexes or
             constraints, of several tables, one that replaces what is there (`careful_batch`)

The anchor of a large batch is a row of the *table*, so large batches for one table come one after
the other and cannot wait for each other in a circle. The marker is written under the condition that
it is still what `verify` read: of two commits of one version the second starts over and finds the
first. So is the table's record, looked at again after the rows: whoever gives the table an index
meanwhile makes the batch start over.

Every step may run twice: `verify` is one transaction; `write` lays intents that are there already;
`flip` asks the record; cleaning removes what is left. A batch that fails or is aborted rolls its
transaction back and lets go of its attempt (`release`); was the flip faster, it cleans instead, and
says so in its state (`committed`): whoever asks learns that the batch is there.

`early` batches (at most once) move the marker before their rows and nobody waits for them.

Protocol after Flink's TwoPhaseCommitSinkFunction; why staging and not direct intents: speculative
copies write the same keys and would conflict. Bulk loads do without it where they can
(`placed_rows`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kv.base import limits
from kv.base.errors import Refused
from procedures.engine.procedure import Outcome, again, done, fail
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step, undo
from procedures.sink import careful_batch, placed_rows, staged_rows
from procedures.sink.careful_batch import MarkerMoved, PlainTables
from procedures.sink.format.sink_parts import Part, marker_of, parts_of
from procedures.sink.format.sink_records import (
    About,
    Attempt,
    AttemptState,
    Digest,
    Marker,
    Sealed,
    attempt_key,
    chunk_key,
    task_key,
)
from procedures.sink.large_batch import LargeBatch
from procedures.sink.sink_clean import drop_staged, hand_to_clean
from procedures.sink.sink_ports import (
    SinkRefused,
    Submit,
    Tables,
    Transactions,
    attempt_by,
    getter,
    marker_by,
)

if TYPE_CHECKING:
    from procedures.engine.context import StepContext

SINK_COMMIT: Final = "kvorum.sink_commit"
COMMITTED_STILL: Final = "committed"  # in the state of one that was rolled back: whether it was
_FOREVER_MS: Final = 1 << 62
_CHUNKS_PER_READ: Final = 3  # of at most SINK_CHUNK_BYTES_MAX each, so that a reply holds them
_STAGING: Final = (AttemptState.OPEN, AttemptState.PREPARED)


def already_committed(marker: Marker | None, args: Any) -> bool:
    """Whether the batch of these checked args is at or below the marker. Raises Refused if the
    marker belongs to another query, which this one does not replace (`reset`), or which replaced
    this one; and if another batch was committed under its number.
    """
    if marker is None:
        return False
    app, version, query = args["app"], args["version"], args["query"]
    reset = args.get("reset", False)
    if marker.query == query:
        return version <= marker.version and _same_batch(marker, args)
    details = {"app": app, "last_version": marker.version, "query": marker.query}
    if query in marker.retired:
        raise Refused(
            f"application {app!r} was taken over by query {marker.query!r}: this one, {query!r},"
            " must not write under its name any more; stop it",
            code="SINK_FENCED",
            details=details,
        )
    if reset:
        return False
    raise Refused(
        f"application {app!r} was written by query {marker.query!r} up to batch"
        f" {marker.version}; this is query {query!r}: a new checkpoint needs a new appId, or"
        " its first batches would be taken for replays. If that query is over and this one takes"
        " its place from its own batch 0 on, say option resetTxnApp=true",
        code="SINK_OTHER_QUERY",
        details=details,
    )


def _same_batch(marker: Marker, args: Any) -> bool:
    """Whether what was committed under the batch's number is this batch, as far as is known; False:
    it is not, and takes its place (`reset`). Raises Refused: a checkpoint that is older than the
    table plans other batches under numbers that are taken, and their rows would be lost.
    """
    digest, version = _digest_of(args), args["version"]
    if digest is None or not marker.digests:
        return True
    known = marker.digest(version)
    if known == digest:
        return True
    if args.get("reset"):
        return False
    was = f"had {known[0]} rows" if known else "is too long ago to be compared"
    if known and known[0] == digest[0]:
        was = "had as many with other contents"
    raise Refused(
        f"application {args['app']!r}: batch {version} of this checkpoint ({digest[0]} rows) is not"
        f" the batch {version} that was committed, which {was}; the last one is {marker.version}."
        " The checkpoint is older than the table (restored, or copied), or the query gives other"
        " rows each time (rand(), uuid()). Nothing was written. Go on with the right checkpoint, or"
        " say option resetTxnApp=true: then this query counts from here, and its rows are written"
        " over those with the same keys",
        code="SINK_OTHER_BATCH",
        details={"app": args["app"], "version": version, "last_version": marker.version},
    )


def _digest_of(args: Any) -> Digest | None:
    found = args.get("digest")
    return None if found is None else (found[0], found[1])


@procedure(SINK_COMMIT)
class SinkCommit:
    """args: {attempt, table, app, version, query, manifest}, as SINK_COMMIT of kv.base.methods, and
    what `sink_parts` says; `more`: the parts of other tables.
    """

    def __init__(self, txn: Transactions, submit: Submit, tables: Tables | None = None) -> None:
        """`submit`: Executor.submit (`Registry.add(SinkCommit, make=…)`)."""
        self._txn, self._submit = txn, submit
        self._tables: Tables = tables or PlainTables()

    @step(first=True, undo="release", early=True)
    async def verify(self, ctx: StepContext) -> Outcome:
        try:
            return await _Verify(ctx, self._txn, self._tables).run()
        except Refused as e:
            return fail(e.code, e.message)

    @step
    async def write(self, ctx: StepContext) -> Outcome:
        try:
            return await self._large(ctx).lay()
        except SinkRefused as e:
            return fail(e.code, e.message)

    @step
    async def flip(self, ctx: StepContext) -> Outcome:
        return await self._large(ctx).commit()

    @step
    async def apply(self, ctx: StepContext) -> Outcome:
        for part in parts_of(ctx.args):
            if part.placed:  # first tries laid rows, before the table got what makes it careful
                await placed_rows.give_up_losers(self._txn, part)
        try:
            result = await careful_batch.commit(ctx, self._txn, self._tables)
        except MarkerMoved:
            return next_step("verify")
        except Refused as e:
            return fail(e.code, e.message)
        if result is None:
            return again(delay_ms=min(10 << min(ctx.round, 10), limits.SINK_RETRY_MS_MAX))
        for part in parts_of(ctx.args):
            await hand_to_clean(ctx, part, 0, self._submit)
        return done(result)

    @undo
    async def release(self, ctx: StepContext) -> None:
        """The batch failed, or somebody aborted it: no intents, and staging that expires. Unless it
        was committed just before.
        """
        ctx.state[COMMITTED_STILL] = False
        if "txn" in ctx.state:
            large = self._large(ctx)
            if commit_ts := await large.roll_back():
                ctx.state[COMMITTED_STILL] = True
                await hand_to_clean(ctx, large.part, commit_ts, self._submit)
                return
        for part in parts_of(ctx.args):
            if part.placed:
                await placed_rows.finish(self._txn, part.attempt, part.table)
            attempt, _ = await attempt_by(getter(ctx), part.attempt)
            if attempt is not None and attempt.state is AttemptState.DONE:
                ctx.state[COMMITTED_STILL] = True
                await hand_to_clean(ctx, part, 0, self._submit)
            else:
                _abort_attempt(ctx, part, attempt)

    def _large(self, ctx: StepContext) -> LargeBatch:
        return LargeBatch(ctx, self._txn, self._submit, self._tables)


# -- verify


def _next_marker(args: Any, found: Marker | None) -> bytes:
    version, query = args["version"], args["query"]
    marker = found or Marker(version, query)
    return marker.follow(version, query, _digest_of(args)).pack()


class _Verify:
    """One look at a batch: what is done already, what must not be, and which way it takes."""

    def __init__(self, ctx: StepContext, txn: Transactions, tables: Tables) -> None:
        self.ctx, self.args, self.txn, self.tables = ctx, ctx.args, txn, tables
        self.parts = parts_of(ctx.args)
        self.opened: dict[str, Attempt] = {}  # attempts that are there

    async def run(self) -> Outcome:
        ctx, args = self.ctx, self.args
        if args["app"] and not (args.get("early") and "guards" in ctx.state):
            marker, marker_version = await marker_by(getter(ctx), marker_of(args))
            if already_committed(marker, args):
                placed = [part for part in self.parts if part.placed]
                for part in placed:  # nobody shall wait for its keys until its lease ends
                    await placed_rows.finish(self.txn, part.attempt, part.table)
                if ctx.state or placed:  # found on the second look, after the attempt was claimed
                    for part in self.parts:
                        _abort_attempt(ctx, part)
                return done({"outcome": "already_committed", "version": args["version"]})
            ctx.state["marker_version"] = marker_version
            ctx.state["marker"] = _next_marker(args, marker)
        careful = await self._look()
        if careful:
            return self._claimed("apply")
        (part,) = self.parts
        if part.manifest:
            small = part.rows <= limits.SINK_SMALL_ROWS and not part.placed
            chunks = await self._small(part) if small else None
            if chunks is None:
                ctx.state["txn"] = await self.txn.bulk.fresh_ts()
                return self._claimed("write")
            rows = await staged_rows.merged(part, chunks, self._shown)
            careful_batch.put_some(ctx.txn, part.table, rows.items())
            drop_staged(ctx, part, opened=part.attempt in self.opened)
        if args["app"]:
            ctx.txn.put(marker_of(args), ctx.state["marker"])
        return done({"outcome": "committed", "rows": part.rows})

    def _claimed(self, step: str) -> Outcome:
        """The attempts are this procedure's from now on."""
        for part in self.parts:
            found = self.opened.get(part.attempt)
            about = found.about if found is not None else About()
            row = Attempt(AttemptState.COMMITTING, part.table, _FOREVER_MS, self.ctx.id, about)
            batch = row.of_batch(self.args["app"], self.args["version"])
            self.ctx.txn.put(attempt_key(part.attempt), batch.pack())
        if self.args.get("early") and self.args["app"]:
            self.ctx.txn.put(marker_of(self.args), self.ctx.state["marker"])
        return next_step(step)

    async def _look(self) -> bool:
        """Attempts, manifests and tables are as they should be. True: it must be careful."""
        careful = len(self.parts) > 1
        guards = []
        for part in self.parts:
            laid = False
            if part.manifest:
                found = await _check_attempt(self.ctx, part)
                if found is not None:
                    self.opened[part.attempt] = found
                laid = await _check_manifest(self.ctx, part)
            facts = await self.tables.facts(getter(self.ctx), part.table, part.path)
            careful = careful or not part.plain or (facts is not None and facts.ruled)
            if laid and careful:
                raise SinkRefused(
                    f"table {part.path} has got an index or a constraint since tasks laid rows in"
                    " it: run the batch again",
                    code="SINK_ALTERED",
                )
            if facts is not None and part.manifest:
                facts.check(part)
                self.ctx.txn.check(facts.key, facts.version)
                guards.append([facts.key, facts.version])
        self.ctx.state["guards"] = guards
        return careful

    async def _small(self, part: Part) -> list[bytes] | None:
        """All chunks in the manifest's order, verified; None if they are too many bytes."""
        chunks: list[bytes] = []
        size = 0
        async for _, chunk in staged_rows.stored(part, _reading_ahead(self.ctx, part)):
            chunks.append(chunk)
            size += len(chunk)
            if size > limits.SINK_SMALL_BYTES:
                return None
        return chunks

    async def _shown(self, key: bytes) -> str:
        return await self.tables.shown(getter(self.ctx), self.parts[0].table, key)


def _reading_ahead(ctx: StepContext, part: Part) -> staged_rows.Read:
    """The part's chunks, asked for one after the other, read several at a time."""
    waiting = deque(
        chunk_key(part.attempt, task, seq)
        for _, task, count, _, _ in sorted(part.staged)
        for seq in range(count)
    )
    known: dict[bytes, bytes | None] = {}

    async def read(key: bytes) -> bytes | None:
        if key not in known:
            some = [waiting.popleft() for _ in range(min(len(waiting), _CHUNKS_PER_READ))]
            rows = await ctx.txn.multi_get(some)
            known.update((one, row and row.value) for one, row in zip(some, rows, strict=True))
        return known.pop(key)

    return read


async def _check_attempt(ctx: StepContext, part: Part) -> Attempt | None:
    """None: it is not there, nor need one be that staged nothing. Raises SinkRefused."""
    name = part.attempt
    attempt, _ = await attempt_by(getter(ctx), name)
    if attempt is None and not part.staged:
        ctx.txn.hold(attempt_key(name), 0)  # nothing else here would meet an abort that comes now
        return None
    if attempt is None or attempt.state is AttemptState.EXPIRED:
        raise SinkRefused(
            f"attempt {name} is unknown: its lease ended; run the batch again",
            code="SINK_ATTEMPT_GONE",
        )
    if attempt.state is AttemptState.ABORTED:
        raise SinkRefused(f"attempt {name} was aborted", code="SINK_ABORTED")
    if attempt.table != part.table:
        raise SinkRefused(
            f"attempt {name} staged for table {attempt.table}", code="SINK_OTHER_TABLE"
        )
    mine = (0, ctx.id) if attempt.state in _STAGING else (ctx.id,)
    if attempt.procedure not in (*mine, *((ctx.parent,) if ctx.parent else ())):
        raise SinkRefused(
            f"attempt {name} is being committed by {attempt.procedure}", code="SINK_COMMITTING"
        )
    return attempt


async def _check_manifest(ctx: StepContext, whole: Part) -> bool:
    """Whether some of its tasks laid rows in place. Raises SinkRefused."""
    staged, laid = whole.staged, False
    for at in range(0, len(staged), limits.MULTI_KEYS_MAX):
        manifest = staged[at : at + limits.MULTI_KEYS_MAX]
        sealed = await ctx.txn.multi_get([task_key(whole.attempt, entry[1]) for entry in manifest])
        for (part, task, chunks, rows, crc), found in zip(manifest, sealed, strict=True):
            sealed = Sealed.unpack(found.value) if found else None
            if sealed is None or sealed != Sealed(part, chunks, rows, crc):
                raise SinkRefused(
                    f"task {task} of partition {part} is not sealed as the manifest says: {rows}"
                    f" rows in {chunks} chunks expected,"
                    f" {sealed} found",
                    code="SINK_MANIFEST",
                )
            if sealed.txns and not whole.placed:
                raise SinkRefused(f"task {task} laid rows in place: say so", code="SINK_MANIFEST")
            laid = laid or bool(sealed.txns)
    return laid


def _abort_attempt(ctx: StepContext, part: Part, before: Attempt | None = None) -> None:
    """Its staging goes when the lease ends."""
    row = Attempt.leased(AttemptState.ABORTED, part.table, ctx.now_ms, before=before)
    ctx.txn.put(attempt_key(part.attempt), row.pack())
