"""Watchers of whole clusters in virtual time: nodes crash, leaders change, cables are cut,
coordinators die, consumers stop, go on elsewhere and dawdle. What each of them was told, end to
end, must be exactly the committed history, which is read from the leaders' disks by other code.
"""

from __future__ import annotations

import asyncio
import io
import random
from typing import Any

import pytest

import txn.reading.feed
import txn.reading.feed_parts
from kv.base.errors import KvorumError
from kv.base.keys import MAX64, META_RANGE, from_u64, unescape
from kv.base.limits import FEED_AWAITS_MAX
from kv.base.methods import CHANGES
from kv.feed.spill import Spill
from kv.mvcc.records import hist_range, payload_at
from kvorum import Delete, Put
from kvorum.api.model import TableSpec
from kvorum.api.watching import Event, Watcher, WatchSpec
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.test_simulated import fault

KEYS = [f"{c}{i}" for c in "agmsz" for i in range(40)]
History = dict[int, dict[bytes, bytes | None]]


class Writer:
    """Puts, batches and transactions over the partitions, at whichever node lives."""

    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self.acknowledged: dict[int, dict[bytes, bytes | None]] = {}
        self.failed = 0
        self._cluster, self._chance = cluster, random.Random(seed)

    async def run(self, stop: asyncio.Event) -> None:
        chance = self._chance
        while not stop.is_set():
            await asyncio.sleep(0.01 + chance.random() * 0.04)
            backend = getattr(chance.choice(list(self._cluster.nodes.values())), "backend", None)
            if backend is None:
                continue
            keys = chance.sample(KEYS, chance.choice([1, 1, 2, 3, 9]))
            value = b"%d" % chance.getrandbits(32)
            ops = [
                Delete("default", "k", key.encode())
                if chance.random() < 0.2
                else Put("default", "k", key.encode(), value)
                for key in keys
            ]
            try:
                version = await backend.batch(ops)
            except KvorumError:
                self.failed += 1
            else:
                self.acknowledged[version] = {
                    op.key: op.value if isinstance(op, Put) else None  # type: ignore[misc]
                    for op in ops
                }


class Consumer:
    """Follows the table from a version on; stops anywhere and goes on at another node."""

    def __init__(self, cluster: SimCluster, seed: int, begin: int) -> None:
        self.position = begin
        self.told: list[tuple[int, dict[bytes, bytes | None]]] = []
        self.begun = 0
        self._cluster, self._chance = cluster, random.Random(seed)

    async def run(self, until: asyncio.Future[int]) -> None:
        while not until.done() or self.position < until.result():
            number = self._chance.choice(sorted(self._cluster.nodes))
            node = self._cluster.nodes[number]
            backend = getattr(node, "backend", None)
            if backend is None:
                await asyncio.sleep(0.1)
                continue
            try:
                watcher = await backend.watch("default", "k", WatchSpec(self.position))
            except KvorumError:
                await asyncio.sleep(0.1)
                continue
            self.begun += 1
            try:
                await self._follow(watcher, number, node, until)
            finally:
                await watcher.close()

    async def _follow(
        self, watcher: Watcher, number: int, node: Any, until: asyncio.Future[int]
    ) -> None:
        events = self._chance.randrange(1, 80)
        changes: dict[bytes, bytes | None] = {}
        while events and self._cluster.nodes.get(number) is node:
            try:
                event: Event = await asyncio.wait_for(watcher.next(), 2)
            except TimeoutError:
                continue
            except KvorumError:
                return
            for change in event.changes:
                assert change.key not in changes, "a key twice in one transaction"
                changes[change.key] = change.value
            if not event.last:
                continue
            if event.kind == "changes":
                self.told.append((event.version, changes))
                changes = {}
                events -= 1
            self.position = watcher.position
            if until.done() and self.position >= until.result():
                return
            if self._chance.random() < 0.05:
                await asyncio.sleep(self._chance.random() * 2)


