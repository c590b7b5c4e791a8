"""A network between a client and the participants that a test rules message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError, Unavailable
from kv.base.verbs import repeatable
from kvorum.testing.simulation.loop import SimLoop
from tests.txn.fake_kv import Sent
from tests.txn.world import Hooked
from txn.shared.ports import Kv

Hook = Callable[[Sent], Awaitable[None]]


class Wire(Hooked):
    """`before(sent)` and `after(sent)` are awaited around each message; they may wait or raise.
    `log` has what was executed, in its order.
    """

    def __init__(self, loop: SimLoop, inner: Kv, *, latency_ms: float = 2.0) -> None:
        super().__init__(loop, inner, latency_ms=latency_ms)
        self.log: list[Sent] = []
        self.before: Hook | None = None
        self.after: Hook | None = None

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        sent = Sent(method, key, args)
        await asyncio.sleep(self.loop.rng.random() * self.latency_ms / 1000)
        if self.before is not None:
            await self.before(sent)
        reply = await self.inner.call(method, key, *args, budget_ms=budget_ms)
        self.log.append(sent)
        if self.after is not None:
            await self.after(sent)
        await asyncio.sleep(self.loop.rng.random() * self.latency_ms / 1000)
        return reply

    def methods(self) -> list[int]:
        return [sent.method for sent in self.log]


class Gate:
    """Holds messages until it is opened: those of one method, and with one key if it is given."""

    def __init__(self, wire: Wire, *methods: int, key: bytes = b"", after: bool = False) -> None:
        self._methods, self._key = methods, key
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        if after:
            wire.after = self._hook
        else:
            wire.before = self._hook

    async def _hook(self, sent: Sent) -> None:
        if sent.method in self._methods and self._key in (b"", sent.key):
            self.reached.set()
            await self.opened.wait()


class PausedTimers(LoopTimers):
    """Of a process that is stopped for longer than 50 ms, and notices nothing: what it waits for
    longer than that never comes.
    """

    def call_later(
        self, delay_s: float, fn: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        return super().call_later(delay_s if delay_s < 0.05 else 1e6, fn, *args)


class NoisyKv(Hooked):
    """Repeatable messages are executed again, at once or much later; some are late, some lost."""

    def __init__(self, loop: SimLoop, inner: Kv, *, late_s: float = 1.0) -> None:
        super().__init__(loop, inner)
        self.late_s = late_s
        self.again = 0
        self._echoes: set[asyncio.Task[None]] = set()

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        rng = self.loop.rng
        if repeatable(method):
            if rng.random() < 0.15:
                echo = self.loop.create_task(self._echo(method, key, args))
                self._echoes.add(echo)
                echo.add_done_callback(self._echoes.discard)
            if rng.random() < 0.05:
                raise Unavailable("lost on its way")
            if rng.random() < 0.05:
                await asyncio.sleep(rng.random() * self.late_s)
        reply = await super().call(method, key, *args, budget_ms=budget_ms)
        if repeatable(method) and rng.random() < 0.05:
            raise Unavailable("the answer is lost")
        return reply

    async def _echo(self, method: int, key: bytes, args: tuple[Any, ...]) -> None:
        await asyncio.sleep(self.loop.rng.random() ** 3 * self.late_s)
        try:
            await self.inner.call(method, key, *args, budget_ms=1000)
            self.again += 1
        except KvorumError:
            return

    async def quiet(self) -> None:
        """When nothing is on its way any more."""
        while self._echoes:
            await asyncio.wait(self._echoes)
