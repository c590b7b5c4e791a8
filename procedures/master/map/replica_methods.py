"""What a node does for the master: show how its replicas stand, and change the members of the
partitions that it leads.

    REPLICA_STATUS    rows of `GroupView`
    CHANGE_REPLICAS   one change of one group (Ongaro's thesis, 4.1: one server at a time)

A change that is made already answers 0, so a caller that lost a reply asks again. What consensus
refuses for now (the learner lags, nobody else keeps up, the change before is not committed) is
Busy; what it refuses for good is Refused (MEMBERSHIP_REFUSED) with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, NotFound, NotLeader, Refused, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_PAUSE_MS
from kv.base.wire_row import WireRow
from raft.api import ConsensusGroup, GroupStatus
from raft.errors import BadConfig, ProposalsFull, RaftError
from raft.errors import NotLeader as RaftNotLeader

LEARNER: Final = "learner"
PROMOTE: Final = "promote"
DEMOTE: Final = "demote"
WITNESS: Final = "witness"
REMOVE: Final = "remove"
TRANSFER: Final = "transfer"
CHANGES: Final = (LEARNER, PROMOTE, DEMOTE, WITNESS, REMOVE, TRANSFER)
NO_REPLICA: Final = "PARTITION_NOT_FOUND"
_PARTITIONS_MAX: Final = 10_000  # in one question


@dataclass(frozen=True, slots=True)
class MemberView:
    """One other member as its leader sees it."""

    lag: int
    responsive: bool
    snapshot: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """A replica as its node sees it. `followers` is empty unless it leads; `leader` 0 = unknown."""

    partition: PartitionId
    role: str
    term: int
    leader: int
    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...]
    settled: bool
    """The configuration is committed."""
    followers: Mapping[int, MemberView]
    witnesses: tuple[NodeId, ...] = ()
    """Those of the voters that keep no data."""
    last_term: int = 0
    last_index: int = 0
    """(last_term, last_index): how complete its log is."""
    commit_index: int = 0

    @property
    def data_voters(self) -> tuple[NodeId, ...]:
        return tuple(node for node in self.voters if node not in self.witnesses)

    @property
    def leads(self) -> bool:
        return self.role == "leader"

    @staticmethod
    def of(status: GroupStatus) -> GroupView:
        return GroupView(
            PartitionId(status.group_id),
            status.role,
            status.term,
            status.leader_id or 0,
            tuple(NodeId(node) for node in status.voters),
            tuple(NodeId(node) for node in status.learners),
            status.config_index <= status.commit_index,
            {
                node: MemberView(follower.lag, follower.responsive, follower.snapshot)
                for node, follower in status.followers.items()
            },
            tuple(NodeId(node) for node in status.witnesses),
            status.last_term,
            status.last_index,
            status.commit_index,
        )

    def to_wire(self) -> WireRow:
        followers = [[n, f.lag, f.responsive, f.snapshot] for n, f in self.followers.items()]
        return [
            *(self.partition, self.role, self.term, self.leader, list(self.voters)),
            *(list(self.learners), self.settled, followers, list(self.witnesses)),
            *(self.last_term, self.last_index, self.commit_index),
        ]

    @staticmethod
    def from_wire(row: WireRow) -> GroupView:
        partition, role, term, leader, voters, learners, settled, followers, *rest = row
        witnesses, *log_end = rest or [()]  # earlier versions end here
        return GroupView(
            partition,
            role,
            term,
            leader,
            tuple(voters),
            tuple(learners),
            settled,
            {node: MemberView(*how) for node, *how in followers},
            tuple(witnesses),
            *log_end[:3],
        )


class Replica(Protocol):
    @property
    def group(self) -> ConsensusGroup: ...


class Replicas(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...

    def descriptors(self) -> list[PartitionDescriptor]: ...


class ReplicaMethods:
    """The handlers of one node (kv.server.dispatcher.Handler)."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def status(self, _context: object, args: WireRow) -> WireRow:
        """REPLICA_STATUS. Replicas that are not here are left out."""
        wanted = [d.id for d in self._replicas.descriptors()] if args[0] is None else args[0]
        found = (self._replicas.replica(partition) for partition in wanted)
        return [[GroupView.of(r.group.status()).to_wire() for r in found if r is not None]]

    def change(self, _context: object, args: WireRow) -> list[object]:
        """CHANGE_REPLICAS. Raises NotFound, NotLeader, Busy, Refused, Unavailable."""
        partition, change, node = args
        replica = self._replicas.replica(partition)
        if replica is None:
            raise NotFound(f"partition {partition} has no replica here", code=NO_REPLICA)
        group = replica.group
        status = group.status()
        if status.role != "leader":
            raise _not_leader(partition, status.leader_id)
        if _made(change, node, status):
            return [0]
        try:
            return [_change(group, change, node)]
        except RaftNotLeader as error:
            raise _not_leader(partition, group.leader_id) from error
        except ProposalsFull as error:  # Transferring is one of these
            raise _later(error) from error
        except BadConfig as error:
            if (
                change in (LEARNER, WITNESS, TRANSFER)
                and status.config_index <= status.commit_index
            ):
                raise Refused(str(error), code="MEMBERSHIP_REFUSED") from error
            raise _later(error) from error
        except RaftError as error:
            raise Unavailable(str(error)) from error


def _made(change: str, node: int, status: GroupStatus) -> bool:
    """Whether the members are already as the change would make them."""
    match change:
        case "learner":
            return node in status.learners or node in status.voters
        case "promote":
            return node in status.voters
        case "demote":
            return node in status.learners
        case "witness":
            return node in status.witnesses
        case "remove":
            return node not in status.learners and node not in status.voters
        case _:
            return status.leader_id == node


def _change(group: ConsensusGroup, change: str, node: int) -> int:
    match change:
        case "learner":
            return group.add_learner(node)
        case "promote":
            return group.promote(node)
        case "demote":
            return group.demote(node)
        case "witness":
            return group.add_witness(node)
        case "remove":
            return group.remove(node)
        case _:
            group.transfer(node)
            return 0


def _not_leader(partition: int, leader: int | None) -> NotLeader:
    return NotLeader(
        f"partition {partition} is led by node {leader}"
        if leader is not None
        else f"partition {partition} has no leader now",
        details={"leader": leader},
    )


def _later(error: RaftError) -> Busy:
    return Busy(str(error), details={"what": "membership", "retry_after_ms": MEMBERSHIP_PAUSE_MS})
