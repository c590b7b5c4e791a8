"""The oracle and the procedures follow the leader of the meta partition."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import KvorumError, NotLeader
from kv.base.methods import TSO
from tests.kit.waiting import until
from tests.kvorum.cluster.cluster_procedures import STEPS
from tests.kvorum.cluster.three import Trio, client, trio

MODULES = {"procedure_modules": ("tests.kvorum.cluster.cluster_procedures",)}


class Asked:
    """Timestamps of many callers. Answers may overtake each other; but who asks after somebody had
    an answer must get a higher one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.highest = 0
        self.wrong: list[str] = []

    async def keep_asking(self, cluster: Trio, node: int, stop: asyncio.Event) -> None:
        oracle = cluster.nodes[node].store.oracle
        while not stop.is_set():
            known = self.highest
            try:
                got = await oracle.take(1)
            except KvorumError:
                await asyncio.sleep(0.005)
                continue
            self.count += 1
            self.highest = max(self.highest, got)
            if got <= known:
                self.wrong.append(f"node {node} got {got}, asked for after {known} was known")
            await asyncio.sleep(0.001)


def test_e2_timestamps_rise_over_a_failover() -> None:
    """A new leader that began below what the old one handed out would let a snapshot change."""

    async def main() -> None:
        async with trio() as cluster:
            old = await cluster.led()
            bound = cluster.nodes[old].store.tso._oracle.bound
            before = await cluster.nodes[old].store.oracle.take(100) + 99
            await cluster.crash(old)
            new = await cluster.led(but=old)
            async with asyncio.timeout(5):
                after = await cluster.nodes[new].store.oracle.take(1)
            assert after > before
            assert after >= bound, "the new one starts above the durable bound, not above a guess"

    asyncio.run(main())


@pytest.mark.slow
def test_e2_a_leader_cut_off_stops_before_another_begins() -> None:
    """Two oracles at once, even for a moment, break real-time order: what was asked for later must
    be higher, wherever it was asked.
    """

    async def main() -> None:
        async with trio() as cluster:
            old = await cluster.led()
            others = [n for n in cluster.nodes if n != old]
            asked = Asked()
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for node in cluster.nodes:
                    group.create_task(asked.keep_asking(cluster, node, stop))
                await asyncio.sleep(0.1)
                await cluster.cut(old, *others)
                await cluster.led(but=old)
                assert not cluster.nodes[old].store.tso.serving
                with pytest.raises(NotLeader):
                    cluster.nodes[old].store.tso.take(1)
                calls = cluster.nodes[old].store.cluster.calls
                with pytest.raises(NotLeader):
                    await calls.call_at(old, TSO, 1, budget_ms=500)
                await asyncio.sleep(0.2)
                await cluster.cut(old)
                await asyncio.sleep(0.5)
                stop.set()
            assert not asked.wrong
            assert asked.count > 100

    asyncio.run(main())


@pytest.mark.slow
def test_j18_procedures_go_on_at_the_next_master() -> None:
    """Whoever waits for a procedure gets its result from whoever is the master then; it is resumed
    within 2 s of the death of the master.
    """

    async def main() -> None:
        async with trio(**MODULES) as cluster, client(cluster) as db:
            await db.create_table("default", "k")
            old = await cluster.led()
            started = await db.submit("cluster.slow", {"key": "a", "ms": 300})
            waiting = asyncio.create_task(db.wait(started, timeout_ms=10_000))
            await asyncio.sleep(0.1)
            loop = asyncio.get_running_loop()
            killed_at = loop.time()
            await cluster.crash(old)
            new = await cluster.led(but=old)
            await until(lambda: cluster.nodes[new].master.executor is not None)
            resumed_s = loop.time() - killed_at
            assert resumed_s < 2.0
            assert await waiting == STEPS
            row = await db.table("default", "k").get("a")
            assert row is not None
            assert int(row.value) == STEPS, "every step ran once"

    asyncio.run(main())


@pytest.mark.slow
def test_j18_callers_who_wait_are_sent_to_the_next_master() -> None:
    """A master that is deposed but lives must not keep its callers waiting until they give up."""

    async def main() -> None:
        async with trio(**MODULES) as cluster, client(cluster) as db:
            await db.create_table("default", "k")
            old = await cluster.led()
            started = await db.submit("cluster.slow", {"key": "a", "ms": 500})
            waiting = asyncio.create_task(db.wait(started, timeout_ms=10_000))
            await asyncio.sleep(0.1)
            target = next(n for n in cluster.nodes if n != old)
            replica = cluster.nodes[old].store.manager.replica(1)
            assert replica is not None
            replica.group.transfer(target)
            assert await cluster.led(but=old) == target
            assert cluster.nodes[old].master.executor is None
            with pytest.raises(NotLeader) as caught:
                cluster.nodes[old].master.current()
            assert caught.value.details["leader"] == target
            host, port = caught.value.details["address"]
            assert f"{host}:{port}" == cluster.addresses[target - 1]
            assert await waiting == STEPS

    asyncio.run(main())
