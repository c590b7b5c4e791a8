"""Small pictures of clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.model import Dimension, Loads, NodeView, PartitionView

EXACT = (Dimension("traffic", 0.1, 0.0), Dimension("size", 0.1, 0.0), Dimension("replicas", 9, 99))
"""Marks at a tenth of the mean, however small it is; the number of replicas does not count."""


def node(number: int, capacity: Loads = (100, 100, 1), **more: Any) -> NodeView:
    given = {"limit": (9.0, 9.0, 9e9), "domains": ("dc", "rack", f"server{number}"), **more}
    return NodeView(NodeId(number), capacity, **given)


def part(
    number: int, nodes: Iterable[int], leader: int | None = None, **loads: Any
) -> PartitionView:
    ids = tuple(NodeId(n) for n in nodes)
    led = None if leader is None else NodeId(leader)
    return PartitionView(PartitionId(number), ids, led, **loads)


def picture(
    nodes: Sequence[NodeView],
    partitions: Sequence[PartitionView],
    dimensions: Sequence[Dimension] = EXACT,
) -> ClusterState:
    return ClusterState(nodes, partitions, dimensions)


def single(
    loads: Sequence[Sequence[float]], dimensions: Sequence[Dimension] = EXACT
) -> ClusterState:
    """One replica each: per node the sizes of its partitions."""
    parts, number = [], 1
    for at, sizes in enumerate(loads, 1):
        for size in sizes:
            parts.append(part(number, [at], size=size))
            number += 1
    return picture([node(n) for n in range(1, len(loads) + 1)], parts, dimensions)
