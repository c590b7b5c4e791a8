"""What a partition is: a key range, its epoch and its replicas. Travels and is stored as a msgpack
list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kv.base.ids import NodeId, PartitionId
from kv.base.limits import KEY_BYTES_MAX, NODES_MAX
from kv.base.shards import is_shard
from kv.base.wire_row import WireRow

PARTITION_ID_MAX: Final = (1 << 63) - 1
_BOUND_BYTES_MAX: Final = 4 + KEY_BYTES_MAX + 1  # table id, key, "the next key"


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
    shard: str = ""
    """The storage shard that its rows lie in, at every node with a replica."""

    @property
    def data_voters(self) -> tuple[NodeId, ...]:
        """Those that may lead it."""
        return tuple(node for node in self.voters if node not in self.witnesses)

    def covers(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    def to_wire(self) -> WireRow:
        """Without witnesses and shards the row is that of earlier versions."""
        row = [self.id, self.start, self.end, self.epoch, list(self.voters), list(self.learners)]
        if self.shard:
            return [*row, list(self.witnesses), self.shard]
        return [*row, list(self.witnesses)] if self.witnesses else row

    @staticmethod
    def from_wire(row: WireRow) -> PartitionDescriptor:
        return PartitionDescriptor(
            *(PartitionId(row[0]), row[1], row[2], row[3], tuple(row[4]), tuple(row[5])),
            tuple(row[6]) if len(row) > 6 else (),
            row[7] if len(row) > 7 else "",
        )


def is_descriptor(row: object) -> bool:
    """Whether a value from a wire is `to_wire` of a descriptor: types, sizes, and what must hold
    among its fields.
    """
    if type(row) is not list or not 6 <= len(row) <= 8:
        return False
    id, start, end, epoch, *nodes = row
    if len(row) == 8 and not is_shard(nodes.pop()):
        return False
    if type(id) is not int or not 0 < id <= PARTITION_ID_MAX:
        return False
    if type(epoch) is not int or not 0 < epoch < 1 << 63:
        return False
    for bound in (start, end):
        if type(bound) is not bytes or len(bound) > _BOUND_BYTES_MAX:
            return False
    if end and end <= start:
        return False
    for some in nodes:
        if type(some) is not list or len(some) > NODES_MAX:
            return False
        if any(type(node) is not int or not 0 < node < 1 << 32 for node in some):
            return False
    members = nodes[0] + nodes[1]
    witnesses = nodes[2] if len(nodes) > 2 else []
    return len(set(members)) == len(members) and set(witnesses) <= set(nodes[0])
