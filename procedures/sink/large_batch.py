"""Large batches of the sink: streamed under one transaction id, flipped at one row.

    lay      intents for the anchor, the marker and the manifest's rows, chunk by chunk; after them
             one on the table's record, which must be what `verify` read (so nobody waits for a
             batch just because it is written to the same table)
    commit   one status flip at the anchor; the cleaning is handed to `kvorum.sink_clean`

Rows that tasks laid in place (`placed_rows`) are there already: what is written is the rest, and
the flip takes their transactions with it.

Every part may be done again after a crash: intents that are there are there
(`txn.bulk.bulk_transactions`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

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
from procedures.engine.procedure import Outcome, again, done
from procedures.engine.procedure import next as next_step
from procedures.sink import placed_rows, staged_rows
from procedures.sink.format.sink_parts import REFUSE, Part, marker_of, parts_of
from procedures.sink.format.sink_records import DUPLICATE, bulk_key, place_key
from procedures.sink.placed_rows import BEHIND, Placed
from procedures.sink.sink_clean import hand_to_clean, system_keys
from procedures.sink.sink_ports import SinkRefused, Submit, Tables, Transactions, counter
from procedures.sink.staged_rows import moderate

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.bulk.bulk_transactions import BulkTransaction

_LAID_OVERHEAD: Final = 16  # of a message's first key in a record, with its rows


class LargeBatch:
    """One run of a step of its commit."""

    def __init__(self, ctx: StepContext, txn: Transactions, submit: Submit, tables: Tables) -> None:
        self.ctx, self.args, self.state = ctx, ctx.args, ctx.state
        self.txn, self.bulk, self.submit, self.tables = txn, txn.bulk, submit, tables
        (self.part,) = parts_of(ctx.args)
        self.anchor = bulk_key(self.part.table)

    async def lay(self) -> Outcome:
        """Intents for the anchor, the marker and every row. The flip has a step of its own if
        writing is much to do again.
        """
        state, part = self.state, self.part
        if await self._gives_way():
            return again(delay_ms=min(10 << min(self.ctx.round, 10), limits.SINK_RETRY_MS_MAX))
        if "txn" not in state:
            state["txn"] = await self.bulk.fresh_ts()
            return again()  # kept before it is used
        placed = Placed((), 0, part)
        if part.placed:
            placed = await placed_rows.claim(self.txn, part)
        transaction = self.bulk.begin(
            state["txn"],
            self.anchor,
            beside=placed.records,
            met=placed_rows.met_by_commit(part.attempt),
            met_ms=0 if part.placed else limits.SINK_MEETS_MS,
        )
        try:
            laid = await self._lay_all(transaction, placed.rest)
        except TxnAborted:
            # Somebody met our intents after a crash and rolled them back, or it was the victim of a
            # deadlock: for good, and with a new id.
            await self.bulk.roll_back(self.anchor, state.pop("txn"))
            return again(delay_ms=10)
        except ConditionFailed:
            # Another commit moved the marker, or the table changed. Look again: it may be done.
            await self.roll_back()
            del state["txn"]
            return next_step("verify")
        except SinkRefused:
            raise
        except Refused as refused:
            if refused.code == DUPLICATE:  # a key that tasks of this batch have laid
                user_key = refused.details["key"][len(table_prefix(part.table)) :]
                raise staged_rows.duplicate(await self._shown(user_key)) from refused
            if refused.code != BEHIND:
                raise
            await self.bulk.roll_back(self.anchor, state.pop("txn"))
            state["behind"] = refused.details["record"]
            return again(delay_ms=10)
        finally:
            await transaction.close()
        state["min_commit_ts"] = max(transaction.min_commit_ts, placed.bound)
        state.pop("laid", None)
        if sum(len(key) + _LAID_OVERHEAD for key, _ in laid) <= limits.SINK_LAID_BYTES:
            state["laid"] = laid
        return await self.commit() if moderate(part) else next_step("flip")

    async def _gives_way(self) -> bool:
        """Whether the load that it gave way to still goes on."""
        if "behind" in self.state:
            anchor, start_ts = self.state["behind"]
            if await self.bulk.lives((anchor, start_ts)):
                return True
            del self.state["behind"]
        return False

    async def _lay_all(self, transaction: BulkTransaction, part: Part) -> list[tuple[bytes, int]]:
        """`part`: whose rows are not laid yet. What was laid, as `_lay_rows`."""
        args, state = self.args, self.state
        ops = [put(self.anchor, part.attempt.encode())]
        if args["app"] and not args.get("early"):
            ops.append(put(marker_of(args), state["marker"], cond=state["marker_version"]))
        await transaction.prewrite(ops)
        laid = await self._lay_rows(transaction, part)
        if state["guards"]:
            await transaction.prewrite([check(key, version) for key, version in state["guards"]])
        return laid

    async def _lay_rows(self, transaction: BulkTransaction, part: Part) -> list[tuple[bytes, int]]:
        """What was laid (`BulkTransactions.resolve_laid`). Raises SinkRefused for two rows of one
        key, if that is not allowed.
        """
        laid: list[tuple[bytes, int]] = []
        read = self.bulk.read
        doubts: staged_rows.Doubts | None = None
        if part.twice == REFUSE and not moderate(part):
            if part.rows > limits.SINK_UNIQUE_ROWS:
                await staged_rows.refuse_duplicates(part, read, self._shown)
            else:
                doubts = staged_rows.Doubts()
        try:
            await transaction.prewrite_pieces(
                staged_rows.messages_of(part, read, self._shown, doubts),
                laid,
                counter(self.ctx, part.rows),
                at_once=limits.BULK_PIECES_IN_FLIGHT_MAX if part.twice == REFUSE else 1,
            )
        except (InvalidArgument, TooLarge) as error:
            raise staged_rows.damaged(error) from error
        if doubts is not None:
            await staged_rows.compare(part, read, self._shown, doubts, table_prefix(part.table))
        return laid

    async def _shown(self, key: bytes) -> str:
        return await self.tables.shown(self.txn.get, self.part.table, key)

    async def commit(self) -> Outcome:
        """The flip."""
        commit_ts = await self._flip()
        if not commit_ts:
            del self.state["txn"]
            return next_step("write")
        if self.part.placed:
            await self._leave_place()
        await hand_to_clean(self.ctx, self.part, commit_ts, self.submit)
        rows = self.part.rows
        return done({"outcome": "committed", "rows": rows, "commit_version": str(commit_ts)})

    async def _flip(self) -> int:
        """With the tasks' transactions. The commit_ts; 0: it is over, and so is what is not
        flipped.
        """
        beside = Placed((), 0, self.part)
        with suppress(placed_rows.Missing):  # this step did it, before a crash; they went since
            if self.part.placed:
                beside = await placed_rows.winners(self.txn, self.part)
            status, commit_ts = await self.bulk.commit(
                self.state["txn"], self.anchor, self.state["min_commit_ts"], beside.records
            )
            if status == COMMITTED:
                return commit_ts
        return await self.roll_back()  # perhaps one beside it is over

    async def _leave_place(self) -> None:
        """The next load of the table may lay its rows in place."""
        key = place_key(self.part.table)
        found = await self.ctx.txn.get(key)
        if found is not None and found.value == self.part.attempt.encode():
            self.ctx.txn.delete(key)

    async def roll_back(self) -> int:
        """For good, and its intents go. Its commit_ts, if it was committed before; else 0."""
        start_ts = self.state["txn"]
        status, commit_ts = await self.bulk.roll_back(self.anchor, start_ts)
        if status == COMMITTED:
            return commit_ts
        await self.bulk.resolve(system_keys(self.ctx, self.part), start_ts, 0)
        with suppress(Rejected):  # unreadable: the rest goes when it is met
            async for keys, values in staged_rows.rows_of(self.part, self.bulk.read):
                await self.bulk.resolve_rows(keys, values, start_ts, 0)
        return 0
