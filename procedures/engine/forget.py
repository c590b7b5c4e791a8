"""Forgetting procedures that ended: on acknowledgement, or when their retention is over (M4, M7).

Whole trees go, leaves first and the root with its nonce last: a crash in between leaves a smaller
tree, which the retention of the root finds again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import KvorumError, Rejected
from kv.base.ports import Clock, Timers
from procedures.engine.due_times import Due
from procedures.engine.idlock import IdLock
from procedures.engine.records import Record
from procedures.engine.store import Fenced, ProcedureStore, Stored

log = logging.getLogger(__name__)

_PAGE: Final = 100
_NEEDED_MS: Final = 10_000  # what is needed is looked at again


class Janitor:
    """Removes what nobody acknowledged. `run` is a task of the executor."""

    def __init__(self, store: ProcedureStore, locks: IdLock, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._locks = locks
        self._clock = clock
        self._due = Due(clock, timers, lambda _: self._wake.set())
        self._wake = asyncio.Event()
        self._next_ms = 0  # when the next retention ends; 0 = unknown
        self._closed = False
        self.longer: Callable[[Record, int], Record | None] = lambda _record, _now: None
        """The record with a longer retention, if a rule says so (pools/retention.py)."""
        self.needed: Callable[[Record], bool] = lambda _record: False
        """Whether something would happen twice without it (pools/schedules.py)."""
        self.gone: Callable[[int], None] = lambda _id: None  # is told whom it forgets
        self._stuck: set[int] = set()  # due, but they cannot be forgotten: damaged records

    def ended(self, record: Record) -> None:
        """A procedure ended: its retention begins."""
        if record.parent:
            return
        due_ms = record.updated_ms + record.retention_ms
        if not self._next_ms or due_ms < self._next_ms:
            self._next_ms = due_ms
            self._due.add(due_ms, 0)

    async def run(self) -> None:
        self._wake.set()  # what ended before this process
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            try:
                await self._sweep()
            except KvorumError:  # the store does not answer: later
                self._due.add(self._clock.now_ms() + limits.PROCEDURE_RETRY_MS_MAX, 0)

    def close(self) -> None:
        self._closed = True
        self._due.close()
        self._wake.set()

    async def _sweep(self) -> None:
        """Forget everything that is due. What cannot be forgotten holds up nothing but itself."""
        while not self._closed:
            now = self._clock.now_ms()
            page = min(limits.PROCEDURE_PAGE_MAX + len(self._stuck), limits.SCAN_ROWS_MAX)
            ids, self._next_ms = await self._store.expired(now, page)
            # a step of one that was bypassed may be under way still: later
            todo = [id for id in ids if id not in self._stuck and not self._locks.held(id)]
            for id in todo:
                await self._forget_due(id)
            if not todo:
                if ids:
                    self._next_ms = now + limits.PROCEDURE_RETRY_MS_MAX
                if self._next_ms:
                    self._due.add(self._next_ms, 0)
                return

    async def _forget_due(self, id: int) -> None:
        try:
            async with self._locks(id):
                stored = await self._store.load(id)
                if stored is not None and stored.record.ended:
                    longer = self.longer(stored.record, self._clock.now_ms())
                    if longer is None:
                        await self.forget(stored)
                    else:
                        await self._keep(stored, longer.retention_ms)
                    return
            why = "its record is gone" if stored is None else f"it is {stored.record.state.name}"
        except Rejected as error:
            why = error.message
        self._stuck.add(id)
        log.warning("procedure %d is kept although its retention is over: %s", id, why)

    async def drop(self, id: int) -> None:
        """Forget one that has ended, unless it is a child."""
        if self._locks.held(id):
            return
        async with self._locks(id):
            stored = await self._store.load(id)
            if stored is not None and stored.record.ended and not stored.record.parent:
                await self.forget(stored)

    async def forget(self, stored: Stored) -> None:
        """Remove an ended procedure and its whole tree, as soon as nobody needs it. The caller has
        the root's IdLock.
        """
        if self.needed(stored.record):
            age_ms = self._clock.now_ms() - stored.record.updated_ms
            await self._keep(stored, max(0, age_ms) + _NEEDED_MS)
            return
        self.gone(stored.record.id)
        with suppress(Fenced):  # somebody else forgets it
            await self._forget_below(stored)
            await self._store.remove([stored])

    async def _keep(self, stored: Stored, retention_ms: int) -> None:
        with suppress(Fenced):  # somebody else minds it
            await self._store.keep(stored, retention_ms)
        self.ended(replace(stored.record, retention_ms=retention_ms))

    async def _forget_below(self, stored: Stored) -> None:
        for first, count in stored.record.rounds:
            for start in range(first, first + count, _PAGE):
                page = await self._store.load_range(start, min(_PAGE, first + count - start))
                for child in page:
                    await self._forget_below(child)
                if page:
                    await self._store.remove(page)
