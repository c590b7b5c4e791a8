"""Very many intents of transactions that are dead, each of another one: readers and the sweeper
clear them in batches (D6, D12). bench/micro_abandoned.py does it with 100 000.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.methods import CHECK, MGET, PREWRITE, RESOLVE, SCAN
from kv.base.ops import put
from kv.mvcc.get import KEYS_PER_REFUSAL_MAX
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import Hooked, RealWorld, k
from txn.intents.sweeper import Sweeper

MANY = 3_000
TTL_MS = 1_000


class Counting(Hooked):
    def __init__(self, loop: SimLoop, world: RealWorld) -> None:
        super().__init__(loop, world.kv())
        self.sent: dict[int, int] = {}

    async def arrives(self, method: int) -> None:
        self.sent[method] = self.sent.get(method, 0) + 1


async def lay(world: RealWorld, count: int, *, alive: bool = False) -> list[bytes]:
    """One intent each of so many transactions, some of them committed; their keys."""
    kv, tso = world.kv(), world.tso()
    keys = [k(f"{'bgq'[i % 3]}{i:06}") for i in range(count)]

    async def one(key: bytes) -> None:
        start = await tso.now()
        ttl_ms = 600_000 if alive else TTL_MS
        await kv.call(PREWRITE, key, start, key, ttl_ms, [list(put(key, b"half"))], 0)

    for at in range(0, count, 200):
        await asyncio.gather(*map(one, keys[at : at + 200]))
    assert len(world.locked()) == count
    return keys


def scene(main: Any) -> None:
    async def played(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        kv = Counting(loop, world)
        client = world.client(kv)
        try:
            await main(loop, world, client, kv)
        finally:
            await client.close()
            world.close()

    run(played)


@pytest.mark.slow
@pytest.mark.parametrize("method", [SCAN, MGET])
def test_d6_a_read_over_many_dead_transactions_asks_about_many_at_once(method: int) -> None:
    """One question and one answer after the other for each would take a scan minutes."""

    async def main(loop: SimLoop, world: RealWorld, client: Any, kv: Counting) -> None:
        keys = await lay(world, MANY)
        await asyncio.sleep(TTL_MS / 1000 + 0.1)
        began = loop.time()
        if method == SCAN:
            start, rows = k("a"), []
            while start is not None:
                page = await client.scan(start, k("zz"), limit=1_000)
                rows, start = rows + page.items, page.resume
            assert rows == []
        else:
            assert set((await client.multi_get(keys))[0]) == {None}
        assert loop.time() - began < 5, "virtual seconds; one by one it is 20"
        assert kv.sent[method] <= 3 * (MANY / KEYS_PER_REFUSAL_MAX + 6)
        assert kv.sent[CHECK] <= 1.1 * MANY
        await asyncio.sleep(1)
        assert world.locked() == [], "and they are gone"
        assert kv.sent[RESOLVE] <= 1.1 * MANY

    scene(main)


def test_d6_a_read_over_many_living_transactions_pushes_them_all() -> None:
    """Writers that live would keep every scan waiting, or be rolled back."""

    async def main(loop: SimLoop, world: RealWorld, client: Any, kv: Counting) -> None:
        await lay(world, 700, alive=True)
        began = loop.time()
        page = await client.scan(k("a"), k("zz"), limit=1_000)
        assert page.items == []
        assert loop.time() - began < 2
        assert len(world.locked()) == 700, "nobody was harmed"
        assert RESOLVE not in kv.sent

    scene(main)


@pytest.mark.slow
def test_d12_the_sweeper_goes_on_while_there_is_much_to_do() -> None:
    """A hundred thousand intents that nobody meets would take it minutes."""

    async def main(loop: SimLoop, world: RealWorld, client: Any, kv: Counting) -> None:
        await lay(world, MANY)
        await asyncio.sleep(TTL_MS / 1000 + 0.1)
        sweeper = Sweeper(world.real.manager, client.resolver, world.real.clock, LoopTimers(loop))
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(sweeper.run())
            while world.locked():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
            running.cancel()
        assert sweeper.swept == MANY
        assert loop.time() - began < 2.5

    scene(main)
