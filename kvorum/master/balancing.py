"""The schedulers of procedures/master/schedulers/schedule.py at a node: their loops while it is the
master, and what they need of the node.

Section "pace" of the beats reports to the master how long this node's log syncs take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from kv.base.errors import KvorumError
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import SCHEDULE_PAUSE_S
from kvorum.local.measure import Histogram
from kvorum.local.ports import Loop
from kvorum.master.bus import NodeBus
from kvorum.master.roles import Master
from kvorum.storage.store import Store
from procedures.engine.registry import Registry
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import NodeRow, all_nodes
from procedures.master.map.partitions import Placed, placed_partitions
from procedures.master.map.placement import home, preferred_nodes
from procedures.master.members import crash, move_apart, rebuilding, relocating
from procedures.master.members.crash import CrashServices
from procedures.master.members.membership import MembershipServices
from procedures.master.schedulers import explaining
from procedures.master.schedulers.schedule import Schedulers, Sources
from txn.transaction import Transaction

log = logging.getLogger(__name__)

SECTION = "pace"


class Balancing:
    """See the module. `tasks` until they are cancelled."""

    def __init__(
        self, store: Store, master: Callable[[], Master], bus: NodeBus, groups: Groups
    ) -> None:
        self._store, self._master = store, master
        self._pace: dict[int, float] = {}
        self.schedulers = Schedulers(
            Sources(
                read=self._read,
                groups=groups,
                reports=store.picture,
                health=store.pulse.health,
                executor=lambda: master().executor,
                busy=bus.busy,
                setting=bus.settings.value,
                monotonic=store.ports.timers.monotonic,
                now_ms=store.ports.clock.now_ms,
                pace=lambda: self._pace,
                damage=store.damage.all,
            )
        )
        store.heart.add(SECTION, _NodePace(store.sync_taken))
        store.pulse.add(SECTION, _MasterPace(self._pace))

    async def _read(self) -> tuple[Sequence[NodeRow], Sequence[Placed]]:
        async def look(t: Transaction) -> tuple[Sequence[NodeRow], Sequence[Placed]]:
            return await all_nodes(t), await placed_partitions(t)

        return await self._store.txn.run(look)

    def register(self, registry: Registry, services: MembershipServices) -> None:
        """Serve the procedures that the schedulers submit."""
        relocating.register(registry, services, self.schedulers.room)
        dead = self.schedulers.dead
        crash.register(registry, CrashServices(services, self.schedulers.loads, dead))
        move_apart.register(registry, services, self.schedulers.loads)
        rebuilding.register(registry, services)
        explaining.register(registry, self.schedulers)

    def loops(self) -> list[Loop]:
        """The two loops."""
        return [
            partial(self._run, self.schedulers.placement, "placement"),
            partial(self._run, self.schedulers.balance, "the balancer"),
        ]

    async def _run(self, look: Callable[[], Awaitable[None]], what: str) -> None:
        while True:
            await asyncio.sleep(SCHEDULE_PAUSE_S)
            if self._master().executor is None or self._store.alone:
                continue
            try:
                await look()
            except KvorumError as error:
                log.info("%s did not look: %s; next round", what, error)


class _NodePace:
    """kvorum.cluster.heartbeat.NodeSection."""

    def __init__(self, taken: Histogram) -> None:
        self._taken = taken
        self._reported = (0, 0.0)

    def collect(self) -> list[float] | None:
        """[syncs since the last beat, ms that one of them took]."""
        now = (sum(self._taken.counts), self._taken.sum_s)
        syncs, seconds = now[0] - self._reported[0], now[1] - self._reported[1]
        self._reported = now
        return [syncs, 1000 * seconds / syncs] if syncs else None

    def take(self, reply: object) -> None:
        """Nothing is answered."""

    def again(self) -> None:
        """What was lost is lost: the next beat reports the next syncs."""


class _MasterPace:
    """kvorum.cluster.heartbeat.MasterSection."""

    def __init__(self, known: dict[int, float]) -> None:
        self._known = known

    def begin(self) -> None:
        self._known.clear()

    def handle(self, node: int, payload: Any) -> object:
        """Raises TypeError, ValueError."""
        if payload is not None:
            _, ms = payload
            self._known[node] = float(ms)
        return None


def wanted_leaders(
    rows: Sequence[Placed], nodes: Sequence[NodeRow], slow: Collection[NodeId] = ()
) -> Mapping[PartitionId, NodeId]:
    """By partition: who should lead it, where the map says so or its table prefers somebody."""
    liked = preferred_nodes(rows, nodes)
    found: dict[PartitionId, NodeId] = {}
    for row in rows:
        d = row.descriptor
        if not liked[row.leaders].isdisjoint(d.data_voters):
            found[d.id] = home(d.id, d.data_voters, row.leads, slow, liked[row.leaders])
        elif row.leads:
            found[d.id] = row.leads
    return found
