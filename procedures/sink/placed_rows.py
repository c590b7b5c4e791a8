"""Rows that tasks of a bulk load laid in place: as chunk intents in the table's own partitions,
under transactions of their own, instead of staging them for the commit to do it.

    place    a task that may do so (`SinkService.place`) is known by its row in SINK_ATTEMPTS before
             it lays anything: the row says under which transactions. Their records are at the key
             of that row, so whoever meets an intent sees whose it is; no intent lies there
    report   where its messages went is staged as chunks of their own (`sink_records.pack_laid`),
             counted and summed up by the seal like others
    seal     from then on a task's transactions live as long as its attempt's lease
    commit   the batch's own transaction takes those of the winning tasks with it, in the one entry
             that flips it (kv.mvcc.commit, `beside`)
    finish   everything that was laid is ended as its transaction did: versions, or nothing. For the
             cleaning after a commit, an abort, and what expired alike

Rows in place are locked before the table's anchor is, which other batches lock first. So a batch
that meets rows of a load lets go of all that it has, and begins again when that is over: else the
load's commit would wait for the batch, and the batch for the load, for ever.

Only a task's first try lays rows in place. A copy of a task would meet the intents of the other
one; so it stages its rows, and the commit, which knows the winner, gives up the losers first and
lays what was staged after them. So a batch, or one task, may have rows of both kinds.

An attempt that is over rolls its tasks' transactions back; a task that goes on nevertheless leaves
intents of a transaction that is over, which go when they are met, or are collected.

Source: the coordinator is a procedure, its participants are the tasks' transactions; the rest is
Percolator's. Deliberately missing: reads of the own rows, conditions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kv.base import limits
from kv.base.errors import KeyLocked, Refused
from kv.base.keys import successor, table_prefix
from procedures.sink.format.sink_parts import Part
from procedures.sink.format.sink_records import (
    Sealed,
    attempt_key,
    chunks_range,
    laid_of,
    loading_attempt,
    met_by,
    task_key,
)
from procedures.sink.sink_ports import SinkRefused, Transactions, pages

if TYPE_CHECKING:
    from txn.bulk.bulk_transactions import Record

BEHIND: Final = "SINK_BEHIND"
_ROWS: Final = 500  # of a page of tasks
_CHUNKS: Final = 3  # of a page of chunks, of at most SINK_CHUNK_BYTES_MAX each


class Missing(SinkRefused):
    """Tasks that the manifest names are not known."""

    code = "SINK_MANIFEST"


@dataclass(frozen=True, slots=True)
class Placed:
    """What the tasks of a batch laid: the transactions, and the bound of their commit."""

    records: Sequence[Record]
    bound: int
    rest: Part  # with the tasks that staged rows as well


async def tasks(txn: Transactions, attempt: str) -> AsyncIterator[tuple[bytes, Sealed]]:
    """All tasks of an attempt that are known, by key."""
    own = attempt_key(attempt)
    async for rows in pages(txn, own + b"\x00", successor(own), _ROWS):
        for key, value, _ in rows:
            yield key, Sealed.unpack(value)


async def records_of(
    txn: Transactions, attempt: str, wanted: Callable[[bytes, Sealed], bool] = lambda _, __: True
) -> list[Record]:
    """The transactions of those tasks."""
    return [
        (key, start_ts)
        async for key, task in tasks(txn, attempt)
        if wanted(key, task)
        for start_ts, _ in task.txns
    ]


async def winners(txn: Transactions, part: Part) -> Placed:
    """Of the manifest's tasks, which are sealed. Raises SinkRefused."""
    named = {task_key(part.attempt, entry[1]): entry for entry in part.staged}
    records: list[Record] = []
    bound, whole = 0, set()
    async for key, task in tasks(txn, part.attempt):
        if (entry := named.pop(key, None)) is not None:
            records += [(key, start_ts) for start_ts, _ in task.txns]
            bound = max([bound, *(low for _, low in task.txns)])
            if task.placed == task.rows:
                whole.add(entry[1])
    if named:
        raise Missing(f"{len(named)} tasks of {part.attempt} are missing")
    manifest = [entry for entry in part.manifest if entry[1] not in whole]
    return Placed(records, bound, replace(part, manifest=manifest))


async def give_up_losers(txn: Transactions, part: Part) -> None:
    """The rows of tasks that the manifest does not name go when they are met."""
    named = {task_key(part.attempt, entry[1]) for entry in part.staged}
    lost = await records_of(txn, part.attempt, lambda key, _: key not in named)
    await txn.bulk.end(lost)


async def claim(txn: Transactions, part: Part) -> Placed:
    """The winners' transactions are this commit's from now on, and the losers' are over. Raises
    SinkRefused if a winner's was given up.
    """
    await give_up_losers(txn, part)
    placed = await winners(txn, part)
    if not await txn.bulk.keep(placed.records, limits.SINK_LEASE_MS):
        raise SinkRefused(
            f"rows of attempt {part.attempt} are no more where its tasks laid them: it was silent"
            " for longer than its lease; run the batch again",
            code="SINK_ATTEMPT_GONE",
        )
    return placed


def met_by_commit(attempt: str) -> Callable[[KeyLocked], None]:
    """`met_by` for the transaction of a batch: rows that another load has in place are not waited
    for while it holds keys, and the table's anchor, which that load's commit will want. Raises
    Refused (SINK_BEHIND, with the record that is to be waited for).
    """
    met_own = met_by(attempt)

    def met(locked: KeyLocked) -> None:
        met_own(locked)
        anchor = locked.details["anchor"]
        if loading := loading_attempt(anchor):
            raise Refused(
                f"rows of attempt {loading} are in the way, which is loading",
                code=BEHIND,
                details={"record": [anchor, locked.details["txn"]]},
            )

    return met


async def finish(txn: Transactions, attempt: str, table: int) -> None:
    """End what the attempt's tasks laid: rows of transactions that are committed become versions,
    the others are rolled back, and their rows go. To be called when it is decided which. Doing it
    again is harmless. `table` 0: it is not known any more; what lies there goes when it is met.
    """
    records = await records_of(txn, attempt)
    anchors = {start_ts: anchor for anchor, start_ts in records}
    outcomes = await txn.bulk.end(records)
    if not outcomes or not table:
        return
    prefix = table_prefix(table)
    if await txn.bulk.resolver.dropped(prefix):
        return
    async for rows in pages(txn, *chunks_range(attempt), _CHUNKS):
        for _, chunk, _ in rows:
            for start_ts, pieces in laid_of(chunk).items():
                if start_ts in outcomes:
                    record = anchors[start_ts], start_ts
                    await _end(txn, prefix, pieces, record, outcomes[start_ts])


async def _end(
    txn: Transactions,
    prefix: bytes,
    pieces: Sequence[tuple[bytes, bytes, int]],
    record: Record,
    commit_ts: int,
) -> None:
    anchor, start_ts = record
    laid = [(prefix + first, rows) for first, _, rows in pieces]
    left = set(await txn.bulk.resolve_laid(laid, start_ts, commit_ts, anchor=anchor))
    # A chunk is in two partitions since, or a reader was faster: what is left is met by reading.
    for first, last, _ in pieces:
        if (low := prefix + first) in left:
            async for _ in pages(txn, low, prefix + last + b"\x00", limits.SINK_READ_ROWS):
                pass
