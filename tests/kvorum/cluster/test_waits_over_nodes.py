"""Writes that wait for transactions at other nodes: whole nodes in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from kv.base.errors import KvorumError, TxnAborted
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.methods import BLIND, OP_PUT, PREWRITE, RESOLVE, ROLLBACK
from kv.replica.replica import Replica
from kvorum.api.model import Put, TableSpec
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.verbs import CHANGE_REPLICAS
from tests.kvorum.cluster.simulated import SimCluster

KEYS = (b"a", b"m", b"z")  # one per partition …
SPLITS = (b"h", b"s")

Scene = Callable[["Trio"], Coroutine[Any, Any, None]]


class Trio:
    """Three nodes and a table of three partitions, each led by another node."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.cluster = SimCluster(loop, seed)
        self.prefix = b""

    @property
    def nodes(self) -> dict[int, Node]:
        return self.cluster.nodes

    def replica(self, number: int, key: bytes | None) -> Replica | None:
        """At this node, of the key's partition; None: of the meta partition."""
        manager = self.nodes[number].store.manager
        descriptor = manager.covering(b"" if key is None else self.prefix + key)
        return None if descriptor is None else manager.replica(descriptor.id)

    def leader_of(self, key: bytes | None) -> int | None:
        for number in self.nodes:
            replica = self.replica(number, key)
            if replica is not None and replica.serving():
                return number
        return None

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

    async def start(self) -> None:
        await self.cluster.start()
        table = await self.nodes[1].backend.create_table(
            "default", "t", TableSpec(split_keys=SPLITS)
        )
        self.prefix = table_prefix(TableId(table.id))
        for number, key in enumerate(KEYS, 1):
            await self.lead(number, key)

    async def lead(self, number: int, key: bytes | None) -> None:
        """Have this node lead a partition."""
        async with asyncio.timeout(60):
            while (leader := self.leader_of(key)) != number:
                if leader is not None and (replica := self.replica(leader, key)) is not None:
                    calls = self.nodes[leader].store.cluster.calls
                    args = (replica.descriptor.id, "transfer", number)
                    with suppress(KvorumError):
                        await calls.call_at(leader, CHANGE_REPLICAS, *args)
                await asyncio.sleep(0.1)

    async def lock(self, node: int, txn: int, key: bytes, *, anchor: bytes, owner: str) -> None:
        """What a coordinator at `node` would send."""
        ops = [[OP_PUT, self.prefix + key, b"x", None, 0]]
        await self.nodes[node].store.kv.call(
            PREWRITE,
            self.prefix + key,
            txn,
            self.prefix + anchor,
            TXN_TTL_MS_DEFAULT,
            ops,
            BLIND,
            {"owner": owner},
            budget_ms=30_000,
        )

    async def end(self, node: int, txn: int, anchor: bytes, *keys: bytes) -> None:
        kv = self.nodes[node].store.kv
        at = self.prefix + anchor
        await kv.call(ROLLBACK, at, at, txn, budget_ms=5_000)
        for key in keys:
            stored = self.prefix + key
            await kv.call(RESOLVE, stored, txn, 0, [stored], budget_ms=5_000)

    async def begin(self, count: int) -> list[int]:
        return [await self.nodes[1].store.txn.now() for _ in range(count)]


