"""Timestamps for one node of a cluster: of the oracle here while it serves, else of the one that
does.

    partitions ── request ──┬── the oracle in this process: answered within the call
    clients ───── take ─────┴── otherwise: one request for all who asked until it leaves, on a
                                connection of its own to the leader of the meta partition

A partition's timestamps are asked for after its commands arrived, and never kept: what comes for
commands that were refused meanwhile is thrown away. If none come within TSO_PATIENCE_MS, the
commands are refused as TryLater, and nothing was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from kv.base.errors import KvorumError, NotLeader, Unavailable
from kv.base.limits import DEADLINE_MS_DEFAULT, TSO_COUNT_MAX, TSO_PATIENCE_MS
from kv.base.ports import Rng, Timers
from kv.partition.timestamps import OfOracle
from tso.client import Patience

Taken = Callable[[int, KvorumError | None], None]
"""(first, None), or (0, why there are none)"""

NO_ORACLE: Final = "NO_ORACLE"  # code of Unavailable: no timestamps now; asking again may help


class Local(Protocol):
    """The oracle of this process (tso.service.TsoService)."""

    @property
    def leading(self) -> bool: ...

    @property
    def last(self) -> int:
        """While it leads: everything to come lies above it."""
        ...

    def take(self, n: int) -> int:
        """Raises NotLeader if its lease is over, too."""
        ...


class Remote(Protocol):
    """Whoever asks the serving oracle of another node (tso.client.TsoClient)."""

    async def take(self, count: int) -> int: ...


class NodeTso(OfOracle):
    """See the module. Counts `waits`: requests of partitions that went to another node."""

    def __init__(
        self,
        local: Local,
        remote: Remote,
        timers: Timers,
        rng: Rng,
        *,
        budget_ms: int = DEADLINE_MS_DEFAULT,
    ) -> None:
        self.waits = 0
        self._local = local
        self._remote = remote
        self._patience = Patience(timers, rng, budget_ms)
        self._waiting: list[tuple[int, Taken]] = []
        self._asking: asyncio.Task[None] | None = None
        self._closed = False
        self._heard = 0  # the highest that the oracle of another node gave to this one

    @property
    def known(self) -> int:
        """kv.partition.ports.Timestamps."""
        return max(self._heard, self._local.last) if self._local.leading else self._heard

    # -- clients of this node

    async def now(self) -> int:
        """A timestamp above every one that was handed out before this call."""
        return await self.take(1)

    async def above(self, _at: int) -> int:
        """A fresh one is above all that were ever given out."""
        return await self.take(1)

    async def take(self, count: int) -> int:
        """The first of `count` consecutive timestamps. Raises what `TsoClient.take` raises."""
        if self._local.leading:
            try:
                return self._local.take(count)
            except (Unavailable, NotLeader):
                pass  # its bound is being raised, or its lease is over
        return await self._patience.ask(self._fetch, count)

    async def _fetch(self, count: int, _budget_ms: int) -> int:
        if self._local.leading:
            try:
                return self._local.take(count)
            except NotLeader:
                pass
        return await self._ask_remote(count)

    async def _ask_remote(self, count: int) -> int:
        first = await self._remote.take(count)
        self._heard = max(self._heard, first + count - 1)
        return first

    # -- its partitions

    def request(self, n: int, done: Taken) -> None:
        """kv.partition.ports.Timestamps."""
        if self._local.leading:
            try:
                first = self._local.take(n)
            except NotLeader:
                pass
            except KvorumError as error:
                done(0, error)
                return
            else:
                done(first, None)
                return
        if self._closed:
            done(0, _none("this node is stopping"))
            return
        self.waits += 1
        self._waiting.append((n, done))
        if self._asking is None:
            self._ask()

    def _ask(self) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._ask_for_all(), name="tso")
        self._asking.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if self._waiting and not self._closed:
            self._ask()
        if not task.cancelled():
            task.result()  # a bug of the callback: to the loop's handler, as from any callback

    async def _ask_for_all(self) -> None:
        """One request for all who wait by now; who comes later is in the next one."""
        batch = self._next_batch()
        try:
            async with asyncio.timeout(TSO_PATIENCE_MS / 1000):
                first = await self._ask_remote(sum(n for n, _ in batch))
        except (KvorumError, TimeoutError) as error:
            why = error.message if isinstance(error, KvorumError) else "it does not answer"
            refusal = _none(why)
            for _, done in batch:
                done(0, refusal)
            return
        except asyncio.CancelledError:
            refusal = _none("this node is stopping")
            for _, done in batch:
                done(0, refusal)
            raise
        for n, done in batch:
            done(first, None)
            first += n

    def _next_batch(self) -> list[tuple[int, Taken]]:
        """As many as one request may ask for, in their order."""
        total = 0
        for i, (n, _) in enumerate(self._waiting):
            total += n
            if total > TSO_COUNT_MAX and i:
                batch, self._waiting = self._waiting[:i], self._waiting[i:]
                return batch
        batch, self._waiting = self._waiting, []
        return batch

    async def close(self) -> None:
        """Refuse what waits and what comes."""
        self._closed = True
        waiting, self._waiting = self._waiting, []
        refusal = _none("this node is stopping")
        for _, done in waiting:
            done(0, refusal)
        if self._asking is not None:
            asking = self._asking
            asking.cancel()
            await asyncio.wait([asking])


def _none(why: str) -> Unavailable:
    return Unavailable(
        f"there are no timestamps to be had ({why}); nothing was done: ask again in a moment",
        code=NO_ORACLE,
    )
