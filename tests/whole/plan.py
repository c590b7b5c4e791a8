"""What a seed decides before anything happens: the cluster, its luck, who does what."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kvorum.verify.catalog import WORKLOADS
from tests.sim.plan import CLOCK_RATE_SPREAD
from tests.whole.network import Chances


@dataclass(slots=True, kw_only=True)
class Plan:
    """Made by `draw`, or by hand; the defaults are calm."""

    nodes: int = 3
    clients: int = 3
    workload: str = "list-append"
    chances: Chances = field(default_factory=Chances)
    faults_s: float = 6.0
    faults_per_s: float = 0.0
    think_s: float = 0.02
    """Mean pause of a client between two operations."""
    sync_s: float = 0.002
    slow_syncs: float = 0.0
    slow_sync_s: float = 0.5
    rates: tuple[float, ...] = ()
    modules: tuple[str, ...] = ()
    gc_retention_ms: int = 600_000
    gc_interval_ms: int = 30_000
    kills_per_message: float = 0.0
    """Chance that a client dies at a message, sent or got."""

    def rate_of(self, node: int) -> float:
        return self.rates[node - 1] if self.rates else 1.0


def draw(rng: random.Random) -> Plan:
    """Everything that may go wrong."""
    nodes = rng.choice([1, 3, 3, 3, 3, 5])
    spread = CLOCK_RATE_SPREAD if rng.random() < 0.5 else 0.0
    return Plan(
        nodes=nodes,
        clients=rng.choice([2, 3, 5]),
        workload=rng.choice([*WORKLOADS, "list-append", "list-append"]),
        chances=Chances(
            latency_s=rng.choice([0.0005, 0.002]),
            drop=rng.choice([0, 0.02, 0.1]),
            duplicate=rng.choice([0, 0.1, 0.3]),
            late=rng.choice([0, 0.02, 0.1]),
            late_s=rng.choice([0.05, 0.3, 1.0]),
            pieces=rng.choice([0, 0.1]),
        ),
        faults_s=rng.uniform(3, 8),
        faults_per_s=rng.choice([0.5, 1, 2, 4]),
        think_s=rng.choice([0.01, 0.05]),
        slow_syncs=rng.choice([0, 0.01, 0.05]),
        rates=tuple(1 + spread * (rng.random() - 0.5) for _ in range(nodes)),
        kills_per_message=rng.choice([0, 0, 0.002, 0.01]),
    )