def played(scene: Scene, seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        trio = Trio(loop, seed)
        await trio.start()
        await scene(trio)
        await trio.cluster.close()

    run(main, seed)


@pytest.mark.few(2)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_d8_deadlock_over_nodes_has_one_victim(count: int, seed: int) -> None:
    """No node alone sees the circle; all may find it at once, and must agree on who goes."""

    async def scene(trio: Trio) -> None:
        txns = await trio.begin(count)
        for i, txn in enumerate(txns):
            await trio.lock(i + 1, txn, KEYS[i], anchor=KEYS[i], owner=f"job {i}")
        began = trio.loop.time()

        async def cross(i: int) -> TxnAborted | None:
            other = KEYS[(i + 1) % count]
            error = None
            try:
                await trio.lock(i + 1, txns[i], other, anchor=KEYS[i], owner=f"job {i}")
            except TxnAborted as refused:
                error = refused
            await trio.end(i + 1, txns[i], KEYS[i], KEYS[i], other)
            return error

        ended = await asyncio.gather(*(cross(i) for i in range(count)))
        assert trio.loop.time() - began < 2
        assert [error is not None for error in ended] == [False] * (count - 1) + [True]
        error = ended[-1]
        assert error is not None
        assert error.code == "DEADLOCK"
        steps = error.details["cycle"]
        assert {step["node"] for step in steps} == set(range(1, count + 1)), "where they waited"
        assert {step["owner"] for step in steps} == {f"job {i}" for i in range(count)}
        named = sum(node.store.wait_care.deadlocks for node in trio.nodes.values())
        assert named == 1

    played(scene, seed)


@pytest.mark.slow
def test_d8_deadlock_is_found_though_a_node_is_silent() -> None:
    """Asking it must not keep those who answer from being looked at."""

    async def scene(trio: Trio) -> None:
        await trio.lead(1, KEYS[2])
        await trio.lead(1, None)
        txns = await trio.begin(2)
        for txn, key in zip(txns, (KEYS[0], KEYS[1]), strict=True):
            await trio.lock(1, txn, key, anchor=key, owner="job")
        trio.cluster.network.isolate(3)
        await asyncio.sleep(1)
        began = trio.loop.time()
        first = asyncio.create_task(trio.lock(1, txns[0], KEYS[1], anchor=KEYS[0], owner="job"))
        with pytest.raises(TxnAborted, match="wait for each other"):
            await trio.lock(2, txns[1], KEYS[0], anchor=KEYS[1], owner="job")
        assert trio.loop.time() - began < 3
        await trio.end(1, txns[1], KEYS[1], KEYS[1])
        await first
        await trio.end(1, txns[0], KEYS[0], KEYS[0], KEYS[1])
        trio.cluster.network.cut.clear()
        await asyncio.sleep(2)

    played(scene, 0)


@pytest.mark.parametrize("seed", range(3))
def test_d8_waiters_of_a_lost_leader_queue_at_the_next_one(seed: int) -> None:
    """They would wait at a node that is gone, or be refused for no fault of theirs."""

    async def scene(trio: Trio) -> None:
        (txn,) = await trio.begin(1)
        await trio.lock(1, txn, KEYS[2], anchor=KEYS[0], owner="job")
        writers = [
            asyncio.create_task(
                trio.nodes[1 + i % 2].backend.batch(
                    [Put("default", "t", b"a%d" % i, b"v"), Put("default", "t", KEYS[2], b"v")]
                )
            )
            for i in range(6)
        ]
        await asyncio.sleep(0.3)
        waits = trio.nodes[3].store.waits
        assert len(waits.all(10)) == 6
        await trio.cluster.crash(3)
        await trio.until(lambda: trio.leader_of(KEYS[2]) is not None)
        leader = trio.leader_of(KEYS[2])
        assert leader is not None
        await trio.until(lambda: len(trio.nodes[leader].store.waits.all(10)) == 6)
        assert not any(writer.done() for writer in writers)
        await trio.end(1, txn, KEYS[0], KEYS[2])
        assert len(set(await asyncio.gather(*writers))) == 6

    played(scene, seed)


@pytest.mark.parametrize("seed", range(2))
def test_d8_waiters_follow_a_leadership_that_is_handed_over(seed: int) -> None:
    """A transfer is every day's work; a wait through it must cost nothing but a message."""

    async def scene(trio: Trio) -> None:
        (txn,) = await trio.begin(1)
        await trio.lock(1, txn, KEYS[1], anchor=KEYS[0], owner="job")
        writer = asyncio.create_task(
            trio.nodes[1].backend.put("default", "t", KEYS[1], b"v", None, 0)
        )
        await trio.until(lambda: len(trio.nodes[2].store.waits.all(10)) == 1)
        await trio.lead(3, KEYS[1])
        await trio.until(lambda: len(trio.nodes[3].store.waits.all(10)) == 1)
        assert not trio.nodes[2].store.waits.all(10)
        await trio.end(1, txn, KEYS[0], KEYS[1])
        assert await writer

    played(scene, seed)


@pytest.mark.parametrize("seed", range(2))
def test_d6_dead_coordinator_at_another_node_blocks_for_its_ttl_and_a_bounded_delay(
    seed: int,
) -> None:
    """Its anchor is elsewhere: the node where somebody waits must ask there."""

    async def scene(trio: Trio) -> None:
        (txn,) = await trio.begin(1)
        await trio.lock(2, txn, KEYS[0], anchor=KEYS[0], owner="dead")
        await trio.lock(2, txn, KEYS[2], anchor=KEYS[0], owner="dead")
        began = trio.loop.time()
        backend = trio.nodes[2].backend
        assert await backend.put("default", "t", KEYS[2], b"v", None, 0)
        waited_ms = 1000 * (trio.loop.time() - began)
        assert TXN_TTL_MS_DEFAULT - 500 < waited_ms < TXN_TTL_MS_DEFAULT + 500
        assert (await backend.status(txn)).status == "aborted"

    played(scene, seed)


def test_u2_any_node_tells_who_holds_and_who_waits_everywhere() -> None:
    """Whoever looks for what blocks him would have to ask each node, and know which."""

    async def scene(trio: Trio) -> None:
        holder, young = await trio.begin(2)
        await trio.lock(1, holder, KEYS[0], anchor=KEYS[0], owner="nightly")
        await trio.lock(1, holder, KEYS[2], anchor=KEYS[0], owner="nightly")
        put = asyncio.create_task(trio.nodes[2].backend.put("default", "t", KEYS[2], b"v", None, 0))
        await asyncio.sleep(0.1)
        behind = asyncio.create_task(trio.lock(2, young, KEYS[2], anchor=KEYS[2], owner="import"))
        await asyncio.sleep(0.3)
        for node in trio.nodes.values():
            found = await node.backend.locks()
            assert found["missing"] == []
            assert not found["more"]
            locks = [lock for lock in found["locks"] if lock["table"] == "t"]
            assert [(lock["key"], lock["node"], lock["waiting"]) for lock in locks] == [
                (KEYS[2], 3, 2),
                (KEYS[0], 1, 0),
            ], "what is waited for comes first"
            assert {lock["txn"] for lock in locks} == {str(holder)}
            assert {lock["owner"] for lock in locks} == {"nightly"}, "its record is at node 1"
            assert all(0 < lock["age_ms"] < 5_000 for lock in locks)
            waits = found["waits"]
            assert [(wait["ns"], wait["table"], wait["key"]) for wait in waits] == [
                ("default", "t", KEYS[2])
            ] * 2
            assert [wait["txn"] for wait in waits] == [None, str(young)]
            assert [wait["owner"] for wait in waits] == ["", "import"]
            assert {wait["holder"] for wait in waits} == {str(holder)}
            assert {wait["holder_owner"] for wait in waits} == {"nightly"}
            assert {wait["node"] for wait in waits} == {3}
            assert all(250 < wait["waited_ms"] < 1_000 for wait in waits)
        await trio.cluster.crash(1)
        await asyncio.sleep(3)
        assert (await trio.nodes[2].backend.locks())["missing"] == [1]
        await trio.end(2, holder, KEYS[0], KEYS[0], KEYS[2])
        await put
        await behind
        await trio.end(2, young, KEYS[2], KEYS[2])

    played(scene, 0)
