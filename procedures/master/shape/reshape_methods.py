"""What a node does for the master when partitions are split and merged: the orders to the leader of
a group, each by one entry of its log (kv/partition/shapes.py), and one to every replica.

Each may be repeated: what has been done already gets the same answer. What cannot be done for now
is Busy; what cannot be done at all is Refused, by a leader that has applied all that was ordered
before: so a refusal is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, KvorumError, NotFound, NotLeader, Refused
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_PAUSE_MS
from kv.base.wire_row import WireRow
from kv.partition import shapes
from kv.partition.shapes import Freeze, Merge, Settle, Shape, Thaw
from kv.replica.replica import Replica
from procedures.master.map.replica_methods import NO_REPLICA

CANNOT_MERGE: Final = "CANNOT_MERGE"


class Replicas(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...

    def covering(self, key: bytes) -> PartitionDescriptor | None: ...

    def alike(self, partition: int) -> bool: ...

    async def synced(self) -> None: ...


class ReshapeMethods:
    """The handlers of one node (kv.server.dispatcher.Handler)."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def split(self, _context: object, args: WireRow) -> WireRow:
        """SPLIT_PARTITION: only at the epoch that the procedure saw, so that nothing is cut by an
        order that comes, or goes on, after its procedure was undone: the map would never hear of
        the new partition, and every node remove it.
        """
        partition, key, new, epoch = args
        replica = self._leading(partition)
        there = self._replicas.covering(key)
        if replica.state.frozen is not None:
            raise _later(f"partition {partition} is being merged")
        if there is None or there.id != new:
            shapes.check_split(replica.descriptor, key)
            # What is written but not durable now has to be before the new partition serves.
            await self._replicas.synced()

            def make() -> Shape:
                voters, learners, witnesses = _members(replica)
                d = replica.descriptor
                if d.epoch != epoch:
                    raise _too_late(d, epoch, "CANNOT_SPLIT")
                founded = PartitionDescriptor(
                    PartitionId(new), key, d.end, 1, voters, learners, witnesses
                )
                return shapes.split(d, _Source(replica), key, founded)

            await _reshape(replica, make)
            there = self._replicas.covering(key)
        assert there is not None
        return [replica.descriptor.to_wire(), there.to_wire()]

    async def freeze(self, _context: object, args: WireRow) -> list[object]:
        """FREEZE_PARTITION: only at the epoch that the procedure saw. A thaw raises it, so an order
        that comes late freezes nothing that nobody would thaw.
        """
        partition, epoch = args
        replica = self._leading(partition)

        def make() -> Shape:
            if replica.descriptor.epoch != epoch:
                raise _too_late(replica.descriptor, epoch, CANNOT_MERGE)
            return Freeze(epoch)

        if replica.state.frozen is None:
            await _reshape(replica, make)
        assert replica.state.frozen is not None
        return list(replica.state.frozen)

    async def thaw(self, _context: object, args: WireRow) -> list[object]:
        """THAW_PARTITION, by an entry also where nothing is frozen: a freeze may be on its way."""
        partition, epoch = args
        replica = self._leading(partition)
        if replica.descriptor.epoch == epoch:
            await _reshape(replica, lambda: Thaw(epoch + 1))
        return [replica.descriptor.to_wire()]

    async def caught_up(self, _context: object, args: WireRow) -> list[object]:
        """CAUGHT_UP."""
        partition, index = args
        replica = self._here(partition)
        if replica.installing or replica.state.index < index:
            raise _later(f"partition {partition} has not applied entry {index} at this node yet")
        if not self._replicas.alike(partition):
            raise _later(f"partition {partition} changes its storage shard at this node")
        await self._replicas.synced()
        return [True]

    async def merge(self, _context: object, args: WireRow) -> list[object]:
        """MERGE_PARTITION."""
        partition, epoch, row, index, term, members = args
        right = PartitionDescriptor.from_wire(row)
        replica = self._leading(partition)

        def make() -> Shape:
            d = replica.descriptor
            if d.epoch != epoch or d.end != right.start or not d.end:
                raise Refused(
                    f"partition {partition} is at epoch {d.epoch} now and ends at {d.end[:32]!r}: "
                    f"what was ordered for epoch {epoch} is not done any more",
                    code=CANNOT_MERGE,
                )
            voters, learners, witnesses = _members(replica)
            if sorted({*voters, *learners} - {*witnesses}) != sorted(members):
                raise Refused(
                    f"partition {partition} has replicas at nodes {voters} and {learners} by now, "
                    f"but {members} have caught up",
                    code=CANNOT_MERGE,
                )
            return Merge(d.epoch + 1, right, index, term)

        if not replica.descriptor.covers(right.start):
            await _reshape(replica, make)
        return [replica.descriptor.to_wire()]

    async def settle(self, _context: object, args: WireRow) -> list[object]:
        """SETTLE_PARTITION."""
        partition, epoch = args
        replica = self._leading(partition)

        def make() -> Shape:
            if replica.descriptor.epoch != epoch:  # it happened while this waited
                raise Busy("the partition has changed; ask again", details={"what": "reshaping"})
            return Settle(epoch + 1)

        if replica.descriptor.epoch == epoch:
            await _reshape(replica, make)
        return [replica.descriptor.to_wire()]

    def _here(self, partition: int) -> Replica:
        replica = self._replicas.replica(partition)
        if replica is None:
            raise NotFound(f"partition {partition} has no replica here", code=NO_REPLICA)
        return replica

    def _leading(self, partition: int) -> Replica:
        """The replica, if it leads: then it has applied whatever was ordered before."""
        replica = self._here(partition)
        if not replica.leads():
            leader = replica.leader_hint()
            where = "nobody" if leader is None else f"node {leader}"
            raise NotLeader(f"partition {partition} is led by {where}", details={"leader": leader})
        return replica


