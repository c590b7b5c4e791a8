"""Timestamps for many callers from few requests.

    caller, caller, caller ──▶ waiting ──(one request out at a time)──▶ the oracle

A caller's timestamp is asked for after the caller asked: who comes while a request is out goes into
the next one. So a timestamp is above every one whose caller had it before; ranges are never fetched
ahead, which would break that.

There is no task of its own: one of the waiting callers makes the request for all of them. If it is
cancelled, another one takes over.

Use a KvClient of its own for a remote oracle: then bulk data on the other connection does not delay
timestamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kv.base.errors import InvalidArgument, KvorumError, NotLeader, Unavailable
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
    TSO_COUNT_MAX,
)
from kv.base.methods import TSO
from kv.base.ports import Rng, Timers
from kv.base.spoken_time import Heard, Time
from kv.base.timestamps import STEP
from kv.client.calls import CUT_OFF
from kv.client.client import KvClient
from kv.client.links import CLOSED
from tso.detour import detour

Fetch = Callable[[int, int], Awaitable[int]]  # (count, budget_ms) → first

_YOUR_TURN: Final = -1  # what a waiting caller is woken with when it shall make the next request


class Source(Protocol):
    """An oracle in this process (tso.service.TsoService)."""

    def take(self, n: int) -> int: ...


class _Waiter:
    __slots__ = ("count", "woken")

    def __init__(self, count: int) -> None:
        self.count = count
        self.woken: asyncio.Future[int] | None = None


class TsoClient:
    """`now` and `take` for any number of callers on one loop.

    Counts `requests` and `handed_out`.
    """

    def __init__(
        self,
        fetch: Fetch,
        timers: Timers,
        rng: Rng,
        *,
        budget_ms: int = DEADLINE_MS_DEFAULT,
        heard: Time | None = None,
        reach: Fetch | None = None,
    ) -> None:
        """`heard`: what came over the connections; it says whether clocks are hybrid. `reach(at,
        budget_ms)`: has a node hear of `at`, too.
        """
        self.requests = 0
        self.handed_out = 0
        self.heard = Heard() if heard is None else heard
        self._fetch, self._reach = fetch, reach
        self._patience = Patience(timers, rng, budget_ms)
        self._waiting: list[_Waiter] = []
        self._busy = False  # somebody makes a request, or was woken to

    @property
    def hybrid(self) -> bool:
        """Whether timestamps come from the nodes' own clocks (tso/hybrid.py): then "before" is what
        these connections have heard of, and one is STEP from the next.
        """
        return self.heard.at > 0

    @property
    def causal_token(self) -> int:
        return self.heard.at

    async def now(self) -> int:
        """A timestamp above every one that was handed out before this call."""
        return await self.take(1)

    async def above(self, at: int) -> int:
        """A timestamp above `at`, as all later ones over these connections if clocks are hybrid.
        Raises InvalidArgument for one that no node can have given out.
        """
        first = 0 if self.hybrid else await self.now()  # whose reply says whether they are
        if self._reach is None or not self.hybrid or first > at:
            return first or await self.now()
        first = await self._patience.ask(self._reach, at)
        self.heard.owe(first)
        return first

    async def take(self, count: int) -> int:
        """The first of `count` consecutive timestamps, all above every one handed out before this
        call.

        Raises DeadlineExceeded or Unavailable when the oracle cannot be had in time,
        InvalidArgument for a count outside 1 … TSO_COUNT_MAX.
        """
        if not 0 < count <= TSO_COUNT_MAX:
            raise InvalidArgument(f"count must be in 1 … {TSO_COUNT_MAX} timestamps, got {count}")
        me = _Waiter(count)
        self._waiting.append(me)
        if self._busy:
            first = await self._wait(me)
            if first != _YOUR_TURN:
                return first
        self._busy = True
        return await self._ask_for_all(me)

    async def _wait(self, me: _Waiter) -> int:
        """What another caller fetched for this one, or _YOUR_TURN."""
        me.woken = asyncio.get_running_loop().create_future()
        try:
            return await me.woken
        except asyncio.CancelledError:
            if me in self._waiting:
                self._waiting.remove(me)
            if _was_woken(me.woken):
                self._pass_on()
            raise

    async def _ask_for_all(self, me: _Waiter) -> int:
        """Make one request for all who wait, this caller among them, and give out what came."""
        batch: list[_Waiter] = []
        try:
            await asyncio.sleep(0)  # who asks in the same turn of the loop comes along
            batch = self._next_batch(me)
            self.requests += 1
            at = first = await self._patience.ask(self._fetch, sum(w.count for w in batch))
        except BaseException as error:
            self._failed(me, batch, error)
            raise
        finally:
            self._pass_on()
        step = STEP if self.heard.at else 1
        for waiter in batch:
            if waiter is me:
                first = at
            elif waiter.woken is not None and not waiter.woken.done():
                waiter.woken.set_result(at)
            self.handed_out += waiter.count
            at += waiter.count * step
        return first

    def _next_batch(self, me: _Waiter) -> list[_Waiter]:
        """This caller and as many of the others as one request may ask for, in their order."""
        total = me.count
        batch, rest = [me], []
        for waiter in self._waiting:
            if waiter is me:
                continue
            if total + waiter.count <= TSO_COUNT_MAX:
                total += waiter.count
                batch.append(waiter)
            else:
                rest.append(waiter)
        self._waiting = rest
        return batch

    def _failed(self, me: _Waiter, batch: list[_Waiter], error: BaseException) -> None:
        """The oracle's error is everybody's; a cancelled caller leaves the others waiting."""
        if me in self._waiting:
            self._waiting.remove(me)
        others = [w for w in batch if w is not me]
        if not isinstance(error, KvorumError):
            self._waiting = others + self._waiting
            return
        for waiter in others:
            if waiter.woken is not None and not waiter.woken.done():
                waiter.woken.set_exception(error)

    def _pass_on(self) -> None:
        """Let the first who still waits make the next request."""
        self._busy = False
        while self._waiting:
            heir = self._waiting[0]
            if heir.woken is not None and not heir.woken.done():
                self._busy = True
                heir.woken.set_result(_YOUR_TURN)
                return
            del self._waiting[0]


class LocalTso:
    """`now` and `take` from an oracle in this process: no request, so nothing to coalesce."""

    hybrid: Final = False
    causal_token: Final = 0

    def __init__(
        self, source: Source, timers: Timers, rng: Rng, *, budget_ms: int = DEADLINE_MS_DEFAULT
    ) -> None:
        self._source = source
        self._patience = Patience(timers, rng, budget_ms)

    async def now(self) -> int:
        """A timestamp above every one that was handed out before this call."""
        return await self.take(1)

    async def above(self, _at: int) -> int:
        return await self.take(1)

    async def take(self, count: int) -> int:
        """The first of `count` consecutive timestamps. Raises what `TsoClient.take` raises."""
        try:
            return self._source.take(count)
        except (Unavailable, NotLeader):
            return await self._patience.ask(self._fetch, count)

    async def _fetch(self, count: int, _budget_ms: int) -> int:
        return self._source.take(count)


class Patience:
    """Asks again while the oracle cannot serve: its bound is being raised, or its leader
    changes.
    """

    def __init__(self, timers: Timers, rng: Rng, budget_ms: int) -> None:
        self._monotonic = timers.monotonic
        self._random = rng.random
        self._budget_ms = budget_ms

    async def ask(self, fetch: Fetch, count: int) -> int:
        """What `fetch` gives in the end. Raises its last error when the time is over."""
        deadline = self._monotonic() + self._budget_ms / 1000
        attempt = 0
        while True:
            left_ms = max(1, int((deadline - self._monotonic()) * 1000))
            try:
                return await fetch(count, left_ms)
            except (Unavailable, NotLeader) as error:
                pause = min(RETRY_WAIT_MS_FIRST << min(attempt, 16), RETRY_WAIT_MS_MAX) / 1000
                pause *= 0.5 + self._random() / 2
                if error.code in (CLOSED, CUT_OFF) or self._monotonic() + pause >= deadline:
                    raise
                attempt += 1
            await asyncio.sleep(pause)


def _was_woken(woken: asyncio.Future[int]) -> bool:
    """Whether a caller that is being cancelled had already been woken to make the next request."""
    if not woken.done() or woken.cancelled() or woken.exception() is not None:
        return False
    return woken.result() == _YOUR_TURN


def remote_tso(
    kv: KvClient,
    timers: Timers,
    rng: Rng,
    *,
    budget_ms: int = DEADLINE_MS_DEFAULT,
) -> TsoClient:
    """Timestamps over the native protocol, of whichever node can ask for them (detour.py). Give it
    a KvClient that carries nothing else, and has heard what those for data hear.
    """

    async def reach(at: int, budget_ms: int) -> int:
        first: int = (await kv.call_node(TSO, 1, at, budget_ms=budget_ms))[0]
        return first

    fetch = detour(kv, timers, lambda: kv.addresses).fetch
    return TsoClient(fetch, timers, rng, budget_ms=budget_ms, heard=kv.heard, reach=reach)
