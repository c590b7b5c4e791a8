"""Partitions change shape by themselves, in whole clusters of virtual time: they split when they
grow, where it does good, and become one again when their data have gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from kv.base.config import NodeConfig
from kv.base.errors import KvorumError
from kv.base.limits import KiB
from kvorum.api.model import Put, TableSpec
from kvorum.native.native import NativeBackend
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.bus.settings import KNOWN, SETTINGS_S
from tests.kvorum.cluster.simulated import SimCluster

pytestmark = pytest.mark.slow

MAX = 256 * KiB
VALUE = 1_000
SETTLE_S = 30


class Forgetful(SimCluster):
    """Old versions go within seconds."""

    def _config(self, number: int) -> NodeConfig:
        return replace(super()._config(number), gc_retention_ms=2_000, gc_interval_ms=1_000)


async def until(holds: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.5)


def master(cluster: SimCluster) -> Node:
    return next(node for node in cluster.nodes.values() if node.master.executor is not None)


async def again(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """What a patient client does."""
    while True:
        try:
            return await attempt()
        except KvorumError as error:
            if error.disposition == "no":
                raise
            await asyncio.sleep(0.05)


async def begun(cluster: SimCluster, **values: int) -> NativeBackend:
    """A table, and settings that fit a simulation."""
    await cluster.start()
    backend = master(cluster).backend
    assert isinstance(backend, NativeBackend)
    await backend.create_table("default", "t", TableSpec())
    wanted = {"partition.bytes_max": MAX, "partition.settle_s": SETTLE_S}
    for name, value in {**wanted, **{f"partition.{k}": v for k, v in values.items()}}.items():
        assert name in KNOWN
        id_ = await backend.submit("kvorum.set_setting", {"name": name, "value": value}, None)
        await backend.procedure(id_, 10_000)
    return backend


async def load(backend: NativeBackend, keys: list[bytes], *, per_batch: int = 20) -> None:
    for at in range(0, len(keys), per_batch):
        ops = [Put("default", "t", key, b"." * VALUE) for key in keys[at : at + per_batch]]
        await again(lambda ops=ops: backend.batch(ops))  # type: ignore[misc]
        await asyncio.sleep(0.02)


async def sizes(backend: NativeBackend) -> list[int]:
    """Of the table's partitions, in key order."""
    rows = await again(backend.partitions)
    return [row["size"] for row in rows if row["id"] != 1]


async def settled(backend: NativeBackend, cluster: SimCluster, seconds: float = 120) -> list[int]:
    """When nothing has changed for a while."""
    last: list[int] = []
    steady = 0
    async with asyncio.timeout(seconds):
        while steady < 4:
            await asyncio.sleep(6)
            now = await sizes(backend)
            shown = master(cluster).shaping.splitter.shown()
            quiet = not shown["working"] and not shown["refused"]
            steady = steady + 1 if len(now) == len(last) and quiet else 0
            last = now
    return last


async def stop(cluster: SimCluster) -> None:
    assert not cluster.failed
    for node in list(cluster.nodes.values()):
        await node.stop()