class _Source:
    """kv.partition.shapes.Applied of a replica."""

    def __init__(self, replica: Replica) -> None:
        state = replica.state
        self.locks, self.guards = state.locks, state.guards
        self.old_versions, self.live_bytes = state.old_versions, state.live_bytes
        self.share_below = state.share_below
        self.chunk_values = replica.machine.view.chunk_values


def _members(
    replica: Replica,
) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...], tuple[NodeId, ...]]:
    """Voters, learners, witnesses of its group. Raises Busy while they change."""
    status = replica.group.status()
    if status.config_index > status.commit_index or status.transferring_to is not None:
        raise _later(f"the members of partition {status.group_id} are changing")
    voters, learners, witnesses = status.voters, status.learners, status.witnesses
    return (
        tuple(map(NodeId, voters)),
        tuple(map(NodeId, learners)),
        tuple(map(NodeId, witnesses)),
    )


async def _reshape(replica: Replica, make: Callable[[], Shape]) -> None:
    """Have an entry proposed and applied. Raises what refused it; UnknownOutcome is Busy here: the
    caller asks again, and hears what became of it.
    """
    done: asyncio.Future[KvorumError | None] = asyncio.get_running_loop().create_future()

    def answered(error: KvorumError | None) -> None:
        if not done.done():
            done.set_result(error)

    replica.machine.reshape(make, answered)
    error = await done
    if error is None:
        return
    if error.disposition == "unknown_outcome":
        raise _later(error.message)
    raise error


def _too_late(d: PartitionDescriptor, epoch: int, code: str) -> Refused:
    return Refused(
        f"partition {d.id} is at epoch {d.epoch} now: what was ordered for epoch {epoch} is not "
        "done any more",
        code=code,
    )


def _later(message: str) -> Busy:
    return Busy(message, details={"what": "reshaping", "retry_after_ms": MEMBERSHIP_PAUSE_MS})
