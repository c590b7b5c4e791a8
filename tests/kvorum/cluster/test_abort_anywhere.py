"""Any node ends a transaction that another one holds open, or has begun to commit (D8)."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import NotFound, Refused, TxnAborted
from kv.base.keys import table_prefix
from kvorum.api.model import TableSpec
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.test_dropped_anchors import prewrite


async def table(cluster: SimCluster) -> bytes:
    info = await cluster.nodes[1].backend.create_table(
        "default", "t", TableSpec(split_keys=(b"m",))
    )
    return table_prefix(info.id)


@pytest.mark.parametrize("down", [False, True])
def test_d8_any_node_ends_what_another_holds_open(down: bool) -> None:
    """Its writes are in the memory of one node; a third one that is down must not keep the others
    from it.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1)
        await cluster.start()
        await table(cluster)
        if down:
            await cluster.crash(3)
            await asyncio.sleep(5)
        session = await cluster.nodes[1].backend.begin(
            ttl_ms=60_000, isolation="snapshot", recorded=True
        )
        await session.put("default", "t", b"k", b"v")
        assert (await cluster.nodes[1].backend.status(session.id)).status == "pending"
        await cluster.nodes[2].backend.abort_transaction(session.id)
        with pytest.raises(TxnAborted, match="on request"):
            await session.commit()
        assert (await cluster.nodes[2].backend.status(session.id)).status == "aborted"
        assert await cluster.nodes[2].backend.get("default", "t", b"k", 0) is None
        await cluster.close()

    run(main)


def test_d8_one_that_is_committing_is_ended_by_its_record() -> None:
    """Its coordinator is gone, its ttl is long, and whoever waits would wait for so long."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1)
        await cluster.start()
        prefix = await table(cluster)
        txn = await prewrite(
            cluster.nodes[1], prefix + b"k", prefix + b"k", prefix + b"z", ttl_ms=600_000
        )
        waiting = asyncio.create_task(
            cluster.nodes[3].backend.put("default", "t", b"z", b"mine", None, 0)
        )
        await asyncio.sleep(1)
        assert not waiting.done()
        await cluster.nodes[2].backend.abort_transaction(txn)
        async with asyncio.timeout(2):
            version = await waiting
        for node in cluster.nodes.values():
            assert (await node.backend.status(txn)).status == "aborted"
        with pytest.raises(NotFound):
            await cluster.nodes[1].backend.abort_transaction(version)
        session = await cluster.nodes[1].backend.begin(ttl_ms=5_000, isolation="snapshot")
        await session.put("default", "t", b"k", b"v")
        await session.put("default", "t", b"z", b"v")
        committed = await session.commit()
        with pytest.raises(Refused, match=f"has committed at {committed}"):
            await cluster.nodes[3].backend.abort_transaction(session.id)
        await cluster.close()

    run(main)


def test_d8_an_abort_that_races_with_a_commit_has_one_winner() -> None:
    """A commit that is acknowledged and rolled back all the same is the worst that could be."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 3)
        await cluster.start()
        prefix = await table(cluster)
        ended = {"committed": 0, "aborted": 0}
        for i in range(24):
            session = await cluster.nodes[1].backend.begin(ttl_ms=5_000, isolation="snapshot")
            for key in (b"a%d" % i, b"z%d" % i):
                await session.put("default", "t", key, b"v")
            # every other one has to wait for somebody, between its two parts
            last = prefix + b"z%d" % i
            holder = await prewrite(cluster.nodes[3], last, last) if i % 2 else 0
            committing = asyncio.create_task(session.commit())
            if holder:
                release = cluster.nodes[3].backend.abort_transaction(holder)
                loop.call_later(0.6 * i / 24, asyncio.ensure_future, release)
            await asyncio.sleep(i * 0.0005)
            aborting = cluster.nodes[2].backend.abort_transaction(session.id)
            told, refused = await asyncio.gather(committing, aborting, return_exceptions=True)
            rows = [
                await cluster.nodes[3].backend.get("default", "t", key, 0)
                for key in (b"a%d" % i, b"z%d" % i)
            ]
            if isinstance(told, int):
                assert isinstance(refused, Refused | NotFound), refused
                assert [row and row.version for row in rows] == [told, told]
                ended["committed"] += 1
            else:
                assert isinstance(told, TxnAborted), told
                assert refused is None
                assert rows == [None, None]
                ended["aborted"] += 1
        assert all(ended.values()), ended
        await cluster.close()

    run(main)
