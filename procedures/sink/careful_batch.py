"""Batches of the sink that read before they write: one ordinary transaction.

    tables with rules     old rows are read, for their index entries; what must be unique is looked
                          for; constraints are evaluated (`Tables.write`, two floors up)
    replacing             what is there is read and deleted
    new keys only         the keys are looked for
    dedupeBy              which row of a key stays is known when all were seen
    several tables        their rows, one marker

The transaction buffers its writes (they are spilled to a file when they are many: TXN_KEYS_MAX,
TXN_BUFFER_BYTES_MAX bound it) and is checked against its snapshot at the commit: who changed one of
the rows, or the table's record, meanwhile, makes the batch start over on a new snapshot. Its last
writes turn every attempt to DONE and move the marker, so a step that runs again, after a crash or
an unknown outcome, sees that it is done. Nothing else of it needs to be kept.

Replacing is as isolated as any transaction here: a row that somebody else *inserts* into the range
between the snapshot and the commit stays (snapshot isolation; a phantom).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Final

from kv.base import limits
from kv.base.errors import (
    ConditionFailed,
    KvorumError,
    Refused,
    TooLarge,
)
from kv.base.keys import table_prefix, table_range
from procedures.engine.plain_data import Plain
from procedures.sink import staged_rows
from procedures.sink.format.sink_parts import Part, marker_of, parts_of
from procedures.sink.format.sink_records import Attempt, AttemptState, attempt_key
from procedures.sink.sink_ports import (
    Facts,
    Get,
    Pieces,
    SinkRefused,
    Tables,
    Transactions,
    Writes,
    attempt_by,
    counter,
    pages,
)

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.transaction import Transaction

_AGAIN: Final = frozenset({"retry", "reroute", "restart_txn", "unknown_outcome"})


class MarkerMoved(Exception):
    """Another commit of the application was faster: look again what is to be done."""


async def commit(ctx: StepContext, txn: Transactions, tables: Tables) -> dict[str, object] | None:
    """Commit the batch of a `kvorum.sink_commit` that claimed its attempts. Its result; None: it
    met somebody, so once more. Raises SinkRefused, Refused, MarkerMoved.
    """
    t = await txn.begin(ttl_ms=limits.BULK_TTL_MS)
    try:
        result = await _Batch(ctx, t, txn, tables).write()
        if result is None:
            result = {"outcome": "committed", "rows": sum(p.rows for p in parts_of(ctx.args))}
            result["commit_version"] = str(await t.commit())
        return result
    except TooLarge as error:
        raise SinkRefused(f"{error}; write the batch in parts", code="TOO_LARGE") from error
    except Refused:
        raise
    except KvorumError as error:
        if error.disposition in _AGAIN or isinstance(error, ConditionFailed):
            return None
        raise
    finally:
        await t.abort("its batch was not committed")


class _Batch:
    """One try."""

    def __init__(self, ctx: StepContext, t: Transaction, txn: Transactions, tables: Tables) -> None:
        self.ctx, self.args, self.t, self.txn, self.tables = ctx, ctx.args, t, txn, tables
        self.parts = parts_of(ctx.args)
        self.rows = sum(part.rows for part in self.parts)
        self.written = counter(ctx, self.rows)

    async def write(self) -> Plain | None:
        """All writes into the transaction. The result, if it was committed before."""
        claims = []
        for part in self.parts:
            attempt, version = await attempt_by(self.t.get, part.attempt)
            if attempt is None or attempt.procedure != self.ctx.id:
                raise SinkRefused(f"attempt {part.attempt} was aborted", code="SINK_ABORTED")
            if attempt.state is AttemptState.DONE:
                return {"outcome": "committed", "rows": self.rows, "commit_version": str(version)}
            claims.append((part, attempt, version))
        if self.args["app"] and not self.args.get("early"):
            await self._move_marker()
        for part in self.parts:
            await self._write_part(part)
        for part, attempt, version in claims:
            now, state = self.ctx.now_ms, AttemptState.DONE
            done = Attempt.leased(state, part.table, now, self.ctx.id, attempt)
            self.t.put(attempt_key(part.attempt), done.pack(), cond=version)
        return None

    async def _move_marker(self) -> None:
        key = marker_of(self.args)
        _, version = await self.t.get(key)
        if version != self.ctx.state["marker_version"]:
            raise MarkerMoved
        self.t.put(key, self.ctx.state["marker"], cond=version)

    async def _write_part(self, part: Part) -> None:
        async def show(key: bytes) -> str:
            return await self.tables.shown(self.t.get, part.table, key)

        chosen = await staged_rows.settle(part, self.txn.bulk.read, show)
        counted = False

        async def pieces() -> AsyncIterator[tuple[list[bytes], list[bytes | None]]]:
            nonlocal counted
            first, counted = not counted, True
            async for keys, values in staged_rows.once(part, self.txn.bulk.read, chosen):
                yield keys, values
                if first:
                    self.written(len(keys))

        if part.fresh:
            await self._refuse_known(part, pieces)
        await self.tables.write(self.t, part, pieces)

    async def _refuse_known(self, part: Part, pieces: Pieces) -> None:
        """Raises SinkRefused if a key of the part is there already. That it stays so is what the
        transaction's snapshot is checked for.
        """
        prefix = table_prefix(part.table)
        async for keys, _ in pieces():
            for at in range(0, len(keys), limits.SINK_READ_ROWS):
                some = keys[at : at + limits.SINK_READ_ROWS]
                found = await self.t.multi_get([prefix + key for key in some])
                for key, row in zip(some, found, strict=True):
                    if row is not None:
                        shown = await self.tables.shown(self.t.get, part.table, key)
                        raise SinkRefused(
                            f"the key {shown} is in the table already, and option op=insert"
                            " replaces nothing: use op=upsert, or leave the row out",
                            code="SINK_KEY_EXISTS",
                        )


class PlainTables:
    """`Tables` without a catalog: keys and values."""

    async def facts(self, get: Get, table: int, path: str = "") -> Facts | None:
        return None

    async def shown(self, get: Get, table: int, key: bytes) -> str:
        return repr(key)[1:]

    async def write(self, t: Transaction, part: Part, pieces: Pieces) -> int:
        """See `Tables.write`; conditions need a catalog."""
        gone = 0
        if part.replace is not None:
            start, end, where = part.replace
            if where:
                raise SinkRefused("a condition needs a table with columns", code="SINK_NO_CATALOG")
            gone = await delete_range(t, part.table, start, end)
        await put_rows(t, part.table, pieces)
        return gone


def _every(key: bytes, value: bytes) -> bool:
    return True


async def delete_range(
    t: Transaction,
    table: int,
    start: bytes,
    end: bytes,
    meant: Callable[[bytes, bytes], bool] = _every,
) -> int:
    """Delete the rows between two user keys (b"" = no bound) that are meant; how many."""
    prefix = table_prefix(table)
    gone = 0
    async for rows in pages(t, *user_range(table, start, end), limits.SINK_READ_ROWS):
        for key, value, _ in rows:
            if meant(key[len(prefix) :], value):
                t.delete(key)
                gone += 1
    return gone


def user_range(table: int, start: bytes, end: bytes) -> tuple[bytes, bytes]:
    """The storage keys between two user keys (b"" = no bound)."""
    prefix = table_prefix(table)
    return prefix + start, prefix + end if end else table_range(table)[1]


async def put_rows(t: Writes, table: int, pieces: Pieces) -> None:
    """Put and delete the rows of a part of a table without rules."""
    async for keys, values in pieces():
        put_some(t, table, zip(keys, values, strict=True))


def put_some(t: Writes, table: int, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
    prefix = table_prefix(table)
    for key, value in rows:
        if value is None:
            t.delete(prefix + key)
        else:
            t.put(prefix + key, value)
