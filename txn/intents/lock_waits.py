"""Looks after what waits at one node (D6, D8): asks about those who are waited for, and finds
circles.

Writes wait in the partitions' queues, which know nothing of the rest of the cluster. While somebody
waits here:
  * every holder that is waited for longer than WAIT_PUSH_MS is asked about at its anchor, one
    question however many wait, at growing distances: one that is over is resolved, one whose time
    is up is rolled back by the question. So an abandoned transaction blocks nobody longer than its
    ttl, WAIT_PUSH_MS_MAX, and two messages;
  * waits of transactions that may hold something, longer than DEADLOCK_AFTER_MS, are looked through
    for circles (txn/intents/deadlock.py), with those of all other nodes.

Nothing is kept but how long ago somebody was asked about. What fails is done in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from kv.base.errors import KvorumError
from kv.base.intents import Abandoned
from kv.base.limits import (
    DEADLOCK_AFTER_MS,
    DEADLOCK_AGAIN_MS_MAX,
    DEADLOCK_WAITS_MAX,
    MULTI_KEYS_MAX,
    PUSHES_IN_FLIGHT_MAX,
    WAIT_PUSH_MS,
    WAIT_PUSH_MS_MAX,
)
from kv.base.ports import Timers
from kv.base.waits import HeldUp, Wait, Waits
from txn.intents.deadlock import Cycle, cycles, refusal, still, victim
from txn.intents.resolver import Resolver
from txn.shared.deadlines import sleep

Edge: TypeAlias = tuple[int, int, int, int]  # Wait.edge
_PUSH_S: Final = WAIT_PUSH_MS / 1000
_LOOK_S: Final = DEADLOCK_AFTER_MS / 1000
_LOOK_SHARE: Final = 20  # a look may take one part of so many of the time


class Others(Protocol):
    """The waits of a cluster."""

    async def all(self) -> Sequence[Wait]:
        """Older than DEADLOCK_AFTER_MS, of transactions that may hold something: of this node and
        of all others that answer.
        """
        ...

    async def refuse(self, wait: Wait, error: KvorumError) -> bool:
        """End a wait at whichever node it is; False if it has ended by itself."""
        ...


def circling(waits: Waits) -> list[Wait]:
    """The waits of this node that may be part of a circle."""
    return waits.all(DEADLOCK_WAITS_MAX, older_ms=DEADLOCK_AFTER_MS, holding=True)


class Alone:
    """`Others` of a node without any."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    async def all(self) -> Sequence[Wait]:
        return circling(self._waits)

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
        self._holders: dict[int, _Holder] = {}
        self._asking: set[int] = set()  # holders that are being asked about
        self._looked: frozenset[Edge] = frozenset()  # edges of the last look
        self._look_at_s = 0.0
        self._distance_s = _LOOK_S

    async def run(self) -> None:
        """Rounds while somebody waits."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._push_rounds(group))
            group.create_task(self._look_rounds())

    # -- holders

    async def _push_rounds(self, group: asyncio.TaskGroup) -> None:
        while True:
            held_up = self._waits.held_up()
            if held_up:
                self._push(held_up, group)
            else:
                self._some.clear()
                self._holders.clear()
                self._waits.owners = {}
                await self._some.wait()
            await sleep(self._timers, _PUSH_S / 2)

    def _push(self, held_up: Sequence[tuple[int, HeldUp]], group: asyncio.TaskGroup) -> None:
        """Ask about the holders whose turn it is. An anchor that does not answer holds up nobody
        else.
        """
        now_s = self._timers.monotonic()
        by_holder: dict[int, dict[tuple[int, str], Abandoned]] = {}  # then by partition and user
        for partition, held in held_up:
            here = by_holder.setdefault(held.holder, {})
            new = Abandoned(held.holder, held.anchor, held.ttl_ms, [], held.user)
            keys = here.setdefault((partition, held.user), new).keys
            if held.key not in keys and len(keys) < MULTI_KEYS_MAX:
                keys.append(held.key)
        known = self._holders
        self._holders = {h: known.get(h) or _Holder(now_s + _PUSH_S) for h in by_holder}
        for start_ts, holder in self._holders.items():
            free = len(self._asking) < PUSHES_IN_FLIGHT_MAX and start_ts not in self._asking
            if free and holder.due(now_s):
                self._asking.add(start_ts)
                group.create_task(self._finish(start_ts, by_holder[start_ts].values()))
        owners = self._resolver.owners
        self._waits.owners = {h: owners[h] for h in by_holder if h in owners}

    async def _finish(self, start_ts: int, by_partition: Iterable[Abandoned]) -> None:
        try:
            for intents in by_partition:
                self.pushed += await self._resolver.finish(intents)
        except KvorumError:
            pass  # asked again in a moment
        finally:
            self._asking.discard(start_ts)

    # -- circles

    async def _look_rounds(self) -> None:
        while True:
            mine = circling(self._waits)
            edges = frozenset(wait.edge for wait in mine if wait.holder)
            began_s = self._timers.monotonic()
            if not edges <= self._looked:
                self._distance_s = _LOOK_S
                await self._look(mine, edges)
            elif edges and began_s >= self._look_at_s:
                self._distance_s = min(2 * self._distance_s, DEADLOCK_AGAIN_MS_MAX / 1000)
                await self._look(mine, edges)
            elif not edges:
                await self._some.wait()
                began_s = self._timers.monotonic()
            took_s = self._timers.monotonic() - began_s
            pause_s = min(max(_LOOK_S, _LOOK_SHARE * took_s), DEADLOCK_AGAIN_MS_MAX / 1000)
            await sleep(self._timers, pause_s)

    async def _look(self, mine: Sequence[Wait], edges: frozenset[Edge]) -> None:
        """Look for circles through waits of this node, and end what is one."""
        self._looked = edges
        found = cycles(await self._others.all(), {wait.waiter_id for wait in mine})
        if found:
            again = await self._others.all()
            for cycle in found:
                if still(cycle, again):
                    await self._end(cycle)
        self._look_at_s = self._timers.monotonic() + self._distance_s

    async def _end(self, cycle: Cycle) -> None:
        chosen = victim(cycle)
        try:
            self.deadlocks += await self._others.refuse(chosen, refusal(cycle, chosen))
        except KvorumError:
            self._looked = frozenset()  # its node does not answer: the next look finds it again


class _Holder:
    """When to ask about somebody who is waited for."""

    __slots__ = ("_after_s", "_at_s")

    def __init__(self, at_s: float) -> None:
        self._at_s, self._after_s = at_s, _PUSH_S

    def due(self, now_s: float) -> bool:
        """Whether it is time; then the next time is later."""
        if now_s < self._at_s:
            return False
        self._at_s = now_s + self._after_s
        self._after_s = min(2 * self._after_s, WAIT_PUSH_MS_MAX / 1000)
        return True
