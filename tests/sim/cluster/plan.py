"""What a seed decides before anything happens: the cluster, its luck, who does what."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kvorum.testing.simulation.plan import Chances
from kvorum.testing.simulation.plan import Plan as Calm
from kvorum.verify.catalog import WORKLOADS
from kvorum.verify.workloads.base import READ_COMMITTED
from tests.sim.raft.plan import CLOCK_RATE_SPREAD

MOSTLY = ("list-append", "list-append", "list-append", "bank")
"""The workloads that see most."""


STALE = 0.1
"""Share of the plans whose clients read the past at replicas, as far as their workload does."""
LOCKED = 0.3
"""Share of the plans, of workloads that can, whose transactions lock what they change."""
RESHAPED = 0.2
"""Share of the plans in which partitions are split and merged, and in half of them moved."""


@dataclass(slots=True, kw_only=True)
class Plan(Calm):
    """Made by `draw`, or by hand; the defaults are calm."""

    workload: str = "list-append"
    faults_s: float = 6.0
    faults_per_s: float = 0.0
    weights: dict[str, int] = field(default_factory=dict)
    """Of the nemesis' acts, where they differ from its own."""
    think_s: float = 0.02
    """Mean pause of a client between two operations."""
    limits: float = 0.0
    """Share of the limits that are drawn (limits.py)."""
    parallel: bool = True
    """Small transactions commit by their intents; else by a flip."""
    isolation: str = "snapshot"
    kills_per_message: float = 0.0
    """Chance that a client dies at a message, sent or got."""
    jumps: tuple[int, ...] = (-10_000, -3_000, -100, 0, 100, 3_000, 10_000)
    """To which the nodes' wall clocks are set, in ms."""


QUEUED = 0.05
"""Share of the plans whose clients submit to a queue."""


def draw(rng: random.Random) -> Plan:
    """Everything that may go wrong."""
    plan = _drawn(rng)
    if rng.random() < QUEUED:
        plan.workload, plan.isolation = "queue", "snapshot"
    return plan


def _drawn(rng: random.Random) -> Plan:
    nodes = rng.choice([1, 3, 3, 3, 3, 5])
    spread = CLOCK_RATE_SPREAD if rng.random() < 0.5 else 0.0
    others = [
        name
        for name, kind in WORKLOADS.items()
        if name not in ("stale", "causal", "queue") and kind.clusters == 1  # see below
    ]
    workload = rng.choice([*others, *MOSTLY])
    plan = Plan(
        nodes=nodes,
        clients=rng.choice([3, 5, 8]),
        workload=workload,
        isolation=rng.choice(_levels(workload)),
        chances=Chances(
            latency_s=rng.choice([0.0005, 0.002]),
            drop=rng.choice([0, 0.02, 0.1]),
            duplicate=rng.choice([0, 0.1, 0.3]),
            late=rng.choice([0, 0.02, 0.1]),
            late_s=rng.choice([0.05, 0.3, 1.0]),
            pieces=rng.choice([0, 0.1]),
        ),
        faults_s=rng.uniform(2, 5),
        faults_per_s=rng.choice([0.5, 1, 2, 3]),
        think_s=rng.choice([0.005, 0.02]),
        slow_syncs=rng.choice([0, 0.01, 0.05]),
        rates=tuple(1 + spread * (rng.random() - 0.5) for _ in range(nodes)),
        kills_per_message=rng.choice([0, 0, 0.002, 0.01]),
        limits=rng.choice([0, 0.1, 0.3]),
        parallel=rng.random() < 0.6,
        budget_ms=rng.choice([800, 2_000, 10_000]),
        ttl_ms=rng.choice([300, 1_000, 5_000]),
        gc_retention_ms=rng.choice([1_500, 5_000, 600_000]),
        gc_interval_ms=rng.choice([100, 500, 30_000]),
    )
    # Drawn last, so that the seeds without it are what they were before there was such a draw.
    if rng.random() < RESHAPED:
        plan.weights["reshape"] = rng.choice([5, 20, 60])
        if nodes > 1 and rng.random() < 0.5:
            plan.replicas = 3 if nodes > 3 else 2
            plan.weights["move"] = rng.choice([5, 20])
    if rng.random() < STALE:
        plan.workload = "stale"
    if plan.workload == "stale" or rng.random() < STALE:
        plan.replica_age_ms = rng.choice([1, 50, 500])
    if READ_COMMITTED in WORKLOADS[plan.workload].isolations and rng.random() < LOCKED:
        plan.isolation = READ_COMMITTED
    return plan


def _levels(workload: str) -> list[str]:
    return [one for one in WORKLOADS[workload].isolations if one != READ_COMMITTED]


SKEW_MS = 95
"""Of hybrid clocks, either way …"""
NEAR_MS = 10
"""… and of so many of them that with each of the others they are a majority: a node that is further
from most than CLOCK_FENCE_MS is fenced, and its cluster never whole.
"""


def draw_hybrid(rng: random.Random) -> Plan:
    """The same, of a cluster with hybrid clocks: what can be checked without real-time order. In
    some plans clocks also leap further than is allowed.
    """
    plan = _drawn(rng)
    plan.clock = "hybrid"
    plan.workload = rng.choice(["causal", "causal", "causal", "bank", "cycle"])
    plan.isolation = rng.choice(_levels(plan.workload))
    plan.nodes, plan.replica_age_ms = max(plan.nodes, 3), 0  # who reads the past misses causes
    plan.rates = tuple(1 + (rng.random() - 0.5) / 5_000 for _ in range(plan.nodes))
    skew_ms = rng.choice([0, 20, SKEW_MS])
    skews = [rng.randint(-skew_ms, skew_ms) for _ in range(plan.nodes)]
    for i in range(plan.nodes // 2):
        skews[i] = max(-NEAR_MS, min(NEAR_MS, skews[i]))
    plan.skews = tuple(skews)
    if rng.random() < 0.8:
        plan.jumps = (-SKEW_MS, -20, 0, 20, SKEW_MS)
    return plan
