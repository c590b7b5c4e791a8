"""The garbage timer: raises every partition's safepoint, and lets it collect what lies below.

The safepoint is the cluster's, of the meta partition's leader (tso/safepoint.py): it follows the
retention and stays below every snapshot that is held. A read below it gets SnapshotTooOld.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kv.base.errors import KvorumError
from kv.base.methods import COLLECT_BELOW
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica

log = logging.getLogger(__name__)


class Collector:
    """Collects on one node until it is cancelled."""

    def __init__(
        self,
        manager: ReplicaManager,
        ask: Callable[[int], Awaitable[list[Any]]],
        *,
        interval_ms: int,
    ) -> None:
        """`ask(method)`: a method of the meta partition's leader."""
        self.rounds = 0
        self._manager = manager
        self._ask = ask
        self._interval_s = interval_ms / 1000

    async def run(self) -> None:
        """A round every interval."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.collect()

    async def collect(self) -> None:
        """One round over the partitions that this node leads."""
        try:
            (safepoint,) = await self._ask(COLLECT_BELOW)
        except KvorumError as error:
            log.info("the safepoint could not be learned: %s; next round", error)
            return
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
