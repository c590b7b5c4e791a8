"""Collects garbage at one node: what nobody can read any more, of the partitions that it leads.

    every interval   ask the master for the safepoint (COLLECT_BELOW; tso/safepoint.py)
        old versions   walked where the counters say that it pays (kvorum/storage/garbage.py)
        gcq            looked through once for all partitions: expired records, tombstones, the
                       records of transactions (kv/replica/due_garbage.py)
        files          looked at by who rewrites them (kvorum/storage/compaction.py)

A node that has nothing to collect does not ask: the master makes every new safepoint durable, a log
entry and a sync at a majority, so an idle cluster would never be at rest.

A partition gets a safepoint only when something of it is to be collected: one without garbage
is not written to, and sleeps on. It then answers reads below the cluster's safepoint, rightly:
everything that they see is still there.

Work is cut into steps of GC_STEP_ROWS_MAX rows, each a command of its partition with a pause after
it, so that requests never wait for more than one step.

A transaction's record may only go when no intent anywhere can still need it: the intents may lie in
any partition, so all leaders are asked for their oldest, seldom (kvorum/storage/oldest_intent.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Protocol

from kv.base.errors import KvorumError
from kv.base.ids import PartitionId
from kv.base.keys import u64
from kv.base.limits import (
    GC_PAUSE_MS,
    GC_STEP_ROWS_MAX,
)
from kv.base.timestamps import compose
from kv.base.wire_row import WireRow
from kv.mvcc.gc import Collected, Due, OldVersions
from kv.replica.due_garbage import due_rows, forget, start_ts_of
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica
from kv.storage.engine import Engine
from kvorum.storage.called_back import called_back
from kvorum.storage.garbage import Garbage
from tso.verbs import COLLECT_BELOW

log = logging.getLogger(__name__)

_FROM_THE_START: Final = 20  # rounds after which the whole queue is looked at again


class Floor(Protocol):
    """Below which no transaction has an intent anywhere (kvorum/storage/oldest_intent.py)."""

    async def find(self) -> int:
        """Raises KvorumError: it is not known now."""
        ...


class Collector:
    """Collects at one node until it is cancelled. Counts `rounds` and rows `removed`."""

    def __init__(
        self,
        manager: ReplicaManager,
        engine: Engine,
        ask: Callable[[int], Awaitable[WireRow]],
        floor: Floor,
        *,
        interval_ms: int,
        now_ms: Callable[[], int],
        after_round: Callable[[], object] = lambda: None,
    ) -> None:
        """`engine`: the state DB. `ask(method)`: the meta partition's leader."""
        self.rounds = self.removed = self.walks = 0
        self._manager, self._engine, self._floor = manager, engine, floor
        self._ask, self._now_ms, self._after_round = ask, now_ms, after_round
        self._configured_s = self._interval_s = interval_ms / 1000
        self._paced = asyncio.Event()
        self._garbage: dict[PartitionId, Garbage] = {}  # of the partitions that are led here
        self._at = b""  # below it nothing in gcq waits for this node

    async def run(self) -> None:
        """A round every interval."""
        while True:
            self._paced.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._paced.wait()
                continue  # the pause has changed
            try:
                await self.collect()
            except KvorumError as error:  # of the database: a stall, a full disk
                _tell("this round of collecting has ended", error)

    def pace(self, interval_ms: int) -> None:
        """Another interval from now on; 0: the one of the start."""
        self._interval_s = interval_ms / 1000 or self._configured_s
        self._paced.set()

    async def collect(self) -> None:
        """One round."""
        led = {r.descriptor.id: r for r in self._manager.replicas() if r.leads()}
        if led.keys() - self._garbage.keys() or self.rounds % _FROM_THE_START == 0:
            self._at = b""
        self._garbage = {id: self._garbage.get(id) or Garbage() for id in led}
        if self._wanted(led.values()):
            try:
                (safepoint,) = await self._ask(COLLECT_BELOW)
            except KvorumError as error:
                _tell("the safepoint could not be learned", error)
                return
            for replica in led.values():
                await self._tolerate(self._old_versions(replica, safepoint), replica)
            await self._due(led, safepoint)
        self.rounds += 1
        self._after_round()

    def _wanted(self, led: Iterable[Replica]) -> bool:
        """Whether there is anything here that a safepoint could let go: old versions, or a row of
        the queue whose time has come.
        """
        if any(replica.state.old_versions for replica in led):
            return True
        return bool(self._engine.scan("gcq", self._at, u64(compose(self._now_ms())), limit=1))

    def stats(self) -> dict[str, int]:
        """For metrics."""
        return {
            "rounds": self.rounds,
            "removed": self.removed,
            "walks": self.walks,
        }

    async def _tolerate(self, work: Awaitable[None], replica: Replica) -> None:
        try:
            await work
        except KvorumError as error:
            _tell(f"partition {replica.descriptor.id} was not collected", error)

    # -- old versions

    async def _old_versions(self, replica: Replica, safepoint: int) -> None:
        state, garbage = replica.state, self._garbage[replica.descriptor.id]
        found = garbage.look(state.old_versions, state.top_ts, safepoint)
        if not garbage.worth_a_walk(found, state.collected.rows):
            return
        self.walks += 1
        await raised(replica, safepoint)
        at: bytes | None = b""
        while at is not None:
            done = await self._step(replica, OldVersions(at))
            garbage.removed(done.removed)
            at = done.at
        garbage.walked()

    async def _step(self, replica: Replica, step: OldVersions | Due) -> Collected:
        answer: asyncio.Future[Collected] = asyncio.get_running_loop().create_future()

        def done(result: Collected | KvorumError) -> None:
            if answer.done():
                return
            if isinstance(result, KvorumError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        replica.machine.collect(step, done)
        result = await answer
        self.removed += result.removed
        await asyncio.sleep(GC_PAUSE_MS / 1000)
        return result

    # -- what is due

    async def _due(self, led: dict[PartitionId, Replica], safepoint: int) -> None:
        at: bytes | None = self._at
        left: bytes | None = None  # the first row that stays for another round
        while at is not None:
            found = due_rows(self._engine, self._manager.covering, at, safepoint, GC_STEP_ROWS_MAX)
            at = found.at
            if found.strangers:
                forget(self._engine, found.strangers)
                self.removed += len(found.strangers)
            floor = await self._floor_for(found.of.values())
            for id, rows in found.of.items():
                replica = led.get(id)
                mine = [] if replica is None else [row for row in rows if _may_go(row, floor)]
                removed = 0
                if replica is not None and mine:
                    removed = await self._due_of(replica, safepoint, Due(mine, floor))
                if removed < len(rows):
                    left = rows[0] if left is None else min(left, rows[0])
        self._at = left if left is not None else (safepoint + 1).to_bytes(8, "big")

    async def _due_of(self, replica: Replica, safepoint: int, step: Due) -> int:
        try:
            await raised(replica, safepoint)
            return (await self._step(replica, step)).removed
        except KvorumError as error:
            _tell(f"partition {replica.descriptor.id} was not collected", error)
            return 0

    async def _floor_for(self, found: Iterable[list[bytes]]) -> int:
        """0 when no record of a transaction is among the rows, or nothing is known."""
        if not any(start_ts_of(row) for rows in found for row in rows):
            return 0
        try:
            return await self._floor.find()
        except KvorumError as error:
            _tell("no record of a transaction was collected", error)
            return 0


def _tell(what: str, error: KvorumError) -> None:
    """Usually a leader changed; damage wants to be seen."""
    level = logging.WARNING if error.disposition == "no" else logging.INFO
    log.log(level, "%s: %s; next round", what, error)


def _may_go(row: bytes, floor: int) -> bool:
    start_ts = start_ts_of(row)
    return start_ts is None or start_ts < floor


async def raised(replica: Replica, safepoint: int) -> None:
    """Raise a partition's safepoint, durably."""
    if safepoint <= replica.state.safepoint:
        return
    await called_back(partial(replica.machine.raise_safepoint, safepoint))