def test_h1_a_load_of_ten_times_the_limit_leaves_partitions_of_the_right_size() -> None:
    """Too large ones fit no node; too small ones cost for nothing."""

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, 11), random.Random(11)
        backend = await begun(cluster)
        keys = [b"%06d" % i for i in range(10 * MAX // (VALUE + 30))]
        chance.shuffle(keys)
        await load(backend, keys)
        found = await settled(backend, cluster)
        assert all(0.4 * MAX <= size <= MAX for size in found)
        assert len(found) >= 10
        for key in keys[:50]:
            row = await again(lambda key=key: backend.get("default", "t", key, 0))  # type: ignore[misc]
            assert row is not None
        await stop(cluster)

    run(main, 11)


def test_h7_keys_that_only_rise_are_cut_at_the_end_and_writes_move_on() -> None:
    """Cut in the middle, each partition would stay half empty for ever; and people must be told
    that all writes go to one.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 12)
        large = 2 * MAX
        backend = await begun(cluster, bytes_max=large)
        hints: list[str] = []

        async def look() -> None:
            while True:
                rows = await again(backend.partitions)
                hints.extend(row["hint"] for row in rows if row["hint"])
                await asyncio.sleep(1)

        looking = asyncio.get_running_loop().create_task(look())
        for i in range(4 * large // (VALUE + 30)):
            put = ("default", "t", b"%08d" % i, b"." * VALUE, None, 0)
            await again(lambda put=put: backend.put(*put))  # type: ignore[misc]
            await asyncio.sleep(0.02)
        looking.cancel()
        found = await settled(backend, cluster)
        told = master(cluster).shaping.splitter.done
        assert sum("(end)" in text for text in told) >= 3, told
        assert all(0.4 * large <= size <= large for size in found[:-1]), found
        assert sum(size > 0.7 * large for size in found) >= 2, "most are full: nothing comes later"
        assert any("highest" in hint for hint in hints)
        await stop(cluster)

    run(main, 12)


def test_h5_a_hot_range_is_cut_where_its_load_divides() -> None:
    """The middle by bytes would leave all of the load on one side."""

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, 15), random.Random(15)
        backend = await begun(cluster, load_min=20, bytes_max=8 * MAX)
        await load(backend, [b"%06d" % i for i in range(1_000)])

        async def ask() -> None:
            while True:
                key = b"%06d" % chance.randrange(100)  # a tenth of the rows has all the load
                await again(lambda key=key: backend.get("default", "t", key, 0))  # type: ignore[misc]
                await asyncio.sleep(0.002)

        asking = [asyncio.get_running_loop().create_task(ask()) for _ in range(3)]
        await until(lambda: master(cluster).shaping.splitter.splits > 0, 60)
        told = master(cluster).shaping.splitter.done[0]
        assert "(load)" in told
        assert "times the mean" in told
        await asyncio.sleep(10)
        rows = [row for row in await again(backend.partitions) if row["id"] != 1]
        for task in asking:
            task.cancel()
        assert len(rows) >= 2
        border = int(rows[0]["end"][4:])
        assert 25 <= border <= 75, "half of the requests on each side"
        assert rows[0]["load"] > 0
        await stop(cluster)

    run(main, 15)


def test_h3_partitions_become_fewer_when_their_data_have_gone() -> None:
    """Each costs memory, a group and a row of the map, whatever it holds."""

    async def main(loop: SimLoop) -> None:
        cluster = Forgetful(loop, 13)
        backend = await begun(cluster)
        keys = [b"%06d" % i for i in range(6 * MAX // (VALUE + 30))]
        random.Random(13).shuffle(keys)
        for at in range(0, len(keys), 20):
            ops = [
                Put("default", "t", key, b"." * VALUE, ttl_ms=60_000) for key in keys[at : at + 20]
            ]
            await again(lambda ops=ops: backend.batch(ops))  # type: ignore[misc]
            await asyncio.sleep(0.02)
        before = await settled(backend, cluster)
        assert len(before) >= 6
        async with asyncio.timeout(3_600):
            while len(await sizes(backend)) > 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(20)
        assert await sizes(backend) == [0]
        await stop(cluster)

    run(main, 13)


def test_i11_the_switch_stops_it_and_lets_it_go_on() -> None:
    """During somebody's repair nothing may change shape."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 14)
        backend = await begun(cluster, auto=0)
        await load(backend, [b"%06d" % i for i in range(3 * MAX // VALUE)])
        await asyncio.sleep(SETTINGS_S)
        assert len(await sizes(backend)) == 1
        id_ = await backend.submit(
            "kvorum.set_setting", {"name": "partition.auto", "value": 1}, None
        )
        await backend.procedure(id_, 10_000)
        assert len(await settled(backend, cluster)) > 1
        await stop(cluster)

    run(main, 14)


@pytest.mark.parametrize("seed", [21, 22])
def test_h1_a_new_master_goes_on_and_repeats_nothing(seed: int) -> None:
    """Two masters that both split what they see would cut it twice."""

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, seed), random.Random(seed)
        backend = await begun(cluster)
        old = master(cluster).store.identity.node
        keys = [b"%06d" % i for i in range(5 * MAX // (VALUE + 30))]
        chance.shuffle(keys)
        await load(backend, keys)
        await asyncio.sleep(4 + 3 * chance.random())
        await cluster.crash(old)
        async with asyncio.timeout(30):
            while not any(n.master.executor is not None for n in cluster.nodes.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        other = master(cluster).backend
        assert isinstance(other, NativeBackend)
        found = await settled(other, cluster)
        assert all(0.4 * MAX <= size <= MAX for size in found), found
        assert len(found) <= 5 / 0.4
        await cluster.start(old)
        await stop(cluster)

    run(main, seed)


def test_h6_cold_neighbours_at_different_nodes_become_one() -> None:
    """They are merged only where their replicas lie together: fragments that placement has spread
    would stay for ever.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 16, 4)
        await cluster.start()
        backend = master(cluster).backend
        assert isinstance(backend, NativeBackend)
        spec = TableSpec(split_keys=(b"m",), replicas=2)
        await backend.create_table("default", "t", spec)
        rows = [row for row in await again(backend.partitions) if row["id"] != 1]
        nodes = [set(row["replicas"]) for row in rows]
        if nodes[0] == nodes[1]:
            target = min({1, 2, 3, 4} - nodes[1])
            args = {"partition": rows[1]["id"], "from": min(nodes[1]), "to": target}
            await backend.procedure(await backend.submit("kvorum.move_replica", args, None), 30_000)
        for key in (b"a", b"z"):
            await backend.put("default", "t", key, b"v", None, 0)
        id_ = await backend.submit(
            "kvorum.set_setting", {"name": "partition.settle_s", "value": SETTLE_S}, None
        )
        await backend.procedure(id_, 10_000)
        async with asyncio.timeout(600):
            while len(await sizes(backend)) > 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(5)
        told = list(master(cluster).shaping.splitter.done)
        assert any("moves beside" in text for text in told), told
        for key in (b"a", b"z"):
            row = await again(lambda key=key: backend.get("default", "t", key, 0))  # type: ignore[misc]
            assert row is not None
        await stop(cluster)

    run(main, 16)