def stored(cluster: SimCluster, begin: int) -> History:
    """Every version above `begin` on the disks of the partitions' leaders."""
    history: History = {}

    def add(key: bytes, record: bytes, version: int) -> None:
        if version > begin:
            history.setdefault(version, {})[key[4:]] = payload_at(record, 0)

    for node in cluster.nodes.values():
        for replica in node.store.manager.replicas():
            d, engine = replica.descriptor, replica.state.engine
            if d.start < META_RANGE[1] or not replica.leads():
                continue
            assert not replica.state.locks, "all is over, but intents are there"
            for key, record in engine.scan("cur", d.start, d.end):
                add(key, record, from_u64(record))
            for key, record in engine.scan("hist", *hist_range(d.start, d.end)):
                add(unescape(key)[0], record, MAX64 - from_u64(key, len(key) - 8))
    return history


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_f14_every_transaction_once_whatever_happens(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None lost, none repeated, none split, in commit order: over every resume, crash, change of
    leaders, cut and dead coordinator.
    """
    chance = random.Random(seed)
    tiny = seed == 0  # then every transaction of several keys is a large one
    for module, name, value in (
        (txn.reading.feed, "FEED_ROWS_MAX", 4 if tiny else chance.choice([100, 4_000])),
        (txn.reading.feed, "_LEG_ROWS_MIN", 2 if tiny else 32),
        (txn.reading.feed, "FEED_PART_ROWS_MAX", 2),
        (txn.reading.feed_parts, "FEED_PART_ROWS_MAX", 2),
    ):
        monkeypatch.setattr(module, name, value)

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec(split_keys=(b"h", b"s")))
        begin = await backend.timestamps(1)
        writers = [Writer(cluster, seed * 10 + i) for i in range(4)]
        consumers = [Consumer(cluster, seed * 10 + i, begin) for i in range(3)]
        stop, until = asyncio.Event(), loop.create_future()
        async with asyncio.TaskGroup() as group:
            for consumer in consumers:
                group.create_task(consumer.run(until))
            async with asyncio.TaskGroup() as writing:
                for writer in writers:
                    writing.create_task(writer.run(stop))
                for _ in range(1 if tiny else 4):
                    await fault(cluster, chance)
                await asyncio.sleep(3)
                stop.set()
            await asyncio.sleep(12)  # what dead coordinators left is swept
            until.set_result(await cluster.nodes[2].backend.timestamps(1))
        history = sorted(stored(cluster, begin).items())
        written = [pair for w in writers for pair in w.acknowledged.items()]
        assert len(history) > 50, "it did not only fail"
        for consumer in consumers:
            assert consumer.told == history
            assert consumer.begun > 3
        for version, ops in written:
            told = dict(history).get(version, {})
            puts = {key: value for key, value in ops.items() if value is not None}
            assert puts.items() <= told.items(), f"acknowledged {version} is not there"
        await cluster.close()

    run(main, seed)


def test_f14_a_dead_coordinator_holds_the_feed_back_for_its_time() -> None:
    """What it left is rolled back or finished after its time to live; then all goes on by itself,
    with nothing missing.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 3)
        await cluster.start()
        await cluster.nodes[1].backend.create_table(
            "default", "k", TableSpec(split_keys=(b"h", b"s"))
        )
        watcher = await cluster.nodes[1].backend.watch("default", "k", WatchSpec(None))
        begin = (await watcher.next()).version
        ops = [Put("default", "k", key.encode(), b"lost") for key in ("a", "m", "z")]
        dying = loop.create_task(cluster.nodes[3].backend.batch(ops))
        replicas = cluster.nodes[1].store.manager.replicas()
        for _ in range(2_000):
            if any(replica.state.locks for replica in replicas):
                break
            await asyncio.sleep(0.0005)
        else:
            pytest.fail("no intent was ever seen")
        await cluster.crash(3)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        began = loop.time()
        version = 0
        while not version:
            try:
                version = await cluster.nodes[1].backend.put("default", "k", b"b", b"1", None, 0)
            except KvorumError:
                await asyncio.sleep(0.05)
        told: list[int] = []
        while not told or told[-1] < version:
            event = await asyncio.wait_for(watcher.next(), 30)
            if event.kind == "changes":
                told.append(event.version)
        assert told[-1] == version
        assert loop.time() - began < 10
        assert told == sorted(v for v in stored(cluster, begin) if v <= version)
        await watcher.close()
        await cluster.close()

    run(main, 3)


