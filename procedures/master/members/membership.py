"""Moving replicas: nodes come, go, and are replaced, while the partitions serve (F4, F5, F12).

    AddReplicas     {node, partitions?}   every partition (or these) gets a voter on the node
                    check ─▶ children AddReplica ─▶ finish (again, if tables were made meanwhile)
    AddReplica      enter ─▶ make ─▶ learn ─▶ promote ─▶ settle         undo: leave
    RemoveReplicas  {node, partitions?}   check ─▶ children AddReplica (at other nodes),
                    RemoveReplica ─▶ check, until nothing is left to do
    RemoveReplica   remove ─▶ settle ─▶ leave
    Decommission    {node}                refuse or mark ─▶ the same children ─▶ forget

A node that is a witness votes at once and keeps no data: `learn` makes it a voter.

A new replica is a learner until it has caught up, so it never counts for a quorum that it could not
serve (Ongaro's thesis, 4.2.1); consensus refuses the promotion until then, and the step asks again.
Removing the leader of a group hands its leadership over first; that may be the leader that runs
this very procedure, which then goes on at the next master.

A table that wants a number of replicas (procedures/master/map/placement.py) has them at some nodes:
one that joins gets a replica only where there are fewer, and before one leaves, another node gets
what it has.

New partitions of other tables are placed where the meta partition has its voters, so a node enters
that one last and leaves it first; a table that was made in between is found by looking again, in a
transaction that conflicts with the making of tables (`hold_new_ones`).

The map (procedures/master/map/partitions.py) names a node before it is a member of the group, and
no longer after it was removed: so reconciling never drops a member's replica, and drops what a
removed one left behind. Every step may run twice: orders to a group that are done already are done.
"""

from __future__ import annotations

from collections.abc import Callable

from procedures.engine.registry import Registry
from procedures.master.members.adding import AddReplica, AddReplicas
from procedures.master.members.moves import (
    ADD_REPLICA,
    ADD_REPLICAS,
    DECOMMISSION,
    REMOVE_REPLICA,
    REMOVE_REPLICAS,
    MembershipServices,
    ReplicaMove,
)
from procedures.master.members.removing import Decommission, RemoveReplica, RemoveReplicas

__all__ = [
    "ADD_REPLICA",
    "ADD_REPLICAS",
    "DECOMMISSION",
    "REMOVE_REPLICA",
    "REMOVE_REPLICAS",
    "MembershipServices",
    "register",
]


def register(registry: Registry, services: MembershipServices) -> None:
    """Serve the procedures of this module."""
    for cls in (AddReplicas, AddReplica, RemoveReplicas, RemoveReplica, Decommission):
        registry.add(cls, make=_maker(cls, services))


def _maker(cls: type[ReplicaMove], services: MembershipServices) -> Callable[[], object]:
    return lambda: cls(services)
