"""Flipped bits in what nodes have stored: nobody is told, nothing is lost, and the replica comes
back from a healthy one. Whole clusters in virtual time, by seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from kv.base.errors import Corruption, KvorumError, Unavailable
from kv.base.ids import META_PARTITION, PartitionId
from kv.replica.ranges import slices
from kv.replica.replica import Replica
from kv.replica.verifying import verify_part
from kvorum.api.model import ScanSpec, TableSpec
from kvorum.node.node import Node
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.verbs import DROP_PARTITION
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.test_simulated import KEYS, Client

HEALED_S = 120.0


def leader(cluster: SimCluster, partition: int) -> int | None:
    """Who leads it, if anybody is known to."""
    for number, node in sorted(cluster.nodes.items()):
        replica = node.store.manager.replica(partition)
        if replica is not None and replica.leads():
            return number
    return None


def replicas(cluster: SimCluster) -> list[tuple[int, Replica]]:
    return [
        (number, replica)
        for number, node in sorted(cluster.nodes.items())
        for replica in node.store.manager.replicas()
    ]


async def until(held: Callable[[], bool], what: str, seconds: float = HEALED_S) -> None:
    """Wait for an event, in virtual time."""
    for _ in range(int(seconds / 0.1)):
        if held():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def healed(cluster: SimCluster, voters: int = 3) -> Callable[[], bool]:
    """Nothing is damaged anywhere, and every group has all its voters again."""

    def look() -> bool:
        found = replicas(cluster)
        return (
            not any(node.store.manager.damage() for node in cluster.nodes.values())
            and len({r.descriptor.id for _, r in found}) * voters == len(found)
            and all(len(r.group.status().voters) == voters for _, r in found)
        )

    return look


def flip(node: Node, family: str, key: bytes, chance: random.Random) -> None:
    node.store.state.flip_bit(family, key, chance.randrange(1 << 12))  # type: ignore[attr-defined]


def table_partitions(node: Node) -> list[PartitionId]:
    found = [d.id for d in node.store.manager.descriptors()]
    return [id_ for id_ in found if id_ != META_PARTITION]


def key_of(node: Node, user_key: str) -> bytes:
    """Its storage key: the only row of family cur that ends so."""
    rows = node.store.state.scan("cur", b"", b"")
    (found,) = [key for key, _ in rows if key.endswith(user_key.encode())]
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["get", "scan", "put", "transaction"])
def test_b14_a_damaged_leader_hands_over_and_is_rebuilt(how: str) -> None:
    """500 CORRUPTION was answered though two copies were well, and the row stayed damaged."""

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, 3), random.Random(3)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec())
        for i in range(20):
            await backend.put("default", "k", b"key%02d" % i, b"value%d" % i, None, 0)
        (partition,) = table_partitions(cluster.nodes[1])
        bad = leader(cluster, partition)
        assert bad is not None
        node = cluster.nodes[bad]
        flip(node, "cur", key_of(node, "key07"), chance)
        other = cluster.nodes[bad % 3 + 1].backend
        match how:
            case "get":
                row = await other.get("default", "k", b"key07", 0)
                assert row is not None
                assert row.value == b"value7"
            case "scan":
                page = await other.scan("default", "k", ScanSpec(limit=100))
                assert [one.value for one in page.items] == [b"value%d" % i for i in range(20)]
            case "put":
                await other.put("default", "k", b"key07", b"new", None, 0)
            case "transaction":
                async with AsyncDatabase(other, cluster.nodes[bad].ports.rng).transaction() as t:
                    table = t.table("default", "k")
                    row = await table.get("key07")
                    assert row is not None
                    await table.put("key07", row.value + b"!")
                    await table.put("key08", "both")
        assert node.store.manager.counters.damaged == 1
        await until(healed(cluster), "it is rebuilt")
        rebuilt = node.store.manager.replica(partition)
        assert rebuilt is not None
        at = max(r.state.index for _, r in replicas(cluster) if r.descriptor.id == partition)
        await until(lambda: rebuilt.state.index >= at, "it has caught up")
        rows = [
            cluster.nodes[n].store.state.scan("cur", *(rebuilt.descriptor.start, b"\xff"))
            for n in cluster.nodes
        ]
        assert rows[0] == rows[1] == rows[2] != []
        await cluster.close()

    run(main, 3)


def test_b14_the_meta_partition_is_rebuilt_like_the_others() -> None:
    """It has no row in the map, and is made by each node itself: a damaged one stayed for ever, or
    came back as a founder with an empty log.
    """

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, 5), random.Random(5)
        await cluster.start()
        await cluster.nodes[1].backend.create_table("default", "k", TableSpec())
        bad = leader(cluster, META_PARTITION)
        assert bad is not None
        node = cluster.nodes[bad]
        replica = node.store.manager.replica(META_PARTITION)
        assert replica is not None
        rows = node.store.state.scan("cur", replica.descriptor.start, replica.descriptor.end)
        flip(node, "cur", chance.choice(rows)[0], chance)
        read_all(replica)
        assert replica.damage is not None
        await until(healed(cluster), "it is rebuilt")
        assert node.store.identity.founders == ()
        await cluster.crash(bad)
        await cluster.nodes[bad % 3 + 1].backend.put("default", "k", b"a", b"1", None, 0)
        await cluster.start(bad)
        await until(healed(cluster), "it comes back as what it was")
        await cluster.close()

    run(main, 5)


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [1, 3])
def test_b14_without_a_healthy_copy_nothing_is_given_up(count: int) -> None:
    """The last copies of what is well would be thrown away for what is not."""

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, 7, count), random.Random(7)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec())
        for key in (b"bad", b"good"):
            await backend.put("default", "k", key, key, None, 0)
        await until(lambda: len({r.state.index for _, r in replicas(cluster)}) <= 2, "all have it")
        (partition,) = table_partitions(cluster.nodes[1])
        for node in cluster.nodes.values():
            flip(node, "cur", key_of(node, "bad"), chance)
        with pytest.raises(Corruption):
            await backend.get("default", "k", b"bad", 0)
        for _ in range(20):  # whatever the master tries meanwhile
            await asyncio.sleep(2)
            row = await backend.get("default", "k", b"good", 0)
            assert row is not None
            assert row.value == b"good"
            await backend.put("default", "k", b"good", b"good", None, 0)
        for node in cluster.nodes.values():
            assert key_of(node, "bad"), "it is still there, for whoever can mend it"
            assert node.store.manager.counters.dropped == 0
            assert partition in table_partitions(node)
        await cluster.close()

    run(main, 7)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["state", "log"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole log", "log was cut"])
def test_b14_a_node_that_lost_one_of_its_databases_comes_back(name: str, cut: bool) -> None:
    """It did not start any more; or it would vote with an empty log under its old number."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 13)
        await cluster.start()
        spec = TableSpec(split_keys=(b"h", b"s"))
        await cluster.nodes[1].backend.create_table("default", "k", spec)
        clients = [Watching(f"c{i}", cluster, 130 + i) for i in range(3)]
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(stop))
            await asyncio.sleep(1)
            if cut:
                for node in cluster.nodes.values():
                    node.store.manager.logs._keep = 1
                    await node.store.manager.truncate()
            await cluster.crash(3)
            cluster.lose_disk(3, name)
            await asyncio.sleep(1)
            await cluster.start(3)
            await until(healed(cluster), "it has everything again")
            stop.set()
        await cluster.crash(1)
        await until(lambda: leader(cluster, META_PARTITION) is not None, "2 and 3 are a majority")
        for client in clients:
            assert len(client.versions) > 20
            for key, number in client.acknowledged.items():
                row = await cluster.nodes[3].backend.get("default", "k", key.encode(), 0)
                assert row is not None, f"{key} is lost"
                assert int(row.value) in {number, *client.doubtful.get(key, ())}
        await cluster.close()

    run(main, 13)


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [("state", "log"), ("log",), ("state",)], ids="+".join)
def test_a2_two_emptied_founders_wait_for_the_third(lost: tuple[str, ...]) -> None:
    """They elected each other, and served an empty cluster under the name of the old one."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 11)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec())
        await backend.put("default", "k", b"a", b"1", None, 0)
        await asyncio.sleep(1)  # the third of them has it, too
        (partition,) = table_partitions(cluster.nodes[1])
        written = min(r.state.index for _, r in replicas(cluster) if r.descriptor.id == partition)
        for number in (1, 2, 3):
            await cluster.crash(number)
        for number in (2, 3):
            cluster.lose_disk(number, *lost)
        starting = [asyncio.ensure_future(cluster.start(number)) for number in (2, 3)]
        await asyncio.sleep(40)
        if lost == ("state",):  # their logs say all that there was
            assert leader(cluster, partition) in (2, 3)
            row = await cluster.nodes[2].backend.get("default", "k", b"a", 0)
            assert row is not None
            assert row.value == b"1"
        else:
            assert leader(cluster, META_PARTITION) is None
        if len(lost) == 2:
            for number in (2, 3):
                said = cluster.nodes[number].not_ready()
                assert said is not None
                assert "not heard: node 1 (node1:7600)." in said
                assert "empty no other directory" in said
        # This network knows no incarnations, by which the third one would refuse them (DATA_GONE):
        # they take what it has of the meta partition, but what they make anew gives no vote.
        starting.append(asyncio.ensure_future(cluster.start(1)))
        await asyncio.sleep(15)
        assert lost == ("log",) or leader(cluster, META_PARTITION) is not None
        assert leader(cluster, partition) in ((1, 2, 3) if lost == ("state",) else (None, 1))
        survivor = cluster.nodes[1].store.manager.replica(partition)
        assert survivor is not None
        assert survivor.group.last_index >= written, "its log was not cut by an empty one"
        for node in cluster.nodes.values():
            await node.stop()
        await asyncio.gather(*starting, return_exceptions=True)

    run(main, 11)


def test_a2_nobody_can_order_a_member_to_drop_its_replica() -> None:
    """DROP_PARTITION to three nodes: committed data were gone, and an empty leader was elected."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 9)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec())
        await backend.put("default", "k", b"a", b"1", None, 0)
        everything = [META_PARTITION, *table_partitions(cluster.nodes[1])]
        for partition in everything:
            for number in cluster.nodes:
                calls = cluster.nodes[1].store.cluster.calls
                with pytest.raises(Unavailable, match="the cluster counts on it"):
                    await calls.call_at(number, DROP_PARTITION, [partition], budget_ms=2_000)
        row = await backend.get("default", "k", b"a", 0)
        assert row is not None
        await backend.drop_table("default", "k")
        await until(lambda: not any(map(table_partitions, cluster.nodes.values())), "it is dropped")
        await cluster.close()

    run(main, 9)


