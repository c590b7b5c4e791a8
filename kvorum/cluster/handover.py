"""Handing leaderships to other nodes: all before this one stops, so that its clients wait for a
round trip and not for an election; and to a node that hears the oracle, when this one does not.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kv.base.ids import NodeId
from kv.base.limits import BALANCE_LAG_MAX, TRANSFER_MS_MAX
from kv.base.ports import Timers
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica
from raft.api import GroupStatus
from raft.errors import RaftError

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.01


async def away(manager: ReplicaManager, own: NodeId, timers: Timers) -> None:
    """Until nobody is led here, nobody else could lead, or TRANSFER_MS_MAX has passed: whoever is
    left finds out by its election timeout. What comes back stays: others are stopping, too.
    """
    deadline = timers.monotonic() + TRANSFER_MS_MAX / 1000
    given: dict[int, int] = {}  # the term in which a partition was handed over first
    while timers.monotonic() < deadline:
        waiting = [replica for replica in manager.replicas() if _give(replica, own, given)]
        if not waiting:
            return
        await asyncio.sleep(_LOOK_S)
    log.warning("this node stops while it still leads some partitions: others will be elected")


def _give(replica: Replica, own: NodeId, given: dict[int, int]) -> bool:
    """Order a transfer unless one is under way; False if there is nothing to give or nobody to
    take it.
    """
    status = replica.group.status()
    if status.role != "leader" or status.term > given.get(status.group_id, status.term):
        return False
    if status.transferring_to is not None:
        return True
    target = _heir(status, own)
    if target is None:
        return False
    try:
        replica.group.transfer(target)
        given[status.group_id] = status.term
    except RaftError as error:
        log.debug("partition %d is not handed to node %d yet: %s", status.group_id, target, error)
    return True


def _heir(status: GroupStatus, own: NodeId) -> int | None:
    """The voter that answers, keeps data and lacks least."""
    able = [
        (follower.lag, node)
        for node, follower in status.followers.items()
        if node in status.voters
        and node not in status.witnesses
        and node != own
        and follower.responsive
    ]
    return min(able)[1] if able else None


def to(manager: ReplicaManager, target: NodeId) -> int:
    """Order `target` to lead what is led here and it can lead at once. How many these are."""
    ordered = 0
    for replica in manager.replicas():
        status = replica.group.status()
        if not _could_lead(status, target):
            continue
        try:
            replica.group.transfer(target)
            ordered += 1
        except RaftError as error:
            log.debug("partition %d is not handed to node %d: %s", status.group_id, target, error)
    return ordered


def _could_lead(status: GroupStatus, target: NodeId) -> bool:
    if status.role != "leader" or status.transferring_to is not None:
        return False
    if target not in status.voters or target in status.witnesses:
        return False
    follower = status.followers.get(target)
    if follower is None or not follower.responsive or follower.snapshot:
        return False
    return follower.lag <= BALANCE_LAG_MAX
