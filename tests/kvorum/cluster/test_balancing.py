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
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


async def done(made: Sites, name: str, args: dict[str, Any]) -> Any:
    """The result of a procedure."""
    db = made.any()
    return await db.wait(await db.submit(name, args), timeout_ms=60_000)


async def setting(made: Sites, name: str, value: int) -> None:
    await done(made, "kvorum.set_setting", {"name": name, "value": value})


@pytest.mark.slow
def test_f5_a_replica_moves_under_load_and_wrong_moves_are_refused() -> None:
    """Operators move by hand, too; what cannot be is said before anything is done."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", split_keys=["h"], replicas=3)
        await db.create_table("default", "tagged", replicas=1, tags=["ssd"])
        await setting(made, "balance.enabled", 0)
        await write(db, KEYS, "v")
        running = asyncio.create_task((writers := Writers(made)).run())
        first, _second, tagged = sorted(await made.where())
        nodes = (await made.where())[first]
        (free,) = {1, 2, 3, 4} - set(nodes)
        for source in nodes[:2]:  # one of them may lead
            result = await done(
                made, "kvorum.move_replica", {"partition": first, "from": source, "to": free}
            )
            assert result == {"partition": first, "from": source, "to": free}
            now = (await made.where())[first]
            assert set(now) == {*nodes, free} - {source}
            nodes, free = now, source
        only = (await made.where())[tagged]
        assert only == (2,)
        for args, why in (
            ({"partition": first, "from": free, "to": nodes[0]}, "has no replica of partition"),
            ({"partition": first, "from": nodes[0], "to": nodes[1]}, "has a replica of partition"),
            ({"partition": tagged, "from": 2, "to": 1}, "lacks the tag ssd"),
            ({"partition": first, "from": nodes[0], "to": 9}, "there is no node 9"),
            ({"partition": 99, "from": 1, "to": 2}, "there is no partition 99"),
            ({"partition": 1, "from": 1, "to": 2}, "meta partition"),
        ):
            before = await made.where()
            with pytest.raises(kvorum.KvorumError, match=why):
                await done(made, "kvorum.move_replica", args)
            assert await made.where() == before
        with pytest.raises(kvorum.KvorumError, match="must be an id"):
            await done(made, "kvorum.move_replica", {"partition": first, "from": "1", "to": 2})
        await running_check(writers, running)

    simulated(scenario, 4, {2: {"tags": ("ssd",)}})


@pytest.mark.slow
def test_f5_a_leadership_that_was_handed_over_stays_where_it_is() -> None:
    """The loop that brings leaderships home would take it back two seconds later."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t")
        (row,) = [row for row in await db.partitions() if row["id"] != 1]
        target = next(n for n in row["replicas"] if n != row["leader"])
        await done(made, "kvorum.transfer_leader", {"partition": row["id"], "to": target})
        await asyncio.sleep(20)
        (row,) = [row for row in await db.partitions() if row["id"] != 1]
        assert row["leader"] == target
        with pytest.raises(kvorum.KvorumError, match="node 7 has no replica"):
            await done(made, "kvorum.transfer_leader", {"partition": row["id"], "to": 7})

    simulated(scenario, 3)


@pytest.mark.slow
def test_i14_changing_a_tag_moves_the_replicas_and_none_remains_outside() -> None:
    """A table that must be on certain machines would be elsewhere, too."""
    ssd = {n: {"tags": ("ssd", "old")} for n in (1, 2)} | {n: {"tags": ("ssd",)} for n in (3, 4, 5)}

    async def scenario(made: Sites) -> None:
        db = made.any()
        with pytest.raises(kvorum.Refused, match="no member carries the tags tape; there are old"):
            await db.create_table("default", "nowhere", replicas=2, tags=["tape"])
        await db.create_table("default", "t", split_keys=SPLITS, replicas=2, tags=["old"])
        assert set((await made.where()).values()) == {(1, 2)}
        await write(db, KEYS, "v")
        with pytest.raises(kvorum.Refused, match="no member carries the tags tape"):
            await done(
                made,
                "kvorum.place_table",
                {"namespace": "default", "name": "t", "tags": ["tape"]},
            )
        await done(
            made,
            "kvorum.place_table",
            {"namespace": "default", "name": "t", "tags": ["ssd"], "replicas": 3},
        )

        async def three() -> bool:
            return all(len(nodes) == 3 for nodes in (await made.where()).values())

        await made.until(three)
        for number in (1, 2):  # the nodes change, not the table
            made.settings[number]["tags"] = ("old",)
            await made.crash(number)
            await asyncio.sleep(1)
            await made.start(number)

        async def inside() -> bool:
            return set((await made.where()).values()) == {(3, 4, 5)}

        await made.until(inside)
        assert set(await read(made.any())) == set(KEYS)

    simulated(scenario, 5, ssd)


