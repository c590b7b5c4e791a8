"""Ends the transactions that have a table's keys, and others, before the table is dropped.

    ANCHORED at every node: closes the table to new writes, and returns intents and guards
      of transactions that have their record in it    ─▶ ROLLBACK there, which says if it
                                                         committed ─▶ RESOLVE elsewhere
      in it, with their record elsewhere              ─▶ if STAGING: recovery, as by a reader
    … until all of the table is closed and quiet, and no node finds any more, twice: what the first
    look found nothing of in the table may have been committed before, with intents elsewhere

Else nobody could ever know of intents in other tables: committed and acknowledged, or abandoned? A
transaction that has its record in the table and has not committed by then is rolled back; one that
only has a part in it is decided by its own record, and never waited for unless that is STAGING.

Being closed is a record in each partition's own log (kv/replica/metakeys.py: CLOSED; decision
0905): the leader refuses new writes from the moment that it is asked, and counts as closed when the
record is applied. Whoever leads later has applied it before it serves, after restarts and from a
snapshot, too.

What is left is a partition whose leader is not heard for SETTLE_MS_MAX: it is dropped as it is.
What such a leader lets in until its replicas are gone loses its record, or a part, with the table.
A coordinator that lives resolves what it has committed; when it dies as well, nobody can say any
more what became of it: whoever asks at an anchor that no partition has (`gone`) takes it for rolled
back, and a part that no partition has for missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.intents import Abandoned, TxnId, txn_id
from kv.base.limits import SETTLE_KEYS_MAX, SETTLE_MS_MAX
from kv.base.ports import Timers
from kv.base.wire_row import WireRow
from kv.replica.anchored_transactions import anchored, close, inside
from kv.replica.manager import ReplicaManager
from kvorum.api.verbs import ANCHORED
from kvorum.cluster.links import NodeCalls
from kvorum.cluster.members import partition_map
from txn.client import TxnClient
from txn.shared.deadlines import Deadline

log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1

_Answer = tuple[list[Abandoned], list[int]]
"""What one node answers."""


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

    def handle(self, _context: object, args: WireRow) -> list[object]:
        """ANCHORED."""
        found, closed = self._here(*args)
        return [[list(one) for one in found], closed]

    def _here(self, start: bytes, end: bytes) -> _Answer:
        replicas = self._manager.replicas()
        closed = close(replicas, start, end)
        return anchored(replicas, start, end, SETTLE_KEYS_MAX), closed

    async def settle(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """These partitions of one table take no writes any more, and nothing outside of them
        depends on them; or SETTLE_MS_MAX are over: a node that does not answer must not keep a
        table for ever.
        """
        if not descriptors:
            return
        start, end = descriptors[0].start, descriptors[-1].end
        wanted = {descriptor.id for descriptor in descriptors}
        deadline = Deadline(self._timers, SETTLE_MS_MAX)
        decided: set[TxnId] = set()  # of those whose record is elsewhere
        clean = 0  # looks in a row
        while True:
            found, closed = await self._everywhere(start, end)
            found = [one for one in found if _id(one) not in decided]
            clean = clean + 1 if not found and wanted <= closed else 0
            if clean == 2:
                return
            if deadline.passed:
                log.warning(
                    "a table is dropped though %d transactions reach beyond it, or some node does "
                    "not answer",
                    len(found),
                )
                return
            ended = await asyncio.gather(
                *(self._end(one, deadline, inside(one.anchor, start, end)) for one in found)
            )
            decided.update(_id(one) for one, done in zip(found, ended, strict=True) if done)
            if not (clean or found):
                await asyncio.sleep(_PAUSE_S)

    async def _everywhere(self, start: bytes, end: bytes) -> tuple[list[Abandoned], set[int]]:
        """What all nodes found, and the partitions that are closed and quiet: none unless all nodes
        answered.
        """

        async def ask(node: int) -> _Answer | None:
            try:
                rows, closed = await self._calls.call_at(node, ANCHORED, start, end)
            except KvorumError:
                return None
            return [Abandoned(*row) for row in rows], closed

        asked = await asyncio.gather(*(ask(node) for node in self._nodes()))
        answers = [self._here(start, end), *(one for one in asked if one is not None)]
        found = [one for rows, _ in answers for one in rows]
        closed = {partition for _, ids in answers for partition in ids}
        return found, closed if None not in asked else set()

    async def _end(self, one: Abandoned, deadline: Deadline, rollback: bool) -> bool:
        """Whether it need not be looked at again though it is still found."""
        try:
            if not rollback:
                done = await self._txn.resolver.decide(one, budget_ms=deadline.budget_ms())
                if not done:
                    await asyncio.sleep(_PAUSE_S)
                return done
            await self._txn.resolver.end(one, budget_ms=deadline.budget_ms())
        except KvorumError as error:
            log.info("transaction %d was not ended: %s; trying again", one.start_ts, error)
            await asyncio.sleep(_PAUSE_S)
        return False

    async def gone(self, anchor: bytes) -> bool:
        """Whether no partition has this key, and none will: its table was dropped. Raises
        KvorumError.
        """
        return not any(d.covers(anchor) for d in await partition_map(self._txn))


def _id(one: Abandoned) -> TxnId:
    return txn_id(one.start_ts, one.user or "")
