"""Figures of a node's set of replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ManagerCounters:
    truncations: int = 0
    opened: int = 0
    dropped: int = 0
    snapshots_made: int = 0
    snapshots_installed: int = 0
    damaged: int = 0
    shards_changed: int = 0
