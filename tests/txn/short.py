"""A client whose messages are noted and may be lost: for tests of the short ways of commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kv.base.errors import Unavailable
from kv.base.limits import COMMITS_IN_FLIGHT_MAX
from kv.base.methods import GET
from kv.client.client import KvClient
from kv.client.links import LinkLost
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import RealWorld
from txn.client import TxnClient
from txn.transaction import Transaction

SENT_S = 0.0005  # a sync of the simulated disk takes longer


class Seen:
    """A KvClient that notes what is sent. `spoil` (number of a message of method `spoils` from 0,
    how): its answer is lost, or the request, or it is not started at all; `refused`: methods that
    fail.
    """

    def __init__(self, inner: KvClient, spoils: int) -> None:
        self.inner, self.spoils = inner, spoils
        self.spoil: tuple[int, str] = (-1, "")
        self.refused: list[int] = []
        self.started: list[int] = []
        self.called: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        self.called.append(method)
        if method in self.refused:
            self.refused.remove(method)
            raise Unavailable("not now")
        return await self.inner.call(method, key, *args, budget_ms=budget_ms)

    async def go_on(self, first: Any, error: BaseException) -> Any:
        return await self.inner.go_on(first, error)

    def start(self, method: int, key: bytes, args: tuple[Any, ...], budget_ms: int) -> Any:
        number = self.started.count(self.spoils)
        self.started.append(method)
        if method != self.spoils or number != self.spoil[0]:
            return self.inner.start(method, key, args, budget_ms)
        how, self.spoil = self.spoil[1], (-1, "")
        if how == "nothing":
            return None
        lost: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if how == "request":  # a read of nobody's, for where it would have gone
            first = self.inner.start(GET, key, (key, 0, None), budget_ms)
            assert first is not None
            lost.set_exception(LinkLost("gone", sent=False))
            return first._replace(reply=lost, method=method, args=args)
        first = self.inner.start(method, key, args, budget_ms)
        assert first is not None

        def lose(_done: object) -> None:
            if not lost.done():
                lost.set_exception(LinkLost("gone", sent=True))

        first.reply.add_done_callback(lose)
        return first._replace(reply=lost)


def in_world(
    keys: Sequence[bytes],
    spoils: int,
    test: Callable[[RealWorld, TxnClient, Seen], Awaitable[None]],
) -> None:
    """Run `test` where each of `keys` has a row; nothing may be left behind it."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        inner = world.kv()
        assert isinstance(inner, KvClient)
        seen = Seen(inner, spoils)
        client = world.client(seen)
        for key in keys:
            t = await client.begin()
            t.put(key, b"0")
            await t.commit()
        seen.started.clear()
        seen.called.clear()
        await test(world, client, seen)
        await client.close()
        assert world.locked() == []
        assert not client.coordinator.resolver.owners
        assert not client.coordinator.resolver.flipping
        assert client.coordinator._slots._value == COMMITS_IN_FLIGHT_MAX
        world.close()

    run(main)


async def changed(client: TxnClient, keys: Sequence[bytes], value: bytes) -> Transaction:
    """A transaction that read both keys and will write both."""
    t = await client.begin()
    assert [row is not None for row in await t.multi_get(list(keys))] == [True, True]
    for key in keys:
        t.put(key, value)
    return t


async def values(client: TxnClient, keys: Sequence[bytes]) -> list[bytes]:
    rows, _ = await client.multi_get(list(keys))
    return [row[0] for row in rows if row is not None]
