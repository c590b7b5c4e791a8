"""Ends the transactions that are anchored in a table before the table is dropped.

    ANCHORED at every node ─▶ ROLLBACK at the anchor, which tells if it committed ─▶ RESOLVE
                     … until no node finds any more

Else their intents in other tables could never be told apart: committed and acknowledged, or
abandoned. A transaction that has not committed by then is rolled back: its table goes away.

What comes later, from a client that does not know yet that the table is gone, loses its record with
the table. When its coordinator dies as well, nobody can say any more what became of it: whoever
asks at an anchor that no partition has (`gone`) takes it for rolled back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.intents import Abandoned
from kv.base.limits import SETTLE_KEYS_MAX, SETTLE_MS_MAX
from kv.base.methods import ANCHORED
from kv.base.ports import Timers
from kv.replica.anchored import anchored
from kv.replica.manager import ReplicaManager
from kvorum.links import NodeCalls
from kvorum.members import partition_map
from txn.client import TxnClient
from txn.waiting import Deadline

log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1


class Settling:
    """See the module. `handle` serves ANCHORED at this node."""

    def __init__(
        self,
        manager: ReplicaManager,
        nodes: Callable[[], Sequence[int]],
        calls: NodeCalls,
        txn: TxnClient,
        timers: Timers,
    ) -> None:
        """`nodes`: the others."""
        self._manager, self._nodes, self._calls = manager, nodes, calls
        self._txn, self._timers = txn, timers

    def handle(self, _context: object, args: list[Any]) -> list[Any]:
        """ANCHORED."""
        start, end = args
        return [[list(one) for one in self._here(start, end)]]

    def _here(self, start: bytes, end: bytes) -> list[Abandoned]:
        return anchored(self._manager.replicas(), start, end, SETTLE_KEYS_MAX)

    async def settle(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Nothing outside these partitions of one table has its record in them any more, or
        SETTLE_MS_MAX are over: a node that does not answer must not keep a table for ever.
        """
        if not descriptors:
            return
        start, end = descriptors[0].start, descriptors[-1].end
        deadline = Deadline(self._timers, SETTLE_MS_MAX)
        while True:
            found, all_answered = await self._everywhere(start, end)
            if not found and all_answered:
                return
            if deadline.passed:
                log.warning(
                    "a table is dropped though %d transactions with intents elsewhere have their "
                    "record in it, or some node does not answer", len(found)
                )  # fmt: skip
                return
            await asyncio.gather(*(self._end(one, deadline) for one in found))
            if not all_answered:
                await asyncio.sleep(_PAUSE_S)

    async def _everywhere(self, start: bytes, end: bytes) -> tuple[list[Abandoned], bool]:
        async def ask(node: int) -> list[Abandoned] | None:
            try:
                (rows,) = await self._calls.call_at(node, ANCHORED, start, end)
            except KvorumError:
                return None
            return [Abandoned(*row) for row in rows]

        told = await asyncio.gather(*(ask(node) for node in self._nodes()))
        found = self._here(start, end)
        for rows in told:
            found += rows or []
        return found, None not in told

    async def _end(self, one: Abandoned, deadline: Deadline) -> None:
        try:
            await self._txn.resolver.end(one, budget_ms=deadline.budget_ms())
        except KvorumError as error:
            log.info("transaction %d was not ended: %s; trying again", one.start_ts, error)
            await asyncio.sleep(_PAUSE_S)

    async def gone(self, anchor: bytes) -> bool:
        """Whether no partition has this key, and none will: its table was dropped. Raises
        KvorumError.
        """
        return not any(d.covers(anchor) for d in await partition_map(self._txn))
