"""Each node compares its replicas with the map: makes what it misses, removes what is nobody's,
moves what lies in another storage shard.

    at the start, every RECONCILE_S, and when consensus hears of a group that is not here; sooner
    after a look that failed, or that must be confirmed

Removing is for ever, so it needs proof. The own replicas are listed first, then the whole map is
read at one later snapshot: a replica that is being made was in the map before it was made
(procedures/master/map/partitions.py). A read that fails, or a row that cannot be read, proves
nothing: nothing is removed, and the count begins anew. Only what RECONCILE_LOOKS_MIN reads in a row
have missed goes. The meta partition holds the map and is never touched.

Of a partition that was split or merged a node may lag behind the map: its replica of the old one
still covers what the new one has. Then the new one is not made here: the old one's log, or a
snapshot of it, does that or makes room. A witness has no rows that could meet, and applies no log
that would cut them: it makes its replica of what was split off as soon as the map has it, or that
group would lack its vote.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import RECONCILE_AGAIN_S, RECONCILE_LOOKS_MIN, RECONCILE_S
from procedures.master.map.partitions import Placed

log = logging.getLogger(__name__)

_CROWD_S: Final = 0.1  # hints come in crowds


class Replicas(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def descriptors(self) -> list[PartitionDescriptor]: ...

    async def create(self, descriptor: PartitionDescriptor) -> None: ...

    async def drop(self, partition: PartitionId) -> None: ...

    def frozen(self) -> set[PartitionId]:
        """Those that stand still, to be merged into the one below."""
        ...


@dataclass(frozen=True, slots=True)
class Differences:
    """What a node must do, in key order."""

    missing: tuple[PartitionDescriptor, ...]
    foreign: tuple[PartitionId, ...]
    elsewhere: tuple[PartitionDescriptor, ...] = ()
    """Replicas that are in another storage shard than these say."""


def differences(
    node: NodeId,
    own: Sequence[PartitionDescriptor],
    rows: Sequence[Placed],
    frozen: Collection[PartitionId] = (),
) -> Differences:
    """`own` was listed before the map was read. One that stands still is not removed while there is
    the one below it, older than the map: that takes its rows in when it comes so far in its log. If
    it is not older, it has come there by a snapshot, and of something that was split again since.
    """
    mine = {row.descriptor.id: row for row in rows if node in row.nodes}
    there = {descriptor.id for descriptor in own}
    shards = {descriptor.id: descriptor.shard for descriptor in own}
    missing = [
        row.begins_at(node)
        for id_, row in mine.items()
        if id_ not in there
        and (
            node in row.descriptor.witnesses
            or not any(_meet(row.descriptor, d) for d in own if d.id in mine)
        )
    ]
    elsewhere = [
        row.begins_at(node)
        for id_, row in mine.items()
        if id_ in there and shards[id_] != row.descriptor.shard and not row.change
    ]
    known = mine.keys() | {row.change[1] for row in mine.values() if row.change}
    below = {d.end for d in own if d.id in mine and d.epoch < mine[d.id].descriptor.epoch}
    foreign = [
        d.id
        for d in own
        if d.id not in known
        and d.id != META_PARTITION
        and not (d.id in frozen and d.start in below)
    ]
    return Differences(tuple(missing), tuple(foreign), tuple(elsewhere))


def _meet(a: PartitionDescriptor, b: PartitionDescriptor) -> bool:
    return (not a.end or b.start < a.end) and (not b.end or a.start < b.end)


class Reconciler:
    """The loop of one node."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        read_map: Callable[[], Awaitable[Sequence[Placed]]],
    ) -> None:
        """`read_map`: all of it at one snapshot that is newer than the call, or an error."""
        self.looks = self.made = self.removed = 0
        self._node, self._replicas, self._read_map = node, replicas, read_map
        self._missed: Mapping[PartitionId, int] = {}  # reads in a row that did not have it
        self._wanted = asyncio.Event()

    def hurry(self) -> None:
        """Something hints at a difference: look soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wanted.clear()
            pause_s = RECONCILE_S
            try:
                await self.look()
            except KvorumError as error:
                log.info("replicas were not compared with the map: %s; again soon", error)
                pause_s = RECONCILE_AGAIN_S
            if self._missed:
                pause_s = RECONCILE_AGAIN_S
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wanted.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_CROWD_S)

    async def look(self) -> None:
        """Compare once and act. Raises KvorumError: what could not be read; or, when all the rest
        was done, the first that could not be made or removed.
        """
        own = self._replicas.descriptors()
        try:
            rows = await self._read_map()
        except BaseException:
            self._missed = {}
            raise
        found = differences(self._node, own, rows, self._replicas.frozen())
        counts = {id_: self._missed.get(id_, 0) + 1 for id_ in found.foreign}
        doomed = [id_ for id_, count in counts.items() if count >= RECONCILE_LOOKS_MIN]
        self._missed = counts
        refused: list[KvorumError] = []
        for id_ in doomed:
            log.info("partition %d has no replica at this node any more: removing its data", id_)
            with _each(refused):
                await self._replicas.drop(id_)
                self._missed = {one: count for one, count in self._missed.items() if one != id_}
                self.removed += 1
        for descriptor in found.missing:
            log.info("partition %d should have a replica here: making it", descriptor.id)
            with _each(refused):
                await self._replicas.create(descriptor)
                self.made += 1
        for descriptor in found.elsewhere:
            with _each(refused):
                await self._replicas.create(descriptor)
        if refused:
            raise refused[0]
        self.looks += 1


@contextmanager
def _each(refused: list[KvorumError]) -> Iterator[None]:
    """One that is refused holds up none of the others."""
    try:
        yield
    except KvorumError as error:
        refused.append(error)
