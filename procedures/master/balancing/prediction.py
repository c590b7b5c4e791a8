"""What a unit of traffic costs at each machine, and so what a replica would cost there (I8-I10).

A node reports how much CPU it uses (1.0 = all that one node can use) and how many standard traffic
units per second its replicas serve. The quotient is the cost of a unit at this machine; memory,
disk and network are in it, because what they lack shows as CPU or as waiting. So

    capacity of a node = 1 / cost                (units per second that would use it up)
    CPU of a replica at any node = its units * the cost there

What the node uses while it serves next to nothing (heartbeats, timers) is its idle share; it is
distinguished when it can be seen, and stays when replicas move. Both are averages that forget.

A node that has not served enough to be measured is taken for one like the others: the median cost,
by how many cores it has beside them. Source: the ByteKV article, "heterogeneous machines".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from kv.base.ids import NodeId

UNITS_MIN: Final = 20.0  # per second: below this the CPU says nothing about them
WEIGHT: Final = 0.25  # of a new observation
COST_DEFAULT: Final = 1 / 20_000  # of one unit, where nobody was measured


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one node has shown so far."""

    cost: float | None = None
    """CPU per unit and second; None: not measured yet."""
    idle: float = 0.0

    def observe(self, cpu: float, units: float) -> UnitCost:
        """With one more look: CPU share and units per second of the same period."""
        if units < UNITS_MIN:
            idle = cpu if self.idle == 0.0 else self.idle + WEIGHT * (cpu - self.idle)
            return UnitCost(self.cost, min(max(idle, 0.0), 1.0))
        seen = max(cpu - self.idle, 0.0) / units
        if seen <= 0.0:
            return self
        if self.cost is None:
            return UnitCost(seen, self.idle)
        return UnitCost(self.cost + WEIGHT * (seen - self.cost), self.idle)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of a node's machine."""

    cost: UnitCost
    cores: float = 1.0


def costs(machines: Mapping[NodeId, Machine]) -> dict[NodeId, float]:
    """The cost of a unit at each node."""
    measured = [m.cost.cost * m.cores for m in machines.values() if m.cost.cost is not None]
    typical = median(measured) if measured else COST_DEFAULT
    return {
        node: machine.cost.cost if machine.cost.cost is not None else typical / machine.cores
        for node, machine in machines.items()
    }


def weights(cost: Mapping[NodeId, float]) -> dict[NodeId, float]:
    """What each node is worth beside the others: 1 = an average one."""
    if not cost:
        return {}
    mean = sum(1 / c for c in cost.values()) / len(cost)
    return {node: 1 / c / mean for node, c in cost.items()}
