"""Reads of the past over whole nodes, in virtual time: replicas answer, leaders are left alone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kv.base.config import NodeConfig
from kv.base.keys import successor
from kv.base.methods import GET, MARK, MGET, SCAN
from kv.base.timestamps import compose, physical_ms
from kvorum.api.model import ScanSpec, TableKey, TableSpec
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from sqlproxy.session.running.as_of import at_replicas
from sqlproxy.session.running.run_statements import ReadsAt
from tests.kvorum.cluster.simulated import SimCluster

T = ("default", "k")
READS = (GET, MGET, SCAN)
SITES = {1: ("eu", "r1"), 2: ("eu", "r2"), 3: ("us", "r1")}


class Labelled(SimCluster):
    """Nodes 1 and 2 in one datacenter, node 3 in another."""

    def _config(self, number: int) -> NodeConfig:
        dc, rack = SITES[number]
        return dataclasses.replace(
            super()._config(number), labels=(f"dc={dc}", f"rack={rack}", f"server=s{number}")
        )

    def leader(self, key: bytes = b"\xff") -> Node:
        """Of the table's last partition."""
        (found,) = [
            node
            for node in self.nodes.values()
            for r in node.store.manager.replicas()
            if r.leads() and r.descriptor.covers(self.prefix + key)
        ]
        return found

    prefix = b""

    async def table(self) -> Node:
        """With some rows; the leader of its only partition."""
        node = self.nodes[1]
        await node.backend.create_table(*T, TableSpec())
        self.prefix = await node.backend._names.prefix(*T)
        for i in range(10):
            await node.backend.put(*T, b"%d" % i, b"old", None, 0)
        await asyncio.sleep(1)
        return self.leader()


def scene(main: Callable[[Labelled], Coroutine[Any, Any, Any]], seed: int = 1) -> None:
    async def played(loop: SimLoop) -> None:
        cluster = Labelled(loop, seed, 3)
        await cluster.start()
        await main(cluster)
        await cluster.close()

    run(played, seed)


def asked(node: Node) -> int:
    """Requests for rows that came to a node."""
    return sum(node.store.dispatcher.counters.requests[method] for method in READS)


def answered(node: Node) -> int:
    """Reads that it answered for partitions that it does not lead."""
    return node.store.manager.partition_counters.by_replicas


def test_b1_reads_of_the_past_stay_at_the_node_that_has_a_replica() -> None:
    """A reader beside a replica of his rows went to the leader, whose time is needed for writes."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        reader = next(n for n in cluster.nodes.values() if n is not leader)
        at = await reader.store.txn.now()
        for i in range(10):
            await leader.backend.put(*T, b"%d" % i, b"new", None, 0)
        await asyncio.sleep(5)
        before, marks = asked(leader), leader.store.dispatcher.counters.requests[MARK]
        for i in range(10):
            record = await reader.backend.get(*T, b"%d" % i, at)
            assert record is not None
            assert record.value == b"old"
        keys = [TableKey(*T, b"%d" % i) for i in range(10)]
        found, said = await reader.backend.multi_get(keys, at)
        assert ([r and r.value for r in found], said) == ([b"old"] * 10, at)
        page = await reader.backend.scan(*T, ScanSpec(at=at))
        assert [item.value for item in page.items] == [b"old"] * 10
        sql = await ReadsAt(reader.store.txn, at).scan(
            cluster.prefix, successor(cluster.prefix), limit=20
        )
        assert [value for _, value, _ in sql.items] == [b"old"] * 10
        assert asked(leader) == before
        assert leader.store.dispatcher.counters.requests[MARK] == marks + 1
        assert answered(reader) == 13
        assert reader.store.replicas.figures() == {"asked": 13, "sent_on": 0, "marks": 1}
        lags = [v for k, v in reader.store.replica_figures().items() if "closed_lag" in k]
        assert 5_000 <= max(lags) < 60_000
        assert sum(map(bool, lags)) == 1

    scene(main)


def test_follower_read_timestamp_is_the_newest_that_replicas_answer() -> None:
    """Who asks for it was sent to the leader, or read older rows than it need."""

    async def main(cluster: Labelled) -> None:
        txn = (await cluster.table()).store.txn
        at = at_replicas("follower_read_timestamp()", txn.clock.now_ms(), txn.replica_age_ms)
        assert at is not None
        assert txn.reader_at(at) is not txn.reader
        assert txn.reader_at(compose(physical_ms(at) + 1)) is txn.reader

    scene(main)


def test_reads_of_now_and_of_a_moment_ago_are_the_leaders() -> None:
    """A linearizable read came from a replica, or a fresh snapshot paid for a mark."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        reader = next(n for n in cluster.nodes.values() if n is not leader)
        await reader.backend.get(*T, b"1", 0)
        await reader.backend.get(*T, b"1", await reader.store.txn.now())
        at = await reader.store.txn.now()
        await asyncio.sleep(15)  # the first timestamps are ahead of the clocks
        reader.store.past_by_replicas(0)
        await reader.backend.get(*T, b"1", at)
        assert answered(reader) == 0
        reader.store.past_by_replicas(3_000)
        await reader.backend.get(*T, b"1", at)
        assert answered(reader) == 1

    scene(main)


