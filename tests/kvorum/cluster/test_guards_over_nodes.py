"""Guards of serializable transactions while leaders change and die: whole nodes in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import WriteConflict
from kv.base.methods import PREWRITE
from kvorum.api.backend import TableKey
from kvorum.api.model import Put
from tests.kvorum.cluster.test_waits_over_nodes import KEYS, Trio, played


def guarded(trio: Trio, key: bytes) -> list[set[tuple[bytes, int]]]:
    """What each living node has for the key's partition, in memory and stored alike."""
    found = []
    for number, node in trio.nodes.items():
        replica = trio.replica(number, key)
        if replica is not None:
            here = set(replica.state.guards.by_at)
            assert len(node.store.state.scan("guard", b"", b"\xff" * 64)) >= len(here)
            found.append(here)
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("how", ["handed over", "lost"])
@pytest.mark.parametrize("seed", range(2))
def test_serializable_guards_hold_whoever_leads(seed: int, how: str) -> None:
    """A new leader would let a write in that the old one had promised to keep out."""

    async def scene(trio: Trio) -> None:
        (txn,) = await trio.begin(1)
        kv, key = trio.nodes[1].store.kv, trio.prefix + KEYS[1]
        reads = {"ranges": [[key, key + b"9"]]}
        args = (PREWRITE, key, txn, trio.prefix + KEYS[0], 60_000, [], 0, reads)
        await kv.call(*args, budget_ms=5_000)
        await trio.until(lambda: guarded(trio, KEYS[1]) == [{(key, txn)}] * 3)
        if how == "lost":
            await trio.cluster.crash(2)
            await trio.until(lambda: trio.leader_of(KEYS[1]) is not None)
        else:
            await trio.lead(3, KEYS[1])
        phantom = Put("default", "t", KEYS[1] + b"1", b"v")
        write = asyncio.create_task(trio.nodes[1].backend.batch([phantom]))
        beside = Put("default", "t", KEYS[1] + b"x", b"v")
        await trio.nodes[1].backend.batch([beside])
        await asyncio.sleep(1.0)
        assert not write.done()
        await trio.end(1, txn, KEYS[0], KEYS[1])
        assert await write > txn
        await trio.until(lambda: not any(guarded(trio, KEYS[1])))

    played(scene, seed)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_serializable_sums_are_right_while_leaders_die(seed: int) -> None:
    """At most one row per group over three partitions of three leaders, of which one dies: write
    skew would make more.
    """

    async def scene(trio: Trio) -> None:
        groups = [b"%d" % i for i in range(12)]
        made = 0

        async def make(node: int, group: bytes) -> None:
            """A row of the group at one place, unless there is one at any of the three."""
            nonlocal made
            backend = trio.nodes[node].backend
            for _ in range(20):
                t = await backend.begin(ttl_ms=1_000, isolation="serializable")
                try:
                    keys = [TableKey("default", "t", place + group) for place in KEYS]
                    if any(await t.multi_get(keys)):
                        return
                    await t.put("default", "t", KEYS[node - 1] + group, b"v")
                    await t.commit()
                except WriteConflict:
                    continue
                made += 1
                return

        work = [asyncio.create_task(make(node, group)) for group in groups for node in (1, 2)]
        await asyncio.sleep(0.02)
        await trio.cluster.crash(3)
        await asyncio.gather(*work, return_exceptions=True)
        await trio.until(lambda: trio.leader_of(KEYS[2]) is not None)
        await asyncio.sleep(2)
        for group in groups:
            keys = [TableKey("default", "t", place + group) for place in KEYS]
            rows, _ = await trio.nodes[1].backend.multi_get(keys, 0)
            assert sum(row is not None for row in rows) <= 1, group
        assert made >= 3

    played(scene, seed)
