"""Timestamps for somebody whom the oracle does not hear: another node asks in its stead.

    direct ── no answer for TSO_DIRECT_MS ──▶ detour: the nodes that are known are asked to ask
      ▲                                         │     (TSO_RELAYED), then the one that could
      └──── a probe of the direct way ──────────┘

Why this is right: a relay keeps nothing. It asks the oracle after it was asked, and the oracle
answers under its lease; so a timestamp still is above every one that was handed out before somebody
asked for it. One that comes too late is thrown away.

A relay asks the oracle in one attempt and no other relay, so a request makes at most
TSO_RELAYS_MAX others, and only while the direct way is silent; probes go one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kv.base.errors import DeadlineExceeded, KvorumError
from kv.base.limits import TSO_DIRECT_MS, TSO_PATIENCE_MS, TSO_RELAYS_MAX
from kv.base.methods import TSO
from kv.base.ports import Timers
from kv.client.client import KvClient
from kv.client.router import Address
from tso.verbs import TSO_RELAYED

Fetch = Callable[[int, int], Awaitable[int]]  # (count, budget_ms) → first
Ask = Callable[[Address, int, int], Awaitable[int]]  # (relay, count, budget_ms) → first

_STILL_MS: Final = 2 * TSO_DIRECT_MS  # a relay that answered so long ago may be gone, too


class Route:
    """Which way requests go; pure. `now` in seconds, of any clock that only rises."""

    __slots__ = ("_answered", "_from", "_since", "via")

    def __init__(self) -> None:
        self.via: Address | None = None  # the relay that answered last, in this detour
        self._since: float | None = None
        self._answered = 0.0
        self._from = 0

    @property
    def direct(self) -> bool:
        return self._since is None

    def silent(self, now: float) -> None:
        """The oracle did not answer in time."""
        if self._since is None:
            self._since = now

    def heard(self) -> None:
        """It answered."""
        self._since = self.via = None

    def relayed(self, by: Address, now: float) -> None:
        self.via, self._answered = by, now

    def refused(self) -> None:
        """Nobody who was asked could."""
        self.via = None

    def ask(self, known: Sequence[Address]) -> list[Address]:
        """Who is asked next: the one that could the last time, else the next few."""
        if self.via is not None and self.via in known:
            return [self.via]
        if len(known) <= TSO_RELAYS_MAX:
            return list(known)
        begin = self._from % len(known)
        self._from = begin + TSO_RELAYS_MAX
        return [*known[begin:], *known[:begin]][:TSO_RELAYS_MAX]

    def relay_for(self, ms: int, now: float) -> Address | None:
        """Who relays, if somebody does now and has had to for `ms`."""
        if self._since is None or now - self._since < ms / 1000:
            return None
        return self.via if now - self._answered < _STILL_MS / 1000 else None


class Detour:
    """See the module. Counts `relayed`: requests that somebody else made."""

    def __init__(
        self,
        direct: Fetch,
        relayed: Ask,
        known: Callable[[], Sequence[Address]],
        timers: Timers,
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        """`known`: who may be asked to ask. `refuse` raises when nobody can be asked now."""
        self._refuse = refuse
        self.relayed = 0
        self._direct, self._ask, self._known = direct, relayed, known
        self._monotonic = timers.monotonic
        self._route = Route()
        self._probe: asyncio.Task[KvorumError | None] | None = None

    def relay_for(self, ms: int) -> Address | None:
        """Through whom timestamps come, if the oracle itself has not answered for `ms`."""
        return self._route.relay_for(ms, self._monotonic())

    async def fetch(self, count: int, budget_ms: int) -> int:
        """The first of `count` timestamps, whichever way. Raises what the direct way raises;
        DeadlineExceeded.
        """
        deadline = self._monotonic() + budget_ms / 1000
        while (left := deadline - self._monotonic()) > 0:
            self._refuse()
            if self._route.direct:
                try:
                    async with asyncio.timeout(min(left, TSO_DIRECT_MS / 1000)):
                        return await self._direct(count, budget_ms)
                except TimeoutError:
                    self._route.silent(self._monotonic())
                    continue
            probe = self.look()
            first = await self._by_others(count, left)
            if first is not None:
                return first
            await self._see(probe, left)
        raise DeadlineExceeded(
            "no timestamp came in time: neither the leader of the meta partition nor a node that "
            "could ask it answered; nothing was done"
        )

    def look(self) -> asyncio.Task[KvorumError | None] | None:
        """Find out whether the oracle answers again, in a detour."""
        if self._route.direct:
            return None
        if self._probe is None or self._probe.done():
            loop = asyncio.get_running_loop()
            self._probe = loop.create_task(self._probed(), name="tso probe")
        return self._probe

    async def _probed(self) -> KvorumError | None:
        """Its timestamp is nobody's: those who ask meanwhile may have asked after it was taken."""
        try:
            await self._direct(1, TSO_PATIENCE_MS)
        except KvorumError as error:
            return error
        self._route.heard()
        return None

    async def _see(self, probe: asyncio.Task[KvorumError | None] | None, left: float) -> None:
        """Nobody can ask it, perhaps nobody leads: wait a moment for the direct way. Raises what it
        raised.
        """
        if probe is None:
            return
        await asyncio.wait([probe], timeout=min(left, TSO_DIRECT_MS / 1000))
        error = probe.result() if probe.done() else None
        if error is not None and not isinstance(error, DeadlineExceeded):
            raise error

    async def _by_others(self, count: int, left: float) -> int | None:
        """What the first of them gives that can; None if none can."""
        relays = self._route.ask(self._known())
        if not relays:
            return None
        loop = asyncio.get_running_loop()
        budget_ms = max(1, min(int(left * 1000), TSO_DIRECT_MS))
        asked = [loop.create_task(self._by(relay, count, budget_ms)) for relay in relays]
        waiting = set(asked)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in (task for task in asked if task in done):  # a set has no order
                    if (found := task.result()) is not None:
                        by, first = found
                        self._route.relayed(by, self._monotonic())
                        self.relayed += 1
                        return first
        finally:
            for task in asked:
                task.cancel()
        self._route.refused()
        return None

    async def _by(self, relay: Address, count: int, budget_ms: int) -> tuple[Address, int] | None:
        try:
            return relay, await self._ask(relay, count, budget_ms)
        except KvorumError:
            return None  # it cannot either


def detour(kv: KvClient, timers: Timers, known: Callable[[], Sequence[Address]]) -> Detour:
    """Over the native protocol. `kv`: a client that carries nothing else."""

    async def direct(count: int, budget_ms: int) -> int:
        first: int = (await kv.call_node(TSO, count, budget_ms=budget_ms))[0]
        return first

    async def relayed(relay: Address, count: int, budget_ms: int) -> int:
        first: int = (await kv.call_at(relay, TSO_RELAYED, count, budget_ms=budget_ms))[0]
        return first

    return Detour(direct, relayed, known, timers, kv.refuse_cut_off)