@pytest.mark.slow
def test_a_reader_stays_a_bounded_time_behind_with_few_questions() -> None:
    """Each read of "ten seconds ago" asked the leader for a mark of its own."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        reader = next(n for n in cluster.nodes.values() if n is not leader)
        behind = 10_000 << 18
        for i in range(100):
            await leader.backend.put(*T, b"n", b"%d" % i, None, 0)
            at = await reader.store.txn.now() - behind
            here, there = [await n.backend.get(*T, b"n", at) for n in (reader, leader)]
            assert here == there
            await asyncio.sleep(0.5)
        assert answered(reader) == 100
        assert reader.store.replicas.marks <= 7

    scene(main)


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_while_the_leader_is_gone_the_past_is_still_read(how: str) -> None:
    """A replica that knows enough sent its readers to a leader that does not answer."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        number = next(n for n, node in cluster.nodes.items() if node is leader)
        reader = next(n for n in cluster.nodes.values() if n is not leader)
        at = await reader.store.txn.now()
        await asyncio.sleep(5)
        await reader.backend.get(*T, b"1", at)
        if how == "killed":
            await cluster.crash(number)
        else:
            cluster.network.isolate(number)
        began_s = cluster.loop.time()
        record = await reader.backend.get(*T, b"2", at)
        assert record is not None
        assert cluster.loop.time() - began_s < 0.01

    scene(main)


def test_a_replica_that_is_gone_costs_no_read() -> None:
    """A reader whose nearest replica died got its error instead of the leader's answer."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        number = next(n for n, node in cluster.nodes.items() if node is leader)
        others = [n for n in cluster.nodes if n != number]
        client = cluster.nodes[number]
        at = await client.store.txn.now()
        await asyncio.sleep(5)
        sites, replicas = client.store.sites, client.store.replicas
        sites._node = others[0]  # as if it were a client beside that one
        sites._here = (*SITES[others[0]], f"s{others[0]}")
        await client.backend.get(*T, b"1", at)
        assert answered(cluster.nodes[others[0]]) == 1
        await cluster.crash(others[0])
        for i in range(10):
            assert await client.backend.get(*T, b"%d" % i, at) is not None
        assert replicas.sent_on <= 2, "it is left alone for a while"
        assert replicas.asked >= 10, "another one answers"

    scene(main)


def test_the_nearest_replica_answers() -> None:
    """A client in one datacenter read in another, though there was a replica in its own."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        store = leader.store
        (here,) = [
            r.descriptor
            for r in store.manager.replicas()
            if r.descriptor.covers(cluster.prefix + b"\xff")
        ]
        sites = store.sites
        sites._node = 0
        address = {n: sites._sites[n].address for n in cluster.nodes}
        resting = {address[2]: cluster.loop.time() + 60}
        wanted = {
            ("eu", "r1", ""): address[1],
            ("eu", "r2", ""): address[2],
            ("us", "r9", ""): address[3],
            ("", "", "s2"): address[2],
        }
        for domains, node in wanted.items():
            sites._here = domains
            assert await sites.nearest(here, None, {}) == node
            assert await sites.nearest(here, node, {}) is None, "only the leader is so near"
        sites._here = ("eu", "r2", "")
        assert await sites.nearest(here, None, resting) == address[1]
        sites._here = ("", "", "")
        found = {await sites.nearest(here, address[1], {}) for _ in range(30)}
        assert found == {address[2], address[3]}, "any that does not lead"

    scene(main)


def test_a_client_asks_a_node_where_the_nodes_are() -> None:
    """A client that is no node knew no replica, or asked for the list with each read."""

    async def main(cluster: Labelled) -> None:
        leader = await cluster.table()
        at = await leader.store.txn.now()
        client = leader.backend
        client.read_past_near(("us", "", ""), leader.ports.rng)
        await asyncio.sleep(5)
        for i in range(10):
            assert await client.get(*T, b"%d" % i, at) is not None
        there = cluster.nodes[3]
        if there is not leader:
            assert answered(there) == 10

    scene(main)
