"""Leaders go where they belong, gently: one transfer per pause, never to a node that lags.

Each partition has a home among its voters: who its row of the map names, since the balancer or
somebody moved it, else one that follows from its id, so that equally many lead at every node
(procedures/master/map/placement.py: `home`). A node that is slow is nobody's home while another
voter is there.

A failover moves leaderships away from a node; once that is back and has caught up in two looks in a
row, they return one by one. Whoever leads the meta partition does this; when it hands that
partition over itself, the next one goes on.

While everybody leads what belongs to it, nobody is asked before something changes
(procedures/master/map/quiet.py).

Left out here: load. Which home a partition has by load decides procedures/master/balancing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kv.base.errors import KvorumError
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import BALANCE_LAG_MAX, BALANCE_PAUSE_S
from procedures.master.map.groups import Groups
from procedures.master.map.placement import home
from procedures.master.map.quiet import Known, Quiet
from procedures.master.map.replica_methods import TRANSFER, GroupView, MemberView

log = logging.getLogger(__name__)

_NONE: Final[Mapping[PartitionId, NodeId]] = {}


class Move(NamedTuple):
    """A leadership that is not where it belongs."""

    partition: PartitionId
    source: NodeId
    target: NodeId


def moves(
    views: Mapping[NodeId, Sequence[GroupView]],
    wanted: Mapping[PartitionId, NodeId] = _NONE,
    slow: Collection[NodeId] = (),
    damaged: Container[tuple[NodeId, PartitionId]] = (),
) -> list[Move]:
    """What should move and can: the target answers, its leader and the master (it may be cut off
    from one of them), has caught up, is not `damaged` and is not being rebuilt. The meta partition
    comes last: it takes the master along. `views` of all nodes that answer; of these only what
    leaders say counts, the newest term's.
    """
    return [
        Move(view.partition, node, target)
        for node, view, target in astray(views, wanted, slow)
        if target in views  # a leader that the master cannot reach is of no use to procedures
        and view.settled
        and (target, view.partition) not in damaged
        and _ready(view.followers.get(target))
    ]


def astray(
    views: Mapping[NodeId, Sequence[GroupView]],
    wanted: Mapping[PartitionId, NodeId] = _NONE,
    slow: Collection[NodeId] = (),
) -> list[tuple[NodeId, GroupView, NodeId]]:
    """Leaderships that are not at home, whether or not they can move now: who has it, and where it
    belongs. In the order in which they move.
    """
    leaders: dict[PartitionId, tuple[NodeId, GroupView]] = {}
    for node, rows in views.items():
        for view in rows:
            known = leaders.get(view.partition)
            if view.leads and (known is None or view.term > known[1].term):
                leaders[view.partition] = (node, view)
    found: list[tuple[NodeId, GroupView, NodeId]] = []
    order = sorted(leaders, key=lambda partition: (partition == META_PARTITION, partition))
    for partition in order:
        node, view = leaders[partition]
        target = home(partition, view.data_voters, wanted.get(partition), slow)
        if target != node:
            found.append((node, view, target))
    return found


def _ready(follower: MemberView | None) -> bool:
    """Whether it could lead at once."""
    if follower is None or not follower.responsive or follower.snapshot:
        return False
    return follower.lag <= BALANCE_LAG_MAX


def damaged(
    damage: Iterable[tuple[NodeId, PartitionId, str]],
) -> frozenset[tuple[NodeId, PartitionId]]:
    """Replicas that must not be asked to lead."""
    return frozenset((node, partition) for node, partition, _ in damage)


async def _nobody() -> Mapping[PartitionId, NodeId]:
    return _NONE


class Balancer:
    """The loop of a master."""

    def __init__(
        self,
        groups: Groups,
        nodes: Callable[[], Sequence[NodeId]],
        wanted: Callable[[], Awaitable[Mapping[PartitionId, NodeId]]] = _nobody,
        slow: Callable[[], Collection[NodeId]] = tuple,
        quiet: Quiet | None = None,
        known: Callable[[Mapping[PartitionId, NodeId]], Known | None] = lambda _wanted: None,
        damage: Callable[[], Iterable[tuple[NodeId, PartitionId, str]]] = tuple,
    ) -> None:
        """`nodes`: those that may have replicas; `wanted`: homes that the map names. `quiet` with
        `known` (procedures/master/map/quiet.py, of what is wanted): when nobody need be asked.
        `damage`: replicas that hand over whatever they get to lead, and why.
        """
        self._damage = damage
        self._quiet, self._known = quiet, known
        self.transfers = 0
        self._groups, self._nodes = groups, nodes
        self._wanted, self._slow = wanted, slow
        self._seen: frozenset[Move] = frozenset()  # in the look before

    async def run(self) -> None:
        """Until cancelled: as long as this node is the master."""
        while True:
            await asyncio.sleep(BALANCE_PAUSE_S)
            await self.look()

    async def look(self) -> None:
        """Look at all leaders and move one leadership, if it was to be moved the last time too."""
        wanted, slow = await self._wanted(), self._slow()
        if self._quiet is not None and self._quiet.same(self._known(wanted)):
            return
        views = await self._groups.views(self._nodes())
        found = moves(views, wanted, slow, damaged(self._damage()))
        if self._quiet is not None:
            everybody = len(views) == len(self._nodes())
            self._quiet.looked(idle=everybody and not astray(views, wanted, slow))
        steady = [move for move in found if move in self._seen]
        self._seen = frozenset(found)
        if not steady:
            return
        move = steady[0]
        try:
            await self._groups.change(move.partition, TRANSFER, move.target, [move.source])
        except KvorumError as error:
            log.debug("partition %d was not handed over: %s", move.partition, error)
            return
        self.transfers += 1
        log.info(
            "partition %d is handed from node %d to node %d, where it belongs",
            move.partition,
            move.source,
            move.target,
        )
