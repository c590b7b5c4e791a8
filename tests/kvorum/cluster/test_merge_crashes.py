"""One merge, and the power of a node fails at every sync of every node (H4): of the master, of the
leader of the lower partition, of the leader of the upper one.

A run without faults counts what each node syncs, state DB and log, from the order to merge until it
is done. Then there is one run per such sync, the same up to it: there the node loses its power, and
comes back a while later. Beside it transfers, plain writes, scans and a watch go on; whatever falls
when, there is one outcome: nothing acknowledged is lost, no transaction is torn, nobody stands
still, all nodes have the same partitions, and what was not merged can be.

All points: `python -m tests.kvorum.cluster.test_merge_crashes [SEED]`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kv.base.ids import META_PARTITION
from kv.storage.engine import Engine
from kv.storage.memory import MemoryEngine
from kvorum.testing.simulation.loop import SimLoop
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.splits import Bank, everybody_follows, scene, submit

pytestmark = pytest.mark.slow

DOWN_S = 1.5
AFTERMATH_S = 0.02  # the upper one's log and records go
EVERY = 8
"""So many points are passed over by the test; the command takes all."""


class Point(NamedTuple):
    """The n-th time that a sync of that database of that node begins, or has ended."""

    node: int
    name: str
    moment: str
    nth: int


class Counting(SimCluster):
    """Counts syncs while `counting`, and takes the power at `point`."""

    def __init__(self, loop: SimLoop, seed: int, count: int = 3) -> None:
        super().__init__(loop, seed, count)
        self.counting = False
        self.syncs: Counter[tuple[int, str, str]] = Counter()
        self.point: Point | None = None
        self.fallen: asyncio.Task[None] | None = None

    def _open_engine(self, number: int, path: Path, families: Sequence[str]) -> Engine:
        engine = super()._open_engine(number, path, families)
        assert isinstance(engine, MemoryEngine)
        mark, sync_to = engine.mark, engine.sync_to

        def begins() -> int:
            self._count(number, path.name, "begins")
            return mark()

        def ends(mark: int) -> None:
            sync_to(mark)
            self._count(number, path.name, "ends")

        engine.mark, engine.sync_to = begins, ends  # type: ignore[method-assign]
        return engine

    def _count(self, node: int, name: str, moment: str) -> None:
        if not self.counting:
            return
        self.syncs[node, name, moment] += 1
        if self.point == Point(node, name, moment, self.syncs[node, name, moment]):
            self.counting = False
            self.fallen = asyncio.get_running_loop().create_task(self._fall(node))

    async def _fall(self, node: int) -> None:
        await self.crash(node)
        await asyncio.sleep(DOWN_S)
        await self.start(node)


def leader(bank: Bank, partition: int) -> int:
    return next(
        (
            number
            for number, node in bank.cluster.nodes.items()
            if (replica := node.store.manager.replica(partition)) is not None and replica.leads()
        ),
        0,
    )


async def lead(bank: Bank, partition: int, node: int) -> None:
    while leader(bank, partition) != node:
        if leader(bank, partition):
            args = {"partition": partition, "to": node}
            await submit(bank, "kvorum.transfer_leader", args)
        await asyncio.sleep(0.1)


def merged(seed: int, point: Point | None) -> tuple[str, list[Point]]:
    """The state of the procedure, and what was synced meanwhile."""
    found: list[Any] = []

    async def main(bank: Bank) -> None:
        cluster = bank.cluster
        assert isinstance(cluster, Counting)
        left = bank.led_at(bank.ranges()[0][0]).id
        info = await submit(bank, "kvorum.split_partition", {"partition": left, "at": "a12"})
        assert info.state == "SUCCESS", info
        right = info.result["new"]
        master = leader(bank, META_PARTITION)
        others = [number for number in (1, 2, 3) if number != master]
        await lead(bank, left, others[0])
        await lead(bank, right, others[1])
        await asyncio.sleep(0.5)
        cluster.point, cluster.counting = point, True
        both = {"left": left, "right": right}
        info = await submit(bank, "kvorum.merge_partitions", both)
        await asyncio.sleep(AFTERMATH_S)
        cluster.counting = False
        assert (cluster.fallen is None) == (point is None), "the run is not the same up to there"
        if cluster.fallen is not None:
            await cluster.fallen
        found.append(info.state)
        found.append([Point(*key, i) for key, n in cluster.syncs.items() for i in range(1, n + 1)])
        await everybody_follows(bank)
        frozen = [n.store.manager.frozen() for n in cluster.nodes.values()]
        assert not any(frozen), "somebody stands still"
        ends = [(d.start, d.end) for d in cluster.nodes[1].store.manager.descriptors()[1:]]
        assert len(ends) == (1 if info.state == "SUCCESS" else 2), (info, ends)
        if info.state != "SUCCESS":
            again = await submit(bank, "kvorum.merge_partitions", both)
            assert again.state == "SUCCESS", again
        number = dict(bank.acknowledged)
        await asyncio.sleep(1)
        assert bank.acknowledged != number, "writes go on"

    scene(main, seed=seed, calm=True, make=Counting)
    return found[0], sorted(found[1])


def points(seed: int) -> list[Point]:
    """Of a run without faults."""
    state, found = merged(seed, None)
    assert state == "SUCCESS"
    return found


@pytest.mark.timeout(300)
def test_h4_whoever_falls_at_any_sync_of_a_merge_leaves_one_outcome() -> None:
    """A merge would lose what one side had acknowledged, serve keys twice, or leave a partition
    that stands still for ever.
    """
    all_ = points(1)
    assert {point.node for point in all_} == {1, 2, 3}
    assert {point.name for point in all_} == {"log", "state"}
    chosen = [point for i, point in enumerate(all_) if point.name == "state" or i % EVERY == 0]
    states = Counter(merged(1, point)[0] for point in chosen)
    assert states["SUCCESS"] > len(chosen) // 2, states


def main(seed: int) -> int:
    """Every point; how many went wrong."""
    states: Counter[str] = Counter()
    all_ = points(seed)
    for point in all_:
        try:
            states[merged(seed, point)[0]] += 1
        except Exception as error:  # noqa: BLE001 - to be told, and the next one tried
            states["WRONG"] += 1
            print(point, repr(error)[:500], flush=True)  # noqa: T201
    print(seed, len(all_), dict(states), flush=True)  # noqa: T201
    return states["WRONG"]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
