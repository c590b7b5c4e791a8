"""Finishes what dead coordinators left behind and nobody meets (D6, D12).

Whoever meets an intent asks for its transaction and resolves it; but a key that nobody reads again
would keep its intent for ever, and an old intent keeps the records of all younger transactions from
being collected. So a node goes through the intents of the partitions that it leads, a bounded
number per round, longest not looked at first; the next round comes soon while most of them go. One
that is older than its time to live is treated as if it had been met: CHECK at the anchor, which
rolls an abandoned transaction back, and RESOLVE when it is over. A transaction that still sends
heartbeats is left alone.

What fails is tried again in a later round. Without intents a round is one look at an empty table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

from kv.base.errors import KvorumError
from kv.base.intents import Abandoned
from kv.base.limits import (
    SWEEP_INTENTS_MAX,
    SWEEP_INTERVAL_MS,
    SWEEP_PAUSE_MS,
    SWEEPS_IN_FLIGHT_MAX,
)
from kv.base.ports import Clock, Timers
from txn.intents.resolver import Resolver
from txn.shared.deadlines import sleep


class Intents(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def abandoned(self, now_ms: int, looks_max: int) -> Sequence[Abandoned]: ...


class Sweeper:
    """Sweeps one node until it is cancelled."""

    def __init__(self, intents: Intents, resolver: Resolver, clock: Clock, timers: Timers) -> None:
        self.swept = 0  # intents that were removed or became versions
        self._intents = intents
        self._resolver = resolver
        self._clock = clock
        self._timers = timers

    async def run(self) -> None:
        """A round every SWEEP_INTERVAL_MS; sooner while there is more than one round can do."""
        more = False
        while True:
            await sleep(self._timers, (SWEEP_PAUSE_MS if more else SWEEP_INTERVAL_MS) / 1000)
            more = await self.sweep()

    async def sweep(self) -> bool:
        """One round; whether most of what it looked at was abandoned, and went."""
        found = self._intents.abandoned(self._clock.now_ms(), SWEEP_INTENTS_MAX)
        if not found:
            return False
        before = self.swept
        waiting = iter(found)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(found), SWEEPS_IN_FLIGHT_MAX)):
                group.create_task(self._finish_each(waiting))
        return self.swept - before > SWEEP_INTENTS_MAX // 2

    async def _finish_each(self, waiting: Iterator[Abandoned]) -> None:
        for one in waiting:
            try:
                gone = await self._resolver.finish(one)
            except KvorumError:
                continue  # the next round finds it again
            self.swept += gone  # in a step of its own: others count meanwhile