def test_i12_replicas_are_kept_in_different_racks_also_when_the_level_changes() -> None:
    """Three copies in one rack are gone with its switch."""
    racks = {n: {"labels": (f"dc=d{n % 2}", f"rack=r{(n + 1) // 2}")} for n in range(1, 7)}

    def rack(node: int) -> int:
        return (node + 1) // 2

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", split_keys=SPLITS, replicas=3)
        await setting(made, "balance.enabled", 0)
        # racks 1, 2, 3 in each of two datacenters: six racks; only the datacenter may be shared
        await setting(made, "placement.level", 0)

        async def apart() -> bool:
            found = (await made.where()).values()
            return all(len({n % 2 for n in nodes}) == 2 for nodes in found)

        await made.until(apart)
        nodes = {row["id"]: row for row in await db.nodes()}
        assert nodes[3]["labels"] == {"dc": "d1", "rack": "r2", "server": "node3"}

    simulated(scenario, 6, racks)


@pytest.mark.slow
def test_i11_each_scheduler_can_be_paused_alone() -> None:
    """Who pauses the balancer for a night still wants dead nodes to be replaced."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", split_keys=SPLITS, replicas=1)
        await setting(made, "placement.enabled", 0)
        await setting(made, "balance.enabled", 0)
        await asyncio.sleep(10)
        await crowd(made, 1)
        before = await made.where()
        assert set(before.values()) == {(1,)}
        await asyncio.sleep(20)
        assert await made.where() == before, "both are paused"
        await setting(made, "placement.enabled", 1)
        await asyncio.sleep(20)
        assert await made.where() == before, "the placement does not balance"
        await setting(made, "balance.enabled", 1)

        async def even() -> bool:
            found = (await made.where()).values()
            counts = Counter(node for nodes in found for node in nodes)
            return max(counts.values()) <= 3 and counts.total() == len(before)

        await made.until(even, 300)
        calm = await made.where()
        await asyncio.sleep(60)
        assert await made.where() == calm, "and then nothing moves"

    simulated(scenario, 3)


async def crowd(made: Sites, node: int) -> None:
    """Everything to one node."""
    for partition, (at,) in (await made.where()).items():
        if at != node:
            await done(
                made, "kvorum.move_replica", {"partition": partition, "from": at, "to": node}
            )


@pytest.mark.slow
def test_i13_who_dies_while_it_gets_a_replica_is_given_up() -> None:
    """A move to a dead node would hold its partition for ever."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", replicas=3)
        ((partition, nodes),) = (await made.where()).items()
        master = next(n for n, node in made.nodes.items() if node.store.tso.leading)
        free = next(n for n in (4, 5) if n not in nodes and n != master)
        await write(db, KEYS, "v")
        source = next(n for n in nodes if n != master)
        made.network.isolate(free)  # it answers nobody, but has not died yet
        made.network.cut -= {(free, master), (master, free)}
        id_ = await db.submit(
            "kvorum.move_replica", {"partition": partition, "from": source, "to": free}
        )
        await asyncio.sleep(0.5)
        await made.crash(free)

        async def ended() -> bool:
            return (await made.any().procedure(id_)).state not in ("RUNNABLE", "WAITING")

        await made.until(ended)
        assert (await made.where())[partition] == nodes
        assert set(await read(made.any())) == set(KEYS)

    simulated(scenario, 5)


@pytest.mark.slow
def test_f6_a_table_that_is_everywhere_gets_its_node_back() -> None:
    """With four voters a dead one weakens the group: it is taken out, and comes back in."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t")
        await write(db, KEYS, "v")
        victim = next(n for n in (4, 3, 2) if not made.nodes[n].store.tso.leading)
        staying = tuple(sorted({1, 2, 3, 4} - {victim}))
        await made.crash(victim)

        async def out() -> bool:
            rows = await made.any().partitions()
            return all(tuple(sorted(row["replicas"])) == staying for row in rows)

        await made.until(out)
        await made.start(victim)

        async def back() -> bool:
            rows = await made.any().partitions()
            return all(sorted(row["replicas"]) == [1, 2, 3, 4] for row in rows)

        await made.until(back)
        assert set(await read(made.any())) == set(KEYS)

    simulated(scenario, 4)


@pytest.mark.slow
def test_h5_one_half_of_a_hot_partition_ends_on_other_nodes() -> None:
    """Both halves on the nodes that were too hot for one."""

    async def scenario(made: Sites) -> None:
        db = made.any()
        await db.create_table("default", "t", replicas=3)
        await setting(made, "balance.enabled", 0)
        await write(db, KEYS, "v")
        ((hot, nodes),) = (await made.where()).items()
        table = next(row["start"] for row in await db.partitions() if row["id"] == hot)
        told = await done(made, "kvorum.split_partition", {"partition": hot, "key": table + b"j"})
        new = told["new"]
        result = await done(made, "kvorum.move_apart", {"partition": new, "beside": hot})
        where = await made.where()
        assert result == {"moved": 3, "left": []}
        assert not set(where[new]) & set(where[hot])
        assert where[hot] == nodes
        assert set(await read(made.any())) == set(KEYS)

    simulated(scenario, 6)
