"""The commit of a transaction whose writes are spilled: streamed, part by part.

The same protocol as `txn.core` in two phases, without its list of ops: the writes come from the
buffer's runs in key order, once to be prewritten and once more to be resolved. Rows without a
condition, and rows that must be new, go as chunk intents (txn/bulk), checked for versions above the
snapshot; the others one by one. At any moment LARGE_IN_FLIGHT_MAX messages are in memory, here and
at a partition, whatever the size of the transaction.

A commit of gigabytes takes longer than any request may: each message has a deadline of its own
(BULK_PART_BUDGET_MS), heartbeats keep the intents alive, and the whole ends with the longest life
of a transaction. The caller's deadline does not count. One that goes away, or a client that is
closed, stops it between two messages; what it laid down by then is rolled back, or expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from kv.base.errors import (
    ConditionFailed,
    KvorumError,
    Moved,
    TxnAborted,
    UnknownOutcome,
)
from kv.base.limits import LARGE_IN_FLIGHT_MAX
from kv.base.methods import COMMITTED, OP_CHECK, OP_PUT, OP_TOMBSTONE
from kv.base.ops import Op
from txn.buffer import WriteBuffer
from txn.bulk import BulkTransaction, BulkTransactions
from txn.cutting import op_bytes, runs
from txn.refusals import caller_gone, closed, unknown
from txn.terms import Terms
from txn.waiting import Background

_MOVES_MAX: Final = 4


class Portion:
    """What goes in one message for each of its three kinds."""

    __slots__ = ("keys", "new_keys", "new_values", "others", "values")

    def __init__(self, ops: Iterable[Op]) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.new_keys: list[bytes] = []  # puts where nothing may be
        self.new_values: list[bytes | None] = []
        self.others: list[Op] = []  # with another condition, or a time to live, …
        for op in ops:
            if op.kind == OP_PUT and op.cond == 0 and not op.ttl_ms:
                self.new_keys.append(op.key)
                self.new_values.append(op.value)
            elif op.kind in (OP_CHECK, OP_TOMBSTONE) or op.cond is not None or op.ttl_ms:
                self.others.append(op)
            else:
                self.keys.append(op.key)
                self.values.append(op.value)

    def __len__(self) -> int:
        return len(self.keys) + len(self.new_keys) + len(self.others)


def portions(ops: Iterator[Op], anchor: bytes) -> Iterator[Portion]:
    """All ops but the anchor's, in portions of a legal size."""
    return map(Portion, runs((op for op in ops if op.key != anchor), op_bytes))


class LargeCommit:
    """One run of it. The buffer is closed at its end."""

    def __init__(
        self, bulk: BulkTransactions, background: Background, start_ts: int, buffer: WriteBuffer
    ) -> None:
        self._bulk, self._background = bulk, background
        self.start_ts, self._buffer = start_ts, buffer
        self._anchor = anchor_of(buffer)
        self._stop: KvorumError | None = None  # the caller is gone
        self._flipped = False
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, terms: Terms) -> int:
        """The commit version. Raises what a participant refuses, or UnknownOutcome."""
        txn = self._bulk.begin(self.start_ts, self._anchor.key, checked=True, terms=terms)
        self._background.spawn(self._work(txn), f"large-{self.start_ts}")
        try:
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            self._stop = caller_gone(self.start_ts)
            raise

    async def _work(self, txn: BulkTransaction) -> None:
        version, error = 0, None
        try:
            try:
                await self._prewrite(txn)
                version = await self._flip(txn)
            except KvorumError as refused:
                version, error = await self._undo(refused)
            if error is None:
                self._tell(version)
            else:
                self._tell(error)
            if not isinstance(error, UnknownOutcome):
                await self._resolve(version)
        finally:
            self._tell(self._interrupted())  # nothing, if it was told
            await txn.close()
            self._buffer.close()

    def _tell(self, outcome: int | KvorumError) -> None:
        if self._answer.done():
            return
        if isinstance(outcome, int):
            self._answer.set_result(outcome)
        else:
            self._answer.set_exception(outcome)
            self._answer.exception()  # the caller may be gone

    async def _prewrite(self, txn: BulkTransaction) -> None:
        await txn.prewrite([self._anchor])
        waiting = portions(self._buffer.stream(), self._anchor.key)
        laid = 1
        while some := list(islice(waiting, LARGE_IN_FLIGHT_MAX)):
            self._check_wanted()
            try:
                async with asyncio.TaskGroup() as group:
                    for portion in some:
                        group.create_task(_send(txn, portion))
            except* KvorumError as failed:
                raise failed.exceptions[0] from None
            laid += sum(map(len, some))
            del some
        assert laid == len(self._buffer), f"{laid} of {len(self._buffer)} keys are prewritten"

    def _check_wanted(self) -> None:
        if self._stop is not None:
            raise self._stop

    async def _flip(self, txn: BulkTransaction) -> int:
        self._check_wanted()
        self._flipped = True
        status, commit_ts = await self._bulk.commit(
            self.start_ts, self._anchor.key, txn.min_commit_ts
        )
        if status != COMMITTED:
            raise TxnAborted(
                f"transaction {self.start_ts} was rolled back by another client: it went without a "
                "heartbeat for longer than its ttl; run it again",
                details={"txn": self.start_ts, "reason": "expired"},
            )
        return commit_ts

    async def _undo(self, error: KvorumError) -> tuple[int, KvorumError | None]:
        """Roll back after an error; (0, what to tell), or (the version, None) if it is committed
        all the same.
        """
        if isinstance(error, ConditionFailed):
            error.details["op"] = None  # its place in a message says nothing to the caller
        try:
            status, commit_ts = await self._bulk.roll_back(self._anchor.key, self.start_ts)
        except KvorumError:
            return 0, self._unknown() if self._flipped else error
        return (commit_ts, None) if status == COMMITTED else (0, error)

    async def _resolve(self, version: int) -> None:
        """End the intents; what fails is left to readers and the sweeper."""
        start_ts = self.start_ts
        try:
            await self._bulk.resolve([self._anchor.key], start_ts, version)
            for portion in portions(self._buffer.stream(), self._anchor.key):
                for keys, values in (
                    (portion.keys, portion.values),
                    (portion.new_keys, portion.new_values),
                ):
                    if keys:
                        await self._bulk.resolve_rows(keys, values, start_ts, version)
                if portion.others:
                    await self._bulk.resolve([op.key for op in portion.others], start_ts, version)
        except KvorumError:
            return

    def _interrupted(self) -> KvorumError:
        if self._flipped:
            return self._unknown()
        return closed(self.start_ts)

    def _unknown(self) -> UnknownOutcome:
        return unknown(self.start_ts, self._anchor.key, until="")


def anchor_of(buffer: WriteBuffer) -> Op:
    """The first write; the first check if there is none."""
    written = (op for op in buffer.stream() if op.kind != OP_CHECK)
    return next(written, None) or next(buffer.stream())


async def _send(txn: BulkTransaction, portion: Portion) -> None:
    if portion.keys:
        await txn.send_rows(portion.keys, portion.values)
    if portion.new_keys:
        await txn.send_rows(portion.new_keys, portion.new_values, absent=True)
    for attempt in range(_MOVES_MAX):
        try:
            if portion.others:
                await txn.prewrite(portion.others)
            return
        except Moved:  # split meanwhile: they are grouped anew
            if attempt == _MOVES_MAX - 1:
                raise
