"""Looks after what waits at one node (D6, D8): asks about those who are waited for, and finds
circles.

Writes wait in the partitions' queues, which know nothing of the rest of the cluster. While somebody
waits here:
  * every holder that is waited for longer than WAIT_PUSH_MS is asked about at its anchor, one
    question however many wait, at growing distances: one that is over is resolved, one whose time
    is up is rolled back by the question. So an abandoned transaction blocks nobody longer than its
    ttl, WAIT_PUSH_MS_MAX, and two messages;
  * waits of transactions that may hold something, longer than DEADLOCK_AFTER_MS, are looked through
    for circles (txn/deadlock.py), with those of all other nodes.

Nothing is kept but how long ago somebody was asked about. What fails is done in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

from kv.base.errors import KvorumError
from kv.base.intents import Abandoned
from kv.base.limits import (
    DEADLOCK_AFTER_MS,
    DEADLOCK_AGAIN_MS_MAX,
    PUSHES_IN_FLIGHT_MAX,
    WAIT_PUSH_MS,
    WAIT_PUSH_MS_MAX,
)
from kv.base.ports import Timers
from kv.base.waits import PROCEDURE, Wait, Waits
from txn.deadlock import cycles, refusal, still, victim
from txn.resolver import Resolver
from txn.waiting import sleep

_ROUND_MS: Final = WAIT_PUSH_MS // 2


class Others(Protocol):
    """The other nodes' waits."""

    async def all(self) -> Sequence[Wait]:
        """Waits of transactions that may hold something: of this node and of all that answer."""
        ...

    async def refuse(self, wait: Wait, error: KvorumError) -> bool:
        """End a wait at whichever node it is; False if it has ended by itself."""
        ...


class Alone:
    """`Others` of a node without any."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    async def all(self) -> Sequence[Wait]:
        return self._waits.all()

    async def refuse(self, wait: Wait, error: KvorumError) -> bool:
        return self._waits.refuse(wait.edge, error)


class WaitCare:
    """See the module; `run` until it is cancelled."""

    def __init__(self, waits: Waits, resolver: Resolver, others: Others, timers: Timers) -> None:
        self.pushed = 0  # intents removed or finished because somebody waited for them
        self.deadlocks = 0  # victims named here
        self._waits, self._resolver, self._others = waits, resolver, others
        self._timers = timers
        self._some = asyncio.Event()
        waits.on_wait = self._some.set
        self._asked: dict[int, tuple[float, float]] = {}  # by holder: (when again, then after), s
        self._look_at = 0.0
        self._look_after_s = DEADLOCK_AFTER_MS / 1000
        self._looked: frozenset[tuple[int, int, int, int]] = frozenset()  # edges of the last look

    async def run(self) -> None:
        """Rounds while somebody waits."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds(self._push))
            group.create_task(self._rounds(self._look))

    async def _rounds(self, round_: Callable[[list[Wait]], Awaitable[None]]) -> None:
        while True:
            waits = [w for w in self._waits.all() if w.kind != PROCEDURE]
            if waits:
                await round_(waits)
            else:
                self._forget()
                await self._some.wait()
            await sleep(self._timers, _ROUND_MS / 1000)

    def _forget(self) -> None:
        self._some.clear()
        self._asked.clear()
        self._waits.owners.clear()
        self._looked = frozenset()

    # -- holders

    async def _push(self, waits: list[Wait]) -> None:
        """Ask about the holders whose turn it is."""
        now_s = self._timers.monotonic()
        due: dict[int, dict[int, Abandoned]] = {}  # by holder, by partition
        held: set[int] = set()
        for wait in waits:
            holder = wait.holder
            if not holder:
                continue
            held.add(holder)
            again_s, _ = self._asked.get(holder, (0.0, 0.0))
            if (wait.waited_ms >= WAIT_PUSH_MS and again_s <= now_s) or holder in due:
                here = due.setdefault(holder, {})
                new = Abandoned(holder, wait.anchor, wait.ttl_ms, [])
                keys = here.setdefault(wait.source, new).keys
                if wait.held not in keys:
                    keys.append(wait.held)
        for holder in due:
            _, after_s = self._asked.get(holder, (0.0, WAIT_PUSH_MS / 1000))
            self._asked[holder] = now_s + after_s, min(2 * after_s, WAIT_PUSH_MS_MAX / 1000)
        self._asked = {h: asked for h, asked in self._asked.items() if h in held}
        if due:
            turns = iter(due.values())
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(due), PUSHES_IN_FLIGHT_MAX)):
                    group.create_task(self._finish_each(turns))
        owners = self._resolver.owners
        self._waits.owners = {h: owners[h] for h in held if h in owners}

    async def _finish_each(self, turns: Iterator[dict[int, Abandoned]]) -> None:
        for turn in turns:
            for intents in turn.values():
                try:
                    self.pushed += await self._resolver.finish(intents)
                except KvorumError:
                    break  # asked again in a moment

    # -- circles

    async def _look(self, waits: list[Wait]) -> None:
        """Look for circles when a wait is old enough that none was looked at with, or it is time
        again.
        """
        mine = [w for w in waits if w.holding and w.holder and w.waited_ms >= DEADLOCK_AFTER_MS]
        if not mine:
            return
        now_s = self._timers.monotonic()
        edges = frozenset(wait.edge for wait in mine)
        new = not edges <= self._looked
        if now_s < self._look_at and not new:
            return
        self._look_after_s = (
            DEADLOCK_AFTER_MS / 1000
            if new
            else min(2 * self._look_after_s, DEADLOCK_AGAIN_MS_MAX / 1000)
        )
        self._looked = edges
        self._look_at = now_s + self._look_after_s
        await self._end_circles({wait.waiter for wait in mine})
        await sleep(self._timers, (DEADLOCK_AFTER_MS - _ROUND_MS) / 1000)

    async def _end_circles(self, roots: set[int]) -> None:
        found = cycles(await self._others.all(), roots)
        if not found:
            return
        again = await self._others.all()
        for cycle in found:
            if still(cycle, again):
                chosen = victim(cycle)
                try:
                    ended = await self._others.refuse(chosen, refusal(cycle, chosen))
                except KvorumError:
                    continue  # its node does not answer; the next look finds the circle again
                self.deadlocks += ended
