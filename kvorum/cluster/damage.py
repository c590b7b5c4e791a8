"""Section "damage" of the heartbeats: which replicas of a node are damaged.

    payload   {partition: how it was found}; nothing if none is

A node that finds damage beats at once. The master has such a replica replaced by a copy of a
healthy one (procedures/master/schedulers/schedule.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from kv.base.ids import NodeId, PartitionId
from kv.base.limits import DAMAGED_REPORTED_MAX
from procedures.master.members.rebuilding import Damage

SECTION: Final = "damage"
_WHY_CHARS_MAX: Final = 200


class NodeDamage:
    """kvorum.cluster.heartbeat.NodeSection."""

    def __init__(self, found: Callable[[], Mapping[PartitionId, str]]) -> None:
        self._found = found

    def collect(self) -> dict[int, str] | None:
        """All of it, with every beat: it is seldom, and goes away by itself."""
        found = islice(self._found().items(), DAMAGED_REPORTED_MAX)
        return {int(partition): why[:_WHY_CHARS_MAX] for partition, why in found} or None

    def take(self, reply: object) -> None:
        """Nothing is answered."""

    def again(self) -> None:
        """Every beat has everything."""


class MasterDamage:
    """kvorum.cluster.heartbeat.MasterSection. `known`: what the nodes said last."""

    def __init__(self) -> None:
        self.known: dict[NodeId, dict[PartitionId, str]] = {}

    def begin(self) -> None:
        """Of a reign."""
        self.known.clear()

    def handle(self, node: int, payload: Any) -> object:
        """Raises TypeError, ValueError, AttributeError."""
        self.known.pop(NodeId(node), None)
        if payload is not None:
            reasons = {PartitionId(int(id_)): str(why) for id_, why in payload.items()}
            self.known[NodeId(node)] = reasons
        return None

    def all(self) -> list[Damage]:
        """In the order of nodes and partitions."""
        return [
            Damage(node, partition, why)
            for node, reasons in sorted(self.known.items())
            for partition, why in sorted(reasons.items())
        ]
