"""Figures of one partition, or of all of a node (kv/replica/manager.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PartitionCounters:
    """Figures since the start. The machine adds per drain or per entry, not per request."""

    reads: int = 0
    writes: int = 0
    entries: int = 0
    refused: int = 0
    by_replicas: int = 0  # reads that replicas answered that do not lead
    waited: int = 0  # reads that had to wait for a version in flight
    drains: int = 0
