"""A task of a bulk load lays its rows in the table itself (procedures/sink/placed_rows.py).

Only in order, or in runs that lie apart: of rows with one key the node would keep the first without
a word, if it were the same transaction that brings both. Rows of which that is not certain are left
to be staged: the commit, which lays them after these, finds the key taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kv.base import limits
from kv.base.errors import KvorumError, TxnAborted
from kv.base.keys import table_prefix
from kv.base.timestamps import physical_ms
from kv.mvcc.packed_rows import PackedKeys
from procedures.sink.format.sink_records import Apart, met_by, pack_laid, task_key
from procedures.verbs import SINK_PLACE
from pyspark_kvorum import packing
from pyspark_kvorum.packing import Rows
from sqlproxy.rows.schema import Table

if TYPE_CHECKING:
    from pyspark_kvorum.session import Session
    from txn.bulk.bulk_transactions import BulkTransaction

_RUNS_MAX: Final = 8  # of one chunk; more are no order at all
_LAID_OVERHEAD: Final = 24

Keep = Callable[[int, str, int], None]
"""Keep the transaction of this part, task and start alive."""


class Placing:
    """One task's transactions. `start` before anything else, and when `old`."""

    def __init__(
        self, session: Session, table: Table, attempt: str, part: int, task: str, keep: Keep
    ) -> None:
        self._session, self._table, self._attempt = session, table, attempt
        self._part, self._task, self._keep = part, task, keep
        self._anchor = task_key(attempt, task)
        self._prefix = table_prefix(table.id)
        self._apart = Apart()
        self._txns: list[BulkTransaction] = []
        self._laid: list[tuple[int, bytes, bytes, int]] = []
        self._laid_bytes = 0
        self._refused = False
        self.rows = 0  # that were laid, or are under way

    async def start(self) -> bool:
        """Under a new transaction from now on. False: stage the rows that are left."""
        if self._refused:
            return False
        await self._session.opened()
        bulk = self._session.txn.bulk
        start_ts = await self._session.definite(bulk.fresh_ts)
        asked = (self._attempt, self._table.id, self._part, self._task, start_ts)
        try:
            (may,) = await self._session.ask(SINK_PLACE, *asked)
        except KvorumError as error:
            if error.code != "UNKNOWN_METHOD":
                raise
            return False  # a node of an older version
        self._refused = not may
        if may:
            self._keep(self._part, self._task, start_ts)
            self._txns.append(bulk.begin(start_ts, self._anchor, met=met_by(self._attempt)))
        return bool(may)

    @property
    def old(self) -> bool:
        """Whether its transaction should be followed by another one."""
        began_ms = physical_ms(self._txns[-1].start_ts)
        return self._session.now_ms() - began_ms > limits.SINK_PLACED_TXN_MS

    def take(self, rows: Rows) -> tuple[list[Rows], list[Rows]]:
        """The runs of these rows that lie apart from all before, and those that do not."""
        found = packing.runs(rows)
        if len(found) > _RUNS_MAX:
            return [], [rows]
        taken: list[Rows] = []
        left: list[Rows] = []
        for low, high in found:
            run = rows.part(low, high)
            if self._apart.add(run.first, run.last):
                taken.append(run)
                self.rows += run.count
            else:
                left.append(run)
        return taken, left

    async def lay(self, runs: Sequence[Rows]) -> None:
        """Raises what they are refused with: Refused (SINK_DUPLICATE) if rows of the batch are in
        their way.
        """
        for run in runs:
            for first, rows, last, packed, values in packing.pieces(run):
                transaction = self._txns[-1]
                named = PackedKeys(
                    self._prefix + first, len(self._prefix), rows, packed, self._prefix + last
                )
                try:
                    await self._send(transaction, named, values)
                except TxnAborted:  # less history is kept here than it is old
                    before = transaction
                    if before is self._txns[-1] and not await self.start():
                        raise
                    await self._take_back(before, named)
                    transaction = self._txns[-1]
                    await self._send(transaction, named, values)
                self._laid.append((transaction.start_ts, first, last, rows))
                self._laid_bytes += len(first) + len(last) + _LAID_OVERHEAD

    async def _send(self, transaction: BulkTransaction, keys: PackedKeys, values: bytes) -> None:
        await self._session.definite(lambda: transaction.send_rows(keys, values))

    async def _take_back(self, transaction: BulkTransaction, keys: PackedKeys) -> None:
        """Partitions that keep more history may have taken some of these; or a refusal was the
        answer to a second sending, and all are there. They would be in their own way.
        """
        bulk, laid = self._session.txn.bulk, list(keys)
        await self._session.definite(lambda: bulk.resolve(laid, transaction.start_ts, 0))

    def laid_chunk(self, *, all_of_it: bool = False) -> bytes | None:
        """A chunk that says what was laid; None: there is too little of it for one."""
        if not self._laid or (self._laid_bytes < limits.SINK_PLACED_BYTES and not all_of_it):
            return None
        chunk = pack_laid(self._laid)
        self._laid, self._laid_bytes = [], 0
        return chunk

    def sealed(self) -> list[list[int]]:
        """Its transactions, for the seal."""
        return [[one.start_ts, one.min_commit_ts] for one in self._txns]