def damage_something(cluster: SimCluster, chance: random.Random) -> Replica:
    """A bit of any stored record of one replica while the others are well: leader or follower, of
    a table or of the meta partition, the newest record or what belongs to open transactions.
    """
    number, replica = chance.choice(replicas(cluster))
    engine = cluster.nodes[number].store.state
    slots = [
        (family, key)
        for family, start, end in slices(replica.descriptor)
        for key, _ in engine.scan(family, start, end)
    ]
    if slots:
        flip(cluster.nodes[number], *chance.choice(slots), chance)
    return replica


def read_all(replica: Replica) -> None:
    """As `kvorum check` does."""
    place, key = 0, b""
    with contextlib.suppress(Corruption):
        while (found := verify_part(replica, place, key))[1] is not None:
            place, key = found[0], found[1] or b""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_b14_flipped_bits_under_load_lose_nothing_and_are_told_to_nobody(seed: int) -> None:
    """A row of any kind may be hit at any replica: clients get right answers or are asked to
    repeat, never CORRUPTION, and never another value.
    """

    async def main(loop: SimLoop) -> None:
        cluster, chance = SimCluster(loop, seed), random.Random(seed)
        await cluster.start()
        spec = TableSpec(split_keys=(b"h", b"s"))
        await cluster.nodes[1].backend.create_table("default", "k", spec)
        clients = [Watching(f"c{i}", cluster, seed * 10 + i) for i in range(3)]
        stop, met = asyncio.Event(), 0
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(stop))
            for _ in range(4):
                await asyncio.sleep(0.5 + chance.random())
                replica = damage_something(cluster, chance)
                await asyncio.sleep(chance.choice((0.0, 0.3)))  # clients may meet it first
                read_all(replica)
                met += replica.damage is not None
                await until(healed(cluster), "it is rebuilt")
            stop.set()
        assert met >= 2, "what is overwritten meanwhile is no damage"
        for client in clients:
            assert len(client.versions) > 20, "it did not only fail"
            for key, number in client.acknowledged.items():
                row = await cluster.nodes[2].backend.get("default", "k", key.encode(), 0)
                assert row is not None, f"{key} is lost"
                assert int(row.value) in {number, *client.doubtful.get(key, ())}
        await cluster.close()

    run(main, seed)


class Watching(Client):
    """Fails at the first answer that tells of damage."""

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(stop))
            group.create_task(self._read(stop))

    async def _read(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.sleep(0.05)
            node = self._random.choice(sorted(self._cluster.nodes))
            key = f"{self._random.choice(KEYS)}-{self._name}"
            at_least = self.acknowledged.get(key, 0)
            try:
                row = await self._cluster.nodes[node].backend.get("default", "k", key.encode(), 0)
            except Corruption:
                raise
            except KvorumError:
                continue
            assert at_least <= (0 if row is None else int(row.value))
