"""Intents whose coordinator is dead and that nobody meets (D6, D12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.intents import NOBODY, Author
from kv.base.limits import SWEEP_INTERVAL_MS, TXN_TTL_MS_DEFAULT
from kv.base.methods import CHECK, COMMIT, PREWRITE, RESOLVE
from kv.base.ops import put
from kv.client.links import LocalLink
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import Hooked, RealWorld, doomed_client, k
from txn.intents.sweeper import Sweeper

KEYS = [k("b"), k("c"), k("g"), k("l"), k("z")]  # four partitions
TTL_S, ROUND_S = TXN_TTL_MS_DEFAULT / 1000, SWEEP_INTERVAL_MS / 1000


class Counting(Hooked):
    """Counts the messages of the sweeper."""

    def __init__(self, loop: SimLoop, world: RealWorld) -> None:
        super().__init__(loop, world.kv())
        self.sent: dict[int, int] = {}

    async def arrives(self, method: int) -> None:
        self.sent[method] = self.sent.get(method, 0) + 1


def swept(
    scene: Callable[[SimLoop, RealWorld, Sweeper, Counting], Coroutine[Any, Any, None]],
    seed: int = 0,
) -> None:
    """Run a scene beside a node that sweeps."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        kv = Counting(loop, world)
        client = world.client(kv)
        sweeper = Sweeper(world.real.manager, client.resolver, world.real.clock, LoopTimers(loop))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(sweeper.run())
            await scene(loop, world, sweeper, kv)
            running.cancel()
        await client.close()
        world.close()

    run(main, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dies_at", range(2, 26, 3))
def test_d12_abandoned_intents_are_removed_though_nobody_meets_them(
    dies_at: int, seed: int
) -> None:
    """They would stay for ever, and hold back the collection of every younger record."""

    async def scene(loop: SimLoop, world: RealWorld, sweeper: Sweeper, kv: Counting) -> None:
        dying, _ = doomed_client(world, dies_at)
        task = loop.create_task(dying.write([put(key, b"new") for key in KEYS]))
        await asyncio.sleep(0.2)
        met = world.locked()
        await asyncio.sleep(TTL_S + 3 * ROUND_S + 7)  # and what was still on its way
        assert world.locked() == []
        assert world.pending() == []
        assert world.real.manager.oldest_lock() is None
        if met:
            assert sweeper.swept > 0
        reader = world.client()
        rows, _ = await reader.multi_get(KEYS)
        assert len({row and row[0] for row in rows}) == 1, "half a batch"
        await reader.close()
        task.cancel()

    swept(scene, seed)


def test_d12_living_transaction_is_not_swept() -> None:
    """A slow commit that sends heartbeats would be rolled back under its owner."""

    async def scene(loop: SimLoop, world: RealWorld, sweeper: Sweeper, kv: Counting) -> None:
        slow = Hooked(loop, world.kv())
        held = asyncio.Event()

        async def hold(method: int) -> None:
            if method == COMMIT:
                await held.wait()

        slow.arrives = hold  # type: ignore[method-assign]
        client = world.client(slow, parallel=False)
        ops = [put(key, b"1") for key in KEYS]
        writing = loop.create_task(client.write(ops, budget_ms=10 * TXN_TTL_MS_DEFAULT))
        await asyncio.sleep(4 * TTL_S)
        assert kv.sent[CHECK] >= 4, "it was asked for"
        assert RESOLVE not in kv.sent
        held.set()
        assert await writing
        await client.close()

    swept(scene)


def test_d12_nothing_to_sweep_costs_no_message() -> None:
    """An idle node would be busy with looking."""

    async def scene(loop: SimLoop, world: RealWorld, sweeper: Sweeper, kv: Counting) -> None:
        client = world.client()
        await client.write([put(key, b"1") for key in KEYS])
        await asyncio.sleep(100 * ROUND_S)
        assert kv.sent == {}
        await client.close()

    swept(scene)


def test_d12_a_round_is_bounded_and_comes_round_to_all() -> None:
    """Intents that stay would hide those behind them, or a round would stop the loop."""

    async def scene(loop: SimLoop, world: RealWorld, sweeper: Sweeper, kv: Counting) -> None:
        client, _ = doomed_client(world, 2 + len(KEYS))
        keys = [k(f"b{i:03d}") for i in range(300)] + [k("z")]
        task = loop.create_task(client.write([put(key, b"1") for key in keys]))
        await asyncio.sleep(0.2)
        manager, now_ms = world.real.manager, world.real.clock.now_ms() + 2 * TXN_TTL_MS_DEFAULT
        locked = world.locked()
        seen: list[bytes] = []
        for _ in range(2 * len(locked) // 20 + 2):
            found = [key for one in manager.abandoned(now_ms, 20) for key in one.keys]
            assert len(found) <= 20
            seen += found
        assert len(locked) >= 300
        assert sorted(set(seen)) == locked
        assert manager.abandoned(world.real.clock.now_ms(), 1000) == [], "they may be alive"
        task.cancel()

    swept(scene)


def test_d12_intents_of_one_id_are_told_by_their_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intents under a start_ts that somebody guessed would end as his record says, and he as the
    other's, whichever a round met first.
    """

    async def scene(loop: SimLoop, world: RealWorld, sweeper: Sweeper, kv: Counting) -> None:
        client, wire = world.client(), world.kv()
        start_ts = await client.now()
        for user, key in (("ann", k("b1")), ("bob", k("b2"))):
            monkeypatch.setattr(LocalLink, "author", Author(user, others=False))
            one = (start_ts, key, TXN_TTL_MS_DEFAULT, [put(key, b"1")], 0)
            await wire.call(PREWRITE, key, *one, budget_ms=5_000)
        monkeypatch.setattr(LocalLink, "author", NOBODY)
        now_ms = world.real.clock.now_ms() + 2 * TXN_TTL_MS_DEFAULT
        found = {
            one.user: (one.anchor, one.keys) for one in world.real.manager.abandoned(now_ms, 99)
        }
        assert found == {"ann": (k("b1"), [k("b1")]), "bob": (k("b2"), [k("b2")])}
        await asyncio.sleep(2 * TTL_S + 100 * ROUND_S)
        assert world.locked() == []
        await client.close()

    swept(scene)
