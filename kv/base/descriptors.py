"""What a partition is: a key range, its epoch and its replicas. Travels and is stored as a msgpack
list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kv.base.ids import NodeId, PartitionId


@dataclass(frozen=True, slots=True)
class PartitionDescriptor:
    """`[start, end)` in storage keys, end b"" = no bound. `epoch` rises with every change of range;
    members may change without it (docs/decisions/0402).
    """

    id: PartitionId
    start: bytes
    end: bytes
    epoch: int
    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    witnesses: tuple[NodeId, ...] = ()
    """Those of the voters that keep no data."""

    @property
    def data_voters(self) -> tuple[NodeId, ...]:
        """Those that may lead it."""
        return tuple(node for node in self.voters if node not in self.witnesses)

    def covers(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    def to_wire(self) -> list[Any]:
        """Without witnesses the row is that of earlier versions."""
        row = [self.id, self.start, self.end, self.epoch, list(self.voters), list(self.learners)]
        return [*row, list(self.witnesses)] if self.witnesses else row

    @staticmethod
    def from_wire(row: Sequence[Any]) -> PartitionDescriptor:
        return PartitionDescriptor(
            *(PartitionId(row[0]), row[1], row[2], row[3], tuple(row[4]), tuple(row[5])),
            *(tuple(rest) for rest in row[6:7]),
        )