def test_f13_an_idle_watcher_costs_nothing() -> None:
    """A watcher of a table that nobody writes asks a few times in ten seconds, not all the time."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 5)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec(split_keys=(b"h",)))
        counters = [node.store.manager.partition_counters for node in cluster.nodes.values()]
        unwatched, since = sum(c.drains for c in counters), loop.time()
        await asyncio.sleep(20)  # what the cluster does anyway: the master looks at its map
        idle_per_s = (sum(c.drains for c in counters) - unwatched) / (loop.time() - since)
        watcher = await backend.watch("default", "k", WatchSpec(None))
        await watcher.next()
        before, since = [(c.drains, c.entries) for c in counters], loop.time()
        positions = []
        for _ in range(4):
            event = await asyncio.wait_for(watcher.next(), 6)
            assert event.kind == "resolved"
            positions.append(event.version)
        assert positions == sorted(set(positions))
        reads = sum(c.drains for c in counters) - sum(drains for drains, _ in before)
        reads -= int(idle_per_s * (loop.time() - since))
        assert reads < 4 * 2 * 8, reads  # in 20 s: asking all the time is thousands
        await watcher.close()
        await cluster.close()

    run(main, 5)


@pytest.mark.few(1)
@pytest.mark.parametrize("full", [False, True], ids=["a file", "no room for a file"])
def test_f13_who_is_far_behind_walks_once(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walking over the table once for every bounded handful of changes, a consumer that is far
    behind would never catch up with writers; without room for a file it takes longer, that is all.
    """
    monkeypatch.setattr(txn.reading.feed, "FEED_ROWS_MAX", 20)
    monkeypatch.setattr(txn.reading.feed, "_LEG_ROWS_MIN", 20)

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(txn.reading.feed, "_spill", lambda: Spill(Full() if full else io.BytesIO()))

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 7)
        await cluster.start()
        backend = cluster.nodes[1].backend
        await backend.create_table("default", "k", TableSpec())
        begin = await backend.timestamps(1)
        versions = [
            await backend.batch(
                [Put("default", "k", b"%d" % (i % 150 * 2 + n), b"v") for n in (0, 1)]
            )
            for i in range(200)
        ]
        asked = 0
        call = backend._kv.call

        async def counted(method: int, *args: Any, **more: Any) -> Any:
            nonlocal asked
            asked += method == CHANGES
            return await call(method, *args, **more)

        monkeypatch.setattr(backend._txn._kv, "call", counted)
        watcher = await backend.watch("default", "k", WatchSpec(begin))
        told: list[int] = []
        while len(told) < len(versions):
            event = await watcher.next()
            assert len(event.changes) == 2 or event.kind == "resolved"
            if event.kind == "changes":
                told.append(event.version)
        assert told == versions
        assert asked > 90 if full else asked < 45, asked
        await watcher.close()
        await cluster.close()

    run(main, 7)


def test_f14_a_watcher_of_many_partitions() -> None:
    """Not every partition may hold a question of every watcher; those that hold none are heard of
    a little later, not a heartbeat later.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 8)
        await cluster.start()
        backend = cluster.nodes[1].backend
        count = FEED_AWAITS_MAX + 4
        splits = tuple(b"%02d" % i for i in range(1, count))
        await backend.create_table("default", "k", TableSpec(split_keys=splits))
        watcher = await backend.watch("default", "k", WatchSpec(None))
        await watcher.next()
        for i in (0, count - 1):
            key = b"%02d" % i
            version = await backend.put("default", "k", key, b"v", None, 0)
            began = loop.time()
            event = await watcher.next()
            assert (event.version, event.changes[0].key) == (version, key)
            assert loop.time() - began < 1
        await watcher.close()
        await cluster.close()

    run(main, 8)
