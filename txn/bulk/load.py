"""Rows that are loaded as one transaction: sent while they come, nothing kept but where they are.

    load = await client.load()
    await load.add(keys, values, absent=True)     any number of times
    version = await load.commit([check(key, version)])     or abort(); once

The protocol of txn/bulk/streaming, for a client that needs no second look at its rows: they are not
read by the transaction, not taken back one by one, and not written to a file
(txn/bulk/spilled_commit does that for those who do). The intents of a part lie there while the next
one comes, so it is for rows that come without a pause; heartbeats keep them alive, and the whole
ends with the longest life of a transaction.

A part is a chunk of intents (kv.mvcc.prewrite_rows). Rows that are to be absent are so when their
intents are laid, and stay so; that none comes twice is the caller's business. After the commit
each chunk is resolved by its first key, and gives way to others on the loop meanwhile: scans read
through what is left (kv/mvcc/scan_through_intents.py). What fails is left to readers and the
sweeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from kv.base.errors import KvorumError
from kv.base.limits import (
    LOAD_IN_FLIGHT_MAX,
    LOAD_SCANS_LOOK_MS,
    TXN_LIFETIME_MS_MAX,
)
from kv.base.ops import Op, put
from txn.bulk.bulk_transactions import BulkTransaction, BulkTransactions
from txn.bulk.streaming import Streaming
from txn.commit.sending import Shared
from txn.shared.deadlines import Deadline, Rests, sleep
from txn.shared.message_sizes import row_runs
from txn.shared.refusals import caller_gone, too_old
from txn.shared.wait_terms import Terms


class Load:
    """See the module. Not for use by several tasks at once."""

    def __init__(
        self,
        shared: Shared,
        bulk: BulkTransactions,
        start_ts: int,
        terms: Terms,
        loop_s: Callable[[], float] = float,
    ) -> None:
        self._shared, self._bulk, self._terms = shared, bulk, terms
        self._loop_s = loop_s
        self.start_ts = start_ts
        self.pages: Callable[[], int] = int  # that scans of this client have read through loads
        self._txn: BulkTransaction | None = None
        self._streaming: Streaming | None = None
        self._checks: Sequence[Op] = ()
        self._life = Deadline(bulk.timers, TXN_LIFETIME_MS_MAX)
        self._firsts: list[bytes] = []  # a key of every chunk
        self._sending: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._over = False

    async def add(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, absent: bool = False
    ) -> None:
        """Rows in any order, each key once. Returns when they are sent, not when they are laid: a
        refusal (KvorumError) is raised by a later call.
        """
        assert not self._over
        if not keys:
            return
        order = sorted(range(len(keys)), key=keys.__getitem__)
        if any(i != at for at, i in enumerate(order)):
            keys, values = [keys[i] for i in order], [values[i] for i in order]
        if self._txn is None:
            await self._begin(put(keys[0], values[0], 0 if absent else None))
            keys, values = keys[1:], values[1:]
            if not keys:
                return
        for part_keys, part_values in row_runs(keys, values):
            await self._room(LOAD_IN_FLIGHT_MAX - 1)
            assert self._txn is not None
            work = self._txn.send_rows(part_keys, part_values, absent=absent, firsts=self._firsts)
            task = asyncio.get_running_loop().create_task(work, name=f"load-{self.start_ts}")
            self._sending.add(task)

    async def _begin(self, anchor: Op) -> None:
        self._txn = self._bulk.begin(self.start_ts, anchor.key, terms=self._terms)
        self._streaming = Streaming(
            self._shared,
            self._txn,
            anchor,
            self._terms,
            lay=self._lay,
            clean=self._clean,
            ended=self._firsts.clear,
        )
        await self._txn.prewrite([anchor])

    async def _room(self, most: int) -> None:
        """Wait until at most so many messages are under way. Raises what one was refused with."""
        while self._sending and (len(self._sending) > most or self._error is not None):
            done, self._sending = await asyncio.wait(
                self._sending, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    self._error = self._error or error
        if self._error is not None:
            raise self._error

    async def commit(self, checks: Sequence[Op] = ()) -> int:
        """The version of all rows; `checks` hold at it, too. After an error it is over, and nothing
        is written, unless that is UnknownOutcome.
        """
        assert not self._over
        self._over, self._checks = True, checks
        if self._streaming is None:
            return self.start_ts
        try:
            return await self._streaming.commit()
        except asyncio.CancelledError:
            await self._stop_sending()
            raise

    async def abort(self) -> None:
        """Nothing is written; fine twice, and after the commit."""
        if self._over:
            return
        self._over, self._error = True, caller_gone(self.start_ts)
        await self._stop_sending()  # they may wait for others' locks for long
        if self._streaming is not None:
            with suppress(KvorumError):
                await self._streaming.commit()

    async def _lay(self) -> None:
        """What is not laid yet."""
        try:
            await self._room(0)
            if self._life.passed:
                raise too_old(self.start_ts, TXN_LIFETIME_MS_MAX)
            if self._checks:
                assert self._txn is not None
                await self._txn.prewrite(self._checks)
                self._firsts += [op.key for op in self._checks]
        finally:
            await self._stop_sending()

    async def _stop_sending(self) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)  # the first is raised

    async def _clean(self, version: int) -> None:
        """One chunk after the other; while others use the loop for a fifth of the time, and for
        half of it when that has lasted: what is locked takes memory. A scan of this range waits
        while a chunk is under way, so of these there is one; and none while scans of this client
        go on, so long: they have somebody who waits.
        """
        assert self._txn is not None
        anchor = self._txn.anchor
        timers, left, pages = self._bulk.timers, LOAD_IN_FLIGHT_MAX, 0
        rests = Rests(timers, self._loop_s)
        for key in (anchor, *self._firsts):
            while pages != (pages := self.pages()) and not rests.yields.passed:
                await sleep(timers, LOAD_SCANS_LOOK_MS / 1000)
            began = timers.monotonic()
            try:
                await self._bulk.resolve([key], self.start_ts, version)
            except KvorumError:
                left -= 1
                if not left:
                    return
            await rests.rest(timers.monotonic() - began)
        self._bulk.resolver.forget_load(self.start_ts)
