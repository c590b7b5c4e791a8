"""Large batches of the sink: streamed under one transaction id, flipped at one row.

    write    intents for the anchor, the marker and the manifest's rows, chunk by chunk; behind them
             one on the table's record, which must be what `verify` read (so nobody waits for a
             batch just because it is written to the same table)
    flip     one status flip at the anchor; the cleaning is handed to `kvorum.sink_clean`

Rows that tasks laid in place (`placed_rows`) are there already: what is written is the rest, and
the flip takes their transactions with it.

Every part may be done again after a crash: intents that are there are there (`txn.bulk`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from kv.base import limits
from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    Refused,
    Rejected,
    TooLarge,
    TxnAborted,
)
from kv.base.keys import table_prefix
from kv.base.methods import COMMITTED
from kv.base.ops import check, put
from kv.mvcc.packed import PackedKeys, opened
from procedures.engine.procedure import Outcome, again, done
from procedures.engine.procedure import next as next_step
from procedures.engine.submission import Submission
from procedures.sink import placed_rows, staged_rows
from procedures.sink.format.sink_parts import REFUSE, Part, SinkRefused, Tables, marker_of, parts_of
from procedures.sink.format.sink_records import bulk_key, packed_rows, place_key, trusted
from txn.bulk import Rows
from txn.cutting import row_runs

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.bulk import BulkTransactions

SINK_CLEAN: Final = "kvorum.sink_clean"
_LAID_OVERHEAD: Final = 16  # of a message's first key in a record, with its rows
Submit = Callable[[Submission], Awaitable[int]]


class Transactions(Protocol):
    """What this needs of txn.TxnClient."""

    @property
    def bulk(self) -> BulkTransactions: ...
    async def get(self, key: bytes, at: int = 0) -> tuple[bytes | None, int]: ...
    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any: ...


async def write(ctx: StepContext, txn: Transactions, submit: Submit, tables: Tables) -> Outcome:
    """Intents for the anchor, the marker and every row. The flip has a step of its own if writing
    is much to do again.
    """
    args, state, bulk = ctx.args, ctx.state, txn.bulk
    (part,) = parts_of(args)
    if await _behind(state, bulk):
        return again(delay_ms=min(10 << min(ctx.round, 10), limits.SINK_RETRY_MS_MAX))
    if "txn" not in state:
        state["txn"] = await bulk.fresh_ts()
        return again()  # kept before it is used
    anchor = bulk_key(part.table)
    placed = await placed_rows.claim(txn, part) if part.placed else None
    transaction = bulk.begin(
        state["txn"], anchor, beside=() if placed is None else placed.records,
        met=placed_rows.met_by_commit(part.attempt),
        met_ms=limits.SINK_MEETS_MS if placed is None else 0,
    )  # fmt: skip
    try:
        ops = [put(anchor, part.attempt.encode())]
        if args["app"] and not args.get("early"):
            ops.append(put(marker_of(args), state["marker"], cond=state["marker_version"]))
        await transaction.prewrite(ops)
        rest = part if placed is None else placed.rest
        laid = await _prewrite_rows(ctx, rest, transaction, txn, tables)
        if state["guards"]:
            await transaction.prewrite([check(key, version) for key, version in state["guards"]])
    except TxnAborted:
        # Somebody met our intents after a crash and rolled them back, or it was the victim of a
        # deadlock: for good, and with a new id.
        await bulk.roll_back(anchor, state["txn"])
        del state["txn"]
        return again(delay_ms=10)
    except ConditionFailed:
        # Another commit moved the marker, or the table changed. Look again: it may be done.
        await bulk.roll_back(anchor, state["txn"])
        await take_back(ctx, part, bulk, state.pop("txn"))
        return next_step("verify")
    except Refused as refused:
        if refused.code != placed_rows.BEHIND:
            raise await _told(refused, part, txn, tables) from refused
        await bulk.roll_back(anchor, state.pop("txn"))
        state["behind"] = refused.details["record"]
        return again(delay_ms=10)
    finally:
        await transaction.close()
    state["min_commit_ts"] = max(transaction.min_commit_ts, placed.bound if placed else 0)
    state.pop("laid", None)
    if sum(len(key) + _LAID_OVERHEAD for key, _ in laid) <= limits.SINK_LAID_BYTES:
        state["laid"] = laid
    if moderate(part):
        return await flip(ctx, txn, submit)
    return next_step("flip")


async def _behind(state: dict[str, Any], bulk: BulkTransactions) -> bool:
    """Whether the load that it gave way to still goes on."""
    if "behind" not in state:
        return False
    anchor, start_ts = state["behind"]
    if not await bulk.lives((anchor, start_ts)):
        del state["behind"]
    return "behind" in state


async def _told(refused: Refused, part: Part, txn: Transactions, tables: Tables) -> Exception:
    """A key that tasks of this batch have laid, as people read it."""
    if refused.code != placed_rows.DUPLICATE:
        return refused
    user_key = refused.details["key"][len(table_prefix(part.table)) :]
    return staged_rows.duplicate(await tables.shown(txn.get, part.table, user_key))


async def _prewrite_rows(
    ctx: StepContext, part: Part, transaction: Any, txn: Transactions, tables: Tables
) -> list[tuple[bytes, int]]:
    """What was laid (`BulkTransactions.resolve_laid`). Raises SinkRefused for two rows of one key,
    if that is not allowed.
    """
    laid: list[tuple[bytes, int]] = []
    bulk, prefix = txn.bulk, table_prefix(part.table)

    async def show(key: bytes) -> str:
        return await tables.shown(txn.get, part.table, key)

    doubts: staged_rows.Doubts | None = None
    if part.twice == REFUSE:
        if part.rows > limits.SINK_UNIQUE_ROWS:
            await staged_rows.refuse_duplicates(part, bulk.read, show)
        else:
            doubts = staged_rows.Doubts()
    written = 0

    def arrived(rows: int) -> None:
        nonlocal written
        written += rows
        ctx.progress(min(1.0, written / max(1, part.rows)), f"{written} of {part.rows} rows")

    at_once = limits.BULK_PIECES_IN_FLIGHT_MAX if part.twice == REFUSE else 1
    messages = _messages(part, bulk, doubts)
    try:
        await transaction.prewrite_pieces(messages, laid, arrived, at_once=at_once)
    except (InvalidArgument, TooLarge) as error:
        raise staged_rows.damaged(error) from error
    if doubts is not None:
        await staged_rows.compare(part, bulk.read, show, doubts, prefix)
    return laid


async def flip(ctx: StepContext, txn: Transactions, submit: Submit) -> Outcome:
    state, bulk = ctx.state, txn.bulk
    (part,) = parts_of(ctx.args)
    if part.placed:
        status, commit_ts = await _flip_placed(ctx, part, txn)
    else:
        status, commit_ts = await bulk.commit(
            state["txn"], bulk_key(part.table), state["min_commit_ts"]
        )
    if status != COMMITTED:
        del state["txn"]
        return next_step("write")
    if part.placed:
        await _leave_place(ctx, part)
    await hand_to_clean(ctx, part, commit_ts, submit)
    return done({"outcome": "committed", "rows": part.rows, "commit_version": str(commit_ts)})


async def _flip_placed(ctx: StepContext, part: Part, txn: Transactions) -> tuple[int, int]:
    """The flip with the tasks' transactions; what is not flipped is over then."""
    state, bulk, anchor = ctx.state, txn.bulk, bulk_key(part.table)
    with suppress(SinkRefused):  # this step did it, before a crash, and the tasks are removed since
        beside = (await placed_rows.winners(txn, part)).records
        status, commit_ts = await bulk.commit(state["txn"], anchor, state["min_commit_ts"], beside)
        if status == COMMITTED:
            return status, commit_ts
    status, commit_ts = await bulk.roll_back(anchor, state["txn"])  # perhaps one beside it is over
    if status != COMMITTED:
        await take_back(ctx, part, bulk, state["txn"])
    return status, commit_ts


