"""Whole nodes in virtual time: what the schedulers of the master do to a running cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import kvorum
from kv.base.config import NodeConfig
from kvorum.database import AsyncDatabase
from kvorum.members import placed
from tests.cluster.simulated import PORT, SimCluster
from tests.support.simloop import SimLoop, run

DEAD_AFTER_MS = 10_000
KEYS = [chr(letter) + "1" for letter in range(ord("a"), ord("s"))]
SPLITS = ["d", "h", "l", "p"]


class Sites(SimCluster):
    """With settings of its own for each node; a dead one is given up after ten seconds."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        count: int,
        settings: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(loop, seed, count)
        self.settings: dict[int, dict[str, Any]] = {
            n: dict((settings or {}).get(n, {})) for n in range(1, count + 1)
        }

    def _config(self, number: int) -> NodeConfig:
        config = super()._config(number)
        return replace(config, dead_after_ms=DEAD_AFTER_MS, **self.settings[number])

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.5)

    def any(self, *but: int) -> AsyncDatabase:
        """A client at some living node."""
        number = min(n for n in self.nodes if n not in but)
        return AsyncDatabase(self.nodes[number].backend, self._rng)

    async def where(self) -> dict[int, tuple[int, ...]]:
        """The voters of all partitions but the meta partition, as their leaders have them."""
        rows = await self.any().partitions()
        return {row["id"]: tuple(sorted(row["replicas"])) for row in rows if row["id"] != 1}


def simulated(
    scenario: Callable[[Sites], Awaitable[None]],
    count: int,
    settings: Mapping[int, Mapping[str, Any]] | None = None,
    seed: int = 5,
) -> None:
    async def main(loop: SimLoop) -> None:
        made = Sites(loop, seed, count, settings)
        await made.start()
        try:
            await scenario(made)
        finally:
            await made.close()

    run(main, seed)


async def write(db: AsyncDatabase, keys: list[str], value: str) -> None:
    table = db.table("default", "t")
    await asyncio.gather(*(table.put(key, value) for key in keys))


async def read(db: AsyncDatabase) -> dict[str, bytes]:
    table = db.table("default", "t")
    return {row.key.decode(): row.value async for row in table.rows()}


class Writers:
    """Writes all the while; what was acknowledged must be there in the end."""

    def __init__(self, made: Sites) -> None:
        self._made = made
        self.acknowledged: dict[str, str] = {}
        self._stop = False

    async def run(self) -> None:
        for number in itertools.count():
            if self._stop:
                return
            key = KEYS[number % len(KEYS)]
            try:
                db = self._made.any()
                await db.table("default", "t").put(key, str(number))
            except kvorum.KvorumError:
                self.acknowledged.pop(key, None)
            else:
                self.acknowledged[key] = str(number)
            await asyncio.sleep(0.05)

    async def check(self) -> None:
        self._stop = True
        await asyncio.sleep(1)
        found = await read(self._made.any())
        for key, value in self.acknowledged.items():
            assert found[key] == value.encode(), key


def test_f6_replicas_of_a_dead_node_are_rebuilt_and_the_node_comes_back() -> None:
    """Two copies of three would be left for ever; what comes back must bring nothing back."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", split_keys=SPLITS, replicas=3)
        await write(db, KEYS, "v")
        writers = Writers(made)
        running = asyncio.create_task(writers.run())
        victim = next(n for n in (5, 4, 3, 2) if not made.nodes[n].store.tso.leading)
        before = await made.where()
        had = [id_ for id_, nodes in before.items() if victim in nodes]
        assert had
        await made.crash(victim)

        async def rebuilt() -> bool:
            now = await made.where()
            return all(len(nodes) == 3 and victim not in nodes for nodes in now.values())

        await made.until(rebuilt)
        await made.start(victim)

        async def forgotten() -> bool:
            here = {d.id for d in made.nodes[victim].store.manager.descriptors()}
            named = {p for p, nodes in (await made.where()).items() if victim in nodes}
            return here - {1} == named

        await made.until(forgotten)
        await running_check(writers, running)

    simulated(scenario, 5)


async def running_check(writers: Writers, running: asyncio.Task[None]) -> None:
    await writers.check()
    await running


@pytest.mark.parametrize("seed", [1, 2])
def test_f6_the_master_falls_while_replicas_are_rebuilt(seed: int) -> None:
    """The next master must go on with it, once."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", split_keys=SPLITS, replicas=3)
        await write(db, KEYS, "v")
        master = next(n for n, node in made.nodes.items() if node.store.tso.leading)
        victim = next(n for n in (5, 4, 3) if n != master)
        await made.crash(victim)

        async def begun() -> bool:
            found = await made.any().procedures(name="kvorum.server_crash")
            return bool(found)

        await made.until(begun)
        await asyncio.sleep(0.05)
        await made.crash(master)
        await asyncio.sleep(2)
        await made.start(master)

        async def rebuilt() -> bool:
            now = await made.where()
            return all(len(nodes) == 3 and victim not in nodes for nodes in now.values())

        await made.until(rebuilt)
        assert set(await read(made.any())) == set(KEYS)

    simulated(scenario, 5, seed=seed)


def test_f6_a_node_that_is_back_in_time_keeps_what_it_has() -> None:
    """A restart must not cost a copy of all its data."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", split_keys=SPLITS, replicas=3)
        before = await made.where()
        victim = next(n for n in (4, 3, 2) if not made.nodes[n].store.tso.leading)
        await made.crash(victim)
        await asyncio.sleep(DEAD_AFTER_MS / 1000 / 2)
        await made.start(victim)
        await asyncio.sleep(2 * DEAD_AFTER_MS / 1000)
        assert await made.where() == before
        assert not await made.any().procedures(name="kvorum.server_crash")

    simulated(scenario, 4)
