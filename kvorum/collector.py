"""The garbage timer: raises every partition's safepoint, and lets it collect what lies below.

The safepoint follows the clock at the distance of the retention: versions younger than that stay
readable. A snapshot that somebody still reads holds nothing back yet; a read below the safepoint
gets SnapshotTooOld.
"""

from __future__ import annotations

import asyncio
import logging

from kv.base.errors import KvorumError
from kv.base.ports import Clock
from kv.base.timestamps import compose
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica

log = logging.getLogger(__name__)


class Collector:
    """Collects on one node until it is cancelled."""

    def __init__(
        self, manager: ReplicaManager, clock: Clock, *, retention_ms: int, interval_ms: int
    ) -> None:
        self.rounds = 0
        self._manager = manager
        self._clock = clock
        self._retention_ms = retention_ms
        self._interval_s = interval_ms / 1000

    async def run(self) -> None:
        """A round every interval."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.collect()

    async def collect(self) -> None:
        """One round over the partitions that this node leads."""
        safepoint = compose(max(0, self._clock.now_ms() - self._retention_ms))
        # Without any intent here, nothing older than the safepoint can still need its record.
        floor = min(self._manager.oldest_lock() or safepoint, safepoint)
        for replica in self._manager.replicas():
            if replica.leads():
                await self._collect(replica, safepoint, floor)
        self.rounds += 1

    async def _collect(self, replica: Replica, safepoint: int, floor: int) -> None:
        done = asyncio.get_running_loop().create_future()

        def finished(error: KvorumError | None) -> None:
            if not done.done():
                done.set_result(error)

        replica.machine.gc(safepoint, floor, finished)
        error = await done
        if error is not None:
            partition = replica.descriptor.id
            log.warning("partition %d was not collected: %s; next round", partition, error)
