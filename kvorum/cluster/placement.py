"""Partitions on several nodes: on all voters of the meta partition, or on as many as a table wants
(procedures/master/map/placement.py).

The procedure that makes or drops a table runs at the master; it asks the nodes, by node methods
that may be repeated. A majority of its voters must have made a replica before a partition counts as
made; a node that was away makes it when it hears of it (reconciling, procedures/master).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, NotLeader, TooLarge, Unavailable
from kv.base.ids import META_PARTITION, NodeId, PartitionId, TableId
from kv.base.node_methods import NodesById
from kv.base.placement import Placement
from kv.base.wire_row import WireRow
from kv.replica.replica import Replica
from kv.replica.verifying import verify_part
from kvorum.api.cursor import table_id
from kvorum.api.names import PREFIX_BYTES
from procedures.master.balancing.model import Level, level_of
from procedures.master.map.nodes import all_nodes
from procedures.master.map.partitions import Place, Placed, Reader, placed_partitions
from procedures.master.map.placement import (
    candidates,
    checked_seats,
    home,
    no_node_with,
    spread,
)
from procedures.verbs import CAMPAIGN, CREATE_PARTITION, DROP_PARTITION

log = logging.getLogger(__name__)

_BUDGET_MS: Final = 30_000


class Replicas(Protocol):
    """kv.replica.manager.ReplicaManager."""

    async def create(self, descriptor: PartitionDescriptor) -> None: ...

    async def drop(self, partition: PartitionId) -> None: ...

    def here(self, partition: PartitionId) -> PartitionDescriptor | None:
        """What this node has of it, be it open or not."""
        ...

    def replica(self, partition: int) -> Replica | None: ...


class SpreadPartitions:
    """What sqlproxy.ddl.ddl wants of procedures.master.map.partitions.Partitions, on several
    nodes."""

    def __init__(
        self,
        calls: NodesById,
        everywhere: Callable[[], Place],
        answers: Callable[[NodeId], bool],
        settle: Callable[[Sequence[PartitionDescriptor]], Awaitable[None]],
        level: Callable[[], Level],
        homes: Callable[[], Awaitable[Mapping[PartitionId, NodeId]]],
    ) -> None:
        """`everywhere`: where partitions go whose table wants no number of replicas; `answers`:
        whether a node is heard now; `settle`: ends what is anchored in partitions that go away;
        `level`: what two replicas must not share; `homes`: who should lead, if not who follows
        from the id.
        """
        self._calls = calls
        self._everywhere, self._answers, self._settle = everywhere, answers, settle
        self._level, self._homes = level, homes

    async def places(
        self,
        t: Reader,
        ids: Sequence[PartitionId],
        wanted: Placement,
    ) -> list[Place]:
        """See procedures.master.map.partitions.Maker. Raises Corruption; Unavailable: there is no
        member yet that keeps data; Refused (NO_NODE_WITH_TAGS, CANNOT_SURVIVE).
        """
        if not wanted.replicas and not wanted.tags:
            return [self._everywhere()] * len(ids)
        nodes = await all_nodes(t)
        among = candidates(nodes, await placed_partitions(t), self._answers, wanted.tags)
        if not among and wanted.tags:
            raise no_node_with(wanted.tags, nodes)
        if not among:
            raise Unavailable("no node that keeps data is a member yet; trying again")
        if not wanted.replicas:
            return [Place(tuple(one.node for one in among))] * len(ids)
        there = checked_seats(wanted, nodes)
        beside = tuple(sorted(there.witnesses, key=lambda node: not self._answers(node))[:1])
        level = level_of(wanted.survive) or self._level()
        found = spread(ids, there.data, among, level, wanted.leaders)
        return [Place(tuple(sorted((*chosen, *beside))), beside) for chosen in found]

    async def create(
        self, descriptors: Sequence[PartitionDescriptor], *, late: bool = False
    ) -> None:
        """Replicas of all of them, at a majority of their voters at least; then each is led where
        it is at home. `late`: see procedures.master.map.partitions.Maker.
        """
        if late:
            await self._at_voters(descriptors, CREATE_PARTITION, _without_members)
            return
        await self._at_voters(descriptors, CREATE_PARTITION, PartitionDescriptor.to_wire)
        homes = await self._homes()
        first: dict[NodeId, list[object]] = {}
        for descriptor in descriptors:
            leader = home(descriptor.id, descriptor.data_voters, homes.get(descriptor.id))
            first.setdefault(leader, []).append(descriptor.id)
        async with asyncio.TaskGroup() as group:
            for node, ids in first.items():  # where that fails, an election follows by itself
                group.create_task(self._tell(node, CAMPAIGN, ids))

    async def close(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """See kvorum/storage/drop_transactions.py."""
        await self._settle(descriptors)

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Remove replicas with their data, the last one first. They are not in the map any more, so
        a node that is away removes them when it comes back; a table whose only copies were lost
        with their nodes can be dropped.
        """
        last_first = list(reversed(descriptors))
        await self._at_voters(last_first, DROP_PARTITION, lambda d: d.id, pass_by_silent=True)

    async def _at_voters(
        self,
        descriptors: Sequence[PartitionDescriptor],
        method: int,
        item: Callable[[PartitionDescriptor], object],
        *,
        pass_by_silent: bool = False,
    ) -> None:
        """One call per voter, with its partitions. Raises the error of one that failed if fewer
        than a majority did it for some partition; `pass_by_silent`: not counting nodes that are
        not heard.
        """
        items: dict[NodeId, list[object]] = {}
        for descriptor in descriptors:
            for node in descriptor.voters:
                items.setdefault(node, []).append(item(descriptor))
        async with asyncio.TaskGroup() as group:
            tasks = {
                node: group.create_task(self._tell(node, method, arg))
                for node, arg in items.items()
            }
        errors = {node: e for node, task in tasks.items() if (e := task.result()) is not None}
        if pass_by_silent:
            errors = {node: e for node, e in errors.items() if self._answers(node)}
        for nodes in dict.fromkeys(descriptor.voters for descriptor in descriptors):
            failed = [errors[node] for node in nodes if node in errors]
            if 2 * len(failed) >= len(nodes):
                for error in failed:
                    if isinstance(error, TooLarge):
                        raise error  # it would be said again
                raise Unavailable(
                    f"only {len(nodes) - len(failed)} of {len(nodes)} nodes did it: "
                    f"{failed[-1].message}; trying again"
                ) from failed[-1]

    async def _tell(self, node: NodeId, method: int, arg: list[object]) -> KvorumError | None:
        try:
            await self._calls.call_at(node, method, arg, budget_ms=_BUDGET_MS)
        except KvorumError as error:
            log.warning("node %d did not take a change of partitions: %s", node, error)
            return error
        return None


