"""What a simulated cluster is like: how many processes, how good its network, disks and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from procedures.engine.registry import ProcedureType


@dataclass(slots=True, kw_only=True)
class Chances:
    """How bad the network is. All zero and `latency_s`: calm."""

    latency_s: float = 0.001
    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    """Share of messages that take up to `late_s` more."""
    late_s: float = 0.3
    pieces: float = 0.0
    """Share of writes that arrive in two pieces."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """The defaults are calm."""

    nodes: int = 3
    clients: int = 3
    chances: Chances = field(default_factory=Chances)
    sync_s: float = 0.002
    slow_syncs: float = 0.0
    slow_sync_s: float = 0.5
    rates: tuple[float, ...] = ()
    budget_ms: int = 10_000
    ttl_ms: int = 5_000
    gc_retention_ms: int = 600_000
    gc_interval_ms: int = 30_000
    replicas: int = 0
    """Of each partition of a table; 0: one at every node."""
    replica_age_ms: int = 0
    """Clients read so far in the past at any replica; 0: at leaders alone."""
    clock: str = ""
    """Where timestamps come from; "": the oracle."""
    skews: tuple[int, ...] = ()
    """Of the nodes' wall clocks, in ms."""
    procedures: Sequence[ProcedureType] = ()
    """What nodes run, beside the procedures of `modules`."""
    modules: tuple[str, ...] = ()

    def skew_of(self, node: int) -> int:
        return self.skews[node - 1] if self.skews else 0

    def rate_of(self, node: int) -> float:
        return self.rates[node - 1] if self.rates else 1.0