async def _leave_place(ctx: StepContext, part: Part) -> None:
    """The next load of the table may lay its rows in place."""
    found = await ctx.txn.get(place_key(part.table))
    if found is not None and found.value == part.attempt.encode():
        ctx.txn.delete(place_key(part.table))


async def take_back(ctx: StepContext, part: Part, bulk: BulkTransactions, start_ts: int) -> None:
    """Remove the intents of a transaction that is rolled back."""
    await bulk.resolve(system_keys(ctx, part), start_ts, 0)
    with suppress(SinkRefused, Rejected):  # unreadable: the rest goes when it is met
        async for keys, values in rows_of(part, bulk):
            await bulk.resolve_rows(keys, values, start_ts, 0)


async def hand_to_clean(ctx: StepContext, part: Part, commit_ts: int, submit: Submit) -> None:
    args: dict[str, Any] = {
        "attempt": part.attempt, "table": part.table, "manifest": part.manifest,
        "keys": system_keys(ctx, part), "txn": ctx.state["txn"] if commit_ts else 0,
        "commit_ts": commit_ts,
    }  # fmt: skip
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


def moderate(part: Part) -> bool:
    """Whether a batch is so small that all of it may be in memory, and done again after a crash."""
    if part.placed:
        return False
    return part.rows <= limits.SINK_STEP_ROWS and part.chunks <= limits.SINK_STEP_CHUNKS


