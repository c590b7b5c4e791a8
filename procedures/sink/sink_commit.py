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

`kvorum.sink_clean` turns the intents into versions and removes everything staged, losers of
retries and speculation included. Whoever reads meanwhile sees the whole batch: the intents say that
it is committed.

The anchor of a large batch is a row of the *table*, so large batches for one table come one after
the other and cannot wait for each other in a circle. The marker is written under the condition that
it is still what `verify` read: of two commits of one version the second starts over and finds the
first. So is the table's record, looked at again behind the rows: who gives the table an index
meanwhile makes the batch start over.

Every step may run twice: `verify` is one transaction; `write` lays intents that are there already;
`flip` asks the record; cleaning removes what is left. A batch that fails or is aborted rolls its
transaction back and lets go of its attempt (`release`); was the flip faster, it cleans instead, and
says so in its state (`committed`): whoever asks is told that the batch is there.

`early` batches (at most once) move the marker before their rows and nobody waits for them.

Protocol after Flink's TwoPhaseCommitSinkFunction; why staging and not direct intents: speculative
copies write the same keys and would conflict. Bulk loads do without it where they can
(`placed_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kv.base import limits
from kv.base.errors import Refused
from kv.base.keys import successor, table_prefix
from kv.base.methods import COMMITTED
from kv.base.ops import Op, delete
from procedures.engine.procedure import Outcome, again, done, fail
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step, undo
from procedures.sink import placed_rows, staged_rows
from procedures.sink.careful_batch import MarkerMoved, PlainTables, apply
from procedures.sink.format.sink_parts import (
    REFUSE,
    Get,
    Part,
    SinkRefused,
    Tables,
    marker_of,
    parts_of,
)
from procedures.sink.format.sink_records import (
    Attempt,
    AttemptState,
    Digest,
    Marker,
    Sealed,
    add_crc,
    attempt_key,
    bulk_key,
    chunk_key,
    chunks_range,
    task_key,
)
from procedures.sink.large_batch import (
    SINK_CLEAN,
    Submit,
    flip,
    hand_to_clean,
    moderate,
    rows_of,
    take_back,
    write,
)
from procedures.sink.staged_rows import intact, there

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.bulk import BulkTransactions
    from txn.transaction import Transaction

SINK_COMMIT: Final = "kvorum.sink_commit"
COMMITTED_STILL: Final = "committed"  # in the state of one that was rolled back: whether it was
_FOREVER_MS: Final = 1 << 62
_CHUNKS_PER_READ: Final = 3  # of at most SINK_CHUNK_BYTES_MAX each, so that a reply holds them
_STAGING: Final = (AttemptState.OPEN, AttemptState.PREPARED)


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
    async def begin(self, *, ttl_ms: int = ...) -> Transaction: ...


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
        except (SinkRefused, Refused) as e:
            return fail(e.code, e.message)

    @step
    async def write(self, ctx: StepContext) -> Outcome:
        try:
            return await write(ctx, self._txn, self._submit, self._tables)
        except SinkRefused as e:
            return fail(e.code, e.message)

    @step
    async def flip(self, ctx: StepContext) -> Outcome:
        return await flip(ctx, self._txn, self._submit)

    @step
    async def apply(self, ctx: StepContext) -> Outcome:
        for part in parts_of(ctx.args):
            if part.placed:  # first tries laid rows, before the table got what makes it careful
                await placed_rows.give_up_losers(self._txn, part)
        try:
            told = await apply(ctx, self._txn, self._tables)
        except MarkerMoved:
            return next_step("verify")
        except (SinkRefused, Refused) as e:
            return fail(e.code, e.message)
        if told is None:
            return again(delay_ms=min(10 << min(ctx.round, 10), limits.SINK_RETRY_MS_MAX))
        for part in parts_of(ctx.args):
            await hand_to_clean(ctx, part, 0, self._submit)
        return done(told)

    @undo
    async def release(self, ctx: StepContext) -> None:
        await _release(ctx, self._txn, self._submit)


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
            await self._resolve(ctx, part)
        if part.placed:
            await placed_rows.finish(self._txn, part.attempt, part.table)
        if not moderate(part):
            return next_step("remove")
        _drop_staged(ctx, part)
        return done(ctx.state or None)

    async def _resolve(self, ctx: StepContext, part: Part) -> None:
        args, bulk = ctx.args, self._txn.bulk
        await bulk.resolve(args["keys"], args["txn"], args["commit_ts"])
        laid = args.get("laid")
        if laid and not await bulk.resolve_laid(laid, args["txn"], args["commit_ts"]):
            return
        try:
            async for keys, values in rows_of(part, bulk):
                await bulk.resolve_rows(keys, values, args["txn"], args["commit_ts"])
        except SinkRefused as e:  # damaged since it was written: intents go when they are met
            ctx.state["damaged"] = e.message

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
        (part,) = parts_of(args)
        named = [
            chunk_key(part.attempt, task, seq)
            for _, task, count, _, _ in part.staged
            for seq in range(count)
        ]
        for at in range(0, len(named), limits.SINK_STEP_CHUNKS):
            await self._txn.write([delete(k) for k in named[at : at + limits.SINK_STEP_CHUNKS]])
        await drop_range(self._txn, *chunks_range(part.attempt))


# -- verify


def _next_marker(args: Any, found: bytes | None) -> bytes:
    version, query = args["version"], args["query"]
    marker = Marker(version, query) if found is None else Marker.unpack(found)
    return marker.follow(version, query, _digest_of(args)).pack()


class _Verify:
    """One look at a batch: what is done already, what must not be, and which way it takes."""

    def __init__(self, ctx: StepContext, txn: Transactions, tables: Tables) -> None:
        self.ctx, self.args, self.txn, self.tables = ctx, ctx.args, txn, tables
        self.parts = parts_of(ctx.args)
        self.opened: set[str] = set()  # attempts that are there

    async def run(self) -> Outcome:
        ctx, args = self.ctx, self.args
        if args["app"] and not (args.get("early") and "guards" in ctx.state):
            found = await ctx.txn.get(marker_of(args))
            marker = Marker.unpack(found.value) if found else None
            if already_committed(marker, args):
                placed = [part for part in self.parts if part.placed]
                for part in placed:  # nobody shall wait for its keys until its lease ends
                    await placed_rows.finish(self.txn, part.attempt, part.table)
                if ctx.state or placed:  # found on the second look, after the attempt was claimed
                    _let_go(ctx)
                return done({"outcome": "already_committed", "version": args["version"]})
            ctx.state["marker_version"] = found.version if found else 0
            ctx.state["marker"] = _next_marker(args, found.value if found else None)
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
            await self._put_rows(part, chunks)
            _drop_staged(ctx, part, opened=part.attempt in self.opened)
        if args["app"]:
            ctx.txn.put(marker_of(args), ctx.state["marker"])
        return done({"outcome": "committed", "rows": part.rows})

    def _claimed(self, step: str) -> Outcome:
        """The attempts are this procedure's from now on."""
        for part in self.parts:
            row = Attempt(AttemptState.COMMITTING, part.table, _FOREVER_MS, self.ctx.id)
            self.ctx.txn.put(attempt_key(part.attempt), row.pack())
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
                if await _check_attempt(self.ctx, part):
                    self.opened.add(part.attempt)
                laid = await _check_manifest(self.ctx, part)
            facts = await self.tables.facts(getter(self.ctx), part.table, part.path)
            careful = careful or not part.plain or (facts is not None and facts.ruled)
            if laid and careful:
                raise SinkRefused(
                    "SINK_ALTERED",
                    f"table {part.path} has got an index or a constraint since tasks laid rows in"
                    " it: run the batch again",
                )
            if facts is not None and part.manifest:
                facts.check(part)
                self.ctx.txn.check(facts.key, facts.version)
                guards.append([facts.key, facts.version])
        self.ctx.state["guards"] = guards
        return careful

    async def _small(self, part: Part) -> list[bytes] | None:
        """All chunks in the manifest's order, verified; None if they are too many bytes."""
        keys = [
            (task, seq, chunk_key(part.attempt, task, seq))
            for _, task, count, _, _ in sorted(part.manifest)
            for seq in range(count)
        ]
        running = dict.fromkeys((task for task, _, _ in keys), 0)
        chunks: list[bytes] = []
        size = 0
        for at in range(0, len(keys), _CHUNKS_PER_READ):
            named = keys[at : at + _CHUNKS_PER_READ]
            asked = [key for task, _, key in named if task not in part.inline]
            rows = iter(await self.ctx.txn.multi_get(asked) if asked else ())
            for task, seq, _ in named:
                chunk = part.inline.get(task)
                if chunk is None:
                    found = next(rows)
                    chunk = there(found and found.value, task, seq)
                running[task] = add_crc(running[task], seq, chunk)
                chunks.append(chunk)
                size += len(chunk)
            if size > limits.SINK_SMALL_BYTES:
                return None
        for _, task, _, _, crc in part.manifest:
            intact(task, running[task], crc)
        return chunks

    async def _put_rows(self, part: Part, chunks: list[bytes]) -> None:
        """Of rows with one key the last stays, if there may be several."""
        prefix = table_prefix(part.table)
        rows: dict[bytes, bytes | None] = {}
        for chunk in chunks:
            keys, values = staged_rows.unpacked(chunk)
            if part.twice == REFUSE:
                for key in keys:
                    if key in rows:
                        get = getter(self.ctx)
                        shown = await self.tables.shown(get, part.table, key)
                        raise staged_rows.duplicate(shown)
            rows.update(zip(keys, values, strict=True))
        for key, value in rows.items():
            if value is None:
                self.ctx.txn.delete(prefix + key)
            else:
                self.ctx.txn.put(prefix + key, value)


def getter(ctx: StepContext) -> Get:
    """The step's snapshot, as a function."""

    async def get(key: bytes) -> tuple[bytes | None, int]:
        row = await ctx.txn.get(key)
        return (None, 0) if row is None else (row.value, row.version)

    return get


async def _check_attempt(ctx: StepContext, part: Part) -> bool:
    """Whether it is there: one that staged nothing need not be. Raises SinkRefused."""
    name = part.attempt
    found = await ctx.txn.get(attempt_key(name))
    attempt = Attempt.unpack(found.value) if found else None
    if attempt is None and not part.staged:
        ctx.txn.hold(attempt_key(name), 0)  # nothing else here would meet an abort that comes now
        return False
    if attempt is None or attempt.state is AttemptState.EXPIRED:
        raise SinkRefused(
            "SINK_ATTEMPT_GONE", f"attempt {name} is unknown: its lease ended; run the batch again"
        )
    if attempt.state is AttemptState.ABORTED:
        raise SinkRefused("SINK_ABORTED", f"attempt {name} was aborted")
    if attempt.table != part.table:
        raise SinkRefused("SINK_OTHER_TABLE", f"attempt {name} staged for table {attempt.table}")
    mine = (0, ctx.id) if attempt.state in _STAGING else (ctx.id,)
    if attempt.procedure not in (*mine, *((ctx.parent,) if ctx.parent else ())):
        raise SinkRefused(
            "SINK_COMMITTING", f"attempt {name} is being committed by {attempt.procedure}"
        )
    return True


async def _check_manifest(ctx: StepContext, told: Part) -> bool:
    """Whether some of its tasks laid rows in place. Raises SinkRefused."""
    staged, laid = told.staged, False
    for at in range(0, len(staged), limits.MULTI_KEYS_MAX):
        manifest = staged[at : at + limits.MULTI_KEYS_MAX]
        sealed = await ctx.txn.multi_get([task_key(told.attempt, entry[1]) for entry in manifest])
        for (part, task, chunks, rows, crc), found in zip(manifest, sealed, strict=True):
            sealed = Sealed.unpack(found.value) if found else None
            if sealed is None or sealed != Sealed(part, chunks, rows, crc):
                raise SinkRefused(
                    "SINK_MANIFEST",
                    f"task {task} of partition {part} is not sealed as the manifest says: {rows}"
                    f" rows in {chunks} chunks expected,"
                    f" {sealed} found",
                )
            if sealed.txns and not told.placed:
                raise SinkRefused("SINK_MANIFEST", f"task {task} laid rows in place: say so")
            laid = laid or bool(sealed.txns)
    return laid


def _drop_staged(ctx: StepContext, part: Part, *, opened: bool = True) -> None:
    """Remove the attempt and what the manifest names. Losers' rows are orphans now: `reap` finds
    them.
    """
    if opened:
        ctx.txn.delete(attempt_key(part.attempt))
    for _, task, count, _, _ in part.staged:
        ctx.txn.delete(task_key(part.attempt, task))
        for seq in range(count):
            ctx.txn.delete(chunk_key(part.attempt, task, seq))


# -- the way back


async def _release(ctx: StepContext, txn: Transactions, submit: Submit) -> None:
    """The batch failed, or somebody aborted it: no intents, and staging that expires. Unless it was
    committed just before.
    """
    start_ts, bulk = ctx.state.get("txn"), txn.bulk
    ctx.state[COMMITTED_STILL] = False
    if start_ts is not None:
        (part,) = parts_of(ctx.args)
        status, commit_ts = await bulk.roll_back(bulk_key(part.table), start_ts)
        if status == COMMITTED:
            ctx.state[COMMITTED_STILL] = True
            await hand_to_clean(ctx, part, commit_ts, submit)
            return
        await take_back(ctx, part, bulk, start_ts)
    for part in parts_of(ctx.args):
        if part.placed:
            await placed_rows.finish(txn, part.attempt, part.table)
        found = await ctx.txn.get(attempt_key(part.attempt))
        if found is not None and Attempt.unpack(found.value).state is AttemptState.DONE:
            ctx.state[COMMITTED_STILL] = True
            await hand_to_clean(ctx, part, 0, submit)
            continue
        _let_go_of(ctx, part)


def _let_go(ctx: StepContext) -> None:
    for part in parts_of(ctx.args):
        _let_go_of(ctx, part)


def _let_go_of(ctx: StepContext, part: Part) -> None:
    lease_ms = ctx.now_ms + limits.SINK_LEASE_MS
    row = Attempt(AttemptState.ABORTED, part.table, lease_ms)
    ctx.txn.put(attempt_key(part.attempt), row.pack())
