"""The balancer alone, on a made-up cluster: does it end, and where?

    python -m procedures.master.balancing.simulate --nodes 1000 --partitions 100000 --seed 1

makes machines of one or two sizes in racks of datacenters, partitions of very different size and
traffic, some of a table that wants a tag, puts the replicas anywhere that tags and racks allow (all
to a part of the nodes, if --crowded says so), and lets the balancer plan until it has nothing to
do. The result is one line of JSON. The chance is a hash of the seed and a number, so the
same seed gives the same cluster on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import cos, exp, log, pi, sqrt
from typing import Final

from kv.base.ids import NodeId, PartitionId
from procedures.master.balancing import leaders, replicas
from procedures.master.balancing.cluster import ClusterState, Zone
from procedures.master.balancing.model import COUNT, NAMES, NodeView, PartitionView
from procedures.master.balancing.rules import may_have, shared

_RACKS: Final = 5
_MiB: Final = 1 << 20


class Chance:
    """Numbers in [0, 1) that only the seed decides."""

    def __init__(self, seed: int) -> None:
        self._seed, self._number = seed, 0
        self._left: list[float] = []

    def __call__(self) -> float:
        if not self._left:
            digest = blake2b(b"%d/%d" % (self._seed, self._number)).digest()
            self._number += 1
            self._left = [
                int.from_bytes(digest[i : i + 8], "big") / 2.0**64 for i in range(0, 64, 8)
            ]
        return self._left.pop()

    def below(self, n: int) -> int:
        return int(self() * n)

    def lognormal(self, sigma: float) -> float:
        """With mean 1."""
        normal = sqrt(-2 * log(1 - self())) * cos(2 * pi * self())
        return exp(sigma * normal - sigma * sigma / 2)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is made up."""

    nodes: int = 10
    partitions: int = 1_000
    seed: int = 1
    replicas: int = 3
    unequal: bool = True
    tagged: float = 0.1
    """The share of the partitions that want a tag; a third of the nodes carry it."""
    crowded: float = 1.0
    """The share of the nodes that have all replicas at the beginning."""
    even: bool = False
    """Of two nodes, the one with fewer replicas for its size was chosen: as a placement would."""


def made(shape: Shape) -> tuple[list[NodeView], list[PartitionView]]:
    """A cluster of this shape: traffic and sizes use half of it on average."""
    chance = Chance(shape.seed)
    units = 0.5 * shape.partitions * shape.replicas / shape.nodes
    nodes = []
    for i in range(1, shape.nodes + 1):
        big = 2.0 if shape.unequal and i % 4 == 0 else 1.0
        racks = max(_RACKS, shape.nodes // 20)
        nodes.append(
            NodeView(
                NodeId(i),
                capacity=(4.0 * units * big, 4.0 * units * 64 * _MiB * big, big),
                domains=(f"dc{i % 3}", f"rack{i % racks}", f"server{i}"),
                tags=frozenset({"ssd"} if i % 3 == 1 else ()),
            )
        )
    crowd = nodes[: max(shape.replicas + 2, int(shape.nodes * shape.crowded))]
    had = dict.fromkeys((node.id for node in nodes), 0)
    return nodes, [_partition(i, shape, crowd, had, chance) for i in range(2, shape.partitions + 2)]


def _partition(
    number: int,
    shape: Shape,
    crowd: Sequence[NodeView],
    had: dict[NodeId, int],
    chance: Chance,
) -> PartitionView:
    tags = frozenset({"ssd"} if chance() < shape.tagged else ())
    traffic = chance.lognormal(1.0)
    view = PartitionView(
        PartitionId(number),
        (),
        size=64 * _MiB * min(2.0, chance.lognormal(0.7)),
        writes=0.6 * traffic,
        reads=0.4 * shape.replicas * traffic,
        tags=tags,
    )
    chosen: list[NodeView] = []
    tries = 0
    while len(chosen) < shape.replicas and tries < 200:
        tries += 1
        node = crowd[chance.below(len(crowd))]
        other = crowd[chance.below(len(crowd))] if shape.even else node
        if had[other.id] * node.capacity[COUNT] < had[node.id] * other.capacity[COUNT]:
            node = other
        strict = tries < 100
        if node in chosen or may_have(view, node) is not None:
            continue
        if strict and any(shared(node, chosen, "rack")):
            continue
        chosen.append(node)
        had[node.id] += 1
    ids = tuple(node.id for node in chosen)
    return PartitionView(
        view.id, ids, ids[0] if ids else None, view.size, view.writes, view.reads, tags
    )


def violations(state: ClusterState) -> dict[str, int]:
    """What must never be: by rule, how often it is."""
    found: Counter[str] = Counter()
    for node, view in state.nodes.items():
        found["hard"] += any(state.used(node, d) > view.limit[d] for d in range(len(NAMES)))
    for partition in state.partitions.values():
        views = [state.nodes[node] for node in partition.nodes]
        found["tags"] += any(may_have(partition, view) is not None for view in views)
        found["there"] += len(set(partition.nodes)) < len(partition.nodes)
        racks = {view.domains[:2] for view in views}
        found["domain"] += len(racks) < len(views)
    return dict(found)


def simulate(shape: Shape) -> dict[str, object]:
    """Plan until nothing is left to do; then plan anew from what came of it."""
    began = time.process_time()  # only reported: nothing depends on it
    state = ClusterState(*made(shape))
    built = time.process_time()
    before = violations(state)
    rounds, transfers, replica_moves = 0, 0, 0
    while True:
        rounds += 1
        led = len(leaders.plan(state).moves)
        moved = len(replicas.plan(state, level="rack").moves)
        transfers, replica_moves = transfers + led, replica_moves + moved
        if not led and not moved:
            break
    planned = time.process_time()
    again = ClusterState(state.nodes.values(), state.partitions.values())
    left = len(leaders.plan(again).moves) + len(replicas.plan(again, level="rack").moves)
    zones = {
        name: Counter(state.zone(node, d).name.lower() for node in state.taking)
        for d, name in enumerate(NAMES)
    }
    return {
        "nodes": shape.nodes,
        "partitions": shape.partitions,
        "seed": shape.seed,
        "rounds": rounds,
        "leader_moves": transfers,
        "replica_moves": replica_moves,
        "moves_when_done": left,
        "zones": {name: dict(sorted(counts.items())) for name, counts in zones.items()},
        "outside": {
            name: counts[Zone.HIGH.name.lower()] + counts[Zone.LOW.name.lower()]
            for name, counts in zones.items()
        },
        "violations_before": before,
        "violations": violations(state),
        "build_s": round(built - began, 2),
        "plan_s": round(planned - built, 2),
    }


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m procedures.master.balancing.simulate")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--equal", action="store_true", help="machines of one size")
    parser.add_argument("--tagged", type=float, default=0.1, help="share that wants a tag")
    parser.add_argument("--crowded", type=float, default=1.0, help="share of nodes used at first")
    parser.add_argument("--even", action="store_true", help="replicas are placed evenly at first")
    given = parser.parse_args(arguments)
    if given.nodes < given.replicas + 2 or given.partitions < 1 or not 0 < given.crowded <= 1:
        parser.error("at least replicas + 2 nodes, one partition, and 0 < crowded <= 1")
    shape = Shape(
        given.nodes,
        given.partitions,
        given.seed,
        given.replicas,
        not given.equal,
        given.tagged,
        given.crowded,
        given.even,
    )
    sys.stdout.write(json.dumps(simulate(shape)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
