"""A small cluster in virtual time and clients of it, for the tests of this directory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError, Unavailable, UnknownOutcome
from kv.base.keys import u32
from kv.base.methods import REPEATABLE
from tests.support.simloop import SimLoop, SimRng
from tests.txn.fake_kv import Cluster, FakeKv, FakeTso, Sent
from txn.client import TxnClient

TABLE = u32(100)
LATE_S = 1.0  # how long a message of a dead process may still take, unless it takes much longer


def k(text: str) -> bytes:
    """A storage key of the test table."""
    return TABLE + text.encode()


class World:
    """Five partitions: below e, e-j, j-o, o-t, from t on."""

    BORDERS = "ejot"

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.cluster = Cluster(loop, [k(c) for c in self.BORDERS])
        self.seeds = 0

    def client(self, kv: FakeKv | None = None, tso: Any = None) -> TxnClient:
        self.seeds += 1
        return TxnClient(
            kv or FakeKv(self.cluster),
            tso or FakeTso(self.cluster),
            self.cluster.clock,
            SimRng(self.seeds),
            LoopTimers(self.loop),
        )


async def failure(work: Coroutine[Any, Any, Any]) -> KvorumError:
    """The error that `work` ends with."""
    try:
        result = await work
    except KvorumError as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


class LossyKv(FakeKv):
    """Some messages and some replies are lost; the client is told what a real one would be."""

    def __init__(self, cluster: Cluster, loss: float) -> None:
        super().__init__(cluster)
        self.loss = loss
        self.before = self.after = self.lose
        self.lost = 0

    async def lose(self, sent: Sent) -> None:
        if self.cluster.loop.rng.random() < self.loss:
            self.lost += 1
            if sent.method in REPEATABLE:
                raise Unavailable("lost")
            raise UnknownOutcome("lost")


class DyingKv(FakeKv):
    """The process of this client dies at its `dies_at`-th step (a message arrives, or its reply
    does).

    Dead means: nothing is sent, nothing comes back. What is on its way at that moment arrives late
    or never.
    """

    def __init__(self, cluster: Cluster, dies_at: int) -> None:
        super().__init__(cluster)
        self.dies_at = dies_at
        self.steps = 0
        self.dead = False
        self.died = asyncio.Event()
        self.before, self.after = self._arrives, self._returns

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        if not self.dead:
            try:
                return await super().call(method, key, *args, budget_ms=budget_ms)
            except KvorumError:
                if not self.dead:
                    raise
        return await self.cluster.loop.create_future()

    def _step(self) -> bool:
        self.steps += 1
        if self.steps >= self.dies_at:
            self.dead = True
            self.died.set()
        return self.dead

    async def _arrives(self, _sent: Sent) -> None:
        was_dead = self.dead
        if self._step():
            rng = self.cluster.loop.rng
            if not was_dead or rng.random() < 0.5:
                raise Unavailable("lost")
            soon, long_after = rng.random() * LATE_S, 6 + rng.random()
            await asyncio.sleep(soon if rng.random() < 0.5 else long_after)

    async def _returns(self, _sent: Sent) -> None:
        if self._step():
            raise Unavailable("lost")


class DyingTso(FakeTso):
    """The oracle's client of the same process."""

    def __init__(self, kv: DyingKv) -> None:
        super().__init__(kv.cluster)
        self.kv = kv

    async def now(self) -> int:
        ts = await super().now()
        if self.kv.dead:
            await self.cluster.loop.create_future()
        return ts
