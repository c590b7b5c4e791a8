"""FORCE_MEMBERS: an operator makes this node the only voter of every partition here that has lost
its majority for good, so that it serves again with what this node has.

    args      node (this one's id: who is connected to another one is refused), reason
    result    [[partition, index of its new configuration (0: left alone), why left alone], …]

A partition whose leader lives is left alone; so is one that has no replica here. What only the lost
nodes had is lost. Their replicas stop as soon as one of them meets this node (raft/fence.py); such
a node must be emptied and join anew. The reason is kept in the log of each partition, and here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument
from raft.errors import RaftError
from raft.host import RaftHost
from raft.rules.membership import REASON_BYTES_MAX

log = logging.getLogger(__name__)


class Replica(Protocol):
    @property
    def descriptor(self) -> PartitionDescriptor: ...


class ForceMethod:
    """The handler of one node."""

    def __init__(
        self, node: int, host: RaftHost, replicas: Callable[[], Sequence[Replica]]
    ) -> None:
        self._node, self._host, self._replicas = node, host, replicas

    async def handle(self, _context: object, args: list[Any]) -> list[Any]:
        """Answers when what was forced is durable. Raises InvalidArgument."""
        node, reason = args
        if node != self._node:
            raise InvalidArgument(
                f"this is node {self._node}, not {node}: connect to the node that is to go on alone"
            )
        rows: list[list[Any]] = []
        for replica in self._replicas():
            partition = replica.descriptor.id
            try:
                index, why_not = self._host.force_members(partition, [node], reason), ""
            except RaftError as error:
                index, why_not = 0, str(error)
            else:
                log.warning(
                    "partition %d: this node (%d) was made the only voter by an operator: %s",
                    *(partition, node, reason),
                )
            rows.append([partition, index, why_not])
        durable = asyncio.Event()
        self._host.barrier(durable.set)
        await durable.wait()
        return [rows]


def check_force(row: list[Any]) -> None:
    """The arguments of FORCE_MEMBERS. Raises InvalidArgument."""
    match row[3:]:
        case [int(node), str(reason)] if (
            0 < node <= 1 << 63 and reason.strip() and len(reason.encode()) <= REASON_BYTES_MAX
        ):
            return
    raise InvalidArgument(
        f"FORCE_MEMBERS takes a node id and a reason of 1 to {REASON_BYTES_MAX} bytes"
    )
