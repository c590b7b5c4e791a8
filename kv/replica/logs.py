"""Cutting the logs of a node's replicas (rule 12 of the consensus core): note the applied index,
sync the state DB in a thread, then cut the log below it, less LOG_KEEP_ENTRIES for slow followers;
of large entries fewer are kept: at every LOG_KEEP_BYTES the log is cut to where it stood the time
before. Where no other node is a member, nothing is kept, and LOG_ALONE_BYTES are cut already: small
enough that most entries are gone before their memtable is written to a file
(docs/decisions/1140). One sync serves all partitions. After a failed sync nothing is cut any more.

The group decides in the end: a leader keeps what a follower still needs, within a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from kv.base.ids import PartitionId
from kv.base.limits import LOG_ALONE_BYTES
from kv.replica.counters import ManagerCounters
from kv.replica.replica import Replica
from kv.storage.engine import Engine

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a call that releases the GIL beside the loop (asyncio.to_thread; a simulation runs it at
once).
"""


class LogCutter:
    """See the module. All on the loop."""

    def __init__(
        self,
        engine: Engine,
        in_thread: InThread,
        on_fatal: Callable[[BaseException], object],
        *,
        counters: ManagerCounters,
        keep_entries: int,
        keep_bytes: int,
        alone_bytes: int = LOG_ALONE_BYTES,
    ) -> None:
        self._counters = counters
        self._engine, self._in_thread, self._on_fatal = engine, in_thread, on_fatal
        self._keep, self._keep_bytes = keep_entries, keep_bytes
        self._alone_bytes = min(alone_bytes, keep_bytes)
        self._cut: dict[PartitionId, int] = {}  # the log is cut below this index
        self._marks: dict[PartitionId, int] = {}  # where it stood LOG_KEEP_BYTES ago, or at first
        self.due = asyncio.Event()  # some log is long

    def opened(self, replica: Replica, first_index: int) -> None:
        """The log of a replica begins here."""
        id_ = replica.descriptor.id
        self._cut[id_], self._marks[id_] = first_index - 1, replica.state.index

    def forget(self, partition: PartitionId) -> None:
        self._cut.pop(partition, None)
        self._marks.pop(partition, None)

    def applied(self, replica: Replica) -> None:
        """A replica applied an entry: is its log long enough to be cut?"""
        long = replica.state.index - self._cut.get(replica.descriptor.id, 0) >= 2 * self._keep
        if long or (replica.log_bytes >= self._alone_bytes and self._heavy(replica)):
            self.due.set()

    def _heavy(self, replica: Replica) -> bool:
        most = self._alone_bytes if replica.group.alone() else self._keep_bytes
        return replica.log_bytes >= most

    async def run(self, replicas: Callable[[], Iterable[Replica]]) -> None:
        """Cut logs whenever one has grown, until cancelled."""
        while True:
            await self.due.wait()
            self.due.clear()
            await self.truncate(replicas())

    async def truncate(self, replicas: Iterable[Replica]) -> None:
        """Cut every log down to what is not durable in the state DB, and LOG_KEEP_ENTRIES more."""
        applied = [(replica, replica.state.index) for replica in replicas]
        try:
            await self._in_thread(self._engine.sync)
        except Exception as error:  # noqa: BLE001 - whatever it was: what is in the state DB may not be durable
            self._on_fatal(error)
            return
        for replica, index in applied:
            if replica.descriptor.id not in self._cut:
                continue  # dropped meanwhile
            replica.forget_covered_staging()
            upto = index if replica.group.alone() else index - self._keep
            if self._heavy(replica):
                upto = max(upto, self._marks[replica.descriptor.id])
                self._marks[replica.descriptor.id], replica.log_bytes = index, 0
            if upto > self._cut[replica.descriptor.id]:
                replica.group.compact(upto)
                self._cut[replica.descriptor.id] = upto
                self._counters.truncations += 1
