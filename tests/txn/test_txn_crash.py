"""The node loses power around transactions: what was answered stays true (D4, B6)."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import KvorumError
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import Hooked, RealWorld, failure, k

FIVE = [k("b"), k("f"), k("l"), k("p"), k("z")]


@pytest.mark.parametrize("seed", range(3))
def test_d4_status_survives_a_restart(seed: int) -> None:
    """A transaction id is only an idempotency key if its answer outlives the process."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        done, single, aborted, refused = [await client.begin(recorded=True) for _ in range(4)]
        for key in FIVE:
            done.put(key, b"1")
            refused.put(key, b"2")
        single.put(k("c"), b"1")
        versions = [await done.commit(), await single.commit()]
        await aborted.abort()
        await failure(refused.commit())
        await world.crash()
        client = world.client()
        found = [await client.status(t.id) for t in (done, single, aborted, refused)]
        assert [s.status for s in found] == ["committed", "committed", "aborted", "aborted"]
        assert [s.commit_ts for s in found[:2]] == versions
        rows, _ = await client.multi_get([*FIVE, k("c")])
        assert rows == [(b"1", versions[0])] * 5 + [(b"1", versions[1])]
        await client.close()
        world.close()

    run(main, seed)


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(40))
def test_b6_node_crashes_in_the_middle_of_a_batch(seed: int) -> None:
    """All or none, and an acknowledged batch is there, whatever the disk had of it."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        await client.write([put(key, b"old") for key in FIVE])
        kv = Hooked(loop, world.kv())
        victim = world.client(kv)
        writing = loop.create_task(victim.write([put(key, b"new") for key in FIVE]))
        await asyncio.wait([writing], timeout=loop.rng.random() * 0.025)
        await world.crash()
        kv.inner = world.kv()  # the client finds the restarted node
        outcome: int | KvorumError
        try:
            outcome = await writing
        except KvorumError as error:
            outcome = error
        client = world.client()
        rows, _ = await client.multi_get(FIVE)
        assert len(set(rows)) == 1
        written = rows[0] is not None and rows[0][0] == b"new"
        if isinstance(outcome, int):
            assert rows == [(b"new", outcome)] * 5
        elif outcome.disposition != "unknown_outcome":
            assert not written, "it was called a failure"
        await asyncio.sleep(TXN_TTL_MS_DEFAULT / 1000 + 1)
        again, _ = await client.multi_get(FIVE)
        assert again == rows
        await victim.close()
        await client.close()
        assert world.pending() == []
        world.close()

    run(main, seed)
