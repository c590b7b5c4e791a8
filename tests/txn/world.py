"""A small cluster in virtual time and clients of it, for the tests of this directory."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, Unavailable, UnknownOutcome
from kv.base.keys import u32
from kv.base.limits import TXN_SPILL_BYTES
from kv.base.methods import PENDING
from kv.base.ports import Timers
from kv.base.verbs import repeatable
from kvorum.testing.simulation.loop import SimLoop, SimRng
from tests.txn.fake_kv import Cluster, FakeKv, FakeTso
from tests.txn.real_kv import RealCluster
from txn.client import TxnClient
from txn.shared.ports import Kv, Tso

TABLE = u32(100)
LATE_S = 1.0  # how long a message of a dead process may still take, unless it takes much longer


def k(text: str) -> bytes:
    """A storage key of the test table."""
    return TABLE + text.encode()


class World:
    """Five partitions: below e, e-j, j-o, o-t, from t on; of the model, or the real ones."""

    BORDERS = "ejot"

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.cluster = Cluster(loop, [k(c) for c in self.BORDERS])
        self.seeds = 0

    async def start(self) -> None:
        """Nothing to wait for here; the real one elects leaders."""

    def close(self) -> None:
        """The end of the test."""

    def kv(self) -> Kv:
        return FakeKv(self.cluster)

    def tso(self) -> FakeTso:
        return FakeTso(self.cluster)

    def split(self, key: bytes) -> None:
        self.cluster.split(key)

    def locked(self) -> list[bytes]:
        """Keys with an intent."""
        return sorted(self.cluster.locks)

    def pending(self) -> list[int]:
        """Transactions whose record says pending."""
        return [ts for (_, ts), r in self.cluster.records.items() if r.status == PENDING]

    def client(
        self,
        kv: Kv | None = None,
        tso: Any = None,
        *,
        parallel: bool = True,
        spill_bytes: int = TXN_SPILL_BYTES,
        timers: Timers | None = None,
    ) -> TxnClient:
        self.seeds += 1
        return TxnClient(
            kv or self.kv(),
            tso or self.tso(),
            self.cluster.clock,
            SimRng(self.seeds),
            timers or LoopTimers(self.loop),
            parallel=parallel,
            open_file=io.BytesIO,
            spill_bytes=spill_bytes,
        )


class RealWorld(World):
    """The same over kv.partition, kv.replica, raft and the memory engine."""

    LATE_S = 0.0

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.real = RealCluster(loop, [k(c) for c in self.BORDERS], late_s=self.LATE_S)

    async def start(self) -> None:
        await self.real.start()

    def close(self) -> None:
        self.real.close()

    async def crash(self) -> None:
        self.real = self.real.crash()
        await self.real.start()

    def kv(self) -> Kv:
        return self.real.kv()

    def tso(self) -> FakeTso:
        return FakeTso(self.real)

    def split(self, key: bytes) -> None:
        """Not yet."""

    def locked(self) -> list[bytes]:
        return self.real.locked()

    def pending(self) -> list[int]:
        return self.real.pending()


class FarWorld(RealWorld):
    """The same where the oracle is at another node than the partitions."""

    LATE_S = 0.001


WORLDS = pytest.mark.parametrize(
    "make", [World, RealWorld, FarWorld], ids=["model", "real", "far oracle"]
)


async def failure(work: Coroutine[Any, Any, Any]) -> KvorumError:
    """The error that `work` ends with."""
    try:
        result = await work
    except KvorumError as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


class Hooked:
    """Another Kv with a network in between: each way takes up to `latency_ms` and may be disturbed.

    `arrives` and `returns` are awaited before and after the message is executed; they may raise.
    """

    def __init__(self, loop: SimLoop, inner: Kv, *, latency_ms: float = 2.0) -> None:
        self.loop = loop
        self.inner = inner
        self.latency_ms = latency_ms

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        assert budget_ms > 0, "every remote call has a deadline"
        await asyncio.sleep(self.loop.rng.random() * self.latency_ms / 1000)
        await self.arrives(method)
        reply = await self.inner.call(method, key, *args, budget_ms=budget_ms)
        await asyncio.sleep(self.loop.rng.random() * self.latency_ms / 1000)
        await self.returns(method)
        return reply

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> Any:
        return await self.inner.call_node(method, *args, budget_ms=budget_ms)

    async def find_txn(self, start_ts: int, *, budget_ms: int = 0) -> bytes | None:
        return await self.inner.find_txn(start_ts, budget_ms=budget_ms)

    async def locate(self, key: bytes) -> PartitionDescriptor:
        return await self.inner.locate(key)

    async def arrives(self, method: int) -> None: ...

    async def returns(self, method: int) -> None: ...


class LossyKv(Hooked):
    """Some messages and some replies are lost; the client is told what a real one would be."""

    def __init__(self, loop: SimLoop, inner: Kv, loss: float) -> None:
        super().__init__(loop, inner)
        self.loss = loss
        self.lost = 0

    async def arrives(self, method: int) -> None:
        if self.loop.rng.random() < self.loss:
            self.lost += 1
            if repeatable(method):
                raise Unavailable("lost")
            raise UnknownOutcome("lost")

    returns = arrives


class DyingKv(Hooked):
    """The process of this client dies at its `dies_at`-th step (a message arrives, or its reply).

    Dead means: nothing is sent, nothing comes back. What is on its way at that moment arrives late
    or never.
    """

    def __init__(self, loop: SimLoop, inner: Kv, dies_at: int) -> None:
        super().__init__(loop, inner)
        self.dies_at = dies_at
        self.steps = 0
        self.dead = False
        self.died = asyncio.Event()

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        if not self.dead:
            try:
                return await super().call(method, key, *args, budget_ms=budget_ms)
            except KvorumError:
                if not self.dead:
                    raise
        return await self.loop.create_future()

    def _step(self) -> bool:
        self.steps += 1
        if self.steps >= self.dies_at:
            self.dead = True
            self.died.set()
        return self.dead

    async def arrives(self, method: int) -> None:
        was_dead = self.dead
        if self._step():
            rng = self.loop.rng
            if not was_dead or rng.random() < 0.5:
                raise Unavailable("lost")
            soon, long_after = rng.random() * LATE_S, 6 + rng.random()
            await asyncio.sleep(soon if rng.random() < 0.5 else long_after)

    async def returns(self, method: int) -> None:
        if self._step():
            raise Unavailable("lost")


class DyingTso:
    """The oracle's client of the same process."""

    def __init__(self, kv: DyingKv, inner: Tso) -> None:
        self.kv = kv
        self.inner = inner

    hybrid = False
    causal_token = 0

    async def now(self) -> int:
        ts = await self.inner.now()
        if self.kv.dead:
            await self.kv.loop.create_future()
        return ts


def doomed_client(world: World, dies_at: int) -> tuple[TxnClient, DyingKv]:
    """A client that dies at its `dies_at`-th step."""
    kv = DyingKv(world.loop, world.kv(), dies_at)
    return world.client(kv, DyingTso(kv, world.tso())), kv