def _without_members(descriptor: PartitionDescriptor) -> object:
    """An empty log that its node has perhaps lost gives no vote: the leader sends who they are."""
    return replace(descriptor, voters=(), learners=(), witnesses=()).to_wire()


class PartitionMethods:
    """What one node is ordered to do with its replicas.

    Whoever orders it, a replica that the cluster counts on is not removed: the node looks at the
    map itself, and for the meta partition, which is not in the map, at the group.
    """

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        placed: Callable[[bytes], Awaitable[Placed | None]],
        used: Callable[[TableId], Awaitable[bool]],
        meta_members: Callable[[], Awaitable[Sequence[NodeId] | None]],
        leave_meta: Callable[[], Awaitable[None]],
    ) -> None:
        """`placed(start)`: the row of the map under a start key, as it is now; `used(table)`: do
        rows of it count, so that the undo of what makes a table can remove it; `meta_members`: of
        the meta partition, as its leader has committed them, None if it does not answer;
        `leave_meta`: remove this node's replica of it, if it is damaged.
        """
        self._node, self._replicas, self._placed, self._used = node, replicas, placed, used
        self._meta_members, self._leave_meta = meta_members, leave_meta

    async def create(self, _context: object, args: WireRow) -> list[object]:
        """Replicas of all descriptors."""
        for row in args[0]:
            await self._replicas.create(PartitionDescriptor.from_wire(row))
        return [True]

    def campaign(self, _context: object, args: WireRow) -> list[object]:
        """Stand for all that are here and have no leader."""
        for partition in args[0]:
            replica = self._replicas.replica(partition)
            if replica is not None:
                replica.group.campaign()
        return [True]

    async def drop(self, _context: object, args: WireRow) -> list[object]:
        """No replicas of these partitions any more. Raises Unavailable: one is counted on, or it
        is not known now; those before it are gone.
        """
        for partition in args[0]:
            await self._refuse_member(PartitionId(partition))
            if partition == META_PARTITION:
                await self._leave_meta()
            else:
                await self._replicas.drop(PartitionId(partition))
        return [True]

    async def _refuse_member(self, partition: PartitionId) -> None:
        if partition == META_PARTITION:
            members = await self._meta_members()
            if members is not None and self._node not in members:
                return
        else:
            here = self._replicas.here(partition)
            if here is None:
                return
            row = await self._placed(here.start)
            if row is None or row.descriptor.id != partition or self._node not in row.nodes:
                return
            if not await self._used(TableId(table_id(here.start[:PREFIX_BYTES]))):
                return
        raise Unavailable(
            f"node {self._node} keeps its replica of partition {partition}: the cluster counts on "
            "it. It goes when it is a member no more"
        )

    def verify(self, _context: object, args: WireRow) -> list[object]:
        """VERIFY_REPLICA. Raises NotLeader, Corruption."""
        partition, place, key = args
        replica = self._replicas.replica(partition)
        if replica is None or not replica.leads():
            raise NotLeader(f"partition {partition} is not led by node {self._node}")
        return [*verify_part(replica, place, key)]