async def _messages(
    part: Part, bulk: BulkTransactions, doubts: staged_rows.Doubts | None
) -> AsyncGenerator[Sequence[Rows], None]:
    """`rows_of`, cut into messages; chunks of packed rows are cut already, and go as they lie.
    Raises InvalidArgument, too.
    """
    if moderate(part):
        async for keys, values in rows_of(part, bulk, doubts):
            yield row_runs(keys, values)
        return
    prefix = table_prefix(part.table)
    async for _, chunk in staged_rows.stored(part, bulk.read, backwards=True):
        messages = _cut(chunk, prefix)
        if doubts is not None:
            for run, _ in messages:
                doubts.add_run(run)
        yield messages


def _cut(chunk: bytes, prefix: bytes) -> Sequence[Rows]:
    """A staged chunk as messages. Raises InvalidArgument."""
    if (packed := packed_rows(chunk, prefix)) is not None:
        return packed
    keys, values, _ = trusted(chunk)
    return row_runs(list(map(prefix.__add__, keys)), values)


async def rows_of(
    part: Part, bulk: BulkTransactions, doubts: staged_rows.Doubts | None = None
) -> AsyncGenerator[tuple[Sequence[bytes], Sequence[bytes | None]], None]:
    """(storage keys that rise, values) of the batch, piece by piece; the same pieces at every call.

    A moderate batch is one piece, so that its tasks share messages; else each is one message
    (`_messages`), so that who resolves it finds it as it was laid. Of rows with one key the last
    stays. Last chunk first, since of two intents on one key the first stays: so the last row of a
    key wins, as in a small batch. Raises SinkRefused for what is missing or damaged.
    """
    prefix = table_prefix(part.table)
    if not moderate(part):
        async for _, chunk in staged_rows.stored(part, bulk.read, backwards=True):
            for keys, values in _opened(chunk, prefix):
                yield keys, values
        return
    merged: dict[bytes, bytes | None] = {}
    async for piece in staged_rows.chunks(part, bulk.read, backwards=True):
        own = list(map(prefix.__add__, piece.keys))
        if doubts is not None:
            doubts.add_run(own)
        merged = dict(zip(own, piece.values, strict=True)) | merged
    rising = sorted(merged)
    yield rising, [merged[key] for key in rising]


def _opened(
    chunk: bytes, prefix: bytes
) -> Iterator[tuple[Sequence[bytes], Sequence[bytes | None]]]:
    try:
        for keys, values in _cut(chunk, prefix):
            if isinstance(values, bytes):
                assert isinstance(keys, PackedKeys)
                yield opened(keys, values)
            else:
                yield keys, values
    except (InvalidArgument, TooLarge) as error:
        raise staged_rows.damaged(error) from error
