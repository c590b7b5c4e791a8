"""One link is cut between the oracle's node and a node that leads; a third one hears both (F3)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError
from kv.base.ids import META_PARTITION
from kv.base.keys import table_prefix
from kv.base.limits import BALANCE_PAUSE_S
from kv.base.ops import put
from kv.client.channels import SocketChannels
from kv.client.client import KvClient
from kvorum.api.model import TableSpec
from kvorum.testing.simulation.loop import SimClock, SimLoop, SimRng, run
from tests.kvorum.cluster.simulated import PORT, SimCluster
from tso.client import TsoClient
from tso.detour import detour
from txn.client import TxnClient

pytestmark = pytest.mark.slow

KEYS = (b"a", b"i", b"t")  # of three partitions
GAP_S = 2.5  # the longest that a key may go without a write
CUT_S = 12.0
CLIENT = 100  # to the network: a process that is no node


def leaders(cluster: SimCluster) -> dict[int, int]:
    """Who serves each partition now."""
    return {
        replica.descriptor.id: number
        for number, node in cluster.nodes.items()
        for replica in node.store.manager.replicas()
        if replica.group.status().role == "leader"
    }


class Writer:
    """Writes rising numbers to one key through a node, and remembers when that succeeded."""

    def __init__(self, cluster: SimCluster, key: bytes, via: int) -> None:
        self.key = key
        self.times: list[float] = []
        self.written = 0
        self._cluster, self._backend = cluster, cluster.nodes[via].backend

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            await asyncio.sleep(0.05)
            number += 1
            try:
                await self._backend.put("default", "k", self.key, b"%d" % number, None, 0)
            except KvorumError:
                continue
            self.times.append(self._cluster.loop.time())
            self.written = number

    def longest_gap(self, begin: float, end: float) -> float:
        times = [begin, *(t for t in self.times if begin < t < end), end]
        return max(b - a for a, b in itertools.pairwise(times))


async def settled(cluster: SimCluster) -> dict[int, int]:
    """The leaders, once they have been the same for some looks of the balancer."""
    async with asyncio.timeout(60):
        while True:
            before = leaders(cluster)
            await asyncio.sleep(3 * BALANCE_PAUSE_S)
            if before == leaders(cluster) and len(set(before.values())) == cluster.count:
                return before


async def started(loop: SimLoop, seed: int) -> tuple[SimCluster, dict[int, int]]:
    """A cluster with a table in three parts, and its leaders at rest."""
    cluster = SimCluster(loop, seed)
    await cluster.start()
    await cluster.nodes[1].backend.create_table("default", "k", TableSpec(split_keys=(b"h", b"s")))
    return cluster, await settled(cluster)


async def watch_leaders(cluster: SimCluster, for_s: float) -> list[dict[int, int]]:
    """Every state in turn."""
    seen = [leaders(cluster)]
    end = cluster.loop.time() + for_s
    while cluster.loop.time() < end:
        await asyncio.sleep(0.05)
        if leaders(cluster) != seen[-1]:
            seen.append(leaders(cluster))
    return seen


@pytest.mark.parametrize("ways", ["both", "to the oracle", "from the oracle"])
@pytest.mark.parametrize("seed", range(2))
def test_f3_one_cut_link_to_the_oracle_stops_no_writes(ways: str, seed: int) -> None:
    """Writes to what is led behind a cut link would end in doubt until it heals; or leaderships go
    to and fro as long as it is cut, or do not come back.
    """

    async def main(loop: SimLoop) -> None:
        cluster, home = await started(loop, seed)
        oracle = home[META_PARTITION]
        far, between = (number for number in cluster.nodes if number != oracle)
        writers = [Writer(cluster, key, between) for key in KEYS]
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run(stop))
            await asyncio.sleep(1)
            begin = loop.time()
            if ways != "from the oracle":
                cluster.network.cut.add((far, oracle))
            if ways != "to the oracle":
                cluster.network.cut.add((oracle, far))
            seen = await watch_leaders(cluster, CUT_S)
            end = loop.time()
            cluster.network.cut.clear()
            back = await watch_leaders(cluster, 10 * BALANCE_PAUSE_S)
            stop.set()
        gaps = [writer.longest_gap(begin, end) for writer in writers]
        assert max(gaps) < GAP_S, gaps
        assert seen[-1] == {p: between if n == far else n for p, n in home.items()}
        moved = sum(number == far for number in home.values())
        assert len(seen) - 1 <= 2 * moved, f"to and fro: {seen}"
        assert cluster.nodes[far].upkeep.cutoff.handed_over == moved
        assert back[-1] == home
        assert len(back) - 1 <= 2 * moved, f"to and fro: {back}"
        for writer in writers:
            row = await cluster.nodes[far].backend.get("default", "k", writer.key, 0)
            assert row is not None
            assert int(row.value) >= writer.written, "an acknowledged write is lost"
        await cluster.close()

    run(main, seed)


def test_f3_a_client_that_the_oracle_does_not_hear_goes_on() -> None:
    """A client would get no timestamp, and so begin no transaction, while its own link to one node
    is cut; and would go the long way for ever after.
    """

    async def main(loop: SimLoop) -> None:
        cluster, home = await started(loop, 1)
        oracle = home[META_PARTITION]
        (info,) = await cluster.nodes[1].backend.tables("default")
        keys = [
            table_prefix(info.id) + key
            for partition, key in zip(sorted(home)[1:], KEYS, strict=True)
            if home[partition] != oracle
        ]
        assert len(keys) > 1
        timers, rng = LoopTimers(loop), SimRng(1)
        connect = cluster.network.connector(timers, "", CLIENT)
        addresses = [(f"node{number}", PORT) for number in cluster.nodes]
        kv, apart = (KvClient(SocketChannels(addresses, connect), timers, rng) for _ in range(2))
        oracle_client = detour(apart, timers, lambda: apart.addresses)
        tso = TsoClient(oracle_client.fetch, timers, rng)
        txn = TxnClient(kv, tso, SimClock(loop), rng, timers)
        await txn.write([put(key, b"before") for key in keys])
        cluster.network.cut |= {(CLIENT, oracle), (oracle, CLIENT)}
        version, slowest = 0, 0.0
        for number in range(50):
            begin = loop.time()
            now = await txn.write([put(key, b"%d" % number) for key in keys])
            slowest = max(slowest, loop.time() - begin)
            assert now > version
            version = now
        assert slowest < GAP_S
        assert (await txn.get(keys[0]))[0] == b"49"
        cluster.network.cut.clear()
        await asyncio.sleep(1)  # what was sent in vain arrives
        await txn.now()
        around = oracle_client.relayed
        await txn.now()
        assert 0 < around == oracle_client.relayed, "it goes the long way for ever"
        await txn.close()
        kv.close()
        apart.close()
        await cluster.close()

    run(main, 1)
