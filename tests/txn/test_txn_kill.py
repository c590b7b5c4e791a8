"""The coordinator dies at every message boundary: all or none, and nobody is stuck (B6, D6, D7,
D11, D12).
"""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import KvorumError
from kv.base.limits import LOCK_WAIT_MS_MAX, TXN_TTL_MS_DEFAULT
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import LATE_S, WORLDS, World, doomed_client, k

KEYS = [k("b"), k("c"), k("g"), k("l"), k("z")]  # four partitions
OLD, NEW = b"old", b"new"


async def attack(loop: SimLoop, make: type[World], dies_at: int, *, transaction: bool) -> bool:
    """One write by a client that dies at its `dies_at`-th step. Whether it got to the end alive."""
    world = make(loop)
    await world.start()
    reader = world.client()
    await reader.write([put(key, OLD) for key in KEYS])
    await reader.close()
    dying, kv = doomed_client(world, dies_at)
    acknowledged: list[int] = []

    async def work() -> None:
        if not transaction:
            acknowledged.append(await dying.write([put(key, NEW) for key in KEYS]))
            return
        t = await dying.begin()
        for key in KEYS:
            await t.get(key)
            t.put(key, NEW)
        acknowledged.append(await t.commit())

    task = loop.create_task(work())
    await asyncio.wait(
        [task, loop.create_task(kv.died.wait())], timeout=2, return_when="FIRST_COMPLETED"
    )
    await asyncio.sleep(0.1)  # the cleaning behind the answer has its boundaries, too
    survived = not kv.dead

    found, at = await reader.multi_get(KEYS)
    values = {row[0] for row in found if row is not None}
    assert values in ({OLD}, {NEW}), f"half a batch at step {dies_at}: {found}"
    if values == {NEW}:
        assert len({row[1] for row in found if row is not None}) == 1, "one version for all"
    if acknowledged:
        assert values == {NEW}, "an acknowledged write is there"

    # whatever lies around blocks a writer no longer than the ttl and one more look
    began = loop.time()
    for key in KEYS:
        await reader.write([put(key, b"after")], budget_ms=TXN_TTL_MS_DEFAULT * 2)
    blocked_ms = (loop.time() - began) * 1000
    assert blocked_ms <= TXN_TTL_MS_DEFAULT + 1000 * LATE_S + LOCK_WAIT_MS_MAX + 200, blocked_ms

    await asyncio.sleep(30)  # what was still on its way has arrived
    late, _ = await reader.multi_get(KEYS)
    assert {row[0] for row in late if row is not None} == {b"after"}, "an echo undid a later write"
    again, _ = await reader.multi_get(KEYS, at)
    assert again == found, "the snapshot changed"
    await reader.close()
    assert world.locked() == [], "an intent that nobody will ever remove"
    assert world.pending() == [], "a transaction without an end"
    world.close()
    task.cancel()
    return survived


@pytest.mark.few(2)
@pytest.mark.parametrize("transaction", [False, True], ids=["batch", "transaction"])
@pytest.mark.parametrize("seed", range(4))
@WORLDS
def test_b6_coordinator_dies_at_every_message_boundary(
    make: type[World], seed: int, transaction: bool
) -> None:
    """A batch that is there in part, an acknowledged one that is not, or intents that stay for
    ever.
    """
    for dies_at in range(1, 100):
        if run(lambda loop, d=dies_at: attack(loop, make, d, transaction=transaction), seed):
            break
    assert 16 < dies_at < 99, "the attack covers the whole protocol"


@pytest.mark.parametrize("parallel", [False, True])
def test_b6_client_that_is_closed_says_what_it_knows(parallel: bool) -> None:
    """Closing under a commit must neither hang the caller nor call an unknown outcome a failure."""

    async def main(loop: SimLoop) -> None:
        outcomes = set()
        for delay_ms in range(40):
            world = World(loop)
            client = world.client(parallel=parallel)
            ops = [put(key, NEW) for key in KEYS]
            task = loop.create_task(client.write(ops))
            await asyncio.sleep(delay_ms / 1000)
            await client.close(drain_s=0)
            try:
                await task
                outcomes.add("done")
            except KvorumError as error:
                outcomes.add(error.code)
                found, _ = await world.client().multi_get(KEYS)
                if error.disposition != "unknown_outcome":
                    assert found == [None] * len(KEYS)
        assert outcomes == {"done", "UNKNOWN_OUTCOME", "UNAVAILABLE"}

    run(main)
