"""RAISE_SAFEPOINT: nothing older than this is read in these partitions any more.

    RAISE_SAFEPOINT([partition, …], safepoint) → [partition, …]     those that this node leads

A restored range has all its rows as of the restore; what a reader of an earlier timestamp would
find there is nothing, and that is not what was there. So before anybody can see the range, reads
below are refused (SNAPSHOT_TOO_OLD). Nobody holds a snapshot of it by then.
"""

from __future__ import annotations

from typing import Protocol

from kv.base.wire_row import WireRow
from kv.replica.replica import Replica
from kvorum.storage.collector import raised


class Replicas(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...


class RaiseSafepoint:
    """The handler of one node."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, _context: object, args: WireRow) -> list[object]:
        """Raises what keeps a partition's log from taking it."""
        partitions, safepoint = args
        done: list[int] = []
        for partition in partitions:
            replica = self._replicas.replica(partition)
            if replica is not None and replica.leads():
                await raised(replica, safepoint)
                done.append(partition)
        return [done]
